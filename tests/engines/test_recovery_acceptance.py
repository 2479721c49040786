"""Deaths at chosen moments, as a specification of going back would list them; each ends with the reference's output.

The graphs are a keyed sum before windows, a diamond, and a loop that changes keys; a tenth of the input is disordered.
`check` compares digest, positions and late items with the reference, and sees to it that minimal time never goes back
and nothing is held. Times, sizes and what needs real processes is in `test_recovery.py` and `benchmarks/deaths.py`.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import segmented

import drift
from drift.engines.simulated.schedule import Scheduled
from drift.engines.simulated.simulation import Simulation
from drift.machines.nodes.messages import Rewind
from drift.machines.nodes.snapshots import InMemory, Layer
from drift.machines.worker import BARRIER
from drift.state.run_checkpoints import known
from drift.state.settings import store_of
from drift.testing.check import Case, Result, check, in_order
from drift.testing.schedule import Schedule
from drift_graph.graph import Dataflow
from drift_graph.meta import time_of

ACKER = -2
ITEMS = 160
Build = Callable[[drift.Graph, Any], None]
Script = Callable[[Any], Iterator[Callable[[], bool]]]


def summed(graph: drift.Graph, numbers: Any) -> None:
    sums = numbers.scan(lambda number: number % 5, 0, lambda total, number: (total + number, (number, total)))
    sums.group(lambda row: row[0] % 7, 3).map(lambda window: sum(row[1] for row in window)).sink("out")


def diamond(graph: drift.Graph, numbers: Any) -> None:
    left, right = numbers.map(lambda number: number * 2), numbers.filter(lambda number: number % 3 == 0)
    left.merge(right).group(lambda number: number % 5, 2).map(list).sink("out")
    left.sink("doubled")


def circle(graph: drift.Graph, numbers: Any) -> None:
    """Each number goes on to lesser keys, by windows of two."""
    loop = graph.feedback("again")
    windows = numbers.map(lambda number: (number % 6, 2)).merge(loop).group(lambda pair: pair[0], 2)
    turned = windows.flat_map(lambda window: [(window[-1][0] - 1, window[0][1])] if window[-1][0] > 0 else [])
    turned.feed(loop)
    turned.sink("out")


GRAPHS = [summed, diamond, circle]
every_graph = pytest.mark.parametrize("build", GRAPHS)


def dataflow_of(build: Build) -> Dataflow:
    graph = drift.Graph(build.__name__)
    build(graph, graph.source("numbers", time=drift.EventTime(lambda number: number, lateness=12)))
    return graph.build()


class Scripted(Simulation):
    """What a script does at the moments that it waits for; nobody else dies."""

    script: ClassVar[Callable[[Any], Iterator[Callable[[], bool]]]]

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.generations: list[Rewind] = []
        self._steps = type(self).script(self)
        self._awaited: Callable[[], bool] | None = next(self._steps)

    def step(self) -> bool:
        while self._awaited is not None and self._awaited():
            self._awaited = next(self._steps, None)
        return super().step()

    def _may_die(self, event: Scheduled) -> None:
        """Only by script."""

    def _do(self, effects: Any) -> None:
        rewinds = [effect.order for effect in effects if isinstance(getattr(effect, "order", None), Rewind)]
        self.generations += rewinds[:1]
        super()._do(effects)

    # What scripts ask and do.

    def settled(self, items: int) -> bool:
        """Whether so many items have been released, by what the calling process has."""
        return self._feed_node.position >= items

    def in_flight_from(self, sender: int, kind: str) -> list[Scheduled]:
        return [event for event in self.in_flight if event.sender == sender and event.key.kind == kind]

    def lose(self, events: Collection[Scheduled]) -> None:
        self.in_flight = [event for event in self.in_flight if event not in events]

    def kill(self, *roles: int, keep: Collection[Scheduled] = ()) -> None:
        """They die; of what they have sent that is on its way only so much comes."""
        for role in roles:
            own = [event for event in self.in_flight if event.sender == role and event.action is None]
            self.lose([event for event in own if event not in keep])
            self.die(role)

    def back(self) -> Callable[[], bool]:
        """Once all have come to where they were after one more way back."""
        before = self.recovered
        return lambda: self.recovered > before


def run(build: Build, script: Script) -> Any:
    """Run by a script, under the first schedule in which its moments come; all outputs are the reference's."""
    kind = type("Run", (Scripted,), {"script": script})
    dataflow = dataflow_of(build)
    numbers = [number + (7 if number % 10 == 3 else 0) for number in range(ITEMS)]
    inputs = in_order(dataflow, {"numbers": numbers})
    for noise in range(5, 25):
        schedule = Schedule(workers=3, batch_items=8, noise=noise, deaths=True)
        result: Result = check(Case(dataflow, inputs, schedule), simulation=kind)
        assert result.failure is None, result.failure
        if result.simulation._awaited is None:
            return result.simulation
    raise AssertionError("the script's moments have not come")


@every_graph
def test_1_a_worker_dies_after_its_data_left_and_before_its_ack(build: Build) -> None:
    def script(sim: Any) -> Iterator[Callable[[], bool]]:
        yield lambda: sim.settled(30) and sim.in_flight_from(0, "batch") and sim.in_flight_from(0, "ack")
        sim.kill(0, keep=sim.in_flight_from(0, "batch"))

    sim = run(build, script)
    (order,) = sim.generations
    assert order.replaced == [0]
    assert sim.refused > 0, "its data came, and was refused"


@every_graph
def test_2_a_worker_dies_after_its_ack_left_with_data_in_its_outbox(build: Build) -> None:
    def script(sim: Any) -> Iterator[Callable[[], bool]]:
        yield lambda: sim.settled(30) and sim.in_flight_from(0, "batch") and not sim.in_flight_from(0, "ack")
        sim.kill(0)

    assert len(run(build, script).generations) == 1


@every_graph
def test_3_its_last_batch_and_ack_come_when_all_have_resumed(build: Build) -> None:
    def script(sim: Any) -> Iterator[Callable[[], bool]]:
        yield lambda: sim.settled(30) and sim.in_flight_from(0, "batch") and sim.in_flight_from(0, "ack")
        kept = [sim.in_flight_from(0, "batch")[0], sim.in_flight_from(0, "ack")[0]]
        kept[0].life = sim._lives[kept[0].to]
        for event in kept:
            event.due = 10**6
        others = [event for event in sim.in_flight if event.action is None and event not in kept]
        sim.lose(others)  # what lives has sent is of the old generation, too
        sim.refused = 0
        sim.kill(0, keep=kept)
        yield sim.back()
        for event in kept:
            event.due = sim.turn
        yield lambda: sim.refused == 2

    assert run(build, script).refused == 2, "and no more"


@every_graph
def test_4_two_workers_die_one_after_the_other_before_the_next_checkpoint_is_committed(build: Build) -> None:
    since: list[bytes] = []

    def script(sim: Any) -> Iterator[Callable[[], bool]]:
        yield lambda: sim.settled(30)
        sim.rewind_log._next_checkpoint_s = 10**9
        sim.rewind_log._taking = None
        sim.kill(0)
        yield sim.back()
        since.append(sim.rewind_log.since)
        sim.kill(1)
        yield sim.back()
        since.append(sim.rewind_log.since)
        sim.rewind_log._next_checkpoint_s = 0

    sim = run(build, script)
    assert [order.replaced for order in sim.generations] == [[0], [1]]
    assert since[0] == since[1] == sim.generations[0].since, "nothing was committed between"


@every_graph
def test_5_two_at_once_and_then_all(build: Build) -> None:
    reads: list[int] = []

    def script(sim: Any) -> Iterator[Callable[[], bool]]:
        yield lambda: sim.settled(30)
        sim.kill(0, 1)
        yield sim.back()
        reads.append(sum(len(each.arrived.metas) for each in sim.handed))
        sim.kill(0, 1, 2)
        yield sim.back()

    sim = run(build, script)
    assert [order.replaced for order in sim.generations] == [[0, 1], [0, 1, 2]]
    handed = [meta for each in sim.handed for meta in each.arrived.metas]
    assert len(handed) == len(set(handed)) == ITEMS, "no source was read again"


@every_graph
def test_6_the_barrier_dies_with_items_and_with_a_release_that_nobody_has_read(build: Build) -> None:
    def script(sim: Any) -> Iterator[Callable[[], bool]]:
        yield lambda: sim.settled(30) and len(sim.barrier) > 0
        sim.kill(BARRIER)
        yield sim.back()
        yield lambda: len(sim._released) > 0
        sim._released.clear()
        sim.kill(BARRIER)
        yield sim.back()

    assert [order.replaced for order in run(build, script).generations] == [[BARRIER], [BARRIER]]


@every_graph
def test_7_the_acker_dies_and_some_have_not_heard_its_news(build: Build) -> None:
    heard: list[bytes] = []

    def script(sim: Any) -> Iterator[Callable[[], bool]]:
        yield lambda: sim.settled(30) and len({node._minimal_time for node in workers_of(sim)}) > 1
        held_back = [event for event in sim.in_flight_from(ACKER, "news") if event.to in (0, BARRIER)]
        heard.append(max(node._minimal_time for node in workers_of(sim)))
        sim.lose(held_back)
        sim.kill(ACKER)
        yield sim.back()

    sim = run(build, script)
    (order,) = sim.generations
    assert order.checkpoint >= heard[0]
    assert order.replaced == [] and order.since == order.checkpoint, "no state is loaded"


def workers_of(sim: Any) -> list[Any]:
    return [sim._nodes[index] for index in range(sim._workers)]


@every_graph
def test_9_the_replacement_dies_while_it_begins_and_a_survivor_before_all_resume(build: Build) -> None:
    def script(sim: Any) -> Iterator[Callable[[], bool]]:
        yield lambda: sim.settled(30)
        sim.kill(0)
        yield lambda: len(sim.generations) == 1 and 0 not in sim._dead
        sim.kill(0)
        yield lambda: len(sim.generations) == 2 and sim._nodes[1].generation == sim.generation
        assert sim.recovery.rewinding
        sim.kill(1)
        yield sim.back()

    sim = run(build, script)
    assert len(sim.generations) == 3
    assert len({order.checkpoint for order in sim.generations}) == 1, "the checkpoint cannot have moved"
    assert sim.generations[-1].replaced == [0, 1]


@every_graph
@pytest.mark.parametrize("half", [True, False])
def test_10_a_worker_dies_while_a_checkpoint_is_half_given_or_given_and_not_committed(build: Build, half: bool) -> None:
    since: list[bytes] = []

    def script(sim: Any) -> Iterator[Callable[[], bool]]:
        def has_come() -> bool:
            if not sim.settled(30) or sim.rewind_log._taking is None:
                return False
            given = set(sim.rewind_log._replies)
            return bool(given) and 0 not in given if half else given == {0, 1, 2}

        yield has_come
        since.append(sim.rewind_log.since)
        if half:
            sim.kill(0)
        else:  # what the barrier has to say of it is lost with it
            sim._released.clear()
            sim.kill(0, BARRIER)
        yield lambda: len(sim.generations) == 1

    sim = run(build, script)
    assert sim.generations[0].since == since[0], "the checkpoint before is what all go back to"


def test_12_a_replacement_asks_only_for_keys_that_come_again_and_survivors_for_none() -> None:
    asked: list[int] = []

    class Asked(InMemory):
        def get(self, names: Any) -> list[Layer]:
            return [_Counting(layer, asked) for layer in super().get(names)]

    def many_keys(graph: drift.Graph, numbers: Any) -> None:
        numbers.scan(lambda number: number, 0, lambda count, number: (count + 1, count)).sink("out")

    def script(sim: Any) -> Iterator[Callable[[], bool]]:
        for node in workers_of(sim):
            node._shelf = Asked(())
        yield lambda: sim.settled(100)
        sim.kill(0)
        yield lambda: 0 not in sim._dead
        sim._nodes[0]._shelf = Asked(())
        yield sim.back()

    sim = run(many_keys, script)
    stored = sum(len(snapshot.name) > 0 for names in sim.rewind_log._snapshots for snapshot in names.all())
    assert stored > 0
    assert len(asked) > 0
    assert sum(asked) < ITEMS, "of the keys of all that came, only those that come again"


class _Counting:
    """A layer that notes how many keys are asked for."""

    def __init__(self, layer: Layer, asked: list[int]) -> None:
        self._layer, self._asked = layer, asked

    def find(self, step: str, keys: Any) -> dict[Any, Any]:
        self._asked.append(len(keys))
        return self._layer.find(step, keys)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


@pytest.mark.parametrize("engine", ["local", "zeromq"])
def test_11_everything_dies_and_each_segment_resumes_from_a_checkpoint_of_its_own(tmp_path: Path, engine: str) -> None:
    expected = segmented.run(tmp_path / "unbroken", "local")
    digest = expected.finish().digest
    died = tmp_path / "died"
    died.mkdir()
    command = [sys.executable, segmented.__file__, str(died), engine]
    assert subprocess.run(command, cwd=Path(__file__).parents[1]).returncode == -signal.SIGKILL
    before, behind = known(died / "state" / "segments" / "1"), known(died / "state")
    while behind[-1].at > before[len(before) // 2].at:  # its last ones were lost
        store = store_of(died / "state")
        store.open()
        store.drop(behind.pop().number)
        store.close()
    assert before[0].at <= behind[-1].at < before[-1].at, "upstream's is newer, and it has one that is not"
    for log in ("whole", "gone", "broken") if engine == "local" else ("whole",):
        folder = tmp_path / log
        shutil.copytree(died, folder)
        (folder / "read").unlink()
        (folder / "called").unlink()
        files = sorted((folder / "state" / "inputs" / "segment+1").iterdir())
        if log == "gone":
            shutil.rmtree(files[0].parent)
        elif log == "broken":
            data = bytearray(files[-1].read_bytes())
            data[len(data) // 3] ^= 1
            files[-1].write_bytes(data)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", UserWarning)
            run = segmented.run(folder, engine, batch_items=70)
        said = [str(each.message) for each in warned if each.category is UserWarning]  # others' garbage may warn, too
        assert run.resumed_from is not None and run.resumed_from.at == behind[-1].at
        assert run.finish().digest == digest
        assert (folder / "out.jsonl").read_bytes() == (tmp_path / "unbroken" / "out.jsonl").read_bytes()
        calls = segmented.noted(folder, "called")
        begin, newest = min(calls), time_of(before[-1].at)
        assert sorted(calls) == list(range(begin, segmented.ITEMS)), log
        if log == "whole":
            assert begin == newest and not said, "nothing before it is computed again"
        else:
            older = [time_of(checkpoint.at) for checkpoint in before if checkpoint.at <= behind[-1].at][-1]
            assert any("log of durable step 'dear'" in each for each in said)
            assert begin == older if log == "gone" else older <= begin < newest
        assert begin - 50 < min(segmented.noted(folder, "read")) <= begin, "from the batch on that the checkpoint is in"
