"""A log in files: numbered entries, which may hold payloads; each file is named by the number of its first entry.

Invariant: an entry is read exactly as it was appended, or refused; a torn entry at the very end was never used.

Why: an entry is written to the operating system before `append` returns, so it survives the death of this process; and
it has its length and a checksum. A file names the classes of its payloads before the first payload that needs them, so
each file can be read by itself.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import Any

import msgspec

from drift.records.storable import Storable, classes_at
from drift_graph.errors import PayloadError, StorageError
from drift_graph.restore import restored_all

_FILE_BYTES = 16 << 20
_HEAD = Struct("<II")  # length and CRC of what follows
_FORM = 1
_SUFFIX = ".log"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode


class LogBroken(StorageError):
    """An entry of a log that is needed is missing or damaged."""


class Entries:
    """
    Args:
        folder: of this log alone.
        what: the owner of the log, for messages.
        on_disk: flush each entry to the disk, so that it also survives a power failure.

    Attributes:
        next_number: number of the entry that is written next.
    """

    def __init__(self, folder: Path, what: str, *, on_disk: bool = False) -> None:
        self._folder = folder
        self._what = what
        self._on_disk = on_disk
        self._file: int | None = None
        self._bytes = 0  # in it
        self._storable = Storable()
        self._named: set[str] = set()  # classes named in the file
        self.next_number = 0
        self._was_read = False
        self._followed: dict[str, int] = {}  # bytes of each file that `appended` has given

    # Written.

    def stored(self, payloads: Sequence[Any]) -> tuple[bytes, tuple[int, PayloadError] | None]:
        """The bytes of the payloads before the first that could not be read back; and its index, with the error."""
        return self._storable.stored(payloads, self._what)

    def append(self, fields: list[Any], payloads: bytes | None = None) -> None:
        """Write an entry; `payloads` are bytes from `stored`."""
        with self._writing("a batch cannot be written to its log; nothing of it was processed"):
            if self._file is None or self._bytes >= _FILE_BYTES:
                self._begin_file()
            assert self._file is not None
            new: list[str] = []
            entry = [_FORM, *fields]
            if payloads is not None:
                new = sorted(set(self._storable.targets.values()) - self._named)
                entry += [new, payloads]
            body = _encode(entry)
            rest = memoryview(_HEAD.pack(len(body), zlib.crc32(body)) + body)
            self._bytes += len(rest)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            if self._on_disk:
                os.fsync(self._file)
        self._named.update(new)
        self.next_number += 1

    def _begin_file(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self.close()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(self._folder / f"{self.next_number:015d}{_SUFFIX}", flags, 0o600)
        self._bytes, self._named = os.fstat(self._file).st_size, set()
        if self._bytes or (not self._was_read and len(self._files()) > 1):
            raise StorageError(
                f"{self._folder} has a log of {self._what} that another run wrote, and this one does not continue "
                f"it; give each run a state of its own"
            )
        self._was_read = True

    def flush(self) -> None:
        """Wait until the entries are on the disk."""
        if self._file is not None:
            with self._writing("the disk did not confirm what was written to its log"):
                os.fsync(self._file)

    @contextmanager
    def _writing(self, failed: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"{self._what}: {failed}: {self._folder}: {error.strerror}; make room, or let the folder be written, "
                f"and run again with the same state"
            ) from error

    def drop_below(self, number: int) -> None:
        """Remove files whose entries are all below this number: they are not needed any more."""
        with self._writing("what is not needed any more cannot be removed from its log"):
            for path, following in pairwise(self._files()):
                if int(following.stem) <= number:
                    path.unlink()

    def clear(self) -> None:
        """Remove all entries; numbering continues."""
        self.close()
        with self._writing("its log cannot be removed"):
            for path in self._files():
                path.unlink()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    # Read.

    @property
    def first_number(self) -> int:
        """Number of the first entry in the log; `next_number` if there is none."""
        files = self._files()
        return int(files[0].stem) if files else self.next_number

    def read(self, first: int) -> Iterator[tuple[int, list[Any]]]:
        """Number and fields of all entries from `first` on; afterwards entries are appended after them.

        Args:
            first: may be the number after the last entry.

        Raises:
            LogBroken: one of them is missing or damaged.
        """
        self._was_read = True
        files = self._files()
        starts = [int(path.stem) for path in files]
        begin = max((at for at, start in enumerate(starts) if start <= first), default=0)
        number = starts[begin] if files else first
        if number > first:
            raise self._broken(first, f"it begins at {number}")
        for at, path in enumerate(files[begin:], begin):
            if starts[at] != number:
                raise self._broken(number, f"{path} begins at {starts[at]}")
            for body in self._read(path, number, last=at + 1 == len(files)):
                fields = self._fields(body)
                number += 1
                self.next_number = max(self.next_number, number)
                if number > first:
                    yield number - 1, fields
        if number < first:
            raise self._broken(first, f"it ends at {number}")

    def appended(self) -> Iterator[list[Any]]:
        """The fields of the entries that another process has appended since the last call.

        Nothing is changed: an entry that is being written, or whose writer died, is left out.

        Raises:
            LogBroken: one of them is damaged.
        """
        for path in self._files():
            begin = self._followed.get(path.name, 0)
            with path.open("rb") as file:
                file.seek(begin)
                data = file.read()
            for at, end, body in _bodies(data):
                if body is not None:
                    self._followed[path.name] = begin + end
                    yield self._fields(body)
                elif end <= len(data):
                    raise self._broken(self.first_number, f"{path} is damaged at byte {begin + at}")

    def payloads(self, data: bytes) -> list[Any]:
        """The payloads of an entry, from its last field."""
        return restored_all(data, self._storable.classes)

    def _read(self, path: Path, number: int, *, last: bool) -> Iterator[bytes]:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise self._broken(number, f"{path} cannot be read: {error.strerror}") from error
        for nth, (at, end, body) in enumerate(_bodies(data), number):
            if body is not None:
                yield body
            elif not last or end < len(data):
                raise self._broken(nth, f"{path} is damaged at byte {at}")
            else:
                with self._writing("a torn entry cannot be cut off its log"):
                    os.truncate(path, at)  # its writer died

    def _fields(self, body: bytes) -> list[Any]:
        form, *fields = _decode(body)
        if form != _FORM:
            raise StorageError(
                f"the log of {self._what} in {self._folder} has form {form}, which this version does not know; resume "
                f"with the version that wrote it"
            )
        if type(fields[-1]) is bytes:  # payloads, and before them their new classes
            self._storable.classes.update(classes_at(fields[-2]))
            self._storable.targets.update({target.partition(":")[2]: target for target in fields[-2]})
        return fields

    def _files(self) -> list[Path]:
        found = self._folder.glob(f"*{_SUFFIX}") if self._folder.is_dir() else ()
        return sorted(path for path in found if path.stem.isdecimal())

    def _broken(self, number: int, now: str) -> LogBroken:
        return LogBroken(
            f"the log of {self._what} in {self._folder} is needed from entry {number} on, and {now}; bring it back, or "
            f"start a new run with another state"
        )


def _bodies(data: bytes) -> Iterator[tuple[int, int, bytes | None]]:
    """Where each entry begins and ends, and its body. The last may be torn, and ends behind the data, or damaged: then
    it has none.
    """
    at = 0
    while at < len(data):
        length, check = _HEAD.unpack_from(data, at) if len(data) - at >= _HEAD.size else (len(data), 0)
        body = data[at + _HEAD.size : (end := at + _HEAD.size + length)]
        if end > len(data) or zlib.crc32(body) != check:
            yield at, end, None
            return
        yield at, end, body
        at = end
