"""Micro-batches of Spark: windows of a stream by drift, beside the same windows by Spark's own `transformWithState`.

    python -m benchmarks.microbatches [--rows 20000] [--keys 1000] [--batches 12] [--grow]

Sums of tumbling windows, by key, in event time. What is shown is how long Spark says that a micro-batch took, from its
start to its commit, the median and the worst without the first two. Spark's rows are in no order, and written to
Parquet as drift's are; the windows of both are compared. `--grow`: drift alone counts keys, each of which is new, so
that the state has as many as there are rows at the end.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import polars as pl

import drift

WINDOW = 1_000  # of milliseconds, 1,000 rows each
_SCHEMA = "key string, at long, val long"


def windows() -> drift.Graph:
    graph = drift.Graph("windows")
    rows = graph.source("rows", time=drift.EventTime(lambda row: row["at"], lateness=0))
    rows.key_by(lambda row: row["key"]).window(drift.windows.tumbling(WINDOW)).sum(lambda row: row["val"]).map(
        lambda window: {"key": window.key, "start": window.start, "total": window.value}, name="rows out"
    ).sink("out")
    return graph


def counts() -> drift.Graph:
    graph = drift.Graph("counts")
    rows = graph.source("rows", time=drift.EventTime(lambda row: row["at"], lateness=0))
    rows.count(key=lambda row: row["key"]).sink("out")
    return graph


def processor() -> Any:
    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor

    class Windows(StatefulProcessor):
        """A map of open windows for each key, and a timer at the end of each."""

        def init(self, handle: Any) -> None:
            self._handle = handle
            self._open = handle.getMapState("open", "start long", "total long")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            sums: dict[int, int] = {}
            for row in rows:
                start = row.at - row.at % WINDOW
                sums[start] = sums.get(start, 0) + row.val
            for start, total in sums.items():
                if self._open.containsKey((start,)):
                    total += self._open.getValue((start,))[0]
                else:
                    self._handle.registerTimer(start + WINDOW)
                self._open.updateValue((start,), (total,))
            return iter(())

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
            start = expiredTimerInfo.getExpiryTimeInMs() - WINDOW
            yield Row(key=key[0], start=start, total=self._open.getValue((start,))[0])
            self._open.removeKey((start,))

    return Windows()


def written(folder: Path, rows: int, keys: int, batches: int) -> list[dict[str, Any]]:
    """A file for each micro-batch, in the order of their times of change; returns the rows.

    None is of 1970-01-01T00:00:00, where Spark's watermark begins: it would be late.
    """
    count = rows * batches
    numbers = pl.DataFrame({"n": range(count)}).select(
        key=pl.format("k{}", pl.col("n") * 7919 % keys), at=pl.col("n") + 1, val=pl.col("n") % 100
    )
    for number in range(batches):
        path = folder / f"{number:04}.parquet"
        numbers[number * rows : (number + 1) * rows].write_parquet(path)
        os.utime(path, (1_000_000 + number,) * 2)
    return numbers.to_dicts()


def took(query: Any) -> list[float]:
    """Seconds of each micro-batch that had rows."""
    query.awaitTermination()
    return [each["durationMs"]["triggerExecution"] / 1000 for each in query.recentProgress if each["numInputRows"]]


def shown(name: str, seconds: list[float]) -> str:
    some = seconds[2:]
    return f"{name}: {statistics.median(some):.2f} s a micro-batch, the worst {max(some):.2f} s, of {len(some)}"


@click.command()
@click.option("--rows", default=20_000, help="Rows of a micro-batch.")
@click.option("--keys", default=1_000)
@click.option("--batches", default=12, help="Micro-batches.")
@click.option("--grow", is_flag=True)
def main(rows: int, keys: int, batches: int, grow: bool) -> None:
    more = {
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
    with tempfile.TemporaryDirectory() as name, drift.spark.session("local[2]", **more) as spark:
        folder = Path(name)
        (folder / "in").mkdir()
        given = written(folder / "in", rows, rows * batches if grow else keys, batches)

        def read() -> Any:
            return spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))

        graph = counts() if grow else windows()
        stream = drift.spark.stream(graph, {"rows": read()}, checkpoint=folder / "drift", partitions=2)
        print(shown("drift", took(stream.start(availableNow=True))), flush=True)
        if grow:
            stream.finish()
            assert stream.digest() == drift.run(graph, {"rows": given}).finish().digest
            return
        found = {tuple(drift.restored(bytes(row.payload)).values()) for row in stream.items().collect()}
        timed = (
            read().selectExpr("key", "at", "val", "timestamp_millis(at) as moment").withWatermark("moment", "0 seconds")
        )
        windowed = timed.groupBy("key").transformWithState(
            processor(), "key string, start long, total long", "append", "eventTime"
        )
        writer = windowed.writeStream.format("parquet").option("checkpointLocation", str(folder / "query"))
        print(
            shown("transformWithState", took(writer.trigger(availableNow=True).start(str(folder / "spark")))),
            flush=True,
        )
        by_spark = {tuple(row) for row in spark.read.parquet(str(folder / "spark")).collect()}
        assert by_spark >= found


if __name__ == "__main__":
    main()
