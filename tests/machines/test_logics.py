"""Law 9: how rows are cut into batches changes nothing, for every logic that the keyed stage runs in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from columns import meta_at
from hypothesis import given
from hypothesis import strategies as st
from strategies import STEPS, few_keys, payloads
from test_timed_stages import PROCESS

import drift
from drift.flow.rounds import Forget, Gate, RoundState, gate_key
from drift.machines.keyed import KeyedStage
from drift.machines.keys import identities
from drift.machines.logics import GroupLogic, Logic, ProcessLogic, ScanLogic
from drift.machines.plan import Plan
from drift.operators import KeyedItems, ScanState
from drift_graph.canonical import canonical, encode_many, same
from drift_graph.later import Later
from drift_graph.metas import Metas

numbers = st.lists(st.integers(-50, 50), max_size=30)
to_gate = st.one_of(
    st.integers(0, 40),
    st.builds(RoundState, st.integers(0, 15), st.integers(0, 3), st.booleans()),
    st.builds(Forget, st.integers(0, 15)),
)


def scan_of(step: Any, initial: Any, key: Callable[[Any], Any] = few_keys) -> Callable[[], Logic]:
    return lambda: ScanLogic(key, ScanState(key, initial, step, step))


def windows_of(size: int, every: int) -> Callable[[], Logic]:
    """The logic of windows by number, as a stream has it."""
    graph = drift.Graph("windows")
    windows = drift.windows.count(size, every)
    graph.source("in").key_by(lambda number: number % 3).window(windows).sum(lambda number: number).sink("out")
    (stage,) = Plan(graph.build()).stages().values()
    assert isinstance(stage, KeyedStage)
    return lambda: stage._logic


#: Each logic, with what its rows are drawn from.
LOGICS: dict[str, tuple[Callable[[], Logic], st.SearchStrategy[list[Any]]]] = {
    **{
        f"scan {name}": (scan_of(step, initial), st.lists(payloads, max_size=20))
        for name, (initial, step) in STEPS.items()
    },
    **{f"group {window}": (lambda window=window: GroupLogic(few_keys, window), numbers) for window in (1, 2, 5, 17)},
    **{f"windows {size} {every}": (windows_of(size, every), numbers) for size, every in ((4, 4), (5, 2), (2, 3))},
    "process": (lambda: ProcessLogic(PROCESS), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 96)), max_size=30)),
    "gate": (scan_of(Gate(0, len), None, gate_key), st.lists(to_gate, max_size=20)),
}


def run(
    logic: Logic, rows: list[Any], ends: list[int], times: Sequence[int] | None = None
) -> tuple[list[Any], dict[Any, Any]]:
    """The outputs and states of rows in batches that end there."""
    states: dict[Any, Any] = {}
    outputs: list[Any] = []
    keys = identities([logic.key(payload) for payload in rows])
    metas = [meta_at(time) for time in times or range(len(rows))]
    for start, end in zip([0, *ends], [*ends, len(rows)]):
        if start < end:
            made: list[Any] = []
            logic.on_batch(states, KeyedItems(keys[start:end], rows[start:end], Metas(metas[start:end])), made.append)
            if logic.is_timed:
                made = [[(each.time, each.payload) if type(each) is Later else each for each in some] for some in made]
            assert len(made) == end - start and encode_many(made) == b"".join(map(canonical, made))
            outputs += made
    return outputs, states


@pytest.mark.parametrize("name", LOGICS)
@given(st.data())
def test_how_rows_are_cut_into_batches_changes_nothing(name: str, data: st.DataObject) -> None:
    make, drawn = LOGICS[name]
    rows = data.draw(drawn)
    ends = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    outputs, states = run(make(), rows, ends)
    ones, states_of_ones = run(make(), rows, list(range(1, len(rows))))
    assert len(outputs) == len(ones) and all(map(same, outputs, ones))
    assert states.keys() == states_of_ones.keys()
    assert all(same(states[key], states_of_ones[key]) for key in states)


@pytest.mark.parametrize("name", LOGICS)
@given(st.data())
def test_keys_do_not_see_each_other(name: str, data: st.DataObject) -> None:
    make, drawn = LOGICS[name]
    rows = data.draw(drawn)
    logic = make()
    keys = identities([logic.key(payload) for payload in rows])
    outputs, states = run(logic, rows, [])
    for key in set(keys):
        own = [at for at, each in enumerate(keys) if each == key]
        alone, state = run(make(), [rows[at] for at in own], [], own)
        assert all(map(same, alone, [made for made, each in zip(outputs, keys) if each == key]))
        assert same(state.get(key), states.get(key))
