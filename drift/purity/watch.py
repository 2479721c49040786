"""A graph whose functions are watched: each call passes a checker, which sees arguments and result.

Invariant: a watched graph gives the same metas and payloads as the graph, and messages show its steps with the same
names and lines; a function that occurs several times (a scan's step is in two maps) is watched as one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, Protocol

from drift.operators import LoopFunction, ScanKey, pair_of, state_and_outputs
from drift_graph.functions import LibraryFunction, field_of, line_of, name_of, user_function
from drift_graph.graph import Dataflow
from drift_graph.later import Later
from drift_graph.operators import Group, Map, Operator, Source, as_sequence
from drift_graph.policies import TimePolicy

#: The shape of a function's result: a payload or a key; a truth value; payloads; (state, output); (state, outputs and
#: timers).
Shape = Literal["one", "keep", "many", "pair", "process"]


@dataclasses.dataclass(frozen=True)
class Subject:
    """One function of a graph.

    Attributes:
        step: name of its step, or of its source.
        title: its name in messages.
        where: "file:line" of it, or of the step's declaration.
        function: as in the graph; for `count` and `reduce` a wrapper of drift around the user's.
    """

    step: str
    title: str
    where: str
    function: Callable[..., Any]
    shape: Shape


class Checker(Protocol):
    """Makes the calls of watched functions."""

    def call(self, watched: Watched, arguments: tuple[Any, ...]) -> Any:
        """Return the function's result for the arguments, or raise its exception."""


class Watched(LibraryFunction):
    """Replaces a function of a graph.

    Attributes:
        calls: how often it was called.
        finding: set if it is not pure.
    """

    __slots__ = ("subject", "index", "checker", "calls", "finding", "_function", "_first", "_every")

    def __init__(self, subject: Subject, index: int, checker: Checker, first: int, every: int) -> None:
        self.subject = subject
        self.index = index
        self.checker = checker
        self.calls = 0
        self.finding: Exception | None = None
        self._function = subject.function
        self._first = first
        self._every = every

    @property
    def user_function(self) -> Callable[..., Any]:
        return self._function

    @property
    def takes_timers(self) -> bool:
        return bool(field_of(self._function, "takes_timers", False))

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        if self.calls > self._first and self.calls % self._every and self.finding is None:
            return self._function(*arguments)
        return self.checker.call(self, arguments)


def shaped(shape: Shape, result: Any) -> Any:
    """A function's result, as a value that can be read twice."""
    if shape == "many":
        return as_sequence(result)
    if shape == "process":
        return state_and_outputs(result)
    return pair_of(result) if shape == "pair" else result


def compared(shape: Shape, result: Any) -> Any:
    """The part of a shaped result that a run depends on."""
    if shape == "process":
        return result[0], tuple(map(_plain_child, result[1]))
    if shape == "many":
        return tuple(map(_plain_child, result))
    if shape == "one":
        return _plain_child(result)
    return bool(result) if shape == "keep" else result


def _plain_child(child: Any) -> Any:
    """A child at a later time as a plain value."""
    return ("drift.at", child.time, child.payload, child.rounds) if type(child) is Later else child


class Watching:
    """Replaces the functions of a graph and of the time policies it runs with.

    Args:
        first, every: the first calls and every n-th of each function go to the checker.

    Attributes:
        functions: all that are watched, by index.
        dataflow, times: the graph and the policies with them.
    """

    def __init__(
        self, dataflow: Dataflow, times: Mapping[str, TimePolicy], checker: Checker, *, first: int = 1, every: int = 1
    ) -> None:
        self._share = first, every
        self.functions: list[Watched] = []
        self._checker = checker
        self._known: dict[tuple[str, int], Watched] = {}
        self.times = {
            source.name: self._policy(source.name, times.get(source.name, source.time)) for source in dataflow.sources
        }
        self.dataflow = dataclasses.replace(dataflow, operators=tuple(map(self._operator, dataflow.operators)))

    def _operator(self, operator: Operator) -> Operator:
        if isinstance(operator, Source):
            return dataclasses.replace(operator, time=self.times[operator.name])
        if isinstance(operator, Group):
            key = operator.key
            if isinstance(key, ScanKey):
                return dataclasses.replace(operator, key=ScanKey(self._key(operator, key.key)))
            return dataclasses.replace(operator, key=self._key(operator, key))
        if isinstance(operator, Map) and not operator.asks:  # a call may say something else each time
            return dataclasses.replace(operator, function=self._function(operator))
        return operator

    def _function(self, operator: Map) -> Callable[..., Any]:
        function = operator.function
        if isinstance(function, LoopFunction):
            return function.watched(partial(self._of_loop, operator, function))
        where = line_of(function) or operator.where
        title = f"step {operator.step!r} ({operator.label})"
        return self._watched(Subject(operator.step, title, where, function, operator.arity))

    def _of_loop(
        self, operator: Map, loop: LoopFunction, role: str, function: Callable[..., Any], shape: Shape
    ) -> Watched:
        if role == "key":
            return self._key(operator, function)
        shown = user_function(function if role else loop)
        title = f"step {operator.step!r} ({'' if role else loop.loop + ' '}{name_of(shown)})"
        title = f"{role} of {title}" if role else title
        return self._watched(Subject(operator.step, title, line_of(shown) or operator.where, function, shape))

    def _key(self, operator: Operator, key: Callable[[Any], Any]) -> Watched:
        title = f"the key of step {operator.step!r} ({name_of(key)})"
        where = line_of(key) or operator.where
        return self._watched(Subject(operator.step, title, where, key, "one"))

    def _policy(self, source: str, policy: TimePolicy) -> TimePolicy:
        return policy.with_functions(
            {role: self._time(source, role, function) for role, function in policy.functions.items()}
        )

    def _time(self, source: str, role: str, function: Callable[[Any], Any]) -> Watched:
        title = f"the {role} function of source {source!r} ({name_of(function)})"
        return self._watched(Subject(source, title, line_of(function) or "?", function, "one"))

    def _watched(self, subject: Subject) -> Watched:
        key = subject.step, id(subject.function)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Watched(subject, len(self.functions), self._checker, *self._share)
            self.functions.append(known)
        return known
