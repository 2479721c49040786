"""When cuts are taken: by what they cost, and by how long link logs are."""

from __future__ import annotations

import pytest

from drift.machines.nodes.cutting import FIRST_S, INTERVAL_S, LOG_BYTES_MAX, PRICE, TRIES_MAX, CutPace
from drift.machines.nodes.keeping import Keeping
from drift.machines.nodes.messages import CutPiece
from drift.machines.nodes.pieces import InMemory, PieceName
from drift.machines.worker import BARRIER
from drift_graph.errors import ProcessError
from drift_graph.item import Columns


def test_a_short_run_has_no_cut_and_the_first_is_not_before_its_time() -> None:
    pace = CutPace()
    assert not pace.is_due(100.0, 0, 0)
    assert not pace.is_due(100.0 + 0.99 * FIRST_S, 0, 0)
    assert pace.is_due(100.0 + FIRST_S, 0, 0)


def test_the_next_cut_waits_by_what_the_last_one_cost() -> None:
    pace = CutPace()
    pace.is_due(0.0, 0, 0)
    pace.begun(1.0, 0)
    pace.taken(1.01, 0.0, 0)
    assert not pace.is_due(1.0 + 0.99 * INTERVAL_S, 0, 0) and pace.is_due(1.0 + INTERVAL_S, 0, 0)
    pace.begun(2.0, 0)
    pace.taken(2.1, 0.05, 0)
    assert not pace.is_due(2.1 + 0.99 * PRICE * 0.05, 0, 0) and pace.is_due(2.1 + PRICE * 0.05, 0, 0)


def test_behind_a_rush_the_next_cut_waits_only_for_what_has_been_fed_since() -> None:
    pace = CutPace()
    pace.is_due(0.0, 0, 0)
    pace.begun(1.0, 1_000_000)
    pace.taken(1.0, 0.05, 0)  # for a million bytes: at that pace the next would be due at 6.0
    assert not pace.is_due(2.0, 0, 1_000_000)
    assert not pace.is_due(1.49, 0, 100_000) and pace.is_due(1.5, 0, 100_000)


def test_long_logs_have_a_cut_taken_for_them_and_no_other_before_they_have_doubled() -> None:
    pace = CutPace()
    pace.is_due(0.0, 0, 0)
    assert pace.is_due(0.1, LOG_BYTES_MAX + 1, 0)
    pace.begun(0.1, 0)
    pace.taken(0.2, 1.0, LOG_BYTES_MAX)  # most of it is above the cut
    assert not pace.is_due(0.3, 2 * LOG_BYTES_MAX, 0) and pace.is_due(0.3, 2 * LOG_BYTES_MAX + 1, 0)
    pace.begun(0.3, 0)
    pace.taken(0.4, 1.0, 0)
    assert not pace.is_due(0.5, LOG_BYTES_MAX, 0) and pace.is_due(0.5, LOG_BYTES_MAX + 1, 0)


def test_an_interval_that_was_asked_for_holds_whatever_cuts_cost() -> None:
    pace = CutPace(2.0)
    assert pace.is_due(0.0, 0, 0)
    pace.begun(0.0, 0)
    pace.taken(0.1, 1.0, 0)
    assert not pace.is_due(1.9, 0, 0) and pace.is_due(2.0, 0, 0)


CUT = b"\x80" + bytes(7) + b"\x01"


def tried(keeping: Keeping, now_s: float, no_room: str) -> None:
    """A cut is due, and comes to nothing unless there is room."""
    order, pieces = keeping.take(now_s, CUT), None if no_room else [PieceName(CUT, b"piece", 1)]
    assert order is not None
    keeping.note_piece(CutPiece(order.number, BARRIER, CUT, []), now_s)
    keeping.note_piece(CutPiece(order.number, 0, CUT, pieces, no_room=no_room), now_s)


def test_where_there_is_no_room_long_logs_are_full_until_there_is_or_the_run_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("drift.machines.nodes.keeping.LOG_BYTES_FULL", 99)
    keeping = Keeping(lambda carried: pytest.fail("nobody reads"), 1, InMemory(()), CutPace(1e9))
    kept = keeping.links.keep(0, [("numbers", Columns([CUT], [1], None))])
    kept.content = bytes(99)
    tried(keeping, 0.0, "the disk is full")
    assert not keeping.is_full(CUT) and keeping.take(1.0, CUT) is None
    kept = keeping.links.keep(0, [("numbers", Columns([CUT], [1], None))])
    kept.content = bytes(1)
    assert keeping.is_full(CUT)
    assert not keeping.is_full(keeping.since), "what is not settled is in no cut"
    assert keeping.take(0.9 * INTERVAL_S, CUT) is None
    keeping.keep_for_others(replaces=True)
    assert keeping.hand_over() is None and keeping.awaits_cut(CUT)
    assert keeping.take(0.9 * INTERVAL_S, CUT) is None, "who asks for a cut waits as well"
    now_s = INTERVAL_S
    for _ in range(TRIES_MAX - 1):
        tried(keeping, now_s, "the disk is full")
        now_s += INTERVAL_S
    with pytest.raises(ProcessError, match=f"could be kept: the disk is full; .*no room again {TRIES_MAX} times"):
        tried(keeping, now_s, "the disk is full")
    tried(keeping, now_s + INTERVAL_S, "")
    assert not keeping.is_full(CUT + b"\x01")
