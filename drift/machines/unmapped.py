"""Outputs of a stage, in front of its maps: of many windows that close at once, or of all that comes at the end.

Invariant: all that was added is run through the maps in the order in which it was added, each once. What `run` makes
between two looks is about as much as a batch, except where one item, or a jump in size, makes more.

Why: what maps make of outputs is not known before they are called, so few are run at first, and then as many as made a
batch before. The outputs themselves were made within limits; what is made of them waits in nobody's memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from drift.machines.maps import Origins, Ports, Program
from drift_graph.item import Columns, sorted_by_meta
from drift_graph.sizes import BATCH_BYTES, made_bytes

#: Items that are taken at once before it is known what is made of them; and later at most so many times as many.
FIRST, GROWTH = 8, 8
#: What is made in a turn before the rest waits: more than a batch, so that usual batches go in one turn.
_MADE_MAX = 2 * BATCH_BYTES


class Unmapped:
    """The outputs of one stage that wait for its program of maps."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._batches: deque[Columns] = deque()  # each in the order of metas
        self._begin = 0  # the first that waits, of the first batch
        self._at_once = FIRST

    def __len__(self) -> int:
        return sum(len(columns.metas) for columns in self._batches) - self._begin

    @property
    def least(self) -> bytes | None:
        """The least meta that waits, without what the stage appends to it."""
        if not self._batches:
            return None
        first, *others = self._batches
        return min([first.metas[self._begin], *(columns.metas[0] for columns in others)])

    def add(self, columns: Columns) -> None:
        if columns.metas:
            self._batches.append(sorted_by_meta(columns))

    def clear(self) -> None:
        """Drop all, since the worker goes back to before what made it."""
        self._batches.clear()
        self._begin = 0

    def run(self, suffix: bytes, ended: bool, *, takes_all: bool) -> Iterator[tuple[Columns, Ports, Origins]]:
        """Run what waits through the maps, the first items first, until enough is made or, with `takes_all`, all of it.

        Args:
            suffix, ended: see `Program.run`.

        Yields:
            Items, what was made of them, and the origins of later items in it.
        """
        made_in_all = 0
        while self._batches and (takes_all or made_in_all < _MADE_MAX):
            batch, begin = self._batches[0], self._begin
            columns = batch.slice(begin, min(begin + self._at_once, len(batch.metas)))
            ports: Ports = {}
            origins: Origins = {}
            taken = self._program.run_some(columns, ports, origins, suffix, ended)
            self._begin += taken
            if self._begin == len(batch.metas):
                self._batches.popleft()
                self._begin = 0
            made = made_bytes(each.payloads for batches in ports.values() for each in batches)
            made_in_all += made
            grown = GROWTH * self._at_once if taken == self._at_once else self._at_once
            self._at_once = max(min(grown, BATCH_BYTES * taken // max(made, 1)), 1)
            yield columns.slice(0, taken), ports, origins
