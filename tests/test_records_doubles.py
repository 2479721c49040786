"""Two items of one global time are named by an intact audit, wherever they stand, and only they."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_records_hostile import manifest_of

import drift
from drift.auditing.intact import check_intact
from drift.records import columns, doubles
from drift.records.doubles import Doubles, Items, Source
from drift.records.format import Manifest, RecordError, SourceInfo
from drift.records.inbox import Inbox
from drift.records.messages import Arrival, Begin, Finish, frame
from drift.records.process import write_record
from drift_graph.canonical import encode_many, encode_metas
from drift_graph.meta import END_OF_TIME, global_time, pack_time, time_of

#: Of a source: batches, each with the heartbeat before it; nothing in it is below that.
Batches = list[tuple[int, list[bytes]]]


@st.composite
def batches(draw: st.DrawFn) -> Batches:
    """Few times, ties and ordinals, short and long, so that some are there twice; in order as often as not."""
    numbers = st.sampled_from([0, 1, 247, 248, 2**40, 2**64 - 1])
    promised, drawn = -5, []
    for _ in range(draw(st.integers(1, 6))):
        promised += draw(st.sampled_from([0, 0, 1, 2]))
        items = draw(st.lists(st.builds(global_time, st.integers(promised, promised + 3), numbers, numbers, numbers)))
        drawn.append((promised, sorted(set(items)) if draw(st.booleans()) else items))
    return drawn


def items_of(global_times: list[bytes], among: bool) -> Items:
    """As columns; `among` others."""
    put = [each for one in global_times for each in (one, b"other" * 4)] if among else global_times
    bins = columns.of_list(list(map(msgspec.msgpack.encode, put)))
    rows = np.arange(0, len(put), 2 if among else 1)
    return Items(np.array(list(map(time_of, global_times)), np.int64), bins, rows)


@given(batches(), st.sampled_from([1, 4, 1 << 16]), st.booleans())
def test_doubles_of_a_source_are_those_that_a_set_finds(given_batches: Batches, pool_min: int, among: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doubles, "_POOL_MIN", pool_min)
        source = Source()
        found: set[int] = set()
        for promised, items in given_batches:
            if items:
                found |= set(source.add(items_of(items, among), promised).tolist())
        found |= set(source.end().tolist())
    every = [item for _, items in given_batches for item in items]
    twice = sorted({item for item in every if every.count(item) > 1})
    assert found == set(items_of(twice, among).keys().tolist())


def test_what_is_held_of_a_source_is_what_it_has_not_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubles, "_POOL_MIN", 1000)
    choose = random.Random(5)
    nothing: dict[str, Any] = {"graph": "", "sinks": [], "engine": "", "workers": 1, "settings": {}}
    for late_share in (0.1, 0.9):
        made = Doubles(Path(), Manifest(sources=[SourceInfo("in", False, {})], **nothing))
        (source,) = made._sources
        for at in range(0, 20_000, 500):
            moved = [choose.randrange(1, 900) if choose.random() < late_share else 0 for _ in range(500)]
            items = items_of([global_time(at + n - moved[n], 0, 0, at + n) for n in range(500)], among=False)
            floors = np.full(500, at - 1000)
            assert not list(made.add(items.times, items.bins, np.zeros(500, np.int32), floors))
            assert sum(len(times) for times, _ in source._pool) < 1000 + 2 * 1500
            assert sum(len(kept.times) for kept in source._held) <= 2000


def recorded(folder: Path, sources: int, arrivals: Iterator[tuple[int, list[tuple[bytes, Any]], bytes]]) -> Path:
    """A record of what no source gives, with hashes that fit; an arrival is rank, items by global time, heartbeat."""
    graph = drift.Graph("numbers")
    for rank in range(sources):
        graph.source(f"s{rank}").sink(f"out{rank}")
    folder.mkdir()
    messages: list[Any] = [Begin(str(folder), manifest_of(graph), 1 << 20, 1 << 30, 1000.0)]
    for batch, (rank, items, heartbeat) in enumerate(arrivals):
        metas, payloads = [meta for meta, _ in items], [payload for _, payload in items]
        encoded = encode_metas(metas), encode_many(payloads)
        messages.append(Arrival(batch, rank, batch, len(items), None, *encoded, heartbeat, []))
    messages.append(Finish("stopped", "", "", False, "2026-01-01", ""))
    write_record(Inbox(io.BytesIO(b"".join(map(frame, messages)))))  # type: ignore[arg-type]
    return folder


def test_a_record_without_sources_has_no_doubles() -> None:
    manifest = Manifest(sources=[], graph="", sinks=[], engine="", workers=1, settings={})
    assert not list(Doubles(Path(), manifest).end())


def said_of(record: Path) -> list[tuple[str, str]]:
    return [(trouble.kind, trouble.text) for check in check_intact(record) for trouble in check.troubles]


@pytest.mark.parametrize("sources", [1, 2])
@pytest.mark.parametrize("shuffled", [False, True])
def test_a_double_is_named_however_far_away_it_is(sources: int, shuffled: bool, tmp_path: Path) -> None:
    choose = random.Random(1)

    def arrivals(second: Any) -> Iterator[tuple[int, list[tuple[bytes, Any]], bytes]]:
        for batch in range(10):
            rank = batch % sources
            times = list(range(2000 * batch, 2000 * batch + 2000))
            if shuffled:
                choose.shuffle(times)
            items: list[tuple[bytes, Any]] = [(global_time(time, rank, time % 3, 0), time) for time in times]
            if batch == 8:
                items[7] = global_time(1500, 0, 0, 0), second
            yield rank, items, pack_time(1500)
        yield 0, [], END_OF_TIME

    row = 16_007
    for second, kind in ((1500, "item twice"), ("1500", "not of a run")):
        record = recorded(tmp_path / kind, sources, arrivals(second))
        ((found, text),) = said_of(record)
        first = drift.Record(record).find_input(global_time(1500, 0, 0, 0))
        assert found == kind
        assert first is not None and first.batch == 0
        assert f"input row {row:,}, of batch 8, has the global time of row {first.row:,}, of batch 0, and" in text
        assert text.endswith(" (block 3, input/part-00000.parquet)")
        with pytest.raises(RecordError, match=f"input row {row:,}, an item has the global time of another one"):
            list(drift.Record(record).arrivals())
        with pytest.raises(RecordError, match=f"no record of a run: input row {row:,}, of batch 8, has the global"):
            drift.Record(record).check_input()
