"""When to take checkpoints for recovery: often while they are cheap, and before link logs get long.

Invariant: a checkpoint that is expected to take a worker t seconds to write comes PRICE * t seconds or more after the
last one, or PRICE_LIVE * t while the input is live, or PRICE_WITH_TIME * t while workers also keep up with it; unless
link logs have reached their bound and have doubled since the last checkpoint.

Why: a checkpoint writes the keys that changed since the previous one. If these are few, a checkpoint costs almost
nothing, and the interval is the least one. If each item has a new key, the cost grows with the items, however far apart
checkpoints are: with a fast input that is always too much, and the length of the logs decides; with a slow input it
never is, so checkpoints are frequent and little has to be repeated after a death, even if the checkpoint after a burst
took long. Workers that keep up with a live input have time, and users wait for its output during a recovery, which
repeats all since the last checkpoint: then checkpoints may cost more. It is hardly more in all, since where the cost
grows with the items nothing is saved by waiting, and each checkpoint that comes late makes the next one later. So the
next checkpoint is expected to cost as much as the last one or, if that is less, in proportion to what was fed since. A
short run takes no checkpoint. If no checkpoint can be committed because the run's folder is full, logs would grow with
the input: so there is a length at which the run waits, and a maximum number of tries.
"""

from __future__ import annotations

#: No run takes a checkpoint before this.
FIRST_S = 1.0
#: Least time between two checkpoints.
INTERVAL_S = 0.25
#: Writing is a quarter of the workers' time that a checkpoint takes; all of that shall be at most 1/25 of their time.
PRICE = 100
#: Where users wait for the output: a sixth of it; and where workers have time as well, half.
PRICE_LIVE, PRICE_WITH_TIME = 25, 8
#: Bytes in the link logs of one process at which a checkpoint is taken for their sake alone.
LOG_BYTES_MAX = 64 << 20
#: Bytes in the link logs of one process at which feeding stops, if there is no room for a checkpoint.
LOG_BYTES_FULL = 4 * LOG_BYTES_MAX
#: After that so many checkpoints are tried, at least INTERVAL_S apart, before the run ends.
TRIES_MAX = 240


class CheckpointPace:
    """
    Args:
        every_s: fixed seconds between two checkpoints and before the first; None decides by their cost.
    """

    def __init__(self, every_s: float | None = None) -> None:
        self._every_s = every_s
        self._next_s: float | None = None if every_s is None else -float("inf")
        self._bytes_max = LOG_BYTES_MAX
        self._taken_s = 0.0
        self._fed_bytes = 0  # between the last checkpoint and the one before
        self._cost_s = 0.0  # of the last checkpoint

    def is_due(self, now_s: float, log_bytes: int, fed_bytes: int, price: float = PRICE) -> bool:
        """Whether it is time for a checkpoint, or link logs are so long that one is needed.

        Args:
            log_bytes: link logs of the process with the longest ones.
            fed_bytes: since the last checkpoint.
            price: PRICE, PRICE_LIVE or PRICE_WITH_TIME.
        """
        if self._next_s is None:
            self._next_s = now_s + FIRST_S
        if log_bytes > self._bytes_max:
            return True
        share = min(fed_bytes / self._fed_bytes, 1.0) if self._fed_bytes else 1.0
        return now_s >= max(self._next_s, self._taken_s + price * self._cost_s * share)

    def begun(self, now_s: float, fed_bytes: int) -> None:
        """Note that a checkpoint begins."""
        self._next_s = now_s + (INTERVAL_S if self._every_s is None else self._every_s)
        self._fed_bytes = fed_bytes

    def taken(self, now_s: float, cost_s: float, log_bytes: int) -> None:
        """Note that all snapshots of the checkpoint have come, or will not come.

        Args:
            cost_s: the longest time that a worker took to write its snapshot.
            log_bytes: still in the link logs, since they are above the checkpoint.
        """
        self._bytes_max = max(LOG_BYTES_MAX, 2 * log_bytes)
        self._taken_s, self._cost_s = now_s, cost_s if self._every_s is None else 0.0
