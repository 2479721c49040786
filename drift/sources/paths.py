"""The sources of a path: a file, the files in a folder or matching a pattern, or a path that is followed.

Invariant: for every kind of path, each file is read by the source that is made from its path.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar, cast, runtime_checkable

from drift.guarantees import SourceGuarantee
from drift.sources.base import Diverting, Diverts, Reader, Source
from drift.sources.followed import FollowedReader
from drift.sources.many import folder_of, reader_of

Make = TypeVar("Make", bound=Callable[..., Any])


@runtime_checkable
class Growing(Protocol):
    """A source of a file that may be still written."""

    def growing(self) -> Source:
        """The same source; its reader raises `NothingYet` at the present end of the file."""


class PathSource(Diverting):
    """All files that a path names, as one source.

    Args:
        one: a source of the path, for its description.
        make: makes the source of a file.
        live: whether the path is followed.
    """

    guarantee: ClassVar = SourceGuarantee("from a position", "in one of its files, as long as they are there")

    def __init__(self, path: str, one: Source, make: Callable[[str], Source], *, live: bool) -> None:
        self._path = path
        self._one = one
        self._make = make
        self.live = live

    def open(self) -> Reader:
        return FollowedReader(self._path, self._open_one) if self.live else reader_of(self._path, self._open_one)

    def _open_one(self, path: str, grows: bool = False) -> Reader:
        source = self._make(path)
        if self._diverts_as and isinstance(source, Diverts):
            inside = ""  # without the folder, which may be another on another day
            if path != self._path:
                inside = f", {Path(path).relative_to(folder_of(self._path)).as_posix()}"
            source = source.diverting(f"{self._diverts_as}{inside}")
        return (source.growing() if grows and isinstance(source, Growing) else source).open()

    def __repr__(self) -> str:
        return f"{self._one!r}{', followed' if self.live else ''}"


def of_paths(of_file: Make) -> Make:
    """From a function that makes the source of a file, one that also handles folders, patterns and following."""

    @wraps(of_file)
    def source(path: str | os.PathLike[str], *args: Any, **more: Any) -> Any:
        one: Source = of_file(path, *args, **more)  # checks the arguments
        named = os.fsdecode(path)
        live = bool(more.get("follow"))
        if not live and (named == "-" or not (Path(named).is_dir() or glob.has_magic(named))):
            return one
        return PathSource(named, one, lambda each: cast(Source, of_file(each, *args, **more)), live=live)

    return cast(Make, source)
