"""Input that somebody thought of to break a promise, on every engine: no silent loss, no raw error, no hang."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from waiting import HANG_S

import drift

ENGINES = ["reference", "local", "zeromq"]


def outcome(graph: drift.Graph, payloads: Any, engine: str) -> tuple[list[Any], type[Exception] | None]:
    items: list[Any] = []
    try:
        items.extend(item.payload for item in drift.run(graph, {"s": payloads}, engine=engine, batch_items=3))
    except drift.DriftError as error:
        return items, type(error)
    return items, None


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def raises_unspeakable(number: int) -> int:
    if number == 4:
        raise Unspeakable
    return number


class Invisible:
    def __repr__(self) -> str:
        raise RuntimeError("not shown")


def gives_invisible(number: int) -> Any:
    return Invisible() if number == 4 else number


def gives_itself(number: int) -> Any:
    if number != 4:
        return number
    endless: list[Any] = []
    endless.append(endless)
    return endless


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("function", [raises_unspeakable, gives_invisible, gives_itself])
def test_what_cannot_be_distinguished_or_compared_is_an_error_at_its_item(
    function: Callable[[int], Any], engine: str
) -> None:
    graph = drift.Graph("g")
    graph.source("s").map(function).sink("o")
    items, error = outcome(graph, range(9), engine)
    assert items == [0, 1, 2, 3]
    assert error in (drift.StepError, drift.PayloadError)


def test_a_chain_of_two_thousand_maps_runs() -> None:
    graph = drift.Graph("g")
    stream = graph.source("s")
    for _ in range(2000):
        stream = stream.map(lambda number: number + 1)
    stream.sink("o")
    assert outcome(graph, [1], "local") == ([2001], None)


def test_a_time_policy_that_is_a_bare_function_is_refused_at_the_source() -> None:
    with pytest.raises(drift.GraphError, match=r"'s' .*test_attacks.py:\d+.*pass drift.EventTime"):
        drift.Graph("g").source("s", time=lambda payload: payload)  # type: ignore[arg-type]


def test_a_set_is_no_source() -> None:
    graph = drift.Graph("g")
    graph.source("s").sink("o")
    with pytest.raises(drift.SettingsError, match="order changes from run to run"):
        drift.run(graph, {"s": {"a", "b"}})


def run_script(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=HANG_S)


GUARDLESS = """
import drift
def plus(number):
    assert number != 2
    return number + 1
graph = drift.Graph("g")
graph.source("s").map(plus).sink("o")
print([item.payload for item in drift.run(graph, {"s": [1, 3]}, engine="zeromq")])
"""


def test_a_module_that_runs_on_zeromq_when_imported_is_refused_in_its_children(tmp_path: Path) -> None:
    (tmp_path / "guardless.py").write_text(GUARDLESS)
    done = run_script(tmp_path, "-c", "import guardless")
    assert done.returncode == 1
    assert "while it is imported" in done.stderr


def test_files_named_like_pythons_own_and_odd_classes_do_no_harm(tmp_path: Path) -> None:
    for name in ("random.py", "secrets.py", "graph.py", "acker.py"):
        (tmp_path / name).write_text("raise RuntimeError('not meant')")
    (tmp_path / "scripts").mkdir()
    odd = "\nimport threading\nclass Cache:\n    lock = threading.Lock()\n"
    (tmp_path / "scripts" / "main.py").write_text(odd + GUARDLESS)
    done = run_script(tmp_path, "scripts/main.py")
    assert (done.stdout, done.returncode) == ("[2, 4]\n", 0), done.stderr


def test_the_processes_run_with_the_options_of_their_caller(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(GUARDLESS.replace("[1, 3]", "[1, 2]"))
    assert run_script(tmp_path, "-O", "main.py").stdout == "[2, 3]\n"
