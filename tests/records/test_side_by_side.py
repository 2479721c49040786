"""Two lineages side by side: each item beside its counterpart, and the place where they part first."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import drift
from drift.auditing import Input, InputBatch, Lineage, lineage_of
from drift.auditing.side_by_side import Pair, SideBySide, paired, paired_with_recorded, side_by_side_lines
from drift_graph.graph import Dataflow
from drift_graph.item import Item
from drift_graph.meta import END_OF_TIME
from drift_graph.metas import Metas

LINES = [f"a b{number % 3}" for number in range(12)]


class Numbered:
    """Items of one source in arrival time."""

    def __init__(self, name: str, payloads: list[Any]) -> None:
        self.payloads = payloads
        self._batch = InputBatch(name, Metas.numbered(0, len(payloads), b"\0\0\0"), payloads, END_OF_TIME)

    def batches(self) -> Any:
        yield self._batch

    def at(self, global_time: bytes) -> Any:
        return self._batch.payloads[list(self._batch.metas).index(global_time)]


GIVEN: Input = Numbered("lines", LINES)


def counted(
    split: Callable[[str], list[str]] = str.split,
    step: Callable[[int, str], int] = lambda count, word: count + 1,
    formatted: Callable[[Any], Any] = lambda pair: pair,
    last: int = 3,
) -> Dataflow:
    graph = drift.Graph("words")
    words = graph.source("lines").flat_map(split, name="split")
    counts = words.scan(
        key=lambda word: word, initial=0, step=lambda n, word: (step(n, word), (word, step(n, word))), name="count"
    )
    counts.map(formatted, name="formatted").group(key=lambda pair: pair[0], window=last, name="last").sink("out")
    return graph.build()


def items(dataflow: Dataflow) -> list[Item[Any]]:
    return list(drift.run(dataflow, {"lines": LINES}))


def lineages(old: Dataflow, new: Dataflow, position: int, states: int = 30) -> tuple[Lineage, Lineage]:
    one, other = (
        lineage_of(dataflow, GIVEN, items(dataflow)[position].meta, position=position, loops_max=states)
        for dataflow in (old, new)
    )
    return one, other


def first(both: SideBySide) -> Pair:
    parting = both.parting
    assert parting is not None and [pair for pair in both.pairs if pair.parts] == [parting]
    return parting


def test_equal_lineages_are_the_same_in_every_row_and_part_nowhere() -> None:
    both = paired(*lineages(counted(), counted(), 20))
    assert both.parting is None and all(pair.same and pair.old is not None for pair in both.pairs)


def test_the_first_difference_is_the_step_that_gave_another_result_however_far_back() -> None:
    new = counted(step=lambda count, word: count + 1 + (count == 2))
    both = paired(*lineages(counted(), new, 20))
    parting = first(both)
    assert parting.old is not None and parting.new is not None
    assert (parting.new.kind, parting.old.payload, parting.new.payload) == ("state", 3, 4)
    assert all(pair.same for pair in both.pairs if pair.new is not None and pair.new.kind == "input")
    text = list(side_by_side_lines(both))
    assert [line[:4] for line in text if line.startswith(">>")] == [">> -", ">> +"]
    rows = both.as_dict()["rows"]
    assert [row["computed"]["payload"] for row in rows if row["parts"]] == ["4"]


def test_what_only_one_was_made_of_stands_alone_and_what_it_made_parts() -> None:
    both = paired(*lineages(counted(last=3), counted(last=2), 20))
    parting = first(both)
    assert parting.new is not None and parting.new.kind == "window"
    alone = [pair for pair in both.pairs if pair.new is None and not pair.left_out]
    assert alone and all(pair.old is not None for pair in alone)


def test_an_item_that_entered_a_window_and_one_that_left_it_are_marked() -> None:
    def windowed(leave_out: int) -> Dataflow:
        graph = drift.Graph("entered")
        kept = graph.source("lines").map(len).filter(lambda n: n != leave_out, name="kept")
        kept.group(key=lambda n: 0, window=2, name="pairs").sink("out")
        return graph.build()

    given = Numbered("lines", ["a", "bb", "ccc", "dddd"])
    one, other = (
        lineage_of(dataflow, given, list(drift.run(dataflow, {"lines": given.payloads}))[-1].meta, position=0)
        for dataflow in (windowed(3), windowed(2))
    )
    both = paired(one, other)
    alone = [(pair.old and pair.old.payload, pair.new and pair.new.payload) for pair in both.pairs if not pair.same]
    assert ("bb", None) in alone and (None, "ccc") in alone and ("bb", "ccc") not in alone
    lines = list(side_by_side_lines(both))
    assert any(line.split()[:2] == ["+", "'ccc'"] for line in lines), lines


def test_where_states_that_differ_are_cut_no_location_is_named() -> None:
    new = counted(step=lambda count, word: count + 1 + (count == 0))
    both = paired(*lineages(counted(), new, 20, states=1))
    assert both.parting is None and not both.pairs[0].same
    assert list(side_by_side_lines(both))[-1] == "they differ before the items shown"


def test_without_the_code_of_then_what_no_step_at_fault_touched_is_known_and_no_more() -> None:
    (new,) = lineages(counted(), counted(formatted=lambda pair: (pair[0], -pair[1])), 20)[1:]
    recorded = items(counted())[20]
    both = paired_with_recorded(recorded, new, {"formatted"})
    assert first(both).new is not None and first(both).new.step == "formatted"  # type: ignore[union-attr]
    for pair in both.pairs:
        if pair.new is not None and pair.new.step in ("count", "split", "lines"):
            assert pair.same and pair.old is pair.new
        elif pair.new is not None and pair.new.step == "formatted":
            assert not pair.known and pair.old is None
    assert both.pairs[0].old is not None and both.pairs[0].old.payload == recorded.payload
    text = "\n".join(side_by_side_lines(both))
    assert "not known: it takes the recorded code" in text and "--was FILE:GRAPH" in text


@given(
    st.integers(0, 23), st.integers(1, 30), st.integers(0, 12), st.sampled_from(["split", "step", "formatted", "last"])
)
def test_every_shown_item_is_one_of_its_lineage_and_once_reported(
    position: int, states: int, at: int, changed: str
) -> None:
    changes: dict[str, Any] = {
        "split": lambda line: [f"{line[0]}{at % 2}", line[2:]],
        "step": lambda count, word: count + 1 + (count == at),
        "formatted": lambda pair: (pair[0], pair[1] % (at + 1)),
        "last": at + 1,
    }
    old, new = lineages(counted(), counted(**{changed: changes[changed]}), position, states)
    both = paired(old, new)
    for lineage, side in ((old, "old"), (new, "new")):
        shown = [getattr(pair, side) for pair in both.pairs if getattr(pair, side) is not None]
        assert shown[0] is lineage.item and all(made in lineage.items for made in shown)
        formatted = [pair for pair in both.pairs if getattr(pair, side) is not None and not pair.again]
        counts = itertools.groupby(
            sorted(getattr(pair, side).number for pair in formatted if getattr(pair, side).made_of)
        )
        assert side == "old" or all(len(list(group)) == 1 for _, group in counts)
    parting = both.parting
    if parting is not None:
        assert not parting.same and parting.old is not None and parting.new is not None
        equal = [(one.payload, one.meta) for one in parting.old.made_of] == [
            (other.payload, other.meta) for other in parting.new.made_of
        ]
        assert equal or len(parting.old.made_of) != len(parting.new.made_of) or changed == "split"
