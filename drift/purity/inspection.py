"""Facts from a function's code and environment: where sets are built, which names are read, what changed between calls.

Invariant: nothing here calls the function; a value that cannot be inspected counts as unchanged.
"""

from __future__ import annotations

import builtins
import dis
import functools
import pickle
import random
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import xxhash

from drift_graph.canonical import NoCanonicalForm, canonical
from drift_graph.functions import safe_text, user_function

_Executed = Mapping[CodeType, dict[str, Any]]
_DEPTH_MAX = 3


def function_inside(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function inside a partial or inside the steps of `count` and `reduce`."""
    function = user_function(function)
    if isinstance(function, functools.partial):
        return function_inside(function.func)
    if type(function).__module__ == "drift.operators":
        return function_inside(getattr(function, "function", None) or function.key)  # type: ignore[attr-defined]
    return function


def code_of(function: Callable[..., Any]) -> _Executed:
    """A function's own code and globals."""
    function = getattr(function, "__func__", function)
    return {function.__code__: function.__globals__} if isinstance(function, FunctionType) else {}


def mutable_state(function: Callable[..., Any], executed: _Executed) -> dict[str, bytes]:
    """The forms of everything in which a function can keep state between calls, by name."""
    state = {f"the global {name!r}": _form(value) for name, value in _globals_of(executed).items()}
    if isinstance(function, MethodType):
        state |= {f"the attribute {name!r}": _form(value) for name, value in _attributes(function.__self__).items()}
        function = function.__func__
    elif not isinstance(function, FunctionType):
        state |= {f"the attribute {name!r}": _form(value) for name, value in _attributes(function).items()}
    if isinstance(function, FunctionType):
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                state[f"the variable {name!r} of the function around it"] = _form(cell.cell_contents)
            except ValueError:  # an empty cell
                pass
        defaults = function.__defaults__ or ()
        names = function.__code__.co_varnames[: function.__code__.co_argcount][-len(defaults) :] if defaults else ()
        state |= {f"the default of {name!r}": _form(value) for name, value in zip(names, defaults)}
        state |= {f"the default of {name!r}": _form(value) for name, value in (function.__kwdefaults__ or {}).items()}
    return state


def globals_read(executed: _Executed) -> dict[str, bytes]:
    """The form of each global that the executed code mentions, except functions and modules."""
    return {
        name: _form(value)
        for name, value in _globals_of(executed).items()
        if not isinstance(value, (FunctionType, ModuleType, type))
    }


def line_with(state_name: str, executed: _Executed, function: Callable[..., Any]) -> str:
    """ "file:line" of the code that assigns the name from `mutable_state`, or else mentions it; "" if none does."""
    name = state_name.split("'")[1] if "'" in state_name else state_name
    codes = [*executed, *([function.__code__] if isinstance(function, FunctionType) else [])]
    mentioned = ""
    for code in codes:
        for line, instruction in _lines(code):
            if instruction.argval == name and isinstance(name, str):
                if instruction.opname.startswith("STORE_") and instruction.opname != "STORE_FAST":
                    return f"{code.co_filename}:{line}"
                mentioned = mentioned or f"{code.co_filename}:{line}"
    return mentioned


def lines_that_build_sets(executed: _Executed) -> list[str]:
    """ "file:line" of each line that builds a set."""
    found: dict[str, None] = {}
    for code in executed:
        for line, instruction in _lines(code):
            named = instruction.opname.startswith("LOAD_") and instruction.argval in ("set", "frozenset")
            constant = instruction.opname == "LOAD_CONST" and isinstance(instruction.argval, frozenset)
            if instruction.opname in ("BUILD_SET", "SET_ADD", "SET_UPDATE") or named or constant:
                found[f"{code.co_filename}:{line}"] = None
    return list(found)


def _lines(code: CodeType) -> list[tuple[int, dis.Instruction]]:
    line = code.co_firstlineno
    found: list[tuple[int, dis.Instruction]] = []
    for instruction in dis.get_instructions(code):
        at = getattr(instruction, "line_number", instruction.starts_line)  # since Python 3.13, and before
        line = at if at is not None else line
        found.append((line, instruction))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found += _lines(constant)
    return found


def _globals_of(executed: _Executed) -> dict[str, Any]:
    return {
        name: names[name]
        for code, names in executed.items()
        for name in _names_of(code)
        if name in names and not hasattr(builtins, name)
    }


def _names_of(code: CodeType) -> list[str]:
    return [
        *code.co_names,
        *(name for each in code.co_consts if isinstance(each, CodeType) for name in _names_of(each)),
    ]


def _form(value: Any, depth: int = 0) -> bytes:
    """Bytes that change when the value does."""
    try:
        return xxhash.xxh3_128_digest(canonical(value))
    except NoCanonicalForm:
        pass
    if isinstance(value, ModuleType) or depth > _DEPTH_MAX:
        return b""
    if isinstance(value, random.SystemRandom):
        return b""  # it has no state
    if isinstance(value, random.Random):
        return repr(value.getstate()).encode()
    parts = _attributes(value)
    if isinstance(value, Mapping):
        parts |= {repr(key): each for key, each in value.items()}
    elif isinstance(value, (list, tuple)):
        parts |= {str(index): each for index, each in enumerate(value)}
    if parts:
        return b"".join(name.encode() + b"=" + _form(each, depth + 1) + b";" for name, each in sorted(parts.items()))
    if isinstance(value, (type, FunctionType)):
        return b""
    try:
        return pickle.dumps(value)  # iterators include their position
    except Exception:  # a user's class may raise anything; its repr is the next best
        return safe_text(repr, value, 1000).encode()


def _attributes(value: Any) -> dict[str, Any]:
    """A value's own attributes; for a class those that are data."""
    found = getattr(value, "__dict__", {})
    if not isinstance(value, type):
        return dict(found)
    return {
        name: each
        for name, each in found.items()
        if not name.startswith("__") and not callable(each) and not hasattr(each, "__get__")
    }
