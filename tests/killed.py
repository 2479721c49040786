"""What is run and killed in `test_kills`, in processes that import little."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import drift
from drift import sinks, sources
from drift.engines import logged
from drift.sinks.base import as_sink
from drift.state import files

ITEMS = 600
_dying = threading.RLock()  # held while a number was read and is in no log: it would be lost with the process


def keyed(n: int) -> int:
    return n % 7


def summed(state: int, n: int) -> tuple[int, tuple[int, int]]:
    return state + n, (n, state + n)


def graph(*, stateful: bool = True) -> drift.Graph:
    made = drift.Graph("sums")
    source = made.source("n")
    (source.scan(keyed, 0, summed, name="sums") if stateful else source.map(lambda n: (n, n))).sink("out")
    return made


class Lines:
    """Numbers that come once, through a pipe that outlives a process: each is handed over as soon as it is read."""

    live = True

    def open(self) -> Lines:
        return self

    def read(self, items_max: int) -> list[int] | None:
        _dying.acquire()
        data = os.read(0, 8)  # eight digits a number
        if data:
            return [int(data)]
        _dying.release()
        return None

    def filenos(self) -> tuple[int, ...]:
        return (0,)

    def close(self) -> None:
        pass


class Appended:
    """A callable that appends to a file, and cannot tell what it has."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, item: drift.Item[Any]) -> None:
        with open(self.path, "a") as file:  # noqa: PTH123
            file.write(json.dumps([item.position, *item.payload]) + "\n")


def source_of(kind: str, folder: str) -> Any:
    return Lines() if kind == "once" else sources.jsonl(f"{folder}/in.jsonl")


def sink_of(kind: str, folder: str, place: str) -> Any:
    made: dict[str, Callable[[], Any]] = {
        "jsonl": lambda: sinks.jsonl(f"{folder}/out.jsonl"),
        "csv": lambda: sinks.csv(f"{folder}/out.csv", columns=["n", "sum"]),
        "parquet": lambda: sinks.parquet(f"{folder}/out.parquet", columns=["n", "sum"], part_items=150),
        "sqlite": lambda: sinks.sqlite(f"{folder}/out.db", "out", columns=["n", "sum"]),
        "postgres": lambda: sinks.postgres(place, "killed", columns=["n", "sum"]),
        "redis": lambda: sinks.redis(place, "killed"),
        "callable": lambda: Appended(f"{folder}/out.jsonl"),
    }
    return made[kind]()


def dying(function: Callable[..., Any], left: list[int], *, before: bool = True) -> Callable[..., Any]:
    """The function, before or behind some call of which this process dies."""

    def called(*arguments: Any, **more: Any) -> Any:
        left[0] -= before
        die_if(before and left[0] <= 0)  # several threads count
        result = function(*arguments, **more)
        left[0] -= 1
        die_if(left[0] <= 0)
        return result

    return called


def die_if(dies: bool) -> None:
    if dies:
        with _dying:
            os.kill(os.getpid(), signal.SIGKILL)


def let_die(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that logs what was read."""

    def called(*arguments: Any) -> Any:
        result = function(*arguments)
        _dying.release()
        return result

    return called


def main(kind: str, out: str, folder: str, place: str, state: str, calls: str) -> None:
    """Run the graph, and die by some call of what writes: sinks, logs and checkpoints."""
    left = [int(calls)]
    patched: Any = files
    patched._write = dying(files._write, left)
    if kind == "once":  # what was read and is in no log is lost, as it is to whoever acknowledges nothing
        log: Any = logged.ArrivalLog
        log.items = dying(let_die(log.items), left, before=False)
    sink: Any = as_sink("out", sink_of(out, folder, place))
    sink.write = dying(sink.write, left)
    more: dict[str, Any] = {"state": drift.Checkpoints(f"{folder}/state", every_s=0, keep=2)} if state else {}
    times = {"n": drift.EventTime(lambda n: n)}
    inputs = {"n": source_of(kind, folder)}
    drift.run(graph(), inputs, sinks={"out": sink}, times=times, batch_items=20, **more).finish()


if __name__ == "__main__":
    main(*sys.argv[1:])
