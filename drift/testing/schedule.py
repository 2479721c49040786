"""A schedule as a value: the plain order, and deviations from it.

Invariant: a schedule makes the same decisions for the same graph and input in every process and on every machine; a
schedule that was made explicit makes the same decisions as before.

Why: a decision depends only on its key, which names its subject, and not on when it comes up. If a schedule has noise,
the decision is a hash of noise and key; `explicit` lists these decisions, one `Deviation` each. So removing an item
from the input does not change the decisions about other items, and removing a deviation does not change the others:
both shrink well, and independently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import msgspec
import xxhash

from drift.engines.settings import checked, flag, setting
from drift.engines.simulated.schedule import Key, Scheduled
from drift.engines.simulated.schedule import Schedule as InOrder
from drift_graph.numbers import why_no_int

#: Kinds of events that can be delayed, for turns or until another event, and how that is counted; the other kinds of a
#: deviation are numbers. Those from "released" on occur only if processes die.
HELD = {
    "batch": "delays",
    "ack": "acks delayed",
    "heartbeat": "heartbeats delayed",
    "news": "news delayed",
    "pace": "news delayed",
    "break off": "news delayed",
    "read": "reads delayed",
    "wake": "woken late",
    "released": "output delayed",
    **dict.fromkeys(("noticed", "start", "order", "answer"), "ways back delayed"),
    **dict.fromkeys(("take checkpoint", "snapshot", "committed"), "checkpoints delayed"),
}
#: For how many turns a batch stays in its sender's outbox, or a node stands still after a message.
OUTBOX, STILL = "outbox", "still"
#: Decisions that make a network lose a batch; only schedules with `losses` take them.
LOST = "lost"
#: Decisions that a process dies; only schedules with `deaths` take them.
DEATH = "death"
#: The same of the process between two segments; in the middle of a release that comes in pieces.
CALLER_DEATH, DEATH_IN_RELEASE = "caller dies", "dies in a release"
ARRIVE = "arrive"
#: An item arrives so many places earlier. Noise only makes items late; shrinking uses this kind if it is shorter.
EARLY = "early"

_RATES = (0, 0x400, 0x1000, 0x5000, 0xC000)  # how many of 0x10000 decisions deviate
_RARE = {"lost": 0x800, "death": 0x800}
_TURNS_EXPONENT_MAX = 7
_WORKERS_MAX = 64


class Deviation(NamedTuple):
    """One decision that is not the plainest.

    Attributes:
        choice: the turns of a delay, the places by which an item arrives late, or else the chosen number.
        until: the delay lasts until this event, instead of a number of turns.
    """

    key: Key
    choice: Annotated[int, msgspec.Meta(ge=0)]
    until: Key | None = None

    def __repr__(self) -> str:
        until = f", {tuple(self.until)!r}" if self.until is not None else ""
        return f"({tuple(self.key)!r}, {self.choice}{until})"


def deviation(values: Sequence[Any]) -> Deviation:
    """A deviation from ((kind, link, source, number, nth), choice) or ((...), choice, (...))."""
    key, choice, *until = values
    return Deviation(Key(*key), choice, Key(*until[0]) if until and until[0] is not None else None)


@dataclass(frozen=True)
class Schedule:
    """How a simulated run goes; equal schedules give equal runs.

    Args:
        workers: how many, 1 to 64.
        batch_items: most items a source gives at once; in order, it gives as many as there are.
        fused: whether scans run as one loop.
        in_flight_max: most unsettled items of a source.
        live: names of sources that have a clock and sometimes no items.
        deviations: explicit deviations from order.
        noise: above 0, decisions that `deviations` does not name deviate pseudorandomly; 0 keeps them in order.
        losses: whether noise loses messages too; such a run ends with a ProcessError.
        deaths: whether processes die, as `deviations` and noise say, and the run goes on.
    """

    workers: Annotated[int, msgspec.Meta(ge=1, le=_WORKERS_MAX)] = setting(1, why_no_int)
    batch_items: int = setting(1, why_no_int)
    fused: bool = setting(True, flag)
    in_flight_max: int = setting(1_000_000, why_no_int)
    live: tuple[str, ...] = ()
    deviations: tuple[Deviation, ...] = ()
    noise: int = 0
    losses: bool = False
    deaths: bool = False

    def __post_init__(self) -> None:
        checked(self)
        object.__setattr__(self, "live", tuple(self.live))
        object.__setattr__(self, "deviations", tuple(map(deviation, self.deviations)))

    def __repr__(self) -> str:
        arguments = [f"workers={self.workers}", f"batch_items={self.batch_items}"]
        others = ("fused", "in_flight_max", "live", "noise", "losses", "deaths")
        arguments += [
            f"{name}={getattr(self, name)!r}" for name in others if getattr(self, name) != getattr(Schedule, name)
        ]
        if self.deviations:
            arguments.append(f"deviations={list(self.deviations)!r}")
        return f"Schedule({', '.join(arguments)})"

    def settings(self) -> dict[str, Any]:
        names = ("workers", "batch_items", "fused", "in_flight_max", "live", "deaths")
        return {name: getattr(self, name) for name in names}

    def with_deviations(self, deviations: Iterable[Deviation]) -> Schedule:
        made = tuple(deviations)
        deaths = self.deaths and any(each.key.kind in (DEATH, CALLER_DEATH, DEATH_IN_RELEASE) for each in made)
        return replace(self, deviations=made, noise=0, losses=False, deaths=deaths)


class Player(InOrder):
    """A schedule in use.

    Attributes:
        made: the decisions of this run that were not the plainest.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.made: dict[Key, Deviation] = {}
        self._deviations = {each.key: each for each in schedule.deviations}
        self._until = {each.key: each.until for each in schedule.deviations if each.until is not None}
        self._came: set[Key] = set()
        self._rates: dict[str, int] = {}

    def hold(self, key: Key) -> int:
        deviating = self._deviations.get(key)
        if deviating is not None:
            self.made[key] = deviating
            return deviating.choice if deviating.until is None else 0
        if not self.schedule.noise:
            return 0
        drawn = self._noise(key)
        if not drawn:
            return 0
        turns = 1 + (drawn >> 8) % (2 << drawn % _TURNS_EXPONENT_MAX)
        self.made[key] = Deviation(key, turns)
        return turns

    def choose(self, key: Key, count: int) -> int:
        deviating = self._deviations.get(key)
        if deviating is not None:
            chosen = min(deviating.choice, count - 1)
        elif not self.schedule.noise or key.kind == EARLY:
            return 0
        else:
            drawn = self._noise(key)
            chosen = 1 + drawn % (count - 1) if drawn and count > 1 else 0
        if chosen:
            self.made[key] = Deviation(key, chosen)
        return chosen

    def is_lost(self, key: Key) -> bool:
        lost = key._replace(kind=LOST)
        if lost in self._deviations or (self.schedule.losses and self._noise(lost)):
            self.made[lost] = Deviation(lost, 1)
            return True
        return False

    def pick(self, events: Sequence[Scheduled], turn: int) -> int:
        if not self._until:
            return super().pick(events, turn)
        free = [at for at, event in enumerate(events) if self._until.get(event.key) in (None, *self._came)]
        due = [at for at in free if events[at].due <= turn]
        if due:
            return due[0]
        return min(free, key=lambda at: events[at].due) if free else 0  # all wait for an event that will not come

    def fired(self, event: Scheduled) -> None:
        if self._until:
            self._came.add(event.key)

    def _noise(self, key: Key) -> int:
        """48 bits if the decision deviates, else 0."""
        kind, link, source, number, nth = key
        rate = self._rates.get(kind)
        if rate is None:
            drawn = xxhash.xxh64_intdigest(kind.encode(), self.schedule.noise)
            # All kinds share one rate in half of the schedules; a loss is rare, since it ends the run.
            shared = xxhash.xxh64_intdigest(b"all", self.schedule.noise)
            rate = _RATES[(shared >> 1 if shared & 1 else drawn) % len(_RATES)]
            rate = _RARE.get(kind, rate)
            self._rates[kind] = rate
        drawn = xxhash.xxh64_intdigest(f"{kind}\0{link}\0{source}\0{number}\0{nth}".encode(), self.schedule.noise)
        return drawn >> 16 or 1 if drawn & 0xFFFF < rate else 0


def explicit(schedule: Schedule, made: Mapping[Key, Deviation]) -> Schedule:
    """A schedule that lists the decisions of another one explicitly."""
    return schedule.with_deviations(made.values())


def arrival_order(times: Sequence[int], lateness: int, player: Player, source: str) -> list[int]:
    """The order of arrival of items sorted by time: late or early as the schedule says, but within `lateness`.

    Returns:
        Indices of `times`.
    """
    count = len(times)
    ranks = [2 * (at + player.choose(Key(ARRIVE, "", source, at, 0), count)) for at in range(count)]
    for at in range(count):
        if earlier := player.choose(Key(EARLY, "", source, at, 0), at + 1):
            ranks[at] = 2 * (at - earlier) - 1
    wanted = sorted(range(count), key=lambda at: (ranks[at], at))
    if wanted == list(range(count)):
        return wanted
    order: list[int] = []
    waiting = dict.fromkeys(range(count))  # those that have not arrived, in the order of their times
    for at in wanted:
        while at in waiting:
            oldest = next(iter(waiting))
            first = oldest if times[oldest] < times[at] - lateness else at
            del waiting[first]
            order.append(first)
    return order
