"""Rows into records, from streams and batches: each once, whoever dies when, and a replay gives what a run gives."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import drift
import drift.spark
from drift.load import load_dataflow
from drift.records.appending import Appender, WrittenBatch

GRAPH = """
import os
import signal
from pathlib import Path

import drift


def time_of(trip):
    mark = Path(__file__).with_name("killed")
    if trip["time"] == KILLED and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return trip["time"]


graph = drift.Graph("trips")
trips = graph.source("trips", time=drift.EventTime(time_of, lateness=20, late="divert"))
trips.count(key=lambda trip: trip["taxi"]).sink("counts")
trips.group(key=lambda trip: trip["time"] % 3, window=3).sink("windows")
"""


def trips(count: int) -> list[dict[str, Any]]:
    """In disorder, by 40 at most; some are equal."""
    return [{"time": number - number * 7 % 41, "taxi": f"taxi {number % 6}"} for number in range(count)]


def graph_file(folder: Path, killed: int | None = None) -> str:
    path = folder / f"{folder.name}_graph.py"
    path.write_text(GRAPH.replace("KILLED", repr(killed)))
    return f"{path}:graph"


def write_files(folder: Path, rows: list[dict[str, Any]], files: int) -> None:
    folder.mkdir()
    each = -(-len(rows) // files)
    for number in range(files):
        path = folder / f"part-{number}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows[number * each : (number + 1) * each]))
        os.utime(path, (1_000_000 + number, 1_000_000 + number))


def write(spark: Any, folder: Path, checkpoint: str = "checkpoint", path: str = "record", **options: str) -> None:
    """All that is there, into the record."""
    drift.spark.register(spark)
    read = spark.readStream.schema("time long, taxi string").option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    writer = read.writeStream.format("drift").option("checkpointLocation", str(folder / checkpoint)).options(**options)
    writer.trigger(availableNow=True).start(str(folder / path)).awaitTermination()


def mixed() -> drift.Dataflow:
    """A source in event time, with a tie function, and one in arrival time."""
    graph = drift.Graph("mixed")
    policy = drift.EventTime(lambda row: row[0], lateness=30, tie=lambda row: row[1], late="divert")
    graph.source("timed", time=policy).merge(graph.source("numbered")).count(key=len).sink("counts")
    return graph.build()


def test_a_record_that_is_opened_for_each_batch_is_as_one_that_is_written_at_once(tmp_path: Path) -> None:
    dataflow = mixed()
    rows = [(number // 9 - number * 7 % 37, number % 2) for number in range(6000)]
    manifests = []
    for size in (6000, 1500):
        folder = tmp_path / str(size)
        for number, start in enumerate(range(0, 6000, size)):
            appender = Appender(folder, dataflow, "", "test")
            assert appender.last.number == number - 1
            for at in range(start, start + size, 500):
                appender.add("timed", rows[at : at + 500])
                appender.add("numbered", rows[at : at + 50])
            appender.commit(WrittenBatch(number, size, 0))
        manifests.append(drift.Record(folder).manifest)
        assert drift.audit(folder, dataflow, reproduce=False).ok
    policy = drift.EventTime(lambda row: row[0], lateness=31)
    other = drift.Graph("mixed")
    other.source("timed", time=policy).merge(other.source("numbered")).count(key=len).sink("counts")
    with pytest.raises(drift.SettingsError, match=r"'lateness': 30.*, and the graph now has .*'lateness': 31"):
        Appender(folder, other.build(), "", "test")
    assert manifests[0].late_items == manifests[1].late_items > 0
    assert manifests[0].input_digest == manifests[1].input_digest


def test_a_stream_whose_commit_is_killed_and_repeated_is_in_the_record_once(spark: Any, tmp_path: Path) -> None:
    rows = trips(4200)
    place = graph_file(tmp_path, killed=3001)
    write_files(tmp_path / "in", rows, 2)
    with pytest.raises(Exception, match="STREAM_FAILED"):  # in the second micro-batch, between write and commit
        write(spark, tmp_path, graph=place)
    assert drift.Record(tmp_path / "record").manifest.items_in < 2100
    write(spark, tmp_path, graph=place)
    sealed = (tmp_path / "record" / "manifest.json").read_bytes()
    for name in ("1", ".1.crc"):  # as if killed between our commit and Spark's
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    write(spark, tmp_path, graph=place)
    assert (tmp_path / "record" / "manifest.json").read_bytes() == sealed
    drift.spark.end_record(tmp_path / "record")

    run = drift.run(load_dataflow(place), {"trips": rows})
    report = run.finish()
    record = drift.Record(tmp_path / "record")
    assert (record.manifest.items_in, record.manifest.late_items) == (report.items_in, report.late_items)
    assert list(record.late()) == run.late != []
    assert drift.replay(record).finish().digest == report.digest
    assert drift.audit(tmp_path / "record", reproduce=False).ok
    assert not list((tmp_path / "record").glob(".*")) and not list((tmp_path / "record").glob("stream/*"))
    with pytest.raises(drift.SettingsError, match="has ended"):
        drift.spark.end_record(tmp_path / "record")


def test_what_does_not_go_together_is_refused(spark: Any, tmp_path: Path) -> None:
    place = graph_file(tmp_path)
    write_files(tmp_path / "in", trips(20), 1)
    with pytest.raises(Exception, match=r"option\('graph', 'FILE.py:NAME'\) says which"):
        write(spark, tmp_path)
    with pytest.raises(Exception, match="has the sources 'trips'; say which one"):
        write(spark, tmp_path, graph=place, source="tripps")
    write(spark, tmp_path, graph=place)
    with pytest.raises(Exception, match=r"is written by .*/checkpoint, and not by .*/other"):
        write(spark, tmp_path, "other", graph=place)
    assert drift.Record(tmp_path / "record").manifest.items_in == 14  # six are late
    drift.run(load_dataflow(place), {"trips": trips(20)}, record=tmp_path / "run").finish()
    with pytest.raises(Exception, match="a record is never overwritten"):
        write(spark, tmp_path, "third", "run", graph=place)
    (tmp_path / "record" / "manifest.json").unlink()
    (tmp_path / "record" / "stream" / "0.state").unlink()
    write_files(tmp_path / "more", trips(5), 1)
    (tmp_path / "more" / "part-0.json").rename(tmp_path / "in" / "part-1.json")
    with pytest.raises(Exception, match=r"is not empty, and holds no record"):
        write(spark, tmp_path, graph=place)
    with pytest.raises(Exception, match=r"Spark writes micro-batch 1, .* is -1, with 0 rows: the checkpoint or the"):
        write(spark, tmp_path, path="anew", graph=place)


def test_a_dataframe_of_two_sources_becomes_a_record(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "two_sources.py").write_text(
        "import drift\n"
        "graph = drift.Graph('two')\n"
        "left = graph.source('left', time=drift.EventTime(lambda row: row[0]))\n"
        "right = graph.source('right', time=drift.EventTime(lambda row: row[0]))\n"
        "left.merge(right).count(key=lambda row: row[1] % 7).sink('counts')\n"
    )
    place = f"{tmp_path}/two_sources.py:graph"
    rows = [("left" if number % 3 else "right", number * 7 % 500, number) for number in range(1000)]
    drift.spark.register(spark)
    frame = spark.createDataFrame(rows, "source string, time long, number long")
    writer = frame.repartition(3).write.format("drift").mode("append").options(graph=place, payload="tuple")
    writer.option("sourceColumn", "source").save(str(tmp_path / "record"))
    sides = {
        side: sorted((time, number) for source, time, number in rows if source == side) for side in ("left", "right")
    }
    report = drift.run(load_dataflow(place), sides).finish()
    assert drift.replay(tmp_path / "record").finish().digest == report.digest
    with pytest.raises(Exception, match="a record is never overwritten"):
        writer.mode("overwrite").save(str(tmp_path / "record"))
    with pytest.raises(Exception, match="has ended, so nothing can be added"):
        writer.mode("append").save(str(tmp_path / "record"))
