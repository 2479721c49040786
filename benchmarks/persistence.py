"""What checkpoints cost at the intervals of "State persistence in Noir", and that another number of workers resumes.

    python -m benchmarks.persistence --events 1000000 --rounds 3

Nexmark's queries 0, 3, 4 and 5 in one process: without state, with a checkpoint at the end only, and with one every 5,
30, 90 and 1,000 ms and every 100,000 events. The times are those of the processor, of all threads; bytes are all that a
run writes. Each round has a run of every kind, so that a busy machine changes no ratio. Last, over zeromq with two
workers, each query is stopped half way and resumed with one and with three.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from rich.console import Console

import drift
from benchmarks.meters import cpu_seconds
from benchmarks.nexmark.events import events
from benchmarks.nexmark.queries import QUERIES, graph_of
from benchmarks.tables import decimals, integer, table

_NEVER_S = 1e9
_KINDS: dict[str, dict[str, Any] | None] = {
    "no state": None,
    "at the end": {"every_s": _NEVER_S},
    "1,000 ms": {"every_s": 1.0},
    "90 ms": {"every_s": 0.09},
    "30 ms": {"every_s": 0.03},
    "5 ms": {"every_s": 0.005},
    "100,000 events": {"every_s": _NEVER_S, "every_items": 100_000},
}
#: Of the paper, for 1,000,000 events: milliseconds where the end alone is stored, and at the intervals in milliseconds.
_PAPER = {"q0": (61.2, {5: 74.3}), "q3": (83, {5: 184}), "q4": (185, {90: 300, 30: 1499}), "q5": (85, {5: 249})}


class Measured(NamedTuple):
    """A run: seconds of the processor, checkpoints, bytes that were written, and the digest."""

    cpu_s: float
    checkpoints: int
    written_bytes: int
    digest: str


def measured(query: str, arrived: Sequence[Any], kind: dict[str, Any] | None) -> Measured:
    """One run in this process."""
    with TemporaryDirectory() as folder:
        state = drift.Checkpoints(folder, **kind) if kind is not None else None
        before_bytes, before_s = _written_bytes(), cpu_seconds()
        run = drift.run(graph_of(QUERIES[query]), {"events": arrived}, state=state)
        for _ in run.batches():
            pass
        cpu_s, written_bytes = cpu_seconds() - before_s, _written_bytes() - before_bytes
        checkpoints = run._run_checkpoints.written[1] if run._run_checkpoints is not None else 0
        return Measured(cpu_s, checkpoints, written_bytes, run.digest)


def _written_bytes() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


def resumed(query: str, arrived: Sequence[Any], workers: int) -> tuple[str, float]:
    """The digest of a run that was stopped half way on two workers; and seconds until its first output on others."""
    with TemporaryDirectory() as folder:
        first = drift.run(
            graph_of(QUERIES[query]), {"events": arrived}, engine="zeromq", workers=2, state=folder, batch_items=4096
        )
        for _ in first.batches():
            if first.progress.items_in > len(arrived) // 2:
                first.stop()
        assert first.progress.items_in < len(arrived), "the run ended before it was stopped: give it more events"
        began_s = time.perf_counter()
        run = drift.run(graph_of(QUERIES[query]), {"events": arrived}, engine="zeromq", workers=workers, state=folder)
        first_s = 0.0
        for batch in run.batches():
            first_s = first_s or (time.perf_counter() - began_s if batch.metas else 0.0)
        return run.digest, first_s


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.persistence", description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--query", action="append", choices=list(QUERIES))
    arguments = parser.parse_args(argv)
    queries = arguments.query or list(_PAPER)
    arrived = events(arguments.events)
    made = table(
        f"Checkpoints, {arguments.events:,} events",
        ("", "cpu s", "of no state", "checkpoints", "MB written", "the paper: ms", "of the end alone"),
        f"Medians of {arguments.rounds}. A checkpoint is not begun while another is written, so there are fewer.",
    )
    digests: dict[str, str] = {}
    different: list[str] = []
    for query in queries:
        measured(query, arrived[: len(arrived) // 10], None)  # warm
        took: dict[str, list[Measured]] = {kind: [] for kind in _KINDS}
        for _ in range(arguments.rounds):
            for kind, runs in took.items():
                runs.append(measured(query, arrived, _KINDS[kind]))
        digests[query] = took["no state"][0].digest
        for kind, runs in took.items():
            ratio = median(each.cpu_s / alone.cpu_s for each, alone in zip(runs, took["no state"]))
            alone_ms, paper = _PAPER.get(query, (0, {}))
            paper_ms = next((ms for interval, ms in paper.items() if kind == f"{interval} ms"), None)
            made.add_row(
                f"{query}, {kind}",
                decimals(median(each.cpu_s for each in runs)),
                decimals(ratio),
                integer(median(each.checkpoints for each in runs)),
                decimals(median(each.written_bytes for each in runs) / 1e6),
                decimals(paper_ms, 1),
                decimals(paper_ms / alone_ms) if paper_ms is not None else "-",
            )
            different += [f"{query}, {kind}: another digest" for each in runs if each.digest != digests[query]]
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(made)
    for query in queries:
        for workers in (1, 3):
            digest, first_s = resumed(query, arrived, workers)
            console.print(f"{query}: stopped on 2 workers, resumed on {workers}: first output after {first_s:.2f} s")
            different += [f"{query}, {workers} workers: another digest"] if digest != digests[query] else []
    for line in different:
        console.print(line)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
