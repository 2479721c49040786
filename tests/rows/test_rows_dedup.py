"""`dedup` of rows in columns gives what it gives of dicts, and its rows go on as columns."""

from __future__ import annotations

from typing import Any

import polars as pl
from columns import meta_at
from hypothesis import given, settings
from hypothesis import strategies as st

import drift
from drift.columns.rows import Frame
from drift.flow.choosing import FirstOfKey
from drift.flow.fields import key_of
from drift.machines.keyed import KeyedStage
from drift.machines.plan import Plan
from drift_graph.canonical import canonical_each
from drift_graph.item import Columns
from drift_graph.metas import Metas

SCHEMA = {"zone": str, "day": int, "fare": float}
Rows = list[dict[str, Any]]
KEYS: list[tuple[str, ...]] = [("zone",), ("day",), ("zone", "day"), ("fare",)]

rows_of = st.lists(
    st.fixed_dictionaries(
        {
            "zone": st.none() | st.sampled_from(["a", "b", "a text longer than a view"]),
            "day": st.integers(0, 3),
            "fare": st.sampled_from([0.0, 1.0, 2.5]),
        }
    ),
    max_size=30,
)


def graph_of(key: tuple[str, ...], by: str | None = None) -> drift.Graph:
    graph = drift.Graph("firsts")
    time = None if by is None else drift.EventTime(by, lateness=9)
    firsts = graph.source("rows", schema=SCHEMA, time=time).key_by(*key).dedup(name="firsts")
    firsts.sink("out")
    firsts.select("zone", twice="fare * 2").sink("twice")
    return graph


def table(rows: Rows) -> Any:
    return drift.sources.table(pl.DataFrame(rows, schema=SCHEMA), payload="rows")


def first_of_each(rows: Rows, key: tuple[str, ...]) -> Rows:
    seen: dict[Any, dict[str, Any]] = {}
    for row in rows:
        seen.setdefault(tuple(row[name] for name in key), row)
    return list(seen.values())


@given(rows_of, st.sampled_from(KEYS), st.integers(1, 20), st.sampled_from([None, "day"]))
def test_rows_and_dicts_have_one_digest_on_each_engine(
    rows: Rows, key: tuple[str, ...], batch_items: int, by: str | None
) -> None:
    graph = graph_of(key, by)
    plain = drift.run(graph, {"rows": rows}, engine="reference")
    firsts = [item.payload for item in plain if item.sink == "out"]
    if by is None:
        assert firsts == first_of_each(rows, key)
    for engine in ("local", "reference"):
        for source in (rows, table(rows)):
            run = drift.run(graph, {"rows": source}, engine=engine, batch_items=batch_items).finish()
            assert run.digest == plain.digest, (engine, type(source))


@given(rows_of, st.sampled_from(KEYS), st.data())
@settings(max_examples=50)
def test_batches_of_columns_and_of_dicts_share_what_has_passed(
    rows: Rows, key: tuple[str, ...], data: st.DataObject
) -> None:
    """Law 9; the batches come where nothing can come below them, or where it can."""
    (stage,) = Plan(graph_of(key).build()).stages().values()
    assert isinstance(stage, KeyedStage)
    sent: Rows = []
    start = 0
    while start < len(rows):
        end = data.draw(st.integers(start + 1, len(rows)))
        some: Any = rows[start:end]
        if data.draw(st.booleans()):
            some = Frame(pl.DataFrame(some, schema=SCHEMA))
        if data.draw(st.booleans()):
            stage.complete_below = meta_at(end)
        out = stage.process(Columns(Metas([meta_at(at) for at in range(start, end)]), some, None), {})
        assert out.diffs is None and len(out.metas) == len(out.payloads) == end - start
        sent += [row for each in out.payloads for row in each]
        start = end
    assert canonical_each(sent) == canonical_each(first_of_each(rows, key))


def test_first_rows_stay_columns_and_other_keys_are_left_to_dicts() -> None:
    frame = Frame(pl.DataFrame({"zone": ["a", "b", "a", "c"], "fare": [1.0, 2.0, 3.0, 4.0]}))
    states: dict[Any, Any] = {"b": True}

    def on_rows(*key: str) -> Any:
        known = lambda keys: [states.get(each, False) for each in keys]  # noqa: E731
        return FirstOfKey().on_rows(key_of(*key), frame, known, states.update)  # type: ignore[arg-type]

    selected, firsts = on_rows("zone").members
    assert selected == bytes([1, 0, 0, 1]) and isinstance(firsts, Frame)
    assert list(firsts) == [{"zone": "a", "fare": 1.0}, {"zone": "c", "fare": 4.0}]
    assert states == {"a": True, "b": True, "c": True}
    assert on_rows("fare") is None and on_rows("missing") is None and len(states) == 3
    assert FirstOfKey().on_rows(len, frame, lambda keys: [], states.update) is None  # type: ignore[arg-type]
