"""What a step may raise: anything, and it is that step's failure everywhere; but what a signal brings in is not."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from waiting import HANG_S

import drift


class Stop(BaseException):
    """Of a user's own."""


KINDS = [KeyboardInterrupt, asyncio.CancelledError, GeneratorExit, SystemExit, StopIteration, Stop]
WAYS: dict[str, Callable[[drift.Stream, Any], drift.Stream]] = {
    "map": lambda numbers, bad: numbers.map(bad),
    "filter": lambda numbers, bad: numbers.filter(lambda n: bad(n) >= 0),
    "flat_map": lambda numbers, bad: numbers.flat_map(lambda n: [bad(n)]),
    "key": lambda numbers, bad: numbers.group(key=bad, window=1),
    "key of a count": lambda numbers, bad: numbers.count(bad),
    "scan": lambda numbers, bad: numbers.scan(key=lambda n: 0, initial=0, step=lambda state, n: (state, bad(n))),
}


def outcome(engine: str, way: str, kind: type[BaseException], **more: Any) -> tuple[list[Any], str, bytes, str]:
    def bad(n: int) -> int:
        if n == 7:
            raise kind("seven")
        return n

    graph = drift.Graph("raises")
    WAYS[way](graph.source("numbers"), bad).sink("out")
    run = drift.run(graph, {"numbers": range(20)}, engine=engine, **more)
    items: list[Any] = []
    with pytest.raises(drift.StepError) as caught:
        items.extend(item.payload for item in run)
    return items, str(caught.value), caught.value.meta, run.digest


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_step_raises_is_its_failure(kind: type[BaseException], way: str) -> None:
    meant = outcome("reference", way, kind)
    assert len(meant[0]) == 7 and f"raised {kind.__qualname__}: seven" in meant[1]
    assert outcome("local", way, kind) == meant
    assert outcome("local", way, kind, batch_items=1) == meant


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_step_raises_in_another_process_is_its_failure(kind: type[BaseException]) -> None:
    assert outcome("zeromq", "map", kind) == outcome("reference", "map", kind)


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("engine", ["local", "zeromq"])
def test_what_is_thrown_into_a_generator_of_a_step_is_its_failure(engine: str, begun: bool) -> None:
    if sys.version_info >= (3, 13):
        pytest.skip("its bytecode does not tell what is thrown into a generator from Ctrl-C")

    def thrown(kind: type[BaseException]) -> Callable[[int], int]:
        def bad(n: int) -> int:
            numbers = (each for each in range(3))
            if begun:
                next(numbers)
            return n if n != 7 else numbers.throw(kind("seven"))

        return bad

    said = []
    for each in ("reference", engine):
        graph = drift.Graph("throws")
        graph.source("numbers").map(thrown(KeyboardInterrupt)).sink("out")
        run = drift.run(graph, {"numbers": range(20)}, engine=each)  # type: ignore[call-overload]
        with pytest.raises(drift.StepError, match="raised KeyboardInterrupt: seven") as caught:
            run.finish()
        said.append((str(caught.value), run.report.items_out))
    assert said[0] == said[1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ["reference", "local"])
def test_whatever_a_time_raises_is_an_error_of_the_input(kind: type[BaseException], engine: str) -> None:
    def time(n: int) -> int:
        if n == 7:
            raise kind("seven")
        return n

    graph = drift.Graph("times")
    graph.source("numbers", time=drift.EventTime(time)).sink("out")
    with pytest.raises(drift.DriftError, match=kind.__qualname__):
        drift.run(graph, {"numbers": range(20)}, engine=engine).finish()


INTERRUPTED = """
import os, signal, sys, time
import drift
{handler}
def step(state, n):
    if n == 7:
        os.kill(os.getpid(), signal.{number})
        {wait}
    return state, n
graph = drift.Graph("interrupted")
graph.source("numbers").scan(key=lambda n: 0, initial=0, step=step).sink("out")
signal.signal(signal.SIGINT, signal.default_int_handler) if {handler!r} == "" else None
drift.run(graph, {{"numbers": range(20)}}, engine={engine!r}).finish()
print("went on")
"""
EXITS = """
def leave(number, frame):
    raise {what}
signal.signal(signal.SIGINT, leave)
signal.signal(signal.SIGTERM, leave)
"""


@pytest.mark.parametrize("engine", ["reference", "local"])
@pytest.mark.parametrize("wait", ["time.sleep(1000)", "while True: pass"])
def test_ctrl_c_in_a_step_interrupts_the_run(engine: str, wait: str) -> None:
    script = INTERRUPTED.format(handler="", number="SIGINT", wait=wait, engine=engine)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=HANG_S)
    assert done.stderr.rstrip().endswith("KeyboardInterrupt") and "StepError" not in done.stderr
    assert done.stdout == "" and done.returncode in (-signal.SIGINT, 130)


@pytest.mark.parametrize("what, code", [("SystemExit(9)", 9), ("KeyboardInterrupt", -signal.SIGINT)])
@pytest.mark.parametrize("engine", ["reference", "local"])
def test_what_a_handler_raises_in_a_step_is_none_of_the_step(engine: str, what: str, code: int) -> None:
    handler = EXITS.format(what=what)
    script = INTERRUPTED.format(handler=handler, number="SIGTERM", wait="time.sleep(1000)", engine=engine)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=HANG_S)
    assert "StepError" not in done.stderr and done.returncode == code, done.stderr
