"""Runs on Spark that go on from a checkpoint of another engine: the output is that of a run that nothing ended."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from gated import Gated
from waiting import wait_until_stored

import drift
import drift.spark
from drift import sinks, sources
from drift.spark.streaming import Stream

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
    """A run that is broken off after so many items of its output, and has some checkpoints."""
    checkpoints = drift.Checkpoints(folder / "state", every_s=0.0)
    path = folder / "in.jsonl"
    given = {"flights": Gated(sources.jsonl(path), path.read_text().count("\n") // 2)}  # it cannot end before
    run = drift.run(flights(), given, engine=engine, state=checkpoints, batch_items=100, **more)
    assert run._run_checkpoints is not None
    for batch in run.batches():
        wait_until_stored(run)
        if batch.position + len(batch.metas) > stop_at and run._run_checkpoints.checkpoint is not None:
            break
    run.close()


def whole(folder: Path) -> drift.Report:
    return drift.run(flights(), {"flights": sources.jsonl(folder / "in.jsonl")}).finish()


def test_a_run_goes_on_from_a_checkpoint_of_another_engine(spark: Any, tmp_path: Path) -> None:
    written(tmp_path / "in.jsonl", rows())
    into = {"counts": sinks.jsonl(tmp_path / "counts.jsonl")}
    begun(tmp_path, "zeromq", workers=2, sinks=into)
    begun_with = (tmp_path / "counts.jsonl").stat().st_size
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    given = {"flights": sources.jsonl(tmp_path / "in.jsonl")}
    run = drift.run(flights(), given, engine="spark", partitions=2, state=tmp_path / "state", sinks=into)
    checkpoint = run.resumed_from
    assert checkpoint is not None and not checkpoint.is_last and checkpoint.output.position > 0 and begun_with
    report, right = run.finish(), whole(tmp_path)
    assert report.digest == right.digest and report.items_out == right.items_out and report.items_in == ITEMS
    unbroken = {"counts": sinks.jsonl(tmp_path / "right.jsonl")}
    drift.run(flights(), given, sinks=unbroken).finish()
    assert (tmp_path / "counts.jsonl").read_bytes() == (tmp_path / "right.jsonl").read_bytes()
    frame = spark.read.schema("time long, to string, from string").json(str(tmp_path / "in.jsonl"))
    of_frame = drift.run(flights(), {"flights": frame}, engine="spark", partitions=3, state=tmp_path / "copy")
    assert of_frame.finish().digest == right.digest
    for again in ("spark", "local"):  # it has ended: nothing is left to do
        assert drift.run(flights(), given, engine=again, state=tmp_path / "state").finish().digest == right.digest


def stream_of(spark: Any, folder: Path, graph: drift.Dataflow | None = None, **more: Any) -> Stream:
    read = spark.readStream.schema("time long, to string, from string").option("maxFilesPerTrigger", 1)
    given = {"flights": read.json(str(folder / "arriving"))}
    more = {"state": str(folder / "state"), **more}
    return drift.spark.stream(graph or flights(), given, checkpoint=folder / "stream", partitions=2, **more)


def test_a_stream_goes_on_from_a_checkpoint_and_passes_over_what_comes_again(spark: Any, tmp_path: Path) -> None:
    given = rows()
    written(tmp_path / "in.jsonl", given)
    begun(tmp_path)
    (tmp_path / "arriving").mkdir()
    for number, part in enumerate([given[1000:2000], given[:1000], given[2000:]]):
        # What lies below the checkpoint comes again, also behind items that it would be too late for.
        path = written(tmp_path / "arriving" / f"{number}.json", part)
        os.utime(path, (1_000_000 + number, 1_000_000 + number))
    stream = stream_of(spark, tmp_path)
    stream.wait(stream.start(availableNow=True))
    stream = stream_of(spark, tmp_path)  # another program goes on with it
    stream.finish()
    right = whole(tmp_path)
    assert stream.digest() == right.digest
    first, last = stream.items().selectExpr("min(position)", "max(position)").first()
    assert 0 < first < last == right.items_out - 1
    assert stream.items().count() == last - first + 1 and stream.late().count() == 0


def test_what_does_not_fit_a_checkpoint_is_refused_before_a_stream_begins(spark: Any, tmp_path: Path) -> None:
    written(tmp_path / "in.jsonl", rows(500))
    begun(tmp_path, stop_at=300)
    (tmp_path / "arriving").mkdir()
    with pytest.raises(drift.SettingsError, match=r"from_checkpoint=999, and .* has [0-9]"):
        stream_of(spark, tmp_path, state=drift.Checkpoints(tmp_path / "state", from_checkpoint=999)).start()
    other = drift.Graph("flights")
    other.source("flights", time=drift.EventTime(lambda flight: flight["time"], lateness=60)).sink("out")
    with pytest.raises(drift.GraphError, match="is of another graph, and its states do not fit"):
        stream_of(spark, tmp_path, other.build()).start()
    with pytest.raises(drift.SettingsError, match="holds no state of a run"):
        stream_of(spark, tmp_path, state=str(tmp_path / "nothing")).start()
    run = drift.run(flights(), {"flights": sources.jsonl(tmp_path / "in.jsonl")}, state=tmp_path / "state")
    run.finish()
    with pytest.raises(drift.SettingsError, match="has ended, and its output is complete"):
        stream_of(spark, tmp_path).start()
    live = {"flights": sources.tcp_lines("127.0.0.1", 9)}
    with pytest.raises(
        drift.SettingsError, match="source 'flights' is live, and engine='spark' reads only input that ends"
    ):
        drift.run(
            flights(), live, engine="spark", state=drift.Checkpoints(tmp_path / "of live", logs=tmp_path / "logs")
        )


def taxis(size: int = 10, aggregate: Any = None, step: int = 1) -> drift.Graph:
    graph = drift.Graph("taxis")
    given = graph.source("rows", time=drift.EventTime("t"))
    windows = given.key_by("k").window(drift.windows.tumbling(size))
    windows.aggregate(aggregate or drift.agg.count(), name="windows").sink("out")
    given.scan(lambda row: row["k"], 0, lambda state, row: (state + step, state + step), name="counting").sink("counts")
    return graph


def of_taxis(count: int) -> list[dict[str, Any]]:
    return [{"t": number, "k": "ab"[number % 2]} for number in range(count)]


def test_a_dataframe_that_has_more_after_the_end_is_refused_before_it_is_read(spark: Any, tmp_path: Path) -> None:
    def run(count: int) -> int:
        frame = spark.createDataFrame([(row["t"], row["k"]) for row in of_taxis(count)], "t long, k string")
        return len(list(drift.run(taxis(), {"rows": frame}, engine="spark", spark=spark, state=tmp_path / "state")))

    assert (run(30), run(30)) == (36, 0)
    with pytest.raises(drift.SettingsError, match=r"is over.*'rows' has 40 rows now, and had 30.*complete=False"):
        run(40)


def test_changed_functions_go_on_with_old_states_where_that_is_said_and_other_kinds_never(
    spark: Any, tmp_path: Path
) -> None:
    state = drift.Checkpoints(tmp_path, every_items=5)
    run = drift.run(taxis(), {"rows": of_taxis(30)}, state=state, batch_items=5)
    before = []
    for item in run:
        before += [item.payload] if item.sink == "counts" else []
        if len(before) == 5:
            run.stop()
    accepted = drift.Checkpoints(tmp_path, changed_code="accept")
    for other in (taxis(25), taxis(aggregate=drift.agg.sum("t"))):
        with pytest.raises(drift.GraphError, match="'windows' is now of process"):
            drift.run(other, {"rows": of_taxis(30)}, engine="spark", spark=spark, state=accepted)
    with pytest.raises(drift.GraphError, match="the function of step 'counting' changed"):
        drift.run(
            taxis(step=10), {"rows": of_taxis(30)}, engine="spark", spark=spark, state=drift.Checkpoints(tmp_path)
        )
    after = drift.run(taxis(step=10), {"rows": of_taxis(30)}, engine="spark", spark=spark, state=accepted)
    counts = [item.payload for item in after if item.sink == "counts"]
    every = [*before, *counts]
    assert len(every) == 30 and before[-1] < 10 < counts[0]
    assert all(every[at] == every[at - 2] + (10 if at >= len(before) else 1) for at in range(2, 30))
