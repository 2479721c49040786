"""Operators that select or route items."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from drift.flow.choosing import (
    FirstOfKey,
    FirstWithin,
    Inspect,
    LimitStep,
    Members,
    OnSide,
    Unless,
    all_items,
    forget,
    itself,
    value_of,
    zipped,
)
from drift.flow.fields import function_of
from drift.operators import Process
from drift.streams.adding import Steps, span_of
from drift.streams.columnar import Columnar
from drift_graph.called import called
from drift_graph.errors import GraphError
from drift_graph.functions import caller
from drift_graph.meta import phase_of_timers
from drift_graph.moments import Span
from drift_graph.numbers import why_no_int

if TYPE_CHECKING:
    from drift.streams.stream import Stream

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")


@called
class Choosing(Columnar[T]):
    """The methods of a stream that select items."""

    def route(self, *predicates: Callable[[T], object], name: str | None = None) -> tuple[Stream[T], ...]:
        """A stream for each predicate, of the items for which it is the first that is true, and one of the rest.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> small, large = graph.source("numbers").route(lambda number: number < 3)
        >>> small.map(str).sink("small")
        >>> large.sink("large")
        >>> [item.payload for item in drift.run(graph, {"numbers": [1, 5, 2]})]
        ['1', 5, '2']

        Args:
            predicates: pure, one or more; `route(p)` returns (items with p, items without). A stream that is not used
                is left out of the graph.

        Raises:
            GraphError: there is no predicate, or one that cannot be called.
        """
        if not predicates:
            raise GraphError(f"route takes one predicate or more (at {caller()})")
        for predicate in predicates:
            if not callable(predicate):
                raise GraphError(f"route takes predicates, not {predicate!r:.80} (at {caller()})")
        step, routes, rest = self._name(name, "route", predicates[0]), [], self._behind(self._origins)
        self._graph._draft.reserve(step)
        for index, predicate in enumerate(predicates):
            routes.append(rest._part(step, str(index), predicate, "keep", optional=True))
            rest = rest._part(step, f"after {index}", Unless(predicate), "keep", optional=True)
        return tuple(map(self._with_these_fields, (*routes, rest)))

    def split(self, count: int) -> tuple[Stream[T], ...]:
        """`count` streams of all the items. A stream may be used any number of times anyway; this gives them names.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> plain, doubled = graph.source("numbers").split(2)
        >>> plain.sink("plain")
        >>> doubled.map(lambda number: 2 * number).sink("doubled")
        >>> [item.payload for item in drift.run(graph, {"numbers": [4]})]
        [4, 8]

        Raises:
            GraphError: `count` is no int of 1 or more.
        """
        if why_no_int(count):
            raise GraphError(f"split takes an int of 1 or more, not {count!r:.80} (at {caller()})")
        return (self._with_these_fields(self._behind(self._origins)),) * count

    def zip(self, other: Stream[U], *, name: str | None = None) -> Stream[tuple[T, U]]:
        """Pairs (left, right) by order: the n-th item of this stream with the n-th of the other.

        A pair has the time of its later item. Items without a partner wait in the state, and appear in no pair.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> graph.source("left").zip(graph.source("right")).sink("pairs")
        >>> [item.payload for item in drift.run(graph, {"left": ["a", "b", "c"], "right": [1, 2]})]
        [('a', 1), ('b', 2)]
        """
        self._check_graph(other)
        step = self._named(name, "zip")
        left = self._part(step, "left", OnSide(0), "one")
        both = left.merge(other._part(step, "right", OnSide(1), "one"))
        return both._chosen(all_items, None, zipped, step, zipped)

    def limit(
        self, count: int, offset: int = 0, *, key: Callable[[T], Any] | str = all_items, name: str | None = None
    ) -> Stream[T]:
        """The first `count` items in order after the first `offset`, of each key if there is one. The input is still
        read to its end.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> graph.source("words").limit(2, offset=1).sink("some")
        >>> [item.payload for item in drift.run(graph, {"words": ["to", "be", "or", "not"]})]
        ['be', 'or']

        Args:
            count: 0 or more.
            offset: 0 or more.
            key: pure; see `group`.

        Raises:
            GraphError: `count` or `offset` is no int of 0 or more.
        """
        for what, number in (("count", count), ("offset", offset)):
            if type(number) is not int or number < 0:
                raise GraphError(f"limit takes {what}= an int of 0 or more, not {number!r:.80} (at {caller()})")
        key = self._reading("limit", key)
        step = self._named(name, "limit", key)
        return self._with_these_fields(self._chosen(key, 0, LimitStep(count, offset), step, key))

    def dedup(
        self, key: Callable[[T], Any] | str = itself, *, within: Span | None = None, name: str | None = None
    ) -> Stream[T]:
        """The first item of each key, in order.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> graph.source("words").dedup(str.lower).sink("new")
        >>> [item.payload for item in drift.run(graph, {"words": ["to", "be", "To"]})]
        ['to', 'be']

        Args:
            key: pure; see `group`. Or the name of a field. Without it equal payloads are duplicates.
            within: after an item that passes, others of its key are dropped for this duration, in the unit of its time,
                bound included; the next one passes again, and only the keys of that duration are stored. None: they are
                dropped for ever, and every key is stored.
        """
        key = self._reading("dedup", function_of("dedup", key, "a function that gives the key, or the name of a field"))
        step = self._named(name, "dedup", key)
        if within is None:
            stream: Stream[T] = self._chosen(key, False, FirstOfKey(), step, key)
        else:
            first = FirstWithin(span_of("within", within, caller()), key)
            stream = self._process(Process(key, False, first, forget, phase_of_timers(self._timed_steps)), step)
        return self._with_these_fields(stream)

    def inspect(self, function: Callable[[T], object], *, name: str | None = None) -> Stream[T]:
        """The same items; `function` is called with each as it is processed, for debugging.

        It is called wherever the step runs, in no certain order, and again for corrections. For an effect once for each
        item use a sink.

        >>> import drift
        >>> graph, seen = drift.Graph("example"), []
        >>> graph.source("words").inspect(seen.append).sink("out")
        >>> drift.run(graph, {"words": ["to", "be"]}).finish().items_out, seen
        (2, ['to', 'be'])
        """
        step = self._name(name, "inspect", function)
        return self._with_these_fields(self._part(step, "", Inspect(function), "one"))

    def flatten(self: Steps[Iterable[U]], *, name: str | None = None) -> Stream[U]:
        """The members of each payload: a list, a tuple or another iterable, but no text, dict or set.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> graph.source("pairs").flatten().sink("members")
        >>> [item.payload for item in drift.run(graph, {"pairs": [(1, 2), (3, 4)]})]
        [1, 2, 3, 4]
        """
        return self._part(self._named(name, "flatten"), "", Members(), "many")

    def drop_key(self: Steps[tuple[Any, V]], *, name: str | None = None) -> Stream[V]:
        """The value of each pair (key, value).

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> graph.source("pairs").drop_key().sink("values")
        >>> [item.payload for item in drift.run(graph, {"pairs": [("a", 1), ("b", 2)]})]
        [1, 2]
        """
        return self._part(self._named(name, "drop_key"), "", value_of, "one")
