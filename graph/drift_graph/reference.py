"""The definition of correct output: one item at a time, in the order of metas, from a heap.

Invariant: items are processed and come out in the order of their metas. A payload without canonical form does not pass
from one grouping to another: see `identifiable`. No function changes what it was handed: see `unchanged`.

Why: the least item of the heap is processed first, everything it causes sorts after it, and everything the sources will
still give sorts at or above their heartbeats. So a bucket is only appended to, and nothing is taken back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Any, Protocol

from drift_graph.canonical import canonical
from drift_graph.failures import EndlessCycle, check_lengths, failed_step, step_error
from drift_graph.functions import pass_interrupts
from drift_graph.graph import Dataflow
from drift_graph.identifiable import checked_operators
from drift_graph.item import Failure
from drift_graph.later import placed_all
from drift_graph.meta import END_OF_TIME, time_of, varint
from drift_graph.operators import Border, Group, Map, Operator, Sink, Source
from drift_graph.unchanged import UNCHECKED, Handed, Noting, Returned, changed_later, gives_users, with_noted

#: In place of a rank: a failed call, and its exception.
_FAILED = -1

#: The answer of a call to a settled item, from the name of its operator, its meta behind it, and its payload.
Answers = Callable[[str, bytes, Any], Any]


class Observer(Protocol):
    """Gets every item when it is made, and returns a mark of its own, which then travels with the item."""

    def made(self, operator: str, meta: bytes, payload: Any, parents: tuple[Any, ...]) -> Any:
        """The mark of a new item; `parents` are the marks of its input or its window, empty for an input item.

        If a call failed, the payload is its `Failure`. An item that reaches a sink is made once more, with itself as
        parent.
        """

    def passed_back(self, mark: Any) -> None:
        """An item passes a feedback edge."""


class Reference:
    """Runs a dataflow in order; `push` input, then `pop` what is certain.

    An item in the heap is (meta, rank of the target operator, number, payload, mark). Output, for a sink or as a
    failure, waits there under its final meta: items that a sibling of lower rank causes come before it.

    Args:
        observer: gets all items; without one there are no marks. With one, functions are not checked for changes in
            place: it looks at a run that was.
        only: names of the operators to run; None for all.
        answers: for graphs with calls.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        observer: Observer | None = None,
        only: Collection[str] | None = None,
        answers: Answers | None = None,
    ) -> None:
        self._answers = answers
        self._observer = observer
        self._ranks = dataflow.ranks
        self._by_rank: dict[int, Operator] = {
            dataflow.ranks[each.name]: each for each in dataflow.operators if not isinstance(each, Source)
        }
        back = {(edge.origin, edge.target) for edge in dataflow.edges if edge.feedback}
        self._targets: dict[str, list[tuple[Operator, int, bool]]] = {
            each.name: [
                (target, dataflow.ranks[target.name], (each.name, target.name) in back)
                for target in dataflow.consumers(each.name)
                if only is None or target.name in only
            ]
            for each in dataflow.operators
        }
        self._heap: list[tuple[bytes, int, int, Any, Any]] = []
        self._pushed = 0
        self._checked = checked_operators(dataflow)
        self._returned: dict[str, Returned] = {}
        self._noting: dict[str, tuple[Map, Noting]] = {}  # of functions of the library that keep what users' make
        for each in dataflow.operators if observer is None else ():
            if isinstance(each, Map):
                called, noting = with_noted(each)
                if noting is not None:
                    self._noting[each.name] = called, noting
        self._buckets: dict[tuple[int, bytes], deque[Any]] = {}
        self._marks: dict[tuple[int, bytes], deque[Any]] = {}

    def push(self, origin: str, meta: bytes, payload: Any, parents: tuple[Any, ...] = ()) -> None:
        """An item leaves `origin`, towards every consumer of it."""
        observer = self._observer
        mark = observer.made(origin, meta, payload, parents) if observer is not None else None
        for operator, rank, feedback in self._targets[origin]:
            if feedback:
                if observer is not None:
                    observer.passed_back(mark)
                try:
                    check_lengths(operator, (meta,))
                except EndlessCycle as error:
                    self._fail(operator.name, meta + varint(rank), failed_step(operator, error, payload), error, mark)
                    continue
            if isinstance(operator, Group) and (check := self._checked.get(origin)) is not None:
                failure = check.failure(payload)
                if failure is not None:
                    self._fail(origin, meta + varint(rank), failure, None, mark)
                    continue
            ends = isinstance(operator, Sink) and not isinstance(operator, Border)
            self._add(meta + varint(rank) if ends else meta, rank, payload, mark)

    def push_to(self, target: str, meta: bytes, payload: Any, mark: Any) -> None:
        """An item arrives at one operator, from one that is not run here."""
        self._add(meta, self._ranks[target], payload, mark)

    def pop(self, below: bytes) -> Iterator[tuple[str, bytes, Any]]:
        """Process everything below a bound on metas; yields (sink, meta, payload) in order of meta.

        Raises:
            StepError: a user's function raises; items already yielded stand. If it changed what it was handed in
                place, an `ImpureStep`.
        """
        for sink, meta, payload, _ in self._steps(below):
            if sink is None:
                failure, error = payload
                raise step_error(failure, meta) from error
            yield sink, meta, payload

    def marks(self, below: bytes) -> Iterator[Any]:
        """As `pop`, but yields the marks of items at sinks and of failures; items after a failure do not count."""
        for *_, mark in self._steps(below):
            yield mark

    def _add(self, meta: bytes, rank: int, payload: Any, mark: Any) -> None:
        self._pushed += 1  # payloads are never compared: metas of one operator differ, and so do these numbers
        heappush(self._heap, (meta, rank, self._pushed, payload, mark))

    def _fail(self, operator: str, meta: bytes, failure: Failure, error: BaseException | None, parent: Any) -> None:
        if self._observer is not None:
            parent = self._observer.made(operator, meta, failure, (parent,))
        self._add(meta, _FAILED, (failure, error), parent)

    def _steps(self, below: bytes) -> Iterator[tuple[str | None, bytes, Any, Any]]:
        """Sink, meta, payload and mark of output; a failure has no sink, and its payload is the failed call."""
        heap, observer = self._heap, self._observer
        while heap and heap[0][0] < below:
            meta, rank, _, payload, mark = heappop(heap)
            if rank == _FAILED:
                yield None, meta, payload, mark
                continue
            operator = self._by_rank[rank]
            if isinstance(operator, Sink):
                if observer is not None:
                    mark = observer.made(operator.name, meta, payload, (mark,))
                yield operator.name, meta, payload, mark
                continue
            incoming, meta = meta, meta + varint(rank)
            try:
                if isinstance(operator, Map) and operator.asks and self._answers is not None:
                    child = meta + varint(0)
                    answer = self._answers(operator.name, child, payload)
                    if type(answer) is Failure:
                        self._fail(operator.name, meta, answer, None, mark)
                    else:
                        self.push(operator.name, child, answer, (mark,))
                elif isinstance(operator, Map):
                    handed = self._handed(operator.function, payload)
                    called, noting = self._noting.get(operator.name, (operator, None))
                    family = called.children(payload, time_of(incoming), partial(self._note_child, operator, handed))
                    handed.check_unchanged(operator)
                    self._note(operator, family, handed)
                    if noting is not None and (changed := noting.check([])):
                        raise changed_later(operator, changed)
                    for made in placed_all(incoming, varint(rank), family, below == END_OF_TIME):
                        self.push(operator.name, *made, (mark,))
                elif isinstance(operator, Group):
                    self.push(operator.name, meta, *self._window(operator, rank, payload, mark))
            except BaseException as error:
                pass_interrupts(error)
                self._fail(operator.name, meta, failed_step(operator, error, payload), error, mark)

    def _note_child(self, operator: Map, handed: Handed, child: Any) -> None:
        self._note(operator, (child,), handed)

    def _note(self, operator: Map, family: Sequence[Any], handed: Handed) -> None:
        """Note what a user's function has returned. Raises ImpureStep: it has changed what it returned before."""
        if self._observer is None and operator.arity != "keep" and gives_users(operator.function):
            returned = self._returned.setdefault(operator.name, Returned())
            if changed := returned.note(family, handed.values):
                raise changed_later(operator, changed)

    def _handed(self, function: Callable[..., Any], argument: Any) -> Handed:
        return Handed(function, argument) if self._observer is None else UNCHECKED

    def _window(self, operator: Group, rank: int, payload: Any, mark: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The window that ends with an item, and the marks of its items."""
        handed = self._handed(operator.key, payload)
        key = operator.key(payload)
        handed.check_unchanged(operator)
        if self._observer is None:
            returned = self._returned.setdefault(operator.name, Returned())
            if changed := returned.note((key,), handed.values):
                raise changed_later(operator, changed)
        bucket_key = rank, canonical(key)
        bucket = self._buckets.get(bucket_key)
        if bucket is None:
            bucket = self._buckets[bucket_key] = deque(maxlen=operator.window)
            self._marks[bucket_key] = deque(maxlen=operator.window)
        bucket.append(payload)
        if self._observer is None:
            return tuple(bucket), ()
        self._marks[bucket_key].append(mark)
        return tuple(bucket), tuple(self._marks[bucket_key])
