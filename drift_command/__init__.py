"""The entry point of `drift` and `python -m drift_command`: it begins by having Ctrl-C end it at once, with 130.

Invariant: from the first line of `main` on, Ctrl-C prints no traceback, whatever is being imported.

Why it is a package of its own: to import a module of `drift` imports `drift`, which takes longer than a hasty Ctrl-C.
Why a handler that ends the process, and no KeyboardInterrupt: some libraries take any exception in their imports for
that of a part that is not installed. Nothing has been started or opened then that would have to be closed.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType

_INTERRUPTED = "interrupted before the run began"


def main() -> None:
    """Run the command."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # and not ignored, as a shell has it for what runs in the background
        signal.signal(signal.SIGINT, _end)
    gc.disable()  # what an import makes stays: looking for garbage meanwhile takes a sixth of the time, for nothing
    from drift.cli import drift

    drift.get_command(None, next((each for each in sys.argv[1:] if each[:1] != "-"), ""))
    gc.enable()

    try:
        signal.signal(signal.SIGINT, usual)
        drift.main()
    except KeyboardInterrupt:  # in the steps before drift.main and after it, which tells its own
        _end(signal.SIGINT, None)


def _end(number: int, frame: FrameType | None) -> None:
    if "--json" in sys.argv:
        os.write(1, f'{{"error":"{_INTERRUPTED}","kind":"Interrupted","exit_code":130}}\n'.encode())
    else:
        os.write(2, f"{_INTERRUPTED}\n".encode())
    os._exit(130)
