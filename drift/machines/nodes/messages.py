"""What the nodes of a run say to each other.

Invariant: a message is a value: whoever carries it may carry it as it is, as bytes, late, or in another order than it
was sent in; only the acks of one sender that carry heartbeats keep their order.

Why: batches and acks are counted, and so come in any order. Minimal time never goes back, so of two notices the greater
counts. A heartbeat must not overtake the ack of the items before it, so the two travel together, and in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from drift.machines.worker import Part
from drift_barrier.barrier import Released
from drift_barrier.digest import Encoded


class Batch(msgspec.Struct, array_like=True):
    """Items for a worker or the barrier, tracked by the acker at `granule`."""

    granule: bytes
    checksum: int
    parts: list[Part]


class AckMessage(msgspec.Struct, array_like=True):
    """One atomic ack; see `drift_acker.table.Ack`.

    Attributes:
        items: of the input, fed with it.
        tombstones: made since the last ack of this process.
    """

    cells: list[tuple[bytes, int]]
    heartbeats: list[tuple[int, bytes]]
    items: int = 0
    tombstones: int = 0
    waiting: Sequence[tuple[bytes, int]] = ()


class MinimalTime(msgspec.Struct, array_like=True):
    """Where the acker's table stands.

    Attributes:
        time: minimal time.
        in_flight: the least granule with a message in flight; END_OF_TIME where there is none.
        held_by: rank of the source that holds minimal time, or -1 where a message does.
        batches: that the calling process had fed, of all that the table knew of.
        heartbeat: the least of all sources: no item of the input comes below it any more.
        tombstones: that all workers have told of so far.
    """

    time: bytes
    in_flight: bytes
    held_by: int
    batches: int = 0
    heartbeat: bytes = b""
    tombstones: int = 0


class ReleasedMessage(msgspec.Struct, array_like=True):
    """A piece of the output; `encoded` has it as bytes, where they are at hand: on arrival as one, over the blocks."""

    released: Released
    minimal_time: bytes
    encoded: Sequence[Encoded] = ()


class Finished(msgspec.Struct, array_like=True):
    """Everything is released that will be; the digest is of all of it."""

    digest: str
    blocks: list[bytes]


class Pace(msgspec.Struct, array_like=True):
    """How many items may be fed at once; see `drift.machines.nodes.pacing`."""

    items: int


class BreakOff(msgspec.Struct, array_like=True):
    """The run ends at a minimal time before the end: the barrier releases to there, and answers with `Finished`."""

    time: bytes


class Done(msgspec.Struct, array_like=True):
    """A worker that feeds itself has ended; or all are to end, where one has failed."""

    worker: int
    failed: bool


Message = Batch | AckMessage | MinimalTime | ReleasedMessage | Finished | Pace | Done | BreakOff


class Oversized(Exception):
    """A message that is longer than whoever carries it can carry.

    Attributes:
        advice: what to do where it is one item.
    """

    advice = "keep such data in a file or a store and send where it is, or use engine='local'"
