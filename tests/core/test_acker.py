"""Minimal time: ledgers and the table of acks, against a model that is too simple to be wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import drift
from drift_acker.ledger import Ledger, ack_of
from drift_acker.table import Ack, AckTable, Entry
from drift_graph.meta import BEGINNING, END_OF_TIME


def test_checksums_of_all_senders_differ_and_are_not_zero() -> None:
    ledgers = [Ledger(sender) for sender in (0, 1, 255, 256, 65535)]
    checksums = [ledger.checksum() for ledger in ledgers for _ in range(2000)]
    assert len(set(checksums)) == len(checksums) and all(0 < checksum < 2**64 for checksum in checksums)


def test_an_ack_is_one_for_what_came_and_what_went() -> None:
    ack = ack_of([(b"b", 5, 0), (b"a", 3, 0)], [(b"b", 6, 0), (b"b", 8, 0), (b"b", 9, 1)], [(0, b"c")])
    assert ack == Ack([(b"a", 3, 0), (b"b", 5 ^ 6 ^ 8, 0), (b"b", 9, 1)], [(0, b"c")])


@given(st.data())
def test_a_frontier_is_the_least_of_what_is_in_flight_or_waits_up_to_its_level_and_of_heartbeats(
    data: st.DataObject,
) -> None:
    """Messages are sent and consumed at random, and every ack comes at once: then nothing else may hold it back."""
    levels = data.draw(st.integers(1, 3))
    table, ledger = AckTable([0, 1], levels=levels), Ledger(0)
    heartbeats = {0: 0, 1: 0}
    in_flight, waiting = list[Entry](), list[Entry]()
    for _ in range(data.draw(st.integers(0, 12))):
        before = table.frontiers
        there = in_flight + waiting
        if there and data.draw(st.booleans()):
            entry = there[data.draw(st.integers(0, len(there) - 1))]
            consumed, ceased = ([entry], []) if entry in in_flight else ([], [entry])
            caused = [
                (
                    bytes((entry[0][0] + data.draw(st.integers(0, 3)),)),
                    ledger.checksum(),
                    data.draw(st.integers(entry[2], levels - 1)),
                )
                for _ in range(data.draw(st.integers(0, 2)))
            ]
            sent, begun = caused[:1], caused[1:]
            moved = table.handle(ack_of(consumed, sent, (), ceased + begun))
            in_flight = [each for each in in_flight if each != entry]
            waiting = [each for each in waiting if each != entry] + begun
        else:
            rank = data.draw(st.integers(0, 1))
            sent = [(bytes((heartbeats[rank] + 1,)), ledger.checksum(), data.draw(st.integers(0, levels - 1)))]
            heartbeats[rank] += data.draw(st.integers(1, 3))
            moved = table.handle(ack_of((), sent, [(rank, bytes((heartbeats[rank],)))]))
        in_flight += sent
        beats = [bytes((beat,)) if beat else BEGINNING for beat in heartbeats.values()]
        for level in range(levels):
            held = [granule for granule, _, of in in_flight + waiting if of <= level]
            assert table.frontiers[level] == max(before[level], min(beats + held))
        assert moved == (table.minimal_time if table.minimal_time > before[-1] else None)
        assert table.least_in_flight == min((granule for granule, *_ in in_flight), default=END_OF_TIME)
        cells = [{(granule, level) for granule, _, level in each} for each in (in_flight, waiting)]
        assert table.in_flight == sum(map(len, cells))


def test_an_ack_below_minimal_time_and_a_heartbeat_that_goes_back_are_bugs() -> None:
    table = AckTable([0])
    assert table.handle(Ack((), [(0, b"\x05")])) == b"\x05"
    assert table.held_by() == 0
    with pytest.raises(drift.DriftBug, match="below 05, the frontier of level 0 of 1"):
        table.handle(Ack([(b"\x04", 1, 0)]))
    with pytest.raises(drift.DriftBug, match="decreased"):
        table.handle(Ack((), [(0, b"\x04")]))
    table.handle(Ack([(b"\x06", 1, 0)], [(0, END_OF_TIME)]))
    assert (table.minimal_time, table.quiet, table.held_by()) == (b"\x06", False, None)
    assert table.handle(Ack([(b"\x06", 1, 0)])) == END_OF_TIME and table.quiet


def test_an_ack_below_the_frontier_of_its_level_is_a_bug_though_it_is_above_minimal_time() -> None:
    table = AckTable([0], levels=2)
    table.handle(Ack([(b"\x05", 1, 1)], [(0, b"\x07")]))
    assert table.frontiers == (b"\x07", b"\x05") and table.minimal_time == b"\x05"
    with pytest.raises(drift.DriftBug, match="below 07, the frontier of level 0 of 2"):
        table.handle(Ack([(b"\x06", 2, 0)]))
    assert table.handle(Ack([(b"\x06", 2, 1), (b"\x05", 1, 1)])) == b"\x06"
