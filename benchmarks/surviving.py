"""What it costs that a run goes on where its processes die: throughput with checkpoints, beside that of a run that
cannot.

    python -m benchmarks.surviving --keys 1000 own --items 1000000 --rounds 5
    python -m benchmarks.surviving --latency 5000 --rounds 3
    python -m benchmarks.surviving --going-on 1000000
    python -m benchmarks.surviving --bounded 10000000

Running counts by key over zeromq with two workers. Each round has a run of every kind, one after the other, so that
what else the machine does falls on all: "off" is `recover=False`, "default" says nothing, "250 ms" checkpoints that
often. Ratios are of processors' time, that of all processes of a run; and of time by the clock.

`--latency` has so many items come in a second, from a live source, and tells how long after it the count of each is
there. `--going-on` keeps a state of so many keys in a folder, is killed, and tells when the same call, in a new
process, has its first item. `--bounded` tells of a run of so many items how large its processes, link logs and files
are meanwhile.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import drift
from drift.engines.zeromq.engine import ZeromqEngine

_KINDS: dict[str, dict[str, Any]] = {
    "off": {"recover": False},
    "default": {},
    "250 ms": {"checkpoint_interval_s": 0.25},
}


def counted(keys: int | None) -> drift.Graph:
    """Of every item a count; `keys` None for as many as there are items."""
    graph = drift.Graph("counted")
    key = (lambda n: n) if keys is None else (lambda n: n % keys)
    graph.source("numbers").scan(key, 0, lambda count, n: (count + 1, (n, count + 1))).sink("counts")
    return graph


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def measured(keys: int | None, items: int, settings: dict[str, Any]) -> tuple[float, float]:
    """Seconds of the processors, and by the clock."""
    cpu_s, began_s = _cpu_s(), time.perf_counter()
    run = drift.run(counted(keys), {"numbers": range(items)}, engine="zeromq", workers=2, **settings)
    for _ in run.batches():
        pass
    return _cpu_s() - cpu_s, time.perf_counter() - began_s


class Ticking:
    """A live source: so many items in a second, each the moment at which it was due, for some seconds."""

    live = True

    def __init__(self, rate: int, seconds: float) -> None:
        self._rate = rate
        self._left = int(rate * seconds)
        self._replies = 0
        self._began_s = 0.0

    def open(self) -> Ticking:
        self._began_s = time.monotonic()
        return self

    def read(self, items_max: int) -> list[float] | None:
        if self._replies >= self._left:
            return None
        due = min(int((time.monotonic() - self._began_s) * self._rate), self._left, self._replies + items_max)
        first, self._replies = self._replies, max(due, self._replies)
        return [self._began_s + number / self._rate for number in range(first, self._replies)]

    def filenos(self) -> Sequence[int]:
        return ()

    def close(self) -> None:
        """There is nothing to do."""


def delays(rate: int, settings: dict[str, Any], seconds: float = 8.0, warm_up_s: float = 2.0) -> list[float]:
    """From the moment that an item was due until its count was there, in seconds."""
    graph = drift.Graph("ticks")
    ticks = graph.source("ticks")
    ticks.scan(lambda tick: int(tick * rate) % 1000, 0, lambda count, tick: (count + 1, tick)).sink("counts")
    found: list[float] = []
    began_s = 0.0
    source = Ticking(rate, seconds)
    for batch in drift.run(graph, {"ticks": source}, engine="zeromq", workers=2, **settings).batches():
        now_s = time.monotonic()
        began_s = began_s or now_s
        if now_s - began_s > warm_up_s:
            found += [now_s - tick for tick in batch.payloads]
    return found


def _print_latency(rate: int, rounds: int) -> None:
    print(f"{'':>10} {'p50 ms':>8} {'p99 ms':>8}   at {rate:,} items a second")
    took: dict[str, list[list[float]]] = {kind: [] for kind in _KINDS}
    for _ in range(rounds):
        for kind, times in took.items():
            times.append(quantiles(delays(rate, _KINDS[kind]), n=100))
    for kind, times in took.items():
        p50, p99 = (1000 * median(each[at] for each in times) for at in (49, 98))
        print(f"{kind:>10} {p50:>8.1f} {p99:>8.1f}", flush=True)


def going_on(keys: int, folder: str, engine: str) -> None:
    """What is killed, and called again: every key once, and then again."""
    began_s, cpu_s = time.perf_counter(), _cpu_s()
    settings = {"workers": 2} if engine == "zeromq" else {}
    state = drift.Checkpoints(folder, every_s=0.5)
    run = drift.run(counted(keys), {"numbers": range(2 * keys)}, engine=engine, state=state, **settings)
    has_state = run._run_checkpoints is not None and run._run_checkpoints.checkpoint is not None
    for batch in run.batches():
        if has_state and batch.metas:
            print(f"{keys:>12,} {engine:>8} {time.perf_counter() - began_s:>8.2f}", end=" ")
            run.close()
            print(f"{_cpu_s() - cpu_s:>8.2f}", flush=True)
            return
        checkpoint = run._run_checkpoints.checkpoint if run._run_checkpoints is not None else None
        if checkpoint is not None and checkpoint.output.position > keys:
            os._exit(9)


def _print_resuming(keys: int) -> None:
    print(f"{'keys':>12} {'engine':>8} {'first s':>8} {'cpu s':>8}   (cpu: of all processes, until they have ended)")
    for engine in ("local", "zeromq"):
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(2):  # the second goes on
                command = [sys.executable, "-m", "benchmarks.surviving", "--called", str(keys), folder, engine]
                subprocess.run(command, check=False)


def _memory_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def _print_bounds(items: int, keys: list[str]) -> None:
    print(f"{'keys':>8} {'items':>12}   megabytes: of each process; the calling one's link logs; files")
    for text in keys:
        numbers = {"numbers": range(items)}
        run = drift.run(counted(None if text == "own" else int(text)), numbers, engine="zeromq", workers=2)
        engine, next_position = run._engine, 0
        assert isinstance(engine, ZeromqEngine)
        for batch in run.batches():
            if batch.position < next_position:
                continue
            next_position += max(items // 10, 1)
            sizes = {child.name: _memory_bytes(child.process.pid) for child in engine._children}
            sizes["caller"] = _memory_bytes(os.getpid())
            log = engine._node.rewind_log
            sizes["logs"] = log.links.logged_bytes if log is not None else 0
            sizes["files"] = sum(path.stat().st_size for path in Path(engine._folder).glob("*.snapshot"))
            shown = "  ".join(f"{name} {size / 1e6:.0f}" for name, size in sizes.items())
            print(f"{text:>8} {batch.position:>12,}   {shown}", flush=True)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.surviving", description=__doc__.partition("\n")[0])
    parser.add_argument("--keys", nargs="+", default=["1000", "own"], help="how many, or own: one for each item")
    parser.add_argument("--items", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", nargs="+", default=list(_KINDS))
    parser.add_argument("--latency", type=int, metavar="RATE", help="how long items take at so many a second")
    parser.add_argument("--going-on", type=int, metavar="KEYS", help="time until the first item after the caller died")
    parser.add_argument("--bounded", type=int, metavar="ITEMS", help="how large processes, logs and files become")
    parser.add_argument("--called", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.called:
        return going_on(int(arguments.called[0]), *arguments.called[1:])
    if arguments.latency:
        return _print_latency(arguments.latency, arguments.rounds)
    if arguments.going_on:
        return _print_resuming(arguments.going_on)
    if arguments.bounded:
        return _print_bounds(arguments.bounded, arguments.keys)
    _print_prices(arguments.keys, arguments.items, arguments.rounds, arguments.kinds)


def _print_prices(every: list[str], items: int, rounds: int, kinds: list[str]) -> None:
    print(f"{'keys':>8} {'':>10} {'cpu s':>8} {'s':>8} {'of off: cpu':>12} {'clock':>6}")
    for text in every:
        keys = None if text == "own" else int(text)
        took: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
        for _ in range(rounds):
            for kind, times in took.items():
                times.append(measured(keys, items, _KINDS[kind]))
        for kind, times in took.items():
            cpu_s, clock_s = (median(each[at] for each in times) for at in (0, 1))
            shares = [median(off[at] / on[at] for off, on in zip(took["off"], times)) for at in (0, 1)]
            cells = f"{cpu_s:>8.2f} {clock_s:>8.2f} {shares[0]:>12.3f} {shares[1]:>6.3f}"
            print(f"{text:>8} {kind:>10} {cells}", flush=True)


if __name__ == "__main__":
    main()
