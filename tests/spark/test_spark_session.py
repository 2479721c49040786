"""Spark starts without configuration, says what is missing, prints nothing of its own, and leaves nothing behind.

(That `drift run --engine spark` prints the digest and nothing else is shown, and tried, in docs/spark.md.)
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from waiting import processes_with, wait_until

import drift
from drift.spark.errors import as_drift_error
from drift.spark.folders import make_folder, remove_folder
from drift.spark.sessions import start

EXAMPLES = Path(__file__).parents[2] / "examples"


def drift_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "drift_command", *arguments]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """One that nothing of ours is in, but for a mark, a folder for temporary files, and how its JVM compiles."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    kept["SPARK_SUBMIT_OPTS"] = os.environ["SPARK_SUBMIT_OPTS"]
    return {**kept, "SPARK_HOME": "", "TMPDIR": str(temporary), "DRIFT_MARK": str(tmp_path)}


SLOW = """
import time
import drift

def slow(number):
    if number == 3:
        print("here", flush=True)
        open({mark!r}, "w").close()
        time.sleep(600)
    return number

graph = drift.Graph("slow")
graph.source("numbers").map(slow).sink("out")
"""


def test_ctrl_c_ends_the_run_and_everything_it_started(environment: dict[str, str], tmp_path: Path) -> None:
    mark = tmp_path / "running"
    (tmp_path / "slow.py").write_text(SLOW.format(mark=str(mark)))
    (tmp_path / "numbers.jsonl").write_text("".join(f"{number}\n" for number in range(10)))
    command = drift_command(
        "run", "slow.py:graph", "--source", "numbers.jsonl", "--engine", "spark", "--master", "local[1]"
    )
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: mark.exists() or process.poll() is not None, "it runs")
    process.send_signal(signal.SIGINT)
    _, told = process.communicate()
    assert (process.returncode, told) == (130, "interrupted before the first item\n")
    wait_until(lambda: not processes_with(environment["DRIFT_MARK"]), "all processes have ended")
    assert list(Path(environment["TMPDIR"]).iterdir()) == []


def test_the_workers_of_a_users_own_session_run_this_python(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(spark, "_drift_folder")  # as if the user had started it
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python-that-is-not-there")
    graph = drift.Graph("doubled")
    graph.source("numbers").map(lambda number: 2 * number).sink("out")
    run = drift.run(graph, {"numbers": range(5)}, engine="spark", spark=spark, partitions=1)
    assert [item.payload for item in run] == [0, 2, 4, 6, 8]


LEFT = """
import os, signal
from drift.spark.folders import make_folder

print(make_folder("drift-left-"), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", LEFT], capture_output=True, text=True)
    left = Path(done.stdout.strip())
    assert (done.returncode, left.is_dir()) == (-signal.SIGKILL, True)
    first = make_folder("drift-left-")
    second = make_folder("drift-left-")
    assert (left.exists(), first.exists(), second.exists()) == (False, True, True)
    remove_folder(first)
    remove_folder(second)
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("drift.spark.sessions._has_context", lambda: False)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(drift.ProcessError, match=r"there is no Java: .*apt install openjdk-17"):
        start("local[1]")
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    with pytest.raises(drift.ProcessError, match=r"is Java 8\. Spark needs Java 17 or newer"):
        start("local[1]")


def test_what_ended_spark_while_it_started_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended:
        def __getattr__(self, name: str) -> Any:
            return self

        def __call__(self, *arguments: str) -> Any:
            return self

        def getActiveSession(self) -> None:
            return None

        def getOrCreate(self) -> None:
            raise RuntimeError("calling None.A.\n: java.lang.B: Cannot call methods on a stopped SparkContext.\n\tat C")

    monkeypatch.setattr("drift.spark.sessions._has_context", lambda: False)
    monkeypatch.setattr("drift.spark.sessions._end_jvm", lambda: None)
    monkeypatch.setattr("drift.spark.sessions._imported", Ended)
    with pytest.raises(
        drift.ProcessError, match=r"^Spark did not start at 'x': java.lang.B: .*SparkContext\. The clus"
    ):
        start("x")


@pytest.mark.parametrize(("said", "told"), [
    ("... ModuleNotFoundError: No module named 'ours'", r"a worker cannot import 'ours': send it to the cluster"),
    ("java.lang.OutOfMemoryError: Java heap space", r"raise spark\.driver\.memory"),
    ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", r"a Python worker died"),
    ("Job aborted\n  File x\nValueError: odd\n\n\tat java.base/Thread.run", r"Spark gave up: ValueError: odd"),
])  # fmt: skip
def test_what_spark_says_becomes_one_line(said: str, told: str) -> None:
    with pytest.raises(drift.ProcessError, match=told) as raised:
        raise as_drift_error(RuntimeError(said))
    assert "\n" not in str(raised.value)


def test_the_flights_have_one_digest_live_backfilled_and_audited(environment: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, EXAMPLES / "backfill.py", tmp_path]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    digests = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("digest ")]
    assert digests == 3 * ["a21eaf61df0638bad75a92824b7a3629"]
    assert (tmp_path / "delays.png").read_bytes().startswith(b"\x89PNG")
    wait_until(lambda: not processes_with(environment["DRIFT_MARK"]), "all processes have ended")
    assert list(Path(environment["TMPDIR"]).iterdir()) == []
