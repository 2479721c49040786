"""The command line: what it prints where, and one exit code for each kind of error."""

from __future__ import annotations

import itertools
import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from waiting import HANG_S, wait_until

import drift
import drift.cli.run
from drift.cli import drift as command
from drift_kernel import STATUS

GRAPHS = """
import os

import drift

def fail_on_bad(line):
    if line == "bad":
        raise ValueError("cannot take it")
    return [line]

def split(line):
    return line.split()

graph = drift.Graph("words")
graph.source("lines").flat_map(split, name="split").count(str.lower, name="count").sink("counts")

failing = drift.Graph("failing")
failing.source("lines").flat_map(fail_on_bad, name="check").sink("out")

two = drift.Graph("two")
two.source("left").merge(two.source("right")).sink("out")

def minute(row):
    return int(row["minute"])

timed = drift.Graph("timed")
timed.source("rows", time=drift.EventTime(minute, lateness=1)).map(minute, name="minute").sink("out")
apart = drift.Graph("apart")
apart.source("rows", time=drift.EventTime(minute, lateness=1), late="too late").map(minute, name="minute").sink("out")

def made():
    graph = drift.Graph("made")
    graph.source("lines").sink("out")
    return graph

def of_one_argument(x) -> drift.Graph:
    return x

def die(line):
    os.kill(os.getpid(), 9)

dying = drift.Graph("dying")
dying.source("lines").map(die).sink("out")

def wrong():
    graph = drift.Graph("wrong")
    graph.source("lines")
    return graph

def raising():
    return {}["nothing"]

number = 5
"""
WORDS = "to be or\nnot to be\n"
ROWS = "minute,text\n1,a\n5,b\n3,c\n9,d\n"

numbers = itertools.count()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a file of graphs whose module name no other test has, and inputs."""
    path, modules = list(sys.path), set(sys.modules)
    (tmp_path / f"graphs_{next(numbers)}.py").write_text(GRAPHS)
    (tmp_path / "words.txt").write_text(WORDS)
    (tmp_path / "rows.csv").write_text(ROWS)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.fixture
def call(folder: Path) -> Callable[..., Result]:
    """Calls drift in this process; `GRAPHS` in an argument is the file of graphs."""
    file = next(folder.glob("graphs_*.py")).name

    def called(*arguments: object, stdin: str | None = None) -> Result:
        words = [str(argument).replace("GRAPHS", file) for argument in arguments]
        return CliRunner().invoke(command, words, input=stdin)

    return called


def started(folder: Path, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:
    """Starts the real command."""
    file = next(folder.glob("graphs_*.py")).name
    words = [argument.replace("GRAPHS", file) for argument in arguments]
    return subprocess.Popen([sys.executable, "-m", "drift_command", *words], cwd=folder, **more)


def library_digest(payloads: Any) -> str:
    graph = drift.Graph("words")
    graph.source("lines").flat_map(str.split).count(str.lower).sink("counts")
    return drift.run(graph, {"lines": payloads}).finish().digest


def passing() -> drift.Graph:
    graph = drift.Graph("made")
    graph.source("lines").sink("out")
    return graph


# What is printed.


def test_the_digest_alone_is_on_standard_output_and_equals_the_librarys(folder: Path) -> None:
    process = started(
        folder, "run", "GRAPHS:graph", "--source", "lines=words.txt", "--digest",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    output, errors = process.communicate()
    assert (process.returncode, errors) == (0, b"")
    assert output.decode() == library_digest(WORDS.splitlines()) + "\n"


def test_worker_processes_import_the_file_and_give_the_same_digest(folder: Path) -> None:
    process = started(
        folder, "run", "GRAPHS:graph", "--source", "words.txt", "--engine", "zeromq", "--workers", "2", "--digest",
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.communicate()[0].decode() == library_digest(WORDS.splitlines()) + "\n"


def test_json_is_one_object_and_nothing_else(call: Callable[..., Result]) -> None:
    result = call("run", "GRAPHS:graph", "--source", "words.txt", "--json", "--digest", "--digest-algorithm", "sha256")
    assert result.stderr == ""
    assert result.stdout.count("\n") == 1
    report = json.loads(result.stdout)
    assert list(report) == [
        "graph", "engine", "workers", "digest", "items_in", "items_out", "tombstones", "late_items", "seconds",
        "items_per_second", "peak_memory_bytes", "refused_frames", "guarantee", "died", "recoveries",
        "fed_again", "recovering_s", "sinks", "held",
    ]  # fmt: skip
    assert (report["graph"], report["engine"], report["items_in"], report["items_out"]) == ("words", "local", 2, 6)
    assert len(report["digest"]) == 64


def test_a_nightly_job_pauses_and_goes_on_and_once_it_is_complete_refuses_more(
    call: Callable[..., Result],
) -> None:
    job = "run", "GRAPHS:graph", "--source", "words.txt", "--state", "nights", "--sink", "counts=out.jsonl"
    words = Path("words.txt")
    first = call(*job, "--incomplete")
    assert "paused, and the next call with this state goes on; holds " in first.stderr
    with words.open("a") as file:
        file.write("one more\n")
    held = json.loads(call(*job, "--incomplete", "--json").stdout)["held"]
    assert list(held) == ["sources", "steps", "later_items"]
    report = json.loads(call(*job, "--json").stdout)
    assert (report["items_in"], report["held"]) == (3, None)
    assert json.loads(call(*job, "--json").stdout)["digest"] == report["digest"]
    with words.open("a") as file:
        file.write("and more\n")
    refused, stateless = call(*job), call(*job[:4], "--incomplete")
    assert "is over" in refused.stderr and "--incomplete" in refused.stderr
    assert "--state" in stateless.stderr and (refused.exit_code, stateless.exit_code) == (2, 2)


def test_without_options_there_is_a_summary_on_standard_error(call: Callable[..., Result]) -> None:
    result = call("run", "GRAPHS:graph", "--source", "words.txt")
    assert result.stdout == ""
    assert "words: 2 items in, 6 out in " in result.stderr
    assert f"xxh3_128 {library_digest(WORDS.splitlines())}" in result.stderr


def test_quiet_is_quiet(call: Callable[..., Result]) -> None:
    result = call("run", "GRAPHS:graph", "--source", "words.txt", "--quiet")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_items_go_to_standard_output_and_the_digest_is_the_last_line(call: Callable[..., Result]) -> None:
    result = call("run", "GRAPHS:graph", "--source", "-", "--sink", "text:-", "--digest", stdin=WORDS)
    assert result.stdout.splitlines()[:2] == ["('to', 1)", "('be', 1)"]
    assert result.stdout.splitlines()[6:] == [library_digest(WORDS.splitlines())]
    result = call("run", "GRAPHS:graph", "--source", "-", "--sink", "counts=-", stdin=WORDS)
    assert [json.loads(line)["payload"] for line in result.stdout.splitlines()][-1] == ["be", 2]


def test_the_progress_line_is_drawn_on_a_terminal_and_gone_at_the_end(folder: Path) -> None:
    ours, theirs = pty.openpty()
    process = started(
        folder, "run", "GRAPHS:graph", "--source", "-", "--digest",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )  # fmt: skip
    os.close(theirs)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(WORDS.encode())
    process.stdin.flush()
    drawn = b""
    while b"  at 2" not in drawn:  # while the input is still open
        drawn += os.read(ours, 4096)
    assert b"held by source lines  in 2 " in drawn and b"  out 6 " in drawn
    process.stdin.close()
    while True:
        try:
            chunk = os.read(ours, 4096)
        except OSError:  # how a pseudo-terminal ends on Linux
            break
        if not chunk:
            break
        drawn += chunk
    assert process.wait() == 0
    assert b"words: 2 items in, 6 out in " in drawn.rpartition(b"\x1b[2K")[2]  # erased before the summary
    assert process.stdout.read().decode() == library_digest(WORDS.splitlines()) + "\n"
    process.stdout.close()
    os.close(ours)


def test_the_version_is_the_packages(call: Callable[..., Result]) -> None:
    assert call("--version").stdout == f"drift {drift.__version__}, {STATUS}\n"


def test_help_lists_the_exit_codes_and_gives_examples(call: Callable[..., Result]) -> None:
    assert "130  ended by Ctrl-C" in call("--help").stdout
    assert "drift run wordcount.py:graph" in call("run", "--help").stdout
    assert "drift show wordcount.py:graph" in call("show", "--help").stdout


# Graphs, sources, sinks.


def test_a_graph_may_be_made_by_a_function_and_found_in_a_module(call: Callable[..., Result], folder: Path) -> None:
    assert call("run", "GRAPHS:made", "--source", "words.txt", "--digest").exit_code == 0
    module = next(folder.glob("graphs_*.py")).stem
    assert call("run", f"{module}:graph", "--source", "words.txt", "--digest").exit_code == 0


def test_the_name_may_be_left_out_where_a_file_has_one_graph(call: Callable[..., Result], folder: Path) -> None:
    (folder / "only_one_graph_here.py").write_text(
        "import drift\nmine = drift.Graph('mine')\nmine.source('in').sink('out')\n"
    )
    assert "graph 'mine'" in call("show", "only_one_graph_here.py").stdout


def test_an_input_may_be_plain_or_gzip_text_json_or_csv(call: Callable[..., Result], folder: Path) -> None:
    import gzip

    (folder / "words.txt.gz").write_bytes(gzip.compress(WORDS.encode()))
    (folder / "words.jsonl").write_text("".join(json.dumps(line) + "\n" for line in WORDS.splitlines()))
    (folder / "words").write_text(WORDS)
    (folder / "words.data").write_text(WORDS)
    for spec in ("words.txt.gz", "words.jsonl", "words", "text:words.data", "lines=text:words.data"):
        result = call("run", "GRAPHS:graph", "--source", spec, "--digest")
        assert result.stdout == library_digest(WORDS.splitlines()) + "\n", result.stderr
    assert call("run", "GRAPHS:timed", "--source", "rows.csv", "--lateness", "2", "--digest").exit_code == 0


def test_a_sink_file_is_continued_replaced_or_refused(call: Callable[..., Result], folder: Path) -> None:
    run = ("run", "GRAPHS:graph", "--source", "words.txt", "--sink", "counts=out.jsonl")
    assert call(*run).exit_code == 0
    whole = (folder / "out.jsonl").read_bytes()
    assert len(whole.splitlines()) == 6
    (folder / "out.jsonl").write_bytes(whole[: len(whole) // 2])
    assert call(*run).exit_code == 0
    assert (folder / "out.jsonl").read_bytes() == whole
    assert call(*run, "--on-existing", "error").exit_code == 7
    (folder / "out.jsonl").write_text("something else\n")
    assert call(*run).exit_code == 7
    assert call(*run, "--on-existing", "replace").exit_code == 0
    assert (folder / "out.jsonl").read_bytes() == whole


# Time.


def payloads(result: Result) -> list[Any]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line)["payload"] for line in result.stdout.splitlines()]


def test_event_time_from_a_field_orders_the_output(call: Callable[..., Result]) -> None:
    (rows,) = [("run", "GRAPHS:made", "--source", "rows.csv", "--sink", "-")]
    assert [row["text"] for row in payloads(call(*rows))] == ["a", "b", "c", "d"]
    by_field = payloads(call(*rows, "--event-time", "minute", "--lateness", "lines=2"))
    assert [row["text"] for row in by_field] == ["a", "c", "b", "d"]
    by_function = payloads(call(*rows, "--event-time", "lines=GRAPHS:minute", "--lateness", "2", "--tie", "text"))
    assert [row["text"] for row in by_function] == ["a", "c", "b", "d"]


def test_lateness_alone_changes_the_graphs_own_policy_and_arrival_replaces_it(call: Callable[..., Result]) -> None:
    run = ("run", "GRAPHS:timed", "--source", "rows.csv", "--sink", "-")
    assert call(*run).exit_code == 5
    assert payloads(call(*run, "--lateness", "2")) == [1, 3, 5, 9]
    assert payloads(call(*run, "--lateness", "2ms")) == payloads(call(*run, "--lateness", "1d")) == [1, 3, 5, 9]
    assert payloads(call(*run, "--arrival", "rows")) == [1, 5, 3, 9]


def test_late_items_of_a_sink_of_their_own_are_written_also_in_a_replay(
    call: Callable[..., Result], folder: Path
) -> None:
    (folder / "apart.py").write_text(
        "import drift\napart = drift.Graph('apart')\n"
        "apart.source('rows', time=drift.EventTime('at'), late='late').sink('out')\n"
    )
    (folder / "apart.jsonl").write_text("".join(f'{{"at": {at}}}\n' for at in (1, 9, 3)))
    runs = [
        ("run", "apart.py:apart", "--source", "apart.jsonl", "--record", "apart"),
        ("replay", "apart"),
        ("replay", "apart", "--until", "2"),
    ]
    for run in runs:
        done = call(*run, "--digest", "--quiet", "--sink", "out=text:-", "--sink", "late=text:-")
        assert done.exit_code == 0 and done.stderr == "", done.stderr


def test_diverted_items_are_stored_with_their_reason_or_counted_aloud(
    call: Callable[..., Result], folder: Path
) -> None:
    run = ("run", "GRAPHS:timed", "--source", "rows.csv", "--late", "divert", "--digest")
    assert "1 late items were diverted and not written; --late-output PATH writes them" in call(*run).stderr
    for _ in range(2):  # a rerun diverts the same items again
        assert call(*run, "--late-output", "late.jsonl").stderr == ""
    (late,) = map(json.loads, (folder / "late.jsonl").read_text().splitlines())
    assert late == {
        "source": "rows",
        "payload": {"minute": "3", "text": "c"},
        "time": 3,
        "heartbeat": 4,
        "reason": late["reason"],
    }
    assert call(*run, "--late-output", "late.jsonl", "--on-existing", "error").exit_code == 7


def test_items_of_each_sink_are_counted_also_late_ones(call: Callable[..., Result]) -> None:
    run = ("run", "GRAPHS:apart", "--source", "rows.csv")
    assert "4 items in, 4 out (too late 1, out 3) in " in call(*run).stderr
    assert json.loads(call(*run, "--json").stdout)["sinks"] == {"too late": 1, "out": 3}


def test_a_payload_without_the_field_names_the_option(call: Callable[..., Result]) -> None:
    result = call("run", "GRAPHS:made", "--source", "rows.csv", "--event-time", "moment")
    assert "--event-time lines=moment" in result.stderr and "no field 'moment'" in result.stderr


# Exit codes.


def test_a_bug_of_ours_is_1_with_its_traceback_and_a_request(
    call: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    for bug in (drift.DriftBug("a count is 2"), RuntimeError("unforeseen")):

        def broken(*arguments: object, error: Exception = bug, **more: object) -> None:
            raise error

        monkeypatch.setattr(drift.cli.run, "made_run", broken)
        result = call("run", "GRAPHS:graph", "--source", "words.txt")
        assert result.exit_code == 1
        assert "Traceback" in result.stderr and str(bug) in result.stderr and "please report it" in result.stderr
        result = call("run", "GRAPHS:graph", "--source", "words.txt", "--json")
        assert json.loads(result.stdout)["exit_code"] == 1


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["run"], "Missing argument"),
        (["run", "GRAPHS:graph", "--engine", "quantum"], "quantum"),
        (["run", "nowhere.py:graph"], "nowhere.py does not exist"),
        (["run", "no_such_module_at_all:graph"], "no file and no module"),
        (["run", "GRAPHS:grap"], "it has graph, failing, two, timed, apart, dying, made(), wrong(), raising()"),
        (["run", "GRAPHS"], "say which graph"),
        (["run", "GRAPHS:number"], "no drift.Graph"),
        (["run", "GRAPHS:of_one_argument"], "takes arguments"),
        (["run", "GRAPHS:graph"], "no input for source 'lines'"),
        (["run", "GRAPHS:graph", "--source", "linse=words.txt"], "has no source 'linse'; it has 'lines'"),
        (["run", "GRAPHS:two", "--source", "words.txt"], "say which source, as NAME=words.txt"),
        (["run", "GRAPHS:graph", "--source", "words.txt", "--source", "lines=words.txt"], "given twice"),
        (["run", "GRAPHS:two", "--source", "redis://me:hunter2@h"], "say which source, as NAME=redis://me:***@h"),
        (
            ["run", "GRAPHS:graph", "--source", "postgres://me:hunter2@h/db#t"],
            "postgres://me:***@h/db#t is to end in #TABLE:",
        ),
        (["run", "GRAPHS:graph", "--source", "words.xlsx"], "what is in words.xlsx?"),
        (["run", "GRAPHS:graph", "--source", "tcp://here"], "tcp://HOST:PORT"),
        (["run", "GRAPHS:graph", "--source", "words.txt", "--sink", "out.xyz"], "is none of PATH.jsonl, PATH.csv"),
        (["run", "GRAPHS:graph", "--source", "words.txt", "--sink", "-", "--json"], "give the sink a file"),
        (["run", "GRAPHS:graph", "--source", "words.txt", "--workers", "2"], "a setting of engine='zeromq'"),
        (["run", "GRAPHS:graph", "--source", "words.txt", "--in-flight-max", "0"], "in_flight_max=0"),
        (["run", "GRAPHS:graph", "--source", "words.txt", "--lateness", "5"], "add --event-time lines=FIELD"),
        (["run", "GRAPHS:timed", "--source", "rows.csv", "--lateness", "much"], "not a whole number"),
        (["run", "GRAPHS:timed", "--source", "rows.csv", "--lateness", "10 sm"], "not a whole number"),
        (["run", "GRAPHS:timed", "--source", "rows.csv", "--late", "drop"], "'divert'"),
        (["run", "GRAPHS:timed", "--source", "rows.csv", "--arrival", "row"], "no such source"),
        (["show", "GRAPHS:graph", "--mermaid", "--json"], "ask for one"),
        (["show", "GRAPHS:graph", "--picture", "graph.gif"], ".svg or .png"),
    ],
)
def test_a_wrong_call_is_2(call: Callable[..., Result], arguments: list[str], words: str) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert words in (result.stdout if "--json" in arguments else result.stderr)
    assert "Traceback" not in result.stderr
    if "--json" not in arguments:
        printed = call(*arguments, "--json")
        assert printed.exit_code == 2
        assert list(json.loads(printed.stdout))[:3] == ["error", "kind", "exit_code"]


def test_a_wrong_graph_is_3(call: Callable[..., Result]) -> None:
    result = call("run", "GRAPHS:wrong", "--source", "words.txt")
    assert result.exit_code == 3
    assert "error: graph 'wrong' has no sink" in result.stderr


def test_a_file_that_raises_is_3_and_shows_the_users_frames_only(call: Callable[..., Result], folder: Path) -> None:
    result = call("run", "GRAPHS:raising", "--source", "words.txt")
    assert result.exit_code == 3
    assert "raised KeyError: 'nothing'" in result.stderr and 'return {}["nothing"]' in result.stderr
    (folder / "broken_syntax.py").write_text("graph = (\n")
    (folder / "imports_nothing.py").write_text("import json\nimport no_such_module_at_all\n")
    assert "graph = (" in call("show", "broken_syntax.py:graph").stderr
    result = call("show", "imports_nothing.py:graph")
    assert result.exit_code == 3
    assert result.stderr.count("File ") == 1 and 'imports_nothing.py", line 2' in result.stderr


def test_a_failing_step_is_4_with_step_line_payload_and_frames(call: Callable[..., Result], folder: Path) -> None:
    run = ("run", "GRAPHS:failing", "--source", "-")
    result = call(*run, "--sink", "out.jsonl", stdin="good\ngood\nbad\n")
    assert result.exit_code == 4
    for words in ("step 'check'", "ValueError: cannot take it", "'bad'", "meta", "In the user's code", "fail_on_bad"):
        assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert "2 items were released before this" in result.stderr
    assert len((folder / "out.jsonl").read_text().splitlines()) == 2
    printed = json.loads(call(*run, "--json", stdin="good\nbad\n").stdout)
    assert (printed["kind"], printed["exit_code"], printed["step"], printed["report"]["items_out"]) == (
        "StepError",
        4,
        "check",
        1,
    )


def test_a_wrong_or_late_input_is_5(call: Callable[..., Result]) -> None:
    assert call("run", "GRAPHS:graph", "--source", "missing.txt").exit_code == 5
    result = call("run", "GRAPHS:timed", "--source", "rows.csv")
    assert result.exit_code == 5
    assert "set lateness to 2 or more" in result.stderr


def test_an_output_that_cannot_be_written_is_7(call: Callable[..., Result]) -> None:
    result = call("run", "GRAPHS:graph", "--source", "words.txt", "--sink", "missing/out.jsonl")
    assert result.exit_code == 7
    assert "cannot be opened for writing" in result.stderr


def test_ctrl_c_ends_an_endless_run_with_130_and_what_was_released_stands(folder: Path) -> None:
    process = started(
        folder, "run", "GRAPHS:made", "--source", "-", "--sink", "-",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"one\ntwo\nthree\n")
    process.stdin.flush()
    lines = [json.loads(process.stdout.readline())["payload"] for _ in range(3)]
    process.send_signal(signal.SIGINT)
    errors = process.communicate()[1].decode()
    assert (process.returncode, lines) == (130, ["one", "two", "three"])
    assert errors == "interrupted at position 3: the 3 items before it are released and intact\n"


def test_ctrl_c_ends_live_sources_and_worker_processes_too(folder: Path) -> None:
    process = started(
        folder, "run", "GRAPHS:made", "--source", "tcp://127.0.0.1:0", "--sink", "-", "--engine", "zeromq",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    printed = process.stderr.readline().decode()
    port = int(printed.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"one\ntwo\n")
        lines = [json.loads(process.stdout.readline())["payload"] for _ in range(2)]
        process.send_signal(signal.SIGINT)
        errors = process.communicate()[1].decode()
    assert (process.returncode, lines) == (130, ["one", "two"])
    assert "interrupted at position 2" in errors and "Traceback" not in errors


def test_sigterm_stops_a_run_well_from_its_first_line_on(
    call: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    echo = click.echo

    def told(text: str, **more: Any) -> None:
        echo(text, **more)
        if text.startswith("see the run at"):
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("click.echo", told)
    result = call("run", "GRAPHS:graph", "--source", "words.txt", "--web", "0")
    assert result.exit_code == 0
    assert "stopped by SIGTERM: the sources ended after 0 items" in result.stderr


@pytest.mark.parametrize("source", ["-", "text:pipe"])
def test_a_run_whose_pipe_is_silent_has_a_page_and_can_be_stopped(folder: Path, source: str) -> None:
    os.mkfifo(folder / "pipe")
    writes = os.open(folder / "pipe", os.O_RDWR)
    process = started(
        folder, "run", "GRAPHS:graph", "--source", source, "--web", "0",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    assert "see the run at" in process.stderr.readline().decode()
    process.send_signal(signal.SIGTERM)
    process.wait()
    assert "the sources ended after 0 items" in process.communicate()[1].decode()
    assert process.returncode == 0
    os.close(writes)


def test_ctrl_c_with_json_is_still_one_object(folder: Path) -> None:
    process = started(
        folder, "run", "GRAPHS:made", "--source", "-", "--sink", "out.jsonl", "--json",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(b"one\ntwo\n")
    process.stdin.flush()
    out = folder / "out.jsonl"
    wait_until(lambda: process.poll() is not None or (out.exists() and out.read_bytes().count(b"\n") == 2), "2 items")
    process.send_signal(signal.SIGINT)
    printed = json.loads(process.communicate()[0])
    assert (process.returncode, printed["exit_code"], printed["kind"]) == (130, 130, "Interrupted")
    assert printed["report"]["items_out"] == 2 and "digest" not in printed["report"]


@pytest.mark.parametrize("imported, flag", [("msgspec", "-q"), ("click", "--json"), ("msgpack", "-q")])
def test_ctrl_c_while_drift_is_imported_prints_no_traceback(folder: Path, imported: str, flag: str) -> None:
    come = "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\nexcept BaseException:\n    pass\n"
    (folder / f"{imported}.py").write_text(come)
    code = "import signal, drift_command\n"
    code += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell may have it ignored
    code += "drift_command.main()\n"
    call = [sys.executable, "-c", code, "run", "graphs.py:graph", flag]
    ended = subprocess.run(call, cwd=folder, capture_output=True, text=True, timeout=HANG_S)
    assert ended.returncode == 130
    if flag == "--json":
        printed = {"error": "interrupted before the run began", "kind": "Interrupted", "exit_code": 130}
        assert (json.loads(ended.stdout), ended.stderr) == (printed, "")
    else:
        assert (ended.stdout, ended.stderr) == ("", "interrupted before the run began\n")


def test_the_command_is_entered_before_drift_is_imported() -> None:
    (entry,) = metadata.entry_points(group="console_scripts", name="drift")
    code = "import sys; from drift_command import main; assert not {'drift', 'drift_graph', 'click'} & set(sys.modules)"
    assert entry.value == "drift_command:main"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("engine", ["local", "reference", "zeromq"])
def test_a_run_that_bad_input_ends_reports_the_digest_of_what_was_released(
    call: Callable[..., Result], folder: Path, engine: str
) -> None:
    whole = [{"n": n} for n in range(100)]
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in whole) + "{broken\n")
    printed = call("run", "GRAPHS:made", "--source", "rows.jsonl", "--engine", engine, "--json")
    report = json.loads(printed.stdout)["report"]
    assert (printed.exit_code, report["items_out"]) == (5, 100)
    assert report["digest"] == drift.run(passing(), {"lines": whole}).finish().digest


def test_a_run_that_a_poison_item_ends_reports_the_digest_of_what_was_released(call: Callable[..., Result]) -> None:
    printed = call("run", "GRAPHS:dying", "--source", "words.txt", "--engine", "zeromq", "--json")
    told = json.loads(printed.stdout)
    assert (printed.exit_code, told["kind"]) == (6, "ProcessError")
    assert told["report"]["digest"] == drift.run(passing(), {"lines": []}).finish().digest


# Show.


def test_show_prints_text_mermaid_or_json(call: Callable[..., Result]) -> None:
    assert call("show", "GRAPHS:graph").stdout.startswith("graph 'words': 1 source, 2 steps, 1 sink, 1 feedback edge\n")
    assert call("show", "GRAPHS:graph", "--mermaid").stdout.startswith("flowchart TD\n")
    shown = json.loads(call("show", "GRAPHS:graph", "--json").stdout)
    assert [operator["name"] for operator in shown["operators"]] == [
        "lines", "split", "count", "count.state", "count.output", "counts",
    ]  # fmt: skip
    assert {"origin": "count.state", "target": "count", "feedback": True} in shown["edges"]


def test_show_writes_a_picture(call: Callable[..., Result], folder: Path) -> None:
    pytest.importorskip("pygraphviz")
    assert call("show", "GRAPHS:graph", "--picture", "graph.svg").exit_code == 0
    assert (folder / "graph.svg").read_text().startswith("<svg ")
    assert call("show", "GRAPHS:graph", "--picture", "missing/graph.svg").exit_code == 7


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", [["show"], ["run", "--source", "lines=words.txt", "--digest", "-q"]])
def test_a_full_disk_behind_standard_output_is_reported_and_is_no_bug(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "graphs.py").write_text(GRAPHS)
    (tmp_path / "words.txt").write_text(WORDS)
    call = [sys.executable, "-m", "drift_command", arguments[0], "graphs.py:graph", *arguments[1:]]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(call, stdout=full, stderr=subprocess.PIPE, text=True, timeout=HANG_S, cwd=tmp_path)
    assert ended.returncode == 7
    assert ended.stderr == "error: standard output cannot be written: No space left on device\n"


def test_a_command_runs_where_standard_error_is_closed(tmp_path: Path) -> None:
    (tmp_path / "graphs.py").write_text(GRAPHS)
    (tmp_path / "words.txt").write_text(WORDS)
    words = [sys.executable, "-m", "drift_command", "run", "graphs.py:graph", "--source", "lines=words.txt", "--digest"]
    call = ["sh", "-c", '"$@" 2>&-', "sh", *words]
    ended = subprocess.run(call, stdout=subprocess.PIPE, text=True, timeout=HANG_S, cwd=tmp_path)
    assert (ended.returncode, len(ended.stdout.strip())) == (0, 32)


@pytest.mark.parametrize(
    "arguments", ["show graphs.py:graph", "--help", "run graphs.py:graph --source words.txt --digest"]
)
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_standard_output_that_is_closed_is_an_error_and_no_file_gets_its_number(
    tmp_path: Path, arguments: str, closed: str
) -> None:
    ended = shell(tmp_path, f"$DRIFT {arguments} {closed}")
    assert ended.returncode == 7
    assert ended.stderr == ("error: standard output cannot be written: Bad file descriptor\n" * ("2" not in closed))


@pytest.mark.parametrize(
    "arguments",
    [
        "run graphs.py:graph --source words.txt --sink -",
        *("show graphs.py:graph", "--help", "audit record", "explain record --position 0"),
    ],
)
def test_a_reader_that_goes_away_ends_every_command_alike(tmp_path: Path, arguments: str) -> None:
    line = "$DRIFT run graphs.py:graph --source words.txt --record record -q" if "record" in arguments else "true"
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        ended = shell(tmp_path, f"{line} && exec $DRIFT {arguments} >&{pipe.fileno()}", pass_fds=[pipe.fileno()])
    assert (ended.returncode, ended.stderr) == (7, "")


@pytest.mark.long
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8:strict"])
def test_output_is_the_same_bytes_whatever_the_locale(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "words.txt").write_text("sch\u00f6n \u2713\n")
    commands = ["run graphs.py:graph --source words.txt --sink - -q", "explain record --position 0", "audit record"]
    assert shell(tmp_path, "$DRIFT run graphs.py:graph --source words.txt --record record -q").returncode == 0
    for each in commands:
        ended, usual = (
            shell(tmp_path, f"PYTHONIOENCODING={each_encoding} $DRIFT {each}") for each_encoding in (encoding, "utf-8")
        )
        assert (ended.returncode, ended.stderr) == (0, "")
        assert ended.stdout == usual.stdout
        assert "audit" in each or "sch\u00f6n" in ended.stdout


def test_a_file_whose_name_is_no_text_is_shown(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"g\xff.py")).write_text(GRAPHS)
    ended = shell(tmp_path, "PYTHONIOENCODING=utf-8:strict $DRIFT show $'g\\xff.py:graph'")
    assert (ended.returncode, ended.stderr) == (0, "")


def shell(folder: Path, line: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Runs a line of a shell in a folder with the graphs and words, in which $DRIFT is the command."""
    (folder / "graphs.py").write_text(GRAPHS)
    if not (folder / "words.txt").exists():
        (folder / "words.txt").write_text(WORDS)
    environment = {**os.environ, "DRIFT": f"{sys.executable} -m drift_command"}
    call = ["bash", "-c", line]
    return subprocess.run(
        call, cwd=folder, env=environment, capture_output=True, encoding="utf-8", errors="surrogateescape",
        timeout=HANG_S, **more,
    )  # fmt: skip


@pytest.mark.parametrize("target", ["GRAPHS:", ":", "", "GRAPHS:a-b", "words:"])
def test_a_target_without_a_name_says_so(call: Callable[..., Result], target: str) -> None:
    ended = call("show", target)
    assert ended.exit_code == 2
    assert "names nothing" in ended.stderr and "as FILE:NAME" in ended.stderr


@pytest.mark.parametrize("command_name", ["show", "run", "simulate"])
@pytest.mark.parametrize("raised", ["SystemExit(3)", "GeneratorExit", "type('Odd', (BaseException,), {})('odd')"])
def test_whatever_a_file_raises_is_3(call: Callable[..., Result], folder: Path, command_name: str, raised: str) -> None:
    name = f"raising_{next(numbers)}.py"
    (folder / name).write_text(f"import drift\nraise {raised}\n")
    ended = call(command_name, f"{name}:graph")
    assert ended.exit_code == 3 and f'{name}", line 2, in <module>' in ended.stderr


def test_a_file_that_raises_keyboard_interrupt_is_named_where_it_cannot_be_ctrl_c(
    call: Callable[..., Result], folder: Path
) -> None:
    name = f"raising_{next(numbers)}.py"
    (folder / name).write_text("raise KeyboardInterrupt\n")
    ended = call("simulate", f"{name}:graph")
    assert ended.exit_code == 3 and f"{name} raised KeyboardInterrupt" in ended.stderr
    assert call("show", f"{name}:graph").exit_code == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_simulate_starts_ends_it_with_its_number(folder: Path, number: signal.Signals) -> None:
    (folder / "waiting.py").write_text("open('loading', 'w').close()\nimport threading\nthreading.Event().wait()\n")
    process = started(folder, "simulate", "waiting.py:graph", stderr=subprocess.PIPE)
    assert process.stderr is not None
    try:
        wait_until((folder / "loading").exists, "the file is being loaded")
        process.send_signal(number)
        assert process.stderr.read() == b"interrupted before the first seed\n"
        assert process.wait(HANG_S) == 128 + number
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_ctrl_c_ends_a_worker_that_waits_and_says_so(folder: Path) -> None:
    assert subprocess.run([sys.executable, "-m", "drift_command", "key", "run.key"], cwd=folder).returncode == 0
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        address = f"tcp://127.0.0.1:{nobody.getsockname()[1]}"
        process = started(folder, "worker", address, "--key", "run.key", "--stay", stderr=subprocess.PIPE)
        assert process.stderr is not None
        try:
            assert process.stderr.readline() == f"drift worker: waits for a run at {address}\n".encode()
            process.send_signal(signal.SIGINT)
            assert process.stderr.read() == b"interrupted; nothing of it runs here any more\n"
            assert process.wait(HANG_S) == 130
        finally:
            process.kill()
            process.wait()
            process.stderr.close()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--source", "in.jsonl", "--sink", "in.jsonl", "--on-existing", "replace"],
        ["--source", "in.jsonl", "--sink", "link.jsonl", "--on-existing", "replace"],
        ["--source", "in.jsonl", "--late-output", "in.jsonl"],
        ["--source", "in.jsonl", "--sink", "out.jsonl", "--late-output", "out.jsonl"],
        ["--source", "*.jsonl", "--sink", "out.jsonl"],
        ["--source", "jsonl:.", "--sink", "out.jsonl"],
        ["--source", "follow:in.jsonl", "--sink", "in.jsonl"],
        ["--source", "parquet:rows", "--sink", "parquet:rows", "--on-existing", "replace"],
    ],
)
def test_nothing_is_written_over_what_is_read(call: Callable[..., Result], folder: Path, arguments: list[str]) -> None:
    (folder / "in.jsonl").write_text('"a"\n' * 3)
    (folder / "link.jsonl").symlink_to("in.jsonl")
    (folder / "rows").mkdir()
    ended = call("run", "GRAPHS:made", *arguments)
    assert ended.exit_code == 2 and ("reads" in ended.stderr or "both given" in ended.stderr)
    assert (folder / "in.jsonl").read_text() == '"a"\n' * 3
    assert not (folder / "out.jsonl").exists() and not list((folder / "rows").iterdir())


def test_output_beside_what_is_read_is_no_concern(call: Callable[..., Result], folder: Path) -> None:
    pytest.importorskip("pyarrow")
    (folder / "data").mkdir()
    (folder / "data" / "in.jsonl").write_text('"a"\n')
    assert call("run", "GRAPHS:made", "--source", "jsonl:data", "--sink", "data/out.parquet").exit_code == 0
    assert call("run", "GRAPHS:made", "--source", "data/*.jsonl", "--sink", "out.jsonl").exit_code == 0
    assert call("run", "GRAPHS:made", "--source", "*.jsonl", "--sink", "data/below.jsonl").exit_code == 0
    nowhere = ["--source", "text:/dev/null", "--sink", "jsonl:/dev/null", "--late-output", "/dev/null"]
    assert call("run", "GRAPHS:made", *nowhere).exit_code == 0


def test_a_field_is_named_the_same_way_wherever_an_option_takes_one() -> None:
    from drift.cli.specs import TimeOptions, policies

    class Trip:
        minute = 7

    graph = drift.Graph("trips")
    graph.source("trips").sink("out")
    rows: list[tuple[str, Any]] = [("0", (7, "x")), ("-1", ["x", 7]), ("minute", {"minute": 7}), ("0", {"0": 7}),
                                   ("minute", Trip())]  # fmt: skip
    for field, payload in rows:
        policy = policies(graph.build(), TimeOptions(event_time=[field], tie=[field]))["trips"]
        assert isinstance(policy, drift.EventTime) and policy.tie is not None
        assert policy.time(payload) == policy.tie(payload) == 7
    for field, payload in [("2", (7, "x")), ("hour", {"minute": 7}), ("0", 7), ("hour", Trip())]:
        policy = policies(graph.build(), TimeOptions(event_time=[field]))["trips"]
        assert isinstance(policy, drift.EventTime)
        with pytest.raises(LookupError, match=f"the payload has no field '{field}'"):
            policy.time(payload)


@pytest.mark.parametrize(
    "words, found",
    [
        ("run ", {"plain,graphs_0.py:", "plain,sub/"}),
        ("run graphs_0.py:", {"plain,graphs_0.py:graph", "plain,graphs_0.py:made"}),
        ("show graphs_0.py:gr", {"plain,graphs_0.py:graph"}),
        ("audit record --graph graphs_0.py:ma", {"plain,graphs_0.py:made"}),
        ("run missing.py:", set()),
        ("run sub/", set()),
    ],
)
def test_a_shell_completes_graphs_without_running_their_file(words: str, found: set[str], tmp_path: Path) -> None:
    code = "import drift\nraise SystemExit('it ran')\ngraph = drift.Graph('g')\ndef made() -> drift.Graph: ...\n"
    (tmp_path / "graphs_0.py").write_text(f"{code}def other(): ...\n")
    (tmp_path / "sub").mkdir()
    variables = {"_DRIFT_COMPLETE": "bash_complete", "COMP_WORDS": f"drift {words}"}
    variables["COMP_CWORD"] = str(len(words.split(" ")))
    call = [str(Path(sys.executable).parent / "drift")]
    done = subprocess.run(call, cwd=tmp_path, env={**os.environ, **variables}, capture_output=True, text=True)
    assert set(done.stdout.split()) == found, done.stderr
