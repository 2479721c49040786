"""Describes the deviations of a run in words: "item 3 reaches worker 1 after item 5".

Items are counted from 1 here; keys count them from 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from drift.engines.simulated.schedule import Key, Scheduled
from drift.engines.simulated.simulation import Simulation
from drift.testing.schedule import (
    ARRIVE,
    CALLER_DEATH,
    DEATH_IN_RELEASE,
    EARLY,
    HELD,
    LOST,
    OUTBOX,
    STILL,
    Deviation,
)

_NAMED_MAX = 4
#: By kind, what happens to whom.
_EVENTS = {
    "news": "{} hears of minimal time",
    "pace": "{} hears of the pace",
    "break off": "{} hears that the run breaks off",
    "wake": "{} is woken",
    "released": "released output of the {} comes",
    "noticed": "the death of {} is noticed",
    "start": "another process for {} is there",
    "order": "{} gets the order to resume",
    "answer": "{} has answered how far it is",
    "take checkpoint": "{} gets the order to take a checkpoint",
    "snapshot": "a snapshot of a checkpoint comes to {}",
    "committed": "{} has heard that a checkpoint is committed",
}
#: By kind of a number, what it makes.
_NUMBERS = {
    "split": "what {sender} sends to {receiver} for {item} is too long for one message, and goes in halves",
    "together": "{receiver} takes {more} messages at once, from {item} on",
    "skew": "the clock of {link} differs from the others",
    "took": "{receiver} takes its time for what it had for {item}",
    "pause": "source {source!r} has nothing to give for a while, before {item}",
    "fate": "{link} of {item} is lost with its sender",
    "clock": "the clock jumps before {item} of {source!r}",
    CALLER_DEATH: "the process that asks dies with calls at {source!r} in flight",
    "answered": "answers at {source!r} come in another order",
    "piece": "a release at {source!r} is handed out in pieces",
    "joined": "two releases at {source!r} come as one",
    DEATH_IN_RELEASE: "the calling process dies between two pieces of a release at {source!r}",
    "resumed": "the segment before {source!r} resumes from an older checkpoint",
}


class Words:
    """Describes one run that has ended.

    Args:
        arrived: by source, the indices of its items in the order of their arrival.
    """

    def __init__(self, simulation: Simulation, arrived: dict[str, list[int]]) -> None:
        self._simulation = simulation
        self._arrived = arrived
        self._log = simulation.log
        self._by_key = {event.key: event for event in [*simulation.log, *simulation.in_flight, *simulation.lost]}
        self._several = len(arrived) > 1

    def of(self, deviation: Deviation) -> str:
        key = deviation.key
        if key.kind == ARRIVE:
            return self._arriving(key)
        if key.kind == EARLY:
            return self._arriving_early(key)
        if key.kind == LOST:
            return f"{self._message(key._replace(kind='batch'))} is lost"
        if key.kind in HELD:
            return self._held(deviation)
        if key.kind == OUTBOX:
            return f"{self._message(key._replace(kind='batch'))} stays in an outbox for {_turns(deviation.choice)}"
        if key.kind == STILL:
            receiver = key.link.partition(" > ")[2] or "the acker"
            return f"{receiver} stands still for {_turns(deviation.choice)} after what it had for {self._of_key(key)}"
        return self._number(deviation)

    # Items.

    def items(self, items: Sequence[tuple[str, int]]) -> str:
        """ "item 3", "items 3 and 5 of 'lines'"."""
        if not items:
            return "nothing"
        by_source: dict[str, list[int]] = {}
        for source, number in items:
            by_source.setdefault(source, []).append(number + 1)
        return ", ".join(self._numbered(source, numbers) for source, numbers in by_source.items())

    def _numbered(self, source: str, numbers: list[int]) -> str:
        of = f" of {source!r}" if self._several else ""
        if len(numbers) == 1:
            return f"item {numbers[0]}{of}"
        if len(numbers) > _NAMED_MAX and numbers == list(range(numbers[0], numbers[-1] + 1)):
            return f"items {numbers[0]} to {numbers[-1]}{of}"
        return f"items {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}{of}"

    def _of_key(self, key: Key) -> str:
        return "the end" if key.number < 0 else self.items([(key.source, key.number)])

    def _carried(self, event: Scheduled) -> str:
        """The content of a batch: a source's items, or items that a worker made of them."""
        items = self.items(self._simulation.items_of(event))
        sender = event.key.link.partition(" > ")[0]
        return items if sender in self._arrived else f"what {sender} made of {items}"

    # Items, batches and links.

    def _message(self, key: Key) -> str:
        sender, _, receiver = key.link.partition(" > ")
        event = self._by_key.get(key)
        what = self._carried(event) if event is not None else self._of_key(key)
        return f"{what}, sent to {receiver}," if sender in self._arrived else f"{what} for {receiver}"

    def _held(self, deviation: Deviation) -> str:
        key = deviation.key
        event = self._by_key.get(key)
        if event is None or event.arrival_turn < 0:
            return f"{key.kind} {key.link} of {self._of_key(key)} is held up, and does not come"
        before = [other for other in self._log[: self._log.index(event)] if other.arrival_turn > event.sent_turn]
        alike = [other for other in before if other.key.kind == key.kind and other.to == event.to]
        if key.kind == "batch" and alike:
            return f"{self._event(event)} after {self._all_carried(alike)}"
        until = self._event(before[-1]) if before else "nothing"
        if deviation.until is not None and deviation.until in self._by_key:
            until = self._event(self._by_key[deviation.until])
        return f"{self._event(event)} only after {until}"

    def _all_carried(self, events: Sequence[Scheduled]) -> str:
        made: dict[str, list[tuple[str, int]]] = {}
        for event in events:
            sender = event.key.link.partition(" > ")[0]
            made.setdefault("" if sender in self._arrived else sender, []).extend(self._simulation.items_of(event))
        described = []
        for sender, items in made.items():
            shown = self.items(sorted(set(items), key=lambda item: item[1]))
            described.append(f"what {sender} made of {shown}" if sender else shown)
        return " and ".join(described)

    def _event(self, event: Scheduled) -> str:
        key = event.key
        if key.kind == "read":
            return f"{self._of_key(key)} is read" if key.number >= 0 else f"the end of {key.source!r} is read"
        if key.kind == "batch":
            carried = self._carried(event)
            reach = "reach" if carried.startswith("items ") else "reaches"
            return f"{carried} {reach} {key.link.partition(' > ')[2]}"
        if key.kind in _EVENTS:
            return _EVENTS[key.kind].format(key.link)
        if key.kind == "heartbeat":
            return f"the ack of source {key.source!r} for {self._of_key(key)} comes with its heartbeat"
        return f"the ack of {key.link} for {self._of_key(key)} comes"

    # Numbers.

    def _arriving(self, key: Key) -> str:
        order = self._arrived[key.source]
        if key.number not in order:
            return f"{self._of_key(key)} arrives late"
        at = order.index(key.number)
        overtaken = [number for number in order[:at] if number > key.number]
        if not overtaken:
            return f"{self._of_key(key)} arrives late, and nothing overtakes it"
        return f"{self._of_key(key)} arrives after {self.items([(key.source, number) for number in sorted(overtaken)])}"

    def _arriving_early(self, key: Key) -> str:
        order = self._arrived[key.source]
        at = order.index(key.number) if key.number in order else 0
        overtaken = sorted(number for number in order[at:] if number < key.number)
        if not overtaken:
            return f"{self._of_key(key)} arrives early, and overtakes nothing"
        return f"{self._of_key(key)} arrives before {self.items([(key.source, number) for number in overtaken])}"

    def _number(self, deviation: Deviation) -> str:
        (kind, link, source, _, _), choice = deviation.key, deviation.choice
        item = self._of_key(deviation.key)
        sender, _, receiver = link.partition(" > ")
        if kind == "cut":
            order = self._arrived[source]
            after = next((other for other in self._reads(source) if self._is_after(other, deviation.key)), None)
            if after is None or after.number < 0:
                return f"the batch that begins with {item} is cut {choice} items short"
            last = order[order.index(after.number) - 1]
            return f"a batch is cut after {self.items([(source, last)])}"
        if kind == "death":
            who, _, what = link.partition(", ")
            return f"{who} dies after a turn ({what} of {item})"
        if kind not in _NUMBERS:
            return f"{kind} {link} {item}: {choice}"
        return _NUMBERS[kind].format(
            sender=sender, receiver=receiver, item=item, more=choice + 1, link=link, source=source
        )

    def _reads(self, source: str) -> list[Key]:
        return [event.key for event in self._log if event.key.kind == "read" and event.key.source == source]

    def _is_after(self, read: Key, cut: Key) -> bool:
        order = self._arrived[cut.source]
        return read.number < 0 or order.index(read.number) > order.index(cut.number)


def _turns(count: int) -> str:
    return "a turn" if count == 1 else f"{count} turns"
