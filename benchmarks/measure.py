"""One measurement, in the process it is made in: `python -m benchmarks.measure SPEC`, both ways JSON.

Invariant: input is ready, and what the measured code imports is imported, before the clock starts; except that of an
engine with processes, whose start-up is measured separately.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import drift
from benchmarks.backfill import flights_audit, flights_record, one_group
from benchmarks.eventtime import run_in_event_time
from benchmarks.held import measured as held_measured
from benchmarks.joins import join, plain_join
from benchmarks.meters import cpu_seconds, own_peak_bytes, peak_memory_bytes
from benchmarks.recording import audit, audited, run_recorded
from benchmarks.windows import measured
from benchmarks.workloads import ROOT, WORKLOADS, line_graph, mixed, moved, one_by_one

#: Latency: what comes in the first second after the first line is not counted.
_WARM_UP_S = 1.0


def plain(spec: dict[str, Any]) -> dict[str, Any]:
    workload = WORKLOADS[spec["workload"]]
    payloads = workload.inputs(spec["items"])
    if spec.get("mixed"):
        payloads = mixed(payloads)
    before = peak_memory_bytes()
    cpu = cpu_seconds()
    started = time.perf_counter()
    for _ in workload.plain(payloads):
        pass
    seconds = time.perf_counter() - started
    cpu = cpu_seconds() - cpu
    peak = peak_memory_bytes()
    count = sum(1 for _ in workload.plain(payloads))
    return {
        "items": count,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "inputs": len(payloads),
        "memory_before_bytes": before,
        "peak_memory_bytes": peak,
    }


def with_drift(spec: dict[str, Any]) -> dict[str, Any]:
    workload = WORKLOADS[spec["workload"]]
    payloads: Any = workload.inputs(spec["items"])
    inputs = len(payloads)
    graph = workload.graph()
    if spec.get("moved") is not None:
        payloads = moved(list(enumerate(mixed(payloads))), spec["moved"])
        graph = workload.event_time_graph()
    elif spec.get("generator"):
        payloads = one_by_one(payloads)
    items = sum(1 for _ in workload.plain(workload.inputs(spec["items"]))) if spec["consume"] == "items" else 0
    if spec["engine"] == "local":
        drift.run(workload.graph(), {"in": []}).finish()
    before = peak_memory_bytes()
    cpu = cpu_seconds()
    started = time.perf_counter()
    settings = {name: spec[name] for name in ("engine", "workers", "batch_items") if name in spec}
    run = drift.run(graph, {"in": payloads}, **settings)
    if spec["consume"] == "items":
        first, last, in_first = _iterate(run, items)
    else:
        first, last, in_first = _take_batches(run)
    seconds = time.perf_counter() - started
    report = run.report
    return {
        "items": report.items_out,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds() - cpu,
        "inputs": inputs,
        "steady_items": report.items_out - in_first,
        "steady_seconds": last - first,
        "first_seconds": first - started,
        "digest": report.digest,
        "tombstones": report.tombstones,
        "memory_before_bytes": before,
        "peak_memory_bytes": report.peak_memory_bytes - own_peak_bytes() + peak_memory_bytes(),
    }


def _take_batches(run: drift.Run) -> tuple[float, float, int]:
    """When the first and the last batch came, and how many items were in the first."""
    clock = time.perf_counter
    first = last = 0.0
    in_first = 0
    for batch in run.batches():
        if batch.metas:
            last = clock()
            if not first:
                first, in_first = last, len(batch.metas)
    return first, last, in_first


def _iterate(run: drift.Run, items: int) -> tuple[float, float, int]:
    """When the first and the last of so many items came."""
    iterator = iter(run)
    next(iterator)
    first = time.perf_counter()
    for _ in islice(iterator, items - 1):
        pass
    last = time.perf_counter()
    for _ in iterator:
        raise AssertionError(f"the run gave more than the {items} items of the plain loop")
    return first, last, 1


def latency(spec: dict[str, Any]) -> dict[str, Any]:
    source = drift.sources.tcp_lines()
    command = [sys.executable, "-m", "benchmarks.producer", source.port, spec["items"], spec["items_per_second"]]
    run = drift.run(line_graph(), {"in": source}, engine=spec["engine"], workers=spec["workers"])
    producer: subprocess.Popen[bytes] | None = None
    came: list[tuple[float, list[Any]]] = []
    with run:
        for batch in run.batches():
            now = time.clock_gettime(time.CLOCK_MONOTONIC)
            if batch.metas:
                came.append((now, batch.payloads))
            elif producer is None:  # the first empty batch: the run has started and waits
                producer = subprocess.Popen([str(part) for part in command], cwd=ROOT)
    if producer is None or producer.wait() != 0:
        raise RuntimeError("the producer of lines failed")
    pairs = [(now, float(line.split()[1])) for now, payloads in came for line, _ in payloads]
    start = min(due for _, due in pairs) + _WARM_UP_S
    late = sorted(now - due for now, due in pairs if due >= start)
    if not late:
        raise RuntimeError(f"{len(pairs)} items at {spec['items_per_second']} items/s end within the warm-up")
    return {
        "items": len(pairs),
        "counted": len(late),
        "p50_ms": 1e3 * _quantile(late, 0.5),
        "p95_ms": 1e3 * _quantile(late, 0.95),
        "p99_ms": 1e3 * _quantile(late, 0.99),
        "max_ms": 1e3 * late[-1],
        "tombstones": run.report.tombstones,
        "peak_memory_bytes": run.report.peak_memory_bytes - own_peak_bytes() + peak_memory_bytes(),
    }


def _quantile(ordered: list[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


#: What is measured, by the kind that a spec says.
KINDS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "plain": plain,
    "drift": with_drift,
    "latency": latency,
    "recording": run_recorded,
    "audit": audit,
    "audited": audited,
    "flights record": flights_record,
    "flights audit": flights_audit,
    "one group": one_group,
    "event time": run_in_event_time,
    "windows": measured,
    "held": held_measured,
    "join": join,
    "join plain": plain_join,
}


def main() -> None:
    spec = json.loads(sys.argv[1])
    print(json.dumps(KINDS[spec["kind"]](spec)))


if __name__ == "__main__":
    main()
