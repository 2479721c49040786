"""What a path stands for: a file, all that are in a folder or match a pattern, or what goes on being written there.

Invariant: whatever a path stands for, each file is read by the source that is made of its path.
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
    """A function that makes a source of a file, for folders and patterns as well, and to be followed."""

    @wraps(of_file)
    def source(path: str | os.PathLike[str], *args: Any, **more: Any) -> Any:
        one: Source = of_file(path, *args, **more)  # which checks the arguments
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
