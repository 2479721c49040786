"""What a deliberate breakage is: an edit of the sources, the tests that are to catch it, and who else cannot see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

LAWS = ("tests/engines/test_laws.py",)
SAME_CODE = "the reference uses the same code, so both are wrong alike"


class Edit(NamedTuple):
    file: str
    old: str
    new: str


class Breakage(NamedTuple):
    name: str
    edits: Sequence[Edit]
    tests: Sequence[str] = LAWS
    unseen: str = ""  # why the harness cannot see it


def one(name: str, file: str, old: str, new: str, tests: Sequence[str] = LAWS, unseen: str = "") -> Breakage:
    return Breakage(name, [Edit(file, old, new)], tests, unseen)
