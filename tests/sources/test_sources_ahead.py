"""Batches of Parquet that are read ahead: those that would be read without, in order, and no thread that stays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

import drift
from drift import InputError, sources
from drift.sources.ahead import Ahead

pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

_NAME = "drift reads ahead"
_LARGE, _ROWS = 1 << 17, 600_000


def readers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == _NAME]


def batch_of(number: int, rows: int = _LARGE) -> Any:
    return pa.record_batch({"n": pa.array([number] * rows, pa.int64())})


def numbered(*found: int | Exception, rows: int = _LARGE) -> Callable[[int], Iterator[Any]]:
    """Batches, and errors, from a place on."""

    def behind(start: int) -> Iterator[Any]:
        for each in found[start:]:
            if isinstance(each, Exception):
                raise each
            yield batch_of(each, rows)

    return behind


def number_of(batch: Any) -> int:
    return batch.column(0)[0].as_py()  # type: ignore[no-any-return]


@pytest.mark.parametrize("rows", [1, _LARGE])
def test_batches_and_their_error_come_in_order(rows: int) -> None:
    ahead = Ahead(numbered(0, 1, 2, InputError("damaged"), rows=rows)).behind(0)
    assert [number_of(next(ahead)) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(InputError, match="damaged"):
        next(ahead)
    assert list(ahead) == []
    ahead = Ahead(numbered(0, 1, 2, rows=rows)).behind(1)
    assert [number_of(each) for each in ahead] == [1, 2]
    assert list(ahead) == []


def test_one_batch_is_read_while_the_one_before_is_processed_and_no_more() -> None:
    threads: list[str] = []
    second = threading.Event()

    def behind(start: int) -> Iterator[Any]:
        for number in range(9):
            threads.append(threading.current_thread().name)
            if number == 1:
                second.set()
            yield batch_of(number)

    ahead = Ahead(behind).behind(0)
    assert number_of(next(ahead)) == 0
    assert second.wait(600)
    ahead.wait()
    assert threads == [threading.current_thread().name, _NAME]
    assert not readers()


def test_behind_small_batches_no_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "Thread", None)
    assert [number_of(each) for each in Ahead(numbered(0, 1, rows=100)).behind(0)] == [0, 1]


def test_where_no_thread_may_start_batches_are_read_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert [number_of(each) for each in Ahead(numbered(0, 1, 2)).behind(0)] == [0, 1, 2]


def test_what_was_read_ahead_goes_where_reading_goes_on_elsewhere() -> None:
    reading, go_on = threading.Event(), threading.Event()
    inside: list[int] = []

    def behind(start: int) -> Iterator[Any]:
        for number in range(start, 4):
            if start == 0 and number == 1:
                reading.set()
                assert go_on.wait(600)
                inside.append(number)
            yield batch_of(number)

    ahead = Ahead(behind).behind(0)
    assert number_of(next(ahead)) == 0
    assert reading.wait(600)
    threading.Timer(0.05, go_on.set).start()
    found = ahead.behind(2)
    assert inside == [1]  # nobody is in the file any more
    assert [number_of(each) for each in found] == [2, 3]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ahead") / "large.parquet"
    table = pa.table({"n": pa.array(range(_ROWS), pa.int64()), "half": pa.array([n / 2 for n in range(_ROWS)])})
    pq.write_table(table, path, row_group_size=1 << 16)
    return path


def graph_of() -> drift.Graph:
    graph = drift.Graph("rows")
    graph.source("rows", schema={"n": int, "half": float}).select("n").sink("out")
    return graph


def test_a_file_that_is_read_ahead_has_the_digest_of_its_rows(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    start = threading.Thread.start

    def noted(self: threading.Thread) -> None:
        started.append(self.name)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", noted)
    report = drift.run(graph_of(), {"rows": sources.parquet(large)}).finish()
    assert _NAME in started
    assert report.items_out == _ROWS
    monkeypatch.setattr("drift.sources.ahead._BYTES_MIN", 1 << 60)
    started.clear()
    assert drift.run(graph_of(), {"rows": sources.parquet(large)}).finish().digest == report.digest
    assert _NAME not in started
    assert not readers()


def test_a_run_that_is_closed_or_dropped_leaves_no_thread(large: Path) -> None:
    with drift.run(graph_of(), {"rows": sources.parquet(large)}) as run:
        assert next(iter(run)).payload == {"n": 0}
    assert not readers()
    dropped = drift.run(graph_of(), {"rows": sources.parquet(large)})
    assert next(iter(dropped)).payload == {"n": 0}
    del dropped
    wait_until(lambda: not readers(), "the batch that was being read is there")


def test_rows_in_front_of_damage_that_was_read_ahead_come_before_its_error(large: Path, tmp_path: Path) -> None:
    metadata = pq.ParquetFile(large).metadata
    group = metadata.row_group(6)
    data = bytearray(large.read_bytes())
    at = group.column(0).dictionary_page_offset or group.column(0).data_page_offset
    data[at : at + 64] = b"\xff" * 64
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(data)
    run = drift.run(graph_of(), {"rows": sources.parquet(damaged)})
    taken = 0
    with pytest.raises(InputError, match=f"cannot be read behind row {6 << 16}"):
        for item in run:
            assert item.payload == {"n": taken}
            taken += 1
    assert taken == 6 << 16
    assert not readers()
