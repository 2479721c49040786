"""The answers about one range on Spark: attempts that live at once, or one after the other, use one answer."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from waiting import HANG_S

import drift
from drift.calling.asker import Loop, Question
from drift.calling.asks import calls_of
from drift.segments.answering import Answering
from drift.segments.log import Passed
from drift.spark.answer_log import RangeLog, answers_of_range
from drift_graph.errors import StorageError
from drift_graph.item import Failure
from drift_graph.meta import END_OF_TIME
from drift_graph.operators import Map
from drift_graph.segments import Segment, segments_of

ITEMS = 40


def question(number: int, answer: Any = None) -> Question:
    made = Question(b"%03d" % number, number, "ask")
    made.answer = answer
    return made


def test_of_two_answers_about_an_item_the_first_in_the_log_counts_for_both_attempts(tmp_path: Path) -> None:
    one, other = RangeLog(tmp_path / "range"), RangeLog(tmp_path / "range")
    of_one, of_other = [question(1, "one"), question(2, "one")], [question(2, "other"), question(3, "other")]
    assert not one.find(of_one[0], "ask") and not other.find(of_other[0], "ask")
    other.answered("ask", of_other)
    one.answered("ask", of_one)
    assert [each.answer for each in (*of_one, *of_other)] == ["one", "other", "other", "other"]
    late = question(3)
    assert one.find(late, "ask") and late.answer == "other"
    third, found = RangeLog(tmp_path / "range"), [question(number) for number in (1, 2, 3)]
    assert all(third.find(each, "ask") for each in found) and not third.find(question(4), "ask")
    assert [each.answer for each in found] == ["one", "other", "other"]
    assert dict(answers_of_range(tmp_path / "range")) == {b"001": "one", b"002": "other", b"003": "other"}
    for each in (one, other, third):
        each.close()


def test_a_failure_is_an_answer_for_the_other_attempts(tmp_path: Path) -> None:
    one, other = RangeLog(tmp_path / "range"), RangeLog(tmp_path / "range")
    failure = Failure("ask", "ValueError", "no", "here", "trace")
    one.answered("ask", [question(1, failure), question(2, "yes")])
    again = [question(1, "yes"), question(2, "no")]
    other.answered("ask", again)
    assert [each.answer for each in again] == [failure, "yes"]
    found = dict(answers_of_range(tmp_path / "range"))[b"001"]
    assert (found, found.message, found.trace) == (failure, "no", "trace")
    one.close()
    other.close()


def test_what_an_attempt_was_writing_when_it_died_is_passed_over(tmp_path: Path) -> None:
    one = RangeLog(tmp_path / "range")
    one.answered("ask", [question(1, "one")])
    one.answered("ask", [question(2, "lost")])
    one.close()
    (file,) = (tmp_path / "range").glob("*/*.log")
    file.write_bytes(file.read_bytes()[:-1])
    other, again = RangeLog(tmp_path / "range"), [question(1), question(2, "new")]
    assert other.find(again[0], "ask") and not other.find(again[1], "ask")
    other.answered("ask", again[1:])
    assert dict(answers_of_range(tmp_path / "range")) == {b"001": "one", b"002": "new"}
    other.close()
    damaged = bytearray(file.read_bytes())
    damaged[12] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(StorageError, match="is damaged at byte 0"):
        RangeLog(tmp_path / "range")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"answers of calls cannot be logged in .*answers=FOLDER"):
        RangeLog(tmp_path / "file" / "range")


def attempt(folder: Path, ask: Callable[..., Any], *, batch: int | None = None) -> list[Any]:
    """What one attempt of a task passes on."""
    graph = drift.Graph("attempts")
    graph.source("numbers").call(ask, concurrency=4, batch=batch, name="ask").sink("out")
    dataflow = graph.build()
    assert list(calls_of(dataflow)) == ["ask"]
    segment = segments_of(dataflow, durable=False)[0]
    assert isinstance(segment, Segment) and all(isinstance(each, Map) for each in segment.calls.values())
    (border,) = segment.calls
    loop, log, out = Loop(), RangeLog(folder), []
    answering = Answering("attempts", segment.calls, loop, 1000, log)
    metas = [b"\x80" + bytes(14) + b"%c" % number for number in range(ITEMS)]
    answering.put(Passed(metas, list(range(ITEMS)), border, END_OF_TIME))
    answering.complete()
    while not answering.is_empty:
        passed = answering.take()
        if passed is not None:
            out += passed.payloads
        else:
            select.select([loop.wake], (), (), HANG_S)
    loop.close()
    log.close()
    return out


@pytest.mark.parametrize("batch", [None, 3])
def test_attempts_that_ask_at_once_pass_the_same_answers_on(tmp_path: Path, batch: int | None) -> None:
    both = threading.Barrier(2)

    def asked_by(name: str) -> Callable[[Any], Any]:
        def ask(numbers: Any) -> Any:
            if numbers == 0 or (batch and 0 in numbers):  # neither has an answer about it yet
                both.wait(HANG_S)
            return [(number, name) for number in numbers] if batch else (numbers, name)

        return ask

    passed: dict[str, list[Any]] = {}

    def run(name: str) -> None:
        passed[name] = attempt(tmp_path / "range", asked_by(name), batch=batch)

    threads = [threading.Thread(target=run, args=(name,)) for name in ("one", "other")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert passed["one"] == passed["other"]
    assert [number for number, _ in passed["one"]] == list(range(ITEMS))
    assert sorted(answer for _, answer in answers_of_range(tmp_path / "range")) == passed["one"]


def test_an_attempt_again_asks_about_what_has_no_answer(tmp_path: Path) -> None:
    first = attempt(tmp_path / "range", lambda number: (number, "first"))
    assert attempt(tmp_path / "range", lambda number: (number, "second")) == first


@pytest.mark.parametrize("answered", [(), (5,), (3,), (3, 4, 5)])
@pytest.mark.parametrize("known_at", [3, 4, 5])
def test_what_another_attempt_asks_about_together_at_the_same_time_is_waited_for_by_nobody(
    tmp_path: Path, known_at: int, answered: tuple[int, ...]
) -> None:
    """The other logs who belongs together, and answers, between two items of this one."""

    class Meanwhile(RangeLog):
        def find(self, question: Question, step: str) -> bool:
            if question.payload == known_at and not told:
                told.append(True)
                other.together("ask", metas[3:6])
                given = [Question(metas[number], number, question.border) for number in (3, 4, 5)]
                for each in given:
                    each.answer = each.payload, "other"
                with_answer.extend(each for each in given if each.payload in answered)
            if question.payload == 5 and with_answer:
                other.answered("ask", with_answer)
                with_answer.clear()
            return super().find(question, step)

    told: list[bool] = []
    with_answer: list[Question] = []
    other = RangeLog(tmp_path / "range")
    metas = [b"\x80" + bytes(14) + b"%c" % number for number in range(ITEMS)]
    first = Question(metas[0], 0, "ask onward")
    first.answer = 0, "other"
    other.answered("ask", [first])
    with mock.patch(f"{__name__}.RangeLog", Meanwhile):
        passed = attempt(tmp_path / "range", lambda numbers: [(number, "this") for number in numbers], batch=3)
    other.close()
    assert [number for number, _ in passed] == list(range(ITEMS))
    assert 5 not in answered or dict(passed)[5] == "other"
