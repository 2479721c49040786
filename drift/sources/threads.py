"""A blocking iterable as a live source: a thread waits for its items.

Invariant: at most `buffer_items_max` items are between the iterable and the engine; before the first `read`, and after
`halt` or `close`, the thread takes none, so that a run which is refused leaves the iterable whole. What it has taken is
read, or is `left`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from drift.guarantees import SourceGuarantee
from drift.sources.base import Reader
from drift.sources.ended import note_end
from drift.sources.wake import Buffered
from drift_graph.errors import SettingsError
from drift_graph.functions import warn
from drift_graph.sizes import BATCH_BYTES, size_of

_SAMPLE_EVERY = 16  # one item in so many is measured


def live(iterable: Iterable[Any], *, buffer_items_max: int = 8192, close_max_s: float = 1.0) -> LiveSource:
    """An iterable or generator that blocks until it has an item, as a live source.

    It is iterated in a thread of its own. An exception of the iterable ends the run, after the items before it.

    >>> import drift
    >>> graph = drift.Graph("readings")
    >>> graph.source("sensor").map(lambda reading: reading * 2).sink("out")
    >>> [item.payload for item in drift.run(graph, {"sensor": drift.sources.live(iter([20, 21]))})]
    [40, 42]

    Args:
        buffer_items_max: when so many items wait for the engine, the iterable is not advanced.
        close_max_s: how long the end of a run waits for the iterable to yield its next item, so that a generator's
            `finally` runs; one that blocks longer cannot be interrupted, and its thread ends at its next item.

    Raises:
        SettingsError: it cannot be iterated, `buffer_items_max` is below 1, or `close_max_s` below 0.
    """
    if isinstance(iterable, (str, bytes)) or not isinstance(iterable, Iterable):
        hint = "; call it, live(it())" if callable(iterable) else ""
        raise SettingsError(f"live takes an iterable or generator of payloads, not {iterable!r:.80}{hint}")
    if type(buffer_items_max) is not int or buffer_items_max < 1:
        raise SettingsError(f"buffer_items_max={buffer_items_max!r} is not an int of 1 or more")
    if not close_max_s >= 0:
        raise SettingsError(f"close_max_s={close_max_s!r} is no number of seconds of 0 or more")
    return LiveSource(iterable, buffer_items_max, close_max_s)


class LiveSource:
    live = True
    guarantee: ClassVar = SourceGuarantee("not at all", "what an iterable gives in its own time it gives once")

    def __init__(self, iterable: Iterable[Any], buffer_items_max: int, close_max_s: float) -> None:
        self._iterable = iterable
        self.read_once = iterable if isinstance(iterable, Iterator) else None
        self._buffer_items_max = buffer_items_max
        self._close_max_s = close_max_s

    def open(self) -> Reader:
        return _LiveReader(self._iterable, self._buffer_items_max, self._close_max_s)


class _LiveReader(Buffered, Reader):
    def __init__(self, iterable: Iterable[Any], buffer_items_max: int, close_max_s: float) -> None:
        Buffered.__init__(self, "drift live source")
        self._iterable = iterable
        self._iterator: Any = None
        self._buffer_items_max = buffer_items_max
        self._close_max_s = close_max_s

    def _fill(self) -> None:
        most = self._buffer_items_max  # or fewer, where they are large
        self._iterator = iter(self._iterable)
        for number, payload in enumerate(self._iterator):
            if number % _SAMPLE_EVERY == 0:
                most = max(min(self._buffer_items_max, BATCH_BYTES // size_of(payload)), 1)
            if not self._put(payload, most):
                break

    def _run(self) -> None:
        super()._run()
        if self._closed and hasattr(self._iterator, "close"):
            self._iterator.close()

    def read(self, items_max: int) -> list[Any] | None:
        self._begin()
        buffer = self._buffer
        with self._changed:
            batch = [buffer.popleft() for _ in range(min(items_max, len(buffer)))]
            self._after_taking()
            if batch or not self._ended:
                return batch
        self._raise_at_end()
        if isinstance(self._iterable, Iterator) and not self._closed:
            note_end(self._iterable)
        return None

    def halt(self) -> bool:
        self._halted(self._close_max_s)
        self._close_max_s = 0.0  # which was waited for
        return True

    def left(self) -> list[Any]:
        return [self._buffered()]

    def close(self) -> None:
        self._close()
        if not self._joined(self._close_max_s):
            warn(
                "the iterable of a live source has not given its next item within close_max_s; its thread ends when it "
                "does",
                ResourceWarning,
            )
