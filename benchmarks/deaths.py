"""From the death of a worker to the next release, by how many keys it had.

    python -m benchmarks.deaths --keys 10000 1000000 --kills 20
    python -m benchmarks.deaths --votes --keys 1000000 10000000 --kills 11

Running counts by key over zeromq with two workers, from a live source: first every key once, then keys at random, at a
rate; or with --votes the shape of tree clocks' experiment: every key is an article, and then votes are joined to them.
Once the snapshots of that load have been merged, which takes minutes for 10,000,000 keys, a worker is killed by
SIGKILL, again and again, and the time is taken until the first item comes that was not released before; with --at-once
kills begin before that, when a new worker has to read them as they are. Last it says how much of a core a loop gets
that does nothing else: where that is well below 1, others are at work on the machine, and the times are theirs as well.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Sequence
from random import Random
from statistics import median, quantiles

import drift
from drift.engines.zeromq.engine import ZeromqEngine


class Numbers:
    """Every key once, as fast as they are taken; then keys at random, so many in a second, without end."""

    live = True

    def __init__(self, keys: int, rate: int) -> None:
        self._keys, self._rate = keys, rate
        self._random = Random(7)
        self._returned = 0
        self._since_s = 0.0

    def open(self) -> Numbers:
        return self

    def read(self, items_max: int) -> list[tuple[int, int]]:
        first = self._returned
        if first < self._keys:
            self._returned = min(first + items_max, self._keys)
            self._since_s = time.monotonic()
            return [(number, number) for number in range(first, self._returned)]
        due = self._keys + int((time.monotonic() - self._since_s) * self._rate)
        self._returned = min(due, first + items_max)
        return [(number, self._random.randrange(self._keys)) for number in range(first, self._returned)]

    def filenos(self) -> Sequence[int]:
        return ()

    def close(self) -> None:
        """There is nothing to do."""


def counted() -> drift.Graph:
    graph = drift.Graph("counted")
    numbers = graph.source("numbers", time=drift.EventTime(lambda pair: pair[0]))
    numbers.scan(lambda pair: pair[1], 0, lambda count, pair: (count + 1, (pair[1], count + 1))).sink("counts")
    return graph


def voted(articles: int) -> drift.Graph:
    graph = drift.Graph("voted")
    numbers = graph.source("numbers", time=drift.EventTime(lambda pair: pair[0]))
    votes = numbers.filter(lambda pair: pair[0] >= articles)
    votes.join(numbers.filter(lambda pair: pair[0] < articles), lambda pair: pair[1]).sink("voted")
    return graph


def measured(graph: drift.Graph, keys: int, kills: int, rate: int, pause_s: float, *, at_once: bool) -> list[float]:
    """Seconds from each kill to the next release."""
    settings = {"workers": 2, "batch_items": 1024}
    deaths: list[float] = []
    with drift.run(graph, {"numbers": Numbers(keys, rate)}, engine="zeromq", **settings) as run:
        engine = run._engine
        assert isinstance(engine, ZeromqEngine)
        batches = run.batches()
        next_s = killed_s = 0.0
        recoveries = 0
        for batch in batches:
            now_s = time.monotonic()
            if run.progress.items_in <= keys or not batch or (not at_once and not next_s and is_behind(engine)):
                continue
            next_s = next_s or now_s + pause_s
            if killed_s and run.progress.recoveries > recoveries:
                deaths.append(now_s - killed_s)
                killed_s, next_s = 0.0, now_s + pause_s
                if len(deaths) == kills:
                    break
            elif not killed_s and now_s >= next_s:
                name = f"worker {len(deaths) % 2}"
                victim = next(child for child in engine._children if child.name == name)
                recoveries, killed_s = run.progress.recoveries, time.monotonic()
                os.kill(victim.process.pid, signal.SIGKILL)
    return deaths


def is_behind(engine: ZeromqEngine) -> bool:
    """Whether snapshots of states still wait to be merged, as they do for some time after keys came all at once."""
    log = engine._node.rewind_log
    return log is None or engine._mergers.is_behind(log)


def share_of_a_core(seconds: float = 1.0) -> float:
    """How much of a core a loop gets that does nothing else: others may be at work on the machine."""
    end_s, began_s = time.monotonic() + seconds, time.process_time()
    while time.monotonic() < end_s:
        pass
    return (time.process_time() - began_s) / seconds


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deaths", description=__doc__.partition("\n")[0])
    parser.add_argument("--keys", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rate", type=int, default=20_000, help="items a second, once every key is there")
    parser.add_argument("--pause", type=float, default=2.0, help="seconds between a way back and the next kill")
    parser.add_argument("--at-once", action="store_true", help="do not wait until snapshots are merged")
    parser.add_argument("--votes", action="store_true", help="votes joined to as many articles")
    arguments = parser.parse_args()
    print(f"{'keys':>12} {'kills':>6} {'p50':>8} {'p90':>8} {'max':>8}   (ms)")
    shares = [share_of_a_core()]
    for keys in arguments.keys:
        graph = voted(keys) if arguments.votes else counted()
        deaths = measured(graph, keys, arguments.kills, arguments.rate, arguments.pause, at_once=arguments.at_once)
        released = [1000 * each for each in deaths]
        p90 = quantiles(released, n=10)[-1] if len(released) > 1 else released[0]
        cells = f"{median(released):>8.0f} {p90:>8.0f} {max(released):>8.0f}"
        print(f"{keys:>12,} {len(deaths):>6} {cells}", flush=True)
        shares.append(share_of_a_core())
    print(f"a loop beside it gets {min(shares):.2f} to {max(shares):.2f} of a core")


if __name__ == "__main__":
    main()
