"""When cuts are taken for those who may have to begin anew: as often as they cost little, and before logs are long.

Invariant: a cut that will take a worker t seconds to write comes PRICE * t seconds or more after the last one, as far
as the last one tells; unless logs have come to their bound and the cut is worth it: they have doubled since.

Why: a cut writes the keys that changed since the one before. Where these are few it costs nothing, and the interval is
the least one. Where each item has a key of its own a cut costs by items, however far apart cuts are: where items come
fast that is always too much, and logs say when; where they come slowly it never is, and little has to be done again
after a death, though the cut behind a rush took long. So the next is taken to cost what the last one did, or as much
for what has been fed since, if that is less. A short run has none. Where no cut can be committed, since the folder of
the run is full, logs would grow with the input: so there is a length at which a run waits, and a number of tries.
"""

from __future__ import annotations

#: No run has a cut before that.
FIRST_S = 1.0
#: Between two cuts, at least.
INTERVAL_S = 0.25
#: Writing is a quarter of what a cut takes of the workers' time, and all of it is to be a twenty-fifth of that.
PRICE = 100
#: Link logs of one process come to so much before a cut is taken for them alone.
LOG_BYTES_MAX = 64 << 20
#: Where there is no room for a cut, link logs of one process come to so much before nothing more is fed.
LOG_BYTES_FULL = 4 * LOG_BYTES_MAX
#: Then so many cuts are tried, an interval apart or more, before the run ends.
TRIES_MAX = 240


class CutPace:
    """See the module.

    Args:
        every_s: between two cuts, whatever they cost, and before the first; None goes by that.
    """

    def __init__(self, every_s: float | None = None) -> None:
        self._every_s = every_s
        self._next_s: float | None = None if every_s is None else -float("inf")
        self._bytes_max = LOG_BYTES_MAX
        self._taken_s = 0.0
        self._fed_bytes = 0  # between the last cut and the one before
        self._cost_s = 0.0  # of the last cut

    def is_due(self, now_s: float, log_bytes: int, fed_bytes: int) -> bool:
        """Whether it is time for a cut, or link logs are so long that there has to be one.

        Args:
            log_bytes: of the process whose logs are the longest.
            fed_bytes: since the last cut.
        """
        if self._next_s is None:
            self._next_s = now_s + FIRST_S
        if log_bytes > self._bytes_max:
            return True
        share = min(fed_bytes / self._fed_bytes, 1.0) if self._fed_bytes else 1.0
        return now_s >= max(self._next_s, self._taken_s + PRICE * self._cost_s * share)

    def begun(self, now_s: float, fed_bytes: int) -> None:
        """A cut is to be taken."""
        self._next_s = now_s + (INTERVAL_S if self._every_s is None else self._every_s)
        self._fed_bytes = fed_bytes

    def taken(self, now_s: float, cost_s: float, log_bytes: int) -> None:
        """All of it has come, or will not.

        Args:
            cost_s: what writing took, of the worker that it took most of.
            log_bytes: that are still kept, since they are above the cut.
        """
        self._bytes_max = max(LOG_BYTES_MAX, 2 * log_bytes)
        self._taken_s, self._cost_s = now_s, cost_s if self._every_s is None else 0.0
