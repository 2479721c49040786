"""Law: a caller that stops at any item and comes again with the same state misses none."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pytest
from callers import Visit, check_visits, visits
from hypothesis import given, settings
from hypothesis import strategies as st

import drift
from drift.batches import Batches
from drift.engines.source_feed import SourceFeed
from drift.state.run_checkpoints import RunCheckpoints
from drift_graph.meta import BEGINNING, END_OF_TIME, time_of


def doubled_and_summed() -> drift.Dataflow:
    graph = drift.Graph("callers")
    numbers = graph.source("numbers")
    numbers.flat_map(lambda n: [n] * (n % 3), name="repeated").sink("some")
    numbers.scan(lambda n: n % 4, 0, lambda total, n: (total + n, total + n), name="summed").sink("sums")
    return graph.build()


@given(visits(80), st.integers(0, 40))
@settings(deadline=None, max_examples=30)
def test_a_caller_that_stops_at_any_item_and_comes_again_misses_none(
    tmp_path_factory: pytest.TempPathFactory, several: list[Visit], count: int
) -> None:
    check_visits(doubled_and_summed(), {"numbers": list(range(count))}, several, tmp_path_factory.mktemp("callers"))


@pytest.mark.parametrize("engine", ["zeromq", "zeromq, to its end"])
def test_over_processes_a_caller_misses_none(engine: str, tmp_path: Path) -> None:
    ends = engine != "zeromq"
    several = [Visit(way, stop, 30, 4, 3) for way, stop in [("loop", "close"), ("batches", "death"), ("next", "raise")]]
    if ends:
        several = [Visit("loop", "break", 4, 100, 1)]  # all of it in one batch
    check_visits(doubled_and_summed(), {"numbers": list(range(60))}, several, tmp_path, engine="zeromq", workers=2)


@pytest.mark.parametrize(
    "way", ["dropped", "dropped with a record", "closed", "with", "finished", "iterated", "no sinks"]
)
def test_a_run_with_sinks_that_is_dropped_unused_warns_of_that(way: str, tmp_path: Path) -> None:
    graph, more = doubled_and_summed(), {"sinks": {"some": [], "sums": []}}
    if way == "dropped with a record":
        more = {"record": tmp_path / "record"}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        run = drift.run(graph, {"numbers": [1, 2]}, **({} if way == "no sinks" else more))
        line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
        if way == "closed":
            run.close()
        elif way == "with":
            with run:
                pass
        elif way == "finished":
            run.finish()
        elif way == "iterated":
            next(run)
        del run
        gc.collect()
    of_runs = [  # and not what other tests have left to be collected
        (str(each.message), each.category, each.filename, each.lineno)
        for each in warned
        if each.category is RuntimeWarning
    ]
    if not way.startswith("dropped"):
        assert of_runs == []
    else:
        what = "its record has" if "record" in way else "its sinks (some, sums) have"
        message = f"the run of graph 'callers' was never started, so {what} nothing: call finish(), or iterate over it"
        assert of_runs == [(message, RuntimeWarning, __file__, line)]


def test_segments_do_not_run_ahead_of_the_caller(tmp_path: Path) -> None:
    graph = drift.Graph("segments")
    dear = graph.source("numbers").map(lambda n: n + 1, name="dear", durable=True)
    dear.scan(lambda n: n % 4, 0, lambda total, n: (total + n, total + n), name="summed").sink("sums")
    several: list[Visit] = [Visit("loop", "break", 5, 4, 3), Visit("batches", "death", 9, 4, 3)]
    check_visits(graph.build(), {"numbers": list(range(40))}, several, tmp_path)


def numbers(state: Path, count: int = 100, **more: Any) -> drift.Run:
    graph = drift.Graph("numbers")
    graph.source("s").sink("o")
    checkpoints = drift.Checkpoints(state, every_items=5, every_s=100)
    return drift.run(graph, {"s": range(count)}, state=checkpoints, batch_items=10, **more)


def test_a_closed_loop_comes_again_to_the_item_in_hand(tmp_path: Path) -> None:
    run = numbers(tmp_path)
    for item in run:
        if item.position == 14:
            run.close()
            break
    run = numbers(tmp_path)
    assert run.guarantee is not None and "the item in hand" in str(run.guarantee)
    assert 0 < next(run).position <= 14  # the checkpoint before the batch of the item in hand


@pytest.mark.parametrize("workers", [2, 5])
def test_threads_share_the_items_of_a_run(workers: int, tmp_path: Path) -> None:
    for state in ({}, {"state": tmp_path}):
        graph = drift.Graph("numbers")
        graph.source("s").sink("o")
        run = drift.run(graph, {"s": range(20_000)}, batch_items=16, **state)  # type: ignore[arg-type]
        got: list[list[int]] = [[] for _ in range(workers)]

        def take(mine: list[int], run: drift.Run = run) -> None:
            if workers % 2:
                mine += [item.position for item in run]
            while (item := next(run, None)) is not None:
                mine.append(item.position)

        in_threads(take, got)
        assert sorted(position for mine in got for position in mine) == list(range(20_000))
        assert all(mine == sorted(mine) for mine in got)
        assert repr(run).count("ended") == 1
    assert numbers(tmp_path / "other").report.items_out == 0
    again = drift.run(graph, {"s": range(20_000)}, state=tmp_path)
    assert list(again) == []  # the last thread let the last checkpoint go


def in_threads(function: Callable[[Any], None], arguments: Iterable[Any]) -> None:
    """Call a function in several threads, one for each argument, and wait for all; an error of one is raised here."""
    several = list(arguments)
    with contextlib.ExitStack() as stack:
        pools = [stack.enter_context(ThreadPoolExecutor(1)) for _ in several]
        for each in [pool.submit(function, argument) for pool, argument in zip(pools, several)]:
            each.result()


def test_no_checkpoint_is_above_what_another_thread_has_in_hand(tmp_path: Path) -> None:
    run = numbers(tmp_path)
    in_hand: list[int] = []
    in_threads(lambda _: in_hand.append(next(run).position), [None])  # a thread that dies with an item in hand
    assert [item.position for item in run] == list(range(1, 100)) and in_hand == [0]
    run.close()
    assert next(numbers(tmp_path)).position == 0


def test_a_thread_that_comes_back_lets_the_checkpoint_go(tmp_path: Path) -> None:
    run = numbers(tmp_path)
    with ThreadPoolExecutor(1) as other:
        assert other.submit(next, run).result().position == 0
        assert [item.position for item in run] == list(range(1, 100))
        assert "running" in repr(run)  # the other thread has an item in hand
        assert other.submit(next, run, None).result() is None
    assert "ended" in repr(run) and list(numbers(tmp_path)) == []


def test_the_rest_of_a_batch_goes_to_whoever_asks_next(tmp_path: Path) -> None:
    run = numbers(tmp_path)
    assert [next(run).position for _ in range(3)] == [0, 1, 2]
    batch = next(iter(run.batches()))
    end = 3 + len(batch.payloads)
    assert (batch.position, batch.payloads) == (3, list(range(3, end)))
    assert next(run).position == end
    assert run.to_arrow()["position"].to_pylist() == list(range(end + 1, 100))


def test_a_table_that_could_not_be_made_comes_again(tmp_path: Path) -> None:
    run = numbers(tmp_path)
    closed = duckdb.connect()
    closed.close()
    with pytest.raises(duckdb.Error):
        run.to_duckdb(closed)
    run.close()
    assert numbers(tmp_path).to_pandas()["position"].tolist() == list(range(100))
    assert numbers(tmp_path).to_arrow().num_rows == 0


def test_coroutines_share_the_items_of_a_run_and_checkpoints_wait_for_both(tmp_path: Path) -> None:
    async def both() -> tuple[list[int], list[int]]:
        run = numbers(tmp_path)
        got: tuple[list[int], list[int]] = [], []
        has_one, may_end = asyncio.Event(), asyncio.Event()

        async def slow() -> None:
            async for item in run:
                got[0].append(item.position)
                has_one.set()
                await may_end.wait()

        async def fast() -> None:
            await has_one.wait()
            async for item in run:
                got[1].append(item.position)
            checkpoints = run._run_checkpoints
            assert (
                isinstance(checkpoints, RunCheckpoints)
                and checkpoints.checkpoint is not None
                and not checkpoints._store.checkpoints()
            )
            may_end.set()

        await asyncio.gather(slow(), fast())
        return got

    slow, fast = asyncio.run(both())
    assert slow == [0] and fast == list(range(1, 100))
    assert list(numbers(tmp_path)) == []


def test_an_iterator_that_two_threads_advance_at_once_is_refused_by_their_names(tmp_path: Path) -> None:
    inside, may_go = threading.Event(), threading.Event()

    def reads() -> Iterator[int]:
        yield from range(300)
        inside.set()
        may_go.wait()
        yield from range(300)

    graph = drift.Graph("numbers")
    graph.source("s").sink("o")
    run = drift.run(graph, {"s": reads()}, batch_items=300)
    shared = iter(run)
    errors: list[str] = []

    def advance() -> None:
        try:
            deque(shared, maxlen=0)
        except drift.SettingsError as error:
            errors.append(str(error))

    first = threading.Thread(target=advance, name="one")
    first.start()
    inside.wait()
    second = threading.Thread(target=advance, name="two")
    second.start()
    second.join()
    may_go.set()
    first.join()
    run.close()
    assert len(errors) == 2 and all("threads 'one' and 'two'" in error for error in errors), errors


def test_every_thread_hears_of_the_error_that_a_run_ends_with() -> None:
    graph = drift.Graph("fails")
    graph.source("s").map(lambda n: 1 // (50 - n), name="fails").sink("o")
    run = drift.run(graph, {"s": range(100)}, batch_items=4)
    errors: list[str] = []

    def take(_: Any) -> None:
        with pytest.raises(drift.StepError) as caught:
            deque(run, maxlen=0)
        errors.append(str(caught.value))

    in_threads(take, range(3))
    assert len(errors) == 3 and len(set(errors)) == 1


@pytest.mark.parametrize("way", ["next", "batches"])
def test_the_output_is_not_taken_from_inside_the_run(way: str) -> None:
    graph = drift.Graph("inside")
    graph.source("s").sink("o")
    runs: list[drift.Run] = []

    def sink(_: drift.Item[int]) -> None:
        next(runs[0]) if way == "next" else next(runs[0].batches())

    runs.append(drift.run(graph, {"s": range(10)}, sinks={"o": sink}))
    with pytest.raises(drift.DriftError, match="outside of the run"):
        deque(runs[0], maxlen=0)


def test_loops_in_loops_take_turns() -> None:
    graph = drift.Graph("turns")
    graph.source("s").sink("o")
    run = drift.run(graph, {"s": range(100)}, batch_items=7)
    seen: list[int] = []
    for outer in run:
        seen.append(outer.position)
        for inner in iter(run):
            seen.append(inner.position)
            break
    assert seen == list(range(100))


def test_sources_hear_of_a_release_when_the_caller_has_taken_it(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[bytes, bool]] = []
    monkeypatch.setattr(SourceFeed, "released", lambda self, below, last=False: heard.append((below, last)))
    graph = drift.Graph("acknowledged")
    graph.source("s").sink("o")
    run = drift.run(graph, {"s": range(100)}, batch_items=10)
    for item in run:
        below = max((time_of(each) for each, _ in heard if BEGINNING < each < END_OF_TIME), default=0)
        assert below <= item.time, "the item in hand is acknowledged"
    assert heard[-1] == (END_OF_TIME, True)


def test_ctrl_c_between_two_batches_of_finish_closes_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """There the generator of the run does not see it, and what is in flight would go on."""
    asked = 0

    def interrupted(batches: Batches) -> bool:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise KeyboardInterrupt
        return False

    closed: list[bool] = []

    class Closing(drift.sinks.Sink):
        def open(self) -> None: ...

        def write(self, positions: Any, metas: Any, payloads: Any) -> None: ...

        def complete(self) -> None: ...

        def close(self) -> None:
            closed.append(True)

    monkeypatch.setattr(Batches, "is_of_a_fork", property(interrupted))
    run = drift.run(doubled_and_summed(), {"numbers": range(100)}, sinks={"some": Closing()}, batch_items=5)
    with pytest.raises(KeyboardInterrupt):
        run.finish()
    assert closed == [True]
