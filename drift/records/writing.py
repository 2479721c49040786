"""Whether a process is writing a record now: it holds a lock on a file in the record's folder.

Invariant: for a record whose manifest says "running", the lock is held exactly as long as its writer lives.

Why a lock: the system releases it when the process ends, however it ends, also on another machine that shares the
folder and after a restart. A process id means nothing there, and may have been reused.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from drift.records.format import Manifest, Outcome, RecordError, read_manifest

LOCK = ".writing"
_WRITER_GONE = (
    "its writer ended without sealing the end: the process that writes the record was killed, its disk was full, "
    "or the machine stopped"
)


class Writing:
    """The lock of a process that writes a record, held until `end` or the end of the process.

    Raises:
        OSError: another process writes it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise OSError(errno.EBUSY, "another process writes it") from None
        except OSError:
            pass  # a file system without locks: readers find that too, and rely on the manifest

    def end(self) -> None:
        """The manifest says how the record ended, so the lock is no longer needed."""
        with suppress(OSError):  # a disk that is gone takes the file with it
            self._path.unlink(missing_ok=True)
        os.close(self._file)


def is_written(folder: Path) -> bool | None:
    """Whether a process holds the lock; None if that cannot be determined."""
    try:
        file = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(file)
    return False


def current_manifest(folder: Path, manifest: Manifest) -> Manifest:
    """A manifest from a folder; if it says "running" and no process writes the record, "broken off".

    A record that is written batch by batch is unchanged: between two batches it needs no writer.
    """
    if manifest.outcome.state != "running" or "written" in manifest.settings or is_written(folder) is not False:
        return manifest
    try:
        if read_manifest(folder).outcome.state != "running":
            return manifest  # it has ended since the manifest was read
    except RecordError:
        return manifest
    manifest = Manifest(**{name: getattr(manifest, name) for name in manifest.__struct_fields__})
    manifest.outcome = Outcome("broken off", _WRITER_GONE)
    return manifest
