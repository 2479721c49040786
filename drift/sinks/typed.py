"""Payloads as typed columns, one for each of their fields, for tools without canonical bytes.

Invariant: a column holds the values of one field, in the order of the items; a value that a type cannot hold is an
error, never converted to another value. Within a field, objects are structs of their fields, an Enum is its value, and
a set is a list in the order of canonical bytes.

A record stores payloads as bytes, in one column: that holds any output, with its types (a tuple is no list, True no 1),
of all sinks in one file. Typed columns would have to be known before the first item, and would double the data; so they
are made on request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from drift.arrow import common_column, python_values
from drift.fields import DECLARE, VALUE, names_in, names_of, values_of
from drift_graph.canonical import canonical
from drift_graph.errors import PayloadError
from drift_graph.meta import TIME_MIN
from drift_graph.metas import Metas, are_computed, times_of
from drift_graph.payloads import have_fields, joined

_NUMBERS = {int, float}  # Arrow refuses an int that is no float
_REFUSED = (pa.ArrowException, OverflowError, TypeError, UnicodeEncodeError)


def payload_arrays(payloads: list[Any], columns: list[pa.Field], of: str) -> list[pa.Array]:
    """Payloads as columns of given types, one for each of their fields.

    Args:
        of: the sink or source that they are of.

    Raises:
        PayloadError: a payload has no such fields, or other types in them.
    """
    names = [field.name for field in columns]
    return [_array(values, field, of) for field, values in zip(columns, values_of(payloads, names, of))]


def _array(values: list[Any], field: pa.Field, of: str) -> pa.Array:
    try:
        return _column(values, field.type)
    except _REFUSED as error:
        raise PayloadError(
            f"{of!r}: column {field.name!r} is declared as {field.type}, and a payload has something else: {error}",
            step=of,
        ) from None


class Tables:
    """Makes tables of payloads, batch by batch.

    Args:
        of: what the payloads are of, for errors.
        wanted: names of the columns, or their types by name; None for what the payloads have.

    Attributes:
        batches: what has been made.
    """

    def __init__(self, of: str, wanted: Sequence[str] | Mapping[str, pa.DataType] | None) -> None:
        self._of = of
        self._names = None if wanted is None else list(wanted)
        self._types = dict(wanted) if isinstance(wanted, Mapping) else {}
        self.batches: list[pa.Table] = []

    def add(self, items: Mapping[str, pa.Array], payloads: Any) -> None:
        """The next items: what is known of them, and their payloads; columns of rows keep their types."""
        if have_fields(payloads):
            self._add_rows(items, payloads.batch)
            return
        names = self._names if self._names is not None else names_in(payloads)
        if self._names is None and tuple in set(map(type, payloads)):
            self._names = names  # tuples of another length have other columns; a dict may lack a field
        values = [payloads] if names == [VALUE] else values_of(payloads, names, self._of)
        arrays = dict(items)
        for name, each in zip(names, values):
            kind = self._types.get(name)
            column = _inferred(each, name, self._of) if kind is None else _array(each, pa.field(name, kind), self._of)
            arrays[f"payload.{name}" if name in items else name] = column
        self.batches.append(pa.table(arrays))

    def _add_rows(self, items: Mapping[str, pa.Array], rows: pa.RecordBatch) -> None:
        arrays, known = dict(items), rows.schema.names
        for name in known if self._names is None else self._names:
            column = rows.column(name) if name in known else pa.nulls(rows.num_rows)
            kind = self._types.get(name)
            column = common_column(column) if kind is None else self._declared(column, pa.field(name, kind))
            arrays[f"payload.{name}" if name in items else name] = column
        self.batches.append(pa.table(arrays))

    def _declared(self, column: pa.Array, field: pa.Field) -> pa.Array:
        """A column with the declared type; what another kind of type holds goes through Python, as values do."""
        if column.type == field.type:
            return column
        return _array(python_values(column), field, self._of)

    def table(self) -> pa.Table:
        """All of them.

        Raises:
            PayloadError: a field has values of types that no column holds.
        """
        if not self.batches:
            return pa.table({name: pa.array([], pa.null()) for name in self._names or ()})
        try:
            return pa.concat_tables(self.batches, promote_options="permissive")
        except pa.ArrowTypeError as error:
            raise PayloadError(f"{self._of!r}: {error}; {DECLARE}", step=self._of) from None


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
        """The position of the first item."""
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
    if are_computed(metas):
        times = times_of(metas)
        return pa.array(np.arange(times.start, times.stop) if isinstance(times, range) else np.array(times, np.int64))
    packed = np.frombuffer(b"".join([meta[:8] for meta in metas]), ">u8").astype(np.uint64)
    return pa.array((packed ^ np.uint64(-TIME_MIN)).view(np.int64))


def _inferred(values: list[Any], name: str, of: str) -> pa.Array:
    try:
        return _column(values, None)
    except _REFUSED as error:
        raise PayloadError(f"{of!r}: no one type holds the values of {name!r}: {error}; {DECLARE}", step=of) from None


def _column(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    try:
        column = pa.array(values, kind)
    except _REFUSED:
        return pa.array(list(map(_plain, values)), kind)
    kinds = set(map(type, values)) - {type(None)}
    if kind is None and kinds == {datetime} and len({each.tzinfo is None for each in values if each is not None}) > 1:
        raise TypeError("some have a zone, and some have none")
    if kind is None and len(kinds) > 1 and not kinds <= _NUMBERS:  # Arrow makes bytes of text, dates of times, ...
        for value, stored in zip(values, column.to_pylist()):
            if value != stored or (type(value) is bool) != (type(stored) is bool):
                raise TypeError(f"{value!r:.80} would be stored as {stored!r:.80}")
    return column


def _plain(value: Any) -> Any:
    """A value that Arrow knows, at any depth."""
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, (set, frozenset)):
        return list(map(_plain, sorted(value, key=canonical)))
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return list(map(_plain, value))
    names = names_of(value)
    return value if names == [VALUE] else {name: _plain(getattr(value, name)) for name in names}
