"""What the documents show is what happens: their Python runs, and their commands print what they say they print.

The ```python blocks of a file are one program, run from top to bottom; in one that has prompts, outputs are compared.
In a ```console block the lines after `$ ` are commands; those that begin with drift, python or pytest are run, in a
folder that has `examples` in it, and what they print is compared with the lines below them, if there are any; `...`
stands for anything, and paths in that folder are shown without it. A block ```python NAME.py is a file, which is there
for the commands after it. A block marked otherwise (```python not-run) is left alone.

So that what is drawn at random is drawn again, pytest's runs have one seed, and Python one hash seed; they draw few
examples.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from waiting import HANG_S

import drift
import drift_acker
import drift_barrier
import drift_graph

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
COMMANDS = ("drift", "python", "pytest")
PUBLIC = (drift, drift.sources, drift.sinks, drift.windows, drift.agg)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

documents = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


def modules() -> Iterator[str]:
    for package in (drift_graph, drift_acker, drift_barrier, drift):
        yield package.__name__
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                yield found.name


def blocks(document: Path, kind: str) -> list[tuple[int, str]]:
    """(lines of the file before it, text) of each block of a kind."""
    text = document.read_text()
    found = re.finditer(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start(1)), match[1]) for match in found]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place that looks like the checkout, to write in."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("module", list(modules()))
def test_a_docstring_shows_what_happens(module: str, folder: Path) -> None:
    assert doctest.testmod(importlib.import_module(module), optionflags=FLAGS).failed == 0


@documents
def test_python_in_a_document_runs(document: Path, folder: Path) -> None:
    names: dict[str, object] = {"__name__": document.stem}
    for line, text in blocks(document, "python"):
        if text.lstrip().startswith(">>>"):
            test = doctest.DocTestParser().get_doctest(text, {}, document.name, str(document), line)
            test.globs = names
            runner = doctest.DocTestRunner(optionflags=FLAGS)
            assert runner.run(test, clear_globs=False).failed == 0
        else:
            exec(compile("\n" * line + text, document, "exec"), names)


def test_every_public_name_is_in_an_example_that_is_run() -> None:
    shown = "\n".join(text for document in DOCUMENTS for _, text in blocks(document, "python"))
    names = [name for name in drift.__all__ if not isinstance(getattr(drift, name), ModuleType)]
    assert [name for name in names if not re.search(rf"\bdrift\.{name}\b", shown)] == []


@pytest.mark.parametrize(
    "module", [drift, drift.sources, drift.sinks, drift.windows, drift.agg], ids=lambda m: m.__name__
)
def test_every_public_function_shows_a_call(module: ModuleType) -> None:
    functions = [getattr(module, name) for name in module.__all__ if inspect.isfunction(getattr(module, name))]
    assert [each.__name__ for each in functions if ">>> " not in (each.__doc__ or "")] == []


@documents
def test_commands_in_a_document_print_what_it_says(document: Path, folder: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "COLUMNS": "120", "NO_COLOR": "1", "PYTHONHASHSEED": "0"}
    without = " ".join(f"-p no:{plugin}" for plugin in ("cacheprovider", "xdist", "anyio"))
    environment |= {"PYTEST_ADDOPTS": f"--hypothesis-seed=0 --no-header --drift-profile quick {without}"}
    for variable in ("CI", "GITHUB_ACTIONS", "PYTEST_CURRENT_TEST"):  # pytest and Hypothesis print more where they are
        environment.pop(variable, None)
    text = document.read_text()
    for block in re.finditer(r"^```(console|python [\w.]+\.py)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if block[1] != "console":
            (folder / block[1].split()[1]).write_text(block[2])
            continue
        for example in re.split(r"^\$ ", block[2], flags=re.MULTILINE)[1:]:
            first, *rest = example.splitlines(keepends=True)
            while first.endswith("\\\n") and rest:
                first += rest.pop(0)
            if not first.startswith(COMMANDS):
                continue
            command = ["bash", "-c", f"exec 2>&1; {first}"]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, timeout=HANG_S)
            expected, printed = "".join(rest).rstrip("\n"), done.stdout.replace(f"{folder}/", "").rstrip("\n")
            if expected:
                assert doctest.OutputChecker().check_output(expected, printed, FLAGS), (
                    f"$ {first}prints\n{printed}\nand the document says\n{expected}"
                )
            else:
                assert done.returncode == 0, f"$ {first}{done.stdout}"


def test_the_architecture_names_files_and_packages_that_there_are() -> None:
    root = Path(__file__).parents[2]
    text = (root / "ARCHITECTURE.md").read_text().partition("## Where everything is")[2].partition("\n## ")[0]
    folders = ("drift", "graph", "acker", "barrier", "kernel", "drift_command", "drift_pytest")
    files = [Path("hatch_build.py")]
    files += [file.relative_to(root) for folder in folders for file in (root / folder).rglob("*.py")]
    gone = sorted(set(re.findall(r"\b[a-z_]+\.py\b", text)) - {file.name for file in files})
    unnamed = sorted({file.parent.name for file in files if file.parent.name} - set(re.findall(r"[a-z_]+(?=/)", text)))
    assert (gone, unnamed) == ([], [])


def operators() -> Iterator[tuple[str, object]]:
    """What people write graphs with, by name."""
    for kind in (drift.Graph, drift.Stream, drift.KeyedStream, drift.WindowedStream):
        for name, found in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_") and found.__module__.startswith("drift.streams."):
                yield f"{kind.__name__}.{name}", found
    for module in (drift.agg, drift.windows):
        for name, found in vars(module).items():
            if inspect.isfunction(found) and found.__module__ == module.__name__ and not name.startswith("_"):
                yield f"{module.__name__}.{name}", found


NO_OPERATORS = {"Graph.build", "Graph.draw"}
_OF_WINDOWS = ("check_windows", "fields_of_rows", "key_of_slice", "parts_of")
NO_OPERATORS |= {f"drift.flow.windows.{name}" for name in _OF_WINDOWS}


def test_every_operator_has_an_example_in_its_docstring() -> None:
    lacking = [name for name, found in operators() if name not in NO_OPERATORS and ">>>" not in (found.__doc__ or "")]
    assert not lacking


def raised_by(function: object) -> set[str]:
    """The classes of the exceptions that the text of a function itself raises."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    raised = (node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise))
    return {each.func.id for each in raised if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)}


def test_operators_sources_and_sinks_say_what_they_raise() -> None:
    connectors = [
        (f"{module.__name__}.{name}", getattr(module, name))
        for module in (drift.sources, drift.sinks)
        for name in module.__all__
        if inspect.isfunction(getattr(module, name))
    ]
    silent = [name for name, each in (*operators(), *connectors) if raised_by(each) and "Raises:" not in each.__doc__]
    assert len(connectors) > 20
    assert silent == []


def test_the_metas_in_the_walks_of_the_architecture_are_those_of_their_runs() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    shown = {match.replace(" ", "") for match in re.findall(r"`(?:[^`]*meta `)?([0-9a-f]{16}(?: [0-9a-f]+)+)`", text)}
    names: dict[str, Any] = {}
    metas: set[str] = set()
    for _, block in blocks(ROOT / "ARCHITECTURE.md", "python"):
        exec(block, names)
        metas.update(meta.hex() for _, released, *_ in names["run"].batches() for meta in released)
    whole = {each for each in shown if len(each) > 38}
    assert len(whole) == 2 and whole <= metas
    assert all(any(each in meta for meta in metas) for each in shown)
