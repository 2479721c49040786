"""A worker: gets batches, runs stages and programs until none is left for itself, and returns the batches to send.

Invariant: the items that a worker sends for some batches are the difference between the outputs of its keys before and
after; none of them is below the least meta of those batches.

Why: a component of the graph runs once, on all items that have come for it. Only if items come back to it, it runs
item by item, least meta first, as the reference does, so that an item finds the states before it. Later items wait
before their grouping until their time, and so do all items of a grouping that gives nothing before a timer fires; so do
outputs of a stage before their maps (`unmapped.py`). A worker with such items reports the least of them
(`least_later`), and gets a turn when some are due (`is_due`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any, NamedTuple

from drift.machines.checkpoints import DELETED, Entries, Lookup
from drift.machines.keyed import KeyedStage
from drift.machines.keys import Partitioner, keyed
from drift.machines.maps import Origins, Ports
from drift.machines.pending import Pending, split
from drift.machines.plan import Plan
from drift.machines.sent import LaterSent, SentLater, as_ports
from drift.machines.unmapped import FIRST, GROWTH, Unmapped
from drift_barrier.barrier import FAILURES, without_pairs
from drift_graph.functions import field_of
from drift_graph.item import Columns, joined, sorted_by_meta
from drift_graph.meta import BEGINNING, END_OF_TIME, global_time_of, in_rounds, reached, varint
from drift_graph.metas import Metas
from drift_graph.operators import Group
from drift_graph.payloads import are_rows
from drift_graph.sizes import BATCH_BYTES, made_bytes
from drift_graph.unchanged import Sampler

#: A batch of items with its target: a source's program, a grouping, a sink, or FAILURES.
Part = tuple[str, Columns]

#: In place of a worker's index: the output barrier.
BARRIER = -1

#: So many have numbers of one byte.
_WORKERS_MAX = 0x100

#: For each byte the translation that makes it 1, and every other 0.
_ones = [bytes(each == byte for each in range(0x100)) for byte in range(0x100)]


class Router:
    """Splits the items for a grouping by the workers that own their keys.

    Args:
        plan: its groupings are partitioned; items for other targets go to the barrier.
        workers: how many share the keys.
    """

    def __init__(self, plan: Plan, workers: int) -> None:
        self._plan = plan
        self._partitioner = Partitioner(workers)
        inside = {name for component in plan.components for name in component}
        self._groups = {
            name: (replace(operator, key=plan.key_of(name)), varint(rank), Sampler())
            for name, rank in plan.dataflow.ranks.items()
            if name in inside and (operator := plan.dataflow.groups.get(name)) is not None
        }

    def owners(self, identities: Sequence[Any]) -> list[int]:
        return self._partitioner.owners(identities) if self._partitioner.workers > 1 else [0] * len(identities)

    def shares(self, columns: Columns, identities: Sequence[Any], places: Any) -> Iterator[tuple[int, Columns]]:
        """Each worker with the items of a batch that it owns.

        Args:
            identities: of keys; `places`: an array with the place of each item's key among these.
        """
        if not columns.metas:
            return iter(())
        owners = self.owners(identities)
        return _shares(columns, list(map(owners.__getitem__, places.tolist())), self._partitioner.workers)

    def route(self, ports: Ports) -> dict[int, list[Part]]:
        """Parts by worker, and for the barrier."""
        sends: dict[int, list[Part]] = {}
        groups = [name for name in ports if name in self._groups]
        for name in groups:
            group, rank, sampler = self._groups[name]
            for columns in ports[name]:
                if self._partitioner.workers == 1:
                    sends.setdefault(0, []).append((name, columns))
                    continue
                owners = self._owners_of_rows(group, columns.payloads)
                if owners is None:
                    columns, keys = keyed(group, rank, columns, ports, sampler)
                    owners = self._partitioner.owners(keys)
                for worker, share in _shares(columns, owners, self._partitioner.workers):
                    sends.setdefault(worker, []).append((name, share))
        for name, batches in ports.items():  # after the groupings: a key that raises adds to FAILURES
            if name not in self._groups:
                sends.setdefault(BARRIER, []).extend((name, columns) for columns in batches if columns.metas)
        return sends

    def _owners_of_rows(self, group: Group, payloads: Any) -> Sequence[int] | None:
        """The worker of each row; None if they are to be found one by one."""
        if self._partitioner.workers > _WORKERS_MAX or not are_rows(payloads):
            return None
        names = field_of(group.key, "paths")
        if names is None and payloads.has_fields:
            return None
        return payloads.remainders(names or (), self._partitioner.workers)


def gathered(parts: list[Part]) -> list[Part]:
    """Join the parts of each name, except rows, of which copies would be made."""
    if len(parts) == 1:
        return parts
    batches: Ports = {}
    separate: list[Part] = []
    for name, columns in parts:
        if are_rows(columns.payloads):
            separate.append((name, columns))
        else:
            batches.setdefault(name, []).append(columns)
    return separate + [(name, joined(each)) for name, each in batches.items()]


def _shares(columns: Columns, owners: Sequence[int], workers: int) -> Iterator[tuple[int, Columns]]:
    """Each worker with the items of a batch that it owns."""
    in_bytes = bytes(owners) if workers <= _WORKERS_MAX else None
    for worker in range(workers) if in_bytes is not None else sorted(set(owners)):
        chosen = in_bytes.translate(_ones[worker]) if in_bytes is not None else bytes(map(worker.__eq__, owners))
        if 1 in chosen:
            yield worker, columns.chosen(chosen) if 0 in chosen else columns


def _in_order(batches: Sequence[Columns]) -> Sequence[Columns]:
    """The batches as they are, if they are sorted and do not overlap; else one batch, sorted by meta."""
    if len(batches) > 1 and all(columns.metas and columns.metas.is_increasing() for columns in batches):
        ordered = sorted(batches, key=lambda columns: columns.metas[0])
        if all(before.metas[-1] < after.metas[0] for before, after in pairwise(ordered)):
            return ordered
    return [sorted_by_meta(joined(batches))]


class Snapshot(NamedTuple):
    """A worker's part of a checkpoint: the changes since the previous checkpoint.

    Attributes:
        states: for each grouping, by the identity of the key: the state that items at or above the checkpoint need, or
            DELETED.
        later: later items at or above the checkpoint that it sent since the previous one. The later items of a
            checkpoint are those of all its snapshots, and of earlier checkpoints, that are at or above it.
    """

    checkpoint: bytes
    states: dict[str, Entries]
    later: list[LaterSent]


def timed_steps(plan: Plan) -> frozenset[str]:
    """The groupings whose states include timers."""
    return frozenset(_timed(plan.stages()))


def _timed(stages: Mapping[str, KeyedStage]) -> dict[str, KeyedStage]:
    return {name: stage for name, stage in stages.items() if stage.is_timed}


class Worker:
    """The machine of one worker.

    Args:
        plan: what to run; shared, never changed.
        index: which of the workers this is.
        workers: how many there are.
        rewinds: whether it may have to rewind to a checkpoint: then it stores the later items that it sends until they
            are settled.
        tracks: whether checkpoints are taken of it.
        knows_flight: whether `settle` gets frontiers by level, below which nothing is in flight: then what comes to a
            grouping is complete below the one that it reads.

    Attributes:
        frontiers: by level, below which nothing is in flight or waits, as far as this worker has heard.
        holds_later: whether items may wait here for their time, so that a turn depends on the heartbeat.
    """

    def __init__(
        self,
        plan: Plan,
        index: int = 0,
        workers: int = 1,
        *,
        rewinds: bool = False,
        tracks: bool = False,
        knows_flight: bool = False,
    ) -> None:
        self._plan = plan
        self._index = index
        self._router = Router(plan, workers)
        self._stages = plan.stages()
        self._levels = plan.levels
        self._bounded = plan.settled(self._stages) if knows_flight else {}
        if rewinds or tracks:
            for name in self._bounded:
                self._stages[name].go_back_by(partial(plan.stage, name, (name,)))
        self._timed = _timed(self._stages)
        self._undecided = dict.fromkeys(self._bounded)  # whether all items wait
        waiting = [name for name, stage in self._stages.items() if stage.only_at_ends or name in self._bounded]
        self._pending = {name: Pending(plan.rounds_from) for name in (self._stages if plan.puts_later else waiting)}
        self.holds_later = bool(self._timed or self._pending)
        self._heartbeat = self._minimal_time = BEGINNING
        self.frontiers: Sequence[bytes] = [BEGINNING] * self._levels.count
        self._bounds = dict.fromkeys(self._stages, BEGINNING)  # below it all has come to a stage
        self._at_once = FIRST  # that fire at once: as many as make a batch, once that is known
        self._sent = SentLater() if plan.puts_later and (rewinds or tracks) else None
        self._checkpoint = BEGINNING  # the last checkpoint taken
        if tracks:
            self.track()
        self._cyclic = {component: plan.is_cyclic(component) for component in plan.components}
        self._in_order = [self._stages[name] for names, cyclic in self._cyclic.items() if not cyclic for name in names]
        self._unmapped = {
            name: Unmapped(plan.programs[name])
            for names, cyclic in self._cyclic.items()
            if not cyclic
            for name in names
            if plan.programs[name].has_maps
        }
        self._takes_all = True  # in this turn
        self.tombstones = 0

    def turn(
        self,
        parts: Sequence[Part],
        minimal_time: bytes = BEGINNING,
        heartbeat: bytes = BEGINNING,
        rest: list[Part] | None = None,
    ) -> dict[int, list[Part]]:
        """Process batches for this worker, from sources and for groupings, and everything that they cause here.

        Args:
            minimal_time: as in `settle`.
            heartbeat: all items below it have come, with these batches at the latest, and later items below it are due.
            rest: gets the last items of sources' batches, where too much is made of the first, and outputs of stages
                may wait here for their maps; None: all are taken.

        Returns:
            The parts to send, by worker and for the barrier.
        """
        ports: Ports = {}
        self._takes_all = rest is None
        for name, columns in parts:
            if name not in self._stages:
                self._run_program(name, columns, ports, rest)
        heartbeat = min([heartbeat, *(columns.metas[0] for _, columns in rest or ())])
        if heartbeat:
            if self.holds_later:  # the heartbeat makes later items due
                self.settle(minimal_time, heartbeat)
            complete_below = min(heartbeat, self._complete_below())
            for stage in self._in_order:
                stage.complete_below = complete_below
        waiting: Ports = {}
        sends: dict[int, list[Part]] = {}
        for name, columns in parts:
            if name in self._stages:
                self._await(name, columns, waiting)
        self._send(ports, waiting, sends)
        for name, pending in self._pending.items():
            if due := pending.take(self._bounds[name], self._minimal_time):
                waiting.setdefault(name, []).extend(due)
        for name, timed in self._timed.items():
            timed.heartbeat = self._due_below(name)
        for name, stage in self._bounded.items():
            stage.complete_below = self._bounds[name]
        fired_below: bytes = END_OF_TIME
        for component in self._plan.components:
            if fired_below != END_OF_TIME:
                self._hold_back(component, fired_below)
            if self._cyclic[component]:
                self._run_cycle(component, waiting, sends)
            else:
                name = component[0]
                self._map(name, waiting, sends)
                if name in waiting:
                    self._run_stage(name, waiting.pop(name), waiting, sends)
                self._fire(name, waiting, sends)
            for name in component:
                if name in self._timed and self._timed[name].is_due:
                    fired_below = min(fired_below, self._timed[name].least_timer or fired_below)
                if name in self._unmapped:
                    fired_below = min(fired_below, self._unmapped[name].least or fired_below)
        assert not waiting  # items for an earlier component wait for their round instead
        return {receiver: gathered(parts) for receiver, parts in sends.items()}

    def _complete_below(self) -> bytes:
        """A bound below which nothing waits or will wait for its time: neither timers nor items of later rounds."""
        if not self.holds_later:
            return END_OF_TIME
        if not self._plan.puts_later:
            return self._heartbeat
        if in_rounds(self._minimal_time):
            return min(self._heartbeat, reached(self._minimal_time))
        return min(self._heartbeat, self._plan.rounds_from)

    @property
    def _before_their_time(self) -> list[tuple[str, Pending | Unmapped]]:
        return [*self._pending.items(), *self._unmapped.items()]

    @property
    def least_later(self) -> bytes | None:
        """The least global time of an item that waits here for its time, or a lower one; None if none waits."""
        return min((least for least in self.least_by_level if least is not None), default=None)

    @property
    def least_by_level(self) -> list[bytes | None]:
        """The least global time of an item that waits here for its time, or a lower one, by the level that it holds."""
        found: list[bytes | None] = [None] * self._levels.count
        held = [(name, stage.least_timer) for name, stage in self._timed.items()]
        held += [(name, each.least) for name, each in self._before_their_time]
        for name, least in held:
            level = self._levels.behind[name]
            if least is not None and ((known := found[level]) is None or least < known):
                found[level] = least
        floors = (max(self._minimal_time, frontier) for frontier in self.frontiers)
        return [least and max(global_time_of(least), floor) for least, floor in zip(found, floors)]

    @property
    def is_due(self) -> bool:
        """Whether the time of items that waited here has come: a turn takes them."""
        if any(stage.is_due for stage in self._timed.values()) or any(map(len, self._unmapped.values())):
            return True
        return any(each.is_due(self._bounds[name], self._minimal_time) for name, each in self._pending.items())

    def pass_maps(self, parts: Sequence[Part], rest: list[Part] | None = None) -> dict[int, list[Part]]:
        """Run sources' batches through their maps only, and split the items for groupings by owner.

        Returns the parts to send, including this worker's own share.

        An engine that calls this first and `turn` later can process older items of other workers in between.

        Args:
            rest: as in `turn`.
        """
        ports: Ports = {}
        for name, columns in parts:
            if name in self._stages:
                ports.setdefault(name, []).append(columns)
            else:
                self._run_program(name, columns, ports, rest)
        return {receiver: gathered(each) for receiver, each in self._router.route(ports).items()}

    def _run_program(self, source: str, columns: Columns, ports: Ports, rest: list[Part] | None = None) -> None:
        if source == FAILURES:  # items that could not be sent here are passed on to the barrier
            ports.setdefault(FAILURES, []).append(columns)
        elif rest is None:
            self._run_maps(source, columns, ports)
        else:
            made: Ports = {}
            origins: Origins | None = None if self._sent is None else {}
            taken = self._plan.programs[source].run_some(columns, made, origins)
            if taken < len(columns.metas):
                rest.append((source, columns.slice(taken, len(columns.metas))))
            if self._sent is not None and origins is not None:
                self._sent.add(made, origins, columns.metas, b"")
            for port, batches in made.items():
                ports.setdefault(port, []).extend(batches)

    def _map(self, name: str, waiting: Ports, sends: dict[int, list[Part]]) -> None:
        """Run outputs of a stage that wait here through their maps."""
        if name in self._unmapped and len(self._unmapped[name]):
            ports: Ports = {}
            self._map_some(name, ports)
            self._send(ports, waiting, sends)

    def _map_some(self, name: str, ports: Ports) -> None:
        """Run outputs of a stage through its maps: all, or the first ones until enough has been made for a turn."""
        unmapped, suffix, ended = self._unmapped[name], self._stages[name].suffix, self._heartbeat == END_OF_TIME
        for columns, made, origins in unmapped.run(suffix, ended, takes_all=self._takes_all):
            if self._sent is not None:
                self._sent.add(made, origins, columns.metas, suffix)
            for port, batches in made.items():
                ports.setdefault(port, []).extend(batches)

    def _run_maps(self, name: str, columns: Columns, ports: Ports, suffix: bytes = b"", ended: bool = False) -> None:
        """Run the program after a source or a grouping."""
        if self._sent is None:
            self._plan.programs[name].run(columns, ports, suffix, ended)
            return
        made: Ports = {}
        origins: Origins = {}
        self._plan.programs[name].run(columns, made, suffix, ended, origins)
        self._sent.add(made, origins, columns.metas, suffix)
        for port, batches in made.items():
            ports.setdefault(port, []).extend(batches)

    def settle(
        self,
        minimal_time: bytes,
        heartbeat: bytes = BEGINNING,
        frontiers: Sequence[bytes] = (),
        in_flight: bytes = END_OF_TIME,
    ) -> None:
        """Drop what is only needed for changes below minimal time, since nothing below it is in flight.

        Args:
            heartbeat: the least of all sources: later items below it are due in the next turn.
            frontiers: by level, in place of a heartbeat.
            in_flight: the least of what is in flight.
        """
        self._minimal_time = max(self._minimal_time, minimal_time)
        for stage in self._stages.values():
            stage.settle(minimal_time)
        if self._sent is not None:
            self._sent.settle(minimal_time)
        if frontiers:
            heartbeat = frontiers[0]
            self.frontiers = list(map(max, self.frontiers, frontiers))
        else:
            frontiers = [heartbeat] * self._levels.count
        self._heartbeat = max(self._heartbeat, heartbeat)
        for name, level in self._levels.reads.items():
            below = min(frontiers[level], in_flight) if name in self._levels.cyclic else frontiers[level]
            self._bounds[name] = max(self._bounds[name], below)
        for name, stage in self._bounded.items():
            stage.complete_below = self._bounds[name]
        for name, timed in self._timed.items():
            timed.heartbeat = self._due_below(name)
            timed.ended = self._bounds[name] == END_OF_TIME

    def _due_below(self, name: str) -> bytes:
        """Timers of a stage below it are due."""
        if self._plan.puts_later and in_rounds(self._minimal_time):  # timers of a round wait for all of its items
            return min(self._bounds[name], reached(self._minimal_time))
        return self._bounds[name]

    # States that are not in memory.

    def page(self, lookup: Callable[[str], Lookup]) -> None:
        """States may be dropped from memory; called before any item, and before `restore`.

        Args:
            lookup: by name of the grouping, finds the last states that `drop` gave, or those from before the run.
        """
        for name, stage in self._stages.items():
            stage.page(lookup(name))

    def pages(self) -> list[Mapping[Any, Any]]:
        """The states in memory that may be dropped, by key, of each grouping that drops any."""
        return [pages for stage in self._stages.values() if (pages := stage.pages)]

    def drop(self, keys_at_once: int, *, recent: bool) -> Iterator[Snapshot]:
        """Drop states from memory; see `KeyedState.drop`."""
        for name, stage in self._stages.items():
            for entries in stage.drop(keys_at_once, recent=recent):
                yield Snapshot(self._minimal_time, {name: entries}, [])

    # As of a checkpoint.

    def track(self) -> None:
        """Start tracking changes for checkpoints, before any item."""
        for stage in self._stages.values():
            stage.track()

    def snapshot(self, checkpoint: bytes) -> Snapshot:
        """This worker's snapshot of a checkpoint: the changes since the last checkpoint.

        To be called when minimal time has reached the checkpoint, before `settle` with a greater one.
        """
        later = self._sent.since(self._checkpoint, checkpoint) if self._sent is not None else []
        self._checkpoint = checkpoint
        return Snapshot(
            checkpoint, {name: entries for name, entries in self.changed(checkpoint).items() if entries}, later
        )

    def changed(self, checkpoint: bytes) -> dict[str, Entries]:
        """The states of a snapshot, by grouping."""
        return {name: stage.changed(checkpoint) for name, stage in self._stages.items()}

    def stop_checkpoints(self) -> None:
        """Stop tracking: no more checkpoints will be taken, and the worker will not rewind to one."""
        self._sent = None
        for stage in self._stages.values():
            stage.track(tracks=False)

    def rewind(self, checkpoint: bytes) -> dict[int, list[Part]]:
        """Forget all that is at or above a checkpoint, which is not below the last minimal time passed to `settle`.

        Minimal time and heartbeat become the checkpoint.

        Returns:
            The parts to send again: later items at or above the checkpoint that were made from items below it. Those
            for this worker wait here already.
        """
        for stage in self._stages.values():
            stage.rewind(checkpoint)
        for _, waiting in self._before_their_time:
            waiting.clear()
        self._begin_at(checkpoint)
        return self._send_again(self._sent.rewind(checkpoint)) if self._sent is not None else {}

    def restore(self, snapshot: Snapshot, lookup: Callable[[str], Lookup] | None = None) -> None:
        """Restore this worker's keys from a snapshot of a checkpoint, before any item.

        Args:
            snapshot: of any worker, even from a run with another number of workers; to be called with each snapshot of
                the checkpoint.
            lookup: by name of the grouping, a lookup for keys that are in no snapshot.
        """
        for name, stage in self._stages.items():
            entries = [(key, value) for key, value in snapshot.states.get(name, ()) if value is not DELETED]
            owners = self._router.owners([key for key, _ in entries])
            stage.restore(
                [entry for entry, owner in zip(entries, owners) if owner == self._index],
                lookup(name) if lookup else None,
            )
        self._checkpoint = snapshot.checkpoint
        self._begin_at(snapshot.checkpoint)

    def restore_later(self, later: Sequence[LaterSent]) -> dict[int, list[Part]]:
        """Become the sender of later items of the restored checkpoint.

        Returns:
            The parts to send to workers that do not have these items; those for this worker wait here already.
        """
        due = [each for each in later if each.meta >= self._checkpoint]
        if self._sent is not None:
            self._sent.take_over(due)
        return self._send_again(due)

    def _begin_at(self, checkpoint: bytes) -> None:
        self._minimal_time = self._heartbeat = checkpoint
        self.frontiers = [checkpoint] * self._levels.count
        self._bounds = dict.fromkeys(self._bounds, checkpoint)
        for stage in self._stages.values():
            stage.settle(checkpoint)
        for timed in self._timed.values():
            timed.heartbeat, timed.ended = checkpoint, False

    def _send_again(self, later: Sequence[LaterSent]) -> dict[int, list[Part]]:
        waiting: Ports = {}
        sends: dict[int, list[Part]] = {}
        self._send(as_ports(later), waiting, sends)
        assert not waiting
        return {receiver: gathered(parts) for receiver, parts in sends.items()}

    def waiting(self) -> Iterator[Part]:
        """Later items that wait before stages for their time."""
        for name, pending in self._pending.items():
            yield from ((name, columns) for columns in pending.held())

    @property
    def held(self) -> int:
        """How many items and tombstones are stored for changes that may still come."""
        return sum(stage.held for stage in self._stages.values()) + sum(
            len(each) for _, each in self._before_their_time
        )

    def _run_stage(self, name: str, batches: Sequence[Columns], waiting: Ports, sends: dict[int, list[Part]]) -> None:
        ports: Ports = {}
        stage = self._stages[name]
        for columns in _in_order(batches) if batches else ():
            waits = self.keeps(name, columns)
            below = min(self._bounds[name], stage.complete_below) if name in self._bounded else self._bounds[name]
            if waits and columns.metas and columns.metas[-1] >= below:
                end = columns.metas.count_below(below)
                self._pending[name].add(columns.slice(end, len(columns.metas)))
                columns = columns.slice(0, end)
            if waits and name in self._bounded:  # else pairs are logged, which is not what it goes back by
                columns = without_pairs(columns, final=True)
            self._run_program_of(stage, name, self._out_of(name, stage.process, columns, ports), ports)
        self._send(ports, waiting, sends)

    def keeps(self, name: str, columns: Columns) -> bool:
        """Whether these items of a grouping wait here for the frontier."""
        return self._stages[name].only_at_ends or self._settles(name, columns)

    def _settles(self, name: str, columns: Columns) -> bool:
        """Whether these items of a grouping wait until nothing is in flight below them.

        A stage either corrects nothing or logs all: whether its first items are rows decides. Where both were done by
        turns, what rows in arrays had left had timers that nobody knew of, in front of which the frontier had passed.
        """
        if name in self._undecided and columns.metas:
            del self._undecided[name]
            if not are_rows(columns.payloads):
                del self._bounded[name]
        return name in self._bounded

    def _fire(self, name: str, waiting: Ports, sends: dict[int, list[Part]]) -> None:
        """Fire the timers of a stage that are due, the first ones first, until enough has been made for a turn."""
        stage, in_all = self._timed.get(name), 0
        unmapped: Sized = self._unmapped.get(name, ())
        while stage is not None and stage.is_due and in_all < BATCH_BYTES and not len(unmapped):
            ports: Ports = {}
            self._run_program_of(stage, name, self._out_of(name, stage.fire, ports, self._at_once), ports)
            made = made_bytes(columns.payloads for batches in ports.values() for columns in batches)
            in_all += made
            self._send(ports, waiting, sends)
            if not stage.fired:
                return
            self._at_once = max(min(GROWTH * self._at_once, BATCH_BYTES * stage.fired // max(made, 1)), 1)

    def _hold_back(self, names: Sequence[str], below: bytes) -> None:
        """Timers of other stages are still to fire from a meta on: below it only these are complete, and fire."""
        for name in names:
            stage = self._stages[name]
            stage.complete_below = min(stage.complete_below, below)
            if name in self._timed:
                self._timed[name].heartbeat = min(self._timed[name].heartbeat, below)

    def _out_of(self, name: str, work: Callable[..., Columns], *arguments: Any) -> Columns:
        """The output of a stage, whose time at work is noted if there are counts."""
        counts = self._plan.counts
        if counts is None:
            return work(*arguments)
        began_s = counts.clock()
        out = work(*arguments)
        counts.of(self._plan.output_of(name)).busy_s += counts.clock() - began_s
        return out

    def _run_program_of(self, stage: KeyedStage, name: str, out: Columns, ports: Ports) -> None:
        if out.diffs is not None:
            self.tombstones += out.diffs.count(-1)
        if name in self._unmapped:
            self._unmapped[name].add(out)
            self._map_some(name, ports)
        else:
            self._run_maps(name, out, ports, stage.suffix, self._heartbeat == END_OF_TIME)

    def _run_cycle(self, component: tuple[str, ...], waiting: Ports, sends: dict[int, list[Part]]) -> None:
        """Run the stages of a cycle meta by meta, the least first, until nothing comes back to this worker.

        A tombstone and the item that replaces it have the same meta and go to a stage in one batch: separately, each
        would change the windows after it, and so the number of changes would double each time round.
        """
        heap: list[tuple[bytes, str, int, Any, int]] = []
        pushed = 0
        while True:
            for name in component:
                for columns in waiting.pop(name, ()):
                    ones = columns.diffs or [1] * len(columns.metas)
                    for meta, payload, diff in zip(columns.metas, columns.payloads, ones):
                        pushed += 1
                        heappush(heap, (meta, name, pushed, payload, diff))
            if not heap:
                for name in component:
                    self._fire(name, waiting, sends)
                if any(name in waiting for name in component):
                    continue
                return
            least, name = heap[0][:2]
            metas, payloads, diffs = [], [], []
            while heap and heap[0][0] == least and heap[0][1] == name:
                meta, _, _, payload, diff = heappop(heap)
                metas.append(meta)
                payloads.append(payload)
                diffs.append(diff)
            self._run_stage(name, [Columns(Metas(metas), payloads, diffs if -1 in diffs else None)], waiting, sends)

    def _send(self, ports: Ports, waiting: Ports, sends: dict[int, list[Part]]) -> None:
        """Split off the parts for this worker itself, and add the others to `sends`."""
        if not ports:
            return
        for worker, parts in self._router.route(ports).items():
            if worker != self._index:
                assert self._levels.stays.isdisjoint(name for name, _ in parts), "the plan took a key for another"
                sends.setdefault(worker, []).extend(parts)
                continue
            for name, columns in parts:
                self._await(name, columns, waiting)

    def _await(self, name: str, columns: Columns, waiting: Ports) -> None:
        """Queue a batch for a grouping of this worker; its later items may have to wait for their time."""
        now: Columns | None = columns
        if self._plan.puts_later and columns.metas.some_later():
            now, later = split(columns, self._bounds[name], self._minimal_time)
            if later is not None:
                self._pending[name].add(later)
        if now is not None:
            waiting.setdefault(name, []).append(now)
