"""Merges snapshots of cuts into the base, in a separate process if there are many.

Invariant: the base is as of one cut, the old one or the new one; and a snapshot is removed only when the base has it.

Why: a backend merges all at once. The process writes on behalf of the run that holds the lock, and ends with it; it has
a low priority, so it only takes time that the run leaves. If the run itself merges, it pays some microseconds for each
key, which is more than the key's item takes.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import xxhash

from drift.children import Child, main_of
from drift.state.backend import Backend, Changes, Reader
from drift.state.cut import Cut, StateDamaged, decoded, encoded
from drift.state.patience import Patience
from drift.state.restored import row_of
from drift.state.snapshots import LaterForm, StoredSnapshot
from drift.state.snapshots import decoded as snapshot_of
from drift_graph.errors import DriftError, SettingsError

_NICE = 10
_DIGITS = 10


def name_of(number: int, name: str) -> str:
    """The stored name of a snapshot of a cut."""
    return f"{number:0{_DIGITS}}-{name}"


def number_of(name: str) -> int:
    """The number of a snapshot's cut."""
    return int(name[:_DIGITS])


def manifest(reader: Reader, number: int, where: str) -> Cut | None:
    """The cut of a number; None if there is none."""
    data = reader.manifest(number)
    return None if data is None else decoded(data, f"of cut {number} in {where}")


def snapshots_of(reader: Reader, cut: Cut, where: str) -> Iterator[StoredSnapshot]:
    """The snapshots between the base and a cut, the oldest first."""
    folded = reader.folded()
    for name, expected in sorted(cut.snapshots.items()):
        if number_of(name) <= folded:
            continue
        data = reader.snapshot(name)
        if data is None:
            raise StateDamaged(
                f"snapshot {name} of {where}, which cut {cut.number} needs, was removed; "
                f"resume from an earlier cut with from_cut=, or start a new run"
            )
        if xxhash.xxh3_128_digest(data) != expected:
            raise StateDamaged(
                f"snapshot {name} of {where}, which cut {cut.number} needs, was changed since it was written: its hash "
                f"differs; resume from an earlier cut with from_cut=, or start a new run"
            )
        yield snapshot_of(data, f"snapshot {name} of {where}")


def fold(backend: Backend, reader: Reader, cut: Cut) -> None:
    """Bring the base to a cut, and remove the snapshots that are merged into it then."""
    if cut.number > reader.folded():
        backend.fold(cut.number, _changes(cut.at, snapshots_of(reader, cut, backend.where)))
    backend.forget((), [name for name in reader.snapshots() if number_of(name) <= cut.number])


def _changes(at: bytes, snapshots: Iterable[StoredSnapshot]) -> Changes:
    """The changes of several snapshots; of each key the last state."""
    states: dict[str, dict[bytes, tuple[bytes | None, bool]]] = {}
    later: list[LaterForm] = []
    for snapshot in snapshots:
        for step, its_states in snapshot.states.items():
            timed = set(its_states.with_timers())
            states.setdefault(step, {}).update(
                (key, (None if value is None else row_of(key, value), key in timed))
                for key, value in its_states.entries()
            )
        later += snapshot.later
    return Changes(states, [each for each in later if each.meta >= at], at)


class Folding:
    """A process that folds.

    Args:
        backend: the backend, which this process has open.
        cut: the cut to bring the base to; it may be removed meanwhile.
        away_max_s: how long the backend may be unavailable.
    """

    def __init__(self, backend: Backend, cut: Cut, away_max_s: float) -> None:
        deputy, descriptors = backend.deputy()
        program, arguments = main_of("drift.state.folding")
        self._where = backend.where
        self._child = Child(
            f"drift folds the state in {backend.where}",
            program,
            arguments,
            environment={},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            hand_on=descriptors,
        )
        order = pickle.dumps((deputy, encoded(cut), away_max_s))
        self._child.write(len(order).to_bytes(8, "big") + order)

    def is_done(self, *, wait: bool = False) -> bool:
        """Whether the base is at the cut.

        Raises:
            SettingsError: folding failed.
        """
        if wait:
            self._child.wait()
        code = self._child.poll()
        if code is None:
            return False
        stderr = self._child.stderr_text()
        self._child.end()
        if code != 0:
            raise SettingsError(
                f"older cuts in {self._where} cannot be merged: {stderr.strip() or f'exit code {code}'}"
            )
        return True

    def end(self) -> None:
        """Kill the process; the base is as of the old cut or the new one."""
        self._child.end()


def main() -> None:
    """Fold what the starting process orders, and end with it."""
    os.nice(_NICE)
    pipe = sys.stdin.buffer
    backend: Any
    backend, encoded_cut, away_max_s = pickle.loads(pipe.read(int.from_bytes(pipe.read(8), "big")))
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
    patience = Patience(backend.where, away_max_s)
    try:
        patience.call(backend.open)
        reader = patience.call(backend.reader)
        cut = decoded(encoded_cut, "of a cut")
        patience.call(lambda: fold(backend, reader, cut))
        reader.close()
        backend.close()
    except DriftError as error:
        sys.stderr.write(str(error))
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _end_with(pipe: Any) -> None:
    """End this process when the starting process has ended."""
    pipe.read()
    os._exit(1)
