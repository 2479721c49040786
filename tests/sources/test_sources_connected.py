"""Folders, Parquet, Redis, Kafka and queries as sources: what they give, in which order, and from where they go on."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis as redis_client
from servers import Kafka
from sourced import drained
from test_connectors import Row, echo, numbers
from waiting import wait_until

import drift
from drift import InputError, sources
from drift.cli.specs import source_of


def test_a_folder_and_a_pattern_are_read_in_the_order_of_names(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "c.log", ".hidden.txt", "_SUCCESS"):
        (tmp_path / name).write_text(f"{name} 1\n{name} 2\n")
    assert drained(sources.text(tmp_path / "*.txt")) == (["a.txt 1", "a.txt 2", "b.txt 1", "b.txt 2"], None)
    whole, error = drained(sources.text(tmp_path), items_max=1)
    assert error is None and [line.split()[0] for line in whole[::2]] == ["a.txt", "b.txt", "c.log"]
    (tmp_path / "what[1].txt").write_text("itself\n")
    assert drained(sources.text(tmp_path / "what[1].txt"))[0] == ["itself"]
    for missing, said in ((tmp_path / "*.csv", "no file matches the pattern"), (tmp_path / "none.txt", "cannot be")):
        with pytest.raises(InputError, match=said):
            sources.text(missing).open()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="the folder has no files"):
        sources.text(tmp_path / "empty").open()


def test_a_fault_in_one_of_several_files_names_it_and_all_before_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("1\n2\n")
    (tmp_path / "b.jsonl").write_text("3\nfour\n")
    received, error = drained(sources.jsonl(tmp_path / "*.jsonl"))
    assert received == [1, 2, 3] and "b.jsonl, line 2" in str(error)
    table = pa.table({"text": [f"word {number}" for number in range(3000)]})
    for name in ("a", "b"):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    data = bytearray((tmp_path / "b.parquet").read_bytes())
    data[100:200] = bytes(100)  # its end, which says what there is, stays as it was
    (tmp_path / "b.parquet").write_bytes(data)
    received, error = drained(sources.parquet(tmp_path / "*.parquet"))
    assert len(received) == 3000 and "b.parquet cannot be read behind row 0: " in str(error)


def test_the_rows_before_a_damaged_page_are_given_first(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"n": list(range(20_000)), "text": [f"word {number * 7919 % 20_000}" for number in range(20_000)]})
    pq.write_table(table, path, use_dictionary=False, data_page_size=4096, compression="gzip")
    data = bytearray(path.read_bytes())
    at = pq.read_metadata(path).row_group(0).column(1).data_page_offset + 30_000
    data[at : at + 200] = bytes(200)
    path.write_bytes(data)
    received, error = drained(sources.parquet(path, payload="tuple"))
    assert 1_000 < len(received) < 19_000 and received == list(zip(*table[: len(received)].to_pydict().values()))
    assert f"a.parquet cannot be read behind row {len(received)}: " in str(error)


def test_rows_of_parquet_that_unpack_to_much_are_read_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.parquet"
    word = "x" * 1_000_000
    pq.write_table(pa.table({"text": [word] * 70}), path)
    assert path.stat().st_size < 3_000_000
    unpacked: list[int] = []
    batches = pq.ParquetFile.iter_batches

    def noted(file: Any, *args: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        for batch in batches(file, *args, **named):
            unpacked.append(batch.nbytes)
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    assert drained(sources.parquet(path, payload="value"), 10) == ([word] * 70, None)
    assert sum(unpacked) >= 70_000_000 and max(unpacked) < 20_000_000


def test_parquet_in_gives_the_rows_of_a_file_a_folder_and_a_pattern(tmp_path: Path) -> None:
    table = pa.table({"word": ["a", "b", "c"], "n": [1, None, 3]})
    rows = table.to_pylist()
    pq.write_table(table, tmp_path / "one.parquet", row_group_size=2)
    pq.write_table(table, tmp_path / "two.parquet")
    for items_max in (1, 2, 1000):
        assert drained(sources.parquet(tmp_path / "one.parquet"), items_max) == (rows, None)
        assert drained(sources.parquet(tmp_path), items_max) == (rows * 2, None)
    tuples = sources.parquet(tmp_path / "t*.parquet", columns=["n", "word"], payload="tuple")
    assert drained(tuples)[0] == [(1, "a"), (None, "b"), (3, "c")]
    received, error = drained(sources.parquet(tmp_path / "one.parquet", type=Row))
    assert received == [] and "one.parquet, row 1: it is no Row" in str(error)
    with pytest.raises(InputError, match="has no column 'm'; it has 'word', 'n'"):
        sources.parquet(tmp_path / "one.parquet", columns=["m"]).open()


def test_a_stream_of_redis_is_read_to_its_end_and_live(redis_url: str) -> None:
    with redis_client.Redis.from_url(redis_url) as client:
        for n in range(5):
            client.xadd("in", {"payload": json.dumps({"n": n}), "more": "x"})
        fields = sources.redis(redis_url, "in", until_end=True)
        assert drained(fields, 2)[0][0] == {"payload": '{"n": 0}', "more": "x"}
        ended = sources.redis(redis_url, "in", decode="json", until_end=True)
        assert drained(ended, 2) == ([{"n": n} for n in range(5)], None)
        reader: Any = ended.open()
        assert reader.read(2) == [{"n": 0}, {"n": 1}]
        position = json.loads(json.dumps(reader.position()))
        reader.close()
        client.xadd("in", {"payload": "7"})  # behind the end that the reading had
        behind: Any = ended.open()
        behind.seek(position)
        assert [behind.read(5), behind.read(5)] == [[{"n": n} for n in (2, 3, 4)], None]
        behind.close()
        client.xdel("in", client.xrevrange("in", count=1)[0][0])
        lost: Any = ended.open()
        with pytest.raises(InputError, match=r"was read up to entry .* are deleted; bring back the data"):
            lost.seek({**position, "behind": "1-1"})
        lost.close()
        live = drift.run(echo(), {"rows": sources.redis(redis_url, "in", decode="json")})
        first = [next(live).payload["n"] for _ in range(5)]
        client.xadd("in", {"payload": '{"n": 5}'})
        assert [*first, next(live).payload["n"]] == list(range(6))
        live.close()
        client.xadd("in", {"payload": "no json"})
        received, error = drained(ended)
        assert len(received) == 6 and "the message b'no json' cannot be decoded" in str(error)


def test_a_topic_of_kafka_is_read_to_its_end_and_live_and_offsets_are_positions(kafka: Kafka) -> None:
    topic = kafka.topic("in")
    values = {partition: [f"{partition}.{n}".encode() for n in range(50)] for partition in (2, 0)}
    kafka.send(topic, values, at_ms=1_000_000)  # of equal ones partitions decide
    in_order = [value.decode() for partition in (0, 2) for value in values[partition]]
    ended = sources.kafka(kafka.servers, topic, decode="text", until_end=True)
    for items_max in (7, 1000):
        assert drained(ended, items_max) == (in_order, None)
    reader: Any = ended.open()
    received = []
    while len(received) < 60:
        received += reader.read(7)
    position = json.loads(json.dumps(reader.position()))
    reader.close()
    behind: Any = ended.open()
    behind.seek(position)
    assert received + behind.read(1000) == in_order and behind.read(1000) is None
    behind.close()
    lost: Any = ended.open()
    with pytest.raises(InputError, match=r"up to offset -3 of partition 0 .* it begins at 0; bring back"):
        lost.seek({**position, "offsets": {"0": [-3, 50]}})
    lost.close()
    live = drift.run(echo(), {"rows": sources.kafka(kafka.servers, topic, decode="text")})
    assert {next(live).payload for _ in range(100)} == set(in_order)
    kafka.send(topic, {1: [b"more"]})
    assert next(live).payload == "more"
    live.close()
    new = sources.kafka(kafka.servers, topic, decode="json", until_end=True, start={0: 50, 2: 50})
    received, error = drained(new)
    assert received == [] and "topic 'in', partition 1, offset 0: the message b'more' cannot be decoded" in str(error)


@pytest.mark.parametrize(("engine", "stores_state"), [("local", False), ("local", True), ("zeromq", False)])
def test_what_is_released_of_a_topic_is_committed_to_the_group_and_no_more(
    engine: drift.EngineName, stores_state: bool, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drift.engines.source_feed._ACKNOWLEDGE_S", 0.0)
    topic = kafka.topic(f"group_{engine}_{stores_state}")
    graph = drift.Graph("group")
    graph.source("n", time=drift.EventTime(time=lambda n: n, lateness=5)).sink("out")
    state = drift.Checkpoints(tmp_path / "state", every_s=0.01) if stores_state else None
    source = sources.kafka(kafka.servers, topic, decode="json", group="g")

    def committed() -> int:
        return kafka.committed("g", topic, 0)

    assert repr(source_of(f"kafka-json://{kafka.servers}?group=g#{topic}")) == repr(source)
    with pytest.raises(drift.SettingsError, match="has the parameter 'gruop'"):
        source_of(f"kafka://{kafka.servers}?gruop=g#{topic}")
    with drift.run(graph, {"n": source}, engine=engine, state=state) as run:
        kafka.send(topic, {0: [b"%d" % n for n in range(10)]})
        assert [next(run).payload for _ in range(4)] == list(range(4))
        assert committed() <= 4
        kafka.send(topic, {0: [b"%d" % n for n in range(20, 30)]})
        assert [next(run).payload for _ in range(10)] == [*range(4, 10), *range(20, 24)]
        batches = run.batches()
        wait_until(lambda: bool(next(batches)) and committed() >= 10, "offsets are committed")
        assert committed() <= 14
        run.stop()
        for _ in batches:
            pass
    assert 10 <= committed() <= 14 if stores_state else committed() == 20


def test_offsets_that_a_group_did_not_take_are_committed_again(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A group whose coordinator is not there yet says so later, to a callback."""
    refused: list[Any] = []

    class Refused(confluent_kafka.Consumer):  # type: ignore[misc]
        def __init__(self, config: dict[str, Any], **more: Any) -> None:
            self.was_made = config.get("on_commit")
            super().__init__(config, **more)

        def commit(self, *, offsets: list[Any], asynchronous: bool) -> None:  # type: ignore[override]
            if self.was_made is not None and len(refused) < 2 and any(each.offset for each in offsets):
                refused.append(offsets)
                self.was_made(confluent_kafka.KafkaError(confluent_kafka.KafkaError._WAIT_COORD), offsets)
            else:
                super().commit(offsets=offsets, asynchronous=asynchronous)

    monkeypatch.setattr("confluent_kafka.Consumer", Refused)
    monkeypatch.setattr("drift.engines.source_feed._ACKNOWLEDGE_S", 0.0)
    topic = kafka.topic("refused")
    graph = drift.Graph("group")
    graph.source("n", time=drift.EventTime(time=lambda n: n)).sink("out")
    with drift.run(graph, {"n": sources.kafka(kafka.servers, topic, decode="json", group="r")}) as run:
        for start in (0, 20):  # a group is told where a batch begins
            kafka.send(topic, {0: [b"%d" % n for n in range(start, start + 10)]})
            assert [next(run).payload for _ in range(9)][-1] == start + 8 - (start > 0)
        batches = run.batches()
        wait_until(lambda: next(batches) is not None and kafka.committed("r", topic, 0) >= 10, "offsets are committed")
    assert len(refused) == 2
    assert caplog.text.count("takes no offsets") == 1


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
def test_a_query_is_read_in_the_order_of_its_key_and_from_any_key_on(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rows = [(n * 7 % 101, f"é{n % 13}|{n}") for n in range(100)]
    name = f"read{next(numbers)}"
    target = request.getfixturevalue("postgres_url") if kind == "postgres" else str(tmp_path / "in.db")
    connected: Any = psycopg.connect(target) if kind == "postgres" else sqlite3.connect(target)
    connected.execute(f"create table {name} (id bigint, word text)")
    connected.cursor().executemany(f"insert into {name} values ({'%s, %s' if kind == 'postgres' else '?, ?'})", rows)
    connected.commit()
    make: Any = getattr(sources, kind)
    for key, at, items_max in (("id", 0, 7), ("word", 1, 30)):
        expected = sorted(rows, key=lambda row: row[at].encode() if at else row[at])
        assert drained(make(target, name, key=key, payload="tuple"), items_max) == (expected, None)
        reader: Any = make(target, f"select word, id from {name};", key=key, rows_at_once=7).open()
        received = reader.read(100) + reader.read(3)
        position = json.loads(json.dumps(reader.position()))
        reader.close()
        behind: Any = make(target, f"select word, id from {name}", key=key).open()
        behind.seek(position)
        received += behind.read(1000)
        assert behind.read(1000) is None
        behind.close()
        assert [(row["id"], row["word"]) for row in received] == expected
    spec = f"{'sqlite:' if kind == 'sqlite' else ''}{target}#{name}:id"
    assert drained(source_of(spec), 30) == ([{"id": row[0], "word": row[1]} for row in sorted(rows)], None)
    connected.execute(f"insert into {name} values (5, 'y')")
    connected.commit()
    for items_max in (1, 3, 1000):  # also where two of one key are not fetched together
        received, error = drained(make(target, name, key="id", payload="tuple"), items_max)
        assert "has 5 as its 'id', behind 5; a key" in str(error) and [row[0] for row in received] == list(range(6))
    connected.execute(f"insert into {name} values (null, 'x')")
    connected.commit()
    connected.close()
    with pytest.raises(InputError, match=r"has a row without .*id.*, which would come nowhere"):
        make(target, name, key="id").open()
    for wrong in (name, "select 1 as one"):
        with pytest.raises(InputError, match="cannot be read"):
            make(target, wrong, key="none_such" if wrong == name else "id").open()


def test_a_redis_source_that_ends_leaves_no_connection(redis_url: str, nothing_left: None) -> None:
    reader = sources.redis(redis_url, "quiet").open()
    assert reader.read(10) == []
    reader.close()
