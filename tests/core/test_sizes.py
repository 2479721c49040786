"""Batches are bounded by bytes as well as by items, whatever the payloads are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from waiting import wait_until

import drift
import drift_graph.canonical
from drift.engines.packing import in_parts
from drift.sources import IterableSource
from drift.sources.iterables import IterableReader
from drift_barrier.barrier import Released
from drift_barrier.digest import BLOCK_ITEMS, Encoded
from drift_graph.metas import Metas
from drift_graph.sizes import BATCH_BYTES, about_bytes, size_of

MEGABYTE = 1 << 20


@dataclasses.dataclass
class Row:
    data: bytes


class Struct(msgspec.Struct):
    data: bytes


class Slotted:
    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


@pytest.mark.parametrize(
    "payload",
    [
        bytes(MEGABYTE),
        "x" * MEGABYTE,
        bytearray(MEGABYTE),
        (1, bytes(MEGABYTE)),
        {"a": {"b": [bytes(MEGABYTE)]}},
        {"a": 1, "b": 2, "c": 3, "d": {"e": 4, "f": 5, "g": bytes(MEGABYTE)}},
        Row(bytes(MEGABYTE)),
        Struct(bytes(MEGABYTE)),
        Slotted(bytes(MEGABYTE)),
        [bytes(1024)] * 1024,
    ],
    ids=lambda payload: type(payload).__name__,
)
def test_what_a_payload_takes_is_about_known(payload: Any) -> None:
    assert MEGABYTE <= size_of(payload) <= 1.2 * MEGABYTE
    assert 10 * MEGABYTE <= about_bytes([payload] * 10) <= 12 * MEGABYTE


@pytest.mark.parametrize("items_before", [0, 5000])
def test_an_iterable_is_read_by_items_and_by_bytes(items_before: int) -> None:
    def payloads() -> Iterator[Any]:
        yield from range(items_before)
        for number in range(300):
            yield bytes([number % 256]) * MEGABYTE

    reader = IterableSource(payloads()).open()
    sizes: list[int] = []
    while (batch := reader.read(4096)) is not None:
        assert sum(map(size_of, batch)) <= BATCH_BYTES + 128 * MEGABYTE
        sizes.append(len(batch))
    assert sum(sizes) == items_before + 300
    assert max(sizes[-20:]) <= BATCH_BYTES // MEGABYTE + 1
    assert not items_before or sizes[0] == 4096


def test_what_waits_between_a_live_iterable_and_the_engine_is_bounded_by_bytes() -> None:
    taken = []

    def payloads() -> Iterator[bytes]:
        for number in range(100):
            taken.append(number)
            yield bytes(MEGABYTE)

    reader = drift.sources.live(payloads()).open()
    items = len(reader.read(1) or ())  # from which on the iterable is read
    wait_until(lambda: len(taken) >= BATCH_BYTES // MEGABYTE, "the buffer is full")
    while (batch := reader.read(4096)) is not None:
        assert len(batch) <= BATCH_BYTES // MEGABYTE
        items += len(batch)
    assert items == 100
    reader.close()


def test_local_reads_fewer_items_where_large_ones_become_of_them() -> None:
    graph = drift.Graph("large")
    graph.source("numbers").map(lambda n: bytes([n % 256]) * MEGABYTE).sink("out")
    sizes = [len(each.metas) for each in drift.run(graph, {"numbers": range(200)}).batches() if each.metas]
    assert sum(sizes) == 200 and max(sizes[1:]) <= BATCH_BYTES // MEGABYTE + 1


def test_what_zeromq_releases_at_once_becomes_values_block_by_block() -> None:
    graph = drift.Graph("late")
    graph.source("numbers", time=drift.EventTime(time=lambda n: n, lateness=10**6)).map(lambda n: n + 1).sink("out")
    run = drift.run(graph, {"numbers": range(10_000)}, engine="zeromq", workers=1)
    batches, below = [], b""
    for each in run.batches():
        if each.metas:
            assert below <= each.metas[0]
            batches.append(each)
        below = run.progress.released_below
    assert [payload for each in batches for payload in each.payloads] == [*range(1, 10_001)]
    assert max(len(each.metas) for each in batches) <= BLOCK_ITEMS and len(batches) > 2


def test_parts_of_a_release_have_their_own_positions_sinks_and_values_and_the_last_has_the_error() -> None:
    metas = [bytes([number]) for number in range(5)]
    forms = drift_graph.canonical.canonical_each([*"abcde"])
    parts = [Encoded(2, b"", b"".join(forms[:2]), True), Encoded(3, b"", b"".join(forms[2:]), True)]
    error = ValueError()
    released = [
        each for each, _ in in_parts(Released(7, Metas(metas), [*"abcde"], ["x", "x", "y", "x", "y"], error), parts)
    ]
    assert released == [
        Released(7, Metas(metas[:2]), ["a", "b"], ["x", "x"], None),
        Released(9, Metas(metas[2:]), ["c", "d", "e"], ["y", "x", "y"], error),
    ]


def test_batches_in_order_end_where_blocks_of_the_digest_do() -> None:
    graph = drift.Graph("numbers")
    graph.source("numbers").sink("out")
    ends = [each.position + len(each.metas) for each in drift.run(graph, {"numbers": range(20_000)}).batches()]
    assert sum(end % 4096 == 0 for end in ends) >= 4


def test_local_reads_no_more_at_once_than_batch_items_where_few_items_come_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    read = IterableReader.read

    def noted(reader: IterableReader, items_max: int) -> list[Any] | None:
        asked.append(items_max)
        return read(reader, items_max)

    monkeypatch.setattr(IterableReader, "read", noted)
    graph = drift.Graph("few")
    graph.source("numbers").filter(lambda number: number % 100 == 0).sink("out")
    assert drift.run(graph, {"numbers": range(20_000)}, batch_items=1000).finish().items_out == 200
    assert max(asked) == 1000
