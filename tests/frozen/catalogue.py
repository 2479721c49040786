"""Every operator of the catalogue over rows, by a sentence: functions from a stream, and a second one, to streams.

The rows are those of `frozen.inputs.TRIPS`. Operators take fields by name wherever they can, so that a graph may have
its rows as plain dicts, or with a schema, and rows with a schema may be columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from drift import agg, windows
from frozen import functions as f
from frozen.inputs import TRIPS

#: A stream of rows, and of a second source, or None -> what goes to sinks.
Steps = Callable[[Any, Any], Any]


class Entry(NamedTuple):
    """An operator with arguments.

    Attributes:
        sources: how many it takes.
        schema: whether the rows must have a schema.
        of: which rows: "trips", "odd fares" (NaN, -0.0), "days" (times in milliseconds over months).
    """

    steps: Steps
    sources: int = 1
    schema: bool = False
    of: str = "trips"


ENTRIES: dict[str, Entry] = {}


def _keyed(stream: Any, key: str) -> Any:
    if key == "all rows":
        return stream
    return stream.key_by(*key.split(" and ")) if key != "a function" else stream.key_by(f.key_of)


# Aggregates.

NUMBERS: dict[str, Callable[[], dict[str, Any]]] = {
    "counts and sums": lambda: {"count": agg.count(), "total": agg.sum("n"), "fares": agg.sum("fare")},
    "means and bounds": lambda: {
        "mean": agg.mean("n"),
        "least": agg.min("fare"),
        "most": agg.max("n"),
        "mf": agg.mean("fare"),
    },
    "chosen rows": lambda: {
        "first": agg.first(),
        "by": agg.min_by("fare"),
        "most": agg.max_by("n"),
        "last": agg.last(),
    },
    "firsts and lasts of fields": lambda: {"first": agg.first("key"), "last": agg.last("fare"), "count": agg.count()},
    "spread": lambda: {
        "var": agg.var("fare"),
        "std": agg.std("n", 0),
        "nth": agg.nth(2),
        "median": agg.collect("n").then(f.median),
    },
    "several values": lambda: {
        "all": agg.collect("n"),
        "top": agg.top(2, "n"),
        "kinds": agg.distinct("zone"),
        "some": agg.sort("fare"),
    },
    "sketches": lambda: {
        "about": agg.approximate_distinct_count("id", precision=4),
        "quantile": agg.approximate_quantile(0.9, f.cents),
        "kinds": agg.distinct_count("n"),
        "odd": agg.count(f.is_odd),
    },
    "functions": lambda: {
        "fold": agg.fold(1, f.ordered),
        "merged": agg.fold(0, f.counted, f.plus),
        "most": agg.reduce(f.larger),
        "cents": agg.sum(f.cents),
        "then": agg.count().then(str),
    },
}
WINDOWS: dict[str, Callable[[], Any]] = {
    "tumbling windows": lambda: windows.tumbling(10),
    "tumbling windows with an offset": lambda: windows.tumbling(7, 3),
    "sliding windows": lambda: windows.sliding(12, 4),
    "sliding windows that their slices do not fit": lambda: windows.sliding(10, 4, 1),
    "sliding windows with gaps": lambda: windows.sliding(3, 9),
    "sessions": lambda: windows.session(6),
    "windows of three": lambda: windows.count(3),
    "windows of four every two": lambda: windows.count(4, 2),
    "windows of five and what is left": lambda: windows.count(5, partial=True),
    "windows by a rule": lambda: windows.by_rule(f.rule, partial=True),
}
KEYS = ["key", "all rows", "zone", "key and zone", "a function"]


def _add_windows() -> None:
    for at, (kind, made) in enumerate(WINDOWS.items()):
        for place, (values, aggregates) in enumerate(NUMBERS.items()):
            key = KEYS[(at + place) % len(KEYS)]

            def steps(rows: Any, other: Any, made: Any = made, aggregates: Any = aggregates, key: str = key) -> Any:
                return _keyed(rows, key).window(made()).rows(**aggregates())

            ENTRIES[f"{kind} by {key}: {values}"] = Entry(steps)
        key = KEYS[(at + 2) % len(KEYS)]

        def one(rows: Any, other: Any, made: Any = made, key: str = key) -> Any:
            return _keyed(rows, key).window(made()).aggregate(agg.sum("n"))

        ENTRIES[f"{kind} by {key}, one sum each"] = Entry(one)
    for at, (kind, made) in enumerate(WINDOWS.items()):
        key, early = KEYS[at % 2], windows.every(items=2) if at % 3 else windows.every(time=3)

        def early_steps(rows: Any, other: Any, made: Any = made, key: str = key, early: Any = early) -> Any:
            return _keyed(rows, key).window(made(), early=early).rows(n=agg.count(), ids=agg.collect("id"))

        ENTRIES[f"{kind} by {key} with early results"] = Entry(early_steps)
    for at, (kind, made) in enumerate(list(WINDOWS.items())[:5]):
        key = KEYS[at % 3]

        def filled(rows: Any, other: Any, made: Any = made, key: str = key) -> Any:
            return _keyed(rows, key).window(made(), fill={"n": 0}).rows(n=agg.count())

        ENTRIES[f"{kind} by {key}, those without rows filled"] = Entry(filled)
    for at, every in enumerate(["day", "1w", "month", "quarter", "2 days", "year"]):
        zone, values = ["Europe/Berlin", "UTC", "America/New_York"][at % 3], list(NUMBERS.values())[at]

        def calendar(rows: Any, other: Any, every: str = every, zone: str = zone, values: Any = values) -> Any:
            return rows.key_by("key").window(windows.calendar(every, zone)).rows(**values())

        ENTRIES[f"each {every} of {zone}"] = Entry(calendar, of="days")

    def filled_days(rows: Any, other: Any) -> Any:
        return rows.window(windows.calendar("day", "Europe/Berlin"), fill={"n": 0}).rows(n=agg.count())

    ENTRIES["days filled where none has a row"] = Entry(filled_days, of="days")
    for kind in ("tumbling windows", "sessions", "sliding windows"):

        def odd(rows: Any, other: Any, made: Any = WINDOWS[kind]) -> Any:
            values = {
                "sum": agg.sum("fare"),
                "least": agg.min("fare"),
                "most": agg.max("fare"),
                "mean": agg.mean("fare"),
            }
            return rows.key_by("key").window(made()).rows(**values)

        ENTRIES[f"{kind} over NaN, infinities and zeros with signs"] = Entry(odd, of="odd fares")


def _methods(rows: Any, other: Any) -> Any:
    by_key = rows.key_by("key").window(windows.tumbling(9))
    made = [by_key.count(), by_key.sum(f.cents), by_key.mean(f.cents), by_key.min(f.cents), by_key.max(f.cents)]
    made += [by_key.fold(3, f.ordered), by_key.reduce(f.larger), by_key.collect(), by_key.count(f.is_odd)]
    return [each.map(f.window_as_row) for each in made]


_add_windows()
ENTRIES["every aggregate of windows as a method"] = Entry(_methods)


# Running aggregates, states, choices.


def _entry(sentence: str, steps: Steps, sources: int = 1, schema: bool = False, of: str = "trips") -> None:
    assert sentence not in ENTRIES, sentence
    ENTRIES[sentence] = Entry(steps, sources, schema, of)


def _of_schema(sentence: str, steps: Steps, sources: int = 1) -> None:
    """An operator whose rows must have a schema."""
    _entry(sentence, steps, sources, schema=True)


def _running(**made: Callable[[], Any]) -> Steps:
    return lambda rows, other: rows.key_by("key").running(**{name: each() for name, each in made.items()})


_entry("running sums, counts, means", _running(total=lambda: agg.sum("fare"), n=agg.count, mean=lambda: agg.mean("n")))
_entry("running bounds", _running(least=lambda: agg.min("fare"), most=lambda: agg.max("n")))
_entry(
    "shifted fields and differences",
    _running(
        before=lambda: agg.shift("id"),
        two=lambda: agg.shift("key", 2),
        diff=lambda: agg.diff("fare"),
        three=lambda: agg.diff("n", 3),
    ),
)
_entry(
    "rolling sums and bounds",
    _running(
        s=lambda: agg.rolling(agg.sum("n"), 3),
        m=lambda: agg.rolling(agg.mean("fare"), 4),
        l=lambda: agg.rolling(agg.min("n"), 2),
        c=lambda: agg.rolling(agg.count(), 5),
    ),
)
_entry(
    "rolling medians and collected values",
    _running(q=lambda: agg.rolling(agg.collect("n").then(f.median), 5), all=lambda: agg.rolling(agg.collect("id"), 3)),
)
_entry(
    "running tops, distinct values, first rows",
    _running(
        top=lambda: agg.top(2, "n"),
        kinds=lambda: agg.distinct_count("n"),
        first=lambda: agg.first("id"),
        last=lambda: agg.last("id"),
    ),
)
_entry(
    "running sums of NaN and zeros",
    _running(
        s=lambda: agg.sum("fare"), l=lambda: agg.min("fare"), m=lambda: agg.max("fare"), a=lambda: agg.mean("fare")
    ),
    of="odd fares",
)
_entry("running sums by two fields", lambda rows, other: rows.key_by("key", "zone").running(total=agg.sum("n")))
_entry("running sums by a function", lambda rows, other: rows.key_by(f.mixed_key).running(total=agg.sum("n")))
_entry("a field replaced by its running sum", lambda rows, other: rows.key_by("zone").running(n=agg.sum("n")))
_entry(
    "running behind running",
    lambda rows, other: rows.key_by("key").running(total=agg.sum("n")).key_by("zone").running(top=agg.max("total")),
)
_entry("counts of keys", lambda rows, other: rows.count("key"))
_entry("counts of keys of several types", lambda rows, other: rows.count(f.mixed_key))
_entry("greatest rows so far", lambda rows, other: rows.reduce("key", f.larger))
_entry("a scan whose states differ", lambda rows, other: rows.scan("key", 7, f.bill))
_entry("a scan whose states meet again", lambda rows, other: rows.scan("key", 0, f.merging))
_entry("a scan with few outputs", lambda rows, other: rows.scan(f.mixed_key, 0, f.silent))
_entry("a scan over all rows", lambda rows, other: rows.scan(lambda row: None, 0, f.bill))
_entry(
    "a scan behind a scan by another key",
    lambda rows, other: rows.scan("key", 0, f.merging).scan(f.weight, 0, lambda s, p: (s + 1, (p, s))),
)
_entry("the last three of each key", lambda rows, other: rows.group("key", 3))
_entry("pairs of neighbours of all rows", lambda rows, other: rows.group(lambda row: None, 2))
_entry(
    "groups of groups", lambda rows, other: rows.group("key", 2).group(lambda pair: pair[-1]["zone"], 3).map(f.weight)
)
_entry("the first of each key", lambda rows, other: rows.dedup("key"))
_entry("the first of equal rows", lambda rows, other: rows.map(f.tuple_of).dedup())
_entry("the first by two fields", lambda rows, other: rows.key_by("key", "n").dedup())
_entry("the first by numbers", lambda rows, other: rows.dedup("n"))
_entry("the first within some time", lambda rows, other: rows.dedup("key", within=8))
_entry("the first within some time by two fields", lambda rows, other: rows.key_by("key", "n").dedup(within=15))
_entry("some rows of each key", lambda rows, other: rows.key_by("key").limit(3, 2))
_entry("some rows of all", lambda rows, other: rows.limit(7, 5))
_entry("routes by two predicates", lambda rows, other: rows.route(f.is_odd, f.is_large))
_entry("two streams of one", lambda rows, other: [rows.split(2)[0], rows.split(2)[1].map(f.total_of)])
_entry("children of rows", lambda rows, other: rows.flat_map(f.sized))
_entry("maps one behind the other", lambda rows, other: rows.filter(f.is_odd).map(f.total_of).map(str).filter(len))
_entry("maps with time", lambda rows, other: rows.map(f.with_time, with_time=True))
_entry("flattened lists", lambda rows, other: rows.map(f.numbers_of).flatten())
_entry("pairs by order", lambda rows, other: rows.zip(other), 2)
_entry("two sources merged and counted", lambda rows, other: rows.merge(other).count("key"), 2)
_entry(
    "two sources merged in sessions",
    lambda rows, other: (
        rows.merge(other).key_by("key").window(windows.session(5)).rows(n=agg.count(), f=agg.sum("fare"))
    ),
    2,
)


# At the end.

for _values, _aggregates in NUMBERS.items():
    _entry(
        f"{_values} at the end by key",
        lambda rows, other, made=_aggregates: rows.key_by("key").at_end(agg.several(**made())),
    )
    _entry(f"{_values} at the end of all", lambda rows, other, made=_aggregates: rows.at_end(agg.several(**made())))
_entry("sums at the end in shares of the input", lambda rows, other: rows.at_end(agg.sum("fare"), parts=20))
_entry(
    "sums at the end by key in shares of the input",
    lambda rows, other: rows.key_by("key").at_end(agg.mean("fare"), parts=15),
)
_entry(
    "folds at the end in shares of the input", lambda rows, other: rows.at_end(agg.fold(0, f.counted, f.plus), parts=12)
)
_entry("the end of the ends", lambda rows, other: rows.key_by("key").at_end(agg.sum("n")).at_end(agg.sort()))
_entry("ends by keys of several types", lambda rows, other: rows.key_by(f.mixed_key).at_end(agg.collect("id")))


# Joins.

_WITHIN: dict[str, Callable[[], Any]] = {
    "of all rows": lambda: None,
    "within (4, 6)": lambda: (4, 6),
    "within (9, -2)": lambda: (9, -2),
    "in tumbling windows": lambda: windows.tumbling(8),
    "in sessions": lambda: windows.session(4),
    "in sliding windows": lambda: windows.sliding(8, 4),
}


def _add_joins() -> None:
    for place, (span, within) in enumerate(_WITHIN.items()):
        for at, how in enumerate(["inner", "left", "right", "full", "semi", "anti"]):

            def pairs(rows: Any, other: Any, how: Any = how, within: Any = within) -> Any:
                return rows.join(other, "key", within=within(), how=how, nulls_equal=True)

            _entry(f"{how} join {span}", pairs, 2)
            if how not in ("semi", "anti"):

                def flat(
                    rows: Any, other: Any, how: Any = how, within: Any = within, wide: bool = (at + place) % 3 == 2
                ) -> Any:
                    if wide:
                        return rows.key_by("key", "zone").join(
                            other.key_by("key", "zone"), within=within(), how=how, flat=True, nulls_equal=True
                        )
                    return rows.join(
                        other,
                        "zone" if within() is not None else "key",
                        within=within(),
                        how=how,
                        flat=True,
                        nulls_equal=True,
                    )

                _of_schema(f"{how} join {span}, flat rows", flat, 2)
    for how in ("left", "inner"):
        for name, within in {"as of its time": None, "as of its time, not older than 5": 5}.items():
            _entry(
                f"{how} join {name}",
                lambda rows, other, how=how, within=within: rows.join_as_of(
                    other, "key", how=how, within=within, nulls_equal=True
                ),
                2,
            )
            _of_schema(
                f"{how} join {name}, flat rows",
                lambda rows, other, how=how, within=within: rows.join_as_of(
                    other, "key", how=how, within=within, flat=True, nulls_equal=True
                ),
                2,
            )
        _entry(
            f"{how} join with a table",
            lambda rows, other, how=how: rows.join_table(other, "key", how=how, nulls_equal=True),
            -2,
        )
        _of_schema(
            f"{how} join with a table, flat rows",
            lambda rows, other, how=how: rows.join_table(other, "zone", how=how, flat=True, nulls_equal=True),
            -2,
        )
        _entry(
            f"{how} join with a mapping",
            lambda rows, other, how=how: rows.join_table(
                {"a": 1, "b": None, "Äé": {"x": 2.5}}, "key", how=how, nulls_equal=True
            ),
        )
        _of_schema(
            f"{how} join with a mapping, flat rows",
            lambda rows, other, how=how: rows.join_table(
                {"a": {"of": 1, "x": 0.5}, "Äé": {"of": None, "x": -0.0}}, "key", how=how, flat=True, nulls_equal=True
            ),
        )
    _entry(
        "join by other keys",
        lambda rows, other: rows.join(other, f.mixed_key, f.key_of, within=(6, 6), how="full", nulls_equal=True),
        2,
    )
    _entry(
        "join of a stream with itself",
        lambda rows, other: rows.join(rows.filter(f.is_odd), "key", within=(3, 3), how="left", nulls_equal=True).map(
            f.value_of_pair
        ),
    )
    _entry(
        "join behind a join",
        lambda rows, other: (
            rows.join(other, "key", within=(3, 3), nulls_equal=True)
            .map(f.left_of)
            .join(other, "zone", within=(2, 2), how="left", nulls_equal=True)
            .map(f.value_of_pair)
        ),
        2,
    )


_add_joins()


# Timers, logics, loops, rounds.

_entry("later items", lambda rows, other: rows.flat_map(f.reminded, with_time=True, later=True))
_entry(
    "later items behind later items",
    lambda rows, other: rows.flat_map(f.reminded, with_time=True, later=True).scan(
        lambda p: type(p).__name__, 0, lambda s, p: (s + 1, (s, p))
    ),
)
_entry("timers of keys", lambda rows, other: rows.process("key", (), f.seen, f.gone))
_entry("timers that set timers", lambda rows, other: rows.process("key", 0, f.counting_down, f.again_and_again))
_entry(
    "timers behind timers",
    lambda rows, other: (
        rows.process("key", (), f.seen, f.gone)
        .map(lambda p: {"n": f.weight(p) % 9, "key": "x", "id": f.weight(p) % 99})
        .process("key", 0, f.counting_down, f.again_and_again)
    ),
)
_entry("every second row by a logic", lambda rows, other: rows.step(f.EveryNth(2)))
_entry("every third row, and what it is of", lambda rows, other: rows.step(f.EveryNth(3)).scan("key", 0, f.bill))
_entry("peaks by a logic that forgets", lambda rows, other: rows.step(f.Peaks()))
_entry("visits by a logic with timers", lambda rows, other: rows.step(f.Visits(6)))
_entry(
    "visits behind sessions",
    lambda rows, other: rows.key_by("key").window(windows.session(3)).rows(n=agg.sum("n")).step(f.Visits(10)),
)


def _loop(rows: Any, other: Any, scanned: bool = False) -> Any:
    loop = rows._graph.feedback("again")
    entered = rows.map(f.into_loop, name="enter").merge(loop).group(f.loop_key, 2, name="pairs")
    if scanned:
        stepped = entered.scan(f.loop_key_of_window, 0, f.turned_by, name="turned")
        stepped.flat_map(f.once_more, name="back").feed(loop)
        return stepped
    entered.flat_map(f.turned, name="back").feed(loop)
    return entered


_entry("a loop of pairs", _loop)
_entry("a loop that changes keys", lambda rows, other: _loop(rows, other, True))
_entry("a loop in front of windows", lambda rows, other: _loop(rows, other).window(windows.tumbling(9)).count())
_entry(
    "rounds over the input",
    lambda rows, other: rows.map(f.number_of).replay(4, 1, lambda pairs: pairs.map(f.pulled), f.folded),
)
_entry(
    "rounds over the input until a state holds",
    lambda rows, other: rows.map(f.number_of).replay(9, 1, lambda pairs: pairs.map(f.pulled), f.folded, f.is_settled),
)
_entry(
    "rounds with ends in them",
    lambda rows, other: rows.map(f.number_of).replay(
        3, 2, lambda pairs: pairs.map(f.pulled).at_end(agg.sum()), f.folded
    ),
)
_entry(
    "rounds in shares",
    lambda rows, other: rows.map(f.number_of).replay(
        3, 2, lambda pairs: pairs.map(f.pulled), f.folded, aggregate=agg.sum()
    ),
)
_entry(
    "rounds of rounds' output",
    lambda rows, other: list(rows.map(f.number_of).iterate(6, 1, lambda pairs: pairs.flat_map(f.halved), f.folded)),
)
_entry(
    "rounds with scans and a limit",
    lambda rows, other: list(
        rows.map(f.number_of).iterate(
            3,
            1,
            lambda pairs: pairs.flat_map(f.halved).scan(lambda n: n % 3, 0, lambda s, n: (s + n, n)),
            f.folded,
            lambda state: state % 3 == 0,
        )
    ),
)


# Calls.

_entry("answers of calls", lambda rows, other: rows.call(f.asked, stub=f.asked, name="ask"))
_entry(
    "answers of calls in batches, and sums behind",
    lambda rows, other: rows.call(f.asked_together, stub=f.asked_together, batch=4, name="ask").scan(
        lambda p: p[0] % 3, 0, lambda s, p: (s + p[1], s)
    ),
)
_entry(
    "calls that fail, diverted",
    lambda rows, other: rows.call(f.asked_in_vain, stub=f.asked_in_vain, retries=0, on_error="divert", name="ask"),
)
_entry(
    "calls behind windows",
    lambda rows, other: (
        rows.key_by("key")
        .window(windows.tumbling(8))
        .rows(id=agg.min("id"), n=agg.count())
        .call(f.asked, stub=f.asked, name="ask")
    ),
)


# Expressions.


def _expressions() -> None:
    import polars as pl

    c = pl.col
    _of_schema(
        "fields chosen and computed",
        lambda rows, other: rows.select("id", "key", per=c("fare") / (c("n") + 1), big="n > 5"),
    )
    _of_schema(
        "fields added",
        lambda rows, other: rows.with_columns(
            tip="fare * 0.15", upper=c("key").str.to_uppercase(), n=c("n").cast(pl.Int16)
        ),
    )
    _of_schema("rows kept by an expression", lambda rows, other: rows.filter(c("n") % 3 == 0))
    _of_schema(
        "expressions and functions in a row",
        lambda rows, other: rows.filter(c("n") > 2).with_columns(x=c("n") * 2).filter(f.is_odd).map(f.total_of),
    )
    _of_schema(
        "expressions, a filter between",
        lambda rows, other: (
            rows.with_columns(x=c("n") * c("id"))
            .filter("x > 20")
            .select("at", "x", y=c("x") - c("zone"))
            .filter(c("y") % 2 == 0)
        ),
    )
    _of_schema(
        "numbers of texts, or diverted",
        lambda rows, other: rows.with_columns(
            text=pl.when(c("n") % 4 == 0).then(pl.lit("four")).otherwise(c("n").cast(str))
        ).select("id", number=c("text").str.to_integer(), on_error="divert"),
    )
    _of_schema(
        "a function of whole tables",
        lambda rows, other: rows.map_batches(f.doubled, schema={**TRIPS, "twice": int, "halved": float}),
    )
    _of_schema(
        "keys that are expressions",
        lambda rows, other: rows.key_by(c("key").str.len_bytes().alias("length")).running(total=agg.sum("n")),
    )
    _of_schema(
        "aggregates of expressions",
        lambda rows, other: (
            rows.key_by("key")
            .window(windows.tumbling(10))
            .rows(dear=agg.count(c("fare") > 20), s=agg.sum(c("n") * 2), m=agg.max(c("fare") * 3))
        ),
    )
    _of_schema(
        "expressions behind windows",
        lambda rows, other: (
            rows.key_by("key")
            .window(windows.tumbling(10))
            .rows(n=agg.count(), f=agg.mean("n"))
            .filter(c("n") > 1)
            .select("key", "start", of=c("n") * c("f"))
        ),
    )
    _of_schema(
        "expressions behind sliding windows and sessions",
        lambda rows, other: [
            rows.key_by("zone").window(made).rows(n=agg.count(), f=agg.sum("fare")).with_columns(p=c("f") / c("n"))
            for made in (windows.sliding(9, 3), windows.session(4))
        ],
    )
    _of_schema(
        "expressions behind running",
        lambda rows, other: (
            rows.key_by("key")
            .running(total=agg.sum("fare"), n=agg.count())
            .filter(c("n") > 1)
            .select("key", share=c("fare") / c("total"))
        ),
    )
    _of_schema(
        "expressions behind a flat join",
        lambda rows, other: rows.join(other, "key", within=(4, 4), how="left", flat=True, nulls_equal=True).select(
            "id", "id_right", gap=c("at_right") - c("at")
        ),
        2,
    )
    _of_schema(
        "expressions, then windows by number",
        lambda rows, other: (
            rows.with_columns(x=c("fare") * 2)
            .key_by("key")
            .window(windows.count(4))
            .rows(s=agg.sum("x"), n=agg.max("n"))
        ),
    )
    _of_schema(
        "rows to several sinks in several forms",
        lambda rows, other: [
            rows,
            rows.select("id", "fare"),
            rows.map(f.tuple_of),
            rows.filter(c("n") > 3),
            rows.count("key"),
        ],
    )
    _of_schema(
        "a dedup between expressions", lambda rows, other: rows.with_columns(k=c("n") % 5).dedup("k").select("k", "id")
    )
    _of_schema(
        "a merge of two sources with a schema",
        lambda rows, other: (
            rows.filter(c("n") > 3).merge(other.filter(c("n") < 5)).key_by("key").running(t=agg.sum("n"))
        ),
        2,
    )


_expressions()


# Chains.

_entry(
    "sessions of windows",
    lambda rows, other: (
        rows.key_by("key")
        .window(windows.tumbling(4))
        .rows(n=agg.count())
        .key_by("key")
        .window(windows.session(9))
        .rows(n=agg.sum("n"))
    ),
)
_entry(
    "windows of sessions, and running sums",
    lambda rows, other: (
        rows.key_by("key")
        .window(windows.session(4))
        .rows(n=agg.sum("n"), f=agg.sum("fare"))
        .key_by("key")
        .running(t=agg.sum("f"))
        .at_end(agg.top(3, "t"))
    ),
)
_entry(
    "windows behind a dedup",
    lambda rows, other: (
        rows.key_by("key", "n").dedup(within=12).window(windows.sliding(10, 5)).rows(n=agg.count(), l=agg.last("id"))
    ),
)
_entry(
    "an as-of join in front of windows",
    lambda rows, other: (
        rows.join_as_of(other, "key", nulls_equal=True)
        .map(lambda p: {"key": p[0]["key"], "n": p[0]["n"] - (p[1]["n"] if p[1] else 1)})
        .key_by("key")
        .window(windows.tumbling(12))
        .rows(s=agg.sum("n"))
    ),
    2,
)
_entry(
    "a window join in front of a scan",
    lambda rows, other: rows.join(other, "key", within=windows.tumbling(6), how="full", nulls_equal=True).scan(
        lambda p: None, 0, lambda s, p: (s + 1, (s, f.value_of_pair(p)))
    ),
    2,
)
_entry(
    "windows by number of windows",
    lambda rows, other: (
        rows.key_by("key")
        .window(windows.tumbling(5))
        .rows(n=agg.count())
        .key_by("key")
        .window(windows.count(3, 1))
        .rows(s=agg.sum("n"))
    ),
)
_entry(
    "a process between windows",
    lambda rows, other: (
        rows.key_by("key")
        .window(windows.tumbling(3))
        .rows(n=agg.count(), id=agg.min("id"))
        .process("key", (), f.seen, f.gone)
        .window(windows.tumbling(15))
        .count()
    ),
)
_entry(
    "many consumers of one window",
    lambda rows, other: [
        (w := rows.key_by("key").window(windows.tumbling(6)).rows(n=agg.count(), s=agg.sum("n"))),
        w.key_by("key").running(t=agg.sum("s")),
        w.count("key"),
        w.at_end(agg.max("s")),
    ],
)
_entry(
    "many consumers of the rows",
    lambda rows, other: [
        rows.key_by("key").window(windows.tumbling(6)).rows(n=agg.count()),
        rows.key_by("key").window(windows.session(6)).rows(n=agg.sum("n")),
        rows.key_by("zone").running(t=agg.sum("fare")),
        rows.scan("key", 0, f.merging),
        rows.process("key", (), f.seen, f.gone),
    ],
)

# Functions that fail.

_entry("a map that fails", lambda rows, other: rows.map(f.failing))
_entry("a map that fails, diverted", lambda rows, other: rows.map(f.failing, on_error="divert"))
_entry("an iterator that fails, diverted", lambda rows, other: rows.flat_map(f.failing_iterator, on_error="divert"))
_entry("a filter that fails, diverted", lambda rows, other: rows.filter(f.failing, on_error="divert").count("key"))
_entry("a key that fails", lambda rows, other: rows.group(f.failing_key, 2))
_entry(
    "a key of windows that fails",
    lambda rows, other: rows.key_by(f.failing_key).window(windows.tumbling(5)).rows(n=agg.count()),
)
_entry("a scan that fails", lambda rows, other: rows.scan("key", 0, f.failing_step))
_entry(
    "a failure in front of windows and sums",
    lambda rows, other: rows.map(f.failing_later).key_by("key").window(windows.tumbling(5)).rows(n=agg.sum("n")),
)
_entry(
    "an output without canonical form", lambda rows, other: rows.map(lambda row: object() if row["id"] == 40 else row)
)


# Joins of which few rows have a match.


def _few_match(rows: Any, other: Any, how: Any, within: Any, flat: bool) -> Any:
    return rows.join(
        other.filter(f.is_large), "n", within=within(), how=how, **({"flat": True} if flat else {}), nulls_equal=True
    )


for _span in ("of all rows", "within (4, 6)", "in tumbling windows"):
    for _how in ("inner", "left", "right", "full", "semi", "anti"):
        _flat = _how in ("inner", "left", "right", "full") and _span != "of all rows"
        _entry(
            f"{_how} join {_span}, of which few match",
            lambda rows, other, how=_how, within=_WITHIN[_span], flat=_flat: _few_match(rows, other, how, within, flat),
            2,
            _flat,
        )
