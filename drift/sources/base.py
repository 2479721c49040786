"""The interface of a source to an engine.

Invariant: a reader returns every payload it has read before it raises, so an error loses no accepted item.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, Protocol, Self, runtime_checkable

from drift_graph.errors import InputError
from drift_graph.functions import warn
from drift_graph.payloads import AsRows


class Reader(Protocol):
    """An open source."""

    def read(self, items_max: int) -> list[Any] | None:
        """Up to `items_max` payloads, fewer if they are large (`BATCH_BYTES`); None at the end of the input.

        A finite source blocks until it has some, unless it has `filenos`. Then, like a live one, it never blocks: it
        returns [] if nothing is available.

        Raises:
            InputError: the input cannot be read; everything before was returned by earlier calls.
        """

    def filenos(self) -> Sequence[int]:
        """For a live source or a pipe, descriptors that are readable when `read` may have something; always the same.

        They should be few, since engines wait with `select`; after `read` has returned None they are not readable.
        """

    def close(self) -> None:
        """Release files and connections; called once, also after an error."""


@runtime_checkable
class Source(Protocol):
    """Something that can be opened for reading.

    Attributes:
        live: whether items come in their own time, so that arrival is stamped from the clock.
    """

    live: bool

    def open(self) -> Reader: ...


@runtime_checkable
class Diverts(Protocol):
    """A source that can continue behind input that it cannot read."""

    def diverting(self, name: str) -> Source:
        """The same source, which returns `drift_graph.diverted` in place of what it cannot read, under this name."""


class TakesSchema:
    """A source of texts.

    Attributes:
        with_schema: makes the same source with a schema; None if it was told what else its payloads are.
    """

    with_schema: Callable[[Mapping[str, Any]], Source] | None = None


def as_rows(source: Source, rows: AsRows | None) -> Source:
    """The source, which reads texts as rows of the schema that the graph's source has, if it has one; as it is, if it
    was told what else its payloads are.

    Raises:
        SettingsError: no text is of a type of the schema.
    """
    if rows is None or not isinstance(source, TakesSchema) or source.with_schema is None:
        return source
    return source.with_schema(dict(rows.fields))


class Diverting:
    """A source that diverts what its readers cannot read once it has a name for that; see `Diverts`."""

    _diverts_as = ""

    def diverting(self, name: str) -> Self:
        source = copy(self)
        source._diverts_as = name
        return source


@runtime_checkable
class Positioned(Protocol):
    """A reader of a source that can be read again: it reports its position and can seek to one."""

    def position(self) -> Any:
        """The position of the first payload that was not returned yet: numbers, texts, and lists and dicts of them.

        None if this source cannot be read again, like a pipe.
        """

    def seek(self, position: Any) -> None:
        """Continue at the position of another reader of the same source. Called at most once, before the first `read`.

        Raises:
            InputError: the source no longer has the data there, or the position is from another version or source.
        """


@runtime_checkable
class SeesMore(Protocol):
    """A reader that knows what is behind a position without reading it."""

    def more_behind(self, position: Any) -> str:
        """What is there, as the end of a sentence about the source, or why that is not known; "" for nothing."""


@runtime_checkable
class Ending(Protocol):
    """A reader that ends where its input ended when it was first opened, also if it is read on from a position."""

    def end_anew(self) -> None:
        """End where the input ends now, and give positions without an end; called when it was opened and after `seek`,
        before the first `read`.
        """


@runtime_checkable
class Pausing(Protocol):
    """A reader of what may be read on in a later run, where more has been written to it."""

    def pause_at_end(self) -> bool:
        """Leave what is not written to its end, such as half of a last line; called when it was opened and after
        `seek`, before the first `read`. Returns whether more may be written behind its end.
        """


@runtime_checkable
class TakingAhead(Protocol):
    """A reader that takes more than was read, of what may be given once."""

    def halt(self) -> None:
        """Take no more; `read` returns what was taken, then None."""

    def left(self) -> list[Any]:
        """Batches of payloads that were taken and not read; called once, after `halt`. What of it has no payload yet,
        such as half of a line, is in the `position`.
        """


@runtime_checkable
class Acknowledging(Protocol):
    """A reader that acknowledges released items to an external system: the offsets of a consumer group.

    Attributes:
        acknowledges: whether the user asked for it.
    """

    acknowledges: bool

    def released(self, position: Any) -> None:
        """Everything before one of its positions was released and handed to the sinks."""


@runtime_checkable
class Retaining(Protocol):
    """A reader of a source that keeps what may be read again, until it is told that nobody will."""

    def drop_below(self, position: Any) -> None:
        """No run resumes from before one of its positions; called by any thread, until it is closed."""


@runtime_checkable
class Backlogged(Protocol):
    """A reader that knows how much is left to read; asked by the thread that reads."""

    def backlog(self) -> tuple[int, str] | None:
        """What is there now and was not read, and its unit: "{item}" or "By" (bytes); None if that is not known."""


def warn_of_loss(why: object) -> None:
    """Warn of what a run has received behind its end, and that the next one cannot have."""
    warn(f"{why}; the run has received it and ended before it, so it is in no output")


class NothingYet(InputError):
    """A reader has reached the present end of a file that is still written; it can be asked again."""
