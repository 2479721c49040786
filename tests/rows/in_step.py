"""Two machines of one stage, of which one gets rows in columns, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import strategies as st

from drift.columns import joined
from drift.columns.sided import PairRows
from drift.machines.checkpoints import DELETED
from drift.machines.keyed import KeyedStage
from drift_graph.canonical import canonical_each
from drift_graph.item import Columns
from drift_graph.meta import END_OF_TIME, global_time, moment_of
from drift_graph.metas import Metas


def check_in_step(
    make: Callable[[], Any],
    times: Sequence[int],
    batch_of: Callable[[int, int], tuple[Any, list[Any]]],
    rows_type: type,
    data: st.DataObject,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One machine gets rows in columns, or as a list, and begins again with what its checkpoints have; another always
    gets a list. They give the same.

    Args:
        make: makes a machine.
        times: of the rows.
        batch_of: the rows from one to another, in columns and as a list.
        rows_type: of outputs in columns.
    """
    machines = [make() for _ in range(2)]
    assert all(isinstance(stage, KeyedStage) for stage in machines)
    mixed, stored = data.draw(st.booleans()), dict[Any, Any]()
    sent: tuple[list[Any], list[Any]] = ([], [])
    machines[0].track()
    monkeypatch.setattr(joined, "UNUSED_MIN", data.draw(st.sampled_from([-99, 1 << 16])))  # of keys without rows
    at = 0
    while at < len(times):
        end = min(at + data.draw(st.integers(1, 9)), len(times))
        metas = [global_time(time, 0, number, 0) for number, time in zip(range(at, end), times[at:end])]
        bound = global_time(times[end], 0, end, 0) if end < len(times) else END_OF_TIME
        batch, listed = batch_of(at, end)
        if mixed and data.draw(st.integers(0, 2)) == 0:
            batch = listed
        at = end
        fires = at == len(times) or data.draw(st.integers(0, 3)) > 0
        within = data.draw(st.booleans())
        for stage, payloads, out in zip(machines, (batch, listed), sent):
            stage.heartbeat = stage.complete_below = bound
            processed = stage.process(Columns(Metas(metas), payloads, None), {})
            each_made = [processed]
            if fires and within and (first := machines[1].least_timer) is not None and first < bound:
                stage.heartbeat = first + b"\0"  # a frontier within the moment of some timers
                each_made.append(stage.fire({}))
                stage.heartbeat = bound
            if fires:
                each_made.append(stage.fire({}))
            for made in each_made:
                assert made.diffs is None and len(made.metas) == len(made.payloads)
                assert type(made.payloads) is not rows_type or made.metas.is_increasing()
                out += zip(made.metas, canonical_each(made.payloads), canonical_each(list(made.payloads)))
        if not fires:
            continue
        if rows_type is PairRows:  # others have timers that give nothing, which are not named
            check_first_timers(*machines)
        assert sorted(sent[0]) == sorted(sent[1])  # rows one by one give some ahead of others
        if data.draw(st.integers(0, 2)) == 0:
            machines[0].settle(bound)
            stored.update(machines[0].changed(bound))
            stored = {each: state for each, state in stored.items() if state is not DELETED}
            if data.draw(st.booleans()):
                machines[0] = make()
                machines[0].track()
                machines[0].restore(stored.items())
        elif data.draw(st.integers(0, 3)) == 0:
            machines[0].rewind(bound)


def check_first_timers(in_columns: KeyedStage, one_by_one: KeyedStage) -> None:
    """A form may name the beginning of the moment of its first timer, and nothing above that timer: time does not pass
    what is named, so it waits for the moment as a whole.
    """
    if (named := in_columns.least_timer) is not None:
        first = one_by_one.least_timer
        assert first is not None and named <= first and moment_of(named) == moment_of(first)
