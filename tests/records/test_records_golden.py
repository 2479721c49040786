"""A record of format 3, as it was written once: every later drift reads it, and finds it intact.

`python tests/records/test_records_golden.py FOLDER` writes one anew, for a new format; the old ones stay.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from framed import frame, written

import drift
from drift.records import writer
from drift.records.format import Manifest, SourceInfo
from drift.records.messages import Arrival, Begin, Finish, LateRow, Learned, Message, Output
from drift_graph.canonical import canonical, encode_many, stored
from drift_graph.meta import END_OF_TIME, global_time, pack_time, varint
from drift_graph.metas import Metas

FOLDER = Path(__file__).parents[1] / "data" / "record-3"
INPUT: list[Any] = [{"z": 1, "a": (2, [3])}, "text", -(2**70), frozenset({1.5})]
OUTPUT: list[Any] = [("text", 1), None, ("text", 2)]
METAS = [global_time(5 + number, 0, 2**63 + number, 0) for number in range(4)]


def messages(folder: Path) -> list[Message]:
    sources = [SourceInfo("given", False, {"time": "event, by when (graph.py:3)", "lateness": 7})]
    manifest = Manifest(graph="golden", sources=sources, sinks=["out", "other"], engine="local", workers=1, settings={})
    manifest.started = "2026-01-01T00:00:00+00:00"
    late = [LateRow(1, 5, "4 behind the heartbeat", stored("late"))]
    metas = [METAS[0] + varint(1), METAS[1] + varint(0) + varint(300), METAS[3] + varint(1)]
    return [
        Begin(str(folder), msgspec.json.encode(manifest), 3, 1 << 20, 1000.0),
        Learned("Trip", "graph:Trip"),
        Arrival(0, 0, 1_000, 2, None, Metas(METAS[:2]).encoded(), b"".join(map(stored, INPUT[:2])), pack_time(5), []),
        Output(0, 2, None, Metas(metas[:2]).encoded(), encode_many(OUTPUT[:2]), [0, 1]),
        Arrival(1, 0, 2_000, 2, None, Metas(METAS[2:]).encoded(), b"".join(map(stored, INPUT[2:])), pack_time(7), late),
        Arrival(2, 0, 3_000, 0, None, b"", b"", END_OF_TIME, []),
        Output(2, 1, None, Metas(metas[2:]).encoded(), encode_many(OUTPUT[2:]), 0),
        Finish("finished", "", "", False, "2026-01-01T00:00:01+00:00", ""),
    ]


@pytest.fixture(params=["as it was written", "written now"])
def record(request: pytest.FixtureRequest, tmp_path: Path) -> drift.Record:
    if request.param == "as it was written":
        return drift.Record(FOLDER)
    written(b"".join(map(frame, messages(tmp_path))))
    return drift.Record(tmp_path)


def test_a_record_of_format_3_is_read(record: drift.Record) -> None:
    manifest = record.manifest
    assert (manifest.format, manifest.codec, manifest.classes) == (3, "canonical-msgpack-1", {"Trip": "graph:Trip"})
    assert (manifest.items_in, manifest.late_items, manifest.items_out) == (4, 1, 3)
    assert manifest.digest == "a92bca7b7d24e65e30b0106ad5c813d2"
    assert manifest.input_digest == "a2c8b3c2694207699529d7971b382f5b"
    batches = list(record.arrivals())
    assert [list(batch.metas) for batch in batches] == [METAS[:2], METAS[2:], []]
    assert [payload for batch in batches for payload in record.restored(batch.data)] == INPUT
    assert list(record.restored(batches[0].data)[0]) == ["z", "a"]
    assert [(batch.at_ns, batch.heartbeat) for batch in batches] == [
        (1_000, pack_time(5)), (2_000, pack_time(7)), (3_000, END_OF_TIME),
    ]  # fmt: skip
    assert list(record.late()) == [drift.Late("given", "late", 1, 5, "4 behind the heartbeat")]
    items = list(record.items())
    assert [(item.payload, item.sink, item.time) for item in items] == [
        (("text", 1), "out", 5), (None, "other", 6), (("text", 2), "out", 8),
    ]  # fmt: skip
    assert [file.path for file in manifest.files] == FILES
    assert drift.audit(record, reproduce=False).troubles == []


FILES = [
    "arrivals/part-00000.parquet", "input/part-00000.parquet", "late/part-00000.parquet", "output/part-00000.parquet",
    "blocks/part-00000.parquet", "arrivals/part-00001.parquet", "output/part-00001.parquet",
    "blocks/part-00001.parquet",
]  # fmt: skip


def test_the_checks_of_a_block_are_those_of_format_3(record: drift.Record) -> None:
    blocks = list(record.blocks("output"))
    assert [(block.number, block.rows) for block in blocks] == [(0, 3)]
    sums = [sum(data) % 256 | len(data) % 256 << 8 for data in map(canonical, OUTPUT)]
    metas = [METAS[0] + varint(1), METAS[1] + varint(0) + varint(300), METAS[3] + varint(1)]
    assert blocks[0].meta_checks == bytes(sum(canonical(meta)) % 256 for meta in metas)
    assert blocks[0].payload_checks == b"".join(each.to_bytes(2, "little") for each in sums)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    versions = {"drift": "0.1.0", "python": "CPython 3.11", "platform": "any", "packages": {"msgspec": "0"}}
    writer.environment = lambda: versions  # type: ignore[attr-defined]
    written(b"".join(map(frame, messages(folder.absolute()))))
