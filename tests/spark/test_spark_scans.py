"""DataFrames that tasks read as files: only plain scans, and with the rows that Spark's reader gives."""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drift
from drift.spark.scans import Found, Scan, _batches, _found, partitions_of, scan_of

FIELDS: dict[str, tuple[Any, list[Any]]] = {
    "at": (pa.int64(), [0, 1, 2, 2**62]),
    "b": (pa.int8(), [None, -128, 127, 0]),
    "s": (pa.int16(), [-(2**15), None, 1, 2]),
    "i": (pa.int32(), [-(2**31), 2**31 - 1, None, 5]),
    "f": (pa.float32(), [0.5, -0.0, None, 1e30]),
    "d": (pa.float64(), [0.1, -0.0, math.inf, None]),
    "yes": (pa.bool_(), [True, None, False, True]),
    "a.b `c`": (pa.large_string(), ["", "\u00e9\u4e2d", None, "x"]),
    "text": (pa.string(), ["p", "p", None, "q"]),
    "raw": (pa.binary(), [b"", b"\x00\xff", None, b"y"]),
}


def table(**more: tuple[Any, list[Any]]) -> pa.Table:
    fields = FIELDS | more
    return pa.table({name: pa.array(values, kind) for name, (kind, values) in fields.items()})


def written(path: Path, rows: pa.Table, size: int = 3) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, row_group_size=size)
    return str(path)


def read(scan: Scan, tasks: int) -> list[dict[str, Any]]:
    return [
        row
        for groups in partitions_of(scan, tasks)
        for batch in _batches(scan.schema, groups)
        for row in batch.to_pylist()
    ]


@pytest.mark.smoke
def test_a_plain_scan_has_the_rows_of_sparks_reader_and_runs_give_their_digest(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "a b%20\u00fc"
    written(folder / "one.parquet", table())
    written(folder / "two.parquet", table(at=(pa.int64(), [3, 4, 5, 6])), 100)
    written(folder / "none.parquet", table().slice(0, 0))
    frame = spark.read.parquet(str(folder))
    scan = scan_of(frame)
    assert scan is not None and scan.schema == frame.toArrow().schema
    expected = sorted(map(repr, frame.toArrow().to_pylist()))
    for tasks in (1, 2, 8):
        assert sorted(map(repr, read(scan, tasks))) == expected
    graph = drift.Graph("scanned")
    rows = graph.source("rows", time=drift.EventTime("at"))
    rows.count(key=lambda row: row["text"]).sink("out")
    run = drift.run(graph, {"rows": drift.sources.table(frame.orderBy("at").toArrow())})
    digest = run.finish().digest
    for partitions in (1, 3):
        assert drift.run(graph, {"rows": frame}, engine="spark", partitions=partitions).finish().digest == digest


def test_what_is_no_plain_scan_is_left_to_spark(spark: Any, tmp_path: Path) -> None:
    path = written(tmp_path / "one.parquet", table())
    frame = spark.read.parquet(path)
    assert scan_of(frame) is not None
    for other in (
        frame.where("i > 0"),
        frame.select("at"),
        frame.limit(2),
        frame.unionAll(frame),
        spark.read.parquet(path, path),
        spark.read.option("mergeSchema", "true").parquet(path),
        spark.read.schema("i long").parquet(path),
        spark.createDataFrame([(1,)], "at long"),
        spark.read.json(spark.createDataFrame([("{}",)], "line string")),
    ):
        assert scan_of(other) is None
    frame.persist()
    frame.count()
    assert scan_of(frame) is None  # what was read once is not read again
    frame.unpersist()
    written(tmp_path / "parts" / "day=1" / "one.parquet", table())
    assert scan_of(spark.read.parquet(str(tmp_path / "parts"))) is None
    frame.select("at").write.orc(str(tmp_path / "orc"))
    assert scan_of(spark.read.orc(str(tmp_path / "orc"))) is None


MOMENT = datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC)
LEFT: dict[str, Any] = {
    "moment": pa.array([MOMENT], pa.timestamp("us", "UTC")),
    "day": pa.array([MOMENT.date()]),
    "nested": pa.array([[1]]),
    "unsigned": pa.array([1], pa.uint32()),
    "coded": pa.array(["a"]).dictionary_encode(),
    "duration": pa.array([1], pa.duration("us")),
}


@pytest.mark.parametrize("name", LEFT)
def test_columns_that_sparks_reader_reads_in_its_own_way_are_left_to_it(spark: Any, tmp_path: Path, name: str) -> None:
    path = written(tmp_path / "one.parquet", pa.table({"at": [1], name: LEFT[name]}))
    assert scan_of(spark.read.parquet(path)) is None


def test_files_with_other_columns_are_left_to_spark(spark: Any, tmp_path: Path) -> None:
    for at, other in enumerate(({"b": [1], "a": [1]}, {"a": [1]}, {"a": [1], "b": ["x"]}, {"a": [1], "b": [1.5]})):
        folder = tmp_path / str(at)
        written(folder / "one.parquet", pa.table({"a": [1], "b": [1]}))
        frame = spark.read.parquet(str(folder))
        assert scan_of(frame) is not None
        written(folder / "two.parquet", pa.table(other))
        assert scan_of(spark.read.parquet(str(folder))) is None


def test_each_row_group_is_read_once_and_tasks_read_about_as_much() -> None:
    rows = {"a": [5, 5, 5, 5], "b": [], "c": [40], "d": [1] * 30}
    scan = Scan(pa.schema([]), {path: Found(f"of {path}", each) for path, each in rows.items()})

    def parts(tasks: int) -> list[tuple[str, int, int]]:
        return [(path, *groups) for path, identity, *groups in partitions_of(scan, tasks) if identity == f"of {path}"]

    assert parts(1) == [("a", 0, 4), ("c", 0, 1), ("d", 0, 30)]
    assert parts(9) == [("a", 0, 2), ("a", 2, 4), ("c", 0, 1), ("d", 0, 10), ("d", 10, 20), ("d", 20, 30)]


CHANGED: dict[str, pa.Table] = {
    "more rows": pa.table({"at": list(range(9)), "text": ["a"] * 9}),
    "fewer rows": pa.table({"at": [1], "text": ["a"]}),
    "other rows": pa.table({"at": list(range(6)), "text": ["b"] * 6}),
    "text": pa.table({"at": list("012345"), "text": ["a"] * 6}),
    "another order": pa.table({"text": ["a"] * 6, "at": list(range(6))}),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_file_that_is_another_one_when_a_task_reads_it_ends_the_run(tmp_path: Path, name: str) -> None:
    rows = pa.table({"at": list(range(6)), "text": ["a"] * 6})
    path = written(tmp_path / "one.parquet", rows)
    found = _found(path, rows.schema)
    assert found is not None
    scan = Scan(rows.schema, {path: found})
    assert [row["at"] for row in read(scan, 2)] == list(range(6))
    written(tmp_path / "one.parquet", CHANGED[name])
    with pytest.raises(drift.InputError, match=r"one\.parquet is another file than when the run began"):
        read(scan, 2)


def test_a_damaged_file_ends_the_run_in_words(spark: Any, tmp_path: Path) -> None:
    rows = pa.table({"at": list(range(5000)), "text": [str(number) * 20 for number in range(5000)]})
    path = Path(written(tmp_path / "one.parquet", rows, 5000))
    column = pq.read_metadata(path).row_group(0).column(1)
    begin = column.dictionary_page_offset or column.data_page_offset
    data = bytearray(path.read_bytes())
    data[begin + 40 : begin + column.total_compressed_size] = bytes(column.total_compressed_size - 40)
    path.write_bytes(data)
    graph = drift.Graph("damaged")
    graph.source("rows", time=drift.EventTime("at")).sink("out")
    with pytest.raises(drift.InputError, match=r"one\.parquet cannot be read as Parquet: .*check the file"):
        drift.run(graph, {"rows": spark.read.parquet(str(path))}, engine="spark").finish()
