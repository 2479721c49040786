"""Where outputs part, and why: each trouble that is put into a run or a record is named for what it is.

Troubles 1 to 8, of a record's files, are in test_audit.py; 9 to 12 are here: a changed function, an unseeded random
number, the order of a set, a clock.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import modules
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import HANG_S

import drift
from drift.auditing.divergence import Divergence, compared
from drift.auditing.page import audit_page
from drift.auditing.replay import dataflow_of, replayed
from drift.auditing.text import finding_lines
from drift.auditing.verdict import Finding, investigate
from drift.engines.recorded import classes_for
from drift.load import load_module
from drift.machines import maps
from drift.records.reader import Record
from drift.testing import rerun, run_case
from drift_barrier.barrier import Released
from drift_barrier.digest import BLOCK_ITEMS
from drift_graph.item import Failure, Item
from drift_graph.metas import Metas

_numbers = itertools.count()

GRAPH = """
import datetime, random, time
import drift
from drift.auditing.text import print_audit

def parts(line):
    return line.split()

def count(total, word):
    return total + 1, (word, total + 1)

def formatted(pair):
    word, count = pair
    return f"{word}: {count}"

def unrelated(line):
    return len(line)

graph = drift.Graph("words")
lines = graph.source("lines")
counts = lines.flat_map(parts, name="parts").scan(key=lambda word: word, initial=0, step=count, name="count")
counts.map(formatted, name="formatted").sink("counts")
lines.map(unrelated, name="unrelated").sink("lengths")
"""

LINES = [f"word{number % 7} item{number % 5} thing{number % 3}" for number in range(2000)]


def edited(*edits: tuple[str, str]) -> str:
    return modules.edited(GRAPH, *edits)


def recorded(folder: Path, module: Any, lines: list[str] = LINES, **more: Any) -> Record:
    drift.run(module.graph, {"lines": lines}, record=folder / "record", **more).finish()
    return Record(folder / "record")


def found_out(record: Record, graph: drift.Graph, **more: Any) -> Finding:
    dataflow = graph.build()
    record = record.with_classes(classes_for(record, dataflow))
    comparison = compared(record, replayed(record, dataflow))
    assert comparison.divergence is not None
    return investigate(record, dataflow, comparison.divergence, **more)


#: What is wrong, the edit that makes it so, the step at fault, a line of its function, words of the verdict.
IMPURE = {
    "an unseeded random number": (
        ('f"{word}: {count}"', 'f"{word}: {count} {random.random():.3f}"'), "formatted", 'return f"', "random.random()",
    ),
    "the order of a set": (
        ("line.split()", 'list(set(line.split()) | {"a", "b", "c", "d"})'), "parts", "set(line.split())", "set",
    ),
    "a clock": (
        ("total + 1, (word, total + 1)", "total + 1, (word, int(time.time() * 1e6))"), "count", "time.time()",
        "time.time()",
    ),
}  # fmt: skip


@pytest.mark.parametrize("trouble", IMPURE)
def test_an_impure_function_is_named_with_its_line(trouble: str, tmp_path: Path) -> None:
    edit, step, line, word = IMPURE[trouble]
    name = f"impure_{os.getpid()}_{next(_numbers)}"
    module = modules.module_of(tmp_path, edited(edit), name)
    run = f"import {name}, drift; drift.run({name}.graph, {{'lines': {LINES[:300]}}}, record='record').finish()"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}", "PYTHONHASHSEED": "77"}
    subprocess.run([sys.executable, "-c", run], cwd=tmp_path, env=environment, check=True, timeout=HANG_S)
    audit = drift.audit(tmp_path / "record", module.graph, cases=tmp_path / "cases")
    assert (audit.level_result("intact"), audit.level_result("reproduced")) == ("ok", "trouble")
    (check,) = [check for check in audit.checks if check.result == "trouble"]
    found = check.finding
    assert f"a function is not pure: step {step!r}" in check.found
    assert (found.verdict.kind, found.verdict.step) == ("impure", step)
    text = "\n".join([found.verdict.text, *found.verdict.details])
    assert word in text
    place, _, number = found.verdict.where.rpartition(":")
    assert Path(place).name == f"{name}.py"
    assert f"def {line_before(module, line)}" in Path(place).read_text().splitlines()[int(number) - 1]
    assert found.case is not None and found.case.items == 1 and found.case.path is not None
    if "set" in trouble:  # the others would take as long again
        with pytest.raises(drift.ImpureStep, match=f"{step!r}"):
            rerun(found.case.path)


def test_a_function_that_is_impure_for_one_item_of_many_is_named(tmp_path: Path) -> None:
    rare = (
        'return f"{word}: {count}"',
        'return f"{word}: {count}" + (count == 391) * (word == "item1") * str(random.random())',
    )
    module = modules.module_of(tmp_path, edited(rare))
    record = recorded(tmp_path, module)
    found = found_out(record, module.graph)
    assert found.divergence.position > 7000
    assert (found.verdict.kind, found.verdict.step) == ("impure", "formatted")


def test_a_function_that_reads_what_seldom_changes_is_named_all_the_same(tmp_path: Path) -> None:
    edit = ("key=lambda word: word", "key=lambda word: (word, random.random() < 1e-15)")
    module = modules.module_of(tmp_path, edited(edit))
    record = recorded(tmp_path, module, LINES[:20])
    item = next(item for item in record.items(20) if item.sink == "counts")
    other = Item("other", item.position, item.sink, item.meta)
    found = investigate(record, module.graph.build(), Divergence(item.position, other, item))
    assert (found.verdict.kind, found.verdict.step) == ("impure", "count")
    assert "it uses random.random()" in found.verdict.text and ".py:" in found.verdict.where


def line_before(module: Any, line: str) -> str:
    """Name of the function that has a line."""
    text = Path(module.__file__).read_text()
    return text[: text.index(line)].rpartition("def ")[2].partition("(")[0]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """A record of the graph as it is, with four blocks."""
    folder = tmp_path_factory.mktemp("pure")
    return recorded(folder, modules.module_of(folder, GRAPH))


def test_a_changed_function_is_named_with_the_difference_of_its_source(tmp_path: Path, record: Record) -> None:
    changed = modules.module_of(tmp_path, edited(('f"{word}: {count}"', 'f"{word}: {min(count, 600)}"')))
    target = f"{changed.__file__}:graph"
    found = found_out(record, changed.graph, cases=tmp_path, target=target)
    assert (found.verdict.kind, found.verdict.step) == ("function", "formatted")
    (change,) = found.verdict.changes
    assert change.text.startswith("the function of step 'formatted' changed: formatted at ")
    assert '-    return f"{word}: {count}"\n+    return f"{word}: {min(count, 600)}"' in change.diff
    divergence = found.divergence
    assert divergence.recorded is not None and divergence.recomputed is not None
    assert (divergence.recorded.payload, divergence.recomputed.payload) == ("thing0: 601", "thing0: 600")
    assert found.lineage is not None and found.lineage.item.payload == "thing0: 600"
    assert [made.payload for made in found.lineage.items if made.kind == "state"] == [598, 599, 600]
    assert found.case is not None and found.case.path is not None and found.case.items == 601
    case = json.loads(found.case.path.read_text())
    assert case["failure"]["what"] == "another output than the record's"
    assert "is 'thing0: 600'" in case["failure"]["message"] and "'thing0: 601'" in case["failure"]["message"]
    assert run_case(found.case.path).failure is None  # the engines agree on it


def test_a_changed_graph_is_reported_by_what_changed(tmp_path: Path, record: Record) -> None:
    changed = modules.module_of(tmp_path, edited(("lines.map(unrelated", "lines.filter(len).map(unrelated")))
    found = found_out(record, changed.graph)
    assert (found.verdict.kind, found.verdict.text) == ("graph", "step 'filter len' is new, after 'lines'")
    assert found.recorded_lineage is None and found.notes


def test_the_recorded_lineage_is_reported_if_the_item_is_missing_now(tmp_path: Path, record: Record) -> None:
    failing = modules.module_of(tmp_path, edited(('f"{word}: {count}"', 'f"{word}: {count}" if count < 5 else 1 // 0')))
    audit = drift.audit(record.path, failing.graph, was=graph_of(record))
    (finding,) = [check.finding for check in audit.checks if check.finding is not None]
    assert finding.divergence.recomputed is None and finding.both is None
    assert isinstance(finding.lineage.item.payload, Failure) and finding.lineage.item.step == "formatted"
    assert finding.recorded_lineage.item.payload == finding.divergence.recorded.payload and finding.by_recorded
    text = "\n".join(finding_lines(finding))
    assert "lineage of what is recorded, as the recorded graph made it:" in text and "ZeroDivisionError" in text
    assert "as the recorded graph made it" in audit_page(audit)


def test_a_change_that_is_not_behind_the_item_is_not_blamed(tmp_path: Path) -> None:
    impure = ('f"{word}: {count}"', 'f"{word}: {count} {random.random()}"')
    record = recorded(tmp_path, modules.module_of(tmp_path, edited(impure)), LINES[:50])
    changed = modules.module_of(tmp_path, edited(impure, ("return len(line)", 'return len(line) + (line == "x")')))
    found = found_out(record, changed.graph)
    assert (found.verdict.kind, found.verdict.step) == ("impure", "formatted")


def test_other_versions_are_named_where_nothing_else_is_found(tmp_path: Path, record: Record) -> None:
    """The recorded output is another one, of the same graph, input and pure functions."""
    dataflow = graph_of(record)
    position, item = 5000, record.item(5000)
    other = Item(item.payload + 1 if isinstance(item.payload, int) else "other", position, item.sink, item.meta)
    found = investigate(record, dataflow, Divergence(position, other, item))
    assert found.verdict.kind == "unknown" and "file, a service" in found.verdict.details[0]
    aged = Record(record.path)
    aged.manifest = msgspec.structs.replace(record.manifest, packages={**record.manifest.packages, "numpy": "0.1"})
    found = investigate(aged, dataflow, Divergence(position, other, item))
    assert found.verdict.kind == "environment" and "numpy 0.1 -> " in found.verdict.text
    assert found.lineage is not None and found.lineage.position == position


def test_what_the_reference_does_not_give_is_a_bug_of_ours(record: Record) -> None:
    dataflow = graph_of(record)
    item = next(item for item in record.items(4000) if item.sink == "counts")
    wrong = Item("another: 1", item.position, item.sink, item.meta)
    found = investigate(record, dataflow, Divergence(item.position, item, wrong))
    assert found.verdict.kind == "bug"
    assert f"the reference gives {item.payload!r} where the engine gives 'another: 1'" in found.verdict.text
    found = investigate(record, dataflow, Divergence(item.position, item, None))
    assert found.verdict.kind == "bug" and "and the engine does not" in found.verdict.text


def test_an_engine_at_odds_with_the_reference_is_made_small(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = maps._MapStep._run

    def broken(self: Any, piece: Any, *more: Any) -> Any:
        made = run(self, piece, *more)
        return made._replace(payloads=["wrong" if each == "item3: 2" else each for each in made.payloads])

    monkeypatch.setattr(maps._MapStep, "_run", broken)
    found = found_out(record, load_module(record.manifest.target.rpartition(":")[0]).graph, cases=tmp_path)
    assert found.verdict.kind == "bug" and "gives 'item3: 2' where the engine gives 'wrong'" in found.verdict.text
    assert found.case is not None and found.case.path is not None and found.case.items == 2
    result = run_case(found.case.path)
    assert result.failure is not None and result.failure.got is not None and result.failure.got.payload == "wrong"


def graph_of(record: Record) -> drift.Dataflow:
    return dataflow_of(record, None)


def test_an_output_that_was_changed_is_named_before_anything_else(record: Record, tmp_path: Path) -> None:
    shutil.copytree(record.path, tmp_path / "copy")
    copy = Record(tmp_path / "copy")
    path = copy.path / copy.manifest.of("output")[0].path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    item = record.item(0)
    found = investigate(copy, graph_of(record), Divergence(0, item, Item("other", 0, item.sink, item.meta)))
    assert (found.verdict.kind, found.verdict.where) == ("record", str(path))


# Where they part.


class Changed:
    """A run that gives a recorded output with one thing changed."""

    def __init__(self, items: list[drift.Item[Any]], batch_items: int) -> None:
        self._items = [Item(item.payload, position, item.sink, item.meta) for position, item in enumerate(items)]
        self._batch_items = batch_items

    def __enter__(self) -> Changed:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def batches(self) -> Iterator[Released]:
        for at in range(0, len(self._items), self._batch_items):
            some = self._items[at : at + self._batch_items]
            yield Released(
                at, Metas([item.meta for item in some]), [item.payload for item in some], [i.sink for i in some]
            )


@pytest.fixture(scope="module")
def items(record: Record) -> list[drift.Item[Any]]:
    return list(record.items())


@settings(max_examples=25)
@given(data=st.data())
def test_the_first_position_that_differs_is_found(record: Record, items: list[drift.Item[Any]], data: Any) -> None:
    assert len(items) == 8000
    position = data.draw(st.integers(0, len(items) - 1) | st.sampled_from([0, BLOCK_ITEMS - 1, BLOCK_ITEMS, 7999]))
    kind = data.draw(st.sampled_from(["payload", "type", "missing", "doubled", "swapped", "cut", "more", "same"]))
    changed = list(items)
    item = items[position]
    if kind == "payload":
        changed[position] = Item("other", position, item.sink, item.meta)
    elif kind == "type":
        other = float(item.payload) if isinstance(item.payload, int) else [item.payload]
        changed[position] = Item(other, position, item.sink, item.meta)
    elif kind == "missing":
        del changed[position]
    elif kind == "doubled":
        changed.insert(position, item)
        position += 1
    elif kind == "swapped":
        position = min(position, len(items) - 2)
        changed[position : position + 2] = reversed(changed[position : position + 2])
    elif kind == "cut":
        del changed[position:]
    elif kind == "more":
        changed.append(item)
        position = len(items)
    run = Changed(changed, data.draw(st.integers(1000, 5000)))
    comparison = compared(record, cast(drift.Run, run))
    if kind == "same":
        assert comparison.divergence is None and comparison.digest == record.manifest.digest
        return
    found = comparison.divergence
    assert found is not None and found.position == position
    assert (found.recorded is None) == (position == len(items))
    assert (found.recomputed is None) == (position == len(changed))
    assert comparison.items <= (found.block + 1) * BLOCK_ITEMS + 5000


def test_of_either_output_no_more_than_a_block_is_inspected(
    record: Record, items: list[drift.Item[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[range] = []
    read = Record.output_rows

    def output_rows(self: Record, first: int = 0, end: int | None = None) -> Any:
        looked_at.append(range(first, end or 0))
        return read(self, first, end)

    monkeypatch.setattr(Record, "output_rows", output_rows)
    changed = [*items[:-1], Item("other", 7999, items[-1].sink, items[-1].meta)]
    comparison = compared(record, cast(drift.Run, Changed(changed, 100)))
    assert comparison.divergence is not None and comparison.divergence.position == 7999
    assert looked_at == [range(BLOCK_ITEMS, 2 * BLOCK_ITEMS)]


@pytest.mark.parametrize(("engine", "settings"), [("reference", {}), ("local", {"batch_items": 64})])
def test_a_replay_of_the_same_graph_is_the_same(record: Record, engine: str, settings: dict[str, Any]) -> None:
    comparison = compared(record, replayed(record, graph_of(record), settings, engine=engine))
    assert (comparison.divergence, comparison.items) == (None, 8000)


def test_a_run_that_failed_is_the_same_where_it_fails_again(tmp_path: Path) -> None:
    failing = edited(("return len(line)", "return len(line) if line != 'abc' else 1 // 0"))
    module = modules.module_of(tmp_path, failing)
    with pytest.raises(drift.StepError):
        recorded(tmp_path, module, ["to be", "or not", "abc", "d"])
    record = Record(tmp_path / "record")
    comparison = compared(record, replayed(record, module.graph.build()))
    assert comparison.divergence is None and isinstance(comparison.error, drift.StepError)
    mended = modules.module_of(tmp_path, GRAPH)
    found = found_out(record, mended.graph)
    assert (found.divergence.recorded, found.divergence.recomputed) == (None, None)
    assert found.divergence.what == "the recorded run ended with an error, and this one does not"
    assert (found.verdict.kind, found.verdict.step) == ("function", "unrelated")


# An item more or less: what is set side by side comes from one input item.


def kept(least: int) -> drift.Graph:
    graph = drift.Graph("kept")
    graph.source("n").filter(lambda number: number >= least).map(str).sink("out")
    return graph


@pytest.mark.parametrize(("then", "now", "what"), [(3, 2, "added"), (2, 3, "missing")])
def test_an_item_more_is_paired_with_nothing_and_what_follows_is_the_same(
    then: int, now: int, what: str, tmp_path: Path
) -> None:
    drift.run(kept(then), {"n": range(10)}, record=tmp_path / "r").finish()
    audit = drift.audit(tmp_path / "r", kept(now))
    finding = next(check.finding for check in audit.checks if check.finding is not None)
    items = [finding.divergence.recorded, finding.divergence.recomputed]
    assert [item.payload for item in items] == (["3", "2"] if what == "added" else ["2", "3"])  # at the position
    paired = [item.payload if item is not None else None for item in finding.divergence.pair]
    assert paired == ([None, "2"] if what == "added" else ["2", None])
    assert finding.divergence.in_place.payload == "3"
    as_dict = finding.as_dict()
    if what == "added":
        assert [made.payload for made in finding.lineage.inputs()] == [2] and finding.recorded_lineage is None
        assert as_dict["recorded"] is None and as_dict["recomputed"]["payload"] == "'2'"
    else:
        assert finding.lineage is None and as_dict["recomputed"] is None
    lines = "\n".join(finding_lines(finding))
    assert "has the next item, from another input item:  '3'" in lines
    page = audit_page(audit, "")
    assert "from another input item" in page


NOTEBOOK = """
import sys
import drift
from drift.auditing.text import print_audit
graph = drift.Graph("cells")
graph.source("n").map(lambda number: number + 1).sink("out")
drift.run(graph, {"n": range(5)}, record=sys.argv[1]).finish()
print(drift.audit(sys.argv[1]).ok, [item.payload for item in drift.replay(sys.argv[1])])
graph = None
try:
    drift.audit(sys.argv[1])
except drift.SettingsError as error:
    print(error)
"""


def test_a_record_that_was_made_in_a_notebook_is_audited_there(tmp_path: Path) -> None:
    command = [sys.executable, "-c", NOTEBOOK, str(tmp_path / "r")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
    first, second = done.stdout.splitlines()
    assert first == "True [1, 2, 3, 4, 5]", done.stderr
    assert "was made in a notebook" in second and "'graph', and is not there in this process" in second
