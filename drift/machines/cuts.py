"""What a stage records besides its states so that cuts can be taken of it, and so that it can resume from one.

Invariant: `Touched.take(cut)` gives every key that had an item, a tombstone or a timer below the cut since the cut
before, and `Touched.above` every key that has had one at or above it. A key is looked up in a store at most once.

Why: whatever changes a key is noted with its meta, batch by batch. What is settled is below every later cut, so only
its keys are stored, without duplicates once there are many. A key that was looked up stays marked even after the stage
drops its state because it equals the initial one: the store may still have an older state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any

from drift_graph.meta import BEGINNING
from drift_graph.metas import Metas

#: In place of the state of a key that is as if it had never been.
GONE: Any = type("Gone", (), {"__repr__": lambda self: "gone"})()

#: The state of each of some keys, by their identities: those that a store has, in any order.
Lookup = Callable[[Sequence[Any]], Iterable[tuple[Any, Any]]]


class Entries:
    """What a cut has of the keys of a grouping, in columns: iterated, it gives each key, and its value or GONE.

    Attributes:
        identities: of keys.
        values: of these keys.
        gone: keys that are as if they had never been.
    """

    __slots__ = ("gone", "identities", "values")

    def __init__(self, identities: Sequence[Any], values: Sequence[Any], gone: Sequence[Any] = ()) -> None:
        self.identities = identities
        self.values = values
        self.gone = gone

    @classmethod
    def of(cls, pairs: Iterable[tuple[Any, Any]]) -> Entries:
        """From keys and values, of which some may be GONE."""
        if isinstance(pairs, Entries):
            return pairs
        kept: list[tuple[Any, Any]] = []
        gone: list[Any] = []
        for key, value in pairs:
            if value is GONE:
                gone.append(key)
            else:
                kept.append((key, value))
        return cls([key for key, _ in kept], [value for _, value in kept], gone)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return chain(zip(self.identities, self.values), zip(self.gone, repeat(GONE)))

    def __len__(self) -> int:
        return len(self.identities) + len(self.gone)


_ROWS_KEPT_MIN = 4096  # rows that are kept until settled ones are looked for
_SETTLED_ROWS_MIN = 1 << 16  # settled rows that may have keys several times, and as many as there are others


class Touched:
    """The keys that were changed, with the metas of what changed them.

    Attributes:
        tracks: whether keys whose changes are settled are kept, until a cut takes them.
    """

    def __init__(self, *, tracks: bool = False) -> None:
        self.tracks = tracks
        self._settled: dict[Any, None] = {}
        self._unfolded: list[Sequence[Any]] = []  # keys of settled batches that are not in it yet
        self._unfolded_rows = 0
        self._batches: deque[tuple[Metas, Sequence[Any]]] = deque()
        self._ones: list[tuple[bytes, Any]] = []
        self._rows = 0  # of batches
        self._rows_max = _ROWS_KEPT_MIN

    def note(self, metas: Metas, keys: Sequence[Any]) -> None:
        """A batch, sorted by meta."""
        if keys:
            self._batches.append((metas, keys))
            self._rows += len(keys)

    def note_one(self, meta: bytes, key: Any) -> None:
        self._ones.append((meta, key))

    def above(self, cut: bytes) -> dict[Any, None]:
        """The keys of what came at or above a cut."""
        found: dict[Any, None] = {}
        for metas, keys in self._batches:
            if metas[-1] >= cut:
                found.update(dict.fromkeys(keys[bisect_left(metas, cut) :]))
        found.update(dict.fromkeys(key for meta, key in self._ones if meta >= cut))
        return found

    def take(self, cut: bytes) -> dict[Any, None]:
        """The keys of what came below a cut, which is forgotten by this."""
        self._fold()
        found, self._settled = self._settled, {}
        self._pass_to(cut, found)
        return found

    def settle(self, minimal_time: bytes) -> None:
        """Nothing below minimal time will change any more."""
        batches = self._batches
        while batches and batches[0][0][-1] < minimal_time:
            _, keys = batches.popleft()
            self._rows -= len(keys)
            if self.tracks:
                self._unfolded.append(keys)
                self._unfolded_rows += len(keys)
        if self._unfolded_rows > max(_SETTLED_ROWS_MIN, len(self._settled)):
            self._fold()
        if self._rows + len(self._ones) > self._rows_max:
            self._pass_to(minimal_time, self._settled if self.tracks else None)
            self._rows_max = max(_ROWS_KEPT_MIN, 2 * (self._rows + len(self._ones)))

    def forget_settled(self) -> None:
        """No cut will be taken."""
        self._settled, self._unfolded, self._unfolded_rows = {}, [], 0

    def _fold(self) -> None:
        """Each settled key once."""
        if self._unfolded:
            keys = dict.fromkeys(chain.from_iterable(self._unfolded))
            if self._settled:
                self._settled.update(keys)
            else:
                self._settled = keys
            self._unfolded, self._unfolded_rows = [], 0

    def rewind(self, cut: bytes) -> None:
        """Forget what is at or above a cut."""
        batches, self._batches, self._rows = self._batches, deque(), 0
        for metas, keys in batches:
            end = len(metas) if metas[-1] < cut else bisect_left(metas, cut)
            self.note(metas[:end], keys[:end])
        self._ones = [(meta, key) for meta, key in self._ones if meta < cut]

    def _pass_to(self, cut: bytes, found: dict[Any, None] | None) -> None:
        batches, self._batches, self._rows = self._batches, deque(), 0
        for metas, keys in batches:
            if metas[-1] < cut:
                if found is not None:
                    found.update(dict.fromkeys(keys))
            elif metas[0] >= cut:
                self.note(metas, keys)
            else:
                at = bisect_left(metas, cut)
                if found is not None:
                    found.update(dict.fromkeys(keys[:at]))
                self.note(metas[at:], keys[at:])
        left = []
        for meta, key in self._ones:
            if meta < cut:
                if found is not None:
                    found[key] = None
            else:
                left.append((meta, key))
        self._ones = left


class Unasked:
    """The states that a stage may find in a store, and has not asked for yet.

    Args:
        lookup: into the store, as of the cut that the stage goes on from.
    """

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._asked: dict[Any, None] = {}

    def know(self, keys: Iterable[Any]) -> None:
        """Keys whose states the stage has been given."""
        self._asked.update(dict.fromkeys(keys))

    def of(self, keys: Sequence[Any]) -> list[tuple[Any, Any]]:
        """The states of those keys that were not asked for before, where the store has them."""
        asked = self._asked
        new = [key for key in dict.fromkeys(keys) if key not in asked]
        if not new:
            return []
        asked.update(dict.fromkeys(new))
        return list(self._lookup(new))


class KeyedState(ABC):
    """What a stage keeps by key: got and put as it steps, as of a cut, and what has changed since the cut before.

    How a state is kept is the stage's own, since it may have to be taken back; where its keys have been, and which of
    them a store may still have, is here.

    Attributes:
        whole_below: what comes below it comes in this call at the latest, so that nothing there is ever taken back.
    """

    whole_below: bytes = BEGINNING
    _touched: Touched | None = None
    _unasked: Unasked | None = None

    @property
    def wants_keys(self) -> bool:
        """Whether the keys of a batch have to be known before its items are stepped, as `get` needs them."""
        return self._touched is not None or self._unasked is not None

    def get(self, metas: Metas, keys: Sequence[Any]) -> None:
        """Before the items of a batch are stepped through, sorted by meta: have the states of their keys."""
        if self._touched is not None:
            self._touched.note(metas, keys)
        if self._unasked is not None:
            self.put(self._unasked.of(keys))

    def track(self, *, tracks: bool = True) -> None:
        """Before any item: cuts will be taken of this stage; or, at any time, none any more."""
        self._touched = self._touched or Touched()
        self._touched.tracks = tracks
        if not tracks:
            self._touched.forget_settled()

    def changed(self, cut: bytes) -> Entries:
        """The keys that have changed since the last cut, and what items above this one need of each, or GONE.

        Taken when minimal time has come to the cut, before the stage is told of a greater one. A key whose step raised
        below the cut is left out: nothing goes on from there.
        """
        assert self._touched is not None
        return self.as_of(cut, list(self._touched.take(cut)))

    def restore(self, entries: Iterable[tuple[Any, Any]], lookup: Lookup | None = None) -> None:
        """Go on, before any item, from a cut that had this of keys; of others `lookup` knows, and is asked once.

        Those with timers, or with windows that are open, have to be among the entries.
        """
        entries = list(entries)
        self.put(entries)
        if lookup is not None:
            self._unasked = self._unasked or Unasked(lookup)
        if self._unasked is not None:
            self._unasked.know(key for key, _ in entries)

    @abstractmethod
    def put(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Have this of keys, none of which has had an item here."""

    @abstractmethod
    def as_of(self, cut: bytes, keys: Sequence[Any]) -> Entries:
        """Of these keys, whatever they have, what items above a cut need, or GONE; see `changed`."""

    @abstractmethod
    def rewind(self, cut: bytes) -> None:
        """Forget all that is at or above a cut, which is not below the minimal time that was told last.

        The stage is then as one that was given what is below the cut, and nothing else.
        """
