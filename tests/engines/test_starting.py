"""Processes of a run over zeromq that die while they start: at each moment of the start a run survives it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from gated import Gated

import drift
from drift.engines.zeromq import engine as engine_module
from drift.engines.zeromq.child import EngineChild
from drift.engines.zeromq.engine import ZeromqEngine
from drift.machines.nodes.recovery import DEATHS_MAX
from drift.machines.nodes.rewind_log import RewindLog

NUMBERS = range(500)


def summed() -> drift.Graph:
    graph = drift.Graph("summed")
    numbers = graph.source("numbers").map(lambda number: number * 3)
    numbers.scan(lambda number: number % 5, 0, lambda total, number: (total + number, total)).sink("out")
    return graph


def killed(child: EngineChild) -> None:
    child.process.kill()
    child.process.wait()


def of_first(method: Callable[..., Any], times: int, when: Callable[[EngineChild], bool]) -> Callable[..., Any]:
    """A method of a process's handle, after which the first processes that meet a condition are killed."""
    left = [times]

    def then_killed(child: EngineChild, *arguments: Any, **more: Any) -> Any:
        result = method(child, *arguments, **more)
        if left[0] and child.process.poll() is None and when(child):
            left[0] -= 1
            killed(child)
        return result

    return then_killed


MOMENTS: dict[str, tuple[str, Callable[[EngineChild], bool]]] = {
    "before its first order": ("__init__", lambda child: child.name == "worker 1"),
    "after its first order": ("order", lambda child: child.name == "worker 1"),
    "when it is ready": ("listen", lambda child: child.name == "worker 1" and bool(child.address)),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_worker_killed_while_it_starts_is_replaced(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, when = MOMENTS[moment]
    monkeypatch.setattr(EngineChild, name, of_first(getattr(EngineChild, name), 1, when))
    run = drift.run(summed(), {"numbers": NUMBERS}, engine="zeromq", workers=2)
    assert [item.payload for item in run] == [item.payload for item in drift.run(summed(), {"numbers": NUMBERS})]
    assert run.report.died == ("worker 1",)


@pytest.mark.parametrize("moment", MOMENTS)
def test_one_that_always_dies_so_ends_the_run(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, when = MOMENTS[moment]
    monkeypatch.setattr(EngineChild, name, of_first(getattr(EngineChild, name), 1000, when))
    with pytest.raises(drift.ProcessError, match=rf"worker 1 died {DEATHS_MAX} times"):
        list(drift.run(summed(), {"numbers": NUMBERS}, engine="zeromq", workers=2))


def test_without_recovery_the_first_death_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    name, when = MOMENTS["after its first order"]
    monkeypatch.setattr(EngineChild, name, of_first(getattr(EngineChild, name), 1, when))
    with pytest.raises(drift.ProcessError, match=r"worker 1 .* was killed by SIGKILL"):
        list(drift.run(summed(), {"numbers": NUMBERS}, engine="zeromq", workers=2, recover=False))


def workers_of(run: drift.Run[Any]) -> ZeromqEngine:
    engine = run._engine
    assert isinstance(engine, ZeromqEngine)
    return engine


@pytest.mark.parametrize(("deaths", "survives"), [(1, True), (1000, False)])
def test_a_replacement_killed_while_it_starts_is_replaced(
    deaths: int, survives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And again, but not for ever."""
    source = Gated(NUMBERS, 200)
    run = drift.run(summed(), {"numbers": source}, engine="zeromq", workers=2)
    items = iter(run)
    first = next(items)
    monkeypatch.setattr(EngineChild, "__init__", of_first(EngineChild.__init__, deaths, lambda child: True))
    killed(workers_of(run)._children[1])
    source.open_gate()
    if not survives:
        with pytest.raises(drift.ProcessError, match=rf"died {DEATHS_MAX} times"):
            list(items)
        return
    payloads = [first.payload, *(item.payload for item in items)]
    assert payloads == [item.payload for item in drift.run(summed(), {"numbers": NUMBERS})]
    assert run.report.died[0] == "worker 1" and len(run.report.died) >= 2


@pytest.mark.parametrize(("deaths", "survives"), [(DEATHS_MAX - 1, True), (1000, False)])
def test_a_merger_that_dies_is_started_again_but_not_for_ever(
    deaths: int, survives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_COMPANIONS_AFTER_S", 0.0)
    merged: list[int] = []
    note = RewindLog.merged
    monkeypatch.setattr(RewindLog, "merged", lambda self, *what: (merged.append(1), note(self, *what))[1])
    is_merger = of_first(EngineChild.__init__, deaths, lambda child: child.name == "merger")
    monkeypatch.setattr(EngineChild, "__init__", is_merger)
    graph = drift.Graph("endless")
    graph.source("numbers").scan(lambda number: number % 1000, 0, lambda total, number: (total + 1, total)).sink("out")
    run = drift.run(graph, {"numbers": itertools.count()}, engine="zeromq", workers=1, checkpoint_interval_s=0.01)
    if survives:
        with run:
            for _ in run.batches():
                if merged:
                    break
        return
    with run, pytest.raises(drift.ProcessError, match=f"died {DEATHS_MAX} times, and merged none"):
        for _ in run.batches():
            pass
