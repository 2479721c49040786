"""A function in storable form: a hash of its source and of what it closes over, and its text for people.

Invariant: two prints have equal `code` exactly when the functions have the same source over the same defaults, closures
and module values, at any depth of the user's own functions and classes. Moving a function to another line or file, or
changing its name, its comments, its docstring or its annotations, changes nothing.

Why: the hashes cover syntax trees, which are those of every Python, and never file names, line numbers or addresses. A
function without a source that is what runs (`exec`, a file that was edited since) is hashed by its instructions, which
are those of one Python; a part of a print says where its hash is from. Values are hashed by their canonical bytes;
patterns, paths, arrays and tables have none, and are hashed by what a pickle of them holds. Other objects of libraries
count by their types, since what they hold may change during a run: a generator of random numbers, the environment.
Functions of the standard library, of installed packages and of drift count by their names; a record's manifest has
their versions.
"""

from __future__ import annotations

import ast
import collections
import copyreg
import dis
import enum
import functools
import inspect
import itertools
import linecache
import operator
import sys
import sysconfig
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import msgspec
import xxhash

from drift.urls import shown_safely
from drift_graph.canonical import NoCanonicalForm, canonical
from drift_graph.functions import brief, field_of, is_ours, line_of, name_of, safe_text

#: The field that holds the step's name, of each function that does.
_NAMED_AFTER_STEPS = {
    "drift.diverting.Tried": "step",
    "drift.diverting.TriedRows": "step",
    "drift.diverting.TriedStep": "name",
    "drift.flow.corrected.EachByOwnTime": "step",
}
#: One function: {"name", "where", "code", "parts": [...]}; the first part is the function itself.
FunctionPrint = dict[str, Any]

#: Where the hash of a part is from that has a source.
SOURCE = "source"

_SHOWN_CHARACTERS_MAX, _READ_CHARACTERS_MAX = 200, 10_000
_INSTALLED = tuple(sorted({sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")}))
_GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
#: Packages whose values without canonical form are constants as a rule: patterns, paths, zones, arrays, tables.
_OF_CONSTANTS = frozenset({
    *("re", "pathlib", "zoneinfo", "collections", "array", "pandas", "polars", "pyarrow"),
    *("datetime", "ipaddress", "string", "types"),
})  # fmt: skip
#: Types whose subclasses are these values, with methods of their own.
_CONTENTS: tuple[Any, ...] = (dict, list, tuple, collections.deque, str, bytes, bytearray, int, float)
_NOTED = ("_fields", "_field_defaults", "_abc_impl")
_SCALARS = frozenset({str, bytes, int, float, bool, type(None)})
_METHODS = (types.FunctionType, staticmethod, classmethod, property)


def print_of(function: Callable[..., Any]) -> FunctionPrint:
    """The print of one callable: a function, lambda, partial, method, builtin, callable object or class."""
    walk = _Walk()
    top = walk.value(function)
    parts = walk.parts or [_part(top["shown"] or top["type"], "by name", top["hash"] or "")]
    shown = field_of(function, "user_function", function)  # of a scan: the user's function
    return {"name": name_of(shown), "where": line_of(shown), "code": _hash_of(parts), "parts": parts}


def with_step_names(print_: FunctionPrint, names: Mapping[str, str]) -> FunctionPrint:
    """The print of the same function in a graph whose steps have other names: what diverts items holds its step's.

    Args:
        names: of now, by those of then.
    """
    hashes = {value_hash(then): (value_hash(now), repr(now)) for then, now in names.items()}
    parts = []
    for part in print_["parts"]:
        values = [dict(value) for value in part["values"]]
        if values and values[0]["name"] == "class" and values[0]["shown"] in _NAMED_AFTER_STEPS:
            for value in values:
                if value["name"] == _NAMED_AFTER_STEPS[values[0]["shown"]] and value["hash"] in hashes:
                    value["hash"], value["shown"] = hashes[value["hash"]]
        parts.append({**part, "values": values})
    return {**print_, "code": _hash_of(parts), "parts": parts}


def _part(name: str, kind: str, code: str, where: str | None = None) -> dict[str, Any]:
    return {"name": name, "where": where, "kind": kind, "code": code, "from": None, "text": None, "values": []}


def _hash_of(parts: list[dict[str, Any]]) -> str:
    """Of parts without names and locations; for a value its hash, else the index of its part, else its type."""
    known = ("name", "part", "hash", "type")
    return value_hash([
        (part["kind"], part["code"], [tuple(map(value.get, known)) for value in part["values"]]) for part in parts
    ])  # fmt: skip


def value_hash(value: Any) -> str:
    return xxhash.xxh3_128_hexdigest(canonical(value))


class _Walk:
    """Collects the user's functions and classes that one function reaches, each once, in the order of discovery."""

    def __init__(self) -> None:
        self.parts: list[dict[str, Any]] = []
        self._known: dict[int, int] = {}
        self._alive: list[Any] = []  # keeps objects alive so that no id is used twice

    def value(self, value: Any, name: str = "") -> dict[str, Any]:
        """A function, class or other value: {"part": index} if it is inspected, else {"hash", "shown"}.

        Args:
            name: under which it was reached.
        """
        of = type if isinstance(value, type) else type(value)  # whatever its metaclass
        kind = f"{of.__module__}.{of.__qualname__}".removeprefix("builtins.")
        if _is_walked(value):
            return {"part": self._part(value), "type": kind}
        known = _global_name(value)
        if known is not None:
            return {"hash": value_hash(known), "shown": known, "type": kind}
        shown = safe_text(lambda it: shown_safely(brief(it, _READ_CHARACTERS_MAX), name), value, _SHOWN_CHARACTERS_MAX)
        try:
            return {"hash": xxhash.xxh3_128_hexdigest(canonical(value)), "shown": shown, "type": kind}
        except NoCanonicalForm:
            if isinstance(value, (tuple, list, dict)) or _has_attributes(value) or _reduced(value) is not None:
                return {"part": self._part(value), "type": kind}
            return {"hash": None, "shown": None if " at 0x" in shown else shown, "type": kind}

    def _part(self, value: Any) -> int:
        if id(value) in self._known:
            return self._known[id(value)]
        index = self._known[id(value)] = len(self.parts)
        self._alive.append(value)
        part = _part(name_of(value), "", "", None if is_ours(_filename(type(value))) else line_of(value))
        self.parts.append(part)
        for name, found in self._filled(part, value):
            known = self.value(found, name)
            part["values"].append({"name": name, **known})
            if known.get("hash") is not None:
                classes = {f"{name}, of class {kind.__qualname__}": kind for kind in _classes_in(found)}
                part["values"] += [{"name": of, **self.value(classes[of])} for of in sorted(classes)]
        return index

    def _filled(self, part: dict[str, Any], value: Any) -> Iterator[tuple[str, Any]]:
        """Fill in a part, and return what it reaches."""
        if isinstance(value, types.FunctionType) and not _is_users(value):
            name = value_hash(_global_name(value))
            part |= {"kind": "library function", "code": name}
            return _closure_of(value)
        if isinstance(value, types.FunctionType):
            part["kind"] = "function"
            text, part["code"] = _source_of(value.__code__)
            part["text"] = None if text is None else shown_safely(text)
            part["from"] = SOURCE if text is not None else sys.implementation.cache_tag
            return _reached(value)
        if isinstance(value, type):
            part["kind"] = "class"
            part["where"] = _class_location(value)
            return _class_body(value)
        if isinstance(value, types.MethodType):
            part["kind"] = "method"
            return iter((("function", value.__func__), ("object", value.__self__)))
        if isinstance(value, functools.partial):
            part["kind"] = "partial"
            return iter((("function", value.func), *_numbered("argument", value.args), *sorted(value.keywords.items())))
        if isinstance(value, _GETTERS):
            part["kind"] = type(value).__name__
            return iter(_numbered("argument", value.__reduce__()[1]))
        if hasattr(value, "__wrapped__") and not hasattr(type(value).__call__, "__code__"):
            part["kind"] = f"{type(value).__module__}.{type(value).__qualname__}"  # such as functools.lru_cache's
            return iter((("function", value.__wrapped__),))
        if isinstance(value, dict) and not _is_users(type(value)):
            part["kind"] = "dict"
            factory = [("default", value.default_factory)] if isinstance(value, collections.defaultdict) else []
            return iter([*factory, *((f"[{safe_text(repr, key, 80)}]", each) for key, each in value.items())])
        if isinstance(value, (tuple, list)) and not _is_users(type(value)):
            part["kind"] = type(value).__name__
            return iter([(f"[{index}]", each) for index, each in enumerate(value)])
        part["kind"] = "object"
        if isinstance(value, types.BuiltinFunctionType):
            return iter((("method", value.__qualname__), ("object", value.__self__)))
        if _has_attributes(value) or callable(value):
            return _object_body(value)
        part["kind"] = "library object"
        return iter(_numbered("part", _reduced(value)))


def _classes_in(value: Any) -> Iterator[type]:
    """The user's classes of which a value with canonical bytes has instances: what they do is in no bytes."""
    if _is_users(type(value)):
        yield type(value)
    each: Iterable[Any] = ()
    if isinstance(value, dict):
        each = itertools.chain(value, value.values())
    elif isinstance(value, (tuple, list, set, frozenset)):
        each = value
    elif _is_users(type(value)) and not isinstance(value, enum.Enum):
        each = (found for _, found in _attributes_of(value))
    for one in each:
        if type(one) not in _SCALARS:
            yield from _classes_in(one)


def _is_walked(value: Any) -> bool:
    """Whether a value is inspected, not hashed."""
    if isinstance(value, types.FunctionType):
        return _is_users(value) or value.__closure__ is not None
    if isinstance(value, type):
        return _is_users(value)
    if isinstance(value, (types.MethodType, functools.partial, *_GETTERS)):
        return True
    if isinstance(value, types.BuiltinFunctionType):
        return _is_bound(value) and not _has_canonical_form(value.__self__)
    if not callable(value):
        return False
    return hasattr(type(value).__call__, "__code__") or hasattr(value, "__wrapped__")


def _numbered(word: str, values: Any) -> list[tuple[str, Any]]:
    return [(f"{word} {index}", value) for index, value in enumerate(values)]


def _is_users(value: Any) -> bool:
    """Whether code is the user's: not of drift, the standard library or an installed package."""
    if isinstance(value, type):
        module = sys.modules.get(value.__module__)
        if value.__module__ == "builtins" or module is None:
            return value.__module__ != "builtins"
        filename = getattr(module, "__file__", None)
        if filename is None:  # a notebook, or a module in C
            return getattr(getattr(module, "__spec__", None), "origin", None) != "built-in"
    else:
        filename = value.__code__.co_filename
    return not (is_ours(filename) or filename.startswith((*_INSTALLED, "<frozen")))


def _global_name(value: Any) -> str | None:
    """The qualified name of a builtin, a module, or a library's function or class."""
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)):
        return f"{value.__objclass__.__module__}.{value.__qualname__}".removeprefix("builtins.")
    if isinstance(value, types.BuiltinFunctionType) and _is_bound(value):
        return f"{value.__qualname__} of {xxhash.xxh3_128_hexdigest(canonical(value.__self__))}"
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType, type)):
        return f"{value.__module__}.{value.__qualname__}".removeprefix("builtins.")
    if type(value).__module__ == "numpy" and type(value).__name__ == "ufunc":
        return f"numpy.{value.__name__}"
    return None


def _reached(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function depends on: defaults, closure, and the names it reads from its module."""
    yield from _numbered("default", function.__defaults__ or ())
    for name, value in sorted((function.__kwdefaults__ or {}).items()):
        yield f"default {name}", value
    yield from _closure_of(function)
    for name, value in _globals_of(function.__code__, function.__globals__).items():
        yield f"global {name}", value


def _closure_of(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            yield f"closure {name}", cell.cell_contents
        except ValueError:  # a cell that is not filled yet
            continue


def _globals_of(code: types.CodeType, names: Mapping[str, Any]) -> dict[str, Any]:
    """The module values that code reads by name, also as attributes of modules, in the order of their names."""
    found: dict[str, Any] = {}
    instructions = list(dis.get_instructions(code))
    for at, instruction in enumerate(instructions):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") and instruction.argval in names:
            name, value = instruction.argval, names[instruction.argval]
            following = at + 1
            while isinstance(value, types.ModuleType) and following < len(instructions):
                step = instructions[following]
                if step.opname not in ("LOAD_ATTR", "LOAD_METHOD") or not hasattr(value, step.argval):
                    break
                name, value = f"{name}.{step.argval}", getattr(value, step.argval)
                following += 1
            found[name] = value
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _globals_of(constant, names)
    return dict(sorted(found.items()))


def _instructions(code: types.CodeType) -> tuple[Any, ...]:
    """What a code does, without lines and docstring."""
    names = code.co_varnames, code.co_names, code.co_freevars, code.co_cellvars
    arguments = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    return code.co_code, code.co_exceptiontable, names, arguments, _constant(code.co_consts)


def _constant(value: Any) -> Any:
    """A constant in a form that has canonical bytes."""
    if isinstance(value, types.CodeType):
        return _instructions(value)
    if isinstance(value, tuple):
        return tuple(map(_constant, value))
    try:
        canonical(value)
    except NoCanonicalForm:
        return f"{type(value).__qualname__} {value!r}"
    return value


def _class_body(kind: type) -> Iterator[tuple[str, Any]]:
    """The user's definitions in a class, and its base classes that are the user's."""
    for base in kind.__bases__:
        if base is not object:
            yield f"base {base.__qualname__}", base
    if _is_users(type(kind)):
        yield "metaclass", type(kind)
    if isinstance(kind, enum.EnumMeta):
        members: list[Any] = list(kind.__members__.values())
        yield from ((f"member {member.name}", member.value) for member in members)
    elif is_dataclass(kind):
        yield "fields", [(field.name, str(field.type), field.compare) for field in fields(kind)]
        for each in fields(kind):
            if each.default_factory is not MISSING:
                yield f"default {each.name}", each.default_factory
    elif issubclass(kind, msgspec.Struct):
        yield "fields", list(kind.__struct_fields__)
        for found in msgspec.structs.fields(kind):
            default = found.default if found.default is not msgspec.NODEFAULT else found.default_factory
            if default is not msgspec.NODEFAULT:
                yield f"default {found.name}", default
    elif hasattr(kind, "_fields"):
        yield "fields", list(kind._fields)
        for name, default in getattr(kind, "_field_defaults", {}).items():
            yield f"default {name}", default
    for name, value in sorted(vars(kind).items()):
        if isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType, enum.Enum)):
            continue
        noted = name.startswith("__") or (name[0] == name[-1] == "_") or name in _NOTED
        if noted and not isinstance(value, _METHODS):
            continue  # generated by Python
        for function in _functions_in(value):
            if not (isinstance(function, types.FunctionType) and _is_generated(kind, function)):
                yield name, function


def _is_generated(kind: type, function: types.FunctionType) -> bool:
    """Whether a method was generated by dataclass or NamedTuple; `fields` covers it."""
    made = inspect.unwrap(function).__code__.co_filename == "<string>"
    return made and (is_dataclass(kind) or hasattr(kind, "_fields"))


def _functions_in(value: Any) -> tuple[Any, ...]:
    if isinstance(value, (staticmethod, classmethod)):
        return (value.__func__,)
    if isinstance(value, property):
        return tuple(each for each in (value.fget, value.fset) if each is not None)
    if isinstance(value, functools.cached_property):
        return (value.func,)
    if isinstance(value, functools.partialmethod):
        return (functools.partial(value.func, *value.args, **value.keywords),)
    return (value,)


def _object_body(value: Any) -> Iterator[tuple[str, Any]]:
    """A callable object: its class (a class of drift by name) and its attributes."""
    yield "class", type(value)
    for base in _CONTENTS:
        if isinstance(value, base):
            content = base(value)
            yield "content", value_hash(content) if base in (str, bytes, bytearray) else content  # may be a secret
            break
    yield from _attributes_of(value)


def _attributes_of(value: Any) -> Iterator[tuple[str, Any]]:
    kind = type(value)
    if is_dataclass(kind):
        names = [field.name for field in fields(kind)]
    elif issubclass(kind, msgspec.Struct):
        names = [*kind.__struct_fields__]
    else:
        slots = [name for each in kind.__mro__ for name in getattr(each, "__slots__", ())]
        names = sorted({*slots, *getattr(value, "__dict__", ())})
    for name in names:
        if hasattr(value, name):
            yield name, getattr(value, name)


def _has_attributes(value: Any) -> bool:
    """Whether a value is its class and its attributes: one of a user's class, or a process, windows or an aggregate of
    drift, which hold users' functions.
    """
    return _is_users(type(value)) or (isinstance(value, msgspec.Struct) and is_ours(_filename(type(value))))


def _reduced(value: Any) -> list[Any] | None:
    """What a constant of a library is made of, as for a pickle: a pattern's text, an array's bytes. None for others."""
    module = type(value).__module__
    is_constant = module == "numpy" or module.partition(".")[0] in _OF_CONSTANTS or type(value) in (range, slice)
    if isinstance(value, types.MappingProxyType):
        return [dict(value)]
    if not is_constant:  # such as numpy.random
        return None
    try:
        of_type = copyreg.dispatch_table.get(type(value))
        made = of_type(value) if of_type is not None else value.__reduce_ex__(4)
    except Exception:  # a class may refuse in any way
        return None
    if not isinstance(made, tuple):
        return None
    function, arguments, state, *entries = made if len(made) > 2 else (*made, None)
    states = state if isinstance(state, tuple) else (state,)
    return [function, *arguments, *states, *[list(each) for each in entries[:2] if each is not None]]


def _is_bound(function: types.BuiltinFunctionType) -> bool:
    return not isinstance(function.__self__, (types.ModuleType, type(None)))


def _has_canonical_form(value: Any) -> bool:
    try:
        canonical(value)
    except NoCanonicalForm:
        return False
    return True


def _filename(kind: type) -> str:
    return str(getattr(sys.modules.get(kind.__module__), "__file__", None) or "")


def _class_location(kind: type) -> str | None:
    try:
        _, line = inspect.getsourcelines(kind)
        return f"{inspect.getsourcefile(kind)}:{line}"
    except (OSError, TypeError):
        return None


def _source_of(code: types.CodeType) -> tuple[str | None, str]:
    """A function's text and the hash of its syntax tree; of what has no text, or another one since, that of its
    instructions.
    """
    linecache.checkcache(code.co_filename)
    lines = tuple(linecache.getlines(code.co_filename))
    parsed = _parsed(lines, code.co_filename) if lines else None
    found = None if parsed is None else parsed.source_of(code)
    return found or (None, value_hash(_instructions(code)))


class _Parsed:
    """A file's functions as they were parsed and compiled, by first lines; what is found of one is found once."""

    def __init__(self, lines: tuple[str, ...], tree: ast.Module, module: types.CodeType) -> None:
        self._lines = lines
        self._codes: dict[int, list[types.CodeType]] = {}
        self._nodes: dict[int, list[_FunctionNode]] = {}
        self._found: dict[Any, tuple[str, str] | None] = {}
        todo = [module]
        for code in todo:
            self._codes.setdefault(code.co_firstlineno, []).append(code)
            todo += [each for each in code.co_consts if isinstance(each, types.CodeType)]
        for node in ast.walk(tree):
            if isinstance(node, ast.Lambda):
                self._nodes.setdefault(node.lineno, []).append(node)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                self._nodes.setdefault(first, []).append(node)

    def source_of(self, code: types.CodeType) -> tuple[str, str] | None:
        """A function's text and the hash of its syntax tree; None if its file has other instructions now."""
        # The first 3.11s take codes for equal that differ in these tables only.
        known = (code, code.co_exceptiontable, code.co_linetable)
        if known not in self._found:
            self._found[known] = self._look_for(code)
        return self._found[known]

    def _look_for(self, code: types.CodeType) -> tuple[str, str] | None:
        line = code.co_firstlineno
        node = _node_of(code, self._nodes.get(line, ())) if code in self._codes.get(line, ()) else None
        if node is None:
            return None
        if isinstance(node, ast.Lambda):
            text = ast.get_source_segment("".join(self._lines), node) or ""
        else:
            text = textwrap.dedent("".join(self._lines[line - 1 : node.end_lineno]))
        return text, value_hash(_tree(node, top=True))


@functools.lru_cache(maxsize=16)
def _parsed(lines: tuple[str, ...], filename: str) -> _Parsed | None:
    text = "".join(lines)
    try:
        return _Parsed(lines, ast.parse(text), compile(text, filename, "exec", dont_inherit=True))
    except (SyntaxError, ValueError):
        return None


_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def _node_of(code: types.CodeType, nodes: Sequence[_FunctionNode]) -> _FunctionNode | None:
    """Of the nodes that begin in a line the one that was compiled to this code; among lambdas, by column."""
    if code.co_name != "<lambda>":
        return next((node for node in nodes if not isinstance(node, ast.Lambda) and node.name == code.co_name), None)
    found = [node for node in nodes if isinstance(node, ast.Lambda)]
    if len(found) < 2:
        return found[0] if found else None
    positions = [(line, column) for line, _, column, _ in code.co_positions() if line and column]
    fitting = [node for node in found if all(_holds(node.body, at) for at in positions)]
    return min(fitting, key=lambda node: len(ast.dump(node)), default=None)


def _holds(node: ast.expr, position: tuple[int, int]) -> bool:
    return (node.lineno, node.col_offset) <= position <= (node.end_lineno or 0, node.end_col_offset or 0)


_NO_MEANING = frozenset({"annotation", "returns", "type_comment", "kind", "ctx", "type_params"})


def _tree(node: Any, *, top: bool = False) -> Any:
    """A syntax tree as nested tuples, the same for every Python: without empty fields and without what has no
    effect.
    """
    if isinstance(node, list):
        return tuple(_tree(each) for each in node)
    if not isinstance(node, ast.AST):
        return _constant(node)
    parts: list[Any] = [type(node).__name__]
    for name, value in ast.iter_fields(node):
        if name in _NO_MEANING or value is None or value == [] or (top and name in ("decorator_list", "name")):
            continue
        if name == "body" and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node):
            value = value[1:]
        parts.append((name, _tree(value)))
    return tuple(parts)
