"""Questions to which drift, Polars, pandas and DuckDB give different answers, each asked of all: a table of Markdown.

python -m benchmarks.answers
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any, NamedTuple

import drift
from drift import agg, windows

LIBRARIES = ("polars", "pandas", "duckdb")
_FLOATS = [1e8 + tenth / 10 for tenth in (1, 2, 3, 4) for _ in range(2500)]
_KEYS = [1.0, None, math.nan, math.nan, None]
_MARCH = [datetime(2024, 3, 30, 23, tzinfo=UTC) + timedelta(hours=hour) for hour in range(23)]
_AT = drift.EventTime("t", tie="v")


def drifts(steps: Callable[[Any], Any], rows: list[dict[str, Any]], **more: Any) -> list[Any]:
    graph = drift.Graph("question")
    steps(graph.source("rows", **more)).sink("out")
    return [item.payload for item in drift.run(graph, {"rows": rows})]


def at_end(aggregate: Any, values: list[Any]) -> Any:
    return drifts(lambda rows: rows.at_end(aggregate), [{"v": value} for value in values])[0]


class Question(NamedTuple):
    """One question, and who answers it how; a library that has no such question is left out."""

    text: str
    drift: Callable[[], Any]
    polars: Callable[[Any], Any] | None = None
    pandas: Callable[[Any], Any] | None = None
    duckdb: Callable[[Any], Any] | None = None


def as_of() -> Any:
    return joined([{"t": 3, "k": 0, "v": n} for n in range(10)])


def nearest() -> Any:
    return joined([{"t": time, "k": 0, "v": time} for time in (3, 7)], direction="nearest")


def joined(rows: list[dict[str, Any]], **more: Any) -> Any:
    graph = drift.Graph("as of")
    left, right = (graph.source(name, time=_AT).key_by("k") for name in ("left", "right"))
    left.join_as_of(right, **more).map(lambda pair: pair[1]["v"]).sink("out")
    return next(item.payload for item in drift.run(graph, {"left": [{"t": 5, "k": 0, "v": 0}], "right": rows}))


def quarters() -> Any:
    rows = [{"t": time, "v": 0} for time in _MARCH]
    day = windows.calendar("6h", zone="Europe/Berlin")
    found = drifts(lambda each: each.window(day).count(), rows, time=drift.EventTime("t"))
    return [f"{window.between('Europe/Berlin')[0]:%H:%M}" for window in found]


def _of_polars_march(pl: Any) -> Any:
    frame = pl.DataFrame({"t": _MARCH}).with_columns(pl.col("t").dt.convert_time_zone("Europe/Berlin"))
    return [f"{start:%H:%M}" for start in frame.group_by_dynamic("t", every="6h").agg(pl.len())["t"]]


def _of_duckdb(query: str, **tables: Any) -> Callable[[Any], Any]:
    def asked(duckdb: Any) -> Any:
        import pyarrow as pa

        with duckdb.connect() as connection:
            for name, columns in tables.items():
                connection.register(name, pa.table(columns))
            found = connection.execute(query).fetchall()
        return [row[0] for row in found] if len(found) > 1 else found[0][0]

    return asked


QUESTIONS = [
    Question(
        "as of time 5, of ten rows of time 3 with v = 0 to 9",
        as_of,
        lambda pl: pl.DataFrame({"t": [5]}).join_asof(pl.DataFrame({"t": [3] * 10, "v": range(10)}), on="t")["v"][0],
        lambda pd: pd.merge_asof(pd.DataFrame({"t": [5]}), pd.DataFrame({"t": [3] * 10, "v": range(10)}), on="t")["v"][
            0
        ],
        _of_duckdb("SELECT v FROM a ASOF JOIN b ON a.t >= b.t", a={"t": [5]}, b={"t": [3] * 10, "v": list(range(10))}),
    ),
    Question(
        "nearest to time 5, of rows of times 3 and 7",
        nearest,
        lambda pl: pl.DataFrame({"t": [5]}).join_asof(
            pl.DataFrame({"t": [3, 7], "v": [3, 7]}), on="t", strategy="nearest"
        )["v"][0],
        lambda pd: pd.merge_asof(
            pd.DataFrame({"t": [5]}), pd.DataFrame({"t": [3, 7], "v": [3, 7]}), on="t", direction="nearest"
        )["v"][0],
    ),
    Question(
        "the first hours of 6-hour windows of 2024-03-31 in Berlin",
        quarters,
        _of_polars_march,
        lambda pd: [
            f"{start:%H:%M}"
            for start in pd.Series(1, pd.DatetimeIndex(_MARCH).tz_convert("Europe/Berlin")).resample("6h").sum().index
        ],
        _of_duckdb(
            "SELECT strftime(t AT TIME ZONE 'Europe/Berlin', '%H:%M') FROM (SELECT DISTINCT "
            "time_bucket(INTERVAL '6 hours', t::TIMESTAMPTZ) AS t FROM march) ORDER BY t",
            march={"t": _MARCH},
        ),
    ),
    Question(
        "the starts of 7-second windows of 0:00:03 and 0:00:33",
        lambda: [
            f"{window.between('UTC')[0]:%H:%M:%S}"
            for window in drifts(
                lambda rows: rows.window(windows.tumbling("7s")).count(),
                [{"t": f"2024-01-01T00:00:{second}Z"} for second in ("03", "33")],
                time=drift.EventTime("t"),
            )
        ],
        lambda pl: [
            f"{start:%H:%M:%S}"
            for start in pl.DataFrame({"t": [datetime(2024, 1, 1, 0, 0, second) for second in (3, 33)]})
            .group_by_dynamic("t", every="7s")
            .agg(pl.len())["t"]
        ],
        lambda pd: [
            f"{start:%H:%M:%S}"
            for start in pd.Series(1, pd.DatetimeIndex([datetime(2024, 1, 1, 0, 0, second) for second in (3, 33)]))
            .resample("7s")
            .sum()
            .index
        ],
        _of_duckdb(
            "SELECT strftime(time_bucket(INTERVAL '7 seconds', t), '%H:%M:%S') FROM times",
            times={"t": [datetime(2024, 1, 1, 0, 0, second) for second in (3, 33)]},
        ),
    ),
    Question(
        "the variance of 10,000 floats near 1e8, which is 0.012501250870145...",
        lambda: at_end(agg.var("v"), _FLOATS),
        lambda pl: pl.Series(_FLOATS).var(),
        lambda pd: pd.Series(_FLOATS).var(),
        _of_duckdb("SELECT var_samp(v) FROM floats", floats={"v": _FLOATS}),
    ),
    Question(
        "the same, of the same floats in two chunks",
        lambda: at_end(agg.var("v"), _FLOATS),
        lambda pl: pl.concat([pl.Series(_FLOATS[:5000]), pl.Series(_FLOATS[5000:])], rechunk=False).var(),
    ),
    Question(
        "the quantile 0.4 of 1, 2, 3, 4 and 10",
        lambda: at_end(agg.quantile(0.4, "v"), [1, 2, 3, 4, 10]),
        lambda pl: pl.Series([1, 2, 3, 4, 10]).quantile(0.4),
        lambda pd: pd.Series([1, 2, 3, 4, 10]).quantile(0.4),
        _of_duckdb("SELECT quantile(v, 0.4) FROM numbers", numbers={"v": [1, 2, 3, 4, 10]}),
    ),
    Question(
        "the number of distinct values of 1.0, None, NaN, NaN and None",
        lambda: at_end(agg.distinct_count("v"), _KEYS),
        lambda pl: pl.Series(_KEYS, strict=False).n_unique(),
        lambda pd: pd.Series(_KEYS).nunique(),
        _of_duckdb("SELECT count(DISTINCT v) FROM keys", keys={"v": _KEYS}),
    ),
    Question(
        "the number of groups, by these as keys",
        lambda: len(drifts(lambda rows: rows.key_by("v").at_end(agg.count()), [{"v": key} for key in _KEYS])),
        lambda pl: len(pl.DataFrame({"v": _KEYS}, strict=False).group_by("v").agg(pl.len())),
        lambda pd: len(pd.DataFrame({"v": _KEYS}).groupby("v").size()),
        _of_duckdb("SELECT count(*) FROM (SELECT v FROM keys GROUP BY v)", keys={"v": _KEYS}),
    ),
    Question(
        "the greatest of 1.0 and NaN",
        lambda: at_end(agg.max("v"), [1.0, math.nan]),
        lambda pl: pl.Series([1.0, math.nan]).max(),
        lambda pd: pd.Series([1.0, math.nan]).max(),
        _of_duckdb("SELECT max(v) FROM numbers", numbers={"v": [1.0, math.nan]}),
    ),
    Question(
        "the sum of one None",
        lambda: at_end(agg.sum("v"), [None]),
        lambda pl: pl.Series([None], dtype=pl.Int64).sum(),
        lambda pd: pd.Series([None], dtype="Int64").sum(),
        _of_duckdb("SELECT sum(v::INTEGER) FROM (VALUES (NULL)) AS t(v)"),
    ),
    Question(
        "running sums of 1, 2 and 4, of which two have one time",
        lambda: [
            row["sum"]
            for row in drifts(
                lambda rows: rows.key_by("k").running(sum=agg.sum("v")),
                [{"k": 0, "t": time, "v": value} for time, value in ((1, 1), (1, 2), (2, 4))],
                time=_AT,
            )
        ],
        lambda pl: pl.Series([1, 2, 4]).cum_sum().to_list(),
        lambda pd: pd.Series([1, 2, 4]).cumsum().tolist(),
        _of_duckdb("SELECT sum(v) OVER (ORDER BY t) FROM rows ORDER BY t, v", rows={"t": [1, 1, 2], "v": [1, 2, 4]}),
    ),
]


def shown(answer: Any) -> str:
    values = answer if isinstance(answer, list) else [answer]
    return ", ".join(str(value if isinstance(value, str | float) or value is None else int(value)) for value in values)


def table() -> str:
    """The questions with the answers of all."""
    head = ["", "drift", *(f"{name} {version(name)}" for name in LIBRARIES)]
    lines = [head, ["---"] * len(head)]
    for question in QUESTIONS:
        answers = [shown(question.drift())]
        for name in LIBRARIES:
            ask = getattr(question, name)
            answers.append("" if ask is None else shown(ask(__import__(name))))
        lines.append([question.text, *answers])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    print(table())
