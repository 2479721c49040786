"""An operator of the catalogue is one file: this one is written here, and no other file knows of it.

Every n-th item of a key: two functions of a loop, a fused form, and a row for the laws. It runs on every engine, is
drawn, printed, watched for impurity and explained like those of the library. Two logics of `Stream.step` are drawn too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, Self

import generated
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import Given
from msgspec.structs import replace
from strategies import Case, inputs, recipes
from test_laws import ENGINES, Engine, reference

import drift
from drift.auditing import lineage_of
from drift.machines import fusing
from drift.machines.keyed import KeyedStage, Place
from drift.machines.logics import ProcessLogic
from drift.machines.plan import Plan
from drift.operators import LoopFunction, Process, State, WatchFunction
from drift.purity.watch import Watched, Watching
from drift.records.fingerprint import fingerprint
from drift.show import as_mermaid, as_text
from drift_graph.graph import Dataflow
from drift_graph.meta import varint
from drift_graph.operators import Group, Map

# The operator.


class _Nth(LoopFunction, frozen=True):
    """What both functions know: the key, and of how many items one goes on."""

    loop: ClassVar[str] = "every nth"
    key: Callable[[Any], Any]
    n: int

    @property
    def user_function(self) -> Callable[[Any], Any]:
        return self.key

    def count(self, window: tuple[Any, ...]) -> int | None:
        """How many of its key an item is, from 0; None for a state, or where the one before is still on its way."""
        if type(window[-1]) is State:
            return None
        if len(window) == 1:
            return 0
        return window[-2].value if type(window[-2]) is State else None

    def watched(self, watch: WatchFunction) -> Self:
        return replace(self, key=watch("key", self.key, "one"))


class NthState(_Nth, frozen=True):
    gives: ClassVar[Literal["state"]] = "state"
    carries_state: ClassVar[bool] = True

    def __call__(self, window: tuple[Any, ...]) -> tuple[State, ...]:
        count = self.count(window)
        return () if count is None else (State(self.key(window[-1]), (count + 1) % self.n),)


class NthOutput(_Nth, frozen=True):
    gives: ClassVar[Literal["output"]] = "output"

    def __call__(self, window: tuple[Any, ...]) -> tuple[Any, ...]:
        count = self.count(window)
        return () if count is None or (count + 1) % self.n else (window[-1],)


def _counted(n: int, count: int, payload: Any, time: int) -> tuple[int, Sequence[Any]]:
    return (count + 1) % n, () if (count + 1) % n else (payload,)


def _never(count: int, note: Any, time: int) -> tuple[int, Sequence[Any]]:
    raise AssertionError("it sets no timers")


def _fused(dataflow: Dataflow, group: Group, state: Map, output: Map) -> fusing.Fused:
    function: Any = state.function
    process = Process(function.key, 0, partial(_counted, function.n), _never)
    first, second, last = (varint(dataflow.ranks[each.name]) for each in (group, state, output))
    place = Place(group, state, state, (first, second, second, last))

    def stage(cyclic: bool) -> KeyedStage:
        return KeyedStage(ProcessLogic(process), place, cyclic=cyclic)

    return fusing.Fused(output.name, (state.name, output.name), function.key, stage)


fusing.forms[NthState, NthOutput] = _fused


def every_nth(stream: drift.Stream[Any], n: int, key: Callable[[Any], Any], name: str) -> drift.Stream[Any]:
    """The n-th item of each key, the 2n-th, and so on."""
    return stream._with_state(key, NthState(key, n), NthOutput(key, n), name)


class Counted(drift.Logic[Any, int, Any]):
    """Every n-th item of a key, as a logic; its rows are taken all at once."""

    initial = 0

    def __init__(self, n: int, key: Callable[[Any], Any]) -> None:
        self.n = n
        self.of = key

    def key(self, payload: Any) -> Any:
        return self.of(payload)

    def on_batch(self, states: dict[Any, int], rows: drift.Rows[Any], out: drift.Out[Any]) -> None:
        made = []
        for key, payload, _ in list(rows):
            states[key] = (states[key] + 1) % self.n
            made.append([] if states[key] else [payload])
        for outputs in made:
            out(outputs)


class Timed(drift.Logic[Any, int, Any]):
    """The process of the recipes as a logic."""

    initial = 0

    def __init__(self, key: Callable[[Any], Any]) -> None:
        self.of = key

    def key(self, payload: Any) -> Any:
        return self.of(payload)

    def on_batch(self, states: dict[Any, int], rows: drift.Rows[Any], out: drift.Out[Any]) -> None:
        for key, payload, time in rows:
            states[key], outputs = generated.timed_item(states[key], payload, time)
            out(outputs)

    def on_timers(self, states: dict[Any, int], due: drift.Rows[Any], out: drift.Out[Any]) -> None:
        for key, note, time in due:
            states[key], outputs = generated.timed_note(states[key], note, time)
            out(outputs)


# What it takes part in.

OWN: dict[str, Callable[..., drift.Stream[Any]]] = {
    "nth": lambda step, key, n: every_nth(step.stream, n, generated.KEYS[key], step.name),
    "counted": lambda step, key, n: step.stream.step(Counted(n, generated.KEYS[key]), name=step.name),
    "timed": lambda step, key, _: step.stream.step(Timed(generated.KEYS[key]), name=step.name),
}


@pytest.fixture(autouse=True)
def _drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        for name, grow in OWN.items():
            arguments = (tuple(generated.KEYS), generated.Numbers(1, 3))
            most = 2 if name == "timed" else 1
            drawn = generated.Operation(
                grow, arguments, lambda size, *_: max(size, 3), volume=lambda *_, most=most: most, weight=4
            )
            patch.setitem(generated.OPERATIONS, name, drawn)
        yield


def letters(n: int = 2) -> Dataflow:
    graph = drift.Graph("letters")
    every_nth(graph.source("words"), n, key, "every-second").sink("out")
    return graph.build()


def key(word: str) -> str:
    return word[0]


@pytest.mark.parametrize(
    ("engine", "own"),
    [
        pytest.param(engine, own, id=f"{engine.name}-{own}")
        for engine in ENGINES
        for own in OWN
        if engine.name != "zeromq" or own == "timed"  # its nodes are those of the simulator
    ],
)
def test_the_laws_draw_it_and_every_engine_gives_the_output_of_the_reference(engine: Engine, own: str) -> None:
    drawn: list[bool] = []

    @settings(max_examples=max(int(12 * engine.share), 2))
    @given(recipes(sources_max=2, steps_max=3), st.integers(0, 3), st.sampled_from(["few", "own"]), st.data())
    def law(recipe: generated.Recipe, back: int, keys: str, data: st.DataObject) -> None:
        drawn.append(any(step[0] in OWN for step in recipe.steps))
        recipe = recipe._replace(steps=[*recipe.steps, (own, back, keys, 2)])
        case = Case(recipe, data.draw(inputs(recipe.sources, items_max=16)))
        assert engine.run(case, data) == reference(case, data)

    law()
    assert any(drawn) or engine.share < 1


@pytest.mark.smoke
def test_it_runs_as_one_stage_and_as_it_is_written() -> None:
    words = ["ax", "b", "ay", "az", "bb", "ac"]
    assert [type(stage) for stage in Plan(letters()).stages().values()] == [KeyedStage]
    for fused in (True, False):
        run = drift.run(letters(), {"words": words}, fused=fused)
        assert [item.payload for item in run] == ["ay", "bb", "ac"]


def test_it_runs_on_spark_and_so_do_logics(spark: Any) -> None:
    words = [f"{letter}{number}" for number in range(40) for letter in "abc"]
    logics = drift.Graph("logics")
    source = logics.source("words")
    source.step(Counted(3, key)).sink("counted")
    source.step(Timed(key)).sink("timed")
    for dataflow in (letters(3), logics.build()):
        local = drift.run(dataflow, {"words": words}).finish().digest
        assert drift.run(dataflow, {"words": words}, engine="spark", spark=spark).finish().digest == local


@pytest.mark.smoke
def test_it_is_printed_drawn_and_fingerprinted_by_its_functions_and_settings() -> None:
    assert "every-second" in as_text(letters()) and "every-second" in as_mermaid(letters())
    assert fingerprint(letters()) == fingerprint(letters())
    assert fingerprint(letters()) != fingerprint(letters(3))


@pytest.mark.smoke
def test_its_items_are_explained_by_the_items_that_were_counted() -> None:
    dataflow, words = letters(), ["ax", "b", "ay"]
    (item,) = drift.run(dataflow, {"words": words})
    lineage = lineage_of(dataflow, Given(dataflow, {"words": partial(list, words)}, batch_items=3), item.meta)
    assert [(made.kind, made.step, made.payload) for made in lineage.items] == [
        ("input", "words", "ax"),
        ("state", "every-second", 1),
        ("input", "words", "ay"),
        ("item", "every-second", "ay"),
        ("output", "out", "ay"),
    ]
    assert "every nth" in lineage.items[1].does


class _Calls:
    """Makes the calls that it is told of."""

    def call(self, watched: Watched, arguments: tuple[Any, ...]) -> Any:
        return watched.subject.function(*arguments)


def test_its_functions_are_watched_for_impurity() -> None:
    watching = Watching(letters(), {}, _Calls())
    assert {each.subject.title for each in watching.functions} == {"the key of step 'every-second' (key)"}
    run = drift.run(watching.dataflow, {"words": ["ax", "b", "ay"]})
    assert [item.payload for item in run] == ["ay"]
    assert sum(each.calls for each in watching.functions) >= 3
