"""The queries as graphs: each takes the stream of all events, and gives tuples that DuckDB's rows can be compared with.

Invariant: an answer hangs on the events alone. So it is what SQL gives over tables of all events, as a set of rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import drift
from benchmarks.nexmark.events import EVENT_TIME, Auction, Bid, Event, Person

WINDOW_MS = 10_000
SLIDE_MS = 2_000
SESSION_MS = 1_000
#: The events are of minutes, so their days are short.
HOUR_MS = 250
DAY_MS = 24 * HOUR_MS
#: Prices from which on a bid is in the second rank, and in the third.
RANKS = 10_000, 1_000_000
#: The rows of q13's table.
SIDE = [(key, f"side {key * 7 % 100}") for key in range(100)]

Events = drift.Stream[Event]
Row = tuple[Any, ...]
Counted = drift.Window[int, int]
Query = Callable[..., drift.Stream[Row]]


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


Sale = tuple[Auction, Bid]


def offered(sale: Any, row: Auction | Bid, time: int) -> tuple[Any, list[Any]]:
    """An auction opens, or gets a bid; the state is (auction, best bid or None), or None."""
    if type(row) is Auction:
        return (row, None), [drift.at(row.expires, None)]
    assert type(row) is Bid
    if sale and (sale[1] is None or row.price > sale[1].price):
        sale = sale[0], row
    return sale, []


def closed(sale: Any, note: None, time: int) -> tuple[None, list[Sale]]:
    """An auction's time is over."""
    return None, [sale] if sale[1] else []


def sales(events: Events) -> drift.Stream[Sale]:
    """Each auction with the first of its highest bids, when it closes; those without bids not."""
    return events.filter(is_auction_or_bid).process(auction_of, None, offered, closed)


def category_of(sale: Sale) -> int:
    return sale[0].category


def averaged(state: tuple[int, int], sale: Sale) -> tuple[tuple[int, int], Row]:
    total, count = state[0] + sale[1].price, state[1] + 1
    return (total, count), (sale[0].category, total / count)


def q4(events: Events) -> drift.Stream[Row]:
    """The average price of what was sold so far in a category, each time something is."""
    return sales(events).scan(category_of, (0, 0), averaged)


def seller_of_sale(sale: Sale) -> int:
    return sale[0].seller


def average_of_last(last: tuple[Sale, ...]) -> Row:
    return last[-1][0].seller, sum(bid.price for _, bid in last) / len(last)


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


# 9, 18 to 20: the best and the last of bids, and what they are on.


def sale_row(sale: Sale) -> Row:
    auction, bid = sale
    return auction.id, auction.item, auction.seller, bid.bidder, bid.price, bid.time


def q9(events: Events) -> drift.Stream[Row]:
    """The winning bid of each auction, when it closes."""
    return sales(events).map(sale_row)


def bidder_and_auction(bid: Bid) -> tuple[int, int]:
    return bid.bidder, bid.auction


def q18(events: Events) -> drift.Stream[Row]:
    """The last bid of each bidder on each auction."""
    return events.filter(is_bid).key_by(bidder_and_auction).at_end(drift.agg.last()).map(keyed_bid)


def keyed_bid(pair: tuple[Any, Bid]) -> Row:
    return passed_through(pair[1])


def q19(events: Events) -> drift.Stream[Row]:
    """The ten highest bids of each auction, the first of equal ones first."""
    highest = drift.agg.top(10, by=price_of)
    return events.filter(is_bid).key_by(auction_of_bid).at_end(highest).flat_map(numbered)


def numbered(pair: tuple[int, tuple[Bid, ...]]) -> list[Row]:
    return [(*passed_through(bid), rank) for rank, bid in enumerate(pair[1], 1)]


def bid_and_auction(pair: tuple[Bid, Auction]) -> Row:
    bid, auction = pair
    return bid.auction, bid.bidder, bid.price, bid.time, auction.item, auction.seller, auction.expires


def q20(events: Events) -> drift.Stream[Row]:
    """The bids on auctions of category 10, with these."""
    auctions, bids, _ = events.route(is_auction, is_bid)
    return bids.join(auctions.filter(is_of_category_10), auction_of_bid, id_of).map(bid_and_auction)


# 10, 13, 14, 21, 22: one by one, with texts, and a table beside them.


def hour_of(bid: Bid) -> int:
    return bid.time // HOUR_MS % 24


def day_of(bid: Bid) -> int:
    return bid.time // DAY_MS


def partitioned(bid: Bid) -> Row:
    return *passed_through(bid), day_of(bid), hour_of(bid)


def q10(events: Events) -> drift.Stream[Row]:
    """Every bid with its day and hour, by which files of it would be partitioned."""
    return events.filter(is_bid).map(partitioned)


def place_of(bid: Bid) -> int:
    return bid.auction % len(SIDE)


def key_of_side(row: tuple[int, str]) -> int:
    return row[0]


def with_side(pair: tuple[Bid, tuple[int, str]]) -> Row:
    return *passed_through(pair[0]), pair[1][1]


def q13(events: Events, side: drift.Stream[tuple[int, str]]) -> drift.Stream[Row]:
    """Every bid with a row of a table."""
    return events.filter(is_bid).join_table(side, place_of, table_key=key_of_side).map(with_side)


def part_of_day(hour: int) -> str:
    return "day" if 8 <= hour <= 18 else "other" if 6 <= hour <= 20 else "night"


def calculated(bid: Bid) -> list[Row]:
    euros = bid.price * 908 // 1000
    if not 1_000_000 < euros < 50_000_000:
        return []
    return [(bid.auction, bid.bidder, euros, part_of_day(hour_of(bid)), bid.time, bid.extra, bid.extra.count("c"))]


def q14(events: Events) -> drift.Stream[Row]:
    """Bids of some prices, with the part of the day and how often a letter is in a text."""
    return events.filter(is_bid).flat_map(calculated)


_CHANNEL_IDS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
_CHANNEL_ID = re.compile("(?:&|^)channel_id=([^&]*)")


def by_channel(bid: Bid) -> list[Row]:
    channel = bid.channel
    number = _CHANNEL_IDS.get(channel.lower())
    if number is None and (found := _CHANNEL_ID.search(bid.url)):
        number = found[1]
    return [(bid.auction, bid.bidder, bid.price, channel, number)] if number else []


def q21(events: Events) -> drift.Stream[Row]:
    """The bids of which the channel or the page has a number, with that."""
    return events.filter(is_bid).flat_map(by_channel)


def by_folders(bid: Bid) -> Row:
    return bid.auction, bid.bidder, bid.price, bid.channel, *bid.url.split("/")[3:6]


def q22(events: Events) -> drift.Stream[Row]:
    """Every bid with the folders of its page."""
    return events.filter(is_bid).map(by_folders)


# 11, 12, 15 to 17: numbers of bidders, days, channels and auctions.


def bidder_of(bid: Bid) -> int:
    return bid.bidder


def counted_session(window: Counted) -> Row:
    return window.key, window.start, window.end, window.value


def q11(events: Events) -> drift.Stream[Row]:
    """How many bids each bidder makes in a session."""
    sessions = events.filter(is_bid).key_by(bidder_of).window(drift.windows.session(SESSION_MS))
    return sessions.count().map(counted_session)


def counted_window(window: Counted) -> Row:
    return window.key, window.start, window.value


def q12(events: Events) -> drift.Stream[Row]:
    """How many bids each bidder makes in a window; of event time, since no two runs have one processing time."""
    windows = events.filter(is_bid).key_by(bidder_of).window(drift.windows.tumbling(WINDOW_MS))
    return windows.count().map(counted_window)


def as_fields(bid: Bid) -> dict[str, Any]:
    rank = (bid.price >= RANKS[0]) + (bid.price >= RANKS[1])
    return {"channel": bid.channel, "day": day_of(bid), "bidder": bid.bidder, "auction": bid.auction, "rank": rank}


def is_first(row: dict[str, Any]) -> bool:
    return row["rank"] == 0  # type: ignore[no-any-return]


def is_second(row: dict[str, Any]) -> bool:
    return row["rank"] == 1  # type: ignore[no-any-return]


def is_third(row: dict[str, Any]) -> bool:
    return row["rank"] == 2  # type: ignore[no-any-return]


_IS_OF_RANK = (is_first, is_second, is_third)
_SO_FAR: dict[str, Any] = {
    "bids": drift.agg.count(),
    **{f"bids {each.__name__}": drift.agg.count(where=each) for each in _IS_OF_RANK},
    "bidders": drift.agg.distinct_count("bidder"),
    **{f"bidders {each.__name__}": drift.agg.distinct_count("bidder", where=each) for each in _IS_OF_RANK},
    "auctions": drift.agg.distinct_count("auction"),
    **{f"auctions {each.__name__}": drift.agg.distinct_count("auction", where=each) for each in _IS_OF_RANK},
}


def of_day(row: dict[str, Any]) -> Row:
    return row["day"], *(row[name] for name in _SO_FAR)


def q15(events: Events) -> drift.Stream[Row]:
    """The bids, bidders and auctions of a day so far, at each bid."""
    return events.filter(is_bid).map(as_fields).key_by("day").running(**_SO_FAR).map(of_day)


def channel_and_day(row: dict[str, Any]) -> tuple[str, int]:
    return row["channel"], row["day"]


def of_channel(row: dict[str, Any]) -> Row:
    return row["channel"], *of_day(row)


def q16(events: Events) -> drift.Stream[Row]:
    """The same of each channel."""
    return events.filter(is_bid).map(as_fields).key_by(channel_and_day).running(**_SO_FAR).map(of_channel)


def is_low(bid: Bid) -> bool:
    return bid.price < RANKS[0]


def is_middle(bid: Bid) -> bool:
    return RANKS[0] <= bid.price < RANKS[1]


def is_high(bid: Bid) -> bool:
    return bid.price >= RANKS[1]


def of_auction(row: dict[str, Any]) -> Row:
    return row["key"], row["start"] // DAY_MS, *list(row.values())[3:]


def q17(events: Events) -> drift.Stream[Row]:
    """How many bids each auction has in a day, in all and by rank, and their least, highest and mean price, and sum."""
    windows = events.filter(is_bid).key_by(auction_of_bid).window(drift.windows.tumbling(DAY_MS))
    agg = drift.agg
    counts = {each.__name__: agg.count(where=each) for each in (is_low, is_middle, is_high)}
    prices = {each.__name__: each(price_of) for each in (agg.min, agg.max, agg.mean, agg.sum)}
    return windows.rows(bids=agg.count(), **counts, **prices).map(of_auction)


_ALL = (
    q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11, q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22,
)  # fmt: skip
QUERIES: dict[str, Query] = {query.__name__: query for query in _ALL}
#: The tables of a query, beside the events: by their names, as its parameters have them.
TABLES: dict[str, dict[str, Any]] = {"q13": {"side": SIDE}}


def graph_of(query: Query) -> drift.Graph:
    """The graph of a query, from "events" and its tables to "answer"."""
    graph = drift.Graph(query.__name__)
    events = graph.source("events", time=EVENT_TIME)
    query(events, *map(graph.table, TABLES.get(query.__name__, ()))).sink("answer")
    return graph
