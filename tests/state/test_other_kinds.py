"""States go on with the step that made them: of another kind or with other parameters a step refuses them, in words.

The table is the catalogue itself: each operator, window and aggregate, and each of its parameters, is tried with the
states of every other. One that is new has to be put into the table, or a test fails.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from gated import Gated

import drift
from drift.records.changes import steps_of
from drift.records.fingerprint import fingerprint
from drift.records.kinds import made_of, made_otherwise

A, W = drift.agg, drift.windows
Step = Callable[[Any, Any], Any]
ROWS = [(time, "ab"[time % 2], 10) for time in range(200)]


def key(payload: tuple[int, str, int]) -> str:
    return payload[1]


def number(payload: tuple[int, str, int]) -> int:
    return payload[2]


def time_of(payload: tuple[int, str, int]) -> int:
    return payload[0]


def add(state: Any, payload: Any) -> tuple[Any, int]:
    return state, payload[2]


def later(state: Any, payload: Any, time: int) -> tuple[Any, list[Any]]:
    return state, []


def rule(payload: Any) -> Any:
    return "open" if payload[2] % 3 else "go on"


def body(pairs: Any) -> Any:
    return pairs.map(max)


class Mine(drift.Logic[Any, int, Any]):
    initial = 0

    def key(self, payload: Any) -> Any:
        return payload[1]

    def on_batch(self, states: dict[Any, int], rows: drift.Rows[Any], out: drift.Out[Any]) -> None:
        for _ in rows:
            out([])


#: Two values of each parameter of an aggregate or of windows; one of what takes a function, and of `nulls`, which says
#: what a function's None means: no state has any.
VALUES: dict[str, tuple[Any, ...]] = {
    "of": (number,), "by": (number,), "function": (max,), "merge": (max,), "where": (number,), "rule": (rule,),
    "q": (0.5, 0.9), "n": (2, 3), "ddof": (1, 0), "precision": (12, 10), "error": (0.01, 0.1), "initial": (0, ""),
    "size": (10, 20), "offset": (0, 3), "gap": (5, 9), "partial": (False, True), "zone": ("UTC", "Asia/Tokyo"),
    "every": (5, 10), "nulls": ("skip",), "interpolation": ("linear", "lower"), "closed": ("left", "right"),
    "start": ("monday", "sunday"), "descending": (False, True),
}  # fmt: skip
#: Where the name of a parameter means something else.
OTHERS = {
    "calendar.every": ("1w", "1d"),
    "rolling.of": (A.sum(number), A.mean(number)),
    "every.items": (), "every.time": (),
}  # fmt: skip
_OPTIONAL = {"merge", "where"}


def _made(module: Any, kind: type) -> Iterator[tuple[str, Any]]:
    """What a module makes, with the name of it, and of the parameter that has another value."""
    for name, function in vars(module).items():
        if not inspect.isfunction(function) or function.__module__ != module.__name__ or name == "several":
            continue
        parameters, returned = inspect.signature(function).parameters, inspect.signature(function).return_annotation
        if name.startswith("_") or not str(returned).startswith(kind.__name__):
            continue
        values = {each: OTHERS.get(f"{name}.{each}", VALUES.get(each)) for each in parameters}
        assert None not in values.values(), f"{name}{values}: give the parameter two values in the table"
        plain = {each: found[0] for each, found in values.items() if found and each not in _OPTIONAL}
        yield name, function(**plain)
        for each, found in values.items():
            for value in found[1:]:
                yield f"{name}, {each}", function(**{**plain, each: value})


AGGREGATES = dict(_made(A, A.Aggregate)) | {
    "several": A.several(one=A.count(), two=A.sum(number)),
    "several, others": A.several(one=A.count(), two=A.mean(number)),
    "several, names": A.several(one=A.count(), three=A.sum(number)),
    "then": A.sum(number).then(str),
}
WINDOWS = dict(_made(W, W.Windows))
HOW = ("inner", "left", "right", "full", "semi", "anti")


def windowed(windows: Any, s: Any, z: Any) -> Any:
    return s.key_by(key).window(windows).count(name="x")


def aggregated(aggregate: Any, s: Any, z: Any) -> Any:
    return s.window(W.tumbling(10)).aggregate(aggregate, name="x")


def joined(how: Any, s: Any, z: Any) -> Any:
    return s.join(z, key, within=(5, 5), how=how, name="x")


STEPS: dict[str, Step] = {
    **{f"window, {name}": partial(windowed, each) for name, each in WINDOWS.items()},
    **{f"aggregate, {name}": partial(aggregated, each) for name, each in AGGREGATES.items()},
    **{f"join, {how}": partial(joined, how) for how in HOW},
    "at_end, count": lambda s, z: s.key_by(key).at_end(A.count(), name="x"),
    "at_end, sum": lambda s, z: s.key_by(key).at_end(A.sum(number), name="x"),
    "join, within": lambda s, z: s.join(z, key, within=(3, 9), name="x"),
    "join, always": lambda s, z: s.join(z, key, name="x"),
    "join, in windows": lambda s, z: s.join(z, key, within=W.tumbling(10), name="x"),
    "join as of": lambda s, z: s.join_as_of(z, key, name="x"),
    "join as of, within": lambda s, z: s.join_as_of(z, key, within=5, name="x"),
    "join as of, forward": lambda s, z: s.join_as_of(z, key, direction="forward", name="x"),
    "join as of, nearest": lambda s, z: s.join_as_of(z, key, direction="nearest", name="x"),
    "join as of, strict": lambda s, z: s.join_as_of(z, key, allow_exact=False, name="x"),
    "join as of, forward and strict": lambda s, z: s.join_as_of(
        z, key, direction="forward", allow_exact=False, name="x"
    ),
    "join as of, nulls": lambda s, z: s.join_as_of(z, key, nulls_equal=True, name="x"),
    "join, nulls": lambda s, z: s.join(z, key, within=(5, 5), nulls_equal=True, name="x"),
    "rolling": lambda s, z: s.key_by(key).rolling(5, n=A.count(), name="x"),
    "rolling, span": lambda s, z: s.key_by(key).rolling(9, n=A.count(), name="x"),
    "rolling, closed": lambda s, z: s.key_by(key).rolling(5, closed="both", n=A.count(), name="x"),
    "rolling, another": lambda s, z: s.key_by(key).rolling(5, n=A.sum(number), name="x"),
    "rolling, rows": lambda s, z: s.key_by(key).rolling(W.rows(2, 1), n=A.count(), name="x"),
    "rolling, more rows": lambda s, z: s.key_by(key).rolling(W.rows(3, 1), n=A.count(), name="x"),
    "rolling, rows behind": lambda s, z: s.key_by(key).rolling(W.rows(2, 2), n=A.count(), name="x"),
    "each": lambda s, z: s.key_by(key).window(W.tumbling(10)).each(n=A.rank(number), name="x"),
    "join as of, inner": lambda s, z: s.join_as_of(z, key, how="inner", name="x"),
    "window, early": lambda s, z: s.key_by(key).window(W.tumbling(10), early=W.every(items=2)).count(name="x"),
    "window, early later": lambda s, z: s.key_by(key).window(W.tumbling(10), early=W.every(items=3)).count(name="x"),
    "limit": lambda s, z: s.limit(2, key=key, name="x"),
    "limit, more": lambda s, z: s.limit(3, key=key, name="x"),
    "limit, offset": lambda s, z: s.limit(2, 1, key=key, name="x"),
    "dedup": lambda s, z: s.dedup(key, name="x"),
    "dedup, within": lambda s, z: s.dedup(key, within=5, name="x"),
    "dedup, within more": lambda s, z: s.dedup(key, within=9, name="x"),
    "count": lambda s, z: s.count(key, name="x"),
    "reduce": lambda s, z: s.reduce(key, max, name="x"),
    "scan": lambda s, z: s.scan(key, 0, add, name="x"),
    "scan, texts": lambda s, z: s.scan(key, "", add, name="x"),
    "process": lambda s, z: s.process(key, 0, later, later, name="x"),
    "group": lambda s, z: s.group(key, 2, name="x"),
    "group, window": lambda s, z: s.group(key, 3, name="x"),
    "step": lambda s, z: s.step(Mine(), name="x"),
    "running": lambda s, z: s.key_by(key).running(n=A.count(), name="x"),
    "running, another": lambda s, z: s.key_by(key).running(n=A.sum(number), name="x"),
}  # fmt: skip


def graph_of(step: Step) -> drift.Graph:
    graph = drift.Graph("g")
    time = drift.EventTime(time_of)
    one, other = graph.source("s", time=time), graph.source("z", time=time)
    step(one, other).sink("o")
    other.sink("zz")
    return graph


def test_no_step_goes_on_with_the_states_of_another() -> None:
    steps = {name: steps_of(fingerprint(graph_of(step).build()))["x"] for name, step in STEPS.items()}
    forms = {name: [(each["kind"], each["parameters"]) for each in step] for name, step in steps.items()}
    made = {name: made_of(step) for name, step in steps.items()}
    pairs = [(one, other) for one, other in combinations(made, 2) if forms[one] == forms[other]]
    assert len(made) > 90 and len(pairs) > 1000
    assert [pair for pair in pairs if not made_otherwise(made[pair[0]], made[pair[1]])] == []
    assert [pair for pair in pairs if not made_otherwise(made[pair[1]], made[pair[0]])] == []


@pytest.mark.parametrize("name", STEPS)
def test_a_mended_function_leaves_the_states_to_its_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(graph_of(STEPS[name]).build())
    for function in (key, number, rule, add, later):
        monkeypatch.setattr(function, "__code__", (lambda *arguments: arguments[0]).__code__)
    after = fingerprint(graph_of(STEPS[name]).build())
    then, now = (steps_of(each)["x"] for each in (before, after))
    assert made_otherwise(made_of(then), made_of(now)) == ""
    assert then == now or before["code"] != after["code"]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("window, tumbling", "window, tumbling, size", r"'x' is now of size 20 \(before 10\), which"),
        ("aggregate, count", "aggregate, sum", r"'x' is now of aggregate Sum \(before Count\(\)\)"),
        ("at_end, count", "at_end, sum", r"aggregate Sum \(before Count\(\)\)"),
        ("join, inner", "join, semi", r"ExistsJoin \(before InnerJoin\)"),
        ("join as of", "join, within", r"'x' is now of InnerJoin \(before AsOfJoin\)"),
        ("count", "reduce", r"ReduceStep \(before CountStep\)"),
        ("dedup, within", "dedup, within more", r"within 9 \(before 5\)"),
        ("scan", "scan, texts", r"initial of type str \(before of type int\)"),
    ],
)
def test_a_run_refuses_states_of_another_kind_whatever_is_accepted(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    inputs = {"s": Gated(ROWS, 100), "z": Gated(ROWS, 100)}
    run = drift.run(graph_of(STEPS[before]), inputs, state=tmp_path / "state", batch_items=10)
    for number_of_item, _ in enumerate(run):
        if number_of_item == 40:
            run.stop()
    for allowed in ({"changed_code": "accept"}, {"changed_code": "accept", "changed_graph": "accept"}):
        state = drift.Checkpoints(tmp_path / "state", **allowed)
        with pytest.raises(drift.GraphError, match=message):
            drift.run(graph_of(STEPS[after]), {"s": ROWS, "z": ROWS}, state=state).finish()
    state = drift.Checkpoints(tmp_path / "state")
    assert drift.run(graph_of(STEPS[before]), {"s": ROWS, "z": ROWS}, state=state).finish().items_out
