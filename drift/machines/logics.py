"""The logics of scans, groupings and processes: what a keyed stage runs.

Invariant: for a key, states and outputs do not depend on how its rows are cut into batches, and keys do not see each
other. States are values, replaced and never changed in place.

Why: a logic reads the state of a row's key, stores the next one and gives what the row makes, row by row, whatever the
rows beside it. So a stage may run any rows of a key again from a state that it has kept, in batches of its own choice:
one row is a batch too, and there is no other form.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any, Protocol

from drift.machines.in_order import InOrder, Shared
from drift.machines.joining import JoiningRows, RollingRows, WaitingRows
from drift.machines.numbered import Numbering
from drift.machines.sessions import Prolonging
from drift.machines.slices import MergingSlices
from drift.machines.windowing import Opening
from drift.operators import (
    KeyedItems,
    NumbersWindows,
    Process,
    ScanState,
    Timer,
    hands_state,
    is_noted,
    noted_inside,
    pair_of,
    state_and_outputs,
)
from drift_graph.functions import field_of
from drift_graph.later import Later
from drift_graph.unchanged import PLAIN_OR_TUPLE, Noting, gives_users
from drift_kernel import kernel

#: Passes what a row made: its output, or for logics that give many a sequence of outputs and timers.
Give = Callable[[Any], None]

_sequences = frozenset({list, tuple})

#: By the `in_order` of the function for items: the form in which states are stored, and the form in order.
_in_order: dict[str, tuple[str, type[Opening | Prolonging | MergingSlices | JoiningRows | WaitingRows]]] = {
    "sessions": ("SessionStage", Prolonging),
    "windows": ("WindowStage", Opening),
    "slices": ("ProcessStage", MergingSlices),
    "joins": ("ProcessStage", JoiningRows),
    "joins as of a time": ("ProcessStage", WaitingRows),
    "rolling": ("ProcessStage", RollingRows),
}


class Logic(Protocol):
    """The states and outputs of keys.

    Attributes:
        key: of an item.
        initial: the state of a key without one.
        initials: what the user's functions get beside payloads and states; see `drift_graph.unchanged`.
        hands_state: whether states are handed to users' functions.
        noting: of what these return; None if there are none.
        form: names the form of the states in stored checkpoints.
        gives_many: whether a row gives a sequence of outputs; else it gives one output.
        is_timed: whether outputs may be timers.
        phase: of its timers.
        stored: optional, what is stored of a state; it is a state too.
        on_rows: optional, a form for rows in columns where nothing can come below them: (key, rows, fetch, store) gives
            one row for each, or None where `on_batch` is to process them. `fetch` gives the states of keys, of each key
            once, `store` takes pairs of a key and its next state.
        takes: optional, whether `on_taken` takes the rows of a key that is in this state.
        in_order: optional, makes a faster form in order.
        only_at_ends: whether rows only change states and set timers, which alone give outputs: then no row is needed
            before the heartbeat has passed it.
        keeps_owner: whether all its rows come from one stage before it, with the same keys.
        keeps_key: optional, the fields that are the key in its outputs, or in their members, from those in its rows
            (None where the key is no fields); None where they are not known.
        objects_because: why rows in columns give objects, as a clause; "" if they give rows.
    """

    key: Callable[[Any], Any]
    initial: Any
    initials: tuple[Any, ...]
    hands_state: bool
    noting: Noting | None
    form: str
    gives_many: bool
    is_timed: bool
    phase: int
    only_at_ends: bool
    keeps_owner: bool
    keeps_key: Any
    objects_because: str

    @property
    def stored(self) -> Callable[[Any], Any] | None: ...
    @property
    def takes(self) -> Callable[[Any], bool] | None: ...
    @property
    def in_order(self) -> Callable[[Shared], InOrder] | None: ...

    def on_batch(self, states: dict[Any, Any], rows: KeyedItems, give: Give) -> None:
        """Process rows: store the next state of each key in `states`, and give what each row makes, in order.

        A key that is not in `states` is in the initial state. Where a call raises, the rows that gave something have
        been processed, and none after them.
        """

    def on_taken(self, states: dict[Any, Any], rows: KeyedItems, give: Give) -> None:
        """A faster form of `on_batch` where nothing can come below the rows, none of which sets a timer.

        `states` has those of these keys only. It may end before an item that would set a timer.
        """

    def on_timers(self, states: dict[Any, Any], due: KeyedItems, give: Give) -> None:
        """Process timers that are due, whose notes are the payloads. Several are of one moment, and of as many keys."""

    def timer(self, key: Any, asked: Later[Any]) -> Later[Timer]:
        """A timer among the outputs of a row, as the item that goes back to the grouping."""


def _objects_because(function: Any, key: Callable[[Any], Any]) -> str:
    says = field_of(function, "objects_because")
    return "functions of Python take objects" if says is None else says(key)


class _Untimed:
    """A logic without timers."""

    gives_many = is_timed = only_at_ends = keeps_owner = False
    objects_because = "a grouping gives tuples of payloads"
    phase = 0
    takes = None
    keeps_key: Any = None
    in_order: Any = None
    noting: Noting | None = None

    def on_taken(self, states: dict[Any, Any], rows: KeyedItems, give: Give) -> None:
        raise AssertionError("it takes none")

    @property
    def stored(self) -> Callable[[Any], Any] | None:
        return None

    def on_timers(self, states: dict[Any, Any], due: KeyedItems, give: Give) -> None:
        raise AssertionError("it sets no timers")

    def timer(self, key: Any, asked: Later[Any]) -> Later[Timer]:
        raise AssertionError("it sets no timers")


class ScanLogic(_Untimed):
    """A scan: `step(state, payload)` gives the next state and one output."""

    form = "ScanStage"
    _noted: Callable[..., Any] | None = None

    def __init__(self, key: Callable[[Any], Any], function: ScanState) -> None:
        self.key = key
        self.initial, self.initials, step = function.initial, function.initials, function.step
        self.hands_state = hands_state(step)
        self._step = field_of(step, "__call__", step)  # bound, which is called as fast as a function
        if gives_users(step) and field_of(step, "noted") is None:
            self.noting = Noting()
            self._noted = self.noting.of_step(step)
        elif is_noted(step):
            self.noting = Noting()
            step = noted_inside(step, self.noting)
            self._step = field_of(step, "__call__", step)
        self.on_rows: Any = field_of(step, "on_rows")
        self.objects_because, self.keeps_key = _objects_because(step, key), field_of(step, "keeps_key")
        on_batch = field_of(step, "on_batch")
        if on_batch is not None:
            self.on_batch = on_batch  # type: ignore[method-assign]
            if isinstance(step, NumbersWindows) and step.table is not None and not self.hands_state:
                self.in_order = partial(Numbering, step)

    def on_batch(self, states: dict[Any, Any], rows: KeyedItems, give: Give) -> None:
        find, initial, plain = states.get, self.initial, PLAIN_OR_TUPLE
        step, is_to_be_noted = self._chosen
        if kernel is not None:
            noted = self._noted_from if is_to_be_noted else None
            keys, payloads = list(rows.keys), list(rows.payloads)
            kernel.scan(step, pair_of, states, keys, payloads, initial, give, plain, noted)
            return
        for key, payload in zip(rows.keys, rows.payloads):
            made = step(find(key, initial), payload)
            if type(made) is not tuple or len(made) != 2:
                made = pair_of(made)
            states[key], output = made
            if is_to_be_noted and (type(made[0]) not in plain or type(output) not in plain):
                step, is_to_be_noted = self._noted_from(made)
            give(output)

    @property
    def _chosen(self) -> tuple[Callable[..., Any], bool]:
        """The step, which notes its results while that is on; else whether it is to from a state or an output on that
        may change.
        """
        if self._noted is None or self.noting is None:
            return self._step, False
        return (self._noted, False) if self.noting.is_on else (self._step, True)

    def _noted_from(self, made: tuple[Any, Any]) -> tuple[Callable[..., Any], bool]:
        """Note a result that may change; and then those behind it, see `_chosen`."""
        assert self.noting is not None
        if self.noting.is_on_from(made):
            self.noting.note(made)
        return self._chosen


class GroupLogic(_Untimed):
    """A grouping: the state of a key is its last window, the output the window that ends in the item."""

    initial = ()
    initials = ()
    hands_state = False
    form = "GroupStage"

    def __init__(self, key: Callable[[Any], Any], window: int) -> None:
        self.key = key
        self._tail_start = 1 - window or 1  # from this index on the next window has the last one's payloads

    def on_batch(self, states: dict[Any, Any], rows: KeyedItems, give: Give) -> None:
        find, tail_start = states.get, self._tail_start
        for key, payload in zip(rows.keys, rows.payloads):
            states[key] = window = find(key, ())[tail_start:] + (payload,)  # noqa: RUF005 - faster
            give(window)

    @property
    def stored(self) -> Callable[[Any], Any]:
        return itemgetter(slice(self._tail_start, None))


class ProcessLogic:
    """A process: the steps for items and timers give the next state, and outputs, some of them timers.

    A step that takes many rows has a method `on_batch`, as that of a logic.

    Args:
        is_timed: whether it sets timers.
        in_cycle: whether items may come back to it through other operators: then none come in order.
    """

    gives_many = True
    stored = None

    def __init__(self, process: Process, *, is_timed: bool = True, in_cycle: bool = False) -> None:
        self.is_timed = is_timed
        self.hands_state = any(process.hands_state)
        self.noting = Noting() if any(map(is_noted, (process.on_item, process.on_time))) else None
        if self.noting is not None:
            process = process.noted(self.noting)
        on_item, on_time = process.on_item, process.on_time
        self.form, form = _in_order.get(
            field_of(on_item, "in_order", ""), ("ProcessStage" if is_timed else "StepStage", None)
        )
        if in_cycle and form is Opening:
            self.form = "ProcessStage"  # so its states have been stored ever since
        form = None if in_cycle else form
        self.in_order = partial(form, process) if form is not None and form.is_built else None
        self.only_at_ends = form is not None and form.only_at_ends
        self.keeps_owner, self.keeps_key = field_of(on_item, "keeps_owner", False), field_of(on_item, "keeps_key")
        self.key, self.initial, self.initials = process.key, process.initial, process.initials
        self.objects_because = _objects_because(on_item, process.key)
        self.timer, self.phase = process.timer, process.phase
        self._on_item, self._on_time = on_item, on_time
        self.takes = field_of(on_item, "takes")
        if (on_batch := field_of(on_item, "on_batch")) is not None:
            self.on_batch = on_batch  # type: ignore[method-assign]
        if (on_timers := field_of(on_time, "on_batch")) is not None:
            self.on_timers = on_timers  # type: ignore[method-assign]

    def on_batch(self, states: dict[Any, Any], rows: KeyedItems, give: Give) -> None:
        find, on_item, initial = states.get, self._on_item, self.initial
        for key, payload, time in rows:
            result = on_item(find(key, initial), payload, time)
            if type(result) is tuple and len(result) == 2 and type(result[1]) in _sequences:
                states[key], outputs = result
            else:
                states[key], outputs = state_and_outputs(result)
            give(outputs)

    def on_taken(self, states: dict[Any, Any], rows: KeyedItems, give: Give) -> None:
        self._on_item.each(states, rows, give)  # type: ignore[attr-defined]

    def on_timers(self, states: dict[Any, Any], due: KeyedItems, give: Give) -> None:
        find, on_time, initial = states.get, self._on_time, self.initial
        for key, note, time in due:
            states[key], outputs = state_and_outputs(on_time(find(key, initial), note, time))
            give(outputs)
