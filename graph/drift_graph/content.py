"""What a function can see of a dataclass, a Struct or a named tuple: its fields and its other attributes.

Invariant: two values of one class have the same `content` exactly when all their attributes are the same. A class whose
instances hold more than attributes is refused.

Why: the state of an instance lies in its slots, in its `__dict__`, or, for a subclass of a built-in type (str, list, an
exception), in memory of its own. Slots and `__dict__` are read; memory of its own shows in the size of an instance. Two
attributes are skipped: caches of `functools.cached_property`, which follow from the rest and exist only after they were
read, and `__orig_class__`, which typing sets on instances of generic classes.
"""

from __future__ import annotations

import dataclasses
import struct
import types
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import msgspec

_UNSEEN = frozenset({"__orig_class__"})
_SHAPES_MAX = 4096
_POINTER_BYTES = struct.calcsize("P")
_NATIVE_BASES = (msgspec.Struct, tuple)
#: The attributes that instances of each family may have beyond slots and __dict__.
_NATIVE: dict[int, type] = {13: object, 14: msgspec.Struct, 15: tuple}
_shapes: dict[type, Shape | None] = {}
_ours: dict[type, Shape] = {}


class Shape:
    """Where the attributes of a class's instances are.

    Attributes:
        code: of the family's extension: 13 dataclasses, 14 Structs, 15 named tuples.
        names: of the fields, in their order, and of other slots, sorted.
        refused: why instances have no canonical form; "" where they have.
    """

    __slots__ = ("code", "names", "refused", "_known", "_has_dict", "_size")

    def __init__(self, kind: type, code: int, fields: Sequence[str], unseen: Iterable[str] = ()) -> None:
        self.code = code
        self._size = len(fields)
        own = [base for base in kind.__mro__ if base is not object and not issubclass(base, _NATIVE_BASES)]
        slots = {name for base in own for name in _slots(base)}
        self.names = (*fields, *sorted(slots.difference(fields, unseen)))
        cached = {
            name for base in kind.__mro__ for name, each in vars(base).items() if isinstance(each, cached_property)
        }
        self._known = _UNSEEN.union(self.names, cached, unseen)
        self._has_dict = kind.__dictoffset__ != 0
        self.refused = ""
        family = _NATIVE[code]
        native = next((base for base in reversed(kind.__mro__) if _has_own_memory(base, family)), None)
        if native is not None:
            self.refused = (
                f"it is also a {native.__qualname__}, and what that holds is in no field; make it a field "
                f"of a class that is made of fields alone"
            )

    def content(self, value: Any) -> list[Any]:
        """Names and values in turn of the fields that are set; then, if there are other attributes, a dict of them."""
        found: list[Any]
        if self.code == 15:
            found = list(chain.from_iterable(zip(self.names, tuple.__iter__(value))))
        else:
            found = []
            for name in self.names:
                try:
                    found += (name, getattr(value, name))
                except AttributeError:
                    pass  # never set, or deleted
        if self._has_dict and not value.__dict__.keys() <= self._known:
            found.append({name: value.__dict__[name] for name in sorted(value.__dict__.keys() - self._known)})
        return found

    @property
    def known(self) -> frozenset[str] | None:
        """The names that `content` does not take for other attributes; None where instances have no others."""
        return self._known if self._has_dict else None

    def fits(self, value: Any) -> bool:
        """Whether a named tuple has as many entries as names."""
        return self.code != 15 or tuple.__len__(value) == self._size


def shape_of(kind: type) -> Shape | None:
    """The shape of a dataclass, a Struct or a named tuple; None for other classes."""
    try:
        return _shapes[kind]
    except KeyError:
        pass
    shape = _ours.get(kind)
    if shape is not None:
        pass
    elif dataclasses.is_dataclass(kind):
        shape = Shape(kind, 13, [field.name for field in dataclasses.fields(kind)])
    elif issubclass(kind, msgspec.Struct):
        shape = Shape(kind, 14, kind.__struct_fields__)
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        shape = Shape(kind, 15, kind._fields)
    if len(_shapes) >= _SHAPES_MAX:
        _shapes.clear()
    _shapes[kind] = shape
    return shape


def identified_by(kind: type, names: Sequence[str]) -> None:
    """Declare a dataclass of this library: only these fields identify an instance, the others are descriptive text."""
    words = {field.name for field in dataclasses.fields(kind)} - set(names)
    _ours[kind] = Shape(kind, 13, names, words)


def _slots(base: type) -> list[str]:
    return [name for name, each in vars(base).items() if type(each) is types.MemberDescriptorType]


def _has_own_memory(base: type, family: type) -> bool:
    """Whether instances are larger than their slots, or of variable length, beyond what their family has."""
    if base is object or (family is not object and issubclass(base, family)):
        return False
    slots = sum(len(_slots(each)) for each in base.__mro__)
    offsets = (base.__dictoffset__ > 0) + (base.__weakrefoffset__ > 0)
    return base.__itemsize__ != 0 or base.__basicsize__ > object.__basicsize__ + _POINTER_BYTES * (slots + offsets)
