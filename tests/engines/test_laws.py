"""The laws of the design, 1 to 6 and 8, over generated dataflows, inputs and schedules.

Each engine is compared with the reference, which is too simple to be wrong. Law 7 is about
recovery, and comes with it.
"""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from operator import itemgetter
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from neighbours import neighbours
from strategies import (
    Case,
    Input,
    Recipe,
    arrival_inputs,
    build,
    cases,
    event_inputs,
    event_time,
    few_keys,
    inputs,
    noisy,
    one_key,
    opaque,
    payloads,
    recipes,
    simulation,
)
from tight import LEAST_MEMORY, Limits, drawn, limited

import drift
import drift.machines.differences as differences_module
from drift.engines.simulated.outcome import SimulatedOutput
from drift.engines.simulated.simulation import Simulation
from drift.machines.nodes import worker as worker_node
from drift.operators import State, Timer
from drift_barrier.barrier import FAILURES
from drift_graph.canonical import canonical, form_of
from drift_graph.meta import END_OF_TIME, global_time_of, varint
from drift_graph.operators import Group
from drift_graph.reference import Reference


class Output(NamedTuple):
    """All that two runs are compared by."""

    items: list[tuple[int, bytes, bytes, str]]
    digest: str
    error: tuple[str, str, bytes, str] | None


def _output(rows: Iterable[tuple[int, bytes, Any, str]], digest: str, error: Exception | None) -> Output:
    """What a run gave; law 2: its metas strictly increase."""
    items = [(position, meta, canonical(payload), sink) for position, meta, payload, sink in rows]
    assert [position for position, *_ in items] == list(range(len(items)))
    assert all(below < above for (_, below, *_), (_, above, *_) in pairwise(items))
    shown = None
    if error is not None:
        step, meta = getattr(error, "step", ""), getattr(error, "meta", b"")
        shown = (type(error).__name__, step, meta, str(error))
    return Output(items, digest, shown)


def run_with(case: Case, data: st.DataObject, *, engine: str, **more: Any) -> Output:
    """A case through `drift.run`."""
    run = drift.run(case.dataflow(), case.sources(), engine=engine, **more)
    items: list[tuple[int, bytes, Any, str]] = []
    error: Exception | None = None
    try:
        items.extend((item.position, item.meta, item.payload, item.sink) for item in run)
    except drift.DriftError as raised:
        if isinstance(raised, drift.DriftBug):
            raise
        error = raised
    return _output(items, run.digest, error)


def simulated(case: Case, data: st.DataObject, **more: Any) -> Output:
    """A case through the simulator, under a drawn schedule."""
    outcome = simulation(case, data, **more).run()
    return _output(outcome.items(), outcome.digest, outcome.error)


def simulated_on_some(case: Case, data: st.DataObject) -> Output:
    """A case through the simulator, on as many workers as are drawn."""
    return simulated(case, data, workers=data.draw(st.integers(1, 3)))


def over_zeromq(case: Case, data: st.DataObject) -> Output:
    """A case over processes, as many as are drawn; of no items `test_zeromq` has one."""
    assume(any(case.sources().values()))
    return run_with(case, data, engine="zeromq", workers=data.draw(st.integers(1, 3)), batch_items=2)


reference = partial(run_with, engine="reference")


class Engine(NamedTuple):
    """One way to run a case; `share` is the part of the usual number of examples that it is given."""

    name: str
    run: Callable[[Case, st.DataObject], Output]
    share: float = 1.0


#: Every engine there is passes the laws that take an engine: add it here.
ENGINES = [
    Engine("local", partial(run_with, engine="local")),
    Engine("local, item by item", partial(run_with, engine="local", batch_items=1)),
    Engine("local, scans as cycles", partial(run_with, engine="local", fused=False)),
    Engine("simulated", simulated_on_some, 1.5),
    Engine("simulated, 2 workers, scans as cycles", partial(simulated, workers=2, fused=False)),
]
if os.environ.get("DRIFT_TESTS") != "breakages":  # what is broken there is met sooner without processes
    ENGINES.append(Engine("zeromq", over_zeromq, 0.08))


def each_on_every_engine(recipes: list[Recipe]) -> pytest.MarkDecorator:
    """All of them everywhere, but over zeromq every third: its nodes are those of the simulator, and met all there."""
    chosen = [
        pytest.param(engine, recipe, id=f"{engine.name}-hard {number}")
        for engine in ENGINES
        for number, recipe in enumerate(recipes)
        if engine.name != "zeromq" or number % 3 == 0
    ]
    return pytest.mark.parametrize(("engine", "recipe"), chosen)


def examples(engine: Engine, part: float = 1.0) -> settings:
    """That part of the engine's number; the first is the least there is, which over processes is not counted."""
    least = 1 if engine.name == "zeromq" else 2
    return settings(max_examples=max(int(settings.default.max_examples * engine.share * part), least))


# Laws 1 and 8.


class _OpaqueCase(NamedTuple):
    """A source that goes to a sink as it is, and to another through a map that makes some payloads incomparable."""

    given: Input
    divisor: int
    counted: bool

    def dataflow(self) -> drift.Dataflow:
        graph = drift.Graph("opaque")
        stream: drift.Stream[Any] = graph.source("in0", time=self.given.time)
        if self.counted:
            stream = stream.count(key=few_keys)
        stream.sink("plain")
        stream.map(partial(opaque, self.divisor), name="opaque").sink("out")
        return graph.build()

    def sources(self) -> dict[str, list[Any]]:
        return {"in0": self.given.payloads}


@st.composite
def of_sources_that_end_at_late_items(draw: st.DrawFn) -> Case:
    """Such a source ends at the heartbeat it had made, and the others go on to there."""
    several = draw(st.lists(event_inputs(10, late="divert"), min_size=1, max_size=3))
    judged = [
        Input(drift.EventTime(event_time, each.time.lateness), each.payloads)  # type: ignore[union-attr]
        if draw(st.booleans())
        else each
        for each in several
    ]
    return Case(draw(recipes(sources_max=1, steps_max=3))._replace(sources=len(judged)), judged)


class Law(NamedTuple):
    """Cases in which every engine gives the output of the reference.

    Attributes:
        share: the part of an engine's number of examples that it is given.
        error: the name of the only error that may end a run, if not of any.
        memory_too: whether it is also for the least memory. The machines of this process keep a little more than they
            need, for speed; the least is the harder case.
    """

    cases: st.SearchStrategy[Any]
    share: float = 1.0
    error: str = ""
    memory_too: bool = False


LAWS = {
    "any graph": Law(cases()),
    "long inputs that settle on the way": Law(cases(sources_max=2, steps_max=3, items_max=40), 1 / 4, memory_too=True),
    "operators that look at times and neighbours": Law(neighbours(), 1 / 3),
    "late items in a sink": Law(
        st.builds(
            lambda recipe, given_input: Case(recipe, [given_input]),
            recipes(sources_max=1, steps_max=3),
            event_inputs(16, late="divert"),
        ),
        1 / 4,
    ),
    "functions that raise": Law(cases(sources_max=2, steps_max=4, items_max=14, failing=True), 1 / 2, memory_too=True),
    "items that are too late": Law(of_sources_that_end_at_late_items(), 1 / 4, "LateItem"),
    "payloads without canonical form": Law(
        st.builds(_OpaqueCase, arrival_inputs(10) | event_inputs(10), st.integers(2, 5), st.booleans()),
        1 / 4,
        "PayloadError",
    ),
}


@pytest.mark.parametrize(
    ("engine", "name", "memory"),
    [
        pytest.param(engine, name, memory, id=f"{engine.name}-{name}{', least memory' if memory else ''}", marks=marks)
        for engine in ENGINES
        for name, law in LAWS.items()
        for memory in ({}, LEAST_MEMORY)[: 1 + (law.memory_too and engine.name != "zeromq")]
        for marks in [pytest.mark.smoke if name == "late items in a sink" else ()]
    ],
)
def test_every_engine_gives_the_output_of_the_reference(engine: Engine, name: str, memory: Limits) -> None:
    of = LAWS[name]

    @examples(engine, of.share)
    @given(of.cases, st.data())
    def law(case: Any, data: st.DataObject) -> None:
        output = engine.run(case, data)
        assert output == reference(case, data)
        assert output.error is None or of.error in ("", output.error[0])

    with limited(memory):
        law()


#: Graphs that went wrong once, or are known to be hard; the drawn ones seldom come so close.
HARD = [
    # A step that feeds back was declared before a sink of the same stream, so that its rank is lower.
    Recipe(1, [("loop", 0, "plain", 3, 0, 2), ("count", 0, "few")], [0]),
    # Windows of a loop go to a scan: what comes round must come after the scan's state.
    Recipe(1, [("loop", 0, "plain", 3, 3, 2), ("scan", 0, "few", "mixing")], []),
    Recipe(1, [("loop", 0, "inner", 3, 3, 2), ("scan", 0, "one", "merging"), ("scan", 1, "one", "mixing")], [1, 2]),
    Recipe(2, [("count", 0, "own"), ("loop", 3, "scan", 2, 2, 3), ("count", 0, "equal"), ("reduce", 1, "equal")], []),
    # Scans and groupings in a row: a correction of the first corrects the others.
    Recipe(1, [("scan", 0, "few", "merging"), ("group", 0, "few", 3), ("scan", 0, "few", "awkward")], [1]),
    Recipe(1, [("scan", 0, "one", "awkward"), ("scan", 0, "one", "awkward"), ("group", 0, "equal", 2)], [1, 2]),
    # Diamonds in a row, into one bucket.
    Recipe(1, [("diamond", 0, "same", 2), ("diamond", 0, "small", 2), ("group", 0, "one", 4)], []),
    Recipe(1, [("diamond", 0, "same", 2), ("scan", 0, "one", "mixing")], []),
    # Keys that only their types tell apart.
    Recipe(2, [("merge", 0, 1), ("count", 0, "own"), ("group", 0, "awkward", 2)], []),
    Recipe(3, [("merge", 0, 1), ("merge", 0, 3), ("scan", 0, "equal", "mixing"), ("group", 0, "few", 5)], []),
]


@pytest.mark.smoke
@each_on_every_engine(HARD)
def test_hard_graphs_give_the_output_of_the_reference(engine: Engine, recipe: Recipe) -> None:
    @examples(engine, 1 / 15)
    @given(inputs(recipe.sources, items_max=12), st.data())
    def law(given_inputs: list[Input], data: st.DataObject) -> None:
        case = Case(recipe, given_inputs)
        assert engine.run(case, data) == reference(case, data)

    law()


@given(recipes(sources_max=1, steps_max=4), st.data())
def test_in_event_time_the_order_of_arrival_within_lateness_changes_nothing(
    recipe: Recipe, data: st.DataObject
) -> None:
    rows = data.draw(st.lists(st.tuples(st.integers(0, 3), payloads), max_size=8))
    shuffled = data.draw(st.permutations(rows))
    policy = drift.EventTime(event_time, lateness=3)
    first = reference(Case(recipe, [Input(policy, rows)]), data)
    assert simulated(Case(recipe, [Input(policy, shuffled)]), data) == first


@given(recipes(sources_max=1, steps_max=4), st.data())
def test_a_credit_of_few_items_changes_nothing(recipe: Recipe, data: st.DataObject) -> None:
    case = Case(recipe, [data.draw(arrival_inputs(10))])
    assert simulated(case, data, in_flight_max=data.draw(st.integers(1, 4))) == reference(case, data)


# Law 3.


def in_flight(run: Simulation) -> Iterator[bytes]:
    """Global times of all items in messages that nobody has processed."""
    for event in run.in_flight:
        if event.message is not None:
            for _, columns in pickle.loads(event.message.parts):
                yield from map(global_time_of, columns.metas)


@given(cases(), st.integers(1, 3), st.data())
def test_minimal_time_never_goes_back_nothing_below_it_is_in_flight_and_all_below_what_the_barrier_knows_is_released(
    case: Case, workers: int, data: st.DataObject
) -> None:
    whole = reference(case, data).items
    run = simulation(case, data, workers=workers)
    before = run.acker.minimal_time
    released = 0
    while run.step():
        minimal_time = run.acker.minimal_time
        assert minimal_time >= before
        assert all(time >= minimal_time for time in in_flight(run))
        for piece in run.released[released:]:
            assert all(meta < minimal_time for meta in piece.metas)
        before, released = minimal_time, len(run.released)
        assert _items(run) == [item for item in whole if item[1] < run.released_below]
    assert run.acker.minimal_time == END_OF_TIME


def _items(run: Simulation) -> list[tuple[int, bytes, bytes, str]]:
    outcome = SimulatedOutput(run.released, "", None, [], 0)
    return _output(outcome.items(), "", None).items


# Law 5.


@pytest.mark.smoke
@given(cases(items_max=12), st.integers(1, 12), st.booleans(), st.data())
def test_fusing_and_batch_sizes_change_nothing(case: Case, batch_items: int, fused: bool, data: st.DataObject) -> None:
    expected = run_with(case, data, engine="local")
    assert run_with(case, data, engine="local", batch_items=batch_items, fused=fused) == expected


@given(cases(items_max=12), st.integers(1, 3), st.data())
def test_early_stopping_changes_nothing(case: Case, workers: int, data: st.DataObject) -> None:
    """A scan whose states cannot be compared never stops early."""
    boxed = build(case.recipe, [each.time for each in case.inputs], boxed=True)
    outcome = Simulation(boxed, case.sources(), noisy(data), workers=workers).run()
    assert _output(outcome.items(), outcome.digest, None) == reference(case, data)


def test_patience_of_workers_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers wait with every batch, by clocks that differ."""
    monkeypatch.setattr(worker_node, "_PATIENT_ITEMS_MIN", 1)

    @settings(max_examples=settings.default.max_examples // 4)  # of many turns, each
    @given(cases(items_max=12), st.integers(2, 3), st.data())
    def law(case: Case, workers: int, data: st.DataObject) -> None:
        assert simulated(case, data, workers=workers) == reference(case, data)

    law()


def test_sending_more_than_the_net_difference_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences_module, "same", lambda left, right: False)

    @given(cases(items_max=12), st.integers(1, 2), st.data())
    def law(case: Case, workers: int, data: st.DataObject) -> None:
        assert simulated(case, data, workers=workers) == reference(case, data)

    law()


# Laws 4 and 6.


class _Places:
    """Counts, for each place that items come to, each (meta, payload) there."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, bytes, bytes]] = Counter()
        self.tombstones = 0

    def note(self, name: str, columns: Any) -> None:
        for meta, payload, diff in zip(columns.metas, columns.payloads, columns.diffs or [1] * len(columns.metas)):
            if type(payload) not in (State, Timer):
                self.counts[name, meta, form_of(payload)] += diff
                self.tombstones += diff == -1

    def watch(self, run: Simulation) -> None:
        for worker in run.workers:
            for name, stage in worker._stages.items():
                stage.process = self._noting(name, stage.process)  # type: ignore[method-assign]
        add = run.barrier.add

        def noting_add(sink: str, columns: Any) -> None:
            self.note(sink, columns)
            add(sink, columns)

        run.barrier.add = noting_add  # type: ignore[method-assign]

    def _noting(self, name: str, process: Callable[..., Any]) -> Callable[..., Any]:
        def noting(columns: Any, *more: Any) -> Any:
            self.note(name, columns)
            return process(columns, *more)

        return noting


class _PlacesOfReference(Reference):
    """What comes to each grouping and sink in the reference."""

    def __init__(self, dataflow: drift.Dataflow) -> None:
        super().__init__(dataflow)
        self._dataflow = dataflow
        self.seen: set[tuple[str, bytes, bytes]] = set()

    def push(self, origin: str, meta: bytes, payload: Any, parents: tuple[Any, ...] = ()) -> None:
        for operator in self._dataflow.consumers(origin):
            if isinstance(operator, Group) and type(payload) not in (State, Timer):
                self.seen.add((operator.name, meta, form_of(payload)))
            elif operator.kind == "sink":
                rank = varint(self._dataflow.ranks[operator.name])
                self.seen.add((operator.name, meta + rank, form_of(payload)))
        super().push(origin, meta, payload, parents)


@pytest.mark.smoke
@given(cases(items_max=12), st.integers(1, 3), st.booleans(), st.data())
def test_at_the_end_every_tombstone_has_met_one_equal_item_everywhere_and_nothing_is_held(
    case: Case, workers: int, fused: bool, data: st.DataObject
) -> None:
    places = _Places()
    run = simulation(case, data, workers=workers, fused=fused)
    places.watch(run)
    run.run()
    assert [worker.held for worker in run.workers] == [0] * workers
    assert len(run.barrier) == 0
    assert run.acker.in_flight == 0 and run.acker.quiet
    assert [source.unsettled(END_OF_TIME) for source in run.sources] == [0] * len(case.inputs)
    assert set(places.counts.values()) <= {0, 1}
    assert {place for place, count in places.counts.items() if count} == _seen_by_reference(case)


@given(cases(items_max=12), st.integers(1, 3), st.integers(0, 2**32), st.data())
def test_limits_of_what_is_taken_made_and_kept_change_nothing(
    case: Case, workers: int, seed: int, data: st.DataObject
) -> None:
    expected = reference(case, data)
    with limited(drawn(Random(seed))):
        assert run_with(case, data, engine="local") == expected
        assert simulated(case, data, workers=workers) == expected


def _seen_by_reference(case: Case) -> set[tuple[str, bytes, bytes]]:
    dataflow = case.dataflow()
    reference_run = _PlacesOfReference(dataflow)
    plainest = Simulation(dataflow, case.sources())
    for machine in plainest.sources:
        arrived = machine.take(list(case.sources()[machine.name]))
        for meta, payload in zip(arrived.metas, arrived.payloads):
            reference_run.push(machine.name, meta, payload)
    for _ in reference_run.pop(END_OF_TIME):
        pass
    return reference_run.seen


@pytest.mark.smoke
@given(cases(items_max=12), st.data())
def test_the_barrier_may_cancel_at_any_time(case: Case, data: st.DataObject) -> None:
    """It does so by itself only when it holds many tombstones."""
    run = simulation(case, data, workers=2)
    while run.step():
        if data.draw(st.integers(0, 9)) == 0:
            run.barrier._compact()
    assert _items(run) == reference(case, data).items
    assert len(run.barrier) == 0


# Law 8, of hard graphs and what is counted.


#: Calls that fail before a correction as after it, on another payload; steps that fail and are corrected.
HARD_FAILING = [
    Recipe(1, [("group", 0, "one", 2), ("fails", 0, "map", 2)], []),
    Recipe(1, [("group", 0, "one", 3), ("fails", 0, "flat", 3)], []),
    Recipe(1, [("group", 0, "one", 2), ("fails", 0, "key", 3)], []),
    Recipe(1, [("group", 0, "one", 2), ("fails", 0, "scan key", 3)], []),
    Recipe(1, [("fails", 0, "step", 3)], []),
    Recipe(1, [("scan", 0, "few", "mixing"), ("fails", 0, "pair", 5), ("group", 0, "few", 2)], []),
    Recipe(1, [("fails", 0, "step", 9), ("fails", 0, "step", 9), ("count", 0, "few")], [1]),
    Recipe(1, [("fails", 0, "window key", 2)], []),
]


@pytest.mark.smoke
@each_on_every_engine(HARD_FAILING)
def test_failures_that_are_corrected_are_reported_as_the_reference_reports_them(engine: Engine, recipe: Recipe) -> None:
    @examples(engine, 1 / 10)
    @given(event_inputs(10), st.data())
    def law(given_input: Input, data: st.DataObject) -> None:
        case = Case(recipe, [given_input])
        assert engine.run(case, data) == reference(case, data)

    law()


@given(event_inputs(20, late="divert"), st.integers(1, 20), st.data())
def test_diverted_items_are_counted_with_their_reason_whatever_the_batches(
    given_input: Input, batch_items: int, data: st.DataObject
) -> None:
    case = Case(Recipe(1, [("map", 0, "same")], []), [given_input])
    policy: Any = given_input.time
    expected_kept, expected_late = kept_and_late(given_input.payloads, policy.lateness + policy.allowed)
    run = drift.run(case.dataflow(), case.sources(), batch_items=batch_items)
    report = run.finish()
    outcome = simulation(case, data).run()
    for late in (run.late, outcome.late):
        assert [(each.source, canonical(each.payload), each.time) for each in late] == [
            ("in0", canonical(payload), payload[0]) for payload in expected_late
        ]
        assert all(each.time < each.heartbeat and each.reason for each in late)
    assert (report.late_items, report.items_in) == (len(expected_late), len(expected_kept))


def kept_and_late(rows: list[Any], behind_max: int) -> tuple[list[Any], list[Any]]:
    """Judged one by one: those that are further behind than that are late."""
    kept: list[Any] = []
    late: list[Any] = []
    newest: int | None = None
    for row in rows:
        is_late = newest is not None and row[0] < newest - behind_max
        (late if is_late else kept).append(row)
        newest = row[0] if newest is None else max(newest, row[0])
    return kept, late


@given(cases(sources_max=2, steps_max=4, items_max=14, failing=True), st.integers(1, 3), st.data())
def test_failures_that_are_taken_back_leave_no_trace(case: Case, workers: int, data: st.DataObject) -> None:
    """What the barrier was given as failures adds up to the failures that the reference would meet."""
    places = _Places()
    run = simulation(case, data, workers=workers)
    places.watch(run)
    if run.run().error is None:
        left = {place: count for place, count in places.counts.items() if place[0] == FAILURES and count}
        assert left == {}


# Dicts.


def in_order_of_coming(counts: dict[int, int], row: tuple[int, int]) -> tuple[dict[int, int], dict[int, int]]:
    """The state's keys are in the order in which they came last, and the output has that order too."""
    rest = {key: count for key, count in counts.items() if key != row[1]}
    counts = {**rest, row[1]: 1}
    return counts, counts


dicts = drift.Graph("dicts")
dicts.source("rows", time=drift.EventTime(itemgetter(0), lateness=4)).scan(one_key, {}, in_order_of_coming).group(
    one_key, 2
).map(lambda window: [list(counts) for counts in window]).sink("orders")


@drift.testing.deterministic(
    dicts, rows=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=8), check_purity=False
)
def test_a_function_may_go_by_the_order_of_a_dict() -> None:
    """Dicts that differ in nothing else have the same canonical bytes; the machines tell them apart all the same."""
