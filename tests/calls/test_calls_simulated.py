"""Law 12, under drawn schedules: an answer once logged is never asked for again, and answers go on in order."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from test_simulate import simulate

import drift
from drift.calling.asks import calls_of, with_functions
from drift.records.fingerprint import fingerprint
from drift.segments.answering import Answering
from drift.testing import deterministic, load_case, run_case, save_case
from drift.testing.calls import TestAnswers, _MemoryLog, answered
from drift.testing.check import Case, check
from drift.testing.schedule import Schedule
from drift.testing.seeds import Seeds
from drift_graph.errors import InputError, SettingsError

few = settings(max_examples=12, deadline=None)


def asked(stub: Any = None) -> drift.Graph:
    """Two calls in a row and one beside them, behind groupings that correct themselves."""
    graph = drift.Graph("asked")
    numbers = graph.source("numbers", time=drift.EventTime(lambda n: n % 50, lateness=20))
    sums = numbers.scan(lambda n: n % 3, 0, lambda total, n: (total + n, (n, total)), name="sums")
    first = sums.call(len, concurrency=3, on_error="divert", name="first")
    second = first.map(lambda answer: answer * 2).call(len, batch=2, concurrency=2, name="second")
    second.count(lambda answer: answer % 2).sink("counts")
    drawn = (
        numbers.map(drift.recorded(abs), name="drawn") if stub is None else numbers.call(abs, stub=stub, name="drawn")
    )
    drawn.merge(first).group(lambda n: n % 4, 2).sink("pairs")
    return graph


ANSWERS = {"first": st.integers(-9, 9), "second": st.integers(), "drawn": st.integers(0, 3)}


@few
@deterministic(asked(), numbers=st.lists(st.integers(0, 200), max_size=12), calls=ANSWERS, check_purity=False)
def test_any_order_of_answers_and_any_deaths_give_one_output(run: Any) -> None:
    assert run.error is None


@few
@deterministic(
    asked(), numbers=st.lists(st.integers(0, 200), max_size=8), calls=ANSWERS, errors=True, check_purity=False
)
def test_a_call_that_fails_ends_every_run_at_its_item(run: Any) -> None:
    pass


@settings(max_examples=5, deadline=None)
@deterministic(asked(), numbers=st.lists(st.integers(0, 200), max_size=8), calls={**ANSWERS, "first": lambda it: it[0]})
def test_a_stub_is_asked_in_place_of_a_call(run: Any) -> None:
    assert run.error is None


async def half(number: int) -> int:
    await asyncio.sleep(0)
    return number // 2


halves = drift.Graph("halves")
halves.source("numbers").call(half, name="half").sink("out")


@settings(max_examples=5, deadline=None)
@deterministic(halves, numbers=st.lists(st.integers(0, 200), max_size=8), calls={"half": half})
def test_a_stub_may_be_an_async_function_as_what_it_stands_for(run: Any) -> None:
    assert sorted(run.payloads) == sorted(number // 2 for number in run.inputs["numbers"])


def test_a_test_asks_nothing_outside() -> None:
    for calls in (None, {"first": st.integers()}):
        with pytest.raises(
            SettingsError, match=r"a test asks nothing outside: draw its answers, .*calls=\{'"
        ) as refused:
            deterministic(asked(), numbers=st.just([]), calls=calls)
        assert ("'first'" in str(refused.value)) == (calls is None)
    with pytest.raises(SettingsError, match="graph 'asked' has no such call; it has 'first', 'second', 'drawn'"):
        deterministic(asked(), numbers=st.just([]), calls={"third": len})
    with pytest.raises(SettingsError, match="a test asks nothing outside"):
        check(Case(asked().build(), {"numbers": [1]}, Schedule()))
    with pytest.raises(SettingsError, match="has calls, which this simulated run does not ask"):
        drift.testing.Driver(asked())


def test_a_case_file_holds_the_drawn_answers(tmp_path: Path) -> None:
    pools = {name: TestAnswers(None, [at], [False]) for at, name in enumerate(ANSWERS)}
    case = Case(answered(asked().build(), pools), {"numbers": [3, 1, 2]}, Schedule(workers=2, noise=7, deaths=True))
    path = save_case(check(case), tmp_path)
    again = load_case(path, asked())
    assert again.dataflow == case.dataflow
    result = run_case(path, asked())
    assert result.failure is None and result.output.digest == check(case).output.digest


def first_stub(pair: tuple[int, int]) -> int:
    return pair[0] % 5


def test_a_case_file_names_stubs_and_those_without_a_name_are_refused(tmp_path: Path) -> None:
    def of(**stubs: Any) -> Case:
        drawn = {"second": TestAnswers(None, [3, 4], [False, False])}
        stubs = {name: TestAnswers(function) for name, function in stubs.items()}
        schedule = Schedule(workers=2, noise=7, deaths=True)
        return Case(answered(asked(abs).build(), {**drawn, **stubs}), {"numbers": [3, 1, 2]}, schedule)

    case = of(first=first_stub, drawn=abs)
    path = save_case(check(case), tmp_path)
    stored = json.loads(path.read_text())["calls"]
    assert stored["first"]["stub"].endswith("test_calls_simulated.py:first_stub")
    assert stored["drawn"] == {"stub": "declared"} and [*stored["second"]] == ["answers", "failing"]
    again = load_case(path, asked(abs))
    assert again.dataflow == case.dataflow and run_case(path, asked(abs)).failure is None
    with pytest.raises(SettingsError, match="the stub of call 'drawn', declared, is no function now"):
        load_case(path, asked())
    with pytest.raises(SettingsError, match=r"the stub of call 'first' has no name at the top of a file"):
        save_case(check(of(first=lambda pair: pair[0], drawn=abs)), tmp_path)
    path.write_text(path.read_text().replace('"stub": "declared"', '"stub": ""'))
    with pytest.raises(InputError, match="call 'drawn' has no answers, or no stub"):
        load_case(path, asked(abs))


GRAPH = """
import drift
from hypothesis import strategies as st

def length(word):
    return len(word) % 3

def outside(word):
    raise SystemError("nobody is to be asked")

graph = drift.Graph("asked")
words = graph.source("lines").flat_map(str.split).count(str)
answers = words.map(lambda pair: pair[0]).call(outside, name="ask")
answers.count(lambda answer: answer).sink("out")

@drift.testing.deterministic(graph, lines=st.lists(st.text("ab ", max_size=9)), calls={"ask": st.integers(0, 2)})
def test_asked(run):
    assert all(0 <= answer <= 2 for answer, _ in run.payloads)
"""


def test_the_command_simulates_with_stubs_and_with_the_answers_of_a_test(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(GRAPH)
    refused = simulate(tmp_path, "flow.py:graph", "--seed", "3")
    assert refused.returncode != 0 and "--calls ask=FILE:FUNCTION, declare call(..., stub=)" in refused.stderr
    options = ["--seeds", "12", "--processes", "1", "--deaths", "--json"]
    for target in (["flow.py:graph", "--calls", "ask=flow.py:length"], ["flow.py:test_asked"]):
        done = simulate(tmp_path, *target, *options)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["seeds"] == 12 and found["failed_seed"] is None and found["calls_checked"] > 10
        assert {"answers out of order", "deaths of who asks"} <= set(found["not_in_order"])


def test_a_seed_that_fails_is_a_case_file_with_its_answers(tmp_path: Path) -> None:
    broken = """
from drift.segments.answering import Answering

def as_they_come(self, take=Answering.take):
    queue = list(self._queue)
    self._queue.clear()
    self._queue.extend(sorted(queue, key=lambda each: not getattr(each, "has_ended", type(each) is bytes)))
    return take(self)

Answering.take = as_they_come
"""
    (tmp_path / "flow.py").write_text(GRAPH + broken)
    options = ["--processes", "1", "--cases", "cases", "--items-max", "3", "--no-purity"]
    failed = simulate(tmp_path, "flow.py:graph", "--calls", "ask=flow.py:length", *options)
    assert failed.returncode == 8, failed.stderr
    (path,) = (tmp_path / "cases").iterdir()
    assert json.loads(path.read_text())["calls"] == {"ask": {"stub": "flow.py:length"}}
    again = simulate(tmp_path, "--case", str(path), "--no-purity")
    assert again.returncode == 8 and "drift simulate --case" in again.stderr
    (tmp_path / "flow.py").write_text(GRAPH)
    assert simulate(tmp_path, "--case", str(path), "--no-purity").stdout == "the case does not fail any more\n"


def test_seeds_draw_answers_and_failures() -> None:
    calls = {**ANSWERS, "second": lambda several: [2 * each for each in several]}
    seeds = Seeds(asked(), {"numbers": range(40)}, calls=calls, deaths=True)
    results = [seeds.run(seed) for seed in range(30)]
    assert not any(result.failure for result in results)
    of_first = [calls_of(result.case.dataflow)["first"].function for result in results]
    assert len({each.values for each in of_first}) > 10 and any(any(each.failing) for each in of_first), "it diverts"
    assert [seeds.case(7), seeds.case(3)] == [results[7].case, results[3].case]
    with pytest.raises(SettingsError, match="a test asks nothing outside"):
        Seeds(asked(), {"numbers": range(40)}, calls={"first": len})


def test_seeds_of_a_test_are_asked_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []

    @settings(max_examples=1, deadline=None)
    @deterministic(asked(), numbers=st.lists(st.integers(0, 9), max_size=3), calls=ANSWERS, check_purity=False)
    def body(run: Any) -> None:
        ran.append(run)

    monkeypatch.setenv("DRIFT_SEEDS", "10:13")
    body()
    assert len(ran) == 4


def test_the_engines_and_the_reference_of_tests_agree() -> None:
    stubs = {"first": lambda pair: pair[0] % 5, "second": lambda several: [2 * each for each in several]}
    dataflow = with_functions(asked().build(), {**stubs, "drawn": lambda n: n % 2})
    in_test = answered(
        asked().build(),
        {name: TestAnswers(function) for name, function in stubs.items()} | {"drawn": TestAnswers(lambda n: n % 2)},
    )
    numbers = [7, 3, 12, 5, 9, 1, 14, 2]
    expected = check(Case(in_test, {"numbers": numbers}, Schedule())).output
    for engine in ("local", "reference", "zeromq"):
        run = drift.run(dataflow, {"numbers": numbers}, engine=engine)
        assert [(item.meta, item.sink, item.payload) for item in run] == [
            (row.meta, row.sink, row.payload) for row in expected.rows
        ]
        assert run.digest == expected.digest


def test_the_fingerprint_of_a_call_is_another_than_that_of_a_map() -> None:
    def made(calls: bool) -> Any:
        graph = drift.Graph("same")
        words = graph.source("words")
        (words.call(len, name="ask") if calls else words.map(len, name="ask")).sink("out")
        return fingerprint(graph.build())["structure"]

    assert made(True) != made(False) and made(True) == made(True)


# Broken on purpose, one way at a time: what the harness finds.


def _used_before_it_is_logged(self: Any, step: str, questions: Any) -> None:
    self.later = getattr(self, "later", [])
    for meta, answer in self.later:
        self.answers[meta] = answer
    self.later = [(each.meta, each.answer) for each in questions]


def _not_found(self: Any, question: Any, step: str) -> bool:
    return False


def _as_they_come(self: Any) -> Any:
    queue = list(self._queue)
    self._queue.clear()
    self._queue.extend(sorted(queue, key=lambda each: not getattr(each, "has_ended", type(each) is bytes)))
    return take(self)


take = Answering.take
SEEDS = 60
BREAKAGES = {
    "an answer is used before it is logged": (_MemoryLog, "answered", _used_before_it_is_logged),
    "the log is not found on a resume": (_MemoryLog, "find", _not_found),
    "answers go on in the order of arrival": (Answering, "take", _as_they_come),
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_a_breakage_is_found(breakage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BREAKAGES[breakage])

    assert any(map(_differs, range(1, SEEDS)))


def test_without_a_breakage_none_is_found() -> None:
    assert not any(map(_differs, range(1, 10)))


def _differs(seed: int) -> bool:
    pools = {name: TestAnswers(None, range(5), [False] * 5) for name in ANSWERS}
    schedule = Schedule(workers=1, batch_items=3, noise=seed, deaths=True)
    numbers = [seed * at * at % 40 for at in range(8)]
    result = check(Case(answered(asked().build(), pools), {"numbers": sorted(numbers)}, schedule))
    return result.failure is not None
