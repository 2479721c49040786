"""The kernel and its twins: the same hashes, canonical bytes and keys, whatever the values are and do meanwhile."""

from __future__ import annotations

import dataclasses
import datetime
import random
import struct
from collections import namedtuple
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from strategies import AWKWARD, Opaque

from drift.arrow import payloads_of
from drift.columns.forms import forms_of_rows, pieces_of_rows
from drift.machines import keys
from drift_graph import canonical as forms
from drift_graph.canonical import NoCanonicalForm
from drift_kernel import kernel

pytestmark = pytest.mark.skipif(kernel is None, reason="the kernel is not built here")


def twin(value: Any, stored: bool = False) -> bytes | str:
    """The canonical bytes by the plain code, or its error."""
    try:
        return forms._whole_stored(value) if stored else forms._whole_canonical(value)
    except NoCanonicalForm as none:
        return str(none)


def compiled(value: Any, stored: bool = False) -> bytes | str:
    try:
        return forms.stored(value) if stored else forms.canonical(value)
    except NoCanonicalForm as none:
        return str(none)


#: Lengths of each class of the hashes, and around the ends of stripes and blocks.
LENGTHS = [*range(18), *range(28, 36), *range(126, 132), *range(238, 260), 511, 512, 513, 1023, 1024, 1025, 1087, 1088]
LENGTHS += [1089, 2047, 2048, 2049, 3000, 4096, 4097, 10_000]


def test_hashes_are_those_of_the_package() -> None:
    assert kernel is not None
    drawn = random.Random(1)
    for length in (*LENGTHS, *(drawn.randrange(400) for _ in range(3000))):
        data = drawn.randbytes(length)
        assert kernel.xxh64(data) == xxhash.xxh64_intdigest(data), length
        assert kernel.xxh3_64(data) == xxhash.xxh3_64_intdigest(data), length
        assert kernel.xxh3_128(data) == xxhash.xxh3_128_digest(data), length


def test_hashes_of_words_of_which_one_bit_is_set_are_those_of_the_package() -> None:
    """What is drawn has hardly a word that ends in many zeros, or begins with them."""
    assert kernel is not None
    for at in range(0, 1088, 8):
        for bit in range(0, 64, 9):
            data = bytes(at) + (1 << bit).to_bytes(8, "little") + bytes(1088 - at)
            assert kernel.xxh64(data) == xxhash.xxh64_intdigest(data), (at, bit)
            assert kernel.xxh3_64(data) == xxhash.xxh3_64_intdigest(data), (at, bit)
            assert kernel.xxh3_128(data) == xxhash.xxh3_128_digest(data), (at, bit)


@pytest.mark.long
def test_a_million_drawn_hashes_are_those_of_the_package() -> None:
    """Mostly short ones, as metas and payloads are."""
    assert kernel is not None
    drawn = random.Random(2)
    noise = drawn.randbytes(1 << 16)
    for _ in range(1_000_000):
        length = drawn.getrandbits(drawn.randrange(1, 12))
        data = noise[(start := drawn.randrange(len(noise) - length)) : start + length]
        assert kernel.xxh64(data) == xxhash.xxh64_intdigest(data), (start, length)
        assert kernel.xxh3_64(data) == xxhash.xxh3_64_intdigest(data), (start, length)
        assert kernel.xxh3_128(data) == xxhash.xxh3_128_digest(data), (start, length)


@dataclasses.dataclass
class Fields:
    one: Any
    other: Any = None


@dataclasses.dataclass(slots=True)
class Slots:
    one: Any
    other: Any = None


class Struct(msgspec.Struct):
    one: Any
    other: Any = None


Named = namedtuple("Named", "one other")

_numbers = st.sampled_from([0, 32, 127, 2**15, 128, 255, 256, 65535, 65536, 2**31, 2**32, 2**63, 2**64, 2**70])
scalars = st.one_of(
    st.builds(lambda number, by, sign: sign * number + by, _numbers, st.integers(-1, 1), st.sampled_from([-1, 1])),
    st.sampled_from(AWKWARD),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from([0, 1, 15, 16, 31, 32, 255, 256, 65535, 65536]).map("é".__mul__),
    st.sampled_from([0, 255, 256, 65535, 65536]).map(b"b".__mul__),
    st.datetimes() | st.dates() | st.times() | st.timedeltas(),
    st.datetimes(timezones=st.sampled_from([None, datetime.UTC, datetime.timezone(datetime.timedelta(hours=2))])),
    st.builds(datetime.datetime.replace, st.datetimes(), fold=st.integers(0, 1)),
)


def is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=18)
        | st.lists(inner, max_size=18).map(tuple)
        | st.dictionaries(st.text(max_size=2) | scalars.filter(is_hashable), inner, max_size=18)
        | st.sets(st.text(max_size=40) | st.integers(), max_size=20)
        | st.builds(Fields, inner, inner)
        | st.builds(Slots, inner, inner)
        | st.builds(Struct, inner, inner)
        | st.builds(Named, inner, inner)
    ),
    max_leaves=30,
)


@given(st.lists(values, max_size=4))
def test_the_kernel_encodes_as_its_twin_does(given_values: list[Any]) -> None:
    for value in given_values:
        assert compiled(value) == twin(value) and compiled(value, stored=True) == twin(value, stored=True)
    for in_order in (True, False):
        each = [twin(value, not in_order) for value in given_values]
        if any(isinstance(one, str) for one in each):
            with pytest.raises(NoCanonicalForm):
                forms.joined(given_values, in_order=in_order)
            continue
        data, plain, restorable = forms.joined(given_values, in_order=in_order)
        assert data == b"".join(each)  # type: ignore[arg-type]
        assert plain == all(map(forms.is_plain, given_values))
        assert restorable == (plain or all(map(forms._is_plain_dict, given_values)))


@given(st.lists(values, max_size=9), st.integers(1, 4), st.integers(1, 4))
def test_blocks_are_encoded_as_each_by_itself(given_values: list[Any], first: int, size: int) -> None:
    first, size = sorted((first, size))
    cuts = [0, *range(first, len(given_values), size), len(given_values)]
    expected = [forms.joined(given_values[start:end]) for start, end in pairwise(cuts) if start < end]
    assert forms.joined_by_block(given_values, first, size) == expected
    assert forms.joined_by_block(tuple(given_values), first, size) == expected


@pytest.mark.parametrize("depth", [40, 59, 60, 61, 70, 200, 900, 100_000])
@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: (inner,), lambda inner: {"a": inner}, Fields])
def test_what_is_nested_deep_is_what_the_twin_says(depth: int, wrap: Any) -> None:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    assert compiled(value) == twin(value)
    if depth == 100_000:
        assert "nested too deep or in itself" in str(compiled(value))
        while not isinstance(value, int):  # freed from the outside in: not all at once, in one recursion of C
            value = value.one if isinstance(value, Fields) else value["a"] if isinstance(value, dict) else value[0]


def test_a_value_in_itself_is_refused() -> None:
    for value in ([], {}):  # type: ignore[var-annotated]
        if isinstance(value, list):
            value.append((1, value))
        else:
            value["a"] = [value]
        assert "nested too deep or in itself" in str(compiled(value)) and compiled(value) == twin(value)


class Changing:
    """A field of it is computed by code that changes what it is in."""

    def __init__(self, change: Any) -> None:
        self.change = change


def test_values_that_change_while_they_are_encoded_end_with_an_error_or_with_what_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a list the twin gives what is there when it comes to it; of a dict it raises, as Python does."""
    asked = forms._canonical

    def changing(value: Any) -> bytes:
        if type(value) is Changing:
            value.change()
            return b"\xc0"
        return asked(value)

    monkeypatch.setattr(forms, "CANONICAL", (changing, changing, forms._plan_of, True))
    shrinks: list[Any] = []
    shrinks += [1, Changing(shrinks.clear), *range(100)]
    assert forms.canonical(shrinks) == b"\xd5\x01\x01\xc0"
    grows: list[Any] = []
    grows += [Changing(lambda: grows.extend([1, 2]) if len(grows) < 3 else None), 3]
    assert forms.canonical(grows) == b"\xd6\x01\xc0\x03\x01\x02"
    for change in (lambda inside: inside.clear(), lambda inside: inside.update(dict.fromkeys(range(50), 0))):
        inside: dict[Any, Any] = {}
        inside.update(a=1, b=Changing(lambda change=change, inside=inside: change(inside)), c=2)
        with pytest.raises(RuntimeError, match="dictionary changed size during iteration"):
            forms.canonical(inside)
    gone: list[Any] = [[Changing(lambda: gone.clear()), "kept by the call"]]
    assert forms.canonical(gone) == forms._canonical([[None, "kept by the call"]])


class Fails:
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise ValueError("asked for too much")


@dataclasses.dataclass
class FailsAsField(Fails):
    one: int = 1


def test_an_error_of_code_that_is_called_comes_as_it_is() -> None:
    with pytest.raises(ValueError, match=r"^asked for too much$"):
        forms.encode_many([1, FailsAsField()])
    for value in (Opaque(1), [Opaque(1)], {"a": (Opaque(1),)}):
        assert compiled(value) == twin(value) and "Opaque has no canonical form" in str(compiled(value))


def test_what_is_no_bytes_is_no_form() -> None:
    assert kernel is not None
    for given_form in ("text", None, 7):
        with pytest.raises(TypeError):
            kernel.encode_one(Opaque(1), lambda _, form=given_form: form, forms._whole_canonical, lambda _: None, True)
    for plan in ((13, b"", ("a",), ()), (13,), 7, (13, b"", ("a",), (), None)):
        with pytest.raises((TypeError, ValueError)):
            kernel.encode_one(Opaque(1), repr, repr, lambda _, plan=plan: plan, True)  # type: ignore[arg-type]


@given(st.lists(st.sampled_from(["a", 1, None, True, 1.0, (), ("a", 1), (1.0,), ("a", (1,)), [1], b"a"]), max_size=4))
def test_keys_are_their_own_identities_by_the_kernel_where_they_are_one_by_one(given_keys: list[Any]) -> None:
    assert keys.identities(given_keys) == list(map(forms.identity, given_keys))
    types = [*map(type, keys.identities(given_keys))]
    assert types == [*map(type, map(forms.identity, given_keys))]


MOMENTS = [datetime.datetime.min, datetime.datetime.max, *(datetime.datetime(1900 + 100 * at, 3, 1) for at in range(8))]
MOMENTS += [
    datetime.datetime(year, month, 1) - datetime.timedelta(microseconds=1)
    for year in (1969, 2000, 2024)
    for month in (1, 3)
]
_TEXTS = st.sampled_from([0, 1, 11, 12, 13, 31, 32, 255, 256, 65536]).map("x".__mul__) | st.text(max_size=3)
_INTEGERS = st.builds(lambda number, by: number + by, st.sampled_from([2**at for at in range(63)]), st.integers(-1, 0))
COLUMNS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    *((kind, _TEXTS) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *((kind, _TEXTS.map(str.encode)) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    *(
        (getattr(pa, f"int{8 * width}")(), _INTEGERS.map(lambda n, w=width: n % 2 ** (8 * w - 1) * (-1) ** n))
        for width in (1, 2, 4, 8)
    ),
    *(
        (getattr(pa, f"uint{8 * width}")(), _INTEGERS.map(lambda n, w=width: -n % 2 ** (8 * w)))
        for width in (1, 2, 4, 8)
    ),
    *((kind, st.floats(width=kind.bit_width)) for kind in (pa.float32(), pa.float64())),
    (pa.bool_(), st.booleans()),
    (pa.timestamp("us"), st.sampled_from(MOMENTS) | st.datetimes()),
    (
        pa.timestamp("us", "UTC"),
        (st.sampled_from(MOMENTS) | st.datetimes()).map(lambda each: each.replace(tzinfo=datetime.UTC)),
    ),
    (pa.date32(), st.dates()),
    (pa.decimal128(5, 2), st.decimals(min_value=-9, max_value=9, places=2)),
    (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "bb"])),
    (pa.list_(pa.int64()), st.lists(st.integers(-1, 200), max_size=2)),
    (pa.struct([("b", pa.int8()), ("a", pa.string())]), st.fixed_dictionaries({"b": st.integers(0, 9), "a": _TEXTS})),
    (pa.null(), st.none()),
]


@given(st.data())
def test_rows_of_columns_have_the_forms_of_their_dicts(data: st.DataObject) -> None:
    """Any types, with nulls and without, from any row of the buffers on."""
    chosen = data.draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=4))
    rows = data.draw(st.integers(1, 12))
    start = data.draw(st.integers(0, rows - 1))
    columns = []
    for kind, each in chosen:
        column = data.draw(
            st.lists(each | st.none() if data.draw(st.booleans()) else each, min_size=rows, max_size=rows)
        )
        columns.append(pa.array(column, kind).slice(start, data.draw(st.just(rows - start))))
    names = [f"{'n' * data.draw(st.sampled_from([0, 1, 13, 14, 15, 40]))}{at}" for at in range(len(columns))]
    dicts = payloads_of(columns, names, "dict", rows - start)
    first = data.draw(st.integers(0, rows - start))
    for in_order in (True, False):
        expected = [twin(each, not in_order) for each in dicts]
        made = forms_of_rows(pieces_of_rows(names, columns, rows - start, in_order), rows - start, in_order)
        assert made.each(first, rows - start) == expected[first:]
        assert made.joined(0, first) == b"".join(expected[:first])  # type: ignore[arg-type]
        assert made.hashes(0, first) == b"".join(map(xxhash.xxh64_digest, expected[:first]))


@pytest.mark.parametrize("length", [*range(36), *range(250, 262), 65_530, 65_536])
def test_texts_and_lists_of_each_length_have_the_headers_of_their_forms_in_columns_too(length: int) -> None:
    text = "x" * length
    for value in (text, text.encode(), [0] * length, (0,) * length, {text: 1, text[:-1]: 2}):
        assert compiled(value) == twin(value)
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()):
        column = pa.array([text if "string" in str(kind) else text.encode()], kind)
        made = forms_of_rows(pieces_of_rows(["a"], [column], 1, True), 1, True)
        assert made.each(0, 1) == [twin({"a": column[0].as_py()})]


@pytest.mark.parametrize(
    ("what", "refusal"),
    [
        (("integer", 3, 0, 1, None, bytes(8)), "a column of kind integer has no width 3"),
        (("integer", 8, 0, 2, None, bytes(15)), "2 rows have 15 bytes, and need 16"),
        (("integer", 8, 1, 1, None, bytes(15)), "2 rows have 15 bytes, and need 16"),
        (("integer", 8, -1, 1, None, bytes(16)), "there are no 1 rows from -1 on"),
        (("integer", 8, 2**62, 2**62, None, bytes(16)), "there are no"),
        (("integer", 1, 0, 9, bytes(1), bytes(9)), "9 rows have 1 bytes of bits"),
        (("boolean", 1, 0, 9, None, bytes(1)), "9 rows have 1 bytes, and need 2"),
        (("text", 4, 0, 1, None, bytes(4), [b""]), "2 rows have 4 bytes, and need 8"),
        (("text", 4, 0, 1, None, bytes(8), []), "a column of kind text has no width 4"),
    ],
)
def test_columns_that_are_shorter_than_they_say_are_refused(what: Any, refusal: str) -> None:
    assert kernel is not None
    with pytest.raises(ValueError, match=refusal):
        kernel.Column(*what)


@pytest.mark.parametrize(
    "what",
    [
        ("text", 4, 0, 1, None, struct.pack("=2i", 0, 9), [b"12345678"]),
        ("text", 8, 0, 1, None, struct.pack("=2q", 2, 1), [b"12345678"]),
        ("text", 4, 0, 1, None, struct.pack("=2i", -1, 1), [b"12345678"]),
        ("text view", 16, 0, 1, None, struct.pack("=4i", 13, 0, 0, 1), [bytes(13)]),
        ("text view", 16, 0, 1, None, struct.pack("=4i", 13, 0, 1, 0), [bytes(13)]),
        ("text view", 16, 0, 1, None, struct.pack("=4i", 13, 0, -1, 0), [bytes(13)]),
        ("text view", 16, 0, 1, None, struct.pack("=4i", -1, 0, 0, 0), [bytes(13)]),
    ],
)
def test_values_of_columns_that_are_outside_of_their_bytes_are_refused(what: Any) -> None:
    assert kernel is not None
    made = forms_of_rows([kernel.Column(*what)], 1, True)
    for read in (made.joined, made.each, made.hashes):
        with pytest.raises(ValueError, match=r"value is from byte|view is of"):
            read(0, 1)
        for start, end in ((0, 2), (-1, 1), (1, 0)):
            with pytest.raises(IndexError):
                read(start, end)
    with pytest.raises(ValueError, match="2 rows have a column of 1"):
        forms_of_rows([kernel.Column(*what)], 2, True)
    coded = forms_of_rows([kernel.coded_column([b"a"], struct.pack("=3i", 0, 1, -1), 3)], 3, True)
    assert coded.joined(0, 1) == b"a"
    for at in (1, 2):
        with pytest.raises(ValueError, match="of 1 values there is no number"):
            coded.joined(at, at + 1)
