"""What leaves nothing behind, once more in a process of its own: there, what is open is what these tests opened."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parents[1]


def test_sources_and_states_leave_no_thread_and_no_descriptor() -> None:
    files = [file for file in sorted(HERE.glob("*/test_*.py")) if "nothing_left" in file.read_text()]
    files.remove(Path(__file__))
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, files)]
    done = subprocess.run(
        pytest, cwd=HERE.parent, env={**os.environ, "DRIFT_ALONE": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    assert " passed" in done.stdout
