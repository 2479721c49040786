"""What canonical bytes give back, and what they refuse."""

from __future__ import annotations

import dataclasses
import datetime
import zoneinfo
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import AWKWARD
from test_golden import CANONICAL, Colour, Pair, Point, Row

import drift
from drift.testing.values import Flags, Noted
from drift_graph.canonical import canonical, encode_many, stored, stored_each
from drift_graph.restore import CannotRestore, classes_near, restored, restored_all

CLASSES = {kind.__qualname__: kind for kind in (Colour, Flags, Noted, Pair, Point, Row)}

deep = st.recursive(
    st.sampled_from(AWKWARD) | st.datetimes() | st.decimals() | st.binary() | st.text() | st.integers() | st.floats(),
    lambda inner: (
        st.lists(inner).map(tuple) | st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=10,
)  # fmt: skip


@pytest.mark.parametrize(
    "value", [value for value, _ in CANONICAL], ids=[f"{type(value).__name__} {data[:24]}" for value, data in CANONICAL]
)
def test_every_kind_of_value_comes_back(value: Any) -> None:
    again = restored(canonical(value), CLASSES)
    assert type(again) is type(value)
    assert canonical(again) == canonical(value)


@given(st.lists(deep, max_size=4))
def test_what_is_stored_comes_back_with_its_dicts_in_order(values: list[Any]) -> None:
    assert stored_each(values) == list(map(stored, values))
    again = restored_all(b"".join(stored_each(values)), CLASSES)
    assert repr(again) == repr(values)
    assert encode_many(again) == encode_many(values)


def test_a_dict_keeps_its_order_only_where_it_is_stored() -> None:
    value = {"b": {2: "x", 1: "y"}, "a": 0}
    assert list(restored(stored(value))) == ["b", "a"]
    assert list(restored(stored(value))["b"]) == [2, 1]
    assert list(restored(canonical(value))) == ["a", "b"]


@pytest.mark.parametrize(
    "zone",
    [
        datetime.UTC,
        datetime.timezone(datetime.timedelta(hours=-3)),
        datetime.timezone(datetime.timedelta(hours=5, minutes=30), "IST"),
        zoneinfo.ZoneInfo("Europe/Paris"),
    ],
    ids=str,
)
def test_moments_come_back_in_their_zones(zone: datetime.tzinfo) -> None:
    for fold in (0, 1):
        moment = datetime.datetime(2024, 10, 27, 2, 30, tzinfo=zone, fold=fold)
        again = restored(canonical(moment))
        assert (again, str(again.tzinfo), again.fold) == (moment, str(zone), fold)
        assert again + datetime.timedelta(days=100) == moment + datetime.timedelta(days=100)


@dataclasses.dataclass(frozen=True, slots=True)
class Checked:
    count: int

    def __post_init__(self) -> None:
        raise AssertionError("run only when it is made")


@dataclasses.dataclass
class WithoutDefault:
    kept: int
    lost: int = dataclasses.field(compare=False)


def test_the_code_of_a_dataclass_is_not_run() -> None:
    data = bytes.fromhex("c70f0da7436865636b6564a5636f756e7405")
    assert restored(data, {"Checked": Checked}).count == 5


def with_attribute(name: str) -> bytes:
    value = WithoutDefault(1, 2)
    value.__dict__[name] = 3
    return canonical(value)


def bad() -> list[tuple[str, bytes, str]]:
    return [
        ("nothing", b"", "0 values"),
        ("two values", b"\x01\x02", "2 values"),
        ("cut off", canonical("drift")[:-1], "end within a value"),
        ("cut off inside", b"\xc7\x02\x01\xa5d", "end within a value"),
        ("not the shortest", b"\xcc\x01", "has other bytes"),
        ("a map with one key twice", b"\x82\x01\x01\x01\x02", "has other bytes"),
        ("unsorted set", bytes.fromhex("c70302030201"), "has other bytes"),
        ("another NaN", b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x01", "has other bytes"),
        ("a timestamp of MessagePack", b"\xd6\xff\x00\x00\x00\x01", "has other bytes"),
        ("an unknown extension", b"\xd4\x63\x01", "extension 99"),
        ("no byte of MessagePack", b"\xc1", "no canonical bytes"),
        ("text that is none", b"\xa1\xff", "no canonical bytes"),
        ("a huge length", b"\xdd\xff\xff\xff\xff", "end within a value|no canonical bytes"),
        ("deep", b"\x91" * 5000 + b"\x01", "no canonical bytes|too deep"),
        ("deep extensions", b"\xc8\x00\x01\x01" * 3, "end within a value|no canonical bytes"),
        ("a class not named", canonical(Point(1, 2.0, "x")), "class 'Point' is not known"),
        ("a class of another family", canonical(Pair(1, "x")).replace(b"Pair", b"Rows"), "no named tuple"),
        (
            "a field too few",
            canonical(WithoutDefault(1, 2)).replace(b"\xa4lost\x02", b"").replace(b"\xc7\x1b", b"\xc7\x15"),
            "has a field 'lost' here",
        ),
        ("an attribute of the language", with_attribute("__class__"), "are not the user's"),
        ("no such enum member", canonical(Colour.RED).replace(b"RED", b"ROT"), "no canonical bytes"),
    ]


@pytest.mark.parametrize("name, data, message", bad(), ids=[name for name, _, _ in bad()])
def test_what_is_no_canonical_form_is_refused(name: str, data: bytes, message: str) -> None:
    with pytest.raises(CannotRestore, match=message):
        restored(data, {"Colour": Colour, "Pair": Pair} | {"WithoutDefault": WithoutDefault, "Rows": Row})


@given(st.binary(max_size=40))
def test_any_bytes_are_a_value_or_refused(data: bytes) -> None:
    try:
        values = restored_all(data, CLASSES)
    except CannotRestore:
        return
    assert b"".join(map(stored, values)) == data or encode_many(values) == data


def test_classes_are_found_near_the_functions_of_a_graph() -> None:
    found = classes_near([bad, test_any_bytes_are_a_value_or_refused])
    assert {"Point", "Row", "Pair", "Colour", "Checked"} <= set(found)


def test_classes_are_given_as_a_list_or_by_name() -> None:
    data = canonical(Point(1, 2))
    for classes in ([Point], (Point,), {"Point": Point}):
        assert drift.restored(data, classes=classes) == Point(1, 2)
    with pytest.raises(drift.SettingsError, match="classes contains 'Point', no class"):
        drift.restored(data, classes=["Point"])  # type: ignore[list-item]
