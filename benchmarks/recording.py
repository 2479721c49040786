"""What a record costs its run, and how fast a record is audited and replayed, in how much memory.

A run with a record ends when the record is safe on the disk; that is in its time.
"""

from __future__ import annotations

import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from importlib import import_module
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from rich.table import Table

import drift
from benchmarks.meters import cpu_seconds, peak_memory_bytes
from benchmarks.rounds import Options, check_digests, interleaved, median_of
from benchmarks.tables import decimals, integer, medians, megabytes, table
from benchmarks.workloads import ROOT, WORKLOADS, lines_of_text, one_by_one

_ENGINES = {"local": ("local", 1), "zeromq, 2 workers": ("zeromq", 2)}
_CASES = [(example, label) for example in ("words", "flights") for label in _ENGINES] + [("long", "local")]
_LONGER = 5
FLIGHTS = ROOT.parent / "shared" / "data" / "flights.csv.gz"
_CAPTION = (
    "Words: the running count of each word of Shakespeare, or Hamlet anew; flights: examples/flights.py, a year where "
    "it lies beside the checkout; long: the words five times over, from a generator. By run.batches(). Ratios within a "
    "round: of wall time, start to end, with the record safe on the disk; of it up to the last item, while the record "
    "is written beside the run; and of CPU time of all processes. After: from the last item to the end. {medians}."
)
_AUDIT_CAPTION = (
    "A record of the keyed running sum, input from a generator: the writer's share of the recording, the intact level "
    "in one process (megabytes of files, and of what is in them uncompressed, by CPU time), a replay. Peak memory of "
    "each process. {medians}."
)


def recording(options: Options) -> tuple[list[Table], dict[str, Any]]:
    headings = ("", "items", "plain s", "recorded s", "ratio", "up to the last item", "after s", "CPU ratio")
    cost = table("Recording", headings, _CAPTION.format(medians=medians(options.rounds)))
    data: dict[str, Any] = {}
    for example, label in _CASES:
        engine, workers = _ENGINES[label]
        spec = {"kind": "recording", "example": example, "items": options.items, "engine": engine, "workers": workers}
        specs = {"plain": spec, "recorded": {**spec, "record": True}}
        rounds = interleaved(specs, options.rounds, f"recording {example} on {label}", options.report)
        check_digests(rounds, f"{example} on {label}")
        ratio, running, cpu = (
            median_of(rounds, lambda each, name=name: each["recorded"][name] / each["plain"][name])  # type: ignore[misc]
            for name in ("seconds", "running_seconds", "cpu_seconds")
        )
        plain = median_of(rounds, lambda each: each["plain"]["seconds"])
        recorded = median_of(rounds, lambda each: each["recorded"]["seconds"])
        after = median_of(rounds, lambda each: each["recorded"]["seconds"] - each["recorded"]["running_seconds"])
        data[f"{example}, {label}"] = {"rounds": rounds, "ratio": ratio, "running_ratio": running, "cpu_ratio": cpu}
        numbers = (plain, recorded, ratio, running, after, cpu)
        cost.add_row(f"{example}, {label}", integer(rounds[0]["plain"]["items"]), *map(decimals, numbers))
    return [cost, _audits(options, data)], data


def _audits(options: Options, data: dict[str, Any]) -> Table:
    speed = ("MB/s", "of content")
    memory = ("writer MB", "intact MB", "replay MB")
    columns = ("items", "file MB", "record s", "intact s", *speed, "replay s", *memory)
    made = table("Audit", columns, _AUDIT_CAPTION.format(medians=medians(options.rounds)))
    for items in options.scaling_items:
        if items < 100_000 and items != options.scaling_items[-1]:
            continue
        rounds = interleaved(
            {"audit": {"kind": "audit", "items": items}}, options.rounds, f"audit of {items:,} items", options.report
        )
        numbers = {
            name: median_of(rounds, lambda each, name=name: each["audit"][name])  # type: ignore[misc]
            for name in rounds[0]["audit"]
            if name.endswith(("seconds", "bytes", "per_s"))
        }
        data[f"audit of {items:,}"] = {"rounds": rounds, **numbers}
        made.add_row(
            integer(items), megabytes(numbers["file_bytes"]), decimals(numbers["record_seconds"]),
            decimals(numbers["intact_seconds"]), decimals(numbers["mb_per_s"], 0),
            decimals(numbers["content_mb_per_s"], 0), decimals(numbers["replay_seconds"]),
            megabytes(numbers["writer_peak_bytes"]), megabytes(numbers["intact_peak_bytes"]),
            megabytes(numbers["replay_peak_bytes"]),
        )  # fmt: skip
    return made


# In the process of a measurement.


def inputs_of(example: str, items: int) -> tuple[drift.Graph, str, Iterable[Any]]:
    """Graph, name of its source, payloads."""
    if example in ("words", "long"):
        lines = lines_of_text(items)
        several = chain.from_iterable(repeat(lines, _LONGER))
        return WORKLOADS["wordcount"].graph(), "in", lines if example == "words" else several
    sys.path.insert(0, str(ROOT / "examples"))
    import flights

    payloads = flights.departures(FLIGHTS) if FLIGHTS.exists() else flights.departures()
    return flights.graph, "flights", payloads[:items]


def run_recorded(spec: dict[str, Any]) -> dict[str, Any]:
    """A run, with a record or without."""
    graph, name, payloads = inputs_of(spec["example"], spec["items"])
    drift.run(WORKLOADS["sum"].graph(), {"in": []}).finish()
    with tempfile.TemporaryDirectory() as folder:
        cpu, started = cpu_seconds(), time.perf_counter()
        settings = {"record": Path(folder) / "record"} if spec.get("record") else {}
        run = drift.run(graph, {name: payloads}, engine=spec["engine"], workers=spec["workers"], **settings)
        running = started
        for batch in run.batches():
            if batch.metas:
                running = time.perf_counter()
        seconds = time.perf_counter() - started
    report = run.report
    return {
        "items": report.items_out,
        "seconds": seconds,
        "running_seconds": running - started,
        "cpu_seconds": cpu_seconds() - cpu,
        "digest": report.digest,
    }


def audit(spec: dict[str, Any]) -> dict[str, Any]:
    """A record is made, checked and replayed; each in a process of its own, for its memory."""
    from benchmarks.rounds import measure

    folder = tempfile.mkdtemp()
    try:
        path = f"{folder}/record"
        made = measure({"kind": "audited", "what": "record", "path": path, "items": spec["items"]})
        intact = measure({"kind": "audited", "what": "intact", "path": path})
        replay = measure({"kind": "audited", "what": "replay", "path": path})
        size = sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())
        content = sum(_content_bytes(file) for file in Path(path).rglob("*.parquet"))
    finally:
        shutil.rmtree(folder)
    return {
        "items": spec["items"],
        "file_bytes": size,
        "record_seconds": made["seconds"],
        "writer_peak_bytes": made["writer_peak_bytes"],
        "intact_seconds": intact["seconds"],
        "intact_peak_bytes": intact["peak_bytes"],
        "mb_per_s": size / 1e6 / intact["cpu_seconds"],
        "content_mb_per_s": content / 1e6 / intact["cpu_seconds"],
        "replay_seconds": replay["seconds"],
        "replay_peak_bytes": replay["peak_bytes"],
    }


def _content_bytes(path: Path) -> int:
    """What a file has before it is compressed."""
    from pyarrow import parquet  # no other measurement is to have it in memory

    metadata = parquet.read_metadata(path)
    return sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))


def audited(spec: dict[str, Any]) -> dict[str, Any]:
    """One of the steps of `audit`."""
    if spec["what"] == "intact":
        import_module("drift.auditing.audit")  # before the clock starts
    else:
        drift.run(WORKLOADS["sum"].graph(), {"in": []}).finish()
    cpu, started = cpu_seconds(), time.perf_counter()
    if spec["what"] == "record":
        payloads = one_by_one(range(spec["items"]))
        drift.run(WORKLOADS["sum"].graph(), {"in": payloads}, record=spec["path"]).finish()
    elif spec["what"] == "intact":
        troubles = drift.audit(spec["path"], reproduce=False).troubles
        if troubles:
            raise RuntimeError(f"the audit found {troubles[0].text}")
    else:
        drift.replay(spec["path"], WORKLOADS["sum"].graph()).finish()
    return {
        "items": spec.get("items", 0),
        "seconds": time.perf_counter() - started,
        "cpu_seconds": cpu_seconds() - cpu,
        "peak_bytes": peak_memory_bytes(),
        "writer_peak_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
    }
