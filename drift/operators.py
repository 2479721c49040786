"""The functions of derived operations, to be put into maps and groupings: the core has no other operators.

Invariant: a scan's bucket alternates: item, the state after it, item, the state after it. So the window that ends in
an item starts with the state before it, and the window that ends in a state gives no output.

Why: a state's meta extends its item's, and the map that makes it has a rank of height 0, so it sorts before whatever
else the item causes and before the next item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import msgspec
from msgspec.structs import replace

from drift_graph.functions import LibraryFunction, brief, field_of, is_written_here, same_function
from drift_graph.later import Later
from drift_graph.meta import PHASE_TIMERS
from drift_graph.metas import Metas
from drift_graph.operators import as_sequence
from drift_graph.payloads import Rows
from drift_graph.unchanged import Noting


@dataclass(frozen=True, slots=True)
class State:
    """A state that returns to the grouping of its scan."""

    key: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer's note at a later time, which returns to the grouping of its process."""

    key: Any
    note: Any


#: The types of payloads that return to a grouping over a feedback edge, as opposed to items.
_returned = frozenset({State, Timer})


class _ByValue(LibraryFunction, msgspec.Struct, frozen=True, eq=False):
    """Equal if the class, functions and values are equal, so that a graph built twice is equal.

    Python makes the class of a Struct in a thirtieth of the time that one of a dataclass takes, and there are many.
    """

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            same_function(getattr(self, name), getattr(other, name)) for name in self.__struct_fields__
        )

    def __hash__(self) -> int:
        return hash(type(self).__name__)

    def with_noted(self, noting: Noting) -> Any:
        """The function, where what users' functions in it return is noted, if it is kept or given."""
        return noted_inside(self, noting) if is_noted(self) else self  # type: ignore[arg-type]


#: (role, function, what it returns) -> the same function, watched.
WatchFunction = Callable[[str, Callable[..., Any], Literal["one", "pair", "process"]], Callable[..., Any]]


class LoopFunction(_ByValue, frozen=True):
    """The function of a map of a loop; its input is a window: a state, and the item after it in its key.

    A loop is a grouping followed by such maps, which carries its state on a feedback edge. Lineage, purity checks and
    printing use these attributes, so a new kind of loop only needs subclasses.

    Attributes:
        loop: the kind of step.
        gives: the kind of output; states and timers go back to the grouping.
        carries_state: whether the output goes back.
        most: outputs for one window.
    """

    loop: ClassVar[str]
    gives: ClassVar[Literal["state", "timers", "output"]]
    carries_state: ClassVar[bool] = False
    most: ClassVar[Literal["one", "many"]] = "one"

    @property
    def gives_users(self) -> bool:
        """Whether its output is, or may be, what a user's function has returned."""
        return self.gives == "output"

    __call__: ClassVar[Callable[..., Any]]

    def watched(self, watch: WatchFunction) -> Self:
        """A copy with each of the user's functions watched."""
        raise NotImplementedError

    def handed(self, window: tuple[Any, ...]) -> Sequence[Any]:
        """The payloads and states that the user's functions get for a window: by default all that is in it."""
        return [_inside(each) for each in window]


def _inside(entry: Any) -> Any:
    return entry.value if type(entry) is State else entry.note if type(entry) is Timer else entry


class StepResult(TypeError):
    """A scan's step returned something other than a pair."""

    def __init__(self, result: object) -> None:
        super().__init__(f"the step of a scan returned {result!r:.200}; it must return (next state, output)")


def pair_of(result: Any) -> tuple[Any, Any]:
    """The (state, output) that a step returned: any sequence of two, except text."""
    match result:
        case state, output:
            return state, output
    raise StepResult(result)


class MapsEach(LibraryFunction):
    """A map's function, or a key function, that takes many payloads in one call.

    Attributes:
        chained: makes one function of those of maps in a row that have the same `chained`. It takes payloads, and gives
            a byte for each (1 where it is kept; None if all are) and the results for those; or None where the maps have
            to run one by one. If it raises, they do.
    """

    __slots__ = ()

    chained: ClassVar[Any] = None  # (functions) -> (payloads) -> (bytes | None, results) | None

    def __call__(self, payload: Any) -> Any:
        return self.each([payload])[0]

    def each(self, payloads: Sequence[Any]) -> list[Any]:
        """The result for each payload. It may raise if a call for one of them does."""
        raise NotImplementedError

    def gives_rows(self, given: bool) -> bool:
        """Whether it gives rows in columns; `given`: whether it gets such."""
        return False

    def passes(self, name: str) -> str | None:
        """The field of what it gives that has the values of this field of what it takes; None if none is known to."""
        return None


class GivesRows(MapsEach):
    """A function that leaves its arguments as they are, and gives rows in columns."""

    __slots__ = ()

    leaves_arguments: ClassVar = True

    def gives_rows(self, given: bool) -> bool:
        return True


class KeyedItems:
    """Items of keys, or notes of timers, in the order of metas; iterating gives (key, payload, time) of each."""

    __slots__ = ("_each", "keys", "metas", "payloads")

    def __init__(
        self,
        keys: Sequence[Any],
        payloads: Sequence[Any],
        metas: Metas,
        each: Iterator[tuple[Any, Any, int]] | None = None,
    ) -> None:
        self.keys = keys
        self.payloads = payloads
        self.metas = metas
        self._each = each

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[tuple[Any, Any, int]]:
        return self._each or zip(self.keys, self.payloads, self.metas.times())


class BatchStep(LibraryFunction):
    """A step of a scan that takes rows: a call for one item is a batch of one.

    Attributes:
        initial: the state of a key without one.
    """

    __slots__ = ()

    initial: Any

    def __call__(self, state: Any, payload: Any) -> tuple[Any, Any]:
        """The next state, and the output."""
        states, made = {None: state}, list[Any]()
        self.on_batch(states, KeyedItems((None,), (payload,), Metas()), made.append)
        return states[None], made[0]

    def on_batch(self, states: dict[Any, Any], rows: KeyedItems, give: Callable[[Any], None]) -> None:
        """Process rows: stores the next state of each key in `states`, and gives an output for each row, in order.

        A key that is not in `states` is in the initial state. If a call raises, the rows with an output have been
        processed, and none after them.
        """
        raise NotImplementedError


class FoldsRows(LibraryFunction):
    """A function for items of windows, which a loop of the kernel adds to accumulators, by key."""

    __slots__ = ()

    @property
    def parts(self) -> tuple[bool, list[tuple[Any, Any]]]:
        """Whether accumulators are tuples; and the aggregate of each part of them, with its kind, see
        `drift.columns.aggregates.Kind`; None of any other.
        """
        raise NotImplementedError

    def in_columns(self, rows: Rows) -> tuple[Any, list[Any], list[Any]] | None:
        """The number of each row's key, the keys, and of each part the values, see `Accumulators.fold` in the kernel;
        None if they are not in columns.
        """
        return None


class NumbersWindows(FoldsRows, BatchStep):
    """A step whose outputs are windows of so many items of a key, or none.

    Attributes:
        table: of open windows, empty, for the kernel's loop; None where there is none for these.
    """

    __slots__ = ()

    @property
    def table(self) -> Any:
        raise NotImplementedError

    def windows(
        self, payloads: Sequence[Any], selected: bytes, ends: Sequence[int], accumulators: Sequence[Any]
    ) -> list[Any]:
        """The windows that end with the payloads for which `selected` has a 1.

        Args:
            ends: how many items the key had so far.
        """
        raise NotImplementedError

    def windows_in_columns(
        self, codes: Any, keys: list[Any], selected: bytes, ends: Sequence[int], accumulators: list[Any]
    ) -> Any:
        """The outputs of rows by the accumulators of each part, in arrays; None if they are to be made one by one."""
        return None


class ScanKey(_ByValue, frozen=True):
    """The key of an item, or of a state that returns."""

    loop: ClassVar[str] = "scan"
    key: Callable[[Any], Any]

    @property
    def user_function(self) -> Callable[[Any], Any]:
        return self.key

    def __call__(self, payload: Any) -> Any:
        return payload.key if type(payload) in _returned else self.key(payload)

    def handed(self, payload: Any) -> Sequence[Any]:
        """The payload, if the user's function gets it."""
        return () if type(payload) in _returned else (payload,)


class _ScanFunction(LoopFunction, frozen=True, dict=True):
    """Fields are in each class, in the order in which records have hashed them."""

    loop: ClassVar[str] = "scan"
    if TYPE_CHECKING:
        initial: Any
        step: Callable[[Any, Any], tuple[Any, Any]]

    def handed(self, window: tuple[Any, ...]) -> Sequence[Any]:
        return _handed(window if self.hands_state else window[-1:], self.initials)

    @cached_property
    def hands_state(self) -> bool:
        """Whether the step hands its state to a function of a user."""
        return hands_state(self.step)

    @property
    def initials(self) -> tuple[Any, ...]:
        """What the step gets for a key without a state: the initial state, and as `initials` what the step has."""
        return self.initial, *field_of(self.step, "initials", ())


class ScanOutput(_ScanFunction, frozen=True, dict=True):
    """A window of a scan -> the output for its last payload, if that is an item and the state before it has come."""

    gives: ClassVar[Literal["output"]] = "output"
    initial: Any
    step: Callable[[Any, Any], tuple[Any, Any]]
    user_function: Callable[..., Any]

    def __call__(self, window: tuple[Any, ...]) -> tuple[Any, ...]:
        pair = _stepped(window, self.initial, self.step)
        return (pair[1],) if pair else ()

    def watched(self, watch: WatchFunction) -> Self:
        return replace(self, step=watch("", self.step, "pair"))


class ScanState(_ScanFunction, frozen=True, dict=True):
    """A window of a scan -> the next state, to be fed back."""

    gives: ClassVar[Literal["state"]] = "state"
    carries_state: ClassVar[bool] = True
    key: Callable[[Any], Any]
    initial: Any
    step: Callable[[Any, Any], tuple[Any, Any]]
    user_function: Callable[..., Any]

    def __call__(self, window: tuple[Any, ...]) -> tuple[State, ...]:
        pair = _stepped(window, self.initial, self.step)
        return (State(self.key(window[-1]), pair[0]),) if pair else ()

    def watched(self, watch: WatchFunction) -> Self:
        return replace(self, key=watch("key", self.key, "one"), step=watch("", self.step, "pair"))

    def shown(self, window: tuple[Any, ...]) -> str:
        """A window as an error message shows it."""
        state = window[-2].value if len(window) > 1 and type(window[-2]) is State else self.initial
        return f"{brief(window[-1])}, with state {brief(state)}"


def _stepped(
    window: tuple[Any, ...], initial: Any, step: Callable[[Any, Any], tuple[Any, Any]]
) -> tuple[Any, Any] | None:
    """The step's result for a window; None if the window ends in a state, or if its state has not come yet."""
    payload = window[-1]
    if type(payload) is State:
        return None
    if len(window) == 1:
        return pair_of(step(initial, payload))
    before = window[-2]
    return pair_of(step(before.value, payload)) if type(before) is State else None


def _handed(window: tuple[Any, ...], initial: tuple[Any, ...]) -> tuple[Any, ...]:
    """The item or note that a window ends in, the state before it, and what else functions get for each item."""
    last = window[-1]
    if type(last) is State:
        return ()
    state = (window[-2].value,) if len(window) > 1 and type(window[-2]) is State else ()
    return *initial, *state, last.note if type(last) is Timer else last


class CountStep(_ByValue, frozen=True):
    """The step of `count`."""

    key: Callable[[Any], Any]

    def __call__(self, count: int, payload: Any) -> tuple[int, tuple[Any, int]]:
        return count + 1, (self.key(payload), count + 1)


class ReduceStep(_ByValue, frozen=True):
    """The step of `reduce`; its state is () before a key's first item and (value,) after it."""

    hands_state: ClassVar = True
    gives_users: ClassVar = True

    key: Callable[[Any], Any]
    function: Callable[[Any, Any], Any]

    def __call__(self, state: tuple[Any, ...], payload: Any) -> tuple[tuple[Any], tuple[Any, Any]]:
        value = self.function(state[0], payload) if state else payload
        return (value,), (self.key(payload), value)

    def noted(self, noting: Noting) -> ReduceStep:
        """The step, where what the function returns is noted: the first item of a key is nothing that it returns."""
        return ReduceStep(self.key, noting.of(self.function))


class ProcessResult(TypeError):
    """A function of a process returned something other than a state and outputs."""

    def __init__(self, result: object) -> None:
        super().__init__(
            f"a function of process returned {brief(result, 200)}; it must return (next state, outputs), where outputs "
            f"is a list or a tuple, some of them drift.at(time, note) for itself"
        )


def state_and_outputs(result: Any) -> tuple[Any, Sequence[Any]]:
    """The next state, and the outputs and timers, that a function of a process returned."""
    if type(result) is not tuple or len(result) != 2:
        raise ProcessResult(result)
    state, outputs = result
    if type(outputs) is not list and type(outputs) is not tuple:
        if outputs is None:
            return state, ()
        try:
            outputs = as_sequence(outputs)
        except TypeError:
            raise ProcessResult(result) from None
    return state, outputs


class ProcessFunction(LibraryFunction):
    """A process's function for items or timers; see `Process`."""

    __slots__ = ()

    def __call__(self, state: Any, payload: Any, time: int) -> tuple[Any, Sequence[Any]]:
        """The next state, and the outputs."""
        raise NotImplementedError


class TakesEach(ProcessFunction):
    """A process's function for items that takes many items in one call: of each key those up to its next timer.

    It never sets a timer in such a call.
    """

    __slots__ = ()

    def takes(self, state: Any) -> bool:
        """Whether `each` takes the items of a key that is in this state: then they set no timer."""
        return True

    def each(self, states: dict[Any, Any], rows: KeyedItems, give: Callable[[Sequence[Any]], None]) -> None:
        """Process items in order: stores the new state of the key in `states`, and passes the outputs to `give`.

        A key that is not in `states` is in the initial state. If a call raises, or an item would set a timer, it stops:
        all items before that one have been processed and none after it.
        """
        raise NotImplementedError


class OpensWindows(FoldsRows, ProcessFunction):
    """A process's function for items that only adds the item to the key's open window.

    All items of a key whose windows end at the same time are in one window, and no others. The initial state is that
    of no window; `on_time`, whose note is the key, outputs the window and returns to the initial state.
    """

    __slots__ = ()

    in_order: ClassVar = "windows"

    key: Callable[[Any], Any]
    aggregate: Any

    def until(self, time: int) -> int | None:
        """The last time of the window of an item at this time; None if the item is in no window.

        Items at all times from this one up to the last are in the same window.
        """
        raise NotImplementedError

    @property
    def fields_of_key(self) -> Sequence[str] | None:
        """The names of the fields that are the key; None where it is something else, or there are no aggregates of
        columns.
        """
        return None

    def windows(
        self, keys: list[Any], untils: Sequence[int], counts: Sequence[int], accumulators: list[Any]
    ) -> Rows | None:
        """The outputs of windows by their keys and the accumulators of each part, in arrays; None if they are to be
        made one by one.

        Args:
            untils: the last times before ends; `counts`: how many windows end there.
        """
        return None

    def outputs(self, notes: Sequence[Any], accumulators: Sequence[Any], time: int) -> list[Any]:
        """The outputs of windows that all end at this time: for each the one output of `on_time`."""
        raise NotImplementedError


class MergesSlices(ProcessFunction):
    """A process's function for items that are slices of windows, which it merges into them, and that has a form in
    arrays.

    Attributes:
        keeps_owner: all its items come from the process before it, which has the same keys: so one worker has both.
    """

    __slots__ = ()

    in_order: ClassVar = "slices"
    keeps_owner: ClassVar = True

    def objects_because(self, key: Callable[[Any], Any]) -> str:
        return ""

    def merging(self, slices: Sequence[Any], timers: tuple[bytes, bytes, int]) -> Any:
        """A `drift.columns.slices.Merging` for slices such as these; None if they are merged one by one.

        Args:
            timers: what metas of timers are made of: suffixes of the grouping and of the timers' map, and their phase.
        """
        raise NotImplementedError


class JoinsRows(ProcessFunction):
    """A process's function for items of two sides that has a form in arrays, named by `in_order`."""

    __slots__ = ()

    in_order: ClassVar = "joins"

    def objects_because(self, key: Callable[[Any], Any]) -> str:
        return "" if self.in_order else "this join is made item by item"

    def in_arrays(self, timers: tuple[bytes, bytes, int]) -> Any:
        """A new `drift.columns.joined.Joined`. `timers`: see `MergesSlices.merging`."""
        raise NotImplementedError

    def fits(self, times: Sequence[int], sides: bytes) -> bool:
        """Whether rows at these times, of the left where `sides` has 0, can be in arrays."""
        raise NotImplementedError

    def state_of(self, left: Sequence[Any], right: Sequence[Any]) -> tuple[Any, int | None]:
        """The state of a key with these entries, (time, row) each, and when its timer is due, if it has one."""
        raise NotImplementedError

    def entries_of(self, state: Any) -> tuple[list[Any], list[Any]]:
        """The inverse."""
        raise NotImplementedError


class RollsRows(JoinsRows):
    """A process's function for rows that wait for all of their time, and that has a form in arrays; as a join of rows
    of one side.
    """

    __slots__ = ()

    def sided(self, key: Callable[[Any], Any], rows: Rows) -> Rows | None:
        """Rows in columns as those of the left; None if their keys, or they, are not in columns."""
        raise NotImplementedError


class ProlongsWindows(FoldsRows, ProcessFunction):
    """A process's function for items that opens the key's window, or adds the item to it and so prolongs it.

    The state of an open window is (time of its first item, of its last one, accumulator), the initial state that of no
    window. Its end is `gap` after its last item. A window that opens sets its only timer, whose note is the key, for
    the last time before its end. `on_time` sets it again, without another output, if the end is later by then; else it
    outputs `result` and returns to the initial state.
    """

    __slots__ = ()

    in_order: ClassVar = "sessions"

    key: Callable[[Any], Any]
    aggregate: Any
    gap: int

    def results(
        self, firsts: Sequence[int], lasts: Sequence[int], accumulators: Sequence[Any], keys: Sequence[Any]
    ) -> list[Any]:
        """The outputs of windows by their first and last times, their accumulators and their keys."""
        raise NotImplementedError

    def windows(self, keys: list[Any], firsts: Any, lasts: Any, accumulators: list[Any]) -> Rows | None:
        """The outputs of windows by their first and last times and the accumulators of each part, in arrays; None if
        they are to be made one by one.
        """
        return None


def _folds_inside(given: Any, *, then: bool) -> bool:
    """Whether a function of a user that gets accumulators, or with `then` results, is somewhere in a function."""
    if not isinstance(given, LibraryFunction):
        return any(_folds_inside(each, then=then) for each in given) if isinstance(given, tuple) else False
    if field_of(given, "hands_state", False) or (then and field_of(given, "hands_results", False)):
        return True
    if field_of(given, "folds") is not None or field_of(given, "initials"):
        return True
    fields = getattr(given, "__struct_fields__", ())
    return any(_folds_inside(getattr(given, name), then=then) for name in fields)


def hands_state(function: Callable[..., Any], *, then: bool = False) -> bool:
    """Whether a function hands the state that it gets to a function of a user. A state of the library's own may be as
    large as all items of a key, and nobody but the library has it.
    """
    given: Any = function
    return not isinstance(given, LibraryFunction) or _folds_inside(given, then=then)


def is_noted(function: Callable[..., Any]) -> bool:
    """Whether something that a function of a user returns is stored, or given, where it would not be seen otherwise."""
    return hands_state(function, then=True) or _keeps_inside(function)


def _keeps_inside(given: Any) -> bool:
    """Whether an aggregate that keeps what a function of a user makes of a payload is somewhere in a function."""
    if isinstance(given, tuple):
        return any(map(_keeps_inside, given))
    if not isinstance(given, _ByValue):
        return False
    if field_of(given, "keeps_values", False) and _is_users(field_of(given, "user_function")):
        return True
    return any(_keeps_inside(getattr(given, name)) for name in given.__struct_fields__)


def _is_users(part: Any) -> bool:
    return callable(part) and not isinstance(part, LibraryFunction) and not is_written_here(part)


def noted_inside(function: Any, noting: Noting) -> Any:
    """The function, where the results of users' functions in it are noted that fold, or make results of aggregates."""
    if isinstance(function, tuple):
        noted = [noted_inside(each, noting) for each in function]
        if all(each is part for each, part in zip(noted, function)):  # a named tuple stays one
            return function
        return function._make(noted) if hasattr(function, "_make") else tuple(noted)
    if not isinstance(function, _ByValue):
        return function
    if (noted := field_of(function, "noted")) is not None:
        return noted(noting)
    makes = any(
        (getattr(function, "folds", None), getattr(function, "hands_results", None), field_of(function, "keeps_values"))
    )
    changed = {}
    for name in function.__struct_fields__:
        part = getattr(function, name)
        is_noted = makes and name in _MAKERS and _is_users(part)
        changed[name] = noting.of(part) if is_noted else noted_inside(part, noting)
    changed = {name: part for name, part in changed.items() if part is not getattr(function, name)}
    return replace(function, **changed) if changed else function


_MAKERS = frozenset({"user_function", "step", "merged", "by"})


class Process(_ByValue, frozen=True, dict=True):
    """The functions of a process, and the position of its timers in the order at a time.

    Args:
        initial: the state of a key without one.
        on_item: (state, payload, time) -> (next state, outputs).
        on_time: (state, note, time) -> (next state, outputs).
        phase: of its timers; above those of the steps before it.

    Functions of this library may have further forms, in fields: `on_batch` takes rows as that of a logic does; `takes`
    and `each` are those of `TakesEach`; `in_order` names the form in order, which says what else there is. An `on_time`
    with `takes_timers` gets the `Timer`, with its key, in place of the note.
    """

    key: Callable[[Any], Any]
    initial: Any
    on_item: Callable[[Any, Any, int], tuple[Any, Sequence[Any]]]
    on_time: Callable[[Any, Any, int], tuple[Any, Sequence[Any]]]
    phase: int = PHASE_TIMERS

    @property
    def initials(self) -> tuple[Any, ...]:
        """What the functions get for a key without a state: the initial state, and as `initials` what `on_item` has."""
        return self.initial, *field_of(self.on_item, "initials", ())

    def noted(self, noting: Noting) -> Process:
        """The process, where what users' functions return is noted."""
        on_item, on_time = (
            noting.of(each) if not isinstance(each, LibraryFunction) else noted_inside(each, noting)
            for each in (self.on_item, self.on_time)
        )
        return replace(self, on_item=on_item, on_time=on_time)

    @cached_property
    def hands_state(self) -> tuple[bool, bool]:
        """Whether `on_item` and `on_time` hand states to functions of users."""
        return hands_state(self.on_item), hands_state(self.on_time, then=True)

    def timer(self, key: Any, asked: Later[Any]) -> Later[Timer]:
        """A `drift.at(time, note)` of one of the functions, as the item that goes back to the grouping."""
        return Later(asked.time, Timer(key, asked.payload), self.phase, asked.rounds)

    def stepped(self, window: tuple[Any, ...], time: int) -> tuple[Any, Sequence[Any]] | None:
        """The state and outputs for a window; None if it ends in a state, or if its state has not come yet."""
        last = window[-1]
        if type(last) is State:
            return None
        state = self.initial
        if len(window) > 1:
            if type(window[-2]) is not State:
                return None
            state = window[-2].value
        if type(last) is Timer:
            note = last if field_of(self.on_time, "takes_timers", False) else last.note
            return state_and_outputs(self.on_time(state, note, time))
        return state_and_outputs(self.on_item(state, last, time))


class _OfProcess(LoopFunction, frozen=True):
    loop: ClassVar[str] = "process"
    process: Process

    @property
    def user_function(self) -> Callable[..., Any]:
        return self.process.on_item

    def key_of(self, last: Any) -> Any:
        return last.key if type(last) is Timer else self.process.key(last)

    def handed(self, window: tuple[Any, ...]) -> Sequence[Any]:
        is_handed = self.process.hands_state[type(window[-1]) is Timer]
        return _handed(window if is_handed else window[-1:], self.process.initials)

    def watched(self, watch: WatchFunction) -> Self:
        process = self.process
        return replace(
            self,
            process=replace(
                process,
                key=watch("key", process.key, "one"),
                on_item=watch("on_item", process.on_item, "process"),
                on_time=watch("on_time", process.on_time, "process"),
            ),
        )


class ProcessState(_OfProcess, frozen=True):
    """A window of a process -> the next state, to be fed back."""

    gives: ClassVar[Literal["state"]] = "state"
    carries_state: ClassVar[bool] = True

    def __call__(self, window: tuple[Any, ...], time: int) -> tuple[State, ...]:
        stepped = self.process.stepped(window, time)
        return (State(self.key_of(window[-1]), stepped[0]),) if stepped else ()

    def shown(self, window: tuple[Any, ...]) -> str:
        """A window as an error message shows it."""
        state = window[-2].value if len(window) > 1 and type(window[-2]) is State else self.process.initial
        last = window[-1]
        return f"{'note ' + brief(last.note) if type(last) is Timer else brief(last)}, with state {brief(state)}"


class ProcessTimers(_OfProcess, frozen=True):
    """A window of a process -> its timers, at later times, to be fed back."""

    gives: ClassVar[Literal["timers"]] = "timers"
    most: ClassVar[Literal["many"]] = "many"
    carries_state: ClassVar[bool] = True

    def __call__(self, window: tuple[Any, ...], time: int) -> list[Later[Timer]]:
        stepped = self.process.stepped(window, time)
        if stepped is None:
            return []
        key = self.key_of(window[-1])
        return [self.process.timer(key, each) for each in stepped[1] if type(each) is Later]


class ProcessOutput(_OfProcess, frozen=True):
    """A window of a process -> its outputs."""

    gives: ClassVar[Literal["output"]] = "output"
    most: ClassVar[Literal["many"]] = "many"

    def __call__(self, window: tuple[Any, ...], time: int) -> list[Any]:
        stepped = self.process.stepped(window, time)
        return [each for each in stepped[1] if type(each) is not Later] if stepped else []
