"""Slices in arrays are merged into the windows, metas and states that slices one by one give."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from columns import meta_at
from hypothesis import example, given
from hypothesis import strategies as st
from test_running import AGGREGATES, KEYS, SCHEMA, Rows, names_in_columns, rows_of, tame

import drift
from drift import agg
from drift.columns.rows import Frame
from drift.columns.slices import Kind, Merging, Slices
from drift.flow.windows import Slice, _Merged
from drift.machines.keyed import KeyedStage
from drift.machines.plan import Plan
from drift_graph.canonical import canonical_each, encode_many, same, stored_each
from drift_graph.item import Columns
from drift_graph.meta import END_OF_TIME, varint
from drift_graph.metas import Metas
from drift_graph.payloads import joined
from drift_kernel import kernel

KINDS = [(9, 4), (3, 5), (6, 3), (10, 1), (8, 2), (4, 4)]
steps = st.lists(st.sampled_from([1, 1, 1, 2, 3, 30]), min_size=40, max_size=40)


def stages_of(key: tuple[str, ...], names: list[str], kind: tuple[int, int]) -> Any:
    graph = drift.Graph("windows")
    windows = graph.source("rows", schema=SCHEMA).key_by(*key).window(drift.windows.sliding(kind[0], every=kind[1]))
    windows.rows(**{name: AGGREGATES[name]() for name in names}).sink("out")
    return Plan(graph.build()).stages().values()


@given(tame | rows_of, st.sampled_from(KEYS), names_in_columns, st.sampled_from(KINDS), steps, st.data())
def test_slices_in_arrays_are_merged_as_slices_are(
    rows: Rows, key: tuple[str, ...], names: list[str], kind: tuple[int, int], apart: list[int], data: st.DataObject
) -> None:
    """One machine gets what comes in arrays as it is, now and then as a list; another always as a list, and its states
    are those of the first.
    """
    slicing, merging = stages_of(key, names, kind)
    _, plain = stages_of(key, names, kind)
    assert isinstance(merging, KeyedStage)
    mixed, ties = data.draw(st.booleans()), data.draw(st.booleans())
    times = list(accumulate(apart))
    sent: tuple[Counter[tuple[bytes, bytes]], Counter[tuple[bytes, bytes]]] = (Counter(), Counter())
    for stage in (slicing, merging, plain):
        stage.track()
    at = 0
    while at < len(rows):
        size = data.draw(st.integers(1, 9))
        batch = times[at : at + size][: len(rows) - at]
        some: Any = Frame(pl.DataFrame(rows[at : at + size], schema=SCHEMA))
        metas: Any = [meta_at(time) for time in batch]
        if ties:
            numbers = np.array([256 - at - each for each in range(len(batch))], np.uint64)  # of one byte, and of two
            metas = Metas.stamped(np.array(batch, np.int64), numbers, varint(0), varint(0))
        at += size
        bound = meta_at(times[at] if at < len(rows) else times[-1] + 99)
        for stage in (slicing, merging, plain):
            stage.heartbeat = stage.complete_below = bound
        slicing.process(Columns(Metas(metas), some, None), {})
        slices = slicing.fire({})
        as_list = slices._replace(payloads=list(slices.payloads))
        if mixed and data.draw(st.integers(0, 3)) == 0:
            slices = as_list
        for stage, columns, out in zip((merging, plain), (slices, as_list), sent):
            for made in (stage.process(columns, {}), stage.fire({})):
                out.update(zip(made.metas, canonical_each(made.payloads)))
        assert sent[0] == sent[1]
        assert merging.held == plain.held
        if data.draw(st.integers(0, 3)) == 0:
            for stage in (slicing, merging, plain):
                stage.settle(bound)
            found, expected = (
                {each: value if type(value) is tuple else None for each, value in stage.changed(bound)}
                for stage in (merging, plain)
            )
            assert found.keys() == expected.keys()
            assert all(same(found[each], expected[each]) for each in found)
        if data.draw(st.integers(0, 9)) == 0:
            merging.rewind(bound)
            merging.heartbeat = bound
    for stage in (merging, plain):
        stage.heartbeat = stage.complete_below = END_OF_TIME
    for stage, out in zip((merging, plain), sent):
        made = stage.fire({})
        out.update(zip(made.metas, canonical_each(made.payloads)))
    assert sent[0] == sent[1]
    assert set(sent[0].values()) <= {1}


@pytest.mark.skipif(kernel is None, reason="the arrays are the kernel's")
def test_nothing_comes_below_the_first_timer_of_windows_that_one_item_has_caused() -> None:
    rows = [{"zone": f"{at}", "day": 0, "n": at, "fare": 0.0} for at in range(9)]
    slicing, merging = stages_of(("zone",), ["n"], (6, 3))
    for stage in (slicing, merging):
        stage.track()
        stage.heartbeat = stage.complete_below = meta_at(3)
    parts = Metas([meta_at(1) + bytes([part]) for part in range(9)])
    slicing.process(Columns(parts, Frame(pl.DataFrame(rows, schema=SCHEMA)), None), {})
    merging.process(slicing.fire({}), {})
    for fired in (9, 0):  # the windows of one end, and nothing of the next
        entries = merging.in_order.entries([row["zone"] for row in rows])
        timers = [meta for _, each in entries.values() for meta, _ in each]
        assert len(timers) == 9 and merging.least_timer == min(timers)
        assert len(merging.fire({}).metas) == fired


@pytest.mark.skipif(kernel is None, reason="the arrays are the kernel's")
def test_slices_go_on_in_arrays_behind_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"zone": f"{at % 9}", "day": at // 3, "n": at, "fare": at / 7} for at in range(600)]
    graph = drift.Graph("windows")
    timed = graph.source("rows", schema=SCHEMA, time=drift.EventTime("day", tie="n")).key_by("zone")
    timed.window(drift.windows.sliding(20, every=5)).rows(total=drift.agg.sum("fare")).sink("out")
    expected = drift.run(graph, {"rows": rows}, engine="reference").finish().digest
    takes, checkpoints = [], []
    take, entries = Merging.take, Merging.entries
    monkeypatch.setattr(Merging, "take", lambda self: takes.append(len(self)) or take(self))
    monkeypatch.setattr(Merging, "entries", lambda self: checkpoints.append(len(self)) or entries(self))
    state = drift.Checkpoints(tmp_path / "state", every_s=3600, every_items=100)
    table = drift.sources.table(pl.DataFrame(rows, schema=SCHEMA), payload="rows")
    assert drift.run(graph, {"rows": table}, batch_items=40, state=state).finish().digest == expected
    assert not any(takes) and any(checkpoints)


@given(
    st.lists(st.sampled_from([None, None, 0.0, 1.5, -2.25]), min_size=1, max_size=20),
    st.sampled_from([agg.sum, agg.mean, agg.min, agg.max]),
    st.integers(1, 9),
    st.integers(1, 3),
)
@example([1.5, None], agg.mean, 9, 3)
def test_slices_of_nulls_alone_are_merged_as_by_the_steps(
    fares: list[float | None], made: Any, batch: int, apart: int
) -> None:
    rows = [{"zone": "ab"[at % 2], "day": at * apart, "n": at, "fare": fare} for at, fare in enumerate(fares)]
    graph = drift.Graph("windows")
    windows = graph.source("rows", schema=SCHEMA, time=drift.EventTime("day", tie="day")).key_by("zone")
    windows.window(drift.windows.sliding(9, every=3)).rows(total=made("fare")).sink("out")
    expected = drift.run(graph, {"rows": rows}, engine="reference").finish().digest
    table = drift.sources.table(pl.DataFrame(rows, schema=SCHEMA), payload="rows")
    assert drift.run(graph, {"rows": table}, batch_items=batch).finish().digest == expected


@pytest.mark.skipif(kernel is None, reason="the arrays are the kernel's")
@pytest.mark.parametrize("values", [[None, 1, -2], [None, None, None, 3], [None, -0.0, None, 2.5, None, None, -1.5]])
def test_slices_of_nulls_alone_stay_numbers(values: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows, and of objects where there is a number among those that come together."""
    field = "fare" if float in map(type, values) else "n"
    rows = [{"zone": "ab"[at % 2], "day": at, field: values[at // 2 % len(values)]} for at in range(120)]
    names = ["sum", "mean"] if field == "fare" else ["sum", "mean", "min", "max"]
    graph = drift.Graph("windows")
    schema = {"zone": str, "day": int, field: SCHEMA[field]}
    timed = graph.source("rows", schema=schema, time=drift.EventTime("day")).key_by("zone")
    timed.window(drift.windows.sliding(9, every=3)).rows(**{name: getattr(agg, name)(field) for name in names}).sink(
        "out"
    )
    by_key = graph.source("items", time=drift.EventTime(itemgetter("day"))).key_by(itemgetter("zone"))
    several = {name: getattr(agg, name)(itemgetter(field)) for name in names}
    by_key.window(drift.windows.sliding(9, every=3)).aggregate(**several).sink("more")
    known = [at % 6 > 2 or at // 6 % 6 > 3 for at in range(240)]  # else slices of an end are nulls, but not all
    items = [
        {"zone": at % 6, "day": at // 6, field: values[-1] if is_known else None} for at, is_known in enumerate(known)
    ]
    inputs = {"rows": rows, "items": items}
    expected = drift.run(graph, inputs, engine="reference").finish().digest
    table = drift.sources.table(pl.DataFrame(rows, schema=schema), payload="rows")
    monkeypatch.setattr("drift.columns.slices._widened", None)
    monkeypatch.setattr(_Merged, "__call__", None)
    assert drift.run(graph, {**inputs, "rows": table}, batch_items=20).finish().digest == expected


@pytest.mark.skipif(kernel is None, reason="the arrays are the kernel's")
@pytest.mark.parametrize("value", [3, 2.5])
@pytest.mark.parametrize("rounds", [range(2), range(3, 6), range(10)], ids=str)
def test_objects_that_are_all_nulls_for_a_while_are_merged_in_arrays(
    value: float, rounds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such slices have no type: those of whole batches are objects, and so are the windows that they are in."""
    graph = drift.Graph("windows")
    by_key = graph.source("items", time=drift.EventTime(itemgetter("day"))).key_by(itemgetter("zone"))
    several = {name: getattr(agg, name)(itemgetter("n")) for name in ("sum", "mean", "min", "max")}
    by_key.window(drift.windows.sliding(9, every=3)).aggregate(**several).sink("out")
    items = [
        {"zone": at % 5, "day": at // 5, "n": None if at // 5 // 9 in rounds else at * value}
        for at in range(5 * 9 * 10)
    ]
    expected = drift.run(graph, {"items": items}, engine="reference").finish().digest
    monkeypatch.setattr(_Merged, "__call__", None)
    assert drift.run(graph, {"items": items}, batch_items=15).finish().digest == expected


@pytest.mark.skipif(kernel is None, reason="the arrays are the kernel's")
@pytest.mark.parametrize("many", [1, 30, 60])
@pytest.mark.parametrize("field, value", [
    ("n", 2**61), ("n", -(2**61)), ("n", None), ("fare", None), ("fare", math.nan), ("fare", -0.0)
])  # fmt: skip
def test_slices_whose_accumulators_are_no_numbers_have_objects_in_arrays(
    field: str, value: Any, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"zone": "ab"[at % 2], "day": at // 2, "n": at, "fare": at / 7} for at in range(120)]
    for at in range(40, 40 + many):
        rows[at][field] = value
    graph = drift.Graph("windows")
    timed = graph.source("rows", schema=SCHEMA, time=drift.EventTime("day")).key_by("zone")
    of_all = {f"{of} {name}": getattr(agg, of)(name) for of in ("sum", "mean", "min", "max") for name in ("n", "fare")}
    timed.window(drift.windows.sliding(9, every=3)).rows(**of_all, rows=agg.count()).sink("out")
    expected = drift.run(graph, {"rows": rows}, engine="reference").finish().digest
    table = drift.sources.table(pl.DataFrame(rows, schema=SCHEMA), payload="rows")
    monkeypatch.setattr(_Merged, "__call__", None)  # of slices one by one
    assert drift.run(graph, {"rows": table}, batch_items=20).finish().digest == expected


@pytest.mark.skipif(kernel is None, reason="the arrays are the kernel's")
def test_slices_of_numbers_of_several_types_keep_their_types(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers: list[Any] = [1, 2, 3, 1.5, 2.5, 3, 4, 5, 2**70, 6, 7, 8, 9, 10, 11, None, None, None, 1, 2]
    graph = drift.Graph("windows")
    timed = graph.source("items", time=drift.EventTime(itemgetter(0))).key_by(itemgetter(1))
    timed.window(drift.windows.sliding(4, every=2)).aggregate(
        sum=agg.sum(itemgetter(2)), mean=agg.mean(itemgetter(2)), least=agg.min(itemgetter(2)), items=agg.count()
    ).sink("out")
    items = [(at, "ab"[at % 3 > 1], number) for at, number in enumerate(numbers)]
    expected = drift.run(graph, {"items": items}, engine="reference").finish().digest
    monkeypatch.setattr(_Merged, "__call__", None)
    assert drift.run(graph, {"items": items}, batch_items=5).finish().digest == expected


def test_slices_whose_values_raise_when_they_are_merged_name_the_step() -> None:
    graph = drift.Graph("windows")
    timed = graph.source("items", time=drift.EventTime(itemgetter(0))).key_by(itemgetter(1))
    timed.window(drift.windows.sliding(4, every=2)).aggregate(agg.min(itemgetter(2)), name="windows").sink("out")
    items = [(at, "a", at if at < 5 else "text") for at in range(9)]
    with pytest.raises(drift.StepError, match="windows"):
        drift.run(graph, {"items": items}, batch_items=5).finish()


slices_of = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(-9, 9)), min_size=1, max_size=9)


@given(slices_of, st.data())
def test_slices_in_arrays_are_slices(drawn: list[tuple[str, int, int]], data: st.DataObject) -> None:
    kind = Kind(Slice, 1, None, (agg.sum("n"),))
    keys, starts, sums = map(list, zip(*drawn))
    rows: Any = Slices(kind, keys, np.array(starts), np.array(starts) + 2, [[np.array(sums)]])
    plain = [Slice(key, start, start + 2, total) for key, start, total in drawn]
    order = data.draw(st.permutations(range(len(plain))))
    wanted = data.draw(st.lists(st.integers(0, 1), min_size=len(plain), max_size=len(plain)))
    at = data.draw(st.integers(0, len(plain)))
    for found, expected in (
        (rows, plain),
        (rows.in_order(order), [plain[each] for each in order]),
        (rows.chosen(wanted), [each for each, is_in in zip(plain, wanted) if is_in]),
        (rows[at:], plain[at:]),
        (joined([rows[:at], rows[at:]]), plain),
        (joined([rows[at:], plain]), plain[at:] + plain),
        (pickle.loads(pickle.dumps(rows)), plain),
    ):
        assert list(found) == expected and len(found) == len(expected)
        assert canonical_each(found) == canonical_each(expected) and encode_many(found) == encode_many(expected)
        assert stored_each(found) == stored_each(expected)
    assert rows[0] == plain[0] and rows.nbytes > 0
