"""Parquet in parts: by size, by the clock and by partitions; a death at any moment loses and doubles nothing."""

from __future__ import annotations

import datetime as dt
import glob
import json
import os
import random
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from dying import Death, Taken, dying, write_steps
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import wait_until

import drift
from drift import SettingsError, SinkError, sinks, sources
from drift.cli import drift as commands
from drift.places import Local, Remote
from drift.running.sinks import Sinks
from drift.sinks.part_files import Parts
from drift_barrier.barrier import Released
from drift_graph.meta import global_time
from drift_graph.metas import Metas

DAYS = ("2013-01-01", "2013-01-02", None, "a/b é=%")


def meta_at(position: int) -> bytes:
    return global_time(position * 10, 0, 0, 0)


def row_at(position: int) -> dict[str, Any]:
    return {"n": position, "day": DAYS[position * 7 % 11 % len(DAYS)]}


def write(sink: Any, start: int, end: int, row: Callable[[int], Any] = row_at) -> None:
    sink.write(range(start, end), Metas(list(map(meta_at, range(start, end)))), list(map(row, range(start, end))))


def part_name(first: int, last: int) -> str:
    return f"part-{first:015}-{last:015}.parquet"


def opened(sink: Any, resumes: tuple[int, Any] | None = None) -> Any:
    if resumes is not None:
        sink.resume_at(*resumes)
    sink.open()
    return sink


def rows_in(folder: Path) -> list[tuple[int, str | None]]:
    """What a reader sees: positions and days, from each file as it is."""
    found = []
    partitioning = ds.partitioning(pa.schema([("day", pa.string())]), flavor="hive")
    for name in glob.glob("**/*.parquet", root_dir=folder, recursive=True):  # noqa: PTH207 - none that is hidden
        day = ds.get_partition_keys(partitioning.parse(name)).get("day")
        positions = pq.ParquetFile(folder / name).read()["position"].to_pylist()
        assert positions == sorted(positions), "in their order"
        found += [(position, day) for position in positions]
    return sorted(found)


def expected(end: int) -> list[tuple[int, str | None]]:
    return [(position, row_at(position)["day"]) for position in range(end)]


@contextmanager
def changes_dying(calls: int, *, objects: bool) -> Iterator[None]:
    """The process dies before or after one of its calls that change files, and changes nothing from then on."""
    left = [calls]

    places: list[tuple[Any, str]] = [(pq, "write_table"), (ds, "write_dataset")]
    if objects:
        places += [(Remote, name) for name in ("put", "remove")]
    else:
        places += [(os, name) for name in ("rename", "unlink", "mkdir", "rmdir", "fsync")] + [(shutil, "rmtree")]
    with pytest.MonkeyPatch.context() as patch:
        for module, name in places:
            patch.setattr(module, name, dying(getattr(module, name), left))
        yield


@pytest.mark.long
@given(
    deaths=st.lists(st.integers(0, 60), max_size=6),
    steps=st.lists(st.integers(1, 6) | st.none(), min_size=1, max_size=12),
    by=st.sampled_from([None, "day"]),
    part_items=st.integers(1, 9),
    objects=st.booleans(),
)
@settings(deadline=None, max_examples=80)
def test_a_death_at_any_moment_loses_nothing_and_doubles_nothing(
    deaths: list[int], steps: list[int | None], by: str | None, part_items: int, objects: bool
) -> None:
    """Steps are batches, by their numbers of items, or checkpoints. A folder may be handled as an object store is."""
    end, whole = sum(step or 0 for step in steps), by == "day"
    shown = (lambda rows: rows) if whole else (lambda rows: [(position, None) for position, _ in rows])
    taken: Taken = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "out")

        def made() -> Any:
            where = f"local://{folder}" if objects else folder
            options = {"auto_mkdir": True} if objects else None
            return sinks.parquet(where, part_items=part_items, partition_by=by, storage_options=options)

        def run() -> None:
            sink = made()
            try:
                opened(sink, taken[-1] if taken else None)
                write_steps(sink, write, steps, taken)
            finally:
                sink.close()

        def read() -> list[tuple[int, str | None]]:
            found = rows_in(folder)
            assert len({position for position, _ in found}) == len(found), "nothing is there twice"
            return found

        for calls in deaths:
            with changes_dying(calls, objects=objects):
                try:
                    run()
                except Death:
                    pass
            assert set(read()) <= set(shown(expected(end)))
            sink = opened(made())
            stored = -1 if (position := sink.committed_position()) is None else position
            assert not taken or stored >= taken[-1][0] - 1, "what was in a checkpoint is stored"
            visible = read()
            assert visible == shown(expected(len(visible))), "a part is there as a whole"
            sink._parts.close()  # it dies here
        run()
        assert read() == shown(expected(end))
        hidden = [path for path in folder.rglob("*") if path.name[0] == "."]
        assert hidden == []
        if taken:
            assert "unchanged" in made().compare(taken[-1][1])


def test_every_reader_sees_the_partitions(tmp_path: Path) -> None:
    rows = [{"n": n, "day": dt.date(2013, 1, 1 + n % 3), "is_late": n % 2 == 0} for n in range(12)]
    graph = drift.Graph("echo")
    graph.source("rows").sink("out")
    sink = sinks.parquet(tmp_path, partition_by=["day", "is_late"], part_items=5)
    drift.run(graph, {"rows": rows}, sinks={"out": sink}, batch_items=4).finish()
    assert {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*.parquet")} == {
        "day=2013-01-01", "day=2013-01-02", "day=2013-01-03",
    }  # fmt: skip
    found = pl.read_parquet(tmp_path / "**/*.parquet", hive_partitioning=True).sort("n")
    assert found["day"].to_list() == [row["day"] for row in rows]
    by_duckdb = duckdb.sql(f"select n, day, is_late from read_parquet('{tmp_path}/**/*.parquet') order by n").fetchall()
    assert [(n, day) for n, day, _ in by_duckdb] == [(row["n"], row["day"]) for row in rows]
    by_arrow = pq.read_table(tmp_path).sort_by("n")
    assert by_arrow["n"].to_pylist() == list(range(12))
    assert by_arrow["is_late"].cast(pa.string()).to_pylist() == [str(row["is_late"]).lower() for row in rows]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (1.5, "which is double"), (b"x", "which is binary"), ([1], "which is list"), ("", "no folder stands for ''"),
        ("__HIVE_DEFAULT_PARTITION__", "no folder stands for"),
        ("a\0b", r"no folder stands for 'a.x00b'"), (dt.datetime(2013, 1, 1), "which is timestamp"),
    ],
)  # fmt: skip
def test_a_value_by_which_no_folder_can_be_named_is_refused(tmp_path: Path, value: Any, says: str) -> None:
    sink = opened(sinks.parquet(tmp_path, part_items=2, partition_by="day"))
    write(sink, 0, 2, lambda n: {"n": n, "day": None})
    with pytest.raises(SinkError, match=f"positions 2 to 3: partition_by has 'day'.*{says}.*up to 1 are safe"):
        write(sink, 2, 4, lambda n: {"n": n, "day": value})
    sink.close()
    assert rows_in(tmp_path) == [(0, None), (1, None)]
    assert [path for path in tmp_path.iterdir() if path.name[0] == "."] == []


def test_partitions_that_cannot_be_are_refused(tmp_path: Path) -> None:
    wrong_names = ("time", "it is the time of the item"), ("a/b", "another name"), ("a%3Db", "another name")
    for wrong, says in (*wrong_names, (["a", "a"], "differ")):
        with pytest.raises(SettingsError, match=says):
            sinks.parquet(tmp_path, partition_by=wrong)
    for wrong in ({"part_bytes": "2 parsecs"}, {"part_bytes": 0}, {"part_every": "often"}, {"part_every": 0}):
        with pytest.raises(SettingsError, match="part_"):
            sinks.parquet(tmp_path, **wrong)  # type: ignore[arg-type]
    missing = opened(sinks.parquet(tmp_path / "missing", part_items=1, partition_by="hour"))
    with pytest.raises(SinkError, match="the payloads have no such field; the columns are 'position', 'time', 'n'"):
        write(missing, 0, 1)
    missing.close()
    for first, second in ((None, "day"), ("day", None), ("day", ["n", "day"])):
        folder = tmp_path / f"{first} {second}"
        sink = opened(sinks.parquet(folder, partition_by=first))
        write(sink, 0, 3)
        sink.close()
        other = sinks.parquet(folder, partition_by=second)
        with pytest.raises(SinkError, match=r"are partitioned by \["):
            other.open()
        other.close()
        again = opened(sinks.parquet(folder, partition_by=second, resume="replace"))
        write(again, 0, 2)
        again.close()
        assert len(pq.read_table(folder)) == 2


def test_parts_take_about_the_bytes_that_were_asked_for(tmp_path: Path) -> None:
    sink = opened(sinks.parquet(tmp_path, part_bytes="40 KB", partition_by="day"))
    for start in range(0, 400, 5):
        write(sink, start, start + 5, lambda n: {"n": n, "day": "x", "text": random.Random(n).randbytes(500).hex()})
    sink.close()
    sizes = [path.stat().st_size for path in sorted(tmp_path.rglob("*.parquet"))]
    assert len(sizes) == 7 and all(35_000 < size < 50_000 for size in sizes[1:-1]), sizes
    assert [position for position, _ in rows_in(tmp_path)] == list(range(400))


def test_an_item_is_in_a_part_in_time(tmp_path: Path) -> None:
    now_s = [0.0]

    def made() -> Any:
        sink = sinks.parquet(tmp_path, part_every="5 minutes")
        sink._filling.now_s = lambda: now_s[0]  # type: ignore[method-assign]
        return opened(sink)

    def shown(sink: Any, at_s: float) -> int:
        now_s[0] = at_s
        sink.tick()
        return len(rows_in(tmp_path))

    sink = made()
    assert shown(sink, 1000) == 0
    write(sink, 0, 1)
    now_s[0] = 1100
    write(sink, 1, 2)
    sink.commit()
    assert (shown(sink, 1299), shown(sink, 1300)) == (0, 2), "from the first of them on"
    write(sink, 2, 3)
    assert (shown(sink, 1599), shown(sink, 1600), shown(sink, 9999)) == (2, 3, 3)
    write(sink, 3, 4)
    sink.commit()
    sink._parts.close()  # it dies here
    again = made()
    assert (shown(again, 10_298), shown(again, 10_299)) == (3, 4), "items of an earlier run are due as well"
    again.close()


def test_a_sink_hears_that_time_passes_while_nothing_is_released(tmp_path: Path) -> None:
    sink = opened(sinks.parquet(tmp_path, part_every=1))
    write(sink, 0, 1)
    sink._filling.now_s = lambda: 1e12  # type: ignore[method-assign]
    Sinks({"out": sink}).take(Released(1, Metas(), [], ""))
    assert len(rows_in(tmp_path)) == 1
    sink.close()


@pytest.mark.parametrize("engine", ["local", "zeromq"])
def test_a_live_run_makes_readable_files_while_nothing_comes(tmp_path: Path, engine: str) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(f'{{"t": {n}, "day": "x"}}\n' for n in range(5)))
    graph = drift.Graph("echo")
    graph.source("rows").sink("out")
    sink = sinks.parquet(tmp_path / "out", part_every=20, partition_by="day")
    run = drift.run(graph, {"rows": sources.jsonl(source, follow=True)}, sinks={"out": sink}, engine=engine)
    running = threading.Thread(target=run.finish)
    running.start()
    try:
        wait_until(lambda: list((tmp_path / "out").glob("day=x/*.parquet")), "a part, while nothing comes")
        shown = rows_in(tmp_path / "out")
    finally:
        run.stop()
        running.join()
    assert shown and shown == [(n, "x") for n in range(len(shown))], "before the end"
    assert [position for position, _ in rows_in(tmp_path / "out")] == list(range(5))


def test_a_part_that_cannot_be_moved_is_not_written_again_beside_it(tmp_path: Path) -> None:
    sink = opened(sinks.parquet(tmp_path, part_items=8, partition_by="day"))
    write(sink, 0, 5)
    committed = sink.commit()
    (tmp_path / "day=2013-01-02").write_text("somebody has a file of this name")
    with pytest.raises(SinkError, match=r"positions 5 to 8: .*exists"):
        write(sink, 5, 9)
    sink.close()
    assert rows_in(tmp_path) == [(0, "2013-01-01")], "of what was begun, and not twice"
    (tmp_path / "day=2013-01-02").unlink()
    again = opened(sinks.parquet(tmp_path, part_items=8, partition_by="day"), (5, committed))
    assert again.committed_position() == 4
    write(again, 5, 9)
    again.close()
    assert rows_in(tmp_path) == expected(9)


@pytest.mark.parametrize("removes", [False, True])
def test_a_part_stays_as_it_is_where_its_hidden_files_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removes: bool
) -> None:
    sink = opened(sinks.parquet(tmp_path, part_items=8))
    write(sink, 0, 5)
    sink.commit()

    def refuse(parts: Parts, names: Any) -> None:
        for name in names if removes else ():
            (tmp_path / name).unlink()
        raise OSError("no space left")

    with monkeypatch.context() as patch, pytest.raises(SinkError, match=r"no space left; .* up to position 8 are safe"):
        patch.setattr(Parts, "remove", refuse)
        write(sink, 5, 9)
    sink.close()
    assert [position for position, _ in rows_in(tmp_path)] == list(range(9))
    again = opened(sinks.parquet(tmp_path, part_items=8))
    assert [path.name for path in tmp_path.iterdir()] == [part_name(0, 8)]
    again.close()


def test_a_part_that_is_there_after_an_error_has_its_items_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = opened(sinks.parquet(tmp_path, part_items=8))
    write(sink, 0, 5)
    sink.commit()
    put = Local.put

    def failing(storage: Local, file: Path, path: str) -> None:
        put(storage, file, path)
        raise OSError("no answer")

    with monkeypatch.context() as patch, pytest.raises(SinkError, match="positions 5 to 8: no answer"):
        patch.setattr(Local, "put", failing)
        write(sink, 5, 9)
    sink.close()
    again = opened(sinks.parquet(tmp_path, part_items=8))
    write(again, 0, 12)
    again.close()
    assert [position for position, _ in rows_in(tmp_path)] == list(range(12))


def test_a_folder_that_cannot_be_read_ends_a_run_at_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = opened(sinks.parquet(tmp_path, part_items=2))
    write(sink, 0, 2)

    def refuse(parts: Parts, pattern: Any) -> None:
        raise OSError("no answer")

    with monkeypatch.context() as patch, pytest.raises(SinkError, match="cannot be read: no answer"):
        patch.setattr(Parts, "files", refuse)
        sink.commit()
    sink.close()


def in_six_parts(folder: Path, by: str | None, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], list[str]]:
    """By two runs; what they have committed behind each part, and the files that they have read to hash them."""
    committed, hashed = list[Any](), list[str]()
    whole = Parts.hash
    with monkeypatch.context() as patch:
        patch.setattr(Parts, "hash", lambda parts, name: (hashed.append(name), whole(parts, name))[1])
        for begin, end in ((0, 8), (8, 12)):
            sink = opened(
                sinks.parquet(folder, part_items=2, partition_by=by), (begin, committed[-1]) if begin else None
            )
            for start in range(begin, end, 2):
                write(sink, start, start + 2)
                committed.append(sink.commit())
            sink.close()
    return committed, hashed


def test_a_checkpoint_does_not_grow_with_the_parts_and_reads_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed, hashed = in_six_parts(tmp_path, None, monkeypatch)
    assert hashed == [part_name(6, 7)]  # the last one, when the second run writes one behind it
    assert all(len(str(each)) < 200 and not each["files"] for each in committed)
    again = opened(sinks.parquet(tmp_path, part_items=2), (4, committed[1]))  # what is behind it is there
    write(again, 4, 12)
    assert again.commit() == committed[-1]
    again.close()
    assert all("rows as of the checkpoint unchanged" in sinks.parquet(tmp_path).compare(each) for each in committed)  # type: ignore[attr-defined]


@pytest.mark.parametrize("how", ["removed", "changed", "written by others"])
@pytest.mark.parametrize("by", [None, "day"])
@pytest.mark.parametrize("at", [0, 3, 5])
def test_a_part_that_was_removed_or_changed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, by: str | None, how: str
) -> None:
    committed, _ = in_six_parts(tmp_path, by, monkeypatch)
    part = part_name(2 * at, 2 * at + 1)
    *_, path = files = sorted(tmp_path.rglob(part))
    table = pq.ParquetFile(path).read()
    path.unlink()
    if how != "removed":
        changed = table.set_column(table.column_names.index("n"), "n", pc.add(table["n"], 1))
        pq.write_table(
            changed.replace_schema_metadata(None if how == "written by others" else table.schema.metadata), path
        )
    gone = how == "removed" and len(files) == 1
    says = f"{'the part up to position 11' if at == 5 else part} is gone;" if gone else f"{part} was changed;"
    for upto, each in enumerate(committed):
        if upto < at:
            assert "unchanged" in sinks.parquet(tmp_path).compare(each)  # type: ignore[attr-defined]
        else:
            with pytest.raises(SinkError, match=f"as of the checkpoint: {says}"):
                sinks.parquet(tmp_path).compare(each)  # type: ignore[attr-defined]


def test_a_part_that_somebody_has_added_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed, _ = in_six_parts(tmp_path, None, monkeypatch)
    shutil.copy(tmp_path / part_name(2, 3), tmp_path / part_name(3, 3))
    with pytest.raises(SinkError, match=f"as of the checkpoint: {part_name(3, 3)} was added;"):
        sinks.parquet(tmp_path).compare(committed[-1])  # type: ignore[attr-defined]


def test_of_a_hidden_file_that_came_into_partitions_all_items_are_compared(tmp_path: Path) -> None:
    sink = opened(sinks.parquet(tmp_path, partition_by="day"))
    write(sink, 0, 9)
    committed = sink.commit()
    write(sink, 9, 12)
    sink.close()
    compared = sinks.parquet(tmp_path)
    assert "unchanged" in compared.compare(committed)
    (part,) = (tmp_path / "day=2013-01-01").iterdir()
    part.unlink()
    with pytest.raises(SinkError, match=r"had 9 items, and . are there"):
        compared.compare(committed)


def test_the_command_writes_partitions_and_reads_them(tmp_path: Path) -> None:
    dataflow, out = tmp_path / "rows.py", tmp_path / "out.parquet"
    dataflow.write_text("import drift\ngraph = drift.Graph('rows')\ngraph.source('rows').sink('out')\n")
    (tmp_path / "in.jsonl").write_text("".join(f'{{"n": {n}, "day": "{n % 2}", "h": {n % 3}}}\n' for n in range(12)))

    def command(source: str, sink: str) -> Any:
        return CliRunner().invoke(commands, ["run", f"{dataflow}:graph", "--quiet", "--source", source, "--sink", sink])

    options = "partition_by=day,h&part_items=5&part_bytes=1MB&part_every=5m"
    done = command(f"{tmp_path}/in.jsonl", f"{out}?{options}")
    assert done.exit_code == 0, done.output
    assert len(list(out.glob("day=*/h=*"))) == 6
    done = command(f"hive:{out}", f"{tmp_path}/again.jsonl")
    assert done.exit_code == 0, done.output
    lines = [json.loads(line)["payload"] for line in (tmp_path / "again.jsonl").read_text().splitlines()]
    assert sorted((row["n"], row["day"], row["h"]) for row in lines) == [(n, str(n % 2), str(n % 3)) for n in range(12)]
    for wrong in ("part_items=many", "partition=day", "part_bytes=0"):
        done = command(f"{tmp_path}/in.jsonl", f"parquet:{out}?{wrong}")
        assert done.exit_code == 2 and wrong.partition("=")[0] in done.output


def test_partitions_that_appear_are_followed(tmp_path: Path) -> None:
    sink = opened(sinks.parquet(tmp_path, part_items=2, partition_by="day"))
    reader: Any = sources.parquet(tmp_path, hive=True, follow=True).open()
    found: list[Any] = []
    try:
        for n in range(6):
            write(sink, n, n + 1, lambda n: {"n": n, "day": f"2013-01-{n // 2:02}"})
            if n % 2:
                while len(found) <= n:
                    found += reader.read(7)
    finally:
        reader.close()
        sink.close()
    assert [(row["n"], row["day"]) for row in found] == [(n, f"2013-01-{n // 2:02}") for n in range(6)]


def test_partitions_are_read_back_as_fields(tmp_path: Path) -> None:
    sink = opened(sinks.parquet(tmp_path / "env=prod" / "out", part_items=4, partition_by=["day", "hour"]))
    write(sink, 0, 9, lambda n: {**row_at(n), "hour": n % 2})
    sink.close()
    folder = tmp_path / "env=prod" / "out"
    types = {"hour": pa.int64()}
    rows = sorted(drained(sources.parquet(folder, hive=types, columns=["n", "hour", "day"])), key=lambda row: row["n"])
    assert rows == [{"n": n, "hour": n % 2, "day": row_at(n)["day"]} for n in range(9)]
    for form in ("dict", "rows"):
        texts = drained(sources.parquet(folder, hive=True, payload=form))  # type: ignore[arg-type]
        assert list(texts[0]) == ["position", "time", "n", "day", "hour"]
        assert {row["n"]: row["hour"] for row in texts} == {n: str(n % 2) for n in range(9)}
    days = drained(sources.parquet(folder, hive=True, columns=["day"], payload="value"))
    assert sorted(map(str, days)) == sorted(str(row_at(n)["day"]) for n in range(9))
    pattern = drained(sources.parquet(tmp_path / "env=prod" / "out" / "day=2013*" / "*" / "*.parquet", hive=True))
    assert {row["env"] for row in pattern} == {"prod"} and {row["day"] for row in pattern} <= set(DAYS)
    with pytest.raises(drift.InputError, match="folders are not of the types that hive has"):
        drained(sources.parquet(folder, hive={"day": pa.int64()}))
    with pytest.raises(drift.InputError, match="is in no folder week=VALUE"):
        drained(sources.parquet(folder, hive={"week": pa.int64()}))


def test_names_and_numbers_of_the_folders_of_spark_are_read(tmp_path: Path) -> None:
    for name, value in (("a%3Ab", "1.50"), ("a%3Ab", "__HIVE_DEFAULT_PARTITION__"), ("a%3Ab", "-3.00")):
        folder = tmp_path / f"{name}={value}" / "50%25=\u00e9 %25C3%3D"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"n": [1]}), folder / "part.parquet")
    decimals = drained(sources.parquet(tmp_path, hive={"a:b": pa.decimal128(10, 2)}))
    assert [repr(row["a:b"]) for row in decimals] == ["Decimal('-3.00')", "Decimal('1.50')", "None"]
    texts = drained(sources.parquet(tmp_path, hive=True))
    assert texts[0] == {"n": 1, "a:b": "-3.00", "50%": "\u00e9 %C3="}
    assert [row["a:b"] for row in texts] == ["-3.00", "1.50", None]
    for kind in (pa.decimal128(3, 0), pa.int64()):
        with pytest.raises(drift.InputError, match="folders are not of the types that hive has"):
            drained(sources.parquet(tmp_path, hive={"a:b": kind}))


@pytest.mark.parametrize("size", [1, 1000])
def test_a_column_that_is_in_the_file_and_in_the_name_of_its_folder_has_one_value(tmp_path: Path, size: int) -> None:
    def put(folder: str, table: dict[str, Any]) -> None:
        (tmp_path / folder).mkdir()
        pq.write_table(pa.table(table), tmp_path / folder / "a.parquet", row_group_size=size)

    put("day=2", {"n": [1, 2], "day": [2, 2]})
    put("day=__HIVE_DEFAULT_PARTITION__", {"n": [3], "day": pa.array([None], pa.string())})
    assert drained(sources.parquet(tmp_path, hive=True)) == [
        {"n": 1, "day": 2},
        {"n": 2, "day": 2},
        {"n": 3, "day": None},
    ]
    put("day=3", {"n": [4, 5, 6], "day": [3, 4, None]})
    put("day=4", {"n": [7], "day": ["no number"]})
    graph = drift.Graph("days")
    graph.source("days").sink("out")
    for engine in ("reference", "local"):
        run = drift.run(graph, {"days": sources.parquet(tmp_path, hive=True)}, engine=engine)
        with pytest.raises(drift.InputError, match=r"row 1 of .*a\.parquet has day=4, and its folder's name another"):
            list(run)
        assert run.report.items_out == 3
    assert len(drained(sources.parquet(tmp_path, columns=["n"], hive=True))) == 7
    assert len(drained(sources.parquet(f"{tmp_path}/*/*.parquet"))) == 7


@pytest.mark.parametrize("partition_by", [[], ["day"]])
def test_other_readers_find_rows_with_nan_in_what_a_sink_wrote(tmp_path: Path, partition_by: list[str]) -> None:
    sink = opened(sinks.parquet(tmp_path / "out", partition_by=partition_by))
    write(sink, 0, 4, lambda n: {"day": "d", "x": (1.0, float("nan"), 2.0, 3.0)[n], "y": float(n), "l": [float(n)]})
    sink.close()
    files = f"{tmp_path}/out/**/*.parquet"
    assert duckdb.sql(f"SELECT position FROM '{files}' WHERE x > 5").fetchall() == [(1,)]
    (file,) = glob.glob(files, recursive=True)  # noqa: PTH207
    group = pq.read_metadata(file).row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    assert {each.path_in_schema for each in columns if each.statistics is not None} >= {"position", "y"}


def test_a_reader_of_partitions_goes_on_from_its_position(tmp_path: Path) -> None:
    sink = opened(sinks.parquet(tmp_path, partition_by="day"))
    write(sink, 0, 40)
    sink.close()
    (tmp_path / "_SUCCESS").write_text("")
    whole = drained(sources.parquet(tmp_path, hive=True))
    for count in (0, 7, 25, 40):
        first: Any = sources.parquet(tmp_path, hive=True).open()
        taken: list[Any] = []
        while len(taken) < count:
            taken += first.read(count - len(taken)) or []
        position = first.position()
        first.close()
        again: Any = sources.parquet(tmp_path, hive=True).open()
        again.seek(position)
        assert taken + rest_of(again) == whole


def test_a_column_that_the_file_has_itself_is_not_taken_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "day=2013-01-01").mkdir()
    pq.write_table(pa.table({"day": [dt.date(2013, 1, 1)], "n": [1]}), tmp_path / "day=2013-01-01" / "a.parquet")
    assert drained(sources.parquet(tmp_path, hive=True)) == [{"day": dt.date(2013, 1, 1), "n": 1}]


def drained(source: Any) -> list[Any]:
    return rest_of(source.open())


def rest_of(reader: Any) -> list[Any]:
    found: list[Any] = []
    try:
        while (some := reader.read(7)) is not None:
            found += some
        return found
    finally:
        reader.close()


@pytest.mark.parametrize("by", [None, "day"])
@pytest.mark.parametrize("when", ["before it was opened", "by this run", "hidden"])
def test_no_checkpoint_has_what_the_folder_has_lost(by: str | None, when: str, tmp_path: Path) -> None:
    sink = opened(sinks.parquet(tmp_path, part_items=4, partition_by=by))
    write(sink, 0, 4)
    if when == "before it was opened":
        sink.close()
        sink = opened(sinks.parquet(tmp_path, part_items=4, partition_by=by))
    write(sink, 4, 8 if when == "by this run" else 6)
    if when == "hidden":
        sink.commit()
    lost = {"before it was opened": "part-*0-*3.parquet", "by this run": "part-*4-*7.parquet", "hidden": ".waiting-*"}
    gone = next(tmp_path.rglob(lost[when]))
    gone.unlink()
    for check in sink.commit, sink.complete:
        with pytest.raises(drift.SinkError, match=f"had .*{re.escape(gone.name)}, and now it is gone"):
            check()
    sink._parts.close()
