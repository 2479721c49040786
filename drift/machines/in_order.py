"""The form in order of a logic with timers: faster than row by row, where nothing can come below the rows.

Invariant: outputs, states and timers are those of the logic, row by row and timer by timer. A key's state and timers
are either in such a form or in the stage; what a form does not know is left to the logic.

Why: nothing of it is ever taken back, so nothing is logged, and states need not be there for each row or timer. Whoever
needs a key's state as the logic would have it asks the form to hand it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

from drift.machines.log import Keyed
from drift.machines.timers import Timers
from drift.machines.undo import Undo
from drift.operators import OpensWindows
from drift_graph.functions import pass_interrupts
from drift_graph.item import Columns
from drift_graph.metas import Metas
from drift_graph.payloads import Rows
from drift_graph.unchanged import Sample

T = TypeVar("T")


class Shared(NamedTuple):
    """What a stage shares with the form in order of its logic.

    Attributes:
        states, timers: those that are in the stage; `put` sets them, see `KeyedState.put`.
        get: fetches the states of keys, whose rows come now; see `KeyedState.get`.
        note_fired: notes that timers have fired, by their metas and keys.
        fire: fires the timers of the stage below a bound, and adds what they make; False if a call has raised.
        undo: gets what keys had before they change, if the stage may have to go back.
        sample, sample_states, check: of payloads, and of states at an end, that the user's functions get, and whether
            they are unchanged.
    """

    states: dict[Any, Any]
    timers: Timers
    put: Callable[[Iterable[tuple[Any, Any]]], None]
    ranks: Sequence[bytes]
    get: Callable[[Sequence[bytes], Sequence[Any]], None]
    note_fired: Callable[[Sequence[bytes], Sequence[Any]], None]
    fire: Callable[[bytes, list[Columns]], bool]
    undo: Undo[Any]
    sample: Callable[[Sequence[Any]], list[Sample]]
    sample_states: Callable[[Sequence[Any]], list[Sample]]
    check: Callable[[Sequence[Sample]], None]


def unless_it_raises(call: Callable[..., T], *arguments: Any) -> T | None:
    """What the call returns; None if it raises: the logic makes it again, item by item, where that is reported."""
    try:
        return call(*arguments)
    except BaseException as raised:
        pass_interrupts(raised)
        return None


def values_of(parts: Sequence[tuple[Any, Any]], payloads: Sequence[Any]) -> list[Any]:
    """The values of payloads by aggregate, see `Accumulators.fold` in the kernel.

    Args:
        parts: the kind and the aggregate of each.
    """
    return [(None if kind == "count" else list(part.values_of(payloads)), None, None) for kind, part in parts]


class InOrder:
    """This one is that of a logic which has no form in order: it takes nothing.

    Attributes:
        opens: what opens its windows, where their ends follow from the times of items.
        has_columns: whether it takes rows in columns; where there is output at ends only, the stage does.
        takes_objects: whether it takes rows that are in none.
        is_built: whether there is what it needs; else the logic runs.
        in_kernel: whether it is a loop of the kernel; `takes_later`: also of later items.
        leaves_pages: whether a stage whose states may be dropped from memory does without it.
    """

    opens: OpensWindows | None = None
    only_at_ends: ClassVar[bool] = True
    has_columns: ClassVar[bool] = False
    takes_objects: ClassVar[bool] = False
    leaves_pages: ClassVar[bool] = True
    is_built: ClassVar[bool] = True
    in_kernel: ClassVar[bool] = False
    takes_later: ClassVar[bool] = False

    _shared: Shared
    _arrays: Any = None  # of a form that has all of its states in them

    def process(self, batch: Keyed) -> tuple[int, list[Columns]]:
        """Process rows of a batch from the first on, with the timers before them; how many, and the outputs."""
        raise NotImplementedError

    def process_rows(self, metas: Metas, rows: Rows) -> tuple[int, list[Columns]]:
        """Process rows in columns, before their keys are known; how many, and the outputs."""
        return 0, []

    def fire(self, bound: bytes, *, ended: bool) -> list[Columns]:
        """Fire the first timers below a bound, below which no row will come; the outputs.

        Args:
            ended: whether all input has ended.
        """
        return []

    def hand_back(self) -> None:
        """Give the states and timers of all keys to the stage."""

    def entries(self, keys: Sequence[Any]) -> dict[Any, Any]:
        """The states and timers of those of the keys that have any here; see `KeyedState.put`."""
        return {}

    def _keep(self) -> None:
        """Keep all that is in arrays, for undo."""
        self._shared.undo.note_whole(self._arrays.copied)

    def put_back(self, kept: Any) -> None:
        """Have again what was kept of all that is here; see `drift.machines.undo.Whole`."""
        self._arrays = kept.back()

    @property
    def least(self) -> bytes | None:
        """A meta at or below the first timer here; None if there is none."""
        return None

    def __len__(self) -> int:
        """How many timers are here."""
        return 0
