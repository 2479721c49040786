"""Drawn numbers that are the same everywhere: SHA-256 of a text and a counter."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
_EIGHT = struct.Struct(">8I")


class Draw:
    """Numbers that depend on the texts that it is made of, and on how many were drawn before.

    >>> Draw("example", 3).below(100), Draw("example", 3).below(100)
    (70, 70)
    """

    def __init__(self, *of: object) -> None:
        self._of = "/".join(map(str, of)).encode()
        self._blocks = 0
        self._left: list[int] = []

    def below(self, bound: int) -> int:
        """0 <= n < bound, of up to 32 bits."""
        if not self._left:
            block = hashlib.sha256(self._of + b"#%d" % self._blocks).digest()
            self._blocks += 1
            self._left = list(_EIGHT.unpack(block))
        return self._left.pop() * bound >> 32

    def between(self, least: int, most: int) -> int:
        return least + self.below(most - least + 1)

    def of(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def one_in(self, count: int) -> bool:
        return self.below(count) == 0
