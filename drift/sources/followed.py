"""Files that are still written, and folders in which files appear, as one live source.

Invariant: the files are read one after the other, in the order of their names, each to its end; so the items are those
of reading the same files again.

Why: the last file is read as it grows, and ends when a later one exists. What contradicts this is an error, and is
never skipped: a file whose name sorts before one that was read, a file that grows after its end was read, and one that
is cut, written over, deleted or replaced while it is read. One that is deleted or replaced is read to its end before.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from drift.places import Files, found_at
from drift.sources.base import NothingYet, Reader
from drift.sources.known import Mark, changed_of, content_of
from drift.sources.positions import position_fields, position_lost, position_of
from drift.sources.wake import Wake
from drift_graph.errors import InputError

_LIST_S = 0.1
_LIST_SHARE = 0.02  # of the time, at most, is spent on listing a large folder
_JOIN_S = 5.0


class Listing(NamedTuple):
    """Attributes:
    files: that exist, in order.
    size: in bytes, of the requested file; None if it does not exist.
    identity: of that file, which another one under its name does not have.
    """

    files: Sequence[str]
    size: int | None
    identity: str | None


def is_marked(files: Files, name: str, size: int, changed: str = "", content: str = "") -> bool:
    """Whether a file that was read to its end has the content of then, unless it is gone, which may be, or grew."""
    found = files.stat(name) if changed else None
    return found is None or found.size != size or Mark(changed, content).is_of(files.path_of(name))


class FollowedReader(Reader):
    """Reads in the engine's thread; when everything is read, another thread watches for more.

    Args:
        files: that a path names.
        open_one: opens the file of a name; its reader raises `NothingYet` at the present end where `grows`.
    """

    def __init__(self, files: Files, open_one: Callable[[str, bool], Reader]) -> None:
        if not files.storage.remote and found_at(files.folder) != "folder":
            raise InputError(
                f"{files.folder} is not a folder, so {files.path} cannot be followed in it; check the path"
            )
        self._files = files
        if files.one and not self._exists():
            raise InputError(f"{files.path} does not exist; check the path, or follow a pattern, as '{files.path}*'")
        self._open_one = open_one
        self._reader: Reader | None = None
        self._caught_up = False  # whether it has returned all that was there
        self._file = ""  # that is read, or was read last
        self._position_in_file: Any = None  # position to continue at, before there is a reader
        self._size = 0  # of it, when more of it was to be read
        self._identity: str | None = None  # of it
        self._is_gone = False  # whether another file, or none, has its name
        self._before = 0  # files before it
        self._at_end = True
        self._completed: tuple[str, int] | None = None  # the last file that was read to its end, and its size
        self._marked: tuple[str, Sequence[str]] = "", ()  # a file and its mark
        self._listed: Listing | None = None  # all of this is read, or will be by the reader
        self._lock = threading.Lock()  # for what follows, and for `_listed`
        self._idle = False
        self._wake = Wake()
        self._wake.set()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def _exists(self) -> bool:
        """Whether there is what is named, a file."""
        return self._files.stat(self._files.names()[0]) is not None

    def read(self, items_max: int) -> list[Any] | None:
        while True:
            if (self._reader is None or self._caught_up) and not self._more():
                return []
            assert self._reader is not None
            try:
                payloads = self._reader.read(items_max)
            except NothingYet:
                self._caught_up = True
                continue
            except InputError:
                if not self._goes_on_elsewhere():
                    raise
                continue
            if payloads is not None:
                return payloads
            self._end_file()

    def _goes_on_elsewhere(self) -> bool:
        """Whether what cannot be read on here goes on in another file, which is opened next."""
        return False

    def _end_file(self) -> None:
        self._at_end, self._position_in_file = True, None
        assert self._reader is not None
        size = self._reader.ended_at
        self._completed = self._file, self._size if size is None else size
        self._close_file()

    def _list(self, file: str) -> Listing:
        return self._with_file(self._files.names(), file)

    def _with_file(self, files: Sequence[str], file: str) -> Listing:
        found = self._files.stat(file) if file else None
        return Listing(files, found and found.size, found and found.identity)

    def _more(self) -> bool:
        """Whether there may be more, in the file or in the next, which is opened."""
        with self._lock:
            listing = self._list(self._file)
            self._check(listing)
            behind = [file for file in listing.files if file > self._file]
            gone = self._reader is not None and listing.identity != self._identity
            if not behind if self._at_end else listing == self._listed and gone == self._is_gone:
                self._listed = listing
                self._wait_for_more()
                return False
            if self._at_end:
                self._file, self._at_end = behind.pop(0), False
                listing = self._with_file(listing.files, self._file)
            self._listed, self._before = listing, bisect_left(listing.files, self._file)
            self._size, self._is_gone, self._caught_up = listing.size or 0, gone, False
            self._idle = False
            self._wake.set()
        if self._reader is None:
            self._identity = listing.identity
            self._reader = self._open_one(self._file, not behind)
            if self._position_in_file:
                self._reader.seek(self._position_in_file)
        elif behind and not gone:
            self._reader.complete()
        return True

    def _check(self, listing: Listing) -> None:
        """Raises InputError: something has appeared that should have been read before."""
        folder = self._files.folder
        new = set(listing.files) - set(self._listed.files if self._listed is not None else listing.files)
        early = min(new, default=self._file)
        if early < self._file:
            raise InputError(
                f"the file {early!r} appeared in {folder} after {self._file!r} was read, and a later run would read it "
                f"before that one; name files so that new ones sort last, as by a date or a number, or give each "
                f"writer a source of its own, by pattern, and merge them"
            )
        found = ""
        if self._is_gone:
            found = "was deleted" if listing.size is None else "was replaced by another file"
            found += " while it was read, up to its end"
        elif not self._at_end and listing.size is None and self._reader is None:
            found = "was deleted while it was read"
        elif not self._at_end and listing.identity == self._identity and (listing.size or 0) < self._size:
            found = f"has {listing.size or 0:,} bytes where it had {self._size:,} while it was read"
        if found:
            raise InputError(
                f"{self._files.path_of(self._file)} {found}; start a new file, and leave this one as it is"
            )
        if self._completed is not None:
            file, size = self._completed
            bytes_now = self._with_file((), file).size
            if bytes_now is not None and bytes_now != size:
                raise InputError(
                    f"{self._files.path_of(file)} has {bytes_now:,} bytes, and had {size:,} when it was read to its "
                    f"end; a file ends when a later one appears, and a file of Parquet or gzip must be complete when "
                    f"it appears: write it elsewhere, and move it there"
                )

    def _wait_for_more(self) -> None:
        self._idle = True
        self._wake.set(False)
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="drift followed source", daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        every_s = _LIST_S
        while not self._closed.wait(every_s):
            with self._lock:
                if not self._idle:
                    continue
                began_s = time.monotonic()
                try:
                    same = self._list(self._file) == self._listed
                except InputError:
                    same = False  # `read` meets it as well, and says so
                every_s = max(_LIST_S, (time.monotonic() - began_s) / _LIST_SHARE)
                if not same:
                    self._idle = False
                    self._wake.set()

    def position(self) -> Any:
        """The position among the files of a folder; `done` is the last file that was read to its end."""
        position_in_file = None if self._at_end else self._reader_position() or {}
        done = None if self._completed is None else [*self._completed, *self._mark_of(self._completed[0])]
        return position_of("files", file=self._file, before=self._before, within=position_in_file, done=done)

    def _reader_position(self) -> Any:
        return self._position_in_file if self._reader is None else self._reader.position()

    def seek(self, position: Any) -> None:
        """Files that were read may have been deleted since."""
        folder = self._files.folder
        if self._files.one and isinstance(position, dict) and position.get("kind") != "files":  # it was not followed
            position = position_of("files", file=self._files.names()[0], before=0, within=position)
        file, before, position_in_file = position_fields(position, "files", folder, "file", "before", "within")
        done = position.get("done")
        listing = self._list(file)
        at = bisect_left(listing.files, file)
        if at > before:
            raise position_lost(folder, f"file {file!r}, before which there were {before}", f"there are {at} before it")
        if position_in_file is not None and file and listing.size is None:
            raise position_lost(folder, f"file {file!r}", "it is not there")
        self._file, self._before, self._position_in_file = file, before, position_in_file
        self._at_end = position_in_file is None or not file
        self._completed = None if done is None else (done[0], done[1])
        if done is not None and not is_marked(self._files, *done):
            raise position_lost(folder, f"file {file!r}", f"{done[0]!r}, which was read to its end, has other content")

    def _mark_of(self, name: str) -> Sequence[str]:
        """The mark of the last file that was read to its end."""
        if self._marked[0] != name:
            path = self._files.path_of(name)
            self._marked = name, () if self._files.storage.remote else Mark(changed_of(path), content_of(path))
        return self._marked[1]

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
