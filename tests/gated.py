"""A source that stops in the middle: what happens to a run then happens before its end, whoever is faster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from drift.sources.arguments import as_source
from drift.sources.base import Reader


class Gated:
    """Another finite source, of which no more than so many items are read before `open_gate` is called.

    Args:
        input: a source, or what a run takes for one.
        items: how many come before the gate; counted from where reading begins, also behind a checkpoint.
    """

    live = False

    def __init__(self, input: Any, items: int) -> None:
        self._source = as_source("gated", input)
        self._left = items
        self._waiting, self._opening = os.pipe()  # readable when the gate is open
        self._is_open = False

    def open_gate(self) -> None:
        if not self._is_open:
            self._is_open = True
            os.write(self._opening, b".")

    def open(self) -> Gated:
        self._reader: Reader = self._source.open()
        return self

    def read(self, items_max: int) -> list[Any] | None:
        if self._is_open:
            return self._reader.read(items_max)
        if not self._left:
            return []
        batch = self._reader.read(min(items_max, self._left))
        self._left -= len(batch or ())
        return batch

    def filenos(self) -> Sequence[int]:
        return (self._waiting,)

    def position(self) -> Any:
        return self._reader.position()

    def seek(self, position: Any) -> None:
        self._reader.seek(position)

    def close(self) -> None:
        self._reader.close()
        os.close(self._waiting)
        os.close(self._opening)
