"""Operators that users write: `Stream.step` with a logic of their own, with nothing but the public interface."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st

import drift
from drift.testing import deterministic

words = st.lists(st.text("abc", min_size=1, max_size=2), max_size=12)


@dataclass(frozen=True)
class Every(drift.Logic[str, int, str]):
    """Every n-th word of a letter, all rows in one go."""

    n: int
    initial = 0
    label = "every n-th"

    def key(self, payload: str) -> str:
        return payload[0]

    def on_batch(self, states: dict[Any, int], rows: drift.Rows[str], out: drift.Out[str]) -> None:
        for key, payload, _ in rows:
            states[key] = (states[key] + 1) % self.n
            out([] if states[key] else [payload])


class Visits(drift.Logic[tuple[int, str], int, tuple[str, int, int]]):
    """How many clicks somebody made until nothing came for 10 ms."""

    initial = 0

    def key(self, payload: tuple[int, str]) -> str:
        return payload[1]

    def on_batch(self, states: dict[Any, int], rows: drift.Rows[tuple[int, str]], out: drift.Out[Any]) -> None:
        for key, (_, name), time in rows:
            states[key] += 1
            out([drift.at(time + 10, (name, states[key]))])

    def on_timers(self, states: dict[Any, int], due: drift.Rows[tuple[str, int]], out: drift.Out[Any]) -> None:
        for key, (name, clicks), time in due:
            if states[key] == clicks:
                del states[key]
                out([(name, clicks, time)])
            else:
                out([])


def every(n: int = 2) -> drift.Graph:
    graph = drift.Graph("every")
    graph.source("words").step(Every(n)).sink("out")
    return graph


def visits() -> drift.Graph:
    graph = drift.Graph("visits")
    clicks = graph.source("clicks", time=drift.EventTime(lambda click: click[0], lateness=5))
    clicks.step(Visits()).sink("out")
    return graph


def payloads(run: drift.Run) -> list[Any]:
    return [item.payload for item in run]


ENGINES = [("reference", {}), ("local", {}), ("local", {"fused": False}), ("zeromq", {"workers": 2})]


@pytest.mark.parametrize(("engine", "options"), ENGINES, ids=str)
def test_every_engine_gives_its_output(engine: Any, options: dict[str, Any]) -> None:
    assert payloads(drift.run(every(), {"words": ["ax", "b", "ay", "az", "bb", "ac"]}, engine=engine, **options)) == [
        "ay", "bb", "ac"
    ]  # fmt: skip
    arrived = [(1, "ann"), (4, "bob"), (8, "ann"), (6, "ann"), (30, "bob")]
    found = payloads(drift.run(visits(), {"clicks": arrived}, engine=engine, **options))
    assert found == [("bob", 1, 14), ("ann", 3, 18), ("bob", 1, 40)]


@settings(max_examples=20)
@deterministic(every(3), words=words)
def test_a_logic_is_deterministic(run: Any) -> None:
    letters = [word[0] for word in run.inputs["words"]]
    assert len(run.output) == sum(letters.count(letter) // 3 for letter in "abc")


@settings(max_examples=20)
@deterministic(visits(), clicks=st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["ann", "bob"])), max_size=10))
def test_a_logic_with_timers_is_deterministic(run: Any) -> None:
    assert sum(clicks for _, clicks, _ in run.payloads) == len(run.inputs["clicks"])


def test_states_come_back_from_a_checkpoint_and_from_files(tmp_path: Path) -> None:
    many = [f"{letter}{number}" for number in range(40) for letter in ("a", "b", "ab")]
    choose = random.Random(1)
    choose.shuffle(many)
    expected = payloads(drift.run(every(3), {"words": many}))
    kept = drift.run(every(3), {"words": many}, state=tmp_path / "kept")
    assert payloads(kept) == expected
    pressed = drift.run(every(3), {"words": many}, memory_max=1, batch_items=4)
    assert payloads(pressed) == expected


def test_a_graph_with_a_logic_is_a_value() -> None:
    assert every().build() == every().build() != every(3).build()
    assert visits().build() != every().build()
    assert "every n-th" in repr(every().build().operators) and hash(Every(2)) == hash(Every(2))


def test_what_is_no_logic_is_refused() -> None:
    source = drift.Graph("wrong").source("in")
    with pytest.raises(drift.GraphError, match=r"extends drift\.Logic, with `initial`, not <function"):
        source.step(len_of)  # type: ignore[arg-type]
    with pytest.raises(drift.GraphError, match="extends"):
        source.step(drift.Logic())


def len_of(text: str) -> int:
    return len(text)


class Keys(drift.Logic[int, int, Any]):
    """Gives the keys under which it finds its states, of rows and of timers."""

    initial = 0

    def __init__(self, keys: tuple[Any, ...]) -> None:
        self.keys = keys

    def key(self, payload: int) -> Any:
        return self.keys[payload % 2]

    def on_batch(self, states: dict[Any, int], rows: drift.Rows[int], out: drift.Out[Any]) -> None:
        for key, payload, _ in rows:
            states[key] += payload
            out([(key, states[key])])


class KeysOfTimers(Keys):
    def on_batch(self, states: dict[Any, int], rows: drift.Rows[int], out: drift.Out[Any]) -> None:
        for key, payload, time in rows:
            states[key] += payload
            out([(key, states[key]), drift.at(time + 1, "due")])

    def on_timers(self, states: dict[Any, int], due: drift.Rows[str], out: drift.Out[Any]) -> None:
        for key, note, _ in due:
            out([(key, note, states[key])])


@pytest.mark.parametrize("logic", [Keys, KeysOfTimers])
@pytest.mark.parametrize("keys", [(0, 1), ("a", "b"), ((0, "a"), (1, None)), (None, 0), (0.5, True), (b"x", {1: 2})])
def test_a_logic_gets_one_key_on_every_engine(logic: type[Keys], keys: tuple[Any, Any]) -> None:
    graph = drift.Graph("keys")
    graph.source("in", time=drift.EventTime(lambda number: number)).step(logic(keys), name="step").sink("out")
    options = [{"engine": "reference"}, {}, {"batch_items": 1}, {"fused": False}]
    runs = [payloads(drift.run(graph, {"in": range(4)}, **each)) for each in options]
    assert runs == runs[:1] * 4
    found = dict.fromkeys(output[0] for output in runs[0])
    stand_for_themselves = not {float, bool, bytes, dict} & set(map(type, keys))
    assert list(found) == list(keys) if stand_for_themselves else set(map(type, found)) == {bytes}
    assert len(runs[0]) == (4 if logic is Keys else 8)


@pytest.mark.parametrize("logic", [Keys, KeysOfTimers])
def test_the_harness_accepts_a_logic_that_gives_its_keys(logic: type[Keys]) -> None:
    graph = drift.Graph("keys")
    graph.source("numbers", time=drift.EventTime(lambda number: number)).step(logic((1, 0.5)), name="step").sink("out")

    @settings(max_examples=5, phases=[Phase.generate])
    @deterministic(graph, numbers=st.lists(st.integers(0, 9), min_size=3, max_size=6))
    def test() -> None:
        pass

    test()


# The contract, broken.


class Wrong(drift.Logic[str, Any, Any]):
    """A logic whose `on_batch` is a function."""

    initial = 0

    def __init__(self, body: Callable[[Any, Any, Any], None]) -> None:
        self.body = body

    def key(self, payload: str) -> str:
        return payload[0]

    def on_batch(self, states: dict[Any, Any], rows: drift.Rows[str], out: drift.Out[Any]) -> None:
        self.body(states, rows, out)


def of_batches(states: dict[Any, int], rows: drift.Rows[str], out: drift.Out[Any]) -> None:
    """How many rows a batch has is in the output."""
    for _ in rows:
        out([len(rows)])


def of_first_states(states: dict[Any, int], rows: drift.Rows[str], out: drift.Out[Any]) -> None:
    """All rows of a batch see the states before it."""
    before = dict(states)
    for key, _, _ in rows:
        out([before[key]])
        states[key] = before[key] + 1


def of_lost_states(states: dict[Any, int], rows: drift.Rows[str], out: drift.Out[Any]) -> None:
    """Of a batch of three rows one is not counted, and nothing says so before the next batch."""
    for at, (key, payload, _) in enumerate(rows):
        states[key] += at != 2
        out([payload])


@pytest.mark.parametrize(
    ("body", "words"),
    [(of_batches, "a batch of"), (of_first_states, "it gave (0,)|[0]"), (of_lost_states, "left the state")],
)
def test_the_harness_names_the_step_that_depends_on_how_rows_are_cut(body: Any, words: str) -> None:
    graph = drift.Graph("wrong")
    graph.source("words").step(Every(2)).step(Wrong(body), name="the wrong one").sink("out")

    @settings(max_examples=5, phases=[Phase.generate])
    @deterministic(graph, words=st.lists(st.sampled_from("ab"), min_size=8, max_size=9))
    def test() -> None:
        pass

    with pytest.raises(drift.ImpureStep) as error:
        test()
    assert error.value.step == "the wrong one" and "how rows are cut into batches" in str(error.value)
    assert any(each in str(error.value) for each in words.split("|"))


class WrongTimers(Visits):
    """The number of timers that are due together is in the output."""

    def on_timers(self, states: dict[Any, int], due: drift.Rows[tuple[str, int]], out: drift.Out[Any]) -> None:
        for _ in due:
            out([len(due)])


def test_so_it_does_where_timers_are_due_together() -> None:
    graph = drift.Graph("wrong")
    graph.source("clicks", time=drift.EventTime(lambda click: click[0])).step(WrongTimers(), name="quiet").sink("out")

    @settings(max_examples=5, phases=[Phase.generate])
    @deterministic(graph, clicks=st.lists(st.sampled_from([(1, "ann"), (1, "bob"), (1, "cy")]), min_size=3, max_size=6))
    def test() -> None:
        pass

    with pytest.raises(drift.ImpureStep, match=r"'quiet' .* depends on how timers are cut into batches"):
        test()


# `out`, called otherwise.


def text_out(states: Any, rows: drift.Rows[str], out: drift.Out[Any]) -> None:
    for _, payload, _ in rows:
        out(payload)


def no_out(states: Any, rows: drift.Rows[str], out: drift.Out[Any]) -> None:
    for _, payload, _ in rows:
        if payload != "b":
            out([payload])


def two_outs(states: Any, rows: drift.Rows[str], out: drift.Out[Any]) -> None:
    for _, payload, _ in rows:
        out([payload])
        out([payload])


def timer(states: Any, rows: drift.Rows[str], out: drift.Out[Any]) -> None:
    for _, _, time in rows:
        out([drift.at(time, None)])


def other_key(states: Any, rows: drift.Rows[str], out: drift.Out[Any]) -> None:
    for _ in rows:
        states["other"] = 1
        out([])


@pytest.mark.parametrize(("engine", "options"), ENGINES[:3], ids=str)
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (text_out, "Wrong called out with 'a'; give it a list or a tuple of outputs"),
        (no_out, "Wrong called out 0 times for 1 rows; call it once for each"),
        (two_outs, "Wrong called out 2 times for 1 rows"),
        (timer, "Wrong set a timer, and has no on_timers"),
        (other_key, "Wrong stored a state under a key that none of its rows has"),
    ],
)
def test_a_logic_that_calls_out_otherwise_ends_the_run(
    body: Any, message: str, engine: Any, options: dict[str, Any]
) -> None:
    graph = drift.Graph("wrong")
    graph.source("words").step(Wrong(body), name="mine").sink("out")
    with pytest.raises(drift.StepError, match=message) as error:
        payloads(drift.run(graph, {"words": ["a", "b", "a"]}, engine=engine, **options))
    assert error.value.step == "mine"


class Early(Visits):
    """Takes all rows before it gives anything, although it has timers."""

    def on_batch(self, states: dict[Any, int], rows: drift.Rows[tuple[int, str]], out: drift.Out[Any]) -> None:
        for _ in list(rows):
            out([])


class Lazy(Visits):
    """Takes no row."""

    def on_batch(self, states: dict[Any, int], rows: drift.Rows[tuple[int, str]], out: drift.Out[Any]) -> None:
        return None


@pytest.mark.parametrize(("engine", "options"), ENGINES[:3], ids=str)
@pytest.mark.parametrize(
    ("logic", "message"),
    [(Early(), "Early called out 0 times for 1 rows"), (Lazy(), "Lazy returned before it had taken all rows")],
)
def test_a_logic_with_timers_takes_a_row_after_the_other(
    logic: Any, message: str, engine: Any, options: dict[str, Any]
) -> None:
    graph = drift.Graph("wrong")
    graph.source("clicks").step(logic).sink("out")
    with pytest.raises(drift.StepError, match=message):
        payloads(drift.run(graph, {"clicks": [(1, "ann"), (2, "bob")]}, engine=engine, **options))


def raising(states: dict[Any, int], rows: drift.Rows[str], out: drift.Out[Any]) -> None:
    """What it stored before it raised does not count, nor what it gave."""
    for key, payload, _ in rows:
        states[key] += 1
        if payload == "a!" and states[key] > 1:
            raise ValueError(payload)
        out([states[key]])


@pytest.mark.parametrize("batch_items", [1, 2, 100])
def test_a_call_that_raises_has_changed_nothing(batch_items: int) -> None:
    graph = drift.Graph("raises")
    graph.source("words").step(Wrong(raising), name="mine").sink("out")
    given = {"words": ["a", "b", "a", "b", "a!", "b"]}

    def failed(engine: Any, **options: Any) -> tuple[list[Any], str]:
        run = drift.run(graph, given, engine=engine, **options)
        made: list[Any] = []
        with pytest.raises(drift.StepError) as error:
            made.extend(item.payload for item in run)
        return made, str(error.value)

    expected = failed("reference")
    assert expected[0] == [1, 1, 2, 2] and "with state 2" in expected[1]
    assert failed("local", batch_items=batch_items) == expected
