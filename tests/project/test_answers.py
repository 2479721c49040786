"""The page of other answers has the answers of today; what coming-from.md has beside Polars and SQL gives the same."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import drift
from drift import agg, windows

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from benchmarks.answers import LIBRARIES, QUESTIONS, Question, shown  # noqa: E402

PAGE = (ROOT / "docs" / "other-answers.md").read_text().splitlines()
ROWS = {
    cells[0]: cells[1:]
    for line in PAGE
    if line.startswith("|")
    for cells in [[c.strip() for c in line.split("|")[1:-1]]]
}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.text)
def test_the_page_has_what_each_library_answers(question: Question) -> None:
    assert ROWS[question.text][0] == shown(question.drift())
    for name, title, answer in zip(LIBRARIES, ROWS[""][1:], ROWS[question.text][1:]):
        ask = getattr(question, name)
        if title == f"{name} {version(name)}":  # another version may answer otherwise
            assert answer == ("" if ask is None else shown(ask(pytest.importorskip(name))))


def test_every_row_of_the_page_is_a_question() -> None:
    assert set(ROWS) - {"", "---"} == {question.text for question in QUESTIONS}


# coming-from.md, beside the others.

SCHEMA = {"k": str, "at": int, "b": int, "fare": float, "n": int}
GIVEN = [
    {"k": key, "at": at, "b": b, "fare": fare, "n": at % 2}
    for key, at, b, fare in [
        ("x", 1, 4, 30.0), ("y", 2, 7, 8.0), ("x", 3, None, 21.0), ("x", 6, 2, None), ("y", 7, 2, 50.0),
        ("x", 11, 9, 9.0), ("y", 12, 5, 10.0), ("x", 13, 2, 25.0), ("y", 20, 1, 22.0), ("x", 21, 6, 40.0),
    ]
]  # fmt: skip
OTHER = [{"k": "x", "at": 2, "p": 1.0}, {"k": "y", "at": 8, "p": 2.0}, {"k": "x", "at": 12, "p": 3.0}]
TEN, RATES = windows.tumbling(10), [("EUR", 2), ("USD", 3)]
FRAME, OTHERS = pl.DataFrame(GIVEN, schema=SCHEMA), pl.DataFrame(OTHER)


def _fields_of(*names: str) -> Callable[[dict[str, Any]], list[Any]]:
    return lambda row: [row[name] for name in names]


def _polars_rolling(closed: Any, **more: Any) -> pl.DataFrame:
    made = FRAME.rolling("at", period="10i", closed=closed, group_by="k", **more).agg(
        pl.len(), pl.col("b").sum().alias("sum")
    )
    return made.select("k", "at", pl.when(pl.col("len") > 0).then("sum"))


#: What the page says; the same in drift; in Polars; in SQL of DuckDB. Rows are compared in any order.
BESIDE: list[tuple[str, Callable[[Any, Any], Any], Callable[[], pl.DataFrame] | None, str]] = [
    (
        'select("a", c=pl.col("b") * 2)',
        lambda rows, _: rows.select("k", c="b * 2"),
        lambda: FRAME.select("k", c=pl.col("b") * 2),
        "SELECT k, b * 2 FROM t",
    ),
    (
        'filter("fare > 20", "n = 1")',
        lambda rows, _: rows.filter("fare > 20", "n = 1").select("k", "at"),
        lambda: FRAME.filter(pl.col("fare") > 20, pl.col("n") == 1).select("k", "at"),
        "SELECT k, at FROM t WHERE fare > 20 AND n = 1",
    ),
    (
        'agg.count("fare")',
        lambda rows, _: rows.key_by("k").window(TEN).rows(all=agg.count(), some=agg.count("fare")),
        lambda: FRAME.group_by("k", start=pl.col("at") // 10 * 10).agg(
            end=pl.col("at").first() // 10 * 10 + 10, all=pl.len(), some=pl.col("fare").count()
        ),
        "SELECT k, at // 10 * 10, at // 10 * 10 + 10, count(*), count(fare) FROM t GROUP BY ALL",
    ),
    (
        'agg.quantile(0.5, "fare")',
        lambda rows, _: rows.key_by("k").at_end(agg.quantile(0.4, "fare")),
        lambda: FRAME.group_by("k").agg(pl.col("fare").quantile(0.4, "linear")),
        "SELECT k, quantile_cont(fare, 0.4) FROM t GROUP BY k",
    ),
    (
        "running(total=drift.agg.sum",
        lambda rows, _: rows.key_by("k").running(total=agg.sum("fare")).select("k", "at", "total"),
        None,  # cum_sum is null where the row is
        "SELECT k, at, sum(fare) OVER (PARTITION BY k ORDER BY at) FROM t",
    ),
    (
        'rolling("10m", total=drift.agg.sum("b"))',
        lambda rows, _: rows.key_by("k").rolling(10, total=agg.sum("b")).select("k", "at", "total"),
        lambda: _polars_rolling("right"),
        "SELECT k, at, sum(b) OVER (PARTITION BY k ORDER BY at RANGE BETWEEN 9 PRECEDING AND CURRENT ROW) FROM t",
    ),
    (
        'rolling("10m", closed="both", offset="10m", ...)',
        lambda rows, _: (
            rows.key_by("k").rolling(10, closed="both", offset=10, total=agg.sum("b")).select("k", "at", "total")
        ),
        lambda: _polars_rolling("both", offset="0i"),
        "SELECT k, at, sum(b) OVER (PARTITION BY k ORDER BY at RANGE BETWEEN CURRENT ROW AND 10 FOLLOWING) FROM t",
    ),
    (
        "rolling(drift.windows.rows(2, 2), mean=",
        lambda rows, _: rows.key_by("k").rolling(windows.rows(2, 2), mean=agg.mean("b")).select("k", "at", "mean"),
        lambda: FRAME.select("k", "at", pl.col("b").rolling_mean(5, center=True, min_samples=1).over("k")),
        "SELECT k, at, avg(b) OVER (PARTITION BY k ORDER BY at ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING) FROM t",
    ),
    (
        "running(before=drift.agg.shift",
        lambda rows, _: rows.key_by("k").running(before=agg.shift("b")).select("k", "at", "before"),
        lambda: FRAME.select("k", "at", pl.col("b").shift(1).over("k")),
        "SELECT k, at, lag(b) OVER (PARTITION BY k ORDER BY at) FROM t",
    ),
    (
        "rolling(drift.windows.rows(0, 1), next=",
        lambda rows, _: (
            rows.key_by("k").rolling(windows.rows(0, 1), next=agg.nth(1, "b")).map(_fields_of("k", "at", "next"))
        ),
        lambda: FRAME.select("k", "at", pl.col("b").shift(-1).over("k")),
        "SELECT k, at, lead(b) OVER (PARTITION BY k ORDER BY at) FROM t",
    ),
    (
        "each(place=drift.agg.rank",
        lambda rows, _: (
            rows.filter("b > 0").key_by("k").window(TEN).each(place=agg.rank("b")).select("k", "at", "place")
        ),
        lambda: FRAME.filter(pl.col("b") > 0).select(
            "k", "at", pl.col("b").rank("min").over("k", pl.col("at") // 10).cast(int)
        ),
        "SELECT k, at, rank() OVER (PARTITION BY k, at // 10 ORDER BY b) FROM t WHERE b > 0",
    ),
    (
        'each(total=drift.agg.sum("b"))',
        lambda rows, _: rows.key_by("k").window(TEN).each(total=agg.sum("b")).select("k", "at", "total"),
        lambda: FRAME.select("k", "at", pl.col("b").sum().over("k", pl.col("at") // 10)),
        "SELECT k, at, sum(b) OVER (PARTITION BY k, at // 10) FROM t",
    ),
    (
        "rows.cross_join(rates)",
        lambda rows, _: rows.cross_join(RATES).map(lambda pair: (pair[0]["at"], pair[1][0])),
        lambda: FRAME.select("at").join(pl.DataFrame({"c": [each for each, _ in RATES]}), how="cross"),
        "SELECT at, c FROM t CROSS JOIN (VALUES ('EUR'), ('USD')) AS r(c)",
    ),
    (
        'closed="right")`, and its `end`',
        lambda rows, _: rows.window(windows.tumbling(10, closed="right")).rows(n=agg.count()).select("end", "n"),
        lambda: FRAME.group_by_dynamic("at", every="10i", closed="right", label="right", start_by="window").agg(
            pl.len()
        ),
        "SELECT (at + 9) // 10 * 10, count(*) FROM t GROUP BY ALL",
    ),
    (
        "`ASOF JOIN`",
        lambda rows, other: rows.key_by("k").join_as_of(other.key_by("k"), flat=True).select("k", "at", "p"),
        lambda: FRAME.join_asof(OTHERS, on="at", by="k", check_sortedness=False).select("k", "at", "p"),
        "SELECT t.k, t.at, p FROM t ASOF LEFT JOIN o ON t.k = o.k AND t.at >= o.at",
    ),
    (
        'direction="forward"',
        lambda rows, other: (
            rows.key_by("k")
            .join_as_of(other.key_by("k"), direction="forward", allow_exact=False, flat=True)
            .select("k", "at", "p")
        ),
        lambda: FRAME.join_asof(
            OTHERS, on="at", by="k", strategy="forward", allow_exact_matches=False, check_sortedness=False
        ).select("k", "at", "p"),
        "SELECT t.k, t.at, p FROM t ASOF LEFT JOIN o ON t.k = o.k AND t.at < o.at",
    ),
    (
        "nulls_equal=True",
        lambda rows, _: rows.join(rows, "b", nulls_equal=True).map(lambda pair: (pair[0]["at"], pair[1]["at"])),
        lambda: FRAME.join(FRAME, on="b", nulls_equal=True).select("at", "at_right"),
        "SELECT t.at, u.at FROM t JOIN t AS u ON t.b IS NOT DISTINCT FROM u.b",
    ),
    (
        "rows.at_end(drift.agg.top(3, by))",
        lambda rows, _: rows.at_end(agg.top(3, "fare")).flatten().map(_fields_of("k", "at")),
        lambda: FRAME.top_k(3, by="fare").select("k", "at"),
        "SELECT k, at FROM t ORDER BY fare DESC NULLS LAST LIMIT 3",
    ),
]


def _comparable(rows: Any) -> list[str]:
    each = (row.values() if type(row) is dict else row for row in rows)
    return sorted(repr([float(value) if type(value) is int else value for value in row]) for row in each)


@pytest.mark.parametrize("says, steps, of_polars, query", BESIDE, ids=[re.sub(r"\W+", " ", each[0]) for each in BESIDE])
def test_what_is_beside_polars_and_sql_gives_what_they_give(
    says: str, steps: Callable[[Any, Any], Any], of_polars: Callable[[], pl.DataFrame] | None, query: str
) -> None:
    assert says in (ROOT / "docs" / "coming-from.md").read_text()
    graph = drift.Graph("beside")
    time = drift.EventTime("at", lateness="all")
    rows = graph.source("rows", schema=SCHEMA, time=time)
    other = graph.source("other", schema=OTHERS.schema, time=time)
    steps(rows, other).sink("out")
    other.sink("others")
    run = drift.run(graph, {"rows": GIVEN[::-1], "other": OTHER})
    found = _comparable(item.payload for item in run if item.sink == "out")
    if of_polars is not None:
        assert found == _comparable(of_polars().rows())
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        connection.register("t", FRAME.rename({"at": "moment"}).to_arrow())  # AT is a word of SQL
        connection.register("o", OTHERS.rename({"at": "moment"}).to_arrow())
        assert found == _comparable(connection.execute(re.sub(r"\bat\b", "moment", query)).fetchall())
