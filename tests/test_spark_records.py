"""Records on Spark: replayed, audited, and read as DataFrames and streams."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest

import drift

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))

import flights  # noqa: E402


def numbered() -> drift.Graph:
    graph = drift.Graph("numbered")
    left, right = graph.source("left"), graph.source("right")
    left.merge(right).count(key=tenth).sink("counts")
    return graph


def tenth(number: int) -> int:
    return number // 10


@pytest.fixture(scope="module")
def monday(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of the flights."""
    path = tmp_path_factory.mktemp("records") / "monday"
    drift.run(flights.graph, {"flights": flights.departures()}, record=path).finish()
    return path


def test_a_replay_gives_the_recorded_digest(spark: Any, monday: Path) -> None:
    record = drift.Record(monday)
    report = drift.replay(monday, engine="spark", spark=spark, partitions=3).finish()
    assert (report.digest, report.items_in, report.items_out) == (
        record.manifest.digest,
        record.manifest.items_in,
        record.manifest.items_out,
    )
    run = drift.replay(monday, engine="spark", spark=spark, partitions=2, until=500)
    assert list(run) == list(record.items(0, 500))


def test_a_record_in_arrival_time_of_two_sources_is_replayed(spark: Any, tmp_path: Path) -> None:
    sources = {"left": range(5000), "right": range(3000)}
    digest = drift.run(numbered(), sources, record=tmp_path / "record").finish().digest
    replayed = drift.replay(tmp_path / "record", numbered(), engine="spark", spark=spark, partitions=2)
    assert replayed.finish().digest == digest


def test_late_items_and_what_ends_a_run_are_repeated(spark: Any, tmp_path: Path) -> None:
    rows = [(time - random.Random(time).randrange(20), time) for time in range(2000)]
    graph = drift.Graph("late")
    policy = drift.EventTime(time=first, lateness=5, late="divert")
    graph.source("rows", time=policy).map(inverted).count(key=none).sink("counts")
    run = drift.run(graph, {"rows": rows}, record=tmp_path / "record")
    with pytest.raises(drift.StepError) as raised:
        run.finish()
    again = drift.replay(tmp_path / "record", graph, engine="spark", spark=spark, partitions=2)
    with pytest.raises(drift.StepError) as replayed:
        again.finish()
    assert str(replayed.value) == str(raised.value)
    assert (again.digest, again.report.late_items) == (run.digest, run.report.late_items)
    assert sorted(again.late) == sorted(run.late) != []


def first(row: tuple[int, int]) -> int:
    return row[0]


def inverted(row: tuple[int, int]) -> float:
    return 1 / (row[0] - 1990)


def none(number: float) -> None:
    return None


def test_an_audit_on_spark_says_whether_a_record_is_reproduced(spark: Any, monday: Path, tmp_path: Path) -> None:
    (check,) = [each for each in drift.audit(monday, engines=("spark",)).checks if each.what == "engine spark"]
    assert check.result == "ok"
    edited = tmp_path / "edited.py"
    text = Path(flights.__file__).read_text()
    edited.write_text(text.replace('delays[1] + int(flight["dep_delay"])', 'delays[1] + int(flight["dep_delay"]) + 1'))
    assert not drift.audit(monday, f"{edited}:graph", engines=("spark",)).ok
