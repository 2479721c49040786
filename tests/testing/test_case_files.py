"""A case file that somebody wrote or damaged is refused with what is wrong in it; no process dies of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import drift
from drift.testing import load_case
from drift_graph.errors import InputError


def lengths() -> drift.Graph:
    graph = drift.Graph("lengths")
    graph.source("words").map(len).sink("out")
    return graph


def good() -> dict[str, Any]:
    return {
        "format": "drift case 2",
        "graph": {"name": "lengths", "target": ""},
        "inputs": {"words": [{"canonical": "oA=="}]},
        "schedule": {"workers": 2, "deviations": [[["ack", "", "words", 0, 0], 1]]},
    }


def test_a_case_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    path.write_text(json.dumps(good()))
    assert load_case(path, lengths()).schedule.workers == 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda case: case.pop("graph"), "`graph`"),
        (lambda case: case.update(graph=3), r"\$\.graph"),
        (lambda case: case["graph"].pop("target"), "`target`"),
        (lambda case: case["graph"].update(target=3), r"\$\.graph\.target"),
        (lambda case: case.update(inputs=[3]), r"\$\.inputs"),
        (lambda case: case["inputs"].update(words=[{}]), "`canonical`"),
        (lambda case: case.pop("schedule"), "`schedule`"),
        (lambda case: case["schedule"].update(workers=10**6), r"<= 64 - at `\$\.schedule\.workers"),
        (lambda case: case["schedule"].update(noise="x"), r"\$\.schedule\.noise"),
        (lambda case: case["schedule"].update(live=3), r"\$\.schedule\.live"),
        (lambda case: case["schedule"].update(deviations=[[0, 0]]), r"\$\.schedule\.deviations"),
        (lambda case: case["schedule"]["deviations"][0].__setitem__(1, -1), r"deviations\[0\]\[1\]"),
        (lambda case: case["schedule"]["deviations"][0].__setitem__(0, ["ack"]), r"deviations\[0\]\[0\]"),
    ],
)
def test_a_case_file_with_an_error(tmp_path: Path, change: Callable[[dict[str, Any]], object], says: str) -> None:
    case = good()
    change(case)
    path = tmp_path / "case.json"
    path.write_text(json.dumps(case))
    with pytest.raises(InputError, match=says):
        load_case(path, lengths())


def test_a_case_file_is_nested_too_deep(tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    path.write_text("[" * 100_000)
    with pytest.raises(InputError, match="too deep"):
        load_case(path, lengths())
