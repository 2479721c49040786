"""What is held while later items wait: memory of windows, sessions and timers by the length of the input.

Invariant: the input is a generator, so all memory is the run's; a run of more items has no more of them open at a time.

    python -m benchmarks --only held
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from rich.table import Table

import drift
from benchmarks.meters import cpu_seconds, own_peak_bytes, peak_memory_bytes
from benchmarks.rounds import Options, Round, check_digests, interleaved, median
from benchmarks.tables import decimals, integer, medians, megabytes, table

_EVENTS_A_MS = 10
_KEYS = 1000
_LATE_MAX = 500
_LATENESS_MS = 2 * _LATE_MAX  # where an event is a millisecond, or ten are
#: A session has three events, so far apart; at 1000 keys a second, some thousands are open.
_GAP = 700

Event = tuple[int, int]


def disordered(every: Iterator[Event]) -> Iterator[Event]:
    """The events, each moved by less than so many places."""
    draw = random.Random(1)
    while block := list(islice(every, _LATE_MAX)):
        draw.shuffle(block)
        yield from block


def of_few_keys(count: int) -> Iterator[Event]:
    return ((number // _EVENTS_A_MS, number * 7919 % _KEYS) for number in range(count))


def of_keys_that_come_and_go(count: int) -> Iterator[Event]:
    """Three events of each key."""
    for number in range(count // 3 + 2 * _GAP):
        for before in (0, _GAP, 2 * _GAP):
            if 0 <= number - before < count // 3:
                yield number, number - before


def counted(state: int, event: Event, at: int) -> tuple[int, list[Any]]:
    return state + 1, [drift.at(at + 50 + event[1] % 97, event[1])]


def due(state: int, note: int, at: int) -> tuple[int, list[Any]]:
    return state, [(note, state)]


class Case(NamedTuple):
    """A stream whose steps keep something, and what comes in."""

    events: Callable[[int], Iterator[Event]]
    steps: Callable[[drift.Stream[Any]], drift.Stream[Any]]


def _of(event: Event) -> int:
    return event[1]


CASES = {
    f"a count a second, {_KEYS:,} keys": Case(
        of_few_keys, lambda stream: stream.key_by(_of).window(drift.windows.tumbling(1000)).count()
    ),
    "sessions of keys that come and go": Case(
        of_keys_that_come_and_go,
        lambda stream: stream.key_by(_of).window(drift.windows.session(_GAP + 1)).count(),
    ),
    "a timer for each event": Case(of_few_keys, lambda stream: stream.process(_of, 0, counted, due)),
}


def graph(case: Case) -> drift.Graph:
    written = drift.Graph("held")
    time_of = drift.EventTime(lambda event: event[0], lateness=_LATENESS_MS)
    case.steps(written.source("in", time=time_of)).sink("out")
    return written


def measured(spec: dict[str, Any]) -> dict[str, Any]:
    """One measurement, in a process of its own."""
    case = CASES[spec["case"]]
    drift.run(graph(case), {"in": []}).finish()
    cpu, started = cpu_seconds(), time.perf_counter()
    run = drift.run(graph(case), {"in": disordered(case.events(spec["items"]))}, **spec["settings"])
    for _ in run.batches():
        pass
    return {
        "items": run.report.items_in,
        "seconds": time.perf_counter() - started,
        "cpu_seconds": cpu_seconds() - cpu,
        "digest": run.digest,
        "memory_bytes": run.report.peak_memory_bytes - own_peak_bytes() + peak_memory_bytes(),
    }


_ENGINES: dict[str, dict[str, Any]] = {"local": {}, "zeromq, 2 workers": {"engine": "zeromq", "workers": 2}}


def held(options: Options) -> tuple[list[Table], dict[str, Any]]:
    columns = ("", "engine", "items", "CPU s", "wall s", "peak MB")
    caption = (
        f"{_EVENTS_A_MS} events a millisecond, up to {_LATE_MAX} places late; a session is of three events. CPU and "
        f"peak memory are those of all processes of a run. {medians(options.rounds)}."
    )
    made, data = table("What is held for later", columns, caption), {}
    lengths = (options.items // 10, options.items)
    for name in CASES:
        by_length: dict[int, list[Round]] = {}
        for items in lengths:
            specs = {
                engine: {"kind": "held", "case": name, "items": items, "settings": settings}
                for engine, settings in _ENGINES.items()
            }
            rounds = by_length[items] = interleaved(specs, options.rounds, f"{name}, {items:,}", options.report)
            check_digests(rounds, name)
            for engine in _ENGINES:
                cpu, seconds, peak = (
                    median(each[engine][what] for each in rounds) for what in ("cpu_seconds", "seconds", "memory_bytes")
                )
                made.add_row(name, engine, integer(items), decimals(cpu), decimals(seconds), megabytes(peak))
        data[name] = by_length
    return [made], data
