"""Streams on Spark: micro-batches cut anywhere, and a driver killed anywhere, give the output of a run over it all."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spark_shares import digest_and_error, in_reference, shuffled
from strategies import Case, inputs, recipes

import drift
import drift.spark
from drift.engines.shipping import packed
from drift.engines.surroundings import surroundings
from drift.spark.batches import LATER, ROWS, STATE, BatchRow, record_batch, row_of, rows_in
from drift.spark.kernels import RangeEnd, Work, release_later, run_level
from drift.spark.levels import StateWriting
from drift.spark.states import StateRows
from drift.spark.streaming import Stream, _summary
from drift.spark.streaming_kernels import END, STATE_COLUMNS, moved, release
from drift.spark.streaming_store import Commit, Store, commit_bytes, commit_of
from drift.testing.values import Flags, Noted
from drift_graph.item import Columns
from drift_graph.meta import BEGINNING, END_OF_TIME
from drift_graph.metas import Metas
from drift_graph.times import SourceMachine

# Without Spark: the state that a level writes is all that it needs.


def all_items(case: Case) -> list[tuple[bytes, str, Any]]:
    """Every input item with its global time and source, in order."""
    found: list[tuple[bytes, str, Any]] = []
    for rank, source in enumerate(case.dataflow().sources):
        arrived = SourceMachine(source.name, rank, source.time).take(case.sources()[source.name])
        found += [(meta, source.name, payload) for meta, payload in zip(arrived.metas, arrived.payloads)]
    return sorted(found, key=lambda item: item[0])


def micro_batch(work: Work, items: list[tuple[bytes, str, Any]], states: list[BatchRow], start: int) -> tuple[Any, ...]:
    """What `Stream` does with Spark: states to go on with, digest parts, error and position after some items."""
    levels = work.opened()
    rows = [row_of(0, 0, name, Columns(Metas([meta]), [payload], None)) for meta, name, payload in items]
    for_sinks = [row for row in states if row.port == LATER and row.level == levels.last]
    others = [row for row in states if row not in for_sinks]
    batches = [*run_level(work, 0, [record_batch(rows)]), record_batch(others)]
    batches += release_later(work, [record_batch(for_sinks)])
    for level in range(1, levels.last):
        batches = [out for share in shuffled(batches, work.targets) for out in run_level(work, level, share)]
    stored: list[BatchRow] = []
    for share in shuffled(batches, work.targets):
        for batch in release(work, share, start=start, schema=SCHEMA, sink=None, columns=None):
            ported = batch.filter(batch.column(STATE_COLUMNS[3]).is_valid())
            stored += rows_in(ported.select(STATE_COLUMNS))
    ends = [(row.items, pickle.loads(row.body)) for row in stored if row.port == END]
    states = [row._replace(level=row.items) for row in stored if row.port in (STATE, LATER)]
    return states, ends, max((position for position, _ in ends), default=start)


POSITION = [("position", pa.int64()), ("time", pa.int64()), ("global_time", pa.binary()), ("meta", pa.binary())]
PAYLOAD = [("sink", pa.string()), ("payload", pa.binary())]
SCHEMA = pa.schema([*POSITION, *PAYLOAD, *(pa.field(name, field.type) for name, field in zip(STATE_COLUMNS, ROWS))])


def rows_moved(work: Work, states: list[BatchRow]) -> list[BatchRow]:
    return [row for batch in moved(work, [record_batch(states)]) for row in rows_in(batch)]


def in_micro_batches(case: Case, cuts: list[int], targets: list[int], everything: list[bool]) -> tuple[str, str]:
    """Digest and error of a case that is cut before some of its items.

    Args:
        targets: of each micro-batch.
        everything: whether a micro-batch stores the states of all keys, as it does where the targets change.
    """
    items = all_items(case)
    states: list[BatchRow] = []
    ends: list[tuple[int, RangeEnd]] = []
    position = 0
    before = BEGINNING
    for number, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(items)])):
        upto = items[end][0] if end < len(items) else END_OF_TIME
        changes = number > 0 and targets[number] != targets[number - 1]
        everything[number] |= changes
        writing, since, before = StateWriting(number, everything[number], before), before, upto
        dataflow, classes = packed(case.dataflow()), (Noted, Flags)
        work = Work(
            dataflow, surroundings(), True, targets[number], (), heartbeat=upto, writes_state=writing, classes=classes
        )
        if changes:
            states = rows_moved(replace(work, begin=since), states)
        stored, more, position = micro_batch(work, items[begin:end], states, position)
        states = [*stored, *(() if everything[number] else states)]  # the later ones first: their order says nothing
        ends += more
        if any(end.error is not None for _, end in more):
            break
    return digest_and_error([end for _, end in ends])


#: What a later micro-batch goes on from, at the end of every graph.
REMEMBERING = [
    ("count", 0, "few"), ("group", 0, "one", 3), ("scan", 0, "few", "mixing"), ("reduce", 0, "few"),
    ("process", 0, "few"),
]  # fmt: skip


@pytest.mark.smoke
@settings(max_examples=settings.default.max_examples // 2)
@given(st.data())
def test_micro_batches_that_are_cut_anywhere_give_the_output_of_the_reference(data: st.DataObject) -> None:
    recipe = data.draw(recipes(sources_max=2, steps_max=3, failing=data.draw(st.booleans())))
    recipe = recipe._replace(steps=[*recipe.steps, data.draw(st.sampled_from(REMEMBERING))])
    case = Case(recipe, data.draw(inputs(recipe.sources, items_max=12)))
    count = sum(len(each.payloads) for each in case.inputs)
    cuts = sorted(data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=4))) if count else []
    everything = data.draw(st.lists(st.booleans(), min_size=len(cuts) + 1, max_size=len(cuts) + 1))
    targets = data.draw(st.lists(st.integers(1, 3), min_size=len(cuts) + 1, max_size=len(cuts) + 1))
    assert in_micro_batches(case, cuts, targets, everything) == in_reference(case)


MOVED = """
import dataclasses
import drift

@dataclasses.dataclass(frozen=True)
class Sum:
    trips: int
    last: str

def add(state, trip, time):
    state = Sum(state.trips + 1, trip["taxi"])
    return state, [state.trips, drift.at(time + 50, state)]

def end(state, note, time):
    return state, [(note.trips, note.last, state.trips)]

def made():
    graph = drift.Graph("sums")
    trips = graph.source("trips", time=drift.EventTime(lambda trip: trip["time"], lateness=40))
    sums = trips.process(lambda trip: trip["taxi"], Sum(0, ""), add, end, name="sums")
    sums.flat_map(lambda n: [n, drift.at(drift.END, Sum(1, str(n)))], name="last", later=True).sink("out")
    return graph.build()
"""


def test_a_program_may_be_moved_between_two_micro_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    flows = []
    for module in ("before_it_moved", "after_it_moved"):
        (tmp_path / f"{module}.py").write_text(MOVED)
        flows.append(importlib.import_module(module).made())
    rows = trips(60)
    arrived = SourceMachine("trips", 0, flows[0].sources[0].time).take(rows)
    items = sorted(zip(arrived.metas, ["trips"] * 60, arrived.payloads), key=lambda item: item[0])
    states: list[BatchRow] = []
    ends: list[tuple[int, RangeEnd]] = []
    position, before = 0, BEGINNING
    for number, (flow, part, upto) in enumerate(zip(flows, (items[:40], items[40:]), (items[40][0], END_OF_TIME))):
        writing, before = StateWriting(number, False, before), upto
        work = Work(packed(flow), surroundings(), True, 2, (), heartbeat=upto, writes_state=writing)
        states, more, position = micro_batch(work, part, states, position)
        ends += more
        assert all(b"moved" not in row.body for row in states) and (number == 1 or states)
        sys.modules.pop("before_it_moved", None)
    assert digest_and_error([end for _, end in ends]) == (drift.run(flows[1], {"trips": rows}).finish().digest, "")


def test_a_row_of_another_version_is_refused_with_what_to_do() -> None:
    row = BatchRow(1, 0, BEGINNING, STATE, 1, b"drift row 0\nwhatever")
    with pytest.raises(
        drift.SettingsError, match=r"begins with b'drift row 0.nwha.*start a new stream, with another checkpoint"
    ):
        StateRows(1, 1, pytest.fail).add(row)


# On Spark.


def graph(lateness: int = 40, late: Any = "error") -> drift.Dataflow:
    graph = drift.Graph("trips")
    trips = graph.source("trips", time=drift.EventTime(lambda trip: trip["time"], lateness=lateness, late=late))
    trips.count(key=lambda trip: trip["taxi"]).sink("counts")
    trips.group(key=lambda trip: trip["time"] % 3, window=3).sink("windows")
    return graph.build()


def trips(count: int) -> list[dict[str, Any]]:
    """In disorder, by 40 at most; some are equal."""
    return [{"time": number - number * 7 % 41, "taxi": f"taxi {number % 6}"} for number in range(count)]


def write_files(folder: Path, rows: list[dict[str, Any]], files: int) -> None:
    """As files whose order is their time of change."""
    folder.mkdir(exist_ok=True)
    each = -(-len(rows) // files)
    for number in range(files):
        path = folder / f"part-{number}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows[number * each : (number + 1) * each]))
        os.utime(path, (1_000_000 + number, 1_000_000 + number))


def stream_of(spark: Any, folder: Path, **more: Any) -> Stream:
    read = spark.readStream.schema("time long, taxi string").option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    given: dict[str, Any] = {"graph": graph(), "checkpoint": folder / "checkpoint", "partitions": 1, **more}
    return drift.spark.stream(sources={"trips": read}, **given)


class Killed(Exception):
    """The driver is gone."""


def dies_after(monkeypatch: pytest.MonkeyPatch, name: str, calls: int) -> None:
    """The driver ends after so many calls of a method of the store."""
    write: Callable[..., None] = getattr(Store, name)
    left = iter(range(calls, 0, -1))

    def write_and_die(*args: Any) -> None:
        write(*args)
        if next(left) == 1:
            raise Killed(name)

    monkeypatch.setattr(Store, name, write_and_die)


def test_a_stream_that_dies_after_each_of_its_steps_gives_the_output_of_local(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = trips(240)
    write_files(tmp_path / "in", rows, 2)
    # The first micro-batch is committed, which Spark has not heard of; the second dies a step later each time.
    for step in ("write_commit", "write_items", "write_state", "write_pending"):
        with monkeypatch.context() as broken, pytest.raises(drift.ProcessError, match=step):
            dies_after(broken, step, 1)
            stream_of(spark, tmp_path, partitions=2).finish()
    stream = stream_of(spark, tmp_path, partitions=3)
    assert [commit.number for commit in stream._store(spark).commits()] == [0]
    with monkeypatch.context() as broken, pytest.raises(Killed):
        dies_after(broken, "write_state", 2)  # of the second, and at the end
        stream.finish()
    stream.finish()
    stream.finish()
    run = drift.run(graph(), {"trips": rows})
    expected = [(item.position, item.meta, drift.canonical(item.payload)) for item in run]
    assert stream.digest() == run.digest
    items = stream.items().orderBy("position").collect()
    assert [(row.position, bytes(row.meta), bytes(row.payload)) for row in items] == expected
    with pytest.raises(drift.SettingsError, match="was finished"):
        stream.start()


_STEPS = ("write_late", "write_items", "write_state", "write_pending", "write_commit")


def test_thirty_restarts_at_drawn_steps_with_other_numbers_of_tasks_give_each_item_once(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At drawn steps, each restart with another number of tasks, or the one before; some items are late."""
    drawn, rows, files, lateness = random.Random(7), trips(180), 12, 20
    write_files(tmp_path / "in", rows, files)
    on_time, late, latest = [], [], -100
    for at in range(0, len(rows), len(rows) // files):
        arrived = rows[at : at + len(rows) // files]  # late is what is below the heartbeat from before the micro-batch
        for row in arrived:
            (late if row["time"] < latest - lateness else on_time).append(row)
        latest = max(latest, *(row["time"] for row in arrived))

    def started() -> Stream:
        return stream_of(spark, tmp_path, graph=graph(lateness, "divert"), partitions=drawn.choice((None, 1, 2, 3)))

    tasks = set()
    for _ in range(30):
        step = drawn.choice(_STEPS)
        with monkeypatch.context() as broken, pytest.raises(drift.ProcessError, match=step):
            dies_after(broken, step, 1)
            started().finish()
        tasks |= {commit.partitions for commit in started()._store(spark).commits()}
    stream = started()
    assert 1 < len(stream._store(spark).commits()) < files and tasks == {1, 2, 3}
    stream.finish()
    run = drift.run(graph(), {"trips": on_time})
    items = [(row.position, bytes(row.meta)) for row in stream.items().orderBy("position").collect()]
    assert items == [(item.position, item.meta) for item in run] and stream.digest() == run.digest
    found = sorted(drift.restored(bytes(row.payload))["time"] for row in stream.late().collect())
    assert found == sorted(row["time"] for row in late) and found


KILL = """
import os, signal, sys
from pathlib import Path

from drift.spark.sessions import session
from drift.spark.streaming_store import Store
from test_spark_streaming import stream_of

write = Store.write_state


def write_and_die(store, slot, state):
    write(store, slot, state)
    os.kill(os.getpid(), signal.SIGKILL)


Store.write_state = write_and_die
with session("local[2]") as spark:
    stream_of(spark, Path(sys.argv[1]), partitions=1).finish()
"""


@pytest.mark.kills
def test_a_driver_that_is_killed_leaves_what_another_goes_on_from(spark: Any, tmp_path: Path) -> None:
    rows = trips(90)
    write_files(tmp_path / "in", rows, 2)
    done = subprocess.run([sys.executable, "-c", KILL, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    stream = stream_of(spark, tmp_path, partitions=1)
    assert stream._store(spark).commits() == []
    stream.finish()
    assert stream.digest() == drift.run(graph(), {"trips": rows}).finish().digest


def test_what_has_arrived_is_summed_up_in_one_task(spark: Any) -> None:
    rows = [(0, 5, None, False), (2, 7, None, True), (2, 9, None, False), (2, None, b"error", False)]
    arrived = spark.createDataFrame(rows, "rank int, time long, error binary, late boolean")
    adaptive = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", "false")  # as in a stream
    try:
        summary = _summary(arrived, [0, 1, 2])
        assert summary.rdd.getNumPartitions() == 1
        found = [tuple(each)[:4] for each in summary.first()]
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    assert found == [(1, 0, 0, 5), (0, 0, 0, None), (3, 1, 1, 9)]


def test_late_items_are_an_error_or_diverted(spark: Any, tmp_path: Path) -> None:
    rows = [{"time": time, "taxi": "a"} for time in (10, 50, 20, 3, 30, 60)]  # 30 is the heartbeat, and not below it
    write_files(tmp_path / "in", rows, 2)
    strict = stream_of(spark, tmp_path, graph=graph(20), checkpoint=tmp_path / "strict")
    with pytest.raises(drift.LateItem, match=r"got an item at 3 after .* the heartbeat 30; payload .* lateness to 47"):
        strict.finish()
    run = drift.run(graph(20), {"trips": [{"time": time, "taxi": "a"} for time in (10, 20, 30, 50, 60, 3)]})
    with pytest.raises(drift.LateItem):
        run.finish()
    assert strict.digest() == run.digest  # what the others complete is released, as where the late one comes last
    assert [row.time for row in strict.items().where("sink = 'counts'").orderBy("position").collect()] == [10, 20, 30]
    lenient = stream_of(spark, tmp_path, graph=graph(20, "divert"), sink="counts", columns="taxi string, n long")
    lenient.finish()
    assert [tuple(row) for row in lenient.late().select("source", "time", "heartbeat").collect()] == [("trips", 3, 30)]
    kept = [row for row in rows if row["time"] != 3]
    assert lenient.digest() == drift.run(graph(), {"trips": kept}).finish().digest
    counts = lenient.items().orderBy("position").select("time", "taxi", "n").collect()
    assert [tuple(row) for row in counts] == [(10, "a", 1), (20, "a", 2), (30, "a", 3), (50, "a", 4), (60, "a", 5)]


def test_a_belated_item_has_the_heartbeat_of_its_micro_batch_for_its_time(spark: Any, tmp_path: Path) -> None:
    """No item is late or belated by those of its own micro-batch: so it is as in a run over the same arrivals."""
    made = drift.Graph("corrected")
    time = drift.EventTime(lambda trip: trip["time"], lateness=20, late="divert", allowed=15)
    trips = made.source("trips", time=time)
    trips.key_by("taxi").window(drift.windows.tumbling(10), allowed=15).count().sink("counts")
    trips.sink("all")
    rows = [{"time": at, "taxi": "a"} for at in (10, 50, 31, 20, 3, 15, 60, 61, 45)]
    write_files(tmp_path / "in", rows, 3)
    stream = stream_of(spark, tmp_path, graph=made.build())
    stream.finish()
    run = drift.run(made, {"trips": rows})
    items = list(run)
    belated = {item.payload["time"]: item.time for item in items if item.sink == "all"}
    assert (belated[15], belated[20], belated[31]) == (30, 30, 31)
    assert [item.payload.correction for item in items if item.sink == "counts"].count(1) == 1
    assert [late.payload["time"] for late in run.late] == [3]
    assert stream.digest() == run.digest
    assert [tuple(row) for row in stream.late().select("time", "heartbeat").collect()] == [(3, 30)]


def test_an_item_that_has_no_time_ends_the_stream_after_what_the_others_complete(spark: Any, tmp_path: Path) -> None:
    rows = trips(120)
    write_files(tmp_path / "in", [*rows[:70], {"taxi": "taxi 1"}, *rows[70:]], 1)
    stream = stream_of(spark, tmp_path, partitions=2)
    with pytest.raises(drift.InputError) as ended:
        stream.finish()
    run = drift.run(graph(), {"trips": [*rows, {"taxi": "taxi 1", "time": None}]})
    with pytest.raises(drift.InputError):
        run.finish()
    assert stream.digest() == run.digest
    assert stream.items().count() == run.report.items_out > 0
    assert [commit.number for commit in stream._store(spark).commits()] == [] and "None" in str(ended.value)


@pytest.mark.smoke
def test_what_a_stream_cannot_do_is_refused_before_it_starts(spark: Any, tmp_path: Path) -> None:
    write_files(tmp_path / "in", trips(3), 1)
    with pytest.raises(drift.SettingsError, match="is no streaming DataFrame"):
        drift.spark.stream(graph(), {"trips": spark.range(3)}, checkpoint=tmp_path / "checkpoint")
    arrival = drift.Graph("arrival")
    arrival.source("trips").sink("out")
    with pytest.raises(drift.SettingsError, match="no order of arrival"):
        stream_of(spark, tmp_path, graph=arrival)
    apart = drift.Graph("apart")
    apart.source("trips", time=drift.EventTime(lambda trip: trip["time"], lateness=40), late="late").sink("out")
    with pytest.raises(drift.SettingsError, match=r"source 'trips' sends late items to a sink .* read stream\.late"):
        stream_of(spark, tmp_path, graph=apart)
    bounded = drift.Graph("bounded")
    bounded.source("trips", time=drift.EventTime("time", future_max=1000)).sink("out")
    with pytest.raises(drift.SettingsError, match=r"source 'trips' has future_max=1000, and a stream.* cannot say"):
        stream_of(spark, tmp_path, graph=bounded)


def taxis(first: Callable[[Any], str]) -> drift.Dataflow:
    graph = drift.Graph("trips")
    source = graph.source("trips", time=drift.EventTime(lambda trip: trip["time"], lateness=40))
    source.map(first, name="first").sink("windows")
    return graph.build()


def test_a_step_that_raises_ends_the_stream_after_what_is_before_it_and_other_code_is_refused(
    spark: Any, tmp_path: Path
) -> None:
    rows = trips(60)
    write_files(tmp_path / "in", rows, 1)
    failing = taxis(lambda trip: trip["taxi"][7 if trip["time"] == 45 else 0])
    stream = stream_of(spark, tmp_path, graph=failing)
    with pytest.raises(drift.StepError, match="IndexError"):
        stream.finish()
    assert [commit.number for commit in stream._store(spark).commits()] == [0]
    run = drift.run(failing, {"trips": rows})
    with pytest.raises(drift.StepError):
        run.finish()
    assert stream.digest() == run.digest
    assert stream.items().count() == run.report.items_out > 0

    mended = taxis(lambda trip: trip["taxi"][0])
    with pytest.raises(drift.SettingsError, match=r"the function of step 'first' changed.* changed_code='accept'"):
        stream_of(spark, tmp_path, graph=mended).start()
    with pytest.raises(drift.SettingsError, match=r"is of another graph.*step 'first' is gone"):
        stream_of(spark, tmp_path).start()
    stream = stream_of(spark, tmp_path, graph=mended, changed_code="accept")
    stream.finish()
    assert stream.digest() == drift.run(mended, {"trips": rows}).finish().digest
    stream = stream_of(spark, tmp_path, graph=mended)
    shutil.rmtree(tmp_path / "checkpoint" / "query")
    with pytest.raises(drift.SettingsError, match="was finished"):
        stream.start()


def test_a_finished_stream_is_of_its_graph_too(spark: Any, tmp_path: Path) -> None:
    write_files(tmp_path / "in", trips(20), 1)
    first = taxis(lambda trip: trip["taxi"])
    stream = stream_of(spark, tmp_path, graph=first)
    stream.finish()
    digest = stream.digest()
    again = stream_of(spark, tmp_path, graph=first)
    again.finish()
    assert again.digest() == digest
    other = taxis(lambda trip: trip["taxi"] + "!")
    with pytest.raises(drift.SettingsError, match=r"functions of the stream in .* have changed since it ran"):
        stream_of(spark, tmp_path, graph=other).finish()
    longer = drift.Graph("trips")
    source = longer.source("trips", time=drift.EventTime(lambda trip: trip["time"], lateness=40))
    source.map(lambda trip: trip["taxi"], name="first").dedup(str, name="new").sink("windows")
    with pytest.raises(drift.SettingsError, match="is of another graph"):
        stream_of(spark, tmp_path, graph=longer.build()).finish()


def test_more_input_than_a_finished_stream_had_is_refused_and_a_paused_one_goes_on(spark: Any, tmp_path: Path) -> None:
    rows, folder = trips(90), tmp_path / "in"
    write_files(folder, rows[:30], 1)
    paused = stream_of(spark, tmp_path)
    paused.wait(paused.start(availableNow=True))
    write_files(folder, rows[:60], 2)
    stream_of(spark, tmp_path, partitions=2).finish()  # part-0 is known, and part-1 new
    stream_of(spark, tmp_path, partitions=3).finish()  # nothing is new
    expected = drift.run(graph(), {"trips": rows[:60]}).finish().digest
    assert stream_of(spark, tmp_path).digest() == expected
    write_files(folder, rows, 3)
    for partitions in (1, 3):
        stream = stream_of(spark, tmp_path, partitions=partitions)
        with pytest.raises(drift.SettingsError, match=r"was finished: .* start\(availableNow=True\).* has more by now"):
            stream.finish()
        assert stream.digest() == expected and stream._store(spark).commits()[-1].finished
    shutil.rmtree(tmp_path / "checkpoint" / "query")  # then nobody knows whether there is more
    with pytest.raises(drift.SettingsError, match="Spark's own checkpoint"):
        stream_of(spark, tmp_path).finish()


def test_a_stream_without_sparks_own_checkpoint_is_refused(spark: Any, tmp_path: Path) -> None:
    write_files(tmp_path / "in", trips(60), 1)
    stream = stream_of(spark, tmp_path)
    stream.wait(stream.start(availableNow=True))
    shutil.rmtree(tmp_path / "checkpoint" / "query")
    with pytest.raises(drift.SettingsError, match="Spark's own checkpoint"):
        stream.start()


def test_a_micro_batch_writes_the_states_that_changed(spark: Any, tmp_path: Path) -> None:
    keys = 20_000
    many = "".join(f'{{"time": {number}, "taxi": "{number}"}}\n' for number in range(keys))
    few = [f'{{"time": {keys + number}, "taxi": "{number % 50}"}}\n' for number in range(150)]
    (tmp_path / "in").mkdir()
    for number, text in enumerate([many, "".join(few[:50]), "".join(few[50:])]):
        path = tmp_path / "in" / f"part-{number}.json"
        path.write_text(text)
        os.utime(path, (1_000_000 + number, 1_000_000 + number))
    stream = stream_of(spark, tmp_path, graph=graph(0))
    stream.wait(stream.start(availableNow=True))
    commits = stream._store(spark).commits()
    assert [commit.slots for commit in commits] == [(0,), (0, 1), (0, 1, 2)]
    assert commits[-1].changed_bytes < commits[-1].complete_bytes / 50


def test_a_commit_has_a_version_and_names_no_class_of_ours() -> None:
    fields = {"blocks": [(0, b"x")], "edges": [(0, 1, b"a", b"b")], "heartbeat": b"\x00", "graph": {"steps": ["a"]}}
    commit = Commit(3, "structure", 2, 1, (0, 1), 5, (None, -4), **fields)  # type: ignore[arg-type]
    body = commit_bytes(commit)
    assert commit_of(body) == commit and b"Commit" not in body
    with pytest.raises(drift.SettingsError, match=r"begins with b'drift stream 0.n.*, and this drift reads"):
        commit_of(body.replace(b"stream 3", b"stream 0"))
