"""What a grouping behind another takes can be told from others, or is refused at the same item on every engine."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import AWKWARD, Opaque, noisy

import drift
from drift.engines.simulated.simulation import Simulation
from drift_graph.canonical import NoCanonicalForm, canonical
from drift_graph.identifiable import Identifiable


def time_of(row: tuple[int, int]) -> int:
    return row[0]


def one_key(payload: Any) -> int:
    return 0


def boxed(window: tuple[Any, ...]) -> Any:
    last = window[-1][1]
    return Opaque(last) if last == 3 else [Opaque(last)] if last == 4 else (last, len(window))


def size(window: tuple[Any, ...]) -> int:
    return len(window)


def summed(state: int, payload: Any) -> tuple[int, int]:
    return state + 1, state


def boxes(kind: str) -> drift.Graph:
    graph = drift.Graph("boxes")
    windows = graph.source("in", time=drift.EventTime(time_of, lateness=8)).group(one_key, 2)
    made = windows.map(boxed, name="boxed")
    if kind == "group":
        made.group(one_key, 2).map(size).sink("out")
    elif kind == "scan":
        made.scan(one_key, 0, summed).sink("out")
    else:
        made.filter(bool).scan(one_key, 0, summed).group(one_key, 2).map(size).sink("out")
    return graph


def outcome(graph: drift.Graph, rows: list[Any], **more: Any) -> tuple[Any, ...]:
    run = drift.run(graph, {"in": rows}, **more)
    items, error = [], None
    try:
        items.extend((item.meta, item.payload) for item in run)
    except drift.PayloadError as raised:
        error = raised.step, raised.meta, str(raised).splitlines()[0]
    return items, run.digest, error


ROWS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 4)), max_size=10)


@settings(max_examples=40)
@given(st.sampled_from(["group", "scan", "filter"]), ROWS, st.data())
def test_a_payload_without_form_between_steps_is_refused_whatever_came_in_which_order(
    kind: str, rows: list[Any], data: st.DataObject
) -> None:
    graph = boxes(kind)
    expected = outcome(graph, rows, engine="reference")
    assert outcome(graph, sorted(rows, key=time_of)) == outcome(graph, sorted(rows, key=time_of), engine="reference")
    for setting in ({"batch_items": 1}, {"batch_items": 4096}, {"batch_items": 3}):
        assert outcome(graph, rows, **setting) == expected
    run = Simulation(graph.build(), {"in": rows}, noisy(data), workers=2).run()
    found = (run.error.step, run.error.meta, str(run.error).splitlines()[0]) if run.error is not None else None  # type: ignore[attr-defined]
    assert ([(meta, payload) for _, meta, payload, _ in run.items()], run.digest, found) == expected


@pytest.mark.parametrize("workers", [1, 2])
def test_over_processes_it_is_refused_at_the_same_item(workers: int) -> None:
    graph = boxes("group")
    rows = [(5, 0), (3, 1), (8, 3), (1, 2), (7, 4)]
    expected = outcome(graph, rows, engine="reference")
    assert expected[2] is not None and expected[2][0] == "boxed"
    assert outcome(graph, rows, engine="zeromq", workers=workers, batch_items=1) == expected


def test_a_state_of_a_scan_may_be_anything() -> None:
    def step(state: Any, payload: Any) -> tuple[Any, int]:
        return Opaque(payload), payload[1]

    graph = drift.Graph("states")
    graph.source("in", time=drift.EventTime(time_of, lateness=8)).scan(one_key, None, step).sink("out")
    rows = [(5, 0), (3, 1), (8, 3), (1, 2)]
    expected = outcome(graph, rows, engine="reference")
    assert expected[2] is None and outcome(graph, rows, batch_items=1) == expected


@given(st.lists(st.sampled_from([*AWKWARD, Opaque(1), [Opaque(1)], {"a": (Opaque(1),)}, datetime.datetime.min])))
def test_a_check_of_many_never_takes_what_has_no_form(values: list[Any]) -> None:
    operator = boxes("group").build().operators[0]

    def has_form(value: Any) -> bool:
        try:
            canonical(value)
        except NoCanonicalForm:
            return False
        return True

    assert Identifiable(operator).are(values) == all(map(has_form, values))
