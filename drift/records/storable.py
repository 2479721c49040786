"""Checks that payloads can be restored from a record exactly.

Invariant: for a payload that passes, `restored` makes an equal value of the same types from its bytes, given the
classes named in `targets`.

Why: a value without users' classes can always be restored; a class is tried on the first payload that has it, and must
be importable by module and name. Scalars and tuples need no check.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import chain
from typing import Any

from drift.records.format import NOT_STORABLE
from drift_graph.canonical import NoCanonicalForm, joined, stored
from drift_graph.content import shape_of
from drift_graph.errors import PayloadError
from drift_graph.functions import safe_text
from drift_graph.payloads import have_fields
from drift_graph.restore import CannotRestore, restored

#: Packages whose modules define classes and do nothing else.
_OWN = ("drift.flow.", "drift.sources.", "drift_graph.")

_leaves = frozenset({str, int, float, bool, type(None), bytes, bytearray, complex})


class Storable:
    """What is known of the classes of a run's payloads.

    Attributes:
        classes: by qualified name.
        targets: "module:qualified name" of each.
    """

    def __init__(self) -> None:
        self.classes: dict[str, type] = {}
        self.targets: dict[str, str] = {}

    def check(self, payloads: Sequence[Any], what: str) -> tuple[int, PayloadError] | None:
        """The index of the first payload that cannot be restored, and why; `what` names their origin."""
        try:
            if not self._new(payloads):
                return None
        except RecursionError:
            pass  # a value is nested too deep or in itself: found below
        for index, payload in enumerate(payloads):
            try:
                new = self._new([payload])
                self._learn(new)
                again = restored(stored(payload), self.classes) if new else payload
                if type(again) is not type(payload) or (new and stored(again) != stored(payload)):
                    raise CannotRestore("the restored value differs from it; correct its constructor")
            except RecursionError:
                return index, _error(what, payload, _too_deep(payload))
            except (NoCanonicalForm, CannotRestore) as reason:
                for kind in self._new([payload]):
                    self.classes.pop(kind.__qualname__, None)
                return index, _error(what, payload, reason)
        return None

    def stored(self, payloads: Sequence[Any], what: str) -> tuple[bytes, tuple[int, PayloadError] | None]:
        """The stored bytes, joined, of the payloads before the first that cannot be restored; and that one, and why."""
        bad = self.check(payloads, what)
        if bad is not None:
            payloads = payloads[: bad[0]]
        try:
            return joined(payloads, in_order=False).data, bad
        except (NoCanonicalForm, RecursionError):  # a class that is not tried, as an object of a library
            return _before_formless(payloads, what)

    def _new(self, payloads: Sequence[Any]) -> set[type]:
        known = self.classes
        return {kind for kind in classes_in(payloads) if known.get(kind.__qualname__) is not kind}

    def _learn(self, kinds: Iterable[type]) -> None:
        for kind in sorted(kinds, key=lambda kind: (kind.__qualname__, kind.__module__)):
            name = kind.__qualname__
            known = self.classes.get(name)
            if known is not None:
                raise CannotRestore(
                    f"two classes are named {name!r}, of {known.__module__} and of {kind.__module__}, which a record "
                    f"cannot distinguish; rename one"
                )
            if _found(kind.__module__, name) is not kind:
                why = "is defined inside a function" if "<locals>" in name else "is not found under its name"
                raise CannotRestore(
                    f"class {name!r} of {kind.__module__} {why}, so nobody could read it back; define it at the top of "
                    f"a module"
                )
            self.classes[name] = kind
            self.targets[name] = f"{kind.__module__}:{name}"


def _before_formless(payloads: Sequence[Any], what: str) -> tuple[bytes, tuple[int, PayloadError] | None]:
    made: list[bytes] = []
    for index, payload in enumerate(payloads):
        try:
            made.append(stored(payload))
        except NoCanonicalForm as reason:
            return b"".join(made), (index, _error(what, payload, reason))
        except RecursionError:
            return b"".join(made), (index, _error(what, payload, _too_deep(payload)))
    return b"".join(made), None


def _too_deep(payload: Any) -> NoCanonicalForm:
    return NoCanonicalForm(type(payload), ", nested too deep or in itself,")


def _error(what: str, payload: Any, reason: Exception) -> PayloadError:
    return PayloadError(f"{what} has a payload {NOT_STORABLE}: {reason}\n  payload  {safe_text(repr, payload, 500)}")


def _found(module: str, name: str) -> Any:
    """What a loaded module, or one of drift, has under a qualified name."""
    found: Any = sys.modules.get(module)
    if found is None and module.startswith(_OWN):
        with suppress(ImportError):  # of another version
            found = import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def classes_at(targets: Iterable[str]) -> dict[str, type]:
    """The classes at "module:qualified name" whose modules are loaded, or drift's: no other is imported."""
    found = {target.partition(":")[2]: _found(*target.partition(":")[::2]) for target in targets}
    return {name: kind for name, kind in found.items() if isinstance(kind, type)}


def classes_in(values: Sequence[Any]) -> set[type]:
    """The dataclasses, Structs, enums and named tuples in values, at any depth."""
    found: set[type] = set()
    if not have_fields(values):
        _gather(values, found, 0)
    return found


def _gather(values: Sequence[Any], found: set[type], depth: int) -> None:
    if depth > 500:
        raise RecursionError
    present = set(map(type, values))
    kinds = present - _leaves
    for kind in kinds:
        these: list[Any] = [each for each in values if type(each) is kind] if len(present) > 1 else list(values)
        inside: list[Any]
        if kind is dict:
            inside = [*chain.from_iterable(these), *chain.from_iterable(each.values() for each in these)]
        elif kind in (tuple, list, set, frozenset):
            inside = list(chain.from_iterable(these))
        elif issubclass(kind, enum.Enum):
            found.add(kind)
            continue
        elif (shape := shape_of(kind)) is not None:
            found.add(kind)
            inside = list(chain.from_iterable(map(shape.content, these)))
        else:
            continue
        if inside:
            _gather(inside, found, depth + 1)
