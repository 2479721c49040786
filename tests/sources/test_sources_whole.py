"""lateness="all": input that ends is sorted as a whole, so none of it is late, whatever its order and size."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import drift
from drift.engines import whole
from drift.sources.arguments import as_source
from drift_graph.times import SourceMachine

TIMES = st.lists(st.tuples(st.integers(-5, 30), st.sampled_from("ab"), st.integers(0, 3)), max_size=40)
FIELDS = {"at": int, "k": str, "v": int}


def totals(lateness: Any, **more: Any) -> drift.Graph:
    graph = drift.Graph("totals")
    rows = graph.source("rows", time=drift.EventTime("at", lateness=lateness), **more)
    rows.key_by("k").window(drift.windows.tumbling(10)).rows(n=drift.agg.sum("v")).sink("out")
    return graph


def dicts(rows: list[tuple[int, str, int]]) -> list[dict[str, Any]]:
    return [dict(zip(FIELDS, row)) for row in rows]


def digest(graph: drift.Graph, rows: Any, **more: Any) -> Any:
    return drift.run(graph, {"rows": rows}, **more).finish().digest


@given(rows=TIMES, batch=st.integers(1, 9), memory=st.sampled_from([None, 1, 2_000]))
def test_the_order_of_a_finished_input_does_not_matter(rows: Any, batch: int, memory: int | None) -> None:
    wanted = digest(totals(0), sorted(dicts(rows), key=lambda row: row["at"]))
    for engine in ("local", "reference"):
        own = {"memory_max": memory} if memory and engine == "local" else {}
        found = digest(totals("all"), dicts(rows), engine=engine, batch_items=batch, in_flight_max=10, **own)
        assert found == wanted, engine
    frame = pl.DataFrame(dicts(rows), schema={"at": pl.Int64, "k": pl.String, "v": pl.Int64})
    assert digest(totals("all", schema=FIELDS), frame, batch_items=batch, memory_max=memory) == wanted


@given(runs=st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=4), size=st.integers(1, 4))
def test_sorted_runs_of_several_blocks_are_merged_in_order(runs: list[list[int]], size: int) -> None:
    def blocks(times: list[int]) -> Iterator[whole.Block]:
        for at in range(0, len(times), size):
            yield whole.Block(array("q", times[at : at + size]), times[at : at + size])

    merged = [time for block in whole.merged([blocks(sorted(run)) for run in runs]) for time in block.payloads]
    assert merged == sorted(time for run in runs for time in run)


def test_processes_sort_as_one(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = dicts([(7 * number % 101, "ab"[number % 2], number) for number in range(300)])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = digest(totals("all"), drift.sources.jsonl(path), engine="zeromq", memory_max=10_000)
    assert found == digest(totals(10**6), rows)


@given(rows=st.lists(st.one_of(st.integers(0, 9), st.none()), max_size=12), memory=st.sampled_from([None, 1]))
def test_what_has_no_time_is_diverted_and_stays_behind_what_was_before_it(rows: Any, memory: int | None) -> None:
    def diverted(lateness: Any) -> Any:
        graph = drift.Graph("undated")
        graph.source("rows", time=drift.EventTime("at", lateness=lateness), on_error="divert").sink("out")
        return drift.run(graph, {"rows": [{"at": each} for each in rows]}, memory_max=memory).finish().digest

    assert diverted("all") == diverted(100)


def test_the_greatest_time_before_is_that_of_all_that_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "_READ_ITEMS", 2)
    frame = pl.DataFrame({"at": [1, 9, None, 4], "k": ["a"] * 4, "v": [0] * 4}, schema_overrides={"at": pl.Int64})

    def diverted(lateness: Any, batch_items: int) -> Any:
        graph = drift.Graph("undated")
        time = drift.EventTime("at", lateness=lateness)
        graph.source("rows", schema=FIELDS, time=time, on_error="divert").sink("out")
        return drift.run(graph, {"rows": frame}, batch_items=batch_items).finish().digest

    assert diverted("all", 3) == diverted(100, 2)


def test_a_reader_that_has_read_nothing_is_where_it_was_put() -> None:
    graph = totals("all").build()
    policy = graph.sources[0].time
    machine = SourceMachine.of(graph.sources[0], 0, policy)
    assert isinstance(policy, drift.EventTime)
    source = as_source("rows", dicts([(at, "a", 0) for at in (3, 1, 2)]))
    first, second = (whole.WholeSource(source, machine, policy, None, complete=True).open() for _ in range(2))
    assert [row["at"] for row in first.read(2) or ()] == [1, 2]
    second.seek(first.position())
    assert second.position() == first.position()
    assert [row["at"] for row in second.read(9) or ()] == [3]


def test_a_payload_without_a_time_ends_the_run_before_anything_is_released() -> None:
    run = drift.run(totals("all"), {"rows": [*dicts([(1, "a", 1)]), {"k": "a"}]})
    with pytest.raises(drift.StepError, match=r"has no field .at.*item 1 of the source"):
        run.finish()


def test_what_has_no_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").touch()
    live = drift.sources.jsonl(tmp_path / "rows.jsonl", follow=True)
    with pytest.raises(drift.SettingsError, match="'rows' is live, and lateness='all' waits for the end"):
        drift.run(totals("all"), {"rows": live}).finish()
    with pytest.raises(drift.SettingsError, match="goes on in a later run, by complete=False"):
        drift.run(totals("all"), {"rows": []}, state=tmp_path / "state", complete=False).finish()


@pytest.mark.parametrize("given_too", [{"future_max": 10}, {"idle_after_ms": 10}])
def test_options_for_items_as_they_come_are_refused(given_too: dict[str, int]) -> None:
    with pytest.raises(drift.SettingsError, match="lateness='all' sorts all of them first: leave one out"):
        drift.EventTime("at", lateness="all", **given_too)  # type: ignore[arg-type]


def resumed(path: Path, state: Path, stops_at: int | None) -> tuple[list[Any], Any]:
    """The items of one run over a file, which ends after so many."""
    graph = drift.Graph("kept")
    graph.source("rows", time=drift.EventTime("at", lateness="all")).sink("out")
    kept, settings = drift.Checkpoints(state, every_s=0), {"batch_items": 3, "memory_max": 100}
    run = drift.run(graph, {"rows": drift.sources.jsonl(path)}, state=kept, **settings)
    found = []
    for item in run:
        found.append(item.payload["at"])
        if stops_at is not None and len(found) >= stops_at:
            run.stop()
            break
    return found, run


@given(times=st.lists(st.integers(0, 50), min_size=8, max_size=20), stops_at=st.integers(1, 8))
def test_a_run_that_was_stopped_goes_on_where_it_was(
    times: Any, stops_at: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("whole")
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps({"at": at}) + "\n" for at in times))
    first, run = resumed(path, folder / "state", stops_at)
    first += [item.payload["at"] for item in run]
    assert first + resumed(path, folder / "state", None)[0] == sorted(times)


def test_input_that_has_changed_is_refused_on_resuming(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"at": at}) + "\n" for at in range(20, 0, -1)))
    _, run = resumed(path, tmp_path / "state", 4)
    list(run)
    with path.open("a") as file:
        file.write('{"at": 0}\n')
    with pytest.raises(drift.InputError, match="other input than the run that is resumed"):
        resumed(path, tmp_path / "state", None)


def test_more_input_of_a_run_that_is_over_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"at": 3}\n{"at": 1}\n')
    assert resumed(path, tmp_path / "state", None)[0] == [1, 3]
    assert resumed(path, tmp_path / "state", None)[0] == []
    with path.open("a") as file:
        file.write('{"at": 2}\n')
    with pytest.raises(drift.SettingsError, match=r"is over.*source 'rows' has more now"):
        resumed(path, tmp_path / "state", None)


def test_payloads_that_cannot_be_stored_are_named() -> None:
    class Local:
        at = 1

    graph = drift.Graph("classes")
    graph.source("rows", time=drift.EventTime("at", lateness="all", tie="at")).map(lambda row: row.at).sink("out")
    with pytest.raises(drift.PayloadError, match="source 'rows' has a payload that cannot be written to disk"):
        drift.run(graph, {"rows": [Local(), Local()]}, memory_max=1).finish()


def test_no_room_on_disk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(whole.tempfile, "TemporaryFile", full)
    with pytest.raises(drift.StorageError, match="No space left on device; make room"):
        drift.run(totals("all"), {"rows": dicts([(1, "a", 1)] * 4)}, memory_max=1).finish()
