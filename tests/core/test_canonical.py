"""Canonical bytes, what is short of them in errors, and the keys that are told apart by them."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import AWKWARD, Opaque, payloads

from drift.machines.keys import Partitioner, identities
from drift_graph.canonical import (
    NoCanonicalForm,
    canonical,
    canonical_each,
    encode_many,
    form_of,
    forms_of,
    hash64,
    hash64_each,
    same,
    stored,
    stored_each,
)
from drift_graph.functions import brief, safe_text

pytestmark = pytest.mark.usefixtures("with_the_kernel_and_without")

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
def test_the_fast_paths_to_canonical_bytes_give_the_same_bytes(given_values: list[Any]) -> None:
    each = [canonical(value) for value in given_values]
    assert encode_many(given_values) == b"".join(each)
    assert canonical_each(given_values) == each
    assert hash64_each(given_values) == b"".join(hash64(value).to_bytes(8, "big") for value in given_values)
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
    st.sampled_from([Fields, SlottedFields]),
    st.lists(payloads | st.tuples(payloads, payloads), max_size=4)
    | st.lists(st.dictionaries(st.text(max_size=2), st.integers() | st.floats() | payloads, max_size=3), max_size=4),
    payloads,
)
@example(Fields, [1.0, (1, "a"), (1, 1.0), "\ud800", 2**70, float("nan")], (1, float("nan")))
@example(Fields, [{"b": 1, "a": 2.5}, {"a": None, "c": "d"}], {"z": 1, "y": (1, 2)})
@example(Fields, [{"a": 1}, {}], None)
@example(Fields, [{"a": float("nan")}, {"a": -0.0}], None)
@example(Fields, [{"a": 2**70}], None)
@example(Fields, [{"\ud800": 1}, {"b": "\ud800"}], None)
@example(Fields, [{1: 2, "b": 1}, {True: 0}], None)
@example(Fields, [{"a": 1}, None, (1, 2)], None)
@example(with_more, [1, 2], None)
@example(with_more, [{"b": 1, "a": 2}], None)
@example(without, [1, 2], None)
def test_instances_of_one_class_have_the_bytes_that_each_has(kind: Any, fields: list[Any], other: Any) -> None:
    for instances in ([kind(one) for one in fields], [SlottedFields(one, other) for one in fields]):
        assert canonical_each(instances) == [canonical(each) for each in instances]
        assert stored_each(instances) == [stored(each) for each in instances]


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


@given(st.lists(values, max_size=8))
def test_identities_of_keys_are_equal_exactly_where_the_keys_are_the_same(keys: list[Any]) -> None:
    found = identities(keys)
    for left, left_identity in zip(keys, found):
        for right, right_identity in zip(keys, found):
            assert (left_identity == right_identity) == (canonical(left) == canonical(right))
    assert len(set(found)) == len(set(map(canonical, keys)))


def test_tuples_that_python_holds_equal_are_different_keys_and_plain_ones_are_themselves() -> None:
    plain: list[Any] = [("a", 1), ("a", None), (), ("a", 10**30)]
    assert identities(plain) == plain
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


@given(st.recursive(payloads, lambda inner: st.lists(inner) | st.dictionaries(st.integers(), inner), max_leaves=5))
def test_what_is_short_is_shown_as_by_repr(value: Any) -> None:
    assert brief(value) == repr(value)


class Counted:
    shown = 0

    def __repr__(self) -> str:
        Counted.shown += 1
        return "+"


def test_only_the_beginning_of_a_huge_value_is_shown() -> None:
    Counted.shown = 0
    text = safe_text(repr, ([Counted()] * 100_000, {"a": "x" * 10**7}), 300)
    assert text.startswith("([+, +, +, ") and text.endswith("...") and len(text) == 300
    assert Counted.shown <= 300
    assert len(brief(bytes(10**6), 100)) < 500
