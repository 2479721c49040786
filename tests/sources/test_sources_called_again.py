"""Sources of servers in a run with state that is called again: live and to the present end, in any order."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import deltalake
import psycopg
import pyarrow as pa
import pytest
import redis as redis_client
from lakes import Delta, Iceberg
from waiting import wait_until

import drift
from drift import sources
from drift.sources.offsets import Offsets, Range

numbers = count()


class Server(NamedTuple):
    """What gives the numbers that were added.

    Attributes:
        source: live, or to the present end.
        add: numbers.
    """

    source: Callable[[bool], Any]
    add: Callable[[Sequence[int]], object]


@pytest.fixture(params=["redis", "kafka", "postgres changes"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    name = f"again_{next(numbers)}"
    if request.param == "redis":
        url = request.getfixturevalue("redis_url")
        with redis_client.Redis.from_url(url) as client:
            yield Server(
                lambda ends: sources.redis(url, name, decode="json", until_end=ends),
                lambda more: [client.xadd(name, {"payload": str(n)}) for n in more],
            )
    elif request.param == "kafka":
        kafka = request.getfixturevalue("kafka")
        kafka.topic(name)
        yield Server(
            lambda ends: sources.kafka(kafka.servers, name, decode="json", until_end=ends),
            lambda more: kafka.send(name, {0: [str(n).encode() for n in more]}),
        )
    else:
        url = request.getfixturevalue("postgres_url")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"create table {name} (n int primary key)".encode())
            connection.execute(f"create publication {name} for table {name}".encode())
            connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
            yield Server(
                lambda ends: sources.postgres_changes(url, name, slot=name, until_end=ends),
                lambda more: [connection.execute(f"insert into {name} values ({n})".encode()) for n in more],
            )
            wait_until(lambda: _is_dropped(connection, name), "the slot is not in use")
            connection.execute(f"drop publication {name}; drop table {name}".encode())


def _is_dropped(connection: psycopg.Connection, slot: str) -> bool:
    try:
        connection.execute("select pg_drop_replication_slot(%s)", (slot,))
    except psycopg.errors.ObjectInUse:
        return False
    return True


def graph(time: Any) -> drift.Graph:
    made = drift.Graph("again")
    made.source("s", time=time).map(number).sink("out")
    return made


def number(payload: Any) -> int:
    return payload["row"]["n"] if isinstance(payload, dict) else payload


def given(server: Server, state: Path, time: Any, *, stop_after: int | None = None, **more: Any) -> list[int]:
    """What a call gives: to the present end, or live, stopped behind so many items."""
    run, got = drift.run(graph(time), {"s": server.source(stop_after is None)}, state=state, **more), []
    for item in run:
        got.append(item.payload)
        if len(got) == stop_after:
            run.stop()
    return got


TIMES = pytest.mark.parametrize("time", [drift.ArrivalTime(), drift.EventTime(time=number)], ids=["arrival", "event"])


@TIMES
def test_a_call_to_the_end_goes_on_where_a_live_run_was_stopped(server: Server, time: Any, tmp_path: Path) -> None:
    server.add(range(5))
    got = given(server, tmp_path / "state", time, stop_after=3)
    server.add(range(5, 8))
    got += given(server, tmp_path / "state", time)
    assert sorted(set(got)) == list(range(8)) and len(got) == 8


def test_a_call_to_the_end_gives_items_of_a_live_run_the_times_that_the_clock_gave_them(
    server: Server, tmp_path: Path
) -> None:
    state = drift.Checkpoints(tmp_path / "state", every_s=0)
    server.add(range(20))
    live = drift.run(graph(drift.ArrivalTime()), {"s": server.source(False)}, state=state, batch_items=4)
    given_live = {}
    for item in live:
        given_live[item.payload] = item.meta
        if len(given_live) == 10:
            break  # the item in hand comes again
    live.close()
    rest = {
        item.payload: item.meta
        for item in drift.run(graph(drift.ArrivalTime()), {"s": server.source(True)}, state=state)
    }
    assert sorted(given_live.keys() | rest) == list(range(20))
    again = given_live.keys() & rest.keys()
    assert again and {n: given_live[n] for n in again} == {n: rest[n] for n in again}


@TIMES
def test_calls_to_the_end_go_on_behind_a_pause_and_are_refused_behind_the_end(
    server: Server, time: Any, tmp_path: Path
) -> None:
    server.add(range(3))
    got = given(server, tmp_path / "state", time, complete=False)
    assert given(server, tmp_path / "state", time, complete=False) == []
    server.add(range(3, 6))
    got += given(server, tmp_path / "state", time, complete=False)
    server.add([6, 7])  # which the call that completes the input reads too: a pause is no end
    got += given(server, tmp_path / "state", time)
    assert got == list(range(8)) and given(server, tmp_path / "state", time) == []
    server.add([8])
    for stop_after in (None, 1):
        with pytest.raises(drift.SettingsError, match="is over"):
            given(server, tmp_path / "state", time, stop_after=stop_after)


def test_offsets_of_a_live_reading_have_no_end_and_those_of_another_keep_it() -> None:
    live, ends = (Offsets("t", {0: Range(0, 4)}, "earliest", live=live) for live in (True, False))
    for offsets in (live, ends):
        offsets.behind([(0, 5)])  # a live one reads behind the end that there was
    for position, end in ((live.position(), 9), (ends.position(), 4)):
        later = Offsets("t", {0: Range(0, 9)}, "earliest")
        later.seek(position)
        assert (later.next, later.ends) == ({0: 6}, {0: end})
        later.end_anew()
        assert later.ends == {0: 9}
        assert later.position()["offsets"] == {"0": [6, None]}  # nor is the end of a pause one of the next call
    for position, end in ((live.position(), 5), (ends.position(), 0)):
        more = Offsets("t", {0: Range(0, 9), 1: Range(0, 5)}, "earliest")
        more.seek(position)
        assert more.ends[1] == end  # of a partition that was added


class Place(NamedTuple):
    """What is read up to its present end.

    Attributes:
        source: of it.
        fill: delete what is there, and put these numbers there, from the first place on.
        add: numbers.
        trim: delete so many of the oldest.
    """

    source: Callable[..., Any]
    fill: Callable[[Sequence[int]], object]
    add: Callable[[Sequence[int]], object]
    trim: Callable[[int], object] | None


class Topic:
    """A name of topics, of which one is deleted where the next is begun: the mock has no such request."""

    def __init__(self, kafka: Any) -> None:
        self.kafka, self.name = kafka, ""

    def fill(self, more: Sequence[int]) -> None:
        self.name = self.kafka.topic(f"anew_{next(numbers)}")
        self.add(more)

    def add(self, more: Sequence[int]) -> None:
        for n in more:
            self.kafka.send(self.name, {n % 2: [str(n).encode()]})

    def source(self, *, until_end: bool = True, **more: Any) -> Any:
        return sources.kafka(self.kafka.servers, self.name, decode="json", until_end=until_end, **more)


def table_of(run: Callable[[str], object], source: Callable[[], Any]) -> Place:
    def add(more: Sequence[int]) -> None:
        for n in more:
            run(f"insert into anew select coalesce(max(id), 0) + 1, {n} from anew")

    def fill(more: Sequence[int]) -> None:
        run("drop table if exists anew")
        run("create table anew (id int primary key, n int)")
        add(more)

    return Place(source, fill, add, lambda most: run(f"delete from anew where id <= {most}"))


def lake_of(lake: Any, drop: Callable[[], object]) -> Place:
    def add(more: Sequence[int]) -> None:
        if lake.library == "deltalake":
            deltalake.write_deltalake(str(lake.folder), pa.table({"n": more}), mode="append")
        else:
            lake.table().append(pa.table({"n": more}))

    def fill(more: Sequence[int]) -> None:
        drop()
        if lake.library == "deltalake":
            add(more)
        else:
            lake.created(pa.table({"n": more}))

    return Place(lake.source, fill, add, None)


@pytest.fixture(params=["redis", "kafka", "sqlite", "postgres", "delta", "iceberg"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    name = f"anew_{next(numbers)}"
    if request.param == "redis":
        url = request.getfixturevalue("redis_url")
        with redis_client.Redis.from_url(url) as client:

            def add(more: Sequence[int]) -> None:
                for n in more:
                    client.xadd(name, {"payload": str(n)}, id=f"{client.xlen(name) + 1}-{n}")

            yield Place(
                lambda until_end=True, **more: sources.redis(url, name, decode="json", until_end=until_end, **more),
                lambda more: (client.delete(name), add(more)),
                add,
                None,
            )
    elif request.param == "kafka":
        topic = Topic(request.getfixturevalue("kafka"))
        yield Place(topic.source, topic.fill, topic.add, None)
    elif request.param == "sqlite":
        path = str(tmp_path / "anew.db")
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            yield table_of(connection.execute, lambda: sources.sqlite(path, "anew", key="id"))
    elif request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        with psycopg.connect(url, autocommit=True) as connection:
            yield table_of(
                lambda sql: connection.execute(sql.encode()), lambda: sources.postgres(url, "anew", key="id")
            )
            connection.execute("drop table anew")
    elif request.param == "delta":
        yield lake_of(Delta(tmp_path / "lake"), lambda: shutil.rmtree(tmp_path / "lake", ignore_errors=True))
    else:
        lake = Iceberg(tmp_path)
        yield lake_of(lake, lambda: (tmp_path / "catalog.db").unlink(missing_ok=True))


def rest_of(place: Place, state: Path) -> list[int]:
    made = drift.Graph("anew")
    made.source("s").map(lambda payload: payload["n"] if isinstance(payload, dict) else payload).sink("out")
    return [item.payload for item in drift.run(made, {"s": place.source()}, state=state, complete=False)]


@pytest.mark.parametrize("anew", [range(100, 103), range(100, 106), range(100, 112)], ids=["fewer", "as many", "more"])
def test_what_was_deleted_and_begun_anew_under_its_name_is_refused(
    place: Place, anew: Sequence[int], tmp_path: Path
) -> None:
    place.fill(range(4))
    got = rest_of(place, tmp_path / "state")
    place.add([4, 5])
    got += rest_of(place, tmp_path / "state")
    assert sorted(got) == [*range(6)]
    place.fill(anew)
    for _ in range(2):  # nothing was read
        with pytest.raises(drift.InputError, match=r"when the state of this run was saved, and now .*; bring back"):
            rest_of(place, tmp_path / "state")


@pytest.mark.parametrize("place", ["redis", "kafka"], indirect=True)
@pytest.mark.parametrize("anew", [1, 5, 12])
def test_what_was_begun_at_its_end_and_not_read_is_known_again(place: Place, anew: int) -> None:
    def opened() -> Any:
        source = place.source(start="$" if "redis" in repr(place.source()) else "latest", until_end=False)
        return closing(source.open())

    place.fill(range(6))
    with opened() as reader:
        position = json.loads(json.dumps(reader.position()))
    place.add([6])
    with opened() as reader:
        reader.seek(position)
        assert [reader.position().get(each) for each in ("mark", "marks")] == [
            position.get(each) for each in ("mark", "marks")
        ]
        found: list[Any] = []
        while not found:
            found += reader.read(9)
    assert found == [6]
    place.fill(range(100, 100 + anew))
    with opened() as reader, pytest.raises(drift.InputError, match=r"state of this run was saved, and now .*; bring"):
        reader.seek(position)


def test_what_was_read_may_be_deleted_from_a_table(tmp_path: Path, place: Place) -> None:
    if place.trim is None:
        return
    place.fill(range(6))
    assert rest_of(place, tmp_path / "state") == [*range(6)]
    place.trim(3)
    place.add([6])
    assert rest_of(place, tmp_path / "state") == [6]
    place.add([7])
    place.trim(7)
    assert rest_of(place, tmp_path / "state") == [7]
