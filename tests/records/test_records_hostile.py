"""A record of a stranger, with hashes that fit: each command ends with an error about the record, or says what is
wrong; none ends as by a bug, and no file outside of the record is opened."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drift
from drift.auditing.intact import check_intact
from drift.engines.settings import Settings
from drift.records.describe import describe
from drift.records.format import MANIFEST, VERSION, RecordError, as_file, hash_file, hash_of
from drift.records.inbox import Inbox
from drift.records.journal import JOURNAL
from drift.records.messages import Arrival, Begin, Finish, frame
from drift.records.process import write_record
from drift_graph.canonical import encode_many, encode_metas
from drift_graph.errors import DriftBug, DriftError
from drift_graph.meta import END_OF_TIME, global_time, pack_time
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


def replaced(record: Path, table: str, name: str, values: pa.Array | None) -> None:
    """Put another column in the place of one, or nothing, and make all hashes fit."""
    path = record / table / "part-00000.parquet"
    rows = pq.read_table(path)
    at = rows.schema.get_field_index(name)
    if values is None:
        rows = rows.drop_columns([name])
    else:
        rows = rows.set_column(at, pa.field(name, values.type, nullable=bool(values.null_count)), values)
    pq.write_table(rows, path)

    def fit(manifest: dict[str, Any]) -> None:
        for file in manifest["files"]:
            if file["table"] == table:
                measured(file, record)

    edit(record, fit)


def ends(record: Path, whole: Path) -> list[str]:
    """What went wrong in each way to read it."""
    said = []
    for read in (
        lambda: drift.replay(record, trips()).finish(),
        lambda: list(drift.Record(record).items()),
        lambda: list(drift.Record(record).late()),
        lambda: drift.explain(record, 0, trips()),
        lambda: drift.diff(whole, record),
    ):
        try:
            read()
        except DriftBug:
            raise
        except DriftError as error:
            said.append(str(error))
    return said + troubles(record)


def troubles(record: Path) -> list[str]:
    return [trouble.text for check in check_intact(record) for trouble in check.troubles]


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
        (first_file(first=-5), "from -5 on"),
        (first_file(rows=2**62 + 1), "4,611,686,018,427,387,905 rows"),
        (lambda manifest: manifest.update(items_out=-1), "items_out is -1"),
        (lambda manifest: manifest.update(codec="pickle"), "payloads as 'pickle'"),
        (lambda manifest: manifest.update(format=0), "is of format 0, and this drift reads"),
        (lambda manifest: manifest.update(place="a\0.py:graph"), "target is"),
        (lambda manifest: manifest.update(fingerprint={}), "missing required field"),
        (lambda manifest: manifest["fingerprint"]["operators"][0].update(functions=3), "functions"),
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
def test_a_byte_that_is_another_is_reported_or_harmless_wherever_it_is(record: Path, whole: Path, table: str) -> None:
    """Hashes fit, and even so no command ends as by a bug of ours."""
    path = record / table / "part-00000.parquet"
    data = path.read_bytes()
    for at in range(3, len(data), 83):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x80]) + data[at + 1 :])
        edit(record, lambda manifest: [measured(file, record) for file in manifest["files"]])
        ends(record, whole)


def measured(file: dict[str, Any], record: Path) -> None:
    path = record / file["path"]
    file |= {"bytes": path.stat().st_size, "hash": hash_file(path, "xxh3_128")}


COLUMNS = [
    ("arrivals", "source", pa.array(["none", "none"]).dictionary_encode()),
    ("arrivals", "items", pa.array([-7, -7])),
    ("arrivals", "late", pa.array(["q", "q"])),
    ("arrivals", "heartbeat", pa.array([None, None], pa.binary())),
    ("input", "time", pa.array(["q"] * 4)),
    ("input", "tie", pa.array([b""] * 4)),
    ("input", "tie", pa.array([b"\xc1\xff\x93"] * 4)),
    ("input", "payload", None),
    ("input", "payload", pa.array([None] * 4, pa.binary())),
    ("input", "payload", pa.array([b""] * 4)),
    ("input", "payload", pa.array([b"\x91" * 100_000 + b"\x01"] * 4)),
    ("late", "payload", pa.array([3])),
    ("late", "reason", pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xe9"))),
    ("output", "tie", pa.array([3] * 4)),
    ("output", "tie", pa.array([b""] * 4)),
    ("output", "path", pa.array([3] * 4)),
    ("output", "payload", pa.array([b""] * 4)),
    ("output", "payload", pa.array([b"\x91" * 100_000 + b"\x01"] * 4)),
]


@pytest.mark.parametrize(
    ("table", "name", "values"), COLUMNS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_column_is_none_that_a_writer_writes(
    record: Path, whole: Path, table: str, name: str, values: pa.Array | None
) -> None:
    if table == "arrivals" and values is not None:
        rows = pq.read_metadata(record / "arrivals" / "part-00000.parquet").num_rows
        values = pa.concat_arrays([values[:1]] * rows)
    replaced(record, table, name, values)
    assert ends(record, whole)


def test_two_items_of_one_global_time_are_reported_by_source_batch_and_rows(record: Path) -> None:
    rows = pq.read_table(record / "input" / "part-00000.parquet")
    times, ties = rows.column("time").to_pylist(), rows.column("tie").to_pylist()
    for row, other, says in (
        (2, 1, "row 2, an item has the global time of another one, that of row 1 "),
        (3, 0, "row 3, an item has the global time of another one, that of row 0 in batch 0"),
        (3, None, "row 3, an item has the global time of another source"),
    ):
        forged = list(times), list(ties)
        if other is None:
            forged[1][row] = b"\x05" + ties[row][1:]
        else:
            forged[0][row], forged[1][row] = times[other], ties[other]
        replaced(record, "input", "time", pa.array(forged[0], pa.int64()))
        replaced(record, "input", "tie", pa.array(forged[1], pa.binary()))
        for engine in ("local", "reference"):
            with pytest.raises(RecordError, match=f"in batch 0 of source 'trips', input {says}"):
                drift.replay(record, trips(), engine=engine).finish()


def test_an_audit_of_payloads_that_are_none_is_no_success(record: Path) -> None:
    replaced(record, "output", "payload", pa.array([b"\x93\1"] * 4))
    audit = drift.audit(record, trips())
    (check,) = [check for check in audit.checks if check.result == "not checked"]
    assert not audit.ok and check.found.startswith("a recorded payload cannot be read: ")


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("arrivals", "source", "z" * 100_000),
        ("arrivals", "heartbeat", b"\1" * 100_000),
        ("input", "source", "z" * 100_000),
        ("input", "tie", b"\1" * 100_000),
        ("output", "sink", "z" * 100_000),
        ("output", "path", b"\1" * 70_000),
        ("blocks", "table", "z" * 100_000),
    ],
)
def test_what_is_very_long_is_reported_in_short(table: str, column: str, value: Any, record: Path, whole: Path) -> None:
    rows = pq.read_table(record / table / "part-00000.parquet").column(column)
    kind = pa.string() if isinstance(value, str) else rows.type
    replaced(record, table, column, pa.array([value] * len(rows), kind).cast(rows.type))
    said = ends(record, whole)
    assert said or column in ("source", "sink")  # no block hashes these; the hash of the file was made anew
    assert max(map(len, said), default=0) < 1000


def test_metas_that_are_said_to_be_numbered_and_are_not_are_read_as_they_are(record: Path, whole: Path) -> None:
    rows = pq.read_metadata(record / "arrivals" / "part-00000.parquet").num_rows
    replaced(record, "arrivals", "numbered", pa.array([True] * rows))
    batches = [[list(batch.metas) for batch in drift.Record(path).arrivals()] for path in (record, whole)]
    assert batches[0] == batches[1]
    assert list(drift.replay(record, trips())) == list(drift.Record(whole).items())


def test_arrivals_that_no_source_gives_are_refused_however_well_the_hashes_fit(tmp_path: Path) -> None:
    graph = drift.Graph("numbers")
    graph.source("n").sink("out")
    described = manifest_of(graph)
    first, above = global_time(5, 0, 0, 0), pack_time(6)

    def arrival(batch: int, time: bytes, heartbeat: bytes) -> Arrival:
        return Arrival(batch, 0, batch, 1, None, encode_metas([time]), encode_many([7]), heartbeat, [])

    later = global_time(9, 0, 0, 0)
    cases = {
        "twice": ([arrival(0, first, first), arrival(1, first, END_OF_TIME)], "the global time of another one"),
        "below": ([arrival(0, later, above), arrival(1, first, END_OF_TIME)], "below its source's heartbeat"),
        "back": ([arrival(0, later, above), arrival(1, global_time(7, 0, 0, 0), first)], "is below the one before"),
    }
    for name, (arrivals, says) in cases.items():
        folder = tmp_path / name
        folder.mkdir()
        messages = [Begin(str(folder), described, 10, 1 << 20, 1000.0), *arrivals]
        data = b"".join(map(frame, [*messages, Finish("finished", "", "", False, "2026-01-01", "")]))
        write_record(Inbox(io.BytesIO(data)))  # type: ignore[arg-type]
        audit = drift.audit(folder, graph, seeds=[1])
        kinds = [check.troubles[0].kind for check in audit.checks if check.troubles]
        assert kinds == ["not of a run"] and not audit.ok, name
        with pytest.raises(RecordError, match=says):
            list(drift.Record(folder).arrivals())


def manifest_of(graph: drift.Graph) -> bytes:
    """The manifest of a run of the graph, before it begins."""
    dataflow = graph.build()
    live = {source.name: False for source in dataflow.sources}
    fields: Any = {"target": "", "engine": "local", "workers": 1, "settings": Settings(), "times": {}, "live": live}
    return msgspec.json.encode(describe(dataflow, algorithm="xxh3_128", **fields))


@pytest.mark.parametrize("count", [-1, 2**62])
def test_a_block_has_no_such_number_of_items(record: Path, count: int) -> None:
    rows = pq.read_metadata(record / "blocks" / "part-00000.parquet").num_rows
    replaced(record, "blocks", "rows", pa.array([count] * rows))
    with pytest.raises(RecordError, match=f"has {count:,} items"):
        list(drift.Record(record).blocks())
    check_intact(record)


def test_another_kind_of_file_stands_where_a_file_was(record: Path) -> None:
    path = record / "output" / "part-00000.parquet"
    path.unlink()
    path.symlink_to("/dev/zero")
    assert any("is no file, but something else" in text for text in troubles(record))


def test_a_fraction_that_would_take_all_memory() -> None:
    with pytest.raises(CannotRestore):
        restored(msgpack.packb(msgpack.ExtType(18, b"1e9999999999999")))
