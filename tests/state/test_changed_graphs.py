"""A run that goes on with a changed graph, against the edits that changed it: what is kept, and what is refused.

The graphs and the edits are drawn, see `changed`; where a name tells nothing, since neither graph's steps were given
one, only payloads are compared, and not metas.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from changed import PROBE, Found, Pick, Recipe, Walk, drawn, edited
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import drift
import drift.cli
import drift.cli.state
from drift.records.changes import compare
from drift.records.fingerprint import fingerprint
from drift_graph.graph import Dataflow

ROWS = range(48)
Items = dict[str, list[tuple[bytes, Any]]]
#: What a user can do about a change that is refused.
_TO_DO = re.compile(r"changed_graph=|dropped=|was=|another name|take it out|a step of that name|put a map between")


@dataclass
class Change:
    """Two graphs, and what a user says of the second.

    Attributes:
        names_then, names_now: of the steps, by number.
        was: as in `drift.Checkpoints`.
    """

    then: Recipe
    now: Recipe
    names_then: Mapping[int, str]
    names_now: Mapping[int, str]
    was: dict[str, str]

    @property
    def dropped(self) -> list[str]:
        gone = [number for number, step in self.then.steps.items() if number not in self.now.steps and step.has_state]
        sinks = [sink for sink in self.then.sinks if sink not in self.now.sinks]
        return [*(self.names_then[number] for number in gone), *sinks]

    @property
    def stay(self) -> list[int]:
        return [number for number in self.now.steps if number in self.then.steps]

    def is_said(self, number: int) -> bool:
        """Whether it is said which step of then this one is, by its name or by `was`."""
        if number not in self.stay:
            return False
        then, now = self.then.steps[number].name, self.now.steps[number].name
        return self.was.get(self.names_now[number]) == self.names_then[number] or (now is not None and now == then)

    def is_known(self, number: int) -> bool:
        """Whether a step that stays can be told from all others: it is said, or no other one does the same."""
        does = self.now.steps[number].does
        alike = [
            sum(each.does == does for other, each in recipe.steps.items() if not self.is_said(other))
            for recipe in (self.then, self.now)
        ]
        others = [
            {name for other, name in names.items() if other != number} for names in (self.names_then, self.names_now)
        ]
        is_of_another = self.names_now[number] in others[0] or self.names_then[number] in others[1]
        return self.is_said(number) or (alike == [1, 1] and not is_of_another)

    def is_kept(self, sink: str) -> bool:
        """Whether the items of a sink pass no changed step."""
        if sink == PROBE:
            return True
        return self.then.sinks.get(sink) == self.now.sinks[sink] and all(
            number in self.then.steps
            and self.is_known(number)
            and self.then.steps[number].does == self.now.steps[number].does
            and self.then.steps[number].origins == self.now.steps[number].origins
            for number in self.now.cone(sink)
        )

    def has_moved(self) -> bool:
        """Whether a step with state is behind others with state than before."""
        kept = [number for number in self.stay if self.now.steps[number].has_state]
        return any(self.then.states_before(number) != self.now.states_before(number) for number in kept)

    def is_plain(self) -> bool:
        """Whether no name was, or is, that of another step, and each step with state has its own or says which it
        had.
        """
        then, now = self.names_then, self.names_now
        owners = {name: number for number, name in then.items()}
        return (
            all(owners.get(name, number) == number for number, name in now.items())
            and all(now[n] == then[n] or now[n] in self.was for n in self.stay if self.now.steps[n].has_state)
            and all(self.is_known(n) for n in self.stay if self.now.steps[n].has_state)
            and not any(name in then.values() for name in self.was)
        )


def drawn_change(pick: Pick) -> tuple[Change, drift.Graph, drift.Graph]:
    then = drawn(pick)
    now, _ = edited(pick, then)
    (old, names_then), (new, names_now) = then.built(), now.built()
    was = {
        names_now[number]: names_then[number]
        for number, step in now.steps.items()
        if number in then.steps and step.name is not None and names_now[number] != names_then[number] and pick(6)
    }
    return Change(then, now, names_then, names_now, was), old, new


def items_of(items: Any) -> Items:
    found: Items = {}
    for item in items:
        found.setdefault(item.sink, []).append((item.meta, item.payload))
    return found


def payloads_of(found: Found) -> dict[str, list[int]]:
    return {sink: [payload for _, payload in items] for sink, items in found.items() if items}


def planned(folder: Path, dataflow: Dataflow, *options: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drift.cli.state, "load_dataflow", lambda _: dataflow)
        return CliRunner().invoke(drift.cli.drift, ["state", "plan", "drawn", str(folder), *options])


def check(pick: Pick, folder: Path) -> None:
    change, old, new = drawn_change(pick)
    whole = items_of(drift.run(old, {"numbers": ROWS}))
    state = drift.Checkpoints(folder, every_s=1e9, every_items=1 + pick(4))
    run = drift.run(old, {"numbers": ROWS}, state=state, batch_items=1 + pick(4))
    first, stops, last = [], pick(2), 8 + pick(40)
    for item in run:
        first.append(item)
        if len(first) == last and stops:
            run.stop()
        elif len(first) == last:
            break
    run.close()
    allowed: dict[str, Any] = {"changed_code": "accept", "changed_graph": "accept", "was": change.was}
    options = ["--accept-changed-code", "--accept-changed-graph"]
    options += [word for name, before in change.was.items() for word in ("--step-was", f"{name}={before}")]
    options += [word for name in change.dropped for word in ("--drop-step", name)]
    plan = planned(folder, new.build(), *options)
    if "a run begins" in plan.output:  # it was cut off in front of its first checkpoint
        return
    try:
        run = drift.run(new, {"numbers": ROWS}, state=drift.Checkpoints(folder, dropped=change.dropped, **allowed))
    except drift.GraphError as error:
        assert plan.exit_code == 3 and str(error) in plan.output
        assert _TO_DO.search(str(error))
        assert change.has_moved() or not change.is_plain() or "cannot keep the order" in str(error), error
        return
    assert plan.exit_code == 0, plan.output
    assert not change.has_moved(), "its states are not those of the items that come now"
    assert run.resumed_from is not None
    first = first[: run.resumed_from.output.position]
    cut = sum(item.sink == PROBE for item in first)
    ranked = run.dataflow
    found, before = items_of(run), items_of(first)
    walk = Walk()
    walk.over(ROWS[:cut], change.then, change.names_then, old.build())
    expected = payloads_of(walk.over(ROWS[cut:], change.now, change.names_now, ranked))
    assert {sink: [payload for _, payload in items] for sink, items in found.items()} == expected
    for sink in filter(change.is_kept, (*change.now.sinks, PROBE)):
        assert before.get(sink, []) + found.get(sink, []) == whole.get(sink, [])


@given(st.data())
def test_what_edits_leave_as_it_is_goes_on_as_it_would_have_and_a_plan_says_what_a_run_does(
    data: st.DataObject,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check(lambda below: data.draw(st.integers(0, below - 1)), Path(folder) / "state")


# By hand.


def plus(n: int) -> int:
    return n + 1


def add(total: int, n: int) -> tuple[int, int]:
    return total + n, total + n


def key_of(n: int) -> int:
    return n % 3


def doubled(**sinks: str | None) -> drift.Graph:
    """A map that is declared once for each name, with the sinks of that name; None is a map without one."""
    graph = drift.Graph("doubled")
    numbers = graph.source("numbers")
    maps = {name: numbers.map(plus, name=name) for name in dict.fromkeys(sinks.values())}
    for sink, name in sinks.items():
        maps[name].sink(sink)
    return graph


def gone_on(folder: Path, then: drift.Graph, now: drift.Graph, **allowed: Any) -> tuple[Items, Items]:
    """What a run gives that is paused in the middle and goes on with another graph, and what the first gives alone."""
    whole = items_of(drift.run(then, {"numbers": ROWS}))
    found = items_of(drift.run(then, {"numbers": ROWS[:20]}, state=folder, complete=False))
    state = drift.Checkpoints(folder, **allowed)
    for sink, items in items_of(drift.run(now, {"numbers": ROWS}, state=state)).items():
        found.setdefault(sink, []).extend(items)
    return found, whole


def test_a_step_with_a_name_is_not_taken_for_a_twin_that_takes_its_sinks(tmp_path: Path) -> None:
    then, now = doubled(a="one", b="one", c="one"), doubled(a="one", b="twin", c="twin")
    found, whole = gone_on(tmp_path, then, now, changed_graph="accept")
    assert found["a"] == whole["a"], "with its metas"
    assert {sink: [payload for _, payload in found[sink]] for sink in found} == payloads_of(whole)  # type: ignore[arg-type]


def test_a_step_that_says_what_it_was_is_not_taken_for_a_twin_that_takes_its_sinks(tmp_path: Path) -> None:
    then, now = doubled(a=None, b=None, c=None), doubled(a="one", b=None, c=None)
    found, whole = gone_on(tmp_path, then, now, changed_graph="accept", was={"one": "map plus"})
    assert found["a"] == whole["a"]


def test_a_step_that_is_given_a_name_is_found_by_what_it_leads_to(tmp_path: Path) -> None:
    """A new step gets the name that it had without being given one."""
    then, now = doubled(a=None), doubled(a="one", b=None)
    found, whole = gone_on(tmp_path, then, now, changed_graph="accept")
    assert found["a"] == whole["a"]


def test_names_of_steps_without_state_change_nothing_in_a_graph_that_is_the_same(tmp_path: Path) -> None:
    then, now = doubled(a="one", b="other"), doubled(a="other", b="one")
    prints = [fingerprint(each.build()) for each in (then, now)]
    assert not any(change.matters for change in compare(prints[0], prints[1]))
    found, whole = gone_on(tmp_path, then, now)
    assert found == whole


def test_steps_are_found_again_however_their_ranks_are(tmp_path: Path) -> None:
    """A graph that goes on has the ranks of then when it is compared once more, where the run is opened."""

    def graph(first: str, second: str) -> drift.Graph:
        graph = drift.Graph("sums")
        numbers = graph.source("numbers")
        for name in (first, second):
            stream = numbers.map(plus, name=f"map {name}")
            stream.scan(key_of, 0, add, name=name).sink(f"sums of {name}")
        return graph

    found, whole = gone_on(tmp_path, graph("a", "b"), graph("b", "a"), changed_graph="accept")
    assert found == whole


def with_time(n: int, time: int) -> int:
    return n + time - n + 1


def in_a_while(n: int) -> Any:
    return [drift.at(n + 1, n)]


KINDS: dict[str, Any] = {
    "map": lambda numbers: numbers.map(plus, name="x"),
    "map with its time": lambda numbers: numbers.map(with_time, with_time=True, name="x"),
    "call": lambda numbers: numbers.call(plus, name="x", timeout_s=None),
    "filter": lambda numbers: numbers.filter(plus, name="x"),
    "later items": lambda numbers: numbers.flat_map(in_a_while, later=True, name="x"),
}


@pytest.mark.parametrize(
    ("before", "now"),
    [*(("map", each) for each in KINDS if each != "map"), ("call", "map"), ("map with its time", "map")],
)
def test_a_step_of_another_kind_with_the_name_of_one_without_state_is_a_change_that_is_said(
    tmp_path: Path, before: str, now: str
) -> None:
    def graph(kind: str) -> drift.Graph:
        graph = drift.Graph("kinds")
        numbers = graph.source("numbers", time=drift.EventTime(lambda n: n, lateness=0))
        KINDS[kind](numbers).sink("out")
        numbers.sink(PROBE)
        return graph

    expected = {each: items_of(drift.run(graph(each), {"numbers": ROWS}))["out"] for each in (before, now)}
    state = drift.Checkpoints(tmp_path, every_s=0)
    first = items_of(drift.run(graph(before), {"numbers": ROWS[:20]}, state=state, complete=False))
    state = drift.Checkpoints(tmp_path)
    with pytest.raises(drift.GraphError, match=r"step 'x'.*changed_graph='accept'"):
        drift.run(graph(now), {"numbers": ROWS}, state=state)
    state = drift.Checkpoints(tmp_path, changed_graph="accept", changed_code="accept")
    rest = items_of(drift.run(graph(now), {"numbers": ROWS}, state=state))["out"]
    payloads = {kind: [payload for _, payload in items] for kind, items in expected.items()}
    assert first["out"] == expected[before][: len(first["out"])]
    assert [payload for _, payload in rest] == payloads[now][len(payloads[now]) - len(rest) :]
    assert len(first["out"]) + len(rest) == len(ROWS)


def halves(*named: tuple[str, str | None]) -> drift.Graph:
    graph = drift.Graph("halves")
    numbers = graph.source("numbers")
    streams = {"even": numbers.filter(lambda n: n % 2 == 0, name="even"), "odd": numbers.filter(bool, name="odd")}
    for name, half in streams.items():
        half.sink(f"all {name}")
    for half, given_name in named:
        streams[half].scan(key_of, 0, add, name=given_name).sink(f"sums of {half}")
    return graph


def test_the_states_of_a_step_that_is_given_a_name_do_not_go_to_a_new_one_without(tmp_path: Path) -> None:
    then, now = halves(("even", None)), halves(("even", "evens"), ("odd", None))
    with pytest.raises(drift.GraphError, match=r"'scan add' was given no name, and 'evens'.*was={'evens': 'scan add'}"):
        gone_on(tmp_path, then, now, changed_graph="accept")
    now = halves(("even", "evens"), ("odd", "odds"))
    found, whole = gone_on(tmp_path / "again", then, now, changed_graph="accept", was={"evens": "scan add"})
    assert found["sums of even"] == whole["sums of even"]
    assert found["sums of odd"][0][1] == ROWS[20], "it begins empty"


def test_steps_with_names_that_end_with_a_number_keep_their_states(tmp_path: Path) -> None:
    """Numbered names that users gave are no numbers in the order of declaration."""
    then, now = halves(("even", "sum-2"), ("odd", "sum")), halves(("even", "sum"), ("odd", "sum-2"))
    found, _ = gone_on(tmp_path, then, now, changed_graph="accept")
    assert found["sums of even"]
