"""Files of states by key, as layers of snapshots: for recovery, and for states that are not in memory.

Invariant: a file has the newest value of each key of the layers that it was written from; a value may be DELETED.

Why: it is a file of `drift.state.by_hash`, with a table for each step, and the rest of the snapshot as its note.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Sequence
from typing import Any, BinaryIO

import xxhash

from drift.machines.checkpoints import Entries
from drift.machines.keys import form_of_identity
from drift.machines.nodes.snapshots import Layer, merged, timed_keys
from drift.machines.sent import LaterSent
from drift.machines.worker import Snapshot
from drift.state.by_hash import PICKLED, HashedFile, Source, Writer, in_memory
from drift_graph.canonical import canonical_each


def write_by_key(file: BinaryIO, layers: Sequence[Layer], timed: Collection[str] = (), *, deleted: bool = True) -> None:
    """Write the newest value of each key.

    Args:
        file: written from where it is; what is before belongs to the caller.
        layers: consecutive ones, oldest first.
        timed: names of the steps whose states have timers.
        deleted: whether deleted keys are written; nobody needs them if nothing lies below.
    """
    checkpoint = layers[-1].checkpoint
    later = [each for layer in layers for each in layer.later if each.meta >= checkpoint]
    with_timers: dict[str, list[Any]] = {}
    writer = Writer(file, PICKLED)
    for step in dict.fromkeys(step for layer in layers for step in layer.steps):
        found = with_timers[step] = []
        note = (lambda present, found=found: found.extend(timed_keys(present))) if step in timed else None
        sources = [source for layer in layers for source in _sources(layer, step)]
        writer.table(step, sources, deleted=deleted, each=note)
    writer.end(pickle.dumps((checkpoint, later, with_timers), 5))


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

    def sources(self, step: str) -> list[Source]:
        """The entries of a step, to be written to another file."""
        return [source for file in self._files for source in file.source(step)]

    def timed(self, step: str) -> Iterable[Any]:
        return dict.fromkeys(key for file in self._files for key in file.timed.get(step, ()))

    def find(self, step: str, keys: Sequence[Any]) -> dict[Any, Any]:
        files = [file for file in self._files if step in file.tables]
        return HashedFile.find_newest(files, step, dict(zip(keys, hashes_of(keys)))) if files else {}

    def as_snapshot(self) -> Snapshot:
        snapshots = [
            Snapshot(
                file.checkpoint,
                {step: Entries.of((key, value) for key, (_, value) in file.rows(step)) for step in file.tables},
                file.later,
            )
            for file in self._files
        ]
        return merged(snapshots)


class FileByKey(HashedFile):
    """A file in which keys can be looked up.

    Attributes:
        checkpoint, later: of the newest layer that was written to it.
        timed: by step the keys whose states have timers.
    """

    checkpoint: bytes
    later: list[LaterSent]
    timed: dict[str, list[Any]]

    def __init__(self, data: memoryview, where: str = "a file of states") -> None:
        super().__init__(lambda begin, end: data[begin:end], len(data), PICKLED, where)
        self.checkpoint, self.later, self.timed = pickle.loads(self.note)


def _sources(layer: Layer, step: str) -> list[Source]:
    if isinstance(layer, ByKey):
        return layer.sources(step)
    entries = list(layer.as_snapshot().states.get(step, ()))
    keys = [key for key, _ in entries]
    return [in_memory(list(zip(keys, zip(hashes_of(keys), [value for _, value in entries]))))]


def hashes_of(keys: Sequence[Any]) -> list[int]:
    """Hashes of the canonical bytes of keys, from their identities."""
    forms = list(map(form_of_identity, keys)) if bytes in set(map(type, keys)) else canonical_each(keys)
    return list(map(xxhash.xxh3_64_intdigest, forms))
