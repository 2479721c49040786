"""Runs on Spark that go on from a cut of another engine: the output is that of a run that nothing ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import drift
import drift.spark
from drift import sinks, sources

ITEMS = 3000


def flights() -> drift.Dataflow:
    """Every kind of state: a grouping's, a scan's, timers', windows'; and later items for groupings and for a sink."""
    graph = drift.Graph("flights")
    time = drift.EventTime(lambda flight: flight["time"], lateness=60)
    given = graph.source("flights", time=time)
    given.group(lambda flight: flight["to"], 3, name="last").sink("windows")
    given.scan(lambda flight: flight["to"], 0, counted, name="counting").sink("counts")
    given.process(lambda flight: flight["to"], 0, seen, told, name="telling").sink("told")
    given.key_by(lambda flight: flight["from"]).window(drift.windows.tumbling(500)).count(name="by_hour").sink("hourly")
    ahead = given.flat_map(lambda flight: [drift.at(flight["time"] + 700, flight["to"])], name="ahead", later=True)
    ahead.count(lambda to: to, name="arriving").sink("arrived")
    ahead.sink("landed")
    return graph.build()


def counted(count: int, flight: Any) -> tuple[int, tuple[str, int]]:
    return count + 1, (flight["to"], count)


def seen(count: int, flight: Any, time: int) -> tuple[int, list[Any]]:
    return count + 1, [drift.at(time + 333, flight["to"])] if count % 7 == 0 else []


def told(count: int, to: str, time: int) -> tuple[int, list[Any]]:
    return count, [(to, count)]


def rows(count: int = ITEMS) -> list[dict[str, Any]]:
    """In disorder, by 60 at most; some are equal."""
    made = [number - number * 7 % 61 for number in range(count)]
    return [{"time": at, "to": f"to {at % 13}", "from": f"from {at % 50}"} for at in made]


def written(path: Path, given: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in given))
    return path


def begun(folder: Path, engine: Any = "local", stop_at: int = 4000, **more: Any) -> None:
    """A run that is broken off after so many items of its output, and has some cuts."""
    cuts = drift.Cuts(folder / "state", every_s=0.0, keep=5)
    given = {"flights": sources.jsonl(folder / "in.jsonl")}
    run = drift.run(flights(), given, engine=engine, state=cuts, batch_items=100, **more)
    for item in run:
        if item.position == stop_at:
            break
    run.close()


def whole(folder: Path) -> drift.Report:
    return drift.run(flights(), {"flights": sources.jsonl(folder / "in.jsonl")}).finish()


@pytest.mark.parametrize(("engine", "more"), [("local", {}), ("zeromq", {"workers": 2})])
def test_a_run_goes_on_from_a_cut_of_another_engine(spark: Any, tmp_path: Path, engine: Any, more: Any) -> None:
    written(tmp_path / "in.jsonl", rows())
    into = {"counts": sinks.jsonl(tmp_path / "counts.jsonl")}
    begun(tmp_path, engine, sinks=into, **more)
    begun_with = (tmp_path / "counts.jsonl").stat().st_size
    given = {"flights": sources.jsonl(tmp_path / "in.jsonl")}
    run = drift.run(flights(), given, engine="spark", partitions=2, state=tmp_path / "state", sinks=into)
    cut = run.went_on_from
    assert cut is not None and 0 < cut.output.position <= 4001 and begun_with
    report, right = run.finish(), whole(tmp_path)
    assert report.digest == right.digest and report.items_out == right.items_out and report.items_in == ITEMS
    unbroken = {"counts": sinks.jsonl(tmp_path / "right.jsonl")}
    drift.run(flights(), given, sinks=unbroken).finish()
    assert (tmp_path / "counts.jsonl").read_bytes() == (tmp_path / "right.jsonl").read_bytes()
    for again in ("spark", "local"):  # it has ended: nothing is left to do
        assert drift.run(flights(), given, engine=again, state=tmp_path / "state").finish().digest == right.digest
