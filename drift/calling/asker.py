"""Asks: a thread with an event loop, in which coroutines run, and threads for plain functions.

Invariant: at most `concurrency` calls of a step are in flight, and what has been answered is logged before anybody else
sees it: a question `has_ended` once its answer is in the log.

Why: one loop starts all attempts, ends them at their deadlines, and gives what ended in one of its turns to the log,
before it marks the questions. When it is closed, calls in flight are cancelled and their answers dropped.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from queue import SimpleQueue
from typing import Any

from drift.calling.asks import Asks, Call, is_coroutine, key_of, key_together, takes_call
from drift.sources.wake import Wake
from drift_graph.unchanged import InPlace, Returned, Sample, Sampler, changed_argument, changed_later, own

#: The wait before the first retry; each further one is twice as long, up to the most; a random half of it is waited.
_WAIT_S = 0.1
_WAIT_MOST_S = 30.0
#: How long the end of a run waits for cancelled coroutines.
_CLOSE_S = 2.0


class Question:
    """An item on its way past a call; `asked_s` is when it was asked about, on the loop's clock, `time.monotonic`; 0.0
    before.
    """

    __slots__ = ("meta", "payload", "border", "answer", "error", "has_ended", "asked_s")

    def __init__(self, meta: bytes, payload: Any, border: str, *, has_ended: bool = False) -> None:
        self.meta = meta
        self.payload = payload
        self.border = border
        self.answer: Any = payload
        self.error: BaseException | None = None
        self.has_ended = has_ended
        self.asked_s = 0.0


class Loop:
    """The event loop of a run, in a thread of its own that begins with the first call.

    Args:
        make_loop: its clock is that of waits, limits of time, and rates.

    Attributes:
        wake: readable when a question has ended.
        error: that the run must end with: a log could not be written.
    """

    def __init__(self, make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop) -> None:
        self._make_loop = make_loop
        self.wake = Wake()
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._work: SimpleQueue[tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]] | None] = SimpleQueue()
        self._threads = self._idle = 0
        self._returned: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._collects = False
        self.closed = False

    def call(self, function: Callable[[], None]) -> None:
        """Call a function in the loop's thread, soon."""
        if self._loop is None:
            self._loop = self._make_loop()
            self._thread = threading.Thread(target=self._run, name="drift calls", daemon=True)
            self._thread.start()
        self._loop.call_soon_threadsafe(function)

    def _run(self) -> None:
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    @property
    def now(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None
        return self._loop

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task; in the loop's thread."""
        task = self.now.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def notify(self) -> None:
        """A question has ended; in any thread."""
        with self._lock:
            self.wake.set()

    def seen(self) -> None:
        """What has ended is being looked at."""
        with self._lock:
            self.wake.set(False)

    # Plain functions.

    def in_thread(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> asyncio.Future[Any]:
        """The result of a plain function, which a thread of its own calls; in the loop's thread.

        A function that is not awaited any more keeps its thread until it returns.
        """
        future = self.now.create_future()
        if self._idle > 0:
            self._idle -= 1
        else:
            self._threads += 1
            threading.Thread(target=self._call, name=f"drift call {self._threads}", daemon=True).start()
        self._work.put((future, function, arguments))
        return future

    def _call(self) -> None:
        while (work := self._work.get()) is not None:
            future, function, arguments = work
            result, error = None, None
            try:
                result = function(*arguments)
            except BaseException as raised:  # SystemExit too: were it lost here, the run would wait for ever
                error = raised
            self._returned.append((future, result, error))
            del work, future, function, arguments, result, error
            if not self._collects and not self.closed:
                self._collects = True
                self.now.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        self._collects = False
        while self._returned:
            future, result, error = self._returned.popleft()
            self._idle += 1
            if future.done():  # at its deadline
                continue
            if error is None:
                future.set_result(result)
            elif isinstance(error, StopIteration):  # no future takes one
                future.set_exception(RuntimeError(f"it raised StopIteration: {error}"))
            else:
                future.set_exception(error)

    def close(self) -> None:
        """Cancel what is in flight, and end the threads."""
        if self.closed:
            return
        self.closed = True
        for _ in range(self._threads):
            self._work.put(None)
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._cancel)
            self._thread.join(_CLOSE_S)
        with self._lock:
            self.wake.close()

    def _cancel(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        ended = asyncio.gather(*tasks, return_exceptions=True)
        ended.add_done_callback(lambda _: self.now.stop())
        self.now.call_later(_CLOSE_S / 2, self.now.stop)


class _Attempt:
    """An attempt with a deadline; `task` is None once it has ended."""

    __slots__ = ("deadline_s", "task", "expired")

    def __init__(self, deadline_s: float, task: asyncio.Task[Any]) -> None:
        self.deadline_s = deadline_s
        self.task: asyncio.Task[Any] | None = task
        self.expired = False


class Asker:
    """Asks about the items of one call.

    Args:
        graph, step: their names, for keys.
        together: called with the metas of items before they are asked about together.
        ended: called with questions that have ended, before they are marked; turns exceptions into answers.
    """

    def __init__(
        self,
        graph: str,
        step: str,
        asks: Asks,
        loop: Loop,
        *,
        together: Callable[[Sequence[bytes]], None],
        ended: Callable[[Sequence[Question]], None],
    ) -> None:
        self.asks = asks
        self._name = graph, step
        self._loop = loop
        self._together = together
        self._ended = ended
        self._is_coroutine = is_coroutine(asks.function)
        self._returned = Returned()
        self._noting = threading.Lock()
        self._takes_call = takes_call(asks.function)
        self._waiting: deque[Question] = deque()
        self._again: deque[list[Question]] = deque()  # what was asked about together before a death
        self._asked_items = 0
        self._submitted_items = 0
        self._in_flight = 0
        self._may_be_few = False
        self._stopped = False
        self._next_s = 0.0
        self._has_alarm = False
        self._new: list[Question] = []  # ended, and not yet in the log
        self._attempts: deque[_Attempt] = deque()  # those with a deadline, in the order of these
        self._watches = False

    # In the calling thread.

    @property
    def has_enough(self) -> bool:
        """Whether enough items wait for their turn."""
        most = self.asks.concurrency * max(self.asks.batch, 1)
        return self._submitted_items - self._asked_items >= 2 * most

    def submit(self, questions: Sequence[Question]) -> None:
        """Ask about these, as soon as there is room."""
        self._submitted_items += len(questions)
        self._may_be_few = False
        self._waiting.extend(questions)
        self._loop.call(self._go)

    def submit_together(self, questions: list[Question]) -> None:
        """Ask about these together, as before a death."""
        self._submitted_items += len(questions)
        self._again.append(questions)
        self._loop.call(self._go)

    def ask_now(self, question: Question) -> None:
        """Ask here, and wait: for a function that takes no time."""
        key = key_of(*self._name, question.meta) if self._takes_call else ""
        arguments = (question.payload, Call(key, (key,), 1, None)) if self._takes_call else (question.payload,)
        try:
            question.answer = self._called(*arguments)
        except Exception as error:
            question.error = error
        self._ended([question])
        question.has_ended = True

    def complete(self) -> None:
        """Nothing more comes for now: ask about fewer items together than there might be."""
        if self.asks.batch and not self._may_be_few and self._waiting:
            self._may_be_few = True
            self._loop.call(self._go)

    def settle(self) -> bool:
        """Begin no further call; returns whether none is in flight."""
        self._stopped = True
        return not self._in_flight and not self._new

    # Where the function is called.

    def _called(self, *arguments: Any) -> Any:
        """What the function returns.

        Raises:
            InPlace: it has changed what it was handed, or what it had returned before.
        """
        samples = Sampler().sample(self._payloads_of(arguments))
        answer = self.asks.function(*arguments)
        self._check(samples, answer, arguments)
        return answer

    async def _awaited(self, *arguments: Any) -> Any:
        samples = Sampler().sample(self._payloads_of(arguments))
        answer = await self.asks.function(*arguments)
        self._check(samples, answer, arguments)
        return answer

    def _payloads_of(self, arguments: tuple[Any, ...]) -> Sequence[Any]:
        return tuple(arguments[0]) if self.asks.batch else arguments[:1]

    def _check(self, samples: Sequence[Sample], answer: Any, arguments: tuple[Any, ...]) -> None:
        for each in samples:
            if each.is_changed:
                raise InPlace(changed_argument, each.difference)
        answers = answer if self.asks.batch and isinstance(answer, (list, tuple)) else (answer,)
        with self._noting:
            if changed := self._returned.note(answers, arguments[0] if self.asks.batch else arguments):
                raise InPlace(changed_later, changed)

    # In the loop's thread.

    def _go(self) -> None:
        """Begin as many calls as there is room for."""
        asks, most = self.asks, max(self.asks.batch, 1)
        while self._in_flight < asks.concurrency and not self._stopped and self._loop.error is None:
            if not self._again and len(self._waiting) < (1 if self._may_be_few else most):
                return
            if asks.rate_per_s is not None and self._too_early():
                return
            group = self._again.popleft() if self._again else self._taken(most)
            self._asked_items += len(group)
            self._in_flight += 1
            try:
                if asks.batch:
                    self._together([each.meta for each in group])
            except BaseException as error:
                self._fail(error)
                return
            now_s = self._loop.now.time()
            for each in group:
                each.asked_s = now_s
            self._loop.start(self._ask(group))

    def _taken(self, most: int) -> list[Question]:
        waiting = self._waiting
        return [waiting.popleft() for _ in range(min(most, len(waiting)))]

    def _too_early(self) -> bool:
        """Whether the rate allows no call now; then `_go` comes again."""
        if self._has_alarm:
            return True
        wait_s = self._next_s - self._loop.now.time()
        if wait_s <= 0:
            wait_s = self._turn_s()
        if wait_s <= 0:
            return False
        self._has_alarm = True
        self._loop.now.call_later(wait_s, self._alarm)
        return True

    def _alarm(self) -> None:
        self._has_alarm = False
        self._go()

    def _turn_s(self) -> float:
        """How long to wait for the next turn by the rate, which is taken."""
        if self.asks.rate_per_s is None:
            return 0.0
        now_s = self._loop.now.time()
        turn_s = max(self._next_s, now_s)
        self._next_s = turn_s + 1 / self.asks.rate_per_s
        return turn_s - now_s

    async def _ask(self, group: list[Question]) -> None:
        attempt, answers = 0, None
        error: BaseException | None = None
        try:
            keys = tuple(key_of(*self._name, each.meta) for each in group) if self._takes_call else ()
            while attempt <= self.asks.retries:
                attempt += 1
                try:
                    answers = await self._attempt(group, keys, attempt)
                    error = None
                    break
                except BaseException as raised:  # SystemExit too: were it lost here, the run would wait for ever
                    error = raised
                    if self._loop.closed:
                        return
                    if isinstance(raised, asyncio.CancelledError):
                        error = RuntimeError("it was cancelled, and not by the run")
                    if isinstance(raised, InPlace):
                        break
                if attempt <= self.asks.retries:
                    wait_s = min(_WAIT_S * 2 ** (attempt - 1), _WAIT_MOST_S) * (0.5 + random.random() / 2)
                    await asyncio.sleep(wait_s)
                    await asyncio.sleep(self._turn_s())
        except asyncio.CancelledError:
            return  # the run is closed
        finally:
            self._in_flight -= 1
        for at, each in enumerate(group):
            each.error = error
            if answers is not None and error is None:
                each.answer = answers[at]
        if not self._new:
            self._loop.now.call_soon(self._flush)
        self._new += group
        self._go()

    async def _attempt(self, group: list[Question], keys: tuple[str, ...], attempt: int) -> Sequence[Any]:
        """The answers."""
        asks = self.asks
        asked = [each.payload for each in group] if asks.batch else group[0].payload
        deadline = None if asks.timeout_s is None else self._loop.now.time() + asks.timeout_s
        arguments = (asked, Call(key_together(keys), keys, attempt, deadline)) if self._takes_call else (asked,)
        called = self._awaited(*arguments) if self._is_coroutine else self._loop.in_thread(self._called, arguments)
        answer = await called if deadline is None else await self._by(deadline, called, attempt)
        if inspect.iscoroutine(answer):
            answer.close()
            raise TypeError("it gave a coroutine, and is no coroutine function itself; pass an async def")
        if not asks.batch:
            return (answer,)
        answers = list(answer) if isinstance(answer, (list, tuple)) else None
        if answers is None or len(answers) != len(group):
            found = f"{len(answers)} answers" if answers is not None else f"{type(answer).__name__}, no list"
            raise ValueError(f"it was asked about {len(group)} payloads together and gave {found}; return one for each")
        return answers

    async def _by(self, deadline_s: float, called: Awaitable[Any], attempt: int) -> Any:
        """The answer, if it comes by a time.

        All attempts take equally long at most, so one timer suffices, that of the first of them.
        """
        task = asyncio.current_task()
        assert task is not None
        attempts = self._attempts
        while attempts and attempts[0].task is None:
            attempts.popleft()
        this = _Attempt(deadline_s, task)
        attempts.append(this)
        if not self._watches:
            self._watches = True
            self._loop.now.call_at(deadline_s, self._expire)
        try:
            answer = await called
            late_s = self._loop.now.time() - deadline_s
            if self._is_coroutine and late_s > 0:  # nothing could end it before
                raise TimeoutError(
                    f"no answer within {self.asks.timeout_s} s (attempt {attempt}): it came {late_s:.1f} s later, "
                    f"since a coroutine of a call blocked the event loop meanwhile; await what waits, or give a plain "
                    f"function, which has a thread of its own"
                )
            return answer
        except asyncio.CancelledError:
            if not this.expired or self._loop.closed:
                raise
            raise TimeoutError(f"no answer within {self.asks.timeout_s} s (attempt {attempt})") from None
        finally:
            this.task = None
            if this.expired:
                task.uncancel()

    def _expire(self) -> None:
        """End the attempts whose time is over."""
        attempts, now_s = self._attempts, self._loop.now.time()
        while attempts:
            first = attempts[0]
            if first.task is not None and first.deadline_s > now_s:
                self._loop.now.call_at(first.deadline_s, self._expire)
                return
            attempts.popleft()
            if first.task is not None:
                first.expired = True
                first.task.cancel()
        self._watches = False

    def _flush(self) -> None:
        """Log what has ended in this turn of the loop, and let it be used."""
        new, self._new = self._new, []
        with self._noting:
            if changed := self._returned.sweep():
                new[0].error = InPlace(changed_later, changed)
        for each in new:
            if each.error is None:
                each.answer = own(each.answer)
        try:
            self._ended(new)
        except BaseException as error:
            self._fail(error)
            return
        for each in new:
            each.has_ended = True
        self._loop.notify()

    def _fail(self, error: BaseException) -> None:
        self._loop.error = self._loop.error or error
        self._loop.notify()
