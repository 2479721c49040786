"""What columns hold and Python does not: an error at the step and row that make it, in any batch and on any engine."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import drift
from drift.columns.possible import check_made, needs_check
from drift_graph.errors import InputError, StepError

DAY_US = 86_400_000_000
YEAR_1, YEAR_10000 = -719_162, 2_932_897  # days from 1970
n = pl.col("n")
LIST, PAIR = pl.List(pl.Date), pl.Struct({"at": pl.Datetime("ms")})
#: Columns that are made of numbers; the greatest number that is a value, and one that is none.
MADE: list[tuple[pl.Expr, int, int]] = [
    (n.cast(pl.Date), YEAR_10000 - 1, YEAR_10000),
    (n.cast(pl.Date), YEAR_1, YEAR_1 - 1),
    (n.cast(pl.Datetime("us")), YEAR_10000 * DAY_US - 1, YEAR_10000 * DAY_US),
    (n.cast(pl.Datetime("us")), YEAR_1 * DAY_US, YEAR_1 * DAY_US - 1),
    (n.cast(pl.Datetime("ms")), YEAR_10000 * DAY_US // 1000 - 1, YEAR_10000 * DAY_US // 1000),
    (n.cast(pl.Datetime("ms", "Asia/Tokyo")), YEAR_1 * DAY_US // 1000, YEAR_1 * DAY_US // 1000 - 1),
    (n.cast(pl.Datetime("ns")), 5_000, 5_001),
    (n.cast(pl.Datetime("ns", "UTC")), -5_000, -5_999),
    (n.cast(pl.Duration("ns")), -2_000, -2_001),
    (n.cast(pl.Duration("ms")), (2**63 - 1) // 1000, (2**63 - 1) // 1000 + 1),
    (n.cast(pl.Duration("ms")), -(2**63 - 1) // 1000 + 1, -(2**63 - 1) // 1000 - 1),
    (n.cast(pl.Time), 86_399_999_999_000, 86_399_999_999_001),
    (pl.concat_list(n.cast(pl.Date), pl.lit(0).cast(pl.Date)), 5, YEAR_10000),
    (pl.struct(at=n.cast(pl.Datetime("ms"))), 5, 1 << 60),
    (pl.concat_list(pl.struct(at=n.cast(pl.Time))), 1_000, 1_001),
    (pl.concat_arr(n.cast(pl.Duration("ns"))), 1_000, 1_001),
]


@pytest.mark.parametrize(("made", "good", "bad"), MADE, ids=lambda each: str(each)[:60])
def test_what_python_has_no_value_for_ends_the_run_or_is_diverted_at_its_row(
    made: pl.Expr, good: int, bad: int
) -> None:
    rows = [{"n": good}] * 3 + [{"n": bad}] + [{"n": good}] * 3
    outcomes = set()
    for how in ({"engine": "reference"}, {"batch_items": 2}, {}):
        for expressions in ([made.alias("v")], [made.alias("v"), "n"]):  # in a row with another step, and without
            graph = drift.Graph("values")
            stream: Any = graph.source("rows", schema={"n": int}).with_columns(expressions[0], name="makes")
            (stream.select(*expressions[1:]) if expressions[1:] else stream).sink("out")
            run, given = drift.run(graph, {"rows": rows}, **how), 0
            with pytest.raises(StepError) as raised:
                for _ in run:
                    given += 1
            assert given == 3, how
            outcomes.add(str(raised.value).partition("\n")[0])
    assert len(outcomes) == 1
    assert (
        "step 'makes'" in (said := outcomes.pop())
        and "the field 'v' is " in said
        and "which a row cannot have: " in said
    )
    diverted = set()
    for how in ({"engine": "reference"}, {"batch_items": 2}, {}):
        graph = drift.Graph("values")
        graph.source("rows", schema={"n": int}).with_columns(v=made, on_error="divert").select("n").sink("out")
        run = drift.run(graph, {"rows": rows}, **how)
        assert [item.sink for item in run] == ["out"] * 3 + ["errors"] + ["out"] * 3
        diverted.add(run.digest)
    assert len(diverted) == 1


def test_a_value_that_is_none_is_an_error_for_a_key_an_aggregate_and_a_time_too() -> None:
    far = n.cast(pl.Date).alias("day")
    rows = [{"n": 5}, {"n": YEAR_10000}, {"n": 6}]

    def graph_of(kind: str) -> drift.Graph:
        graph = drift.Graph(kind)
        if kind == "time":
            graph.source("rows", schema={"n": int}, time=drift.EventTime(far.cast(pl.Datetime("us")), zone="UTC")).sink(
                "out"
            )
            return graph
        source = graph.source("rows", schema={"n": int})
        if kind == "key":
            source.key_by(far).running(most=drift.agg.max("n")).sink("out")
        else:
            source.key_by("n").running(most=drift.agg.max(far)).sink("out")
        return graph

    for kind in ("key", "aggregate", "time"):
        said = set()
        for how in ({"engine": "reference"}, {}, {"batch_items": 1}):
            with pytest.raises((StepError, InputError)) as raised:
                list(drift.run(graph_of(kind), {"rows": rows}, **how))
            said.add(str(raised.value).partition("\n")[0])
        assert len(said) == 1 and "which a row cannot have" in (message := said.pop()), kind
        assert kind != "time" or message.endswith("payload {'n': 2932897}, item 1 of the source")


def days(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(n, day=n.cast(pl.Date))


@pytest.mark.parametrize("how", [{"engine": "reference"}, {}, {"batch_items": 2}], ids=str)
def test_what_a_function_of_tables_makes_has_to_be_a_value_of_a_row_too(how: Any) -> None:
    graph = drift.Graph("tables")
    rows = graph.source("rows", schema={"n": int})
    made = rows.map_batches(days, schema={"n": int, "day": pl.Date}, on_error="divert")
    made.select(year=pl.col("day").dt.year()).sink("out")
    given = [{"n": day} for day in (0, 366, YEAR_10000, 731)]
    items = list(drift.run(graph, {"rows": given}, **how))
    assert [item.payload.get("year") for item in items] == [1970, 1971, None, 1972]
    assert "the field 'day' is Date, and has the value 10000-01-01, which a row cannot" in items[2].payload["error"]


def test_what_is_not_looked_at_is_in_no_row() -> None:
    """Values under null lists and structs, and lists without values."""
    for kind, none in ((LIST, YEAR_10000), (pl.List(pl.Duration("ns")), 1_001)):
        far = pl.Series("v", [[none], [1000], []]).cast(kind)
        masked = pl.DataFrame([far, pl.Series("keep", [False, True, True])])
        check_made(masked.select(pl.when("keep").then("v")))
        check_made(masked.clear())
        with pytest.raises(InputError, match=r"the field 'v' is List\(D.*\), and has the value"):
            check_made(masked)
    pair = pl.DataFrame([pl.Series("v", [{"at": 1 << 60}, {"at": 1}]).cast(PAIR), pl.Series("keep", [False, True])])
    check_made(pair.select(pl.when("keep").then("v")))
    with pytest.raises(InputError):
        check_made(pair)
    assert not any(map(needs_check, (pl.Int64, pl.List(pl.String), pl.Struct({"a": pl.Float32}), pl.Categorical())))


def test_the_first_row_is_named_of_several_fields() -> None:
    rows = pl.DataFrame({"a": [0, 0, 1001, 0], "b": [0, 1001, 1001, 1]}).cast(pl.Duration("ns"))
    with pytest.raises(InputError, match=r"the field 'b' is Duration\(.*, which a row cannot have: .* lose data: 1001"):
        check_made(rows)
