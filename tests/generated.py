"""Generated graphs: a recipe, which is a list of small tuples, and the dataflow that `build` makes of it.

Invariant: every function in a graph is pure, total on any payload (except functions that are meant to fail), and at the
top level of this module; so graphs can be pickled, graphs of the same recipe are equal, and a failing case prints as
the recipe and shrinks to a short one. This module imports no Hypothesis, since processes of runs import it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple

from drift.flow import aggregates as agg
from drift.flow import windows
from drift.flow.accumulators import Aggregate
from drift.flow.windows import Windows
from drift.streams import Feedback, Graph, Stream
from drift.testing.check import Case
from drift.testing.values import AWKWARD
from drift_graph import later
from drift_graph.errors import DriftError
from drift_graph.graph import Dataflow
from drift_graph.meta import END
from drift_graph.policies import ArrivalTime, EventTime, TimePolicy

# Functions of payloads.


def weigh(payload: Any) -> int:
    """A number that depends on all of a payload, and on its types.

    It uses `repr`, which is the same in every process as long as no set in `AWKWARD` holds a text: the order of such a
    set depends on the hash seed.
    """
    return zlib.crc32(repr(payload).encode("utf-8", "surrogatepass"))


def small(payload: Any) -> int:
    return weigh(payload) % 7


def same_payload(payload: Any) -> Any:
    return payload


def awkward(payload: Any) -> Any:
    return AWKWARD[weigh(payload) % len(AWKWARD)]


def newest(payload: Any) -> Any:
    return payload[-1] if isinstance(payload, tuple) and payload else payload


def tagged(payload: Any) -> Any:
    return ("t", small(payload))


def is_selected(divisor: int, payload: Any) -> Any:
    """Truthy, but seldom True itself."""
    return weigh(payload) % divisor


def children(most: int, payload: Any) -> Any:
    weight = weigh(payload)
    family = [(index, weight % 5) if weight & 8 else weight % 5 for index in range(weight % (most + 1))]
    return iter(family) if weight & 16 else family if weight & 32 else tuple(family)


def one_key(payload: Any) -> Any:
    return None


def few_keys(payload: Any) -> Any:
    return weigh(payload) % 3


def equal_keys(payload: Any) -> Any:
    """Three keys that are equal by `==`."""
    return (1, True, 1.0)[weigh(payload) % 3]


def awkward_keys(payload: Any) -> Any:
    return AWKWARD[weigh(payload) % len(AWKWARD)]


def own_key(payload: Any) -> Any:
    return payload


def merging_step(state: Any, payload: Any) -> tuple[Any, Any]:
    """States of different pasts are often the same, so that corrections stop early."""
    state = max(state, small(payload)) if weigh(payload) % 4 else 0
    return state, (state, small(payload))


def mixing_step(state: Any, payload: Any) -> tuple[Any, Any]:
    """States of different pasts are never the same."""
    state = (state * 31 + weigh(payload)) % 1009
    return state, state


def awkward_step(state: Any, payload: Any) -> tuple[Any, Any]:
    """States that are equal but not identical: 1, True and 1.0; 0.0 and -0.0; NaN and itself."""
    state = AWKWARD[(weigh(payload) + (3 if type(state) is bool else 0)) % 8]
    return state, (state, small(payload))


def folded(left: Any, right: Any) -> Any:
    return (weigh(left) + weigh(right)) % 5


# Later items: delays, timers that set timers, and the end.


def delayed(most: int, payload: Any, time: int) -> list[Any]:
    """One to three children, some of them later."""
    weight = weigh(payload)
    family = [small(payload), later.at(time + weight % (most + 1), (weight % 5, "later")), later.at(END, weight % 3)]
    return family[: 1 + weight % 3] if weight & 64 else family[weight % 3 :]


def timed_item(state: int, payload: Any, time: int) -> tuple[int, list[Any]]:
    """Timers at the item's own time, soon after it, and at the end."""
    weight = weigh((state, payload))
    outputs: list[Any] = [(state, small(payload))] if weight & 1 else []
    if weight % 3:
        outputs.append(later.at(time + weight % 4, weight % 3))
    if weight % 5 == 0:
        outputs.append(later.at(END, 0))
    return weight % 4, outputs


def timed_note(state: int, note: int, time: int) -> tuple[int, list[Any]]:
    """A timer sets at most as many others as its note says."""
    following = [later.at(time + 1 + state % 3, note - 1)] if note > 0 and time != END else []
    return 0 if note == 0 else (state * 3 + note) % 7, [("note", note, state), *following]


# Windows, ends, joins and rounds, of the catalogue.


def weighed(total: int, payload: Any) -> int:
    """A number that depends on the order of payloads."""
    return (total * 31 + weigh(payload)) % 1009


def turned(pair: tuple[int, Any]) -> list[int]:
    """The items that a round makes of an item: one, two or none, depending on the state."""
    state, payload = pair
    weight = weigh(pair)
    return [small(payload), (state + weight) % 7][: weight % 3]


AGGREGATES: dict[str, Aggregate[Any, Any]] = {
    "count": agg.count(), "collect": agg.collect(), "fold": agg.fold(0, weighed), "last": agg.last(),
    "distinct": agg.distinct_count(),
}  # fmt: skip
WINDOWS: dict[str, Windows] = {
    "tumbling": windows.tumbling(3), "sliding": windows.sliding(4, 3), "session": windows.session(2),
    "number": windows.count(3, 2, partial=True),
}  # fmt: skip


CORRECTED: dict[str, Windows] = {
    "tumbling": windows.tumbling(3), "sliding": windows.sliding(4, 3), "both ends": windows.tumbling(2, closed="both"),
    "day": windows.calendar("day", zone="Europe/Berlin"),
}  # fmt: skip


def own_time(payload: Any) -> int:
    """The time of a payload by which it belongs to a window; it need not be near its time in the order."""
    return weigh(payload) % 7


# A loop: payloads count down, so that it ends. An item in it is (rounds left, value).


def into_loop(rounds: int, payload: Any) -> Any:
    return (weigh(payload) % (rounds + 1), weigh(payload) % 11)


def loop_key(kind: int, payload: Any) -> Any:
    return (None, payload[-1] % 2, payload[0], payload[-1] % 3)[kind]


def again(window: Any) -> Any:
    """The items that go round again: one or two, depending on the whole window."""
    rounds, value = window[-1]
    if rounds <= 0:
        return []
    mixed = weigh(window)
    return [(rounds - 1, mixed % 11)] + ([(rounds - 1, value)] if mixed % 5 == 0 else [])


def loop_step(state: Any, window: Any) -> tuple[Any, Any]:
    state = (state + window[-1][-1] + 1) % 5
    return state, (window[-1][0], (window[-1][-1] + state) % 11)


def again_one(item: Any) -> Any:
    rounds, value = item
    return [(rounds - 1, value)] if rounds > 0 else []


def into_inner(window: Any) -> Any:
    """From the outer loop's window to an item of the inner one: (outer rounds, inner rounds, value)."""
    rounds, _ = window[-1]
    return [(rounds, weigh(window) % 3, weigh(window) % 11)]


def again_inner(window: Any) -> Any:
    outer, inner, _ = window[-1]
    return [(outer, inner - 1, weigh(window) % 11)] if inner > 0 else []


def out_of_inner(window: Any) -> Any:
    outer, inner, _ = window[-1]
    return [(outer - 1, weigh(window) % 11)] if inner == 0 and outer > 0 else []


# Functions that fail for some payloads.


class Opaque:
    """A payload without canonical form."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Opaque({self.value!r})"


def boxed_step(step: Callable[[Any, Any], tuple[Any, Any]], state: Opaque, payload: Any) -> tuple[Opaque, Any]:
    value, output = step(state.value, payload)
    return Opaque(value), output


def failing(divisor: int, payload: Any) -> Any:
    if weigh(payload) % divisor == 0:
        raise ValueError(f"no {small(payload)} please")
    return small(payload)


def failing_late(divisor: int, payload: Any) -> Any:
    """An iterator that raises after it has given something."""
    yield small(payload)
    yield failing(divisor, payload)


def no_sequence(divisor: int, payload: Any) -> Any:
    wrong: list[Any] = [5, "text", {1, 2}, {"a": 1}, None, b"bytes"]
    return wrong[small(payload) % len(wrong)] if weigh(payload) % divisor == 0 else [payload]


def failing_step(divisor: int, state: Any, payload: Any) -> tuple[Any, Any]:
    if weigh((state, payload)) % divisor == 0:
        raise KeyError(small(payload))
    return (state + small(payload)) % 4, state


def no_pair(divisor: int, state: Any, payload: Any) -> Any:
    return state if weigh((state, payload)) % divisor == 0 else (small((state, payload)), state)


def opaque_key(divisor: int, payload: Any) -> Any:
    return Opaque(1) if weigh(payload) % divisor == 0 else small(payload)


def opaque(divisor: int, payload: Any) -> Any:
    return Opaque(small(payload)) if weigh(payload) % divisor == 0 else small(payload)


MAPS: dict[str, Callable[[Any], Any]] = {
    "small": small, "same": same_payload, "tagged": tagged, "newest": newest, "awkward": awkward,
    "equal": equal_keys,
}  # fmt: skip
KEYS: dict[str, Callable[[Any], Any]] = {
    "one": one_key, "few": few_keys, "equal": equal_keys, "awkward": awkward_keys, "own": own_key
}  # fmt: skip
STEPS: dict[str, tuple[Any, Callable[[Any, Any], tuple[Any, Any]]]] = {
    "merging": (0, merging_step), "mixing": (7, mixing_step), "awkward": (None, awkward_step)
}  # fmt: skip


# Times.


def event_time(payload: Any) -> int:
    """Payloads of a source in event time are (time, value) or (time, value, number)."""
    return payload[0]  # type: ignore[no-any-return]


def event_tie(payload: Any) -> int:
    return payload[2]  # type: ignore[no-any-return]


# Recipes.


class Times(NamedTuple):
    """A source in event time whose payloads are (time, value), or (time, value, number) where they are `tied`."""

    lateness: int = 0
    tied: bool = False
    late: Literal["error", "divert"] = "error"
    idle_after_ms: int | None = None
    allowed: int = 0

    def policy(self) -> EventTime:
        tie = event_tie if self.tied else None
        return EventTime(event_time, self.lateness, tie, self.late, self.idle_after_ms, allowed=self.allowed)


class Recipe(NamedTuple):
    """How to build a graph.

    Attributes:
        sources: how many, "in0" and so on.
        steps: tuples (operation, which stream from the last one back, more); see `build`.
        sinks: streams that also go to a sink; streams that no operator takes always do.
        times: of each source, None for arrival time; sources beyond the end are in arrival time.
    """

    sources: int
    steps: Sequence[tuple[Any, ...]]
    sinks: Sequence[int] = ()
    times: Sequence[Times | None] = ()

    def policy(self, rank: int) -> TimePolicy:
        """The time policy of a source."""
        times = self.times[rank] if rank < len(self.times) else None
        return ArrivalTime() if times is None else times.policy()


def source_names(recipe: Recipe) -> list[str]:
    return [f"in{rank}" for rank in range(recipe.sources)]


def smaller(recipe: Recipe) -> Iterator[Recipe]:
    """Recipes with one part less, or with a simpler part."""
    for at in range(len(recipe.steps)):
        yield recipe._replace(steps=[*recipe.steps[:at], *recipe.steps[at + 1 :]])
    for at in range(len(recipe.sinks)):
        yield recipe._replace(sinks=[*recipe.sinks[:at], *recipe.sinks[at + 1 :]])
    if recipe.sources > 1:
        yield recipe._replace(sources=recipe.sources - 1, times=recipe.times[: recipe.sources - 1])
    for at, step in enumerate(recipe.steps):
        for index, value in enumerate(step):
            for simpler in _simpler(step, index, value):
                changed = (*step[:index], simpler, *step[index + 1 :])
                yield recipe._replace(steps=[*recipe.steps[:at], changed, *recipe.steps[at + 1 :]])


def _simpler(step: tuple[Any, ...], index: int, value: Any) -> Iterator[Any]:
    arguments = OPERATIONS[step[0]].arguments
    if index == 1 and value > 0:
        yield value - 1
    elif index >= 2:
        argument = arguments[index - 2]
        if isinstance(argument, Numbers):
            if value > argument.least:
                yield value - 1
        else:
            yield from argument[: argument.index(value)]


@dataclass(frozen=True)
class GeneratedCase(Case):
    """A case whose graph shrinks with it."""

    recipe: Recipe = field(kw_only=True)

    def smaller(self) -> Iterator[Case]:
        for recipe in smaller(self.recipe):
            try:
                inputs = {name: self.inputs[name] for name in source_names(recipe)}
                yield replace(self, recipe=recipe, dataflow=build(recipe), inputs=inputs)
            except DriftError:
                continue


# What the steps of recipes may be.


class Numbers(NamedTuple):
    """An argument of an operation: a number in a range; the least is the simplest."""

    least: int
    most: int


class Step(NamedTuple):
    """The position in a graph at which an operation is added.

    Attributes:
        name: of the operator; a prefix if there are several.
        stream: the input.
        boxed: whether states are put into objects that cannot be compared.
    """

    graph: Graph
    name: str
    stream: Stream[Any]
    boxed: bool


class Operation(NamedTuple):
    """An operation that a step of a recipe can name; add your own operator to `OPERATIONS` to include it.

    Attributes:
        grow: (step, *arguments) -> the output stream.
        arguments: the choices for what follows the name and the stream in a step's tuple: names, the simplest first, or
            `Numbers`.
        size: (values in an input payload, *arguments) -> values in an output payload; by default a few.
        volume: (*arguments) -> most output items for each input item.
        weight: how often it is drawn; 0 if it may raise: it is then drawn only among failing steps.
    """

    grow: Callable[..., Stream[Any]]
    arguments: tuple[Sequence[str] | Numbers, ...]
    size: Callable[..., int] = lambda size, *_: 2
    volume: Callable[..., int] = lambda *_: 1
    weight: int = 1


def _same_size(size: int, *_: Any) -> int:
    return size


def _map(step: Step, function: str) -> Stream[Any]:
    return step.stream.map(MAPS[function], name=step.name)


def _filter(step: Step, divisor: int) -> Stream[Any]:
    return step.stream.filter(partial(is_selected, divisor), name=step.name)


def _flat(step: Step, most: int) -> Stream[Any]:
    return step.stream.flat_map(partial(children, most), name=step.name)


def _group(step: Step, key: str, window: int) -> Stream[Any]:
    return step.stream.group(KEYS[key], window, name=step.name)


def _scan(step: Step, key: str, function: str) -> Stream[Any]:
    initial, stepped = STEPS[function]
    if step.boxed:
        initial, stepped = Opaque(initial), partial(boxed_step, stepped)
    return step.stream.scan(KEYS[key], initial, stepped, name=step.name)


def _process(step: Step, key: str) -> Stream[Any]:
    return step.stream.process(KEYS[key], 0, timed_item, timed_note, name=step.name)


def _later(step: Step, most: int) -> Stream[Any]:
    return step.stream.flat_map(partial(delayed, most), name=step.name, with_time=True, later=True)


def _window(step: Step, key: str, kind: str, aggregate: str) -> Stream[Any]:
    results = step.stream.key_by(KEYS[key]).window(WINDOWS[kind]).aggregate(AGGREGATES[aggregate], name=step.name)
    return results.map(tagged_window, name=f"{step.name}-results")


def tagged_window(window: Any) -> Any:
    return window.start, window.end, window.value


def _corrected(step: Step, key: str, kind: str, aggregate: str, allowed: int) -> Stream[Any]:
    windowed = step.stream.key_by(KEYS[key]).window(
        CORRECTED[kind], allowed=allowed, time=own_time, late=f"{step.name}-gone"
    )
    return windowed.aggregate(AGGREGATES[aggregate], name=step.name).map(numbered_window, name=f"{step.name}-results")


def numbered_window(window: Any) -> Any:
    return window.start, window.correction, window.value


def _end(step: Step, key: str, aggregate: str) -> Stream[Any]:
    return (
        step.stream.key_by(KEYS[key])
        .at_end(AGGREGATES[aggregate], name=step.name)
        .map(newest, name=f"{step.name}-results")
    )


def _join(step: Step, key: str, how: Any) -> Stream[Any]:
    other = step.stream.map(small, name=f"{step.name}-other")
    return step.stream.join(other, KEYS[key], KEYS[key], within=(1, 1), how=how, nulls_equal=True, name=step.name)


def _rounds(step: Step, kind: str, rounds: int) -> Stream[Any]:
    def body(pairs: Stream[Any]) -> Stream[Any]:
        return pairs.flat_map(turned, name=f"{step.name}-body")

    if kind == "replay":
        return step.stream.replay(rounds, 0, body, weighed, name=step.name)
    if kind == "ends":
        return step.stream.replay(rounds, 0, lambda pairs: body(pairs).at_end(agg.sort()), weighed, name=step.name)
    state, items = step.stream.iterate(rounds, 0, body, weighed, name=step.name)
    return state.merge(items)


def _count(step: Step, key: str) -> Stream[Any]:
    return step.stream.count(KEYS[key], name=step.name)


def _reduce(step: Step, key: str) -> Stream[Any]:
    return step.stream.reduce(KEYS[key], folded, name=step.name)


def _diamond(step: Step, function: str, most: int) -> Stream[Any]:
    left = step.stream.map(MAPS[function], name=f"{step.name}-left")
    return left.merge(step.stream.flat_map(partial(children, most), name=f"{step.name}-right"))


def _loop(step: Step, body: str, rounds: int, key: int, window: int) -> Stream[Any]:
    graph, name, stream, _ = step
    loop: Feedback[Any] = graph.feedback(f"{name}-again")
    entered = stream.map(partial(into_loop, rounds), name=f"{name}-enter").merge(loop)
    windows = entered.group(partial(loop_key, key), window, name=f"{name}-windows")
    if body == "plain":
        windows.flat_map(again, name=f"{name}-back").feed(loop)
        return windows
    if body == "scan":  # a scan inside the loop
        stepped = windows.scan(partial(_window_key, key), 0, loop_step, name=f"{name}-scan")
        stepped.flat_map(again_one, name=f"{name}-back").feed(loop)
        return stepped
    inner: Feedback[Any] = graph.feedback(f"{name}-inner-again")  # a loop inside the loop
    inside = windows.flat_map(into_inner, name=f"{name}-inner-enter").merge(inner)
    inner_windows = inside.group(partial(loop_key, (key + 1) % 4), 2, name=f"{name}-inner-windows")
    inner_windows.flat_map(again_inner, name=f"{name}-inner-back").feed(inner)
    inner_windows.flat_map(out_of_inner, name=f"{name}-back").feed(loop)
    return inner_windows


def _window_key(kind: int, window: Any) -> Any:
    return loop_key(kind, window[-1])


def _fails(step: Step, kind: str, divisor: int) -> Stream[Any]:
    stream, name = step.stream, step.name
    if kind == "map":
        return stream.map(partial(failing, divisor), name=name)
    if kind == "filter":
        return stream.filter(partial(failing, divisor), name=name)
    if kind == "flat":
        return stream.flat_map(partial(failing_late, divisor), name=name)
    if kind == "sequence":
        return stream.flat_map(partial(no_sequence, divisor), name=name)
    if kind == "key":
        return stream.group(partial(failing, divisor), 2, name=name)
    if kind == "scan key":
        return stream.scan(partial(failing, divisor), 0, merging_step, name=name)
    if kind == "opaque key":
        return stream.group(partial(opaque_key, divisor), 2, name=name)
    if kind == "step":
        return stream.scan(few_keys, 0, partial(failing_step, divisor), name=name)
    if kind == "pair":
        return stream.scan(few_keys, 0, partial(no_pair, divisor), name=name)
    assert kind == "window key"
    return stream.key_by(partial(failing, divisor)).window(WINDOWS["sliding"]).count(name=name).map(tagged_window)


FAILING = ["map", "filter", "flat", "sequence", "key", "scan key", "opaque key", "step", "pair", "window key"]

_keys = tuple(KEYS)
OPERATIONS: dict[str, Operation] = {
    "map": Operation(_map, (tuple(MAPS),), _same_size),
    "filter": Operation(_filter, (Numbers(2, 3),), _same_size),
    "flat": Operation(_flat, (Numbers(0, 3),), volume=lambda most: max(most, 1)),
    "group": Operation(_group, (_keys, Numbers(1, 5)), lambda size, _, window: size * window, weight=2),
    "scan": Operation(_scan, (_keys, tuple(STEPS)), weight=2),
    "process": Operation(_process, (_keys,), volume=lambda _: 2),
    "later": Operation(_later, (Numbers(0, 4),), volume=lambda _: 3),
    "window": Operation(_window, (_keys, tuple(WINDOWS), tuple(AGGREGATES)), lambda size, *_: size + 8, lambda *_: 2),
    "corrected": Operation(
        _corrected, (_keys, tuple(CORRECTED), tuple(AGGREGATES), Numbers(0, 9)), lambda size, *_: size + 8, lambda *_: 2
    ),
    "end": Operation(_end, (_keys, tuple(AGGREGATES)), lambda size, *_: size + 8),
    "join": Operation(_join, (_keys, ("inner", "left", "full", "anti")), lambda size, *_: size + 1, lambda *_: 4),
    "rounds": Operation(_rounds, (("iterate", "replay", "ends"), Numbers(1, 3)), volume=lambda *_: 2),
    "count": Operation(_count, (_keys,), lambda size, _: size + 1),
    "reduce": Operation(_reduce, (_keys,), lambda size, _: size + 2),
    "merge": Operation(_map, (Numbers(0, 5),)),  # `build` finds the other stream
    "diamond": Operation(
        _diamond, (tuple(MAPS), Numbers(0, 2)), lambda size, *_: max(size, 2), lambda _, most: 1 + most
    ),
    "loop": Operation(
        _loop, (("plain", "scan", "inner"), Numbers(0, 3), Numbers(0, 3), Numbers(1, 3)), lambda *_: 8, lambda *_: 4
    ),
    "fails": Operation(_fails, (FAILING, Numbers(2, 9)), volume=lambda *_: 2, weight=0),
}

_SIZE_MAX = 40  # values in one payload, by the builder's estimate
_VOLUME_MAX = 16  # items for each input item


class _Branch(NamedTuple):
    stream: Stream[Any]
    size: int
    volume: int


def build(recipe: Recipe, times: Sequence[TimePolicy] | None = None, *, boxed: bool = False) -> Dataflow:
    """The dataflow of a recipe.

    Args:
        times: time policies that replace the recipe's, one for each source.
        boxed: whether the states of scans are put into objects that cannot be compared.
    """
    graph = Graph("generated")
    policies = [recipe.policy(rank) for rank in range(recipe.sources)] if times is None else times
    branches = [
        _Branch(graph.source(name, time=policies[rank]), 1, 1) for rank, name in enumerate(source_names(recipe))
    ]
    taken: set[int] = set()
    for number, (operation, back, *arguments) in enumerate(recipe.steps):
        at = len(branches) - 1 - back % len(branches)
        taken.add(at)
        branch = branches[at]
        if operation == "merge":
            other = len(branches) - 1 - arguments[0] % len(branches)
            if not set(branches[other].stream._origins) & set(branch.stream._origins):
                taken.add(other)
                branches.append(_joined(branch, branches[other]))
                continue
            operation, arguments = "map", ["same"]
        branches.append(_grown(graph, f"s{number}", branch, operation, arguments, boxed))
    sunk = 0
    for at, branch in enumerate(branches):
        if at not in taken or at in {sink % len(branches) for sink in recipe.sinks}:
            branch.stream.sink(f"out{sunk}")
            sunk += 1
    return graph.build()


def _joined(left: _Branch, right: _Branch) -> _Branch:
    return _Branch(left.stream.merge(right.stream), max(left.size, right.size), left.volume + right.volume)


def _grown(graph: Graph, name: str, branch: _Branch, called: str, arguments: list[Any], boxed: bool) -> _Branch:
    """A branch with one step more; steps that filter items or shrink payloads are added if they would grow too much."""
    stream, size, volume = branch
    operation = OPERATIONS[called]
    if volume * operation.volume(*arguments) > max(_VOLUME_MAX, volume):
        operation, arguments = OPERATIONS["filter"], [2]
    if operation.size(size, *arguments) > max(_SIZE_MAX, size):
        stream, size = stream.map(small, name=f"{name}-small"), 1
    grown = operation.grow(Step(graph, name, stream, boxed), *arguments)
    return _Branch(grown, operation.size(size, *arguments), volume * operation.volume(*arguments))
