"""Tables of Delta Lake: rows and position are one version, and a version after the other is read."""

from __future__ import annotations

import datetime as dt
import select
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dying import Death, Taken, dying, write_steps
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import HANG_S

import drift
from drift import InputError, SettingsError, SinkError, sinks, sources
from drift.sinks.delta import DeltaSink
from drift_graph.meta import global_time
from drift_graph.metas import Metas

deltalake = pytest.importorskip("deltalake")


def meta_at(position: int) -> bytes:
    return global_time(position * 10, 0, 0, 0) + bytes(position % 5)


def row_at(position: int) -> dict[str, Any]:
    return {"n": position, "day": "ab"[position % 2]}


def write(sink: Any, start: int, end: int, row: Callable[[int], Any] = row_at) -> None:
    sink.write(range(start, end), Metas(list(map(meta_at, range(start, end)))), list(map(row, range(start, end))))


def opened(sink: Any, resumes: tuple[int, Any] | None = None) -> Any:
    if resumes is not None:
        sink.resume_at(*resumes)
    sink.open()
    return sink


def wrote(path: Path, start: int, end: int, row: Callable[[int], Any] = row_at, **more: Any) -> None:
    sink = opened(sinks.delta(path, **more))
    write(sink, start, end, row)
    sink.close()


def rows_in(path: Path) -> list[tuple[int, str]]:
    table = pa.table(deltalake.DeltaTable(path).to_pyarrow_table().select(["position", "day"]))
    return sorted((row["position"], row["day"]) for row in table.to_pylist())


def expected(end: int, start: int = 0) -> list[tuple[int, str]]:
    return [(position, row_at(position)["day"]) for position in range(start, end)]


@dataclass
class Row:
    n: int
    day: str


DAY = dt.datetime(2013, 1, 1)


@given(
    deaths=st.lists(st.integers(0, 9), max_size=4),
    steps=st.lists(st.integers(1, 6) | st.none(), min_size=1, max_size=8),
    by=st.sampled_from([None, "day"]),
    part_items=st.integers(1, 9),
)
@settings(deadline=None, max_examples=25)
def test_a_death_before_or_after_a_version_loses_nothing_and_doubles_nothing(
    deaths: list[int], steps: list[int | None], by: str | None, part_items: int
) -> None:
    """Steps are batches, by their numbers of items, or checkpoints."""
    end = sum(step or 0 for step in steps)
    taken: Taken = []
    left = [-1]

    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        path = Path(name, "out")
        patch.setattr(deltalake, "write_deltalake", dying(deltalake.write_deltalake, left))

        def run() -> None:
            sink = opened(sinks.delta(path, part_items=part_items, partition_by=by), taken[-1] if taken else None)
            write_steps(sink, write, steps, taken)
            sink.close()

        for calls in deaths:
            left[0] = calls
            try:
                run()
            except Death:
                pass
            left[0] = -1
            there = deltalake.DeltaTable.is_deltatable(str(path))
            found = rows_in(path) if there else []
            assert found == expected(len(found)) and (not taken or len(found) >= taken[-1][0])
        run()
        assert (rows_in(path) if end else []) == expected(end)
        if taken:
            assert "by their positions" in sinks.delta(path).compare(taken[-1][1])


def test_of_two_runs_at_once_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = opened(sinks.delta(tmp_path, part_items=2)), opened(sinks.delta(tmp_path, part_items=2))
    write(one, 0, 2)
    with pytest.raises(SinkError, match=r"another run writes to .* which now ends at position 1"):
        write(other, 0, 2)
    find = DeltaSink.find_end
    third = opened(sinks.delta(tmp_path, part_items=2))

    def found(self: Any) -> Any:
        last = find(self)
        if self is third:  # in between
            monkeypatch.undo()
            write(one, 2, 4)
        return last

    monkeypatch.setattr(DeltaSink, "find_end", found)
    with pytest.raises(SinkError, match=r"positions 2 to 3: .*transaction.*; the items up to 1 are safe"):
        write(third, 2, 4)
    assert rows_in(tmp_path) == expected(4)


def test_rows_of_others_and_compacted_files_change_nothing(tmp_path: Path) -> None:
    sink = opened(sinks.delta(tmp_path, part_items=2))
    write(sink, 0, 2)
    deltalake.write_deltalake(str(tmp_path), pa.table({"n": [70]}), mode="append", schema_mode="merge")
    write(sink, 2, 4)
    deltalake.DeltaTable(str(tmp_path)).optimize.compact()
    write(sink, 4, 5)
    committed = sink.commit()
    sink.close()
    table = deltalake.DeltaTable(str(tmp_path))
    table.create_checkpoint()
    assert pa.table(table.to_pyarrow_table()).num_rows == 6
    again = opened(sinks.delta(tmp_path), (5, committed))
    assert again.committed_position() == 4
    assert "has its 5 rows as of the checkpoint" in again.compare(committed)
    table.delete("n = 3")
    with pytest.raises(SinkError, match="had 5 rows as of the checkpoint, and now it has 4"):
        again.compare(committed)


def test_an_older_table_is_noticed(tmp_path: Path) -> None:
    sink = opened(sinks.delta(tmp_path / "a", part_items=2))
    write(sink, 0, 2)
    saved = {path: path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.is_file()}
    write(sink, 2, 4)
    for path in [*(tmp_path / "a").rglob("*")]:
        if path.is_file() and path not in saved:
            path.unlink()
    again = opened(sinks.delta(tmp_path / "a", part_items=2))
    write(again, 0, 4)
    committed = again.commit()
    for path in [*(tmp_path / "a").rglob("*")]:
        if path.is_file() and path not in saved:
            path.unlink()
    lost = sinks.delta(tmp_path / "a")
    lost.resume_at(4, committed)
    with pytest.raises(SinkError, match=r"had the items up to position 3 .* now it ends at position 1"):
        lost.open()


def test_another_output_is_refused_and_replaced_on_request(tmp_path: Path) -> None:
    wrote(tmp_path, 0, 4)
    other = opened(sinks.delta(tmp_path))
    with pytest.raises(SinkError, match="has an item at position 3 that this run does not give"):
        other.write(range(5), Metas([global_time(7, 0, 0, n) for n in range(5)]), [row_at(n) for n in range(5)])
    with pytest.raises(SinkError, match="has items already"):
        sinks.delta(tmp_path, resume="error").open()
    wrote(tmp_path, 0, 2, lambda n: {"n": str(n), "day": "z"}, resume="replace")
    assert rows_in(tmp_path) == [(0, "z"), (1, "z")]
    empty = opened(sinks.delta(tmp_path, resume="replace"))
    empty.complete()
    empty.close()
    assert rows_in(tmp_path) == [] and opened(sinks.delta(tmp_path)).committed_position() is None


def test_a_table_that_somebody_emptied_is_replaced(tmp_path: Path) -> None:
    wrote(tmp_path, 0, 4)
    deltalake.DeltaTable(str(tmp_path)).delete()
    with pytest.raises(SinkError, match="up to position 3, and that one is gone"):
        sinks.delta(tmp_path).open()
    opened(sinks.delta(tmp_path, resume="replace")).close()
    assert opened(sinks.delta(tmp_path)).committed_position() is None
    wrote(tmp_path, 0, 2, resume="replace")
    assert rows_in(tmp_path) == expected(2)


@pytest.mark.parametrize(
    ("then", "now", "says"),
    [
        ({"x": 1}, {"x": "1"}, "has 'x' as int64, and the payloads as string"),
        ({"x": 1}, {"x": 1.0}, "has 'x' as int64, and the payloads as double"),
        ({"x": "a"}, {"x": b"a"}, "has 'x' as string, and the payloads as binary"),
        ({"x": 1.0}, {"x": 2**53 + 1}, "has 'x' as double"),
        ({"x": 1}, {"x": True}, "and the payloads as bool"),
        ({"x": [1]}, {"x": ["1"]}, "and the payloads as list"),
        ({"x": {"a": 1}}, {"x": {"b": 1}}, "and the payloads as struct"),
        ({"x": DAY}, {"x": DAY.replace(tzinfo=dt.UTC)}, "and the payloads as timestamp"),
        ({"x": 1}, {"x": 1, "y": 2}, "the table has no column 'y'; it has 'position', 'time', 'x'; .*merge_schema"),
    ],
)  # fmt: skip
def test_rows_that_the_table_has_no_types_for_are_refused(tmp_path: Path, then: Any, now: Any, says: str) -> None:
    wrote(tmp_path, 0, 1, lambda n: then)
    sink = opened(sinks.delta(tmp_path, part_items=1))
    sink.write([0], Metas([meta_at(0)]), [then])
    with pytest.raises(SinkError, match=f"positions 1 to 1: .*{says}.*up to 0 are safe"):
        write(sink, 1, 2, lambda n: now)
    sink.close()
    assert deltalake.DeltaTable(str(tmp_path)).version() == 0


def test_values_come_back_as_they_were_and_new_columns_on_request(tmp_path: Path) -> None:
    moment = dt.datetime(2013, 1, 1, 5, 6, 7, 8)
    full = {
        "i": 1, "f": 0.5, "t": "é", "b": b"\0", "yes": True, "day": dt.date(2013, 1, 1), "at": moment,
        "utc": moment.replace(tzinfo=dt.UTC), "of": {"a": [1, 2]}, "none": None,
    }  # fmt: skip
    rows = [full, dict.fromkeys(full), {**full, "f": 2, "none": "late"}]
    sink = opened(sinks.delta(tmp_path, part_items=1, merge_schema=True))
    for at in range(3):
        write(sink, at, at + 1, lambda n: rows[n])
    sink.close()
    found = drained(sources.delta(tmp_path))
    assert [{name: row[name] for name in full if name != "none"} for row in found] == [
        {name: row[name] for name in full if name != "none"} for row in rows
    ]
    assert [row.get("none") for row in found] == [None, None, "late"]


def test_views_of_lists_are_written_into_a_table_that_has_lists(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    head = {name: pa.array([], pa.int64()) for name in ("position", "time")}
    deltalake.write_deltalake(tmp_path, pa.table({**head, "x": pa.array([], pa.list_(pa.int64()))}))
    rows = [{"x": [1, 2]}, {"x": [3]}, {"x": [4, 5]}]
    graph = drift.Graph("echo")
    graph.source("rows").sink("out")
    written = sinks.delta(tmp_path, columns={"x": pa.list_view(pa.int64())})
    drift.run(graph, {"rows": rows}, sinks={"out": written}).finish()
    assert [item.payload for item in drift.run(graph, {"rows": sources.delta(tmp_path, columns=["x"])})] == rows


def test_a_field_that_is_always_none_is_no_column_until_it_has_a_value(tmp_path: Path) -> None:
    sink = opened(sinks.delta(tmp_path, part_items=1))
    for at in range(2):
        write(sink, at, at + 1, lambda n: {"n": n, "none": None})
    with pytest.raises(SinkError, match=r"the table has no column 'none'"):
        write(sink, 2, 3, lambda n: {"n": n, "none": 5})
    assert [row["n"] for row in drained(sources.delta(tmp_path))] == [0, 1]


def test_tables_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path / "a"), pa.table({"position": [1]}))
    with pytest.raises(SinkError, match="has rows with positions, and its log does not say up to which"):
        sinks.delta(tmp_path / "a").open()
    deltalake.write_deltalake(str(tmp_path / "b"), pa.table({"n": [1], "day": ["x"]}), partition_by=["day"])
    with pytest.raises(SinkError, match=r"is partitioned by \['day'\], and partition_by is \['n'\]"):
        sinks.delta(tmp_path / "b", partition_by="n").open()
    with pytest.raises(SinkError, match="no column 'position'"):
        wrote(tmp_path / "b", 0, 2)
    wrote(tmp_path / "b", 0, 2, merge_schema=True)
    assert sorted(map(str, deltalake.DeltaTable(str(tmp_path / "b")).partitions())) == [
        "{'day': 'a'}", "{'day': 'b'}", "{'day': 'x'}",
    ]  # fmt: skip
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError):
        wrote(tmp_path / "file" / "c", 0, 2)
    with pytest.raises(SinkError, match="no folder stands for ''"):
        wrote(tmp_path / "d", 0, 1, lambda n: {"day": ""}, partition_by="day")
    with pytest.raises(SettingsError, match="part_items"):
        sinks.delta(tmp_path, part_items=0)


def test_a_run_writes_and_another_reads(tmp_path: Path) -> None:
    graph = drift.Graph("echo")
    graph.source("rows").sink("out")
    rows = [row_at(n) for n in range(20)]
    for _ in range(2):
        drift.run(graph, {"rows": rows}, sinks={"out": sinks.delta(tmp_path, part_items=7)}, batch_items=3).finish()
        assert rows_in(tmp_path) == expected(20)
    source = sources.delta(tmp_path, columns=["n", "day"])
    assert [item.payload for item in drift.run(graph, {"rows": source})] == rows


def drained(source: Any, position: Any = None, most: int = 10**9) -> list[Any]:
    reader = source.open()
    found: list[Any] = []
    try:
        if position is not None:
            reader.seek(position)
        while len(found) < most and (some := reader.read(min(7, most - len(found)))) is not None:
            found += some
            if not some and source.live:
                assert select.select(reader.filenos(), (), (), HANG_S)[0]
        drained.position = reader.position()  # type: ignore[attr-defined]
        return found
    finally:
        reader.close()


def test_a_reader_goes_on_from_any_row_and_with_later_versions(tmp_path: Path) -> None:
    for start in range(0, 12, 3):
        wrote(tmp_path, 0, start + 3, partition_by="day")
    numbers = [row["n"] for row in drained(sources.delta(tmp_path))]
    assert sorted(numbers) == list(range(12)) and sorted(numbers[:3]) == [0, 1, 2], "in the order of versions"
    found = [(drained(sources.delta(tmp_path), most=most), drained.position) for most in range(13)]  # type: ignore[attr-defined]
    wrote(tmp_path, 0, 14, partition_by="day")
    deltalake.DeltaTable(str(tmp_path)).optimize.compact()
    wrote(tmp_path, 0, 15, partition_by="day")
    for rows, position in found:
        rest = drained(sources.delta(tmp_path), position)
        assert [row["n"] for row in rows + rest][:12] == numbers
        assert sorted(row["n"] for row in rest[12 - len(rows) :]) == [12, 13, 14]
    assert [row["n"] for row in drained(sources.delta(tmp_path, version=3))] == numbers
    read = drained(sources.delta(tmp_path)), drained.position  # type: ignore[attr-defined]
    table = deltalake.DeltaTable(str(tmp_path))
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    wrote(tmp_path, 0, 16, partition_by="day")
    assert [row["n"] for row in drained(sources.delta(tmp_path), read[1])] == [15], "no file that was read is needed"
    deltalake.DeltaTable(str(tmp_path)).delete("n = 2")
    with pytest.raises(InputError, match=r"\(DELETE\) takes rows away that were read"):
        drained(sources.delta(tmp_path), read[1])


def test_versions_that_appear_are_followed(tmp_path: Path) -> None:
    sink = opened(sinks.delta(tmp_path, part_items=2))
    write(sink, 0, 2)
    reader: Any = sources.delta(tmp_path, follow=True, payload="value", columns=["n"]).open()
    found: list[Any] = []
    try:
        for n in range(2, 8, 2):
            while len(found) < n:
                found += reader.read(7)
            write(sink, n, n + 2)
        while len(found) < 8:
            found += reader.read(7)
        position = reader.position()
    finally:
        reader.close()
    assert found == list(range(8))
    write(sink, 8, 10)
    assert drained(sources.delta(tmp_path, follow=True, payload="value", columns=["n"]), position, 2) == [8, 9]


def test_tables_that_cannot_be_read_say_so(tmp_path: Path) -> None:
    wrote(tmp_path / "a", 0, 9)
    wrote(tmp_path / "b", 0, 9)
    with pytest.raises(InputError, match="cannot be read as a Delta table"):
        sources.delta(tmp_path / "none").open()
    with pytest.raises(InputError, match=r"version 7 of .* cannot be read"):
        sources.delta(tmp_path / "a", version=7).open()
    with pytest.raises(InputError, match="has no column 'x'"):
        drained(sources.delta(tmp_path / "a", columns=["x"]))
    with pytest.raises(SettingsError, match="'dict', 'tuple'"):
        sources.delta(tmp_path / "a", payload="rows")  # type: ignore[arg-type]
    drained(sources.delta(tmp_path / "a"), most=5)
    position = drained.position  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="it is another table"):
        drained(sources.delta(tmp_path / "b"), position)
    (file,) = (tmp_path / "a").glob("*.parquet")
    file.unlink()
    with pytest.raises(InputError, match="if it was removed by VACUUM"):
        drained(sources.delta(tmp_path / "a"), position)
    rows = drained(sources.delta(tmp_path / "b", type=Row, columns=["n", "day"]))
    assert rows == [Row(**row_at(n)) for n in range(9)]
