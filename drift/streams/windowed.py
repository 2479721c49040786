"""Streams in windows: an aggregate defines the result of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from drift.flow import aggregates as agg
from drift.flow.accumulators import Aggregate, check_aggregate, itself
from drift.flow.aggregates import Nulls, several
from drift.flow.choosing import all_items
from drift.flow.corrected import Allowed, FlatCorrected, OwnTime
from drift.flow.fields import policy_of_fields
from drift.flow.filling import NOT_FILLED, Filling, key_of_result
from drift.flow.opened import EachRow, FlatRow, Lowered, Until
from drift.flow.running import fields_of_each
from drift.flow.windows import Early, Window, Windows, check_windows, fields_of_rows
from drift.streams.adding import ERRORS, check_name, elsewhere, span_of
from drift_graph.called import called
from drift_graph.errors import GraphError
from drift_graph.functions import caller
from drift_graph.moments import Span
from drift_graph.operators import Source
from drift_graph.policies import EventTime

if TYPE_CHECKING:
    import polars as pl

    from drift.streams.stream import Stream

T = TypeVar("T")
S = TypeVar("S")
K = TypeVar("K")
V = TypeVar("V")


@called
class WindowedStream(Generic[K, T]):
    """A stream cut into windows; an aggregate defines the result of each. `Stream.window` makes it."""

    def __init__(
        self,
        stream: Stream[T],
        key: Callable[[T], Any],
        windows: Windows,
        early: Early | None = None,
        until: Callable[[Any], object] | None = None,
        fill: Any = NOT_FILLED,
        allowed: Span | None = None,
        time: Any = None,
        late: str = "",
        others: Iterable[str] = (),
    ) -> None:
        for other in others:
            hint = f": window(...).rows(n=drift.agg.count(), {other}=...)" if other in ("name", "durable") else ""
            if other in ("allowed_lateness", "allowedLateness", "lateness", "grace"):
                hint = (
                    "; it is called allowed here, for results that later items correct, with EventTime(..., "
                    "allowed=...) at the source; EventTime(..., lateness=...) keeps windows open for so long"
                )
            if not hint:
                hint = f"; aggregates by name stand behind it: window(...).rows({other}=...)"
            raise GraphError(
                f"window takes no {other}= (at {caller()}), only windows, early=, until=, fill=, allowed=, time= and "
                f"late=; the step is made by the aggregate behind it, which takes name= and durable={hint}"
            )
        check_windows(windows)
        if early is not None and not isinstance(early, Early):
            raise GraphError(f"early= takes drift.windows.every(...), not {early!r:.80} (at {caller()})")
        is_alone = fill is NOT_FILLED and (early is None or early.time is None)
        if until is not None and not (callable(until) and is_alone):
            raise GraphError(
                f"until= takes a function of the value of a window, beside it early=drift.windows.every(items=...) at "
                f"most, and no fill=; got {until!r:.80}, early={early!r} (at {caller()})"
            )
        if fill is not NOT_FILLED and windows.following is None:
            raise GraphError(
                f"fill= takes tumbling, sliding and calendar windows, whose bounds are known without items, not "
                f"{windows!r:.80} (at {caller()})"
            )
        if windows.span:
            stream._graph._draft.spans.append(windows.span)
        self._allowed = None
        if allowed is not None:
            if windows.placed is None or until is not None or fill is not NOT_FILLED:
                raise GraphError(
                    f"allowed= takes tumbling, sliding and calendar windows without until= and fill=: the bounds of "
                    f"others hang on the items themselves, and what has ended or is filled is not corrected "
                    f"(at {caller()})"
                )
            self._allowed = span_of("window: allowed", allowed, caller()), _own_time(stream, time), late
        elif time is not None or late:
            raise GraphError(
                f"window takes time= and late= with allowed= only (at {caller()}): other windows go by the time of an "
                f"item in the order, EventTime(...) of its source, which says where late ones go"
            )
        if late:
            check_name("sink", late, caller())
        if late == ERRORS:
            raise GraphError(f"window has late={late!r} (at {caller()}), which is the sink of what cannot be read")
        self._fill = fill
        self._stream = stream
        self._key = key
        self._windows = windows
        self._early = early
        self._until = None if until is None else Until(until, None if early is None else early.items)

    @overload
    def aggregate(
        self, aggregate: Aggregate[T, V], /, *, name: str | None = None, durable: bool = False
    ) -> Stream[Window[K, V]]: ...
    @overload
    def aggregate(
        self, /, *, name: str | None = None, durable: bool = False, **named: Aggregate[T, Any]
    ) -> Stream[Window[K, dict[str, Any]]]: ...
    def aggregate(
        self,
        aggregate: Aggregate[T, Any] | None = None,
        /,
        *,
        name: str | None = None,
        durable: bool = False,
        **named: Aggregate[T, Any],
    ) -> Stream[Any]:
        """A `drift.Window` for each window that has items: its key, start, end and value.

        A window [start, end) by time gives its result at `end - 1`, after every item of that time.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> windows = graph.source("numbers").window(drift.windows.count(2))
        >>> windows.aggregate(n=drift.agg.count(), last=drift.agg.last()).map(lambda window: window.value).sink("out")
        >>> [item.payload for item in drift.run(graph, {"numbers": [1, 2, 5, 3]})]
        [{'n': 2, 'last': 2}, {'n': 2, 'last': 3}]

        Args:
            aggregate: one of `drift.agg`, such as `drift.agg.sum(function)`.
            durable: whether a run with state logs the output of the step, so that later steps resume from the log.
            named: or several at once, and the value is a dict: `aggregate(n=drift.agg.count(), last=drift.agg.last())`.

        Raises:
            GraphError: there is no aggregate, or one by position and others by name.
        """
        for argument, value in (("name", name), ("durable", durable)):
            if isinstance(value, Aggregate):
                raise GraphError(
                    f"aggregate takes {argument}= for its step, not an aggregate (at {caller()}); for a value under "
                    f"that name write aggregate(drift.agg.several({argument}=...))"
                )
        if (aggregate is None) is not bool(named):
            raise GraphError(f"aggregate takes one of drift.agg, or several of them by name (at {caller()})")
        chosen = several(**named) if aggregate is None else aggregate
        check_aggregate(chosen, "aggregate:")
        chosen = self._stream._bound(chosen)
        step = self._stream._named(name, "window by", self._key)
        if self._allowed is None:
            steps = self._windows.steps(self._key, chosen, self._until or self._early)
            windows = self._stream._steps(steps, step, "slices")
        else:
            windows = self._corrected(chosen, step, *self._allowed)
        if self._windows.following is not None and self._fill is not NOT_FILLED:
            filling = Filling(self._windows.following, self._fill)
            windows = windows._step(Lowered(key_of_result, filling, None), f"{step}.filled")
        return windows._durable_if(durable)

    def _corrected(self, aggregate: Aggregate[T, Any], step: str, span: int, time: OwnTime, late: str) -> Stream[Any]:
        """The windows whose results are corrected; items of windows that are gone go to a sink."""
        allowed = Allowed(time, span, step if late else "")
        copies, one = self._windows.corrected(self._key, aggregate, self._early, allowed)
        items = f"{step}.items"
        stream = self._stream._step(copies, items)
        if late:
            stream = stream._without_errors(items, caller(), errors=False, late=late)
        return stream._step(one, step)

    def rows(
        self, /, *, name: str | None = None, durable: bool = False, **named: Aggregate[T, Any]
    ) -> Stream[dict[str, Any]]:
        """A flat dict for each window that has items: key, start, end, and the value of each aggregate under its name.

        Windows over all items have no key; with early results there is `early` too, with `allowed` `correction`.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> windows = graph.source("numbers").window(drift.windows.count(2))
        >>> windows.rows(n=drift.agg.count(), last=drift.agg.last()).sink("out")
        >>> [item.payload for item in drift.run(graph, {"numbers": [1, 2, 5, 3]})]
        [{'start': 0, 'end': 2, 'n': 2, 'last': 2}, {'start': 2, 'end': 4, 'n': 2, 'last': 3}]

        Args:
            durable: whether a run with state logs the output of the step, so that later steps resume from the log.
            named: aggregates, such as `rows(n=drift.agg.count(), last=drift.agg.last())`.

        Raises:
            GraphError: there is no aggregate, one with the name of another field or that gives each row a value of its
                own, or `fill` has other names.
        """
        row = (FlatRow if self._allowed is None else FlatCorrected)(self._key is not all_items, self._early is not None)
        if self._fill is not NOT_FILLED and (type(self._fill) is not dict or self._fill.keys() != named.keys()):
            raise GraphError(
                f"fill= takes a dict of the values that windows without items have, for rows with "
                f"{', '.join(named)}, not {self._fill!r:.80} (at {caller()})"
            )
        taken = [each for each in named if each in row.names]
        if taken or not named:
            raise GraphError(
                f"rows takes aggregates by names other than {', '.join(row.names)}, not {', '.join(taken) or 'none'} "
                f"(at {caller()})"
            )
        for argument, aggregate in named.items():
            check_aggregate(aggregate, f"rows: {argument}=", is_field=True)
        windows = self.aggregate(several(**named), name=name)
        draft = self._stream._graph._draft
        step = draft.name_of_unnamed("window rows") if name is None else draft.fresh_name(f"{name}.rows")
        made: Any = windows._part(step, "", row, "one")
        fields = self._stream._fields
        if fields is not None and self._fill is NOT_FILLED and self._early is None:
            known = {each: self._stream._bound(aggregate) for each, aggregate in named.items()}
            made._fields = fields_of_rows(fields, self._key, known, row.names)
        return made._durable_if(durable)  # type: ignore[no-any-return]

    def each(
        self, /, *, name: str | None = None, durable: bool = False, **named: Aggregate[T, Any]
    ) -> Stream[dict[str, Any]]:
        """Each row with further fields: aggregates of all rows of its window, or its place among them.

        As SQL's window functions over a partition by key and window: `drift.agg.rank`, `dense_rank`, `row_number` and
        `ntile` give each row its own value, other aggregates the same to all. Rows come when their window ends, in
        their order; the window holds them until then.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> windows = graph.source("rows").window(drift.windows.count(3))
        >>> windows.each(place=drift.agg.rank("n", descending=True), sum=drift.agg.sum("n")).sink("out")
        >>> [item.payload for item in drift.run(graph, {"rows": [{"n": 2}, {"n": 5}, {"n": 2}]})]
        [{'n': 2, 'sum': 9, 'place': 2}, {'n': 5, 'sum': 9, 'place': 1}, {'n': 2, 'sum': 9, 'place': 2}]

        Args:
            durable: whether a run with state logs the output of the step, so that later steps resume from the log.
            named: aggregates by the names of their fields; a field of that name is replaced.

        Raises:
            GraphError: there is no aggregate, or windows have early results or `until`, are filled or corrected.
        """
        has_more = self._early is not None or self._until is not None or self._fill is not NOT_FILLED
        if not named or has_more or self._allowed is not None:
            raise GraphError(
                f"each takes aggregates by name, such as each(place=drift.agg.rank(...)), of windows without "
                f"early=, until=, fill= and allowed= (at {caller()})"
            )
        for argument, aggregate in named.items():
            check_aggregate(aggregate, f"each: {argument}=")
        windows = self.aggregate(several(rows=agg.collect(), found=several(**named)), name=name)
        draft = self._stream._graph._draft
        step = draft.name_of_unnamed("each of window") if name is None else draft.fresh_name(f"{name}.each")
        places = tuple(each for each, of in named.items() if getattr(of, "of_each", False))
        made: Any = windows._part(step, "", EachRow(places), "many")
        fields = self._stream._fields
        if fields is not None:
            bound = {each: self._stream._bound(aggregate) for each, aggregate in named.items()}
            made._fields = fields_of_each(fields, bound, places)
        return made._durable_if(durable)  # type: ignore[no-any-return]

    def count(
        self, where: Callable[[T], object] | str | pl.Expr | None = None, *, name: str | None = None
    ) -> Stream[Window[K, int]]:
        """How many items each window has, or how many of them `where` is of: see `drift.agg.count`.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> windows = graph.source("numbers").window(drift.windows.count(2))
        >>> windows.count(where=lambda number: number > 2).map(lambda window: window.value).sink("out")
        >>> [item.payload for item in drift.run(graph, {"numbers": [1, 2, 5, 3]})]
        [0, 2]
        """
        return self.aggregate(agg.count() if where is None else agg.count(where), name=name)

    @overload
    def sum(self, *, nulls: Nulls = ..., name: str | None = ...) -> Stream[Window[K, T]]: ...
    @overload
    def sum(self, of: Callable[[T], V], *, nulls: Nulls = ..., name: str | None = ...) -> Stream[Window[K, V]]: ...
    @overload
    def sum(self, of: str | pl.Expr, *, nulls: Nulls = ..., name: str | None = ...) -> Stream[Window[K, Any]]: ...
    def sum(self, of: Any = itself, *, nulls: Nulls = "skip", name: str | None = None) -> Stream[Any]:
        """The sum of `of(payload)` in each window; `of` and `nulls` as of `drift.agg.sum`, here and in `mean` to `max`.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> windows = graph.source("numbers").window(drift.windows.count(2))
        >>> windows.sum().map(lambda window: window.value).sink("out")
        >>> [item.payload for item in drift.run(graph, {"numbers": [1, 2, 5, 3]})]
        [3, 8]
        """
        return self.aggregate(agg.sum(of, nulls), name=name)

    def mean(
        self, of: Callable[[T], Any] | str | pl.Expr = itself, *, nulls: Nulls = "skip", name: str | None = None
    ) -> Stream[Window[K, Any]]:
        """The mean of `of(payload)` in each window.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> windows = graph.source("numbers").window(drift.windows.count(2))
        >>> windows.mean().map(lambda window: window.value).sink("out")
        >>> [item.payload for item in drift.run(graph, {"numbers": [1, 2, 5, 3]})]
        [1.5, 4.0]
        """
        return self.aggregate(agg.mean(of, nulls), name=name)

    @overload
    def min(self, *, nulls: Nulls = ..., name: str | None = ...) -> Stream[Window[K, T]]: ...
    @overload
    def min(self, of: Callable[[T], V], *, nulls: Nulls = ..., name: str | None = ...) -> Stream[Window[K, V]]: ...
    @overload
    def min(self, of: str | pl.Expr, *, nulls: Nulls = ..., name: str | None = ...) -> Stream[Window[K, Any]]: ...
    def min(self, of: Any = itself, *, nulls: Nulls = "skip", name: str | None = None) -> Stream[Any]:
        """The least `of(payload)` in each window.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> windows = graph.source("numbers").window(drift.windows.count(2))
        >>> windows.min().map(lambda window: window.value).sink("out")
        >>> [item.payload for item in drift.run(graph, {"numbers": [1, 2, 5, 3]})]
        [1, 3]
        """
        return self.aggregate(agg.min(of, nulls), name=name)

    @overload
    def max(self, *, nulls: Nulls = ..., name: str | None = ...) -> Stream[Window[K, T]]: ...
    @overload
    def max(self, of: Callable[[T], V], *, nulls: Nulls = ..., name: str | None = ...) -> Stream[Window[K, V]]: ...
    @overload
    def max(self, of: str | pl.Expr, *, nulls: Nulls = ..., name: str | None = ...) -> Stream[Window[K, Any]]: ...
    def max(self, of: Any = itself, *, nulls: Nulls = "skip", name: str | None = None) -> Stream[Any]:
        """The greatest `of(payload)` in each window.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> windows = graph.source("numbers").window(drift.windows.count(2))
        >>> windows.max().map(lambda window: window.value).sink("out")
        >>> [item.payload for item in drift.run(graph, {"numbers": [1, 2, 5, 3]})]
        [2, 5]
        """
        return self.aggregate(agg.max(of, nulls), name=name)

    def reduce(self, function: Callable[[T, T], T], *, name: str | None = None) -> Stream[Window[K, T]]:
        """The payloads of each window, combined two by two; see `drift.agg.reduce`.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> windows = graph.source("numbers").window(drift.windows.count(2))
        >>> windows.reduce(lambda left, right: left * right).map(lambda window: window.value).sink("out")
        >>> [item.payload for item in drift.run(graph, {"numbers": [1, 2, 5, 3]})]
        [2, 15]
        """
        return self.aggregate(agg.reduce(function), name=name)

    def fold(self, initial: S, function: Callable[[S, T], S], *, name: str | None = None) -> Stream[Window[K, S]]:
        """The payloads of each window folded from `initial`; see `drift.agg.fold`.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> windows = graph.source("numbers").window(drift.windows.count(2))
        >>> windows.fold("", lambda text, number: text + str(number)).map(lambda window: window.value).sink("out")
        >>> [item.payload for item in drift.run(graph, {"numbers": [1, 2, 5, 3]})]
        ['12', '53']
        """
        return self.aggregate(agg.fold(initial, function), name=name)

    @overload
    def collect(self, *, name: str | None = ...) -> Stream[Window[K, tuple[T, ...]]]: ...
    @overload
    def collect(self, of: Callable[[T], V], *, name: str | None = ...) -> Stream[Window[K, tuple[V, ...]]]: ...
    @overload
    def collect(self, of: str | pl.Expr, *, name: str | None = ...) -> Stream[Window[K, tuple[Any, ...]]]: ...
    def collect(self, of: Any = itself, *, name: str | None = None) -> Stream[Any]:
        """The payloads of each window, or `of` them, as a tuple in order.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> windows = graph.source("numbers").window(drift.windows.count(2))
        >>> windows.collect().map(lambda window: window.value).sink("out")
        >>> [item.payload for item in drift.run(graph, {"numbers": [1, 2, 5, 3]})]
        [(1, 2), (5, 3)]
        """
        return self.aggregate(agg.collect(of), name=name)

    def __repr__(self) -> str:
        return f"<{self._stream!r} in windows {self._windows!r}>"

    if not TYPE_CHECKING:  # to which a name that is not there is an error in any case

        def __getattr__(self, name: str) -> Any:
            """Say that a method of streams comes behind an aggregate."""
            hint = elsewhere(name, WindowedStream)
            if hasattr(agg, name):
                hint = f" by itself: write window(...).aggregate(drift.agg.{name}(...))"
            elif "_stream" in self.__dict__ and hasattr(type(self._stream), name):
                hint = (
                    f" before an aggregate says what each of them gives: window(...).count().{name}(...), or "
                    f"window(...).rows(n=drift.agg.count()).{name}(...)"
                )
            raise AttributeError(f"windows have no {name!r}{hint}", name=name, obj=self)


def _own_time(stream: Stream[Any], time: Any) -> OwnTime:
    """What says the time of an item by which it belongs to a window: by default the policy of its source.

    Raises:
        GraphError: there is none.
    """
    where = caller()
    if time is None:
        givers = stream._graph._draft.givers_of(stream._origins) or []
        policies = [each.time if isinstance(each, Source) else None for each in givers]
        found = [policy for policy in policies if policy is not None and policy.reads_payloads]
        if not found or len(found) < len(policies) or len({*map(OwnTime.of, found)}) > 1:
            raise GraphError(
                f"window(..., allowed=...) (at {where}) needs to know the time of an item by which it belongs to a "
                f"window, and that is known right behind a source in event time only: say it, time='at'"
            )
        return OwnTime.of(found[0], tuple(each.name for each in givers))
    given = time if isinstance(time, EventTime) else EventTime(time)
    if unread := given.beyond("time", "zone", "ambiguous", "unit"):
        raise GraphError(
            f"window(..., time=EventTime(...)) (at {where}) reads the time of an item by time=, zone=, ambiguous= and "
            f"unit= alone, and got {', '.join(f'{each}=' for each in unread)}: what is late and how items are ordered "
            f"says the time policy of the source, and late= and allowed= of the window itself"
        )
    policy = policy_of_fields(given, stream._fields, "window(..., allowed=...)", where)
    assert policy.reads_payloads
    return OwnTime.of(policy)
