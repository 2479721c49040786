"""Explains an item of a record: its lineage, computed with the graph at hand.

Invariant: if the graph still gives the recorded item at a position, the lineage ends in exactly that item; if not, the
lineage says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from drift.auditing.lineage import Lineage, lineage_of
from drift.auditing.replay import changes_since, dataflow_of, replayed
from drift.auditing.trace import InputBatch
from drift.engines.recorded import batches_of, classes_for
from drift.records.answers import AnswersOfRecord
from drift.records.changes import changes_text
from drift.records.reader import Record
from drift.streams import Graph
from drift_graph.called import called
from drift_graph.canonical import canonical
from drift_graph.errors import AnswerMissing, InputError, SettingsError, StepError
from drift_graph.functions import brief
from drift_graph.graph import Dataflow
from drift_graph.meta import MetaParts


class RecordedInput:
    """The input of a record, for lineage."""

    def __init__(self, record: Record, dataflow: Dataflow) -> None:
        self._classes = classes_for(record, dataflow)
        self._record = record.with_classes(self._classes)
        self._names = [source.name for source in record.manifest.sources]
        self._answers = AnswersOfRecord(self._record)

    def batches(self) -> Iterator[InputBatch]:
        for batch in batches_of(self._record, self._classes):
            arrived = batch.arrived
            yield InputBatch(self._names[batch.rank], arrived.metas, arrived.payloads, arrived.heartbeat)

    def answer(self, call: str, meta: bytes, payload: Any) -> Any:
        """The recorded answer about an item. Raises AnswerMissing: the call was not asked about it."""
        found = self._answers.find(call, meta)
        if found is None:
            raise AnswerMissing(
                f"the record {self._record.path} has no answer of call {call!r} about {brief(payload, 100)}"
            )
        return found[0]

    def at(self, global_time: bytes) -> Any:
        found = self._record.find_input(global_time)
        if found is None:
            raise InputError(
                f"the record {self._record.path} has no input item at {MetaParts(global_time)} (global time "
                f"{global_time.hex()}), from which the output item comes; `drift audit` says what is missing"
            )
        return self._record.restored(found.data)


@called
def explain(
    path: Any,
    position: int,
    graph: Graph | Dataflow | str | None = None,
    *,
    states: int = 3,
) -> Lineage:
    """The lineage of an output item of a record: what it was made of, back to the input, and by which lines of code.

    >>> import drift
    >>> graph = drift.Graph("zones")
    >>> graph.source("zones").count(key=str).sink("out")
    >>> report = drift.run(graph, {"zones": ["JFK", "LGA", "JFK"]}, record="monday").finish()
    >>> print(drift.explain("monday", 2, graph))
    ('JFK', 2)  sink 'out', position 2, time 2
    └── ('JFK', 2)  step 'count str': scan str (...)
        ├── state 1 of key 'JFK'  step 'count str': scan str (...), first of its key; 1 item in
        │   └── 'JFK'  input zones at 0
        └── 'JFK'  input zones at 2

    Args:
        path: the record; `drift.Record(path, classes=...)` if the graph's modules lack classes of payloads.
        position: of the item; for a run that ended with an error of a step, the position after the last item is the
            failed call.
        graph: to compute with; by default the graph at the target that the record names, whose file is run.
        states: how many states of a scan (rounds of any other cycle) to go back.

    Raises:
        RecordError: the record cannot be read.
        SettingsError: there is no such position.
        InputError: the graph, which is not the recorded one or not pure, does not make such an item.
    """
    record = path if isinstance(path, Record) else Record(path)
    if type(position) is not int or position < 0:
        raise SettingsError(f"position={position!r} is not a position, an int of 0 or more")
    if type(states) is not int or states < 1:
        raise SettingsError(f"states={states!r} is not an int of 1 or more")
    dataflow = dataflow_of(record, graph)
    run_input = RecordedInput(record, dataflow)
    outcome = record.manifest.outcome
    if position == record.manifest.items_out and outcome.state == "failed" and not outcome.by_input:
        meta = _failing_meta(record, dataflow)
        return lineage_of(dataflow, run_input, meta, position=position, loops_max=states)
    item = record.with_classes(classes_for(record, dataflow)).item(position)
    try:
        lineage = lineage_of(dataflow, run_input, item.meta, position=position, loops_max=states)
    except InputError as error:
        changes = [change for change in changes_since(record, dataflow) if change.matters]
        if changes:
            error.add_note(f"The graph has changed since the record was made:\n{changes_text(changes)}")
        raise
    if canonical(lineage.item.payload) != canonical(item.payload):
        return replace(lineage, recorded=item)
    return lineage


def _failing_meta(record: Record, dataflow: Dataflow) -> bytes:
    """The meta of the call that ends the run."""
    try:
        replayed(record, dataflow).finish()
    except StepError as error:
        return error.meta
    raise InputError(
        f"the recorded run ended with an error ({record.manifest.outcome.error.splitlines()[0]}), and it does not come "
        f"again; the function has changed, or is not pure"
    )
