"""The interface of a source to an engine.

Invariant: a reader returns every payload it has read before it raises, so an error loses no accepted item; and what an
engine asks of a reader, each reader has: what it does not say itself is a default here.

Why: readers are `Reader`, and `as_reader` makes one of somebody else's class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

from drift_graph.errors import InputError
from drift_graph.functions import safe_text, warn
from drift_graph.payloads import AsRows


class Positioned:
    """What is read from a position on, and knows things about it: a reader, or what a reader polls.

    Attributes:
        acknowledges: whether the user asked for `released`.
    """

    acknowledges: bool = False

    def position(self) -> Any:
        """The position of the first payload that was not returned yet: numbers, texts, and lists and dicts of them.

        None if this source cannot be read again, like a pipe.
        """
        return None

    def seek(self, position: Any) -> None:
        """Continue at the position of another reader of the same source. Called at most once, before the first `read`.

        Raises:
            InputError: the source no longer has the data there, or the position is from another version or source.
        """
        raise InputError(f"this source gives each item once, and cannot be read from {position!r:.80}")

    def end_anew(self) -> None:
        """End where the input ends now, and give positions without an end; called when it was opened and after `seek`,
        before the first `read`. For one that ends where its input ended when it was first opened, also if it is read on
        from a position.
        """

    def released(self, position: Any) -> None:
        """Everything before one of its positions was released and handed to the sinks; to be acknowledged to an
        external system, as the offsets of a consumer group. Only where it `acknowledges`.
        """

    def drop_below(self, position: Any) -> None:
        """No run resumes from before one of its positions, so what is kept for that may go; called by any thread, until
        it is closed.
        """

    def backlog(self) -> tuple[int, str] | None:
        """What is there now and was not read, and its unit: "{item}" or "By" (bytes); None if that is not known. Asked
        by the thread that reads.
        """
        return None

    def fraction(self) -> float | None:
        """The share of the input that has been read, 0 to 1; None if that is not known."""
        return None

    def close(self) -> None:
        """Release files and connections; called once, also after an error."""


class Reader(Positioned):
    """An open source. A subclass has `read`, and says what else it can do.

    Attributes:
        ended_at: bytes of its file that it has read, at the end, if that may grow.

    >>> import drift
    >>> class Twice(drift.sources.Reader):
    ...     left = ["again", "again"]
    ...     def read(self, items_max):
    ...         return [self.left.pop()] if self.left else None
    >>> Twice().read(10)
    ['again']
    """

    ended_at: int | None = None

    def read(self, items_max: int) -> list[Any] | None:
        """Up to `items_max` payloads, fewer if they are large (`BATCH_BYTES`); None at the end of the input.

        A finite source blocks until it has some, unless it has `filenos`. Then, like a live one, it never blocks: it
        returns [] if nothing is available.

        Raises:
            InputError: the input cannot be read; everything before was returned by earlier calls.
        """
        raise NotImplementedError

    def complete(self) -> None:
        """The file grows no more: its end is the end."""

    def end(self) -> Any:
        """The position behind all that a file of lines has, whatever its lines are; called before the first `read`, or
        when it has returned None.
        """
        raise NotImplementedError

    def filenos(self) -> Sequence[int]:
        """For a live source or a pipe, descriptors that are readable when `read` may have something; always the same.

        They should be few, since engines wait with `select`; after `read` has returned None they are not readable.
        """
        return ()

    def more_behind(self, position: Any) -> str:
        """What is behind the position of a run that has ended, if it had one, as the end of a sentence about the
        source, or why that is not known; "" for nothing. Called before the first `read`; by default this one reads
        there, so the reader is of no more use.
        """
        if position is None or self.position() is None:
            return "cannot be asked what is new (it has no position to be read from)"
        self.seek(position)
        self.end_anew()
        found = self.read(1)
        return f"has more now, such as {safe_text(repr, found[0], 80)}" if found else ""

    def pause_at_end(self) -> bool:
        """Leave what is not written to its end, such as half of a last line; called when it was opened and after
        `seek`, before the first `read`. Returns whether more may be written behind its end, and be read in a later run.
        """
        return False

    def halt(self) -> bool:
        """Of a reader that takes more than was read: take no more; `read` returns what was taken, then None. False of
        one that takes nothing ahead.
        """
        return False

    def left(self) -> list[Any]:
        """Batches of payloads that were taken and not read; called once, after `halt`. What of it has no payload yet,
        such as half of a line, is in the `position`.
        """
        return []


def as_reader(reader: Any) -> Reader:
    """A reader, of whatever class, as a `Reader`."""
    return reader if isinstance(reader, Reader) else pass_on(Reader(), reader)


def pass_on(reader: Reader, inner: Any) -> Reader:
    """Have a reader answer as another object, in all that this can do and the reader's own class leaves as it is."""
    for name, default in [*vars(Positioned).items(), *vars(Reader).items()]:
        if not name.startswith("_") and hasattr(inner, name) and getattr(type(reader), name) is default:
            setattr(reader, name, getattr(inner, name))
    return reader


@runtime_checkable
class Source(Protocol):
    """Something that can be opened for reading.

    Attributes:
        live: whether items come in their own time, so that arrival is stamped from the clock.
    """

    live: bool

    def open(self) -> Reader: ...


class OwnSource:
    """A source of this package.

    Attributes:
        with_schema: of a source of texts, makes the same source with a schema; None if it is none, or was told what
            else its payloads are.
        read_once: what it reads, if that is given once and may have been given to another source too.
        may_grow: whether it is a file that may still be written.
    """

    live = False
    may_grow = False
    read_once: Any = None
    with_schema: Callable[[Mapping[str, Any]], Source] | None = None
    _diverts_as = ""

    def open(self) -> Reader:
        raise NotImplementedError

    def growing(self) -> Self:
        """This source with a reader that raises `NothingYet` at the present end of its file, if that may grow."""
        return self

    def as_piece(self) -> Self:
        """This source as a piece of a log, in which there may be nothing."""
        return self

    def reads(self, file: Path) -> bool:
        """Whether it reads a file of this machine, or would if that was there."""
        return False

    def diverting(self, name: str) -> Self:
        """The same source, which returns `drift_graph.diverted` in place of what it cannot read, under this name."""
        source = copy(self)
        source._diverts_as = name
        return source


def as_rows(source: Source, rows: AsRows | None) -> Source:
    """The source, which reads texts as rows of the schema that the graph's source has, if it has one; as it is, if it
    was told what else its payloads are.

    Raises:
        SettingsError: no text is of a type of the schema.
    """
    with_schema = getattr(source, "with_schema", None)
    return source if rows is None or with_schema is None else with_schema(dict(rows.fields))


def warn_of_loss(why: object) -> None:
    """Warn of what a run has received behind its end, and that the next one cannot have."""
    warn(f"{why}; the run has received it and ended before it, so it is in no output")


class NothingYet(InputError):
    """A reader has reached the present end of a file that is still written; it can be asked again."""
