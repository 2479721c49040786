"""The machine that gives the items of one source their global times.

Invariant: global times are unique; the heartbeat never decreases, and no later item of the source is below it. An
item's global time, and whether it is late, depend on the items of the source in arrival order (and, for a live source,
on the clock readings and idle decisions passed in), never on how they were cut into batches.

Why: lateness is judged item by item against the running maximum; items that wait to be judged (see `lateness.py`) are
in the machine until a later batch, or the end, decides about them. Equal items of one event time get ordinals in the
order in which they came; as they are equal, it does not matter which comes first.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from drift_graph.diverted import is_late
from drift_graph.errors import InputError
from drift_graph.lateness import Held, Judged, Late, Lateness, short
from drift_graph.meta import (
    BEGINNING,
    END_OF_TIME,
    TIME_MAX,
    TIME_MIN,
    global_time,
    pack_time,
    tie_of,
    time_of,
    varint,
    without_ordinal,
)
from drift_graph.metas import Integers, Metas
from drift_graph.moments import Field
from drift_graph.operators import Source
from drift_graph.payloads import AsRows, Mixed, have_fields
from drift_graph.policies import EventTime, TimePolicy
from drift_graph.schemas import as_rows, rows_or_diverted
from drift_graph.stamp_counts import Hashed, StampCounts, hash_of
from drift_graph.stamps import check_payloads, hashed, ties_of_policy, timed_rows, times_of, times_or_diverted
from drift_graph.unchanged import Sample, Sampler
from drift_graph.unsettled import Unsettled


class Arrived(NamedTuple):
    """What a source hands to the dataflow at once: items, the heartbeat after them, and items that were late.

    `error` ends the run after the items before it, all of which are in this batch.
    """

    metas: Metas
    payloads: list[Any]
    heartbeat: bytes
    late: list[Late]
    error: Exception | None


_FIRST = varint(0)  # the ordinal of the first item with a time and tie


class Judging(NamedTuple):
    """The state by which a source judges its next items, without its ties; see `SourceMachine.judging`.

    Attributes:
        heartbeat: as of items, where the source has ended.
        greatest, least: greatest accepted time so far, and least time that is accepted; see `Lateness`. No item is
            held: the position with this state is in front of all that are.
        stamp_time, stamp_ordinal: of the next item of a live source in arrival time.
    """

    heartbeat: bytes
    items_in: int
    late_items: int
    greatest: int | None
    least: int
    stamp_time: int
    stamp_ordinal: int


class StampCount(NamedTuple):
    """How many items had one time and tie.

    Attributes:
        first: their first global time.
        items: how many there were.
        payload: the hash of their payload, if the policy has a tie function; else empty.
    """

    first: bytes
    items: int
    payload: bytes


class Remembered(NamedTuple):
    """The state of a source that a later machine needs in order to continue.

    Attributes:
        greatest, least: greatest time so far, and least time that is accepted; see `Lateness`.
        ordinals: time, tie, how many items came with these, and the payload if the policy has a tie function.
        held: the items that wait to be judged; see `Held`.
    """

    heartbeat: bytes
    items_in: int
    late_items: int
    greatest: int | None
    least: int
    ordinals: list[tuple[int, int, int, Any]]
    held: Sequence[tuple[int, int, Any]] = ()
    seen: int = 0


class SourceMachine:
    """Gives metas to the items of one source, and counts those that are not settled.

    Args:
        name: the source's, for messages.
        rank: its index among the graph's sources.
        live: whether arrival is stamped from a clock (`now_ms` of `take` and `tick`) or numbered.
        diverting: whether an item without a time is diverted, at the greatest time before it, instead of an error.
        late_apart: whether a late item is diverted, at the heartbeat that it is behind, whatever the policy says.
        rows: checks payloads against a schema: one that is none of its rows is an error, or diverted.
    """

    def __init__(
        self,
        name: str,
        rank: int,
        policy: TimePolicy,
        *,
        live: bool = False,
        diverting: bool = False,
        late_apart: bool = False,
        rows: AsRows | None = None,
    ) -> None:
        self.name = name
        self._rows = rows
        self.diverting = diverting
        self.policy = policy
        self.live = live
        self.heartbeat = BEGINNING
        self._before_end = BEGINNING  # the heartbeat when the input ended
        self.items_in = 0
        self.late_items = 0
        self._rank = rank
        self._stamp = (TIME_MIN, 0)  # live arrival: time and ordinal of the next item at that time
        self._lateness = Lateness(name, apart=late_apart)  # in event time
        self._has_diverted = diverting or late_apart
        self._stamp_counts = StampCounts()
        self._sampler = Sampler()
        self._calls_users = any(type(function) is not Field for function in policy.functions.values())
        self._unsettled = Unsettled()

    @classmethod
    def of(cls, source: Source, rank: int, policy: TimePolicy | None = None, *, live: bool = False) -> Self:
        """The machine of a source of a graph, with its own time policy or another one."""
        chosen = source.time if policy is None else policy
        apart = {"diverting": source.diverting, "late_apart": source.late_apart}
        return cls(source.name, rank, chosen, live=live, rows=source.rows, **apart)

    @property
    def finished(self) -> bool:
        return self.heartbeat == END_OF_TIME

    def take(self, payloads: list[Any], now_ms: int = 0) -> Arrived:
        """Accept payloads in arrival order.

        Raises:
            ImpureStep: the time function or the tie function has changed a payload.
        """
        payloads, error = self.checked(payloads, self._items_taken)
        if self.policy.reads_payloads:
            before = self._lateness.greatest
            at_once = self._taken_at_once(payloads, self.policy)
            if at_once is not None:
                return at_once if error is None else at_once._replace(error=at_once.error or error)
            samples = self._sampler.sample(payloads) if self._calls_users else ()
            times: Sequence[int | None]
            if self.diverting:
                payloads, times = times_or_diverted(payloads, self.policy, self.name)
            else:
                times, untimed = times_of(payloads, self.policy, self.name, self._items_taken)
                error = untimed or error
            check_payloads(samples, self.policy, "time", self.name)
            judged = self._lateness.judge(payloads, times, self.policy)
            return self._stamped(judged, self.policy, before, error, samples)
        if self.live or self._stamp[0] > TIME_MIN:  # where it was live before, its clock stands still
            metas = self._stamped_metas(len(payloads), now_ms)
        else:
            metas = Metas.numbered(self.items_in, len(payloads), varint(self._rank) + b"\x00\x00")
            self.heartbeat = pack_time(self.items_in + len(payloads))
        self._count(metas, [])
        return Arrived(metas, payloads, self.heartbeat, [], error)

    def settle(self) -> Arrived:
        """The input has ended: accept the items that wait to be judged, or set them apart."""
        if not self.policy.reads_payloads or not self._lateness.held:
            return Arrived(Metas(), [], self.heartbeat, [], None)
        before = self._lateness.greatest
        return self._stamped(self._lateness.settle(self.policy), self.policy, before, None, ())

    @property
    def has_held(self) -> bool:
        """Whether items wait to be judged: they have been taken, and are in no batch yet."""
        return bool(self.items_held)

    @property
    def items_held(self) -> int:
        """How many items wait to be judged."""
        return len(self._lateness.held)

    @property
    def _items_taken(self) -> int:
        return self.items_in + self.late_items + self.items_held

    def _stamped(
        self,
        judged: Judged,
        policy: EventTime,
        before: int | None,
        error: Exception | None,
        samples: Sequence[Sample],
    ) -> Arrived:
        """The batch of the items that were accepted.

        Args:
            before: the greatest time before these.
            error: of the items behind them.
            samples: of the items, to see whether the tie function changes them.
        """
        metas, tie_error = self._event_metas(judged.payloads, judged.times, policy)
        if policy.tie is not None:
            check_payloads(samples, policy, "tie", self.name)
        late = judged.late
        if tie_error is not None:  # items after that one do not count, neither their times nor as late
            late = [each for each, count in zip(late, judged.accepted_before) if count <= len(metas)]
            accepted = judged.times[: len(metas)]
            self._lateness.greatest = max(accepted if before is None else [*accepted, before], default=None)
        self._follow(policy)
        self._count(metas, late)
        payloads = judged.payloads if tie_error is None else judged.payloads[: len(metas)]
        return Arrived(metas, payloads, self.heartbeat, late, tie_error or judged.error or error)

    def checked(self, payloads: Any, before: int) -> tuple[Any, Exception | None]:
        """The payloads by the schema, if there is one, up to the first that is no row of it; or with such diverted.

        Args:
            before: number of items of the source before these.
        """
        if self._rows is None or not payloads:
            return payloads, None
        if not self.diverting:
            return as_rows(self._rows, payloads, self.name, before)
        return rows_or_diverted(self._rows, payloads, self.name), None

    def repeat(self, arrived: Arrived) -> None:
        """Apply recorded decisions in place of deciding, when a run is replayed."""
        self.heartbeat = max(self.heartbeat, arrived.heartbeat)
        self._count(arrived.metas, arrived.late)
        if self._has_diverted and not have_fields(arrived.payloads):
            self._lateness.late_apart += sum(map(is_late, arrived.payloads))

    def remembered(self) -> Remembered:
        """The state that `recall` takes; not for live sources."""
        ordinals = [known for known in self._stamp_counts.listed() if known[0] >= self._lateness.least]
        held = [tuple(each) for each in self._lateness.held]
        seen = self._lateness.seen if held else 0  # which means nothing then
        return Remembered(self.heartbeat, self.items_in, self.late_items, *self._lateness.known, ordinals, held, seen)

    def recall(self, remembered: Remembered) -> None:
        """Continue where another machine stopped; called before the first item."""
        self.heartbeat, self.items_in, self.late_items = remembered[:3]
        self._lateness.known = remembered.greatest, remembered.least
        self._lateness.held, self._lateness.seen = [Held(*each) for each in remembered.held], remembered.seen
        self._stamp_counts = StampCounts(remembered.ordinals)

    @property
    def late_apart(self) -> int:
        """How many late items this machine has diverted to a sink of their own."""
        return self._lateness.late_apart

    @property
    def least_time(self) -> int:
        """In event time, the least time that is still accepted."""
        return self._lateness.least

    @property
    def judging(self) -> Judging:
        """The state that judges the next item. Checkpoints store it, so its form must stay readable."""
        heartbeat = self._before_end if self.finished else self.heartbeat
        return Judging(heartbeat, self.items_in, self.late_items, *self._lateness.known, *self._stamp)

    def resume(self, judging: Judging, counted: StampCount | None) -> None:
        """Continue where another machine stopped; called before the first item.

        Args:
            counted: how many items had the time and tie in which the cut lies; other counts do not matter.
        """
        self.heartbeat, self.items_in, self.late_items = judging[:3]
        self._lateness.known = judging.greatest, judging.least
        self._stamp = judging.stamp_time, judging.stamp_ordinal
        if counted is not None:
            hashed = Hashed(counted.payload) if self.policy.tie else None
            self._stamp_counts = StampCounts([(time_of(counted.first), tie_of(counted.first), counted.items, hashed)])

    def prefix_in(self, moment: bytes) -> bytes | None:
        """The start of a global time without the ordinal: what items of this source with its time and tie share.

        Returns:
            None if the moment is not above the first global time with a time and tie of this source.
        """
        rank = varint(self._rank)
        if not self.policy.reads_payloads or not moment[8:].startswith(rank) or len(moment) <= 8 + len(rank):
            return None
        prefix = without_ordinal(moment)
        return prefix if len(prefix) < len(moment) else None

    def count_before(self, prefix: bytes, count: int | None) -> StampCount | None:
        """The state after `count` items with this prefix, or after all so far; None if there were none."""
        first = prefix + varint(0)
        now, payload = self._stamp_counts.of(time_of(first), tie_of(first))
        count = now if count is None else count
        if not count:
            return None
        if type(payload) is Hashed:
            return StampCount(first, count, payload.payload)
        has_payload = self.policy.reads_payloads and self.policy.has_unique_ties and now
        return StampCount(first, count, hash_of(payload) if has_payload else b"")

    def stamp_at(self, now_ms: int) -> int:
        """The time given to items that arrive at this clock reading."""
        return max(now_ms, self._stamp[0])

    def _count(self, metas: Metas, late: list[Late]) -> None:
        self.items_in += len(metas)
        self.late_items += len(late)
        if metas:
            self._unsettled.add(metas)

    def above_all_items(self) -> bytes:
        """A heartbeat past every item so far, like that of a source that ends here."""
        past = self._lateness.past_all()
        return self.heartbeat if past is None else max(self.heartbeat, pack_time(past))

    def finish(self) -> bytes:
        """The input has ended: return the last heartbeat, above every time."""
        if not self.finished:
            self._before_end = self.heartbeat
        self.heartbeat = END_OF_TIME
        return self.heartbeat

    def tick(self, now_ms: int) -> bytes:
        """A live source in arrival time has no item now; the next one is stamped `now_ms` or later."""
        if not self.policy.reads_payloads and self.live and now_ms > self._stamp[0] and not self.finished:
            self._stamp = (now_ms, 0)
            self.heartbeat = pack_time(now_ms)
        return self.heartbeat

    def idle(self, others: bytes) -> bytes:
        """The idle policy has decided: move the heartbeat past all items so far, but not below that of the other
        sources.
        """
        if self.policy.reads_payloads and not self.finished:
            least, past = self._lateness.least, self._lateness.past_all()
            if past is not None:
                least = max(least, past)
            if len(others) >= 8 and others != END_OF_TIME:
                least = max(least, time_of(others))
            self._lateness.least = least
            self.heartbeat = max(self.heartbeat, pack_time(least))
        return self.heartbeat

    def advance(self, time: int) -> bytes:
        """In event time, the caller knows that no item below `time` will come."""
        self._lateness.least = max(self._lateness.least, time)
        self.heartbeat = max(self.heartbeat, pack_time(self._lateness.least))
        return self.heartbeat

    def unsettled(self, minimal_time: bytes) -> int:
        """How many accepted items are at or above minimal time, which must not decrease between calls."""
        return self._unsettled.at(minimal_time)

    def _stamped_metas(self, count: int, now_ms: int) -> Metas:
        time, ordinal = self._stamp
        if now_ms > time:
            time, ordinal = now_ms, 0
        head = pack_time(time) + varint(self._rank) + varint(0)
        self._stamp = (time, ordinal + count)
        self.heartbeat = global_time(time, self._rank, 0, ordinal + count)
        return Metas([head + varint(number) for number in range(ordinal, ordinal + count)])

    def _taken_at_once(self, payloads: Any, policy: EventTime) -> Arrived | None:
        """Accept rows whose times and ties are found in arrays; None, and nothing has changed, if a row may be without
        them, or held, or if two different rows may have one tie.
        """
        before = self._lateness.greatest, self._lateness.late_apart
        timed = timed_rows(payloads, policy)
        judged = None if timed is None else self._lateness.judge_rows(payloads, timed.times, policy)
        if timed is None or judged is None:
            return None
        payloads, times, accepted, late, error = judged
        metas = None
        if not times:
            metas = Metas()
        elif (ties := array("Q") if accepted == [] else timed.ties(accepted)) is not None:
            if isinstance(payloads, Mixed):
                of_rows = ties
                ties = array("Q", payloads.of_parts(lambda part: of_rows if have_fields(part) else hashed(part)))
            metas = self._numbered(times, ties, payloads, policy)[0]
        if metas is None:
            self._lateness.greatest, self._lateness.late_apart = before
            return None
        self._follow(policy)
        self._count(metas, late)
        return Arrived(metas, payloads, self.heartbeat, late, error)

    def _numbered(
        self, times: Integers, ties: Integers, payloads: Any, policy: EventTime
    ) -> tuple[Metas | None, tuple[int, Any, Any] | None]:
        """The metas of items, which are counted.

        Returns:
            The metas; or if two different payloads have one tie, the index of the second and both: then nothing has
            changed.
        """
        greatest = TIME_MAX if self._lateness.greatest is None else self._lateness.greatest
        distinguished = payloads if policy.has_unique_ties else None
        ordinals, order, other = self._stamp_counts.add(times, ties, distinguished, greatest)
        if other is not None:
            return None, other
        ending = _FIRST if ordinals is None else b""
        return Metas.stamped(times, ties, varint(self._rank), ending, ordinals, order), None

    def _event_metas(self, payloads: list[Any], times: Integers, policy: EventTime) -> tuple[Metas, Exception | None]:
        """Global times in event time, up to the first payload that cannot have one."""
        ties, error = ties_of_policy(payloads, policy, self.name, diverting=self._has_diverted)
        times = times[: len(ties)]
        metas, other = self._numbered(times, ties, payloads[: len(ties)], policy)
        if other is None:
            assert metas is not None
            return metas, error
        at, first, payload = other
        metas, _ = self._numbered(times[:at], ties[:at], payloads[:at], policy)
        assert metas is not None
        return metas, InputError(
            f"the tie function of source {self.name!r} gave one value for two different payloads at time "
            f"{times[at]}: {short(first)} and {short(payload)}; make it unique, or leave tie out"
        )

    def _follow(self, policy: EventTime) -> None:
        """Move the heartbeat after accepted items."""
        if self._lateness.greatest is None:
            return
        self._lateness.follow(policy.lateness)
        self.heartbeat = max(self.heartbeat, pack_time(self._lateness.least))
        self._stamp_counts.settle(self._lateness.least)
