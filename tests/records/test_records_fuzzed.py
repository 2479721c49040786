"""Records of a stranger, changed at random: reported or harmless, whatever is changed.

A changed file is reported; a changed item is reported as well where somebody made the hashes of the files anew. Where
all hashes were made anew only a signature finds it, and a replay gives the same on two engines, or says what is wrong.
The pass that is quick and the one that is careful find the same.
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
from drift.auditing.intact import _Items, check_intact
from drift.records.blocks import Blocks
from drift.records.format import (
    MANIFEST,
    TABLES,
    File,
    Manifest,
    encoded,
    hash_file,
    read_manifest,
)
from drift.records.metas import GLOBAL_TIME, META
from drift.records.tables import SCHEMAS
from drift.records.watch import Watch
from drift.strings import of_list
from drift_graph.errors import DriftBug, DriftError
from drift_graph.meta import END_OF_TIME, TIME_MAX, TIME_MIN, pack_time, varint

SEEDS, TRIALS_EACH = 2, 5
Rows = list[dict[str, Any]]
Tables = dict[str, Rows]


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


def move_a_boundary(rows: Rows, choose: random.Random) -> Rows:
    if "path" not in rows[0]:
        return change_values(rows, choose)
    for row in rows if choose.random() < 0.5 else [choose.choice(rows)]:
        both, end = row["tie"] + row["path"], len(row["tie"]) + choose.choice([-1, 1])
        row["tie"], row["path"] = both[:end], both[end:]
    return rows


def forget_a_value(rows: Rows, choose: random.Random) -> Rows:
    choose.choice(rows)[choose.choice(list(rows[0]))] = None
    return rows


CHANGES: list[Callable[[Rows, random.Random], Rows]] = [
    *[change_values] * 5, *[change_column] * 2, *[change_rows] * 3, move_a_boundary, forget_a_value
]  # fmt: skip


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
    pq.write_table(as_table(table, rows), path, **how)


def as_table(table: str, rows: Rows) -> pa.Table:
    schema = pa.schema([field.with_nullable(any(row[field.name] is None for row in rows)) for field in SCHEMAS[table]])
    columns = [(field.type, [row[field.name] for row in rows]) for field in schema]
    arrays = [names_of(values) if pa.types.is_dictionary(kind) else pa.array(values, kind) for kind, values in columns]
    return pa.Table.from_arrays(arrays, schema=schema)


def names_of(values: list[str | None]) -> pa.DictionaryArray:
    """Names in a dictionary that has them in another order than the graph."""
    names = sorted({name for name in values if name is not None}, reverse=True)
    places = [None if name is None else names.index(name) for name in values]
    return pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array(names, pa.string()))


def hashes_anew(record: Path, *, of_items: bool) -> None:
    """Of files and manifest; of items as well, and all that is counted."""
    manifest: Manifest = msgspec.json.decode((record / MANIFEST).read_bytes(), type=Manifest)
    if of_items:
        blocks_anew(record, manifest)
    files, first = [], dict.fromkeys(TABLES, 0)
    for file in manifest.files:
        path = record / file.path
        rows = pq.read_metadata(path).num_rows if of_items else file.rows
        size, found = path.stat().st_size, hash_file(path, manifest.algorithm)
        files.append(File(file.path, file.table, first[file.table] if of_items else file.first, rows, size, found))
        first[file.table] += rows
    manifest.files = files
    if of_items:
        manifest.items_in, manifest.late_items, manifest.items_out = first["input"], first["late"], first["output"]
    (record / MANIFEST).write_bytes(encoded(manifest))


def blocks_anew(record: Path, manifest: Manifest) -> None:
    rows: Rows = []
    for table, names in (("input", GLOBAL_TIME), ("output", META)):
        blocks = Blocks(manifest.algorithm)
        items = [row for file in manifest.of(table) for row in read(record / file.path)]
        if any(None in item.values() for item in items):
            return  # there are no bytes of it to be hashed
        metas = [pack_time(item["time"]) + b"".join(item[name] for name in names[1:]) for item in items]
        bins = of_list(list(map(msgspec.msgpack.encode, metas)))
        blocks.add(bins, of_list([item["payload"] for item in items]))
        found = blocks.take() + ([blocks.open] if blocks.open is not None else [])
        rows += [dict(zip(SCHEMAS["blocks"].names, (table, *block))) for block in found]
        setattr(manifest, "digest" if table == "output" else "input_digest", blocks.digest.hexdigest())
    for file in manifest.of("blocks"):
        pq.write_table(as_table("blocks", rows), record / file.path)
        rows = []


def read(path: Path) -> Rows:
    rows: Rows = pq.ParquetFile(path).read().to_pylist()
    return rows


# What is changed in several places at once.


def metas_and_payloads(record: Path) -> dict[str, Rows]:
    """What the blocks hash, row by row."""
    names = {"input": (*GLOBAL_TIME, "payload"), "output": (*META, "payload")}
    files = [file for file in read_manifest(record).files if file.table in names]
    found: dict[str, Rows] = {table: [] for table in names}
    for file in files:
        found[file.table] += [{name: row[name] for name in names[file.table]} for row in read(record / file.path)]
    return found


def test_hashes_made_anew_are_right(wholes: list[Path], tmp_path: Path) -> None:
    for number, whole in enumerate(wholes):
        record = Path(shutil.copytree(whole, tmp_path / str(number)))
        hashes_anew(record, of_items=True)
        assert is_intact(record)
        assert list(drift.replay(record, trips())) == list(drift.Record(whole).items())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_record_that_was_changed_at_random_is_reported_or_harmless(
    seed: int, wholes: list[Path], tmp_path: Path
) -> None:
    choose = random.Random(seed)
    for trial in range(TRIALS_EACH):
        whole = choose.choice(wholes)
        record = Path(shutil.copytree(whole, tmp_path / str(trial)))
        for _ in range(choose.choice([1, 1, 2])):
            file = choose.choice(read_manifest(record).files)
            rows = read(record / file.path)
            if rows:
                rewrite(record / file.path, file.table, choose.choice(CHANGES)(rows, choose), choose)
        check(record, whole, choose.choice(["none", "files", "files", "items"]), f"trial {trial}")
        replayed_alike(record)


def check(record: Path, whole: Path, anew: str, what: str) -> None:
    """Make hashes anew, of none, of the files or of all, and see that a change is reported as far as hashes find it."""
    paths = [file.path for file in read_manifest(whole).files]
    changed = any((record / path).read_bytes() != (whole / path).read_bytes() for path in paths)
    items_changed = metas_and_payloads(record) != metas_and_payloads(whole)
    if anew != "none":
        hashes_anew(record, of_items=anew == "items")
    intact = is_intact(record)
    assert intact is not changed or anew != "none", what
    assert not (intact and items_changed) or anew == "items", what


@pytest.mark.parametrize("table", [table for table in TABLES if table != "answers"])  # the graph has no calls
def test_every_column_that_was_changed_by_itself_is_reported_or_harmless(
    table: str, wholes: list[Path], tmp_path: Path
) -> None:
    choose = random.Random(1)
    rows: Rows
    name: str

    def another_rows(value: Any) -> Any:
        return choose.choice(rows)[name]

    def near_by(value: Any) -> Any:
        return other_value(value, choose)

    for name in SCHEMAS[table].names:
        for trial, change in enumerate((another_rows, near_by, lambda value: None)):
            record = Path(shutil.copytree(wholes[0], tmp_path / f"{name} {trial}"))
            path = record / table / "part-00000.parquet"
            rows = read(path)
            row = choose.choice(rows)
            row[name] = change(row[name])
            rewrite(path, table, rows, choose)
            check(record, wholes[0], choose.choice(["none", "files"]), f"{name}, trial {trial}")


def is_intact(record: Path) -> bool:
    """Whether nothing is reported; where the quick pass reports nothing of items, the careful one finds nothing."""
    manifest, checks = read_manifest(record), check_intact(record)
    for table in ("input", "output"):
        careful = _Items(record, manifest, table, Watch())
        careful.check()
        of_items = [check for check in checks if check.what.startswith(f"{table}: ") and "items" in check.what]
        reported = any(check.troubles for check in of_items)
        assert reported == bool(careful.troubles), (table, reported, careful.troubles)
    return not any(check.troubles for check in checks)


def replayed_alike(record: Path) -> str:
    """How a replay ends: on two engines with the same output, or the same error."""
    ends = []
    for engine in ("local", "reference"):
        items: list[Any] = []
        try:
            run = drift.replay(record, trips(), engine=engine)
            items.extend(run)
            ends.append(("", run.digest))
        except DriftBug:
            raise
        except DriftError as error:
            ends.append((type(error).__name__, str(error)))
    assert ends[0] == ends[1]
    return ends[0][0]
