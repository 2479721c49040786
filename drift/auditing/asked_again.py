"""Recorded questions asked again: which answers are others now.

Invariant: each call is asked exactly what it was asked in the recorded run, whatever the calls before it say now.

Why: the run is replayed with its recorded answers, and what comes to a call there is asked of it once more, with other
keys: a service that remembers keys would repeat what it said.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from drift.auditing.checks import Check
from drift.auditing.explain import RecordedInput
from drift.auditing.lineage import Lineage, lineage_from, traced_at
from drift.auditing.replay import answers_of, replayed
from drift.calling.asks import Asks, calls_of
from drift.engines.recorded import classes_for
from drift.records.reader import Record
from drift.running import run
from drift.streams import Graph
from drift_graph.canonical import canonical
from drift_graph.diverted import is_diverted
from drift_graph.errors import DriftError
from drift_graph.functions import brief
from drift_graph.graph import Dataflow
from drift_graph.item import Failure
from drift_graph.meta import MetaParts

#: So many answers that have changed are shown, each with its lineage.
_SHOWN = 3
_AT_ONCE = 4096


def check_asked_again(record: Record, dataflow: Dataflow) -> Iterator[Check]:
    reading = record.with_classes(classes_for(record, dataflow))
    for name, asks in calls_of(dataflow).items():
        yield _check(reading, dataflow, name, asks)


def _check(record: Record, dataflow: Dataflow, name: str, asks: Asks) -> Check:
    started = time.perf_counter()
    asked = 0
    changed: list[tuple[bytes, Any, Any, Any]] = []
    for metas, payloads, answers in _questions(record, dataflow, name):
        asked += len(metas)
        for meta, payload, before, now in zip(metas, payloads, answers, _asked(name, asks, payloads)):
            if _form(before) != _form(now):
                changed.append((meta, payload, before, now))
    details = [_detail(record, dataflow, *each, shows=at < _SHOWN) for at, each in enumerate(changed)]
    found = f"the same {asked:,} answers"
    if changed:
        shown = "; ".join(each["text"] for each in details[:_SHOWN])
        found = f"{len(changed):,} of {asked:,} answers are others now: {shown}"
    detail = {"asked": asked, "changed": details}
    result = "noted" if changed else "ok"
    seconds = time.perf_counter() - started
    return Check("reproduced", f"call {name!r} asked again", "the recorded answers", result, found,  # type: ignore[arg-type]
                 seconds=seconds, detail=detail)  # fmt: skip


def _questions(record: Record, dataflow: Dataflow, name: str) -> Iterator[tuple[list[bytes], list[Any], list[Any]]]:
    """What a call was asked, and its answers."""
    batch: tuple[list[bytes], list[Any], list[Any]] = [], [], []

    def passed(step: str, metas: Sequence[bytes], payloads: Sequence[Any], answers: Sequence[Any]) -> None:
        if step == name:
            for column, values in zip(batch, (metas, payloads, answers)):
                column.extend(values)

    answers = replace(answers_of(record), on_passed=passed)
    run = replayed(record, dataflow, on_late=lambda _: None, answered=answers)
    try:
        for _ in run.batches():
            if len(batch[0]) >= _AT_ONCE:
                yield batch
                batch = [], [], []
    except DriftError:
        pass  # the recorded run ended with it
    yield batch


def _asked(name: str, asks: Asks, payloads: list[Any]) -> Iterator[Any]:
    """The answers of today; a diverted item for one that fails."""
    graph = Graph("asked again")
    stream = graph.source("questions").call(
        asks.function,
        concurrency=1 if asks.at_once else asks.concurrency,
        timeout_s=asks.timeout_s,
        retries=asks.retries,
        rate_per_s=asks.rate_per_s,
        batch=asks.batch or None,
        on_error="divert",
        name=name,
    )
    stream.sink("answers")
    for item in run(graph, {"questions": payloads}):
        yield item.payload if item.sink == "answers" else Failure(name, "", item.payload["error"], "")


def _form(answer: Any) -> bytes:
    """By which two answers are compared: all failures are one."""
    return b"" if type(answer) is Failure or is_diverted(answer) else canonical(answer)


def _shown(answer: Any) -> str:
    return answer.message.splitlines()[0] if type(answer) is Failure else brief(answer, 100)


def _detail(
    record: Record, dataflow: Dataflow, meta: bytes, payload: Any, before: Any, now: Any, *, shows: bool
) -> dict[str, Any]:
    """One answer that has changed, for reports."""
    text = f"about {brief(payload, 60)} ({MetaParts(meta)}) {_shown(now)}, recorded {_shown(before)}"
    lineage = _lineage(record, dataflow, meta) if shows else None
    return {
        "meta": meta.hex(),
        "question": brief(payload, 500),
        "recorded": _shown(before),
        "now": _shown(now),
        "text": text,
        "lineage": lineage.as_dict() if lineage is not None else None,
    }


def _lineage(record: Record, dataflow: Dataflow, meta: bytes) -> Lineage | None:
    node = traced_at(dataflow, RecordedInput(record, dataflow), meta)
    return lineage_from(dataflow, node, None) if node is not None else None
