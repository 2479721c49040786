"""A run over zeromq as queues: the calling process and the workers, each a server that takes its jobs in order.

Assumptions, beside the measured costs:

- Keys spread evenly, and every level sends all items on to the owners of other keys.
- A batch has 4,096 items for each worker, and no more than `in_flight_max`, a million by default, are in flight in all.
- A worker's share of a batch takes 0.8 of its mean, and a drawn rest with an exponential distribution; its share of the
  next level begins when all shares of this level have ended, and the older batch goes first.
- A worker takes 16 messages a turn, and acks once a turn. It sends each turn a message to every worker, or one for each
  item where it has fewer.
- Half of what ZeroMQ takes for a frame is the sender's, half the receiver's. The network is not what bounds.
- The acker sends all workers a notice when minimal time has moved, once a millisecond at most.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

from benchmarks.scale.measured import Measured

_ITEMS_OF_WORKER, _IN_FLIGHT_MAX, _TURN_MESSAGES, _NOTICE_S, _FEW = 4096, 1_000_000, 16, 0.001, 0.8


@dataclass(frozen=True)
class Layout:
    """Where the acker, the barrier and the sources are.

    Attributes:
        apart: the feed, the acker and the barrier are a process each.
        fan: an acker of its own for so many workers, which sends one ack on for all that came meanwhile and hands out
            notices; 0 for one acker.
        barriers: over which the output is spread, evenly, by sink.
        feeds: workers read their own share of the sources.
    """

    name: str
    apart: bool = True
    fan: int = 0
    barriers: int = 1
    feeds: bool = False


LAYOUTS = (
    Layout("as it is", apart=False),
    Layout("apart"),
    Layout("tree of ackers", fan=32),
    Layout("and 4 barriers", fan=32, barriers=4),
    Layout("and own sources", fan=32, barriers=4, feeds=True),
)


@dataclass(frozen=True)
class Case:
    """Workers, levels of groupings, and the seconds that a step takes for an item beside drift's own."""

    workers: int
    levels: int
    step: float


class _Demands:
    """What one batch asks of each process, in seconds."""

    def __init__(self, costs: Measured, case: Case, layout: Layout) -> None:
        workers, half = case.workers, costs.frame / 2
        self.items = min(_ITEMS_OF_WORKER * workers, _IN_FLIGHT_MAX // 2)
        self.ahead = max(min(2 * (workers + 1), _IN_FLIGHT_MAX // self.items), 1)
        share = self.items / workers
        per_byte = costs.frame_byte * costs.item_bytes / 2
        self.feed = workers * (costs.feed_message + half) + self.items * (costs.feed_item + per_byte)
        self.feed *= not layout.feeds
        hearers = math.ceil(workers / layout.fan) if layout.fan else workers
        self.notice = hearers * half
        self.shares: list[float] = []
        self.acks: list[float] = []
        messages = 1.0
        for level in range(case.levels):
            turns = math.ceil(messages / _TURN_MESSAGES)
            last = level == case.levels - 1
            sent = turns if last else min(turns * workers, share)
            self.shares.append(
                (messages + sent) * (costs.worker_message + half)
                + turns * half
                + share * (costs.worker_item + case.step + 2 * per_byte)
            )
            self.acks.append((hearers if layout.fan else workers * turns) * (costs.ack + half))
            messages = sent
        in_barrier = workers * messages * (costs.barrier_message + half) + self.items * (costs.barrier_item + per_byte)
        self.barrier = in_barrier / layout.barriers


@dataclass(frozen=True)
class Planned:
    """Items a second, and the busy share of each process."""

    items_per_s: float
    busy: dict[str, float]

    @property
    def bound(self) -> str:
        """What is busiest."""
        return max(self.busy, key=lambda name: self.busy[name])


def simulated(costs: Measured, case: Case, layout: Layout, batches: int) -> Planned:
    """A run of so many batches, or four times those in flight if that is more; the first half is not counted."""
    demands, draw = _Demands(costs, case, layout), random.Random(case.workers)
    servers: dict[str, float] = defaultdict(float)  # when each is free
    used: dict[str, float] = defaultdict(float)
    workers = [0.0] * case.workers
    noticed = begun_s = 0.0
    batches = max(batches, 4 * demands.ahead)
    events: list[tuple[float, int, int]] = []  # (when, batch, what it has passed: -1 nothing, a level)
    for batch in range(demands.ahead):
        heappush(events, (0.0, batch, -1))
    fed, done, counted_from = len(events), 0, batches // 2

    def served(name: str, at: float, seconds: float) -> float:
        server = name if layout.apart else "caller"
        servers[server] = max(servers[server], at) + seconds
        used[server] += seconds * (done >= counted_from)
        return servers[server]

    while done < batches:
        now, batch, passed = heappop(events)
        if passed == case.levels:
            done += 1
            if now - noticed >= _NOTICE_S:
                noticed = now
                served("acker", now, demands.notice)
            begun_s = now if done == counted_from else begun_s
            heappush(events, (now, fed, -1))
            fed += 1
        elif passed < 0:
            heappush(events, (served("feed", now, demands.feed), batch, 0))
        else:
            mean = demands.shares[passed]
            for worker, free in enumerate(workers):
                seconds = mean * (_FEW - (1 - _FEW) * math.log(1 - draw.random()))
                workers[worker] = max(free, now) + seconds
                used["workers"] += seconds / case.workers * (done >= counted_from)
            ended = max(workers)
            acked = served("acker", ended, demands.acks[passed])
            last = passed == case.levels - 1
            heappush(events, (served("barrier", acked, demands.barrier) if last else ended, batch, passed + 1))
    took = now - begun_s
    return Planned((done - counted_from) * demands.items / took, {name: each / took for name, each in used.items()})


def alone(costs: Measured) -> Iterable[tuple[str, float]]:
    """What one process bears that does nothing else, each second: of the smallest and of large messages."""
    half = costs.frame / 2
    yield "acks, one acker", 1 / (costs.ack + half)
    yield "messages of one item, one barrier", 1 / (costs.barrier_message + costs.barrier_item + half)
    per_item = costs.frame_byte * costs.item_bytes / 2 + half / _ITEMS_OF_WORKER
    yield (
        "items in messages of 4,096, one barrier",
        1 / (costs.barrier_item + costs.barrier_message / _ITEMS_OF_WORKER + per_item),
    )
    yield (
        "items in messages of 4,096, one feed",
        1 / (costs.feed_item + costs.feed_message / _ITEMS_OF_WORKER + per_item),
    )
    yield "messages of one item, one feed", 1 / (costs.feed_message + costs.feed_item + half)
