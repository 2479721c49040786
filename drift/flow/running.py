"""Running aggregates: each row with those of its key up to itself, as a scan.

Invariant: a row's aggregates are those of its key's rows up to it, added in order; however they are computed.

Why: the step adds row by row. Of rows in columns, where nothing can come below them, `drift.columns.aggregates` gives
the same outputs and accumulators, or leaves them to the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from drift.flow.accumulators import Aggregate, check_aggregate
from drift.flow.fields import names_of, not_in_columns
from drift.operators import BatchStep, KeyedItems, _ByValue
from drift_graph.errors import GraphError
from drift_graph.functions import brief, caller
from drift_graph.payloads import Rows


def running_step(named: Mapping[str, Any]) -> RunningStep:
    """The step for aggregates by the names of their fields.

    Raises:
        GraphError: there is none, or one is no aggregate.
    """
    if not named:
        raise GraphError(f"running takes aggregates by name, such as running(n=drift.agg.count()) (at {caller()})")
    for name, aggregate in named.items():
        check_aggregate(aggregate, f"running: {name}=")
    return RunningStep(tuple(named), tuple(named.values()))


def running_fields(fields: Any, step: RunningStep) -> Any:
    """The fields of the rows that a step makes; None if their types are not known."""
    from drift.columns.aggregates import fields_of_aggregates  # here: it needs numpy

    of = [each.type_in_columns for each in step.aggregates]
    made = fields_of_aggregates(fields, list(zip(step.names, of)))
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
        """See `Logic`."""
        return not_in_columns(key, dict(zip(self.names, self.aggregates)), lambda each: each.running_in_columns)

    def on_rows(
        self,
        key: Callable[[Any], Any],
        rows: Rows,
        fetch: Callable[[Sequence[Any]], list[Any]],
        store: Callable[[Iterable[tuple[Any, Any]]], None],
    ) -> Rows | None:
        """See `Logic.on_rows`."""
        names = names_of(key)
        kinds = [each.running_in_columns for each in self.aggregates]
        if names is None or None in kinds:
            return None
        from drift.columns.aggregates import running  # here: it needs numpy

        return running(rows, names, list(zip(self.names, kinds)), fetch, store)  # type: ignore[arg-type]
