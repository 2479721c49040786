"""What can be said of a user's function without calling it: where it is, and whether another one is the same."""

from __future__ import annotations

import contextlib
import functools
import opcode
import os
import reprlib
import signal
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from drift_graph.errors import GraphError

#: Folders whose frames are ours; each package adds its own when it is imported.
own_folders: list[str] = [__file__.rpartition(os.sep)[0]]  # not with pathlib, which takes long to import
_COMPILED = "kernel/drift_kernel/"  # where the compiled module says that its frames are
#: Where a frame raises by itself: a statement, and a generator into which something is thrown. None handles signals.
_RAISES = {opcode.opmap[name] for name in ("RAISE_VARARGS", "YIELD_VALUE", "RETURN_GENERATOR")}


def is_ours(filename: str) -> bool:
    """Whether a source file belongs to this library."""
    return filename.startswith((_COMPILED, *own_folders))


def pass_interrupts(error: BaseException) -> None:
    """Re-raise an exception of a user's function that a signal caused, such as Ctrl-C: it is no failure of the
    function.

    Anything else that a function raises, of whatever class, is the failure of its step, the same on every engine.
    """
    if not isinstance(error, Exception) and _is_from_signal(error):
        raise error


def _is_from_signal(error: BaseException) -> bool:
    """Whether a signal handler raised it. Python's own handler for Ctrl-C has no frame, and raises at any
    instruction.
    """
    handlers = [getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()]
    last: types.TracebackType | None = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        last, trace = trace, trace.tb_next
    if not isinstance(error, KeyboardInterrupt) or last is None:
        return False
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # in a worker, which ignores Ctrl-C
        return False
    code = last.tb_frame.f_code
    return is_ours(code.co_filename) or code.co_code[last.tb_lasti] not in _RAISES


def caller() -> str:
    """ "file:line" of the innermost frame outside this library: the user's line that declared a step."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "?"


def warn(message: str, kind: type[Warning] = UserWarning) -> None:
    """Warn of something at the innermost line outside this library, however deep in it that is found out."""
    frame: types.FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, kind, stacklevel=level)


def check_function(taker: str, function: object, kind: str = "a function") -> None:
    """Raises GraphError: it is no function."""
    if not callable(function):
        raise GraphError(f"{taker} takes {kind}, not {function!r:.80} (at {caller()}){field_hint(function)}")


def is_expression(given: object) -> bool:
    """Whether it is an expression of Polars, which is not imported for that."""
    return type(given).__module__.startswith("polars.")


def field_hint(value: object) -> str:
    """The end of an error, where the name of a field was passed in place of a function."""
    return f"; for the field of that name pass operator.itemgetter({value!r})" if isinstance(value, str) else ""


class LibraryFunction:
    """A function of this library, whose fields say more of it than a call does; see `field_of`."""

    __slots__ = ()


def field_of(function: object, name: str, otherwise: Any = None) -> Any:
    """A field of a function of this library. A user's function has none, whatever attributes its class has."""
    return getattr(function, name, otherwise) if isinstance(function, LibraryFunction) else otherwise


def has_inside(given: object, name: str) -> bool:
    """Whether a function of this library that has this field is somewhere in what was given to a step."""
    return any(field_of(part, name, False) for part in parts_of(given))


def parts_of(given: object) -> Iterator[Any]:
    """What was given to a step, and the parts of it where it is a function of this library, an aggregate, a partial
    function or a tuple.
    """
    yield given
    if isinstance(given, functools.partial):
        parts: Iterable[object] = (given.func, *given.args, *given.keywords.values())
    elif isinstance(given, (tuple, list)):
        parts = given
    elif isinstance(given, dict):
        parts = given.values()
    elif isinstance(given, LibraryFunction):
        names = (*getattr(given, "__struct_fields__", ()), *getattr(given, "__dict__", ()))
        parts = [getattr(given, each, None) for each in names]
    else:
        return
    for part in parts:
        yield from parts_of(part)


def user_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that the user wrote, inside the wrappers of this library."""
    while (inside := field_of(function, "user_function")) is not None:
        function = inside
    return function


def name_of(function: Callable[..., Any]) -> str:
    """A short name for messages and pictures."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return str(name).replace("<locals>.", "").rsplit(".", 1)[-1] if "<lambda>" in str(name) else str(name)


def line_of(function: Callable[..., Any]) -> str | None:
    """ "file:line" where a user's function is defined; None for one of this library or in C, and for a field's name."""
    code = _code_of(user_function(function))
    return None if code is None or is_ours(code.co_filename) else f"{code.co_filename}:{code.co_firstlineno}"


def is_written_here(function: Callable[..., Any]) -> bool:
    code = _code_of(user_function(function))
    return code is not None and is_ours(code.co_filename)


def _code_of(function: Callable[..., Any]) -> types.CodeType | None:
    if field_of(function, "is_field", False):
        return None
    if isinstance(function, functools.partial):
        return _code_of(user_function(function.func))
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return code if isinstance(code, types.CodeType) else None


class _Brief(reprlib.Repr):
    """repr, but only the beginning of a long text or sequence: all of it can take seconds and gigabytes."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self.maxlevel = 50
        self.maxtuple = self.maxlist = self.maxset = self.maxfrozenset = self.maxdeque = self.maxarray = most
        self.maxlong = self.maxother = sys.maxsize

    def repr_str(self, x: str, level: int) -> str:
        return repr(x[: self._most])

    def repr_bytes(self, x: bytes, level: int) -> str:
        return repr(x[: self._most])

    def repr_bytearray(self, x: bytearray, level: int) -> str:
        return repr(x[: self._most])

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        shown = islice(x.items(), self._most)
        return "{" + ", ".join(f"{self.repr1(key, level - 1)}: {self.repr1(it, level - 1)}" for key, it in shown) + "}"


def brief(value: object, characters_max: int = 1000) -> str:
    """repr(value), shortened if it is long: then a text with the same beginning of at least `characters_max`
    characters.

    Sets are sorted, so that the text is the same in every process.
    """
    return _Brief(characters_max).repr(value)


def safe_text(show: Callable[[Any], object], value: object, characters_max: int) -> str:
    """`show(value)` cut to a length; a placeholder if `show` raises or returns no text."""
    try:
        text = brief(value, characters_max) if show is repr else str(show(value))
    except Exception as error:
        return f"<{type(value).__qualname__}, which cannot be shown: {type(error).__name__}>"
    return text if len(text) <= characters_max else text[: characters_max - 3] + "..."


def same_function(left: Any, right: Any) -> bool:
    """Whether two functions have the same code and equal closures, defaults and arguments."""
    if left is right:
        return True
    if type(left) is not type(right):
        return False
    if isinstance(left, types.FunctionType):
        return (
            left.__code__ == right.__code__
            and _same_values(left.__defaults__ or (), right.__defaults__ or ())
            and left.__kwdefaults__ == right.__kwdefaults__
            and _same_values(_closure(left), _closure(right))
        )
    if isinstance(left, types.MethodType):
        return same_function(left.__func__, right.__func__) and bool(left.__self__ == right.__self__)
    if isinstance(left, functools.partial):
        return (
            same_function(left.func, right.func)
            and _same_values(left.args, right.args)
            and left.keywords == right.keywords
        )
    return bool(left == right)


class LoopVariable(NamedTuple):
    """A variable that a function reads and that the loop changes in which the function is written.

    Attributes:
        value: when the function was given to a step.
    """

    name: str
    value: Any
    function: Any

    @property
    def now(self) -> Any:
        """Its value now; that of then if it has none."""
        return dict(_read_outside(self.function)).get(self.name, self.value)

    @property
    def is_changed(self) -> bool:
        """Whether its value is another one now."""
        try:
            return not (self.now is self.value or bool(self.now == self.value))
        except Exception:  # such as tables, which are not one truth
            return True


def loop_variables(given: object) -> list[LoopVariable]:
    """The variables of loops around the user's line that functions in what was given to a step read.

    Why: a function reads a variable when it is called, which is behind the loop, where all of them read the last value.
    """
    found = []
    for function in parts_of(given):
        if not isinstance(function, types.FunctionType) or is_ours(function.__code__.co_filename):
            continue
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None and function.__code__ not in frame.f_code.co_consts:
            frame = frame.f_back
        if frame is not None:
            changed = _changed_around(frame.f_code, function.__code__)
            is_module = frame.f_locals is frame.f_globals
            found += [
                LoopVariable(name, value, function)
                for name, value in _read_outside(function)
                if name in changed and (is_module or name in function.__code__.co_freevars)
            ]
    return found


def _read_outside(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Names and values of what a function may read of the functions around it, and of its module."""
    code = function.__code__
    for name in code.co_names:
        if name in function.__globals__ and name not in code.co_freevars:
            yield name, function.__globals__[name]
    for name, cell in zip(code.co_freevars, function.__closure__ or ()):
        with contextlib.suppress(ValueError):  # it is empty: the variable comes later, or is deleted
            yield name, cell.cell_contents


@functools.lru_cache(256)
def _changed_around(code: types.CodeType, inner: types.CodeType) -> frozenset[str]:
    """The variables that are set in the loops of a function in which another one is made."""
    import dis  # here: few graphs are written in loops, and it takes a while to import

    instructions = list(dis.get_instructions(code))
    made_at = [each.offset for each in instructions if each.argval is inner]
    loops = [(each.argval, each.offset) for each in instructions if "JUMP_BACKWARD" in each.opname]
    around = [(start, end) for start, end in loops if any(start <= at <= end for at in made_at)]
    return frozenset(
        name
        for each in instructions
        if each.opname.startswith("STORE_") and any(start <= each.offset <= end for start, end in around)
        for name in (each.argval if type(each.argval) is tuple else (each.argval,))
        if type(name) is str
    )


def _closure(function: types.FunctionType) -> tuple[Any, ...]:
    return tuple(cell.cell_contents for cell in function.__closure__ or ())


def _same_values(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    return len(left) == len(right) and all(map(same_function, left, right))
