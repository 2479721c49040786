"""Files that are still written, and folders in which files appear, as one live source.

Invariant: the files are read one after the other, in the order of their names, each to its end; so the items are those
of reading the same files again.

Why: the last file is read as it grows, and ends when a later one exists. What contradicts this is an error, and is
never skipped: a file whose name sorts before one that was read, and a file that grows after its end was read.
"""

from __future__ import annotations

import glob
import threading
import time
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from drift.guarantees import SourcePromise
from drift.sources.base import NothingYet, Positioned, Reader, SetsApart, Source
from drift.sources.many import Make1, files_in, folder_of
from drift.sources.positions import gone, position_of, where_in
from drift.sources.wake import Wake
from drift_graph.errors import InputError

_LOOK_S = 0.1
_LOOK_SHARE = 0.02  # of the time, at most, is spent on listing a large folder
_JOIN_S = 5.0


@runtime_checkable
class Growing(Protocol):
    """A source of a file that may be still written."""

    def growing(self) -> Source:
        """The same source; its reader raises `NothingYet` at the present end of the file."""


@runtime_checkable
class _Measuring(Protocol):
    """Attributes:
    ended_at: bytes of its file that a reader has read, at the end.
    """

    ended_at: int


class FollowedSource:
    """A file, a folder or a pattern that is followed.

    Args:
        one: a source of the path, for its description.
        make: makes the source of a file.
    """

    live = True
    promise: ClassVar = SourcePromise("from a position", "in one of its files, as long as they are there")

    def __init__(self, path: str, one: Source, make: Make1, apart: str = "") -> None:
        self._path = path
        self._one = one
        self._make = make
        self._apart = apart

    def open(self) -> Reader:
        return _FollowedReader(_Files(self._path), self)

    def setting_apart(self, name: str) -> Source:
        """See `SetsApart`."""
        return FollowedSource(self._path, self._one, self._make, name)

    def open_one(self, path: str, name: str, *, grows: bool) -> Reader:
        """The source of one of the files, by its name."""
        source = self._make(path)
        if self._apart and isinstance(source, SetsApart):
            source = source.setting_apart(self._apart if path == self._path else f"{self._apart}, {name}")
        return (source.growing() if grows and isinstance(source, Growing) else source).open()

    def __repr__(self) -> str:
        return f"{self._one!r}, followed"


class _Listing(NamedTuple):
    """Attributes:
    files: that exist, in order.
    size: in bytes, of the requested file; None if it does not exist.
    """

    files: list[str]
    size: int | None


class _Files:
    """The files that a path names, by their paths relative to their common folder."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._many = Path(path).is_dir() or glob.has_magic(path)
        self.folder = folder_of(path) if self._many else Path(path).parent
        if not self.folder.is_dir():
            raise InputError(f"{self.folder} is no folder, which {path} is to be followed in; check the path")
        if not self._many and not Path(path).is_file():
            raise InputError(f"{path} is not there; check the path, or follow a pattern, '{path}*', which may be late")

    def look(self, file: str) -> _Listing:
        found = files_in(self._path) if self._many else [self._path]
        return _Listing(sorted(Path(each).relative_to(self.folder).as_posix() for each in found), self.size(file))

    def size(self, file: str) -> int | None:
        try:
            return self.path(file).stat().st_size if file else None
        except OSError:
            return None

    def path(self, file: str) -> Path:
        return self.folder / file


class _FollowedReader:
    """Reads in the engine's thread; when everything is read, another thread watches for more."""

    def __init__(self, files: _Files, source: FollowedSource) -> None:
        self._files = files
        self._source = source
        self._reader: Reader | None = None
        self._file = ""  # that is read, or was read last
        self._within: Any = None  # position to continue at, while there is no reader
        self._size = 0  # of it, when it was opened
        self._before = 0  # files before it
        self._at_end = True
        self._done: tuple[str, int] | None = None  # the last file that was read to its end, and its size
        self._seen: _Listing | None = None  # all of this is read, or will be by the reader
        self._lock = threading.Lock()  # for what follows, and for `_seen`
        self._idle = False
        self._wake = Wake()
        self._wake.set()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def read(self, items_max: int) -> list[Any] | None:
        while True:
            if self._reader is None and not self._open_next():
                return []
            assert self._reader is not None
            try:
                payloads = self._reader.read(items_max)
            except NothingYet:
                self._within = self._position_within()
            else:
                if payloads is not None:
                    return payloads
                self._at_end, self._within = True, None
                self._done = self._file, self._reader.ended_at if isinstance(self._reader, _Measuring) else self._size
            self._close_file()

    def _open_next(self) -> bool:
        """Open the next file; False if there is nothing new."""
        with self._lock:
            look = self._files.look(self._file)
            self._check(look)
            behind = [file for file in look.files if file > self._file]
            if not behind if self._at_end else look == self._seen:
                self._seen = look
                self._rest()
                return False
            if self._at_end:
                self._file, self._at_end = behind.pop(0), False
                look = look._replace(size=self._files.size(self._file))
            self._seen, self._before = look, bisect_left(look.files, self._file)
            self._size = look.size or 0
            self._idle = False
            self._wake.set()
        reader = self._source.open_one(str(self._files.path(self._file)), self._file, grows=not behind)
        self._reader = reader
        if self._within:
            assert isinstance(reader, Positioned)
            reader.seek(self._within)
        return True

    def _check(self, look: _Listing) -> None:
        """Raises:
        InputError: something has appeared that should have been read before.
        """
        folder = self._files.folder
        new = set(look.files) - set(self._seen.files if self._seen is not None else look.files)
        early = min(new, default=self._file)
        if early < self._file:
            raise InputError(
                f"the file {early!r} has come to {folder} when {self._file!r} was read already, and a later run would "
                f"read it before that; name files so that new ones come last, as by a date or a number, or give each "
                f"who writes a source of its own, by pattern, and merge them"
            )
        if not self._at_end and (look.size is None or look.size < self._size):
            now = "has gone" if look.size is None else f"has {look.size:,} bytes where it had {self._size:,},"
            raise InputError(
                f"{folder / self._file} {now} while it was read; begin a new file in place of emptying one that is read"
            )
        if self._done is not None:
            file, size = self._done
            there = self._files.size(file)
            if there is not None and there != size:
                raise InputError(
                    f"{folder / file} has {there:,} bytes, and had {size:,} when it was read to its end; a file ends "
                    f"when one behind it comes, and one of Parquet or gzip is whole when it comes: write it elsewhere, "
                    f"and move it there"
                )

    def _rest(self) -> None:
        self._idle = True
        self._wake.set(False)
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="drift followed source", daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        every_s = _LOOK_S
        while not self._closed.wait(every_s):
            with self._lock:
                if not self._idle:
                    continue
                began_s = time.monotonic()
                try:
                    same = self._files.look(self._file) == self._seen
                except OSError:
                    same = False  # `read` meets it as well, and says so
                every_s = max(_LOOK_S, (time.monotonic() - began_s) / _LOOK_SHARE)
                if not same:
                    self._idle = False
                    self._wake.set()

    def position(self) -> Any:
        """See `Positioned`: as of the files of a folder; `done` is the last file that was read to its end."""
        within = None if self._at_end else self._position_within() or {}
        done = None if self._done is None else list(self._done)
        return position_of("files", file=self._file, before=self._before, within=within, done=done)

    def _position_within(self) -> Any:
        return self._reader.position() if isinstance(self._reader, Positioned) else self._within

    def seek(self, position: Any) -> None:
        """See `Positioned`. Files that were read may have gone since."""
        folder = str(self._files.folder)
        file, before, within = where_in(position, "files", folder, "file", "before", "within")
        done = position.get("done")
        look = self._files.look(file)
        now = bisect_left(look.files, file)
        if now > before:
            raise gone(folder, f"file {file!r}, before which there were {before}", f"there are {now} before it")
        if within is not None and file and look.size is None:
            raise gone(folder, f"file {file!r}", "it is not there")
        self._file, self._before, self._within, self._at_end = file, before, within, within is None or not file
        self._done = None if done is None else (done[0], done[1])

    def filenos(self) -> Sequence[int]:
        return (self._wake.fileno(),)

    def close(self) -> None:
        self._closed.set()
        if self._thread is not None:
            self._thread.join(_JOIN_S)
        with self._lock:
            self._wake.close()
        self._close_file()

    def _close_file(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
