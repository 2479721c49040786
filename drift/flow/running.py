"""Running aggregates: each row with those of its key up to itself, as a scan.

Invariant: a row's aggregates are those of its key's rows up to it, added in order; however they are computed.

Why: the step adds row by row. Of rows in columns, where nothing can come below them, `drift.columns.aggregates` gives
the same outputs and accumulators, aggregate by aggregate.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, groupby, takewhile
from operator import itemgetter
from typing import Any, Literal

from drift.flow.accumulators import Aggregate, check_aggregate
from drift.flow.fields import names_of, not_in_columns
from drift.flow.sides import appended, cut, side_of
from drift.operators import BatchStep, KeyedItems, RollsRows, _ByValue
from drift_graph.errors import GraphError
from drift_graph.functions import brief, caller
from drift_graph.later import at
from drift_graph.meta import END, TIME_MIN
from drift_graph.payloads import Rows, have_fields


def running_step(named: Mapping[str, Any], method: str = "running") -> RunningStep:
    """The step for aggregates by the names of their fields.

    Raises:
        GraphError: there is none, or one is no aggregate, or gives each row a value of its own.
    """
    if not named:
        given = "" if method == "running" else "..., "
        raise GraphError(
            f"{method} takes aggregates by name, such as {method}({given}n=drift.agg.count()) (at {caller()})"
        )
    for name, aggregate in named.items():
        check_aggregate(aggregate, f"{method}: {name}=", is_field=True)
    return RunningStep(tuple(named), tuple(named.values()))


def running_fields(fields: Any, step: RunningStep) -> Any:
    """The fields of the rows that a step makes; None if their types are not known."""
    from drift.columns.aggregates import fields_of_aggregates  # here: it needs numpy

    of = [each.type_in_columns for each in step.aggregates]
    made = fields_of_aggregates(fields, list(zip(step.names, of)))
    return None if made is None else tuple({**dict(fields), **made}.items())


def fields_of_each(fields: Any, named: Mapping[str, Aggregate[Any, Any]], places: Collection[str]) -> Any:
    """The fields of the rows of a window with its aggregates, of which `places` are numbers of each row and come last;
    None if their types are not known.
    """
    from drift.columns.aggregates import fields_of_aggregates  # here: it needs numpy

    of_all = [(name, of.type_in_columns) for name, of in named.items() if name not in places]
    made = fields_of_aggregates(fields, [*of_all, *((name, ("count", "")) for name in places)])
    return None if made is None else tuple({**dict(fields), **made}.items())


class RunningStep(_ByValue, BatchStep, frozen=True):
    """The step of `running`; its state is the accumulators of a key.

    Attributes:
        names: of the aggregates.
    """

    names: tuple[str, ...]
    aggregates: tuple[Aggregate[Any, Any], ...]
    initial: Any = ()

    @property
    def initials(self) -> tuple[Any, ...]:
        return tuple(initial for each in self.aggregates for initial in each.initials)

    def keeps_key(self, names: Sequence[str] | None) -> Sequence[str] | None:
        return None if names is None or not set(self.names).isdisjoint(names) else names

    def on_batch(self, states: dict[Any, Any], rows: KeyedItems, give: Callable[[Any], None]) -> None:
        named = list(zip(self.names, self.aggregates))
        for key, payload in zip(rows.keys, rows.payloads):
            if type(payload) is not dict:
                raise TypeError(f"running takes rows, which are dicts, not {brief(payload)}")
            before = states.get(key)
            if before:
                after = tuple(each.add(known, payload) for (_, each), known in zip(named, before))
            else:
                after = tuple(each.begin(payload) for _, each in named)
            row = {**payload, **{name: each.result(known) for (name, each), known in zip(named, after)}}
            states[key] = after
            give(row)

    def objects_because(self, key: Callable[[Any], Any]) -> str:
        return not_in_columns(key, dict(zip(self.names, self.aggregates)), lambda each: each.running_in_columns)

    def on_rows(
        self,
        key: Callable[[Any], Any],
        rows: Rows,
        fetch: Callable[[Sequence[Any]], list[Any]],
        store: Callable[[Iterable[tuple[Any, Any]]], None],
    ) -> Sequence[Any] | None:
        names = names_of(key)
        if names is None or any(each.running_in_columns is None for each in self.aggregates):
            return None
        from drift.columns.aggregates import running  # here: it needs numpy

        return running(rows, names, list(zip(self.names, self.aggregates)), fetch, store)  # type: ignore[arg-type]


_time = itemgetter(0)
_NOTHING: Any = (), 0, None

#: Which ends of a span of time belong to it.
Closed = Literal["right", "left", "both", "none"]


class RollingStep(_ByValue, RollsRows, frozen=True):
    """The process of `rolling`. A state is () or (entries of the span, how many of them wait, time of the timer that
    forgets them).

    Attributes:
        running: the aggregates, by name.
        has_start, has_end: whether an item at the start of a span, and one at its end, is in it.
    """

    running: RunningStep
    span: int
    has_start: bool
    has_end: bool

    @property
    def initials(self) -> tuple[Any, ...]:
        return self.running.initials

    def keeps_key(self, names: Sequence[str] | None) -> Sequence[str] | None:
        return self.running.keeps_key(names)

    @property
    def behind(self) -> int:
        """How far behind an item its span ends."""
        return 0

    @property
    def reach(self) -> int:
        """How far the start of a span is from the time at which its item is given."""
        return self.span - min(self.behind, 0)

    @property
    def lifetime(self) -> int:
        """How long after the last entry of a key all of them are forgotten."""
        return max(self.reach + self.has_start, max(self.behind, 0) + 1)

    def wanted_from(self, time: int) -> int:
        """The first time whose entries are still wanted behind this time."""
        return time + 1 - max(self.reach - (not self.has_start), max(self.behind, 0))

    @property
    def in_order(self) -> str:  # type: ignore[override]
        """The name of the form that runs it in order; "" for none."""
        return "rolling" if self.behind <= 0 and None not in map(self._of_a_field, self.running.aggregates) else ""

    def objects_because(self, key: Callable[[Any], Any]) -> str:
        if self.behind > 0:
            return "its spans end behind their rows"
        named = dict(zip(self.running.names, self.running.aggregates))
        return not_in_columns(key, named, self._of_a_field)

    @staticmethod
    def _of_a_field(aggregate: Aggregate[Any, Any]) -> tuple[Any, str] | None:
        """What is computed, and of which field; None if it is not of one."""
        of = aggregate.in_columns
        return of if of is not None and type(of[1]) is str else None

    def in_arrays(self, timers: tuple[bytes, bytes, int]) -> Any:
        from drift.columns.rolling import Rolled  # here: it needs numpy

        return Rolled(self, timers)

    def sided(self, key: Callable[[Any], Any], rows: Rows) -> Rows | None:
        names = names_of(key)
        if names is None or not have_fields(rows):
            return None
        from drift.columns.sided import Key, of_side  # here: they need numpy

        return of_side(0, Key(tuple(names), key), rows)  # type: ignore[arg-type]

    def fits(self, times: Sequence[int], sides: bytes) -> bool:
        """Whether the bounds of spans, and times of timers, have 64 bits."""
        far = self.span + abs(self.behind) + 3
        return TIME_MIN + far < times[0] and times[-1] < END - far

    def state_of(self, left: Sequence[Any], right: Sequence[Any], due: int | None = None) -> Any:
        """The state with entries that wait, and others before them."""
        return side_of([*right, *left]), len(left), due

    def _given(self, time: int) -> int:
        """When an item is given: all items of its span have come."""
        return min(time + max(self.behind, 0), END)

    def __call__(self, state: Any, payload: Any, time: int) -> tuple[Any, Sequence[Any]]:
        """An item comes, and waits for all others of its span."""
        if type(payload) is not dict:
            raise TypeError(f"rolling takes rows, which are dicts, not {brief(payload)}")
        entries, waiting, timer = state or _NOTHING
        is_first = not waiting or entries[-1][-1][0] < time
        outputs = (at(self._given(time), None),) if is_first else ()
        return (appended(entries, (time, payload)), waiting + 1, timer), outputs

    def on_time(self, state: Any, note: None, time: int) -> tuple[Any, Sequence[Any]]:
        """All items up to `time` have come."""
        if not state:
            return state, ()
        entries, waiting, timer = state
        outputs: list[Any] = []
        if waiting:
            every = list(chain(*entries))
            over = list(takewhile(lambda entry: self._given(entry[0]) <= time, every[-waiting:]))
            for came, rows in groupby(over, key=_time):
                first, end = (
                    self._place(every, came - self.span, not self.has_start),
                    self._place(every, came, self.has_end),
                )
                found = _results(self.running, [payload for _, payload in every[first:end]])
                outputs += [{**payload, **found} for _, payload in rows]
            waiting -= len(over)
        entries = cut(entries, self.wanted_from(time))
        if timer is None or timer <= time:
            came = (entry[0] for chunk in reversed(entries) for entry in reversed(chunk) if entry[0] <= time)
            forgotten = next(came, END) + self.lifetime
            timer = forgotten if forgotten < END else None
            outputs += [at(timer, None)] if timer is not None else []
        return ((entries, waiting, timer) if entries or timer is not None else ()), outputs

    def _place(self, entries: Sequence[Any], time: int, is_behind: bool) -> int:
        """The first entry at a time, or behind it, where spans of items at that time end."""
        return bisect_left(entries, time + self.behind + is_behind, key=_time)


class OffsetRollingStep(RollingStep, frozen=True):
    """With spans that end before their items, or behind them."""

    offset: int

    @property
    def behind(self) -> int:
        return self.offset


class FrameStep(_ByValue, frozen=True):
    """The process of `rolling` over a number of rows. A state is () or (rows, how many of them wait for others).

    Attributes:
        running: the aggregates, by name.
    """

    running: RunningStep
    preceding: int
    following: int

    @property
    def initials(self) -> tuple[Any, ...]:
        return self.running.initials

    def objects_because(self, key: Callable[[Any], Any]) -> str:
        """Why the step takes objects, for people."""
        return "frames are of objects; the last n rows are in columns as running(...=drift.agg.rolling(of, n))"

    def __call__(self, state: Any, payload: Any, time: int) -> tuple[Any, Sequence[Any]]:
        """A row comes, and is the last that one before it has waited for."""
        if type(payload) is not dict:
            raise TypeError(f"rolling takes rows, which are dicts, not {brief(payload)}")
        rows, waiting = state or ((), 0)
        timer = [at(END, None)] if not state and self.following else []
        rows, waiting = (*rows, payload), waiting + 1
        if waiting <= self.following:
            return (rows, waiting), timer
        output = self._output(rows, waiting)
        return self._state(rows, waiting - 1), [output, *timer]

    def on_time(self, state: Any, note: None, time: int) -> tuple[Any, Sequence[Any]]:
        """No more rows come."""
        rows, waiting = state or ((), 0)
        return (), [self._output(rows, left) for left in range(waiting, 0, -1)]

    def _output(self, rows: Sequence[Any], waiting: int) -> dict[str, Any]:
        """The row before which so many others, with itself, wait."""
        at = len(rows) - waiting
        frame = rows[max(at - self.preceding, 0) : at + self.following + 1]
        return {**rows[at], **_results(self.running, frame)}

    def _state(self, rows: tuple[Any, ...], waiting: int) -> Any:
        left = self.preceding + waiting
        return (rows[-left:], waiting) if left else ()


def _results(running: RunningStep, payloads: Sequence[Any]) -> dict[str, Any]:
    """The aggregates of some rows."""
    named = zip(running.names, running.aggregates)
    return {name: aggregate.result_of(aggregate.values_of(payloads) if payloads else ()) for name, aggregate in named}
