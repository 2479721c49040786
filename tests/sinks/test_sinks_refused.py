"""Items that a table refuses: set apart beside it with the position, listed, and put in again."""

from __future__ import annotations

import datetime
import enum
import json
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_records_cli import call
from test_sinks import file_bytes_max

import drift
from drift import SettingsError, SinkError, sinks
from drift_graph.meta import global_time
from drift_graph.metas import Metas

numbers = count()
MADE = "create table {} (position bigint primary key, time bigint, word text not null, n bigint check (n < 100))"


class Database(NamedTuple):
    """Attributes:
    where: the file, or the URL.
    spec: as the command has it.
    """

    where: str
    spec: str
    make: Callable[..., Any]
    connect: Callable[[str], Any]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with self.connect(self.where) as connection:
            return [tuple(row) for row in connection.execute(sql).fetchall()]

    def change(self, sql: str) -> None:
        with self.connect(self.where) as connection:
            connection.execute(sql)
            connection.commit()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        path = str(tmp_path / "out.db")
        yield Database(path, f"sqlite:{path}", sinks.sqlite, sqlite3.connect)
    else:
        url = request.getfixturevalue("postgres_url")
        yield Database(url, url, sinks.postgres, psycopg.connect)


def rows(bad: dict[int, Any], length: int = 12) -> list[Any]:
    return [bad.get(n, {"word": f"w{n}", "n": n}) for n in range(length)]


def write(sink: Any, payloads: list[Any], ends: list[int]) -> None:
    """In batches that end at the ends."""
    sink.open()
    try:
        for start, end in zip([0, *ends], [*ends, len(payloads)]):
            sink.write(
                range(start, end), Metas([global_time(n, 0, 0, 0) for n in range(start, end)]), payloads[start:end]
            )
        sink.complete()
    finally:
        sink.close()


BAD = {
    2: {"word": None, "n": 2},  # not null
    3: {"word": "large", "n": 100},  # the check
    6: {"word": "larger", "n": 1 << 70},  # no number of the database
    7: {"word": "\ud800", "n": 7},  # no UTF-8
    9: {"word": "more", "n": 9, "further": 1},  # no column
}


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ends=st.lists(st.integers(1, 11), max_size=4, unique=True).map(sorted), aborted=st.booleans())
def test_what_a_table_refuses_is_set_apart_however_the_output_is_cut_into_batches(
    database: Database, ends: list[int], aborted: bool
) -> None:
    table = f"refused{next(numbers)}"
    database.change(MADE.format(table))
    sink = database.make(database.where, table, columns=["word", "n"], on_error="divert")
    payloads = rows({at: each for at, each in BAD.items() if at != 9})
    if aborted and ends:
        sink.open()
        sink.write(range(ends[0]), Metas([global_time(n, 0, 0, 0) for n in range(ends[0])]), payloads[: ends[0]])
        sink.close()
        sink = database.make(database.where, table, columns=["word", "n"], on_error="divert")
    write(sink, payloads, ends)
    assert database.rows(f"select position, word, n from {table} order by 1") == [
        (n, f"w{n}", n) for n in range(12) if n not in BAD or n == 9
    ]
    found = database.rows(f"select position, time, payload, error from drift_errors where sink = '{table}' order by 1")
    assert [(position, time, json.loads(payload)) for position, time, payload, _ in found] == [
        (n, n, each) for n, each in BAD.items() if n != 9
    ]
    words = ["null|NULL", "check|CHECK", "range|large", "surrogates not allowed|invalid byte sequence"]
    for (*_, error), expected in zip(found, words, strict=True):
        assert any(word in error for word in expected.split("|")), error
    database.change(f"delete from drift_errors where sink = '{table}'")


def test_a_field_that_has_no_column_sets_its_item_apart_and_the_first_may_be_such_a_one(database: Database) -> None:
    table = f"first{next(numbers)}"
    database.change(MADE.format(table))
    payloads = rows({0: {"word": None, "n": 0}, 5: BAD[9]}, 8)
    write(database.make(database.where, table, on_error="divert"), payloads, [1, 2, 4])
    assert database.rows(f"select n from {table} order by 1") == [(n,) for n in (1, 2, 3, 4, 6, 7)]
    (first, second) = database.rows(f"select position, error from drift_errors where sink = '{table}' order by 1")
    assert first[0] == 0 and second[0] == 5 and "has a field 'further'" in second[1]


def test_a_table_of_which_the_first_items_are_refused_and_none_is_made_is_made_later(database: Database) -> None:
    table = f"later{next(numbers)}"
    surrogates = {0: {"word": "\ud800", "n": 0}, 1: {"word": "\ud801", "n": 1}}
    write(database.make(database.where, table, on_error="divert"), rows(surrogates, 2), [])
    write(database.make(database.where, table, on_error="divert"), rows(surrogates, 6), [1, 2, 4])
    assert database.rows(f"select position, word, n from {table} order by 1") == [(n, f"w{n}", n) for n in range(2, 6)]
    assert len(database.rows(f"select * from drift_errors where sink = '{table}'")) == 2


class Two(NamedTuple):
    n: int
    word: Any


class Left(msgspec.Struct, omit_defaults=True):
    n: int
    word: Any = "w"


class Tagged(msgspec.Struct, tag=True, rename="upper"):
    n: int
    word: Any


class Listed(msgspec.Struct, array_like=True):
    n: int
    word: Any


KINDS: dict[str, tuple[Callable[[int, str], Any], list[str] | None]] = {
    "tuples": (lambda n, word: (n, word), ["n", "word"]),
    "tuples by name": (Two, None),
    "structs without their defaults": (Left, None),
    "structs of other names": (Tagged, None),
    "structs as lists": (Listed, None),
    "dicts": (lambda n, word: {"word": word, "n": n}, None),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by_statement", [False, True])
def test_what_is_put_in_again_is_what_would_have_been_put_in(database: Database, kind: str, by_statement: bool) -> None:
    make, columns = KINDS[kind]
    table = f"again{next(numbers)}"
    database.change(f"{MADE.format(table)[:-1]}, added bigint default 7)")
    names, marks = "position, time, word, n", ":position, :time, :word, :n"
    if database.make is sinks.postgres:
        marks = "%(position)s, %(time)s, %(word)s, %(n)s"
    statement = f"insert into {table} ({names}) values ({marks})" if by_statement else None
    name = f"{table} by statement" if by_statement else table
    sink = database.make(database.where, name, columns=columns, statement=statement, on_error="divert")
    write(sink, [make(5, "w"), make(100, "w"), make(6, "x")], [1])
    assert database.rows(f"select position from {table} order by 1") == [(0,), (2,)]
    database.change(f"create table mended_{table} (position bigint primary key, time bigint, word text, n bigint, "
                    f"added bigint default 7)")  # fmt: skip
    database.change(f"insert into mended_{table} select * from {table}")
    database.change(f"drop table {table}")
    database.change(f"alter table mended_{table} rename to {table}")
    assert call("errors", "retry", f"{database.spec}#{name}").exit_code == 0
    assert database.rows(f"select * from {table} order by 1") == [
        *((0, 0, "w", 5, 7), (1, 1, "w", 100, 7), (2, 2, "x", 6, 7)),
    ]


class Floor(enum.IntEnum):
    FIRST = 1


class Half(enum.Enum):
    HALF = 0.5


def test_numbers_of_enumerations_are_put_in_again_as_they_would_have_been_put_in(tmp_path: Path) -> None:
    payloads = [{"n": 0, "floor": Floor.FIRST, "half": Half.HALF, "text": "1"}] * 2
    where = str(tmp_path / "out.db")
    write(sinks.sqlite(where, "taken"), payloads, [])
    with closing(sqlite3.connect(where)) as file:
        file.execute("create table refused as select * from taken where false")
        file.execute("create trigger none before insert on refused begin select raise(abort, 'none'); end")
        write(sinks.sqlite(where, "refused", on_error="divert"), payloads, [])
        file.execute("drop trigger none")
        assert call("errors", "retry", f"sqlite:{where}#refused").exit_code == 0
        found, taken = (
            file.execute(f"select *, typeof(floor), typeof(half) from {name}").fetchall()
            for name in ("refused", "taken")
        )
    assert found == taken and len(taken) == 2


def test_a_moment_that_was_refused_for_its_zone_is_refused_again_until_the_column_has_one(postgres_url: str) -> None:
    table, zone = f"zones{next(numbers)}", datetime.timezone(datetime.timedelta(hours=2))
    database = Database(postgres_url, postgres_url, sinks.postgres, psycopg.connect)
    database.change(f"create table {table} (position bigint primary key, time bigint, at timestamp, clock time)")
    at, clock = datetime.datetime(2026, 1, 2, 3), datetime.time(3)
    moments = [{"at": at, "clock": clock}, {"at": at.replace(tzinfo=zone), "clock": clock}]
    write(sinks.postgres(postgres_url, table, on_error="divert"), moments, [])
    refused = call("errors", "retry", f"{postgres_url}#{table}")
    assert refused.exit_code == 7 and "0 of 1 are in the table" in refused.output
    assert database.rows(f"select position from {table}") == [(0,)]
    database.change(f"alter table {table} alter at type timestamptz using at at time zone 'UTC'")
    assert call("errors", "retry", f"{postgres_url}#{table}").exit_code == 0
    (mended,) = database.rows(f"select at at time zone 'UTC' from {table} where position = 1")
    assert mended == (datetime.datetime(2026, 1, 2, 1),)


@pytest.mark.parametrize(
    ("value", "column"),
    [
        (datetime.timedelta(seconds=-1), "interval"),
        (datetime.timedelta(3, 4, 5), "interval"),
        (datetime.timedelta(1), "text"),
        (uuid.UUID(int=5), "text"),
        (datetime.time(3, tzinfo=datetime.UTC), "timetz"),
        ([datetime.timedelta(1), datetime.timedelta(2)], "text[]"),
        ([[datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)]], "timestamptz[]"),
        ({"drift.value": ["UUID", "no UUID"]}, "jsonb"),
        ((datetime.date(2026, 1, 2), "a"), "pair"),
        ([(datetime.date(2026, 1, 2), "a")], "pair[]"),
    ],
)
def test_what_is_no_text_is_put_in_again(postgres_url: str, value: Any, column: str) -> None:
    table = f"values{next(numbers)}"
    database = Database(postgres_url, postgres_url, sinks.postgres, psycopg.connect)
    if column.startswith("pair"):
        database.change("drop type if exists pair cascade")
        database.change("create type pair as (day date, name text)")
    database.change(f"create table {table} (position bigint primary key, time bigint, n int check (n = 0), v {column})")
    write(sinks.postgres(postgres_url, table, on_error="divert"), [{"n": 0, "v": value}, {"n": 1, "v": value}], [])
    database.change(f"alter table {table} drop constraint {table}_n_check")
    assert call("errors", "retry", f"{postgres_url}#{table}").exit_code == 0
    assert len(database.rows(f"select v from {table}")) == 2
    assert len(database.rows(f"select distinct v from {table}")) == 1


def test_a_tuple_that_is_refused_as_an_array_is_refused_again(postgres_url: str) -> None:
    """Postgres has it as a row, which it takes for a column of rows; an array is a list."""
    table = f"values{next(numbers)}"
    database = Database(postgres_url, postgres_url, sinks.postgres, psycopg.connect)
    database.change(f"create table {table} (position bigint primary key, time bigint, v int[])")
    write(sinks.postgres(postgres_url, table, on_error="divert"), [{"v": (1, 2)}, {"v": [3]}], [])
    refused = call("errors", "retry", f"{postgres_url}#{table}")
    assert refused.exit_code == 7 and "0 of 1 are in the table" in refused.output
    assert database.rows(f"select v from {table}") == [([3],)]


def test_a_run_may_keep_its_state_under_the_name_of_the_table_it_writes_to(postgres_url: str) -> None:
    """Each has a lock by its name, and one run would wait for itself without end."""
    url = f"{postgres_url}&options=-c%20lock_timeout%3D5s"  # nobody else wants them
    name = f"both{next(numbers)}"
    graph = drift.Graph("both")
    graph.source("in").sink("out")
    kept = drift.Checkpoints(f"{postgres_url}#{name}", every_items=3)
    sink = sinks.postgres(url, name)
    assert drift.run(graph, {"in": rows({})}, sinks={"out": sink}, state=kept, batch_items=2).finish().items_out == 12


def test_without_it_a_row_that_is_refused_ends_the_run_and_nothing_is_written(database: Database) -> None:
    table = f"ends{next(numbers)}"
    database.change(MADE.format(table))
    with pytest.raises(SinkError, match="does not take the items at positions 0 to 11"):
        write(database.make(database.where, table), rows({3: BAD[3]}), [])
    assert database.rows(f"select * from {table}") == []
    with pytest.raises(SettingsError, match="on_error='drop' is neither 'error' nor 'divert'"):
        database.make(database.where, table, on_error="drop")


def test_a_mistake_in_a_statement_ends_the_run_also_where_items_may_be_refused(database: Database) -> None:
    sink = database.make(
        database.where, f"none{next(numbers)}", statement="insert into nowhere values (1)", on_error="divert"
    )
    with pytest.raises(SinkError, match="nowhere"):
        write(sink, rows({}), [])


def test_what_was_set_apart_is_listed_shown_and_put_in_again(database: Database, tmp_path: Path) -> None:
    table = f"again{next(numbers)}"
    database.change(MADE.format(table))
    graph = drift.Graph("rows")
    graph.source("in").sink("out")
    sink = database.make(database.where, table, on_error="divert")
    drift.run(graph, {"in": rows({at: BAD[at] for at in (2, 3)})}, sinks={"out": sink}).finish()
    where = f"{database.spec}#{table}"
    listed = json.loads(call("errors", "list", where, "--json").stdout)
    assert [(each["position"], each["sink"]) for each in listed] == [(2, table), (3, table)]
    assert call("errors", "list", where).stdout.count("\n") == 2
    shown = json.loads(call("errors", "show", where, "3", "--json").stdout)
    assert shown["payload"] == {"word": "large", "n": 100} and ("check" in shown["error"].lower())
    assert call("errors", "show", where, "4").exit_code == 2
    done = call("errors", "retry", where)
    assert done.exit_code == 7 and "0 of 2 are in the table now" in done.output
    database.change(f"create table new{table} (position bigint primary key, time bigint, word text not null, n bigint)")
    database.change(f"insert into new{table} select * from {table}")
    database.change(f"drop table {table}")
    database.change(f"alter table new{table} rename to {table}")
    done = call("errors", "retry", where, "3")
    assert done.exit_code == 0 and "1 of 1 is in the table now" in done.output
    assert database.rows(f"select position, word, n from {table} where n > 99") == [(3, "large", 100)]
    lines = tmp_path / "again.jsonl"
    assert call("errors", "retry", where, "--to", str(lines)).exit_code == 0
    assert [json.loads(line) for line in lines.read_text().splitlines()] == [BAD[2]]
    assert [each["position"] for each in json.loads(call("errors", "list", where, "--json").stdout)] == [2]
    again = database.make(database.where, table, on_error="divert")  # a rerun finds both where they belong
    drift.run(graph, {"in": rows({at: BAD[at] for at in (2, 3)})}, sinks={"out": again}).finish()
    assert len(database.rows(f"select * from {table}")) == 11


def test_a_payload_that_json_does_not_give_back_is_shown_only(database: Database) -> None:
    table = f"shown{next(numbers)}"
    database.change(MADE.format(table))
    write(database.make(database.where, table, on_error="divert"), rows({1: {"word": None, "n": b"\xff"}}, 3), [])
    where = f"{database.spec}#{table}"
    assert "payload: {'word': None, 'n': b'\\xff'}" in call("errors", "show", where, 1).output
    assert "0 of 1 are in the table now" in call("errors", "retry", where).output
    assert call("errors", "retry", where, "--to", "nowhere").exit_code == 2


@pytest.mark.parametrize("kind", ["lines", "table"])
def test_what_the_sink_of_errors_wrote_is_listed_and_becomes_input_again(kind: str, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('1\n{"n": \n0\n"word"\n')
    graph = drift.Graph("tenth")
    graph.source("in", on_error="divert").map(lambda n: 10 // n, name="tenth", on_error="divert").sink("out")
    path = tmp_path / "errors"
    sink = sinks.jsonl(path) if kind == "lines" else sinks.sqlite(path, "apart")
    drift.run(graph, {"in": drift.sources.jsonl(source)}, sinks={"errors": sink}).finish()
    where = str(path) if kind == "lines" else f"sqlite:{path}#apart"
    listed = json.loads(call("errors", "list", where, "--json").stdout)
    assert [each["location"] for each in listed] == ["in, line 2", "tenth", "tenth"]
    assert "ZeroDivisionError" in call("errors", "show", where, listed[1]["position"]).stdout
    refused = call("errors", "retry", where)
    assert refused.exit_code == 2 and "--to FILE.jsonl" in refused.output
    lines, raw = tmp_path / "again.jsonl", tmp_path / "raw.jsonl"
    assert call("errors", "retry", where, "--to", lines).exit_code == 0
    assert [json.loads(line) for line in lines.read_text().splitlines()] == ["eyJuIjog", 0, "word"]
    assert call("errors", "retry", where, listed[0]["position"], "--to", raw, "--raw").exit_code == 0
    assert raw.read_text() == '{"n": \n'
    assert call("errors", "retry", where, "--to", raw).exit_code == 7  # it is there


@pytest.mark.parametrize("kind", ["lines", "table"])
def test_payloads_of_each_kind_are_put_in_again_as_they_were(kind: str, tmp_path: Path) -> None:
    """Also objects, which a table of SQLite has as text, and text of a step that could be base64."""
    source = tmp_path / "in.jsonl"
    source.write_text('{"n": 0, "of": {"a": [1, "x"]}}\nabcd\n"lone"\n[3]\n"{"\n')
    graph = drift.Graph("tenth")
    graph.source("in", on_error="divert").map(lambda row: 10 // row["n"], name="tenth", on_error="divert").sink("out")
    path = tmp_path / "reports"
    sink = sinks.jsonl(path) if kind == "lines" else sinks.sqlite(path, "errors")
    drift.run(graph, {"in": drift.sources.jsonl(source)}, sinks={"errors": sink}).finish()
    where = str(path) if kind == "lines" else f"sqlite:{path}"  # the table's name can be left out
    lines, raw = tmp_path / "again.jsonl", tmp_path / "raw.jsonl"
    done = call("errors", "retry", where, "--to", lines)
    assert "5 payloads are in" in done.output and "1 could not be decoded" in done.output
    others = [{"n": 0, "of": {"a": [1, "x"]}}, "lone", [3], "{"]
    found = [json.loads(line) for line in lines.read_text().splitlines()]
    assert found == [others[0], "YWJjZA==", *others[1:]]
    assert call("errors", "retry", where, "--to", raw, "--raw").exit_code == 0
    assert [line for line in raw.read_text().splitlines() if line != "abcd"] == [
        json.dumps(each, separators=(",", ":")) for each in others
    ]
    assert json.loads(call("errors", "show", where, 0, "--json").stdout)["payload"] == others[0]


def test_a_file_that_cannot_be_written_whole_is_not_left(tmp_path: Path) -> None:
    path, lines = tmp_path / "errors.jsonl", tmp_path / "again.jsonl"
    report = {"location": "s", "error": "ValueError: no", "payload": "x" * 100_000}
    path.write_text(json.dumps({"position": 0, "time": 0, "meta": "", "payload": report}) + "\n")
    with file_bytes_max(10_000):
        done = call("errors", "retry", path, "--to", lines)
    assert done.exit_code == 7 and "cannot be written: File too large" in done.output
    assert not lines.exists()


def test_what_has_no_diverted_items_is_said(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text('{"position": 0, "time": 0, "meta": "", "payload": 3}\n')
    found = call("errors", "list", tmp_path / "out.jsonl")
    assert found.exit_code == 2 and "out.jsonl, line 1: this is no line of a sink of errors" in found.output
    assert "there is no file" in call("errors", "list", f"sqlite:{tmp_path}/none#t").output
    sqlite3.connect(tmp_path / "empty.db").close()
    assert "has no diverted items" in call("errors", "list", f"sqlite:{tmp_path}/empty.db#t").output
    (tmp_path / "empty").write_text("")
    assert "has no diverted items" in call("errors", "list", tmp_path / "empty").output
