"""The form in order of sliding windows, whose slices are in arrays.

Invariant: its states and timers are all in arrays, or all in the stage.

Why: nothing can come below what is in arrays. What is not sure there is left to the logic, which finds all states in
the stage then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from drift.machines.in_order import InOrder, Shared
from drift.machines.log import Keyed
from drift.operators import Process
from drift_graph.item import Columns
from drift_graph.meta import varint
from drift_graph.metas import Metas
from drift_graph.payloads import Rows


class MergingSlices(InOrder):
    """The form of a process whose function for items is a `drift.operators.MergesSlices`."""

    takes_objects: ClassVar[bool] = True
    leaves_pages: ClassVar[bool] = False

    def __init__(self, process: Process, shared: Shared) -> None:
        self._on_item, self._shared = process.on_item, shared  # `_arrays` is a `Merging` once slices in them have come
        suffix, _, of_timers, of_output = shared.ranks
        self._timers_of = suffix, of_timers + varint(0), process.phase
        self._output = suffix + of_output + varint(0)

    def process(self, batch: Keyed) -> tuple[int, list[Columns]]:
        slices = self._arrays.in_arrays(batch.payloads) if self._has_arrays(batch.payloads) else None
        return (0, []) if slices is None else self.process_rows(batch.metas, slices)

    def _has_arrays(self, slices: Any) -> bool:
        if self._arrays is None:
            self._arrays = self._on_item.merging(slices, self._timers_of)  # type: ignore[attr-defined]
        return self._arrays is not None

    def process_rows(self, metas: Metas, rows: Rows) -> tuple[int, list[Columns]]:
        if not self._has_arrays(rows) or not self._arrays.takes(rows):
            return 0, []
        self._shared.get(metas, rows.keys)  # type: ignore[attr-defined]
        if self._shared.states or self._shared.timers.by_key:
            return 0, []
        self._keep()
        for start, stop in self._arrays.stretches(rows):
            self._arrays.fire(metas[start])
            least = self._arrays.least
            if least is not None and least < metas[start]:
                return start, self._sent()
            self._arrays.add(metas[start:stop], rows[start:stop])
        return len(metas), self._sent()

    def fire(self, bound: bytes, *, ended: bool) -> list[Columns]:
        if self.least is None:  # nothing is here, and states that were handed back may be in the stage
            return []
        self._keep()
        self._arrays.fire(bound)
        return self._sent()

    def _sent(self) -> list[Columns]:
        timers, keys, windows = self._arrays.taken()
        self._shared.note_fired(timers, keys)
        return [Columns(timers.with_suffix(self._output), windows, None)]

    def hand_back(self) -> None:
        if self._arrays is not None:
            self._shared.put(self._arrays.take())

    def entries(self, keys: Sequence[Any]) -> dict[Any, Any]:
        found = dict(self._arrays.entries()) if self._arrays is not None else {}
        return {key: found[key] for key in keys if key in found}

    @property
    def least(self) -> bytes | None:
        return self._arrays.least if self._arrays is not None else None

    def __len__(self) -> int:
        return len(self._arrays) if self._arrays is not None else 0
