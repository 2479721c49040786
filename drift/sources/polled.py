"""Sources that are asked for more: a stream of Redis, a topic of Kafka.

Invariant: `position` is that behind the last item that `read` has given, whatever has been fetched ahead; and where a
message cannot be decoded, all before it are given first.

Why: each item comes with its mark, and the marks of those that were given are what the position is made of.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from drift.sources.base import Acknowledging
from drift.sources.wake import Wake
from drift_graph.errors import InputError, SettingsError

_WAIT_S = 0.2
_BUFFER_BATCHES_MAX = 8
_FETCHED_MAX = 4096


class Fetched(NamedTuple):
    """Attributes:
    values: of the messages, not decoded yet.
    marks: what tells the place of each.
    """

    values: list[Any]
    marks: list[Any]


class Poller(Protocol):
    """What a reader fetches from; used by one thread at a time, but for `behind` and `position`."""

    def fetch(self, items_max: int, wait_s: float) -> Fetched | None:
        """What is there, perhaps nothing within that time; None at the end."""

    def behind(self, marks: Sequence[Any]) -> None:
        """Items with these marks were given."""

    def position(self) -> Any:
        """What `fetch` is to begin at, to go on behind what was given: numbers, texts and dicts."""

    def seek(self, position: Any) -> None:
        """Called before the first `fetch`: begin there."""

    def place(self, mark: Any) -> str:
        """Of a message, for errors."""

    def close(self) -> None: ...


Decode = Callable[[Any], Any]


def decoder(function: str, decode: str, type: Any) -> Decode:
    """What makes a payload of the bytes of a message.

    Raises:
        SettingsError: there is no such.
    """
    if type is not None and decode != "json":
        raise SettingsError(f"{function} type= is for decode='json', not for {decode!r}")
    try:
        from_json: Decode = msgspec.json.Decoder(Any if type is None else type).decode
    except TypeError as error:
        raise SettingsError(f"{function} type={type!r:.80}: {error}") from None
    made: dict[str, Decode] = {"bytes": bytes, "text": bytes.decode, "json": from_json}
    if decode not in made:
        raise SettingsError(f"{function} decode={decode!r:.80} is neither {', '.join(map(repr, made))}")
    return made[decode]


def decoded(poller: Poller, fetched: Fetched, decode: Decode) -> tuple[list[Any], InputError | None]:
    """The payloads of messages, up to the first that has none, and the error of that one."""
    payloads: list[Any] = []
    try:
        payloads.extend(map(decode, fetched.values))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError) as error:
        at = len(payloads)
        return payloads, InputError(
            f"{poller.place(fetched.marks[at])}: the message {fetched.values[at]!r:.80} cannot be decoded: {error}; "
            f"correct the sender, or pass decode= or type="
        )
    return payloads, None


class _Polled:
    """What both readers pass on."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self.acknowledges = isinstance(poller, Acknowledging) and poller.acknowledges

    def position(self) -> Any:
        """See `Positioned`."""
        return self._poller.position()

    def seek(self, position: Any) -> None:
        """See `Positioned`."""
        self._poller.seek(position)

    def released(self, position: Any) -> None:
        """See `Acknowledging`."""
        assert isinstance(self._poller, Acknowledging)
        self._poller.released(position)


class FiniteReader(_Polled):
    """Reads up to the end that a poller has."""

    def __init__(self, poller: Poller, decode: Decode) -> None:
        super().__init__(poller)
        self._decode = decode
        self._error: InputError | None = None

    def read(self, items_max: int) -> list[Any] | None:
        if self._error is not None:
            raise self._error
        while True:
            fetched = self._poller.fetch(items_max, _WAIT_S)
            if fetched is None:
                return None
            if not fetched.values:
                continue
            payloads, self._error = decoded(self._poller, fetched, self._decode)
            self._poller.behind(fetched.marks[: len(payloads)])
            if payloads:
                return payloads
            assert self._error is not None
            raise self._error

    def filenos(self) -> Sequence[int]:
        return ()

    def close(self) -> None:
        self._poller.close()


class LiveReader(_Polled):
    """Reads what comes, fetched by a thread of its own."""

    def __init__(self, poller: Poller, decode: Decode) -> None:
        super().__init__(poller)
        self._decode = decode
        self._fetched: deque[Fetched] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._closed = False
        self._error: BaseException | None = None
        self._wake = Wake()
        self._thread: threading.Thread | None = None  # begun by the first `read`, so that it can be told where

    def _fill(self) -> None:
        try:
            while not self._closed:
                fetched = self._poller.fetch(_FETCHED_MAX, _WAIT_S)
                if fetched is None:
                    break
                with self._changed:
                    while len(self._fetched) >= _BUFFER_BATCHES_MAX and not self._closed:
                        self._changed.wait()
                    if fetched.values and not self._closed:
                        self._fetched.append(fetched)
                        self._wake.set()
        except BaseException as error:  # were it lost here, the run would wait for ever
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._wake.set()

    def read(self, items_max: int) -> list[Any] | None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._fill, name="drift polled source", daemon=True)
            self._thread.start()
        with self._changed:
            if not self._fetched:
                if not self._ended:
                    return []
                self._wake.set(False)  # after its end there is nothing to wait for
                if self._error is not None:
                    raise self._error
                return None
            values, marks = self._fetched.popleft()
            if len(values) > items_max:
                self._fetched.appendleft(Fetched(values[items_max:], marks[items_max:]))
                values, marks = values[:items_max], marks[:items_max]
            self._wake.set(bool(self._fetched) or self._ended)
            self._changed.notify()
        payloads, error = decoded(self._poller, Fetched(values, marks), self._decode)
        self._poller.behind(marks[: len(payloads)])
        if error is not None:
            with self._changed:
                self._fetched.clear()
                self._closed = self._ended = True
                self._error = error
                self._wake.set()
                self._changed.notify()
            if not payloads:
                raise error
        return payloads

    def filenos(self) -> Sequence[int]:
        return (self._wake.fileno(),)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._wake.close()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        self._poller.close()
