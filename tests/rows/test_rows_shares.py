"""Rows are split among workers, and their metas compared, in columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from drift.columns.rows import Frame
from drift.flow.choosing import all_items
from drift.flow.fields import key_of as key_by
from drift.machines.keys import Partitioner
from drift_graph.meta import varint
from drift_graph.metas import Metas

fields = st.lists(
    st.tuples(st.none() | st.text(max_size=20), st.integers(-(2**63), 2**63 - 1), st.none() | st.integers(0, 3)),
    min_size=1,
    max_size=20,
)


@given(fields, st.sampled_from([("a",), ("b",), ("c",), ("a", "b"), ("c", "a", "b"), ()]), st.integers(2, 5))
def test_the_worker_of_a_row_is_that_of_its_dict(rows: list[Any], key: tuple[str, ...], workers: int) -> None:
    frame = Frame(pl.DataFrame(rows, schema={"a": str, "b": int, "c": pl.Int8}, orient="row"))
    partitioner, key_of = Partitioner(workers), key_by(*key) if key else all_items
    found = frame.numbered(key, partitioner.owners)
    assert found is not None and list(found) == [partitioner.owner(key_of(row)) for row in frame]


def test_rows_whose_keys_are_not_known_in_columns_have_no_numbers() -> None:
    frame = Frame(pl.DataFrame({"a": [1.0], "b": [1]}))
    assert frame.numbered(("a",), Partitioner(2).owners) is None is frame.numbered(("c",), Partitioner(2).owners)


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 3), st.integers(0, 300)), min_size=1))
def test_the_least_and_the_greatest_of_metas_in_arrays_are_those_of_a_list(stamps: list[tuple[int, int, int]]) -> None:
    times, ties, ordinals = (np.array(each, np.int64) for each in zip(*stamps))
    metas = Metas.stamped(times, ties.astype(np.uint64), varint(1), varint(0) + b"\x05")
    for some in (metas, metas.with_ordinals(dict(enumerate(ordinals.tolist())))):
        assert (some.least(), some.greatest()) == (min(some.listed()), max(some.listed()))
