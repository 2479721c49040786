"""Metas and their parts, items in columns, and the ranks of operators."""

from __future__ import annotations

from typing import Any

from columns import columns_of
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import Recipe, build, numbers, payloads, recipes, times

from drift_graph.canonical import canonical
from drift_graph.item import Columns, joined, sorted_by_meta
from drift_graph.meta import (
    BEGINNING,
    END_OF_TIME,
    MetaParts,
    global_time,
    global_time_of,
    pack_time,
    read_varint,
    time_of,
    varint,
)

global_times = st.tuples(times, st.integers(0, 300), numbers, numbers)


@given(numbers, numbers)
def test_varints_sort_as_their_numbers_and_read_back(left: int, right: int) -> None:
    assert (varint(left) < varint(right)) == (left < right)
    assert read_varint(b"x" + varint(left) + b"more", 1) == (left, 1 + len(varint(left)))


@given(global_times, global_times, st.lists(numbers, max_size=4), st.lists(numbers, max_size=4))
def test_metas_sort_as_their_parts(
    left: tuple[int, ...], right: tuple[int, ...], left_path: list[int], right_path: list[int]
) -> None:
    left_meta = global_time(*left) + b"".join(map(varint, left_path))
    right_meta = global_time(*right) + b"".join(map(varint, right_path))
    assert (left_meta < right_meta) == ((left, left_path) < (right, right_path))
    assert global_time_of(left_meta) == global_time(*left)
    assert time_of(left_meta) == left[0]
    parts = MetaParts(left_meta)
    assert (parts.time, parts.source_rank, parts.tie, parts.ordinal, parts.path) == (*left, tuple(left_path))


@given(global_times)
def test_beginning_and_end_are_outside_of_every_global_time(time: tuple[int, ...]) -> None:
    assert BEGINNING < global_time(*time) < END_OF_TIME
    assert pack_time(time[0]) < global_time(*time)


@given(recipes())
def test_ranks_fall_along_every_edge_and_are_one_for_each_operator(recipe: Recipe) -> None:
    dataflow = build(recipe)
    ranks = dataflow.ranks
    for edge in dataflow.edges:
        if edge.origin in ranks and not edge.feedback:
            assert ranks[edge.origin] > ranks[edge.target]
    assert sorted(ranks.values()) == list(range(len(ranks)))
    assert set(ranks) == {operator.name for operator in dataflow.operators if operator.kind != "source"}
    assert build(recipe).ranks == ranks


def test_what_leads_round_to_a_scan_has_a_higher_rank_than_the_scan() -> None:
    dataflow = build(Recipe(1, [("loop", 0, "plain", 1, 0, 1), ("scan", 0, "one", "mixing")], []))
    assert dataflow.ranks["s0-back"] > dataflow.ranks["s1"]


@given(st.lists(st.tuples(payloads, st.sampled_from([1, -1])), max_size=6), st.integers(0, 3))
def test_joined_and_sorted_columns_keep_their_rows(changes: list[tuple[Any, int]], cut: int) -> None:
    assume(len(changes) >= cut)
    batch = [(index * 7 % 5, payload, diff) for index, (payload, diff) in enumerate(changes)]
    whole = joined([columns_of(batch[:cut]), columns_of(batch[cut:])])
    result = sorted_by_meta(whole)

    def listed(columns: Columns) -> list[tuple[bytes, bytes, int]]:
        diffs = columns.diffs or [1] * len(columns.metas)
        return [(meta, canonical(payload), diff) for meta, payload, diff in zip(columns.metas, columns.payloads, diffs)]

    assert listed(result) == sorted(listed(whole), key=lambda row: row[0])
