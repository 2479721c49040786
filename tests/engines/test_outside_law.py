"""Law: whatever befalls the source, the sinks, the store and the caller of a run, each item is in the sinks once and in
its place when at last a run comes to its end, and the caller has missed none; or a run has said what is wrong, and what
the sinks have is a prefix.

All four are drawn together (`outside`, `outside_sources`, `outside_files`, `outside_pushed`): a topic, a stream, a
table, its changes, a folder, objects, connections or a socket that is written to while it is read, gets partitions, has
messages that cannot be decoded, breaks off, is away, and comes back shorter; sinks that acknowledge late, refuse, lose,
and come back older; a store that is away, older, or full; a caller that stops at any item, or dies with it in hand, and
comes again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from callers import written_at_once
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from outside import FAULTS, Far, Rows, Schedule, Server, Topic, states_on
from outside_files import Folder, Objects
from outside_pushed import Changes, Lines, Messages
from outside_sources import Broker, NobodyWrites, Stream, Table

import drift
from drift import DriftError

MESSAGES_MAX = 24
RUNS_MAX = 5
SINKS: dict[str, Callable[[Schedule], Far]] = {
    "rows": Rows,
    "rows, what is refused set apart": lambda choose: Rows(choose, diverts=True),
    "topic": lambda choose: Topic(choose, 1, None),
    "shared topic": lambda choose: Topic(choose, 1, None, is_shared=True),
}


def values_of(message: Any) -> Any:
    """Partition, number and timestamp of a message: of JSON, of its text, of a row, or of a change of a table."""
    if isinstance(message, str):
        return json.loads(message)
    if not isinstance(message, dict):
        return message
    return [int(value) for value in list(message.get("row", message).values())[:3]]


def counted() -> drift.Dataflow:
    """Of each partition the messages that can be decoded, with their numbers."""
    graph = drift.Graph("outside")
    time = drift.EventTime(lambda message: values_of(message)[2], lateness=4)
    messages = graph.source("in", time=time, on_error="divert").map(values_of)
    messages.scan(lambda message: message[0], 0, lambda count, message: (count + 1, (*message, count))).sink("out")
    return graph.build()


class Outside:
    """All that is outside, and the output as it was given to the sinks: one item for each position, in all runs.

    Attributes:
        taken: the caller has all output below this position, in whichever run.
        is_another: a later run began without its state and without the input before, and its output is another.
    """

    def __init__(self, choose: Schedule, read: type[Broker], kinds: tuple[str, str], logs: Path) -> None:
        self.choose = choose
        self.broker = read(choose, MESSAGES_MAX)
        self.sinks = {name: SINKS[kind](choose) for name, kind in zip(("out", "errors"), kinds, strict=True)}
        self.server = Server()
        self.logs = logs
        self.output: dict[int, tuple[str, bytes, Any]] = {}
        self.taken = 0
        self.is_another = False

    def opened_sinks(self) -> dict[str, Any]:
        return {name: self._noting(name, far.sink()) for name, far in self.sinks.items()}

    def _noting(self, name: str, sink: Any) -> Any:
        write = sink.write

        def noted(positions: Any, metas: Any, payloads: Any) -> None:
            for position, meta, payload in zip(positions, metas, payloads, strict=True):
                now = (name, bytes(meta), payload)
                before = self.output.setdefault(position, now)
                if before != now:
                    assert self.input_is_lost, f"position {position} has {now} in place of {before}"
                    self.is_another = True
            write(positions, metas, payloads)

        sink.write = noted
        return sink

    def kept(self) -> Any:
        """All of it as it is now, for somebody who dies here."""
        shutil.copytree(self.logs, self.logs.with_name("kept"))
        parts = [deepcopy(far.stored if isinstance(far, Rows) else far.logs) for far in self.sinks.values()]  # type: ignore[attr-defined]
        return list(self.server.history), parts, self.broker.kept()

    def put_back(self, kept: Any) -> None:
        self.server.history, parts, of_broker = kept
        self.broker.put_back(of_broker)
        shutil.rmtree(self.logs)
        self.logs.with_name("kept").rename(self.logs)
        for far, part in zip(self.sinks.values(), parts, strict=True):
            setattr(far, "stored" if isinstance(far, Rows) else "logs", part)

    def heal(self) -> None:
        self.server.faults = {}
        for each in (self.broker, *self.sinks.values()):
            each.heals = True

    @property
    def has_lost(self) -> bool:
        return any(each.has_lost for each in (self.broker, self.server, *self.sinks.values()))

    @property
    def input_is_lost(self) -> bool:
        """Whether there is input that no run can read again."""
        return self.broker.has_lost or (self.broker.forgets and self.server.has_lost)

    def check_sinks(self, *, complete: bool) -> None:
        """Each sink has its items in their order up to some position, or all of them."""
        for name, far in self.sinks.items() if not self.is_another else ():
            (found,) = far.parts()
            share = [position for position, (sink, *_) in sorted(self.output.items()) if sink == name]
            assert found == (share if complete else share[: len(found)]) or (
                not complete and far.has_lost and not isinstance(far, Rows)
            ), f"{name} has {found} of {share}"

    def check_output(self) -> None:
        """Each message is in the output once, at its place, with its number."""
        assert sorted(self.output) == list(range(len(self.output)))
        metas = [meta for _, (_, meta, _) in sorted(self.output.items())]
        assert metas == sorted(set(metas))
        expected = []
        for log in self.broker.logs:
            sound = [each for each in log if each.is_sound]
            expected += [(each.where, each.number, each.at, count) for count, each in enumerate(sound)]
        found = [payload for _, (sink, _, payload) in sorted(self.output.items()) if sink == "out"]
        assert found == sorted(expected, key=lambda row: row[2])
        assert len(self.output) == self.broker.written


def run_once(outside: Outside, keep: int, stops_at: int, *, dies: bool) -> tuple[bool, DriftError | None]:
    """One run; whether it came to its end, and the error with which it ended."""
    run: drift.Run | None = None
    said: DriftError | None = None
    kept, stops, position = None, False, 0
    checkpoints = drift.Checkpoints("model://", every_s=0, keep=keep, logs=outside.logs, away_max_s=0.0)
    try:
        run = drift.run(
            counted(), {"in": outside.broker.source()}, sinks=outside.opened_sinks(), state=checkpoints, batch_items=3
        )
        begin = position = run.resumed_from.output.position if run.resumed_from is not None else 0
        assert begin <= outside.taken, f"resumes at {begin}, and the caller has what is below {outside.taken}"
        for item in run:
            assert item.position == position
            if stops := position - begin == stops_at:  # with the item in hand
                kept = outside.kept() if dies else None
                break
            position += 1
        run.close()
    except DriftError as error:
        said = error
        if run is not None:
            with contextlib.suppress(DriftError):
                run.close()
    outside.taken = max(outside.taken, position)
    if kept is not None:
        outside.put_back(kept)
    return said is None and not stops, said


def check(outside: Outside, choose: Schedule, keep: int, faults: list[dict[int, str]]) -> None:
    for faults_of_run in faults:
        outside.server.faults, outside.server.calls = faults_of_run, 0
        complete, error = run_once(outside, keep, choose(MESSAGES_MAX), dies=choose(2) == 1)
        assert not complete and not isinstance(error, drift.LateItem | drift.DriftBug), error
        if isinstance(error, drift.InputError) and not isinstance(error, NobodyWrites):
            assert outside.broker.may_fail or outside.input_is_lost, (
                f"nothing has happened to the input, and a run says {error}"
            )
        outside.check_sinks(complete=False)
        outside.broker.maybe_shorter()
    outside.heal()
    complete, error = run_once(outside, keep, 10**9, dies=False)
    assert complete or outside.has_lost, f"nothing was lost, and the last run says {error}"
    outside.check_sinks(complete=complete and not outside.input_is_lost)
    if complete and not outside.input_is_lost:
        outside.check_output()


faults = st.dictionaries(st.integers(0, 60), st.sampled_from([each for each in FAULTS if each != "slow"]), max_size=3)


@pytest.mark.parametrize(
    ("read", "share"),  # of what is drawn each time; all of it in a campaign, and where something is broken
    [(Broker, 1), (Stream, 2), (Table, 2), (Folder, 2), (Objects, 2), (Changes, 2), (Messages, 2), (Lines, 2)],
)
def test_each_item_is_in_the_sinks_once_and_in_its_place_or_a_run_says_what_is_wrong(
    read: type[Broker], share: int
) -> None:
    @given(
        kinds=st.tuples(st.sampled_from(list(SINKS)), st.sampled_from(list(SINKS))),
        keep=st.integers(1, 3),
        of_runs=st.lists(faults, min_size=1, max_size=RUNS_MAX),
        data=st.data(),
    )
    @settings(
        max_examples=settings().max_examples // (1 if os.environ.get("DRIFT_TESTS") else share),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    def law(kinds: tuple[str, str], keep: int, of_runs: list[dict[int, str]], data: st.DataObject) -> None:
        def choose(count: int) -> int:
            return data.draw(st.integers(0, count - 1)) if count > 1 else 0

        with tempfile.TemporaryDirectory() as folder:
            logs = Path(folder, "logs")
            logs.mkdir()
            outside = Outside(choose, read, kinds, logs)
            with states_on(outside.server), written_at_once(), outside.broker.read_from():
                check(outside, choose, keep, of_runs)

    law()
