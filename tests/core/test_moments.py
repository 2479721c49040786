"""Times and spans as people write them, and stamps from the future."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

import drift
from drift_graph.meta import time_of
from drift_graph.moments import Field, span_from, time_from, zone_from
from drift_graph.policies import EventTime
from drift_graph.times import SourceMachine

BERLIN = ZoneInfo("Europe/Berlin")
#: 2026-03-01 12:00 in UTC.
NOON = 1_772_366_400_000


@given(st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=st.timezones()))
def test_a_moment_with_a_zone_is_its_milliseconds_rounded_down(moment: datetime) -> None:
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    micro = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    assert time_from(moment) == micro // 1000 == time_from(moment.astimezone(UTC).isoformat())


@pytest.mark.parametrize(
    "value",
    [
        NOON,
        numpy.int64(NOON),
        datetime(2026, 3, 1, 12, tzinfo=UTC),
        datetime(2026, 3, 1, 13, tzinfo=BERLIN),
        pandas.Timestamp("2026-03-01T12:00:00.000999Z"),
        "2026-03-01T12:00:00Z",
        "2026-03-01 13:00:00+01:00",
        "2026-03-01T12:00:00.000999+00:00",
    ],
)
def test_one_moment_in_many_forms(value: Any) -> None:
    assert time_from(value) == NOON


@pytest.mark.parametrize(
    "value", [datetime(2026, 3, 1, 13), "2026-03-01T13:00", "2026-03-01 13:00:00", numpy.datetime64("2026-03-01T13:00")]
)
def test_a_moment_without_a_zone_is_a_time_only_where_one_is_passed(value: Any) -> None:
    assert time_from(value) is None and time_from(value, BERLIN) == NOON


@pytest.mark.parametrize(
    "value",
    [None, True, 1.5, "12", "20260301", "noon", "2026-13-01", pandas.NaT, numpy.datetime64("NaT"), 2**63, [1], "",
     numpy.bool_(True), numpy.float64(3.0), timedelta(1)],
)  # fmt: skip
def test_what_is_no_time(value: Any) -> None:
    assert time_from(value, UTC) is None


@pytest.mark.parametrize(
    "value, milliseconds",
    [(0, 0), (-3, -3), ("10s", 10_000), ("10", 10), ("1h 30m", 5_400_000), ("1h30min", 5_400_000), ("1.5s", 1500),
     ("2d", 172_800_000), ("1w", 604_800_000), ("250ms", 250), ("-5m", -300_000), (timedelta(hours=1), 3_600_000),
     (timedelta(milliseconds=-2), -2)],
)  # fmt: skip
def test_a_span(value: Any, milliseconds: int) -> None:
    assert span_from(value) == milliseconds


@pytest.mark.parametrize(
    "value",
    [None, True, 1.0, "", " ", "s", "10 x", "1.5ms", "0.1ms", timedelta(microseconds=1), "1h-30m", "5 s ago", "10S"],
)
def test_what_is_no_span(value: Any) -> None:
    assert span_from(value) is None


def test_a_zone() -> None:
    assert zone_from("Europe/Berlin") == BERLIN and zone_from("UTC") is zone_from(UTC) is UTC
    assert zone_from("Nowhere/Else") is zone_from("../etc") is zone_from("") is zone_from(3) is None


@dataclass
class Trip:
    at: int


@pytest.mark.parametrize(
    "path, payload",
    [
        ("at", {"at": 7}),
        ("at", Trip(7)),
        ("trip.at", {"trip": Trip(7)}),
        ("trip.at", {"trip": {"at": 7}}),
        ("trip.at", {"trip.at": 7, "trip": {"at": 8}}),
        ("1.0", (0, (7,))),
        ("-1", [0, 7]),
        ("legs.0.at", {"legs": [{"at": 7}]}),
    ],
)
def test_a_field_by_its_name(path: str, payload: Any) -> None:
    assert Field(path)(payload) == 7 and Field(path) == pickle.loads(pickle.dumps(Field(path)))


@pytest.mark.parametrize("payload", [{"at": 1}, {"trip": {}}, {"trip": None}, (1, 2), 3])
def test_a_field_that_is_missing_is_named(payload: Any) -> None:
    with pytest.raises(LookupError, match=r"no field 'trip\.at'"):
        Field("trip.at")(payload)


def events(**policy: Any) -> drift.Graph:
    graph = drift.Graph("events")
    graph.source("events", time=EventTime(**policy)).sink("out")
    return graph


ENGINES: list[Any] = ["local", "reference", "zeromq"]


@pytest.mark.parametrize("engine", ENGINES)
def test_fields_moments_and_spans_in_a_graph(engine: Any) -> None:
    rows = [{"trip": {"at": f"2026-03-01T13:00:{second:02}"}, "n": second} for second in (5, 3, 9, 8, 20)]
    graph = events(time="trip.at", lateness="10s", zone="Europe/Berlin")
    run = drift.run(graph, {"events": rows}, engine=engine)
    assert [(item.time, item.payload["n"]) for item in run] == [(NOON + 1000 * n, n) for n in (3, 5, 8, 9, 20)]
    moments = [{"trip": {"at": datetime.fromisoformat(row["trip"]["at"])}, "n": row["n"]} for row in rows]
    assert [item.time for item in drift.run(graph, {"events": moments})] == [NOON + 1000 * n for n in (3, 5, 8, 9, 20)]


def test_a_moment_without_a_zone_says_what_to_do() -> None:
    with pytest.raises(drift.InputError, match=r"this one has no zone; name it, EventTime\(\.\.\., zone="):
        drift.run(events(time="at"), {"events": [{"at": datetime(2026, 3, 1)}]}).finish()


def test_a_payload_without_the_field_is_named() -> None:
    with pytest.raises(drift.StepError, match=r"source 'events' \(field at\) raised LookupError: .*no field 'at'"):
        drift.run(events(time="at"), {"events": [{"time": 3}]}).finish()


def test_equal_policies_are_equal_graphs_and_records_know_them(tmp_path: Any) -> None:
    policy: dict[str, Any] = {
        "time": "at",
        "tie": "id",
        "lateness": timedelta(seconds=3),
        "future_max": "1h",
        "zone": "UTC",
    }
    assert events(**policy).build() == events(**{**policy, "lateness": "3s", "future_max": 3_600_000}).build()
    assert events(**policy).build() != events(**{**policy, "zone": "Europe/Berlin"}).build()
    rows = [
        {"at": "2026-03-01T12:00", "id": 2},
        {"at": "2026-03-01T12:00", "id": 1},
        {"at": "2027-03-01T12:00", "id": 1},
    ]
    graph = events(**policy, late="divert")
    run = drift.run(graph, {"events": rows}, record=tmp_path / "record")
    assert [item.payload["id"] for item in run] == [1, 2]
    assert drift.replay(tmp_path / "record", graph=graph).finish().digest == run.digest


@pytest.mark.parametrize(
    "policy, words",
    [
        ({"time": ""}, "time='' is not a function of the payload, nor the name of a field"),
        ({"time": 3}, "time=3"),
        ({"time": "at", "tie": 3}, "tie=3"),
        ({"time": "at", "lateness": "soon"}, "lateness='soon' is not an int of 0 or more, a timedelta or a text"),
        ({"time": "at", "lateness": None}, "lateness=None"),
        ({"time": "at", "lateness": -1}, "lateness=-1"),
        ({"time": "at", "future_max": "-1s"}, "future_max='-1s'"),
        ({"time": "at", "idle_after_ms": 1.5}, "idle_after_ms=1.5"),
        ({"time": "at", "zone": "Mars"}, "zone='Mars' is not a tzinfo"),
    ],
)
def test_a_policy_that_means_nothing_is_refused(policy: Any, words: str) -> None:
    with pytest.raises(drift.SettingsError, match=words):
        EventTime(**policy)


def test_spans_of_windows_joins_and_timers() -> None:
    def windowed(*sizes: Any) -> drift.Dataflow:
        size, every, gap, within, before, after = sizes
        graph = drift.Graph("spans")
        left, right = graph.source("left", time=EventTime("0")), graph.source("right", time=EventTime("0"))
        keyed = left.key_by(itemgetter_1)
        keyed.window(drift.windows.tumbling(size)).count().sink("tumbling")
        keyed.window(drift.windows.sliding(size, every, every)).count().sink("sliding")
        keyed.window(drift.windows.session(gap), early=drift.windows.every(time=every)).count().sink("session")
        left.dedup(itemgetter_1, within=within).sink("dedup")
        left.join(right, itemgetter_1, within=(before, after)).sink("join")
        left.join_as_of(right, itemgetter_1, within=within).sink("as of")
        return graph.build()

    texts = windowed("1h", "30m", "10s", "1d", "1s", "2s")
    spans = (timedelta(hours=1), timedelta(minutes=30), timedelta(seconds=10), timedelta(1))
    assert texts == windowed(3_600_000, 1_800_000, 10_000, 86_400_000, 1000, 2000)
    assert texts == windowed(*spans, timedelta(seconds=1), timedelta(seconds=2))


def itemgetter_1(payload: Any) -> Any:
    return payload[1]


@pytest.mark.parametrize("span", ["soon", 0, -1, 1.5, True, timedelta(microseconds=1)])
def test_a_window_of_no_length_is_refused(span: Any) -> None:
    with pytest.raises(drift.GraphError, match="size="):
        drift.windows.tumbling(span)


def test_a_child_at_a_moment() -> None:
    moment = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert drift.at(moment, "x").time == drift.at("2026-03-01T12:00Z", "x").time == NOON
    for wrong in (datetime(2026, 3, 1), "noon", True, None, 1.5):
        with pytest.raises(drift.SettingsError, match="a time is an int, or a datetime or ISO text with") as raised:
            drift.at(wrong, "x")  # type: ignore[arg-type]
        assert isinstance(raised.value, TypeError)


# Stamps from the future.

YEAR = 366 * 86_400_000


@pytest.mark.parametrize("engine", ENGINES)
def test_one_stamp_of_next_year_diverts_itself_alone(engine: Any) -> None:
    times = [*range(100), YEAR, *range(100, 200)]
    graph = events(time=int, late="divert", future_max="1h")
    run = drift.run(graph, {"events": times}, engine=engine, batch_items=30)
    assert [item.payload for item in run] == list(range(200))
    assert [(late.time, late.reason) for late in run.late] == [
        (YEAR, f"{YEAR - 99 - 3_600_000} beyond what future_max allows")
    ]
    without = drift.run(events(time=int, late="divert"), {"events": times}, engine=engine)
    assert len(list(without)) == 101 and len(without.late) == 100


def test_a_stamp_of_next_year_ends_the_run_where_late_items_do() -> None:
    run = drift.run(events(time=int, lateness=5, future_max=10), {"events": [1, 2, 3, 4, 16, 5]})
    payloads = []
    with pytest.raises(drift.LateItem, match=r"got an item at 16, 2 beyond what future_max=10 allows; payload 16"):
        payloads.extend(item.payload for item in run)
    assert payloads == []  # its heartbeat was 4 - 5
    assert [item.payload for item in drift.run(events(time=int, future_max=10), {"events": [1, 11, 12, 22]})] == [
        1,
        11,
        12,
        22,
    ]


def test_an_item_without_a_time_stays_where_it_came_next_to_one_from_the_future() -> None:
    graph = drift.Graph("apart")
    time = EventTime("at", late="divert", future_max=10)
    graph.source("events", time=time, on_error="divert").sink("out")
    run = drift.run(graph, {"events": [{"at": 1}, {"at": 1}, {"at": 1}, {"at": 1}, {"at": 99}, {}, {"at": 2}]})
    assert sorted((item.time, item.sink) for item in run) == [(1, "errors"), *[(1, "out")] * 4, (2, "out")]
    assert [late.time for late in run.late] == [99]


Taken = tuple[list[int], list[tuple[int, int, str]], str]


def taken(policy: EventTime, times: Sequence[int], sizes: Iterable[int], *, live: bool = False) -> Taken:
    """The times that a source accepts, in its order, those that are late, with heartbeat and reason, and the error."""
    machine = SourceMachine("s", 0, policy, live=live)
    got: list[int] = []
    late: list[tuple[int, int, str]] = []
    rest, cuts = list(times), itertools.cycle(sizes)
    while True:
        size = next(cuts)
        batch, rest = rest[:size], rest[size:]
        arrived = machine.take(batch, now_ms=30) if batch else machine.settle()
        got += [time_of(meta) for meta in arrived.metas]
        late += [(each.time, each.heartbeat, each.reason) for each in arrived.late]
        if arrived.error is not None or not batch:
            return got, late, str(arrived.error or "")


@given(
    st.lists(st.integers(0, 60) | st.sampled_from([200, 203, 400]), max_size=30),
    st.integers(0, 20),
    st.integers(0, 20),
    st.sampled_from(["error", "divert"]),
    st.lists(st.integers(1, 8), min_size=1, max_size=5),
    st.booleans(),
)
def test_who_is_ahead_or_late_hangs_on_the_items_alone_and_on_no_clock_and_no_batches(
    times: list[int], lateness: int, future_max: int, late: Any, batch_sizes: list[int], live: bool
) -> None:
    policy = EventTime(int, lateness, late=late, future_max=future_max)
    expected = taken(policy, times, [1])
    assert taken(policy, times, batch_sizes, live=live) == expected
    assert late == "error" or sorted([*expected[0], *(time for time, *_ in expected[1])]) == sorted(times)


@given(
    st.lists(st.integers(0, 10), min_size=8, max_size=20),
    st.integers(0, 7),
    st.sampled_from([-(10**6), 10**6, 10**12]),
    st.lists(st.integers(1, 8), min_size=1, max_size=3),
)
def test_one_wrong_time_anywhere_sets_itself_apart_alone(steps: list[int], at: int, by: int, sizes: list[int]) -> None:
    right = list(itertools.accumulate(steps))
    times = [*right[:at], by, *right[at:]]
    got, late, _ = taken(EventTime(int, late="divert", future_max=10), times, sizes)
    assert (got, [time for time, *_ in late]) == (right, [by])


@given(st.lists(st.integers(4, 9), min_size=2, max_size=4), st.integers(11, 10**9), st.integers(1, 8))
def test_a_gap_in_the_data_sets_nothing_apart(days: list[int], night: int, size: int) -> None:
    times = [day * night * 100 + n for day, count in enumerate(days) for n in range(count)]
    assert taken(EventTime(int, late="divert", future_max=10), times, [size]) == (times, [], "")


APART = "further from the items behind it than future_max allows"


@pytest.mark.parametrize(
    "times, accepted, late",
    [
        ([7], [7], {}),  # an input of one item
        ([1, 2, 500], [1, 2], {500: "488 beyond what future_max allows"}),  # one behind a gap, at the end
        ([1, 2, 500, 501], [1, 2, 500, 501], {}),  # two
        ([1, 2, 900, 901, 3, 4], [1, 2, 3, 4], {900: "888 beyond what future_max allows", 901: None}),
        ([900, 901, 902, 1, 2, 3, 4], [1, 2, 3, 4], {900: None, 901: None, 902: None}),
        ([1, 500, 2, 501, 3, 4], [1, 2, 3, 4], {500: None, 501: None}),
        ([1, 2, 500, 501, 900, 901, 902, 903], [1, 2, 500, 501, 900, 901, 902, 903], {}),  # gaps follow each other
        ([1, 2, 3, 4, 20, 9], [1, 2, 3, 4, 9], {20: "6 beyond what future_max allows"}),
        ([1, 2, 3, 4, 20, 12], [1, 2, 3, 4, 12, 20], {}),  # the gap is closed behind it: near enough to both
        ([900, *range(4)], [0, 1, 2, 3], {900: APART}),
        ([-900, *range(4)], [0, 1, 2, 3], {-900: "890 further before the items behind it than future_max allows"}),
        ([100 * n for n in range(10)], [200], {100 * n: APART if n < 2 else None for n in (0, 1, *range(3, 10))}),
    ],
)
def test_what_future_max_means(times: list[int], accepted: list[int], late: dict[int, str | None]) -> None:
    got, found, _ = taken(EventTime(int, late="divert", future_max=10), times, [3])
    reasons = {time: reason for time, _, reason in found}
    assert (got, {time: reasons.get(time) if why else None for time, why in late.items()}) == (accepted, late)
    assert reasons.keys() == late.keys()


GAPS = [5, 900, 6, 6, 8, 7, 30, 31, 2, 32, 33, 34, 60, 35, 36, 90, 91, 92, 93, 94, 93, 300, 95, 120]


@pytest.mark.parametrize("apart", [{}, {"late": "late"}])
def test_held_items_come_again_from_every_checkpoint_and_on_every_engine(apart: Any, tmp_path: Path) -> None:
    graph = drift.Graph("gaps")
    time = EventTime(int, lateness=2, late="divert", future_max=10)
    graph.source("s", time=time, **apart).sink("out")
    whole = drift.run(graph, {"s": GAPS}, engine="reference")
    expected = [(item.sink, item.payload, item.time) for item in whole]
    late = [each.time for each in whole.late]
    assert len(expected) + len(late) == len(GAPS)
    for settings in ({"batch_items": 1}, {"batch_items": 3}, {"engine": "zeromq", "batch_items": 4}):
        run = drift.run(graph, {"s": GAPS}, **settings)  # type: ignore[arg-type]
        assert [(item.sink, item.payload, item.time) for item in run] == expected
        assert (run.digest, [each.time for each in run.late]) == (whole.digest, late)
    for stop in range(2, len(expected), 4):
        state = drift.Checkpoints(tmp_path / f"state {stop}", every_items=1, every_s=100)
        found: dict[int, Any] = {}
        with drift.run(graph, {"s": GAPS}, state=state, batch_items=2) as run:
            for item in run:
                found[item.position] = (item.sink, item.payload, item.time)
                if len(found) == stop:
                    break
        run = drift.run(graph, {"s": GAPS}, state=state, batch_items=3)
        found |= {item.position: (item.sink, item.payload, item.time) for item in run}
        assert [found[position] for position in sorted(found)] == expected
        assert run.digest == whole.digest


def test_the_machines_own_zone_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(tzinfo):
        def utcoffset(self, moment: datetime | None) -> None:
            return None

    assert time_from(datetime(2026, 3, 1, tzinfo=Odd())) is None
