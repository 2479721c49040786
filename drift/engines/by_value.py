"""Pickling of what cloudpickle cannot send by value: cached functions, msgspec Structs, classes with slots, and others;
and of the files that functions are from, which it leaves out from 3.1.3 on, and errors name.

Invariant: `pickle.loads` rebuilds the output of `dumps` in a fresh process that has this library, also if an object
refers to itself; objects that an importable module has by name are sent by name.

Why: an object is first rebuilt empty, so that pickle can refer to it, and filled afterwards. A cached function is first
a cache around a function that calls the real one, which comes later; a Struct's class is created from its fields alone,
which msgspec needs at once, and gets its methods later, as cloudpickle does with other classes.
"""

from __future__ import annotations

import functools
import inspect
import io
import pickle
import sys
import typing
import weakref
from collections.abc import Callable
from types import CodeType, MemberDescriptorType
from typing import Any

import cloudpickle
import msgspec
from cloudpickle.cloudpickle import _code_reduce, _make_skeleton_class

_Cached = type(functools.lru_cache(len))
_StructMeta: Any = type(msgspec.Struct)


class _Example(msgspec.Struct):
    field: list[Any] = msgspec.field(default_factory=list)


_Factory = type(_Example.__struct_defaults__[0])
#: Settings of a Struct's class that are keywords of its definition.
_CONFIG = (
    "frozen", "eq", "order", "array_like", "gc", "repr_omit_defaults", "omit_defaults", "forbid_unknown_fields",
    "weakref", "dict", "cache_hash", "tag", "tag_field",
)  # fmt: skip
_POST_INIT = "__post_init__"


def dumps(value: Any) -> bytes:
    """A pickle of a value; functions and classes of the running script, and what they refer to, go by value."""
    with io.BytesIO() as file:
        _Pickler(file, protocol=pickle.DEFAULT_PROTOCOL).dump(value)
        return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        reduce = _reducers.get(type(obj))
        if reduce is not None and not _is_importable(obj):
            return reduce(obj)
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and isinstance(reduced, tuple) and reduced[0] is _make_skeleton_class:
            return _reduced_class(obj, *reduced)
        return reduced


def _is_importable(value: Any) -> bool:
    """Whether other processes can import the value from a module by its name."""
    name, path = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if name is None or path is None or name == "__main__" or name in cloudpickle.list_registry_pickle_by_value():
        return False
    found: Any = sys.modules.get(name)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found is value


def _reduced_cached(cached: Any) -> Any:
    parameters = cached.cache_parameters()
    state = cached.__wrapped__, {name: each for name, each in vars(cached).items() if name != "__wrapped__"}
    return _empty_cached, (parameters["maxsize"], parameters["typed"]), state, None, None, _fill_cached


def _empty_cached(maxsize: int | None, typed: bool) -> Any:
    filled: list[Callable[..., Any]] = []

    def call(*arguments: Any, **named: Any) -> Any:
        return filled[0](*arguments, **named)

    cached = functools.lru_cache(maxsize, typed)(call)
    vars(cached)["__wrapped__"] = filled  # until it is filled
    return cached


def _fill_cached(cached: Any, state: tuple[Callable[..., Any], dict[str, Any]]) -> None:
    function, attributes = state
    cached.__wrapped__.append(function)
    vars(cached).update(attributes, __wrapped__=function)


def _reduced_property(cached: functools.cached_property[Any]) -> Any:
    state = {name: each for name, each in vars(cached).items() if name not in ("func", "lock")}
    return functools.cached_property, (cached.func,), state


def _new_type(name: str, supertype: Any, module: str) -> Any:
    make: Any = typing.NewType
    made = make(name, supertype)
    made.__module__ = module
    return made


def _reduced_code(code: CodeType) -> Any:
    return _code_of, (_code_reduce(code)[1], "".join(code.co_filename))  # another text each time, as for cloudpickle


def _code_of(arguments: tuple[Any, ...], file: str) -> CodeType:
    return CodeType(*arguments).replace(co_filename=file)


_reducers: dict[type, Callable[[Any], Any]] = {
    CodeType: _reduced_code,
    _Cached: _reduced_cached,
    functools.cached_property: _reduced_property,
    weakref.WeakKeyDictionary: lambda weak: (type(weak), (dict(weak.items()),)),
    weakref.WeakValueDictionary: lambda weak: (type(weak), (dict(weak.items()),)),
    typing.NewType: lambda kind: (_new_type, (kind.__name__, kind.__supertype__, kind.__module__)),
}


def _reduced_class(kind: Any, make: Any, arguments: Any, state: Any, *more: Any) -> Any:
    """A class as cloudpickle reduces it, without msgspec's cache, and with its slots or the fields of a Struct.

    Without slots, its instances would have a dict in the other process, and their pickles could not be read here.
    """
    constructor, *before, namespace, tracker, extra = arguments
    attributes, slots = state
    attributes.pop("__msgspec_cache__", None)
    if isinstance(kind, _StructMeta):
        constructor = functools.partial(_empty_struct, _fields_of(kind), _config_of(kind), _POST_INIT in attributes)
        for name in (*kind.__struct_fields__, "__slots__", "__struct_fields__", "__match_args__"):
            attributes.pop(name, None)
        attributes["__annotations__"] = kind.__annotations__
        known = ("__qualname__", "__orig_bases__", "__parameters__")
        namespace = {**namespace, **{name: attributes.pop(name) for name in known if name in attributes}}
        namespace["__qualname__"] = kind.__qualname__
    elif "__slots__" in attributes and not (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        namespace = {**namespace, "__slots__": attributes.pop("__slots__")}
        for name in [name for name, each in attributes.items() if type(each) is MemberDescriptorType]:
            del attributes[name]  # of a private slot, whose name is mangled
    return make, (constructor, *before, namespace, tracker, extra), (attributes, slots), *more


def _fields_of(struct: Any) -> list[tuple[str, dict[str, Any]]]:
    """The names of its own fields, and the arguments of `msgspec.field` for each."""
    defaults = dict(zip(reversed(struct.__struct_fields__), reversed(struct.__struct_defaults__)))
    fields = []
    for name in struct.__struct_fields__:
        if name in struct.__annotations__:
            default = defaults.get(name, msgspec.NODEFAULT)
            is_factory = type(default) is _Factory
            fields.append((name, {"default_factory": default.factory} if is_factory else {"default": default}))
    return fields


def _config_of(struct: Any) -> dict[str, Any]:
    """The fields of one class body are all positional or all keyword-only; keyword-only ones come after all bases'."""
    own = struct.__annotations__
    config = {name: getattr(struct.__struct_config__, name) for name in _CONFIG}
    encoded = zip(struct.__struct_fields__, struct.__struct_encode_fields__)
    config["rename"] = {name: each for name, each in encoded if name in own} or None
    parameters = inspect.signature(struct).parameters
    kinds = [parameters[name].kind for name in own if name in parameters]
    return {**config, "kw_only": inspect.Parameter.KEYWORD_ONLY in kinds}


def _empty_struct(
    fields: list[tuple[str, dict[str, Any]]],
    config: dict[str, Any],
    has_post_init: bool,
    name: str,
    bases: tuple[type, ...],
    namespace: dict[str, Any],
) -> Any:
    """A Struct's class with its fields, whose types and methods come later."""
    typed = {field: msgspec.field(**settings) for field, settings in fields}
    if has_post_init:  # msgspec checks for it now and never again
        typed[_POST_INIT] = lambda self: type(self).__post_init__(self)
    namespace = {**namespace, **typed, "__annotations__": {field: Any for field, _ in fields}}
    return _StructMeta(name, bases, namespace, **config)
