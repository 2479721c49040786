"""A stream: the core's operations and the simplest steps; each family of the catalogue is a base class.

Invariant: a stream is the names of the operators that output its items, and never changes; every method returns another
one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeGuard, TypeVar, overload

from drift.diverting import OnError, TriedStep, diverts
from drift.flow.aggregates import Aggregate
from drift.flow.choosing import all_items
from drift.flow.ends import at_end
from drift.flow.windows import Early, Windows
from drift.operators import CountStep, Process, ReduceStep
from drift.streams.adding import check_name, parts_of
from drift.streams.choosing import Choosing
from drift.streams.iterating import Iterating
from drift.streams.joining import Joining
from drift.streams.keyed import KeyedStream
from drift.streams.windowed import WindowedStream
from drift_graph.errors import GraphError
from drift_graph.functions import caller, check_function
from drift_graph.later import Later
from drift_graph.meta import phase_of_timers
from drift_graph.moments import Span
from drift_graph.operators import Group, Sink

T = TypeVar("T")
U = TypeVar("U")
S = TypeVar("S")
K = TypeVar("K")
V = TypeVar("V")


class Stream(Choosing[T], Joining[T], Iterating[T]):
    """Items of one or more steps of a graph. Every method adds a step and returns its stream."""

    # The core.

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
        self, key: Callable[[T], Any], window: int, *, name: str | None = None, durable: bool = False
    ) -> Stream[tuple[T, ...]]:
        """The core grouping: each item becomes the tuple of the last `window` payloads with its key, which ends with
        its own.

        Args:
            key: pure; anything with canonical bytes. 1, 1.0 and True are three keys.
            window: in items, 1 or more; the first items of a key give shorter tuples.
            durable: see `flat_map`.
        """
        where = caller()
        group = Group(self._name(name, "group", key), "", where, key, window)
        return self._add(group)._durable_if(durable)

    def key_by(self, key: Callable[[T], K]) -> KeyedStream[K, T]:
        """The same items with a key each: the operators that follow take no `key=`.

        Args:
            key: pure; anything with canonical bytes. 1, 1.0 and True are three keys.
        """
        check_function("key_by", key, "a function that gives the key")
        return KeyedStream(self, key)

    def merge(self, *others: Stream[T]) -> Stream[T]:
        """The union of several streams, in the order of the items' metas: by time first."""
        for other in others:
            self._check_graph(other)
        depth = max(stream._depth for stream in (self, *others))
        for stream in (self, *others):
            stream._check_depth(depth)
        timed_steps = max(stream._timed_steps for stream in (self, *others) if stream._depth == depth)
        return Stream(self._graph, sum((other._origins for other in others), self._origins), timed_steps, depth)

    def feed(self, loop: Feedback[T]) -> None:
        """Close a feedback edge: the items of this stream return as those of `loop`."""
        self._check_graph(loop)
        if not isinstance(loop, Feedback):
            raise GraphError(f"feed takes what graph.feedback(...) returned, not {loop!r} (at {caller()})")
        self._graph._draft.close_loop(loop._origins[0], self._origins)

    def sink(self, name: str) -> None:
        """Release the items of this stream through the output barrier, under this name."""
        where = caller()
        check_name("sink", name, where)
        self._graph._draft.add(Sink(name, name, where), self._origins)

    # Simple steps.

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
        """Each payload becomes one: a core map with one child. Other arguments as for `flat_map`."""
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

    def filter(
        self,
        predicate: Callable[..., object],
        *,
        name: str | None = None,
        with_time: bool = False,
        on_error: OnError = "error",
        durable: bool = False,
    ) -> Stream[Any]:
        """Payloads for which `predicate` is true: a core map with one child or none. Other arguments as for
        `flat_map`.
        """
        return self._map(predicate, "keep", name, "filter", with_time, on_error=on_error)._durable_if(durable)

    def scan(
        self,
        key: Callable[[T], Any],
        initial: S,
        step: Callable[[S, T], tuple[S, U]],
        *,
        name: str | None = None,
        on_error: OnError = "error",
        durable: bool = False,
    ) -> Stream[U]:
        """A running state for each key: a core cycle of a grouping of window 2 over states and items, and two maps.

        Args:
            key: pure; see `group`.
            initial: the state before a key's first item. It must not be changed in place.
            step: pure; (state, payload) -> (next state, output). It returns a new state and does not change the old
                one.
            on_error: if the step raises; see `flat_map`. A diverted payload does not change the state.
        """
        named, where = self._name(name, "scan", step), caller()
        if not diverts(on_error, f"scan {named!r}", where):
            return self._scan(key, initial, step, named, step)._durable_if(durable)
        tried = self._scan(key, initial, TriedStep(named, step), named, step)
        return tried._without_errors(named, where)._durable_if(durable)

    def process(
        self,
        key: Callable[[T], Any],
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

        Args:
            key: pure; see `group`.
            initial: the state of a key that has none. It must not be changed in place.
            on_item: pure; (state, payload, time of the item) -> (next state, outputs). Outputs is a list or a tuple;
                `drift.at(time, note)` in it sets a timer: the key's `on_time` is called with the note after all items
                up to that time.
            on_time: pure; (state, note, time) -> (next state, outputs), which may set timers.
        """
        process = Process(key, initial, on_item, on_time, phase_of_timers(self._timed_steps))
        return self._process(process, self._name(name, "process", on_item))._durable_if(durable)

    def count(self, key: Callable[[T], K], *, name: str | None = None, durable: bool = False) -> Stream[tuple[K, int]]:
        """For each item (its key, how many items of that key so far, itself included): a scan."""
        return self._scan(key, 0, CountStep(key), self._name(name, "count", key), key)._durable_if(durable)

    def reduce(
        self, key: Callable[[T], K], function: Callable[[T, T], T], *, name: str | None = None, durable: bool = False
    ) -> Stream[tuple[K, T]]:
        """For each item (its key, the key's payloads so far folded by `function`): a scan."""
        named = self._name(name, "reduce", function)
        return self._scan(key, (), ReduceStep(key, function), named, function)._durable_if(durable)

    # Windows, and aggregates at the end.

    def window(self, windows: Windows, *, early: Early | None = None) -> WindowedStream[None, T]:
        """Windows over all items; `key_by(f).window(...)` for windows of each key.

        Args:
            windows: one of `drift.windows`, such as `drift.windows.tumbling(60)`.
            early: see `drift.windows.every`: results before the end, marked `early=True`.
        """
        return WindowedStream(self, all_items, windows, early)

    def at_end(
        self,
        aggregate: Aggregate[T, V],
        *,
        parts: Span | None = None,
        name: str | None = None,
        durable: bool = False,
    ) -> Stream[V]:
        """One value of all items, when the input has ended; nothing if there was no item.

        Args:
            aggregate: one of `drift.agg`, such as `drift.agg.count()`.
            parts: aggregate in two steps, so that workers share the work: first each range of this duration (of this
                number of items if they are numbered), then the results of the ranges, in order. Float sums then add up
                range by range, the same on every engine; `reduce` must be associative.
        """
        steps = at_end(all_items, aggregate, keyed=False, parts=parts_of(aggregate, parts))
        return self._steps(steps, self._named(name, "at end"), "parts")._durable_if(durable)

    def _behind(
        self, origins: tuple[str, ...], timed_steps: int | None = None, depth: int | None = None
    ) -> Stream[Any]:
        timed_steps = self._timed_steps if timed_steps is None else timed_steps
        return Stream(self._graph, origins, timed_steps, self._depth if depth is None else depth)


class Feedback(Stream[T]):
    """A stream that comes from a later step; see `Graph.feedback`."""
