"""Rows over several processes are processed in columns where nothing is in flight below them, and processes may die."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from operator import itemgetter
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from in_rows import SCHEMA, InBoth, InRows

import drift
from drift.columns.rows import Frame
from drift.flow.joins import OfSide
from drift.machines.checkpoints import DELETED
from drift.machines.keyed import KeyedStage
from drift.machines.maps import Ports
from drift.machines.plan import Plan
from drift.machines.worker import BARRIER, Part, Worker
from drift.testing.check import Case, check
from drift.testing.schedule import Schedule
from drift_graph.graph import Dataflow
from drift_graph.item import Columns, joined, sorted_by_meta
from drift_graph.meta import BEGINNING, END_OF_TIME, global_time, global_time_of, pack_time, varint
from drift_graph.metas import Metas

UNSHRUNK = (Phase.explicit, Phase.generate)  # as in `test_deaths.py`
LATENESS = 6

schedules = st.builds(
    Schedule,
    workers=st.integers(1, 3),
    batch_items=st.sampled_from([2, 8, 32]),
    noise=st.integers(1, 2**32 - 1),
    deaths=st.booleans(),
)
KINDS = [
    drift.windows.tumbling(5),
    drift.windows.tumbling(20),
    drift.windows.sliding(6, every=3),
    drift.windows.sliding(3, every=7),
    drift.windows.session(gap=3),
    drift.windows.count(3),
    "running",
    "rolling",
    "first",
    "pairs",
    "all pairs",
    "left pairs",
    "semi",
    "as of",
]


def graph_of(kind: Any, key: Sequence[str], tie: str | None, *, two: bool, filtered: bool, again: bool) -> Dataflow:
    graph = drift.Graph("windows")
    policy = drift.EventTime("at", lateness=LATENESS, tie=tie)
    stream = graph.source("rows", schema=SCHEMA, time=policy)
    if filtered:
        stream = stream.filter(pl.col("fare") > 1)
    joined = _joined(stream, graph, policy, kind, key) if kind in JOINS else None
    if joined is not None:
        joined.sink("out")
        if again:
            joined.count(key=repr).sink("again")
        return graph.build()
    if two:
        stream = stream.merge(graph.source("more", schema=SCHEMA, time=policy))
    some = stream.key_by(*key or ("zone",))
    if kind == "rolling":
        rolled = some.rolling(4, closed="both", n=drift.agg.count(), total=drift.agg.sum("fare"))
        rolled.sink("out")
        if again:
            rolled.key_by("n").rolling(5, offset=-1, most=drift.agg.max("total")).sink("again")
    elif kind == "first":
        some.dedup().sink("out")
    elif kind == "running":
        made = some.running(n=drift.agg.count(), total=drift.agg.sum("fare"), before=drift.agg.shift("n"))
        made.sink("out")
        if again:
            made.key_by("n").window(drift.windows.count(2)).aggregate(drift.agg.max("total")).sink("again")
    else:
        windows = (some if key else stream).window(kind)
        counted = windows.aggregate(n=drift.agg.count(), total=drift.agg.sum("fare"), least=drift.agg.min("n"))
        counted.sink("out")
        if again:
            counts = counted.key_by(lambda window: window.value["n"]).window(drift.windows.tumbling(9))
            counts.aggregate(drift.agg.count()).sink("again")
    return graph.build()


JOINS = {"pairs": (4, 3), "all pairs": None, "left pairs": (4, 3), "semi": (4, 3), "as of": None}


def _joined(stream: Any, graph: drift.Graph, policy: Any, kind: str, key: Sequence[str]) -> Any:
    """The stream beside another one."""
    other = graph.source("more", schema=SCHEMA, time=policy)
    name = key[0] if key else "zone"
    if kind == "as of":
        return stream.join_as_of(other, name, name)
    how = {"left pairs": "left", "semi": "semi"}.get(kind, "inner")
    return stream.join(other, name, name, within=JOINS[kind], how=how)


@st.composite
def cases(draw: st.DrawFn, kind: Any) -> Case:
    two = draw(st.booleans()) or kind in JOINS
    key = draw(st.sampled_from([("zone",), ("code",), ("zone", "code"), ()]))
    tie, filtered, again = draw(st.sampled_from(["n", None])), draw(st.booleans()), draw(st.booleans())
    dataflow = graph_of(kind, key, tie, two=two, filtered=filtered, again=again)
    inputs: dict[str, list[Any]] = {}
    for start, name in ((0, "rows"), (1000, "more"))[: 1 + two]:
        rows, at = [], 0
        for n, (step, late, zone, code) in enumerate(draw(st.lists(steps, min_size=1, max_size=60))):
            at += step
            fare = n / 7
            rows.append({"zone": zone, "code": code, "at": max(at - late, 0), "n": start + n, "fare": fare})
        inputs[name] = rows
    return Case(dataflow, inputs, draw(schedules))


steps = st.tuples(st.integers(0, 4), st.integers(0, LATENESS), st.sampled_from(["a", "b", "c"]), st.integers(0, 2))


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(max_examples=25, phases=UNSHRUNK)
@given(st.data())
def test_rows_give_what_the_reference_gives_under_any_schedule_and_deaths(kind: Any, data: Any) -> None:
    case = data.draw(cases(kind))
    result = check(case, simulation=data.draw(st.sampled_from([InRows, InRows, InBoth])))
    assert result.failure is None, result.failure


@pytest.mark.parametrize("goes_back", [False, True])
@pytest.mark.parametrize("kind", ["pairs", "as of", "running"])
def test_a_stage_waits_for_all_of_its_items_or_for_none(kind: str, goes_back: bool) -> None:
    """Else rows that had waited would be handed to a logic whose timers the frontier has passed."""
    plan = Plan(graph_of(kind, ("zone",), "n", two=kind in JOINS, filtered=False, again=False))
    (name,) = plan.stages()
    rows = [{"zone": "a", "code": 0, "at": 5, "n": 1, "fare": 0.5}]
    metas = Metas([global_time(5, 0, 0, 0) + varint(0)])
    frames = Columns(metas, Frame(pl.DataFrame(rows, schema=SCHEMA)), None)  # type: ignore[arg-type]
    for waits, *batches in ((True, frames, Columns(metas, rows, None)), (False, Columns(metas, rows, None), frames)):
        worker = Worker(plan, rewinds=goes_back, knows_flight=True)
        assert [worker.keeps(name, each) for each in batches] == [waits, waits]


def test_a_step_behind_others_is_a_level_above_them_unless_all_of_its_items_come_from_the_same_worker() -> None:
    """A timer of a neighbour, which has not fired yet, is not in flight."""
    graph = drift.Graph("first")
    stream = graph.source("rows", schema=SCHEMA).filter(pl.col("fare") > 1)
    sums = stream.key_by("zone").running(total=drift.agg.sum("n"), name="first")
    both = sums.select("zone", "n").merge(graph.source("more", schema=SCHEMA).select("zone", "n"))
    both.key_by("zone").running(total=drift.agg.sum("n"), name="behind").sink("out")
    stream.key_by("code").running(total=drift.agg.sum("n"), name="beside").sink("more out")
    sliding = stream.key_by("code").window(drift.windows.sliding(9, every=3))
    sliding.aggregate(drift.agg.count(), name="sliding").sink("sliding out")
    plan = Plan(graph.build())
    levels = plan.levels
    assert {name: (levels.of[name], levels.reads[name], levels.behind[name]) for name in levels.reads} == {
        "first": (0, 0, 1),
        "behind": (1, 1, 2),
        "beside": (0, 0, 1),
        "sliding.slices": (0, 0, 1),
        "sliding": (0, 0, 1),
    }
    assert (levels.of["rows"], levels.level_of("out"), levels.count) == (0, 2, 3)


class Going:
    """A stage that gets rows in order, and goes back now and then. `paged`: its states may be dropped from memory."""

    def __init__(self, kind: Any, times: list[int], *, paged: bool = False) -> None:
        self._paged, self._dropped, self._below = paged, dict[Any, Any](), dict[Any, Any]()
        self._plan = Plan(graph_of(kind, ("zone",), "n", two=False, filtered=False, again=False))
        *before, self._name = (name for name, level in self._plan.levels.reads.items() if not level)
        rows = [{"zone": "abbbc"[n % 5], "code": 0, "at": at, "n": n, "fare": n / 7} for n, at in enumerate(times)]
        ties = np.arange(len(rows)).astype(np.uint64)
        metas = Metas.stamped(np.array(times, np.int64), ties, varint(0), varint(0))
        payloads: Any = Frame(pl.DataFrame(rows, schema=SCHEMA))
        if kind in JOINS:
            payloads = self._of_both_sides(payloads)
        self._rows = Columns(Metas(metas), payloads, None)
        for name in before:
            self._rows = self._behind(name)
        self.bounds = [BEGINNING, *self._rows.metas, END_OF_TIME]
        self.kept: dict[Any, Any] = {}  # by the checkpoints
        self.sent: list[tuple[bytes, Any]] = []
        self.stage = self._new()
        self.bound = self.checkpoint = BEGINNING

    def _of_both_sides(self, rows: Any) -> Any:
        maps = [each.function for each in self._plan.dataflow.operators if hasattr(each, "function")]
        left, right = (each.each(rows) for each in sorted((f for f in maps if type(f) is OfSide), key=lambda f: f.side))
        order = [at + len(rows) * (at % 2) for at in range(len(rows))]
        return left.joined([right]).in_order(order)

    def _behind(self, name: str) -> Columns:
        """What another stage makes of the rows for this one."""
        stage = self._plan.stage(name, (name,))
        stage.complete_below = stage.heartbeat = END_OF_TIME
        ports: Ports = {}
        for out in (stage.process(self._rows, {}), stage.fire({})):
            self._plan.programs[name].run(out, ports, stage.suffix)
        return sorted_by_meta(joined(ports.get(self._name, [])))

    def _new(self) -> KeyedStage:
        make = partial(self._plan.stage, self._name, (self._name,))
        stage = make()
        stage.go_back_by(make)
        stage.track()
        if self._paged:
            self._dropped, self._below = {}, self.kept.copy()
            stage.page(self._look_up)
        return stage

    def _look_up(self, keys: Sequence[Any]) -> list[tuple[Any, Any]]:
        found = [(key, {**self._below, **self._dropped}.get(key, DELETED)) for key in keys]
        return [(key, state) for key, state in found if state is not DELETED]

    def drop(self, *, recent: bool) -> None:
        for entries in self.stage.drop(2, recent=recent):
            self._dropped.update(entries)

    def go_to(self, bound: bytes, minimal_time: bytes) -> None:
        """Give it the rows below a bound, in two batches, and fire the timers."""
        start, end = (self._rows.metas.count_below(each) for each in (self.bound, bound))
        self.stage.complete_below = self.stage.heartbeat = self.bound = bound
        self.stage.ended = bound == END_OF_TIME
        parts = [(start, (start + end) // 2), ((start + end) // 2, end)]
        for out in (*(self.stage.process(self._rows.slice(*part), {}) for part in parts), self.stage.fire({})):
            self.sent += zip(out.metas, out.payloads)
        self.stage.settle(minimal_time)

    def keep(self, checkpoint: bytes) -> None:
        self.checkpoint = checkpoint
        for key, state in self.stage.changed(checkpoint):
            self.kept[key] = state
            if state is DELETED:
                del self.kept[key]

    def go_back(self, place: bytes, *, anew: bool) -> None:
        """To a minimal time; or another stage takes over, from the last checkpoint."""
        if anew:
            place, self.stage = self.checkpoint, self._new()
            kept = self.kept.copy()
            self.stage.restore(
                [(key, entry) for key, entry in kept.items() if self.stage.is_timed and entry[1]],
                lambda keys: [(key, kept[key]) for key in keys if key in kept],
            )
        else:
            self.stage.rewind(place)
        self.stage.settle(place)
        self.stage.heartbeat, self.stage.ended, self.bound = place, False, place
        self.sent = [each for each in self.sent if each[0] < place]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(phases=UNSHRUNK)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=40).map(sorted), st.booleans(), st.data())
def test_a_stage_that_goes_back_sends_the_same_again(kind: Any, times: list[int], paged: bool, data: Any) -> None:
    going, expected = Going(kind, times, paged=paged), Going(kind, times)
    expected.go_to(END_OF_TIME, BEGINNING)
    minimal_time = BEGINNING
    for act in data.draw(st.lists(st.sampled_from(["go", "go", "keep", "back", "anew", "drop"]), max_size=12)):
        between = [each for each in going.bounds if minimal_time <= each <= going.bound]
        if act == "go":
            bound = data.draw(st.sampled_from([each for each in going.bounds[:-1] if each >= going.bound]))
            minimal_time = data.draw(st.sampled_from([each for each in between if each <= bound]))
            going.go_to(bound, minimal_time)
            continue
        if act == "drop":
            going.drop(recent=data.draw(st.booleans()))
            continue
        minimal_time = data.draw(st.sampled_from(between))
        if act == "keep":
            going.keep(minimal_time)
        else:
            going.go_back(minimal_time, anew=act == "anew")
            minimal_time = going.bound
    going.go_to(END_OF_TIME, END_OF_TIME)
    assert sorted(going.sent, key=itemgetter(0)) == sorted(expected.sent, key=itemgetter(0))
    assert going.stage.held == 0


@pytest.mark.parametrize("times", [[0, 1, 2, 3, 30, 31, 60, 61], [0, 0, 1, 2, 2, 3, 5, 5]], ids=["apart", "near"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_stage_goes_back_after_a_checkpoint_was_taken_of_what_had_gone_back(kind: Any, times: list[int]) -> None:
    """What steps keep is asked for by both, and states that were put back are not in arrays before the next batch."""
    expected = Going(kind, times)
    expected.go_to(END_OF_TIME, BEGINNING)
    for at, anew in product(range(2, len(expected.bounds) - 1, 2), (False, True)):
        going = Going(kind, times)
        for checkpoint in (going.bounds[1], going.bounds[at]):
            going.go_to(END_OF_TIME, going.bounds[1])
            going.keep(checkpoint)
            going.go_back(checkpoint, anew=anew)
        going.go_to(END_OF_TIME, END_OF_TIME)
        assert sorted(going.sent, key=itemgetter(0)) == sorted(expected.sent, key=itemgetter(0))


@pytest.mark.parametrize(
    "times", [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [0, 0, 0, 1, 2, 2, 2, 3, 3, 5]], ids=["apart", "near"]
)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_stage_in_place_of_another_one_goes_back_and_finds_states_that_it_had_looked_up(
    kind: Any, times: list[int]
) -> None:
    expected = Going(kind, times)
    expected.go_to(END_OF_TIME, BEGINNING)
    for at, place in enumerate(expected.bounds[1:-1], 1):
        going = Going(kind, times)
        going.go_to(place, place)
        going.keep(place)
        going.go_back(place, anew=True)
        for bound in going.bounds[at + 1 :]:
            going.go_to(bound, place)
        going.go_back(place, anew=False)
        going.go_to(END_OF_TIME, END_OF_TIME)
        assert sorted(going.sent, key=itemgetter(0)) == sorted(expected.sent, key=itemgetter(0))


@pytest.mark.parametrize("times", [[0, 1, 1, 2, 5, 7, 8, 12, 13], [0, 0, 1, 3, 3, 4, 5, 30]], ids=["spread", "near"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_stage_that_has_gone_back_is_as_one_that_has_gone_no_further(kind: Any, times: list[int]) -> None:
    """Its states and timers, and those of a checkpoint while it is further, are those as of the place."""
    expected = Going(kind, times)
    expected.go_to(END_OF_TIME, BEGINNING)
    bounds = expected.bounds
    for at, place in enumerate(bounds[1:-1], 1):
        there = Going(kind, times)
        there.go_to(place, BEGINNING)
        there.keep(place)
        for first, second in product((bounds[at // 2], bounds[at]), (bounds[at + 1], END_OF_TIME)):
            ahead, back = Going(kind, times), Going(kind, times)
            for going in (ahead, back):
                going.go_to(first, BEGINNING)
                going.go_to(second, BEGINNING)
            ahead.keep(place)
            back.go_back(place, anew=False)
            back.keep(place)
            assert ahead.kept == back.kept == there.kept
            for _ in range(2):
                back.go_to(END_OF_TIME, BEGINNING)
                assert sorted(back.sent, key=itemgetter(0)) == sorted(expected.sent, key=itemgetter(0))
                back.go_back(place, anew=False)


def test_states_that_are_looked_up_after_going_back_are_in_the_next_checkpoint() -> None:
    going, expected = Going("running", list(range(12))), Going("running", list(range(12)))
    expected.go_to(END_OF_TIME, BEGINNING)
    first, second, third = (going.bounds[at] for at in (5, 6, 8))
    going.go_to(first, first)
    going.keep(first)
    going.go_back(first, anew=True)
    going.go_to(second, second)  # the row of one key
    going.go_back(second, anew=False)
    going.go_to(third, third)  # the other one's
    going.keep(third)
    going.go_back(third, anew=True)
    going.go_to(END_OF_TIME, END_OF_TIME)
    assert going.sent == expected.sent


def test_keys_are_forgotten_whose_timers_were_set_again_by_rows_of_the_same_batch() -> None:
    """All of the second batch fires at once, and the timer that was to forget before its last row is set anew by it."""
    going = Going("rolling", [0, 1, 5, 8, 9, 60])
    going.go_to(going.bounds[6], BEGINNING)
    going.keep(going.bounds[6])
    assert going.kept == {}


@pytest.mark.parametrize("kind", ["pairs", "as of", "rolling"])
def test_states_of_before_a_death_are_handed_back_where_the_first_rows_after_it_were_taken_back(kind: Any) -> None:
    """No row of these has come to this stage, of whose meta those of timers could be made."""
    going, expected = Going(kind, list(range(12))), Going(kind, list(range(12)))
    expected.go_to(END_OF_TIME, BEGINNING)
    first = going.bounds[5]
    going.go_to(first, first)
    going.keep(first)
    going.go_back(first, anew=True)
    going.go_to(going.bounds[8], first)
    going.go_back(first, anew=False)
    entries = going.stage.as_of(first, list(going.kept))
    assert dict(entries).keys() == going.kept.keys()
    going.go_to(END_OF_TIME, END_OF_TIME)
    assert sorted(going.sent, key=itemgetter(0)) == sorted(expected.sent, key=itemgetter(0))


def test_windows_that_were_handed_back_within_a_moment_are_there_again_after_going_back() -> None:
    """The form in order has nothing then, which is not all that there was before the next step."""
    kind = drift.windows.sliding(6, every=3)
    going, expected = Going(kind, [0, 0, 0, 2, 2, 9]), Going(kind, [0, 0, 0, 2, 2, 9])
    expected.go_to(END_OF_TIME, BEGINNING)
    ends = sorted({global_time_of(meta) for meta, _ in expected.sent})
    for place in ends[1:]:
        going = Going(kind, [0, 0, 0, 2, 2, 9])
        going.go_to(place, BEGINNING)
        for _ in range(2):
            going.go_to(END_OF_TIME, place)
            going.go_back(place, anew=False)
        going.go_to(END_OF_TIME, END_OF_TIME)
        assert sorted(going.sent, key=itemgetter(0)) == sorted(expected.sent, key=itemgetter(0))


def rows_at(times: Sequence[int], diffs: list[int] | None = None) -> Part:
    """Rows of one key, as a part for the program of their source."""
    rows = pl.DataFrame({"zone": ["a"] * len(times), "n": [10 * at for at in times], "at": times})
    return "rows", Columns(Metas(global_time(at, 0, at, 0) for at in times), Frame(rows), diffs)


@pytest.mark.parametrize("kind", ["running", "rolling", drift.windows.tumbling(5), drift.windows.session(3)])
def test_rows_that_were_taken_back_before_their_turn_are_not_there_after_going_back(kind: Any) -> None:
    graph = drift.Graph("taken back")
    source = graph.source("rows", schema={"zone": str, "n": int, "at": int}, time=drift.EventTime("at"))
    keyed, total = source.key_by("zone"), drift.agg.sum("n")
    if isinstance(kind, str):
        made = keyed.rolling(3, total=total) if kind == "rolling" else keyed.running(total=total)
    else:
        made = keyed.window(kind).rows(total=total)
    made.sink("out")
    plan = Plan(graph.build())
    worker = Worker(plan, rewinds=True, knows_flight=True)

    def totals(*parts: Part, below: int) -> list[int]:
        worker.settle(pack_time(1), frontiers=[pack_time(below)] * plan.levels.count)
        sent = worker.turn(parts).get(BARRIER, ())
        assert all(columns.diffs is None for _, columns in sent)
        return [row["total"] for _, columns in sent for row in columns.payloads]

    totals(rows_at([1, 2, 4]), below=1)
    totals(rows_at([2, 3, 3], [-1, 1, -1]), rows_at([2]), below=1)
    first = [*totals(below=3), *totals(below=30)]
    worker.rewind(pack_time(2))
    again = [*totals(rows_at([2, 4]), below=3), *totals(below=30)]
    expected = {"running": ([10, 30, 70], [30, 70]), "rolling": ([10, 30, 60], [30, 60])}
    assert (first, again) == expected.get(kind, ([70], [70]))
