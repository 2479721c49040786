"""The machine that gives the items of one source their global times.

Invariant: global times are unique; the heartbeat never goes back and no later item of the source is below it. What
an item's global time is, and whether it is late, depends on the items before it in arrival order (and, for a live
source, on the clock readings and idle decisions that are passed in), never on how they were cut into batches.

Why: lateness is judged item by item against the running maximum; equal items of one event time are told apart by
how many came before, and being equal it does not matter which is which.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC
from heapq import heappop, heappush
from itertools import accumulate, islice, repeat
from operator import lt, sub
from typing import Any, NamedTuple

import xxhash

from drift_graph.canonical import NoCanonicalForm, canonical, canonical_each, hash64, same
from drift_graph.diverted import diverted, diverted_by, is_diverted
from drift_graph.errors import DriftError, InputError, LateItem, PayloadError, StepError
from drift_graph.functions import line_of, name_of, pass_interrupts, safe_text
from drift_graph.meta import (
    BEGINNING,
    END_OF_TIME,
    TIME_MAX,
    TIME_MIN,
    global_time,
    pack_time,
    place_of,
    tie_of,
    time_of,
    varint,
)
from drift_graph.metas import (
    EventMetas,
    Metas,
    NumberedMetas,
    are_looked_up_slowly,
    known_to_increase,
    least_meta,
    metas_from_on,
)
from drift_graph.moments import time_from
from drift_graph.places import Places
from drift_graph.policies import ArrivalTime, EventTime, TimePolicy


class Late(NamedTuple):
    """A diverted item: it had `time` when its source had promised nothing below `heartbeat`."""

    source: str
    payload: Any
    time: int
    heartbeat: int
    reason: str


class Arrived(NamedTuple):
    """What a source hands to the dataflow at once, its promise after it, and what did not go in.

    `error` ends the run, once the items before it, which are all here, are on their way.
    """

    metas: Metas
    payloads: list[Any]
    heartbeat: bytes
    late: list[Late]
    error: Exception | None


_FIRST = varint(0)  # the ordinal of what is the first of its place
_LOOK_ITEMS = 64  # whose least and greatest time are looked at, before each of them is


class Judging(NamedTuple):
    """What judges the items of a source from a place on, but for what came at places; see `SourceMachine.judging`.

    Attributes:
        heartbeat: as of items, where the source has ended.
        stamp_time, stamp_ordinal: of the next item of a live source in arrival time.
    """

    heartbeat: bytes
    items_in: int
    late_items: int
    max_seen: int | None
    promised: int
    stamp_time: int
    stamp_ordinal: int


class Place(NamedTuple):
    """Items of one time and tie.

    Attributes:
        first: their first global time.
        came: how many did.
        payload: the hash of theirs, where a tie function has to tell others from them; or empty.
    """

    first: bytes
    came: int
    payload: bytes


class _Hashed(NamedTuple):
    """In place of a payload that came before this machine was there: its hash, or nothing where that is not known."""

    payload: bytes

    def may_be(self, payload: Any) -> bool:
        return not self.payload or self.payload == _hash_of(payload)


class Remembered(NamedTuple):
    """What a later machine of a source needs, to go on as this one would.

    Attributes:
        ordinals: time, tie, how many came with these, and where the policy has a tie function, the payload.
    """

    heartbeat: bytes
    items_in: int
    late_items: int
    max_seen: int | None
    promised: int
    ordinals: list[tuple[int, int, int, Any]]


class SourceMachine:
    """Gives metas to the items of one source, and counts those that are not settled.

    Args:
        name: the source's, for messages.
        rank: its index among the graph's sources.
        policy: its time policy.
        live: whether arrival is stamped from a clock (`now_ms` of `take` and `tick`) or numbered.
        sets_apart: an item without a time becomes one that says so, at the greatest time before it.
    """

    def __init__(
        self, name: str, rank: int, policy: TimePolicy, *, live: bool = False, sets_apart: bool = False
    ) -> None:
        self.name = name
        self._sets_apart = sets_apart
        self.policy = policy
        self.live = live
        self.heartbeat = BEGINNING
        self._before_end = BEGINNING  # the heartbeat when the input ended
        self.items_in = 0
        self.late_items = 0
        self._rank = rank
        self._stamp = (TIME_MIN, 0)  # live arrival: time and ordinal of the next item at that time
        self._max_seen: int | None = None
        self._promised = TIME_MIN  # event time: nothing below is accepted any more
        self._places = Places()
        self._unsettled = 0
        self._batches = 0
        self._sent: list[tuple[bytes, int, Metas, int]] = []  # a heap: next unsettled meta, number, metas, its index

    @property
    def finished(self) -> bool:
        return self.heartbeat == END_OF_TIME

    def take(self, payloads: list[Any], now_ms: int = 0) -> Arrived:
        """Accept payloads in arrival order."""
        late: list[Late] = []
        error: Exception | None = None
        metas: Metas
        if isinstance(self.policy, EventTime):
            seen_before = self._max_seen
            clock = now_ms if self.live else TIME_MIN
            if self._sets_apart:
                payloads, times = self._all_times(payloads, self.policy, clock)
            else:
                times, error = self._times(payloads, self.policy)
            kept, late, too_late = self._judge(payloads, times, self.policy, clock)
            if kept is not None:
                payloads, times = [payloads[index] for index in kept], [times[index] for index in kept]
            metas, tie_error = self._event_metas(payloads[: len(times)], times, self.policy)
            if tie_error is not None:  # what came after that item counts as not seen, neither its time nor as late
                bad = len(metas) if kept is None else kept[len(metas)]
                late = late[: bad - len(metas)]
                seen = times[: len(metas)] if seen_before is None else [*times[: len(metas)], seen_before]
                self._max_seen = max(seen, default=None)
            payloads = payloads[: len(metas)]
            error = tie_error or too_late or error
            self._promise(self._max_seen, self.policy)
        elif self.live:
            metas = self._stamped_metas(len(payloads), now_ms)
        else:
            metas = NumberedMetas(self.items_in, len(payloads), varint(self._rank) + b"\x00\x00")
            self.heartbeat = pack_time(self.items_in + len(payloads))
        self._count(metas, late)
        return Arrived(metas, payloads, self.heartbeat, late, error)

    def repeat(self, arrived: Arrived) -> None:
        """Take over what was decided before, in a run that is replayed, in place of deciding."""
        self.heartbeat = max(self.heartbeat, arrived.heartbeat)
        self._count(arrived.metas, arrived.late)

    def remembered(self) -> Remembered:
        """What `recall` takes; not for live sources."""
        least = pack_time(self._promised)
        places = sorted(self._places.listed().items())
        ordinals = [(time_of(first), tie_of(first), *known) for first, known in places if first >= least]
        return Remembered(self.heartbeat, self.items_in, self.late_items, self._max_seen, self._promised, ordinals)

    def recall(self, remembered: Remembered) -> None:
        """Go on, before any item, where another machine was."""
        self.heartbeat, self.items_in, self.late_items, self._max_seen, self._promised, ordinals = remembered
        rank = varint(self._rank)
        firsts = EventMetas([time for time, *_ in ordinals], [tie for _, tie, *_ in ordinals], rank, _FIRST)
        self._places = Places({first: (count, payload) for first, (_, _, count, payload) in zip(firsts, ordinals)})

    @property
    def promised(self) -> int:
        """In event time, nothing below is accepted any more."""
        return self._promised

    @property
    def judging(self) -> Judging:
        """What judges the next item; `go_on` takes it, in this form for as long as there are cuts."""
        heartbeat = self._before_end if self.finished else self.heartbeat
        return Judging(heartbeat, self.items_in, self.late_items, self._max_seen, self._promised, *self._stamp)

    def go_on(self, judging: Judging, place: Place | None) -> None:
        """Go on, before any item, where another machine was; of places one at most is of any account."""
        self.heartbeat, self.items_in, self.late_items, self._max_seen, self._promised, *stamp = judging
        self._stamp = stamp[0], stamp[1]
        if place is not None:
            hashed = _Hashed(place.payload) if isinstance(self.policy, EventTime) and self.policy.tie else None
            self._places = Places({place.first: (place.came, hashed)})

    def place_in(self, moment: bytes) -> bytes | None:
        """The place of this source that a time lies in, without ordinal; None where it is between places."""
        rank = varint(self._rank)
        if not isinstance(self.policy, EventTime) or not moment[8:].startswith(rank) or len(moment) <= 8 + len(rank):
            return None
        place = place_of(moment)
        return place if len(place) < len(moment) else None

    def place_before(self, place: bytes, count: int | None) -> Place | None:
        """What a machine knows of a place when so many came there, or all until now; None where nothing did."""
        first = place + varint(0)
        now, payload = self._places.listed().get(first, (0, None))
        count = now if count is None else count
        if not count:
            return None
        if type(payload) is _Hashed:
            return Place(first, count, payload.payload)
        told_apart = isinstance(self.policy, EventTime) and self.policy.tie is not None and now
        return Place(first, count, _hash_of(payload) if told_apart else b"")

    def stamp_at(self, now_ms: int) -> int:
        """The time that items are stamped with that come when the clock says so."""
        return max(now_ms, self._stamp[0])

    def _count(self, metas: Metas, late: list[Late]) -> None:
        self.items_in += len(metas)
        self.late_items += len(late)
        if metas:
            self._batches += 1
            self._unsettled += len(metas)
            heappush(self._sent, (least_meta(metas), self._batches, metas, 0 if known_to_increase(metas) else -1))

    def above_all_seen(self) -> bytes:
        """A promise past every item so far, which a source that ends could have made."""
        if self._max_seen is None or self._max_seen == TIME_MAX:
            return self.heartbeat
        return max(self.heartbeat, pack_time(self._max_seen + 1))

    def finish(self) -> bytes:
        """The input has ended: the last heartbeat, above every time."""
        if not self.finished:
            self._before_end = self.heartbeat
        self.heartbeat = END_OF_TIME
        return self.heartbeat

    def tick(self, now_ms: int) -> bytes:
        """A live source in arrival time has nothing now, and what comes will be stamped `now_ms` or later."""
        if isinstance(self.policy, ArrivalTime) and self.live and now_ms > self._stamp[0] and not self.finished:
            self._stamp = (now_ms, 0)
            self.heartbeat = pack_time(now_ms)
        return self.heartbeat

    def idle(self, others: bytes) -> bytes:
        """The idle policy has decided: promise what was seen, and what the other sources promise at least."""
        if isinstance(self.policy, EventTime) and not self.finished:
            promise = self._promised
            if self._max_seen is not None:
                promise = max(promise, min(self._max_seen + 1, TIME_MAX))
            if len(others) >= 8 and others != END_OF_TIME:
                promise = max(promise, int.from_bytes(others[:8], "big") - 2**63)
            self._promised = promise
            self.heartbeat = max(self.heartbeat, pack_time(promise))
        return self.heartbeat

    def promise(self, time: int) -> bytes:
        """Somebody who knows promises, in event time, that nothing below `time` will come."""
        self._promised = max(self._promised, time)
        self.heartbeat = max(self.heartbeat, pack_time(self._promised))
        return self.heartbeat

    def unsettled(self, minimal_time: bytes) -> int:
        """How many accepted items are at or above minimal time, which must not go back from call to call."""
        sent = self._sent
        while sent and sent[0][0] < minimal_time:
            _, number, metas, settled = heappop(sent)
            if settled < 0:  # not sorted: most often little is left to be
                left = metas_from_on(metas, minimal_time)
                self._unsettled -= len(metas) - len(left)
                if left:
                    heappush(sent, (least_meta(left), number, left, -1 if are_looked_up_slowly(left) else 0))
                continue
            end = bisect_left(metas, minimal_time, settled)
            self._unsettled -= end - settled
            if end < len(metas):
                if 2 * end > len(metas):  # else one far ahead would keep what was settled with it
                    metas, end = metas[end:], 0
                heappush(sent, (metas[end], number, metas, end))
        return self._unsettled

    def _stamped_metas(self, count: int, now_ms: int) -> list[bytes]:
        time, ordinal = self._stamp
        if now_ms > time:
            time, ordinal = now_ms, 0
        head = pack_time(time) + varint(self._rank) + varint(0)
        metas = [head + varint(number) for number in range(ordinal, ordinal + count)]
        self._stamp = (time, ordinal + count)
        self.heartbeat = global_time(time, self._rank, 0, ordinal + count)
        return metas

    def _times(self, payloads: list[Any], policy: EventTime) -> tuple[list[int], Exception | None]:
        """The payloads' times, up to the first that has none."""
        times: list[int] = []
        try:
            times.extend(map(policy.time, payloads))
            if len(times) != len(payloads):  # it raised StopIteration, which is taken for the end
                policy.time(payloads[len(times)])
        except BaseException as error:
            pass_interrupts(error)
            if isinstance(error, DriftError) and error.ends_the_run:
                raise
            bad = payloads[len(times)]
            where = line_of(policy.time) or name_of(policy.time)
            return times, StepError(
                f"the time function of source {self.name!r} ({where}) raised {_said(error)}; "
                f"payload {_short(bad)}{self._nth(len(times))}",
                step=self.name,
                where=where,
            )
        if set(map(type, times)) <= {int} and (not times or TIME_MIN <= min(times) <= max(times) <= TIME_MAX):
            return times, None
        whole: list[int] = []
        for index, time in enumerate(times):
            number = policy.time_of(time)
            if number is None:
                return whole, InputError(
                    f"the time function of source {self.name!r} gave {time!r} for payload {_short(payloads[index])}; "
                    f"a time is an int of 64 bits, or a moment with a zone: {_how_to_time(time)}"
                )
            whole.append(number)
        return whole, None

    def _all_times(self, payloads: list[Any], policy: EventTime, clock: int) -> tuple[list[Any], list[int]]:
        """The payloads, with those set apart that have no time, and the times of all of them."""
        taken: list[Any] = []
        times: list[int] = []
        seen = self._max_seen
        for payload in payloads:
            time: Any = None
            if not is_diverted(payload):
                try:
                    time = policy.time(payload)
                except Exception as error:
                    payload = diverted_by(self.name, error, payload)
                else:
                    given, time = time, policy.time_of(time)
                    if time is None:
                        text = f"its time is {_short(given)}, and no int of 64 bits, nor a moment with a zone"
                        payload = diverted(self.name, text, payload)
            if time is None:
                time = max(TIME_MIN if seen is None else seen, self._promised)
            if not _is_ahead(time, seen, clock, policy.future_max):
                seen = time if seen is None else max(seen, time)
            taken.append(payload)
            times.append(time)
        return taken, times

    def _nth(self, index: int) -> str:
        return f", item {self.items_in + self.late_items + index} of the source"

    def _judge(
        self, payloads: list[Any], times: list[int], policy: EventTime, clock: int
    ) -> tuple[list[int] | None, list[Late], Exception | None]:
        """Indices of the items to take, where not all are; the late ones; and the late one that ends the run."""
        if not times:
            return None, [], None
        if policy.future_max is not None and self._some_ahead(times, clock, policy.future_max):
            return self._judge_ahead(payloads, times, policy, clock, policy.future_max)
        if self._max_seen is None:
            self._max_seen = times[0]
        seen_before = self._max_seen
        self._max_seen = max(seen_before, max(times))
        if min(times) >= self._promised and _none_behind(times, seen_before, policy.lateness):
            return None, [], None
        seen_befores = list(islice(accumulate(times, max, initial=seen_before), len(times)))
        heartbeats = [max(seen - policy.lateness, self._promised) for seen in seen_befores]
        is_late = list(map(lt, times, heartbeats))
        late = [
            Late(self.name, payload, time, heartbeat, f"{heartbeat - time} behind the heartbeat")
            for payload, time, heartbeat, yes in zip(payloads, times, heartbeats, is_late)
            if yes
        ]
        if late and policy.late == "error":
            first = is_late.index(True)
            _, payload, time, heartbeat, _ = late[0]
            self._max_seen = max(seen_before, max(times[:first], default=seen_before))
            behind = policy.lateness + heartbeat - time
            return (
                list(range(first)),
                [],
                LateItem(
                    f"source {self.name!r} got an item at {time} after promising nothing below {heartbeat}; payload "
                    f"{_short(payload)}; set lateness to {behind} or more, or pass late='divert' to keep such items"
                ),
            )
        return [index for index, yes in enumerate(is_late) if not yes], late, None

    def _some_ahead(self, times: list[int], clock: int, future_max: int) -> bool:
        """Whether an item may be too far ahead: a glance, that looks closer only where one may be."""
        known = clock if self._max_seen is None else max(clock, self._max_seen)
        if known == TIME_MIN:
            known = times[0]
        return max(times) > known + future_max

    def _judge_ahead(
        self, payloads: list[Any], times: list[int], policy: EventTime, clock: int, future_max: int
    ) -> tuple[list[int] | None, list[Late], Exception | None]:
        """`_judge`, where some items may be too far ahead: those are out before it is asked who is behind."""
        seen = self._max_seen
        ahead: dict[int, int] = {}  # by index what it may not be above
        for at, time in enumerate(times):
            if _is_ahead(time, seen, clock, future_max):
                ahead[at] = max(clock, TIME_MIN if seen is None else seen) + future_max
                if policy.late == "error":
                    break
            else:
                seen = time if seen is None else max(seen, time)
        if not ahead:
            return self._judge(payloads, times, replace(policy, future_max=None), clock)
        rest = [at for at in range(min(ahead) if policy.late == "error" else len(times)) if at not in ahead]
        kept, late, error = self._judge(
            [payloads[at] for at in rest], [times[at] for at in rest], replace(policy, future_max=None), clock
        )
        taken = rest if kept is None else [rest[at] for at in kept]
        if policy.late == "error":
            at, most = next(iter(ahead.items()))
            return (
                taken,
                late,
                error
                or LateItem(
                    f"source {self.name!r} got an item at {times[at]}, {times[at] - most} beyond what future_max="
                    f"{future_max} allows; payload {_short(payloads[at])}; raise it, or pass late='divert'"
                ),
            )
        left, behind = set(taken), iter(late)
        apart: list[Late] = []
        for at in range(len(times)):
            if at in ahead:
                by = times[at] - ahead[at]
                reason = f"{by} beyond what future_max allows"
                apart.append(Late(self.name, payloads[at], times[at], ahead[at], reason))
            elif at not in left:
                apart.append(next(behind))
        return taken, apart, None

    def _event_metas(
        self, payloads: list[Any], times: list[int], policy: EventTime
    ) -> tuple[Metas, Exception | None]:
        """Global times in event time, up to the first payload that cannot have one."""
        error: Exception | None = None
        ties: Sequence[int]
        if policy.tie is None:
            try:
                ties = list(map(xxhash.xxh64_intdigest, canonical_each(payloads)))
            except NoCanonicalForm as none:
                ties, error = self._ties_one_by_one(payloads, hash64)
                error = error or none
        else:
            ties, error = self._ties_of(payloads, policy.tie)
        every = EventMetas(times[: len(ties)], ties, varint(self._rank), _FIRST)
        if self._places.are_new(every, payloads if policy.tie is not None else None):
            return every, error
        told_apart = payloads if policy.tie is not None else repeat(None)
        firsts = every.listed()
        metas: list[bytes] = []
        ordinals = self._places.listed()
        for first_meta, payload in zip(firsts, told_apart):
            ordinal, first = ordinals.get(first_meta, (0, payload))
            if type(first) is _Hashed:
                first, agrees = payload, first.may_be(payload)
            else:
                agrees = same(first, payload)
            if not agrees:
                return metas, InputError(
                    f"the tie function of source {self.name!r} gave one value for two different payloads at time "
                    f"{time_of(first_meta)}: {_short(first)} and {_short(payload)}; make it unique, or leave tie out"
                )
            ordinals[first_meta] = ordinal + 1, first
            metas.append(first_meta[:-1] + varint(ordinal))
        return metas, error

    def _ties_of(self, payloads: list[Any], tie: Callable[[Any], Any]) -> tuple[list[int], Exception | None]:
        """The user's ties, up to the first payload that has none."""
        if not self._sets_apart:
            try:
                ties = list(map(tie, payloads))
                if set(map(type, ties)) == {int} and len(ties) == len(payloads) and 0 <= min(ties) <= max(ties) < 2**64:
                    return ties, None
            except BaseException as error:  # met again, and told with its payload
                pass_interrupts(error)
        return self._ties_one_by_one(payloads, tie)

    def _ties_one_by_one(self, payloads: list[Any], tie: Callable[[Any], Any]) -> tuple[list[int], Exception | None]:
        ties: list[int] = []
        for payload in payloads:
            try:
                value = payload if self._sets_apart and is_diverted(payload) else tie(payload)
                ties.append(value if type(value) is int and 0 <= value < 2**64 else hash64(value))
            except NoCanonicalForm as none:
                return ties, PayloadError(
                    f"source {self.name!r}: {none}; or give the time policy a tie function", step=self.name
                )
            except BaseException as error:
                pass_interrupts(error)
                if isinstance(error, DriftError) and error.ends_the_run:
                    raise
                where = line_of(tie) or name_of(tie)
                return ties, StepError(
                    f"the tie function of source {self.name!r} ({where}) raised {_said(error)}; "
                    f"payload {_short(payload)}",
                    step=self.name,
                    where=where,
                )
        return ties, None

    def _promise(self, seen: int | None, policy: EventTime) -> None:
        if seen is None:
            return
        self._promised = max(self._promised, seen - policy.lateness, TIME_MIN)
        self.heartbeat = max(self.heartbeat, pack_time(self._promised))
        self._places.settle(self._promised)


def _hash_of(payload: Any) -> bytes:
    """Of a payload's canonical bytes; empty where it has none."""
    try:
        return xxhash.xxh3_128_digest(canonical(payload))
    except NoCanonicalForm:
        return b""


def _is_ahead(time: int, seen: int | None, clock: int, future_max: int | None) -> bool:
    """Whether an item is too far ahead of the greatest time before it, and of the clock; the first of all is not."""
    if future_max is None or (seen is None and clock == TIME_MIN):
        return False
    return time > max(clock, TIME_MIN if seen is None else seen) + future_max


def _none_behind(times: list[int], seen: int, lateness: int) -> bool:
    """Whether no time is further than `lateness` behind the greatest before it, of which the first is `seen`."""
    for start in range(0, len(times), _LOOK_ITEMS):
        some = times[start : start + _LOOK_ITEMS]
        before, seen = seen, max(seen, max(some))
        if min(some) < seen - lateness and max(map(sub, accumulate(some, max, initial=before), some)) > lateness:
            return False
    return True


def _how_to_time(time: Any) -> str:
    if time_from(time, UTC) is not None:
        return "this one has no zone; name it, EventTime(..., zone='Europe/Berlin'), or give it one in the function"
    if isinstance(time, str):
        return "this is text, which int(...) or the source's convert= makes a number"
    if hasattr(time, "timestamp"):
        return "by custom milliseconds, int(moment.timestamp() * 1000)"
    if time is None:
        return "give every item a time, or filter such items out before they come here"
    if isinstance(time, bool) or type(time).__name__ in ("bool", "bool_"):
        return "this is a yes or no, which says of no item when it was"
    if hasattr(type(time), "__index__"):
        return f"this is beyond {TIME_MIN} to {TIME_MAX}; choose a coarser unit"
    return "choose a unit in which it is whole, and round"


def _short(payload: Any) -> str:
    return safe_text(repr, payload, 200)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {safe_text(str, error, 500)}"
