"""The states of a cut that a run goes on from, by key: looked up when a key is first asked for.

Invariant: a key that is asked for the first time has the state of the cut, also where the base has gone further.

Why: what changed since the base was read beforehand, and the base changes only for keys that the run has changed, which
it had asked for before. Each row begins with a hash of its key and state, and is compared when it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
import xxhash

from drift.machines.cuts import Entries, Lookup
from drift.machines.keys import form_of_identity, identity_of
from drift.machines.worker import Piece
from drift.state.cut import Cut, StateDamaged
from drift.state.patience import Patience
from drift.state.pieces import Forms, StoredPiece
from drift.state.place import Reader

_HASH_BYTES = 8


def row_of(key: bytes, state: bytes) -> bytes:
    """What a base has of a key."""
    return xxhash.xxh3_64_digest(key + state) + state


class Kept:
    """See the module.

    Args:
        reader: of the base.
        pieces: what changed up to the cut since the base, the oldest first.
        where: for messages.
    """

    def __init__(
        self, reader: Reader, pieces: Iterable[StoredPiece], forms: Forms, where: str, patience: Patience
    ) -> None:
        self._reader = reader
        self._forms = forms
        self._where = where
        self._patience = patience
        self._pieces = list(pieces)
        self._changed: dict[str, Mapping[Any, msgspec.Raw | None]] = {}

    def at_once(self, cut: Cut) -> Piece:
        """What has to be known from the beginning: the states of keys with timers, and all later items."""
        states: dict[str, Entries] = {}
        for step in cut.steps:
            rows = self._forms.entries(self._verified(step, self._reader.timed(step)))
            timed = [piece.states[step] for piece in self._pieces if step in piece.states and piece.states[step].timed]
            if rows or timed:
                changed = self._changed_of(step)
                entries = [entry for entry in rows if entry[0] not in changed]
                keys = dict.fromkeys(identity_of(key) for its_states in timed for key in its_states.with_timers())
                entries += [(key, self._value(raw)) for key in keys if (raw := changed[key]) is not None]
                states[step] = Entries.of(entries)
        later = chain(self._reader.later(), *(piece.later for piece in self._pieces))
        return Piece(cut.at, states, self._forms.later(each for each in later if each.meta >= cut.at))

    def _changed_of(self, step: str) -> Mapping[Any, msgspec.Raw | None]:
        """By identity what pieces have of the keys of a step: the newest value, None where the key is gone."""
        changed = self._changed.get(step)
        if changed is None:
            found: dict[Any, msgspec.Raw | None] = {}
            for piece in self._pieces:
                if step in piece.states:
                    found.update(piece.states[step].by_identity())
            changed = self._changed[step] = found
        return changed

    def _value(self, raw: msgspec.Raw) -> Any:
        return self._forms.value(bytes(raw))

    def lookup(self, step: str) -> Lookup:
        """What is found when a key is first asked for."""
        changed = self._changed_of(step)

        def found(identities: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
            asked: dict[bytes, Any] = {}
            for identity in identities:
                if identity not in changed:
                    asked[form_of_identity(identity)] = identity
                elif (raw := changed[identity]) is not None:
                    yield identity, self._value(raw)
            forms = list(asked)
            rows = self._patience.call(lambda: list(self._reader.find(step, forms)))
            for key, form in self._verified(step, rows):
                yield asked[key], self._forms.value(form)

        return found

    def _verified(self, step: str, rows: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        for key, row in rows:
            state = row[_HASH_BYTES:]
            if row_of(key, state) != row:
                raise StateDamaged(
                    f"the base of {self._where} was changed since it was written: the state of a key of step {step!r} "
                    f"has another hash; the run cannot go on from there"
                )
            yield key, state

    def close(self) -> None:
        self._reader.close()
