"""Joins: pairs of items of two streams, or of a stream and a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from drift.flow.choosing import all_items
from drift.flow.fields import check_fields, function_of, names_of
from drift.flow.joins import (
    DIRECTIONS,
    EVER,
    HOWS,
    AsOfJoin,
    Direction,
    ExistsJoin,
    How,
    InnerJoin,
    Lookup,
    NearestJoin,
    NearestOuterJoin,
    OfSide,
    OfSideWithNulls,
    PairJoin,
    TableJoin,
    WindowJoin,
    before_every_time,
    key_of,
    payload_of,
    rows_of,
)
from drift.flow.joins import value_of as value_of_window
from drift.flow.windows import Windows
from drift.operators import Process
from drift.streams.adding import Steps, span_of
from drift.streams.columnar import Columnar
from drift.streams.windowed import WindowedStream
from drift_graph.called import called
from drift_graph.canonical import canonical
from drift_graph.errors import GraphError, PayloadError
from drift_graph.functions import caller
from drift_graph.meta import phase_of_timers
from drift_graph.moments import Span, span_from
from drift_graph.policies import EventTime

if TYPE_CHECKING:
    from drift.columns.flat import Names
    from drift.streams.stream import Stream

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")

_KEY = "a function that gives the key, or the name of a field"
#: The allowed distance in time of a pair; see `Stream.join`.
Within = tuple[Span, Span] | Windows | None


@called
class Joining(Columnar[T]):
    """The methods of a stream for joins."""

    # fmt: off
    @overload
    def join(
        self, other: Stream[U], key: Callable[[T], Any] | str, other_key: Callable[[U], Any] | str | None = None, *,
        within: Within = None, how: Literal["inner"] = "inner", nulls_equal: bool = False,
        name: str | None = None,
    ) -> Stream[tuple[T, U]]: ...
    @overload
    def join(
        self, other: Stream[U], key: Callable[[T], Any] | str, other_key: Callable[[U], Any] | str | None = None, *,
        within: Within = None, how: Literal["left"], nulls_equal: bool = False,
        name: str | None = None,
    ) -> Stream[tuple[T, U | None]]: ...
    @overload
    def join(
        self, other: Stream[U], key: Callable[[T], Any] | str, other_key: Callable[[U], Any] | str | None = None, *,
        within: Within = None, how: Literal["right"], nulls_equal: bool = False,
        name: str | None = None,
    ) -> Stream[tuple[T | None, U]]: ...
    @overload
    def join(
        self, other: Stream[U], key: Callable[[T], Any] | str, other_key: Callable[[U], Any] | str | None = None, *,
        within: Within = None, how: Literal["full"], nulls_equal: bool = False,
        name: str | None = None,
    ) -> Stream[tuple[T | None, U | None]]: ...
    @overload
    def join(
        self, other: Stream[U], key: Callable[[T], Any] | str, other_key: Callable[[U], Any] | str | None = None, *,
        within: Within = None, how: Literal["semi", "anti"], nulls_equal: bool = False,
        name: str | None = None,
    ) -> Stream[T]: ...
    @overload
    def join(
        self, other: Stream[U], key: Callable[[T], Any] | str, other_key: Callable[[U], Any] | str | None = None, *,
        within: Within = None, how: Literal["inner", "left", "right", "full"] = "inner", flat: Literal[True],
        nulls_equal: bool = False,
        name: str | None = None,
    ) -> Stream[dict[str, Any]]: ...
    def join(
        self, other: Stream[Any], key: Callable[[T], Any] | str, other_key: Callable[[Any], Any] | str | None = None, *,
        within: Within = None, how: How = "inner", flat: bool = False, nulls_equal: bool = False,
        name: str | None = None,
    ) -> Stream[Any]:
        """Pairs (left, right) of items of this stream and the other with equal keys; a pair has the time of its later
        item.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> orders, customers = graph.source("orders"), graph.source("customers")
        >>> orders.join(customers, key=lambda order: order[0], other_key=lambda customer: customer[0]).sink("both")
        >>> rows = {"orders": [("al", 5)], "customers": [("al", "Oslo"), ("bo", "Rome")]}
        >>> [item.payload for item in drift.run(graph, rows)]
        [(('al', 5), ('al', 'Oslo'))]

        Args:
            other: the right side.
            key: pure; see `group`. Here, as in all joins, the name of a field stands for the function that reads it.
            other_key: of the right side; `key` for both if None.
            within: (before, after): a left item at t pairs with right ones in [t - before, t + after], bounds included,
                in the unit of the items' time; items that can match nothing more are dropped. Or windows, such as
                `drift.windows.tumbling(60)`: pairs within one window, at its end. None: all pairs, and all items are
                stored.
            how: "inner" gives pairs alone. "left", "right" and "full" also give (left, None), (None, right) or both for
                items without match, once that is certain: when all items that it could match have come, or without
                `within` at drift.END. "semi" gives left items that have a match, each once, at its first match; "anti"
                those that have none, once that is certain.
            nulls_equal: whether None is a key like others. By default a key that is None, or of which one of several
                fields is, has no pair, as in SQL and Polars.
            flat: in place of a pair a row, with the fields of the left and those of the right behind them, whose
                `schema` is known; so those of both streams have to be. A field of the right that the left has too is
                called `NAME_right`. Where both keys are names of fields, "inner" and "left" leave the right's out.

        Raises:
            GraphError: `other` is of another graph, an argument is none of these, or with `flat` the fields
                of a stream are not known.
        """
        join: PairJoin | ExistsJoin
        where, key = caller(), self._reading("join", function_of("join", key, _KEY))
        if how not in HOWS:
            raise GraphError(f"join takes how= one of {', '.join(HOWS)}, not {how!r:.80} (at {where})")
        if how in ("semi", "anti") and flat:
            raise GraphError(f"join with how={how!r} (at {where}) gives rows of the left as they are, and no flat ones")
        names = self._names_of_both(other, key, other_key, "join", left_out=how in ("inner", "left")) if flat else None
        if isinstance(within, Windows):
            step = self._name(name, "join", key)
            both = self._both(other, key, other_key, step, nulls_equal)
            windowed: WindowedStream[Any, Any] = WindowedStream(both, key_of, within.inside(payload_of))
            pairs = windowed.aggregate(WindowJoin(how), name=step)._part(step, "pairs", value_of_window, "many")
            return self._joined_rows(pairs, names, step, how)
        before, after = (EVER, EVER) if within is None else _bounds_of(within, where)
        if how in ("semi", "anti"):
            join = ExistsJoin(before, after, how == "anti", key)
        elif how == "inner" and before >= 0 and after >= 0:
            join = InnerJoin(before, after, (False, False), key)
        else:
            join = PairJoin(before, after, (how in ("left", "full"), how in ("right", "full")), key)
        return self._joined(other, key, other_key, join, (), name, "join", names, how, nulls_equal)

    @overload
    def join_as_of(
        self, other: Stream[U], key: Callable[[T], Any] | str, other_key: Callable[[U], Any] | str | None = None, *,
        within: Span | None = None, direction: Direction = "backward", allow_exact: bool = True,
        how: Literal["left"] = "left", nulls_equal: bool = False,
        name: str | None = None,
    ) -> Stream[tuple[T, U | None]]: ...
    @overload
    def join_as_of(
        self, other: Stream[U], key: Callable[[T], Any] | str, other_key: Callable[[U], Any] | str | None = None, *,
        within: Span | None = None, direction: Direction = "backward", allow_exact: bool = True,
        how: Literal["inner"], nulls_equal: bool = False,
        name: str | None = None,
    ) -> Stream[tuple[T, U]]: ...
    @overload
    def join_as_of(
        self, other: Stream[U], key: Callable[[T], Any] | str, other_key: Callable[[U], Any] | str | None = None, *,
        within: Span | None = None, direction: Direction = "backward", allow_exact: bool = True,
        how: Literal["right"], nulls_equal: bool = False,
        name: str | None = None,
    ) -> Stream[tuple[T | None, U]]: ...
    @overload
    def join_as_of(
        self, other: Stream[U], key: Callable[[T], Any] | str, other_key: Callable[[U], Any] | str | None = None, *,
        within: Span | None = None, direction: Direction = "backward", allow_exact: bool = True,
        how: Literal["full"], nulls_equal: bool = False,
        name: str | None = None,
    ) -> Stream[tuple[T | None, U | None]]: ...
    @overload
    def join_as_of(
        self, other: Stream[U], key: Callable[[T], Any] | str, other_key: Callable[[U], Any] | str | None = None, *,
        within: Span | None = None, direction: Direction = "backward", allow_exact: bool = True,
        how: Literal["left", "inner", "right", "full"] = "left", flat: Literal[True], nulls_equal: bool = False,
        name: str | None = None,
    ) -> Stream[dict[str, Any]]: ...
    def join_as_of(
        self, other: Stream[Any], key: Callable[[T], Any] | str, other_key: Callable[[Any], Any] | str | None = None, *,
        within: Span | None = None, direction: Direction = "backward", allow_exact: bool = True,
        how: Literal["left", "inner", "right", "full"] = "left", flat: bool = False, nulls_equal: bool = False,
        name: str | None = None,
    ) -> Stream[Any]:
        """Each item with the last of the other stream at or before its time, of its key: pandas' merge_asof.

        Or with the first at or after it, or the nearest. A pair comes after all items of the left item's time, so that
        one of the same time is found; with the first after it, or the nearest, when no item to come can be nearer. The
        last right item of each key is stored.

        Of several right items of one time the last in order is found by "backward", the first by "forward", and by
        "nearest" the last if they are not after the left item, else the first; of two that are equally near "nearest"
        takes that before. So it is in pandas, whatever order their rows have here. Right items of one time that are not
        the one which is found have no match, as "right" and "full" then say.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> by_time = drift.EventTime(time=lambda row: row[0])
        >>> trades, prices = graph.source("trades", time=by_time), graph.source("prices", time=by_time)
        >>> trades.join_as_of(prices, key=lambda row: row[1]).sink("priced")
        >>> [item.payload for item in drift.run(graph, {"trades": [(5, "X")], "prices": [(1, "X", 10), (4, "X", 11)]})]
        [((5, 'X'), (4, 'X', 11))]
        >>> graph = drift.Graph("prices without a trade too")
        >>> trades, prices = graph.source("trades", time=by_time), graph.source("prices", time=by_time)
        >>> trades.join_as_of(prices, key=lambda row: row[1], how="full").sink("priced")
        >>> [item.payload for item in drift.run(graph, {"trades": [(5, "X")], "prices": [(1, "X", 10), (4, "X", 11)]})]
        [(None, (1, 'X', 10)), ((5, 'X'), (4, 'X', 11))]

        Args:
            other: the right side.
            key: pure; anything with canonical bytes.
            other_key: of the right side; `key` for both if None.
            within: the right item may be away by at most this, in the unit of the items' time; older ones are dropped.
            direction: "backward" finds the last at or before the item's time, "forward" the first at or after it,
                "nearest" the nearer of both.
            allow_exact: whether one of the same time is found; False asks for one strictly before, or after.
            how: "left" gives (left, None) if there is none, "inner" nothing. "right" gives (None, right) for one of the
                right that no left one has found, and "full" both: once a later right item hides it or no left item to
                come is within reach, at the latest at drift.END.
            nulls_equal: whether None is a key like others. By default a key that is None, or of which one of several
                fields is, has no pair, as in SQL and Polars.
            flat: rows in place of pairs; see `join`.

        Raises:
            GraphError: `other` is of another graph, an argument is none of these, or with `flat` the fields
                of a stream are not known.
        """
        where, key = caller(), self._reading("join_as_of", function_of("join_as_of", key, _KEY))
        span = EVER if within is None else span_of("within", within, where)
        if how not in ("left", "inner", "right", "full"):
            raise GraphError(f"join_as_of takes how= left, inner, right or full, not {how!r:.80} (at {where})")
        if direction not in DIRECTIONS:
            raise GraphError(
                f"join_as_of takes direction= one of {', '.join(DIRECTIONS)}, not {direction!r:.80} (at {where})"
            )
        outer, gives_right = how in ("left", "full"), how in ("right", "full")
        names = self._names_of_both(other, key, other_key, "join_as_of", left_out=not gives_right) if flat else None
        join: AsOfJoin | NearestJoin = AsOfJoin(span, outer, key)
        if direction != "backward" or not allow_exact or gives_right:
            kind = NearestOuterJoin if gives_right else NearestJoin
            join = kind(direction, bool(allow_exact), span, outer, key)
        return self._joined(other, key, other_key, join, (), name, "join_as_of", names, "", nulls_equal)

    @overload
    def join_table(
        self, table: Stream[U], key: Callable[[T], Any] | str, table_key: Callable[[U], Any] | str, *,
        how: Literal["left"] = "left", nulls_equal: bool = False,
        name: str | None = None,
    ) -> Stream[tuple[T, U | None]]: ...
    @overload
    def join_table(
        self, table: Stream[U], key: Callable[[T], Any] | str, table_key: Callable[[U], Any] | str, *,
        how: Literal["inner"], nulls_equal: bool = False,
        name: str | None = None,
    ) -> Stream[tuple[T, U]]: ...
    @overload
    def join_table(
        self, table: Mapping[Any, V], key: Callable[[T], Any] | str, *,
        how: Literal["left"] = "left", nulls_equal: bool = False,
        name: str | None = None,
    ) -> Stream[tuple[T, V | None]]: ...
    @overload
    def join_table(
        self, table: Mapping[Any, V], key: Callable[[T], Any] | str, *,
        how: Literal["inner"], nulls_equal: bool = False,
        name: str | None = None,
    ) -> Stream[tuple[T, V]]: ...
    @overload
    def join_table(
        self, table: Any, key: Callable[[T], Any] | str, *,
        on: str, how: Literal["left", "inner"] = "left", nulls_equal: bool = False,
        name: str | None = None,
    ) -> Stream[tuple[T, Any]]: ...
    @overload
    def join_table(
        self, table: Any, key: Callable[[T], Any] | str, table_key: Callable[[Any], Any] | str | None = None, *,
        on: str | None = None, how: Literal["left", "inner"] = "left", flat: Literal[True], nulls_equal: bool = False,
        name: str | None = None,
    ) -> Stream[dict[str, Any]]: ...
    def join_table(
        self, table: Any, key: Callable[[T], Any] | str, table_key: Callable[[Any], Any] | str | None = None, *,
        on: str | None = None, how: Literal["left", "inner"] = "left", flat: bool = False, nulls_equal: bool = False,
        name: str | None = None,
    ) -> Stream[Any]:
        """Each item with the row of a table that has its key, or with every such row.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> graph.source("words").join_table({"to": "zu", "be": "sein"}, str.lower).sink("translated")
        >>> [item.payload for item in drift.run(graph, {"words": ["To", "or"]})]
        [('To', 'zu'), ('or', None)]

        Args:
            table: a mapping from keys to rows, a DataFrame of pandas or Polars, whose rows are dicts, or a stream of
                `graph.table(name)`, which comes before everything else; in the body of an iteration any stream from
                outside. A mapping or DataFrame becomes a part of the graph.
            key: of an item; pure, see `group`.
            table_key: of a row of a stream; `key` if None.
            on: the column of a DataFrame that is the key.
            how: "left" gives (item, None) if the table has none, "inner" nothing.
            nulls_equal: whether None is a key like others. By default a key that is None, or of which one of several
                fields is, has no pair, as in SQL and Polars.
            flat: rows in place of pairs, see `join`; of a mapping and of a DataFrame those of rows in columns stay
                columns. The rows of a mapping are dicts with the same fields then.

        Raises:
            GraphError: `table` is no table, or a stream of another source, a key of it has no canonical form, an
                argument is none of these, or with `flat` the fields of the stream are not known, or the table's rows
                cannot be columns.
        """
        where, key = caller(), self._reading("join_table", function_of("join_table", key, _KEY))
        if how not in ("left", "inner"):
            raise GraphError(f"join_table takes how= left or inner, not {how!r:.80} (at {where})")
        if isinstance(table, Steps):
            self._check_table(table, "join_table", where)
            join = TableJoin(how == "left", table._depth < self._depth, key)
            names = self._names_of_both(table, key, table_key, "join_table") if flat else None
            return self._joined(table, key, table_key, join, (), name, "join_table", names, "", nulls_equal)
        step = self._name(name, "join_table", key)
        try:
            rows = rows_of(table, on, nulls_equal)
            if flat:
                return self._flat_lookup(table, on, key, how == "left", nulls_equal, step, where)
        except (TypeError, PayloadError) as error:
            raise GraphError(f"step {step!r} (at {where}): {error}") from None
        return self._part(step, "", Lookup(rows, how == "left", key), "many")

    # fmt: on

    @overload
    def cross_join(self, table: Stream[U] | Iterable[U], *, name: str | None = None) -> Stream[tuple[T, U]]: ...
    @overload
    def cross_join(self, table: Any, *, name: str | None = None) -> Stream[tuple[T, Any]]: ...
    def cross_join(self, table: Any, *, name: str | None = None) -> Stream[Any]:
        """Each item with every row of a table: (item, row). Rows of a list or DataFrame are in its order, those of
        `graph.table(name)` in that of the table, which depends on their bytes alone.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> graph.source("fares").cross_join([1.0, 1.1]).map(lambda pair: pair[0] * pair[1]).sink("in both currencies")
        >>> [item.payload for item in drift.run(graph, {"fares": [10, 20]})]
        [10.0, 11.0, 20.0, 22.0]

        Args:
            table: a list of rows, a DataFrame of pandas or Polars, whose rows are dicts, or a stream of
                `graph.table(name)`, which comes before everything else, and is then with its items on one worker.

        Raises:
            GraphError: `table` is none of these, or a stream of another source.
        """
        if isinstance(table, Steps):
            stream: Any = table
            self._check_table(stream, "cross_join", caller())
            return self.join_table(stream, all_items, all_items, how="inner", nulls_equal=True, name=name)
        if hasattr(table, "columns"):
            table = table.to_dicts() if hasattr(table, "to_dicts") else table.to_dict("records")
        if not isinstance(table, (list, tuple)):
            raise GraphError(
                f"cross_join takes a list of rows, a DataFrame of pandas or Polars, or a stream of graph.table(name), "
                f"not {type(table).__name__} (at {caller()})"
            )
        every = {canonical(None): tuple(table)} if table else {}
        return self._part(self._name(name, "cross_join", all_items), "", Lookup(every, False, all_items), "many")

    def _check_table(self, table: Steps[Any], called: str, where: str) -> None:
        """Raises GraphError: a stream, from the same loop, is no table."""
        if table._depth < self._depth:
            return
        for source in self._graph._draft.sources_of(table._origins):
            if not isinstance(source.time, EventTime) or source.time.time is not before_every_time:
                raise GraphError(
                    f"{called} (at {where}) takes a table, and source {source.name!r} (at {source.where}) is a stream, "
                    f"whose items come with the others: declare it by graph.table({source.name!r}), which is read to "
                    f"its end before everything else"
                )

    def _joined(
        self,
        other: Steps[Any],
        key: Callable[[T], Any],
        other_key: Callable[[Any], Any] | str | None,
        join: PairJoin | ExistsJoin | AsOfJoin | NearestJoin | TableJoin,
        initial: Any,
        name: str | None,
        kind: str,
        names: Names | None = None,
        how: str = "",
        nulls_equal: bool = False,
    ) -> Stream[Any]:
        """A process over the items of both sides, and with names the rows that its pairs are."""
        step = self._name(name, kind, key)
        both = self._both(other, key, other_key, step, nulls_equal)
        timers = phase_of_timers(both._timed_steps)
        pairs = both._process(Process(key_of, initial, join, join.on_time, timers), step)
        return self._joined_rows(pairs, names, step, how)

    def _joined_rows(self, pairs: Stream[Any], names: Names | None, step: str, how: str) -> Stream[Any]:
        """What a join gives, whose fields are known if they are rows."""
        if names is None:
            pairs._fields = self._fields if how in ("semi", "anti") else None
            return pairs
        from drift.columns.flat import FlatPair

        rows = pairs._part(step, "rows", FlatPair(names), "one")
        rows._fields = names.fields
        return rows

    def _names_of_both(
        self, other: Any, key: Callable[[T], Any], other_key: Any, kind: str, *, left_out: bool = True
    ) -> Names:
        """The fields of joined rows. `left_out`: whether fields that are the right's key are left out."""
        left, right = self._known_fields(f"{kind} with flat=True"), other._known_fields(f"{kind} with flat=True")
        from drift.columns.flat import names_of_both

        of_right = names_of(key if other_key is None else function_of(kind, other_key, _KEY))
        out = of_right if left_out and names_of(key) is not None and of_right is not None else ()
        return names_of_both(left, right, out, f"{kind} (at {caller()})")

    def _flat_lookup(
        self, table: Any, on: str | None, key: Callable[[T], Any], outer: bool, nulls_equal: bool, step: str, where: str
    ) -> Stream[Any]:
        """The rows of this stream with those of a table in memory."""
        fields = self._known_fields("join_table with flat=True")
        from drift.columns.lookups import lookup

        names = names_of(key)
        function = lookup(
            table,
            on,
            fields,
            key,
            names if names is None else tuple(names),
            outer=outer,
            nulls_equal=nulls_equal,
            what=f"join_table (at {where})",
        )
        rows = self._part(step, "", function, "many")
        rows._fields = function.names.fields
        return rows

    def _both(
        self,
        other: Steps[Any],
        key: Callable[[T], Any],
        other_key: Callable[[Any], Any] | str | None,
        step: str,
        nulls_equal: bool,
    ) -> Stream[Any]:
        """The items of both sides, each with its side and key."""
        self._check_graph(other)
        of_other = key if other_key is None else function_of(repr(step), other_key, _KEY)
        check_fields(getattr(other, "_fields", None), of_other, f"step {step!r}", caller)
        kind = OfSideWithNulls if nulls_equal else OfSide
        left = self._part(step, "left", kind(0, key), "one")
        return left.merge(other._part(step, "right", kind(1, of_other), "one"))


def _bounds_of(within: object, where: str) -> tuple[int, int]:
    bounds = [span_from(bound) for bound in within] if isinstance(within, tuple) and len(within) == 2 else [None]
    before, after = bounds[0], bounds[-1]
    if before is None or after is None:
        raise GraphError(
            f"within={within!r:.80} (at {where}) is not a pair of ints (before, after), timedeltas or texts such as "
            f"'10s': how long before a left item, and how long after it, a right one may be; nor windows, such as "
            f"drift.windows.tumbling(60)"
        )
    if before + after < 0:
        raise GraphError(f"within={within!r} (at {where}) is empty: before + after is to be 0 or more")
    return before, after
