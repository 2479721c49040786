"""The benchmark command at tiny sizes: that it compares equal things and tells what it found, not how fast."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import HANG_S

import drift

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

import flights  # noqa: E402

from benchmarks.backfill import flights_like  # noqa: E402
from benchmarks.disorder import disorder  # noqa: E402
from benchmarks.eventtime import KEYS, graph_of, in_order, out_of_order, plain_counts  # noqa: E402
from benchmarks.held import held  # noqa: E402
from benchmarks.measure import KINDS, latency  # noqa: E402
from benchmarks.recording import audited, run_recorded  # noqa: E402
from benchmarks.rounds import Options, Result, Spec  # noqa: E402
from benchmarks.scaling import scaling  # noqa: E402
from benchmarks.sketches import NUMBERS, table  # noqa: E402
from benchmarks.windows import CASES, events, windows  # noqa: E402
from benchmarks.workloads import WORKLOADS, mixed, moved  # noqa: E402


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured is measured here: each process of its own would import everything again."""

    def measure(spec: Spec) -> Result:
        return {**KINDS[spec["kind"]](spec), "others_cores": 0.0}

    monkeypatch.setattr("benchmarks.rounds.measure", measure)


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_the_plain_loop_computes_what_the_graph_does(name: str) -> None:
    workload = WORKLOADS[name]
    payloads = workload.inputs(3000)
    expected = list(workload.plain(payloads))
    assert [item.payload for item in drift.run(workload.graph(), {"in": payloads})] == expected


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_moved_items_come_out_in_order_in_event_time(name: str) -> None:
    workload = WORKLOADS[name]
    payloads = mixed(workload.inputs(3000))
    arriving = moved(list(enumerate(payloads)), 0.5)
    assert arriving != sorted(arriving) == list(enumerate(payloads))
    run = drift.run(workload.event_time_graph(), {"in": arriving}, batch_items=50)
    assert [item.payload for item in run] == list(workload.plain(payloads))


@pytest.mark.parametrize("key", list(KEYS))
def test_events_are_counted_alike_in_and_out_of_order_and_by_the_plain_loop(key: str) -> None:
    ordered = in_order(3000)
    arriving = out_of_order(3000)
    assert arriving != ordered and set(arriving) == set(ordered)
    runs = [drift.run(graph_of(key), {"in": events}, batch_items=200) for events in (ordered, arriving)]
    first, second = ([item.payload for item in run] for run in runs)
    assert first == second and runs[0].report.digest == runs[1].report.digest
    assert sorted(first) == sorted(plain_counts(ordered, KEYS[key]))


def test_latency_is_measured_from_when_a_line_is_due() -> None:
    found = latency({"engine": "local", "workers": 1, "items": 700, "items_per_second": 500})
    assert found["items"] == 700
    assert found["counted"] == 200
    assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["max_ms"]


def test_the_command_prints_tables_and_writes_json(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--items", "3000", "--json", str(path)]
    command += ["--only", "throughput", "--only", "sum"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Throughput, in order" in done.stdout
    found = json.loads(path.read_text())
    assert found["machine"]["cores"] >= 1
    assert set(found["sections"]) == {"throughput"}
    assert found["sections"]["throughput"]["workloads"]["sum"]["summary"]["local, items"]["ratio_to_plain"] > 0


def test_recording_is_compared_with_the_same_run_without(tmp_path: Path) -> None:
    spec = {"example": "words", "items": 3000, "engine": "local", "workers": 1}
    plain, recorded = run_recorded(spec), run_recorded({**spec, "record": True})
    assert plain["digest"] == recorded["digest"]
    path = str(tmp_path / "record")
    for what in ("record", "intact", "replay"):
        assert audited({"what": what, "path": path, "items": 3000})["seconds"] > 0


@pytest.mark.parametrize("name", list(CASES))
def test_windows_of_the_plain_loop_are_those_of_the_graph(name: str) -> None:
    case, arriving = CASES[name], events(30_000)
    assert arriving != sorted(arriving)
    outputs = [item.payload for item in drift.run(case.graph(), {"in": arriving})]
    found = [(each.key, each.start, each.end, each.value) for each in outputs]
    assert sorted(found) == sorted(case.plain(arriving))
    assert len(found) >= 3000


def test_items_out_of_order_and_inputs_of_several_lengths_are_measured(in_this_process: None) -> None:
    options = Options(rounds=1, workloads=("sum",), disorder_items=3000, scaling_items=(1000, 3000))
    (out_of_order,), found = disorder(options)
    assert out_of_order.row_count > len(found["sum"]["summary"]) >= 8
    (by_length,), found = scaling(options)
    assert by_length.row_count == 4 and set(found) == {"1000", "3000"}


def test_windows_are_measured(in_this_process: None) -> None:
    tables, found = windows(Options(items=3000, rounds=1))
    assert len(tables) == 1 and len(found) == 2


def test_what_is_held_is_measured(in_this_process: None) -> None:
    tables, found = held(Options(items=10_000, rounds=1))
    assert tables[0].row_count == 4 * len(found)


def test_an_unknown_name_is_refused() -> None:
    command = [sys.executable, "-m", "benchmarks", "--only", "nothing"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 2
    assert "invalid choice: 'nothing'" in done.stderr


def test_flights_repeat_day_after_day_in_the_same_disorder() -> None:
    known = flights.departures()
    found = list(flights_like(len(known) + 500, flights.NINE_DAYS))
    assert found[: len(known)] == [{**flight, "time_hour": found[at]["time_hour"]} for at, flight in enumerate(known)]
    first, again = ([flights.scheduled(flight) for flight in found[start:][:500]] for start in (0, len(known)))
    assert {later - time for time, later in zip(first, again)} == {again[0] - first[0]}
    assert (again[0] - first[0]) % (24 * 60) == 0 and max(first) < min(again)
    assert flights.disorder(found)[1] < flights.LATENESS_MINUTES


def test_what_is_about_right_is_as_near_as_it_says() -> None:
    rows = [line.strip("| ").split(" | ") for line in table(2000).splitlines() if "%" in line]
    quantiles, counts = rows[: len(NUMBERS)], rows[len(NUMBERS) :]
    assert all(float(each.strip("%")) <= 1 for row in quantiles for each in row[1:])
    assert counts and all(float(each.strip("%")) <= 5 for row in counts for each in row[1:])
