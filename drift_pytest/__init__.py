"""The pytest plugin: options for tests under `drift.testing`, and the files of failed cases in pytest's report.

Invariant: a test run that does not use drift imports nothing of it; this module imports pytest alone.

Why it is a package of its own: pytest imports every installed plugin when it starts, and a module of `drift` would
bring `drift` with it, a tenth of a second for people who test something else. What the options say goes to
`drift.testing` through the environment, which also reaches the processes of pytest-xdist.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

PROFILES = ("quick", "usual", "long")
_CASE = "drift_case"
_REPORTED = "drift case file"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("drift", "drift: tests of dataflows")
    group.addoption(
        "--drift-profile",
        choices=PROFILES,
        help="How many examples tests under @drift.testing.deterministic draw: a tenth (quick), as many as Hypothesis "
        "is set to (usual), twenty times as many (long).",
    )
    group.addoption(
        "--drift-seeds",
        metavar="N|FIRST:END",
        help="After its examples each such test also runs these seeds, as `drift simulate FILE:TEST` does.",
    )
    group.addoption(
        "--drift-case",
        action="append",
        default=[],
        metavar="PATH",
        help="Run this case file and no other test; may be repeated. Its graph is found by itself.",
    )
    group.addoption(
        "--drift-cases", metavar="FOLDER", help="Where files of failed cases are written; .drift/cases by default."
    )


def pytest_configure(config: pytest.Config) -> None:
    for option, variable in (
        ("drift_profile", "DRIFT_PROFILE"), ("drift_seeds", "DRIFT_SEEDS"), ("drift_cases", "DRIFT_CASES")
    ):  # fmt: skip
        value = config.getoption(option)
        if value is not None:
            before = os.environ.get(variable)
            os.environ[variable] = value
            config.add_cleanup(partial(_put_back, variable, before))
    seeds = config.getoption("drift_seeds")
    if seeds is not None and not all(part.isdecimal() for part in seeds.split(":", 1)):
        raise pytest.UsageError(f"--drift-seeds {seeds} is neither a number nor FIRST:END")
    for path in config.getoption("drift_case"):
        if not Path(path).is_file():
            raise pytest.UsageError(f"--drift-case {path}: there is no such file")


def _put_back(variable: str, before: str | None) -> None:
    if before is None:
        os.environ.pop(variable, None)
    else:
        os.environ[variable] = before


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    paths = config.getoption("drift_case")
    if paths:
        config.hook.pytest_deselected(items=list(items))
        items[:] = [CaseItem.from_parent(session, name=path) for path in paths]


class CaseItem(pytest.Item):
    """A case file as a test: it passes where the case does not fail any more."""

    def runtest(self) -> None:
        testing = importlib.import_module("drift.testing")
        testing.rerun(self.name)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        return f"{type(excinfo.value).__name__}: {excinfo.value}"

    def reportinfo(self) -> tuple[str, int | None, str]:
        return self.name, None, f"case {self.name}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.excinfo is not None:
        for path in dict.fromkeys(_case_files(call.excinfo.value)):
            report.user_properties.append((_CASE, path))
            item.user_properties.append((_CASE, path))  # of the report after it, which the JUnit file is made from
            report.sections.append((_REPORTED, path))
    return report


def _case_files(error: BaseException | None) -> Iterator[str]:
    """The case files of an exception, of those in its group, and of those it came from."""
    while error is not None:
        path = getattr(error, _CASE, None)
        if path is not None:
            yield str(path)
        for inside in getattr(error, "exceptions", ()):
            yield from _case_files(inside)
        error = error.__cause__ or error.__context__


def pytest_terminal_summary(terminalreporter: Any) -> None:
    failed = [
        (report.nodeid, value)
        for report in terminalreporter.stats.get("failed", ())
        for name, value in getattr(report, "user_properties", ())
        if name == _CASE
    ]
    if failed:
        terminalreporter.section("drift cases")
        for nodeid, path in failed:
            terminalreporter.line(f"{path}  {nodeid}")
