"""Flights from New York as they leave, in the order in which they should have: event time with real disorder.

Each flight arrives when it actually departs and counts at its scheduled departure: the running mean delay of its
airport, as of the timetable. More than half of the flights arrive after one that was scheduled later. The graph takes
them in at once and corrects what it had computed. Tombstones take back the means that were wrong; none is released.

Lateness is 24 hours. In the whole of 2013 the most that a flight came behind the schedule of one before it is 1300
minutes (HA 51 of 9 January, which left 1301 minutes late), so nothing is late. Flights that were cancelled have no
departure; `departures` leaves them out.

    python examples/flights.py [flights.csv.gz of nycflights13, where the nine days here are from]
    drift run examples/flights.py:graph --source flights=examples/data/departures.csv.gz
"""

import csv
import gzip
import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import drift

#: All departures of 1 to 9 January 2013, in the order of actual departure. Six columns of the full file.
NINE_DAYS = Path(__file__).parent / "data" / "departures.csv.gz"
LATENESS_MINUTES = 24 * 60

Flight = dict[str, str]
#: flights, and the sum of their delays in minutes
Delays = tuple[int, int]


def scheduled(flight: Flight) -> int:
    """Scheduled departure, in minutes since 1970."""
    return int(datetime.fromisoformat(flight["time_hour"]).timestamp()) // 60 + int(flight["minute"])


def departed(flight: Flight) -> int:
    return scheduled(flight) + int(flight["dep_delay"])


def airport(flight: Flight) -> str:
    return flight["origin"]


def add(delays: Delays, flight: Flight) -> tuple[Delays, tuple[str, str, int, float]]:
    """The delays with one more flight, and (airport, flight, flights so far, their mean delay in minutes)."""
    flights, minutes = delays[0] + 1, delays[1] + int(flight["dep_delay"])
    name = f"{flight['carrier']} {flight['flight']}"
    return (flights, minutes), (flight["origin"], name, flights, round(minutes / flights, 2))


graph = drift.Graph("flights")
flights = graph.source("flights", time=drift.EventTime(time=scheduled, lateness=LATENESS_MINUTES))
flights.scan(key=airport, initial=(0, 0), step=add).sink("mean delays")


def departures(path: str | Path = NINE_DAYS) -> list[Flight]:
    """The flights of a file that departed, in the order in which they did."""
    columns = ("time_hour", "minute", "dep_delay", "origin", "carrier", "flight")
    with gzip.open(path, "rt", newline="") as file:
        rows = [
            {name: row[name] for name in columns} for row in csv.DictReader(file) if row["dep_delay"] not in ("", "NA")
        ]
    return sorted(rows, key=lambda flight: (departed(flight), scheduled(flight)))


def disorder(feed: Iterable[Flight]) -> tuple[int, int]:
    """How many flights arrive after one with a later schedule, and by how many minutes at most."""
    latest = behind = behind_max = 0
    for time in map(scheduled, feed):
        if time < latest:
            behind += 1
            behind_max = max(behind_max, latest - time)
        latest = max(latest, time)
    return behind, behind_max


def main(path: str | Path = NINE_DAYS) -> None:
    feed = departures(path)
    behind, behind_max = disorder(feed)
    print(
        f"{len(feed):,} flights; {behind / len(feed):.1%} arrive after one that was scheduled later, by up to "
        f"{behind_max} minutes"
    )
    latest = {item.payload[0]: item.payload for item in drift.run(graph, {"flights": feed})}
    for origin, name, count, mean in sorted(latest.values()):
        print(f"{origin}  mean delay {mean:6.2f} minutes after {count:,} flights, the last of them {name}")
    for batch_items in (16, 4096):
        report = drift.run(graph, {"flights": feed}, batch_items=batch_items).finish()
        print(
            f"digest {report.digest}  in batches of {batch_items:4}: "
            f"{report.late_items} late, {report.items_per_second:,.0f} flights/s"
        )


if __name__ == "__main__":
    main(*sys.argv[1:2])
