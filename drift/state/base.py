"""Tables in files by hash: what lies below the oldest checkpoint of a folder.

Invariant: a value is read as it was written, and a key without a value had none; or the files are refused as damaged. A
reader sees all tables as of one write.

Why: each write appends one file with what it changes, which is flushed to the disk before the list that names it, and
that is renamed into its place. The list has a hash of itself and that of each file. Files of about the same size are
merged, so that few have to be searched, and how often a value is copied grows with the logarithm of all values. A
reader has the files of a list open, whether they were deleted since or not.

    list             the files, the oldest first
    0000000012       the changes of a write, or of several
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import xxhash

from drift.machines.checkpoints import DELETED
from drift.machines.nodes.snapshots import neighbours_due
from drift.places import sync, write_safely
from drift.state.backend import Changes
from drift.state.by_hash import PLAIN, Damaged, HashedFile, InMemory, find_newest, write_tables
from drift.state.checkpoint import StateDamaged

_FORMAT = 1
_HASH_BYTES = 8
#: A process that has other work merges no more than so many bytes.
_MERGED_BYTES = 1 << 20
_LIST = "list"


class _Listed(NamedTuple):
    """A file in the list; `hashed` is that of its directory."""

    number: int
    size: int
    hashed: bytes

    @property
    def name(self) -> str:
        return f"{self.number:010}"


class _List(NamedTuple):
    format: int
    files: list[_Listed]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_List).decode


class Base:
    """Tables in a folder, as a `Reader`; without it all are empty.

    Args:
        folder: made by the first write.
        merges_all: whether writing also merges large files, which takes long.
    """

    def __init__(self, folder: Path, *, merges_all: bool = False) -> None:
        self._folder = folder
        self._merges_all = merges_all
        self._list: int | None = None  # the list that was read, which is open, so that another one is not taken for it
        self._close_list: weakref.finalize[[int], Base] | None = None
        self._files: dict[_Listed, HashedFile] = {}

    def sizes(self, table: str) -> dict[bytes, int]:
        with self._checked():
            found: dict[bytes, int] = {}
            for file in self._opened().values():
                if table in file.tables:
                    found.update(
                        (key, -1 if value is DELETED else len(value)) for key, (_, value) in file.tables[table].rows()
                    )
            return {key: size for key, size in found.items() if size >= 0}

    def read(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._checked():
            hashes = {key: xxhash.xxh3_64_intdigest(key) for key in keys}
            found = find_newest([*self._opened().values()], table, hashes)
            values = [found.get(key) for key in keys]
        return [None if value is DELETED else value for value in values]

    def write(self, changes: Changes) -> None:
        """Store changes, all at once. Raises OSError: there is no room, or it cannot be written."""
        with self._checked(writing=True):
            self._folder.mkdir(exist_ok=True)
            files = [*self._opened()]
            number = max([int(path.name) for path in self._folder.iterdir() if path.name.isdigit()], default=0) + 1
            files.append(self._written(number, [changes], deleted=bool(files)))
            while (due := neighbours_due([file.size for file in files])) and (merged := files[due]):
                if not self._merges_all and sum(file.size for file in merged) > _MERGED_BYTES:
                    break
                number += 1
                files[due] = [self._written(number, [self._at(each) for each in merged], deleted=due.start > 0)]
            self._publish(files)

    @property
    def is_behind(self) -> bool:
        """Whether large files are to be merged, which a process without other work should do with the next write."""
        with self._checked():
            files = [*self._opened()]
            return any(files[neighbours_due([file.size for file in files])])

    def _written(self, number: int, parts: Sequence[Changes | HashedFile], *, deleted: bool) -> _Listed:
        """A new file with the newest values of consecutive parts."""
        path = self._folder / f"{number:010}"
        try:
            with path.open("wb") as file:
                tables = [part.tables if isinstance(part, HashedFile) else part for part in parts]
                hashed = write_tables(file, PLAIN, tables, _in_memory, deleted=deleted)
                file.flush()
                os.fsync(file.fileno())
                return _Listed(number, file.tell(), hashed)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def _publish(self, files: list[_Listed]) -> None:
        """Make these the files of the list, and delete all others."""
        sync(self._folder)
        body = _encode(_List(_FORMAT, files))
        write_safely(self._folder / _LIST, body + xxhash.xxh3_64_digest(body))
        names = {file.name for file in files}
        for path in self._folder.iterdir():
            if path.name.isdigit() and path.name not in names:
                path.unlink(missing_ok=True)

    def _opened(self) -> Mapping[_Listed, HashedFile]:
        """The files of the list, the oldest first."""
        while not self._is_current():
            self.close()
            try:
                self._list = os.open(self._folder / _LIST, os.O_RDONLY)
            except FileNotFoundError:
                break
            self._close_list = weakref.finalize(self, os.close, self._list)
            try:
                self._files = {each: self._at(each) for each in self._listed(self._list)}
            except FileNotFoundError as error:
                if self._is_current():  # otherwise they were merged meanwhile
                    self.close()
                    raise Damaged(f"{error.filename} was changed: it was removed since it was written") from error
            except BaseException:
                self.close()
                raise
        return self._files

    def _listed(self, file: int) -> list[_Listed]:
        data = os.pread(file, os.fstat(file).st_size, 0)
        body = data[:-_HASH_BYTES]
        if xxhash.xxh3_64_digest(body) != data[-_HASH_BYTES:]:
            raise Damaged(f"{self._folder / _LIST} was changed or cut off since it was written")
        listed = _decode(body)
        if listed.format != _FORMAT:
            raise Damaged(f"{self._folder / _LIST} was changed: this drift reads format {_FORMAT}, not {listed.format}")
        return listed.files

    def _is_current(self) -> bool:
        """Whether the list is the one that was read."""
        if self._list is None:
            return False
        try:
            return os.path.samestat((self._folder / _LIST).stat(), os.fstat(self._list))
        except FileNotFoundError:
            return False

    def _at(self, listed: _Listed) -> HashedFile:
        path = self._folder / listed.name
        found = self._files.get(listed) or HashedFile.at(path, PLAIN)
        if found.hash != listed.hashed:
            raise Damaged(f"{path} was changed since it was written: it is not the file that the list names")
        return found

    @contextmanager
    def _checked(self, *, writing: bool = False) -> Iterator[None]:
        try:
            yield
        except (Damaged, msgspec.MsgspecError) as error:
            said = str(error).removesuffix("; run again")
            raise StateDamaged(
                f"{said}; it has the states below the oldest checkpoint, so the run cannot resume; bring back a copy "
                f"of the folder, or start a new run with another state="
            ) from error
        except OSError as error:
            if writing:
                raise
            raise StateDamaged(
                f"{error.filename or self._folder} cannot be read: {error.strerror}; let it be read, or bring it back "
                f"as it was, or start a new run with another state="
            ) from error

    def close(self) -> None:
        self._files = {}
        if self._close_list is not None:
            self._close_list()
            self._list = self._close_list = None


def _in_memory(rows: Mapping[bytes, bytes | None]) -> InMemory:
    """The changed rows of a table."""
    values = [DELETED if value is None else value for value in rows.values()]
    size = sum(map(len, rows)) + sum(len(value) for value in rows.values() if value is not None)
    return InMemory(list(zip(rows, zip(map(xxhash.xxh3_64_intdigest, rows), values))), size)
