"""A run as its state shows it, for a page: while it runs in another process, or when it has ended.

Invariant: the state is only read, and what is shown is what the run stored last, with a checkpoint or at its end.

Why: each sample opens the store anew, which other processes may write to. While that fails, what was read last is
shown, with the reason.
"""

from __future__ import annotations

from typing import Any

from drift.state.run_checkpoints import HISTORY
from drift.state.settings import Checkpoints, read_store
from drift.urls import without_secrets
from drift.web.life import History, decoded_history
from drift.web.status import PICTURE, Row
from drift_graph.errors import SettingsError, StorageError


class StoredRun:
    """What a page shows, in the form of `Status`.

    Raises:
        SettingsError: no run is stored there.
        StorageError: it cannot be read.
    """

    def __init__(self, where: str) -> None:
        self._checkpoints = Checkpoints(where, away_max_s=0.0)
        self.where = without_secrets(where)
        self._samples: list[Row] = []
        self._numbers = self._read()

    def sample(self) -> dict[str, Any]:
        """The numbers that the run stored last, its state "died" where it did not end and no process has the store;
        where they cannot be read now, those that were read last.
        """
        try:
            self._numbers = self._read()
        except (SettingsError, StorageError) as error:
            return {**self._numbers, "error": f"shown as it was read last, since it cannot be read now: {error}"}
        return self._numbers

    def _read(self) -> dict[str, Any]:
        with read_store(self._checkpoints) as store:
            # A run takes the store before its first history, and lets go of it behind its last.
            is_held = store.is_locked()
            (data,) = store.told(HISTORY)
            is_held = is_held or store.is_locked()
        if data is None:
            raise SettingsError(
                f"{self.where} has no history of a run: no run that kept its state there has stored one"
            )
        history: History = decoded_history(data, self.where)
        self._samples = history.samples
        numbers = {**history.status, "stored": self.where, "stored_ms": history.told_ms}
        if numbers["state"] in ("waiting", "running") and not is_held:
            numbers["state"] = "died"
        return numbers

    def history(self) -> list[Row]:
        """Of the whole life, thinned."""
        return self._samples

    def bars(self, after: int) -> tuple[int, list[list[Any]]]:
        """None: they are not stored."""
        return after, []

    @property
    def picture(self) -> str | None:
        """The picture of the graph; None if the run stored none."""
        with read_store(self._checkpoints) as store:
            (data,) = store.told(PICTURE)
        return None if data is None else data.decode()

    def metrics(self) -> bytes | None:
        """None: what Prometheus reads is of now."""
        return None
