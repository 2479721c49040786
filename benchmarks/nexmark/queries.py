"""The queries as graphs: each takes the stream of all events, and gives tuples that DuckDB's rows can be compared with.

Invariant: an answer hangs on the events alone. So it is what SQL gives over tables of all events, as a set of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import drift
from benchmarks.nexmark.events import EVENT_TIME, Auction, Bid, Event, Person

WINDOW_MS = 10_000
SLIDE_MS = 2_000

Events = drift.Stream[Event]
Row = tuple[Any, ...]
Counted = drift.Window[int, int]
Query = Callable[[Events], drift.Stream[Row]]


def is_person(event: Event) -> bool:
    return type(event) is Person


def is_auction(event: Event) -> bool:
    return type(event) is Auction


def is_bid(event: Event) -> bool:
    return type(event) is Bid


def is_auction_or_bid(event: Event) -> bool:
    return type(event) is not Person


# 0 to 2: one by one.


def passed_through(bid: Bid) -> Row:
    return bid.auction, bid.bidder, bid.price, bid.time


def q0(events: Events) -> drift.Stream[Row]:
    """Every bid as it is."""
    return events.filter(is_bid).map(passed_through)


def in_euros(bid: Bid) -> Row:
    return bid.auction, bid.bidder, bid.price * 908 // 1000, bid.time


def q1(events: Events) -> drift.Stream[Row]:
    """Every bid, its price in euros."""
    return events.filter(is_bid).map(in_euros)


def is_chosen(bid: Bid) -> bool:
    return bid.auction % 123 == 0


def auction_and_price(bid: Bid) -> Row:
    return bid.auction, bid.price


def q2(events: Events) -> drift.Stream[Row]:
    """The bids on some auctions."""
    return events.filter(is_bid).filter(is_chosen).map(auction_and_price)


# 3 and 8: joins.


def id_of(row: Any) -> int:
    return row.id  # type: ignore[no-any-return]


def seller_of(auction: Auction) -> int:
    return auction.seller


def is_of_category_10(auction: Auction) -> bool:
    return auction.category == 10


def is_from_the_west(person: Person) -> bool:
    return person.state in ("OR", "ID", "CA")


def offer(pair: tuple[Auction, Person]) -> Row:
    auction, person = pair
    return person.name, person.city, person.state, auction.id


def q3(events: Events) -> drift.Stream[Row]:
    """Who sells in category 10 in some states."""
    persons, auctions, _ = events.route(is_person, is_auction)
    local = persons.filter(is_from_the_west)
    return auctions.filter(is_of_category_10).join(local, seller_of, id_of).map(offer)


def id_and_window(person: Person) -> tuple[int, int]:
    return person.id, person.time // WINDOW_MS


def seller_and_window(auction: Auction) -> tuple[int, int]:
    return auction.seller, auction.time // WINDOW_MS


def new_seller(person: Person) -> Row:
    return person.id, person.name, person.time // WINDOW_MS * WINDOW_MS


def q8(events: Events) -> drift.Stream[Row]:
    """Who has become a member and opened an auction in one window."""
    persons, auctions, _ = events.route(is_person, is_auction)
    within = (WINDOW_MS, WINDOW_MS)
    return persons.join(auctions, id_and_window, seller_and_window, within=within, how="semi").map(new_seller)


# 4 and 6: what auctions were sold for.


def auction_of(row: Auction | Bid) -> int:
    return row.id if type(row) is Auction else row.auction  # type: ignore[union-attr]


Sale = tuple[Auction, int]


def offered(sale: Any, row: Auction | Bid, time: int) -> tuple[Any, list[Any]]:
    """An auction opens, or gets a bid; the state is (auction, best price or 0), or None."""
    if type(row) is Auction:
        return (row, 0), [drift.at(row.expires, None)]
    assert type(row) is Bid
    return (sale and (sale[0], max(sale[1], row.price))), []


def closed(sale: Any, note: None, time: int) -> tuple[None, list[Sale]]:
    """An auction's time is over."""
    return None, [sale] if sale[1] else []


def sales(events: Events) -> drift.Stream[Sale]:
    """Each auction with the best price it got, when it closes; those without bids not."""
    return events.filter(is_auction_or_bid).process(auction_of, None, offered, closed)


def category_of(sale: Sale) -> int:
    return sale[0].category


def averaged(state: tuple[int, int], sale: Sale) -> tuple[tuple[int, int], Row]:
    total, count = state[0] + sale[1], state[1] + 1
    return (total, count), (sale[0].category, total / count)


def q4(events: Events) -> drift.Stream[Row]:
    """The average price of what was sold so far in a category, each time something is."""
    return sales(events).scan(category_of, (0, 0), averaged)


def seller_of_sale(sale: Sale) -> int:
    return sale[0].seller


def average_of_last(last: tuple[Sale, ...]) -> Row:
    return last[-1][0].seller, sum(price for _, price in last) / len(last)


def q6(events: Events) -> drift.Stream[Row]:
    """The average price of the last ten things that a seller sold."""
    return sales(events).group(seller_of_sale, 10).map(average_of_last)


# 5 and 7: windows.


def auction_of_bid(bid: Bid) -> int:
    return bid.auction


def hotter(hot: tuple[Counted, ...], counted: Counted) -> tuple[Counted, ...]:
    if hot and counted.value == hot[0].value:
        return (*hot, counted)
    return (counted,) if not hot or counted.value > hot[0].value else hot


def hottest(window: drift.Window[None, tuple[Counted, ...]]) -> list[Row]:
    return [(counted.start, counted.key, counted.value) for counted in window.value]


def q5(events: Events) -> drift.Stream[Row]:
    """The auctions with the most bids in each sliding window: all counts of one come at its end."""
    windows = drift.windows.sliding(WINDOW_MS, SLIDE_MS)
    counts = events.filter(is_bid).key_by(auction_of_bid).window(windows).count()
    return counts.window(drift.windows.tumbling(SLIDE_MS)).fold((), hotter).flat_map(hottest)


def price_of(bid: Bid) -> int:
    return bid.price


def bid_row(window: drift.Window[None, Bid]) -> Row:
    bid = window.value
    return bid.auction, bid.bidder, bid.price, bid.time


def q7(events: Events) -> drift.Stream[Row]:
    """The highest bid of each window, the first of equal ones."""
    bids = events.filter(is_bid).window(drift.windows.tumbling(WINDOW_MS))
    return bids.aggregate(drift.agg.max_by(price_of)).map(bid_row)


QUERIES: dict[str, Query] = {query.__name__: query for query in (q0, q1, q2, q3, q4, q5, q6, q7, q8)}


def graph_of(query: Query) -> drift.Graph:
    """The graph of a query, from "events" to "answer"."""
    graph = drift.Graph(query.__name__)
    query(graph.source("events", time=EVENT_TIME)).sink("answer")
    return graph
