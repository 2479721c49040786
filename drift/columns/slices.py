"""Slices in arrays, and what merges them into sliding windows.

Invariant: the windows, their metas and the states are those of `drift.flow.windows._Merged` and of its timers; or
nothing has changed, and the answer is None or False.

Why: slices come in order, all of an end at once, and a key has at most one of each end. A window's timer hangs on its
first slice alone. So the windows of an end are the slices whose timer is for it; whatever other slices there are belong
to these windows, and are merged into them end by end, in their order. An accumulator of nulls alone is the number that
changes none it is added to or compared with, beside a count of 0. An aggregate whose accumulators are no numbers of 64
bits, or whose sums may be none, has objects there, in one array, as the others beside it have numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from itertools import chain, compress, islice, pairwise, repeat
from typing import Any, NamedTuple, Self

import numpy as np
import polars as pl

from drift.columns.aggregates import _EXACT_MAX, Array, in_a_column, means
from drift.columns.groups import UNUSED_MIN, KeyNumbers
from drift.columns.windows import window_rows
from drift.operators import Timer
from drift_graph.functions import pass_interrupts
from drift_graph.meta import LATER_MARK, pack_time, varint
from drift_graph.metas import Metas
from drift_graph.payloads import Rows

#: Times whose windows are not cut off by the ends of time, and differences of which 64 bits hold.
_TIME_MAX = 1 << 60
_NONE, _NEVER = -(1 << 62), (1 << 63) - 1  # in place of a time
_ARRAYS: dict[type, Any] = {int: np.int64, float: np.float64}  # by the types of accumulators
#: In place of an accumulator of nulls alone, by what is added and the kind of numbers.
_NOTHING = {
    "min": {"i": _NEVER, "f": np.inf},
    "max": {"i": -_NEVER - 1, "f": -np.inf},
    "sum": {"i": 0, "f": -0.0},
    "mean": {"i": 0, "f": -0.0},
}


class Kind(NamedTuple):
    """What slices have in common.

    Attributes:
        make: makes a slice of its key, start, end and accumulator.
        fields: how many fields the key has.
        names: of its values, None of one value; `parts`: the aggregate of each.
        result: makes a value of an accumulator, where items are objects, and so are windows; None where they are rows.
    """

    make: Callable[..., Any]
    fields: int
    names: tuple[str, ...] | None
    parts: tuple[Any, ...]
    result: Callable[[Any], Any] | None = None

    def accumulators(self, arrays: Sequence[Sequence[Array]]) -> list[Any]:
        lists = list(map(_listed, self.parts, arrays))
        return lists[0] if self.names is None else list(zip(*lists))

    def results(self, arrays: Sequence[Sequence[Array]]) -> list[Any]:
        """The results of each aggregate, in a column if they are numbers; of objects, the values in one list."""
        if self.result is None:
            return list(map(_results, self.parts, arrays))
        return [list(map(self.result, self.accumulators(arrays)))]


class Slices(Rows):
    """Slices of sliding windows.

    Args:
        arrays: of each aggregate the accumulators: numbers, or any objects in one array; before numbers of means, and
            where there are accumulators of nulls alone, of how many values each is, or only whether it is of any.
    """

    __slots__ = ("kind", "keys", "starts", "ends", "arrays", "_values")

    has_fields = False

    def __init__(
        self, kind: Kind, keys: list[Any], starts: Array, ends: Array, arrays: Sequence[Sequence[Array]]
    ) -> None:
        self.kind, self.keys, self.starts, self.ends, self.arrays = kind, keys, starts, ends, arrays
        self._values: list[Any] | None = None

    @property
    def values(self) -> list[Any]:
        """The slices, made once."""
        if self._values is None:
            bounds = self.starts.tolist(), self.ends.tolist()
            self._values = list(map(self.kind.make, self.keys, *bounds, self.kind.accumulators(self.arrays)))
        return self._values

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, at: Any) -> Any:
        if not isinstance(at, slice):
            return self.values[at]
        return self._of(self.keys[at], at)

    def _of(self, keys: list[Any], at: Any) -> Self:
        arrays = [[each[at] for each in every] for every in self.arrays]
        return type(self)(self.kind, keys, self.starts[at], self.ends[at], arrays)

    @property
    def nbytes(self) -> int:
        return len(self) * (24 + 8 * len(self.arrays))

    def chosen(self, wanted: Sequence[int]) -> Self:
        return self._of(list(compress(self.keys, wanted)), np.frombuffer(bytes(wanted), np.bool_))

    def in_order(self, order: Sequence[int]) -> Self:
        return self._of(list(map(self.keys.__getitem__, order)), np.asarray(order, np.int64))

    def joined(self, others: Sequence[Self]) -> Self | None:
        every = [self, *others]
        if any(type(each) is not Slices or each.kind != self.kind for each in every):
            return None
        arrays = list(map(_joined, self.kind.parts, zip(*(each.arrays for each in every))))
        starts, ends = (np.concatenate([getattr(each, name) for each in every]) for name in ("starts", "ends"))
        return type(self)(self.kind, list(chain.from_iterable(each.keys for each in every)), starts, ends, arrays)


def slices_of(
    make: Callable[..., Any],
    fields: int,
    names: tuple[str, ...] | None,
    parts: Sequence[Any],
    keys: list[Any],
    bounds: Sequence[tuple[int, int]],
    counts: Sequence[int],
    accumulators: Sequence[Any],
) -> Slices | None:
    """Windows as slices; None where bounds are beyond 64 bits."""
    kind = Kind(make, fields, names, tuple(parts))
    try:
        starts, ends = (np.repeat(np.array(each, np.int64), counts) for each in zip(*bounds))
    except OverflowError:
        return None
    arrays = [_in_order(part, list(map(np.asarray, each)), has) for part, (each, has) in zip(parts, accumulators)]
    return Slices(kind, keys, starts, ends, arrays)


def _in_order(part: Any, arrays: Sequence[Array], have_one: Any = None) -> Sequence[Array]:
    """Accumulators in arrays; as objects, if the least and the greatest are others in another order.

    Args:
        have_one: a byte for each, 0 where it is of nulls alone; None where none is.
    """
    values = arrays[-1]
    if have_one is not None:
        has_one = np.frombuffer(have_one, np.uint8)
        values = np.where(has_one, values, _NOTHING[part.adds][values.dtype.kind])
        arrays = [arrays[0] if len(arrays) > 1 else has_one.astype(np.int64), values]
    if part.adds not in ("min", "max") or values.dtype.kind != "f":
        return arrays
    return _widened(part, arrays) if np.isnan(values).any() or np.signbit(values[values == 0]).any() else arrays


def _widened(part: Any, arrays: Sequence[Array]) -> list[Array]:
    return [_objects(_listed(part, arrays))]


def _objects(values: Sequence[Any]) -> Array:
    return np.fromiter(values, object, len(values))


def _listed(part: Any, arrays: Sequence[Array]) -> list[Any]:
    if len(arrays) == 1:
        return arrays[0].tolist()  # type: ignore[no-any-return]
    counts, numbers = (each.tolist() for each in arrays)
    made = zip(counts, numbers) if part.adds == "mean" else numbers
    return [each if count else None for count, each in zip(counts, made)]


def _counted(arrays: Sequence[Array]) -> list[Array]:
    """Accumulators of which all are of some values, with that before them."""
    return [np.ones(len(arrays[0]), np.int64), *arrays]


def _joined(part: Any, each: Sequence[Sequence[Array]]) -> list[Array]:
    """Accumulators one after the other; as objects, where not all are of one type."""
    if len({arrays[-1].dtype.kind for arrays in each}) > 1:
        each = [_widened(part, arrays) for arrays in each]
    most = max(map(len, each))
    return list(map(np.concatenate, zip(*(arrays if len(arrays) == most else _counted(arrays) for arrays in each))))


def _results(part: Any, arrays: Sequence[Array]) -> pl.Series | list[Any]:
    """The results of accumulators of an aggregate, in a column or, of objects, in a list."""
    if arrays[-1].dtype.kind == "O":
        return list(map(part.result, arrays[-1]))
    if len(arrays) == 1:
        return pl.Series(arrays[0])
    counts, numbers = arrays
    made = pl.Series(means(numbers, np.maximum(counts, 1)) if part.adds == "mean" else numbers)
    return made if counts.all() else made.set(pl.Series(counts == 0), None)


def _joined_results(parts: Sequence[pl.Series | list[Any]]) -> pl.Series | Sequence[Any]:
    """Results one after the other: in a column, unless they are in none."""
    if len({part.dtype if isinstance(part, pl.Series) else list for part in parts}) == 1 and type(parts[0]) is not list:
        return pl.concat(parts)  # type: ignore[type-var]
    return in_a_column(list(chain.from_iterable(parts)))


def merging_of(
    slices: Sequence[Any],
    of_objects: Kind | None,
    windows: tuple[int, int, int],
    timers: tuple[bytes, bytes, int],
    result: Callable[..., Any],
) -> Merging | None:
    """The `Merging` for slices such as these; None if they are merged one by one.

    Args:
        of_objects: the kind of slices that come one by one; None where they are rows.
    """
    kind = slices.kind if isinstance(slices, Slices) else of_objects
    return None if kind is None else Merging(kind, windows, timers, result)


class _Ended:
    """The slices of one end.

    Attributes:
        firsts: of each the start of the first window that begins with it.
        timers: of each the meta of its timer; what there is without one does not count.
        dues: of each the time of its timer, or `_NONE`.
    """

    __slots__ = ("slices", "numbers", "start", "firsts", "timers", "dues", "_first", "_least")

    def __init__(self, slices: Slices, numbers: Array, firsts: Array, timers: list[bytes], dues: Array) -> None:
        self.slices, self.numbers, self.start = slices, numbers, int(slices.starts[0])
        self.firsts, self.timers, self.dues = firsts, timers, dues
        self._first: int | None = None
        self._least: bytes | None = None

    def put(self, at: Array, due: int) -> None:
        """Set the times of timers in these places."""
        self.dues = self.dues.copy()  # the others are those of copies
        self.dues[at] = due
        self._first = self._least = None

    @property
    def first(self) -> int:
        """The time of the first timer; `_NEVER` if there is none."""
        if self._first is None:
            self._first = int(self.dues.min(where=self.dues != _NONE, initial=_NEVER))
        return self._first

    @property
    def least(self) -> bytes:
        """The meta of the first timer. Timers of one moment are not in the order of the slices that they are of: what
        was made of timers has hashes in its metas.
        """
        if self._least is None:
            self._least = min(map(self.timers.__getitem__, np.flatnonzero(self.dues == self.first).tolist()))
        return self._least


class _Over(NamedTuple):
    """Windows of one end.

    Attributes:
        until: the last time before it.
        timers: the metas of their timers.
        results: see `Kind.results`.
    """

    until: int
    timers: list[bytes]
    keys: list[Any]
    results: list[Any]


class Merging:
    """The slices of windows that have not ended, and their timers.

    Args:
        size, every, offset: of the windows.
        suffix: of the grouping; `ending`: what the map of timers appends; `phase`: theirs.
        result: makes a window of its key, start, end and value.
    """

    def __init__(
        self,
        kind: Kind,
        windows: tuple[int, int, int],
        timers: tuple[bytes, bytes, int],
        result: Callable[..., Any],
    ) -> None:
        self._kind, self._result = kind, result
        self._size, self._every, self._offset = windows
        self._suffix, self._ending, self._phase = timers
        self._ended: list[_Ended] = []  # in the order of their ends
        self._over: list[_Over] = []
        self._numbers = KeyNumbers()
        self._lasts = np.empty(0, np.int64)  # by number of a key: the start of its last slice, or `_NONE`

    def __len__(self) -> int:
        return sum(int(np.count_nonzero(each.dues != _NONE)) for each in self._ended)

    def copied(self) -> Self:
        """What there is now, for `back`; where nothing is to be taken."""
        other = copy(self)
        other._ended = [copy(each) for each in self._ended]
        return other

    def back(self) -> Self:
        """One to go on with from a copy, which stays as it is."""
        other = self.copied()
        other._over = []
        other._number_again()
        return other

    @property
    def least(self) -> bytes | None:
        """The meta of the first timer."""
        first = min((each.first for each in self._ended), default=_NEVER)
        return None if first == _NEVER else min(each.least for each in self._ended if each.first == first)

    @staticmethod
    def stretches(slices: Slices) -> Iterator[tuple[int, int]]:
        """Start and end of each stretch of slices that have one end."""
        edges = np.flatnonzero(slices.ends[1:] != slices.ends[:-1]) + 1
        return pairwise([0, *edges.tolist(), len(slices)])

    def in_arrays(self, slices: Sequence[Any]) -> Slices | None:
        """Slices that came one by one; None where their keys or bounds have no form in arrays."""
        make, fields, names, parts, _ = self._kind
        if set(map(type, slices)) != {make}:
            return None
        keys = [each.key for each in slices]
        of_fields = [keys] if fields < 2 else list(zip(*keys))
        if any(not set(map(type, each)) <= {str, int, type(None)} for each in of_fields):
            return None
        accumulators = [each.accumulator for each in slices]
        lists = [accumulators] if names is None else list(zip(*accumulators))
        arrays = list(map(_arrays_of, parts, lists))
        try:
            starts, ends = (np.array([getattr(each, name) for each in slices], np.int64) for name in ("start", "end"))
        except OverflowError:
            return None
        return Slices(self._kind, keys, starts, ends, arrays)

    def takes(self, slices: Rows) -> bool:
        """Whether these may be added to those that are here."""
        return (
            isinstance(slices, Slices)
            and slices.kind == self._kind
            and int(slices.starts.min()) >= -_TIME_MAX
            and int(slices.ends.max()) <= _TIME_MAX
        )

    def add(self, metas: Metas, slices: Slices) -> None:
        """Add slices of one end, behind all that are here; what was due before them has fired."""
        if len(self._numbers) > UNUSED_MIN + 4 * sum(len(each.numbers) for each in self._ended):
            self._number_again()
        numbers = self._numbers_of(slices.keys)
        start, end = int(slices.starts[0]), int(slices.ends[0])
        size, every = self._size, self._every
        first = end + (self._offset + size - end) % every - size
        lasts = self._lasts[numbers]
        behind = np.where(lasts == _NONE, first, lasts + every - (lasts - self._offset) % every)
        firsts = np.maximum(behind, first)  # windows before it begin with an earlier slice
        self._lasts[numbers] = start
        dues = np.where(firsts <= start, firsts + size - 1, _NONE)
        timers = [b""] * len(slices)
        timed = np.flatnonzero(dues != _NONE).tolist()
        if timed:
            parents = metas if len(timed) == len(metas) else metas.take(timed)
            _set(timers, timed, self._next(parents, dues[timed]))
        self._ended.append(_Ended(slices, numbers, firsts, timers, dues))

    def _next(self, parents: Metas, dues: Array) -> list[bytes]:
        return list(parents.with_suffix(self._suffix).later(self._ending, dues, self._phase))

    def _numbers_of(self, keys: Sequence[Any]) -> Array:
        numbers = np.fromiter(map(self._numbers.__getitem__, keys), np.int64, len(keys))
        missing = len(self._numbers) - len(self._lasts)
        if missing:
            self._lasts = np.concatenate([self._lasts, np.full(missing + len(self._lasts) // 2, _NONE)])
        return numbers

    def _number_again(self) -> None:
        """Forget the keys that have no slice: where windows of a last slice have all ended, it says nothing."""
        self._numbers, self._lasts = KeyNumbers(), np.empty(0, np.int64)
        for each in self._ended:
            each.numbers = self._numbers_of(each.slices.keys)
            self._lasts[each.numbers] = each.start

    def fire(self, bound: bytes) -> None:
        """End windows whose timers are below a bound, those of a moment together; `taken` gives them.

        It stops at a moment some of whose timers are not below the bound, or whose windows raise.
        """
        while self._ended:
            until = min(each.first for each in self._ended)
            moment = self._moment(until)
            if until == _NEVER or moment >= bound or bound.startswith(moment):
                break
            try:
                self._over.append(self._end(until))
            except BaseException as raised:  # raised again window by window, where it is reported
                pass_interrupts(raised)
                break

    def taken(self) -> tuple[Metas, list[Any], Any]:
        """The windows that have ended since the last call: timers, keys and windows."""
        over, self._over = self._over, []
        if not over:
            return Metas(), [], []
        metas, keys = (list(chain.from_iterable(each)) for each in zip(*((each.timers, each.keys) for each in over)))
        bounds = [(each.until + 1 - self._size, each.until + 1) for each in over]
        counts, names = [len(each.keys) for each in over], self._kind.names
        if self._kind.result is None:
            results = list(map(_joined_results, zip(*(each.results for each in over))))
            rows = window_rows(self._result, keys, self._kind.fields, bounds, counts, results, names)
            if rows is not None:
                return Metas(metas), keys, rows
            lists = list(map(list, results))
            values = lists[0] if names is None else [dict(zip(names, each)) for each in zip(*lists)]
        else:
            values = list(chain.from_iterable(chain.from_iterable(each.results) for each in over))
        each_bound = chain.from_iterable(map(repeat, bounds, counts))
        made = [self._result(key, *bound, value) for key, bound, value in zip(keys, each_bound, values)]
        return Metas(metas), keys, made

    def _moment(self, time: int) -> bytes:
        return pack_time(time) + bytes((LATER_MARK,)) + varint(0) + bytes((self._phase,))

    def _end(self, until: int) -> _Over:
        """End the windows of one end; where that raises, nothing has changed."""
        found = [(each.dues == until).nonzero()[0] for each in self._ended]
        parts = [[[part[at] for part in parts] for parts in each.slices.arrays] for each, at in zip(self._ended, found)]
        arrays = list(map(_joined, self._kind.parts, zip(*parts)))
        numbers = np.concatenate([each.numbers[at] for each, at in zip(self._ended, found)])
        places = np.empty(len(self._lasts), np.int64)
        places[numbers] = np.arange(len(numbers))
        for each, at in zip(self._ended, found):
            if len(at) < len(each.numbers):
                rest = (each.dues != until).nonzero()[0]
                where = places[each.numbers[rest]]
                for number, (part, more) in enumerate(zip(self._kind.parts, each.slices.arrays)):
                    arrays[number] = _merged(part, arrays[number], [one[rest] for one in more], where)
        results = self._kind.results(arrays)
        next_start = until + 1 - self._size + self._every
        metas: list[bytes] = []
        keys: list[Any] = []
        again: list[tuple[_Ended, list[int]]] = []
        parents: list[bytes] = []
        for each, at in zip(self._ended, found):
            fired_at = at.tolist()
            whole = len(fired_at) == len(each.timers)
            fired = each.timers if whole else [each.timers[index] for index in fired_at]
            metas += fired
            keys += each.slices.keys if whole else [each.slices.keys[index] for index in fired_at]
            goes_on = bool(fired_at) and each.start >= next_start
            each.put(at, until + self._every if goes_on else _NONE)
            if goes_on:
                again.append((each, fired_at))
                parents += fired
        if parents:
            timers = iter(self._next(Metas(parents), np.full(len(parents), until + self._every)))
            for each, fired_at in again:
                each.timers = each.timers.copy()
                _set(each.timers, fired_at, list(islice(timers, len(fired_at))))
        self._ended = [each for each in self._ended if each.start >= next_start]
        return _Over(until, metas, keys, results)

    def entries(self) -> Iterator[tuple[Any, Any]]:
        """The states of the keys with their timers, as the process would have them."""
        found: dict[Any, tuple[list[Any], list[Any]]] = {}
        for each in self._ended:
            accumulators = self._kind.accumulators(each.slices.arrays)
            for at, (key, first, due) in enumerate(zip(each.slices.keys, each.firsts.tolist(), each.dues.tolist())):
                state, timers = found.setdefault(key, ([], []))
                state.append((each.start, first, accumulators[at]))
                if due != _NONE:
                    timers.append((each.timers[at], Timer(key, key)))
        return ((key, (tuple(state), timers)) for key, (state, timers) in found.items())

    def take(self) -> list[tuple[Any, Any]]:
        """Take out all; see `entries`."""
        entries = list(self.entries())
        self._ended = []
        return entries


def _set(timers: list[bytes], at: Sequence[int], made: list[bytes]) -> None:
    """Put timers in these places."""
    if len(at) == len(timers):
        timers[:] = made
    else:
        for index, timer in zip(at, made):
            timers[index] = timer


def _merged(part: Any, merged: list[Array], more: list[Array], where: Array) -> list[Array]:
    """Accumulators with others merged into those at different places; as objects, where they may be no numbers."""
    one, other = merged[-1], more[-1]
    adds, kind = part.adds, one.dtype.kind
    may_overflow = kind == "i" and adds in ("sum", "mean") and _greatest(one) + _greatest(other) > _EXACT_MAX
    if kind == "O" or kind != other.dtype.kind or may_overflow:
        (one,), (other,) = _widened(part, merged), _widened(part, more)
        one[where] = _objects(list(map(part.merge, one[where], other)))
        return [one]
    if len(merged) < len(more):
        merged = _counted(merged)
    if len(merged) > 1:
        merged[0][where] += more[0] if len(more) > 1 else 1
    with np.errstate(invalid="ignore", over="ignore"):  # the sum of two infinities is NaN, as in Python
        one[where] = {"min": np.minimum, "max": np.maximum}.get(adds, np.add)(one[where], other)
    return merged


def _arrays_of(part: Any, accumulators: Sequence[Any]) -> Sequence[Array]:
    """Accumulators in arrays: numbers, if those that are not None are all integers of 64 bits or all floats, else
    objects.
    """
    is_mean = part.adds == "mean"
    numbers = [each[1] if is_mean and each is not None else each for each in accumulators]
    kinds = set(map(type, numbers)) - {type(None)}
    try:
        (kind,) = kinds
        values = np.array([kind() if each is None else each for each in numbers], _ARRAYS[kind])
    except (KeyError, ValueError, OverflowError):
        return [_objects(accumulators)]
    counts = [np.array([0 if each is None else each[0] for each in accumulators])] if is_mean else []
    have_one = bytes([each is not None for each in numbers]) if None in numbers else None
    return _in_order(part, [*counts, values], have_one)


def _greatest(values: Array) -> int:
    return max(int(values.max()), -int(values.min()))
