"""Experiments on one function and one payload, in a process of their own.

Invariant: every call of a trial gets arguments that were rebuilt for it, with equal canonical bytes; two calls of one
trial differ in exactly one circumstance.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import functools
import os
import pickle
import random
import re
import sys
import time
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

import msgspec
import xxhash

from drift.purity.elsewhere import HomePart
from drift.purity.observed import CLOCKS, Observed, Use
from drift.purity.watch import Shape, Subject, compared, shaped
from drift_graph.canonical import NoCanonicalForm, form_of, stored
from drift_graph.functions import pass_interrupts, safe_text, user_function

_SHOWN_CHARACTERS_MAX = 500
#: How far the clock is moved: beyond a day, a month and a year, and no whole number of anything.
_SHIFT_S = 400 * 86400 + 3723.25
_SEEDS = 9
_OTHER_SETTING = "changed by drift's purity check"
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")


class CallResult(NamedTuple):
    """The result of a call.

    Attributes:
        form: for comparison: of the result's bytes, or of the exception's type; None if it has no form.
        shown: the result as text.
        floats: those in the result, to see whether two results are nearly equal.
    """

    form: bytes | None
    shown: str
    floats: tuple[float, ...] = ()


def form_of_result(shape: Shape, result: Any) -> bytes | None:
    """The form of a shaped result; None if it cannot be compared."""
    try:
        return xxhash.xxh3_128_digest(stored(compared(shape, result)))
    except NoCanonicalForm:
        return None


def form_of_error(error: BaseException) -> bytes:
    return b"raised " + type(error).__qualname__.encode()


def called(subject: Subject, arguments: tuple[Any, ...]) -> bytes | None:
    """The form of a function's result."""
    try:
        result = shaped(subject.shape, subject.function(*arguments))
    except BaseException as error:
        pass_interrupts(error)
        return form_of_error(error)
    return form_of_result(subject.shape, result)


def outcome_of(subject: Subject, arguments: tuple[Any, ...]) -> CallResult:
    """A function's result, with its text."""
    try:
        result = shaped(subject.shape, subject.function(*arguments))
    except BaseException as error:
        pass_interrupts(error)
        return CallResult(form_of_error(error), f"raised {type(error).__name__}: {safe_text(str, error, 200)}")
    return outcome_of_result(subject, result)


def outcome_of_result(subject: Subject, result: Any) -> CallResult:
    """A shaped result as an outcome."""
    floats = tuple(_floats_in(compared(subject.shape, result)))
    return CallResult(form_of_result(subject.shape, result), safe_text(repr, result, _SHOWN_CHARACTERS_MAX), floats)


def _floats_in(value: Any) -> Iterator[float]:
    if type(value) is float:
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _floats_in(each)


# Payloads.


#: Fills a set with members.
_Filled = Callable[[list[Any]], "set[Any]"]


class CannotRebuild(Exception):
    """The arguments of a call cannot be unpickled."""


def rebuilt(packed: bytes) -> tuple[Any, ...]:
    """The arguments of a call.

    Raises:
        CannotRebuild: they cannot be unpickled.
    """
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
    instead[id(datetime.datetime)] = _still_datetime(moment_s)
    instead[id(datetime.date)] = _still_date(moment_s)
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


def _still_datetime(moment_s: float) -> type:
    real = datetime.datetime

    class Still(datetime.datetime, metaclass=_Real):
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return real(*args, **kwargs)

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return real.fromtimestamp(moment_s, tz)

        @classmethod
        def today(cls) -> Any:
            return real.fromtimestamp(moment_s)

        @classmethod
        def utcnow(cls) -> Any:
            return real.fromtimestamp(moment_s, datetime.UTC).replace(tzinfo=None)

    Still.real = real
    return Still


def _still_date(moment_s: float) -> type:
    real = datetime.date

    class Still(datetime.date, metaclass=_Real):
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return real(*args, **kwargs)

        @classmethod
        def today(cls) -> Any:
            return real.fromtimestamp(moment_s)

    Still.real = real
    return Still


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


def _seeded(subject: Subject, packed: bytes, seed: int = 0) -> CallResult:
    random.seed(seed)
    if (numpy := sys.modules.get("numpy.random")) is not None:
        numpy.seed(seed)
    return outcome_of(subject, rebuilt(packed))


# Requests to a process.


class Check(NamedTuple):
    """Forms of two calls, and further findings: "clock", or "setting NAME"."""

    first: bytes | None
    second: bytes | None
    found: str = ""


def check(subject: Subject, packed: bytes, *, closely: bool) -> Check:
    """Two calls; `closely` also tests whether the function depends on a clock too coarse to show, or on a setting."""
    arguments = rebuilt(packed)
    again = rebuilt(packed)
    again = in_other_order(again, reversed_set) or again
    if not closely:
        return Check(called(subject, arguments), called(subject, again))
    with Observed() as observed:
        first = called(subject, arguments)
    second = called(subject, again)
    found = ""
    if first == second:
        for use in observed.uses:
            if use.kind == "clock" and not found:
                found = "clock" if _clock_matters(subject, packed, list(observed.executed.values())) else ""
            if use.kind == "setting" and not found:
                with setting(use.what, _OTHER_SETTING):
                    found = f"setting {use.what}" if called(subject, rebuilt(packed)) != first else ""
    return Check(first, second, found)


def last_of(subject: Subject, before: list[bytes], packed: bytes) -> CallResult:
    """The result of a call after others."""
    for each in before:
        called(subject, rebuilt(each))
    return outcome_of(subject, rebuilt(packed))


def _clock_matters(subject: Subject, packed: bytes, namespaces: list[dict[str, Any]]) -> bool:
    outcomes = []
    now = time.time()
    for moment in (now, now + _SHIFT_S):
        with clock_at(moment, namespaces, subject.function):
            outcomes.append(called(subject, rebuilt(packed)))
    return outcomes[0] != outcomes[1]


@dataclasses.dataclass
class Facts:
    """The results of all trials of a function and a payload.

    Attributes:
        first, again: two calls, one after the other.
        other_order: a call with sets in the payload filled in another order; None if there are none.
        uses: the observed actions.
        clock_still: two calls with the clock stopped, from one state of the random numbers; None if it reads none.
        clock_moved: a call with the clock a year later, from the same state; None if it reads none.
        random_seeded: two calls from one state of the random numbers; None if it reads none.
        random_other: a call from another state of the random numbers, if that has another result.
        settings: for each environment variable it reads, a call with another value of it.
        changed_state: names of state that changed between two calls, with a line that mentions each.
        sets: lines that build a set.
        globals_read: the form of each global its code mentions.
        held: the form of all that it may keep, globals and defaults among it, before it was called.
        names: names of builtins and methods that its code mentions.
        shows_address: whether a result contains the address of an object.
        at_home: a call in the caller's folder, and one in its time zone.
    """

    first: CallResult
    again: CallResult
    other_order: CallResult | None
    uses: list[Use]
    clock_still: tuple[CallResult, CallResult] | None = None
    clock_moved: CallResult | None = None
    random_seeded: tuple[CallResult, CallResult] | None = None
    random_other: CallResult | None = None
    settings: dict[str, CallResult] = dataclasses.field(default_factory=dict)
    changed_state: dict[str, str] = dataclasses.field(default_factory=dict)
    sets: list[str] = dataclasses.field(default_factory=list)
    globals_read: dict[str, bytes] = dataclasses.field(default_factory=dict)
    held: dict[str, bytes] = dataclasses.field(default_factory=dict)
    names: set[str] = dataclasses.field(default_factory=set)
    shows_address: bool = False
    at_home: dict[HomePart, CallResult] = dataclasses.field(default_factory=dict)


def explain(subject: Subject, packed: bytes) -> Facts:
    """All facts about a function and a payload."""
    from drift.purity import inspection

    arguments = rebuilt(packed)
    owner = inspection.function_inside(subject.function)
    start = inspection.mutable_state(owner, inspection.code_of(owner))
    state_of_numpy = _numpy_state()
    with Observed() as observed:
        first = outcome_of(subject, arguments)
    if state_of_numpy != _numpy_state():
        where = inspection.line_with("'random'", observed.executed, owner)
        observed.uses[Use("random", "numpy.random", where)] = None
    before = inspection.mutable_state(owner, observed.executed)
    again = outcome_of(subject, rebuilt(packed))
    after = inspection.mutable_state(owner, observed.executed)
    changed = [
        name for name in before if before[name] != after.get(name) or start.get(name, before[name]) != before[name]
    ]
    facts = Facts(first, again, None, list(observed.uses), at_home={"folder": again, "time zone": again})
    if (other := in_other_order(rebuilt(packed), reversed_set)) is not None:
        facts.other_order = outcome_of(subject, other)
    kinds = {use.kind for use in observed.uses}
    if "clock" in kinds:
        namespaces, now = list(observed.executed.values()), time.time()
        with clock_at(now, namespaces, subject.function):
            facts.clock_still = _seeded(subject, packed), _seeded(subject, packed)
        with clock_at(now + _SHIFT_S, namespaces, subject.function):
            facts.clock_moved = _seeded(subject, packed)
    if "random" in kinds:
        facts.random_seeded = _seeded(subject, packed), _seeded(subject, packed)
        others = [_seeded(subject, packed, seed) for seed in range(1, _SEEDS)]
        facts.random_other = next((each for each in others if each.form != facts.random_seeded[0].form), None)
    for use in observed.uses:
        if use.kind == "setting":
            with setting(use.what, _OTHER_SETTING):
                facts.settings[use.what] = outcome_of(subject, rebuilt(packed))
    facts.changed_state = {name: inspection.line_with(name, observed.executed, owner) for name in changed}
    facts.sets = inspection.lines_that_build_sets(observed.executed)
    facts.held = start
    facts.globals_read = inspection.globals_read(observed.executed)
    facts.names = {name for code in observed.executed for name in code.co_names}
    facts.shows_address = bool(_ADDRESS.search(first.shown) and _ADDRESS.search(again.shown))
    return facts
