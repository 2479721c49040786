"""The aggregates that graphs are written with: `drift.agg`. What they do is in `accumulators`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, overload

from drift.flow.accumulators import (
    AboutDistinct,
    AboutQuantile,
    Collect,
    Count,
    Distinct,
    Extreme,
    ExtremeBy,
    First,
    FoldStep,
    Last,
    Mean,
    Nth,
    Quantile,
    Ranked,
    ReduceSteps,
    Rolling,
    Several,
    Shift,
    Sort,
    Sum,
    Top,
    Variance,
    Where,
    check_aggregate,
    itself,
)
from drift.flow.accumulators import Aggregate as Aggregate
from drift.flow.fields import HasValue, NeedsValue, Written, function_of
from drift.flow.sketches import buckets_for
from drift_graph.called import called_in, no_attribute
from drift_graph.errors import GraphError
from drift_graph.functions import caller, check_function, is_expression
from drift_graph.moments import Field

if TYPE_CHECKING:
    import polars as pl

#: What users call, and what completion shows.
__all__ = [
    "Aggregate", "approximate_distinct_count", "approximate_quantile", "collect", "count", "dense_rank", "diff",
    "distinct", "distinct_count", "first", "fold", "last", "max", "max_by", "mean", "min", "min_by", "nth", "ntile",
    "quantile", "rank", "reduce", "rolling", "row_number", "several", "shift", "sort", "std", "sum", "top", "var",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__


#: What others call aggregates, by what is written here.
_ELSEWHERE = {
    "mean": ("avg", "average"), "std": ("stddev", "std_dev"), "var": ("variance",), "collect": ("list", "array_agg"),
    "count": ("len", "size", "count_if"), "distinct_count": ("n_unique", "nunique", "count_distinct"),
    "shift": ("lag",), "quantile(0.5, ...)": ("median",), "quantile": ("percentile", "percentile_cont"),
    "max_by": ("arg_max", "argmax"), "min_by": ("arg_min", "argmin"),
    "max_by of the count() of each value (docs/cookbook.md)": ("mode", "most_common", "value_counts"),
    "nth(1, ...), in key_by(...).rolling(drift.windows.rows(0, 1), ...)": ("lead",),
}  # fmt: skip

if not TYPE_CHECKING:  # to which a name that is not there is an error in any case

    def __getattr__(name: str) -> Any:
        raise no_attribute("drift.agg", name, _ELSEWHERE)


#: What None is to an aggregate: left out, or an error.
Nulls = Literal["skip", "error"]
#: See `quantile`.
Interpolation = Literal["linear", "lower", "higher", "nearest", "midpoint"]
T = TypeVar("T")
V = TypeVar("V")


@overload
def count() -> Aggregate[Any, int]: ...
@overload
def count(where: Callable[[T], object] | str | pl.Expr) -> Aggregate[T, int]: ...
def count(where: Callable[[Any], object] | str | pl.Expr | None = None) -> Aggregate[Any, int]:
    """The number of payloads, or of those for which `where` is true, or of those with a value other than None in the
    field of this name, as in SQL `COUNT(*)`, `FILTER (WHERE ...)` and `COUNT(field)`.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.count(where=lambda number: number > 1)).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, 1, 2]})]
    [2]
    """
    if where is None:
        return Count()
    if isinstance(where, str) and where:
        return Where(Count(), HasValue(Field(where)), 0)
    return Where(Count(), _wanted("count", where), 0)


@overload
def sum(*, nulls: Nulls = ...) -> Aggregate[T, T]: ...
@overload
def sum(of: Callable[[T], V], nulls: Nulls = ...) -> Aggregate[T, V]: ...
@overload
def sum(of: str | pl.Expr, nulls: Nulls = ...) -> Aggregate[Any, Any]: ...
def sum(of: Callable[[Any], Any] | str | pl.Expr = itself, nulls: Nulls = "skip") -> Aggregate[Any, Any]:
    """The sum of `of(payload)`, added in order; numbers, or other values that support `+`.

    None is left out, here and in all aggregates but `collect`, `distinct`, `sort`, `nth` and `shift`, as in SQL, Polars
    and pandas. What nothing is left for is None, a sum too, as in SQL; Polars and pandas have 0 then, which is
    `.then(lambda found: found or 0)`. NaN is a value: sums, means and quantiles with NaN are NaN; it is the least and
    the greatest only where there is no other value, in any order.

    Here, as in all aggregates with `of`, `by` or `where`, an expression of Polars stands for a function, where the
    fields of the rows are known; and in all with `of` or `by` the name of a field stands for the one that reads it.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.sum()).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, None, 1, 2]})]
    [6]

    Args:
        of: a function, an expression, or the name of a field.
        nulls: "skip" leaves None out; with "error" it ends the run, at its item.
    """
    return Sum(_of("sum", of, nulls))


def mean(of: Callable[[T], Any] | str | pl.Expr = itself, nulls: Nulls = "skip") -> Aggregate[T, Any]:
    """The sum of `of(payload)` divided by the number of values; without None, see `sum`.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.mean()).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, 1, 2]})]
    [2.0]
    """
    return Mean(_of("mean", of, nulls))


def var(of: Callable[[T], Any] | str | pl.Expr = itself, ddof: int = 1, nulls: Nulls = "skip") -> Aggregate[T, Any]:
    """The variance of `of(payload)`, computed in order; None of `ddof` values or fewer.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.var()).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, 1, 2]})]
    [1.0]

    Args:
        of: returns numbers.
        ddof: the sum of squares is divided by the number of values less this: 1 for a sample, as in SQL and pandas;
            0 for all there are.
    """
    return Variance(_of("var", of, nulls), _whole_number("var", ddof, 0), is_root=False)


def std(
    of: Callable[[T], Any] | str | pl.Expr = itself, ddof: int = 1, nulls: Nulls = "skip"
) -> Aggregate[T, float | None]:
    """The standard deviation of `of(payload)`: the root of `var`, with the same arguments.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.std(ddof=0).then(lambda found: round(found, 3))).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, 1, 2]})]
    [0.816]
    """
    return Variance(_of("std", of, nulls), _whole_number("std", ddof, 0), is_root=True)


@overload
def min(*, nulls: Nulls = ...) -> Aggregate[T, T]: ...
@overload
def min(of: Callable[[T], V], nulls: Nulls = ...) -> Aggregate[T, V]: ...
@overload
def min(of: str | pl.Expr, nulls: Nulls = ...) -> Aggregate[Any, Any]: ...
def min(of: Callable[[Any], Any] | str | pl.Expr = itself, nulls: Nulls = "skip") -> Aggregate[Any, Any]:
    """The least `of(payload)`; of equal ones the first in order.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.min()).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, 1, 2]})]
    [1]
    """
    return Extreme(_of("min", of, nulls), greatest=False)


@overload
def max(*, nulls: Nulls = ...) -> Aggregate[T, T]: ...
@overload
def max(of: Callable[[T], V], nulls: Nulls = ...) -> Aggregate[T, V]: ...
@overload
def max(of: str | pl.Expr, nulls: Nulls = ...) -> Aggregate[Any, Any]: ...
def max(of: Callable[[Any], Any] | str | pl.Expr = itself, nulls: Nulls = "skip") -> Aggregate[Any, Any]:
    """The greatest `of(payload)`; of equal ones the first in order.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.max(lambda number: -number)).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, 1, 2]})]
    [-1]
    """
    return Extreme(_of("max", of, nulls), greatest=True)


def min_by(of: Callable[[T], Any] | str | pl.Expr, nulls: Nulls = "skip") -> Aggregate[T, T]:
    """The payload with the least `of(payload)`; of equal ones the first in order.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.min_by(lambda number: abs(number - 2))).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, 1, 2]})]
    [2]
    """
    return ExtremeBy(_of("min_by", of, nulls), greatest=False)


def max_by(of: Callable[[T], Any] | str | pl.Expr, nulls: Nulls = "skip") -> Aggregate[T, T]:
    """The payload with the greatest `of(payload)`; of equal ones the first in order.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.max_by(lambda number: number % 3)).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, 1, 2]})]
    [2]
    """
    return ExtremeBy(_of("max_by", of, nulls), greatest=True)


@overload
def first(*, nulls: Nulls = ...) -> Aggregate[T, T]: ...
@overload
def first(of: Callable[[T], V], nulls: Nulls = ...) -> Aggregate[T, V]: ...
@overload
def first(of: str | pl.Expr, nulls: Nulls = ...) -> Aggregate[Any, Any]: ...
def first(of: Callable[[Any], Any] | str | pl.Expr = itself, nulls: Nulls = "skip") -> Aggregate[Any, Any]:
    """The first payload in order, or the first `of(payload)`, that is not None; see `nth` for None as well.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.first()).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, 1, 2]})]
    [3]
    """
    return First(_of("first", of, nulls))


@overload
def last(*, nulls: Nulls = ...) -> Aggregate[T, T]: ...
@overload
def last(of: Callable[[T], V], nulls: Nulls = ...) -> Aggregate[T, V]: ...
@overload
def last(of: str | pl.Expr, nulls: Nulls = ...) -> Aggregate[Any, Any]: ...
def last(of: Callable[[Any], Any] | str | pl.Expr = itself, nulls: Nulls = "skip") -> Aggregate[Any, Any]:
    """The last payload in order, or the last `of(payload)`, that is not None.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.last()).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, 1, 2]})]
    [2]
    """
    return Last(_of("last", of, nulls))


@overload
def nth(n: int) -> Aggregate[T, T | None]: ...
@overload
def nth(n: int, of: Callable[[T], V]) -> Aggregate[T, V | None]: ...
@overload
def nth(n: int, of: str | pl.Expr) -> Aggregate[Any, Any]: ...
def nth(n: int, of: Callable[[Any], Any] | str | pl.Expr = itself) -> Aggregate[Any, Any]:
    """The payload at index `n` in order, 0 for the first, or `of` it; None if there are fewer.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.nth(1)).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, 1, 2]})]
    [1]
    """
    index = _whole_number("nth", n, 0)
    return Nth(_of("nth", of), index)


def shift(of: Callable[[T], Any] | str | pl.Expr = itself, n: int = 1) -> Aggregate[T, Any]:
    """The value `n` before the last; None if there are not so many. With `running`, that of the row before.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> stops = graph.source("stops", schema={"bus": str, "at": int})
    >>> stops.key_by("bus").running(before=drift.agg.shift("at")).sink("out")
    >>> [item.payload["before"] for item in drift.run(graph, {"stops": [{"bus": "a", "at": 3}, {"bus": "a", "at": 5}]})]
    [None, 3]
    """
    return Shift(_of("shift", of), _whole_number("shift", n, 1))


def diff(of: Callable[[T], Any] | str | pl.Expr = itself, n: int = 1) -> Aggregate[T, Any]:
    """How much the last value is above that `n` before it; None if there are not so many.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> stops = graph.source("stops", schema={"bus": str, "at": int})
    >>> stops.key_by("bus").running(after=drift.agg.diff("at")).sink("out")
    >>> [item.payload["after"] for item in drift.run(graph, {"stops": [{"bus": "a", "at": 3}, {"bus": "a", "at": 5}]})]
    [None, 2]
    """
    return Shift(_of("diff", of), _whole_number("diff", n, 1), True)


def rolling(of: Aggregate[T, V], n: int) -> Aggregate[T, V]:
    """An aggregate of the last `n` payloads, or of all if they are fewer; computed anew for each.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> fares = graph.source("fares", schema={"zone": str, "fare": int})
    >>> last_two = drift.agg.rolling(drift.agg.sum("fare"), 2)
    >>> fares.key_by("zone").running(last_two=last_two).sink("out")
    >>> rows = [{"zone": "JFK", "fare": fare} for fare in (1, 5, 2)]
    >>> [item.payload["last_two"] for item in drift.run(graph, {"fares": rows})]
    [1, 6, 7]
    """
    check_aggregate(of, "rolling:")
    return Rolling(of, _whole_number("rolling", n, 1))


def row_number(by: Callable[[T], Any] | str | pl.Expr, descending: bool = False) -> Aggregate[T, tuple[int, ...]]:
    """For each payload, in their order, its number from 1 when all are sorted by `by`; of equal ones the first first.

    NaN and None are behind all others. `window(...).each(n=drift.agg.row_number("fare"))` gives it as a field of rows.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.row_number(lambda number: number)).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, 1, 3]})]
    [(2, 1, 3)]
    """
    return Ranked(_of("row_number", by), "row_number", bool(descending))


def rank(by: Callable[[T], Any] | str | pl.Expr, descending: bool = False) -> Aggregate[T, tuple[int, ...]]:
    """As `row_number`, but equal ones have the number of the first of them.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.rank(lambda number: number, descending=True)).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, 1, 3]})]
    [(1, 3, 1)]
    """
    return Ranked(_of("rank", by), "rank", bool(descending))


def dense_rank(by: Callable[[T], Any] | str | pl.Expr, descending: bool = False) -> Aggregate[T, tuple[int, ...]]:
    """As `rank`, without gaps behind equal ones.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.dense_rank(lambda number: number, descending=True)).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, 1, 3]})]
    [(1, 2, 1)]
    """
    return Ranked(_of("dense_rank", by), "dense_rank", bool(descending))


def ntile(n: int, by: Callable[[T], Any] | str | pl.Expr, descending: bool = False) -> Aggregate[T, tuple[int, ...]]:
    """As `row_number`, but the number, from 1, of that of `n` parts of equal size; the first ones have one more.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.ntile(2, lambda number: number)).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, 1, 2]})]
    [(2, 1, 1)]
    """
    return Ranked(_of("ntile", by), "ntile", bool(descending), _whole_number("ntile", n, 1))


@overload
def collect() -> Aggregate[T, tuple[T, ...]]: ...
@overload
def collect(of: Callable[[T], V]) -> Aggregate[T, tuple[V, ...]]: ...
@overload
def collect(of: str | pl.Expr) -> Aggregate[Any, tuple[Any, ...]]: ...
def collect(of: Callable[[Any], Any] | str | pl.Expr = itself) -> Aggregate[Any, Any]:
    """All `of(payload)` in order, None included, as a tuple.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.collect(str)).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, 1, 2]})]
    [('3', '1', '2')]
    """
    return Collect(_of("collect", of))


def sort(by: Callable[[T], Any] | str | pl.Expr = itself) -> Aggregate[T, tuple[T, ...]]:
    """All payloads by rising `by(payload)`, as a tuple; equal ones in order, NaN behind all others, None behind NaN.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.sort()).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, 1, 2]})]
    [(1, 2, 3)]
    """
    return Sort(itself, _of("sort", by))


def top(n: int, by: Callable[[T], Any] | str | pl.Expr = itself, nulls: Nulls = "skip") -> Aggregate[T, tuple[T, ...]]:
    """The `n` payloads with the greatest `by(payload)`, the greatest first; of equal ones the first in order.

    Those with None are left out, so there may be fewer; NaN comes behind all others.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.top(2)).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, 1, 2]})]
    [(3, 2)]
    """
    return Top(_of("top", by, nulls), _whole_number("top", n, 1))


@overload
def distinct() -> Aggregate[T, tuple[T, ...]]: ...
@overload
def distinct(of: Callable[[T], V]) -> Aggregate[T, tuple[V, ...]]: ...
@overload
def distinct(of: str | pl.Expr) -> Aggregate[Any, tuple[Any, ...]]: ...
def distinct(of: Callable[[Any], Any] | str | pl.Expr = itself) -> Aggregate[Any, Any]:
    """Each distinct `of(payload)` once, None too, in order of first occurrence. 1, 1.0 and True are three values.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.distinct(lambda number: number % 2)).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, 1, 2]})]
    [(1, 0)]
    """
    return Distinct(_of("distinct", of), False)


def distinct_count(
    of: Callable[[T], Any] | str | pl.Expr = itself,
    where: Callable[[T], object] | pl.Expr | None = None,
    nulls: Nulls = "skip",
) -> Aggregate[T, int]:
    """The exact number of distinct `of(payload)` but None, of all payloads or of those for which `where` is true.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.distinct_count(lambda number: number % 2)).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, 1, 2]})]
    [2]
    """
    distinct = Distinct(_of("distinct_count", of, nulls), True)
    return distinct if where is None else Where(distinct, _wanted("distinct_count", where), 0)


@overload
def quantile(
    q: float, of: Callable[[T], Any] | str | pl.Expr = ..., interpolation: Interpolation = ..., nulls: Nulls = ...
) -> Aggregate[T, Any]: ...
@overload
def quantile(
    q: Sequence[float],
    of: Callable[[T], Any] | str | pl.Expr = ...,
    interpolation: Interpolation = ...,
    nulls: Nulls = ...,
) -> Aggregate[T, tuple[Any, ...]]: ...
def quantile(
    q: float | Sequence[float],
    of: Callable[[T], Any] | str | pl.Expr = itself,
    interpolation: Interpolation = "linear",
    nulls: Nulls = "skip",
) -> Aggregate[T, Any]:
    """The exact `q`-quantile of all `of(payload)`, or a tuple of several; all values are stored.

    It is a float of integers, a Decimal of Decimals, and NaN where a value is NaN.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.quantile([0.5, 0.9])).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, None, 1, 2]})]
    [(2.0, 2.8)]

    Args:
        q: 0 to 1, or several such; 0.5 is the median.
        of: returns numbers.
        interpolation: what a quantile is whose rank, `q * (n - 1)`, is between those of two values: "linear" between
            them, the "lower" or the "higher" one, the "nearest" (of two that are equally near the one of even rank),
            or their "midpoint"; each as in NumPy and pandas.
        nulls: see `sum`.

    Raises:
        GraphError: `q`, `interpolation` or `nulls` is none of these.
    """
    shares = (q,) if isinstance(q, (int, float)) else tuple(q) if isinstance(q, Sequence) and len(q) else (None,)
    shares = tuple(_share("quantile", each) for each in shares)
    if interpolation not in get_args(Interpolation):
        raise GraphError(
            f"quantile takes interpolation={', '.join(map(repr, get_args(Interpolation)))}, not {interpolation!r:.80} "
            f"(at {caller()})"
        )
    found = shares[0] if isinstance(q, (int, float)) else shares
    return Quantile(_of("quantile", of, nulls), found, interpolation)


def approximate_distinct_count(
    of: Callable[[T], Any] | str | pl.Expr = itself,
    where: Callable[[T], object] | pl.Expr | None = None,
    precision: int = 12,
) -> Aggregate[T, int]:
    """About the number of distinct `of(payload)`, in memory that does not grow with it: a HyperLogLog.

    It is the same for the same values in any order, and exact while they are few (an eighth of the registers).

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.approximate_distinct_count(lambda number: number % 5000)).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": range(20_000)})]
    [5045]

    Args:
        where: only payloads for which this is true are counted.
        precision: 4 to 16; there are 2**precision registers of a byte, and the standard deviation of the error is
            1.04 / 2**(precision / 2), so 1.6 % for 12.

    Raises:
        GraphError: `precision` is none of these.
    """
    if _whole_number("approximate_distinct_count", precision, 4) > 16:
        raise GraphError(f"approximate_distinct_count takes a precision from 4 to 16, not {precision} (at {caller()})")
    distinct = AboutDistinct(_of("approximate_distinct_count", of), precision)
    return distinct if where is None else Where(distinct, _wanted("approximate_distinct_count", where), 0)


def approximate_quantile(
    q: float, of: Callable[[T], Any] | str | pl.Expr = itself, error: float = 0.01
) -> Aggregate[T, float]:
    """About the `q`-quantile of all `of(payload)`, in memory that hardly grows with their number: counts by bucket.

    It is never further than `error` from the value at rank q * (n - 1), rounded down, and the same for the same values
    in any order.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.approximate_quantile(0.5)).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": range(1001)})]
    [502.0]

    Args:
        q: 0 to 1; 0.5 is the median.
        of: returns finite numbers.
        error: as a share of the value, from 0.00001 to 0.5.

    Raises:
        GraphError: `q` or `error` is none of these.
    """
    if not isinstance(error, float) or not 1e-5 <= error <= 0.5:
        raise GraphError(f"approximate_quantile takes an error from 0.00001 to 0.5, not {error!r:.80} (at {caller()})")
    function = _of("approximate_quantile", of)
    return AboutQuantile(function, _share("approximate_quantile", q), buckets_for(error))


def reduce(function: Callable[[T, T], T], merge: Callable[[T, T], T] | None = None) -> Aggregate[T, T]:
    """Combine the payloads from the first on: function(function(p0, p1), p2).

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.reduce(lambda left, right: 10 * left + right)).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, 1, 2]})]
    [312]

    Args:
        function: pure.
        merge: pure; combines the values of two parts, one after the other: the function itself, if that is associative.
            Without it, windows that share slices store payloads, and combine them for each window.
    """
    if merge is not None:
        check_function("drift.agg.reduce", merge)
    return ReduceSteps(_checked("reduce", function), merge)


def fold(initial: V, function: Callable[[V, T], V], merge: Callable[[V, V], V] | None = None) -> Aggregate[T, V]:
    """function(... function(function(initial, p0), p1) ..., pn).

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.fold("", lambda text, number: text + str(number))).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, 1, 2]})]
    ['312']

    Args:
        initial: it must not be changed in place.
        function: pure; returns a new value and does not change the old one.
        merge: pure; combines the values of two parts, each folded from `initial`. Without it, windows that share
            slices store payloads, and fold them for each window.
    """
    if merge is not None:
        check_function("drift.agg.fold", merge)
    return FoldStep(_checked("fold", function), merge, initial)


def several(**aggregates: Aggregate[T, Any]) -> Aggregate[T, dict[str, Any]]:
    """A dict with the value of each aggregate under its name.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").at_end(drift.agg.several(n=drift.agg.count(), sum=drift.agg.sum())).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [3, 1, 2]})]
    [{'n': 3, 'sum': 6}]

    Raises:
        GraphError: there is none.
    """
    for name, each in aggregates.items():
        check_aggregate(each, f"{name}=")
    if not aggregates:
        raise GraphError(f"several takes aggregates by name, such as n=drift.agg.count() (at {caller()})")
    return Several(tuple(aggregates), tuple(aggregates.values()))


def _checked(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
    check_function(f"drift.agg.{what}", function)
    return function


def _wanted(what: str, where: Any) -> Callable[..., Any]:
    """Which payloads an aggregate is of: a function, or an expression."""
    return Written(where, f"drift.agg.{what}", caller()) if is_expression(where) else _checked(what, where)


def _of(what: str, of: Any, nulls: str = "skip") -> Callable[..., Any]:
    """What an aggregate is of: a function, the field of this name, or an expression, once the fields are known."""
    if nulls not in get_args(Nulls):
        raise GraphError(f"drift.agg.{what} takes nulls='skip' or 'error', not {nulls!r:.80} (at {caller()})")
    taker = f"drift.agg.{what}"
    function = Written(of, taker, caller()) if is_expression(of) else function_of(taker, of)
    return NeedsValue(function, taker) if nulls == "error" else function


def _share(what: str, q: Any) -> float:
    if not isinstance(q, (int, float)) or isinstance(q, bool) or not 0 <= q <= 1:
        raise GraphError(f"{what} takes a share from 0 to 1, not {q!r:.80} (at {caller()})")
    return q


def _whole_number(what: str, n: int, least: int) -> int:
    if type(n) is not int or n < least:
        raise GraphError(f"drift.agg.{what} takes an int of {least} or more, not {n!r:.80} (at {caller()})")
    return n


called_in(globals(), __all__)
