"""Records of a stranger, changed at random: told or harmless, whatever is changed and whichever hashes are made anew.

A record that is said to be intact is one whose columns agree, by a check that is too simple to be wrong, and it can be
replayed. The pass that is quick and the one that is careful find the same.
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
from drift.records import columns
from drift.records.blocks import Blocks
from drift.records.format import MANIFEST, TABLES, File, Manifest, encoded, hash_file, read_manifest
from drift.records.intact import _Items, check_intact
from drift.records.metas import GLOBAL_TIME, META
from drift.records.tables import SCHEMAS
from drift.records.watch import Watch
from drift_barrier.digest import BLOCK_ITEMS
from drift_graph.errors import DriftBug, DriftError
from drift_graph.meta import BEGINNING, END_OF_TIME, TIME_MAX, TIME_MIN, pack_time, varint

SEEDS, TRIALS_EACH = 6, 8
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
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


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
        bins = columns.of_list(list(map(msgspec.msgpack.encode, metas)))
        blocks.add(bins, columns.of_list([item["payload"] for item in items]))
        found = blocks.take() + ([blocks.open] if blocks.open is not None else [])
        rows += [dict(zip(SCHEMAS["blocks"].names, (table, *block))) for block in found]
        setattr(manifest, "digest" if table == "output" else "input_digest", blocks.digest.hexdigest())
    for file in manifest.of("blocks"):
        pq.write_table(as_table("blocks", rows), record / file.path)
        rows = []


def read(path: Path) -> Rows:
    rows: Rows = pq.ParquetFile(path).read().to_pylist()
    return rows


# What is right.


def ends_in_three_varints(tie: bytes) -> bool:
    at = 0
    for _ in range(3):
        if at >= len(tie):
            return False
        at += 1 + max(tie[at] - 0xF7, 0)
    return at == len(tie)


def disagreement(record: Path) -> str:
    """What does not agree; "" where all does. A row at a time."""
    manifest = read_manifest(record)
    tables: dict[str, Rows] = {table: [] for table in TABLES}
    for file in manifest.files:
        parquet = pq.ParquetFile(record / file.path)
        if parquet.schema_arrow.remove_metadata() != SCHEMAS[file.table].remove_metadata():
            return "schema"
        tables[file.table] += parquet.read().to_pylist()
    before = BEGINNING
    for position, row in enumerate(tables["output"]):
        meta = pack_time(row["time"]) + row["tie"] + row["path"]
        if row["position"] != position or row["sink"] not in manifest.sinks or not ends_in_three_varints(row["tie"]):
            return f"output {position}"
        if meta <= before:
            return f"order at {position}"
        before = meta
    ranks = {source.name: rank for rank, source in enumerate(manifest.sources)}
    promises = dict.fromkeys(ranks, BEGINNING)
    inputs, late_items = iter(tables["input"]), iter(tables["late"])
    global_times: set[bytes] = set()
    for number, batch in enumerate(tables["arrivals"]):
        source = batch["source"]
        if batch["batch"] != number or source not in ranks or min(batch["items"], batch["late"]) < 0:
            return f"batch {number}"
        if max(batch["items"], batch["late"]) > 10_000:
            return f"size of batch {number}"
        for _ in range(batch["items"]):
            item = next(inputs, None)
            if item is None or (item["batch"], item["source"]) != (number, source):
                return f"an item of batch {number}"
            if not ends_in_three_varints(item["tie"]) or not item["tie"].startswith(varint(ranks[source])):
                return f"a tie of batch {number}"
            global_time = pack_time(item["time"]) + item["tie"]
            if global_time < promises[source]:
                return f"a promise before batch {number}"
            if global_time in global_times:
                return f"two items of one global time, in batch {number}"
            global_times.add(global_time)
        for _ in range(batch["late"]):
            late = next(late_items, None)
            if late is None or (late["batch"], late["source"]) != (number, source) or late["time"] >= late["heartbeat"]:
                return f"a late item of batch {number}"
        if not promises[source] <= batch["heartbeat"] <= END_OF_TIME:
            return f"the promise of batch {number}"
        promises[source] = batch["heartbeat"]
    if next(inputs, None) or next(late_items, None) or set(promises.values()) != {END_OF_TIME}:
        return "the end"
    return of_blocks(tables["blocks"])


def of_blocks(rows: Rows) -> str:
    last = {"input": (0, 0), "output": (0, 0)}
    for row in rows:
        number, count = row["block"], row["rows"]
        if row["table"] not in last or not 0 <= count <= BLOCK_ITEMS:
            return "a block"
        before, rows_before = last[row["table"]]
        if not (number == before and count >= rows_before):
            return "the order of blocks"  # records here have one block
        if (len(row["meta_checks"]), len(row["payload_checks"])) != (count, 2 * count):
            return "the checks of a block"
        last[row["table"]] = number, count
    return ""


def test_hashes_made_anew_are_right(wholes: list[Path], tmp_path: Path) -> None:
    for number, whole in enumerate(wholes):
        record = Path(shutil.copytree(whole, tmp_path / str(number)))
        hashes_anew(record, of_items=True)
        assert passes_agree(record) and not disagreement(record)
        assert list(drift.replay(record, trips())) == list(drift.Record(whole).items())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_record_that_was_changed_at_random_is_told_or_harmless(seed: int, wholes: list[Path], tmp_path: Path) -> None:
    choose = random.Random(seed)
    for trial in range(TRIALS_EACH):
        record = Path(shutil.copytree(choose.choice(wholes), tmp_path / str(trial)))
        for _ in range(choose.choice([1, 1, 2])):
            file = choose.choice(read_manifest(record).files)
            rows = read(record / file.path)
            if rows:
                rewrite(record / file.path, file.table, choose.choice(CHANGES)(rows, choose), choose)
        anew = choose.choice(["none", "files", "items", "items"])
        if anew != "none":
            hashes_anew(record, of_items=anew == "items")
        intact = passes_agree(record)
        wrong = disagreement(record)
        assert not (intact and wrong), f"trial {trial}: intact, and {wrong} is wrong"
        assert intact or wrong or anew != "items", f"trial {trial}: nothing is wrong, and it is told"
        ended = replayed_alike(record)
        assert not intact or ended != "RecordError", f"trial {trial}"


def passes_agree(record: Path) -> bool:
    """Whether it is intact; where it is said to be by the quick pass, the careful one finds nothing either."""
    manifest, checks = read_manifest(record), check_intact(record)
    intact = not any(check.troubles for check in checks)
    for table in ("input", "output"):
        careful = _Items(record, manifest, table, Watch())
        careful.check()
        said = any(check.troubles for check in checks if check.what.startswith(f"{table}: ") and "items" in check.what)
        assert said == bool(careful.troubles), (table, said, careful.troubles)
    return intact


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
