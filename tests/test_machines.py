"""Each machine alone, against a model that is too simple to be wrong."""

from __future__ import annotations

import dataclasses
import enum
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import accumulate, compress
from operator import itemgetter, not_
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from strategies import (
    AWKWARD,
    STEPS,
    Opaque,
    Recipe,
    build,
    event_inputs,
    event_time,
    few_keys,
    one_key,
    payloads,
    recipes,
    same_payload,
)

import drift
import drift.machines.log as log_module
from drift.engines.packing import in_forms
from drift.machines.changes import NOTHING, Debts, Difference
from drift.machines.cuts import GONE
from drift.machines.grouping import GroupStage
from drift.machines.keys import Partitioner, identities
from drift.machines.maps import Ports
from drift.machines.pending import split
from drift.machines.plan import Plan
from drift.machines.scan import ScanStage
from drift.machines.worker import BARRIER, Router, Worker
from drift_acker.ledger import Ledger, ack_of
from drift_acker.table import Ack, AckTable
from drift_barrier.barrier import FAILURES, Barrier, Released
from drift_barrier.digest import BLOCK_ITEMS, Digest, block_head, hash_block
from drift_graph.canonical import (
    NoCanonicalForm,
    canonical,
    canonical_each,
    encode_many,
    encode_metas,
    form_of,
    forms_of,
    same,
    stored,
    stored_each,
)
from drift_graph.functions import brief, safe_text
from drift_graph.item import Columns, Failure, joined, merged, sorted_by_meta
from drift_graph.meta import (
    BEGINNING,
    END_OF_TIME,
    PHASE_TIMERS,
    TIME_MAX,
    TIME_MIN,
    MetaParts,
    child_suffixes,
    global_time,
    global_time_of,
    later_meta,
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
from drift_graph.times import SourceMachine

numbers = st.integers(0, 300) | st.integers(0, 2**64 - 1)
times = st.integers(-5, 5) | st.integers(TIME_MIN, TIME_MAX)
global_times = st.tuples(times, st.integers(0, 300), numbers, numbers)


# Metas.


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


# Canonical bytes.

values = st.recursive(
    st.sampled_from(AWKWARD) | st.integers(-3, 3) | st.floats() | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2) | st.integers(0, 3) | st.booleans(), inner, max_size=3)
    ),
    max_leaves=6,
)


def described(value: Any) -> Any:
    """What makes a value the value it is, so that `==` compares types as well."""
    kind = type(value)
    if kind in (list, tuple):
        return kind, tuple(map(described, value))
    if kind is frozenset:
        return kind, frozenset(map(described, value))
    if kind is dict:
        return kind, frozenset((described(key), described(item)) for key, item in value.items())
    return kind, repr(value)


@given(values, values)
@example(1, True)
@example(0.0, -0.0)
@example((1,), [1])
@example("1", b"1")
@example(Decimal("1"), Decimal("1.0"))
def test_canonical_bytes_are_equal_exactly_for_the_same_value(left: Any, right: Any) -> None:
    equal = described(left) == described(right)
    assert (canonical(left) == canonical(right)) == equal
    assert same(left, right) == (stored(left) == stored(right)) and (equal or not same(left, right))
    assert same(left, left)


@given(st.lists(values, max_size=6))
@example([1.0, Decimal("sNaN")])
@example([(1, float("nan")), 2, "x"])
@example([True, 1, 1.0])
@example([(1, 2), (1, [2])])
@example([(1, 2), ([1], 2)])
@example([(1, 2), (1, 2, 3)])
@example([(1, 2, 3), (1, 2, [3])])
@example([(1, 2, 3), (1, [2], 3)])
@example([{"b": 1, "aa": 2.5}, {"aa": 1, "b": 2}, {}])
@example([{"b": 1, "aa": 2.5}, {"aa": 1, "b": float("nan")}])
@example([{"b": 2.5, "aa": None}, {"aa": 1, "b": "\ud800"}])
@example([{"\ud800": 1, "a": 2**70}])
def test_the_fast_ways_to_canonical_bytes_give_the_same_bytes(given_values: list[Any]) -> None:
    each = [canonical(value) for value in given_values]
    assert encode_many(given_values) == b"".join(each)
    assert canonical_each(given_values) == each
    assert stored_each(given_values) == forms_of(given_values) == [stored(value) for value in given_values]


@dataclasses.dataclass
class Fields:
    one: Any
    other: Any = ()


@dataclasses.dataclass(frozen=True, slots=True)
class SlottedFields:
    one: Any
    other: Any = None


def with_more(one: Any) -> Fields:
    made = Fields(one)
    made.more = 3  # type: ignore[attr-defined]
    return made


def without(one: Any) -> Fields:
    made = Fields(one)
    del made.one
    return made


@given(
    st.sampled_from([Fields, SlottedFields]), st.lists(payloads | st.tuples(payloads, payloads), max_size=4), payloads
)
@example(Fields, [1.0, (1, "a"), (1, 1.0), "\ud800", 2**70, float("nan")], (1, float("nan")))
@example(with_more, [1, 2], None)
@example(without, [1, 2], None)
def test_instances_of_one_class_have_the_bytes_that_each_has(kind: Any, fields: list[Any], other: Any) -> None:
    for instances in ([kind(one) for one in fields], [SlottedFields(one, other) for one in fields]):
        assert canonical_each(instances) == [canonical(each) for each in instances]


@given(st.lists(st.tuples(st.text(max_size=2), payloads), unique_by=lambda pair: pair[0], max_size=5), st.data())
def test_the_order_of_insertion_does_not_show(pairs: list[tuple[str, Any]], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(pairs))
    assert canonical(dict(pairs)) == canonical(dict(shuffled))
    assert canonical({key for key, _ in pairs}) == canonical({key for key, _ in shuffled})


def test_hash_seeds_do_not_show() -> None:
    code = "from drift_graph.canonical import *; print(canonical({'a': {'b', 'c', 'd', 1, (2, None)}, 'e': 1.5}).hex())"
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(seen) == 1


class Hidden(str):
    """A subclass may mean something else."""


@pytest.mark.parametrize("value", [object(), Opaque(1), len, Hidden("x"), Exception("x"), range(3), iter([])])
def test_what_has_no_canonical_form_is_refused_at_any_depth(value: Any) -> None:
    name = type(value).__qualname__
    for place in (value, [value], (1, (value,)), {"a": value}, {"b": [value]}):
        with pytest.raises(NoCanonicalForm, match=name):
            canonical(place)
        with pytest.raises(NoCanonicalForm, match=name):
            encode_many([1, place])
        assert forms_of([place, 1])[1] == canonical(1)
    assert not same(value, [value]) and same(value, value)
    assert form_of(value) != form_of(1)


@dataclasses.dataclass(frozen=True)
class Left:
    value: int


@dataclasses.dataclass(frozen=True)
class Right:
    value: int


def test_two_classes_with_the_same_fields_are_two_values() -> None:
    assert canonical(Left(1)) == canonical(Left(1))
    assert len({canonical(value) for value in (Left(1), Right(1), Left(2), (1,), Fraction(1), 1)}) == 6


# Keys.


@given(st.lists(values, max_size=8))
def test_identities_of_keys_are_equal_exactly_where_the_keys_are_the_same(keys: list[Any]) -> None:
    found = identities(keys)
    for left, left_identity in zip(keys, found):
        for right, right_identity in zip(keys, found):
            assert (left_identity == right_identity) == (canonical(left) == canonical(right))
    assert len(set(found)) == len(set(map(canonical, keys)))


def test_tuples_that_python_holds_equal_are_keys_apart_and_plain_ones_are_themselves() -> None:
    plain: list[Any] = [("a", 1), ("a", None), (), ("a", 10**30)]
    assert identities(plain) is plain
    keys = [*plain, ("a", 1.0), ("a", True), (("a", 1),), ("a", (1,)), "a", 1]
    found = identities(keys)
    assert found[:4] == plain and len(set(found)) == len(keys)
    assert Partitioner(7).owners(found) == [Partitioner(7).owner(key) for key in keys]


@given(st.lists(values, max_size=8), st.integers(1, 5))
def test_a_key_has_one_owner_however_it_is_asked_for(keys: list[Any], workers: int) -> None:
    partitioner = Partitioner(workers)
    owners = partitioner.owners(identities(keys))
    assert owners == [Partitioner(workers).owner(key) for key in keys]
    assert all(0 <= owner < workers for owner in owners)
    assert partitioner.owners(identities(keys)) == owners


# Minimal time.


def test_checksums_of_all_senders_differ_and_are_not_zero() -> None:
    ledgers = [Ledger(sender) for sender in (0, 1, 255, 256, 65535)]
    checksums = [ledger.checksum() for ledger in ledgers for _ in range(2000)]
    assert len(set(checksums)) == len(checksums) and all(0 < checksum < 2**64 for checksum in checksums)


def test_an_ack_is_one_for_what_came_and_what_went() -> None:
    ack = ack_of([(b"b", 5), (b"a", 3)], [(b"b", 6), (b"b", 8)], [(0, b"c")])
    assert ack == Ack([(b"a", 3), (b"b", 5 ^ 6 ^ 8)], [(0, b"c")])


@given(st.data())
def test_minimal_time_is_the_least_of_what_is_in_flight_and_of_heartbeats(data: st.DataObject) -> None:
    """Messages are sent and consumed at random, and every ack comes at once: then nothing else may hold it back."""
    table, ledger = AckTable([0, 1]), Ledger(0)
    heartbeats = {0: 0, 1: 0}
    in_flight: list[tuple[bytes, int]] = []
    for _ in range(data.draw(st.integers(0, 12))):
        before = table.minimal_time
        if in_flight and data.draw(st.booleans()):
            message = in_flight.pop(data.draw(st.integers(0, len(in_flight) - 1)))
            later = [message[0][0] + data.draw(st.integers(0, 3)) for _ in range(data.draw(st.integers(0, 2)))]
            sent = [(bytes((time,)), ledger.checksum()) for time in later]
            moved = table.handle(ack_of([message], sent))
        else:
            rank = data.draw(st.integers(0, 1))
            sent = [(bytes((heartbeats[rank] + 1,)), ledger.checksum())]
            heartbeats[rank] += data.draw(st.integers(1, 3))
            moved = table.handle(ack_of((), sent, [(rank, bytes((heartbeats[rank],)))]))
        in_flight += sent
        least = min([granule for granule, _ in in_flight] + [bytes((beat,)) for beat in heartbeats.values() if beat])
        if 0 in heartbeats.values():
            least = BEGINNING
        assert table.minimal_time == max(before, least)
        assert moved == (table.minimal_time if table.minimal_time > before else None)
        assert table.in_flight == len({granule for granule, _ in in_flight})


def test_an_ack_below_minimal_time_and_a_heartbeat_that_goes_back_are_bugs() -> None:
    table = AckTable([0])
    assert table.handle(Ack((), [(0, b"\x05")])) == b"\x05"
    assert table.held_by() == 0
    with pytest.raises(drift.DriftBug, match="below minimal time"):
        table.handle(Ack([(b"\x04", 1)]))
    with pytest.raises(drift.DriftBug, match="went back"):
        table.handle(Ack((), [(0, b"\x04")]))
    table.handle(Ack([(b"\x06", 1)], [(0, END_OF_TIME)]))
    assert (table.minimal_time, table.quiet, table.held_by()) == (b"\x06", False, None)
    assert table.handle(Ack([(b"\x06", 1)])) == END_OF_TIME and table.quiet


# The barrier.


def meta_at(number: int) -> bytes:
    return global_time(number, 0, 0, 0)


def columns_of(changes: Sequence[tuple[int, Any, int]]) -> Columns:
    diffs = [diff for _, _, diff in changes]
    return Columns(
        [meta_at(number) for number, _, _ in changes],
        [payload for _, payload, _ in changes],
        diffs if -1 in diffs else None,
    )


@given(
    st.dictionaries(st.integers(0, 9), payloads, max_size=6),
    st.lists(st.tuples(st.integers(0, 9), payloads), max_size=6),
    st.data(),
)
def test_the_barrier_releases_what_tombstones_leave_in_order(
    final: dict[int, Any], cancelled: list[tuple[int, Any]], data: st.DataObject
) -> None:
    """Any items, and items with their tombstones, in any order and any batches, as values or forms, over two sinks."""
    changes = [(number, payload, 1) for number, payload in final.items()]
    for number, payload in cancelled:
        changes += [(number, payload, 1), (number, payload, -1)]
    changes = data.draw(st.permutations(changes))
    barrier = Barrier()
    while changes:
        size = data.draw(st.integers(1, len(changes)))
        batch, changes = changes[:size], changes[size:]
        for parity, sink in enumerate(("even", "odd")):
            columns = columns_of([change for change in batch if change[0] % 2 == parity])
            barrier.add(sink, in_forms(columns) if data.draw(st.booleans()) else columns)
        if data.draw(st.booleans()):
            barrier._compact()
    released: list[tuple[int, bytes, bytes, str]] = []
    for bound in [*sorted(data.draw(st.lists(st.integers(0, 10), max_size=3))), None]:
        time = END_OF_TIME if bound is None else meta_at(bound)
        piece = barrier.release(time)
        if piece is not None:
            released += rows(piece)
        assert [row[1] for row in released] == [meta_at(number) for number in sorted(final) if meta_at(number) < time]
    assert released == [
        (position, meta_at(number), canonical(final[number]), ("even", "odd")[number % 2])
        for position, number in enumerate(sorted(final))
    ]
    digest = Digest()
    digest.add([meta_at(number) for number in sorted(final)], [final[number] for number in sorted(final)])
    assert barrier.digest.hexdigest() == digest.hexdigest()
    assert len(barrier) == 0 and barrier.tombstones == len(cancelled)


def rows(piece: Released) -> list[tuple[int, bytes, bytes, str]]:
    names = [piece.sinks] * len(piece.metas) if isinstance(piece.sinks, str) else piece.sinks
    return [
        (piece.position + at, meta, form, sink)
        for at, (meta, form, sink) in enumerate(zip(piece.metas, canonical_each(piece.payloads), names))
    ]


@pytest.mark.parametrize(
    "changes",
    [
        [(1, "a", 1), (1, "b", 1)],
        [(1, "a", 1), (1, "a", 1)],
        [(1, "a", -1)],
        [(1, "a", 1), (1, "b", -1)],
        [(1, 1, 1), (1, True, -1)],
        [(1, "a", 1), (1, "a", -1), (1, "a", -1)],
    ],
)
@pytest.mark.parametrize("apart", [False, True])
def test_what_does_not_add_up_at_release_is_a_bug(changes: list[tuple[int, Any, int]], apart: bool) -> None:
    barrier = Barrier()
    for batch in [[change] for change in changes] if apart else [changes]:
        barrier.add("out", columns_of(batch))
    with pytest.raises(drift.DriftBug):
        barrier.release(END_OF_TIME)


@given(st.permutations([("first", 1), ("first", -1), ("second", 1), ("second", -1), ("third", 1)]), st.booleans())
def test_of_equal_failures_the_last_one_is_told(changes: list[tuple[str, int]], compacted: bool) -> None:
    barrier = Barrier()
    barrier.add("out", columns_of([(0, "before", 1), (2, "after", 1)]))
    for words, diff in changes:
        barrier.add(FAILURES, columns_of([(1, Failure("step", "ValueError", words, "file:1"), diff)]))
        if compacted:
            barrier._compact()
    piece = barrier.release(END_OF_TIME)
    assert piece is not None and piece.payloads == ["before"]
    assert isinstance(piece.error, drift.StepError) and str(piece.error).startswith("third\n")


def test_what_comes_after_the_release_of_something_greater_is_a_bug() -> None:
    barrier = Barrier()
    barrier.add("out", columns_of([(2, "a", 1)]))
    assert barrier.release(meta_at(3)) is not None
    barrier.add("out", columns_of([(1, "b", 1)]))
    with pytest.raises(drift.DriftBug, match="came after"):
        barrier.release(meta_at(3))


def test_an_item_at_minimal_time_is_not_released() -> None:
    barrier = Barrier()
    barrier.add("out", columns_of([(1, "a", 1), (2, "b", 1)]))
    piece = barrier.release(meta_at(2))
    assert piece is not None and piece.payloads == ["a"]


@given(st.lists(payloads | st.text(max_size=2), max_size=30), st.data(), st.sampled_from(["xxh3_128", "sha256"]))
def test_a_digest_does_not_depend_on_batches(given_payloads: list[Any], data: st.DataObject, algorithm: Any) -> None:
    metas = [meta_at(number) for number in range(len(given_payloads))]
    whole, pieces = Digest(algorithm), Digest(algorithm)
    whole.add(metas, given_payloads)
    at = 0
    while at < len(metas):
        size = data.draw(st.integers(1, len(metas)))
        pieces.add(metas[at : at + size], given_payloads[at : at + size])
        at += size
    assert whole.hexdigest() == pieces.hexdigest()


def test_blocks_of_a_digest_can_be_hashed_apart() -> None:
    count = 2 * BLOCK_ITEMS + 5
    metas = [meta_at(number) for number in range(count)]
    given_payloads = [(number, None, float(number)) for number in range(count)]
    digest = Digest()
    for start in range(0, count, 1000):
        digest.add(metas[start : start + 1000], given_payloads[start : start + 1000])
    hashes = []
    for start in range(0, count, BLOCK_ITEMS):
        block = slice(start, start + BLOCK_ITEMS)
        head, between = block_head(len(metas[block]))
        data = head + encode_many(metas[block]) + between + encode_many(given_payloads[block])
        hashes.append(hash_block("xxh3_128", data))
    assert digest.blocks == hashes[:2]
    assert digest.hexdigest() == hash_block("xxh3_128", b"".join(hashes)).hex()


# Changes.


@given(payloads, payloads)
def test_a_difference_holds_nothing_where_old_and_new_are_the_same(old: Any, new: Any) -> None:
    difference = Difference()
    difference.replace(b"m", old, new)
    equal = canonical(old) == canonical(new)
    assert difference.columns() == (Columns([], [], None) if equal else Columns([b"m"] * 2, [old, new], [-1, 1]))
    only = Difference()
    only.replace(b"m", NOTHING, new)
    only.replace(b"m", old, NOTHING)
    assert only.diffs == [1, -1]


def test_a_debt_takes_back_one_equal_item_each() -> None:
    debts = Debts("step")
    debts.owe(b"m", 1)
    debts.owe(b"m", 1)
    assert not debts.settles(b"m", True) and not debts.settles(b"n", 1)
    assert debts.settles(b"m", 1) and debts.settles(b"m", 1) and not debts.settles(b"m", 1)
    assert len(debts) == 0


# Stages: items and tombstones come at random; what was sent must add up to what the naive model gives.

Stage = GroupStage | ScanStage


def stage_of(grow: Callable[[drift.Stream[Any]], drift.Stream[Any]]) -> Stage:
    graph = drift.Graph("one stage")
    grow(graph.source("in")).sink("out")
    plan = Plan(graph.build())
    (stage,) = plan.stages().values()
    return stage


def naive_windows(items: list[tuple[bytes, Any]], window: int, key: Callable[[Any], Any]) -> list[tuple[bytes, Any]]:
    buckets: dict[bytes, list[Any]] = {}
    windows = []
    for meta, payload in sorted(items, key=lambda item: item[0]):
        bucket = buckets.setdefault(canonical(key(payload)), [])
        bucket.append(payload)
        windows.append((meta, tuple(bucket[-window:])))
    return windows


def naive_scan(
    items: list[tuple[bytes, Any]], initial: Any, step: Callable[[Any, Any], tuple[Any, Any]], key: Callable[[Any], Any]
) -> list[tuple[bytes, Any]]:
    states: dict[bytes, Any] = {}
    outputs = []
    for meta, payload in sorted(items, key=lambda item: item[0]):
        place = canonical(key(payload))
        states[place], output = step(states.get(place, initial), payload)
        outputs.append((meta, output))
    return outputs


def one_at_a_meta(came: Counter[tuple[int, bytes]]) -> bool:
    """Whether no tombstone is ahead of its item, and no item of the one that it replaces."""
    there = [number for (number, _), count in came.items() if count]
    return set(came.values()) <= {0, 1} and len(set(there)) == len(there)


def check_stage(
    data: st.DataObject,
    make: Callable[[], Stage],
    naive: Callable[[list[tuple[bytes, Any]]], list[tuple[bytes, Any]]],
) -> None:
    """Also where what is kept is cut and looked through as early as can be, which takes more items by default."""
    if data.draw(st.booleans()):
        check_made_stage(data, make(), naive)
        return
    with mock.patch.multiple(log_module, _CUT_ITEMS_MIN=1, _HISTORIES_KEPT_MIN=0, _ABOVE_ITEMS_MIN=0):
        check_made_stage(data, make(), naive)


def check_made_stage(
    data: st.DataObject, stage: Stage, naive: Callable[[list[tuple[bytes, Any]]], list[tuple[bytes, Any]]]
) -> None:
    """Feed a stage changes in drawn batches, tombstones before their items as well, settling on the way."""
    final: dict[int, Any] = data.draw(st.dictionaries(st.integers(0, 12), payloads, max_size=8))
    taken_back = data.draw(st.lists(st.tuples(st.integers(0, 12), payloads), max_size=6))
    changes = [(number, payload, 1) for number, payload in final.items()]
    for number, payload in taken_back:
        changes += [(number, payload, 1), (number, payload, -1)]
    changes = data.draw(st.permutations(changes))
    came: Counter[tuple[int, bytes]] = Counter()
    sent: Counter[tuple[bytes, bytes]] = Counter()
    values_of = {canonical(payload): payload for _, payload, _ in changes}
    while changes:
        size = data.draw(st.integers(1, len(changes)))
        batch, changes = changes[:size], changes[size:]
        orderly = one_at_a_meta(came)
        for number, payload, diff in batch:
            came[number, canonical(payload)] += diff
        ports: Ports = {}
        out = stage.process(sorted_by_meta(columns_of(batch)), ports)
        assert not ports
        assert encode_many(out.payloads) == b"".join(map(canonical, out.payloads))
        batch_counts: Counter[tuple[bytes, bytes]] = Counter()
        for meta, payload, diff in zip(out.metas, out.payloads, out.diffs or [1] * len(out.metas)):
            batch_counts[meta, canonical(payload)] += diff
            sent[meta, canonical(payload)] += diff
        if orderly and one_at_a_meta(came):
            assert sum(map(abs, batch_counts.values())) == len(out.metas), "an item was made and unmade in one batch"
        if out.metas:
            assert min(out.metas) >= meta_at(min(number for number, _, _ in batch)), "an effect before its cause"
        if data.draw(st.booleans()):
            stage.settle(meta_at(min((number for number, _, _ in changes), default=100)))
        if one_at_a_meta(came):
            there = [(meta_at(number), values_of[form]) for (number, form), count in came.items() if count]
            assert {place for place, count in sent.items() if count} == {
                (meta, canonical(payload)) for meta, payload in naive(there)
            }
            assert set(sent.values()) <= {0, 1}
    stage.settle(END_OF_TIME)
    assert stage.held == 0


@given(st.integers(1, 5), st.sampled_from([one_key, few_keys, same_payload]), st.data())
def test_a_grouping_sends_what_makes_its_windows_right(
    window: int, key: Callable[[Any], Any], data: st.DataObject
) -> None:
    check_stage(
        data, lambda: stage_of(lambda stream: stream.group(key, window)), partial(naive_windows, window=window, key=key)
    )


@given(st.sampled_from(sorted(STEPS)), st.sampled_from([one_key, few_keys, same_payload]), st.data())
def test_a_scan_sends_what_makes_its_outputs_right(step: str, key: Callable[[Any], Any], data: st.DataObject) -> None:
    initial, function = STEPS[step]
    make = partial(stage_of, lambda stream: stream.scan(key, initial, function))
    assert isinstance(make(), ScanStage)
    check_stage(data, make, partial(naive_scan, initial=initial, step=function, key=key))


@pytest.mark.parametrize("window", [1, 2, 5])
def test_a_grouping_keeps_no_more_of_the_settled_than_it_needs(window: int) -> None:
    stage = stage_of(lambda stream: stream.group(one_key, window))
    assert isinstance(stage, GroupStage)
    for start in range(0, 1000, 10):
        stage.process(columns_of([(number, number, 1) for number in range(start, start + 10)]), {})
        stage.settle(meta_at(start + 10))
        assert stage.held == 0
        assert not len(stage._log) and not stage._buckets
    last = tuple(range(1001 - window, 1000))
    assert list(stage.as_of(meta_at(1000), [None])) == [(None, last or GONE)]


def test_what_was_logged_after_a_correction_and_is_settled_is_in_the_windows_of_later_ones() -> None:
    stage = stage_of(lambda stream: stream.group(one_key, 2))
    for numbers in ([5], [3], [6, 9]):
        stage.process(columns_of([(number, number, 1) for number in numbers]), {})
    stage.settle(meta_at(7))
    out = stage.process(columns_of([(8, 8, 1)]), {})
    windows = dict(zip(out.payloads, out.diffs or []))
    assert windows == {(6, 8): 1, (6, 9): -1, (8, 9): 1}


@pytest.mark.parametrize("window", [1, 2, 5])
@pytest.mark.parametrize("unsettled", [0, 2])
def test_a_bucket_that_is_never_settled_keeps_no_more_than_it_needs_and_no_less(window: int, unsettled: int) -> None:
    stage = stage_of(lambda stream: stream.group(one_key, window))
    assert isinstance(stage, GroupStage)
    sent: Counter[tuple[bytes, Any]] = Counter()
    for start in range(0, 1000, 10):
        late = [(number, number, 1) for number in range(start, start + 10)]
        for part in (late[5:], late[:5]):
            out = stage.process(columns_of(part), {})
            for meta, windows, diff in zip(out.metas, out.payloads, out.diffs or [1] * len(out.metas)):
                sent[meta, windows] += diff
        stage.settle(meta_at(start + 10 - unsettled))
        assert stage.held == unsettled
        assert len(stage._log) <= 1
        assert all(len(bucket.metas) <= window - 1 + 20 for bucket in stage._buckets.values())
    items = [(meta_at(number), number) for number in range(1000)]
    assert +sent == Counter(naive_windows(items, window, one_key))


def test_a_bucket_that_was_settled_as_a_whole_knows_what_came_and_was_settled_after_it() -> None:
    stage = stage_of(lambda stream: stream.group(one_key, 2))
    for numbers in ([1, 3], [2]):  # the second makes a bucket
        stage.process(columns_of([(number, number, 1) for number in numbers]), {})
    stage.settle(meta_at(4))
    stage.process(columns_of([(5, 5, 1)]), {})  # in order: only logged
    stage.settle(meta_at(6))
    stage.process(columns_of([(8, 8, 1)]), {})
    out = stage.process(columns_of([(7, 7, 1)]), {})
    sent = dict(zip(zip(out.payloads, out.diffs or []), out.metas))
    assert sent == {((5, 7), 1): meta_at(7), ((5, 8), -1): meta_at(8), ((7, 8), 1): meta_at(8)}


def test_a_later_item_that_has_come_waits_no_more_beside_an_item_above_the_heartbeat() -> None:
    later = later_meta(meta_at(1), varint(0), 3, PHASE_TIMERS)
    assert later is not None
    batch = columns_of([])._replace(metas=[later, meta_at(9)], payloads=["note", "item"])
    assert split(batch, meta_at(5), meta_at(5)) == (batch, None)
    now, waits = split(batch, meta_at(2), meta_at(2))
    assert now is not None and waits is not None
    assert (now.payloads, waits.payloads) == (["item"], ["note"])


@pytest.mark.parametrize("key", [one_key, few_keys, same_payload])
@pytest.mark.parametrize(
    "grow",
    [lambda stream, key: stream.group(key, 3), lambda stream, key: stream.scan(key, *STEPS["mixing"])],
    ids=["group", "scan"],
)
@pytest.mark.parametrize("far_at_once", [1, 50])
def test_an_item_far_ahead_keeps_itself_and_nothing_that_comes_with_it_or_after_it(
    grow: Callable[[drift.Stream[Any], Any], drift.Stream[Any]], key: Callable[[Any], Any], far_at_once: int
) -> None:
    stage = stage_of(lambda stream: grow(stream, key))
    for start in range(0, 20_000, 200):
        batch = [(number, number, 1) for number in range(start, start + 200)]
        if start // 200 < far_at_once:
            batch.append((10**6 + start, start, 1))
        stage.process(columns_of(batch), {})
        stage.settle(meta_at(start + 200))
    histories = stage._histories if isinstance(stage, ScanStage) else stage._buckets
    logged = sum(len(segment.metas) for segment in stage._log._segments.values())
    assert stage.held == far_at_once
    assert logged + sum(len(history.metas) for history in histories.values()) <= 16 * far_at_once + 1000
    assert len(histories) <= 256 + 2 * far_at_once
    stage.settle(END_OF_TIME)
    assert stage.held == 0 and not len(stage._log)


def test_a_barrier_lets_go_of_what_it_released_where_an_item_of_the_batch_is_far_ahead() -> None:
    barrier = Barrier()
    for start in range(0, 2000, 20):
        batch = [(number, number, 1) for number in range(start, start + 20)]
        barrier.add("out", columns_of([*batch, (10**6 + start, start, 1)]))
        barrier.release(meta_at(start + 20))
    assert len(barrier) == 100 and sum(len(run.metas) for _, _, run in barrier._heap) == 100
    assert all(len(run.payloads) == 1 for _, _, run in barrier._heap)


@given(
    st.lists(st.tuples(times, numbers | st.integers(2**56, 2**64 - 1)), unique=True, max_size=80),
    st.booleans(),
    st.sampled_from((0, 247, 248)),
    st.integers(1, 80),
    times,
)
def test_metas_of_a_batch_are_the_global_times_of_its_items(
    pairs: list[tuple[int, int]], hashed: bool, rank: int, batch_items: int, minimal: int
) -> None:
    """Where most ties take eight bytes they are made together, and what is settled is counted without sorting."""
    if hashed:
        pairs = [(time, tie if index % 9 == 4 else tie | 2**63) for index, (time, tie) in enumerate(pairs)]
        pairs = list(dict.fromkeys(pairs))
    policy = drift.EventTime(itemgetter(0), tie=itemgetter(1), lateness=2**64)
    machine = SourceMachine("in", rank, policy)
    metas: list[bytes] = []
    for start in range(0, len(pairs), batch_items):
        arrived = machine.take(pairs[start : start + batch_items])
        assert arrived.error is None and not arrived.late
        metas += arrived.metas
    assert metas == [global_time(time, rank, tie, 0) for time, tie in pairs]
    assert [global_time(time, rank, tie, 1) for time, tie in pairs] == list(machine.take(pairs).metas)
    for bound in sorted([pack_time(minimal), *metas]):
        assert machine.unsettled(bound) == sum(meta >= bound for meta in metas) + sum(
            meta[:-1] + b"\1" >= bound for meta in metas
        )


@given(st.lists(st.integers(0, 9), min_size=1, max_size=200), st.integers(5, 9), st.integers(1, 100))
def test_what_is_late_is_what_is_behind_the_greatest_time_before_it(
    times: list[int], lateness: int, batch_items: int
) -> None:
    machine = SourceMachine("in", 0, drift.EventTime(int, lateness=lateness, late="divert"))
    kept: list[int] = []
    late: list[int] = []
    for start in range(0, len(times), batch_items):
        arrived = machine.take(times[start : start + batch_items])
        kept += arrived.payloads
        late += [each.payload for each in arrived.late]
    greatest = list(accumulate(times, max))
    behind = [seen - time > lateness for seen, time in zip(greatest, times)]
    assert kept == list(compress(times, map(not_, behind))) and late == list(compress(times, behind))


def test_a_source_lets_go_of_what_is_settled_where_an_item_of_the_batch_is_far_ahead() -> None:
    machine = SourceMachine("in", 0, drift.EventTime(lambda time: time, lateness=10**9))
    for start in range(0, 2000, 20):
        machine.take([*range(start, start + 20), 10**6 + start])
        assert machine.unsettled(global_time(start + 20, 0, 0, 0)) == start // 20 + 1
    assert sum(len(metas) for _, _, metas, _ in machine._unsettled._sent) == 100


def test_a_scan_takes_back_several_items_of_a_key_though_the_state_after_the_first_is_the_same() -> None:
    def parity(state: int, payload: int) -> tuple[int, tuple[int, int]]:
        return payload % 2, (state, payload)

    stage = stage_of(lambda stream: stream.scan(one_key, 0, parity))
    stage.process(columns_of([(number, number, 1) for number in range(0, 20, 2)]), {})
    out = stage.process(columns_of([(2, 2, -1), (8, 8, -1), (12, 12, -1)]), {})
    assert (out.metas, out.payloads, out.diffs) == (
        [meta_at(number) for number in (2, 8, 12)],
        [(0, 2), (0, 8), (0, 12)],
        [-1, -1, -1],
    )
    out = stage.process(columns_of([(5, 5, 1)]), {})
    assert sorted(zip(out.metas, out.payloads, out.diffs or [])) == [
        (meta_at(5), (0, 5), 1),
        (meta_at(6), (0, 6), -1),
        (meta_at(6), (1, 6), 1),
    ]


@pytest.mark.parametrize("cut_items_min", [1, 16])
def test_what_a_tombstone_took_from_a_scan_does_not_come_back(
    monkeypatch: pytest.MonkeyPatch, cut_items_min: int
) -> None:
    """Also where the memory of it seems settled while the batch that it came in is not, and is cut or is not."""
    monkeypatch.setattr(log_module, "_HISTORIES_KEPT_MIN", 0)
    monkeypatch.setattr(log_module, "_CUT_ITEMS_MIN", cut_items_min)
    stage = stage_of(lambda stream: stream.scan(one_key, 0, STEPS["mixing"][1]))
    stage.process(columns_of([(1, 1, 1), (2, 2, 1), (9, 9, 1)]), {})
    stage.process(columns_of([(9, 9, -1)]), {})
    stage.settle(meta_at(5))
    out = stage.process(columns_of([(8, 8, 1)]), {})
    expected = naive_scan([(meta_at(n), n) for n in (1, 2, 8)], 0, STEPS["mixing"][1], one_key)
    assert list(zip(out.metas, out.payloads)) == expected[2:] and out.diffs is None


@pytest.mark.parametrize(
    "pair",
    [{1, 2}, {1: 2, 3: 4}, "ab", b"ab", (1, 2, 3), (1,), iter((1, 2)), None],
    ids=lambda pair: type(pair).__name__,
)
@pytest.mark.parametrize(("engine", "fused"), [("local", True), ("local", False), ("reference", True)])
def test_a_scan_takes_a_sequence_of_two_from_its_step_and_nothing_else(engine: str, fused: bool, pair: Any) -> None:
    graph = drift.Graph("pairs")
    graph.source("in").scan(one_key, 0, lambda state, n: pair if n == 3 else [state, n], name="step").sink("out")
    run = drift.run(graph, {"in": [1, 2, 3, 4]}, engine=engine, fused=fused)
    released: list[Any] = []
    with pytest.raises(drift.StepError, match="must return \\(next state, output\\)"):
        released.extend(item.payload for item in run)
    assert released == [1, 2]


def test_a_scan_keeps_one_state_of_what_is_settled() -> None:
    stage = stage_of(lambda stream: stream.scan(few_keys, 0, STEPS["mixing"][1]))
    assert isinstance(stage, ScanStage)
    for start in range(0, 1000, 10):
        late = [(number, number, 1) for number in range(start, start + 10)]
        stage.process(columns_of(late[5:]), {})
        stage.process(columns_of(late[:5]), {})
        stage.settle(meta_at(start + 10))
        assert stage.held == 0
        assert len(stage._log) <= 1
        assert all(len(history.metas) <= 100 for history in stage._histories.values())
    assert len(stage._states) == 3


def test_a_window_that_ends_up_the_same_is_not_sent_again() -> None:
    stage = stage_of(lambda stream: stream.group(one_key, 2))
    stage.process(columns_of([(number, 0, 1) for number in (1, 2, 4, 5)]), {})
    out = stage.process(columns_of([(3, 0, 1)]), {})
    assert (out.metas, out.payloads, out.diffs) == ([meta_at(3)], [(0, 0)], None)


def test_a_scan_stops_where_a_recomputed_state_is_the_old_one() -> None:
    calls: list[int] = []

    def parity(state: int, payload: int) -> tuple[int, int]:
        calls.append(payload)
        return payload % 2, state

    stage = stage_of(lambda stream: stream.scan(one_key, 0, parity))
    stage.process(columns_of([(number, number, 1) for number in range(0, 100, 2)]), {})
    calls.clear()
    out = stage.process(columns_of([(41, 41, 1)]), {})
    assert calls == [41, 42] and len(out.metas) == 3


# Workers.


@pytest.mark.parametrize("workers", [3, 300])
def test_a_worker_sends_each_key_to_its_owner_and_nothing_to_itself(workers: int) -> None:
    graph = drift.Graph("keys")
    graph.source("in").group(same_payload, 1, name="windows").sink("out")
    plan = Plan(graph.build())
    columns = columns_of([(number, number, 1) for number in range(1000)])
    sends = Router(plan, workers).route({"windows": [columns]})
    partitioner = Partitioner(workers)
    for owner, parts in sends.items():
        for _, part in parts:
            assert {partitioner.owner(payload) for payload in part.payloads} == {owner}
    assert sorted(meta for parts in sends.values() for _, part in parts for meta in part.metas) == list(columns.metas)
    worker = Worker(plan, 1, 3)
    assert set(worker.handle([("in", columns)])) == {BARRIER, 0, 2}


def test_a_correction_goes_round_a_cycle_once() -> None:
    """Each window behind it is made anew once; not twice as many at every turn."""
    calls: list[int] = []

    def total(state: int, payload: int) -> tuple[int, int]:
        calls.append(payload)
        return state + payload, state

    graph = drift.Graph("cycle")
    graph.source("in").scan(one_key, 0, total).sink("out")
    worker = Worker(Plan(graph.build(), fused=False))
    worker.handle([("in", columns_of([(number, number, 1) for number in range(1, 41)]))])
    calls.clear()
    worker.handle([("in", columns_of([(0, 100, 1)]))])
    assert len(calls) <= 8 * 41


# Sources.


def machine(policy: drift.ArrivalTime | drift.EventTime, **more: Any) -> SourceMachine:
    return SourceMachine("in", 0, policy, **more)


def bad_time(row: Any) -> Any:
    return None if row[1] == "no time" else row[0]


def bad_tie(row: Any) -> Any:
    if row[1] == "no tie":
        raise ValueError("no tie")
    return Opaque(1) if row[1] == "tie without form" else row[1]


_bad_rows = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.integers(0, 9) | st.integers(0, 9) | st.sampled_from(["no time", "no tie", "tie without form", Opaque(1)]),
    ),
    max_size=12,
)


@given(_bad_rows, st.integers(0, 3), st.sampled_from(["error", "divert"]), st.sampled_from([None, bad_tie]), st.data())
def test_how_a_bad_input_is_cut_into_batches_does_not_show(
    given_rows: list[Any], lateness: int, late: Any, tie: Any, data: st.DataObject
) -> None:
    check_cuts(drift.EventTime(bad_time, lateness, tie, late), given_rows, data)


@given(event_inputs(20, late="divert"), st.data())
def test_how_an_input_is_cut_into_batches_does_not_show(given_input: Any, data: st.DataObject) -> None:
    check_cuts(given_input.time, given_input.payloads, data)


def check_cuts(policy: drift.EventTime, given_payloads: list[Any], data: st.DataObject) -> None:
    """One batch and any cut into several give the same metas, heartbeats, late items and error."""
    whole, cut = machine(policy), machine(policy)
    expected = whole.take(list(given_payloads))
    left = list(given_payloads)
    metas: list[bytes] = []
    late: list[Any] = []
    error: Exception | None = None
    heartbeat = cut.heartbeat
    while left and error is None:
        size = data.draw(st.integers(1, len(left)))
        arrived = cut.take(left[:size])
        left, error = left[size:], arrived.error
        assert all(meta >= heartbeat for meta in arrived.metas), "an item below the heartbeat"
        assert arrived.heartbeat >= heartbeat
        heartbeat = arrived.heartbeat
        metas += arrived.metas
        late += arrived.late
    assert metas == list(expected.metas) and len(set(metas)) == len(metas)
    assert [(each.time, each.heartbeat, form_of(each.payload)) for each in late] == [
        (each.time, each.heartbeat, form_of(each.payload)) for each in expected.late
    ]
    assert (type(error), str(error)) == (type(expected.error), str(expected.error))
    assert cut.heartbeat == whole.heartbeat
    assert (cut.items_in, cut.late_items) == (whole.items_in, whole.late_items) == (len(metas), len(late))


@given(event_inputs(20, late="divert"), st.data())
def test_unsettled_items_are_those_at_or_above_minimal_time(given_input: Any, data: st.DataObject) -> None:
    source = machine(given_input.time)
    metas: list[bytes] = []
    minimal_time = BEGINNING
    for payload in given_input.payloads:
        metas += source.take([payload]).metas
        if data.draw(st.booleans()):
            minimal_time = max(minimal_time, source.heartbeat)
        assert source.unsettled(minimal_time) == sum(meta >= minimal_time for meta in metas)
    assert source.unsettled(END_OF_TIME) == 0


@given(st.lists(st.tuples(st.integers(0, 3), payloads), max_size=8), st.data())
def test_global_times_of_equal_event_times_do_not_depend_on_arrival(
    rows: list[tuple[int, Any]], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(rows))
    policy = drift.EventTime(event_time, lateness=3)

    def placed(given_rows: Sequence[tuple[int, Any]]) -> list[tuple[bytes, bytes]]:
        arrived = machine(policy).take(list(given_rows))
        assert arrived.error is None
        return sorted(zip(arrived.metas, map(canonical, arrived.payloads)))

    assert placed(rows) == placed(shuffled)


def test_live_items_are_stamped_and_stamps_never_go_back() -> None:
    source = machine(drift.ArrivalTime(), live=True)
    metas = [meta for now in (5, 5, 4, 9, 8) for meta in source.take(["a", "b"], now_ms=now).metas]
    assert metas == sorted(set(metas))
    assert [time_of(meta) for meta in metas] == [5] * 6 + [9] * 4
    assert source.tick(8) == source.heartbeat > metas[-1]
    assert source.tick(12) == pack_time(12)
    assert time_of(source.take(["c"], now_ms=3).metas[0]) == 12


def test_the_heartbeat_of_an_idle_source_is_past_what_came_and_not_below_the_others() -> None:
    source = machine(drift.EventTime(event_time, lateness=10, late="divert", idle_after_ms=100))
    source.take([(20, "a")])
    assert source.heartbeat == pack_time(10)
    assert source.idle(BEGINNING) == pack_time(21)
    assert source.idle(pack_time(50)) == pack_time(50)
    arrived = source.take([(49, "b"), (50, "c")])
    assert [late.payload for late in arrived.late] == [(49, "b")]
    assert [time_of(meta) for meta in arrived.metas] == [50]
    assert source.finish() == END_OF_TIME == source.idle(BEGINNING)


@pytest.mark.parametrize("whole", [np.int64(7), np.uint8(7), enum.IntEnum("Hour", {"SEVEN": 7}).SEVEN])
def test_a_time_may_be_of_any_class_of_whole_numbers(whole: Any) -> None:
    source = machine(drift.EventTime(lambda row: whole if row == "whole" else row, lateness=2))
    arrived = source.take([3, "whole"])
    assert arrived.error is None
    assert [(time_of(meta), type(time_of(meta))) for meta in arrived.metas] == [(3, int), (7, int)]


def test_a_time_that_is_none_ends_the_run_after_the_items_before_it() -> None:
    for policy, error, words in [
        (drift.EventTime(lambda row: row["t"]), drift.StepError, "raised KeyError"),
        (drift.EventTime(lambda row: row.get("t", 1.5)), drift.InputError, "gave 1.5"),
        (drift.EventTime(lambda row: row.get("t", True)), drift.InputError, "gave True for"),
        (drift.EventTime(lambda row: row.get("t", np.True_)), drift.InputError, "a yes or no"),
        (drift.EventTime(lambda row: row.get("t")), drift.InputError, "give every item a time"),
        (drift.EventTime(lambda row: row.get("t", 2**63)), drift.InputError, "with a zone: this is beyond"),
        (drift.EventTime(lambda row: 1, tie=lambda row: row["t"]), drift.StepError, "tie function"),
        (drift.EventTime(lambda row: 1, tie=lambda row: 7), drift.InputError, "two different payloads"),
        (drift.EventTime(lambda row: 1, tie=lambda row: row.get("t", object())), drift.PayloadError, "object"),
    ]:
        arrived = machine(policy).take([{"t": 1}, {"u": 2}, {"t": 3}])
        assert len(arrived.metas) == len(arrived.payloads) == 1
        assert isinstance(arrived.error, error) and words in str(arrived.error)
        assert "'in'" in str(arrived.error)


def one_time(payload: Any) -> int:
    return 1


def test_a_payload_that_cannot_be_hashed_has_no_place_in_event_time() -> None:
    arrived = machine(drift.EventTime(one_time)).take([1, 2, Opaque(3), 4])
    assert len(arrived.metas) == 2
    assert isinstance(arrived.error, drift.PayloadError) and "Opaque" in str(arrived.error)


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


@given(st.recursive(payloads, lambda inner: st.lists(inner) | st.dictionaries(st.integers(), inner), max_leaves=5))
def test_what_is_short_is_shown_as_by_repr(value: Any) -> None:
    assert brief(value) == repr(value)


class Counted:
    shown = 0

    def __repr__(self) -> str:
        Counted.shown += 1
        return "+"


def test_only_the_beginning_of_something_huge_is_shown() -> None:
    text = safe_text(repr, ([Counted()] * 100_000, {"a": "x" * 10**7}), 300)
    assert text.startswith("([+, +, +, ") and text.endswith("...") and len(text) == 300
    assert Counted.shown <= 300
    assert len(brief(bytes(10**6), 100)) < 500


def test_a_bucket_whose_items_are_settled_begins_anew_with_what_was_logged_since() -> None:
    graph = drift.Graph("buckets")
    graph.source("in").group(lambda payload: payload[0], 2, name="g").sink("out")
    stage = Plan(graph.build()).stages()["g"]
    ports: Ports = {}
    stage.process(Columns([pack_time(3)], [("b", 3)], None), ports)
    stage.settle(pack_time(2))
    stage.process(Columns([pack_time(3)], [("b", 3)], [-1]), ports)
    stage.process(Columns([pack_time(6)], [("b", 6)], None), ports)
    stage.settle(pack_time(7))
    out = stage.process(Columns([pack_time(9), pack_time(11)], [("a", 9), ("b", 11)], [-1, 1]), ports)
    assert out.payloads == [(("b", 6), ("b", 11))]


def test_a_bucket_that_is_settled_goes_on_from_what_came_in_order_after_it() -> None:
    """What was corrected once is kept, and what came in order since then is settled and logged no more."""
    graph = drift.Graph("pairs")
    graph.source("in", time=drift.EventTime(lambda time: time, lateness=10)).group(lambda time: 0, 2).sink("out")
    arrived = [5, 3, 20, 30, 60, 50, 80]
    expected = [(3,), (3, 5), (5, 20), (20, 30), (30, 50), (50, 60), (60, 80)]
    for batch_items in (1, 2, 3, 7):
        run = drift.run(graph, {"in": arrived}, batch_items=batch_items)
        assert [item.payload for item in run] == expected


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
    for part, at in ((batch.cut(0, 1), [0]), (batch.chosen(wanted), [at for at, each in enumerate(wanted) if each])):
        assert type(part.payloads) is Plain and part.payloads == [counts[index] for index in at]
        assert list(part.metas) == [numbered[index] for index in at]
