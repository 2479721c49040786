"""The tasks of the engine on Spark without Spark: shuffles and sorts in lists, so that many graphs can be tried.

What is tried here is everything but Spark itself: the split into levels, merging, positions, blocks of the digest,
errors. Tasks, the size of batches and when a task takes a piece are drawn.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, permutations
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Case, Input, Recipe, cases, event_inputs, event_time, inputs, payloads, recipes
from test_laws import HARD, Output, _output, reference

import drift
import drift.spark.batches as batches_module
import drift.spark.kernels as kernels_module
import drift.spark.recording as recording_module
from drift.engines.packing import unpacked_output
from drift.engines.settings import Settings
from drift.engines.shipping import packed
from drift.engines.source_feed import SourceFeed
from drift.engines.surroundings import surroundings
from drift.sources import as_source
from drift.spark.batches import ROWS, error_row, record_batch
from drift.spark.blocks import joined_digest
from drift.spark.frames import Reading, _in_own_order, read_rows, stamp_rows
from drift.spark.kernels import RangeEnd, Refused, Work, run_level, run_release
from drift.spark.levels import Levels
from drift.spark.prepare import bounds_of
from drift.spark.recording import STORED_ITEMS, run_stored, store_items
from drift.spark.sampling import RowSample, row_order, sample_rows
from drift.spark.spool import Spool
from drift.spark.streaming_kernels import arrive_rows
from drift.testing.values import Flags, Noted
from drift_barrier.digest import BLOCK_ITEMS, Digest, hash_block
from drift_graph.meta import BEGINNING, END_OF_TIME, varint
from drift_graph.metas import Metas


def in_lists(case: Case, targets: int, splits: int, *, held_max: int = 1000, fused: bool = True) -> Output:
    """A case through the tasks of Spark, one after the other."""
    dataflow = case.dataflow()
    late: list[Any] = []
    sources = {name: as_source(name, given) for name, given in case.sources().items()}
    limits = Settings(batch_items=3, in_flight_max=1000)
    feed = SourceFeed(dataflow, sources, {}, limits, on_late=late.append)
    spool = Spool(feed, held_max)
    tables = list(spool.batches(lambda: None))
    feed.report_late(END_OF_TIME)
    work = Work(packed(dataflow), surroundings(), fused, targets, bounds_of(spool.firsts, targets), spool.end)
    rows = pa.Table.from_batches(tables, schema=ROWS)
    tasks = [rows.slice(at, splits) for at in range(0, len(rows), splits)]
    rows = done(run_level(work, 0, task.to_batches(max_chunksize=2)) for task in tasks)
    return released(work, rows, spool.error)


def released(work: Work, rows: pa.Table, error: Exception | None = None) -> Output:
    """What comes of the rows behind level 0."""
    levels, targets = work.opened(), work.targets
    for level in range(1, levels.last):
        rows = done(run_level(work, level, task.to_batches(max_chunksize=2)) for task in shuffled(rows, targets))
    tasks = shuffled(rows, targets)
    ends: list[RangeEnd] = []
    items: list[tuple[int, bytes, Any, str]] = []
    for task in tasks:
        pieces = [
            row
            for batch in run_release(work, task.to_batches(max_chunksize=3), with_items=True)
            for row in batch.to_pylist()
        ]
        for row in pieces[:-1]:
            encoded, columns, sinks = pickle.loads(row["body"])
            metas, payloads, _ = unpacked_output(encoded, columns)
            names = [sinks] * len(metas) if isinstance(sinks, str) else sinks
            items += zip(range(row["position"], row["position"] + len(metas)), metas, payloads, names)
        if pieces:
            ends.append(pickle.loads(pieces[-1]["body"]))
            if ends[-1].error is not None:
                error = ends[-1].error
                break
    blocks = joined_digest(
        "xxh3_128", [block for end in ends for block in end.blocks], [edge for end in ends for edge in end.edges]
    )
    digest = hash_block("xxh3_128", b"".join(blocks)).hex()
    if isinstance(error, drift.DriftBug):
        raise error
    return _output(items, digest, error)


def done(outputs: Iterator[Iterator[pa.RecordBatch]]) -> pa.Table:
    return pa.Table.from_batches([batch for output in outputs for batch in output], schema=ROWS)


def shuffled(rows: pa.Table, targets: int) -> list[pa.Table]:
    by_target = [rows.filter(pa.compute.equal(rows["target"], target)) for target in range(targets)]
    return [task.sort_by("first") for task in by_target]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that few items make many rows, and parts."""
    monkeypatch.setattr(batches_module, "_BATCH_ITEMS_MIN", 1)
    monkeypatch.setattr(batches_module, "BATCH_ITEMS", 2)
    monkeypatch.setattr(batches_module, "_BATCH_BYTES", 50)
    monkeypatch.setattr(kernels_module, "_READY_ITEMS", 3)
    monkeypatch.setattr(recording_module, "_CHUNK_ITEMS", 3)


tasks = st.sampled_from([1, 2, 3, 7])


@given(cases(), tasks, st.integers(1, 3), st.booleans())
def test_the_tasks_of_spark_give_the_output_of_the_reference(
    case: Case, targets: int, splits: int, fused: bool
) -> None:
    assert in_lists(case, targets, splits, fused=fused) == reference(case, None)  # type: ignore[arg-type]


@given(cases(sources_max=2, steps_max=3, items_max=40), tasks, st.integers(1, 3), st.sampled_from([1, 8, 1000]))
def test_long_inputs_give_the_output_of_the_reference(case: Case, targets: int, splits: int, held_max: int) -> None:
    assert in_lists(case, targets, splits, held_max=held_max) == reference(case, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("recipe", HARD, ids=[f"hard {number}" for number in range(len(HARD))])
def test_hard_graphs_give_the_output_of_the_reference(recipe: Recipe) -> None:
    @settings(max_examples=settings.default.max_examples // 10)
    @given(inputs(recipe.sources, items_max=12), tasks)
    def law(given_inputs: list[Input], targets: int) -> None:
        case = Case(recipe, given_inputs)
        assert in_lists(case, targets, 2) == reference(case, None)  # type: ignore[arg-type]

    law()


@given(cases(failing=True), tasks)
def test_a_failing_function_ends_the_run_where_the_reference_ends(case: Case, targets: int) -> None:
    assert in_lists(case, targets, 2) == reference(case, None)  # type: ignore[arg-type]


@given(recipes(sources_max=1, steps_max=3), event_inputs(16, late="divert"), tasks)
def test_late_items_are_judged_as_by_the_reference(recipe: Recipe, given_input: Input, targets: int) -> None:
    case = Case(recipe, [given_input])
    assert in_lists(case, targets, 2) == reference(case, None)  # type: ignore[arg-type]


def test_nothing_is_released_past_where_one_of_two_inputs_ended_with_an_error() -> None:
    graph = drift.Graph("two")
    times = drift.EventTime(abs, lateness=0)
    graph.source("in0", time=times).merge(graph.source("in1", time=times)).sink("out")
    case: Any = _Given(graph.build(), {"in0": [1, 9], "in1": [2, 6, 3]})
    output = in_lists(case, 1, 2)
    assert output.error is not None and output.error[0] == "LateItem"
    assert output.items == reference(case, None).items  # type: ignore[arg-type]
    assert len(output.items) == 2


@pytest.mark.parametrize("splits", [1, 2, 3])
def test_a_cycle_gets_at_once_all_that_an_input_item_brings_about(splits: int) -> None:
    """An input item comes to the cycle twice, and what it causes by the first way is behind it on the second way."""
    graph = drift.Graph("two ways")
    source, loop = graph.source("in0"), graph.feedback("again")
    first = source.merge(loop).group(lambda pair: pair[1] % 2, 2, name="first")
    side = source.map(lambda pair: (pair[0], pair[1] + 1), name="side")
    around = first.map(lambda window: (window[-1][0], sum(value for _, value in window) % 11), name="around")
    second = around.merge(side).group(lambda pair: pair[1] % 3, 2, name="second")
    second.flat_map(lambda window: [(window[-1][0] - 1, 5)] if window[-1][0] else [], name="back").feed(loop)
    second.sink("out")
    case: Any = _Given(graph.build(), {"in0": [(number % 3, number * 7 % 50) for number in range(20)]})
    assert in_lists(case, 2, splits) == reference(case, None)  # type: ignore[arg-type]


def test_of_several_errors_one_is_told_whichever_came_first() -> None:
    graph = drift.Graph("errors")
    graph.source("in0").sink("out")
    work = Work(packed(graph.build()), surroundings(), True, 1, ())
    rows = [error_row(1, drift.InputError(text), key) for text, key in (("b", b"2"), ("a", b"1"), ("c", b"1"))]
    for order in permutations(rows):
        (end,) = run_release(work, [record_batch(list(order))], with_items=False)
        assert str(pickle.loads(end.column("body")[0].as_py()).error) == "a"


@pytest.mark.parametrize("first", ["long", "short"])
def test_a_grouping_is_above_all_that_come_to_it(first: str) -> None:
    graph = drift.Graph("ways")
    source = graph.source("in0")
    ways = {
        "long": lambda: source.group(abs, 2, name="a").group(len, 2, name="b"),
        "short": lambda: source.group(abs, 2, name="c"),
    }
    ends = [ways[name]() for name in sorted(ways, reverse=first == "short")]
    ends[0].merge(ends[1]).group(len, 2, name="d").sink("out")
    assert [Levels(graph.build()).of[name] for name in "abcd"] == [1, 2, 1, 3]


class _Given(NamedTuple):
    graph: drift.Dataflow
    given: dict[str, list[Any]]

    def dataflow(self) -> drift.Dataflow:
        return self.graph

    def sources(self) -> dict[str, list[Any]]:
        return self.given


class Pickled(Reading):
    """Reads payloads of any kind, in place of columns."""

    def payloads(self, batch: pa.RecordBatch) -> list[Any]:
        return [pickle.loads(each) for each in batch.column(0).to_pylist()]

    def forms(self, batch: pa.RecordBatch, payloads: list[Any]) -> None:
        return None


class _Rows(NamedTuple):
    """A case whose sources are DataFrames, read as they lie: by as many tasks as there are numbers, in that order."""

    work: Work
    names: dict[int, str]
    parts: list[tuple[Reading, pa.Table]]

    def read(self, work: Work) -> pa.Table:
        return done(read_rows(work, reading, rows.to_batches(3)) for reading, rows in self.parts)


def rows_of(case: Case, targets: int, order: list[int]) -> _Rows:
    work = Work(packed(case.dataflow()), surroundings(), True, targets, (), repeats="count")
    tables: list[tuple[Reading, pa.Table]] = []
    for rank, each in enumerate(case.inputs):
        reading = Pickled(f"in{rank}", rank, each.time, "value", ("c0",), False)
        tables.append((reading, pa.table({"c0": pa.array(map(pickle.dumps, each.payloads), pa.binary())})))
    some = [batch for reading, rows in tables for batch in sample_rows(work, reading, rows.to_batches())]
    sample = RowSample([(row["task"], row["first"], row["items"]) for batch in some for row in batch.to_pylist()])
    work = replace(work, bounds=bounds_of(sample.firsts, targets))
    parts: list[tuple[Reading, pa.Table]] = []
    for reading, rows in tables:
        cut = [len(rows) * at // len(order) for at in range(len(order) + 1)]
        parts += [(reading, rows.slice(cut[at], cut[at + 1] - cut[at])) for at in order]
    return _Rows(work, {reading.rank: reading.name for reading, _ in tables}, parts)


@st.composite
def repeating_inputs(draw: st.DrawFn, sources: int) -> list[Input]:
    """Of few times and payloads, so that many are equal; no class of a user's is in a row of Spark."""
    few = draw(st.lists(payloads.filter(lambda each: not isinstance(each, (Noted, Flags))), min_size=1, max_size=2))
    rows = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(few)), max_size=12)
    return [Input(drift.EventTime(event_time, 2), draw(rows)) for _ in range(sources)]


@given(st.data(), tasks)
def test_rows_that_are_read_in_their_own_order_give_the_output_of_the_reference(
    data: st.DataObject, targets: int
) -> None:
    drawn = data.draw(recipes(sources_max=2, steps_max=4, failing=data.draw(st.booleans())))
    recipe = drawn._replace(steps=[step for step in drawn.steps if step[0] != "later"])  # counted before
    case = Case(recipe, data.draw(repeating_inputs(recipe.sources)))
    order = data.draw(st.permutations(range(data.draw(st.integers(1, 3)))))
    rows = rows_of(case, targets, list(order))
    assert released(rows.work, rows.read(rows.work)) == reference(case, None)  # type: ignore[arg-type]


@given(st.data(), tasks)
def test_rows_that_are_stored_for_a_record_are_in_order_and_give_the_output_of_the_reference(
    data: st.DataObject, targets: int
) -> None:
    recipe = data.draw(recipes(sources_max=2, steps_max=4, failing=data.draw(st.booleans())))
    case = Case(recipe, data.draw(repeating_inputs(recipe.sources)))
    order = data.draw(st.permutations(range(data.draw(st.integers(1, 3)))))
    rows = rows_of(case, targets, list(order))
    work = rows.work
    parts = shuffled(rows.read(replace(work, stores=True)), targets)
    stored = [list(store_items(work, rows.names, part.to_batches(max_chunksize=2))) for part in parts]
    heartbeats = dict.fromkeys(rows.names, BEGINNING)
    recorded: list[bytes] = []
    for row in (row for part in stored for batch in part for row in batch.to_pylist()):
        rank, heartbeat = row["rank"], max(heartbeats[row["rank"]], row["heartbeat"])
        metas = Metas.decoded(row["items"], row["metas"])
        assert all(meta >= heartbeats[rank] and meta[8:].startswith(varint(rank)) for meta in metas)
        assert heartbeats[rank] <= heartbeat or not row["heartbeat"]
        heartbeats[rank] = heartbeat
        recorded += metas
    assert len(recorded) == len(set(recorded)) == sum(len(each.payloads) for each in case.inputs)
    again = done(
        run_stored(replace(work, repeats="bug"), rows.names, [batch.select(STORED_ITEMS) for batch in part])
        for part in stored
    )
    assert released(replace(work, repeats="bug"), again) == reference(case, None)  # type: ignore[arg-type]


def test_rows_whose_items_cannot_be_sent_or_have_no_time_end_the_run_with_the_least_of_their_errors() -> None:
    graph = drift.Graph("rows")
    graph.source("in", time=drift.EventTime(abs)).map(lambda number: lambda: number, name="opaque").sink("out")
    work = Work(packed(graph.build()), surroundings(), True, 1, (), repeats="count")
    reading = Reading("in", 0, drift.EventTime(abs), "value", ("c0",), False)

    def ends_with(*tasks: list[Any]) -> Exception | None:
        rows = done(read_rows(work, reading, [pa.record_batch({"c0": task})]) for task in tasks)
        (end,) = run_release(work, shuffled(rows, 1)[0].to_batches(), with_items=False)
        error: Exception | None = pickle.loads(end.column("body")[0].as_py()).error
        return error

    assert "cannot be sent to another process" in str(ends_with([1, 2]))
    texts = [str(ends_with(*order)) for order in permutations([["1"], ["z", "b"], ["c"]])]
    assert set(texts) == {texts[0]} and "payload '1'" in texts[0]


def lowered(row: dict[str, Any]) -> int:
    row["c0"] = row["c0"].lower()  # a second call changes nothing
    return len(row["c0"])


@pytest.mark.parametrize("policy", [drift.EventTime(lowered), drift.EventTime(lambda row: 1, tie=lowered)])
@pytest.mark.parametrize("payload", ["dict", "rows"])
def test_rows_that_a_time_or_tie_function_changes_are_an_error_however_they_are_read(
    policy: drift.EventTime, payload: Any
) -> None:
    graph = drift.Graph("rows")
    graph.source("in", time=policy).sink("out")
    work = Work(packed(graph.build()), surroundings(), True, 1, ())
    reading = Reading("in", 0, policy, payload, ("c0",), False)
    batch = pa.record_batch({"c0": ["A", "b"]})
    (stamped,) = stamp_rows(work, reading, [batch])
    (error,) = stamped.column(stamped.num_columns - 1).to_pylist()
    (arrived,) = arrive_rows(work, reading, [batch])
    found = [pickle.loads(error[4:].partition(b"\0")[2]), pickle.loads(arrived.column("error")[0].as_py())[1]]
    with pytest.raises(Refused) as refused:
        list(_in_own_order(reading, [batch]))
    for each in (*found, refused.value.error):
        assert type(each) is drift.ImpureStep and "'c0': 'A'} and is {'c0': 'a'}" in str(each)


def test_how_rows_are_read_depends_on_their_order_and_on_what_is_equal_in_them() -> None:
    by_column = Reading("in", 0, drift.EventTime(event_time), "value", ("c0",), True)
    by_function = replace(by_column, timed=False)
    tied = replace(by_column, policy=drift.EventTime(event_time, tie=event_time))
    stamps = [number.to_bytes(9, "big") for number in range(100)]
    ordered = RowSample([(task, stamps[50 * task + at], 10) for task in range(2) for at in range(50)])
    crossed = RowSample([(task, stamps[-at], 10) for task in range(2) for at in range(50)])
    crowded = RowSample([(0, stamps[at // 10], 100_000) for at in range(100)])
    few = RowSample([(0, stamps[at], 20_000) for at in range(100)])
    many = RowSample([(task, stamps[at], 10) for task in range(100) for at in (0, 1)])
    samples = [ordered, crossed, crowded, few, many, RowSample([])]
    assert [row_order(by_column, sample, 2) for sample in samples] == [
        "own",
        "time",
        "stamp",
        "spread by time",
        "spread by time",
        "own",
    ]
    assert [row_order(by_function, sample, 2) for sample in samples] == ["own", "stamp", "stamp", "own", "stamp", "own"]
    assert row_order(tied, ordered, 2) == "stamp"


@given(st.integers(0, 3 * BLOCK_ITEMS), st.lists(st.integers(0, 3 * BLOCK_ITEMS), max_size=5))
def test_ranges_hash_to_the_digest_of_the_whole(count: int, cut_at: list[int]) -> None:
    from drift.spark.blocks import PartDigest

    metas = Metas([number.to_bytes(4, "big") for number in range(count)])
    whole = Digest()
    whole.add(metas, list(range(count)))
    places = [0, *sorted(min(at, count) for at in cut_at), count]
    parts = []
    for start, end in pairwise(places):
        part = PartDigest("xxh3_128", start)
        for at in range(start, end, 1000):
            upto = min(at + 1000, end)
            part.add(metas[at:upto], list(range(at, upto)))
        parts.append(part.parts())
    blocks = joined_digest(
        "xxh3_128", [each for part in parts for each in part[0]], [e for part in parts[::-1] for e in part[1]]
    )
    assert hash_block("xxh3_128", b"".join(blocks)).hex() == whole.hexdigest()
