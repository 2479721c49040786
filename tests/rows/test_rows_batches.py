"""How many rows come at once, and what the barrier does with those that are taken back."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from columns import meta_at

import drift
from drift.columns.rows import Frame
from drift_barrier.barrier import Barrier
from drift_graph.item import Columns
from drift_graph.meta import END_OF_TIME
from drift_graph.metas import Metas

SCHEMA = {"key": str, "n": int}
ROWS = [{"key": "abc"[n % 3], "n": n} for n in range(40)]


@pytest.mark.parametrize(
    ("in_columns", "given", "expected", "engine"),
    [
        (True, {}, 32 * 4096, {}),
        (False, {}, 4096, {}),
        (True, {"batch_items": 7}, 7, {}),
        (False, {"batch_items": 7}, 7, {}),
        (True, {}, 32 * 4096, {"engine": "zeromq", "workers": 2}),
    ],
)
def test_rows_in_columns_come_more_at_once_unless_a_run_says_how_many(
    in_columns: bool, given: dict[str, int], expected: int, engine: dict[str, Any]
) -> None:
    graph = drift.Graph("batches")
    rows = graph.source("rows", schema=SCHEMA).select("key", total=pl.col("n") + 1)
    rows.key_by("key").running(least=drift.agg.min("total")).sink("out")
    run = drift.run(graph, {"rows": pl.DataFrame(ROWS, schema=SCHEMA) if in_columns else ROWS}, **engine, **given)
    assert run.finish().digest == drift.run(graph, {"rows": ROWS}, engine="reference").finish().digest
    assert run._feed.intake.policy.items_max == expected


def test_rows_that_are_taken_back_leave_the_barrier_without_being_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that is looked at by itself is a frame of one row."""
    barrier = Barrier()
    others = [{**row, "n": -1} for row in ROWS[5:15]]
    for first, rows, diffs in ((0, ROWS, None), (5, ROWS[5:25], [-1] * 20), (5, others, None)):
        metas = [meta_at(first + at) for at in range(len(rows))]
        barrier.add("out", Columns(Metas(metas), Frame(pl.DataFrame(rows, schema=SCHEMA)), diffs))  # type: ignore[arg-type]
    looked_at: list[Any] = []
    whole = Frame.__getitem__

    def noted(self: Frame, at: Any) -> Any:
        if not isinstance(at, slice):
            looked_at.append(at)
        return whole(self, at)

    monkeypatch.setattr(Frame, "__getitem__", noted)
    barrier._compact()
    released = barrier.release(END_OF_TIME)
    assert released is not None and not looked_at
    assert list(released.payloads) == [*ROWS[:5], *others, *ROWS[25:]]
