"""Windows by number in order: the kernel's loop over a batch of objects or rows.

Invariant: outputs and states are those of the step, item by item. A key's state is in the kernel's table, or in the
stage; what the loop cannot do (a function raises) is left to the step.

Why: nothing that comes in order is taken back, so the open windows stay in the table from batch to batch, and no state
is made of them until somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from drift.machines.in_order import InOrder, Shared, unless_it_raises, values_of
from drift.machines.log import Keyed
from drift.machines.undo import Before
from drift.operators import NumbersWindows
from drift_graph.functions import pass_interrupts
from drift_graph.item import Columns
from drift_graph.metas import Metas
from drift_graph.payloads import AtMostOne, Rows
from drift_kernel import kernel


class Numbering(InOrder):
    """The form in order of such a step."""

    is_built: ClassVar[bool] = kernel is not None
    in_kernel: ClassVar[bool] = True
    takes_later: ClassVar[bool] = True
    has_columns: ClassVar[bool] = True
    takes_objects: ClassVar[bool] = True

    def __init__(self, step: NumbersWindows, shared: Shared) -> None:
        assert kernel is not None
        self._kernel, self._step, self._shared, self._table = kernel, step, shared, step.table

    def process(self, batch: Keyed) -> tuple[int, list[Columns]]:
        values = unless_it_raises(values_of, self._step.parts[1], batch.payloads)
        if values is None:
            return 0, []
        codes, keys = self._kernel.codes_of(batch.keys)

        def windows(selected: bytes, ends: Any, accumulators: Any, _: bool) -> Any:
            return AtMostOne(selected, self._step.windows(batch.payloads, selected, ends, accumulators))

        return self._add(batch.metas, codes, keys, values, windows, in_arrays=False)

    def process_rows(self, metas: Metas, rows: Rows) -> tuple[int, list[Columns]]:
        samples = self._shared.sample(rows)  # type: ignore[arg-type]
        batch = unless_it_raises(self._step.in_columns, rows)
        if batch is None:
            return 0, []
        codes, keys, values = batch
        self._shared.get([metas[-1]] * len(keys), keys)

        def windows(selected: bytes, ends: Any, accumulators: Any, are_arrays: bool) -> Any:
            if not are_arrays:
                return None
            return self._step.windows_in_columns(codes, keys, selected, ends, accumulators)

        added = self._add(metas, codes, keys, values, windows, in_arrays=True)
        self._shared.check(samples)
        return added

    def _add(
        self,
        metas: Metas,
        codes: Any,
        keys: list[Any],
        values: list[Any],
        windows: Callable[..., Any],
        *,
        in_arrays: bool,
    ) -> tuple[int, list[Columns]]:
        states, table = self._shared.states, self._table
        for key in keys if states else ():
            if key in states:
                table.absorb(key, states.pop(key))
        try:
            added = table.add(codes, keys, values, in_arrays)
        except BaseException as raised:  # raised again item by item, where it is reported
            pass_interrupts(raised)
            return 0, []
        made = unless_it_raises(windows, *added)
        if made is None:
            table.take_back()
            return 0, []
        if self._shared.undo:
            had = table.before()
            self._shared.undo.note(Before(keys, lambda: had.entries().items()))
        table.keep()
        return len(metas), [Columns(metas, made, None)]

    def hand_back(self) -> None:
        if len(self._table):
            self._shared.put(self._table.entries().items())
            self._table.clear()

    def entries(self, keys: Sequence[Any]) -> dict[Any, Any]:
        found: dict[Any, Any] = self._table.entries(keys)
        return found
