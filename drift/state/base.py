"""Tables in one file of SQLite: what lies below the oldest cut of a folder.

Invariant: a value is read as it was written, and a key without a value had none; or the file is refused as damaged.

Why: the rows of a table are in chunks, by a hash of their keys, so the chunk of a key is known, and there has to be one
if the table has any. A chunk has a hash of itself, its table and its number; and so has the list of the tables with the
numbers of their chunks. All changes of a `write` are one transaction. A table grows chunk by chunk (linear hashing), so
what is written follows what has changed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import xxhash

from drift.state.backend import Changes
from drift.state.cut import StateDamaged
from drift_graph.errors import StorageError

_SCHEMA = (
    "create table if not exists chunks (name text, number int, data blob, primary key (name, number)) without rowid"
)
#: A chunk has about so many keys, or bytes, whichever are fewer.
_KEYS, _BYTES = 4, 1024
_CHUNKS_AT_ONCE = 500
_OF_THE_DISK = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
)
_HASH_BYTES = 8


class _Table(NamedTuple):
    """What a table consists of.

    Attributes:
        size: of keys and values, in bytes.
    """

    chunks: int = 0
    keys: int = 0
    size: int = 0

    def chunks_of(self, keys: Iterable[bytes]) -> list[int]:
        """The chunk of each key, or that from which it was not split off yet."""
        chunks = self.chunks
        mask = (1 << chunks.bit_length()) - 1
        half = mask >> 1
        numbers = [number & mask for number in map(xxhash.xxh3_64_intdigest, keys)]
        return [number if number < chunks else number & half for number in numbers]

    def counting(self, chunk: Mapping[bytes, bytes], sign: int) -> _Table:
        size = sum(map(len, chunk)) + sum(map(len, chunk.values()))
        return self._replace(keys=self.keys + sign * len(chunk), size=self.size + sign * size)

    @property
    def wanted(self) -> int:
        """The number of chunks that it should have."""
        return max(self.chunks, self.keys // _KEYS, self.size // _BYTES, 1)


_Chunk = dict[bytes, bytes]
_decode_tables = msgspec.msgpack.Decoder(dict[str, _Table]).decode
_decode_rows = msgspec.msgpack.Decoder(dict[bytes, bytes]).decode
_encode = msgspec.msgpack.Encoder().encode


class Base:
    """Tables in a file; without a file all are empty.

    Args:
        path: of the file.
        writes: open it to write, and make it if it does not exist.
    """

    def __init__(self, path: Path, *, writes: bool = False) -> None:
        self._path = path
        self._base: sqlite3.Connection | None = None
        self._tables_known: dict[str, _Table] = {}
        self._version_known = -1
        with self._checked():
            if writes:
                self._base = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
                self._base.execute("pragma journal_mode = wal")
                self._base.execute("pragma synchronous = full")
                self._base.execute(_SCHEMA)
            elif path.exists():
                uri = f"{path.absolute().as_uri()}?mode=ro"
                self._base = sqlite3.connect(uri, isolation_level=None, check_same_thread=False, uri=True)

    def sizes(self, table: str) -> dict[bytes, int]:
        """See `Reader`."""
        with self._reading() as tables:
            numbers = range(tables[table].chunks if table in tables else 0)
            chunks = self._chunks(table, numbers)
            return {key: len(value) for _, chunk in chunks for key, value in chunk.items()}

    def read(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """See `Reader`."""
        with self._checked():
            while True:
                tables, version = self._known_tables()
                if table not in tables:
                    return [None] * len(keys)
                numbers = tables[table].chunks_of(keys)
                try:
                    chunks = dict(self._chunks(table, sorted(set(numbers))))
                except StateDamaged:
                    if self._version() == version:
                        raise
                else:
                    if self._version() == version:  # otherwise another process has changed it meanwhile
                        return [chunks[number].get(key) for number, key in zip(numbers, keys)]

    def write(self, changes: Changes) -> None:
        """Store changes, all at once.

        Raises:
            sqlite3.Error, OSError: there is no room, or it cannot be written.
            StateDamaged: see there.
        """
        assert self._base is not None
        self._version_known = -1
        self._base.execute("begin immediate")
        try:
            tables = self._tables()
            for table, rows in changes.items():
                tables[table] = self._changed(table, tables.get(table, _Table()), rows)
            self._store("", 0, _encode(tables))
            self._base.execute("commit")
        except BaseException:
            with suppress(sqlite3.Error):
                self._base.execute("rollback")
            raise

    def _changed(self, name: str, table: _Table, rows: Mapping[bytes, bytes | None]) -> _Table:
        if len(rows) >= table.keys:  # most of it is new
            whole: _Chunk = {}
            for _, chunk in self._chunks(name, range(table.chunks)):
                whole.update(chunk)
            table = _Table(table.chunks)
            _apply(whole, rows)
            table = table.counting(whole, 1)
            table = table._replace(chunks=table.wanted)
            self._store_each(name, _divided(table, whole, range(table.chunks)))
            return table
        wanted: dict[int, dict[bytes, bytes | None]] = {}
        for number, (key, value) in zip(table.chunks_of(rows), rows.items()):
            wanted.setdefault(number, {})[key] = value
        numbers = sorted(wanted)
        for start in range(0, len(numbers), _CHUNKS_AT_ONCE):
            chunks = dict(self._chunks(name, numbers[start : start + _CHUNKS_AT_ONCE]))
            for number, chunk in chunks.items():
                table = table.counting(chunk, -1)
                _apply(chunk, wanted[number])
                table = table.counting(chunk, 1)
            self._store_each(name, chunks)
        while table.chunks < table.wanted:  # split the chunk whose turn it is
            one = table.chunks - (1 << (table.chunks.bit_length() - 1))
            ((_, chunk),) = self._chunks(name, [one])
            table = table._replace(chunks=table.chunks + 1)
            self._store_each(name, _divided(table, chunk, (one, table.chunks - 1)))
        return table

    def _chunks(self, name: str, numbers: Sequence[int]) -> Iterator[tuple[int, _Chunk]]:
        assert self._base is not None or not numbers
        for start in range(0, len(numbers), _CHUNKS_AT_ONCE):
            some = numbers[start : start + _CHUNKS_AT_ONCE]
            sql = f"select number, data from chunks where name = ? and number in ({','.join('?' * len(some))})"
            with self._checked():
                found = dict(self._base.execute(sql, (name, *some)).fetchall()) if self._base is not None else {}
                rows = [(number, _decode_rows(self._body(name, number, found.get(number)))) for number in some]
            yield from rows

    def _tables(self) -> dict[str, _Table]:
        if self._base is None or not self._base.execute("select 1 from sqlite_master").fetchone():
            return {}  # a run was about to make it when it was killed
        row = self._base.execute("select data from chunks where name = '' and number = 0").fetchone()
        if row is None and not self._base.execute("select 1 from chunks").fetchone():
            return {}
        return _decode_tables(self._body("", 0, row[0] if row is not None else None))

    def _body(self, name: str, number: int, data: bytes | None) -> bytes:
        if type(data) is bytes and data[:_HASH_BYTES] == _hash_of(name, number, body := data[_HASH_BYTES:]):
            return body
        fault = "is missing" if data is None else "has another hash"
        raise ValueError(f"chunk {number} of {name or 'the list of tables'} {fault}")

    def _store(self, name: str, number: int, body: bytes) -> None:
        assert self._base is not None
        row = (name, number, _hash_of(name, number, body) + body)
        self._base.execute("insert or replace into chunks values (?, ?, ?)", row)

    def _store_each(self, name: str, chunks: Mapping[int, _Chunk]) -> None:
        for number, chunk in chunks.items():
            self._store(name, number, _encode(chunk))

    def _known_tables(self) -> tuple[dict[str, _Table], int]:
        """All tables, and the version of the file that they are of."""
        version = self._version()
        if version != self._version_known:
            with self._reading() as tables:
                version = self._version_known = self._version()
                self._tables_known = tables
        return self._tables_known, version

    def _version(self) -> int:
        """Changes when another connection has changed the file."""
        found = self._base.execute("pragma data_version").fetchone() if self._base is not None else (0,)
        return int(found[0])

    @contextmanager
    def _reading(self) -> Iterator[dict[str, _Table]]:
        """All tables, as of one moment until the end of the block."""
        with self._checked():
            if self._base is None:
                yield {}
                return
            self._base.execute("begin")
            try:
                yield self._tables()
            finally:
                with suppress(sqlite3.Error):
                    self._base.execute("commit")

    @contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, ValueError, TypeError, msgspec.MsgspecError) as error:
            said = str(error).encode("ascii", "backslashreplace").decode()
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _OF_THE_DISK:
                raise StorageError(
                    f"{self._path} cannot be read or written: {said}; make room, or let the folder be read and "
                    f"written, and run again: the run resumes from the last cut"
                ) from error
            raise StateDamaged(
                f"{self._path} was changed or cut off since it was written, or cannot be read: {said}; it has the "
                f"states below the oldest cut, so the run cannot resume; bring back a copy of the folder, or start a "
                f"new run with another state="
            ) from error

    def close(self) -> None:
        if self._base is not None:
            self._base.close()


def _apply(chunk: _Chunk, rows: Mapping[bytes, bytes | None]) -> None:
    for key, value in rows.items():
        if value is None:
            chunk.pop(key, None)
        else:
            chunk[key] = value


def _divided(table: _Table, chunk: _Chunk, numbers: Iterable[int]) -> dict[int, _Chunk]:
    """The rows of a chunk, or of several, by the chunks of a table that they belong to."""
    chunks: dict[int, _Chunk] = {number: {} for number in numbers}
    for number, (key, value) in zip(table.chunks_of(chunk), chunk.items()):
        chunks[number][key] = value
    return chunks


def _hash_of(name: str, number: int, body: bytes) -> bytes:
    return xxhash.xxh3_64_digest(body, (xxhash.xxh3_64_intdigest(name.encode()) >> 1) + number)
