"""Between two segments: items wait for the answers about them, and go on in the order of their metas.

Invariant: an item goes on once everything below it has its answer, and with the answer that is in the log; a time is
announced once everything below it has gone on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from drift.calling.asker import Asker, Loop, Question
from drift.calling.asks import Asks
from drift.segments.log import Passed
from drift_graph.canonical import canonical
from drift_graph.diverted import diverted_by, may_be_of_item
from drift_graph.failures import failed_step
from drift_graph.functions import brief
from drift_graph.item import FAILURES, Failure
from drift_graph.meta import global_time_of
from drift_graph.operators import Map
from drift_graph.sizes import about_bytes
from drift_graph.unchanged import InPlace

#: Bytes of questions and answers that wait, from which on no more are taken.
_BYTES_MAX = 64 << 20


class Log(Protocol):
    """Where answers are found, and kept."""

    def find(self, question: Question, step: str) -> bool | Exception:
        """Give a question its answer, if it is there; returns whether it is, or why it may not be asked."""

    def together(self, step: str, metas: Sequence[bytes]) -> None:
        """Log that items are asked about together now; in the thread of the calls."""

    def asked_together(self, meta: bytes) -> Sequence[bytes]:
        """What was asked about with this item before, without an answer."""

    def answered(self, step: str, questions: Sequence[Question]) -> None:
        """Log answers, and failures if these are final; in the thread of the calls."""

    def passed(self, step: str, questions: Sequence[Question]) -> None:
        """Hear that answered questions go on, in the order of their metas; in the calling thread."""


class Slow(NamedTuple):
    """The call that everything waits for."""

    step: str
    payload: str
    since_s: float


class Answering:
    """
    Args:
        graph: its name, for keys.
        calls: by border.
        in_flight_max: most items that wait.

    Attributes:
        head: the first item that waits.
        ends_with: the error after the last item, if an item may not be asked about and there is no answer.
    """

    def __init__(
        self,
        graph: str,
        calls: Mapping[str, Map],
        loop: Loop,
        in_flight_max: int,
        log: Log,
        make_asker: Callable[..., Asker] = Asker,
    ) -> None:
        self._loop = loop
        self._make_asker = make_asker
        self._log = log
        self._in_flight_max = in_flight_max
        self._queue: deque[Question | bytes] = deque()  # items, and times below which none comes any more
        self._items = self._bytes = 0
        self._operators = calls
        self._askers = {border: self._asker(graph, call) for border, call in calls.items()}
        self._groups: dict[bytes, dict[bytes, Question | None]] = {}  # asked together before, until all are here
        self.head: Question | None = None
        self.ends_with: Exception | None = None

    def _asker(self, graph: str, operator: Map) -> Asker:
        asks, log = operator.function, self._log
        assert isinstance(asks, Asks)
        step = operator.name

        def together(metas: Sequence[bytes]) -> None:
            log.together(step, metas)

        def ended(questions: Sequence[Question]) -> None:
            for each in questions:
                judge(operator, each)
            log.answered(step, questions)

        return self._make_asker(graph, step, asks, self._loop, together=together, ended=ended)

    @property
    def has_room(self) -> bool:
        """Whether more items may come: not while many wait to be asked about, or for one before them."""
        return (
            self.ends_with is None
            and self._items < self._in_flight_max
            and self._bytes < _BYTES_MAX
            and not any(each.has_enough for each in self._askers.values())
        )

    @property
    def is_empty(self) -> bool:
        return not self._queue

    @property
    def waiting(self) -> int:
        return self._items

    def put(self, passed: Passed) -> None:
        """Items that have left the segment before, in order."""
        metas, payloads, borders, below = passed
        to_ask: dict[str, list[Question]] = {}
        for at, (meta, payload) in enumerate(zip(metas, payloads)):
            border = borders if isinstance(borders, str) else borders[at]
            asker = self._askers.get(border)
            question = Question(meta, payload, border, has_ended=asker is None)
            self._queue.append(question)
            if asker is None:
                continue
            operator = self._operators[border]
            found = self._log.find(question, operator.name)
            if isinstance(found, Exception):  # this item cannot be answered: what is before it goes on
                self._queue[-1] = global_time_of(meta)
                self.ends_with = found
                self._items += at
                break
            if found:
                question.has_ended = True
                self._answered_elsewhere(question, asker)
            elif asker.asks.at_once:
                asker.ask_now(question)
            elif not self._is_again(question, asker):
                to_ask.setdefault(border, []).append(question)
        else:
            self._items += len(metas)
            self._queue.append(below)
        self._bytes += about_bytes(payloads)
        for border, questions in to_ask.items():
            self._askers[border].submit(questions)

    def _is_again(self, question: Question, asker: Asker) -> bool:
        """Whether this was asked about with others before a death: then it waits for all of them.

        Not for those that came before it: another attempt, which asks at the same time, may have logged since who
        belongs together.
        """
        group = self._group_of(question.meta)
        if group is None:
            metas = [meta for meta in self._log.asked_together(question.meta) if meta >= question.meta]
            if not metas:
                return False
            group = self._groups[metas[0]] = dict.fromkeys(metas)
        group[question.meta] = question
        self._ask_if_whole(group, asker)
        return True

    def _answered_elsewhere(self, question: Question, asker: Asker) -> None:
        """Let questions that were asked together with this one no longer wait for it."""
        group = self._group_of(question.meta)
        if group is not None:
            del group[question.meta]
            self._ask_if_whole(group, asker)

    def _group_of(self, meta: bytes) -> dict[bytes, Question | None] | None:
        return next((group for group in self._groups.values() if meta in group), None) if self._groups else None

    def _ask_if_whole(self, group: dict[bytes, Question | None], asker: Asker) -> None:
        questions = [each for each in group.values() if each is not None]
        if len(questions) < len(group):
            return
        self._groups = {first: each for first, each in self._groups.items() if each is not group}
        step = self._operators[questions[0].border].name if questions else ""
        for each in questions:
            each.has_ended = self._log.find(each, step) is True
        left = [each for each in questions if not each.has_ended]
        if left:
            asker.submit_together(left)

    def complete(self) -> None:
        """Nothing more comes for now."""
        for asker in self._askers.values():
            asker.complete()

    def take(self) -> Passed | None:
        """What goes on; None if nothing does. Raises DriftError: answers could not be logged."""
        self._loop.seen()
        if self._loop.error is not None:
            raise self._loop.error
        queue = self._queue
        metas: list[bytes] = []
        payloads: list[Any] = []
        borders: list[str] = []
        below = b""
        asked: dict[str, list[Question]] = {}
        while queue:
            head = queue[0]
            if type(head) is bytes:
                below = head
            else:
                assert type(head) is Question
                if not head.has_ended:
                    break
                failed = type(head.answer) is Failure and head.border in self._askers
                metas.append(head.meta[:-1] if failed else head.meta)  # a failed call is no child of its map
                payloads.append(head.answer)
                borders.append(FAILURES if failed else head.border)
                if head.border in self._askers:
                    asked.setdefault(head.border, []).append(head)
            queue.popleft()
        self.head = queue[0] if queue and type(queue[0]) is Question else None
        if self.head is not None and metas:
            below = global_time_of(self.head.meta)
        if not below:
            return None
        for border, questions in asked.items():
            self._log.passed(self._operators[border].name, questions)
        self._bytes -= self._bytes * len(metas) // max(self._items, 1)
        self._items -= len(metas)
        one = borders[0] if borders and borders.count(borders[0]) == len(borders) else None
        return Passed(metas, payloads, one if one is not None else borders, below)

    def slow(self, after_s: float) -> Slow | None:
        """The call that everything waits for, if it has for so long."""
        head = self.head
        if head is None or head.has_ended or not head.asked_s or time.monotonic() - head.asked_s < after_s:
            return None
        return Slow(self._operators[head.border].step, brief(head.payload, 60), head.asked_s)

    def settle(self) -> bool:
        """Begin no further call; returns whether none is in flight."""
        settled = [asker.settle() for asker in self._askers.values()]  # a list, so that each begins no further call
        return all(settled)

    def filenos(self) -> Sequence[int]:
        """What to wait on for answers."""
        return (self._loop.wake.fileno(),)


def judge(operator: Map, question: Question) -> None:
    """Turn a failed call, or an answer that cannot be compared, into its failure or a diverted item."""
    error = question.error
    if error is None:
        try:
            canonical(question.answer)
            return
        except Exception as none:
            error = none
    if isinstance(error, InPlace):
        raise error.error(operator, error.difference)
    asks = operator.function
    assert isinstance(asks, Asks)
    question.error = error
    if asks.diverts and may_be_of_item(error):
        question.answer = diverted_by(operator.step, error, question.payload)
    else:
        question.answer = failed_step(operator, error, question.payload)
