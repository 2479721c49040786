"""Running aggregates: each row with those of its key up to itself, as a scan.

Invariant: a row's aggregates are those of its key's rows up to it, added in order; however they are computed.

Why: the step adds row by row. Of rows in columns, where nothing can come below them, `drift.columns.aggregates` gives
the same outputs and accumulators, or leaves them to the step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Literal

from drift.flow.accumulators import Aggregate, check_aggregate
from drift.flow.fields import names_of, not_in_columns
from drift.flow.sides import appended, cut
from drift.operators import BatchStep, KeyedItems, _ByValue
from drift_graph.errors import GraphError
from drift_graph.functions import brief, caller
from drift_graph.later import at
from drift_graph.meta import END
from drift_graph.payloads import Rows


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
    ) -> Rows | None:
        names = names_of(key)
        kinds = [each.running_in_columns for each in self.aggregates]
        if names is None or None in kinds:
            return None
        from drift.columns.aggregates import running  # here: it needs numpy

        return running(rows, names, list(zip(self.names, kinds)), fetch, store)  # type: ignore[arg-type]


#: Which ends of a span of time belong to it.
Closed = Literal["right", "left", "both", "none"]


class RollingStep(_ByValue, frozen=True):
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

    def _start(self, time: int) -> int:
        """The first time of the span that ends at a time."""
        return time - self.span + (not self.has_start)

    def __call__(self, state: Any, payload: Any, time: int) -> tuple[Any, Sequence[Any]]:
        """An item comes, and waits for all others of its time."""
        if type(payload) is not dict:
            raise TypeError(f"rolling takes rows, which are dicts, not {brief(payload)}")
        entries, waiting, timer = state or ((), 0, None)
        return (appended(entries, (time, payload)), waiting + 1, timer), () if waiting else (at(time, None),)

    def on_time(self, state: Any, note: None, time: int) -> tuple[Any, Sequence[Any]]:
        """All items up to `time` have come."""
        if not state:
            return state, ()
        entries, waiting, timer = state
        outputs: list[Any] = []
        if waiting:
            entries = cut(entries, self._start(time))
            every = [payload for _, payload in chain(*entries)]
            found = _results(self.running, every if self.has_end else every[:-waiting])
            outputs += [{**payload, **found} for payload in every[-waiting:]]
        entries = cut(entries, self._start(time + 1))
        if timer is None or timer <= time:
            forgotten = entries[-1][-1][0] + self.span + self.has_start if entries else END
            timer = forgotten if forgotten < END else None
            outputs += [at(timer, None)] if timer is not None else []
        return ((entries, 0, timer) if entries or timer is not None else ()), outputs


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
    found = {}
    for name, aggregate in zip(running.names, running.aggregates):
        begin, *more = aggregate.values_of(payloads) if payloads else (None,)
        added = functools.reduce(aggregate.add_value, more, aggregate.begin_value(begin) if payloads else None)
        found[name] = aggregate.result(added) if payloads else aggregate.of_nothing
    return found
