"""Chains of steps that wait for time, in rows and in objects, and of others among them; processes may die."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from test_rows_undone import SCHEMA, InBoth, InRows, schedules

import drift
import drift.machines.unmapped as unmapped
from drift.testing.check import Case, check
from drift.testing.schedule import Deviation, Key, Schedule

UNSHRUNK = (Phase.explicit, Phase.generate)  # as in `test_deaths.py`
LATENESS = 6
#: A step: its kind, its key (few numbers, so that rows change workers), and which stream before the last it merges.
Step = tuple[str, int, int]

FIELDS = {"code": int, "n": int, "at": int}
KINDS = (
    *("tumbling", "sliding", "session", "count", "running", "rolling", "first", "pairs", "left pairs", "as of"),
    *("ends", "scan", "group", "objects", "timers", "python", "filter"),
)


def summed(state: int, row: dict[str, int]) -> tuple[int, dict[str, int]]:
    state = (state * 3 + row["n"] + 1) % 97
    return state, {**row, "n": state}


def of_pair(rows: tuple[dict[str, int], ...]) -> dict[str, int]:
    return {**rows[-1], "n": sum(row["n"] for row in rows)}


def kept(state: int, row: dict[str, int], at: int) -> tuple[int, list[Any]]:
    """Sum what comes, and give it at a timer."""
    ask = [] if state else [drift.at(at + 3, row)]
    return state + row["n"] + 1, [{**row, "n": state % 50}, *ask]


def given_out(state: int, row: dict[str, int], at: int) -> tuple[int, list[Any]]:
    return 0, [{**row, "n": state % 100}]


def renumbered(row: dict[str, int]) -> dict[str, int]:
    return {**row, "n": row["n"] * 7 % 31}


def key_of(modulus: int, row: dict[str, int]) -> int:
    return row["n"] % modulus


def of_window(window: Any) -> dict[str, int]:
    return {"code": window.key, "n": window.value % 1000, "at": window.start}


def of_end(found: Any) -> dict[str, int]:
    return {"code": 1, "n": found[1] % 1000, "at": 0}


def chained(stream: Any, other: Any, kind: str, keys: int) -> Any:
    """A stream behind one more step, as rows of `FIELDS`, if it has rows."""
    in_rows = stream._fields is not None
    if kind == "python":
        return stream.map(renumbered)
    if kind in ("scan", "group", "objects", "timers") or not in_rows:
        key = partial(key_of, keys)
        if kind == "timers":
            return stream.process(key, 0, kept, given_out)
        if kind == "group":
            return stream.group(key, 2).map(of_pair)
        if kind == "objects":
            return stream.key_by(key).window(drift.windows.tumbling(5)).sum(lambda row: row["n"]).map(of_window)
        return stream.scan(key, 0, summed)
    if kind == "filter":
        return stream.filter(pl.col("n") % 3 != 1)
    keyed = stream.with_columns(code=pl.col("n") % keys).key_by("code")
    total = drift.agg.sum("n")
    if kind == "running":
        return keyed.running(total=total).select("code", "at", n=pl.col("total") % 1000)
    if kind == "rolling":
        return keyed.rolling(4, total=total).select("code", "at", n=pl.col("total") % 1000)
    if kind == "first":
        return keyed.dedup()
    if kind in ("pairs", "left pairs", "as of"):
        other = other.with_columns(code=pl.col("n") % keys).select("code", m="n").key_by("code")
        if kind == "as of":
            found = keyed.join_as_of(other, flat=True)
        else:
            found = keyed.join(other, within=(3, 2), how="left" if kind == "left pairs" else "inner", flat=True)
        return found.select("code", "at", n=(pl.col("n") + pl.col("m").fill_null(5)) % 1000)
    if kind == "ends":
        return keyed.at_end(total).map(of_end)
    cuts = {
        "tumbling": drift.windows.tumbling(5),
        "sliding": drift.windows.sliding(6, every=3),
        "session": drift.windows.session(gap=3),
        "count": drift.windows.count(2),
    }
    rows = keyed.window(cuts[kind]).rows(n=total, at=drift.agg.min("at"))
    return rows.select("at", code="key", n=pl.col("n") % 1000)


def graph_of(steps: Sequence[Step], tie: str | None) -> drift.Graph:
    graph = drift.Graph("chain")
    policy = drift.EventTime("at", lateness=LATENESS, tie=tie)
    streams: list[Any] = [graph.source("rows", schema=SCHEMA, time=policy).select(*FIELDS)]
    if any(kind in ("pairs", "left pairs", "as of") for kind, _, _ in steps):
        streams.insert(0, graph.source("more", schema=SCHEMA, time=policy).select(*FIELDS))
    for kind, keys, back in steps:
        made = chained(streams[-1], streams[0], kind, keys)
        if back and back < len(streams) and (streams[-back]._fields is None) == (made._fields is None):
            made = made.merge(streams[-back])
        streams.append(made)
    streams[-1].sink("out")
    for at in sorted({0, len(streams) // 2} - {len(streams) - 1}):
        streams[at].sink(f"stream {at}")
    return graph


def rows_of(start: int, steps: Sequence[tuple[int, int, int]]) -> list[dict[str, Any]]:
    rows, at = [], 0
    for n, (step, late, code) in enumerate(steps, start):
        at += step
        rows.append({"zone": "a", "code": code, "at": max(at - late, 0), "n": n, "fare": n / 7})
    return rows


given_rows = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, LATENESS), st.integers(0, 5)), min_size=1, max_size=40
)
chains = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 5), st.integers(0, 3)), min_size=2, max_size=5)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    dataflow = graph_of(draw(chains), draw(st.sampled_from(["n", None]))).build()
    inputs = {source.name: rows_of(1000 * at, draw(given_rows)) for at, source in enumerate(dataflow.sources)}
    return Case(dataflow, inputs, draw(schedules))


@settings(max_examples=60, phases=UNSHRUNK)
@given(st.data())
def test_chains_give_what_the_reference_gives_under_any_schedule_and_deaths(data: Any) -> None:
    result = check(data.draw(cases()), simulation=data.draw(st.sampled_from([InRows, InRows, InBoth])))
    assert result.failure is None, result.failure


def test_what_comes_to_wait_behind_a_step_leans_on_what_waits_in_it_however_late_the_ack_is() -> None:
    graph = drift.Graph("cycle")
    around = graph.feedback("around")
    schema = {"zone": str, "n": int, "at": int}
    rows = graph.source("rows", schema=schema, time=drift.EventTime("at", lateness=2)).merge(around)
    made = rows.key_by("zone").window(drift.windows.tumbling(2)).rows(n=drift.agg.sum("n"))
    again = made.filter(lambda row: row["n"] > 1)
    again.map(lambda row: {"zone": row["key"], "n": row["n"] // 4, "at": row["start"]}).feed(around)
    made.key_by("key").window(drift.windows.tumbling(2)).rows(more=drift.agg.count()).sink("out")
    acks = Key("ack", "worker 0", "rows", 1, 0), Key("ack", "worker 0", "", -1, 0)
    schedule = Schedule(workers=1, batch_items=1, deviations=(Deviation(acks[0], 12, acks[1]),))
    rows_given = [{"zone": "b", "n": 0, "at": 0}, {"zone": "b", "n": 0, "at": 2}]
    result = check(Case(graph.build(), {"rows": rows_given}, schedule))
    assert result.failure is None and len(result.expected.rows) == 2, result.failure


def test_a_worker_tells_of_no_timer_that_has_fired_where_outputs_wait_for_their_maps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"FIRST": 1, "GROWTH": 2, "_MADE_MAX": 1}.items():
        monkeypatch.setattr(unmapped, name, value)
    dataflow = graph_of([("left pairs", 1, 0), ("pairs", 1, 0)], "n").build()
    deviations = (
        Deviation(Key("heartbeat", "rows", "rows", 0, 0), 21),
        Deviation(Key("ack", "worker 0", "rows", 0, 0), 1),
        Deviation(Key("still", "rows > worker 0", "rows", 0, 0), 1),
        Deviation(Key("read", "", "more", 1, 0), 7),
        Deviation(Key("news", "worker 0", "", 0, 0), 8),
        Deviation(Key("still", "worker 0", "more", 0, 1), 16),
        Deviation(Key("still", "more > worker 0", "more", 1, 0), 86),
        Deviation(Key("still", "barrier", "more", 0, 1), 7),
    )
    given = {"rows": [(6, 14), (9, 15)], "more": [(2, 1001), (7, 1002)]}
    inputs = {
        name: [{"zone": "a", "code": 0, "at": at, "n": n, "fare": n / 7} for at, n in rows]
        for name, rows in given.items()
    }
    result = check(Case(dataflow, inputs, Schedule(workers=2, batch_items=1, deviations=deviations)))
    assert result.failure is None and len(result.expected.rows) == 6, result.failure
