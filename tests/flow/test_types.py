"""What type checkers infer of a graph: payloads have the types that functions give, and an engine is one of four."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Optional, TypedDict

import polars as pl
import pytest
from mypy import api
from waiting import HANG_S

import drift

ROOT = Path(__file__).parents[2]
PROGRAM = """
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, TypeGuard, assert_type

import drift


class Trip:
    origin: str
    delay: int


def is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str)


def delayed(trip: Trip) -> bool:
    return trip.delay > 0


def origin(trip: Trip) -> str:
    return trip.origin


def running(total: int, trip: Trip) -> tuple[int, float]:
    return total + trip.delay, 0.5


def letters(trip: Trip) -> list[str]:
    return list(trip.origin)


def delay(trip: Trip) -> int:
    return trip.delay


def spread(trips: tuple[Trip, ...]) -> float:
    return 0.5


def longer(one: Trip, other: Trip) -> Trip:
    return one if one.delay > other.delay else other


class Other:
    origin: str


def other_origin(other: Other) -> str:
    return other.origin


def bodies(pairs: drift.Stream[tuple[int, Trip]]) -> drift.Stream[int]:
    return pairs.map(delay_of)


def delay_of(pair: tuple[int, Trip]) -> int:
    return pair[1].delay + pair[0]


def trip_of(pair: tuple[int, Trip]) -> Trip:
    return pair[1]


def again(pairs: drift.Stream[tuple[int, Trip]]) -> drift.Stream[Trip]:
    return pairs.map(trip_of)


def added(state: int, number: int) -> int:
    return state + number


def counted(state: int, trip: Trip) -> int:
    return state + 1


class Fare(TypedDict):
    zone: str
    fare: float | None


@dataclass
class Point:
    x: int


def zone_of(fare: Fare) -> str:
    return fare["zone"]


async def scored(trip: Trip) -> float:
    return 0.5


def asked(trip: Trip, call: drift.Call) -> bytes:
    return call.key.encode()


def asked_together(trips: list[Trip]) -> list[int]:
    return [trip.delay for trip in trips]


async def scored_together(trips: list[Trip], call: drift.Call) -> Sequence[float]:
    return [0.5 for _ in trips]


graph = drift.Graph("types")
trips = graph.source("trips", type=Trip)
fares = graph.source("fares", schema=Fare)
assert_type(fares, drift.Stream[Fare])
assert_type(fares.map(zone_of), drift.Stream[str])
assert_type(fares.filter("fare > 3", lambda fare: fare["zone"] == "JFK"), drift.Stream[Fare])
assert_type(fares.map(lambda fare: fare["fare"]), drift.Stream[float | None])
assert_type(graph.table("zones", schema=Fare), drift.Stream[Fare])
assert_type(graph.source("points", schema=Point), drift.Stream[dict[str, Any]])
assert_type(graph.source("rows", schema={"at": int}), drift.Stream[dict[str, Any]])
assert_type(trips.call(origin), drift.Stream[str])
assert_type(trips.call(scored, retries=1, name="scored"), drift.Stream[float])
assert_type(trips.call(asked), drift.Stream[bytes])
assert_type(fares.call(zone_of).at_end(drift.agg.collect()), drift.Stream[tuple[str, ...]])
assert_type(
    fares.key_by(zone_of).window(drift.windows.tumbling(60)).collect(),
    drift.Stream[drift.Window[str, tuple[Fare, ...]]],
)
assert_type(trips.call(asked_together, batch=8), drift.Stream[int])
assert_type(trips.call(scored_together, batch=8, concurrency=2), drift.Stream[float])
assert_type(trips, drift.Stream[Trip])
assert_type(graph.source("any"), drift.Stream[Any])
assert_type(graph.source("timed", type=Trip, time=drift.EventTime(lambda trip: trip.delay)), drift.Stream[Trip])
assert_type(trips.filter(delayed), drift.Stream[Trip])
assert_type(trips.filter(lambda trip: trip.delay > 0), drift.Stream[Trip])
assert_type(graph.source("objects", type=object).filter(is_text), drift.Stream[str])
assert_type(trips.map(origin), drift.Stream[str])
assert_type(trips.map(lambda trip: trip.delay), drift.Stream[int])
assert_type(trips.map(lambda trip, time: (trip.delay, time), with_time=True), drift.Stream[tuple[int, int]])
assert_type(trips.flat_map(lambda trip: [trip.delay]), drift.Stream[int])
assert_type(trips.flat_map(lambda trip, time: [trip.delay + time], with_time=True), drift.Stream[int])
assert_type(trips.at_end(drift.agg.collect().then(spread)), drift.Stream[float])
assert_type(trips.at_end(drift.agg.collect().then(len)), drift.Stream[int])
assert_type(trips.at_end(drift.agg.collect().then(lambda all: all[0].delay)), drift.Stream[Any])
assert_type(trips.at_end(drift.agg.last().then(delay)), drift.Stream[int])
assert_type(trips.count(key=origin), drift.Stream[tuple[str, int]])
assert_type(trips.scan(origin, 0, running), drift.Stream[float])
assert_type(trips.group(origin, 2), drift.Stream[tuple[Trip, ...]])
assert_type(trips.flat_map(letters), drift.Stream[str])

keyed = trips.key_by(origin)
assert_type(keyed, drift.KeyedStream[str, Trip])
assert_type(keyed.filter(delayed), drift.KeyedStream[str, Trip])
assert_type(keyed.filter(lambda trip: trip.delay > 0), drift.KeyedStream[str, Trip])
assert_type(keyed.count(), drift.Stream[tuple[str, int]])
assert_type(keyed.scan(0, running), drift.Stream[float])
assert_type(keyed.reduce(longer), drift.Stream[tuple[str, Trip]])
windowed = keyed.window(drift.windows.tumbling(60))
assert_type(windowed, drift.WindowedStream[str, Trip])
assert_type(windowed.count(), drift.Stream[drift.Window[str, int]])
assert_type(windowed.mean(delay), drift.Stream[drift.Window[str, Any]])
assert_type(windowed.reduce(longer), drift.Stream[drift.Window[str, Trip]])
assert_type(windowed.collect(), drift.Stream[drift.Window[str, tuple[Trip, ...]]])
assert_type(windowed.aggregate(drift.agg.sum(delay)), drift.Stream[drift.Window[str, int]])
assert_type(trips.window(drift.windows.count(9)).max(delay), drift.Stream[drift.Window[None, int]])
assert_type(keyed.at_end(drift.agg.count()), drift.Stream[tuple[str, int]])
assert_type(trips.at_end(drift.agg.collect(origin)), drift.Stream[tuple[str, ...]])

others = graph.source("others", type=Other)
assert_type(trips.join(others, origin, other_origin), drift.Stream[tuple[Trip, Other]])
assert_type(trips.join(others, origin, other_origin, how="left"), drift.Stream[tuple[Trip, Other | None]])
assert_type(keyed.join(others.key_by(other_origin), how="full"), drift.Stream[tuple[Trip | None, Other | None]])
assert_type(keyed.join(others.key_by(other_origin), how="anti"), drift.Stream[Trip])
assert_type(trips.join_as_of(others, origin, other_origin), drift.Stream[tuple[Trip, Other | None]])
assert_type(trips.join_table({"JFK": 1}, origin, how="inner"), drift.Stream[tuple[Trip, int]])
assert_type(trips.zip(others), drift.Stream[tuple[Trip, Other]])
assert_type(trips.route(delayed), tuple[drift.Stream[Trip], ...])
assert_type(trips.replay(3, 0, bodies, added), drift.Stream[int])
assert_type(trips.iterate(3, 0, again, counted), tuple[drift.Stream[int], drift.Stream[Trip]])


def of(item: drift.Item[Trip]) -> None:
    assert_type(item.payload, Trip)
    assert_type(item.time, int)


drift.run(graph, {}, engine="zeromq", workers=2)
drift.run(graph, {}, engine="sparkle")  # WRONG
fares.map(lambda fare: fare["destination"])  # WRONG
trips.call(zone_of)  # WRONG
trips.filter(lambda trip: trip.destination)  # WRONG
trips.map(lambda trip: trip.destination)  # WRONG
trips.flat_map(lambda trip: [trip.destination])  # WRONG
keyed.filter(lambda trip: trip.destination)  # WRONG
trips.count(key=lambda trip: trip.destination)  # WRONG
trips.key_by(lambda trip: trip.destination)  # WRONG
windowed.sum(lambda trip: trip.destination)  # WRONG
"""
WRONG = [number for number, line in enumerate(PROGRAM.splitlines(), 1) if "# WRONG" in line]


REVEALED = """
import drift

def line(text: str) -> list[str]: return text.split()
def length(word: str) -> int: return len(word)
def step(state: float, word: str) -> tuple[float, bytes]: return state, word.encode()

words = drift.Graph("g").source("lines").flat_map(line)
by = words.key_by(length)
reveal_type(words)
reveal_type(by)
reveal_type(by.filter(bool))
reveal_type(by.count())
reveal_type(by.reduce(max))
reveal_type(by.scan(0.0, step))
reveal_type(by.group(3))
reveal_type(by.drop_key())
windowed = by.window(drift.windows.tumbling(5))
reveal_type(windowed.count())
reveal_type(windowed.sum(length))
reveal_type(windowed.aggregate(drift.agg.max_by(length)))
reveal_type(windowed.aggregate(n=drift.agg.count()))
reveal_type(words.window(drift.windows.session(5)).fold(0.0, lambda total, word: total + len(word)))
reveal_type(by.at_end(drift.agg.collect()))
reveal_type(words.at_end(drift.agg.collect(length).then(len)))
reveal_type(words.at_end(drift.agg.top(2, by=length)))
"""

TYPES = [
    "drift.streams.stream.Stream[str]",
    "drift.streams.keyed.KeyedStream[int, str]",
    "drift.streams.keyed.KeyedStream[int, str]",
    "drift.streams.stream.Stream[tuple[int, int]]",
    "drift.streams.stream.Stream[tuple[int, str]]",
    "drift.streams.stream.Stream[bytes]",
    "drift.streams.stream.Stream[tuple[str, ...]]",
    "drift.streams.stream.Stream[str]",
    "drift.streams.stream.Stream[drift.flow.opened.Window[int, int]]",
    "drift.streams.stream.Stream[drift.flow.opened.Window[int, int]]",
    "drift.streams.stream.Stream[drift.flow.opened.Window[int, str]]",
    "drift.streams.stream.Stream[drift.flow.opened.Window[int, dict[str, Any]]]",
    "drift.streams.stream.Stream[drift.flow.opened.Window[None, float]]",
    "drift.streams.stream.Stream[tuple[int, tuple[str, ...]]]",
    "drift.streams.stream.Stream[int]",
    "drift.streams.stream.Stream[tuple[str, ...]]",
]


@pytest.fixture(scope="module")
def mypy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What one run of it says of both programs: each run of its own would read all of drift again."""
    folder = tmp_path_factory.mktemp("typed")
    programs = {"program.py": PROGRAM, "revealed.py": REVEALED}
    for name, text in programs.items():
        (folder / name).write_text(text)
    config = ["--strict", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    said, trouble, _ = api.run([*config, *(str(folder / name) for name in programs)])
    return said + trouble


@pytest.mark.long
def test_what_mypy_infers(mypy: str) -> None:
    assert sorted({int(line) for line in re.findall(r"program\.py:(\d+): error", mypy)}) == WRONG, mypy


def test_a_class_that_says_fields_is_a_schema() -> None:
    class Trip(TypedDict):
        zone: str
        fare: float | None
        days: list[int]

    @dataclass
    class Point:
        kind: ClassVar[str] = "point"
        at: datetime
        x: Optional[int] = None  # noqa: UP045

    class Less(Trip, total=False):
        note: str

    for schema, fields in (
        (Trip, {"zone": pl.String(), "fare": pl.Float64(), "days": pl.List(pl.Int64())}),
        (Point, {"at": pl.Datetime("us"), "x": pl.Int64()}),
    ):
        graph = drift.Graph("classes")
        rows = graph.source("rows", schema=schema)  # type: ignore[arg-type]
        assert rows.schema == fields
        assert graph.table("table", schema=schema).schema == fields  # type: ignore[arg-type]
    graph = drift.Graph("classes")
    graph.source("rows", schema=Trip).filter("fare > 1").map(lambda trip: trip["zone"]).sink("out")
    rows = [{"zone": "a", "fare": 2.0, "days": []}, {"zone": "b", "fare": None, "days": [1]}]
    assert [item.payload for item in drift.run(graph, {"rows": rows})] == ["a"]
    for schema, words in ((Less, "note may be left out"), (int, "is a TypedDict or a dataclass")):
        with pytest.raises(drift.GraphError, match=words):
            graph.source("more", schema=schema)


def test_types_follow_through_keys(mypy: str) -> None:
    revealed = re.findall(r'revealed\.py:\d+: note: Revealed type is "(.*)"', mypy)
    assert [each.replace("builtins.", "") for each in revealed] == TYPES, mypy


@pytest.mark.long
def test_what_pyright_infers(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, str(program)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S)
    found = sorted({int(line) for line in re.findall(r"program\.py:(\d+):\d+ - error", done.stdout)})
    assert found == WRONG, done.stdout + done.stderr
