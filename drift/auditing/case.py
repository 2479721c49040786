"""Reduces a divergence to a case file for `drift simulate` and `drift.testing`, from the items of its lineage.

Invariant: a case is written only after it has shown the same: the step impure, the engine different from the
reference, or the new item in place of the recorded one.

Why ever more items are tried: most causes show with the input items of one state. A cause that depends on more of the
past shows with more of it, at the latest with all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from drift.auditing.divergence import Divergence
from drift.auditing.lineage import Lineage, lineage_of
from drift.auditing.trace import Input
from drift.purity import PurityCheck
from drift.testing.case import line_again, save_case
from drift.testing.check import IMPURE, Case, ComparedItem, Failure, Result, check, in_order, reference
from drift.testing.purity import check_purity, smallest
from drift.testing.schedule import Schedule
from drift.testing.shrink import shrunk
from drift_graph.canonical import canonical
from drift_graph.errors import DriftError, ImpureStep, InputError, SettingsError
from drift_graph.graph import Dataflow
from drift_graph.meta import global_time_of

#: How many states to go back, one attempt after the other; a case with more items would be no use to people.
_STATES = (1, 4, 16, 64, 256, 1024)
_ITEMS_MAX = 2000
_SCHEDULES_TRIED = 20


@dataclass(frozen=True)
class SmallCase:
    """The reduced divergence.

    Attributes:
        path: of the case file; None if there is none, and `text` says why.
        text: what to do with it.
    """

    path: Path | None
    items: int
    text: str

    def as_dict(self) -> dict[str, Any]:
        return {"path": None if self.path is None else str(self.path), "items": self.items, "text": self.text}


def case_file(
    dataflow: Dataflow, run_input: Input, divergence: Divergence, kind: str, step: str, folder: Path | str, target: str
) -> SmallCase:
    """Write the case of a divergence into a folder. `target`: "file.py:name" of the graph."""
    tried = 0
    for case in _cases(dataflow, run_input, divergence, target):
        tried = case.item_count
        try:
            result = (
                _impure(case, step)
                if kind == "impure"
                else _at_odds(case)
                if kind == "bug"
                else _other(case, divergence)
            )
        except DriftError:
            continue  # it fails differently; with more earlier items it may not
        if result is not None:
            try:
                path = save_case(result, folder)
            except (SettingsError, OSError) as error:
                return SmallCase(None, 0, f"no case file: {error}")
            return SmallCase(path, result.case.item_count, line_again(path, target))
    if not tried:
        return SmallCase(None, 0, "no case file: the graph makes no such item now, so its input is not known")
    return SmallCase(None, 0, f"no case file: {tried:,} input items behind the item do not show it")


def _cases(dataflow: Dataflow, run_input: Input, divergence: Divergence, target: str) -> Iterator[Case]:
    """Cases with more and more of the past."""
    one, other = divergence.pair
    item = other or one
    meta = item.meta if item is not None else getattr(divergence.error, "meta", b"")
    before = 0
    for states in _STATES:
        try:
            lineage = lineage_of(dataflow, run_input, meta, loops_max=states)
        except (InputError, IndexError):
            return
        inputs = _inputs(dataflow, lineage)
        count = sum(map(len, inputs.values()))
        if count > _ITEMS_MAX:
            return
        if count > before:
            yield Case(dataflow, inputs, Schedule(), target)
        before = count
        if lineage.complete:
            break
    everything = _everything(dataflow, run_input, meta)
    if everything is not None and sum(map(len, everything.values())) > before:
        yield Case(dataflow, everything, Schedule(), target)


def _everything(dataflow: Dataflow, run_input: Input, meta: bytes) -> dict[str, list[Any]] | None:
    """All input up to an item, as it arrived; None if that is too much for a case."""
    inputs: dict[str, list[Any]] = {source.name: [] for source in dataflow.sources}
    last = global_time_of(meta)
    count = 0
    for batch in run_input.batches():
        taken = [payload for time, payload in zip(batch.metas, batch.payloads) if time <= last]
        inputs[batch.source] += taken
        count += len(taken)
        if count > _ITEMS_MAX:
            return None
    return in_order(dataflow, inputs)


def _inputs(dataflow: Dataflow, lineage: Lineage) -> dict[str, list[Any]]:
    """The input items of a lineage by source, in the order of their global times."""
    made = sorted(lineage.inputs(), key=lambda each: each.meta)
    inputs: dict[str, list[Any]] = {source.name: [] for source in dataflow.sources}
    for each in made:
        inputs[each.step].append(each.payload)
    return in_order(dataflow, inputs)


def _impure(case: Case, step: str) -> Result | None:
    """The fewest items with which the step is found impure."""
    with PurityCheck(case.dataflow) as purity:
        try:
            check_purity(purity, case)
        except ImpureStep as error:
            if error.step != step:
                return None
            case, error = smallest(purity, case, error)
            result = check(case)
            result.failure = Failure(IMPURE, str(error))
            return result
    return None


def _at_odds(case: Case) -> Result | None:
    """The smallest run whose output differs from the reference's."""
    for noise in range(_SCHEDULES_TRIED):
        result = check(replace(case, schedule=Schedule(workers=1 + noise % 3, noise=noise)))
        if result.failure is not None:
            return shrunk(result, payloads=False)
    return None


def _other(case: Case, divergence: Divergence) -> Result | None:
    """A run that gives the new item, where the record has another.

    With fewer items than the recorded one was made of, the old graph might give it as well.
    """
    if _position_of(reference(case).rows, divergence) is None:
        return None
    return _with_new_item(check(case), divergence)


def _position_of(rows: list[ComparedItem], divergence: Divergence) -> int | None:
    """The position of the new item in an output."""
    item = divergence.pair[1]
    if item is None:
        return None
    wanted = canonical(item.payload)
    found = (at for at, row in enumerate(rows) if row.sink == item.sink and canonical(row.payload) == wanted)
    return next(found, None)


def _with_new_item(result: Result, divergence: Divergence) -> Result | None:
    position, recorded = _position_of(result.expected.rows, divergence), divergence.pair[0]
    if position is None:
        return None
    row = result.expected.rows[position]
    had = "no such item" if recorded is None else f"{recorded.payload!r:.500}"
    result.failure = Failure(
        "another output than the record's",
        f"item {position} of the output is {row.payload!r:.500}; at position {divergence.position} of its output the "
        f"record has {had}",
        position,
        None if recorded is None else ComparedItem(recorded.meta, recorded.payload, recorded.sink),
        row,
    )
    return result
