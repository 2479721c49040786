"""What was read of a file, as one hash by which it is known again, on any machine.

Invariant: the hash depends on the bytes and their number alone, not on the pieces in which they came.

It covers the first `WHOLE_BYTES`, behind them the first `SAMPLE_BYTES` of every `STRIDE_BYTES`, and the last
`TAIL_BYTES`. So what was read of a terabyte is verified by reading 16 GB. Up to `WHOLE_BYTES` every change is noticed;
further back what was put in or taken out is noticed by the end, and a change that moves nothing only where it is
covered.

A file that was read as a whole also has a `Mark`: when it was changed, and a hash of small parts of it. Where that is
as it was, the file need not be read again; where it is not, as of a copy, the hash of the content decides.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple, Self

import xxhash

WHOLE_BYTES = 1 << 28
STRIDE_BYTES = 1 << 24
SAMPLE_BYTES = 1 << 18
TAIL_BYTES = 1 << 12
_PARTS, _PART_BYTES = 16, 1 << 12  # of a mark


class Known:
    """The hash of the bytes read so far.

    Attributes:
        offset: their number.
    """

    __slots__ = ("_hash", "_tail", "offset")

    def __init__(self) -> None:
        self.offset = 0
        self._hash = xxhash.xxh3_128()
        self._tail = b""

    def copy(self) -> Self:
        made = type(self)()
        made.offset, made._hash, made._tail = self.offset, self._hash.copy(), self._tail
        return made

    def update(self, data: bytes) -> None:
        """Add the next bytes."""
        self._tail = data[-TAIL_BYTES:] if len(data) >= TAIL_BYTES else (self._tail + data)[-TAIL_BYTES:]
        end = self.offset + len(data)
        if end <= WHOLE_BYTES:
            self._hash.update(data)
            self.offset = end
            return
        while data:
            covered, uncovered = self._covered()
            self._hash.update(data[:covered])
            data = data[covered + uncovered :]
            self.offset += covered + uncovered
        self.offset = end

    def _covered(self) -> tuple[int, int]:
        """How many of the next bytes the hash covers, apart from the tail, and how many behind them it does not."""
        if self.offset < WHOLE_BYTES:
            return WHOLE_BYTES - self.offset, 0
        passed = (self.offset - WHOLE_BYTES) % STRIDE_BYTES
        covered = max(SAMPLE_BYTES - passed, 0)
        return covered, STRIDE_BYTES - passed - covered

    def unneeded(self, end: int) -> int:
        """How many of the next bytes need not be read for the hash of what is before `end`."""
        covered, uncovered = self._covered()
        return 0 if covered else max(min(uncovered, end - TAIL_BYTES - self.offset), 0)

    def skip(self, count: int) -> None:
        """Pass over bytes that are `unneeded`."""
        self.offset += count

    def ends_with(self, characters: bytes) -> bool:
        """Whether the last byte is one of these."""
        return self._tail[-1:] in map(bytes, zip(characters))

    def hexdigest(self) -> str:
        return xxhash.xxh3_128_hexdigest(self._hash.digest() + self._tail)


class Mark(NamedTuple):
    """A file of this machine as it was when it was read.

    Attributes:
        changed: when, and the hash of its parts: the whole of a file of 64 KiB or less, 16 parts of a longer one.
        content: its hash.
    """

    changed: str
    content: str

    def is_of(self, path: str) -> bool:
        """Whether the file has that content still."""
        return changed_of(path) == self.changed or content_of(path) == self.content


def changed_of(path: str) -> str:
    """`Mark.changed` of a file; "" if it cannot be read."""
    found = xxhash.xxh3_128()
    try:
        with Path(path).open("rb", buffering=0) as file:
            of = os.fstat(file.fileno())
            last = max(of.st_size - _PART_BYTES, 0)
            for at in [*range(0, last, max(last // (_PARTS - 1), _PART_BYTES)), last]:
                found.update(os.pread(file.fileno(), _PART_BYTES, at))
    except OSError:
        return ""
    return f"{of.st_mtime_ns} {found.hexdigest()}"


def content_of(path: str) -> str:
    """`Mark.content` of a file; "" if it cannot be read."""
    found = Known()
    try:
        with Path(path).open("rb", buffering=0) as file:
            end = os.fstat(file.fileno()).st_size
            while found.offset < end:
                found.skip(found.unneeded(end))
                data = os.pread(file.fileno(), SAMPLE_BYTES, found.offset)
                if not data:
                    break
                found.update(data)
    except OSError:
        return ""
    return found.hexdigest()
