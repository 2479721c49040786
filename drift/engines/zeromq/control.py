"""Pipes between the calling process and each process it started: orders down, signs of life up.

Invariant: when the calling process has ended, for whatever reason, the child's pipe ends, and so does the child.

A message on a pipe is a length (4 bytes, big-endian) and a body.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import time
from typing import IO

import msgspec

from drift.engines.observed import Bar
from drift.machines.counts import Left
from drift.machines.nodes.messages import Halted, Rewound

_length = struct.Struct(">I")
#: The order to end.
STOP = b"stop"


class Ready(msgspec.Struct, tag=True):
    """The process has bound its inbox."""

    address: str


class SignOfLife(msgspec.Struct, tag=True):
    """The process is alive.

    Attributes:
        idle: it has had no message since the last sign.
        call: seconds spent in the present call of a user's function, and the function's location.
        log_bytes: size of its link logs.
        last: the process ends after this sign.
        lost: the secret of the generation in which a connection to another process was lost; 0 for none.
        counts: if counting is on, by operator what left it in this process.
        bars: its timeline since the last sign.
        memory_bytes, cpu_s, at_s: see `ProcessState`.
    """

    idle: bool = False
    tombstones: int = 0
    refused_frames: int = 0
    last_refusal: str = ""
    peak_memory_bytes: int = 0
    call: tuple[float, str] = (0.0, "")
    log_bytes: int = 0
    last: bool = False
    lost: int = 0
    counts: dict[str, Left] = {}
    bars: list[Bar] = []
    memory_bytes: int = 0
    cpu_s: float = 0.0
    at_s: float = 0.0


class Answered(msgspec.Struct, tag=True):
    """The node has carried out an order of the recovery."""

    answer: Halted | Rewound


class Merged(msgspec.Struct, tag=True):
    """Snapshots of checkpoints have been merged; without a name if there is no room on the disk now."""

    name: bytes
    size: int


class Fatal(msgspec.Struct, tag=True):
    """The process ends with an error: a pickled exception, and its traceback as text."""

    error: bytes
    trace: str


Upward = Ready | SignOfLife | Answered | Merged | Fatal
_encode = msgspec.msgpack.Encoder().encode
_writing = threading.Lock()
_decode = msgspec.msgpack.Decoder(Upward).decode


def block_of(body: bytes) -> bytes:
    """A body with its length, as sent over a pipe."""
    return _length.pack(len(body)) + body


class Awake:
    """A clock that stands still while this process is suspended, since processes suspended with it are not silent.

    Args:
        step_max_s: the most that passes between two readings.
    """

    def __init__(self, step_max_s: float) -> None:
        self._step_max_s = step_max_s
        self._read_s = time.monotonic()
        self._awake_s = 0.0

    def now_s(self) -> float:
        """Read the clock."""
        now_s = time.monotonic()
        self._awake_s += min(now_s - self._read_s, self._step_max_s)
        self._read_s = now_s
        return self._awake_s


def read_block(file: IO[bytes]) -> bytes | None:
    """The next body; None at the end of the pipe."""
    head = file.read(_length.size)
    if len(head) < _length.size:
        return None
    body = file.read(_length.unpack(head)[0])
    return body if len(body) == _length.unpack(head)[0] else None


def write_upward(number: int, message: Upward) -> None:
    """Write a message; several threads may write, one message after the other.

    If nobody reads the pipe, the calling process has ended, and the end of the other pipe ends this process.
    """
    data = memoryview(block_of(_encode(message)))
    with _writing, contextlib.suppress(BrokenPipeError):
        while data:
            data = data[os.write(number, data) :]


class UpwardDecoder:
    """A child's messages, from the bytes of its pipe, however they are cut."""

    def __init__(self) -> None:
        self._buffer = b""

    def decoded(self, data: bytes) -> list[Upward]:
        """The messages that are complete with these bytes."""
        self._buffer += data
        messages: list[Upward] = []
        while len(self._buffer) >= _length.size:
            end = _length.size + _length.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                break
            messages.append(_decode(self._buffer[_length.size : end]))
            self._buffer = self._buffer[end:]
        return messages
