"""What the sources of the oracle give: rows, as dicts, of a few schemas, in and out of order."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars as pl

from frozen.draw import Draw

Row = dict[str, Any]

#: Most by which a row comes after one with a greater time.
LATENESS = 20
TRIPS = {"at": int, "id": int, "key": str, "zone": int, "n": int, "fare": float}
_KEYS = ["a", "b", "c", "Äé", "", "long key of more than sixteen bytes", "d", "e"]
_FARES = [0.0, -0.0, 0.1, 2.5, 1e300, -1e300, 1 / 3, 5e-324, float("inf"), float("-inf"), float("nan")]

#: A day in milliseconds, for calendars; begins at 2024-03-30, a day before clocks change in Europe.
DAY_MS = 86_400_000
SPRING_MS = 1_711_756_800_000


def trips(
    draw: Draw,
    count: int,
    *,
    keys: int = 4,
    step: int = 3,
    odd_fares: bool = False,
    ordered: bool = False,
    start: int = 0,
) -> list[Row]:
    """Rows of `TRIPS`: numbered, in the order of their times unless moved on by less than `LATENESS`.

    Args:
        keys: how many different ones.
        step: most by which a time is above the one before.
        odd_fares: whether some are NaN, infinite or -0.0.
        ordered: whether none comes out of order.
        start: of the times.
    """
    rows: list[Row] = []
    at = start
    for number in range(count):
        at += draw.below(step + 1)
        key = draw.below(keys)
        name = _KEYS[key] if key < len(_KEYS) else f"key {key}"
        fare = draw.of(_FARES) if odd_fares and draw.one_in(3) else draw.below(400) / (4 if draw.one_in(2) else 7)
        rows.append({"at": at, "id": number, "key": name, "zone": key % 3 - 1, "n": draw.below(12), "fare": fare})
    if not ordered:
        places = [row["at"] * 10 + draw.below(LATENESS * 10) for row in rows]
        rows = [rows[place] for place in sorted(range(count), key=lambda place: (places[place], place))]
    return rows


def equal_trips(draw: Draw, count: int, **options: Any) -> list[Row]:
    """Rows many of which are equal, and have equal times."""
    rows = trips(draw, count, step=1, **options)
    return [{**row, "id": row["id"] % 5, "n": row["n"] % 2, "fare": 1.5} for row in rows]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True)
class Place:
    name: str
    x: float


WIDE: dict[str, Any] = {
    "at": int,
    "id": int,
    "small": pl.Int8,
    "count": pl.UInt64,
    "half": pl.Float32,
    "fare": float,
    "flag": bool,
    "text": str,
    "raw": bytes,
    "day": pl.Date,
    "clock": pl.Time,
    "when": pl.Datetime("us"),
    "moment": pl.Datetime("ms", "UTC"),
    "wait": pl.Duration("us"),
    "price": pl.Decimal(12, 2),
    "kind": pl.Enum(["bus", "tram", "metro"]),
    "name": pl.Categorical(),
    "parts": pl.List(pl.Int64),
    "place": pl.Struct({"x": pl.Float64, "name": pl.String}),
}


def wide_rows(draw: Draw, count: int, *, nulls: bool = True) -> list[Row]:
    """Rows of `WIDE`, some of whose values are None."""
    rows = []
    for number in range(count):
        day = datetime.date(1970 + draw.below(80), 1 + draw.below(12), 1 + draw.below(28))
        clock = datetime.time(draw.below(24), draw.below(60), draw.below(60), draw.below(1_000_000))
        row: Row = {
            "at": number // 2,
            "id": number,
            "small": draw.below(256) - 128,
            "count": draw.below(2**32) * 2**32,
            "half": draw.below(1000) / 8,
            "fare": draw.of(_FARES),
            "flag": draw.one_in(2),
            "text": draw.of(["", "a", "é中", "x" * 300, "\0"]),
            "raw": bytes([draw.below(256)] * draw.below(5)),
            "day": day,
            "clock": clock,
            "when": datetime.datetime.combine(day, clock),
            "moment": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
            + datetime.timedelta(milliseconds=draw.below(10**9)),
            "wait": datetime.timedelta(microseconds=draw.below(10**9) - 10**8),
            "price": Decimal(draw.below(10**6)).scaleb(-2),
            "kind": draw.of(["bus", "tram", "metro"]),
            "name": draw.of(["n1", "n2", ""]),
            "parts": [draw.below(9) for _ in range(draw.below(4))],
            "place": {"x": draw.below(9) / 2, "name": draw.of(["here", "there"])},
        }
        if nulls:
            row.update({name: None for name in row if name not in ("at", "id") and draw.one_in(9)})
        rows.append(row)
    return rows


def objects(draw: Draw, count: int) -> list[Any]:
    """Values of many types that are no rows; some are equal by `==`."""
    kinds: Sequence[Callable[[], Any]] = (
        lambda: draw.of([1, True, 1.0, 0, False, 0.0, -0.0, float("nan"), None, "", b"", "1", b"1"]),
        lambda: draw.below(9) * 2 ** draw.below(90) - 2**70,
        lambda: tuple(draw.below(3) for _ in range(draw.below(4))),
        lambda: [draw.below(3), [None, (draw.below(2),)]],
        lambda: {"b": draw.below(3), "a": draw.of([None, 1.5])},
        lambda: frozenset([draw.below(3), draw.below(3)]),
        lambda: draw.of([Colour.RED, Colour.BLUE, Level.LOW, Level.HIGH]),
        lambda: Place(draw.of(["here", "there"]), draw.below(3) / 2),
        lambda: Decimal(draw.below(100)) / draw.of([1, 10, 100]),
        lambda: datetime.datetime(2024, 1, 1 + draw.below(28), tzinfo=draw.of([None, datetime.UTC])),
        lambda: datetime.timedelta(seconds=draw.below(5)),
        lambda: draw.of(["\ud800", "é", "x" * draw.below(300)]),
    )
    return [draw.of(kinds)() for _ in range(count)]
