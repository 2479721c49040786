"""When cuts are taken: by what they cost, and by how long link logs are."""

from __future__ import annotations

from drift.machines.nodes.cutting import FIRST_S, INTERVAL_S, LOG_BYTES_MAX, PRICE, CutPace


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
