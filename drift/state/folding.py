"""Merges snapshots of checkpoints into the base, in a separate process if there are many.

Invariant: the base is as of one checkpoint, the old one or the new one; and a snapshot is removed only when the base
has it.

Why: a backend merges all at once. The process writes on behalf of the run that holds the lock, and ends with it; it has
a low priority, so it only takes time that the run leaves. If the run itself merges, it pays some microseconds for each
key, which is more than the key's item takes.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterable
from typing import Any

import msgspec

from drift.children import Channel
from drift.parent import Parent
from drift.state.backend import Backend, Expected, Reader
from drift.state.checkpoint import Checkpoint, decoded, encoded
from drift.state.patience import Patience, PatientReader
from drift.state.snapshots import StoredSnapshot
from drift.state.tables import MERGED, as_merged, later_in, merged_in, number_of, part_of, row_of, snapshots_of
from drift_graph.errors import DriftError, StorageError

_NICE = 10
_LATER_IN_PART = 1000
_as_bytes = msgspec.msgpack.Encoder().encode


def fold(backend: Backend, reader: Reader, checkpoint: Checkpoint) -> None:
    """Bring the base to a checkpoint, and remove the snapshots that are merged into it then."""
    merged = merged_in(reader)
    removed: dict[bytes, bytes | None] = {
        name: None for name in reader.sizes("snapshots") if number_of(name) <= checkpoint.number
    }
    if checkpoint.number <= merged:
        backend.write({"snapshots": removed})
        return
    changes = _changes(reader, checkpoint.at, snapshots_of(reader, checkpoint, merged, backend.where))
    as_of: dict[str, dict[bytes, bytes | None]] = {"merged": {MERGED: b"%d" % checkpoint.number}, "snapshots": removed}
    expected = [as_merged(merged)] if merged else []
    expected += [Expected("snapshots", name) for name in sorted(removed)[-1:]]  # who has the last has all before
    backend.write({**changes, **as_of}, expected)


def _changes(reader: Reader, at: bytes, snapshots: Iterable[StoredSnapshot]) -> dict[str, dict[bytes, bytes | None]]:
    """The changes of several snapshots; of each key the last state."""
    changes: dict[str, dict[bytes, bytes | None]] = {}
    timed: dict[str, dict[bytes, bytes | None]] = {}
    later = later_in(reader)
    for snapshot in snapshots:
        for step, states in snapshot.states.items():
            rows = {key: None if value is None else row_of(key, value) for key, value in states.entries()}
            changes.setdefault(f"base:{step}", {}).update(rows)
            timed.setdefault(step, {}).update(dict.fromkeys(rows))
            timed[step].update((key, b"") for key in states.with_timers())
        later += snapshot.later
    for step, rows in timed.items():
        known = reader.sizes(f"timers:{step}")
        changes[f"timers:{step}"] = {key: row for key, row in rows.items() if row is not None or key in known}
    forms = [each for each in later if each.meta >= at]
    parts = [forms[start : start + _LATER_IN_PART] for start in range(0, len(forms), _LATER_IN_PART)]
    pending: dict[bytes, bytes | None] = dict.fromkeys(reader.sizes("pending"))
    pending.update((part_of(number), _as_bytes(part)) for number, part in enumerate(parts))
    return {**changes, "pending": pending}


class Folding:
    """A process that folds.

    Args:
        backend: the backend, which this process has open.
        checkpoint: the checkpoint to bring the base to; it may be removed meanwhile.
        away_max_s: how long the backend may be unavailable.
    """

    def __init__(self, backend: Backend, checkpoint: Checkpoint, away_max_s: float) -> None:
        deputy, descriptors = backend.deputy()
        self._where = backend.where
        self._process = Channel(f"drift folds the state in {backend.where}", "drift.state.folding", hand_on=descriptors)
        self._process.send((deputy, encoded(checkpoint), away_max_s))

    def is_done(self, *, wait: bool = False) -> bool:
        """Whether the base is at the checkpoint. Raises StorageError: folding failed."""
        if not wait and not self._process.has_ended:
            return False
        try:
            self._process.receive()
        except DriftError as error:
            raise StorageError(f"older checkpoints in {self._where} cannot be merged: {error}") from error
        finally:
            self._process.end()
        return True

    def end(self) -> None:
        """Kill the process; the base is as of the old checkpoint or the new one."""
        self._process.end()


def main() -> None:
    """Fold what the starting process orders, and end with it."""
    os.nice(_NICE)
    parent = Parent(int(sys.argv[1]))
    backend: Any
    backend, encoded_cut, away_max_s = parent.receive()
    patience = Patience(backend.where, away_max_s)
    try:
        patience.call(backend.open)
        reader = PatientReader(patience.call(backend.reader), patience)
        checkpoint = decoded(encoded_cut, "of a checkpoint")
        patience.call(lambda: fold(backend, reader, checkpoint))
        reader.close()
        backend.close()
        parent.send(None)
    except Exception as error:
        parent.send(error if isinstance(error, DriftError) else StorageError(traceback.format_exc()))
    os._exit(0)
