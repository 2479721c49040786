"""Modules of graphs, written and loaded in tests."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path
from typing import Any

from drift.load import load_module

_numbers = itertools.count()


def edited(text: str, *edits: tuple[str, str]) -> str:
    """A text with other words in it; all that are to be replaced are there."""
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text


def module_of(folder: Path, text: str, name: str = "") -> Any:
    """A module of its own, from a file; its graph has a place, so that other processes find it."""
    name = name or f"module_{os.getpid()}_{next(_numbers)}"
    path = folder / f"{name}.py"
    path.write_text(text)
    sys.modules.pop(name, None)
    return load_module(str(path))
