"""Windows in the loops of the kernel are the windows, metas and states that rows one by one give."""

from __future__ import annotations

from array import array
from collections import Counter
from decimal import Decimal
from itertools import accumulate
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from columns import meta_at
from hypothesis import given
from hypothesis import strategies as st
from test_running import AGGREGATES, KEYS, SCHEMA, Rows, names_in_columns, rows_of, tame

import drift
from drift.columns.rows import Frame
from drift.columns.slices import Merging, Slices
from drift.machines.in_order import InOrder
from drift.machines.keyed import KeyedStage
from drift.machines.maps import Ports
from drift.machines.plan import Plan
from drift.machines.sessions import Prolonging
from drift_graph.canonical import canonical_each, same
from drift_graph.item import Columns
from drift_graph.meta import END_OF_TIME, varint
from drift_graph.metas import Metas
from drift_kernel import kernel

_RAISING = {
    "inverse": lambda: drift.agg.sum(lambda row: 7 // (row["n"] % 9)),
    "ratio": lambda: drift.agg.reduce(lambda one, other: {**other, "n": one["n"] // (other["n"] % 9)}),
    "result": lambda: drift.agg.count().then(lambda count: 7 // (count % 3)),
    "not added": lambda: drift.agg.sum(lambda row: "text" if (row["n"] or 0) % 9 == 8 else row["day"]),
    "not compared": lambda: drift.agg.max(lambda row: "text" if (row["n"] or 0) % 9 == 8 else row["day"]),
    **AGGREGATES,
}
steps = st.lists(st.sampled_from([0, 0, 1, 1, 1, 2, 3, 9]), min_size=40, max_size=40)


def stage_of(key: tuple[str, ...], names: list[str], of: drift.windows.Windows) -> Any:
    graph = drift.Graph("sessions")
    windows = graph.source("rows", schema=SCHEMA).key_by(*key).window(of)
    windows.rows(**{name: _RAISING[name]() for name in names}).sink("out")
    (stage,) = Plan(graph.build()).stages().values()
    return stage


of_any = st.lists(st.sampled_from(list(_RAISING)), min_size=1, max_size=3, unique=True)
WINDOWS = st.sampled_from([1, 2, 3, 5, 9]).flatmap(
    lambda size: st.sampled_from([drift.windows.session(gap=size), drift.windows.tumbling(size)])
)
FAILING = [["ratio"], ["n", "ratio"], ["result"], ["total", "inverse"], ["not added"], ["count", "not compared"]]
NAMES = names_in_columns | of_any | st.sampled_from(FAILING)


@given(tame | rows_of, st.sampled_from(KEYS), NAMES, WINDOWS, steps, st.data())
def test_windows_in_one_loop_are_those_of_the_steps(
    rows: Rows, key: tuple[str, ...], names: list[str], of: Any, apart: list[int], data: st.DataObject
) -> None:
    """One machine gets rows in columns, and now and then as a list; the other runs steps for a list."""
    machines = stage_of(key, names, of), stage_of(key, names, of)
    assert isinstance(machines[0], KeyedStage)
    machines[1].in_order = InOrder()
    failed: tuple[list[Any], list[Any]] = ([], [])
    mixed, counted = data.draw(st.booleans()), data.draw(st.booleans())
    times = list(accumulate(apart))
    sent: tuple[Counter[tuple[bytes, bytes]], Counter[tuple[bytes, bytes]]] = (Counter(), Counter())
    for stage in machines:
        stage.track()
    at = 0
    while at < len(rows):
        size = data.draw(st.integers(1, 9))
        batch = times[at : at + size][: len(rows) - at]
        frame = Frame(pl.DataFrame(rows[at : at + size], schema=SCHEMA))
        numbers = np.array([240 + at + each for each in range(len(batch))], np.uint64)  # of one byte, and of two
        ordinals = np.zeros(len(batch), np.int64)
        if counted and data.draw(st.integers(0, 1)):
            ordinals[len(batch) // 2] = 300 * size
        metas = Metas.stamped(np.array(batch, np.int64), numbers, varint(0), b"", ordinals)
        at += size
        bound = meta_at(times[at])[:8] if at < len(rows) else END_OF_TIME
        is_parted = metas[-1] >= bound  # rows of one time are in two batches, between which is no checkpoint
        is_listed = mixed and data.draw(st.integers(0, 3)) == 0
        given_rows = list(frame) if is_listed else frame, list(frame)
        for stage, some, out, failing in zip(machines, given_rows, sent, failed):
            ports: Ports = {}
            stage.heartbeat = stage.complete_below = bound
            if is_parted:
                stage.complete_below = metas[-1] + b"\0"
            processed = stage.process(Columns(metas, some, None), ports)
            is_due = stage.is_due  # by this a worker knows that it is to fire
            fired = stage.fire(ports)
            failing += [
                (meta, each.message)
                for made in ports.values()
                for part in made
                for meta, each in zip(part.metas, part.payloads)
            ]
            assert is_due or not fired.metas
            for made in (processed, fired):
                assert type(made.payloads) is list or made.metas.is_increasing()
                out.update(zip(made.metas, canonical_each(made.payloads)))
        assert sent[0] == sent[1] and sorted(failed[0]) == sorted(failed[1])
        assert machines[0].held == machines[1].held
        if not is_parted and data.draw(st.integers(0, 3)) == 0:
            for stage in machines:
                stage.settle(bound)
            found, expected = (
                {each: value if type(value) is tuple else None for each, value in stage.changed(bound)}
                for stage in machines
            )
            assert found.keys() == expected.keys()
            assert all(same(found[each], expected[each]) for each in found)
        if not is_parted and data.draw(st.integers(0, 9)) == 0:
            machines[0].rewind(bound)
    assert set(sent[0].values()) <= {1}


@pytest.mark.parametrize(
    "of", [drift.windows.session(gap=5), drift.windows.tumbling(9), drift.windows.sliding(6, every=1)], ids=str
)
@pytest.mark.parametrize("number", [2**54, 2**62, -(2**61), 2**63 - 1])
def test_sums_of_windows_go_on_beyond_64_bits(number: int, of: drift.windows.Windows) -> None:
    rows = [{"zone": "ab"[at % 2], "day": at // 2 + at // 12 * 9, "n": number - at, "fare": 0.0} for at in range(24)]
    rows[2]["fare"] = rows[10]["fare"] = rows[11]["fare"] = -0.0  # which is neither less nor more than 0.0
    graph = drift.Graph("sessions")
    timed = graph.source("rows", schema=SCHEMA, time=drift.EventTime("day", tie="n")).key_by("zone")
    timed.window(of).rows(
        n=drift.agg.sum("n"), mean=drift.agg.mean("n"), least=drift.agg.min("fare"), most=drift.agg.max("fare")
    ).sink("out")
    table = drift.sources.table(pl.DataFrame(rows, schema=SCHEMA), payload="rows")
    expected = drift.run(graph, {"rows": rows}, engine="reference").finish().digest
    for given_rows, batch_items in ((table, 4096), (table, 4), (rows, 4096)):
        assert drift.run(graph, {"rows": given_rows}, batch_items=batch_items).finish().digest == expected


@pytest.mark.parametrize("of", [drift.windows.session(gap=5), drift.windows.tumbling(9)], ids=str)
def test_integers_of_more_than_64_bits_are_added_as_they_are(of: drift.windows.Windows) -> None:
    graph = drift.Graph("great")
    numbers = graph.source("numbers", time=drift.EventTime(lambda pair: pair[0])).map(lambda pair: pair[1])
    numbers.window(of).aggregate(n=drift.agg.sum(), mean=drift.agg.mean(), most=drift.agg.max()).sink("out")
    pairs = {"numbers": [(at, 2**70 + at if at % 3 else at) for at in range(30)]}
    assert drift.run(graph, pairs).finish().digest == drift.run(graph, pairs, engine="reference").finish().digest


@pytest.mark.parametrize("of", [drift.windows.session(gap=5), drift.windows.tumbling(9)], ids=str)
@pytest.mark.parametrize("is_listed", [True, False])
def test_what_a_batch_added_is_taken_back_where_a_result_raises(of: drift.windows.Windows, is_listed: bool) -> None:
    stage, ports = stage_of(("zone",), ["result"], of), Ports()
    for days in ([0, 1], [2, 20]):  # the result of three rows raises, that of four does not
        rows = Frame(pl.DataFrame([{"zone": "a", "day": day, "n": 1, "fare": 1.0} for day in days], schema=SCHEMA))
        metas = Metas.stamped(np.array(days, np.int64), np.array([1, 2], np.uint64), varint(0), varint(0))
        stage.heartbeat = stage.complete_below = meta_at(days[-1] + 1)[:8]
        sent = stage.process(Columns(metas, list(rows) if is_listed else rows, None), ports), stage.fire(ports)
        assert not any(made.metas for made in sent)
    ((failed,),) = (part.payloads for made in ports.values() for part in made)
    assert "ZeroDivisionError" in failed.message


@pytest.mark.skipif(kernel is None, reason="it is the kernel's loop")
def test_sums_that_became_objects_in_a_batch_that_is_taken_back_are_what_they_were() -> None:
    assert kernel is not None
    for table in (
        kernel.Windows([kernel.Accumulators("sum", int, add)], several=False),
        kernel.NumberedWindows(9, 9, None, [kernel.Accumulators("sum", int, add)], several=False),
    ):
        for number in (7, 2**70):
            codes, keys = kernel.codes_of(["a"])
            if isinstance(table, kernel.Windows):
                table.add(codes, keys, [([number], None, None)], [1], ["a"], str)
            else:
                table.add(codes, keys, [([number], None, None)], False)
            (table.keep if number == 7 else table.take_back)()
        found = table.of(array("q", [0]))[2] if isinstance(table, kernel.Windows) else table.entries()["a"][2:]
        assert list(found) == [7]


def test_sessions_that_end_at_one_time_are_in_the_order_of_their_first_rows() -> None:
    stage = stage_of(("zone",), ["count"], drift.windows.session(gap=5))
    rows = [{"zone": zone, "day": 0, "n": 1, "fare": 1.0} for zone in "abab"]
    ties = np.array([200, 3, 1, 2], np.uint64)  # that of the first row is the greatest
    metas = Metas.stamped(np.array([0, 1, 2, 2], np.int64), ties, varint(0), varint(0))
    stage.heartbeat = stage.complete_below = END_OF_TIME
    stage.process(Columns(metas, Frame(pl.DataFrame(rows, schema=SCHEMA)), None), {})
    made = stage.fire({})
    assert [window.key for window in made.payloads] == ["a", "b"] and made.metas.is_increasing()


SLIDING = [drift.windows.sliding(*of) for of in [(9, 4), (3, 5), (6, 3), (10, 1), (8, 2), (4, 4)]]


@pytest.mark.parametrize(
    ("of", "key"),
    [*((drift.windows.session(gap=8), key) for key in [(), *KEYS]), *zip(SLIDING, [(), *KEYS, ("zone",), ("day",)])],
    ids=str,
)
@pytest.mark.parametrize("tie", ["n", None])
def test_windows_stay_in_arrays(
    of: drift.windows.Windows, key: tuple[str, ...], tie: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the tests of their digests would compare nothing."""
    rows = [{"zone": f"{at % 9}", "day": at + at * 7 % 50, "n": at, "fare": at / 7} for at in range(120)]
    rows += [rows[-1]] * 3  # equal ones
    twins = [{**row, "zone": "x", "n": 600 - row["n"]} for row in rows]  # of each time a second one, in another order
    rows = [each for pair in zip(rows, twins) for each in pair]
    graph = drift.Graph("windows")
    source = graph.source("rows", schema=SCHEMA, time=drift.EventTime("day", tie=tie, lateness=60))
    source = source.filter(pl.col("fare") >= 0)  # so metas have a path
    windows = (source.key_by(*key) if key else source).window(of)
    windows.rows(total=drift.agg.sum("fare"), mean=drift.agg.mean("n")).sink("out")
    if of not in SLIDING:
        windows.aggregate(drift.agg.count()).sink("counts")
    expected = drift.run(graph, {"rows": rows}, engine="reference").finish().digest

    def never(self: object, *_: object) -> Any:
        raise AssertionError(f"{self} made objects")

    monkeypatch.setattr(Prolonging, "process", never)
    monkeypatch.setattr(Slices, "values", property(never))
    monkeypatch.setattr(Merging, "take", never)
    table = drift.sources.table(pl.DataFrame(rows, schema=SCHEMA), payload="rows")
    assert drift.run(graph, {"rows": table}, batch_items=64).finish().digest == expected


@pytest.mark.skipif(kernel is None, reason="the kernel is not built here")
def test_sessions_go_on_in_arrays_behind_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"zone": f"{at % 9}", "day": at // 3, "n": at, "fare": at / 7} for at in range(900)]
    graph = drift.Graph("sessions")
    timed = graph.source("rows", schema=SCHEMA, time=drift.EventTime("day", tie="n")).key_by("zone")
    timed.window(drift.windows.session(gap=3)).rows(total=drift.agg.sum("fare")).sink("out")
    expected = list(drift.run(graph, {"rows": rows}, engine="reference"))
    begun, checkpoints = [], []
    take_over, entries = Prolonging._take_over, Prolonging.entries

    def taken_over(self: Prolonging, keys: Any) -> bool:
        begun.append(len(self._shared.states))
        return take_over(self, keys)

    monkeypatch.setattr(Prolonging, "_take_over", taken_over)
    monkeypatch.setattr(Prolonging, "hand_back", None)
    monkeypatch.setattr(Prolonging, "entries", lambda self, keys: checkpoints.append(len(self)) or entries(self, keys))
    found: list[Any] = []
    for _ in range(2):  # the first one stops
        state = drift.Checkpoints(tmp_path / "state", every_s=3600, every_items=40)
        table = drift.sources.table(pl.DataFrame(rows, schema=SCHEMA), payload="rows")
        run = drift.run(graph, {"rows": table}, batch_items=40, state=state)
        for item in run:
            found.append(item)
            if len(found) == 150:
                run.stop()
    assert found == expected and any(checkpoints) and sum(map(bool, begun)) == 1


@pytest.mark.long
def test_sessions_that_cannot_be_in_arrays_go_on_behind_checkpoints(tmp_path: Path) -> None:
    """Keys are no integers or text, or a sum is beyond 64 bits in the midst of a run."""
    rows = [{"k": at % 3 + 0.5, "z": at % 3, "at": at, "n": 2**61 if at > 300 else 1} for at in range(600)]
    schema = {"k": float, "z": int, "at": int, "n": int}
    for key in ("k", "z"):
        graph = drift.Graph("sessions")
        keyed = graph.source("rows", schema=schema, time=drift.EventTime("at", tie="at")).key_by(key)
        keyed.window(drift.windows.session(gap=50)).rows(total=drift.agg.sum("n")).sink("sessions")
        keyed.window(drift.windows.sliding(20, every=5)).rows(total=drift.agg.sum("n")).sink("sliding")
        expected = list(drift.run(graph, {"rows": rows}, engine="reference"))
        found: list[Any] = []
        for _ in range(4):  # each a run that stops after some more; the last one goes on to the end
            state = drift.Checkpoints(tmp_path / key, every_s=3600, every_items=50)
            table = drift.sources.table(pl.DataFrame(rows, schema=schema), payload="rows")
            run = drift.run(graph, {"rows": table}, batch_items=40, state=state)
            for item in run:
                found.append(item)
                if len(found) in (60, 150, 210):
                    run.stop()
        assert found == expected


@pytest.mark.parametrize("batch_items", [1, 3])
@pytest.mark.parametrize("of", [drift.windows.session(3), drift.windows.tumbling(5)])
def test_windows_that_begin_with_nulls_have_nothing_of_ended_ones(of: drift.windows.Windows, batch_items: int) -> None:
    """Values that are no numbers of 64 bits are objects, and what has ended leaves its own behind."""
    graph = drift.Graph("nulls")
    rows = graph.source("rows", schema={"at": int, "key": str, "n": pl.Decimal(20, 2)}, time=drift.EventTime("at"))
    rows.key_by("key").window(of).rows(mean=drift.agg.mean("n"), total=drift.agg.sum("n")).sink("out")
    pairs = [(0, "1.10"), (1, "2.00"), (10, None), (11, None), (12, "3.00")]
    made = [{"at": at, "key": "a", "n": None if n is None else Decimal(n)} for at, n in pairs]
    found = [item.payload for item in drift.run(graph, {"rows": made}, batch_items=batch_items)]
    expected = [(Decimal("1.55"), Decimal("3.10")), (Decimal("3.00"), Decimal("3.00"))]
    assert [(each["mean"], each["total"]) for each in found] == expected
