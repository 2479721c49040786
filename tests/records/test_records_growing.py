"""A record while it is written, and one whose writer is gone: readers go by one moment, and say what is true."""

from __future__ import annotations

import errno
import gc
import io
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from framed import written
from test_records_journal import ITEMS, begun, graph, seal
from test_records_trouble_while_writing import FULL, frames, run_script
from waiting import HANG_S, wait_until

import drift
from drift.auditing.intact import intact_checks
from drift.records import writer
from drift.records.format import read_manifest, read_snapshot
from drift.records.reader import Record
from drift.records.watch import Watch
from drift.records.writing import Writing, is_written


def test_a_record_that_grows_while_it_is_audited_is_intact(tmp_path: Path) -> None:
    growing = begun(tmp_path)
    for batch in range(3):
        seal(growing, batch)
    batches = iter(range(3, 100))
    found = []
    for check in intact_checks(tmp_path, read_snapshot(tmp_path), Watch()):
        found.append(check)
        seal(growing, next(batches))
    assert [trouble.text for check in found for trouble in check.troubles] == []
    assert f"input: {3 * ITEMS} items" in [check.what for check in found]


def test_an_audit_is_of_the_moment_when_it_began(tmp_path: Path) -> None:
    growing = begun(tmp_path)
    for batch in range(3):
        seal(growing, batch)
    expected = Record(tmp_path).hash
    batches = iter(range(3, 100))

    class Seals(Watch):
        def begin(self, what: str, rows: Mapping[str, int] | None = None) -> None:
            seal(growing, next(batches))

    audit = drift.audit(tmp_path, graph(), expect=expected, watch=Seals())
    assert audit.ok, [trouble.text for trouble in audit.troubles]
    assert (audit.record["items_in"], audit.record["hash"]) == (3 * ITEMS, expected)
    assert read_manifest(tmp_path).items_in > 3 * ITEMS


# Whether somebody writes it.


def test_a_lock_is_seen_while_it_is_held_and_not_after(tmp_path: Path) -> None:
    assert is_written(tmp_path) is False
    writing = Writing(tmp_path)
    assert is_written(tmp_path) is True
    with pytest.raises(OSError, match="another process writes it"):
        Writing(tmp_path)
    writing.end()
    assert is_written(tmp_path) is False and not list(tmp_path.iterdir())


def test_a_record_says_running_while_its_writer_lives_and_broken_off_when_it_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "record"
    states: list[str] = []

    def lines() -> Iterator[str]:
        yield "to be"
        wait_until(lambda: (path / "manifest.json").exists() and Record(path).counts["input"], "something is sealed")
        states.append(Record(path).manifest.outcome.state)
        assert run._recorder is not None and run._recorder._process is not None
        os.kill(run._recorder._process.pid, signal.SIGKILL)
        run._recorder._process.wait()
        states.append(Record(path).manifest.outcome.state)
        while True:  # until the run finds that nobody takes what it says
            yield "or not"

    words = drift.Graph("words")
    words.source("lines").sink("out")
    run = drift.run(words, {"lines": lines()}, record=drift.Recording(path, seal_after_s=0.05), batch_items=1)
    with pytest.raises(drift.ProcessError, match="the process that writes the record"):
        run.finish()
    assert states == ["running", "broken off"]
    assert read_manifest(path).outcome.state == "running"  # nobody was left to say otherwise
    record = Record(path)
    assert "its writer ended without sealing the end" in record.manifest.outcome.error and "broken off" in repr(record)
    audit = drift.audit(path, words)
    assert audit.ok and audit.record["outcome"] == "broken off"


def test_a_record_of_a_full_disk_says_so_itself(tmp_path: Path) -> None:
    path = tmp_path / "record"
    done = run_script(FULL, path)
    assert "cannot be written: File too large" in done.stdout, done.stderr
    outcome = read_manifest(path).outcome
    assert (outcome.state, outcome.error) == ("broken off", "the record could not be written on: File too large")
    assert Record(path).counts["output"] >= 30_000 and drift.audit(path, reproduce=False).ok


TINY_DISK = """
    import os, sys
    import drift
    graph = drift.Graph("noise")
    graph.source("noise").sink("out")
    noise = (os.urandom(10_000) for _ in range(10_000))
    try:
        record = drift.Recording(sys.argv[1], part_items_max=20)
        drift.run(graph, {"noise": noise}, record=record, batch_items=5).finish()
    except drift.SinkError as error:
        print("cannot be written: No space left on device" in str(error), "free some space" in str(error))
    record = drift.Record(sys.argv[1])
    print(record.manifest.outcome.state, "No space left" in record.manifest.outcome.error, record.counts["input"] > 0)
    print(drift.audit(sys.argv[1], reproduce=False).ok)
"""


def test_a_disk_of_two_megabytes_runs_full_and_what_was_sealed_is_a_record(tmp_path: Path) -> None:
    mount = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=2m none "$0" && exec "$@"', str(tmp_path)]
    if subprocess.run([*mount, "true"], capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount a small disk of their own")
    script = [sys.executable, "-c", textwrap.dedent(TINY_DISK), str(tmp_path / "record")]
    done = subprocess.run([*mount, *script], timeout=HANG_S, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["True True", "broken off True True", "True"], done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_part_on_a_full_disk_is_dropped_and_nothing_writes_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = list[Any]()
    monkeypatch.setattr(sys, "unraisablehook", later.append)
    table = writer._Table(tmp_path, "input", "xxh3_128")
    table.add([pa.array(["1"] * 3).cast(field.type) for field in table._schema])
    table._flush()
    file = table._file
    assert file is not None
    with file._file as on_disk:
        file._file = Full(on_disk)  # type: ignore[assignment]
        table.abandon()
    assert not list(tmp_path.rglob("*.tmp"))
    del table, file
    gc.collect()
    assert later == []


class Full(io.RawIOBase):
    def __init__(self, file: Any) -> None:
        self.close = file.close  # type: ignore[method-assign]

    def write(self, data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_where_nothing_more_can_be_written_readers_see_that_nobody_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk so full that not even the manifest can say it."""

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def seal_and_fill(self: writer.RecordWriter) -> None:
        sealing(self)
        monkeypatch.setattr(writer, "write_safely", full)
        monkeypatch.setattr(writer._Table, "_flush", full)

    sealing = writer.RecordWriter.seal
    monkeypatch.setattr(writer.RecordWriter, "seal", seal_and_fill)
    with pytest.raises(OSError, match="No space left"):
        written(b"".join(frames(tmp_path)))
    assert read_manifest(tmp_path).outcome.state == "running"
    record = Record(tmp_path)
    assert record.manifest.outcome.state == "broken off" and 0 < record.counts["output"] < 1000
    assert drift.audit(tmp_path, reproduce=False).ok


# What is in the folder and not in the manifest.


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "record"
    drift.run(graph(), {"n": range(100)}, record=path).finish()
    return path


def test_what_no_manifest_lists_is_no_part_of_the_record(record: Path) -> None:
    import pandas

    foreign = record / "input" / "part-00999.parquet"
    foreign.write_bytes((record / "input" / "part-00000.parquet").read_bytes())
    opened = Record(record)
    assert len(pandas.read_parquet(opened.files("input"))) == 100
    assert opened.files() == [str(record / "output" / "part-00000.parquet")]
    assert drift.audit(record, graph()).ok
    with pytest.raises(drift.SettingsError, match="table='outputs': a record has 'arrivals', 'input'"):
        opened.files("outputs")  # type: ignore[arg-type]


# What hashes cover.


@pytest.mark.parametrize("ending", [b" ", b"\n"])
def test_a_space_in_the_manifest_is_an_edit(record: Path, ending: bytes) -> None:
    path = record / "manifest.json"
    whole = path.read_bytes()
    for edited in (whole + ending, whole.replace(b'"graph":', b'"graph": ', 1), whole.replace(b"\n ", b"\n\t", 1)):
        assert edited != whole
        path.write_bytes(edited)
        (trouble,) = drift.audit(record, reproduce=False).troubles
        assert trouble.kind == "manifest edited" and "in other bytes" in trouble.text
    path.write_bytes(whole)
    assert drift.audit(record, reproduce=False).ok


def test_a_space_in_the_journal_is_an_edit(tmp_path: Path) -> None:
    growing = begun(tmp_path)
    for batch in range(3):
        seal(growing, batch)
    path = tmp_path / "manifest.log"
    path.write_bytes(path.read_bytes().replace(b'"files":', b'"files": ', 1))
    assert "manifest edited" in [trouble.kind for trouble in drift.audit(tmp_path, reproduce=False).troubles]
