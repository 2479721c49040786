"""Durable steps: each segment of a graph goes on from checkpoints of its own, and the output is that of the graph."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import warnings
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import segmented
from gated import Gated
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import Case, cases, scheduled_cases
from test_checkpoints import later_steps, rows, with_later
from test_laws import reference, run_with
from test_state import breaks, check_goes_on

import drift
from drift.engines.local import LocalEngine
from drift.records.fingerprint import fingerprint
from drift.segments.chain import ChainCheckpoints
from drift.segments.log import BorderLog, Passed
from drift.state.run_checkpoints import known
from drift.state.settings import store_of
from drift.testing.check import check
from drift.testing.schedule import Schedule
from drift.testing.seeds import Seeds, counts
from drift.testing.values import Flags, Noted
from drift_graph.errors import GraphError
from drift_graph.graph import Dataflow
from drift_graph.meta import time_of
from drift_graph.operators import Sink, Source
from drift_graph.segments import segments_of

few = settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow], deadline=None)
chosen = st.integers(0, 2**24 - 1)


def durable(dataflow: Dataflow, chosen: int) -> Dataflow:
    """The graph with other steps durable, by the bits of a number: of those that are on no loop."""
    operators = list(dataflow.operators)
    for at, operator in enumerate(operators):
        if chosen >> at % 24 & 1 and not isinstance(operator, (Source, Sink)) and not _returns(dataflow, operator.name):
            operators[at] = dataclasses.replace(operator, durable=True)
    return Dataflow(dataflow.name, tuple(operators), dataflow.edges)


def _returns(dataflow: Dataflow, name: str) -> bool:
    todo = [edge.target for edge in dataflow.edges if edge.origin == name]
    reached = set(todo)
    for each in todo:
        for edge in dataflow.edges:
            if edge.origin == each and edge.target not in reached:
                reached.add(edge.target)
                todo.append(edge.target)
    return name in reached


class Durable(Case):  # type: ignore[misc]
    """A case some of whose steps are durable."""

    chosen = 0

    def dataflow(self) -> Dataflow:
        return durable(super().dataflow(), self.chosen)


# The law, in one process.


@given(cases(items_max=10), chosen, breaks)
@few
def test_segments_give_the_output_of_the_graph_and_resume_each_from_a_checkpoint_of_its_own(
    tmp_path_factory: pytest.TempPathFactory, case: Case, chosen: int, pieces: list[int]
) -> None:
    check_goes_on(durable(case.dataflow(), chosen), case.sources(), pieces, tmp_path_factory.mktemp("state"))


@given(later_steps, rows(), rows(), chosen, breaks)
@few
def test_timers_and_rounds_pass_borders(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], first: Any, second: Any, chosen: int, pieces: list[int]
) -> None:
    dataflow = durable(with_later(steps), chosen)
    check_goes_on(dataflow, {"in0": first, "in1": second}, pieces, tmp_path_factory.mktemp("state"))


@given(cases(failing=True), chosen, st.data())
@few
def test_a_call_that_fails_in_any_segment_ends_the_run_at_its_item(
    tmp_path_factory: pytest.TempPathFactory, case: Case, chosen: int, data: st.DataObject
) -> None:
    segmented = Durable(*case)
    segmented.chosen = chosen
    state = drift.Checkpoints(tmp_path_factory.mktemp("state"), every_s=0, classes=(Noted, Flags))
    expected = reference(case, data)
    assert run_with(segmented, data, engine="local", state=state) == expected
    if expected.error is not None:
        again = run_with(segmented, data, engine="local", state=state)
        assert again.error == expected.error and again.digest == expected.digest
        assert again.items == expected.items[len(expected.items) - len(again.items) :]


# The law, simulated: releases come in pieces, between which the calling process dies.


def test_simulated_releases_in_pieces_with_deaths_between_them_give_the_output_of_the_graph() -> None:
    seeds = Seeds(sums().build(), {"n": range(60)}, deaths=True, items_max=12)
    drawn: Counter[str] = Counter()
    for seed in range(80):
        result = seeds.run(seed)
        assert result.failure is None, f"seed {seed}: {result.failure}"
        drawn += counts(result)
    ways = ("releases in pieces", "releases joined", "deaths between two pieces of a release", "older checkpoints")
    assert all(drawn[way] >= 10 for way in ways), drawn


@given(scheduled_cases(schedule=st.builds(Schedule, st.integers(1, 2), noise=st.integers(1, 10**9))), chosen)
@few
def test_simulated_segments_of_any_graph_give_its_output_whatever_dies(case: Any, chosen: int) -> None:
    schedule = dataclasses.replace(case.schedule, deaths=True)
    result = check(dataclasses.replace(case, dataflow=durable(case.dataflow, chosen), schedule=schedule))
    assert result.failure is None, result.failure


# What is refused, and what changes nothing.


def test_a_durable_step_on_a_loop_is_refused() -> None:
    graph = drift.Graph("round")
    loop = graph.feedback("again")
    windows = graph.source("n").merge(loop).group(lambda n: n % 3, 2)
    turned = windows.flat_map(lambda window: [window[-1] - 1] if window[-1] else [], name="turn", durable=True)
    turned.feed(loop)
    turned.sink("out")
    with pytest.raises(GraphError, match=r"step 'turn' \(at .*\) is durable, and its output returns to it"):
        graph.build()


def test_durable_is_a_word_of_every_kind_of_step() -> None:
    graph = drift.Graph("all")
    numbers = graph.source("n", time=drift.EventTime(lambda n: n))
    keyed = numbers.map(lambda n: n, name="m", durable=True).key_by(lambda n: n % 3)
    keyed.scan(0, lambda total, n: (total + n, total), name="s", durable=True).sink("scan")
    keyed.group(2, name="g", durable=True).sink("group")
    keyed.window(drift.windows.tumbling(5)).aggregate(drift.agg.count(), name="w", durable=True).sink("window")
    keyed.at_end(drift.agg.count(), name="e", durable=True).sink("end")
    numbers.process(lambda n: 0, 0, lambda s, n, t: (s, [n]), lambda s, n, t: (s, []), name="p", durable=True).sink(
        "process"
    )
    dataflow = graph.build()
    assert {each.step for each in dataflow.operators if each.durable} == set("msgwep")
    assert len(segments_of(dataflow)) == 3


def test_it_changes_neither_graph_nor_fingerprint_nor_a_run_without_state() -> None:
    def made(durable: bool) -> Dataflow:
        graph = drift.Graph("same")
        graph.source("n").map(abs, name="m", durable=durable).count(lambda n: n).sink("out")
        return graph.build()

    assert made(True) == made(False)
    assert fingerprint(made(True))["digest"] == fingerprint(made(False))["digest"]
    assert isinstance(drift.run(made(True), {"n": [1]})._engine, LocalEngine)


def test_a_process_that_has_several_segments_is_counted_once() -> None:
    graph = drift.Graph("counted")
    graph.source("n").map(lambda n: n + 1, durable=True).map(lambda n: n, durable=True).call(abs).sink("out")
    run = drift.run(graph, {"n": [1, 2]}, counted=True)
    for _ in run:
        pass
    (process,) = run.observed().processes
    assert process.name == "run" and process.pid == os.getpid()


# Over processes, too.


def sums(*, failing_at: int | None = None, killing_at: tuple[int, Path] | None = None) -> drift.Graph:
    """Two durable steps in a row, and what goes past both."""

    def dear(n: int) -> int:
        return n // (n - failing_at) if failing_at is not None else n * 3

    def summed(total: int, n: int) -> tuple[int, tuple[int, int]]:
        if killing_at is not None and n == 3 * killing_at[0] and not killing_at[1].exists():
            killing_at[1].touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return total + n, (n, total + n)

    graph = drift.Graph("sums")
    scores = graph.source("n").map(dear, name="dear", durable=True)
    rows = scores.scan(lambda n: n % 7, 0, summed, name="sums", durable=True)
    rows.group(lambda row: row[0] % 5, 3).map(len, name="len").sink("out")
    scores.sink("scores")
    return graph


@pytest.mark.parametrize("engine", ["local", "zeromq"])
def test_a_run_that_is_stopped_leaves_each_segment_at_a_checkpoint(tmp_path: Path, engine: str) -> None:
    inputs = {"n": range(1000)}
    checkpoints = drift.Checkpoints(tmp_path, every_s=1000)
    numbers = {"n": Gated(range(1000), 500)}
    run = drift.run(sums(), numbers, engine=engine, state=checkpoints, batch_items=50)  # type: ignore[call-overload]
    for item in run:
        if item.position == 500:
            run.stop()
    run_checkpoints = run._run_checkpoints
    assert isinstance(run_checkpoints, ChainCheckpoints)
    assert all(each.checkpoint is not None and not each.checkpoint.is_last for each in run_checkpoints.of_segments)
    run = drift.run(sums(), inputs, state=checkpoints)
    assert run.resumed_from is not None
    assert run.finish().digest == drift.run(sums(), inputs).finish().digest


def test_over_processes_a_call_that_fails_passes_all_borders(tmp_path: Path) -> None:
    state = drift.Checkpoints(tmp_path, every_s=0)
    run = drift.run(sums(failing_at=300), {"n": range(400)}, engine="zeromq", state=state, batch_items=50)
    with pytest.raises(drift.StepError, match=r"'dear' .* ZeroDivisionError"):
        run.finish()
    assert run.report.items_out == 600


def test_a_worker_that_dies_is_replaced_in_its_segment(tmp_path: Path) -> None:
    inputs = {"n": range(800)}
    graph = sums(killing_at=(400, tmp_path / "killed"))
    report = drift.run(graph, inputs, engine="zeromq", state=tmp_path / "state", batch_items=50).finish()
    assert report.died == ("worker 0 of segment 2",)
    assert report.digest == drift.run(sums(), inputs).finish().digest


def test_of_what_a_log_has_dropped_nothing_is_held(tmp_path: Path) -> None:
    log = BorderLog(tmp_path, "'dear'")
    times = [n.to_bytes(8, "big") for n in range(1, 101)]
    for begin, below in pairwise(times):
        log.write(Passed([begin], [begin.hex()], "out", below))
    log.drop_below(times[90])
    assert len(log._ends) == 9
    assert [passed.payloads for passed in log.read(times[95])] == [[time.hex()] for time in times[95:-1]]
    log.close()


def test_a_release_that_comes_in_pieces_is_passed_on_whole(tmp_path: Path) -> None:
    """Over zeromq a release of more items than a block of the digest has is handed out in pieces."""
    graph = drift.Graph("pieces")
    graph.source("numbers").map(lambda n: n + 1, name="next", durable=True).sink("out")
    run = drift.run(graph, {"numbers": range(9000)}, engine="zeromq", state=str(tmp_path / "state"))
    assert [item.payload for item in run] == list(range(1, 9001))


@pytest.mark.parametrize("engine", ["local", "zeromq"])
def test_everything_dies_and_each_segment_resumes_from_a_checkpoint_of_its_own(tmp_path: Path, engine: str) -> None:
    expected = segmented.run(tmp_path / "unbroken", "local")
    digest = expected.finish().digest
    died = tmp_path / "died"
    died.mkdir()
    command = [sys.executable, segmented.__file__, str(died), engine]
    assert subprocess.run(command, cwd=Path(__file__).parents[1]).returncode == -signal.SIGKILL
    before, behind = known(died / "state" / "segments" / "1"), known(died / "state")
    while behind[-1].at > before[len(before) // 2].at:  # its last ones were lost
        store = store_of(died / "state")
        store.open()
        store.drop(behind.pop().number)
        store.close()
    assert before[0].at <= behind[-1].at < before[-1].at, "upstream's is newer, and it has one that is not"
    for log in ("whole", "gone", "broken") if engine == "local" else ("whole",):
        folder = tmp_path / log
        shutil.copytree(died, folder)
        (folder / "read").unlink()
        (folder / "called").unlink()
        files = sorted((folder / "state" / "inputs" / "segment+1").iterdir())
        if log == "gone":
            shutil.rmtree(files[0].parent)
        elif log == "broken":
            data = bytearray(files[-1].read_bytes())
            data[len(data) // 3] ^= 1
            files[-1].write_bytes(data)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", UserWarning)
            run = segmented.run(folder, engine, batch_items=70)
        said = [str(each.message) for each in warned if each.category is UserWarning]  # others' garbage may warn, too
        assert run.resumed_from is not None and run.resumed_from.at == behind[-1].at
        assert run.finish().digest == digest
        assert (folder / "out.jsonl").read_bytes() == (tmp_path / "unbroken" / "out.jsonl").read_bytes()
        calls = segmented.noted(folder, "called")
        begin, newest = min(calls), time_of(before[-1].at)
        assert sorted(calls) == list(range(begin, segmented.ITEMS)), log
        if log == "whole":
            assert begin == newest and not said, "nothing before it is computed again"
        else:
            older = [time_of(checkpoint.at) for checkpoint in before if checkpoint.at <= behind[-1].at][-1]
            assert any("log of durable step 'dear'" in each for each in said)
            assert begin == older if log == "gone" else older <= begin < newest
        assert begin - 50 < min(segmented.noted(folder, "read")) <= begin, "from the batch on that the checkpoint is in"
