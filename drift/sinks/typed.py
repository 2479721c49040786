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

import pyarrow as pa

from drift.fields import DECLARE, VALUE, names_in, names_of, values_of
from drift_graph.canonical import canonical
from drift_graph.errors import PayloadError

_NUMBERS = {int, float}  # Arrow refuses an int that is no float
_REFUSED = (pa.ArrowException, OverflowError, TypeError)


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

    def add(self, items: Mapping[str, pa.Array], payloads: list[Any]) -> None:
        """The next items: what is known of them, and their payloads."""
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
