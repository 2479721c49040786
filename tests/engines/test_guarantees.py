"""What a run promises is data: told before it starts, and named with the source or the sink that limits it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_records_cli import call
from waiting import wait_until_stored

import drift
from drift import ArrivalTime, EventTime, sinks, sources
from drift.guarantees import guarantee
from drift.sinks.base import as_sink
from drift.sources.arguments import as_source
from drift.state.run_checkpoints import known
from drift_graph.meta import in_rounds

ROOT = Path(__file__).parents[2]


class Mute:
    """A source and a sink that promise nothing."""

    live = False

    def open(self) -> Any: ...
    def write(self, positions: Any, metas: Any, payloads: Any) -> None: ...
    def complete(self) -> None: ...
    def close(self) -> None: ...


def numbers() -> Iterator[int]:
    yield from range(3)


IN_ORDER = EventTime(lambda n: n)
IDLE = EventTime(lambda n: n, idle_after_ms=100)


@pytest.mark.parametrize(
    ("source", "policy", "again"),
    [
        ([1, 2], ArrivalTime(), ""),
        (sources.text("some.txt"), ArrivalTime(), ""),
        (sources.parquet("*.parquet"), ArrivalTime(), ""),
        (sources.redis("redis://localhost", "s", until_end=True), ArrivalTime(), ""),
        (sources.redis("redis://localhost", "s"), IN_ORDER, ""),
        (sources.redis("redis://localhost", "s"), ArrivalTime(), "the clock stamps its items"),
        (sources.redis("redis://localhost", "s"), IDLE, "the clock decides when it is idle"),
        (sources.kafka("localhost:1", "t"), IN_ORDER, "it returns its items in another order each time"),
        (sources.kafka("localhost:1", "t", until_end=True), IN_ORDER, ""),
        (sources.text("-"), ArrivalTime(), "a pipe gives each byte once"),
        (numbers(), ArrivalTime(), "an iterator is read once"),
        (sources.live(numbers()), IN_ORDER, "what an iterable gives in its own time it gives once"),
    ],
)
def test_a_source_that_gives_other_items_each_time_limits_a_run_without_state(
    source: Any, policy: Any, again: str, tmp_path: Path
) -> None:
    sources = {"s": (as_source("s", source), policy)}
    exact, twice = {"out": sinks.jsonl(tmp_path / "out")}, {"out": as_sink("out", print)}
    for out, levels in ((exact, ("exactly once", "at most once")), (twice, ("at least once", "none"))):
        found = guarantee(sources, out, with_state=False)
        assert found.level == levels[bool(again)]
        assert (f"source 's': {again}" in found.because) is bool(again)
        assert guarantee(sources, out, with_state=True).level == levels[0], "it is in a log, where it has to be"


def test_what_limits_a_run_is_named(tmp_path: Path) -> None:
    graph = drift.Graph("two")
    graph.source("n").sink("a")
    graph.source("m").sink("b")
    both = {"n": [1], "m": numbers()}
    run = drift.run(graph, both, sinks={"a": sinks.jsonl(tmp_path / "a"), "b": sinks.stdout()})
    assert run.guarantee is not None and run.guarantee.level == "none"
    assert str(run.guarantee) == (
        "none, because of source 'm': an iterator is read once; of sink 'b': nobody can ask what was printed: a rerun "
        "prints it all"
    )
    assert run.report.guarantee == str(run.guarantee)
    sound = drift.run(graph, {"n": [1], "m": [2]}, sinks={"a": sinks.jsonl(tmp_path / "a"), "b": sinks.csv("b.csv")})
    assert str(sound.guarantee) == "exactly once" and sound.guarantee is not None and not sound.guarantee.because
    mute = guarantee({"n": (Mute(), ArrivalTime())}, {"a": Mute()}, with_state=False)
    assert mute.because == (
        "source 'n': it does not state that it can be read again",
        "sink 'a': it does not state what it has stored",
    )
    assert "the caller, who takes the output" in str(guarantee({}, {}, with_state=True))


def test_calls_are_asked_once_and_limit_a_run_that_does_not_log_their_answers(tmp_path: Path) -> None:
    graph = drift.Graph("asked")
    graph.source("n").call(len, name="ask").sink("out")
    out = {"out": sinks.jsonl(tmp_path / "out")}
    asks = "call 'ask' asks about each item once, or twice with one key, if its process dies between an answer and"
    asks += " its log"
    unlogged = drift.run(graph, {"n": [1]}, sinks=out).guarantee
    assert unlogged is not None and unlogged.level == "at most once" and unlogged.asks == asks
    assert unlogged.because == (
        "call 'ask': without state= its answers are not logged, and a repeated run may get others",
    )
    logged = drift.run(graph, {"n": [1]}, sinks=out, state=tmp_path / "state")
    assert str(logged.guarantee) == f"exactly once; {asks}" == logged.report.guarantee
    logged.close()
    replayed = drift.run(graph, {"n": [1]}, sinks=out, state=tmp_path / "state", calls="replay")
    assert str(replayed.guarantee) == "exactly once"
    assert "; calls 'ask', 'tell' ask about each item once" in str(
        guarantee({}, {}, with_state=True, calls=["ask", "tell"])
    )


def test_the_command_reports_it_before_a_run_and_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (tmp_path / "in.txt").write_text("to be or\n")
    graph, words, out = "examples/wordcount.py:graph", str(tmp_path / "in.txt"), f"{tmp_path}/out.jsonl"
    ran = call("run", graph, "--source", words, "--sink", out)
    assert ran.exit_code == 0
    assert ran.stderr.splitlines()[0] == "each item is in the sinks exactly once"
    assert json.loads(call("run", graph, "--source", words, "--json").stdout)["guarantee"].startswith("at least once")
    checked = call("check", graph, "--source", "-", "--sink", "text:-")
    assert checked.exit_code == 0 and checked.stdout.splitlines()[0] == "graph 'wordcount' is sound"
    assert checked.stdout.splitlines()[-1].startswith(
        "guarantee of a run: none, because of source 'lines': a pipe gives"
    )
    state = call("check", graph, "--source", "tcp://127.0.0.1:0", "--sink", out, "--state", "--json")
    assert json.loads(state.stdout)["guarantee"] == "exactly once"
    state = str(tmp_path / "state")
    anew = call("check", graph, "--state", state)
    assert anew.stdout.splitlines()[-1] == f"{state} has no checkpoint: a run starts from the beginning"
    assert call("run", graph, "--source", words, "--state", state).exit_code == 0
    resumed = call("check", graph, "--state", state)
    assert resumed.stdout.splitlines()[-1] == "it resumes from checkpoint 1 at the end, position 3"
    other = call("check", "examples/flights.py:graph", "--state", state)
    assert other.exit_code == 3 and "'flights'" in other.stderr + other.stdout
    assert call("check", graph).stdout == "graph 'wordcount' is sound\n"
    assert call("check", "examples/nothing.py:graph").exit_code == 2


# Each of them, shown: a run is broken off, and the same call is made again.


def halved(pair: tuple[int, int]) -> list[int]:
    return [pair[1] // 2] if pair[1] > 1 else []


def summed(state: int, number: int) -> int:
    return state + number


def rounds() -> drift.Dataflow:
    """Items as they come, with what each round of a loop behind them gives, and where that ends."""
    graph = drift.Graph("rounds")
    sources = graph.source("numbers")
    sources.scan(lambda number: number % 7, 0, lambda total, number: (total + number, (number, total))).sink("items")

    def body(pairs: Any) -> Any:
        halves = pairs.flat_map(halved, name="halved")
        halves.sink("halves")
        return halves

    state, _ = sources.iterate(20, 0, body, summed, name="loop")
    state.sink("sum")
    return graph.build()


NAMES = ("items", "halves", "sum")


@pytest.mark.parametrize("with_state", [False, True], ids=["without state", "with state"])
@pytest.mark.parametrize("again", [True, False], ids=["read again", "read once"])
@pytest.mark.parametrize("exact", [True, False], ids=["a sink that knows", "a sink that does not"])
def test_what_is_guaranteed_is_what_is_stored_after_a_run_that_was_broken_off(
    again: bool, exact: bool, with_state: bool, tmp_path: Path
) -> None:
    count = 400
    uninterrupted = drift.run(rounds(), {"numbers": range(count)})
    right = sorted((item.sink, json.dumps(item.payload)) for item in uninterrupted)
    numbers: Any = range(count) if again else iter(range(count))
    taken: list[Any] = []
    state = drift.Checkpoints(tmp_path / "state", every_s=0.0) if with_state else None

    def begun() -> drift.Run:
        into: Any = {name: sinks.jsonl(tmp_path / name) if exact else taken for name in NAMES}
        return drift.run(rounds(), {"numbers": numbers}, sinks=into, state=state, batch_items=30)

    run = begun()
    level = run.guarantee.level if run.guarantee is not None else ""
    for item in run:
        if item.position == 200:
            break
    run.close()
    had = len(taken)
    run = begun()
    try:
        run.finish()
    except drift.SinkError as refused:  # what it gives now is not what is there
        assert level == "at most once" and "other" in str(refused)
    if exact:
        lines = [(name, line) for name in NAMES for line in (tmp_path / name).read_text().splitlines()]
        there = sorted((name, json.dumps(json.loads(line)["payload"])) for name, line in lines)
    else:
        there = sorted((item.sink, json.dumps(item.payload)) for item in taken)
    lost = [each for each in right if each not in there]
    twice = [each for each in set(there) if there.count(each) > right.count(each)]
    assert (
        level
        == {
            (True, True): "exactly once",
            (True, False): "at least once",
            (False, True): "at most once",
            (False, False): "none",
        }[again or with_state, exact]
    )
    assert bool(lost) is (level in ("at most once", "none"))
    if level == "at least once":  # none comes twice where the checkpoint was taken just where the run was broken off
        assert bool(twice) is (run.resumed_from is None or run.resumed_from.output.position < had)
    else:
        assert not twice or level == "none"


@pytest.mark.long
def test_a_run_with_rounds_resumes_from_each_of_its_checkpoints(tmp_path: Path) -> None:
    sources = {"numbers": range(20)}
    uninterrupted = drift.run(rounds(), sources).finish()
    state = drift.Checkpoints(tmp_path / "state", every_s=0.0, keep=1000)
    run = drift.run(rounds(), sources, state=state, batch_items=10)
    for _ in run.batches():
        wait_until_stored(run)
    assert run.digest == uninterrupted.digest
    checkpoints = known(state)
    assert sum(in_rounds(checkpoint.at) for checkpoint in checkpoints) > 3 and not all(
        in_rounds(checkpoint.at) for checkpoint in checkpoints
    )
    for checkpoint in checkpoints:
        shutil.copytree(tmp_path / "state", tmp_path / "copy")
        again = drift.Checkpoints(tmp_path / "copy", from_checkpoint=checkpoint.number, every_s=1000)
        run = drift.run(rounds(), sources, state=again)
        assert run.resumed_from is not None and run.resumed_from.number == checkpoint.number
        assert run.finish().digest == uninterrupted.digest, checkpoint.reached
        shutil.rmtree(tmp_path / "copy")
