"""The sources of a run go on from a checkpoint, whoever dies when: what comes is what would have come."""

from __future__ import annotations

import json
import os
import random
import select
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sourced import temporary
from waiting import wait_until_stored

import drift
from drift import ArrivalTime, EventTime, sources
from drift.engines.logged import ArrivalLog
from drift.engines.settings import Settings
from drift.engines.source_feed import SourceFeed
from drift.state.run_checkpoints import known
from drift_graph.lateness import Late
from drift_graph.meta import BEGINNING, END_OF_TIME, pack_time
from drift_graph.meta import time_of as drift_time


class Taken:
    """A feed, and all that it has given."""

    def __init__(self, inputs: dict[str, Any], times: dict[str, Any], folder: Path, *, batch_items: int = 5) -> None:
        graph = drift.Graph("g")
        for name in inputs:
            graph.source(name).sink(f"of {name}")
        self.late: list[Late] = []
        self.items: list[tuple[bytes, str, Any]] = []
        by_name = {name: drift.sources.arguments.as_source(name, each) for name, each in inputs.items()}
        settings = Settings(batch_items=batch_items, in_flight_max=10_000)
        state = drift.Checkpoints(folder, logs=folder)
        self.feed = SourceFeed(graph.build(), by_name, times, settings, on_late=self.late.append, state=state)
        self.heartbeats = [BEGINNING] * len(inputs)

    @property
    def reached(self) -> bytes:
        return min(self.heartbeats)

    def poll(self) -> None:
        for name, rank, arrived in self.feed.poll(self.reached):
            assert self.heartbeats[rank] <= arrived.heartbeat
            self.heartbeats[rank] = arrived.heartbeat
            self.items += [(meta, name, payload) for meta, payload in zip(arrived.metas, arrived.payloads)]
        self.feed.report_late(END_OF_TIME)

    def to_the_end(self) -> Taken:
        while self.reached != END_OF_TIME and self.feed.error is None:
            before = len(self.items)
            self.poll()
            if len(self.items) == before and self.feed.filenos():
                select.select(self.feed.filenos(), (), (), 0.01)
        self.feed.close()
        return self

    def above(self, checkpoint: bytes) -> list[tuple[bytes, str, Any]]:
        return sorted((item for item in self.items if item[0] >= checkpoint), key=lambda item: item[0])

    def late_above(self, checkpoint: bytes) -> list[Late]:
        return [late for late in self.late if pack_time(late.heartbeat) >= checkpoint]


def went_on(make: Callable[[], Taken], positions: Any, checkpoint: bytes) -> Taken:
    taken = make()
    taken.feed.resume(json.loads(json.dumps(positions)), checkpoint)
    return taken


rows = st.lists(st.tuples(st.integers(0, 20), st.sampled_from("abc")), max_size=30)


@given(
    first=rows,
    second=rows,
    lateness=st.integers(0, 6),
    polls=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    batch_items=st.integers(1, 6),
)
@settings(deadline=None, max_examples=80)
def test_a_feed_resumes_from_its_checkpoints_one_after_the_other(
    first: list[tuple[int, str]], second: list[tuple[int, str]], lateness: int, polls: list[int], batch_items: int
) -> None:
    data = "".join(json.dumps(row) + "\n" for row in first).encode()
    policy = EventTime(lambda row: row[0], lateness=lateness, late="divert")
    with temporary(data) as path:

        def make() -> Taken:
            inputs = {"a": sources.jsonl(path), "b": second, "c": list(range(7))}
            return Taken(inputs, {"a": policy, "b": policy}, path.parent, batch_items=batch_items)

        whole = make().to_the_end()
        taken, checkpoint = make(), BEGINNING
        for count in polls:
            for _ in range(count):
                taken.poll()
            if taken.reached == END_OF_TIME:
                break
            moments = [meta for meta, _, _ in taken.above(checkpoint) if meta < taken.reached]
            checkpoint = max(checkpoint, moments[len(moments) // 2] if moments and count % 2 else taken.reached)
            positions = taken.feed.positions_at(checkpoint)
            taken.feed.close()
            taken = went_on(make, positions, checkpoint)
        taken.to_the_end()
        assert taken.above(BEGINNING) == whole.above(checkpoint)
        assert taken.late == whole.late_above(checkpoint)
        assert taken.feed.late_items == whole.feed.late_items == len(whole.late)
        assert taken.feed.items_in == whole.feed.items_in


def live(payloads: Iterable[Any]) -> Any:
    return sources.live(iter(payloads))


@pytest.mark.parametrize("policy", [ArrivalTime(), EventTime(lambda n: n, lateness=3, late="divert", idle_after_ms=0)])
def test_what_cannot_be_read_again_is_given_again_by_its_log(policy: Any, tmp_path: Path) -> None:
    choose = random.Random(7)
    stream = iter([n + choose.randrange(-9, 9) for n in range(400)])

    def make() -> Taken:  # what a socket has given once comes from nowhere else
        def some() -> Iterator[int]:
            yield from (next(stream) for _ in range(100))

        return Taken({"s": sources.live(some())}, {"s": policy}, tmp_path, batch_items=7)

    every: list[tuple[bytes, str, Any]] = []
    late: list[Late] = []
    taken, checkpoint = make(), BEGINNING
    taken.feed.resume({}, BEGINNING)
    for round_number in range(3):
        before = len(taken.items)
        while len(taken.items) < before + 20:
            taken.poll()
            select.select(taken.feed.filenos(), (), (), 0.01)
        moments = sorted(meta for meta, _, _ in taken.items if checkpoint <= meta < taken.reached)
        middle = moments[len(moments) // 2] if round_number else BEGINNING  # the first dies before any checkpoint
        positions = taken.feed.positions_at(middle) if round_number else {}
        for _ in range(5):
            taken.poll()
        known = taken.above(middle)
        known_late = taken.late_above(middle)
        taken.feed.close()  # and what came after the checkpoint is only in the log
        again = went_on(make, positions, middle)
        if positions:
            again.feed.committed(positions)
        while len(again.items) < len(known):
            again.poll()
        assert again.above(BEGINNING)[: len(known)] == known
        assert again.late[: len(known_late)] == known_late
        taken, checkpoint = again, middle
        every, late = again.items, again.late
    taken.to_the_end()
    payloads = [payload for _, _, payload in taken.items]
    assert len({meta for meta, _, _ in taken.items}) == len(payloads) >= len(every)
    assert late == taken.late[: len(late)]
    final = went_on(make, taken.feed.positions_at(checkpoint), checkpoint)  # also its end is in the log
    final.to_the_end()
    assert final.above(checkpoint) == taken.above(checkpoint)


class Scripted:
    """A live source that gives what a script says, once."""

    live = True

    def __init__(self, script: Iterator[list[int] | None]) -> None:
        self._script = script

    def open(self) -> Scripted:
        return self

    def read(self, items_max: int) -> list[int] | None:
        return next(self._script)

    def filenos(self) -> tuple[int, ...]:
        return ()

    def close(self) -> None:
        pass


def test_what_an_idle_policy_decided_is_decided_again_by_the_log(tmp_path: Path) -> None:
    policy = EventTime(lambda n: n, lateness=100, late="divert", idle_after_ms=0)
    script: Iterator[list[int] | None] = iter([[10], [], [5, 12], [7, 13], None])

    def make() -> Taken:
        return Taken({"s": Scripted(script)}, {"s": policy}, tmp_path)

    taken = make()
    for _ in range(3):
        taken.poll()
    assert [late.time for late in taken.late] == [5], "it was idle, and its heartbeat was past what had come"
    taken.feed.close()
    again = went_on(make, {}, BEGINNING).to_the_end()
    assert [late.time for late in again.late] == [5, 7]
    assert [payload for _, _, payload in again.items] == [10, 12, 13]
    assert again.items[:2] == taken.items


def test_the_stamps_of_a_live_source_are_those_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100, 90, 110, 500, 501, 502, 503])  # it goes back, and on the next day it is another
    monkeypatch.setattr("drift.engines.source_feed.time.time_ns", lambda: next(clock) * 1_000_000)
    script: Iterator[list[int] | None] = iter([[1], [2], [3], [4], None])

    def make() -> Taken:
        return Taken({"s": Scripted(script)}, {}, tmp_path)

    taken = make()
    for _ in range(3):
        taken.poll()
    taken.feed.close()
    again = went_on(make, {}, BEGINNING).to_the_end()
    assert [(drift_time(meta), payload) for meta, _, payload in again.items] == [(100, 1), (100, 2), (110, 3), (500, 4)]
    assert again.items[:3] == taken.items


def test_a_log_is_cut_where_an_entry_is_torn_and_dropped_below_what_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drift.engines.entries._FILE_BYTES", 100)
    log = ArrivalLog(tmp_path, "a/b")
    for n in range(20):
        assert log.items([n, {"n": n}], n, {"at": n}) == ([n, {"n": n}], None)
    log.heartbeat(7)
    log.close()
    again = ArrivalLog(tmp_path, "a/b")
    entries = list(again.repeat(0))
    assert [entry.number for entry in entries] == list(range(21)) and entries[20].heartbeat == 7
    assert [entry.payloads for entry in entries[:20]] == [[n, {"n": n}] for n in range(20)]
    assert [(entry.at_ms, entry.reader) for entry in entries[:20]] == [(n, {"at": n}) for n in range(20)]
    (folder,) = tmp_path.iterdir()
    files = sorted(folder.iterdir())
    again.drop_below(9)
    assert [entry.number for entry in ArrivalLog(tmp_path, "a/b").repeat(9)] == list(range(9, 21))
    assert len(list(folder.iterdir())) < len(files)
    with pytest.raises(drift.StorageError, match="is needed from entry 0 on, and it begins at"):
        list(ArrivalLog(tmp_path, "a/b").repeat(0))
    last = sorted(folder.iterdir())[-1]
    last.write_bytes(last.read_bytes()[:-1])
    torn = ArrivalLog(tmp_path, "a/b")
    assert [entry.number for entry in torn.repeat(9)] == list(range(9, 20))
    torn.items(["new"], 1, None)
    torn.close()
    assert [entry.payloads for entry in ArrivalLog(tmp_path, "a/b").repeat(19)] == [[19, {"n": 19}], ["new"]]
    first = sorted(folder.iterdir())[0]
    first.write_bytes(b"x" + first.read_bytes()[1:])
    with pytest.raises(drift.StorageError, match="is damaged at byte 0; bring it back"):
        list(ArrivalLog(tmp_path, "a/b").repeat(9))
    other = ArrivalLog(tmp_path, "a/b")
    with pytest.raises(drift.StorageError, match="that another run wrote, and this one does not continue it"):
        other.items([1], 0, None)
    bad = ArrivalLog(tmp_path, "c")
    kept, error = bad.items([1, object(), 2], 0, None)
    assert kept == [1] and "object" in str(error)


def test_each_retained_checkpoint_has_the_arrivals_since(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drift.engines.entries._FILE_BYTES", 100)
    graph = drift.Graph("sums")
    graph.source("numbers").scan(lambda n: n % 3, 0, lambda total, n: (total + n, total + n)).sink("out")
    digest = drift.run(graph, {"numbers": range(200)}).finish().digest
    numbers = iter(range(200))  # nobody can read them again
    run = drift.run(graph, {"numbers": numbers}, state=drift.Checkpoints(tmp_path, every_s=0, keep=3), batch_items=10)
    for item in run:
        wait_until_stored(run)
        if item.position == 120:
            break
    run.close()
    oldest, _, _ = known(tmp_path)
    state = drift.Checkpoints(tmp_path, from_checkpoint=oldest.number)
    again = drift.run(graph, {"numbers": numbers}, state=state)
    assert again.resumed_from is not None and again.resumed_from.number == oldest.number
    assert again.finish().digest == digest


def test_only_what_would_come_otherwise_is_logged(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("a\nb\n")
    inputs = {"file": sources.text(path), "list": [1, 2], "once": iter([1, 2]), "live": live([1, 2])}
    Taken(inputs, {}, tmp_path / "logs").to_the_end()
    assert sorted(each.name for each in (tmp_path / "logs").iterdir()) == ["live", "once"]


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_log_waits_for_the_disk_where_that_is_asked_for(
    on_disk: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: waited.append(os.fstat(file).st_ino))
    graph = drift.Graph("logged")
    graph.source("n").sink("out")
    source = drift.sources.live(n for n in range(3))
    drift.run(graph, {"n": source}, state=drift.Checkpoints(tmp_path, logs_on_disk=on_disk, every_s=1000)).finish()
    (log,) = (tmp_path / "inputs").rglob("*.log")
    assert (log.stat().st_ino in waited) == on_disk


@pytest.mark.parametrize("names", [(".", ".."), ("\u65e5" * 90, "\u65e5" * 89), ("l" * 300, "l" * 200), ("a/b", "%2E")])
def test_a_source_of_any_name_has_a_log_of_its_own(tmp_path: Path, names: tuple[str, str]) -> None:
    graph = drift.Graph("names")
    for name in names:
        graph.source(name).sink(f"of {name}")
    found = []
    for some in (range(5), range(5, 10), range(0)):
        inputs = {name: sources.live(iter(some)) for name in names}
        run = drift.run(graph, inputs, state=tmp_path, complete=not some)
        found += [(item.sink, item.payload) for item in run]
    assert sorted(found) == sorted((f"of {name}", n) for name in names for n in range(10))
    folders = [folder for folder in (tmp_path / "inputs").iterdir() if list(folder.glob("*.log"))]
    assert len(folders) == 2 and not list(tmp_path.glob("*.log"))
