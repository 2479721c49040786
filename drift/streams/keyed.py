"""Streams with a key: their operators take no `key=`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, TypeGuard, TypeVar, get_args, overload

from drift.flow import aggregates as agg
from drift.flow.accumulators import Aggregate
from drift.flow.ends import at_end
from drift.flow.filling import NOT_FILLED
from drift.flow.joins import Direction
from drift.flow.running import Closed, FrameStep, OffsetRollingStep, RollingStep, running_fields, running_step
from drift.flow.windows import Early, Frame, Windows
from drift.operators import Process
from drift.streams.adding import elsewhere, parts_of, span_of
from drift.streams.columnar import Expression
from drift.streams.joining import Within
from drift.streams.windowed import WindowedStream
from drift_graph.called import called
from drift_graph.errors import GraphError
from drift_graph.functions import caller, name_of
from drift_graph.later import Later
from drift_graph.meta import phase_of_timers
from drift_graph.moments import Span
from drift_graph.policies import EventTime

if TYPE_CHECKING:
    import polars as pl

    from drift.streams.stream import Stream

T = TypeVar("T")
U = TypeVar("U")
S = TypeVar("S")
K = TypeVar("K")
V = TypeVar("V")


@called
class KeyedStream(Generic[K, T]):
    """A stream with a key for each item: its operators take no `key=`. `Stream.key_by` makes it.

    It is not a step of the graph: nothing is shuffled or stored until an operator needs the key.
    """

    def __init__(self, stream: Stream[T], key: Callable[[T], K]) -> None:
        self._stream = stream
        self._key = key

    def drop_key(self) -> Stream[T]:
        """The items, without keys.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> words = graph.source("words").key_by(len)
        >>> words.filter(str.islower).drop_key().map(str.upper).sink("loud")
        >>> [item.payload for item in drift.run(graph, {"words": ["to", "or", "not"]})]
        ['TO', 'OR', 'NOT']
        """
        return self._stream

    # fmt: off
    @overload
    def filter(
        self, predicate: Callable[[T], TypeGuard[U]], *, name: str | None = ..., with_time: Literal[False] = ...,
    ) -> KeyedStream[K, U]: ...
    @overload
    def filter(
        self, predicate: Callable[[T], object], *, name: str | None = ..., with_time: Literal[False] = ...,
    ) -> KeyedStream[K, T]: ...
    @overload
    def filter(
        self, predicate: Callable[[T, int], object], *, name: str | None = ..., with_time: Literal[True],
    ) -> KeyedStream[K, T]: ...
    @overload
    def filter(
        self, predicate: Callable[[T], object] | Expression, *more: Callable[[T], object] | Expression,
        name: str | None = ...,
    ) -> KeyedStream[K, T]: ...
    # fmt: on
    def filter(
        self, predicate: Any, *more: Any, name: str | None = None, with_time: bool = False
    ) -> KeyedStream[K, Any]:
        """As `Stream.filter`; items keep their keys.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> words = graph.source("words").key_by(len)
        >>> words.filter(lambda word: word != "or").count().sink("counts")
        >>> [item.payload for item in drift.run(graph, {"words": ["to", "or", "not"]})]
        [(2, 1), (3, 1)]
        """
        stream: Any = self._stream
        return KeyedStream(stream.filter(predicate, *more, name=name, with_time=with_time), self._key)

    def group(self, window: int, *, name: str | None = None, durable: bool = False) -> Stream[tuple[T, ...]]:
        """As `Stream.group`: each item becomes the tuple of the last `window` payloads with its key.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> words = graph.source("words").key_by(len)
        >>> words.group(2).sink("pairs")
        >>> [item.payload for item in drift.run(graph, {"words": ["to", "or", "not"]})]
        [('to',), ('to', 'or'), ('not',)]
        """
        return self._stream.group(self._key, window, name=name, durable=durable)

    def scan(
        self, initial: S, step: Callable[[S, T], tuple[S, U]], *, name: str | None = None, durable: bool = False
    ) -> Stream[U]:
        """As `Stream.scan`: a running state for each key; `step` is (state, payload) -> (next state, output).

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> words = graph.source("words").key_by(len)
        >>> words.scan("", lambda text, word: (text + word, text + word)).sink("joined")
        >>> [item.payload for item in drift.run(graph, {"words": ["to", "or", "not"]})]
        ['to', 'toor', 'not']
        """
        return self._stream.scan(self._key, initial, step, name=name, durable=durable)

    def process(
        self,
        initial: S,
        on_item: Callable[[S, T, int], tuple[S, Sequence[U | Later[Any]]]],
        on_time: Callable[[S, Any, int], tuple[S, Sequence[U | Later[Any]]]],
        *,
        name: str | None = None,
        durable: bool = False,
    ) -> Stream[U]:
        """As `Stream.process`: a state for each key, with timers.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> words = graph.source("words").key_by(len)
        >>> def seen(count, word, time):
        ...     return count + 1, [drift.at(drift.END, len(word))] if count == 0 else []
        >>> words.process(0, seen, lambda count, length, time: (0, [(length, count)])).sink("counts")
        >>> [item.payload for item in drift.run(graph, {"words": ["to", "or", "not"]})]
        [(2, 2), (3, 1)]
        """
        return self._stream.process(self._key, initial, on_item, on_time, name=name, durable=durable)

    def count(self, *other: Never, name: str | None = None, durable: bool = False) -> Stream[tuple[K, int]]:
        """For each item (its key, how many items of that key so far, itself included).

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> words = graph.source("words").key_by(len)
        >>> words.count().sink("counts")
        >>> [item.payload for item in drift.run(graph, {"words": ["to", "or", "not"]})]
        [(2, 1), (2, 2), (3, 1)]

        Raises:
            GraphError: something else is passed.
        """
        if other:
            raise GraphError(
                f"count of a keyed stream (at {caller()}) counts items and takes nothing else; the values of a field "
                f"so far are running(n=drift.agg.count({other[0]!r:.80}))"
            )
        return self._stream.count(self._key, name=name, durable=durable)

    def reduce(
        self, function: Callable[[T, T], T], *, name: str | None = None, durable: bool = False
    ) -> Stream[tuple[K, T]]:
        """For each item (its key, the key's payloads so far folded by `function`).

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> words = graph.source("words").key_by(len)
        >>> words.reduce(min).sink("first in the alphabet")
        >>> [item.payload for item in drift.run(graph, {"words": ["to", "or", "not"]})]
        [(2, 'to'), (2, 'or'), (3, 'not')]
        """
        return self._stream.reduce(self._key, function, name=name, durable=durable)

    def running(
        self, *, name: str | None = None, durable: bool = False, **named: Aggregate[T, Any]
    ) -> Stream[dict[str, Any]]:
        """Each row with further fields: aggregates of the rows of its key up to itself, as SQL's window functions.

        Rows in columns stay columns, if the key is given by names of fields and the aggregates are counts, or sums,
        means, least or greatest values of fields.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> trips = graph.source("trips").key_by("zone")
        >>> trips.running(total=drift.agg.sum("fare"), n=drift.agg.count()).sink("out")
        >>> rows = [{"zone": "JFK", "fare": 5}, {"zone": "LGA", "fare": 2}, {"zone": "JFK", "fare": 4}]
        >>> [item.payload["total"] for item in drift.run(graph, {"trips": rows})]
        [5, 2, 9]

        Args:
            named: aggregates by the names of their fields; a field of that name is replaced.

        Raises:
            GraphError: no aggregate is given, or the rows are known not to have a field.
        """
        stream: Any = self._stream
        step = running_step({each: stream._bound(aggregate) for each, aggregate in named.items()})
        fields = running_fields(stream._fields, step) if stream._fields is not None else None
        made = stream._scan(self._key, step.initial, step, stream._named(name, "running by", self._key), self._key)
        made._fields = fields
        return made._durable_if(durable)  # type: ignore[no-any-return]

    def rolling(
        self,
        span: Span | Frame,
        *,
        closed: Closed = "right",
        offset: Span = 0,
        name: str | None = None,
        durable: bool = False,
        **named: Aggregate[T, Any],
    ) -> Stream[dict[str, Any]]:
        """Each row with further fields: aggregates of the rows of its key in the span before it, (t - span, t].

        As `rolling` of Polars and pandas, and `RANGE` frames of SQL: rows of the same time are in it, those behind it
        in the order too, so a row comes after all rows of its time. An aggregate of no rows is None, a count 0. The
        last `span` of rows is stored, and for each time of a key its aggregates are computed anew. With `offset` it is
        (t + offset - span, t + offset]: `offset=span` is the span behind a row, which comes at its end.

        With `drift.windows.rows(preceding, following)` in place of a span: of so many rows before and behind it, as
        SQL's `ROWS` frames. A row comes with the last that it waits for, or at the end of all input.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> trips = graph.source("trips", time=drift.EventTime("at")).key_by("zone")
        >>> trips.rolling(10, total=drift.agg.sum("fare")).sink("out")
        >>> rows = [{"zone": "JFK", "at": at, "fare": fare} for at, fare in ((1, 5), (8, 2), (11, 4))]
        >>> [item.payload["total"] for item in drift.run(graph, {"trips": rows})]
        [5, 7, 6]
        >>> graph = drift.Graph("behind")
        >>> trips = graph.source("trips", time=drift.EventTime("at")).key_by("zone")
        >>> trips.rolling(10, offset=10, more=drift.agg.count()).sink("out")
        >>> [item.payload["more"] for item in drift.run(graph, {"trips": rows})]
        [2, 1, 0]

        Args:
            span: in the unit of the items' time, 1 or more; if that is milliseconds, also a timedelta or "10m"; or a
                number of rows, `drift.windows.rows(...)`.
            closed: which of its two ends belong to a span of time: "right", "left", "both" or "none".
            offset: moves spans of time; also below 0.
            named: aggregates by the names of their fields; a field of that name is replaced.

        Raises:
            GraphError: `span`, `closed` or `offset` is none of these, no aggregate is given, or the rows are known not
                to have a field.
        """
        stream, where = self._stream, caller()
        is_frame = isinstance(span, Frame)
        length = 1 if isinstance(span, Frame) else span_of("rolling: span", span, where)
        further = span_of("rolling: offset", offset, where, least=None)
        if is_frame and (closed != "right" or further):
            raise GraphError(
                f"rolling over a number of rows has no closed= and no offset=, and got {closed!r:.80} and "
                f"{offset!r:.80}: these are of a span of time (at {where})"
            )
        if closed not in get_args(Closed) or not length:
            raise GraphError(
                f"rolling takes a span of 1 or more and closed= one of {', '.join(get_args(Closed))}, not {span!r:.80} "
                f"and {closed!r:.80} (at {where})"
            )
        of = running_step({each: stream._bound(aggregate) for each, aggregate in named.items()}, "rolling")
        step: RollingStep | FrameStep
        if isinstance(span, Frame):
            step = FrameStep(of, span.preceding, span.following)
        else:
            sides = length, closed in ("left", "both"), closed in ("right", "both")
            step = OffsetRollingStep(of, *sides, further) if further else RollingStep(of, *sides)
        process = Process(self._key, (), step, step.on_time, phase_of_timers(stream._timed_steps))
        made = stream._process(process, stream._named(name, "rolling by", self._key))
        made._fields = running_fields(stream._fields, of) if stream._fields is not None else None
        return made._durable_if(durable)

    def window(
        self,
        windows: Windows,
        *,
        early: Early | None = None,
        until: Callable[[Any], object] | None = None,
        fill: Any = NOT_FILLED,
        allowed: Span | None = None,
        time: Callable[[T], Any] | str | pl.Expr | EventTime | None = None,
        late: str = "",
        **others: Never,
    ) -> WindowedStream[K, T]:
        """Windows of each key; see `Stream.window`.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> words = graph.source("words").key_by(len)
        >>> words.window(drift.windows.count(2)).count().sink("twos")
        >>> [item.payload for item in drift.run(graph, {"words": ["to", "or", "not"]})]
        [Window(key=2, start=0, end=2, value=2, early=False)]
        """
        return WindowedStream(self._stream, self._key, windows, early, until, fill, allowed, time, late, others)

    def at_end(
        self, aggregate: Aggregate[T, V], *, parts: Span | None = None, name: str | None = None, durable: bool = False
    ) -> Stream[tuple[K, V]]:
        """(key, value) of all items of each key, when the input has ended.

        They are in the order of each key's first input item.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> words = graph.source("words").key_by(len)
        >>> words.at_end(drift.agg.count()).sink("counts")
        >>> [item.payload for item in drift.run(graph, {"words": ["to", "or", "not"]})]
        [(2, 2), (3, 1)]

        Args:
            aggregate: one of `drift.agg`, such as `drift.agg.count()`.
            parts: aggregate in two steps, see `Stream.at_end`: for few keys with many items each.
        """
        aggregate = self._stream._bound(aggregate)
        steps = at_end(self._key, aggregate, keyed=True, parts=parts_of(aggregate, parts))
        return self._stream._steps(steps, self._stream._named(name, "at end by", self._key), "parts")._durable_if(
            durable
        )

    # fmt: off
    @overload
    def join(
        self, other: KeyedStream[K, U], *, within: Within = None, how: Literal["inner"] = "inner",
        nulls_equal: bool = False, name: str | None = None,
    ) -> Stream[tuple[T, U]]: ...
    @overload
    def join(
        self, other: KeyedStream[K, U], *, within: Within = None, how: Literal["left"],
        nulls_equal: bool = False, name: str | None = None,
    ) -> Stream[tuple[T, U | None]]: ...
    @overload
    def join(
        self, other: KeyedStream[K, U], *, within: Within = None, how: Literal["right"],
        nulls_equal: bool = False, name: str | None = None,
    ) -> Stream[tuple[T | None, U]]: ...
    @overload
    def join(
        self, other: KeyedStream[K, U], *, within: Within = None, how: Literal["full"],
        nulls_equal: bool = False, name: str | None = None,
    ) -> Stream[tuple[T | None, U | None]]: ...
    @overload
    def join(
        self, other: KeyedStream[K, U], *, within: Within = None, how: Literal["semi", "anti"],
        nulls_equal: bool = False, name: str | None = None,
    ) -> Stream[T]: ...
    @overload
    def join(
        self, other: KeyedStream[K, U], *, within: Within = None,
        how: Literal["inner", "left", "right", "full"] = "inner", flat: Literal[True],
        nulls_equal: bool = False, name: str | None = None,
    ) -> Stream[dict[str, Any]]: ...
    def join(
        self, other: KeyedStream[K, Any], *, within: Within = None, how: Any = "inner", flat: Any = False,
        nulls_equal: bool = False, name: str | None = None,
    ) -> Stream[Any]:
        """As `Stream.join`, by the keys of both.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> left, right = graph.source("left").key_by(str.lower), graph.source("right").key_by(str.lower)
        >>> left.join(right, how="left").sink("pairs")
        >>> [item.payload for item in drift.run(graph, {"left": ["A", "B"], "right": ["a"]})]
        [('A', 'a'), ('B', None)]
        """
        right, right_key = _keyed_other("join", other)
        return self._stream.join(
            right, self._key, right_key, within=within, how=how, flat=flat, nulls_equal=nulls_equal, name=name
        )

    @overload
    def join_as_of(
        self, other: KeyedStream[K, U], *, within: Span | None = None, direction: Direction = "backward",
        allow_exact: bool = True, how: Literal["left"] = "left",
        nulls_equal: bool = False, name: str | None = None,
    ) -> Stream[tuple[T, U | None]]: ...
    @overload
    def join_as_of(
        self, other: KeyedStream[K, U], *, within: Span | None = None, direction: Direction = "backward",
        allow_exact: bool = True, how: Literal["inner"],
        nulls_equal: bool = False, name: str | None = None,
    ) -> Stream[tuple[T, U]]: ...
    @overload
    def join_as_of(
        self, other: KeyedStream[K, U], *, within: Span | None = None, direction: Direction = "backward",
        allow_exact: bool = True, how: Literal["right"],
        nulls_equal: bool = False, name: str | None = None,
    ) -> Stream[tuple[T | None, U]]: ...
    @overload
    def join_as_of(
        self, other: KeyedStream[K, U], *, within: Span | None = None, direction: Direction = "backward",
        allow_exact: bool = True, how: Literal["full"],
        nulls_equal: bool = False, name: str | None = None,
    ) -> Stream[tuple[T | None, U | None]]: ...
    @overload
    def join_as_of(
        self, other: KeyedStream[K, U], *, within: Span | None = None, direction: Direction = "backward",
        allow_exact: bool = True, how: Literal["left", "inner", "right", "full"] = "left", flat: Literal[True],
        nulls_equal: bool = False, name: str | None = None,
    ) -> Stream[dict[str, Any]]: ...
    def join_as_of(
        self, other: KeyedStream[K, Any], *, within: Span | None = None, direction: Direction = "backward",
        allow_exact: bool = True, how: Any = "left", flat: Any = False,
        nulls_equal: bool = False, name: str | None = None,
    ) -> Stream[Any]:
        """As `Stream.join_as_of`, by the keys of both.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> left, right = graph.source("left").key_by(str.lower), graph.source("right").key_by(str.lower)
        >>> left.join_as_of(right).sink("pairs")
        >>> [item.payload for item in drift.run(graph, {"left": ["A", "B"], "right": ["a"]})]
        [('A', 'a'), ('B', None)]
        """
        right, right_key = _keyed_other("join_as_of", other)
        return self._stream.join_as_of(
            right, self._key, right_key, within=within, direction=direction, allow_exact=allow_exact, how=how,
            flat=flat, nulls_equal=nulls_equal, name=name,
        )

    # fmt: on
    def limit(self, count: int, offset: int = 0, *, name: str | None = None) -> Stream[T]:
        """As `Stream.limit`, of each key.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> words = graph.source("words").key_by(len)
        >>> words.limit(1).sink("firsts")
        >>> [item.payload for item in drift.run(graph, {"words": ["to", "or", "not"]})]
        ['to', 'not']
        """
        return self._stream.limit(count, offset, key=self._key, name=name)

    def dedup(self, *, within: Span | None = None, name: str | None = None) -> Stream[T]:
        """As `Stream.dedup`: the first item of each key.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> words = graph.source("words").key_by(len)
        >>> words.dedup().sink("firsts")
        >>> [item.payload for item in drift.run(graph, {"words": ["to", "or", "not"]})]
        ['to', 'not']
        """
        return self._stream.dedup(self._key, within=within, name=name)

    if not TYPE_CHECKING:  # to which a name that is not there is an error in any case

        def __getattr__(self, name: str) -> Any:
            """Say where a method is that streams have without keys, or in windows."""
            hint = ""
            if "_stream" in self.__dict__ and not name.startswith("_"):
                hint = elsewhere(name, KeyedStream) or elsewhere(name, type(self._stream))
                if hasattr(WindowedStream, name):
                    hint = f", which is for windows: key_by(...).window(...).{name}(...)"
                    if hasattr(agg, name):
                        of = f"drift.agg.{name}(...)"
                        hint += f"; of all items of a key it is at_end({of}), and of those so far running(value={of})"
                elif hasattr(type(self._stream), name):
                    hint = f"; write key_by(...).drop_key().{name}(...)"
                    if name not in ("sink", "feed"):
                        hint += f", or, where keys come from its results, stream.{name}(...).key_by(...)"
            raise AttributeError(f"a keyed stream has no {name!r}{hint}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<{self._stream!r} by {name_of(self._key)}>"


def _keyed_other(kind: str, other: object) -> tuple[Stream[Any], Callable[[Any], Any]]:
    if not isinstance(other, KeyedStream):
        raise GraphError(
            f"{kind} of a keyed stream takes another keyed stream, not {other!r:.80} (at {caller()}); give that its "
            f"keys too: {kind}(other.key_by(function))"
        )
    return other._stream, other._key
