"""Joins beside nested loops over all items, on every engine; Noir's cases; what a join keeps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import flows
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import noisy

import drift
from drift.engines.simulated.simulation import Simulation
from drift.flow.joins import HOWS, AsOfJoin, ExistsJoin, PairJoin
from drift.flow.sides import appended, cut
from drift_graph.later import Later

Items = list[flows.Timed]


def value(item: flows.Timed) -> Any:
    return item[2]


def modulo_5(number: int) -> int:
    return number % 5


def modulo_2(number: int) -> int:
    return number % 2


def number_itself(number: int) -> int:
    return number


@st.composite
def sides(draw: st.DrawFn) -> tuple[Items, Items]:
    both = []
    for letter in "LR":
        times = draw(st.lists(st.integers(0, 20), max_size=12))
        items: Items = [(time, number, draw(st.integers(0, 2))) for number, time in enumerate(times)]
        both.append(flows.disordered([(*item, letter) for item in items], draw(st.integers(0, 100))))  # type: ignore[misc]
    return both[0], both[1]


def by_loops(left: Items, right: Items, within: tuple[int, int] | None, how: str) -> list[tuple[int, Any]]:
    """What a join gives, with times, in no order."""
    before, after = within or (10**9, 10**9)
    pairs = [
        (one, two)
        for one in left
        for two in right
        if value(one) == value(two) and one[0] - before <= two[0] <= one[0] + after
    ]
    met_left, met_right = {one for one, _ in pairs}, {two for _, two in pairs}
    given: list[tuple[int, Any]] = []
    if how == "semi":
        order = {each: (each[0], rank, each[1]) for rank, side in enumerate((left, right)) for each in side}
        for one in met_left:
            first = min((max(order[one], order[two]) for other, two in pairs if other == one))
            given.append((first[0], one))
        return given
    if how != "anti":
        given += [(max(one[0], two[0]), (one, two)) for one, two in pairs]
    ends = {"left": (True, False), "right": (False, True), "full": (True, True), "anti": (True, False)}
    of_left, of_right = ends.get(how, (False, False))
    for wanted, items, met, reach in ((of_left, left, met_left, after), (of_right, right, met_right, before)):
        for item in items if wanted else ():
            if item not in met:
                time = drift.END if within is None else max(item[0] + reach, item[0])
                alone = item if how == "anti" else (item, None) if items is left else (None, item)
                given.append((time, alone))
    return given


def in_no_order(given: Sequence[tuple[int, Any]]) -> list[tuple[int, str]]:
    return sorted((time, repr(payload)) for time, payload in given)


bounds = st.none() | st.tuples(st.integers(-3, 6), st.integers(-3, 6)).filter(lambda pair: sum(pair) >= 0)


@pytest.mark.parametrize("how", HOWS)
@given(data=st.data())
@settings(max_examples=15)
def test_a_join_gives_what_nested_loops_give(how: Any, data: st.DataObject) -> None:
    left, right = data.draw(sides())
    within = data.draw(bounds)
    graph = flows.flow(lambda a, b: a.join(b, value, within=within, how=how), "a", "b", time=flows.event_time())
    found = flows.timed_outputs(graph, {"a": left, "b": right})
    assert in_no_order(found) == in_no_order(by_loops(left, right, within, how))


def test_a_join_with_long_sides_is_the_same_in_batches() -> None:
    left = [(number // 2, number, 1) for number in range(1300)]
    right = [(number, number, 1) for number in range(1, 700, 50)]
    graph = flows.flow(lambda a, b: a.join(b, value, within=(5, 640)), "a", "b", time=flows.event_time())
    assert len(flows.outputs(graph, {"a": left, "b": right}, [{"batch_items": size} for size in (100, 4096)])) > 9_000


@given(
    sides(),
    st.none() | st.integers(0, 6),
    st.sampled_from(["left", "inner", "right", "full"]),
    st.sampled_from(["backward", "forward", "nearest"]),
    st.booleans(),
    st.data(),
)
@settings(max_examples=40)
def test_a_join_as_of_a_time_finds_the_last_before_it_the_first_behind_it_or_the_nearest(
    both: Any, within: int | None, how: Any, direction: Any, exact: bool, data: st.DataObject
) -> None:
    left, right = both
    graph = flows.flow(
        lambda a, b: a.join_as_of(b, value, within=within, how=how, direction=direction, allow_exact=exact),
        "a", "b", time=flows.event_time(),
    )  # fmt: skip
    expected = []
    for one in left:
        found = None
        reach = 99 if within is None else within
        of_key = [two for two in right if value(two) == value(one) and abs(two[0] - one[0]) <= reach]
        before = max((two for two in of_key if two[0] < one[0] + exact), default=None)
        after = min((two for two in of_key if two[0] > one[0] - exact), default=None)
        if direction == "nearest" and before and after:
            found = before if one[0] - before[0] <= after[0] - one[0] else after
        else:
            found = {"backward": before, "forward": after, "nearest": before or after}[direction]
        if found is not None or how in ("left", "full"):
            expected.append((one, found))
    if how in ("right", "full"):
        expected += [(None, two) for two in right if two not in [found for _, found in expected]]
    outputs = flows.timed_outputs(graph, {"a": left, "b": right})
    assert sorted(repr(pair) for _, pair in outputs) == sorted(map(repr, expected))
    assert direction != "backward" or all(time == one[0] for time, (one, _) in outputs if one is not None)
    expected_digest = drift.run(graph, {"a": left, "b": right}, engine="reference").finish().digest
    simulated = Simulation(graph.build(), {"a": left, "b": right}, noisy(data), workers=2, batch_items=3).run()
    assert simulated.error is None and simulated.digest == expected_digest


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, [(0, (0, None)), (3, (None, 0)), (4, (1, 1)), (drift.END, (None, 2))]),
        ({"within": 1}, [(0, (0, None)), (3, (None, 0)), (4, (1, 1)), (6, (None, 2))]),
        ({"direction": "forward"}, [(3, (0, 0)), (3, (None, 1)), (5, (1, 2))]),
        ({"direction": "nearest"}, [(3, (0, 0)), (4, (1, 1)), (drift.END, (None, 2))]),
        ({"how": "right"}, [(3, (None, 0)), (4, (1, 1)), (drift.END, (None, 2))]),
    ],
)
def test_right_items_that_no_left_one_finds_come_when_none_can_any_more(more: Any, expected: Any) -> None:
    """Of two of one time "backward" finds the last and leaves the first, "forward" does the contrary."""
    inputs = {"a": [(0, 0, 0), (4, 1, 0)], "b": [(3, 0, 0), (3, 1, 0), (5, 2, 0)]}
    graph = flows.flow(
        lambda a, b: a.join_as_of(b, value, **{"how": "full", **more}), "a", "b", time=flows.event_time()
    )
    found = flows.timed_outputs(graph, inputs)
    assert [(time, tuple(each and each[1] for each in pair)) for time, pair in found] == expected


LEFT_SCHEMA, RIGHT_SCHEMA = {"at": int, "k": str, "n": int}, {"at": int, "k": str, "m": int}
LEFT = [{"at": at, "k": key, "n": at} for at, key in ((1, "a"), (2, None), (3, None))]
RIGHT = [{"at": at, "k": key, "m": at} for at, key in ((1, None), (2, "a"), (3, None))]
TABLE = pl.DataFrame(RIGHT, schema=RIGHT_SCHEMA)
OF_NULLS: dict[str, Any] = {
    "all pairs": lambda a, b, **more: a.join(b, "k", flat=True, **more),
    "unmatched": lambda a, b, **more: a.join(b, "k", how="full", **more).filter(lambda pair: None not in pair),
    "those that have one": lambda a, b, **more: a.join(b, "k", how="semi", **more),
    "in windows": lambda a, b, **more: a.join(b, "k", within=drift.windows.tumbling(10), **more),
    "as of": lambda a, b, **more: a.join_as_of(b, "k", how="inner", **more),
    "nearest": lambda a, b, **more: a.join_as_of(b, "k", how="inner", direction="nearest", **more),
    "of two fields": lambda a, b, **more: a.key_by("n", "k").join(b.key_by("m", "k"), **more),
    "a table": lambda a, b, **more: a.join_table(TABLE, "k", on="k", how="inner", flat=True, **more).merge(b.limit(0)),
    "a table's pairs": lambda a, b, **more: a.join_table(TABLE, "k", on="k", how="inner", **more).merge(b.limit(0)),
}


@pytest.mark.parametrize("name", OF_NULLS)
def test_a_key_of_none_has_no_pair_unless_nulls_are_equal(name: str) -> None:
    frames = {"a": pl.DataFrame(LEFT, schema=LEFT_SCHEMA), "b": TABLE}
    found = []
    for nulls_equal in (False, True):
        graph = drift.Graph("nulls")
        left = graph.source("a", schema=LEFT_SCHEMA, time=drift.EventTime("at"))
        right = graph.source("b", schema=RIGHT_SCHEMA, time=drift.EventTime("at"))
        OF_NULLS[name](left, right, nulls_equal=nulls_equal).sink("out")
        run = drift.run(graph, {"a": LEFT, "b": RIGHT}, engine="reference")
        found.append(sum(1 for _ in run))
        for sources in ({"a": LEFT, "b": RIGHT}, frames):
            assert drift.run(graph, sources, batch_items=2).finish().digest == run.digest
    without = 0 if name in ("as of", "of two fields") else 1
    assert found[0] == without < found[1]


def test_joins_one_after_the_other_see_each_others_unmatched() -> None:
    def steps(a: Any, b: Any, c: Any) -> Any:
        alone = a.join(b, value, within=(1, 1), how="anti")
        return alone.join(c, value, within=(0, 0), how="full")

    graph = flows.flow(steps, "a", "b", "c", time=flows.event_time())
    inputs = {"a": [(1, 0, "x"), (1, 1, "y")], "b": [(2, 0, "y")], "c": [(2, 0, "x"), (2, 1, "z")]}
    # x of a is alone at 2, and so of the time of c's x; z is alone at the end of its moment, as x is matched.
    assert sorted(map(repr, flows.outputs(graph, inputs))) == [
        "((1, 0, 'x'), (2, 0, 'x'))",
        "(None, (2, 1, 'z'))",
    ]


def window_starts(time: int, windows: Any, times: list[int]) -> list[int]:
    """The starts of the windows that a time is in, where items are at `times`."""
    if windows == drift.windows.tumbling(5):
        return [time // 5 * 5]
    if windows == drift.windows.sliding(6, 2):
        return [start for start in range(-6, 30, 2) if start <= time < start + 6]
    first = [each for at, each in enumerate(times) if not at or each >= times[at - 1] + 3]
    return [max(each for each in first if each <= time)]


@pytest.mark.parametrize(
    "windows, size", [(drift.windows.tumbling(5), 5), (drift.windows.sliding(6, 2), 6), (drift.windows.session(3), 3)],
    ids=["tumbling", "sliding", "session"],
)  # fmt: skip
@given(both=sides(), how=st.sampled_from(HOWS))
@settings(max_examples=15)
def test_a_join_in_windows_pairs_what_is_in_one(windows: Any, size: int, both: Any, how: Any) -> None:
    left, right = both
    graph = flows.flow(lambda a, b: a.join(b, value, within=windows, how=how), "a", "b", time=flows.event_time())
    expected: list[tuple[int, Any]] = []
    for key in range(3):
        of_key = [[each for each in sorted(side) if value(each) == key] for side in (left, right)]
        times = sorted(each[0] for side in of_key for each in side)
        placed: dict[int, tuple[Items, Items]] = {}
        for rank, side in enumerate(of_key):
            for each in side:
                for start in window_starts(each[0], windows, times):
                    placed.setdefault(start, ([], []))[rank].append(each)
        for start, (lefts, rights) in placed.items():
            end = max(each[0] for each in lefts + rights) + 3 if size == 3 else start + size
            given_: list[Any] = [] if how in ("semi", "anti") else [(one, two) for one in lefts for two in rights]
            if (how == "semi" and rights) or (how == "anti" and not rights):
                given_ += lefts
            given_ += [(one, None) for one in lefts if not rights and how in ("left", "full")]
            given_ += [(None, two) for two in rights if not lefts and how in ("right", "full")]
            expected += [(end - 1, each) for each in given_]
    assert in_no_order(flows.timed_outputs(graph, {"a": left, "b": right})) == in_no_order(expected)


def test_the_rule_of_windows_in_which_a_join_pairs_gets_the_payloads_of_both_sides() -> None:
    windows = drift.windows.by_rule(lambda item: "close" if item[0] % 4 == 0 else "go on")
    graph = flows.flow(lambda a, b: a.join(b, value, within=windows), "a", "b", time=flows.event_time())
    inputs = {"a": [(1, 0, ""), (5, 0, "")], "b": [(time, 0, "") for time in (2, 4, 6, 8)]}
    found = [(left[0], right[0]) for left, right in flows.outputs(graph, inputs)]
    assert found == [(1, 2), (1, 4), (5, 6), (5, 8)]


def test_keyed_streams_join_by_their_keys() -> None:
    with pytest.raises(
        drift.GraphError,
        match=r"takes another keyed stream, not .*; give that its keys too: .*\(other.key_by\(function\)\)",
    ):
        flows.flow(lambda a, b: a.key_by(modulo_5).join(b), "a", "b")
    graph = drift.Graph("keyed")
    left, right = graph.source("a").key_by(modulo_5), graph.source("b").key_by(modulo_2)
    left.join(right, how="anti").sink("anti")
    left.join_as_of(right, how="inner").sink("as of")
    left.limit(1).sink("first")
    right.dedup().sink("seen")
    by_sink: dict[str, list[Any]] = {}
    for item in drift.run(graph, {"a": range(5), "b": range(5)}):
        by_sink.setdefault(item.sink, []).append(item.payload)
    assert by_sink == {
        "anti": [2, 3, 4],
        "as of": [(0, 0), (1, 1)],
        "first": [0, 1, 2, 3, 4],
        "seen": [0, 1],
    }


# Tables.


@pytest.mark.parametrize("how", ["left", "inner"])
def test_every_kind_of_table_gives_the_same(how: Any) -> None:
    import pandas

    rows = [{"id": 1, "name": "one"}, {"id": 2, "name": "two"}, {"id": 1, "name": "uno"}]
    expected = [(1, "one"), (1, "uno"), (2, "two"), *([(3, None)] if how == "left" else [])]

    def names(found: Sequence[Any]) -> list[Any]:
        return sorted(((item, row and row["name"]) for item, row in found), key=repr)

    frame = flows.flow(lambda s: s.join_table(pandas.DataFrame(rows), number_itself, on="id", how=how), "in")
    assert names(flows.outputs(frame, {"in": [1, 3, 2]})) == expected

    graph = drift.Graph("table")
    items, table = graph.source("in"), graph.table("rows").map(dict)
    items.join_table(table, number_itself, row_id, how=how).sink("out")
    assert names(flows.outputs(graph, {"in": [1, 3, 2], "rows": rows}, [*flows.ENGINES, flows.ZEROMQ])) == expected
    assert drift.run(graph, {"in": [1, 3, 2] * 1000, "rows": rows}).finish().tombstones == 0

    by_id = flows.flow(lambda s: s.join_table({1: "one", 2: "two"}, number_itself, how=how), "in")
    kept = [(3, None)] if how == "left" else []
    assert flows.outputs(by_id, {"in": [1, 3, 2]}) == [(1, "one"), *kept, (2, "two")]
    assert flows.outputs(by_id, {"in": [True, 1.0]}) == ([(True, None), (1.0, None)] if how == "left" else [])


def row_id(row: dict[str, Any]) -> int:
    return row["id"]  # type: ignore[no-any-return]


def test_a_table_that_comes_among_the_items_is_refused() -> None:
    graph = drift.Graph("late")
    rows = graph.table("rows").key_by(row_id).at_end(drift.agg.first())  # which comes behind everything
    graph.source("in").join_table(rows, number_itself, lambda pair: pair[0]).sink("out")
    with pytest.raises(drift.StepError, match=r"came at time \d+; a table must be complete before"):
        drift.run(graph, {"in": [1], "rows": [{"id": 1}]}).finish()


@pytest.mark.parametrize("called", ["join_table", "cross_join"])
@pytest.mark.parametrize("kind", ["a stream", "a table merged with a stream"])
def test_a_stream_in_place_of_a_table_is_refused_when_it_is_written(called: str, kind: str) -> None:
    graph = drift.Graph("stream")
    items, rows = graph.source("in"), graph.source("rows").map(dict)
    rows = rows if kind == "a stream" else graph.table("more").merge(rows)
    join = {
        "join_table": lambda: items.join_table(rows, number_itself, row_id),
        "cross_join": lambda: items.cross_join(rows),
    }[called]
    with pytest.raises(drift.GraphError, match=rf"{called} \(at .*\) takes a table, and source 'rows' \(at"):
        join()
    if kind != "a stream":
        assert items.cross_join(graph.table("others").filter(bool).map(dict)) is not None


# What is kept.


def stepped(join: Any, items: Sequence[tuple[int, int]]) -> tuple[int, int, int]:
    """Most entries kept, most timers set at once, and parts of the state at the end, over (time, side) of one key."""
    state: Any = ()
    timers: list[int] = []
    most = most_timers = 0

    def outputs_of(result: Any) -> Any:
        timers.extend(each.time for each in result[1] if type(each) is Later)
        return result[0]

    def fire(bound: int) -> None:
        nonlocal state
        while timers and min(timers) < bound:
            timers.remove(time := min(timers))
            state = outputs_of(join.on_time(state, None, time))

    for time, side in items:
        fire(time)
        state = outputs_of(join(state, (side, None, time), time))
        kept = state[1:2] if isinstance(join, AsOfJoin) else state[:2]
        most = max(most, sum(len(list(chain(*side))) for side in kept))
        most_timers = max(most_timers, len(timers))
    fire(drift.END)
    return most, most_timers, len(state)


@pytest.mark.parametrize("join", [
    PairJoin(3, 2, (False, False), value),
    PairJoin(3, 2, (True, True), value),
    ExistsJoin(3, 2, False, value),
    ExistsJoin(3, 2, True, value),
    AsOfJoin(4, True, value),
], ids=lambda join: repr(join)[:40])  # fmt: skip
@pytest.mark.parametrize("pattern", [(0,), (1,), (0, 1), (0, 0, 0, 1), (1, 1, 1, 0)])
def test_a_join_within_a_time_keeps_what_can_match_and_in_the_end_nothing(join: Any, pattern: tuple[int, ...]) -> None:
    items = [(number, pattern[number % len(pattern)]) for number in range(3000)]
    most, timers, left = stepped(join, items)
    assert most <= 8
    assert timers <= 6
    assert left == 0


@given(st.lists(st.integers(0, 3), max_size=3000), st.integers(1, 400))
@settings(max_examples=20)
def test_a_side_is_a_sequence_cut_at_its_beginning(steps: list[int], span: int) -> None:
    side: Any = ()
    plain: list[tuple[int]] = []
    time = 0
    for step in steps:
        time += step
        side, plain = cut(appended(side, (time,)), time - span), [*plain, (time,)]
        plain = [entry for entry in plain if entry[0] >= time - span]
        assert all(0 < len(chunk) <= 1024 for chunk in side)
    assert list(chain(*side)) == plain


def test_a_long_side_has_few_chunks() -> None:
    side: Any = ()
    for number in range(20_000):
        side = appended(side, (number,))
    assert len(side) <= 20_000 / 1024 + 6


@pytest.mark.parametrize("engine", ["reference", "local"])
@pytest.mark.parametrize(
    "steps",
    [
        lambda a, b, of: a.join(b, of("seller"), of("id")),
        lambda a, b, of: a.join(b, of("id"), how="anti"),
        lambda a, b, of: a.join_as_of(b, of("seller"), of("id")),
        lambda a, b, of: a.join_table({1: "one"}, of("seller")).merge(b),
        lambda a, b, of: a.dedup(of("seller")).merge(b),
        lambda a, b, of: a.dedup(of("seller"), within=2).merge(b),
    ],
)
def test_the_name_of_a_field_stands_for_the_function_that_reads_it(steps: Any, engine: str) -> None:
    sellers = [{"id": number, "name": str(number)} for number in (1, 2, 3)]
    offers = [{"id": number, "seller": seller} for number, seller in enumerate((2, 1, 2, 7, 1))]
    found = []
    for of in (str, itemgetter):
        graph = drift.Graph("fields")
        steps(graph.source("a"), graph.source("b"), of).sink("out")
        run = drift.run(graph, {"a": offers, "b": sellers}, engine=engine)
        found.append([item.payload for item in run])
    assert found[0] == found[1] != []


@pytest.mark.parametrize(
    "steps, words",
    [
        (lambda a, b: a.join(b, value, how="outer"), "how= one of inner, left, right, full, semi, anti, not 'outer'"),
        (lambda a, b: a.join(b, value, within=3), r"within=3 .* is not a pair of ints \(before, after\)"),
        (lambda a, b: a.join(b, value, within=(1, True)), "is not a pair of ints"),
        (lambda a, b: a.join(b, value, within=(2, -3)), "is empty"),
        (lambda a, b: a.join(b, 3), "takes a function"),
        (lambda a, b: a.join(b, value, 3), "takes a function that gives the key, or the name of a field, not 3"),
        (lambda a, b: a.join([1], value), "is not a stream of it"),
        (lambda a, b: a.join_as_of(b, value, within=-1), "within=-1"),
        (lambda a, b: a.join_as_of(b, value, how="semi"), "how= left, inner, right or full"),
        (lambda a, b: a.join_as_of(b, value, direction="both"), "direction= one of backward, forward, nearest"),
        (lambda a, b: a.key_by(value).rolling(0, n=drift.agg.count()), "a span of 1 or more"),
        (lambda a, b: a.key_by(value).rolling("5s", closed="all", n=drift.agg.count()), "closed= one of right, left"),
        (lambda a, b: a.join_table({}, value, on="x"), "a mapping has its keys"),
        (lambda a, b: a.join_table([1], value), "a table is a mapping"),
        (lambda a, b: a.join_table({}, value, how="full"), "how= left or inner"),
        (lambda a, b: a.join_table({object(): 1}, value), "join_table value"),
    ],
)
def test_what_means_nothing_is_refused(steps: Any, words: str) -> None:
    graph = drift.Graph("refused")
    with pytest.raises(drift.GraphError, match=words):
        steps(graph.source("a"), graph.source("b"))
