"""Tables of Iceberg: rows and position are one snapshot, whatever others do with the table."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dying import Death, Taken, dying, write_steps
from hypothesis import given, settings
from hypothesis import strategies as st
from test_delta import drained, expected, meta_at, opened, row_at, write

import drift
from drift import InputError, SettingsError, SinkError, sinks, sources
from drift.sinks.iceberg import IcebergSink
from drift_graph.metas import Metas

pyiceberg = pytest.importorskip("pyiceberg")

NAME = "days.rows"


def catalog_in(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}


def sink_in(folder: Path, **more: Any) -> IcebergSink:
    return sinks.iceberg(NAME, catalog=catalog_in(folder), **more)


def table_in(folder: Path) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("default", **catalog_in(folder)).load_table(NAME)


def rows_in(folder: Path) -> list[tuple[int, str]]:
    rows = table_in(folder).scan(selected_fields=("position", "day")).to_arrow().to_pylist()
    return sorted((row["position"], row["day"]) for row in rows if row["position"] is not None)


def wrote(folder: Path, start: int, end: int, row: Callable[[int], Any] = row_at, **more: Any) -> None:
    sink = opened(sink_in(folder, **more))
    write(sink, start, end, row)
    sink.close()


@given(
    deaths=st.lists(st.integers(0, 7), max_size=2),
    steps=st.lists(st.integers(1, 6) | st.none(), min_size=1, max_size=6),
    by=st.sampled_from([None, "day"]),
    part_items=st.integers(2, 9),
)
@settings(deadline=None, max_examples=10)
def test_a_death_before_or_after_a_snapshot_loses_nothing_and_doubles_nothing(
    deaths: list[int], steps: list[int | None], by: str | None, part_items: int
) -> None:
    """Steps are batches, by their numbers of items, or checkpoints."""
    end = sum(step or 0 for step in steps)
    taken: Taken = []
    left = [-1]

    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        patch.setattr(IcebergSink, "_commit", dying(IcebergSink._commit, left))

        def run() -> None:
            sink = opened(sink_in(folder, part_items=part_items, partition_by=by), taken[-1] if taken else None)
            write_steps(sink, write, steps, taken)
            sink.close()

        for calls in deaths:
            left[0] = calls
            try:
                run()
            except Death:
                pass
            left[0] = -1
            if end and opened(sink_in(folder)).committed_position() is not None:
                found = rows_in(folder)
                assert found == expected(len(found)) and (not taken or len(found) >= taken[-1][0])
        run()
        assert (rows_in(folder) if end else []) == expected(end)
        if taken:
            assert "by their positions" in sink_in(folder).compare(taken[-1][1])


def test_of_two_runs_at_once_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrote(tmp_path, 0, 2)
    one, other = opened(sink_in(tmp_path, part_items=2)), opened(sink_in(tmp_path, part_items=2))
    write(one, 2, 4)
    with pytest.raises(SinkError, match=r"another run writes to .* which now ends at position 3"):
        write(other, 2, 4)
    commit = IcebergSink._commit

    def committed(self: Any, *arguments: Any) -> None:
        if self is third:  # in between
            monkeypatch.undo()
            write(one, 4, 6)
        commit(self, *arguments)

    third = opened(sink_in(tmp_path, part_items=2))
    monkeypatch.setattr(IcebergSink, "_commit", committed)
    with pytest.raises(SinkError, match=r"another run writes to .* which now ends at position 5"):
        write(third, 4, 6)
    assert rows_in(tmp_path) == expected(6)


def test_rows_of_others_change_nothing_and_a_commit_of_theirs_in_between_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = opened(sink_in(tmp_path, part_items=2))
    write(sink, 0, 2)
    commit = IcebergSink._commit

    def committed(self: Any, *arguments: Any) -> None:
        monkeypatch.undo()
        table_in(tmp_path).append(pa.table({"n": [70], "day": ["x"]}))
        commit(self, *arguments)

    monkeypatch.setattr(IcebergSink, "_commit", committed)
    write(sink, 2, 5)
    state = sink.commit()
    sink.close()
    assert rows_in(tmp_path) == expected(5) and table_in(tmp_path).scan().to_arrow().num_rows == 6
    again = opened(sink_in(tmp_path), (5, state))
    assert again.committed_position() == 4
    assert "has its 5 rows as of the checkpoint" in again.compare(state)
    table_in(tmp_path).delete("n = 3")
    with pytest.raises(SinkError, match="had 5 rows as of the checkpoint, and now it has 4"):
        again.compare(state)


def test_expired_snapshots_leave_the_position_if_its_row_is_there(tmp_path: Path) -> None:
    sink = opened(sink_in(tmp_path, part_items=2))
    for start in (0, 2, 4):
        write(sink, start, start + 2)
    state = sink.commit()
    table = table_in(tmp_path)
    first, second, third = [each.snapshot_id for each in table.snapshots()]
    table.append(pa.table({"n": [70], "day": ["x"]}))
    table.maintenance.expire_snapshots().by_ids([first, second, third]).commit()
    assert opened(sink_in(tmp_path), (6, state)).committed_position() == 5
    wrote(tmp_path, 0, 8)
    assert rows_in(tmp_path) == expected(8)
    table = table_in(tmp_path)
    table.delete("position > 1")
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in table.snapshots()[:-1]]).commit()
    with pytest.raises(SinkError, match="no snapshot says up to which they were written"):
        opened(sink_in(tmp_path), (6, state))


def test_an_older_table_is_noticed(tmp_path: Path) -> None:
    sink = opened(sink_in(tmp_path, part_items=2))
    write(sink, 0, 2)
    write(sink, 2, 4)
    state = sink.commit()
    table = table_in(tmp_path)
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()
    table_in(tmp_path).append(pa.table({"n": [70], "day": ["x"]}))
    with pytest.raises(SinkError, match=r"had the items up to position 3, and now it ends at position 1"):
        write(sink, 4, 6)
    with pytest.raises(SinkError, match=r"had the items up to position 3 .* now it ends at position 1"):
        opened(sink_in(tmp_path), (4, state))
    wrote(tmp_path, 0, 4)
    assert rows_in(tmp_path) == expected(4)


def test_another_output_is_refused_and_replaced_on_request(tmp_path: Path) -> None:
    wrote(tmp_path, 0, 4)
    other = opened(sink_in(tmp_path))
    with pytest.raises(SinkError, match="has an item at position 3 that this run does not give"):
        other.write(range(5), Metas([meta_at(n + 1) for n in range(5)]), [row_at(n) for n in range(5)])
    with pytest.raises(SinkError, match="has items already"):
        sink_in(tmp_path, resume="error").open()
    wrote(tmp_path, 0, 2, lambda n: {"n": n, "day": "z"}, resume="replace")
    assert rows_in(tmp_path) == [(0, "z"), (1, "z")]
    empty = opened(sink_in(tmp_path, resume="replace"))
    empty.complete()
    empty.close()
    assert rows_in(tmp_path) == [] and opened(sink_in(tmp_path)).committed_position() is None


def test_a_table_that_somebody_emptied_is_replaced(tmp_path: Path) -> None:
    wrote(tmp_path, 0, 4)
    table_in(tmp_path).delete("position >= 0")
    with pytest.raises(SinkError, match="up to position 3, and that one is gone"):
        sink_in(tmp_path).open()
    opened(sink_in(tmp_path, resume="replace")).close()
    assert opened(sink_in(tmp_path)).committed_position() is None
    wrote(tmp_path, 0, 2, resume="replace")
    assert rows_in(tmp_path) == expected(2)


@pytest.mark.parametrize(
    ("then", "now", "says"),
    [
        ({"x": 1}, {"x": "1"}, "has 'x' as int64, and the payloads as string"),
        ({"x": "a"}, {"x": b"a"}, "and the payloads as binary"),
        ({"x": 1}, {"x": 1, "y": 2}, "the table has no column 'y'; it has 'position', 'time', 'x'; .*merge_schema"),
    ],
)
def test_rows_that_the_table_has_no_types_for_are_refused(tmp_path: Path, then: Any, now: Any, says: str) -> None:
    wrote(tmp_path, 0, 1, lambda n: then)
    sink = opened(sink_in(tmp_path, part_items=1))
    sink.write([0], Metas([meta_at(0)]), [then])
    with pytest.raises(SinkError, match=f"positions 1 to 1: .*{says}.*up to 0 are safe"):
        write(sink, 1, 2, lambda n: now)
    sink.close()
    wrote(tmp_path, 0, 2, lambda n: {"x": then["x"], "y": 2}, merge_schema=True)
    assert table_in(tmp_path).scan().to_arrow().sort_by("position").select(["x", "y"]).to_pylist() == [
        {"x": then["x"], "y": None},
        {"x": then["x"], "y": 2},
    ]


def test_tables_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    wrote(tmp_path, 0, 2, partition_by="day")
    assert table_in(tmp_path).inspect.partitions().num_rows == 2
    with pytest.raises(SinkError, match=r"is partitioned by \['day'\], and partition_by is \['n'\]"):
        sink_in(tmp_path, partition_by="n").open()
    table_in(tmp_path).overwrite(pa.table({"position": [1], "day": ["a"]}))
    table = table_in(tmp_path)
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in table.snapshots()[:-1]]).commit()
    with table_in(tmp_path).transaction() as transaction:
        transaction.remove_properties("drift.position", "drift.meta")
    with pytest.raises(SinkError, match="has rows with positions, and no snapshot says up to which"):
        sink_in(tmp_path).open()
    with pytest.raises(SettingsError, match="a table has a namespace and a name"):
        sinks.iceberg("rows")


def test_a_run_writes_each_item_once(tmp_path: Path) -> None:
    graph = drift.Graph("echo")
    graph.source("rows").sink("out")
    rows = [row_at(n) for n in range(20)]
    for _ in range(2):
        drift.run(graph, {"rows": rows}, sinks={"out": sink_in(tmp_path, part_items=7)}, batch_items=3).finish()
        assert rows_in(tmp_path) == expected(20)


def source_in(folder: Path, **more: Any) -> Any:
    return sources.iceberg(NAME, catalog=catalog_in(folder), **more)


def rewritten(folder: Path) -> None:
    """The files of the table are compacted, as by another engine: rows are where they were not, and none is another."""
    import pyiceberg.table.update.snapshot as updates
    from pyiceberg.io.pyarrow import _dataframe_to_data_files
    from pyiceberg.table.snapshots import Operation, Summary
    from pyiceberg.table.update.snapshot import _OverwriteFiles

    counted = updates.update_snapshot_summaries

    def summaries(summary: Any, **before: Any) -> Any:  # PyIceberg has none for such a snapshot
        made = counted(Summary(Operation.OVERWRITE, **summary.additional_properties), **before)
        return Summary(summary.operation, **made.additional_properties)

    table = table_in(folder)
    rows = table.scan().to_arrow()
    with pytest.MonkeyPatch.context() as patch, table.transaction() as transaction:
        patch.setattr(updates, "update_snapshot_summaries", summaries)
        update = _OverwriteFiles(operation=Operation.REPLACE, transaction=transaction, io=table.io)
        with update as overwrite:
            for task in table.scan().plan_files():
                overwrite.delete_data_file(task.file)
            for file in _dataframe_to_data_files(table_metadata=table.metadata, df=rows, io=table.io):
                overwrite.append_data_file(file)


def test_a_reader_goes_on_from_any_row_and_with_later_snapshots(tmp_path: Path) -> None:
    for start in range(0, 12, 3):
        wrote(tmp_path, 0, start + 3, partition_by="day")
    numbers = [row["n"] for row in drained(source_in(tmp_path))]
    assert sorted(numbers) == list(range(12)) and sorted(numbers[:3]) == [0, 1, 2], "in the order of snapshots"
    found = [(drained(source_in(tmp_path), most=most), drained.position) for most in range(13)]  # type: ignore[attr-defined]
    then = table_in(tmp_path).current_snapshot().snapshot_id
    wrote(tmp_path, 0, 14, partition_by="day")
    rewritten(tmp_path)
    wrote(tmp_path, 0, 15, partition_by="day")
    for rows, position in found:
        rest = drained(source_in(tmp_path), position)
        assert [row["n"] for row in rows + rest][:12] == numbers
        assert sorted(row["n"] for row in rest[12 - len(rows) :]) == [12, 13, 14]
    assert [row["n"] for row in drained(source_in(tmp_path, snapshot=then))] == numbers
    assert sorted(drained(source_in(tmp_path, columns=["day", "n"], payload="tuple"))) == sorted(
        (row_at(n)["day"], n) for n in range(15)
    )
    drained(source_in(tmp_path))
    position = drained.position  # type: ignore[attr-defined]
    table_in(tmp_path).delete("n = 2")
    with pytest.raises(InputError, match=r"\((delete|overwrite)\) takes rows away that were read"):
        drained(source_in(tmp_path), position)


def test_snapshots_that_appear_are_followed(tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("default", **catalog_in(tmp_path))
    catalog.create_namespace("days")
    sink = opened(sink_in(tmp_path, part_items=2))
    names = ("position", "time", "n")
    sink._table = catalog.create_table(NAME, pa.schema([(name, pa.int64()) for name in names]))
    reader: Any = source_in(tmp_path, follow=True, payload="value", columns=["n"]).open()
    found: list[Any] = []
    try:
        for n in range(0, 8, 2):
            write(sink, n, n + 2, lambda n: {"n": n})
            while len(found) < n + 2:
                found += reader.read(7)
        position = reader.position()
    finally:
        reader.close()
    assert found == list(range(8))
    write(sink, 8, 10, lambda n: {"n": n})
    assert drained(source_in(tmp_path, follow=True, payload="value", columns=["n"]), position, 2) == [8, 9]


def test_a_run_writes_and_another_reads(tmp_path: Path) -> None:
    graph = drift.Graph("echo")
    graph.source("rows").sink("out")
    rows = [row_at(n) for n in range(20)]
    drift.run(graph, {"rows": rows}, sinks={"out": sink_in(tmp_path, part_items=7)}, batch_items=3).finish()
    source = source_in(tmp_path, columns=["n", "day"])
    assert [item.payload for item in drift.run(graph, {"rows": source})] == rows


def test_what_is_no_longer_in_the_history_of_a_table_is_refused(tmp_path: Path) -> None:
    for end in (3, 6, 9):
        wrote(tmp_path, 0, end)
    first, second, _ = (each.snapshot_id for each in table_in(tmp_path).metadata.snapshots)
    drained(source_in(tmp_path), most=7)
    position = drained.position  # type: ignore[attr-defined]
    of_none = {**position, "first": 0, "version": 0, "file": "", "row": 0}
    drained(source_in(tmp_path, snapshot=first))
    of_first = drained.position  # type: ignore[attr-defined]
    assert len(drained(source_in(tmp_path), of_first)) == 6
    table = table_in(tmp_path)
    table.maintenance.expire_snapshots().by_id(second).commit()
    with pytest.raises(InputError, match="not in its history any more"):
        drained(source_in(tmp_path), of_first)
    assert len(drained(source_in(tmp_path), position)) == 2
    assert [row["n"] for row in drained(source_in(tmp_path), of_none)] == list(range(9)), "also of what has expired"
    table = table_in(tmp_path)
    table.manage_snapshots().set_current_snapshot(snapshot_id=first).commit()
    with pytest.raises(InputError, match="it was rolled back"):
        drained(source_in(tmp_path), position)
    with pytest.raises(InputError, match=r"snapshot 5 of days\.rows cannot be read"):
        source_in(tmp_path, snapshot=5).open()
    for name in ("days.none", "none.rows"):
        with pytest.raises(InputError, match=f"{name} cannot be read as a table of Iceberg"):
            sources.iceberg(name, catalog=catalog_in(tmp_path)).open()
    with pytest.raises(SettingsError, match="has a namespace and a name"):
        sources.iceberg("rows")
    with pytest.raises(InputError, match="has no column 'x'"):
        drained(source_in(tmp_path, columns=["x"]))
