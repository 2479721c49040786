"""Iterations: rounds over the output of the round before, or over the same items, with a state between them.

Invariant: all items of a round get the state at its beginning, and the state of the next round is folded from the
output of the round, in order.

Why: a round has three phases. First the state comes to the gate, and each item passes the gate with it. The output of
the body is folded at the end of the round, by a timer that fires after all its items. The new state, or the message
that the rounds are over, comes before all items of the next round; so the gate sends an item round again, or out.

The gate is split into shares by a hash of the items, so that several workers have a part of it; each share gets the
state. With `aggregate=`, output is aggregated by the same shares, and merged in their order: float sums are the same
everywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import msgspec
import xxhash

from drift.flow.accumulators import Aggregate
from drift.flow.ends import EndItem
from drift.flow.sides import Side, appended
from drift.flow.windows import Stepped
from drift.operators import BatchStep, KeyedItems, MapsEach, TakesEach, _ByValue
from drift_graph.canonical import canonical
from drift_graph.later import Later, Moves, at
from drift_graph.meta import END, PHASE_ITEMS, PHASE_ROUND_END, PHASE_STATE

#: Number of shares of the gate.
SHARES = 16


_digest = xxhash.xxh32_intdigest
_packed = msgspec.msgpack.Encoder(order="deterministic").encode


class ShareOf(_ByValue, MapsEach, frozen=True):
    """The share of an item, by its bytes: those of msgpack, or the canonical ones if msgpack has none."""

    def __call__(self, payload: Any) -> int:
        if type(payload) is int:
            return payload % SHARES
        try:
            packed = _packed(payload)
        except (TypeError, ValueError, OverflowError, RecursionError):
            packed = canonical(payload)
        return _digest(packed) % SHARES

    def each(self, payloads: Sequence[Any]) -> list[int]:
        if int in set(map(type, payloads)):
            return list(map(self, payloads))
        try:
            return [_digest(_packed(payload)) % SHARES for payload in payloads]
        except (TypeError, ValueError, OverflowError, RecursionError):
            return list(map(self, payloads))


share_of = ShareOf()


@dataclass(frozen=True, slots=True)
class RoundState:
    """Sent to a share of the gate before the items of a round: the state of the round, or that the rounds are over."""

    share: int
    state: Any
    over: bool


@dataclass(frozen=True, slots=True)
class Forget:
    """The last item has left this share of the gate."""

    share: int


@dataclass(frozen=True, slots=True)
class First:
    """The first item that a share of the gate lets through, with the state; `replay` has none."""

    pair: Any


@dataclass(frozen=True, slots=True)
class Leaves:
    """An item that leaves, since its rounds are over."""

    payload: Any


@dataclass(frozen=True, slots=True)
class Folded:
    """The state after a round, and whether it was the last."""

    state: Any
    over: bool


@dataclass(frozen=True, slots=True)
class Part:
    """The aggregate of one share of a round's items."""

    share: int
    accumulator: Any


BEGUN = First(None)
_to_gate = frozenset({RoundState, Forget})


class GateKey(_ByValue, MapsEach, frozen=True):
    """The share of the gate that an item or a message to the gate goes to."""

    def __call__(self, payload: Any) -> int:
        return payload.share if type(payload) in _to_gate else share_of(payload)

    def each(self, payloads: Sequence[Any]) -> list[int]:
        return share_of.each(payloads) if _to_gate.isdisjoint(map(type, payloads)) else list(map(self, payloads))


gate_key = GateKey()


class Enter(_ByValue, frozen=True):
    """Puts items that enter the loop at its beginning, after all input."""

    phase: int

    @property
    def moves(self) -> Moves:
        return Moves(END, self.phase, 0, 1)

    def __call__(self, payload: Any) -> Later[Any]:
        return self.moves.child(payload)


class Gate(_ByValue, BatchStep, frozen=True):
    """The gate of `iterate`, as a scan: its state is None, or the one of the round and whether the rounds are over.

    Attributes:
        user_function: the fold, which says whose gate it is. The body is in the graph already; here a stream that it
            reaches would come along.
    """

    initial: Any
    user_function: Callable[..., Any]

    def on_batch(self, states: dict[Any, Any], rows: KeyedItems, give: Callable[[Any], None]) -> None:
        for key, payload in zip(rows.keys, rows.payloads):
            current = states.get(key)
            if type(payload) in _to_gate:
                states[key] = payload if type(payload) is RoundState else None
                give(None)
            elif current is None:
                states[key] = RoundState(0, self.initial, False)
                give(First((self.initial, payload)))
            else:
                give(Leaves(payload) if current.over else (current.state, payload))


class IsBegun(_ByValue, MapsEach, frozen=True):
    """For a gate's output: whether it is the first of its share."""

    def __call__(self, output: Any) -> bool:
        return type(output) is First

    def each(self, payloads: Sequence[Any]) -> list[bool]:
        return [type(output) is First for output in payloads]


class Pairs(_ByValue, MapsEach, frozen=True):
    """For a gate's output: the pair (state, item) that goes into the body, if it is such a pair."""

    def __call__(self, output: Any) -> Sequence[Any]:
        if type(output) is tuple:
            return (output,)
        return (output.pair,) if type(output) is First and output.pair is not None else ()

    def each(self, payloads: Sequence[Any]) -> list[Sequence[Any]]:
        return [(output,) if type(output) is tuple else self(output) for output in payloads]


class LeaveLoop(_ByValue, MapsEach, frozen=True):
    """For a gate's output, or folded states: the items that leave the loop, at a time after it."""

    is_in_loop: ClassVar[bool] = True
    phase: int

    def __call__(self, output: Any) -> Sequence[Later[Any]]:
        if type(output) is Leaves:
            return (Later(None, output.payload, self.phase, 0, -1),)
        if type(output) is Folded and output.over:
            return (Later(None, output.state, self.phase, 0, -1),)
        return ()

    def each(self, payloads: Sequence[Any]) -> list[Sequence[Later[Any]]]:
        kinds = set(map(type, payloads))
        return list(map(self, payloads)) if Leaves in kinds or Folded in kinds else [()] * len(payloads)


class Again(_ByValue, frozen=True):
    """Puts the output of the body into the next round, where it comes to the gate."""

    turns_round: ClassVar[bool] = True
    is_in_loop: ClassVar[bool] = True
    moves: ClassVar[Moves] = Moves(None, PHASE_ITEMS, 1, 0)

    def __call__(self, payload: Any) -> Later[Any]:
        return self.moves.child(payload)


class Broadcast(_ByValue, frozen=True):
    """Sends a folded state to every share of the gate, before the next round's items; after the last, a `Forget`."""

    turns_round: ClassVar[bool] = True
    is_in_loop: ClassVar[bool] = True
    forgets: bool

    def __call__(self, folded: Folded) -> list[Later[Any]]:
        states = [RoundState(share, folded.state, folded.over) for share in range(SHARES)]
        children: list[Later[Any]] = [Later(None, each, PHASE_STATE, 1) for each in states]
        if folded.over and self.forgets:
            children += [Later(None, Forget(share), PHASE_ROUND_END, 1) for share in range(SHARES)]
        return children


class Replayed(_ByValue, frozen=True):
    """An item at the gate of `replay`: it is stored, in the order of the first round."""

    initial: Any
    user_function: Callable[..., Any]

    def __call__(self, stored: Side, payload: Any, time: int) -> Stepped:
        if type(payload) is RoundState:
            if payload.over:
                return (), ()
            state = payload.state
            return stored, [(state, each) for each in chain.from_iterable(stored)]
        return appended(stored, payload), () if stored else (at(END, None),)

    def begin(self, stored: Side, note: None, time: int) -> Stepped:
        """All items of the first round have come."""
        state = self.initial
        return stored, [BEGUN, *[(state, each) for each in chain.from_iterable(stored)]]


class ReplayedBegin(_ByValue, frozen=True):
    gate: Replayed

    def __call__(self, stored: Side, note: None, time: int) -> Stepped:
        return self.gate.begin(stored, note, time)


class ShareItem(EndItem, frozen=True):
    """An item of a round in its share, if shares are aggregated first."""

    def outputs(self, notes: Sequence[int], accumulators: Sequence[Any], time: int) -> list[Part]:
        return list(map(Part, notes, accumulators))


class Round(NamedTuple):
    """The state of the fold during a round.

    Attributes:
        number: 1 for the first.
        state: the state at the beginning, with the output folded so far.
        parts: aggregated shares, to be folded.
        is_empty: whether the body has no output so far.
    """

    number: int
    state: Any
    parts: tuple[Part, ...]
    is_empty: bool


class Folding(_ByValue, TakesEach, frozen=True):
    """An output item of the body, in a process over all of them; the state is that of the round."""

    initial: Any
    user_function: Callable[[Any, Any], Any]
    aggregate: Aggregate[Any, Any] | None

    @property
    def initials(self) -> tuple[Any, ...]:
        """What the fold gets in the first round."""
        return (self.initial,)

    def __call__(self, state: Round | None, payload: Any, time: int) -> Stepped:
        timers: tuple[Later[None], ...] = ()
        if state is None:
            state, timers = Round(1, self.initial, (), True), (Later(None, None),)
        if type(payload) is First:
            return state, timers
        if self.aggregate is not None:
            return Round(state.number, state.state, (*state.parts, payload), False), timers
        return Round(state.number, self.user_function(state.state, payload), (), False), timers

    def each(self, states: dict[Any, Any], rows: KeyedItems, give: Callable[[Sequence[Any]], None]) -> None:
        if not states or First in set(map(type, rows.payloads)):
            return  # the first item sets the timer for the end of the first round
        key, before = next(iter(states.items()))
        if self.aggregate is not None:
            states[key] = Round(before.number, before.state, (*before.parts, *rows.payloads), False)
            for _ in rows.payloads:
                give(())
            return
        fold, state = self.user_function, before.state
        try:
            for payload in rows.payloads:
                state = fold(state, payload)
                give(())
        finally:
            states[key] = Round(before.number, state, (), False)

    def ended(self, state: Round) -> Any:
        """The state after the round."""
        if self.aggregate is None or not state.parts:
            return state.state
        parts = [each.accumulator for each in sorted(state.parts, key=lambda part: part.share)]
        merged = functools.reduce(self.aggregate.merge, parts)
        return self.user_function(state.state, self.aggregate.result(merged))


class RoundEnd(_ByValue, frozen=True):
    """Timer: a round is complete; the state is folded, and the next round begins or the rounds are over."""

    folding: Folding
    max_rounds: int
    until: Callable[[Any], object] | None
    continues_empty: bool

    def __call__(self, state: Round, note: None, time: int) -> Stepped:
        folded = self.folding.ended(state)
        over = (
            state.number >= self.max_rounds
            or (state.is_empty and not self.continues_empty)
            or (self.until is not None and bool(self.until(folded)))
        )
        if over:
            return None, (Folded(folded, True),)
        return Round(state.number + 1, folded, (), True), (Folded(folded, False), Later(None, None, rounds=1))
