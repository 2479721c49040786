"""The base of a folder of cuts: one file of SQLite.

Invariant: as for `Reader`.

Why: a cut is folded in one transaction, which also updates `folded`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from drift.state.backend import Changes
from drift.state.cut import StateDamaged
from drift.state.snapshots import LaterForm

_SCHEMA = """
create table if not exists state (step text, key blob, value blob, timed int, primary key (step, key)) without rowid;
create index if not exists timed on state (step) where timed;
create table if not exists later (origin blob, target text, meta blob, payload blob, diff int);
create table if not exists folded (one int primary key, cut int);
insert or ignore into folded values (1, 0);
"""
_KEYS_PER_QUERY = 500


class Base:
    """The base in one file.

    Args:
        path: of the file.
        writes: open it to write, and make it if it does not exist.
    """

    def __init__(self, path: Path, *, writes: bool = False) -> None:
        self._path = path
        try:
            if writes:
                self._base = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
                self._base.execute("pragma journal_mode = wal")
                self._base.execute("pragma synchronous = full")
                self._base.executescript(f"begin immediate; {_SCHEMA} commit;")
            else:
                uri = f"{path.absolute().as_uri()}?mode=ro"
                self._base = sqlite3.connect(uri, isolation_level=None, check_same_thread=False, uri=True)
        except sqlite3.Error as error:
            raise StateDamaged(f"{path} cannot be opened: {error}") from error

    def folded(self) -> int:
        """See `Reader`; 0 in a base that a run was about to make when it was killed."""
        if self._base.execute("select 1 from sqlite_master where name = 'folded'").fetchone() is None:
            return 0
        (cut,) = self._base.execute("select cut from folded").fetchone()
        return int(cut)

    def fold(self, number: int, changes: Changes) -> None:
        """See `Backend`."""
        base = self._base
        base.execute("begin immediate")
        try:
            for step, rows in changes.states.items():
                stored = [(step, key, row, timed) for key, (row, timed) in sorted(rows.items()) if row is not None]
                base.executemany("insert or replace into state values (?, ?, ?, ?)", stored)
                deleted = [(step, key) for key, (row, _) in rows.items() if row is None]
                base.executemany("delete from state where step = ? and key = ?", deleted)
            base.executemany("insert into later values (?, ?, ?, ?, ?)", changes.later)
            base.execute("delete from later where meta < ?", (changes.at,))
            base.execute("update folded set cut = ?", (number,))
            base.execute("commit")
        except BaseException:
            base.execute("rollback")
            raise

    def find(self, step: str, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """See `Reader`."""
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            some = keys[start : start + _KEYS_PER_QUERY]
            query = f"select key, value from state where step = ? and key in ({','.join('?' * len(some))})"
            yield from self._rows(query, (step, *some))

    def rows(self, step: str, *, timed: bool) -> Iterator[tuple[bytes, bytes]]:
        """See `Reader`."""
        return self._rows(f"select key, value from state where step = ? {'and timed' if timed else ''}", (step,))

    def later(self) -> list[LaterForm]:
        """See `Reader`."""
        return [LaterForm(*row) for row in self._base.execute("select * from later")]

    def _rows(self, query: str, arguments: tuple[object, ...]) -> Iterator[tuple[bytes, bytes]]:
        try:
            yield from self._base.execute(query, arguments)
        except sqlite3.DatabaseError as error:
            raise StateDamaged(f"{self._path} cannot be read: {error}") from error

    def close(self) -> None:
        self._base.close()
