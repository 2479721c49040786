"""Servers of sinks that fail while a run writes to them: what they have is a prefix, and the next run completes it."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis as redis_client
from servers import Kafka, redis_server
from sourced import drained
from waiting import wait_until

from drift import SettingsError, SinkError, sinks, sources
from drift_graph.meta import global_time
from drift_graph.metas import Metas


def write(sink: Any, start: int, end: int) -> None:
    sink.write(range(start, end), Metas([global_time(n, 0, 0, 0) for n in range(start, end)]), list(range(start, end)))


@pytest.mark.parametrize("how", ["down", "hangs"])
def test_nothing_behind_what_kafka_did_not_take_is_delivered(kafka: Kafka, how: str) -> None:
    topic = kafka.topic(f"outage_{how}")

    def content() -> list[Any]:
        return drained(sources.kafka(kafka.servers, topic, decode="json", until_end=True))[0]

    sink = sinks.kafka(kafka.servers, topic)
    sink.open()
    write(sink, 0, 10)
    sink.commit()
    start = 10
    sink._patience_s = 0.3
    with kafka.outage(how), pytest.raises(SinkError, match=r"taken nothing for .* the items up to position 9 are stor"):
        while True:
            write(sink, start, start + 1)
            start += 1
    for refused in (lambda: write(sink, start, start + 1), sink.commit, sink.complete):
        with pytest.raises(SinkError, match="has not taken all items"):
            refused()
    sink.close()
    found = content()
    assert found == list(range(len(found))) and len(found) >= 10
    again = sinks.kafka(kafka.servers, topic)
    again.open()
    write(again, 0, start + 10)
    again.complete()
    again.close()
    assert content() == list(range(start + 10))


def test_a_message_that_is_too_large_is_an_error_and_those_before_it_are_stored(kafka: Kafka) -> None:
    topic = kafka.topic("large")
    sink = sinks.kafka(kafka.servers, topic, encode="bytes", config={"message.max.bytes": 2000})
    sink.open()
    payloads = [b"a", b"b", b"x" * 10_000, b"c"]
    with pytest.raises(SinkError, match=r"the payload at position 2, a bytes, is not taken: .* too large"):
        sink.write(range(4), Metas([global_time(n, 0, 0, 0) for n in range(4)]), payloads)
    sink.close()
    assert drained(sources.kafka(kafka.servers, topic, until_end=True))[0] == [b"a", b"b"]


def test_a_topic_with_messages_that_are_not_of_the_sink_is_refused(kafka: Kafka) -> None:
    topic = kafka.topic("foreign")
    sink = sinks.kafka(kafka.servers, topic)
    sink.open()
    write(sink, 0, 3)
    sink.commit()
    kafka.send(topic, {0: [b"foreign"]})
    with pytest.raises(
        SinkError, match=r"partition 0 of .* is stored at offset 4 and was to be at 3: the topic has lost"
    ):
        write(sink, 3, 4), sink.commit()
    sink.close()
    again = sinks.kafka(kafka.servers, topic)
    with pytest.raises(SinkError, match="its last is at offset 4 and was to be at 3"):
        again.open()
    again.close()
    with pytest.raises(SettingsError, match="without it messages are lost or doubled"):
        sinks.kafka(kafka.servers, topic, config={"enable.idempotence": False})
    with pytest.raises(SettingsError, match="no number of milliseconds"):
        sinks.kafka(kafka.servers, topic, config={"delivery.timeout.ms": "soon"})


def test_a_redis_that_comes_back_with_older_data_gets_no_gap() -> None:
    with redis_server() as server:
        sink = sinks.redis(server.url, "out")
        sink.open()
        write(sink, 0, 10)
        with redis_client.Redis.from_url(server.url) as client:
            client.save()
        write(sink, 10, 15)
        committed = sink.commit()
        server.kill()
        server.start()
        with pytest.raises(SinkError, match=r"had the items up to position 14, and now it ends at position 9: it was"):
            write(sink, 15, 20)
        sink.close()
        resumed = sinks.redis(server.url, "out")
        resumed.resume_at(15, committed)
        with pytest.raises(SinkError, match="what is missing is not computed again"):
            resumed.open()
        resumed.close()
        again = sinks.redis(server.url, "out")
        again.open()
        write(again, 0, 20)
        again.complete()
        again.close()
        with redis_client.Redis.from_url(server.url, decode_responses=True) as client:
            entries: Any = client.xrange("out")
            assert [entry for entry, _ in entries] == [f"{n}-0" for n in range(1, 21)]


def test_entries_of_redis_may_be_deleted_but_the_last_while_a_run_begins(redis_url: str) -> None:
    sink = sinks.redis(redis_url, "consumed")
    sink.open()
    with redis_client.Redis.from_url(redis_url) as client:
        for start in range(0, 6, 3):
            write(sink, start, start + 3)
            client.xdel("consumed", *(f"{n + 1}-0" for n in range(start, start + 3)))
    sink.complete()
    sink.close()
    again = sinks.redis(redis_url, "consumed")
    with pytest.raises(SinkError, match="the last entry of stream 'consumed' of Redis was deleted"):
        again.open()
    again.close()


def test_a_call_of_redis_that_is_repeated_adds_nothing_twice(redis_url: str) -> None:
    sink: Any = sinks.redis(redis_url, "repeated")
    sink.open()
    add = sink._add

    def twice(**call: Any) -> Any:
        add(**call)
        return add(**call)

    sink._add = twice
    write(sink, 0, 3)
    write(sink, 3, 5)
    sink.complete()
    sink.close()
    with redis_client.Redis.from_url(redis_url) as client:
        assert client.xlen("repeated") == 5


def older_postgres(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("delete from older where position > 3")
        connection.execute("update drift_positions set position = 3 where sink = 'older'")


def test_a_table_with_older_data_gets_no_gap(postgres_url: str, tmp_path: Path) -> None:
    path = tmp_path / "out.db"

    def older_sqlite(path: str) -> None:
        with sqlite3.connect(path) as connection:
            connection.execute("delete from older where position > 3")
            connection.execute("update drift_positions set position = 3")

    cases: list[tuple[Any, str, Callable[[str], None]]] = [
        (sinks.postgres, postgres_url, older_postgres), (sinks.sqlite, str(path), older_sqlite),
    ]  # fmt: skip
    for make, where, age in cases:
        sink = make(where, "older")
        sink.open()
        write(sink, 0, 8)
        age(where)
        with pytest.raises(SinkError, match="had the items up to position 7, and now it ends at position 3: it was"):
            write(sink, 8, 9)
        for end in (sink.commit, sink.complete):
            with pytest.raises(SinkError, match="had the items up to position 7"):
                end()
        sink.close()


def test_a_table_that_is_gone_is_not_begun_in_the_middle(postgres_url: str, tmp_path: Path) -> None:
    for make, where, connect in (
        (sinks.postgres, postgres_url, psycopg.connect), (sinks.sqlite, str(tmp_path / "out.db"), sqlite3.connect),
    ):  # fmt: skip
        sink: Any = make(where, "gone")
        sink.open()
        write(sink, 0, 8)
        sink.close()
        connection: Any = connect(where)
        connection.execute("drop table gone")
        connection.commit()
        connection.close()
        again: Any = make(where, "gone")
        with pytest.raises(SinkError, match="is gone, and drift_positions says that it has the items up to position 7"):
            again.open()
        again.close()
        anew: Any = make(where, "gone", resume="replace")
        anew.open()
        write(anew, 0, 9)
        anew.complete()
        anew.close()


@pytest.mark.parametrize("way", ["replaced", "removed"])
def test_an_sqlite_file_that_is_replaced_ends_the_run(tmp_path: Path, way: str) -> None:
    path = tmp_path / "out.db"
    sink = sinks.sqlite(path, "out")
    sink.open()
    write(sink, 0, 8)
    if way == "replaced":
        other = tmp_path / "other.db"
        sqlite3.connect(other).close()
        other.replace(path)
    else:
        path.unlink()
    with pytest.raises(SinkError, match=r"out.db is another file than the one that this run has opened"):
        write(sink, 8, 9)
    sink.close()


class WithEvents:
    """A producer of Kafka with some events of its own in its queue, as it has at times during an outage."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def __len__(self) -> int:
        return len(self._producer) + 4

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)


def test_a_sink_that_waits_says_so_and_when_it_need_not_any_more(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("drift.sinks.delivering._QUIET_S", 0.05)
    sink: Any = sinks.kafka(kafka.servers, kafka.topic("quiet_sink"))
    sink.open()

    def log(words: str) -> bool:
        sink._pump(0.01, hurry=False)
        return any(re.search(words, record.getMessage()) for record in caplog.records)

    with kafka.outage("down"):
        write(sink, 0, 3)
        sink._producer = WithEvents(sink._producer)
        wait_until(lambda: log(r"topic 'quiet_sink' of Kafka has taken nothing for \d+ s; 3 items wait"), "it says so")
    wait_until(lambda: log("topic 'quiet_sink' of Kafka answers again"), "it says that it answers")
    sink.complete()
    sink.close()
