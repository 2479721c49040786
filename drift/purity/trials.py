"""Calls of one function on one payload, in a process of their own: again, with sets in another order, with the clock
moved, with other settings.

Invariant: every call gets arguments that were rebuilt for it, with equal canonical bytes.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import functools
import os
import pickle
import re
import sys
import time
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Any, NamedTuple

import msgspec
import xxhash

from drift.purity import inspection
from drift.purity.observed import CLOCKS, Kind, Observed, Use
from drift.purity.watch import Shape, Subject, compared, shaped
from drift_graph.canonical import NoCanonicalForm, form_of, stored
from drift_graph.functions import pass_interrupts, safe_text, user_function

_SHOWN_CHARACTERS_MAX = 500
#: How far the clock is moved: beyond a day, a month and a year, and no whole number of anything.
_SHIFT_S = 400 * 86400 + 3723.25
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


def result_of(subject: Subject, result: Any) -> CallResult:
    """A shaped result, with its text."""
    return CallResult(form_of_result(subject.shape, result), safe_text(repr, result, _SHOWN_CHARACTERS_MAX))


def raised(error: BaseException) -> CallResult:
    return CallResult(form_of_error(error), f"raised {type(error).__name__}: {safe_text(str, error, 200)}")


def _called(subject: Subject, arguments: tuple[Any, ...]) -> Any:
    """The shaped result of a call, or its exception."""
    try:
        return shaped(subject.shape, subject.function(*arguments))
    except BaseException as error:
        pass_interrupts(error)
        return _Raised(error)


class _Raised(NamedTuple):
    error: BaseException


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


# The clock, random numbers and settings, held still or moved.


@contextmanager
def clock_at(moment_s: float, namespaces: list[dict[str, Any]], function: Callable[..., Any]) -> Iterator[None]:
    """Every clock that Python code reads shows `moment_s`; in `namespaces` clocks may have other names, and the
    function may hold one: in a partial, a default, a closure, or an attribute of its object.
    """
    instead: dict[int, Any] = {id(getattr(time, name)): _still(name, moment_s) for name in CLOCKS}
    instead |= {id(real): _still_class(real, moment_s) for real in (datetime.datetime, datetime.date)}
    with ExitStack() as undo:
        for names in (vars(time), vars(datetime), *namespaces):
            _replace_in(names, instead, undo)
        _replace_inside(function, instead, undo)
        yield


def _replaced(value: Any, instead: dict[int, Any]) -> Any:
    """What stands in for a clock, or for a method of one (datetime.now); the value itself if it is none."""
    if isinstance(value, types.BuiltinMethodType) and id(value.__self__) in instead:
        return getattr(instead[id(value.__self__)], value.__name__)
    return instead.get(id(value), value)


def _replace_in(names: dict[str, Any], instead: dict[int, Any], undo: ExitStack) -> None:
    for name, value in list(names.items()):
        if (other := _replaced(value, instead)) is not value:
            undo.callback(names.__setitem__, name, value)
            names[name] = other


def _replace_inside(function: Any, instead: dict[int, Any], undo: ExitStack) -> None:
    """In what a function holds."""
    function = user_function(function)
    if isinstance(function, functools.partial):
        inside, own, set_state = function.func, vars(function), getattr(function, "__setstate__")  # noqa: B009
        undo.callback(set_state, (inside, function.args, function.keywords, own))
        args = tuple(_replaced(each, instead) for each in function.args)
        keywords = {name: _replaced(each, instead) for name, each in function.keywords.items()}
        set_state((inside, args, keywords, own))
        _replace_inside(inside, instead, undo)
        return
    owner = getattr(function, "__self__", function)
    if not isinstance(owner, (types.FunctionType, types.ModuleType, type)) and hasattr(owner, "__dict__"):
        _replace_in(vars(owner), instead, undo)
    for held in (getattr(function, "function", None), getattr(function, "key", None)):
        if callable(held) and type(function).__module__ == "drift.operators":
            _replace_inside(held, instead, undo)
    function = getattr(function, "__func__", function)
    if isinstance(function, types.FunctionType):
        defaults, cells = function.__defaults__, function.__closure__ or ()
        undo.callback(setattr, function, "__defaults__", defaults)
        function.__defaults__ = defaults and tuple(_replaced(each, instead) for each in defaults)
        if function.__kwdefaults__:
            _replace_in(function.__kwdefaults__, instead, undo)
        for cell in cells:
            with suppress(ValueError):  # an empty cell
                undo.callback(setattr, cell, "cell_contents", cell.cell_contents)
                cell.cell_contents = _replaced(cell.cell_contents, instead)


def _still(name: str, moment_s: float) -> Callable[..., Any]:
    real = getattr(time, name)
    if name.startswith("clock_gettime"):
        return lambda clock: int(moment_s * 1e9) if name.endswith("_ns") else moment_s
    if name.endswith("_ns"):
        return lambda: int(moment_s * 1e9)
    if name in ("time", "monotonic", "perf_counter", "process_time", "thread_time"):
        return lambda: moment_s
    if name in ("strftime", "asctime"):
        return lambda *args: real(*args, *(() if len(args) > (name == "strftime") else (time.localtime(),)))
    return lambda moment=None: real(moment_s if moment is None else moment)


class _Real(type):
    """A metaclass for a stand-in class: instances of the real class count as its instances."""

    real: type

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.real)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.real)


def _still_class(real: Any, moment_s: float) -> Any:
    """Stands in for `datetime.date` or `datetime.datetime`: makes the same values, and has another now."""
    members: dict[str, Any] = {
        "real": real,
        "__new__": lambda cls, *args, **named: real(*args, **named),
        "today": classmethod(lambda cls: real.fromtimestamp(moment_s)),
    }
    if real is datetime.datetime:
        members["now"] = classmethod(lambda cls, tz=None: real.fromtimestamp(moment_s, tz))
        members["utcnow"] = classmethod(lambda cls: real.fromtimestamp(moment_s, datetime.UTC).replace(tzinfo=None))
    return _Real("Still", (real,), members)


@contextmanager
def setting(name: str, value: str) -> Iterator[None]:
    """An environment variable with another value."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _numpy_state() -> bytes:
    """The state of the random numbers that numpy has for everybody; nobody sees who draws them."""
    numpy = sys.modules.get("numpy.random")
    return pickle.dumps(numpy.get_state()) if numpy is not None else b""


# Requests to a process.


class Check(NamedTuple):
    """Forms of two calls, and further findings: "clock", or "setting NAME"."""

    first: bytes | None
    second: bytes | None
    found: str = ""


@dataclasses.dataclass
class Facts:
    """What a process says of a function and a payload.

    Attributes:
        first, again: two calls, one after the other.
        refilled: a call with sets in the payload filled in another order; None if there are none.
        uses: what the function was seen to read, in this call or before.
        moved: two calls with the clock stopped, now and 400 days later; None if it reads none.
        settings: for each environment variable it reads, a call with another value of it.
        start: the form of all that it may keep, globals and defaults among it, before the calls.
        changed: names of what has changed since, with a line that mentions each.
        sets: lines that build a set.
    """

    first: CallResult
    again: CallResult
    refilled: CallResult | None = None
    uses: list[Use] = dataclasses.field(default_factory=list)
    moved: tuple[CallResult, CallResult] | None = None
    settings: dict[str, CallResult] = dataclasses.field(default_factory=dict)
    start: dict[str, bytes] = dataclasses.field(default_factory=dict)
    changed: dict[str, str] = dataclasses.field(default_factory=dict)
    sets: list[str] = dataclasses.field(default_factory=list)


class Trials:
    """Calls of one function."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._checked = 0
        self._observed = Observed()

    def check(self, packed: bytes) -> Check:
        """Two calls; at first also whether the function depends on a clock too coarse to show, or on a setting."""
        self._checked += 1
        closely = self._checked <= _CLOSE_CHECKS
        again = rebuilt(packed)
        again = in_other_order(again, reversed_set) or again
        with self._observed if closely else nullcontext():
            first = self._form(rebuilt(packed))
        second = self._form(again)
        found = ""
        if closely and first == second:
            found = "clock" if self._reads("clock") and self._clock_matters(packed) else ""
            for name in self._reads("setting"):
                with setting(name, _OTHER_SETTING):
                    found = found or (f"setting {name}" if self._form(rebuilt(packed)) != first else "")
        return Check(first, second, found)

    def explain(self, packed: bytes, before: list[bytes]) -> Facts:
        """All facts about a payload. `before`: arguments of other calls, which are made first."""
        subject = self._subject
        owner = inspection.function_inside(subject.function)
        executed = self._observed.executed
        start, state_of_numpy = inspection.mutable_state(owner, {}), _numpy_state()
        for each in before:
            self._form(rebuilt(each))
        with self._observed:
            first = self._result(rebuilt(packed))
        if state_of_numpy != _numpy_state():
            use = Use("random", "numpy.random", inspection.line_with("'random'", executed, owner))
            self._observed.uses = {use: None, **self._observed.uses}
        start = inspection.mutable_state(owner, executed) | start
        facts = Facts(first, self._result(rebuilt(packed)), start=start)
        if (other := in_other_order(rebuilt(packed), reversed_set)) is not None:
            facts.refilled = self._result(other)
        if self._reads("clock"):
            now = time.time()
            facts.moved = self._at(now, packed), self._at(now + _SHIFT_S, packed)
        for name in self._reads("setting"):
            with setting(name, _OTHER_SETTING):
                facts.settings[name] = self._result(rebuilt(packed))
        state = inspection.mutable_state(owner, executed)
        changed = [name for name, form in start.items() if state.get(name) != form]
        facts.changed = {name: inspection.line_with(name, executed, owner) for name in changed}
        facts.sets = inspection.lines_that_build_sets(executed)
        facts.uses = list(self._observed.uses)
        if _ADDRESS.search(first.shown) and _ADDRESS.search(facts.again.shown):
            facts.uses.append(Use("address", "the repr() of an object that has none of its own", subject.where))
        return facts

    def _reads(self, kind: Kind) -> list[str]:
        return [use.what for use in self._observed.uses if use.kind == kind]

    def _form(self, arguments: tuple[Any, ...]) -> bytes | None:
        result = _called(self._subject, arguments)
        if isinstance(result, _Raised):
            return form_of_error(result.error)
        return form_of_result(self._subject.shape, result)

    def _result(self, arguments: tuple[Any, ...]) -> CallResult:
        result = _called(self._subject, arguments)
        return raised(result.error) if isinstance(result, _Raised) else result_of(self._subject, result)

    def _at(self, moment_s: float, packed: bytes) -> CallResult:
        with clock_at(moment_s, list(self._observed.executed.values()), self._subject.function):
            return self._result(rebuilt(packed))

    def _clock_matters(self, packed: bytes) -> bool:
        now = time.time()
        return self._at(now, packed).form != self._at(now + _SHIFT_S, packed).form
