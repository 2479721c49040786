"""Writes a failed case to a file, and runs it again.

Invariant: a case file holds everything that a run depends on, except the code: the graph's target, the input, the
settings and the schedule. Reading it runs no code but the user's module with the graph.

Why it stays valid when the code changes: input is stored as canonical bytes (and as text, for people), and a decision
of the schedule names its subject, for example an item on a link. A decision about an item that is no longer sent has no
effect, and everything that no decision names comes in order.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote
from types import ModuleType
from typing import Any

import msgspec
import xxhash

from drift.calling.asks import calls_of
from drift.load import load_dataflow, load_object
from drift.streams import Graph
from drift.testing.calls import TestAnswers, answered
from drift.testing.check import IMPURE, Case, Result, check, in_order
from drift.testing.report import in_words, report
from drift.testing.schedule import Schedule
from drift_graph.canonical import NoCanonicalForm, stored
from drift_graph.errors import InputError, SettingsError
from drift_graph.functions import safe_text
from drift_graph.graph import Dataflow
from drift_graph.operators import function_of
from drift_graph.restore import classes_near, restored

FORMAT = "drift case 2"
FOLDER = Path(".drift") / "cases"

#: In place of FILE:NAME, the stub that the call declares.
_DECLARED = "declared"
_SHOWN_CHARACTERS_MAX = 200


class _StoredValue(msgspec.Struct):
    canonical: bytes
    shown: str = ""


class _Graph(msgspec.Struct):
    name: str
    target: str
    test: str = ""


class _Answers(msgspec.Struct, omit_defaults=True):
    """Drawn answers, or the stub."""

    answers: list[_StoredValue] = []
    failing: list[bool] = []
    stub: str = ""


class _Failure(msgspec.Struct):
    what: str
    message: str


class _CaseFile(msgspec.Struct):
    """A case file; its calls are None if there are none, and `in_words` and the message of `failure` are for people."""

    graph: _Graph
    inputs: dict[str, list[_StoredValue]]
    schedule: Schedule
    calls: dict[str, _Answers] = {}
    in_words: list[str] = []
    failure: _Failure | None = None
    format: str = FORMAT


def as_json(result: Result) -> dict[str, Any]:
    """A failed case as JSON.

    Raises:
        SettingsError: a payload of the input has no canonical form, so it cannot be stored.
    """
    case, failure = result.case, result.failure
    case_file = _CaseFile(
        _Graph(case.dataflow.name, case.target, case.test),
        {name: [_stored_value(each, name) for each in payloads] for name, payloads in case.inputs.items()},
        case.schedule,
        _stored_calls(case.dataflow),
        in_words(result),
        None if failure is None else _Failure(failure.what, failure.message),
    )
    plain: dict[str, Any] = msgspec.to_builtins(case_file)
    return plain


def _stored_calls(dataflow: Dataflow) -> dict[str, _Answers]:
    """The drawn answers of calls, or where their stubs are found.

    Raises:
        SettingsError: a stub is not found by a name.
    """
    calls: dict[str, _Answers] = {}
    for name, asks in calls_of(dataflow).items():
        answers = asks.function
        assert isinstance(answers, TestAnswers)
        if answers.function is None:
            calls[name] = _Answers([_stored_value(each, name) for each in answers.values], list(answers.failing))
            continue
        stub = _DECLARED if answers.function is asks.stub else _target_of_stub(answers.function)
        if not stub:
            raise SettingsError(
                f"the stub of call {name!r} has no name at the top of a file, by which a case file could find it; "
                f"define it there with def, declare it with call(..., stub=), or draw the answers"
            )
        calls[name] = _Answers(stub=stub)
    return calls


def _target_of_stub(function: Any) -> str:
    """ "file.py:name" of a function at the top of a module; "" for others."""
    names, name = getattr(function, "__globals__", {}), getattr(function, "__qualname__", "")
    file = names.get("__file__")
    return f"{short_path(Path(file))}:{name}" if file and names.get(name) is function else ""


def _stored_value(value: Any, source: str) -> _StoredValue:
    try:
        return _StoredValue(stored(value), safe_text(ascii, value, _SHOWN_CHARACTERS_MAX))
    except NoCanonicalForm as none:
        raise SettingsError(f"a payload of {source!r} cannot be stored in a file: {none}") from None


def not_failing(case: Case) -> str:
    """What is said of a case from a file that did not fail when it was run again."""
    if not case.has_impure:
        return "the case does not fail any more"
    return (
        "the case does not fail: its step is pure now, or what it gives depends on what it was called with before, as "
        "numbers by order of arrival do, and this input alone does not show it; run the test that found it"
    )


def save_case(result: Result, folder: Path | str | None = None) -> Path:
    """Write a failed case; equal cases share one file.

    Args:
        folder: .drift/cases in the working folder, unless DRIFT_CASES names another.
    """
    folder = Path(folder or os.environ.get("DRIFT_CASES") or FOLDER)
    text = json.dumps(as_json(result), indent=1) + "\n"
    name = "".join(letter if letter.isalnum() else "-" for letter in result.case.dataflow.name)
    path = folder / f"{name}-{xxhash.xxh64_hexdigest(text.encode())[:8]}.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def load_case(path: Path | str, graph: Graph | Dataflow | None = None) -> Case:
    """A case from its file.

    Args:
        graph: replaces the graph that the file names; needed if it names none.

    Raises:
        InputError: it is no case file.
        SettingsError: its graph is not found, or has other sources now.
    """
    path = Path(path)
    case_file = _read(path)
    target = case_file.graph.target
    if graph is not None:
        dataflow = graph.build() if isinstance(graph, Graph) else graph
    elif target:
        dataflow = load_dataflow(_located_target(target, path))
    else:
        raise SettingsError(
            f"{path} does not say where graph {case_file.graph.name!r} is found, because no name in a module "
            f"stands for it; pass it: drift.testing.rerun({str(path)!r}, graph)"
        )
    functions = [function for operator in dataflow.operators if (function := function_of(operator))]
    functions += [source.time.functions["time"] for source in dataflow.sources if source.time.reads_payloads]
    classes = classes_near(functions)

    def values(several: list[_StoredValue]) -> list[Any]:
        return [restored(each.canonical, classes) for each in several]

    inputs = {name: values(several) for name, several in case_file.inputs.items()}
    answers = {
        name: TestAnswers(_stub(dataflow, name, of.stub, path))
        if of.stub
        else TestAnswers(None, values(of.answers), of.failing)
        for name, of in case_file.calls.items()
    }
    dataflow = answered(dataflow, answers)
    test = _located_target(case_file.graph.test, path)
    has_impure = case_file.failure is not None and case_file.failure.what == IMPURE
    return Case(dataflow, in_order(dataflow, inputs), case_file.schedule, target, test, has_impure)


def _stub(dataflow: Dataflow, call: str, target: str, path: Path) -> Callable[..., Any]:
    """The stub that a case file names."""
    calls = calls_of(dataflow)
    found: Any = load_object(_located_target(target, path)) if target != _DECLARED else None
    if target == _DECLARED and call in calls:
        found = calls[call].stub
    if not callable(found):
        raise SettingsError(f"{path}: the stub of call {call!r}, {target}, is no function now")
    function: Callable[..., Any] = found
    return function


def _read(path: Path) -> _CaseFile:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"case file {path} cannot be read: {error}") from None
    except ValueError as error:
        raise InputError(f"{path} is no case file: {error}") from None
    except RecursionError:
        raise InputError(f"{path} is no case file: it is nested too deep") from None
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        found = plain.get("format") if isinstance(plain, dict) else None
        raise InputError(f"{path} is no case file of this version: its format is {found!r}, not {FORMAT!r}")
    try:
        case_file = msgspec.convert(plain, _CaseFile)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InputError(f"case file {path} is damaged: {error}; let drift simulate find the case again") from None
    for name, answers in case_file.calls.items():
        if bool(answers.answers) is bool(answers.stub) or len(answers.answers) != len(answers.failing):
            raise InputError(f"case file {path} is damaged: call {name!r} has no answers, or no stub")
    return case_file


def _located_target(target: str, case_file: Path) -> str:
    """The target with its file located: relative to the working folder, else to a parent of the case file."""
    file, _, name = target.rpartition(":")
    if not file.endswith(".py") or Path(file).is_file():
        return target
    for folder in case_file.resolve().parents:
        if (folder / file).is_file():
            return f"{folder / file}:{name}"
    return target


def run_case(path: Path | str, graph: Graph | Dataflow | None = None) -> Result:
    """Run a case file again, without a check whether steps are pure; `rerun` has that, too.

    Returns:
        The result; its `failure` is None if the case does not fail any more.

    Raises:
        InputError, SettingsError: see `load_case`.
    """
    return check_case(load_case(path, graph))


def check_case(case: Case) -> Result:
    """`check`; if the run agrees with the reference, also the assertions of the test that the case is from.

    Raises:
        SettingsError: the test is not found, or only its test runner can call it.
    """
    result = check(case)
    if result.failure is not None or not case.test:
        return result
    test = getattr(load_object(case.test), "drift_test", None)
    if test is None or test.assertions is None:
        file, _, name = case.test.rpartition(":")
        why = "takes what only its test runner gives it" if test is not None else "is no test under deterministic now"
        raise SettingsError(
            f"the runs are as they should be, and {name} of {file}, which has more to say, {why}: run it with pytest"
        )
    return replace(result, failure=test.assertions(result))


def line_again(path: Path, target: str) -> str:
    """The code or command that runs a case file again."""
    if not target:
        return f"drift.testing.rerun({str(path)!r}, graph)"
    return f"drift simulate --case {quote(str(path))}"


def case_lines(result: Result, folder: Path | str | None = None) -> tuple[Path | None, list[str]]:
    """The file of a case, and lines that say how to run it again."""
    try:
        path = save_case(result, folder)
    except (SettingsError, OSError) as reason:
        return None, [f"no case file  {reason}"]
    return path, [f"run it again  {line_again(path, result.case.target)}", f"case file     {path}"]


def write_report(result: Result, folder: Path | str | None = None) -> tuple[str, Path | None]:
    """The report of a failed case, and its case file; None if the case cannot be stored."""
    path, lines = case_lines(result, folder)
    return "\n".join([report(result), "", *lines]), path


def target_of_graph(graph: object, names: Mapping[str, Any]) -> str:
    """ "file.py:name" of a graph, searched in a module and the modules it imports; "" if it has no name there.

    Args:
        names: a module's globals.
    """
    for each in (names, *(vars(value) for value in names.values() if isinstance(value, ModuleType))):
        file = each.get("__file__") or ""
        for name, value in each.items():
            if value is graph and file:
                return f"{short_path(Path(file))}:{name}"
    return ""


def short_path(path: Path) -> str:
    """A path, relative to the working folder if it is inside it."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)
