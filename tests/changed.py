"""Drawn graphs, drawn edits of them, and what a run gives that goes on with the edited graph.

Invariant: a step keeps its number through every edit that leaves it the same step, whatever it is called; so what
should become of each step, and of each sink, is known from the edits, without any matching of names.

Why: the expected output is computed by a walk over plain tuples and dicts, item by item, with the old graph up to the
cut and the new one from there on. A step's states are kept by its number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import drift
from drift_graph.graph import Dataflow

#: Draws a number from 0 to below the given one.
Pick = Callable[[int], int]

NAMES = "abcdefgh"
SOURCE = 0
PROBE = "all"


def plus(n: int) -> int:
    return n + 1


def double(n: int) -> int:
    return 2 * n


def less(n: int) -> int:
    return -n


def not_third(n: int) -> bool:
    return n % 3 != 0


def not_seventh(n: int) -> bool:
    return n % 7 != 0


def key_of(n: int) -> int:
    return n % 3


def other_key(n: int) -> int:
    return n % 4


def add(total: int, n: int) -> tuple[int, int]:
    return total + n, total + n


def count(total: int, n: int) -> tuple[int, int]:
    return total + 1, 10 * (total + 1) + n % 10


def as_time(n: int) -> int:
    return n


FUNCTIONS: dict[str, Sequence[Callable[..., Any]]] = {
    "map": (plus, double, less), "filter": (not_third, not_seventh), "scan": (add, count), "call": (plus, double),
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """A step: the numbers of those that it gets its items from, and of its function among those of its kind."""

    kind: str
    function: int
    origins: tuple[int, ...]
    name: str | None = None
    is_durable: bool = False

    @property
    def has_state(self) -> bool:
        return self.kind == "scan"

    @property
    def does(self) -> tuple[str, int]:
        return self.kind, self.function


@dataclass(frozen=True)
class Recipe:
    """A graph: its steps by number, in the order of declaration, and the steps that each sink gets items from.

    Attributes:
        free: a number that no step has, nor had.
    """

    steps: Mapping[int, Step]
    sinks: Mapping[str, tuple[int, ...]]
    free: int

    def above(self, number: int) -> dict[int, None]:
        """The steps that items pass on their way to a step, and the step."""
        found = {} if number == SOURCE else {number: None}
        for origin in self.steps[number].origins if number != SOURCE else ():
            found |= self.above(origin)
        return found

    def cone(self, sink: str) -> dict[int, None]:
        return {each: None for origin in self.sinks[sink] for each in self.above(origin)}

    def states_before(self, number: int) -> set[int]:
        """The other steps with state that items pass on their way to a step."""
        return {each for each in self.above(number) if each != number and self.steps[each].has_state}

    def is_whole(self) -> bool:
        """Whether each step leads to a sink, is declared behind those in front of it, and no two have one name."""
        used = {each for sink in self.sinks for each in self.cone(sink)}
        names = [each.name for each in self.steps.values() if each.name is not None]
        seen: set[int] = {SOURCE}
        for number, each in self.steps.items():
            if not seen.issuperset(each.origins) or not each.origins:
                return False
            seen.add(number)
        return used == set(self.steps) and len(set(names)) == len(names) and all(self.sinks.values())

    def built(self) -> tuple[drift.Graph, dict[int, str]]:
        """The graph, and the name of each step in it, by number."""
        graph = drift.Graph("drawn")
        streams: dict[int, Any] = {SOURCE: graph.source("numbers", time=drift.EventTime(as_time, lateness=0))}
        names: dict[int, str] = {}

        def of(origins: Sequence[int]) -> Any:
            first, *others = (streams[each] for each in origins)
            return first.merge(*others) if others else first

        for number, step in self.steps.items():
            before = set(graph._draft._operators)
            stream, function = of(step.origins), FUNCTIONS[step.kind][step.function]
            if step.kind == "scan":
                key, more = (key_of, other_key)[step.function], {"durable": step.is_durable}
                streams[number] = stream.scan(key, 0, function, name=step.name, **more)
            elif step.kind == "call":
                streams[number] = stream.call(function, name=step.name, timeout_s=None)
            else:
                streams[number] = getattr(stream, step.kind)(function, name=step.name, durable=step.is_durable)
            names[number] = next(each for each in graph._draft._operators if each not in before)
        streams[SOURCE].sink(PROBE)
        for sink, origins in self.sinks.items():
            of(origins).sink(sink)
        return graph, names


def drawn(pick: Pick, *, in_pieces: bool = False) -> Recipe:
    """A graph of one to six steps.

    Args:
        in_pieces: whether steps may be durable, or calls.
    """
    steps: dict[int, Step] = {}
    free = list(NAMES)
    for number in range(1, 2 + pick(6)):
        kind = ("map", "filter", "scan", "call")[pick(4 if in_pieces else 3)]
        name = free.pop(pick(len(free))) if pick(3) else None
        is_durable = in_pieces and kind != "call" and not pick(4)
        steps[number] = Step(kind, pick(len(FUNCTIONS[kind])), _origins(pick, number), name, is_durable)
    sinks: dict[str, tuple[int, ...]] = {}
    fed = {origin for each in steps.values() for origin in each.origins}
    for number in steps:
        if number not in fed or not pick(3):
            sinks[f"out {len(sinks)}"] = (number,)
    return Recipe(steps, sinks, 1 + len(steps))


def _origins(pick: Pick, number: int) -> tuple[int, ...]:
    first = pick(number)
    if number > 2 and not pick(5):
        return tuple(sorted({first, pick(number)}))
    return (first,)


def edited(pick: Pick, then: Recipe) -> tuple[Recipe, list[str]]:
    """The graph with one to three edits, and their names."""
    found, done = then, []
    for _ in range(1 + pick(3)):
        name, edit = list(EDITS.items())[pick(len(EDITS))]
        recipe = edit(pick, found)
        if recipe is not None and recipe.is_whole():
            found = replace(recipe, free=found.free + 1)
            done.append(name)
    return found, done


def _name(pick: Pick, recipe: Recipe) -> str | None:
    if not pick(3):
        return None
    free = [each for each in NAMES if each not in {step.name for step in recipe.steps.values()}]
    return free[pick(len(free))] if free else None


def _put(recipe: Recipe, number: int, step: Step, at: int) -> Recipe:
    items = list(recipe.steps.items())
    items.insert(at, (number, step))
    return replace(recipe, steps=dict(items))


def _place_of(recipe: Recipe, number: int) -> int:
    return 0 if number == SOURCE else list(recipe.steps).index(number) + 1


def _redirected(recipe: Recipe, old: int, new: int, consumers: Collection[Any]) -> Recipe:
    """The consumers, steps by number and sinks by name, get what they got from one step from another one."""

    def of(origins: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(new if each == old else each for each in origins))

    steps = {
        number: replace(step, origins=of(step.origins)) if number in consumers and number != new else step
        for number, step in recipe.steps.items()
    }
    sinks = {name: of(origins) if name in consumers else origins for name, origins in recipe.sinks.items()}
    return replace(recipe, steps=steps, sinks=sinks)


def _consumers(recipe: Recipe, number: int) -> list[Any]:
    return [each for each, step in recipe.steps.items() if number in step.origins] + [
        name for name, origins in recipe.sinks.items() if number in origins
    ]


def _some(pick: Pick, of: Sequence[Any]) -> list[Any]:
    return [each for each in of if pick(2)] or list(of[:1])


def insert(pick: Pick, recipe: Recipe) -> Recipe | None:
    """A step behind another one, in front of some that it led to."""
    origin = [SOURCE, *recipe.steps][pick(1 + len(recipe.steps))]
    consumers = _some(pick, _consumers(recipe, origin))
    kind = ("map", "filter", "scan")[pick(3)]
    number, step = recipe.free, Step(kind, pick(len(FUNCTIONS[kind])), (origin,), _name(pick, recipe))
    return _redirected(_put(recipe, number, step, _place_of(recipe, origin)), origin, number, consumers)


def branch(pick: Pick, recipe: Recipe) -> Recipe | None:
    """A new step with a sink of its own, or only that."""
    origin = [SOURCE, *recipe.steps][pick(1 + len(recipe.steps))]
    sinks = {**recipe.sinks, f"new {recipe.free}": (origin,)}
    if not pick(4):
        return replace(recipe, sinks=sinks) if origin != SOURCE else None
    kind = ("map", "filter", "scan")[pick(3)]
    number, step = recipe.free, Step(kind, pick(len(FUNCTIONS[kind])), (origin,), _name(pick, recipe))
    sinks[list(sinks)[-1]] = (number,)
    at = _place_of(recipe, origin)
    return replace(_put(recipe, number, step, at + pick(len(recipe.steps) - at + 1)), sinks=sinks)


def delete(pick: Pick, recipe: Recipe) -> Recipe | None:
    """A step is gone: what it led to gets what came to it."""
    if not recipe.steps:
        return None
    number = list(recipe.steps)[pick(len(recipe.steps))]
    gone = recipe.steps[number]

    def of(origins: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(to for each in origins for to in (gone.origins if each == number else (each,))))

    steps = {each: replace(step, origins=of(step.origins)) for each, step in recipe.steps.items() if each != number}
    return replace(recipe, steps=steps, sinks={name: of(origins) for name, origins in recipe.sinks.items()})


def drop(pick: Pick, recipe: Recipe) -> Recipe | None:
    """A sink is gone, and the steps that led only there."""
    if len(recipe.sinks) < 2:
        return None
    gone = list(recipe.sinks)[pick(len(recipe.sinks))]
    left = replace(recipe, sinks={name: each for name, each in recipe.sinks.items() if name != gone})
    used = {each for sink in left.sinks for each in left.cone(sink)}
    return replace(left, steps={number: step for number, step in left.steps.items() if number in used})


def reorder(pick: Pick, recipe: Recipe) -> Recipe | None:
    """Steps, and sinks, are declared in another order."""
    items, sinks = list(recipe.steps.items()), list(recipe.sinks.items())
    for some in (items, sinks):
        for _ in range(2 * bool(some)):
            one: Any = some.pop(pick(len(some)))
            some.insert(pick(len(some) + 1), one)
    return replace(recipe, steps=dict(items), sinks=dict(sinks))


def rename(pick: Pick, recipe: Recipe) -> Recipe | None:
    """A step has another name, or one for the first time, or none any more."""
    if not recipe.steps:
        return None
    number = list(recipe.steps)[pick(len(recipe.steps))]
    step = replace(recipe.steps[number], name=_name(pick, recipe))
    return replace(recipe, steps={**recipe.steps, number: step})


def swap(pick: Pick, recipe: Recipe) -> Recipe | None:
    """Two steps have each other's names."""
    if len(recipe.steps) < 2:
        return None
    one, other = (list(recipe.steps)[pick(len(recipe.steps))] for _ in range(2))
    first, second = recipe.steps[one], recipe.steps[other]
    named = {one: replace(first, name=second.name), other: replace(second, name=first.name)}
    return replace(recipe, steps={**recipe.steps, **named})


def duplicate(pick: Pick, recipe: Recipe) -> Recipe | None:
    """A step that does the same is declared in front or behind, and takes some of what the other leads to."""
    if not recipe.steps:
        return None
    number = list(recipe.steps)[pick(len(recipe.steps))]
    twin, consumers = recipe.free, _consumers(recipe, number)
    step = replace(recipe.steps[number], name=_name(pick, recipe))
    more = _put(recipe, twin, step, _place_of(recipe, number) - pick(2))
    if not pick(3):
        return replace(more, sinks={**more.sinks, f"new {recipe.free}": (twin,)})
    return _redirected(more, number, twin, _some(pick, consumers))


def split(pick: Pick, recipe: Recipe) -> Recipe | None:
    """A step becomes two: a new one behind it takes all that it led to."""
    if not recipe.steps:
        return None
    number = list(recipe.steps)[pick(len(recipe.steps))]
    half, step = recipe.free, Step("map", pick(3), (number,), _name(pick, recipe))
    consumers = _consumers(recipe, number)
    return _redirected(_put(recipe, half, step, _place_of(recipe, number)), number, half, consumers)


def change(pick: Pick, recipe: Recipe) -> Recipe | None:
    """A step has another function."""
    if not recipe.steps:
        return None
    number = list(recipe.steps)[pick(len(recipe.steps))]
    step = recipe.steps[number]
    step = replace(step, function=(step.function + 1) % len(FUNCTIONS[step.kind]))
    return replace(recipe, steps={**recipe.steps, number: step})


EDITS: dict[str, Callable[[Pick, Recipe], Recipe | None]] = {
    each.__name__: each
    for each in (insert, branch, delete, drop, reorder, rename, swap, duplicate, split, change)
}  # fmt: skip

Found = dict[str, list[tuple[int, int]]]


class Walk:
    """What a graph gives, item by item, in the order of metas.

    Attributes:
        states: of each step with state, by its number and the key.
    """

    def __init__(self) -> None:
        self.states: dict[tuple[int, int], int] = {}

    def over(self, rows: Sequence[int], recipe: Recipe, names: Mapping[int, str], dataflow: Dataflow) -> Found:
        """The payloads with their times, by sinks."""
        found: Found = {}
        for row in rows:
            given: dict[int, list[tuple[tuple[int, ...], int]]] = {SOURCE: [((), row)]}
            for number, step in recipe.steps.items():
                items = sorted(item for origin in step.origins for item in given[origin])
                given[number] = list(self._of_step(number, step, items, names[number], dataflow.ranks))
            for sink, origins in (*recipe.sinks.items(), (PROBE, (SOURCE,))):
                items = sorted(item for origin in origins for item in given[origin])
                found.setdefault(sink, []).extend((row, payload) for _, payload in items)
        return found

    def _of_step(
        self, number: int, step: Step, items: Sequence[tuple[tuple[int, ...], int]], name: str, ranks: Mapping[str, int]
    ) -> Iterator[tuple[tuple[int, ...], int]]:
        function = FUNCTIONS[step.kind][step.function]
        for path, payload in items:
            if step.kind == "scan":
                place = number, (key_of, other_key)[step.function](payload)
                self.states[place], out = function(self.states.get(place, 0), payload)
                yield (*path, ranks[name], ranks[f"{name}.output"]), out
            elif step.kind in ("map", "call"):
                yield (*path, ranks[name]), function(payload)
            elif function(payload):
                yield (*path, ranks[name]), payload
