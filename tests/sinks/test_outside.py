"""Law: what a sink has written is a prefix of the output, without gaps or doubles, or the run has said what is wrong.

The real sinks' logic on models of their servers (`outside`): they acknowledge late and out of order, lose what they had
acknowledged, come back older, refuse an item, and connections break before and behind a commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outside import Far, Rows, Schedule, Topic

from drift import SinkError
from drift_graph.meta import global_time

LENGTH = 24
RUNS_MAX = 5
METAS = [global_time(n, 0, 0, 0) for n in range(LENGTH)]
MODELS: dict[str, Callable[[Schedule], Far]] = {
    "rows": Rows,
    "topic": lambda choose: Topic(choose, 2, None),
    "topic by key": lambda choose: Topic(choose, 3, lambda payload: str(payload % 5)),
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
            sink.write(range(start, end), METAS[start:end], list(range(start, end)))
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
        at_end = far.parts()
        try:
            sink.close()
        except SinkError:
            complete = False
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


@pytest.mark.parametrize("model", MODELS)
@settings(max_examples=400)
@given(data=st.data())
def test_what_a_sink_has_is_the_output_or_the_run_says_what_is_wrong(model: str, data: st.DataObject) -> None:
    def choose(count: int) -> int:
        return data.draw(st.integers(0, count - 1)) if count > 1 else 0

    check(MODELS[model](choose), choose)
