"""The queries in SQL, over tables of all events: what drift's answers are compared with.

A mean is written as the sum divided by the number, as doubles: sums are below 2 ** 53, so that is the double next to
the mean. DuckDB's `avg` of integers divides in 80 bits and rounds a second time, so it may give the one beside it.
"""

from __future__ import annotations

from dataclasses import astuple, fields
from typing import Any

import duckdb

from benchmarks.nexmark.events import Auction, Bid, Event, Person, tables
from benchmarks.nexmark.queries import SLIDE_MS, WINDOW_MS

_SALES = """
    select a.id, a.seller, a.category, a.expires, a.number, max(b.price) as price
    from auction a join bid b on b.auction = a.id and b.time between a.time and a.expires
    group by all
"""

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
}


def database(events: list[Event]) -> duckdb.DuckDBPyConnection:
    """A database in memory with the tables person, auction and bid."""
    import pandas

    connection = duckdb.connect()
    kinds = {kind.__name__.lower(): [each.name for each in fields(kind)] for kind in (Person, Auction, Bid)}
    for name, rows in tables(events):
        frame = pandas.DataFrame([astuple(row) for row in rows], columns=kinds[name])
        connection.register("frame", frame)
        connection.execute(f"create table {name} as select * from frame")
        connection.unregister("frame")
    return connection


def answer(connection: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query, in no order."""
    return connection.execute(SQL[query]).fetchall()
