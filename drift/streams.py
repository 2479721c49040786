"""Writing a graph down: streams with the core's operations, and sugar that lowers to them.

Invariant: every method adds sources, maps, groups, sinks and edges to the draft, and nothing else.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from drift.operators import (
    CountStep,
    Process,
    ProcessOutput,
    ProcessState,
    ProcessTimers,
    ReduceStep,
    ScanKey,
    ScanOutput,
    ScanState,
)
from drift_graph.errors import GraphError, SettingsError
from drift_graph.functions import caller, name_of
from drift_graph.graph import Dataflow, Draft
from drift_graph.later import Later
from drift_graph.meta import PHASE_TIMERS, PHASE_TIMERS_MAX
from drift_graph.operators import Arity, Group, Map, Sink, Source
from drift_graph.times import ArrivalTime, EventTime, TimePolicy

T = TypeVar("T")
U = TypeVar("U")
S = TypeVar("S")
K = TypeVar("K")


class Graph:
    """A graph being written down. `build` gives the finished value; `drift.run`, `print` and `draw` do so themselves.

    Args:
        name: for messages and pictures.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise GraphError(f"a graph's name is a text, not {name!r}")
        self.name = name
        self._draft = Draft(name)

    def source(self, name: str, *, time: TimePolicy | None = None) -> Stream[Any]:
        """A place where items come in; a run says where from.

        Args:
            name: the run refers to it.
            time: the time policy unless the run gives another; arrival time if None.
        """
        where = caller()
        _check_name("source", name, where)
        if time is not None and not isinstance(time, (ArrivalTime, EventTime)):
            raise GraphError(
                f"source {name!r} (at {where}) has time={time!r:.80}, which is no time policy; for a function of the "
                f"payload pass drift.EventTime(function, lateness=...)"
            )
        self._draft.add(Source(name, name, where, time or ArrivalTime()))
        return Stream(self, (name,))

    def feedback(self, name: str) -> Feedback[Any]:
        """A stream whose items come from a later step: use it now, and close it with `stream.feed(it)`."""
        return Feedback(self, (self._draft.open_loop(name, caller()),))

    def build(self) -> Dataflow:
        """The graph as an immutable value.

        Raises:
            GraphError: naming the step and the line, for the first thing that is wrong.
        """
        return self._draft.build()

    def draw(self, path: str | Path) -> None:
        """Write a picture, .svg or .png; needs the extra `picture`."""
        from drift.show import write_picture

        write_picture(self.build(), path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self.build() == other.build()

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        from drift.show import as_text

        return as_text(self.build())

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from drift.show import as_mermaid, as_svg

        dataflow = self.build()
        bundle = {"text/vnd.mermaid": as_mermaid(dataflow), "text/plain": str(self)}
        with contextlib.suppress(SettingsError):  # the extra that draws is not installed
            bundle["image/svg+xml"] = as_svg(dataflow)
        return bundle


class Stream(Generic[T]):
    """Items of one or more steps of a graph. Every method adds a step and returns its stream."""

    def __init__(self, graph: Graph, origins: tuple[str, ...], timed_steps: int = 0) -> None:
        self._graph = graph
        self._origins = origins
        self._timed_steps = timed_steps  # so many steps with timers are before this, one after the other

    # The core.

    def flat_map(
        self,
        function: Callable[..., Iterable[U | Later[U]]],
        *,
        name: str | None = None,
        with_time: bool = False,
        later: bool = False,
    ) -> Stream[U]:
        """The core map: each payload becomes any number of payloads, in the order `function` gives them.

        Args:
            function: pure; returns a list, a tuple or another iterable, but no text, dict or set.
            with_time: `function` takes the item's time as well: `function(payload, time)`.
            later: it may return `drift.at(time, payload)` in place of a payload, for a child at a later time.
        """
        return self._map(function, "many", name, "flat_map", with_time, later)

    def group(self, key: Callable[[T], Any], window: int, *, name: str | None = None) -> Stream[tuple[T, ...]]:
        """The core grouping: each item becomes the tuple of the last `window` payloads with its key, itself the last.

        Args:
            key: pure; anything with canonical bytes. 1, 1.0 and True are three keys.
            window: in items, 1 or more; the first items of a key give shorter tuples.
        """
        where = caller()
        group = Group(self._name(name, "group", key), "", where, key, window)
        return self._add(group)

    def key_by(self, key: Callable[[T], K]) -> KeyedStream[K, T]:
        """The same items, each with the key that `key` gives: what comes next needs no key again.

        Args:
            key: pure; anything with canonical bytes. 1, 1.0 and True are three keys.
        """
        if not callable(key):
            raise GraphError(f"key_by takes a function that gives the key, not {key!r:.80} (at {caller()})")
        return KeyedStream(self, key)

    def merge(self, *others: Stream[T]) -> Stream[T]:
        """The items of several streams, each where its meta puts it."""
        for other in others:
            self._check_graph(other)
        timed_steps = max(stream._timed_steps for stream in (self, *others))
        return Stream(self._graph, sum((other._origins for other in others), self._origins), timed_steps)

    def feed(self, loop: Feedback[T]) -> None:
        """Close a feedback edge: the items of this stream come back as those of `loop`."""
        self._check_graph(loop)
        if not isinstance(loop, Feedback):
            raise GraphError(f"feed takes what graph.feedback(...) returned, not {loop!r} (at {caller()})")
        self._graph._draft.close_loop(loop._origins[0], self._origins)

    def sink(self, name: str) -> None:
        """Release the items of this stream through the output barrier, under this name."""
        where = caller()
        _check_name("sink", name, where)
        self._graph._draft.add(Sink(name, name, where), self._origins)

    # Sugar.

    def map(
        self,
        function: Callable[..., U | Later[U]],
        *,
        name: str | None = None,
        with_time: bool = False,
        later: bool = False,
    ) -> Stream[U]:
        """Each payload becomes one: a core map with one child. `with_time` and `later` are as for `flat_map`."""
        return self._map(function, "one", name, "map", with_time, later)

    def filter(
        self, predicate: Callable[..., object], *, name: str | None = None, with_time: bool = False
    ) -> Stream[T]:
        """Payloads for which `predicate` is true: a core map with one child or none; `with_time` as for `flat_map`."""
        return self._map(predicate, "keep", name, "filter", with_time)

    def scan(
        self, key: Callable[[T], Any], initial: S, step: Callable[[S, T], tuple[S, U]], *, name: str | None = None
    ) -> Stream[U]:
        """A running state for each key: a core cycle of a grouping of window 2 over states and items, and two maps.

        Args:
            key: pure; see `group`.
            initial: the state before a key's first item. It must not be changed in place.
            step: pure; (state, payload) -> (next state, output). It returns a new state and leaves the old as it is.
        """
        return self._scan(key, initial, step, self._name(name, "scan", step), step)

    def process(
        self,
        key: Callable[[T], Any],
        initial: S,
        on_item: Callable[[S, T, int], tuple[S, Sequence[U | Later[Any]]]],
        on_time: Callable[[S, Any, int], tuple[S, Sequence[U | Later[Any]]]],
        *,
        name: str | None = None,
    ) -> Stream[U]:
        """A state for each key, with timers: what Flink calls a keyed process function.

        A core cycle of a grouping of window 2 over states, items and notes, and three maps, run as one loop. A state
        that equals `initial` is forgotten, so memory follows the keys that live.

        Args:
            key: pure; see `group`.
            initial: the state of a key that has none. It must not be changed in place.
            on_item: pure; (state, payload, time of the item) -> (next state, outputs). Outputs is a list or a tuple;
                `drift.at(time, note)` in it is no output but a timer: the key's `on_time` is called with the note when
                all items up to that time have come.
            on_time: pure; (state, note, time) -> (next state, outputs), timers among them.
        """
        given = Process(key, initial, on_item, on_time, PHASE_TIMERS + self._timed_steps)
        return self._process(given, self._name(name, "process", on_item))

    def count(self, key: Callable[[T], K], *, name: str | None = None) -> Stream[tuple[K, int]]:
        """For each item (its key, how many items of that key so far, itself included): a scan."""
        return self._scan(key, 0, CountStep(key), self._name(name, "count", key), key)

    def reduce(
        self, key: Callable[[T], K], function: Callable[[T, T], T], *, name: str | None = None
    ) -> Stream[tuple[K, T]]:
        """For each item (its key, the key's payloads so far folded by `function`): a scan."""
        return self._scan(key, (), ReduceStep(key, function), self._name(name, "reduce", function), function)

    # Below: how steps are added.

    def _scan(
        self,
        key: Callable[[T], Any],
        initial: Any,
        step: Callable[[Any, T], tuple[Any, U]],
        name: str,
        shown: Callable[..., Any],
    ) -> Stream[U]:
        draft, where = self._graph._draft, caller()
        if not callable(key):
            raise GraphError(f"step {name!r} (at {where}) takes a function that gives the key, not {key!r:.80}")
        loop = draft.open_loop(f"{name}.states", where)
        group = draft.add(Group(name, name, where, ScanKey(key), 2), (*self._origins, loop))
        states = draft.add(
            Map(f"{name}.state", name, where, ScanState(key, initial, step, shown), "many"), (group.name,)
        )
        draft.close_loop(loop, (states.name,))
        out = draft.add(Map(f"{name}.output", name, where, ScanOutput(initial, step, shown), "many"), (group.name,))
        return Stream(self._graph, (out.name,), self._timed_steps)

    def _process(self, process: Process, name: str) -> Stream[Any]:
        draft, where = self._graph._draft, caller()
        if process.phase > PHASE_TIMERS_MAX:
            raise GraphError(
                f"step {name!r} (at {where}) is behind {self._timed_steps} steps with timers; 252 is the most"
            )
        states, timers = draft.open_loop(f"{name}.states", where), draft.open_loop(f"{name}.notes", where)
        key = ScanKey(process.key)
        group = draft.add(Group(name, name, where, key, 2), (*self._origins, states, timers))
        for loop, suffix, function, later in (
            (states, "state", ProcessState(process), False),
            (timers, "timers", ProcessTimers(process), True),
        ):
            added = draft.add(Map(f"{name}.{suffix}", name, where, function, "many", later, True), (group.name,))
            draft.close_loop(loop, (added.name,))
        out = draft.add(Map(f"{name}.output", name, where, ProcessOutput(process), "many", False, True), (group.name,))
        return Stream(self._graph, (out.name,), self._timed_steps + 1)

    def _map(
        self,
        function: Callable[..., Any],
        arity: Arity,
        name: str | None,
        kind: str,
        with_time: bool = False,
        later: bool = False,
    ) -> Stream[Any]:
        where = caller()
        return self._add(Map(self._name(name, kind, function), "", where, function, arity, later, with_time))

    def _add(self, operator: Map | Group) -> Stream[Any]:
        added = self._graph._draft.add(dataclasses.replace(operator, step=operator.name), self._origins)
        return Stream(self._graph, (added.name,), self._timed_steps)

    def _name(self, name: str | None, kind: str, function: Callable[..., Any]) -> str:
        if not callable(function):
            raise GraphError(f"{kind} takes a function, not {function!r} (at {caller()})")
        if name is not None:
            _check_name("step", name, caller())
            return name
        return self._graph._draft.fresh_name(f"{kind} {name_of(function)}")

    def _check_graph(self, other: Stream[Any]) -> None:
        if not isinstance(other, Stream) or other._graph is not self._graph:
            raise GraphError(
                f"a stream of graph {self._graph.name!r} meets {other!r}, which is not a stream of it (at {caller()})"
            )

    def __repr__(self) -> str:
        return f"<Stream {', '.join(self._origins)} of graph {self._graph.name!r}>"


def _check_name(kind: str, name: object, where: str) -> None:
    if not isinstance(name, str) or not name:
        raise GraphError(f"a {kind} is named {name!r:.80} (at {where}); a name is a text that is not empty")


class Feedback(Stream[T]):
    """A stream that comes from a later step; see `Graph.feedback`."""


class KeyedStream(Generic[K, T]):
    """A stream and what tells whose each item is; its operators need no key again. `Stream.key_by` makes it.

    It is no step of the graph: nothing is moved or kept until an operator needs the key.
    """

    def __init__(self, stream: Stream[T], key: Callable[[T], K]) -> None:
        self._stream = stream
        self._key = key

    def drop_key(self) -> Stream[T]:
        """The items, without regard to keys."""
        return self._stream

    def filter(
        self, predicate: Callable[..., object], *, name: str | None = None, with_time: bool = False
    ) -> KeyedStream[K, T]:
        """As `Stream.filter`; what is left has the key it had."""
        return KeyedStream(self._stream.filter(predicate, name=name, with_time=with_time), self._key)

    def group(self, window: int, *, name: str | None = None) -> Stream[tuple[T, ...]]:
        """As `Stream.group`: each item becomes the tuple of the last `window` payloads with its key."""
        return self._stream.group(self._key, window, name=name)

    def scan(self, initial: S, step: Callable[[S, T], tuple[S, U]], *, name: str | None = None) -> Stream[U]:
        """As `Stream.scan`: a running state for each key; `step` is (state, payload) -> (next state, output)."""
        return self._stream.scan(self._key, initial, step, name=name)

    def process(
        self,
        initial: S,
        on_item: Callable[[S, T, int], tuple[S, Sequence[U | Later[Any]]]],
        on_time: Callable[[S, Any, int], tuple[S, Sequence[U | Later[Any]]]],
        *,
        name: str | None = None,
    ) -> Stream[U]:
        """As `Stream.process`: a state for each key, with timers."""
        return self._stream.process(self._key, initial, on_item, on_time, name=name)

    def count(self, *, name: str | None = None) -> Stream[tuple[K, int]]:
        """For each item (its key, how many items of that key so far, itself included)."""
        return self._stream.count(self._key, name=name)

    def reduce(self, function: Callable[[T, T], T], *, name: str | None = None) -> Stream[tuple[K, T]]:
        """For each item (its key, the key's payloads so far folded by `function`)."""
        return self._stream.reduce(self._key, function, name=name)

    def __repr__(self) -> str:
        return f"<{self._stream!r} by {name_of(self._key)}>"
