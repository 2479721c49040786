"""Metas of rows: what numpy does with them at once.

Invariant: that of `drift_graph.metas`.

Why: the core has no numpy; where payloads are rows, it is there, and metas come from the rows' own kinds.
"""

from __future__ import annotations

import numpy as np

from drift_graph.metas import ChosenMetas


class MaskedMetas(ChosenMetas):
    """A choice from metas, joined by numpy."""

    __slots__ = ()

    def joined(self, head: bytes) -> bytes:
        if not len(self):
            return b""
        rows = np.frombuffer(self.every.joined(head), f"V{len(head) + len(self.every[0])}")  # all have one length
        return rows[np.frombuffer(self.chosen, np.bool_)].tobytes()
