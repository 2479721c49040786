"""Records of a stranger, changed at random: told or harmless, whatever is changed and whichever hashes are made anew.

A record that is said to be intact is one whose columns agree, by a check that is too simple to be wrong, and it can be
replayed. The pass that is quick and the one that is careful find the same. What is changed is anything, or every column
by itself, or more columns at once that go on agreeing with each other, so that one check alone can find it.
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
from drift.records import columns
from drift.records.blocks import Blocks
from drift.records.format import (
    MANIFEST,
    TABLES,
    File,
    Manifest,
    RecordError,
    encoded,
    hash_file,
    read_manifest,
)
from drift.records.metas import GLOBAL_TIME, META
from drift.records.tables import SCHEMAS
from drift.records.watch import Watch
from drift_barrier.digest import BLOCK_ITEMS
from drift_graph.errors import DriftBug, DriftError
from drift_graph.meta import BEGINNING, END_OF_TIME, TIME_MAX, TIME_MIN, pack_time, varint

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


# What is changed in several places at once.


def with_items(tables: Tables, choose: random.Random) -> tuple[int, Rows]:
    """A batch, and its items, which are two or more."""
    numbers = [row["batch"] for row in tables["arrivals"] if row["items"] > 1]
    number = choose.choice(numbers)
    return number, [row for row in tables["input"] if row["batch"] == number]


def another_source(tables: Tables, choose: random.Random, name: str = "") -> None:
    number, items = with_items(tables, choose)
    for row in (tables["arrivals"][number], *items):
        row["source"] = name or ("one" if row["source"] == "other" else "other")


def source_that_is_none(tables: Tables, choose: random.Random) -> None:
    another_source(tables, choose, "third")


def promised_too_much(tables: Tables, choose: random.Random, *, within: bool = False) -> None:
    """A heartbeat before an item, above it, and no heartbeat after it is below that."""
    item = choose.choice([row for row in tables["input"] if row["batch"] > tables["input"][0]["batch"] + 4])
    of_source = [row for row in tables["arrivals"] if row["source"] == item["source"]]
    before = [row for row in of_source if row["batch"] < item["batch"]]
    heartbeat = pack_time(item["time"]) + item["tie"] + b"\0" if within else pack_time(item["time"] + 1)
    for row in of_source[len(before) - 1 :]:
        row["heartbeat"] = max(row["heartbeat"], heartbeat)


def promised_too_much_within_a_time(tables: Tables, choose: random.Random) -> None:
    promised_too_much(tables, choose, within=True)


def heartbeats(tables: Tables, choose: random.Random) -> Rows:
    source = choose.choice(["one", "other"])
    return [row for row in tables["arrivals"] if row["source"] == source]


def promise_goes_back(tables: Tables, choose: random.Random) -> None:
    rows = heartbeats(tables, choose)
    at = choose.randrange(1, len(rows) - 1)
    rows[at]["heartbeat"] = rows[at - 1]["heartbeat"][:7]


def promise_above_the_end(tables: Tables, choose: random.Random) -> None:
    heartbeats(tables, choose)[-1]["heartbeat"] = END_OF_TIME + b"\0"


def no_end(tables: Tables, choose: random.Random) -> None:
    rows = [row for row in heartbeats(tables, choose) if row["heartbeat"] == END_OF_TIME]
    for row in rows:
        row["heartbeat"] = pack_time(TIME_MAX)


def item_twice(tables: Tables, choose: random.Random) -> None:
    number, items = with_items(tables, choose)
    tables["input"].insert(tables["input"].index(items[-1]), dict(choose.choice(items[:-1])))
    tables["arrivals"][number]["items"] += 1


def global_time_twice(tables: Tables, choose: random.Random) -> None:
    _, items = with_items(tables, choose)
    items[-1].update({name: items[0][name] for name in GLOBAL_TIME})


def counted_elsewhere(tables: Tables, choose: random.Random, count: str = "items") -> None:
    one, other = choose.sample(tables["arrivals"], 2)
    more = choose.choice([1, one[count] + 1])
    one[count] -= more
    other[count] += more


def late_counted_elsewhere(tables: Tables, choose: random.Random) -> None:
    counted_elsewhere(tables, choose, "late")


def batches_from_one(tables: Tables, choose: random.Random) -> None:
    for row in (*tables["arrivals"], *tables["input"], *tables["late"]):
        row["batch"] += 1


def outputs_swapped(tables: Tables, choose: random.Random) -> None:
    rows = tables["output"]
    pairs = [at for at in range(len(rows) - 1) if rows[at]["time"] == rows[at + 1]["time"]]
    at = choose.choice(pairs or [0])
    rows[at], rows[at + 1] = {**rows[at + 1], "position": at}, {**rows[at], "position": at + 1}


def tie_shorter_than_it_says(tables: Tables, choose: random.Random) -> None:
    row = choose.choice(tables[choose.choice(["input", "output"])])
    row["tie"] = row["tie"][:1] + bytes([row["tie"][1] - 1]) + row["tie"][2:]


def tie_of_the_other_source(tables: Tables, choose: random.Random) -> None:
    row = choose.choice(tables["input"])
    row["tie"] = bytes([1 - row["tie"][0]]) + row["tie"][1:]


def item_of_the_other_source(tables: Tables, choose: random.Random) -> None:
    row = choose.choice(tables["input"])
    row.update(source="one" if row["tie"][0] else "other", tie=bytes([1 - row["tie"][0]]) + row["tie"][1:])


def late_item_in_time(tables: Tables, choose: random.Random) -> None:
    row = choose.choice(tables["late"])
    row["time"] = row["heartbeat"]


def another_late_item(tables: Tables, choose: random.Random) -> None:
    row, name = choose.choice(tables["late"]), choose.choice(["batch", "source"])
    row[name] = row["batch"] + 1 if name == "batch" else "one" if row["source"] == "other" else "other"


def a_sink_that_is_none(tables: Tables, choose: random.Random) -> None:
    choose.choice(tables["output"])["sink"] = "fourths"


def nothing(tables: Tables, choose: random.Random) -> None:
    """Only the order of names in dictionaries is another."""


LIES: list[Callable[[Tables, random.Random], None]] = [
    another_source, source_that_is_none, promised_too_much, promised_too_much_within_a_time, promise_goes_back,
    promise_above_the_end, no_end, item_twice, global_time_twice, counted_elsewhere, late_counted_elsewhere,
    batches_from_one, outputs_swapped, tie_shorter_than_it_says, tie_of_the_other_source, item_of_the_other_source,
    late_item_in_time, another_late_item, a_sink_that_is_none, nothing,
]  # fmt: skip


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
    heartbeats = dict.fromkeys(ranks, BEGINNING)
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
            if global_time < heartbeats[source]:
                return f"a heartbeat before batch {number}"
            if global_time in global_times:
                return f"two items of one global time, in batch {number}"
            global_times.add(global_time)
        for _ in range(batch["late"]):
            late = next(late_items, None)
            if late is None or (late["batch"], late["source"]) != (number, source) or late["time"] >= late["heartbeat"]:
                return f"a late item of batch {number}"
        if not heartbeats[source] <= batch["heartbeat"] <= END_OF_TIME:
            return f"the heartbeat of batch {number}"
        heartbeats[source] = batch["heartbeat"]
    if next(inputs, None) or next(late_items, None) or set(heartbeats.values()) != {END_OF_TIME}:
        return "the end"
    return of_blocks(tables["blocks"])


#: What a replay would see of that, before it begins or on its way.
SEEN_BY_REPLAYS = ("a heartbeat", "the heartbeat", "a tie", "two items")


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
def test_a_record_that_was_changed_at_random_is_reported_or_harmless(
    seed: int, wholes: list[Path], tmp_path: Path
) -> None:
    choose = random.Random(seed)
    for trial in range(TRIALS_EACH):
        record = Path(shutil.copytree(choose.choice(wholes), tmp_path / str(trial)))
        for _ in range(choose.choice([1, 1, 2])):
            file = choose.choice(read_manifest(record).files)
            rows = read(record / file.path)
            if rows:
                rewrite(record / file.path, file.table, choose.choice(CHANGES)(rows, choose), choose)
        intact = check(record, choose.choice(["none", "files", "items", "items"]), f"trial {trial}")
        ended = replayed_alike(record)
        assert not intact or ended != "RecordError", f"trial {trial}"


def check(record: Path, anew: str, what: str) -> bool:
    """Make hashes anew, and see that what is said of the record is right; whether it is intact."""
    if anew != "none":
        hashes_anew(record, of_items=anew == "items")
    intact, wrong = passes_agree(record), disagreement(record)
    assert not (intact and wrong), f"{what}: intact, and {wrong} is wrong"
    assert intact or wrong or anew != "items", f"{what}: nothing is wrong, and it is told"
    for read in (drift.Record(record).check_input, lambda: list(drift.Record(record).arrivals())):
        try:
            read()
            assert not wrong.startswith(SEEN_BY_REPLAYS), f"{what}: {wrong} is not seen by {read}"
        except RecordError as error:
            assert not intact, f"{what}: intact, and {error}"
    return intact


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_columns_that_were_changed_together_are_reported(lie: Any, wholes: list[Path], tmp_path: Path) -> None:
    for seed in range(3):
        record, choose = Path(shutil.copytree(wholes[0], tmp_path / str(seed))), random.Random(seed)
        paths = {file.table: record / file.path for file in read_manifest(record).files}
        tables = {table: read(path) for table, path in paths.items()}
        lie(tables, choose)
        for table, rows in tables.items():
            pq.write_table(as_table(table, rows), paths[table])
        assert check(record, "items", f"seed {seed}") == (lie is nothing)


@pytest.mark.parametrize("table", TABLES)
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
            check(record, "files" if table == "blocks" else "items", f"{name}, trial {trial}")


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
