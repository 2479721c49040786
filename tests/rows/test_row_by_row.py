"""Expressions are row by row because each function in them is: what is listed is tried, what is new is refused."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import re
from typing import Any

import polars as pl
import polars.selectors as cs
import pytest

import drift
from drift.columns.expressions import _computed
from drift.columns.row_by_row import _SPACES, OF_ROWS, OF_SEQUENCES, REFUSED, _Look, _Place, check
from drift_graph.errors import GraphError

DAY, NOON = datetime.date(2024, 2, 28), datetime.datetime(2024, 10, 27, 12, 30, 5, 123456)
HOUR = datetime.timedelta(hours=1)
SCHEMA: dict[str, Any] = {
    "a": pl.Int64, "b": pl.Int32, "x": pl.Float64, "y": pl.Float64, "s": pl.String, "t": pl.String, "d": pl.Date,
    "m": pl.Datetime("us"), "z": pl.Datetime("us", "Europe/Berlin"), "u": pl.Duration("us"), "k": pl.Time,
    "l": pl.List(pl.Int64), "f": pl.List(pl.Float64), "r": pl.Array(pl.Float64, 3), "ts": pl.List(pl.String),
    "p": pl.Struct({"x": pl.Int64, "y": pl.String}), "c": pl.Categorical(), "e": pl.Enum(["lo", "hi"]),
    "n": pl.Binary, "o": pl.Boolean, "q": pl.Decimal(10, 2), "j": pl.String, "every": pl.String,
    "i": pl.String, "rs": pl.Array(pl.String, 2), "ps": pl.List(pl.Struct({"key": pl.String, "value": pl.Int64})),
}  # fmt: skip


def row(n: int) -> dict[str, Any]:
    at = NOON + n * 7 * HOUR
    values: dict[str, Any] = {
        "a": n % 5 - 1, "b": n % 4 + 1, "x": [0.57, 0.5, 3.7, 1e9, -0.0, 2.0][n % 6],
        "y": [3.0, 0.5, 2.0, 0.3, 3.0][n % 5], "s": ["Ab c", "", "x1y22", "ä\u0301b", "a,b,c"][n % 5],
        "t": ["b", "x", "a", ""][n % 4], "d": DAY + n * datetime.timedelta(days=1), "m": at,
        "z": at.replace(tzinfo=datetime.UTC), "u": n * HOUR + datetime.timedelta(microseconds=n), "k": at.time(),
        "l": [n, None, 3, n][: n % 5],
        "f": [0.1, None if n % 3 == 0 else 0.7, 1e16, -1e16, 0.3 * n][: n % 6], "ts": ["b", "a", None][: n % 4],
        "r": [0.1, None if n % 4 == 0 else 0.2, n / 3], "p": {"x": n, "y": "xyz"[n % 3]},
        "c": "uvw"[n % 3], "e": ["lo", "hi"][n % 2], "n": [b"ab", b"", b"\xff\0\1\2\3\4\5\6\7"][n % 3], "o": n % 2 == 0,
        "q": decimal.Decimal(n) / 4, "j": ['{"x": 1}', '{"x": 2, "y": [1]}'][n % 2], "every": ["1d", "1h"][n % 2],
        "i": str(n), "rs": ["a", "b"], "ps": [{"key": "k", "value": n}],
    }  # fmt: skip
    names = list(values)
    if n % 3 == 2:
        values[names[n % len(names)]] = None
    return {**values, **dict.fromkeys(names[n % 7 :: 7] if n % 11 == 5 else ())}


ROWS = pl.DataFrame([row(n) for n in (*range(33), 3, 3, 4)], schema=SCHEMA, orient="row")
c, element = pl.col, pl.element()

#: For each function of a row an expression or more, with arguments that are columns where it takes some.
EXAMPLES: list[pl.Expr] = [
    -c("a").abs() + c("b") * 2, c("a") - c("b"), c("x") / c("y"), c("a") // c("b"), c("a") % c("b"), c("x") % c("y"),
    c("a") == c("b"), c("a").ne_missing(c("b")), (c("a") < c("b")) & (c("x") >= c("y")) | ~c("o") ^ c("o"),
    c("a").eq_missing(c("b")) != c("o"), (c("a") > 1) & (c("x") <= 2.0), pl.arctan2("x", "y"), c("x").sign(),
    c("a").fill_null(c("b")), cs.numeric().fill_null(strategy="zero"), c("a").fill_null(strategy="one"),
    c("s").repeat_by(c("b")), c("x").clip(0, c("y")), pl.struct("a", "s"), pl.coalesce("a", "b"),
    c("x").abs().log(c("y")), c("x").abs().log1p(), c("y").exp(), c("x").round(1), c("q").round(1),
    c("x").round_sig_figs(2), c("x").truncate(1), c("x").floor(), c("x").ceil(), pl.max_horizontal("a", "b"),
    pl.min_horizontal("x", "y"), pl.sum_horizontal("a", "b"), pl.sum_horizontal(cs.integer()),
    pl.mean_horizontal("b", "b"), c("a").replace({1: 7, 2: 8}), c("q") * c("q") + c("a"),
    c("a").replace_strict([0, 1], ["u", "v"], default=c("s")), c("a").reinterpret(signed=False), c("d").to_physical(),
    c("e").to_physical(), c("x") ** c("y"), c("x") ** 2, c("x").abs().sqrt(), c("x").cbrt(), c("x").abs() ** 0.5,
    pl.sql_expr("a in (1, 3)"),
    pl.sql_expr("a in (1, 2.5)"), pl.sql_expr("round(x, 1)"), pl.sql_expr("cast(a as float)"), pl.sql_expr("a / b"),
    pl.sql_expr("a % b"), pl.sql_expr("pow(a, b)"), pl.sql_expr("case when a > 1 then s else t end"),
    pl.sql_expr("a || 'x'"), pl.sql_expr("x between 0 and 1"),
    *(getattr(c("x"), name)() for name in ("cos", "cot", "sin", "tan", "sinh", "cosh", "tanh", "degrees",
        "radians")),
    *(getattr(c("x").clip(0, 1), name)() for name in ("arccos", "arcsin", "arctan", "arcsinh", "arctanh")),
    c("x").abs().arccosh(), *(getattr(c("x"), name)() for name in ("erf", "erfc") if hasattr(c("x"), name)),
    c("a").is_null(), c("a").is_not_null(), c("x").is_finite(), c("x").is_infinite(), c("x").is_nan(),
    c("x").is_not_nan(), c("a").is_between(0, c("b")), c("a").is_in([1, 2]), c("a").is_in(c("l")),
    c("x").is_close(c("y")), pl.all_horizontal("o", c("a") > 1), pl.any_horizontal("o", c("a") > 1), ~c("o"),
    *(getattr(c("a"), f"bitwise_{name}")() for name in ( "count_ones", "count_zeros", "leading_ones",
        "leading_zeros", "trailing_ones", "trailing_zeros")), pl.business_day_count("d", pl.lit(DAY), holidays=[DAY]),
    c("d").dt.add_business_days(c("a"), roll="forward"), c("d").dt.is_business_day(holidays=[DAY]),
    pl.int_ranges(0, c("b")), pl.linear_spaces("x", "y", 3), pl.date_ranges("d", c("d").dt.offset_by("2d")),
    pl.datetime_ranges("m", c("m").dt.offset_by("2h"), interval="1h"),
    pl.time_ranges("k", pl.lit(datetime.time(23)), interval="5h"), c("c").cat.len_bytes(), c("c").cat.len_chars(),
    c("c").cat.starts_with("u"), c("c").cat.ends_with("u"), c("c").cat.slice(0, 1), c("c").cast(str),
    c("s").cast(pl.Categorical()), c("e").cast(str), c("a").cast(str), c("n").bin.contains(b"a"),
    c("n").bin.starts_with(b"a"), c("n").bin.ends_with(c("n")), c("n").bin.encode("hex"), c("n").bin.encode("base64"),
    c("n").bin.encode("hex").str.decode("hex"), c("n").bin.size(), c("n").bin.encode("base64").str.decode("base64"),
    c("n").bin.encode("hex").cast(pl.Binary).bin.decode("hex"),
    c("n").bin.encode("base64").cast(pl.Binary).bin.decode("base64"), c("n").bin.slice(1, 2), c("n").bin.head(1),
    c("n").bin.tail(c("b")), c("n").bin.get(0, null_on_oob=True),
    pl.lit(b"12345678").bin.reinterpret(dtype=pl.Int64) + c("a"), pl.format("{}-{}", "a", "s"),
    pl.concat_str("s", "t", separator="+"), c("s").str.contains(c("t")), c("s").str.count_matches(r"\d"),
    c("s").str.starts_with(c("t")), c("s").str.ends_with("c"), c("s").str.extract(r"(\d)"),
    c("s").str.extract_all(r"\d"), c("s").str.extract_groups(r"(?<l>[a-z])(?<n>\d)"),
    c("s").str.find(c("t"), literal=True), c("i").str.to_integer(), c("s").str.len_bytes(), c("s").str.len_chars(),
    c("s").str.to_lowercase(), c("s").str.to_uppercase(), c("s").str.to_titlecase(),
    c("j").str.json_decode(pl.Struct({"x": pl.Int64})), c("j").str.json_path_match("$.x"),
    c("s").str.replace("b", c("t"), literal=True), c("s").str.replace_all("b", "z"), c("s").str.normalize("NFC"),
    c("s").str.reverse(), c("s").str.pad_start(8), c("s").str.pad_end(8, "."), c("s").str.slice(1, c("b")),
    c("s").str.head(c("b")), c("s").str.tail(2), c("s").str.encode("hex"), c("s").str.encode("base64"),
    c("s").str.strip_chars(c("t")), c("s").str.strip_chars_start("A"), c("s").str.strip_chars_end("c"),
    c("s").str.strip_prefix(c("t")), c("s").str.strip_suffix("c"), c("s").str.split_exact(",", 1),
    c("s").str.splitn(",", 2), c("i").str.strptime(pl.Date, "%j", strict=False),
    c("d").dt.to_string("%Y/%m/%d").str.to_date("%Y/%m/%d"), c("s").str.split(c("t")),
    c("s").str.split(r"\d", literal=False), c("i").str.to_decimal(scale=2), c("i").str.zfill(c("b")),
    c("s").str.contains_any(["A", "x"]), c("s").str.escape_regex(), c("s").str.replace_many({"A": "x", "b": "y"}),
    c("s").str.extract_many(["A", "b"]), c("s").str.find_many(["A", "b"]), c("p").struct.field("x"),
    c("p").struct.field("*"), c("p").struct.unnest(), c("p").struct.rename_fields(["v", "w"]),
    c("p").struct.with_fields(pl.field("x") + c("a")), c("p").struct.json_encode(), c("p").name.prefix_fields("_"),
    c("p").name.suffix_fields("_"), *([c("p").struct.drop(["x"])] if hasattr(c("p").struct, "drop") else []),
    *(getattr(c("m").dt, name)() for name in ( "millennium", "century", "year", "is_leap_year", "iso_year",
        "quarter", "month", "days_in_month", "week", "weekday", "day", "ordinal_day", "time", "date", "hour",
        "minute", "second", "millisecond", "microsecond", "nanosecond", "month_start", "month_end", "timestamp")),
    *(getattr(c("u").dt, f"total_{name}")() for name in ( "days", "hours", "minutes", "seconds", "milliseconds",
        "microseconds", "nanoseconds")), c("m").dt.to_string("%H"), c("m").dt.cast_time_unit("ms"),
    c("z").dt.convert_time_zone("Asia/Tokyo"), c("m").dt.truncate(c("every")), c("m").dt.round("1d"),
    c("m").dt.offset_by(c("every")), c("z").dt.base_utc_offset(), c("z").dt.dst_offset(),
    c("m").dt.replace(year=c("b") + 2000), c("z").dt.replace_time_zone(None), c("d").dt.combine(c("k")),
    pl.datetime(2024, c("b"), 1), pl.duration(hours=c("a"), minutes="b"), pl.concat_list("l", c("a")),
    c("l").list.contains(c("a")), c("l").list.drop_nulls(), c("l").list.slice(1, c("b")), c("l").list.shift(c("a")),
    c("l").list.get(c("b"), null_on_oob=True), c("l").list.gather([0], null_on_oob=True), c("l").list.gather_every(2),
    c("l").list.count_matches(3), c("f").list.sum(), c("l").list.sum(), c("l").list.len(),
    *(getattr(c("f").list, name)() for name in ( "max", "min", "mean", "median", "std", "var", "arg_min",
        "arg_max", "diff", "sort", "reverse", "n_unique")), c("l").list.set_union(c("l").list.head(1)),
    c("ts").list.join("-"), c("l").list.head(3).list.to_struct(fields=["u", "v"]),
    c("r").arr.to_list().list.to_array(3), c("l").list.unique(maintain_order=True),
    *(getattr(c("r").arr, name)() for name in ( "len", "min", "max", "sum", "to_list", "std", "var", "mean",
        "median", "sort", "arg_min", "arg_max")), c("r").arr.slice(0, 2),
    pl.concat_arr("x", "y").arr.slice(0, 1, as_array=True), c("r").arr.get(c("b") - 1, null_on_oob=True),
    c("rs").arr.join("-"), c("r").arr.contains(0.1), c("r").arr.count_matches(0.1), c("r").arr.shift(c("a")),
    pl.concat_arr("x", "y"), c("r").arr.to_struct(fields=["u", "v", "w"]),
    *([c("r").arr.dot(c("r"))] if hasattr(c("r").arr, "dot") else []),
    c("l").list.eval(element.rank("ordinal") + element.cum_sum().shift(1)), c("f").list.agg(element.sum()),
    c("r").arr.eval(element - element.mean()), c("l").list.filter(element > 1),
    c("l").list.eval(element.filter(element > 1)), c("a").alias("v").name.keep(), c("a").name.prefix("v"), pl.all(),
    cs.float() * 2, c("a", "b") + 1, pl.lit(5) + c("a"),
    pl.dtype_of("a").display() if hasattr(pl, "dtype_of") else c("a"), pl.lit(pl.Series([1, 2])).max() + c("a"),
    pl.when(c("a") > 1).then("x").otherwise("y"), c("x").cut([0.2, 1.0]),
]  # fmt: skip
if hasattr(pl.Expr, "bin_intervals"):
    EXAMPLES.append(c("x").bin_intervals([0.2, 1.0], labels=False))
for name, more in (("datetime", ()), ("with_time_unit", ("us",))):  # which are no longer there
    if hasattr(c("m").dt, name):
        EXAMPLES.append(getattr(c("m").dt, name)(*more))
if hasattr(pl, "list"):
    EXAMPLES.append(pl.list("a", "b"))
if hasattr(c("l").list, "to_map"):
    maps = c("ps").list.to_map()
    EXAMPLES += [
        getattr(maps.map, name)() for name in ("keys", "values", "entries", "len") if hasattr(maps.map, name)
    ]  # fmt: skip
    EXAMPLES += [maps.map.get("k"), maps.map.contains_key("k")]


def variants(node: str) -> list[str]:
    """The names that Polars knows at a place in the tree of an expression, from what it says of a wrong one."""
    written = pl.LazyFrame({"a": [1]}).select(pl.col("a").abs()).serialize(format="json")
    plain = re.search(r'\{"Function":\{"input":\[\{"Column":"a"\}\],"function":"Abs"\}\}', written)
    assert plain is not None
    with pytest.raises(pl.exceptions.ComputeError) as raised:
        pl.LazyFrame.deserialize(io.StringIO(written.replace(plain[0], node)), format="json")
    return re.findall(r"`(\w+)`", str(raised.value).partition("expected")[2])


def names_of_polars() -> set[str]:
    """Every node, function and aggregate that the installed Polars has in its expressions."""
    names = set(variants('"Nonesuch"')) | {f"Agg.{name}" for name in variants('{"Agg":"Nonesuch"}')}
    for name in variants('{"Function":{"input":[],"function":"Nonesuch"}}'):
        if name in _SPACES:
            node = f'{{"Function":{{"input":[],"function":{{"{name}":"Nonesuch"}}}}}}'
            names.update(f"{name}.{inner}" for inner in variants(node))
        else:
            names.add(name)
    return names


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_function_of_the_installed_polars_has_been_looked_at() -> None:
    names = names_of_polars()
    assert len(names) > 300 and {"Over", "Agg.Sum", "CumSum", "StringExpr.Strptime"} <= names
    assert names - OF_ROWS - OF_SEQUENCES - REFUSED.keys() == set(), "look at it, and put it on a list"
    assert not OF_ROWS & OF_SEQUENCES and not (OF_ROWS | OF_SEQUENCES) & REFUSED.keys()


def names_in(expression: pl.Expr) -> set[str]:
    """The names that are looked up for an expression."""
    found: set[str] = set()

    class All(frozenset):  # type: ignore[type-arg]
        def __contains__(self, name: object) -> bool:
            found.add(str(name))
            return True

    look = _Look(ROWS.clear().lazy(), "an example")
    look._node(json.loads(expression.meta.serialize(format="json")), _Place(), All(OF_ROWS))
    return found


def test_each_function_of_rows_has_an_example() -> None:
    looked_up = {name for each in EXAMPLES for name in names_in(each)}
    assert sorted((OF_ROWS & names_of_polars()) - looked_up) == []


def test_functions_of_rows_give_a_row_the_same_among_any_rows() -> None:
    """Cut, in another order, in chunks, and of rows that were made anew; all examples at once, as they are many."""
    fields = tuple(pl.Schema(SCHEMA).items())
    for expression in EXAMPLES:
        assert set(check(expression, fields, "the example")) <= SCHEMA.keys()
    step = "select", tuple(pl.struct(each).alias(str(at)).meta.serialize() for at, each in enumerate(EXAMPLES))
    whole, order = _computed(ROWS, [step]), [(7 * at) % len(ROWS) for at in range(len(ROWS))]  # type: ignore[list-item]
    made_anew = pl.DataFrame(ROWS.to_dicts(), schema=SCHEMA)
    ways = {
        "in chunks": (pl.concat([ROWS[at : at + 5] for at in range(0, len(ROWS), 5)], rechunk=False), 100),
        "one by one": (ROWS, 1),
        "in sevens": (ROWS, 7),
        "one by one, made anew": (made_anew, 1),
        "in another order": (ROWS[order], 100),
    }
    for way, (rows, count) in ways.items():
        pieces = [_computed(rows[at : at + count], [step]) for at in range(0, len(rows), count)]  # type: ignore[list-item]
        made, expected = pl.concat(pieces), whole[order] if way == "in another order" else whole
        for at, expression in enumerate(EXAMPLES):
            assert repr(made[str(at)].to_list()) == repr(expected[str(at)].to_list()), f"{way}: {expression}"


LIST, PAIR = pl.col("l"), pl.col("p").struct
OTHER_ROWS = [
    pl.all().forward_fill(), c("a", "b").shift(), c(pl.Float64).interpolate(), cs.numeric().fill_null(strategy="mean"),
    pl.all_horizontal(cs.float().is_duplicated()), c("a").sum(), c("a") - c("a").mean(), c("x").sum().over("a"),
    c("x").cum_sum(), cs.temporal().diff(), c("a").rank(), c("a").is_in(c("b")), c("x").rolling_max(2), c("x").max(),
    PAIR.with_fields(pl.field("x").cum_sum()), PAIR.with_fields(pl.field("x") + pl.len()),
    c("x").rolling_mean_by("m", "1h"),
    c("a").reverse(), c("a").sort(), c("a").sort_by("b"), c("a").is_first_distinct(), c("x").ewm_mean(alpha=0.5),
    c("a").cumulative_eval(element.sum()), c("a").first(), c("a").implode(), c("a").qcut(2), c("a").rle_id(),
    c("x").sum().rolling("m", period="1h"), c("a").search_sorted(3), c("a").n_unique(), c("a").has_nulls(),
    pl.int_range(0, pl.len()), pl.corr("x", "y"), c("x").peak_max(), c("a").arg_sort(), pl.nth(0).sum(),
    pl.when(c("a") > c("a").min()).then(1), c("x").pct_change(), c("l").list.eval(element).first(), c("a").null_count(),
    c("o").any(), c("a").bitwise_and(), c("s").str.join(), c("a").top_k_by("b", 2), c("a").index_of(3),
    c("a").product(),
]  # fmt: skip
#: Expressions, and what an error says of them.
SAYS: list[tuple[pl.Expr, str]] = [
    *((each, "depends on other rows, and so on how they come in batches") for each in OTHER_ROWS),
    *((each, "another number of rows than it takes; drop rows with stream.filter") for each in (
        LIST.explode(), LIST.list.explode(), c("a").drop_nulls(), c("a").filter(c("b") > 1), c("a").append(c("b")),
        c("a").head(2), c("a").gather([0]), c("a").unique(), c("a").extend_constant(1, 2), c("x").drop_nans(),
        c("a").top_k(2), c("a").unique(maintain_order=True), c("a").gather_every(2), c("r").arr.explode(),
        c("a").reshape((2, -1)))),
    *((each, "calls Python; use stream.map") for each in (
        c("a").map_elements(str, return_dtype=pl.String), c("a").map_batches(lambda column: column),
        pl.fold(pl.lit(0), lambda one, two: one + two, cs.integer()), c("p").name.map_fields(str.upper),
        pl.reduce(lambda one, two: one + two, cs.integer()), c("a").name.map(str.upper))),
    (c("a").is_in(c("b")), "of a column is not row by row: .* for values of the same row compare with =="),
    (c("a").hash(), "hash has another result with another version of Polars"),
    (c("a").mode(), "mode has an order that Polars does not promise"),
    (LIST.list.eval(element.mode()), "mode has an order that Polars does not promise"),
    (LIST.list.unique(), r"unique has an order .* unique\(maintain_order=True\)"),
    (c("a").value_counts(), "value_counts has an order"),
    (c("a").shuffle(), "is drawn anew"), (c("a").sample(2), "is drawn anew"), (LIST.list.sample(1), "is drawn anew"),
    (LIST.list.eval(element.rank("random")), "rank is drawn anew"),
    (c("a").approx_n_unique(), "cuts the values into parts"), (c("a").set_sorted(), "how Polars stores rows"),
    (c("c").to_physical(), "another in each; cast to text"), (c("c").cast(pl.UInt32), "another in each; cast to text"),
    (pl.struct("c").struct.with_fields(pl.field("c").to_physical()), "another in each; cast to text"),
    (c("s").cast(pl.Categorical()).cast(pl.Int32), "another in each; cast to text"),
    (c("x").reinterpret(signed=True), "of floats shows bits"),
    *((each, "compares categories by the numbers that a process gives") for each in (
        pl.max_horizontal("c", c("t").cast(pl.Categorical())), pl.min_horizontal("c", "c"),
        c("c").clip(c("c"), c("c")))),
    *((each, "with values of a column is not row by row") for each in (
        c("s").replace(c("t"), c("s")), c("s").replace_strict(["a"], c("t"), default=None),
        c("s").str.contains_any(c("t")), c("s").str.replace_many(c("ts"), ["x"]), c("s").str.extract_many(c("t")),
        c("s").str.find_many(c("t")), c("d").dt.is_business_day(holidays=c("d").implode()))),
    (pl.sum_horizontal("x", "y"), r"of floats depends on how many threads Polars has.*a \+ b \+ c"),
    (pl.sum_horizontal(cs.numeric()), "of floats depends on how many threads"),
    (pl.mean_horizontal("a", "b"), "depends on how many threads Polars has"),
    (c("s").str.to_date(), "without a format takes it from the first value"),
    (c("s").str.to_datetime(), "without a format takes it from the first value"),
    (c("a") + pl.lit(pl.Series([1, 2])), "has 2 values, and a row takes one"),
    (pl.int_range(0, 3) + c("a"), "has 3 values, and a row takes one"),
    (c("nowhere"), "has the field 'nowhere', and the rows have"), (c("a", "nowhere"), "has the field 'nowhere'"),
    (LIST.list.eval(element.cum_sum().over(element)), "over is not row by row"),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::polars.exceptions.PolarsInefficientMapWarning")
def test_what_is_not_row_by_row_is_refused_when_it_is_written_and_named() -> None:
    rows = drift.Graph("refused").source("rows", schema=SCHEMA)
    for expression, says in SAYS:
        for write in (rows.select, rows.with_columns, lambda each: rows.filter(each.is_null())):
            with pytest.raises(GraphError, match=says):
                write(expression)


@pytest.mark.parametrize(
    "use",
    [
        lambda rows, each: rows.key_by(each.alias("key")),
        lambda rows, each: rows.key_by("a").running(total=drift.agg.sum(each)),
        lambda rows, each: rows.at_end(drift.agg.max(each)),
        lambda rows, each: rows.at_end(drift.agg.count(each > 1)),
        lambda rows, each: drift.Graph("timed").source("rows", schema=SCHEMA, time=drift.EventTime(each)),
        lambda rows, each: drift.Graph("timed").source("rows", schema=SCHEMA, time=drift.EventTime("a", tie=each)),
    ],
    ids=["key", "running", "at_end", "count", "time", "tie"],
)
def test_expressions_are_refused_wherever_they_stand(use: Any) -> None:
    rows = drift.Graph("refused").source("rows", schema=SCHEMA)
    for expression in (c("a").cum_sum(), cs.by_name("a").forward_fill(), c("a").is_in(c("b")).cast(pl.Int64)):
        with pytest.raises(GraphError, match="depends on other rows"):
            use(rows, expression)


def test_a_function_that_is_on_no_list_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drift.columns.row_by_row.OF_ROWS", OF_ROWS - {"StringExpr.Uppercase", "Floor"})
    rows = drift.Graph("refused").source("rows", schema=SCHEMA)
    for expression, name in ((c("s").str.to_uppercase(), "str.uppercase"), (cs.float().floor() * 2, "floor")):
        with pytest.raises(GraphError, match=f"{name} is not among the functions of Polars that are known"):
            rows.select(expression)


def test_sums_of_lists_are_the_same_whatever_nulls_other_rows_have() -> None:
    values = [0.1 * n for n in range(300)] + [1e17, -1e17]
    lists = pl.DataFrame({"l": [values, [1.0, None]], "n": [1, 2]}, schema={"l": pl.List(pl.Float64), "n": pl.Int64})
    arrays = pl.DataFrame({"r": [values[-3:] * 3, [None, *values[:8]]]}, schema={"r": pl.Array(pl.Float64, 9)})
    for rows, expression in (
        (lists, c("l").list.sum()), (lists, c("l").list.mean() + c("n")), (arrays, c("r").arr.sum()),
        (lists, pl.when(c("n") > 0).then(c("l").list.sum()).otherwise(1.1)),
    ):  # fmt: skip
        step: Any = ("select", (expression.meta.serialize(),))
        whole = [repr(each) for (each,) in _computed(rows, [step]).rows()]
        alone = [repr(_computed(rows[at : at + 1], [step]).item()) for at in range(2)]
        first = pl.DataFrame(rows[:1].to_dicts(), schema=rows.schema)  # without nulls anywhere
        assert whole == alone and whole[0] == repr(first.select(expression).item())


def test_types_inside_of_types_may_be_classes() -> None:
    kinds = {
        "days": pl.List(pl.Date), "times": pl.Array(pl.Time, 1), "at": pl.Struct({"day": pl.Date, "at": pl.Datetime}),
        "words": pl.List(pl.Categorical), "spans": pl.List(pl.List(pl.Duration)),
    }  # fmt: skip
    day, time = datetime.date(2024, 2, 29), datetime.time(1)
    row = {
        "days": [day], "times": [time], "at": {"day": day, "at": datetime.datetime(2024, 2, 29, 1)},
        "words": ["a", None], "spans": [[datetime.timedelta(1)], []],
    }  # fmt: skip
    graph = drift.Graph("classes")
    stream = graph.source("in", schema=kinds).with_columns(first=pl.col("days").list.first())
    stream.filter(pl.col("words").list.len() > 1).sink("out")
    for how in ({"engine": "reference"}, {}):
        (item,) = drift.run(graph, {"in": [row]}, **how)
        assert item.payload == {**row, "first": day}
