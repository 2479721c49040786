"""The small cases of `acceptance.py` on every engine of this machine, and going on from checkpoints as another engine
does.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import flows
import pytest
from acceptance import CASES, LINES, by_sink, expected_of, graph_of, rows_of

import drift


@pytest.mark.parametrize("name", CASES)
def test_a_case_gives_what_is_documented(name: str) -> None:
    found = {}
    for engine in ({"engine": "reference"}, *flows.ENGINES):
        run = drift.run(graph_of([name]), {"rows": rows_of([name])}, **engine)
        assert by_sink([(item.sink, item.payload) for item in run]) == expected_of([name]), engine
        found[run.digest] = engine
    assert len(found) == 1


def test_every_case_over_zeromq() -> None:
    names = list(CASES)
    run = drift.run(graph_of(names), {"rows": rows_of(names)}, **flows.ZEROMQ)
    assert by_sink([(item.sink, item.payload) for item in run]) == expected_of(names)
    assert run.digest == drift.run(graph_of(names), {"rows": rows_of(names)}).finish().digest


def words(lines: drift.Stream[str]) -> drift.Stream[Any]:
    return lines.flat_map(str.split).key_by(str.lower).at_end(drift.agg.count()).at_end(drift.agg.sort())


def text(numbers: drift.Stream[int]) -> drift.Stream[str]:
    return numbers.at_end(drift.agg.fold("", lambda payloads, number: payloads + str(number)))


@pytest.mark.parametrize(
    ("steps", "inputs", "checkpoint_after", "expected"),
    [
        *((text, range(10), items, "0123456789") for items in (3, 6, 9)),
        *((words, LINES, items, (("cat", 3), ("dog", 3), ("horse", 4), ("monkey", 3))) for items in (1, 2, 4)),
    ],
)
def test_what_is_known_at_the_end_resumes_from_a_checkpoint(
    steps: Any, inputs: Any, checkpoint_after: int, expected: Any, tmp_path: Path
) -> None:
    graph = flows.flow(steps, "in")

    def run(folder: Path, engine: dict[str, Any], **more: Any) -> tuple[Any, list[Any]]:
        checkpoints = drift.Checkpoints(folder, every_s=3600, every_items=checkpoint_after, keep=10, **more)
        started = drift.run(graph, {"in": inputs}, state=checkpoints, **engine)
        return started, [item.payload for item in started]

    first, payloads = run(tmp_path / "state", {"batch_items": 1})
    assert payloads == [expected]
    for name, engine in (("local", {}), ("zeromq", flows.ZEROMQ)):
        folder = Path(shutil.copytree(tmp_path / "state", tmp_path / name))
        again, payloads = run(folder, engine, from_checkpoint=1)
        assert again.resumed_from.items_in == checkpoint_after
        assert (again.digest, payloads) == (first.digest, [expected])
    again, payloads = run(tmp_path / "state", {})
    assert again.resumed_from.is_last and (again.digest, payloads) == (first.digest, [])
