"""Canonical bytes: one byte string for each payload, the same in every process, on every machine.

Invariant: two payloads have equal canonical bytes exactly when they have the same types and the same values at every
depth. That covers whatever a function can see: all fields and other attributes of a dataclass, the bits of a flag, the
time zone of a datetime. The bytes do not depend on hash seed, set order, dict insertion order, object identity or
process. A class whose instances cannot be compared like this is refused by name.

Why: the form is MessagePack (github.com/msgpack/msgpack, spec.md) in its shortest encodings, where each value carries
its type and length. Types that MessagePack lacks are extensions: tuples are plain arrays, so lists are extension 1, and
so on down `_forms`. Maps and sets are sorted by the canonical bytes of their entries. A NaN has one form. `1`, `1.0`
and `True` are three values, as are `0.0` and `-0.0`.

What this file does with many values is one call of the kernel (`encode.pyx`), with the same result; `_canonical` and
`_stored` are its twins for one value, and it asks them for what it does not know.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import struct
import types
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import xxhash

from drift_graph.content import Shape, shape_of
from drift_graph.functions import safe_text
from drift_graph.payloads import are_rows
from drift_graph.scalars import parts_of
from drift_kernel import kernel

_encode = msgspec.msgpack.Encoder().encode
_NAN = b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"
_exact = frozenset({str, int, bool, type(None), bytes})
#: Types whose values of different value or type are never equal: keys of these stand for themselves.
THEMSELVES = frozenset({str, int, type(None)})

_USE = (
    "; use numbers, text, bytes, None, tuples, lists, dicts, sets, dates, Decimal, UUID, Enum, dataclasses or msgspec "
    "Structs, or convert it before it becomes a payload"
)


_USE_CALL = "; a step does not wait for it: give its async function to stream.call(f)"


class NoCanonicalForm(TypeError):
    """Raised with the type that has no canonical form; a caller that knows the step turns it into a PayloadError."""

    def __init__(self, kind: type, how: str = "", why: str = "") -> None:
        name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
        use = _USE_CALL if kind in (types.CoroutineType, types.AsyncGeneratorType) else _USE
        super().__init__(f"a {name}{how} has no canonical form{': ' + why if why else use}")
        self.kind = kind


def canonical(value: Any) -> bytes:
    """The canonical bytes of one value.

    >>> canonical(("JFK", 30.5)) == canonical(("JFK", 30.5)), canonical(1) == canonical(1.0)
    (True, False)

    Raises:
        NoCanonicalForm: for a type outside the list, at any depth, and for values nested too deep or in themselves.
    """
    return _whole_canonical(value) if kernel is None else kernel.encode_one(value, *CANONICAL)


def stored(value: Any) -> bytes:
    """The canonical bytes, but with the entries of dicts in the dict's own order.

    Used where the value must be restored exactly: a function may depend on the order of a dict, which `canonical`
    ignores.

    Raises:
        NoCanonicalForm: as `canonical` does.
    """
    return _whole_stored(value) if kernel is None else kernel.encode_one(value, *STORED)


class Joined(NamedTuple):
    """The canonical bytes of many values, joined.

    Attributes:
        is_plain: all are scalars and tuples of these, and no extension is among the bytes.
        is_restorable: `plain_values` restores them: they are plain, or all are dicts of scalars to plain values.
    """

    data: bytes
    is_plain: bool
    is_restorable: bool


def joined(values: Sequence[Any], *, in_order: bool = True) -> Joined:
    """The canonical bytes of all values.

    Args:
        in_order: whether entries of dicts are sorted; else the bytes are those of `stored`.

    Raises:
        NoCanonicalForm: a value has none.
    """
    if are_rows(values):
        return Joined(values.encoded() if in_order else b"".join(values.forms(stored=True)), False, True)
    if kernel is None:
        data = b"".join(map(canonical if in_order else stored, values))
        plain = all(map(is_plain, values))
        return Joined(data, plain, plain or all(map(_is_plain_dict, values)))
    return _joined(*kernel.encode_joined(values, *(CANONICAL if in_order else STORED)))


def _joined(data: bytes, seen: int) -> Joined:
    return Joined(data, not seen & 3, not seen & 1 and seen & 6 != 6)


def joined_by_block(values: Sequence[Any], first: int, size: int) -> Iterable[Joined]:
    """`joined` for the first so many values, at most `size`, and for each `size` of those behind them.

    The bytes of rows are made block by block, as they are taken.
    """
    if kernel is not None and type(values) is list:
        return [_joined(*block) for block in kernel.encode_blocks(values, first, size, *CANONICAL)]
    starts = range(first - size, len(values), size) if len(values) else ()
    if are_rows(values):
        ends = [min(start + size, len(values)) for start in starts]
        return (Joined(values.encoded(max(start, 0), end), False, True) for start, end in zip(starts, ends))
    return [joined(values[max(start, 0) : start + size]) for start in starts]


def stored_plain(values: Sequence[Any]) -> bytes | None:
    """The forms of all values with dicts as they are, if `plain_values` restores them."""
    try:
        data, _, is_restorable = joined(values, in_order=False)
    except NoCanonicalForm:
        return None
    return data if is_restorable else None


def encode_many(values: Sequence[Any]) -> bytes:
    """b"".join(map(canonical, values))."""
    return joined(values).data


def canonical_each(values: Sequence[Any]) -> list[bytes]:
    if are_rows(values):
        return values.forms()
    return list(map(canonical, values)) if kernel is None else kernel.encode_each(values, *CANONICAL)


def stored_each(values: Sequence[Any]) -> list[bytes]:
    if are_rows(values):
        return values.forms(stored=True)
    return list(map(stored, values)) if kernel is None else kernel.encode_each(values, *STORED)


def hash64_each(values: Sequence[Any]) -> bytes:
    """The `hash64` of each value, 8 bytes big-endian, joined: no form is stored, so their memory stays in the cache.

    Raises:
        NoCanonicalForm: a value has none.
    """
    if are_rows(values):
        return values.hashes()
    if kernel is None:
        return b"".join(map(xxhash.xxh64_digest, map(canonical, values)))
    return kernel.hash_each(values, *CANONICAL)


def is_plain(value: Any) -> bool:
    """Whether a value is a scalar, or a tuple of such, whose form needs no extension and no other bytes of a NaN."""
    kind = type(value)
    if kind is tuple:
        return all(map(is_plain, value))
    if kind is int:
        return bool(-(2**63) <= value < 2**64)
    if kind is str:
        return bool(value.isascii()) or _has_no_surrogate(value)
    return kind in _exact or (kind is float and bool(value == value))


def _has_no_surrogate(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_plain_dict(value: Any) -> bool:
    return (
        type(value) is dict
        and set(map(type, value)) <= _exact
        and all(map(is_plain, value))
        and all(map(is_plain, value.values()))
    )


def hash64(value: Any) -> int:
    """xxh64 of the canonical bytes: the tie of an item in event time, and what a partition is computed from."""
    return xxhash.xxh64_intdigest(canonical(value))


def same(left: Any, right: Any) -> bool:
    """Whether a function cannot distinguish two values: same types, same content, dicts in the same order.

    Values without a canonical form are never the same.
    """
    if left is right:
        return True
    if type(left) is not type(right):
        return False
    if type(left) in _exact:
        return bool(left == right)
    if type(left) is tuple and set(map(type, left)) <= _exact:
        return left == right and list(map(type, left)) == list(map(type, right))
    if type(left) is tuple and len(left) != len(right):
        return False
    try:
        return stored(left) == stored(right)
    except NoCanonicalForm:
        return False


def form_of(value: Any) -> bytes:
    """The key under which equal items are counted: the bytes of `stored`, or the type of a value without them.

    A value without a form ends the run if it is released; until then a tombstone with a value of its type cancels it.
    """
    try:
        return stored(value)
    except NoCanonicalForm:
        return b"\xc1" + type(value).__qualname__.encode()


def forms_of(values: Sequence[Any]) -> list[bytes]:
    try:
        return stored_each(values)
    except NoCanonicalForm:
        return list(map(form_of, values))


def identity(key: Any) -> Any:
    """A hashable that stands for a key: text, ints, None and tuples of these for themselves, others' canonical bytes.

    Raises:
        NoCanonicalForm: for a key without one.
    """
    kind = type(key)
    return key if kind in THEMSELVES or (kind is tuple and set(map(type, key)) <= THEMSELVES) else canonical(key)


def _sorted_map(value: dict[Any, Any]) -> bytes:
    """A map sorted by the canonical bytes of its keys."""
    pairs = sorted((_canonical(key), _canonical(item)) for key, item in value.items())
    return _map_header(len(pairs)) + b"".join(chain.from_iterable(pairs))


def _map_as_it_is(value: dict[Any, Any]) -> bytes:
    return _map_header(len(value)) + b"".join(map(_stored, chain.from_iterable(value.items())))


def _array_header(length: int) -> bytes:
    if length < 16:
        return bytes((0x90 | length,))
    return struct.pack(">BH", 0xDC, length) if length < 0x10000 else struct.pack(">BI", 0xDD, length)


def _map_header(length: int) -> bytes:
    if length < 16:
        return bytes((0x80 | length,))
    return struct.pack(">BH", 0xDE, length) if length < 0x10000 else struct.pack(">BI", 0xDF, length)


def _extension(code: int, body: bytes) -> bytes:
    return _encode(msgspec.msgpack.Ext(code, body))


def _text(value: object) -> bytes:
    return str(value).encode()


def _uuid(value: uuid.UUID) -> bytes:
    """The bytes of a UUID, and a further byte if `is_safe` is known."""
    return value.bytes if value.is_safe is uuid.SafeUUID.unknown else value.bytes + bytes((value.is_safe.value & 1,))


def _zone(zone: datetime.tzinfo | None) -> str | tuple[str] | None:
    """The name of a fixed offset, or the key of a ZoneInfo, in a tuple; a zone of another class is refused."""
    if zone is None:
        return None
    kind = type(zone)
    if kind is datetime.timezone:
        return str(zone)
    from zoneinfo import ZoneInfo  # here: it takes long to import, and few moments have one

    if kind is ZoneInfo and zone.key is not None:  # type: ignore[attr-defined]
        return (zone.key,)  # type: ignore[attr-defined]
    raise NoCanonicalForm(
        kind,
        " as the time zone of a moment",
        "drift cannot see how it behaves; use zoneinfo.ZoneInfo with a key or datetime.timezone, for instance "
        "moment.astimezone(datetime.timezone.utc)",
    )


def _member(kind: type[enum.Enum], value: enum.Enum) -> str | int:
    """The name of an Enum member, or the bits of a flag (combinations of flags are no members)."""
    if issubclass(kind, enum.Flag):
        return int(value._value_)
    if kind._member_map_.get(value._name_) is not value:
        raise NoCanonicalForm(kind, why=f"{safe_text(repr, value, 80)} is no member of it; make it one")
    return value._name_


def _forms(map_form: Callable[[dict[Any, Any]], bytes]) -> Callable[[Any], bytes]:
    """The function from a value to its canonical bytes; `map_form` encodes dicts."""

    def form(value: Any) -> bytes:
        kind = type(value)
        if kind in _exact:
            try:
                return _encode(value)
            except OverflowError:
                return _extension(4, value.to_bytes((value.bit_length() + 8) >> 3, "big", signed=True))
            except UnicodeEncodeError:
                return _extension(5, value.encode("utf-8", "surrogatepass"))
        if kind is float:
            return _encode(value) if value == value else _NAN
        if kind is tuple:
            return _array_header(len(value)) + b"".join(map(form, value))
        if kind is dict:
            return map_form(value)
        extension = extensions.get(kind)
        if extension is not None:
            code, body = extension
            return _extension(code, body(value))
        return by_family(kind, value)

    def items(values: Iterable[Any]) -> bytes:
        return b"".join(map(form, values))

    def sorted_items(values: Iterable[Any]) -> bytes:
        return b"".join(sorted(map(form, values)))

    def isoformat(value: datetime.datetime | datetime.time) -> bytes:
        return items((value.isoformat(), _zone(value.tzinfo), value.fold))

    extensions: dict[type, tuple[int, Callable[[Any], bytes]]] = {
        list: (1, items),
        set: (2, sorted_items),
        frozenset: (3, sorted_items),
        # 4: an int beyond 64 bits; 5: text with lone surrogates
        datetime.datetime: (6, isoformat),
        datetime.date: (7, lambda value: items((value.isoformat(), None, 0))),
        datetime.time: (8, isoformat),
        datetime.timedelta: (9, lambda value: items((value.days, value.seconds, value.microseconds))),
        decimal.Decimal: (10, lambda value: items(value.as_tuple())),
        uuid.UUID: (11, _uuid),
        # 12 to 15: enums, dataclasses, structs, named tuples
        bytearray: (16, bytes),
        complex: (17, lambda value: items((value.real, value.imag))),
        fractions.Fraction: (18, _text),
        # 19: scalars of numpy and pandas
    }

    def by_family(kind: type, value: Any) -> bytes:
        """The qualified name of a class (without its module, which is `__main__` in a script) and the content of the
        instance.
        """
        if issubclass(kind, enum.Enum):
            return _extension(12, items((kind.__qualname__, _member(kind, value))))
        shape = shape_of(kind)
        if shape is None:
            scalar = parts_of(kind, value)
            if scalar is None:
                raise NoCanonicalForm(kind)
            return _extension(19, items(scalar))
        if shape.refused or not shape.fits(value):
            raise NoCanonicalForm(kind, why=shape.refused or "it has more entries, or fewer, than its class has names")
        return _extension(shape.code, items((kind.__qualname__, *shape.content(value))))

    return form


_canonical = _forms(_sorted_map)
_stored = _forms(_map_as_it_is)


def _whole_canonical(value: Any) -> bytes:
    try:
        return _canonical(value)
    except RecursionError:
        raise NoCanonicalForm(type(value), ", nested too deep or in itself,") from None


def _whole_stored(value: Any) -> bytes:
    try:
        return _stored(value)
    except RecursionError:
        raise NoCanonicalForm(type(value), ", nested too deep or in itself,") from None


def _plan_of(kind: type) -> tuple[int, bytes, tuple[str, ...], tuple[bytes, ...], frozenset[str] | None] | None:
    """What the kernel needs to encode instances of a class; None where the twin has to be asked for each."""
    shape = None if issubclass(kind, enum.Enum) else shape_of(kind)
    return None if shape is None or shape.refused else _plan(shape, kind.__qualname__)


@lru_cache(4096)
def _plan(shape: Shape, name: str) -> tuple[int, bytes, tuple[str, ...], tuple[bytes, ...], frozenset[str] | None]:
    return shape.code, _canonical(name), shape.names, tuple(map(_canonical, shape.names)), shape.known


#: What the kernel is given beside values: twins for one value, see `Encoding` there, and whether dicts are sorted.
CANONICAL = (_canonical, _whole_canonical, _plan_of, True)
STORED = (_stored, _whole_stored, _plan_of, False)
