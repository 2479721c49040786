"""A record of a stranger: reading it opens no file outside of it, ends, and takes no more memory than it has bytes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest

import drift
from drift.records.format import MANIFEST, VERSION, RecordError, as_file, hash_of
from drift.records.journal import JOURNAL
from drift_graph.restore import CannotRestore, restored


def trips() -> drift.Graph:
    graph = drift.Graph("trips")
    by_time = drift.EventTime(time=lambda trip: trip[0], lateness=30, late="divert")
    graph.source("trips", time=by_time).count(key=lambda trip: trip[1]).sink("counts")
    return graph


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("records") / "whole"
    arrived = [(10, "JFK"), (30, "LGA"), (20, "JFK"), (70, "JFK"), (35, "JFK")]
    drift.run(trips(), {"trips": arrived}, record=path).finish()
    return path


@pytest.fixture
def record(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "record"))


def edit(record: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((record / MANIFEST).read_text())
    change(manifest)
    manifest["self_hash"] = hash_of(manifest, "xxh3_128")
    (record / MANIFEST).write_bytes(as_file(manifest))


def troubles(record: Path) -> list[str]:
    return [trouble.text for trouble in drift.audit(record, reproduce=False).troubles]


def first_file(**fields: Any) -> Callable[[dict[str, Any]], object]:
    return lambda manifest: manifest["files"][0].update(fields)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (first_file(path="../whole/arrivals/part-00000.parquet"), r"\.\./whole/arrivals/part-00000\.parquet"),
        (first_file(path="/etc/passwd"), "'/etc/passwd' as a file of 'arrivals'"),
        (first_file(path="output/part-00000.parquet"), "as a file of 'arrivals'"),
        (first_file(path="arrivals/part-\0.parquet"), "as a file of 'arrivals'"),
        (first_file(table="others"), "as a file of 'others'"),
        (lambda manifest: manifest.update(codec="pickle"), "payloads as 'pickle'"),
        (lambda manifest: manifest.update(format=0), "is of format 0, and this drift reads"),
    ],
)
def test_a_manifest_says_what_no_writer_says(
    record: Path, change: Callable[[dict[str, Any]], object], says: str
) -> None:
    edit(record, change)
    with pytest.raises(RecordError, match=says):
        drift.Record(record)
    assert troubles(record)


@pytest.mark.parametrize(("version", "says"), [(1, "the drift that wrote it, whose version"), (99, "a newer drift")])
def test_a_record_of_another_format_is_refused(record: Path, version: int, says: str) -> None:
    edit(record, lambda manifest: manifest.update(format=version))
    with pytest.raises(RecordError, match=f"is of format {version}, and this drift reads format {VERSION}; .*{says}"):
        drift.Record(record)


def test_a_manifest_is_nested_too_deep(record: Path) -> None:
    (record / MANIFEST).write_text(f'{{"format": {VERSION}, "fingerprint": ' + "[" * 200_000)
    with pytest.raises(RecordError, match="damaged"):
        drift.Record(record)


@pytest.mark.parametrize("name", [MANIFEST, JOURNAL])
def test_a_manifest_is_no_text(record: Path, name: str) -> None:
    """What is wrong with a journal is left out of the record; the audit tells it."""
    with (record / name).open("ab") as file:
        file.write(b'{"after": "\xff"}\n')
    if name == MANIFEST:
        with pytest.raises(RecordError, match="damaged"):
            drift.Record(record)
    assert troubles(record)


@pytest.mark.parametrize("table", ["arrivals", "input", "late", "output", "blocks"])
def test_a_byte_that_is_another_is_reported_wherever_it_is(record: Path, table: str) -> None:
    path = record / table / "part-00000.parquet"
    data = path.read_bytes()
    for at in range(3, len(data), 83):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x80]) + data[at + 1 :])
        assert any(f"{table}/part-00000.parquet" in text for text in troubles(record))


def test_another_kind_of_file_stands_where_a_file_was(record: Path) -> None:
    path = record / "output" / "part-00000.parquet"
    path.unlink()
    path.symlink_to("/dev/zero")
    assert any("is no file, but something else" in text for text in troubles(record))


def test_a_fraction_that_would_take_all_memory() -> None:
    with pytest.raises(CannotRestore):
        restored(msgpack.packb(msgpack.ExtType(18, b"1e9999999999999")))
