"""What must never change: an output recorded today has to be the same bytes in every later version.

A failure here is not repaired by writing the new bytes down: it breaks every record that users have kept.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import uuid
from typing import Any, NamedTuple

import msgspec
import pytest

import drift
from drift.machines.keys import Partitioner, identities
from drift_barrier.digest import Digest
from drift_graph.canonical import canonical, hash64
from drift_graph.meta import (
    END,
    END_OF_TIME,
    global_time,
    global_time_of,
    hops_of,
    later_meta,
    pack_time,
    root_of,
    varint,
)
from drift_graph.metas import Metas


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Point:
    x: int
    y: float
    note: str = dataclasses.field(default="", compare=False)


class Pair(NamedTuple):
    left: Any
    right: Any


class Row(msgspec.Struct):
    name: str
    size: int


def test_varints_keep_their_bytes() -> None:
    values = [0, 1, 247, 248, 255, 256, 65535, 65536, 2**32, 2**64 - 1]
    assert [varint(value).hex() for value in values] == [
        "00",
        "01",
        "f7",
        "f8f8",
        "f8ff",
        "f90100",
        "f9ffff",
        "fa010000",
        "fc0100000000",
        "ffffffffffffffffff",
    ]


def test_times_and_global_times_keep_their_bytes() -> None:
    assert pack_time(-(2**63)).hex() == "0000000000000000"
    assert pack_time(-1).hex() == "7fffffffffffffff"
    assert pack_time(0).hex() == "8000000000000000"
    assert END_OF_TIME.hex() == "ff" * 10
    assert global_time(0, 0, 0, 0).hex() == "8000000000000000000000"
    assert global_time(-1, 3, 300, 1).hex() == "7fffffffffffffff03f9012c01"
    assert global_time(1_700_000_000_000, 1, 2**63, 2).hex() == "8000018bcfe5680001ff800000000000000002"
    assert [meta.hex() for meta in Metas.numbered(65535, 2, b"\x01\x00\x00")] == [
        "800000000000ffff010000",
        "8000000000010000010000",
    ]


def test_metas_of_later_items_keep_their_bytes() -> None:
    item = global_time(5, 1, 0, 2) + varint(7)
    timer = later_meta(item, varint(3) + varint(0), 9, 2)
    assert timer is not None
    assert timer.hex() == LATER
    assert global_time_of(timer) == timer[:-2] and root_of(timer) == global_time(5, 1, 0, 2) and hops_of(timer) == 1
    following = later_meta(timer, varint(3) + varint(1), END, 2)
    assert following is not None and len(following) == len(timer) and hops_of(following) == 2
    assert global_time(9, 247, 2**64 - 1, 2**64 - 1) < timer < global_time(10, 0, 0, 0) < following < END_OF_TIME


LATER = "8000000000000009ff000280000000000000050100020192459b51d86c846b3c887125345364710300"


CANONICAL: list[tuple[Any, str]] = [
    (None, "c0"),
    (False, "c2"),
    (True, "c3"),
    (0, "00"),
    (127, "7f"),
    (128, "cc80"),
    (-1, "ff"),
    (-33, "d0df"),
    (2**32, "cf0000000100000000"),
    (2**64 - 1, "cfffffffffffffffff"),
    (2**64, "c70904010000000000000000"),
    (-(2**63), "d38000000000000000"),
    (-(2**63) - 1, "c70904ff7fffffffffffffff"),
    (2**200, "c71a040100000000000000000000000000000000000000000000000000"),
    (0.0, "cb0000000000000000"),
    (-0.0, "cb8000000000000000"),
    (1.0, "cb3ff0000000000000"),
    (float("nan"), "cb7ff8000000000000"),
    (-float("nan"), "cb7ff8000000000000"),
    (float("inf"), "cb7ff0000000000000"),
    ("", "a0"),
    ("drift", "a56472696674"),
    ("é中", "a5c3a9e4b8ad"),
    ("\ud800", "c70305eda080"),
    (b"", "c400"),
    (b"drift", "c4056472696674"),
    ((), "90"),
    ((1,), "9101"),
    ((1, 1.0, True, "1"), "9401cb3ff0000000000000c3a131"),
    (tuple(range(16)), "dc0010000102030405060708090a0b0c0d0e0f"),
    ([1, [2]], "d60101d40102"),
    ({"b": 1, "a": float("nan")}, "82a161cb7ff8000000000000a16201"),
    ({2: "two", 1: "one", "1": None}, "8301a36f6e6502a374776fa131c0"),
    ({3, 1, 2}, "c70302010203"),
    (frozenset({"b", "a"}), "d603a161a162"),
    (datetime.date(2024, 2, 29), "c70d07aa323032342d30322d3239c000"),
    (datetime.datetime(2024, 2, 29, 12, 30, 1, 5), "c71d06ba323032342d30322d32395431323a33303a30312e303030303035c000"),
    (
        datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.UTC),
        "c71f06b9323032342d30322d32395431323a33303a30302b30303a3030a355544300",
    ),
    (datetime.time(23, 59, 59), "c70b08a832333a35393a3539c000"),
    (datetime.timedelta(days=-1, seconds=1, microseconds=2), "c70309ff0102"),
    (decimal.Decimal("1.0"), "c7050a00920100ff"),
    (decimal.Decimal("1"), "d60a00910100"),
    (decimal.Decimal("NaN"), "d60a0090a16e"),
    (uuid.UUID(int=1), "d80b00000000000000000000000000000001"),
    (bytearray(b"x"), "d41078"),
    (complex(1, -0.0), "c71211cb3ff0000000000000cb8000000000000000"),
    (fractions.Fraction(1, 3), "c70312312f33"),
    (Colour.RED, "c70b0ca6436f6c6f7572a3524544"),
    (Point(1, 2.0, "ignored"), "c7210da5506f696e74a17801a179cb4000000000000000a46e6f7465a769676e6f726564"),
    (Pair(1, "two"), "c7150fa450616972a46c65667401a57269676874a374776f"),
    (Row("a", 2), "c7110ea3526f77a46e616d65a161a473697a6502"),
]


@pytest.mark.parametrize(
    "value, expected", CANONICAL, ids=[f"{type(value).__name__} {data[:24]}" for value, data in CANONICAL]
)
def test_canonical_bytes_stay(value: Any, expected: str) -> None:
    assert canonical(value).hex() == expected


KEYS: list[tuple[Any, int, int]] = [
    ("a", 0x5BCA9BE939B0B024, 3),
    ("b", 0x9F9C0D2DFB440121, 1),
    ("", 0x1CE1E30458DEE44F, 6),
    (0, 0xE934A84ADB052768, 5),
    (1, 0x8A4127811B21E730, 1),
    (True, 0xD62E03A7EC33B6AC, 0),
    (1.0, 0x2305600433CCC93C, 3),
    (None, 0xFE068D05F680C30C, 0),
    (("a", 1), 0x0CF367053EF0A32F, 1),
    (2**70, 0x6B7DDB75955DD5CF, 4),
    (b"a", 0xD7B2D4500E70E64C, 6),
    (-0.0, 0x59E579E9F7C014AD, 4),
    (float("nan"), 0xE93710ECF13AEF3F, 0),
]


@pytest.mark.parametrize("key, hashed, owner", KEYS, ids=[repr(key) for key, _, _ in KEYS])
def test_a_key_belongs_to_the_same_partition_for_ever(key: Any, hashed: int, owner: int) -> None:
    assert hash64(key) == hashed
    assert Partitioner(7).owner(key) == owner
    assert Partitioner(7).owners(identities([key, "other", key]))[::2] == [owner, owner]
    assert Partitioner(7).owners(identities([key])) == [owner]


def number(text: str) -> int:
    return int(text)


def parity(value: Any) -> int:
    return value % 2 if isinstance(value, int) else len(value) % 2


def halved(value: Any) -> list[int]:
    return [value[-1] // 2] if value[-1] > 1 else []


def spread(value: int) -> tuple[Any, ...]:
    return value, (value, float(value)), {"value": value, "half": value / 2}


def running(state: int, value: int) -> tuple[int, float]:
    return state + value, (state + value) / 4


def moment(row: tuple[int, Any]) -> int:
    return row[0]


def last(row: tuple[int, Any]) -> Any:
    return row[1]


def a_bit_of_everything() -> drift.Graph:
    """Two sources, event time with ties, a diamond, a scan, a count, groupings, a loop, three sinks."""
    graph = drift.Graph("golden")
    loop: drift.Feedback[Any] = graph.feedback("again")
    numbers = graph.source("texts").map(number, name="number")
    timed = graph.source("timed", time=drift.EventTime(moment, lateness=2)).map(last, name="last")
    both = numbers.merge(timed)
    rounds = both.merge(loop).group(parity, 2, name="rounds")
    rounds.flat_map(halved, name="halved").feed(loop)
    rounds.sink("rounds out")
    left = both.filter(bool, name="left")
    right = both.flat_map(spread, name="spread")
    left.merge(right).group(str, 3, name="met").sink("met out")
    both.scan(parity, 0, running, name="running").count(int, name="counted").sink("scans out")
    return graph


TEXTS = [str(number * 7 % 12) for number in range(3000)]
TIMED = [(number - number % 3, number * 5 % 11) for number in range(2000)]


RANKS = {
    "halved": 0,
    "rounds out": 1,
    "met out": 2,
    "running.state": 3,
    "counted.state": 4,
    "scans out": 5,
    "rounds": 6,
    "met": 7,
    "counted.output": 8,
    "left": 9,
    "spread": 10,
    "counted": 11,
    "running.output": 12,
    "running": 13,
    "number": 14,
    "last": 15,
}

FIRST = [
    ("80000000000000000000000e000601", "rounds out", "9100"),
    ("80000000000000000000000e000a000702", "met out", "9100"),
    ("80000000000000000000000e000a010702", "met out", "919200cb0000000000000000"),
    ("80000000000000000000000e000a020702", "met out", "9182a468616c66cb0000000000000000a576616c756500"),
    ("80000000000000000000000e000d0c000b080005", "scans out", "920001"),
    ("800000000000000001fee42b827102a361000f000600000600000601", "rounds out", "920501"),
    ("800000000000000001fee42b827102a361000f000600000601", "rounds out", "920002"),
    ("800000000000000001fee42b827102a361000f000601", "rounds out", "9105"),
    ("800000000000000001fee42b827102a361000f0009000702", "met out", "9105"),
    ("800000000000000001fee42b827102a361000f000a000702", "met out", "920505"),
    ("800000000000000001fee42b827102a361000f000a010702", "met out", "919205cb4014000000000000"),
    ("800000000000000001fee42b827102a361000f000a020702", "met out", "9182a468616c66cb4004000000000000a576616c756505"),
    ("800000000000000001fee42b827102a361000f000d0c000b080005", "scans out", "920101"),
    ("800000000000000001ff86c0a8d737d0d8ac000f000601", "rounds out", "920200"),
    ("800000000000000001ff86c0a8d737d0d8ac000f000a000702", "met out", "920000"),
    ("800000000000000001ff86c0a8d737d0d8ac000f000a010702", "met out", "929200cb00000000000000009200cb0000000000000000"),
    (
        "800000000000000001ff86c0a8d737d0d8ac000f000a020702",
        "met out",
        "9282a468616c66cb0000000000000000a576616c75650082a468616c66cb0000000000000000a576616c756500",
    ),
    ("800000000000000001ff86c0a8d737d0d8ac000f000d0c000b080005", "scans out", "920002"),
    ("80000000000000010000000e000600000600000601", "rounds out", "920301"),
    ("80000000000000010000000e000600000601", "rounds out", "920703"),
    ("80000000000000010000000e000601", "rounds out", "920107"),
    ("80000000000000010000000e0009000702", "met out", "9107"),
    ("80000000000000010000000e000a000702", "met out", "920707"),
    ("80000000000000010000000e000a010702", "met out", "919207cb401c000000000000"),
    ("80000000000000010000000e000a020702", "met out", "9182a468616c66cb400c000000000000a576616c756507"),
    ("80000000000000010000000e000d0c000b080005", "scans out", "920301"),
]

ITEMS_OUT = 38524

DIGESTS = {
    "xxh3_128": "6254f69d8b3051c42f108bc055f39def",
    "sha256": "1e25ff3bc2cba851cb948bf6ffc02a489f9115d644b5753c6046022dbf67859e",
}


def test_ranks_of_a_fixed_graph_stay() -> None:
    assert a_bit_of_everything().build().ranks == RANKS


def test_the_first_items_of_a_fixed_run_stay() -> None:
    run = drift.run(a_bit_of_everything(), {"texts": TEXTS[:2], "timed": TIMED[:2]})
    assert [(item.meta.hex(), item.sink, canonical(item.payload).hex()) for item in run] == FIRST


@pytest.mark.parametrize("engine", ["reference", "local"])
@pytest.mark.parametrize("algorithm", ["xxh3_128", "sha256"])
def test_the_digest_of_a_fixed_run_stays(engine: str, algorithm: str) -> None:
    run = drift.run(a_bit_of_everything(), {"texts": TEXTS, "timed": TIMED}, engine=engine, digest=algorithm)
    report = run.finish()
    assert (report.items_out, report.digest) == (ITEMS_OUT, DIGESTS[algorithm])


def test_the_digest_of_nothing_stays() -> None:
    assert Digest().hexdigest() == "99aa06d3014798d86001c324468d497f"
