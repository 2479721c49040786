"""Several files as one source: a folder, or the files that match a pattern.

Invariant: the files are read one after the other, in the order of their names, each to its end; the list is made when
the source is opened. A position is only taken by a list that begins with the files that were read, of the sizes that
they had.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import xxhash

from drift.sources.base import Positioned, Reader
from drift.sources.positions import position_fields, position_lost, position_of
from drift_graph.errors import InputError


def folder_of(path: str) -> Path:
    """The common folder of the files: the path itself, or the part before the pattern."""
    if Path(path).is_dir():
        return Path(path)
    parts = Path(path).parts
    return Path(*parts[: next(at for at, part in enumerate(parts) if glob.has_magic(part))])


def files_in(path: str) -> list[str]:
    """The files in a folder (except hidden ones), or those that match a pattern, in the order of their names."""
    if Path(path).is_dir():
        found = [str(each) for each in Path(path).iterdir() if each.is_file() and each.name[:1] not in (".", "_")]
    else:
        found = [each for each in glob.glob(path, recursive=True) if Path(each).is_file()]  # noqa: PTH207
    return sorted(found)


def files_of(path: str) -> list[str]:
    """The files of a path: itself, those in a folder, or those that match a pattern.

    Raises:
        InputError: there are none.
    """
    if not Path(path).is_dir() and (not glob.has_magic(path) or Path(path).exists()):
        return [path]
    found = files_in(path)
    if not found:
        reason = "the folder has no files" if Path(path).is_dir() else "no file matches the pattern"
        raise InputError(f"{path}: {reason}; check the path")
    return found


def reader_of(path: str, open_one: Callable[[str], Reader]) -> Reader:
    """A reader of all files that a path names."""
    paths = files_of(path)
    return open_one(path) if paths == [path] else ManyReader(paths, open_one, folder_of(path))


class ManyReader:
    """Reads files one after the other.

    Args:
        folder: their common folder; a position names a file by its path relative to it.
    """

    def __init__(self, paths: Sequence[str], open_one: Callable[[str], Reader], folder: Path) -> None:
        self._folder = folder
        self._paths = paths
        self._open_one = open_one
        self._at = 0
        self._reader: Reader | None = None
        self._passed = xxhash.xxh3_128()  # names and sizes of the files before that

    def read(self, items_max: int) -> list[Any] | None:
        while self._at < len(self._paths):
            if self._reader is None:
                self._reader = self._open_one(self._paths[self._at])
            payloads = self._reader.read(items_max)
            if payloads is not None:
                return payloads
            self.close()
            self._pass()
        return None

    def _pass(self) -> None:
        """The present file was read to its end."""
        size = Path(self._paths[self._at]).stat().st_size
        self._passed.update(f"{self._name(self._at)}\0{size}\0".encode(errors="surrogateescape"))
        self._at += 1

    def position(self) -> Any:
        """See `Positioned`: the present file, the number of files before it, and the position in it."""
        if self._at >= len(self._paths):
            return self._position(self._at - 1, None)
        within = None
        if self._reader is not None:
            within = self._reader.position() if isinstance(self._reader, Positioned) else None
            if within is None:
                return None
        return self._position(self._at, within or {})

    def _position(self, at: int, within: Any) -> Any:
        passed = self._passed.hexdigest()
        return position_of("files", file=self._name(at), before=at, within=within, passed=passed)

    def seek(self, position: Any) -> None:
        """See `Positioned`. Files may have been added that sort behind the present file."""
        fields = "file", "before", "within", "passed"
        file, before, within, passed = position_fields(position, "files", str(self._folder), *fields)
        names = list(map(self._name, range(len(self._paths))))
        at = names.index(file) if file in names else -1
        if at != before:
            raise position_lost(
                str(self._folder),
                f"file {file!r}, before which there were {before}",
                f"there are {at} before it" if at >= 0 else "it is not there",
            )
        while self._at < at + (within is None):
            self._pass()
        if self._passed.hexdigest() != passed:
            raise position_lost(str(self._folder), f"file {file!r}", "files before that have another name or size")
        if within:
            reader = self._reader = self._open_one(self._paths[at])
            assert isinstance(reader, Positioned)
            reader.seek(within)

    def _name(self, at: int) -> str:
        return Path(self._paths[at]).relative_to(self._folder).as_posix()

    def filenos(self) -> Sequence[int]:
        return ()

    def fraction(self) -> float | None:
        """The share of the files that has been read, 0 to 1, as if all had the same length."""
        part = getattr(self._reader, "fraction", lambda: None)() or 0.0
        return (self._at + part) / len(self._paths)

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
