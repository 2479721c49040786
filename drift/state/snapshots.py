"""A worker's snapshot of a checkpoint as bytes: by step the canonical bytes of keys, and their states in stored form.

Invariant: a snapshot is read as it was written, or was refused when it was written.

Why: keys have the form by which they are compared, and states the form in which records store payloads. One state of
each step is read back when it is written, so a class that cannot be found by its name is reported at the first
checkpoint, not when the run is to resume.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from itertools import chain, repeat
from struct import Struct
from typing import Any, NamedTuple

import msgspec

from drift.flow.corrected import CorrectableWindow
from drift.flow.early import InWindow, Open
from drift.flow.ends import PartOfEnd
from drift.flow.rounds import First, Folded, Forget, Leaves, Part, Round, RoundState
from drift.flow.windows import EarlyNote, Slice, Window, WindowState
from drift.machines.checkpoints import Entries
from drift.machines.keys import form_of_identity, identity_of
from drift.machines.sent import LaterSent
from drift.machines.worker import Snapshot
from drift.operators import State, Timer
from drift.state.checkpoint import StateDamaged
from drift_graph.canonical import NoCanonicalForm, encode_many, joined, stored
from drift_graph.errors import PayloadError
from drift_graph.functions import safe_text
from drift_graph.graph import Dataflow
from drift_graph.item import FAILURES, Failure
from drift_graph.restore import CannotRestore, Classes, classes_near, restored

#: The stored form of a state.
Form = bytes | msgspec.Raw

#: Our own classes that states may contain.
_OURS = (
    *(State, Timer, Failure, First, Folded, Forget, Leaves, Part, Round, RoundState),
    *(CorrectableWindow, EarlyNote, InWindow, Open, PartOfEnd, Slice, Window, WindowState),
)


class States(NamedTuple):
    """The states of one step in a snapshot.

    Attributes:
        keys: an array of canonical forms.
        values: an array of their states in stored form.
        deleted: an array of deleted keys.
        timed: indices of the keys that have timers.
    """

    keys: bytes
    values: bytes
    deleted: bytes
    timed: Sequence[int]

    def entries(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Keys and their values; None for deleted keys."""
        return chain(zip(_parts(self.keys), _parts(self.values)), zip(_parts(self.deleted), repeat(None)))

    def by_identity(self) -> Iterator[tuple[Any, msgspec.Raw | None]]:
        """The identities of keys, and their values; None for deleted keys."""
        return chain(zip(_identities(self.keys), _split(self.values)), zip(_identities(self.deleted), repeat(None)))

    def with_timers(self) -> list[bytes]:
        keys = _parts(self.keys) if self.timed else []
        return [keys[at] for at in self.timed]


class LaterForm(NamedTuple):
    """A later item whose payload is in its stored form."""

    origin: bytes
    target: str
    meta: bytes
    payload: bytes
    diff: int


class StoredSnapshot(NamedTuple):
    states: dict[str, States]
    later: Sequence[LaterForm]


_decode = msgspec.msgpack.Decoder(StoredSnapshot).decode
_encode = msgspec.msgpack.Encoder().encode
_split = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_as_themselves = msgspec.msgpack.Decoder(list[int | str | None]).decode  # keys that are their own identity
_HEADER = Struct(">BI")  # of an array of MessagePack


class Forms:
    """How the states of a graph are written and read.

    Args:
        dataflow: the graph; the modules of its functions are searched for classes of states.
        timed: names of the steps whose states have timers, which are read at once, since they hold minimal time.
        classes: further classes of states.

    Attributes:
        targets: names of the operators, and of what takes failures: later items for others are of no use.
    """

    def __init__(self, dataflow: Dataflow, timed: Collection[str], classes: Iterable[type] = ()) -> None:
        self._timed = frozenset(timed)
        self.targets = frozenset((FAILURES, *(operator.name for operator in dataflow.operators)))
        self._classes: Classes = _classes(dataflow, [*_OURS, *classes])

    def encoded(self, snapshot: Snapshot) -> bytes:
        """The bytes of a snapshot. Raises PayloadError: a state has no stored form, or could not be read back."""
        return encoded_snapshot(self.stored(snapshot))

    def stored(self, snapshot: Snapshot) -> StoredSnapshot:
        """A snapshot in stored form, not joined yet."""
        states = {name: self._states(name, Entries.of(entries)) for name, entries in snapshot.states.items()}
        later = [LaterForm(*each[:3], self._form(each.target, each.payload), each.diff) for each in snapshot.later]
        for each in later[:1]:
            self._check(each.target, each.payload)
        return StoredSnapshot(states, later)

    def _states(self, name: str, entries: Entries) -> States:
        keys, values = entries.identities, entries.values
        timed = [at for at, (_, timers) in enumerate(values) if timers] if name in self._timed else []
        return States(_keys(keys), self._values(name, values), _keys(entries.deleted), timed)

    def _values(self, name: str, values: Sequence[Any]) -> bytes:
        """An array of the stored forms of values."""
        if values:
            self._check(name, self._form(name, values[0]))
        try:
            return _array(len(values), joined(values, in_order=False).data)
        except NoCanonicalForm:
            return _array(len(values), b"".join([self._form(name, value) for value in values]))

    def form(self, name: str, value: Any) -> bytes:
        """The stored form of a state, which was read back.

        Raises:
            PayloadError: it has none, or could not be read back.
        """
        form = self._form(name, value)
        self._check(name, form)
        return form

    def _form(self, name: str, value: Any) -> bytes:
        try:
            return stored(value)
        except NoCanonicalForm as none:
            raise PayloadError(
                f"step {name!r} has a state that cannot be stored: {none}; the state is {safe_text(repr, value, 200)}",
                step=name,
            ) from None

    def _check(self, name: str, form: bytes) -> None:
        try:
            restored(form, self._classes)
        except CannotRestore as error:
            raise PayloadError(
                f"step {name!r} has a state that could be written and not be read again: {error}; classes of states "
                f"have to be known by name in the modules of the graph's functions",
                step=name,
            ) from error

    def value(self, form: bytes) -> Any:
        """Restore a state. Raises StateDamaged: it cannot be restored."""
        try:
            return restored(form, self._classes)
        except CannotRestore as error:
            raise StateDamaged(f"a stored state cannot be read: {error}") from error

    def entries(self, rows: Iterable[tuple[bytes, bytes]]) -> list[tuple[Any, Any]]:
        """Identities of keys and their states, from their bytes."""
        return [(identity_of(key), self.value(form)) for key, form in rows]

    def later(self, forms: Iterable[LaterForm]) -> list[LaterSent]:
        return [LaterSent(*each[:3], self.value(each.payload), each.diff) for each in forms]


def encoded_snapshot(snapshot: StoredSnapshot) -> bytes:
    return _encode(snapshot)


def states_of(entries: Iterable[tuple[Any, Form | None]], timed: Container[Any]) -> States:
    """States from identities of keys and stored forms, None for deleted keys; keys in `timed` have timers."""
    keys: list[Any] = []
    forms: list[Form] = []
    deleted: list[Any] = []
    for key, form in entries:
        if form is None:
            deleted.append(key)
        else:
            keys.append(key)
            forms.append(form)
    indices = [at for at, key in enumerate(keys) if key in timed] if timed else []
    return States(_keys(keys), _array(len(keys), b"".join(forms)), _keys(deleted), indices)


def _keys(keys: Sequence[Any]) -> bytes:
    """An array of canonical forms, from identities."""
    kinds = set(map(type, keys))
    if kinds == {bytes}:
        return _array(len(keys), b"".join(keys))
    return _array(len(keys), b"".join(map(form_of_identity, keys)) if bytes in kinds else encode_many(keys))


def _array(items: int, joined: bytes) -> bytes:
    return _HEADER.pack(0xDD, items) + joined


def _identities(array: bytes) -> list[Any]:
    """Identities of keys, from an array of canonical forms."""
    try:
        return _as_themselves(array)
    except msgspec.ValidationError:  # some are not numbers or text
        return [identity_of(form) for form in _parts(array)]


def _parts(array: bytes) -> list[bytes]:
    return list(map(bytes, _split(array)))


def decoded(data: bytes, where: str) -> StoredSnapshot:
    """Decode a snapshot, whose hash was compared before."""
    try:
        return _decode(data)
    except msgspec.DecodeError as error:
        raise StateDamaged(f"{where} is no snapshot of a checkpoint: {error}") from error


def _classes(dataflow: Dataflow, more: Sequence[type]) -> Classes:
    try:
        return classes_near(_functions(dataflow), more)
    except CannotRestore:
        return {kind.__qualname__: kind for kind in more}  # two of one name, of which the states may need neither


def _functions(dataflow: Dataflow) -> Iterator[Callable[..., Any]]:
    """The functions of a graph, including those inside the functions that sugar makes."""
    todo: list[Any] = [getattr(each, name, None) for each in dataflow.operators for name in ("function", "key", "time")]
    seen: set[int] = set()
    while todo:
        each = todo.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        if callable(each):
            yield each
        if is_dataclass(each) and not isinstance(each, type):
            todo += [getattr(each, known.name) for known in fields(each)]
        todo += [
            getattr(each, "user_function", None),
            getattr(each, "func", None),
            *(getattr(each, "args", None) or ()),
        ]
