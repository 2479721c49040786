"""The events: persons, auctions and bids in the proportions 1 : 3 : 46, in event time, slightly out of order.

Invariant: event n is the same in every run, however many events there are; a bid is on an auction that is before it,
and an auction's seller is a person before it.

Why: what is drawn for event n is drawn from its number, and times grow with the number.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import drift

#: Milliseconds from one event to the next, and how far an event may arrive out of place.
GAP_MS = 2
POSITIONS_LATE_MAX = 50
LATENESS_MS = GAP_MS * POSITIONS_LATE_MAX

_ROUND = 50
_AUCTIONS = 3
_AUCTIONS_OPEN = 100
_PERSONS_ACTIVE = 500
#: How long an auction is open at most.
OPEN_MS = 2 * GAP_MS * _ROUND * _AUCTIONS_OPEN // _AUCTIONS
_CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent")
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CHANNELS = ("Apple", "Google", "Facebook", "Baidu")
_FIRST, _LAST = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate"), ("Shultz", "Abrams", "Spencer", "White")


@dataclass(frozen=True, slots=True)
class Person:
    number: int
    time: int
    id: int
    name: str
    city: str
    state: str


@dataclass(frozen=True, slots=True)
class Auction:
    """Open from `time` to `expires`, both included."""

    number: int
    time: int
    id: int
    item: str
    initial_bid: int
    expires: int
    seller: int
    category: int


@dataclass(frozen=True, slots=True)
class Bid:
    """The price is in cents. The texts are made of the number where a query asks for them."""

    number: int
    time: int
    auction: int
    bidder: int
    price: int

    @property
    def channel(self) -> str:
        """Where it came from: half of the time one of the four large channels."""
        place = _scattered(self.number)
        return _CHANNELS[place % 4] if place % 8 < 4 else f"channel-{place % 1000}"

    @property
    def url(self) -> str:
        """A page; it names the channel, but for one in ten."""
        place = _scattered(self.number) // 1000
        path = "/".join(f"{place >> shift & 255:02x}" for shift in (0, 8, 16))
        query = f"?query=1&channel_id={place % 997}" if place % 10 else ""
        return f"https://www.nexmark.com/{path}/item.htm{query}"

    @property
    def extra(self) -> str:
        """Letters without a meaning."""
        return f"{_scattered(self.number):x}"


#: What a bid has beside its fields.
BID_TEXTS = ("channel", "url", "extra")

Event = Person | Auction | Bid


def time_of(event: Event) -> int:
    return event.time


def number_of(event: Event) -> int:
    return event.number


#: Events of one time do not exist; were there any, their numbers would order them.
EVENT_TIME = drift.EventTime(time=time_of, tie=number_of, lateness=LATENESS_MS)


def event(number: int) -> Event:
    """The event with a number, 0 or more."""
    draw = random.Random(number)
    round_, index = divmod(number, _ROUND)
    time = number * GAP_MS
    if index == 0:
        name = f"{draw.choice(_FIRST)} {draw.choice(_LAST)}"
        return Person(number, time, round_, name, draw.choice(_CITIES), draw.choice(_STATES))
    persons = round_ + 1
    if index <= _AUCTIONS:
        id_ = round_ * _AUCTIONS + index - 1
        seller = _recent(draw, persons, _PERSONS_ACTIVE, 100)
        expires = time + draw.randint(1, OPEN_MS)
        return Auction(number, time, id_, f"item {id_}", _price(draw), expires, seller, draw.randint(10, 14))
    auction = _recent(draw, (round_ + 1) * _AUCTIONS, _AUCTIONS_OPEN, 100)
    return Bid(number, time, auction, _recent(draw, persons, _PERSONS_ACTIVE, 100), _price(draw))


def events(count: int) -> list[Event]:
    """So many events as they arrive: three of ten up to `POSITIONS_LATE_MAX` places too late."""
    draw = random.Random(count)
    arrival = [index + draw.randrange(POSITIONS_LATE_MAX) * (draw.random() < 0.3) for index in range(count)]
    return [event(number) for number in sorted(range(count), key=arrival.__getitem__)]


def tables(arrived: list[Event]) -> Iterator[tuple[str, list[Event]]]:
    """The name and the rows of each kind."""
    for kind in (Person, Auction, Bid):
        yield kind.__name__.lower(), [each for each in arrived if type(each) is kind]


def _scattered(number: int) -> int:
    """Forty bits of a number, which is below 2 ** 40."""
    return number * 0x9E3779B97F4A7C15 >> 8 & 0xFFFFFFFFFF


def _recent(draw: random.Random, count: int, active: int, hot_every: int) -> int:
    """One of the last `active` of `count`; half of the time the hot one among them."""
    last = count - 1
    if draw.random() < 0.5:
        return last - last % hot_every
    return draw.randint(max(0, count - active), last)


def _price(draw: random.Random) -> int:
    return round(10 ** (draw.random() * 6) * 100)
