"""Facts from a function's code and environment: where sets are built, and what it may keep between calls.

Invariant: nothing here calls the function; a value that cannot be inspected counts as unchanged.
"""

from __future__ import annotations

import builtins
import dis
import functools
import pickle
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import xxhash

from drift_graph.canonical import NoCanonicalForm, canonical
from drift_graph.functions import safe_text, user_function

_Executed = Mapping[CodeType, dict[str, Any]]


def function_inside(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function inside a partial or inside the steps of `count` and `reduce`."""
    function = user_function(function)
    if isinstance(function, functools.partial):
        return function_inside(function.func)
    if type(function).__module__ == "drift.operators":
        return function_inside(getattr(function, "function", None) or function.key)  # type: ignore[attr-defined]
    return function


def mutable_state(function: Callable[..., Any], executed: _Executed) -> dict[str, bytes]:
    """The forms of everything in which a function can keep state between calls, by name.

    Args:
        executed: code of other functions that it called, and the globals of each.
    """
    plain = getattr(function, "__func__", function)
    state: dict[str, Any] = {}
    if isinstance(plain, FunctionType):
        executed = {**executed, plain.__code__: plain.__globals__}
        for name, cell in zip(plain.__code__.co_freevars, plain.__closure__ or ()):
            try:
                state[f"the variable {name!r} of the function around it"] = cell.cell_contents
            except ValueError:  # an empty cell
                pass
        defaults = plain.__defaults__ or ()
        names = plain.__code__.co_varnames[: plain.__code__.co_argcount][-len(defaults) :] if defaults else ()
        state |= {f"the default of {name!r}": value for name, value in zip(names, defaults)}
        state |= {f"the default of {name!r}": value for name, value in (plain.__kwdefaults__ or {}).items()}
    owner = function.__self__ if isinstance(function, MethodType) else function
    if not isinstance(owner, FunctionType):
        state |= {f"the attribute {name!r}": value for name, value in _attributes(owner).items()}
    for code, globals_of_code in executed.items():
        for name in _names_of(code):
            if name in globals_of_code and not hasattr(builtins, name):
                state[f"the global {name!r}"] = globals_of_code[name]
    return {name: _form(value) for name, value in state.items()}


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


def _names_of(code: CodeType) -> list[str]:
    inner = (name for each in code.co_consts if isinstance(each, CodeType) for name in _names_of(each))
    return [*code.co_names, *inner]


def _form(value: Any) -> bytes:
    """Bytes that change when the value does."""
    if isinstance(value, (FunctionType, ModuleType)):
        return b""
    value = _attributes(value) if isinstance(value, type) else value
    try:
        return xxhash.xxh3_128_digest(canonical(value))
    except NoCanonicalForm:
        pass
    try:
        return pickle.dumps(value)  # iterators include their position, generators of random numbers their state
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
