"""Waits, limits of time and rates of calls, on a clock that goes on only while everything waits for it."""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from waiting import HANG_S

from drift.calling.asker import Asker, Loop, Question
from drift.calling.asks import Asks, Call


class _Selector(selectors.DefaultSelector):
    """Where a loop would wait for a time, its clock is set to that time."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(timeout if timeout is None else 0)
        if not ready and timeout is not None:
            self.now_s += max(timeout, 0)
        return ready


def loop_with_a_clock() -> asyncio.AbstractEventLoop:
    selector = _Selector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now_s  # type: ignore[method-assign]
    return loop


def asked(asks: Asks, payloads: Sequence[Any]) -> list[Question]:
    """Questions about the payloads, once all have ended."""
    loop, all_ended = Loop(loop_with_a_clock), threading.Event()
    questions = [Question(b"%03d" % at, payload, "ask") for at, payload in enumerate(payloads)]
    left = len(questions)

    def ended(several: Sequence[Question]) -> None:
        nonlocal left
        left -= len(several)
        if not left:
            all_ended.set()

    asker = Asker("graph", "ask", asks, loop, together=lambda metas: None, ended=ended)
    asker.submit(questions)
    asker.complete()
    assert all_ended.wait(HANG_S)
    loop.close()
    return questions


def noting(times_s: list[tuple[Any, int, float]], fails: Callable[[Any, Call], bool] = lambda *_: False) -> Any:
    """A function that notes what it is asked, the attempt, and when."""

    async def ask(payload: Any, call: Call) -> Any:
        times_s.append((payload, call.attempt, asyncio.get_running_loop().time()))
        if fails(payload, call):
            raise ConnectionError("not now")
        return payload

    return ask


@pytest.mark.parametrize("batch", [0, 5])
def test_so_many_attempts_begin_per_second_and_no_more(batch: int) -> None:
    times_s: list[tuple[Any, int, float]] = []
    asked(Asks(noting(times_s), concurrency=64, rate_per_s=4, batch=batch, timeout_s=None), range(20))
    assert [at_s for _, _, at_s in times_s] == [1 + at / 4 for at in range(4 if batch else 20)]


def test_further_attempts_count_for_the_rate() -> None:
    times_s: list[tuple[Any, int, float]] = []
    fails = noting(times_s, lambda payload, call: call.attempt == 1 and payload % 2 == 0)
    questions = asked(Asks(fails, rate_per_s=2), range(10))
    assert [each.answer for each in questions] == list(range(10)) and len(times_s) == 15
    began_s = sorted(at_s for _, _, at_s in times_s)
    assert min(after - before for before, after in pairwise(began_s)) >= 0.5 - 1e-9


def test_a_rate_that_was_not_used_is_not_saved_up() -> None:
    times_s: list[tuple[Any, int, float]] = []

    async def ask(payload: int, call: Call) -> int:
        times_s.append((payload, call.attempt, asyncio.get_running_loop().time()))
        if payload == 0:
            await asyncio.sleep(100)
        return payload

    asked(Asks(ask, concurrency=1, rate_per_s=10, timeout_s=None), range(4))
    assert [at_s for _, _, at_s in times_s] == pytest.approx([1, 101, 101.1, 101.2])


def test_waits_before_further_attempts_double_up_to_half_a_minute() -> None:
    times_s: list[tuple[Any, int, float]] = []
    (question,) = asked(Asks(noting(times_s, lambda *_: True), retries=11), ["never"])
    assert isinstance(question.error, ConnectionError)
    assert [attempt for _, attempt, _ in times_s] == list(range(1, 13))
    waited_s = [after[2] - before[2] for before, after in pairwise(times_s)]
    for wait_s, most_s in zip(waited_s, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30]):
        assert most_s / 2 - 1e-9 <= wait_s <= most_s + 1e-9
    assert len({wait_s / most_s for wait_s, most_s in zip(waited_s, [0.1, 0.2, 0.4])}) == 3, "they are drawn"


def test_an_attempt_is_told_its_deadline_and_ends_there() -> None:
    seen: list[tuple[float | None, float]] = []

    async def ask(payload: str, call: Call) -> None:
        seen.append((call.deadline, asyncio.get_running_loop().time()))
        await asyncio.Event().wait()

    (question,) = asked(Asks(ask, timeout_s=7, retries=1), ["late"])
    assert str(question.error) == "no answer within 7 s (attempt 2)"
    assert [deadline - now_s for deadline, now_s in seen if deadline is not None] == pytest.approx([7, 7])
    assert seen[1][1] - seen[0][1] >= 7
    told: list[float | None] = []
    asked(Asks(lambda payload, call: told.append(call.deadline), timeout_s=None), ["any time"])
    assert told == [None]


def test_each_attempt_ends_at_its_own_deadline() -> None:
    ended_s: dict[int, float] = {}

    async def ask(payload: int, call: Call) -> int:
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(6 if payload % 2 else 100)
        except asyncio.CancelledError:
            if payload == 4:
                return payload  # it had the answer
            raise
        finally:
            ended_s[payload] = loop.time()
        return payload

    questions = asked(Asks(ask, concurrency=8, timeout_s=7, retries=0, rate_per_s=0.5), range(6))
    began_s = [1 + 2 * payload for payload in range(6)]
    for payload, question in enumerate(questions):
        assert ended_s[payload] - began_s[payload] == pytest.approx(6 if payload % 2 else 7)
        assert (question.error is None) is (payload in (1, 3, 4, 5))


@pytest.mark.parametrize("retries", [0, 1])
def test_a_coroutine_that_blocks_its_loop_past_its_time_has_not_answered_and_is_told_why(retries: int) -> None:
    attempts: list[int] = []

    async def ask(payload: str, call: Call) -> str:
        attempts.append(call.attempt)
        selector: Any = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
        selector.now_s += 3 if payload == "blocks" else 0.25  # as if it had slept without await
        return payload

    (question,) = asked(Asks(ask, timeout_s=0.5, retries=retries), ["blocks"])
    assert isinstance(question.error, TimeoutError) and attempts == [1, 2][: retries + 1]
    assert str(question.error) == (
        f"no answer within 0.5 s (attempt {retries + 1}): it came 2.5 s later, since a coroutine of a call blocked the "
        f"event loop meanwhile; await what waits, or give a plain function, which has a thread of its own"
    )
    attempts.clear()
    (in_time,) = asked(Asks(ask, timeout_s=0.5, retries=retries), ["in time"])
    assert (in_time.error, in_time.answer, attempts) == (None, "in time", [1])
