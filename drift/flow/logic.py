"""Operators that users write: a logic for each key, which takes rows in batches.

Invariant: a call either stores the states of its keys and gives outputs for each of its rows, or raises and changes
nothing.

Why: a logic gets a dict of its own, with the states of the keys of its rows. They are stored when it has given outputs
for all of them; with timers row by row, since timers may fire between two rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from drift.operators import KeyedItems, Process, Timer, _ByValue
from drift_graph.canonical import identity
from drift_graph.functions import brief, same_function
from drift_graph.later import Later
from drift_graph.meta import PHASE_TIMERS
from drift_graph.metas import Metas
from drift_graph.unchanged import Noting

T = TypeVar("T")
S = TypeVar("S")
U = TypeVar("U")
Row = TypeVar("Row", covariant=True)

#: Takes the outputs of a row, a list or a tuple; some may be timers, `drift.at(time, note)`.
Out = Callable[[Sequence["U | Later[Any]"]], None]

_SEQUENCES = {list, tuple}


class Rows(Protocol[Row]):
    """Rows of a batch, or timers that are due. Iterating gives (key, payload, time) of each, in the order of metas.

    The key is for looking up states, the same on every engine: what `Logic.key` gave, if that is text, an int, None or
    a tuple of these; else its canonical bytes. In place of the payload a timer has its note.
    """

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[tuple[Any, Row, int]]: ...


class Logic(Generic[T, S, U]):
    """An operator with a state for each key, for `Stream.step`: it takes payloads T, keeps states S and outputs U.

    Its contract: **for a key, states and outputs do not depend on how the key's rows are cut into batches**, nor on the
    rows of other keys. Engines call it with all rows of a batch, with one, and again with rows that it has had, where
    an item comes below them. `drift.testing.deterministic` checks the contract by experiment. What holds for all
    functions of a graph holds here: pure, and states are values, which are replaced and never changed in place.

    Two logics of one class with equal attributes are equal.

    >>> import drift
    >>> class Changes(drift.Logic[str, str, str]):
    ...     initial = ""
    ...     def key(self, payload):
    ...         return payload[0]
    ...     def on_batch(self, states, rows, out):
    ...         for key, payload, time in rows:
    ...             out([payload] if payload != states[key] else [])
    ...             states[key] = payload
    >>> graph = drift.Graph("example")
    >>> graph.source("words").step(Changes()).sink("changes")
    >>> [item.payload for item in drift.run(graph, {"words": ["ax", "b", "ax", "ay"]})]
    ['ax', 'b', 'ay']

    Attributes:
        initial: the state of a key without one. It must not be changed in place.
        label: names the step, if it is given no name; by default the class does.
    """

    initial: S
    label: str = ""

    def key(self, payload: T) -> Any:
        """The key of an item: pure; anything with canonical bytes."""
        raise NotImplementedError

    def on_batch(self, states: dict[Any, S], rows: Rows[T], out: Out[U]) -> None:
        """Process rows: store the next state of each row's key, and call `out` once for each row, in order.

        Args:
            states: by key, of the keys of these rows and no others. One that is deleted from it is in the initial state
                again.
            rows: (key, payload, time) of each. A logic with `on_timers` calls `out` for a row before it takes the next:
                timers may fire between them. Others may read all rows first.
            out: takes the outputs of a row, a list or a tuple; `drift.at(time, note)` among them sets a timer of the
                row's key, if the logic has `on_timers`.
        """
        raise NotImplementedError

    def on_timers(self, states: dict[Any, S], due: Rows[Any], out: Out[U]) -> None:
        """Process timers that are due, (key, note, time) each; they may set others.

        Those of one call are due at one time, and each is of another key. A logic without this method sets no timers.
        """
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        left, right = vars(self), vars(other)
        return left.keys() == right.keys() and all(same_function(left[name], right[name]) for name in left)

    def __hash__(self) -> int:
        return hash(type(self).__qualname__)


def is_timed(logic: Logic[Any, Any, Any]) -> bool:
    """Whether a logic may set timers."""
    return type(logic).on_timers is not Logic.on_timers


def process_of(logic: Logic[Any, Any, Any], phase: int = PHASE_TIMERS) -> Process:
    """A logic as a process: its functions take rows one by one, and in batches."""
    return Process(logic.key, logic.initial, OnRows(logic), OnTimers(logic), phase)


class BrokenLogic(TypeError):
    """A logic did not call `out` as it is to."""


class _OfLogic(_ByValue, frozen=True, dict=True):
    hands_state: ClassVar[bool] = True

    logic: Logic[Any, Any, Any]

    def __call__(self, state: Any, payload: Any, time: int) -> tuple[Any, Sequence[Any]]:
        key, subject = self.of_key(payload)
        states, outputs = {key: state}, list[Sequence[Any]]()
        self.on_batch(states, KeyedItems((key,), (subject,), Metas(), iter(((key, subject, time),))), outputs.append)
        return states.get(key, self.logic.initial), outputs[0]

    def of_key(self, payload: Any) -> tuple[Any, Any]:
        """The identity of the key, as keyed stages have it, and what the logic gets as payload."""
        raise NotImplementedError

    def on_batch(self, states: dict[Any, Any], rows: KeyedItems, give: Callable[[Any], None]) -> None:
        raise NotImplementedError

    def _at_once(
        self, call: Callable[..., None], states: dict[Any, Any], rows: KeyedItems, give: Callable[[Any], None]
    ) -> None:
        """Call a method of the logic with all rows."""
        each = list(rows)
        keys = dict.fromkeys(rows.keys)
        own = dict(zip(keys, map(states.get, keys, repeat(self.logic.initial))))
        outputs: list[Sequence[Any]] = []
        sets = Later.made
        call(own, each, self._into(outputs))
        self._check(outputs, len(each), may_set=Later.made == sets or is_timed(self.logic))
        self._store(own, keys, states)
        for own_outputs in outputs:
            give(own_outputs)

    def noted(self, noting: Noting) -> Self:
        """This logic, whose outputs are noted when they are given."""
        logic = type(self)(self.logic)
        logic.__dict__["noting"] = noting
        return logic

    def _into(self, outputs: list[Sequence[Any]]) -> Callable[[Any], None]:
        noting: Noting | None = self.__dict__.get("noting")
        return outputs.append if noting is None else noting.noting(outputs.append)

    def _store(self, own: dict[Any, Any], keys: dict[Any, None], states: dict[Any, Any]) -> None:
        """Take over the states that the logic has left."""
        if not own.keys() <= keys.keys():
            raise BrokenLogic(f"{self._name} stored a state under a key that none of its rows has")
        states.update(own)
        if len(own) < len(keys):
            for key in keys.keys() - own.keys():
                states.pop(key, None)

    def _check(self, outputs: Sequence[Any], rows: int, *, may_set: bool = True) -> None:
        if len(outputs) != rows:
            raise BrokenLogic(
                f"{self._name} called out {len(outputs)} times for {rows} rows; call it once for each, with its "
                f"outputs: out([]) where there are none"
            )
        if not set(map(type, outputs)) <= _SEQUENCES:
            odd = next(each for each in outputs if type(each) not in _SEQUENCES)
            raise BrokenLogic(f"{self._name} called out with {brief(odd)}; give it a list or a tuple of outputs")
        if not may_set and any(type(each) is Later for every in outputs for each in every):
            raise BrokenLogic(f"{self._name} set a timer, and has no on_timers")

    @property
    def _name(self) -> str:
        return type(self.logic).__name__


class OnRows(_OfLogic, frozen=True):
    """The rows of a logic."""

    @property
    def user_function(self) -> Callable[..., Any]:
        return self.logic.on_batch

    def of_key(self, payload: Any) -> tuple[Any, Any]:
        return identity(self.logic.key(payload)), payload

    def on_batch(self, states: dict[Any, Any], rows: KeyedItems, give: Callable[[Any], None]) -> None:
        if not is_timed(self.logic):
            self._at_once(self.logic.on_batch, states, rows, give)
            return
        own: dict[Any, Any] = {}
        outputs: list[Sequence[Any]] = []
        each = _OneByOne(self._each(states, rows, own, outputs, give), len(rows))
        self.logic.on_batch(own, each, self._into(outputs))
        if next(iter(each), None) is not None:
            raise BrokenLogic(f"{self._name} returned before it had taken all rows")

    def _each(
        self,
        states: dict[Any, Any],
        rows: KeyedItems,
        own: dict[Any, Any],
        outputs: list[Sequence[Any]],
        give: Callable[[Any], None],
    ) -> Iterator[tuple[Any, Any, int]]:
        """The rows; what the logic made of a row is given when it asks for the next."""
        find, initial = states.get, self.logic.initial
        for row in rows:
            key = row[0]
            own.clear()
            own[key] = find(key, initial)
            yield row
            if len(outputs) != 1 or type(outputs[0]) not in _SEQUENCES:
                self._check(outputs, 1)
            if len(own) == 1 and key in own:
                states[key] = own[key]
            else:
                self._store(own, {key: None}, states)
            give(outputs.pop())


class _OneByOne:
    """Rows that can be taken once."""

    def __init__(self, each: Iterator[tuple[Any, Any, int]], count: int) -> None:
        self._each = each
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[Any, Any, int]]:
        return self._each


class OnTimers(_OfLogic, frozen=True):
    """The timers of a logic that are due."""

    takes_timers: ClassVar[bool] = True

    @property
    def user_function(self) -> Callable[..., Any]:
        return self.logic.on_timers

    def of_key(self, payload: Timer) -> tuple[Any, Any]:
        return identity(payload.key), payload.note

    def on_batch(self, states: dict[Any, Any], rows: KeyedItems, give: Callable[[Any], None]) -> None:
        self._at_once(self.logic.on_timers, states, rows, give)
