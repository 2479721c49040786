"""Stores snapshots (a worker's part of a checkpoint) for processes that have to be replaced, and looks up keys in them.

Invariant: `restored_from` gives the newest value of every key as of the last snapshot, for some keys at once and for
the others on lookup; and every later item at or above that checkpoint that was made from items below it.

Why: a snapshot has the changes since the previous one, so of several values of a key the newest counts, even if it is
DELETED. States with timers are restored at once, since timers hold minimal time; the rest is looked up when an item of
its key comes, so that a restart does not wait for state that nobody needs. Neighbours of about the same size are merged
once there are several, so few snapshots have to be searched, and the number of times that each entry is copied grows
with the logarithm of all entries.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from drift.machines.checkpoints import DELETED, Entries, Lookup
from drift.machines.sent import LaterSent
from drift.machines.worker import Snapshot

#: So many snapshots of one tier are merged; each tier holds snapshots up to so many times as large as the tier below.
_MERGED = 8
#: The greatest size in the lowest tier.
_TIER_BYTES = 4096
#: A larger snapshot is rewritten for lookups by key even if it has no neighbours of its size.
_ALONE_BYTES = 1 << 16
#: Keys in one table in memory: a table that outgrows the processor's cache takes twice as long to fill.
_TABLE_ENTRIES = 1 << 15


class NoRoom(Exception):
    """A snapshot cannot be stored now, but perhaps later.

    Attributes:
        tried_s: seconds that the attempt took.
    """

    tried_s = 0.0


class Layer(Protocol):
    """A stored snapshot, or several consecutive ones."""

    @property
    def checkpoint(self) -> bytes: ...

    @property
    def later(self) -> list[LaterSent]: ...

    @property
    def steps(self) -> Collection[str]:
        """Names of the steps whose keys it has."""

    def timed(self, step: str) -> Iterable[Any]:
        """The keys of a step whose states come with timers."""

    def find(self, step: str, keys: Sequence[Any]) -> dict[Any, Any]:
        """The values of the keys that it has; a value may be DELETED."""


class Shelf(Protocol):
    """The store of snapshots, by name, that the processes of a run share."""

    def put(self, snapshot: Snapshot) -> tuple[bytes, int, float]:
        """Store a snapshot; returns its name, its size in bytes, and the seconds it took.

        Raises:
            NoRoom: there is no room now.
            Exception: whatever a state raises that cannot be pickled.
        """

    def get(self, names: Sequence[bytes]) -> list[Layer]:
        """Consecutive snapshots, oldest first; a layer may be several of them."""

    def snapshot(self, name: bytes) -> Snapshot:
        """A snapshot as it was put."""

    def drop(self, name: bytes) -> None:
        """Delete a snapshot that nobody will read any more."""


class SnapshotName(NamedTuple):
    """A snapshot on a shelf.

    Attributes:
        checkpoint: the checkpoint it belongs to.
        size: in bytes.
        cost_s: the seconds of processor time that it took to make, and of time to write: where others are at work on
            the machine, it costs no more of the worker's share.
        merged: whether it was merged from others, for lookups by key.
    """

    checkpoint: bytes
    name: bytes
    size: int
    cost_s: float = 0.0
    merged: bool = False


class InMemory:
    """A shelf whose names are the snapshots themselves."""

    def __init__(self, timed: Collection[str]) -> None:
        self._timed = timed

    def put(self, snapshot: Snapshot) -> tuple[bytes, int, float]:
        name = packed(snapshot)
        return name, len(name), 0.0

    def get(self, names: Sequence[bytes]) -> list[Layer]:
        return [LoadedLayer([unpacked(name)], self._timed) for name in names]

    def snapshot(self, name: bytes) -> Snapshot:
        return unpacked(name)

    def drop(self, name: bytes) -> None:
        """Does nothing."""


class LoadedLayer:
    """Consecutive snapshots in memory, as a `Layer`; tables for lookups are made on first access."""

    def __init__(self, snapshots: Sequence[Snapshot], timed: Collection[str]) -> None:
        self._snapshots = snapshots
        self._timed = timed
        self._tables: dict[str, list[dict[Any, Any]]] = {}  # by step: values by key, oldest first

    def _tables_of(self, step: str) -> list[dict[Any, Any]]:
        tables = self._tables.get(step)
        if tables is None:
            tables = self._tables[step] = [{}]
            for snapshot in self._snapshots:
                if (entries := snapshot.states.get(step)) is not None:
                    if len(tables[-1]) >= _TABLE_ENTRIES:
                        tables.append({})
                    tables[-1].update(zip(entries.identities, entries.values))
                    tables[-1].update(dict.fromkeys(entries.deleted, DELETED))
        return tables

    @property
    def checkpoint(self) -> bytes:
        return self._snapshots[-1].checkpoint

    @property
    def later(self) -> list[LaterSent]:
        return [each for snapshot in self._snapshots for each in snapshot.later]

    @property
    def steps(self) -> Collection[str]:
        return dict.fromkeys(step for snapshot in self._snapshots for step in snapshot.states)

    def timed(self, step: str) -> Iterable[Any]:
        tables = self._tables_of(step) if step in self._timed else ()
        return dict.fromkeys(key for table in tables for key in timed_keys(table.items()))

    def find(self, step: str, keys: Sequence[Any]) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for table in self._tables_of(step):
            found.update({key: table[key] for key in keys if key in table})
        return found


def timed_keys(entries: Iterable[tuple[Any, Any]]) -> list[Any]:
    """The keys that have timers, of a step whose states may have some."""
    return [key for key, value in entries if value is not DELETED and value[1]]


def lookup_in(newest_first: Sequence[Layer], base: Callable[[str], Lookup] | None = None) -> Callable[[str], Lookup]:
    """The lookup in layers, by name of the step.

    Args:
        newest_first: the layers as they are at each lookup.
        base: lookup for keys that no layer has.
    """

    def lookup(step: str) -> Lookup:
        below = base(step) if base is not None else None

        def find(keys: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
            found: list[tuple[Any, Any]] = []
            for layer in newest_first:
                if not keys:
                    break
                values = layer.find(step, keys)
                if values:
                    found += [(key, value) for key, value in values.items() if value is not DELETED]
                    keys = [key for key in keys if key not in values]
            if below is not None and keys:
                found += below(keys)
            return found

        return find

    return lookup


def restored_from(
    layers: Sequence[Layer], checkpoint: bytes, base: Callable[[str], Lookup] | None = None
) -> tuple[Snapshot, Callable[[str], Lookup]]:
    """The state that a replaced worker restores at once, and the lookup for the rest.

    Args:
        layers: oldest first.
        checkpoint: the checkpoint of the newest layer.
        base: lookup for keys that no layer has, by name of the step.
    """
    lookup = lookup_in(list(reversed(layers)), base)
    steps = dict.fromkeys(step for layer in layers for step in layer.steps)
    at_once: dict[str, Entries] = {}
    for step in steps:
        keys = list(dict.fromkeys(key for layer in layers for key in layer.timed(step)))
        if keys:
            at_once[step] = Entries.of(lookup(step)(keys))
    later = [each for layer in layers for each in layer.later if each.meta >= checkpoint]
    return Snapshot(checkpoint, at_once, later), lookup


def packed(snapshot: Snapshot) -> bytes:
    """A snapshot as bytes, for processes of one run.

    Raises:
        Exception: whatever a state raises that cannot be pickled.
    """
    states = {name: (each.identities, each.values, each.deleted) for name, each in snapshot.states.items()}
    return pickle.dumps((snapshot.checkpoint, states, snapshot.later), 5)


def unpacked(data: bytes | memoryview) -> Snapshot:
    checkpoint, states, later = pickle.loads(data)
    return Snapshot(checkpoint, {name: Entries(*columns) for name, columns in states.items()}, later)


def merged(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Merge consecutive snapshots into one."""
    snapshots = list(snapshots)
    if len(snapshots) == 1:  # nothing to merge
        return snapshots[0]
    checkpoint = b""
    states: dict[str, dict[Any, Any]] = {}
    later: list[LaterSent] = []
    for snapshot in snapshots:
        checkpoint = snapshot.checkpoint
        later += snapshot.later
        for name, entries in snapshot.states.items():
            states.setdefault(name, {}).update(entries)
    listed = {name: Entries.of(values.items()) for name, values in states.items()}
    return Snapshot(checkpoint, listed, [each for each in later if each.meta >= checkpoint])


class SnapshotNames:
    """The names of one worker's snapshots."""

    def __init__(self) -> None:
        self._snapshots: list[SnapshotName] = []

    def add(self, snapshots: Iterable[SnapshotName]) -> None:
        """Add the snapshots up to a committed checkpoint; some may have been added before."""
        last = self._snapshots[-1].checkpoint if self._snapshots else b""
        self._snapshots += [snapshot for snapshot in snapshots if snapshot.checkpoint > last]

    def due(self, merging: Collection[SnapshotName] = ()) -> Iterator[list[SnapshotName]]:
        """Neighbours to be merged; then single snapshots, to be put into a form for lookups.

        Args:
            merging: snapshots that are being merged.
        """
        for is_merging, group in groupby(self._snapshots, merging.__contains__):
            if not is_merging:
                snapshots = list(group)
                if neighbours := snapshots[neighbours_due([snapshot.size for snapshot in snapshots])]:
                    yield neighbours
                for snapshot in snapshots:
                    if not snapshot.merged and snapshot.size > _ALONE_BYTES:
                        yield [snapshot]

    def replace(self, those: Sequence[SnapshotName], by: SnapshotName) -> None:
        """Note that snapshots that were due have been merged into one."""
        at = self._snapshots.index(those[0])
        assert self._snapshots[at : at + len(those)] == list(those)
        self._snapshots[at : at + len(those)] = [by]

    def all(self) -> list[SnapshotName]:
        """All names, oldest first."""
        return self._snapshots


def neighbours_due(sizes: Sequence[int]) -> slice:
    """Which of several files, the oldest first, are to be merged into one: neighbours of about the same size, if any.

    Who follows it has at most some files of each tier, and copies each entry as often as there are tiers.
    """
    tiers: list[int] = []
    for size in reversed(sizes):
        tiers.insert(0, max(_tier(size), tiers[0] if tiers else 0))
    for tier in dict.fromkeys(reversed(tiers)):
        if tiers.count(tier) >= _MERGED:
            first = tiers.index(tier)
            return slice(first, first + tiers.count(tier))
    return slice(0, 0)


def _tier(size: int) -> int:
    tier = 0
    while size > _TIER_BYTES:
        size //= _MERGED
        tier += 1
    return tier
