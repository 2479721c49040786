"""Generated dataflows, inputs and schedules.

A dataflow is drawn as a `Recipe`, a list of small tuples that `build` turns into a graph: a failing example prints as
the recipe, and shrinks to a short one. Every function in a graph is pure, total on any payload, and at the top of this
module, so that graphs pickle and two of the same recipe are equal.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from hypothesis import strategies as st

import drift

NAN = float("nan")

#: Values that `==`, `hash` or an encoding gets wrong: keys and states are taken from here as well.
AWKWARD: list[Any] = [
    1, True, 1.0, 0, False, 0.0, -0.0, NAN, "1", b"1", "", None, (), (1,), (True,), (1.0,), (NAN, -0.0),
    ((1, (2, None)), "x"), 2**64, 2**63 - 1, -(2**63), -(2**63) - 1, 2**200, "\ud800", ("\udfff", 2**70),
    "\u00e9\u4e2d", [1, [2]],
    {"b": 1, "a": NAN}, frozenset({1, 2}), Decimal("1.0"), Decimal("1"), 1e300, float("inf"),
]  # fmt: skip


# Functions of payloads.


def weigh(payload: Any) -> int:
    """A number that depends on all of a payload, and on its types.

    By `repr`, which is the same in every process as long as no set in `AWKWARD` holds a text: the order of
    such a set hangs on the hash seed.
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


def is_kept(divisor: int, payload: Any) -> Any:
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
    """Three keys that are one to `==`."""
    return (1, True, 1.0)[weigh(payload) % 3]


def awkward_keys(payload: Any) -> Any:
    return AWKWARD[weigh(payload) % len(AWKWARD)]


def own_key(payload: Any) -> Any:
    return payload


def merging_step(state: Any, payload: Any) -> tuple[Any, Any]:
    """States of different pasts are often the same: early stop."""
    state = max(state, small(payload)) if weigh(payload) % 4 else 0
    return state, (state, small(payload))


def mixing_step(state: Any, payload: Any) -> tuple[Any, Any]:
    """States of different pasts are never the same."""
    state = (state * 31 + weigh(payload)) % 1009
    return state, state


def awkward_step(state: Any, payload: Any) -> tuple[Any, Any]:
    """States that are equal and not the same: 1, True and 1.0; 0.0 and -0.0; NaN and itself."""
    state = AWKWARD[(weigh(payload) + (3 if type(state) is bool else 0)) % 8]
    return state, (state, small(payload))


def folded(left: Any, right: Any) -> Any:
    return (weigh(left) + weigh(right)) % 5


# A loop: payloads count down, so that it ends. An item in it is (rounds left, value).


def into_loop(rounds: int, payload: Any) -> Any:
    return (weigh(payload) % (rounds + 1), weigh(payload) % 11)


def loop_key(kind: int, payload: Any) -> Any:
    return (None, payload[-1] % 2, payload[0], payload[-1] % 3)[kind]


def again(window: Any) -> Any:
    """What goes round: one or two items, depending on the whole window."""
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
    "small": small, "same": same_payload, "tagged": tagged, "newest": newest, "awkward": awkward
}  # fmt: skip
KEYS: dict[str, Callable[[Any], Any]] = {
    "one": one_key, "few": few_keys, "equal": equal_keys, "awkward": awkward_keys, "own": own_key
}  # fmt: skip
STEPS: dict[str, tuple[Any, Callable[[Any, Any], tuple[Any, Any]]]] = {
    "merging": (0, merging_step), "mixing": (7, mixing_step), "awkward": (None, awkward_step)
}  # fmt: skip


# Recipes.


class Recipe(NamedTuple):
    """`steps` are tuples (operation, which stream from the last one back, more); see `build`."""

    sources: int
    steps: list[tuple[Any, ...]]
    sinks: list[int]


_SIZE_MAX = 40  # values in one payload, by the builder's estimate
_VOLUME_MAX = 8  # items for each input item


class _Branch(NamedTuple):
    stream: drift.Stream[Any]
    size: int
    volume: int


def build(
    recipe: Recipe, times: list[drift.ArrivalTime | drift.EventTime] | None = None, *, boxed: bool = False
) -> drift.Dataflow:
    """The dataflow of a recipe. Streams that nothing takes end in a sink, and so do those in `recipe.sinks`.

    With `boxed` the states of scans are put into objects that cannot be compared.
    """
    graph = drift.Graph("generated")
    branches = [
        _Branch(graph.source(f"in{rank}", time=times[rank] if times else None), 1, 1) for rank in range(recipe.sources)
    ]
    taken: set[int] = set()
    for number, (operation, back, *more) in enumerate(recipe.steps):
        at = len(branches) - 1 - back % len(branches)
        taken.add(at)
        branch = branches[at]
        if operation == "merge":
            other = len(branches) - 1 - more[0] % len(branches)
            if not set(branches[other].stream._origins) & set(branch.stream._origins):
                taken.add(other)
                branch = _joined(branch, branches[other])
                branches.append(branch)
                continue
            operation, more = "map", ["same"]
        branches.append(_grown(graph, f"s{number}", branch, operation, more, boxed))
    sunk = 0
    for at, branch in enumerate(branches):
        if at not in taken or at in {sink % len(branches) for sink in recipe.sinks}:
            branch.stream.sink(f"out{sunk}")
            sunk += 1
    return graph.build()


def _joined(left: _Branch, right: _Branch) -> _Branch:
    return _Branch(left.stream.merge(right.stream), max(left.size, right.size), left.volume + right.volume)


def _grown(graph: drift.Graph, name: str, branch: _Branch, operation: str, more: list[Any], boxed: bool) -> _Branch:
    stream, size, volume = branch
    if (operation == "flat" and volume * more[0] > _VOLUME_MAX) or (operation in ("loop", "diamond") and volume > 4):
        operation, more = "filter", [2]
    if operation == "map":
        return _Branch(stream.map(MAPS[more[0]], name=name), size, volume)
    if operation == "filter":
        return _Branch(stream.filter(partial(is_kept, more[0]), name=name), size, volume)
    if operation == "flat":
        return _Branch(stream.flat_map(partial(children, more[0]), name=name), 2, volume * max(more[0], 1))
    if operation == "scan":
        initial, step = STEPS[more[1]]
        if boxed:
            initial, step = Opaque(initial), partial(boxed_step, step)
        return _Branch(stream.scan(KEYS[more[0]], initial, step, name=name), 2, volume)
    if operation == "diamond":
        left = stream.map(MAPS[more[0]], name=f"{name}-left")
        right = stream.flat_map(partial(children, more[1]), name=f"{name}-right")
        return _Branch(left.merge(right), max(size, 2), volume * (1 + more[1]))
    if operation == "fails":
        return _Branch(_failing(stream, name, *more), 2, volume * 2)
    if operation == "loop":
        return _Branch(_loop(graph, name, stream, *more), 8, volume * 4)
    if size > _SIZE_MAX // 5:
        stream, size = stream.map(small, name=f"{name}-small"), 1
    if operation == "count":
        return _Branch(stream.count(KEYS[more[0]], name=name), size + 1, volume)
    if operation == "reduce":
        return _Branch(stream.reduce(KEYS[more[0]], folded, name=name), size + 2, volume)
    assert operation == "group"
    return _Branch(stream.group(KEYS[more[0]], more[1], name=name), size * more[1], volume)


def _loop(
    graph: drift.Graph, name: str, stream: drift.Stream[Any], body: str, rounds: int, key: int, window: int
) -> drift.Stream[Any]:
    loop: drift.Feedback[Any] = graph.feedback(f"{name}-again")
    entered = stream.map(partial(into_loop, rounds), name=f"{name}-enter").merge(loop)
    windows = entered.group(partial(loop_key, key), window, name=f"{name}-windows")
    if body == "plain":
        windows.flat_map(again, name=f"{name}-back").feed(loop)
        return windows
    if body == "scan":  # a scan inside the loop
        stepped = windows.scan(partial(_window_key, key), 0, loop_step, name=f"{name}-scan")
        stepped.flat_map(again_one, name=f"{name}-back").feed(loop)
        return stepped
    inner: drift.Feedback[Any] = graph.feedback(f"{name}-inner-again")  # a loop inside the loop
    inside = windows.flat_map(into_inner, name=f"{name}-inner-enter").merge(inner)
    inner_windows = inside.group(partial(loop_key, (key + 1) % 4), 2, name=f"{name}-inner-windows")
    inner_windows.flat_map(again_inner, name=f"{name}-inner-back").feed(inner)
    inner_windows.flat_map(out_of_inner, name=f"{name}-back").feed(loop)
    return inner_windows


def _failing(stream: drift.Stream[Any], name: str, kind: str, divisor: int) -> drift.Stream[Any]:
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
    assert kind == "pair"
    return stream.scan(few_keys, 0, partial(no_pair, divisor), name=name)


FAILING = ["map", "filter", "flat", "sequence", "key", "scan key", "opaque key", "step", "pair"]


def _window_key(kind: int, window: Any) -> Any:
    return loop_key(kind, window[-1])


_backs = st.integers(0, 3)
_keys = st.sampled_from(list(KEYS))
_maps = st.sampled_from(list(MAPS))
_operations = st.one_of(
    st.tuples(st.just("map"), _backs, _maps),
    st.tuples(st.just("filter"), _backs, st.integers(2, 3)),
    st.tuples(st.just("flat"), _backs, st.integers(0, 3)),
    st.tuples(st.just("group"), _backs, _keys, st.integers(1, 5)),
    st.tuples(st.just("group"), _backs, _keys, st.integers(1, 5)),
    st.tuples(st.just("scan"), _backs, _keys, st.sampled_from(list(STEPS))),
    st.tuples(st.just("scan"), _backs, _keys, st.sampled_from(list(STEPS))),
    st.tuples(st.just("count"), _backs, _keys),
    st.tuples(st.just("reduce"), _backs, _keys),
    st.tuples(st.just("merge"), _backs, st.integers(0, 5)),
    st.tuples(st.just("diamond"), _backs, _maps, st.integers(0, 2)),
    st.tuples(
        st.just("loop"), _backs, st.sampled_from(["plain", "scan", "inner"]), st.integers(0, 3), st.integers(0, 3),
        st.integers(1, 3),
    ),
)  # fmt: skip


_failing_operations = st.tuples(st.just("fails"), _backs, st.sampled_from(FAILING), st.integers(2, 9))


def recipes(sources_max: int = 3, steps_max: int = 6, *, failing: bool = False) -> st.SearchStrategy[Recipe]:
    operations = st.booleans().flatmap((_operations, _failing_operations).__getitem__) if failing else _operations
    return st.builds(
        Recipe,
        st.integers(1, sources_max),
        st.lists(operations, min_size=1, max_size=steps_max),
        st.lists(st.integers(0, 5), max_size=2, unique=True),
    )


# Inputs.

payloads = st.integers(0, 6) | st.integers(0, 6) | st.integers(0, 6) | st.sampled_from(AWKWARD)


def event_time(payload: Any) -> int:
    """Payloads of a source in event time are (time, value) or (time, value, number)."""
    return payload[0]  # type: ignore[no-any-return]


def event_tie(payload: Any) -> int:
    return payload[2]  # type: ignore[no-any-return]


class Input(NamedTuple):
    """What one source is given."""

    time: drift.ArrivalTime | drift.EventTime
    payloads: list[Any]


def arrival_inputs(items_max: int = 8) -> st.SearchStrategy[Input]:
    return st.builds(Input, st.just(drift.ArrivalTime()), st.lists(payloads, max_size=items_max))


@st.composite
def event_inputs(draw: st.DrawFn, items_max: int = 8, late: str = "error") -> Input:
    """Ties and disorder within lateness; beyond it as well where late items are diverted."""
    lateness = draw(st.integers(0, 4))
    behind_max = lateness + (2 if late == "divert" else 0)
    rows = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, behind_max), payloads), max_size=items_max))
    tied = draw(st.booleans())
    now = draw(st.sampled_from([0, -3, 10**12]))
    given: list[Any] = []
    for number, (step, behind, payload) in enumerate(rows):
        now += step
        given.append((now - behind, payload, number) if tied else (now - behind, payload))
    return Input(drift.EventTime(event_time, lateness, event_tie if tied else None, late), given)  # type: ignore[arg-type]


def inputs(sources: int, items_max: int = 8) -> st.SearchStrategy[list[Input]]:
    return st.lists(arrival_inputs(items_max) | event_inputs(items_max), min_size=sources, max_size=sources)


class Case(NamedTuple):
    """A dataflow and what it is given."""

    recipe: Recipe
    inputs: list[Input]

    def dataflow(self) -> drift.Dataflow:
        return build(self.recipe, [each.time for each in self.inputs])

    def sources(self) -> dict[str, list[Any]]:
        return {f"in{rank}": each.payloads for rank, each in enumerate(self.inputs)}


@st.composite
def cases(draw: st.DrawFn, sources_max: int = 3, steps_max: int = 6, items_max: int = 8, failing: bool = False) -> Case:
    recipe = draw(recipes(sources_max, steps_max, failing=failing))
    return Case(recipe, draw(inputs(recipe.sources, items_max)))


# Schedules.

_CHOICES_MAX = 600


class Schedule:
    """A `choose` whose choices Hypothesis draws one by one; past a limit it takes the plainest."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data
        self._left = _CHOICES_MAX

    def __call__(self, count: int) -> int:
        self._left -= 1
        return self._data.draw(st.integers(0, count - 1)) if self._left >= 0 else 0

    def __repr__(self) -> str:
        return "Schedule"
