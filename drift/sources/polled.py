"""Sources that are polled: a stream of Redis, a topic of Kafka.

Invariant: `position` is that behind the last item that `read` has returned, whatever was fetched ahead; if a message
cannot be decoded, all before it are returned first, or it is diverted in its place.

Why: each item comes with a mark, and the position is computed from the marks of returned items.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from itertools import islice
from typing import Any, NamedTuple

from drift.guarantees import SourceGuarantee
from drift.sources.base import OwnSource, Positioned, Reader, Source, pass_on, warn_of_loss
from drift.sources.json_values import NoJson, Texts, Values, why_none
from drift.sources.wake import Wake
from drift_graph.diverted import diverted
from drift_graph.errors import InputError, SettingsError
from drift_graph.functions import warn
from drift_graph.payloads import are_rows

_WAIT_S = 0.2
FETCHED_MAX = 4096


class Fetched(NamedTuple):
    """Attributes:
    values: of the messages, not decoded yet.
    marks: the position of each.
    """

    values: Any
    marks: Sequence[Any]


_NOTHING = Fetched([], [])


class Poller(Positioned):
    """Fetches for a reader, whose position is behind what that has returned; used by one thread at a time, except
    `behind` and `position`. A subclass has `fetch` and `location`.

    Attributes:
        name: errors begin with it.
        to_do: about messages without a payload, if not what is done about those of others.
        is_one_by_one: whether `fetches` gives payloads, and not messages.
        buffered_max: when so many entries of `fetches` were taken by a live reader, and are not read, no more are.
        close_max_s: how long the end of a live reader waits for a `fetch`; None: until it has returned.
    """

    name = ""
    to_do: str | None = None
    is_one_by_one = False
    buffered_max = 8
    close_max_s: float | None = None

    def fetch(self, items_max: int, wait_s: float) -> Fetched | None:
        """The available messages, possibly none within the given time; None at the end."""
        raise NotImplementedError

    def fetches(self) -> Iterator[Any]:
        """All of them, for a live reader, as often as it may be asked to end."""
        while (fetched := self.fetch(FETCHED_MAX, _WAIT_S)) is not None:
            yield fetched if len(fetched.values) else _NOTHING

    def behind(self, marks: Sequence[Any]) -> None:
        """Items with these marks were returned, one or more."""

    def location(self, mark: Any) -> str:
        """The location of a message, for errors."""
        raise NotImplementedError

    def last(self) -> Fetched | None:
        """What was received and not fetched, where no more is to be; called by the thread of a live reader."""
        return None


Decode = Callable[[Any], Any]


def decoder(function: str, decode: str | Decode, type: Any) -> Decode:
    """The function from the bytes of a message to its payload; a function is itself.

    Raises:
        SettingsError: an argument is not valid.
    """
    if type is not None and decode != "json":
        raise SettingsError(f"{function} type= is for decode='json', not for {decode!r}")
    if callable(decode):
        return decode
    try:
        from_json: Decode = Values(Any if type is None else type)
    except TypeError as error:
        raise SettingsError(f"{function} type={type!r:.80}: {error}") from None
    made: dict[str, Decode] = {"bytes": bytes, "text": bytes.decode, "json": from_json}
    if not isinstance(decode, str) or decode not in made:
        raise SettingsError(f"{function} decode={decode!r:.80} is neither {', '.join(map(repr, made))}")
    return made[decode]


def with_schema(source: Any) -> Callable[[Mapping[str, Any]], Source] | None:
    """Of a source of messages with JSON the same source that reads them as rows; see `OwnSource`."""
    if not (isinstance(source.decode, Values) and source.decode.is_plain):
        return None

    def made(schema: Mapping[str, Any]) -> Any:
        from drift.columns.read import checked_schema
        from drift.sources.json_rows import RowValues

        of_rows = copy(source)
        of_rows.decode = RowValues(checked_schema(repr(source), schema))
        of_rows.with_schema = None
        return of_rows

    return made


class Undecodable(NamedTuple):
    """What a poller fetched in place of a value that is not there: why, and what there is."""

    why: str
    found: Any


class AsMade(Texts):
    """Of payloads that a poller has made."""

    def __call__(self, value: Any) -> Any:
        if type(value) is Undecodable:
            raise NoJson(value.why)
        return value

    def each(self, values: Any) -> Any | None:
        return None if not are_rows(values) and Undecodable in set(map(type, values)) else values


def decoded(
    poller: Poller, fetched: Fetched, decode: Decode, diverts_as: str = ""
) -> tuple[list[Any], InputError | None]:
    """The payloads of messages, up to the first that cannot be decoded, and its error.

    Args:
        diverts_as: the source's name, if messages that cannot be decoded are diverted in their places.
    """
    payloads: list[Any] = []
    values, marks = fetched
    if isinstance(decode, Texts) and (found := decode.each(values)) is not None:
        return found, None
    while len(payloads) < len(values):
        try:
            payloads.extend(map(decode, islice(values, len(payloads), None)))
        except InputError as error:  # not of the message
            return payloads, error
        except Exception as refused:
            at = len(payloads)
            value, where = values[at], poller.location(marks[at])
            if value is None:  # a message without one
                payloads.append(None)
                continue
            reason = why_none(refused, value) if isinstance(decode, Texts) else refused
            why, found = value if type(value) is Undecodable else (f"it cannot be decoded: {reason}", value)
            if diverts_as:
                payloads.append(diverted(f"{diverts_as}, {where}", why, found))
                continue
            where = ", ".join(filter(None, [poller.name, where]))
            why = why.removeprefix("it cannot be decoded: ")
            if poller.to_do is not None:
                return payloads, InputError(f"{where}: {why}{poller.to_do and '; '}{poller.to_do}")
            return payloads, InputError(
                f"{where}: the message {found!r:.80} cannot be decoded: {why}; correct the sender, pass decode= or "
                f"type=, or divert such messages: on_error='divert'"
            )
    return payloads, None


class _Polled(Reader):
    """Of what is polled, and knows where it is."""

    def __init__(self, poller: Poller, decode: Decode, diverts_as: str) -> None:
        self._poller = poller
        self._decode = decode
        self._diverts_as = diverts_as
        pass_on(self, poller)

    def close(self) -> None:
        self._poller.close()


class PolledSource(OwnSource):
    """A source that is polled.

    Args:
        shown: the call that made it.
        decode: from what is fetched its payload.
        live: whether it has no end.
        same_order: whether items come in the same order each time.
    """

    def __init__(
        self,
        shown: str,
        rereads: SourceGuarantee,
        poll: Callable[[], Poller],
        decode: Decode,
        *,
        live: bool,
        same_order: bool = True,
    ) -> None:
        self._shown = shown
        self.guarantee = rereads
        self._poll = poll
        self.decode = decode
        self.live = live
        self.same_order = same_order
        self.with_schema = with_schema(self)

    def open(self) -> Reader:
        return (LiveReader if self.live else FiniteReader)(self._poll(), self.decode, self._diverts_as)

    def __repr__(self) -> str:
        return self._shown


class FiniteReader(_Polled):
    """Reads up to the end."""

    def __init__(self, poller: Poller, decode: Decode, diverts_as: str = "") -> None:
        super().__init__(poller, decode, diverts_as)
        self._error: InputError | None = None

    def read(self, items_max: int) -> list[Any] | None:
        if self._error is not None:
            raise self._error
        while True:
            try:
                fetched = self._poller.fetch(items_max, _WAIT_S)
            except InputError as error:
                self._error = error
                raise
            if fetched is None:
                return None
            if not fetched.values:
                continue
            payloads, self._error = decoded(self._poller, fetched, self._decode, self._diverts_as)
            if payloads:
                self._poller.behind(fetched.marks[: len(payloads)])
                return payloads
            assert self._error is not None
            raise self._error


class LiveReader(_Polled):
    """Reads what comes, fetched by a thread of its own, which starts with the first `read`: a reader can be told where
    to begin, and one that is not read takes nothing.

    Its descriptor is readable exactly while there is something to read: what was fetched, or the end.
    """

    def __init__(self, poller: Poller, decode: Decode, diverts_as: str = "") -> None:
        super().__init__(poller, decode, diverts_as)
        self._close_max_s = poller.close_max_s
        self._buffer: deque[Any] = deque()
        self._changed = threading.Condition()
        self._ended = False  # nothing more is fetched
        self._failed = False  # what was read could not be decoded, so nothing behind it is read
        self._closed = False
        self._error: BaseException | None = None
        self._wake = Wake()
        self._thread = threading.Thread(target=self._fetch, name="drift live source", daemon=True)

    def _fetch(self) -> None:
        poller = self._poller
        try:
            for fetched in poller.fetches():
                if fetched is not _NOTHING:
                    self._put(fetched)
                if self._closed:
                    break
            if self._closed and (last := poller.last()) is not None:
                self._put(last)
        except BaseException as error:  # SystemExit too: were it lost here, the run would wait for ever
            self._error = self._error or error
        finally:
            with self._changed:
                self._ended = True
                self._wake.set()

    def _put(self, fetched: Any) -> None:
        """Add what was fetched, once there is room; also where no more is to be taken, since it was."""
        with self._changed:
            while len(self._buffer) >= self._poller.buffered_max and not self._closed:
                self._changed.wait()
            self._buffer.append(fetched)
            self._wake.set()

    def read(self, items_max: int) -> list[Any] | None:
        if self._thread.ident is None and not self._closed:
            self._thread.start()
        with self._changed:
            if self._failed or (self._ended and not self._buffer):
                self._wake.set(False)
                if self._error is not None:
                    raise self._error
                return None
            if not self._buffer:
                return []
            values, marks = self._take(items_max)
        payloads, error = decoded(self._poller, Fetched(values, marks), self._decode, self._diverts_as)
        if payloads:
            self._poller.behind(marks[: len(payloads)])
        if error is not None:
            with self._changed:
                self._buffer.appendleft(Fetched(values[len(payloads) + 1 :], marks[len(payloads) + 1 :]))
                self._closed = self._failed = True
                self._error = error
                self._wake.set()
                self._changed.notify()
            if not payloads:
                raise error
        return payloads

    def _take(self, items_max: int) -> Fetched:
        """At most so many items off the buffer, with the lock held."""
        buffer = self._buffer
        if self._poller.is_one_by_one:
            values = [buffer.popleft() for _ in range(min(items_max, len(buffer)))]
            marks: Sequence[Any] = range(len(values))
        else:
            values, marks = buffer.popleft()
            if len(values) > items_max:
                buffer.appendleft(Fetched(values[items_max:], marks[items_max:]))
                values, marks = values[:items_max], marks[:items_max]
        self._wake.set(bool(buffer) or self._ended)
        self._changed.notify()
        return Fetched(values, marks)

    def filenos(self) -> Sequence[int]:
        return (self._wake.fileno(),)

    def halt(self) -> bool:
        with self._changed:
            self._closed = True
            self._ended = self._ended or self._thread.ident is None
            self._changed.notify()
        self._join()
        return True

    def left(self) -> list[Any]:
        """A message that cannot be decoded is told of, and is in no batch."""
        batches = []
        while self._buffer:
            with self._changed:
                values, marks = self._take(sys.maxsize)
            while len(values):
                payloads, error = decoded(self._poller, Fetched(values, marks), self._decode, self._diverts_as)
                batches.append(payloads)
                if error is not None:
                    warn_of_loss(error)
                values, marks = values[len(payloads) + 1 :], marks[len(payloads) + 1 :]
        return batches

    def _join(self) -> bool:
        """Wait for the thread, if it was started, as long as the poller says; returns whether it has ended."""
        if self._thread.ident is not None:
            self._thread.join(self._close_max_s)
        if is_alive := self._thread.is_alive():
            self._close_max_s = 0.0  # which was waited for
        return not is_alive

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._wake.close()
            self._changed.notify()
        if not self._join():
            warn(
                "the iterable of a live source has not given its next item within close_max_s; its thread ends when it "
                "does",
                ResourceWarning,
            )
        super().close()
