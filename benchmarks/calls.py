"""What a call costs beside itself, and how well many are in flight at once.

python -m benchmarks.calls
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import drift

CALLS = 10_000
CALL_S = 0.05
CONCURRENCY = 1000


async def wait(number: int) -> int:
    await asyncio.sleep(CALL_S)
    return number


async def at_once(number: int) -> int:
    return number


def plain(number: int) -> int:
    return number


def seconds(ask: Callable[..., Any], concurrency: int, calls: int = CALLS) -> tuple[float, float]:
    """Elapsed and CPU seconds of a run with so many calls."""
    graph = drift.Graph("calls")
    graph.source("numbers").call(ask, concurrency=concurrency, name="ask").sink("out")
    run = drift.run(graph, {"numbers": range(calls)})
    began_s, cpu_s = time.perf_counter(), time.process_time()
    run.finish()
    return time.perf_counter() - began_s, time.process_time() - cpu_s


async def alone() -> None:
    """The coroutines without drift: as many at once."""
    for start in range(0, CALLS, CONCURRENCY):
        await asyncio.gather(*[wait(number) for number in range(start, start + CONCURRENCY)])


def main() -> None:
    seconds(at_once, 64, 100)
    ideal_s = CALLS * CALL_S / CONCURRENCY
    began_s, cpu_s = time.perf_counter(), time.process_time()
    asyncio.run(alone())
    alone_took_s, alone_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    took_s, waiting_s = seconds(wait, CONCURRENCY)
    print(f"{CALLS:,} calls of {CALL_S * 1000:.0f} ms, {CONCURRENCY} at once: {took_s / ideal_s:.2f} of the ideal")
    print(f"the coroutines without drift, a thousand after the other: {alone_took_s / ideal_s:.2f} of the ideal")
    print(f"CPU per call beside the call: {(waiting_s - alone_s) / CALLS * 1e6:.1f} us (a coroutine that waits)")
    for kind, ask in (("a coroutine", at_once), ("a plain function", plain)):
        print(f"CPU per call: {min(seconds(ask, 64)[1] for _ in range(3)) / CALLS * 1e6:.1f} us ({kind})")


if __name__ == "__main__":
    main()
