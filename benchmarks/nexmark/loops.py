"""The queries as plain loops over the events in order: what they cost without order of arrival, digest and recovery.

Invariant: the values of each row are those of the query of the same name in `queries`.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush

from benchmarks.nexmark.events import Auction, Bid, Event, Person
from benchmarks.nexmark.queries import SIDE, SLIDE_MS, WINDOW_MS, Row


def q0(events: Iterable[Event]) -> Iterator[Row]:
    for bid in events:
        if type(bid) is Bid:
            yield bid.auction, bid.bidder, bid.price, bid.time


def q1(events: Iterable[Event]) -> Iterator[Row]:
    for bid in events:
        if type(bid) is Bid:
            yield bid.auction, bid.bidder, bid.price * 908 // 1000, bid.time


def q2(events: Iterable[Event]) -> Iterator[Row]:
    for bid in events:
        if type(bid) is Bid and bid.auction % 123 == 0:
            yield bid.auction, bid.price


def q3(events: Iterable[Event]) -> Iterator[Row]:
    persons: dict[int, Person] = {}
    for each in events:
        if type(each) is Person and each.state in ("OR", "ID", "CA"):
            persons[each.id] = each
        elif type(each) is Auction and each.category == 10:
            person = persons.get(each.seller)  # who sells is there before
            if person is not None:
                yield person.name, person.city, person.state, each.id


def sales(events: Iterable[Event]) -> Iterator[tuple[Auction, int]]:
    """Each auction with its highest price, when it closes."""
    opened: dict[int, Auction] = {}
    prices: dict[int, int] = {}
    ends: list[tuple[int, int, int]] = []

    def closed(before: float) -> Iterator[tuple[Auction, int]]:
        while ends and ends[0][0] < before:
            *_, auction = heappop(ends)
            price, sold = prices.pop(auction, None), opened.pop(auction)
            if price is not None:
                yield sold, price

    for each in events:
        yield from closed(each.time)
        if type(each) is Auction:
            opened[each.id] = each
            heappush(ends, (each.expires, each.number, each.id))
        elif type(each) is Bid and each.auction in opened:
            prices[each.auction] = max(prices.get(each.auction, 0), each.price)
    yield from closed(float("inf"))


def q4(events: Iterable[Event]) -> Iterator[Row]:
    totals: dict[int, tuple[int, int]] = {}
    for auction, price in sales(events):
        total, count = totals.get(auction.category, (0, 0))
        total, count = totals[auction.category] = total + price, count + 1
        yield auction.category, total / count


def q5(events: Iterable[Event]) -> Iterator[Row]:
    windows: dict[int, Counter[int]] = defaultdict(Counter)  # by start, in order

    def ended(until: float) -> Iterator[Row]:
        while windows and (start := next(iter(windows))) + WINDOW_MS <= until:
            counts = windows.pop(start)
            most = max(counts.values())
            yield from ((start, auction, count) for auction, count in counts.items() if count == most)

    for bid in events:
        if type(bid) is Bid:
            yield from ended(bid.time)
            last = bid.time - bid.time % SLIDE_MS
            for start in range(last - WINDOW_MS + SLIDE_MS, last + 1, SLIDE_MS):
                windows[start][bid.auction] += 1
    yield from ended(float("inf"))


def q6(events: Iterable[Event]) -> Iterator[Row]:
    lasts: dict[int, deque[int]] = defaultdict(lambda: deque(maxlen=10))
    for auction, price in sales(events):
        last = lasts[auction.seller]
        last.append(price)
        yield auction.seller, sum(last) / len(last)


def q7(events: Iterable[Event]) -> Iterator[Row]:
    start, highest = 0, None
    for bid in events:
        if type(bid) is Bid:
            if bid.time >= start + WINDOW_MS:
                if highest is not None:
                    yield highest.auction, highest.bidder, highest.price, highest.time
                start, highest = bid.time - bid.time % WINDOW_MS, None
            if highest is None or bid.price > highest.price:
                highest = bid
    if highest is not None:
        yield highest.auction, highest.bidder, highest.price, highest.time


def q8(events: Iterable[Event]) -> Iterator[Row]:
    start = 0
    persons: dict[int, Person] = {}
    for each in events:
        if each.time >= start + WINDOW_MS:
            start, persons = each.time - each.time % WINDOW_MS, {}
        if type(each) is Person:
            persons[each.id] = each
        elif type(each) is Auction and (person := persons.pop(each.seller, None)) is not None:
            yield person.id, person.name, start


def q13(events: Iterable[Event]) -> Iterator[Row]:
    side = dict(SIDE)
    for bid in events:
        if type(bid) is Bid:
            yield bid.auction, bid.bidder, bid.price, bid.time, side[bid.auction % len(side)]


def q20(events: Iterable[Event]) -> Iterator[Row]:
    offered: dict[int, Auction] = {}
    for each in events:
        if type(each) is Auction and each.category == 10:
            offered[each.id] = each
        elif type(each) is Bid and (auction := offered.get(each.auction)) is not None:
            yield each.auction, each.bidder, each.price, each.time, auction.item, auction.seller, auction.expires


Loop = Callable[[Sequence[Event]], Iterator[Row]]
QUERIES: dict[str, Loop] = {query.__name__: query for query in (q0, q1, q2, q3, q4, q5, q6, q7, q8, q13, q20)}
