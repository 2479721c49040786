"""The harness as users meet it: a test of a sound graph passes, one of a broken machine fails and tells why."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import unittest
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, event, example, given, note, reproduce_failure, seed, settings, target
from hypothesis import strategies as st
from strategies import scheduled_cases

import drift
import drift.testing
from drift.machines import keyed
from drift.testing.check import Case, check
from drift.testing.schedule import Player, Schedule, arrival_order
from drift.testing.seeds import drawn
from drift.testing.words import Words


def parity(payload: Any) -> int:
    return payload[1] % 2  # type: ignore[no-any-return]


def time_of(payload: Any) -> int:
    return payload[0]  # type: ignore[no-any-return]


words = drift.Graph("words")
words.source("lines").flat_map(str.split).group(str.lower, 2).count(key=len).sink("out")

timed = drift.Graph("timed")
timed.source("in", time=drift.EventTime(time_of, lateness=5)).group(parity, 3).group(len, 2).sink("out")

lines = st.lists(st.text("ab c", max_size=6), max_size=10)
rows = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=12)

quick = settings(max_examples=30, database=None, phases=[Phase.generate, Phase.shrink])


@pytest.fixture
def narrow_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grouping that corrects one window too few."""
    send = keyed.KeyedStage._send_difference

    def broken(self: keyed.KeyedStage, before: Any, current: Any, out: Any) -> None:
        if len(current) > 1 and before and before[-1].meta == current[-1].meta:
            before, current = before[:-1], current[:-1]
        send(self, before, current, out)

    monkeypatch.setattr(keyed.KeyedStage, "_send_difference", broken)


@pytest.fixture(autouse=True)
def cases_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRIFT_CASES", str(tmp_path / "cases"))
    return tmp_path / "cases"


# A test like any other.


@settings(max_examples=8)
@drift.testing.deterministic(words, lines=lines)
def test_settings_may_stand_above(run: Any) -> None:
    assert all(item.sink == "out" for item in run.output)
    note("seen only where it fails")
    event("an event")
    target(float(run.tombstones))


@drift.testing.deterministic(timed, inputs={"in": rows})
@settings(max_examples=60, derandomize=True)
def test_settings_may_stand_below_and_marks_count(run: Any) -> None:
    drift.testing.sometimes(run.tombstones > 2, "items that are taken back")
    drift.testing.sometimes(run.schedule.workers == 3, "three workers")
    assert [item.time for item in run.output] == sorted(item.time for item in run.output)


@pytest.mark.parametrize("number", [1, 2])
@example(lines=["a b", "b a"])
@example(lines=["a"], schedule=drift.testing.Schedule(workers=2))
@seed(7)
@settings(max_examples=5)
@drift.testing.deterministic(words, lines=lines)
def test_fixtures_parameters_and_examples_go_with_it(
    tmp_path_factory: pytest.TempPathFactory, number: int, run: Any
) -> None:
    assert number in (1, 2) and tmp_path_factory is not None
    assert set(run.inputs) == {"lines"}


@pytest.mark.smoke
@settings(max_examples=5)
@drift.testing.deterministic(words, lines=lines)
def test_the_body_need_not_take_the_run() -> None:
    pass


class TestInAClass:
    @settings(max_examples=5)
    @drift.testing.deterministic(words, lines=lines)
    def test_self_is_passed(self, run: Any) -> None:
        assert isinstance(self, TestInAClass)


class TestOfUnittest(unittest.TestCase):
    @drift.testing.deterministic(words, lines=lines)
    @settings(max_examples=5)
    def test_it_runs_there_too(self, run: Any) -> None:
        self.assertEqual(run.payloads, [item.payload for item in run.output])


def test_a_property_of_ones_own_fails_as_hypothesis_reports_it() -> None:
    @settings(quick, derandomize=True)
    @drift.testing.deterministic(words, lines=lines)
    def law(run: Any) -> None:
        assert len(run.output) < 3

    with pytest.raises(AssertionError) as caught:
        law()
    assert any("lines=['a" in note and "schedule=Schedule(workers=1" in note for note in caught.value.__notes__)


async def awaited(number: int) -> int:
    return number


def not_awaited(number: int) -> Any:
    coroutine = awaited(number)
    coroutine.close()  # nobody hears that it was never awaited
    return coroutine


@pytest.mark.parametrize(
    "step, words", [(not_awaited, "stream.call"), (lambda _: object(), "a object has no canonical")]
)
def test_errors_that_differ_in_an_address_alone_are_one(step: Any, words: str) -> None:
    graph = drift.Graph("addresses")
    graph.source("in").map(step).sink("out")

    @quick
    @drift.testing.deterministic(graph, inputs={"in": st.just([1, 2])}, check_purity=False)
    def law() -> None:
        pass

    with pytest.raises(drift.PayloadError, match=words):
        law()


def test_an_error_of_a_step_is_raised_unless_errors_are_allowed() -> None:
    graph = drift.Graph("fails")
    graph.source("in").map(int).sink("out")

    @quick
    @drift.testing.deterministic(graph, inputs={"in": st.just(["no number"])})
    def raises() -> None:
        pass

    @quick
    @drift.testing.deterministic(graph, inputs={"in": st.just(["no number"])}, errors=True)
    def allows(run: Any) -> None:
        assert isinstance(run.error, drift.StepError) and run.output == []

    with pytest.raises(drift.StepError, match="no number"):
        raises()
    allows()


def test_what_does_not_fit_is_refused_at_once() -> None:
    with pytest.raises(drift.SettingsError, match="no source 'line'"):
        drift.testing.deterministic(words, line=lines)
    with pytest.raises(drift.SettingsError, match="no input for source 'lines'"):
        drift.testing.deterministic(words)
    with pytest.raises(drift.SettingsError, match="no Hypothesis strategy"):
        drift.testing.deterministic(words, lines=["a"])  # type: ignore[arg-type]
    with pytest.raises(drift.SettingsError, match="source's name"):

        @drift.testing.deterministic(words, lines=lines)
        def law(lines: Any) -> None:
            pass


# A broken machine.


def _broken_law() -> Any:
    @settings(max_examples=200, database=None, derandomize=True, phases=[Phase.generate, Phase.shrink])
    @drift.testing.deterministic(timed, inputs={"in": rows})
    def law() -> None:
        pass

    return law


@pytest.mark.smoke
def test_a_broken_machine_is_reported_with_all_there_is_to_know(narrow_windows: None, cases_folder: Path) -> None:
    with pytest.raises(drift.testing.NotDeterministic) as caught:
        _broken_law()()
    text, result = str(caught.value), caught.value.result
    assert result.case.item_count <= 3
    assert len(result.case.schedule.deviations) == 1
    assert "arrives after item 2" in text or "reaches" in text
    assert "first difference, item" in text and "reference  " in text and "this run   " in text
    assert f"{Path(__file__).name}:" in text and "'group parity'" in text
    assert caught.value.path is not None and str(caught.value.path) in text
    again = drift.testing.run_case(caught.value.path)
    assert again.failure == result.failure
    assert "drift simulate --case" in text


def test_a_case_whose_graph_has_no_name_needs_it_passed(narrow_windows: None) -> None:
    local = drift.Graph("local")
    local.source("in", time=drift.EventTime(time_of, lateness=5)).group(parity, 3).sink("out")
    result = next(result for result in map(drift.testing.Seeds(local, {"in": rows}).run, range(500)) if result.failure)
    text, path = drift.testing.write_report(drift.testing.shrunk(result))
    assert path is not None and f"drift.testing.rerun({str(path)!r}, graph)" in text
    with pytest.raises(drift.SettingsError, match="pass it"):
        drift.testing.run_case(path)
    assert drift.testing.run_case(path, local).failure is not None


def test_a_file_that_is_no_case_is_refused(tmp_path: Path) -> None:
    for text in ("no json", "[]", '{"format": "drift case 99"}'):
        (tmp_path / "case.json").write_text(text)
        with pytest.raises(drift.InputError, match="case"):
            drift.testing.run_case(tmp_path / "case.json")
    with pytest.raises(drift.InputError, match="cannot be read"):
        drift.testing.run_case(tmp_path / "none.json")


# States to reach.


@pytest.mark.smoke
def test_a_state_that_no_run_reaches_fails_the_test() -> None:
    @quick
    @drift.testing.deterministic(words, lines=st.just([]))
    def law(run: Any) -> None:
        drift.testing.sometimes(run.output, "output")
        drift.testing.sometimes(True, "anything")

    with pytest.raises(drift.testing.Unreached, match="'output'"):
        law()
    with pytest.raises(drift.SettingsError, match="nobody counts"):
        drift.testing.sometimes(True, "outside")
    with drift.testing.reaching() as marks:
        assert drift.testing.sometimes(1, "inside")
    assert marks == {"inside": [1, 1]}


# Schedules.


@given(st.lists(st.integers(0, 8), max_size=10).map(sorted), st.integers(0, 4), st.integers(1, 2**32))
def test_items_arrive_late_but_in_time(times: list[int], lateness: int, noise: int) -> None:
    order = arrival_order(times, lateness, Player(drift.testing.Schedule(noise=noise)), "in")
    assert sorted(order) == list(range(len(times)))
    newest = None
    for at in order:
        assert newest is None or times[at] >= newest - lateness
        newest = times[at] if newest is None else max(newest, times[at])


@given(scheduled_cases(items_max=6))
@settings(max_examples=50)
def test_a_schedule_that_is_written_out_goes_as_before(case: drift.testing.Case) -> None:
    from dataclasses import replace

    first = drift.testing.check(case)
    explicit = replace(case, schedule=case.schedule.with_deviations(first.made.values()))
    plain = json.loads(json.dumps(msgspec.to_builtins(explicit.schedule)))
    read = msgspec.convert(plain, drift.testing.Schedule)
    assert read == explicit.schedule == eval(repr(read), {"Schedule": drift.testing.Schedule})
    second = drift.testing.check(explicit)
    assert first.failure is None and second.failure is None
    assert first.outcome is not None and second.outcome is not None
    assert [message.key for message in first.outcome.log] == [message.key for message in second.outcome.log]
    assert first.made == second.made


# Seeds.


def test_a_seed_is_one_run_whatever_the_hash_seed() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_testing as t, drift; "
        "s = drift.testing.Seeds(t.timed, {'in': t.rows}); "
        "print([(r.output.digest, sorted(r.made.values()), r.case.inputs) for r in map(s.run, (3, 250, 1, 7))])"
    )
    outputs = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", program, str(Path(__file__).parent)]
        outputs.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(outputs) == 1


def test_values_are_given_in_chunks() -> None:
    pool = [(number, number) for number in range(100)]
    seeds = drift.testing.Seeds(timed, {"in": pool}, items_max=7)
    chunks = [seeds.case(number).inputs["in"] for number in range(50)]
    assert all(chunk == pool[chunk[0][0] : chunk[0][0] + len(chunk)] for chunk in chunks if chunk)
    assert max(map(len, chunks)) == 7 and min(map(len, chunks)) < 2
    assert drift.testing.Seeds(timed, {"in": pool}).run(4).failure is None


def test_drawing_does_not_touch_the_random_numbers_of_the_caller() -> None:
    random.seed(1)
    first = random.random()
    random.seed(1)
    assert len(drawn(st.integers(), 5, 10)) == 10
    assert random.random() == first
    assert reproduce_failure is not None


def test_importing_drift_imports_neither_the_harness_nor_hypothesis() -> None:
    program = (
        "import sys, drift; assert 'drift.testing' not in sys.modules; t = drift.testing; t.Seeds; "
        "assert 'hypothesis' not in sys.modules; sys.modules['hypothesis'] = None\n"
        "try:\n    t.deterministic\nexcept drift.SettingsError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'drifting-state[test]'" in done.stdout


# By hand.


def test_a_message_that_is_delayed_holds_minimal_time() -> None:
    driver = drift.testing.Driver(words, workers=1)
    driver.delay("lines > worker 0")
    driver.feed("lines", "a b")
    driver.feed("lines", "c")
    driver.end("lines")
    driver.settle()
    assert [str(message) for message in driver.in_flight()] == [
        "<batch lines > worker 0 lines 0>",
        "<batch lines > worker 0 lines 1>",
    ]
    assert driver.minimal_time == "time 0 source 0 path -" and driver.released == [] and driver.unsettled == 2
    driver.resume("lines > worker 0")
    driver.deliver(driver.in_flight()[1])
    driver.deliver(driver.in_flight("lines > worker 0")[0])
    assert driver.held["worker 0"] > 0
    driver.finish()
    assert driver.minimal_time == "the end" and driver.tombstones == 1
    assert [item.payload for item in driver.released] == [(1, 1), (1, 2), (1, 3)]


@pytest.mark.smoke
def test_heartbeats_release_what_is_below_them() -> None:
    driver = drift.testing.Driver(timed)
    with drift.testing.reaching():
        driver.feed("in", (7, 0), (3, 1))
        driver.settle()
        assert driver.released == [] and driver.minimal_time.startswith("time 2")
        driver.heartbeat("in", 5)
        driver.settle()
        assert [item.time for item in driver.released] == [3] and driver.unsettled == 1
        drift.testing.sometimes(driver.unsettled, "something is unsettled")
        driver.finish()
    assert [item.time for item in driver.released] == [3, 7]
    with pytest.raises(drift.LateItem):
        late = drift.testing.Driver(timed)
        late.feed("in", (10, 0))
        late.heartbeat("in", 9)
        late.feed("in", (8, 0))
        late.finish()


@pytest.mark.smoke
def test_clocks_move_live_sources_by_hand() -> None:
    graph = drift.Graph("live")
    ticks = graph.source("ticks")
    late = graph.source("late", time=drift.EventTime(time_of, lateness=3, idle_after_ms=50))
    ticks.merge(late).sink("out")
    driver = drift.testing.Driver(graph, live=["ticks", "late"])
    driver.feed("ticks", "first")
    driver.settle()
    assert driver.released == []
    driver.advance(10)
    driver.tick("ticks")
    driver.settle()
    assert driver.released == []  # the other source has had no heartbeat yet
    driver.idle("late")
    driver.settle()
    assert [item.payload for item in driver.released] == ["first"]
    driver.finish()


def test_what_a_dropped_connection_loses_is_an_error_and_no_wrong_output() -> None:
    driver = drift.testing.Driver(words, workers=2)
    driver.feed("lines", "a")
    driver.feed("lines", "b")
    assert len(driver.drop("lines > worker 1")) == 1
    with pytest.raises(drift.ProcessError, match="1 messages were lost"):
        driver.finish()
    assert [item.payload for item in driver.released] in ([], [(1, 1)])


def test_a_wrong_move_by_hand_is_refused_in_words(narrow_windows: None) -> None:
    driver = drift.testing.Driver(timed, workers=1, in_flight_max=2)
    with pytest.raises(drift.SettingsError, match="no source 'inn'"):
        driver.feed("inn", 1)
    with pytest.raises(drift.SettingsError, match="is fed nothing"):
        driver.feed("in")
    with pytest.raises(drift.SettingsError, match="credit for 2 items"):
        driver.feed("in", (0, 0), (0, 1), (0, 2))
    driver.feed("in", (0, 0))
    message = driver.in_flight()[0]
    driver.deliver(message)
    with pytest.raises(drift.SettingsError, match="not in flight"):
        driver.deliver(message)
    with pytest.raises(drift.SettingsError, match="arrival time"):
        drift.testing.Driver(words).heartbeat("lines", 3)
    with pytest.raises(drift.testing.NotDeterministic, match="the reference gives"):
        broken = drift.testing.Driver(timed, workers=1)
        broken.feed("in", (1, 0))
        broken.feed("in", (2, 0))
        broken.feed("in", (0, 0))
        broken.finish()


# A canary.

CANARY_SEEDS = 300


def test_a_canary_dies_within_so_many_seeds(narrow_windows: None) -> None:
    """A machine that is broken on purpose: where the harness does not see it, it is the harness that is broken."""
    from hunt import Laws

    laws = Laws()
    found = next((result for result in map(laws.run, range(CANARY_SEEDS)) if result.failure is not None), None)
    assert found is not None
    result = drift.testing.shrunk(found)
    assert result.case.item_count <= 4 and len(result.case.schedule.deviations) <= 2


def test_generated_graphs_of_any_seed_agree_with_the_reference() -> None:
    from hunt import Laws

    laws = Laws()
    for number in range(60):
        result = laws.run(number)
        assert result.failure is None, drift.testing.report(drift.testing.shrunk(result))


def test_a_loss_ends_a_run_after_the_right_beginning() -> None:
    seeds = drift.testing.Seeds(timed, {"in": rows}, losses=True)
    lost = 0
    for number in range(100):
        result = seeds.run(number)
        assert result.failure is None
        lost += isinstance(result.output.error, drift.ProcessError)
    assert lost > 0


def test_live_sources_that_fall_idle_give_what_their_stamps_say() -> None:
    graph = drift.Graph("live")
    ticks = graph.source("ticks")
    idle = graph.source("idle", time=drift.EventTime(time_of, lateness=3, late="divert", idle_after_ms=5))
    ticks.merge(idle).group(len, 2).sink("out")
    pairs = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=6)
    seeds = drift.testing.Seeds(graph, {"ticks": pairs, "idle": pairs}, live=["ticks", "idle"])
    paused = late = 0
    for number in range(80):
        result = seeds.run(number)
        assert result.failure is None
        paused += drift.testing.counts(result)["pauses"]
        late += len(result.simulation.late)
    assert paused > 0 and late > 0


def test_an_item_can_arrive_early_and_is_said_so() -> None:
    graph = drift.Graph("pairs")
    graph.source("rows", time=drift.EventTime(itemgetter(0), lateness=9)).group(lambda row: 0, 2).sink("out")
    rows = [(n, "x") for n in range(5)]
    schedule = Schedule(deviations=[(("early", "", "rows", 3, 0), 2)])
    result = check(Case(graph.build(), {"rows": rows}, schedule))
    assert result.failure is None and result.arrived == {"rows": [0, 3, 1, 2, 4]}
    words = Words(result.simulation, result.arrived)
    assert [words.of(each) for each in result.made.values()] == ["item 4 arrives before items 2 and 3"]
