"""Makes the archive of classes that the JVMs of the tests start from: `python tests/spark_archive.py FILE`.

Half of what a short-lived JVM of Spark computes is loading and verifying its classes, which are the same each time.
Where the file is missing or from another Java, JVMs load their classes as ever.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark.jsa"
#: A JVM of tests does not live long enough for its second compiler, and for collectors with threads, to be worth it.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def options() -> str:
    """What a JVM of the tests is started with."""
    return f"{_SHORT_LIVED} -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable" if ARCHIVE.exists() else _SHORT_LIVED


def make(archive: Path) -> None:
    """Start a session as the tests do, use what they use, and keep what was loaded."""
    made = archive.with_suffix(".new")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{_SHORT_LIVED} -XX:ArchiveClassesAtExit={made} -Xlog:disable"
    import drift
    from drift.spark import sessions

    sessions._STOP_MAX_S = 600  # a JVM that is killed while it writes would leave half an archive
    graph = drift.Graph("archive")
    numbers = graph.source("numbers", time=drift.EventTime(lambda row: row["id"]))
    numbers.count(key=lambda row: row["id"] % 3).sink("counts")
    with tempfile.TemporaryDirectory() as folder, sessions.session("local[2]") as spark:
        rows = spark.range(100)
        for kind in ("parquet", "json"):
            rows.write.format(kind).save(f"{folder}/{kind}")
            read = spark.read.schema("id long").format(kind).load(f"{folder}/{kind}")
            drift.run(graph, {"numbers": read}, engine="spark", partitions=2).finish()
        arriving = spark.readStream.schema("id long").json(f"{folder}/json")
        drift.spark.stream(graph, {"numbers": arriving}, checkpoint=Path(folder) / "checkpoint", partitions=1).finish()
    subprocess.run(["java", f"-XX:SharedArchiveFile={made}", "-version"], check=True, capture_output=True)
    made.replace(archive)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
