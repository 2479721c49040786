"""What is reported of a record in which somebody changed values and made the hashes of the files anew."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_records_hostile import edit, replaced, trips

import drift
from drift.auditing.intact import check_intact
from drift.records.format import RecordError

Rows = list[Any]

#: What is changed in which column of which table, the kind of trouble, and what is said of it.
FORGED: dict[str, tuple[str, str, Callable[[Rows], Rows], str, str]] = {
    "an output's time": ("output", "time", lambda rows: [*rows[:3], 71, 80], "meta changed", "meta at position 3"),
    "an output's tie": ("output", "tie", lambda rows: [rows[1], *rows[1:]], "meta changed", "meta at position 0"),
    "an input's time": ("input", "time", lambda rows: [11, *rows[1:]], "meta changed", "meta at input row 0"),
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
