"""Canonical bytes: one byte string for each payload, the same in every process, on every machine.

Invariant: two payloads have equal canonical bytes exactly when they have the same types and the same values at every
depth. That covers whatever a function can see: all fields and other attributes of a dataclass, the bits of a flag, the
time zone of a datetime. The bytes do not depend on hash seed, set order, dict insertion order, object identity or
process. A class whose instances cannot be compared like this is refused by name.

Why: the form is MessagePack (github.com/msgpack/msgpack, spec.md) in its shortest encodings, where each value carries
its type and length. Types that MessagePack lacks are extensions: tuples are plain arrays, so lists are extension 1, and
so on down `_forms`. Maps and sets are sorted by the canonical bytes of their entries. A NaN has one form. `1`, `1.0`
and `True` are three values, as are `0.0` and `-0.0`.

`encode_many` is the hot path: where all values are plain by their types, it is one call into msgspec, with the same
result as joining `canonical(value)`.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import struct
import types
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain, repeat
from operator import countOf, ne
from typing import Any, TypeVar

import msgspec
import xxhash

from drift_graph.content import shape_of
from drift_graph.functions import safe_text
from drift_graph.payloads import Forms, are_forms, are_known_plain, are_rows
from drift_graph.scalars import parts_of

T = TypeVar("T")

_encode = msgspec.msgpack.Encoder().encode
_NAN = b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"
_exact = frozenset({str, int, bool, type(None), bytes})
#: Types whose values of different value or type are never equal: keys of these stand for themselves.
THEMSELVES = frozenset({str, int, type(None)})
_scalars = _exact | {float}
_PLAIN_DEPTH_MAX = 50
_COLUMNS_MAX = 8  # longer tuples are not checked column by column
_inspected = _scalars | {tuple}
_with_form = _scalars | {
    bytearray, complex, datetime.date, datetime.timedelta, decimal.Decimal, fractions.Fraction, uuid.UUID,
}  # fmt: skip
_of_others = frozenset({tuple, list, set, frozenset})


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

    Raises:
        NoCanonicalForm: for a type outside the list, at any depth, and for values nested too deep or in themselves.
    """
    try:
        return _canonical(value)
    except RecursionError:
        raise NoCanonicalForm(type(value), ", nested too deep or in itself,") from None


def stored(value: Any) -> bytes:
    """The canonical bytes, but with the entries of dicts in the dict's own order.

    Used where the value must be restored exactly: a function may depend on the order of a dict, which `canonical`
    ignores.

    Raises:
        NoCanonicalForm: as `canonical` does.
    """
    try:
        return _stored(value)
    except RecursionError:
        raise NoCanonicalForm(type(value), ", nested too deep or in itself,") from None


def encode_many(values: Sequence[Any]) -> bytes:
    """The canonical bytes of all values, joined: equal to b"".join(map(canonical, values)), and much faster."""
    plain = encode_plain(values)
    return joined_forms(values) if plain is None else plain


def joined_forms(values: Sequence[Any]) -> bytes:
    """b"".join(canonical_each(values)), at once where the values are rows."""
    return values.encoded() if are_rows(values) else b"".join(canonical_each(values))


def encode_plain(values: Sequence[Any]) -> bytes | None:
    """`encode_many` for scalars and tuples of any depth; None if a value is anything else, or a rare scalar."""
    if are_forms(values):
        return b"".join(values)
    if are_known_plain(values) or are_plain(values):
        try:
            return _encode(values)[len(_array_header(len(values))) :]
        except (OverflowError, UnicodeEncodeError):
            pass  # huge integers and lone surrogates need extensions
    return None


def plain_forms(values: Sequence[Any]) -> Forms | None:
    """The canonical bytes of each value, under the conditions of `encode_plain`."""
    if are_forms(values):
        return values
    if are_known_plain(values) or are_plain(values):
        try:
            return Forms(map(_encode, values))
        except (OverflowError, UnicodeEncodeError):
            pass
    return None


def canonical_each(values: Sequence[Any]) -> list[bytes]:
    """[canonical(value) for value in values], faster."""
    if are_rows(values):
        return values.forms()
    return values if are_forms(values) else _of_each(values, list)


def hash64_each(values: Sequence[Any]) -> bytes:
    """The `hash64` of each value, 8 bytes big-endian, joined: no form is stored, so their memory stays in the cache.

    Raises:
        NoCanonicalForm: a value has none.
    """
    return values.digests(xxhash.xxh64_digest) if are_rows(values) else _of_each(values, _joined_hashes)


def _joined_hashes(forms: Iterable[bytes]) -> bytes:
    return b"".join(map(xxhash.xxh64_digest, forms))


def _of_each(values: Sequence[Any], taken: Callable[[Iterable[bytes]], T]) -> T:
    """What `taken` makes of the canonical bytes of each value; it may be called again, with all of them."""
    if are_forms(values):
        return taken(values)
    ready = values if are_plain(values) else _sorted_rows(values)
    if ready is not None:
        try:
            return taken(map(_encode, ready))
        except (OverflowError, UnicodeEncodeError):
            pass
    return taken(_of_one_class(values, _sorted_rows) or map(canonical, values))


def _of_one_class(
    values: Sequence[Any], rows_form: Callable[[Sequence[Any]], Sequence[Any] | None]
) -> list[bytes] | None:
    """The forms of instances of one class whose fields each have plain values, or all dicts; otherwise None.

    Args:
        rows_form: makes of dicts from text to plain values those to encode; None for other values.
    """
    kinds = types_of(values)
    kind = next(iter(kinds), type(None))
    shape = shape_of(kind) if len(kinds) == 1 and not issubclass(kind, enum.Enum) else None
    if shape is None or shape.refused or 2 * len(shape.names) + 1 >= _SHORT:
        return None
    parts: list[Iterable[Any]] = [repeat(kind.__qualname__)]
    for name, column in zip(shape.names, shape.columns(values) or ()):
        ready = column if _is_plain_column(column) else rows_form(column)
        if ready is None:
            return None
        parts += (repeat(name), ready)
    if len(parts) == 1:  # a field is unset, or there is another attribute
        return None
    heads = _Heads(shape.code)
    try:
        return [heads[len(row)] + row[1:] for row in map(_encode, zip(*parts))]
    except (OverflowError, UnicodeEncodeError):
        return None


class _Heads(dict[int, bytes]):
    """The header of an extension, by the length of its body and the array header before it, which is one byte."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self._code = code

    def __missing__(self, length: int) -> bytes:
        body = bytes(length - 1)
        head = self[length] = _extension(self._code, body)[: -len(body)]
        return head


def _is_plain_column(values: list[Any]) -> bool:
    """Whether msgspec's encoding of each value, or of tuples of them, is the canonical one."""
    kinds = set(map(type, values))
    if float in kinds and not all(value == value for value in values if type(value) is float):
        return False
    tuples = [value for value in values if type(value) is tuple] if tuple in kinds else []
    return kinds <= _inspected and set(map(type, chain.from_iterable(tuples))) <= _exact


def stored_plain(values: Sequence[Any]) -> bytes | None:
    """`stored` of each, joined, if all are scalars, tuples, dicts of these, or rows; otherwise None."""
    if are_rows(values):
        return b"".join(values.forms(stored=True))
    inside: Collection[Any] = values
    plain = False
    if set(map(type, values)) == {dict}:
        if not set(map(type, chain.from_iterable(values))) <= _exact:
            return None
        plain = set(map(type, chain.from_iterable(map(dict.values, values)))) <= _exact
        inside = () if plain else list(chain.from_iterable(map(dict.values, values)))
    if plain or are_plain(inside):
        try:
            return _encode(values)[len(_array_header(len(values))) :]
        except (OverflowError, UnicodeEncodeError):
            pass
    return None


def stored_each(values: Sequence[Any]) -> list[bytes]:
    """[stored(value) for value in values], faster."""
    if are_rows(values):
        return values.forms(stored=True)
    if are_plain(values) or _are_rows(values):
        try:
            return list(map(_encode, values))
        except (OverflowError, UnicodeEncodeError):
            pass
    return _of_one_class(values, _rows_as_they_are) or list(map(stored, values))


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
    """[form_of(value) for value in values], faster; values that are forms already are returned as they are."""
    if are_forms(values):
        return values
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


def types_of(values: Collection[Any]) -> set[type]:
    """The types of all values; fastest if they have one type."""
    first = type(next(iter(values), None))
    if values and countOf(map(type, values), first) == len(values):
        return {first}
    return set(map(type, values))


def _columns(rows: Collection[tuple[Any, ...]]) -> list[tuple[Any, ...]] | None:
    """First entries of all rows, second ones, and so on; None if rows differ in length or are long."""
    width = len(next(iter(rows)))
    if not 0 < width <= _COLUMNS_MAX:
        return None
    try:
        return list(zip(*rows, strict=True))
    except ValueError:
        return None


def alike(rows: Collection[tuple[Any, ...]], kinds: frozenset[object]) -> bool:
    """Whether all rows are pairs, or all triples, whose entries have the given types. May return False for other
    shapes.
    """
    match tuple(map(type, next(iter(rows)))):
        case first, second if first in kinds and second in kinds:
            try:
                return not [1 for one, two in rows if type(one) is not first or type(two) is not second]
            except ValueError:  # rows differ in length
                return False
        case first, second, third if first in kinds and second in kinds and third in kinds:
            try:
                return not [
                    1
                    for one, two, three in rows
                    if type(one) is not first or type(two) is not second or type(three) is not third
                ]
            except ValueError:
                return False
    return False


def are_plain(values: Collection[Any], depth: int = 0) -> bool:
    """Whether msgspec's own encoding of every value is its canonical form (huge ints and surrogates excepted)."""
    if depth > _PLAIN_DEPTH_MAX or are_rows(values):
        return False
    kinds = types_of(values)
    if not kinds <= _inspected:
        return False
    if float in kinds and any(map(ne, values, values)):  # a NaN is not equal to itself
        return False
    if kinds <= _scalars:
        return True
    if kinds == {tuple}:
        if alike(values, _exact):
            return True
        columns = _columns(values)
        if columns is not None:
            return all(are_plain(column, depth + 1) for column in columns)
        inside = set(map(type, chain.from_iterable(values)))
        return inside <= _exact or are_plain(list(chain.from_iterable(values)), depth + 1)
    return are_plain(list(chain.from_iterable(value for value in values if type(value) is tuple)), depth + 1)


def have_forms(values: Collection[Any], depth: int = 0) -> bool:
    """Whether every value has a canonical form, judged by types; False also for some rare types that have one."""
    if are_rows(values):
        return True
    if depth > _PLAIN_DEPTH_MAX:
        return False
    kinds = set(map(type, values))
    if kinds == {tuple} and alike(values, _with_form):
        return True
    for kind in kinds - _with_form:
        these: Collection[Any] = values if len(kinds) == 1 else [each for each in values if type(each) is kind]
        parts: list[Iterable[Any]]
        if kind in _of_others:
            parts = [these]
        elif kind is dict:
            parts = [these, map(dict.values, these)]
        elif (shape := shape_of(kind)) is not None and not shape.refused and all(map(shape.fits, these)):
            parts = [map(shape.content, these)]
        else:
            return False
        for part in parts:
            inside = list(chain.from_iterable(part))
            if not set(map(type, inside)) <= _with_form and not have_forms(inside, depth + 1):
                return False
    return True


_key_orders: dict[tuple[Any, ...], tuple[str, ...]] = {}
_KEY_ORDERS_MAX = 4096


def _key_order(keys: tuple[str, ...]) -> tuple[str, ...]:
    """The keys of a map in the order of their canonical bytes, cached for the next row with the same keys."""
    order = _key_orders.get(keys)
    if order is None:
        if len(_key_orders) >= _KEY_ORDERS_MAX:
            _key_orders.clear()
        order = _key_orders[keys] = tuple(sorted(keys, key=_encode))
    return order


def _are_rows(values: Collection[Any]) -> bool:
    """Whether all are dicts from text to plain values."""
    return (
        set(map(type, values)) == {dict}
        and set(map(type, chain.from_iterable(values))) <= {str}
        and are_plain(list(chain.from_iterable(map(dict.values, values))))
    )


def _sorted_rows(rows: Sequence[Any]) -> Sequence[dict[str, Any]] | None:
    """Dicts from text to plain values, with their entries in canonical order; otherwise None."""
    if not _are_rows(rows):
        return None
    if max(map(len, rows)) < 2:
        return rows
    try:
        return [{key: row[key] for key in _key_order(tuple(row))} for row in rows]
    except UnicodeEncodeError:
        return None


def _rows_as_they_are(rows: Sequence[Any]) -> Sequence[Any] | None:
    return rows if _are_rows(rows) else None


def _sorted_map(value: dict[Any, Any]) -> bytes:
    """A map sorted by the canonical bytes of its keys."""
    if set(map(type, value)) == {str} and are_plain(value.values()):
        try:
            return _encode({key: value[key] for key in _key_order(tuple(value))})
        except (OverflowError, UnicodeEncodeError):
            pass
    pairs = sorted((_canonical(key), _canonical(item)) for key, item in value.items())
    return _map_header(len(pairs)) + b"".join(chain.from_iterable(pairs))


def _map_as_it_is(value: dict[Any, Any]) -> bytes:
    return _map_header(len(value)) + b"".join(map(_stored, chain.from_iterable(value.items())))


def _array_header(length: int) -> bytes:
    if length < 16:
        return bytes((0x90 | length,))
    return struct.pack(">BH", 0xDC, length) if length < 0x10000 else struct.pack(">BI", 0xDD, length)


def _bytes_header(length: int) -> bytes:
    if length < 0x100:
        return bytes((0xC4, length))
    return struct.pack(">BH", 0xC5, length) if length < 0x10000 else struct.pack(">BI", 0xC6, length)


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


#: An array of fewer items has a header of one byte.
_SHORT = 16


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
            if set(map(type, value)) <= _exact:
                try:
                    return _encode(value)
                except (OverflowError, UnicodeEncodeError):
                    pass
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
        parts = (kind.__qualname__, *shape.content(value))
        if len(parts) < _SHORT and set(map(type, parts)) <= _exact:
            try:
                # without the header of the array, which is one byte here
                return _extension(shape.code, _encode(parts)[1:])
            except (OverflowError, UnicodeEncodeError):
                pass
        return _extension(shape.code, items(parts))

    return form


_canonical = _forms(_sorted_map)
_stored = _forms(_map_as_it_is)
