"""`drift simulate`: the same seed is the same run everywhere, the least seed that fails is told, nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from waiting import HANG_S, processes_with, wait_until

from drift.cli import drift as commands

GRAPH = """
import drift

graph = drift.Graph("words")
graph.source("lines").flat_map(str.split).group(str.lower, 2).count(key=len).sink("out")
"""
#: A grouping that corrects one window too few.
BROKEN = (
    GRAPH
    + """
from drift.machines import keyed

def broken(self, before, current, out, send=keyed.KeyedStage._send_difference):
    if len(current) > 1 and before and before[-1].meta == current[-1].meta:
        before, current = before[:-1], current[:-1]
    send(self, before, current, out)

keyed.KeyedStage._send_difference = broken
"""
)
IMPURE = """
import drift
from hypothesis import strategies as st

seen = []

def new(word):
    seen.append(word)
    return seen.count(word) == 1

graph = drift.Graph("news")
graph.source("words").filter(new).sink("out")

@drift.testing.deterministic(graph, words=st.lists(st.sampled_from("abc")))
def test_news():
    pass
"""


def simulate(folder: Path, *arguments: str, hash_seed: str = "") -> subprocess.CompletedProcess[str]:
    """The command, in this process if the hash seed of its process does not matter: it starts others anyway."""
    if not hash_seed:
        with chdir(folder):
            done = CliRunner().invoke(commands, ["simulate", *arguments], env={"DRIFT_CASES": ""})
        return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "DRIFT_CASES": ""}
    command = [sys.executable, "-m", "drift_command", "simulate", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANG_S)


def as_json(folder: Path, *arguments: str, hash_seed: str = "") -> dict[str, Any]:
    done = simulate(folder, *arguments, "--json", hash_seed=hash_seed)
    assert done.stdout.count("\n") == 1, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def test_a_sound_graph_passes_and_its_seeds_are_the_same_runs_everywhere(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(GRAPH)
    one = as_json(tmp_path, "words.py:graph", "--seeds", "30", "--processes", "1", hash_seed="1")
    two = as_json(tmp_path, "words.py:graph", "--seeds", "30", "--processes", "2", hash_seed="2")
    assert one["seeds"] == 30 and one["failed_seed"] is None
    assert one["inputs"] == {"lines": "generated, lines of text"}
    assert one["items"] > 150 and one["not_in_order"]["delays"] > 50 and one["calls_checked"] > 100
    for same in ("graph", "seeds", "items", "not_in_order", "step_errors"):
        assert one[same] == two[same]
    done = simulate(tmp_path, "words.py:graph", "--seeds", "10", "--processes", "1", "--no-purity")
    assert done.returncode == 0
    assert done.stdout.startswith("words: 10 seeds, a schedule each, none fails; ") and "not in order: " in done.stdout
    assert "words: simulated on " in done.stderr


def test_the_least_seed_that_fails_is_reported_and_its_case_outlives_the_mending(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(BROKEN)
    (tmp_path / "lines.txt").write_text("to be or\nnot to be\nthat is\n" * 20)
    source = ["words.py:graph", "--source", "lines.txt", "--items-max", "3", "--no-purity"]
    texts = set()
    for processes, hash_seed in (("1", "1"), ("3", "2")):
        done = simulate(tmp_path, *source, "--processes", processes, "--seeds", "3000", hash_seed=hash_seed)
        assert done.returncode == 8, done.stderr
        texts.add(done.stderr[done.stderr.index("error:") :])
    (text,) = texts
    assert "another output than the reference" in text and "the first difference, item" in text
    seed = text.split("--seed ")[1].split()[0]
    assert f"seed          {seed}: drift simulate words.py:graph --seed {seed}" in text
    again = simulate(tmp_path, *source, "--seed", seed)
    assert again.returncode == 8 and again.stderr == text
    path = text.split("case file     ")[1].split("\n")[0]
    printed = as_json(tmp_path, "--case", path, "--no-purity")
    assert (
        printed["kind"] == "Differs" and printed["exit_code"] == 8 and printed["report"]["failure"] == "another output"
    )
    (tmp_path / "words.py").write_text(GRAPH)
    mended = simulate(tmp_path, "--case", path, "--no-purity")
    assert mended.returncode == 0 and mended.stdout == "the case does not fail any more\n"
    assert simulate(tmp_path, *source, "--seed", seed).stdout.startswith(f"seed {seed} does not fail: ")


def test_a_case_that_shows_an_impure_step_only_after_other_calls_is_not_called_mended(tmp_path: Path) -> None:
    (tmp_path / "numbered.py").write_text(
        "import drift\n\nnumbers = {}\n"
        "def numbered(word):\n    return word, numbers.setdefault(word, len(numbers))\n\n"
        "graph = drift.Graph('numbered')\ngraph.source('words').map(numbered).sink('out')\n"
    )
    (tmp_path / "words.txt").write_text("a\nb\nc\n")
    found = simulate(tmp_path, "numbered.py:graph", "--source", "words.txt", "--seed", "0")
    assert found.returncode == 4, found.stderr
    path = found.stderr.split("case file     ")[1].split("\n")[0]
    case = json.loads((tmp_path / path).read_text())
    assert case["failure"]["what"] == "an impure step"
    del case["inputs"]["words"][1:]
    (tmp_path / path).write_text(json.dumps(case))
    again = simulate(tmp_path, "--case", path)
    assert again.returncode == 0 and "depends on what it was called with before" in again.stdout


def test_an_impure_step_is_reported_with_the_smallest_input(tmp_path: Path) -> None:
    (tmp_path / "test_news.py").write_text(IMPURE)
    done = simulate(tmp_path, "test_news.py:test_news", "--processes", "1")
    assert done.returncode == 4, done.stderr
    assert "words: the test's strategy" in done.stderr
    assert "step 'filter new' (map keep new) is not pure" in done.stderr and "the global 'seen' changed" in done.stderr
    smallest = done.stderr.split("the smallest input found\n")[1].split("\n\n")[0]
    assert smallest.count("words") == 1 and "(empty)" not in smallest
    path = done.stderr.split("case file     ")[1].split("\n")[0]
    printed = as_json(tmp_path, "--case", path)
    assert (printed["kind"], printed["step"], printed["exit_code"]) == ("ImpureStep", "filter new", 4)


def test_a_failure_that_hangs_on_what_ran_before_is_reported_as_that(tmp_path: Path) -> None:
    (tmp_path / "tired.py").write_text(
        "import drift\ncalls = []\n\ndef tired(line):\n    calls.append(line)\n    return len(calls) > 800\n\n"
        "graph = drift.Graph('tired')\ngraph.source('lines').map(tired).sink('out')\n"
    )
    (tmp_path / "lines.txt").write_text("a line\nanother\n" * 50)
    done = simulate(tmp_path, "tired.py:graph", "--source", "lines.txt", "--processes", "1")
    assert done.returncode == 8, done.stderr
    assert "does not fail by itself" in done.stderr and "step 'map tired'" in done.stderr


def test_runs_are_given_chunks_of_a_source(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(
        GRAPH.replace("str.split", "lambda line: [line] if line.startswith('line') else 1 / 0")
    )
    (tmp_path / "lines.txt").write_text("".join(f"line {number}\n" for number in range(200)))
    chunks = ["--source", "lines.txt", "--items-max", "9", "--seeds", "40", "--processes", "1", "--no-purity"]
    printed = as_json(tmp_path, "words.py:graph", *chunks)
    assert printed["inputs"] == {"lines": "chunks of lines.txt (200 items)"}
    assert printed["step_errors"] == 0 and 40 < printed["items"] < 360
    refused = simulate(tmp_path, "words.py:graph")
    assert refused.returncode == 2 and "no generated payloads suit source 'lines'" in refused.stderr
    live = simulate(tmp_path, "words.py:graph", "--source", "tcp://127.0.0.1:0")
    assert live.returncode == 2 and "is live" in live.stderr


def test_rows_of_a_file_have_the_schema_of_the_graph(tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text(
        "import drift\ngraph = drift.Graph('rows')\n"
        "graph.source('rows', schema={'n': int}).map(lambda row: 1 + row['n']).sink('out')\n"
    )
    (tmp_path / "rows.csv").write_text("n\n1\n2\n3\n")
    chunks = ["--source", "rows.csv", "--seeds", "9", "--processes", "1", "--no-purity"]
    printed = as_json(tmp_path, "rows.py:graph", *chunks)
    assert printed["inputs"] == {"rows": "chunks of rows.csv (3 items)"} and printed["step_errors"] == 0


def test_time_ends_it_too(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(GRAPH)
    printed = as_json(tmp_path, "words.py:graph", "--minutes", "0.005", "--processes", "1", "--no-purity")
    assert printed["failed_seed"] is None and printed["seconds"] >= 0.3


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "say what to simulate"),
        (["none.py:graph"], 2, "does not exist"),
        (["words.py:none"], 2, "has no 'none'"),
        (["raises.py:graph"], 3, "raised ZeroDivisionError"),
        (["words.py:graph", "--seed", "1", "--seeds", "2"], 2, "exclude each other"),
        (["words.py:graph", "--source", "none.txt"], 5, "none.txt"),
        (["--case", "words.py"], 5, "no case file"),
        (["ends.py:graph", "--seeds", "5", "--no-purity"], 6, "ended with exit code 7"),
    ],
)
def test_what_is_wrong_has_its_exit_code(tmp_path: Path, arguments: list[str], code: int, said: str) -> None:
    (tmp_path / "words.py").write_text(GRAPH)
    (tmp_path / "raises.py").write_text("graph = 1 / 0")
    (tmp_path / "ends.py").write_text(
        "import drift, os\nfrom hypothesis import strategies as st\ngraph = drift.Graph('ends')\n"
        "graph.source('lines').map(lambda line: os._exit(7) if line == 'end' else line).sink('out')\n"
        "@drift.testing.deterministic(graph, lines=st.just(['end']))\ndef test_it(): pass\n"
    )
    arguments = [each.replace("ends.py:graph", "ends.py:test_it") for each in arguments]
    done = simulate(tmp_path, *arguments)
    assert done.returncode == code and said in done.stderr


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left(tmp_path: Path, number: signal.Signals) -> None:
    mark = uuid.uuid4().hex
    (tmp_path / "words.py").write_text(GRAPH)
    command = [sys.executable, "-m", "drift_command", "simulate", "words.py:graph"]
    command += ["--minutes", "10", "--processes", "2"]
    environment = {**os.environ, "DRIFT_TEST_MARK": mark}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert running.stderr.readline().startswith("words: simulated on 2 processes")
        wait_until(lambda: len(processes_with(mark)) >= 3, "its processes run")
        running.send_signal(number)
        said = running.stderr.read()
        code = running.wait(HANG_S)
    wait_until(lambda: not processes_with(mark), "no process is left")
    if number != signal.SIGKILL:
        assert code == 128 + number and "interrupted after" in said
