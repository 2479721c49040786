"""Turns a graph into an execution plan: stages, programs of maps between them, and the order to run them in.

Invariant: a plan gives the same metas and payloads as the graph's operators one by one, fused or not.

Why: there are two kinds of fusion. Maps between two stages become a program, which computes the same bytes. A grouping
whose cycle is one of `fusing.forms`, with no other consumers, becomes one stage of that form.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

from drift.flow.fields import Fields, names_of
from drift.machines.counts import Counts, Left
from drift.machines.fusing import Fused, fused_form
from drift.machines.keyed import KeyedStage, Place
from drift.machines.levels import Levels, levels_of
from drift.machines.logics import GroupLogic
from drift.machines.maps import Program
from drift.operators import OpensWindows
from drift_graph.functions import field_of
from drift_graph.graph import Dataflow
from drift_graph.meta import END_OF_TIME, varint
from drift_graph.moments import Field
from drift_graph.operators import Map


class Plan:
    """How a dataflow runs on the optimistic machines.

    Args:
        fused: whether scans run as one loop; False runs their cycles item by item, as written.
        only: names of the groupings to run, complete components; items for other groupings leave like those for sinks.
        counted: a clock, if the items that leave operators are to be counted, and their time at work.

    Attributes:
        programs: the maps after each source and each stage, by its name.
        components: names of the groupings, in an order in which items flow; groupings on a common cycle are together,
            but cycles by later rounds of iterations do not count.
        loops: the same, where these cycles count too.
        counts: of the items that left operators so far, except operators inside fused stages; None if not counted.
        puts_later: whether maps that run put items at later times, which may reach stages before their time.
        rounds_from: below it no item is in a round.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        *,
        fused: bool = True,
        only: Collection[str] | None = None,
        counted: Callable[[], float] | None = None,
    ) -> None:
        self.dataflow = dataflow
        self._fused: dict[str, Fused] = {}
        if fused:
            for group in dataflow.groups.values():
                form = fused_form(dataflow, group)
                if form is not None:
                    self._fused[group.name] = form
        self.counts = counts = Counts(counted) if counted is not None else None
        self.programs = {source.name: Program(dataflow, source.name, counts) for source in dataflow.sources}
        for name in dataflow.groups:
            self.programs[name] = Program(dataflow, self.output_of(name), counts)
        at_once = {name: program.targets_at_once for name, program in self.programs.items()}
        every = {name: program.targets for name, program in self.programs.items()}
        self.components, self.loops = (
            [each for each in _components(list(dataflow.groups), targets) if only is None or each[0] in only]
            for targets in (at_once, every)
        )
        inside = {name for form in self._fused.values() for name in form.maps}
        later = [each for each in dataflow.operators if each.puts_later and each.name not in inside]
        self.puts_later = bool(later)
        self.rounds_from = min((each.rounds_from for each in later), default=END_OF_TIME)

    def totals(self) -> dict[str, Left]:
        """By operator what left it; may be called from any thread."""
        return {name: count.totals() for name, count in (self.counts or {}).items()}

    def output_of(self, name: str) -> str:
        """The operator that the output of a grouping leaves: of a fused loop, its last one."""
        return self._fused[name].output if name in self._fused else name

    def inside_loops(self) -> list[str]:
        """The groupings and maps that are fused into one loop, so that no items travel between them."""
        maps = (name for form in self._fused.values() for name in form.maps if name != form.output)
        return [*self._fused, *maps]

    def stages(self) -> dict[str, KeyedStage]:
        """New machines for every grouping, for one worker."""
        return {name: self.stage(name, component) for component in self.components for name in component}

    def stage(self, name: str, component: tuple[str, ...]) -> KeyedStage:
        """A new machine for a grouping, which is in this component."""
        cyclic = self.is_cyclic(component)
        if name in self._fused:
            return self._fused[name].make(cyclic)
        group = self.dataflow.groups[name]
        place = Place(group, None, None, (varint(self.dataflow.ranks[name]),))
        return KeyedStage(GroupLogic(group.key, group.window), place, cyclic=cyclic)

    def stage_of(self, name: str) -> KeyedStage:
        """A new machine for a grouping."""
        return self.stage(name, next(each for each in self.components if name in each))

    @cached_property
    def levels(self) -> Levels:
        """The levels of targets and groupings."""
        stages = self.stages()
        waits = {name: stage.is_timed or stage.has_columns for name, stage in stages.items()}
        before = {name: [origin for origin, each in self.programs.items() if name in each.targets] for name in stages}
        return levels_of(
            [source.name for source in self.dataflow.sources],
            self.components,
            before,
            waits,
            in_memory={
                name: len(before[name]) == 1
                and waits.get(before[name][0], False)
                and (stage.keeps_owner or self._keeps_key(stages[before[name][0]], before[name][0], name))
                for name, stage in stages.items()
            },
            is_cyclic={component: self.is_cyclic(component) for component in self.components},
            puts_later=self.puts_later,
        )

    def _keeps_key(self, stage: KeyedStage, origin: str, target: str) -> bool:
        """Whether items of a grouping have the key of those before the grouping `origin` that they were made of.

        That is known of fields that the stage, and all maps on the way, are known to keep as they are. A path into a
        field is not followed.
        """
        key, fields = self.key_of(target), names_of(self.key_of(origin))
        names = stage.keeps_key(fields) if stage.keeps_key is not None else None
        names = None if names is None or any("." in name for name in names) else tuple(names)
        todo, done = [(self.output_of(origin), names)], set[Any]()
        while todo:
            done.add(at := todo.pop())
            name, names = at
            for consumer in self.dataflow.consumers(name):
                if consumer.name == target and not (type(key) in (Field, Fields) and key.paths == names):
                    return False
                if isinstance(consumer, Map) and (following := (consumer.name, _passed(consumer, names))) not in done:
                    todo.append(following)
        return True

    def settled(self, stages: Mapping[str, KeyedStage]) -> dict[str, KeyedStage]:
        """Those of a worker's stages that may wait until nothing comes below their rows, and then correct nothing."""
        if self.puts_later:
            return {}
        cyclic = self.levels.cyclic
        return {name: stage for name, stage in stages.items() if stage.has_columns and name not in cyclic}

    def key_of(self, name: str) -> Any:
        """The key function of a grouping, for items that come from outside its own cycle."""
        return self._fused[name].key if name in self._fused else self.dataflow.groups[name].key

    def opens(self, name: str) -> OpensWindows | None:
        """What opens the windows of a grouping that is the loop of such; else None."""
        return self.stage_of(name).in_order.opens

    def is_cyclic(self, component: tuple[str, ...]) -> bool:
        """Whether items of a component can come back to it in the same round."""
        return len(component) > 1 or component[0] in self.programs[component[0]].targets_at_once

    def is_loop(self, loop: tuple[str, ...]) -> bool:
        """Whether items of one of `loops` can come back to it."""
        return len(loop) > 1 or loop[0] in self.programs[loop[0]].targets


def _passed(operator: Map, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The fields of what a map gives that are these of what it takes; None if that is not known of all."""
    if operator.arity == "keep" or names is None:
        return names
    passes: Callable[[str], str | None] = field_of(operator.function, "passes", lambda name: None)
    found = [each for each in map(passes, names) if each is not None]
    return tuple(found) if len(found) == len(names) else None


def _components(names: list[str], targets: Mapping[str, Sequence[str]]) -> list[tuple[str, ...]]:
    """Strongly connected components of the groupings, each before those it feeds (Tarjan)."""
    found: list[tuple[str, ...]] = []
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    open_names: list[str] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        open_names.append(name)
        for target in targets[name]:
            if target not in targets:
                continue  # a sink
            if target not in index:
                visit(target)
            if target in open_names:
                low[name] = min(low[name], low[target])
        if low[name] == index[name]:
            at = open_names.index(name)
            found.append(tuple(open_names[at:]))
            del open_names[at:]

    for name in names:
        if name not in index:
            visit(name)
    return found[::-1]


def feeding_step(dataflow: Dataflow, sink: str) -> str:
    """The step that makes the items that a sink takes, for error messages: filters only let them pass."""
    name = next((edge.origin for edge in dataflow.edges if edge.target == sink), sink)
    while isinstance(operator := dataflow[name], Map) and operator.arity == "keep":
        origins = [edge.origin for edge in dataflow.edges if edge.target == name]
        if len(origins) != 1:
            break
        name = origins[0]
    return operator.step
