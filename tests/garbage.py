"""Garbage for sources of servers, and servers that restart in the middle of a run.

    python tests/garbage.py 100            so many rounds
    python tests/garbage.py 20 --seed 7    the same as another time, as far as clocks allow

A round of garbage gives random messages to a source of Redis, Kafka, Postgres or ZeroMQ whose graph diverts: each comes
out, as the reader of its kind decodes it, or is set apart, once and in its place. In a round of restarts Redis (with
what it has saved, which may be older) or the connections of Postgres end at random moments of a run that writes there,
and may keep its state there: the run ends with an error that names the trouble, or with its digest; one after it ends
with the digest, and what is written has no gap. The exit code is 1 where that does not hold.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

import msgspec
import psycopg
import redis as redis_client
import zmq
from servers import Kafka, Redis, postgres_server, redis_server

import drift

ITEMS, RERUNS_MAX = 3000, 5
names = (f"garbage{number}" for number in count())


def message(chosen: Random) -> bytes | None:
    """What a server may hold: JSON, JSON that is damaged, any bytes, none."""
    sound = json.dumps(chosen.choice([1, "é", None, [1, {"a": [2.5]}], {"n": chosen.random()}, 10**30])).encode()
    damaged = bytearray(sound)
    damaged[chosen.randrange(len(damaged))] ^= 1 << chosen.randrange(8)
    kinds = [sound, bytes(damaged), sound[: chosen.randrange(len(sound))], chosen.randbytes(chosen.randrange(40)), None]
    deep, numbers, surrogate = b"[" * chosen.choice([10, 100_000]), b"1" * 5000, b'"\\ud800"'
    return chosen.choice([*kinds, sound, sound, deep, numbers, surrogate, b"NaN", b"\xef\xbb\xbf1"])


def of_redis(url: str, messages: list[bytes | None], decode: str) -> Any:
    name = next(names)
    with redis_client.Redis.from_url(url) as client:
        for each in messages:
            client.xadd(name, {"other": b""} if each is None else {"payload": each})
    return drift.sources.redis(url, name, decode=decode, until_end=True)  # type: ignore[arg-type]


def of_kafka(kafka: Kafka, messages: list[bytes | None], decode: str) -> Any:
    topic = kafka.topic(next(names))
    for at, each in enumerate(messages):
        kafka.send(topic, {at % 3: [each]})
    return drift.sources.kafka(kafka.servers, topic, decode=decode, until_end=True)  # type: ignore[arg-type]


def of_postgres(url: str, messages: list[bytes | None]) -> Any:
    name = next(names)
    with psycopg.connect(url) as connection:
        connection.execute(
            f"create table {name} (k bigint primary key, raw bytea, t timestamptz, f float, n numeric)".encode()
        )
        for at, each in enumerate(messages):
            odd = ["infinity", "-infinity", "4713-01-01 BC", "9999-12-31", "20000-01-01"][at % 5], "NaN"
            connection.execute(f"insert into {name} values (%s, %s, %s, %s, 'NaN')".encode(), (at, each, *odd))
    return drift.sources.postgres(url, name, key="k")


def of_zeromq(messages: list[bytes | None], decode: str) -> Any:
    source = drift.sources.zmq_pull("tcp://127.0.0.1:*", decode=decode)  # type: ignore[arg-type]
    context = zmq.Context()
    sender = context.socket(zmq.PUSH)
    sender.connect(source.address)
    for each in messages:
        if each:  # an empty one ends the input
            sender.send(each)
    sender.send(b"")
    sender.close(linger=60_000)
    return source


def diverted(source: Any) -> list[tuple[str, Any]]:
    graph = drift.Graph("garbage")
    graph.source("in", on_error="divert").sink("out")
    return [(item.sink, item.payload) for item in drift.run(graph, {"in": source})]


def garbage(chosen: Random, redis_url: str, postgres_url: str, kafka: Kafka) -> str:
    """One round; what is wrong, or ""."""
    kind, decode = chosen.choice(["redis", "kafka", "postgres", "zeromq"]), chosen.choice(["json", "text", "bytes"])
    messages = [message(chosen) for _ in range(chosen.randrange(40))]
    if kind == "postgres":
        source = of_postgres(postgres_url, messages)
    elif kind == "zeromq":
        source, messages = of_zeromq(messages, decode), [each for each in messages if each]
    else:
        source = of_redis(redis_url, messages, decode) if kind == "redis" else of_kafka(kafka, messages, decode)
    items = diverted(source)
    if len(items) != len(messages):
        return f"{kind}, {decode}: {len(messages)} messages, and {len(items)} items"
    if kind == "postgres":
        return ""
    if kind == "kafka":  # in the order of their timestamps
        items.sort(key=lambda item: item[0])
        messages.sort(key=lambda each: not sound(each, decode, kind))
        sinks = sorted("out" if sound(each, decode, kind) else "errors" for each in messages)
    else:
        sinks = ["out" if sound(each, decode, kind) else "errors" for each in messages]
    found = [sink for sink, _ in items]
    wrong = next((at for at, (a, b) in enumerate(zip(found, sinks)) if a != b), None)
    return "" if wrong is None else f"{kind}, {decode}: {messages[wrong]!r:.80} is in {found[wrong]!r}"


def sound(each: bytes | None, decode: str, kind: str) -> bool:
    if each is None:
        return kind == "kafka"  # a message without a value is None
    try:
        if decode == "text":
            each.decode()
        elif decode == "json":
            msgspec.json.decode(each)
    except (UnicodeDecodeError, RecursionError, msgspec.MsgspecError):
        return False
    return True


def summed() -> drift.Graph:
    graph = drift.Graph("summed")
    numbers = graph.source("in")
    numbers.scan(lambda n: n % 7, 0, lambda total, n: (total + n, {"total": total + n, "n": n})).sink("out")
    return graph


EXPECTED = drift.run(summed(), {"in": range(ITEMS)}).finish().digest


def restarts(chosen: Random, server: Redis, postgres_url: str) -> str:
    """One round; what is wrong, or ""."""
    name, in_redis, moments = next(names), chosen.random() < 0.5, sorted(chosen.sample(range(ITEMS), 3))
    place = server.url if in_redis else postgres_url
    make_sink: Callable[..., Any] = drift.sinks.redis if in_redis else drift.sinks.postgres
    keeps = chosen.random() < 0.6
    for _ in range(RERUNS_MAX + len(moments)):
        settings: dict[str, Any] = (
            {"state": drift.Checkpoints(f"{place}#{name}", every_items=200, every_s=0.0)} if keeps else {}
        )
        ended = ""
        try:
            run = drift.run(
                summed(), {"in": range(ITEMS)}, sinks={"out": make_sink(place, name)}, batch_items=50, **settings
            )
            for item in run:
                if moments and item.position >= moments[0]:
                    moments.pop(0)
                    restart(chosen, server, postgres_url, in_redis=in_redis)
            ended = run.digest
        except (drift.SinkError, drift.StorageError):
            continue
        if ended != EXPECTED:
            return f"{place}: another digest"
        break
    else:
        return f"{'Redis' if in_redis else 'Postgres'}, state: {keeps}: no run came to its end"
    if in_redis:
        with redis_client.Redis.from_url(server.url, decode_responses=True) as client:
            entries: Any = client.xrange(name)
            positions = [int(entry.partition("-")[0]) - 1 for entry, _ in entries]
            client.delete(name)
    else:
        with psycopg.connect(postgres_url) as connection:
            positions = [at for (at,) in connection.execute(f"select position from {name} order by 1".encode())]
    return (
        ""
        if positions == list(range(ITEMS))
        else f"{'Redis' if in_redis else 'Postgres'}: {len(positions)} rows, or a gap"
    )


def restart(chosen: Random, server: Redis, postgres_url: str, *, in_redis: bool) -> None:
    if not in_redis:
        with psycopg.connect(postgres_url) as connection:
            connection.execute("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()")
        return
    with redis_client.Redis.from_url(server.url) as client:
        if chosen.random() < 0.8:
            client.save()
    server.kill()
    server.start()


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rounds", type=int)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    kafka = Kafka()
    with redis_server() as server, postgres_server() as postgres_url:
        for number in range(arguments.rounds):
            chosen = Random(f"{arguments.seed} {number}")
            wrong = garbage(chosen, server.url, postgres_url, kafka)
            if number % 4 == 0:
                wrong = wrong or restarts(chosen, server, postgres_url)
            if wrong:
                print(f"\nround {number}: {wrong}")
                return 1
            print(f"\r{number + 1} rounds", end="", flush=True)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
