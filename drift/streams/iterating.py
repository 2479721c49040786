"""Iterations: rounds of a body, with a state between them.

Invariant: a loop's rounds come after all timers of its body; its phase is known once the body is written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from drift.flow.accumulators import Aggregate, check_aggregate
from drift.flow.choosing import all_items
from drift.flow.opened import Ended
from drift.flow.rounds import (
    Again,
    Broadcast,
    Enter,
    Folding,
    Gate,
    IsBegun,
    LeaveLoop,
    Pairs,
    Replayed,
    ReplayedBegin,
    RoundEnd,
    ShareItem,
    gate_key,
    share_of,
)
from drift.flow.windows import EMPTY
from drift.operators import Process
from drift.streams.adding import Steps
from drift_graph.called import called
from drift_graph.errors import GraphError
from drift_graph.functions import caller, name_of
from drift_graph.meta import PHASE_ROUND_END, PHASE_TIMERS, PHASE_TIMERS_MAX, phase_of_loop, phase_of_timers

if TYPE_CHECKING:
    from drift.streams.stream import Stream

T = TypeVar("T")
S = TypeVar("S")
V = TypeVar("V")


@dataclasses.dataclass
class _Loop:
    """The arguments of a loop, and what is known of it.

    Attributes:
        broadcast: the feedback edge that brings the state of the next round to the gate.
        timed_steps: number of steps with timers in front of its end, once its body is written.
    """

    step: str
    where: str
    broadcast: str
    max_rounds: int
    initial: Any
    body: Callable[[Stream[Any]], Stream[Any]]
    fold: Callable[[Any, Any], Any]
    until: Callable[[Any], object] | None
    aggregate: Aggregate[Any, Any] | None
    timed_steps: int = 0


@called
class Iterating(Steps[T]):
    """The methods of a stream for iterations."""

    def iterate(
        self,
        max_rounds: int,
        state: S,
        body: Callable[[Stream[tuple[S, T]]], Stream[T]],
        fold: Callable[[S, Any], S],
        until: Callable[[S], object] | None = None,
        *,
        aggregate: Aggregate[T, Any] | None = None,
        name: str | None = None,
    ) -> tuple[Stream[S], Stream[T]]:
        """Iterate `body`, each round on the output of the one before, after all input has ended.

        There is a state: all items of a round get the state at its beginning, and `fold` computes the next one from it
        and all that the body returned. There is at least one round; the last is the one that returns nothing, or after
        which `until` is true. Without input there is no output.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> halves = lambda pairs: pairs.flat_map(lambda pair: [pair[1] // 2] if pair[1] > 1 else [])
        >>> state, items = graph.source("numbers").iterate(9, 0, halves, fold=lambda count, item: count + 1)
        >>> state.sink("halvings")
        >>> [item.payload for item in drift.run(graph, {"numbers": [8, 5]})]
        [5]

        Args:
            max_rounds: 1 or more.
            state: of the first round. It must not be changed in place.
            body: from the stream of a round's pairs (state, item) to the stream of the items of the next round. It may
                have any steps, also loops. Aggregates at the end, and open windows, are due at the end of each round;
                scans continue over the rounds. Join a stream from outside (a side input) by `join_table` if it must be
                complete before the rounds begin.
            fold: pure; (state, item that the body returned) -> state, called with each in order.
            until: pure; from the state after a round, whether it was the last.
            aggregate: the output of the body in a round is aggregated first, in shares, and `fold` is called once, with
                (state, value), if there was any.

        Returns:
            A stream of the last state, and one of the output of the last round.
        """
        loop = self._loop("iterate", max_rounds, state, body, fold, until, aggregate, name)
        draft, step = self._graph._draft, loop.step
        returning = draft.open_loop(f"{step}.again", loop.where)
        before = self._entering(loop, returning)
        gate = before._scan(gate_key, None, Gate(state, fold), f"{step}.gate", fold)
        output, folded = self._turned(loop, gate, 0, continues_empty=False)
        draft.close_loop(returning, output._part(step, "again", Again(), "one", later=True)._origins)
        return self._left(loop, folded, "state"), self._left(loop, gate, "items")

    def replay(
        self,
        max_rounds: int,
        state: S,
        body: Callable[[Stream[tuple[S, T]]], Stream[V]],
        fold: Callable[[S, Any], S],
        until: Callable[[S], object] | None = None,
        *,
        aggregate: Aggregate[V, Any] | None = None,
        name: str | None = None,
    ) -> Stream[S]:
        """As `iterate`, but each round gets the original input. Returns the stream of the last state.

        A round that returns nothing is not the last.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> distances = lambda pairs: pairs.map(lambda pair: (pair[1] - pair[0]) / 4)
        >>> graph.source("numbers").replay(9, 0.0, distances, fold=lambda mean, step: mean + step).sink("mean")
        >>> [item.payload for item in drift.run(graph, {"numbers": [1, 3]})]
        [1.99609375]
        """
        loop = self._loop("replay", max_rounds, state, body, fold, until, aggregate, name)
        replayed = Replayed(state, fold)
        process = Process(gate_key, (), replayed, ReplayedBegin(replayed), PHASE_TIMERS)
        gate = self._entering(loop)._process(process, f"{loop.step}.gate")
        _, folded = self._turned(loop, gate, 1, continues_empty=True)
        return self._left(loop, folded, "state")

    def _loop(
        self,
        kind: str,
        max_rounds: int,
        initial: Any,
        body: Callable[..., Any],
        fold: Callable[..., Any],
        until: Callable[..., Any] | None,
        aggregate: Aggregate[Any, Any] | None,
        name: str | None,
    ) -> _Loop:
        where, step = caller(), self._name(name, kind, body)
        if type(max_rounds) is not int or max_rounds < 1:
            raise GraphError(f"{kind} takes max_rounds= an int of 1 or more, not {max_rounds!r:.80} (at {where})")
        for what, function in (("fold", fold), ("until", until)):
            if not callable(function) and not (function is None and what == "until"):
                raise GraphError(f"{kind} takes {what}= a function, not {function!r:.80} (at {where})")
        if aggregate is not None:
            check_aggregate(aggregate, "aggregate=")
            aggregate = aggregate.mergeable
        self._graph._draft.reserve(step)
        broadcast = self._graph._draft.open_loop(f"{step}.broadcast", where)
        return _Loop(step, where, broadcast, max_rounds, initial, body, fold, until, aggregate)

    def _entering(self, loop: _Loop, *more: str) -> Stream[Any]:
        """The input and the returning items, in front of the gate."""
        entering = self._part(loop.step, "enter", Enter(0), "one", later=True)  # the phase depends on the body
        return self._behind((*entering._origins, *more, loop.broadcast), 0, self._depth + 1)

    def _turned(
        self, loop: _Loop, gate: Stream[Any], timed_steps: int, *, continues_empty: bool
    ) -> tuple[Stream[Any], Stream[Any]]:
        """The output of the body, and the states after each round."""
        graph, draft, step = self._graph, self._graph._draft, loop.step
        begun = gate._part(step, "begun", IsBegun(), "keep")
        inside = gate._part(step, "round", Pairs(), "many")
        graph._loops.append(self._timed_steps)
        try:
            output = loop.body(inside._behind(inside._origins, timed_steps))
            self._check_graph(output)
            output._check_depth(self._depth + 1)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise  # it comes from within the body
            raise GraphError(
                f"step {step!r} (at {loop.where}) has body={name_of(loop.body)}, which cannot be called with a stream: "
                f"{error}"
            ) from error
        finally:
            loop.timed_steps = graph._loops.pop()
        phase = phase_of_loop(loop.timed_steps)
        if phase + 1 > PHASE_TIMERS_MAX:
            raise GraphError(
                f"step {step!r} (at {loop.where}) is behind {loop.timed_steps} steps with timers or loops; 124 is the "
                f"most"
            )
        draft.replace_function(f"{step}.enter", Enter(phase))
        folding = Folding(loop.initial, loop.fold, loop.aggregate)
        deltas = output
        if loop.aggregate is not None:
            item = ShareItem(share_of, loop.aggregate)
            process = Process(share_of, EMPTY, item, Ended(item), phase_of_timers(output._timed_steps))
            deltas = output._process(process, f"{step}.shares")
        process = Process(
            all_items,
            None,
            folding,
            RoundEnd(folding, loop.max_rounds, loop.until, continues_empty),
            PHASE_ROUND_END,
        )
        folded = begun.merge(deltas)._process(process, f"{step}.fold")
        broadcast = folded._part(step, "broadcast", Broadcast(not continues_empty), "many", later=True)
        draft.close_loop(loop.broadcast, broadcast._origins)
        return output, folded

    def _left(self, loop: _Loop, output: Stream[Any], what: str) -> Stream[Any]:
        leave = LeaveLoop(phase_of_loop(loop.timed_steps) + 1)
        leaving = output._part(loop.step, what, leave, "many", optional=True, later=True)
        return self._behind(leaving._origins, loop.timed_steps + 2)
