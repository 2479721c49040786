"""The metas of a batch, by the kernel and as a list: both answer as the list of bytes would."""

from __future__ import annotations

import copy
import pickle
from array import array
from collections.abc import Sequence
from functools import partial
from itertools import compress
from operator import lt
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import numbers, times

from drift_graph.canonical import canonical
from drift_graph.lateness import _late_of, late_of
from drift_graph.meta import (
    TIME_MAX,
    TIME_MIN,
    child_suffixes,
    global_time,
    in_rounds,
    later_meta,
    pack_time,
    time_of,
    varint,
)
from drift_graph.metas import ListedMetas
from drift_graph.stamp_counts import ListedStamps
from drift_kernel import kernel

KINDS: list[Any] = [ListedMetas] if kernel is None else [ListedMetas, kernel.Metas]
kinds = st.sampled_from(KINDS)
int64s = st.one_of(times, st.sampled_from([TIME_MIN, TIME_MAX, 0, 1, 2]))
phases = st.sampled_from([1, 2, 3, 4, 0xFE, 0xFF])
moments = st.tuples(int64s, phases, st.integers(0, 1), st.sampled_from([0, 0, 1, -1]))
#: Many have the same time, tie or beginning.
input_metas = st.builds(
    lambda time, tie, ordinal, path: global_time(time, 3, tie, ordinal) + b"".join(map(varint, path)),
    int64s,
    st.one_of(numbers, st.integers(0, 2)),
    st.sampled_from([0, 0, 1, 300]),
    st.lists(numbers, max_size=3),
)


@st.composite
def later_ones(draw: st.DrawFn) -> bytes:
    """The meta of an item that was put at a later moment, up to three times."""
    meta: bytes = draw(input_metas)
    for time, phase, rounds, inward in draw(st.lists(moments, min_size=1, max_size=3)):
        meta = later_meta(meta, b"ab", time, phase, rounds, max(inward, 0)) or meta
    return meta


real_metas = st.one_of(input_metas, input_metas, later_ones())
#: Some begin with others.
any_bytes = st.one_of(st.text("ab", max_size=3).map(str.encode), st.binary(max_size=30), st.just(b"a" * 300))


def check(metas: Any, expected: list[bytes], data: st.DataObject) -> None:
    """Every question about metas that are those of a list."""
    size = len(expected)
    assert len(metas) == size and list(metas) == expected and metas == expected
    assert [metas[at] for at in range(-size, size)] == expected + expected
    assert metas.is_increasing() == all(map(lt, expected, expected[1:]))
    order, ordered = metas.sorted()
    assert list(order) == sorted(range(size), key=expected.__getitem__) and list(ordered) == sorted(expected)
    bound = data.draw(st.one_of(st.sampled_from([b"", b"\xff" * 40, *expected]), any_bytes))
    bound = bound[: data.draw(st.integers(0, len(bound)))] if data.draw(st.booleans()) else bound
    below = ordered.count_below(bound)
    assert below == len([meta for meta in expected if meta < bound]) == ordered.count_below(bound, below, below)
    assert ordered.count_below(bound, below // 2) == below == ordered.count_below(bound, 0, (below + size + 1) // 2)
    assert list(metas.from_on(bound)) == sorted(meta for meta in expected if meta >= bound)
    if expected:
        assert (metas.least(), metas.greatest()) == (min(expected), max(expected))
    different = sorted({*expected})
    parts = [
        type(metas)(different[1::2]),
        type(metas)(different[:3]).with_suffix(b"a").sorted()[1],
        type(metas)(different),
    ]
    numbers, merged = type(metas).merged(parts)
    assert list(zip(merged, numbers)) == sorted((meta, number) for number, part in enumerate(parts) for meta in part)
    assert type(metas).merged([]) == (b"", type(metas)())
    if not metas.is_increasing():
        with pytest.raises(ValueError, match="only increasing"):
            type(metas).merged([metas])
    assert b"".join(map(canonical, expected)) == metas.encoded()
    assert list(type(metas).decoded(size, metas.encoded())) == expected
    assert all(list(kind.unpacked(metas.packed())) == expected for kind in KINDS)
    assert list(pickle.loads(pickle.dumps(metas))) == expected == list(copy.deepcopy(metas))
    assert metas.some_later() == any(meta[8:9] == b"\xff" for meta in expected)
    if all(len(meta) >= 8 for meta in expected):
        every = list(map(time_of, expected))
        assert list(metas.times()) == every
        are_numbers = len({meta[8:] for meta in expected}) == 1 and every == list(range(every[0], every[0] + size))
        assert metas.numbers() == ((every[0], expected[0][8:]) if are_numbers else None)
    else:
        assert metas.numbers() is None
        with pytest.raises(ValueError, match="is no meta"):
            metas.times()


def changed(metas: Any, expected: list[bytes], data: st.DataObject) -> tuple[Any, list[bytes]]:
    """Metas made of others, and their list."""
    size = len(expected)
    how = data.draw(st.sampled_from(["slice", "take", "chosen", "suffix", "children", "joined", "joined", "sorted"]))
    if how == "slice":
        part = slice(data.draw(st.integers(-size - 1, size + 1)), data.draw(st.integers(-size - 1, size + 1)))
        return metas[part], expected[part]
    if how == "take":
        order = data.draw(st.lists(st.integers(0, size - 1), max_size=8)) if size else []
        indices = data.draw(st.sampled_from([list, partial(array, "q")]))(order)
        return metas.take(indices), [expected[at] for at in order]
    if how == "chosen":
        wanted = bytes(data.draw(st.lists(st.integers(0, 1), min_size=size, max_size=size)))
        return metas.chosen(wanted), list(compress(expected, wanted))
    if how == "suffix":
        suffix = data.draw(any_bytes)
        return metas.with_suffix(suffix), [meta + suffix for meta in expected]
    if how == "children":
        endings = data.draw(st.one_of(st.just(child_suffixes(3, 3)), st.lists(any_bytes, max_size=3)))
        counts = data.draw(st.lists(st.integers(0, len(endings)), min_size=size, max_size=size))
        every = [meta + ending for meta, count in zip(expected, counts) for ending in endings[:count]]
        return metas.children(counts, endings), every
    if how == "sorted":
        return metas.sorted()[1], sorted(expected)
    others = data.draw(st.lists(st.lists(any_bytes, max_size=3), max_size=2))
    suffix = data.draw(st.sampled_from([b"", b"", b"ab"]))
    several = [metas, *(type(metas)(other).with_suffix(suffix) for other in others), metas[: size // 2]]
    lists = [expected, *([meta + suffix for meta in other] for other in others), expected[: size // 2]]
    order = data.draw(st.permutations(range(len(several))))
    return type(metas).joined([several[at] for at in order]), [meta for at in order for meta in lists[at]]


def made(kind: Any, data: st.DataObject) -> tuple[Any, list[bytes]]:
    """Metas of a batch, however they come to be, and their list."""
    how = data.draw(st.sampled_from(["bytes", "metas", "numbered", "stamped"]))
    if how == "numbered":
        first = data.draw(st.sampled_from([TIME_MIN, -2, 0, 253, 2**16 - 3, TIME_MAX - 9]))
        count = data.draw(st.integers(0, 9))
        return kind.numbered(first, count, b"end"), [pack_time(first + at) + b"end" for at in range(count)]
    if how == "stamped":
        ties = st.one_of(numbers, st.just(7))
        stamps = data.draw(st.lists(st.tuples(int64s, ties, st.sampled_from([0, 1, 248, 300]))))
        columns = [array(code, [stamp[at] for stamp in stamps]) for at, code in enumerate("qQq")]
        ordinals = columns[2] if data.draw(st.booleans()) else None
        expected = [
            pack_time(time) + b"\x03" + varint(tie) + (b"" if ordinals is None else varint(ordinal)) + b"\0e"
            for time, tie, ordinal in stamps
        ]
        return kind.stamped(columns[0], columns[1], b"\x03", b"\0e", ordinals), expected
    expected = data.draw(st.lists(any_bytes if how == "bytes" else real_metas, max_size=40))
    return kind(expected), expected


@given(kinds, st.data())
def test_metas_answer_as_their_list(kind: Any, data: st.DataObject) -> None:
    metas, expected = made(kind, data)
    check(metas, expected, data)
    for _ in range(data.draw(st.integers(0, 3))):
        metas, expected = changed(metas, expected, data)
        check(metas, expected, data)


@given(kinds, st.lists(st.sampled_from([(0, 7), (0, 8), (1, 0), (1, 7), (2**62, 7)]), min_size=30, max_size=60))
def test_many_metas_of_few_times_are_sorted_and_equal_ones_keep_their_places(
    kind: Any, stamps: list[tuple[int, int]]
) -> None:
    metas = [pack_time(time) + b"\x03" + varint(tie) for time, tie in stamps]
    order, made = kind(metas).sorted()
    assert list(order) == sorted(range(len(metas)), key=metas.__getitem__)
    assert list(made) == sorted(metas)


@given(kinds, st.lists(real_metas, max_size=6), moments, st.sampled_from([None, int, array]), st.data())
def test_later_children_have_the_metas_that_each_would_have(
    kind: Any, parents: list[bytes], moment: tuple[int, int, int, int], of: Any, data: st.DataObject
) -> None:
    """Only what is in a loop leaves it."""
    time, phase, rounds, inward = moment
    inward = max(inward, -1 if all(map(in_rounds, parents)) else 0)
    count = len(parents)
    each = data.draw(st.lists(int64s, min_size=count, max_size=count)) if of is array else [time] * count
    every = zip(parents, map(time_of, parents) if of is None else each)
    expected = [later_meta(parent, b"cd", its, phase, rounds, inward) or parent + b"cd" for parent, its in every]
    given_time = None if of is None else time if of is int else array("q", each)
    cut = data.draw(st.integers(0, 3))
    assert list(kind(parents).later(b"cd", given_time, phase, rounds, inward)) == expected
    if len({parent[len(parent) - cut :] for parent in parents}) == 1:  # as a tail of all
        metas = kind([parent[: len(parent) - cut] for parent in parents]).with_suffix(
            parents[0][len(parents[0]) - cut :]
        )
        assert list(metas.later(b"cd", given_time, phase, rounds, inward)) == expected


def unpacked(kind: Any, data: bytes) -> Any:
    return kind.unpacked(data)


def decoded(kind: Any, count: int, data: bytes) -> Any:
    return kind.decoded(count, data)


def answers(ask: Any) -> list[Any]:
    """What each kind answers."""
    found: list[Any] = []
    for kind in KINDS:
        try:
            found.append(list(ask(kind)))
        except (ValueError, MemoryError) as error:
            found.append((type(error), str(error)))
    return found


@given(kinds, st.lists(st.one_of(real_metas, any_bytes), max_size=5), st.data())
def test_damaged_metas_are_refused_or_are_others(kind: Any, listed: list[bytes], data: st.DataObject) -> None:
    metas, count = kind(listed).with_suffix(data.draw(any_bytes)), len(listed) + data.draw(st.integers(-1, 1))
    for known in (metas.packed(), metas.encoded()):
        damaged = bytearray(known)
        for _ in range(data.draw(st.integers(1, 3))):
            at, value = data.draw(st.integers(0, len(damaged))), data.draw(st.sampled_from([0, 1, 2, 0x7F, 0xC5, 0xFF]))
            damaged[at : at + data.draw(st.integers(0, 1))] = bytes((value,)) * data.draw(st.integers(0, 1))
        for ask in (partial(unpacked, data=bytes(damaged)), partial(decoded, count=count, data=bytes(damaged))):
            first, *others = answers(ask)
            assert all(other == first for other in others)


@pytest.mark.parametrize("kind", KINDS)
def test_what_metas_cannot_answer_is_an_error(kind: Any) -> None:
    metas = kind([b"a", b"b"])
    for ask, error in (
        (lambda: kind([b"a", "b"]), TypeError),
        (lambda: metas[2], IndexError),
        (lambda: metas[-3], IndexError),
        (lambda: metas[::2], ValueError),
        (lambda: metas.take([2]), IndexError),
        (lambda: metas.take([-1]), IndexError),
        (lambda: metas.chosen(b"\1"), ValueError),
        (lambda: metas.children([1], [b"a"]), ValueError),
        (lambda: metas.children([2, 0], [b"a"]), ValueError),
        (lambda: metas.children([-1, 0], [b"a"]), ValueError),
        (lambda: metas.count_below(b"", 2, 1), IndexError),
        (lambda: metas.count_below(b"", 0, 3), IndexError),
        (lambda: metas.later(b"", 5, 2), ValueError),
        (lambda: metas.later(b"", array("q", [1]), 2), ValueError),
        (lambda: kind([b"12345678\xff"]).later(b"", 5, 2), ValueError),
        (lambda: kind([b"12345678\xff\1\2\0\0"]).later(b"", 5, 2), ValueError),
        (lambda: kind().least(), ValueError),
        (lambda: kind().greatest(), ValueError),
        (lambda: kind.numbered(TIME_MAX, 2, b""), ValueError),
        (lambda: kind.numbered(0, -1, b""), ValueError),
        (lambda: kind.stamped(array("q", [1]), array("Q"), b"", b""), ValueError),
        (lambda: kind.unpacked(b"short"), ValueError),
        (lambda: hash(metas), TypeError),
    ):
        with pytest.raises(error):
            ask()
    assert metas != kind([b"a"]) and metas != (b"a", b"b") and repr(metas) == "Metas([b'a', b'b'])"


@pytest.mark.parametrize("kind", KINDS)
def test_metas_are_numbers_however_they_were_made(kind: Any) -> None:
    """Some of metas that had several sizes, and metas that are in part what all have behind them."""
    numbers, other = [pack_time(time) + b"e" for time in (4, 5, 6)], pack_time(9) + b"longer"
    metas, split = kind([*numbers, other]), kind([b""]).with_suffix(numbers[0])
    some = [metas[:3], metas.take([0, 1, 2]), metas.chosen(b"\1\1\1\0"), kind.joined([metas[:1], metas[1:3]])]
    assert [each.numbers() for each in some] == [(4, b"e")] * 4
    assert (split.numbers(), metas[2:].numbers(), metas[3:].numbers()) == ((4, b"e"), None, (9, b"longer"))


@pytest.mark.parametrize("kind", KINDS)
def test_many_metas_in_some_disorder_are_sorted_and_equal_ones_keep_their_order(kind: Any) -> None:
    draw = Random(7)
    numbers = [at + draw.randrange(500) for at in range(5_000)]
    expected = [global_time(number, 0, draw.randrange(2**64) if number % 3 else 5, 0) for number in numbers]
    order, ordered = kind(expected).with_suffix(b"ab").sorted()
    assert list(order) == sorted(range(len(expected)), key=expected.__getitem__)
    assert list(ordered) == [expected[at] + b"ab" for at in order]


STAMPS: list[Any] = [ListedStamps] if kernel is None else [ListedStamps, kernel.Stamps]
some_times = st.integers(-5, 5) | st.sampled_from([TIME_MIN, TIME_MAX])
some_ties = st.integers(0, 3) | st.sampled_from([2**64 - 1, 2**63])
some_stamps = st.lists(st.tuples(some_times, some_ties), max_size=9)


@given(st.sampled_from(STAMPS), st.lists(st.tuples(some_stamps, st.booleans(), some_times), max_size=6))
def test_stamps_are_counted_and_what_is_taken_back_is_not(
    kind: Any, steps: list[tuple[list[tuple[int, int]], bool, int]]
) -> None:
    """What is below the time that is settled may be forgotten, and comes no more."""
    stamps, came, least = kind(), list[tuple[int, int]](), TIME_MIN
    for drawn, is_taken_back, settled in steps:
        batch = [stamp for stamp in drawn if stamp[0] >= least]
        times, ties = (array(code, [stamp[at] for stamp in batch]) for at, code in enumerate("qQ"))
        ordinals, order = stamps.add(times, ties)
        assert order is None or list(order) == sorted(range(len(batch)), key=batch.__getitem__) != [*range(len(batch))]
        expected = [came.count(stamp) + batch[:at].count(stamp) for at, stamp in enumerate(batch)]
        assert list(ordinals or [0] * len(batch)) == expected and (ordinals is None) == (not any(expected))
        if is_taken_back:
            stamps.take_back(times, ties)
        else:
            came += batch
        least = max(least, settled)
        stamps.settle(settled)
        for stamp in {each for each in (*came, *batch) if each[0] >= least}:
            assert stamps.of(*stamp) == ((came.count(stamp), came.index(stamp)) if stamp in came else (0, len(came)))
    stamps.set(TIME_MAX, 9, 7, -3)
    left = sorted({stamp for stamp in came if stamp[0] >= least})
    known = [(*stamp, came.count(stamp), came.index(stamp)) for stamp in left]
    assert stamps.listed() == sorted([*known, (TIME_MAX, 9, 7, -3)])


@pytest.mark.parametrize("times", [range(100), [TIME_MIN, 0, TIME_MAX], [-(1 << 40), 5, 6, 1 << 40]])
@pytest.mark.parametrize("ties", [range(9000), range(1 << 63, 2**64, 1 << 50), [*range(40), 2**64 - 1]])
def test_many_stamps_are_put_in_order(times: Sequence[int], ties: Sequence[int]) -> None:
    """Where few bits tell them apart, where many do, and where many are equal in their first bits."""
    for kind in STAMPS:
        draw = Random(5)
        batch = [(draw.choice(times), draw.choice(ties)) for _ in range(300)]
        _, order = kind().add(array("q", [time for time, _ in batch]), array("Q", [tie for _, tie in batch]))
        assert order is None or list(order) == sorted(range(300), key=batch.__getitem__)


@pytest.mark.parametrize("kind", STAMPS)
def test_many_stamps_are_counted_and_settled_ones_are_forgotten(kind: Any) -> None:
    stamps, draw, came = kind(), Random(3), dict[tuple[int, int], int]()
    for start in range(0, 6000, 200):
        times = array("q", [start + draw.randrange(300) for _ in range(200)])
        ties = array("Q", [draw.randrange(2) << 63 for _ in times])
        (ordinals, _), expected = stamps.add(times, ties), []
        for stamp in zip(times, ties):
            expected.append(came.get(stamp, 0))
            came[stamp] = expected[-1] + 1
        assert list(ordinals) == expected
        stamps.settle(start - 500)
    left = sorted((*stamp, count) for stamp, count in came.items() if stamp[0] >= 5300)
    assert [each[:3] for each in stamps.listed()] == left
    assert stamps.of(5, 0)[0] == 0 != came.get((5, 0), came.get((5, 1 << 63)))


@given(
    st.lists(some_times, max_size=9),
    some_times,
    some_times,
    st.integers(0, 12) | st.sampled_from([2**63 - 1, 2**63, 2**64 - 1, 2**64]),
)
def test_late_times_are_those_below_the_greatest_before_them_less_the_lateness(
    times: list[int], greatest: int, least: int, lateness: int
) -> None:
    bounds = [max(max([greatest, *times[:at]]) - lateness, least) for at in range(len(times))]
    expected = [(at, time, bound) for at, (time, bound) in enumerate(zip(times, bounds)) if time < bound]
    for function in (_late_of, late_of):
        found, highest = function(array("q", times), greatest, least, lateness)
        assert list(found) == expected and highest == max([greatest, *times])


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_put_behind_metas_decides_where_one_begins_with_another(kind: Any) -> None:
    metas = kind([b"", b"a"]).with_suffix(b"a")
    assert metas.is_increasing() and list(metas) == [b"a", b"aa"]
    behind = metas.with_suffix(b"b")
    assert list(behind) == [b"ab", b"aab"] and not behind.is_increasing()


@pytest.mark.parametrize("kind", KINDS)
def test_whether_metas_of_several_batches_increase_is_asked_where_they_meet(kind: Any) -> None:
    first, second = kind.numbered(0, 3, b"end"), kind.numbered(3, 3, b"end")
    assert kind.joined([first, second]).is_increasing()
    for not_behind in (first, kind.numbered(2, 3, b"end"), kind.numbered(-3, 3, b"end")):
        assert not kind.joined([first, not_behind]).is_increasing()
