"""Nexmark in small: every query's answer is DuckDB's, on every engine, and a wrong one is noticed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("polars")
sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.nexmark import __main__ as nexmark
from benchmarks.nexmark import columns, loops
from benchmarks.nexmark.duck import answer, database
from benchmarks.nexmark.events import Auction, Bid, Event, Person, event, events
from benchmarks.nexmark.queries import QUERIES

EVENTS = 6000
REFERENCE_EVENTS = 400  # a join takes it the square of them; what is long is compared with DuckDB

REFERENCE = {"engine": "reference"}


@pytest.fixture(scope="module")
def arrived() -> list[Event]:
    return events(EVENTS)


@pytest.fixture(scope="module")
def answers(arrived: list[Event]) -> dict[str, list[Any]]:
    connection = database(arrived)
    return {name: answer(connection, name) for name in QUERIES}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_gives_what_duckdb_gives_on_every_engine(
    name: str, arrived: list[Event], answers: dict[str, list[Any]]
) -> None:
    digests = {}
    for engine, settings in nexmark.ENGINES.items():
        if engine != "spark":
            rows, digests[engine], *_ = nexmark.run_query(name, arrived, settings)
            nexmark.compare(name, engine, rows, answers[name])
    assert len(answers[name]) > 1
    assert len(set(digests.values())) == 1
    few = arrived[:REFERENCE_EVENTS]
    assert nexmark.run_query(name, few, nexmark.ENGINES["local"])[1] == nexmark.run_query(name, few, REFERENCE)[1]


@pytest.mark.parametrize("name", columns.QUERIES)
def test_rows_in_columns_give_what_duckdb_gives(name: str, arrived: list[Event], answers: dict[str, list[Any]]) -> None:
    def run(given: list[Event], settings: Any) -> Any:
        return nexmark.run_query(name, columns.frame_of(given), settings)

    nexmark.compare(name, "columns", run(arrived, nexmark.ENGINES["columns"])[0], answers[name])
    few = arrived[:REFERENCE_EVENTS]
    assert run(few, nexmark.ENGINES["columns"])[1] == run(few, REFERENCE)[1]


@pytest.mark.parametrize("name", loops.QUERIES)
def test_loops_give_what_duckdb_gives(name: str, arrived: list[Event], answers: dict[str, list[Any]]) -> None:
    in_order = sorted(arrived, key=lambda each: each.number)
    nexmark.compare(name, "a plain loop", list(loops.QUERIES[name](in_order)), answers[name])


def test_events_are_the_same_in_every_run_and_refer_to_what_is_before_them(arrived: list[Event]) -> None:
    assert sorted(arrived, key=lambda each: each.number) == [event(number) for number in range(EVENTS)]
    assert arrived != sorted(arrived, key=lambda each: each.time)
    kinds = [type(each) for each in arrived]
    assert (kinds.count(Person), kinds.count(Auction), kinds.count(Bid)) == (120, 360, 5520)
    opened = {each.id: each.number for each in arrived if type(each) is Auction}
    joined = {each.id: each.number for each in arrived if type(each) is Person}
    for each in arrived:
        if type(each) is Bid:
            assert opened[each.auction] < each.number
            assert joined[each.bidder] < each.number
        elif type(each) is Auction:
            assert joined[each.seller] < each.number


def test_a_difference_fails(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--events", "500", "--engine", "local", "--query", "q2"]
    assert nexmark.main(arguments) == 0
    monkeypatch.setitem(QUERIES, "q2", QUERIES["q1"])
    assert nexmark.main(arguments) == 1
    assert "q2 on local: 460 rows that DuckDB has not" in capsys.readouterr().out
