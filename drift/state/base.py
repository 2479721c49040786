"""The states as of the oldest cut that is kept, by key: newer cuts are folded into them when they become the oldest.

Invariant: a row is the state of its key as of the cut `folded`, to the byte; a key without a row has none.

Why: a cut is folded in one transaction, which moves `folded` with it. Each row begins with a hash of its key and state,
and is compared when it is read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import xxhash

from drift.state.cut import StateDamaged
from drift.state.pieces import LaterForm, StoredPiece

_SCHEMA = """
create table if not exists state (step text, key blob, value blob, timed int, primary key (step, key)) without rowid;
create index if not exists timed on state (step) where timed;
create table if not exists later (origin blob, target text, meta blob, payload blob, diff int);
create table if not exists folded (one int primary key, cut int);
insert or ignore into folded values (1, 0);
"""
_ASKED_AT_ONCE = 500
_HASH_BYTES = 8


class Base:
    """One file.

    Args:
        path: of it; it is made where it is not there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._base = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._base.execute("pragma journal_mode = wal")
            self._base.execute("pragma synchronous = full")
            self._base.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise StateDamaged(f"{path} cannot be opened: {error}") from error

    @property
    def folded(self) -> int:
        """The cut that it is as of; 0 before the first."""
        (cut,) = self._base.execute("select cut from folded").fetchone()
        return int(cut)

    def fold(self, number: int, at: bytes, pieces: Sequence[StoredPiece]) -> None:
        """Take in what changed up to a cut, which was at minimal time `at`; of several states of a key the last."""
        changed: dict[str, dict[bytes, bytes | None]] = {}
        timed: dict[str, dict[bytes, bool]] = {}
        for piece in pieces:
            for step, (keys, values, with_timers) in piece.states.items():
                changed.setdefault(step, {}).update(zip(keys, values))
                timed.setdefault(step, {}).update(dict.fromkeys(keys, False))
                timed[step].update((keys[index], True) for index in with_timers)
        base = self._base
        base.execute("begin immediate")
        try:
            for step, rows in changed.items():
                base.executemany(
                    "insert or replace into state values (?, ?, ?, ?)",
                    [
                        (step, key, _hash(key, value) + value, timed[step][key])
                        for key, value in sorted(rows.items())
                        if value is not None
                    ],
                )
                gone = [(step, key) for key, value in rows.items() if value is None]
                base.executemany("delete from state where step = ? and key = ?", gone)
            for piece in pieces:
                base.executemany("insert into later values (?, ?, ?, ?, ?)", piece.later)
            base.execute("delete from later where meta < ?", (at,))
            base.execute("update folded set cut = ?", (number,))
            base.execute("commit")
        except BaseException:
            base.execute("rollback")
            raise

    def find(self, step: str, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """The states of those keys that have one."""
        for start in range(0, len(keys), _ASKED_AT_ONCE):
            some = keys[start : start + _ASKED_AT_ONCE]
            asked = f"select key, value from state where step = ? and key in ({','.join('?' * len(some))})"
            yield from self._verified(step, self._base.execute(asked, (step, *some)))

    def timed(self, step: str) -> Iterator[tuple[bytes, bytes]]:
        """The states that come with timers."""
        rows = self._base.execute("select key, value from state where step = ? and timed", (step,))
        return self._verified(step, rows)

    def every(self, step: str) -> Iterator[tuple[bytes, bytes]]:
        """All states of a step, by key."""
        rows = self._base.execute("select key, value from state where step = ? order by key", (step,))
        return self._verified(step, rows)

    def later(self) -> list[LaterForm]:
        return [LaterForm(*row) for row in self._base.execute("select * from later")]

    def _verified(self, step: str, rows: sqlite3.Cursor) -> Iterator[tuple[bytes, bytes]]:
        try:
            for key, value in rows:
                state = value[_HASH_BYTES:]
                if _hash(key, state) != value[:_HASH_BYTES]:
                    raise StateDamaged(
                        f"{self._path} was changed since it was written: the state of a key of step {step!r} has "
                        f"another hash; the run cannot go on from there"
                    )
                yield key, state
        except sqlite3.DatabaseError as error:
            raise StateDamaged(f"{self._path} cannot be read: {error}") from error

    def close(self) -> None:
        self._base.close()


def _hash(key: bytes, state: bytes) -> bytes:
    return xxhash.xxh3_64_digest(key + state)
