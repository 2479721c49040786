"""Seeds on all cores, until one fails.

Invariant: the least failing seed is reported, whatever the number of processes.

Why: seeds are assigned in blocks, in order; after a failure the search waits only for the blocks below it.
"""

from __future__ import annotations

import time
from multiprocessing.connection import wait
from subprocess import DEVNULL

from drift.children import Channel, value_of
from drift.cli.seeding import Failed, Ready, SeedReport, Setup, Tally

#: Strategies are drawn in blocks of as many seeds; see `drift.testing.seeds`.
_DRAWN_BLOCK = 100
_BLOCK = 20
_WAIT_S = 0.2
_ENVIRONMENT = {"PYTHONHASHSEED": "0"}


class Search:
    """Processes that run seeds.

    Attributes:
        ready: the graph and the inputs to run.
        tally: of the seeds run so far.
        seconds: how long seeds have been running.
    """

    def __init__(self, setup: Setup, processes: int) -> None:
        self.processes = processes
        self.tally = Tally()
        self.seconds = 0.0
        self.ready: Ready
        self._setup = setup
        self._processes: list[Channel] = []
        self._running: dict[Channel, int] = {}  # first seed of the block that a process is at
        self._has_run_seeds = False
        self._start(processes)

    def __enter__(self) -> Search:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes; may be called twice."""
        for process in self._processes:
            process.end()
        self._processes, self._running = [], {}

    def run(self, first: int, count: int | None, seconds_max: float | None) -> Failed | None:
        """Run seeds from `first` on.

        Args:
            count: how many at most; None for as long as `seconds_max` allows.

        Returns:
            The least seed that failed, or None.
        """
        self._has_run_seeds = True
        started = time.monotonic()
        size = _DRAWN_BLOCK if self.ready.is_drawn else _BLOCK
        stop = first + count if count is not None else None
        upcoming = first
        failed: Failed | None = None
        running = self._running
        idle = list(self._processes)
        while True:
            self.seconds = time.monotonic() - started
            in_time = seconds_max is None or self.seconds < seconds_max
            while idle and failed is None and in_time and (stop is None or upcoming < stop):
                end = upcoming - upcoming % size + size
                end = end if stop is None else min(end, stop)
                process = idle.pop(0)
                process.send(("run", upcoming, end))
                running[process] = upcoming
                upcoming = end
            if not in_time and failed is None:
                return None
            waited_for = [process for process, start in running.items() if failed is None or start < failed.seed]
            if not waited_for:
                return failed
            ready = wait([process.number for process in waited_for], _WAIT_S)
            for process in (each for each in waited_for if each.number in ready):
                for message in (process.receive(), *map(value_of, process.read())):
                    if isinstance(message, Tally):
                        self.tally.add(message)
                        continue
                    del running[process]
                    idle.append(process)
                    if isinstance(message, Failed) and (failed is None or message.seed < failed.seed):
                        failed = message

    def run_seed(self, seed: int) -> SeedReport:
        return self._request("seed", seed)

    def run_case(self, path: str) -> SeedReport:
        return self._request("case", path)

    def _request(self, kind: str, about: int | str) -> SeedReport:
        """Ask a process that has run nothing before, so that the report depends only on the request."""
        if self._has_run_seeds:
            self.close()
            self._start(1)
        process = self._processes[0]
        process.send((kind, about))
        reported: SeedReport = process.receive()
        return reported

    def _start(self, count: int) -> None:
        try:
            for _ in range(count):
                process = Channel("drift simulate", "drift.cli.seeding", environment=_ENVIRONMENT, stderr=DEVNULL)
                self._processes.append(process)
                process.send(self._setup)
            for process in self._processes:
                self.ready = process.receive()
        except BaseException:
            self.close()
            raise
