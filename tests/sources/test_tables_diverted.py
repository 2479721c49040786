"""Rows of tables with values that Python has not: each is an error in its place, or diverted there, in any batches."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lakes import Iceberg

import drift
from drift.sources.tables import TableSource
from drift_graph.errors import InputError
from drift_graph.payloads import are_rows

NOT_UTF8 = pa.Array.from_buffers(
    pa.string(), 3, [None, pa.py_buffer(b"".join(at.to_bytes(4, "little") for at in range(4))), pa.py_buffer(b"a\xffb")]
)
NESTED = pa.struct([("a", pa.list_(pa.duration("ns")))])
DAY_US = 24 * 3600 * 10**6

#: Three rows each, of which the second is bad: why it is, and what is shown of it.
BAD: dict[str, tuple[pa.Array, str, Any]] = {
    "nanoseconds": (
        pa.array([10**18, 10**18 + 1, 0], pa.timestamp("ns")),
        "lose data",
        "2001-09-09 01:46:40.000000001",
    ),
    "seconds that microseconds do not reach": (pa.array([0, 2**62, 1], pa.timestamp("s")), "out of bounds", str(2**62)),
    "a year beyond 9999": (pa.array([0, 253402300800 * 10**6, 1], pa.timestamp("us")), "years 1 to 9999", None),
    "a year before 1": (pa.array([0, -719163 * DAY_US, 1], pa.timestamp("us", "UTC")), "years 1 to 9999", None),
    "a date beyond 9999": (pa.array([0, 2932897, 1], pa.date32()), "years 1 to 9999", "10000-01-01"),
    "a duration": (pa.array([0, 1, 2000], pa.duration("ns")), "lose data", None),
    "24:00:00": (pa.array([0, DAY_US, 1], pa.time64("us")), "a time of a day", None),
    "text": (NOT_UTF8, "bytes that are not UTF-8", b"\xff"),
    "nested": (pa.array([{"a": [0]}, {"a": [1000, 1]}, None], NESTED), "lose data", None),
    "a list": (pa.array([[0], [2932897], None], pa.list_(pa.date32())), "years 1 to 9999", None),
}

SOURCES: dict[str, Callable[[pa.Table, Path], Any]] = {
    "arrow": lambda table, path: table,
    "tuples": lambda table, path: drift.sources.table(table, payload="tuple"),
    "dicts": lambda table, path: drift.sources.table(table, type=dict),
    "rows": lambda table, path: drift.sources.table(table, payload="rows"),
    "parquet": lambda table, path: drift.sources.parquet(written(table, path)),
    "parquet, dicts": lambda table, path: drift.sources.parquet(written(table, path), type=dict),
    "parquet, rows": lambda table, path: drift.sources.parquet(written(table, path), payload="rows"),
}


def written(table: pa.Table, path: Path) -> Path:
    pq.write_table(table, path / "t.parquet", row_group_size=7)
    return path / "t.parquet"


def table_of(bad: str) -> pa.Table:
    """Eight good rows, a bad one, and eight good ones."""
    column = BAD[bad][0]
    rows = pa.concat_arrays([column.slice(0, 1)] * 8 + [column.slice(1, 1)] + [column.slice(2, 1)] * 8)
    return pa.table({"n": list(range(17)), "v": rows})


def read(source: Any, items_max: int) -> list[Any]:
    source = source if hasattr(source, "open") else TableSource(source, "dict", None)
    reader = source.diverting("s").open()
    found: list[Any] = []
    while (payloads := reader.read(items_max)) is not None:
        found += payloads
    reader.close()
    return found


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("form", SOURCES)
def test_only_the_bad_row_is_diverted_with_row_and_column_in_batches_of_any_size(
    bad: str, form: str, tmp_path: Path
) -> None:
    if "parquet" in form and bad in ("24:00:00", "seconds that microseconds do not reach"):
        pytest.skip("Parquet does not hold it")
    _, why, shown = BAD[bad]
    made = SOURCES[form](table_of(bad), tmp_path)
    found = read(made, 100)
    assert len(found) == 17
    assert found == read(made, 3) == read(made, 1)
    _, where, error, payload = found[8]
    assert where == "s, row 9" and "column 'v'" in error and why in error
    if type(payload) is tuple:
        payload = dict(zip(("n", "v"), payload))
    assert payload["n"] == 8 and (shown is None or payload["v"] == shown)
    numbers = [each[0] if type(each) is tuple else each["n"] for each in found]
    assert numbers[:8] + numbers[9:] == [n for n in range(17) if n != 8]


def test_rows_beside_a_bad_one_are_taken_with_texts_and_categories_in_lists() -> None:
    columns = {
        "n": range(9),
        "of": [["a"], ["b", "c"], None] * 3,
        "kind": pl.Series(["x", "y", "x"] * 3, dtype=pl.Categorical),
    }
    moments = pl.Series([0, 1000, 1, *range(2000, 8000, 1000)], dtype=pl.Datetime("ns"))
    frame = pl.DataFrame({**columns, "at": moments})
    found = read(frame, 4)
    assert [row[0] == "\0drift diverted" if type(row) is tuple else row["of"] for row in found[1:4]] == [
        ["b", "c"],
        True,
        ["a"],
    ]
    assert [row["kind"] for row in found if type(row) is dict] == list("xyxyxxyx")


@pytest.mark.parametrize("form", SOURCES)
def test_or_it_ends_the_input_behind_the_rows_before_it(form: str, tmp_path: Path) -> None:
    graph = drift.Graph("ends")
    graph.source("s").map(lambda row: row[0] if type(row) is tuple else row["n"]).sink("out")
    found: list[int] = []
    with pytest.raises(InputError, match=r"(t\.parquet|the Table), row 9: column 'v'"):
        found.extend(item.payload for item in drift.run(graph, {"s": SOURCES[form](table_of("text"), tmp_path)}))
    assert found == list(range(8))


def test_a_run_of_frames_with_a_schema_loses_no_more_than_the_bad_row() -> None:
    table = table_of("nanoseconds")
    graph = drift.Graph("frames")
    graph.source("s", schema={"n": int, "v": pl.Datetime("us")}, on_error="divert").sink("out")
    digests = set()
    for frame, batch_items in ((table, 4), (pl.from_arrow(table), 1), (table.to_pandas(), 1000)):
        run = drift.run(graph, {"s": frame}, batch_items=batch_items)
        assert [item.payload.get("n", "diverted") for item in run] == [*range(8), "diverted", *range(9, 17)]
        digests.add(run.report.digest)
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (pd.DataFrame({"a": [1, 2]}, index=["x", "y"]), r"an index \(Index of object\)"),
        (pd.DataFrame({"a": [1, 2]}, index=pd.Index([1, 2], name="k")), "named 'k'"),
        (pd.DataFrame({"a": [1, 2]}, index=pd.date_range("2024", periods=2)), "DatetimeIndex"),
        (pd.DataFrame({"a": [1, 2]}, index=pd.MultiIndex.from_tuples([(1, 2), (3, 4)])), "MultiIndex"),
        (pd.DataFrame({"p": pd.period_range("2024-01", periods=2, freq="M")}), "column 'p' .* periods of pandas"),
        (pd.DataFrame({"p": pd.interval_range(0, 2)}), "column 'p' .* intervals of pandas"),
    ],
)
def test_what_rows_of_pandas_would_lose_is_refused(frame: pd.DataFrame, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        read(frame, 10)
    if "p" in frame.columns:
        frame.to_parquet(tmp_path / "p.parquet")
        with pytest.raises(InputError, match=says):
            read(drift.sources.parquet(tmp_path / "p.parquet"), 10)


def test_numbers_of_rows_that_were_left_out_are_no_loss() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3], "ok": [True, False, True]})
    assert [row["a"] for row in read(frame[frame.ok], 10)] == [1, 3]
    assert read(frame.iloc[0:0], 10) == []


def test_booleans_in_bytes_are_booleans() -> None:
    column = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1, None], pa.int8()))
    for kind in (dict, None):
        rows = read(drift.sources.table(pa.table({"b": column}), type=kind), 9)
        assert repr([row["b"] for row in rows]) == "[False, True, None]"


def _runs(values: Any, kind: Any = np.int32) -> Any:
    """The values twice, the first of them three times."""
    ends = pa.array(np.arange(3, 2 * len(values) + 2, 2, dtype=kind))
    return pa.RunEndEncodedArray.from_arrays(ends, values)


@pytest.mark.parametrize("payload", ["dict", "tuple"])
@pytest.mark.parametrize(
    "column, values",
    [
        (_runs(pa.array(["x", None, "y"]), np.int16), ["x", "x", "x", None, None, "y", "y"]),
        (_runs(pa.array(["x", None, "y"]))[2:6], ["x", None, None, "y"]),
        (_runs(pa.array(["x", "y"]).dictionary_encode(), np.int64), ["x", "x", "x", "y", "y"]),
        (_runs(pa.array([[1], None], pa.list_view(pa.int8()))), [[1], [1], [1], None, None]),
        (_runs(pa.array([2000, None], pa.duration("ns")))[1:4], [datetime.timedelta(microseconds=2)] * 2 + [None]),
        (pa.ListArray.from_arrays([0, 4, 5], _runs(pa.array(["x", None])))[:2], [["x", "x", "x", None], [None]]),
        (pa.StructArray.from_arrays([_runs(pa.array(["x"]))], ["f"]), [{"f": "x"}] * 3),
        (pa.array([], pa.run_end_encoded(pa.int32(), pa.string())), []),
    ],
    ids=lambda each: str(each.type) if isinstance(each, pa.Array) else "",
)
def test_runs_of_a_value_are_the_value_in_each_row(column: Any, values: list[Any], payload: Any) -> None:
    source = drift.sources.table(pa.table({"v": column}), payload=payload)
    graph = drift.Graph("runs")
    graph.source("s").map(lambda row: row["v"] if payload == "dict" else row[0]).sink("out")
    for batch_items in (1, 100):
        assert [item.payload for item in drift.run(graph, {"s": source}, batch_items=batch_items)] == values


def test_rows_of_a_lake_are_diverted_one_by_one(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    dates = pa.array([[0], [2932897], [1]], pa.list_(pa.date32()))
    deltalake.write_deltalake(tmp_path / "t", pa.table({"n": [1, 2, 3], "d": dates}))
    graph = drift.Graph("lake")
    graph.source("s", on_error="divert").sink("out")
    found, converted = (
        [item.payload for item in drift.run(graph, {"s": drift.sources.delta(tmp_path / "t", type=kind)})]
        for kind in (None, dict)
    )
    assert found == converted, "in columns and as dicts"
    assert [each.get("d") for each in found] == [[datetime.date(1970, 1, 1)], None, [datetime.date(1970, 1, 2)]]
    assert "column 'd'" in found[1]["error"] and "row 2" in found[1]["location"]


@pytest.mark.parametrize("form", ["table", "parquet", "delta", "iceberg"])
def test_dicts_stay_columns_unless_they_are_converted_or_rows_have_no_such_type(form: str, tmp_path: Path) -> None:
    def source(table: pa.Table, folder: Path, **more: Any) -> Any:
        if form == "delta":
            pytest.importorskip("deltalake").write_deltalake(folder, table)
            return drift.sources.delta(folder, **more)
        if form == "iceberg":
            pytest.importorskip("pyiceberg")
            lake = Iceberg(folder)
            lake.created(table)
            return lake.source(**more)
        if form == "parquet":
            return drift.sources.parquet(written(table, folder), **more)
        return drift.sources.table(table, **more)

    def are_columns(table: pa.Table, **more: Any) -> bool:
        reader = source(table, Path(mkdtemp(dir=tmp_path)), **more).open()
        found = reader.read(9)
        reader.close()
        assert list(found or ()) == [table.to_pylist(maps_as_pydicts="strict")[0]]
        return are_rows(found)

    plain = pa.table({"n": [1], "v": ["a"]})
    assert are_columns(plain) and not are_columns(plain, type=dict)
    assert not are_columns(plain.append_column("m", pa.array([{"a": 1}], pa.map_(pa.string(), pa.int64()))))


@pytest.mark.parametrize("kind", [pa.month_day_nano_interval(), pa.list_(pa.month_day_nano_interval())])
@pytest.mark.parametrize("form", ["arrow", "tuples", "dicts"])
def test_a_column_of_intervals_is_refused_with_what_to_cast_it_to(kind: pa.DataType, form: str, tmp_path: Path) -> None:
    table = pa.table({"i": pa.array([None], kind)})
    with pytest.raises(
        drift.InputError, match=r"column 'i' of .* has intervals .*\(INTERVAL in SQL\).*: cast it to text"
    ):
        read(SOURCES[form](table, tmp_path), 9)
