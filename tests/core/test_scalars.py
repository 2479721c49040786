"""Scalars of numpy and pandas as payloads: each has one canonical form, and can be had again from it."""

from __future__ import annotations

import datetime
import zoneinfo
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest

import drift
from drift_graph.canonical import NoCanonicalForm, canonical
from drift_graph.restore import restored

NOON = pd.Timestamp("2024-11-03 12:00", tz="UTC")
SCALARS: list[Any] = [
    *(1, 1.0, True, "a", b"a"),
    *(np.bool_(True), np.int8(1), np.int32(1), np.int64(1), np.uint64(2**64 - 1), np.uint64(1), np.float16(1)),
    *(np.float32(1), np.float64(1), np.float64("nan"), np.complex64(1), np.complex128(1), np.str_("a")),
    np.bytes_(b"a"),
    *(np.datetime64("2024-01-01"), np.datetime64("2024-01-01T00", "h"), np.datetime64("NaT", "ns")),
    *(np.timedelta64(1, "ns"), np.timedelta64(1, "D"), np.datetime64(5, ("ms", 10))),
    *(pd.NaT, pd.NA, pd.Timestamp("2024-01-01"), pd.Timestamp("2024-01-01").as_unit("ms")),
    *(pd.Timestamp("2024-01-01", tz="UTC"), pd.Timestamp("2024-01-01 00:00:00.000000001")),
    *(NOON.tz_convert("America/New_York"), NOON.tz_convert(zoneinfo.ZoneInfo("America/New_York"))),
    *(NOON.tz_convert(datetime.timezone(datetime.timedelta(hours=2))), pd.Timedelta("1ns"), pd.Timedelta("1D")),
]


def test_each_has_a_form_of_its_own_and_is_had_again_from_it() -> None:
    forms = [canonical(scalar) for scalar in SCALARS]
    assert [(one, other) for one, other in combinations(range(len(forms)), 2) if forms[one] == forms[other]] == []
    for scalar, form in zip(SCALARS, forms):
        again = restored(form)
        assert type(again) is type(scalar) and canonical(again) == form
        assert repr(again) == repr(scalar)


def test_equal_scalars_have_equal_forms() -> None:
    assert canonical(np.longlong(1)) == canonical(np.int64(1))
    assert canonical(np.float64("nan")) == canonical(-np.float64("nan"))
    assert canonical(NOON.tz_convert("Europe/Paris").tz_convert("UTC")) == canonical(NOON)
    assert canonical(np.float32(0.1)) != canonical(np.float64(0.1))
    frozen = canonical((np.int64(7), pd.Timestamp(1, unit="s", tz="UTC").as_unit("s")))
    assert frozen == bytes.fromhex("92c70d13ab6e756d70792e696e74363407c71e13") + (
        b"\xb0pandas.Timestamp\x01\xa1s\xa8datetime\x00"
    )


@pytest.mark.parametrize("value", [np.longdouble(1), np.zeros(2), np.void(b"ab"), pd.Period("2024"), pd.Series([1])])
def test_what_has_no_form_is_refused_by_name(value: Any) -> None:
    with pytest.raises(NoCanonicalForm, match=type(value).__name__):
        canonical(value)


@pytest.mark.parametrize("engine", ["local", "reference", "zeromq"])
def test_scalars_are_payloads_and_keys_on_every_engine(engine: Any) -> None:
    graph = drift.Graph("scalars")
    graph.source("rows").count(key=lambda row: row[0]).sink("out")
    rows = [(np.int64(n % 2), pd.Timestamp(n, unit="s")) for n in range(6)]
    run = drift.run(graph, {"rows": rows}, engine=engine)
    assert [item.payload for item in run] == [(np.int64(n % 2), n // 2 + 1) for n in range(6)]
    assert run.digest == drift.run(graph, {"rows": rows}, engine="reference").finish().digest
