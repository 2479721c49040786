"""Runs that are ended from outside: stopped well, closed from another thread, in a coroutine, by signals, in forks."""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from waiting import HANG_S, wait_until

import drift
from drift.children import Channel
from drift.cli.errors import RunEnded
from drift.cli.interrupt import Interrupts
from drift.cli.options import Printed
from drift.cli.run import driven
from drift.undisturbed import may_be_interrupted, undisturbed
from drift_barrier.digest import Digest

ENGINES = ["local", "reference", "zeromq"]


class Ticks:
    """Numbers without end, at the pace that `go` allows: `gave` is set when there are so many."""

    def __init__(self, enough: int = 100) -> None:
        self.gave = threading.Event()
        self.ended = threading.Event()
        self._enough = enough

    def __iter__(self) -> Iterator[int]:
        for n in itertools.count():
            if n == self._enough:
                self.gave.set()
            if n > self._enough:
                self.ended.wait(0.001)
            if self.ended.is_set():
                return
            yield n


class Sink:
    """Keeps what it is given, and what is done with it."""

    def __init__(self) -> None:
        self.payloads: list[Any] = []
        self.done: list[str] = []

    def open(self) -> None:
        self.done.append("open")

    def write(self, positions: Any, metas: Any, payloads: Any) -> None:
        self.payloads += payloads

    def complete(self) -> None:
        self.done.append("complete")

    def close(self) -> None:
        self.done.append("close")


def counted(engine_time: drift.ArrivalTime | drift.EventTime | None = None) -> drift.Graph:
    graph = drift.Graph("counted")
    source = graph.source("numbers") if engine_time is None else graph.source("numbers", time=engine_time)
    source.map(lambda n: n % 3).count(key=lambda n: n).sink("out")
    return graph


def in_thread(target: Any) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("lateness", [None, 1000])
def test_a_stopped_run_releases_all_that_was_read_and_completes_sinks(engine: str, lateness: int | None) -> None:
    ticks, sink = Ticks(), Sink()
    time = drift.EventTime(lambda n: n, lateness=lateness) if lateness else None  # held until the source ends
    run = drift.run(counted(time), {"numbers": drift.sources.live(ticks)}, engine=engine, sinks={"out": sink})
    ended = in_thread(run.finish)
    wait_until(lambda: run.progress.items_in >= 100, "items are read")
    run.stop()
    ended.join(HANG_S)
    ticks.ended.set()
    assert not ended.is_alive()
    assert sink.done == ["open", "complete", "close"]
    whole = drift.run(counted(time), {"numbers": range(run.report.items_in)}, engine="reference")
    assert [item.payload for item in whole] == sink.payloads
    assert run.report.items_in == len(sink.payloads) > 0


@pytest.mark.parametrize("engine", ["local", "zeromq"])
def test_the_record_of_a_stopped_run_is_complete(engine: str, tmp_path: Path) -> None:
    ticks, path = Ticks(), tmp_path / "record"
    run = drift.run(counted(), {"numbers": drift.sources.live(ticks)}, engine=engine, record=path)
    ended = in_thread(run.finish)
    wait_until(lambda: run.progress.items_in >= 100, "items are read")
    run.stop()
    ended.join(HANG_S)
    ticks.ended.set()
    replayed = drift.replay(path, counted()).finish()
    assert (replayed.digest, replayed.items_in) == (run.digest, run.report.items_in)
    assert drift.Record(path).manifest.outcome.state == "finished"


def test_a_stopped_replay_releases_what_was_given(tmp_path: Path) -> None:
    drift.run(counted(), {"numbers": range(10_000)}, record=tmp_path / "record").finish()
    run = drift.replay(tmp_path / "record", counted(), batch_items=100)
    taken = list(itertools.islice(run, 150))
    run.stop()
    taken += run
    assert 150 < len(taken) < 10_000 and run.report.items_in == len(taken)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_consumer_of_a_run_may_stop_it(engine: str) -> None:
    run = drift.run(counted(), {"numbers": itertools.count()}, engine=engine, batch_items=50)
    taken = []
    for item in run:
        taken.append(item.payload)
        if len(taken) == 70:
            run.stop()
    assert len(taken) == run.report.items_in >= 70


@pytest.mark.parametrize("engine", ["local", "zeromq"])
@pytest.mark.parametrize("stop_at", [0, 7_000, 20_001])
def test_the_digest_of_a_run_that_stops_at_a_checkpoint_is_that_of_what_came(
    engine: Any, stop_at: int, tmp_path: Path
) -> None:
    graph = drift.Graph("stopped")
    graph.source("numbers").map(abs).group(lambda number: number % 7, 3).sink("out")
    run = drift.run(graph, {"numbers": range(10**6)}, engine=engine, state=tmp_path / "state", batch_items=1000)
    digest = Digest(run.settings.digest)
    for at, batch in enumerate(run.batches()):
        digest.add(batch.metas, list(batch.payloads))
        if at >= stop_at // 1000:
            run.stop()
    assert run.digest == digest.hexdigest()


def test_a_run_that_is_stopped_before_it_begins_reads_nothing() -> None:
    run = drift.run(counted(), {"numbers": itertools.count()})
    run.stop()
    assert list(run) == []


def test_a_stopped_run_leaves_what_an_earlier_one_wrote_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    drift.run(counted(), {"numbers": range(1000)}, sinks={"out": drift.sinks.jsonl(path)}).finish()
    before = path.read_bytes()
    run = drift.run(counted(), {"numbers": itertools.count()}, sinks={"out": drift.sinks.jsonl(path)}, batch_items=10)
    next(run)
    run.stop()
    run.finish()
    assert path.read_bytes() == before


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_may_be_closed_from_another_thread(engine: str) -> None:
    ticks, taken, sink = Ticks(), [], Sink()
    run = drift.run(counted(), {"numbers": drift.sources.live(ticks)}, engine=engine, sinks={"out": sink})
    ended = in_thread(lambda: taken.extend(run))
    assert ticks.gave.wait(HANG_S)
    run.close()
    assert sink.done[-1] == "close"
    ended.join(HANG_S)
    ticks.ended.set()
    assert not ended.is_alive() and "ended" in repr(run)
    assert list(run) == []


def test_many_threads_may_close_one_run() -> None:
    ticks = Ticks()
    run = drift.run(counted(), {"numbers": drift.sources.live(ticks)}, engine="zeromq")
    threads = [in_thread(lambda: list(run))]
    assert ticks.gave.wait(HANG_S)
    threads += [in_thread(run.close) for _ in range(5)]
    for thread in threads:
        thread.join(HANG_S)
    ticks.ended.set()
    assert not any(thread.is_alive() for thread in threads) and "ended" in repr(run)


def test_a_sink_may_close_its_run() -> None:
    run: drift.Run
    taken: list[Any] = []

    def take(item: Any) -> None:
        taken.append(item)
        run.close()

    run = drift.run(counted(), {"numbers": itertools.count()}, sinks={"out": take}, batch_items=10)
    run.finish()
    assert 0 < len(taken) <= 10 and "ended" in repr(run)  # the first batch


@pytest.mark.parametrize("engine", ENGINES)
def test_a_coroutine_takes_items_while_others_run(engine: str) -> None:
    async def main() -> list[Any]:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(others())
        taken = [item.payload async for item in drift.run(counted(), {"numbers": range(5000)}, engine=engine)]
        other.cancel()
        assert turns > 1
        return taken

    assert asyncio.run(main()) == [item.payload for item in drift.run(counted(), {"numbers": range(5000)})]


def test_a_cancelled_coroutine_leaves_nothing_of_its_run() -> None:
    ticks, sink = Ticks(), Sink()
    run = drift.run(counted(), {"numbers": drift.sources.live(ticks)}, engine="zeromq", sinks={"out": sink})

    async def main() -> None:
        async def take() -> None:
            async for _ in run:
                pass

        task = asyncio.create_task(take())
        await asyncio.to_thread(ticks.gave.wait, HANG_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    ticks.ended.set()
    assert sink.done[-1] == "close" and "ended" in repr(run)


def test_an_error_of_a_run_reaches_its_coroutine() -> None:
    graph = drift.Graph("bad")
    graph.source("numbers").map(lambda n: 1 // n).sink("out")

    async def main() -> None:
        items: AsyncIterator[Any] = aiter(drift.run(graph, {"numbers": [1, 0]}))
        assert (await anext(items)).payload == 1
        with pytest.raises(drift.StepError, match="ZeroDivisionError"):
            await anext(items)

    asyncio.run(main())


# Signals, to real processes.

SERVICE = """
import itertools, signal, sys, time
import drift

def ticks():
    for n in itertools.count():
        yield n
        time.sleep(0.001)

def busy(run):
    print("busy", flush=True)
    while not run._feed.stopped:
        time.sleep(0.01)
    print("stopped", flush=True)
    time.sleep(1000)

graph = drift.Graph("service")
graph.source("numbers", time=drift.EventTime(lambda n: n, lateness=10)).sink("out")
seen = 0
with drift.run(graph, {{"numbers": drift.sources.live(ticks())}}, engine={engine!r}) as run, run.stopping_on({signals}):
    for item in run:
        seen += 1
        if seen == 20:
            print("runs", flush=True)
        {more}
assert run.report.items_in == seen, (run.report, seen)
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
print("ended", flush=True)
"""


def started(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_sigterm_stops_a_program_well(engine: str) -> None:
    process = started("-c", SERVICE.format(engine=engine, signals="", more="pass"))
    assert process.stdout is not None
    assert process.stdout.readline() == "runs\n"
    process.terminate()
    assert process.communicate(timeout=HANG_S) == ("ended\n", "")
    assert process.returncode == 0


def test_a_second_sigterm_does_what_it_did_before() -> None:
    more = "seen == 25 and busy(run)"
    process = started("-c", SERVICE.format(engine="local", signals="signal.SIGTERM, signal.SIGINT", more=more))
    assert process.stdout is not None
    assert [process.stdout.readline(), process.stdout.readline()] == ["runs\n", "busy\n"]
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "stopped\n"
    process.terminate()
    process.communicate(timeout=HANG_S)
    assert process.returncode == -signal.SIGTERM


def test_signals_are_refused_where_they_are_not_heard() -> None:
    run = drift.run(counted(), {"numbers": range(3)})
    said: list[str] = []

    def enter() -> None:
        try:
            with run.stopping_on():
                pass
        except drift.SettingsError as error:
            said.append(str(error))

    in_thread(enter).join(HANG_S)
    assert "only the main thread" in said[0]


@pytest.mark.parametrize("engine", ["local", "zeromq"])
def test_sigterm_has_the_command_release_all_it_has_read(engine: str, tmp_path: Path) -> None:
    (tmp_path / "lines.py").write_text("import drift\ngraph = drift.Graph('g')\ngraph.source('lines').sink('out')\n")
    out = tmp_path / "out.jsonl"
    command = ["-m", "drift_command", "run", f"{tmp_path}/lines.py:graph", "--source", "-", "--sink", str(out)]
    process = subprocess.Popen(
        [sys.executable, *command, "--engine", engine], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    process.stdin.write("a\nb\nc\n")
    process.stdin.flush()
    wait_until(lambda: process.poll() is not None or (out.exists() and out.read_text().count("\n") == 3), "3 items")
    process.terminate()
    assert process.stderr is not None
    said = process.stderr.read()
    assert process.wait(HANG_S) == 0, said
    assert "stopped by SIGTERM: the sources ended after 3 items" in said


# Forks.


@pytest.mark.parametrize("engine", ["local", "zeromq"])
def test_what_forks_do_with_their_copies_of_a_run_is_nothing_to_the_run(engine: str, tmp_path: Path) -> None:
    script = f"""
        import gc, itertools, os, sys
        import drift

        graph = drift.Graph("forked")
        graph.source("numbers").map(lambda n: n + 1).sink("out")
        sink = drift.sinks.jsonl({str(tmp_path / "out.jsonl")!r})
        run = drift.run(graph, {{"numbers": range(2000)}}, engine={engine!r}, batch_items=100, sinks={{"out": sink}},
                        record={str(tmp_path / "record")!r})
        batches = run.batches()
        for how in ("run.close()", "del run", "list(run)", "sys.exit()", "run.finish()"):
            next(batches, None)  # zeromq may have released all of it
            child = os.fork()
            if not child:
                del batches
                try:
                    exec(how)
                    gc.collect()
                except drift.ProcessError as error:
                    assert "has only a copy" in str(error)
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0, how
        for batch in run.batches():
            pass
        assert run.report.items_out == 2000
        print(run.digest)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    graph = drift.Graph("forked")
    graph.source("numbers").map(lambda n: n + 1).sink("out")
    assert done.stdout.strip() == drift.run(graph, {"numbers": range(2000)}).finish().digest
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2000
    assert drift.Record(tmp_path / "record").manifest.items_out == 2000


def test_a_signal_during_a_write_waits_for_the_end_of_that() -> None:
    written: list[str] = []

    @undisturbed
    def write() -> None:
        signal.raise_signal(signal.SIGINT)
        written.append("all of it")

    with Interrupts() as interrupts:
        write()
        assert written and interrupts.number == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
    with Interrupts(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_during_a_write_ends_the_command_behind_that_batch() -> None:
    graph = drift.Graph("g")
    graph.source("numbers").sink("out")
    written: list[int] = []

    class Interrupted(drift.sinks.Sink):
        open = complete = close = lambda self: None

        def write(self, positions: Sequence[int], metas: Any, payloads: Sequence[Any]) -> None:
            if not written:
                signal.raise_signal(signal.SIGINT)
            written.extend(payloads)

    def make() -> drift.Run:
        return drift.run(graph, {"numbers": range(1000)}, sinks={"out": Interrupted()}, batch_items=10)

    with pytest.raises(RunEnded) as ended:
        driven(make, {}, Printed(json=False, digest=False, quiet=True, items=False))
    assert written == list(range(len(written))) and 0 < len(written) < 1000
    assert f"interrupted at position {len(written)}: " in str(ended.value)


def test_a_signal_never_comes_between_the_halves_of_a_message_of_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = drift.Graph("g")
    graph.source("numbers").sink("out")
    interruptible: list[bool] = []
    write = Channel.write

    def watched(self: Channel, message: bytes) -> None:
        interruptible.append(may_be_interrupted())
        write(self, message)

    monkeypatch.setattr(Channel, "write", watched)
    drift.run(graph, {"numbers": range(100)}, record=tmp_path / "record", batch_items=10).finish()
    assert len(interruptible) > 10 and not any(interruptible)
