"""Chains of steps that wait for time, in rows and in objects, and of others among them; by number, with deaths.

Invariant: a number stands for one graph, input, schedule, form of the input and set of limits, in every process and
whatever was drawn before. Loops end: what goes round again becomes smaller.

Why: a schedule is noise, which Hypothesis cannot make smaller; a number can be run again, and `smaller` knows what a
chain can do without.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, NamedTuple

import polars as pl
from in_rows import SCHEMA, InBoth, InRows
from tight import Limits, drawn, dropped_states, limited

import drift
from drift.engines.simulated.schedule import Scheduled
from drift.engines.simulated.simulation import Simulation
from drift.machines.plan import Plan
from drift.testing.check import Case, Failure, Output, Result, check
from drift.testing.schedule import Schedule
from drift_graph.errors import ProcessError

LATENESS = 6
IDLE_MS = 5
FIELDS = {"code": int, "n": int, "at": int}
JOINS = ("pairs", "left pairs", "all pairs", "as of")
STAY = (
    "tumbling",
    "sliding",
    "session",
    "count",
    "running",
    "rolling",
    "first",
    "filter",
)  # rows keep their key in them
KINDS = (
    *(*STAY, *JOINS),
    *("ends", "scan", "group", "objects", "timers", "python", "loop", "loop of windows"),
)


class Step(NamedTuple):
    """
    Attributes:
        kind: one of `KINDS`.
        keys: how many keys, few, so that rows change workers; 0: the key of the step before, so that they stay.
        back: the stream before the last with which the output is merged; 0: none.
    """

    kind: str
    keys: int
    back: int


class Chain(NamedTuple):
    """
    Attributes:
        tie: the field by which rows of one time are ordered; None: as they come.
        sinks: streams that go to a sink, beside the first, the middle one and the last.
        idle: whether a live source's heartbeat moves when it has no items; what is late then is diverted.
    """

    steps: Sequence[Step]
    tie: str | None
    sinks: Sequence[int] = ()
    idle: bool = False


# Functions of steps.


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
    return row["n"] % modulus if modulus else row["code"]


def of_window(window: Any) -> dict[str, int]:
    return {"code": window.key, "n": window.value % 1000, "at": window.start}


def of_end(found: Any) -> dict[str, int]:
    return {"code": 1, "n": found[1] % 1000, "at": 0}


def goes_round(row: dict[str, int]) -> bool:
    return row.get("left", row["n"] % 3) > 0


def next_round(row: dict[str, int]) -> dict[str, int]:
    return {**row, "n": row["n"] // 2, "left": row.get("left", row["n"] % 3) - 1}


def is_many(row: dict[str, int]) -> bool:
    return row["n"] > 1


def quartered(row: dict[str, int]) -> dict[str, int]:
    return {"code": row["key"], "n": row["n"] // 4, "at": row["at"]}


# Graphs.


def chained(graph: drift.Graph, stream: Any, other: Any, step: Step, name: str) -> Any:
    """A stream behind one more step, as rows of `FIELDS`, if it has rows."""
    kind, keys, _ = step
    in_rows = stream._fields is not None
    key = partial(key_of, keys)
    if kind == "python":
        return stream.map(renumbered)
    if kind == "loop":
        around: Any = graph.feedback(f"{name} again")
        sums = stream.merge(around).scan(key, 0, summed)
        sums.filter(goes_round).map(next_round).feed(around)
        return sums
    if kind == "loop of windows":
        around = graph.feedback(f"{name} again")
        windows = stream.merge(around).key_by(key).window(drift.windows.tumbling(5))
        rows = windows.rows(n=drift.agg.sum("n"), at=drift.agg.min("at"))
        rows.filter(is_many).map(quartered).feed(around)
        return rows.map(quartered)
    if kind in ("scan", "group", "objects", "timers") or not in_rows:
        if kind == "timers":
            return stream.process(key, 0, kept, given_out)
        if kind == "group":
            return stream.group(key, 2).map(of_pair)
        if kind == "objects":
            return stream.key_by(key).window(drift.windows.tumbling(5)).sum(lambda row: row["n"]).map(of_window)
        return stream.scan(key, 0, summed)
    if kind == "filter":
        return stream.filter(pl.col("n") % 3 != 1)
    keyed = (stream.with_columns(code=pl.col("n") % keys) if keys else stream).key_by("code")
    total = drift.agg.sum("n")
    if kind == "running":
        return keyed.running(total=total).select("code", "at", n=pl.col("total") % 1000)
    if kind == "rolling":
        return keyed.rolling(4, total=total).select("code", "at", n=pl.col("total") % 1000)
    if kind == "first":
        return keyed.dedup()
    if kind in JOINS:
        other = (other.with_columns(code=pl.col("n") % keys) if keys else other).select("code", m="n").key_by("code")
        if kind == "as of":
            found = keyed.join_as_of(other, flat=True)
        else:
            within = None if kind == "all pairs" else (3, 2)
            found = keyed.join(other, within=within, how="left" if kind == "left pairs" else "inner", flat=True)
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


def graph_of(chain: Chain) -> drift.Graph:
    graph = drift.Graph("chain")
    idle: dict[str, Any] = {"idle_after_ms": IDLE_MS, "late": "divert"} if chain.idle else {}
    policy = drift.EventTime("at", lateness=LATENESS, tie=chain.tie, **idle)
    streams: list[Any] = [graph.source("rows", schema=SCHEMA, time=policy).select(*FIELDS)]
    if any(step.kind in JOINS for step in chain.steps):
        streams.insert(0, graph.source("more", schema=SCHEMA, time=policy).select(*FIELDS))
    for number, step in enumerate(chain.steps):
        made = chained(graph, streams[-1], streams[0], step, f"step {number}")
        if step.back and step.back < len(streams) and (streams[-step.back]._fields is None) == (made._fields is None):
            made = made.merge(streams[-step.back])
        streams.append(made)
    streams[-1].sink("out")
    sinks = {0, len(streams) // 2, *(sink % len(streams) for sink in chain.sinks)}
    for at in sorted(sinks - {len(streams) - 1}):
        streams[at].sink(f"stream {at}")
    return graph


# Cases.


class _Spared(Simulation):
    """No process dies before so many events."""

    spared = 0

    def _may_die(self, event: Scheduled) -> None:
        if len(self.log) > self.spared:
            super()._may_die(event)


@dataclass(frozen=True)
class ChainCase(Case):
    """
    Attributes:
        chain: of which its graph is made.
        form: in which the input comes.
        limits: of the machines.
        drops: whether workers drop all states that they may.
        spared: events before the first death: at the beginning there is little to lose.
    """

    chain: Chain = field(kw_only=True)
    form: type[Simulation] = field(kw_only=True)
    limits: Limits = field(kw_only=True, default_factory=dict)
    drops: bool = field(kw_only=True, default=False)
    spared: int = field(kw_only=True, default=0)

    def smaller(self) -> Iterator[Case]:
        """With one part of the chain less, or simpler; with one limit less; with all states in memory."""
        for chain in _smaller(self.chain):
            dataflow = graph_of(chain).build()
            inputs = {source.name: self.inputs[source.name] for source in dataflow.sources}
            yield replace(self, chain=chain, dataflow=dataflow, inputs=inputs)
        for name in self.limits:
            yield replace(self, limits={other: value for other, value in self.limits.items() if other != name})
        if self.drops:
            yield replace(self, drops=False)
        if self.spared:
            yield replace(self, spared=0)

    def check(self, expected: Output | None = None, *, plan: Plan | None = None) -> Result:
        """Run it and compare it with the reference. No process dies so often that its run may be given up."""
        form = type(self.form.__name__, (_Spared, self.form), {"spared": self.spared})
        with limited(self.limits), dropped_states() if self.drops else nullcontext():
            result = check(self, expected, plan=plan, simulation=form)
        error = result.output.error
        if result.failure is None and isinstance(error, ProcessError):
            result.failure = Failure("another error", f"the run gave up: {error}")
        return result


def _smaller(chain: Chain) -> Iterator[Chain]:
    steps = list(chain.steps)
    for at, step in enumerate(steps):
        if len(steps) > 1:
            yield chain._replace(steps=[*steps[:at], *steps[at + 1 :]])
        simpler = [step._replace(back=0), step._replace(keys=1)]
        yield from (chain._replace(steps=[*steps[:at], each, *steps[at + 1 :]]) for each in simpler if each < step)
    for at in range(len(chain.sinks)):
        yield chain._replace(sinks=[*chain.sinks[:at], *chain.sinks[at + 1 :]])
    if chain.idle:
        yield chain._replace(idle=False)


def case_of(seed: int) -> ChainCase:
    """The case of a number: odd ones have tight limits; in every third one most steps have the key of those before, and
    in every third one many are joins.
    """
    chosen = Random(seed)

    def step() -> Step:
        if seed % 3 == 0 and chosen.random() < 0.8:
            return Step(chosen.choice(STAY), chosen.choice([0, 0, 0, 1]), 0)
        if seed % 3 == 1 and chosen.random() < 0.4:
            return Step(chosen.choice(JOINS), chosen.randint(1, 3), 0)
        keys = 0 if chosen.random() < 0.1 else chosen.randint(1, 5)
        return Step(chosen.choice(KINDS), keys, chosen.choice([0, 0, 1, 2, 3]))

    steps = [step() for _ in range(chosen.randint(2, 5))]
    multiplying = [at for at, each in enumerate(steps) if each.kind in JOINS and each.kind != "as of"]
    is_large = any(each.kind == "all pairs" for each in steps)
    for at in multiplying[1 if is_large else 2 :]:  # more of them would make thousands of rows of some
        steps[at] = steps[at]._replace(kind="as of")
    if is_large:
        steps[multiplying[0]] = steps[multiplying[0]]._replace(kind="all pairs")
    sinks = chosen.sample(range(6), chosen.choice([0, 0, 1, 2]))
    chain = Chain(steps, chosen.choice(["n", None]), sinks, idle=chosen.random() < 0.2)
    dataflow = graph_of(chain).build()
    inputs = {source.name: _rows(1000 * at, chosen) for at, source in enumerate(dataflow.sources)}
    schedule = Schedule(
        workers=chosen.choice([1, 2, 2, 3]),
        batch_items=chosen.choice([1, 2, 2, 4, 8, 32]),
        fused=chosen.random() < 0.8,
        live=tuple(inputs) if chain.idle else (),
        noise=1 + chosen.getrandbits(48),
        deaths=chosen.random() < 0.9,
    )
    form = chosen.choice([InRows, InRows, InBoth, Simulation])
    limits, drops = drawn(chosen) if seed % 2 else {}, chosen.random() < 0.1
    spared = chosen.choice([0, 0, 60, 120, 240])
    return ChainCase(dataflow, inputs, schedule, chain=chain, form=form, limits=limits, drops=drops, spared=spared)


def _rows(start: int, chosen: Random) -> list[dict[str, Any]]:
    """Rows in the order in which they come, each within `LATENESS` of those before."""
    rows, at = [], 0
    most = chosen.choice([8, 20, 40])
    for n in range(start, start + chosen.randint(1, most)):
        at += chosen.randint(0, 4)
        code = chosen.randint(0, 5)
        rows.append({"zone": "a", "code": code, "at": max(at - chosen.randint(0, LATENESS), 0), "n": n, "fare": n / 7})
    return rows
