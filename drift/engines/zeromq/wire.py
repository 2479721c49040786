"""The wire format: the messages between the processes of a run, as single frames.

Invariant: `decode` returns a message only for a frame that a process of this run made with `encode`, unchanged; for any
other bytes it raises `Refused`, having read no more than the header and a checksum.

Why: a frame starts with a fixed header, and its checksum is xxh3 over all of it, seeded with a number that only the
processes of the run know. (This excludes accidents and frames of other runs. Attackers are excluded before that: ipc
sockets are in a folder of mode 0700, and tcp sockets accept no peer without the run's CURVE keys.)

    magic "DRFT" | version, 1 byte | kind, 1 byte | sender, 2 bytes | body length, 4 bytes | checksum, 8 bytes | body

Integers are big-endian. The body is MessagePack, but for batches of items, whose payloads are any Python values: these
are pickles, made and read by processes of one run only. Memory that nobody may change, such as columns of rows, is
behind the pickle as it was, and who decodes a frame reads it where it is:

    number of buffers, 8 bytes | sizes, 8 bytes each | pickle, and then buffers, each from a multiple of 8 bytes on
"""

from __future__ import annotations

import enum
import pickle
import struct
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import msgspec
import xxhash

from drift.machines.nodes.messages import (
    AckMessage,
    Batch,
    CheckpointReply,
    Committed,
    Done,
    Message,
    MinimalTime,
    Oversized,
    Pace,
    SnapshotPart,
)

VERSION = 1
Bytes: TypeAlias = bytes | memoryview
#: A longer frame is refused; batches are split so that they fit.
FRAME_BYTES_MAX = 64 * 2**20

_header = struct.Struct(">4sBBHI")
_checksum = struct.Struct(">Q")
_HEADER_BYTES = _header.size + _checksum.size
_size = struct.Struct(">Q")
_ALIGNED = 8
_MAGIC = b"DRFT"


class FrameKind(enum.IntEnum):
    """The kind of a body."""

    BATCH = 1
    ACK = 2
    MINIMAL_TIME = 3
    CHECKPOINT_REPLY = 4
    COMMITTED = 5
    PACE = 6
    DONE = 7
    SNAPSHOT_PART = 8


_kinds: dict[type, FrameKind] = {
    Batch: FrameKind.BATCH,
    AckMessage: FrameKind.ACK,
    MinimalTime: FrameKind.MINIMAL_TIME,
    CheckpointReply: FrameKind.CHECKPOINT_REPLY,
    Committed: FrameKind.COMMITTED,
    Pace: FrameKind.PACE,
    Done: FrameKind.DONE,
    SnapshotPart: FrameKind.SNAPSHOT_PART,
}
_pack = msgspec.msgpack.Encoder().encode
_unpack: dict[int, Callable[[Any], Message]] = {
    kind: msgspec.msgpack.Decoder(message).decode for message, kind in _kinds.items() if message is not Batch
}


class Refused(Exception):
    """A frame that does not belong to this run; the text says why."""


class Outdated(Refused):
    """A frame of this run, from an earlier generation."""


class Codec:
    """Encodes and decodes the frames of one process.

    Args:
        sender: the number of the process, below 2**16.
        secret: the number that the processes of the generation share, 64 bits.
    """

    def __init__(self, sender: int, secret: int) -> None:
        self._sender = sender
        self.secret = secret
        self._secrets: list[int] = []  # of earlier generations

    def reseed(self, secret: int) -> bool:
        """From now on make and accept only frames with this secret; returns whether it is new."""
        if secret == self.secret:
            return False
        self._secrets.append(self.secret)
        self.secret = secret
        return True

    def encode(self, message: Message) -> bytes:
        """The frame of a message. Raises Oversized: the frame would be too long."""
        kind = _kinds[type(message)]
        body = _parts_of(message) if isinstance(message, Batch) else [_pack(message)]
        length = sum(map(len, body))
        if length + _HEADER_BYTES > FRAME_BYTES_MAX:
            size = length + _HEADER_BYTES
            raise Oversized(f"a message of {size:,} bytes is longer than a frame may be, {FRAME_BYTES_MAX:,} bytes")
        header = _header.pack(_MAGIC, VERSION, kind, self._sender, length)
        return b"".join([header, _checksum.pack(_sum(header, body, self.secret)), *body])

    def decode(self, frame: Bytes) -> Message:
        """The message of a frame.

        Raises:
            Refused: it is malformed, truncated, too long, of another version or of another run.
        """
        if not _HEADER_BYTES <= len(frame) <= FRAME_BYTES_MAX:
            raise Refused(f"a frame of {len(frame)} bytes")
        header = memoryview(frame)[: _header.size]
        magic, version, kind, _, length = _header.unpack(header)
        if magic != _MAGIC:
            raise Refused("a frame without the magic bytes")
        if version != VERSION:
            raise Refused(f"a frame of version {version}, not {VERSION}")
        body = memoryview(frame)[_HEADER_BYTES:]
        if len(body) != length:
            raise Refused(f"a frame with {len(body)} of {length} bytes")
        checksum = _checksum.unpack_from(frame, _header.size)[0]
        if checksum != _sum(header, [body], self.secret):
            if any(checksum == _sum(header, [body], secret) for secret in self._secrets):
                raise Outdated("a frame of an older generation")
            raise Refused("a frame with another run's checksum")
        if kind not in _unpack and kind != FrameKind.BATCH:
            raise Refused(f"a frame of unknown kind {kind}")
        return _message(kind, body)


def opened(frame: bytes) -> Message:
    """The message of a frame that a process of this run has made or accepted, in any generation."""
    return _message(_header.unpack(frame[: _header.size])[2], memoryview(frame)[_HEADER_BYTES:])


def _message(kind: int, body: memoryview) -> Message:
    if kind == FrameKind.BATCH:
        return _batch_of(body)
    return _unpack[kind](body)


def _parts_of(batch: Batch) -> list[Bytes]:
    """The body of a batch; of what nobody may change nothing is copied, and it comes so that nobody may."""
    buffers: list[memoryview] = []

    def is_in_pickle(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.readonly:
            buffers.append(raw)
        return not raw.readonly

    pickled = pickle.dumps(batch, 5, buffer_callback=is_in_pickle)
    parts: list[Bytes] = [struct.pack(f">{2 + len(buffers)}Q", len(buffers), len(pickled), *map(len, buffers))]
    end = _HEADER_BYTES + len(parts[0])
    behind: list[Bytes] = [pickled, *buffers]
    for part in behind:
        parts += [bytes(-end % _ALIGNED), part]
        end += -end % _ALIGNED + len(part)
    return parts


def _batch_of(body: memoryview) -> Batch:
    count = _size.unpack_from(body)[0]
    end = _size.size * (2 + count)
    each: list[memoryview] = []
    for size in struct.unpack_from(f">{1 + count}Q", body, _size.size):
        start = end + -(_HEADER_BYTES + end) % _ALIGNED
        end = start + size
        each.append(body[start:end].toreadonly())
    batch: Batch = pickle.loads(each[0], buffers=each[1:])
    return batch


def _sum(header: Bytes, body: Iterable[Bytes], secret: int) -> int:
    state = xxhash.xxh3_64(header, seed=secret)
    for part in body:
        state.update(part)
    return state.intdigest()
