"""Which items of a source in event time are late, and which are too far ahead.

Invariant: whether an item is late depends on the items before it in arrival order (and, for a live source, on the clock
readings and idle decisions passed in), never on how they were cut into batches.

Why: each item is judged against the greatest time before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, islice
from operator import sub
from typing import Any, NamedTuple

from drift_graph.diverted import LATE, diverted
from drift_graph.errors import LateItem
from drift_graph.functions import safe_text
from drift_graph.meta import TIME_MAX, TIME_MIN
from drift_graph.payloads import Rows, Timed, in_order
from drift_graph.policies import EventTime

_CHUNK_ITEMS = 64  # the least and greatest time of a chunk are compared first, and single items only if necessary


class Late(NamedTuple):
    """A diverted item: it had `time` below the `heartbeat` of its source."""

    source: str
    payload: Any
    time: int
    heartbeat: int
    reason: str


class Lateness:
    """Judges the times of a source.

    Attributes:
        greatest: greatest time so far; None before the first item.
        least: least time that is accepted, which is the heartbeat.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.greatest: int | None = None
        self.least = TIME_MIN

    @property
    def known(self) -> tuple[int | None, int]:
        """Greatest and least, for another machine that continues."""
        return self.greatest, self.least

    @known.setter
    def known(self, known: tuple[int | None, int]) -> None:
        self.greatest, self.least = known

    def past_all(self) -> int | None:
        """The time past every item so far, at most TIME_MAX; None before the first item."""
        return None if self.greatest is None else min(self.greatest + 1, TIME_MAX)

    def follow(self, lateness: int) -> None:
        """Move the heartbeat to `lateness` below the greatest time, if that is above it."""
        self.least = self.least_behind(lateness)

    def least_behind(self, lateness: int) -> int:
        """The heartbeat that `follow` would set."""
        return self.least if self.greatest is None else max(self.least, self.greatest - lateness, TIME_MIN)

    def judge_rows(
        self, rows: Rows, timed: Timed, policy: EventTime, clock: int
    ) -> tuple[Timed | None, Rows, list[Late], LateItem | None] | None:
        """As `judge`, for rows; None, and nothing has changed, where it is not sure which of them are accepted.

        Returns:
            The times of the accepted rows, None if there are none; these rows, the late ones, and the late one that
            ends the run.
        """
        if policy.future_max is not None and self._some_ahead(timed.first, timed.greatest, clock, policy.future_max):
            return None
        before = timed.first if self.greatest is None else self.greatest
        behind = timed.behind(before, self.least, policy.lateness)
        if behind is None:
            return None
        late, error = self._refused(rows, behind, policy)
        accepted: Timed | None = timed
        if behind:
            wanted = bytearray(b"\1" * len(rows))
            for at, _, _ in behind:
                wanted[at] = 0
            if error is not None:
                first = behind[0][0]
                wanted[first:] = bytes(len(rows) - first)
            rows = rows.chosen(wanted)
            accepted = timed.chosen(wanted, rows)
        self.greatest = before if accepted is None else max(before, accepted.greatest)
        return accepted, rows, late, error

    def judge(
        self, payloads: list[Any], times: list[int], policy: EventTime, clock: int
    ) -> tuple[list[int] | None, list[Late], Exception | None]:
        """Indices of the accepted items (None if all are), the late items, and the late item that ends the run."""
        if not times:
            return None, [], None
        if policy.future_max is not None and self._some_ahead(times[0], max(times), clock, policy.future_max):
            return self._judge_ahead(payloads, times, policy, clock, policy.future_max)
        if self.greatest is None:
            self.greatest = times[0]
        before = self.greatest
        within = _least_and_greatest(times, before, policy.lateness)
        if within is not None and within[0] >= self.least:
            self.greatest = within[1]
            return None, [], None
        self.greatest = max(before, max(times))
        befores = list(islice(accumulate(times, max, initial=before), len(times)))
        heartbeats = [max(greatest - policy.lateness, self.least) for greatest in befores]
        each = enumerate(zip(times, heartbeats))
        behind = [(at, time, heartbeat) for at, (time, heartbeat) in each if time < heartbeat]
        late, error = self._refused(payloads, behind, policy)
        if error is not None:
            first = behind[0][0]
            self.greatest = max(before, max(times[:first], default=before))
            return list(range(first)), [], error
        refused = {at for at, _, _ in behind}
        return [index for index in range(len(times)) if index not in refused], late, None

    def _refused(
        self, payloads: Any, behind: Sequence[tuple[int, int, int]], policy: EventTime
    ) -> tuple[list[Late], LateItem | None]:
        """The late items, or the first of them as an error.

        Args:
            behind: of the late ones the indices, the times, and the heartbeats that they are behind.
        """
        if behind and policy.late == "error":
            first, time, heartbeat = behind[0]
            return [], LateItem(
                f"source {self.source!r} got an item at {time} below its heartbeat {heartbeat}; payload "
                f"{short(payloads[first])}; set lateness to {policy.lateness + heartbeat - time} or more, or pass "
                f"late='divert' to keep such items"
            )
        late = in_order(payloads, [at for at, _, _ in behind]) if behind else ()
        return [
            Late(self.source, payload, time, heartbeat, f"{heartbeat - time} behind the heartbeat")
            for payload, (_, time, heartbeat) in zip(late, behind)
        ], None

    def set_apart(
        self, payloads: list[Any], times: list[int], policy: EventTime, clock: int
    ) -> tuple[list[Any], list[int]]:
        """The items, with those that are late or too far ahead as diverted items, at the time where they came.

        Args:
            times: of the first payloads; for the others there are none.
        """
        if not times:
            return payloads, times
        greatest, lateness = self.greatest, policy.lateness
        if policy.future_max is None:
            within = _least_and_greatest(times, times[0] if greatest is None else greatest, lateness)
            if within is not None and within[0] >= self.least:
                return payloads, times
        taken: list[Any] = []
        moved: list[int] = []
        for payload, time in zip(payloads, times):
            heartbeat = self.least if greatest is None else max(self.least, greatest - lateness)
            if policy.future_max is not None and is_ahead(time, greatest, clock, policy.future_max):
                limit = max(clock, TIME_MIN if greatest is None else greatest) + policy.future_max
                why = f"its time {time} is {time - limit} beyond what future_max allows"
                taken.append(diverted(self.source, why, payload, LATE))
                moved.append(heartbeat)
            elif time < heartbeat:
                why = f"its time {time} is {heartbeat - time} behind the heartbeat {heartbeat}"
                taken.append(diverted(self.source, why, payload, LATE))
                moved.append(heartbeat)
            else:
                greatest = time if greatest is None else max(greatest, time)
                taken.append(payload)
                moved.append(time)
        return [*taken, *payloads[len(times) :]], moved

    def _some_ahead(self, first: int, greatest: int, clock: int, future_max: int) -> bool:
        """Whether an item may be too far ahead, by the first and the greatest time; exact only if it says no."""
        known = clock if self.greatest is None else max(clock, self.greatest)
        if known == TIME_MIN:
            known = first
        return greatest > known + future_max

    def _judge_ahead(
        self, payloads: list[Any], times: list[int], policy: EventTime, clock: int, future_max: int
    ) -> tuple[list[int] | None, list[Late], Exception | None]:
        """Like `judge`, if some items may be too far ahead: these are excluded before the others are judged."""
        greatest = self.greatest
        ahead: dict[int, int] = {}  # by index, the limit for its time
        for at, time in enumerate(times):
            if is_ahead(time, greatest, clock, future_max):
                ahead[at] = max(clock, TIME_MIN if greatest is None else greatest) + future_max
                if policy.late == "error":
                    break
            else:
                greatest = time if greatest is None else max(greatest, time)
        if not ahead:
            return self.judge(payloads, times, replace(policy, future_max=None), clock)
        rest = [at for at in range(min(ahead) if policy.late == "error" else len(times)) if at not in ahead]
        accepted, late, error = self.judge(
            [payloads[at] for at in rest], [times[at] for at in rest], replace(policy, future_max=None), clock
        )
        taken = rest if accepted is None else [rest[at] for at in accepted]
        if policy.late == "error":
            at, most = next(iter(ahead.items()))
            return (
                taken,
                late,
                error
                or LateItem(
                    f"source {self.source!r} got an item at {times[at]}, {times[at] - most} beyond what future_max="
                    f"{future_max} allows; payload {short(payloads[at])}; raise it, or pass late='divert'"
                ),
            )
        accepted_ones, behind = set(taken), iter(late)
        late_ones: list[Late] = []
        for at in range(len(times)):
            if at in ahead:
                by = times[at] - ahead[at]
                reason = f"{by} beyond what future_max allows"
                late_ones.append(Late(self.source, payloads[at], times[at], ahead[at], reason))
            elif at not in accepted_ones:
                late_ones.append(next(behind))
        return taken, late_ones, None


def is_ahead(time: int, greatest: int | None, clock: int, future_max: int | None) -> bool:
    """Whether an item is too far ahead of the greatest time before it and of the clock; never where neither is known.

    An item that is diverted at the least of all times, since it has none and is the first, is no time to go by.
    """
    known = max(clock, TIME_MIN if greatest is None else greatest)
    return future_max is not None and known != TIME_MIN and time > known + future_max


def _least_and_greatest(times: list[int], greatest: int, lateness: int) -> tuple[int, int] | None:
    """The least of the times, and the greatest of these and `greatest`; None if one is late by more than `lateness`."""
    least = TIME_MAX
    for start in range(0, len(times), _CHUNK_ITEMS):
        some = times[start : start + _CHUNK_ITEMS]
        low, before, greatest = min(some), greatest, max(greatest, max(some))
        if low < greatest - lateness and max(map(sub, accumulate(some, max, initial=before), some)) > lateness:
            return None
        if low < least:
            least = low
    return least, greatest


def short(payload: Any) -> str:
    """The text of a payload, for messages."""
    return safe_text(repr, payload, 200)
