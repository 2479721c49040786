"""Windows that belated items correct, beside plain Python that takes all items of a window and splits them by time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import flows
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import noisy
from test_state import check_goes_on

import drift
from drift.engines.simulated.simulation import Simulation
from drift.testing.check import Case, arrivals, in_order
from drift.testing.check import check as run_case
from drift.testing.schedule import Player, Schedule
from drift_graph.meta import BEGINNING, pack_time, time_of
from drift_graph.times import SourceMachine

#: A payload: its time, a number that is unique and orders those of one time in the order, and its key.
Row = dict[str, Any]
#: (time in the order, correction, numbers of the items) of each result of a window, by key and start.
Results = dict[tuple[Any, int], list[tuple[int, int, tuple[int, ...]]]]
#: The windows around a time: (start, last moment) of each.
Around = Callable[[int], Iterable[tuple[int, int]]]


@st.composite
def rows(draw: st.DrawFn, unit: int = 1, items_max: int = 24) -> list[Row]:
    """Rows in the order of arrival; some are far behind those before them."""
    found: list[Row] = []
    now = draw(st.integers(-20, 20))
    for number in range(draw(st.integers(0, items_max))):
        now += draw(st.sampled_from([0, 0, 1, 1, 2, 5, 11]))
        behind = draw(st.sampled_from([0, 0, 0, 1, 3, 6, 12, 25]))
        found.append({"at": (now - behind) * unit, "n": number, "k": draw(st.sampled_from("ab"))})
    return found


def placed(given_rows: list[Row], lateness: int, allowed: int) -> tuple[list[tuple[int, Row]], list[Row]]:
    """The time of each row in the order, in that order; and the rows that are late."""
    found: list[tuple[int, Row]] = []
    late: list[Row] = []
    for at, row in enumerate(given_rows):
        least = max((before["at"] for before in given_rows[:at]), default=row["at"]) - lateness
        if row["at"] >= least:
            found.append((row["at"], row))
        elif row["at"] >= least - allowed:
            found.append((least, row))
        else:
            late.append(row)  # in the order of their numbers
    return sorted(found, key=lambda each: (each[0], each[1]["n"])), late


def expected(in_order: list[tuple[int, Row]], around: Around, allowed: int) -> tuple[Results, list[int]]:
    """The results of all windows; and the rows of which a window was gone, by their numbers."""
    inside: dict[tuple[Any, int], list[tuple[int, Row]]] = {}
    lasts: dict[int, int] = {}
    gone: dict[int, None] = {}
    for time, row in in_order:
        for start, last in around(row["at"]):
            lasts[start] = last
            if time > last + allowed:
                gone[row["n"]] = None
            else:
                inside.setdefault((row["k"], start), []).append((time, row))
    results: Results = {}
    for (key, start), items in inside.items():
        numbers = [row["n"] for _, row in items]
        on_time = [row for time, row in items if time <= lasts[start]]
        found = [(lasts[start], tuple(numbers[: len(on_time)]))] if on_time else []
        found += [(items[count][0], tuple(numbers[: count + 1])) for count in range(len(on_time), len(items))]
        results[key, start] = [(time, correction, of) for correction, (time, of) in enumerate(found)]
    return results, list(gone)


def evenly(size: int, every: int, offset: int, closed: str) -> Around:
    def around(time: int) -> Iterable[tuple[int, int]]:
        near = offset + (time - offset) // every * every
        for start in range(near - (size // every + 2) * every, near + 2 * every, every):
            end = start + size
            if start < time < end or (time == start and closed in ("left", "both")):
                yield start, end - (closed in ("left", "none"))
            elif time == end and closed in ("right", "both"):
                yield start, end

    return around


def days(zone: str) -> Around:
    known = ZoneInfo(zone)

    def midnight(day: datetime) -> int:
        return round(day.replace(hour=0, minute=0, second=0, microsecond=0).timestamp() * 1000)

    def around(time: int) -> Iterable[tuple[int, int]]:
        day = datetime.fromtimestamp(time / 1000, known)
        yield midnight(day), midnight(day.replace(hour=12) + timedelta(days=1)) - 1

    return around


def graph_of(windows: Any, lateness: int, of_source: int, allowed: int, **more: Any) -> drift.Graph:
    graph = drift.Graph("corrected")
    policy = drift.EventTime("at", lateness=lateness, tie="n", allowed=of_source)
    source = graph.source("rows", time=policy, late="late", **more)
    windowed = source.key_by("k").window(windows, allowed=allowed, late="gone")
    windowed.rows(of=drift.agg.collect("n"), name="windows").sink("out")
    return graph


def results_of(items: Iterable[drift.Item]) -> tuple[Results, list[int], list[Row]]:
    """What a run gave: results, rows of which a window was gone, and late ones."""
    results: Results = {}
    gone: list[int] = []
    late: list[Row] = []
    for item in items:
        payload: Any = item.payload
        if item.sink == "out":
            results.setdefault((payload["key"], payload["start"]), []).append(
                (item.time, payload["correction"], tuple(payload["of"]))
            )
        elif item.sink == "gone":
            gone.append(payload["payload"]["n"])
        else:
            late.append(payload["payload"])
    return results, gone, sorted(late, key=lambda row: row["n"])


def check(windows: Any, around: Around, given_rows: list[Row], lateness: int, of_source: int, allowed: int) -> None:
    in_order, late = placed(given_rows, lateness, of_source)
    results, gone = expected(in_order, around, allowed)
    schema = {"at": int, "n": int, "k": str}
    digests = set()
    for more in ({}, {"schema": schema}):
        graph = graph_of(windows, lateness, of_source, allowed, **more)
        run = drift.run(graph, {"rows": given_rows}, engine="reference")
        assert results_of(run) == (results, gone, late)
        digests.add(run.digest)
        for engine in flows.ENGINES:
            digests.add(drift.run(graph, {"rows": given_rows}, **engine).finish().digest)
        if more:
            table = pl.DataFrame(given_rows, schema={"at": pl.Int64, "n": pl.Int64, "k": pl.String})
            digests.add(drift.run(graph, {"rows": table}, batch_items=5).finish().digest)
    assert len(digests) == 1


spans = st.sampled_from([0, 1, 4, 10, 30])


@given(rows(), st.integers(1, 12), st.integers(-3, 3), st.sampled_from(["left", "right", "both", "none"]),
       st.integers(0, 5), spans, spans)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_tumbling_windows_are_corrected_by_each_item_that_comes_behind_their_ends(
    given_rows: list[Row], size: int, offset: int, closed: Any, lateness: int, of_source: int, allowed: int
) -> None:
    windows = drift.windows.tumbling(size, offset, closed=closed)
    check(windows, evenly(size, size, offset, closed), given_rows, lateness, of_source, allowed)


@given(rows(), st.integers(1, 12), st.integers(1, 8), st.sampled_from(["left", "right", "both", "none"]),
       st.integers(0, 5), spans, spans)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_sliding_windows_are_corrected_each_by_itself(
    given_rows: list[Row], size: int, every: int, closed: Any, lateness: int, of_source: int, allowed: int
) -> None:
    windows = drift.windows.sliding(size, every, closed=closed)
    check(windows, evenly(size, every, 0, closed), given_rows, lateness, of_source, allowed)


HOUR, DAY = 3_600_000, 86_400_000
SPRING = 1_711_756_800_000  # 2024-03-30 in UTC: the clocks of Berlin change on the next day


@given(rows(unit=3 * HOUR), st.integers(0, 5), spans, spans)
@settings(max_examples=15, deadline=None)
def test_days_of_a_zone_are_corrected(given_rows: list[Row], lateness: int, of_source: int, allowed: int) -> None:
    moved = [{**row, "at": row["at"] + SPRING} for row in given_rows]
    windows = drift.windows.calendar("day", zone="Europe/Berlin")
    check(windows, days("Europe/Berlin"), moved, lateness * HOUR, of_source * HOUR, allowed * HOUR)


def test_the_results_of_a_window_are_numbered_and_come_where_their_items_do() -> None:
    arrived = [{"at": at, "n": n, "k": "a"} for n, at in enumerate([1, 5, 13, 2, 4, 30, 9, 60, 31, 29, 28])]
    run = drift.run(graph_of(drift.windows.tumbling(10), 2, 25, 30), {"rows": arrived}, engine="reference")
    assert results_of(run) == (
        {
            ("a", 0): [(9, 0, (0, 1)), (11, 1, (0, 1, 3)), (11, 2, (0, 1, 3, 4)), (28, 3, (0, 1, 3, 4, 6))],
            ("a", 10): [(19, 0, (2,))],
            ("a", 30): [(39, 0, (5,))],
            ("a", 60): [(69, 0, (7,))],
        },
        [],
        arrived[8:],
    )


def test_the_last_moment_at_which_a_window_is_corrected() -> None:
    """The window [0, 10) is corrected for 5: by an item at 14, and not by one at 15."""
    for at, results, gone in ((14, [(9, 0, (0,)), (14, 1, (0, 2))], []), (15, [(9, 0, (0,))], [2])):
        arrived = [{"at": 3, "n": 0, "k": "a"}, {"at": at, "n": 1, "k": "b"}, {"at": 3, "n": 2, "k": "a"}]
        found = results_of(drift.run(graph_of(drift.windows.tumbling(10), 0, 99, 5), {"rows": arrived}))
        assert (found[0]["a", 0], found[1]) == (results, gone)


def source_of(graph: drift.Graph, **more: Any) -> drift.Stream[Any]:
    return graph.source("rows", time=drift.EventTime("at", lateness=0, allowed=100, **more))


def windowed(rows_of: list[int], **more: Any) -> list[Any]:
    """The results of windows of ten over numbers that are times."""
    graph = drift.Graph("numbers")
    numbers = graph.source("numbers", time=drift.EventTime(lambda number: number, allowed=100))
    numbers.window(drift.windows.tumbling(10), allowed=100, **more).collect().sink("out")
    return flows.outputs(graph, {"numbers": rows_of})


def test_early_results_come_before_the_first_one_only() -> None:
    found = windowed([1, 2, 3, 14, 4, 16, 5], early=drift.windows.every(items=2))
    assert [(each.value, each.early, each.correction) for each in found] == [
        ((1, 2), True, 0),
        ((1, 2, 3), False, 0),
        ((1, 2, 3, 4), False, 1),
        ((14, 16), True, 0),
        ((1, 2, 3, 4, 5), False, 2),
        ((14, 16), False, 0),
    ]
    by_time = windowed([1, 14, 4], early=drift.windows.every(time=4))
    assert [(each.value, each.early, each.correction) for each in by_time] == [
        ((1,), True, 0), ((1,), True, 0), ((1,), False, 0), ((1, 4), False, 1), ((14,), True, 0), ((14,), False, 0),
    ]  # fmt: skip


def test_early_results_by_time_begin_with_the_window_where_its_first_item_comes_before() -> None:
    graph = drift.Graph("ahead")
    rows_of = source_of(graph).window(
        drift.windows.tumbling(10), time="own", allowed=9, early=drift.windows.every(time=4)
    )
    rows_of.collect("own").sink("out")
    found = flows.timed_outputs(graph, {"rows": [{"at": 1, "own": 41}, {"at": 45, "own": 43}]})
    assert [(time, each.value, each.early) for time, each in found] == [
        (43, (41,), True), (47, (41, 43), True), (49, (41, 43), False),
    ]  # fmt: skip


def test_windows_may_end_or_be_corrected_until_the_end_of_all_time() -> None:
    for size, results in ((2**40, [(3, 0)]), (10, [(1, 0), (2, 1), (1, 0)])):
        graph = drift.Graph("far")
        numbers = graph.source("numbers", time=drift.EventTime(lambda number: number, allowed=100))
        numbers.window(drift.windows.tumbling(size), allowed=2**50).count().sink("out")
        first = (drift.END - 50) // 10 * 10
        found = flows.outputs(graph, {"numbers": [first, first + 20, first + 1]})
        assert [(each.value, each.correction) for each in found] == results


def test_the_time_of_a_window_is_that_of_the_source_through_filters_and_where_sources_agree() -> None:
    graph = drift.Graph("merged")
    one, other = (
        graph.source(name, time=drift.EventTime("at", lateness=lateness, allowed=20))
        for name, lateness in (("one", 0), ("other", 3))
    )
    both = one.filter(lambda row: row["n"] != 9).merge(other)
    both.window(drift.windows.tumbling(10), allowed=20).rows(of=drift.agg.collect("n")).sink("out")
    given_rows = {"one": [{"at": 1, "n": 1}, {"at": 12, "n": 2}, {"at": 3, "n": 3}], "other": [{"at": 40, "n": 4}]}
    assert [(row["start"], row["correction"], tuple(row["of"])) for row in flows.outputs(graph, given_rows)] == [
        (0, 0, (1,)), (0, 1, (1, 3)), (10, 0, (2,)), (40, 0, (4,)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "time",
    ["when", lambda row: row["when"], drift.EventTime("when"), pl.col("when")],
    ids=["field", "function", "policy", "expression"],
)
def test_the_time_of_a_window_is_said_where_items_have_changed(time: Any) -> None:
    graph = drift.Graph("said")
    source = graph.source("rows", time=drift.EventTime("at", allowed=20), schema={"at": int, "n": int}).select(
        when="at", n="n"
    )
    source.window(drift.windows.tumbling(10), allowed=20, time=time).rows(of=drift.agg.collect("n")).sink("out")
    given_rows = [{"at": at, "n": n} for n, at in enumerate([1, 12, 3])]
    assert [(row["start"], row["of"]) for row in flows.outputs(graph, {"rows": given_rows})] == [
        (0, (0,)), (0, (0, 2)), (10, (1,)),
    ]  # fmt: skip


def test_moments_of_a_window_are_read_as_those_of_the_source() -> None:
    graph = drift.Graph("zone")
    policy = drift.EventTime("at", allowed="1d", zone="Europe/Berlin")
    graph.source("rows", time=policy).window(drift.windows.calendar("day", zone="Europe/Berlin"), allowed="1d").rows(
        n=drift.agg.count()
    ).sink("out")
    given_rows = [{"at": f"2024-10-{day}"} for day in ("26T12:00", "27T12:00", "26T23:00")]
    assert [row["n"] for row in flows.outputs(graph, {"rows": given_rows})] == [1, 2, 1]


@pytest.mark.parametrize(
    "time", [drift.EventTime("when", allowed=9), drift.EventTime("at", unit="s"), drift.ArrivalTime()]
)
def test_a_run_gives_a_source_no_other_time_than_its_windows_know(time: Any) -> None:
    graph = drift.Graph("other")
    source_of(graph).window(drift.windows.tumbling(10), allowed=100).count().sink("out")
    given_rows = [{"at": at, "when": at + 100} for at in (1, 12, 3)]
    with pytest.raises(
        drift.SettingsError, match=r"times\['rows'\] gives items of the source another time than the graph"
    ):
        drift.run(graph, {"rows": given_rows}, times={"rows": time})
    run = drift.run(graph, {"rows": given_rows}, times={"rows": drift.EventTime("at", lateness=20)})
    assert [item.payload.value for item in run] == [2, 1]
    graph = drift.Graph("said")
    source_of(graph).window(drift.windows.tumbling(10), allowed=200, time="at").collect("at").sink("out")
    run = drift.run(graph, {"rows": given_rows}, times={"rows": drift.EventTime("when", allowed=9)})
    assert sorted(item.payload.value for item in run) == [(1,), (1, 3), (12,)]


def of_two_sources() -> drift.Stream[Any]:
    graph = drift.Graph("two")
    one, other = (graph.source(name, time=drift.EventTime(name, allowed=9)) for name in ("at", "when"))
    return one.merge(other)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "all": (lambda: drift.EventTime("at", lateness="all", allowed=5), "allowed= is for items as they come"),
    "below 0": (lambda: drift.EventTime("at", allowed=-1), "allowed=-1 is not an int of 0 or more"),
    "session": (
        lambda: source_of(drift.Graph("g")).window(drift.windows.session(5), allowed=5),
        "takes tumbling, sliding and calendar windows",
    ),
    "number": (
        lambda: source_of(drift.Graph("g")).window(drift.windows.count(5), allowed=5),
        "takes tumbling, sliding and calendar windows",
    ),
    "until": (
        lambda: source_of(drift.Graph("g")).window(drift.windows.tumbling(5), allowed=5, until=bool),
        "without until= and fill=",
    ),
    "fill": (
        lambda: source_of(drift.Graph("g")).window(drift.windows.tumbling(5), allowed=5, fill=0),
        "without until= and fill=",
    ),
    "each": (
        lambda: source_of(drift.Graph("g")).window(drift.windows.tumbling(5), allowed=5).each(n=drift.agg.count()),
        "without early=, until=, fill= and allowed=",
    ),
    "unknown time": (
        lambda: source_of(drift.Graph("g")).map(dict).window(drift.windows.tumbling(5), allowed=5),
        "time='at'",
    ),
    "two times": (lambda: of_two_sources().window(drift.windows.tumbling(5), allowed=5), "time='at'"),
    "time alone": (lambda: source_of(drift.Graph("g")).window(drift.windows.tumbling(5), time="at"), "with allowed="),
    "late alone": (lambda: source_of(drift.Graph("g")).window(drift.windows.tumbling(5), late="x"), "with allowed="),
    "errors": (
        lambda: source_of(drift.Graph("g")).window(drift.windows.tumbling(5), allowed=5, late="errors"),
        "late='errors'",
    ),
    "negative": (
        lambda: source_of(drift.Graph("g")).window(drift.windows.tumbling(5), allowed=-5),
        "window: allowed=-5",
    ),
    "word of others": (
        lambda: source_of(drift.Graph("g")).window(drift.windows.tumbling(5), allowed_lateness=5),  # type: ignore[arg-type]
        "it is called allowed here",
    ),
    "policy of a source": (
        lambda: source_of(drift.Graph("g")).window(
            drift.windows.tumbling(5),
            allowed=5,
            time=drift.EventTime("at", lateness=5, tie="n", late="divert", idle_after_ms=5, future_max=9, zone="UTC"),
        ),
        "unit= alone, and got lateness=, tie=, late=, idle_after_ms=, future_max=: what is late",
    ),
    "allowed of a policy": (
        lambda: source_of(drift.Graph("g")).window(
            drift.windows.tumbling(5), allowed=5, time=drift.EventTime("at", allowed=5, ambiguous="latest", unit="s")
        ),
        "unit= alone, and got allowed=: what is late",
    ),
    "arrival": (lambda: drift.ArrivalTime(allowed=5), "takes no allowed="),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("call", REFUSED)
def test_what_cannot_be_corrected_is_refused_in_words(call: str) -> None:
    made, words = REFUSED[call]
    with pytest.raises(drift.DriftError) as refused:
        made()
    assert words in str(refused.value)


def test_an_item_whose_window_is_gone_ends_the_run_and_says_what_to_set() -> None:
    graph = drift.Graph("gone")
    source_of(graph).window(drift.windows.tumbling(10), allowed=5).count().sink("out")
    run = drift.run(graph, {"rows": [{"at": 1}, {"at": 40}, {"at": 3}]})
    with pytest.raises(drift.StepError, match=r"set allowed of the window to 31 or more.*late='NAME'"):
        run.finish()
    here = rf"at       {__file__}:\d+\n  declared {__file__}:"  # where no function of the user is called, too
    with pytest.raises(drift.StepError, match=rf"name its unit.*\n  {here}"):
        graph = drift.Graph("no time")
        source_of(graph).window(drift.windows.tumbling(10), allowed=5, time="other").count().sink("out")
        drift.run(graph, {"rows": [{"at": 1, "other": 2.5}]}).finish()
    with pytest.raises(drift.PayloadError, match=rf"no canonical form.*\n  {here}"):
        graph = drift.Graph("no key")
        source_of(graph).key_by(lambda row: print).window(drift.windows.tumbling(10), allowed=5).count().sink("out")
        drift.run(graph, {"rows": [{"at": 1}]}).finish()


def test_what_is_later_than_allowed_says_that_more_can_be_allowed() -> None:
    graph = drift.Graph("late")
    source_of(graph).sink("out")
    with pytest.raises(drift.LateItem, match="set lateness to 139 or more, allowed to 139 or more"):
        drift.run(graph, {"rows": [{"at": 140}, {"at": 1}]}).finish()


# The source.


def test_a_belated_item_is_not_below_what_an_idle_source_has_said_and_the_next_time_it_is_idle_it_is_released() -> None:
    for policy, apart, late in (
        (drift.EventTime(lambda at: at, allowed=50), False, 0),
        (drift.EventTime(lambda at: at), True, 1),
    ):
        machine = SourceMachine("in", 0, policy, late_apart=apart)
        machine.take([20])
        assert machine.idle(pack_time(40)) == pack_time(40)
        [meta] = machine.take([5]).metas
        assert time_of(meta) == 40 and machine.late_apart == late
        assert meta < machine.above_all_items() == machine.idle(BEGINNING) == pack_time(41)


def test_two_payloads_may_have_one_tie_where_when_they_come_decides_their_time() -> None:
    graph = drift.Graph("ties")
    graph.source("rows", time=drift.EventTime((0).__class__ and "at", tie="tie", allowed=9)).sink("out")
    given_rows = [{"at": 5, "tie": 1, "n": 0}, {"at": 4, "tie": 1, "n": 1}, {"at": 3, "tie": 0, "n": 2}]
    assert [row["n"] for row in flows.outputs(graph, {"rows": given_rows})] == [2, 0, 1]


@given(rows(), st.integers(0, 5), spans, st.sampled_from([None, 3, 9]), st.booleans(), st.data())
@settings(deadline=None)
def test_how_a_source_with_belated_items_is_cut_into_batches_does_not_show(
    given_rows: list[Row], lateness: int, allowed: int, future_max: Any, apart: bool, data: st.DataObject
) -> None:
    policy = drift.EventTime("at", lateness, late="divert", allowed=allowed, future_max=future_max)
    whole, divided = (SourceMachine("in", 0, policy, late_apart=apart) for _ in range(2))
    at_once = [whole.take(given_rows), whole.settle()]
    parts = []
    left = given_rows
    heartbeat = BEGINNING
    while left:
        size = data.draw(st.integers(1, len(left)))
        parts.append(divided.take(left[:size]))
        assert all(meta > heartbeat for meta in parts[-1].metas)
        left, heartbeat = left[size:], parts[-1].heartbeat
    parts.append(divided.settle())
    for field in ("metas", "payloads", "late"):
        assert [x for part in parts for x in getattr(part, field)] == [x for p in at_once for x in getattr(p, field)]
    assert (whole.heartbeat, whole.judging) == (divided.heartbeat, divided.judging)


def test_the_order_of_arrival_is_not_drawn_where_it_decides_which_items_are_belated() -> None:
    """Items of one time and tie, too, are in the order in which they came."""
    graph = drift.Graph("drawn")
    graph.source("rows", time=drift.EventTime("at", lateness=9, tie="tie", allowed=9)).sink("out")
    for given_rows in (
        [{"at": at // 3, "tie": 1, "n": at} for at in range(12)],
        [{"at": at, "tie": 1, "n": at} for at in (9, 20, 5, 12, 3)],
    ):
        inputs = in_order(graph.build(), {"rows": given_rows})
        for noise in range(1, 9):
            case = Case(graph.build(), inputs, Schedule(noise=noise, batch_items=2))
            arrived, _ = arrivals(case, Player(case.schedule))
            assert arrived["rows"] == given_rows
            assert run_case(case).failure is None


# Other engines, and going on.

MANY = [{"at": at + (37 * at) % 11 - (60 if at % 29 == 0 else 0), "n": at, "k": "abc"[at % 3]} for at in range(600)]


def test_over_zeromq_the_same_windows_are_corrected() -> None:
    graph = graph_of(drift.windows.sliding(12, 5), 11, 70, 40)
    results, gone = expected(placed(MANY, 11, 70)[0], evenly(12, 5, 0, "left"), 40)
    found = drift.run(graph, {"rows": MANY}, engine="zeromq", workers=2, batch_items=40)
    items = list(found)
    assert results_of(items)[:2] == (results, gone) and gone
    assert found.digest == drift.run(graph, {"rows": MANY}, engine="reference").finish().digest


@given(rows(), st.lists(st.integers(0, 6), max_size=3), st.data())
@settings(max_examples=25, deadline=None)
def test_windows_that_are_corrected_go_on_where_a_run_was_broken_off(
    tmp_path_factory: pytest.TempPathFactory, given_rows: list[Row], batches: list[int], data: st.DataObject
) -> None:
    dataflow = graph_of(drift.windows.tumbling(7), 2, 20, 15).build()
    check_goes_on(dataflow, {"rows": given_rows}, batches, Path(tmp_path_factory.mktemp("state")))


@given(rows(), st.data())
@settings(max_examples=25, deadline=None)
def test_a_simulated_run_with_any_schedule_corrects_the_same(given_rows: list[Row], data: st.DataObject) -> None:
    dataflow = graph_of(drift.windows.sliding(6, 4), 2, 20, 15).build()
    run = Simulation(dataflow, {"rows": given_rows}, noisy(data), batch_items=data.draw(st.sampled_from([1, 2, 8])))
    assert run.run().digest == drift.run(dataflow, {"rows": given_rows}, engine="reference").finish().digest


def test_a_recorded_run_is_replayed_and_audited(tmp_path: Path) -> None:
    graph = graph_of(drift.windows.tumbling(10), 11, 70, 40)
    run = drift.run(graph, {"rows": MANY}, record=tmp_path / "record").finish()
    again = drift.replay(tmp_path / "record", graph)
    again.finish()
    assert again.digest == run.digest
    assert drift.audit(tmp_path / "record", graph).ok
