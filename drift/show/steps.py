"""The operators of a graph as its author sees them: steps in the order of the flow.

Invariant: every operator is in one step, and the steps are in topological order without the feedback edges, branch by
branch.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from drift_graph.functions import name_of
from drift_graph.graph import Dataflow
from drift_graph.moments import Field
from drift_graph.operators import Operator, Source

_WORDS_MAX = 100  # characters of what an operator does
_SAID = ("key", "initial")  # fields of functions that the step's name says, or that are what nothing was added to
_ENDING, _CAPITAL = re.compile("(Item|Step)$"), re.compile("(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True)
class DeclaredStep:
    """The operators that one line of the user declared: one, or several if the line is sugar.

    Attributes:
        name: the step's; for one operator also the operator's.
        where: "file:line" of the declaration.
        operators: in the order of the flow.
    """

    name: str
    where: str
    operators: tuple[Operator, ...]

    @property
    def is_sugar(self) -> bool:
        return len(self.operators) > 1

    def short_name(self, operator: Operator) -> str:
        """An operator's name inside its step: "state" for "count words.state"."""
        return operator.name.removeprefix(f"{self.name}.") if operator.name != self.name else operator.kind


def steps_of(dataflow: Dataflow) -> list[DeclaredStep]:
    members: dict[str, list[Operator]] = {}
    for name in flow_order(dataflow):
        operator = dataflow[name]
        members.setdefault(operator.step or operator.name, []).append(operator)
    return [DeclaredStep(name, operators[0].where, tuple(operators)) for name, operators in members.items()]


def flow_order(dataflow: Dataflow) -> list[str]:
    """Names in topological order without the feedback edges, a branch to its end before the next one."""
    waits = {operator.name: 0 for operator in dataflow.operators}
    targets: dict[str, list[str]] = {operator.name: [] for operator in dataflow.operators}
    for edge in dataflow.edges:
        if not edge.feedback:
            waits[edge.target] += 1
            targets[edge.origin].append(edge.target)
    ready = [name for name in reversed(list(waits)) if waits[name] == 0]
    order: list[str] = []
    while ready:
        name = ready.pop()
        order.append(name)
        for target in reversed(targets[name]):
            waits[target] -= 1
            if waits[target] == 0:
                ready.append(target)
    return order


def what_it_does(operator: Operator) -> str:
    """A few words on an operator: of a source its policy, of a sink its kind; expressions as Polars shows them."""
    expressions = getattr(getattr(operator, "function", None), "text", "")
    return cut(f"{operator.label.strip()}: {expressions}", _WORDS_MAX) if expressions else operator.label.strip()


def what_was_written(step: DeclaredStep) -> str:
    """A few words on a step of several operators: its windows, aggregates and lengths, or its function."""
    for operator in step.operators:
        function = getattr(operator, "function", None)
        process = getattr(function, "process", None)
        made = process.on_item if process is not None else getattr(function, "step", None)
        if made is not None:
            return cut(_in_words(made), _WORDS_MAX)
    return ""


def _in_words(value: Any) -> str:
    """A function of drift by name and fields, as `tumbling(mean=mean(delay), size=60000)`; another one by name."""
    if isinstance(value, Field):
        return value.path
    if not isinstance(value, msgspec.Struct):
        return name_of(value) if callable(value) else repr(value)
    names, parts = getattr(value, "names", None), getattr(value, "parts", None) or getattr(value, "aggregates", None)
    if names is not None and parts is not None:
        return ", ".join(f"{name}={_in_words(part)}" for name, part in zip(names, parts))
    words = []
    for name in value.__struct_fields__:
        field = getattr(value, name)
        if name in _SAID or not (any(field) if isinstance(field, tuple) else field):
            continue
        is_inner = isinstance(field, msgspec.Struct) or name == "user_function"
        words.append(_in_words(field) if is_inner else f"{name}={_in_words(field)}")
    name = _CAPITAL.sub(" ", _ENDING.sub("", type(value).__name__.strip("_"))).lower()
    return f"{name}({', '.join(words)})"


def rank_label(dataflow: Dataflow, operator: Operator) -> str:
    """ "rank 3"; sources have none of their own but their place among the sources."""
    if isinstance(operator, Source):
        return f"source rank {dataflow.sources.index(operator)}"
    return f"rank {dataflow.ranks[operator.name]}"


def columns_of(text: str) -> int:
    """Width of a text in characters: East Asian wide ones take two."""
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text)


def cut(text: str, columns_max: int) -> str:
    """The text as printable characters, cut to at most `columns_max` columns."""
    text = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    if columns_of(text) <= columns_max:
        return text
    while columns_of(text) > columns_max - 1:
        text = text[:-1]
    return f"{text}\N{HORIZONTAL ELLIPSIS}"


def short_location(where: str, *, full: bool = False) -> str:
    """ "file:line", shortened: relative to the working folder if inside it; or only the file's name."""
    file, colon, line = where.rpartition(":")
    if not colon:
        return where
    if not full:
        return f"{Path(file).name}:{line}"
    try:
        return f"{Path(file).relative_to(Path.cwd())}:{line}"
    except (ValueError, OSError):
        return where
