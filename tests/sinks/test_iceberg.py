"""Tables of Iceberg: what they have of their own."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lakes import Iceberg, drained, expected, opened, rows_in, write, wrote

from drift import InputError, SettingsError, SinkError, sinks, sources
from drift.sinks.iceberg import IcebergSink

pyiceberg = pytest.importorskip("pyiceberg")


@pytest.fixture
def lake(tmp_path: Path) -> Iceberg:
    return Iceberg(tmp_path)


def test_of_two_runs_that_commit_at_once_one_is_refused(lake: Iceberg, monkeypatch: pytest.MonkeyPatch) -> None:
    one = opened(lake.sink(part_items=2))
    write(one, 0, 4)
    commit = IcebergSink._commit

    def committed(self: Any, *arguments: Any) -> None:
        if self is third:  # in between
            monkeypatch.undo()
            write(one, 4, 6)
        commit(self, *arguments)

    third = opened(lake.sink(part_items=2))
    monkeypatch.setattr(IcebergSink, "_commit", committed)
    with pytest.raises(SinkError, match=r"another run writes to .* which now ends at position 5"):
        write(third, 4, 6)
    assert rows_in(lake) == expected(6)


def test_rows_of_others_change_nothing_and_a_commit_of_theirs_in_between_is_waited_for(
    lake: Iceberg, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = opened(lake.sink(part_items=2))
    write(sink, 0, 2)
    commit = IcebergSink._commit

    def committed(self: Any, *arguments: Any) -> None:
        monkeypatch.undo()
        lake.table().append(pa.table({"n": [70], "day": ["x"]}))
        commit(self, *arguments)

    monkeypatch.setattr(IcebergSink, "_commit", committed)
    write(sink, 2, 5)
    state = sink.commit()
    sink.close()
    assert rows_in(lake) == expected(5) and lake.table().scan().to_arrow().num_rows == 6
    again = opened(lake.sink(), (5, state))
    assert again.committed_position() == 4
    assert "has its 5 rows as of the checkpoint" in again.compare(state)
    lake.table().delete("n = 3")
    with pytest.raises(SinkError, match="had 5 rows as of the checkpoint, and now it has 4"):
        again.compare(state)


def test_expired_snapshots_leave_the_position_if_its_row_is_there(lake: Iceberg) -> None:
    sink = opened(lake.sink(part_items=2))
    for start in (0, 2, 4):
        write(sink, start, start + 2)
    state = sink.commit()
    table = lake.table()
    first, second, third = [each.snapshot_id for each in table.snapshots()]
    table.append(pa.table({"n": [70], "day": ["x"]}))
    table.maintenance.expire_snapshots().by_ids([first, second, third]).commit()
    assert opened(lake.sink(), (6, state)).committed_position() == 5
    wrote(lake, 0, 8)
    assert rows_in(lake) == expected(8)
    table = lake.table()
    table.delete("position > 1")
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in table.snapshots()[:-1]]).commit()
    with pytest.raises(SinkError, match="no snapshot says up to which they were written"):
        opened(lake.sink(), (6, state))


def test_an_older_table_is_noticed(lake: Iceberg) -> None:
    sink = opened(lake.sink(part_items=2))
    write(sink, 0, 2)
    write(sink, 2, 4)
    state = sink.commit()
    table = lake.table()
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()
    lake.table().append(pa.table({"n": [70], "day": ["x"]}))
    with pytest.raises(SinkError, match=r"had the items up to position 3, and now it ends at position 1"):
        write(sink, 4, 6)
    with pytest.raises(SinkError, match=r"had the items up to position 3 .* now it ends at position 1"):
        opened(lake.sink(), (4, state))
    wrote(lake, 0, 4)
    assert rows_in(lake) == expected(4)


def test_tables_that_cannot_be_written_are_refused(lake: Iceberg) -> None:
    wrote(lake, 0, 2, partition_by="day")
    assert lake.table().inspect.partitions().num_rows == 2
    with pytest.raises(SinkError, match=r"is partitioned by \['day'\], and partition_by is \['n'\]"):
        lake.sink(partition_by="n").open()
    lake.table().overwrite(pa.table({"position": [1], "day": ["a"]}))
    table = lake.table()
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in table.snapshots()[:-1]]).commit()
    with lake.table().transaction() as transaction:
        transaction.remove_properties("drift.position", "drift.meta")
    with pytest.raises(SinkError, match="has rows with positions, and no snapshot says up to which"):
        lake.sink().open()
    with pytest.raises(SettingsError, match="a table has a namespace and a name"):
        sinks.iceberg("rows")


@pytest.mark.parametrize("kind, is_kept", [(pa.float64(), False), (pa.float32(), True), (pa.decimal128(9, 1), True)])
def test_every_row_is_found_by_what_a_table_is_partitioned_by(lake: Iceberg, kind: pa.DataType, is_kept: bool) -> None:
    """PyIceberg reads the doubles of its manifests with 32 bits, and passes over the files with others."""
    values = pa.array([-0.1, 0.1, 0.5]).cast(kind).to_pylist()
    write_all = partial(wrote, lake, 0, 3, lambda n: {"x": values[n]}, columns={"x": kind})
    if is_kept:
        write_all(partition_by="x")
        for value in values:
            assert lake.table().scan(f"x = {value}").to_arrow()["x"].to_pylist() == [value]
        return
    with pytest.raises(SinkError, match="partition_by has 'x', which is double"):
        write_all(partition_by="x")
    write_all()
    with lake.table().update_spec() as spec:  # by others
        spec.add_identity("x")
    with pytest.raises(SinkError, match="partition_by has 'x', which is double"):
        wrote(lake, 3, 6, lambda n: {"x": 0.5})


@pytest.mark.parametrize("value", [-0.0, math.nan])
def test_floats_that_pyiceberg_puts_into_two_partitions_or_into_none_are_refused(lake: Iceberg, value: float) -> None:
    """It takes the partitions by a group, which has two zeros and NaN, and their rows by ==."""
    values = [0.0, value, 0.5, None]
    write_all = partial(wrote, lake, row=lambda n: {"x": values[n]}, columns={"x": pa.float32()}, partition_by="x")
    with pytest.raises(SinkError, match=f"partition_by has 'x', which is {value}: PyIceberg"):
        write_all(0, 4)
    write_all(0, 1)
    with pytest.raises(SinkError, match=f"partition_by has 'x', which is {value}: PyIceberg"):
        write_all(1, 4)
    values[1] = -0.5
    write_all(1, 4)
    assert sorted(lake.table().scan().to_arrow()["position"].to_pylist()) == [0, 1, 2, 3]


def test_what_is_no_longer_in_the_history_of_a_table_is_refused(lake: Iceberg) -> None:
    for end in (3, 6, 9):
        wrote(lake, 0, end)
    first, second, _ = (each.snapshot_id for each in lake.table().metadata.snapshots)
    _, position = drained(lake.source(), most=7)
    of_none = {**position, "first": 0, "version": 0, "file": "", "row": 0}
    _, of_first = drained(lake.source(snapshot=first))
    assert len(drained(lake.source(), of_first)[0]) == 6
    table = lake.table()
    table.maintenance.expire_snapshots().by_id(second).commit()
    with pytest.raises(InputError, match="not in its history any more"):
        drained(lake.source(), of_first)
    assert len(drained(lake.source(), position)[0]) == 2
    assert [row["n"] for row in drained(lake.source(), of_none)[0]] == list(range(9)), "also of what has expired"
    table = lake.table()
    table.manage_snapshots().set_current_snapshot(snapshot_id=first).commit()
    with pytest.raises(InputError, match="it was rolled back"):
        drained(lake.source(), position)
    with pytest.raises(InputError, match=r"snapshot 5 of days\.rows cannot be read"):
        lake.source(snapshot=5).open()
    for name in ("days.none", "none.rows"):
        with pytest.raises(InputError, match=f"{name} cannot be read as a table of Iceberg"):
            sources.iceberg(name, catalog=lake.catalog).open()
    with pytest.raises(SettingsError, match="has a namespace and a name"):
        sources.iceberg("rows")
    with pytest.raises(InputError, match="has no column 'x'"):
        drained(lake.source(columns=["x"]))
