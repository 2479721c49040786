"""Flights, live, over zeromq into Postgres, while processes are killed ten times: every row is there once, and right.

Flights come one after the other, as they depart, for nine days in a few seconds. For each airport and hour of the
timetable the graph counts them and adds up their delays. The run goes on by itself where a worker is killed, at any
moment. It keeps its state in a folder: where the process is killed that made the call, it is made once more, and the
run goes on from there. In the end the table is what DuckDB makes of the file.

    python examples/survives.py postgresql://me@localhost/postgres [10]
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import psycopg
from flights import LATENESS_MINUTES, NINE_DAYS, Flight, airport, departures, scheduled

import drift
from drift.guarantees import SourceGuarantee

TABLE = "delays"
KILLS = 10
VICTIMS = ["caller", "worker 1", "worker 0"]


def delay(flight: Flight) -> int:
    return int(flight["dep_delay"])


def row(hour: drift.Window[str, dict[str, int]]) -> dict[str, Any]:
    return {"airport": hour.key, "hour": hour.start // 60, **hour.value}


graph = drift.Graph("delays")
by_timetable = drift.EventTime(time=scheduled, lateness=LATENESS_MINUTES)
of_airport = graph.source("flights", time=by_timetable).key_by(airport)
hours = of_airport.window(drift.windows.tumbling(60))
hours.aggregate(flights=drift.agg.count(), minutes=drift.agg.sum(delay)).map(row).sink("hours")


class Departing:
    """A live source: some flights depart every few milliseconds. It can be read again from any of them."""

    live = True
    guarantee = SourceGuarantee("from a position", "the number of a flight")

    def __init__(self) -> None:
        self.flights = departures()
        self.at = 0

    def open(self) -> "Departing":
        return self

    def read(self, items_max: int) -> list[Flight] | None:
        if self.at >= len(self.flights):
            return None
        time.sleep(0.003)
        batch = self.flights[self.at : self.at + min(20, items_max)]
        self.at += len(batch)
        return batch

    def filenos(self) -> Sequence[int]:
        return ()

    def position(self) -> int:
        return self.at

    def seek(self, position: int) -> None:
        self.at = position

    def close(self) -> None:
        pass


def run(url: str, folder: str) -> None:
    """What is killed, and called again with the same arguments."""
    sink = drift.sinks.postgres(url, TABLE)
    state = drift.Checkpoints(folder, every_s=0.05)
    settings: dict[str, Any] = {"engine": "zeromq", "workers": 2}
    drift.run(graph, {"flights": Departing()}, sinks={"hours": sink}, state=state, **settings).finish()


def kill(caller: int, victim: str) -> bool:
    """The caller, or a process of its run, where it has one by that name."""
    if victim != "caller":
        found = subprocess.run(["pgrep", "-P", str(caller), "-f", f"drift {victim} of"], capture_output=True, text=True)
        if not found.stdout.split():
            return False
        caller = int(found.stdout.split()[0])
    os.kill(caller, signal.SIGKILL)
    return True


def rows_in(url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        found = connection.execute("select to_regclass(%s)", (TABLE,)).fetchone()
        if found is None or found[0] is None:
            return []
        query = f'select airport, "hour", flights, minutes from {TABLE} order by 2, 1'
        return connection.execute(query.encode()).fetchall()


def rows_of_duckdb() -> list[tuple[Any, ...]]:
    """The same from the file, by somebody else."""
    query = f"""
        with departed as (
            select origin, dep_delay::bigint as delay, epoch(time_hour::timestamptz)::bigint // 3600 as hour
            from read_csv('{NINE_DAYS}', all_varchar = true) where dep_delay not in ('', 'NA')
        )
        select origin, hour, count(*), sum(delay)::bigint from departed group by all order by hour, origin
    """
    found = duckdb.sql(query)
    assert found is not None
    return found.fetchall()


def main(url: str, kills: int = KILLS) -> None:
    choose = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, url, folder]
        killed = 0
        process = subprocess.Popen(command)
        while process.poll() != 0:
            if process.poll() is not None:  # the caller was killed
                process = subprocess.Popen(command)
            wanted = len(rows_in(url)) + choose.randrange(1, 40)
            while process.poll() is None and (killed == kills or len(rows_in(url)) < wanted):
                time.sleep(choose.uniform(0.0, 0.05))
            victim = VICTIMS[killed % len(VICTIMS)]
            if process.poll() is None and kill(process.pid, victim):
                killed += 1
                print(f"{victim + ' killed':15} {len(rows_in(url)):3} rows", flush=True)
                if victim == "caller":
                    process.wait()
    found, expected = rows_in(url), rows_of_duckdb()
    print(f"{len(found)} rows, each once, and equal to DuckDB's: {found == expected}")
    if found != expected:
        sys.exit(1)


if __name__ == "__main__":
    if len(sys.argv) > 2 and Path(sys.argv[2]).is_dir():
        run(*sys.argv[1:])
    else:
        main(sys.argv[1], *map(int, sys.argv[2:]))
