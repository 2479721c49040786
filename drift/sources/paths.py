"""The sources of a path: a file, the files in a folder or matching a pattern, or a path that is followed.

Invariant: for every kind of path, each file is read by the source that is made from its path, and files are read one
after the other, in the order of their names, each to its end. Unless they are followed, the list is made when the
source is opened. A position is only taken by a list that begins with the files that were read, of the sizes, and in an
object store of the ETags, that they had; and those of this machine have the same content.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import xxhash

from drift.guarantees import SourceGuarantee
from drift.places import Files, Storage, is_named
from drift.sources.base import OwnSource, Reader
from drift.sources.followed import FollowedReader, is_marked
from drift.sources.known import Mark, changed_of, content_of
from drift.sources.positions import position_fields, position_lost, position_of
from drift.sources.rotated import RotatedReader
from drift.urls import without_secrets
from drift_graph.called import called
from drift_graph.errors import InputError

Make = TypeVar("Make", bound=Callable[..., Any])


class PathSource(OwnSource):
    """All files that a path names, as one source.

    Args:
        one: a source of the path, for its description.
        make: makes the source of a file.
        live: whether the path is followed.
    """

    guarantee: ClassVar = SourceGuarantee("from a position", "in one of its files, as long as they are there")

    def __init__(
        self, storage: Storage, path: str, one: OwnSource, make: Callable[[str], OwnSource], *, live: bool
    ) -> None:
        self._storage = storage
        self._path = path
        self._one = one
        self._make = make
        self.live = live

    def open(self) -> Reader:
        try:
            files = Files(self._storage, self._path)
            names = [] if self.live else files.names()
        except OSError as error:
            shown = without_secrets(self._path)
            raise InputError(f"{shown} cannot be listed: {error.strerror}; check the path") from None

        rotates = self.live and files.one and not self._storage.remote and self._one.may_grow

        def open_one(name: str, grows: bool = False) -> Reader:
            source = self._make(files.path_of(name))
            if rotates:
                source = source.as_piece()
            if self._diverts_as:
                inside = "" if files.one else f", {name}"  # without the folder, which may be another on another day
                source = source.diverting(f"{self._diverts_as}{inside}")
            return (source.growing() if grows else source).open()

        if self.live:
            return (RotatedReader if rotates else FollowedReader)(files, open_one)
        if not names:
            reason = (
                "no file matches the pattern" if self._storage.is_pattern(self._path) else "the folder has no files"
            )
            raise InputError(f"{without_secrets(self._path)}: {reason}; check the path")
        return open_one(names[0]) if files.one else ManyReader(files, names, open_one)

    def reads(self, file: Path) -> bool:
        return is_named(self._storage, self._path, file)

    def __repr__(self) -> str:
        return f"{self._one!r}{', followed' if self.live else ''}"


def of_paths(of_file: Make) -> Make:
    """From a function that makes the source of a file, one that also handles folders, patterns and following."""

    of_file = called(of_file)

    @wraps(of_file)
    def source(path: str | os.PathLike[str], *args: Any, **more: Any) -> Any:
        one = made = of_file(path, *args, **more)  # checks the arguments
        storage: Storage = one.storage
        named = os.fsdecode(path)
        live = bool(more.get("follow"))
        if live or (named != "-" and (storage.remote or storage.is_folder(named) or storage.is_pattern(named))):
            made = PathSource(
                storage, named, one, lambda each: cast(OwnSource, of_file(each, *args, **more)), live=live
            )
        if not one.is_told:
            made.with_schema = lambda schema: source(path, *args, **{**more, "schema": schema})
        return made

    return cast(Make, source)


class ManyReader(Reader):
    """Reads files one after the other; a position names a file by its path relative to their folder."""

    def __init__(self, files: Files, names: Sequence[str], open_one: Callable[[str], Reader]) -> None:
        self._files = files
        self._names = names
        self._open_one = open_one
        self._at = 0
        self._reader: Reader | None = None
        self._passed = xxhash.xxh3_128()  # names and sizes of the files before that
        self._changed = xxhash.xxh3_128()  # what their marks have of changes
        self._content = ""  # one hash of their contents, but for the last ones:
        self._unhashed: list[str] = []  # which nobody has asked for
        self._pauses = False
        self._ends_in_file = False  # whether the end of the present file is that of what is there now

    def read(self, items_max: int) -> list[Any] | None:
        while self._at < len(self._names):
            if self._reader is None:
                self._reader = self._open_one(self._names[self._at])
                self._pause_in_last()
            payloads = self._reader.read(items_max)
            if payloads is not None:
                return payloads
            if self._ends_in_file:
                return None
            self.close()
            self._pass()
        return None

    def pause_at_end(self) -> bool:
        """The last file may be written on, if it is one of lines."""
        self._pauses = True
        self._pause_in_last()
        return True

    def _pause_in_last(self) -> None:
        reader = self._reader
        if reader is not None and self._pauses and self._at + 1 == len(self._names):
            self._ends_in_file = reader.pause_at_end()

    def _pass(self) -> None:
        """The present file was read to its end."""
        name = self._names[self._at]
        found = self._files.stat(name)
        if found is None:
            raise InputError(f"{self._files.path_of(name)} was removed when it had been read; bring it back as it was")
        self._passed.update(f"{name}\0{found.size}\0{found.etag}".encode(errors="surrogateescape"))
        if not self._files.storage.remote:
            path = self._files.path_of(name)
            self._changed.update(changed_of(path).encode())
            self._unhashed.append(path)
        self._at += 1

    def _mark(self) -> Mark:
        """Of all files before the present one."""
        for path in self._unhashed:
            self._content = xxhash.xxh3_128_hexdigest(f"{self._content}{content_of(path)}".encode())
        self._unhashed.clear()
        return Mark(self._changed.hexdigest(), self._content)

    def position(self) -> Any:
        """The present file, the number of files before it, and the position in it."""
        if self._at >= len(self._names):
            return self._position(self._at - 1, None)
        within = None
        if self._reader is not None:
            within = self._reader.position()
            if within is None:
                return None
        return self._position(self._at, within or {})

    def _position(self, at: int, within: Any) -> Any:
        passed, mark = self._passed.hexdigest(), [*self._mark()]
        return position_of("files", file=self._names[at], before=at, within=within, passed=passed, mark=mark)

    def seek(self, position: Any) -> None:
        """Files may have been added that sort behind the present file."""
        folder, fields = self._files.folder, ("file", "before", "within")
        file, before, within = position_fields(position, "files", folder, *fields)
        if not file:  # it was followed, and had no file yet
            return
        at = self._names.index(file) if file in self._names else -1
        if at != before:
            raise position_lost(
                folder,
                f"file {file!r}, before which there were {before}",
                f"there are {at} before it" if at >= 0 else "it is not there",
            )
        while self._at < at + (within is None):
            self._pass()
        if not self._knows(position):
            raise position_lost(folder, f"file {file!r}", "files before that have another name or content")
        if within:
            reader = self._reader = self._open_one(self._names[at])
            reader.seek(within)

    def _knows(self, position: Any) -> bool:
        """Whether the files before a position are those that were read; one of followed files has the last of them."""
        if "passed" not in position:
            done = position.get("done")
            found = None if done is None else self._files.stat(done[0])
            return done is None or (found is not None and found.size == done[1] and is_marked(self._files, *done))
        if self._passed.hexdigest() != position["passed"]:
            return False
        if "mark" in position:
            mark = Mark(*position["mark"])
            if mark.changed != self._changed.hexdigest():
                return self._mark().content == mark.content
            self._content = mark.content
            self._unhashed.clear()
        return True

    def fraction(self) -> float | None:
        """As if all files had the same length."""
        part = (self._reader and self._reader.fraction()) or 0.0
        return (self._at + part) / len(self._names)

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
