"""Processes that a run starts: what they are called, and that nothing of them is left, whenever what is killed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import HANG_S, processes_with, wait_until

import drift
from drift import children, parent
from drift.children import Channel, head_of
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


FORKING = f"""
import os, sys
if os.fork():
    os.write(int(sys.argv[1]), {(head_of(b"forked") + b"forked")!r})
sys.stdin.buffer.read()  # the fork has the pipe to the caller, too
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the end of a process is a descriptor on Linux")
def test_who_waits_for_a_process_learns_that_it_has_died_although_a_fork_has_its_pipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channel = Channel("forking", program=FORKING)
    assert channel.wait_for(HANG_S) == b"forked"

    class KillsFirst:
        """A poll that waits when the process was alive at the last look."""

        def __init__(self) -> None:
            self._poll = select.poll()
            self.register = self._poll.register

        def poll(self, timeout_ms: float | None = None) -> list[tuple[int, int]]:
            os.kill(channel.pid, signal.SIGKILL)
            found = self._poll.poll(HANG_S * 100)
            assert found, "nobody noticed that the process has died"
            return found

    monkeypatch.setattr(children, "select", SimpleNamespace(poll=KillsFirst, POLLIN=select.POLLIN))
    try:
        assert channel.wait_for() is None
        assert channel.how_it_ended() == "was killed by SIGKILL"
    finally:
        channel.close_input()  # ends the fork
        channel.end()


class NeverStarted:
    def __init__(self, **_: Any) -> None: ...

    def start(self) -> None: ...


def test_what_waits_to_be_taken_from_a_parent_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = b"".join(head_of(b"x" * 10) + b"x" * 10 for _ in range(20))
    waiting: list[int] = []

    class Pipe:
        """A stream that notes how much waits whenever more is read."""

        def __init__(self) -> None:
            self._left = frames

        def readinto(self, buffer: memoryview) -> int:
            waiting.append(reading._bytes)
            some, self._left = self._left[: len(buffer)], self._left[len(buffer) :]
            buffer[: len(some)] = some
            return len(some)

    class TakesOne(threading.Condition):
        """Who takes messages does so only while the reading thread waits."""

        def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
            while not predicate():
                taken.append(reading.take())
            return True

    taken: list[Any] = []
    monkeypatch.setattr(parent, "threading", SimpleNamespace(**vars(threading) | {"Thread": NeverStarted}))
    reading = parent.Parent(0, None, waiting_bytes_max=35, stream=Pipe())
    reading._changed = TakesOne()
    reading._read()
    assert max(waiting) == 30 and len(taken) == 17
    assert [bytes(frame) for frame in taken] == [b"x" * 10] * 17


def test_a_child_runs_the_version_that_its_parent_runs_and_not_one_that_is_installed(tmp_path: Path) -> None:
    installed, ours = tmp_path / "site-packages", tmp_path / "checkout"
    for folder, said in ((installed, "installed"), (ours, "ours")):
        folder.mkdir()
        (folder / "of_both.py").write_text(f"def main():\n    print({said!r})\n")
    program, arguments = children.main_of("of_both", str(ours))
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-P", "-c", program.replace("sys.argv[2:]", "sys.argv[1:2]"), *arguments]
    assert subprocess.check_output(command, text=True, env=environment) == "ours\n"
