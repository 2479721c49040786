"""Windows beside plain Python over sorted items: which items each has, what it gives, and when."""

from __future__ import annotations

import copy
import functools
import statistics
from collections.abc import Callable, Iterable
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, get_args

import flows
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies import noisy
from test_state import check_goes_on

import drift
from drift.engines.simulated.simulation import Simulation
from drift.flow.accumulators import Aggregate
from drift.flow.running import Closed
from drift.flow.windows import NumberedStep
from drift.machines.keyed import KeyedStage
from drift.machines.plan import Plan
from drift.machines.worker import Worker
from drift_graph.item import Columns
from drift_graph.meta import END_OF_TIME, global_time
from drift_graph.metas import Metas
from drift_kernel import kernel

Row = tuple[Any, int, int, tuple[flows.Timed, ...]]


def number_of(item: flows.Timed) -> int:
    return item[1]


def value(item: flows.Timed) -> Any:
    return item[2]


@st.composite
def timed(draw: st.DrawFn) -> list[flows.Timed]:
    times = draw(st.lists(st.integers(-10, 30), max_size=20))
    items = [(time, number, draw(st.integers(0, 2))) for number, time in enumerate(times)]
    return flows.disordered(items, draw(st.integers(0, 1000)))


def rows(
    windows: Any, items: list[flows.Timed], keyed: bool, engines: Any = flows.ENGINES, aggregate: Any = None
) -> list[Row]:
    """What windows that collect give, the same on all engines."""

    def steps(stream: drift.Stream[Any]) -> drift.Stream[Any]:
        windowed = stream.key_by(value).window(windows) if keyed else stream.window(windows)
        return windowed.aggregate(aggregate or drift.agg.collect())

    graph = flows.flow(steps, "in", time=flows.event_time())
    return [(each.key, each.start, each.end, each.value) for each in flows.outputs(graph, {"in": items}, engines)]


def by_key(items: Iterable[flows.Timed], keyed: bool) -> dict[Any, list[flows.Timed]]:
    found: dict[Any, list[flows.Timed]] = {}
    for item in sorted(items):
        found.setdefault(item[2] if keyed else None, []).append(item)
    return found


def in_windows(items: list[flows.Timed], keyed: bool, size: int, every: int, offset: int) -> list[Row]:
    """Every window of every start, by brute force."""
    found = []
    for key, of_key in by_key(items, keyed).items():
        for start in range(offset - 100 * every, 200, every):
            inside = tuple(item for item in of_key if start <= item[0] < start + size)
            if inside:
                found.append((key, start, start + size, inside))
    return found


def in_sessions(items: list[flows.Timed], keyed: bool, gap: int) -> list[Row]:
    found = []
    for key, of_key in by_key(items, keyed).items():
        sessions: list[list[flows.Timed]] = []
        for item in of_key:
            if not sessions or item[0] >= sessions[-1][-1][0] + gap:
                sessions.append([])
            sessions[-1].append(item)
        found += [(key, each[0][0], each[-1][0] + gap, tuple(each)) for each in sessions]
    return found


def in_output_order(expected: list[Row]) -> list[Row]:
    """In the order of their ends; those of one end by their first items."""
    return sorted(expected, key=lambda row: (row[2], row[3][0]))


spans, offsets = st.integers(1, 12), st.integers(-15, 15)


@given(timed(), st.booleans(), spans, st.none() | spans, offsets, st.sampled_from(get_args(Closed)))
@example([(0, 1, 7), (4, 2, 7), (5, 3, 7)], True, 4, None, 0, "both")
@settings(max_examples=40)
def test_windows_have_the_items_of_their_time(
    items: list[flows.Timed], keyed: bool, size: int, every: int | None, offset: int, closed: Any
) -> None:
    moved = closed in ("right", "none")  # then its first time is 1 behind its start
    length, step = size + (closed == "both") - (closed == "none"), every or size
    found = in_output_order(in_windows(items, keyed, length, step, (offset + moved) % step))
    expected = [(key, start - moved, start - moved + size, inside) for key, start, _, inside in found]
    windows = drift.windows.tumbling(size, offset, closed=closed)
    if every is not None:
        windows = drift.windows.sliding(size, every, offset, closed=closed)
    assert rows(windows, items, keyed) == expected


@given(timed(), st.integers(1, 12), st.integers(1, 12), st.integers(-15, 15))
@settings(max_examples=10)
def test_sliding_windows_that_end_beyond_the_end_of_time_all_come(
    items: list[flows.Timed], size: int, every: int, offset: int
) -> None:
    """Of these the ones with one first item come in the order of their starts."""
    moved = [(drift.END - 30 + time, number, key) for time, number, key in items]

    def steps(stream: drift.Stream[Any]) -> drift.Stream[Any]:
        at_their_times = stream.flat_map(lambda item: [drift.at(item[0], item)], later=True)
        return at_their_times.key_by(value).window(drift.windows.sliding(size, every, offset)).collect()

    graph = flows.flow(steps, "in", time=drift.EventTime(time=number_of, tie=number_of, lateness=20))
    found = [(each.key, each.start, each.end, each.value) for each in flows.outputs(graph, {"in": moved})]
    expected = []
    for key, of_key in by_key(moved, True).items():
        for start in range(drift.END - 60 - (drift.END - 60 - offset) % every, drift.END + 1, every):
            inside = tuple(item for item in of_key if start <= item[0] < start + size)
            if inside:
                expected.append((key, start, start + size, inside))
    assert found == sorted(expected, key=lambda row: (min(row[2], drift.END + 1), row[3][0][1], row[1]))


def of_pair(pair: tuple[flows.Timed, ...]) -> flows.Timed:
    return pair[-1]


@given(timed(), st.integers(1, 12), st.integers(1, 6), st.data())
@settings(max_examples=40)
def test_sliding_windows_behind_a_grouping_are_corrected_by_what_comes_below_those_that_ended(
    items: list[flows.Timed], size: int, every: int, data: st.DataObject
) -> None:
    """The sources are past the end of a window, while items of it are on their way from another worker."""

    def steps(stream: drift.Stream[Any]) -> drift.Stream[Any]:
        pairs = stream.group(number_of, 2).map(of_pair)
        return pairs.key_by(value).window(drift.windows.sliding(size, every)).collect()

    graph = flows.flow(steps, "in", time=flows.event_time())
    expected = drift.run(graph, {"in": items}, engine="reference").finish().digest
    workers, batch_items = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([1, 2, 8]))
    simulated = Simulation(graph.build(), {"in": items}, noisy(data), workers=workers, batch_items=batch_items).run()
    assert simulated.error is None and simulated.digest == expected


@given(timed(), st.booleans(), st.integers(1, 12))
@settings(max_examples=10)
def test_a_session_lasts_until_nothing_comes_for_the_gap(items: list[flows.Timed], keyed: bool, gap: int) -> None:
    given_rows = rows(drift.windows.session(gap), items, keyed)
    assert in_output_order(given_rows) == in_output_order(in_sessions(items, keyed, gap))
    assert [row[2] for row in given_rows] == sorted(row[2] for row in given_rows)


@given(timed(), st.booleans(), st.integers(1, 5), st.integers(1, 5), st.booleans())
@example([(1, 2, "a"), (3, 4, "a")], True, 2**70, 1, True)
@settings(max_examples=12)
def test_windows_by_number_have_so_many_items(
    items: list[flows.Timed], keyed: bool, size: int, every: int, partial: bool
) -> None:
    expected = []
    for key, of_key in by_key(items, keyed).items():
        starts = range(0, len(of_key), every)
        full = [start for start in starts if start + size <= len(of_key)]
        chosen = full + ([start for start in starts if start not in full][:1] if partial else [])
        for start in chosen:
            inside = tuple(of_key[start : start + size])
            expected.append((key, start, start + len(inside), inside))
    given_rows = rows(drift.windows.count(size, every, partial=partial), items, keyed)
    assert sorted(given_rows, key=repr) == sorted(expected, key=repr)


def ruled(item: flows.Timed) -> str:
    return ("open", "go on", "close", "skip")[item[1] % 4 if item[1] % 5 else 1]


@given(timed(), st.booleans())
@settings(max_examples=10)
def test_windows_by_a_rule_open_go_on_and_close_as_it_says(items: list[flows.Timed], partial: bool) -> None:
    expected = []
    for key, of_key in by_key(items, True).items():
        open_window: list[flows.Timed] = []
        closed: list[list[flows.Timed]] = []
        for item in of_key:
            said = ruled(item)
            if said == "skip":
                continue
            if said == "open" and open_window:
                closed.append(open_window)
                open_window = []
            open_window.append(item)
            if said == "close":
                closed.append(open_window)
                open_window = []
        closed += [open_window] if open_window and partial else []
        expected += [(key, each[0][0], each[-1][0] + 1, tuple(each)) for each in closed]
    given_rows = rows(drift.windows.by_rule(ruled, partial=partial), items, True)  # type: ignore[arg-type]
    assert sorted(given_rows, key=repr) == sorted(expected, key=repr)


# Aggregates.


def added(total: float, item: flows.Timed) -> float:
    return total + item[1] / 7


def longer(left: flows.Timed, right: flows.Timed) -> flows.Timed:
    return (left[0], left[1] + right[1], left[2])


def position(item: flows.Timed) -> int:
    return item[1] % 4


def spread(found: tuple[Any, ...]) -> int:
    return int(found[-1][0] - found[0][0])


def distinct(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(values))


def median(found: list[flows.Timed]) -> float:
    return float(statistics.median(position(each) for each in found))


def is_odd(item: flows.Timed) -> bool:
    return item[1] % 2 == 1


def rounded(found: float | None) -> float | None:
    return None if found is None else round(float(found), 9)


AGGREGATES: dict[str, tuple[Aggregate[Any, Any], Callable[[list[flows.Timed]], Any]]] = {
    "count": (drift.agg.count(), len),
    "sum": (drift.agg.sum(position), lambda found: sum(map(position, found))),
    "count where": (drift.agg.count(where=is_odd), lambda found: sum(map(is_odd, found))),
    "distinct_count where": (
        drift.agg.distinct_count(position, where=is_odd),
        lambda found: len({position(each) for each in found if is_odd(each)}),
    ),
    "var": (
        drift.agg.var(position).then(rounded),
        lambda found: None if len(found) < 2 else rounded(statistics.variance(map(position, found))),
    ),
    "var of all": (
        drift.agg.var(position, ddof=0).then(rounded),
        lambda found: rounded(statistics.pvariance(map(position, found))),
    ),
    "std": (
        drift.agg.std(position).then(rounded),
        lambda found: None if len(found) < 2 else rounded(statistics.stdev(map(position, found))),
    ),
    "mean": (drift.agg.mean(position), lambda found: sum(map(position, found)) / len(found)),
    "min": (drift.agg.min(position), lambda found: min(map(position, found))),
    "max": (drift.agg.max(position), lambda found: max(map(position, found))),
    "min_by": (drift.agg.min_by(position), lambda found: min(found, key=position)),
    "max_by": (drift.agg.max_by(position), lambda found: max(found, key=position)),
    "first": (drift.agg.first(), lambda found: found[0]),
    "last": (drift.agg.last(), lambda found: found[-1]),
    "nth": (drift.agg.nth(2), lambda found: found[2] if len(found) > 2 else None),
    "collect": (drift.agg.collect(position), lambda found: tuple(map(position, found))),
    "sort": (drift.agg.sort(position), lambda found: tuple(sorted(found, key=position))),
    "top": (drift.agg.top(2, position), lambda found: tuple(sorted(found, key=position, reverse=True)[:2])),
    "distinct": (drift.agg.distinct(position), lambda found: distinct(map(position, found))),
    "distinct_count": (drift.agg.distinct_count(position), lambda found: len(set(map(position, found)))),
    "quantile": (drift.agg.quantile(0.5, position), median),
    "approximate_distinct_count": (
        drift.agg.approximate_distinct_count(position),
        lambda found: len(set(map(position, found))),
    ),
    "reduce": (drift.agg.reduce(longer), lambda found: (found[0][0], sum(each[1] for each in found), found[0][2])),
    "fold": (drift.agg.fold(0, lambda n, item: n + 1), len),
    "then": (drift.agg.collect().then(spread), lambda found: found[-1][0] - found[0][0]),
}


@given(timed(), st.sampled_from([(10, 10), (10, 3)]))
@settings(max_examples=8)
def test_aggregates_of_windows_are_those_of_their_items(items: list[flows.Timed], shape: tuple[int, int]) -> None:
    several = drift.agg.several(**{name: aggregate for name, (aggregate, _) in AGGREGATES.items()})
    size, every = shape
    windows = drift.windows.sliding(size, every) if every < size else drift.windows.tumbling(size)
    found = rows(windows, items, True, flows.ENGINES[1:], several)
    expected = {row[:3]: list(row[3]) for row in in_windows(items, True, size, every, 0)}
    assert {row[:3] for row in found} == set(expected)
    for row in found:
        found = expected[row[:3]]
        assert row[3] == {name: plain(found) for name, (_, plain) in AGGREGATES.items()}


def test_rows_are_flat() -> None:
    items = [(0, 1, 7), (1, 2, 7), (5, 3, 8)]

    def rows_of(write: Callable[[drift.Stream[Any]], drift.Stream[Any]]) -> list[Any]:
        return flows.outputs(flows.flow(write, "in", time=flows.event_time()), {"in": items})

    windows, first = drift.windows.tumbling(4), drift.agg.min(number_of)
    assert rows_of(lambda stream: stream.key_by(value).window(windows).rows(n=drift.agg.count(), first=first)) == [
        {"key": 7, "start": 0, "end": 4, "n": 2, "first": 1},
        {"key": 8, "start": 4, "end": 8, "n": 1, "first": 3},
    ]
    early = drift.windows.every(items=2)
    assert rows_of(lambda stream: stream.window(windows, early=early).rows(n=drift.agg.count())) == [
        {"start": 0, "end": 4, "early": True, "n": 2},
        {"start": 0, "end": 4, "early": False, "n": 2},
        {"start": 4, "end": 8, "early": False, "n": 1},
    ]


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (
            lambda stream: stream.window(drift.windows.count(2)).mean(number_of).rows(),
            r"window\(\.\.\.\)\.rows\(mean=drift",
        ),
        (
            lambda stream: stream.window(drift.windows.count(2)).sink("out"),
            r"window\(\.\.\.\)\.count\(\)\.sink\(\.\.\.\)",
        ),
        (lambda stream: stream.running(drift.agg.count()), r"stream\.key_by\(\.\.\.\)\.running\(\.\.\.\)"),
        (lambda stream: stream.nothing(), "^a stream has no 'nothing'$"),
        (lambda stream: stream.tumbling(9), r"; it is key_by\(...\)\.window\(drift\.windows\.tumbling\(...\)\) here$"),
        (lambda stream: stream.groupby("zone"), "^a stream has no 'groupby'; it is called key_by here$"),
        (lambda stream: stream.agg(n=drift.agg.count()), "no 'agg'; it is called at_end here"),
        (lambda stream: stream.key_by(str).nothing(), "^a keyed stream has no 'nothing'$"),
        (lambda stream: stream.key_by(str).map(len), r"no 'map'; write .*drop_key\(\)\.map.*stream\.map.*\.key_by"),
        (
            lambda stream: stream.key_by(str).sink("out"),
            r"no 'sink'; write key_by.*\.drop_key\(\)\.sink\(\.\.\.\)$",
        ),
        (
            lambda stream: stream.key_by(str).mean("fare"),
            r"window\(\.\.\.\)\.mean\(.*at_end\(drift\.agg\.mean\(.*running\(value=drift\.agg\.mean",
        ),
        (lambda stream: stream.key_by(str).groupby("zone"), "^a keyed stream has no 'groupby'; it is called key_by"),
        (lambda stream: stream.window(drift.windows.count(2)).top(2), r"aggregate\(drift\.agg\.top\("),
        (lambda stream: stream.window(drift.windows.count(2)).nothing(), "^windows have no 'nothing'$"),
    ],
)
def test_a_method_that_streams_have_elsewhere_is_named_there(write: Callable[[Any], Any], words: str) -> None:
    stream = drift.Graph("any").source("numbers")
    with pytest.raises(AttributeError, match=words):
        write(stream)
    assert not hasattr(stream, "__arrow_c_stream__") and not hasattr(copy.copy(stream), "nothing")
    assert repr(copy.copy(stream.key_by(str))) == repr(stream.key_by(str))


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda stream: stream.count(), r"takes the key: count\('zone'\).*at_end\(drift\.agg\.count\(\)\)"),
        (lambda stream: stream.key_by("zone").count("fare"), r"running\(n=drift\.agg\.count\('fare'\)\)"),
        (
            lambda stream: stream.window(drift.windows.count(2), name="twos"),
            r"window takes no name= .*rows\(n=drift\.agg\.count\(\), name=\.\.\.\)",
        ),
        (lambda stream: stream.key_by("zone").window(drift.windows.count(2), size=3), "window takes no size= .*early="),
        (
            lambda stream: stream.window(drift.windows.count(2), n=drift.agg.count()),
            r"behind it: .*\.rows\(n=\.\.\.\)$",
        ),
        (
            lambda stream: stream.window(drift.windows.tumbling(2), allowedLateness="1h"),
            r"it is called allowed here, .*EventTime\(\.\.\., allowed=\.\.\.\) at the source",
        ),
        (lambda stream: stream.filter(str.islower, 2), "filter takes a function, not 2"),
        (
            lambda stream: stream.window(drift.windows.sliding(2**70, every=5)),
            r"sliding\(1180591620717411303424, every=5\) puts each item in 236,118,324,143,482,260,685 windows, and 1,",
        ),
    ],
)
def test_a_call_with_arguments_of_another_step_says_what_to_write(write: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(drift.GraphError, match=words):
        write(drift.Graph("any").source("numbers"))


def test_the_name_of_a_field_counts_and_collects_its_values() -> None:
    rows = [{"zone": "a", "ok": None}, {"zone": "b", "ok": 0}, {"zone": "c", "ok": 3}]
    for schema in (None, {"zone": str, "ok": int}):
        graph = drift.Graph("fields")
        source: Any = graph.source("in") if schema is None else graph.source("in", schema=schema)
        windows = source.window(drift.windows.count(3))
        windows.count("ok").map(lambda window: window.value).sink("counts")
        windows.collect("zone").map(lambda window: window.value).sink("zones")
        windows.rows(n=drift.agg.count("ok"), of=drift.agg.count()).sink("rows")
        assert {item.sink: item.payload for item in drift.run(graph, {"in": rows})} == {
            "counts": 2,
            "zones": ("a", "b", "c"),
            "rows": {"start": 0, "end": 3, "n": 2, "of": 3},
        }


def test_several_predicates_keep_what_all_are_true_of() -> None:
    rows = [{"at": at, "fare": fare} for at, fare in enumerate((1, 5, 9, 20))]
    graph = drift.Graph("predicates")
    source = graph.source("rows", schema={"at": int, "fare": int})
    source.filter(lambda row: row["fare"] > 1, lambda row: row["fare"] < 20).sink("functions")
    source.filter("fare > 1", pl.col("fare") < 20, name="between").sink("expressions")
    source.key_by("at").filter("fare > 1", lambda row: row["fare"] < 20).drop_key().sink("keyed")
    kept: dict[str, list[int]] = {}
    for item in drift.run(graph, {"rows": rows}):
        kept.setdefault(item.sink, []).append(item.payload["fare"])
    assert kept == {sink: [5, 9] for sink in ("functions", "expressions", "keyed")}
    assert "between" in str(graph)


def minus(left: int, right: int) -> int:
    return left - right


@given(timed(), st.integers(1, 12), st.integers(1, 12))
@settings(max_examples=10)
def test_a_function_that_is_not_associative_folds_each_window_from_its_first_payload(
    items: list[flows.Timed], size: int, every: int
) -> None:
    for windows in (drift.windows.sliding(size, every), drift.windows.count(size, every, partial=True)):

        def steps(stream: drift.Stream[Any], aggregate: Any, windows: Any = windows) -> drift.Stream[Any]:
            return stream.map(position).window(windows).aggregate(aggregate)

        expected = flows.outputs(
            flows.flow(partial(steps, aggregate=drift.agg.collect()), "in", time=flows.event_time()), {"in": items}
        )
        for aggregate in (
            drift.agg.reduce(minus),
            drift.agg.several(it=drift.agg.reduce(minus)).then(lambda found: found["it"]),
        ):
            graph = flows.flow(partial(steps, aggregate=aggregate), "in", time=flows.event_time())
            found = flows.outputs(graph, {"in": items})
            assert [each.value for each in found] == [functools.reduce(minus, each.value) for each in expected]


def test_a_reduction_with_a_merge_function_stores_no_payloads() -> None:
    several = drift.agg.several(least=drift.agg.reduce(min, merge=min), most=drift.agg.reduce(max, merge=max))
    items = [(number, number, number % 7) for number in range(30)]
    found = flows.outputs(
        flows.flow(lambda stream: stream.map(value).window(drift.windows.sliding(10, 5)).aggregate(several), "in"),
        {"in": items},
    )
    assert all(each.value == {"least": 0, "most": 6} for each in found[1:-1])
    assert several.mergeable == several


def test_windows_by_number_take_the_items_of_a_batch_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call for each item takes half as long again."""

    calls: list[Any] = []
    one = NumberedStep.__call__

    def called(step: NumberedStep, state: Any, payload: Any) -> Any:
        calls.append(payload)
        return one(step, state, payload)

    monkeypatch.setattr(NumberedStep, "__call__", called)
    graph = flows.flow(lambda stream: stream.key_by(value).window(drift.windows.count(2)).count(), "in")
    assert len(list(drift.run(graph, {"in": [(n, 0, n % 3) for n in range(600)]}))) == 300
    assert not calls


def test_values_are_distinct_by_their_types_as_well() -> None:
    graph = flows.flow(lambda stream: stream.at_end(drift.agg.distinct()), "in")
    assert repr(flows.outputs(graph, {"in": [1, True, 1.0, 1, "1"]})) == "[(1, True, 1.0, '1')]"


def test_a_sum_of_one_flag_is_a_number() -> None:
    graph = flows.flow(lambda stream: stream.at_end(drift.agg.sum(bool)), "in")
    assert repr(flows.outputs(graph, {"in": ["yes"]})) == "[1]"


@pytest.mark.skipif(kernel is None, reason="the kernel is not built here")
@pytest.mark.parametrize(
    ("windows", "leap", "steps", "found", "cuts"),
    [
        (drift.windows.session(20), 20, ("_fire_below", "_fed"), 36, [1, 2, 5]),
        (drift.windows.sliding(100, 40), 0, ("_fire_below",), 51, [1, 9, 17]),
    ],
    ids=["sessions", "sliding windows"],
)
def test_windows_in_order_take_no_steps(
    windows: Any,
    leap: int,
    steps: tuple[str, ...],
    found: int,
    cuts: list[int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A timer that comes as a step of its own costs as much as several items, and so does an item."""
    items = flows.disordered([(number + number // 50 * leap, number, number % 3) for number in range(600)], 1)
    graph = flows.flow(lambda stream: stream.key_by(value).window(windows).count(), "in", time=flows.event_time())
    with monkeypatch.context() as patched:
        for name in steps:
            patched.setattr(KeyedStage, name, None)
        assert len(list(drift.run(graph, {"in": items}, batch_items=20))) == found
    check_goes_on(graph.build(), {"in": items}, cuts, tmp_path)


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "integers": st.integers(-9, 9),
    "large": st.integers(-9, 9) | st.sampled_from([2**53, -(2**62), 2**63, 2**64]),
    "floats": st.floats(-9, 9) | st.sampled_from([0.0, -0.0, float("nan"), float("inf")]),
    "any": st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.floats(-9, 9)),
}


@given(
    st.sampled_from([*_VALUES]).flatmap(
        lambda kind: st.lists(st.tuples(st.integers(0, 30), _VALUES[kind]), min_size=9)
    ),
    st.sampled_from(
        [lambda at: at % 3, lambda at: (at % 2,), lambda at: "ab"[at % 2], lambda at: [1, True, 1.0][at % 3]]
    ),
    st.sampled_from([(9, 4, 1), (8, 4, 0), (3, 5, 2)]),
    st.sampled_from([1, 5, 1000]),
)
def test_slices_of_objects_are_merged_as_one_by_one(
    items: list[tuple[int, Any]],
    key: Callable[[int], Any],
    windows: tuple[int, int, int],
    batch_items: int,
) -> None:
    aggregates = {
        "count": drift.agg.count(),
        "sum": drift.agg.sum(itemgetter(1)),
        "mean": drift.agg.mean(itemgetter(1)),
        "min": drift.agg.min(itemgetter(1)),
        "max": drift.agg.max(itemgetter(1)),
        "then": drift.agg.sum(itemgetter(1)).then(repr),
    }
    graph = drift.Graph("slices")
    policy = drift.EventTime(itemgetter(0), lateness=50)
    keyed = graph.source("in", time=policy).key_by(lambda item: key(item[0])).window(drift.windows.sliding(*windows))
    for name, aggregate in aggregates.items():
        keyed.aggregate(aggregate).sink(name)
    keyed.aggregate(**{name: aggregates[name] for name in ("mean", "count", "max")}).sink("several")
    digests = [
        drift.run(graph, {"in": items}, engine=engine, batch_items=batch_items).finish().digest
        for engine in ("reference", "local")
    ]
    assert digests[0] == digests[1]


def test_windows_of_windows_see_the_results_of_the_same_moment() -> None:
    def steps(stream: drift.Stream[Any]) -> drift.Stream[Any]:
        small = stream.key_by(value).window(drift.windows.tumbling(5)).count()
        return small.window(drift.windows.tumbling(10)).sum(count_of)

    items = [(time, time, time % 3) for time in range(20)]
    found = flows.outputs(flows.flow(steps, "in", time=flows.event_time()), {"in": items})
    assert [(each.start, each.value) for each in found] == [(0, 10), (10, 10)]


def count_of(window: Any) -> int:
    return int(window.value)


def test_a_window_by_arrival_time_counts_items_where_they_are_numbered() -> None:
    graph = flows.flow(lambda stream: stream.window(drift.windows.tumbling(4)).collect(), "in")
    found = flows.outputs(graph, {"in": list("abcdefghij")})
    assert ["".join(each.value) for each in found] == ["abcd", "efgh", "ij"]


def test_a_window_at_the_end_of_time_ends_there() -> None:
    def steps(stream: drift.Stream[Any]) -> drift.Stream[Any]:
        return stream.key_by(value).at_end(drift.agg.count()).window(windows).count()

    items = [(time, time, time % 3) for time in range(6)]
    for windows, count in (
        (drift.windows.tumbling(10), 1),
        (drift.windows.sliding(10, 3), 3),
        (drift.windows.session(4), 1),
    ):
        found = flows.outputs(flows.flow(steps, "in", time=flows.event_time()), {"in": items})
        assert [each.value for each in found] == [3] * count, windows


def test_states_of_windows_that_have_closed_are_forgotten() -> None:
    for windows in (drift.windows.tumbling(10), drift.windows.session(10), drift.windows.sliding(10, 5)):
        graph = drift.Graph("forgets")
        graph.source("in", time=flows.event_time()).key_by(value).window(windows).count().sink("out")
        worker = Worker(Plan(graph.build()), tracks=True)
        metas = [global_time(time, 7, 0, 0) for time in range(1000)]
        worker.turn([("in", Columns(Metas(metas), [(time, time, time) for time in range(1000)], None))])
        worker.settle(END_OF_TIME, END_OF_TIME)
        worker.turn([])
        worker.settle(END_OF_TIME, END_OF_TIME)
        changed = worker.changed(END_OF_TIME).values()
        assert len(changed) and not any(entries.identities for entries in changed), windows


def test_of_keys_that_come_and_go_only_open_windows_are_held() -> None:
    for windows in (drift.windows.tumbling(10, 5), drift.windows.session(10), drift.windows.sliding(10, 5, 3)):
        graph = drift.Graph("holds")
        graph.source("in", time=flows.event_time()).key_by(value).window(windows).count().sink("out")
        worker = Worker(Plan(graph.build()))
        for start in range(0, 20_000, 100):
            times = range(start, start + 100)
            items = Columns(
                Metas([global_time(time, 7, 0, 0) for time in times]), [(time, time, time) for time in times], None
            )
            bound = global_time(start + 100, 0, 0, 0)
            worker.settle(bound, bound)
            worker.turn([("in", items)], heartbeat=bound)
            worker.settle(bound, bound)
            assert 0 < worker.held <= 30, (windows, start, worker.held)


# What is refused.


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda: drift.windows.tumbling(0), r"tumbling takes size= an int of 1 or more.*not 0"),
        (lambda: drift.windows.tumbling(1.5), r"size= an int"),  # type: ignore[arg-type]
        (lambda: drift.windows.sliding(5, 0), r"sliding takes every= an int of 1 or more"),
        (lambda: drift.windows.session(-1), r"session takes gap="),
        (lambda: drift.windows.every(), r"takes items= or time="),
        (lambda: drift.windows.by_rule(3), r"by_rule takes a function, not 3"),  # type: ignore[arg-type]
        (lambda: drift.agg.top(0), r"drift.agg.top takes an int of 1 or more, not 0"),
        (lambda: drift.agg.quantile(50), r"a share from 0 to 1, not 50"),
        (lambda: drift.agg.quantile([0.5, 2]), r"a share from 0 to 1, not 2"),
        (lambda: drift.agg.quantile([]), r"a share from 0 to 1, not None"),
        (lambda: drift.agg.quantile(0.5, interpolation="cubic"), r"interpolation='linear', .* not 'cubic'"),
        (lambda: drift.agg.sum("n", nulls="keep"), r"agg.sum takes nulls='skip' or 'error', not 'keep'"),
        (lambda: drift.windows.tumbling(5, closed="up"), r"tumbling takes closed= one of .*, both, none, not 'up'"),
        (lambda: drift.windows.sliding(5, 2, closed="up"), r"sliding takes closed= one of .*, both, none, not 'up'"),
        (lambda: drift.windows.calendar("1w", start="sun"), r"start= for weeks, a day of monday, .*, not 'sun'"),
        (lambda: drift.windows.calendar("1d", start="sunday"), r"not 'sunday' for '1d'"),
        (lambda: drift.agg.approximate_quantile(2), r"approximate_quantile takes a share from 0 to 1, not 2"),
        (lambda: drift.agg.approximate_quantile(0.5, error=0.0), r"takes an error from 0.00001 to 0.5, not 0.0"),
        (lambda: drift.agg.approximate_distinct_count(precision=17), r"takes a precision from 4 to 16, not 17"),
        (lambda: drift.agg.sum(7), r"drift.agg.sum takes a function or the name of a field, not 7"),  # type: ignore[call-overload]
        (lambda: drift.agg.several(n=drift.agg.count), r"n= <function count.*is no aggregate"),  # type: ignore[arg-type]
        (lambda: _stream().window(60), r"window takes one of drift.windows.*not 60"),  # type: ignore[arg-type]
        (lambda: _stream().window(drift.windows.session(3)).aggregate(), r"aggregate takes one of drift.agg"),  # type: ignore[call-overload]
        (
            lambda: _stream().window(drift.windows.session(3)).aggregate(name=drift.agg.count()),  # type: ignore[call-overload]
            r"name= for its step, not an aggregate.*several\(name=",
        ),
        (
            lambda: _stream().window(drift.windows.session(3)).rows(),
            r"rows takes aggregates by names other than start, end",
        ),
        (
            lambda: _stream().window(drift.windows.session(3)).rows(end=drift.agg.count()),
            r"other than start, end, not end",
        ),
        (lambda: drift.agg.var(ddof=-1), r"var takes an int of 0 or more, not -1"),
        (lambda: drift.agg.count(where=3), r"count takes a function, not 3"),  # type: ignore[call-overload]
        (lambda: _stream().at_end(len), r"is no aggregate"),  # type: ignore[arg-type]
        (lambda: _stream().window(drift.windows.sliding(4, 2), early=3), r"early= takes drift.windows.every"),  # type: ignore[arg-type]
        (lambda: _stream().window(drift.windows.count(4), until=3), r"until= takes a function .*got 3"),  # type: ignore[arg-type]
        (lambda: _stream().window(drift.windows.tumbling(4), until=bool, fill=0), r"until= takes .* no fill="),
    ],
)
def test_what_is_no_window_is_refused_where_it_is_written(write: Callable[[], object], words: str) -> None:
    with pytest.raises(drift.GraphError, match=words) as raised:
        write()
    assert "test_flow_windows.py" in str(raised.value)


def _stream() -> drift.Stream[Any]:
    return drift.Graph("refused").source("in")


def test_a_rule_that_returns_another_value_fails_its_step() -> None:
    graph = flows.flow(lambda stream: stream.window(drift.windows.by_rule(str)).count(), "in")  # type: ignore[arg-type]
    with pytest.raises(drift.StepError, match=r"the rule of windows returned '5'"):
        drift.run(graph, {"in": [5]}).finish()


def test_windows_take_what_an_aggregate_takes() -> None:
    graph = drift.Graph("short")
    numbers = graph.source("numbers").window(drift.windows.count(2))
    rows = graph.source("rows", schema={"v": int}).window(drift.windows.count(2))
    forms: dict[str, list[Any]] = {"sum": [3, 8], "mean": [1.5, 4.0], "min": [1, 3], "max": [2, 5]}
    for name in forms:
        getattr(numbers, name)().map(lambda window: window.value).sink(name)
        getattr(rows, name)("v").map(lambda window: window.value).sink(f"{name} of a field")
    found: dict[str, list[Any]] = {}
    for item in drift.run(graph, {"numbers": [1, 2, 5, 3], "rows": [{"v": n} for n in (1, 2, 5, 3)]}):
        found.setdefault(item.sink, []).append(item.payload)
    assert found == {**forms, **{f"{name} of a field": values for name, values in forms.items()}}


@pytest.mark.parametrize("method", ["sum", "mean", "min", "max"])
def test_a_method_of_windows_ends_the_run_at_none_where_it_is_to(method: str) -> None:
    for schema in (None, {"v": int}):
        graph = drift.Graph("none")
        source: Any = graph.source("rows") if schema is None else graph.source("rows", schema=schema)
        getattr(source.window(drift.windows.count(2)), method)("v", nulls="error").sink("out")
        with pytest.raises(drift.StepError, match="None"):
            drift.run(graph, {"rows": [{"v": 1}, {"v": None}]}).finish()
