"""Processes of a run over ZeroMQ die, and the run goes on: by real signals, with the reference's output."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from gated import Gated
from test_zeromq import child, engine_of, silent, stop
from waiting import HANG_S

import drift

ITEMS = 30_000


def summed() -> drift.Graph:
    """A sum by key, the last three sums of each of seven keys, and a map behind them."""
    graph = drift.Graph("summed")
    numbers = graph.source("numbers")
    sums = numbers.scan(lambda number: number % 101, 0, lambda total, number: (total + number, (number, total)))
    sums.group(lambda row: row[0] % 7, 3).map(lambda window: sum(row[1] for row in window)).sink("out")
    return graph


@pytest.fixture(scope="module")
def expected() -> str:
    return drift.run(summed(), {"numbers": range(ITEMS)}).finish().digest


def run_of(numbers: Any = range(ITEMS), graph: drift.Graph | None = None, **settings: Any) -> drift.Run:
    chosen = {"workers": 2, "batch_items": 256, "checkpoint_interval_s": 0.05, **settings}
    return drift.run(graph or summed(), {"numbers": numbers}, engine="zeromq", **chosen)


def watch_rewinds(run: drift.Run) -> None:
    """From now on it is an error if acker and barrier take anything between halt and rewind."""
    output = engine_of(run)._output
    turn = output.turn

    def watched(messages: Sequence[Any], now_s: float) -> Any:
        assert not output.halted
        return turn(messages, now_s)

    output.turn = watched  # type: ignore[assignment]


def acted(actions: dict[int, Callable[[drift.Run], None]], **settings: Any) -> tuple[drift.Run, list[Any]]:
    """A run and its items; before some are taken, something is done, and only then more input comes through a pipe."""
    done = {position + 1000: threading.Event() for position in actions}
    reading, writing = os.pipe()

    def write() -> None:
        with contextlib.suppress(BrokenPipeError), os.fdopen(writing, "w") as lines:
            for number in range(ITEMS):
                if number in done:
                    lines.flush()
                    assert done[number].wait(HANG_S)
                lines.write(f"{number}\n")

    writer = threading.Thread(target=write)
    writer.start()
    items = []
    try:
        run = run_of(drift.sources.jsonl(f"/dev/fd/{reading}"), **settings)
        watch_rewinds(run)
        for position, item in enumerate(run):
            if position in actions:
                actions[position](run)
                done[position + 1000].set()
            items.append(item)
    finally:
        for event in done.values():
            event.set()
        os.close(reading)
        writer.join()
    return run, items


def kill(name: str) -> Callable[[drift.Run], None]:
    return lambda run: child(run, name).process.kill()


@pytest.mark.parametrize("name", ["worker 0", "worker 1"])
def test_a_run_resumes_where_a_process_is_killed(name: str, expected: str) -> None:
    run, items = acted({2000: kill(name)}, workers=3)
    assert run.digest == expected
    assert len(items) == ITEMS
    assert run.progress.died == [name]
    report = run.report
    assert report.recoveries == 1 and report.died == (name,)
    assert report.fed_again <= ITEMS and report.recovering_s > 0


def test_states_that_do_not_fit_in_memory_are_found_by_survivors_and_replacements() -> None:
    graph = drift.Graph("many keys")
    graph.source("numbers").scan(lambda n: n * n % 9973, 0, lambda total, n: (total + n, (n, total))).sink("out")
    expected = drift.run(graph, {"numbers": range(ITEMS)}).finish().digest
    overflowing: set[str] = set()

    def look(run: drift.Run) -> None:
        for each in engine_of(run)._children:
            maps = Path(f"/proc/{each.process.pid}/maps")
            if "(deleted)" in maps.read_text():  # their files have no names
                overflowing.add(each.name)

    looks = dict.fromkeys(range(6000, ITEMS, 500), look)  # there are new keys up to 9973: each has states dropped
    actions = {2000: kill("worker 0"), 4000: kill("worker 1"), **looks}
    run, items = acted(actions, graph=graph, memory_max=2)
    assert (run.digest, len(items)) == (expected, ITEMS)
    assert run.progress.died == ["worker 0", "worker 1"]
    assert overflowing == {"worker 0", "worker 1"}


@pytest.mark.smoke
def test_all_at_once_and_one_after_the_other(expected: str) -> None:
    names = ["worker 0", "worker 1", "worker 2"]

    def kill_all(run: drift.Run) -> None:
        for name in names:
            kill(name)(run)

    later = {9000 + 3000 * nth: kill(name) for nth, name in enumerate(names)}
    run, _ = acted({1000: kill_all, **later}, workers=3)
    assert run.digest == expected
    assert sorted(run.progress.died[:3]) == names and run.progress.died[3:] == names


def test_a_process_that_stands_still_counts_as_dead(expected: str) -> None:
    def hang(run: drift.Run) -> None:
        stop(child(run, "worker 0"))
        silent(child(run, "worker 0"), 3600)

    run, _ = acted({2000: hang})
    assert run.digest == expected
    assert run.progress.died == ["worker 0"]


def test_with_tcp_and_a_spare_that_is_there(expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drift.engines.zeromq.engine._COMPANIONS_AFTER_S", 0.0)
    run, _ = acted({500: kill("worker 1"), 15_000: kill("worker 1")}, transport="tcp")
    assert run.digest == expected
    assert run.progress.died == ["worker 1", "worker 1"]


def test_a_run_with_a_live_source_has_a_spare_process_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drift.engines.zeromq.engine._COMPANIONS_AFTER_S", float("inf"))
    monkeypatch.setattr("drift.engines.zeromq.engine._COMPANIONS_LIVE_AFTER_S", 0.0)

    def numbers() -> Iterator[int]:
        yield 1
        assert has_spare.wait(HANG_S)
        yield 2

    has_spare = threading.Event()
    graph = drift.Graph("live")
    graph.source("numbers").scan(lambda number: 0, 0, lambda total, number: (total + number, number)).sink("out")
    run = drift.run(graph, {"numbers": drift.sources.live(numbers())}, engine="zeromq", workers=2)
    for _ in run.batches():
        if engine_of(run)._spare is not None:
            has_spare.set()
    assert run.report.items_out == 2


def test_9_a_function_that_kills_its_process_fails_at_its_item_and_all_before_it_is_released() -> None:
    def step(total: int, number: int) -> tuple[int, int]:
        if number == 5000:
            os.kill(os.getpid(), signal.SIGKILL)
        return total + number, number

    graph = drift.Graph("poisoned")
    graph.source("numbers").scan(lambda number: number % 7, 0, step).sink("out")
    run = drift.run(graph, {"numbers": range(6000)}, engine="zeromq")
    items: list[Any] = []
    with pytest.raises(drift.ProcessError, match=r"(?s)step.*, 5000\) it has ended worker 0 3 times.*time 5000 "):
        items.extend(item.payload for item in run)
    assert items == list(range(5000))
    assert set(run.progress.died) == {"worker 0"} and len(run.progress.died) >= 3


def test_a_function_that_hangs_is_a_process_that_hangs(tmp_path: Path) -> None:
    marker = str(tmp_path / "hung")

    def hangs_once(number: int) -> int:
        if number == 500 and not os.path.exists(marker):  # noqa: PTH110
            open(marker, "w").close()  # noqa: PTH123
            time.sleep(3600)
        return number

    graph = drift.Graph("hanging")
    graph.source("numbers").map(hangs_once).sink("out")
    run = drift.run(graph, {"numbers": range(1000)}, engine="zeromq", call_max_s=0.3)
    assert [item.payload for item in run] == list(range(1000))
    assert set(run.progress.died) == {"worker 0"}  # more than once, where any call stands still for so long


@pytest.mark.parametrize("recover", [False, True])
def test_snapshots_of_checkpoints_go_when_a_store_has_them_and_nobody_needs_them(recover: bool, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"workers": 2, "batch_items": 256, "recover": recover}
    state = drift.Checkpoints(tmp_path, every_s=0.0)
    run = drift.run(summed(), {"numbers": range(10**9)}, engine="zeromq", state=state, **settings)
    written: set[str] = set()
    for _ in run.batches():
        there = {path.name for path in Path(engine_of(run)._folder).glob("*.snapshot")}
        written |= there
        if len(written) > 16:
            break
    run.close()
    assert recover or len(there) < len(written)


def test_without_recovery_a_death_ends_the_run() -> None:
    with pytest.raises(drift.ProcessError, match=r"worker 1 .*was killed by SIGKILL"):
        acted({2000: kill("worker 1")}, recover=False)


def test_a_state_that_cannot_be_stored_leaves_nothing_to_keep_anything_for() -> None:
    graph = drift.Graph("unpickled")
    graph.source("numbers").scan(lambda n: n % 7, None, lambda state, n: (lambda: n, n)).sink("out")
    run = drift.run(
        graph, {"numbers": range(10**9)}, engine="zeromq", workers=2, batch_items=256, checkpoint_interval_s=0.01
    )
    engine = engine_of(run)
    with pytest.warns(UserWarning, match="a state of graph 'unpickled' cannot be stored: .*pickle.* ends the run"):
        batches = (batch for batch in run.batches() if engine._node.rewind_log is None)
        next(batches)
    with pytest.raises(drift.ProcessError, match=r"worker 1 .*was killed by SIGKILL"):
        child(run, "worker 1").process.kill()
        for _ in batches:
            pass


def test_a_short_run_has_no_process_alongside_and_writes_no_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drift.engines.zeromq.engine._COMPANIONS_AFTER_S", HANG_S)  # short, however long it takes
    monkeypatch.setattr("drift.machines.nodes.checkpointing.FIRST_S", HANG_S)
    run = run_of(checkpoint_interval_s=None)
    for _ in run.batches():
        engine = engine_of(run)
        assert engine._spare is None and not engine._mergers.processes
        assert not list(Path(engine._folder).glob("*.snapshot"))
    assert run.report.items_out == ITEMS


def fill_disk(run: drift.Run, *, full: bool) -> None:
    """No process of the run can write files any more, as where the disk is full; or all can again."""
    for each in engine_of(run)._children:
        limit = 0 if full else resource.RLIM_INFINITY
        resource.prlimit(each.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


@pytest.fixture
def short_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run waits for room long before its logs have 256 MiB."""
    monkeypatch.setattr("drift.machines.nodes.rewind_log.LOG_BYTES_FULL", 20_000)
    monkeypatch.setattr("drift.machines.nodes.rewind_log.INTERVAL_S", 0.01)


@pytest.mark.usefixtures("short_logs")
def test_where_the_disk_is_full_a_run_waits_and_resumes_when_there_is_room(expected: str) -> None:
    numbers = Gated(range(ITEMS), 1000)
    run = run_of(numbers, checkpoint_interval_s=0.01)
    engine, waited = engine_of(run), False
    with pytest.warns(
        UserWarning, match=r"no checkpoint of graph 'summed' can be stored now: .*snapshot cannot be written"
    ):
        for batch in run.batches():
            if batch.position == 0:
                fill_disk(run, full=True)
                numbers.open_gate()
            if engine._node.awaits_room and not waited:
                assert not engine._node.may_read() and run.progress.items_in < ITEMS
            if run.progress.held_by.startswith("no room in ") and not waited:
                waited = True
                fill_disk(run, full=False)
    assert waited and run.digest == expected


@pytest.mark.usefixtures("short_logs")
def test_where_there_is_no_room_for_long_a_run_ends_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drift.machines.nodes.rewind_log.TRIES_MAX", 5)
    numbers = Gated(range(ITEMS), 1000)
    run = run_of(numbers, checkpoint_interval_s=0.01)
    error = (
        r"no checkpoint .* could be stored: .*snapshot cannot be written.* 0 MiB .* 5 times.* TMPDIR .*recover=False"
    )
    with pytest.warns(UserWarning, match="no checkpoint of graph"), pytest.raises(drift.ProcessError, match=error):
        for batch in run.batches():
            if batch.position == 0:
                fill_disk(run, full=True)
                numbers.open_gate()
    assert run.progress.items_in < ITEMS
