"""When checkpoints are taken: by what they cost, and by how long link logs are."""

from __future__ import annotations

import pytest

from drift.machines.nodes.checkpointing import (
    FIRST_S,
    INTERVAL_S,
    LOG_BYTES_MAX,
    PRICE,
    PRICE_LIVE,
    PRICE_WITH_TIME,
    TRIES_MAX,
    CheckpointPace,
)
from drift.machines.nodes.messages import CheckpointReply
from drift.machines.nodes.rewind_log import RewindLog
from drift.machines.nodes.snapshots import InMemory, SnapshotName
from drift.machines.worker import BARRIER
from drift_graph.errors import ProcessError
from drift_graph.item import Columns
from drift_graph.metas import Metas


def test_a_short_run_has_no_checkpoint_and_the_first_is_not_before_its_time() -> None:
    pace = CheckpointPace()
    assert not pace.is_due(100.0, 0, 0)
    assert not pace.is_due(100.0 + 0.99 * FIRST_S, 0, 0)
    assert pace.is_due(100.0 + FIRST_S, 0, 0)


def test_the_next_checkpoint_waits_by_what_the_last_one_cost() -> None:
    pace = CheckpointPace()
    pace.is_due(0.0, 0, 0)
    pace.begun(1.0, 0)
    pace.taken(1.01, 0.0, 0)
    assert not pace.is_due(1.0 + 0.99 * INTERVAL_S, 0, 0) and pace.is_due(1.0 + INTERVAL_S, 0, 0)
    pace.begun(2.0, 0)
    pace.taken(2.1, 0.05, 0)
    assert not pace.is_due(2.1 + 0.99 * PRICE * 0.05, 0, 0) and pace.is_due(2.1 + PRICE * 0.05, 0, 0)


@pytest.mark.parametrize("price", [PRICE_WITH_TIME, PRICE_LIVE])
def test_where_users_wait_for_output_checkpoints_come_at_a_lower_price(price: float) -> None:
    pace = CheckpointPace()
    pace.is_due(0.0, 0, 0)
    pace.begun(1.0, 0)
    pace.taken(1.0, 0.05, 0)
    due_s = 1.0 + price * 0.05
    assert not pace.is_due(0.99 * due_s, 0, 0, price) and pace.is_due(due_s, 0, 0, price)
    assert not pace.is_due(due_s, 0, 0)


def test_behind_a_rush_the_next_checkpoint_waits_only_for_what_has_been_fed_since() -> None:
    pace = CheckpointPace()
    pace.is_due(0.0, 0, 0)
    pace.begun(1.0, 1_000_000)
    pace.taken(1.0, 0.05, 0)  # for a million bytes: at that pace the next would be due at 6.0
    assert not pace.is_due(2.0, 0, 1_000_000)
    assert not pace.is_due(1.49, 0, 100_000) and pace.is_due(1.5, 0, 100_000)


def test_long_logs_have_a_checkpoint_taken_for_them_and_no_other_before_they_have_doubled() -> None:
    pace = CheckpointPace()
    pace.is_due(0.0, 0, 0)
    assert pace.is_due(0.1, LOG_BYTES_MAX + 1, 0)
    pace.begun(0.1, 0)
    pace.taken(0.2, 1.0, LOG_BYTES_MAX)  # most of it is above the checkpoint
    assert not pace.is_due(0.3, 2 * LOG_BYTES_MAX, 0) and pace.is_due(0.3, 2 * LOG_BYTES_MAX + 1, 0)
    pace.begun(0.3, 0)
    pace.taken(0.4, 1.0, 0)
    assert not pace.is_due(0.5, LOG_BYTES_MAX, 0) and pace.is_due(0.5, LOG_BYTES_MAX + 1, 0)


def test_an_interval_that_was_asked_for_holds_whatever_checkpoints_cost() -> None:
    pace = CheckpointPace(2.0)
    assert pace.is_due(0.0, 0, 0)
    pace.begun(0.0, 0)
    pace.taken(0.1, 1.0, 0)
    assert not pace.is_due(1.9, 0, 0) and pace.is_due(2.0, 0, 0)


CHECKPOINT = b"\x80" + bytes(7) + b"\x01"


def tried(log: RewindLog, now_s: float, no_room: str) -> None:
    """A checkpoint is due, and comes to nothing unless there is room."""
    order, snapshots = log.take(now_s, CHECKPOINT), None if no_room else [SnapshotName(CHECKPOINT, b"snapshot", 1)]
    assert order is not None
    log.note_reply(CheckpointReply(order.number, BARRIER, CHECKPOINT, []), now_s)
    log.note_reply(CheckpointReply(order.number, 0, CHECKPOINT, snapshots, no_room=no_room), now_s)


def test_where_there_is_no_room_long_logs_are_full_until_there_is_or_the_run_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("drift.machines.nodes.rewind_log.LOG_BYTES_FULL", 99)
    log = RewindLog(lambda carried: pytest.fail("nobody reads"), 1, InMemory(()), CheckpointPace(1e9))
    logged = log.links.log(0, [("numbers", Columns(Metas([CHECKPOINT]), [1], None))])
    logged.content = bytes(99)
    tried(log, 0.0, "the disk is full")
    assert not log.is_full(CHECKPOINT) and log.take(1.0, CHECKPOINT) is None
    logged = log.links.log(0, [("numbers", Columns(Metas([CHECKPOINT]), [1], None))])
    logged.content = bytes(1)
    assert log.is_full(CHECKPOINT)
    assert not log.is_full(log.since), "what is not settled is in no checkpoint"
    assert log.take(0.9 * INTERVAL_S, CHECKPOINT) is None
    log.prepare_handover(replaces=True)
    assert log.hand_over() is None and log.awaits_checkpoint(CHECKPOINT)
    assert log.take(0.9 * INTERVAL_S, CHECKPOINT) is None, "who asks for a checkpoint waits as well"
    now_s = INTERVAL_S
    for _ in range(TRIES_MAX - 1):
        tried(log, now_s, "the disk is full")
        now_s += INTERVAL_S
    with pytest.raises(ProcessError, match=f"could be stored: the disk is full; .*no room {TRIES_MAX} times"):
        tried(log, now_s, "the disk is full")
    tried(log, now_s + INTERVAL_S, "")
    assert not log.is_full(CHECKPOINT + b"\x01")
