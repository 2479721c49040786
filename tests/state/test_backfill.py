"""New steps of a changed graph that are filled: from the change on, they give what they would have given."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from gated import Gated
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import wait_until_stored

import drift
import drift.cli
from drift.state.run_checkpoints import known

SPAN = 40


def time_of(row: Any) -> int:
    return int(row[0])


def value_of(row: Any) -> int:
    return int(row[1])


def key_of(n: int) -> int:
    return n % 3


def add(total: int, n: int) -> tuple[int, int]:
    return total + n, total + n


def add_more(total: int, n: int) -> tuple[int, int]:
    return total + n + 1, total + n + 1


def as_itself(n: int) -> int:
    return n


def is_even(n: int) -> bool:
    return n % 2 == 0


def in_a_while(n: int, time: int) -> Any:
    return drift.at(time + SPAN, n)


def at_each(total: int, n: int, time: int) -> tuple[int, list[Any]]:
    return total + n, [total + n, drift.at(time + SPAN, n)]


def at_time(total: int, note: int, time: int) -> tuple[int, list[Any]]:
    return total, [(note, total, time)]


def scanned(rows: Any, sums: Any, waited: Any) -> None:
    rows.map(value_of, name="values").scan(key_of, 0, add, name="more").sink("grown")


def behind_state(rows: Any, sums: Any, waited: Any) -> None:
    sums.filter(is_even, name="even").scan(key_of, 0, add, name="more").sink("grown")


def of_both(rows: Any, sums: Any, waited: Any) -> None:
    rows.map(value_of, name="values").merge(sums).scan(key_of, 0, add, name="more").sink("grown")


def windows(rows: Any, sums: Any, waited: Any) -> None:
    keyed = sums.key_by(key_of)
    keyed.window(drift.windows.tumbling(SPAN)).count(name="tumbling").sink("grown")
    keyed.window(drift.windows.sliding(SPAN, SPAN // 2)).sum(as_itself, name="sliding").sink("grown too")
    keyed.window(drift.windows.session(3)).count(name="sessions").sink("sessions of it")


def timers(rows: Any, sums: Any, waited: Any) -> None:
    sums.process(key_of, 0, at_each, at_time, name="timers").sink("grown")


def later(rows: Any, sums: Any, waited: Any) -> None:
    some = sums.map(in_a_while, with_time=True, later=True, name="later")
    some.sink("grown")
    some.scan(key_of, 0, add, name="of later").sink("grown too")


def behind_later(rows: Any, sums: Any, waited: Any) -> None:
    waited.scan(key_of, 0, add, name="more").sink("grown")


def joined(rows: Any, sums: Any, waited: Any) -> None:
    values = rows.map(value_of, name="values")
    values.key_by(key_of).join(sums.key_by(key_of), within=(SPAN // 2, 0), name="pairs").sink("grown")


def at_the_end(rows: Any, sums: Any, waited: Any) -> None:
    sums.key_by(key_of).at_end(drift.agg.sum(as_itself), name="whole").sink("grown")


CHANGES = {
    each.__name__: each
    for each in (scanned, behind_state, of_both, windows, timers, later, behind_later, joined, at_the_end)
}


def graph_of(change: str = "", *, lateness: int = 5, time: Any = None, adding: Any = add) -> drift.Graph:
    graph = drift.Graph("growing")
    rows = graph.source("rows", time=time or drift.EventTime(time_of, lateness=lateness, late="divert"))
    sums = rows.map(value_of, name="value").scan(key_of, 0, adding, name="sums")
    sums.sink("out")
    waited = sums.map(in_a_while, with_time=True, later=True, name="wait").scan(key_of, 0, add, name="waited")
    waited.sink("waited out")
    graph.source("others").sink("other items")
    if change:
        CHANGES[change](rows, sums, waited)
    return graph


def sources(rows: Any, others: Any = ()) -> dict[str, Any]:
    return {"rows": rows, "others": others}


def stopped(folder: Path | drift.Checkpoints, rows: list[Any], items: int, others: Any = (), **more: Any) -> None:
    """A run of the graph before the change, which is stopped after so many items of its first source."""
    graph = graph_of(**more)
    run = drift.run(graph, sources(Gated(rows, items), others), state=folder, batch_items=7)
    for _ in run.batches():
        wait_until_stored(run)
        if run.progress.items_in + run.progress.late_items >= items:
            run.stop()


Found = dict[str, list[tuple[bytes, str]]]


def items_of(run: Any) -> Found:
    found: Found = {}
    for item in run:
        found.setdefault(item.sink, []).append((item.meta, repr(item.payload)))
    return found


def as_if_from_the_start(run: drift.Run, rows: Any, others: Any = ()) -> Found:
    """What a run that had the steps from the start would give from where this one resumes."""
    assert run.resumed_from is not None
    whole = items_of(drift.run(run.dataflow, sources(rows, others), engine="reference"))
    rest = {name: [item for item in items if item[0] >= run.resumed_from.at] for name, items in whole.items()}
    return {name: items for name, items in rest.items() if items}


def in_rows(draw_times: list[int]) -> list[tuple[int, int]]:
    return [(time, at * 7 % 23) for at, time in enumerate(draw_times)]


disordered = st.lists(st.integers(-4, 9), min_size=20, max_size=120).map(
    lambda steps: in_rows([2 * at + step for at, step in enumerate(steps)])
)


@given(rows=disordered, share=st.floats(0.1, 0.9), change=st.sampled_from(sorted(CHANGES)), others=st.integers(0, 5))
@settings(deadline=None, max_examples=25)
def test_filled_steps_give_what_they_would_have_given(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], share: float, change: str, others: int
) -> None:
    folder = tmp_path_factory.mktemp("state")
    more = list(range(others))
    stopped(folder, rows, max(1, int(len(rows) * share)), more)
    state = drift.Checkpoints(folder, changed_graph="accept", backfill={"rows": rows})
    run = drift.run(graph_of(change), sources(rows, more), state=state, batch_items=7)
    expected = as_if_from_the_start(run, rows, more)
    assert items_of(run) == expected


ROWS = in_rows([2 * at + at * 5 % 7 for at in range(600)])


@pytest.mark.parametrize("change", CHANGES)
def test_workers_take_the_filled_states_and_a_run_that_is_aborted_does_not_fill_again(
    tmp_path: Path, change: str
) -> None:
    stopped(tmp_path, ROWS, 300)
    state = drift.Checkpoints(tmp_path, changed_graph="accept", backfill={"rows": ROWS})
    run = drift.run(graph_of(change), sources(ROWS), state=state, batch_items=50, engine="zeromq", workers=2)
    expected = as_if_from_the_start(run, ROWS)
    run.close()  # right behind the change
    again = drift.Checkpoints(tmp_path, backfill={"rows": Gated([], 0)})  # which would wait for ever
    rest = drift.run(graph_of(change), sources(ROWS), state=again, engine="zeromq", workers=2)
    assert rest.resumed_from is not None and run.resumed_from is not None
    assert rest.resumed_from.at == run.resumed_from.at
    assert items_of(rest) == expected


def test_tasks_on_spark_take_the_filled_states(spark: Any, tmp_path: Path) -> None:
    stopped(tmp_path, ROWS, 300)
    state = drift.Checkpoints(tmp_path, changed_graph="accept", backfill={"rows": ROWS})
    run = drift.run(graph_of("windows"), sources(ROWS), state=state, engine="spark", partitions=2)
    assert items_of(run) == as_if_from_the_start(run, ROWS)


def test_steps_that_stay_keep_their_own_states_beside_filled_ones(tmp_path: Path) -> None:
    found = []
    for name, backfill in (("empty", None), ("filled", {"rows": ROWS})):
        stopped(tmp_path / name, ROWS, 300)
        accepted = {"changed_graph": "accept", "changed_code": "accept"}
        state = drift.Checkpoints(tmp_path / name, **accepted, backfill=backfill)  # type: ignore[arg-type]
        run = drift.run(graph_of("behind_state", adding=add_more), sources(ROWS), state=state)
        found.append(items_of(run))
    assert [each["out"] for each in found] == [found[0]["out"]] * 2 and found[0]["grown"] != found[1]["grown"]


#: Resumes with a changed graph, is killed while it reads or writes, and says what it has done until then.
KILLED = """
import os, signal, sys
import drift
from drift.state import files
from test_backfill import ROWS, graph_of, sources
folder, change, left = sys.argv[1], sys.argv[2], int(sys.argv[3])

def moment(kind):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    print(kind, flush=True)

def rows():
    for at, row in enumerate(ROWS):
        if at % 50 == 0:
            moment("read")
        yield row

def write(path, data):
    real(path, data[: len(data) // 2])
    moment(path.parent.name)
    real(path, data)

real, files._write = files._write, write
state = drift.Checkpoints(folder, changed_graph="accept", backfill={"rows": rows()})
drift.run(graph_of(change), sources(ROWS), state=state, batch_items=7).close()
"""


@pytest.mark.parametrize("change", ["windows", "timers"])
def test_a_kill_while_new_steps_are_filled_leaves_the_graph_as_it_was_or_all_of_the_change(
    tmp_path: Path, change: str
) -> None:
    def killed(folder: Path, moment: int) -> list[str]:
        """What a process did that was killed in its so manieth moment; all that it does, if it has fewer."""
        stopped(folder, ROWS, 300)
        command = [sys.executable, "-c", KILLED, str(folder), change, str(moment)]
        done = subprocess.run(command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True)
        moments = done.stdout.split()
        assert (done.returncode, len(moments)) == (-signal.SIGKILL, moment - 1) or done.returncode == 0
        return moments

    moments = killed(tmp_path / "whole", sys.maxsize)
    assert moments.count("read") > 5 and "snapshots" in moments and moments[-1] == "cuts"
    for moment in (moments.count("read") // 2, moments.index("snapshots") + 1, len(moments)):
        folder = tmp_path / f"killed at {moment}"
        killed(folder, moment)
        state = drift.Checkpoints(folder, changed_graph="accept", backfill={"rows": ROWS})
        run = drift.run(graph_of(change), sources(ROWS), state=state)
        assert items_of(run) == as_if_from_the_start(run, ROWS)


def test_a_record_fills_new_steps(tmp_path: Path) -> None:
    drift.run(graph_of(), sources(ROWS), record=tmp_path / "record").finish()
    stopped(tmp_path / "state", ROWS, 300)
    state = drift.Checkpoints(tmp_path / "state", changed_graph="accept", backfill=tmp_path / "record")
    run = drift.run(graph_of("windows"), sources(ROWS), state=state)
    assert items_of(run) == as_if_from_the_start(run, ROWS)


def test_nothing_is_filled_behind_the_end_of_a_run(tmp_path: Path) -> None:
    first = drift.run(graph_of(), sources(ROWS), state=tmp_path).finish()
    for backfill in (None, {"rows": ROWS}):
        state = drift.Checkpoints(tmp_path, changed_graph="accept", backfill=backfill)
        with pytest.raises(drift.GraphError, match="new, and the run has ended, so nothing comes to it any more"):
            drift.run(graph_of("scanned"), sources(ROWS), state=state)
    assert drift.run(graph_of(), sources(ROWS), state=tmp_path).finish().digest == first.digest


def test_what_is_not_the_whole_input_fills_nothing(tmp_path: Path) -> None:
    stopped(tmp_path / "state", ROWS, 300)
    other = drift.Graph("other")
    other.source("values").sink("out")
    drift.run(other, {"values": [1]}, record=tmp_path / "record").finish()
    failing: list[tuple[Any, type[Exception], str]] = [
        ({"rows": ROWS[:100]}, drift.InputError, "has 100 items of source 'rows' up to the checkpoint at time"),
        ({"others": []}, drift.SettingsError, "backfill= has no source 'rows'"),
        ({"rows": ROWS, "more": []}, drift.SettingsError, "has no source 'more'"),
        (tmp_path / "record", drift.GraphError, "sources 'values'"),
        ({"rows": [(None, 1)]}, drift.StepError, "the time function of source 'rows'"),
    ]
    for backfill, kind, message in failing:
        state = drift.Checkpoints(tmp_path / "state", changed_graph="accept", backfill=backfill)
        with pytest.raises(kind, match=message):
            drift.run(graph_of("scanned"), sources(ROWS), state=state)
    state = drift.Checkpoints(tmp_path / "state", changed_graph="accept", backfill={"rows": ROWS})
    run = drift.run(graph_of("scanned"), sources(ROWS), state=state)
    assert items_of(run) == as_if_from_the_start(run, ROWS)


def test_a_function_that_fails_for_an_old_item_ends_the_run_before_anything_changes(tmp_path: Path) -> None:
    def failing(n: int) -> int:
        return 1 // (n - 7)

    stopped(drift.Checkpoints(tmp_path, every_s=0), ROWS, 300)
    graph = graph_of()
    before = [each.number for each in known(tmp_path)]
    new = drift.Graph("growing")
    rows = new.source("rows", time=drift.EventTime(time_of, lateness=5, late="divert"))
    values = rows.map(value_of, name="value")
    sums = values.scan(key_of, 0, add, name="sums")
    sums.sink("out")
    waited = sums.map(in_a_while, with_time=True, later=True, name="wait").scan(key_of, 0, add, name="waited")
    waited.sink("waited out")
    new.source("others").sink("other items")
    values.map(failing, name="inverse").scan(key_of, 0, add, name="more").sink("grown")
    state = drift.Checkpoints(tmp_path, changed_graph="accept", backfill={"rows": ROWS}, from_checkpoint=before[0])
    with pytest.raises(drift.StepError, match="inverse") as caught:
        drift.run(new, sources(ROWS), state=state)
    assert len(before) > 1 and [each.number for each in known(tmp_path)] == before
    assert any("new steps were being filled" in note for note in caught.value.__notes__)
    run = drift.run(graph, sources(ROWS), state=tmp_path)
    assert items_of(run) == as_if_from_the_start(run, ROWS)


class Live:
    """Rows that arrive while the run runs."""

    live = True

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def open(self) -> Any:
        return self

    def read(self, items_max: int) -> list[Any] | None:
        taken, self._rows = self._rows[:items_max], self._rows[items_max:]
        return taken or None

    def filenos(self) -> list[int]:
        return []

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("time", "why"),
    [
        (drift.ArrivalTime(), "the clock stamps its items|the clock stamped its items"),
        (drift.EventTime(time_of, lateness=5, idle_after_ms=50), "the clock decides when it is idle"),
    ],
)
def test_where_a_clock_decided_nothing_is_filled(tmp_path: Path, time: Any, why: str) -> None:
    graph = graph_of(time=time)
    run = drift.run(graph, sources(Live(ROWS[:300])), state=drift.Checkpoints(tmp_path, logs=tmp_path / "logs"))
    for item in run:
        if item.position == 100:
            run.stop()
    state = drift.Checkpoints(tmp_path, changed_graph="accept", backfill={"rows": Live(ROWS)})
    with pytest.raises(drift.SettingsError, match=why):
        drift.run(graph_of("scanned", time=time), sources(Live(ROWS)), state=state)


@pytest.mark.parametrize("bad", [3, ["rows"]])
def test_a_backfill_is_sources_or_a_record(bad: Any) -> None:
    with pytest.raises(drift.SettingsError, match="neither a dict of sources nor the folder of a record"):
        drift.Checkpoints("somewhere", backfill=bad)


def test_the_command_fills_new_steps_and_the_plan_says_so(tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(f"[{time}, {value}]\n" for time, value in ROWS))
    (tmp_path / "graphs.py").write_text(
        "import test_backfill\nold, new = test_backfill.graph_of(), test_backfill.graph_of('scanned')\n"
    )
    stopped(tmp_path / "state", [[time, value] for time, value in ROWS], 300)

    def called(*words: Any) -> Any:
        return CliRunner().invoke(drift.cli.drift, [*map(str, words)], catch_exceptions=False)

    options: list[Any] = ["--accept-changed-graph", "--backfill", f"rows=jsonl:{data}"]
    graph = f"{tmp_path / 'graphs.py'}:new"
    plan = called("state", "plan", graph, tmp_path / "state", *options)
    assert plan.exit_code == 0 and "new      'more': after 'values'; filled from source 'rows'\n" in plan.output
    assert "new      'grown': after 'more'\n" in plan.output
    assert (
        "filled from the record there"
        in called("state", "plan", graph, tmp_path / "state", options[0], options[1], "there").output
    )
    bad = called("state", "plan", graph, tmp_path / "state", "--backfill", "rows=", "--backfill", "x")
    assert "--backfill rows=: say which source, as SOURCE=" in bad.output


def test_windows_that_one_item_has_opened_come_as_the_resumed_run_orders_them_and_are_those_of_a_new_run(
    tmp_path: Path,
) -> None:
    def run(*, more: bool, **given: Any) -> Any:
        graph = drift.Graph("opened together")
        numbers = graph.source("rows", time=drift.EventTime(lambda n: n))
        numbers.scan(lambda n: 0, 0, lambda total, n: (total + n, total + n), name="sums").sink("out")
        if more:
            split = numbers.flat_map(lambda n: [(key, n) for key in range(6)], name="split").key_by(
                lambda pair: pair[0]
            )
            split.window(drift.windows.tumbling(50)).count(name="windows").sink("windows")
        return drift.run(graph, {"rows": range(400)}, batch_items=10, **given)

    with run(more=False, state=tmp_path) as before:
        for item in before:
            if item.position == 120:
                before.stop()
    state = drift.Checkpoints(tmp_path, changed_graph="accept", backfill={"rows": range(400)})
    grown = run(more=True, state=state)
    there = [(item.time, item.payload.key, item.payload.value) for item in grown if item.sink == "windows"]
    assert grown.resumed_from is not None and there
    fresh = [(item.time, item.payload.key, item.payload.value) for item in run(more=True) if item.sink == "windows"]
    assert sorted(there) == sorted(each for each in fresh if each[0] >= there[0][0])
    again = drift.run(grown.dataflow, {"rows": range(400)}, engine="reference")
    assert there == [
        (item.time, item.payload.key, item.payload.value)
        for item in again
        if item.sink == "windows" and item.meta >= grown.resumed_from.at
    ]
