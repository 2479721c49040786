"""Sources that are polled: a stream of Redis, a topic of Kafka.

Invariant: `position` is that behind the last item that `read` has returned, whatever was fetched ahead; if a message
cannot be decoded, all before it are returned first, or it is diverted in its place.

Why: each item comes with a mark, and the position is computed from the marks of returned items.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from itertools import islice
from typing import Any, NamedTuple, Protocol

from drift.guarantees import SourceGuarantee
from drift.sources.base import OwnSource, Positioned, Reader, Source, pass_on, warn_of_loss
from drift.sources.json_values import NoJson, Texts, Values, why_none
from drift.sources.wake import Buffered
from drift_graph.diverted import diverted
from drift_graph.errors import InputError, SettingsError
from drift_graph.payloads import are_rows

_WAIT_S = 0.2
_BUFFER_BATCHES_MAX = 8
FETCHED_MAX = 4096


class Fetched(NamedTuple):
    """Attributes:
    values: of the messages, not decoded yet.
    marks: the position of each.
    """

    values: Any
    marks: Sequence[Any]


class Poller(Positioned):
    """Fetches for a reader, whose position is behind what that has returned; used by one thread at a time, except
    `behind` and `position`. A subclass has `fetch` and `location`.

    Attributes:
        name: errors begin with it.
        to_do: about messages without a payload, if not what is done about those of others.
    """

    name = ""
    to_do: str | None = None

    def fetch(self, items_max: int, wait_s: float) -> Fetched | None:
        """The available messages, possibly none within the given time; None at the end."""
        raise NotImplementedError

    def behind(self, marks: Sequence[Any]) -> None:
        """Items with these marks were returned."""

    def location(self, mark: Any) -> str:
        """The location of a message, for errors."""
        raise NotImplementedError


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


def with_schema(source: _Decoding) -> Callable[[Mapping[str, Any]], Source] | None:
    """Of a source of messages with JSON the same source that reads them as rows; see `OwnSource`."""
    if not (isinstance(source.decode, Values) and source.decode.is_plain):
        return None

    def made(schema: Mapping[str, Any]) -> Source:
        from drift.columns.read import checked_schema
        from drift.sources.json_rows import RowValues

        of_rows = copy(source)
        of_rows.decode = RowValues(checked_schema(repr(source), schema))
        of_rows.with_schema = None
        return of_rows

    return made


class _Decoding(Source, Protocol):
    decode: Decode
    with_schema: Callable[[Mapping[str, Any]], Source] | None


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
            self._poller.behind(fetched.marks[: len(payloads)])
            if payloads:
                return payloads
            assert self._error is not None
            raise self._error


class LiveReader(Buffered, _Polled):
    """Reads what comes, fetched by a thread of its own."""

    def __init__(self, poller: Poller, decode: Decode, diverts_as: str = "") -> None:
        _Polled.__init__(self, poller, decode, diverts_as)
        Buffered.__init__(self, "drift polled source")
        self._behind_error: list[Fetched] = []

    def _fill(self) -> None:
        while not self._closed and (fetched := self._poller.fetch(FETCHED_MAX, _WAIT_S)) is not None:
            if fetched.values:
                self._put(fetched, _BUFFER_BATCHES_MAX)

    def read(self, items_max: int) -> list[Any] | None:
        self._begin()
        with self._changed:
            if not self._buffer:
                if not self._ended:
                    return []
                self._raise_at_end()
                return None
            values, marks = self._buffer.popleft()
            if len(values) > items_max:
                self._buffer.appendleft(Fetched(values[items_max:], marks[items_max:]))
                values, marks = values[:items_max], marks[:items_max]
            self._after_taking()
        payloads, error = decoded(self._poller, Fetched(values, marks), self._decode, self._diverts_as)
        self._poller.behind(marks[: len(payloads)])
        if error is not None:
            self._behind_error = [Fetched(values[len(payloads) + 1 :], marks[len(payloads) + 1 :]), *self._buffered()]
            with self._changed:
                self._closed = self._ended = True
                self._error = error
                self._after_taking()
            if not payloads:
                raise error
        return payloads

    def halt(self) -> bool:
        self._halted()
        return True

    def left(self) -> list[Any]:
        """A message that cannot be decoded is told of, and is in no batch."""
        batches = []
        for values, marks in [*self._behind_error, *self._buffered()]:
            while len(values):
                payloads, error = decoded(self._poller, Fetched(values, marks), self._decode, self._diverts_as)
                batches.append(payloads)
                if error is not None:
                    warn_of_loss(error)
                values, marks = values[len(payloads) + 1 :], marks[len(payloads) + 1 :]
        return batches

    def close(self) -> None:
        self._close()
        self._joined()
        self._poller.close()
