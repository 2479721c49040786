"""Calls to the outside: asked once about settled items, and in the order of these."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import drift
from drift.calling.asks import key_of
from drift_graph.errors import GraphError, StepError

WORDS = ["to", "be", "or", "not", "to", "be", "that", "is"]


class Service:
    """Answers differently each time, in the reverse order of its questions, so many at once."""

    def __init__(self, at_once: int = 1) -> None:
        self.asked: Counter[str] = Counter()
        self.in_flight = self.most_in_flight = 0
        self._at_once = at_once
        self._waiting: list[asyncio.Event] = []

    async def ask(self, payload: Any, call: drift.Call) -> Any:
        self.asked[call.key] += 1
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        turn = asyncio.Event()
        self._waiting.append(turn)
        if len(self._waiting) == self._at_once:
            self._waiting.pop().set()
        await turn.wait()
        if self._waiting:
            self._waiting.pop().set()
        self.in_flight -= 1
        return payload, self.asked.total()


def graph(ask: Any, **more: Any) -> drift.Graph:
    made = drift.Graph("asking")
    answers = made.source("words").call(ask, name="ask", **more)
    answers.count(lambda answer: answer[0]).sink("counts")
    answers.sink("answers")
    return made


def ran(made: drift.Graph, words: Any = WORDS, **more: Any) -> list[tuple[str, Any]]:
    return [(item.sink, item.payload) for item in drift.run(made, {"words": words}, **more)]


@pytest.mark.parametrize("engine", ["local", "reference", "zeromq"])
def test_answers_go_on_in_the_order_of_their_items_whatever_order_they_come_in(engine: str) -> None:
    service = Service(at_once=4)
    out = ran(graph(service.ask, concurrency=4), engine=engine)
    assert [payload[0] for sink, payload in out if sink == "answers"] == WORDS
    assert [payload for sink, payload in out if sink == "counts"][-4:] == [("to", 2), ("be", 2), ("that", 1), ("is", 1)]
    assert service.most_in_flight == 4
    assert set(service.asked.values()) == {1} and len(service.asked) == len(WORDS)


def test_a_key_is_the_same_on_every_engine_and_of_one_item() -> None:
    keys = []
    for engine in ("local", "reference", "zeromq"):
        service = Service()
        ran(graph(service.ask, concurrency=1), engine=engine)
        keys.append(list(service.asked))
    assert keys[0] == keys[1] == keys[2]
    assert len({key_of(name, step, meta) for name in "ab" for step in "ab" for meta in (b"a", b"b")}) == 8


def test_the_output_is_a_function_of_the_answers() -> None:
    answers = [ran(graph(lambda word: (word, len(word)), concurrency=at_once)) for at_once in (1, 3, 64)]
    assert answers[0] == answers[1] == answers[2]


def test_plain_functions_run_in_so_many_threads_at_once() -> None:
    all_there = threading.Barrier(4)

    def ask(word: str) -> tuple[str, str]:
        all_there.wait()
        return word, threading.current_thread().name

    out = ran(graph(ask, concurrency=4))
    threads = {payload[1] for sink, payload in out if sink == "answers"}
    assert len(threads) >= 2 and threading.current_thread().name not in threads


@pytest.mark.parametrize("engine", ["local", "reference", "zeromq"])
def test_a_failure_ends_the_run_at_its_item_or_is_diverted(engine: str) -> None:
    attempts: Counter[str] = Counter()

    async def ask(word: str, call: drift.Call) -> tuple[str, int]:
        attempts[call.key] += 1
        assert call.attempt == attempts[call.key]
        if word == "or":
            raise ValueError("no answer to that")
        return word, 1

    run = drift.run(graph(ask, retries=1), {"words": WORDS}, engine=engine)
    seen = []
    with pytest.raises(StepError, match=r"step 'ask' \(call .*ask\) raised ValueError: no answer to that") as raised:
        seen += [item.payload for item in run if item.sink == "answers"]
    assert raised.value.step == "ask"
    assert [payload for item in run for payload in [item.payload]] == []
    assert max(attempts.values()) == 2
    diverted = ran(graph(ask, retries=0, on_error="divert"), engine=engine)
    assert ("errors", {"location": "ask", "error": "ValueError: no answer to that", "payload": "or"}) in diverted
    assert [payload[0] for sink, payload in diverted if sink == "answers"] == [word for word in WORDS if word != "or"]


@pytest.mark.parametrize(("raised", "is_diverted"), [(asyncio.CancelledError, True), (SystemExit, False)])
def test_an_error_that_is_no_exception_is_one_of_its_item(
    raised: type[BaseException], is_diverted: bool, tmp_path: Path
) -> None:
    """With other items in flight, whose answers are not lost."""
    asked, answered = [], []

    async def ask(number: int) -> int:
        asked.append(number)
        if number == 2:
            raise raised
        while number == 0 and len(answered) < 3:
            await asyncio.sleep(0.01)
        answered.append(number)
        return number

    def run() -> drift.Run:
        graph = drift.Graph("raises")
        graph.source("numbers").call(ask, retries=0, on_error="divert", name="ask").sink("answers")
        return drift.run(graph, {"numbers": range(5)}, state=tmp_path / "state")

    if is_diverted:
        items = list(run())
        assert [item.sink for item in items] == ["answers"] * 2 + ["errors"] + ["answers"] * 2
        assert "it was cancelled, and not by the run" in items[2].payload["error"]
        return
    with pytest.raises(StepError, match=f"raised {raised.__name__}"):
        run().finish()
    assert sorted(asked) == list(range(5))
    asked.clear()
    with pytest.raises(StepError, match=f"raised {raised.__name__}"):
        run().finish()
    assert asked == [2]


def test_a_function_that_gives_a_coroutine_is_told_to_be_one() -> None:
    async def ask(word: str) -> str:
        return word

    with pytest.raises(StepError, match="is no coroutine function itself; pass an async def"):
        ran(graph(lambda word: ask(word), retries=0), ["a"])


def test_a_call_that_fails_at_first_is_asked_again_with_the_same_key() -> None:
    keys: dict[str, list[tuple[str, int]]] = {}

    def ask(word: str, call: drift.Call) -> tuple[str, int]:
        keys.setdefault(word, []).append((call.key, call.attempt))
        if call.attempt == 1:
            raise ConnectionError("not yet")
        return word, call.attempt

    assert ("answers", ("b", 2)) in ran(graph(ask), ["a", "b"])
    for word in ("a", "b"):
        first, second = keys[word]
        assert first[0] == second[0] and (first[1], second[1]) == (1, 2)


def test_an_attempt_ends_at_its_deadline() -> None:
    never = threading.Event()

    async def waits(word: str) -> None:
        await asyncio.Event().wait()

    def blocks(word: str) -> None:
        never.wait()

    for ask in (waits, blocks):
        with pytest.raises(StepError, match=r"raised TimeoutError: no answer within 0.01 s \(attempt 2\)"):
            ran(graph(ask, timeout_s=0.01, retries=1))
    never.set()


def test_several_are_asked_about_together_and_each_gets_its_answer() -> None:
    together: list[list[str]] = []

    def ask(words: list[str], call: drift.Call) -> list[tuple[str, int]]:
        together.append(words)
        assert len(call.keys) == len(words) and call.key not in call.keys[1:]
        return [(word, len(word)) for word in words]

    out = ran(graph(ask, batch=3, concurrency=1))
    assert together == [WORDS[:3], WORDS[3:6], WORDS[6:]]
    assert [payload for sink, payload in out if sink == "answers"] == [(word, len(word)) for word in WORDS]
    with pytest.raises(StepError, match="about 3 payloads together and gave 1 answers; return one for each"):
        ran(graph(lambda words: words[:1], batch=3, retries=0))


def test_small_unrepeatable_things_are_computed_once() -> None:
    numbers = iter(range(100))
    made = drift.Graph("drawn")
    drawn = made.source("words").map(drift.recorded(lambda word: (word, next(numbers))), name="draw")
    drawn.count(lambda pair: pair[0]).sink("counts")
    drawn.sink("drawn")
    out = ran(made, engine="zeromq", workers=2)
    assert [payload for sink, payload in out if sink == "drawn"] == [(word, at) for at, word in enumerate(WORDS)]
    with pytest.raises(GraphError, match=r"takes no drift.recorded\(...\): only map does"):
        made.source("more").filter(drift.recorded(bool))


def test_an_answer_has_to_be_comparable() -> None:
    with pytest.raises(drift.PayloadError, match="raised NoCanonicalForm"):
        ran(graph(lambda word: object(), retries=0))


def test_calls_behind_calls_and_beside_them() -> None:
    made = drift.Graph("several")
    words = made.source("words")
    lengths = words.call(lambda word: (word, len(word)), name="length")
    lengths.call(lambda pair: (*pair, pair[1] + 1), name="again").sink("longer")
    words.merge(lengths.map(lambda pair: pair[0])).count(str).sink("counts")
    assert ran(made, ["a", "bc"]) == ran(made, ["a", "bc"], engine="reference")


def test_what_is_refused() -> None:
    made = drift.Graph("round")
    loop = made.feedback("again")
    windows = made.source("n").merge(loop).group(lambda n: n % 3, 2)
    asked = windows.call(lambda window: window[-1], name="turn").filter(bool)
    asked.feed(loop)
    asked.sink("out")
    with pytest.raises(GraphError, match=r"step 'turn' \(at .*\) is a call, and its output returns to it through a"):
        made.build()
    words = made.source("words")
    for more, wrong in (
        ({"concurrency": 0}, "concurrency=0 is not an int of 1 or more"),
        ({"timeout_s": -1}, "timeout_s=-1 is neither None nor a number above 0"),
        ({"retries": 1.5}, "retries=1.5 is not an int of 0 or more"),
        ({"rate_per_s": 0}, "rate_per_s=0 is neither None nor a number above 0"),
        ({"batch": -1}, "batch=-1 is not an int of 0 or more"),
        ({"timeout_s": 2**70}, r"timeout_s=\d+ is neither None nor a number above 0"),
        ({"on_error": "drop"}, "on_error='drop', which is not valid"),
    ):
        with pytest.raises(GraphError, match=wrong):
            words.call(len, **more)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="call takes a function, not 'len'"):
        words.call("len")  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["local", "zeromq"])
def test_nothing_is_asked_that_is_taken_back(engine: str) -> None:
    service = Service()
    made = drift.Graph("disorder")
    numbers = made.source("numbers", time=drift.EventTime(lambda n: n, lateness=40))
    sums = numbers.scan(lambda n: n % 3, 0, lambda total, n: (total + n, (n, total + n)), name="sums")
    sums.call(service.ask, concurrency=1, name="ask").sink("out")
    disordered = [number ^ 31 for number in range(128)]
    run = drift.run(made, {"numbers": disordered}, engine=engine, batch_items=5)
    out = [item.payload[0] for item in run]
    assert [number for number, _ in out] == sorted(disordered)
    assert len(service.asked) == len(disordered) and set(service.asked.values()) == {1}
