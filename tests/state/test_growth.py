"""Graphs that change between two runs with one state: what stays goes on as before, what is new begins empty."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from gated import Gated

import drift
import drift.cli
import drift.state.moving
from drift.records.fingerprint import fingerprint
from drift.state import files
from drift.state.growth import refused_states
from drift.state.run_checkpoints import begin_elsewhere
from drift_graph.graph import Dataflow

ROWS = list(range(3000))
SINK = "out"


def key_of(n: int) -> int:
    return n % 10


def other_key(n: int) -> int:
    return n % 3


def add(total: int, n: int) -> tuple[int, int]:
    return total + n, total + n


def count(total: int, n: int) -> tuple[int, int]:
    return total + 1, total + 1


def double(n: int) -> int:
    return 2 * n


def is_even(n: int) -> bool:
    return n % 2 == 0


def is_odd(n: int) -> bool:
    return n % 2 == 1


def as_time(n: int) -> int:
    return n


Change = Callable[[Any, Any], None]


def graph_of(before: Change | None = None, after: Change | None = None) -> drift.Graph:
    """The graph `sums`; `before` and `after` add to it, from its source and its scan, in front of it or behind it."""
    graph = drift.Graph("sums")
    numbers = graph.source("numbers", time=drift.EventTime(as_time, lateness=0))
    if before is not None:
        before(graph, numbers)
    sums = numbers.scan(key_of, 0, add, name="sums")
    sums.sink(SINK)
    numbers.key_by(key_of).window(drift.windows.tumbling(700)).count(name="counts").sink("windows")
    if after is not None:
        after(numbers, sums)
    return graph


def a_branch(_: Any, numbers: Any) -> None:
    numbers.map(double, name="double").scan(other_key, 0, add, name="more").sink("grown")


def a_sink(_: Any, sums: Any) -> None:
    sums.sink("grown")


def behind_state(_: Any, sums: Any) -> None:
    sums.filter(is_even, name="even").scan(other_key, 0, count, name="more").sink("grown")


def of_both(numbers: Any, sums: Any) -> None:
    numbers.merge(sums).map(double, name="double").scan(other_key, 0, add, name="more").sink("grown")


CHANGES: dict[str, dict[str, Change]] = {
    "a branch in front": {"before": a_branch},
    "a branch behind": {"after": a_branch},
    "a sink": {"after": a_sink},
    "a branch behind state": {"after": behind_state},
    "a branch of two streams": {"after": of_both},
}

Found = dict[str, list[tuple[bytes, str]]]


def items_of(run: Any) -> Found:
    found: Found = {}
    for item in run:
        found.setdefault(item.sink, []).append((item.meta, repr(item.payload)))
    return found


def stopped(folder: Path | str, graph: drift.Graph, items: int = 1000, **more: Any) -> Found:
    """The output of a run that is stopped, at a checkpoint, when it has read so many items."""
    run = drift.run(graph, {"numbers": Gated(ROWS, items)}, state=drift.Checkpoints(folder), batch_items=100, **more)
    found: Found = {}
    for item in run:
        found.setdefault(item.sink, []).append((item.meta, repr(item.payload)))
        if item.sink == SINK and len(found[SINK]) == items // 2:
            run.stop()
    return found


def resumed(folder: Path | str, graph: Any, **allowed: Any) -> drift.Run:
    return drift.run(graph, {"numbers": ROWS}, state=drift.Checkpoints(folder, **allowed), batch_items=100)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"engine": request.param} | ({"workers": 2} if request.param == "zeromq" else {})


# What becomes of states is decided before an engine has them, so of each kind one change is made over processes.


@pytest.mark.parametrize(
    ("change", "engine"),
    [*((each, "local") for each in CHANGES), ("a branch behind state", "zeromq")],
    indirect=["engine"],
)
def test_what_is_added_begins_empty_and_the_rest_goes_on_unchanged(
    tmp_path: Path, engine: dict[str, Any], change: str
) -> None:
    old = graph_of()
    whole = items_of(drift.run(old, {"numbers": ROWS}))
    files = {name: tmp_path / f"{name}.jsonl" for name in (SINK, "grown")}
    sinks = {name: drift.sinks.jsonl(path) for name, path in files.items()}
    first = stopped(tmp_path / "kept", old, sinks={SINK: sinks[SINK]}, **engine)
    new = graph_of(**CHANGES[change])
    with pytest.raises(
        drift.GraphError,
        match=r"step 'more' is new.*changed_graph='accept'" if "branch" in change else "sink 'grown' is new",
    ):
        drift.run(new, {"numbers": ROWS}, state=tmp_path / "kept")
    state = drift.Checkpoints(tmp_path / "kept", changed_graph="accept", every_s=0)
    run = drift.run(new, {"numbers": Gated(ROWS, 500)}, state=state, sinks=sinks, batch_items=50, **engine)
    assert run.resumed_from is not None and 0 < len(first[SINK]) <= 1000
    then = run.resumed_from.at
    for item in run:
        if item.sink == "grown":
            break
    run.close()  # aborted, behind the first checkpoint of the new graph
    run = drift.run(new, {"numbers": ROWS}, state=tmp_path / "kept", sinks=sinks, batch_items=50, **engine)
    ranked = run.dataflow
    run.finish()
    lines = {name: [json.loads(line) for line in path.open()] for name, path in files.items()}
    assert [repr(line["payload"]) for line in lines[SINK]] == [payload for _, payload in whole[SINK]]
    positions = [line["position"] for each in lines.values() for line in each]
    assert len(set(positions)) == len(positions)

    everything = items_of(drift.run(ranked, {"numbers": ROWS}, engine="reference"))
    assert everything[SINK] == whole[SINK] and everything["windows"] == whole["windows"]
    # What comes to the new step from the checkpoint on, through it from its beginning.
    inputs = {name: [(meta, payload) for meta, payload in whole[name] if meta >= then] for name in whole}
    if change == "a sink":
        expected = [payload for _, payload in inputs[SINK]]
    else:
        rest = ROWS[len(ROWS) - len(inputs[SINK]) :]
        tails = {
            "a branch behind": [double(int(text)) for _, text in inputs[SINK]],
            "a branch behind state": [each for _, text in inputs[SINK] if is_even(each := int(text))],
            "a branch of two streams": [
                double(each) for n, (_, text) in zip(rest, inputs[SINK]) for each in both_in_order(ranked, n, int(text))
            ],
        }
        step = count if change == "a branch behind state" else add
        totals: dict[int, int] = {}
        expected = []
        for each in tails.get(change, list(map(double, rest))):
            totals[other_key(each)], out = step(totals.get(other_key(each), 0), each)
            expected.append(repr(out))
    assert [repr(line["payload"]) for line in lines["grown"]] == expected


def both_in_order(dataflow: Dataflow, number: int, total: int) -> tuple[int, int]:
    """An item of the source and what is made of it, in the order in which a step that takes both gets them."""
    return (number, total) if dataflow.ranks.get("double", 0) < dataflow.ranks["sums"] else (total, number)


def test_of_steps_that_do_the_same_those_stay_that_are_between_the_same_steps(tmp_path: Path) -> None:
    """The names of steps that got none are numbered as they are declared: of then, `map double` is now another one."""

    def doubled(_: Any, sums: Any) -> None:
        sums.map(double).filter(is_even).sink("doubled")

    def twice(_: Any, numbers: Any) -> None:
        both = numbers.map(double).filter(is_even)
        both.scan(other_key, 0, add, name="more").map(double).map(double).filter(is_even).sink("grown")

    whole = items_of(drift.run(graph_of(after=doubled), {"numbers": ROWS}))
    first = stopped(tmp_path, graph_of(after=doubled))
    rest = items_of(resumed(tmp_path, graph_of(before=twice, after=doubled), changed_graph="accept"))
    assert first["doubled"] + rest["doubled"] == whole["doubled"]
    assert first[SINK] + rest[SINK] == whole[SINK]


def unnamed(*branches: str, named: dict[str, str] | None = None) -> drift.Graph:
    """Of each branch the even or odd numbers, added up by a step without a name, or with one that is given."""
    graph = drift.Graph("halves")
    numbers = graph.source("numbers")
    halves = {"evens": numbers.filter(is_even, name="even"), "odds": numbers.filter(is_odd, name="odd")}
    for name, half in halves.items():
        half.sink(f"all {name}")
    for sink in branches:
        half = halves[sink.split()[0]]
        half.scan(key_of, 0, add, name=(named or {}).get(sink)).sink(sink)
    return graph


@pytest.mark.parametrize(
    ("then", "now", "found"),
    [
        (("evens", "odds"), ("odds", "evens"), "'scan add-2' is now where it was"),
        (("evens",), ("odds", "evens"), "'scan add-2' is now where it was"),
        (("evens",), ("evens too", "evens"), "'scan add-2' is now where it was"),
        (("evens", "odds"), ("odds",), "it is now where 'scan add-2' was"),
    ],
)
def test_steps_with_state_and_without_names_are_refused_where_another_one_is_in_their_place(
    tmp_path: Path, then: tuple[str, ...], now: tuple[str, ...], found: str
) -> None:
    drift.run(unnamed(*then), {"numbers": ROWS[:9]}, state=tmp_path, complete=False).finish()
    dropped = ["scan add-2", "evens"] if len(now) < len(then) else []
    with pytest.raises(drift.GraphError, match=rf"'scan add' was given no name, and {found}.*was="):
        resumed(tmp_path, unnamed(*now), changed_graph="accept", dropped=dropped)


def test_a_step_with_state_and_without_a_name_is_refused_where_another_one_came_in_front_of_it(tmp_path: Path) -> None:
    """It has the sink, and the new one the source and the name that it had."""

    def sums(more: bool) -> drift.Graph:
        graph = drift.Graph("sums")
        numbers: Any = graph.source("numbers")
        (numbers.scan(key_of, 0, add) if more else numbers).scan(key_of, 0, add).sink(SINK)
        return graph

    drift.run(sums(more=False), {"numbers": ROWS[:9]}, state=tmp_path, complete=False).finish()
    with pytest.raises(drift.GraphError, match=r"'scan add' was given no name, and 'scan add-2' is now where it was"):
        resumed(tmp_path, sums(more=True), changed_graph="accept")


def test_steps_with_state_and_without_names_that_are_between_the_same_steps_go_on(tmp_path: Path) -> None:
    def sums(more: bool) -> drift.Graph:
        graph = drift.Graph("sums")
        numbers: Any = graph.source("numbers")
        numbers.scan(key_of, 0, add).merge(numbers.scan(key_of, 0, add)).sink(SINK)
        if more:
            numbers.sink("all")
        return graph

    whole = items_of(drift.run(sums(more=False), {"numbers": ROWS}))
    found = items_of(drift.run(sums(more=False), {"numbers": ROWS[:9]}, state=tmp_path, complete=False))
    assert found[SINK] + items_of(resumed(tmp_path, sums(more=True), changed_graph="accept"))[SINK] == whole[SINK]


def test_steps_with_state_and_without_names_go_on_where_they_are_and_by_the_names_they_get(tmp_path: Path) -> None:
    drift.run(unnamed("evens"), {"numbers": ROWS[:9]}, state=tmp_path, complete=False).finish()
    more = unnamed("evens", "odds")
    state = drift.Checkpoints(tmp_path, changed_graph="accept")
    drift.run(more, {"numbers": ROWS[:9]}, state=state, complete=False).finish()
    named = unnamed("odds", "evens", named={"evens": "of evens", "odds": "of odds"})
    was = {"of evens": "scan add", "of odds": "scan add-2"}
    rest = items_of(resumed(tmp_path, named, changed_graph="accept", was=was))
    assert [payload for _, payload in rest["evens"]][:2] == ["10", "14"], "to 0 and 2, of the first run"
    assert [payload for _, payload in rest["odds"]][:2] == ["9", "11"], "it was new behind these"


def test_steps_that_have_each_others_names_are_a_changed_graph_though_it_has_the_same_structure(tmp_path: Path) -> None:
    def halves(first: str, second: str) -> drift.Graph:
        graph = drift.Graph("halves")
        numbers = graph.source("numbers")
        numbers.filter(is_even, name="even").scan(key_of, 0, add, name=first).sink("evens")
        numbers.filter(is_odd, name="odd").scan(key_of, 0, add, name=second).sink("odds")
        return graph

    drift.run(halves("a", "b"), {"numbers": ROWS[:9]}, state=tmp_path, complete=False).finish()
    with pytest.raises(drift.GraphError, match=r"of another graph.*the edge 'even' -> 'b' is new.*changed_graph="):
        resumed(tmp_path, halves("b", "a"), changed_code="accept")
    with suppress(StopIteration):  # each has the states of its name, as is accepted
        assert next(resumed(tmp_path, halves("b", "a"), changed_graph="accept")).payload == 9


def test_windows_that_are_open_at_the_change_close_as_they_would_have(tmp_path: Path) -> None:
    whole = items_of(drift.run(graph_of(), {"numbers": ROWS}))
    first = stopped(tmp_path, graph_of())
    rest = items_of(resumed(tmp_path, graph_of(before=a_branch), changed_graph="accept"))
    for name in (SINK, "windows"):
        assert first.get(name, []) + rest[name] == whole[name]


def test_the_change_is_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    stopped(tmp_path, graph_of())
    run = resumed(tmp_path, graph_of(after=a_branch), changed_graph="accept")
    assert run.resumed_from is not None
    number = run.resumed_from.number
    next(run)  # nothing of it is taken, no checkpoint committed behind it
    run.close()
    again = resumed(tmp_path, graph_of(after=a_branch))
    assert again.resumed_from is not None and again.resumed_from.number == number + 1
    again.close()
    with pytest.raises(drift.GraphError, match="step 'more' is gone"):
        resumed(tmp_path, graph_of())
    back = resumed(tmp_path, graph_of(), from_checkpoint=number)
    back.close()


def test_steps_are_dropped_if_they_are_named(tmp_path: Path) -> None:
    new = graph_of(after=a_branch)
    whole = items_of(drift.run(new, {"numbers": ROWS}))
    first = stopped(tmp_path, new)
    with pytest.raises(drift.GraphError, match=r"'more' is a step with state.*dropped=\['more'\].*'grown' is a sink"):
        resumed(tmp_path, graph_of(), changed_graph="accept")
    rest = items_of(resumed(tmp_path, graph_of(), changed_graph="accept", dropped=["more", "grown"]))
    assert first[SINK] + rest[SINK] == whole[SINK] and "grown" not in rest


def test_the_name_of_a_dropped_step_is_not_given_again(tmp_path: Path) -> None:
    stopped(tmp_path, graph_of(after=a_branch))
    allowed = {"changed_graph": "accept", "dropped": ["more", "grown"]}
    with resumed(tmp_path, graph_of(), **allowed) as run:
        next(run)
    with pytest.raises(drift.GraphError, match="'more' has the name of a step that was dropped"):
        resumed(tmp_path, graph_of(after=a_branch), changed_graph="accept")


def test_a_stateless_step_in_front_of_a_kept_one_changes_what_comes_to_it_from_the_checkpoint_on(
    tmp_path: Path,
) -> None:
    graph = drift.Graph("sums")
    numbers = graph.source("numbers", time=drift.EventTime(as_time, lateness=0))
    numbers.filter(is_even, name="even").scan(key_of, 0, add, name="sums").sink(SINK)
    numbers.key_by(key_of).window(drift.windows.tumbling(700)).count(name="counts").sink("windows")
    first = stopped(tmp_path, graph_of())
    rest = items_of(resumed(tmp_path, graph, changed_graph="accept"))
    totals, expected = dict.fromkeys(range(10), 0), []
    for number in ROWS:
        if number < len(first[SINK]) or is_even(number):
            totals[key_of(number)] += number
            expected.append(repr(totals[key_of(number)]))
    assert [payload for _, payload in first[SINK] + rest[SINK]] == expected


def other_graph(**more: Any) -> drift.Graph:
    """`graph_of()` with one thing changed."""
    graph = drift.Graph("sums")
    numbers = graph.source("numbers", time=drift.EventTime(as_time, lateness=more.get("lateness", 0)))
    if "source" in more:
        graph.source("others").sink("others out")
    items = numbers.scan(key_of, 0, count, name="first") if "upstream" in more else numbers
    if "window" in more:
        sums = items.key_by(key_of).window(more["window"]).count(name="sums")
    else:
        sums = items.scan(key_of, 0, more.get("function", add), name="sums")
    sums.sink(SINK)
    numbers.key_by(key_of).window(drift.windows.tumbling(700)).count(name="counts").sink("windows")
    if "branch" in more:
        a_branch(None, numbers)
    if "late sibling" in more:
        numbers.merge(sums).scan(other_key, 0, add, name="more").sink("grown")
    return graph


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"source": True}, "'others' is a new source"),
        ({"lateness": 5}, "'numbers' has another time policy"),
        ({"upstream": True}, "'sums' gets its items through other steps with state than before"),
        ({"window": drift.windows.count(3)}, "'sums' is another kind of step than before"),
        ({"late sibling": True}, "cannot keep the order of its items"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, more: dict[str, Any], message: str) -> None:
    stopped(tmp_path, graph_of())
    sources = {"numbers": ROWS} | ({"others": []} if "source" in more else {})
    state = drift.Checkpoints(tmp_path, changed_graph="accept", changed_code="accept")
    with pytest.raises(drift.GraphError, match=message):
        drift.run(other_graph(**more), sources, state=state)


def by_time(policy: drift.EventTime) -> drift.Graph:
    graph = drift.Graph("timed")
    graph.source("rows", time=policy, schema={"at": int, "other": int, "n": int}).sink("out")
    return graph


TIMED = [{"at": number, "other": number - 5, "n": number} for number in range(9)]


@pytest.mark.parametrize(
    ("policy", "changed"),
    [
        (drift.EventTime("at"), drift.EventTime("other")),
        (drift.EventTime("at"), drift.EventTime("at", tie="n")),
        (drift.EventTime("at", tie="n"), drift.EventTime("at", tie="other")),
        (drift.EventTime(pl.col("at") * 2), drift.EventTime(pl.col("at") * 3)),
        (drift.EventTime("at"), drift.EventTime(lambda row: row["other"])),
    ],
    ids=["time", "new tie", "tie", "expression", "function"],
)
def test_a_source_keeps_its_time_and_its_tie_by_which_items_around_a_checkpoint_are_known(
    tmp_path: Path, policy: drift.EventTime, changed: drift.EventTime
) -> None:
    drift.run(by_time(policy), {"rows": TIMED[:5]}, state=tmp_path, complete=False).finish()
    accepted = {"changed_code": "accept"}, {"changed_code": "accept", "changed_graph": "accept"}
    for accepts in accepted:
        state = drift.Checkpoints(tmp_path, **accepts)  # type: ignore[arg-type]
        with pytest.raises(drift.GraphError, match="'rows' has another time policy than before; start a new run"):
            drift.run(by_time(changed), {"rows": TIMED}, state=state)
    prints = [fingerprint(by_time(each).build()) for each in (policy, changed)]
    assert refused_states(*prints) == "'rows' has another time policy than before"  # of a stream on Spark, too


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"at": int, "n": float}, "n Int64 -> Float64"),
        ({"at": int, "n": int, "more": str}, "more not there -> String"),
        ({"n": int, "at": int}, "at, n -> n, at, in another order"),
        (None, "at Int64 -> not there, n Int64 -> not there"),
    ],
    ids=["type", "column", "order", "none"],
)
def test_another_schema_of_a_source_is_to_be_accepted(tmp_path: Path, schema: Any, said: str) -> None:
    def summed(schema: Any) -> drift.Graph:
        graph = drift.Graph("summed")
        rows = graph.source("rows", time=drift.EventTime("at"), schema=schema)
        rows.count(key=lambda row: row["n"]).sink("out")
        return graph

    file = tmp_path / "rows.csv"
    file.write_text("at,n,more\n1,9,a\n2,9,b\n")
    rows = {"rows": drift.sources.csv(file)} if schema is None else {"rows": drift.sources.csv(file, schema=schema)}
    before = {"at": int, "n": int}
    first = {"rows": drift.sources.csv(file, schema=before)}
    drift.run(summed(before), first, state=tmp_path / "kept", complete=False).finish()
    for accepts in ({}, {"changed_graph": "accept"}):
        state = drift.Checkpoints(tmp_path / "kept", **accepts)  # type: ignore[arg-type]
        with pytest.raises(drift.GraphError, match=f"the schema of source 'rows': {said}.*changed_code='accept'"):
            drift.run(summed(schema), rows, state=state)
    drift.run(summed(schema), rows, state=drift.Checkpoints(tmp_path / "kept", changed_code="accept")).close()


def test_a_function_of_the_time_that_was_mended_is_accepted(tmp_path: Path) -> None:
    before, mended = (drift.EventTime(time) for time in (lambda row: row["at"], lambda row: int(row["at"] or 0)))
    first = items_of(drift.run(by_time(before), {"rows": TIMED[:5]}, state=tmp_path, complete=False))
    state = drift.Checkpoints(tmp_path, changed_code="accept")
    run = drift.run(by_time(mended), {"rows": TIMED}, state=state)
    assert first.get("out", []) + items_of(run)["out"] == items_of(drift.run(by_time(before), {"rows": TIMED}))["out"]


def test_functions_that_changed_with_the_graph_are_to_be_accepted_too(tmp_path: Path) -> None:
    stopped(tmp_path, graph_of())

    graph = other_graph(function=count, branch=True)
    with pytest.raises(drift.GraphError, match="changed_code='accept'"):
        resumed(tmp_path, graph, changed_graph="accept")
    resumed(tmp_path, graph, changed_graph="accept", changed_code="accept").finish()


def test_a_run_that_has_ended_does_not_grow(tmp_path: Path) -> None:
    drift.run(graph_of(), {"numbers": ROWS}, state=tmp_path).finish()
    with pytest.raises(drift.GraphError, match="the run has ended"):
        resumed(tmp_path, graph_of(after=a_branch), changed_graph="accept")


def test_what_a_sink_has_behind_the_checkpoint_is_of_the_graph_before(tmp_path: Path) -> None:
    sinks = {SINK: drift.sinks.jsonl(tmp_path / "out.jsonl")}
    state = drift.Checkpoints(tmp_path / "kept")
    run = drift.run(graph_of(), {"numbers": Gated(ROWS, 1000)}, state=state, sinks=sinks, batch_items=100)
    for item in run:
        if item.sink == SINK and item.position == 500:
            run.stop()
    number = 1
    with drift.run(graph_of(), {"numbers": ROWS}, state=state, sinks=sinks, batch_items=100) as run:
        assert run.resumed_from is not None
        number = run.resumed_from.number
        for _ in zip(range(300), run):
            pass
    older = {"from_checkpoint": number, "changed_graph": "accept"}
    with pytest.raises(drift.SinkError, match="from behind the checkpoint, which the graph before wrote"):
        drift.run(graph_of(after=a_branch), {"numbers": ROWS}, state=replace(state, **older), sinks=sinks)


def test_the_target_of_a_new_sink_is_empty(tmp_path: Path) -> None:
    stopped(tmp_path / "kept", graph_of())
    database = tmp_path / "some.db"
    other = drift.Graph("other")
    other.source("numbers").map(lambda n: {"n": n}).sink("grown")
    drift.run(other, {"numbers": range(3)}, sinks={"grown": drift.sinks.sqlite(database, "grown")}).finish()
    graph = graph_of(after=lambda numbers, sums: sums.map(lambda n: {"n": n}, name="rows").sink("grown"))
    sinks = {"grown": drift.sinks.sqlite(database, "grown")}
    state = drift.Checkpoints(tmp_path / "kept", changed_graph="accept")
    with pytest.raises(drift.SinkError, match="is new in this graph, and its target has items already"):
        drift.run(graph, {"numbers": ROWS}, state=state, sinks=sinks).finish()


# The command.

MODULE = """
import drift
import test_growth
old, new = test_growth.graph_of(), test_growth.graph_of(after=test_growth.a_branch)
"""


def test_the_plan_says_what_becomes_of_each_step_and_ends_as_the_run_would(tmp_path: Path) -> None:
    stopped(tmp_path / "kept", graph_of())
    (tmp_path / "graphs.py").write_text(MODULE)

    def plan(name: str, *options: str) -> Any:
        words = ["state", "plan", f"{tmp_path / 'graphs.py'}:{name}", str(tmp_path / "kept"), *options]
        return CliRunner().invoke(drift.cli.drift, words)

    assert plan("old").exit_code == 0
    refused = plan("new")
    assert refused.exit_code == 3 and "new      'more': after 'double'; REFUSED: is new" in refused.output
    accepted = plan("new", "--accept-changed-graph")
    assert accepted.exit_code == 0 and "kept     'sums'\n" in accepted.output
    assert "new      'grown': after 'more'\n" in accepted.output
    told = json.loads(plan("new", "--accept-changed-graph", "--json").output)
    assert [each["step"] for each in told["steps"] if each["what"] == "new"] == ["double", "more", "grown"]
    run = resumed(tmp_path / "kept", graph_of(after=a_branch), changed_graph="accept")
    next(run)
    run.close()
    gone = plan("old", "--accept-changed-graph", "--drop-step", "more", "--json")
    assert gone.exit_code == 3 and "'grown' is a sink, and gone" in json.loads(gone.output)["error"]
    assert plan("old", "--accept-changed-graph", "--drop-step", "more", "--drop-step", "grown").exit_code == 0


def test_a_stream_on_spark_refuses_the_state_of_a_graph_that_was_changed(tmp_path: Path) -> None:
    stopped(tmp_path / "kept", graph_of())
    new = graph_of(**CHANGES["a branch in front"])
    run = resumed(tmp_path / "kept", new, changed_graph="accept")
    next(iter(run))
    run.close()
    dataflow = new.build()
    times = {"numbers": drift.EventTime(as_time, lateness=0)}
    with pytest.raises(drift.SettingsError, match="stream on Spark cannot resume"):
        begin_elsewhere(drift.Checkpoints(tmp_path / "kept"), dataflow, times, fused=True, algorithm="xxh3_128")


# Renamed steps, and states that are converted.


def in_pairs(total: tuple[int, int], n: int) -> tuple[tuple[int, int], int]:
    return (total[0] + n, total[1] + 1), total[0] + n


def with_count(total: int) -> tuple[int, int]:
    return total, 0


def failing(total: int) -> tuple[int, int]:
    raise ValueError("no such state")


def at_each(total: int, n: int, time: int) -> tuple[int, list[Any]]:
    return total + n, [total + n, drift.at(time + 200, n)]


def at_each_in_pairs(total: tuple[int, int], n: int, time: int) -> tuple[tuple[int, int], list[Any]]:
    return (total[0] + n, total[1]), [total[0] + n, drift.at(time + 200, n)]


def in_the_end(total: Any, n: int, time: int) -> tuple[Any, list[Any]]:
    return total, [f"{n} at {time}"]


def stateful(prefix: str = "", *, in_two: bool = False) -> drift.Graph:
    """A graph with scans, a process with timers, later items, windows of two kinds, and rounds."""
    graph = drift.Graph("stateful")
    numbers = graph.source("numbers", time=drift.EventTime(as_time, lateness=0))
    initial, step, on_item = ((0, 0), in_pairs, at_each_in_pairs) if in_two else (0, add, at_each)
    numbers.scan(key_of, initial, step, name=f"{prefix}sums").sink(SINK)
    numbers.process(as_time, initial, on_item, in_the_end, name=f"{prefix}timers").sink("to timers")
    keyed = numbers.key_by(key_of)
    keyed.window(drift.windows.tumbling(700)).count(name=f"{prefix}tumbling").sink("to tumbling")
    keyed.window(drift.windows.sliding(700, 350)).count(name=f"{prefix}sliding").sink("to sliding")
    later = numbers.map(in_a_while, later=True, name=f"{prefix}later")
    later.scan(other_key, 0, count, name=f"{prefix}of later").sink("to later")
    numbers.scan(other_key, 0, count, name=f"{prefix}tried", on_error="divert").sink("to tried")
    numbers.replay(2, 0, itself, added_up, name=f"{prefix}rounds").sink("to rounds")
    return graph


def itself(pairs: Any) -> Any:
    return pairs.map(second)


def second(pair: tuple[int, int]) -> int:
    return pair[1]


def added_up(total: int, n: int) -> int:
    return total + n


def in_a_while(n: int) -> Any:
    return drift.at(n + 150, n)


NAMES = ("sums", "timers", "tumbling", "sliding", "later", "of later", "tried", "rounds")
RENAMED = {f"new {name}": name for name in NAMES}
CONVERTED = {"sums": with_count, "timers": with_count}
BOTH: dict[str, Any] = {"was": RENAMED, "migrate": {f"new {name}": each for name, each in CONVERTED.items()}}


RENAMES: Any = (lambda: stateful("new "), {"was": RENAMED})
CONVERTS: Any = (lambda: stateful(in_two=True), {"migrate": CONVERTED})


@pytest.mark.parametrize(
    ("new", "allowed", "engine"),
    [(*RENAMES, "local"), (*CONVERTS, "local"), (*CONVERTS, "zeromq")],
    ids=["renamed-local", "converted-local", "converted-zeromq"],  # both at once: in parts, below
    indirect=["engine"],
)
def test_steps_that_are_renamed_or_converted_go_on_with_all_their_states(
    tmp_path: Path, engine: dict[str, Any], new: Callable[[], drift.Graph], allowed: dict[str, Any]
) -> None:
    whole = items_of(drift.run(stateful(), {"numbers": ROWS}))
    first = stopped(tmp_path, stateful(), **engine)
    state = drift.Checkpoints(tmp_path, changed_graph="accept", every_s=0, **allowed)
    found, half = first, len(first[SINK]) + 250
    run = drift.run(new(), {"numbers": Gated(ROWS, 500)}, state=state, batch_items=50, **engine)
    for item in run:
        found.setdefault(item.sink, []).append((item.meta, repr(item.payload)))
        if len(found[SINK]) == half:
            run.stop()
    # What the call says stays as it is: nothing is moved twice.
    for name, items in items_of(drift.run(new(), {"numbers": ROWS}, state=state, batch_items=100, **engine)).items():
        found.setdefault(name, []).extend(items)
    assert found == whole


@pytest.mark.parametrize("place", ["files", "redis", "postgres"])
def test_states_that_move_are_written_in_parts_to_each_kind_of_store(
    tmp_path: Path, place: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = request.getfixturevalue(f"{place}_url") + "#" + tmp_path.name if place != "files" else str(tmp_path / "state")
    monkeypatch.setattr(drift.state.moving, "_KEYS_IN_PART", 3)
    whole = items_of(drift.run(stateful(), {"numbers": ROWS}))
    found = stopped(url, stateful())
    rest = items_of(resumed(url, stateful("new ", in_two=True), changed_graph="accept", **BOTH))
    assert {name: found.get(name, []) + rest.get(name, []) for name in whole} == whole


def test_a_death_while_states_move_leaves_all_of_them_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift.state.moving, "_KEYS_IN_PART", 64)
    whole = items_of(drift.run(stateful(), {"numbers": ROWS}))
    first = stopped(tmp_path / "state", stateful())
    real, written = files._write, list[str]()

    def killed_at(number: int | None) -> Path:
        """A copy of the state, whose run is killed in the midst of this write; without a number it is closed."""
        folder = tmp_path / f"killed at {number}"
        shutil.copytree(tmp_path / "state", folder)
        written.clear()

        def write(path: Path, data: bytes) -> None:
            if len(written) == number:
                real(path, data[: len(data) // 2])
                raise KilledHere
            written.append(path.parent.name)
            real(path, data)

        with monkeypatch.context() as patch, suppress(KilledHere):
            patch.setattr(files, "_write", write)
            resumed(folder, stateful("new ", in_two=True), changed_graph="accept", **BOTH).close()
        return folder

    killed_at(None)
    assert written.count("snapshots") > len(NAMES) and written[-1] == "cuts"
    for number in (0, len(written) // 2, len(written) - 1, len(written)):
        again = resumed(killed_at(number), stateful("new ", in_two=True), changed_graph="accept", **BOTH)
        rest = items_of(again)
        assert {name: first.get(name, []) + rest.get(name, []) for name in whole} == whole


class KilledHere(BaseException):
    """In place of a kill."""


def test_a_conversion_that_raises_or_was_done_changes_nothing(tmp_path: Path) -> None:
    stopped(tmp_path, stateful())
    graph = stateful(in_two=True)

    def go_on(graph: drift.Graph, **migrate: Any) -> drift.Run:
        state = drift.Checkpoints(tmp_path, changed_graph="accept", migrate=migrate)
        return drift.run(graph, {"numbers": ROWS}, state=state, batch_items=100)

    with pytest.raises(drift.StepError, match=r"failing.*'timers' raised ValueError: no such state, for the state \d+"):
        go_on(graph, sums=with_count, timers=failing)
    with pytest.raises(drift.GraphError, match=r"'timers' is now of initial of type tuple .* unless migrate= converts"):
        go_on(graph, sums=with_count)
    with go_on(graph, sums=with_count, timers=with_count) as run:
        next(run)
    with pytest.raises(drift.GraphError, match=r"'sums' was converted by this function before"):
        go_on(stateful(), sums=with_count, timers=int)
    with go_on(graph, sums=with_count, timers=with_count) as run:
        next(run)


@pytest.mark.parametrize(
    ("allowed", "message"),
    [
        ({"was": {"more": "sums"}}, "'more' is to have the states of 'sums', and the graph has no such step"),
        ({"was": {"counts": "more"}}, "no error"),
        ({"was": {"sums": "counts"}}, "'sums' is to have the states of 'counts', and the state has a step of that"),
        ({"was": {SINK: "sums"}}, "the state has a step of that name"),
        ({"migrate": {"more": with_count}}, "'more' is to have its states converted, and the graph has no such step"),
        ({"migrate": {"counts": with_count}}, "'counts' has states of drift's own"),
    ],
)
def test_what_cannot_be_moved_is_refused(tmp_path: Path, allowed: dict[str, Any], message: str) -> None:
    stopped(tmp_path, graph_of())
    graph = other_graph(function=count)
    state = {"changed_graph": "accept", "changed_code": "accept", **allowed}
    if message == "no error":  # it was renamed in an earlier run
        resumed(tmp_path, graph, **state).finish()
        return
    with pytest.raises(drift.GraphError, match=message):
        resumed(tmp_path, graph, **state)


def test_the_command_says_what_is_renamed_and_converted(tmp_path: Path) -> None:
    stopped(tmp_path / "kept", stateful())
    (tmp_path / "graphs.py").write_text("from test_growth import stateful, with_count\nnew = stateful(in_two=True)\n")
    file = f"{tmp_path / 'graphs.py'}"

    def plan(*options: str) -> Any:
        words = ["state", "plan", f"{file}:new", str(tmp_path / "kept"), "--accept-changed-graph", *options]
        return CliRunner().invoke(drift.cli.drift, words)

    assert plan().exit_code == 3
    converted = [word for name in CONVERTED for word in ("--migrate-step", f"{name}={file}:with_count")]
    told = plan(*converted)
    assert told.exit_code == 0 and "kept     'sums': its states are converted by with_count, since" in told.output
    assert "REFUSED: is to have the states of 'less'" in plan(*converted, "--step-was", "more=less").output
    assert "--step-was more: say which step, as STEP=more" in plan("--step-was", "more").output
    for url in ("redis://me:hunter2@h/0", "postgresql://me@h/d?password=hunter2"):
        said = plan("--backfill", url).output
        assert "say which source, as SOURCE=" in said and "***" in said and "hunter2" not in said
    twice = plan("--step-was", "more=one", "--step-was", "more=two")
    assert "--step-was is given twice for step 'more': 'one' and 'two'" in twice.output and twice.exit_code == 2
