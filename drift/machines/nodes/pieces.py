"""Stores pieces of cuts for processes that have to be replaced, and looks up keys in them.

Invariant: `begun_with` gives the newest value of every key as of the last piece, for some keys at once and for the
others on lookup; and every later item at or above that cut that was made from items below it.

Why: a piece has the changes since the previous one, so of several values of a key the newest counts, even if it is
GONE. States with timers are restored at once, since timers hold minimal time; the rest is looked up when an item of its
key comes, so that a restart does not wait for state that nobody needs. Neighbours of about the same size are merged
once there are several, so few pieces have to be searched, and the number of times that each entry is copied grows with
the logarithm of all entries.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from drift.machines.cuts import GONE, Entries, Lookup
from drift.machines.sent import LaterSent
from drift.machines.worker import Piece

#: So many pieces of one tier are made one; those of a tier are up to so many times as large as those of the one below.
_MERGED = 8
#: Pieces of the lowest tier are not larger.
_TIER_BYTES = 4096
#: A larger piece is made one in which keys are looked up, though it has no neighbours of its size.
_ALONE_BYTES = 1 << 16
#: A table in memory that has so many keys is full: one that outgrows the processor's cache takes twice as long to fill.
_TABLE_ENTRIES = 1 << 15


class NoRoom(Exception):
    """A piece cannot be stored now, but perhaps later.

    Attributes:
        tried_s: seconds that the attempt took.
    """

    tried_s = 0.0


class Layer(Protocol):
    """A stored piece, or several consecutive ones."""

    @property
    def cut(self) -> bytes: ...

    @property
    def later(self) -> list[LaterSent]: ...

    @property
    def steps(self) -> Collection[str]:
        """Names of the steps that it has keys of."""

    def count(self, step: str) -> int:
        """How many keys of a step it has."""

    def timed(self, step: str) -> Iterable[Any]:
        """The keys of a step whose states come with timers."""

    def find(self, step: str, keys: Sequence[Any]) -> dict[Any, Any]:
        """The values of the keys that it has; a value may be GONE."""

    def whole(self) -> Piece: ...


class Shelf(Protocol):
    """The store of pieces, by name, that the processes of a run share."""

    def put(self, piece: Piece) -> tuple[bytes, int, float]:
        """Its name, how many bytes it has, and the seconds it took.

        Raises:
            NoRoom: for now.
            Exception: whatever a state raises that cannot be pickled.
        """

    def get(self, names: Sequence[bytes]) -> list[Layer]:
        """Pieces that follow one another, oldest first; a layer may be of several."""

    def drop(self, name: bytes) -> None:
        """Delete a piece, since nobody will get it any more."""


class PieceName(NamedTuple):
    """A piece on a shelf.

    Attributes:
        cut: that it is of.
        cost_s: what it took to put it there.
        merged: it is made of others.
    """

    cut: bytes
    name: bytes
    size: int
    cost_s: float = 0.0
    merged: bool = False


class InMemory:
    """A shelf whose names are the pieces themselves."""

    def __init__(self, timed: Collection[str]) -> None:
        self._timed = timed

    def put(self, piece: Piece) -> tuple[bytes, int, float]:
        name = packed(piece)
        return name, len(name), 0.0

    def get(self, names: Sequence[bytes]) -> list[Layer]:
        return [LoadedLayer([unpacked(name)], self._timed) for name in names]

    def drop(self, name: bytes) -> None:
        """Does nothing."""


class LoadedLayer:
    """Pieces that are in memory, and follow one another; keys are looked up where somebody asks."""

    def __init__(self, pieces: Sequence[Piece], timed: Collection[str]) -> None:
        self._pieces = pieces
        self._timed = timed
        self._tables: dict[str, list[dict[Any, Any]]] = {}  # by step: values by key, oldest first

    def _tables_of(self, step: str) -> list[dict[Any, Any]]:
        tables = self._tables.get(step)
        if tables is None:
            tables = self._tables[step] = [{}]
            for piece in self._pieces:
                if (entries := piece.states.get(step)) is not None:
                    if len(tables[-1]) >= _TABLE_ENTRIES:
                        tables.append({})
                    tables[-1].update(zip(entries.identities, entries.values))
                    tables[-1].update(dict.fromkeys(entries.gone, GONE))
        return tables

    @property
    def cut(self) -> bytes:
        return self._pieces[-1].cut

    @property
    def later(self) -> list[LaterSent]:
        return [each for piece in self._pieces for each in piece.later]

    @property
    def steps(self) -> Collection[str]:
        return dict.fromkeys(step for piece in self._pieces for step in piece.states)

    def count(self, step: str) -> int:
        """See `Layer`."""
        return sum(len(piece.states.get(step, ())) for piece in self._pieces)

    def timed(self, step: str) -> Iterable[Any]:
        """See `Layer`."""
        tables = self._tables_of(step) if step in self._timed else ()
        return dict.fromkeys(key for table in tables for key in timed_keys(table.items()))

    def find(self, step: str, keys: Sequence[Any]) -> dict[Any, Any]:
        """See `Layer`."""
        found: dict[Any, Any] = {}
        for table in self._tables_of(step):
            found.update({key: table[key] for key in keys if key in table})
        return found

    def whole(self) -> Piece:
        return merged(self._pieces)


def timed_keys(entries: Iterable[tuple[Any, Any]]) -> list[Any]:
    """Of a step whose states may come with timers, the keys that have some."""
    return [key for key, value in entries if value is not GONE and value[1]]


def begun_with(
    layers: Sequence[Layer], cut: bytes, base: Callable[[str], Lookup] | None = None
) -> tuple[Piece, Callable[[str], Lookup]]:
    """The state that a replaced worker restores at once, and the lookup for the rest.

    Args:
        layers: oldest first.
        cut: of the newest layer.
        base: lookup for keys that no layer has, by name of the step.
    """
    newest_first = list(reversed(layers))

    def lookup(step: str) -> Lookup:
        below = base(step) if base is not None else None

        def find(keys: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
            found: list[tuple[Any, Any]] = []
            for layer in newest_first:
                if not keys:
                    break
                values = layer.find(step, keys)
                if values:
                    found += [(key, value) for key, value in values.items() if value is not GONE]
                    keys = [key for key in keys if key not in values]
            if below is not None and keys:
                found += below(keys)
            return found

        return find

    steps = dict.fromkeys(step for layer in layers for step in layer.steps)
    at_once: dict[str, Entries] = {}
    for step in steps:
        keys = list(dict.fromkeys(key for layer in layers for key in layer.timed(step)))
        if keys:
            at_once[step] = Entries.of(lookup(step)(keys))
    later = [each for layer in layers for each in layer.later if each.meta >= cut]
    return Piece(cut, at_once, later), lookup


def packed(piece: Piece) -> bytes:
    """A piece as bytes, for processes of one run.

    Raises:
        Exception: whatever a state raises that cannot be pickled.
    """
    states = {name: (each.identities, each.values, each.gone) for name, each in piece.states.items()}
    return pickle.dumps((piece.cut, states, piece.later), 5)


def unpacked(data: bytes | memoryview) -> Piece:
    cut, states, later = pickle.loads(data)
    return Piece(cut, {name: Entries(*columns) for name, columns in states.items()}, later)


def merged(pieces: Iterable[Piece]) -> Piece:
    """Merge consecutive pieces into one."""
    pieces = list(pieces)
    if len(pieces) == 1:  # each value is the newest of its key
        return pieces[0]
    cut = b""
    states: dict[str, dict[Any, Any]] = {}
    later: list[LaterSent] = []
    for piece in pieces:
        cut = piece.cut
        later += piece.later
        for name, entries in piece.states.items():
            states.setdefault(name, {}).update(entries)
    listed = {name: Entries.of(values.items()) for name, values in states.items()}
    return Piece(cut, listed, [each for each in later if each.meta >= cut])


class PiecesKept:
    """The names of one worker's pieces."""

    def __init__(self) -> None:
        self._pieces: list[PieceName] = []

    def add(self, pieces: Iterable[PieceName]) -> None:
        """Add the pieces up to a committed cut; some may have been added before."""
        last = self._pieces[-1].cut if self._pieces else b""
        self._pieces += [piece for piece in pieces if piece.cut > last]

    def due(self) -> list[PieceName]:
        """Neighbours to be merged; or a single piece, to be put into a form for lookups."""
        tiers: list[int] = []
        for piece in reversed(self._pieces):
            tiers.insert(0, max(_tier(piece.size), tiers[0] if tiers else 0))
        for tier in dict.fromkeys(reversed(tiers)):
            if tiers.count(tier) >= _MERGED:
                return [piece for piece, its in zip(self._pieces, tiers) if its == tier]
        return next(([piece] for piece in self._pieces if not piece.merged and piece.size > _ALONE_BYTES), [])

    def replace(self, several: Sequence[PieceName], one: PieceName) -> None:
        """Note that pieces that were due have been merged into one."""
        at = self._pieces.index(several[0])
        assert self._pieces[at : at + len(several)] == list(several)
        self._pieces[at : at + len(several)] = [one]

    def all(self) -> list[PieceName]:
        """In order."""
        return self._pieces

    @property
    def kept_bytes(self) -> int:
        return sum(piece.size for piece in self._pieces)


def _tier(size: int) -> int:
    tier = 0
    while size > _TIER_BYTES:
        size //= _MERGED
        tier += 1
    return tier
