"""The law of a store in trouble: what resumes is a prefix without a gap, or the run has said what is wrong.

The store is a model of a server behind the same calls as the real ones; what befalls it is drawn call by call: it is
away, loses the answer to a write, comes back with older data, is full, or takes long.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from outside import FAULTS, Server, states_on
from strategies import cases
from test_checkpoints import later_steps, rows, with_later

import drift
from drift.state.store import Store
from drift.testing.values import Flags, Noted
from drift_graph.errors import StorageError

faults = st.dictionaries(st.integers(0, 120), st.sampled_from(FAULTS), max_size=4)


def check_law(
    dataflow: drift.Dataflow, inputs: dict[str, Any], breaks: Sequence[int], troubles: Sequence[Mapping[int, str]]
) -> None:
    """Runs that are broken off or end with an error, each with its troubles; the last one has none, and ends."""
    server = Server()
    seen = 0

    def waiting(store: Store) -> None:
        with server.waited_for():
            wait(store)

    wait = Store.wait
    with states_on(server) as url, mock.patch.object(Store, "wait", waiting):
        whole = drift.run(dataflow, inputs)
        expected = [(item.position, item.sink, item.meta, repr(item.payload)) for item in whole]
        checkpoints = drift.Checkpoints(
            url, every_s=0, keep=1 + len(breaks) % 2, classes=(Noted, Flags), away_max_s=0.05
        )
        for count, faults_of_run in [*zip(breaks, troubles), (10**9, {})]:
            server.faults, server.calls = faults_of_run, 0
            run: drift.Run | None = None
            try:
                run = drift.run(dataflow, inputs, state=checkpoints, batch_items=2)
                begin = run.resumed_from.output.position if run.resumed_from is not None else 0
                assert begin <= seen, "a gap"
                for number, batch in enumerate(run.batches()):
                    for at, (meta, payload) in enumerate(zip(batch.metas, batch.payloads)):
                        sink = batch.sinks if isinstance(batch.sinks, str) else batch.sinks[at]
                        assert (batch.position + at, sink, meta, repr(payload)) == expected[batch.position + at]
                        seen = max(seen, batch.position + at + 1)
                    settle(run, server)
                    if number == count:
                        break
                else:
                    assert seen == len(expected) and run.report.digest == whole.report.digest
            except StorageError:
                assert count < 10**9, "the last run has no trouble"
            finally:
                if run is not None:
                    server.faults = {}
                    try:
                        with server.waited_for():
                            run.close()
                    except StorageError:
                        assert count < 10**9
    assert seen == len(expected)


def settle(run: drift.Run, server: Server) -> None:
    """Let the writer come to its end, or to a slow write, which it ends behind the next batch."""
    if server.is_slow:
        server.is_slow = False
        server.going_on.set()
    writing = run._run_checkpoints._store._writing  # type: ignore[union-attr]
    if writing is not None:
        pausing = server.pausing = threading.Event()
        writing.add_done_callback(lambda _: pausing.set())
        if not server.is_slow:
            pausing.wait()


breaks = st.lists(st.integers(0, 6), min_size=1, max_size=3)
troubles = st.lists(faults, min_size=3, max_size=3)
quick = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


@given(cases(items_max=10), breaks, troubles)
@quick
def test_a_store_in_trouble_makes_no_gap(case: Any, breaks: list[int], troubles: list[Mapping[int, str]]) -> None:
    check_law(case.dataflow(), case.sources(), breaks, troubles)


@given(later_steps, rows(), rows(), breaks, troubles)
@quick
def test_a_store_in_trouble_loses_no_timer(
    steps: list[str], first: Any, second: Any, breaks: list[int], troubles: list[Mapping[int, str]]
) -> None:
    check_law(with_later(steps), {"in0": first, "in1": second}, breaks, troubles)


def counting(state: int, item: int) -> tuple[int, tuple[int, int]]:
    return state + 1, (item, state + 1)


def counted() -> drift.Dataflow:
    graph = drift.Graph("counted")
    graph.source("items").scan(lambda item: item % 3, 0, counting).sink("out")
    return graph.build()


@pytest.mark.parametrize("fault", ["lost", "full", "slow", "older 1", "older 99"])
def test_whatever_call_a_trouble_meets_there_is_no_gap(fault: str) -> None:
    for call in range(60):
        check_law(counted(), {"items": range(16)}, [4, 4], [{call: fault}, {call // 2: fault}])
    for call in range(16):  # where a run begins that could resume
        check_law(counted(), {"items": range(16)}, [4, 4], [{}, {call: fault}])


@pytest.mark.parametrize("fault", ["older 1", "older 2"])
def test_a_checkpoint_has_all_rows_that_were_written_for_it(fault: str) -> None:
    """Its rows of items are written one by one, and the server may come back without some between any two of them."""
    graph = drift.Graph("spelled")
    graph.source("items").flat_map(lambda n: [f"{n:30}"] * 3).sink("out")
    for broken_off, calls in ((1, range(8, 18)), (3, range(28, 41))):
        for call in calls:
            check_law(graph.build(), {"items": range(16)}, [broken_off], [{call: fault}])


def breaks_the_law(breaks: list[int], troubles: list[Mapping[int, str]]) -> bool:
    try:
        check_law(counted(), {"items": range(16)}, breaks, troubles)
    except (AssertionError, IndexError, StorageError):
        return True
    return False


@pytest.mark.parametrize(
    ("breakage", "breaks", "troubles"),
    [
        (mock.patch("outside.is_there", lambda tables, expected: True), [4], ["older 2"]),
        (mock.patch("drift.state.restored.check_base", lambda *_: None), [5, 0, 1], [None, "older 99", "older 99"]),
    ],
    ids=["a write into older data", "a look into older data"],
)
def test_the_law_finds(breakage: Any, breaks: list[int], troubles: list[str | None]) -> None:
    with breakage:
        assert any(breaks_the_law(breaks, [{call: each} if each else {} for each in troubles]) for call in range(60))
