"""Records on the command line: `drift run --record`, `replay`, `audit`, `record`."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from waiting import HANG_S, wait_until

from drift.auditing.intact import intact_checks
from drift.cli import drift as command
from drift.records.format import read_manifest, read_snapshot
from drift.records.reader import Record
from drift.records.watch import Watch

EXAMPLES = Path(__file__).parents[2] / "examples"
HAMLET = EXAMPLES / "data" / "hamlet.txt.gz"
DIGEST = "8f910679789bbbadca3cac49055b0332"


def call(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "record"
    result = call("run", f"{EXAMPLES / 'wordcount.py'}:graph", "--source", HAMLET, "--record", path, "--digest", "-q")
    assert result.stdout == f"{DIGEST}\n", result.output
    return path


def test_a_recorded_run_is_replayed_and_audited(recorded: Path, tmp_path: Path) -> None:
    assert read_manifest(recorded).target == f"{EXAMPLES / 'wordcount.py'}:graph"
    assert call("replay", recorded, "--digest", "-q").stdout == f"{DIGEST}\n"
    report = json.loads(call("replay", recorded, "--until", 100, "--json").stdout)
    assert (report["items_out"], report["graph"]) == (100, "wordcount")
    assert call("replay", recorded, "--until", 3, "--sink", "text:-", "-q").stdout.count("\n") == 3
    result = call("audit", recorded)
    assert result.exit_code == 0 and "intact: yes, reproduced: yes" in result.stdout
    audit = json.loads(call("audit", recorded, "--intact", "--json").stdout)
    assert audit["ok"] and {check["level"] for check in audit["checks"]} == {"intact"}


def test_a_sink_of_a_replay_is_continued(recorded: Path, tmp_path: Path) -> None:
    path = tmp_path / "counts.jsonl"
    call("replay", recorded, "--until", 1000, "--sink", path, "-q")
    assert path.read_text().count("\n") == 1000
    call("replay", recorded, "--engine", "zeromq", "--workers", 2, "--sink", path, "-q")
    assert path.read_text().count("\n") == 31656


def test_two_sinks_of_a_replay_are_not_given_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("two.py").write_text(
        "import drift\ngraph = drift.Graph('two')\nwords = graph.source('words')\n"
        "words.sink('all')\nwords.count(str).sink('counts')\nwords.map(len).sink('lengths')\n"
    )
    Path("words.txt").write_text("to\nbe\n")
    call("run", "two.py:graph", "--source", "words.txt", "--record", "record", "-q")
    for again in ("all.jsonl", "jsonl:all.jsonl", "./all.jsonl"):
        sinks = ["--sink", "all=all.jsonl", "--sink", f"counts={again}", "--sink", "lengths=-"]
        result = call("replay", "record", *sinks)
        assert (result.exit_code, Path("all.jsonl").exists()) == (2, False)
        assert "sinks 'all' and 'counts' are given one file" in result.stderr
    result = call("replay", "record", "--sink", "all=all.jsonl", "--late-output", "./all.jsonl")
    assert (result.exit_code, Path("all.jsonl").exists()) == (2, False)
    assert "sink 'all' and the late output are both given ./all.jsonl; give each its own" in result.stderr
    assert call("replay", "record", "--sink", "all=-", "--sink", "counts=-", "-q").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["audit"], b"computing it again, by local"),
        (["explain", "--position", "31000"], b"looking for what it was made of"),
        (["diff", "ITSELF"], b"record"),
    ],
)
def test_a_line_on_a_terminal_says_how_far_it_has_come(arguments: list[str], says: bytes, recorded: Path) -> None:
    ours, theirs = pty.openpty()
    given = [str(recorded) if each == "ITSELF" else each for each in arguments[1:]]
    process = subprocess.Popen(
        [sys.executable, "-m", "drift_command", arguments[0], str(recorded), *given],
        stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm", "COLUMNS": "300"},
    )  # fmt: skip
    os.close(theirs)
    drawn = b""
    with suppress(OSError):  # how a pseudo-terminal ends on Linux
        while chunk := os.read(ours, 4096):
            drawn += chunk
    os.close(ours)
    assert process.communicate()[0] and process.returncode == 0
    assert says in drawn and b"0:0" in drawn and drawn.rstrip().endswith(b"\x1b[2K")


def test_what_is_read_is_reported_by_rows(recorded: Path) -> None:
    record = Record(recorded)
    record.watch.begin("reading", record.counts)
    assert str(record.watch) == "reading"
    shown = [str(record.watch) for _ in record.with_classes({}).output_rows(31_000)]
    assert shown == ["reading: output 31,656 of 31,656 items (100%)"]
    watch = Watch()
    shown = [
        f"{check.what.split(':')[0]} after {watch}" for check in intact_checks(recorded, read_snapshot(recorded), watch)
    ]
    assert shown[-1] == "output after hashing items: output 31,656 of 31,656 items (100%)"
    assert shown[1] == "arrivals after reading arrivals/part-00000.parquet"


def test_trouble_is_exit_code_8(recorded: Path, tmp_path: Path) -> None:
    subprocess.run(["cp", "-r", str(recorded), str(tmp_path / "record")], check=True)
    (tmp_path / "record" / "output" / "part-00000.parquet").unlink()
    result = call("audit", tmp_path / "record", "--intact")
    assert result.exit_code == 8
    assert "file lost: output/part-00000.parquet (rows 0 to 31,655) is not there" in result.stdout
    audit = json.loads(call("audit", tmp_path / "record", "--intact", "--json").stdout)
    assert not audit["ok"] and audit["checks"][3]["troubles"][0]["kind"] == "file lost"
    assert call("audit", tmp_path / "record", "--intact", "-q").output == ""


def test_wrong_calls_say_what_to_do(recorded: Path, tmp_path: Path) -> None:
    again = call("run", f"{EXAMPLES / 'wordcount.py'}:graph", "--source", HAMLET, "--record", recorded)
    assert again.exit_code == 2 and "a record is never overwritten" in again.stderr
    assert call("replay", tmp_path / "none").exit_code == 5
    assert call("audit", tmp_path).exit_code == 5
    assert call("replay", recorded, "--graph", "nothing.py:graph").exit_code == 2
    printed = call("replay", recorded, "--sink", "-", "--json")
    assert printed.exit_code == 2 and "give the sink a file" in printed.stdout
    other = call("replay", recorded, "--graph", f"{EXAMPLES / 'flights.py'}:graph")
    assert other.exit_code == 3 and "needs the same sources" in other.stderr


def test_a_record_is_signed_and_verified(recorded: Path, tmp_path: Path) -> None:
    subprocess.run(["cp", "-r", str(recorded), str(tmp_path / "record")], check=True)
    key = tmp_path / "key"
    assert call("record", "keygen", key).exit_code == 0
    assert call("audit", tmp_path / "record", "--intact", "--verify", f"{key}.pub").exit_code == 8
    assert "signed 5 files" in call("record", "sign", tmp_path / "record", "--key", key).stdout
    assert call("audit", tmp_path / "record", "--intact", "--verify", f"{key}.pub").exit_code == 0
    assert call("record", "keygen", key).exit_code == 2
    assert call("audit", tmp_path / "record", "--intact", "--verify", key).exit_code == 2
    expected = read_manifest(tmp_path / "record").self_hash
    assert call("audit", tmp_path / "record", "--intact", "--expect", expected).exit_code == 0
    assert call("audit", tmp_path / "record", "--intact", "--expect", "0" * 32).exit_code == 8


@pytest.mark.parametrize("command", ["audit", "explain", "diff"])
def test_ctrl_c_while_a_record_is_read_says_that_it_is_as_it_was(
    command: str, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("drift.records.reader.Record.blocks", interrupted)
    monkeypatch.setattr("drift.records.reader.Record.item", interrupted)
    monkeypatch.setattr("drift.records.reader.Record.output_rows", interrupted)
    more: list[object] = {"audit": [], "explain": ["--position", 1], "diff": [recorded]}[command]
    result = call(command, recorded, *more)
    assert (result.exit_code, result.stderr) == (130, "interrupted; the record is as it was\n")


def test_ctrl_c_leaves_a_record_that_was_stopped(tmp_path: Path) -> None:
    script = tmp_path / "stream.py"
    script.write_text("import drift\ngraph = drift.Graph('stream')\ngraph.source('lines').count(str).sink('counts')\n")
    arguments = ["run", f"{script}:graph", "--source", "-", "--record", str(tmp_path / "record"), "-q"]
    process = subprocess.Popen([sys.executable, "-m", "drift_command", *arguments], stdin=subprocess.PIPE)
    assert process.stdin is not None
    manifest = tmp_path / "record" / "manifest.json"
    process.stdin.write(b"a\nb\na\n")
    process.stdin.flush()
    wait_until(lambda: process.poll() is not None or manifest.exists(), "the writer runs, and so does the run")
    process.send_signal(signal.SIGINT)
    assert process.wait(HANG_S) == 130
    found = read_manifest(tmp_path / "record")
    assert (found.outcome.state, found.outcome.kind) == ("stopped", "KeyboardInterrupt")
    assert call("audit", tmp_path / "record").exit_code == 0
