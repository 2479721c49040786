"""A run whose loop is left without a close, as by Ctrl-C in its body, is closed in order when the interpreter exits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from waiting import HANG_S, wait_until

import drift

PROGRAM = """
import os, signal, sys
import drift

def counted(state, n):
    return state + 1, (n, "x" * 100, state)

graph = drift.Graph("g")
graph.source("in").scan(lambda n: n % 3, 0, counted, name="counting").sink("out")

def made(kind):
    several = {"engine": "zeromq", "workers": 2}
    checkpoints = drift.Checkpoints("state", every_s=0)
    settings = {
        "local": {}, "large": {}, "zeromq": several, "record": {"record": "record"}, "state": {"state": checkpoints},
        "state over zeromq": {**several, "state": checkpoints, "in_flight_max": 1000},
        "parquet": {"sinks": {"out": drift.sinks.parquet("rows", columns=["n", "text", "count"])}},
    }[kind]
    return drift.run(graph, {"in": range(20_000)}, batch_items=100, **settings)

if __name__ == "__main__":
    if sys.argv[1] == "large":
        import drift.spilled
        drift.spilled.MEMORY_BYTES = 100
    run = made(sys.argv[1])
    store = run._run_checkpoints and run._run_checkpoints._store
    for item in run:
        if item.position < 5000 or item.position % 100:
            continue
        if store:
            store.wait()
        if not store or os.listdir("state/cuts"):
            print(item.position, flush=True)
            os.kill(os.getpid(), signal.SIGINT)
"""


def left_by_ctrl_c(folder: Path, kind: str) -> int:
    """Runs the program until Ctrl-C in its loop, of which the position is returned: nothing is said of the run, and of
    it stays nothing.
    """
    (folder / "program.py").write_text(PROGRAM)
    (folder / "temporary").mkdir()
    child = subprocess.Popen(
        [sys.executable, "program.py", kind],
        cwd=folder,
        env=os.environ | {"TMPDIR": str(folder / "temporary")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    position, errors = child.communicate(timeout=HANG_S)
    assert child.returncode in (-signal.SIGINT, 1)  # 1 where PyArrow is loaded meanwhile, which runs code as a text
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert errors.count("Traceback") == 1
    assert "ignored" not in errors

    def gone() -> bool:
        try:
            os.killpg(child.pid, 0)
        except ProcessLookupError:
            return True
        return False

    wait_until(gone, "all processes of the child have ended")
    assert not [*(folder / "temporary").iterdir()]
    return int(position)


@pytest.mark.parametrize("kind", ["local", "large", "zeromq"])
def test_a_run_that_is_left_is_closed(kind: str, tmp_path: Path) -> None:
    left_by_ctrl_c(tmp_path, kind)


def test_what_a_sink_had_taken_is_written(tmp_path: Path) -> None:
    left_by_ctrl_c(tmp_path, "parquet")
    (part,) = (tmp_path / "rows").iterdir()
    assert int(part.stem.rpartition("-")[2]) >= 5000


def test_a_record_has_what_was_released(tmp_path: Path) -> None:
    left_by_ctrl_c(tmp_path, "record")
    assert drift.replay(tmp_path / "record", program(tmp_path)["graph"]).finish().items_out > 5000


@pytest.mark.parametrize("kind", ["state", "state over zeromq"])
def test_the_last_checkpoint_is_complete(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left_at = left_by_ctrl_c(tmp_path, kind)
    monkeypatch.chdir(tmp_path)
    made = program(tmp_path)["made"]
    again = made(kind)
    position = again.resumed_from.output.position
    assert 0 < position <= left_at
    assert next(iter(again)).position == position
    assert again.finish().digest == made("local").finish().digest


def program(folder: Path) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "program"}
    exec(compile(PROGRAM, str(folder / "program.py"), "exec"), names)
    return names


WAITING = """
import threading
import drift

inside = threading.Event()

def blocking():
    yield 1
    inside.set()
    threading.Event().wait()

graph = drift.Graph("g")
graph.source("in").sink("out")
run = drift.run(graph, {"in": blocking()})
threading.Thread(target=run.finish, daemon=True).start()
inside.wait()
"""


def test_a_thread_inside_a_run_that_never_comes_back_does_not_hold_the_exit_up(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WAITING], cwd=tmp_path, timeout=HANG_S, check=False)
    assert done.returncode == 0
