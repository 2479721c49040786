"""What sources read, as rows with the fields of a schema: cells of text, JSON objects, rows of a database.

Invariant: what a value becomes depends on it and on its field's type alone, and nothing is lost: a value that its type
does not hold is an InputError.

Why: Polars casts numbers value by value. Times are read by Python, since Polars guesses one format for all from the
first of them.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import polars as pl
import pyarrow as pa

from drift.columns.expressions import Fields, Schema, check_number, fields_of
from drift.columns.rows import Frame
from drift_graph.errors import GraphError, InputError, SettingsError
from drift_graph.payloads import joined

#: From rows in any form to rows in columns; it raises InputError if one of them cannot be made.
Make = Callable[[Sequence[Any]], Frame]
#: The same from columns of cells.
OfColumns = Callable[[Sequence[Sequence[str] | pl.Series]], Frame]

_INTEGERS = {pl.Int8: 8, pl.Int16: 16, pl.Int32: 32, pl.Int64: 64}
_UNSIGNED = {pl.UInt8: 8, pl.UInt16: 16, pl.UInt32: 32, pl.UInt64: 64}
_BOOLEANS = {"true": True, "false": False, "True": True, "False": False, "": None}
_TOO_EXACT = re.compile(r"[.,][0-9]{6}0*[1-9]").search  # Python would cut off what is behind microseconds
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"


def up_to_fault(make: Make, rows: Sequence[Any]) -> tuple[Frame, str]:
    """The rows before the first that cannot be made, and why it cannot; "" if all can."""
    try:
        return make(rows), ""
    except InputError as error:
        if len(rows) < 2:
            return make(()), str(error)
    half = len(rows) // 2
    made, fault = up_to_fault(make, rows[:half])
    if fault:
        return made, fault
    more, fault = up_to_fault(make, rows[half:])
    return joined([made, more]), fault


def checked_schema(source: str, schema: Schema) -> Fields:
    """
    Raises:
        SettingsError: it is no schema, or has times in other units than microseconds.
    """
    try:
        fields = fields_of(schema, source)
    except GraphError as error:
        raise SettingsError(str(error)) from None
    for name, kind in fields:
        if isinstance(kind, pl.Datetime) and kind.time_unit != "us":
            raise SettingsError(f"{source}: the schema has {kind} for {name!r}; times are read in microseconds")
    return fields


def of_cells(source: str, fields: Fields) -> tuple[Make, OfColumns]:
    """From rows of texts, one for each field, and from columns of texts; an empty one is None, except in a text field.

    Raises:
        SettingsError: a field has a type that no text is read as.
    """
    readers = [_reader(source, name, kind) for name, kind in fields]

    def of_columns(columns: Sequence[Sequence[str] | pl.Series]) -> Frame:
        return Frame(pl.DataFrame([read(cells) for read, cells in zip(readers, columns)]))

    def make(rows: Sequence[Sequence[str]]) -> Frame:
        return of_columns(list(zip(*rows)) if rows else [()] * len(fields))

    return make, of_columns


def of_tuples(fields: Fields) -> Make:
    """From tuples of values, one for each field."""

    def make(rows: Sequence[tuple[Any, ...]]) -> Frame:
        columns = list(zip(*rows)) if rows else [()] * len(fields)
        return Frame(pl.DataFrame([_series(name, kind, each) for (name, kind), each in zip(fields, columns)]))

    return make


def of_json(source: str, fields: Fields) -> tuple[msgspec.json.Decoder[Any], Make]:
    """A decoder of JSON objects with these fields and no others, and a function from what it gives.

    Raises:
        SettingsError: a field has a type that no value of JSON is read as.
    """
    members = [(f"f{at}", _json_type(source, *field) | None) for at, field in enumerate(fields)]
    names = {f"f{at}": name for at, (name, _) in enumerate(fields)}
    kind = msgspec.defstruct("Row", members, rename=names, forbid_unknown_fields=True)
    getters = [attrgetter(name) for name, _ in members]

    def make(rows: Sequence[Any]) -> Frame:
        each = [_series(*field, list(map(get, rows))) for field, get in zip(fields, getters)]
        return Frame(pl.DataFrame(each))

    return msgspec.json.Decoder(kind), make


def _series(name: str, kind: Any, values: Sequence[Any]) -> pl.Series:
    try:
        if kind != pl.Boolean and bool in set(map(type, values)):
            raise TypeError("it is true or false")
        if isinstance(kind, pl.Decimal):
            check_number(kind, values)
            for value in values:
                _check_scale(value, kind)
        if kind == pl.Boolean and all(type(value) is int and 0 <= value <= 1 for value in values if value is not None):
            values = [None if value is None else bool(value) for value in values]  # SQLite has no others
        return pl.Series(name, values, dtype=kind, strict=True)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"the field {name!r} is {kind}, and a value is no such: {reason}; change the schema") from None


def _check_scale(value: Any, kind: pl.Decimal) -> None:
    if isinstance(value, decimal.Decimal) and round(value, kind.scale) != value:
        raise ValueError(f"{value} has more than {kind.scale} digits behind the point")


def _reader(source: str, name: str, kind: Any) -> Callable[[Sequence[str] | pl.Series], pl.Series]:
    read: Callable[[str], Any]
    if kind == pl.String:
        return lambda cells: pl.Series(name, cells, dtype=pl.String)
    if kind.is_integer() or kind.is_float() or isinstance(kind, (pl.Categorical, pl.Enum)):
        return lambda cells: _cast(name, kind, cells)
    if kind == pl.Boolean:
        read = _BOOLEANS.__getitem__
    elif kind == pl.Date:
        read = datetime.date.fromisoformat
    elif kind == pl.Time:
        read = _clock
    elif isinstance(kind, pl.Datetime):
        has_zone = kind.time_zone is not None
        read = lambda cell: _time(cell, has_zone)  # noqa: E731
    elif isinstance(kind, pl.Decimal):
        read = decimal.Decimal
    else:
        raise SettingsError(f"{source}: the schema has {kind} for {name!r}, and no text is read as one")

    def series(cells: Sequence[str] | pl.Series) -> pl.Series:
        if isinstance(cells, pl.Series) and (found := _all_at_once(kind, cells)) is not None:
            return found.alias(name)
        values = []
        for cell in cells:
            try:
                values.append(read(cell) if cell else None)
            except (ValueError, KeyError, OverflowError, decimal.InvalidOperation):
                raise InputError(f"the column {name!r} has {cell!r:.80}, which is no {kind}") from None
        return _series(name, kind, values)

    return series


def _all_at_once(kind: Any, cells: pl.Series) -> pl.Series | None:
    """Cells of the usual form as Python would read them; None if there are others."""
    if kind == pl.Boolean:
        known = cells.is_in(list(_BOOLEANS)).all()
        return cells.replace_strict(_BOOLEANS, return_dtype=pl.Boolean) if known else None
    if kind == pl.Date:
        pattern, made = rf"^{_DATE}$", pa.date32()
    elif isinstance(kind, pl.Datetime):
        pattern, made = rf"^{_DATE}[T ]{_CLOCK}{'Z' if kind.time_zone else ''}$", pa.timestamp("us")
    else:
        return None
    texts = pl.select(pl.when(cells != "").then(cells)).to_series()
    if not texts.str.contains(pattern).all():
        return None
    try:
        found = pl.Series(texts.str.strip_suffix("Z").to_arrow(compat_level=pl.CompatLevel.oldest()).cast(made))
    except pa.ArrowInvalid:  # no such day
        return None
    if (found.dt.year() == 0).any():
        return None
    zone = getattr(kind, "time_zone", None)
    return found if zone is None else found.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)


def _clock(cell: str) -> datetime.time:
    found = datetime.time.fromisoformat(cell)
    if found.tzinfo is not None or _TOO_EXACT(cell):
        raise ValueError("a time of a day has no zone, and microseconds")
    return found


def _time(cell: str, has_zone: bool) -> datetime.datetime:
    found = datetime.datetime.fromisoformat(cell)
    if _TOO_EXACT(cell):
        raise ValueError("a time has microseconds")
    if (found.tzinfo is not None) != has_zone:
        raise ValueError("a time with a zone is none without")
    return found.astimezone(datetime.UTC) if has_zone else found


def _cast(name: str, kind: Any, cells: Sequence[str] | pl.Series) -> pl.Series:
    texts = pl.DataFrame([pl.Series(name, cells, dtype=pl.String)])
    column = pl.col(name)
    try:
        return texts.select(pl.when(column != "").then(column).alias(name)).to_series().cast(kind, strict=True)
    except pl.exceptions.PolarsError:
        pass
    for cell in cells:
        try:
            if cell:
                pl.Series([cell], dtype=pl.String).cast(kind, strict=True)
        except pl.exceptions.PolarsError:
            raise InputError(f"the column {name!r} has {cell!r:.80}, which is no {kind}") from None
    raise AssertionError("a column cannot be cast, and each of its values can")


def _json_type(source: str, name: str, kind: Any) -> Any:
    bits, unsigned = _INTEGERS.get(type(kind)), _UNSIGNED.get(type(kind))
    if bits is not None:
        least, greatest = -(1 << bits - 1), (1 << bits - 1) - 1
        return Annotated[int, msgspec.Meta(ge=least, le=greatest)]
    if unsigned is not None:
        return (
            Annotated[int, msgspec.Meta(ge=0)]
            if unsigned == 64
            else Annotated[int, msgspec.Meta(ge=0, le=(1 << unsigned) - 1)]
        )
    if kind.is_float():
        return float
    if kind == pl.Boolean:
        return bool
    if kind == pl.String or isinstance(kind, (pl.Categorical, pl.Enum)):
        return str
    if kind == pl.Date:
        return datetime.date
    if kind == pl.Time:
        return Annotated[datetime.time, msgspec.Meta(tz=False)]
    if isinstance(kind, pl.Datetime):
        return Annotated[datetime.datetime, msgspec.Meta(tz=kind.time_zone is not None)]
    raise SettingsError(f"{source}: the schema has {kind} for {name!r}, and no value of JSON is read as one")
