"""What groupings and scans share: where nothing will come below a batch, finding keys and stepping is one loop.

Invariant: the outputs are those of finding the keys first, and stepping then. An item at which the loop ends, because
its key is not of the type of others or a call raises, is met again that way, with all behind it.

Why: keys of most graphs are of one type whose values stand for themselves, so there is nothing to find out about them
that would need all of them at once; and what comes in order is not logged.
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
        """Take a batch sorted by meta; the outputs to send and take back, whose metas still lack the suffix."""
        metas, payloads, diffs = columns
        if not metas:
            return columns
        is_whole = metas[-1] < self.whole_below and self._log.is_above(metas[0])
        is_whole = is_whole and diffs is None and not self._debts and not self._corrects
        if not is_whole or self.wants_keys:
            return self._process(columns, ports, is_whole)
        outputs = self._run_at_once(payloads)
        done = len(outputs)
        if done == len(metas):
            return Columns(metas, outputs, None)
        rest = self._process(columns.cut(done, len(metas)), ports, is_whole)
        return joined([Columns(metas[:done], outputs, None), rest]) if done else rest

    @property
    @abstractmethod
    def _corrects(self) -> bool:
        """Whether there are keys whose items cannot be stepped through one after the other."""

    @abstractmethod
    def _run_at_once(self, payloads: list[Any]) -> list[Any]:
        """Find keys and step in one loop: the outputs up to the item at which it ends."""

    @abstractmethod
    def _process(self, columns: Columns, ports: Ports, is_whole: bool) -> Columns:
        """The same for one item or more.

        Args:
            is_whole: nothing will come below them, nor take them back.
        """
