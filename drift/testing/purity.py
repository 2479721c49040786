"""The purity check of a case, and its case file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from drift.calling.asks import calls_of, with_functions
from drift.purity import PurityCheck
from drift.streams import Graph
from drift.testing.case import check_case, load_case, write_report
from drift.testing.check import IMPURE, OF_TEST, Case, Failure, Result, check, in_order, reference
from drift.testing.logics import check_batches
from drift.testing.schedule import Schedule
from drift.testing.shrink import shrunk
from drift_graph.errors import ImpureStep
from drift_graph.graph import Dataflow


def check_purity(purity: PurityCheck, *cases: Case) -> None:
    """Run the reference, repeat every call of a step in other processes, and those of logics in batches.

    Args:
        cases: the second process gets the calls of all of them in reverse order. So what a function has seen before is
            something else in each process, even if a case has one payload.

    Raises:
        ImpureStep: a step is not pure.
    """
    for case in cases:
        answers = {name: asks.function for name, asks in calls_of(case.dataflow).items()}
        output = reference(replace(case, dataflow=with_functions(purity.dataflow, answers)))
        if isinstance(output.error, ImpureStep):
            raise output.error
        check_batches(case)
    purity.check()


def together(cases: Sequence[Case]) -> Case:
    """The inputs of several cases one after the other, as one case."""
    inputs = {name: [each for case in cases for each in case.inputs[name]] for name in cases[0].inputs}
    return replace(cases[0], inputs=in_order(cases[0].dataflow, inputs))


def smallest(purity: PurityCheck, case: Case, error: ImpureStep) -> tuple[Case, ImpureStep]:
    """The smallest case found in which the same step is impure."""
    case = replace(case, schedule=Schedule())
    for name in case.inputs:
        for at in reversed(range(len(case.inputs[name]))):
            fewer = {**case.inputs, name: case.inputs[name][:at] + case.inputs[name][at + 1 :]}
            try:
                check_purity(purity, replace(case, inputs=fewer))
            except ImpureStep as still:
                if still.step == error.step:
                    case, error = replace(case, inputs=fewer), still
    return case, error


def impure_result(case: Case, error: ImpureStep) -> Result:
    """The result of a case in which a step was found impure; what the step gave, which chance may have a part in, is no
    part of it: equal cases have one file.
    """
    return replace(check(case), failure=Failure(IMPURE, f"step {error.step!r} is not pure"))


def rerun(path: Path | str, graph: Graph | Dataflow | None = None, *, purity: bool = True) -> Result:
    """Run a case file again.

    Args:
        graph: replaces the graph that the file names; needed if it names none.
        purity: whether steps are called again in other processes.

    Raises:
        NotDeterministic: it still fails; the message is the report.
        ImpureStep: a step is not pure.
        InputError, SettingsError: see `load_case`.
    """
    from drift.testing import NotDeterministic

    case = load_case(path, graph)
    if purity:
        with PurityCheck(case.dataflow) as checked:
            try:
                check_purity(checked, case)
            except ImpureStep as impure:
                impure.drift_case = path  # type: ignore[attr-defined]
                raise
    result = check_case(case)
    if result.failure is not None:
        message = f"{OF_TEST}: {result.failure.message}"
        if not case.test or result.failure.what != OF_TEST:
            message, _ = write_report(shrunk(result, items=False, payloads=False))
        failed = NotDeterministic(message, result)
        failed.drift_case = path  # type: ignore[attr-defined]
        raise failed
    return result
