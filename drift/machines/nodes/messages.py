"""The messages between the nodes of a run.

Invariant: a message is a value: it may be carried as an object or as bytes, late, or out of order; only the acks of one
sender that carry heartbeats keep their order.

Why: batches and acks are counted, and so may come in any order. Minimal time never goes back, so of two notices the
greater counts. A heartbeat must not overtake the ack of the items before it, so the two travel together, and in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from drift.machines.nodes.pieces import PieceName
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
        cut: the number of a cut that is to be taken at this very time, or 0.
    """

    time: bytes
    in_flight: bytes
    held_by: int
    batches: int = 0
    heartbeat: bytes = b""
    tombstones: int = 0
    cut: int = 0


class TakeCut(msgspec.Struct, array_like=True):
    """A cut is to be taken, where minimal time stands now: the acker says where that is."""

    number: int


class CutPiece(msgspec.Struct, array_like=True):
    """What a worker has for a cut; of the barrier, that it has sent all that is below.

    Attributes:
        cut: where minimal time stood.
        pieces: of this cut, and of those before that were not committed as far as the worker knows; None where there is
            none, and the cut cannot be committed.
        error: why there will never be one: a state that cannot be pickled.
        no_room: why there is none now.
        tried_s: what it took to find that out.
    """

    number: int
    sender: int
    cut: bytes
    pieces: list[PieceName] | None
    error: str = ""
    no_room: str = ""
    tried_s: float = 0.0


class Committed(msgspec.Struct, array_like=True):
    """A cut is committed: nobody begins anew below it.

    Attributes:
        keeps: others may still begin anew; else nothing more is kept for them.
    """

    cut: bytes
    keeps: bool = True


class ReleasedMessage(msgspec.Struct, array_like=True):
    """A piece of the output; `encoded` has it as bytes, where they are at hand: on arrival as one, over the blocks.

    Attributes:
        minimal_time: all output below it is in this piece and those before.
        first_block, blocks: number of the first of the digest's blocks that became full with this piece or with those
            that were released together with it, and their hashes.
        carried: the message as it was carried, to be opened again by who keeps it.
    """

    released: Released
    minimal_time: bytes
    encoded: Sequence[Encoded] = ()
    first_block: int = 0
    blocks: Sequence[bytes] = ()
    carried: bytes = b""


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
    """A worker that feeds itself has failed, and all are to end."""

    worker: int


class Halt(msgspec.Struct, array_like=True):
    """A process of the run has died: take no more turns until you are told to go on."""

    generation: int


class Restart(msgspec.Struct, array_like=True):
    """What a barrier that is begun anew goes on from: what the calling process has received.

    Attributes:
        position: of the next item.
        last: the meta of the last.
        blocks: hashes of the digest's full blocks.
        opened: of the block that is not full, what was released before this run went on.
        metas, payloads: of that block, what came after it.
    """

    position: int
    last: bytes
    blocks: list[bytes]
    opened: list[Encoded]
    metas: list[bytes]
    payloads: list[Any]


class Rewind(msgspec.Struct, array_like=True):
    """Go back to a cut.

    Attributes:
        generation: that begins with it.
        cut: a minimal time that was reached; survivors forget what is at or above it.
        since: from where those in `replaced` begin anew; minimal time is counted from here.
        replaced: workers, and the barrier, that begin anew.
        restart: for the barrier, where it is one of them.
        pieces: names of those of the committed cut, for a worker that is one of them.
        watched: the last tries ended at this cut: calls of users' functions are written down until minimal time passes.
        refused: identities of calls that have ended their processes and are not made again, and why.
    """

    generation: int
    cut: bytes
    since: bytes
    replaced: list[int]
    restart: Restart | None = None
    pieces: Sequence[bytes] = ()
    watched: bool = False
    refused: dict[bytes, str] = {}


class Go(msgspec.Struct, array_like=True):
    """All have gone back: send, and take turns."""

    generation: int


class Halted(msgspec.Struct, array_like=True, tag=True):
    """The answer to `Halt`.

    Attributes:
        minimal_time: the greatest it has heard of.
        position: barrier: of the next item; what is before was sent to the calling process.
        finished: barrier: it has sent its last message.
    """

    generation: int
    minimal_time: bytes
    position: int = 0
    finished: bool = False


class Rewound(msgspec.Struct, array_like=True, tag=True):
    """The answer to `Rewind`."""

    generation: int


Order = Halt | Rewind | Go
Answer = Halted | Rewound

Message = (
    Batch
    | AckMessage
    | MinimalTime
    | ReleasedMessage
    | Finished
    | Pace
    | Done
    | BreakOff
    | TakeCut
    | CutPiece
    | Committed
)


class Oversized(Exception):
    """A message that is longer than whoever carries it can carry.

    Attributes:
        advice: what to do where it is one item.
    """

    advice = "keep such data in a file or a store and send where it is, or use engine='local'"
