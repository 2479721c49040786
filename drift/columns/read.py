"""What sources read, as rows with the fields of a schema: cells of text, JSON, rows of a database.

Invariant: what a value becomes depends on it and on its field's type alone, and nothing is lost: a value that its type
does not hold is an InputError.

Why: of texts and JSON a value is what `drift.columns.values` says; and what a database has given is compared with what
the column has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from drift.columns.expressions import Fields, Schema, fields_of
from drift.columns.rows import Frame
from drift.columns.values import as_decimal, at_once, floats_at_once, of_text
from drift_graph.errors import GraphError, InputError, SettingsError

#: From rows in any form to rows in columns; it raises InputError if one of them cannot be made.
Make = Callable[[Sequence[Any]], Frame]
#: The same from columns of texts.
OfColumns = Callable[[Sequence[Sequence[str] | pl.Series]], Frame]


def checked_schema(source: str, schema: Schema) -> Fields:
    """
    Raises:
        SettingsError: it is no schema.
    """
    try:
        return fields_of(schema, source)
    except GraphError as error:
        raise SettingsError(str(error)) from None


def of_cells(fields: Fields, nulls: Sequence[str]) -> OfColumns:
    """From columns of texts of CSV, one for each field; one of `nulls` is None, and an empty text is, except in a text
    field.

    Raises:
        SettingsError: a field has a type that no text is read as.
    """
    readers = [_reader(name, kind, nulls) for name, kind in fields]
    return lambda columns: Frame(pl.DataFrame([read(cells) for read, cells in zip(readers, columns)]))


def of_tuples(fields: Fields) -> Make:
    def make(rows: Sequence[tuple[Any, ...]]) -> Frame:
        columns = list(zip(*rows)) if rows else [()] * len(fields)
        return Frame(pl.DataFrame([_of_database(name, kind, each) for (name, kind), each in zip(fields, columns)]))

    return make


def column_of(name: str, kind: Any, values: Sequence[Any]) -> pl.Series:
    """A column of values as `drift.columns.values` reads them."""
    return pl.Series(name, values, dtype=kind, strict=True)


def _of_database(name: str, kind: Any, values: Sequence[Any]) -> pl.Series:
    try:
        if kind != pl.Boolean and bool in set(map(type, values)):
            raise TypeError("it is true or false")
        if isinstance(kind, pl.Decimal):
            values = [None if value is None else as_decimal(value, kind) for value in values]
        if kind == pl.Boolean and all(type(value) is int and 0 <= value <= 1 for value in values if value is not None):
            values = [None if value is None else bool(value) for value in values]  # SQLite has no others
        if kind.is_float():
            found = floats_at_once(kind, values)
            if found is None:
                raise ValueError(f"{kind} would lose something of it")
            return found.alias(name)
        made = column_of(name, kind, values)
        if kind.is_temporal() and kind != pl.Date and any(a != b for a, b in zip(made.to_list(), values)):
            raise ValueError(f"{kind} would lose something of it")
        return made
    except (AttributeError, TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"the field {name!r} is {kind}, and a value is no such: {reason}; change the schema") from None


def _reader(name: str, kind: Any, nulls: Sequence[str]) -> Callable[[Sequence[str] | pl.Series], pl.Series]:
    read = of_text(kind)
    if read is None:
        raise SettingsError(
            f"csv: the schema has {kind} for {name!r}, and no text is read as one; take it as text, "
            f"{{{name!r}: str}}, and make it in a step, or read JSON or Parquet"
        )
    absent = [*nulls] if kind == pl.String else ["", *nulls]

    def series(cells: Sequence[str] | pl.Series) -> pl.Series:
        texts = pl.Series(name, cells, dtype=pl.String)
        filled = texts
        for text in absent:
            is_absent = texts == text
            filled = filled.set(is_absent, None) if is_absent.any() else filled
        if (found := at_once(kind, filled)) is not None:
            return found.alias(name)
        values = []
        for cell in cells:
            try:
                values.append(None if cell in absent else read(cell))
            except (ValueError, OverflowError) as why:
                is_word = not nulls and len(cell) < 20 and not any(map(str.isdigit, cell))
                hint = f"; if {cell!r} stands for no value, null_values=[{cell!r}] reads None" if is_word else ""
                raise InputError(f"the column {name!r} has {cell!r:.80}, which is no {kind}: {why}{hint}") from None
        return column_of(name, kind, values)

    return series
