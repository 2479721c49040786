"""Sources of servers and tables: what cannot be decoded is diverted in its place, or ends the input there."""

from __future__ import annotations

import datetime
import json
import sqlite3
import sys
from contextlib import closing
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import confluent_kafka
import msgspec
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis as redis_client
from hypothesis import example, given, settings
from hypothesis import strategies as st
from servers import Kafka
from sourced import drained
from waiting import HANG_S, wait_until

import drift
from drift import InputError, SinkError, sinks, sources
from drift.sources import query
from drift.sources.aligned import Aligned, Message
from drift.sources.offsets import Offsets, Range
from drift.sources.pgvalues import Values
from drift_graph.meta import global_time
from drift_graph.metas import Metas

numbers = count()


def diverted(source: Any, bad: int = 1) -> tuple[list[Any], list[dict[str, Any]]]:
    """The payloads of a run that diverts, without the bad ones, and these; both engines that read here agree."""
    graph = drift.Graph("read")
    graph.source("in", on_error="divert").sink("out")
    results = []
    for engine in ("reference", "local"):
        out: dict[str, list[Any]] = {"out": [], "errors": []}
        order = []
        for item in drift.run(graph, {"in": source}, engine=engine):
            out[item.sink].append(item.payload)
            order.append(item.sink)
        results.append((out["out"], out["errors"], order))
    assert results[0] == results[1] and len(results[0][1]) == bad
    return results[0][:2]


def test_an_entry_of_redis_that_cannot_be_decoded_is_diverted_with_its_id(redis_url: str) -> None:
    name = f"in{next(numbers)}"
    with redis_client.Redis.from_url(redis_url) as client:
        for at, fields in enumerate(
            [{"payload": "1"}, {"payload": "{"}, {"other": "2"}, {"payload": b"\xff"}, {"payload": "3"}]
        ):
            client.xadd(name, fields, id=f"{at + 1}-0")
    ended = sources.redis(redis_url, name, decode="json", until_end=True)
    values, errors = diverted(ended, 3)
    assert values == [1, 3]
    assert [error["location"] for error in errors] == [f"in, stream {name!r}, entry {at}-0" for at in (2, 3, 4)]
    assert [error["payload"] for error in errors] == [b"{", {b"other": b"2"}, b"\xff"]
    assert errors[1]["error"] == "it has no field 'payload'; it has b'other'"
    for start, words in (("1-0", "the message b'{' cannot be decoded"), ("2-0", "it has no field 'payload'")):
        received, error = drained(sources.redis(redis_url, name, decode="json", start=start, until_end=True))
        assert received == [] and words in str(error) and "on_error='divert'" in str(error)
    values, errors = diverted(sources.redis(redis_url, name, until_end=True))
    assert len(values) == 4 and errors[0]["payload"] == {b"payload": b"\xff"}


def test_a_message_of_kafka_is_none_without_a_value_and_diverted_with_its_offset_if_bad(kafka: Kafka) -> None:
    topic = kafka.topic(f"bad{next(numbers)}")
    kafka.send(topic, {0: [b"1", None, b"{", b"\xff", b"2"], 1: [None]})
    values, errors = diverted(sources.kafka(kafka.servers, topic, decode="json", until_end=True), 2)
    assert values == [1, None, 2, None]
    assert [error["location"] for error in errors] == [
        f"in, topic {topic!r}, partition 0, offset 2", f"in, topic {topic!r}, partition 0, offset 3",
    ]  # fmt: skip
    for decode, expected in (("bytes", b"1"), ("text", "1")):
        source = sources.kafka(kafka.servers, topic, decode=decode, until_end=True)  # type: ignore[arg-type]
        received, error = drained(source, 3)
        assert received[:2] == [expected, None] and (error is None) == (decode == "bytes")
    graph = drift.Graph("live")
    graph.source("in", on_error="divert").sink("out")
    live = drift.run(graph, {"in": sources.kafka(kafka.servers, topic, decode="json")})
    assert sorted(next(live).sink for _ in range(6)) == ["errors", "errors", "out", "out", "out", "out"]
    live.close()


def test_a_row_that_python_cannot_hold_is_diverted_with_its_key(postgres_url: str, tmp_path: Path) -> None:
    name = f"rows{next(numbers)}"
    with psycopg.connect(postgres_url) as connection:
        connection.execute(f"create table {name} (id bigint, at timestamp)".encode())
        rows = (
            f"insert into {name} select n, '2024-01-01'::timestamp + n * interval '1 day' from generate_series(0, 9) n"
        )
        connection.execute(rows.encode())
        connection.execute(f"update {name} set at = 'infinity' where id in (0, 4, 9)".encode())
    path = tmp_path / "in.db"
    with sqlite3.connect(path) as made:
        made.execute("create table t (id integer, word text)")
        made.executemany("insert into t values (?, cast(? as text))", [(n, b"w%d" % n) for n in range(10)])
        made.execute("update t set word = cast(x'ff' as text) where id in (0, 4, 9)")
    for items in (3, 4096):
        for source in (
            sources.postgres(postgres_url, name, key="id", rows_at_once=items),
            sources.sqlite(str(path), "t", key="id", rows_at_once=items),
        ):
            values, errors = diverted(source, 3)
            assert [value["id"] for value in values] == [1, 2, 3, 5, 6, 7, 8]
            assert [error["location"] for error in errors] == [f"in, the row with id {n}" for n in (0, 4, 9)]
            assert "infinity" in errors[0]["payload"] or "xff" in errors[0]["payload"]
            received, error = drained(source)
            assert received == [] and "the row with id 0: " in str(error)
    behind = sources.sqlite(str(path), "select * from t where id > 0", key="id", rows_at_once=2)
    received, error = drained(behind)
    assert [row["id"] for row in received] == [1, 2, 3] and "the row with id 4: " in str(error)


SETTINGS = (
    "timezone=America/New_York", "datestyle=German", "intervalstyle=iso_8601", "extra_float_digits=-5",
    "bytea_output=escape", "xmlbinary=hex",
)  # fmt: skip


def test_values_of_a_query_do_not_depend_on_what_a_session_has_set(postgres_url: str) -> None:
    query = (
        "select 1 as id, '2024-10-27T00:30:00Z'::timestamptz as at, 0.1::float4 as f, 1.1::float8 as g, "
        "interval '3 days 04:05:06' as i, '2024-10-27'::date as day, '\\xff00'::bytea as b, "
        "'2024-10-27T23:30:00Z'::timestamptz::text as words, '01/02/2024'::date as read"
    )
    graph = drift.Graph("rows")
    graph.source("in").sink("out")
    found = []
    for each in ("", *SETTINGS):
        options = f"{'&' if '?' in postgres_url else '?'}options={quote(f'-c {each}')}" if each else ""
        url = postgres_url + options
        found.append(drift.run(graph, {"in": sources.postgres(url, query, key="id")}))
    rows = [item.payload for run in found for item in run]
    at = datetime.datetime(2024, 10, 27, 0, 30, tzinfo=datetime.UTC)
    assert rows[0] == {
        "id": 1, "at": at, "f": 0.1, "g": 1.1, "i": datetime.timedelta(days=3, hours=4, minutes=5, seconds=6),
        "day": datetime.date(2024, 10, 27), "b": b"\xff\0", "words": "2024-10-27 23:30:00+00",
        "read": datetime.date(2024, 1, 2),
    }  # fmt: skip
    assert rows == [rows[0]] * len(found) and len({run.digest for run in found}) == 1
    assert [row["at"].utcoffset() for row in rows] == [datetime.timedelta(0)] * len(rows)


def test_months_of_an_interval_are_no_number_of_days(postgres_url: str) -> None:
    query = "select * from (values (1, '3 days'), (2, '1 mon'), (3, '-2 years 5 days')) as t (id, i)"
    for typed in ("i::interval", "array[i::interval]"):
        source = sources.postgres(postgres_url, f"select id, {typed} as i from ({query}) q", key="id")
        values, errors = diverted(source, 2)
        assert [value["id"] for value in values] == [1]
        assert all("has months or years, which are no fixed number of days" in error["error"] for error in errors)
    with pytest.raises(ValueError, match=r"'infinity' of interval .* is no fixed number of days"):  # of Postgres 17
        Values().load(1186, b"infinity")


class Row(msgspec.Struct, frozen=True):
    n: int


@pytest.mark.parametrize("schema", [None, {"id": int, "word": str}])
def test_a_row_that_is_deleted_while_rows_are_read_one_by_one_is_none(
    schema: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "words.sqlite"
    with closing(sqlite3.connect(path)) as made:
        made.execute("create table t (id integer primary key, word text)")
        made.executemany("insert into t values (?, ?)", [(at, f"w{at}") for at in (0, 1, 3, 4)])
        made.execute("update t set word = cast(x'ff' as text) where id = 0")
        made.commit()

    def keys(self: Any, last: Any, count: int) -> list[Any]:
        """Row 2 was there."""
        return list(range(last or 0, 5))[:count]

    monkeypatch.setattr(query._Sqlite, "keys", keys)
    values, errors = diverted(sources.sqlite(path, "t", key="id", schema=schema, rows_at_once=3))
    assert [row["word"] for row in values] == ["w1", "w3", "w4"]
    assert [error["location"] for error in errors] == ["in, the row with id 0"]


def test_a_row_of_a_table_that_is_no_such_object_is_diverted_with_its_number(tmp_path: Path) -> None:
    table = pa.table({"n": pa.array([1, None, 3])})
    values, errors = diverted(sources.table(table, type=Row))
    assert values == [Row(1), Row(3)] and errors[0]["location"] == "in, row 2" and errors[0]["payload"] == {"n": None}
    pq.write_table(table, tmp_path / "a.parquet")
    pq.write_table(table, tmp_path / "b.parquet")
    values, errors = diverted(sources.parquet(tmp_path, type=Row), 2)
    assert values == [Row(1), Row(3), Row(1), Row(3)]
    assert [error["location"] for error in errors] == ["in, a.parquet, row 2", "in, b.parquet, row 2"]
    assert diverted(sources.parquet(tmp_path / "a.parquet", type=Row))[1][0]["location"] == "in, row 2"


@pytest.mark.parametrize("until_end", [True, False])
def test_a_stream_says_how_many_entries_are_left_to_read(redis_url: str, until_end: bool) -> None:
    client, stream = redis_client.Redis.from_url(redis_url), f"left{next(numbers)}"
    for number in range(11):
        client.xadd(stream, {"payload": str(number)})
    client.xtrim(stream, 10, approximate=False)

    def asked() -> Any:
        return reader.backlog()

    with closing(sources.redis(redis_url, stream, until_end=until_end).open()) as reader:
        assert asked() == (10, "{item}")
        wait_until(lambda: reader.read(3), "entries are read")
        position, left = reader.position(), (asked() or (0,))[0]
        assert 7 <= left < 10
        client.xadd(stream, {"payload": "more"})
        assert asked() == (left if until_end else left + 1, "{item}")
    with closing(sources.redis(redis_url, stream, until_end=until_end).open()) as reader:
        reader.seek(position)
        assert asked() == (left if until_end else left + 1, "{item}")
        client.delete(stream)
        assert until_end or asked() is None


steps_of_streams = st.lists(
    st.tuples(st.sampled_from(["add", "read", "read", "trim", "resume", "delete"]), st.integers(0, 6)), max_size=25
)


@given(steps_of_streams, st.booleans())
@example([("add", 5), ("read", 2), ("trim", 2), ("read", 9)], True)
@example([("add", 5), ("read", 2), ("trim", 3), ("read", 9)], True)
@example([("add", 5), ("read", 5), ("trim", 0), ("add", 1), ("read", 1)], True)
@example([("add", 5), ("read", 5), ("trim", 0), ("add", 2), ("trim", 1), ("read", 1)], True)
@example([("add", 6), ("read", 1), ("delete", 2), ("read", 2), ("trim", 1), ("read", 1)], True)
@example([("add", 6), ("read", 2), ("resume", 0), ("trim", 3), ("read", 9)], True)
def test_entries_that_are_trimmed_unread_are_an_error(
    redis_url: str, steps: list[tuple[str, int]], ahead: bool
) -> None:
    """Entries that were read may be trimmed. After a deletion by ID, entries may be trimmed unread without a word until
    all is read; a read that begins with them is none.
    """
    client, stream = redis_client.Redis.from_url(redis_url), f"trimmed{next(numbers)}"

    def opened() -> Any:
        return sys.modules["drift.sources.redis"]._opened(redis_url, stream, None, "0", False)

    left: list[int] = []
    fetched: list[str] = []
    added, sure, poller = 0, True, opened() if ahead else None
    for step, size in steps:
        if step == "add":
            for _ in range(size):
                added += 1
                client.xadd(stream, {"n": str(added)}, id=f"{added}-0")
                left.append(added)
        elif step == "trim":
            client.xtrim(stream, size, approximate=False)
            left = left[len(left) - min(size, len(left)) :]
        elif step == "delete" and size < len(left):
            client.xdel(stream, f"{left.pop(size)}-0")
            sure = False
        elif poller is None:
            poller, seen = opened(), left[0] - 1 if left else added
        elif step == "read" and left:
            if fetched:
                poller.behind(fetched)
            fetched = []
            reached = int(poller._fetched.partition("-")[0])
            unread = [n for n in left if n > reached]
            lost = [n for n in range(max(reached, seen if not ahead else 0) + 1, added + 1) if n not in left]
            if not unread:
                continue
            try:
                found = poller.fetch(size + 1, 0.01)
            except InputError as error:
                assert lost and "removed before it was read" in str(error)
                return
            assert [int(mark.partition("-")[0]) for mark in found.marks] == unread[: size + 1]
            assert not (sure and lost)
            poller.behind(found.marks[: size // 2 + 1])
            fetched = found.marks[size // 2 + 1 :]  # and not returned yet
        elif step == "resume" and sure and client.exists(stream):
            position, fetched = poller.position(), []
            poller.close()
            poller = opened()
            poller.seek(position)
    if poller is not None:
        poller.close()
    client.delete(stream)


@pytest.mark.parametrize("until_end", [True, False])
def test_a_reader_of_a_stream_goes_on_behind_what_another_has_returned(redis_url: str, until_end: bool) -> None:
    client, stream = redis_client.Redis.from_url(redis_url), f"goes on{next(numbers)}"
    for number in range(6):
        client.xadd(stream, {"payload": number})
    source = sources.redis(redis_url, stream, decode="json", until_end=until_end)

    def taken(reader: Any, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            found += reader.read(count - len(found))
        return found

    with closing(source.open()) as reader:
        assert taken(reader, 4) == [0, 1, 2, 3]
        position = reader.position()
    with closing(source.open()) as reader:
        reader.seek(position)
        assert taken(reader, 2) == [4, 5]
    client.close()


@pytest.mark.parametrize("until_end, start", [(True, "0"), (False, "0"), (False, "$")])
@pytest.mark.parametrize(
    "anew, says",
    [
        ([(1, "a"), (2, "b"), (3, "x"), (4, "d"), (5, "e")], "entry 3-0 has other fields"),
        ([(1, "a"), (2, "b"), (4, "d"), (5, "e"), (6, "f")], "it has entries before 3-0, and not that one"),
        ([(4, "d"), (5, "e"), (6, "f"), (7, "g")], "it has 4 entries behind that, and 1 could have been added since"),
    ],
    ids=["other fields", "other IDs", "only later IDs"],
)
def test_a_stream_that_was_begun_anew_with_as_many_entries_is_another(
    redis_url: str, until_end: bool, start: str, anew: list[tuple[int, str]], says: str
) -> None:
    client, stream = redis_client.Redis.from_url(redis_url), f"as many{next(numbers)}"

    def write(entries: list[tuple[int, str]]) -> None:
        client.delete(stream)
        for at, text in entries:
            client.xadd(stream, {"payload": text}, id=f"{at}-0")

    same = [(1, "a"), (2, "b"), (3, "c")]
    write(same)
    source = sources.redis(redis_url, stream, decode="text", until_end=until_end, start=start)
    with closing(source.open()) as reader:
        found: list[Any] = []
        while start == "0" and len(found) < 3:
            found += reader.read(2) or ()
        position = reader.position()
    write(anew)
    with closing(source.open()) as reader, pytest.raises(InputError, match=f"begun anew: {says}; bring back"):
        reader.seek(position)
    write([*same, (4, "d")])
    for trim in (lambda: None, lambda: client.xdel(stream, "3-0"), lambda: client.xtrim(stream, minid="4-0")):
        trim()
        with closing(source.open()) as reader:
            reader.seek(position)
            assert reader.position()["mark"] == position["mark"]
            if until_end:
                reader.end_anew()
            while (rest := reader.read(2)) == []:
                pass
            assert rest == ["d"]
    client.close()


@pytest.mark.parametrize("until_end", [True, False])
def test_a_stream_that_was_deleted_and_begun_anew_is_another(redis_url: str, until_end: bool) -> None:
    client, stream = redis_client.Redis.from_url(redis_url), f"anew{next(numbers)}"

    def add(*values: int) -> None:
        for value in values:
            client.xadd(stream, {"payload": value})

    add(1, 2, 3, 4)
    source = sources.redis(redis_url, stream, decode="json", until_end=until_end)
    says = "deleted and begun anew: it counts [12] entries that were ever added, and counted [45]; what"
    with closing(source.open()) as reader:
        found: list[Any] = []
        while len(found) < 4:
            found += reader.read(9) or ()
        position = reader.position()
        add(5)  # which nobody has read
        client.delete(stream)
        add(6, 7)
        if not until_end:
            with pytest.raises(InputError, match=says):
                while 7 not in found:
                    found += reader.read(9) or ()
    with closing(source.open()) as reader, pytest.raises(InputError, match=says):
        reader.seek(position)
    client.close()


def test_a_stream_that_is_deleted_between_a_read_and_the_question_for_its_counts_is_another(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, stream = redis_client.Redis.from_url(redis_url), f"between{next(numbers)}"
    module = sys.modules["drift.sources.redis"]
    for number in range(3):
        client.xadd(stream, {"payload": number})
    poller = module._opened(redis_url, stream, b"payload", "0", until_end=False)
    with monkeypatch.context() as patched:
        patched.setattr(module, "_info", lambda _client, _stream: client.delete(stream) and {})
        assert poller.fetch(9, 0.01).values == [b"0", b"1", b"2"]
    client.xadd(stream, {"payload": 3})
    with closing(poller), pytest.raises(InputError, match=r"it counts 1 entries that were ever added, and counted 3"):
        poller.fetch(9, 0.01)
    client.close()


def test_entries_that_are_trimmed_right_behind_their_read_are_read() -> None:
    """Of entries 1 to 6 the first two were read before; 3 and 4 are read now, and then all but 5 and 6 are trimmed."""
    removals = sys.modules["drift.sources.redis"]._Removals()
    removals.begin({})
    info = {"entries-added": 6, "length": 2, "max-deleted-entry-id": b"0-0"}
    info |= {"recorded-first-entry-id": b"5-0", "last-generated-id": b"6-0"}
    removals.passed = 2
    assert removals.unread(info, "2-0", ["3-0", "4-0"]) == 0 and removals.passed == 4
    removals.passed = 2
    assert removals.unread(info, "2-0", ["3-0"]) == 1


def test_a_read_up_to_an_end_that_is_removed_says_so(redis_url: str) -> None:
    client, stream = redis_client.Redis.from_url(redis_url), f"ended{next(numbers)}"
    for number in range(5):
        client.xadd(stream, {"payload": str(number)})
    reader = sources.redis(redis_url, stream, until_end=True).open()
    client.xtrim(stream, 0, approximate=False)
    with closing(reader), pytest.raises(InputError, match=r"entry .* was removed before it was read"):
        reader.read(9)


@pytest.mark.parametrize("until_end", [True, False])
def test_a_topic_says_how_many_messages_are_left_to_read(kafka: Kafka, until_end: bool) -> None:
    topic = kafka.topic(f"left{next(numbers)}")
    kafka.send(topic, {0: [b"1", b"2"], 1: [b"3"]})
    reader = sources.kafka(kafka.servers, topic, until_end=until_end).open()
    assert reader.backlog() == (3, "{item}")
    read: list[Any] = []

    def all_read() -> bool:
        read.extend(reader.read(10) or ())
        return len(read) == 3

    wait_until(all_read, "all messages read")
    assert reader.backlog() == (0, "{item}")
    reader.close()


def test_a_live_topic_gives_what_comes_into_new_partitions(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = kafka.topic(f"grows{next(numbers)}")
    kafka.send(topic, {0: [b"0"], 2: [b"2"]})
    monkeypatch.setattr(sys.modules["drift.sources.kafka"], "_LOOK_S", 0.0)
    monkeypatch.setattr(sys.modules["drift.sources.kafka"], "_ranges", lambda consumer, topic: {0: Range(0, 1)})
    graph = drift.Graph("live")
    graph.source("in").sink("out")
    run = drift.run(graph, {"in": sources.kafka(kafka.servers, topic, decode="text", start="latest")})
    received = [next(run).payload]  # a partition that is new is read from its beginning
    kafka.send(topic, {0: [b"more"]})
    received.append(next(run).payload)
    run.close()
    assert received == ["2", "more"]


def test_a_source_without_a_broker_says_so_and_when_it_answers_again(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic(f"away{next(numbers)}")
    monkeypatch.setattr(sys.modules["drift.sources.kafka"], "_LOOK_S", 0.0)
    monkeypatch.setattr(sys.modules["drift.sources.kafka"], "_LOOK_MAX_S", 0.2)
    reader: Any = sources.kafka(kafka.servers, topic, decode="text").open()
    assert reader.read(1) == []
    with kafka.outage("down"):
        wait_until(lambda: f"topic {topic!r} of Kafka: no answer" in caplog.text, "it says so")
    wait_until(lambda: f"topic {topic!r} of Kafka answers again" in caplog.text, "it says that it is back")
    kafka.send(topic, {0: [b"more"]})
    received: list[Any] = []
    wait_until(lambda: received.extend(reader.read(1)) or received, "it reads on")
    reader.close()


def test_a_source_that_is_shorter_than_it_was_is_not_read_on(kafka: Kafka, redis_url: str) -> None:
    topic = kafka.topic(f"short{next(numbers)}")
    kafka.send(topic, {0: [b"0"]})
    reader: Any = sources.kafka(kafka.servers, topic).open()
    position = reader.position()
    position["offsets"]["0"] = [7, 7]
    with pytest.raises(InputError, match=r"up to offset 7 of partition 0 .* it ends at 1; bring back the data"):
        reader.seek(position)
    reader.close()
    with redis_client.Redis.from_url(redis_url) as client:
        client.xadd("short", {"payload": "1"}, id="1-0")
    stream: Any = sources.redis(redis_url, "short", decode="text").open()
    with pytest.raises(InputError, match=r"up to entry 5-0 .* its newest was 1-0; bring back the data"):
        stream.seek({**stream.position(), "behind": "5-0"})
    stream.close()


@pytest.mark.parametrize("passes", [False, True])
def test_an_error_of_no_partition_does_not_stand_for_a_message_that_is_compared(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, passes: bool
) -> None:
    topic = kafka.topic(f"compared{next(numbers)}")
    kafka.send(topic, {0: [b"0"]})
    reader: Any = sources.kafka(kafka.servers, topic, start="latest").open()
    position = {**reader.position(), "marks": {"0": "another"}}
    consume, told = reader._poller._consumer.consume, []

    def failing_once(items_max: int, wait_s: float) -> list[Any]:
        if told:
            return consume(items_max, wait_s)  # type: ignore[no-any-return]
        told.append(confluent_kafka.KafkaError(confluent_kafka.KafkaError._ALL_BROKERS_DOWN, retriable=passes))
        return [SimpleNamespace(error=lambda: told[0], partition=lambda: None, offset=lambda: None)]

    monkeypatch.setattr(reader._poller, "_consumer", _With(reader._poller._consumer, consume=failing_once))
    says = (
        "offset 0 of partition 0 .*, and now that is another message"
        if passes
        else "cannot be read: .*connections are down"
    )
    with closing(reader), pytest.raises(InputError, match=says):
        reader.seek(position)


class _With:
    """An object with other methods."""

    def __init__(self, inner: Any, **methods: Any) -> None:
        self._inner = inner
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@given(
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=3),
    added=st.lists(st.integers(1, 4), max_size=2),
    data=st.data(),
)
def test_offsets_give_each_message_once_whatever_is_added_and_wherever_it_goes_on(
    lengths: list[int], added: list[int], data: st.DataObject
) -> None:
    """A model of a topic, of which partitions grow and are added; reading stops and continues at any position."""
    logs = {partition: length for partition, length in enumerate(lengths)}  # noqa: C416
    seen: list[tuple[int, int]] = []
    opened = Offsets("t", {each: Range(0, length) for each, length in logs.items()}, "earliest")
    started = dict.fromkeys(logs, 0)
    for _ in range(data.draw(st.integers(0, 12))):
        match data.draw(st.sampled_from(["read", "grow", "add", "restart"])):
            case "read":
                partition = data.draw(st.sampled_from(sorted(started)))
                if started[partition] < logs[partition]:
                    mark = (partition, started[partition])
                    started[partition] += 1
                    opened.behind([mark])
                    seen.append(mark)
            case "grow":
                logs[data.draw(st.sampled_from(sorted(logs)))] += 1
            case "add":
                if added:
                    logs[len(logs)] = added.pop()
                for partition in opened.added(logs):
                    opened.add(partition, Range(0, logs[partition]))
                    started[partition] = 0
            case "restart":
                position = json.loads(json.dumps(opened.position()))
                opened = Offsets("t", {each: Range(0, length) for each, length in logs.items()}, "latest")
                opened.seek(position)
                started = dict(opened.next)
    for partition, length in logs.items():
        seen += [(partition, offset) for offset in range(started.get(partition, 0), length)]
    assert sorted(seen) == [(partition, offset) for partition, length in logs.items() for offset in range(length)]
    if any(offset for offset, _ in opened.position()["offsets"].values()):
        shorter = Offsets("t", {each: Range(0, 0) for each in logs}, "earliest")
        with pytest.raises(InputError, match="bring back the data"):
            shorter.seek(opened.position())


@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=4),
    times=st.lists(st.integers(0, 5), min_size=24, max_size=24),
    data=st.data(),
)
def test_partitions_read_at_any_speed_are_given_in_the_order_of_their_timestamps(
    lengths: list[int], times: list[int], data: st.DataObject
) -> None:
    logs = {
        part: [Message(max(times[part * 6 : part * 6 + at + 1]), part, at, at) for at in range(length)]
        for part, length in enumerate(lengths)
    }
    ends = {part: len(log) for part, log in logs.items()}
    aligned = Aligned(dict.fromkeys(logs, 0), ends, patience_s=10.0, most=100)
    given_: list[Message] = []
    left = {part: list(log) for part, log in logs.items() if log}
    while left:
        part = data.draw(st.sampled_from(sorted(left)))
        many = data.draw(st.integers(1, len(left[part])))
        aligned.put(left[part][:many], 1.0)
        left[part] = left[part][many:]
        if not left[part]:
            del left[part]
        given_ += aligned.take(100, 1.0)
    assert sorted(given_) == sorted(message for log in logs.values() for message in log)
    assert [message.timestamp for message in given_] == sorted(message.timestamp for message in given_)
    for part, log in logs.items():
        assert [message for message in given_ if message.partition == part] == log


def test_a_partition_that_gives_nothing_is_not_waited_for_for_ever_nor_one_at_its_end() -> None:
    ends = {0: 2, 1: 7}
    aligned = Aligned({0: 0, 1: 0}, ends, patience_s=10.0, most=2)
    aligned.put([Message(5, 0, 0, "a"), Message(3, 0, 1, "b")], 1.0)
    assert aligned.take(9, 9.0) == [] and aligned.full == {0}
    assert [message.value for message in aligned.take(9, 10.0)] == ["a", "b"] and not aligned.full
    ends[0] = 3
    aligned.put([Message(6, 0, 2, "c")], 11.0)
    aligned.put([Message(4, 1, 0, "d")], 11.0)
    assert [message.value for message in aligned.take(9, 11.0)] == ["d"]
    aligned.reach(1, 7)
    assert [message.value for message in aligned.take(9, 11.0)] == ["c"]


@given(
    logs=st.lists(st.lists(st.integers(0, 5), max_size=6), min_size=1, max_size=4),
    behind=st.integers(0, 2),
    most=st.integers(1, 3),
    data=st.data(),
)
def test_partitions_with_ends_are_merged_in_one_order_however_they_are_read_and_resumed(
    logs: list[list[int]], behind: int, most: int, data: st.DataObject
) -> None:
    """Also with messages behind the ends, and without those that a transaction has in place of a message."""
    given_, heads = [], {part: list(enumerate(log)) for part, log in enumerate(logs) if log}
    while heads:  # too simple to be wrong
        part = min(heads, key=lambda part: (heads[part][0][1], part))
        given_.append((part, heads[part].pop(0)[0]))
        heads = {part: left for part, left in heads.items() if left}
    ends = {part: len(log) + 1 for part, log in enumerate(logs)}  # its last is none
    offsets = dict.fromkeys(ends, 0)
    merged, read, taken = Aligned(offsets, ends, most=2), dict(offsets), []
    while not merged.ended:
        part = data.draw(st.sampled_from(sorted(set(merged.partitions) - merged.full) or merged.partitions))
        at = read[part]
        if at < len(logs[part]):
            merged.put([Message(logs[part][at], part, at, at)])
            read[part] = at + 1
        elif behind:
            merged.put(Message(9, part, len(logs[part]) + 1 + n, "behind") for n in range(behind))
        else:
            merged.reach(part, ends[part])
        for message in merged.take(most):
            taken.append((message.partition, message.offset))
            offsets[message.partition] = message.offset + 1
        if data.draw(st.booleans()):
            merged, read = Aligned(offsets, ends, most=2), dict(offsets)
    assert taken == given_


def test_no_item_of_a_backlog_is_late_because_another_partition_was_read_before(kafka: Kafka) -> None:
    topic = kafka.topic(f"skewed{next(numbers)}")
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.servers, "log_level": 0})
    length = 3000
    for partition in (0, 1, 3):  # partition 2 is empty
        for n in range(length):
            producer.produce(topic, b"%d" % n, partition=partition, timestamp=1_000_000 + n)
    assert producer.flush(HANG_S) == 0
    graph = drift.Graph("skewed")
    graph.source("in", time=drift.EventTime(time=lambda n: n, lateness=1)).sink("out")
    run = drift.run(graph, {"in": sources.kafka(kafka.servers, topic, decode="json")})
    received = [next(run).payload for _ in range(3 * (length - 2))]
    run.close()
    assert received == [n for n in range(length - 2) for _ in range(3)]
    ended = drift.run(graph, {"in": sources.kafka(kafka.servers, topic, decode="json", until_end=True)})
    assert [item.payload for item in ended] == [n for n in range(length) for _ in range(3)]


def test_what_a_database_cannot_hold_is_refused_in_words(postgres_url: str, tmp_path: Path, redis_url: str) -> None:
    def write(sink: Any, *payloads: Any) -> None:
        sink.open()
        try:
            sink.write(
                range(len(payloads)), Metas([global_time(n, 0, 0, 0) for n in range(len(payloads))]), list(payloads)
            )
        finally:
            sink.close()

    for make, where in ((sinks.postgres, postgres_url), (sinks.sqlite, tmp_path / "out.db"), (sinks.redis, redis_url)):
        with pytest.raises(SinkError, match=r"does not take the items at positions 0 to 1: .*surrogates not allowed"):
            write(make(where, "surrogate"), "fine", "\ud800")  # type: ignore[operator]
    zoned = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    plain = datetime.datetime(2024, 1, 1)
    with pytest.raises(
        SinkError, match=r"position 1 has .* in 'at', with a zone, and the column has no zone \(timestamp"
    ):
        write(sinks.postgres(postgres_url, "plain", columns={"at": "timestamp"}), {"at": plain}, {"at": zoned})
    with pytest.raises(
        SinkError, match=r"position 1 has .* in 'at', with no zone, and the column has a zone \(timestamp"
    ):
        write(sinks.postgres(postgres_url, "zoned"), {"at": zoned}, {"at": plain})
    write(sinks.postgres(postgres_url, "both"), {"at": zoned, "on": plain})


_SOUND = [1, "é", None, [1, {"a": [2.5]}], 10**30]
_GARBAGE = [
    b"[" * 10,
    b"[" * 100_000,
    b"1" * 5000,
    b'"\\ud800"',
    b"NaN",
    b"\xef\xbb\xbf1",
    b'{"a": 1',
    b"\xff",
    b"",
    None,
]


def is_sound(value: bytes | None, decode: str, kind: str) -> bool:
    if value is None:
        return kind == "kafka"  # a message without a value is None
    try:
        if decode == "text":
            value.decode()
        elif decode == "json":
            msgspec.json.decode(value)
    except (UnicodeDecodeError, RecursionError, msgspec.MsgspecError):
        return False
    return True


@pytest.mark.parametrize("decode", ["json", "text", "bytes"])
@pytest.mark.parametrize("kind", ["redis", "kafka"])
@given(
    data=st.lists(
        st.sampled_from([json.dumps(each).encode() for each in _SOUND] + _GARBAGE) | st.binary(max_size=12), max_size=20
    )
)
@settings(max_examples=10)
def test_garbage_is_decoded_or_diverted_in_its_place(
    kind: str, decode: Any, redis_url: str, kafka: Kafka, data: list[bytes | None]
) -> None:
    name = f"garbage{next(numbers)}"
    if kind == "kafka":
        kafka.send(kafka.topic(name), {0: data})
        source = sources.kafka(kafka.servers, name, decode=decode, until_end=True)
    else:
        with redis_client.Redis.from_url(redis_url) as client:
            for value in data:
                client.xadd(name, {b"other": b""} if value is None else {b"payload": value})
        source = sources.redis(redis_url, name, decode=decode, until_end=True)
    graph = drift.Graph("garbage")
    graph.source("in", on_error="divert").sink("out")
    found = [item.sink for item in drift.run(graph, {"in": source})]
    assert found == ["out" if is_sound(value, decode, kind) else "errors" for value in data]
