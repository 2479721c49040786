"""The pytest plugin: what its options do, what a failed test of a dataflow leaves in the report, what it costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from test_simulate import BROKEN, GRAPH, simulate
from waiting import HANG_S

TESTS = """
import os
from hypothesis import Phase, settings, strategies as st
import drift
import words

count = 0

@settings(max_examples=20, derandomize=True, phases=[Phase.generate])  # drift makes it small
@drift.testing.deterministic(words.graph, check_purity=False, lines=st.lists(st.text("ab ", max_size=5), max_size=5))
def test_words(run):
    global count
    count += 1

def test_count():
    print("examples", count)
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DRIFT_", "PYTEST_"))}
    others = [part for plugin in ("cacheprovider", "xdist", "anyio") for part in ("-p", f"no:{plugin}")]
    command = [sys.executable, "-m", "pytest", "-p", "drift_pytest", *others, "-s", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANG_S)


def examples(folder: Path, *arguments: str) -> int:
    done = run_pytest(folder, *arguments)
    assert done.returncode == 0, done.stdout
    return int(done.stdout.split("examples ")[1].split()[0])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "words.py").write_text(GRAPH)
    (tmp_path / "test_words.py").write_text(TESTS)
    return tmp_path


def test_a_profile_scales_examples_and_seeds_are_run_besides(folder: Path) -> None:
    assert examples(folder, "--drift-profile", "quick") <= 10
    assert examples(folder, "--drift-seeds", "50:80") >= 45
    assert run_pytest(folder, "--drift-seeds", "x").returncode == 4


def test_a_failed_case_is_stored_where_it_should_be_reported_and_run_again(folder: Path) -> None:
    (folder / "words.py").write_text(BROKEN)
    done = run_pytest(folder, "--drift-cases", "kept", "--junit-xml", "report.xml")
    assert done.returncode == 1
    (path,) = (folder / "kept").iterdir()
    shown = f"kept/{path.name}"
    assert f"{shown}  test_words.py::test_words" in done.stdout.split("drift cases")[1]
    assert f"run it again  drift simulate --case {shown}" in done.stdout
    properties = ElementTree.parse(folder / "report.xml").iter("property")
    assert [each.get("value") for each in properties if each.get("name") == "drift_case"] == [shown]
    again = run_pytest(folder, "--drift-case", shown)
    assert again.returncode == 1 and "1 failed, 2 deselected" in again.stdout
    assert "another output than the reference" in again.stdout
    (folder / "words.py").write_text(GRAPH)
    mended = run_pytest(folder, "--drift-case", shown, "--drift-case", str(path))
    assert mended.returncode == 0 and "2 passed, 2 deselected" in mended.stdout


OWN_WORDS = (
    TESTS
    + """
quickly = settings(max_examples=20, derandomize=True, phases=[Phase.generate])
lines = st.lists(st.text("ab ", max_size=5), max_size=5)

@quickly
@drift.testing.deterministic(words.graph, check_purity=False, lines=lines)
def test_few(run):
    assert len(run.output) < int(os.environ.get("MOST", 3))

@quickly
@drift.testing.deterministic(words.graph, check_purity=False, lines=lines)
def test_fixture(run, tmp_path_factory):
    assert len(run.output) < 3

@quickly
@drift.testing.deterministic(words.graph, check_purity=False, lines=st.just([7]))
def test_no_text():
    pass
"""
)


def test_what_a_test_wants_beyond_the_reference_is_stored_and_reported_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "test_words.py").write_text(OWN_WORDS)
    done = run_pytest(folder, "--drift-cases", "kept", "-k", "few or fixture or no_text")
    stored = [line.split("  test_words.py::") for line in done.stdout.split("drift cases")[1].splitlines()]
    paths = {each[1]: each[0] for each in stored if len(each) == 2}
    assert set(paths) == {"test_few", "test_fixture", "test_no_text"}
    for shown in paths.values():
        assert (folder / shown).exists() and f"run it again  drift simulate --case {shown}" in done.stdout, done.stdout
    few = paths["test_few"]
    kept = json.loads((folder / few).read_text())
    assert kept["graph"]["test"] == "test_words.py:test_few" and kept["failure"]["what"] == "the test's own words"
    again = run_pytest(folder, "--drift-case", few)
    assert again.returncode == 1 and "the test's own words: AssertionError" in again.stdout
    printed = simulate(folder, "--case", few)
    assert printed.returncode == 8 and "test_words.py:test_few: AssertionError: assert " in printed.stderr
    monkeypatch.setenv("MOST", "1000")
    assert run_pytest(folder, "--drift-case", few).returncode == 0
    assert simulate(folder, "--case", few).stdout == "the case does not fail any more\n"
    no_text = simulate(folder, "--case", paths["test_no_text"])
    assert no_text.returncode == 8 and "StepError" in no_text.stderr
    fixture = simulate(folder, "--case", paths["test_fixture"])
    assert fixture.returncode == 2 and "run it with pytest" in fixture.stderr


def test_a_seed_that_fails_says_its_number(folder: Path) -> None:
    (folder / "words.py").write_text(BROKEN)
    text = TESTS.replace("max_examples=20", "max_examples=1")
    (folder / "test_words.py").write_text(text)
    done = run_pytest(folder, "--drift-seeds", "1000")
    assert done.returncode == 1 and "at seed " in done.stdout and "drift cases" in done.stdout


@pytest.mark.smoke
def test_a_test_run_without_drift_imports_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import json, sys\ndef test_it():\n    print('modules', json.dumps([name for name in sys.modules "
        "if name.split('.')[0] in ('drift', 'drift_graph', 'drift_pytest', 'zmq')]))\n"
    )
    done = run_pytest(tmp_path)
    assert json.loads(done.stdout.split("modules ")[1].split("\n")[0].rstrip(".")) == ["drift_pytest"]


def test_failures_of_two_tests_are_stored_separately() -> None:
    from hypothesis import strategies as st
    from hypothesis.internal.reflection import function_digest

    import drift

    graph = drift.Graph("apart")
    graph.source("lines").sink("out")
    decorate = drift.testing.deterministic(graph, lines=st.lists(st.text()))

    def one() -> None: ...

    def other() -> None: ...

    digests = {function_digest(decorate(each).hypothesis.inner_test) for each in (one, other)}  # type: ignore[attr-defined]
    assert len(digests) == 2
