"""The harness as users meet it: a test of a sound graph passes, one of a broken machine fails and tells why."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, event, example, given, note, reproduce_failure, seed, settings, target
from hypothesis import strategies as st

import drift
import drift.testing
from drift.machines.grouping import GroupStage
from drift.testing.schedule import Player, arrival_order
from drift.testing.seeds import drawn


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
    compare = GroupStage._compare

    def broken(self: GroupStage, *args: Any) -> None:
        window = self._window
        self._window = max(window - 1, 1)
        try:
            compare(self, *args)
        finally:
            self._window = window

    monkeypatch.setattr(GroupStage, "_compare", broken)


@pytest.fixture(autouse=True)
def cases_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRIFT_CASES", str(tmp_path / "cases"))
    return tmp_path / "cases"


# A test like any other.


@settings(max_examples=30)
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


def test_a_property_of_ones_own_fails_as_hypothesis_tells_it() -> None:
    @settings(quick, derandomize=True)
    @drift.testing.deterministic(words, lines=lines)
    def law(run: Any) -> None:
        assert len(run.output) < 3

    with pytest.raises(AssertionError) as caught:
        law()
    assert any("lines=['a" in note and "schedule=Schedule(workers=1" in note for note in caught.value.__notes__)


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
    with pytest.raises(drift.SettingsError, match="nothing is given for source 'lines'"):
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


def test_a_broken_machine_is_told_with_all_there_is_to_know(narrow_windows: None, cases_folder: Path) -> None:
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


def test_a_case_file_outlives_the_mending(narrow_windows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(drift.testing.NotDeterministic) as caught:
        _broken_law()()
    monkeypatch.undo()
    assert drift.testing.run_case(caught.value.path).failure is None


def test_a_case_whose_graph_has_no_name_needs_it_passed(narrow_windows: None) -> None:
    local = drift.Graph("local")
    local.source("in", time=drift.EventTime(time_of, lateness=5)).group(parity, 3).sink("out")
    result = next(result for result in map(drift.testing.Seeds(local, {"in": rows}).run, range(500)) if result.failure)
    text, path = drift.testing.told(drift.testing.shrunk(result))
    assert path is not None and f"drift.testing.run_case({str(path)!r}, graph)" in text
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


@given(drift.testing.strategies.cases(items_max=6))
@settings(max_examples=50)
def test_a_schedule_that_is_written_out_goes_as_before(case: drift.testing.Case) -> None:
    from dataclasses import replace

    first = drift.testing.check(case)
    explicit = replace(case, schedule=case.schedule.with_deviations(first.made.values()))
    read = drift.testing.Schedule.from_json(json.loads(json.dumps(explicit.schedule.as_json())))
    assert read == explicit.schedule == eval(repr(read), {"Schedule": drift.testing.Schedule})
    second = drift.testing.check(explicit)
    assert first.failure is None and second.failure is None
    assert first.outcome is not None and second.outcome is not None
    assert [thing.key for thing in first.outcome.log] == [thing.key for thing in second.outcome.log]
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


def test_values_are_given_in_pieces() -> None:
    pool = [(number, number) for number in range(100)]
    seeds = drift.testing.Seeds(timed, {"in": pool}, items_max=7)
    pieces = [seeds.case(number).inputs["in"] for number in range(50)]
    assert all(piece == pool[piece[0][0] : piece[0][0] + len(piece)] for piece in pieces if piece)
    assert max(map(len, pieces)) == 7 and min(map(len, pieces)) < 2
    assert drift.testing.simulate_seed(timed, {"in": pool}, 4).failure is None


def test_drawing_does_not_touch_the_random_numbers_of_the_caller() -> None:
    random.seed(1)
    first = random.random()
    random.seed(1)
    assert len(drawn(st.integers(), 5, 10)) == 10
    assert random.random() == first
    assert reproduce_failure is not None


def test_importing_drift_imports_neither_the_harness_nor_hypothesis() -> None:
    program = (
        "import sys, drift; assert 'drift.testing' not in sys.modules; t = drift.testing; t.simulate_seed; "
        "assert 'hypothesis' not in sys.modules; sys.modules['hypothesis'] = None\n"
        "try:\n    t.deterministic\nexcept drift.SettingsError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'drifting-state[test]'" in done.stdout
