"""Law: what a sink has written is a prefix of the output, without gaps or doubles, or the run has said what is wrong.

The real sinks' logic on models of their servers (`outside`): they acknowledge late and out of order, lose what they had
acknowledged, come back older, refuse an item, and connections break before and behind a commit.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outside import Far, Rows, Schedule, Topic

import drift
from drift import SinkBehind, SinkError
from drift.state.run_checkpoints import known
from drift_graph.meta import global_time
from drift_graph.metas import Metas

LENGTH = 24
RUNS_MAX = 5
METAS = [global_time(n, 0, 0, 0) for n in range(LENGTH)]
MODELS: dict[str, Callable[[Schedule], Far]] = {
    "rows": Rows,
    "rows, what is refused set apart": lambda choose: Rows(choose, diverts=True),
    "topic": lambda choose: Topic(choose, 2, None),
    "topic by key": lambda choose: Topic(choose, 3, lambda payload: str(payload % 5)),
    "shared topic": lambda choose: Topic(choose, 2, None, is_shared=True),
    "shared topic by key": lambda choose: Topic(choose, 3, lambda payload: str(payload % 5), is_shared=True),
}


def run_once(far: Far, choose: Schedule, checkpoint: tuple[int, Any] | None) -> tuple[bool, tuple[int, Any] | None]:
    """A run from the beginning or a checkpoint; whether it was complete, and the newest checkpoint."""
    sink = far.sink()
    start = 0
    complete = False
    try:
        if checkpoint is not None:
            start = checkpoint[0]
            sink.resume_at(*checkpoint)
        sink.open()
        while start < LENGTH:
            end = min(start + 1 + choose(6), LENGTH)
            sink.write(range(start, end), Metas(METAS[start:end]), list(range(start, end)))
            start = end
            if choose(4) == 3:
                checkpoint = start, json.loads(json.dumps(sink.commit()))
                assert is_prefix(far), f"committed, with {far.parts()}"
            if choose(12) == 11:
                break  # the run is stopped here, or ends with an error of another
        else:
            sink.complete()
            complete = True
    except SinkError:
        pass
    finally:
        at_end, heals = far.parts(), far.heals
        far.heals = heals or complete  # what is lost behind the end is no fault of the run
        try:
            sink.close()
        except SinkError:
            complete = False
        far.heals = heals
    if complete:
        assert far.parts() == at_end
    return complete, checkpoint


def is_prefix(far: Far) -> bool:
    return all(part == share[: len(part)] for part, share in zip(far.parts(), far.shares(LENGTH), strict=True))


def check(far: Far, choose: Schedule) -> None:
    checkpoint: tuple[int, Any] | None = None
    has_gap = False
    for _ in range(1 + choose(RUNS_MAX)):
        complete, newest = run_once(far, choose, checkpoint if choose(2) else None)
        checkpoint = newest or checkpoint
        has_gap = not is_prefix(far)
        assert far.has_lost or not has_gap, f"a gap, though nothing was lost: {far.parts()}"
        assert not (isinstance(far, Rows) and has_gap), f"a gap behind what was lost: {far.parts()}"
        if complete:
            assert far.parts() == far.shares(LENGTH), f"complete, with {far.parts()}"
            break
    far.heals = True
    complete, _ = run_once(far, lambda count: min(count - 1, 2) if count == 6 else 0, None)
    if complete:
        assert far.parts() == far.shares(LENGTH), f"complete at the end, with {far.parts()}"
    else:
        assert has_gap, f"what a sink could continue is refused: {far.parts()}"


@pytest.mark.long
@pytest.mark.parametrize("model", MODELS)
@settings(max_examples=400)
@given(data=st.data())
def test_what_a_sink_has_is_the_output_or_the_run_says_what_is_wrong(model: str, data: st.DataObject) -> None:
    def choose(count: int) -> int:
        return data.draw(st.integers(0, count - 1)) if count > 1 else 0

    check(MODELS[model](choose), choose)


@pytest.mark.parametrize("is_shared", [False, True])
def test_what_a_topic_loses_behind_the_last_acknowledgement_is_missed_at_the_end(is_shared: bool) -> None:
    """The law draws it too, but few of its runs get there."""
    topic = Topic(lambda count: 0, 2, None, is_shared=is_shared)
    sink = topic.sink()
    sink.open()
    sink.write(range(LENGTH), Metas(METAS), list(range(LENGTH)))
    sink.commit()
    del topic.logs[0][LENGTH // 2 :]
    with pytest.raises(SinkError, match="has lost messages that it had acknowledged"):
        sink.complete()
    sink.close()


def test_what_a_shared_topic_has_lost_of_an_earlier_run_and_others_have_filled_up_is_missed() -> None:
    topic = Topic(lambda count: 0, 2, None, is_shared=True)
    first, second = topic.sink(), topic.sink()
    first.open()
    first.write(range(10), Metas(METAS[:10]), list(range(10)))
    first.close()
    second.open()
    topic.logs[0][5:] = [None] * 5
    second.write(range(LENGTH), Metas(METAS), list(range(LENGTH)))
    with pytest.raises(SinkError, match="had the item at position 9 at offset 9, and has not now: the topic has lost"):
        second.complete()
    second.close()


def test_a_first_message_where_others_were_lost_is_found_by_a_run_that_resumes() -> None:
    topic = Topic(lambda count: 0, 2, None, is_shared=True)
    topic.logs[0] += [None] * 5
    first = topic.sink()
    first.open()
    committed = json.loads(json.dumps(first.commit()))
    first.close()
    del topic.logs[0][:]
    second, third = topic.sink(), topic.sink()
    for sink in (second, third):
        sink.resume_at(0, committed)
        sink.open()
        sink.write(range(LENGTH), Metas(METAS), list(range(LENGTH)))
        sink.complete()
        sink.close()
    assert topic.parts() == topic.shares(LENGTH)


def retained(folder: str) -> list[tuple[int, int, int]]:
    """Of each retained checkpoint the number, the output's position, and the last that the sink had, -1 for none."""
    found = [(each.number, each.output.position, each.sinks["o"]["lasts"][0]) for each in known(folder)]
    return [(number, position, -1 if last is None else last[0]) for number, position, last in found]


def run_of_graph(far: Far, checkpoints: drift.Checkpoints, stops_at: int) -> tuple[bool, int]:
    """A run with state up to a position; whether it is complete, and from where it resumed."""
    graph = drift.Graph("older")
    graph.source("s").sink("o")
    run = drift.run(graph, {"s": range(LENGTH)}, sinks={"o": far.sink()}, state=checkpoints, batch_items=2)
    begins = 0 if run.resumed_from is None else run.resumed_from.output.position
    with run:
        for item in run:
            if item.position == stops_at:
                return False, begins
    return True, begins


@pytest.mark.long
@settings(max_examples=60)
@given(
    keep=st.integers(1, 4),
    runs=st.lists(st.tuples(st.integers(0, LENGTH), st.integers(0, LENGTH), st.integers(0, 4)), min_size=2, max_size=4),
)
def test_a_run_resumes_from_the_newest_checkpoint_that_a_sink_which_came_back_older_can_continue(
    keep: int, runs: list[tuple[int, int, int]]
) -> None:
    """Each run ends at a position; then the sink comes back with so many items less, and a checkpoint is named or not.
    Which ones there are depends on how long they take to be written, so it is looked up."""
    with tempfile.TemporaryDirectory() as folder:
        far, named, known = Rows(lambda count: 0), None, list[tuple[int, int, int]]()
        for stops_at, lost, back in runs:
            checkpoints = drift.Checkpoints(folder, every_s=0, every_items=1, keep=keep, from_checkpoint=named)
            end = -1 if far.last is None else far.last.position
            fitting = [at for number, at, last in known if last <= end and (named is None or number <= named)]
            before = list(far.stored)
            try:
                complete, begins = run_of_graph(far, checkpoints, stops_at)
            except SinkBehind:
                assert known and not fitting and far.stored == before
                return
            assert begins == (fitting[-1] if fitting else 0) and (fitting or not known)
            assert is_prefix(far) and (not complete or far.parts() == far.shares(LENGTH))
            known = retained(folder)
            named = known[-back][0] if 0 < back <= len(known) else None
            del far.stored[max(len(far.stored) - lost, 0) :]
