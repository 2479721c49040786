"""A failed case as text: the smallest input, the deviations, the first difference."""

from __future__ import annotations

from typing import Any

from drift.show.steps import short_location
from drift.testing.calls import reference_answers
from drift.testing.check import Case, ComparedItem, Result, reference_run
from drift.testing.schedule import Schedule
from drift.testing.words import Words
from drift_graph.canonical import NoCanonicalForm, canonical
from drift_graph.functions import safe_text
from drift_graph.item import Failure
from drift_graph.meta import END_OF_TIME
from drift_graph.operators import Sink, location_of
from drift_graph.reference import Reference

_SHOWN_CHARACTERS_MAX = 300
_ITEMS_SHOWN_MAX = 40
_DEVIATIONS_SHOWN_MAX = 20


class _Observed:
    """Observes the reference, and records the inputs of the steps that led to one item."""

    def __init__(self, meta: bytes) -> None:
        self._meta = meta
        self.payloads: dict[bytes, Any] = {}

    def made(self, operator: str, meta: bytes, payload: Any, parents: tuple[None, ...]) -> None:
        if self._meta.startswith(meta) and not isinstance(payload, Failure):
            self.payloads[meta] = payload

    def passed_back(self, mark: None) -> None:
        pass


def report(result: Result) -> str:
    """The report of a failed case."""
    assert result.failure is not None
    case, failure = result.case, result.failure
    words = Words(result.simulation, result.arrived)
    lines = [f"graph {case.dataflow.name!r} gives {_headline(result)}", ""]
    lines += ["the smallest input found", *_input(case)]
    lines += ["", *_deviations(case.schedule, words)]
    lines += ["", *_difference(result)]
    shown = failure.got or failure.expected
    if shown is not None:
        lines += ["", "how that item came about", *_chain(result, shown)]
    return "\n".join(lines)


def _headline(result: Result) -> str:
    assert result.failure is not None
    what = result.failure.what
    return {
        "another output": "another output than the reference",
        "another error": "another error than the reference",
        "other late items": "other late items than the reference",
        "a wrong merge": "windows whose parts are merged wrong",
    }.get(what, f"no output: {what}")


def _input(case: Case) -> list[str]:
    lines: list[str] = []
    width = max((len(name) for name in case.inputs), default=0)
    for name, payloads in case.inputs.items():
        if not payloads:
            lines.append(f"  {name:{width}}  (empty)")
        for number, payload in enumerate(payloads[:_ITEMS_SHOWN_MAX], 1):
            head = name if number == 1 else ""
            lines.append(f"  {head:{width}}  {number:>2}  {safe_text(repr, payload, _SHOWN_CHARACTERS_MAX)}")
        if len(payloads) > _ITEMS_SHOWN_MAX:
            lines.append(f"  {'':{width}}  ... and {len(payloads) - _ITEMS_SHOWN_MAX} more")
    return lines


def _deviations(schedule: Schedule, words: Words) -> list[str]:
    made = schedule.deviations
    many = f"{schedule.workers} worker{'s' if schedule.workers > 1 else ''}"
    settings = f"{many}, batches of {schedule.batch_items}"
    settings += "" if schedule.fused else ", scans as cycles"
    if schedule.in_flight_max != Schedule.in_flight_max:
        settings += f", in_flight_max {schedule.in_flight_max}"
    if schedule.live:
        settings += f", live {', '.join(map(repr, schedule.live))}"
    if not made:
        return [f"everything comes in order ({settings})"]
    lines = [f"what is not in order ({settings}; all else comes as it was sent)"]
    lines += [f"  {words.of(each)}" for each in made[:_DEVIATIONS_SHOWN_MAX]]
    if len(made) > _DEVIATIONS_SHOWN_MAX:
        lines.append(f"  ... and {len(made) - _DEVIATIONS_SHOWN_MAX} more")
    return lines


def _difference(result: Result) -> list[str]:
    failure = result.failure
    assert failure is not None
    if failure.position < 0:
        return [failure.message]
    lines = [f"the first difference, item {failure.position} of the output"]
    if failure.what == "a wrong merge":
        lines[:0] = [failure.message, ""]
        lines += [f"  one by one  {_shown(failure.expected)}", f"  merged      {_shown(failure.got)}"]
        return lines
    lines.append(f"  reference  {_shown(failure.expected)}")
    lines.append(f"  this run   {_shown(failure.got)}")
    if failure.expected is not None and failure.got is not None:
        lines += _finer(failure.expected, failure.got)
    return lines


def _shown(row: ComparedItem | None) -> str:
    if row is None:
        return "(no such item)"
    return f"{safe_text(repr, row.payload, _SHOWN_CHARACTERS_MAX)} in sink {row.sink!r}"


def _finer(expected: ComparedItem, got: ComparedItem) -> list[str]:
    """The differences between two rows that print alike."""
    if expected.meta != got.meta:
        return [f"  at another place in the order: meta {expected.meta.hex()} and {got.meta.hex()}"]
    if repr(expected.payload) != repr(got.payload):
        return []
    try:
        forms = canonical(expected.payload).hex(), canonical(got.payload).hex()
    except NoCanonicalForm:
        return []
    return [f"  by their canonical bytes: {forms[0]} and {forms[1]}"]


def _chain(result: Result, row: ComparedItem) -> list[str]:
    dataflow = result.case.dataflow
    observer = _Observed(row.meta)
    reference_run(
        Reference(dataflow, observer, answers=reference_answers(dataflow)), result.case, result.handed, END_OF_TIME
    )
    lines = []
    rows = []
    for operator, child, _, meta in dataflow.passed(row.meta):
        what = f"{operator.name!r}"
        if operator.functions:
            what += f" ({operator.label})"
        if child:
            what += f", child {child}"
        gave = observer.payloads.get(meta, _NOTHING)
        if isinstance(operator, Sink) or gave is _NOTHING:
            shown = "" if isinstance(operator, Sink) else "(not in the reference)"
        else:
            shown = safe_text(repr, gave, _SHOWN_CHARACTERS_MAX)
        rows.append((what, short_location(location_of(operator), full=True), shown))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for what, where, shown in rows:
        lines.append(f"  {what:{widths[0]}}  {where:{widths[1]}}  {shown}".rstrip())
    return lines


_NOTHING = object()


def in_words(result: Result) -> list[str]:
    words = Words(result.simulation, result.arrived)
    return [words.of(each) for each in result.case.schedule.deviations]
