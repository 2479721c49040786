"""Whether a recorded run can be reproduced: run again on chosen engines and schedules.

Invariant: a check is ok only if every item of the recorded output was compared, meta and payload; if the recorded
output was cut off, its items are the first of those computed.
"""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

from drift.all_engines import engine_kind
from drift.auditing.checks import THE_GRAPH, Check, Result, Trouble
from drift.auditing.divergence import Comparison, compared, first_difference
from drift.auditing.explain import RecordedInput
from drift.auditing.replay import changes_since, end_of, replayed
from drift.auditing.verdict import investigate
from drift.engines.recorded import RecordedMachine, batches_of, classes_for
from drift.engines.simulated.simulation import Simulation
from drift.records.environment import differences, environment
from drift.records.reader import Record
from drift.testing.calls import InTurn
from drift.testing.schedule import Player, Schedule
from drift_barrier.digest import BLOCK_ITEMS
from drift_graph.errors import DriftError
from drift_graph.graph import Dataflow
from drift_graph.item import Item
from drift_graph.times import Arrived

#: A simulated run holds all of its input and output.
SIMULATED_ITEMS_MAX = 200_000


class Inquiry(NamedTuple):
    """The settings for investigating a divergence.

    Attributes:
        cases: folder for case files, if any.
        target: of the graph, for them.
        was: the graph that the record was made with, if it is another one and available.
    """

    cases: str | os.PathLike[str] | None = None
    target: str = ""
    was: Dataflow | None = None


def check_graph(record: Record, dataflow: Dataflow) -> Check:
    """Whether the graph is the recorded one; a difference is only noted, the output shows whether it matters."""
    started = time.perf_counter()
    if record.manifest.fingerprint is None:
        return Check("reproduced", THE_GRAPH, "its fingerprint", "not checked", "the record has no fingerprint")
    changes = changes_since(record, dataflow)
    mattering = [change for change in changes if change.matters]
    found = "the same structure and the same functions"
    if mattering:
        found = "changed: " + "; ".join(change.text for change in mattering[:3])
        found += f"; and {len(mattering) - 3} more" if len(mattering) > 3 else ""
    elif changes:
        found += f"; {changes[0].text}"
    detail = {"changes": [change.as_dict() for change in changes]}
    seconds = time.perf_counter() - started
    return Check("reproduced", THE_GRAPH, "the fingerprint in the manifest", "noted" if mattering else "ok", found,
                 seconds=seconds, detail=detail)  # fmt: skip


def check_versions(record: Record) -> Check:
    """Whether drift, Python and the packages are those of the recorded run."""
    differ = [
        f"{name} {recorded} recorded, {present} now"
        for name, recorded, present in differences(record.manifest.environment, environment())
        if recorded != "none"
    ]
    found = "the same"
    if differ:
        found = "; ".join(differ[:3]) + (f"; and {len(differ) - 3} more" if len(differ) > 3 else "")
    what = "drift, Python, the platform and packages"
    result: Result = "noted" if differ else "ok"
    return Check("reproduced", what, "the manifest", result, found, detail={"versions": differ})


def check_run(record: Record, dataflow: Dataflow, engine: str, workers: int, inquiry: Inquiry) -> Check:
    """Run the record's input on an engine and compare."""
    started = time.perf_counter()
    what = f"engine {engine}" + (f", {workers} workers" if engine_kind(engine).has("workers") else "")
    reading = record.with_classes(classes_for(record, dataflow))
    there = engine_kind(engine).output_is_elsewhere
    found = _compared_there(reading, dataflow, engine) if there else None
    if found is None:
        run = replayed(reading, dataflow, {"workers": workers}, engine=engine, on_late=_ignored)
        found = compared(reading, run)
    return _check(what, reading, dataflow, found, time.perf_counter() - started, inquiry)


def _compared_there(record: Record, dataflow: Dataflow, engine: str) -> Comparison | None:
    """The comparison if the digests are equal, where the engine computes them in its tasks; else None."""
    if record.manifest.outcome.state != "finished":
        return None
    run = replayed(record, dataflow, engine=engine, on_late=_ignored)
    try:
        report = run.finish()
    except DriftError:
        return None
    same = (report.digest, report.items_out) == (record.manifest.digest, record.manifest.items_out)
    return Comparison(report.items_out, None, report.digest) if same else None


def _ignored(_: object) -> None:
    """Late items were counted when they were recorded."""


def check_simulated(record: Record, dataflow: Dataflow, seed: int, inquiry: Inquiry) -> Check:
    """Run the record's input under the schedule of a seed and compare."""
    manifest = record.manifest
    schedule = schedule_of(seed)
    what = f"simulated, seed {seed}: {schedule.workers} workers, batches of {schedule.batch_items}"
    if max(manifest.items_in, manifest.items_out) > SIMULATED_ITEMS_MAX:
        most = f"a simulated run holds all items; it is for records of up to {SIMULATED_ITEMS_MAX:,} items"
        return Check("reproduced", what, "the recorded output", "not checked", most)
    started = time.perf_counter()
    reading = record.with_classes(classes_for(record, dataflow))
    by_rank: dict[int, list[Arrived]] = {}
    for batch in batches_of(reading, {}):
        by_rank.setdefault(batch.rank, []).append(batch.arrived)
    machines = [
        RecordedMachine(source.name, rank, by_rank.get(rank, ())) for rank, source in enumerate(dataflow.sources)
    ]
    settings: dict[str, Any] = {"machines": machines, "digest": manifest.algorithm, **schedule.settings()}
    made: type[Simulation] = Simulation
    if any(each.asks for each in dataflow.operators):
        made, settings = InTurn, {**settings, "answers": RecordedInput(reading, dataflow).answer}
    simulation = made(dataflow, {machine.name: machine.payloads for machine in machines}, Player(schedule), **settings)
    outcome = simulation.run()
    items = [Item(payload, position, sink, meta) for position, meta, payload, sink in outcome.items()]
    error = outcome.error if isinstance(outcome.error, DriftError) else None
    ends = end_of(manifest)
    ended = error or (ends if isinstance(ends, DriftError) else None)
    found = first_difference(reading.items(), items, error=error, ends=manifest.outcome.state == "finished")
    comparison = Comparison(len(items), found, outcome.digest, ended)
    return _check(what, reading, dataflow, comparison, time.perf_counter() - started, inquiry)


def schedule_of(seed: int) -> Schedule:
    """The schedule of a seed, always the same: messages overtake each other between one to four workers."""
    return Schedule(workers=1 + seed % 4, batch_items=(1, 7, 64, 512)[seed // 4 % 4], noise=seed + 1)


def _check(what: str, record: Record, dataflow: Dataflow, found: Comparison, seconds: float, inquiry: Inquiry) -> Check:
    manifest = record.manifest
    against = f"the recorded output, {manifest.items_out:,} items"
    divergence = found.divergence
    if divergence is None:
        text = f"the same {manifest.items_out:,} items"
        if found.items > manifest.items_out:
            text = f"the same, and {found.items - manifest.items_out:,} more after the record's end"
        elif manifest.outcome.state == "finished":
            text += f"; digest {found.digest}"
        if found.error is not None:
            text += f"; ended with the same {type(found.error).__name__}"
        return Check("reproduced", what, against, "ok", text, seconds=seconds, detail={"digest": found.digest})
    finding = investigate(record, dataflow, divergence, **inquiry._asdict())
    verdict = finding.verdict
    kind = "output differs" if divergence.recorded or divergence.recomputed else "outcome differs"
    where = f"position {divergence.position:,}" if kind == "output differs" else "the end"
    text = f"at {where}: {divergence.what}; {verdict.title}: {verdict.text}"
    trouble = Trouble(kind, text, block=divergence.position // BLOCK_ITEMS, position=divergence.position)
    return Check(
        "reproduced", what, against, "trouble", text, (trouble,), seconds, finding.as_dict(), finding
    )  # fmt: skip
