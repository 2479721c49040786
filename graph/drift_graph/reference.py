"""The meaning of correct: one item at a time, in the order of metas, from a heap.

Invariant: items are processed in the order of their metas, and what comes out is in that order. What nobody could tell
from others does not come to a grouping behind another one: see `identifiable`.

Why: the least item of the heap is processed first, everything it causes sorts after it, and everything the sources
still hold sorts at or above their heartbeats. So a bucket is only ever appended to, and nothing is taken back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any

from drift_graph.canonical import canonical
from drift_graph.failures import META_BYTES_MAX, endless_cycle, failed_step, step_error
from drift_graph.functions import pass_interrupts
from drift_graph.graph import Dataflow
from drift_graph.identifiable import looked_at
from drift_graph.later import placed_all
from drift_graph.meta import END_OF_TIME, time_of, varint
from drift_graph.operators import Group, Map, Operator, Sink

#: In place of a rank: a failed call, and its exception.
_FAILED = -1


class Reference:
    """Runs a dataflow in order; `push` input, then `pop` what is certain.

    An item in the heap is (meta, rank of the operator it goes to, payload). What leaves, for a sink or as a failure,
    waits there under its last meta: what a sibling of lower rank causes comes before it.
    """

    def __init__(self, dataflow: Dataflow) -> None:
        self._dataflow = dataflow
        self._by_rank: dict[int, Operator] = {rank: dataflow[name] for name, rank in dataflow.ranks.items()}
        self._heap: list[tuple[bytes, int, int, Any]] = []
        self._pushed = 0
        self._looked_at = looked_at(dataflow)
        self._buckets: dict[tuple[int, bytes], deque[Any]] = {}

    def push(self, origin: str, meta: bytes, payload: Any) -> None:
        """An item leaves `origin`, towards every consumer of it."""
        for operator in self._dataflow.consumers(origin):
            self._pushed += 1  # payloads are never compared: metas of one operator differ, and so do these numbers
            rank = self._dataflow.ranks[operator.name]
            at = meta + varint(rank) if isinstance(operator, Sink) else meta
            if isinstance(operator, Group) and (look := self._looked_at.get(origin)) is not None:
                failure = look.failure(payload)
                if failure is not None:
                    heappush(self._heap, (meta + varint(rank), _FAILED, self._pushed, (failure, None)))
                    continue
            heappush(self._heap, (at, rank, self._pushed, payload))

    def pop(self, below: bytes) -> Iterator[tuple[str, bytes, Any]]:
        """Process everything below a bound on metas; yields (sink, meta, payload) in order of meta.

        Raises:
            StepError: where a user's function raises; what was yielded before it stands.
        """
        heap = self._heap
        while heap and heap[0][0] < below:
            meta, rank, _, payload = heappop(heap)
            if rank == _FAILED:
                failure, error = payload
                raise step_error(failure, meta) from error
            operator = self._by_rank[rank]
            if isinstance(operator, Sink):
                yield operator.name, meta, payload
                continue
            came_with, meta = meta, meta + varint(rank)
            try:
                if isinstance(operator, Map):
                    family = operator.children(payload, time_of(came_with))
                    for made in placed_all(came_with, varint(rank), family, below == END_OF_TIME):
                        self.push(operator.name, *made)
                elif isinstance(operator, Group):
                    if len(came_with) > META_BYTES_MAX:
                        raise endless_cycle(operator)
                    self.push(operator.name, meta, self._window(operator, rank, payload))
            except BaseException as error:
                pass_interrupts(error)
                self._pushed += 1
                heappush(heap, (meta, _FAILED, self._pushed, (failed_step(operator, error, payload), error)))

    def _window(self, operator: Group, rank: int, payload: Any) -> tuple[Any, ...]:
        place = rank, canonical(operator.key(payload))
        bucket = self._buckets.get(place)
        if bucket is None:
            bucket = self._buckets[place] = deque(maxlen=operator.window)
        bucket.append(payload)
        return tuple(bucket)
