"""The time to recover that `drift plan` predicts, beside that of runs whose processes were all killed.

    python -m benchmarks.recovering --kills 5 --within 2

Each graph is measured on a sample; `drift.planning` chooses durable steps and intervals for the bound. Then a live
source feeds the graph in a process of its own, at a share of what it could do, which is killed by SIGKILL at moments
spread over an interval; the same call, in a new process, tells how long it took until its output was where it had
been. Times are those of the processor, so that what else the machine does changes neither side; those by the clock
are beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import mean
from typing import Any, NamedTuple

import drift
from benchmarks.tables import decimals
from drift.planning.model import Choice, Model, Prices, Store
from drift.planning.sample import Sampling, measured_model
from drift_graph.graph import Dataflow


def spun(number: int, turns: int = 400) -> int:
    """Something that takes some time."""
    for turn in range(turns):
        number = (number * 31 + turn) % 1_000_003
    return number


def dear(number: int) -> tuple[int, int]:
    return number, spun(number)


def added(total: int, pair: tuple[int, int]) -> tuple[int, int]:
    return total + pair[1], total


def counted(numbers: drift.Stream[Any], keys: int) -> drift.Stream[Any]:
    return numbers.scan(lambda pair: pair[0] % keys, 0, added, name="totals")


def line(numbers: drift.Stream[int]) -> drift.Stream[Any]:
    """A dear step, and little state."""
    return counted(numbers.map(dear, name="dear"), 1000)


def states(numbers: drift.Stream[int]) -> drift.Stream[Any]:
    """A dear step, and a state for almost each item."""
    return counted(numbers.map(dear, name="dear"), 1_000_000)


def fan(numbers: drift.Stream[int]) -> drift.Stream[Any]:
    """Three of one, and the dear step last."""
    three = numbers.flat_map(lambda n: [(n + each, 1) for each in range(3)], name="three")
    return counted(three, 1000).map(dear, name="dear")


def diamond(numbers: drift.Stream[int]) -> drift.Stream[Any]:
    """Two ways that meet."""
    even = numbers.filter(lambda n: n % 2 == 0, name="even").map(dear, name="dear")
    odd = numbers.filter(lambda n: n % 2 == 1, name="odd").map(lambda n: (n, spun(n)), name="dear as well")
    return counted(even.merge(odd), 1000)


def two(numbers: drift.Stream[int]) -> drift.Stream[Any]:
    """Two steps with state behind each other."""
    first = counted(numbers.map(dear, name="dear"), 1000)
    second = first.map(lambda total: (total % 5003, spun(total)), name="mixed")
    return second.scan(lambda pair: pair[0], 0, added, name="again")


GRAPHS: dict[str, Callable[[drift.Stream[int]], drift.Stream[Any]]] = {
    each.__name__: each for each in (line, states, fan, diamond, two)
}


def graph_of(name: str) -> Dataflow:
    graph = drift.Graph(name)
    GRAPHS[name](graph.source("numbers")).sink("out")
    return graph.build()


class Paced:
    """Numbers: so many at once, as many as had been read before a death, and then at a rate."""

    live = True

    def __init__(self, rate: float, at_once: int) -> None:
        self._rate, self._at_once = rate, at_once
        self._at = 0
        self._began_s = 0.0

    def open(self) -> Paced:
        self._began_s = time.monotonic()
        return self

    def read(self, items_max: int) -> list[int]:
        due = self._at_once + int((time.monotonic() - self._began_s) * self._rate)
        first, self._at = self._at, max(min(due, self._at + items_max), self._at)
        return list(range(first, self._at))

    def filenos(self) -> Sequence[int]:
        return ()

    def close(self) -> None:
        """There is nothing to do."""

    def position(self) -> int:
        return self._at

    def seek(self, position: int) -> None:
        self._at = position


class Call(NamedTuple):
    """A run in a process of its own; `reached` is the position that an earlier one had released, after `items`."""

    graph: str
    folder: str
    durable: Sequence[str]
    intervals_s: Sequence[float]
    rate: float
    reached: int = 0
    items: int = 0


def called(call: Call) -> None:
    """Say after each batch what is released and read; of one that resumes, only when it is where the last one was."""
    flow = Model(graph_of(call.graph), 1.0, {}, Store()).marked(call.durable)
    state = drift.Checkpoints(call.folder, every_s=list(call.intervals_s))
    with drift.run(flow, {"numbers": Paced(call.rate, call.items)}, state=state) as run:  # type: ignore[arg-type]
        started_s = time.process_time()
        for batch in run.batches():
            position = batch.position + len(batch.metas)
            if not call.reached:
                print(position, run.progress.items_in, flush=True)
            elif position > call.reached:
                print(started_s, time.process_time(), flush=True)
                return


class Measured(NamedTuple):
    """Seconds until a run was where it had been: of the processor, by the clock, and its start alone."""

    cpu_s: float
    clock_s: float
    start_s: float


def killed(call: Call, after_s: float) -> Measured:
    """Run, kill, and run again."""
    with _started(call) as child:
        assert child.stdout is not None
        first = child.stdout.readline()
        time.sleep(after_s)  # the moment of the death is what is varied
        os.kill(child.pid, signal.SIGKILL)
        last = [first, *child.stdout.readlines()][-1]
    reached, items = map(int, last.split())
    began_s = time.perf_counter()
    with _started(call._replace(reached=reached, items=items)) as child:
        assert child.stdout is not None
        start_s, cpu_s = map(float, child.stdout.readline().split())
        clock_s = time.perf_counter() - began_s
    return Measured(cpu_s, clock_s, start_s)


def _started(call: Call) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.recovering", "--called", json.dumps(call)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def start_s(name: str) -> float:
    """Seconds of the processor until a run of nothing has begun."""
    with tempfile.TemporaryDirectory() as folder:
        call = Call(name, folder, (), (1.0,), 1000.0, reached=1, items=100)
        with _started(call) as child:
            assert child.stdout is not None
            return float(child.stdout.readline().split()[0])


def row(name: str, kind: str, choice: Choice, runs: Sequence[Measured], start: float) -> str:
    cpu_s = mean(each.cpu_s for each in runs)
    redone_s = mean(each.cpu_s - each.start_s for each in runs)
    intervals = ", ".join(f"{each:g}" for each in choice.intervals_s)
    shown = ", ".join(choice.durable) or "none"
    return (
        f"{name:8} {kind:7} {shown:30.30} {intervals:14.14} {decimals(choice.mean_s):>9} {decimals(cpu_s):>8} "
        f"{cpu_s / choice.mean_s:>6.2f} {decimals(choice.mean_s - start):>9} {decimals(redone_s):>8} "
        f"{decimals(max(each.cpu_s for each in runs)):>8} {decimals(choice.longest_s):>8} "
        f"{decimals(mean(each.clock_s for each in runs)):>8}"
    )


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovering", description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--within", type=float, default=2.0, help="seconds of the processor")
    parser.add_argument("--share", type=float, default=0.15, help="of a processor, which the input takes")
    parser.add_argument("--items", type=int, default=40_000, help="of a sample run")
    parser.add_argument("--graph", action="append", choices=list(GRAPHS))
    parser.add_argument("--called", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.called:
        return called(Call(*json.loads(arguments.called)))
    print(f"{'':8} {'':7} {'durable':30} {'every s':14} {'predicted':>9} {'cpu s':>8} {'of it':>6} {'w/o start':>9} "
          f"{'cpu s':>8} {'most':>8} {'longest':>8} {'clock s':>8}")  # fmt: skip
    for name in arguments.graph or GRAPHS:
        start = start_s(name)
        sampling = Sampling(
            lambda: {"numbers": range(2 * arguments.items)}, {}, arguments.items, None, time.process_time, start
        )
        model = measured_model(graph_of(name), sampling, rate=None, prices=Prices())
        model = replace(model, rate=arguments.share * model.rate)
        every = model.least(tuple(model.exits), arguments.within)
        choices = {
            "chosen": model.least_cost(arguments.within),
            "none": model.least((), arguments.within),
            "all": every,
        }
        done: set[tuple[str, ...]] = set()
        for kind, choice in choices.items():
            if choice is None or choice.durable in done:
                continue
            done.add(choice.durable)
            runs = []
            for number in range(arguments.kills):
                after_s = max(choice.intervals_s) * (1.5 + (number + 0.5) / arguments.kills)
                with tempfile.TemporaryDirectory() as folder:
                    call = Call(name, folder, choice.durable, choice.intervals_s, model.rate)
                    runs.append(killed(call, after_s))
            print(row(name, kind, choice, runs, start), flush=True)


if __name__ == "__main__":
    main()
