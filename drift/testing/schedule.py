"""A schedule as a value: the plain one, in order, and what deviates from it.

Invariant: a schedule makes the same decisions for the same graph and input in every process and on every machine, and
one that has been made explicit decides as it did before.

Why: a decision depends on its key alone, which says what it is about, and not on when it is met. Where a schedule has
noise, the decision is a hash of noise and key; `explicit` writes down what those came to, one `Deviation` each. So to
take an item out of the input leaves the decisions about the others as they were, and to take a deviation away leaves
the other deviations: that is what makes both shrink well, and apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import xxhash

from drift.engines.settings import checked, count, flag, setting
from drift.engines.simulated.schedule import Key, Scheduled
from drift.engines.simulated.schedule import Schedule as InOrder

#: What can be held up, for turns or until something has come; the other kinds of a deviation are numbers.
HELD = (
    *("batch", "ack", "heartbeat", "news", "pace", "break off", "read", "wake"),
    *("released", "noticed", "start", "order", "answer", "take cut", "piece", "committed"),  # where processes die
)
#: For how many turns a batch stays in the outbox of who feeds it, or who has had a thing stands still after it.
OUTBOX, STILL = "outbox", "still"
#: Decisions that make a network lose a batch; only schedules with `losses` take them.
LOST = "lost"
#: That a process dies; only schedules with `deaths` take it.
DEATH = "death"
ARRIVE = "arrive"
#: An item that arrives so many places earlier. Noise has items arrive late; shrinking says so where it is shorter.
EARLY = "early"

_RATES = (0, 0x400, 0x1000, 0x5000, 0xC000)  # how many of 0x10000 decisions deviate
_RARE = {"lost": 0x800, "death": 0x800}
_TURNS_EXPONENT_MAX = 7


class Deviation(NamedTuple):
    """One decision that is not the plainest.

    Attributes:
        key: what it is about.
        choice: for something held up the turns, for an item that arrives late the places, or else the number chosen.
        until: it is held up until this has come, and not for a number of turns.
    """

    key: Key
    choice: int
    until: Key | None = None

    def __repr__(self) -> str:
        until = f", {tuple(self.until)!r}" if self.until is not None else ""
        return f"({tuple(self.key)!r}, {self.choice}{until})"


def deviation(given: Sequence[Any]) -> Deviation:
    """A deviation from ((kind, place, source, number, nth), choice) or ((...), choice, (...))."""
    key, choice, *until = given
    return Deviation(Key(*key), choice, Key(*until[0]) if until and until[0] is not None else None)


@dataclass(frozen=True)
class Schedule:
    """How a simulated run goes; equal schedules give equal runs.

    Args:
        workers: how many, 1 to 64.
        batch_items: most items a source gives at once; in order, it gives as many as there are.
        fused: whether scans run as one loop.
        in_flight_max: most unsettled items of a source.
        live: names of sources that have a clock and sometimes nothing to give.
        deviations: what is not in order.
        noise: in all that `deviations` does not name a number above 0 deviates at random; 0 keeps it in order.
        losses: whether noise loses messages too; such a run ends with a ProcessError.
        deaths: whether processes die, as `deviations` and noise say, and the run goes on.
    """

    workers: int = setting(1, count)
    batch_items: int = setting(1, count)
    fused: bool = setting(True, flag)
    in_flight_max: int = setting(1_000_000, count)
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
        given = [f"workers={self.workers}", f"batch_items={self.batch_items}"]
        others = ("fused", "in_flight_max", "live", "noise", "losses", "deaths")
        given += [
            f"{name}={getattr(self, name)!r}" for name in others if getattr(self, name) != getattr(Schedule, name)
        ]
        if self.deviations:
            given.append(f"deviations={list(self.deviations)!r}")
        return f"Schedule({', '.join(given)})"

    def settings(self) -> dict[str, Any]:
        """For `Simulation`."""
        return {
            "workers": self.workers,
            "batch_items": self.batch_items,
            "fused": self.fused,
            "in_flight_max": self.in_flight_max,
            "live": self.live,
            "deaths": self.deaths,
        }

    def with_deviations(self, deviations: Iterable[Deviation]) -> Schedule:
        """The same without noise, and with other deviations."""
        made = tuple(deviations)
        deaths = self.deaths and any(each.key.kind == DEATH for each in made)
        return replace(self, deviations=made, noise=0, losses=False, deaths=deaths)

    def as_json(self) -> dict[str, Any]:
        """For a case file."""
        return {
            "workers": self.workers,
            "batch_items": self.batch_items,
            "fused": self.fused,
            "in_flight_max": self.in_flight_max,
            "live": list(self.live),
            "noise": self.noise,
            "losses": self.losses,
            "deaths": self.deaths,
            "deviations": [
                {"key": list(each.key), "choice": each.choice, "until": list(each.until) if each.until else None}
                for each in self.deviations
            ],
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Schedule:
        """The other direction of `as_json`."""
        deviations = [(each["key"], each["choice"], each.get("until")) for each in given.get("deviations", ())]
        known = {name: given[name] for name in cls.__dataclass_fields__ if name in given and name != "deviations"}
        return cls(**{**known, "live": tuple(known.get("live", ())), "deviations": tuple(deviations)})


class Player(InOrder):
    """A schedule in use.

    Attributes:
        made: the decisions of this run that were not the plainest.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.made: dict[Key, Deviation] = {}
        self._given = {each.key: each for each in schedule.deviations}
        self._until = {each.key: each.until for each in schedule.deviations if each.until is not None}
        self._came: set[Key] = set()
        self._rates: dict[str, int] = {}

    def hold(self, key: Key) -> int:
        given = self._given.get(key)
        if given is not None:
            self.made[key] = given
            return given.choice if given.until is None else 0
        if not self.schedule.noise:
            return 0
        drawn = self._noise(key)
        if not drawn:
            return 0
        turns = 1 + (drawn >> 8) % (2 << drawn % _TURNS_EXPONENT_MAX)
        self.made[key] = Deviation(key, turns)
        return turns

    def choose(self, key: Key, count: int) -> int:
        given = self._given.get(key)
        if given is not None:
            chosen = min(given.choice, count - 1)
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
        if lost in self._given or (self.schedule.losses and self._noise(lost)):
            self.made[lost] = Deviation(lost, 1)
            return True
        return False

    def pick(self, things: Sequence[Scheduled], turn: int) -> int:
        if not self._until:
            return super().pick(things, turn)
        free = [at for at, thing in enumerate(things) if self._until.get(thing.key) in (None, *self._came)]
        due = [at for at in free if things[at].due <= turn]
        if due:
            return due[0]
        return min(free, key=lambda at: things[at].due) if free else 0  # what all wait for does not come any more

    def fired(self, thing: Scheduled) -> None:
        if self._until:
            self._came.add(thing.key)

    def _noise(self, key: Key) -> int:
        """0, or where the decision deviates 48 bits."""
        kind, place, source, number, nth = key
        rate = self._rates.get(kind)
        if rate is None:
            drawn = xxhash.xxh64_intdigest(kind.encode(), self.schedule.noise)
            # All kinds share one rate in half of the schedules; a loss is rare, since it ends the run.
            shared = xxhash.xxh64_intdigest(b"all", self.schedule.noise)
            rate = _RATES[(shared >> 1 if shared & 1 else drawn) % len(_RATES)]
            rate = _RARE.get(kind, rate)
            self._rates[kind] = rate
        drawn = xxhash.xxh64_intdigest(f"{kind}\0{place}\0{source}\0{number}\0{nth}".encode(), self.schedule.noise)
        return drawn >> 16 or 1 if drawn & 0xFFFF < rate else 0


def explicit(schedule: Schedule, made: Mapping[Key, Deviation]) -> Schedule:
    """A schedule that says in so many words what another one did."""
    return schedule.with_deviations(made.values())


def arrival_order(times: Sequence[int], lateness: int, player: Player, source: str) -> list[int]:
    """In which order items arrive whose times increase: so many places late or early as the schedule says, but in time.

    Returns:
        Indices of `times`.
    """
    count = len(times)
    places = [2 * (at + player.choose(Key(ARRIVE, "", source, at, 0), count)) for at in range(count)]
    for at in range(count):
        if earlier := player.choose(Key(EARLY, "", source, at, 0), at + 1):
            places[at] = 2 * (at - earlier) - 1
    wanted = sorted(range(count), key=lambda at: (places[at], at))
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
