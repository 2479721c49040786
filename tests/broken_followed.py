"""Breakages of rows that several processes have in columns, and of going back with them."""

from __future__ import annotations

from broken import Breakage, one

_FOLLOWED, _STAGE = "drift/machines/followed.py", "drift/machines/keyed.py"
DEATHS, SHARES = ("tests/rows/test_rows_followed.py",), ("tests/rows/test_rows_shares.py",)
_UNSEEN = "its inputs are no rows"

BREAKAGES: list[Breakage] = [
    one(
        "rows are complete below the heartbeats, whatever is in flight",
        "drift/machines/nodes/worker.py",
        "due_below = min(notice.heartbeat, notice.in_flight)",
        "due_below = notice.heartbeat",
        DEATHS,
        _UNSEEN,
    ),
    one(
        "what comes from groupings is complete below what is in flight",
        "drift/machines/plan.py",
        "(stages[name].keeps_owner and len(origins) == 1 and before[0] in found)",
        "True",
        DEATHS,
        _UNSEEN,
    ),
    one(
        "rows at or above a checkpoint are in it",
        _FOLLOWED,
        "below = columns.metas.count_below(bound)",
        "below = len(columns.metas)",
        DEATHS,
        _UNSEEN,
    ),
    one(
        "a checkpoint is as of the last rows that ran again",
        _FOLLOWED,
        "        self._follow(self._behind, checkpoint)\n        return",
        "        return",
        DEATHS,
        _UNSEEN,
    ),
    one(
        "windows that have ended are in a checkpoint",
        _FOLLOWED,
        "        behind.fire({})\n",
        "",
        DEATHS,
        _UNSEEN,
    ),
    one(
        "rows that come again run twice behind",
        _FOLLOWED,
        "        self._waiting.clear()\n        self._waiting_rows = 0\n        self._ahead",
        "        self._ahead",
        DEATHS,
        _UNSEEN,
    ),
    one(
        "a stage that takes over has no windows in arrays",
        _STAGE,
        "            self._in_order.hand_back()\n        keys = list(dict",
        "            pass\n        keys = list(dict",
        DEATHS,
        _UNSEEN,
    ),
    one(
        "a stage that takes over looks keys up again",
        _STAGE,
        "other._unread = self._unread and self._unread.copied()",
        "other._unread = self._unread",
        DEATHS,
        _UNSEEN,
    ),
    one(
        "the worker of a row is that of the first key of its batch",
        "drift/columns/rows.py",
        "np.uint8)[found[0]]",
        "np.uint8)[found[0] * 0]",
        SHARES,
        _UNSEEN,
    ),
]
