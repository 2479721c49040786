"""Calls of one function on one payload, in a process of their own: again, with sets in another order, at another time,
with other settings.

Invariant: every call gets arguments that were rebuilt for it, with equal canonical bytes.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import pickle
import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import msgspec
import xxhash

from drift.purity import clocks, inspection
from drift.purity.observed import Kind, Observed, Use
from drift.purity.watch import Shape, Subject, compared, shaped
from drift_graph.canonical import NoCanonicalForm, form_of, stored
from drift_graph.functions import pass_interrupts, safe_text

_SHOWN_CHARACTERS_MAX = 500
#: Number of a function's first calls that are checked closely.
_CLOSE_CHECKS = 20
_OTHER_SETTING = "changed by drift's purity check"
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")


class CallResult(NamedTuple):
    """The result of a call.

    Attributes:
        form: for comparison: of the result's bytes, or of the exception's type; None if it has no form.
        shown: the result as text.
    """

    form: bytes | None
    shown: str


def form_of_result(shape: Shape, result: Any) -> bytes | None:
    """The form of a shaped result; None if it cannot be compared."""
    try:
        return xxhash.xxh3_128_digest(stored(compared(shape, result)))
    except NoCanonicalForm:
        return None


def form_of_error(error: BaseException) -> bytes:
    return b"raised " + type(error).__qualname__.encode()


def result_of(subject: Subject, result: Any, *, shown: bool = True) -> CallResult:
    text = safe_text(repr, result, _SHOWN_CHARACTERS_MAX) if shown else ""
    return CallResult(form_of_result(subject.shape, result), text)


def raised(error: BaseException) -> CallResult:
    return CallResult(form_of_error(error), f"raised {type(error).__name__}: {safe_text(str, error, 200)}")


# Payloads.


#: Fills a set with members.
_Filled = Callable[[list[Any]], "set[Any]"]


class CannotRebuild(Exception):
    """The arguments of a call cannot be unpickled."""


def rebuilt(packed: bytes) -> tuple[Any, ...]:
    """The arguments of a call. Raises CannotRebuild: they cannot be unpickled."""
    try:
        arguments: tuple[Any, ...] = pickle.loads(packed)
    except Exception as error:
        raise CannotRebuild from error
    return in_other_order(arguments, _as_sorted) or arguments  # in the run, sets have an order of their own


def in_other_order(arguments: tuple[Any, ...], sets: _Filled) -> tuple[Any, ...] | None:
    """Equal arguments whose sets were filled in another order; None if there are no sets."""
    changed = tuple(_reordered(each, sets) for each in arguments)
    return None if all(left is right for left, right in zip(changed, arguments)) else changed


def _as_sorted(members: list[Any]) -> set[Any]:
    filled: set[Any] = set()
    for member in sorted(members, key=form_of):
        filled.add(member)
    return filled


def reversed_set(members: list[Any]) -> set[Any]:
    """A set that was filled in reverse order after it had been larger, so that other members collide."""
    fillers = [object() for _ in range(64 + 8 * len(members))]
    filled = set(fillers)
    filled.update(reversed(members))
    filled.difference_update(fillers)
    return filled


def _reordered(value: Any, sets: _Filled) -> Any:
    """The value itself if nothing in it has an arbitrary order."""
    kind = type(value)
    if kind in (set, frozenset):
        inside = [_reordered(each, sets) for each in value]
        if len(inside) < 2:
            return value if all(left is right for left, right in zip(inside, value)) else kind(inside)
        filled = sets(inside)
        return filled if kind is set else frozenset(filled)
    if kind is dict:
        items = [(key, _reordered(each, sets)) for key, each in value.items()]
        return value if all(each is value[key] for key, each in items) else dict(items)
    if isinstance(value, (tuple, list)) and (kind in (tuple, list) or hasattr(kind, "_make")):
        inside = [_reordered(each, sets) for each in value]
        if all(left is right for left, right in zip(inside, value)):
            return value
        return kind._make(inside) if hasattr(kind, "_make") else kind(inside)
    changed = [(name, other) for name, inside in _fields_of(value) if (other := _reordered(inside, sets)) is not inside]
    if changed:
        value = copy.copy(value)
        for name, inside in changed:
            (msgspec.structs.force_setattr if isinstance(value, msgspec.Struct) else object.__setattr__)(
                value, name, inside
            )
    return value


def _fields_of(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, type):
        return []
    if dataclasses.is_dataclass(value):
        return [(each.name, getattr(value, each.name)) for each in dataclasses.fields(value)]
    if isinstance(value, msgspec.Struct):
        return [(name, getattr(value, name)) for name in value.__struct_fields__]
    return []


def _numpy_state() -> bytes:
    """The state of the random numbers that numpy has for everybody; nobody sees who draws them."""
    numpy = sys.modules.get("numpy.random")
    return pickle.dumps(numpy.get_state()) if numpy is not None else b""


class Other(NamedTuple):
    """A call with the same payload in other circumstances.

    Attributes:
        how: the circumstances, for people.
        kinds: of what a function reads, what may make its result another one here, the likeliest first.
    """

    how: str
    kinds: tuple[Kind, ...]
    result: CallResult


class Facts(NamedTuple):
    """What a process says of a function and a payload.

    Attributes:
        first: a call.
        others: further calls after it.
        uses: what the function was seen to read, to change and to build, in these calls or before.
        state: the form of all that it may keep between calls, with a line that mentions it.
    """

    first: CallResult
    others: list[Other]
    uses: list[Use]
    state: dict[str, tuple[bytes, str]]


class Trials:
    """Calls of one function."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._checked = 0
        self._observed = Observed()

    def check(self, packed: bytes) -> tuple[bytes | None, bytes | None]:
        """The forms of two calls, the second with other values of the settings that the function reads."""
        self._checked += 1
        again = in_other_order(rebuilt(packed), reversed_set) or rebuilt(packed)
        with self._observed if self._checked <= _CLOSE_CHECKS else nullcontext():
            first = self._result(rebuilt(packed), shown=False)
        with self._other_settings():
            return first.form, self._result(again, shown=False).form

    def explain(self, packed: bytes) -> Facts:
        owner = inspection.function_inside(self._subject.function)
        executed = self._observed.executed
        start, state_of_numpy = inspection.mutable_state(owner, {}), _numpy_state()
        with self._observed:
            first = self._result(rebuilt(packed))
        uses = self._observed.uses
        if state_of_numpy != _numpy_state():
            use = Use("random", "numpy.random", inspection.line_with("'random'", executed, owner))
            self._observed.uses = uses = {use: None, **uses}
        start = inspection.mutable_state(owner, executed) | start
        again = self._result(rebuilt(packed))
        others = [Other("called again", ("generator", "state", "address", "random", "clock"), again)]
        if settings := self._settings():
            with self._other_settings():
                how = f"with another value of {', '.join(settings)}"
                others.append(Other(how, ("setting",), self._result(rebuilt(packed))))
        with clocks.otherwise():
            others.append(Other("at another time", ("random", "clock"), self._result(rebuilt(packed))))
        if (other := in_other_order(rebuilt(packed), reversed_set)) is not None:
            others.append(Other("with the same set, filled in another order", ("set",), self._result(other)))
        forms = inspection.mutable_state(owner, executed)
        state = {name: (form, inspection.line_with(name, executed, owner)) for name, form in sorted(forms.items())}
        found = [Use("state", name, where) for name, (form, where) in state.items() if start.get(name) != form]
        found += [Use("set", "that it builds", line) for line in inspection.lines_that_build_sets(executed)]
        if other is not None:
            found.append(Use("set", "in its input", ""))
        if _ADDRESS.search(first.shown) and _ADDRESS.search(again.shown):
            found.append(Use("address", "the repr() of an object that has none of its own", self._subject.where))
        return Facts(first, others, [*uses, *found], state)

    def _settings(self) -> list[str]:
        return [use.what for use in self._observed.uses if use.kind == "setting"]

    def _other_settings(self) -> AbstractContextManager[Any]:
        if not (settings := self._settings()):
            return nullcontext()
        from unittest.mock import patch

        return patch.dict(os.environ, dict.fromkeys(settings, _OTHER_SETTING))

    def _result(self, arguments: tuple[Any, ...], *, shown: bool = True) -> CallResult:
        """The result of a call; without its text where nobody reads that."""
        try:
            result = shaped(self._subject.shape, self._subject.function(*arguments))
        except BaseException as error:
            pass_interrupts(error)
            return raised(error)
        return result_of(self._subject, result, shown=shown)
