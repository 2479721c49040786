"""Files of states by key, as layers of snapshots: for recovery, and for states that are not in memory.

Invariant: a file has the newest value of each key of the layers that it was written from; a value may be DELETED.

Why: it is a file of `drift.state.by_hash`, with a table for each step, and the rest of the snapshot as its note.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Sequence
from typing import Any, BinaryIO

import xxhash

from drift.machines.checkpoints import DELETED, Entries
from drift.machines.keys import form_of_identity
from drift.machines.nodes.snapshots import timed_keys
from drift.machines.sent import LaterSent
from drift.machines.worker import Snapshot
from drift.state.by_hash import PICKLED, HashedFile, InMemory, find_newest, write_tables
from drift_graph.canonical import canonical_each


def write_by_key(
    file: BinaryIO, parts: Sequence[FileByKey | Snapshot], timed: Collection[str] = (), *, deleted: bool = True
) -> None:
    """Write the newest value of each key.

    Args:
        file: written from where it is; what is before belongs to the caller.
        parts: consecutive ones, oldest first.
        timed: names of the steps whose states have timers.
        deleted: whether deleted keys are written; nobody needs them if nothing lies below.
    """
    checkpoint = parts[-1].checkpoint
    later = [each for part in parts for each in part.later if each.meta >= checkpoint]
    with_timers: dict[str, list[Any]] = {step: [] for step in timed}

    def note(step: str, present: list[tuple[Any, Any]]) -> None:
        if step in with_timers:
            with_timers[step] += timed_keys(present)

    tables = [part.tables if isinstance(part, FileByKey) else part.states for part in parts]
    rest = (checkpoint, later, with_timers)
    write_tables(file, PICKLED, tables, _in_memory, deleted=deleted, each=note, note=lambda: pickle.dumps(rest, 5))


class ByKey:
    """Consecutive files in which keys can be looked up, as a `Layer`. `files`: oldest first."""

    def __init__(self, files: Sequence[FileByKey]) -> None:
        self._files = files

    @property
    def checkpoint(self) -> bytes:
        return self._files[-1].checkpoint

    @property
    def later(self) -> list[LaterSent]:
        return [each for file in self._files for each in file.later]

    @property
    def steps(self) -> Collection[str]:
        return dict.fromkeys(step for file in self._files for step in file.tables)

    def timed(self, step: str) -> Iterable[Any]:
        return dict.fromkeys(key for file in self._files for key in file.timed.get(step, ()))

    def find(self, step: str, keys: Sequence[Any]) -> dict[Any, Any]:
        has_any = any(step in file.tables for file in self._files)
        return find_newest(self._files, step, dict(zip(keys, hashes_of(keys)))) if has_any else {}


class FileByKey(HashedFile):
    """A file in which keys can be looked up.

    Attributes:
        checkpoint, later: of the newest layer that was written to it.
        timed: by step the keys whose states have timers.
    """

    checkpoint: bytes
    later: list[LaterSent]
    timed: dict[str, list[Any]]

    def __init__(self, data: memoryview) -> None:
        super().__init__(lambda begin, end: data[begin:end], len(data), PICKLED, "a file of states")
        self.checkpoint, self.later, self.timed = pickle.loads(self.note)


def _in_memory(entries: Entries) -> InMemory:
    keys = [*entries.identities, *entries.deleted]
    values = [*entries.values, *[DELETED] * len(entries.deleted)]
    return InMemory(list(zip(keys, zip(hashes_of(keys), values))))


def hashes_of(keys: Sequence[Any]) -> list[int]:
    """Hashes of the canonical bytes of keys, from their identities."""
    forms = list(map(form_of_identity, keys)) if bytes in set(map(type, keys)) else canonical_each(keys)
    return list(map(xxhash.xxh3_64_intdigest, forms))
