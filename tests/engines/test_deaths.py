"""Processes die at any moment of a simulated run: the run goes back to a checkpoint and on, with the same output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from neighbours import Neighbours, neighbours
from strategies import scheduled_cases
from test_checkpoints import later_steps, rows, with_later
from tight import drawn, dropped_states, limited

import drift
from drift.engines.simulated.schedule import Key
from drift.engines.simulated.simulation import Simulation
from drift.machines.nodes.links import LinkLogs
from drift.machines.nodes.messages import CheckpointReply, Committed, MinimalTime
from drift.machines.nodes.snapshots import InMemory, LoadedLayer, SnapshotName
from drift.machines.nodes.worker import WorkerNode
from drift.machines.plan import Plan
from drift.machines.worker import BARRIER
from drift.testing.check import Case, Result, check, in_order
from drift.testing.report import in_words
from drift.testing.schedule import Deviation, Player, Schedule
from drift_graph.errors import ProcessError
from drift_graph.graph import Dataflow
from drift_graph.item import Columns
from drift_graph.meta import BEGINNING, END_OF_TIME, global_time, pack_time
from drift_graph.metas import Metas
from drift_graph.sizes import BATCH_BYTES

#: A schedule is noise here, which Hypothesis cannot make smaller; `drift simulate --deaths` can.
UNSHRUNK = (Phase.explicit, Phase.generate)
DEATHS = st.builds(
    Schedule,
    workers=st.integers(1, 3),
    batch_items=st.sampled_from([1, 2, 8]),
    fused=st.booleans(),
    noise=st.integers(1, 2**32 - 1),
    deaths=st.just(True),
)


@settings(phases=UNSHRUNK)
@given(scheduled_cases(schedule=DEATHS, items_min=1), st.integers(0, 2**32))
def test_any_deaths_at_any_moments_change_nothing_in_the_output(case: Case, seed: int) -> None:
    with limited(drawn(Random(seed)) if seed % 2 else {}):
        result = check(case)
    assert result.failure is None, result.failure


@settings(phases=UNSHRUNK)
@given(later_steps, rows(), rows(), DEATHS)
def test_nor_do_they_where_items_come_at_later_times(
    steps: list[str], first: list[Any], second: list[Any], schedule: Schedule
) -> None:
    dataflow = with_later(steps)
    inputs = in_order(dataflow, {"in0": first, "in1": second})
    result = check(Case(dataflow, inputs, schedule))
    assert result.failure is None, result.failure


@settings(phases=UNSHRUNK)
@given(neighbours(), DEATHS)
def test_nor_do_they_where_operators_look_at_times_and_neighbours(drawn: Neighbours, schedule: Schedule) -> None:
    dataflow = drawn.dataflow()
    result = check(Case(dataflow, in_order(dataflow, drawn.sources()), schedule))
    assert result.failure is None, result.failure


@settings(phases=UNSHRUNK)
@given(scheduled_cases(schedule=DEATHS, items_min=1, items_max=12))
def test_nor_do_they_where_all_states_are_dropped_that_may_be(case: Case) -> None:
    with dropped_states():
        result = check(case)
    assert result.failure is None, result.failure


def summed() -> Dataflow:
    """A sum by key, the last three sums of each of seven keys, and a map behind them."""
    graph = drift.Graph("summed")
    numbers = graph.source("numbers")
    sums = numbers.scan(lambda number: number % 3, 0, lambda total, number: (total + number, (number, total)))
    sums.group(lambda row: row[0] % 7, 3).map(lambda window: sum(row[1] for row in window)).sink("out")
    return graph.build()


class Killing(Simulation):
    """Processes die where a test says so: before the turn at which something comes."""

    kills: ClassVar[dict[str, tuple[int, ...]]]

    def step(self) -> bool:
        for to in self.kills.pop(f"{len(self.log)}", ()):
            if to not in self._dead:
                self.die(to)
        return super().step()


def killed(kills: dict[str, tuple[int, ...]], build: Callable[[], Dataflow] = summed) -> Result:
    """A run of the sums in order, whose processes die before the turns of these numbers; no source is read again."""
    kind = type("Killing", (Killing,), {"kills": dict(kills)})
    schedule = Schedule(workers=3, batch_items=8, deaths=True)
    result = check(Case(build(), {"numbers": list(range(60))}, schedule), simulation=kind)
    handed = [meta for each in result.simulation.handed for meta in each.arrived.metas]
    assert len(handed) == len(set(handed))
    return result


TURNS = len(killed({}).simulation.log)


@pytest.mark.parametrize("role", [0, 1, 2, BARRIER, -2])
def test_one_process_dies_at_each_turn_in_order(role: int) -> None:
    for turn in range(0, TURNS, TURNS // 12):
        result = killed({str(turn): (role,)})
        assert result.failure is None, (turn, result.failure)
        assert len(result.simulation.died) == 1


def test_who_restarts_finds_the_states_that_it_had_dropped_and_those_of_the_checkpoint() -> None:
    with dropped_states():
        for turn in range(0, TURNS, TURNS // 12):
            result = killed({str(turn): (0, 1)})
            assert result.failure is None, (turn, result.failure)


def test_several_die_at_once_and_again_while_all_go_back() -> None:
    for turn in range(3, TURNS, TURNS // 6):
        for other in (1, 9, 25):
            result = killed({str(turn): (0, 1, 2, BARRIER, -2), str(turn + other): (1, BARRIER)})
            assert result.failure is None, (turn, other, result.failure)
            assert len(result.simulation.died) >= 5


def test_who_dies_restarts_from_a_checkpoint_and_what_is_stored_stays_bounded() -> None:
    result = killed({str(TURNS * 3 // 4): (1,)})
    assert result.failure is None, result.failure
    recovery, log = result.simulation.recovery, result.simulation.rewind_log
    assert recovery is not None and log is not None
    assert BEGINNING < recovery.rewound_to < log.since
    assert len(log.links) <= 4


def many_keys() -> Dataflow:
    graph = drift.Graph("many keys")
    graph.source("numbers").scan(lambda number: number, 0, lambda count, number: (count + 1, count)).sink("out")
    return graph.build()


@pytest.mark.parametrize("role", [0, -2])
def test_who_restarts_asks_only_for_keys_that_come_again_and_where_the_acker_dies_nobody_asks(
    role: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    find = LoadedLayer.find
    monkeypatch.setattr(
        LoadedLayer, "find", lambda layer, step, keys: asked.append(len(keys)) or find(layer, step, keys)
    )
    turns = len(killed({}, many_keys).simulation.log)
    del asked[:]
    result = killed({str(turns * 3 // 4): (role,)}, many_keys)
    assert result.failure is None and len(result.simulation.died) == 1
    assert result.simulation.rewind_log.since > BEGINNING
    assert (0 < sum(asked) < 60) if role == 0 else not asked


def test_a_snapshot_goes_to_the_caller_again_until_its_checkpoint_is_committed() -> None:
    """It may be lost with a generation, and what it has is in no other."""
    node = WorkerNode(Plan(summed()), 0, 1, links=LinkLogs(lambda carried: []), shelf=InMemory(()))
    counts = [len(snapshots_sent(node, number)) for number in (1, 2, 3)]
    node.turn([Committed(pack_time(2))], 0.0)
    assert [*counts, len(snapshots_sent(node, 4))] == [1, 2, 3, 2]


def snapshots_sent(node: WorkerNode, number: int) -> list[SnapshotName]:
    notice = MinimalTime(pack_time(number), pack_time(number), -1, checkpoint=number)
    (reply,) = [send.message for send in node.turn([notice], 0.0) if isinstance(send.message, CheckpointReply)]
    assert reply.snapshots is not None
    return reply.snapshots


def test_a_link_log_has_nothing_at_or_above_the_checkpoint_of_a_later_generation() -> None:
    links = LinkLogs(lambda carried: [])
    metas = [global_time(time, 0, 0, 0) for time in range(6)]
    links.log(1, [("out", Columns(Metas(metas), list(range(6)), None))])
    links.rewind(1, metas[4])
    links.log(1, [("out", Columns(Metas(metas[4:]), ["anew", "anew"], None))])
    found = [columns.payloads for parts in links.between(1, metas[2], END_OF_TIME) for _, columns in parts]
    assert found == [[2, 3, "anew", "anew"]]
    links.commit(metas[5])
    assert len(links) == 2
    links.commit(metas[5] + b"\0")
    assert len(links) == 0


def test_what_is_sent_again_comes_in_few_batches_in_the_order_of_metas() -> None:
    """A tombstone stays between the item it takes back and the one that replaces it."""
    links = LinkLogs(lambda carried: [])
    metas = [global_time(time, 0, 0, 0) for time in range(9000)]
    for meta in metas[1::2]:
        links.log(1, [("odd", Columns(Metas([meta]), ["odd"], None)), ("all", Columns(Metas([meta]), [1], None))])
    for meta in metas[::2]:
        links.log(1, [("all", Columns(Metas([meta]), [0], None))])
    links.log(1, [("all", Columns(Metas([metas[8000], metas[8000]]), [0, 2], [-1, 1]))])
    batches = [dict(parts) for parts in links.between(1, BEGINNING, END_OF_TIME)]
    assert len(batches) == 2 and sum(len(columns.metas) for parts in batches for columns in parts.values()) == 13502
    assert all(list(columns.metas) == sorted(columns.metas) for parts in batches for columns in parts.values())
    at = list(batches[1]["all"].metas).index(metas[8000])
    assert batches[1]["all"].slice(at, at + 3) == Columns(Metas([metas[8000]] * 3), [0, 0, 2], [1, -1, 1])


def test_a_large_batch_that_is_wholly_above_the_checkpoint_is_no_batch() -> None:
    early, late = (global_time(time, 0, 0, 0) for time in (1, 9))
    links = LinkLogs(lambda carried: [("out", Columns(Metas([early if carried[0] else late]), ["an item"], None))])
    for is_early in (True, False, True):
        logged = links.log(1, [("out", Columns(Metas([early, late]), ["an item"] * 2, None))])
        assert logged is not None
        logged.content = bytes((is_early,)) * BATCH_BYTES
    batches = list(links.between(1, BEGINNING, global_time(5, 0, 0, 0)))
    assert [[list(columns.metas) for _, columns in parts] for parts in batches] == [[[early]], [[early]]]


def test_a_link_log_has_nothing_for_who_is_never_replaced() -> None:
    links = LinkLogs(lambda carried: [], lasting=(BARRIER,))
    parts = [("out", Columns(Metas([global_time(1, 0, 0, 0)]), [1], None))]
    assert links.log(BARRIER, parts) is None and links.log(0, parts) is not None
    assert len(links) == 1 and not list(links.between(BARRIER, BEGINNING, END_OF_TIME))


def test_who_dies_three_times_at_one_checkpoint_ends_the_run_and_the_error_says_who_and_where() -> None:
    every = {str(turn): (1,) for turn in range(4, 10_000)}
    result = killed(every)
    error = result.output.error
    assert isinstance(error, ProcessError), result.failure
    assert "worker 1 died 3 times at item" in str(error)
    assert "of source 'numbers'" in str(error)


def test_a_death_is_a_decision_that_is_written_down_and_made_again() -> None:
    schedule = Schedule(workers=2, batch_items=4, noise=7, deaths=True)
    case = Case(summed(), {"numbers": list(range(40))}, schedule)
    for noise in range(1, 50):
        result = check(replace(case, schedule=replace(schedule, noise=noise)))
        if result.simulation.died:
            break
    made = result.made
    assert any(key.kind == "death" for key in made)
    again = check(replace(case, schedule=schedule.with_deviations(made.values())))
    assert again.simulation.died == result.simulation.died
    assert [event.key for event in again.simulation.log] == [event.key for event in result.simulation.log]


def test_released_output_that_is_lost_with_the_barrier_comes_once_from_the_next() -> None:
    """The barrier dies with snapshots on their way, of which some are lost."""

    class Losing(Player):
        """All that is on its way from the barrier is lost with it, and it dies after releasing."""

        def choose(self, key: Key, count: int) -> int:
            if key.kind == "fate":
                return count - 1
            return super().choose(key, count)

    for turn in range(10, TURNS, TURNS // 20):
        kind = type("Killing", (Killing,), {"kills": {str(turn): (BARRIER,)}})
        schedule = Schedule(workers=2, batch_items=8, deaths=True)
        case = Case(summed(), {"numbers": list(range(60))}, schedule)
        result = check(case, player=Losing(schedule), simulation=kind)
        assert result.failure is None, (turn, result.failure)


def test_an_error_that_comes_when_the_barrier_has_a_successor_ends_a_run_with_the_digest_of_what_came() -> None:
    graph = drift.Graph("halves")
    graph.source("numbers").map(lambda number: 10 // (number - 4)).sink("out")
    deviations = [
        (("released", "barrier", "", 4, 0), 1, ("start", "barrier", "", 1, 0)),
        (("death", "barrier, news barrier", "", 4, 1), 1),
    ]
    schedule = Schedule(batch_items=2, deaths=True, deviations=deviations)  # type: ignore[arg-type]
    result = check(Case(graph.build(), {"numbers": [0, 0, 4]}, schedule))
    assert (result.failure, result.simulation.died) == (None, ["barrier"])
    assert len(result.output.rows) == 2 and result.output.error is not None


def test_released_output_that_is_on_its_way_when_another_dies_is_waited_for() -> None:
    class Slow(Player):
        def hold(self, key: Key) -> int:
            return 40 if key.kind == "released" else super().hold(key)

    died: list[str] = []
    for turn in range(10, TURNS, TURNS // 10):
        kind = type("Killing", (Killing,), {"kills": {str(turn): (0,)}})
        schedule = Schedule(workers=2, batch_items=8, deaths=True)
        case = Case(summed(), {"numbers": list(range(60))}, schedule)
        result = check(case, player=Slow(schedule), simulation=kind)
        assert result.failure is None, (turn, result.failure)
        died += result.simulation.died
    assert len(died) > 4


def test_who_began_anew_has_link_logs_of_it_for_the_next_that_dies() -> None:
    for turn in range(10, TURNS, TURNS // 8):
        for other in (20, 40, 60):
            result = killed({str(turn): (1,), str(turn + other): (0,)})
            assert result.failure is None, (turn, other, result.failure)


def test_a_deviation_that_is_a_death_says_so_in_words() -> None:
    schedule = Schedule(workers=2, batch_items=4, deaths=True)
    case = Case(summed(), {"numbers": list(range(8))}, schedule)
    first = next(event.key for event in check(case).simulation.log if event.key.kind == "batch")
    _, place, source, number, nth = first
    receiver = place.partition(" > ")[2]
    death = Deviation(Key("death", f"{receiver}, batch {place}", source, number, nth), 1)
    result = check(replace(case, schedule=schedule.with_deviations([death])))
    assert result.simulation.died == [receiver]
    assert f"{receiver} dies after a turn" in in_words(result)[0]
