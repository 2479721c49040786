"""Retries while a backend for state does not answer.

Invariant: a call is repeated until it succeeds, or the backend was unavailable for longer than allowed, which is an
error, or nobody waits any more. The loss and the return of the backend are each logged once.

Why: the calls are idempotent.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from drift.state.backend import Away, Reader
from drift_graph.errors import StorageError

_log = logging.getLogger("drift")
_PAUSE_S, _PAUSE_MAX_S = 0.02, 1.0

T = TypeVar("T")


class GivenUp(StorageError):
    """A call was not repeated any more, which was logged."""


class Patience:
    """Tries again while a backend is unavailable, also in several threads.

    Args:
        where: the backend, for messages.
        away_max_s: how long it may be unavailable.
    """

    def __init__(self, where: str, away_max_s: float) -> None:
        self._where = where
        self._away_max_s = away_max_s
        self._given_up = threading.Event()

    def give_up(self) -> None:
        """Repeat no call from now on, from any thread."""
        self._given_up.set()

    def call(self, query: Callable[[], T]) -> T:
        """The result of a call, repeated until the backend answers.

        Raises:
            StorageError: the backend was unavailable for too long.
            GivenUp: it is unavailable, and nobody waits for it any more.
        """
        pause_s = _PAUSE_S
        since_s: float | None = None
        try:
            while True:
                try:
                    result = query()
                except Away as away:
                    if since_s is None:
                        since_s = time.monotonic()
                        _log.warning("the state in %s cannot be reached, and is waited for: %s", self._where, away)
                    if time.monotonic() - since_s >= self._away_max_s:
                        raise StorageError(
                            f"the state in {self._where} could not be reached for {self._away_max_s:g} s: {away}; run "
                            f"again when it can: the run resumes from the last checkpoint"
                        ) from away
                    if self._given_up.wait(pause_s):  # a pace; nothing is judged by it
                        raise GivenUp(f"the state in {self._where} is not waited for any more: {away}") from away
                    pause_s = min(2 * pause_s, _PAUSE_MAX_S)
                else:
                    if since_s is not None:
                        away_s = time.monotonic() - since_s
                        _log.info("the state in %s is reached again, after %.1f s", self._where, away_s)
                    return result
        except (GivenUp, KeyboardInterrupt):  # in the thread that writes, and in the main one
            if since_s is not None:
                _log.warning(
                    "the state in %s is not waited for any more, since the run was interrupted: what was to be stored "
                    "is not, and the next run resumes from the last checkpoint that is there",
                    self._where,
                )
            raise


class PatientReader:
    """A `Reader` that waits for its backend."""

    def __init__(self, reader: Reader, patience: Patience) -> None:
        self._reader = reader
        self._patience = patience

    def sizes(self, table: str) -> dict[bytes, int]:
        return self._patience.call(lambda: self._reader.sizes(table))

    def read(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._patience.call(lambda: self._reader.read(table, keys))

    def close(self) -> None:
        self._reader.close()
