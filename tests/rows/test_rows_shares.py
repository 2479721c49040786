"""Rows are split among workers, and their metas compared, in columns."""

from __future__ import annotations

from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from drift.columns.rows import Frame
from drift.flow.choosing import all_items
from drift.flow.fields import key_of as key_by
from drift.machines.keys import Partitioner
from drift_kernel import kernel

fields = st.lists(
    st.tuples(st.none() | st.text(max_size=20), st.integers(-(2**63), 2**63 - 1), st.none() | st.integers(0, 3)),
    min_size=1,
    max_size=20,
)


@given(fields, st.sampled_from([("a",), ("b",), ("c",), ("a", "b"), ("c", "a", "b"), ()]), st.integers(2, 5))
def test_the_worker_of_a_row_is_that_of_its_dict(rows: list[Any], key: tuple[str, ...], workers: int) -> None:
    frame = Frame(pl.DataFrame(rows, schema={"a": str, "b": int, "c": pl.Int8}, orient="row"))
    partitioner, key_of = Partitioner(workers), key_by(*key) if key else all_items
    found = frame.remainders(key, workers)
    assert (found is None) is (kernel is None)
    assert found is None or list(found) == [partitioner.owner(key_of(row)) for row in frame]


def test_rows_whose_keys_are_not_known_in_columns_have_no_remainders() -> None:
    frame = Frame(pl.DataFrame({"a": [1.0], "b": [1]}))
    assert frame.remainders(("a",), 2) is None is frame.remainders(("c",), 2)
