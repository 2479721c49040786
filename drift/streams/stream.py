"""A stream: the core's operations and the simplest steps; each family of the catalogue is a base class.

Invariant: a stream is the names of the operators that output its items, and never changes; every method returns another
one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Never, TypeGuard, TypeVar, overload

from drift.diverting import OnError, TriedStep, diverts
from drift.flow.accumulators import Aggregate
from drift.flow.choosing import all_items
from drift.flow.ends import at_end
from drift.flow.fields import key_of
from drift.flow.filling import NOT_FILLED
from drift.flow.logic import Logic, is_timed, process_of
from drift.flow.windows import Early, Windows
from drift.operators import CountStep, Process, ReduceStep
from drift.streams.adding import check_name, elsewhere, parts_of
from drift.streams.calling import Calling
from drift.streams.choosing import Choosing
from drift.streams.columnar import Columnar, Expression
from drift.streams.iterating import Iterating
from drift.streams.joining import Joining
from drift.streams.keyed import KeyedStream
from drift.streams.windowed import WindowedStream
from drift_graph.called import called
from drift_graph.errors import GraphError
from drift_graph.functions import caller
from drift_graph.later import Later
from drift_graph.meta import phase_of_timers
from drift_graph.moments import Span
from drift_graph.operators import Group, Sink
from drift_graph.policies import EventTime

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")
U = TypeVar("U")
S = TypeVar("S")
K = TypeVar("K")
V = TypeVar("V")


@called
class Stream(Calling[T], Choosing[T], Joining[T], Columnar[T], Iterating[T]):
    """Items of one or more steps of a graph. Every method adds a step and returns its stream."""

    # The core.

    @overload
    def flat_map(
        self,
        function: Callable[[T], Iterable[U | Later[U]]],
        *,
        name: str | None = ...,
        with_time: Literal[False] = ...,
        later: bool = ...,
        on_error: OnError = ...,
        durable: bool = ...,
    ) -> Stream[U]: ...

    @overload
    def flat_map(
        self,
        function: Callable[[T, int], Iterable[U | Later[U]]],
        *,
        name: str | None = ...,
        with_time: Literal[True],
        later: bool = ...,
        on_error: OnError = ...,
        durable: bool = ...,
    ) -> Stream[U]: ...

    def flat_map(
        self,
        function: Callable[..., Iterable[U | Later[U]]],
        *,
        name: str | None = None,
        with_time: bool = False,
        later: bool = False,
        on_error: OnError = "error",
        durable: bool = False,
    ) -> Stream[U]:
        """The core map: each payload becomes any number of payloads, in the order in which `function` returns them.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> graph.source("lines").flat_map(str.split).sink("words")
        >>> [item.payload for item in drift.run(graph, {"lines": ["to be", "or"]})]
        ['to', 'be', 'or']

        Args:
            function: pure; returns a list, a tuple or another iterable, but no text, dict or set.
            with_time: whether `function` takes the item's time as well: `function(payload, time)`.
            later: whether it may return `drift.at(time, payload)` in place of a payload, for a child at a later time.
            on_error: "error" ends the run if the function raises; "divert" sends the payload to the sink "errors" in
                place of its results: {"location": step, "error": the exception, "payload": the payload}.
            durable: whether a run with state logs the output of the step: after a crash, or with changed code behind
                it, the steps behind it resume from the log, and nothing before it is computed again. The output is the
                same. Not for a step on a loop.
        """
        return self._map(function, "many", name, "flat_map", with_time, later, on_error)._durable_if(durable)

    def group(
        self, key: Callable[[T], Any] | str, window: int, *, name: str | None = None, durable: bool = False
    ) -> Stream[tuple[T, ...]]:
        """The core grouping: each item becomes the tuple of the last `window` payloads with its key, which ends with
        its own.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> graph.source("words").group(len, 2).sink("pairs")
        >>> [item.payload for item in drift.run(graph, {"words": ["to", "or", "not", "be"]})]
        [('to',), ('to', 'or'), ('not',), ('or', 'be')]

        Args:
            key: pure; anything with canonical bytes. 1, 1.0 and True are three keys. Here, as for every key, the name
                of a field stands for the function that reads it.
            window: in items, 1 or more; the first items of a key give shorter tuples.
            durable: whether a run with state logs the output of the step, so that later steps resume from the log.
        """
        where, key = caller(), self._reading("group", key)
        group = Group(self._name(name, "group", key), "", where, key, window)
        return self._add(group)._durable_if(durable)

    @overload
    def key_by(self, key: Callable[[T], K], /) -> KeyedStream[K, T]: ...
    @overload
    def key_by(self, key: str | pl.Expr, /, *more: str | pl.Expr) -> KeyedStream[Any, T]: ...
    def key_by(self, key: Callable[[T], Any] | str | pl.Expr, /, *more: str | pl.Expr) -> KeyedStream[Any, T]:
        """The same items with a key each: the operators that follow take no `key=`.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> graph.source("words").key_by(len).count().sink("counts")
        >>> [item.payload for item in drift.run(graph, {"words": ["to", "or", "not"]})]
        [(2, 1), (2, 2), (3, 1)]

        Args:
            key: pure; anything with canonical bytes. 1, 1.0 and True are three keys. Or the name of a field. Or an
                expression of Polars, which becomes a further field of the rows, under the name that it has.
            more: further fields: then the key is the tuple of all.

        Raises:
            GraphError: one is none of these, or an expression has the name of a field.
        """
        stream, names = self._with_keys((key, *more))
        return KeyedStream(stream, stream._reading("key_by", key_of(*names)))

    def merge(self, *others: Stream[T]) -> Stream[T]:
        """The union of several streams, in the order of the items' metas: by time first.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> left, right = graph.source("left"), graph.source("right")
        >>> left.merge(right).sink("both")
        >>> [item.payload for item in drift.run(graph, {"left": ["a", "c"], "right": ["b"]})]
        ['a', 'b', 'c']
        """
        for other in others:
            self._check_graph(other)
        depth = max(stream._depth for stream in (self, *others))
        for stream in (self, *others):
            stream._check_depth(depth)
        timed_steps = max(stream._timed_steps for stream in (self, *others) if stream._depth == depth)
        origins = sum((other._origins for other in others), self._origins)
        merged: Stream[T] = Stream(self._graph, origins, timed_steps, depth)
        same = all(other._fields == self._fields for other in others)
        return self._with_these_fields(merged) if same else merged

    def feed(self, loop: Feedback[T]) -> None:
        """Close a feedback edge: the items of this stream return as those of `loop`.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> halves = graph.feedback("halves")
        >>> numbers = graph.source("numbers").merge(halves).group(lambda number: None, 1).flatten()
        >>> numbers.flat_map(lambda number: [number // 2] if number > 1 else []).feed(halves)
        >>> numbers.sink("all")
        >>> [item.payload for item in drift.run(graph, {"numbers": [5, 3]})]
        [1, 2, 5, 1, 3]

        Raises:
            GraphError: `loop` is no feedback edge of this graph, or is closed already.
        """
        self._check_graph(loop)
        if not isinstance(loop, Feedback):
            raise GraphError(f"feed takes what graph.feedback(...) returned, not {loop!r} (at {caller()})")
        self._graph._draft.close_loop(loop._origins[0], self._origins)

    def sink(self, name: str) -> None:
        """Release the items of this stream through the output barrier, under this name.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> graph.source("words").sink("all words")
        >>> [item.payload for item in drift.run(graph, {"words": ["to", "be"]})]
        ['to', 'be']
        """
        where = caller()
        check_name("sink", name, where)
        self._graph._draft.add(Sink(name, name, where), self._origins)

    # Simple steps.

    @overload
    def map(
        self,
        function: Callable[[T], U | Later[U]],
        *,
        name: str | None = ...,
        with_time: Literal[False] = ...,
        later: bool = ...,
        on_error: OnError = ...,
        durable: bool = ...,
    ) -> Stream[U]: ...

    @overload
    def map(
        self,
        function: Callable[[T, int], U | Later[U]],
        *,
        name: str | None = ...,
        with_time: Literal[True],
        later: bool = ...,
        on_error: OnError = ...,
        durable: bool = ...,
    ) -> Stream[U]: ...

    def map(
        self,
        function: Callable[..., U | Later[U]],
        *,
        name: str | None = None,
        with_time: bool = False,
        later: bool = False,
        on_error: OnError = "error",
        durable: bool = False,
    ) -> Stream[U]:
        """Each payload becomes one: a core map with one child.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> graph.source("words").map(str.upper).sink("loud")
        >>> [item.payload for item in drift.run(graph, {"words": ["to", "be"]})]
        ['TO', 'BE']

        Args:
            function: pure; a payload to a payload. With `later`, the result may be a later child: `drift.at(time,
                payload)` or `drift.next_round(payload)`.
            name: of the step, in pictures and messages; by default that of the function.
            with_time: the function is called with the item's time as well.
            later: declares that there are later children.
            on_error: "error" ends the run if the function raises; "divert" sends the payload to the sink "errors".
            durable: whether a run with state logs the output of the step, so that later steps resume from the log.
        """
        return self._map(function, "one", name, "map", with_time, later, on_error)._durable_if(durable)

    @overload
    def filter(
        self,
        predicate: Callable[[T], TypeGuard[U]],
        *,
        name: str | None = ...,
        with_time: Literal[False] = ...,
        on_error: OnError = ...,
        durable: bool = ...,
    ) -> Stream[U]: ...

    @overload
    def filter(
        self,
        predicate: Callable[[T], object],
        *,
        name: str | None = ...,
        with_time: Literal[False] = ...,
        on_error: OnError = ...,
        durable: bool = ...,
    ) -> Stream[T]: ...

    @overload
    def filter(
        self,
        predicate: Callable[[T, int], object],
        *,
        name: str | None = ...,
        with_time: Literal[True],
        on_error: OnError = ...,
        durable: bool = ...,
    ) -> Stream[T]: ...

    @overload
    def filter(
        self,
        predicate: Callable[[T], object] | Expression,
        *more: Callable[[T], object] | Expression,
        name: str | None = ...,
        on_error: OnError = ...,
        durable: bool = ...,
    ) -> Stream[T]: ...

    def filter(
        self,
        predicate: Any,
        *more: Any,
        name: str | None = None,
        with_time: bool = False,
        on_error: OnError = "error",
        durable: bool = False,
    ) -> Stream[Any]:
        """Payloads for which `predicate` is true, or all of several are: a core map with one child or none for each.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> graph.source("numbers").filter(lambda number: number > 2).sink("large")
        >>> [item.payload for item in drift.run(graph, {"numbers": [1, 5, 3]})]
        [5, 3]

        Args:
            predicate: pure; from a payload whether it stays. Or an expression of Polars, or an SQL text of one.
            more: further ones. Each is a step of its own, which gets what the ones before it let pass.
            name: of the (last) step, in pictures and messages; by default that of the predicate.
            with_time: the predicate is called with the item's time as well.
            on_error: "error" ends the run if the predicate raises; "divert" sends the payload to the sink "errors".
            durable: whether a run with state logs the output of the step, so that later steps resume from the log.

        Raises:
            GraphError: it cannot be called, is an expression that is not row by row, or one with `with_time`.
        """
        if more:
            stream: Any = self
            *others, last = predicate, *more
            for other in others:
                stream = stream.filter(other, with_time=with_time, on_error=on_error)
            stream = stream.filter(last, name=name, with_time=with_time, on_error=on_error, durable=durable)
            return stream  # type: ignore[no-any-return]
        if isinstance(predicate, str) or type(predicate).__module__.startswith("polars."):
            if with_time:
                raise GraphError(f"a filter by an expression (at {caller()}) does not take with_time")
            return self._kept(predicate, name, on_error)._durable_if(durable)
        stream = self._map(predicate, "keep", name, "filter", with_time, on_error=on_error)
        return self._with_these_fields(stream)._durable_if(durable)

    def scan(
        self,
        key: Callable[[T], Any] | str,
        initial: S,
        step: Callable[[S, T], tuple[S, U]],
        *,
        name: str | None = None,
        on_error: OnError = "error",
        durable: bool = False,
    ) -> Stream[U]:
        """A running state for each key: a core cycle of a grouping of window 2 over states and items, and two maps.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> def balanced(balance, amount):
        ...     return balance + amount, balance + amount
        >>> graph.source("amounts").scan(lambda amount: None, 0, balanced).sink("balances")
        >>> [item.payload for item in drift.run(graph, {"amounts": [5, -2, 4]})]
        [5, 3, 7]

        Args:
            key: pure; see `group`.
            initial: the state before a key's first item. It must not be changed in place.
            step: pure; (state, payload) -> (next state, output). It returns a new state and does not change the old
                one.
            on_error: if the step raises; see `flat_map`. A diverted payload does not change the state.
        """
        named, where, key = self._name(name, "scan", step), caller(), self._reading("scan", key)
        if not diverts(on_error, f"scan {named!r}", where):
            return self._scan(key, initial, step, named, step)._durable_if(durable)
        tried = self._scan(key, initial, TriedStep(named, step), named, step)
        return tried._without_errors(named, where)._durable_if(durable)

    def process(
        self,
        key: Callable[[T], Any] | str,
        initial: S,
        on_item: Callable[[S, T, int], tuple[S, Sequence[U | Later[Any]]]],
        on_time: Callable[[S, Any, int], tuple[S, Sequence[U | Later[Any]]]],
        *,
        name: str | None = None,
        durable: bool = False,
    ) -> Stream[U]:
        """A state for each key, with timers: what Flink calls a keyed process function.

        A core cycle of a grouping of window 2 over states, items and notes, and three maps, run as one loop. A state
        that equals `initial` is dropped, so memory follows the live keys.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> def seen(count, word, time):
        ...     return count + 1, [drift.at(time + 2, word)] if count == 0 else []
        >>> def counted(count, word, time):
        ...     return 0, [(word, count)]
        >>> graph.source("words").process(str.lower, 0, seen, counted).sink("in three")
        >>> [item.payload for item in drift.run(graph, {"words": ["to", "be", "To", "to"]})]
        [('to', 2), ('be', 1), ('to', 1)]

        Args:
            key: pure; see `group`.
            initial: the state of a key that has none. It must not be changed in place.
            on_item: pure; (state, payload, time of the item) -> (next state, outputs). Outputs is a list or a tuple;
                `drift.at(time, note)` in it sets a timer: the key's `on_time` is called with the note after all items
                up to that time.
            on_time: pure; (state, note, time) -> (next state, outputs), which may set timers.
        """
        process = Process(self._reading("process", key), initial, on_item, on_time, phase_of_timers(self._timed_steps))
        return self._process(process, self._name(name, "process", on_item))._durable_if(durable)

    def step(self, logic: Logic[T, S, U], *, name: str | None = None, durable: bool = False) -> Stream[U]:
        """An operator of your own, which takes rows in batches: see `drift.Logic`.

        >>> import drift
        >>> class Every(drift.Logic[str, int, str]):
        ...     initial = 0
        ...     def __init__(self, n):
        ...         self.n = n
        ...     def key(self, payload):
        ...         return len(payload)
        ...     def on_batch(self, states, rows, out):
        ...         for key, payload, time in rows:
        ...             states[key] = count = (states[key] + 1) % self.n
        ...             out([] if count else [payload])
        >>> graph = drift.Graph("example")
        >>> graph.source("words").step(Every(2)).sink("seconds")
        >>> [item.payload for item in drift.run(graph, {"words": ["to", "or", "not", "be", "is"]})]
        ['or', 'is']

        Args:
            logic: an object of a class that extends `drift.Logic`.
            name: of the step; by default the logic's label, or its class.

        Raises:
            GraphError: it is not, or has no initial state.
        """
        where = caller()
        if not isinstance(logic, Logic) or not hasattr(logic, "initial"):
            raise GraphError(
                f"step takes an object of a class that extends drift.Logic, with `initial`, not {logic!r:.80} (at "
                f"{where})"
            )
        if name is None:
            name = self._graph._draft.name_of_unnamed(logic.label or type(logic).__name__)
        check_name("step", name, where)
        process = process_of(logic, phase_of_timers(self._timed_steps))
        return self._process(process, name, is_timed=is_timed(logic))._durable_if(durable)

    @overload
    def count(
        self, key: Callable[[T], K], *, name: str | None = None, durable: bool = False
    ) -> Stream[tuple[K, int]]: ...
    @overload
    def count(self, key: str, *, name: str | None = None, durable: bool = False) -> Stream[tuple[Any, int]]: ...
    def count(
        self, key: Callable[[T], Any] | str | None = None, *, name: str | None = None, durable: bool = False
    ) -> Stream[tuple[Any, int]]:
        """For each item (its key, how many items of that key so far, itself included): a scan.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> graph.source("words").count(len).sink("counts")
        >>> [item.payload for item in drift.run(graph, {"words": ["to", "or", "not"]})]
        [(2, 1), (2, 2), (3, 1)]

        Raises:
            GraphError: there is no key, or the rows do not have its field.
        """
        if key is None:
            raise GraphError(
                f"count (at {caller()}) counts the items of each key so far, and takes the key: count('zone'), or "
                f"key_by('zone').count(); all items together at the end are at_end(drift.agg.count()), or so far, in "
                f"each item, count(lambda item: None)"
            )
        key = self._reading("count", key)
        return self._scan(key, 0, CountStep(key), self._name(name, "count", key), key)._durable_if(durable)

    @overload
    def reduce(
        self, key: Callable[[T], K], function: Callable[[T, T], T], *, name: str | None = None, durable: bool = False
    ) -> Stream[tuple[K, T]]: ...
    @overload
    def reduce(
        self, key: str, function: Callable[[T, T], T], *, name: str | None = None, durable: bool = False
    ) -> Stream[tuple[Any, T]]: ...
    def reduce(
        self,
        key: Callable[[T], Any] | str,
        function: Callable[[T, T], T],
        *,
        name: str | None = None,
        durable: bool = False,
    ) -> Stream[tuple[Any, T]]:
        """For each item (its key, the key's payloads so far folded by `function`): a scan.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> graph.source("words").reduce(len, max).sink("last in the alphabet")
        >>> [item.payload for item in drift.run(graph, {"words": ["to", "or", "not"]})]
        [(2, 'to'), (2, 'to'), (3, 'not')]
        """
        named, key = self._name(name, "reduce", function), self._reading("reduce", key)
        return self._scan(key, (), ReduceStep(key, function), named, function)._durable_if(durable)

    # Windows, and aggregates at the end.

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
    ) -> WindowedStream[None, T]:
        """Windows over all items; `key_by(f).window(...)` for windows of each key.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> graph.source("words").window(drift.windows.count(2)).collect().sink("pairs")
        >>> [item.payload for item in drift.run(graph, {"words": ["to", "be", "or", "not"]})]
        [Window(key=None, start=0, end=2, value=('to', 'be'), early=False),
         Window(key=None, start=2, end=4, value=('or', 'not'), early=False)]
        >>> graph = drift.Graph("until 5")
        >>> windows = graph.source("numbers").window(drift.windows.tumbling(4), until=lambda total: total >= 5)
        >>> windows.sum().map(lambda window: window.value).sink("sums")
        >>> [item.payload for item in drift.run(graph, {"numbers": [3, 2, 9, 9, 1]})]
        [5, 1]
        >>> graph = drift.Graph("corrected")
        >>> numbers = graph.source("numbers", time=drift.EventTime(lambda number: number, allowed=10))
        >>> numbers.window(drift.windows.tumbling(4), allowed=10).rows(n=drift.agg.count()).sink("out")
        >>> [item.payload for item in drift.run(graph, {"numbers": [1, 9, 2]})]
        [{'start': 0, 'end': 4, 'correction': 0, 'n': 1},
         {'start': 0, 'end': 4, 'correction': 1, 'n': 2},
         {'start': 8, 'end': 12, 'correction': 0, 'n': 1}]

        Args:
            windows: one of `drift.windows`, such as `drift.windows.tumbling(60)`.
            early: see `drift.windows.every`: results before the end, marked `early=True`.
            until: pure; gets the value of a window with each item, and when it holds, the window gives its result with
                that item and takes no more. Further items of a window whose bounds are known without items (tumbling,
                sliding, calendar, by number) are not in it, nor in another one in its place; after a session or a
                window by a rule, which then ends right behind its last item, the next item opens another one.
            fill: the value of windows without items between two of a key that have some, of tumbling, sliding and
                calendar windows; a dict where the value is one. They come with the next window that has items, right
                before it. By default there are none.
            allowed: for how long after its end a window of tumbling, sliding or calendar windows is corrected: results
                are `drift.CorrectableWindow`, numbered by `correction`, and each item that comes behind the end gives
                the next one at once, which replaces the one before it of the same key and start. Such items are those
                that the source allows, `EventTime(..., allowed=...)`. Not with `until`, `fill` and `each`.
            time: with `allowed`: what gives the time of an item by which it belongs to a window: a function, a field or
                an expression, or an `EventTime` where it takes a zone or a unit to read it. By default that of the
                source, where items come from it as they are.
            late: with `allowed`: the name of a sink for items of which a window is gone; without it they are an error.
        """
        return WindowedStream(self, all_items, windows, early, until, fill, allowed, time, late, others)

    def at_end(
        self,
        aggregate: Aggregate[T, V],
        *,
        parts: Span | None = None,
        name: str | None = None,
        durable: bool = False,
    ) -> Stream[V]:
        """One value of all items, when the input has ended; nothing if there was no item.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> graph.source("numbers").at_end(drift.agg.sum()).sink("sum")
        >>> [item.payload for item in drift.run(graph, {"numbers": [1, 2, 3]})]
        [6]

        Args:
            aggregate: one of `drift.agg`, such as `drift.agg.count()`.
            parts: aggregate in two steps, so that workers share the work: first each range of this duration (of this
                number of items if they are numbered), then the results of the ranges, in order. Float sums then add up
                range by range, the same on every engine; `fold` and `reduce` need `merge=` for it.
        """
        aggregate = self._bound(aggregate)
        steps = at_end(all_items, aggregate, keyed=False, parts=parts_of(aggregate, parts))
        return self._steps(steps, self._named(name, "at end"), "parts")._durable_if(durable)

    def _behind(
        self, origins: tuple[str, ...], timed_steps: int | None = None, depth: int | None = None
    ) -> Stream[Any]:
        timed_steps = self._timed_steps if timed_steps is None else timed_steps
        return Stream(self._graph, origins, timed_steps, self._depth if depth is None else depth)

    if not TYPE_CHECKING:  # to which a name that is not there is an error in any case

        def __getattr__(self, name: str) -> Any:
            """Say where a method is that a stream has only in windows, or with keys, or under another name."""
            hint = elsewhere(name, Stream)
            if hasattr(WindowedStream, name):
                hint = (
                    f", which is for windows: stream.window(...).{name}(...). Behind an aggregate there are results, a "
                    f"Window each; for flat dicts name the aggregates: window(...).rows(mean=drift.agg.mean(...))"
                )
            elif hasattr(KeyedStream, name):
                hint = f", which is for keyed streams: stream.key_by(...).{name}(...)"
            raise AttributeError(f"a stream has no {name!r}{hint}", name=name, obj=self)


class Feedback(Stream[T]):
    """A stream that comes from a later step; see `Graph.feedback`."""
