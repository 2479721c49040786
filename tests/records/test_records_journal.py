"""The journal of a record that grows: whatever is left of it, with its manifest it is a record."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import drift
from drift.auditing.signature import check_signature, make_key, sign
from drift.engines.settings import Settings
from drift.records import journal, writer
from drift.records.describe import describe
from drift.records.format import read_manifest
from drift.records.journal import JOURNAL
from drift.records.messages import Arrival, Begin, Finish
from drift.records.reader import Record
from drift.records.writer import RecordWriter
from drift_graph.canonical import encode_many
from drift_graph.meta import pack_time

ITEMS = 10


def graph() -> drift.Graph:
    numbers = drift.Graph("numbers")
    numbers.source("n").sink("out")
    return numbers


def begun(folder: Path) -> RecordWriter:
    dataflow = graph().build()
    manifest = describe(
        dataflow, {"n": drift.sources.live([])}, target="", engine="local", settings=Settings(), times={}
    )
    return RecordWriter(Begin(str(folder), msgspec.json.encode(manifest), 1 << 20, 1 << 28, 30.0))


def seal(record: RecordWriter, batch: int) -> None:
    first = batch * ITEMS
    data = encode_many(list(range(first, first + ITEMS)))
    record.handle(Arrival(batch, 0, batch, ITEMS, first, b"\0\0\0", data, pack_time(first + ITEMS), []))
    record.seal()


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """Five seals, and no end: the writer was killed."""
    written = begun(tmp_path)
    for batch in range(5):
        seal(written, batch)
    return tmp_path


def numbers(record: Path) -> list[int]:
    opened = Record(record)
    found = [number for batch in opened.arrivals() for number in opened.restored(batch.data)]
    assert opened.manifest.items_in == len(found)
    return found


def troubles(record: Path) -> list[tuple[str, str]]:
    return [(trouble.kind, trouble.text) for trouble in drift.audit(record, reproduce=False).troubles]


def test_each_seal_is_a_line_and_a_killed_writer_leaves_a_record(record: Path) -> None:
    assert (record / JOURNAL).read_bytes().count(b"\n") == 5
    assert msgspec.json.decode((record / "manifest.json").read_bytes())["items_in"] == 0
    assert numbers(record) == list(range(50)) and troubles(record) == []
    assert drift.audit(record, graph()).ok
    assert read_manifest(record).outcome.state == "running"


def test_wherever_the_journal_is_torn_what_is_before_is_a_record(record: Path) -> None:
    whole = (record / JOURNAL).read_bytes()
    ends = [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]
    for cut in (*ends, *(end - 1 for end in ends), *range(0, len(whole), 97)):
        (record / JOURNAL).write_bytes(whole[:cut])
        assert numbers(record) == list(range(sum(end <= cut for end in ends) * ITEMS))
        assert troubles(record) == []


def test_an_edited_journal_is_reported_and_not_followed(record: Path) -> None:
    path = record / JOURNAL
    whole = path.read_bytes()
    expected = Record(record).hash
    for old, new in ((b'"items_in":30', b'"items_in":31'), (b'"first":20', b'"first":21')):
        assert old in whole
        path.write_bytes(whole.replace(old, new))
        assert numbers(record) == list(range(20))
        assert (
            "manifest edited",
            f"{JOURNAL} was edited: line 3 is not as it was written, and what follows is not read",
        ) in (troubles(record))
        assert not drift.audit(record, reproduce=False, expect=expected).ok
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:1], *lines[2:]]))
    assert numbers(record) == list(range(10)) and troubles(record)
    path.write_bytes(whole)
    assert drift.audit(record, reproduce=False, expect=expected).ok


def test_a_journal_that_was_left_behind_is_not_followed(record: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The process was killed between a new manifest and the removal of the journal that is in it."""
    other = tmp_path_factory.mktemp("other")
    written = begun(other)
    for batch in range(7):
        seal(written, batch)
    old = (other / JOURNAL).read_bytes()
    written.handle(Finish("stopped", "", "", False, "2026-01-01", ""))
    assert not (other / JOURNAL).exists()
    (other / JOURNAL).write_bytes(old)
    assert numbers(other) == list(range(70)) and troubles(other) == []


def test_manifests_are_written_seldom_however_many_seals_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_BYTES_MIN", 1)
    sizes: list[int] = []
    safely = writer.write_safely

    def counted(path: Path, data: bytes) -> None:
        sizes.append(len(data))
        safely(path, data)

    monkeypatch.setattr(writer, "write_safely", counted)
    monkeypatch.setattr("os.fsync", lambda number: None)
    written = begun(tmp_path)
    for batch in range(120):
        seal(written, batch)
        assert read_manifest(tmp_path).items_in == (batch + 1) * ITEMS
    assert 3 < len(sizes) < 12 and sum(sizes) < 3 * sizes[-1]
    assert numbers(tmp_path) == list(range(120 * ITEMS))


def test_a_signature_covers_the_journal(record: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    public = make_key(tmp_path_factory.mktemp("keys") / "key")
    sign(record, public.with_suffix(""))
    assert check_signature(record, public).result == "ok"
    data = (record / JOURNAL).read_bytes()
    (record / JOURNAL).write_bytes(data[: data.rindex(b"\n", 0, -1) + 1])
    assert [trouble.kind for trouble in check_signature(record, public).troubles] == ["manifest edited"]
