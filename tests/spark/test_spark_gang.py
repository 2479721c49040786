"""The worker gang: the output of the reference on any number of tasks, also when a task or an executor is killed."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spark_shares import digest_and_error, in_reference, shuffled
from strategies import Case, Input, Recipe, build, inputs, recipes
from waiting import HANG_S

import drift
from drift.engines.shipping import packed
from drift.engines.surroundings import surroundings
from drift.machines.nodes.member import MemberNode
from drift.machines.nodes.node import ACKER, Send
from drift.machines.plan import Plan
from drift.records.format import RecordError
from drift.spark.batches import record_batch, row_of
from drift.spark.gang import new_keys
from drift.spark.gang_lines import TaskLost
from drift.spark.gang_task import GangLoop, _Feeder, _parts, transport_of
from drift.spark.kernels import RangeEnd, Work, run_level, run_release
from drift_graph.item import Columns
from drift_graph.metas import NumberedMetas
from drift_graph.times import SourceMachine

#: Cycles that change keys; windows that are corrected go round in them.
LOOPS = [
    Recipe(1, [("loop", 0, "plain", 3, 3, 2), ("scan", 0, "few", "mixing")], []),
    Recipe(1, [("loop", 0, "inner", 3, 3, 2), ("scan", 0, "one", "merging")], [1]),
    Recipe(2, [("count", 0, "own"), ("loop", 3, "scan", 2, 2, 3), ("count", 0, "equal"), ("reduce", 1, "equal")], []),
    Recipe(1, [("group", 0, "few", 3), ("loop", 0, "plain", 2, 3, 3), ("fails", 0, "map", 40)], [0]),
]


def fed(case: Case, items_in_a_row: int) -> Any:
    """The rows of level 0."""
    rows = []
    for rank, source in enumerate(case.dataflow().sources):
        arrived = SourceMachine(source.name, rank, source.time).take(case.sources()[source.name])
        metas, payloads = arrived.metas, arrived.payloads
        if type(metas) is not NumberedMetas:
            order = sorted(range(len(metas)), key=metas.__getitem__)
            metas, payloads = [metas[at] for at in order], [payloads[at] for at in order]
        for start in range(0, len(metas), items_in_a_row):
            end = start + items_in_a_row
            rows.append(row_of(0, 0, source.name, Columns(list(metas[start:end]), payloads[start:end], None)))
    return record_batch(rows)


def gang_output(work: Work, level: int, shares: list[list[Any]]) -> list[Any]:
    """What the tasks of a gang give, each in a thread; of a task that raises the error is raised here."""
    loops = [GangLoop(at, work, level, transport_of(work, "127.0.0.1"), share) for at, share in enumerate(shares)]
    addresses = [loop.address("127.0.0.1") for loop in loops]
    given_out: list[Any] = []
    errors: list[BaseException] = []

    def task(loop: GangLoop) -> None:
        try:
            loop.join(addresses, [7] * len(loops))
            given_out.extend(loop.output())
            loop.leave()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=task, args=(loop,), daemon=True) for loop in loops]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("drift.spark.gang_lines._DONE_MAX_S", HANG_S)  # a slow one is not gone
        for thread in threads:
            thread.start()
        while not errors and any(thread.is_alive() for thread in threads):
            threads[-1].join(0.01)  # the others of a task that raised wait for Spark to end them
            threads.insert(0, threads.pop())
    if errors:
        raise errors[0]
    return given_out


def in_gangs(case: Case, targets: int, items_in_a_row: int = 4096) -> tuple[str, str]:
    """Digest and error of a case whose every level is run by a gang."""
    work = Work(packed(case.dataflow()), surroundings(), True, targets, (), gang=new_keys(HANG_S))
    levels = work.opened()
    batches: list[Any] = list(run_level(work, 0, [fed(case, items_in_a_row)]))
    for level in range(1, levels.last):
        batches = gang_output(work, level, shuffled(batches, targets))
    ends: list[RangeEnd] = []
    for share in shuffled(batches, targets):
        for batch in run_release(work, share, with_items=False):
            ends += map(pickle.loads, batch["body"].to_pylist())
    return digest_and_error(ends)


@settings(max_examples=settings.default.max_examples // 2)
@given(st.data())
def test_gangs_give_the_output_of_the_reference(data: st.DataObject) -> None:
    recipe = data.draw(st.sampled_from(LOOPS) | recipes(sources_max=2, steps_max=3, failing=True))
    case = Case(recipe, data.draw(inputs(recipe.sources, items_max=16)))
    targets = data.draw(st.integers(1, 3))
    assert in_gangs(case, targets, data.draw(st.integers(1, 4))) == in_reference(case)


@pytest.mark.parametrize("recipe", LOOPS, ids=[f"loop {number}" for number in range(len(LOOPS))])
def test_a_gang_of_three_gives_the_output_of_the_reference_where_corrections_go_round(recipe: Recipe) -> None:
    time = drift.EventTime(lambda number: number // 3, lateness=400)
    case = Case(recipe, [Input(time, [number * 7 % 150 for number in range(150)])] * recipe.sources)
    assert in_gangs(case, 3, 50) == in_reference(case)


# On Spark.


def loops() -> drift.Dataflow:
    return build(LOOPS[0])


def test_a_gang_on_spark_gives_the_digest_of_local(spark: Any) -> None:
    source = {"in0": range(100)}
    report = drift.run(loops(), source, engine="spark", spark=spark, partitions=2, gang=True).finish()
    assert report.digest == drift.run(loops(), source).finish().digest


def test_two_items_of_one_global_time_are_an_error_of_the_record(spark: Any, tmp_path: Path) -> None:
    run = drift.run(loops(), {"in0": range(100)}, record=tmp_path / "record")
    digest = run.finish().digest
    every: list[dict[str, Any]] = [
        {"engine": "spark", "spark": spark, "partitions": 2, "gang": gang} for gang in (True, False)
    ]
    for on_spark in every:
        assert drift.replay(tmp_path / "record", loops(), **on_spark).finish().digest == digest
    path = tmp_path / "record" / "input" / "part-00000.parquet"
    rows = pq.read_table(path)
    times = rows.column("time").to_pylist()
    times[-5] = times[-10]  # of the same batch
    pq.write_table(rows.set_column(2, rows.schema.field("time"), pa.array(times, pa.int64())), path)
    for anywhere in [*every, {}]:
        with pytest.raises(RecordError, match=r"part-00000.parquet was changed since it was written; `drift audit"):
            drift.replay(tmp_path / "record", loops(), **anywhere)


def test_a_gang_without_input_ends(spark: Any) -> None:
    report = drift.run(loops(), {"in0": []}, engine="spark", spark=spark, partitions=2, gang=True).finish()
    assert report.digest == drift.run(loops(), {"in0": []}).finish().digest


def test_a_gang_larger_than_the_cluster_is_refused_at_once(spark: Any) -> None:
    run = drift.run(loops(), {"in0": range(9)}, engine="spark", spark=spark, partitions=5, gang=True)
    with pytest.raises(drift.SettingsError, match=r"needs 5 tasks at once, and Spark \(local\[2\]\) has room for 2"):
        run.finish()


@dataclass(frozen=True)
class Unsendable:
    number: int

    def __reduce__(self) -> Any:
        raise TypeError("not this one")


def test_a_payload_that_cannot_be_sent_ends_the_run_and_not_the_attempt(spark: Any) -> None:
    graph = drift.Graph("unsent")
    loop: drift.Feedback[Any] = graph.feedback("again")
    windows = graph.source("numbers").merge(loop).group(lambda n: n.number if type(n) is Unsendable else n, 1)
    windows.flat_map(lambda w: [Unsendable(k) for k in range(9)] if w == (7,) else []).feed(loop)
    windows.map(len).sink("out")
    run = drift.run(graph, {"numbers": range(10)}, engine="spark", spark=spark, partitions=2, gang=True)
    with pytest.raises(drift.PayloadError, match="cannot be sent to another process"):
        run.finish()


def dying(by: int, mark: str, item: tuple[int, int]) -> tuple[int, int]:
    """The task's process gets a signal, the first time that any task comes here."""
    if item[1] == 41:
        try:
            Path(mark).mkdir()
        except FileExistsError:
            return item
        os.kill(os.getpid(), by)
    return item


def looped(step: Callable[[tuple[int, int]], tuple[int, int]]) -> drift.Dataflow:
    graph = drift.Graph("looped")
    loop: drift.Feedback[tuple[int, int]] = graph.feedback("again")
    entered = graph.source("numbers").map(lambda number: (2, number % 50))
    windows = entered.merge(loop).group(lambda item: item[1] % 9, 2)
    changed = windows.map(lambda window: step((window[-1][0], sum(each[1] for each in window) % 97)))
    changed.flat_map(lambda item: [(item[0] - 1, item[1])] if item[0] else []).feed(loop)
    changed.count(lambda item: item[1] % 5).sink("out")
    return graph.build()


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGSTOP])
def test_a_task_that_is_killed_or_stopped_changes_nothing(spark: Any, tmp_path: Path, by: signal.Signals) -> None:
    mark = tmp_path / "mark"
    graph = looped(partial(dying, by, str(mark)))
    given = {"numbers": range(60)}
    run = drift.run(graph, given, engine="spark", spark=spark, partitions=2, gang=True)
    report = run.finish()
    assert mark.exists()
    assert report.digest == drift.run(looped(lambda item: item), given).finish().digest


def test_a_task_ends_when_another_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(packed(looped(lambda item: item)), surroundings(), True, 2, (), gang=new_keys())
    share = shuffled(run_level(work, 0, [record_batch([])]), 2)
    here, gone = (GangLoop(at, work, 1, transport_of(work, "127.0.0.1"), share[at]) for at in range(2))
    addresses = [loop.address("127.0.0.1") for loop in (here, gone)]
    for loop in (here, gone):
        loop.join(addresses, [7, 7])
    while here._lines._waiting:  # until they are connected
        here._lines.check()
    gone.leave()
    monkeypatch.setattr("drift.spark.gang_lines._DONE_MAX_S", 0.0)
    with pytest.raises(TaskLost, match=r"task 1 of the worker gang, at tcp://127.0.0.1:\d+, is gone"):
        for _ in here.output():
            pass


def member_and_feeder() -> tuple[MemberNode, _Feeder]:
    """One of two tasks, with a share of 2000 items."""
    work = Work(packed(looped(lambda item: item)), surroundings(), True, 2, (), gang=new_keys())
    metas, payloads, *_ = SourceMachine("numbers", 0, work.opened().dataflow.sources[0].time).take(list(range(2000)))
    rows = record_batch([row_of(0, 0, "numbers", Columns(list(metas), payloads, None))])
    share = shuffled(run_level(work, 0, [rows]), 2)[1]
    levels = work.opened()
    return MemberNode(Plan(levels.dataflow, only=levels.groups(1)), 1, 2), _Feeder(share, 1)


def acks(sends: list[Send]) -> int:
    return sum(send.to == ACKER for send in sends)


def test_a_task_does_not_wait_for_the_beginning_of_what_the_others_feed_of_the_same_stretch() -> None:
    member, feeder = member_and_feeder()
    for number in range(2):
        items, heartbeat = feeder.take(200)
        assert len(items) == 200 and member.may_feed
        member.feed(_parts(items), heartbeat, 1.0)
        assert acks(member.turn([], 1.0)) == (number == 0)  # what comes after its first batch does wait


def test_a_task_works_on_what_comes_next_while_the_others_end_what_they_have() -> None:
    member, feeder = member_and_feeder()
    fed = 0
    while member.may_feed:
        items, heartbeat = feeder.take(200)
        member.feed(_parts(items), heartbeat, 1.0)
        fed += 1
    assert fed == 4
    assert acks(member.turn([], 1.0)) == 1
    assert acks(member.turn([], 1.01, 0.02)) == 0  # it waits for the other as long as its last batch took
    assert [acks(member.turn([], 1.03, 0.02)) for _ in range(fed - 1)] == [1, 1, 1]


def test_a_task_feeds_as_many_items_at_once_as_it_should_however_they_are_cut_into_rows() -> None:
    metas = list(SourceMachine("numbers", 0, drift.ArrivalTime()).take(list(range(10_000))).metas)
    starts = range(0, 10_000, 1000)
    rows = [row_of(1, 0, "key", Columns(metas[at : at + 1000], list(range(at, at + 1000)), None)) for at in starts]
    feeder = _Feeder([record_batch(rows)], 1)
    assert [len(feeder.take(4000)[0]) for _ in range(4)] == [4000, 4000, 2000, 0]


KILL_EXECUTOR = """
import os, signal, sys
from pathlib import Path

import drift
from drift.spark.sessions import application_folder, session
from test_spark_gang import looped

mark = sys.argv[1]


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def killing(item):
    if item[1] == 41:
        try:
            Path(mark).mkdir()
        except FileExistsError:
            return item
        os.kill(parent(parent(os.getpid())), signal.SIGKILL)
    return item


with session("local-cluster[1,2,1024]", **{"spark.executor.defaultJavaOptions": "-XX:TieredStopAtLevel=1"}) as spark:
    run = drift.run(looped(killing), {"numbers": range(60)}, engine="spark", spark=spark, gang=True)
    print(run.finish().digest)
    leaves = application_folder(spark)
assert not leaves.exists(), "local-cluster left its folder in the installed pyspark"
"""


@pytest.mark.kills
def test_a_killed_executor_changes_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    command = [sys.executable, "-c", KILL_EXECUTOR, str(mark)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert mark.exists()
    assert done.stdout.strip() == drift.run(looped(lambda item: item), {"numbers": range(60)}).finish().digest
