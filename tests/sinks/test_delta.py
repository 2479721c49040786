"""Tables of Delta Lake: what they have of their own."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lakes import Delta, drained, expected, opened, row_at, rows_in, write, wrote

import drift
from drift import InputError, SettingsError, SinkError
from drift.sinks.delta import DeltaSink

deltalake = pytest.importorskip("deltalake")


@pytest.fixture
def lake(tmp_path: Path) -> Delta:
    return Delta(tmp_path)


@dataclass
class Row:
    n: int
    day: str


DAY = dt.datetime(2013, 1, 1)


def test_of_two_runs_that_commit_at_once_one_is_refused(lake: Delta, monkeypatch: pytest.MonkeyPatch) -> None:
    one = opened(lake.sink(part_items=2))
    write(one, 0, 2)
    find = DeltaSink.find_end
    third = opened(lake.sink(part_items=2))

    def found(self: Any) -> Any:
        last = find(self)
        if self is third:  # in between
            monkeypatch.undo()
            write(one, 2, 4)
        return last

    monkeypatch.setattr(DeltaSink, "find_end", found)
    with pytest.raises(SinkError, match=r"positions 2 to 3: .*transaction.*; the items up to 1 are safe"):
        write(third, 2, 4)
    assert rows_in(lake) == expected(4)


def test_rows_of_others_and_compacted_files_change_nothing(lake: Delta, tmp_path: Path) -> None:
    sink = opened(lake.sink(part_items=2))
    write(sink, 0, 2)
    deltalake.write_deltalake(str(tmp_path), pa.table({"n": [70]}), mode="append", schema_mode="merge")
    write(sink, 2, 4)
    lake.compact()
    write(sink, 4, 5)
    committed = sink.commit()
    sink.close()
    table = lake.table()
    table.create_checkpoint()
    assert pa.table(table.to_pyarrow_table()).num_rows == 6
    again = opened(lake.sink(), (5, committed))
    assert again.committed_position() == 4
    assert "has its 5 rows as of the checkpoint" in again.compare(committed)
    table.delete("n = 3")
    with pytest.raises(SinkError, match="had 5 rows as of the checkpoint, and now it has 4"):
        again.compare(committed)


def test_an_older_table_is_noticed(tmp_path: Path) -> None:
    sink = opened(Delta(tmp_path / "a").sink(part_items=2))
    write(sink, 0, 2)
    saved = {path: path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.is_file()}
    write(sink, 2, 4)
    for path in [*(tmp_path / "a").rglob("*")]:
        if path.is_file() and path not in saved:
            path.unlink()
    again = opened(Delta(tmp_path / "a").sink(part_items=2))
    write(again, 0, 4)
    committed = again.commit()
    for path in [*(tmp_path / "a").rglob("*")]:
        if path.is_file() and path not in saved:
            path.unlink()
    lost = Delta(tmp_path / "a").sink()
    lost.resume_at(4, committed)
    with pytest.raises(SinkError, match=r"had the items up to position 3 .* now it ends at position 1"):
        lost.open()


@pytest.mark.parametrize(
    ("then", "now", "says"),
    [
        (1, 1.0, "'x' is int64, and a payload has something else: 1.0, a float"),
        ([1], [2.0], r"'x' is list<.*int64>, and a payload has something else: 2.0, a float"),
        ({"a": 1}, {"a": 2.0}, "'x' is struct<a: int64>, and a payload has something else: 2.0, a float"),
        ([{"a": [1]}], [{"a": [3, 2.0]}], "a payload has something else: 2.0, a float"),
        ([[1]], [[-0.0]], "a payload has something else: -0.0, a float"),
        (1.0, 2**53 + 1, "'x' is double, and a payload has something else: 9007199254740993"),
        (1, True, "something else: True"),
        ([1], ["1"], r"something else: \['1'\]"),
        ({"a": 1}, {"b": 1}, "the field 'b' would not be stored"),
        (DAY, DAY.replace(tzinfo=dt.UTC), "something else: datetime.datetime"),
    ],
)
def test_no_value_is_cast_to_the_type_that_the_table_has(lake: Delta, then: Any, now: Any, says: str) -> None:
    wrote(lake, 0, 1, lambda n: {"x": then})
    with pytest.raises(SinkError, match=f"positions 1 to 1: .*{says}.*up to 0 are safe"):
        wrote(lake, 0, 2, lambda n: {"x": now if n else then}, part_items=1)
    assert lake.table().version() == 0


def test_values_come_back_as_they_were_and_new_columns_on_request(lake: Delta) -> None:
    moment = dt.datetime(2013, 1, 1, 5, 6, 7, 8)
    full = {
        "i": 1, "f": 0.5, "t": "é", "b": b"\0", "yes": True, "day": dt.date(2013, 1, 1), "at": moment,
        "utc": moment.replace(tzinfo=dt.UTC), "of": {"a": [1, 2]}, "none": None,
    }  # fmt: skip
    rows = [full, dict.fromkeys(full), {**full, "f": 2, "none": "late"}]
    sink = opened(lake.sink(part_items=1, merge_schema=True))
    for at in range(3):
        write(sink, at, at + 1, lambda n: rows[n])
    sink.close()
    found, _ = drained(lake.source())
    assert [{name: row[name] for name in full if name != "none"} for row in found] == [
        {name: row[name] for name in full if name != "none"} for row in rows
    ]
    assert [row.get("none") for row in found] == [None, None, "late"]


@pytest.mark.parametrize("by", [None, "day"])
def test_filters_of_others_find_every_row(lake: Delta, by: str | None) -> None:
    """Readers pass over files by bounds in the log, which are floats: not exact for such values."""
    money = Decimal("1234567890123456.12")
    kinds = {
        "day": pa.string(), "a.b": pa.int64(), "c`d, e": pa.bool_(), "few": pa.decimal128(9, 2),
        "money": pa.decimal128(18, 2), "f": pa.float64(), "of": pa.struct({"money": pa.decimal128(18, 2)}),
    }  # fmt: skip
    row = {
        "day": "x",
        "a.b": 5,
        "c`d, e": True,
        "few": Decimal("1.27"),
        "money": money,
        "f": math.inf,
        "of": {"money": money},
    }
    wrote(lake, 0, 2, lambda _: row, columns=kinds, partition_by=by, part_items=1)
    table = lake.table()
    for condition in (pc.field("money") == money, pc.field("f") > 0.0, pc.field("of", "money") == money):
        assert table.to_pyarrow_dataset().to_table(filter=condition).num_rows == 2
    assert pl.scan_delta(str(lake.folder)).filter(pl.col("money") == pl.lit(money)).collect().height == 2
    with_bounds = pa.table(table.get_add_actions(flatten=True)).column_names
    found = {name for name in ("position", "time", *kinds) if f"min.{name}" in with_bounds}
    assert found == {"position", "time", "a.b", "few", *({"day"} - {by})}
    told = table.metadata().configuration[
        "delta.dataSkippingStatsColumns"
    ]  # other writers take a struct with its parts
    assert told == "`position`,`time`,`day`,`a.b`,`few`"


def test_views_of_lists_are_written_into_a_table_that_has_lists(lake: Delta, tmp_path: Path) -> None:
    head = {name: pa.array([], pa.int64()) for name in ("position", "time")}
    deltalake.write_deltalake(tmp_path, pa.table({**head, "x": pa.array([], pa.list_(pa.int64()))}))
    rows = [{"x": [1, 2]}, {"x": [3]}, {"x": [4, 5]}]
    graph = drift.Graph("echo")
    graph.source("rows").sink("out")
    written = lake.sink(columns={"x": pa.list_view(pa.int64())})
    drift.run(graph, {"rows": rows}, sinks={"out": written}).finish()
    assert [item.payload for item in drift.run(graph, {"rows": lake.source(columns=["x"])})] == rows


def test_a_field_that_is_always_none_is_no_column_until_it_has_a_value(lake: Delta) -> None:
    sink = opened(lake.sink(part_items=1))
    for at in range(2):
        write(sink, at, at + 1, lambda n: {"n": n, "none": None})
    with pytest.raises(SinkError, match=r"the table has no column 'none'"):
        write(sink, 2, 3, lambda n: {"n": n, "none": 5})
    assert [row["n"] for row in drained(lake.source())[0]] == [0, 1]


def test_tables_that_cannot_be_written_are_refused(lake: Delta, tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path / "a"), pa.table({"position": [1]}))
    with pytest.raises(SinkError, match="has rows with positions, and its log does not say up to which"):
        Delta(tmp_path / "a").sink().open()
    deltalake.write_deltalake(str(tmp_path / "b"), pa.table({"n": [1], "day": ["x"]}), partition_by=["day"])
    with pytest.raises(SinkError, match=r"is partitioned by \['day'\], and partition_by is \['n'\]"):
        Delta(tmp_path / "b").sink(partition_by="n").open()
    with pytest.raises(SinkError, match="no column 'position'"):
        wrote(Delta(tmp_path / "b"), 0, 2)
    wrote(Delta(tmp_path / "b"), 0, 2, merge_schema=True)
    assert sorted(map(str, Delta(tmp_path / "b").table().partitions())) == [
        "{'day': 'a'}", "{'day': 'b'}", "{'day': 'x'}",
    ]  # fmt: skip
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError):
        wrote(Delta(tmp_path / "file" / "c"), 0, 2)
    with pytest.raises(SinkError, match="no folder stands for ''"):
        wrote(Delta(tmp_path / "d"), 0, 1, lambda n: {"day": ""}, partition_by="day")
    with pytest.raises(SettingsError, match="part_items"):
        lake.sink(part_items=0)


def test_a_version_is_read_and_no_file_that_was_read_is_needed(lake: Delta) -> None:
    for end in (3, 6, 9):
        wrote(lake, 0, end)
    assert [row["n"] for row in drained(lake.source(version=1))[0]] == list(range(6))
    _, position = drained(lake.source())
    lake.compact()
    lake.table().vacuum(0, dry_run=False, enforce_retention_duration=False)
    wrote(lake, 0, 10)
    assert [row["n"] for row in drained(lake.source(), position)[0]] == [9]


def test_tables_that_cannot_be_read_say_so(tmp_path: Path) -> None:
    wrote(Delta(tmp_path / "a"), 0, 9)
    wrote(Delta(tmp_path / "b"), 0, 9)
    with pytest.raises(InputError, match="cannot be read as a Delta table"):
        Delta(tmp_path / "none").source().open()
    with pytest.raises(InputError, match=r"version 7 of .* cannot be read"):
        Delta(tmp_path / "a").source(version=7).open()
    with pytest.raises(InputError, match="has no column 'x'"):
        drained(Delta(tmp_path / "a").source(columns=["x"]))
    with pytest.raises(SettingsError, match="'dict', 'tuple'"):
        Delta(tmp_path / "a").source(payload="rows")  # type: ignore[arg-type]
    _, position = drained(Delta(tmp_path / "a").source(), most=5)
    with pytest.raises(InputError, match="it is another table"):
        drained(Delta(tmp_path / "b").source(), position)
    (file,) = (tmp_path / "a").glob("*.parquet")
    file.unlink()
    with pytest.raises(InputError, match="if it was removed by VACUUM"):
        drained(Delta(tmp_path / "a").source(), position)
    rows, _ = drained(Delta(tmp_path / "b").source(type=Row, columns=["n", "day"]))
    assert rows == [Row(**row_at(n)) for n in range(9)]
