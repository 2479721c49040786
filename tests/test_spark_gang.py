"""The worker gang: the output of the reference on any number of tasks, also when a task or an executor is killed."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Case, Input, Recipe, build, inputs, recipes

import drift
from drift.engines.shipping import packed
from drift.spark.batches import record_batch, row_of, rows_in
from drift.spark.blocks import joined_digest
from drift.spark.gang import new_keys
from drift.spark.gang_task import GangLoop, transport_of
from drift.spark.kernels import RangeEnd, Work, run_level, run_release
from drift_barrier.digest import hash_block
from drift_graph.item import Columns
from drift_graph.meta import NumberedMetas
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


def shuffled(batches: Iterable[Any], targets: int) -> list[list[Any]]:
    rows = sorted((row for batch in batches for row in rows_in(batch)), key=lambda row: row.first)
    return [[record_batch([row for row in rows if row.target == target])] for target in range(targets)]


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
            loop.close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=task, args=(loop,), daemon=True) for loop in loops]
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
    work = Work(packed(case.dataflow()), (), True, targets, (), gang=new_keys())
    levels = work.opened()
    batches: list[Any] = list(run_level(work, 0, [fed(case, items_in_a_row)]))
    for level in range(1, levels.last):
        batches = gang_output(work, level, shuffled(batches, targets))
    ends: list[RangeEnd] = []
    for share in shuffled(batches, targets):
        for batch in run_release(work, share, with_items=False):
            ends += map(pickle.loads, batch["body"].to_pylist())
    blocks = joined_digest(
        "xxh3_128", [each for end in ends for each in end.blocks], [each for end in ends for each in end.edges]
    )
    error = next((str(end.error) for end in ends if end.error is not None), "")
    return hash_block("xxh3_128", b"".join(blocks)).hex(), error


def in_reference(case: Case) -> tuple[str, str]:
    run = drift.run(case.dataflow(), case.sources(), engine="reference")
    try:
        run.finish()
    except drift.DriftError as error:
        return run.digest, str(error)
    return run.digest, ""


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


def test_a_gang_without_input_ends(spark: Any) -> None:
    report = drift.run(loops(), {"in0": []}, engine="spark", spark=spark, partitions=2, gang=True).finish()
    assert report.digest == drift.run(loops(), {"in0": []}).finish().digest


def test_a_gang_larger_than_the_cluster_is_refused_at_once(spark: Any) -> None:
    run = drift.run(loops(), {"in0": range(9)}, engine="spark", spark=spark, partitions=5, gang=True)
    with pytest.raises(drift.SettingsError, match=r"needs 5 tasks at once, and Spark \(local\[2\]\) has room for 2"):
        run.finish()


def test_a_payload_that_cannot_be_sent_ends_the_run_and_not_the_attempt(spark: Any) -> None:
    graph = drift.Graph("unsent")
    loop: drift.Feedback[Any] = graph.feedback("again")
    windows = graph.source("numbers").merge(loop).group(lambda n: n[0] if type(n) is tuple else n, 1)
    windows.flat_map(lambda w: [(k, lambda: w) for k in range(9)] if w == (7,) else []).feed(loop)
    windows.map(len).sink("out")
    run = drift.run(graph, {"numbers": range(10)}, engine="spark", spark=spark, partitions=2, gang=True)
    with pytest.raises(drift.PayloadError, match="cannot be sent to another process"):
        run.finish()


KILLS = """
import json, os, signal, sys
from pathlib import Path

import drift
from drift.spark.sessions import application_folder, session

folder = Path(sys.argv[1])


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def killing(kind, item):  # the task's process, or its executor, the first time that any task comes here
    if kind and item[1] == 41:
        try:
            (folder / kind).mkdir()
        except FileExistsError:
            return item
        worker = os.getpid()
        os.kill({"worker": worker, "executor": parent(parent(worker))}[kind], signal.SIGKILL)
    return item


def looped(kind):
    graph = drift.Graph("looped")
    loop = graph.feedback("again")
    entered = graph.source("numbers").map(lambda n: (2, n % 50))
    windows = entered.merge(loop).group(lambda item: item[1] % 9, 2)
    changed = windows.map(lambda window: killing(kind, (window[-1][0], sum(each[1] for each in window) % 97)))
    changed.flat_map(lambda item: [(item[0] - 1, item[1])] if item[0] else []).feed(loop)
    changed.count(lambda item: item[1] % 5).sink("out")
    return graph


digests = {"local": drift.run(looped(""), {"numbers": range(200)}).finish().digest}
with session("local-cluster[2,1,1024]") as spark:
    for kind in ("worker", "executor"):
        run = drift.run(looped(kind), {"numbers": range(200)}, engine="spark", spark=spark, gang=True)
        digests[kind] = run.finish().digest
    leaves = application_folder(spark)
print(json.dumps([digests, sorted(each.name for each in folder.iterdir()), leaves.exists()]))
"""


def test_a_killed_task_and_a_killed_executor_change_nothing(tmp_path: Path) -> None:
    script = tmp_path / "kills.py"
    script.write_text(KILLS)
    marks = tmp_path / "marks"
    marks.mkdir()
    done = subprocess.run([sys.executable, str(script), str(marks)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    digests, killed, left = json.loads(done.stdout)
    assert digests["worker"] == digests["executor"] == digests["local"]
    assert killed == ["executor", "worker"]
    assert not left, "local-cluster left its folder in the installed pyspark"
