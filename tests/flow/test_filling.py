"""Windows without items, where `fill=` asks for them: each key has all windows from its first to its last."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import drift

HOUR = 3_600_000
KINDS = {
    "tumbling": (drift.windows.tumbling(5, offset=2), 1),
    "sliding": (drift.windows.sliding(9, every=4), 1),
    "calendar": (drift.windows.calendar("day", zone="Europe/Berlin"), 7 * HOUR),
}
ITEMS = st.lists(st.tuples(st.integers(-20, 120), st.sampled_from("ab")), max_size=12).map(sorted)


def graph_of(windows: Any, unit: int, **more: Any) -> drift.Graph:
    graph = drift.Graph("filled")
    source = graph.source("items", time=drift.EventTime(time=lambda item: item[0] * unit))
    source.key_by(lambda item: item[1]).window(windows, **more).count(name="counts").sink("out")
    return graph


def windows_of(graph: drift.Graph, items: list[Any], engine: Any = "local") -> list[Any]:
    return [item.payload for item in drift.run(graph, {"items": items}, engine=engine)]


@pytest.mark.parametrize("kind", KINDS)
@given(items=ITEMS)
def test_a_key_has_all_windows_from_its_first_to_its_last(kind: str, items: list[Any]) -> None:
    windows, unit = KINDS[kind]
    plain = windows_of(graph_of(windows, unit), items)
    filled = windows_of(graph_of(windows, unit, fill=0), items)
    assert [each for each in filled if each.value] == plain
    assert filled == windows_of(graph_of(windows, unit, fill=0), items, "reference")
    for key in "ab":
        found = [(each.start, each.end) for each in filled if each.key == key]
        spans = [(each.start, each.end) for each in plain if each.key == key]
        assert found[:1] == spans[:1] and found[-1:] == spans[-1:]
        expected = every_window(kind, spans[0][0], spans[-1][0]) if spans else []
        assert [start for start, _ in found] == expected


def every_window(kind: str, first: int, last: int) -> list[int]:
    """Starts of windows, by a single item in each."""
    windows, unit = KINDS[kind]
    seen = windows_of(graph_of(windows, unit), [(at, "a") for at in range(-60, 160)])
    return [each.start for each in seen if first <= each.start <= last]


def test_early_results_fill_nothing() -> None:
    graph = graph_of(drift.windows.tumbling(10), 1, early=drift.windows.every(items=1), fill=0)
    found = windows_of(graph, [(1, "a"), (25, "a")])
    assert [(each.start, each.value, each.early) for each in found] == [
        (0, 1, True),
        (0, 1, False),
        (20, 1, True),
        (10, 0, False),
        (20, 1, False),
    ]


def test_what_cannot_be_filled_is_refused() -> None:
    source = drift.Graph("refused").source("items")
    with pytest.raises(drift.GraphError, match="fill= takes tumbling, sliding and calendar windows"):
        source.window(drift.windows.session(5), fill=0)
    with pytest.raises(drift.GraphError, match="fill= takes a dict of the values"):
        source.window(drift.windows.tumbling(5), fill=0).rows(n=drift.agg.count())


def test_a_time_from_far_away_is_an_error_and_not_a_flood() -> None:
    with pytest.raises(drift.StepError, match=r"more than 1,000,000 windows are without items before the one at 1\d+"):
        windows_of(graph_of(drift.windows.tumbling(5), 1, fill=0), [(0, "a"), (1_700_000_000_000, "a")])
