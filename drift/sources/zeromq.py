"""Messages of a ZeroMQ socket.

Invariant: all messages of the queue before a fault, or before the empty one that ends the input, are returned; of a run
that ends before, those that the socket had received are `left`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from drift.guarantees import SourceGuarantee
from drift.sources.base import OwnSource, Reader
from drift.sources.polled import FETCHED_MAX, Decode, Fetched, LiveReader, Poller, Undecodable, decoder, with_schema
from drift_graph.errors import InputError, SettingsError
from drift_graph.sizes import BATCH_BYTES


def zmq_pull(
    address: str,
    *,
    decode: Literal["bytes", "text", "json"] | Decode = "bytes",
    connect: bool = False,
    subscribe: str | bytes | None = None,
    until_empty: bool = True,
) -> ZmqPull:
    """Each message that a ZeroMQ socket receives is a payload.

    The socket exists from this call on; its `address` is known at once ("tcp://127.0.0.1:*" takes a free port).

    >>> import drift, zmq
    >>> numbers = drift.sources.zmq_pull("tcp://127.0.0.1:*", decode="json")
    >>> graph = drift.Graph("numbers")
    >>> graph.source("numbers").sink("out")
    >>> with zmq.Context() as context, context.socket(zmq.PUSH) as sender:
    ...     connected = sender.connect(numbers.address)
    ...     for frame in (b"1", b"2", b""):  # an empty one is the end
    ...         sender.send(frame)
    ...     [item.payload for item in drift.run(graph, {"numbers": numbers})]
    [1, 2]

    Args:
        address: an endpoint, such as "tcp://127.0.0.1:5555" or "ipc:///run/flights".
        decode: what a message is converted to: bytes, text (UTF-8), the value of its JSON, or the result of a function
            of its bytes.
        connect: connect there, in place of binding.
        subscribe: be a SUB socket with this topic, b"" for every message, in place of a PULL socket. ZeroMQ then loses
            messages published before the subscription, and those that overflow the queue.
        until_empty: an empty message ends the input; messages of other senders that are under way are not read then.

    Raises:
        SettingsError: it cannot be bound or connected.
    """
    return ZmqPull(address, decoder("zmq_pull", decode, None), connect, subscribe, until_empty)


class ZmqPull(OwnSource):
    """It serves one run that reads; `close` it if none comes.

    Attributes:
        address: the endpoint, with the port that was taken.
    """

    live = True
    guarantee: ClassVar = SourceGuarantee("not at all", "a socket gives each message once")

    def __init__(
        self, address: str, decode: Decode, connect: bool, subscribe: str | bytes | None, until_empty: bool
    ) -> None:
        import zmq

        self.decode = decode
        self._until_empty = until_empty
        self._runs: list[str] = []  # of this source and its copies
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
        self.with_schema = with_schema(self)
        self.address: str = self._socket.getsockopt_string(zmq.LAST_ENDPOINT) or address

    def open(self) -> Reader:
        if self._runs:
            raise SettingsError(f"{self!r} has served its run; make a new one for another")
        self._runs.append("opened")
        return LiveReader(_Queue(self, self._socket, self._until_empty), self.decode, self._diverts_as)

    def leave(self) -> None:
        """A reader has read nothing: another may be opened."""
        self._runs.remove("opened")

    def close(self) -> None:
        """Close the socket."""
        self._runs.append("closed")
        self._context.destroy(linger=0)

    def __repr__(self) -> str:
        return f"zmq_pull({self.address!r})"


class _Queue(Poller):
    """The mark of a message is its number."""

    def __init__(self, source: ZmqPull, socket: Any, until_empty: bool) -> None:
        self._source = source
        self._socket = socket
        self._until_empty = until_empty
        self._taken = 0
        self._ended = self._has_fetched = False

    def fetch(self, items_max: int, wait_s: float) -> Fetched | None:
        import zmq

        self._has_fetched = True
        if self._ended:
            return None
        values: list[Any] = []
        room_bytes = BATCH_BYTES
        try:
            self._socket.poll(wait_s * 1000)
            while len(values) < items_max and room_bytes > 0:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
                if self._until_empty and frames == [b""]:
                    self._ended = True
                    break
                values.append(frames[0] if len(frames) == 1 else _several(frames))
                room_bytes -= sum(map(len, frames))
        except zmq.Again:
            pass
        except zmq.ZMQError as error:
            if not values:  # else the next call meets it again
                raise InputError(f"{self._source!r} failed after message {self._taken}: {error}") from None
        first = self._taken + 1
        self._taken += len(values)
        return Fetched(values, list(range(first, self._taken + 1)))

    def last(self) -> Fetched | None:
        return self.fetch(FETCHED_MAX, 0.0)

    def location(self, mark: Any) -> str:
        return f"{self._source!r}, message {mark}"

    def close(self) -> None:
        (self._source.close if self._has_fetched else self._source.leave)()


def _several(frames: list[bytes]) -> Undecodable:
    why = (
        f"it has {len(frames)} parts; send one part, or receive them with pyzmq yourself in a generator for "
        f"drift.sources.live"
    )
    return Undecodable(why, tuple(frames))
