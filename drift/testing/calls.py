"""Answers of calls in tests, and simulated runs of graphs in segments, one after the other, with a caller that may die.

Invariant: nothing outside is asked; every answer depends on the key of its call alone, or on the payload. What has been
logged is not asked about again, whatever order answers come in and whenever the caller dies; and what goes on after a
death is what had gone on before.

Why in turn: what a segment gives does not depend on how far the next one is, so running the next one later is a
schedule like others. The caller asks through the machine of every engine (`drift.segments.answering`), with a drawn
order of answers in place of a loop; when it dies, calls are in flight, or a release has come in part, and it begins
again from its logs. In a run with deaths durable steps end segments too.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from drift.calling.asker import Question
from drift.calling.asks import Asks, Call, calls_of, key_of, takes_call, with_functions
from drift.engines.recorded import RecordedMachine
from drift.engines.simulated.outcome import SimulatedOutput
from drift.engines.simulated.schedule import Key
from drift.engines.simulated.simulation import Simulation
from drift.segments.answering import Answering, judge
from drift.segments.feed import Before
from drift.segments.log import Passed, Unlogged
from drift.testing.handed_out import Died, HandedOut
from drift.testing.schedule import CALLER_DEATH
from drift_graph.errors import DriftBug, ProcessError, SettingsError
from drift_graph.graph import Dataflow
from drift_graph.item import Failure
from drift_graph.meta import BEGINNING, END_OF_TIME, global_time_of
from drift_graph.metas import Metas
from drift_graph.operators import Map
from drift_graph.reference import Answers
from drift_graph.segments import Segment, segments_of
from drift_graph.times import Arrived

#: Deaths of the caller between two segments, at most.
_DEATHS_MAX = 3


class NoAnswer(Exception):
    """A drawn call fails."""


class TestAnswers:
    """What a call is asked in tests.

    Args:
        function: a stub; or None, for values.
        values: one of them is the answer, by the key of the call.
        failing: for each value, whether the call fails in its place.
    """

    __test__ = False  # for pytest

    def __init__(
        self, function: Callable[..., Any] | None, values: Sequence[Any] = (), failing: Sequence[bool] = ()
    ) -> None:
        self.function = function
        self.values = tuple(values)
        self.failing = tuple(failing)

    def __call__(self, payload: Any, call: Call) -> Any:
        """The answer about one payload; a stub gets what the call's function would get."""
        if self.function is not None:
            answer = self.function(payload, call) if takes_call(self.function) else self.function(payload)
            return _awaited(answer) if inspect.iscoroutine(answer) else answer
        at = int(call.key, 16) % len(self.values)
        if self.failing[at]:
            raise NoAnswer("the service has no answer (drawn)")
        return self.values[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TestAnswers) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(len(self.values))

    def __repr__(self) -> str:
        if self.function is not None:
            return f"TestAnswers({self.function!r})"
        return f"TestAnswers(None, {list(self.values)!r}, {list(self.failing)!r})"


def _awaited(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a stub gives that is an async function; in a thread, since this one may run a loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def answered(dataflow: Dataflow, answers: Mapping[str, TestAnswers]) -> Dataflow:
    """A graph whose calls get their answers from a test. Raises SettingsError: a call has none."""
    return _checked(with_functions(dataflow, answers))


def _checked(dataflow: Dataflow) -> Dataflow:
    for name, asks in calls_of(dataflow).items():
        if not isinstance(asks.function, TestAnswers):
            raise SettingsError(
                f"graph {dataflow.name!r} has a call {name!r}, and a test asks nothing outside: draw its answers, "
                f"deterministic(graph, ..., calls={{{name!r}: st.integers()}}), or give a stub, "
                f"calls={{{name!r}: function}}"
            )
    return dataflow


def reference_answers(dataflow: Dataflow) -> Answers | None:
    """The answers that the reference gets; None for a graph without calls.

    Raises:
        SettingsError: a call has no answers of a test.
    """
    if not calls_of(dataflow):
        return None
    _checked(dataflow)

    def answer(call: str, meta: bytes, payload: Any) -> Any:
        operator, question = dataflow[call], Question(meta, payload, "")
        assert isinstance(operator, Map)
        _answer(operator, dataflow.name, [question])
        judge(operator, question)
        return question.answer

    return answer


def _answer(operator: Map, graph: str, group: Sequence[Question]) -> None:
    """Ask, each item by itself: what is asked about together makes no difference to drawn answers."""
    asks = operator.function
    assert isinstance(asks, Asks)
    for each in group:
        key = key_of(graph, operator.name, each.meta)
        try:
            is_list = asks.batch and getattr(asks.function, "function", None) is not None
            answer = asks.function([each.payload] if is_list else each.payload, Call(key, (key,), 1, None))
            each.answer = answer[0] if is_list else answer
        except Exception as error:
            each.error = error


class InTurn(Simulation):
    """A simulated run of a graph in segments; see the module.

    Args:
        answers: of calls, in place of those of `TestAnswers` in the graph: the answer, or a `Failure`.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        inputs: Mapping[str, Sequence[Any]],
        schedule: Any = None,
        *,
        answers: Answers | None = None,
        plan: Any = None,
        **settings: Any,
    ) -> None:
        self._answers = answers or reference_answers(dataflow)
        durable = settings.get("deaths", False)
        self._segments = [each for each in segments_of(dataflow, durable=durable) if isinstance(each, Segment)]
        self._settings = settings
        self._ends_with: tuple[Exception, bytes] | None = None  # the error of the first segment, and its time
        super().__init__(self._segments[0], inputs, schedule, **settings)

    def run(self) -> SimulatedOutput:
        first = outcome = super().run()
        tombstones = outcome.tombstones
        rest = {name: each for name, each in self._settings.items() if name not in ("numbers", "live", "machines")}
        for before, segment in zip(self._segments, self._segments[1:]):
            if isinstance(outcome.error, ProcessError):  # messages were lost: nothing is sure from there on
                return SimulatedOutput(
                    [], outcome.digest, outcome.error, first.late, tombstones, first.handed, first.log
                )
            schedule = self._schedule
            if outcome.error is not None:
                self._ends_with = outcome.error, self.acker.minimal_time
            dies = self._settings.get("deaths", False)
            passed = _Caller(before, outcome, self.released_times, self._answers, schedule, dies=dies).run()
            machines = []
            for rank, source in enumerate(segment.sources):
                borders = [border for border, name in before.source_of.items() if name == source.name]
                rows = [row for row in passed if row[2] in borders]
                arrived = [
                    Arrived(Metas([meta]), [payload], global_time_of(meta), [], None) for meta, payload, _ in rows
                ]
                machines.append(RecordedMachine(source.name, rank, arrived))
            inputs = {machine.name: machine.payloads for machine in machines}
            super().__init__(segment, inputs, schedule, machines=machines, **rest)
            outcome = super().run()
            tombstones += outcome.tombstones
        self.late, self.handed = first.late, first.handed
        return SimulatedOutput(
            outcome.released, outcome.digest, outcome.error, first.late, tombstones, first.handed, outcome.log
        )

    def _know(self, name: str, read: list[tuple[Any, int]], arrived: Arrived) -> None:
        super()._know(name, read, arrived)
        for meta in arrived.metas:  # of later segments: decisions are about the input item behind it
            self._items.setdefault(global_time_of(meta), self._items[meta])

    def _read(self, rank: int) -> None:
        if self._ends_with is None or self._inputs[rank]:
            super()._read(rank)
            return
        error, end = self._ends_with
        machine = self.sources[rank]
        machine.heartbeat = max(machine.heartbeat, end)
        fed = self.intake.beat(rank, machine.heartbeat)
        self.intake.inputs.fail(rank, error)
        self.intake.error = self.intake.inputs.error
        self._feed([fed])


#: Sets the answers of questions about one call.
_Ask = Callable[[str, Sequence[Question]], None]


class _NoLoop:
    """In place of an event loop."""

    error: BaseException | None = None

    def seen(self) -> None:
        """Nobody waits."""


class _DrawnAsker:
    """In place of `Asker`: what it has in flight is answered when the schedule says so."""

    def __init__(self, ask: _Ask, _: str, step: str, asks: Asks, __: Any, *, together: Any, ended: Any) -> None:
        self.asks = asks
        self._ask = ask
        self.step = step
        self._together = together
        self._ended = ended
        self._waiting: list[list[Question]] = []
        self._few: list[Question] = []  # fewer than are asked about together
        self.in_flight: list[list[Question]] = []

    @property
    def has_enough(self) -> bool:
        return len(self._waiting) >= 2 * self.asks.concurrency

    def submit(self, questions: Sequence[Question]) -> None:
        most = max(self.asks.batch, 1)
        self._few += questions
        while len(self._few) >= most:
            self._waiting.append(self._few[:most])
            self._few = self._few[most:]
        self._go()

    def submit_together(self, questions: list[Question]) -> None:
        self._waiting.insert(0, questions)
        self._go()

    def complete(self) -> None:
        if self._few:
            self._waiting.append(self._few)
            self._few = []
        self._go()

    def _go(self) -> None:
        while self._waiting and len(self.in_flight) < self.asks.concurrency:
            group = self._waiting.pop(0)
            self._together([each.meta for each in group])
            self.in_flight.append(group)

    def answer(self, at: int) -> None:
        """The answer to the question in flight at an index comes."""
        self._end(self.in_flight.pop(at))
        self._go()

    def ask_now(self, question: Question) -> None:
        self._together([question.meta])
        self._end([question])

    def _end(self, group: list[Question]) -> None:
        self._ask(self.step, group)
        self._ended(group)
        for each in group:
            each.has_ended = True


class _MemoryLog:
    """What would be in the log when the caller dies."""

    def __init__(self) -> None:
        self.answers: dict[bytes, Any] = {}
        self.groups: dict[bytes, Sequence[bytes]] = {}

    def find(self, question: Question, step: str) -> bool:
        if question.meta not in self.answers:
            return False
        question.answer = self.answers[question.meta]
        return True

    def together(self, step: str, metas: Sequence[bytes]) -> None:
        for meta in metas:
            if meta in self.answers:
                raise DriftBug(f"call {step!r} asks about {meta.hex()} again, whose answer is in the log")
        if len(metas) > 1:
            self.groups.update({meta: list(metas) for meta in metas})

    def asked_together(self, meta: bytes) -> Sequence[bytes]:
        return [each for each in self.groups.get(meta, ()) if each not in self.answers]

    def answered(self, step: str, questions: Sequence[Question]) -> None:
        self.answers.update({each.meta: each.answer for each in questions if type(each.answer) is not Failure})

    def passed(self, step: str, questions: Sequence[Question]) -> None:
        for each in questions:
            if each.meta not in self.answers and type(each.answer) is not Failure:
                raise DriftBug(f"the answer of call {step!r} about {each.meta.hex()} is used before it is logged")


class _BorderInMemory(Unlogged):
    """What of a border's log is on the disk when the caller dies."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[Passed] = []

    def read(self, begin: bytes) -> Iterator[Passed]:
        return iter([each.from_on(begin) for each in self._kept if each.below > begin])

    def write(self, passed: Passed) -> None:
        self._kept.append(passed)
        self.end = passed.below


class _Caller:
    """The calling process between two segments."""

    def __init__(
        self,
        segment: Segment,
        outcome: SimulatedOutput,
        times: Sequence[bytes],
        answers: Answers | None,
        schedule: Any,
        *,
        dies: bool,
    ) -> None:
        self._segment = segment
        self._outcome, self._times = outcome, times
        self._answers = answers
        self._schedule = schedule
        self._deaths_left = _DEATHS_MAX if dies else 0
        self._log = _MemoryLog()
        self._border = _BorderInMemory()
        self._taken: list[tuple[bytes, Any, str]] = []
        self._begin()

    def _begin(self) -> None:
        """A new process, which has what was logged."""
        self._askers: list[_DrawnAsker] = []
        self._again = self._turn = 0
        self._has_all = False
        self._logged = self._border.read(BEGINNING)
        self._handed_out = HandedOut(
            self._outcome, self._times, self._border.end, self._chosen, dies=self._deaths_left > 0
        )
        engine: Any = self._handed_out
        self._before = Before(self._segment, engine, engine, self._border, None)

        def made(*arguments: Any, **more: Any) -> Any:
            self._askers.append(_DrawnAsker(self._ask, *arguments, **more))
            return self._askers[-1]

        name, calls, loop = self._segment.name, self._segment.calls, _NoLoop()
        self._answering = Answering(name, calls, loop, 1_000_000, self._log, made)  # type: ignore[arg-type]

    def run(self) -> list[tuple[bytes, Any, str]]:
        """Meta, payload and border of what goes on."""
        while not self._has_all or not self._answering.is_empty:
            self._turn += 1
            flights = [(asker, at) for asker in self._askers for at in range(len(asker.in_flight))]
            if flights and self._deaths_left and self._chosen(CALLER_DEATH, 2):
                self._die()
                continue
            has_room = not self._has_all and self._answering.has_room
            choice = self._chosen("answered", len(flights) + has_room)
            if has_room and choice == 0:
                try:
                    self._arrive()
                except Died:
                    self._die()
                    continue
            elif flights:
                asker, at = flights[choice - has_room]
                asker.answer(at)
            else:
                raise DriftBug(f"a call behind {self._segment.name!r} waits, and nothing is in flight")
            self._take()
        return self._taken

    def _arrive(self) -> None:
        """What the segment before has goes to be answered, as `BorderFeed` lets it."""
        passed = next(self._logged, None) or self._before.step()
        if passed is not None:
            self._answering.put(passed)
        elif self._handed_out.has_ended:
            self._has_all = True
            self._answering.put(Passed([], [], "", END_OF_TIME))
            self._answering.complete()

    def _die(self) -> None:
        self._deaths_left -= 1
        self._begin()

    def _chosen(self, kind: str, count: int, number: int | None = None) -> int:
        number = self._turn if number is None else number
        key = Key(kind, "", self._segment.borders[0].name, number, self._deaths_left)
        return self._schedule.choose(key, count) if count > 1 else 0

    def _ask(self, step: str, group: Sequence[Question]) -> None:
        assert self._answers is not None
        for each in group:
            each.answer = self._answers(step, each.meta, each.payload)

    def _take(self) -> None:
        passed = self._answering.take()
        if passed is None:
            return
        metas, payloads, borders, below = passed
        for at, meta in enumerate(metas):
            row = meta, payloads[at], borders if isinstance(borders, str) else borders[at]
            if self._again < len(self._taken):
                if row != self._taken[self._again]:
                    raise DriftBug(
                        f"after a death of the caller {row!r:.200} goes on, before {self._taken[self._again]!r:.200}"
                    )
            elif self._taken and meta <= self._taken[-1][0]:
                raise DriftBug(f"{meta.hex()} goes on after {self._taken[-1][0].hex()}")
            else:
                self._taken.append(row)
            self._again += 1
        head = self._answering.head
        if head is not None and not head.has_ended and below > head.meta:
            raise DriftBug(f"the time {below.hex()} is announced before the answer about {head.meta.hex()}")
