"""The answers of calls in a record, found by what was asked about.

Invariant: an answer is found for its item, in whatever order items come; in the order of metas the record is read once.

Why: a run records the answers of a call in the order of metas; an item below the last one begins a new search.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drift.records.reader import Record


class AnswersOfRecord:
    """Finds the answers of one record, by step and meta."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._reading: dict[str, Iterator[tuple[bytes, Any]]] = {}
        self._next: dict[str, tuple[bytes, Any] | None] = {}
        self._last: dict[str, bytes] = {}

    def find(self, step: str, meta: bytes) -> tuple[Any] | None:
        """The answer about an item, or the `Failure` of that call; None if it is not in the record."""
        if step not in self._reading or meta <= self._last[step]:
            self._reading[step] = self._record.answers(step)
            self._next[step] = next(self._reading[step], None)
        self._last[step] = meta
        found = self._next[step]
        while found is not None and found[0] < meta:
            found = self._next[step] = next(self._reading[step], None)
        return (found[1],) if found is not None and found[0] == meta else None
