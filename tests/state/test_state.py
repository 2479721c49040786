"""Runs that keep their state: what ends them, and that they go on from a checkpoint as if nothing had."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pytest
import redis
from gated import Gated
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import cases
from test_checkpoints import WINDOWS, later_steps, rows, with_later
from test_records_cli import call
from waiting import wait_until_stored

import drift
import drift.state.files
import drift.state.store
from drift.machines.keyed import KeyedStage
from drift.machines.nodes.barrier import BarrierNode
from drift.machines.nodes.feeding import FeedNode
from drift.machines.nodes.messages import Batch, CheckpointReply, MinimalTime, ReleasedMessage
from drift.state.backend import Away
from drift.state.checkpoint import StateDamaged
from drift.state.run_checkpoints import known
from drift.state.settings import backend_of, store_of
from drift.state.snapshots import Forms, States
from drift.state.store import _FOLDED_SNAPSHOTS
from drift.state.tables import manifest, merged_in, number_of, numbers_in
from drift.testing.values import Flags, Noted
from drift_barrier.digest import BLOCK_ITEMS
from drift_graph.item import Columns
from drift_graph.metas import Metas


def whole(dataflow: drift.Dataflow, sources: dict[str, Any], **more: Any) -> tuple[str, list[Any]]:
    run = drift.run(dataflow, sources, **more)
    items = [(item.position, item.sink, item.meta, repr(item.payload)) for item in run]
    return run.report.digest, items


def check_goes_on(dataflow: drift.Dataflow, sources: dict[str, Any], batches: list[int], folder: Path) -> None:
    """Broken off after some batches, again and again; then to the end."""
    digest, items = whole(dataflow, sources)
    memory_max = 1 if len(batches) % 2 else None
    checkpoints = drift.Checkpoints(folder, every_s=0, keep=1 + len(batches) % 3, classes=(Noted, Flags))
    seen: dict[int, Any] = {}
    for count in [*batches, 10**9]:
        run = drift.run(dataflow, sources, state=checkpoints, batch_items=2, memory_max=memory_max)
        begin = run.resumed_from.output.position if run.resumed_from is not None else 0
        for number, batch in enumerate(run.batches()):
            for at, (meta, payload) in enumerate(zip(batch.metas, batch.payloads)):
                sink = batch.sinks if isinstance(batch.sinks, str) else batch.sinks[at]
                assert batch.position + at >= begin
                seen[batch.position + at] = (batch.position + at, sink, meta, repr(payload))
            if number == count:
                run.close()
                break
    assert [seen[at] for at in sorted(seen)] == items
    assert run.report.digest == digest
    assert run.report.items_out == len(items)


@pytest.mark.smoke
@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_open_at_a_checkpoint_closes_in_the_next_run_though_no_item_of_its_key_comes_any_more(
    tmp_path: Path, window: str
) -> None:
    graph = drift.Graph("windows")
    items = graph.source("items", time=drift.EventTime(lambda item: item, lateness=0))
    items.key_by(lambda item: item).window(WINDOWS[window]).count().sink("out")
    check_goes_on(graph.build(), {"items": list(range(40))}, [6, 6], tmp_path)


breaks = st.lists(st.integers(0, 6), max_size=3)


@pytest.mark.smoke
@given(cases(items_max=10), breaks)
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_a_run_that_is_broken_off_resumes_as_if_it_had_not_been(
    tmp_path_factory: pytest.TempPathFactory, case: Any, batches: list[int]
) -> None:
    check_goes_on(case.dataflow(), case.sources(), batches, tmp_path_factory.mktemp("state"))


@given(later_steps, rows(), rows(), breaks)
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_a_run_with_later_items_resumes(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], first: Any, second: Any, batches: list[int]
) -> None:
    check_goes_on(with_later(steps), {"in0": first, "in1": second}, batches, tmp_path_factory.mktemp("state"))


# Over processes.


def check_goes_on_over(engines: list[tuple[str, dict[str, Any]]], graph: Any, inputs: Any, folder: Path) -> None:
    """Each run is broken off once it has taken a checkpoint of its own; the last one ends. One output comes of all."""
    digest, items = whole(graph, inputs)
    seen: dict[int, Any] = {}
    for number, (engine, more) in enumerate(engines):
        given = inputs
        if number < len(engines) - 1:  # it cannot end before it has its checkpoint
            given = {name: Gated(rows, len(rows) // 3) for name, rows in inputs.items()}
        run = drift.run(graph, given, engine=engine, state=drift.Checkpoints(folder, every_s=0), batch_items=50, **more)  # type: ignore[call-overload]
        run_checkpoints = run._run_checkpoints
        assert run_checkpoints is not None and (run.resumed_from is not None) is (number > 0)
        for batch in run.batches():
            for at, (meta, payload) in enumerate(zip(batch.metas, batch.payloads)):
                sink = batch.sinks if isinstance(batch.sinks, str) else batch.sinks[at]
                seen[batch.position + at] = (batch.position + at, sink, meta, repr(payload))
            if number < len(engines) - 1 and run_checkpoints.checkpoint is not run.resumed_from:
                assert not run_checkpoints.checkpoint.is_last
                run.close()
                break
    assert [seen[at] for at in sorted(seen)] == items
    assert run.report.digest == digest
    again = drift.run(graph, inputs, engine="zeromq", state=folder)
    assert again.finish().digest == digest and again._run_checkpoints is not None
    assert again.resumed_from is not None and again.resumed_from.is_last
    assert (
        again._run_checkpoints.checkpoint is again.resumed_from
    )  # there was nothing to do, and no other checkpoint is kept


@pytest.mark.parametrize("steps", [["scan", "group"], ["delay", "process"], ["sliding", "turn", "end"]], ids="-".join)
def test_a_run_resumes_over_another_engine_and_with_other_workers(tmp_path: Path, steps: list[str]) -> None:
    inputs = {f"in{rank}": [(10 + at // 3 - at * 7 % 5, at * 31 % 10) for at in range(1000)] for rank in range(2)}
    engines: list[tuple[str, dict[str, Any]]] = [("zeromq", {"workers": 3}), ("local", {}), ("zeromq", {"workers": 2})]
    check_goes_on_over(engines, with_later(steps), inputs, tmp_path)


def test_the_snapshot_of_a_barrier_comes_between_what_is_below_the_checkpoint_and_what_is_let_go_later() -> None:
    graph = drift.Graph("numbers")
    graph.source("in").sink("out")
    node = BarrierNode(graph.build(), "xxh3_128")
    metas = [b"\x80" + bytes(6) + bytes([at, 0, 0]) for at in (1, 2, 3)]
    node.turn([Batch(metas[0], 1, [("out", Columns(Metas([meta + b"\0" for meta in metas]), [1, 2, 3], None))])], 0.0)
    notices = [
        MinimalTime(metas[1], metas[1], -1, 0, metas[1], 0, 7),
        MinimalTime(metas[2], metas[2], -1, 0, metas[2], 0),
    ]
    sent = [send.message for send in node.turn(notices, 0.0)]
    assert [type(message) for message in sent] == [ReleasedMessage, CheckpointReply, ReleasedMessage]
    assert [each.released.payloads for each in sent if isinstance(each, ReleasedMessage)] == [[1], [2]]


def test_a_worker_that_dies_in_a_run_that_keeps_its_state_is_replaced_and_the_next_run_resumes(tmp_path: Path) -> None:
    graph, inputs = counted(), {"numbers": [{"n": number} for number in range(12_000)]}
    digest = drift.run(graph, inputs).finish().digest
    checkpoints = drift.Checkpoints(tmp_path, every_s=0)
    for last in (False, True):
        settings = {"engine": "zeromq", "workers": 2, "batch_items": 100}
        numbers = Gated(inputs["numbers"], 4000)
        run = drift.run(graph, {"numbers": numbers}, state=checkpoints, **settings)  # type: ignore[call-overload]
        assert run._run_checkpoints is not None
        killed = False
        for batch in run.batches():
            if batch.metas and not killed:
                worker = next(each for each in run._engine._children if each.role == 0)  # type: ignore[attr-defined]
                os.kill(worker.process.pid, signal.SIGKILL)
                killed = True
                if last:
                    numbers.open_gate()
            if not last and run._run_checkpoints.checkpoint is not None and run.report.recoveries:
                run.close()
                break
        assert run.report.died == ("worker 0",)
    assert run.report.digest == digest


# A process that is killed.

CHILD = """
import os, signal, sys
import drift
from test_state import counted, numbers_of
folder, batches, place = sys.argv[1], int(sys.argv[2]), sys.argv[3]
run = drift.run(counted(), numbers_of(folder), sinks={"out": drift.sinks.jsonl(folder + "/out.jsonl")},
                state=drift.Checkpoints(place, every_s=0, keep=2), batch_items=500)
for number, batch in enumerate(run.batches()):
    if number == batches:
        run._run_checkpoints._store.wait()
        os.kill(os.getpid(), signal.SIGKILL)
"""


#: Is killed in place of a write, counted among those of rows of the digest's open block.
KILLED_AT_A_ROW = """
import os, signal, sys
import drift, drift.state.open_block
from drift.state.store import Store
from test_state import counted, numbers_of
folder, left, place = sys.argv[1], int(sys.argv[2]), sys.argv[3]
drift.state.open_block.ROW_BYTES = 1000
write = Store._write
def write_or_die(store, changes, *expected):
    global left
    left -= bool(changes.get("opened"))
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    write(store, changes, *expected)
Store._write = write_or_die
run = drift.run(counted(), numbers_of(folder), sinks={"out": drift.sinks.jsonl(folder + "/out.jsonl")},
                state=drift.Checkpoints(place, every_s=0, keep=2), batch_items=500)
for batch in run.batches():
    run._run_checkpoints._store.wait()
"""


@contextmanager
def computed() -> Iterator[list[int]]:
    """How many items come to scans meanwhile, batch by batch."""
    found: list[int] = []
    process = KeyedStage.process

    def counted_process(stage: KeyedStage, columns: Columns, ports: Any) -> Columns:
        found.append(len(columns.metas))
        return process(stage, columns, ports)

    with mock.patch.object(KeyedStage, "process", counted_process):
        yield found


def counting(state: int, row: Any) -> tuple[int, Any]:
    return state + row["n"], {"key": row["n"] % 97, "sum": state + row["n"]}


def key_of(row: Any) -> int:
    return int(row["n"] % 97)


def counted() -> drift.Graph:
    graph = drift.Graph("counted")
    graph.source("numbers").scan(key_of, 0, counting, name="sums").sink("out")
    return graph


def numbers_of(folder: str) -> dict[str, Any]:
    return {"numbers": drift.sources.jsonl(f"{folder}/in.jsonl")}


# What is kept.


def test_a_run_that_is_stopped_has_not_ended_and_resumes(tmp_path: Path) -> None:
    graph, inputs = counted(), {"numbers": [{"n": number} for number in range(5000)]}
    digest = drift.run(graph, inputs).finish().digest
    run = drift.run(graph, inputs, state=tmp_path, batch_items=100)
    for batch in run.batches():
        if batch.position > 700:
            run.stop()
    assert 700 < run.report.items_out < 2000
    run = drift.run(graph, inputs, state=tmp_path)
    assert run.resumed_from is not None and not run.resumed_from.is_last
    assert run.finish().digest == digest


class Silent:
    """A live source that gives some items, and then nothing."""

    live = True

    def __init__(self, items: int) -> None:
        self._left = [{"n": number} for number in range(items)]

    def open(self) -> Silent:
        return self

    def read(self, items_max: int) -> list[Any]:
        batch, self._left = self._left[:items_max], self._left[items_max:]
        return batch

    def filenos(self) -> list[int]:
        return []

    def close(self) -> None:
        pass


@pytest.mark.parametrize("engine", ["local", "zeromq"])
def test_a_run_that_failed_fails_again_at_its_item(tmp_path: Path, engine: str) -> None:
    """Minimal time may be past it: no checkpoint is taken there."""
    graph = drift.Graph("fails")
    graph.source("n").map(lambda n: 10 // (n - 300), name="part").group(lambda n: n, 1).sink("out")
    for _ in range(2):
        run = drift.run(
            graph, {"n": range(400)}, engine=engine, state=drift.Checkpoints(tmp_path, every_s=0), batch_items=40
        )  # type: ignore[call-overload]
        with pytest.raises(drift.StepError, match=r"part.*ZeroDivisionError"):
            run.finish()
        assert run.report.items_out == 300


@pytest.mark.parametrize("time", [drift.ArrivalTime(), drift.EventTime(lambda n: n, lateness=10**6)])
def test_the_checkpoint_at_the_end_comes_behind_all_output_that_waits_though_the_run_has_ended(
    time: drift.TimePolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = FeedNode.take_released
    monkeypatch.setattr(FeedNode, "take_released", lambda node: take(node) if node.finished is not None else [])
    items = 3 * BLOCK_ITEMS  # released batch by batch, or in three parts at the end
    graph = drift.Graph("numbers")
    graph.source("n", time=time).map(lambda n: n + 1).sink("out")
    state = drift.Checkpoints(tmp_path, every_s=1000)
    run = drift.run(graph, {"n": range(items)}, engine="zeromq", state=state, batch_items=2000)
    run_checkpoints, yielded = run._run_checkpoints, 0
    assert run_checkpoints is not None
    for batch in run.batches():
        yielded += len(batch.metas)
        run_checkpoints.take()
        assert run_checkpoints.checkpoint is None or not run_checkpoints.checkpoint.is_last or yielded == items
        assert yielded == items or run._engine.awaits_checkpoint or not batch.metas  # type: ignore[attr-defined]
    assert run_checkpoints.checkpoint is not None and run_checkpoints.checkpoint.is_last


@pytest.mark.parametrize("engine", ["local", "zeromq"])
def test_a_live_run_that_is_stopped_leaves_at_a_new_checkpoint(tmp_path: Path, engine: str) -> None:
    checkpoints = drift.Checkpoints(tmp_path, every_s=1000)
    run = drift.run(counted(), {"numbers": Silent(500)}, engine=engine, state=checkpoints)
    released = 0
    for batch in run.batches():
        released += len(batch.metas)
        if released >= 300:
            run.stop()
    run = drift.run(counted(), {"numbers": Silent(0)}, engine=engine, state=checkpoints)
    assert run.resumed_from is not None
    assert run.resumed_from.output.position == released >= 300
    run.close()


@pytest.fixture(params=["files", "redis", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place of each kind, with nothing in it."""
    return str(tmp_path / "state") if request.param == "files" else on_server(request, tmp_path)


@pytest.fixture(params=["redis", "postgres"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place on a server of each kind, with nothing in it."""
    return on_server(request, tmp_path)


def on_server(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.getfixturevalue(f'{request.param}_url')}#{tmp_path.name}"


def test_a_process_that_is_killed_is_resumed_from(tmp_path: Path, where: str) -> None:
    numbers = tmp_path / "in.jsonl"
    numbers.write_text("".join(f'{{"n": {number}}}\n' for number in range(20_000)))
    unbroken = tmp_path / "unbroken.jsonl"
    digest = drift.run(counted(), numbers_of(str(tmp_path)), sinks={"out": drift.sinks.jsonl(unbroken)}).finish().digest
    out = drift.sinks.jsonl(tmp_path / "out.jsonl")
    for batches in (7, 15) if "://" not in where else (15,):
        done = subprocess.run(
            [sys.executable, "-c", CHILD, str(tmp_path), str(batches), where], cwd=Path(__file__).parent
        )
        assert done.returncode == -signal.SIGKILL
    run = drift.run(counted(), numbers_of(str(tmp_path)), sinks={"out": out}, state=drift.Checkpoints(where, keep=2))
    checkpoint = run.resumed_from
    assert checkpoint is not None and checkpoint.items_in == checkpoint.output.position > 0
    with computed() as items:
        report = run.finish()
    assert report.digest == digest and (report.items_in, report.items_out) == (20_000, 20_000)
    assert sum(items) == 20_000 - checkpoint.items_in
    assert (tmp_path / "out.jsonl").read_bytes() == unbroken.read_bytes()
    again = drift.run(counted(), numbers_of(str(tmp_path)), sinks={"out": out}, state=where)
    assert again.resumed_from is not None and again.resumed_from.is_last
    with computed() as items:
        assert again.finish().digest == digest and not items


def test_a_kill_between_rows_of_the_open_block_leaves_the_checkpoint_before(tmp_path: Path, where: str) -> None:
    (tmp_path / "in.jsonl").write_text("".join(f'{{"n": {number}}}\n' for number in range(5_000)))
    whole = drift.run(counted(), numbers_of(str(tmp_path)), sinks={"out": drift.sinks.jsonl(tmp_path / "whole.jsonl")})
    digest = whole.finish().digest
    for writes in (1, 4, 9, 30) if "://" not in where else (9,):
        command = [sys.executable, "-c", KILLED_AT_A_ROW, str(tmp_path), str(writes), where]
        assert subprocess.run(command, cwd=Path(__file__).parent).returncode == -signal.SIGKILL
    out = drift.sinks.jsonl(tmp_path / "out.jsonl")
    run = drift.run(counted(), numbers_of(str(tmp_path)), sinks={"out": out}, state=drift.Checkpoints(where, keep=2))
    assert run.resumed_from is not None and run.resumed_from.output.opened
    reader = backend_of(where).reader()
    retained = [manifest(reader, key, where) for key in reader.sizes("cuts")]
    named = {row.name.encode() for each in retained if each is not None for row in each.output.opened}
    assert set(reader.sizes("opened")) == named  # and none of the checkpoint that the kill cut off
    reader.close()
    assert run.finish().digest == digest
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def some_checkpoints(backend: str | Path, graph: drift.Graph | None = None, keep: int = 3) -> None:
    with mock.patch.object(drift.state.store, "_FOLDED_BYTES", 1):
        take_some_checkpoints(backend, graph, keep)


def take_some_checkpoints(backend: str | Path, graph: drift.Graph | None, keep: int) -> None:
    inputs = {"numbers": [{"n": number} for number in range(3000)]}
    run = drift.run(graph or counted(), inputs, state=drift.Checkpoints(backend, every_s=0, keep=keep), batch_items=100)
    for batch in run.batches():
        wait_until_stored(run)
        if batch.position > 1500:
            break
    run.close()


def test_no_state_is_read_before_an_item_of_its_step_comes(tmp_path: Path) -> None:
    some_checkpoints(tmp_path)
    inputs = {"numbers": [{"n": number} for number in range(3000)]}
    with mock.patch.object(States, "by_identity", side_effect=LookupError("states are read")):
        run = drift.run(counted(), inputs, state=tmp_path)
        assert run.resumed_from is not None
        with pytest.raises(LookupError, match="states are read"):
            run.finish()


@pytest.mark.smoke
def test_a_run_resumes_from_any_retained_checkpoint(where: str) -> None:
    some_checkpoints(where)
    kept = drift.Checkpoints(where)
    inputs = {"numbers": [{"n": number} for number in range(3000)]}
    digest = drift.run(counted(), inputs).finish().digest
    with pytest.raises(drift.SettingsError, match=r"from_checkpoint=99, and .* has "):
        drift.run(counted(), inputs, state=drift.Checkpoints(where, from_checkpoint=99))
    run = drift.run(counted(), inputs, state=kept)
    assert run.resumed_from is not None
    last = run.resumed_from.number
    assert [each.number for each in known(where)] == [last - 2, last - 1, last]  # also while the run has it open
    run.close()
    run = drift.run(counted(), inputs, state=drift.Checkpoints(where, from_checkpoint=last - 2))
    assert run.resumed_from is not None and run.resumed_from.number == last - 2
    assert run.finish().digest == digest


def test_a_process_alongside_the_run_folds_and_ends_with_it(where: str, nothing_left: None) -> None:
    inputs = {"numbers": [{"n": number} for number in range(1000)]}
    folded: list[int] = []
    with (
        mock.patch.object(drift.state.store, "_FOLDED_BYTES", 1),
        mock.patch.object(drift.state.store, "_SEPARATE_PROCESS_BYTES", 1),
        mock.patch.object(drift.state.store, "_WAITING_BYTES", 1),
    ):
        run = drift.run(counted(), inputs, state=drift.Checkpoints(where, every_s=0, keep=1), batch_items=250)
        assert run._run_checkpoints is not None
        store = run._run_checkpoints._store
        for _ in run.batches():
            store.wait()
            folded.append(merged_in(store._open_reader))
        assert sorted(set(folded))[1:], folded  # nobody else has folded here
    digest = run.report.digest
    run = drift.run(
        counted(),
        inputs,
        state=drift.Checkpoints(where, from_checkpoint=run._run_checkpoints.checkpoint.number),
        batch_items=250,
    )
    assert run.finish().digest == digest == drift.run(counted(), inputs).finish().digest


def test_workers_look_keys_up_by_themselves(where: str) -> None:
    some_checkpoints(where)
    inputs = {"numbers": [{"n": number} for number in range(3000)]}
    run = drift.run(counted(), inputs, engine="zeromq", workers=2, state=where)
    assert run.resumed_from is not None
    with mock.patch.object(Forms, "value", mock.Mock(side_effect=AssertionError("the caller has read a state"))):
        assert run.finish().digest == drift.run(counted(), inputs).finish().digest


@pytest.mark.smoke
def test_two_runs_do_not_share_a_backend(where: str) -> None:
    with (
        mock.patch.object(drift.state.store, "_LOCKED_S", 0.1),
        drift.run(counted(), {"numbers": []}, state=where),
        pytest.raises(
            drift.SettingsError, match=r"another run, in this process or another, .* ends with its close\(\)"
        ),
    ):
        drift.run(counted(), {"numbers": []}, state=where)
    drift.run(counted(), {"numbers": []}, state=where).finish()


@pytest.mark.parametrize("steps", [["scan", "delay", "process"], ["sliding", "turn", "end"]], ids="-".join)
def test_states_timers_and_later_items_come_back_from_any_backend(where: str, steps: list[str]) -> None:
    inputs = {f"in{rank}": [(10 + at // 3 - at * 7 % 5, at * 31 % 10) for at in range(300)] for rank in range(2)}
    digest, items = whole(with_later(steps), inputs)
    checkpoints = drift.Checkpoints(where, every_s=0, keep=1)
    seen: dict[int, Any] = {}
    with mock.patch.object(drift.state.store, "_FOLDED_BYTES", 1):
        for count in (9, 5, 10**9):
            run = drift.run(with_later(steps), inputs, state=checkpoints, batch_items=10)
            for number, batch in enumerate(run.batches()):
                for at, (meta, payload) in enumerate(zip(batch.metas, batch.payloads)):
                    sink = batch.sinks if isinstance(batch.sinks, str) else batch.sinks[at]
                    seen[batch.position + at] = (batch.position + at, sink, meta, repr(payload))
                wait_until_stored(run)
                if number == count:
                    run.close()
                    break
    assert [seen[at] for at in sorted(seen)] == items
    assert run.report.digest == digest


def test_connections_that_are_lost_are_made_anew(server: str) -> None:
    inputs = {"numbers": [{"n": number} for number in range(5000)]}
    run = drift.run(counted(), inputs, state=drift.Checkpoints(server, every_s=0), batch_items=100)
    assert run._run_checkpoints is not None
    for number, _ in enumerate(run.batches()):
        if number % 10 == 5:
            wait_until_stored(run)
            lose_connections(server)
    wait_until_stored(run)
    assert run._run_checkpoints.checkpoint is not None and run._run_checkpoints.checkpoint.is_last
    assert drift.run(counted(), inputs, state=server).finish().digest == run.report.digest


def lose_connections(where: str) -> None:
    """All that the server has."""
    server = where.partition("#")[0]
    if server.startswith("postgresql"):
        with psycopg.connect(server, autocommit=True) as connection:
            sql = "select pg_terminate_backend(pid) from pg_stat_activity where pid != pg_backend_pid()"
            connection.execute(sql + " and backend_type = 'client backend'")
    else:
        with redis.Redis.from_url(server) as client:
            client.client_kill_filter(_type="normal", skipme=True)


def test_a_backend_that_was_taken_over_is_refused(server: str) -> None:
    inputs = {"numbers": [{"n": number} for number in range(5000)]}
    run = drift.run(counted(), inputs, state=drift.Checkpoints(server, every_s=0), batch_items=100)
    batches = run.batches()
    for _ in range(5):
        next(batches)
    wait_until_stored(run)
    lose_connections(server)
    other = store_of(server)
    other.open()
    with pytest.raises(drift.StorageError, match="another process has begun to store"):
        run.finish()
    assert other.checkpoints()  # which nobody has changed meanwhile
    other.close()


def test_a_backend_that_is_away_is_waited_for_up_to_a_limit(where: str, caplog: pytest.LogCaptureFixture) -> None:
    inputs = {"numbers": [{"n": number} for number in range(5000)]}
    run = drift.run(counted(), inputs, state=drift.Checkpoints(where, every_s=0, keep=1000), batch_items=100)
    assert run._run_checkpoints is not None
    store = run._run_checkpoints._store
    write, tries = type(store._backend).write, 0

    def away_at_first(backend: Any, *arguments: Any) -> None:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise Away("no route")
        write(backend, *arguments)

    with mock.patch.object(type(store._backend), "write", away_at_first):
        digest = run.finish().digest
    assert tries > 4 and "cannot be reached, and is waited for: no route" in caplog.text
    assert drift.run(counted(), inputs).finish().digest == digest
    run = drift.run(
        counted(), {"numbers": inputs["numbers"] * 2}, state=drift.Checkpoints(where, from_checkpoint=1, away_max_s=0)
    )
    with (
        mock.patch.object(type(store._backend), "write", mock.Mock(side_effect=Away("no route"))),
        pytest.raises(drift.StorageError, match=r"could not be reached for \d+ s: no route"),
    ):
        run.finish()


def test_what_cannot_be_a_backend_is_refused_without_showing_secrets() -> None:
    for wrong, message in (
        ("ftp://me:secret@there", "no such kind of backend is known"),
        ("redis://:secret@localhost:1", "cannot be stored"),
        ("postgresql://me:secret@localhost:1/none", "cannot be stored"),
        ("ftp://there/none?password=secret&x=1", "no such kind of backend is known"),
        ("ftp://there/none?x=1&sslpassword=secret", "no such kind of backend is known"),
        ("ftp://me:secret@[there/none", "no such kind of backend is known"),
    ):
        with pytest.raises((drift.SettingsError, drift.StorageError), match=message) as refused:
            drift.run(counted(), {"numbers": []}, state=wrong)
        assert "secret" not in str(refused.value)


def test_what_cannot_be_read_again_needs_a_folder_for_its_log(redis_url: str, tmp_path: Path) -> None:
    inputs = {"numbers": ({"n": number} for number in range(100))}
    with pytest.raises(drift.SettingsError, match="name a folder too, logs="):
        drift.run(counted(), inputs, state=f"{redis_url}#logs")
    checkpoints = drift.Checkpoints(f"{redis_url}#logs", logs=tmp_path)
    drift.run(counted(), inputs, state=checkpoints).finish()
    assert list(tmp_path.rglob("*.log"))


@pytest.mark.parametrize("needed", [False, True])
def test_a_folder_for_logs_that_cannot_be_written_is_refused_at_once(needed: bool, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    numbers = iter([{"n": 1}]) if needed else [{"n": 1}]
    for wrong in (tmp_path / "file", tmp_path / "file" / "logs", Path("/proc/logs")):
        with pytest.raises(drift.StorageError, match=r"logs=.* of drift.Checkpoints .* cannot be written: \w+"):
            drift.run(counted(), {"numbers": numbers}, state=drift.Checkpoints(tmp_path / "state", logs=wrong))
        assert not (tmp_path / "state").exists()
    state = drift.Checkpoints(tmp_path / "state", logs=tmp_path / "deep" / "logs")
    assert drift.run(counted(), {"numbers": numbers}, state=state).finish().items_in == 1


def other_step(state: int, row: Any) -> tuple[int, Any]:
    return state + 2 * row["n"], {"sum": state}


@pytest.mark.smoke
def test_a_checkpoint_of_another_graph_is_refused(tmp_path: Path) -> None:
    some_checkpoints(tmp_path)
    renamed = drift.Graph("counted")
    renamed.source("numbers").scan(key_of, 0, counting, name="totals").sink("out")
    with pytest.raises(drift.GraphError, match=r"removed 'sums.*new 'totals"):
        drift.run(renamed, {"numbers": []}, state=tmp_path)
    mended = drift.Graph("counted")
    mended.source("numbers").scan(key_of, 0, other_step, name="sums").sink("out")
    with pytest.raises(drift.GraphError, match="changed_code='accept'"):
        drift.run(mended, {"numbers": []}, state=tmp_path)
    with drift.run(
        mended, {"numbers": [{"n": n} for n in range(3000)]}, state=drift.Checkpoints(tmp_path, changed_code="accept")
    ):
        pass
    with pytest.raises(drift.SettingsError, match="cannot change when a run resumes"):
        drift.run(counted(), {"numbers": []}, state=tmp_path, digest="sha256")


@pytest.mark.parametrize("kind", ["cuts", "snapshots", "opened", "base"])
def test_what_was_changed_is_refused(where: str, kind: str) -> None:
    some_checkpoints(where, keep=1 if kind == "base" else 3)
    server, _, name = where.partition("#")
    if server.startswith("postgresql"):
        with psycopg.connect(server, autocommit=True) as connection:
            sql = (
                b"update drift_state_rows set value = set_byte(value, length(value) - 1, get_byte(value, length(value)"
            )
            sql += b" - 1) # 1) where run = %s and name like %s"
            assert connection.execute(sql, (name, f"{kind}%")).rowcount
    elif "://" in server:
        with redis.Redis.from_url(server) as client:
            key = next(str(each, "utf8") for each in client.keys(f"drift:{{{name}}}:{kind}*"))
            for field, data in client.hgetall(key).items():  # type: ignore[union-attr]
                client.hset(key, field, data[:-1] + bytes([data[-1] ^ 1]))
    elif kind == "base":
        for path in (Path(where) / "base").glob("0*"):
            path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    else:
        path = max((Path(where) / kind).iterdir())
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    inputs = {"numbers": [{"n": number} for number in range(3000)]}
    with pytest.raises(StateDamaged, match="was changed"):
        drift.run(counted(), inputs, state=where).finish()


@dataclass(frozen=True)
class Total:
    value: int


def boxed(state: Total, row: Any) -> tuple[Total, Any]:
    return Total(state.value + row["n"]), state.value


def test_states_may_be_of_classes_that_the_functions_know(tmp_path: Path) -> None:
    graph = drift.Graph("counted")
    graph.source("numbers").scan(key_of, Total(0), boxed, name="sums").sink("out")
    some_checkpoints(tmp_path, graph)
    inputs = {"numbers": [{"n": number} for number in range(3000)]}
    run = drift.run(graph, inputs, state=tmp_path)
    assert run.resumed_from is not None
    assert run.finish().digest == drift.run(graph, inputs).finish().digest


def test_a_state_that_could_not_be_read_again_is_refused_at_the_first_checkpoint(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Hidden:
        value: int

    graph = drift.Graph("hidden")
    graph.source("numbers").scan(key_of, None, lambda state, row: (Hidden(1), 1), name="sums").sink("out")
    with pytest.raises(drift.PayloadError, match="could be written and not be read again"):
        some_checkpoints(tmp_path, graph)


@pytest.mark.smoke
@pytest.mark.parametrize("written", ["half a snapshot", "all but the manifest"])
def test_a_checkpoint_that_is_half_written_is_as_if_it_had_not_been(tmp_path: Path, written: str) -> None:
    inputs = {"numbers": [{"n": number} for number in range(5000)]}
    run = drift.run(counted(), inputs, state=drift.Checkpoints(tmp_path, every_s=0), batch_items=100)
    assert run._run_checkpoints is not None
    batches = run.batches()
    for _ in range(4):
        next(batches)
        wait_until_stored(run)
    before = run._run_checkpoints.checkpoint
    write, half = drift.state.files._write, 0

    def fails(path: Path, data: bytes) -> None:
        nonlocal half
        if path.parent.name == "cuts" or written == "half a snapshot":
            half += path.write_bytes(data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        write(path, data)

    with (
        mock.patch.object(drift.state.files, "_write", fails),
        pytest.raises(drift.StorageError, match=r"cannot be written to .*: No space left"),
    ):
        for _ in batches:
            pass
    assert half
    run = drift.run(counted(), inputs, state=drift.Checkpoints(tmp_path, every_s=0), batch_items=100)
    assert run.resumed_from is not None and before is not None and run.resumed_from.number == before.number
    assert run.finish().digest == drift.run(counted(), inputs).finish().digest


class Unpickled:
    """A state that stays where it is."""

    def __reduce__(self) -> Any:
        raise TypeError("it stays where it is")


def test_a_state_that_cannot_be_pickled_is_reported_where_only_recovery_needs_it() -> None:
    graph = drift.Graph("unpickled")
    graph.source("numbers").scan(key_of, None, lambda state, row: (Unpickled(), row["n"]), name="sums").sink("out")
    run = drift.run(graph, {"numbers": Silent(500)}, engine="zeromq", workers=1, checkpoint_interval_s=0.05)
    with pytest.warns(
        UserWarning, match="a state of graph 'unpickled' cannot be stored: .*it stays where it is"
    ) as warned:
        for _ in run.batches():
            if any("cannot be stored" in str(each.message) for each in warned):
                break
    run.close()


def test_older_checkpoints_are_merged_and_nothing_is_left_of_them(where: str) -> None:
    some_checkpoints(where)
    reader = backend_of(where).reader()
    checkpoints, snapshots = numbers_in(reader), sorted(reader.sizes("snapshots"))
    assert len(checkpoints) == 3 and len(snapshots) < 3 + _FOLDED_SNAPSHOTS
    assert number_of(snapshots[-1]) == checkpoints[-1] and number_of(snapshots[0]) > 1
    assert merged_in(reader) > 1
    reader.close()


# The command line.

GRAPH = """
import drift
graph = drift.Graph("words")
graph.source("lines").flat_map(lambda line: line.split()).count(lambda word: word, name="counts").sink("out")
"""

STOPPED = """
import signal, os, sys
from drift_command import main
from drift.state.run_checkpoints import RunCheckpoints
take = RunCheckpoints.take
def take_and_be_killed(run_checkpoints, *taken):
    take(run_checkpoints, *taken)
    run_checkpoints._store.wait()
    if run_checkpoints.checkpoint.number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
RunCheckpoints.take = take_and_be_killed
sys.argv = ["drift", *sys.argv[1:]]
main()
"""


def test_the_same_command_once_more_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("g.py").write_text(GRAPH)
    Path("in.txt").write_text("".join(f"a w{number % 50} b\n" for number in range(10_000)))
    plain = ["run", "g.py:graph", "--source", "in.txt"]
    run = [*plain, "--sink", "jsonl:out.jsonl", "--state", "kept", "--checkpoint-every", "0"]
    assert subprocess.run([sys.executable, "-c", STOPPED, *run]).returncode == -signal.SIGKILL
    listed = call("state", "list", "kept").stdout.splitlines()
    assert [line.split()[0] for line in listed] == ["1", "2", "3"]
    assert "steps 'counts': ScanStage" in call("state", "show", "kept", 2).stdout
    assert call("state", "drop", "kept", 3).exit_code == 0
    done = call(*run)
    assert done.exit_code == 0 and "resumes from checkpoint 2 at time" in done.stderr
    whole = call(*plain, "--sink", "jsonl:whole.jsonl", "--digest")
    assert whole.stdout.strip() in done.stderr
    assert Path("out.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()
    for wrong, message in ((["drop", "kept", 77], "has no checkpoint 77"), (["list", "nowhere"], "holds no state")):
        failed = call("state", *wrong)
        assert failed.exit_code == 2 and message in failed.stderr
    assert not Path("nowhere").exists()
    Path("killed at its beginning", "cuts").mkdir(parents=True)
    Path("killed at its beginning", "base").mkdir()
    none = call("state", "list", "killed at its beginning")
    assert (none.exit_code, none.stderr) == (0, "killed at its beginning has no checkpoints\n")
    assert call(*plain, "--from-checkpoint", 3).exit_code == 2
