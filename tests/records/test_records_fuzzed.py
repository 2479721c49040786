"""Records that were changed at random: every changed file is reported, and every changed item as well where somebody
made the hashes of the files anew.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drift
from drift.records.columns import GLOBAL_TIME, META
from drift.records.format import (
    MANIFEST,
    TABLES,
    encoded,
    hash_file,
    read_manifest,
)
from drift.records.tables import SCHEMAS
from drift_graph.meta import END_OF_TIME, TIME_MAX, TIME_MIN, varint

TRIALS = 8
Rows = list[dict[str, Any]]


def trips() -> drift.Graph:
    graph = drift.Graph("trips")
    by_time = drift.EventTime(time=lambda trip: trip[0], lateness=30, late="divert")
    one, other = graph.source("one", time=by_time), graph.source("other", time=by_time)
    both = one.merge(other)
    both.count(key=lambda trip: trip[1]).sink("counts")
    both.filter(lambda trip: trip[0] % 3 == 0).sink("thirds")
    return graph


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One file of each table, and several."""
    random_one = random.Random(3)

    def arrived(count: int) -> list[tuple[int, str]]:
        return [(3 * at + random_one.randrange(-40, 40), random_one.choice(["JFK", "LGA"])) for at in range(count)]

    made = []
    for name, count, part_items_max in (("one", 20, 1 << 20), ("several", 120, 90)):
        path = tmp_path_factory.mktemp("records") / name
        recording = drift.Recording(path, part_items_max=part_items_max)
        drift.run(trips(), {"one": arrived(count), "other": arrived(count)}, record=recording, batch_items=7).finish()
        made.append(path)
    return made


# What is changed.


def other_value(value: Any, choose: random.Random) -> Any:
    """Another value of the same type, near by or far away."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        far = [TIME_MIN, TIME_MAX, -1, 0, 2**62, -value, value + 1, value - 1, value + choose.randrange(-50, 50)]
        return min(max(choose.choice(far), TIME_MIN), TIME_MAX)
    if isinstance(value, str):
        return choose.choice(["", "one", "other", "thirds", "input", "\0", "z" * 5000])
    at = choose.randrange(len(value) + 1)
    flipped = value[:at] + bytes([byte ^ 1 << choose.randrange(8) for byte in value[at : at + 1]]) + value[at + 1 :]
    number = varint(choose.choice([0, 1, 248, 2**64 - 1]))
    return choose.choice([b"", value[1:], value[:-1], value + b"\1", flipped, value[:at] + number, END_OF_TIME])


def change_values(rows: Rows, choose: random.Random) -> Rows:
    name = choose.choice(list(rows[0]))
    for _ in range(choose.choice([1, 1, 3])):
        row = choose.choice(rows)
        row[name] = other_value(row[name], choose) if choose.random() < 0.6 else choose.choice(rows)[name]
    return rows


def change_column(rows: Rows, choose: random.Random) -> Rows:
    name = choose.choice(list(rows[0]))
    values = [row[name] for row in rows]
    changed = choose.choice([values[1:] + values[:1], values[::-1], [values[0]] * len(values), sorted(values)])
    return [row | {name: value} for row, value in zip(rows, changed)]


def change_rows(rows: Rows, choose: random.Random) -> Rows:
    at, other = choose.randrange(len(rows)), choose.randrange(len(rows))
    swapped = list(rows)
    swapped[at], swapped[other] = rows[other], rows[at]
    changed = choose.choice([rows[:at] + rows[at + 1 :], [*rows[:at], rows[other], *rows[at:]], swapped, rows[:at]])
    if choose.random() < 0.5 and "position" in rows[0]:
        return [row | {"position": rows[0]["position"] + index} for index, row in enumerate(changed)]
    return changed


CHANGES: list[Callable[[Rows, random.Random], Rows]] = [change_values, change_column, change_rows]


def rewrite(path: Path, table: str, rows: Rows, choose: random.Random) -> None:
    """As one writer or another would."""
    how: dict[str, Any] = {
        "compression": choose.choice(["none", "zstd", "snappy", "lz4"]),
        "row_group_size": choose.choice([3, 1000]),
        "version": choose.choice(["1.0", "2.6"]),
        "data_page_version": choose.choice(["1.0", "2.0"]),
        "use_dictionary": choose.choice([True, False, ["tie"], ["path", "payload"]]),
        "dictionary_pagesize_limit": choose.choice([64, 1 << 20]),  # the small one: a part in a dictionary, a part not
        "write_statistics": choose.choice([True, False]),
        "store_schema": choose.random() < 0.95,
    }
    pq.write_table(pa.Table.from_pylist(rows, SCHEMAS[table]), path, **how)


def hashes_anew(record: Path) -> None:
    """The hashes of the files, as of whoever rewrites them and the manifest."""
    manifest = read_manifest(record)
    found = [(file, record / file.path) for file in manifest.files]
    manifest.files = [
        msgspec.structs.replace(file, bytes=path.stat().st_size, hash=hash_file(path, manifest.algorithm))
        for file, path in found
    ]
    (record / MANIFEST).write_bytes(encoded(manifest))


def read(path: Path) -> Rows:
    rows: Rows = pq.ParquetFile(path).read().to_pylist()
    return rows


def metas_and_payloads(record: Path) -> dict[str, Rows]:
    """What the blocks hash, row by row."""
    names = {"input": (*GLOBAL_TIME, "payload"), "output": (*META, "payload")}
    files = [file for file in read_manifest(record).files if file.table in names]
    found: dict[str, Rows] = {table: [] for table in names}
    for file in files:
        found[file.table] += [{name: row[name] for name in names[file.table]} for row in read(record / file.path)]
    return found


@pytest.mark.parametrize("table", [table for table in TABLES if table != "answers"])  # the graph has no calls
@pytest.mark.parametrize("anew", [False, True])
def test_a_record_that_was_changed_at_random_is_reported(
    table: str, anew: bool, wholes: list[Path], tmp_path: Path
) -> None:
    choose = random.Random(table)
    for trial in range(TRIALS):
        whole = choose.choice(wholes)
        record = Path(shutil.copytree(whole, tmp_path / str(trial)))
        file = choose.choice(read_manifest(record).of(table))
        rows = read(record / file.path)
        rewrite(record / file.path, table, choose.choice(CHANGES)(rows, choose) if rows else rows, choose)
        items_changed = metas_and_payloads(record) != metas_and_payloads(whole)
        if anew:
            hashes_anew(record)
        found = [trouble.text for trouble in drift.audit(record, reproduce=False).troubles]
        named = f"{table}/" if anew else file.path  # a block may begin in the file before
        assert any(named in text for text in found) or (anew and not items_changed), (trial, found)
