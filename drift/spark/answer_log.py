"""The answers about one range of a segment's output, for all attempts of its task.

Invariant: the logs of all attempts have one answer about an item, and each attempt uses that one.

Why: an attempt appends to a log of its own, under a lock of the range, after it has read what the others have appended;
of two answers about one item the second is dropped. The lock ends with its process, and nothing is asked under it.
"""

from __future__ import annotations

import fcntl
import os
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drift.engines.entries import Entries
from drift.segments.answers import AnswerLog
from drift_graph.errors import StorageError

if TYPE_CHECKING:
    from drift.calling.asker import Question

_WHAT = "the answers of a task of Spark"
_LOCK = "lock"


class RangeLog:
    """A failure is logged like an answer: it ends the run at its item, whichever attempt has met it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = uuid.uuid4().hex
        self._log = AnswerLog(folder / self._name, _WHAT)
        self._others: dict[str, Entries] = {}
        self._of_process = threading.Lock()  # the task, and the thread of its calls
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _failed(folder, error) from error
        with self._locked():
            self._read_others()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._of_process:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            except OSError as error:
                raise _failed(self._folder, error) from error
            try:
                yield
            finally:
                fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _read_others(self) -> None:
        for path in _attempts(self._folder):
            if path.name != self._name:
                other = self._others.setdefault(path.name, Entries(path, _WHAT))
                self._log.follow(other)

    def find(self, question: Question, step: str) -> bool:
        if not self._others:
            return False
        with self._locked():
            self._read_others()
            return self._log.find(question)

    def together(self, step: str, metas: Sequence[bytes]) -> None:
        with self._locked():
            self._log.together(metas)

    def asked_together(self, meta: bytes) -> Sequence[bytes]:
        with self._of_process:
            return self._log.asked_together(meta)

    def answered(self, step: str, questions: Sequence[Question]) -> None:
        with self._locked():
            self._read_others()
            self._log.answered([each for each in questions if not self._log.find(each)])

    def passed(self, step: str, questions: Sequence[Question]) -> None:
        """The record of the run gets all answers at its end."""

    def close(self) -> None:
        self._log.close()
        os.close(self._lock)


def answers_of_range(folder: Path) -> Iterator[tuple[bytes, Any]]:
    """Meta and answer of each item of a range, in no order; a `Failure` for one that failed."""
    log = AnswerLog(folder / "none", _WHAT)
    for path in _attempts(folder):
        log.follow(Entries(path, _WHAT))
    return log.answers()


def _attempts(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name != _LOCK)


def _failed(folder: Path, error: OSError) -> StorageError:
    return StorageError(
        f"answers of calls cannot be logged in {folder}: {error.strerror}; name a folder that every task can write, on "
        f"a file system with locks, answers=FOLDER"
    )
