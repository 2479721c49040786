"""Temporary folders that are removed even if their process is killed.

Invariant: a folder made here is removed by its owner or, if the owner was killed, by the next process that makes one.

Why: the owner holds a lock on a file in the folder, which the system releases when the process ends, whatever ended it
and wherever it ran; so a folder whose lock can be acquired has no owner.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_LOCK = ".owner"
_open_folders: dict[Path, int] = {}


def make_folder(prefix: str) -> Path:
    """A new folder of this process; those of the same prefix that nobody owns are removed."""
    for lock in Path(tempfile.gettempdir()).glob(f"{prefix}*/{_LOCK}"):
        _remove_if_left(lock)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        number = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        if _is_locked(number) and os.fstat(number).st_nlink:  # no other process removed it as abandoned
            _open_folders[folder] = number
            return folder
        os.close(number)


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    number = _open_folders.pop(folder, None)
    if number is not None:
        os.close(number)


def _remove_if_left(lock: Path) -> None:
    try:
        number = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return  # it is already removed, or another user's
    try:
        if _is_locked(number):
            shutil.rmtree(lock.parent, ignore_errors=True)
    finally:
        os.close(number)


def _is_locked(number: int) -> bool:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
