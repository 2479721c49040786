"""Changes of a real Postgres come in the order of commits, from any of them on, until a checkpoint is behind them."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sourced import all_of, drained
from test_sources_positions import check
from waiting import wait_until

import drift
from drift import InputError, SettingsError, sinks, sources

numbers = count()


@contextmanager
def table(url: str, columns: str = "id int primary key, n int, text text") -> Iterator[tuple[str, psycopg.Connection]]:
    """A table with a publication and a slot of its name."""
    name = f"changed_{next(numbers)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create table {name} ({columns})".encode())
        connection.execute(f"create publication {name} for table {name}".encode())
        connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
        try:
            yield name, connection
        finally:
            wait_until(lambda: is_dropped(connection, name), "the server knows that a killed run is gone")
            connection.execute(f"drop publication {name}; drop table {name}".encode())


def is_dropped(connection: psycopg.Connection, slot: str) -> bool:
    try:
        connection.execute("select pg_drop_replication_slot(%s)", (slot,))
    except psycopg.errors.ObjectInUse:
        return False
    return True


def place(connection: psycopg.Connection, slot: str) -> int:
    """How far the slot has moved."""
    sql = "select confirmed_flush_lsn - '0/0' from pg_replication_slots where slot_name = %s"
    (found,) = connection.execute(sql, (slot,)).fetchone() or (0,)
    return int(found)


statements = st.one_of(
    st.builds("insert into {0} values ({1}, {2}) on conflict (id) do update set n = excluded.n".format,
              st.just("{0}"), st.integers(0, 4), st.integers(0, 9)),
    st.builds("update {0} set n = {1} where id = {2}".format, st.just("{0}"), st.integers(0, 9), st.integers(0, 4)),
    st.builds("update {0} set id = id + 5 where id = {1} and n > 4".format, st.just("{0}"), st.integers(0, 4)),
    st.builds("delete from {0} where id = {1}".format, st.just("{0}"), st.integers(0, 9)),
    st.just("truncate {0}"),
)  # fmt: skip


OF_ALL_KINDS = [
    (["insert into {0} values (1, 7), (2, 3)", "update {0} set n = 8 where id = 1"], True),
    (["update {0} set id = id + 5 where id = 1", "delete from {0} where id = 6"], True),
    (["truncate {0}", "insert into {0} values (3, 3)"], True),
]


@given(
    transactions=st.lists(st.tuples(st.lists(statements, min_size=1, max_size=4), st.booleans()), max_size=6),
    full=st.booleans(),
    items_max=st.integers(1, 3),
)
@example(transactions=OF_ALL_KINDS, full=False, items_max=1)
@example(transactions=OF_ALL_KINDS, full=True, items_max=1)
@settings(deadline=None, max_examples=12)
def test_who_follows_the_changes_has_the_table_and_goes_on_from_any_of_them(
    postgres_url: str, transactions: list[tuple[list[str], bool]], full: bool, items_max: int
) -> None:
    with table(postgres_url, "id int primary key, n int") as (name, connection):
        if full:
            connection.execute(f"alter table {name} replica identity full".encode())
        for each, commits in transactions:
            with connection.transaction(force_rollback=not commits):
                for sql in each:
                    try:
                        with connection.transaction():
                            connection.execute(sql.format(name).encode())
                    except psycopg.errors.UniqueViolation:
                        pass
        source = sources.postgres_changes(postgres_url, name, slot=name, until_end=True)
        rows: dict[int, int] = {}
        for change in all_of(source):
            assert change["table"] == f"public.{name}" and abs(change["time"] - time.time() * 1000) < 1e7
            if change["op"] == "truncate":
                rows.clear()
            if change["old"] is not None:
                old = rows.pop(change["old"]["id"])
                assert change["old"] == ({"id": change["old"]["id"], "n": old} if full else {"id": change["old"]["id"]})
            if change["row"] is not None:
                rows[change["row"]["id"]] = change["row"]["n"]
        assert sorted(rows.items()) == connection.execute(f"select * from {name} order by id".encode()).fetchall()
        check(lambda: source, items_max)


def test_changes_of_transactions_come_in_the_order_of_their_commits(postgres_url: str) -> None:
    with table(postgres_url) as (name, first), psycopg.connect(postgres_url) as second:
        second.execute(f"insert into {name} values (1, 1)".encode())
        first.execute(f"insert into {name} values (2, 2)".encode())
        second.execute(f"insert into {name} values (3, 3)".encode())
        second.commit()
        source = sources.postgres_changes(postgres_url, name, slot=name, until_end=True)
        assert [change["row"]["id"] for change in all_of(source)] == [2, 1, 3]


def test_values_are_those_of_their_columns_and_what_is_none_of_python_is_diverted(postgres_url: str) -> None:
    columns = (
        "id int primary key, at timestamptz, day date, d numeric, f float8, b bytea, j jsonb, a int[], t text, "
        "i interval[]"
    )
    with table(postgres_url, columns) as (name, connection):
        connection.execute(f"alter table {name} alter column t set storage external".encode())
        connection.execute(
            f"insert into {name} values (1, '2013-01-01 05:00+01', '2013-01-01', 1.50, 0.1, '\\xff', '{{\"a\": [1]}}', "
            f"'{{1,2}}', repeat('long', 10000), "
            f"'{{02:00:00,-3 days +04:05:06.5,-100:00:00.000001,1 day,00:00:00}}')".encode()
        )
        connection.execute(f"insert into {name} (id, day) values (2, 'infinity')".encode())
        connection.execute(f"update {name} set f = 1 where id = 1".encode())
        graph = drift.Graph("changes")
        graph.source("in", on_error="divert").sink("out")
        source = sources.postgres_changes(postgres_url, name, slot=name, until_end=True)
        found: dict[str, list[Any]] = {"out": [], "errors": []}
        drift.run(graph, {"in": source}, sinks=found).finish()
        (inserted, updated), (error,) = ([item.payload for item in found[sink]] for sink in ("out", "errors"))
        row = inserted["row"]
        assert row == {
            "id": 1, "at": dt.datetime(2013, 1, 1, 4, tzinfo=dt.UTC), "day": dt.date(2013, 1, 1), "d": Decimal("1.50"),
            "f": 0.1, "b": b"\xff", "j": {"a": [1]}, "a": [1, 2], "t": "long" * 10000,
            "i": [
                dt.timedelta(hours=2), dt.timedelta(days=-3, hours=4, minutes=5, seconds=6.5),
                -dt.timedelta(hours=100, microseconds=1), dt.timedelta(days=1), dt.timedelta(0),
            ],
        }  # fmt: skip
        assert updated["row"] == {**{name: row[name] for name in row if name != "t"}, "f": 1.0}, "it was not sent again"
        assert "commit at" in str(error) and "change 1" in str(error) and "cannot be decoded" in str(error), error


@pytest.mark.parametrize(
    "kind, text, value",
    [
        ("inet", "10.0.0.1/8", "10.0.0.1/8"), ("inet[]", "{::1,NULL}", ["::1", None]),
        ("cidr", "10.0.0.0/8", "10.0.0.0/8"), ("int4range", "(1,5]", "[2,6)"), ("int4multirange", "{[1,2)}", "{[1,2)}"),
        ("tstzrange", "[2024-01-01 00:00+00,infinity)", '["2024-01-01 00:00:00+00",infinity)'),
        ("json", '{"a": [1, 1.5, 12345678901234567890123]}', {"a": [1, 1.5, 12345678901234567890123]}),
        ("whole", "5", 5), ("small", "5", 5),
    ],
)  # fmt: skip
def test_a_column_has_the_values_of_its_type_in_rows_and_in_changes(
    postgres_url: str, kind: str, text: str, value: Any
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:  # domains, one over the other
        connection.execute("create domain whole as int check (value > 0)")
        connection.execute("create domain small as whole check (value < 10)")
    try:
        with table(postgres_url, f"id int primary key, v {kind}") as (name, connection):
            connection.execute(f"insert into {name} values (1, '{text}')".encode())
            rows = all_of(sources.postgres(postgres_url, f"select * from {name}", key="id"))
            changes = all_of(sources.postgres_changes(postgres_url, name, slot=name, until_end=True))
            assert rows == [{"id": 1, "v": value}] == [change["row"] for change in changes]
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("drop domain small; drop domain whole")


@pytest.mark.parametrize("text, why", [('{"a": 1, "a": 2}', "the key 'a' is there twice"), ("[1e400]", "out of range")])
def test_json_that_no_file_could_have_is_refused_in_rows_and_in_changes(postgres_url: str, text: str, why: str) -> None:
    with table(postgres_url, "id int primary key, v json") as (name, connection):
        connection.execute(f"insert into {name} values (1, '{text}')".encode())
        for source in (
            sources.postgres(postgres_url, f"select * from {name}", key="id"),
            sources.postgres_changes(postgres_url, name, slot=name, until_end=True),
        ):
            read, error = drained(source)
            assert read == [] and why in str(error)


@pytest.mark.parametrize(
    "column, kind, value",
    [
        ("until", "timestamptz", "infinity"), ("since", "timestamptz", "0044-03-15 00:00:00+00 BC"),
        ("day", "date", "-infinity"), ("at", "time", "24:00:00"), ("every", "interval", "1 year 2 mons"),
    ],
)  # fmt: skip
def test_a_value_that_python_has_not_is_named_with_its_table_and_column(
    postgres_url: str, column: str, kind: str, value: str
) -> None:
    with table(postgres_url, f"id int primary key, {column} {kind}") as (name, connection):
        connection.execute(f"insert into {name} values (1, null), (2, '{value}'), (3, null)".encode())
        source = sources.postgres_changes(postgres_url, name, slot=name, until_end=True)
        words = f"change 2: column '{column}' of public.{name}: '{value}' of {kind} is no value of Python: "
        to_do = "; divert such changes, on_error='divert', or leave the column out"
        for _ in range(2):
            read, error = drained(source)
            assert [change["row"]["id"] for change in read] == [1] and words in str(error) and to_do in str(error)
        graph = drift.Graph("changes")
        graph.source("in", on_error="divert").sink("out")
        found = [(item.sink, str(item.payload)) for item in drift.run(graph, {"in": source})]
        assert [sink for sink, _ in found] == ["out", "errors", "out"] and words[10:] in found[1][1]


def test_the_slot_moves_behind_checkpoints_and_no_further(postgres_url: str, tmp_path: Path) -> None:
    with table(postgres_url) as (name, connection):
        began = place(connection, name)
        for n in range(5):
            connection.execute(f"insert into {name} values ({n}, {n})".encode())
        source = sources.postgres_changes(postgres_url, name, slot=name, until_end=True)
        graph = drift.Graph("changes")
        graph.source("in").map(lambda change: change["row"]["n"]).sink("out")
        for _ in range(2):
            assert [item.payload for item in drift.run(graph, {"in": source})] == [0, 1, 2, 3, 4]
        assert place(connection, name) == began, "without state it is not moved"
        out = tmp_path / "out.jsonl"
        state = drift.Checkpoints(tmp_path / "state", every_s=0, keep=1)
        live = sources.postgres_changes(postgres_url, name, slot=name)

        def run_up_to(last: int) -> None:
            run = drift.run(graph, {"in": live}, sinks={"out": sinks.jsonl(out)}, state=state, batch_items=1)
            for item in run:
                if item.payload == last:
                    run.stop()

        run_up_to(4)
        moved = place(connection, name)
        assert moved > began
        for n in range(5, 8):
            connection.execute(f"insert into {name} values ({n}, {n})".encode())
        run_up_to(7)
        assert [json.loads(line)["payload"] for line in out.read_text().splitlines()] == list(range(8))
        assert place(connection, name) > moved


KILLED = """
import os, signal, sys
import drift

url, name, folder = sys.argv[1:]

def number(change):
    if change["row"]["n"] == int(os.environ["DIES_AT"]):
        os.kill(os.getpid(), signal.SIGKILL)
    return change["row"]["n"]

graph = drift.Graph("changes")
graph.source("in").map(number).scan(lambda n: n % 3, 0, lambda state, n: (state + n, (n, state + n))).sink("out")
source = drift.sources.postgres_changes(url, name, slot=name, until_end=True)
state = drift.Checkpoints(f"{folder}/state", every_s=0)
out = drift.sinks.jsonl(f"{folder}/out.jsonl")
drift.run(graph, {"in": source}, sinks={"out": out}, state=state, batch_items=7).finish()
"""


def test_a_run_that_is_killed_has_each_change_once(postgres_url: str, tmp_path: Path) -> None:
    with table(postgres_url) as (name, connection):
        for start in range(0, 200, 10):
            rows = ", ".join(f"({n}, {n})" for n in range(start, start + 10))
            connection.execute(f"insert into {name} values {rows}".encode())
        for dies_at in (60, 133, -1):
            command = [sys.executable, "-c", KILLED, postgres_url, name, str(tmp_path)]
            there = {**os.environ, "DIES_AT": str(dies_at)}
            ended = subprocess.run(command, env=there, check=False, capture_output=True)
            assert ended.returncode == (0 if dies_at < 0 else -signal.SIGKILL), ended.stderr
        states = {0: 0, 1: 0, 2: 0}
        expected = [[n, states.__setitem__(n % 3, states[n % 3] + n) or states[n % 3]] for n in range(200)]
        found = [json.loads(line)["payload"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        assert found == expected


def test_what_cannot_be_followed_says_so(postgres_url: str) -> None:
    def fault(source: Any, position: Any = None) -> str:
        with pytest.raises(InputError) as found, closing(source.open()) as reader:
            reader.seek(position)
        return str(found.value)

    with table(postgres_url) as (name, connection):
        source = sources.postgres_changes(postgres_url, name, slot=name, until_end=True)
        assert "no such publication" in fault(sources.postgres_changes(postgres_url, "none", slot=name))
        assert "check the URL" in fault(sources.postgres_changes("postgresql:///none?host=/nowhere", name, slot=name))
        with closing(source.open()) as reader:
            position: Any = reader.position()  # type: ignore[attr-defined]
        older = {**position, "commit": position["commit"] + (1 << 40)}
        assert "its log ends at" in fault(source, older), "the server was restored with older data"
        assert "it is another server" in fault(source, {**position, "server": "1"})
        with closing(source.open()) as reader:
            reader.seek({name: value for name, value in position.items() if name != "server"})  # of an older state
        connection.execute(f"insert into {name} values (1, 1)".encode())
        connection.execute("select pg_replication_slot_advance(%s, pg_current_wal_lsn())", (name,))
        assert "was read up to the commit at" in (text := fault(source, position)) and "its slot is at" in text
    with pytest.raises(SettingsError, match="is no name of at most 40"):
        sources.postgres_changes(postgres_url, "none", slot="No Slot")
