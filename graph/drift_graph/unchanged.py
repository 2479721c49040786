"""Detects functions that change their arguments in place, by comparing a sample's bytes before and after the call.

Invariant: a function that changes its argument on every call is found at the first call; one that does so now and then
is found in time. Plain values (scalars, and tuples of these) cannot be changed and cost nothing.

Why: a payload or a state is one object for everybody who receives it, and machines store it for corrections. The first
calls are checked, then fewer and fewer, down to one batch in some thousand items, and fewer if values are large. So
checking takes a few hundredths of the time at most. The reference checks every call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from drift_graph.canonical import NoCanonicalForm, are_plain, stored, stored_each
from drift_graph.errors import ImpureStep
from drift_graph.functions import field_of, safe_text
from drift_graph.operators import Operator, location_of
from drift_graph.payloads import are_rows
from drift_graph.restore import CannotRestore, restored

SAMPLED_MAX = 32  # per batch that is checked
_BYTES_MAX = 4096  # after this many bytes a check stops
_INTERVAL_ITEMS_MAX = 16384  # items between two checks
_INTERVAL_ITEMS_PER_BYTE = 4


class Sample(NamedTuple):
    """A value that was handed out, with its bytes and its text as they were."""

    value: Any
    data: bytes
    shown: str

    @property
    def is_changed(self) -> bool:
        try:
            return stored(self.value) != self.data
        except NoCanonicalForm:
            return True

    @property
    def difference(self) -> str:
        """The value before and after, for a message."""
        return f"it was {self.shown} and is {safe_text(repr, self.value, 200)}"


class _SampleOfRows(Sample):
    """A batch of rows that was handed out. Values are made of its columns, which nobody can change."""

    __slots__ = ()

    @property
    def is_changed(self) -> bool:
        return self._changed() is not None

    @property
    def difference(self) -> str:
        changed = self._changed()
        assert changed is not None
        return changed.difference

    def _changed(self) -> Sample | None:
        """The first value that is not as its columns have it; None if all are, or none was made."""
        made = self.value.made(SAMPLED_MAX)
        forms = self.value[: len(made)].forms(stored=True) if made else ()
        for value, data in zip(made, forms):
            if Sample(value, data, "").is_changed:
                return Sample(value, data, _text_of(data, value))
        return None


class Sampler:
    """Chooses which batches are checked, by how many items have passed."""

    __slots__ = ("_passed", "_due")

    def __init__(self) -> None:
        self._passed = 0
        self._due = 0

    @property
    def is_due(self) -> bool:
        """Whether `sample` would check something now."""
        return self._passed >= self._due

    def pass_by(self, count: int) -> None:
        """Count items that were handed out unchecked."""
        self._passed += count

    def sample(self, values: Sequence[Any], *more: Any) -> list[Sample]:
        """A sample of the values handed out now, and `more`; empty if no check is due."""
        before = self._passed
        self._passed = before + len(values)
        if before < self._due:
            return []
        samples: list[Sample] = []
        size = 0
        first = values[:SAMPLED_MAX]
        if are_rows(first):  # values that are made of these would be others than those that are handed out
            samples.append(_SampleOfRows(values, b"", ""))
            first = ()
        for value in (*more, *first):
            each = _sample_of(value)
            if each is not None:
                samples.append(each)
                size += len(each.data)
                if size > _BYTES_MAX:
                    break
        if self._passed > SAMPLED_MAX or size > _BYTES_MAX:
            self._due = self._passed + min(self._passed, _INTERVAL_ITEMS_MAX) + _INTERVAL_ITEMS_PER_BYTE * size
        return samples


class Handed:
    """The values that a user's function gets for one call, and their bytes before it; to be checked after it.

    Args:
        function: of an operator; as `handed` it may have a function from its argument to what the user's function gets.
        argument: of the operator's function.
    """

    __slots__ = ("_values", "_before")

    def __init__(self, function: Callable[..., Any], argument: Any) -> None:
        handed = field_of(function, "handed")
        values = (argument,) if handed is None else handed(argument)
        self._values = [value for value in values if type(value) not in _unchangeable]
        self._before = _bytes_of(self._values) if self._values else []

    def check_unchanged(self, operator: Operator) -> None:
        """Called after the call.

        Raises:
            ImpureStep: the function has changed one of the values.
        """
        if self._values and (after := _bytes_of(self._values)) != self._before:
            for value, data, now in zip(self._values, self._before, after):
                if data is not None and now != data:
                    check_unchanged(operator, [Sample(value, data, _text_of(data, value))])


_unchangeable = frozenset({str, int, float, bool, bytes, type(None)})


#: Of a call that is not checked.
UNCHECKED = Handed(len, None)


def _bytes_of(values: Sequence[Any]) -> list[bytes | None]:
    """`stored` of each; None for a value that has no canonical form."""
    try:
        return [*stored_each(values)]
    except NoCanonicalForm:
        return [_bytes_of((value,))[0] for value in values] if len(values) > 1 else [None]


def _text_of(data: bytes, value: Any) -> str:
    """The text of a value as it was when it had these bytes."""
    try:
        return safe_text(repr, restored(data, (type(value),)), 200)
    except CannotRestore:
        return "another value"


def _sample_of(value: Any) -> Sample | None:
    if are_plain((value,)):
        return None
    try:
        data = stored(value)
    except NoCanonicalForm:
        return None
    return Sample(value, data, safe_text(repr, value, 200) if len(data) <= _BYTES_MAX else "another value")


def check_unchanged(operator: Operator, samples: Sequence[Sample]) -> None:
    """Called after an operator's function.

    Raises:
        ImpureStep: the function has changed its argument.
    """
    for each in samples:
        if each.is_changed:
            has_state = any(field_of(function, "loop") for function in operator.functions.values())
            what = "a payload or a state" if has_state else "a payload"
            raise ImpureStep(
                f"step {operator.step!r} ({operator.label}) changed {what} in place: {each.difference}; it is stored "
                f"for later items and for corrections: let the function return a new value, as (*state, x) in place of "
                f"state.append(x)\n"
                f"  at       {location_of(operator)}\n"
                f"  declared {operator.where}",
                step=operator.step,
                where=location_of(operator),
            )
