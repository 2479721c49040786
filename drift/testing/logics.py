"""The contract of logics, checked by experiment: rows in batches make what they make one by one.

Invariant: a logic that is reported gave other outputs or states for rows in one batch than for the same rows, from the
same states, cut into other batches.

Why: the reference calls a logic with one row at a time. The calls are noted, and made again in batches: all rows
together, and in pairs. Rows of a key follow each other in a batch exactly if each begins in the state in which the one
before it ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from drift.flow.logic import OnRows, OnTimers
from drift.operators import KeyedItems, ProcessState
from drift.testing.check import Case, reference
from drift_graph.canonical import NoCanonicalForm, same, stored
from drift_graph.errors import ImpureStep
from drift_graph.functions import LibraryFunction, brief, line_of, name_of, user_function
from drift_graph.later import Later
from drift_graph.metas import Metas
from drift_graph.operators import Map, Operator


class _Call(NamedTuple):
    """A call with one row: what the logic got, and what it gave."""

    key: Any
    state: Any
    payload: Any
    time: int
    after: Any
    outputs: Sequence[Any]


class _Noting(LibraryFunction):
    """The function of a logic for one row or timer, which notes its calls."""

    def __init__(self, function: OnRows | OnTimers) -> None:
        self._function = function
        self.takes_timers = isinstance(function, OnTimers)
        self.calls: list[_Call] = []

    def __call__(self, state: Any, payload: Any, time: int) -> tuple[Any, Sequence[Any]]:
        after, outputs = self._function(state, payload, time)
        key, subject = self._function.of_key(payload)
        self.calls.append(_Call(key, state, subject, time, after, outputs))
        return after, outputs


def check_batches(case: Case) -> None:
    """Run the reference, and make the calls of logics again in batches.

    Raises:
        ImpureStep: what a logic makes of rows depends on how they are cut into batches.
    """
    noted: list[tuple[Operator, OnRows | OnTimers, list[_Call]]] = []

    def noting(operator: Operator) -> Operator:
        if not isinstance(operator, Map) or not isinstance(operator.function, ProcessState):
            return operator

        def watch(role: str, function: Any, shape: object) -> Any:
            if not isinstance(function, OnRows | OnTimers):
                return function
            noted.append((operator, function, (noticed := _Noting(function)).calls))
            return noticed

        return replace(operator, function=operator.function.watched(watch))

    operators = tuple(map(noting, case.dataflow.operators))
    if noted:
        reference(replace(case, dataflow=replace(case.dataflow, operators=operators)))
    for operator, function, calls in noted:
        for batch in _batches(function, calls):
            for size in (len(batch), 2) if batch else ():
                _check(operator, function, batch, size)


def _batches(function: OnRows | OnTimers, calls: Sequence[_Call]) -> Iterator[list[_Call]]:
    """Calls that may be one: timers of one time and different keys; rows, of which each of a key follows the last."""
    last: dict[Any, Any] = {}
    batch: list[_Call] = []
    for call in calls:
        if isinstance(function, OnTimers):
            fits = call.key not in last and (not batch or batch[0].time == call.time)
        else:
            fits = call.key not in last or same(last[call.key], call.state)
        if not fits:
            yield batch
            last, batch = {}, []
        last[call.key] = call.after
        batch.append(call)
    yield batch


def _check(operator: Operator, function: OnRows | OnTimers, batch: Sequence[_Call], size: int) -> None:
    """Make calls again, so many rows in one."""
    states: dict[Any, Any] = {}
    for call in reversed(batch):
        states[call.key] = call.state
    made, error = list[Sequence[Any]](), ""
    for start in range(0, len(batch), size):
        part = batch[start : start + size]
        rows = [(call.key, call.payload, call.time) for call in part]
        keys, payloads, _ = zip(*rows)
        try:
            function.on_batch(states, KeyedItems(keys, payloads, Metas(), iter(rows)), made.append)
        except Exception as raised:  # one by one it raised nothing
            error = f"{type(raised).__name__}: {raised}"
            break
    for at, call in enumerate(batch):
        if at >= len(made) or _differ(_plain(made[at]), _plain(call.outputs)):
            got = error if at >= len(made) else f"it gave {brief(made[at])}"
            break
    else:
        afters = {call.key: call.after for call in batch}
        wrong = [key for key in afters if _differ(states.get(key, function.logic.initial), afters[key])]
        if not wrong:
            return
        at = max(at for at, call in enumerate(batch) if call.key == wrong[0])
        got = f"it left the state {brief(states.get(wrong[0], function.logic.initial))}"
    call = batch[at]
    first = at - at % size
    name = user_function(function)
    what = "timers" if isinstance(function, OnTimers) else "rows"
    text = "\n".join(
        [
            f"step {operator.step!r} ({name_of(name)}) depends on how {what} are cut into batches",
            f"  at       {line_of(name) or operator.where}",
            f"  input    {brief(call.payload)}, with state {brief(call.state)}",
            f"  alone    it gave {brief(call.outputs)}, and left the state {brief(call.after)}",
            f"  behind {at - first} others in a batch of {len(batch[first : first + size])}  {got}",
            "  to do    make of each row what it makes alone: read and store states[key] row by row, and keep nothing "
            "from row to row or from call to call",
        ]
    )
    raise ImpureStep(text, step=operator.step, where=line_of(name) or operator.where)


def _differ(left: Any, right: Any) -> bool:
    """Whether two values are known to differ; those without a canonical form are not."""
    try:
        return stored(left) != stored(right)
    except NoCanonicalForm:
        return False


def _plain(outputs: Sequence[Any]) -> tuple[Any, ...]:
    """Outputs and timers as values."""
    return tuple(("drift.at", each.time, each.payload) if type(each) is Later else each for each in outputs)
