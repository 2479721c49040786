"""The payloads of a batch: values in a list, or rows.

Invariant: nobody outside this file asks for the kind of payloads; a selection from payloads has their kind.

Why: rows are no list: they make their values when somebody asks, and are selected and joined as columns.
"""

from __future__ import annotations

import builtins
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, count
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

    @property
    def values(self) -> list[Any]:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __reduce__(self) -> Any:
        return list, (list(self),)

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

    def chosen(self, wanted: Sequence[int]) -> Any:
        """The rows for which `wanted` has a 1."""
        return list(compress(self, wanted))

    def in_order(self, order: Sequence[int]) -> Any:
        """The rows at these indices, in this order."""
        return list(map(list(self).__getitem__, order))

    def joined(self, others: Sequence[Self]) -> Self | None:
        """These rows and then all others; None if their columns differ."""
        return None

    def field(self, name: str) -> list[Any] | None:
        """The value of a field in each row, as the rows' dicts have it; None if they have no field of this name."""
        raise NotImplementedError

    def remainders(self, key: Sequence[str], count: int) -> bytes | None:
        """For each row the remainder of the xxh64 of its key's canonical bytes, a byte; None where keys are in no
        columns.

        Args:
            key: names of the fields; of one the key is its value, of several a tuple, of none None. Values that have no
                fields know their keys.
            count: 1 to 256.
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
        from drift_graph.canonical import canonical_each, stored_each  # which imports this file

        return (stored_each if stored else canonical_each)(list(self))

    def for_turns(self) -> Any:
        """The canonical bytes of the rows, as the kernel's `joined_in_turn` takes them."""
        return self.forms()

    def watch(self, sample: Callable[[list[Any]], Any]) -> None:
        """Called before a function may change the values: if they are made of the columns, a sample of them is taken
        when they are made, or now.
        """

    def hashes(self) -> bytes:
        """The xxh64 of the canonical bytes of each row, 8 bytes big-endian, joined."""
        return b"".join(map(xxhash.xxh64_digest, self.forms()))


Sequence.register(Rows)


_STRETCH = 1024  # so many payloads are counted again where one is asked for


class Interleaved(Rows):
    """Payloads of several parts in turn, each where it was: in columns, or in a list.

    Why: as one list, all rows would become dicts, where only their bytes are wanted and each sink takes its own.

    Args:
        owners: for each payload the number of its part, whose next one it is; each part has as many as that says.
    """

    __slots__ = ("_parts", "_owners", "_before")

    has_fields = False

    def __init__(self, parts: Sequence[Any], owners: bytes) -> None:
        self._parts = parts
        self._owners = owners
        self._before: list[list[int]] = []  # how many of each part are before each stretch, once that was asked for

    def __len__(self) -> int:
        return len(self._owners)

    def __getitem__(self, at: Any) -> Any:
        owners = self._owners
        if not isinstance(at, builtins.slice):
            owner = owners[at]
            return self._parts[owner][self._firsts(at % len(owners))[owner]]
        start, end, step = at.indices(len(owners))
        if step != 1:
            return list(self)[at]
        bounds = zip(self._parts, self._firsts(start), self._firsts(max(start, end)))
        return type(self)([part[first:stop] for part, first, stop in bounds], owners[start:end])

    def _firsts(self, at: int) -> list[int]:
        """How many payloads of each part are before this place."""
        count, start = self._owners.count, at // _STRETCH * _STRETCH
        if not self._before:
            before = [[0] * len(self._parts)]
            for each in range(0, len(self._owners), _STRETCH):
                before.append([known + count(number, each, each + _STRETCH) for number, known in enumerate(before[-1])])
            self._before = before  # last: another thread may ask meanwhile
        return [known + count(number, start, at) for number, known in enumerate(self._before[at // _STRETCH])]

    def __iter__(self) -> Iterator[Any]:
        return self._in_turn(self._parts)

    @property
    def values(self) -> list[Any]:
        return list(self)

    def _in_turn(self, parts: Iterable[Iterable[Any]]) -> Iterator[Any]:
        """What there is for the payloads of each part, in the order of all."""
        return map(next, map([iter(part) for part in parts].__getitem__, self._owners))

    @property
    def nbytes(self) -> int:
        from drift_graph.sizes import about_bytes  # which imports this file

        return len(self) + sum(map(about_bytes, self._parts))

    def chosen(self, wanted: Sequence[int]) -> Any:
        """The payloads for which `wanted` has a 1; if all are of one part, they have its kind."""
        owners = bytes(compress(self._owners, wanted))
        if owners and owners.count(owners[0]) == len(owners):
            return self._left(owners[0], wanted, len(owners))
        parts = [self._left(number, wanted, owners.count(number)) for number in range(len(self._parts))]
        return type(self)(parts, owners)

    def in_order(self, order: Sequence[int]) -> Any:
        owners = bytes(map(self._owners.__getitem__, order))
        numbers = [count() for _ in self._parts]
        places = list(map(next, map(numbers.__getitem__, self._owners)))  # of each payload in its part
        parts = []
        for number, part in enumerate(self._parts):
            parts.append(in_order(part, list(compress(map(places.__getitem__, order), map(number.__eq__, owners)))))
        return type(self)(parts, owners)

    def of_parts(self, function: Callable[[Any], Iterable[Any]]) -> Iterator[Any]:
        """What a function that takes the payloads of a part gives for each of them, in the order of all."""
        return self._in_turn(map(function, self._parts))

    def _left(self, number: int, wanted: Sequence[int], count: int) -> Any:
        """Those payloads of a part for which `wanted` has a 1: so many."""
        part = self._parts[number]
        if count == len(part):
            return part
        return chosen(part, bytes(compress(wanted, map(number.__eq__, self._owners))))

    def encoded(self, start: int = 0, stop: int | None = None) -> bytes:
        if kernel is None:
            return b"".join(self[start:stop].forms())
        from drift_graph.canonical import canonical_each  # which imports this file

        these = self[start:stop]
        parts = [part.for_turns() if isinstance(part, Rows) else canonical_each(part) for part in these._parts]
        return kernel.joined_in_turn(parts, these._owners)

    def forms(self, *, stored: bool = False) -> list[bytes]:
        from drift_graph.canonical import canonical_each, stored_each  # which imports this file

        return list(self._in_turn(map(stored_each if stored else canonical_each, self._parts)))


class Mixed(Interleaved):
    """Rows that have fields, and payloads that are set apart between them: parts 1 and 0.

    Why: several of them are joined part by part, so the rows stay columns.
    """

    __slots__ = ()

    def joined(self, others: Sequence[Any]) -> Mixed | None:
        apart: list[Any] = []
        rows, owners = [], b""
        for each in (self, *others):
            between, fields = each._parts if isinstance(each, Mixed) else ([], each)
            apart += between
            rows.append(fields)
            owners += each._owners if isinstance(each, Mixed) else b"\1" * len(each)
        fields = joined([each for each in rows if len(each)])
        return Mixed([apart, fields], owners) if not fields or have_fields(fields) else None


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

    @property
    def nbytes(self) -> int:
        from drift_graph.sizes import about_bytes  # which imports this file

        return len(self) + about_bytes(self._of)


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
    return values.chosen(wanted) if isinstance(values, Rows) else list(compress(values, wanted))


def in_order(values: Any, order: Sequence[int]) -> Any:
    """The values at these indices, in this order."""
    if kernel is not None and type(values) is list and type(order) is array:
        return kernel.taken(values, order)
    return values.in_order(order) if isinstance(values, Rows) else list(map(values.__getitem__, order))


def joined(several: Sequence[Any]) -> Any:
    """The values of several lists, one after the other."""
    if several and all(isinstance(each, Rows) for each in several):
        mixed = next((at for at, each in enumerate(several) if isinstance(each, Mixed)), 0)
        first = several[0] if not mixed else Mixed([[], several[0]], b"\1" * len(several[0]))
        found = first.joined(several[1:])
        if found is not None:
            return found
    made: list[Any] = []
    for each in several:
        made += each
    return made


def interleaved(several: Sequence[Any], owners: bytes) -> Any:
    """The values of several batches in turn; those of each in its own order.

    Args:
        owners: for each value the number of its batch, whose next one it is.
    """
    if any(isinstance(each, Rows) for each in several):
        return Interleaved(several, owners)
    return list(Interleaved(several, owners)) if kernel is None else kernel.in_turn(list(several), owners)
