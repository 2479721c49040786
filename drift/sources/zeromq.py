"""Messages of a ZeroMQ socket.

Invariant: after a `read` the engine is woken by the next message, and at once if there are more messages already.

Why: ZeroMQ's descriptor signals changes, not states, and only to code that has seen the queue empty. So a `read` that
stops before that makes a second descriptor readable, which signals the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import msgspec

from drift.guarantees import SourceGuarantee
from drift.sources.base import Reader
from drift.sources.wake import Wake
from drift_graph.diverted import diverted
from drift_graph.errors import InputError, SettingsError
from drift_graph.sizes import BATCH_BYTES


def zmq_pull(
    address: str,
    *,
    decode: Literal["bytes", "text", "json"] = "bytes",
    connect: bool = False,
    subscribe: str | bytes | None = None,
    until_empty: bool = True,
) -> ZmqPull:
    """Each message that a ZeroMQ socket receives is a payload.

    The socket exists from this call on; its `address` is known at once ("tcp://127.0.0.1:*" takes a free port).

    Args:
        address: an endpoint, such as "tcp://127.0.0.1:5555" or "ipc:///run/flights".
        decode: what a message is converted to: bytes, text (UTF-8), or the value of its JSON.
        connect: connect there, in place of binding.
        subscribe: be a SUB socket with this topic, b"" for every message, in place of a PULL socket. ZeroMQ then loses
            messages published before the subscription, and those that overflow the queue.
        until_empty: an empty message ends the input; messages of other senders that are under way are not read then.

    Raises:
        SettingsError: it cannot be bound or connected.
    """
    if decode not in ("bytes", "text", "json"):
        raise SettingsError(f"decode={decode!r} is neither 'bytes' nor 'text' nor 'json'")
    return ZmqPull(address, decode, connect, subscribe, until_empty)


class ZmqPull:
    """See `zmq_pull`. It serves one run; `close` it if none comes.

    Attributes:
        address: the endpoint, with the port that was taken.
    """

    live = True
    guarantee: ClassVar = SourceGuarantee("not at all", "a socket gives each message once")

    def __init__(
        self, address: str, decode: str, connect: bool, subscribe: str | bytes | None, until_empty: bool
    ) -> None:
        import zmq

        self._decode = decode
        self._until_empty = until_empty
        self._used = False
        self.diverts_as = ""  # the source's name, if messages that cannot be decoded are diverted
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PULL if subscribe is None else zmq.SUB)
        try:
            if subscribe is not None:
                self._socket.setsockopt(zmq.SUBSCRIBE, subscribe.encode() if isinstance(subscribe, str) else subscribe)
            (self._socket.connect if connect else self._socket.bind)(address)
        except (zmq.ZMQError, TypeError) as error:
            self.close()
            verb = "connect to" if connect else "bind"
            raise SettingsError(
                f"zmq_pull cannot {verb} {address!r}: {error}; an address is tcp://host:port or ipc://path, and to be "
                f"bound it must be this machine's and free"
            ) from None
        self.address: str = self._socket.getsockopt_string(zmq.LAST_ENDPOINT) or address

    def diverting(self, name: str) -> ZmqPull:
        """See `Diverts`."""
        self.diverts_as = name
        return self

    def open(self) -> Reader:
        if self._used:
            raise SettingsError(f"{self!r} has served its run; make a new one for another")
        self._used = True
        return _ZmqReader(self, self._socket, self._decode, self._until_empty)

    def close(self) -> None:
        """Close the socket."""
        self._used = True
        self._context.destroy(linger=0)

    def __repr__(self) -> str:
        return f"zmq_pull({self.address!r})"


def _json_decoder() -> Callable[[bytes], Any]:
    return msgspec.json.Decoder().decode


class _ZmqReader:
    """Takes what is in the socket's queue."""

    def __init__(self, source: ZmqPull, socket: Any, decode: str, until_empty: bool) -> None:
        import zmq

        self._source = source
        self._socket = socket
        self._wait = zmq.NOBLOCK
        self._queue_empty = zmq.Again
        self._broken = zmq.ZMQError
        self._fileno: int = socket.getsockopt(zmq.FD)
        self._decode = {"bytes": None, "text": bytes.decode, "json": _json_decoder()}[decode]
        self._kind = {"bytes": "bytes", "text": "UTF-8", "json": "JSON"}[decode]
        self._until_empty = until_empty
        self._taken = 0
        self._ended = False
        self._error: InputError | None = None
        self._wake = Wake()
        self._wake.set()  # the queue has not been seen empty

    def read(self, items_max: int) -> list[Any] | None:
        batch: list[Any] = []
        emptied = False
        room_bytes = BATCH_BYTES
        while len(batch) < items_max and room_bytes > 0 and not self._ended and self._error is None:
            try:
                frames = self._socket.recv_multipart(self._wait)
            except self._queue_empty:
                emptied = True
                break
            except self._broken as error:
                self._error = InputError(f"{self._source!r} failed after message {self._taken}: {error}")
                break
            self._take(frames, batch)
            room_bytes -= sum(map(len, frames))
        self._wake.set(bool(batch) and not emptied)
        if batch:
            return batch
        if self._error is not None:
            raise self._error
        return None if self._ended else batch

    def _take(self, frames: list[bytes], batch: list[Any]) -> None:
        if self._until_empty and frames == [b""]:
            self._ended = True
            return
        self._taken += 1
        where = f"{self._source!r}, message {self._taken}"
        if len(frames) != 1:
            if self._source.diverts_as:
                batch.append(diverted(self._source.diverts_as, f"it has {len(frames)} parts", tuple(frames)))
                return
            self._error = InputError(
                f"{where}: it has {len(frames)} parts; send one part, or receive them with pyzmq yourself in a "
                f"generator for drift.sources.live"
            )
            return
        if self._decode is None:
            batch.append(frames[0])
            return
        try:
            batch.append(self._decode(frames[0]))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if self._source.diverts_as:
                batch.append(diverted(self._source.diverts_as, f"it is not {self._kind}: {error}", frames[0]))
                return
            self._error = InputError(
                f"{where}: it is not {self._kind}: {error}; the message is {frames[0]!r:.80}; correct the sender, or "
                f"pass decode="
            )

    def filenos(self) -> Sequence[int]:
        return (self._fileno, self._wake.fileno())

    def close(self) -> None:
        self._source.close()
        self._wake.close()
