"""What may happen to a record is named by the audit: which file, which block, which position."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_records import words

import drift
from drift.auditing.checks import KINDS, Audit, Check, Trouble
from drift.auditing.diff import diff
from drift.records.format import RecordError, encoded, hash_file, read_manifest
from drift_barrier.digest import BLOCK_ITEMS

LINES = [f"to be or not to be {number % 7} {number % 11}" for number in range(1800)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of several parts, in which items lie in blocks 0 to 3."""
    path = tmp_path_factory.mktemp("records") / "record"
    drift.run(words(), {"lines": LINES}, record=drift.Recording(path, part_items_max=6000)).finish()
    assert len(read_manifest(path).of("output")) > 1
    return path


@pytest.fixture
def record(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "record"))


def troubles(path: Path) -> list[Trouble]:
    found = drift.audit(path, reproduce=False).troubles
    assert {trouble.kind for trouble in found} <= set(KINDS)
    return found


def first_output(path: Path) -> Path:
    return path / read_manifest(path).of("output")[0].path


def rewritten(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change a Parquet file as somebody would who has a tool for it."""
    table = pq.read_table(path)
    pq.write_table(change(table).cast(table.schema), path, compression="zstd")


def with_value(table: pa.Table, column: str, row: int, value: Any) -> pa.Table:
    values = table.column(column).to_pylist()
    values[row] = value
    return table.set_column(table.column_names.index(column), column, pa.array(values, table.schema.field(column).type))


def named(path: Path, kind: str, position: int, table: str = "output") -> Trouble:
    """The one trouble with an item, which is named rightly; the file is told too."""
    found = troubles(path)
    of_items = [trouble for trouble in found if trouble.position is not None and trouble.kind != "file changed"]
    assert [(trouble.kind, trouble.position, trouble.block) for trouble in of_items] == [
        (kind, position, position // BLOCK_ITEMS)
    ], found
    (file,) = [each for each in read_manifest(path).of(table) if each.first <= position < each.first + each.rows]
    assert of_items[0].file == file.path
    assert [(trouble.kind, trouble.file) for trouble in found if trouble not in of_items] == [
        ("file changed", file.path)
    ]
    return of_items[0]


def test_a_complete_record_is_intact(record: Path) -> None:
    assert troubles(record) == []
    audit = drift.audit(record, words())
    assert audit.ok, audit.troubles
    assert audit.level_result("reproduced") == "ok"
    assert json.loads(json.dumps(audit.as_dict()))["ok"] is True


def flipped(value: bytes) -> bytes:
    return value[:-1] + bytes([value[-1] ^ 1])


@pytest.mark.parametrize(
    ("table", "column", "row", "change", "kind"),
    [
        ("output", "payload", 0, flipped, "payload changed"),
        ("output", "payload", 5000, flipped, "payload changed"),
        ("input", "payload", 700, lambda value: b"\xa5to be", "payload changed"),
        ("output", "path", 4500, flipped, "meta changed"),
        ("output", "time", 4500, lambda value: 7, "meta changed"),
    ],
)
def test_one_value_that_is_another(record: Path, table: str, column: str, row: int, change: Any, kind: str) -> None:
    file = record / read_manifest(record).of(table)[0].path
    rewritten(file, lambda rows: with_value(rows, column, row, change(rows.column(column)[row].as_py())))
    assert f"{kind.split()[0]} " in named(record, kind, row, table).text


CHANGED_ROWS: dict[str, Callable[[list[int]], list[int]]] = {
    "missing": lambda rows: [*rows[:4500], *rows[4501:]],
    "doubled": lambda rows: [*rows[:4501], *rows[4500:]],
    "swapped": lambda rows: [*rows[:4500], 4600, *rows[4501:4600], 4500, *rows[4601:]],
}


@pytest.mark.parametrize("how", CHANGED_ROWS)
def test_items_that_are_not_in_their_places_are_located_to_the_block(record: Path, how: str) -> None:
    rewritten(first_output(record), lambda table: table.take(pa.array(CHANGED_ROWS[how](list(range(len(table)))))))
    found = [trouble for trouble in troubles(record) if trouble.kind != "file changed"]
    assert found[0].block == 4500 // BLOCK_ITEMS, found


@pytest.mark.parametrize("left", [0, 100, -1])
def test_a_truncated_file(record: Path, left: int) -> None:
    path = record / read_manifest(record).of("output")[1].path
    path.write_bytes(path.read_bytes()[:left])
    first, *_ = troubles(record)
    file = read_manifest(record).of("output")[1]
    assert (first.kind, first.file, first.position) == ("file truncated", file.path, file.first)
    assert first.block == file.first // BLOCK_ITEMS


@pytest.mark.parametrize("table", ["output", "input", "arrivals", "blocks"])
def test_a_lost_file(record: Path, table: str) -> None:
    file = read_manifest(record).of(table)[-1]
    (record / file.path).unlink()
    first, *_ = troubles(record)
    assert (first.kind, first.file) == ("file lost", file.path)


def test_what_cannot_be_checked_is_no_success(record: Path) -> None:
    (record / read_manifest(record).of("blocks")[-1].path).unlink()
    audit = drift.audit(record, words(), reproduce=False)
    assert not audit.ok and audit.level_result("intact") == "trouble"
    done, left = Check("reproduced", "one", "", "ok", ""), Check("reproduced", "two", "", "not checked", "too large")
    assert Audit("", {}, "", 0.0, (done,)).ok
    audit = Audit("", {}, "", 0.0, (done, left))
    assert not audit.ok and audit.level_result("reproduced") == "not checked"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"engine": "local"', '"engine": "zeromq"'),
        ('"items_out": 14400', '"items_out": 14401'),
        ('"graph": "words"', '"graph": "words", "checked_by": "me"'),
    ],
)
def test_an_edited_manifest(record: Path, before: str, after: str) -> None:
    path = record / "manifest.json"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    (trouble,) = [trouble for trouble in troubles(record) if trouble.file == "manifest.json"]
    assert trouble.kind == "manifest edited"


@pytest.mark.parametrize(
    ("before", "after"),
    [('"functions"', '"functionr"'), ('"operators"', '"operatprs"'), ('"origin": "lines"', '"origin": "lioes"')],
)
def test_a_manifest_whose_graph_is_damaged(record: Path, whole: Path, before: str, after: str) -> None:
    path = record / "manifest.json"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))
    audit = drift.audit(record, words())
    assert not audit.ok and audit.level_result("reproduced") == "not checked"
    assert [trouble.kind for check in audit.checks for trouble in check.troubles] == ["manifest edited"]
    with pytest.raises(RecordError, match=r"manifest\.json was edited or damaged since it was written"):
        drift.replay(record, words()).finish()
    for pair in ((record, whole), (whole, record)):
        with pytest.raises(RecordError, match=r"record/manifest\.json was edited or damaged"):
            diff(*pair)


def test_a_manifest_that_is_no_json(record: Path) -> None:
    (record / "manifest.json").write_text("{")
    assert [trouble.kind for trouble in troubles(record)] == ["manifest unreadable"]
    audit = drift.audit(record, words())
    assert not audit.ok
    assert audit.level_result("reproduced") == "not checked"


def edited_with_care(path: Path) -> None:
    """Somebody changes an item and makes every hash anew."""
    rewritten(first_output(path), lambda table: with_value(table, "payload", 4500, b"\x92\xa2to\xcd\x03\xe8"))
    manifest = read_manifest(path)
    files = [
        drift.records.format.File(  # type: ignore[attr-defined]
            file.path,
            file.table,
            file.first,
            file.rows,
            (path / file.path).stat().st_size,
            hash_file(path / file.path, "xxh3_128"),
        )
        for file in manifest.files
    ]
    manifest.files = files
    (path / "manifest.json").write_bytes(encoded(manifest))


def test_files_that_were_hashed_anew_do_not_fit_the_blocks(record: Path) -> None:
    edited_with_care(record)
    assert [(trouble.kind, trouble.position) for trouble in troubles(record)] == [("payload changed", 4500)]


def test_only_what_is_stored_elsewhere_shows_a_forgery(record: Path, tmp_path: Path) -> None:
    from drift.auditing.signature import make_key, sign

    expected = drift.Record(record).hash
    public = make_key(tmp_path / "key")
    sign(record, tmp_path / "key")
    audit = drift.audit(record, reproduce=False, expect=expected, key=public)
    assert audit.ok and audit.level_result("signed") == "ok"
    manifest = read_manifest(record)
    manifest.engine = "zeromq"
    (record / "manifest.json").write_bytes(encoded(manifest))
    assert troubles(record) == []
    audit = drift.audit(record, reproduce=False, expect=expected, key=public)
    assert [(trouble.kind, trouble.file) for trouble in audit.troubles] == [
        ("not the expected record", "manifest.json"),
        ("manifest edited", "manifest.json"),
    ]


def test_a_signature_of_another_key_is_not_taken(record: Path, tmp_path: Path) -> None:
    from drift.auditing.signature import make_key, sign

    ours, theirs = make_key(tmp_path / "ours"), make_key(tmp_path / "theirs")
    assert [trouble.kind for trouble in drift.audit(record, reproduce=False, key=ours).troubles] == ["not signed"]
    sign(record, tmp_path / "theirs")
    assert drift.audit(record, reproduce=False, key=theirs).ok
    (trouble,) = drift.audit(record, reproduce=False, key=ours).troubles
    assert trouble.kind == "signature wrong" and "another key" in trouble.text
    with pytest.raises(drift.SettingsError, match="never overwritten"):
        make_key(tmp_path / "ours")
    assert (tmp_path / "ours").stat().st_mode & 0o777 == 0o600
