"""Answers of calls in a run with state: logged before they are used, and never asked for again."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import asked
import pytest
from waiting import HANG_S, wait_until

import drift
from drift.calling.asker import Question
from drift.segments.answers import AnswerLog
from drift_graph.errors import AnswerMissing, SettingsError, StorageError

ITEMS = 40


class Counted:
    """Gives another answer each time, and none about some items while it is closed."""

    def __init__(self, *silent: int) -> None:
        self.silent = set(silent)
        self.keys: Counter[str] = Counter()
        self.cancelled: list[int] = []
        self.waits = threading.Event()
        self.answering = asyncio.Event()

    async def __call__(self, item: int, call: drift.Call) -> tuple[int, int]:
        self.keys[call.key] += 1
        answer = item, self.keys.total()
        if item in self.silent:
            self.waits.set()
            try:
                await self.answering.wait()
            except asyncio.CancelledError:
                self.cancelled.append(item)
                raise
        return answer


def graph(ask: Callable[..., Any], **more: Any) -> drift.Graph:
    made = drift.Graph("logged")
    answers = made.source("numbers").call(ask, name="ask", timeout_s=None, **more)
    answers.scan(lambda answer: answer[0] % 3, 0, lambda count, answer: (count + 1, (answer, count))).sink("out")
    return made


def run(folder: Path, ask: Callable[..., Any], *, items: int = ITEMS, calls: Any = "ask", **more: Any) -> drift.Run:
    state = drift.Checkpoints(folder / "state", every_s=0)
    sinks = {"out": drift.sinks.jsonl(folder / "out.jsonl")}
    return drift.run(
        graph(ask, **more), {"numbers": range(items)}, state=state, sinks=sinks, batch_items=4, calls=calls
    )


def output(folder: Path) -> str:
    return (folder / "out.jsonl").read_text()


def until(made: drift.Run, ready: Callable[[], bool]) -> None:
    """Let a run go on until something has happened."""
    for _ in made.batches():
        if ready():
            return


def answers_in(folder: Path) -> int:
    log = AnswerLog(folder / "state" / "inputs" / "answers+1", "the test")
    log.open_to_read(b"")
    log.close()
    return len(log._found)


@pytest.mark.parametrize("again", ["local", "zeromq"])
def test_calls_in_flight_at_a_close_are_cancelled_and_asked_again_with_the_same_key(tmp_path: Path, again: str) -> None:
    first = Counted(20)
    made = run(tmp_path, first, concurrency=8)
    until(made, lambda: first.waits.is_set() and answers_in(tmp_path) == ITEMS - 1)
    made.close()
    assert first.cancelled == [20] and set(first.keys.values()) == {1}
    second = Counted()
    state, sinks = drift.Checkpoints(tmp_path / "state", every_s=0), {"out": drift.sinks.jsonl(tmp_path / "out.jsonl")}
    drift.run(graph(second), {"numbers": range(ITEMS)}, state=state, sinks=sinks, engine=again).finish()
    assert len(second.keys) == 1 and set(second.keys) <= set(first.keys)
    assert output(tmp_path).count("\n") == ITEMS


def test_a_stop_lets_calls_in_flight_end(tmp_path: Path) -> None:
    first = Counted(20)
    made = run(tmp_path, first, concurrency=1)
    until(made, first.waits.is_set)
    made.stop()
    next(made.batches())  # now it begins no further call
    loop = made._engine._loop._loop  # type: ignore[attr-defined]
    loop.call_soon_threadsafe(first.answering.set)
    made.finish()
    assert not first.cancelled and answers_in(tmp_path) == 21
    second = Counted()
    run(tmp_path, second).finish()
    assert not set(second.keys) & set(first.keys) and len(second.keys) == ITEMS - 21
    assert output(tmp_path).count("\n") == ITEMS


def test_a_stop_without_state_ends_the_sources_and_answers_come(tmp_path: Path) -> None:
    first = Counted(5)
    made = drift.run(graph(first, concurrency=1), {"numbers": range(ITEMS)}, batch_items=4)
    until(made, first.waits.is_set)
    made.stop()
    made._engine._loop._loop.call_soon_threadsafe(first.answering.set)  # type: ignore[attr-defined]
    out = [item.payload for item in made]
    assert made.progress.items_out == len(first.keys) and 5 in [answer[0] for answer, _ in out]


def test_a_run_may_take_logged_answers_only(tmp_path: Path) -> None:
    first = Counted(20)
    made = run(tmp_path, first, concurrency=1)
    until(made, first.waits.is_set)
    made.close()
    with pytest.raises(AnswerMissing, match="call 'ask' has no recorded answer about 20, and this run takes recorded"):
        run(tmp_path, Counted(), calls="replay").finish()
    with pytest.raises(SettingsError, match="calls='stub': call 'ask' of graph 'logged' has none"):
        run(tmp_path, Counted(), calls="stub")
    with pytest.raises(SettingsError, match=r"calls={'other': \.\.\.}: graph 'logged' has no such call; it has 'ask'"):
        run(tmp_path, Counted(), calls={"other": len})
    with pytest.raises(SettingsError, match="calls='no' is none of 'ask', 'replay' and 'stub'"):
        run(tmp_path, Counted(), calls="no")
    asked_nothing = Counted()
    run(tmp_path, asked_nothing, calls={"ask": lambda item: (item, -1)}).finish()
    assert not asked_nothing.keys


def test_stubs_are_asked_in_place_of_the_outside() -> None:
    made = drift.run(graph(Counted(), stub=lambda item: (item, "stub")), {"numbers": range(3)}, calls="stub")
    assert [item.payload[0] for item in made] == [(at, "stub") for at in range(3)]


def test_what_was_asked_about_together_is_asked_about_together_again(tmp_path: Path) -> None:
    groups: list[tuple[str, list[int]]] = []
    silent, waits = threading.Event(), threading.Event()

    async def ask(items: list[int], call: drift.Call) -> list[tuple[int, str]]:
        groups.append((call.key, items))
        if 8 in items and not silent.is_set():
            waits.set()
            await asyncio.Event().wait()
        return [(item, "answer") for item in items]

    made = run(tmp_path, ask, concurrency=1, batch=7)
    until(made, waits.is_set)
    made.close()
    silent.set()
    before = list(groups)
    run(tmp_path, ask, concurrency=1, batch=3).finish()
    assert before[-1] == groups[len(before)]
    assert [item for _, items in [*before[:-1], *groups[len(before) :]] for item in items] == list(range(ITEMS))


def test_a_diverted_answer_is_logged_and_a_failure_is_asked_about_again(tmp_path: Path) -> None:
    asked_about: list[int] = []

    def ask(item: int) -> tuple[int, int]:
        asked_about.append(item)
        if item == 7 and asked_about.count(7) == 1:
            raise ValueError("not now")
        return item, len(asked_about)

    with pytest.raises(drift.StepError, match="not now"):
        run(tmp_path, ask, concurrency=1, retries=0).finish()
    run(tmp_path, ask, concurrency=1, retries=0).finish()
    again = Counter(asked_about) - Counter(range(ITEMS))
    assert again[7] == 1 and again.total() <= 2 and min(again) == 7  # the other was in flight when the run ended
    assert output(tmp_path).count("\n") == ITEMS


@pytest.mark.parametrize("engine", ["local", "zeromq"])
def test_those_asked_about_together_with_one_that_failed_keep_their_answers(tmp_path: Path, engine: str) -> None:
    together: list[list[int]] = []

    def ask(items: list[int]) -> list[Any]:
        together.append(items)
        return [object() if item == 9 and items[0] == 8 else (item, len(together)) for item in items]

    state, sinks = drift.Checkpoints(tmp_path / "state", every_s=0), {"out": drift.sinks.jsonl(tmp_path / "out.jsonl")}

    def once() -> None:
        made = graph(ask, concurrency=1, batch=4, retries=0)
        drift.run(made, {"numbers": range(12)}, state=state, sinks=sinks, engine=engine).finish()

    with pytest.raises(drift.PayloadError, match="raised NoCanonicalForm"):
        once()
    assert together == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    once()
    assert together[3:] == [[9]], "it alone has no answer"
    assert output(tmp_path).count("\n") == 12


def test_a_log_has_what_was_asked_about_together_and_has_no_answer(tmp_path: Path) -> None:
    questions = [Question(b"%d" % at, at, "ask") for at in range(4)]
    metas = [each.meta for each in questions]
    log = AnswerLog(tmp_path, "the test")
    log.together(metas)
    log.answered(questions[:1])
    log.together(metas[1:3])
    log.close()
    again = AnswerLog(tmp_path, "the test")
    again.open_to_read(b"")
    assert again.find(questions[0]) and not again.asked_together(metas[0])
    assert [again.asked_together(meta) for meta in metas[1:]] == [metas[1:]] * 3
    again.close()


def test_an_answer_that_cannot_be_read_back_is_refused_at_its_item(tmp_path: Path) -> None:
    class Local:
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Local)

    with pytest.raises(drift.DriftError):
        run(tmp_path, lambda item: (item, Local())).finish()


def test_a_damaged_log_of_answers_is_refused(tmp_path: Path) -> None:
    first = Counted(20)
    made = run(tmp_path, first, concurrency=1)
    until(made, first.waits.is_set)
    made.close()
    (file,) = (tmp_path / "state" / "inputs" / "answers+1").glob("*.log")
    data = bytearray(file.read_bytes())
    data[10] ^= 1
    file.write_bytes(data)
    with pytest.raises(StorageError, match=r"the answers of call 'ask' .* is damaged at byte 0"):
        run(tmp_path, Counted()).finish()


@pytest.mark.long
def test_the_caller_dies_and_nothing_logged_is_asked_for_again(tmp_path: Path) -> None:
    assert asked.one(tmp_path, Random(5), [100, 250], workers=False) == 2


@pytest.mark.parametrize("engine", ["local", "zeromq"])
def test_ctrl_c_cancels_calls_in_flight_and_they_are_asked_again_with_the_same_key(tmp_path: Path, engine: str) -> None:
    command = [sys.executable, __file__, str(tmp_path), engine]
    interrupted = subprocess.Popen([*command, "wait"], stderr=subprocess.PIPE, text=True)
    wait_until(lambda: (tmp_path / "waits").exists() or interrupted.poll() is not None, "calls are in flight")
    first, logged = keys_asked(tmp_path), answers_in(tmp_path)
    interrupted.send_signal(signal.SIGINT)
    _, said = interrupted.communicate(timeout=HANG_S)
    assert interrupted.returncode == -signal.SIGINT and "KeyboardInterrupt" in said, said
    assert (tmp_path / "cancelled").exists(), said
    assert (tmp_path / "cancelled").read_text() == "cancelled\n" * 4
    assert (len(first), logged) == (10, 6) and set(first.values()) == {1}
    subprocess.run([*command, "answer"], check=True, timeout=HANG_S)
    both = keys_asked(tmp_path)
    assert len(both) == ITEMS and sorted(both.values()) == [1] * (ITEMS - 4) + [2] * 4
    assert {key for key, count in both.items() if count == 2} == set(list(first)[6:])
    assert output(tmp_path).count("\n") == ITEMS


def keys_asked(folder: Path) -> Counter[str]:
    return Counter((folder / "asked").read_text().split())


def interrupted_run(folder: Path, engine: str, then: str) -> None:
    """A run in a process of its own; from the seventh item on it may have to wait for answers."""

    def note(file: str, line: str) -> None:
        with (folder / file).open("a") as opened:
            opened.write(line + "\n")

    in_flight = 0

    async def ask(item: int, call: drift.Call) -> tuple[int, str]:
        nonlocal in_flight
        if item >= 6 and then == "wait":
            while answers_in(folder) != 6:
                await asyncio.sleep(0.001)
        note("asked", call.key)
        if item >= 6 and then == "wait":
            in_flight += 1
            if in_flight == 4:
                note("waits", "all")
            try:
                await asyncio.Event().wait()
            finally:
                note("cancelled", "cancelled")
        return item, call.key

    state, sinks = drift.Checkpoints(folder / "state", every_s=0), {"out": drift.sinks.jsonl(folder / "out.jsonl")}
    made = graph(ask, concurrency=4)
    drift.run(made, {"numbers": range(ITEMS)}, state=state, sinks=sinks, engine=engine).finish()


@pytest.mark.kills
def test_workers_die_and_every_item_is_asked_about_once(tmp_path: Path) -> None:
    assert asked.one(tmp_path, Random(5), [60], workers=True) == 1


def test_a_slow_call_is_named_as_what_the_run_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drift.segments.chain._SLOW_S", 0.0)
    first = Counted(20)
    made = run(tmp_path, first, concurrency=4)
    until(made, lambda: first.waits.is_set() and answers_in(tmp_path) == ITEMS - 1)
    assert made.progress.held_by == "call 'ask' about 20"
    assert made.progress.silent_since_s is not None and made.progress.unsettled
    made.close()


if __name__ == "__main__":
    interrupted_run(Path(sys.argv[1]), *sys.argv[2:])
