"""What a run tells of itself in its state: its numbers go on, and a page shows runs that have ended or died."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_web import WATCHED, code_of, got
from waiting import HANG_S, wait_until

import drift
from drift.cli.progress import ProgressOfRun
from drift.show import as_svg
from drift.state.run_checkpoints import HISTORY
from drift.state.settings import read_store
from drift.web.address import as_address
from drift.web.life import decoded_history
from drift.web.server import LivePage
from drift.web.status import Status, _Thinned
from drift.web.stored import StoredRun


@pytest.mark.parametrize("engine", WATCHED)
def test_after_a_resume_no_number_says_that_anything_was_read(engine: Any, tmp_path: Path) -> None:
    def run() -> drift.Run:
        graph = drift.Graph("resumed")
        graph.source("numbers").map(lambda n: n + 1).sink("out")
        return drift.run(graph, {"numbers": range(1000)}, state=tmp_path, engine=engine, batch_items=10, web=0)

    for item in (stopped := run()):
        if item.position == 500:
            stopped.stop()
    with run() as again:
        checkpoint = again.resumed_from
        assert checkpoint is not None and 500 < again.progress.items_in <= stopped.report.items_in < 1000
        line = ProgressOfRun()
        line.text()
        line.follow(again)
        status, shown = Status(again), line.text()
        for numbers in (status.sample(), status.sample()):
            assert (numbers["items_in"], numbers["in_per_s"]) == (again.report.items_before, 0.0)
            assert numbers["minimal_time"] == again.progress.reached == f"time {again.progress.minimal_time}"
        assert numbers["items_out"] == again.progress.items_out == checkpoint.output.position
        assert " 0/s" in shown and "the beginning" not in shown
        assert again.report.items_per_second == 0.0
        again.finish()
    ended = run().finish()
    assert (ended.items_in, ended.items_before, ended.items_per_second) == (1000, 1000, 0.0)


def tenths(state: Any, engine: Any = "local", **settings: Any) -> drift.Run:
    """A run with two sinks, of which one gets every hundredth item with an error."""
    graph = drift.Graph("tenths")
    numbers = graph.source("numbers").map(lambda n: 1 // (n % 100) + n, name="tenth", on_error="divert")
    numbers.sink("out")
    state = drift.Checkpoints(state, every_s=0.0, every_items=50)
    return drift.run(graph, {"numbers": range(1000)}, state=state, engine=engine, batch_items=10, **settings)


@pytest.mark.parametrize("engine", WATCHED)
@pytest.mark.parametrize("ends", ["stopped", "left"])
def test_after_a_resume_each_number_goes_on_where_it_was(
    engine: Any, ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tenths(tmp_path, engine, counted=True)
    try:
        for item in first:
            if item.position == 500 and ends == "stopped":
                first.stop()
            elif item.position == 500:
                break
    finally:
        first.close()
    told = decoded_history(history_in(tmp_path), "here")
    assert told.status["state"] in ("stopped", "finished") and told.past.seconds > 0 and told.samples
    assert sum(told.status["sinks"].values()) == told.status["items_out"]
    with tenths(tmp_path, engine, counted=True) as again:
        checkpoint = again.resumed_from
        assert checkpoint is not None and sum(checkpoint.released.values()) == checkpoint.output.position > 0
        with monkeypatch.context() as later:
            clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 1000, time_ns=time.time_ns)
            later.setattr("drift.web.life.time", clock)
            numbers = again._watching.status.sample()
        assert numbers["sinks"] == checkpoint.released and numbers["diverted"] == checkpoint.released["errors"]
        assert numbers["seconds"] == round(told.past.seconds, 3) > 0  # long after it was made
        assert numbers["checkpoints"] == checkpoint.number > 0
        assert numbers["operators"]["tenth"]["items"] == told.status["operators"]["tenth"]["items"] > 0
        assert numbers["operators"]["tenth"]["busy_s"] > 0 == numbers["operators"]["tenth"]["busy"]
        again.finish()
        ended = again._watching.status.sample()
    assert ended["sinks"] == {"out": 990, "errors": 10} and ended["state"] == "finished"
    assert ended["checkpoints"] > numbers["checkpoints"] and ended["seconds"] > numbers["seconds"]
    last = decoded_history(history_in(tmp_path), "here")
    assert last.status["state"] == "finished" and last.status["sinks"] == ended["sinks"]
    assert [row[1] for row in last.samples].count(None) == 1  # where it resumed
    assert [row[0] for row in last.samples] == sorted(row[0] for row in last.samples)  # type: ignore[type-var]


def history_in(folder: Path) -> bytes:
    with read_store(folder) as store:
        (data,) = store.told(HISTORY)
    assert data is not None
    return data


def test_deaths_and_recoveries_of_earlier_processes_stay_counted(tmp_path: Path) -> None:
    tenths(tmp_path).finish()
    told = decoded_history(history_in(tmp_path), "here")
    past = told.past._replace(died=("worker 1",), recoveries=1, recovering_s=0.5, fed_again=7, refused_frames=2)
    (tmp_path / "history/last").write_bytes(told._replace(past=past).encoded())
    with tenths(tmp_path, web=0) as again:
        again.finish()
        numbers = again._watching.status.sample()
    assert list(numbers["died"]) == ["worker 1"] and (numbers["recoveries"], numbers["recovering_s"]) == (1, 0.5)
    assert (numbers["fed_again"], numbers["refused_frames"]) == (7, 2)
    assert again.report.died == () and again.report.recoveries == 0  # a report is of its own run


def test_a_history_that_was_changed_is_said_and_left(tmp_path: Path) -> None:
    tenths(tmp_path).finish()
    data = history_in(tmp_path)
    (tmp_path / "history/last").write_bytes(data.replace(b"finished", b"running "))
    with pytest.warns(UserWarning, match="was changed or cut off"), tenths(tmp_path) as again:
        assert again.finish().items_in == 1000
    assert decoded_history(history_in(tmp_path), "here").status["state"] == "finished"


def shown(command: list[str]) -> tuple[subprocess.Popen[str], str]:
    """`drift web`, as it serves, and the address that it says."""
    process = subprocess.Popen([sys.executable, "-m", "drift", "web", *command], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    return process, process.stderr.readline().split()[-1]


@pytest.mark.parametrize("engine", WATCHED)
def test_runs_that_ended_are_shown_from_their_states(engine: Any, tmp_path: Path) -> None:
    names = ["first", "second"]
    runs = [tenths(tmp_path / name, engine, counted=True) for name in names]
    runs[0].finish()
    for item in runs[1]:
        if item.position == 500:
            break
    runs[1].close()
    process, url = shown([str(tmp_path / name) for name in names])
    with process:
        try:
            listed = got(url)
            assert [f'<a href="{number}/">tenths</a>: ' in listed for number in (1, 2)] == [True, True]
            for number, (name, run) in enumerate(zip(names, runs), 1):
                told = decoded_history(history_in(tmp_path / name), "here")
                status = json.loads(got(f"{url}{number}/status.json"))
                assert {**status, **told.status} == status and status["history"] == told.samples
                assert status["stored"] == str(tmp_path / name) and status["stored_ms"] == told.told_ms
                assert got(f"{url}{number}/graph.svg") == as_svg(run.dataflow, live=True)
                assert "EventSource" in got(f"{url}{number}/") and code_of(f"{url}{number}/metrics") == 404
            assert json.loads(got(f"{url}1/status.json"))["sinks"] == {"out": 990, "errors": 10}
            tenths(tmp_path / "second", engine).finish()  # the page follows
            wait_until(
                lambda: '"items_in": 1000' in got(f"{url}2/status.json").replace('":', '": '), "the end is shown"
            )
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(HANG_S) == 130


def test_one_run_is_shown_at_once_and_what_is_no_state_of_a_run_is_refused(tmp_path: Path) -> None:
    tenths(tmp_path / "kept").finish()
    process, url = shown([str(tmp_path / "kept")])
    with process:
        try:
            assert "EventSource" in got(url) and json.loads(got(f"{url}status.json"))["graph"] == "tenths"
        finally:
            process.send_signal(signal.SIGINT)
    (tmp_path / "empty").mkdir()
    for where in ("empty", "nowhere"):
        process, _ = shown([str(tmp_path / where)])
        with process:
            assert process.wait(HANG_S) == 2


def test_where_nothing_can_draw_a_run_stores_no_picture_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pygraphviz.py").write_text("raise ImportError('libcgraph.so.8: cannot open shared object file')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pygraphviz", raising=False)
    assert tenths(tmp_path / "kept", counted=True).finish().items_in == 1000
    run = StoredRun(str(tmp_path / "kept"))
    assert run.sample()["items_in"] == 1000 and run.picture is None


def test_a_stored_run_whose_state_goes_away_is_shown_as_it_was_and_the_page_still_ends(tmp_path: Path) -> None:
    tenths(tmp_path / "kept").finish()
    page = LivePage(as_address("0"), {"": StoredRun(str(tmp_path / "kept"))})
    page.start()
    try:
        (tmp_path / "kept").rename(tmp_path / "moved")
        wait_until(lambda: json.loads(got(f"{page.url}status.json"))["error"], "the page says why")
        found = json.loads(got(f"{page.url}status.json"))
        assert found["sinks"] == {"out": 990, "errors": 10} and "kept holds no state of a run" in found["error"]
        (tmp_path / "moved").rename(tmp_path / "kept")
        wait_until(lambda: not json.loads(got(f"{page.url}status.json"))["error"], "the state is back")
        (tmp_path / "kept").rename(tmp_path / "moved")
    finally:
        ending = threading.Thread(target=page.close, daemon=True)
        ending.start()
        ending.join(HANG_S)
    assert not ending.is_alive()


def test_a_page_gets_each_row_of_a_stored_history_once(tmp_path: Path) -> None:
    tenths(tmp_path).finish()
    run = StoredRun(str(tmp_path))
    page = LivePage(as_address("0"), {"": run})
    page.start()
    try:
        with urllib.request.urlopen(f"{page.url}events", timeout=HANG_S) as events:
            lines = filter(None, map(bytes.strip, events))
            every = [json.loads(line.removeprefix(b"data: "))["history"] for line in itertools.islice(lines, 3)]
        assert every == [run.history(), [], []] and run.history()
    finally:
        page.close()


#: Is killed behind its first checkpoint.
DIES = """
import os, signal, sys
from test_stored_runs import tenths
run = tenths(sys.argv[1])
for batch in run.batches():
    run._run_checkpoints._store.wait()
    if run._run_checkpoints.written[1]:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("place", ["files", "redis", "postgres"])
def test_a_run_that_was_killed_is_shown_as_dead_and_one_that_lives_as_running(
    tmp_path: Path, place: str, request: pytest.FixtureRequest
) -> None:
    where = str(tmp_path / "kept") if place == "files" else f"{request.getfixturevalue(f'{place}_url')}#{tmp_path.name}"
    command = [sys.executable, "-c", DIES, where]
    assert subprocess.run(command, cwd=Path(__file__).parent).returncode == -signal.SIGKILL
    shown = StoredRun(where)
    wait_until(lambda: shown.sample()["state"] == "died", "the server has noticed")
    run = tenths(where)
    states = [shown.sample()["state"] for _ in run.batches()]
    assert set(states) == {"running"} and shown.sample()["state"] == "finished"


def test_a_run_that_failed_says_so_in_its_state(tmp_path: Path) -> None:
    graph = drift.Graph("bad")
    graph.source("n").map(lambda n: 10 // n, name="tenth").sink("out")
    with pytest.raises(drift.StepError):
        drift.run(graph, {"n": [1, 0]}, state=tmp_path).finish()
    status = decoded_history(history_in(tmp_path), "here").status
    assert status["state"] == "failed" and "tenth" in status["error"]


@given(st.lists(st.integers(0, 5), max_size=400), st.integers(1, 4))
def test_rows_of_a_life_are_few_in_order_and_reach_from_its_beginning_to_its_end(steps: list[int], least: int) -> None:
    rows, now = _Thinned([], least), 0
    for step in steps:
        now += step
        rows.add([float(now), 1.0, 1.0, 0])
        seconds = [row[0] or 0.0 for row in rows.rows]
        assert len(seconds) <= 2 * least and seconds == sorted(seconds) and seconds[0] == steps[0]
        assert now - seconds[-1] <= (seconds[-1] - seconds[0]) / least
