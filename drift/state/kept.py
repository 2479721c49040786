"""The states of a cut that a run goes on from, by key: looked up when a key is first asked for.

Invariant: a key that is asked for the first time has the state of the cut, also where the base has gone further.

Why: what changed since the base was read beforehand, and the base changes only for keys that the run has changed, which
it had asked for before. Each row begins with a hash of its key and state, and is compared when it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import xxhash

from drift.machines.cuts import Entries, Lookup
from drift.machines.keys import form_of_identity, identity_of
from drift.machines.worker import Piece
from drift.state.cut import Cut, StateDamaged
from drift.state.patience import Patience
from drift.state.pieces import Forms, LaterForm, StoredPiece
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
        self._changed: dict[str, dict[bytes, bytes | None]] = {}
        self._timed: dict[str, dict[bytes, None]] = {}
        self._later: list[LaterForm] = reader.later()
        for piece in pieces:
            for step, states in piece.states.items():
                self._changed.setdefault(step, {}).update(states.entries())
                self._timed.setdefault(step, {}).update(dict.fromkeys(states.with_timers()))
            self._later += piece.later

    def at_once(self, cut: Cut) -> Piece:
        """What has to be known from the beginning: the states of keys with timers, and all later items."""
        states: dict[str, Entries] = {}
        for step in cut.steps:
            changed = self._changed.get(step, {})
            rows = [(key, form) for key, form in self._verified(step, self._reader.timed(step)) if key not in changed]
            rows += [(key, form) for key in self._timed.get(step, ()) if (form := changed[key]) is not None]
            states[step] = Entries.of(self._forms.entries(rows))
        return Piece(cut.at, states, self._forms.later(each for each in self._later if each.meta >= cut.at))

    def lookup(self, step: str) -> Lookup:
        """What is found when a key is first asked for."""
        changed, forms = self._changed.get(step, {}), self._forms

        def found(identities: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
            by_form = {form_of_identity(each): each for each in identities}
            for key in by_form.keys() & changed.keys():
                identity = by_form.pop(key)
                form = changed[key]
                if form is not None:
                    yield identity, forms.value(form)
            asked = list(by_form)
            rows = self._patience.call(lambda: list(self._reader.find(step, asked)))
            for key, form in self._verified(step, rows):
                yield by_form[key], forms.value(form)

        return found

    def every(self, step: str) -> Iterator[tuple[Any, Any]]:
        """All states of a step: identities of keys and what is kept of each."""
        changed = self._changed.get(step, {})
        for key, form in self._verified(step, self._reader.every(step)):
            if key not in changed:
                yield identity_of(key), self._forms.value(form)
        for key, known in changed.items():
            if known is not None:
                yield identity_of(key), self._forms.value(known)

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
