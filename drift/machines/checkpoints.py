"""Keyed state of a stage: which keys have changed since the last checkpoint, and which may still be in a store.

Invariant: `Touched.take(checkpoint)` gives every key that had an item, a tombstone or a timer below the checkpoint
since the checkpoint before, and `Touched.above` every key that has had one at or above it. A key is looked up in a
store at most once.

Why: each change of a key is noted with its meta, batch by batch. Settled changes are below every later checkpoint, so
only their keys are stored, without duplicates once there are many. A key that was looked up stays marked even after the
stage drops its state because it equals the initial one: the store may still have an older state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

from drift_graph.meta import BEGINNING

#: In place of the state of a key that is in its initial state, as if it never had an item.
DELETED: Any = type("Deleted", (), {"__repr__": lambda self: "deleted"})()

#: Looks up keys in a store by their identities: (key, state) for each that the store has, in any order.
Lookup = Callable[[Sequence[Any]], Iterable[tuple[Any, Any]]]


class Entries:
    """The states of keys of a grouping in a checkpoint, as columns; iterating gives each key with its value or DELETED.

    Attributes:
        identities: of the keys with a value.
        values: of these keys, in the same order.
        deleted: identities of the deleted keys.
    """

    __slots__ = ("deleted", "identities", "values")

    def __init__(self, identities: Sequence[Any], values: Sequence[Any], deleted: Sequence[Any] = ()) -> None:
        self.identities = identities
        self.values = values
        self.deleted = deleted

    @classmethod
    def of(cls, pairs: Iterable[tuple[Any, Any]]) -> Entries:
        """From keys and values; a value may be DELETED."""
        if isinstance(pairs, Entries):
            return pairs
        present: list[tuple[Any, Any]] = []
        deleted: list[Any] = []
        for key, value in pairs:
            if value is DELETED:
                deleted.append(key)
            else:
                present.append((key, value))
        return cls([key for key, _ in present], [value for _, value in present], deleted)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return chain(zip(self.identities, self.values), zip(self.deleted, repeat(DELETED)))

    def __len__(self) -> int:
        return len(self.identities) + len(self.deleted)


_ROWS_RETAINED_MIN = 4096  # rows that may be stored before settled ones are searched for
_SETTLED_ROWS_MIN = 1 << 16  # settled rows that may hold duplicate keys, and as many more as there are distinct keys


class Touched:
    """The keys that were changed, with the metas of the items and timers that changed them.

    Attributes:
        tracks: whether keys whose changes are settled are stored until a checkpoint takes them.
    """

    def __init__(self, *, tracks: bool = False) -> None:
        self.tracks = tracks
        self._settled: dict[Any, None] = {}
        self._unfolded: list[Sequence[Any]] = []  # keys of settled batches that are not in it yet
        self._unfolded_rows = 0
        self._batches: deque[tuple[Sequence[bytes], Sequence[Any]]] = deque()
        self._rows = 0
        self._rows_max = _ROWS_RETAINED_MIN

    def add(self, metas: Sequence[bytes], keys: Sequence[Any]) -> None:
        """Add the keys of a batch, sorted by meta."""
        if keys:
            self._batches.append((metas, keys))
            self._rows += len(keys)

    def take(self, checkpoint: bytes) -> dict[Any, None]:
        """Remove and return the keys with changes below a checkpoint."""
        self._fold()
        found, self._settled = self._settled, {}
        self._pass_to(checkpoint, found)
        return found

    def settle(self, minimal_time: bytes) -> None:
        """Treat changes below minimal time as settled."""
        batches = self._batches
        while batches and batches[0][0][-1] < minimal_time:
            _, keys = batches.popleft()
            self._rows -= len(keys)
            if self.tracks:
                self._unfolded.append(keys)
                self._unfolded_rows += len(keys)
        if self._unfolded_rows > max(_SETTLED_ROWS_MIN, len(self._settled)):
            self._fold()
        if self._rows > self._rows_max:
            self._pass_to(minimal_time, self._settled if self.tracks else None)
            self._rows_max = max(_ROWS_RETAINED_MIN, 2 * self._rows)

    def forget_settled(self) -> None:
        """Stop tracking settled keys, since no checkpoint will be taken."""
        self._settled, self._unfolded, self._unfolded_rows = {}, [], 0

    def _fold(self) -> None:
        """Remove duplicates among the settled keys."""
        if self._unfolded:
            keys = dict.fromkeys(chain.from_iterable(self._unfolded))
            if self._settled:
                self._settled.update(keys)
            else:
                self._settled = keys
            self._unfolded, self._unfolded_rows = [], 0

    def rewind(self, checkpoint: bytes) -> None:
        """Forget changes at or above a checkpoint."""
        batches, self._batches, self._rows = self._batches, deque(), 0
        for metas, keys in batches:
            end = len(metas) if metas[-1] < checkpoint else bisect_left(metas, checkpoint)
            self.add(metas[:end], keys[:end])

    def _pass_to(self, checkpoint: bytes, found: dict[Any, None] | None) -> None:
        batches, self._batches, self._rows = self._batches, deque(), 0
        for metas, keys in batches:
            if metas[-1] < checkpoint:
                if found is not None:
                    found.update(dict.fromkeys(keys))
            elif metas[0] >= checkpoint:
                self.add(metas, keys)
            else:
                at = bisect_left(metas, checkpoint)
                if found is not None:
                    found.update(dict.fromkeys(keys[:at]))
                self.add(metas[at:], keys[at:])


class Unread:
    """The states that a stage may find in a store and has not looked up yet.

    Args:
        lookup: into the store, as of the checkpoint that the stage resumes from.
    """

    def __init__(self, lookup: Lookup) -> None:
        self.lookup = lookup
        self._looked_up: dict[Any, None] = {}

    def know(self, keys: Iterable[Any]) -> None:
        """Mark keys whose states the stage already has."""
        self._looked_up.update(dict.fromkeys(keys))

    def new(self, keys: Sequence[Any]) -> list[Any]:
        """Those of the keys that are to be looked up now, and count as looked up from here on."""
        new = [key for key in dict.fromkeys(keys) if key not in self._looked_up]
        self._looked_up.update(dict.fromkeys(new))
        return new

    def forget(self, keys: Iterable[Any]) -> None:
        """Look these keys up again: the stage has gone back to before it had their states."""
        for key in keys:
            self._looked_up.pop(key, None)


class Paged(Unread):
    """The states of a stage that may drop some of them from memory, and looks them up again.

    Invariant: a key that is in `states` or in `recent` has its state here; for any other the lookup has it, if it has
    one.

    Args:
        lookup: finds the last state that was dropped.
        states: the states in memory, which the stage changes; a key that is not there is in the initial state.

    Attributes:
        recent: the keys that were asked for since states were dropped.
    """

    def __init__(self, lookup: Lookup, states: Mapping[Any, Any]) -> None:
        super().__init__(lookup)
        self._states = states
        self.recent: dict[Any, None] = {}

    def know(self, keys: Iterable[Any]) -> None:
        self.recent.update(dict.fromkeys(keys))

    def new(self, keys: Sequence[Any]) -> list[Any]:
        """Those of the keys whose states are not here."""
        states, recent, asked = self._states, self.recent, dict.fromkeys(keys)
        new = [key for key in asked if key not in recent and key not in states]
        recent.update(asked)
        return new


class KeyedState(ABC):
    """The keyed state of a stage: lookup and restore, the state as of a checkpoint, and the changes since the previous
    checkpoint.

    Each stage has its own form of the state, since it may have to undo steps; this class tracks which keys have changed
    and which of them a store may still have.

    Attributes:
        complete_below: all items below it have come with this call, so nothing below it is ever taken back.
    """

    complete_below: bytes = BEGINNING
    _touched: Touched | None = None
    _unread: Unread | None = None
    _paged: Paged | None = None  # the same, if states may be dropped

    def get(self, metas: Sequence[bytes], keys: Sequence[Any]) -> None:
        """Fetch the states of the keys of a batch, sorted by meta, before its items are processed."""
        if self._touched is not None:
            self._touched.add(metas, keys)
        self.look_up(keys)

    def look_up(self, keys: Sequence[Any]) -> Sequence[Any]:
        """Fetch the states of keys that a store may still have; the keys of which it was asked."""
        new = () if self._unread is None else self._unread.new(keys)
        if self._unread is not None and new:
            self.put(list(self._unread.lookup(new)))
        return new

    def track(self, *, tracks: bool = True) -> None:
        """Start tracking changes for checkpoints, before any item; or, with False and at any time, stop it."""
        self._touched = self._touched or Touched()
        self._touched.tracks = tracks
        if not tracks:
            self._touched.forget_settled()

    def changed(self, checkpoint: bytes) -> Entries:
        """The keys that have changed since the last checkpoint, each with the state that items above this checkpoint
        need or DELETED.

        To be called when minimal time has reached the checkpoint, before `settle` with a greater one. A key whose step
        raised
        below the checkpoint is left out: the run ends there.
        """
        assert self._touched is not None
        keys = list(self._touched.take(checkpoint))
        if self._paged is not None:
            self.look_up(keys)
        return self.as_of(checkpoint, keys)

    def restore(self, entries: Iterable[tuple[Any, Any]], lookup: Lookup | None = None) -> None:
        """Resume from a checkpoint with these states, before any item; other keys are looked up in `lookup`, once each.

        Keys with timers or open windows must be among the entries.
        """
        entries = list(entries)
        self.put(entries)
        if lookup is not None:
            self._unread = self._unread or Unread(lookup)
        if self._unread is not None:
            self._unread.know(key for key, _ in entries)

    @property
    def pages(self) -> Mapping[Any, Any]:
        """The states in memory that may be dropped, by key, once `page` was called; empty if this stage drops none."""
        return {}

    def page(self, lookup: Lookup) -> None:  # noqa: B027 - a stage without pages ignores it
        """States may be dropped; called before any item, and before `restore`.

        Args:
            lookup: finds the last state that `drop` gave for a key, or one from before the run.
        """

    def drop(self, keys_at_once: int, *, recent: bool) -> Iterator[Entries]:
        """Drop states that no item can correct; they are looked up when an item of their keys comes.

        Args:
            keys_at_once: each part that is given has at most so many keys.
            recent: also those of the keys that had an item since the last call.

        Returns:
            What the lookup has to find from now on, in parts; a part's states are dropped when it is asked for.
        """
        return iter(())

    @abstractmethod
    def put(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Set the states of keys, none of which has had an item here."""

    @abstractmethod
    def as_of(self, checkpoint: bytes, keys: Sequence[Any]) -> Entries:
        """The state that items above a checkpoint need of each of these keys, or DELETED; see `changed`."""

    @abstractmethod
    def rewind(self, checkpoint: bytes) -> None:
        """Forget all that is at or above a checkpoint, which is not below the last minimal time passed to `settle`.

        The stage is then in the state of a stage that only got the items below the checkpoint.
        """
