"""Pieces of cuts as bytes, and what is kept of them until they are needed.

Invariant: `PiecesKept.until(cut)` is one piece with the newest value of every key as of the cut, and every later item
that was sent below the cut and comes at or above it.

Why: a piece has what changed since the one before. Neighbours of one size are made one where they have become several,
so there are few, and each entry is copied a number of times that grows with the logarithm of all.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

from drift.machines.cuts import Entries
from drift.machines.worker import Piece

#: So many pieces of one size are made one.
_MERGED = 8


def packed(piece: Piece) -> bytes:
    """A piece as bytes, for processes of one run.

    Raises:
        Exception: whatever a state raises that cannot be pickled.
    """
    states = {name: (each.identities, each.values, each.gone) for name, each in piece.states.items()}
    return pickle.dumps((piece.cut, states, piece.later), 5)


def unpacked(data: bytes) -> Piece:
    cut, states, later = pickle.loads(data)
    return Piece(cut, {name: Entries(*columns) for name, columns in states.items()}, later)


def merged(pieces: Iterable[Piece]) -> Piece:
    """One piece of several that follow one another."""
    cut = b""
    states: dict[str, dict[Any, Any]] = {}
    later: list[Any] = []
    for piece in pieces:
        cut = piece.cut
        later += piece.later
        for name, entries in piece.states.items():
            states.setdefault(name, {}).update(entries)
    listed = {name: Entries.of(values.items()) for name, values in states.items()}
    return Piece(cut, listed, [each for each in later if each.meta >= cut])


class PiecesKept:
    """Those of one worker."""

    def __init__(self) -> None:
        self._pieces: list[tuple[bytes, bytes]] = []  # cut and piece

    def add(self, pieces: Iterable[tuple[bytes, bytes]]) -> None:
        """Pieces up to a cut that is committed; some may have been added before."""
        last = self._pieces[-1][0] if self._pieces else b""
        self._pieces += [(cut, piece) for cut, piece in pieces if cut > last]
        kept = self._pieces
        while len(kept) >= _MERGED and len(kept[-_MERGED][1]) < _MERGED * len(kept[-1][1]):
            several = kept[-_MERGED:]
            kept[-_MERGED:] = [(several[-1][0], packed(merged(unpacked(piece) for _, piece in several)))]

    def all(self) -> list[bytes]:
        """In order; for one that begins anew."""
        return [piece for _, piece in self._pieces]

    @property
    def kept_bytes(self) -> int:
        return sum(len(piece) for _, piece in self._pieces)
