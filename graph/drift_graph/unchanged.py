"""Detects objects that change while a run has them: what functions are handed, and what they have returned.

Invariant: a run in which a function of a user changes in place what it is handed, or an object that it has returned
before, ends with an error that names the function; no value is left out. Values that nobody can change (numbers, text,
tuples of these) are only looked at for their types.

Why: a payload or a state is one object for everybody who receives it, and machines store it for corrections. So its
encoding before a call, or a batch of calls, is compared with that after it. An object that comes out of a function, and
that nobody else has a reference to, can be changed by nobody but those it is handed to later; if the function, or
anybody else, still has it, it is encoded when it comes, call by call, and compared when it comes again, at the next
calls, and when the batch ends. So a constant that is returned each time, and an argument that is returned as it is, are
as good as new objects.

The encoding is msgspec's, the fastest there is. It has no word for some differences of type (a list that becomes a
tuple, a Decimal that becomes text), so the first values of each kind are compared by their canonical form too.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import enum
import fractions
import types
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice
from sys import getrefcount
from typing import Any, NamedTuple, TypeVar

import msgspec
import xxhash

from drift_graph.canonical import NoCanonicalForm, stored, stored_each
from drift_graph.content import shape_of
from drift_graph.errors import ImpureStep
from drift_graph.functions import LibraryFunction, field_of, safe_text
from drift_graph.later import Later
from drift_graph.operators import Map, Operator, location_of
from drift_graph.payloads import are_rows
from drift_graph.restore import CannotRestore, restored
from drift_kernel import kernel

T = TypeVar("T")

SAMPLED_MAX = 32  # values that are compared by their canonical form too
_PIECE = 256  # values that are encoded at once
_KEPT_BYTES_MAX = 1 << 16  # of a piece; of a larger one its hash is kept
_RECENT = 8
_SWEPT_MIN = 64

_SCALARS: frozenset[type] = frozenset({str, int, float, bool, bytes, type(None)})
_UNCHANGEABLE: frozenset[type] = _SCALARS | {
    complex, datetime.date, datetime.datetime, datetime.time, datetime.timedelta, decimal.Decimal, fractions.Fraction,
    uuid.UUID, range, type, types.FunctionType, types.BuiltinFunctionType,
}  # fmt: skip
#: Types whose objects nobody can change, but for what is in a tuple.
PLAIN_OR_TUPLE = _UNCHANGEABLE_OR_TUPLE = _UNCHANGEABLE | {tuple}


def unchangeable(kind: type[T]) -> type[T]:
    """For a class of this library: nobody can change its objects."""
    global _UNCHANGEABLE, _UNCHANGEABLE_OR_TUPLE
    _UNCHANGEABLE |= {kind}
    _UNCHANGEABLE_OR_TUPLE |= {kind}
    return kind


# Which values anybody can change.


def are_unchangeable(values: Sequence[Any]) -> bool:
    """Whether nobody can change any of the values, by their types alone: scalars, and tuples of these at any depth."""
    if kernel is not None and type(values) is list:
        found: bool | None = kernel.are_unchangeable(values, _UNCHANGEABLE)
        if found is not None:
            return found
    kinds = set(map(type, values))
    if kinds <= _UNCHANGEABLE:
        return True
    if tuple not in kinds or not kinds - {tuple} <= _UNCHANGEABLE:
        return False
    tuples = values if len(kinds) == 1 else [each for each in values if type(each) is tuple]
    inside = set(map(type, chain.from_iterable(tuples)))
    return inside <= _UNCHANGEABLE or (tuple in inside and are_unchangeable(list(chain.from_iterable(tuples))))


def _changeable(values: Iterable[Any]) -> list[Any]:
    """The values that may change: those in tuples in place of the tuples, and of windows that overlap each once."""
    found: list[Any] = []
    todo, count = list(values), 0
    while todo:
        count += len(todo)
        kinds = set(map(type, todo))
        if Later in kinds:
            todo = [each.payload if type(each) is Later else each for each in todo]
            kinds = set(map(type, todo))
        if kinds != {tuple}:
            found += [each for each in todo if type(each) not in _UNCHANGEABLE_OR_TUPLE]
            todo = [each for each in todo if type(each) is tuple] if tuple in kinds else []
        todo = list(chain.from_iterable(todo))
    return found if 2 * len(found) < count else list({id(each): each for each in found}.values())


def _members(values: Sequence[Any]) -> list[Any]:
    """What is inside of values, one level down."""
    inside: list[Iterable[Any]] = []
    if set(map(type, values)) <= _SEQUENCES:
        return [each for each in chain.from_iterable(values) if type(each) not in _UNCHANGEABLE]
    for each in values:
        kind = type(each)
        if kind in _UNCHANGEABLE or isinstance(each, (enum.Enum, type)):  # which lead to their classes, and back
            continue
        if kind is dict:
            inside.append(each.values())
        elif kind is Later:
            inside.append((each.payload,))
        elif kind in (list, tuple, set, frozenset):
            inside.append(each)
        elif (shape := shape_of(kind)) is not None:
            inside.append(getattr(each, name, None) for name in shape.names)
        elif hasattr(each, "__dict__"):
            inside.append(vars(each).values())
    return list(chain.from_iterable(inside))


#: The references to an object that only a list has, while `map` asks for them.
_OF_ONE_LIST = max(map(getrefcount, [object()]))


def are_fresh(values: list[Any], given: Sequence[Any]) -> bool:
    """Whether nobody but this list has a reference to any of the values, or to what is in them and may change; but for
    what is part of what was given, which is whoever's it was before.
    """
    if kernel is not None and kernel.are_fresh(values, _UNCHANGEABLE):
        return True
    level, references = values, _OF_ONE_LIST
    known: set[int] | None = None
    while True:
        kinds = set(map(type, level))
        if kinds <= _UNCHANGEABLE:
            return True
        if kinds <= _MUTABLE and max(map(getrefcount, level)) <= references:
            if kinds == {dict} and set(map(type, chain.from_iterable(map(dict.values, level)))) <= _UNCHANGEABLE:
                return True
        else:
            shared = _shared(level, references)
            if shared and known is None:
                known = set(map(id, given))
            if shared and not shared <= known:  # type: ignore[operator]
                known |= _parts(given)  # type: ignore[operator]
                if not shared <= known:
                    return False
            level = [each for each in level if type(each) not in _UNCHANGEABLE and id(each) not in shared]
        level, references = _members(level), _OF_ONE_LIST + 1  # what they are in, and the new list


def _shared(level: Sequence[Any], references: int) -> set[int]:
    """The identities of those that may change, and that somebody else has."""
    counts = [*map(getrefcount, level)]  # before any of them has a name
    return {
        id(each)
        for each, count in zip(level, counts)
        if count > references and not isinstance(each, enum.Enum) and not are_unchangeable([each])
    }


def _parts(values: Sequence[Any]) -> set[int]:
    """The identities of all that is in values, and may change."""
    found: set[int] = set()
    level: Sequence[Any] = values
    while level and not set(map(type, level)) <= _UNCHANGEABLE:
        new = {id(each): each for each in level if type(each) not in _UNCHANGEABLE and id(each) not in found}
        found.update(new)
        level = _members(list(new.values()))  # each once: a value may be in itself
    return found


_MUTABLE = frozenset({dict, list, set})
_SEQUENCES = frozenset({tuple, list, set, frozenset})


# Encodings.


def _hook(value: Any) -> Any:
    if type(value) is Later:
        return value.payload
    try:
        return stored(value)
    except NoCanonicalForm:
        return type(value).__qualname__


_encode = msgspec.msgpack.Encoder(enc_hook=_hook).encode
_decode = msgspec.msgpack.Decoder().decode


def _printed(values: Sequence[Any]) -> bytes:
    """An encoding in which a change of any of the values shows."""
    try:
        return _encode(values)
    except (OverflowError, UnicodeEncodeError, RecursionError, ValueError, TypeError):
        return b"\xc1".join(form or b"" for form in _bytes_of(values))


def _prints(values: Sequence[Any]) -> list[bytes]:
    """What `_printed` gives of values in pieces; of large pieces a hash."""
    pieces = [values] if len(values) <= _PIECE else [values[at : at + _PIECE] for at in range(0, len(values), _PIECE)]
    prints = map(_printed, pieces)
    return [each if len(each) <= _KEPT_BYTES_MAX else xxhash.xxh3_128_digest(each) for each in prints]


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


def difference_of(then: bytes, value: Any) -> str:
    """A value when it had these bytes, and now, for a message."""
    return f"it was {_text_of(then, value)} and is {safe_text(repr, value, 200)}"


# What is handed out.


class Sample(NamedTuple):
    """A value that was handed out, with its bytes and its text as they were."""

    value: Any
    data: Any
    shown: str

    @property
    def is_changed(self) -> bool:
        try:
            return bool(stored(self.value) != self.data)
        except NoCanonicalForm:
            return True

    @property
    def difference(self) -> str:
        """The value before and after, for a message."""
        return f"it was {self.shown} and is {safe_text(repr, self.value, 200)}"


class _SampleOfAll(Sample):
    """All values that were handed out and may change, with their encodings as they were."""

    __slots__ = ()

    @property
    def is_changed(self) -> bool:
        return bool(_prints(self.value) != self.data)

    @property
    def difference(self) -> str:
        for at, then in enumerate(self.data):
            values = self.value[at * _PIECE : (at + 1) * _PIECE]
            if _prints(values) != [then]:
                with suppress(msgspec.DecodeError, ValueError, TypeError):  # of a hash, or of forms
                    for was, value in zip(_decode(then), values):
                        if _printed([was]) != _printed([value]):
                            return f"it was {safe_text(repr, was, 200)} and is {safe_text(repr, value, 200)}"
        return "it is another value than before"


class _SampleOfContents(Sample):
    """All values that were handed out, dicts and lists of what nobody can change, and what was in them."""

    __slots__ = ()

    @property
    def is_changed(self) -> bool:
        return not self.data.are_same() and self._first() is not None

    def _first(self) -> tuple[Any, Any] | None:
        """The first value that differs from what it was, in front of it what it was; None if the bytes are the same."""
        pairs = zip(self.data.before(), self.value)
        return next((pair for pair in pairs if _bytes_of(pair[:1]) != _bytes_of(pair[1:])), None)

    @property
    def difference(self) -> str:
        first = self._first()
        assert first is not None
        was, value = (safe_text(repr, each, 200) for each in first)
        return f"it was {was} and is {value}"


def _sample_of_all(values: list[Any]) -> Sample:
    if kernel is not None:
        contents = kernel.Contents(values, _UNCHANGEABLE)
        if contents.is_known:
            return _SampleOfContents(values, contents, "")
    return _SampleOfAll(values, _prints(values), "")


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
        """The sample of the values, if they are changed; None if not, or if none was made."""
        sample: Sample | None = self.value.sample
        return sample if sample is not None and sample.is_changed else None


class Sampler:
    """Encodes what is handed out, so that a change shows.

    Attributes:
        is_plain: whether nobody can change any of the values that were sampled last.
        kept: the last keys that the function has returned, if they may change, each with its identity.
    """

    __slots__ = ("_compared", "is_plain", "kept")

    def __init__(self) -> None:
        self._compared, self.is_plain = 0, False
        self.kept: Sequence[tuple[Any, Any]] = ()

    def sample(self, values: Sequence[Any], *more: Any) -> list[Sample]:
        """The values handed out now, and `more`, as they are; empty if nobody can change any of them."""
        samples: list[Sample] = []
        self.is_plain = False
        if are_rows(values):  # values that are made of these would be others than those that are handed out
            values.watch(_sample_of_all)
            samples.append(_SampleOfRows(values, b"", ""))
            values = ()
        are_plain = are_unchangeable(values)
        self.is_plain = are_plain and not samples
        if are_plain and are_unchangeable([*more]):
            return samples
        changeable: list[Any] = [] if are_plain else [*values]
        if not are_plain and tuple in set(map(type, values)):
            changeable = _changeable(values)
        changeable[:0] = _changeable(more)
        sample = _sample_of_all(changeable)
        if type(sample) is _SampleOfAll and self._compared < SAMPLED_MAX:
            first = map(_sample_of, changeable[: SAMPLED_MAX - self._compared])
            samples.extend(each for each in first if each is not None)
            self._compared += len(values)
        samples.append(sample)
        return samples


def _sample_of(value: Any) -> Sample | None:
    try:
        data = stored(value)
    except NoCanonicalForm:
        return None
    return Sample(value, data, safe_text(repr, value, 200))


class Handed:
    """The values that a user's function gets for one call, and their bytes before it; to be checked after it.

    Args:
        function: of an operator; as `handed` it may have a function from its argument to what the user's function gets.
        argument: of the operator's function.
    """

    __slots__ = ("values", "_before")

    def __init__(self, function: Callable[..., Any], argument: Any) -> None:
        handed = field_of(function, "handed")
        values = (argument,) if handed is None else handed(argument)
        self.values = () if are_unchangeable(values) else _changeable(values)
        self._before = _bytes_of(self.values) if self.values else []

    def check_unchanged(self, operator: Operator) -> None:
        """Called after the call. Raises ImpureStep: the function has changed one of the values."""
        if self.values and (after := _bytes_of(self.values)) != self._before:
            for value, data, now in zip(self.values, self._before, after):
                if data is not None and now != data:
                    check_unchanged(operator, [Sample(value, data, _text_of(data, value))])


#: Of a call that is not checked.
UNCHECKED = Handed(len, None)


def check_unchanged(operator: Operator, samples: Sequence[Sample]) -> None:
    """Called after an operator's function. Raises ImpureStep: the function has changed its argument."""
    for each in samples:
        if each.is_changed:
            raise changed_argument(operator, each.difference)


def changed_argument(operator: Operator, difference: str) -> ImpureStep:
    """The error for a function that has changed what it was handed."""
    has_state = any(field_of(function, "loop") for function in operator.functions.values())
    what = "a payload or a state" if has_state else "a payload"
    return ImpureStep(
        f"step {operator.step!r} ({operator.label}) changed {what} in place: {difference}; it is stored "
        f"for later items and for corrections: let the function return a new value, as (*state, x) in place of "
        f"state.append(x)\n"
        f"  at       {location_of(operator)}\n"
        f"  declared {operator.where}",
        step=operator.step,
        where=location_of(operator),
    )


class InPlace(Exception):
    """The function of a call has changed what it was handed, or what it had returned before.

    Attributes:
        error: makes the error of an operator, for the difference.
        difference: "it was ... and is ...".
    """

    def __init__(self, error: Callable[[Operator, str], ImpureStep], difference: str) -> None:
        super().__init__(error, difference)
        self.error = error
        self.difference = difference


# What is returned.


class Returned:
    """What one function has returned while somebody else may still have it.

    Attributes:
        is_watched: whether each call is to be noted, since an object came that somebody else has.
    """

    __slots__ = ("is_watched", "_held", "_recent", "_sweep_at")

    def __init__(self) -> None:
        self.is_watched = False
        self._held: dict[int, _SampleOfAll] = {}
        self._recent: deque[_SampleOfAll] = deque(maxlen=_RECENT)
        self._sweep_at = _SWEPT_MIN

    def note(self, results: Sequence[Any], given: Sequence[Any] = ()) -> str:
        """Called with what one call has returned, before anything else is called.

        Args:
            given: what the call was handed, which may be among the results.

        Returns:
            "", or how an object that was returned before has changed, "it was ... and is ...".
        """
        if are_unchangeable(results):
            return ""
        known = {id(each) for each in _changeable(given)} if given else ()
        for value in _changeable(results):
            sample = self._held.get(id(value))
            if sample is not None and sample.is_changed:
                return sample.difference
            if sample is None and id(value) not in known:
                sample = _SampleOfAll([value], _prints([value]), "")
                self._held[id(value)] = sample
                self._recent.append(sample)
        if changed := self._changed(self._recent):
            return changed
        if len(self._held) >= self._sweep_at:
            return self.sweep()
        return ""

    def sweep(self) -> str:
        """Compare all that is held, and let go of what nobody else has; as `note`."""
        if changed := self._changed(self._held.values()):
            return changed
        self._recent.clear()
        for key in [*self._held]:
            (value,) = self._held[key].value
            if getrefcount(value) <= _OF_ONE_LIST + 1:  # the list of the sample, and the name
                del self._held[key]
        self._sweep_at = max(_SWEPT_MIN, 2 * len(self._held))
        return ""

    def _changed(self, samples: Iterable[_SampleOfAll]) -> str:
        return next((each.difference for each in samples if each.is_changed), "")


def changed_later(operator: Operator, difference: str) -> ImpureStep:
    """The error for a function that has changed what it returned before."""
    return ImpureStep(
        f"step {operator.step!r} ({operator.label}) changed in place what it had returned before: {difference}; others "
        f"have it already: let the function return a new object each time, as {{**row, key: x}} or [*old, x]\n"
        f"  at       {location_of(operator)}\n"
        f"  declared {operator.where}",
        step=operator.step,
        where=location_of(operator),
    )


def own(value: Any) -> Any:
    """A copy of a value that its maker may still have and change; the value itself, if nobody can, or no copy is it."""
    if are_unchangeable([value]):
        return value
    try:
        made = copy.deepcopy(value)
        return made if _printed([made]) == _printed([value]) else value
    except Exception:  # the class has a __deepcopy__ of its own, or none is possible
        return value


def gives_users(function: Callable[..., Any]) -> bool:
    """Whether a function returns what a user's function makes."""
    return bool(field_of(function, "gives_users", False)) or not isinstance(function, LibraryFunction)


class Noting:
    """What the functions of one stage have returned, call by call, until it is compared at the end of a batch.

    Attributes:
        is_on: whether calls are noted. They are in the first batch, and then while something that may change leaves the
            stage, or is returned; and from a result on that may change, since a window or a sum may hold it for long.
    """

    __slots__ = ("is_on", "_calls", "_is_of_step", "_results", "_prints")

    def __init__(self) -> None:
        self.is_on = True
        self._is_of_step = False  # of whose results, while calls are not noted, tuples are not looked into
        self._calls: Any = None
        self._results: list[Any] = []
        self._prints: list[bytes] = []

    def of(self, function: Callable[..., Any]) -> Noted:
        """A function whose results are noted."""
        return Noted(function, self)

    def of_step(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The step of a scan, whose results are noted while that is on."""
        self._is_of_step = True
        if kernel is None:
            return self.of(function)
        self._calls = kernel.NotedCalls(function, _UNCHANGEABLE, _encode, self._results, self._prints, self.note)
        return self._calls  # type: ignore[no-any-return]

    def note(self, result: Any) -> None:
        """Called with what one call has returned, before anything else is called."""
        try:
            self._prints.append(_encode(result))
        except (OverflowError, UnicodeEncodeError, RecursionError, ValueError, TypeError):
            self._prints.append(_printed((result,)))
        self._results.append(result)

    def noting(self, give: Callable[[Any], None]) -> Callable[[Any], None]:
        """A function that takes what a function of a user gives, where that is noted."""

        def take(given: Any) -> None:
            if self.is_on or self.is_on_from(given):
                self.note(given)
            give(given)

        return take

    def is_on_from(self, result: Any) -> bool:
        """Whether calls are noted from this one on, which was not to be, since its result may change."""
        self.is_on = type(result) not in _UNCHANGEABLE and not are_unchangeable([result])
        return self.is_on

    @property
    def has_kept(self) -> bool:
        """Whether something that may change was returned lately."""
        return bool(self._results) or (self._calls is not None and self._calls.keeps)

    def check(self, outputs: Sequence[Any]) -> str:
        """Called at the end of a batch with what leaves the stage.

        Returns:
            "", or how an object that was returned before has changed, "it was ... and is ...".
        """
        results, prints, calls = self._results, self._prints, self._calls
        if results and _printed(results)[_header_bytes(len(results)) :] != b"".join(prints):
            for result, then in zip(results, prints):
                if _printed_one(result) != then:
                    return f"it was {_shown(then)} and is {safe_text(repr, result, 200)}"
        if results or (calls is not None and calls.called):
            self.is_on = not are_unchangeable(results) or (calls is not None and calls.some)
            if calls is not None:
                calls.reset()
            del results[: -_RECENT if self.is_on else None], prints[: -_RECENT if self.is_on else None]
            return ""
        if self._is_of_step and not are_rows(outputs) and not are_unchangeable(outputs):
            self.is_on = True
        return ""


def with_noted(operator: Map) -> tuple[Map, Noting | None]:
    """A map whose function notes what the users' functions in it return; None if none of that is kept or given."""
    noted = field_of(operator.function, "with_noted")
    noting = Noting()
    function = operator.function if noted is None else noted(noting)
    return (operator, None) if function is operator.function else (replace(operator, function=function), noting)


def _header_bytes(count: int) -> int:
    """The bytes before the values of an array."""
    return 1 if count < 16 else 3 if count < 1 << 16 else 5


def _shown(data: bytes) -> str:
    try:
        return safe_text(repr, _decode(data), 200)
    except (msgspec.DecodeError, ValueError, TypeError):  # it is a form
        return "another value"


def _printed_one(value: Any) -> bytes:
    try:
        return _encode(value)
    except (OverflowError, UnicodeEncodeError, RecursionError, ValueError, TypeError):
        return _printed((value,))


class Noted(LibraryFunction):
    """A function of a user whose results are noted."""

    __slots__ = ("user_function", "_noting")

    def __init__(self, function: Callable[..., Any], noting: Noting) -> None:
        self.user_function, self._noting = function, noting

    def __call__(self, *arguments: Any) -> Any:
        result = self.user_function(*arguments)
        if self._noting.is_on or self._noting.is_on_from(result):
            self._noting.note(result)
        return result

    def each(self, payloads: Sequence[Any]) -> Iterable[Any]:
        """The results of many calls, each looked at before the next call."""
        noting, done = self._noting, list[Any]()
        if kernel is not None and type(payloads) is list and not noting.is_on:
            done = kernel.called_up_to(self.user_function, payloads, _UNCHANGEABLE)
            if done and noting.is_on_from(done[-1]):
                noting.note(done[-1])
        return done if len(done) == len(payloads) else chain(done, map(self, islice(payloads, len(done), None)))
