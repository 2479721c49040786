"""The queries in SQL, over tables of all events: what drift's answers are compared with.

A mean is written as the sum divided by the number, as doubles: sums are below 2 ** 53, so that is the double next to
the mean. DuckDB's `avg` of integers divides in 80 bits and rounds a second time, so it may give the one beside it.
"""

from __future__ import annotations

from dataclasses import astuple, fields
from typing import Any

import duckdb

from benchmarks.nexmark.events import BID_TEXTS, Auction, Bid, Event, Person, tables
from benchmarks.nexmark.queries import DAY_MS, HOUR_MS, RANKS, SESSION_MS, SIDE, SLIDE_MS, WINDOW_MS

_SALES = """
    select a.id, a.seller, a.category, a.expires, a.number, max(b.price) as price
    from auction a join bid b on b.auction = a.id and b.time between a.time and a.expires
    group by all
"""

_SOLD = """
    select a.id, a.item, a.seller, a.category, b.bidder, b.price, b.time, b.number
    from auction a join bid b on b.auction = a.id and b.time between a.time and a.expires
    qualify row_number() over (partition by a.id order by b.price desc, b.number) = 1
"""
_RANKED = [f"price < {RANKS[0]}", f"price between {RANKS[0]} and {RANKS[1] - 1}", f"price >= {RANKS[1]}"]


def _so_far(*parts: str) -> str:
    """Numbers of bids, and of different bidders and auctions among them, up to each bid of a part."""
    counted = ["count(*)", *(f"count(distinct {of})" for of in ("bidder", "auction"))]
    wanted = [
        f"{each} {where} over so_far" for each in counted for where in ("", *map("filter (where {})".format, _RANKED))
    ]
    by, shown = ", ".join(part.split(" as ")[0] for part in parts), ", ".join(parts)
    order = "order by number rows unbounded preceding"
    return f"select {shown}, {', '.join(wanted)} from bid window so_far as (partition by {by} {order})"


SQL = {
    "q0": "select auction, bidder, price, time from bid",
    "q1": "select auction, bidder, price * 908 // 1000, time from bid",
    "q2": "select auction, price from bid where auction % 123 = 0",
    "q3": """
        select p.name, p.city, p.state, a.id from auction a join person p on a.seller = p.id
        where a.category = 10 and p.state in ('OR', 'ID', 'CA')
    """,
    "q4": f"""
        select category, sum(price) over sold / (count(*) over sold)::double
        from ({_SALES}) window sold as (partition by category order by expires, number rows unbounded preceding)
    """,
    "q5": f"""
        with placed as (
            select auction, unnest(range(last - {WINDOW_MS - SLIDE_MS}, last + 1, {SLIDE_MS})) as start
            from (select auction, time // {SLIDE_MS} * {SLIDE_MS} as last from bid)
        ), counts as (select start, auction, count(*) as bids from placed group by all)
        select * from counts qualify bids = max(bids) over (partition by start)
    """,
    "q6": f"""
        select seller, sum(price) over sold / (count(*) over sold)::double
        from ({_SALES}) window sold as (partition by seller order by expires, number rows 9 preceding)
    """,
    "q7": f"""
        select auction, bidder, price, time from bid
        qualify row_number() over (partition by time // {WINDOW_MS} order by price desc, number) = 1
    """,
    "q8": f"""
        select id, name, time // {WINDOW_MS} * {WINDOW_MS} from person p where exists (
            from auction a where a.seller = p.id and a.time // {WINDOW_MS} = p.time // {WINDOW_MS}
        )
    """,
    "q9": f"select id, item, seller, bidder, price, time from ({_SOLD})",
    "q10": f"select auction, bidder, price, time, time // {DAY_MS}, time // {HOUR_MS} % 24 from bid",
    "q11": f"""
        with began as (
            select bidder, time, coalesce(time - lag(time) over of_bidder >= {SESSION_MS}, true) as is_first
            from bid window of_bidder as (partition by bidder order by number)
        ), placed as (
            select bidder, time, count(*) filter (where is_first) over (partition by bidder order by time) as session
            from began
        )
        select bidder, min(time), max(time) + {SESSION_MS}, count(*) from placed group by bidder, session
    """,
    "q12": f"select bidder, time // {WINDOW_MS} * {WINDOW_MS} as start, count(*) from bid group by all",
    "q13": f"""
        select auction, bidder, price, time, side[auction % {len(SIDE)} + 1]
        from bid, (select {[value for _, value in SIDE]} as side)
    """,
    "q14": f"""
        select auction, bidder, price * 908 // 1000 as euros,
            case when time // {HOUR_MS} % 24 between 8 and 18 then 'day'
                when time // {HOUR_MS} % 24 between 6 and 20 then 'other' else 'night' end,
            time, extra, length(extra) - length(replace(extra, 'c', ''))
        from bid where euros > 1_000_000 and euros < 50_000_000
    """,
    "q15": _so_far(f"time // {DAY_MS} as day"),
    "q16": _so_far("channel", f"time // {DAY_MS} as day"),
    "q17": f"""
        select auction, time // {DAY_MS} as day, count(*),
            {", ".join(f"count(*) filter (where {each})" for each in _RANKED)},
            min(price), max(price), sum(price) / count(*)::double, sum(price)::bigint
        from bid group by auction, day
    """,
    "q18": """
        select auction, bidder, price, time from bid
        qualify row_number() over (partition by bidder, auction order by number desc) = 1
    """,
    "q19": """
        select auction, bidder, price, time, row_number() over by_price from bid
        window by_price as (partition by auction order by price desc, number) qualify row_number() over by_price <= 10
    """,
    "q20": """
        select b.auction, bidder, price, b.time, item, seller, expires
        from bid b join auction a on b.auction = a.id where category = 10
    """,
    "q21": """
        select * from (select auction, bidder, price, channel, case lower(channel)
            when 'apple' then '0' when 'google' then '1' when 'facebook' then '2' when 'baidu' then '3'
            else nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') end as channel_id from bid)
        where channel_id is not null
    """,
    "q22": """
        select auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5),
            split_part(url, '/', 6)
        from bid
    """,
}


def database(events: list[Event]) -> duckdb.DuckDBPyConnection:
    """A database in memory with the tables person, auction and bid."""
    import pandas

    connection = duckdb.connect()
    kinds = {kind.__name__.lower(): [each.name for each in fields(kind)] for kind in (Person, Auction, Bid)}
    for name, rows in tables(events):
        frame = pandas.DataFrame([astuple(row) for row in rows], columns=kinds[name])
        if name == "bid":
            for text in BID_TEXTS:
                frame[text] = [getattr(row, text) for row in rows]
        connection.register("frame", frame)
        connection.execute(f"create table {name} as select * from frame")
        connection.unregister("frame")
    return connection


def answer(connection: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query, in no order."""
    return connection.execute(SQL[query]).fetchall()
