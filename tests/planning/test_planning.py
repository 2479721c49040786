"""Which steps to make durable: the model against every choice, the sample against what is known, and the command."""

from __future__ import annotations

import json
from itertools import combinations, product
from math import exp, inf
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import drift
from drift.cli import drift as command
from drift.planning import model as planning
from drift.planning.model import Load, Model, Prices, Store
from drift.planning.sample import Sampling, keys_in_the_end, measured_model
from drift.state.run_checkpoints import known
from drift.state.settings import Checkpoints
from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow

INTERVALS_S = (0.1, 1.0, 10.0)


@pytest.fixture(autouse=True)
def few_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "INTERVALS_S", INTERVALS_S)


def graph_of(inputs: list[list[int]], stateful: list[bool]) -> Dataflow:
    """Step number n takes the output of the steps before it that are named, or the source if none is."""
    graph = drift.Graph("drawn")
    source = graph.source("in")
    streams: list[Any] = []
    for number, (before, counts) in enumerate(zip(inputs, stateful)):
        first, *others = [streams[each] for each in before] or [source]
        merged = first.merge(*others) if others else first
        name = f"s{number}"
        made = merged.scan(repr, 0, lambda n, _: (n, n), name=name) if counts else merged.map(repr, name=name)
        streams.append(made)
    read = {each for before in inputs for each in before}
    for number, stream in enumerate(streams):
        if number not in read:
            stream.sink(f"out {number}")
    return graph.build()


few = st.floats(0, 3, allow_subnormal=False)


@st.composite
def models(draw: st.DrawFn) -> tuple[Model, float]:
    count = draw(st.integers(1, 4))
    inputs = [
        draw(st.lists(st.sampled_from(range(number)), unique=True, max_size=2)) if number else []
        for number in range(count)
    ]
    stateful = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    flow = graph_of(inputs, stateful)
    loads = {}
    for each in flow.operators:
        seconds = draw(st.sampled_from([0.0, 1e-6, 1e-3, 2e-2]))
        items = draw(few)
        load = Load(seconds, items, draw(st.sampled_from([0.1, 100.0])))
        if each.kind == "group":
            load = load._replace(
                updates=draw(few),
                keys=draw(st.sampled_from([10.0, 1e4, inf])),
                state_bytes=draw(st.sampled_from([10.0, 1e6])),
            )
        loads[each.name] = load
    store = Store(
        passing_s=draw(st.sampled_from([0.0, 1e-6])),
        checkpoint_s=draw(st.sampled_from([0.0, 0.002, 0.05])),
        checkpoint_bytes=10.0,
        key_s=draw(st.sampled_from([0.0, 1e-6, 1e-4])),
        loading_s=draw(st.sampled_from([0.0, 1e-6])),
        start_s=draw(st.sampled_from([0.0, 0.5])),
        segment_s=draw(st.sampled_from([0.0, 0.05])),
    )
    prices = Prices(draw(few), draw(few), draw(few))
    model = Model(flow, draw(st.sampled_from([10.0, 1000.0])), loads, store, prices, draw(st.booleans()))
    return model, draw(st.sampled_from([0.2, 1.0, 5.0, 100.0]))


def simply(model: Model, durable: tuple[str, ...], intervals_s: tuple[float, ...]) -> tuple[float, float]:
    """Cost and longest time of a choice, operator by operator; infinite where a checkpoint takes longer than its
    interval.
    """
    flow, store, rate, prices = model.dataflow, model.store, model.rate, model.prices
    cuts = {name for step in durable for name in model.exits[step]}
    before = {
        each.name: [edge.origin for edge in flow.edges if edge.target == each.name and not edge.feedback]
        for each in flow.operators
    }

    def level(name: str) -> int:
        return max((level(origin) + (origin in cuts) for origin in before[name]), default=0)

    last = max(level(each.name) for each in flow.operators)
    levels = {each.name: last if each.kind == "sink" else level(each.name) for each in flow.operators}
    seconds, read_bytes, passed, passed_bytes = [0.0] * (last + 1), [0.0] * (last + 1), 0.0, 0.0
    for each in flow.operators:
        load = model.loads[each.name]
        seconds[levels[each.name]] += load.seconds
        reach = max((levels[target.name] for target in flow.consumers(each.name)), default=0)
        for at in range(levels[each.name], reach):
            seconds[at] += store.passing_s * load.items / 2
            seconds[at + 1] += store.passing_s * load.items / 2
            read_bytes[at + 1] += load.items * load.item_bytes
            passed, passed_bytes = passed + load.items, passed_bytes + load.items * load.item_bytes
    cpu, written, stored, times = rate * passed * store.passing_s, rate * passed_bytes, 0.0, []
    busy = max(1.0, rate * (max(seconds) if model.at_once else sum(seconds)))
    for at, interval_s in enumerate(intervals_s):
        keys = size = 0.0
        for each in flow.operators:
            load = model.loads[each.name]
            if levels[each.name] == at and load.updates:
                touched = load.updates * rate * interval_s
                changed = touched if load.keys == inf else load.keys * (1 - exp(-touched / load.keys))
                keys, size = keys + changed, size + changed * load.state_bytes
        taking_s = store.checkpoint_s + store.key_s * keys
        cpu, written = cpu + taking_s / interval_s, written + (store.checkpoint_bytes + size) / interval_s
        stored += 3 * rate * interval_s * read_bytes[at]
        times.append(rate / busy * seconds[at] * (interval_s + taking_s) + store.loading_s * keys)
        if taking_s > interval_s:
            times.append(inf)
    second = cpu * prices.cpu_hour / 3600 + written * prices.written_gb / 1e9
    month = stored * prices.stored_gb_month / 1e9 / (30 * 86400)
    start_s = store.start_s + store.segment_s * last
    return (second + month) * 1e9 / rate, start_s + (max(times) if model.at_once else sum(times))


@given(models())
def test_no_choice_of_steps_and_intervals_costs_less_than_the_one_that_is_found(drawn: tuple[Model, float]) -> None:
    model, within_s = drawn
    costs = []
    for count in range(len(model.exits) + 1):
        for durable in combinations(model.exits, count):
            segments = len(model.parts(durable)[0])
            least = sum(map(model._least_written, durable)) + model._least_of_checkpoints(within_s)
            for intervals_s in product(INTERVALS_S, repeat=segments):
                cost, longest_s = simply(model, durable, intervals_s)
                if longest_s <= within_s:
                    costs.append(cost)
                    assert cost >= least * (1 - 1e-9)  # or the search would end too early
    if not costs:
        with pytest.raises(SettingsError, match="no choice recovers within"):
            model.least_cost(within_s)
        return
    found = model.least_cost(within_s)
    assert found.cost == pytest.approx(min(costs))
    cost, longest_s = simply(model, found.durable, found.intervals_s)
    assert (found.cost, found.longest_s) == (pytest.approx(cost), pytest.approx(longest_s))
    assert found.longest_s <= within_s
    assert found.mean_s <= found.longest_s


def test_a_search_that_is_cut_short_says_by_how_much_others_could_be_cheaper() -> None:
    loads = {"s0": Load(1e-3, 1.0, 1.0), "s1.group": Load(), "out 1": Load()}
    flow = graph_of([[], [0]], [False, True])
    group = next(each.name for each in flow.operators if each.kind == "group")
    loads[group] = Load(1e-6, 1.0, 10.0, 1.0, inf, 1e5)
    model = Model(flow, 100.0, loads, Store(checkpoint_s=0.01))
    first, best = model.least_cost(0.2, choices_max=1), model.least_cost(0.2)
    assert first.durable == ()
    assert first.cost - first.cheaper_by <= best.cost <= first.cost


def test_a_dear_step_before_much_state_is_worth_a_log() -> None:
    """Its checkpoints are cheap, so there may be many; those of the state are dear, and little has to be done again."""
    flow = graph_of([[], [0]], [False, True])
    group = next(each.name for each in flow.operators if each.kind == "group")
    loads = {"s0": Load(5e-3, 1.0, 20.0), group: Load(1e-6, 1.0, 20.0, 1.0, 1000.0, 1e6)}
    model = Model(flow, 100.0, loads, Store(passing_s=1e-6, checkpoint_s=0.001, checkpoint_bytes=1000.0))
    found = model.least_cost(0.2)
    assert found.durable == ("s0",)
    assert found.intervals_s[0] < found.intervals_s[1]


def test_the_thesis_line_of_seven_has_its_trends(monkeypatch: pytest.MonkeyPatch) -> None:
    """30 items a second, 80 a second each node could do, a barrier every 25 items, 1 to 3 durable steps: recovery is
    sooner with more of them, the cost of checkpoints hardly changes, and more is stored.
    """
    seven = graph_of([[], [0], [1], [2], [3], [4], [5]], [False] * 7)
    node_s, every_s, rate = 1 / 80, 25 / 30, 30.0
    loads = {each.name: Load(node_s if each.kind == "map" else 0.0, 1.0, 100.0) for each in seven.operators}
    monkeypatch.setattr(planning, "INTERVALS_S", (every_s,))
    model = Model(seven, rate, loads, Store(passing_s=1e-4, checkpoint_s=0.001, checkpoint_bytes=100.0), at_once=True)
    found = [model.least(durable) for durable in ((), ("s3",), ("s1", "s4"), ("s1", "s3", "s5"))]
    choices = [each for each in found if each is not None]
    assert len(choices) == len(found)
    assert [each.mean_s for each in choices] == sorted((each.mean_s for each in choices), reverse=True)
    assert [each.stored_bytes for each in choices] == sorted(each.stored_bytes for each in choices)
    cpu = [each.cpu for each in choices]
    assert max(cpu) - min(cpu) < 0.02
    # Equation 4.2: half a block through one node, which is the same for each segment: 156 ms.
    assert node_s * 25 / 2 == pytest.approx(0.156, abs=0.001)
    redone = choices[3].mean_s  # of its largest segments, which have two nodes
    assert redone == pytest.approx(2 * node_s * 25 / 2, rel=0.02)


@given(st.floats(10, 1e5), st.floats(10, 1e6))
def test_the_number_of_keys_is_found_from_those_that_were_met(keys: float, updates: float) -> None:
    met = Load(updates=1.0, keys=keys).changed(updates)
    found = keys_in_the_end(updates, met)
    assert found == inf if met >= 0.9 * updates else found == pytest.approx(keys, rel=0.01)


def many(n: int) -> list[int]:
    return [n, n, n]


def sampled() -> drift.Graph:
    graph = drift.Graph("sampled")
    numbers = graph.source("numbers").flat_map(many, name="many")
    numbers.scan(lambda n: n % 50, 0, lambda total, n: (total + n, total), name="sums").sink("out")
    return graph


def test_a_sample_counts_what_leaves_each_step_and_its_keys(tmp_path: Path) -> None:
    sampling = Sampling(lambda: {"numbers": range(20_000)}, {}, 10_000, tmp_path)
    model = measured_model(sampled().build(), sampling, rate=None, prices=Prices())
    assert set(model.exits) == {"many", "sums"}
    assert model.loads["numbers"].items == 1
    assert model.loads["many"].items == 3
    states = [load for load in model.loads.values() if load.updates]
    assert [load.updates for load in states] == [3]
    assert states[0].keys == pytest.approx(50)
    assert model.loads["many"].item_bytes > 0
    assert model.rate == pytest.approx(1 / sum(load.seconds for load in model.loads.values()))
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "numbers.txt").write_text("".join(f"{n}\n" for n in range(3000)))
    (tmp_path / "planned.py").write_text(
        "import drift\n\n"
        "graph = drift.Graph('planned')\n"
        "lengths = graph.source('numbers').map(len, name='lengths')\n"
        "lengths.scan(lambda n: n, 0, lambda total, n: (total + n, total), name='sums').sink('out')\n"
    )
    arguments = ["plan", f"{tmp_path}/planned.py:graph", "--source", f"{tmp_path}/numbers.txt", "--items", "2000"]
    said = CliRunner().invoke(command, [*arguments, "--recover-within", "60s", "--json"])
    assert said.exit_code == 0, said.output
    choices = json.loads(said.output)["choices"]
    assert choices["every step durable"]["durable"] == ["lengths", "sums"]
    assert choices["the choice"]["cost"] <= min(
        each["cost"] for each in (choices["every step durable"], choices["no step durable"])
    )
    said = CliRunner().invoke(command, [*arguments, "--recover-within", "60s"])
    assert "state=drift.Checkpoints(FOLDER, every_s=" in said.output
    said = CliRunner().invoke(command, [*arguments, "--recover-within", "1ms"])
    assert said.exit_code == 2
    assert "no choice recovers within 0.001 s: a start alone takes" in said.output


def dear_and_counted() -> drift.Graph:
    graph = drift.Graph("two segments")
    doubled = graph.source("numbers").map(lambda n: 2 * n, name="doubled", durable=True)
    doubled.scan(lambda n: n % 7, 0, lambda total, n: (total + n, total), name="sums").sink("out")
    return graph


def test_each_segment_takes_checkpoints_as_often_as_is_said_for_it(tmp_path: Path) -> None:
    state = Checkpoints(tmp_path / "state", every_s=[0, 10**6])
    with drift.run(dear_and_counted(), {"numbers": range(4000)}, state=state, batch_items=100) as run:
        for _ in run.batches():
            if run.progress.items_in > 3000:
                run.stop()
    assert known(tmp_path / "state/segments/1")[-1].number > 1
    assert known(tmp_path / "state")[-1].number == 1
    rest = drift.run(dear_and_counted(), {"numbers": range(4000)}, state=state).finish()
    assert rest.digest == drift.run(dear_and_counted(), {"numbers": range(4000)}).finish().digest


def test_intervals_have_to_be_as_many_as_segments(tmp_path: Path) -> None:
    state = Checkpoints(tmp_path / "state", every_s=[1, 2, 3])
    with pytest.raises(SettingsError, match="has intervals of 3 segments, and the graph has 2"):
        drift.run(dear_and_counted(), {"numbers": range(10)}, state=state)
    with pytest.raises(SettingsError, match="every_s=-1 is not a number of seconds"):
        Checkpoints(tmp_path, every_s=[1, -1])


def test_a_segment_retains_checkpoints_as_far_back_as_the_next_one_may_resume_from() -> None:
    found = Checkpoints("anywhere", every_s=[0.1, 2, 1], keep=3).of_segments(3)
    assert [(each.every_s, each.keep) for each in found] == [(0.1, 22), (2, 3), (1, 3)]
