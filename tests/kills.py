"""Kills processes of real runs at random moments, and compares every digest with the reference's.

    python tests/kills.py 500            so many kills, over as many runs as it takes
    python tests/kills.py 20 --seed 7    the same graphs, inputs and moments as another time, as far as clocks allow

Who dies, when, and how (killed, or standing still as if it hung) is drawn; several may die at once, one while the run
goes back for another, or the spare and the process that makes pieces of checkpoints one. At times the disk is full: no
file can be written for a while. Every third run keeps its state on a Redis server or in Postgres, and at times that
does not answer for a while. The exit code is 1 where a digest differs or a run ends with an error.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import signal
import sys
from collections.abc import Callable
from random import Random
from typing import Any

import polars as pl
import psycopg
import redis
from servers import postgres_server, redis_server

import drift
from drift.engines.zeromq.engine import ZeromqEngine
from drift.machines.nodes.recovery import DEATHS_MAX

ITEMS = 200_000
KILLS_MAX = 4  # in one run: a process may not die so often that its run is given up


def by_key() -> drift.Graph:
    """Sums by key, then windows of other keys."""
    graph = drift.Graph("by key")
    numbers = graph.source("numbers")
    sums = numbers.scan(lambda number: number % 1009, 0, lambda total, number: (total + number, (number, total)))
    sums.group(lambda row: row[0] % 7, 3).map(lambda window: sum(row[1] for row in window)).sink("out")
    return graph


def diamond() -> drift.Graph:
    """Two ways that meet, and a sink beside them."""
    graph = drift.Graph("diamond")
    numbers = graph.source("numbers")
    left = numbers.map(lambda number: number * 2)
    right = numbers.filter(lambda number: number % 3 == 0).map(lambda number: -number)
    merged = left.merge(right)
    merged.group(lambda number: number % 11, 2).map(tuple).sink("pairs")
    left.sink("doubled")
    return graph


def late() -> drift.Graph:
    """Disordered event time, counted by key."""
    graph = drift.Graph("late")
    numbers = graph.source("numbers", time=drift.EventTime(lambda number: number - number % 13, lateness=100))
    numbers.scan(lambda number: number % 101, 0, lambda count, number: (count + 1, (number, count))).sink("out")
    return graph


def chained() -> drift.Graph:
    """Rows through steps that wait for time, each with keys of its own."""
    graph = drift.Graph("chained")
    rows = graph.source("numbers", schema={"at": int, "n": int}, time=drift.EventTime("at", lateness=100, tie="n"))
    sums = rows.with_columns(key=pl.col("n") % 101).key_by("key").running(total=drift.agg.sum("n"))
    sums.sink("sums")
    windows = sums.with_columns(other=pl.col("total") % 53).key_by("other").window(drift.windows.tumbling(40))
    ends = windows.rows(n=drift.agg.sum("total")).with_columns(key=pl.col("n") % 11)
    ends.key_by("key").running(total=drift.agg.sum("n")).sink("out")
    return graph


GRAPHS: list[Callable[[], drift.Graph]] = [by_key, diamond, late, chained]


def numbers_for(make: Callable[[], drift.Graph]) -> Any:
    """The input of a graph."""
    if make is not chained:
        return range(ITEMS)
    numbers = pl.int_range(ITEMS, eager=True)
    return drift.sources.table(pl.DataFrame({"at": numbers - numbers % 13, "n": numbers}))


def strike(run: drift.Run, chosen: Random) -> int:
    """Kill one process or several; how many."""
    engine = run._engine
    assert isinstance(engine, ZeromqEngine)
    children = [child for child in engine._children if child.process.poll() is None]
    mergers = engine._mergers
    beside = mergers.processes if mergers.died < DEATHS_MAX - 1 else []  # where they merge nothing, a run ends
    if engine._spare is not None:
        beside.append(engine._spare)
    if beside and chosen.random() < 0.3:
        os.kill(chosen.choice(beside).process.pid, signal.SIGKILL)
    victims = chosen.sample(children, min(len(children), chosen.choice([1, 1, 1, 2, 3])))
    for child in victims:
        if chosen.random() < 0.2:
            os.kill(child.process.pid, signal.SIGSTOP)
            child.last_sign_s -= 3600  # as if it had been silent for long
        else:
            os.kill(child.process.pid, signal.SIGKILL)
    return len(victims)


def fill_disk(run: drift.Run, full: bool) -> None:
    """No process can write files any more, as where the disk is full; or all can again."""
    engine = run._engine
    assert isinstance(engine, ZeromqEngine)
    children = [*engine._children, *engine._mergers.processes]
    limit = 0 if full else resource.RLIM_INFINITY
    for child in children:
        if child.process.poll() is None:
            resource.prlimit(child.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


class Server:
    """A store of the runs, whose processes stand still at times.

    Args:
        url: of it.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def _pids(self) -> list[int]:
        if self.url.startswith("unix:"):
            with redis.Redis.from_url(self.url) as client:
                return [int(client.info("server")["process_id"])]
        with psycopg.connect(self.url) as connection:
            own = connection.info.backend_pid
            return [pid for (pid,) in connection.execute("select pid from pg_stat_activity") if pid != own]

    def goes_away(self) -> Callable[[], None]:
        """It does not answer, until what is returned is called."""
        pids = self._pids()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)

        def comes_back() -> None:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

        return comes_back


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kills", type=int)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with redis_server() as first, postgres_server() as second:
        return killed(arguments.kills, Random(arguments.seed), [Server(first.url), Server(second)])


def killed(kills: int, chosen: Random, servers: list[Server]) -> int:
    """Until so many are; the exit code."""
    expected = {make: drift.run(make(), {"numbers": numbers_for(make)}).finish().digest for make in GRAPHS}
    done = runs = back = away = 0
    while done < kills:
        make = chosen.choice(GRAPHS)
        settings: dict[str, Any] = {"workers": chosen.randint(1, 3), "batch_items": chosen.choice([64, 512, 4096])}
        server = servers[runs // 3 % 2] if servers and runs % 3 == 2 else None
        if server is not None:
            settings["state"] = drift.Checkpoints(f"{server.url}#run{runs}", every_s=0.1)
        run = drift.run(make(), {"numbers": numbers_for(make)}, engine="zeromq", checkpoint_interval_s=0.1, **settings)
        at = sorted(chosen.sample(range(ITEMS // 2), chosen.randint(1, KILLS_MAX)))
        struck = 0
        fills = sorted(chosen.sample(range(ITEMS // 2), 2)) if chosen.random() < 0.3 else []
        pauses = sorted(chosen.sample(range(ITEMS // 2), 2)) if server is not None else []
        comes_back: Callable[[], None] | None = None
        for position, _ in enumerate(run):
            while server is not None and pauses and position >= pauses[0]:
                pauses.pop(0)
                if comes_back is not None:
                    comes_back()
                    away += 1
                else:
                    comes_back = server.goes_away()
            while fills and position >= fills[0]:
                fills.pop(0)
                fill_disk(run, full=len(fills) == 1)
            while at and position >= at[0]:
                at.pop(0)
                struck += strike(run, chosen)
        report = run.report
        done, runs, back = done + struck, runs + 1, back + report.recoveries
        if report.digest != expected[make]:
            print(f"run {runs} of {make.__name__} ({settings}): another digest, after {', '.join(report.died)} died")
            return 1
        progress = f"{done} killed in {runs} runs, which went back {back} times; stores were away {away} times"
        print(f"\r{progress}", end="", flush=True)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
