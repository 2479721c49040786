"""Why the output of a run diverges from that of a record.

Invariant: a cause is named only with evidence: files whose hash is not the recorded one, a fingerprint that differs
behind the item, a call that gave two results, a reference that disagrees with the engine. Without evidence the verdict
is "unknown", with the known facts.

Why this order: a changed record explains everything, and a changed graph whatever depends on it; whether a function is
pure can be tested with the present functions; and only if all that is excluded is a disagreement between engines a bug
of this library.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from drift.auditing.case import SmallCase, case_file
from drift.auditing.divergence import Divergence, same_item
from drift.auditing.explain import RecordedInput
from drift.auditing.lineage import Lineage, lineage_from, trace_to, traced
from drift.auditing.replay import changes_since, replayed
from drift.auditing.route import Relevant, behind, route_of
from drift.auditing.side_by_side import SideBySide, paired, paired_with_recorded
from drift.auditing.trace import Node, nodes_of
from drift.purity import PurityCheck
from drift.purity.observed import Observed
from drift.records.changes import Change
from drift.records.environment import differences, environment
from drift.records.format import hash_file
from drift.records.reader import Record
from drift_graph.errors import DriftBug, DriftError, GraphError, ImpureStep, InputError, ProcessError, StepError
from drift_graph.functions import pass_interrupts, safe_text
from drift_graph.graph import Dataflow
from drift_graph.item import Item
from drift_graph.meta import MetaParts, root_of, time_of
from drift_graph.operators import Group, Map, Operator

_CHARACTERS_MAX = 2000

Kind = Literal["graph", "function", "impure", "bug", "record", "environment", "unknown"]

TITLES: dict[Kind, str] = {
    "graph": "the graph was changed",
    "function": "a function was changed",
    "impure": "a function is not pure",
    "bug": "a bug in drift",
    "record": "the record was changed",
    "environment": "run with other versions",
    "unknown": "not known",
}


@dataclass(frozen=True)
class Verdict:
    """Why two outputs differ.

    Attributes:
        step, where: the step at fault and its "file:line", if there is one.
        changes: of the graph, those behind the item.
        details: further facts, line by line.
    """

    kind: Kind
    text: str
    step: str = ""
    where: str = ""
    changes: tuple[Change, ...] = ()
    details: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return TITLES[self.kind]

    def as_dict(self) -> dict[str, Any]:
        changes = [change.as_dict() for change in self.changes]
        return {**vars(self), "title": self.title, "changes": changes, "details": list(self.details)}


@dataclass(frozen=True)
class Finding:
    """The result of investigating a divergence.

    Attributes:
        lineage: of the item that the graph makes now, or of the call that failed in its place.
        recorded_lineage: of the recorded item: by the recorded graph, if it is available; else by the present graph, if
            the item has another position in the order and the graph makes one there.
        by_recorded: whether that is by the recorded graph.
        both: these two side by side, or, without the recorded graph, the known part.
        notes: why a lineage is missing.
        case: the divergence reduced to a case file, if a folder for it was passed.
    """

    divergence: Divergence
    verdict: Verdict
    lineage: Lineage | None = None
    recorded_lineage: Lineage | None = None
    by_recorded: bool = False
    both: SideBySide | None = None
    notes: tuple[str, ...] = field(default=())
    case: SmallCase | None = None

    def as_dict(self) -> dict[str, Any]:
        found = self.divergence
        return {
            "position": found.position,
            "block": found.block,
            "what": found.what,
            "recorded": item_as_dict(found.pair[0]),
            "recomputed": item_as_dict(found.pair[1]),
            "in_place": item_as_dict(found.in_place),
            "error": None if found.error is None else str(found.error),
            "verdict": self.verdict.as_dict(),
            "lineage": self.lineage.as_dict() if self.lineage is not None else None,
            "recorded_lineage": self.recorded_lineage.as_dict() if self.recorded_lineage is not None else None,
            "by_recorded": self.by_recorded,
            "both": self.both.as_dict() if self.both is not None else None,
            "notes": list(self.notes),
            "case": self.case.as_dict() if self.case is not None else None,
        }


def item_as_dict(item: Item[Any] | None) -> dict[str, Any] | None:
    """An output item for JSON; its payload as text."""
    if item is None:
        return None
    payload = safe_text(repr, item.payload, _CHARACTERS_MAX)
    return {
        "position": item.position,
        "sink": item.sink,
        "time": item.time,
        "meta": item.meta.hex(),
        "payload": payload,
    }


def investigate(
    record: Record,
    dataflow: Dataflow,
    divergence: Divergence,
    *,
    cases: str | os.PathLike[str] | None = None,
    target: str = "",
    was: Dataflow | None = None,
) -> Finding:
    """The verdict on a divergence of a replay of `record` with `dataflow`, and the lineages of both items.

    Args:
        cases: a folder for a small case file of the divergence.
        target: "file.py:name" of the graph, for that; that of the record if "".
        was: the graph that the record was made with, if it is available.
    """
    investigation = _Investigation(record, dataflow, divergence)
    verdict = investigation.verdict()
    if verdict.kind == "record":
        return Finding(divergence, verdict)
    one, other = divergence.pair
    lineage, notes = investigation.lineage(other)
    failed = lineage is None and isinstance(divergence.error, StepError)
    if failed:
        lineage = investigation.lineage_of_failure()
    recorded: Lineage | None = None
    both: SideBySide | None = None
    more: tuple[str, ...] = ()
    if was is not None and one is not None and failed:
        recorded, more = investigation.with_graph(was).lineage(one)
    elif was is not None and one is not None:
        recorded, lineage, both, more = _both_known(investigation, was, divergence, lineage)
    elif one is not None and (other is None or one.meta != other.meta):
        recorded, more = investigation.lineage(one)
    elif one is not None and lineage is not None and verdict.kind in ("function", "impure"):
        both = paired_with_recorded(one, lineage, {verdict.step, *(change.step for change in verdict.changes)})
    case = investigation.case(verdict, Path(cases), target) if cases is not None else None
    return Finding(divergence, verdict, lineage, recorded, was is not None, both, (*notes, *more), case)


#: States of a scan to go back, at least and at most, to find the first difference of two lineages.
_STATES_MIN, _STATES_MAX = 3, 1024


def _both_known(
    now: _Investigation, was: Dataflow, divergence: Divergence, lineage: Lineage | None
) -> tuple[Lineage | None, Lineage | None, SideBySide | None, tuple[str, ...]]:
    """The recorded lineage and the present one, as far back as needed to find the first difference."""
    before, states = now.with_graph(was), _STATES_MIN
    while True:
        recorded, notes = before.lineage(divergence.pair[0])
        if recorded is None or lineage is None:
            return recorded, lineage, None, notes
        both = paired(recorded, lineage)
        complete = recorded.complete and lineage.complete
        if both.parting is not None or complete or states >= _STATES_MAX:
            return recorded, lineage, both, notes
        states *= 4
        before, now = (each.with_states(states) for each in (before, now))
        lineage, _ = now.lineage(divergence.pair[1])


class _Investigation:
    def __init__(self, record: Record, dataflow: Dataflow, divergence: Divergence, states: int = _STATES_MIN) -> None:
        self._record = record
        self._dataflow = dataflow
        self._divergence = divergence
        self._run_input = RecordedInput(record, dataflow)
        self._states = states
        self._nodes: dict[bytes, Node | None] = {}
        self._not_called = ""  # why functions could not be called again
        self._items = [item for item in divergence.pair if item is not None]

    def with_graph(self, dataflow: Dataflow) -> _Investigation:
        """An investigation of this divergence with another graph."""
        return _Investigation(self._record, dataflow, self._divergence)

    def with_states(self, states: int) -> _Investigation:
        """An investigation of this divergence that shows more states."""
        return _Investigation(self._record, self._dataflow, self._divergence, states)

    def verdict(self) -> Verdict:
        for ask in (
            self._record_changed,
            self._graph_changed,
            self._impure,
            self._observed,
            self._bug,
            self._environment,
        ):
            found = ask()
            if found is not None:
                return replace(found, details=(*found.details, self._not_called)) if self._not_called else found
        return Verdict(
            "unknown",
            "the input, the graph, its functions and the versions are those of the record, the functions gave the same "
            "results when they were called again, and the reference agrees with the run",
            details=(
                *([self._not_called] if self._not_called else ()),
                "a function may have read something that has changed since: a file, a service, a setting of the "
                "machine, a variable that another part of the program set",
            ),
        )

    def _record_changed(self) -> Verdict | None:
        """The verdict for an output that was damaged; an audit computes nothing for a damaged input."""
        manifest = self._record.manifest
        for file in (*manifest.of("output"), *manifest.of("blocks")):
            path = self._record.path / file.path
            if hash_file(path, manifest.algorithm) != file.hash:
                text = (
                    f"{file.path} is not the file that was recorded: its bytes have another hash than the manifest says"
                )
                return Verdict("record", text, where=str(path))
        return None

    def _graph_changed(self) -> Verdict | None:
        every = [change for change in changes_since(self._record, self._dataflow) if change.matters]
        changes = tuple(change for change in every if self._is_behind(change))
        if not changes:
            return None
        first = changes[0]
        structure = any(change.kind == "structure" for change in changes)
        return Verdict(
            "graph" if structure else "function",
            "; ".join(change.text for change in changes[:5]) + (" ..." if len(changes) > 5 else ""),
            step=first.step,
            where=first.after or first.before,
            changes=changes,
        )

    def _is_behind(self, change: Change) -> bool:
        """Whether a change can have affected the items; a change of the structure always can, by ranks."""
        if change.kind == "structure" or not self._items:
            return True
        return change.step in self._steps_behind()

    def _steps_behind(self) -> set[str]:
        steps: set[str] = set()
        for item in self._items:
            try:
                names = behind(self._dataflow, [stop.operator.name for stop in route_of(self._dataflow, item.meta)])
            except InputError:
                return {each.step for each in self._dataflow.operators}
            steps.update(self._dataflow[name].step for name in names)
        return steps

    def _impure(self) -> Verdict | None:
        """Call the functions behind the items again, on their inputs, in other processes."""
        found = self._impure_step()
        if found is None:
            return None
        lines = str(found).splitlines()
        return Verdict("impure", lines[0], found.step, found.where, details=tuple(lines[1:]))

    def _impure_step(self) -> ImpureStep | None:
        error = self._divergence.error
        if isinstance(error, ImpureStep):
            return error
        metas = [item.meta for item in self._items]
        if isinstance(error, StepError) and error.meta:
            metas.append(error.meta)
        for meta in dict.fromkeys(metas):
            try:
                with PurityCheck(self._dataflow, first=_CALLS_FIRST, every=_CALLS_EVERY) as check:
                    self._ask_of_lineage(check, meta)
                    self._check_earlier_calls(check, meta)
            except ImpureStep as found:
                return found
            except (GraphError, ProcessError) as reason:
                self._not_called = f"whether functions are pure could not be asked: {reason}"
                return None
            except DriftError:
                continue  # the item is not made any more, or an impure function has confused the machines
        return None

    def _ask_of_lineage(self, check: PurityCheck, meta: bytes) -> None:
        """Every call that had a part in the item, those of the input first."""
        for made in self._nodes_of(meta):
            _call_again(check.dataflow[made.operator], made)
        check.check()

    def _nodes_of(self, meta: bytes) -> list[Node]:
        node = self._node(meta)
        return nodes_of(node) if node is not None else []

    def _check_earlier_calls(self, check: PurityCheck, meta: bytes) -> None:
        """Repeat calls on earlier items that led to the states of the item: the first ones, then some."""
        relevant = Relevant(self._dataflow, meta, self._run_input.at(root_of(meta)))
        if relevant.all:  # the fastest order
            until = max(item.position for item in self._items) + 1 if self._items else None
            with replayed(self._record, check.dataflow, until=until) as run:
                for _ in run.batches():
                    check.check()
        else:
            for _ in traced(check.dataflow, self._run_input, meta, relevant=relevant, after_batch=check.check):
                pass
        check.check()

    def _observed(self) -> Verdict | None:
        """The verdict for a function that reads a clock, say, and gave equal results when called again by chance."""
        for item in self._items:
            try:
                nodes = self._nodes_of(item.meta)
            except InputError:
                continue
            for made in nodes:
                operator = self._dataflow[made.operator]
                with Observed() as observed:
                    _call_again(operator, made)
                for use in observed.uses:
                    if use.kind in ("folder", "zone"):  # the audit is in those of the record
                        continue
                    return Verdict(
                        "impure",
                        f"step {operator.step!r} ({operator.label}) is not pure: it uses {use.what} at {use.where}",
                        operator.step,
                        use.where,
                        details=("it gave the same results when it was called again, as it may at times",),
                    )
        return None

    def _bug(self) -> Verdict | None:
        """If the functions are pure as far as can be seen: whether the reference agrees with the engine."""
        error = self._divergence.error
        if isinstance(error, DriftBug):
            return Verdict("bug", str(error))
        missing, item = self._divergence.pair
        if item is None:
            lineage = self.lineage(missing)[0] if missing is not None and error is None else None
            if missing is not None and lineage is not None and same_payload(lineage, missing):
                return Verdict("bug", "the reference gives the recorded item, and the engine does not")
            return None
        lineage, _ = self.lineage(item)
        if lineage is None or not same_payload(lineage, item):
            shown = "no item" if lineage is None else repr(lineage.item.payload)[:200]
            return Verdict("bug", f"the reference gives {shown} where the engine gives {item.payload!r:.200}")
        return None

    def _environment(self) -> Verdict | None:
        found = differences(self._record.manifest.environment, environment())
        changed = [f"{name} {recorded} -> {present}" for name, recorded, present in found]
        if not changed:
            return None
        return Verdict(
            "environment",
            f"the input, the graph and its functions are those of the record, and the functions gave the same results "
            f"when they were called again; the versions around them differ: {', '.join(changed[:5])}"
            + (" ..." if len(changed) > 5 else ""),
            details=tuple(changed),
        )

    def case(self, verdict: Verdict, folder: Path, target: str) -> SmallCase:
        target = target or self._record.manifest.target
        return case_file(self._dataflow, self._run_input, self._divergence, verdict.kind, verdict.step, folder, target)

    def lineage(self, item: Item[Any] | None) -> tuple[Lineage | None, tuple[str, ...]]:
        """The lineage of an item now, or why there is none."""
        if item is None:
            return None, ()
        try:
            node = self._node(item.meta)
        except InputError as error:
            return None, (str(error),)
        if node is None:
            return None, (f"the graph makes no item at {MetaParts(item.meta)} (meta {item.meta[:40].hex()}) now",)
        return lineage_from(self._dataflow, node, item.position), ()

    def lineage_of_failure(self) -> Lineage | None:
        """The input of the call that ended the run, if the graph makes that call again."""
        meta = getattr(self._divergence.error, "meta", b"")
        try:
            node = self._node(meta) if meta else None
        except InputError:
            return None
        return lineage_from(self._dataflow, node, None) if node is not None else None

    def _node(self, meta: bytes) -> Node | None:
        """The item with a meta as the graph makes it now, linked to its ancestors; cached."""
        if meta not in self._nodes:
            try:
                self._nodes[meta] = trace_to(self._dataflow, self._run_input, meta, loops_max=self._states)
            except DriftBug:  # an impure function confuses the machines
                self._nodes[meta] = None
        return self._nodes[meta]


#: For each function this many calls are repeated, and then one in so many.
_CALLS_FIRST = 2000
_CALLS_EVERY = 50


def _call_again(operator: Operator, made: Node) -> None:
    """Repeat the call that made an item; for a window compute the keys of its items.

    Raises:
        ImpureStep: the function gave another result.
    """
    try:
        if isinstance(operator, Map):
            operator.children(made.parents[0].payload, time_of(made.parents[0].meta))
        elif isinstance(operator, Group):
            for parent in made.parents:
                operator.key(parent.payload)
    except ImpureStep:
        raise
    except BaseException as raised:
        pass_interrupts(raised)
        # it fails each time


def same_payload(lineage: Lineage, item: Item[Any]) -> bool:
    made = Item(lineage.item.payload, item.position, lineage.item.step, lineage.item.meta)
    return same_item(made, item)
