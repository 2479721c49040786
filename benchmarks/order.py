"""What order costs: one wait at the end, or one before every grouping.

    python -m benchmarks.order --steps 1 2 4 8
    python -m benchmarks.order --steps 4 --late 0 0.1 0.5 1 --rates 1000 5000 10000

A live source over zeromq with two workers; an item is late with some probability, then by up to 50 ms, and the order is
that of event time. Each of a chain of scans has keys of its own, and its output hangs on the order. Latency is from an
item's event time to when the caller has its output, so 50 ms of it are the lateness, which nobody who keeps the order
can do without. Measured, each in a process of its own:

- drift: scans are optimistic, the barrier waits;
- waits: before each scan the items wait for minimal time, in a barrier (`durable=True` before each scan makes a run of
  each; CPU includes that of logs, which are in memory). That the digest is drift's is checked;
- Bytewax, if it is installed, in two threads: the same scans in order of arrival, which is another answer each time.

CPU is that of all processes from their start to their end, for each item.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import drift
from benchmarks.meters import cpu_seconds

LATE_MAX_MS = 50
KEYS = 1000
KINDS = ("drift", "waits", "bytewax")
#: Items of the first seconds are not counted: processes are still starting.
WARM_UP_S = 3.0

Item = tuple[int, int, int]  # event time in ms, number, value


def arrivals(rate: int, seconds: float, late: float) -> list[tuple[float, Item]]:
    """(when it arrives, item) in order of arrival; times in ms from the beginning."""
    draw = Random(7)
    items = [(1000 * number // rate, number, draw.randrange(1 << 30)) for number in range(int(rate * seconds))]
    delays = [draw.uniform(0, LATE_MAX_MS) if draw.random() < late else 0.0 for _ in items]
    return sorted((item[0] + delay, item) for item, delay in zip(items, delays, strict=True))


class Live:
    """The items as they arrive."""

    live = True

    def __init__(self, arriving: Sequence[tuple[float, Item]]) -> None:
        self._arriving = arriving
        self._read = 0
        self.began_s = 0.0

    def open(self) -> Live:
        return self

    def read(self, items_max: int) -> list[Item] | None:
        self.began_s = self.began_s or time.monotonic()
        first, now_ms = self._read, 1000 * (time.monotonic() - self.began_s)
        if first == len(self._arriving):
            return None
        last = min(first + items_max, len(self._arriving))
        while self._read < last and self._arriving[self._read][0] <= now_ms:
            self._read += 1
        return [item for _, item in self._arriving[first : self._read]]

    def filenos(self) -> Sequence[int]:
        return ()

    def close(self) -> None:
        """There is nothing to do."""


def time_of(item: Item) -> int:
    return item[0]


def same(item: Item) -> Item:
    return item


def key_of(step: int, item: Item) -> int:
    return (item[2] >> 3 * step) % KEYS


def mixed(state: int, item: Item) -> tuple[int, Item]:
    at, number, value = item
    state = (state * 31 + value) % (1 << 30)
    return state, (at, number, state)


def graph(steps: int, kind: str) -> drift.Graph:
    made = drift.Graph("order")
    policy = drift.EventTime(time_of, lateness=LATE_MAX_MS)
    stream: Any = made.source("items", time=policy)
    for step in range(steps):
        stream = stream.map(same, name=f"border {step}", durable=kind == "waits")
        stream = stream.scan(partial(key_of, step), 0, mixed, name=f"step {step}")
    stream.sink("out")
    return made


def measured(kind: str, steps: int, rate: int, seconds: float, late: float) -> dict[str, Any]:
    """One measurement, in this process."""
    live = Live(arrivals(rate, seconds, late))
    if kind == "bytewax":
        return summary(bytewax_latencies(live, steps), int(rate * seconds), 0, "")
    latencies: list[float] = []
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        settings: dict[str, Any] = {"state": folder} if kind == "waits" else {}
        with drift.run(graph(steps, kind), {"items": live}, engine="zeromq", workers=2, **settings) as run:
            for batch in run.batches():
                note(latencies, live.began_s, batch.payloads)
        report = run.report
    return summary(latencies, report.items_in, report.tombstones, report.digest)


def note(latencies: list[float], began_s: float, items: Sequence[Item]) -> None:
    """Add how long ago, in ms, each was due."""
    now_ms = 1000 * (time.monotonic() - began_s)
    latencies += [now_ms - item[0] for item in items if item[0] >= 1000 * WARM_UP_S]


def summary(latencies: list[float], items: int, tombstones: int, digest: str | None) -> dict[str, Any]:
    latencies.sort()
    p50, p99 = (latencies[int(len(latencies) * share)] for share in (0.5, 0.99))
    result = {"p50": p50, "p99": p99, "tombstones": tombstones / items, "digest": digest, "items": items}
    return {**result, "cpu_us": 1e6 * cpu_seconds() / items}


def bytewax_latencies(live: Live, steps: int) -> list[float]:
    """Those of the same scans in Bytewax, in order of arrival."""
    from datetime import timedelta

    import bytewax.operators as op  # type: ignore[import-not-found, unused-ignore]
    from bytewax.dataflow import Dataflow  # type: ignore[import-not-found, unused-ignore]
    from bytewax.inputs import SimplePollingSource  # type: ignore[import-not-found, unused-ignore]
    from bytewax.outputs import DynamicSink, StatelessSinkPartition  # type: ignore[import-not-found, unused-ignore]
    from bytewax.testing import cluster_main  # type: ignore[import-not-found, unused-ignore]

    latencies: list[float] = []

    class Source(SimplePollingSource):  # type: ignore[misc, unused-ignore]
        def next_item(self) -> list[Item]:
            items = live.read(1 << 20)
            if items is None:
                raise StopIteration
            return items

    class Partition(StatelessSinkPartition):  # type: ignore[misc, type-arg, unused-ignore]
        def write_batch(self, items: list[Any]) -> None:
            note(latencies, live.began_s, items)

    class Sink(DynamicSink):  # type: ignore[misc, type-arg, unused-ignore]
        def build(self, *_: Any) -> Partition:
            return Partition()

    flow = Dataflow("order")
    stream: Any = op.flat_map("items", op.input("in", flow, Source(timedelta(milliseconds=1))), lambda items: items)
    for step in range(steps):
        keyed = op.key_on(f"key {step}", stream, lambda item, step=step: str(key_of(step, item)))
        done = op.stateful_map(f"step {step}", keyed, lambda state, item: mixed(state or 0, item))
        stream = op.map(f"unkey {step}", done, lambda pair: pair[1])
    op.output("out", stream, Sink())
    cluster_main(flow, [], 0, worker_count_per_proc=2)
    return latencies


def apart(benchmark: str, *arguments: Any) -> dict[str, Any]:
    """One measurement of a benchmark, in a process of its own."""
    command = [sys.executable, "-m", f"benchmarks.{benchmark}", "--one", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.order", description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--rates", type=int, nargs="+", default=[5000], help="items a second")
    parser.add_argument("--late", type=float, nargs="+", default=[1.0], help="share of items up to 50 ms late")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        kind, steps, rate, seconds, late = given.one
        print(json.dumps(measured(kind, int(steps), int(rate), float(seconds), float(late))))
        return
    kinds = [kind for kind in given.kinds if kind != "bytewax" or importlib.util.find_spec("bytewax")]
    print("| steps | items/s | late | | p50 ms | p99 ms | tombstones/item | CPU us/item |")
    print("|---|---|---|---|---|---|---|---|")
    for late in given.late:
        for rate in given.rates:
            for steps in given.steps:
                found = {kind: apart("order", kind, steps, rate, given.seconds, late) for kind in kinds}
                digests = {each["digest"] for kind, each in found.items() if kind != "bytewax"}
                assert len(digests) <= 1, "the runs do not have one digest"
                for kind, each in found.items():
                    numbers = f"{each['p50']:.0f} | {each['p99']:.0f} | {each['tombstones']:.2f} | {each['cpu_us']:.0f}"
                    print(f"| {steps} | {rate:,} | {late:.0%} | {kind} | {numbers} |", flush=True)


if __name__ == "__main__":
    from benchmarks import order  # so that the functions of the graph are known by this name in all processes

    order.main()
