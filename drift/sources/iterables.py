"""Iterables, generators and sequences in memory as sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from drift.guarantees import SourceGuarantee
from drift.sources.base import Reader
from drift.sources.positions import LastRead, position_fields, position_lost, position_of
from drift_graph.errors import InputError
from drift_graph.sizes import BATCH_BYTES, about_bytes
from drift_graph.unchanged import Sample, Sampler

#: Items that are taken before their size is checked: if they are in memory anyway, and if reading creates them.
_SEQUENCE_AT_ONCE_MAX, _AT_ONCE_MAX = 4096, 128


class IterableSource:
    """Any iterable or generator: read to its end, in the engine's own thread."""

    live = False
    guarantee = SourceGuarantee("not at all", "an iterator is read once")

    def __init__(self, payloads: Iterable[Any]) -> None:
        self._payloads = payloads
        self.read_once = payloads if isinstance(payloads, Iterator) else None
        if self.read_once is None:
            self.guarantee = SourceGuarantee("from a position", "it can be iterated again, to the same items")

    def open(self) -> Reader:
        return IterableReader(self._payloads)


class IterableReader(Reader):
    """Reads an iterable in batches."""

    def __init__(self, payloads: Iterable[Any]) -> None:
        self._iterator = iter(payloads)
        self._repeatable = not isinstance(payloads, Iterator)
        self._returned = 0
        self._error: Exception | None = None
        is_sequence = isinstance(payloads, (list, tuple, range))
        self._at_once = 1  # items that are taken before their size is checked
        self._at_once_max = _SEQUENCE_AT_ONCE_MAX if is_sequence else _AT_ONCE_MAX
        self._sampler = None if is_sequence else Sampler()
        self._last: list[Sample] = []  # of the last batch
        self._read = LastRead()
        self._closes = self._repeatable  # then the iterator is its own; another one once it is read

    def read(self, items_max: int) -> list[Any] | None:
        if self._error is not None:
            raise self._error
        self._closes = True
        batch: list[Any] = []
        sampled = self._last
        room_bytes = BATCH_BYTES
        try:
            if self._sampler is not None:
                batch.extend(islice(self._iterator, 1))
                self._last = self._sampler.sample(batch)
                sampled = [*sampled, *self._last]
            while room_bytes > 0 and (requested := min(self._at_once, items_max - len(batch))) > 0:
                before = len(batch)
                batch.extend(islice(self._iterator, requested))
                received = len(batch) - before
                if received < requested:
                    break
                size = about_bytes(batch[before:])
                room_bytes -= size
                self._at_once = min(BATCH_BYTES * received // (4 * size + 1) + 1, 2 * self._at_once, self._at_once_max)
        except Exception as error:
            self._error = error
            if not batch:
                raise
            # The items before it are returned first.
        for each in sampled:
            if each.is_changed:
                self._error = InputError(
                    f"a source changed a payload in place after yielding it: {each.difference}; yield a new "
                    f"payload each time, dict(row) in place of row"
                )
                raise self._error
        self._returned += len(batch)
        if self._repeatable and batch:
            self._read.note(batch)
        return batch or None

    def position(self) -> Any:
        """How many items were returned, and hashes of the last and of all; None for an iterator."""
        if not self._repeatable:
            return None
        return position_of("items", item=self._returned, **self._read.known(self._returned))

    def seek(self, position: Any) -> None:
        """An iterable that is not a sequence is iterated up to there."""
        (item,) = position_fields(position, "items", "an iterable", "item")
        available, read = 0, LastRead()
        while available < item and (batch := list(islice(self._iterator, min(self._at_once_max, item - available)))):
            available += len(batch)
            read.note(batch)
            if position.get("content"):
                read.known(available)
        if available < item:
            raise position_lost("an iterable", f"item {item}", f"it has {available}")
        read.check(position, "an iterable", item)
        self._returned, self._read = item, read

    def close(self) -> None:
        """Close an iterator that was read; one of a run that was refused before is its owner's, whole."""
        close = getattr(self._iterator, "close", None)
        if close is not None and self._closes:
            close()
