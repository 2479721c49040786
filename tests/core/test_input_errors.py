"""An error of a source has a place in the order: what is below it is released, wherever the sources had been read."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import drift
from drift.engines.settings import Settings
from drift.engines.simulated.simulation import Simulation
from drift.engines.source_feed import SourceFeed
from drift.sources.arguments import as_source
from drift.testing import Schedule
from drift.testing.schedule import Player
from drift_graph.errors import DriftError, InputError
from drift_graph.meta import BEGINNING


def numbers_time(payload: Any) -> int:
    if payload == "raises":
        raise ValueError("this item has no time")
    return payload if type(payload) is int else payload[0]  # type: ignore[no-any-return]


def tie_of(payload: Any) -> int:
    return payload[1] if type(payload) is tuple else 0


def graph_of(*policies: drift.EventTime | drift.ArrivalTime) -> drift.Graph:
    graph = drift.Graph("merged")
    first, *rest = [graph.source(f"s{rank}", time=policy) for rank, policy in enumerate(policies)]
    for each in rest:
        first = first.merge(each)
    first.sink("out")
    return graph


def outcome(graph: drift.Graph, sources: dict[str, Any], **settings: Any) -> tuple[Any, ...]:
    run = drift.run(graph, {name: make() if callable(make) else make for name, make in sources.items()}, **settings)
    items, error = [], None
    try:
        items.extend((item.meta, item.payload) for item in run)
    except DriftError as raised:
        error = type(raised), str(raised)
    return items, run.digest, error, run.late, run.report.late_items


def simulated(graph: drift.Graph, sources: dict[str, Any], noise: int) -> tuple[Any, ...]:
    run = Simulation(graph.build(), sources, Player(Schedule(noise=noise)), batch_items=4).run()
    error = (type(run.error), str(run.error)) if run.error is not None else None
    return [(meta, payload) for _, meta, payload, _ in run.items()], run.digest, error, run.late, len(run.late)


A = drift.EventTime(numbers_time, lateness=1)
DIVERTING = drift.EventTime(numbers_time, lateness=1, late="divert")


@pytest.mark.parametrize(
    ("bad", "kind"), [(3, drift.LateItem), ("raises", drift.StepError), ((10.5,), InputError)], ids=str
)
def test_what_is_below_the_heartbeat_before_a_bad_item_is_released_and_nothing_else(bad: Any, kind: type) -> None:
    graph = graph_of(A, A)
    sources = {"s0": [0, 5, 10, bad, 11], "s1": range(100)}
    expected = outcome(graph, sources, engine="reference")
    assert sorted(payload for _, payload in expected[0]) == sorted([0, 5, *range(9)])
    assert expected[2] is not None and expected[2][0] is kind
    for batch_items in (1, 2, 3, 7, 4096):
        assert outcome(graph, sources, batch_items=batch_items) == expected
    assert outcome(graph, sources, engine="zeromq", workers=2, batch_items=2) == expected


@st.composite
def several(draw: st.DrawFn) -> tuple[drift.Graph, dict[str, list[Any]]]:
    policies: list[drift.EventTime | drift.ArrivalTime] = []
    sources: dict[str, list[Any]] = {}
    item = st.one_of(st.integers(0, 12), st.tuples(st.integers(0, 12), st.integers(0, 1)))
    for rank in range(draw(st.integers(2, 3))):
        lateness, late = draw(st.integers(0, 3)), draw(st.sampled_from(["error", "divert"]))
        tie = draw(st.sampled_from([None, tie_of]))
        event = drift.EventTime(numbers_time, lateness, tie, late=late)
        policies.append(draw(st.sampled_from([event, event, event, drift.ArrivalTime()])))
        items = draw(st.lists(item, max_size=12))
        if draw(st.booleans()):
            items.insert(draw(st.integers(0, len(items))), draw(st.sampled_from(["raises", (1.5,), (None,)])))
        sources[f"s{rank}"] = items
    return graph_of(*policies), sources


@given(several(), st.integers(1, 2**32))
def test_errors_and_late_items_of_several_sources_are_the_same_for_any_batches_and_schedule(
    case: tuple[drift.Graph, dict[str, list[Any]]], noise: int
) -> None:
    graph, sources = case
    expected = outcome(graph, sources, engine="reference", batch_items=1)
    for batch_items in (1, 2, 5):
        assert outcome(graph, sources, batch_items=batch_items) == expected
    assert outcome(graph, sources, engine="reference") == expected
    for more in range(3):
        assert simulated(graph, sources, noise + more) == expected


def failing(count: int) -> Iterator[int]:
    yield from range(count)
    raise ConnectionError("cut")


def test_a_source_that_breaks_ends_the_run_at_its_heartbeat(tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(f"{number}\n" for number in range(20)) + "{\n40\n")
    graph = graph_of(A, A)
    sources: dict[str, Any] = {"s0": lambda: drift.sources.jsonl(lines), "s1": range(100)}
    expected = outcome(graph, sources, engine="reference")
    assert len(expected[0]) == 36 and expected[2] is not None and "line 21" in expected[2][1]
    assert outcome(graph, sources, batch_items=3) == expected
    broken: dict[str, Any] = {"s0": lambda: failing(20), "s1": range(100)}
    expected = outcome(graph, broken, engine="reference")
    assert len(expected[0]) == 36 and expected[2] is not None and "ConnectionError" in expected[2][1]
    assert outcome(graph, broken, batch_items=3) == expected


def test_of_two_errors_the_one_of_least_heartbeat_is_the_runs_and_of_equal_ones_that_of_the_first_source() -> None:
    graph = graph_of(A, A)
    for sources, ends in (
        ({"s0": [9, "raises"], "s1": [3, "raises"]}, "s1"),
        ({"s0": [5, "raises"], "s1": [5, "raises"]}, "s0"),
        ({"s0": ["raises"], "s1": ["raises"]}, "s0"),
    ):
        for batch_items in (1, 2, 10):
            *_, error, _, _ = outcome(graph, sources, batch_items=batch_items)
            assert error is not None and f"time function of source '{ends}'" in error[1]


def test_late_items_come_in_one_order_and_as_far_as_the_error() -> None:
    graph = graph_of(DIVERTING, DIVERTING, A)
    sources: dict[str, Any] = {"s0": [0, 9, 1, 20, 2], "s1": [4, 1, 9, 3, 30, 4], "s2": [0, 12, "raises"]}
    expected = [("s1", 1, 3), ("s0", 1, 8), ("s1", 3, 8)]
    for batch_items in (1, 2, 3, 4096):
        *_, late, count = outcome(graph, sources, batch_items=batch_items)
        assert [(each.source, each.payload, each.heartbeat) for each in late] == expected
        assert count == 3


def with_late(fails_at: int | None) -> drift.Graph:
    def halved(number: int) -> int:
        if number == fails_at:
            raise ZeroDivisionError("of the function")
        return number // 2

    graph = drift.Graph("late")
    graph.source("s0", time=DIVERTING).map(halved).sink("out")
    return graph


LATE = {"s0": [0, 9, 1, 20, 2, 21, 3, 31, 30, 4, 40, 5, 50, 6, 60]}


@pytest.mark.parametrize("engine", ["reference", "local", "zeromq", pytest.param("spark", marks=pytest.mark.long)])
def test_late_items_are_those_before_the_item_that_a_function_fails_for(engine: str) -> None:
    for batch_items in (1, 3, 4096) if engine in ("reference", "local") else (4096,):
        settings = {} if engine == "spark" else {"batch_items": batch_items}
        *_, error, late, count = outcome(with_late(30), LATE, engine=engine, **settings)
        assert error is not None and "of the function" in error[1]
        assert ([each.payload for each in late], count) == ([1, 2, 3, 4], 4)
    for noise in range(3):
        *_, late, count = simulated(with_late(30), LATE, noise)
        assert [each.payload for each in late] == [1, 2, 3, 4]


@pytest.mark.parametrize("engine", ["local", "zeromq"])
def test_of_runs_with_one_state_each_late_item_is_of_one(engine: str, tmp_path: Path) -> None:
    every = []
    for fails_at in (30, 50, None):
        state = drift.Checkpoints(tmp_path / "state", every_items=4, changed_code="accept")
        *_, error, late, in_all = outcome(with_late(fails_at), LATE, engine=engine, state=state, batch_items=2)
        assert (error is None) == (fails_at is None)
        every += [each.payload for each in late]
    assert every == [1, 2, 3, 4, 5, 6] and in_all == 6


class _Queue:
    """A live source that forgets what is acknowledged."""

    live = acknowledges = True

    def __init__(self, items: list[Any]) -> None:
        self.items, self.given, self.acknowledged = items, 0, 0

    def open(self) -> _Queue:
        return self

    def read(self, items_max: int) -> list[Any] | None:
        batch = self.items[self.given : self.given + items_max]
        self.given += len(batch)
        return batch or None

    def position(self) -> int:
        return self.given

    def seek(self, position: int) -> None:
        self.given = position

    def released(self, position: int) -> None:
        self.acknowledged = max(self.acknowledged, position)

    def filenos(self) -> list[int]:
        return []

    def close(self) -> None:
        pass


@pytest.mark.parametrize("engine", ["reference", "local"])
def test_an_item_that_a_function_fails_for_is_not_acknowledged_nor_what_is_behind_it(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drift.engines.source_feed._ACKNOWLEDGE_S", 0)
    queue = _Queue(list(range(10)))
    graph = drift.Graph("acknowledged")
    graph.source("s0", time=drift.EventTime(int)).map(lambda number: 1 // (number - 4)).sink("out")
    with pytest.raises(drift.StepError, match="ZeroDivisionError"):
        drift.run(graph, {"s0": queue}, engine=engine, batch_items=1).finish()
    assert queue.given >= 5 and 0 < queue.acknowledged <= 4


def test_a_replay_ends_where_the_recorded_run_did(tmp_path: Path) -> None:
    graph = graph_of(DIVERTING, A)
    sources: dict[str, Any] = {"s0": [0, 9, 1, 20, 2, *range(30, 60)], "s1": [0, 12, "raises"]}
    expected = outcome(graph, sources, record=tmp_path / "record", batch_items=1)
    for settings in ({"batch_items": 2}, {"engine": "reference"}):
        run = drift.replay(tmp_path / "record", graph, **settings)
        items = []
        with pytest.raises(drift.StepError, match="this item has no time"):
            items.extend((item.meta, item.payload) for item in run)
        assert (items, run.digest, run.late) == (expected[0], expected[1], expected[3])


class _Silent:
    """A live source that has nothing yet."""

    live = True

    def open(self) -> _Silent:
        return self

    def read(self, items_max: int) -> list[Any] | None:
        return []

    def filenos(self) -> list[int]:
        return []

    def close(self) -> None:
        pass


def test_late_items_that_wait_to_be_reported_count_towards_credit() -> None:
    taken = []

    def many() -> Iterator[int]:
        yield 5
        for number in range(1000):
            taken.append(number)
            yield 1

    late: list[Any] = []
    sources = {"s0": as_source("s0", many()), "s1": _Silent()}
    settings = Settings(batch_items=10, in_flight_max=100)
    feed = SourceFeed(graph_of(DIVERTING, A).build(), sources, {}, settings, on_late=late.append)
    for _ in range(500):
        feed.poll(BEGINNING)
    assert len(taken) == 99 and late == []


@pytest.mark.parametrize("batch_items", [1, 9])
@pytest.mark.parametrize("engine", ["reference", "local"])
def test_times_in_front_of_a_payload_for_which_the_time_function_raises_are_judged(
    engine: Any, batch_items: int
) -> None:
    """Whatever batch they come in: moments are times, and the first one that is none is what ends the input."""
    graph = drift.Graph("timed")
    graph.source("rows", time=drift.EventTime(lambda row: row["at"])).sink("out")
    moments = [{"at": datetime.datetime(2024, 1, day, tzinfo=datetime.UTC)} for day in (1, 2)]
    run = drift.run(graph, {"rows": [*moments, {}]}, engine=engine, batch_items=batch_items)
    taken: list[Any] = []
    with pytest.raises(drift.StepError, match="raised KeyError"):
        taken.extend(item.payload for item in run)
    assert taken == moments[:1], "what is at the heartbeat waits for others of its time"
    run = drift.run(graph, {"rows": [{"at": 2**70}, {}]}, engine=engine, batch_items=batch_items)
    with pytest.raises(drift.InputError, match=f"gave {2**70} for payload"):
        run.finish()
