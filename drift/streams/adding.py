"""How operators are added to a graph: the base of all steps.

Invariant: a step of the catalogue consists of maps and groupings with one `step`, each with the line that declared it.

Why: `_part`, `_with_state`, `_process` and `_map` are the only ways to add to the draft, and each takes both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from drift.calling.asks import Asks, Recorded, checked
from drift.diverting import ErrorsOnly, LateOnly, OnError, Tried, WithoutErrors, diverts
from drift.flow import windows
from drift.flow.accumulators import check_aggregate
from drift.flow.choosing import Members, all_items, itself
from drift.flow.opened import EMPTY, Lowered
from drift.operators import (
    LoopFunction,
    Process,
    ProcessOutput,
    ProcessState,
    ProcessTimers,
    ScanKey,
    ScanOutput,
    ScanState,
)
from drift_graph.errors import GraphError
from drift_graph.functions import caller, field_hint, name_of, user_function
from drift_graph.meta import PHASE_ROUND_END, PHASE_TIMERS_MAX, phase_of_timers
from drift_graph.moments import Span, span_from
from drift_graph.operators import Arity, Group, Map, Sink

if TYPE_CHECKING:
    from drift.streams.graph import Graph
    from drift.streams.stream import Stream

T = TypeVar("T")
U = TypeVar("U")

#: The sink of diverted items.
ERRORS = "errors"


class Steps(Generic[T]):
    """The private methods of all streams."""

    def __init__(self, graph: Graph, origins: tuple[str, ...], timed_steps: int = 0, depth: int = 0) -> None:
        self._graph = graph
        self._origins = origins
        self._timed_steps = timed_steps  # number of steps with timers in front of this, in its loop
        self._depth = depth  # number of loops around it

    def _behind(
        self, origins: tuple[str, ...], timed_steps: int | None = None, depth: int | None = None
    ) -> Stream[Any]:
        """A stream of other operators: by default in the same loop, behind as many steps with timers."""
        raise NotImplementedError

    def _check_depth(self, depth: int) -> None:
        """Check that items of this stream can enter a loop at this depth of nesting."""
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

    def _durable_if(self, durable: bool) -> Stream[Any]:
        """This stream; its operators are durable if requested."""
        for origin in self._origins if durable else ():
            self._graph._draft.mark_durable(origin)
        return self._behind(self._origins)

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
        """A map that is a part of a step, or all of it if there is no suffix."""
        draft, name = self._graph._draft, f"{step}.{suffix}" if suffix else step
        add = draft.add_optional if optional else draft.add
        added = add(Map(name, step, caller(), function, arity, later), self._origins)
        return self._behind((added.name,))

    def _chosen(
        self, key: Callable[[T], Any], initial: Any, step: Callable[..., Any], name: str, shown: Callable[..., Any]
    ) -> Stream[Any]:
        """A scan whose outputs are tuples, followed by their members."""
        return self._scan(key, initial, step, name, shown)._part(name, "results", Members(), "many")

    def _scan(
        self,
        key: Callable[[T], Any],
        initial: Any,
        step: Callable[[Any, T], tuple[Any, U]],
        name: str,
        shown: Callable[..., Any],
    ) -> Stream[U]:
        state = ScanState(key=key, initial=initial, step=step, user_function=shown)
        return self._with_state(key, state, ScanOutput(initial, step, shown), name)

    def _with_state(self, key: Callable[[T], Any], state: LoopFunction, output: LoopFunction, name: str) -> Stream[Any]:
        """A grouping by key that carries a state: the result of `state` returns to it, that of `output` goes on."""
        draft, where = self._graph._draft, caller()
        if not callable(key):
            raise GraphError(
                f"step {name!r} (at {where}) takes a function that gives the key, not {key!r:.80}{field_hint(key)}"
            )
        loop = draft.open_loop(f"{name}.states", where)
        group = draft.add(Group(name, name, where, ScanKey(key), 2), (*self._origins, loop))
        states = draft.add(Map(f"{name}.state", name, where, state, "many"), (group.name,))
        draft.close_loop(loop, (states.name,))
        out = draft.add(Map(f"{name}.output", name, where, output, "many"), (group.name,))
        return self._behind((out.name,))

    def _step(self, step: Lowered, name: str) -> Stream[Any]:
        if step.key is None:
            return self._map(step.on_item, "many", name, "flat_map", True)
        if step.on_time is None:
            return self._chosen(step.key, EMPTY, step.on_item, name, user_function(step.on_item))
        phase = phase_of_timers(self._timed_steps)
        return self._process(Process(step.key, EMPTY, step.on_item, step.on_time, phase), name)

    def _steps(self, steps: Sequence[Lowered], name: str, part: str) -> Stream[Any]:
        """Several steps in a row; the last has `name`."""
        stream: Steps[Any] = self
        for step in steps[:-1]:
            stream = stream._step(step, f"{name}.{'items' if step.key is None else part}")
        return stream._step(steps[-1], name)

    def _process(self, process: Process, name: str, *, is_timed: bool = True) -> Stream[Any]:
        draft, where = self._graph._draft, caller()
        if process.phase > PHASE_TIMERS_MAX and process.phase != PHASE_ROUND_END:
            raise GraphError(
                f"step {name!r} (at {where}) is behind {self._timed_steps} steps with timers; 126 is the most"
            )
        carried: list[tuple[str, str, LoopFunction, bool]] = [("states", "state", ProcessState(process), False)]
        if is_timed:
            carried.append(("notes", "timers", ProcessTimers(process), True))
        loops = [draft.open_loop(f"{name}.{loop}", where) for loop, *_ in carried]
        group = draft.add(Group(name, name, where, ScanKey(process.key), 2), (*self._origins, *loops))
        for loop, (_, suffix, function, later) in zip(loops, carried):
            added = draft.add(Map(f"{name}.{suffix}", name, where, function, "many", later, True), (group.name,))
            draft.close_loop(loop, (added.name,))
        out = draft.add(Map(f"{name}.output", name, where, ProcessOutput(process), "many", False, True), (group.name,))
        return self._behind((out.name,), self._timed_steps + is_timed)

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
        if isinstance(function, Recorded):
            if arity != "one" or with_time or later:
                raise GraphError(
                    f"{kind} {named!r} (at {where}) takes no drift.recorded(...): only map does, without with_time and "
                    f"later; give its output to {kind}"
                )
            asks = Asks(function.function, diverts=diverts(on_error, f"map {named!r}", where), at_once=True)
            return self._asking(asks, named, where)
        if not diverts(on_error, f"{kind} {named!r}", where):
            return self._add(Map(named, "", where, function, arity, later, with_time))
        map_or_divert = Map(
            named, "", where, Tried(named, function, arity), "one" if arity == "one" else "many", later, with_time
        )
        return self._add(map_or_divert)._without_errors(named, where)

    def _asking(self, asks: Asks, name: str, where: str) -> Stream[Any]:
        asking = self._add(Map(name, "", where, checked(asks, name), "one"))
        return asking._without_errors(name, where) if asks.diverts else asking

    def _without_errors(self, step: str, where: str, *, errors: bool = True, late: str = "") -> Stream[T]:
        """The stream without diverted items, which go to the sink of errors, and to that of late items."""
        graph, draft = self._graph, self._graph._draft
        good = draft.add(Map(f"{step}.good", step, where, WithoutErrors(), "keep"), self._origins)
        sinks: list[tuple[str, ErrorsOnly | LateOnly]] = [(ERRORS, ErrorsOnly())] if errors else []
        sinks += [(late, LateOnly())] if late else []
        for sink, only in sinks:
            of = "errors" if sink == ERRORS else "late"
            apart = draft.add(Map(f"{step}.{of}", step, where, only, "many"), self._origins)
            if sink not in graph._diverts_to:
                graph._diverts_to.add(sink)
                draft.add(Sink(sink, sink, where))
            draft.connect(apart.name, sink)
        return self._behind((good.name,))

    def _add(self, operator: Map | Group) -> Stream[Any]:
        added = self._graph._draft.add(dataclasses.replace(operator, step=operator.name), self._origins)
        return self._behind((added.name,))

    def _name(self, name: str | None, kind: str, function: Callable[..., Any]) -> str:
        if not callable(function):
            raise GraphError(f"{kind} takes a function, not {function!r} (at {caller()}){field_hint(function)}")
        if name is not None:
            check_name("step", name, caller())
            return name
        return self._graph._draft.name_of_unnamed(f"{kind} {name_of(function)}")

    def _named(self, name: str | None, kind: str, key: Callable[..., Any] = all_items) -> str:
        """The name of a step that may have no function of the user."""
        if name is None and key in (all_items, itself):
            return self._graph._draft.name_of_unnamed(kind)
        return self._name(name, kind, key)

    def _check_graph(self, other: Steps[Any]) -> None:
        if not isinstance(other, Steps) or other._graph is not self._graph:
            raise GraphError(
                f"a stream of graph {self._graph.name!r} meets {other!r}, which is not a stream of it (at {caller()})"
            )

    def __repr__(self) -> str:
        return f"<Stream {', '.join(self._origins)} of graph {self._graph.name!r}>"


#: Methods by the names that they have in other libraries, for messages.
_ELSEWHERE = {
    "key_by": ("group_by", "groupby", "groupBy", "keyBy", "partition_by", "partitionBy"),
    "window": ("group_by_dynamic", "resample", "over", "tumbling", "sliding", "session"),
    "aggregate": ("agg",),
    "at_end": ("agg", "summarize"),
    "with_columns": ("with_column", "withColumn", "assign", "mutate", "apply"),
    "flat_map": ("flatMap", "explode"),
    "map": ("transform", "map_values", "mapValues"),
    "filter": ("where", "query"),
    "merge": ("union", "concat", "concat_with", "vstack"),
    "dedup": ("unique", "distinct", "drop_duplicates", "dropDuplicates"),
    "limit": ("head", "take"),
    "sink": ("to", "add_sink", "addSink", "sink_to", "write", "output", "print"),
    "join_as_of": ("join_asof", "merge_asof", "asof_join"),
}


def elsewhere(name: str, kind: type) -> str:
    """What the method is called here that is called so in another library; "" if there is none that `kind` has."""
    found = [here for here, names in _ELSEWHERE.items() if name in names and hasattr(kind, here)]
    if found == ["window"] and name in windows.__all__:
        return f"; it is key_by(...).window(drift.windows.{name}(...)) here"
    return f"; it is called {found[0]} here" if found else ""


def check_name(kind: str, name: object, where: str) -> None:
    if not isinstance(name, str) or not name:
        raise GraphError(f"a {kind} is named {name!r:.80} (at {where}); a name is a text that is not empty")


def parts_of(aggregate: object, parts: Span | None) -> int | None:
    """The length of the ranges for aggregation in two steps."""
    check_aggregate(aggregate, "at_end:")
    if parts is None:
        return None
    span = span_of("at_end: parts", parts, caller())
    if not span:
        raise GraphError(f"at_end: parts={parts!r} (at {caller()}) is no stretch of time; give 1 or more")
    return span


def span_of(what: str, value: object, where: str, *, least: int | None = 0) -> int:
    span = span_from(value)
    if span is None or (least is not None and span < least):
        bound = "" if least is None else f" of {least} or more"
        raise GraphError(
            f"{what}={value!r:.80} (at {where}) is not an int{bound}, in the unit of the items' time, nor where "
            f"that is milliseconds a timedelta or a text such as '10s'"
        )
    return span
