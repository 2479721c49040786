"""The payloads of a batch: values in a list, or rows.

Invariant: nobody outside this file asks for the kind of payloads; a selection from payloads has their kind.

Why: rows are no list: they make their values when somebody asks, and are selected and joined as columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import tzinfo
from itertools import chain, compress
from typing import Any, Self, TypeGuard

import xxhash

from drift_graph.errors import DriftError, InputError
from drift_graph.metas import Integers


class NeedsRows(DriftError):
    """What was added up would have to be processed row by row: a run that gets it begins again, with the rows."""

    ends_the_run = True


class AsRows:
    """Checks the payloads of a source against its schema.

    Attributes:
        fields: of the schema: names and types.
    """

    fields: tuple[tuple[str, Any], ...]

    def __call__(self, payloads: Any) -> Any:
        """The payloads: in columns, where that pays; as dicts, with their fields in the order of the schema.

        Raises:
            InputError: one is no row of the schema.
        """
        raise NotImplementedError

    def others(self, payloads: Any) -> Iterator[tuple[int, InputError]]:
        """The indices of those that are no rows of the schema, in their order, with what is wrong."""
        raise NotImplementedError


class Timed:
    """Rows, one or more, with their times in an array.

    Attributes:
        times: of 64 bits.
    """

    __slots__ = ()

    times: Integers

    def ties(self, order: Sequence[int] | None) -> Integers | None:
        """The ties of these of the rows, of all if it is None; None if one has no tie, or may have none."""
        raise NotImplementedError


class Rows:
    """Payloads that are stored as columns; as a sequence it has the values, which are made once.

    What is here is what code that knows no columns needs, so a kind of columns is a subclass anywhere. It is registered
    as a sequence and does not inherit from it: asking for a kind is on the path of each dict, and an abstract class
    takes four times as long to ask for.

    Attributes:
        has_fields: whether the values are dicts whose fields the columns are.
    """

    __slots__ = ()

    has_fields = True

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, at: Any) -> Any:
        """The value at an index; or rows, for a slice."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError

    @property
    def members(self) -> tuple[Sequence[int], Rows] | None:
        """Where each value is a sequence of others: how many it has, in bytes if none has several; and all of these."""
        return None

    @property
    def nbytes(self) -> int:
        """The size of the columns in memory."""
        raise NotImplementedError

    @property
    def batch(self) -> Any:
        """The columns as a pyarrow.RecordBatch."""
        raise NotImplementedError

    def chosen(self, wanted: Sequence[int]) -> Self:
        """The rows for which `wanted` has a 1."""
        raise NotImplementedError

    def in_order(self, order: Sequence[int]) -> Self:
        """The rows at these indices, in this order."""
        raise NotImplementedError

    def joined(self, others: Sequence[Self]) -> Self | None:
        """These rows and then all others; None if their columns differ."""
        raise NotImplementedError

    def packed(self) -> bytes:
        """The columns as bytes, for other processes of the run."""
        raise NotImplementedError

    def field(self, name: str) -> list[Any] | None:
        """The value of a field in each row, as the rows' dicts have it; None if they have no field of this name."""
        raise NotImplementedError

    def numbered(self, key: Sequence[str], number: Callable[[Sequence[Any]], Sequence[int]]) -> bytes | None:
        """A number for each row, a byte, by its key; None where keys are not known in columns.

        Args:
            key: names of the fields; of one the key is its value, of several a tuple, of none None. Values that have no
                fields know their keys.
            number: gives the numbers of different keys, which are their own identities.
        """
        return None

    def need_values(self) -> None:
        """Called before they are processed one by one.

        Raises:
            NeedsRows: they stand for rows that are not here.
        """

    def grouped(self, lengths: Sequence[int]) -> Any:
        """The groups that they are parts of, see `drift.columns.groups.groups_of`; None of what is no such part."""
        return None

    def flat(self, names: Sequence[str]) -> Rows | None:
        """Windows as dicts: fields of these names, and their values behind them; None where that is not possible."""
        return None

    def timed(self, time: Any, tie: Any, zone: tzinfo | None, time_of: Callable[[Any], int | None]) -> Timed | None:
        """The times and ties that `drift_graph.stamps` would find row by row; None where this is not sure.

        Args:
            time, tie: names of fields, or what computes columns; without a tie it is the hash of a row.
            zone: of times without one.
            time_of: the time of a value of another form; None for what is none.
        """
        return None

    def encoded(self) -> bytes:
        """The canonical bytes of all rows, joined."""
        raise NotImplementedError

    def forms(self, *, stored: bool = False) -> list[bytes]:
        """The canonical bytes of each row, or those of `drift_graph.canonical.stored`."""
        raise NotImplementedError

    def made(self, count: int) -> list[Any]:
        """The first values, if the values were made of the columns; none if they were not, or are not made of them."""
        return []

    def made_anew(self) -> list[Any]:
        """The values, made once more, if `made` gives any."""
        raise NotImplementedError

    def hashes(self) -> bytes:
        """The xxh64 of the canonical bytes of each row, 8 bytes big-endian, joined."""
        return b"".join(map(xxhash.xxh64_digest, self.forms()))


Sequence.register(Rows)


def are_rows(values: object) -> TypeGuard[Rows]:
    """Whether these are stored as columns."""
    return isinstance(values, Rows)


def have_fields(values: object) -> TypeGuard[Rows]:
    """Whether these are dicts that are stored as columns."""
    return isinstance(values, Rows) and values.has_fields


def slice(values: Any, start: int, end: int) -> Any:
    """The values from index `start` up to `end`."""
    return values[start:end]


def chosen(values: Any, wanted: Sequence[int]) -> Any:
    """The values for which `wanted` has a 1."""
    return values.chosen(wanted) if isinstance(values, Rows) else list(compress(values, wanted))


def in_order(values: Any, order: Sequence[int]) -> Any:
    """The values at these indices, in this order."""
    return values.in_order(order) if isinstance(values, Rows) else list(map(values.__getitem__, order))


def joined(several: Sequence[Any]) -> Any:
    """The values of several lists, one after the other."""
    if several and all(isinstance(each, Rows) for each in several):
        found = several[0].joined(several[1:])
        if found is not None:
            return found
    return list(chain.from_iterable(several))
