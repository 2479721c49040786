"""The laws on Spark itself: many generated graphs as one, over partitions, AQE and the size of Arrow batches."""

from __future__ import annotations

import dataclasses
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from generated import failing
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from neighbours import neighbours
from strategies import Case, Opaque, cases, event_inputs, few_keys, recipes
from test_laws import Output, _output
from waiting import wait_until

import drift
from drift_graph.graph import Dataflow
from drift_graph.operators import Edge

T = TypeVar("T")


def joined(cases: list[Case]) -> tuple[Dataflow, dict[str, list[Any]]]:
    """Several graphs side by side as one, so that one job runs them all."""
    operators: list[Any] = []
    edges: list[Edge] = []
    sources: dict[str, list[Any]] = {}
    for number, case in enumerate(cases):
        dataflow = case.dataflow()
        operators += [
            dataclasses.replace(each, name=f"{number}.{each.name}", step=f"{number}.{each.step}")
            for each in dataflow.operators
        ]
        edges += [Edge(f"{number}.{edge.origin}", f"{number}.{edge.target}", edge.feedback) for edge in dataflow.edges]
        sources |= {f"{number}.{name}": given for name, given in case.sources().items()}
    return Dataflow("joined", tuple(operators), tuple(edges)), sources


def outcome(dataflow: Any, sources: dict[str, Any], **more: Any) -> Output:
    run = drift.run(dataflow, sources, **more)
    items: list[tuple[int, bytes, Any, str]] = []
    error: Exception | None = None
    try:
        items.extend((item.position, item.meta, item.payload, item.sink) for item in run)
    except drift.DriftError as raised:
        error = raised
    return _output(items, run.digest, error)


@contextmanager
def configured(spark: Any, **values: str) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def of_spark(spark: Any, partitions: int, aqe: bool, arrow_rows: int) -> Any:
    return configured(
        spark,
        **{
            "spark.sql.adaptive.enabled": str(aqe).lower(),
            "spark.sql.execution.arrow.maxRecordsPerBatch": str(arrow_rows),
            "spark.sql.shuffle.partitions": str(partitions + 1),
        },
    )


matrix = pytest.mark.parametrize(
    ("partitions", "aqe", "arrow_rows"),
    [(1, True, 10_000), (2, False, 100), (7, True, 1)],
    ids=["1 partition", "2 partitions, no AQE, 100 rows", "7 partitions, 1 row"],
)


def drawn(strategy: st.SearchStrategy[T], count: int, number: int) -> list[T]:
    """Examples of a strategy, always the same; the first that Hypothesis draws is the plainest, and left out."""
    found: list[T] = []

    @settings(max_examples=count + 1, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck))
    @seed(number)
    @given(strategy)
    def collect(value: T) -> None:
        found.append(value)

    collect()
    return found[1:]


@matrix
def test_many_generated_graphs_give_the_output_of_the_reference(
    spark: Any, partitions: int, aqe: bool, arrow_rows: int
) -> None:
    dataflow, sources = joined(drawn(cases(sources_max=2, steps_max=5), 20, partitions))
    expected = outcome(dataflow, sources, engine="reference")
    assert len(expected.items) > 50
    with of_spark(spark, partitions, aqe, arrow_rows):
        assert outcome(dataflow, sources, engine="spark", spark=spark, partitions=partitions) == expected


def test_operators_that_look_at_times_and_neighbours_give_the_output_of_the_reference(spark: Any) -> None:
    dataflow, sources = joined(drawn(neighbours(), 12, 1))
    expected = outcome(dataflow, sources, engine="reference")
    assert len(expected.items) > 100
    assert outcome(dataflow, sources, engine="spark", spark=spark, partitions=3) == expected


def test_late_items_go_to_the_same_place(spark: Any) -> None:
    pairs = drawn(st.tuples(recipes(sources_max=1, steps_max=2), event_inputs(16, late="divert")), 40, 5)
    dataflow, sources = joined([Case(recipe, [each]) for recipe, each in pairs])
    expected = drift.run(dataflow, sources, engine="reference")
    report = expected.finish()
    assert report.late_items > 0
    run = drift.run(dataflow, sources, engine="spark", spark=spark, partitions=2)
    assert run.finish().digest == report.digest
    assert sorted(map(repr, run.late)) == sorted(map(repr, expected.late))


# Shapes of data.


def key_of(pair: tuple[int, int]) -> int:
    return pair[0]


def add(total: int, pair: tuple[int, int]) -> tuple[int, tuple[int, int]]:
    return total + pair[1], (pair[0], total + pair[1])


def sums() -> drift.Graph:
    graph = drift.Graph("sums")
    graph.source("pairs").scan(key=key_of, initial=0, step=add).sink("sums")
    return graph


@pytest.mark.parametrize("pairs", [
    [(0 if n % 2 else n % 50, n) for n in range(20_000)],
    [(n * 7919 % 100_000, n) for n in range(100_000)],
    [],
], ids=["half on one key", "100,000 keys", "nothing"])  # fmt: skip
def test_any_spread_of_keys_gives_the_digest_of_local(spark: Any, pairs: list[tuple[int, int]]) -> None:
    expected = drift.run(sums(), {"pairs": pairs}).finish()
    report = drift.run(sums(), {"pairs": pairs}, engine="spark", spark=spark, partitions=7).finish()
    assert (report.digest, report.items_out) == (expected.digest, expected.items_out)


def one_key(text: bytes) -> None:
    return None


def memory_now(window: tuple[bytes, ...]) -> int:
    """What this process has resident, in bytes; what it once had is of other tests."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_a_worker_has_less_memory_in_all_than_its_group_alone(spark: Any) -> None:
    graph = drift.Graph("large")
    graph.source("texts").group(key=one_key, window=2).map(memory_now).sink("memory")
    count, size = 12_000, 40_000
    texts = (bytes([number % 251]) * size for number in range(count))
    with configured(spark, **{"spark.sql.execution.arrow.maxBytesPerBatch": "8m"}):
        run = drift.run(graph, {"texts": texts}, engine="spark", spark=spark, partitions=1, batch_items=16)
        assert max(item.payload for item in run) < count * size  # 280 MB, of which 220 are there before the first item


# What goes wrong.


def failing_graph(step: Any) -> drift.Graph:
    graph = drift.Graph("failing")
    graph.source("numbers").map(step, name="step").count(key=few_keys).sink("out")
    return graph


def opaque_at_500(number: int) -> Any:
    return Opaque(number) if number == 500 else number


def failing_at_500(number: int) -> int:
    return number // (number - 500)


@pytest.mark.parametrize("step", [failing_at_500, partial(failing, 7)], ids=["one", "many"])
def test_a_step_that_raises_ends_the_run_at_the_same_item_in_the_same_words(spark: Any, step: Any) -> None:
    numbers = {"numbers": list(range(1000))}
    expected = outcome(failing_graph(step), numbers)
    assert expected.error is not None
    assert outcome(failing_graph(step), numbers, engine="spark", spark=spark, partitions=3) == expected
    run = drift.run(failing_graph(step), numbers, engine="spark", spark=spark, partitions=3)
    with pytest.raises(drift.StepError) as raised:
        run.finish()
    assert (str(raised.value), run.digest, run.report.items_out) == (
        expected.error[3],
        expected.digest,
        len(expected.items),
    )


def test_what_cannot_be_compared_or_sent_is_an_error_that_names_it(spark: Any) -> None:
    graph = drift.Graph("opaque")
    graph.source("numbers").map(opaque_at_500, name="opaque").sink("out")
    numbers = {"numbers": list(range(1000))}
    expected = outcome(graph, numbers)
    assert outcome(graph, numbers, engine="spark", spark=spark, partitions=2) == expected
    with pytest.raises(drift.PayloadError, match="cannot be sent to another process"):
        drift.run(graph, {"numbers": [lambda: 1]}, engine="spark", spark=spark).finish()


def test_an_input_that_breaks_off_ends_the_run_after_what_came_before(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "numbers.jsonl"
    path.write_text("".join(f"{number}\n" for number in range(5000)) + "{oh\n" + "1\n")
    numbers = {"numbers": drift.sources.jsonl(path)}
    graph = drift.Graph("counts")
    graph.source("numbers").count(key=few_keys).sink("out")
    expected = outcome(graph, numbers)
    assert expected.error is not None and len(expected.items) == 5000
    assert outcome(graph, numbers, engine="spark", spark=spark, partitions=2) == expected


def test_a_row_that_has_no_time_is_named(spark: Any) -> None:
    graph = drift.Graph("timed")
    graph.source("rows", time=drift.EventTime(time=lambda row: row["time"])).sink("out")
    frame = spark.createDataFrame([(1, "a"), (None, "c"), (None, "b")], "time long, name string")
    for _ in range(2):
        with pytest.raises(drift.InputError, match=r"gave None for payload \{'time': None, 'name': 'b'\}"):
            drift.run(graph, {"rows": frame}, engine="spark", partitions=2).finish()
    timed = drift.spark.source(frame, time="time")
    with pytest.raises(drift.InputError, match="the time column of source 'rows' is null"):
        drift.run(graph, {"rows": timed}, engine="spark", partitions=2).finish()


def members_of_a_set(number: int) -> tuple[str, ...]:
    return tuple({str(number), "a", "b", "c", "d", "e"})


def test_an_impure_step_is_found_in_the_workers(spark: Any) -> None:
    graph = drift.Graph("impure")
    graph.source("numbers").map(members_of_a_set, name="words").sink("out")
    with pytest.raises(drift.ImpureStep, match=r"step 'words' .* is not pure"):
        drift.run(graph, {"numbers": range(200)}, engine="spark", spark=spark, check_purity=True).finish()


def raising(row: dict[str, Any]) -> int:
    row["n"] += 100
    return int(row["time"])


@pytest.mark.parametrize(
    ("role", "time"), [("time", drift.EventTime(raising)), ("tie", drift.EventTime("time", tie=raising))]
)
def test_a_time_or_tie_function_that_changes_a_row_is_found_in_the_workers(spark: Any, role: str, time: Any) -> None:
    graph = drift.Graph("raising")
    graph.source("rows", time=time).sink("out")
    frame = spark.createDataFrame([(1, 0)], "time long, n long")
    with pytest.raises(
        drift.ImpureStep, match=rf"the {role} function of source 'rows' .*'n': 0\}} and is .*'n': 100\}}"
    ):
        drift.run(graph, {"rows": frame}, engine="spark", partitions=2).finish()


def test_a_run_that_is_closed_cancels_its_jobs(spark: Any) -> None:
    run = drift.run(sums(), {"pairs": [(n, n) for n in range(50_000)]}, engine="spark", spark=spark, partitions=2)
    assert next(run).payload == (0, 0)
    run.close()
    wait_until(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds(), "its jobs have ended")
    assert run.report.items_out > 0


def test_what_spark_does_not_run_is_refused(spark: Any) -> None:
    with pytest.raises(drift.SettingsError, match="is live"):
        drift.run(sums(), {"pairs": drift.sources.live(iter(()))}, engine="spark", spark=spark)
    with pytest.raises(drift.SettingsError, match="partitions=0"):
        drift.run(sums(), {"pairs": []}, engine="spark", spark=spark, partitions=0)
    with pytest.raises(drift.SettingsError, match="is a setting of engine='spark'"):
        drift.run(sums(), {"pairs": []}, spark=spark)


def test_an_error_of_one_of_several_sources_releases_what_is_below_its_place(spark: Any, tmp_path: Path) -> None:
    from test_input_errors import DIVERTING, A, graph_of
    from test_input_errors import outcome as ended

    graph = graph_of(DIVERTING, A)
    sources: dict[str, Any] = {"s0": [0, 9, 1, 20, 2, *range(30, 60)], "s1": [*range(12), "raises"]}
    expected = ended(graph, sources, record=tmp_path / "record", batch_items=1)
    assert expected[2] is not None and len(expected[0]) == 12 and len(expected[3]) == 1
    assert ended(graph, sources, engine="spark", spark=spark, batch_items=3) == expected
    run = drift.replay(tmp_path / "record", graph, engine="spark", spark=spark)
    with pytest.raises(drift.StepError, match="no time"):
        run.finish()
    assert (run.digest, run.late) == (expected[1], expected[3])
