"""Graphs of the operators that look at the times of items, or at their neighbours, drawn: windows, joins, rolling.

Each operator has a sink of its own, so that one run is of several. Items are dicts, or rows of a schema.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from hypothesis import strategies as st

import drift

agg, windows = drift.agg, drift.windows

_SCHEMA = {"at": int, "key": str, "n": int, "id": int}


def _aggregates() -> dict[str, Any]:
    """Aggregates of all kinds, of which some need every value."""
    return {
        "sum": agg.sum("n"),
        "rows": agg.count(),
        "ns": agg.count("n"),
        "second": agg.nth(1, "n"),
        "quantiles": agg.quantile([0.25, 0.5], "n", interpolation="midpoint"),
        "last": agg.last("n"),
        "most": agg.max_by("n").then(lambda row: row and row["id"]),
    }


def rolled(span: Any, closed: Any, left: Any, right: Any) -> Any:
    return left.rolling(span, closed=closed, **_aggregates())


def summed(span: Any, closed: Any, offset: int, left: Any, right: Any) -> Any:
    """Neighbours of aggregates that are computed in columns."""
    named = {"sum": agg.sum("n"), "rows": agg.count(), "mean": agg.mean("n"), "least": agg.min("n")}
    return left.rolling(span, closed=closed, offset=offset, **named)


def aggregated(of: Any, left: Any, right: Any) -> Any:
    return left.window(of).rows(**_aggregates())


def are_two(value: dict[str, Any]) -> bool:
    return bool(value["rows"] == 2)


def closed_early(of: Any, left: Any, right: Any) -> Any:
    return left.window(of, until=are_two).rows(**_aggregates())


def placed(of: Any, left: Any, right: Any) -> Any:
    places = {"rank": agg.rank("n"), "number": agg.row_number("n", descending=True), "part": agg.ntile(3, "n")}
    return left.window(of).each(**places, dense=agg.dense_rank("n", descending=True), all=agg.sum("n"))


def joined_as_of(direction: Any, exact: bool, within: Any, how: Any, nulls: bool, left: Any, right: Any) -> Any:
    more = {"direction": direction, "allow_exact": exact, "within": within, "how": how}
    return left.join_as_of(right, **more, nulls_equal=nulls)


def joined(within: Any, how: Any, nulls: bool, left: Any, right: Any) -> Any:
    return left.join(right, within=within, how=how, nulls_equal=nulls)


def crossed(left: Any, right: Any) -> Any:
    return left.drop_key().cross_join([1, 2])


def compared(left: Any, right: Any) -> Any:
    return left.running(before=agg.shift("n"), more=agg.diff("n"))


def ended(left: Any, right: Any) -> Any:
    return left.at_end(agg.several(**_aggregates(), places=agg.rank("n")))


_LENGTHS, _NUMBERS, _OFFSETS = st.integers(1, 8), st.integers(0, 4), st.integers(-9, 9)
_CLOSED = st.sampled_from(["right", "left", "both", "none"])
_WINDOWS: st.SearchStrategy[Any] = st.one_of(
    st.builds(windows.tumbling, _LENGTHS, offset=_OFFSETS, closed=_CLOSED),
    st.builds(windows.sliding, st.integers(4, 8), st.integers(1, 4), offset=_OFFSETS, closed=_CLOSED),
    st.builds(windows.session, _LENGTHS),
    st.builds(windows.count, st.integers(1, 4), partial=st.booleans()),
    st.just(windows.calendar("1d", zone="Europe/Berlin")),
)
_HOW = st.sampled_from(["inner", "left", "right", "full", "semi", "anti"])
_DIRECTIONS, _BOUNDS = st.sampled_from(["backward", "forward", "nearest"]), st.none() | st.integers(0, 5)

#: What is drawn of each operator; `step(left, right)`, of two keyed streams, is a stream.
_STEPS = st.one_of(
    st.builds(partial, st.just(rolled), _LENGTHS, _CLOSED),
    st.builds(partial, st.just(summed), _LENGTHS, _CLOSED, _OFFSETS),
    st.builds(partial, st.just(rolled), st.builds(windows.rows, _NUMBERS, _NUMBERS), st.just("right")),
    st.builds(partial, st.sampled_from([aggregated, placed, closed_early]), _WINDOWS),
    st.builds(
        partial,
        st.just(joined_as_of),
        _DIRECTIONS,
        st.booleans(),
        _BOUNDS,
        st.sampled_from(["left", "inner", "right", "full"]),
        st.booleans(),
    ),
    st.builds(
        partial,
        st.just(joined),
        st.tuples(_NUMBERS, _NUMBERS) | st.builds(windows.tumbling, _LENGTHS),
        _HOW,
        st.booleans(),
    ),
    st.sampled_from([crossed, compared, ended]),
)


class Neighbours(NamedTuple):
    """A drawn graph and what it is given, as a `Case`."""

    steps: list[Any]
    inputs: list[list[dict[str, Any]]]
    has_schema: bool
    lateness: Any

    def dataflow(self) -> drift.Dataflow:
        graph = drift.Graph("neighbours")
        policy = drift.EventTime("at", lateness=self.lateness, tie="id")
        more: dict[str, Any] = {"schema": _SCHEMA} if self.has_schema else {}
        left, right = (graph.source(name, time=policy, **more).key_by("key") for name in ("in0", "in1"))
        for number, step in enumerate(self.steps):
            step(left, right).sink(f"out {number}")
        right.drop_key().sink("right")
        return graph.build()

    def sources(self) -> dict[str, list[Any]]:
        return {f"in{number}": rows for number, rows in enumerate(self.inputs)}


def _rows(items_max: int) -> st.SearchStrategy[list[dict[str, Any]]]:
    values = st.tuples(st.integers(-9, 12), st.sampled_from(["a", "b", None]), st.none() | st.integers(-2, 3))
    return st.lists(values, max_size=items_max).map(
        lambda rows: [{"at": at, "key": key, "n": n, "id": number} for number, (at, key, n) in enumerate(rows)]
    )


def neighbours(items_max: int = 12, steps_max: int = 3) -> st.SearchStrategy[Neighbours]:
    """Rows are in any order: lateness allows for all of it."""
    inputs = st.lists(_rows(items_max), min_size=2, max_size=2)
    lateness = st.sampled_from([21, "all"])
    return st.builds(Neighbours, st.lists(_STEPS, min_size=1, max_size=steps_max), inputs, st.booleans(), lateness)
