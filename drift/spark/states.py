"""The state of a level of a stream between micro-batches: rows of STATE and of LATER, each a snapshot of a checkpoint.

Invariant: of several versions of a key's state the newest counts, in whatever order rows come; a state that no item
needs is not decoded, and is written again unchanged.

Why: a row begins with its format version and holds the number of the micro-batch that wrote it; rows are layered in
the order of these numbers. Keys, states and payloads are in their canonical and stored forms, which name classes but no
modules, so a program may be moved, or replaced by another version, between two starts.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from drift.machines.checkpoints import Entries
from drift.machines.keys import identity_of
from drift.machines.sent import LaterSent
from drift.machines.worker import Router, Snapshot, Worker
from drift.spark.batches import LATER, STATE, BatchRow, Cutter
from drift.state.restored import Layered
from drift.state.snapshots import Form, Forms, States, StoredSnapshot, states_of
from drift_graph.errors import SettingsError
from drift_graph.item import Columns
from drift_graph.meta import BEGINNING
from drift_graph.metas import Metas

#: First bytes of a row; another number is another format.
_FORMAT = b"drift row 1\n"

_decode = msgspec.msgpack.Decoder(tuple[int, StoredSnapshot]).decode
_encode = msgspec.msgpack.Encoder().encode


class StateRows:
    """The state rows that a task of one level reads, and those that it writes.

    Args:
        last_level: of the graph, where rows wait for the end of a micro-batch.
        make_forms: makes the forms of the graph's states; called only if there are states.
    """

    def __init__(self, last_level: int, level: int, make_forms: Callable[[], Forms]) -> None:
        self._last_level = last_level
        self._level = level
        self._make_forms = make_forms
        self._made: Forms | None = None
        self._versions: list[tuple[int, StoredSnapshot]] = []
        self._layered: Layered | None = None

    @property
    def _forms(self) -> Forms:
        self._made = self._made or self._make_forms()
        return self._made

    def add(self, row: BatchRow) -> None:
        """Read a row: one version of the states of some keys."""
        self._versions.append(_opened(row))

    def restore(self, worker: Worker, checkpoint: bytes) -> None:
        """Called before any item: restores the worker, which looks up keys without timers only when items need them."""
        if self._versions and self._layered is None:
            layered = self._layered = self._layered_over()
            steps = sorted({name for _, snapshot in self._versions for name in snapshot.states})
            timed = {name: Entries.of(layered.timed(name)) for name in steps}
            worker.restore(Snapshot(checkpoint, timed, []), lambda step: lambda keys: layered.found(step, keys))

    def _layered_over(self, *more: tuple[int, StoredSnapshot]) -> Layered:
        snapshots = [snapshot for _, snapshot in sorted((*self._versions, *more), key=itemgetter(0))]
        return Layered(snapshots, self._forms)

    def rows(self, target: int, number: int, changed: Mapping[str, Entries], *, everything: bool) -> Iterator[BatchRow]:
        """Rows of the states that micro-batch `number` changed, or of all states as of its end.

        Raises:
            PayloadError: a state cannot be stored.
        """
        of_this = number, self._forms.stored(Snapshot(BEGINNING, dict(changed), []))
        layered = self._layered_over(of_this) if everything else Layered([of_this[1]], self._forms)
        for name in changed:
            known = {} if everything or self._layered is None else self._layered.of(name)
            for states in layered.parts(name, known):
                yield self._row(target, BEGINNING, STATE, self._level, number, StoredSnapshot({name: states}, ()))

    def later_rows(self, level: int, target: int, port: str, columns: Columns) -> Iterator[BatchRow]:
        """Rows of pending later items, which are sorted by meta."""
        metas, payloads, _ = columns
        at_once = Cutter().items_at_once(port, payloads)
        for start in range(0, len(metas), at_once):
            part = zip(metas[start : start + at_once], payloads[start : start + at_once])
            later = [LaterSent(BEGINNING, port, meta, payload, 1) for meta, payload in part]
            yield self._row(target, metas[start], LATER, level, 0, self._forms.stored(Snapshot(BEGINNING, {}, later)))

    def later_of(self, row: BatchRow) -> tuple[str, Columns]:
        later = self._forms.later(_opened(row)[1].later)
        return later[0].target, Columns(Metas([each.meta for each in later]), [each.payload for each in later], None)

    def _row(self, target: int, first: bytes, port: str, level: int, number: int, snapshot: StoredSnapshot) -> BatchRow:
        return BatchRow(self._last_level, target, first, port, level, _FORMAT + _encode((number, snapshot)))


def state_row(last_level: int, level: int, target: int, snapshot: StoredSnapshot) -> BatchRow:
    """A row of STATE from before the first micro-batch."""
    return BatchRow(last_level, target, BEGINNING, STATE, level, _FORMAT + _encode((-1, snapshot)))


def by_owner(
    step: str, entries: Sequence[tuple[Any, Form | None]], timed: Container[Any], router: Router, alone: Container[str]
) -> Iterator[tuple[int, States]]:
    """The states of a step for each task that owns some of the keys; steps that are alone are in one."""
    owners = [0] * len(entries) if step in alone else router.owners([key for key, _ in entries])
    for target in sorted(set(owners)):
        yield target, states_of((entry for entry, owner in zip(entries, owners) if owner == target), timed)


def moved_states(row: BatchRow, router: Router, alone: Container[str]) -> Iterator[BatchRow]:
    """A row of STATE that another number of tasks wrote, as rows for those that own its keys now."""
    number, snapshot = _opened(row)
    for step, states in snapshot.states.items():
        timed = set(map(identity_of, states.with_timers()))
        for target, own in by_owner(step, list(states.by_identity()), timed, router, alone):
            yield row._replace(target=target, body=_FORMAT + _encode((number, StoredSnapshot({step: own}, ()))))


def _opened(row: BatchRow) -> tuple[int, StoredSnapshot]:
    if not row.body.startswith(_FORMAT):
        raise SettingsError(
            f"a stored state of the stream begins with {row.body[:16]!r}, and this drift reads {_FORMAT!r}: another "
            f"version wrote it; use that version, or start a new stream, with another checkpoint"
        )
    return _decode(row.body[len(_FORMAT) :])
