"""Texts of JSON as values: of a line of a file, or of a message.

Invariant: a text is one value or none, whichever reader has it, and nothing of it is lost: no object has a key twice,
and what a type makes of a number or of a time is that number or time.

Why: msgspec takes the last of two equal keys, rounds seconds to microseconds and integers to floats. Where the text, or
many of them, may have such, which a count of its bytes shows, it is looked at value by value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import msgspec
from msgspec import inspect

from drift_graph.moments import is_too_exact, span_of_text


class NoJson(ValueError):
    """Why a text of JSON has no value."""


#: What `Values` raises for a text that has no value.
NO_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, NoJson)


def why_none(error: BaseException, text: Any) -> str:
    """Why a text has no value, in words that do not depend on the version of msgspec: of invalid UTF-8 it raised a
    UnicodeDecodeError with a place in a string of the text, and from 0.23 on an error of its own without a place.
    """
    if isinstance(text, bytes) and (isinstance(error, UnicodeDecodeError) or str(error).startswith("Invalid UTF-8")):
        try:
            text.decode()
        except UnicodeDecodeError as invalid:
            return str(invalid)
    return str(error)


class Texts:
    """From a text of JSON its value."""

    def __call__(self, text: bytes) -> Any:
        """Raises NO_JSON: it has none; the error says why."""
        raise NotImplementedError

    def each(self, texts: Sequence[bytes]) -> Any | None:
        """The values of many; None where they are to be read one by one."""
        raise NotImplementedError

    def gathered(self, values: list[Any]) -> Any:
        """The values of one text after the other as payloads."""
        return values


class Values(Texts):
    """From a text the value that Python has for it, or one of a type.

    Args:
        kind: that it is converted to, for instance a dataclass or a msgspec Struct; Any for what Python has for JSON.

    Attributes:
        is_plain: whether it is not converted.

    Raises:
        TypeError: JSON is not converted to it.
    """

    def __init__(self, kind: Any = Any) -> None:
        self._decode = msgspec.json.Decoder(kind).decode
        self.is_plain = kind is Any
        self._typed = None if kind is Any else _Typed(inspect.type_info(kind))

    def __call__(self, text: bytes) -> Any:
        value = self._decode(text)
        plain = value if self._typed is None else _plain(text)
        if may_repeat_keys([text], [plain]):
            strict(text)
        if self._typed is not None and (why := self._typed.lost(plain)):
            raise NoJson(why)
        return value

    def each(self, texts: Sequence[bytes]) -> Sequence[Any] | None:
        try:
            values = list(map(self._decode, texts))
            if self._typed is None:
                return None if may_repeat_keys(texts, values) else values
            data = b"\n".join(texts)
            may_lose = self._typed.may_lose(data)
            if not may_lose and has_keys(data, len(texts) * self._typed.keys_min):
                return values
            plain = list(map(_plain, texts))
        except (*NO_JSON, TypeError):  # TypeError for what is no bytes: a message without a value, or a diverted line
            return None
        if may_repeat_keys(texts, plain) or (may_lose and any(map(self._typed.lost, plain))):
            return None
        return values


_plain = msgspec.json.Decoder().decode


def strict(text: bytes, number: Callable[[str], Any] | None = None) -> Any:
    """The value of a text that is known to be JSON.

    Args:
        number: from the digits of a number with a point or an exponent; None for a float.

    Raises:
        NoJson: an object has a key twice.
    """
    return json.loads(text.decode(), object_pairs_hook=_without_repeated_keys, parse_float=number)


def has_keys(data: bytes, count: int) -> bool:
    """Whether texts that have so many different keys, or more, have no others, and so none twice; False if unknown.

    Each key ends with a colon; those behind a quote, and no space, may be of keys.
    """
    colons = data.count(b":")
    if colons <= count:
        return colons == count
    numpy = _numpy()
    if numpy is None:
        return False
    found = numpy.frombuffer(data, numpy.uint8)
    before = found[numpy.flatnonzero(found == _COLON) - 1]
    return bool((before == _QUOTE).sum() == count and (before > _SPACE).all())


def may_repeat_keys(texts: Sequence[bytes], values: Sequence[Any]) -> bool:
    """Whether some object may have a key twice; False only if none has.

    Every colon follows a key or is in a text. If no key was lost, the texts have as many as the values written again,
    unless a text has one as an escape.
    """
    data = b"".join(texts)
    colons = data.count(b":")
    if set(map(type, values)) == {dict} and (sum(map(len, values)) == colons or has_keys(data, sum(map(len, values)))):
        return False
    return bool(colons) and (b"\\u003" in data or msgspec.json.encode(values).count(b":") != colons)


_QUOTE, _COLON, _SPACE, _POINT, _ZERO = b'": .0'
_EDGES = bytes.maketrans(b"123456789,[ -\t\n\r", b"0" * 9 + b":" * 7)
_SAMPLED = 4  # of as many bytes one is looked at: four of these in a row are within 16 digits


def may_have_large_integers(data: bytes) -> bool:
    """Whether there may be an integer that a 64-bit float does not hold: one of 16 digits or more."""
    numpy = _numpy()
    if numpy is not None:
        digits = numpy.frombuffer(data, numpy.uint8)[::_SAMPLED] - _ZERO < 10
        if not (digits[:-3] & digits[1:-2] & digits[2:-1] & digits[3:]).any():
            return False
    found = data.translate(_EDGES)
    return b":0000000000000000" in found or found.startswith(b"0000000000000000")


def _may_have_parts_of_microseconds(data: bytes, of_clocks: bool) -> bool:
    """Whether there may be a fraction of seven digits or more, in a time of a day or anywhere."""
    numpy = _numpy()
    if numpy is None:
        return True
    found = numpy.frombuffer(data, numpy.uint8)
    at = numpy.flatnonzero(found[:-7] == _POINT)
    if of_clocks:
        at = at[found[at - 3] == _COLON]
    return bool((found[at + 7] - _ZERO < 10).any())


@cache
def _numpy() -> Any:
    """The module, which not every installation has."""
    try:
        return import_module("numpy")
    except ImportError:
        return None


class _Typed:
    """What a type of msgspec would lose of a value of JSON.

    Attributes:
        keys_min: how many keys each text has, or more.
    """

    def __init__(self, info: inspect.Type) -> None:
        self._info = info
        self.keys_min = _keys_min(info, ())
        kinds = set(map(type, _inside(info, set())))
        self._has_floats = inspect.FloatType in kinds
        self._has_times = bool(kinds & {inspect.DateTimeType, inspect.TimeType})
        self._has_spans = inspect.TimeDeltaType in kinds

    def may_lose(self, data: bytes) -> bool:
        if self._has_floats and may_have_large_integers(data):
            return True
        if self._has_spans:
            return _may_have_parts_of_microseconds(data, of_clocks=False)
        return self._has_times and _may_have_parts_of_microseconds(data, of_clocks=True)

    def lost(self, value: Any) -> str:
        """What is lost of a value, and where it is; "" for nothing."""
        return next(_lost(self._info, value, "$"), "")


def _fields(info: Any) -> Sequence[inspect.Field]:
    return info.fields if isinstance(info, _WITH_FIELDS) else ()


_WITH_FIELDS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType, inspect.NamedTupleType)
_WITH_ITEMS = (inspect.ListType, inspect.SetType, inspect.FrozenSetType, inspect.VarTupleType, inspect.CollectionType)


def _inside(info: Any, seen: set[type]) -> Iterator[inspect.Type]:
    """A type and those of its parts."""
    yield info
    parts = [field.type for field in _fields(info)]
    if parts:
        if info.cls in seen:
            return
        seen.add(info.cls)
    if isinstance(info, _WITH_ITEMS):
        parts = [info.item_type]
    elif isinstance(info, inspect.TupleType):
        parts = list(info.item_types)
    elif isinstance(info, inspect.DictType):
        parts = [info.key_type, info.value_type]
    elif isinstance(info, inspect.UnionType):
        parts = list(info.types)
    elif isinstance(info, inspect.Metadata):
        parts = [info.type]
    for part in parts:
        yield from _inside(part, seen)


def _keys_min(info: Any, within: tuple[type, ...]) -> int:
    if isinstance(info, inspect.Metadata):
        return _keys_min(info.type, within)
    if isinstance(info, inspect.TupleType):
        return sum(_keys_min(each, within) for each in info.item_types)
    if not isinstance(info, _WITH_FIELDS) or _is_array(info) or info.cls in within:
        return 0
    tag = 1 if getattr(info, "tag_field", None) else 0
    return tag + sum(1 + _keys_min(field.type, (*within, info.cls)) for field in info.fields if field.required)


def _is_array(info: Any) -> bool:
    return isinstance(info, inspect.NamedTupleType) or bool(getattr(info, "array_like", False))


def _lost(info: Any, value: Any, where: str) -> Iterator[str]:
    if isinstance(info, inspect.Metadata):
        yield from _lost(info.type, value, where)
    elif isinstance(info, inspect.FloatType):
        if type(value) is int and float(value) != value:
            yield f"no float is the integer {value} - at `{where}`: make it an int, or a Decimal"
    elif isinstance(info, (inspect.DateTimeType, inspect.TimeType)):
        if type(value) is str and is_too_exact(value):
            yield f"{value} has more of a second than microseconds - at `{where}`: make it a str, and round it later"
    elif isinstance(info, inspect.TimeDeltaType):
        if type(value) is str:
            yield from _lost_of_span(value, where)
    elif isinstance(info, inspect.UnionType):
        yield from _lost_of_union(info, value, where)
    elif isinstance(value, list):
        kinds: Sequence[Any] = [field.type for field in _fields(info)]
        if isinstance(info, _WITH_ITEMS):
            kinds = [info.item_type] * len(value)
        elif isinstance(info, inspect.TupleType):
            kinds = info.item_types
        for at, (kind, each) in enumerate(zip(kinds, value)):
            yield from _lost(kind, each, f"{where}[{at}]")
    elif isinstance(value, dict):
        named = {field.encode_name: field.type for field in _fields(info)}
        for key, each in value.items():
            if isinstance(info, inspect.DictType):
                yield from _lost(info.key_type, key, f"{where}.{key}")
                yield from _lost(info.value_type, each, f"{where}.{key}")
            elif key in named:
                yield from _lost(named[key], each, f"{where}.{key}")


def _lost_of_span(value: str, where: str) -> Iterator[str]:
    try:
        span_of_text(value)
    except ValueError as error:
        yield f"{value}: {error} - at `{where}`"


def _lost_of_union(info: inspect.UnionType, value: Any, where: str) -> Iterator[str]:
    """Of the one member of a union that a value is: msgspec tells them apart by class, and objects by their tag."""
    for kind in info.types:
        if isinstance(kind, inspect.FloatType) and any(isinstance(other, inspect.IntType) for other in info.types):
            continue
        if isinstance(value, dict) and (tag := getattr(kind, "tag_field", None)) and value.get(tag) != kind.tag:  # type: ignore[attr-defined]
            continue
        yield from _lost(kind, value, where)


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise NoJson(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is there twice")
    return found
