"""The states that a run resumes from, by key: in snapshots, and in a base below; read on demand.

Invariant: a key that is looked up for the first time has the state of the checkpoint, even if the base has a later
checkpoint by then.

Why: changes since the base were read beforehand, and the base changes only for keys that the run has changed, which it
had looked up before. Each row begins with a hash of its key and state, which is compared on reading.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import msgspec

from drift.machines.checkpoints import Entries, Lookup
from drift.machines.keys import form_of_identity, identity_of
from drift.machines.worker import Snapshot
from drift.state.backend import Reader
from drift.state.checkpoint import Checkpoint, StateDamaged
from drift.state.open_block import opened_in
from drift.state.snapshots import Form, Forms, LaterForm, States, StoredSnapshot, states_of
from drift.state.tables import check_base, later_in, merged_in, snapshots_of, state_of
from drift_barrier.digest import Encoded

_PART_KEYS = 4096


class Layered:
    """Snapshots as layers: each key has its value in the newest snapshot. `snapshots`: the oldest first."""

    def __init__(self, snapshots: Iterable[StoredSnapshot], forms: Forms) -> None:
        self._snapshots = list(snapshots)
        self._forms = forms
        self._layered: dict[str, tuple[dict[Any, msgspec.Raw | None], dict[Any, None]]] = {}

    def of(self, step: str) -> Mapping[Any, msgspec.Raw | None]:
        """The value of each key of a step, by identity; None if the key was deleted."""
        return self._both(step)[0]

    def _both(self, step: str) -> tuple[dict[Any, msgspec.Raw | None], dict[Any, None]]:
        """The values, and the keys that have timers."""
        if step not in self._layered:
            values: dict[Any, msgspec.Raw | None] = {}
            timed: dict[Any, None] = {}
            for snapshot in self._snapshots:
                if (states := snapshot.states.get(step)) is not None:
                    found = dict(states.by_identity())
                    values.update(found)
                    timed = {key: None for key in timed if key not in found} if timed else timed
                    timed.update((identity_of(key), None) for key in states.with_timers())
            self._layered[step] = values, timed
        return self._layered[step]

    def found(self, step: str, identities: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """The keys that have a state, with their states."""
        values = self.of(step)
        return ((key, self._forms.value(bytes(raw))) for key in identities if (raw := values.get(key)) is not None)

    def timed_keys(self, step: str) -> Mapping[Any, None]:
        return self._both(step)[1]

    def timed(self, step: str) -> list[tuple[Any, Any]]:
        """The states of the keys that have timers; layers are only merged if there are any."""
        has_some = any(snapshot.states[step].timed for snapshot in self._snapshots if step in snapshot.states)
        return list(self.found(step, self.timed_keys(step))) if has_some else []

    def later(self) -> Iterator[LaterForm]:
        return chain.from_iterable(snapshot.later for snapshot in self._snapshots)

    def parts(self, step: str, deleted: Container[Any] = ()) -> Iterator[States]:
        """The states of a step, as they were written; with deletions, but only of keys in `deleted`."""
        values, timed = self._both(step)
        entries = ((key, raw) for key, raw in values.items() if raw is not None or key in deleted)
        while part := list(islice(entries, _PART_KEYS)):
            yield states_of(part, timed)


class RestoredStates:
    """
    Args:
        reader: of the store.
        where: for messages.
    """

    def __init__(self, reader: Reader, checkpoint: Checkpoint, forms: Forms, where: str) -> None:
        self._reader = reader
        self._forms = forms
        self._where = where
        while True:
            self._merged = merged_in(reader)
            try:
                self._changed = Layered(list(snapshots_of(reader, checkpoint, self._merged, where)), forms)
                break
            except StateDamaged:
                if merged_in(reader) == self._merged:  # otherwise they were merged meanwhile
                    raise

    def at_once(self, checkpoint: Checkpoint) -> Snapshot:
        """The part that is needed from the beginning: the states of keys with timers, and all later items."""
        if checkpoint.is_last:
            return Snapshot(checkpoint.at, {}, [])
        states: dict[str, Entries] = {}
        for step in checkpoint.live_steps:
            rows = self._forms.entries(self._rows(step, sorted(self._reader.sizes(f"timers:{step}"))))
            timed = self._changed.timed(step)
            if rows or timed:
                changed = self._changed.of(step)
                states[step] = Entries.of([*(entry for entry in rows if entry[0] not in changed), *timed])
        known = self._forms.targets
        later = self._forms.later(each for each in self.later(checkpoint.at) if each.target in known)
        return Snapshot(checkpoint.at, states, later)

    def later(self, at: bytes) -> Iterator[LaterForm]:
        """The later items from a checkpoint on, for all targets that there were."""
        return (each for each in chain(later_in(self._reader), self._changed.later()) if each.meta >= at)

    def whole(self, checkpoint: Checkpoint) -> Snapshot:
        """All of it, for processes that cannot read the store: every state is in memory at once."""
        if checkpoint.is_last:
            return Snapshot(checkpoint.at, {}, [])
        states = {
            step: Entries.of((key, self._forms.value(bytes(form))) for key, form in self.all_of(step)[0])
            for step in checkpoint.live_steps
        }
        return self.at_once(checkpoint)._replace(states=states)

    def all_of(self, step: str) -> tuple[Iterator[tuple[Any, Form]], Container[Any]]:
        """Every key of a step with its state as it was written, and the keys that have timers."""
        changed = self._changed.of(step)
        timed = {identity_of(key): None for key in self._reader.sizes(f"timers:{step}")}
        timed = {key: None for key in timed if key not in changed}
        timed.update(self._changed.timed_keys(step))
        rows = ((identity_of(key), form) for key, form in self._all_rows(step))
        base = (row for row in rows if row[0] not in changed)
        return chain(base, ((key, raw) for key, raw in changed.items() if raw is not None)), timed

    def lookup(self, step: str) -> Lookup:
        """The lookup of a step's states, for keys that come for the first time; nothing is read before."""

        def found(identities: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
            changed = self._changed.of(step)
            yield from self._changed.found(step, identities)
            by_form = {form_of_identity(identity): identity for identity in identities if identity not in changed}
            forms = list(by_form)
            for key, form in self._rows(step, forms):
                yield by_form[key], self._forms.value(form)

        return found

    def _all_rows(self, step: str) -> Iterator[tuple[bytes, bytes]]:
        keys = sorted(self._reader.sizes(f"base:{step}"))
        for start in range(0, len(keys), _PART_KEYS):
            yield from self._rows(step, keys[start : start + _PART_KEYS])

    def _rows(self, step: str, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """The keys that the base has, and their states."""
        rows = self._reader.read(f"base:{step}", keys)
        check_base(
            merged_in(self._reader), self._merged, self._where
        )  # read behind the rows: never as of an older checkpoint
        for key, row in zip(keys, rows):
            if row is not None:
                yield key, state_of(key, row, step, self._where)

    def opened(self, checkpoint: Checkpoint) -> Iterator[Encoded]:
        """The items of the digest's block that is not full, read part by part."""
        return opened_in(self._reader, checkpoint, self._where)

    def close(self) -> None:
        self._reader.close()
