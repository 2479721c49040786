"""What is computed of many byte strings at once is what a loop over them computes."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from drift.records import columns
from drift.records.blocks import Blocks, checks
from drift.records.metas import GLOBAL_TIME, META, bins_of, metas_of, split
from drift.records.reader import restored_many
from drift.strings import Strings, cut, joined, of_arrow, of_list, plain, to_arrow
from drift_barrier.digest import Digest
from drift_graph.canonical import canonical, encode_many, stored_each, stored_plain
from drift_graph.meta import global_time, global_time_of, time_of, varint
from drift_graph.metas import Metas

numbers = st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1))
times = st.integers(-(2**63), 2**63 - 1)
global_times = st.builds(global_time, times, st.integers(0, 300), numbers, numbers)
paths = st.one_of(st.lists(numbers, max_size=4), st.integers(240, 260).map(lambda length: [1] * length))
metas = st.builds(lambda start, path: start + b"".join(map(varint, path)), global_times, paths)
strings = st.one_of(
    st.lists(st.binary(max_size=20), max_size=40),
    st.integers(1, 20).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size), max_size=40)),
    st.lists(st.binary(max_size=400), max_size=5),
)


#: Metas as a graph makes them: few ties and few paths, of one length.
FEW = [global_time(time, source, 0, 0) + path for time in (-1, 5) for source in (0, 1) for path in (b"\3\0", b"\3\1")]

#: Metas of one length, with ties of other lengths.
MIXED = [global_time(5, 0, 7, 0) + b"\1\2\3", global_time(5, 0, 300, 0) + b"\1", global_time(5, 250, 7, 0) + b"\1\2"]


def several_of(given_metas: list[bytes]) -> st.SearchStrategy[list[bytes]]:
    return st.lists(st.sampled_from(given_metas), max_size=30)


def listed(found: Strings) -> list[bytes]:
    return [found.slice(index, index + 1).joined().tobytes() for index in range(len(found))]


@given(strings, st.data())
def test_strings_are_what_they_were_made_of(given_strings: list[bytes], data: st.DataObject) -> None:
    made = of_list(given_strings)
    assert made.listed() == listed(made) == given_strings
    start = data.draw(st.integers(0, len(given_strings)))
    end = data.draw(st.integers(start, len(given_strings)))
    part = made.slice(start, end)
    assert part.listed() == given_strings[start:end]
    assert of_arrow(to_arrow(part)).listed() == given_strings[start:end]
    each = list(map(msgspec.msgpack.encode, given_strings[start:end]))
    assert columns.read_bins(end - start, b"".join(each)).listed() == each
    assert checks(part).tolist() == [sum(one) % 256 | len(one) % 256 << 8 for one in given_strings[start:end]]
    assert joined([made, part]).listed() == given_strings + given_strings[start:end]


@given(strings, st.data())
def test_many_strings_of_few_lengths_are_listed_and_hashed_in_their_order(
    given_strings: list[bytes], data: st.DataObject
) -> None:
    many = given_strings * 64
    made, start = of_list(many), data.draw(st.integers(0, len(given_strings)))
    for part, expected in ((made, many), (made.slice(start, len(many)), many[start:])):
        assert part.listed() == expected


@given(strings, st.data())
def test_parts_are_cut_out(given_strings: list[bytes], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, min(map(len, given_strings), default=0)))
    ends = [data.draw(st.integers(start, len(string))) for string in given_strings]
    if data.draw(st.booleans()) and ends:  # all of one length
        ends = [min(ends)] * len(ends)
    found = cut(uniform(given_strings), np.full(len(ends), start), np.array(ends, np.int64) - start)
    assert found.listed() == listed(found) == [string[start:end] for string, end in zip(given_strings, ends)]


def uniform(given_strings: list[bytes]) -> Strings:
    """The same, said to be of one length where they are."""
    made = of_list(given_strings)
    lengths = set(map(len, given_strings))
    return Strings(made.data, made.offsets, lengths.pop() if len(lengths) == 1 else 0)


@given(st.one_of(st.lists(metas, max_size=30), *map(several_of, (FEW, MIXED))), st.sampled_from([0, 2]))
def test_metas_are_split_and_joined(given_metas: list[bytes], head: int) -> None:
    headed = uniform([b"xx"[:head] + meta for meta in given_metas])
    times, ties, paths = split(headed, head)
    assert times.tolist() == list(map(time_of, given_metas))
    assert ties.listed() == [global_time_of(meta)[8:] for meta in given_metas]
    assert paths.listed() == [meta[len(global_time_of(meta)) :] for meta in given_metas]
    arrays = [plain(times, pa.int64()), to_arrow(ties), to_arrow(paths)]
    coded = [arrays[0], *(array.dictionary_encode() for array in arrays[1:])]
    for each in (arrays, coded, [arrays[0], coded[1], arrays[2]]):
        rows = pa.table(each, names=list(META))
        for table in (rows, rows.slice(len(rows) // 3), pa.concat_tables([rows.slice(0, 1), rows.slice(1)])):
            expected = given_metas[len(given_metas) - len(table) :]
            assert metas_of(table).listed() == expected
            assert metas_of(table, GLOBAL_TIME).listed() == list(map(global_time_of, expected))
            assert bins_of(table).listed() == list(map(msgspec.msgpack.encode, expected))


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
        of_metas, of_payloads = Metas([meta for meta, _ in part]), [payload for _, payload in part]
        column = columns.values(cut, encode_many(of_payloads))
        made.add(columns.read_bins(cut, of_metas.encoded()), column)
        digest.add(of_metas, of_payloads)
    taken = made.take() + ([made.open] if made.open is not None else [])
    assert made.digest.hexdigest() == digest.hexdigest()
    assert [block.hash for block in taken if block.rows == 4096] == digest.blocks
    assert sum(block.rows for block in taken) == made.rows
    assert all(len(block.payload_checks) == 2 * block.rows == 2 * len(block.meta_checks) for block in taken)
