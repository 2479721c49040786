"""Streams in windows: an aggregate defines the result of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from drift.flow import aggregates as agg
from drift.flow.aggregates import Aggregate, check_aggregate, several
from drift.flow.windows import Early, Window, Windows, check_windows
from drift_graph.errors import GraphError
from drift_graph.functions import caller

if TYPE_CHECKING:
    from drift.streams.stream import Stream

T = TypeVar("T")
S = TypeVar("S")
K = TypeVar("K")
V = TypeVar("V")


class WindowedStream(Generic[K, T]):
    """A stream cut into windows; an aggregate defines the result of each. `Stream.window` makes it."""

    def __init__(
        self, stream: Stream[T], key: Callable[[T], Any], windows: Windows, early: Early | None = None
    ) -> None:
        check_windows(windows)
        if early is not None and not isinstance(early, Early):
            raise GraphError(f"early= takes drift.windows.every(...), not {early!r:.80} (at {caller()})")
        self._stream = stream
        self._key = key
        self._windows = windows
        self._early = early

    @overload
    def aggregate(
        self, aggregate: Aggregate[T, V], /, *, name: str | None = None, durable: bool = False
    ) -> Stream[Window[K, V]]: ...
    @overload
    def aggregate(
        self, /, *, name: str | None = None, durable: bool = False, **named: Aggregate[T, Any]
    ) -> Stream[Window[K, dict[str, Any]]]: ...
    def aggregate(
        self,
        aggregate: Aggregate[T, Any] | None = None,
        /,
        *,
        name: str | None = None,
        durable: bool = False,
        **named: Aggregate[T, Any],
    ) -> Stream[Any]:
        """A `drift.Window` for each window that has items: its key, start, end and value.

        A window [start, end) by time gives its result at `end - 1`, after every item of that time.

        Args:
            aggregate: one of `drift.agg`, such as `drift.agg.sum(function)`.
            durable: see `Stream.flat_map`.
            named: or several at once, and the value is a dict: `aggregate(n=drift.agg.count(), last=drift.agg.last())`.
        """
        if (aggregate is None) is not bool(named):
            raise GraphError(f"aggregate takes one of drift.agg, or several of them by name (at {caller()})")
        chosen = several(**named) if aggregate is None else aggregate
        check_aggregate(chosen, "aggregate:")
        steps = self._windows.steps(self._key, chosen, self._early)
        return self._stream._steps(steps, self._stream._named(name, "window by", self._key), "slices")._durable_if(
            durable
        )

    def count(self, *, name: str | None = None) -> Stream[Window[K, int]]:
        """How many items each window has."""
        return self.aggregate(agg.count(), name=name)

    def sum(self, of: Callable[[T], V], *, name: str | None = None) -> Stream[Window[K, V]]:
        """The sum of `of(payload)` in each window."""
        return self.aggregate(agg.sum(of), name=name)

    def mean(self, of: Callable[[T], Any], *, name: str | None = None) -> Stream[Window[K, Any]]:
        """The mean of `of(payload)` in each window."""
        return self.aggregate(agg.mean(of), name=name)

    def min(self, of: Callable[[T], V], *, name: str | None = None) -> Stream[Window[K, V]]:
        """The least `of(payload)` in each window."""
        return self.aggregate(agg.min(of), name=name)

    def max(self, of: Callable[[T], V], *, name: str | None = None) -> Stream[Window[K, V]]:
        """The greatest `of(payload)` in each window."""
        return self.aggregate(agg.max(of), name=name)

    def reduce(self, function: Callable[[T, T], T], *, name: str | None = None) -> Stream[Window[K, T]]:
        """The payloads of each window, combined two by two; see `drift.agg.reduce`."""
        return self.aggregate(agg.reduce(function), name=name)

    def fold(self, initial: S, function: Callable[[S, T], S], *, name: str | None = None) -> Stream[Window[K, S]]:
        """The payloads of each window folded from `initial`; see `drift.agg.fold`."""
        return self.aggregate(agg.fold(initial, function), name=name)

    def collect(self, *, name: str | None = None) -> Stream[Window[K, tuple[T, ...]]]:
        """The payloads of each window, as a tuple in order."""
        return self.aggregate(agg.collect(), name=name)

    def __repr__(self) -> str:
        return f"<{self._stream!r} in windows {self._windows!r}>"
