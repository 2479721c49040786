"""A call beside a stream that goes around it: of one input item, some has come to a step before the answer has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import drift

ROWS = range(40)


def key_of(n: int) -> int:
    return n % 3


def add(total: int, n: int) -> tuple[int, int]:
    return total + n, total + n


def plus(n: int) -> int:
    return n + 1


def beside() -> drift.Graph:
    """The sums of numbers, and of the answers about them."""
    graph = drift.Graph("beside")
    numbers = graph.source("numbers", time=drift.EventTime(lambda n: n, lateness=0))
    answers = numbers.call(plus, name="ask", timeout_s=None)
    numbers.merge(answers).scan(key_of, 0, add, name="sums").sink("out")
    return graph


def items_of(items: Any) -> list[tuple[bytes, Any]]:
    return [(item.meta, item.payload) for item in items]


@pytest.mark.parametrize("batch_items", [1, 2, 5])
def test_a_state_is_as_of_its_checkpoint_where_a_part_of_its_time_waits_for_an_answer(
    tmp_path: Path, batch_items: int
) -> None:
    whole = items_of(drift.run(beside(), {"numbers": ROWS}))
    for last in range(1, 60, 7):
        state = drift.Checkpoints(tmp_path / f"{last}", every_s=0)
        first = []
        with drift.run(beside(), {"numbers": ROWS}, state=state, batch_items=batch_items) as run:
            for item in run:
                first.append(item)
                if len(first) == last:
                    break  # killed
        again = drift.run(beside(), {"numbers": ROWS}, state=state, batch_items=batch_items)
        at = again.resumed_from.output.position if again.resumed_from is not None else 0
        assert items_of(first[:at]) + items_of(again) == whole
