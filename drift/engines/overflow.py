"""The states that do not fit in memory: they are in files by key, and come back when an item of their key does.

Invariant: a state that was dropped from memory and is not there again is in the newest file that has its key.

Why: a stage gives the states that it drops, or that a key has none any more, and they are written before anything else
is looked up. Files of about the same size are merged once there are several, so few files have to be searched, and how
often a state is copied grows with the logarithm of all states. The files have no names: they are gone with the process,
however it ends. They are not for resuming, for which checkpoints are.

How much memory states take is estimated from some of them. States of keys that had items lately stay, if they leave
room.
"""

from __future__ import annotations

import mmap
import pickle
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from drift.engines.by_key import ByKey, FileByKey, write_by_key
from drift.machines.checkpoints import Lookup
from drift.machines.nodes.snapshots import lookup_in, neighbours_due
from drift.machines.worker import Snapshot, Worker
from drift_graph.errors import PayloadError, StorageError
from drift_graph.functions import safe_text
from drift_graph.sizes import size_of

#: What a key takes besides itself and its state: its places in tables.
_KEY_BYTES = 200
#: So many states are looked at for an estimate, which is made anew after so many turns, or with an eighth more keys.
_SAMPLED, _TURNS = 64, 256
#: So many states are written to a file, which takes about as much memory again as they do.
_FILE_KEYS = 1 << 18


class Overflow:
    """The files of one worker.

    Args:
        memory_max: bytes that states in memory may take.
        below: the lookup for keys that were never dropped, by name of the step; None if nothing is there.

    Attributes:
        dropped: how many states were dropped so far.
    """

    def __init__(self, memory_max: int, below: Callable[[str], Lookup] | None = None) -> None:
        self._memory_max = memory_max
        self._below = below
        self._files: list[FileByKey] = []
        self._turns = 0
        self._keys_next = 0  # with so many keys in memory the next estimate is made
        self.dropped = 0
        self.lookup = lookup_in([ByKey(self._files)], below)

    def relieve(self, worker: Worker) -> None:
        """Drop states if they take too much memory.

        Raises:
            StorageError: there is no room on disk.
            PayloadError: a state cannot be pickled.
        """
        self._turns += 1
        if sum(map(len, worker.pages())) < self._keys_next and self._turns < _TURNS:
            return
        self._turns = 0
        taken = bytes_of(worker.pages())
        if taken > self._memory_max:
            for recent in (False, True):
                for snapshot in worker.drop(_FILE_KEYS, recent=recent):
                    self._add(snapshot)
                if bytes_of(worker.pages()) <= self._memory_max * 3 // 4:
                    break
            self._merge()
        keys = sum(map(len, worker.pages()))
        self._keys_next = keys + max(keys // 8, 1)

    def _add(self, snapshot: Snapshot) -> None:
        ((step, entries),) = snapshot.states.items()
        self.dropped += len(entries.identities)
        try:
            for value in entries.values[:1]:
                pickle.loads(pickle.dumps(value, 5))
            self._files.append(self._written([snapshot], deleted=True))
        except StorageError:
            raise
        except Exception as error:
            raise PayloadError(
                f"step {step!r} has a state that cannot be written to disk: {safe_text(str, error, 200)}; with "
                f"memory_max= states must be such that pickle writes and reads them",
                step=step,
            ) from error

    def _merge(self) -> None:
        while files := self._files[due := neighbours_due([file.size for file in self._files])]:
            deleted = self._below is not None or due.start > 0
            self._files[due] = [self._written(files, deleted=deleted)]

    def _written(self, parts: Sequence[FileByKey | Snapshot], *, deleted: bool) -> FileByKey:
        try:
            with tempfile.TemporaryFile() as file:
                write_by_key(file, parts, deleted=deleted)
                file.flush()
                return FileByKey(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
        except OSError as error:
            raise StorageError(
                f"the states take more than memory_max, and they cannot be written to {tempfile.gettempdir()}: "
                f"{error.strerror or error}; make room, let TMPDIR name another folder, or raise memory_max="
            ) from error

    def close(self) -> None:
        self._files.clear()


def bytes_of(pages: Sequence[Mapping[Any, Any]]) -> int:
    """About how many bytes states take, with their keys."""
    return sum(_bytes_of(states) for states in pages)


def _bytes_of(states: Mapping[Any, Any]) -> int:
    apart = max(len(states) // _SAMPLED, 1)
    sizes = [size_of(key) + size_of(state) for key, state in islice(states.items(), 0, None, apart)]
    return len(states) * (_KEY_BYTES + sum(sizes) // max(len(sizes), 1))
