"""Payloads as typed columns, one for each of their fields, for tools without canonical bytes.

Invariant: a column holds the values of one field, in the order of the items; a value that a type cannot hold is an
error, never converted to another value: what is stored reads back equal and of the same kind, at any depth. The type of
a column does not depend on batches. Within a field, objects are structs of their fields, tuples are lists, an Enum is
its value, and a set is a list in the order of canonical bytes.

Why: Arrow converts much without a word (1.5 to 1, text to bytes, moments to dates), so `drift.sinks.stored` compares
what it has stored with what it was given.

A record stores payloads as bytes, in one column: that holds any output, with its types (a tuple is no list, True no 1),
of all sinks in one file. Typed columns would have to be known before the first item, and would double the data; so they
are made on request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain, combinations
from typing import Any

import numpy as np
import pyarrow as pa

from drift.arrow import common, common_column, inside, plainly_held, python_values
from drift.fields import DECLARE, forms_in, names_in, refuse_other_fields, shapes_in, values_of
from drift.sinks.stored import REFUSED, alike, stored
from drift_graph.errors import PayloadError
from drift_graph.metas import Metas
from drift_graph.payloads import have_fields, joined


def payload_arrays(payloads: list[Any], columns: list[pa.Field], of: str) -> list[pa.Array]:
    """Payloads as columns of given types, one for each of their fields.

    Args:
        of: the sink or source that they are of.

    Raises:
        PayloadError: a payload has no such fields, or other types in them.
    """
    values = values_of(payloads, [field.name for field in columns], of)
    return [_array(each, field.name, field.type, of, field.nullable) for field, each in zip(columns, values)]


def _array(
    values: list[Any], name: str, kind: pa.DataType | None, of: str, takes_none: bool = True, takes_floats: bool = True
) -> pa.Array:
    """Values as a column of a type, or of their own if that is None; see `stored`."""
    try:
        column = stored(values, kind, takes_floats=takes_floats)
        if column.null_count and not takes_none:
            raise TypeError("None, where it takes no nulls")
        return column
    except REFUSED as error:
        why = f"no one type holds the values of {name!r}: {error}; {DECLARE}"
        if kind is not None:
            why = (
                f"column {name!r} is {kind}, and a payload has something else: {error}; declare a type that holds all "
            )
            why += "values, or map them"
        raise PayloadError(f"{of!r}: {why}", step=of) from None


class Tables:
    """Makes tables of payloads, batch by batch.

    Args:
        of: what the payloads are of, for errors.
        wanted: names of the columns, or their types by name; None for what the payloads have.
        types: of columns that are there already.

    Attributes:
        batches: what has been made.
    """

    def __init__(
        self,
        of: str,
        wanted: Sequence[str] | Mapping[str, pa.DataType] | None,
        types: Mapping[str, pa.DataType] | None = None,
    ) -> None:
        self._of = of
        self._names = None if wanted is None else list(wanted)
        self._there = types or {}
        self._types = dict(wanted) if isinstance(wanted, Mapping) else {}
        self._there = types or {}
        self._forms: set[Any] = set()  # the one that all payloads have
        self.batches: list[pa.Table] = []

    def add(self, items: Mapping[str, pa.Array], payloads: Any) -> None:
        """The next items: what is known of them, and their payloads; columns of rows keep their types."""
        if have_fields(payloads):
            self._add_rows(items, payloads.batch)
            return
        named = self._names is not None
        shapes = payloads if named else shapes_in(payloads)
        names = self._names if self._names is not None else names_in(shapes)
        self._forms = self._forms or forms_in(shapes[:1], named=named)
        for _ in forms_in(shapes, named=named) - self._forms:  # in one batch, or in several
            other = next(each for each in payloads if not forms_in([each], named=named) <= self._forms)
            refuse_other_fields(other, names, self._of)
        arrays = dict(items)
        for name, values in zip(names, values_of(payloads, names, self._of)):
            self._put(arrays, items, name, values)
        self.batches.append(pa.table(arrays))

    def _put(self, arrays: dict[str, pa.Array], items: Mapping[str, pa.Array], name: str, values: Any) -> None:
        """Add the column of a field, of its values or of a column; what that has not goes through Python, as values."""
        named = f"payload.{name}" if name in items else name
        try:
            named.encode()
        except UnicodeEncodeError:
            raise PayloadError(
                f"{self._of!r}: no column can have the name {name!r}; rename the field", step=self._of
            ) from None
        if named in arrays:
            raise PayloadError(f"{self._of!r}: two fields would be the column {named!r}; rename one", step=self._of)
        kind = self._there.get(named, self._types.get(name))
        if isinstance(values, pa.Array):
            if kind is None:
                arrays[named] = common_column(values)
                return
            if common(values.type) == common(kind) and not any(map(pa.types.is_float16, inside(kind))):
                with suppress(pa.ArrowException):  # it has not all digits of a time
                    arrays[named] = plainly_held(values).cast(kind)
                    return
            values = python_values(values)
        arrays[named] = _array(values, name, kind, self._of, takes_floats=named not in self._there)

    def _add_rows(self, items: Mapping[str, pa.Array], rows: pa.RecordBatch) -> None:
        arrays, known = dict(items), rows.schema.names
        self._forms = self._forms or {dict}
        if dict not in self._forms:
            refuse_other_fields(rows.slice(0, 1).to_pylist(), known, self._of)
        for name in known if self._names is None else self._names:
            column = rows.column(name) if name in known else pa.nulls(rows.num_rows)
            self._put(arrays, items, name, column)
        self.batches.append(pa.table(arrays))

    def table(self) -> pa.Table:
        """All of them. Raises PayloadError: a field has values of types that no column holds."""
        if not self.batches:
            return pa.table({name: pa.array([], pa.null()) for name in self._names or ()})
        return joined_tables(self.batches, self._of)


def joined_tables(tables: Sequence[pa.Table], of: str, *, written: bool = False) -> pa.Table:
    """Tables as one, with the columns of all; where types differ, as if it had been made at once.

    Args:
        written: whether the first one stands for what is written, whose types can be wider and nothing else.

    Raises:
        PayloadError: a column has values of types that no column holds.
    """
    if all(table.schema == tables[0].schema for table in tables):
        return pa.concat_tables(tables)
    names = dict.fromkeys(chain.from_iterable(table.column_names for table in tables))
    return pa.table({name: _joined(name, tables, of, written=written) for name in names})


def _joined(name: str, tables: Sequence[pa.Table], of: str, *, written: bool) -> pa.ChunkedArray:
    columns = [
        table[name] if name in table.column_names else pa.chunked_array([pa.nulls(table.num_rows)]) for table in tables
    ]
    kinds = list(dict.fromkeys(column.type for column in columns))
    try:
        if all(alike(one, other) for one, other in combinations(kinds, 2)):
            schemas = [pa.schema([(name, kind)]) for kind in kinds]
            kind = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
            return pa.chunked_array([chunk for column in columns for chunk in _as(column, kind).chunks], kind)
        if written:
            raise TypeError(f"the type is {kinds[0]}, and then {kinds[1]}")
        values = [value for column in columns for value in column.to_pylist(maps_as_pydicts="strict")]
        return pa.chunked_array([stored(values)])
    except REFUSED as error:
        raise PayloadError(f"{of!r}: no one type holds the values of {name!r}: {error}; {DECLARE}", step=of) from None


def _as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column as one of a type that holds it; Arrow's own cast makes invalid lists in structs."""
    if column.type == kind:
        return column
    return pa.chunked_array([stored(column.to_pylist(), kind)]) if kind.num_fields else column.cast(kind)


class Gathered:
    """Items on their way into a table; rows stay columns.

    Attributes:
        last: the meta of the last item.
    """

    def __init__(self) -> None:
        self.last = b""
        self._count = 0
        self._positions: list[pa.Array] = []
        self._times: list[pa.Array] = []
        self._payloads: list[Any] = []

    def __len__(self) -> int:
        return self._count

    @property
    def first(self) -> int:
        return int(self._positions[0][0].as_py())

    @property
    def end(self) -> int:
        """The position of the last item."""
        return int(self._positions[-1][-1].as_py())

    def add(self, positions: Sequence[int], metas: Metas, payloads: Any) -> None:
        """Further items, one or more."""
        numbers = np.arange(positions.start, positions.stop) if isinstance(positions, range) else np.array(positions)
        self._positions.append(pa.array(numbers, pa.int64()))
        self._times.append(_times(metas))
        self._payloads.append(payloads)
        self._count += len(payloads)
        self.last = metas[-1]

    def take(self) -> tuple[dict[str, pa.Array], Any]:
        """Positions and times, and the payloads; none are left."""
        both = {"position": self._positions, "time": self._times}
        items = {name: pa.chunked_array(arrays, pa.int64()).combine_chunks() for name, arrays in both.items()}
        payloads = joined(self._payloads)
        self.__init__()  # type: ignore[misc]
        return items, payloads


def _times(metas: Metas) -> pa.Array:
    return pa.array(np.asarray(metas.times()))
