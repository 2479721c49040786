"""Sources and sinks beyond lines: each sink holds every item once, whatever was broken off, and sources read it again.

The servers are real: Redis, Postgres, and librdkafka's mock of a cluster.
"""

from __future__ import annotations

import csv
import json
import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis as redis_client
from click.testing import Result
from hypothesis import given, settings
from hypothesis import strategies as st
from servers import Kafka
from sourced import drained
from test_records_cli import call

import drift
from drift import InputError, SettingsError, SinkError, sinks, sources
from drift.sinks import Sink, as_sink
from drift.sinks.base import Committing
from drift.sinks.lines import JsonLinesSink
from drift_graph.meta import global_time
from drift_graph.metas import Metas

ROOT = Path(__file__).parents[2]
numbers = count()


class Row(NamedTuple):
    word: str
    n: int


class Target(NamedTuple):
    """Attributes:
    sink: makes the sink, with options.
    content: what is there: position, word, n.
    """

    sink: Callable[..., Sink]
    content: Callable[[], list[tuple[int, str, int]]]


def rows_of(length: int) -> list[Row]:
    return [Row(f"w{n % 3}", n) for n in range(length)]


def content_of(length: int) -> list[tuple[int, str, int]]:
    return [(n, f"w{n % 3}", n) for n in range(length)]


FILES = ["jsonl", "csv", "parquet", "parquet by word", "delta"]
TARGETS = [
    *FILES,
    "sqlite",
    "postgres",
    "redis",
    "kafka beside others",
    "kafka",
]  # of these, Kafka takes seconds to begin
by_key_too = pytest.mark.parametrize("target", [*TARGETS, "kafka by key"], indirect=True)


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    name = f"out{next(numbers)}"
    of = request.getfixturevalue
    if request.param == "jsonl":
        path = tmp_path / "out.jsonl"

        def in_jsonl() -> list[tuple[int, str, int]]:
            rows = map(json.loads, path.read_text().splitlines())
            return [(row["position"], *row["payload"]) for row in rows]

        yield Target(lambda **more: sinks.jsonl(path, **more), in_jsonl)
    elif request.param == "csv":
        path = tmp_path / "out.csv"

        def in_csv() -> list[tuple[int, str, int]]:
            with path.open(newline="") as file:
                return [(int(row["position"]), row["word"], int(row["n"])) for row in csv.DictReader(file)]

        yield Target(lambda **more: sinks.csv(path, **more), in_csv)
    elif request.param == "parquet":
        folder = tmp_path / "out.parquet"

        def in_parquet() -> list[tuple[int, str, int]]:
            table = pq.read_table(folder)
            return list(zip(*(table.column(name).to_pylist() for name in ("position", "word", "n"))))

        yield Target(lambda **more: sinks.parquet(folder, part_items=7, **more), in_parquet)
    elif request.param == "parquet by word":
        folder = tmp_path / "out.parquet"

        def in_partitions() -> list[tuple[int, str, int]]:
            table = pq.read_table(folder)
            return sorted(zip(*(table.column(name).to_pylist() for name in ("position", "word", "n"))))

        yield Target(lambda **more: sinks.parquet(folder, part_items=7, partition_by="word", **more), in_partitions)
    elif request.param == "delta":
        pytest.importorskip("deltalake")
        folder = tmp_path / "lake"

        def in_delta() -> list[tuple[int, str, int]]:
            return sorted(drained(sources.delta(folder, columns=["position", "word", "n"], payload="tuple"))[0])

        yield Target(lambda **more: sinks.delta(folder, part_items=7, **more), in_delta)
    elif request.param == "sqlite":
        path = tmp_path / "out.db"

        def in_sqlite() -> list[tuple[int, str, int]]:
            with sqlite3.connect(path) as connection:
                return connection.execute(f"select position, word, n from {name}").fetchall()

        yield Target(lambda **more: sinks.sqlite(path, name, **more), in_sqlite)
    elif request.param == "postgres":
        url = of("postgres_url")

        def in_postgres() -> list[tuple[int, str, int]]:
            with psycopg.connect(url) as connection:
                return connection.execute(f"select position, word, n from {name} order by 1".encode()).fetchall()

        yield Target(lambda **more: sinks.postgres(url, name, **more), in_postgres)
    elif request.param == "redis":
        url = of("redis_url")

        def in_redis() -> list[tuple[int, str, int]]:
            with redis_client.Redis.from_url(url, decode_responses=True) as client:
                entries: Any = client.xrange(name)
            return [(int(entry[:-2]) - 1, *json.loads(fields["payload"])) for entry, fields in entries]

        yield Target(lambda **more: sinks.redis(url, name, **more), in_redis)
    else:
        cluster: Kafka = of("kafka")
        topic = cluster.topic(name)
        key = (lambda row: row.word) if request.param == "kafka by key" else None

        def in_kafka() -> list[tuple[int, str, int]]:
            source = sources.kafka(cluster.servers, topic, decode="json", until_end=True)
            return sorted((n, word, n) for word, n in drained(source)[0] if word != "foreign")

        def in_topic(**more: Any) -> Any:
            if request.param != "kafka beside others":
                return sinks.kafka(cluster.servers, topic, key=key, **more)
            cluster.send(topic, dict.fromkeys(range(2), [b'["foreign",0]'] * 3))
            return sinks.kafka(cluster.servers, topic, writer="ours", **more)

        yield Target(in_topic, in_kafka)


def echo(*more: str) -> drift.Graph:
    graph = drift.Graph("echo")
    rows = graph.source("rows")
    for name in ("out", *more):
        rows.sink(name)
    return graph


def run(target: Target, length: int, batch_items: int = 5, **more: Any) -> drift.Run:
    return drift.run(echo(), {"rows": rows_of(length)}, sinks={"out": target.sink(**more)}, batch_items=batch_items)


@by_key_too
def test_a_sink_holds_every_item_once(target: Target) -> None:
    run(target, 20).finish()
    assert target.content() == content_of(20)
    run(target, 20, batch_items=3).finish()  # a rerun finds all of it there
    assert target.content() == content_of(20)


@pytest.mark.parametrize(
    ("target", "batches"),
    [
        *((target, batches) for target in TARGETS[:-2] for batches in (1, 2, 3)),
        *((target, 2) for target in ("kafka", "kafka by key", "kafka beside others")),
    ],
    indirect=["target"],
)
def test_a_run_that_was_broken_off_is_continued_by_the_next(target: Target, batches: int) -> None:
    broken = run(target, 20)
    released = broken.batches()
    for _ in range(batches):
        next(released)
    broken.close()
    there = target.content()
    assert there == content_of(len(there)) and len(there) < 20
    run(target, 20, batch_items=4).finish()
    assert target.content() == content_of(20)
    run(target, 33, batch_items=6).finish()  # with more input it goes on
    assert target.content() == content_of(33)


def test_a_function_that_raises_leaves_what_is_before_it(target: Target) -> None:
    graph = drift.Graph("bad")
    graph.source("rows").map(lambda row: Row(row.word, row.n + 0 * (10 // (12 - row.n)))).sink("out")
    with pytest.raises(drift.StepError):
        drift.run(graph, {"rows": rows_of(20)}, sinks={"out": target.sink()}, batch_items=5).finish()
    assert [n for n, _, _ in target.content()] == list(range(12))


def test_another_output_and_one_that_ends_before_are_refused_and_left_as_it_is(target: Target) -> None:
    run(target, 20).finish()
    other = drift.Graph("other")
    other.source("rows").flat_map(lambda row: [row, row]).sink("out")
    with pytest.raises(SinkError, match=r"it is not what this run gives|this run does not give"):
        drift.run(other, {"rows": rows_of(20)}, sinks={"out": target.sink()}).finish()
    with pytest.raises(SinkError, match=r"the output of this run ends"):
        run(target, 7).finish()
    assert target.content() == content_of(20)


def test_what_is_there_can_be_refused_or_replaced(target: Target, request: pytest.FixtureRequest) -> None:
    run(target, 20).finish()
    with pytest.raises(SinkError, match=r"resume='continue'"):
        run(target, 20, resume="error").finish()
    with pytest.raises(SettingsError, match="resume='over' is neither 'continue' nor"):
        target.sink(resume="over")
    if "kafka" in request.node.name:
        with pytest.raises(SettingsError, match="what Kafka has nobody can replace"):
            target.sink(resume="replace")
        return
    run(target, 7, resume="replace").finish()
    assert target.content() == content_of(7)


@by_key_too
def test_a_sink_reports_the_last_position_that_is_safe(target: Target, request: pytest.FixtureRequest) -> None:
    run(target, 20).finish()
    sink: Any = target.sink()
    sink.open()
    found = sink.committed_position()
    sink.close()
    if "by key" in request.node.name:
        assert found is None or found < 19  # of the partition behind
    else:
        assert found == (None if compares(sink) else 19)


def compares(sink: Any) -> bool:
    """Whether a sink knows what it has only once a run has compared it."""
    return isinstance(sink, JsonLinesSink)


def test_what_a_sink_and_a_source_guarantee_is_data_on_the_class() -> None:
    for module in (sinks, sources):
        for name in module.__all__:
            made = getattr(module, name)
            if name[0].islower() and not name.startswith(("as_", "registry_")):
                kinds = [each for each in vars(sys.modules[made.__module__]).values() if hasattr(each, "guarantee")]
                is_given_one = made.__annotations__["return"] == "PolledSource"  # which is not made without
                assert kinds or is_given_one, f"{name} states no guarantee"


def write(sink: Sink, start: int, end: int) -> None:
    for at in range(start, end, 3):
        ids = range(at, min(at + 3, end))
        sink.write(ids, Metas([global_time(id, 0, 0, 0) for id in ids]), [rows_of(id + 1)[id] for id in ids])


@by_key_too
def test_a_sink_resumes_from_a_checkpoint_whatever_was_written_after_it(
    target: Target, request: pytest.FixtureRequest
) -> None:
    of_kafka = "kafka" in request.node.name  # which takes seconds to begin
    by_key = "by key" in request.node.name  # its position is that of the partition that is furthest behind
    for written in (14,) if of_kafka else (9, 14, 20):
        sink: Any = target.sink() if of_kafka else target.sink(resume="replace")
        assert isinstance(sink, Committing)
        sink.open()
        write(sink, 0, 9)
        committed = json.loads(json.dumps(sink.commit()))
        assert sink.committed_position() == 8 or by_key
        write(sink, 9, written)
        sink.close()
        again: Any = target.sink(resume="error")  # what a sink does with what it finds is no matter here
        again.resume_at(9, committed)
        again.open()
        assert again.committed_position() == (8 if compares(sink) else written - 1) or by_key
        write(again, 9, 20)
        again.complete()
        again.close()
        assert target.content() == content_of(20)


def test_a_sink_that_has_all_below_a_checkpoint_is_complete_where_nothing_comes_after_it(target: Target) -> None:
    sink: Any = target.sink()
    sink.open()
    write(sink, 0, 9)
    committed = sink.commit()
    sink.close()
    again: Any = target.sink()
    again.resume_at(50, committed)  # what is between is of other sinks
    again.open()
    again.complete()
    again.close()
    assert target.content() == content_of(9)


def test_a_sink_that_has_lost_items_since_a_checkpoint_refuses_to_resume(
    target: Target, request: pytest.FixtureRequest
) -> None:
    sink: Any = target.sink()
    sink.open()
    write(sink, 0, 9)
    early = sink.commit()
    write(sink, 9, 12)
    committed = sink.commit()
    sink.close()
    if "kafka" not in request.node.name:
        again: Any = target.sink(resume="replace")
        again.open()
        write(again, 0, 3)
        again.close()
        lost: Any = target.sink()
        lost.resume_at(12, committed)
        with pytest.raises(SinkError, match="what is missing is not computed again: bring"):
            lost.open()
        lost.close()
        assert target.content() == content_of(3)
        return
    other: Any = target.sink()
    other.resume_at(15, early)  # of another run: there is more below the checkpoint than it says
    with pytest.raises(SinkError, match="that this run does not give"):
        other.open()
    other.close()
    with pytest.raises(SinkError, match="which is of another sink or version"):
        other.resume_at(12, {"v": 99})
        other.open()


def changed(sink: Any, change: str) -> None:
    """SQL for the table of a sink."""
    make, where = (psycopg.connect, sink._url) if hasattr(sink, "_url") else (sqlite3.connect, sink._path)
    connection: Any = make(where)
    connection.execute(change.format(sink._table))
    connection.commit()
    connection.close()


@pytest.mark.parametrize("target", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("update {} set n = n + 1 where position = 4", "had 9 rows as of the checkpoint, and they have another hash"),
        ("delete from {} where position = 4", "had 9 rows as of the checkpoint, and now it has 8"),
        ("update {} set word = 'w0' where position = 8", "another hash"),
    ],
)
def test_a_row_that_was_changed_below_a_checkpoint_is_found_on_request(target: Target, change: str, says: str) -> None:
    sink: Any = target.sink()
    sink.open()
    write(sink, 0, 3)
    sink.commit()
    write(sink, 3, 9)
    early = json.loads(json.dumps(sink.commit()))
    write(sink, 9, 12)
    sink.close()
    assert target.sink().compare(early).endswith("has its 9 rows as of the checkpoint unchanged")  # type: ignore[attr-defined]
    again: Any = target.sink()
    again.resume_at(9, early)
    again.open()
    write(again, 9, 19)
    late = json.loads(json.dumps(again.commit()))
    write(again, 19, 20)
    again.close()
    assert "has its 19 rows" in target.sink().compare(late)  # type: ignore[attr-defined]
    changed(again, change.replace("= 4", "= 12"))
    if "= 8" not in change:
        assert "has its 9 rows" in target.sink().compare(early)  # type: ignore[attr-defined]
    changed(again, change)
    for committed, said in ((early, says), (late, "another hash|now it has 17")):
        with pytest.raises(SinkError, match=said):
            target.sink().compare(committed)  # type: ignore[attr-defined]
    by_statement = sinks.sqlite("none", "none", statement="insert into t values (1)")
    assert "cannot be compared" in by_statement.compare({**early, "rows": None})


values = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(),
    st.binary(),
    st.none(),
    st.booleans(),
    st.lists(st.floats()),
)


@settings(deadline=None, max_examples=60)
@given(payloads=st.lists(st.tuples(values, values), min_size=2, max_size=20), typed=st.booleans(), data=st.data())
def test_rows_are_compared_as_the_database_has_them(
    payloads: list[tuple[Any, Any]], typed: bool, data: st.DataObject
) -> None:
    """Whether they are summed up as they are written or as they are read back."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/out.db"
        if typed:
            with closing(sqlite3.connect(path)) as made:
                made.execute("create table t (position integer primary key, time integer, a text, b real)")
        sink: Any = sinks.sqlite(path, "t", columns=["a", "b"])
        sink.open()
        payloads = [*payloads, (float("nan"), [float("nan")])]
        start = 0
        while start < len(payloads):
            end = len(payloads) if start == len(payloads) - 1 else data.draw(st.integers(start + 1, len(payloads) - 1))
            sink.write(
                range(start, end), Metas([global_time(n, 0, 0, 0) for n in range(start, end)]), payloads[start:end]
            )
            start = end
            if start >= len(payloads) - 1 or data.draw(st.booleans()):
                committed = sink.commit()
        sink.close()
        assert f"has its {len(payloads)} rows" in sink.compare(committed)


@pytest.mark.parametrize("where", ["part", "hidden", "part of hidden"])
def test_a_byte_of_a_part_that_was_flipped_below_a_checkpoint_is_found_on_request(tmp_path: Path, where: str) -> None:
    sink: Any = sinks.parquet(tmp_path, part_items=6)
    sink.open()
    write(sink, 0, 9)
    committed = json.loads(json.dumps(sink.commit()))
    if where == "part of hidden":
        write(sink, 9, 12)
    pattern = {"part": "part-*0-*5.parquet", "hidden": ".waiting*"}.get(where, "part-*6-*.parquet")
    (path,) = tmp_path.glob(pattern)
    whole = path.read_bytes()
    assert "unchanged" in sinks.parquet(tmp_path).compare(committed)  # type: ignore[attr-defined]
    column = pq.read_metadata(path).row_group(0).column(3)
    end_of_column = (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size
    at = end_of_column - 1 if where == "part of hidden" else len(whole) // 3
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(SinkError, match=r"as of the checkpoint.*(another hash|was changed|CRC|corrupt|checksum)"):
        sinks.parquet(tmp_path).compare(committed)  # type: ignore[attr-defined]
    path.unlink()
    with pytest.raises(SinkError, match=r"had 6 rows as of the checkpoint, and now it has 0|is gone"):
        sinks.parquet(tmp_path).compare(committed)  # type: ignore[attr-defined]
    path.write_bytes(whole)
    sink.close()


def test_items_that_no_part_has_are_safe_once_committed(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    sink: Any = sinks.parquet(folder, part_items=8)
    sink.open()
    for start in (0, 3, 6):
        write(sink, start, start + 2)
        committed = sink.commit()
    write(sink, 8, 9)
    sink._parts.close()  # it dies here
    assert sorted(path.name for path in folder.iterdir() if path.name[0] != ".") == []
    again: Any = sinks.parquet(folder, part_items=8)
    again.resume_at(8, committed)
    again.open()
    assert again.committed_position() == 7
    write(again, 8, 12)
    again.close()
    (first, second) = sorted(path.name for path in folder.iterdir())
    assert first == "part-000000000000000-000000000000010.parquet" and second.startswith("part-000000000000011")
    found = pq.read_table(folder).column("position").to_pylist()
    assert found == [0, 1, 3, 4, 6, 7, 8, 9, 10, 11]


def test_a_function_that_reports_what_it_has_is_called_with_what_is_behind_it() -> None:
    class Store:
        def __init__(self) -> None:
            self.rows: list[tuple[int, int]] = []

        def __call__(self, item: drift.Item[int]) -> None:
            self.rows.append((item.position, item.payload))

        def committed_position(self) -> int | None:
            return self.rows[-1][0] if self.rows else None

    store = Store()
    for length in (5, 8, 8):
        drift.run(echo(), {"rows": range(length)}, sinks={"out": store}, batch_items=3).finish()
        assert store.rows == [(n, n) for n in range(length)]
    assert as_sink("out", store).guarantee.delivers == "exactly once"  # type: ignore[attr-defined]
    assert as_sink("out", print).guarantee.delivers == "at least once"  # type: ignore[attr-defined]


def test_a_run_that_is_stopped_before_an_earlier_one_came_leaves_what_is_there(target: Target) -> None:
    run(target, 20).finish()
    stopped = run(target, 20)
    batches = stopped.batches()
    next(batches)
    stopped.stop()
    list(batches)
    assert stopped.report.items_out < 20
    assert target.content() == content_of(20)


# What each has of its own.


def test_values_keep_their_types_in_postgres_and_statements_change_tables(postgres_url: str) -> None:
    import datetime
    from decimal import Decimal

    rows: list[dict[str, Any]] = [
        {
            "n": 2**40, "x": 0.5, "ok": True, "word": "a\tb\n\\", "raw": b"\0\xff", "paid": Decimal("1.50"),
            "at": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), "day": datetime.date(2024, 1, 1),
            "parts": [1, {"a": None}], "naive": datetime.datetime(2024, 1, 1, 5),
        },
        dict.fromkeys(("n", "x", "ok", "word", "raw", "paid", "at", "day", "parts", "naive")),
    ]  # fmt: skip
    drift.run(echo(), {"rows": rows}, sinks={"out": sinks.postgres(postgres_url, "types")}).finish()
    with psycopg.connect(postgres_url) as connection:
        connection.execute("set time zone 'UTC'")
        cursor = connection.execute("select * from types order by position")
        names = [column.name for column in cursor.description or ()]
        found = [dict(zip(names, row)) for row in cursor]
    assert [{name: row[name] for name in rows[0]} for row in found] == rows
    with psycopg.connect(postgres_url) as connection:
        connection.execute("create table counted (word text primary key, n bigint)")
    counts = drift.Graph("counts")
    counts.source("words").count(key=str).sink("out")
    upsert = "insert into counted values (%(word)s, %(n)s) on conflict (word) do update set n = excluded.n"
    words = {"words": ["a", "b", "a", "a"]}
    for _ in range(2):
        sink = sinks.postgres(postgres_url, "counted", columns=["word", "n"], statement=upsert)
        drift.run(counts, words, sinks={"out": sink}, batch_items=2).finish()
        with psycopg.connect(postgres_url) as connection:
            assert connection.execute("select * from counted order by 1").fetchall() == [("a", 3), ("b", 1)]


def test_two_runs_at_once_into_one_table_do_not_mix(postgres_url: str, tmp_path: Path) -> None:
    for make in (lambda: sinks.postgres(postgres_url, "raced"), lambda: sinks.sqlite(tmp_path / "raced.db", "raced")):
        one, other = (
            drift.run(echo(), {"rows": rows_of(20)}, sinks={"out": make()}, batch_items=5).batches() for _ in range(2)
        )
        next(one), next(other)
        next(one)
        with pytest.raises(SinkError, match="another run writes to table 'raced'"):
            list(other)
        list(one)
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("select count(*), max(position) from raced").fetchone() == (20, 19)


def test_a_statement_of_sqlite_and_values_that_it_has_no_type_for(tmp_path: Path) -> None:
    path = tmp_path / "counts.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table counted (word text primary key, n integer)")
    upsert = "insert into counted values (:word, :n) on conflict (word) do update set n = excluded.n"
    rows = [{"word": "a", "n": 1}, {"word": "b", "n": [1, {"x": None}]}, {"word": "a", "n": True}]
    for _ in range(2):
        sink = sinks.sqlite(path, "counted", statement=upsert)
        drift.run(echo(), {"rows": rows}, sinks={"out": sink}, batch_items=1).finish()
        with sqlite3.connect(path) as connection:
            assert connection.execute("select * from counted order by 1").fetchall() == [
                ("a", 1),
                ("b", '[1,{"x":null}]'),
            ]


def test_a_payload_with_a_field_that_has_no_column_is_refused(tmp_path: Path) -> None:
    rows = [{"a": 1}, {"a": 2, "b": 3}]
    run = drift.run(echo(), {"rows": rows}, sinks={"out": sinks.csv(tmp_path / "out.csv")}, batch_items=1)
    with pytest.raises(SinkError, match="the payload at position 1 has a field 'b', and the columns are those of the"):
        run.finish()
    assert (tmp_path / "out.csv").read_text() == "position,time,a\r\n0,0,1\r\n".replace("\r\n", os.linesep)
    named = sinks.csv(tmp_path / "named.csv", columns=["b", "a"])
    drift.run(echo(), {"rows": rows}, sinks={"out": named}).finish()
    assert (tmp_path / "named.csv").read_bytes() == b"position,time,b,a\r\n0,0,,1\r\n1,1,3,2\r\n"


def test_a_csv_file_torn_at_any_byte_is_completed(tmp_path: Path) -> None:
    rows = [{"word": 'a "quoted"\nline, \u00e9', "n": n, "parts": [n]} for n in range(4)]
    path = tmp_path / "out.csv"

    def write() -> bytes:
        drift.run(echo(), {"rows": rows}, sinks={"out": sinks.csv(path)}, batch_items=2).finish()
        return path.read_bytes()

    whole = write()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        assert write() == whole
    (read, error) = drained(sources.csv(path, convert={"n": int, "parts": json.loads}))
    assert error is None and [{name: row[name] for name in rows[0]} for row in read] == rows


def test_parquet_parts_have_one_schema_where_they_can(tmp_path: Path) -> None:
    rows = [{"n": 1, "x": None}, {"n": 2, "x": 5}, {"n": 3, "x": 0.5}, {"n": 4, "x": None}]
    folder = tmp_path / "out"
    drift.run(echo(), {"rows": rows}, sinks={"out": sinks.parquet(folder, part_items=1)}, batch_items=1).finish()
    assert [path.name for path in sorted(folder.iterdir())][1] == "part-000000000000001-000000000000001.parquet"
    types = [str(pq.read_schema(path).field("x").type) for path in sorted(folder.iterdir())]
    assert types == ["null", "int64", "double", "double"]
    typed = sinks.parquet(tmp_path / "typed", columns={"n": pa.int32(), "x": pa.float64()})
    drift.run(echo(), {"rows": rows}, sinks={"out": typed}).finish()
    table = pq.read_table(tmp_path / "typed")
    assert table.schema.field("n").type == pa.int32() and table.column("x").to_pylist() == [None, 5.0, 0.5, None]
    mixed = drift.run(echo(), {"rows": [{"n": 1}, {"n": "a"}]}, sinks={"out": sinks.parquet(tmp_path / "mixed")})
    with pytest.raises(SinkError, match="no one type holds the values of 'n'"):
        mixed.finish()
    assert list((tmp_path / "mixed").iterdir()) == []


def test_targets_that_cannot_be_opened_say_so(tmp_path: Path, kafka: Kafka) -> None:
    (tmp_path / "file").write_text("")
    for sink, said in (
        (sinks.sqlite(tmp_path / "no" / "out.db", "t"), "cannot be opened as an SQLite file"),
        (sinks.parquet(tmp_path / "file"), "cannot be written"),
        (sinks.postgres("postgresql://nobody@localhost:1/none", "t"), "cannot be opened"),
        (sinks.redis("redis://localhost:1", "t"), "cannot be opened"),
        (sinks.kafka(kafka.servers, "there_is_no_such_topic"), "cannot be opened: Broker: Unknown topic"),
        (sinks.postgres("postgresql://nobody:hunter2@[localhost/none", "t"), r"cannot be opened: .*nobody:\*\*\*@"),
    ):
        with pytest.raises(SinkError, match=said) as raised:
            drift.run(echo(), {"rows": rows_of(1)}, sinks={"out": sink}).finish()
        assert "hunter2" not in str(raised.value)
    for source, said in (
        (sources.redis("redis://localhost:1", "t"), "stream 't' of Redis cannot be read"),
        (sources.kafka(kafka.servers, "there_is_no_such_topic"), "cannot be read: Broker: Unknown topic"),
        (sources.parquet(tmp_path / "file"), "cannot be read as Parquet"),
        (sources.parquet(tmp_path / "none.parquet"), "cannot be read as Parquet"),
        (sources.redis("redys://:hunter2@localhost", "t"), "stream 't' of Redis cannot be read"),
        (
            sources.postgres("postgresql://nobody:hunter2@[localhost/none", "t", key="k"),
            r"nobody:\*\*\*@.*check the URL",
        ),
    ):
        with pytest.raises(InputError, match=said) as refused:
            drift.run(echo(), {"rows": source}).finish()
        assert "hunter2" not in str(refused.value)


# From the command line.


def command(*arguments: str) -> Result:
    return call("run", ROOT / "examples" / "wordcount.py:graph", "--quiet", "--digest", *arguments)


def test_the_command_reads_patterns_and_writes_every_form(
    tmp_path: Path, redis_url: str, postgres_url: str, kafka: Kafka
) -> None:
    for name, line in (("a.txt", "to be or\n"), ("b.txt", "not to be\n")):
        (tmp_path / name).write_text(line)
    pattern = str(tmp_path / "*.txt")
    topic = kafka.topic("words")
    digests = set()
    for sink in (
        f"{tmp_path}/out.csv", f"{tmp_path}/out.parquet", f"{tmp_path}/out.jsonl", f"sqlite:{tmp_path}/out.db#words",
        f"{postgres_url}#words", f"kafka://{kafka.servers}#{topic}",
    ):  # fmt: skip
        for _ in range(2 if sink.endswith("jsonl") else 1):  # that all go on is a test of its own
            done = command("--source", pattern, "--sink", sink)
            assert done.exit_code == 0, done.stderr
            digests.add(done.stdout)
    assert len(digests) == 1
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 6
    refused = command("--source", pattern, "--sink", f"kafka://{kafka.servers}#{topic}", "--on-existing", "replace")
    assert refused.exit_code == 2 and "what Kafka has cannot be replaced" in refused.stderr
    unknown = command("--source", pattern, "--sink", "out.xyz")
    assert unknown.exit_code == 2 and "sink out.xyz is none of PATH.jsonl, PATH.csv" in unknown.stderr
    folder = command("--source", str(tmp_path / "out.parquet"), "--sink", f"{tmp_path}/again.jsonl")
    assert folder.exit_code == 4  # rows are dicts, and the graph splits texts: they were read
