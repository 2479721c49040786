"""Another folder and another time zone than the caller's, for the processes of a purity check.

Invariant: after `go_elsewhere` the working directory and the local time differ from the caller's, while modules are
still found; `at_home` restores one of the two and nothing else.

Why: a run passes the caller's folder and zone to its processes, so a function that depends on them is consistent within
a run, but gives another output in a run from another folder or on a machine with another zone.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from drift.engines.surroundings import Surroundings

HomePart = Literal["folder", "time zone"]

#: An offset that no time zone has, in hours or minutes.
_ZONE = "ELSE-13:37"


#: A name that no thread of a run has.
_THREAD = "drift purity check"


def go_elsewhere(home: Surroundings) -> None:
    """Leave the caller's folder and zone, and the name of its thread."""
    threading.current_thread().name = _THREAD
    sys.path[:] = map(os.path.abspath, sys.path)  # relative ones refer to the caller's folder
    os.chdir(_folder(home))
    _enter_zone(_ZONE)


@contextmanager
def at_home(home: Surroundings, part: HomePart) -> Iterator[None]:
    """In the caller's folder, or in its time zone."""
    if part == "time zone":
        _enter_zone(home.time_zone)
    elif home.folder:
        os.chdir(home.folder)
    try:
        yield
    finally:
        os.chdir(_folder(home))
        _enter_zone(_ZONE)


def _folder(home: Surroundings) -> str:
    """The folder for temporary files; the root if the caller is there or the machine has no such folder."""
    folder = Path(home.temporary_folder).resolve()
    is_there = home.folder and Path(home.folder).resolve() == folder
    return folder.anchor if is_there or not folder.is_dir() else str(folder)


def _enter_zone(zone: str | None) -> None:
    if zone is None:
        os.environ.pop("TZ", None)
    else:
        os.environ["TZ"] = zone
    time.tzset()
