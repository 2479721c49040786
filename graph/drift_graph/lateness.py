"""Which items of a source in event time are late, and which are set apart by `future_max`.

Invariant: whether an item is late or set apart depends on the items of its source, in arrival order, alone (and, for
lateness, on the idle decisions passed in): never on a clock, and never on how the items were cut into batches.

Why: each item is judged against the greatest time before it; and one that is ahead of that by more than `future_max`
is held, with its place in the count of items, until enough of the items behind it have been seen.

The rule of `future_max`, for the items of one source. The first item, and each that is more than `future_max` above
the greatest time so far, is *held*. Held items whose times lie near each other, one to the next, are a *group*; near is
within `future_max`, or within `lateness` if that is more, as it is what lies between items in any case.

- A group of `AGREEING` items is believed: they are accepted in the order in which they came. So is a smaller group of
  two or more below a group that is believed.
- A held item is set apart if an item that is accepted after it came is further below it than that, so that it would be
  late if the held one were believed; and one that is alone, below a group that is believed.
- If a held item has seen `WAIT_ITEMS` further items, or the input ends, the largest group of two or more is believed,
  the lowest if several are as large; if there is none, the oldest held item is set apart. At the end of an input of
  which nothing was believed, the lowest is believed, though it is alone.
- When the greatest time has come within `future_max` of a held item, the item is accepted.

A late item that is behind the heartbeat by no more than `allowed` of the policy is *belated*: it is accepted at the
heartbeat. So what is accepted is never below the heartbeat, whatever its own time is.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import sub
from typing import Any, NamedTuple

from drift_graph.diverted import LATE, diverted
from drift_graph.errors import LateItem
from drift_graph.functions import safe_text
from drift_graph.meta import TIME_MAX, TIME_MIN
from drift_graph.metas import Integers
from drift_graph.payloads import Mixed, Rows, in_order
from drift_graph.policies import EventTime
from drift_kernel import kernel

#: So many held items near each other are believed.
AGREEING = 4
#: So many further items are seen before a held item is decided by what there is.
WAIT_ITEMS = 8


class Late(NamedTuple):
    """A diverted item: it had `time` when the heartbeat of its source was `heartbeat`."""

    source: str
    payload: Any
    time: int
    heartbeat: int
    reason: str


class Held(NamedTuple):
    """An item that is neither accepted nor set apart yet.

    Attributes:
        seen: how many items of its source had come before it, since any was held.
    """

    seen: int
    time: int
    payload: Any


class Judged:
    """What is decided about items.

    Attributes:
        payloads, times: of the accepted ones; the time of a belated one is the heartbeat at its place.
        late: the late ones, and those that are set apart.
        accepted_before: of each of these, how many were accepted before it.
        error: the late one that ends the run; nothing behind it is decided.
    """

    __slots__ = ("payloads", "times", "late", "accepted_before", "error")

    def __init__(self, payloads: Any, times: Integers) -> None:
        self.payloads, self.times = payloads, times
        self.late: list[Late] = []
        self.accepted_before: list[int] = []
        self.error: LateItem | None = None


class Lateness:
    """Judges the times of a source.

    Args:
        apart: whether a late item becomes a diverted item, at the heartbeat that it is behind.

    Attributes:
        greatest: greatest accepted time so far; None before the first item.
        least: least time that is accepted, which is the heartbeat.
        held: the items that are held by `future_max`, in the order in which they came.
        seen: how many items have come since the first of these.
        late_apart: how many late items became diverted ones.
    """

    def __init__(self, source: str, *, apart: bool = False) -> None:
        self.source = source
        self._apart = apart
        self.late_apart = 0
        self.greatest: int | None = None
        self.least = TIME_MIN
        self.held: list[Held] = []
        self.seen = 0

    @property
    def known(self) -> tuple[int | None, int]:
        """Greatest and least, for another machine that continues."""
        return self.greatest, self.least

    @known.setter
    def known(self, known: tuple[int | None, int]) -> None:
        self.greatest, self.least = known

    def past_all(self) -> int | None:
        """The time past every accepted item so far, at most TIME_MAX; None before the first."""
        return None if self.greatest is None else min(self.greatest + 1, TIME_MAX)

    def follow(self, lateness: int) -> None:
        """Move the heartbeat to `lateness` below the greatest time, if that is above it."""
        self.least = self.least_behind(lateness)

    def least_behind(self, lateness: int) -> int:
        """The heartbeat that `follow` would set."""
        return self.least if self.greatest is None else max(self.least, self.greatest - lateness, TIME_MIN)

    def judge_rows(
        self, rows: Rows, times: Integers, policy: EventTime
    ) -> tuple[Rows, Integers, list[int] | None, list[Late], LateItem | None] | None:
        """As `judge`, for rows; None, and nothing has changed, where it is not sure which of them are accepted.

        Returns:
            The accepted rows, with the late ones among them that are diverted, and their times; the indices of the rows
            that are not late, None if all are; the late ones that are not diverted, and the one that ends the run.
        """
        if policy.future_max is not None and not self._all_in_line(times, policy.future_max):
            return None
        before = self._above(times[0])
        behind, times, greatest = self._behind(times, policy)
        if not behind:
            self.greatest = greatest
            return rows, times, None, [], None
        judged = Judged([], array("q"))
        late_payloads = in_order(rows, [at for at, _, _ in behind])
        for (_, time, heartbeat), payload in zip(behind, late_payloads):
            self._refuse_late(judged, payload, time, heartbeat, policy)
            if judged.error is not None:
                break
        if judged.error is not None:
            accepted = list(range(behind[0][0]))
        else:
            refused = {at for at, _, _ in behind}
            accepted = [at for at in range(len(times)) if at not in refused]
        good = in_order(rows, accepted)
        if self._apart:
            times, flags = array("q", times), bytearray(b"\1") * len(times)
            for at, _, heartbeat in behind:
                times[at], flags[at] = heartbeat, 0
            good = Mixed([judged.payloads, good], bytes(flags))
        else:
            times = array("q", map(times.__getitem__, accepted))
        self.greatest = max(before, max(times, default=before))
        return good, times, accepted, judged.late, judged.error

    def _behind(self, times: Integers, policy: EventTime) -> tuple[list[tuple[int, int, int]], Integers, int]:
        """See `late_of`, of which the belated are left out; and the times, those of the belated the heartbeat."""
        behind, greatest = late_of(times, self._above(times[0]), self.least, policy.lateness)
        if not behind or not policy.allowed:
            return behind, times, greatest
        moved = array("q", times)
        for at, time, heartbeat in behind:
            if heartbeat - time <= policy.allowed:
                moved[at] = heartbeat
        late = [each for each in behind if each[2] - each[1] > policy.allowed]
        return late, moved, max(greatest, max(moved))

    def judge(self, payloads: list[Any], times: Sequence[int | None], policy: EventTime) -> Judged:
        """Decide about items, and about items that are held.

        Args:
            times: of the first payloads; the others are not judged. None for a diverted item, which has no time: it is
                accepted at the greatest time before it.
        """
        if times and (type(times) is array or None not in times):
            known: Integers = times if type(times) is array else array("q", times)
            if policy.future_max is None or self._all_in_line(known, policy.future_max):
                behind, known, greatest = self._behind(known, policy)
                if not behind:
                    self.greatest = greatest
                    return Judged(payloads if len(payloads) == len(known) else payloads[: len(known)], known)
        judged = Judged([], array("q"))
        for payload, time in zip(payloads, times):
            if judged.error is not None:
                break
            self._one(judged, payload, time, policy)
        return judged

    def settle(self, policy: EventTime) -> Judged:
        """Decide about the items that are held, since the input has ended."""
        judged = Judged([], array("q"))
        while self.held and judged.error is None:
            self._resolve(judged, policy, at_end=True)
        return judged

    def _above(self, time: int) -> int:
        return time if self.greatest is None else self.greatest

    def _all_in_line(self, times: Integers, future_max: int) -> bool:
        """Whether no item is held, and none of these would be for long; exact only if it says yes."""
        if self.held:
            return False
        greatest = self._base
        if greatest is None:
            return len(times) >= AGREEING and max(times) - min(times) <= future_max
        if max(times) <= greatest + future_max:
            return True
        return int(max(map(sub, times, accumulate(times, max, initial=greatest)))) <= future_max

    @property
    def _base(self) -> int | None:
        """The greatest time of an item that has a time.

        A diverted item is put at the least of all times if it is the first, which is no time to go by.
        """
        return None if self.greatest == TIME_MIN else self.greatest

    def _one(self, judged: Judged, payload: Any, time: int | None, policy: EventTime) -> None:
        """Judge the next item."""
        base, future_max = self._base, policy.future_max
        if self.held:
            self.seen += 1
        if time is None:
            self._add(judged, payload, max(TIME_MIN if self.greatest is None else self.greatest, self.least))
        elif future_max is None or (base is not None and time <= base + future_max):
            self._accept(judged, Held(self.seen, time, payload), policy)
        else:
            if not self.held:
                self.seen = 0
            item = Held(self.seen, time, payload)
            self.held.append(item)
            group = next(group for group in self._groups(policy) if item in group)
            if len(group) >= AGREEING:
                self._believe(judged, group, policy)
        while self.held and self.seen - self.held[0].seen >= WAIT_ITEMS and judged.error is None:
            self._resolve(judged, policy, at_end=False)

    def _groups(self, policy: EventTime) -> list[list[Held]]:
        """The held items by time, cut where two are not near each other."""
        near = _near(policy)
        groups: list[list[Held]] = []
        for item in sorted(self.held, key=lambda item: (item.time, item.seen)):
            if groups and item.time - groups[-1][-1].time <= near:
                groups[-1].append(item)
            else:
                groups.append([item])
        return groups

    def _resolve(self, judged: Judged, policy: EventTime, *, at_end: bool) -> None:
        """Decide about some of the held items, by those that there are."""
        largest = max(self._groups(policy), key=len)
        if len(largest) > 1 or (at_end and self._base is None):
            self._believe(judged, largest, policy)
        else:
            self._set_apart(judged, [self.held[0]], policy)

    def _believe(self, judged: Judged, group: list[Held], policy: EventTime) -> None:
        """Accept the items of a group, and those below that are not alone; others below are set apart."""
        low = group[0].time
        below = [each for each in self._groups(policy) if each[0].time < low]
        alone = [each[0] for each in below if len(each) == 1]
        accepted = sorted([*group, *(item for each in below if len(each) > 1 for item in each)])
        self._set_apart(judged, sorted(alone), policy, low)
        self.held = [item for item in self.held if item not in accepted]
        for item in accepted:
            self._accept(judged, item, policy)

    def _accept(self, judged: Judged, item: Held, policy: EventTime) -> None:
        """Judge whether an item that is not held is late; accept it, and decide about those that are held above it."""
        if judged.error is not None:
            return
        seen, time, payload = item
        heartbeat = self.least if self.greatest is None else max(self.least, self.greatest - policy.lateness)
        if time < heartbeat:
            if heartbeat - time <= policy.allowed:
                self._add(judged, payload, heartbeat)
            else:
                self._refuse_late(judged, payload, time, heartbeat, policy)
            return
        if policy.future_max is not None and self.held:
            reach = time + _near(policy)
            above = [each for each in self.held if each.seen < seen and each.time > reach]
            if not self._set_apart(judged, above, policy):
                return
        greatest = self._add(judged, payload, time)
        if policy.future_max is not None and self.held:
            limit = greatest + policy.future_max
            near = next((each for each in self.held if each.time <= limit), None)
            if near is not None:
                self.held.remove(near)
                self._accept(judged, near, policy)

    def _add(self, judged: Judged, payload: Any, time: int) -> int:
        """Add an item at a time, which the greatest time is then not below; returns that one.

        An idle decision may have moved the heartbeat above the greatest time, so an item that is put at the heartbeat
        can be above it.
        """
        judged.payloads.append(payload)
        judged.times.append(time)
        self.greatest = max(self._above(time), time)
        return self.greatest

    def _set_apart(self, judged: Judged, items: Iterable[Held], policy: EventTime, low: int | None = None) -> bool:
        """Refuse items that are held.

        Args:
            low: the least time of the group that is believed, if they are below it.

        Returns:
            Whether the run goes on.
        """
        base, future_max = self._base, policy.future_max
        assert future_max is not None
        for item in items:
            self.held.remove(item)
            if base is not None and item.time > base + future_max:
                why = f"{item.time - base - future_max} beyond what future_max"
            elif low is not None:
                why = f"{low - item.time - _near(policy)} further before the items behind it than future_max"
            else:
                why = "further from the items behind it than future_max"
            heartbeat = self.least_behind(policy.lateness)
            if policy.late == "error" and not self._apart:
                judged.error = LateItem(
                    f"source {self.source!r} got an item at {item.time}, {why}={future_max} allows; payload "
                    f"{short(item.payload)}; raise it, or pass late='divert'"
                )
                return False
            words = f"its time {item.time} is {why} allows"
            self._refuse(judged, item.payload, item.time, heartbeat, f"{why} allows", words)
        return True

    def _refuse_late(self, judged: Judged, payload: Any, time: int, heartbeat: int, policy: EventTime) -> None:
        by = heartbeat - time
        if policy.late == "error" and not self._apart:
            judged.error = LateItem(
                f"source {self.source!r} got an item at {time} below its heartbeat {heartbeat}; payload "
                f"{short(payload)}; set lateness to {policy.lateness + by} or more, {allow(policy, by)}or pass "
                f"late='divert' to keep such items"
            )
        else:
            words = f"its time {time} is {by} behind the heartbeat {heartbeat}"
            self._refuse(judged, payload, time, heartbeat, f"{by} behind the heartbeat", words)

    def _refuse(self, judged: Judged, payload: Any, time: int, heartbeat: int, reason: str, words: str) -> None:
        if self._apart:
            self.late_apart += 1
            self._add(judged, diverted(self.source, words, payload, LATE), heartbeat)
        else:
            judged.late.append(Late(self.source, payload, time, heartbeat, reason))
            judged.accepted_before.append(len(judged.payloads))


def _near(policy: EventTime) -> int:
    """How far two items that agree may be apart."""
    assert policy.future_max is not None
    return max(policy.future_max, policy.lateness)


def allow(policy: EventTime, by: int) -> str:
    """What to set `allowed` to for an item that is behind the heartbeat by so much; "" where it is not used."""
    return f"allowed to {by} or more, " if policy.allowed else ""


def _late_of(times: Integers, greatest: int, least: int, lateness: int) -> tuple[list[tuple[int, int, int]], int]:
    """The late ones of some times.

    Args:
        times: in a buffer, of 64 bits.
        greatest: the greatest time before them, or the first of them.
        least: the least time that is accepted.
        lateness: how far one may be behind the greatest time before it.

    Returns:
        Of each late one the index, the time and the heartbeat that it is behind; and the greatest time, late or not.
    """
    found: list[tuple[int, int, int]] = []
    for at, time in enumerate(times):
        heartbeat = max(greatest - lateness, least)
        if time < heartbeat:
            found.append((at, time, heartbeat))
        greatest = max(greatest, time)
    return found, greatest


late_of = _late_of if kernel is None else kernel.late_of


def short(payload: Any) -> str:
    """The text of a payload, for messages."""
    return safe_text(repr, payload, 200)
