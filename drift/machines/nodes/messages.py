"""The messages between the nodes of a run.

Invariant: a message is a value: it may be carried as an object or as bytes, late, or out of order; only the acks of one
sender that carry heartbeats keep their order.

Why: batches and acks are counted, so they may come in any order. Minimal time never decreases, so of two notices the
greater counts. A heartbeat must not overtake the ack of the items before it, so both are in one message, and in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from drift.machines.nodes.snapshots import SnapshotName
from drift.machines.worker import Part
from drift_acker.table import Entry
from drift_barrier.barrier import Released
from drift_barrier.digest import Encoded, Opened


class Batch(msgspec.Struct, array_like=True):
    """Items for a worker or the barrier, for targets of one level, tracked by the acker at `granule`."""

    granule: bytes
    checksum: int
    parts: list[Part]
    level: int = 0


class AckMessage(msgspec.Struct, array_like=True):
    """One atomic ack; see `drift_acker.table.Ack`.

    Attributes:
        items: input items that are fed with it.
        tombstones: those that the process has made since its last ack.
        mapped_items, mapped_s: input items that the worker has mapped, and how long that took, since its last ack.
    """

    cells: list[Entry]
    heartbeats: list[tuple[int, bytes]]
    items: int = 0
    tombstones: int = 0
    waiting: Sequence[Entry] = ()
    mapped_items: int = 0
    mapped_s: float = 0.0


class MinimalTime(msgspec.Struct, array_like=True):
    """The acker's notice of minimal time.

    Attributes:
        time: minimal time.
        in_flight: the least granule with a message in flight; END_OF_TIME if there is none.
        held_by: rank of the source that holds minimal time, or -1 if a message does.
        batches: how many batches of the calling process the acker knew of.
        frontiers: by level; minimal time is the last. None: all are minimal time.
        tombstones: how many all workers have reported so far.
        mapped_items, mapped_s: input items that all workers have mapped, and how long that took them together.
        checkpoint: the number of a checkpoint to take at exactly this time, or 0.
        number: greater in later notices.
    """

    time: bytes
    in_flight: bytes
    held_by: int
    batches: int = 0
    frontiers: tuple[bytes, ...] = ()
    tombstones: int = 0
    checkpoint: int = 0
    mapped_items: int = 0
    mapped_s: float = 0.0
    number: int = 0


class TakeCheckpoint(msgspec.Struct, array_like=True):
    """Order to the acker: take a checkpoint at the present minimal time, and name it in a notice."""

    number: int


class CheckpointReply(msgspec.Struct, array_like=True):
    """The reply of a worker or the barrier to a notice that names a checkpoint; the barrier has sent all output below
    the checkpoint.

    Attributes:
        checkpoint: the minimal time of the notice.
        snapshots: the worker's snapshots, of this checkpoint and of earlier ones that may not be committed; None if it
            has none of this checkpoint, which then cannot be committed.
        error: why there will never be a snapshot: a state cannot be pickled.
        no_room: why there is no snapshot now.
        tried_s: the seconds that the failed attempt took.
    """

    number: int
    sender: int
    checkpoint: bytes
    snapshots: list[SnapshotName] | None
    error: str = ""
    no_room: str = ""
    tried_s: float = 0.0


class SnapshotPart(msgspec.Struct, array_like=True):
    """The next part of a snapshot that the calling process, on another machine, is to store: sent by a shell before the
    reply that names the snapshot.

    Attributes:
        begin: where in the snapshot the part begins.
        is_last: it ends the snapshot.
    """

    name: bytes
    begin: int
    data: bytes
    is_last: bool


class Committed(msgspec.Struct, array_like=True):
    """A checkpoint is committed: no process will restart below it.

    Attributes:
        restarts: whether processes may still be restarted; if not, nothing more is logged for them.
    """

    checkpoint: bytes
    restarts: bool = True


class ReleasedMessage(msgspec.Struct, array_like=True):
    """A batch of the output.

    Attributes:
        encoded: the items as the bytes that went into the digest, in parts of a block at most.
        minimal_time: all output below it is in this batch and those before.
        first_block, blocks: number of the first of the digest's blocks that became full with this batch, and their
            hashes.
    """

    released: Released
    minimal_time: bytes
    encoded: Sequence[Encoded] = ()
    first_block: int = 0
    blocks: Sequence[bytes] = ()


class Finished(msgspec.Struct, array_like=True):
    """All output is released; the digest is of all of it."""

    digest: str
    blocks: list[bytes]


class Pace(msgspec.Struct, array_like=True):
    """How many items may be fed at once; see `drift.machines.nodes.pacing`."""

    items: int


class BreakOff(msgspec.Struct, array_like=True):
    """Order to the barrier: release all output below this minimal time, at which the run ends early; it answers with
    `Finished`.
    """

    time: bytes


class Done(msgspec.Struct, array_like=True):
    """A worker that feeds itself has failed, so all are to end."""

    worker: int


class Halt(msgspec.Struct, array_like=True):
    """Order: a process of the run has died; take no turns until `Go`."""

    generation: int


class Restart(msgspec.Struct, array_like=True):
    """The state that a replaced barrier resumes from, made from the output that the calling process received.

    Attributes:
        position: of the next item.
        last: the meta of the last item.
        blocks: hashes of the digest's full blocks.
        opened: the items of the block that is not full.
    """

    position: int
    last: bytes
    blocks: list[bytes]
    opened: Opened


class Rewind(msgspec.Struct, array_like=True):
    """Order: rewind to a checkpoint.

    Attributes:
        generation: the generation that begins with it.
        checkpoint: a minimal time that was reached; survivors forget what is at or above it.
        since: the committed checkpoint, from which replaced processes start, and minimal time as well.
        replaced: the roles that are replaced: workers, the barrier.
        restart: for a replaced barrier, its state.
        snapshots: for a replaced worker, the names of its snapshots up to the committed checkpoint.
        watched: whether to log calls of users' functions until minimal time passes the checkpoint, since earlier
            recoveries ended at it.
        refused: calls that are not made again because they ended their processes: their identities, and why.
    """

    generation: int
    checkpoint: bytes
    since: bytes
    replaced: list[int]
    restart: Restart | None = None
    snapshots: Sequence[bytes] = ()
    watched: bool = False
    refused: dict[bytes, str] = {}


class Go(msgspec.Struct, array_like=True):
    """Order: all have rewound; send, and take turns again."""

    generation: int


class Halted(msgspec.Struct, array_like=True, tag=True):
    """The answer to `Halt`.

    Attributes:
        minimal_time: the greatest that the process knows.
        position: of the barrier's next item; those before were sent to the calling process.
        finished: whether the barrier has sent its last message.
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
    | TakeCheckpoint
    | CheckpointReply
    | SnapshotPart
    | Committed
)


class Oversized(Exception):
    """A message is longer than the transport can carry.

    Attributes:
        advice: what to do if the message is a single item.
    """

    advice = "keep such data in a file or a store and send where it is, or use engine='local'"
