"""Values from their canonical or stored bytes: the inverse of `canonical` and `stored`.

Invariant: a restored value encodes to the very bytes it was read from, so it is the same value of the same types;
otherwise `CannotRestore` says why. Reading untrusted bytes is safe: nothing is imported, and no code runs except that
of classes that the caller passes.

Why: the form has each value's type and length; a class is looked up by its qualified name among the given ones and
nowhere else; and the restored value is encoded again and compared.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import types
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgpack
import msgspec
from msgspec.structs import force_setattr

from drift_graph.called import called
from drift_graph.canonical import NoCanonicalForm, encode_many, stored_each
from drift_graph.errors import InputError, SettingsError
from drift_graph.scalars import scalar_of

#: Classes by qualified name.
Classes = Mapping[str, type]


class CannotRestore(InputError):
    """The bytes are no canonical form, or the form of a class that is unknown here or cannot be rebuilt."""


def named_classes(classes: Classes | Iterable[type]) -> Classes:
    """Classes by qualified name; the argument may be such a dict already.

    Raises:
        SettingsError: an entry is not a class.
    """
    named: dict[str, type] = {}
    for kind in classes.values() if isinstance(classes, Mapping) else classes:
        if not isinstance(kind, type):
            raise SettingsError(
                f"classes contains {kind!r:.80}, no class; pass the classes of the payloads, or a dict of them by name"
            )
        named[kind.__qualname__] = kind
    return classes if isinstance(classes, Mapping) else named


@called
def restored(data: bytes, classes: Classes | Iterable[type] | None = None) -> Any:
    """The value with these bytes.

    >>> from drift_graph.canonical import canonical
    >>> restored(canonical({"zone": "JFK", "fares": (30.5, None)}))
    {'zone': 'JFK', 'fares': (30.5, None)}

    Args:
        data: the result of `canonical` or `stored` for one value.
        classes: enums, dataclasses, Structs and named tuples that may be in it, or these by qualified name; see
            `classes_near`.

    Raises:
        CannotRestore: the bytes are not canonical, or a class is not known.
    """
    values = restored_all(data, named_classes(classes or {}))
    if len(values) != 1:
        raise CannotRestore(f"{len(data)} bytes hold {len(values)} values where one was expected")
    return values[0]


def restored_all(data: bytes, classes: Classes | None = None) -> list[Any]:
    """The values whose canonical bytes follow each other in `data`: the inverse of `encode_many`.

    Raises:
        CannotRestore: as in `restored`.
    """
    builder = Restoring(classes or {})
    try:
        values = builder.values(data)
    except CannotRestore:
        raise
    except RecursionError:
        raise CannotRestore("the value is nested too deep to be read") from None
    except Exception as error:
        raise CannotRestore(f"these are no canonical bytes: {type(error).__name__}: {error}") from error
    if not _is_form_of(data, values):
        raise CannotRestore(
            f"the restored value has other bytes: the data was changed, or a class was since; "
            f"they begin {data[:40].hex()}"
        )
    return values


def plain_values(count: int, data: bytes) -> list[Any]:
    """`count` values from their canonical bytes, joined, if all are scalars, tuples, or dicts of these.

    Nothing is checked: only for bytes written by this library.
    """
    return list(msgpack.unpackb(b"\xdd" + count.to_bytes(4, "big") + data, use_list=False, strict_map_key=False))


def _is_form_of(data: bytes, values: list[Any]) -> bool:
    try:
        return b"".join(stored_each(values)) == data or encode_many(values) == data
    except NoCanonicalForm:
        return False


class Restoring:
    """Builds values from the inside out."""

    def __init__(self, classes: Classes) -> None:
        self._classes = classes

    def values(self, data: bytes | memoryview) -> list[Any]:
        unpacker = msgpack.Unpacker(
            use_list=False, strict_map_key=False, ext_hook=self._extension, max_buffer_size=max(len(data), 1)
        )
        unpacker.feed(data)
        values = list(unpacker)
        if unpacker.tell() != len(data):
            raise CannotRestore(f"the bytes end within a value, {unpacker.tell()} of {len(data)} bytes were read")
        return values

    def _extension(self, code: int, body: bytes) -> Any:
        read = _extensions.get(code)
        if read is not None:
            return read(self.values(body))
        if code == 1:
            return self.values(body)
        if code in (2, 3):
            return (set if code == 2 else frozenset)(self.values(body))
        if code == 4:
            return int.from_bytes(body, "big", signed=True)
        if code == 5:
            return body.decode("utf-8", "surrogatepass")
        if code == 11:
            return uuid.UUID(bytes=body[:16], is_safe=_SAFE[body[16:]])
        if code == 16:
            return bytearray(body)
        if code == 18:
            return _fraction(body.decode("ascii"))
        if code == 19:
            return _scalar(self.values(body))
        if code in _families:
            name, *rest = self.values(body)
            return _families[code](self._class(name), rest)
        raise CannotRestore(f"extension {code} is unknown to this version; a newer drift may have written it")

    def _class(self, name: str) -> type:
        known = self._classes.get(name)
        if known is None:
            raise CannotRestore(
                f"class {name!r} is not known here: load the graph from the file that defines it, or name it in "
                f"classes="
            )
        return known


def _scalar(parts: list[Any]) -> Any:
    try:
        return scalar_of(parts[0], parts[1:])
    except ImportError as error:
        raise CannotRestore(f"a payload has a {parts[0]}, and {error}: pip install it") from None


def _fraction(text: str) -> fractions.Fraction:
    """Parsed strictly: for "1e999999999" Fraction itself would take all memory."""
    over, _, under = text.partition("/")
    return fractions.Fraction(int(over), int(under or "1"))


def _datetime(parts: list[Any]) -> datetime.datetime:
    text, zone, fold = parts
    return _zoned(datetime.datetime.fromisoformat(text), zone, fold)  # type: ignore[return-value]


def _time(parts: list[Any]) -> datetime.time:
    text, zone, fold = parts
    return _zoned(datetime.time.fromisoformat(text), zone, fold)  # type: ignore[return-value]


def _zoned(moment: Any, zone: str | tuple[str] | None, fold: int) -> datetime.datetime | datetime.time:
    """A datetime in its own zone; its isoformat has only the offset."""
    moment = moment.replace(fold=fold)
    if isinstance(zone, tuple):
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # here: it takes long to import, and few moments have one

        try:
            return moment.replace(tzinfo=ZoneInfo(*zone))  # type: ignore[no-any-return]
        except (ZoneInfoNotFoundError, ValueError):
            raise CannotRestore(f"time zone {zone[0]!r} is not known on this machine; install tzdata") from None
    if zone is None or str(moment.tzinfo) == zone:
        return moment  # type: ignore[no-any-return]
    return moment.replace(tzinfo=datetime.timezone(moment.utcoffset(), zone))  # type: ignore[no-any-return]


#: By what follows the bytes of a UUID.
_SAFE = {b"": uuid.SafeUUID.unknown, b"\0": uuid.SafeUUID.safe, b"\1": uuid.SafeUUID.unsafe}

#: Built from the values in the body.
_extensions: dict[int, Callable[[list[Any]], Any]] = {
    6: _datetime,
    7: lambda parts: datetime.date.fromisoformat(parts[0]),
    8: _time,
    9: lambda parts: datetime.timedelta(*parts),
    10: lambda parts: decimal.Decimal(tuple(parts)),
    17: lambda parts: complex(*parts),
}


def _enum(kind: type, parts: list[Any]) -> Any:
    if not issubclass(kind, enum.Enum):
        raise CannotRestore(f"class {kind.__qualname__!r} is no Enum here")
    return kind(parts[0]) if issubclass(kind, enum.Flag) else kind[parts[0]]


def _content(parts: list[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields, and other attributes."""
    others = parts[-1] if len(parts) % 2 else {}
    if any(name[:2] == "__" for name in others):
        raise CannotRestore(f"attributes {', '.join(map(repr, others))} are not the user's; the bytes were changed")
    return dict(zip(parts[:-1:2], parts[1::2])), others


def _dataclass(kind: type, parts: list[Any]) -> Any:
    """Sets the attributes as they were, without __init__ and __post_init__, which ran when the value was made."""
    if not dataclasses.is_dataclass(kind):
        raise CannotRestore(f"class {kind.__qualname__!r} is no dataclass here")
    fields, others = _content(parts)
    missing = [field.name for field in dataclasses.fields(kind) if field.init and field.name not in fields]
    if missing:
        raise CannotRestore(
            f"class {kind.__qualname__!r} has a field {missing[0]!r} here, which the bytes lack: it has changed"
        )
    value = object.__new__(kind)
    for name, each in (*fields.items(), *others.items()):
        object.__setattr__(value, name, each)
    return value


def _struct(kind: type, parts: list[Any]) -> Any:
    if not issubclass(kind, msgspec.Struct):
        raise CannotRestore(f"class {kind.__qualname__!r} is no msgspec Struct here")
    fields, others = _content(parts)
    value = kind(**{name: fields[name] for name in kind.__struct_fields__ if name in fields})
    for name, each in fields.items():  # its __post_init__ may have changed them
        force_setattr(value, name, each)
    if others:
        value.__dict__.update(others)
    return value


def _named_tuple(kind: type, parts: list[Any]) -> Any:
    if not issubclass(kind, tuple):
        raise CannotRestore(f"class {kind.__qualname__!r} is no named tuple here")
    fields, others = _content(parts)
    value = tuple.__new__(kind, [fields[name] for name in kind._fields])  # type: ignore[attr-defined]
    if others:
        value.__dict__.update(others)
    return value


#: Built from a class and what follows its name.
_families: dict[int, Callable[[type, list[Any]], Any]] = {12: _enum, 13: _dataclass, 14: _struct, 15: _named_tuple}


def classes_near(functions: Iterable[Callable[..., Any]], more: Iterable[type] = ()) -> dict[str, type]:
    """The classes that payloads of a graph may have: those in the namespaces of its functions' modules.

    Args:
        more: further classes; these win if several have one name.

    Raises:
        CannotRestore: two classes have one qualified name, and `more` has neither.
    """
    found: dict[str, type] = {}
    several: dict[str, tuple[type, type]] = {}
    seen: set[int] = set()
    for function in functions:
        names = getattr(_plain(function), "__globals__", {})
        if id(names) in seen:
            continue
        seen.add(id(names))
        for kind in _classes_in(names.values()):
            known = found.setdefault(kind.__qualname__, kind)
            if known is not kind:
                several[kind.__qualname__] = known, kind
    for kind in more:
        found[kind.__qualname__] = kind
        several.pop(kind.__qualname__, None)
    if several:
        name, pair = next(iter(several.items()))
        modules = " and ".join(kind.__module__ for kind in pair)
        raise CannotRestore(f"{modules} both have a class {name!r}; rename one, or pass the right one in classes=")
    return found


def _plain(function: Any) -> Any:
    """The Python function inside partials and methods; for a callable object its __call__."""
    while hasattr(function, "func"):
        function = function.func
    function = getattr(function, "__func__", function)
    return function if isinstance(function, types.FunctionType) else vars(type(function)).get("__call__", function)


def _classes_in(values: Iterable[Any], *, into_modules: bool = True) -> Iterator[type]:
    for value in list(values):
        if isinstance(value, type):
            if _is_of_a_family(value):
                yield value
            if value.__module__ not in ("builtins", "typing"):
                yield from (each for each in vars(value).values() if isinstance(each, type) and _is_of_a_family(each))
        elif isinstance(value, types.ModuleType) and into_modules:
            yield from _classes_in(vars(value).values(), into_modules=False)


def _is_of_a_family(kind: type) -> bool:
    return (
        dataclasses.is_dataclass(kind)
        or issubclass(kind, enum.Enum | msgspec.Struct)
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    )
