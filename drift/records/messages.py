"""The messages of a run to the process that writes its record, over a pipe: frames of MessagePack.

Invariant: any prefix of frames is a consistent record: an item is sent before everything that it causes.

Why: a source's batch is sent before the engine gets it, an answer before it goes on, and output when it has been
released.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from drift_graph.metas import Metas

if TYPE_CHECKING:
    Data = bytes | memoryview
else:
    Data = memoryview  # received bytes are not copied out of their frame


class Begin(msgspec.Struct, array_like=True, tag=1):
    """The first message: where to write, the known part of the manifest, and when a part is full."""

    folder: str
    manifest: bytes
    part_items_max: int
    part_bytes_max: int
    seal_after_s: float


class LateRow(msgspec.Struct, array_like=True):
    """A diverted item; see `drift_graph.lateness.Late`."""

    time: int
    heartbeat: int
    reason: str
    payload: bytes


class Arrival(msgspec.Struct, array_like=True, tag=2):
    """A batch of a source, or a heartbeat alone, with the clock's time in nanoseconds since 1970.

    If `first_time` is set, the metas are those of numbered items, and `metas` is their suffix; else `metas` holds them
    as canonical bytes, joined.
    """

    batch: int
    source: int
    at_ns: int
    count: int
    first_time: int | None
    metas: Data
    payloads: Data
    heartbeat: bytes
    late: list[LateRow]


class Stored(NamedTuple):
    """A batch of a source in stored form, joined, for sources that an engine reads and encodes itself.

    Attributes:
        metas, payloads: canonical bytes, and the bytes of `stored`.
        heartbeat: of the source, after these items.
    """

    rank: int
    items: int
    metas: bytes
    payloads: bytes
    heartbeat: bytes


class Output(msgspec.Struct, array_like=True, tag=3):
    """Released items of one block; metas as in `Arrival`; the number of the sink of all, or of each."""

    position: int
    count: int
    first_time: int | None
    metas: Data
    payloads: Data
    sinks: int | list[int]


class Finish(msgspec.Struct, array_like=True, tag=4):
    """The last message. `digest` is the engine's, or ""."""

    state: str
    error: str
    kind: str
    by_input: bool
    ended: str
    digest: str


class Learned(msgspec.Struct, array_like=True, tag=5):
    """A class of payloads: "module:qualified name"."""

    name: str
    target: str


class Answers(msgspec.Struct, array_like=True, tag=6):
    """Answers of one call, in the order of their metas, in stored form; of a failed one, the fields of its failure."""

    call: str
    metas: list[bytes]
    failed: list[bool]
    payloads: list[bytes]


Message = Begin | Arrival | Output | Finish | Learned | Answers


class WriterEnded(msgspec.Struct):
    """The writer's last message: its error, or "".

    Attributes:
        full: whether the disk is full.
    """

    error: str = ""
    full: bool = False


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Message).decode


def split_metas(metas: Metas) -> tuple[int | None, bytes]:
    """`first_time` and `metas` of an `Arrival` or an `Output`."""
    if not metas:
        return None, b""
    return metas.numbers() or (None, metas.encoded())


decode_ended = msgspec.msgpack.Decoder(WriterEnded).decode
