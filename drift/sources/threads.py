"""A blocking iterable as a live source: a thread waits for its items.

Invariant: at most `buffer_items_max` items are between the iterable and the engine; before the first `read`, and after
`halt` or `close`, the thread takes none, so that a run which is refused leaves the iterable whole. What it has taken is
read, or is `left`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from drift.guarantees import SourceGuarantee
from drift.sources.polled import AsMade, PolledSource, Poller
from drift_graph.errors import SettingsError
from drift_graph.functions import warn
from drift_graph.numbers import check_int, check_seconds
from drift_graph.sizes import BATCH_BYTES, size_of

_SAMPLE_EVERY = 16  # one item in so many is measured
_GUARANTEE = SourceGuarantee("not at all", "what an iterable gives in its own time it gives once")


def live(iterable: Iterable[Any], *, buffer_items_max: int = 8192, close_max_s: float = 1.0) -> PolledSource:
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
    check_int("buffer_items_max", buffer_items_max)
    check_seconds("close_max_s", close_max_s, or_none=True)
    shown = f"live({type(iterable).__name__})"
    poll = partial(_Iterated, iterable, buffer_items_max, close_max_s)
    source = PolledSource(shown, _GUARANTEE, poll, AsMade(), live=True)
    source.read_once = iterable if isinstance(iterable, Iterator) else None
    return source


class _Iterated(Poller):
    is_one_by_one = True

    def __init__(self, iterable: Iterable[Any], buffer_items_max: int, close_max_s: float) -> None:
        self._iterable = iterable
        self._iterator: Iterator[Any] | None = None
        self._buffer_items_max = self.buffered_max = buffer_items_max
        self.close_max_s = close_max_s

    def fetches(self) -> Iterator[Any]:
        self._iterator = iter(self._iterable)
        for number, payload in enumerate(self._iterator):
            if number % _SAMPLE_EVERY == 0:  # fewer, where they are large
                self.buffered_max = max(min(self._buffer_items_max, BATCH_BYTES // size_of(payload)), 1)
            yield payload

    def last(self) -> None:
        try:
            getattr(self._iterator, "close", lambda: None)()
        except Exception as error:  # the run has ended
            warn(f"the iterable of a live source raised {type(error).__name__} when it was closed: {error}")
