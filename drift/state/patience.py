"""Retries while a backend for state does not answer.

Invariant: a call is repeated until it succeeds, or the backend was unavailable for longer than allowed, which is an
error. The loss and the return of the backend are each logged once.

Why: the calls are idempotent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from drift.state.backend import Away, Reader
from drift_graph.errors import StorageError

_log = logging.getLogger("drift")
_PAUSE_S, _PAUSE_MAX_S = 0.02, 1.0

T = TypeVar("T")


class Patience:
    """Tries again while a backend is unavailable.

    Args:
        where: the backend, for messages.
        away_max_s: how long it may be unavailable.
    """

    def __init__(self, where: str, away_max_s: float) -> None:
        self._where = where
        self._away_max_s = away_max_s

    def call(self, query: Callable[[], T]) -> T:
        """The result of a call, repeated until the backend answers.

        Raises:
            StorageError: the backend was unavailable for too long.
        """
        pause_s = _PAUSE_S
        since_s: float | None = None
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
                time.sleep(pause_s)  # a pace; nothing is judged by it
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)
            else:
                if since_s is not None:
                    _log.info("the state in %s is reached again, after %.1f s", self._where, time.monotonic() - since_s)
                return result


class PatientReader:
    """A reader that waits for its backend."""

    def __init__(self, reader: Reader, patience: Patience) -> None:
        self._reader = reader
        self._patience = patience

    def sizes(self, table: str) -> dict[bytes, int]:
        """See `Reader`."""
        return self._patience.call(lambda: self._reader.sizes(table))

    def read(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """See `Reader`."""
        return self._patience.call(lambda: self._reader.read(table, keys))

    def close(self) -> None:
        """See `Reader`."""
        self._reader.close()
