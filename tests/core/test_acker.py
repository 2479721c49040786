"""Minimal time: ledgers and the table of acks, against a model that is too simple to be wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import drift
from drift_acker.ledger import Ledger, ack_of
from drift_acker.table import Ack, AckTable
from drift_graph.meta import BEGINNING, END_OF_TIME


def test_checksums_of_all_senders_differ_and_are_not_zero() -> None:
    ledgers = [Ledger(sender) for sender in (0, 1, 255, 256, 65535)]
    checksums = [ledger.checksum() for ledger in ledgers for _ in range(2000)]
    assert len(set(checksums)) == len(checksums) and all(0 < checksum < 2**64 for checksum in checksums)


def test_an_ack_is_one_for_what_came_and_what_went() -> None:
    ack = ack_of([(b"b", 5), (b"a", 3)], [(b"b", 6), (b"b", 8)], [(0, b"c")])
    assert ack == Ack([(b"a", 3), (b"b", 5 ^ 6 ^ 8)], [(0, b"c")])


@given(st.data())
def test_minimal_time_is_the_least_of_what_is_in_flight_and_of_heartbeats(data: st.DataObject) -> None:
    """Messages are sent and consumed at random, and every ack comes at once: then nothing else may hold it back."""
    table, ledger = AckTable([0, 1]), Ledger(0)
    heartbeats = {0: 0, 1: 0}
    in_flight: list[tuple[bytes, int]] = []
    for _ in range(data.draw(st.integers(0, 12))):
        before = table.minimal_time
        if in_flight and data.draw(st.booleans()):
            message = in_flight.pop(data.draw(st.integers(0, len(in_flight) - 1)))
            later = [message[0][0] + data.draw(st.integers(0, 3)) for _ in range(data.draw(st.integers(0, 2)))]
            sent = [(bytes((time,)), ledger.checksum()) for time in later]
            moved = table.handle(ack_of([message], sent))
        else:
            rank = data.draw(st.integers(0, 1))
            sent = [(bytes((heartbeats[rank] + 1,)), ledger.checksum())]
            heartbeats[rank] += data.draw(st.integers(1, 3))
            moved = table.handle(ack_of((), sent, [(rank, bytes((heartbeats[rank],)))]))
        in_flight += sent
        least = min([granule for granule, _ in in_flight] + [bytes((beat,)) for beat in heartbeats.values() if beat])
        if 0 in heartbeats.values():
            least = BEGINNING
        assert table.minimal_time == max(before, least)
        assert moved == (table.minimal_time if table.minimal_time > before else None)
        assert table.in_flight == len({granule for granule, _ in in_flight})


def test_an_ack_below_minimal_time_and_a_heartbeat_that_goes_back_are_bugs() -> None:
    table = AckTable([0])
    assert table.handle(Ack((), [(0, b"\x05")])) == b"\x05"
    assert table.held_by() == 0
    with pytest.raises(drift.DriftBug, match="below minimal time"):
        table.handle(Ack([(b"\x04", 1)]))
    with pytest.raises(drift.DriftBug, match="decreased"):
        table.handle(Ack((), [(0, b"\x04")]))
    table.handle(Ack([(b"\x06", 1)], [(0, END_OF_TIME)]))
    assert (table.minimal_time, table.quiet, table.held_by()) == (b"\x06", False, None)
    assert table.handle(Ack([(b"\x06", 1)])) == END_OF_TIME and table.quiet
