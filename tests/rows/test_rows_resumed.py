"""Steps whose state was made of columns go on with dicts behind a checkpoint, and the other way round."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import drift

SCHEMA = {"zone": str, "day": int, "n": int, "fare": float}
Rows = list[dict[str, Any]]
#: Most keys come again behind a checkpoint.
ROWS: Rows = [{"zone": f"{at * 7 % 90}", "day": at % 2, "n": at % 11, "fare": at / 7} for at in range(600)]
MORE: Rows = [{"zone": f"{at * 11 % 99}", "day": at % 2, "n": at % 7, "fare": at / 3} for at in range(300)]

STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "dedup": lambda rows, more: rows.key_by("zone").dedup(),
    "dedup of two": lambda rows, more: rows.key_by("zone", "n").dedup(),
    "running": lambda rows, more: rows.key_by("zone").running(n=drift.agg.count(), least=drift.agg.min("fare")),
    "shift": lambda rows, more: rows.key_by("zone").running(before=drift.agg.shift("n", 2), more=drift.agg.diff("n")),
    "rolling": lambda rows, more: rows.key_by("zone").rolling(90, n=drift.agg.count(), total=drift.agg.sum("fare")),
    "join": lambda rows, more: rows.join(more, "zone", flat=True),
    "join of two": lambda rows, more: rows.key_by("zone", "n").join(more.key_by("zone", "n"), flat=True),
    "join within": lambda rows, more: rows.join(more, "zone", within=(30, 90), flat=True),
    "join as of": lambda rows, more: rows.join_as_of(more, "zone", flat=True),
    "join table": lambda rows, more: rows.join_table(more, "zone", flat=True),
}


def graph_of(step: str) -> drift.Graph:
    graph = drift.Graph("resumed")
    rows = graph.source("rows", schema=SCHEMA)
    more = graph.table("more", schema=SCHEMA) if step == "join table" else graph.source("more", schema=SCHEMA)
    if "join" not in step:
        more.sink("all of more")
    made = STEPS[step](rows, more)
    made.sink("out")
    made.select("zone", "fare").sink("some")
    return graph


def source_of(rows: Rows, kind: str) -> Any:
    frame = pl.DataFrame(rows, schema=SCHEMA)
    return drift.sources.table(frame, payload="rows" if kind == "columns" else "dict")


@pytest.mark.parametrize("kinds", [("columns", "columns"), ("columns", "dicts")])
@pytest.mark.parametrize("step", list(STEPS))
def test_a_run_resumes_with_rows_of_the_other_kind(step: str, kinds: tuple[str, str], tmp_path: Path) -> None:
    graph = graph_of(step)
    expected = list(drift.run(graph, {"rows": ROWS, "more": MORE}, engine="reference"))
    found: list[Any] = []
    for turn in range(5):  # each a run that stops after some more, but for the last
        state = drift.Checkpoints(tmp_path / "state", every_s=3600, every_items=50)
        sources = {name: source_of(rows, kinds[turn % 2]) for name, rows in (("rows", ROWS), ("more", MORE))}
        run = drift.run(graph, sources, state=state, batch_items=40)
        for item in run:
            found.append(item)
            if turn < 4 and len(found) >= len(expected) * (turn + 1) // 5:
                run.stop()
    assert found == expected
