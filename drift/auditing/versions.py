"""The effect of a changed graph: a record's output compared with that of another version of its graph.

Invariant: the input, its global times and its late items are the recorded ones, so every difference comes from the
graph. Decisions that a changed time policy would have made differently are reported, but not applied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drift.auditing.explain import RecordedInput
from drift.auditing.lineage import Lineage, lineage_of
from drift.auditing.outputs import KINDS, Difference, Example, OutputRow, difference, rows_of_record, rows_of_run
from drift.auditing.replay import changes_to, replayed
from drift.engines.recorded import classes_for
from drift.records.changes import Change
from drift.records.fingerprint import fingerprint
from drift.records.reader import Record
from drift.records.shown import readable
from drift_graph.errors import InputError
from drift_graph.functions import safe_text
from drift_graph.graph import Dataflow
from drift_graph.restore import Classes

_CHARACTERS_MAX = 2000


@dataclass(frozen=True)
class Versions:
    """A record's graph compared with another one.

    Attributes:
        changes: of the graph, its time policies included.
        difference: of the outputs; the record's is the old one.
        lineages: of the first new item of each kind of difference, by its position in the new output.
        classes: to read payloads with.
    """

    changes: tuple[Change, ...]
    difference: Difference
    lineages: dict[int, Lineage]
    classes: Classes

    @property
    def same(self) -> bool:
        return self.difference.same

    def as_dict(self) -> dict[str, Any]:
        return {
            "changes": [change.as_dict() for change in self.changes],
            **difference_as_dict(self.difference, self.classes),
            "lineages": {str(position): lineage.as_dict() for position, lineage in self.lineages.items()},
        }


def versions(
    record: Record,
    dataflow: Dataflow,
    *,
    key: Callable[[Any], Any] | None = None,
    **settings: Any,
) -> Versions:
    """Run a record's input through another version of its graph, and compare the outputs item by item.

    Args:
        key: of a payload; differences are also counted by it.
        settings: of the run, as `drift.replay` takes them.
    """
    classes = classes_for(record, dataflow)
    changes = tuple(changes_to(record, fingerprint(dataflow)))
    until = None if record.manifest.complete else record.manifest.items_out
    with replayed(record, dataflow, until=until, **settings) as run:
        found = difference(rows_of_record(record), rows_of_run(run), key and _key_of_data(key, classes))
    return Versions(changes, found, _lineages(record, dataflow, found), classes)


def _key_of_data(key: Callable[[Any], Any], classes: Classes) -> Callable[[bytes], Any]:
    def key_of(data: bytes) -> Any:
        try:
            return safe_text(repr, key(readable(data, classes)), 200)
        except Exception as error:
            return f"<no key: {type(error).__name__}>"

    return key_of


def _lineages(record: Record, dataflow: Dataflow, found: Difference) -> dict[int, Lineage]:
    lineages: dict[int, Lineage] = {}
    run_input = RecordedInput(record, dataflow)
    for kind in KINDS:
        for example in found.first[kind][:1]:
            if example.new is not None:
                try:
                    lineage = lineage_of(dataflow, run_input, example.new.meta, position=example.new.position)
                except InputError:
                    continue  # an impure function: the audit of the same graph reports it
                lineages[example.new.position] = lineage
    return lineages


def difference_as_dict(found: Difference, classes: Classes | None = None) -> dict[str, Any]:
    """For JSON."""
    return {
        "same": found.same,
        "counts": vars(found.counts),
        "by_sink": {sink: vars(counts) for sink, counts in found.by_sink.items()},
        "by_key": {
            key: vars(counts)
            for key, counts in sorted(found.by_key.items(), key=lambda pair: (-pair[1].different, pair[0]))
        },
        "first": {kind: [example_as_dict(each, classes) for each in found.first[kind]] for kind in KINDS},
        "error": None if found.error is None else str(found.error),
    }


def example_as_dict(example: Example, classes: Classes | None) -> dict[str, Any]:
    return {
        "sink": example.row.sink,
        "time": example.time,
        "old": _row_as_dict(example.old, classes),
        "new": _row_as_dict(example.new, classes),
    }


def _row_as_dict(row: OutputRow | None, classes: Classes | None) -> dict[str, Any] | None:
    if row is None:
        return None
    payload = safe_text(repr, readable(row.data, classes), _CHARACTERS_MAX)
    return {"position": row.position, "meta": row.meta.hex(), "payload": payload}
