"""What durable steps and checkpoints cost, and how long a run takes to be where it was after everything died: the
optimisation that "segment backup" poses, of a set of durable steps and of intervals between checkpoints.

Invariant: `least_cost` gives a choice whose predicted time to recover is within the bound, and none in the model that
is within it costs less, or says by how much one could.

Why: choices are looked at in the order of what their durable steps write at least, and once that alone, with the least
that any checkpoints cost, is as much as the best choice, none of the rest is better. For one choice of steps the
intervals are found segment by segment, keeping the pairs of time and cost that no other pair beats in both.

Everything is for each input item of the run; segments are those of `drift_graph.segments`, so items that bypass a
durable step are logged too, and the graph may be any that drift accepts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappop, heappush
from math import exp, inf, isinf
from typing import NamedTuple

from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow
from drift_graph.operators import Border, Sink, Source
from drift_graph.segments import Segment, segments_of

#: Intervals between checkpoints that are considered.
INTERVALS_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
#: Choices of durable steps that are looked at.
CHOICES_MAX = 10_000
_RETAINED = 3  # checkpoints


class Load(NamedTuple):
    """What an operator does for each input item of the run.

    Attributes:
        item_bytes: of one of them in a log.
        keys: that have states once all have come; `inf` if there are ever more.
        state_bytes: of a key in a checkpoint.
    """

    seconds: float = 0.0
    items: float = 0.0
    item_bytes: float = 0.0
    updates: float = 0.0
    keys: float = 0.0
    state_bytes: float = 0.0

    def changed(self, items: float) -> float:
        """Keys whose states change while so many input items come, each for any key."""
        touched = self.updates * items
        if isinf(self.keys) or not self.keys:
            return touched if self.keys else 0.0
        return self.keys * (1 - exp(-touched / self.keys))


class Store(NamedTuple):
    """What the place of logs and checkpoints costs.

    Attributes:
        passing_s: for an item that passes from one segment to the next, of a processor.
        checkpoint_s, checkpoint_bytes: of a checkpoint without states.
        key_s: for each state in it.
        loading_s: for a state that is read when its key comes again.
        start_s: until a run that resumes reads its first item; `segment_s` more for each further segment.
    """

    passing_s: float = 0.0
    checkpoint_s: float = 0.0
    checkpoint_bytes: float = 0.0
    key_s: float = 0.0
    loading_s: float = 0.0
    start_s: float = 0.0
    segment_s: float = 0.0


class Prices(NamedTuple):
    """Of an hour of a processor, of a GB written, and of a GB stored for a month."""

    cpu_hour: float = 0.05
    written_gb: float = 0.005
    stored_gb_month: float = 0.1


class SegmentCosts(NamedTuple):
    """A segment, for each input item: seconds of a processor, bytes it reads from the log before, and its states."""

    seconds: float
    read_bytes: float
    states: Sequence[Load]


class Choice(NamedTuple):
    """Durable steps and intervals, and what they come to; also those of a part of the segments.

    Attributes:
        intervals_s: between checkpoints, of each segment.
        cost: for 10**9 input items, of what durable steps and checkpoints add.
        cpu: of a processor, the share that they take.
        written_bytes: in a second.
        stored_bytes: of logs and states.
        mean_s: until the output is where it was, if everything dies at any moment.
        longest_s: the same just before a checkpoint of each segment.
        cheaper_by: how much less another choice could cost, where not all were looked at.
    """

    durable: tuple[str, ...]
    intervals_s: tuple[float, ...]
    cost: float
    cpu: float
    written_bytes: float
    stored_bytes: float
    mean_s: float
    longest_s: float
    cheaper_by: float = 0.0


@dataclass(frozen=True)
class Model:
    """
    Args:
        dataflow: whose own durable steps do not matter.
        rate: input items in a second.
        loads: by the name of the operator.
        at_once: whether segments run and recover at once, each on processors of its own, and not in turn.
    """

    dataflow: Dataflow
    rate: float
    loads: Mapping[str, Load]
    store: Store
    prices: Prices = field(default_factory=Prices)
    at_once: bool = False

    @cached_property
    def exits(self) -> dict[str, tuple[str, ...]]:
        """For each step that may be made durable, the operators at which its items leave it."""
        flow = self.dataflow
        after = {each.name: [target.name for target in flow.consumers(each.name)] for each in flow.operators}
        found: dict[str, list[str]] = {}
        refused: set[str] = set()
        for each in flow.operators:
            if isinstance(each, (Source, Sink, Border)) or each.asks:
                refused.add(each.step)
            elif any(flow[name].step != each.step for name in after[each.name]):
                found.setdefault(each.step, []).append(each.name)
                if each.name in _behind(each.name, after):
                    refused.add(each.step)
        return {step: tuple(names) for step, names in found.items() if step not in refused}

    def marked(self, durable: Collection[str]) -> Dataflow:
        """The graph with these steps durable, and no others."""
        exits = {name for step in durable for name in self.exits[step]}
        return replace(
            self.dataflow,
            operators=tuple(replace(each, durable=each.name in exits) for each in self.dataflow.operators),
        )

    def parts(self, durable: Collection[str]) -> tuple[list[SegmentCosts], float, float]:
        """The segments; and the items that pass between them, and their bytes."""
        parts: list[SegmentCosts] = []
        passed = passed_bytes = before_items = before_bytes = 0.0
        for segment in segments_of(self.marked(durable)):
            borders = segment.borders if isinstance(segment, Segment) else ()
            crossing = [self.loads.get(border.step, Load()) for border in borders]
            items = sum(load.items for load in crossing)
            size = sum(load.items * load.item_bytes for load in crossing)
            arriving = {border.name for border in segment.sources} if parts else set()
            own = [
                self.loads.get(each.name, Load())
                for each in segment.operators
                if each.name not in arriving and not isinstance(each, Border)
            ]
            seconds = sum(load.seconds for load in own) + self.store.passing_s * (before_items + items) / 2
            parts.append(SegmentCosts(seconds, before_bytes, [load for load in own if load.updates]))
            passed, passed_bytes = passed + items, passed_bytes + size
            before_items, before_bytes = items, size
        return parts, passed, passed_bytes

    def least(self, durable: Collection[str], within_s: float = inf) -> Choice | None:
        """The intervals of least cost for these durable steps; None if none are within the bound."""
        parts, passed, passed_bytes = self.parts(durable)
        store, rate = self.store, self.rate
        # What runs in turn cannot have done more in an interval than there was time for.
        busy = max(1.0, rate * (max if self.at_once else sum)(part.seconds for part in parts))
        start_s = store.start_s + store.segment_s * (len(parts) - 1)
        fronts = [self._options(part, busy) for part in parts]
        combined = [Choice((), (), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)]
        for front in fronts:
            joined = (self._joined(before, option) for before in combined for option in front)
            combined = _front(each for each in joined if start_s + each.longest_s <= within_s)
        if not combined:
            return None
        best = min(combined, key=lambda option: (option.cost, option.longest_s))
        cpu, written = rate * passed * store.passing_s, rate * passed_bytes
        return best._replace(
            durable=tuple(sorted(durable)),
            cost=best.cost + self._cost(cpu, written, 0.0),
            cpu=best.cpu + cpu,
            written_bytes=best.written_bytes + written,
            mean_s=start_s + best.mean_s,
            longest_s=start_s + best.longest_s,
        )

    def least_cost(self, within_s: float, choices_max: int = CHOICES_MAX) -> Choice:
        """The durable steps and intervals of least cost within the bound. Raises SettingsError: there are none."""
        best: Choice | None = None
        checkpoints = self._least_of_checkpoints(within_s)
        for looked_at, (written, durable) in enumerate(self._by_written()):
            if best is not None and written + checkpoints >= best.cost:
                return best
            if looked_at == choices_max:
                break
            choice = self.least(durable, within_s)
            if choice is not None and (best is None or choice.cost < best.cost):
                best = choice
        else:
            written = inf  # all were looked at
        if best is not None:
            return best._replace(cheaper_by=max(best.cost - written - checkpoints, 0.0))
        each = [[option.longest_s for option in self._options(part, 1.0)] for part in self.parts(())[0]]
        shortest = self.store.start_s + sum(min(times, default=inf) for times in each)
        raise SettingsError(
            f"no choice recovers within {within_s:g} s: a start alone takes {self.store.start_s:.2f} s here, and with "
            f"a checkpoint every {INTERVALS_S[0]:g} s and no durable step it takes {shortest:.2f} s"
        )

    def _by_written(self) -> Iterator[tuple[float, tuple[str, ...]]]:
        """All sets of steps, with the least cost of what they write: each item that leaves a durable step is logged."""
        prices = sorted((self._least_written(step), step) for step in self.exits)
        queue: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
        while queue:  # each set comes from the one without its last step, or with the step before it instead
            written, members = heappop(queue)
            yield written, tuple(prices[at][1] for at in members)
            following = members[-1] + 1 if members else 0
            if following < len(prices):
                heappush(queue, (written + prices[following][0], (*members, following)))
                if members:
                    swapped = written - prices[members[-1]][0] + prices[following][0]
                    heappush(queue, (max(swapped, written), (*members[:-1], following)))

    def _least_written(self, step: str) -> float:
        loads = [self.loads.get(name, Load()) for name in self.exits[step]]
        items = sum(load.items for load in loads)
        size = sum(load.items * load.item_bytes for load in loads)
        return self._cost(self.rate * items * self.store.passing_s, self.rate * size, 0.0)

    def _least_of_checkpoints(self, within_s: float) -> float:
        """What the states of each operator cost at least, had it all the time to itself."""
        items = sum(load.items for load in self.loads.values())
        busy = max(1.0, self.rate * sum(load.seconds for load in self.loads.values()))
        busy += self.rate * self.store.passing_s * items * (len(self.exits) + 1)
        alone = self.store._replace(checkpoint_s=0.0, checkpoint_bytes=0.0)
        total = 0.0
        for load in self.loads.values():
            if load.updates:
                options = replace(self, store=alone)._options(SegmentCosts(load.seconds, 0.0, [load]), busy)
                total += min((each.cost for each in options if each.longest_s <= within_s), default=0.0)
        return total

    def _options(self, part: SegmentCosts, busy: float) -> list[Choice]:
        store, rate = self.store, self.rate
        options = []
        for interval_s in INTERVALS_S:
            changed = [(load, load.changed(rate * interval_s)) for load in part.states]
            keys = sum(keys for _, keys in changed)
            taking_s = store.checkpoint_s + store.key_s * keys
            if taking_s > interval_s:
                continue
            cpu = taking_s / interval_s
            written = (store.checkpoint_bytes + sum(keys * load.state_bytes for load, keys in changed)) / interval_s
            logged = part.read_bytes * rate * interval_s * _RETAINED
            redone = part.seconds * rate / busy
            loading_s = store.loading_s * keys
            options.append(
                Choice(
                    (), (interval_s,), self._cost(cpu, written, logged), cpu, written, logged,
                    redone * (interval_s / 2 + taking_s) + loading_s, redone * (interval_s + taking_s) + loading_s,
                )
            )  # fmt: skip
        return options

    def _joined(self, before: Choice, option: Choice) -> Choice:
        times = (before.mean_s, option.mean_s), (before.longest_s, option.longest_s)
        mean_s, longest_s = (max(each) if self.at_once else sum(each) for each in times)
        return Choice(
            (),
            before.intervals_s + option.intervals_s,
            before.cost + option.cost,
            before.cpu + option.cpu,
            before.written_bytes + option.written_bytes,
            before.stored_bytes + option.stored_bytes,
            mean_s,
            longest_s,
        )

    def _cost(self, cpu: float, written_bytes: float, stored_bytes: float) -> float:
        """For 10**9 input items, of what is taken in a second, and of what is stored all the time."""
        prices = self.prices
        second = cpu * prices.cpu_hour / 3600 + written_bytes * prices.written_gb / 1e9
        return (second + stored_bytes * prices.stored_gb_month / 1e9 / (30 * 86400)) * 1e9 / self.rate


def _front(options: Iterable[Choice]) -> list[Choice]:
    """The options that no other beats in time and cost."""
    kept: list[Choice] = []
    for option in sorted(options, key=lambda each: (each.longest_s, each.cost)):
        if not kept or option.cost < kept[-1].cost:
            kept.append(option)
    return kept


def _behind(name: str, after: Mapping[str, Sequence[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(after[name])
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting += after[each]
    return found
