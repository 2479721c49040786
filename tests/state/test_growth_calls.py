"""Graphs with calls and durable steps that change between two runs with one state: in each piece between calls, what
stays goes on as before, and nothing that was answered is asked about again.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from gated import Gated
from test_records_cli import call

import drift

ROWS = list(range(400))


def add(total: int, n: int) -> tuple[int, int]:
    return total + n, total + n


def first_of(n: int) -> int:
    return n % 3


class Asked:
    """Answers with the square, and counts."""

    def __init__(self) -> None:
        self.about: Counter[int] = Counter()

    def __call__(self, n: int) -> int:
        self.about[n] += 1
        return n * n


Steps = Callable[[Any], Any]


def graph_of(ask: Any, *, before: Steps | None = None, behind: Steps | None = None, **more: Any) -> drift.Graph:
    """Sums in front of a call and behind it."""
    graph = drift.Graph("asked")
    numbers = graph.source("numbers", time=drift.EventTime(lambda n: n, lateness=0))
    sums = numbers.scan(first_of, 0, add, name="sums")
    asked = before(sums) if before is not None else sums
    if more.get("calls", True):
        asked = asked.call(ask, name="ask", timeout_s=None, concurrency=4)
    if "second" in more:
        asked = asked.call(more["second"], name="second", timeout_s=None)
    if behind is not None:
        asked = behind(asked)
    totals = asked.scan(first_of, 0, add, name="totals")
    if "third" in more:
        totals = totals.call(more["third"], name="third", timeout_s=None)
    totals.sink("out")
    if "branch" in more:
        more["branch"](numbers, sums, asked)
    return graph


def run(folder: Path, graph: drift.Graph, rows: Any = ROWS, **allowed: Any) -> drift.Run:
    state = drift.Checkpoints(folder / "state", every_s=0, keep=1000, **allowed)  # one to begin again at, however slow
    sinks = {"out": drift.sinks.jsonl(folder / "out.jsonl")}
    return drift.run(graph, {"numbers": rows}, state=state, sinks=sinks, batch_items=10)


def stopped(folder: Path, graph: drift.Graph, items: int = 200) -> int:
    """Stop a run while items wait for answers; returns how many were released."""
    out = 0
    made = run(folder, graph, Gated(ROWS, items))
    for _ in made:
        out += 1
        if out == 50:
            made.stop()
    return out


def output(folder: Path) -> list[int]:
    return [json.loads(line)["payload"] for line in (folder / "out.jsonl").open()]


def expected(of: Callable[[list[int]], list[int]], rows: list[int]) -> list[int]:
    return of(rows)


def sums_of(numbers: list[int]) -> list[int]:
    totals: dict[int, int] = {}
    out = []
    for n in numbers:
        totals[first_of(n)] = totals.get(first_of(n), 0) + n
        out.append(totals[first_of(n)])
    return out


WHOLE = sums_of([n * n for n in sums_of(ROWS)])


def test_a_branch_before_between_and_behind_calls_leaves_what_was(tmp_path: Path) -> None:
    first, then = Asked(), Asked()
    out = stopped(tmp_path, graph_of(first))
    assert 0 < out < len(ROWS)

    def branch(numbers: Any, sums: Any, asked: Any) -> None:
        numbers.map(lambda n: -n, name="less").sink("a")
        sums.filter(lambda n: n % 2 == 0, name="even").scan(first_of, 0, add, name="evens").sink("b")
        asked.map(lambda n: n + 1, name="more").sink("c")

    new = graph_of(then, branch=branch)
    with pytest.raises(drift.GraphError, match=r"step 'evens' is new.*changed_graph='accept'"):
        run(tmp_path, new)
    found: dict[str, list[int]] = {}
    for item in run(tmp_path, new, changed_graph="accept"):
        found.setdefault(item.sink, []).append(item.payload)
    assert output(tmp_path) == WHOLE
    assert found["a"] == [-n for n in ROWS[out:]]
    assert found["c"] == [n * n + 1 for n in sums_of(ROWS)[out:]]
    assert not set(first.about) & set(then.about) and set((first.about + then.about).values()) == {1}


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, Asked]:
    """The state of a run that was stopped while items waited for answers."""
    folder, asked = tmp_path_factory.mktemp("waiting"), Asked()
    return folder, stopped(folder, graph_of(asked)), asked


def copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to, dirs_exist_ok=True)
    return to


def plus(n: int) -> int:
    return n + 1


CHANGES: dict[str, tuple[dict[str, Any], Callable[[int], int], Callable[[int], int]]] = {
    "a map in front": ({"before": lambda sums: sums.map(plus, name="plus")}, plus, int),
    "a map behind": ({"behind": lambda asked: asked.map(plus, name="plus")}, int, plus),
    "a call behind": ({"second": plus}, int, plus),
    "a call behind the last step": ({"third": int}, int, int),
    "a durable step": ({"before": lambda sums: sums.map(plus, name="plus", durable=True)}, plus, int),
    "nothing": ({}, int, int),
}


@pytest.mark.parametrize("change", CHANGES)
def test_steps_and_calls_are_added_around_a_call(tmp_path: Path, waiting: tuple[Path, int, Asked], change: str) -> None:
    folder, out, first = waiting
    more, before, behind = CHANGES[change]
    then = Asked()
    copied(folder, tmp_path)
    run(tmp_path, graph_of(then, **more), changed_graph="accept").finish()
    sums = sums_of(ROWS)
    answers = [n * n for n in sums[:out]] + [behind(before(n) ** 2) for n in sums[out:]]
    assert output(tmp_path) == sums_of(answers)
    assert not set(first.about) & set(then.about)
    assert set(then.about.values()) == {1}


def test_a_change_stays_and_is_accepted_once(tmp_path: Path, waiting: tuple[Path, int, Asked]) -> None:
    folder, _, _ = waiting
    copied(folder, tmp_path)
    new = graph_of(Asked(), third=int)
    made = run(tmp_path, new, Gated(ROWS, 300), changed_graph="accept")  # reading may begin long before the output
    for at, _ in enumerate(made):
        if at == 30:
            made.stop()
    run(tmp_path, new).finish()
    assert output(tmp_path) == WHOLE


def test_a_change_without_a_checkpoint_to_begin_again_at_is_refused(
    tmp_path: Path, waiting: tuple[Path, int, Asked]
) -> None:
    folder, _, _ = waiting
    copied(folder, tmp_path)
    for old in sorted((tmp_path / "state" / "segments" / "1" / "cuts").iterdir())[:-1]:
        old.unlink()  # as where fewer are retained
    with pytest.raises(drift.GraphError, match=r"has no checkpoint at or below \d+ of the steps in front of a call"):
        run(tmp_path, graph_of(Asked(), third=int), changed_graph="accept")
    run(tmp_path, graph_of(Asked())).finish()
    assert output(tmp_path) == WHOLE


def test_a_call_is_removed_once_nothing_waits_for_it(tmp_path: Path, waiting: tuple[Path, int, Asked]) -> None:
    folder, _, _ = waiting
    copied(folder, tmp_path)
    without = graph_of(Asked(), calls=False)
    with pytest.raises(drift.GraphError, match=r"as of different times.*complete=False"):
        run(tmp_path, without, changed_graph="accept")
    state, sinks = drift.Checkpoints(tmp_path / "state"), {"out": drift.sinks.jsonl(tmp_path / "out.jsonl")}
    drift.run(
        graph_of(Asked()), {"numbers": ROWS[:300]}, state=state, sinks=sinks, batch_items=10, complete=False
    ).finish()
    out = len(output(tmp_path))
    run(tmp_path, without, changed_graph="accept").finish()
    sums = sums_of(ROWS)
    assert 200 < out <= 300 and output(tmp_path) == sums_of([n * n for n in sums[:out]] + sums[out:])


@pytest.mark.parametrize("was", [False, True])
@pytest.mark.parametrize("kind", ["call", "durable"])
def test_a_call_or_a_durable_step_is_renamed_while_items_wait_behind_it(tmp_path: Path, kind: str, was: bool) -> None:
    """What has left a segment is in a log under the name of the step that it came from."""
    first, then = Asked(), Asked()

    def squares(name: str, ask: Any, rows: Any, **allowed: Any) -> drift.Run:
        graph = drift.Graph("squares")
        numbers = graph.source("numbers", time=drift.EventTime(lambda n: n, lateness=0))
        answers = (
            numbers.call(ask, name=name, timeout_s=None)
            if kind == "call"
            else numbers.map(lambda n: n * n, name=name, durable=True)
        )
        answers.scan(first_of, 0, add, name="totals").sink("out")
        state = drift.Checkpoints(tmp_path / "state", every_s=0, keep=1000, **allowed)
        sinks = {"out": drift.sinks.jsonl(tmp_path / "out.jsonl")}
        return drift.run(graph, {"numbers": rows}, state=state, sinks=sinks, batch_items=10)

    made = squares("before", first, Gated(ROWS, 200))
    for number, _ in enumerate(made, 1):
        if number == 50:
            made.stop()
    with pytest.raises(drift.GraphError, match=r"(have other names|'now' is new).*changed_graph='accept'"):
        squares("now", then, ROWS)
    said = {"was": {"now": "before"}} if was else {}
    squares("now", then, ROWS, changed_graph="accept", **said).finish()
    assert output(tmp_path) == sums_of([n * n for n in ROWS])
    if kind == "call" and was:  # else it is a new one
        assert not set(first.about) & set(then.about) and set((first.about + then.about).values()) == {1}


def test_a_call_comes_to_a_graph_without_one(tmp_path: Path) -> None:
    out = stopped(tmp_path, graph_of(None, calls=False))
    asked = Asked()
    run(tmp_path, graph_of(asked), changed_graph="accept").finish()
    sums = sums_of(ROWS)
    assert output(tmp_path) == sums_of(sums[:out] + [n * n for n in sums[out:]])
    assert asked.about.total() == len(ROWS) - out


@pytest.mark.parametrize("complete", [False, True])
def test_a_graph_does_not_change_where_what_waits_was_read_before_the_only_checkpoint(
    complete: bool, tmp_path: Path
) -> None:
    """Its first piece has no state, and would be read on behind what waits for answers."""
    first, then, is_stopped = Asked(), Asked(), Event()

    def squares(ask: Any, rows: list[int] = ROWS, *, changed: bool = False, **settings: Any) -> drift.Run:
        graph = drift.Graph("squares")
        answers = graph.source("numbers").call(ask, name="ask", timeout_s=None)
        answers.scan(first_of, 0, add, name="totals").sink("out")
        if changed:
            answers.filter(lambda n: n % 2 == 0, name="even").sink("evens")
        allowed = {"changed_graph": "accept"} if changed else {}
        state = drift.Checkpoints(tmp_path / "state", every_s=1000, **allowed)
        return drift.run(graph, {"numbers": rows}, state=state, batch_items=1000, **settings)

    def slow(n: int) -> int:
        if n >= 100:
            is_stopped.wait()
        return first(n)

    out = []
    stopping = squares(slow, complete=complete)
    for item in stopping:
        out.append(item.payload)
        if len(out) == 50:
            stopping.stop()
            is_stopped.set()
    assert 0 < len(out) < len(ROWS)
    words = "(let it end|resume) with the graph as it was"
    with pytest.raises(drift.GraphError, match=rf"read its sources up to .* waits in front of a call.*{words}"):
        squares(then, changed=True)
    out += [item.payload for item in squares(first, complete=complete)]
    assert out == sums_of([n * n for n in ROWS])
    if not complete:
        rows = list(range(500))
        out += [item.payload for item in squares(then, rows, changed=True) if item.sink == "out"]
        assert out == sums_of([n * n for n in rows])
        assert set(then.about) == set(range(400, 500))


@pytest.mark.parametrize("every_s", [(1e9, 1e9, 0), (0, 1e9, 0), (1e9, 0, 0)])
def test_a_run_that_was_cut_off_before_each_segment_had_a_checkpoint_goes_on(
    tmp_path: Path, every_s: tuple[float, ...]
) -> None:
    def run(rows: Any, behind: Steps | None = None, **allowed: Any) -> drift.Run:
        graph = graph_of(Asked(), second=lambda n: n + 1, behind=behind)
        state = drift.Checkpoints(tmp_path / "state", every_s=every_s, **allowed)
        sinks = {"out": drift.sinks.jsonl(tmp_path / "out.jsonl")}
        return drift.run(graph, {"numbers": rows}, state=state, sinks=sinks, batch_items=10)

    cut_off = run(Gated(ROWS, 200))
    for _ in range(50):
        next(cut_off)
    cut_off.close()
    shown = json.loads(call("state", "show", tmp_path / "state", "--json").stdout)["sources"]["begun"]
    assert {number for number, interval in enumerate(every_s[:-1], 1) if interval} <= set(shown) <= {1, 2}

    def again(asked: Any) -> Any:
        return asked.scan(first_of, 0, add, name="again")

    with pytest.raises(drift.GraphError, match="no checkpoint was taken yet; resume with the graph as it was"):
        run(ROWS, behind=again, changed_graph="accept")
    run(ROWS).finish()
    assert output(tmp_path) == sums_of([n * n + 1 for n in sums_of(ROWS)])
