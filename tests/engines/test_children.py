"""Processes that a run starts: what they are called, and that nothing of them is left, whenever what is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest
from waiting import HANG_S, processes_with, wait_until

import drift
from drift.engines.zeromq.control import Awake
from drift.engines.zeromq.engine import ZeromqEngine

RUN = """
import itertools, os, sys
import drift
{before}
graph = drift.Graph("endless")
graph.source("numbers").map(lambda n: n + 1).sink("out")
run = drift.run(graph, {{"numbers": itertools.count()}}, engine="zeromq", workers=2, check_purity=True)
for batch in run.batches():
    print("runs", flush=True)
    break
{after}
"""


def started(folder: Path, before: str = "", after: str = "", **more: str) -> subprocess.Popen[str]:
    program = RUN.format(before=textwrap.dedent(before), after=textwrap.dedent(after))
    environment = {**os.environ, "TMPDIR": str(folder), "DRIFT_MARK": str(folder), **more}
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


#: Where the calling process is killed: by itself, when it comes to such a call. Each is about to be made, or was.
MOMENTS = [
    f"{where}:{number}:{when}"
    for where, numbers in (("subprocess.Popen.__init__", (1, 2)), ("zmq.Context.socket", (1, 3)), ("os.mkdir", (1,)))
    for number in numbers
    for when in ("before", "after")
]
KILLED = """
    import signal, subprocess, time, zmq
    where, number, when = {moment!r}.split(":")
    path, _, name = where.rpartition(".")
    owner = eval(path)
    real, calls = getattr(owner, name), itertools.count(1)
    def call(*arguments, **named):
        dies = next(calls) == int(number)
        if dies and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*arguments, **named)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(owner, name, call)
"""


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_caller_killed_while_processes_start_leaves_no_process_folder_or_traceback(
    moment: str,
) -> None:
    with tempfile.TemporaryDirectory() as short:  # a socket's path may have 107 bytes
        folder = Path(short)
        process = started(folder, KILLED.format(moment=moment))
        _, errors = process.communicate(timeout=HANG_S)  # until nobody has the pipe open
        assert process.returncode == -signal.SIGKILL, errors
        wait_until(lambda: not processes_with(f"DRIFT_MARK={folder}"), "all processes are gone")
        assert errors == ""
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize("delay_ms", [60, 150, 300, 450, 600, 900])
def test_a_caller_killed_at_any_time_leaves_nothing(delay_ms: int) -> None:
    """Times that hit other places on each machine; what must hold holds at all of them."""
    with tempfile.TemporaryDirectory() as short:
        folder = Path(short)
        before = f"""
            import threading, signal
            threading.Timer({delay_ms / 1000}, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
            """
        process = started(folder, before, "import time; time.sleep(1000)")
        _, errors = process.communicate(timeout=HANG_S)
        wait_until(lambda: not processes_with(f"DRIFT_MARK={folder}"), "all processes are gone")
        assert (errors, list(folder.iterdir())) == ("", [])


def test_a_fork_that_lives_on_keeps_no_process_alive() -> None:
    with tempfile.TemporaryDirectory() as short:
        folder = Path(short)
        after = """
            child = os.fork()
            if not child:
                import time
                os.close(2)
                time.sleep(1000)
            print(child, flush=True)
            import signal, time
            os.kill(os.getpid(), signal.SIGKILL)
            """
        process = started(folder, "", after)
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        fork = int(process.stdout.readline())
        try:
            process.wait(HANG_S)
            wait_until(lambda: len(processes_with(f"DRIFT_MARK={folder}")) == 1, "only the fork is left")
            assert list(folder.iterdir()) == []
        finally:
            os.kill(fork, signal.SIGKILL)


def test_processes_have_titles(tmp_path: Path) -> None:
    graph = drift.Graph("it's a\nü graph")
    graph.source("numbers").map(lambda n: n).sink("out")
    record = tmp_path / "monday"
    run = drift.run(graph, {"numbers": range(9)}, engine="zeromq", workers=2, check_purity=True, record=record)
    next(run.batches())
    engine = run._engine
    assert isinstance(engine, ZeromqEngine)
    lines = {each.name: Path(f"/proc/{each.process.pid}/cmdline").read_bytes() for each in engine._children}
    run.close()
    name = rb"of it's a\n\xfc graph"
    assert {each: line.split(b"-c\0")[1].split(b"\n")[0][1:-1] for each, line in lines.items()} == {
        each: b"drift " + each.encode() + b" " + name for each in ("worker 0", "worker 1")
    }


def test_a_clock_of_what_was_watched_stands_still_with_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("drift.engines.zeromq.control.time.monotonic", lambda: now_s)
    awake = Awake(1.0)
    now_s += 0.5
    assert awake.now_s() == 0.5
    now_s += 5000
    assert awake.now_s() == 1.5
    assert awake.now_s() == 1.5


def test_a_run_that_was_suspended_resumes() -> None:
    """All its processes, as by Ctrl-Z, a container's freezer, or a lid that is closed."""
    after = """
        graph = drift.Graph("slept")
        graph.source("numbers").map(lambda n: n + 1).group(lambda n: n % 3, 2).sink("out")
        def numbers():
            for n in range(3000):
                yield n
                if n == 1000:
                    print("sleeps", *(each.process.pid for each in run._engine._children), flush=True)
                    sys.stdin.readline()
        run = drift.run(graph, {"numbers": numbers()}, engine="zeromq", workers=2, silence_max_s=2.0, call_max_s=2.0)
        print(run.finish().digest)
        """
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys, drift\n" + textwrap.dedent(after)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    _, *others = process.stdout.readline().split()
    everybody = [process.pid, *map(int, others)]
    for pid in everybody:
        os.kill(pid, signal.SIGSTOP)
    for pid in everybody:
        wait_until(lambda pid=pid: ") T " in Path(f"/proc/{pid}/stat").read_text(), "it is suspended")  # type: ignore[misc]
    time.sleep(4.0)  # longer than the silence that counts; the verdict hangs on no time
    os.kill(process.pid, signal.SIGCONT)
    assert process.stdin is not None
    process.stdin.write("on\n")
    process.stdin.flush()
    time.sleep(0.1)  # the caller looks before the others wake
    for pid in everybody:
        os.kill(pid, signal.SIGCONT)
    output, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, errors
    graph = drift.Graph("slept")
    graph.source("numbers").map(lambda n: n + 1).group(lambda n: n % 3, 2).sink("out")
    assert output.strip() == drift.run(graph, {"numbers": range(3000)}).finish().digest
