"""All cases of the oracle: a name that says what a graph is, the graph, and what its sources give.

Invariant: a case depends on its name alone, so cases may be added anywhere, and none may be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from generated import OPERATIONS, Numbers, Recipe, Times, build, source_names

import drift
from drift import agg, windows
from drift_graph.errors import GraphError
from frozen import functions as f
from frozen.catalogue import ENTRIES, Entry
from frozen.draw import Draw
from frozen.inputs import DAY_MS, LATENESS, SPRING_MS, TRIPS, WIDE, equal_trips, objects, trips, wide_rows

Form = Literal["dicts", "rows", "columns"]
Sources = dict[str, list[Any]]


class Case(NamedTuple):
    """A graph, and what its sources give.

    Attributes:
        name: a sentence, and the key of the case in the file.
        make: the graph and its inputs, made anew.
        tables: of sources whose rows are given as columns (a DataFrame) the schemas; elsewhere rows are a list.
        large: whether there are thousands of rows, so that they are run in few ways.
        batch_items: of a run on `local`, where a case is of batches.
    """

    name: str
    make: Callable[[], tuple[drift.Dataflow, Sources]]
    tables: dict[str, dict[str, Any]]
    large: bool = False
    batch_items: int | None = None


# Entries of the catalogue: as plain dicts, as rows of a schema, and in columns; by arrival and by times.

_TIMES: dict[str, Callable[[], Any]] = {
    "by arrival": drift.ArrivalTime,
    "in event time, ties by a field": lambda: drift.EventTime("at", lateness=LATENESS, tie="id"),
    "in event time, ties by hash": lambda: drift.EventTime("at", lateness=LATENESS),
}
_EVENT = list(_TIMES)[1:]
_WORDS = {"dicts": "rows as plain dicts", "rows": "rows of a schema", "columns": "rows in columns"}


_ALIKE = "a text of more than eight bytes "
#: Rows with other values, of one kind each: columns that meet one kind leave to objects what they would do for another.
_OTHER_VALUES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "NaN": lambda row: {**row, "fare": float("nan") if row["id"] % 5 == 2 else row["fare"] + 1},
    "zeros with signs": lambda row: {**row, "fare": (0.0, -0.0, -0.0)[row["id"] % 3]},
    "zeros below": lambda row: {**row, "fare": -0.0},
    "integers of which means are not exact": lambda row: {**row, "n": row["n"] * 2**51 + row["id"]},
    "integers whose sums have more than 64 bits": lambda row: {**row, "n": row["n"] * 2**59 + row["id"]},
    "equal values": lambda row: {**row, "n": row["n"] % 2, "fare": float(row["n"] % 3)},
    "nulls": lambda row: {**row, "n": None if row["id"] % 50 == 49 else row["n"]},
    "texts that begin alike": lambda row: {**row, "key": _ALIKE + row["key"][:1] + "\0" * (row["n"] % 3)},
}  # fmt: skip


def _rows(draw: Draw, of: str, count: int, keys: int, ordered: bool) -> list[Any]:
    if of == "days":
        return [
            {**row, "at": SPRING_MS + row["at"] * DAY_MS // 4} for row in trips(draw, count, keys=keys, ordered=True)
        ]
    rows = trips(draw, count, keys=keys, odd_fares=of == "odd fares", ordered=ordered)
    return [_OTHER_VALUES[of](row) for row in rows] if of in _OTHER_VALUES else rows


def written(name: str, entry: Entry, form: Form, times: str, count: int, keys: int) -> tuple[drift.Dataflow, Sources]:
    draw = Draw(name)
    graph = drift.Graph("frozen")
    names = ["left", "right"][: abs(entry.sources)]
    sources: Sources = {}
    streams: list[Any] = []
    for at, source in enumerate(names):
        schema = None if form == "dicts" else TRIPS
        if at == 1 and entry.sources < 0:
            streams.append(graph.table(source) if schema is None else graph.table(source, schema=schema))
            sources[source] = _rows(draw, entry.of, max(count // 12, 3), keys, True)
            continue
        policy = _TIMES[times]()
        streams.append(
            graph.source(source, time=policy) if schema is None else graph.source(source, time=policy, schema=schema)
        )
        sources[source] = _rows(draw, entry.of, count, keys, times == "by arrival")
    made = entry.steps(streams[0], streams[1] if len(streams) > 1 else None)
    for at, stream in enumerate(made if isinstance(made, list | tuple) else [made]):
        stream.sink(f"out{at}")
    return graph.build(), sources


#: Entries with forms of their own where there are thousands of rows.
_LARGE = {
    "shifted fields and differences", "rolling sums and bounds", "rolling medians and collected values",
    "running bounds", "left join as of its time, not older than 5, flat rows",
    "inner join as of its time, flat rows", "left join with a mapping, flat rows",
    "right join within (4, 6), flat rows",
    "full join within (9, -2), flat rows", "full join in tumbling windows, flat rows",
    "sliding windows by key: counts and sums", "aggregates of expressions",
}  # fmt: skip


def _of_catalogue() -> Iterator[Case]:
    """Each entry with few rows; every sixth, and those over NaN, with thousands of them, in columns."""
    for sentence, entry in ENTRIES.items():
        draw = Draw("form", sentence)
        forms: list[Form] = ["rows", "columns"] if entry.schema else ["dicts", "columns", "rows"]
        times = draw.of(list(_TIMES)) if entry.of != "days" else draw.of(_EVENT)
        yield _case(sentence, entry, draw.of(forms), times, draw.between(14, 34), draw.between(2, 4))
        if entry.of == "odd fares" or sentence in _LARGE or (draw.one_in(6) and "few match" not in sentence):
            yield _case(sentence, entry, "columns", times, 2500, 40)


def _case(sentence: str, entry: Entry, form: Form, times: str, count: int, keys: int) -> Case:
    name = f"{sentence}: {count} {_WORDS[form]}, {times}"
    tables = dict.fromkeys(("left", "right")[: abs(entry.sources)], TRIPS) if form == "columns" else {}
    return Case(name, lambda: written(name, entry, form, times, count, keys), tables, count >= 900)


# Rows in batches of columns: what one has for the next, and values that columns leave to objects.

_SEVERAL: dict[str, Callable[[], Any]] = {
    "tumbling windows": lambda: windows.tumbling(40),
    "sliding windows": lambda: windows.sliding(40, 10),
    "sessions": lambda: windows.session(3),
    "windows of seven": lambda: windows.count(7),
}
_VALUES: dict[str, Callable[[], dict[str, Any]]] = {
    "sums": lambda: {"s": agg.sum("fare"), "n": agg.sum("n"), "c": agg.count()},
    "means": lambda: {"m": agg.mean("n"), "f": agg.mean("fare")},
    "bounds": lambda: {"l": agg.min("fare"), "g": agg.max("fare"), "n": agg.max("n")},
    "rows": lambda: {"f": agg.first("id"), "l": agg.last("id"), "a": agg.min_by("fare"), "b": agg.max_by("n")},
}
#: Which values say something about which aggregates.
_SAYING = {
    "trips": ["sums", "means", "bounds", "rows"], "NaN": ["bounds", "rows", "sums"],
    "zeros with signs": ["sums", "bounds", "rows"], "zeros below": ["sums"],
    "integers of which means are not exact": ["means"], "integers whose sums have more than 64 bits": ["sums", "means"],
    "equal values": ["rows"], "nulls": ["sums"], "texts that begin alike": ["sums"],
}  # fmt: skip


def _in_batches() -> Iterator[Case]:
    """All in batches of 60 rows or, where that is another path, in event time."""
    for of, several in _SAYING.items():
        for values in several:
            yield _batches(
                f"{values} of {of}",
                lambda rows, values=values: [
                    *(rows.key_by("key").window(made()).rows(**_VALUES[values]()) for made in _SEVERAL.values()),
                    *([] if values == "rows" else [rows.key_by("key").running(**_VALUES[values]())]),
                ],
                of,
            )
        if of in ("nulls", "equal values", "zeros below"):
            continue
        yield _batches(
            f"rolling values and those before of {of}",
            lambda rows: rows.key_by("key").running(
                s=agg.rolling(agg.sum("n"), 3),
                m=agg.rolling(agg.mean("fare"), 4),
                l=agg.rolling(agg.min("fare"), 5),
                b=agg.shift("n"),
                c=agg.shift("key", 3),
                d=agg.diff("fare"),
            ),
            of,
        )
    yield _batches(
        "first rows",
        lambda rows: [
            rows.dedup("key"),
            rows.dedup("n"),
            rows.key_by("key", "zone").dedup(),
            rows.key_by("key", "n").running(c=agg.count()),
            rows.key_by("key", "n").window(windows.tumbling(30)).rows(c=agg.count(), s=agg.sum("fare")),
            rows.window(windows.count(9)).rows(s=agg.sum("fare")),
        ],
        "trips",
    )


def _batches(sentence: str, steps: Callable[[Any], Any], of: str) -> Case:
    draw = Draw("batches", sentence)
    times = draw.of(list(_TIMES))
    name = f"in batches, {sentence}: 200 rows in columns, {times}"
    entry = Entry(lambda rows, other: steps(rows), of=of)
    return Case(name, lambda: written(name, entry, "columns", times, 200, 5), {"left": TRIPS}, True, draw.of([20, 60]))


# Sources: late rows, rows from the future, rows that cannot be, equal rows, other types.


def _late(
    name: str, form: Form, policy: Callable[[], Any], options: dict[str, Any], rows: Callable[[Draw], list[Any]]
) -> tuple[drift.Dataflow, Sources]:
    graph = drift.Graph("frozen")
    stream = graph.source("left", time=policy(), **({} if form == "dicts" else {"schema": TRIPS}), **options)
    stream.sink("out")
    stream.key_by("key").window(drift.windows.tumbling(7)).rows(n=drift.agg.count(), s=drift.agg.sum("n")).sink(
        "windows"
    )
    stream.scan("key", 0, f.merging).sink("scanned")
    return graph.build(), {"left": rows(Draw(name))}


def _broken_rows(draw: Draw, count: int) -> list[Any]:
    """Rows, some of which have no time, or a time that is none."""
    rows: list[Any] = trips(draw, count)
    wrong = [{"id": 1}, {**rows[0], "at": None}, {**rows[0], "at": "soon"}, {**rows[0], "at": 2**70}, None, 5]
    for row in wrong:
        rows.insert(draw.below(len(rows)), row)
    return rows


def _gaps_and_wrong_times(draw: Draw, count: int) -> list[Any]:
    """Rows with some gaps, and some with a time far from those around them, the first among them."""
    rows: list[Any] = [{**row, "at": row["at"] + 500 * (number // 19)} for number, row in enumerate(trips(draw, count))]
    for number in range(0, count, 7):
        rows[number]["at"] += draw.of([-9000, 700, 100_000]) if draw.one_in(2) else 0
    rows[0]["at"] = 100_000
    return rows


_LATE: dict[str, tuple[Callable[[], Any], dict[str, Any], Callable[[Draw, int], list[Any]]]] = {
    "late rows end the run": (lambda: drift.EventTime("at", lateness=5, tie="id"), {}, trips),
    "late rows are diverted": (lambda: drift.EventTime("at", lateness=5, tie="id", late="divert"), {}, trips),
    "late rows by hash are diverted": (lambda: drift.EventTime("at", lateness=8, late="divert"), {}, trips),
    "late rows go to a sink": (lambda: drift.EventTime("at", lateness=4, tie="id"), {"late": "late"}, trips),
    "late rows by hash go to a sink": (lambda: drift.EventTime("at", lateness=6), {"late": "late"}, trips),
    "times that are wrong are diverted": (
        lambda: drift.EventTime("at", lateness=20, late="divert", future_max=30),
        {},
        _gaps_and_wrong_times,
    ),
    "wrong times go to a sink": (
        lambda: drift.EventTime("at", lateness=6, future_max=30, tie="id"),
        {"late": "late"},
        _gaps_and_wrong_times,
    ),
    "wrong times end the run": (
        lambda: drift.EventTime("at", lateness=20, future_max=30),
        {},
        _gaps_and_wrong_times,
    ),
    "equal rows in one order by hash": (lambda: drift.EventTime("at", lateness=20), {}, equal_trips),
    "equal rows, late ones to a sink": (lambda: drift.EventTime("at", lateness=3), {"late": "late"}, equal_trips),
    "ties by text": (lambda: drift.EventTime("at", lateness=20, tie="key"), {}, trips),
    "ties by a function": (lambda: drift.EventTime(lambda row: row["at"] * 2, lateness=40, tie=f.cents), {}, trips),
    "payloads without a time end the run": (lambda: drift.EventTime("at", lateness=20, tie="id"), {}, _broken_rows),
    "payloads without a time are diverted": (
        lambda: drift.EventTime("at", lateness=20, tie="id"),
        {"on_error": "divert"},
        _broken_rows,
    ),
    "payloads without a time are diverted, late ones to a sink": (
        lambda: drift.EventTime("at", lateness=4),
        {"on_error": "divert", "late": "late"},
        _broken_rows,
    ),
}


def _of_sources() -> Iterator[Case]:
    for sentence, (policy, options, rows) in _LATE.items():
        broken = rows is _broken_rows
        forms: list[tuple[Form, int]] = [("dicts", 60), ("rows", 60)] if broken else [("dicts", 60), ("columns", 1500)]
        for form, count in forms:
            name = f"{sentence}: {count} {_WORDS[form].removeprefix('rows as ')}"
            yield Case(
                name,
                lambda name=name, form=form, policy=policy, options=options, rows=rows, count=count: _late(
                    name, form, policy, options, lambda draw: rows(draw, count)
                ),
                {"left": TRIPS} if form == "columns" else {},
                count >= 900,
            )


# Every type of a field.

_WIDE: dict[str, Callable[[Any], Any]] = {
    "as they are": lambda rows: rows,
    "as keys": lambda rows: [
        rows.count(name).filter(lambda p: p[1] < 3) for name in ("half", "flag", "text", "raw", "day", "clock", "when")
    ],
    "as further keys": lambda rows: [
        rows.dedup(name).select("id", name) for name in ("moment", "wait", "price", "kind", "name", "small", "count")
    ],
    "collected": lambda rows: rows.key_by("small").at_end(
        drift.agg.several(a=drift.agg.collect("price"), b=drift.agg.last("moment"), c=drift.agg.distinct("place"))
    ),
    "in windows": lambda rows: (
        rows.key_by("text")
        .window(drift.windows.tumbling(20))
        .rows(a=drift.agg.first("price"), b=drift.agg.last("when"), c=drift.agg.collect("kind"), n=drift.agg.count())
    ),
    "shifted": lambda rows: rows.key_by("flag").running(
        a=drift.agg.shift("text"), b=drift.agg.shift("fare"), c=drift.agg.last("name")
    ),
    "joined with themselves": lambda rows: rows.select("id", "at", "text", "price").join(
        rows.select("id", "raw", "moment", "kind"), "id", flat=True
    ),
    "grouped": lambda rows: rows.group("kind", 2).map(f.weight),
}


def _of_types() -> Iterator[Case]:
    for sentence, steps in _WIDE.items():
        for form, count in (("rows", 50), ("columns", 1200)):
            times = (
                "in event time, ties by hash" if count == 1200 or form == "rows" else "in event time, ties by a field"
            )
            name = f"fields of all types {sentence}: {count} {_WORDS[form]}, {times}"

            def make(name: str = name, steps: Any = steps, times: str = times, count: int = count) -> Any:
                graph = drift.Graph("frozen")
                made = steps(graph.source("left", time=_TIMES[times](), schema=WIDE))
                for at, stream in enumerate(made if isinstance(made, list) else [made]):
                    stream.sink(f"out{at}")
                return graph.build(), {"left": wide_rows(Draw(name), count)}

            yield Case(name, make, {"left": WIDE} if form == "columns" else {}, count >= 900)


# Objects of any type.

_OBJECTS: dict[str, Callable[[Any], Any]] = {
    "as they are": lambda stream: stream,
    "as keys that are counted": lambda stream: stream.count(lambda value: value),
    "without those that came before": lambda stream: stream.dedup(),
    "in groups of two": lambda stream: stream.group(lambda value: value, 2),
    "as states": lambda stream: stream.scan(f.weight, None, lambda state, value: (value, (state, value))),
    "distinct at the end": lambda stream: stream.at_end(drift.agg.distinct()),
    "collected at the end by key": lambda stream: stream.key_by(lambda value: type(value).__name__).at_end(
        drift.agg.collect()
    ),
    "in windows by number": lambda stream: (
        stream.key_by(lambda value: value).window(drift.windows.count(2, partial=True)).collect()
    ),
    "of which some have no time": lambda stream: stream.flat_map(lambda value: [value, (value,)]).dedup(),
}


def _of_objects() -> Iterator[Case]:
    for sentence, steps in _OBJECTS.items():
        for hashed in (False, True):
            name = f"objects of any type {sentence}, {'in event time by hash' if hashed else 'by arrival'}"

            def make(name: str = name, steps: Any = steps, hashed: bool = hashed) -> Any:
                graph = drift.Graph("frozen")
                policy = (
                    drift.EventTime(lambda value: f.weight(value) % 5, lateness=5) if hashed else drift.ArrivalTime()
                )
                steps(graph.source("left", time=policy)).sink("out")
                return graph.build(), {"left": objects(Draw(name), 80)}

            yield Case(name, make, {})


# Graphs of any shape.


#: Operations that were added since graphs were frozen.
_SINCE = {"corrected"}


def _recipe(draw: Draw) -> Recipe:
    sources = draw.between(1, 3)
    named = [name for name, each in OPERATIONS.items() if name not in _SINCE for _ in range(each.weight)]
    if draw.one_in(4):
        named += ["fails"] * 4
    steps: list[tuple[Any, ...]] = []
    for _ in range(draw.between(1, 6)):
        operation = draw.of(named)
        arguments = OPERATIONS[operation].arguments
        drawn = [draw.between(*each) if isinstance(each, Numbers) else draw.of(each) for each in arguments]
        steps.append((operation, draw.below(4), *drawn))
    times = [
        None if draw.one_in(3) else Times(draw.below(5), draw.one_in(2), "divert" if draw.one_in(4) else "error")
        for _ in range(sources)
    ]
    return Recipe(sources, steps, [draw.below(6) for _ in range(draw.below(3))], times)


def _payloads(draw: Draw, times: Times | None, count: int) -> list[Any]:
    values = [each if draw.one_in(3) else draw.below(30) for each in objects(draw, count)]
    if times is None:
        return values
    now, timed = draw.of([0, -3, 10**12]), []
    for number, value in enumerate(values):
        now += draw.below(3)
        behind = draw.below(times.lateness + (3 if times.late == "divert" else 1))
        timed.append((now - behind, value, number) if times.tied else (now - behind, value))
    return timed


def _any_shape(name: str) -> tuple[drift.Dataflow, Sources]:
    draw = Draw(name)
    while True:
        recipe = _recipe(draw)
        try:
            dataflow = build(recipe)
        except GraphError:
            continue
        of = [recipe.times[rank] for rank in range(recipe.sources)]
        sources = {
            each: _payloads(draw, of[rank], draw.between(4, 24)) for rank, each in enumerate(source_names(recipe))
        }
        return dataflow, sources


def _of_shapes() -> Iterator[Case]:
    for number in range(60):
        name = f"a graph of any shape, number {number}"
        yield Case(name, lambda name=name: _any_shape(name), {})


CASES: list[Case] = [*_of_catalogue(), *_in_batches(), *_of_sources(), *_of_types(), *_of_objects(), *_of_shapes()]
