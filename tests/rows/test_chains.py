"""Chains of steps that wait for time, in rows and in objects, and of others among them; processes may die."""

from __future__ import annotations

from chains import Chain, Step, case_of, graph_of
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tight import limited

import drift
from drift.testing.check import Case, check
from drift.testing.schedule import Deviation, Key, Schedule

UNSHRUNK = (Phase.explicit, Phase.generate)  # `python tests/deaths.py --shrink SEED` makes a case smaller


@settings(max_examples=20, phases=UNSHRUNK)
@given(st.integers(0, 2**32))
def test_chains_give_what_the_reference_gives_under_any_schedule_deaths_and_limits(seed: int) -> None:
    result = case_of(seed).check()
    assert result.failure is None, result.failure


def test_what_comes_to_wait_behind_a_step_leans_on_what_waits_in_it_however_late_the_ack_is() -> None:
    graph = drift.Graph("cycle")
    around = graph.feedback("around")
    schema = {"zone": str, "n": int, "at": int}
    rows = graph.source("rows", schema=schema, time=drift.EventTime("at", lateness=2)).merge(around)
    made = rows.key_by("zone").window(drift.windows.tumbling(2)).rows(n=drift.agg.sum("n"))
    again = made.filter(lambda row: row["n"] > 1)
    again.map(lambda row: {"zone": row["key"], "n": row["n"] // 4, "at": row["start"]}).feed(around)
    made.key_by("key").window(drift.windows.tumbling(2)).rows(more=drift.agg.count()).sink("out")
    acks = Key("ack", "worker 0", "rows", 1, 0), Key("ack", "worker 0", "", -1, 0)
    schedule = Schedule(workers=1, batch_items=1, deviations=(Deviation(acks[0], 12, acks[1]),))
    rows_given = [{"zone": "b", "n": 0, "at": 0}, {"zone": "b", "n": 0, "at": 2}]
    result = check(Case(graph.build(), {"rows": rows_given}, schedule))
    assert result.failure is None and len(result.expected.rows) == 2, result.failure


def test_a_worker_tells_of_no_timer_that_has_fired_where_outputs_wait_for_their_maps() -> None:
    limits = {
        f"drift.machines.unmapped.{name}": value for name, value in [("FIRST", 1), ("GROWTH", 2), ("_MADE_MAX", 1)]
    }
    dataflow = graph_of(Chain([Step("left pairs", 1, 0), Step("pairs", 1, 0)], "n")).build()
    deviations = (
        Deviation(Key("heartbeat", "rows", "rows", 0, 0), 21),
        Deviation(Key("ack", "worker 0", "rows", 0, 0), 1),
        Deviation(Key("still", "rows > worker 0", "rows", 0, 0), 1),
        Deviation(Key("read", "", "more", 1, 0), 7),
        Deviation(Key("news", "worker 0", "", 0, 0), 8),
        Deviation(Key("still", "worker 0", "more", 0, 1), 16),
        Deviation(Key("still", "more > worker 0", "more", 1, 0), 86),
        Deviation(Key("still", "barrier", "more", 0, 1), 7),
    )
    given = {"rows": [(6, 14), (9, 15)], "more": [(2, 1001), (7, 1002)]}
    inputs = {
        name: [{"zone": "a", "code": 0, "at": at, "n": n, "fare": n / 7} for at, n in rows]
        for name, rows in given.items()
    }
    with limited(limits):
        result = check(Case(dataflow, inputs, Schedule(workers=2, batch_items=1, deviations=deviations)))
    assert result.failure is None and len(result.expected.rows) == 6, result.failure
