"""Two outputs, two records, a record and another version of its graph: every difference is counted once."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import modules
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import drift
import drift.cli
from drift.auditing import outputs
from drift.auditing.diff import diff
from drift.auditing.outputs import KINDS, OutputRows, difference, same_rows
from drift.auditing.text import diff_lines
from drift.records.format import RecordError
from drift.records.reader import Record
from drift.records.shown import readable
from drift_graph.meta import global_time

# Outputs.

_item = st.tuples(st.integers(0, 5), st.integers(0, 3), st.sampled_from("ab"), st.sampled_from("xyz"))
_items = st.lists(_item, unique_by=lambda item: item[:2]).map(sorted)


def pieces(
    items: list[tuple[int, int, str, str]], size: int, sinks: Sequence[str] = ("a", "b")
) -> Iterator[OutputRows]:
    """The rows of an output in columns."""
    for at in range(0, len(items), size):
        some = items[at : at + size]
        columns = {
            "sink": pa.DictionaryArray.from_arrays([sinks.index(sink) for _, _, sink, _ in some], list(sinks)),
            "time": pa.array([time for time, _, _, _ in some], pa.int64()),
            "tie": pa.array([global_time(0, 0, 0, 0)[8:] for _ in some], pa.binary()),
            "path": pa.array([bytes((number,)) for _, number, _, _ in some], pa.binary()),
            "payload": pa.array([data.encode() for _, _, _, data in some], pa.binary()),
        }
        yield OutputRows(at, pa.RecordBatch.from_pydict(columns))


def by_hand(old: list[Any], new: list[Any]) -> tuple[int, int, int, int]:
    """(same, changed, missing, added), by what each input item gives to each sink, as bags of payloads."""
    same = changed = missing = added = 0
    for place in {(time, sink) for time, _, sink, _ in (*old, *new)}:
        one, other = (Counter(data for time, _, sink, data in side if (time, sink) == place) for side in (old, new))
        both = (one & other).total()
        left, right = one.total() - both, other.total() - both
        same += both
        changed += min(left, right)
        missing += left - min(left, right)
        added += right - min(left, right)
    return same, changed, missing, added


@given(_items, _items, st.integers(1, 9), st.integers(1, 9))
def test_every_item_of_two_outputs_is_counted_once(old: list[Any], new: list[Any], one: int, other: int) -> None:
    found = difference(pieces(old, one), pieces(new, other))
    counts = found.counts
    assert (counts.same, counts.changed, counts.missing, counts.added) == by_hand(old, new)
    assert counts.same + counts.changed + counts.missing == len(old)
    assert counts.same + counts.changed + counts.added == len(new)
    assert sum(each.different for each in found.by_sink.values()) == counts.different
    assert sum(each.same for each in found.by_sink.values()) == counts.same
    assert found.same == (counts.different == 0)
    for kind in KINDS:
        assert len(found.first[kind]) == min(getattr(counts, kind), 5)


@given(_items, st.lists(st.tuples(st.integers(0, 30), _item), max_size=2), st.integers(1, 9), st.integers(1, 9))
def test_columns_are_compared_as_lists_are(old: list[Any], changes: list[Any], one: int, other: int) -> None:
    gone = {old[at][:2] for at, _ in changes if at < len(old)}
    by_place = {item[:2]: item for item in [*old, *(item for _, item in changes)] if item[:2] not in gone}
    new = sorted(by_place.values())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outputs, "_LISTED_MAX", 0)
        found = difference(pieces(old, one), pieces(new, other, ["c", "b", "a"]))
    expected = difference(pieces(old, one), pieces(new, other))
    assert (found.counts, found.by_sink, found.first) == (expected.counts, expected.by_sink, expected.first)


def test_columns_with_other_dictionaries_are_the_same() -> None:
    items = [(0, 0, "a", "x"), (1, 0, "b", "y")]
    one, other = (next(pieces(items, 9, sinks)).batch for sinks in (["a", "b"], ["b", "a"]))
    assert same_rows(one, other) and not same_rows(one, other.slice(1))


def test_an_item_that_only_stands_elsewhere_is_the_same_and_has_moved() -> None:
    found = difference(pieces([(0, 0, "a", "x"), (0, 1, "b", "y")], 9), pieces([(0, 0, "b", "y"), (0, 1, "a", "x")], 9))
    assert found.same and (found.counts.same, found.counts.moved) == (2, 2)


# Records.

GRAPH = """
from dataclasses import dataclass
import drift

@dataclass(frozen=True)
class Seen:
    word: str
    count: int

def step(count, word):
    return count + 1, Seen(word, count + 1)

graph = drift.Graph("words")
lines = graph.source("lines", time=drift.EventTime(time=lambda line: line[0], lateness=3, late="divert"))
lines.flat_map(lambda line: line[1].split(), name="split").scan(
    key=lambda word: word, initial=0, step=step, name="count").sink("counts")
lines.map(lambda line: len(line[1]), name="length").sink("lengths")
"""

LINES = [(number, f"a b{number % 3} c{number % 5}") for number in range(1000)]


def module_of(folder: Path, *edits: tuple[str, str]) -> Any:
    return modules.module_of(folder, modules.edited(GRAPH, *edits))


def recorded(folder: Path, graph: drift.Graph, lines: list[Any], **more: Any) -> Record:
    drift.run(graph, {"lines": lines}, record=folder, on_late=lambda late: None, **more).finish()
    return Record(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("versions")


@pytest.fixture(scope="module")
def record(folder: Path) -> Record:
    return recorded(folder / "one", module_of(folder).graph, LINES)


def test_a_record_is_the_same_as_itself_and_as_another_of_the_run(record: Record, folder: Path) -> None:
    shuffled = sorted(LINES, key=lambda line: line[0] ^ 1)
    other = recorded(folder / "two", module_of(folder).graph, shuffled, engine="reference", batch_items=50)
    for one, two, same in ((record, record, True), (record, other, False)):
        found = diff(one.path, two.path)
        assert found.same and found.outputs.same and found.input.same == same
        assert found.input.reordered == (not same)
    text = "\n".join(diff_lines(found))
    assert "graph     the same\ninput     the same 1,000 items in another order of arrival" in text
    assert "output    the same 4,000 items" in text and "settings  engine: local and reference" in text


def test_what_differs_between_two_records_is_reported(record: Record, folder: Path) -> None:
    changed = module_of(folder, ("lateness=3", "lateness=2"), ("count + 1, Seen", "count + 2, Seen"))
    lines = [*LINES[:500], (490, "late"), *LINES[500:700], (700, "other words"), *LINES[701:]]
    other = recorded(folder / "three", changed.graph, lines)
    found = diff(record, other)
    assert not found.same and (found.input.row, found.input.counts) == (700, (1000, 1000))
    assert found.late == (0, 1, False)
    assert [change.text.split(" at ")[0] for change in found.changes] == [
        "lateness of source 'lines': 3 -> 2",
        "the function of step 'count' changed: step",
    ]
    text = "\n".join(diff_lines(found))
    assert "    one    lines at 700  (700, 'a b1 c0')\n    other  lines at 700  (700, 'other words')" in text
    assert "late      others: 0 and 1 items diverted" in text
    assert "Seen(word='a', count=2)" in text and "Seen(word='a', count=3)" in text
    as_dict = json.loads(json.dumps(found.as_dict()))
    assert as_dict["input"]["row"] == 700 and not as_dict["output"]["same"]
    sinks = as_dict["output"]["by_sink"]
    lengths = [sinks["lengths"][name] for name in ("same", "missing", "added")]
    assert lengths == [999, 1, 1]  # in event time, another payload is another input item


def test_classes_that_are_not_at_hand_are_shown_all_the_same(record: Record) -> None:
    rows = next(record.output_rows())
    assert [repr(readable(data)) for data in rows.column("payload").to_pylist()[:2]] == ["7", "Seen(word='a', count=1)"]


def test_the_command_compares_and_says_so_by_its_exit_code(record: Record, folder: Path) -> None:
    shutil.copytree(record.path, folder / "copy")
    done = CliRunner().invoke(drift.cli.drift, ["diff", str(record.path), str(folder / "copy")])
    assert done.exit_code == 0 and "output    the same 4,000 items" in done.stdout
    shorter = recorded(folder / "shorter", module_of(folder).graph, LINES[:10])
    done = CliRunner().invoke(drift.cli.drift, ["diff", str(record.path), str(shorter.path), "--json"])
    assert done.exit_code == 8 and json.loads(done.stdout)["output"]["counts"]["missing"] == 3960
    done = CliRunner().invoke(drift.cli.drift, ["diff", str(record.path), str(folder / "nowhere")])
    assert done.exit_code == 5 and "does not exist" in done.stderr


def test_a_record_that_cannot_be_read_is_an_error_and_no_difference(record: Record, folder: Path) -> None:
    shutil.copytree(record.path, folder / "damaged")
    (folder / "damaged" / "output" / "part-00000.parquet").write_bytes(b"")
    with pytest.raises(RecordError, match="is damaged"):
        diff(folder / "damaged", record)


@pytest.mark.parametrize(("table", "at"), [("input", 0), ("output", -1)])
def test_no_hash_is_taken_on_trust(table: str, at: int, record: Record, folder: Path, tmp_path: Path) -> None:
    recording = drift.Recording(tmp_path / "changed", part_items_max=100)
    drift.run(module_of(folder).graph, {"lines": LINES}, record=recording, batch_items=100).finish()
    assert diff(record, tmp_path / "changed").same
    part = drift.Record(tmp_path / "changed").manifest.of(table)[3]
    rows = pq.read_table(tmp_path / "changed" / part.path)
    payloads = rows.column("payload").to_pylist()
    payloads[at] = payloads[at // 2 + 1]
    column = rows.schema.get_field_index("payload")
    rows = rows.set_column(column, rows.schema.field(column), pa.array(payloads, pa.binary()))
    pq.write_table(rows, tmp_path / "changed" / part.path)
    found = diff(record, tmp_path / "changed")
    assert not found.same and found.outputs.counts.changed == (table == "output")
    assert found.input.row == (part.first + at % part.rows if table == "input" else None)
