"""The sources of a path: a file, the files in a folder or matching a pattern, or a path that is followed.

Invariant: for every kind of path, each file is read by the source that is made from its path.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from drift.sources.base import Source
from drift.sources.followed import FollowedSource
from drift.sources.many import ManySource

Make = TypeVar("Make", bound=Callable[..., Any])


def of_paths(of_file: Make) -> Make:
    """From a function that makes the source of a file, one that also handles folders, patterns and following."""

    @wraps(of_file)
    def source(path: str | os.PathLike[str], *args: Any, **more: Any) -> Any:
        one: Source = of_file(path, *args, **more)  # checks the arguments
        named = os.fsdecode(path)

        def make(each: str) -> Source:
            made: Source = of_file(each, *args, **more)
            return made

        if more.get("follow"):
            return FollowedSource(named, one, make)
        if named == "-" or not (Path(named).is_dir() or glob.has_magic(named)):
            return one
        return ManySource(named, one, make)

    return cast(Make, source)
