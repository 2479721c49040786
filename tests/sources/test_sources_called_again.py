"""Sources of servers in a run with state that is called again: live and to the present end, in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
import redis as redis_client
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
