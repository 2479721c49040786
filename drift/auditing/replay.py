"""Runs a recorded input again, with its recorded decisions, on any engine.

Invariant: the output is the recorded one, up to its end, if the graph is the same and its functions are pure.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from drift.all_engines import EngineKind, EngineName
from drift.calling.asks import Calls
from drift.engines.feed import Feed
from drift.engines.recorded import RecordedFeed, RecordEnds, batches_of, check_sources, classes_for
from drift.load import load_dataflow
from drift.records.answers import AnswersOfRecord
from drift.records.changes import Change, compare
from drift.records.describe import MAIN
from drift.records.fingerprint import Fingerprint, fingerprint
from drift.records.format import MANIFEST, Manifest, RecordEdited, hash_of
from drift.records.reader import Record
from drift.running import Run, made_run
from drift.segments.answers import AnswersOfRun, missing_answer
from drift.streams import Graph
from drift_graph import errors
from drift_graph.called import called
from drift_graph.errors import SettingsError
from drift_graph.functions import warn
from drift_graph.graph import Dataflow
from drift_graph.lateness import Late

Pace = Literal["full", "recorded"]


class GraphDiffers(UserWarning):
    """A record is replayed with another graph than the one it was made with."""


@called
def replay(
    path: Any,
    graph: Graph | Dataflow | str | None = None,
    *,
    engine: EngineName | EngineKind = "local",
    workers: int = 1,
    until: int | None = None,
    pace: Pace = "full",
    sinks: Mapping[str, Any] | None = None,
    on_late: Callable[[Late], None] | None = None,
    calls: Calls = "replay",
    **more: Any,
) -> Run:
    """Run a record's input again with its own decisions: global times, diverted items, heartbeats.

    >>> import drift
    >>> graph = drift.Graph("zones")
    >>> graph.source("zones").count(key=str).sink("out")
    >>> report = drift.run(graph, {"zones": ["JFK", "LGA", "JFK"]}, record="monday").finish()
    >>> [item.payload for item in drift.replay("monday", graph, engine="reference")]
    [('JFK', 1), ('LGA', 1), ('JFK', 2)]

    Args:
        path: the record; `drift.Record(path, classes=...)` if the graph's modules lack classes of payloads.
        graph: to compute with; by default it is loaded from the target that the record names, and that file runs. A
            graph other than the recorded one causes a GraphDiffers warning.
        engine, workers, sinks, on_late, more: as in `drift.run`.
        until: end before this position of the output.
        pace: "full", or "recorded" to keep the recorded intervals between batches.
        calls: what is asked about items whose answers are not in the record: nothing, with "replay"; otherwise as in
            `drift.run`.

    Raises:
        RecordError: the record cannot be read, or its input was changed.
        SettingsError, GraphError: at once.
    """
    record = path if isinstance(path, Record) else Record(path)
    if until is not None and (type(until) is not int or until < 0):
        raise SettingsError(f"until={until!r} is not a position, an int of 0 or more")
    if pace not in ("full", "recorded"):
        raise SettingsError(f"pace={pace!r} is neither 'full' nor 'recorded'")
    record.check_files("input", "late", "arrivals", "answers")
    dataflow = dataflow_of(record, graph)
    changes = [change for change in changes_since(record, dataflow) if change.matters]
    if changes:
        shown = "; ".join(change.text for change in changes[:3]) + (" ..." if len(changes) > 3 else "")
        warn(
            f"the graph is not the one that {record.path} was recorded with, so the output may differ: {shown}",
            GraphDiffers,
        )
    return replayed(
        record,
        dataflow,
        {"workers": workers, **more},
        engine=engine,
        until=until,
        paced=pace == "recorded",
        sinks=sinks,
        on_late=on_late,
        calls=calls,
    )


def replayed(
    record: Record,
    dataflow: Dataflow,
    settings: Mapping[str, Any] = MappingProxyType({}),
    *,
    paced: bool = False,
    calls: Calls = "replay",
    answered: AnswersOfRun | None = None,
    **given: Any,
) -> Run:
    """`replay` for an open record and a graph, without comparisons; `settings`, `given`: see `made_run`."""
    known = classes_for(record, dataflow)
    check_sources(record, dataflow)

    def feed(on_late: Callable[[Late], None], batch_items: int) -> Feed:
        return RecordedFeed(
            dataflow,
            batches_of(record, known),
            batch_items=batch_items,
            on_late=on_late,
            paced=paced,
            ends_with=end_of(record.manifest),
            ends=record.manifest.outcome.state == "finished",
            record=record.with_classes(known),
        )

    settings = {"digest": record.manifest.algorithm, **settings}
    answered = answered or answers_of(record.with_classes(known), may_ask=calls != "replay")
    return made_run(dataflow, {}, settings, feed=feed, calls=calls, answered=answered, **given)


def answers_of(record: Record, *, may_ask: bool = False) -> AnswersOfRun:
    """The recorded answers of calls; an item without one is asked about, or ends the run: where a record that was cut
    off ends, as it does.
    """
    ends = missing_answer if record.manifest.complete else lambda *_: RecordEnds("the record ends here")
    missing = None if may_ask else ends
    return AnswersOfRun(AnswersOfRecord(record), missing)


def end_of(manifest: Manifest) -> Exception | None:
    """The error that a replay ends with if the recorded input did: the same, in the same words."""
    outcome = manifest.outcome
    if not outcome.by_input:
        return None
    kind = getattr(errors, outcome.kind, errors.InputError)
    found: Exception = kind(outcome.error)
    return found


def dataflow_of(record: Record, graph: Graph | Dataflow | str | None = None) -> Dataflow:
    """The graph that was passed, or the one at the target that the record names.

    Raises:
        SettingsError: no target is recorded, or nothing is there.
    """
    if isinstance(graph, Graph):
        return graph.build()
    if isinstance(graph, Dataflow):
        return graph
    target = graph or record.manifest.target
    if not isinstance(target, str):
        raise SettingsError(f"graph={graph!r:.80} is no drift.Graph, and no text like 'file.py:name'")
    if not target:
        raise SettingsError(
            f"the record {record.path} does not say where graph {record.manifest.graph!r} is defined (it was in no "
            f"module's variable); give it: drift.replay(PATH, graph), or --graph FILE:NAME"
        )
    found = _in_main(target)
    if isinstance(found, Graph):
        return found.build()
    if found is None and target.partition(":")[0] == MAIN:
        raise SettingsError(
            f"graph {record.manifest.graph!r} of the record {record.path} was made in a notebook, at a prompt or by "
            f"`python -c`, as {target.partition(':')[2]!r}, and is not there in this process; run the cell that makes "
            f"it, or give the graph: drift.audit(PATH, graph), or --graph FILE:NAME"
        )
    return found if found is not None else load_dataflow(target)


def _in_main(target: str) -> Graph | Dataflow | None:
    """The graph of the running script, which must not run again."""
    main = sys.modules["__main__"]
    file, _, name = target.rpartition(":")
    if file != MAIN and Path(getattr(main, "__file__", None) or "").resolve() != Path(file).resolve():
        return None
    found = getattr(main, name, None)
    return found if isinstance(found, (Graph, Dataflow)) else None


def changes_since(record: Record, dataflow: Dataflow) -> list[Change]:
    """How a graph differs from the recorded one, except in time policies, which a replay does not use."""
    return [change for change in changes_to(record, fingerprint(dataflow)) if change.kind != "policy"]


def changes_to(record: Record, new: Fingerprint, *others: Record) -> list[Change]:
    """How a graph differs from the recorded one; nothing where the record does not have its fingerprint.

    Args:
        others: records that `new` is from.

    Raises:
        RecordEdited: a manifest is not as it was written, so its fingerprint is none.
    """
    old = record.manifest.fingerprint
    if old is None:
        return []
    try:
        return compare(old, new)
    except Exception as error:
        for each in (record, *others):
            manifest = each.manifest
            if hash_of(msgspec.to_builtins(manifest), manifest.algorithm) != manifest.self_hash:
                raise RecordEdited(
                    f"{each.path / MANIFEST} was edited or damaged since it was written, and what it says of the graph "
                    f"cannot be read ({type(error).__name__}: {error}); bring back the file as it was"
                ) from error
        raise
