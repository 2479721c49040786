"""A column that somebody changed by itself, with every hash made anew, is named where another column says the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_records_hostile import edit, replaced, trips

import drift
from drift.auditing.intact import check_intact
from drift.records.agreement import InputRows, OutputRows
from drift.records.format import RecordError
from drift.records.metas import GLOBAL_TIME, bins_of, wrong_rank
from drift_graph.meta import global_time, pack_time

Rows = list[Any]

#: What is changed in which column of which table, the kind of trouble, and what is said of it.
FORGED: dict[str, tuple[str, str, Callable[[Rows], Rows], str, str]] = {
    "a position": ("output", "position", lambda rows: [0, 2, 1, 3, 4], "column changed", "position 1 says position 2"),
    "a sink": ("output", "sink", lambda rows: [*rows[1:], "x"], "column changed", "a sink is named 'x'"),
    "an output's time": ("output", "time", lambda rows: [*rows[:3], 71, 80], "meta changed", "meta at position 3"),
    "an output's tie": ("output", "tie", lambda rows: [rows[1], *rows[1:]], "meta changed", "meta at position 0"),
    "an input's batch": ("input", "batch", lambda rows: [0, 0, 0, 1, 1], "column changed", "input row 3 says batch 1"),
    "an input's source": ("input", "source", lambda rows: [*rows[1:], "x"], "column changed", "is named 'x'"),
    "an input's time": ("input", "time", lambda rows: [11, *rows[1:]], "meta changed", "meta at input row 0"),
    "a batch's number": ("arrivals", "batch", lambda rows: [7, *rows[1:]], "column changed", "batch 0 says batch 7"),
    "a batch's source": ("arrivals", "source", lambda rows: ["x", *rows[1:]], "column changed", "source is named 'x'"),
    "a batch's items": ("arrivals", "items", lambda rows: [3, *rows[1:]], "column changed", "the arrivals have 4"),
    "a batch's late items": ("arrivals", "late", lambda rows: [0, *rows[1:]], "column changed", "and 0 late ones"),
    "a heartbeat that is too high": (
        "arrivals",
        "heartbeat",
        lambda rows: [pack_time(90), *[rows[-1]] * (len(rows) - 1)],
        "not of a run",
        "below its source's heartbeat, 90",
    ),
    "a heartbeat that is too high within a time": (
        "arrivals",
        "heartbeat",
        lambda rows: [pack_time(80) + b"\1", *[rows[-1]] * (len(rows) - 1)],
        "not of a run",
        "row 4 has time 80, below its source's heartbeat, 80",
    ),
    "a heartbeat that ends no source": (
        "arrivals",
        "heartbeat",
        lambda rows: [rows[0]] * len(rows),
        "not of a run",
        "says that the run finished, and source 'trips' has no heartbeat at its end",
    ),
    "counts that are right only modulo 2**64": (
        "arrivals",
        "items",
        lambda rows: [2**62 + rows[0], 2**62 + rows[1], *rows[2:]],
        "column changed",
        "the arrivals have 9,223,372,036,854,775,813 items",
    ),
    "a heartbeat that goes back": (
        "arrivals",
        "heartbeat",
        lambda rows: [rows[-1], *[global_time(1, 0, 0, 0)] * (len(rows) - 1)],
        "not of a run",
        "is below the one before",
    ),
    "a late item's batch": ("late", "batch", lambda rows: [1], "column changed", "late item 0 says batch 1"),
    "a late item's source": ("late", "source", lambda rows: ["x"], "column changed", "late item 0 says another source"),
    "a late item's time": ("late", "time", lambda rows: [60], "column changed", "has time 60, which is not below"),
    "a late item's heartbeat": ("late", "heartbeat", lambda rows: [30], "column changed", "the heartbeat, 30"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("records") / "whole"
    arrived = [(10, "JFK"), (30, "LGA"), (20, "JFK"), (70, "JFK"), (35, "JFK"), (80, "LGA")]
    drift.run(trips(), {"trips": arrived}, record=path, batch_items=5).finish()
    return path


def test_what_is_as_it_was_written_is_seen_so_by_the_first_check(whole: Path) -> None:
    found = [check.found for check in check_intact(whole) if "items" in check.what and "late" not in check.what]
    assert len(found) == 2 and all(text.startswith("as written; digest ") for text in found)


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_column_is_named(what: str, whole: Path, tmp_path: Path) -> None:
    table, column, change, kind, says = FORGED[what]
    record = Path(shutil.copytree(whole, tmp_path / "record"))
    rows = pq.read_table(record / table / "part-00000.parquet").column(column)
    replaced(record, table, column, pa.array(change(rows.to_pylist()), rows.type))
    troubles = [trouble for check in check_intact(record) for trouble in check.troubles]
    assert [trouble.kind for trouble in troubles] == [kind] * len(troubles)
    assert says in troubles[0].text


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("arrivals", "at_ns"),
        ("arrivals", "numbered"),
        ("late", "reason"),
        ("late", "payload"),
        ("blocks", "meta_checks"),
    ],
)
def test_a_value_that_is_missing_is_reported_also_where_nothing_else_says_it(
    table: str, column: str, whole: Path, tmp_path: Path
) -> None:
    record = Path(shutil.copytree(whole, tmp_path / "record"))
    rows = pq.read_table(record / table / "part-00000.parquet").column(column)
    replaced(record, table, column, pa.array([None, *rows.to_pylist()[1:]], rows.type))
    texts = [trouble.text for check in check_intact(record) for trouble in check.troubles]
    assert any(f"its column {column} may lack values" in text for text in texts)


@pytest.mark.parametrize(
    ("column", "values", "says"),
    [
        ("block", [0, 1], "block 1 of output, of 5 items, comes after none"),
        ("table", ["input", "outputs"], "it has blocks of 'outputs'"),
        ("meta_checks", [bytes(5), bytes(4)], "block 0 of output has 5 items, and not as many checks"),
        ("payload_checks", [bytes(10), bytes(11)], "block 0 of output has 5 items, and not as many checks"),
    ],
)
def test_blocks_that_no_writer_writes_are_reported(
    column: str, values: list[Any], says: str, whole: Path, tmp_path: Path
) -> None:
    record = Path(shutil.copytree(whole, tmp_path / "record"))
    kind = pq.read_table(record / "blocks" / "part-00000.parquet").schema.field(column).type
    replaced(record, "blocks", column, pa.array(values, kind))
    texts = [trouble.text for check in check_intact(record) for trouble in check.troubles]
    assert any(says in text for text in texts), texts


@pytest.mark.parametrize("table", ["arrivals", "late", "blocks"])
def test_a_file_with_another_number_of_rows_than_the_manifest_says_is_reported(
    table: str, whole: Path, tmp_path: Path
) -> None:
    record = Path(shutil.copytree(whole, tmp_path / "record"))

    def one_more(manifest: dict[str, Any]) -> None:
        for file in manifest["files"]:
            file["rows"] += file["table"] == table

    edit(record, one_more)
    rows = pq.read_metadata(record / table / "part-00000.parquet").num_rows
    texts = [trouble.text for check in check_intact(record) for trouble in check.troubles]
    assert any(f"{table}/part-00000.parquet (rows 0 to {rows}) has {rows} rows" in text for text in texts), texts


def test_a_source_that_never_ends_is_no_finished_run(whole: Path, tmp_path: Path) -> None:
    record = Path(shutil.copytree(whole, tmp_path / "record"))
    rows = pq.read_table(record / "arrivals" / "part-00000.parquet").column("heartbeat")
    replaced(record, "arrivals", "heartbeat", pa.array([rows[0].as_py()] * len(rows), pa.binary()))
    for engine in ("local", "reference"):
        with pytest.raises(RecordError, match="source 'trips' has no heartbeat at its end"):
            drift.replay(record, trips(), engine=engine).finish()


def test_a_tie_that_is_of_another_source_than_the_row(whole: Path) -> None:
    rows = pq.read_table(whole / "input" / "part-00000.parquet")
    ties = rows.column("tie").to_pylist()
    for at in (None, 3):
        forged = [b"\1" + tie[1:] if row == at else tie for row, tie in enumerate(ties)]
        changed = rows.set_column(rows.schema.get_field_index("tie"), "tie", pa.array(forged, pa.binary()))
        agreement = InputRows(whole, drift.Record(whole).manifest)
        wrongs = list(agreement.wrongs(changed, bins_of(changed, GLOBAL_TIME), 0))
        assert [(wrong.column, wrong.row) for wrong in wrongs] == ([] if at is None else [("tie", at)])


def test_ties_of_a_source_whose_rank_takes_several_bytes() -> None:
    ties = [global_time(1, rank, 0, 0)[8:] for rank in (0, 300, 300, 5)]
    for column in (pa.array(ties, pa.binary()), pa.array(ties, pa.binary()).dictionary_encode()):
        rows = pa.table({"tie": column})
        assert wrong_rank(rows, np.array([0, 300, 300, 5], np.int32)) is None
        assert wrong_rank(rows, np.array([0, 300, 5, 5], np.int32)) == 2
        assert wrong_rank(rows.slice(3), np.array([300], np.int32)) == 0


def test_a_tie_that_does_not_end_where_the_path_begins_is_named(whole: Path, tmp_path: Path) -> None:
    record = Path(shutil.copytree(whole, tmp_path / "record"))
    rows = pq.read_table(record / "output" / "part-00000.parquet")
    ties, paths = rows.column("tie").to_pylist(), rows.column("path").to_pylist()
    moved = [tie + path[:1] for tie, path in zip(ties, paths)], [path[1:] for path in paths]
    for name, column in zip(("tie", "path"), moved):
        replaced(record, "output", name, pa.array(column, pa.binary()))
    troubles = [trouble for check in check_intact(record) for trouble in check.troubles]
    assert [(trouble.kind, trouble.text[:29]) for trouble in troubles] == [
        ("column changed", "the tie at position 0 is none")
    ]


def test_metas_increase_from_one_batch_to_the_next(whole: Path) -> None:
    rows = pq.read_table(whole / "output" / "part-00000.parquet")
    for start, columns in ((2, []), (1, ["position", "order"])):
        agreement = OutputRows(drift.Record(whole).manifest)
        wrongs = [list(agreement.wrongs(piece, bins_of(piece), 2 * at)) for at, piece in enumerate(
            (rows.slice(0, 2), rows.slice(start))
        )]  # fmt: skip
        assert [[wrong.column for wrong in piece] for piece in wrongs] == [[], columns]


@pytest.mark.parametrize("lengths", [(240, 241, 242), (243, 244, 245), (500, 501, 502)])  # of 0xC4 and 0xC5, and both
def test_metas_of_any_length_increase(lengths: tuple[int, ...], whole: Path) -> None:
    manifest = drift.Record(whole).manifest
    for order, columns in (((0, 1, 2), []), ((0, 2, 1), ["order"])):
        paths = [b"\x01" * lengths[at] for at in order]
        metas = [global_time(7, 0, 0, 0) + path for path in paths]
        rows = pa.table({
            "position": pa.array(range(3), pa.int64()), "sink": pa.array(["counts"] * 3).dictionary_encode(),
            "time": pa.array([7] * 3, pa.int64()), "tie": pa.array([meta[8:11] for meta in metas], pa.binary()),
            "path": pa.array(paths, pa.binary()),
        })  # fmt: skip
        assert [wrong.column for wrong in OutputRows(manifest).wrongs(rows, bins_of(rows), 0)] == columns


def test_what_cannot_be_checked_is_no_success(whole: Path, tmp_path: Path) -> None:
    record = Path(shutil.copytree(whole, tmp_path / "record"))
    rows = pq.read_table(record / "blocks" / "part-00000.parquet").column("rows")
    replaced(record, "blocks", "rows", pa.array([5000] * len(rows)))
    audit = drift.audit(record, trips(), reproduce=False)
    assert not audit.ok and audit.level_result("intact") == "trouble"
    assert "the blocks cannot be read" in audit.troubles[0].text


def test_an_audit_with_a_check_that_was_not_done_is_not_well(whole: Path) -> None:
    from drift.auditing.checks import Audit, Check

    done, left = Check("reproduced", "one", "", "ok", ""), Check("reproduced", "two", "", "not checked", "too large")
    assert Audit("", {}, "", 0.0, (done,)).ok
    audit = Audit("", {}, "", 0.0, (done, left))
    assert not audit.ok and audit.level_result("reproduced") == "not checked"
