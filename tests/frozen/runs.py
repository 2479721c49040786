"""Ways to run a case, and what is compared: all that a run released, and how it ended."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from waiting import HANG_S

import drift
from drift.calling.asks import calls_of
from drift.engines.simulated.simulation import Simulation
from drift.testing.calls import InTurn, TestAnswers, answered
from drift.testing.schedule import Player, Schedule
from drift_graph.errors import DriftError
from frozen.cases import Case, Sources
from frozen.draw import Draw
from frozen.inputs import Colour, Level, Place

#: What a case gave: see `outcome_of`.
Outcome = dict[str, Any]


def outcome_of(digest: str, items: list[tuple[bytes, str]], late: int, error: Exception | None) -> Outcome:
    """What is frozen of a run.

    Args:
        items: meta and sink of each.
        late: how many late items were diverted, that are in no sink.
    """
    sinks: dict[str, int] = {}
    for _, sink in items:
        sinks[sink] = sinks.get(sink, 0) + 1
    outcome: Outcome = {"digest": digest, "items": len(items), "sinks": dict(sorted(sinks.items())), "late": late}
    if items:
        outcome |= {"first": items[0][0].hex(), "last": items[-1][0].hex()}
    if error is not None:
        outcome["error"] = type(error).__name__
        outcome |= {name: getattr(error, name) for name in ("step",) if isinstance(getattr(error, name, None), str)}
    return outcome


def given(case: Case, sources: Sources) -> dict[str, Any]:
    """The sources of a run: tables where the case's rows are in columns."""
    if not case.tables:
        return dict(sources)
    import polars as pl

    return {
        name: drift.sources.table(pl.DataFrame(rows, schema=case.tables[name]), payload="rows")
        if name in case.tables
        else rows
        for name, rows in sources.items()
    }


def on_engine(case: Case, engine: str, **settings: Any) -> Outcome:
    dataflow, sources = case.make()
    run = drift.run(dataflow, given(case, sources), engine=engine, **settings)  # type: ignore[arg-type]
    items: list[tuple[bytes, str]] = []
    error: Exception | None = None
    try:
        items.extend((item.meta, item.sink) for item in run)
    except DriftError as raised:
        error = raised
    return outcome_of(run.digest, items, len(run.late), error)


def going_on(case: Case, parts: int, released: int | None, *settings: dict[str, Any]) -> Outcome:
    """A run that is stopped some times, and goes on from its state with other settings.

    Args:
        released: how many items the case gives; None to ask the reference.
    """
    digest, items, late = "", list[tuple[bytes, str]](), 0
    if released is None:
        released = on_engine(case, "reference")["items"]
    error: Exception | None = None
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(parts):
            dataflow, sources = case.make()
            state = drift.Checkpoints(folder, every_s=3600, every_items=11, classes=(Colour, Level, Place))
            run = drift.run(dataflow, given(case, sources), state=state, **settings[turn % len(settings)])
            stop_at = released * (turn + 1) // parts
            try:
                for item in run:
                    items.append((item.meta, item.sink))
                    if turn < parts - 1 and len(items) >= stop_at:
                        run.stop()
            except DriftError as raised:
                error = raised
            digest, late = run.digest, late + len(run.late)
            if error is not None:
                break
    return outcome_of(digest, items, late, error)


def simulated(case: Case, schedule: Schedule) -> Outcome:
    """A run of the nodes under a drawn schedule."""
    dataflow, sources = case.make()
    dataflow = answered(dataflow, {name: TestAnswers(asks.stub) for name, asks in calls_of(dataflow).items()})
    cut = any(each.asks or (each.durable and schedule.deaths) for each in dataflow.operators)
    kind = InTurn if cut else Simulation
    outcome = kind(dataflow, sources, Player(schedule), **schedule.settings()).run()
    items = [(meta, sink) for _, meta, _, sink in outcome.items()]
    return outcome_of(outcome.digest, items, len(outcome.late), outcome.error)


def schedule_of(case: Case, deaths: bool) -> Schedule:
    draw = Draw("schedule", case.name)
    return Schedule(
        workers=draw.between(1, 4), batch_items=draw.of([1, 2, 3, 8, 20]), fused=not draw.one_in(6),
        noise=1 + draw.below(2**31), deaths=deaths,
    )  # fmt: skip


def ways(
    case: Case, thorough: bool = False, released: int | None = None
) -> Iterator[tuple[str, Callable[[], Outcome]]]:
    """The ways in which a case is run, by a name: one of them, drawn, and for some the reference too; or all.

    Args:
        released: how many items the case gives, if that is known.
    """
    draw = Draw("ways", case.name)
    if case.batch_items is not None:
        yield f"local, {case.batch_items} at once", lambda: on_engine(case, "local", batch_items=case.batch_items)
        if thorough:
            yield "local, as many rows at once as there are", lambda: on_engine(case, "local")
            yield "reference", lambda: on_engine(case, "reference")
        return
    if case.large:
        in_batches = draw.one_in(4)
        if thorough or not in_batches:
            yield "local, as many rows at once as there are", lambda: on_engine(case, "local")
        if thorough or in_batches:
            yield "local, 700 at once", lambda: on_engine(case, "local", batch_items=700)
        if thorough:
            yield "reference", lambda: on_engine(case, "reference")
        return
    at_once, schedule, chosen = draw.of([1, 2, 7, 16, 64]), schedule_of(case, draw.one_in(3)), draw.below(24)
    goes_on, is_unfused = chosen % 12 == 2, chosen % 8 == 1
    if thorough or (chosen < 11 and not goes_on and not is_unfused):
        yield f"local, {at_once} at once", lambda: on_engine(case, "local", batch_items=at_once)
    if thorough or (chosen >= 11 and not goes_on):
        yield f"simulated, {schedule}", lambda: simulated(case, schedule)
    if thorough or chosen % 8 == 0:
        yield "reference", lambda: on_engine(case, "reference")
    if thorough or is_unfused:
        yield "local, 5 at once, loops not fused", lambda: on_engine(case, "local", batch_items=5, fused=False)
    if thorough or goes_on:
        settings = {"batch_items": 4}, {"batch_items": 30}
        yield "local, going on from its state with other batches", lambda: going_on(case, 3, released, *settings)


def over_processes(case: Case) -> Outcome:
    batch_items = Draw("ways", case.name).of([1, 2, 7, 16, 64])
    return on_engine(case, "zeromq", workers=2, batch_items=batch_items, silence_max_s=HANG_S)


def is_run_over_processes(case: Case) -> bool:
    """One of eighty."""
    return Draw("zeromq", case.name).one_in(80)
