"""Items from the future, and processes with timers: one meaning on every engine, fused or not, in any order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import flows
import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import HANG_S

import drift
from drift.machines.keyed import KeyedStage
from drift.machines.plan import Plan
from drift.operators import KeyedItems, TakesEach
from drift_graph import failures, later
from drift_graph.item import Columns
from drift_graph.meta import END_OF_TIME, global_time, later_meta, time_of, varint
from drift_graph.metas import Metas

BY_TIME = drift.EventTime(lambda trip: trip[0], lateness=20)


def by_name(trip: Any) -> Any:
    return trip[1]


def seen(state: int, trip: Any, time: int) -> tuple[int, list[Any]]:
    """Counts; the first item of a key, and every fifth time, sets timers, some of which are not later."""
    outputs: list[Any] = [("item", trip, state + 1, time)]
    if state == 0:
        outputs += [drift.at(time + 7, "soon"), drift.at(drift.END, "end")]
    if trip[0] % 5 == 0:
        outputs += [drift.at(time, "now"), drift.at(time - 3, "before")]
    return state + 1, outputs


def due(state: int, note: str, time: int) -> tuple[int, list[Any]]:
    if note == "soon" and state < 6:
        return state + 10, [(note, state, time), drift.at(time + 3, "again")]
    if note == "end":
        return 0, [(note, state)]
    if note in ("now", "before"):
        return state, [(note, state, time)]
    return 0, [(note, state, time)]


def later_trip(trip: Any) -> list[Any]:
    return [trip, drift.at(trip[0] + 4, ("later", trip))]


def with_time(window: Any, time: int) -> Any:
    return len(window), window[-1], time


def trips() -> drift.Graph:
    """A process; and items that maps put at later times, through a grouping."""
    graph = drift.Graph("trips")
    source = graph.source("trips", time=BY_TIME)
    source.process(by_name, 0, seen, due, name="counting").sink("seen")
    windows = source.flat_map(later_trip, later=True).group(len, 3)
    windows.map(with_time, with_time=True).sink("last")
    return graph


def output(graph: drift.Graph, arrived: Any, **settings: Any) -> list[Any]:
    return [(item.meta, item.sink, item.payload) for item in drift.run(graph, {"trips": arrived}, **settings)]


@st.composite
def arrivals(draw: st.DrawFn) -> list[Any]:
    """Trips, none behind another by more than the lateness."""
    rows = st.tuples(st.integers(0, 40), st.sampled_from("abc"), st.integers(0, 15))
    drawn = draw(st.lists(rows, max_size=40))
    ordered = sorted(range(len(drawn)), key=lambda index: drawn[index][0] + drawn[index][2])
    return [(*drawn[index][:2], index) for index in ordered]


@given(arrivals())
def test_a_process_gives_what_a_loop_over_sorted_items_and_timers_gives(arrived: list[Any]) -> None:
    """The oracle knows times, keys and functions, and nothing of metas."""
    graph = drift.Graph("counted")
    graph.source("trips", time=BY_TIME).process(by_name, 0, counted, on_timer).sink("out")
    out = drift.run(graph, {"trips": arrived})
    assert sorted(item.payload for item in out) == sorted(_looped(arrived))


def counted(state: int, trip: Any, time: int) -> tuple[int, list[Any]]:
    return state + 1, [drift.at(time + 5, None)] if state == 0 else []


def on_timer(state: int, note: None, time: int) -> tuple[int, list[Any]]:
    return 0, [(time, state)]


def _looped(arrived: list[Any]) -> list[Any]:
    results = []
    for key in "abc":
        times = sorted(time for time, name, _ in arrived if name == key)
        while times:
            end = times[0] + 5
            taken = [time for time in times if time <= end]
            results.append((end, len(taken)))
            times = times[len(taken) :]
    return results


def test_a_timer_comes_after_every_item_of_its_time_and_before_the_next() -> None:
    graph = drift.Graph("order")
    graph.source("trips", time=BY_TIME).process(by_name, 0, counted, on_timer).merge().sink("out")
    arrived = [(1, "a"), (6, "a"), (6, "a", "too"), (7, "a")]
    assert [(item.time, item.payload) for item in drift.run(graph, {"trips": arrived})] == [(6, (6, 3)), (12, (12, 1))]


def test_steps_with_timers_one_after_the_other_come_one_after_the_other_at_one_time() -> None:
    """Both close at 9; the second has seen what all keys of the first gave."""
    graph = drift.Graph("chained")
    first = graph.source("trips", time=BY_TIME).process(by_name, 0, partial(counted_to, 9), on_timer)
    first.process(all_of_them, 0, partial(counted_to, 9), on_timer).sink("out")
    arrived = [(1, "a"), (9, "b"), (2, "c")]
    assert [item.payload for item in drift.run(graph, {"trips": arrived})] == [(9, 3)]
    assert [item.payload for item in drift.run(graph, {"trips": arrived}, engine="reference")] == [(9, 3)]


def counted_to(end: int, state: int, trip: Any, time: int) -> tuple[int, list[Any]]:
    return state + 1, [drift.at(end, None)] if state == 0 else []


def all_of_them(payload: Any) -> None:
    return None


def test_what_takes_an_item_back_takes_back_what_it_put_at_a_later_time() -> None:
    graph = drift.Graph("corrected")
    is_windowed = threading.Event()

    def seen_window(window: Any) -> list[Any]:
        is_windowed.set()
        return later_window(window)

    def one_by_one() -> Iterator[Any]:
        for trip in arrived:
            is_windowed.clear()
            yield trip
            assert is_windowed.wait(HANG_S), "where there is nothing to read, what came is processed ahead"

    windows = graph.source("trips", time=BY_TIME).group(by_name, 2)
    windows.flat_map(seen_window, later=True).sink("out")
    arrived = [(1, "a"), (5, "a"), (3, "a")]
    run = drift.run(graph, {"trips": drift.sources.live(one_by_one())})
    assert [item.payload for item in run] == [((1, "a"),), ((1, "a"), (3, "a")), ((3, "a"), (5, "a"))]
    assert run.report.tombstones == 1 and [item.time for item in drift.run(graph, {"trips": arrived})] == [11, 13, 15]


def later_window(window: Any) -> list[Any]:
    return [drift.at(window[-1][0] + 10, window)]


@pytest.mark.parametrize("engine", ["reference", "local"])
def test_a_map_that_does_not_say_so_may_not_put_items_at_later_times(engine: str) -> None:
    graph = drift.Graph("undeclared")
    graph.source("trips").map(put_later).sink("out")
    with pytest.raises(drift.StepError, match="declare it with later=True"):
        drift.run(graph, {"trips": [1]}, engine=engine).finish()


def put_later(number: int) -> Any:
    return drift.at(number + 1, number)


@pytest.mark.parametrize("settings", [{"engine": "reference"}, {}, {"fused": False}])
def test_timers_without_end_are_named(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later, "HOPS_MAX", 50)
    graph = drift.Graph("endless")
    graph.source("trips").process(all_of_them, 0, ticking, ticking, name="ticks").sink("out")
    outputs: list[Any] = []
    with pytest.raises(drift.StepError, match=r"'ticks'[^~]*all input has ended"):
        outputs.extend(drift.run(graph, {"trips": [1, 2]}, **settings))
    assert [item.payload for item in outputs][:3] == [1, 2, "tick"]


@pytest.mark.parametrize("others", [0, 2])
def test_timers_without_end_that_fire_at_once_are_named_alike(others: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The meta of each is that of the one that set it, and more; and the last of them is the first to come out."""
    monkeypatch.setattr(failures, "META_BYTES_MAX", 200)
    graph = drift.Graph("endless")
    graph.source("trips").process(all_of_them, 0, at_once(others), at_once(0), name="ticks").sink("out")
    outputs: dict[str, list[Any]] = {}
    for name, settings in {"reference": {"engine": "reference"}, "local": {}, "unfused": {"fused": False}}.items():
        run, outputs[name] = drift.run(graph, {"trips": [1]}, **settings), []
        with pytest.raises(drift.StepError, match="come back to 'ticks' until its meta passed 200 bytes"):
            outputs[name].extend(run)
    assert outputs["local"] == outputs["unfused"] == outputs["reference"] != []


def at_once(others: int) -> Any:
    """Set a timer in the past, and others behind it."""

    def on_any(state: int, payload: Any, time: int) -> tuple[int, list[Any]]:
        return state, [payload, *(drift.at(time - at, "tick") for at in range(1 + others))]

    return on_any


def ticking(state: int, payload: Any, time: int) -> tuple[int, list[Any]]:
    return state, [payload, drift.at(time + 10, "tick")]


@pytest.mark.parametrize("settings", [{"engine": "reference"}, {}, {"fused": False}])
def test_a_function_of_a_process_that_fails_ends_the_run_where_it_stands(settings: Any) -> None:
    graph = drift.Graph("failing")
    graph.source("trips").process(all_of_them, 0, failing_on(4), failing_on("x")).sink("out")
    outputs: list[Any] = []
    with pytest.raises(drift.StepError, match="ValueError: no 4"):
        outputs.extend(drift.run(graph, {"trips": range(9)}, **settings))
    assert [item.payload for item in outputs] == [0, 1, 2, 3]


class failing_on:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, state: int, payload: Any, time: int) -> Any:
        if payload == self.value:
            raise ValueError(f"no {payload}")
        return state, (payload,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, failing_on) and self.value == other.value

    def __hash__(self) -> int:
        return 0


@pytest.mark.parametrize("result", [5, [1, [2]], (1,), (1, "text"), (1, 5)])
def test_what_is_no_state_with_outputs_is_refused(result: Any) -> None:
    graph = drift.Graph("wrong")
    graph.source("trips").process(all_of_them, 0, _giving(result), due).sink("out")
    with pytest.raises(drift.StepError, match="must return"):
        drift.run(graph, {"trips": [1]}).finish()


def _giving(result: Any) -> Callable[..., Any]:
    return lambda state, payload, time: result


def test_a_key_that_is_as_if_it_had_never_been_is_forgotten() -> None:
    graph = drift.Graph("forgotten")
    graph.source("trips").process(lambda number: number, 0, counted, on_timer).sink("out")
    dataflow = graph.build()
    (stage,) = Plan(dataflow).stages().values()
    assert isinstance(stage, KeyedStage)
    for start in range(0, 30_000, 1000):
        numbers = list(range(start, start + 1000))
        stage.process(Columns(Metas.numbered(start, 1000, b"\0\0\0"), numbers, None), {})
        stage.heartbeat = Metas.numbered(start + 1000, 1, b"")[0]
        stage.fire({})
        stage.settle(stage.heartbeat)
        assert len(stage._states) < 10_000
    stage.heartbeat = END_OF_TIME
    assert len(stage.fire({}).metas) == 5 and stage.least_timer is None
    stage.settle(END_OF_TIME)
    assert not stage.held and not stage._states


def test_a_process_is_shown_as_what_it_is_made_of() -> None:
    text = str(trips())
    assert "group window 2 by by_name" in text and "into the future" in text
    assert trips() == trips()


def test_a_lineage_goes_back_over_timers(tmp_path: Any) -> None:
    graph = drift.Graph("explained")
    graph.source("trips", time=BY_TIME).process(by_name, 0, counted, on_timer, name="counted").sink("out")
    run = drift.run(graph, {"trips": [(1, "a"), (3, "a"), (2, "b")]}, record=tmp_path / "record")
    run.finish()
    lineage = drift.explain(tmp_path / "record", position=0, graph=graph)
    assert [(made.kind, made.payload) for made in lineage.items] == [
        ("input", (1, "a")),
        ("state", 1),
        ("input", (3, "a")),
        ("state", 2),
        ("timer", None),
        ("item", (6, 2)),
        ("output", (6, 2)),
    ]


def test_impure_functions_of_a_process_are_found() -> None:
    graph = drift.Graph("impure")
    calls: list[int] = []

    def numbering(state: int, payload: Any, time: int) -> Any:
        calls.append(payload)
        return state, [len(calls)]

    graph.source("trips").process(all_of_them, 0, numbering, due).sink("out")
    with pytest.raises(drift.ImpureStep, match="on_item of step"):
        drift.run(graph, {"trips": range(9)}, check_purity=True).finish()


# A stage by itself: items and tombstones in any order, timers that come before all items below them have.


#: How a child is put inside a loop or out of it: (phase, inward).
_PHASES = st.sampled_from([(0, 0), (1, 0), (2, 0), (0xFE, 0), (0xFF, 0), (3, 1), (5, 1), (2, -1), (4, -1)])
_NUMBERS = st.integers(0, 3) | st.sampled_from([0xF6, 0xF7, 0xF8, 300])


@given(st.data())
def test_metas_of_many_later_children_are_those_of_each(data: st.DataObject) -> None:
    """Parents of few moments, in rounds and in loops within loops, at several places of each."""
    parents = {global_time(data.draw(st.integers(0, 2)), 0, data.draw(_NUMBERS), data.draw(_NUMBERS)): 0}
    for _ in range(data.draw(st.sampled_from([0, 0xF6, 0xF7, 0xF8]))):  # hops
        parents = {later_meta(next(iter(parents)), varint(7), 9, 2, 1) or b"": 0}
    for _ in range(data.draw(st.integers(3, 12))):
        parent = data.draw(st.sampled_from(list(parents)))
        time, rounds, (phase, inward) = data.draw(st.integers(0, 2)), data.draw(_NUMBERS), data.draw(_PHASES)
        depth = (parents[parent] if time == time_of(parent) else 0) + inward
        if depth >= 0 and (child := later_meta(parent, varint(7), time, phase, rounds, inward)) is not None:
            parents |= {child: depth, child + varint(8): depth, child + varint(9): depth}
    time, rounds, (phase, inward) = data.draw(st.none() | st.integers(0, 2)), data.draw(_NUMBERS), data.draw(_PHASES)
    known = [each for each, depth in parents.items() if depth + inward >= 0 and (time is None or inward >= 0)]
    chosen = data.draw(st.lists(st.sampled_from(known), min_size=5, max_size=12)) if known else []
    each = [
        later_meta(parent, varint(5), time_of(parent) if time is None else time, phase, rounds, inward)
        or parent + varint(5)
        for parent in chosen
    ]
    assert list(Metas(chosen).later(varint(5), time, phase, rounds, inward)) == each


class Opened(TakesEach):
    """Numbers the items of a key since its timer came; only the first of them sets one."""

    def __call__(self, state: int, payload: flows.Timed, time: int) -> tuple[int, list[Any]]:
        return state + 1, [state + 1] if state else [state + 1, drift.at(time + payload[1] % 9, "closed")]

    def takes(self, state: int) -> bool:
        return state > 0

    def each(self, states: dict[Any, int], rows: KeyedItems, give: Any) -> None:
        for key in rows.keys:
            states[key] += 1
            give([states[key]])

    def on_time(self, state: int, note: str, time: int) -> tuple[int, list[Any]]:
        return 0, [(note, state)]


def test_many_items_in_one_call_are_not_taken_past_a_timer() -> None:
    items = flows.disordered([(number // 3, number, number % 4) for number in range(400)], 1)
    opened = Opened()
    graph = flows.flow(
        lambda stream: stream.process(lambda item: item[2], 0, opened, opened.on_time), "in", time=flows.event_time()
    )
    outputs = flows.outputs(graph, {"in": items})
    assert sum(type(each) is tuple for each in outputs) > 50
