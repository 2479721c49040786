"""What is computed of many byte strings at once is what a loop over them computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drift.records import writer
from drift.records.blocks import Blocks, checks
from drift.records.columns import GLOBAL_TIME, META, bins_of, joined, metas_of, split, strings_of, values
from drift.records.reader import restored_many
from drift.records.tables import SCHEMAS
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


@given(strings, st.data())
def test_strings_are_checked_and_joined_from_any_part_of_a_column(
    given_strings: list[bytes], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(given_strings)))
    end = data.draw(st.integers(start, len(given_strings)))
    part, expected = strings_of(pa.array(given_strings, pa.binary()))[start:end], given_strings[start:end]
    assert joined(part).tobytes() == b"".join(expected) and list(joined(part)) == list(b"".join(expected))
    assert checks(part).tolist() == [sum(one) % 256 | len(one) % 256 << 8 for one in expected]
    each = list(map(msgspec.msgpack.encode, expected))
    assert values(len(each), b"".join(each)).to_pylist() == each


def test_a_column_of_strings_has_a_value_in_each_row() -> None:
    with pytest.raises(ValueError, match="a row has no value"):
        strings_of(pa.array([b"a", None]))


@given(st.one_of(st.lists(metas, max_size=30), *map(several_of, (FEW, MIXED))))
def test_metas_are_split_and_joined(given_metas: list[bytes]) -> None:
    bins, *columns = split(len(given_metas), Metas(given_metas).encoded())
    assert bins.to_pylist() == list(map(msgspec.msgpack.encode, given_metas))
    ties = [global_time_of(meta)[8:] for meta in given_metas]
    paths = [meta[8 + len(tie) :] for meta, tie in zip(given_metas, ties)]
    assert [each.to_pylist() for each in columns] == [list(map(time_of, given_metas)), ties, paths]
    arrays = [each.cast(kind) for each, kind in zip(columns, (pa.int64(), pa.binary(), pa.binary()))]
    coded = [arrays[0], *(array.dictionary_encode() for array in arrays[1:])]
    for each in (arrays, coded, [arrays[0], coded[1], arrays[2]]):
        rows = pa.table(each, names=list(META))
        for table in (rows, rows.slice(len(rows) // 3), pa.concat_tables([rows.slice(0, 1), rows.slice(1)])):
            expected = given_metas[len(given_metas) - len(table) :]
            assert metas_of(table).to_pylist() == expected
            assert metas_of(table, GLOBAL_TIME).to_pylist() == list(map(global_time_of, expected))
            assert bins_of(table).to_pylist() == list(map(msgspec.msgpack.encode, expected))


@pytest.mark.parametrize("length", [5, 8, 9, 10])
def test_a_meta_that_ends_within_its_global_time_is_not_split(length: int) -> None:
    with pytest.raises(ValueError, match="a meta ends within its global time"):
        split(2, Metas([FEW[0], FEW[1][:length]]).encoded())


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
def test_payloads_come_back_from_a_column(given_values: list[Any]) -> None:
    each = stored_each(given_values)
    plain = stored_plain(given_values)
    assert plain in (None, b"".join(each))
    column = values(len(given_values), b"".join(each))
    assert column.to_pylist() == each
    back = restored_many(column, {})
    assert list(map(canonical, back)) == list(map(canonical, given_values))
    assert list(map(repr, back)) == list(map(repr, given_values))  # the order of dicts as well


@given(st.lists(st.tuples(metas, st.integers()), max_size=60), st.data())
def test_blocks_are_those_of_the_digest(items: list[Any], data: st.DataObject) -> None:
    items = items * 150  # several blocks
    made, digest = Blocks("xxh3_128"), Digest()
    while items:
        cut = data.draw(st.integers(1, len(items)))
        part, items = items[:cut], items[cut:]
        of_metas, of_payloads = Metas([meta for meta, _ in part]), [payload for _, payload in part]
        column = values(cut, encode_many(of_payloads))
        made.add(split(cut, of_metas.encoded()).bins, column)
        digest.add(of_metas, of_payloads)
    taken = made.take() + ([made.open] if made.open is not None else [])
    assert made.digest.hexdigest() == digest.hexdigest()
    assert [block.hash for block in taken if block.rows == 4096] == digest.blocks
    assert sum(block.rows for block in taken) == made.rows
    assert all(len(block.payload_checks) == 2 * block.rows == 2 * len(block.meta_checks) for block in taken)


def test_columns_that_are_too_great_for_a_batch_are_written_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_BATCH_BYTES_MAX", 300)
    table = writer._Table(tmp_path, "answers", "xxh3_128")
    rows = ["ask"] * 9, list(map(bytes, range(9))), [False] * 9, [bytes([row]) * 90 for row in range(9)]
    table.add([pa.array(each, kind) for each, kind in zip(rows, SCHEMAS["answers"].types)])
    assert len(table._pending) > 2 and all(batch.nbytes <= 300 for batch in table._pending)
    sealed = table.seal()
    assert sealed is not None and sealed.rows == 9
    assert tuple(pq.read_table(tmp_path / sealed.path).to_pydict().values()) == rows
