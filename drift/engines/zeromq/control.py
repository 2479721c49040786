"""What the calling process and each process that it started say to each other: orders down, signs of life up.

Invariant: what a process says is decoded without running anything of it, since it may be on another machine.

Why: only the error that ends a process is a pickle, in one field, which is opened when the run ends with it.
"""

from __future__ import annotations

import time

import msgspec

from drift.engines.observed import Bar
from drift.machines.counts import Left
from drift.machines.nodes.messages import Halted, Rewound

#: The order to end.
STOP = b"stop"


class Ready(msgspec.Struct, tag=True):
    """The process has bound its inbox."""

    address: str


class SignOfLife(msgspec.Struct, tag=True):
    """The process is alive.

    Attributes:
        idle: it has had no message since the last sign, and does nothing until one comes.
        call: seconds spent in the present call of a user's function, and the function's location.
        log_bytes: size of its link logs.
        last: the process ends after this sign.
        lost: the secret of the generation in which a connection to another process was lost; 0 for none.
        counts: if counting is on, by operator what left it in this process.
        bars: its timeline since the last sign.
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
encode_upward = msgspec.msgpack.Encoder().encode
decode_upward = msgspec.msgpack.Decoder(Upward).decode


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
        now_s = time.monotonic()
        self._awake_s += min(now_s - self._read_s, self._step_max_s)
        self._read_s = now_s
        return self._awake_s
