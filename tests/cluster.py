"""A cluster of Spark on this machine: a master and three workers with addresses of their own, in which things go wrong.

    make cluster        (or .venv/bin/python tests/cluster.py [ROWS [kill] [delete] [slow] [idle]])

Runs one graph as a batch and as a stream, and one with calls, each undisturbed, with a worker and its executor killed
while they work, with the files of a shuffle deleted before they are read, with a task so slow that Spark starts a
second attempt, and with executors that Spark takes away, shuffles and all, while such a task sleeps, and starts again
(dynamic allocation). Prints what happened, of which Spark's log of events is the witness, and the digest, and fails if
a digest is not that of `local`, or if something did not happen. No part of CI: it takes some minutes and eight JVMs.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyspark

import drift

ADDRESSES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
#: At which item of the second level something goes wrong, as a share of the rows.
_AT = 0.6
_SLOW_S = 30.0
_START_MAX_S = 120.0
_LOGGING = """
rootLogger.level = info
rootLogger.appenderRef.stdout.ref = stdout
appender.stdout.type = Console
appender.stdout.name = stdout
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = %p %c{1}: %m%n
"""
_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "700m",
    "spark.cores.max": "3",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "2s",
}
#: Executors come where tasks wait, and go where they are idle, also with files of shuffles that are still needed.
_ALLOCATION = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.dynamicAllocation.initialExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "3",
    "spark.executor.cores": "1",
}


class Trouble(NamedTuple):
    """What goes wrong once, at the first item from a place on that a task of the second level reaches, in its process.

    Attributes:
        kind: "" for nothing, "kill", "delete", "slow" or "idle".
        folder: of the cluster.
    """

    kind: str
    folder: str
    at: int

    def __call__(self, number: int) -> None:
        if number < self.at or not self.kind:
            return
        try:
            Path(self.folder, "happened").touch(exist_ok=False)
        except FileExistsError:
            return
        if self.kind in ("slow", "idle"):
            time.sleep(_SLOW_S)
        elif self.kind == "delete":
            for path in Path(self.folder).glob("files-*/**/shuffle_*.data"):
                path.unlink(missing_ok=True)
        else:
            for process in _above(os.getpid(), "spark.executor", "deploy.worker.Worker"):
                os.kill(process, signal.SIGKILL)


def _above(process: int, *names: str) -> Iterator[int]:
    """The processes above one whose commands have one of the names."""
    while process > 1:
        if any(name in Path(f"/proc/{process}/cmdline").read_text() for name in names):
            yield process
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def sums(trouble: Trouble, *, asks: bool = False) -> drift.Graph:
    """Two running sums, each by keys of its own, so with two shuffles, and one for the output; some are asked about."""

    def first(total: int, row: dict[str, int]) -> tuple[int, tuple[int, int]]:
        return total + row["value"], (row["number"], total + row["value"])

    def second(total: int, pair: tuple[int, int]) -> tuple[int, tuple[int, int]]:
        if not asks:
            trouble(pair[0])
        return total + pair[1], (pair[0], total + pair[1])

    def ask(pair: tuple[int, int], call: drift.Call) -> tuple[int, int, str]:
        trouble(pair[0])
        return (*pair, call.key)

    graph = drift.Graph("sums")
    rows = graph.source("rows", time=drift.EventTime(time=lambda row: row["number"], lateness=0))
    firsts = rows.scan(key=lambda row: row["number"] % 97, initial=0, step=first, name="first")
    seconds = firsts.scan(key=lambda pair: pair[0] % 89, initial=0, step=second, name="second")
    if asks:
        seconds = seconds.call(ask, concurrency=4, name="ask")
    seconds.sink("sums")
    return graph


class Cluster:
    """A master and workers as processes of their own, whose files are in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.master = ""
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "log4j2.properties").write_text(_LOGGING)
        self.master = self._start("master", "127.0.0.1", r"(spark://[\d.:]+)")
        self.have_workers()

    def have_workers(self) -> None:
        """Start those that are not there, or not any more."""
        for address in ADDRESSES:
            known = self._started.get(address)
            if known is None or known.poll() is not None:
                self._start("worker", address, r"(Successfully registered with master)")

    def _start(self, role: str, address: str, said: str) -> str:
        """Start a process, and wait until it has said something; returns that."""
        java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else Path("java")
        home = Path(pyspark.__file__).parent
        name = f"{role}.{role.capitalize()}"
        command = [java, "-Xmx512m", f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}", "-cp"]
        command += [
            f"{home}/jars/*",
            f"org.apache.spark.deploy.{name}",
            "--host",
            address,
            "--port",
            "0",
            "--webui-port",
            "0",
        ]
        if role == "worker":
            command += ["--cores", "1", "--memory", "1g", "--work-dir", self.folder / f"worker-{address}", self.master]
        log = self.folder / f"{address}.log"
        log.unlink(missing_ok=True)
        environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13"}
        environment |= {"SPARK_LOCAL_IP": address, "SPARK_LOCAL_DIRS": str(self.folder / f"files-{address}")}
        with log.open("wb") as output:
            process = subprocess.Popen(list(map(str, command)), stdout=output, stderr=output, env=environment)
        self._started[address] = process
        ends_s = time.monotonic() + _START_MAX_S
        while not (found := re.search(said, log.read_text())):
            if process.poll() is not None or time.monotonic() > ends_s:
                raise RuntimeError(f"the {role} at {address} did not start: {log.read_text()[-2000:]}")
            time.sleep(0.1)
        return found[1]

    def close(self) -> None:
        """End all processes; executors end with their workers."""
        for process in self._started.values():
            process.terminate()
        for process in self._started.values():
            process.wait()


class Seen(NamedTuple):
    """What Spark's log of events has: executors that came and went, attempts that failed to fetch, second attempts."""

    hosts: list[str]
    came: int
    went: int
    fetches_failed: int
    speculative: int

    @staticmethod
    def of(folder: Path) -> Seen:
        text = "".join(path.read_text() for path in folder.rglob("*") if path.is_file())
        hosts = sorted(set(re.findall(r'"Host":"(127[\d.]+)"', text)) - {"127.0.0.1"})
        tasks = [line for line in text.splitlines() if '"SparkListenerTaskEnd"' in line]
        return Seen(
            hosts,
            text.count('"Event":"SparkListenerExecutorAdded"'),
            text.count('"Event":"SparkListenerExecutorRemoved"'),
            sum('"Reason":"FetchFailed"' in line for line in tasks),
            sum('"Speculative":true' in line for line in tasks),
        )


@contextmanager
def session(cluster: Cluster, events: Path, kind: str) -> Iterator[Any]:
    events.mkdir()
    settings = {**_SETTINGS, "spark.eventLog.dir": events.as_uri(), "spark.speculation": str(kind == "slow").lower()}
    settings |= _ALLOCATION if kind == "idle" else {}
    with drift.spark.session(cluster.master, **settings) as spark:
        yield spark


def batch(spark: Any, graph: drift.Graph, rows: Path, folder: Path) -> str:
    frame = spark.read.parquet(str(rows))
    return drift.run(graph, {"rows": frame}, engine="spark", spark=spark, partitions=6).finish().digest


def calls(spark: Any, graph: drift.Graph, rows: Path, folder: Path) -> str:
    frame, answers = spark.read.parquet(str(rows)), str(folder / "answers")
    run = drift.run(graph, {"rows": frame}, engine="spark", spark=spark, partitions=6, answers=answers)
    return run.finish().digest


def stream(spark: Any, graph: drift.Graph, rows: Path, folder: Path) -> str:
    frame = spark.readStream.schema("number long, value long").option("maxFilesPerTrigger", 2).parquet(str(rows))
    running = drift.spark.stream(graph, {"rows": frame}, checkpoint=str(folder / "checkpoint"), partitions=6)
    running.finish()
    return running.digest()


def happened(kind: str, seen: Seen) -> bool:
    """Whether what was to go wrong did, on a cluster of three."""
    of = {"": True, "kill": seen.went > 0, "delete": seen.fetches_failed > 0, "slow": seen.speculative > 0}
    of["idle"] = seen.went > 0 and seen.came > len(ADDRESSES)
    return of[kind] and len(seen.hosts) == len(ADDRESSES)


def written(folder: Path, rows: int) -> list[dict[str, int]]:
    """Rows in six files, in an order that is not theirs within each; returns them in order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    numbers = [number * 7919 % rows for number in range(rows)] if rows % 7919 else list(range(rows))
    size = -(-rows // 6)
    for at in range(6):
        part = sorted(range(at * size, min((at + 1) * size, rows)), key=numbers.__getitem__)
        pq.write_table(pa.table({"number": part, "value": [each % 1000 for each in part]}), folder / f"{at}.parquet")
    return [{"number": number, "value": number % 1000} for number in range(rows)]


def main(rows: int = 12_000, *kinds: str) -> int:
    wrong = 0
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="drift-cluster-", ignore_cleanup_errors=True))
        )
        known = written(folder / "rows", rows)
        expected = {
            asks: drift.run(sums(Trouble("", "", 0), asks=asks), {"rows": known}).finish().digest
            for asks in (False, True)
        }
        cluster = Cluster(folder)
        stack.callback(cluster.close)
        print(f"| run | what went wrong | executors came, went; fetches failed, speculative | digest |\n|{'---|' * 4}")
        for run in (batch, stream, calls):
            asks = run is calls
            for kind in kinds or ("", "kill", "delete", "slow", "idle"):
                cluster.have_workers()
                (folder / "happened").unlink(missing_ok=True)
                shutil.rmtree(folder / "checkpoint", ignore_errors=True)
                events = folder / f"events-{run.__name__}-{kind}"
                trouble = Trouble(kind, str(folder), int(rows * _AT))
                with session(cluster, events, kind) as spark:
                    digest = run(spark, sums(trouble, asks=asks), folder / "rows", folder)
                seen = Seen.of(events)
                is_right = digest == expected[asks] and happened(kind, seen)
                wrong += not is_right
                numbers = f"{seen.came}, {seen.went}; {seen.fetches_failed}, {seen.speculative}"
                says = digest if is_right else f"{digest}, expected {expected[asks]}, on {seen.hosts}: WRONG"
                print(f"| {run.__name__} | {kind or 'nothing'} | {numbers} | {says} |", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2]), *sys.argv[2:]))
