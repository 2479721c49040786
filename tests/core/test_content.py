"""What a function can see of a payload is in its bytes, or its class is refused by name."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import uuid
import zoneinfo
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import pytest

import drift
from drift_graph.canonical import NoCanonicalForm, canonical, stored
from drift_graph.restore import CannotRestore, restored

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Note:
    t: int
    note: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass
class Derived:
    a: int
    total: int = dataclasses.field(init=False)
    unset: int = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.total = self.a + 1
        self.extra = [self.a]


@dataclasses.dataclass
class Cached:
    a: int

    @functools.cached_property
    def doubled(self) -> int:
        return 2 * self.a


class CachedStruct(msgspec.Struct, dict=True):
    a: int

    @functools.cached_property
    def doubled(self) -> int:
        return 2 * self.a


class One(NamedTuple):
    a: int


class CachedTuple(One):
    @functools.cached_property
    def doubled(self) -> int:
        return 2 * self.a


class Slotted:
    __slots__ = ("hidden",)


@dataclasses.dataclass(slots=True)
class OverSlots(Slotted):
    a: int


@dataclasses.dataclass
class Box(Generic[T]):
    content: T


class Wide(msgspec.Struct, dict=True):
    a: int


class Pair(NamedTuple):
    a: int
    b: int


class WidePair(Pair):
    pass


class P(enum.IntFlag):
    R = 1
    W = 2


class Permission(enum.Flag):
    R = 1
    W = 2


@dataclasses.dataclass
class Text(str):
    a: int = 0


@dataclasses.dataclass
class Items(list):  # type: ignore[type-arg]
    a: int = 0


@dataclasses.dataclass
class Trouble(Exception):
    a: int = 0


@dataclasses.dataclass
class OverPair(Pair):
    c: int = 0


class Zone(datetime.tzinfo):
    def utcoffset(self, moment: datetime.datetime | None) -> datetime.timedelta:
        return datetime.timedelta(hours=1)

    dst = utcoffset

    def tzname(self, moment: datetime.datetime | None) -> str:
        return "here"


CLASSES = [Note, Derived, Cached, OverSlots, Box, Wide, Pair, WidePair, P, Permission]
NOON = datetime.datetime(2024, 1, 1, 12)


def having(value: Any, **attributes: Any) -> Any:
    for name, each in attributes.items():
        setattr(value, name, each)
    return value


TOLD_APART: list[tuple[Any, Any]] = [
    (Note(1, "x"), Note(1, "y")),
    (Derived(1), having(Derived(1), total=7)),
    (Derived(1), having(Derived(1), extra=[2])),
    (Derived(1), having(Derived(1), unset=0)),
    (Derived(1), having(Derived(1), more=None)),
    (OverSlots(1), having(OverSlots(1), hidden=1)),
    (Box(1), Box("1")),
    (Wide(1), having(Wide(1), more=1)),
    (WidePair(1, 2), having(WidePair(1, 2), more=1)),
    (P(0), P(8)),
    (P(8), P(16)),
    (P.R, P.R | P.W),
    (Permission(0), Permission.R),
    (Permission.R | Permission.W, Permission.W),
    (uuid.UUID(int=1), uuid.UUID(int=1, is_safe=uuid.SafeUUID.safe)),
    (NOON.replace(tzinfo=datetime.UTC), NOON.replace(tzinfo=zoneinfo.ZoneInfo("UTC"))),
]


@pytest.mark.parametrize(("left", "right"), TOLD_APART, ids=[repr(pair)[:60] for pair in TOLD_APART])
def test_what_differs_in_anything_has_other_bytes_and_comes_back_with_it(left: Any, right: Any) -> None:
    assert canonical(left) != canonical(right)
    assert stored(left) != stored(right)
    for value in (left, right):
        again = restored(canonical(value), CLASSES)
        assert type(again) is type(value) and canonical(again) == canonical(value)
        assert getattr(again, "__dict__", None) == getattr(value, "__dict__", None)
        assert repr(again) == repr(value)


@pytest.mark.parametrize("kind", [Cached, CachedStruct, CachedTuple])
def test_what_follows_from_the_rest_is_not_inspected(kind: Any) -> None:
    asked = kind(3)
    before = canonical(asked)
    assert asked.doubled == 6 and canonical(asked) == before
    assert canonical(Box[int](1)) == canonical(Box(1))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (Text("lost"), "Text has no canonical form: it is also a str, .* make it a field"),
        (Items([1]), "Items has no canonical form: it is also a list"),
        (Trouble("lost"), "Trouble has no canonical form: it is also a"),
        (tuple.__new__(OverPair, (1, 2)), "OverPair has no canonical form: it is also a"),
        (tuple.__new__(Pair, (1, 2, 3)), "Pair has no canonical form: it has more entries"),
        (NOON.replace(tzinfo=Zone()), "Zone as the time zone of a moment has no .* use zoneinfo.ZoneInfo"),
        (datetime.time(1, tzinfo=Zone()), "Zone as the time zone of a moment has no"),
        (Note, "type has no canonical form"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_distinguished_is_refused_by_name(value: Any, says: str) -> None:
    with pytest.raises(NoCanonicalForm, match=says):
        canonical([value])


def test_an_enum_that_makes_up_members_is_refused() -> None:
    class Open(enum.Enum):
        A = 1

        @classmethod
        def _missing_(cls, value: object) -> Any:
            made = object.__new__(cls)
            made._name_, made._value_ = "A", value
            return made

    assert canonical(Open.A)
    with pytest.raises(NoCanonicalForm, match="is no member of it"):
        canonical(Open(2))


def test_a_field_that_is_gone_or_new_since_is_refused() -> None:
    data = canonical(Note(1, "x"))
    newer = dataclasses.make_dataclass("Note", [("t", int), ("note", str), ("new", int, 0)])
    older = dataclasses.make_dataclass("Note", [("t", int)])
    for kind in (newer, older):
        with pytest.raises(CannotRestore):
            restored(data, [kind])


def time_of(note: Note) -> int:
    return note.t


def note_of(note: Note) -> str:
    return note.note


def by_time(lateness: int = 0) -> drift.Graph:
    graph = drift.Graph("notes")
    graph.source("in", time=drift.EventTime(time_of, lateness)).map(note_of).sink("out")
    return graph


def test_a_field_that_does_not_compare_has_its_say_in_the_order() -> None:
    runs = [drift.run(by_time(), {"in": [Note(1, first), Note(1, last)]}) for first, last in ("xy", "yx")]
    assert [item.payload for item in runs[0]] == [item.payload for item in runs[1]]
    assert runs[0].digest == runs[1].digest


def key_of(note: Note) -> int:
    return 0


def latest(window: tuple[Note, ...]) -> Note:
    return Note(0, window[-1].note) if len(window) < 2 else Note(0, window[-2].note)


def test_a_correction_of_a_field_that_does_not_compare_is_sent() -> None:
    graph = drift.Graph("corrected")
    notes = graph.source("in", time=drift.EventTime(time_of, 10)).group(key_of, 2).map(latest).map(note_of)
    notes.sink("out")
    arrived = {"in": [Note(1, "a"), Note(5, "c"), Note(3, "b")]}
    expected = [item.payload for item in drift.run(graph, arrived, engine="reference")]
    assert expected == ["a", "a", "b"]
    assert [item.payload for item in drift.run(graph, arrived, batch_items=1)] == expected


def test_bits_of_flags_are_keys_of_their_own() -> None:
    graph = drift.Graph("flags")
    graph.source("in").count(key=lambda flag: flag).sink("out")
    run = drift.run(graph, {"in": [P(0), P(8), P(16), P.R, P.R | P.W, P(0)]})
    assert [count for _, count in (item.payload for item in run)] == [1, 1, 1, 1, 1, 2]


def test_flags_and_hidden_attributes_come_back_from_a_record(tmp_path: Any) -> None:
    graph = drift.Graph("kept")
    graph.source("in").sink("out")
    payloads = [P.R, P.R | P.W, P(8), Permission(0), Note(1, "kept"), having(Derived(2), more=1)]
    run = drift.run(graph, {"in": payloads}, record=tmp_path / "record")
    run.finish()
    again = drift.replay(drift.Record(tmp_path / "record", CLASSES), graph)
    assert [repr(item.payload) for item in again] == list(map(repr, payloads))
    assert again.digest == run.digest
    (derived,) = [item.payload for item in drift.Record(tmp_path / "record", CLASSES).items()][-1:]
    assert derived.extra == [2] and derived.more == 1
