"""The payloads of a batch: values in a list, or rows.

Invariant: nobody outside this file asks for the kind of payloads; a selection from payloads has their kind.

Why: rows are no list: they make their values when somebody asks, and are selected and joined as columns.
"""

from __future__ import annotations

import builtins
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, compress
from typing import TYPE_CHECKING, Any, Self, TypeGuard

import xxhash

from drift_graph.errors import DriftError, InputError
from drift_graph.metas import Integers
from drift_kernel import kernel

if TYPE_CHECKING:
    from drift_graph.policies import EventTime


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
    sample: Any = None

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, at: Any) -> Any:
        """The value at an index; or rows, for a slice."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError

    @property
    def members(self) -> tuple[Sequence[int], Any] | None:
        """Where each value is a sequence of others: how many it has, in bytes if none has several; and all of these, in
        rows or in a list.
        """
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

    def added(self, aggregates: Sequence[Any]) -> Any:
        """What `OpensWindows.in_columns` gives of rows that are added up by key (`drift.columns.added_up`); else None.

        Args:
            aggregates: what it is added up for.
        """
        return None

    def flat(self, names: Sequence[str]) -> Rows | None:
        """Windows as dicts: fields of these names, and their values behind them; None where that is not possible."""
        return None

    def timed(self, time: Any, tie: Any, policy: EventTime) -> Timed | None:
        """The times and ties that `drift_graph.stamps` would find row by row; None where this is not sure.

        Args:
            time, tie: names of fields, or what computes columns; without a tie it is the hash of a row.
            policy: that finds the times of values.
        """
        return None

    def encoded(self, start: int = 0, stop: int | None = None) -> bytes:
        """The canonical bytes of the rows from `start` up to `stop`, joined."""
        from drift_graph.canonical import encode_many  # which imports this file

        return encode_many(list(self)[start:stop])

    def forms(self, *, stored: bool = False) -> list[bytes]:
        """The canonical bytes of each row, or those of `drift_graph.canonical.stored`."""
        raise NotImplementedError

    def watch(self, sample: Callable[[list[Any]], Any]) -> None:
        """Called before a function may change the values: if they are made of the columns, a sample of them is taken
        when they are made, or now.
        """

    def hashes(self) -> bytes:
        """The xxh64 of the canonical bytes of each row, 8 bytes big-endian, joined."""
        return b"".join(map(xxhash.xxh64_digest, self.forms()))


Sequence.register(Rows)


class Interleaved(Rows):
    """Payloads of several sinks in the order of their metas, each where it was: in columns, or in a list.

    Why: as one list, all rows would become dicts, where only their bytes are wanted and each sink takes its own.

    Args:
        owners, places: for each payload which of the parts it is in, and where; places in one part increase.
    """

    __slots__ = ("_parts", "_owners", "_places")

    has_fields = False

    def __init__(self, parts: Sequence[Any], owners: Sequence[int], places: Sequence[int]) -> None:
        self._parts = parts
        self._owners = owners
        self._places = places

    def __len__(self) -> int:
        return len(self._owners)

    def __getitem__(self, at: Any) -> Any:
        owners, places = self._owners[at], self._places[at]
        return (
            Interleaved(self._parts, owners, places) if isinstance(at, builtins.slice) else self._parts[owners][places]
        )

    def __iter__(self) -> Iterator[Any]:
        return self._in_turn(lambda part: part)

    def _in_turn(self, of_each: Callable[[Any], Iterable[Any]]) -> Iterator[Any]:
        """What a function makes of the payloads of each part, one for each, in the order of all."""
        next_of = [iter(of_each(self._of(part))).__next__ for part in range(len(self._parts))]
        return (next_of[owner]() for owner in self._owners)

    def _of(self, part: int) -> Any:
        """The payloads that are in one part."""
        places = list(compress(self._places, map(part.__eq__, self._owners)))
        values = self._parts[part]
        if places and places[-1] - places[0] + 1 == len(places):
            return slice(values, places[0], places[-1] + 1)
        return in_order(values, places)

    @property
    def nbytes(self) -> int:
        sizes = (each.nbytes if isinstance(each, Rows) else 0 for each in self._parts)
        return sum(sizes) * len(self) // max(sum(map(len, self._parts)), 1)

    def chosen(self, wanted: Sequence[int]) -> Any:
        return self.in_order(list(compress(range(len(self)), wanted)))

    def in_order(self, order: Sequence[int]) -> Any:
        """The payloads at these increasing indices; of one part they are that part's own."""
        owners = [self._owners[at] for at in order]
        made = Interleaved(self._parts, owners, [self._places[at] for at in order])
        return made._of(owners[0]) if len(set(owners)) == 1 else made

    def joined(self, others: Sequence[Self]) -> None:
        return None

    def encoded(self, start: int = 0, stop: int | None = None) -> bytes:
        return b"".join(self[start:stop].forms())

    def forms(self, *, stored: bool = False) -> list[bytes]:
        from drift_graph.canonical import canonical_each, stored_each  # which imports this file

        return list(self._in_turn(stored_each if stored else canonical_each))

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


class AtMostOne(Rows):
    """For each of so many payloads a tuple of one value, or of none.

    Args:
        selected: a byte for each payload, 1 where it has a value.
        of: the values: rows, or a list.
    """

    __slots__ = ("_selected", "_of")

    has_fields = False

    def __init__(self, selected: bytes, of: Any) -> None:
        self._selected, self._of = selected, of

    @property
    def members(self) -> tuple[bytes, Any]:
        return self._selected, self._of

    @property
    def values(self) -> list[tuple[Any, ...]]:
        """The tuples."""
        each = iter(self._of)
        return [(next(each),) if has_one else () for has_one in self._selected]

    def __len__(self) -> int:
        return len(self._selected)

    def __getitem__(self, at: Any) -> Any:
        if not isinstance(at, builtins.slice):
            return self.values[at]
        start, end, step = at.indices(len(self))
        if step != 1:
            return self.values[at]
        first, count = (self._selected.count(1, *part) for part in ((0, start), (start, end)))
        return AtMostOne(self._selected[start:end], self._of[first : first + count])

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def joined(self, others: Sequence[Any]) -> None:
        return None

    @property
    def nbytes(self) -> int:
        from drift_graph.sizes import about_bytes  # which imports this file

        return len(self) + about_bytes(self._of)

    def __reduce__(self) -> Any:
        return list, (self.values,)


def are_rows(values: object) -> TypeGuard[Rows]:
    """Whether these are stored as columns."""
    return isinstance(values, Rows)


def has_null(key: Any) -> bool:
    """Whether a key is None, or one of several fields of it is."""
    return key is None or (type(key) is tuple and any(each is None for each in key))


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
    if kernel is not None and type(values) is list and type(order) is array:
        return kernel.taken(values, order)
    return values.in_order(order) if isinstance(values, Rows) else list(map(values.__getitem__, order))


def joined(several: Sequence[Any]) -> Any:
    """The values of several lists, one after the other."""
    if several and all(isinstance(each, Rows) for each in several):
        found = several[0].joined(several[1:])
        if found is not None:
            return found
    made: list[Any] = []
    for each in several:
        made += each
    return made


def interleaved(several: Sequence[Any], order: Sequence[int]) -> Any:
    """The values of several batches at these places of all of them, one batch after the other; in each in order."""
    if not any(isinstance(each, Rows) for each in several):
        return in_order(list(chain.from_iterable(several)), order)
    owners = [owner for owner, each in enumerate(several) for _ in range(len(each))]
    places = [place for each in several for place in range(len(each))]
    return Interleaved(several, [owners[at] for at in order], [places[at] for at in order])
