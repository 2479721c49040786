"""The interface of a source to an engine.

Invariant: a reader returns every payload it has read before it raises, so an error loses no accepted item.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol, runtime_checkable

from drift.guarantees import SourcePromise
from drift_graph.errors import InputError, SettingsError
from drift_graph.sizes import BATCH_BYTES, about_bytes
from drift_graph.unchanged import Sample, Sampler

#: Items that are taken before their size is checked: if they are in memory anyway, and if reading creates them.
_KEPT_AT_ONCE_MAX, _AT_ONCE_MAX = 4096, 128


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
class SetsApart(Protocol):
    """A source that can continue behind input that it cannot read."""

    def setting_apart(self, name: str) -> Source:
        """The same source, which returns `drift_graph.diverted` in place of what it cannot read, under this name."""


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
class Acknowledging(Protocol):
    """A reader that acknowledges released items to an external system: the offsets of a consumer group.

    Attributes:
        acknowledges: whether the user asked for it.
    """

    acknowledges: bool

    def released(self, position: Any) -> None:
        """Everything before one of its positions was released and handed to the sinks."""


class NothingYet(InputError):
    """A reader has reached the present end of a file that is still written; its position is unchanged."""


_FORM = 1


def position_of(kind: str, **where: Any) -> dict[str, Any]:
    """A position of a kind of source, with the version of its format."""
    return {"v": _FORM, "kind": kind, **where}


def where_in(position: Any, kind: str, what: str, *names: str) -> list[Any]:
    """The entries of a position of the given kind.

    Args:
        what: the source, for errors.

    Raises:
        InputError: it is a position of another kind or version.
    """
    if (
        not isinstance(position, Mapping)
        or (position.get("v"), position.get("kind")) != (_FORM, kind)
        or not all(name in position for name in names)
    ):
        raise InputError(
            f"{what} cannot be read from {position!r:.200}: that is no position of this kind of source ({kind!r}) in a "
            f"form that this version knows; pass the source that was read, or continue with the version that wrote it"
        )
    return [position[name] for name in names]


def gone(what: str, was: str, now: str) -> InputError:
    """The error for data that a position refers to and that no longer exists."""
    return InputError(
        f"{what} was read up to {was} when the state was saved that the run goes on from, and now {now}; bring back "
        f"what was there, or begin anew with another state"
    )


class IterableSource:
    """Any iterable or generator: read to its end, in the engine's own thread."""

    live = False
    promise = SourcePromise("not at all", "an iterator is read once")

    def __init__(self, payloads: Iterable[Any]) -> None:
        self._payloads = payloads
        if not isinstance(payloads, Iterator):
            self.promise = SourcePromise("from a position", "it can be iterated again, to the same items")

    def open(self) -> Reader:
        return IterableReader(self._payloads)


class IterableReader:
    """Reads an iterable in batches."""

    def __init__(self, payloads: Iterable[Any]) -> None:
        self._iterator = iter(payloads)
        self._payloads = payloads
        self._again = not isinstance(payloads, Iterator)
        self._given = 0
        self._error: Exception | None = None
        is_kept = isinstance(payloads, (list, tuple, range))
        self._at_once = 1  # items that are taken before their size is checked
        self._at_once_max = _KEPT_AT_ONCE_MAX if is_kept else _AT_ONCE_MAX
        self._sampler = None if is_kept else Sampler()
        self._last: list[Sample] = []  # of the last batch

    def read(self, items_max: int) -> list[Any] | None:
        if self._error is not None:
            raise self._error
        batch: list[Any] = []
        seen = self._last
        room_bytes = BATCH_BYTES
        try:
            if self._sampler is not None:
                batch.extend(islice(self._iterator, 1))
                self._last = self._sampler.sample(batch)
                seen = [*seen, *self._last]
            while room_bytes > 0 and (wanted := min(self._at_once, items_max - len(batch))) > 0:
                before = len(batch)
                batch.extend(islice(self._iterator, wanted))
                came = len(batch) - before
                if came < wanted:
                    break
                size = about_bytes(batch[before:])
                room_bytes -= size
                self._at_once = min(BATCH_BYTES * came // (4 * size + 1) + 1, 2 * self._at_once, self._at_once_max)
        except Exception as error:
            self._error = error
            if not batch:
                raise
            # The items before it are returned first.
        for each in seen:
            if each.is_changed:
                self._error = InputError(
                    f"a source changed a payload in place after it had given it: {each.difference}; give a new one "
                    f"each time, as dict(row) in place of row"
                )
                raise self._error
        self._given += len(batch)
        return batch or None

    def position(self) -> Any:
        """See `Positioned`: how many items were returned; None for an iterator."""
        return position_of("items", item=self._given) if self._again else None

    def seek(self, position: Any) -> None:
        """See `Positioned`; an iterable that is not a sequence is iterated up to there."""
        (item,) = where_in(position, "items", "an iterable", "item")
        payloads = self._payloads
        if isinstance(payloads, (range, list, tuple)):
            there = min(item, len(payloads))
            self._iterator = iter(payloads[item:]) if isinstance(payloads, range) else islice(payloads, item, None)
        else:
            there = sum(1 for _ in islice(self._iterator, item))
        if there < item:
            raise gone("an iterable", f"item {item}", f"it has {there}")
        self._given = item

    def filenos(self) -> Sequence[int]:
        return ()

    def close(self) -> None:
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()


def as_source(name: str, given: Any) -> Source:
    """A source from the user's argument for a name."""
    if hasattr(type(given), "mapInArrow"):  # a Spark DataFrame; over Connect it seems to have any attribute
        from drift.sources.frames import FrameSource

        return FrameSource(given)
    if isinstance(given, Source):
        return given
    if isinstance(given, (str, bytes)):
        raise SettingsError(
            f"source {name!r} is given the text {given!r:.80}; to read a file use drift.sources.text(path), and to "
            f"stream its characters list(...)"
        )
    if isinstance(given, os.PathLike):
        raise SettingsError(
            f"source {name!r} is given the path {given!r:.80}; say what is in the file: drift.sources.text, jsonl or "
            f"csv(path)"
        )
    if isinstance(given, Mapping):
        raise SettingsError(f"source {name!r} is given a dict, which would be its keys only; use .items() or .values()")
    if isinstance(given, (set, frozenset)):
        raise SettingsError(f"source {name!r} is given a set, whose order changes from run to run; use sorted(...)")
    if any(hasattr(type(given), of_tables) for of_tables in ("itertuples", "iter_rows", "__arrow_c_stream__")):
        from drift.sources.tables import is_table, table

        if is_table(given):
            return table(given)
    if isinstance(given, (list, tuple)) and given and all(isinstance(each, Source) for each in given):
        raise SettingsError(
            f"source {name!r} is given a {type(given).__name__} of {len(given)} sources; give each of them a source of "
            f"the graph, and merge the streams: graph.source('a').merge(graph.source('b'))"
        )
    if isinstance(given, Iterable):
        return IterableSource(given)
    raise SettingsError(f"source {name!r} is given {given!r:.80}, which is neither an iterable nor a drift source")
