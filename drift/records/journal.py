"""The journal of a record that grows: a line for every seal since the last manifest, in manifest.log.

Invariant: the manifest, and the lines of the journal that follow it one after the other, are the state of the record; a
line holds its own hash and that of its predecessor.

Why: a manifest lists every file, so rewriting it at each seal would take quadratic time. A line lists only new files,
and lines are merged into a new manifest when they have grown as long as the last one; so the total written is a small
multiple of the last manifest. A line is appended after the files that it lists are durable. A torn line, any line
behind it, and a journal left from before a merge follow nothing, and are ignored.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from drift.places import sync
from drift_barrier.digest import Algorithm, hash_block

JOURNAL = "manifest.log"
_BYTES_MIN = 1 << 16  # below this size no merge


class Line(msgspec.Struct, frozen=True):
    """A seal.

    Attributes:
        after: hash of the manifest or the line before it.
        files: that were sealed, in the form of the manifest.
        fields: of the manifest that have changed.
        hash: of the other fields.
    """

    after: str
    files: list[dict[str, Any]]
    fields: dict[str, Any]
    hash: str = ""

    def hashed(self, algorithm: Algorithm) -> str:
        rest = {"after": self.after, "files": self.files, "fields": self.fields}
        return hash_block(algorithm, msgspec.json.encode(rest, order="sorted")).hex()


class Journal(NamedTuple):
    """The content of a journal.

    Attributes:
        lines: that follow the manifest.
        hash: of the last of them, or of the manifest.
        wrong: evidence that it was edited, or "".
    """

    lines: list[Line]
    hash: str
    wrong: str


def read_journal(folder: Path, after: str, algorithm: Algorithm) -> Journal:
    """The journal of a record. `after`: hash of its manifest. Raises OSError: it cannot be read."""
    try:
        data = (folder / JOURNAL).read_bytes()
    except FileNotFoundError:
        return Journal([], after, "")
    lines: list[Line] = []
    at = 0
    while (end := data.find(b"\n", at)) >= 0:
        line = _line(data[at:end], algorithm)
        if line is None or line.after != after:
            left_behind = line is not None and not lines
            return Journal(lines, after, "" if left_behind else f"line {len(lines) + 1} is not as it was written")
        lines.append(line)
        after, at = line.hash, end + 1
    return Journal(lines, after, "")


def _line(data: bytes, algorithm: Algorithm) -> Line | None:
    """A line with the right hash and nothing that is not hashed, not even a space; otherwise None."""
    try:
        line = msgspec.json.decode(data, type=Line)
        return line if line.hash == line.hashed(algorithm) and msgspec.json.encode(line) == data else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class JournalWriter:
    """Appends to the journal of a record. `algorithm`: of hashes."""

    def __init__(self, folder: Path, algorithm: Algorithm) -> None:
        self._path = folder / JOURNAL
        self._algorithm = algorithm
        self._after = ""
        self._size = self._size_max = 0
        self._fields: dict[str, Any] = {}

    def follow(self, manifest: str, size: int, fields: dict[str, Any]) -> None:
        """Start a new journal, behind a manifest with this hash and size, in which the fields have these values."""
        self._path.unlink(missing_ok=True)
        self._after, self._fields = manifest, fields
        self._size, self._size_max = 0, max(size, _BYTES_MIN)

    def append(self, files: list[dict[str, Any]], fields: dict[str, Any]) -> str | None:
        """Append a seal; returns the hash of its line, or None if a new manifest is due."""
        changed = {name: value for name, value in fields.items() if self._fields.get(name) != value}
        line = Line(self._after, files, changed)
        found = line.hashed(self._algorithm)
        data = msgspec.json.encode(msgspec.structs.replace(line, hash=found)) + b"\n"
        if self._size + len(data) > self._size_max:
            return None
        with self._path.open("ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if not self._size:
            sync(self._path.parent)
        self._after, self._fields = found, fields
        self._size += len(data)
        return found
