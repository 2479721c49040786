"""`drift.explain` and `drift explain`: the lineage of an item of a record."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import drift
import drift.cli
from drift.auditing.show import as_text
from drift_graph.item import Failure

ROOT = Path(__file__).parents[2]

GRAPH = """
import drift

def ratio(pair):
    word, count = pair
    return word, 12 // (len(word) - 3)

graph = drift.Graph("words")
graph.source("lines").flat_map(str.split).count(key=str.lower, name="count").map(ratio, name="ratio").sink("ratios")
"""


def load(folder: Path, name: str, text: str = GRAPH) -> Any:
    path = folder / f"{name}.py"
    path.write_text(text)
    sys.modules.pop(name, None)
    return drift_load(path)


def drift_load(path: Path) -> Any:
    from drift.load import load_module

    return load_module(str(path))


def drift_command(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(drift.cli.drift, [str(each) for each in arguments])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp_path = tmp_path_factory.mktemp("explained")
    module = load(tmp_path, "explained")
    feed = ["to be or", "or also TO be"] * 50
    drift.run(module.graph, {"lines": feed}, record=tmp_path / "record").finish()
    return tmp_path / "record"


def test_an_item_of_a_record_is_explained_by_its_position(record: Path) -> None:
    for position, item in ((0, ("to", -12)), (8, ("be", -12)), (349, ("be", -12))):
        lineage = drift.explain(record, position)
        assert (lineage.position, lineage.item.payload, lineage.recorded) == (position, item, None)
    lineage = drift.explain(record, 349, states=2)
    assert [(made.kind, made.payload) for made in lineage.items if made.step != "ratio"] == [
        ("state", 98),
        ("input", "to be or"),
        ("item", "be"),
        ("state", 99),
        ("input", "or also TO be"),
        ("item", "be"),
        ("item", ("be", 100)),
        ("output", ("be", -12)),
    ]
    assert "step 'ratio': map one ratio" in as_text(lineage)


def test_the_command_prints_a_tree_or_json_or_a_flowchart(record: Path) -> None:
    code, text, _ = drift_command("explain", record, "--position", 8)
    assert code == 0 and text.splitlines()[0] == "('be', -12)  sink 'ratios', position 8, time 2"
    code, text, _ = drift_command("explain", record, "--position", 8, "--states", 1, "--json")
    printed = json.loads(text)
    assert code == 0 and (printed["position"], printed["payload"], printed["complete"]) == (8, "('be', -12)", False)
    assert printed["items"][-1]["made_of"] == [printed["items"][-2]["number"]]
    code, text, _ = drift_command("explain", record, "--position", 8, "--mermaid")
    assert code == 0 and text.startswith("flowchart TD\n")
    for wrong in (("--position", 350), ("--position", -1), ("--position", 0, "--states", 0)):
        code, _, error = drift_command("explain", record, *wrong)
        assert code == 2 and error.startswith("error: ")


def test_the_failed_call_that_ended_a_run_is_explained(tmp_path: Path) -> None:
    module = load(tmp_path, "failing")
    with pytest.raises(drift.StepError):
        drift.run(module.graph, {"lines": ["to be", "or not"]}, record=tmp_path / "record").finish()
    lineage = drift.explain(tmp_path / "record", 3)
    assert isinstance(lineage.item.payload, Failure) and lineage.item.step == "ratio"
    assert [made.payload for made in lineage.inputs()] == ["or not"]
    assert as_text(lineage).startswith("raised ZeroDivisionError: ")


def test_what_a_changed_graph_gives_is_shown_next_to_what_the_record_has(tmp_path: Path, record: Path) -> None:
    changed = load(tmp_path, "changed", GRAPH.replace("12 //", "24 //"))
    lineage = drift.explain(record, 8, changed.graph)
    assert lineage.recorded is not None and lineage.recorded.payload == ("be", -12)
    assert lineage.item.payload == ("be", -24)
    code, _, error = drift_command("explain", record, "--position", 8, "--graph", f"{tmp_path / 'changed.py'}:graph")
    assert code == 0 and "the record has ('be', -12) at this position" in error


def test_a_graph_that_does_not_make_the_item_is_reported_with_what_changed(tmp_path: Path, record: Path) -> None:
    text = GRAPH.replace("flat_map(str.split)", "flat_map(lambda line: line.split()[:1])")
    changed = load(tmp_path, "other", text)
    with pytest.raises(drift.InputError, match="does not make the item") as caught:
        drift.explain(record, 8, changed.graph)
    assert "is gone" in caught.value.__notes__[0] or "changed" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ("key_by(at).window(drift.windows.tumbling(5)).count()", "at time 4, because the window [0, 5) ended"),
        ("window(drift.windows.session(2)).count()", "at time 4, because the window [0, 5) ended"),
        ("at_end(drift.agg.count())", "at time END, because all input had ended"),
        ("map(lambda n: drift.at(n + 9, n), later=True)", "at time 9, which was set before"),
    ],
)
def test_it_is_explained_why_a_later_item_comes_when_it_does(tmp_path: Path, steps: str, reason: str) -> None:
    text = f"""
import drift

def at(number):
    return number % 1

graph = drift.Graph("timed")
graph.source("in", time=drift.EventTime(lambda number: number)).{steps}.sink("out")
"""
    module = load(tmp_path, "timed", text)
    drift.run(module.graph, {"in": [0, 1, 2, 3]}, record=tmp_path / "record").finish()
    assert reason in as_text(drift.explain(tmp_path / "record", 0))
