"""What is run and killed where steps are durable, in a process that imports little; what is read and computed is noted.

python segmented.py FOLDER ENGINE: the run of `graph` with its state in FOLDER/state, which kills everything when both
segments have taken some checkpoints.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import drift
from drift.segments.chain import ChainCheckpoints

ITEMS = 3000
NOTES = "DRIFT_TEST_NOTES"


def note(what: str, number: int) -> None:
    """From any process of the run."""
    with Path(os.environ[NOTES], what).open("a") as file:
        file.write(f"{number}\n")


def noted(folder: Path, what: str) -> list[int]:
    path = folder / what
    return [int(line) for line in path.read_text().split()] if path.exists() else []


class Numbers:
    """A source that notes each item that is read of it."""

    live = False

    def __init__(self) -> None:
        self.at = 0

    def open(self) -> Numbers:
        self.at = 0
        return self

    def read(self, items_max: int) -> list[int] | None:
        numbers = list(range(self.at, min(self.at + items_max, ITEMS)))
        for number in numbers:
            note("read", number)
        self.at += len(numbers)
        return numbers or None

    def filenos(self) -> tuple[int, ...]:
        return ()

    def close(self) -> None:
        pass

    def position(self) -> int:
        return self.at

    def seek(self, position: int) -> None:
        self.at = position


def dear(number: int) -> dict[str, int]:
    note("called", number)
    return {"number": number, "score": number * number % 1009}


def summed(total: int, scored: dict[str, int]) -> tuple[int, tuple[int, int]]:
    return total + scored["score"], (scored["number"], total + scored["score"])


def graph(step: Any = summed) -> drift.Graph:
    made = drift.Graph("scores")
    scores = made.source("numbers").map(dear, name="dear", durable=True)
    scores.scan(lambda scored: scored["number"] % 7, 0, step, name="sums").sink("out")
    return made


def run(folder: Path, engine: str, *, batch_items: int = 50) -> drift.Run:
    os.environ[NOTES] = str(folder)
    state = drift.Checkpoints(folder / "state", every_s=0, keep=40)
    sinks = {"out": drift.sinks.jsonl(folder / "out.jsonl")}
    numbers: dict[str, Any] = {"engine": engine, "state": state, "sinks": sinks, "batch_items": batch_items}
    return drift.run(graph(), {"numbers": Numbers()}, **numbers)


def main(folder: str, engine: str) -> None:
    made = run(Path(folder), engine)
    run_checkpoints = made._run_checkpoints
    assert isinstance(run_checkpoints, ChainCheckpoints)
    for item in made:
        if item.position % 50 == 0:
            run_checkpoints.wait()  # one is taken when the one before is written, however long the disk takes for that
        if item.position >= ITEMS // 4 and all(
            each.checkpoint and each.checkpoint.number >= 5 for each in run_checkpoints.of_segments
        ):
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
