"""Metas, as lists and computed, and the ranks of operators."""

from __future__ import annotations

import pickle
from itertools import compress
from typing import Any

from columns import columns_of
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import Recipe, build, numbers, payloads, recipes, times

from drift_graph.canonical import canonical, encode_metas
from drift_graph.item import Columns, joined, merged, sorted_by_meta
from drift_graph.meta import (
    BEGINNING,
    END_OF_TIME,
    MetaParts,
    child_suffixes,
    global_time,
    global_time_of,
    pack_time,
    read_varint,
    time_of,
    varint,
)
from drift_graph.metas import (
    ChildMetas,
    ChosenMetas,
    ComputedMetas,
    Metas,
    NumberedMetas,
    are_computed,
    chosen_metas,
    greatest_meta,
    is_increasing,
    joined_metas,
    known_to_increase,
    least_meta,
    metas_of_children,
    numbers_of,
    times_of,
    with_suffix,
)
from drift_graph.payloads import Plain

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


@given(st.sampled_from([0, 5, 2**16 - 3, 2**17 - 1, 2**32 - 2]), st.integers(0, 10), st.binary(max_size=3), st.data())
def test_numbered_metas_are_the_list_that_they_stand_for(
    first: int, length: int, ending: bytes, data: st.DataObject
) -> None:
    metas = NumberedMetas(first, length, ending)
    check_computed(metas, [pack_time(first + at) + ending for at in range(length)], data)


@given(st.lists(st.integers(0, 4), max_size=6), st.sampled_from([1, 20]), st.binary(max_size=2), st.data())
def test_child_metas_are_the_list_that_they_stand_for(
    counts: list[int], times: int, ending: bytes, data: st.DataObject
) -> None:
    counts *= times
    parents = NumberedMetas(2**16 - 3, len(counts), ending)
    endings = child_suffixes(3, max(counts, default=0))
    expected = [parent + endings[at] for parent, count in zip(parents, counts) for at in range(count)]
    check_computed(ChildMetas(parents, counts, endings), expected, data)


def test_many_child_metas_are_joined_as_their_list() -> None:
    counts = [at % 8 for at in range(10_000)]
    metas = ChildMetas(NumberedMetas(2**16 - 3, len(counts), b"\1"), counts, child_suffixes(3, 8))[2:34_998]
    assert metas.joined(b"head") == b"".join(b"head" + meta for meta in metas)


def some_computed(counts: list[int], ending: bytes, children: bool) -> ComputedMetas:
    parents = NumberedMetas(2**16 - 2, len(counts), ending)
    return ChildMetas(parents, counts, child_suffixes(3, max(counts, default=0))) if children else parents


@given(st.lists(st.integers(0, 4), max_size=6), st.binary(max_size=2), st.booleans(), st.data())
def test_chosen_metas_are_the_list_that_they_stand_for(
    counts: list[int], ending: bytes, children: bool, data: st.DataObject
) -> None:
    every = some_computed(counts, ending, children)
    chosen = bytes(data.draw(st.lists(st.integers(0, 1), min_size=len(every), max_size=len(every))))
    expected = [meta for meta, one in zip(every, chosen) if one]
    check_computed(ChosenMetas(every, chosen), expected, data)
    assert list(chosen_metas(every, chosen)) == list(chosen_metas(every.listed(), chosen)) == expected


@given(st.lists(st.integers(0, 4), max_size=6), st.booleans(), st.sampled_from([list, Plain]), st.data())
def test_what_was_split_is_merged_as_it_was(
    counts: list[int], children: bool, kind: type[list[Any]], data: st.DataObject
) -> None:
    """Also where shares are missing, cut, of other batches, or lists; shares of one batch stay computed."""
    metas = some_computed(counts, b"ab", children)
    owners = data.draw(st.lists(st.integers(0, 3), min_size=len(metas), max_size=len(metas)))
    shares: list[Columns] = []
    for worker in data.draw(st.permutations(sorted(set(owners)))):
        chosen = bytes(owner == worker for owner in owners)
        shares.append(Columns(chosen_metas(metas, chosen), kind(compress(range(len(metas)), chosen)), None))
    assume(shares)
    whole = merged(shares)
    assert list(whole.metas) == metas.listed() and whole.payloads == list(range(len(metas)))
    assert type(whole.payloads) is kind and isinstance(whole.metas, ComputedMetas)
    left = shares[1:] or shares
    at = data.draw(st.integers(0, len(left[0].metas)))
    left += [Columns(left[0].metas[at:], left[0].payloads[at:], None)]
    left[0] = Columns(left[0].metas[:at], left[0].payloads[:at], None)
    rest = merged([columns for columns in left if columns.metas])
    assert [metas[payload] for payload in rest.payloads] == list(rest.metas) == sorted(rest.metas)
    assert len(rest.metas) == sum(len(columns.metas) for columns in left)


@given(st.lists(st.integers(0, 4), max_size=6), st.booleans(), st.booleans(), st.data())
def test_metas_that_were_cut_are_joined_as_they_were(
    counts: list[int], children: bool, chosen: bool, data: st.DataObject
) -> None:
    metas = some_computed(counts, b"ab", children)
    if chosen:
        metas = ChosenMetas(metas, bytes(at % 3 != 1 for at in range(len(metas))))
    at = data.draw(st.integers(0, len(metas)))
    assert list(joined_metas([metas[:at], metas[at:]])) == metas.listed()
    assert list(joined_metas([metas[at:], metas[:at]])) == [*metas[at:], *metas[:at]]
    assert list(joined_metas([metas, with_suffix(metas, b"c")])) == [*metas, *with_suffix(metas, b"c")]


def check_computed(metas: ComputedMetas, expected: list[bytes], data: st.DataObject) -> None:
    """Whole, cut, and cut again."""
    for _ in range(3):
        assert len(metas) == len(expected) and [metas[at] for at in range(len(metas))] == expected
        assert metas.joined(b"head") == b"".join(b"head" + meta for meta in expected)
        assert list(metas) == expected == metas.listed() == pickle.loads(pickle.dumps(metas)).listed()
        assert list(with_suffix(metas, b"ab")) == [meta + b"ab" for meta in expected]
        assert encode_metas(metas) == encode_metas(expected)
        assert is_increasing(metas) and is_increasing(expected)
        if expected:
            assert metas[-1] == expected[-1] and metas[0] == expected[0] == least_meta(metas)
        start, stop = data.draw(st.integers(-12, 12)), data.draw(st.integers(-12, 12))
        metas, expected = metas[start:stop], expected[start:stop]


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


ENDINGS = [bytes((letter,)) for letter in b"abcdefghi"]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.data())
def test_what_is_asked_of_computed_metas_is_what_a_list_would_say(counts: list[int], data: st.DataObject) -> None:
    numbered = NumberedMetas(data.draw(st.integers(-5, 2**16)), len(counts), b"end")
    children = metas_of_children(numbered, counts, ENDINGS)
    kinds: list[Metas] = [numbered, children, chosen_metas(numbered, bytes(count % 2 for count in counts))]
    for metas in kinds:
        listed = list(metas)
        assert is_increasing(metas) and known_to_increase(metas) == are_computed(metas)
        assert list(times_of(metas)) == list(times_of(listed))
        if listed:
            assert (least_meta(metas), greatest_meta(metas)) == (min(listed), max(listed))
    assert list(children) == list(metas_of_children(list(numbered), counts, ENDINGS))
    assert numbers_of(numbered) == (numbered.first_time, b"end") and numbers_of(list(numbered)) is None
    payloads = Plain(counts)
    batch, wanted = Columns(numbered, payloads, None), bytes(count % 2 for count in counts)
    for part, at in ((batch.slice(0, 1), [0]), (batch.chosen(wanted), [at for at, each in enumerate(wanted) if each])):
        assert type(part.payloads) is Plain and part.payloads == [counts[index] for index in at]
        assert list(part.metas) == [numbered[index] for index in at]
