"""Records audited on Spark, and groups of any size: time for an item, and the memory of all processes, by length.

Flights-like items: those of examples/flights.py, again and again, each time moved on by as many days as they span; more
than half of them arrive after one that was scheduled later. The audit is the command, `drift audit --engine spark`; the
record is made beforehand, on local.

    python -m benchmarks --only backfill [--long]
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from rich.table import Table

import drift
from benchmarks.memory import Peaks
from benchmarks.recording import FLIGHTS
from benchmarks.rounds import Failed, Options, Result, measure, median
from benchmarks.tables import decimals, integer, medians, megabytes, table
from benchmarks.workloads import ROOT

_ITEMS_MIN = 100_000
_AUDIT_CAPTION = (
    "`drift audit RECORD --engine spark` on two cores: seconds to check the files, and to compute the record again in "
    "a JVM that has run nothing yet; peak memory of a Python worker of Spark, of the JVM, whose heap is Spark's "
    "default of 1 GB, and of the command. {medians}."
)
_GROUP_CAPTION = (
    "A running sum over a DataFrame in which all rows have one key: the most that a Python worker of Spark takes, and "
    "the JVM. {medians}."
)


def backfill(options: Options) -> tuple[list[Table], dict[str, Any]]:
    sizes = [size for size in options.scaling_items if size >= _ITEMS_MIN] or [options.scaling_items[-1]]
    data: dict[str, Any] = {}
    folder = Path(tempfile.mkdtemp(prefix="drift-benchmark-"))
    try:
        audits = {items: _audits(options, folder, items) for items in sizes}
    finally:
        shutil.rmtree(folder)
    groups = {items: _groups(options, items) for items in sizes}
    data["audits"], data["groups"] = audits, groups
    return [_audit_table(options, audits), _group_table(options, groups)], data


def _audits(options: Options, folder: Path, items: int) -> dict[str, float]:
    path = str(folder / f"flights{items}")
    options.report(f"backfill: a record of {items:,} flights")
    measure({"kind": "flights record", "items": items, "path": path})
    results: list[Result] = []
    for number in range(options.rounds):
        options.report(f"backfill: audit of {items:,} flights, round {number + 1} of {options.rounds}")
        results.append(measure({"kind": "flights audit", "path": path}))
    shutil.rmtree(path)
    return _medians(results)


def _groups(options: Options, items: int) -> dict[str, float]:
    results: list[Result] = []
    for number in range(options.rounds):
        options.report(f"backfill: one group of {items:,} items, round {number + 1} of {options.rounds}")
        results.append(measure({"kind": "one group", "items": items}))
    return _medians(results)


def _medians(results: list[Result]) -> dict[str, float]:
    return {name: median(each[name] for each in results) for name in results[0] if name != "others_cores"}


def _audit_table(options: Options, audits: dict[int, dict[str, float]]) -> Table:
    columns = ("flights", "intact s", "reproduced s", "ns/item", "items/s", "worker MB", "JVM MB", "driver MB")
    made = table("Audit on Spark", columns, _AUDIT_CAPTION.format(medians=medians(options.rounds)))
    for items, found in audits.items():
        made.add_row(
            integer(items), decimals(found["intact_seconds"]), decimals(found["reproduced_seconds"]),
            integer(1e9 * found["reproduced_seconds"] / items), integer(items / found["reproduced_seconds"]),
            megabytes(found["worker"]), megabytes(found["jvm"]), megabytes(found["python"]),
        )  # fmt: skip
    return made


def _group_table(options: Options, groups: dict[int, dict[str, float]]) -> Table:
    columns = ("items of the group", "s", "ns/item", "worker MB", "JVM MB")
    made = table("One group on Spark", columns, _GROUP_CAPTION.format(medians=medians(options.rounds)))
    for items, found in groups.items():
        made.add_row(
            integer(items), decimals(found["seconds"]), integer(1e9 * found["seconds"] / items),
            megabytes(found["worker"]), megabytes(found["jvm"]),
        )  # fmt: skip
    return made


# In the process of a measurement.


def flights_like(items: int, path: Path | None = None) -> Iterator[dict[str, str]]:
    """So many flights, from those of a file."""
    flights, year = _flights()
    known = flights.departures(path or year)
    hours = sorted({flight["time_hour"] for flight in known})
    first, last = (datetime.fromisoformat(hours[at]) for at in (0, -1))
    days = (last - first).days + 2
    written = 0
    while True:
        moved = {
            hour: (datetime.fromisoformat(hour) + timedelta(days=days * (written // len(known)))).isoformat()
            for hour in hours
        }
        for flight in known:
            if written == items:
                return
            yield {**flight, "time_hour": moved[flight["time_hour"]]}
            written += 1


def _flights() -> tuple[Any, Path]:
    sys.path.insert(0, str(ROOT / "examples"))
    import flights

    return flights, FLIGHTS if FLIGHTS.exists() else flights.NINE_DAYS


def flights_record(spec: dict[str, Any]) -> dict[str, Any]:
    flights, _ = _flights()
    report = drift.run(flights.graph, {"flights": flights_like(spec["items"])}, record=spec["path"]).finish()
    return {"items": report.items_out, "digest": report.digest}


def flights_audit(spec: dict[str, Any]) -> dict[str, Any]:
    """The command, and what its processes take."""
    command = [sys.executable, "-m", "drift_command", "audit", spec["path"], "--engine", "spark"]
    command += ["--master", "local[2]"]
    with Peaks() as peaks:
        done = subprocess.run([*command, "--json"], stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout)
    if not found["ok"]:
        raise Failed(f"the audit found {[check for check in found['checks'] if check['verdict'] != 'ok']}")
    seconds = {"intact": 0.0, "reproduced": 0.0}
    for check in found["checks"]:
        seconds[check["level"]] = seconds.get(check["level"], 0.0) + check["seconds"]
    return {"intact_seconds": seconds["intact"], "reproduced_seconds": seconds["reproduced"], **peaks.of}


def one_group(spec: dict[str, Any]) -> dict[str, Any]:
    """A running sum whose items have one key."""
    from benchmarks.spark import sums  # no other measurement is to have pyarrow in memory

    with Peaks() as peaks, drift.spark.session("local[2]") as session:
        frame = session.range(spec["items"]).selectExpr("0 as key", "id % 1000 as value", "id as time")
        started = time.perf_counter()
        rows = drift.spark.source(frame, payload="tuple", time="time")
        report = drift.run(sums(), {"pairs": rows}, engine="spark", spark=session).finish()
        seconds = time.perf_counter() - started
    if report.items_out != spec["items"]:
        raise Failed(f"{report.items_out} items of {spec['items']}")
    return {"seconds": seconds, **peaks.of}
