"""Blocking iterables as sources: read in a thread of their own, which ends with them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sourced import all_of
from waiting import HANG_S, wait_until

import drift
from drift import SettingsError, sources

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.filterwarnings("error")]


@given(count=st.integers(0, 300), buffer_items_max=st.integers(1, 20), items_max=st.integers(1, 20))
@settings(deadline=None, max_examples=50)
def test_a_live_iterable_is_given_completely_and_in_order(count: int, buffer_items_max: int, items_max: int) -> None:
    source = sources.live(iter(range(count)), buffer_items_max=buffer_items_max, close_max_s=HANG_S)
    assert all_of(source, items_max) == list(range(count))


def test_a_live_iterable_waits_when_its_buffer_is_full() -> None:
    taken = 0
    full = threading.Event()

    def numbers() -> Iterator[int]:
        nonlocal taken
        while True:
            taken += 1
            if taken == 6:
                full.set()
            yield taken

    reader = sources.live(numbers(), buffer_items_max=5, close_max_s=HANG_S).open()
    assert reader.read(0) == []  # from then on it takes items
    assert full.wait(HANG_S)
    assert reader.read(2) == [1, 2]
    reader.close()
    assert taken <= 5 + 2 + 1


def test_closing_ends_the_generator_in_its_own_thread() -> None:
    ended_in: list[str] = []

    def numbers() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            ended_in.append(threading.current_thread().name)

    reader = sources.live(numbers(), buffer_items_max=3, close_max_s=HANG_S).open()
    while not reader.read(1):
        pass
    reader.close()
    assert ended_in == ["drift live source"]


def test_closing_does_not_wait_for_ever_and_says_so() -> None:
    go_on = threading.Event()

    def silent() -> Iterator[int]:
        began.append(threading.current_thread())
        go_on.wait(HANG_S)
        yield 1

    began: list[threading.Thread] = []
    reader = sources.live(silent(), close_max_s=0.0).open()
    assert reader.read(1) == []
    wait_until(lambda: began, "it waits for its first item")
    (thread,) = began
    with pytest.warns(ResourceWarning, match="has not given its next item"):
        reader.close()
    go_on.set()
    thread.join(HANG_S)
    assert not thread.is_alive()


def test_an_error_of_a_generator_that_is_closed_is_told() -> None:
    def numbers() -> Iterator[int]:
        try:
            yield from range(10)
        finally:
            raise ValueError("the file is gone")

    reader = sources.live(numbers(), buffer_items_max=3, close_max_s=HANG_S).open()
    while not reader.read(1):
        pass
    with pytest.warns(UserWarning, match="raised ValueError when it was closed: the file is gone"):
        reader.close()


class Queue:
    """Numbers that are given once, in a run of any number; no generator, which a run closes."""

    def __init__(self, count: int, taken: int = 0) -> None:
        self.taken, self.count = taken, count

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self.taken == self.count:
            raise StopIteration
        self.taken += 1
        return self.taken - 1


@pytest.mark.parametrize("has_state", [False, True])
@pytest.mark.parametrize("engine", ["local", "zeromq"])
def test_what_a_live_iterable_has_given_is_in_the_output_of_runs_that_are_stopped(
    engine: Any, has_state: bool, tmp_path: Path
) -> None:
    graph = drift.Graph("stopped")
    graph.source("s").sink("out")
    queue, got = Queue(3000), list[int]()
    for stop_after in (5, 70, 0):  # a run may have read all of it before it is stopped
        if queue.taken == queue.count:
            queue = Queue(3000, 3000)  # one that has ended is refused
        live = sources.live(queue, buffer_items_max=300, close_max_s=HANG_S)
        kept: dict[str, Any] = {"state": tmp_path / "state", "complete": False} if has_state else {}
        run = drift.run(graph, {"s": live}, engine=engine, batch_items=10, **kept)
        for number, item in enumerate(run, 1):
            got.append(item.payload)
            if number == stop_after:
                run.stop()
        assert has_state or got == list(range(queue.taken))
    assert got == list(range(3000))


def test_what_a_live_iterable_has_given_a_run_that_was_left_is_in_its_log(tmp_path: Path) -> None:
    graph = drift.Graph("left")
    graph.source("s").sink("out")
    queue = Queue(1000)
    with drift.run(graph, {"s": sources.live(queue, close_max_s=HANG_S)}, state=tmp_path) as run:
        assert next(run).payload == 0
    rest = drift.run(graph, {"s": sources.live(queue, close_max_s=HANG_S)}, state=tmp_path)
    assert [item.payload for item in rest] == list(range(1000))


def test_what_cannot_be_live_is_refused() -> None:
    for wrong in ("text", 7):
        with pytest.raises(SettingsError, match="takes an iterable or generator"):
            sources.live(wrong)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=r"function .*; call it, live\(it\(\)\)"):
        sources.live(test_what_cannot_be_live_is_refused)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="buffer_items_max=0"):
        sources.live([1], buffer_items_max=0)
