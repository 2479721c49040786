"""Aggregates: one value from many payloads, one after the other. `drift.agg`.

Invariant: for payloads p0, p1, ... in order, the accumulator is begin(p0), then add(accumulator, p1) and so on, an
immutable value; merge(left, right) is the accumulator of the payloads of left followed by those of right. There is no
accumulator of no payloads.

Why: accumulators are states of processes, which store old states so that an item can be inserted later. Those that hold
payloads do so in chunks (`sides`), so that a further item does not copy all earlier ones. If two ways to aggregate in
the same order differ (float sums by slices), the graph determines the way, never the order of arrival.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from itertools import chain, compress
from typing import Any, ClassVar, Generic, Literal, Never, TypeVar, overload

from drift.flow.fields import NeedsValue
from drift.flow.sides import Side, appended
from drift.flow.sketches import (
    Buckets,
    Hashes,
    bucket_of,
    distinct_in,
    merged_buckets,
    merged_hashes,
    quantile_in,
    with_bucket,
    with_hashes,
)
from drift.operators import _ByValue
from drift_graph.canonical import canonical, hash64
from drift_graph.errors import GraphError
from drift_graph.functions import caller, check_function
from drift_graph.moments import column_of, results_of

T = TypeVar("T")
V = TypeVar("V")
R = TypeVar("R")


class Aggregate(Generic[T, V]):
    """Computes one value from many payloads; the functions of `drift.agg` make aggregates.

    To write your own, subclass it as a frozen dataclass with `begin`, `add`, `merge` and `result`, on immutable values.
    """

    __slots__ = ()

    #: How numbers are added to its accumulators, see `drift.columns.aggregates.Kind`; None where `add_value` says it.
    adds: ClassVar[Any] = None

    @property
    def of_nothing(self) -> Any:
        """The result of no payloads."""
        return None

    @property
    def initials(self) -> tuple[Any, ...]:
        """Values that the user's functions get beside payloads and accumulators."""
        return ()

    @property
    def folds(self) -> Callable[..., Any] | None:
        """The user's function that gets accumulators, if there is one: the one that can change them in place."""
        return None

    @property
    def in_columns(self) -> tuple[Any, Any] | None:
        """What `drift.columns.aggregates` computes for it, and of which column; None if it is none of that."""
        return None

    @property
    def running_in_columns(self) -> tuple[Any, Any] | None:
        """What `in_columns` is of an aggregate that is computed up to each row."""
        return self.in_columns

    @property
    def type_in_columns(self) -> tuple[Any, Any] | None:
        """What is of the type of its value, see `in_columns`; None if the type is not known."""
        return self.running_in_columns

    @property
    def needs_values(self) -> bool:
        """Whether a value that is None is an error."""
        return type(getattr(self, "user_function", None)) is NeedsValue

    @property
    def values_in_columns(self) -> tuple[tuple[str, ...] | None, Sequence[tuple[Any, Any]]] | None:
        """The names of its values, or None of one value, and `in_columns` of each; None if one has none."""
        of = self.in_columns
        return None if of is None else (None, (of,))

    @property
    def mergeable(self) -> Aggregate[T, V]:
        """The same aggregate in a form whose accumulators can be merged."""
        return self

    def function_shown(self, otherwise: Callable[..., Any]) -> Callable[..., Any]:
        """The user's function that reports name: the one that folds, or else the one that gets payloads."""
        folds = self.folds
        return folds if folds is not None else getattr(self, "user_function", otherwise)

    def begin(self, payload: T) -> Any:
        """The accumulator of one payload."""
        raise NotImplementedError

    def add(self, accumulator: Any, payload: T) -> Any:
        """The accumulator with one more payload."""
        raise NotImplementedError

    def values_of(self, payloads: Sequence[T]) -> Sequence[Any]:
        """The values that `begin_value` and `add_value` take instead of payloads: this calls the user's function."""
        return payloads

    def begin_value(self, value: Any, /) -> Any:
        """Like `begin`, with a value from `values_of`."""
        return self.begin(value)

    def add_value(self, accumulator: Any, value: Any, /) -> Any:
        """Like `add`, with a value from `values_of`."""
        return self.add(accumulator, value)

    def merge(self, left: Any, right: Any) -> Any:
        """The accumulator of the payloads of both, those of `left` first."""
        raise NotImplementedError

    def result(self, accumulator: Any) -> V:
        """The final value of an accumulator; by default the accumulator itself."""
        return accumulator  # type: ignore[no-any-return]

    def results(self, accumulators: Sequence[Any]) -> Sequence[V]:
        """The final value of each accumulator; where these are the values, without a call for each."""
        is_itself = type(self).result is Aggregate.result
        return accumulators if is_itself else list(map(self.result, accumulators))

    def result_of(self, values: Iterable[Any]) -> Any:
        """The final value of values from `values_of`, added one after the other."""
        each = iter(values)
        for first in each:
            return self.result(functools.reduce(self.add_value, each, self.begin_value(first)))
        return self.of_nothing

    # The first two: of what type `drift.agg.collect()` is follows from the stream, later than its `then` is called.
    @overload
    def then(self: Aggregate[Never, Never], function: Callable[[Any], R]) -> Aggregate[Any, R]: ...
    @overload
    def then(
        self: Aggregate[Never, tuple[Never, ...]], function: Callable[[tuple[Any, ...]], R]
    ) -> Aggregate[Any, R]: ...
    @overload
    def then(self, function: Callable[[V], R]) -> Aggregate[T, R]: ...
    def then(self, function: Callable[..., R]) -> Aggregate[Any, R]:
        """The same aggregate with a pure function applied to its result: `collect().then(f)` is f of all payloads.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> graph.source("numbers").at_end(drift.agg.collect().then(sorted)).sink("out")
        >>> [item.payload for item in drift.run(graph, {"numbers": [3, 1, 2]})]
        [[1, 2, 3]]
        """
        check_function("drift.agg.then", function)
        return Then(self, function)


def check_aggregate(value: object, what: str, *, is_field: bool = False) -> None:
    """Check that an argument is an aggregate.

    Args:
        is_field: whether its value is to be a field of a row that is made of several payloads.

    Raises:
        GraphError: it is not, for example `drift.agg.count` without parentheses; or it gives each payload a value.
    """
    if isinstance(value, Aggregate):
        if is_field and getattr(value, "of_each", False):
            raise GraphError(
                f"{what} gives each row a value of its own, and the field has one for all of them (at {caller()}); "
                f"write key_by(...).window(...).each(...), or .then(function) behind it, whose result is one value"
            )
        return
    raise GraphError(
        f"{what} {value!r:.80} is no aggregate (at {caller()}); pass one of drift.agg, such as drift.agg.count() or "
        f"drift.agg.sum(function)"
    )


def itself(payload: Any) -> Any:
    return payload


class Then(_ByValue, Aggregate[Any, Any], frozen=True):
    hands_results: ClassVar = True

    before: Aggregate[Any, Any]
    user_function: Callable[[Any], Any]

    @property
    def initials(self) -> tuple[Any, ...]:
        return self.before.initials

    @property
    def folds(self) -> Callable[..., Any] | None:
        return self.before.folds

    @property
    def mergeable(self) -> Aggregate[Any, Any]:
        return Then(self.before.mergeable, self.user_function)

    def begin(self, payload: Any) -> Any:
        return self.before.begin(payload)

    def add(self, accumulator: Any, payload: Any) -> Any:
        return self.before.add(accumulator, payload)

    def values_of(self, payloads: Sequence[Any]) -> Sequence[Any]:
        return self.before.values_of(payloads)

    def begin_value(self, value: Any) -> Any:
        return self.before.begin_value(value)

    def add_value(self, accumulator: Any, value: Any) -> Any:
        return self.before.add_value(accumulator, value)

    def merge(self, left: Any, right: Any) -> Any:
        return self.before.merge(left, right)

    def result(self, accumulator: Any) -> Any:
        return self.user_function(self.before.result(accumulator))


class Count(_ByValue, Aggregate[Any, int], frozen=True):
    """The number of payloads."""

    of_nothing = 0
    adds: ClassVar = "count"

    @property
    def in_columns(self) -> tuple[Any, Any]:
        return "count", ""

    def begin(self, payload: Any) -> int:
        return 1

    def add(self, accumulator: int, payload: Any) -> int:
        return accumulator + 1

    def merge(self, left: int, right: int) -> int:
        return left + right


def _each(function: Callable[[Any], Any], payloads: Sequence[Any]) -> list[Any]:
    """The function's result for each payload; if it raises, no payload was used."""
    results = list(results_of(function, payloads))
    if len(results) != len(payloads):
        raise RuntimeError("the function raised StopIteration")
    return results


def _of_field(kind: Any, function: Callable[..., Any]) -> tuple[Any, Any] | None:
    column = _column(function)
    return None if column is None else (kind, column)


def _column(function: Callable[..., Any]) -> Any:
    """The column that a function reads; what needs a value reads what its function reads, as nulls are never added."""
    return column_of(function.user_function if type(function) is NeedsValue else function)


def _number(value: Any) -> Any:
    """Make a number of a value, as a sum of one value is a number too."""
    return int(value) if value is True or value is False else value


class _OfValues(_ByValue, Aggregate[Any, Any], frozen=True):
    """An aggregate of the results of the user's function, of which a state may have one as it is."""

    keeps_values: ClassVar = True

    user_function: Callable[[Any], Any]

    def begin(self, payload: Any) -> Any:
        return self.begin_value(self.user_function(payload))

    def add(self, accumulator: Any, payload: Any) -> Any:
        return self.add_value(accumulator, self.user_function(payload))

    def values_of(self, payloads: Sequence[Any]) -> Sequence[Any]:
        return _each(self.user_function, payloads)


class _LeavesOutNone(_OfValues, frozen=True):
    """An aggregate of the values that are not None; the accumulator of no others is None, as its result is."""

    def begin_value(self, value: Any) -> Any:
        return None if value is None else self.start(value)

    def add_value(self, accumulator: Any, value: Any) -> Any:
        if value is None:
            return accumulator
        return self.start(value) if accumulator is None else self.more(accumulator, value)

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        return self.both(left, right)

    start = staticmethod(itself)

    def more(self, accumulator: Any, value: Any) -> Any:
        return self.both(accumulator, value)

    def both(self, left: Any, right: Any) -> Any:
        """Two accumulators as one."""
        raise NotImplementedError


class Sum(_LeavesOutNone, frozen=True):
    adds: ClassVar = "sum"

    @property
    def in_columns(self) -> tuple[Any, Any] | None:
        return _of_field(self.adds, self.user_function)

    start = staticmethod(_number)  # type: ignore[assignment]
    more = both = staticmethod(operator.add)  # type: ignore[assignment]


class Mean(_LeavesOutNone, frozen=True):
    adds: ClassVar = "mean"

    @property
    def in_columns(self) -> tuple[Any, Any] | None:
        return _of_field(self.adds, self.user_function)

    def start(self, value: Any) -> tuple[int, Any]:
        return 1, value

    def more(self, accumulator: tuple[int, Any], value: Any) -> tuple[int, Any]:
        return accumulator[0] + 1, accumulator[1] + value

    def both(self, left: tuple[int, Any], right: tuple[int, Any]) -> tuple[int, Any]:
        return left[0] + right[0], left[1] + right[1]

    def result(self, accumulator: tuple[int, Any] | None) -> Any:
        return None if accumulator is None else accumulator[1] / accumulator[0]


class Variance(_LeavesOutNone, frozen=True):
    """The accumulator is (number, mean, sum of the squares of the distances from it): Welford's, merged as by Chan."""

    ddof: int
    is_root: bool

    @property
    def type_in_columns(self) -> tuple[Any, Any] | None:
        return _of_field("mean", self.user_function)

    def start(self, value: Any) -> tuple[int, Any, Any]:
        return 1, value, value - value  # NaN of NaN and infinity

    def more(self, accumulator: tuple[int, Any, Any], value: Any) -> tuple[int, Any, Any]:
        count, mean, squares = accumulator
        count += 1
        distance = value - mean
        mean += distance / count
        return count, mean, squares + distance * (value - mean)

    def both(self, left: tuple[int, Any, Any], right: tuple[int, Any, Any]) -> tuple[int, Any, Any]:
        count, distance = left[0] + right[0], right[1] - left[1]
        squares = left[2] + right[2] + distance * distance * left[0] * right[0] / count
        return count, left[1] + distance * right[0] / count, squares

    def result(self, accumulator: tuple[int, Any, Any] | None) -> Any:
        if accumulator is None or accumulator[0] <= self.ddof:
            return None
        count, _, squares = accumulator
        return math.sqrt(squares / (count - self.ddof)) if self.is_root else squares / (count - self.ddof)


class Extreme(_LeavesOutNone, frozen=True):
    """The least value, or the greatest; the first of equal values; NaN if there is nothing else."""

    greatest: bool

    @property
    def adds(self) -> str:
        return "max" if self.greatest else "min"

    @property
    def in_columns(self) -> tuple[Any, Any] | None:
        return _of_field(self.adds, self.user_function)

    def both(self, left: Any, right: Any) -> Any:
        return right if _is_before(right, left, self.greatest) else left


def _is_before(value: Any, other: Any, greatest: bool) -> bool:
    """Whether a value is less than another, or greater, or only the other is NaN."""
    return bool(value > other if greatest else value < other) or (other != other and value == value)


class _OfPairs(_OfValues, frozen=True):
    """An aggregate of pairs: the result of the user's function, and the payload; None where the result is."""

    def begin(self, payload: Any) -> Any:
        return self.begin_value(*self.values_of((payload,)))

    def add(self, accumulator: Any, payload: Any) -> Any:
        return self.add_value(accumulator, *self.values_of((payload,)))

    def values_of(self, payloads: Sequence[Any]) -> Sequence[Any]:
        pairs = zip(_each(self.user_function, payloads), payloads)
        return [None if pair[0] is None else pair for pair in pairs]


class ExtremeBy(_OfPairs, _LeavesOutNone, frozen=True):
    """The pair of the first payload whose value is least, or greatest."""

    greatest: bool

    def both(self, left: tuple[Any, Any], right: tuple[Any, Any]) -> tuple[Any, Any]:
        return right if _is_before(right[0], left[0], self.greatest) else left

    def result(self, accumulator: tuple[Any, Any] | None) -> Any:
        return None if accumulator is None else accumulator[1]


class First(_LeavesOutNone, frozen=True):
    """The first value."""

    def both(self, left: Any, right: Any) -> Any:
        return left


class Last(_LeavesOutNone, frozen=True):
    """The last value."""

    def both(self, left: Any, right: Any) -> Any:
        return right


class Nth(_OfValues, frozen=True):
    """The first n + 1 values: a few, since slices are merged."""

    n: int

    def begin_value(self, value: Any) -> tuple[Any, ...]:
        return (value,)

    def add_value(self, accumulator: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
        return (*accumulator, value) if len(accumulator) <= self.n else accumulator

    def merge(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        return (left + right)[: self.n + 1]

    def result(self, accumulator: tuple[Any, ...]) -> Any:
        return accumulator[self.n] if len(accumulator) > self.n else None


class Shift(_OfValues, frozen=True):
    """The value `n` before the last, or how much the last is above that; the accumulator has the last n + 1 values."""

    n: int
    is_difference: bool = False

    @property
    def running_in_columns(self) -> tuple[Any, Any] | None:
        return _of_field(("diff" if self.is_difference else "shift", self.n), self.user_function)

    def begin_value(self, value: Any) -> tuple[Any, ...]:
        return (value,)

    def add_value(self, accumulator: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
        return *accumulator[-self.n :], value

    def merge(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        return (left + right)[-self.n - 1 :]

    def result(self, accumulator: tuple[Any, ...]) -> Any:
        if len(accumulator) <= self.n:
            return None
        first, last = accumulator[0], accumulator[-1]
        if not self.is_difference or first is None:
            return first
        return None if last is None else last - first


class Rolling(_ByValue, Aggregate[Any, Any], frozen=True):
    """Another aggregate, of the last `n` payloads; the accumulator has the values of these."""

    of: Aggregate[Any, Any]
    n: int

    @property
    def running_in_columns(self) -> tuple[Any, Any] | None:
        of = self.of.in_columns
        return (("rolling", self.n, of[0]), of[1]) if of is not None and of[0] != "count" else None

    @property
    def initials(self) -> tuple[Any, ...]:
        return self.of.initials

    @property
    def folds(self) -> Callable[..., Any] | None:
        return self.of.folds

    def values_of(self, payloads: Sequence[Any]) -> Sequence[Any]:
        return self.of.values_of(payloads)

    def begin(self, payload: Any) -> tuple[Any, ...]:
        return tuple(self.of.values_of((payload,)))

    def add(self, accumulator: tuple[Any, ...], payload: Any) -> tuple[Any, ...]:
        return (*accumulator, *self.of.values_of((payload,)))[-self.n :]

    def begin_value(self, value: Any) -> tuple[Any, ...]:
        return (value,)

    def add_value(self, accumulator: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
        return (*accumulator, value)[-self.n :]

    def merge(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        return (left + right)[-self.n :]

    def result(self, accumulator: tuple[Any, ...]) -> Any:
        first, *others = accumulator
        return self.of.result(functools.reduce(self.of.add_value, others, self.of.begin_value(first)))


class Collect(_OfValues, frozen=True):
    """Stores every value, for results that need all of them."""

    begin_value = staticmethod(lambda value: ((value,),))
    add_value = staticmethod(appended)
    merge = staticmethod(operator.add)  # type: ignore[assignment]

    def result(self, accumulator: Side) -> Any:
        return tuple(chain.from_iterable(accumulator))


class ReduceAll(Collect, frozen=True):
    """A reduction of stored payloads: for one without a merge function, if slices have to be merged."""

    step: Callable[[Any, Any], Any]

    @property
    def folds(self) -> Callable[..., Any]:
        return self.step

    def result(self, accumulator: Side) -> Any:
        return functools.reduce(self.step, chain.from_iterable(accumulator))


class Fold(ReduceAll, frozen=True):
    """The same for a fold."""

    initial: Any

    @property
    def initials(self) -> tuple[Any, ...]:
        return (self.initial,)

    def result(self, accumulator: Side) -> Any:
        return functools.reduce(self.step, chain.from_iterable(accumulator), self.initial)


class ReduceSteps(_ByValue, Aggregate[Any, Any], frozen=True):
    """A reduction, step by step; `mergeable` is the form of it that can be merged."""

    user_function: Callable[[Any, Any], Any]
    merged: Callable[[Any, Any], Any] | None

    @property
    def folds(self) -> Callable[..., Any]:
        return self.user_function

    @property
    def mergeable(self) -> Aggregate[Any, Any]:
        return self if self.merged is not None else ReduceAll(itself, self.user_function)

    def begin(self, payload: Any) -> Any:
        return payload

    def add(self, accumulator: Any, payload: Any) -> Any:
        return self.user_function(accumulator, payload)

    def merge(self, left: Any, right: Any) -> Any:
        assert self.merged is not None
        return self.merged(left, right)


class FoldStep(ReduceSteps, frozen=True):
    """A fold, step by step."""

    initial: Any

    @property
    def initials(self) -> tuple[Any, ...]:
        return (self.initial,)

    @property
    def mergeable(self) -> Aggregate[Any, Any]:
        return self if self.merged is not None else Fold(itself, self.user_function, self.initial)

    def begin(self, payload: Any) -> Any:
        return self.user_function(self.initial, payload)


class Top(_OfPairs, frozen=True):
    """The n greatest payloads, the greatest first; the first in order of equal ones."""

    n: int

    def begin_value(self, value: tuple[Any, Any] | None) -> tuple[Any, ...]:
        return () if value is None else (value,)

    def add_value(self, accumulator: tuple[Any, ...], value: tuple[Any, Any] | None) -> tuple[Any, ...]:
        if value is None or (len(accumulator) == self.n and not _is_before(value[0], accumulator[-1][0], True)):
            return accumulator
        at = len(accumulator)
        while at and _is_before(value[0], accumulator[at - 1][0], True):
            at -= 1
        return (*accumulator[:at], value, *accumulator[at:])[: self.n]

    def merge(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(sorted(left + right, key=lambda pair: (pair[0] == pair[0], pair[0]), reverse=True)[: self.n])

    def result(self, accumulator: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(payload for _, payload in accumulator)


class Sort(Collect, frozen=True):
    hands_results: ClassVar = True

    by: Callable[[Any], Any]

    def result(self, accumulator: Side) -> Any:
        by = self.by
        return tuple(sorted(chain.from_iterable(accumulator), key=lambda payload: _rising(by(payload))))


def _rising(value: Any) -> tuple[int, Any]:
    """What sorts values: NaN behind all others, and None behind NaN."""
    kind = 2 if value is None else 1 if value != value else 0
    return kind, None if kind else value


class Ranked(Collect, frozen=True):
    """The place of each payload among all of them, in the order of the payloads.

    Attributes:
        of_each: that a result has a value for each payload.
        kind: what a place is.
        parts: of "ntile": into how many the payloads are cut.
    """

    of_each: ClassVar = True

    kind: Literal["row_number", "rank", "dense_rank", "ntile"]
    descending: bool
    parts: int = 1

    def result(self, accumulator: Side) -> Any:
        values = list(map(_rising, chain.from_iterable(accumulator)))
        plain = [at for at, (kind, _) in enumerate(values) if not kind]
        plain.sort(key=lambda at: values[at], reverse=self.descending)
        others = sorted((at for at, (kind, _) in enumerate(values) if kind), key=lambda at: values[at][0])
        places, rank, dense, before = [0] * len(values), 0, 0, None
        least, more = divmod(len(values), self.parts)
        for number, at in enumerate([*plain, *others]):
            if values[at] != before:
                before, rank, dense = values[at], number + 1, dense + 1
            behind = number - more * (least + 1)  # the first parts have one more
            part = number // (least + 1) if behind < 0 else more + behind // max(least, 1)
            found = {"row_number": number, "rank": rank - 1, "dense_rank": dense - 1, "ntile": part}
            places[at] = found[self.kind] + 1
        return tuple(places)


class Quantile(Collect, frozen=True):
    """One or several quantiles of the values that are not None; NaN if one of them is."""

    q: float | tuple[float, ...]
    interpolation: str = "linear"

    @property
    def type_in_columns(self) -> tuple[Any, Any] | None:
        return _of_field("mean", self.user_function) if type(self.q) is not tuple else None

    def result(self, accumulator: Side) -> Any:
        values = [value for value in chain.from_iterable(accumulator) if value is not None]
        ordered = [value for value in values if value != value][:1] or sorted(values)
        if type(self.q) is tuple:
            return tuple(_quantile(ordered, q, self.interpolation) for q in self.q)
        return _quantile(ordered, self.q, self.interpolation)


def _quantile(values: Sequence[Any], q: Any, interpolation: str) -> Any:
    """A quantile of sorted values: a float of integers, and of Decimals a Decimal."""
    if not values:
        return None
    index = (Decimal(repr(q)) if any(isinstance(value, Decimal) for value in values) else q) * (len(values) - 1)
    below = int(index)
    share = index - below
    if interpolation == "midpoint":
        share = type(share)(0.5) if share else share
    elif interpolation != "linear":
        share = {"lower": 0, "higher": math.ceil(share), "nearest": round(index) - below}[interpolation]
    value = (
        values[below + int(share)] if share in (0, 1) else values[below] + (values[below + 1] - values[below]) * share
    )
    return float(value) if isinstance(value, int) else value


_NONE = canonical(None)
#: The keys seen so far in chunks, each about half as large as the one before it or less.
_ChunksOfKeys = tuple[frozenset[bytes], ...]


class Distinct(_OfValues, frozen=True):
    """Values with different canonical bytes, in the order of their first payloads: (keys seen, values).

    None is one of them, and is not counted.
    """

    counted: bool  # whether the result is only their number

    @property
    def of_nothing(self) -> Any:
        return 0 if self.counted else ()

    def begin_value(self, value: Any) -> tuple[_ChunksOfKeys, Side]:
        return (frozenset((canonical(value),)),), () if self.counted else ((value,),)

    def add_value(self, accumulator: tuple[_ChunksOfKeys, Side], value: Any) -> tuple[_ChunksOfKeys, Side]:
        form = canonical(value)
        chunks, values = accumulator
        for chunk in chunks:
            if form in chunk:
                return accumulator
        last = frozenset((form,))
        while chunks and len(chunks[-1]) <= len(last):
            chunks, last = chunks[:-1], chunks[-1] | last
        return (*chunks, last), () if self.counted else appended(values, value)

    def merge(self, left: tuple[_ChunksOfKeys, Side], right: tuple[_ChunksOfKeys, Side]) -> tuple[_ChunksOfKeys, Side]:
        if self.counted:
            return (frozenset().union(*left[0], *right[0]),), ()
        for value in chain.from_iterable(right[1]):
            left = self.add_value(left, value)
        return left

    def result(self, accumulator: tuple[_ChunksOfKeys, Side]) -> Any:
        if self.counted:
            return sum(map(len, accumulator[0])) - any(_NONE in chunk for chunk in accumulator[0])
        return tuple(chain.from_iterable(accumulator[1]))


class AboutDistinct(_OfValues, frozen=True):
    """The number of values with different canonical bytes, about."""

    precision: int

    of_nothing = 0

    def begin_value(self, value: Any) -> Hashes:
        return self.add_value(frozenset(), value)

    def add_value(self, accumulator: Hashes, value: Any) -> Hashes:
        return accumulator if value is None else with_hashes(accumulator, (hash64(value),), self.precision)

    def merge(self, left: Hashes, right: Hashes) -> Hashes:
        return merged_hashes(left, right, self.precision)

    def result(self, accumulator: Hashes) -> int:
        return distinct_in(accumulator, self.precision)


class AboutQuantile(_OfValues, frozen=True):
    """A quantile of numbers, about."""

    keeps_values: ClassVar = False

    q: float
    buckets: int

    def begin_value(self, value: Any) -> Buckets:
        return self.add_value(({}, ()), value)

    def add_value(self, accumulator: Buckets, value: Any) -> Buckets:
        return accumulator if value is None else with_bucket(accumulator, bucket_of(value, self.buckets))

    merge = staticmethod(merged_buckets)

    def result(self, accumulator: Buckets) -> float | None:
        return None if accumulator == ({}, ()) else quantile_in(accumulator, self.q, self.buckets)


class Several(_ByValue, Aggregate[Any, dict[str, Any]], frozen=True):
    names: tuple[str, ...]
    parts: tuple[Aggregate[Any, Any], ...]

    @property
    def of_nothing(self) -> dict[str, Any]:
        return {name: part.of_nothing for name, part in zip(self.names, self.parts)}

    @property
    def initials(self) -> tuple[Any, ...]:
        return tuple(chain.from_iterable(part.initials for part in self.parts))

    @property
    def folds(self) -> Callable[..., Any] | None:
        return next((part.folds for part in self.parts if part.folds is not None), None)

    @property
    def mergeable(self) -> Aggregate[Any, dict[str, Any]]:
        return Several(self.names, tuple(part.mergeable for part in self.parts))

    @property
    def values_in_columns(self) -> tuple[tuple[str, ...] | None, Sequence[tuple[Any, Any]]] | None:
        found = [part.in_columns for part in self.parts]
        return None if None in found else (self.names, found)  # type: ignore[return-value]

    def values_of(self, payloads: Sequence[Any]) -> Sequence[Any]:
        return list(zip(*[part.values_of(payloads) for part in self.parts]))

    def begin_value(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([part.begin_value(each) for part, each in zip(self.parts, value)])

    def add_value(self, accumulator: tuple[Any, ...], value: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([part.add_value(*each) for part, *each in zip(self.parts, accumulator, value)])

    def begin(self, payload: Any) -> tuple[Any, ...]:
        return tuple([part.begin(payload) for part in self.parts])

    def add(self, accumulator: tuple[Any, ...], payload: Any) -> tuple[Any, ...]:
        return tuple([part.add(each, payload) for part, each in zip(self.parts, accumulator)])

    def merge(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([part.merge(*each) for part, *each in zip(self.parts, left, right)])

    def result(self, accumulator: tuple[Any, ...]) -> dict[str, Any]:
        return {name: part.result(each) for name, part, each in zip(self.names, self.parts, accumulator)}


def accumulating(aggregate: Aggregate[Any, Any]) -> Aggregate[Any, Any]:
    """What has the accumulators of an aggregate, whatever is made of its result."""
    while isinstance(aggregate, Then):
        aggregate = aggregate.before
    return aggregate


class Where(_ByValue, Aggregate[Any, Any], frozen=True):
    """An aggregate of some of the payloads; the accumulator is (), or (its accumulator,)."""

    before: Aggregate[Any, Any]
    user_function: Callable[[Any], object]
    of_none: Any  # the result without such payloads

    @property
    def of_nothing(self) -> Any:
        return self.of_none

    @property
    def type_in_columns(self) -> tuple[Any, Any] | None:
        return self.before.type_in_columns

    @property
    def initials(self) -> tuple[Any, ...]:
        return self.before.initials

    @property
    def mergeable(self) -> Aggregate[Any, Any]:
        return Where(self.before.mergeable, self.user_function, self.of_none)

    def begin(self, payload: Any) -> tuple[Any, ...]:
        return (self.before.begin(payload),) if self.user_function(payload) else ()

    def add(self, accumulator: tuple[Any, ...], payload: Any) -> tuple[Any, ...]:
        if not self.user_function(payload):
            return accumulator
        return (self.before.add(accumulator[0], payload) if accumulator else self.before.begin(payload),)

    def values_of(self, payloads: Sequence[Any]) -> Sequence[tuple[Any, ...]]:
        chosen = list(map(bool, _each(self.user_function, payloads)))
        values = iter(self.before.values_of(list(compress(payloads, chosen))))
        return [(next(values),) if is_chosen else () for is_chosen in chosen]

    def begin_value(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self.before.begin_value(*value),) if value else ()

    def add_value(self, accumulator: tuple[Any, ...], value: tuple[Any, ...]) -> tuple[Any, ...]:
        if not value:
            return accumulator
        return (self.before.add_value(*accumulator, *value) if accumulator else self.before.begin_value(*value),)

    def merge(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self.before.merge(*left, *right),) if left and right else left or right

    def result(self, accumulator: tuple[Any, ...]) -> Any:
        return self.before.result(*accumulator) if accumulator else self.of_none
