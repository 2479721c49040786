"""Shared by groupings and scans: if no item will come below a batch, one loop computes keys and processes items.

Invariant: the outputs are the same as with two passes, keys first and steps then. If the loop stops at an item, because
its key is of another type or a call raises, that item and all after it go through the two passes.

Why: in most graphs all keys are of one type whose values are their own identities, so no pass over all keys is needed;
and items that come in order are not logged.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from drift.machines.changes import Debts
from drift.machines.cuts import KeyedState
from drift.machines.log import Log
from drift.machines.maps import Ports
from drift_graph.item import Columns, joined


class InOrder(KeyedState):
    """See the module."""

    _log: Log
    _debts: Debts

    def process(self, columns: Columns, ports: Ports) -> Columns:
        """Process a batch sorted by meta; returns outputs and tombstones, whose metas still lack the suffix."""
        metas, payloads, diffs = columns
        if not metas:
            return columns
        is_complete = metas[-1] < self.complete_below and self._log.is_above(metas[0])
        is_complete = is_complete and diffs is None and not self._debts and not self._corrects
        if not is_complete or self.wants_keys:
            return self._process(columns, ports, is_complete)
        outputs = self._run_at_once(payloads)
        done = len(outputs)
        if done == len(metas):
            return Columns(metas, outputs, None)
        rest = self._process(columns.cut(done, len(metas)), ports, is_complete)
        return joined([Columns(metas[:done], outputs, None), rest]) if done else rest

    @property
    @abstractmethod
    def _corrects(self) -> bool:
        """Whether some keys have a bucket or a step that raised, so their items cannot simply be processed in order."""

    @abstractmethod
    def _run_at_once(self, payloads: list[Any]) -> list[Any]:
        """Compute keys and process items in one loop; the outputs up to the item at which it stops."""

    @abstractmethod
    def _process(self, columns: Columns, ports: Ports, is_complete: bool) -> Columns:
        """The two passes, for one item or more.

        Args:
            is_complete: no item will come below them, and no tombstone for them.
        """
