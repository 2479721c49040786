"""Which rows have canonical forms, as far as their columns tell."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import polars as pl
import pytest

from drift.columns.added_up import are_certain

MS_OF_YEAR_10000 = 253_402_300_800_000


@pytest.mark.parametrize(
    ("values", "kind", "certain"),
    [
        ([1, None], pl.Int64, True),
        (["a", None], pl.String, True),
        ([[1]], pl.List(pl.Int64), False),
        ([date(2013, 1, 1), None], pl.Date, True),
        ([None], pl.Date, True),
        ([], pl.Datetime("us"), True),
        ([MS_OF_YEAR_10000 // 86_400_000], pl.Date, False),
        ([-MS_OF_YEAR_10000 // 86_400_000], pl.Date, False),
        ([datetime(2013, 1, 1, tzinfo=UTC)], pl.Datetime("ms", "UTC"), True),
        ([datetime(2013, 1, 1)], pl.Datetime("us"), True),
        ([datetime(2013, 1, 1)], pl.Datetime("ns"), False),
        ([MS_OF_YEAR_10000], pl.Datetime("ms"), False),
        ([MS_OF_YEAR_10000 * 1000], pl.Datetime("us"), False),
        ([-MS_OF_YEAR_10000], pl.Datetime("ms"), False),
    ],
)
def test_moments_that_python_has_no_value_for_have_no_form(values: list[Any], kind: Any, certain: bool) -> None:
    in_numbers = kind.is_temporal() and any(type(value) is int for value in values)
    column = pl.Series("a", values, pl.Int64).cast(kind) if in_numbers else pl.Series("a", values, kind)
    assert are_certain(pl.DataFrame([pl.Series("n", range(len(values))), column])) is certain
