"""What is computed of many byte strings at once is what a loop over them computes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from drift.records import columns
from drift.records.blocks import Blocks, checks
from drift.records.reader import restored_many
from drift_barrier.digest import Digest
from drift_graph.canonical import canonical, encode_many, encode_metas, stored_each, stored_plain
from drift_graph.meta import NumberedMetas, global_time, global_time_of, time_of, varint

numbers = st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1))
times = st.integers(-(2**63), 2**63 - 1)
global_times = st.builds(global_time, times, st.integers(0, 300), numbers, numbers)
metas = st.builds(lambda start, path: start + b"".join(map(varint, path)), global_times, st.lists(numbers, max_size=4))
strings = st.one_of(
    st.lists(st.binary(max_size=20), max_size=40),
    st.integers(1, 20).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size), max_size=40)),
    st.lists(st.binary(max_size=400), max_size=5),
)


def listed(found: columns.Strings) -> list[bytes]:
    return [found.slice(index, index + 1).joined().tobytes() for index in range(len(found))]


@given(strings, st.data())
def test_strings_are_what_they_were_made_of(given_strings: list[bytes], data: st.DataObject) -> None:
    made = columns.of_list(given_strings)
    assert made.listed() == listed(made) == given_strings
    start = data.draw(st.integers(0, len(given_strings)))
    end = data.draw(st.integers(start, len(given_strings)))
    part = made.slice(start, end)
    assert part.listed() == given_strings[start:end]
    assert columns.of_arrow(columns.to_arrow(part)).listed() == given_strings[start:end]
    packed, offsets = columns.bins(part)
    each = list(map(msgspec.msgpack.encode, given_strings[start:end]))
    assert packed.tobytes() == b"".join(each)
    assert [packed[one:other].tobytes() for one, other in pairwise(offsets)] == each
    assert columns.byte_strings(end - start, b"".join(each)).listed() == given_strings[start:end]
    assert checks(part).tolist() == [sum(one) % 256 | len(one) % 256 << 8 for one in given_strings[start:end]]
    assert columns.joined([made, part]).listed() == given_strings + given_strings[start:end]


@given(strings)
def test_the_first_that_does_not_increase_is_found(given_strings: list[bytes]) -> None:
    pairs = enumerate(pairwise(given_strings), 1)
    expected = next((index for index, (one, other) in pairs if other <= one), None)
    assert columns.first_not_increasing(columns.of_list(given_strings)) == expected
    ordered = sorted(set(given_strings))
    assert columns.first_not_increasing(columns.of_list(ordered)) is None


@given(st.lists(metas, max_size=30))
def test_times_and_global_times_are_cut_off_metas(given_metas: list[bytes]) -> None:
    made = columns.of_list(given_metas)
    assert columns.times_of(made).tolist() == list(map(time_of, given_metas))
    assert columns.global_times(made).listed() == list(map(global_time_of, given_metas))


@given(st.integers(-(2**63), 2**63 - 200), st.integers(0, 100), st.binary(max_size=9))
def test_numbered_metas_are_computed(first: int, count: int, ending: bytes) -> None:
    given_metas = NumberedMetas(first, count, ending)
    assert columns.numbered(given_metas).listed() == given_metas.listed()


scalars = st.one_of(
    st.integers(-(2**66), 2**66), st.text(max_size=4), st.floats(), st.booleans(), st.none(), st.binary()
)
payloads = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers(0, 9)), inner, max_size=3),
    ),
    max_leaves=6,
)


@given(st.one_of(st.lists(scalars), st.lists(st.tuples(scalars, scalars)), st.lists(payloads, max_size=8)))
@example([(1, 2), (1, (2,))])  # what the first row is says nothing of the others
@example([{"a": 1}, {"a": (1,)}])
@example([1, [1]])
def test_payloads_come_back_from_a_column(values: list[Any]) -> None:
    each = stored_each(values)
    plain = stored_plain(values)
    assert plain in (None, b"".join(each))
    column = columns.values(len(values), b"".join(each))
    assert column.listed() == each
    back = restored_many(column, {})
    assert list(map(canonical, back)) == list(map(canonical, values))
    assert list(map(repr, back)) == list(map(repr, values))  # the order of dicts as well


@given(st.lists(st.tuples(metas, st.integers()), max_size=60), st.data())
def test_blocks_are_those_of_the_digest(items: list[Any], data: st.DataObject) -> None:
    items = items * 150  # several blocks
    made, digest = Blocks("xxh3_128"), Digest()
    while items:
        cut = data.draw(st.integers(1, len(items)))
        part, items = items[:cut], items[cut:]
        of_metas, of_payloads = [meta for meta, _ in part], [payload for _, payload in part]
        column = columns.values(cut, encode_many(of_payloads))
        made.add(columns.of_list(of_metas), column, encode_metas(of_metas) if cut % 2 else None)
        digest.add(of_metas, of_payloads)
    taken = made.take()
    assert made.digest.hexdigest() == digest.hexdigest()
    assert [block.hash for block in taken if block.rows == 4096] == digest.blocks
    assert sum(block.rows for block in taken) == made.rows
    assert all(len(block.payload_checks) == 2 * block.rows == 2 * len(block.meta_checks) for block in taken)
