"""The operators of the core: source, map, group, sink. There is no other, and no operator keeps state of its own.

Invariant: a map's output depends on one payload, a group's on the payloads of one bucket. So every stateful computation
is a cycle through a group, and all state is in buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from drift_graph.functions import field_of, line_of, name_of, same_function, user_function
from drift_graph.later import Later, Undeclared
from drift_graph.meta import BEGINNING, END_OF_TIME
from drift_graph.payloads import AsRows
from drift_graph.policies import TimePolicy

Arity = Literal["many", "one", "keep"]
Gives = Literal["input", "item", "window", "output"]


@dataclass(frozen=True)
class Operator:
    """One operator.

    Attributes:
        name: unique in the graph.
        step: the user's step it belongs to; a step of the catalogue may consist of several operators.
        where: "file:line" that declared it; graphs declared in different places may be equal.
        durable: whether a run with state logs its output, so that it can restart after it; no output depends on it.
        is_named: whether the user gave the step its name; others are numbered in the order of their declaration.
    """

    name: str
    step: str = field(compare=False)
    where: str = field(compare=False)
    durable: bool = field(default=False, compare=False, kw_only=True)
    is_named: bool = field(default=True, compare=False, kw_only=True)

    #: What its output payloads are called, in messages.
    gives: ClassVar[Gives] = "item"

    @property
    def kind(self) -> str:
        """ "source", "map", "group" or "sink"."""
        return type(self).__name__.lower()

    @property
    def label(self) -> str:
        """A short description: `map one len`, `group window 2 by <lambda>`."""
        return self.kind

    @property
    def parameters(self) -> dict[str, Any]:
        """The operator's arguments except functions; part of a graph's fingerprint."""
        return {}

    @property
    def puts_later(self) -> bool:
        """Whether it puts items at later times."""
        return False

    @property
    def asks(self) -> bool:
        """Whether its output is not computed but asked for, once settled items have come to it; see `segments`."""
        return False

    @property
    def rounds_from(self) -> bytes:
        """Items below this that are outside of all rounds are not put into a round."""
        return END_OF_TIME

    @property
    def turns_round(self) -> bool:
        """Whether its output is always in a later round of a loop than its input."""
        return False

    @property
    def functions(self) -> dict[str, Callable[..., Any]]:
        """The operator's functions by role, as they are called, wrapped or not."""
        return {}

    @property
    def _called(self) -> str:
        function = function_of(self)
        return name_of(function) if function is not None else ""


@dataclass(frozen=True)
class Source(Operator):
    """An input. `time` is the policy a run uses unless it gets another for this source.

    `diverting`: whether lines that cannot be read and items without a time are diverted (`drift_graph.diverted`).
    `late_apart`: whether late items are. `rows`: of a source with a schema, checks payloads against it.
    """

    time: TimePolicy
    diverting: bool = False
    late_apart: bool = False
    rows: AsRows | None = field(default=None, compare=False, kw_only=True)
    gives: ClassVar[Gives] = "input"

    @property
    def label(self) -> str:
        return f"source, {self.time.label}"


@dataclass(frozen=True, eq=False)
class Map(Operator):
    """A pure function from one payload to a sequence of payloads.

    `arity` says what `function` returns: "many" the sequence, "one" its only member, "keep" whether the payload itself
    is the only member or there is none. With `later`, members may be `Later`. With `timed`, the function gets the
    item's time too.
    """

    function: Callable[..., Any]
    arity: Arity = "many"
    later: bool = False
    timed: bool = False

    @property
    def label(self) -> str:
        if self.asks:
            return f"call {self._called}"
        return f"map {self.arity} {self._called}{' into the future' if self.later else ''}"

    @property
    def parameters(self) -> dict[str, Any]:
        traits = {"later": self.later, "timed": self.timed, "asks": self.asks}
        return {"arity": self.arity} | {name: True for name, has in traits.items() if has}

    @property
    def functions(self) -> dict[str, Callable[..., Any]]:
        return {"function": self.function}

    def children(self, payload: Any, time: int, note: Callable[[Any], None] | None = None) -> Sequence[Any]:
        """The meaning of the map, for one payload and its time.

        Args:
            note: called with each child that the function yields, before it goes on.
        """
        result = self.function(payload, time) if self.timed else self.function(payload)
        if self.arity == "keep":
            return (payload,) if result else ()
        family = (result,) if self.arity == "one" else as_noted(result, note)
        if not self.later and any(type(child) is Later for child in family):
            raise Undeclared
        return family

    @property
    def puts_later(self) -> bool:
        return self.later

    @property
    def asks(self) -> bool:
        return bool(field_of(self.function, "asks"))

    @property
    def turns_round(self) -> bool:
        return bool(field_of(self.function, "turns_round"))

    @property
    def rounds_from(self) -> bytes:
        if not self.later or field_of(self.function, "is_in_loop", False):
            return END_OF_TIME
        moves = field_of(self.function, "moves")
        return moves.rounds_from if moves is not None else BEGINNING

    @property
    def _traits(self) -> tuple[object, ...]:
        return self.name, self.arity, self.later, self.timed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Map) and self._traits == other._traits and same_function(self.function, other.function)

    def __hash__(self) -> int:
        return hash(self._traits)


@dataclass(frozen=True, eq=False)
class Group(Operator):
    """Windowed grouping: each item gives the tuple of the last `window` payloads of its bucket, which ends with the
    item.
    """

    key: Callable[[Any], Any]
    window: int
    gives: ClassVar[Gives] = "window"

    @property
    def label(self) -> str:
        return f"group window {self.window} by {self._called}"

    @property
    def parameters(self) -> dict[str, Any]:
        return {"window": self.window}

    @property
    def functions(self) -> dict[str, Callable[..., Any]]:
        return {"key": self.key}

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Group)
            and (self.name, self.window) == (other.name, other.window)
            and same_function(self.key, other.key)
        )

    def __hash__(self) -> int:
        return hash((self.name, self.window))


@dataclass(frozen=True)
class Sink(Operator):
    """An output: a name at the output barrier."""

    gives: ClassVar[Gives] = "output"


@dataclass(frozen=True)
class Border(Sink):
    """Where items of `step` leave a segment for later ones; they keep their metas (`drift_graph.segments`)."""


@dataclass(frozen=True)
class Edge:
    """Items of `origin` go to `target`; a feedback edge returns them to an earlier operator."""

    origin: str
    target: str
    feedback: bool = False


def function_of(operator: Operator) -> Callable[..., Any] | None:
    """The user's function in an operator, if it has one."""
    function = next(iter(operator.functions.values()), None)
    return user_function(function) if function is not None else None


def location_of(operator: Operator) -> str:
    """ "file:line" of the user's function, or else of the declaration."""
    function = function_of(operator)
    return (line_of(function) if function is not None else None) or operator.where


def as_noted(children: Any, note: Callable[[Any], None] | None) -> Sequence[Any]:
    """What a function has returned as a sequence; each child that it yields is noted before it goes on."""
    if note is None or not isinstance(children, Iterator):
        return as_sequence(children)

    def each() -> Iterator[Any]:
        for child in children:
            note(child)
            yield child

    return as_sequence(each())


def as_sequence(result: Any) -> Sequence[Any]:
    """The sequence that a flat_map function returned.

    Raises:
        TypeError: it is not iterable, or is iterable but surely not meant as a sequence of payloads, like a str.
    """
    kind = type(result)
    if kind is list or kind is tuple:
        return result  # type: ignore[no-any-return]
    if isinstance(result, (str, bytes, bytearray, dict)):
        raise TypeError(
            f"a flat_map function returned a {kind.__name__}, which would become its single characters or keys; "
            f"use map for one payload, or return it in a list"
        )
    if isinstance(result, (set, frozenset)):
        raise TypeError("a flat_map function returned a set, whose order changes from run to run; return sorted(...)")
    try:
        return list(result)
    except TypeError:
        raise TypeError(
            f"a flat_map function returned {kind.__name__}, not a sequence of payloads; use map for one payload"
        ) from None
