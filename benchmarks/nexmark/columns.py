"""The queries over rows in columns: expressions where they do, functions over dicts elsewhere.

Invariant: the values of each row are those of the query of the same name in `queries`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import polars as pl

import drift
from benchmarks.nexmark.events import LATENESS_MS, OPEN_MS, Event
from benchmarks.nexmark.queries import SIDE, SLIDE_MS, WINDOW_MS

_KINDS = ("Person", "Auction", "Bid")
#: Fields that an event of another kind does not have are null.
SCHEMA = {
    **dict.fromkeys(("kind", "number", "time", "id"), int),
    **dict.fromkeys(("name", "city", "state", "item"), str),
    **dict.fromkeys(("initial_bid", "expires", "seller", "category", "auction", "bidder", "price"), int),
}
EVENT_TIME = drift.EventTime(time="time", tie="number", lateness=LATENESS_MS)
#: Of auctions once more, which are events of their ends too.
END_TIME = drift.EventTime(time="expires", tie="number", lateness=LATENESS_MS + OPEN_MS)
PERSON, AUCTION, BID = range(3)

Row = dict[str, Any]
Events = drift.Stream[Row]
Query = Callable[..., drift.Stream[Any]]


def frame_of(arrived: list[Event]) -> pl.DataFrame:
    """The events as a table, in the order in which they arrive."""
    rows = [{"kind": _KINDS.index(type(each).__name__), **asdict(each)} for each in arrived]
    return pl.DataFrame(rows, schema=SCHEMA)


def of_kind(events: Events, kind: int, *fields: Any, **named: Any) -> Events:
    return events.filter(pl.col("kind") == kind).select(*fields, **named)


def q0(events: Events) -> drift.Stream[Any]:
    return of_kind(events, BID, "auction", "bidder", "price", "time")


def q1(events: Events) -> drift.Stream[Any]:
    return of_kind(events, BID, "auction", "bidder", pl.col("price") * 908 // 1000, "time")


def q2(events: Events) -> drift.Stream[Any]:
    return of_kind(events, BID, "auction", "price").filter(pl.col("auction") % 123 == 0)


def q3(events: Events) -> drift.Stream[Any]:
    local = of_kind(events, PERSON, "id", "name", "city", "state").filter(pl.col("state").is_in(["OR", "ID", "CA"]))
    offered = of_kind(events, AUCTION, "id", "seller", "category").filter(pl.col("category") == 10)
    return offered.join(local, "seller", "id", flat=True).select("name", "city", "state", "id")


def winning(events: Events, sold: Events) -> drift.Stream[Any]:
    """The highest bid on each auction, at its end, which finds the bids before it."""
    ended = sold.select("id", "category", "seller", "expires", opened="time")
    bids = of_kind(events, BID, "auction", "price", "time")
    of_each = ended.join(bids, "id", "auction", within=(OPEN_MS, 0), flat=True)
    of_each = of_each.filter(pl.col("time").is_between("opened", "expires")).key_by("id")
    highest = {name: drift.agg.max(name) for name in ("price", "category", "seller")}  # an auction has one of these
    return of_each.window(drift.windows.tumbling(1)).rows(**highest)


def q4(events: Events, sold: Events) -> drift.Stream[Any]:
    by_category = winning(events, sold).key_by("category")
    return by_category.running(mean=drift.agg.mean("price")).select("category", "mean")


def q6(events: Events, sold: Events) -> drift.Stream[Any]:
    last_ten = drift.agg.rolling(drift.agg.mean("price"), 10)
    return winning(events, sold).key_by("seller").running(mean=last_ten).select("seller", "mean")


def q5(events: Events) -> drift.Stream[Any]:
    """The auctions with the most bids in each sliding window; a fold gets those with the most up to themselves."""
    windows = drift.windows.sliding(WINDOW_MS, SLIDE_MS)
    counts = of_kind(events, BID, "auction").key_by("auction").window(windows).rows(bids=drift.agg.count())
    leading = counts.key_by("start").running(most=drift.agg.max("bids")).filter(pl.col("bids") == pl.col("most"))
    return leading.window(drift.windows.tumbling(SLIDE_MS)).fold((), hotter).flat_map(hottest)


def hotter(hot: tuple[Row, ...], counted: Row) -> tuple[Row, ...]:
    return (*hot, counted) if hot and counted["bids"] == hot[0]["bids"] else (counted,)  # they do not decrease


def hottest(window: Any) -> list[tuple[Any, ...]]:
    return [(counted["start"], counted["key"], counted["bids"]) for counted in window.value]


def bid_of(window: drift.Window[None, Row]) -> tuple[Any, ...]:
    return tuple(window.value.values())


def q7(events: Events) -> drift.Stream[Any]:
    bids = of_kind(events, BID, "auction", "bidder", "price", "time")
    return bids.window(drift.windows.tumbling(WINDOW_MS)).aggregate(drift.agg.max_by("price")).map(bid_of)


def q8(events: Events) -> drift.Stream[Any]:
    """Who is in a period a person and a seller: a window of both for each, with the person's row."""
    is_person = pl.col("kind") == PERSON
    either = events.filter(is_person | (pl.col("kind") == AUCTION)).select(
        "name",
        id=pl.when(is_person).then("id").otherwise("seller"),
        person=is_person.cast(pl.Int64),
        start=pl.col("time") // WINDOW_MS * WINDOW_MS,
    )
    both = either.key_by("id").window(drift.windows.tumbling(WINDOW_MS))
    of_each = both.aggregate(n=drift.agg.count(), persons=drift.agg.sum("person"), row=drift.agg.max_by("person"))
    return of_each.filter(is_new_seller).map(new_seller)


def is_new_seller(window: drift.Window[int, Any]) -> bool:
    return 0 < window.value["persons"] < window.value["n"]


def new_seller(window: drift.Window[int, Any]) -> tuple[Any, ...]:
    person = window.value["row"]
    return person["id"], person["name"], person["start"]


def q13(events: Events) -> drift.Stream[Any]:
    bids = of_kind(events, BID, "auction", "bidder", "price", "time", place=pl.col("auction") % len(SIDE))
    side = pl.DataFrame(SIDE, schema={"place": int, "value": str}, orient="row")
    joined = bids.join_table(side, "place", on="place", flat=True)
    return joined.select("auction", "bidder", "price", "time", "value")


def q20(events: Events) -> drift.Stream[Any]:
    offered = of_kind(events, AUCTION, "id", "item", "seller", "expires", "category").filter(pl.col("category") == 10)
    bids = of_kind(events, BID, "auction", "bidder", "price", "time")
    joined = bids.join(offered, "auction", "id", flat=True)
    return joined.select("auction", "bidder", "price", "time", "item", "seller", "expires")


QUERIES: dict[str, Query] = {query.__name__: query for query in (q0, q1, q2, q3, q4, q5, q6, q7, q8, q13, q20)}
#: Those that take the auctions once more.
_OF_ENDS = ("q4", "q6")


def graph_of(query: Query) -> drift.Graph:
    """The graph of a query, from "events", and "sold" for some, to "answer"."""
    graph = drift.Graph(query.__name__)
    streams = [graph.source("events", schema=SCHEMA, time=EVENT_TIME)]
    if query.__name__ in _OF_ENDS:
        streams.append(graph.source("sold", schema=SCHEMA, time=END_TIME))
    query(*streams).sink("answer")
    return graph


def inputs_of(name: str, events: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The sources of a query."""
    return {"events": events, **({"sold": events.filter(pl.col("kind") == AUCTION)} if name in _OF_ENDS else {})}
