"""Writing a graph down: streams with the core's operations, and sugar that lowers to them.

Invariant: every method adds sources, maps, groups, sinks and edges to the draft, and nothing else.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, TypeGuard, TypeVar, overload

from drift.diverting import ErrorsOnly, OnError, Tried, TriedStep, WithoutErrors, diverts
from drift.flow import aggregates as agg
from drift.flow.aggregates import Aggregate, check_aggregate, several
from drift.flow.choosing import (
    FirstWithin,
    Inspect,
    LimitStep,
    OnSide,
    Unless,
    all_items,
    first_of_key,
    forget,
    itself,
    payloads_of,
    value_of,
    zipped,
)
from drift.flow.ends import EndItem, at_end
from drift.flow.joins import (
    EVER,
    HOWS,
    AsOfJoin,
    ExistsJoin,
    How,
    InnerJoin,
    Lookup,
    OfSide,
    PairJoin,
    TableJoin,
    WindowJoin,
    before_every_time,
    key_of,
    rows_of,
)
from drift.flow.joins import value_of as value_of_window
from drift.flow.rounds import (
    Again,
    Enter,
    Folding,
    Gate,
    LeaveLoop,
    PartEnd,
    Replayed,
    ReplayedBegin,
    RoundEnd,
    Tell,
    gate_key,
    is_begun,
    pairs,
    share_of,
)
from drift.flow.windows import EMPTY, Early, Step, Window, Windows, check_windows
from drift.operators import (
    CountStep,
    LoopFunction,
    Process,
    ProcessOutput,
    ProcessState,
    ProcessTimers,
    ReduceStep,
    ScanKey,
    ScanOutput,
    ScanState,
)
from drift_graph.errors import GraphError, PayloadError, SettingsError
from drift_graph.functions import caller, name_of, user_function
from drift_graph.graph import Dataflow, Draft
from drift_graph.later import Later
from drift_graph.meta import PHASE_ROUND_END, PHASE_TIMERS, PHASE_TIMERS_MAX, phase_of_loop, phase_of_timers
from drift_graph.moments import Span, span_from
from drift_graph.operators import Arity, Group, Map, Sink, Source
from drift_graph.policies import ArrivalTime, EventTime, TimePolicy

T = TypeVar("T")
U = TypeVar("U")
S = TypeVar("S")
K = TypeVar("K")
V = TypeVar("V")

#: The sink of what sources and steps set apart.
ERRORS = "errors"

#: How near in time a pair of a join is; see `Stream.join`.
Within = tuple[Span, Span] | Windows | None


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
        self._has_errors = False
        self._loops: list[int] = []  # that are being written, one in the other: steps with timers before each

    @overload
    def source(
        self, name: str, *, type: type[U], time: TimePolicy | None = ..., on_error: OnError = ...
    ) -> Stream[U]: ...

    @overload
    def source(self, name: str, *, time: TimePolicy | None = ..., on_error: OnError = ...) -> Stream[Any]: ...

    def source(
        self, name: str, *, type: Any = None, time: TimePolicy | None = None, on_error: OnError = "error"
    ) -> Stream[Any]:
        """A place where items come in; a run says where from.

        Args:
            name: the run refers to it.
            type: of its payloads, for type checkers; nothing is checked while a graph runs.
            time: the time policy unless the run gives another; arrival time if None.
            on_error: "error" ends the run at what cannot be read, or has no time; "divert" sends it to the sink
                "errors": {"place": source and line, "error": what is wrong, "payload": what was read}. A row of a
                DataFrame on Spark that has no time is an error all the same: rows arrive in no order.
        """
        where = caller()
        _check_name("source", name, where)
        if time is not None and not isinstance(time, (ArrivalTime, EventTime)):
            raise GraphError(
                f"source {name!r} (at {where}) has time={time!r:.80}, which is no time policy; for a function of the "
                f"payload pass drift.EventTime(function, lateness=...)"
            )
        sets_apart = diverts(on_error, f"source {name!r}", where)
        self._draft.add(Source(name, name, where, time or ArrivalTime(), sets_apart))
        stream: Stream[Any] = Stream(self, (name,))
        return stream._without_errors(name, where) if sets_apart else stream

    def table(self, name: str) -> Stream[Any]:
        """A source whose items come before every time: `join_table` finds all of them.

        A run reads it to its end before it releases anything. Its rows are in an order that hangs on their bytes alone.

        Args:
            name: the run refers to it.
        """
        return self.source(name, time=EventTime(time=before_every_time))

    def feedback(self, name: str) -> Feedback[Any]:
        """A stream whose items come from a later step: use it now, and close it with `stream.feed(it)`."""
        return Feedback(self, (self._draft.open_loop(name, caller()),), 0, len(self._loops))

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

    def __init__(self, graph: Graph, origins: tuple[str, ...], timed_steps: int = 0, depth: int = 0) -> None:
        self._graph = graph
        self._origins = origins
        self._timed_steps = timed_steps  # so many steps with timers are before this, in its loop, one after the other
        self._depth = depth  # it is in so many loops

    # The core.

    def flat_map(
        self,
        function: Callable[..., Iterable[U | Later[U]]],
        *,
        name: str | None = None,
        with_time: bool = False,
        later: bool = False,
        on_error: OnError = "error",
    ) -> Stream[U]:
        """The core map: each payload becomes any number of payloads, in the order `function` gives them.

        Args:
            function: pure; returns a list, a tuple or another iterable, but no text, dict or set.
            with_time: `function` takes the item's time as well: `function(payload, time)`.
            later: it may return `drift.at(time, payload)` in place of a payload, for a child at a later time.
            on_error: "error" ends the run where the function raises; "divert" sends the payload to the sink "errors"
                in place of what would become of it: {"place": step, "error": what was raised, "payload": the payload}.
        """
        return self._map(function, "many", name, "flat_map", with_time, later, on_error)

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
        depth = max(stream._depth for stream in (self, *others))
        for stream in (self, *others):
            stream._go_into(depth)
        timed_steps = max(stream._timed_steps for stream in (self, *others) if stream._depth == depth)
        return Stream(self._graph, sum((other._origins for other in others), self._origins), timed_steps, depth)

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
        on_error: OnError = "error",
    ) -> Stream[U]:
        """Each payload becomes one: a core map with one child. The rest is as for `flat_map`."""
        return self._map(function, "one", name, "map", with_time, later, on_error)

    @overload
    def filter(
        self,
        predicate: Callable[[T], TypeGuard[U]],
        *,
        name: str | None = ...,
        with_time: Literal[False] = ...,
        on_error: OnError = ...,
    ) -> Stream[U]: ...

    @overload
    def filter(
        self,
        predicate: Callable[[T], object],
        *,
        name: str | None = ...,
        with_time: Literal[False] = ...,
        on_error: OnError = ...,
    ) -> Stream[T]: ...

    @overload
    def filter(
        self,
        predicate: Callable[[T, int], object],
        *,
        name: str | None = ...,
        with_time: Literal[True],
        on_error: OnError = ...,
    ) -> Stream[T]: ...

    def filter(
        self,
        predicate: Callable[..., object],
        *,
        name: str | None = None,
        with_time: bool = False,
        on_error: OnError = "error",
    ) -> Stream[Any]:
        """Payloads for which `predicate` is true: a core map with one child or none. The rest is as for `flat_map`."""
        return self._map(predicate, "keep", name, "filter", with_time, on_error=on_error)

    def scan(
        self,
        key: Callable[[T], Any],
        initial: S,
        step: Callable[[S, T], tuple[S, U]],
        *,
        name: str | None = None,
        on_error: OnError = "error",
    ) -> Stream[U]:
        """A running state for each key: a core cycle of a grouping of window 2 over states and items, and two maps.

        Args:
            key: pure; see `group`.
            initial: the state before a key's first item. It must not be changed in place.
            step: pure; (state, payload) -> (next state, output). It returns a new state and leaves the old as it is.
            on_error: where the step raises; see `flat_map`. The state stays as it was before a payload set apart.
        """
        named, where = self._name(name, "scan", step), caller()
        if not diverts(on_error, f"scan {named!r}", where):
            return self._scan(key, initial, step, named, step)
        return self._scan(key, initial, TriedStep(named, step), named, step)._without_errors(named, where)

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
        given = Process(key, initial, on_item, on_time, phase_of_timers(self._timed_steps))
        return self._process(given, self._name(name, "process", on_item))

    def count(self, key: Callable[[T], K], *, name: str | None = None) -> Stream[tuple[K, int]]:
        """For each item (its key, how many items of that key so far, itself included): a scan."""
        return self._scan(key, 0, CountStep(key), self._name(name, "count", key), key)

    def reduce(
        self, key: Callable[[T], K], function: Callable[[T, T], T], *, name: str | None = None
    ) -> Stream[tuple[K, T]]:
        """For each item (its key, the key's payloads so far folded by `function`): a scan."""
        return self._scan(key, (), ReduceStep(key, function), self._name(name, "reduce", function), function)

    # Windows, and the end.

    def window(self, windows: Windows, *, early: Early | None = None) -> WindowedStream[None, T]:
        """Windows over all items; `key_by(f).window(...)` for those of each key.

        Args:
            windows: one of `drift.windows`, such as `drift.windows.tumbling(60)`.
            early: see `drift.windows.every`: results before the end, marked `early=True`.
        """
        return WindowedStream(self, all_items, windows, early)

    def at_end(self, aggregate: Aggregate[T, V], *, parts: Span | None = None, name: str | None = None) -> Stream[V]:
        """One value of all items, when the input has ended; nothing if there was no item.

        Args:
            aggregate: one of `drift.agg`, such as `drift.agg.count()`.
            parts: in two steps, so that workers share the work: first what lies in each stretch of so much time (of so
                many items where they are numbered), then what these gave, in order. Sums of floats are added up by
                stretches then, the same everywhere; `reduce` has to be associative.
        """
        steps = at_end(all_items, aggregate, keyed=False, parts=_checked_end(aggregate, parts))
        return self._steps(steps, self._named(name, "at end"), "parts")

    # Iterations.

    def iterate(
        self,
        max_rounds: int,
        state: S,
        body: Callable[[Stream[tuple[S, T]]], Stream[T]],
        fold: Callable[[S, Any], S],
        until: Callable[[S], object] | None = None,
        *,
        aggregate: Aggregate[T, Any] | None = None,
        name: str | None = None,
    ) -> tuple[Stream[S], Stream[T]]:
        """Rounds of `body`, each over what the one before gave, when all input has ended.

        A state goes with them: all items of a round meet the one that it begins with, and the next begins with what
        `fold` makes of it and of all that the body gave. There is one round or more; it is the last one that gives
        nothing, or behind which `until` is true. Where no item comes in, nothing comes out.

        Args:
            max_rounds: 1 or more.
            state: of the first round. It must not be changed in place.
            body: given the stream of a round's pairs (state, item), it returns the stream of the items of the next
                round. It may have any steps, loops among them. What comes at the end, and windows that are open, come
                at the end of each round; scans go on through the rounds. A side input is a stream from outside that
                the items are joined with; where it is whole before the rounds begin, by `join_table`.
            fold: pure; (state, item that the body gave) -> state, called with each in order.
            until: pure; of the state after a round, whether it was the last.
            aggregate: what the body gives in a round is aggregated first, in shares, and `fold` is called once, with
                (state, value), if there was anything.

        Returns:
            A stream of the last state, and one of what the last round gave.
        """
        loop = self._loop("iterate", max_rounds, state, body, fold, until, aggregate, name)
        draft, step = self._graph._draft, loop.step
        returning = draft.open_loop(f"{step}.again", loop.where)
        before = self._entering(loop, returning)
        gate = before._scan(gate_key, None, Gate(state, body), f"{step}.gate", body)
        given, folded = self._turned(loop, gate, 0, goes_on_empty=False)
        draft.close_loop(returning, given._part(step, "again", Again(), "one", later=True)._origins)
        return self._left(loop, folded, "state"), self._left(loop, gate, "items")

    def replay(
        self,
        max_rounds: int,
        state: S,
        body: Callable[[Stream[tuple[S, T]]], Stream[V]],
        fold: Callable[[S, Any], S],
        until: Callable[[S], object] | None = None,
        *,
        aggregate: Aggregate[V, Any] | None = None,
        name: str | None = None,
    ) -> Stream[S]:
        """As `iterate`, but that each round has the items that came in. The stream of the last state.

        A round that gives nothing is not the last.
        """
        loop = self._loop("replay", max_rounds, state, body, fold, until, aggregate, name)
        replayed = Replayed(state, body)
        process = Process(gate_key, (), replayed, ReplayedBegin(replayed), PHASE_TIMERS)
        gate = self._entering(loop)._process(process, f"{loop.step}.gate")
        _, folded = self._turned(loop, gate, 1, goes_on_empty=True)
        return self._left(loop, folded, "state")

    # Which items go on, and where to.

    def route(self, *predicates: Callable[[T], object], name: str | None = None) -> tuple[Stream[T], ...]:
        """A stream for each predicate, of the items for which it is the first that is true, and one of the rest.

        Args:
            predicates: pure, one or more; `route(p)` is (those with p, those without). The rest may be left alone,
                and is dropped then.
        """
        if not predicates:
            raise GraphError(f"route takes one predicate or more (at {caller()})")
        step, routes, rest = self._name(name, "route", predicates[0]), [], self
        for index, predicate in enumerate(predicates):
            if not callable(predicate):
                raise GraphError(f"route takes predicates, not {predicate!r:.80} (at {caller()})")
            routes.append(rest._part(step, str(index), predicate, "keep"))
            last = index == len(predicates) - 1
            rest = rest._part(step, f"after {index}", Unless(predicate), "keep", optional=last)
        return (*routes, rest)

    def split(self, count: int) -> tuple[Stream[T], ...]:
        """So many streams of all the items. A stream may be used any number of times anyway: these are it."""
        if type(count) is not int or count < 1:
            raise GraphError(f"split takes an int of 1 or more, not {count!r:.80} (at {caller()})")
        return (self,) * count

    def zip(self, other: Stream[U], *, name: str | None = None) -> Stream[tuple[T, U]]:
        """Pairs (left, right) by order: the n-th item of this stream with the n-th of the other.

        A pair comes where the later one of it does. What one stream has more of waits, and gives nothing.
        """
        self._check_graph(other)
        step = self._named(name, "zip")
        left = self._part(step, "left", OnSide(0), "one")
        both = left.merge(other._part(step, "right", OnSide(1), "one"))
        return both._chosen(all_items, None, zipped, step, zipped)

    def limit(
        self, count: int, offset: int = 0, *, key: Callable[[T], Any] = all_items, name: str | None = None
    ) -> Stream[T]:
        """The first `count` items in order after the first `offset`, of each key if there is one. The run goes on.

        Args:
            count: 0 or more.
            offset: 0 or more.
            key: pure; see `group`.
        """
        for what, given in (("count", count), ("offset", offset)):
            if type(given) is not int or given < 0:
                raise GraphError(f"limit takes {what}= an int of 0 or more, not {given!r:.80} (at {caller()})")
        return self._chosen(key, 0, LimitStep(count, offset), self._named(name, "limit", key), key)

    def dedup(
        self, key: Callable[[T], Any] = itself, *, within: Span | None = None, name: str | None = None
    ) -> Stream[T]:
        """The first item of each key, in order.

        Args:
            key: pure; see `group`. Without it equal payloads are one.
            within: an item that was given stands for its key for so long, in the unit of its time, bound included;
                the next one after it is given again, and memory follows the keys of that span. None: for ever, and
                every key is remembered.
        """
        step = self._named(name, "dedup", key)
        if within is None:
            return self._chosen(key, False, first_of_key, step, key)
        first = FirstWithin(_span("within", within, caller()), key)
        return self._process(Process(key, False, first, forget, phase_of_timers(self._timed_steps)), step)

    def inspect(self, function: Callable[[T], object], *, name: str | None = None) -> Stream[T]:
        """The same items; `function` is called with each, as it is processed, to look at it while developing.

        It is called wherever the step runs, in no certain order, and again for what is corrected. What must happen once
        for each item is for a sink.
        """
        return self._part(self._name(name, "inspect", function), "", Inspect(function), "one")

    def flatten(self: Stream[Iterable[U]], *, name: str | None = None) -> Stream[U]:
        """The members of each payload, a list, a tuple or another iterable, but no text, dict or set."""
        return self._part(self._named(name, "flatten"), "", payloads_of, "many")

    def drop_key(self: Stream[tuple[Any, V]], *, name: str | None = None) -> Stream[V]:
        """The value of each pair (key, value)."""
        return self._part(self._named(name, "drop_key"), "", value_of, "one")

    # Joins.

    # fmt: off
    @overload
    def join(
        self, other: Stream[U], key: Callable[[T], Any], other_key: Callable[[U], Any] | None = None, *,
        within: Within = None, how: Literal["inner"] = "inner", name: str | None = None,
    ) -> Stream[tuple[T, U]]: ...
    @overload
    def join(
        self, other: Stream[U], key: Callable[[T], Any], other_key: Callable[[U], Any] | None = None, *,
        within: Within = None, how: Literal["left"], name: str | None = None,
    ) -> Stream[tuple[T, U | None]]: ...
    @overload
    def join(
        self, other: Stream[U], key: Callable[[T], Any], other_key: Callable[[U], Any] | None = None, *,
        within: Within = None, how: Literal["right"], name: str | None = None,
    ) -> Stream[tuple[T | None, U]]: ...
    @overload
    def join(
        self, other: Stream[U], key: Callable[[T], Any], other_key: Callable[[U], Any] | None = None, *,
        within: Within = None, how: Literal["full"], name: str | None = None,
    ) -> Stream[tuple[T | None, U | None]]: ...
    @overload
    def join(
        self, other: Stream[U], key: Callable[[T], Any], other_key: Callable[[U], Any] | None = None, *,
        within: Within = None, how: Literal["semi", "anti"], name: str | None = None,
    ) -> Stream[T]: ...
    def join(
        self, other: Stream[Any], key: Callable[[T], Any], other_key: Callable[[Any], Any] | None = None, *,
        within: Within = None, how: How = "inner", name: str | None = None,
    ) -> Stream[Any]:
        """Pairs (left, right) of items of this stream and the other with one key, each where its later item comes.

        Args:
            other: the right side.
            key: pure; see `group`.
            other_key: of the right side; `key` for both if None.
            within: (before, after): a left item at t pairs with right ones in [t - before, t + after], bounds included,
                in the unit of the items' time. What can match nothing more is forgotten. Or windows, such as
                `drift.windows.tumbling(60)`: with those of one window, at its end. None: with every one, and
                everything is kept.
            how: "inner" gives pairs alone. "left", "right" and "full" give (left, None), (None, right) and both for
                items without match, when it is certain: all items up to the last that it could match have come, or
                without `within` at drift.END. "semi" gives left items that have a match, each once, where the first
                match is; "anti" those that have none, when it is certain.
        """
        join: PairJoin | ExistsJoin
        where = caller()
        if how not in HOWS:
            raise GraphError(f"join takes how= one of {', '.join(HOWS)}, not {how!r:.80} (at {where})")
        if isinstance(within, Windows):
            step = self._name(name, "join", key)
            windowed: WindowedStream[Any, Any] = WindowedStream(self._both(other, key, other_key, step), key_of, within)
            return windowed.aggregate(WindowJoin(how), name=step)._part(step, "pairs", value_of_window, "many")
        before, after = (EVER, EVER) if within is None else _bounds_of(within, where)
        if how in ("semi", "anti"):
            join = ExistsJoin(before, after, how == "anti", key)
        elif how == "inner" and before >= 0 and after >= 0:
            join = InnerJoin(before, after, (False, False), key)
        else:
            join = PairJoin(before, after, (how in ("left", "full"), how in ("right", "full")), key)
        return self._joined(other, key, other_key, join, (), name, "join")

    @overload
    def join_as_of(
        self, other: Stream[U], key: Callable[[T], Any], other_key: Callable[[U], Any] | None = None, *,
        within: Span | None = None, how: Literal["left"] = "left", name: str | None = None,
    ) -> Stream[tuple[T, U | None]]: ...
    @overload
    def join_as_of(
        self, other: Stream[U], key: Callable[[T], Any], other_key: Callable[[U], Any] | None = None, *,
        within: Span | None = None, how: Literal["inner"], name: str | None = None,
    ) -> Stream[tuple[T, U]]: ...
    def join_as_of(
        self, other: Stream[Any], key: Callable[[T], Any], other_key: Callable[[Any], Any] | None = None, *,
        within: Span | None = None, how: Literal["left", "inner"] = "left", name: str | None = None,
    ) -> Stream[Any]:
        """Each item with the last of the other stream at or before its time, of its key: pandas' merge_asof.

        A pair comes after all items of the left item's time, so that one of the same time is found. Of each key the
        last right item is kept.

        Args:
            other, key, other_key: as for `join`.
            within: the right item is at most so much before; older ones are no match, and are forgotten.
            how: "left" gives (left, None) where there is none, "inner" nothing.
        """
        where = caller()
        span = EVER if within is None else _span("within", within, where)
        if how not in ("left", "inner"):
            raise GraphError(f"join_as_of takes how= left or inner, not {how!r:.80} (at {where})")
        join = AsOfJoin(span, how == "left", key)
        return self._joined(other, key, other_key, join, (), name, "join_as_of")

    @overload
    def join_table(
        self, table: Stream[U], key: Callable[[T], Any], table_key: Callable[[U], Any], *,
        how: Literal["left"] = "left", name: str | None = None,
    ) -> Stream[tuple[T, U | None]]: ...
    @overload
    def join_table(
        self, table: Stream[U], key: Callable[[T], Any], table_key: Callable[[U], Any], *,
        how: Literal["inner"], name: str | None = None,
    ) -> Stream[tuple[T, U]]: ...
    @overload
    def join_table(
        self, table: Mapping[Any, V], key: Callable[[T], Any], *,
        how: Literal["left"] = "left", name: str | None = None,
    ) -> Stream[tuple[T, V | None]]: ...
    @overload
    def join_table(
        self, table: Mapping[Any, V], key: Callable[[T], Any], *,
        how: Literal["inner"], name: str | None = None,
    ) -> Stream[tuple[T, V]]: ...
    @overload
    def join_table(
        self, table: Any, key: Callable[[T], Any], *,
        on: str, how: Literal["left", "inner"] = "left", name: str | None = None,
    ) -> Stream[tuple[T, Any]]: ...
    def join_table(
        self, table: Any, key: Callable[[T], Any], table_key: Callable[[Any], Any] | None = None, *,
        on: str | None = None, how: Literal["left", "inner"] = "left", name: str | None = None,
    ) -> Stream[Any]:
        """Each item with the row of a table that has its key, or with every one of them.

        Args:
            table: a mapping from keys to rows, a DataFrame of pandas or Polars, whose rows are dicts, or a stream of
                `graph.table(name)`, which comes before everything else; in the body of an iteration any stream from
                outside. The first two become a part of the graph.
            key: of an item; pure, see `group`.
            table_key: of a row of a stream; `key` if None.
            on: the column of a DataFrame that is the key.
            how: "left" gives (item, None) where the table has none, "inner" nothing.
        """
        where = caller()
        if how not in ("left", "inner"):
            raise GraphError(f"join_table takes how= left or inner, not {how!r:.80} (at {where})")
        if isinstance(table, Stream):
            whole = table._depth < self._depth  # of a side input
            return self._joined(table, key, table_key, TableJoin(how == "left", whole, key), (), name, "join_table")
        step = self._name(name, "join_table", key)
        try:
            rows = rows_of(table, on)
        except (TypeError, PayloadError) as error:
            raise GraphError(f"step {step!r} (at {where}): {error}") from None
        return self._part(step, "", Lookup(rows, how == "left", key), "many")

    # fmt: on
    # Below: how steps are added.

    def _joined(
        self,
        other: Stream[Any],
        key: Callable[[T], Any],
        other_key: Callable[[Any], Any] | None,
        join: PairJoin | ExistsJoin | AsOfJoin | TableJoin,
        initial: Any,
        name: str | None,
        kind: str,
    ) -> Stream[Any]:
        """A process over the items of both sides."""
        step = self._name(name, kind, key)
        both = self._both(other, key, other_key, step)
        timers = phase_of_timers(both._timed_steps)
        return both._process(Process(key_of, initial, join, join.on_time, timers), step)

    def _both(
        self, other: Stream[Any], key: Callable[[T], Any], other_key: Callable[[Any], Any] | None, step: str
    ) -> Stream[Any]:
        """The items of both sides, each with its side and key."""
        self._check_graph(other)
        if other_key is not None and not callable(other_key):
            raise GraphError(f"{step!r} takes a function that gives the key, not {other_key!r:.80} (at {caller()})")
        return self._part(step, "left", OfSide(0, key), "one").merge(
            other._part(step, "right", OfSide(1, other_key or key), "one")
        )

    def _loop(
        self,
        kind: str,
        max_rounds: int,
        initial: Any,
        body: Callable[..., Any],
        fold: Callable[..., Any],
        until: Callable[..., Any] | None,
        aggregate: Aggregate[Any, Any] | None,
        name: str | None,
    ) -> _Loop:
        where, step = caller(), self._name(name, kind, body)
        if type(max_rounds) is not int or max_rounds < 1:
            raise GraphError(f"{kind} takes max_rounds= an int of 1 or more, not {max_rounds!r:.80} (at {where})")
        for what, function in (("fold", fold), ("until", until)):
            if not callable(function) and not (function is None and what == "until"):
                raise GraphError(f"{kind} takes {what}= a function, not {function!r:.80} (at {where})")
        if aggregate is not None:
            check_aggregate(aggregate, "aggregate=")
        told = self._graph._draft.open_loop(f"{step}.told", where)
        return _Loop(step, where, told, max_rounds, initial, body, fold, until, aggregate)

    def _entering(self, loop: _Loop, *more: str) -> Stream[Any]:
        """The items that come in, and what comes back, before the gate."""
        entering = self._part(loop.step, "enter", Enter(0), "one", later=True)  # which phase hangs on the body
        return Stream(self._graph, (*entering._origins, *more, loop.told), 0, self._depth + 1)

    def _turned(
        self, loop: _Loop, gate: Stream[Any], timed_steps: int, *, goes_on_empty: bool
    ) -> tuple[Stream[Any], Stream[Any]]:
        """What the body gives, and the states folded."""
        graph, draft, step = self._graph, self._graph._draft, loop.step
        begun = gate._part(step, "begun", is_begun, "keep")
        inside = gate._part(step, "round", pairs, "many")
        graph._loops.append(self._timed_steps)
        try:
            given = loop.body(inside._behind(inside._origins, timed_steps))
            self._check_graph(given)
            given._go_into(self._depth + 1)
        finally:
            loop.timed_steps = graph._loops.pop()
        phase = phase_of_loop(loop.timed_steps)
        if phase + 1 > PHASE_TIMERS_MAX:
            raise GraphError(
                f"step {step!r} (at {loop.where}) is behind {loop.timed_steps} steps with timers or loops; 124 is the "
                f"most"
            )
        draft.replace_function(f"{step}.enter", Enter(phase))
        folding = Folding(loop.initial, loop.fold, loop.aggregate)
        deltas = given
        if loop.aggregate is not None:
            item = EndItem(share_of, loop.aggregate)
            process = Process(share_of, EMPTY, item, PartEnd(), phase_of_timers(given._timed_steps))
            deltas = given._process(process, f"{step}.shares")
        process = Process(
            all_items,
            None,
            folding,
            RoundEnd(folding, loop.max_rounds, loop.until, goes_on_empty),
            PHASE_ROUND_END,
        )
        folded = begun.merge(deltas)._process(process, f"{step}.fold")
        telling = folded._part(step, "tell", Tell(not goes_on_empty), "many", later=True)
        draft.close_loop(loop.told, telling._origins)
        return given, folded

    def _left(self, loop: _Loop, given: Stream[Any], what: str) -> Stream[Any]:
        """What of a stream in a loop leaves it."""
        leave = LeaveLoop(phase_of_loop(loop.timed_steps) + 1)
        leaving = given._part(loop.step, what, leave, "many", optional=True, later=True)
        return self._behind(leaving._origins, loop.timed_steps + 2)

    def _behind(self, origins: tuple[str, ...], timed_steps: int | None = None) -> Stream[Any]:
        """A stream of other operators, in the same loop."""
        return Stream(self._graph, origins, self._timed_steps if timed_steps is None else timed_steps, self._depth)

    def _go_into(self, depth: int) -> None:
        """Items of this stream are to come to a loop within a loop within ..., which is to begin behind them."""
        loops = self._graph._loops
        if depth > len(loops):
            if depth == self._depth:
                return
            raise GraphError(
                f"{self!r} meets a stream from inside an iteration, which is over (at {caller()}); what leaves it is "
                f"what iterate or replay returned"
            )
        if self._depth < depth:
            loops[self._depth] = max(loops[self._depth], self._timed_steps)

    def _part(
        self,
        step: str,
        suffix: str,
        function: Callable[..., Any],
        arity: Arity,
        *,
        optional: bool = False,
        later: bool = False,
    ) -> Stream[Any]:
        """A map that is a part of a step, or all of it where there is no suffix."""
        draft, name = self._graph._draft, f"{step}.{suffix}" if suffix else step
        add = draft.add_optional if optional else draft.add
        added = add(Map(name, step, caller(), function, arity, later), self._origins)
        return self._behind((added.name,))

    def _chosen(
        self, key: Callable[[T], Any], initial: Any, step: Callable[..., Any], name: str, shown: Callable[..., Any]
    ) -> Stream[Any]:
        """A scan whose outputs are tuples, and their members."""
        return self._scan(key, initial, step, name, shown)._part(name, "given", payloads_of, "many")

    def _scan(
        self,
        key: Callable[[T], Any],
        initial: Any,
        step: Callable[[Any, T], tuple[Any, U]],
        name: str,
        shown: Callable[..., Any],
    ) -> Stream[U]:
        return self._with_state(key, ScanState(key, initial, step, shown), ScanOutput(initial, step, shown), name)

    def _with_state(self, key: Callable[[T], Any], state: LoopFunction, output: LoopFunction, name: str) -> Stream[Any]:
        """A grouping by key that carries a state: what `state` gives goes back to it, what `output` gives goes on."""
        draft, where = self._graph._draft, caller()
        if not callable(key):
            raise GraphError(f"step {name!r} (at {where}) takes a function that gives the key, not {key!r:.80}")
        loop = draft.open_loop(f"{name}.states", where)
        group = draft.add(Group(name, name, where, ScanKey(key), 2), (*self._origins, loop))
        states = draft.add(Map(f"{name}.state", name, where, state, "many"), (group.name,))
        draft.close_loop(loop, (states.name,))
        out = draft.add(Map(f"{name}.output", name, where, output, "many"), (group.name,))
        return self._behind((out.name,))

    def _step(self, step: Step, name: str) -> Stream[Any]:
        if step.key is None:
            return self.flat_map(step.on_item, name=name, with_time=True)
        if step.on_time is None:
            return self._chosen(step.key, EMPTY, step.on_item, name, user_function(step.on_item))
        phase = phase_of_timers(self._timed_steps)
        return self._process(Process(step.key, EMPTY, step.on_item, step.on_time, phase), name)

    def _steps(self, steps: Sequence[Step], whole: str, part: str) -> Stream[Any]:
        """Several, one behind the other; the last has the name of the whole."""
        stream: Stream[Any] = self
        for step in steps[:-1]:
            stream = stream._step(step, f"{whole}.{'items' if step.key is None else part}")
        return stream._step(steps[-1], whole)

    def _process(self, process: Process, name: str) -> Stream[Any]:
        draft, where = self._graph._draft, caller()
        if process.phase > PHASE_TIMERS_MAX and process.phase != PHASE_ROUND_END:
            raise GraphError(
                f"step {name!r} (at {where}) is behind {self._timed_steps} steps with timers; 126 is the most"
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
        return self._behind((out.name,), self._timed_steps + 1)

    def _map(
        self,
        function: Callable[..., Any],
        arity: Arity,
        name: str | None,
        kind: str,
        with_time: bool = False,
        later: bool = False,
        on_error: OnError = "error",
    ) -> Stream[Any]:
        where, named = caller(), self._name(name, kind, function)
        if not diverts(on_error, f"{kind} {named!r}", where):
            return self._add(Map(named, "", where, function, arity, later, with_time))
        tried = Map(
            named, "", where, Tried(named, function, arity), "one" if arity == "one" else "many", later, with_time
        )
        return self._add(tried)._without_errors(named, where)

    def _without_errors(self, step: str, where: str) -> Stream[T]:
        """The same without what a step has set apart, which goes to the sink of all errors."""
        graph, draft = self._graph, self._graph._draft
        good = draft.add(Map(f"{step}.good", step, where, WithoutErrors(), "keep"), self._origins)
        errors = draft.add(Map(f"{step}.errors", step, where, ErrorsOnly(), "many"), self._origins)
        if not graph._has_errors:
            graph._has_errors = True
            draft.add(Sink(ERRORS, ERRORS, where))
        draft.connect(errors.name, ERRORS)
        return self._behind((good.name,))

    def _add(self, operator: Map | Group) -> Stream[Any]:
        added = self._graph._draft.add(dataclasses.replace(operator, step=operator.name), self._origins)
        return self._behind((added.name,))

    def _name(self, name: str | None, kind: str, function: Callable[..., Any]) -> str:
        if not callable(function):
            raise GraphError(f"{kind} takes a function, not {function!r} (at {caller()})")
        if name is not None:
            _check_name("step", name, caller())
            return name
        return self._graph._draft.fresh_name(f"{kind} {name_of(function)}")

    def _named(self, name: str | None, kind: str, key: Callable[..., Any] = all_items) -> str:
        """The name of a step that may go without a function of the user."""
        if name is None and key in (all_items, itself):
            return self._graph._draft.fresh_name(kind)
        return self._name(name, kind, key)

    def _check_graph(self, other: Stream[Any]) -> None:
        if not isinstance(other, Stream) or other._graph is not self._graph:
            raise GraphError(
                f"a stream of graph {self._graph.name!r} meets {other!r}, which is not a stream of it (at {caller()})"
            )

    def __repr__(self) -> str:
        return f"<Stream {', '.join(self._origins)} of graph {self._graph.name!r}>"


@dataclasses.dataclass
class _Loop:
    """What a loop is given.

    Attributes:
        told: the feedback edge by which its gate hears how the rounds go on.
        timed_steps: it comes behind so many, once its body is written.
    """

    step: str
    where: str
    told: str
    max_rounds: int
    initial: Any
    body: Callable[[Stream[Any]], Stream[Any]]
    fold: Callable[[Any, Any], Any]
    until: Callable[[Any], object] | None
    aggregate: Aggregate[Any, Any] | None
    timed_steps: int = 0


def _check_name(kind: str, name: object, where: str) -> None:
    if not isinstance(name, str) or not name:
        raise GraphError(f"a {kind} is named {name!r:.80} (at {where}); a name is a text that is not empty")


def _keyed_other(other: object) -> tuple[Stream[Any], Callable[[Any], Any]]:
    if not isinstance(other, KeyedStream):
        raise GraphError(f"a keyed stream is joined with one that has keys too, not {other!r:.80} (at {caller()})")
    return other._stream, other._key


def _checked_end(aggregate: object, parts: Span | None) -> int | None:
    """The length of the stretches in which something is aggregated at the end."""
    check_aggregate(aggregate, "at_end:")
    if parts is None:
        return None
    span = _span("at_end: parts", parts, caller())
    if not span:
        raise GraphError(f"at_end: parts={parts!r} (at {caller()}) is no stretch of time; give 1 or more")
    return span


def _span(what: str, given: object, where: str) -> int:
    span = span_from(given)
    if span is None or span < 0:
        raise GraphError(
            f"{what}={given!r:.80} (at {where}) is not an int of 0 or more, in the unit of the items' time, nor where "
            f"that is milliseconds a timedelta or a text such as '10s'"
        )
    return span


def _bounds_of(within: object, where: str) -> tuple[int, int]:
    bounds = [span_from(bound) for bound in within] if isinstance(within, tuple) and len(within) == 2 else [None]
    before, after = bounds[0], bounds[-1]
    if before is None or after is None:
        raise GraphError(
            f"within={within!r:.80} (at {where}) is not a pair of ints (before, after), timedeltas or texts such as "
            f"'10s': how long before a left item, and how long after it, a right one may be; nor windows, such as "
            f"drift.windows.tumbling(60)"
        )
    if before + after < 0:
        raise GraphError(f"within={within!r} (at {where}) is empty: before + after is to be 0 or more")
    return before, after


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
        return KeyedStream(self._stream._map(predicate, "keep", name, "filter", with_time), self._key)

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

    def window(self, windows: Windows, *, early: Early | None = None) -> WindowedStream[K, T]:
        """Windows of each key; see `Stream.window`."""
        return WindowedStream(self._stream, self._key, windows, early)

    def at_end(
        self, aggregate: Aggregate[T, V], *, parts: Span | None = None, name: str | None = None
    ) -> Stream[tuple[K, V]]:
        """(key, value) of all items of each key, when the input has ended.

        They come in the order of the input items that keys first came from.

        Args:
            aggregate: one of `drift.agg`, such as `drift.agg.count()`.
            parts: in two steps, as `Stream.at_end` has it: for few keys that have many items each.
        """
        steps = at_end(self._key, aggregate, keyed=True, parts=_checked_end(aggregate, parts))
        return self._stream._steps(steps, self._stream._named(name, "at end by", self._key), "parts")

    # fmt: off
    @overload
    def join(
        self, other: KeyedStream[K, U], *, within: Within = None, how: Literal["inner"] = "inner",
        name: str | None = None,
    ) -> Stream[tuple[T, U]]: ...
    @overload
    def join(
        self, other: KeyedStream[K, U], *, within: Within = None, how: Literal["left"],
        name: str | None = None,
    ) -> Stream[tuple[T, U | None]]: ...
    @overload
    def join(
        self, other: KeyedStream[K, U], *, within: Within = None, how: Literal["right"],
        name: str | None = None,
    ) -> Stream[tuple[T | None, U]]: ...
    @overload
    def join(
        self, other: KeyedStream[K, U], *, within: Within = None, how: Literal["full"],
        name: str | None = None,
    ) -> Stream[tuple[T | None, U | None]]: ...
    @overload
    def join(
        self, other: KeyedStream[K, U], *, within: Within = None, how: Literal["semi", "anti"],
        name: str | None = None,
    ) -> Stream[T]: ...
    def join(
        self, other: KeyedStream[K, Any], *, within: Within = None, how: Any = "inner",
        name: str | None = None,
    ) -> Stream[Any]:
        """As `Stream.join`, by the keys of both."""
        right, right_key = _keyed_other(other)
        return self._stream.join(right, self._key, right_key, within=within, how=how, name=name)

    @overload
    def join_as_of(
        self, other: KeyedStream[K, U], *, within: Span | None = None, how: Literal["left"] = "left",
        name: str | None = None,
    ) -> Stream[tuple[T, U | None]]: ...
    @overload
    def join_as_of(
        self, other: KeyedStream[K, U], *, within: Span | None = None, how: Literal["inner"], name: str | None = None,
    ) -> Stream[tuple[T, U]]: ...
    def join_as_of(
        self, other: KeyedStream[K, Any], *, within: Span | None = None, how: Any = "left", name: str | None = None,
    ) -> Stream[Any]:
        """As `Stream.join_as_of`, by the keys of both."""
        right, right_key = _keyed_other(other)
        return self._stream.join_as_of(right, self._key, right_key, within=within, how=how, name=name)

    # fmt: on
    def limit(self, count: int, offset: int = 0, *, name: str | None = None) -> Stream[T]:
        """As `Stream.limit`, of each key."""
        return self._stream.limit(count, offset, key=self._key, name=name)

    def dedup(self, *, within: Span | None = None, name: str | None = None) -> Stream[T]:
        """As `Stream.dedup`: the first item of each key."""
        return self._stream.dedup(self._key, within=within, name=name)

    def __repr__(self) -> str:
        return f"<{self._stream!r} by {name_of(self._key)}>"


class WindowedStream(Generic[K, T]):
    """A stream cut into windows; an aggregate says what each gives. `Stream.window` makes it."""

    def __init__(
        self, stream: Stream[T], key: Callable[[T], Any], windows: Windows, early: Early | None = None
    ) -> None:
        check_windows(windows)
        if early is not None and not isinstance(early, Early):
            raise GraphError(f"early= takes drift.windows.every(...), not {early!r:.80} (at {caller()})")
        self._stream = stream
        self._key = key
        self._windows = windows
        self._early = early

    @overload
    def aggregate(self, aggregate: Aggregate[T, V], /, *, name: str | None = None) -> Stream[Window[K, V]]: ...
    @overload
    def aggregate(
        self, /, *, name: str | None = None, **named: Aggregate[T, Any]
    ) -> Stream[Window[K, dict[str, Any]]]: ...
    def aggregate(
        self, aggregate: Aggregate[T, Any] | None = None, /, *, name: str | None = None, **named: Aggregate[T, Any]
    ) -> Stream[Any]:
        """A `drift.Window` for each window that has items: its key, start, end and value.

        A window [start, end) by time gives its result at `end - 1`, after every item of that time.

        Args:
            aggregate: one of `drift.agg`, such as `drift.agg.sum(function)`.
            named: or several at once, and the value is a dict: `aggregate(n=drift.agg.count(), last=drift.agg.last())`.
        """
        if (aggregate is None) is not bool(named):
            raise GraphError(f"aggregate takes one of drift.agg, or several of them by name (at {caller()})")
        chosen = several(**named) if aggregate is None else aggregate
        check_aggregate(chosen, "aggregate:")
        steps = self._windows.steps(self._key, chosen, self._early)
        return self._stream._steps(steps, self._stream._named(name, "window by", self._key), "slices")

    def count(self, *, name: str | None = None) -> Stream[Window[K, int]]:
        """How many items each window has."""
        return self.aggregate(agg.count(), name=name)

    def sum(self, of: Callable[[T], V], *, name: str | None = None) -> Stream[Window[K, V]]:
        """The sum of `of(payload)` in each window."""
        return self.aggregate(agg.sum(of), name=name)

    def mean(self, of: Callable[[T], Any], *, name: str | None = None) -> Stream[Window[K, Any]]:
        """The mean of `of(payload)` in each window."""
        return self.aggregate(agg.mean(of), name=name)

    def min(self, of: Callable[[T], V], *, name: str | None = None) -> Stream[Window[K, V]]:
        """The least `of(payload)` in each window."""
        return self.aggregate(agg.min(of), name=name)

    def max(self, of: Callable[[T], V], *, name: str | None = None) -> Stream[Window[K, V]]:
        """The greatest `of(payload)` in each window."""
        return self.aggregate(agg.max(of), name=name)

    def reduce(self, function: Callable[[T, T], T], *, name: str | None = None) -> Stream[Window[K, T]]:
        """The payloads of each window by two; see `drift.agg.reduce`."""
        return self.aggregate(agg.reduce(function), name=name)

    def fold(self, initial: S, function: Callable[[S, T], S], *, name: str | None = None) -> Stream[Window[K, S]]:
        """The payloads of each window folded from `initial`; see `drift.agg.fold`."""
        return self.aggregate(agg.fold(initial, function), name=name)

    def collect(self, *, name: str | None = None) -> Stream[Window[K, tuple[T, ...]]]:
        """The payloads of each window, as a tuple in order."""
        return self.aggregate(agg.collect(), name=name)

    def __repr__(self) -> str:
        return f"<{self._stream!r} in windows {self._windows!r}>"
