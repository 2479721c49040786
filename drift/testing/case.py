"""Writes a failed case to a file, and runs it again.

Invariant: a case file holds everything that a run depends on, except the code: the graph's target, the input, the
settings and the schedule. Reading it runs no code but the user's module with the graph.

Why it stays valid when the code changes: input is stored as canonical bytes (and as text, for people), and a decision
of the schedule names its subject, for example an item on a link. A decision about an item that is no longer sent has no
effect, and everything that no decision names comes in order.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import msgspec
import xxhash

from drift.calling.asks import calls_of
from drift.load import load_dataflow, load_object
from drift.streams import Graph
from drift.testing.calls import TestAnswers, answered
from drift.testing.check import Case, Result, check, in_order
from drift.testing.report import in_words, report
from drift.testing.schedule import Schedule
from drift_graph.canonical import NoCanonicalForm, stored
from drift_graph.errors import InputError, SettingsError
from drift_graph.functions import safe_text
from drift_graph.graph import Dataflow
from drift_graph.operators import function_of
from drift_graph.restore import classes_near, restored

FORMAT = "drift case 1"
FOLDER = Path(".drift") / "cases"

#: In place of FILE:NAME, the stub that the call declares.
_DECLARED = "declared"
_SHOWN_CHARACTERS_MAX = 200
#: Of a simulated run.
_WORKERS_MAX = 64


def as_json(result: Result) -> dict[str, Any]:
    """A failed case as JSON.

    Raises:
        SettingsError: a payload of the input has no canonical form, so it cannot be stored.
    """
    case, failure = result.case, result.failure
    graph: dict[str, Any] = {"name": case.dataflow.name, "target": case.target}
    if case.test:
        graph["test"] = case.test
    return {
        "format": FORMAT,
        "graph": graph,
        **_stored_calls(case.dataflow),
        "inputs": {name: [_stored_value(each, name) for each in payloads] for name, payloads in case.inputs.items()},
        "schedule": case.schedule.as_json(),
        "in_words": list(in_words(result)),
        "failure": None if failure is None else {"what": failure.what, "message": failure.message},
    }


def _stored_calls(dataflow: Dataflow) -> dict[str, Any]:
    """The drawn answers of calls, or where their stubs are found, if there are any calls.

    Raises:
        SettingsError: a stub is not found by a name.
    """
    calls: dict[str, Any] = {}
    for name, asks in calls_of(dataflow).items():
        answers = asks.function
        assert isinstance(answers, TestAnswers)
        if answers.function is not None:
            stub = _DECLARED if answers.function is asks.stub else _target_of_stub(answers.function)
            if not stub:
                raise SettingsError(
                    f"the stub of call {name!r} has no name at the top of a file, by which a case file could find it; "
                    f"define it there with def, declare it with call(..., stub=), or draw the answers"
                )
            calls[name] = {"stub": stub}
            continue
        calls[name] = {
            "answers": [_stored_value(each, name) for each in answers.values],
            "failing": list(answers.failing),
        }
    return {"calls": calls} if calls else {}


def _target_of_stub(function: Any) -> str:
    """ "file.py:name" of a function at the top of a module; "" for others."""
    names, name = getattr(function, "__globals__", {}), getattr(function, "__qualname__", "")
    file = names.get("__file__")
    return f"{short_path(Path(file))}:{name}" if file and names.get(name) is function else ""


def _stored_value(value: Any, source: str) -> dict[str, str]:
    try:
        form = stored(value)
    except NoCanonicalForm as none:
        raise SettingsError(f"a payload of {source!r} cannot be stored in a file: {none}") from None
    return {
        "canonical": base64.b64encode(form).decode(),
        "shown": safe_text(ascii, value, _SHOWN_CHARACTERS_MAX),
    }


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
    target = case_file["graph"]["target"]
    if graph is not None:
        dataflow = graph.build() if isinstance(graph, Graph) else graph
    elif target:
        dataflow = load_dataflow(_located_target(target, path))
    else:
        raise SettingsError(
            f"{path} does not say where graph {case_file['graph']['name']!r} is found, because no name in a module "
            f"stands for it; pass it: drift.testing.run_case({str(path)!r}, graph)"
        )
    functions = [function for operator in dataflow.operators if (function := function_of(operator))]
    functions += [source.time.functions["time"] for source in dataflow.sources if source.time.reads_payloads]
    classes = classes_near(functions)
    inputs = {
        name: [restored(base64.b64decode(each["canonical"]), classes) for each in values]
        for name, values in case_file["inputs"].items()
    }
    schedule = Schedule.from_json(case_file["schedule"])
    answers = {
        name: TestAnswers(_stub(dataflow, name, of["stub"], path))
        if "stub" in of
        else TestAnswers(
            None, [restored(base64.b64decode(each["canonical"]), classes) for each in of["answers"]], of["failing"]
        )
        for name, of in case_file.get("calls", {}).items()
    }
    dataflow = answered(dataflow, answers)
    test = _located_target(case_file["graph"].get("test", ""), path)
    return Case(dataflow, in_order(dataflow, inputs), schedule, target, test)


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


def _read(path: Path) -> dict[str, Any]:
    try:
        case_file = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"case file {path} cannot be read: {error}") from None
    except ValueError as error:
        raise InputError(f"{path} is no case file: {error}") from None
    except RecursionError:
        raise InputError(f"{path} is no case file: it is nested too deep") from None
    if not isinstance(case_file, dict) or case_file.get("format") != FORMAT:
        found = case_file.get("format") if isinstance(case_file, dict) else None
        raise InputError(f"{path} is no case file of this version: its format is {found!r}, not {FORMAT!r}")
    try:
        form = msgspec.convert(case_file, _Form)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InputError(f"case file {path} is damaged: {error}; let drift simulate find the case again") from None
    for name, answers in form.calls.items():
        if bool(answers.answers) is bool(answers.stub) or len(answers.answers) != len(answers.failing):
            raise InputError(f"case file {path} is damaged: call {name!r} has no answers, or no stub")
    return case_file


class _StoredValue(msgspec.Struct):
    canonical: str


class _Graph(msgspec.Struct):
    name: str
    target: str
    test: str = ""


class _Deviation(msgspec.Struct):
    key: tuple[str, str, str, int, int]
    choice: Annotated[int, msgspec.Meta(ge=0)]
    until: tuple[str, str, str, int, int] | None = None


class _Schedule(msgspec.Struct):
    workers: Annotated[int, msgspec.Meta(ge=1, le=_WORKERS_MAX)] = 1
    batch_items: int = 1
    fused: bool = True
    in_flight_max: int = 1
    live: list[str] = []
    noise: int = 0
    losses: bool = False
    deaths: bool = False
    deviations: list[_Deviation] = []


class _Answers(msgspec.Struct):
    """Drawn answers, or the stub."""

    answers: list[_StoredValue] = []
    failing: list[bool] = []
    stub: str = ""


class _Form(msgspec.Struct):
    """The required fields of a case file."""

    graph: _Graph
    inputs: dict[str, list[_StoredValue]]
    schedule: _Schedule
    calls: dict[str, _Answers] = {}


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
    """Run a case file again.

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
        return f"drift.testing.run_case({str(path)!r}, graph)"
    return f"drift simulate --case {path}"


def case_lines(result: Result, folder: Path | str | None = None) -> tuple[Path | None, list[str]]:
    """The file of a case, and lines that say how to run it again."""
    try:
        path = save_case(result, folder)
    except (SettingsError, OSError) as reason:
        return None, [f"no case file  {reason}"]
    return path, [f"run it again  {line_again(path, result.case.target)}", f"case file     {path}"]


def write_report(result: Result, folder: Path | str | None = None) -> tuple[str, Path | None]:
    """The report of a failed case, and its case file; None if the case cannot be stored."""
    try:
        path = save_case(result, folder)
    except (SettingsError, OSError) as error:
        return f"{report(result)}\n\nno case file  {error}", None
    return report(result, case_file=str(path), again=line_again(path, result.case.target)), path


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
