"""What chains of steps that wait for time cost over zeromq: latency of a live source, and processor time of a file.

    python -m benchmarks.chains --steps 1 2 4 8
    python -m benchmarks.chains --kinds running --rows 1000000

Each of a chain of steps has a key of its own, so rows change workers between them, or (`same`) all have one key. The
input is rows of a schema in event time. Measured, each in a process of its own:

- live: 5,000 rows a second, each up to 50 ms late; latency is from a row's time to when the caller has what it causes;
- file: rows from Parquet, and the processor time of all processes for each, less that of a run of ten rows.

Each also on `local`, whose digest has to be the same.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl

import drift
from benchmarks.order import LATE_MAX_MS, Live, apart, arrivals, note, summary

KEYS, KINDS = 1000, ("windows", "running", "sessions")
ROWS_AT_ONCE, WINDOW = 10, 20  # rows of one time; in ms
SCHEMA = {"at": int, "number": int, "value": int}


def graph(kind: str, steps: int, keys: str) -> drift.Graph:
    """A chain of steps; keys are "change" or "same"."""
    made = drift.Graph("chain")
    policy = drift.EventTime("at", lateness=LATE_MAX_MS, tie="number")
    stream: Any = made.source("items", schema=SCHEMA, time=policy)
    for step in range(steps):
        if step == 0 or keys == "change":
            stream = stream.with_columns(key=(pl.col("value") + step) % KEYS if step else pl.col("value") % KEYS)
        keyed = stream.key_by("key")
        if kind == "running":
            stream = keyed.running(name=f"step {step}", total=drift.agg.sum("value"))
            stream = stream.select("at", "number", "key", value=pl.col("total") % 10007)
        else:
            cut = drift.windows.tumbling(WINDOW) if kind == "windows" else drift.windows.session(WINDOW)
            rows = keyed.window(cut).rows(name=f"step {step}", value=drift.agg.sum("value"), at=drift.agg.min("at"))
            stream = rows.select("key", "at", value=pl.col("value") % 10007, number=pl.col("start"))
    stream.sink("out")
    return made


def row_of(item: tuple[int, int, int]) -> dict[str, int]:
    return dict(zip(SCHEMA, item))


class LiveRows(Live):
    """The items as they arrive, as dicts."""

    def read(self, items_max: int) -> Any:
        items = super().read(items_max)
        return items and list(map(row_of, items))


def live(kind: str, steps: int, keys: str, seconds: float, rate: int, engine: str) -> dict[str, Any]:
    rows = LiveRows(arrivals(rate, seconds, 1.0))
    latencies: list[float] = []
    settings: dict[str, Any] = {"workers": 2} if engine == "zeromq" else {}
    with drift.run(graph(kind, steps, keys), {"items": rows}, engine=engine, **settings) as run:
        for batch in run.batches():
            note(latencies, rows.began_s, [(each["at"], 0, 0) for each in batch.payloads])
    report = run.report
    return summary(latencies, report.items_in, report.tombstones, report.digest)


def from_file(kind: str, steps: int, keys: str, rows: int, engine: str) -> dict[str, Any]:
    import resource

    def used() -> float:
        return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))

    settings: dict[str, Any] = {"workers": 2} if engine == "zeromq" else {}
    numbers = pl.int_range(rows, eager=True)
    value = (numbers * 2654435761) % (1 << 30)
    frame = pl.DataFrame({"at": numbers // ROWS_AT_ONCE, "number": numbers, "value": value})
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for count in (10, 10, rows):
            path = Path(folder, f"{count}.parquet")
            frame.head(count).write_parquet(path, row_group_size=1 << 16)
            before, began_s = used(), time.monotonic()
            run = drift.run(
                graph(kind, steps, keys),
                {"items": drift.sources.parquet(path, payload="rows")},
                engine=engine,
                **settings,
            )
            report = run.finish()
            found.append((used() - before, time.monotonic() - began_s, report))
    _, (none_s, none_took_s, _), (cpu_s, took_s, report) = found
    return {
        "cpu_us": 1e6 * (cpu_s - none_s) / rows,
        "took_us": 1e6 * (took_s - none_took_s) / rows,
        "tombstones": report.tombstones / rows,
        "digest": report.digest,
    }


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chains", description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--keys", nargs="+", default=["change", "same"], choices=["change", "same"])
    parser.add_argument("--rows", type=int, default=200_000, help="of the file; 0: none")
    parser.add_argument("--rate", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=12.0, help="of the live source; 0: none")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        what, kind, steps, keys, *rest = given.one
        if what == "live":
            print(json.dumps(live(kind, int(steps), keys, float(rest[0]), int(rest[1]), rest[2])))
        else:
            print(json.dumps(from_file(kind, int(steps), keys, int(rest[0]), rest[1])))
        return
    heads = ["kind", "keys", "steps", "engine"]
    heads += ["live p50 ms", "p99 ms", "CPU us", "tombstones"] if given.seconds else []
    heads += ["file CPU us", "took us", "tombstones"] if given.rows else []
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for kind in given.kinds:
        for keys in given.keys:
            for steps in given.steps:
                digests = set[Any]()
                for engine in ("local", "zeromq"):
                    cells = []
                    if given.seconds:
                        each = apart("chains", "live", kind, steps, keys, given.seconds, given.rate, engine)
                        cells += [
                            f"{each['p50']:.0f}",
                            f"{each['p99']:.0f}",
                            f"{each['cpu_us']:.0f}",
                            f"{each['tombstones']:.2f}",
                        ]
                    if given.rows:
                        each = apart("chains", "file", kind, steps, keys, given.rows, engine)
                        cells += [f"{each['cpu_us']:.2f}", f"{each['took_us']:.2f}", f"{each['tombstones']:.2f}"]
                        digests.add(each["digest"])
                    print(f"| {kind} | {keys} | {steps} | {engine} | {' | '.join(cells)} |", flush=True)
                assert len(digests) <= 1, "the runs do not have one digest"


if __name__ == "__main__":
    from benchmarks import chains  # so that the functions of the graph are known by this name in all processes

    chains.main()
