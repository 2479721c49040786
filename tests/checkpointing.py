"""Workers without engine, fed at random, whose run is broken off at checkpoints: they go back, or others go on in their
place.

Everything on its way lies in one bag, out of which any is taken next. Minimal time is what it is by its meaning:
the least of what is in the bag, waits, or was not fed. Nobody is told of it but when the draw says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

import drift
from drift.machines.checkpoints import DELETED, Lookup
from drift.machines.keys import form_of_identity, identity_of
from drift.machines.plan import Plan
from drift.machines.sent import LaterSent
from drift.machines.worker import BARRIER, Part, Snapshot, Worker
from drift_graph.canonical import canonical
from drift_graph.item import Columns, sorted_by_meta
from drift_graph.meta import BEGINNING, END_OF_TIME, global_time_of
from drift_graph.metas import Metas
from drift_graph.reference import Reference
from drift_graph.times import SourceMachine

_STEPS_MAX = 20_000

Input = tuple[bytes, str, Any]


def arrivals(dataflow: drift.Dataflow, sources: dict[str, list[Any]]) -> list[Input]:
    """All items of the input with their global times, in order of these."""
    found: list[Input] = []
    for rank, source in enumerate(dataflow.sources):
        arrived = SourceMachine(source.name, rank, source.time).take(sources[source.name])
        assert arrived.error is None
        found += [(meta, source.name, payload) for meta, payload in zip(arrived.metas, arrived.payloads)]
    return sorted(found, key=lambda each: each[0])


def expected(dataflow: drift.Dataflow, inputs: Sequence[Input]) -> list[tuple[str, bytes, bytes]]:
    reference = Reference(dataflow)
    for meta, name, payload in inputs:
        reference.push(name, meta, payload)
    return [(sink, meta, canonical(payload)) for sink, meta, payload in reference.pop(END_OF_TIME)]


class Kept(NamedTuple):
    """What a store would have of checkpoints, by forms of keys."""

    states: dict[str, dict[bytes, Any]]
    later: list[LaterSent]


class Team:
    """See the module."""

    def __init__(
        self, plan: Plan, inputs: Sequence[Input], random: Random, workers: int, *, pages: bool = False
    ) -> None:
        self.plan = plan
        self.random = random
        self.pages = pages
        self.dropped = 0
        self.inputs = list(inputs)
        self.unfed = list(inputs)
        self.workers = self._hired(workers)
        self.bag: list[tuple[int, Part]] = []
        self.output: Counter[tuple[str, bytes, bytes]] = Counter()
        self.notified = [BEGINNING] * workers
        self.checkpoint = BEGINNING
        self.kept = Kept({}, [])
        self.taken_back = 0

    def _hired(self, workers: int) -> list[Worker]:
        """Workers of which nothing has been dropped."""
        self.apart: list[dict[tuple[str, Any], Any]] = [{} for _ in range(workers)]  # what each worker has dropped
        hired = [Worker(self.plan, index, workers, rewinds=True, tracks=True) for index in range(workers)]
        if self.pages:
            for index, worker in enumerate(hired):
                worker.page(self._pages_of(index, lambda name: lambda keys: []))
        return hired

    def _pages_of(self, index: int, below: Callable[[str], Lookup]) -> Callable[[str], Lookup]:
        apart = self.apart[index]

        def lookup(name: str) -> Lookup:
            def found(keys: Sequence[Any]) -> list[tuple[Any, Any]]:
                here = [(key, apart[name, key]) for key in keys if (name, key) in apart]
                below_it = below(name)([key for key in keys if (name, key) not in apart])
                return [*((key, value) for key, value in here if value is not DELETED), *below_it]

            return found

        return lookup

    def drop(self) -> None:
        """A worker drops states."""
        index, recent = self.random.randrange(len(self.workers)), self.random.random() < 0.5
        for snapshot in self.workers[index].drop(self.random.randint(1, 3), recent=recent):
            for name, entries in snapshot.states.items():
                self.dropped += len(entries.identities)
                self.apart[index].update(((name, key), value) for key, value in entries)

    # A run.

    @property
    def heartbeat(self) -> bytes:
        return min((meta for meta, _, _ in self.unfed), default=END_OF_TIME)

    @property
    def minimal_time(self) -> bytes:
        least = [self.heartbeat, *(global_time_of(min(columns.metas)) for _, (_, columns) in self.bag)]
        least += [worker.least_later for worker in self.workers if worker.least_later is not None]
        return min(least)

    def step(self) -> bool:
        """One thing happens; whether there was any."""
        due = [index for index, worker in enumerate(self.workers) if worker.is_due]
        if not self.bag and not self.unfed and not due:
            before = self.minimal_time, list(self.notified)
            for index in range(len(self.workers)):
                self.tell(index)
            return (self.minimal_time, self.notified) != before or any(worker.is_due for worker in self.workers)
        if self.pages and self.random.random() < 0.2:
            self.drop()
        chosen = self.random.random()
        if chosen < 0.2:
            self.tell(self.random.randrange(len(self.workers)))
        elif self.unfed and (chosen < 0.5 or not (self.bag or due)):
            self._feed()
        elif due and (chosen < 0.7 or not self.bag):
            self._handle(self.random.choice(due), [])
        elif self.bag:
            receiver, part = self.bag.pop(self.random.randrange(len(self.bag)))
            self._handle(receiver, [part])
        return True

    def run(self) -> None:
        for _ in range(_STEPS_MAX):
            if not self.step():
                return
        raise AssertionError(f"after {_STEPS_MAX} steps the run has not ended")

    def tell(self, index: int) -> None:
        self.notified[index] = self.minimal_time
        self.workers[index].settle(self.notified[index], self.heartbeat)

    def _feed(self) -> None:
        """Some items out of the next ones, in any order: as late as it likes."""
        count = self.random.randint(1, min(4, len(self.unfed)))
        near = self.unfed[: 2 * count + 1]
        chosen = [near.pop(self.random.randrange(len(near))) for _ in range(count)]
        self.unfed = sorted(near + self.unfed[2 * count + 1 :], key=lambda each: each[0])
        for name in sorted({name for _, name, _ in chosen}):
            rows = [(meta, payload) for meta, source, payload in chosen if source == name]
            columns = sorted_by_meta(Columns(Metas([meta for meta, _ in rows]), [payload for _, payload in rows], None))
            worker = self.random.randrange(len(self.workers))
            self._sent(self.workers[worker].pass_maps([(name, columns)]))

    def _handle(self, index: int, parts: list[Part]) -> None:
        before = self.workers[index].tombstones
        self._sent(self.workers[index].turn(parts))
        self.taken_back += self.workers[index].tombstones - before

    def _sent(self, sends: dict[int, list[Part]]) -> None:
        for receiver, parts in sends.items():
            for name, columns in parts:
                if receiver == BARRIER:
                    self._take_output(name, columns)
                else:
                    self.bag.append((receiver, (name, columns)))

    def _take_output(self, name: str, columns: Columns) -> None:
        for meta, payload, diff in zip(columns.metas, columns.payloads, columns.diffs or [1] * len(columns.metas)):
            self.output[name, meta, canonical(payload)] += diff

    def released(self) -> list[tuple[str, bytes, bytes]]:
        left = sorted((meta, sink, payload, count) for (sink, meta, payload), count in self.output.items() if count)
        assert all(count == 1 for *_, count in left), left
        return [(sink, meta, payload) for meta, sink, payload, _ in left]

    # What breaks it off.

    def take_checkpoint(self) -> None:
        checkpoint = self.minimal_time
        for worker in self.workers:
            snapshot = worker.snapshot(checkpoint)
            for name, entries in snapshot.states.items():
                states = self.kept.states.setdefault(name, {})
                for key, value in entries:
                    states.pop(form_of_identity(key), None)
                    if value is not DELETED:
                        states[form_of_identity(key)] = value
            self.kept.later.extend(snapshot.later)
        self.checkpoint = checkpoint

    def rewind(self) -> None:
        """Everybody goes back to minimal time."""
        checkpoint = self.minimal_time
        assert checkpoint >= max(self.notified)
        self._forget(checkpoint)
        for index, worker in enumerate(self.workers):
            self._sent(worker.rewind(checkpoint))
            self.notified[index] = checkpoint

    def go_on(self, workers: int, *, lazily: bool) -> None:
        """Everybody is gone, and others go on from the last checkpoint."""
        self._forget(self.checkpoint)
        self.workers = self._hired(workers)
        self.notified = [self.checkpoint] * workers
        entries = {
            name: [(identity_of(form), value) for form, value in states.items()]
            for name, states in self.kept.states.items()
        }
        lookup = self._lookup if lazily else None
        if lazily:
            entries = {name: [entry for entry in some if _has_timers(entry[1])] for name, some in entries.items()}
        sends = []
        for index, worker in enumerate(self.workers):
            if self.pages and lookup is not None:
                lookup = self._pages_of(index, self._lookup)
                worker.page(lookup)
            worker.restore(Snapshot(self.checkpoint, entries, []), lookup)
            sends.append(worker.restore_later(self.kept.later[index::workers]))
        for each in sends:
            self._sent(each)

    def _lookup(self, name: str) -> Callable[[Sequence[Any]], list[tuple[Any, Any]]]:
        states = dict(self.kept.states.get(name, {}))
        return lambda keys: [(key, states[form_of_identity(key)]) for key in keys if form_of_identity(key) in states]

    def _forget(self, checkpoint: bytes) -> None:
        self.bag.clear()
        self.unfed = [each for each in self.inputs if each[0] >= checkpoint]
        for place in [place for place in self.output if place[1] >= checkpoint]:
            del self.output[place]


def _has_timers(value: Any) -> bool:
    return type(value) is tuple and len(value) == 2 and type(value[1]) is list
