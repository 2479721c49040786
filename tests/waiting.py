"""Waiting for what must come, however busy the machine is: for a state, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import drift

#: Only what is broken takes so long: no verdict depends on it.
HANG_S = 600.0


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < deadline, f"still not: {what}"
        time.sleep(0.01)


def wait_until_stored(run: drift.Run) -> None:
    """Until the checkpoint is stored that is being written: no other is taken before that."""
    assert run._run_checkpoints is not None
    run._run_checkpoints._store.wait()


def command_of(process: int | str) -> bytes:
    """The command line of a process; nothing if it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def processes_with(mark: str) -> list[str]:
    """The command lines of the processes that carry a mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text())
        except OSError:  # it has ended, or is somebody else's
            continue
    return found
