"""The output of a run as a table, and tables as sources: typed columns, and one digest wherever the data are from."""

from __future__ import annotations

import dataclasses
import datetime
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import duckdb
import msgspec
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import drift
from drift import InputError, PayloadError, SettingsError
from drift.columns.rows import Frame


class Named(NamedTuple):
    word: str
    n: int


@dataclasses.dataclass(frozen=True)
class Data:
    word: str
    n: int


class Struct(msgspec.Struct, frozen=True):
    word: str
    n: int


def echo(*sinks: str) -> drift.Graph:
    graph = drift.Graph("echo")
    given = graph.source("rows")
    for sink in sinks or ("out",):
        given.sink(sink)
    return graph


def as_dict(word: str, n: int) -> dict[str, Any]:
    return {"word": word, "n": n}


@pytest.mark.smoke
@pytest.mark.parametrize("make", [Named, Data, Struct, as_dict])
@pytest.mark.parametrize("engine", ["local", "reference", "zeromq"])
def test_fields_are_typed_columns_behind_position_sink_and_time(make: Callable[[str, int], Any], engine: Any) -> None:
    table = drift.run(echo(), {"rows": [make("a", 1), make("b", 2)]}, engine=engine).to_arrow()
    assert [f"{field.name}: {field.type}" for field in table.schema] == [
        "position: int64", "sink: string", "time: int64", "word: string", "n: int64"
    ]  # fmt: skip
    assert table.to_pylist() == [
        {"position": 0, "sink": "out", "time": 0, "word": "a", "n": 1},
        {"position": 1, "sink": "out", "time": 1, "word": "b", "n": 2},
    ]


def test_tuples_get_the_names_that_are_given_and_values_are_one_column() -> None:
    run = drift.run(echo(), {"rows": [("a", 1)]})
    assert run.to_arrow(columns={"word": pa.string(), "n": pa.int8()}).schema.field("n").type == pa.int8()
    assert drift.run(echo(), {"rows": [("a", 1)]}).to_arrow().column_names[3:] == ["0", "1"]
    assert drift.run(echo(), {"rows": [7, 8]}).to_arrow().column("value").to_pylist() == [7, 8]
    assert drift.run(echo(), {"rows": [{"time": 5}]}).to_arrow().column("payload.time").to_pylist() == [5]
    assert drift.run(echo(), {"rows": []}).to_arrow().column_names[:3] == ["position", "sink", "time"]


def test_of_several_sinks_one_or_all() -> None:
    rows = {"rows": list(range(10_000))}
    table = drift.run(echo("one", "other"), rows).to_arrow(of="other")
    assert set(table.column("sink").to_pylist()) == {"other"}
    assert table.column("value").to_pylist() == rows["rows"] == table.column("time").to_pylist()
    both = drift.run(echo("one", "other"), rows).to_arrow()
    assert both.column("position").to_pylist() == list(range(20_000))
    with pytest.raises(SettingsError, match="has no sink 'third'; it has 'one', 'other'"):
        drift.run(echo("one", "other"), rows).to_arrow(of="third")


def test_a_run_that_has_ended_is_no_table() -> None:
    """Nor an empty one: its items are gone."""
    run = drift.run(echo("one", "other"), {"rows": [1, 2]})
    assert run.to_arrow(of="one").num_rows == 2
    with pytest.raises(SettingsError, match="has ended, and its output was taken"):
        run.to_arrow(of="other")
    run = drift.run(echo(), {"rows": [1]})
    run.finish()
    with pytest.raises(SettingsError, match="has ended"):
        run.to_arrow()
    other: list[int] = []
    run = drift.run(echo("one", "other"), {"rows": [1, 2]}, sinks={"other": other})
    assert run.to_arrow(of="one").num_rows == len(other) == 2


def test_more_rows_than_are_gathered_at_once_in_event_time() -> None:
    rows = [{"at": -at, "n": at} for at in range(100_000)]
    policy = drift.EventTime(time=lambda row: row["at"], lateness=100_000)
    table = drift.run(echo(), {"rows": rows}, times={"rows": policy}).to_arrow()
    assert table.column("time").to_pylist() == list(range(-99_999, 1)) == table.column("at").to_pylist()


@pytest.mark.smoke
def test_what_no_type_holds_says_what_to_do() -> None:
    with pytest.raises(PayloadError, match="no one type holds the values of 'value'"):
        drift.run(echo(), {"rows": [1, "a"]}).to_arrow()


@pytest.mark.smoke
def test_pandas_polars_and_duckdb() -> None:
    def run() -> drift.Run:
        return drift.run(echo(), {"rows": [Struct("a", 1), Struct("b", 2)]})

    assert run().to_pandas()["word"].tolist() == ["a", "b"]
    assert run().to_polars()["n"].sum() == 3
    assert run().to_duckdb().filter("n > 1").project("word").fetchall() == [("b",)]
    own = duckdb.connect()
    assert run().to_duckdb(own).fetchall() == [(0, "out", 0, "a", 1), (1, "out", 1, "b", 2)]
    own.close()


# Tables as sources.

UTC = datetime.UTC
ROWS: list[dict[str, Any]] = [
    {
        "n": 1, "x": 0.5, "word": "a", "at": datetime.datetime(2024, 3, 1, 12, 30, 1, 250000),
        "zoned": datetime.datetime(2024, 3, 1, 12, 30, tzinfo=UTC), "day": datetime.date(2024, 3, 1),
        "paid": Decimal("1.50"), "kind": "x", "ok": True, "raw": b"\x00",
        "took": datetime.timedelta(milliseconds=5), "parts": [1, 2], "place": {"a": 1},
    },
    {
        "n": 2, "x": None, "word": None, "at": None, "zoned": None, "day": None, "paid": None, "kind": "y", "ok": False,
        "raw": None, "took": None, "parts": [], "place": {"a": None},
    },
]  # fmt: skip
SCHEMA = pa.schema([
    ("n", pa.int64()), ("x", pa.float64()), ("word", pa.string()), ("at", pa.timestamp("us")),
    ("zoned", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("paid", pa.decimal128(10, 2)), ("kind", pa.string()),
    ("ok", pa.bool_()), ("raw", pa.binary()), ("took", pa.duration("us")), ("parts", pa.list_(pa.int64())),
    ("place", pa.struct([("a", pa.int64())])),
])  # fmt: skip
ARROW = pa.Table.from_pylist(ROWS, SCHEMA)


def in_other_types() -> pa.Table:
    """The data of the tests as other libraries and files have them."""
    others = {
        "n": pa.int32(), "word": pa.large_string(), "at": pa.timestamp("ns"),
        "zoned": pa.timestamp("ms", "America/New_York"), "kind": pa.dictionary(pa.int8(), pa.string()),
        "day": pa.date64(), "raw": pa.large_binary(), "took": pa.duration("ns"), "parts": pa.large_list(pa.int32()),
    }  # fmt: skip
    return ARROW.cast(pa.schema([pa.field(field.name, others.get(field.name, field.type)) for field in SCHEMA]))


SOURCES: dict[str, Callable[[], Any]] = {
    "dicts": lambda: ROWS,
    "arrow": lambda: ARROW,
    "arrow in other types": in_other_types,
    "a batch": lambda: ARROW.combine_chunks().to_batches()[0],
    "pandas": lambda: ARROW.to_pandas(types_mapper=pd.ArrowDtype),
    "pandas with objects": lambda: ARROW.drop_columns(["place"]).to_pandas(),  # which has 1.0 beside None there
    "polars": lambda: pl.from_arrow(ARROW),
    "duckdb": lambda: duckdb.from_arrow(ARROW.drop_columns(["took"])),  # whose intervals have months
}


@pytest.mark.smoke
@pytest.mark.parametrize("source", SOURCES)
def test_equal_data_give_one_digest_wherever_they_are_from(source: str) -> None:
    frame = SOURCES[source]()
    left_out = {"pandas with objects": "place", "duckdb": "took"}.get(source)
    rows = [{name: row[name] for name in row if name != left_out} for row in ROWS]
    expected = drift.run(echo(), {"rows": rows})
    assert [item.payload for item in expected] == rows
    for engine in ("local", "reference", "zeromq"):
        run = drift.run(echo(), {"rows": frame}, engine=engine)  # type: ignore[arg-type]
        assert [item.payload for item in run] == rows
        assert run.digest == expected.digest, engine


def test_equal_data_give_one_digest_on_spark_as_its_own_frame_and_as_tables(spark: Any) -> None:
    names = [name for name in SCHEMA.names if name not in ("took",)]
    arrow = ARROW.select(names)
    expected = drift.run(echo(), {"rows": arrow}).finish().digest
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        frame = spark.createDataFrame(arrow.to_pylist(), _spark_schema(names))
        ordered = drift.spark.source(frame, order_by="n")
        assert drift.run(echo(), {"rows": ordered}, engine="spark").finish().digest == expected
        assert drift.run(echo(), {"rows": frame.orderBy("n").toArrow()}).finish().digest == expected
        assert drift.run(echo(), {"rows": arrow}, engine="spark").finish().digest == expected
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def _spark_schema(names: list[str]) -> str:
    kinds = {
        "n": "long", "x": "double", "word": "string", "at": "timestamp_ntz", "zoned": "timestamp", "day": "date",
        "paid": "decimal(10,2)", "kind": "string", "ok": "boolean", "raw": "binary", "parts": "array<long>",
        "place": "struct<a: long>",
    }  # fmt: skip
    return ", ".join(f"{name} {kinds[name]}" for name in names)


def test_rows_as_tuples_as_values_and_as_a_type() -> None:
    frame = pl.DataFrame({"word": ["a", "b"], "n": [1, 2]})
    assert _payloads(drift.sources.table(frame, payload="tuple")) == [("a", 1), ("b", 2)]
    assert _payloads(drift.sources.table(frame.select("n"), payload="value")) == [1, 2]
    assert _payloads(drift.sources.table(frame, type=Struct)) == [Struct("a", 1), Struct("b", 2)]
    assert _payloads(drift.sources.table(frame.to_pandas(), type=Data)) == [Data("a", 1), Data("b", 2)]


def _payloads(source: Any) -> list[Any]:
    return [item.payload for item in drift.run(echo(), {"rows": source}, batch_items=1)]


def test_a_table_that_is_given_as_it_is_stays_columns_where_it_can() -> None:
    union = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 0]), pa.array(["", "x"])])
    frame = pl.DataFrame({"word": ["a", "b"], "n": [1, None]})
    tables = [frame, frame.to_pandas(), frame.to_arrow(), duckdb.sql("select 'a' as word, 1 as n")]
    for table, kind in [*((each, Frame) for each in tables), (pa.table({"either": union}), list)]:
        first, *_ = drift.run(echo(), {"rows": table}).batches()
        assert type(first.payloads) is kind
        assert list(first.payloads) == _payloads(drift.sources.table(table))


def test_a_row_that_has_no_payload_is_named_and_those_before_it_are_out() -> None:
    ns = pa.array([0, 1_000, 1], pa.int64()).cast(pa.timestamp("ns"))
    run = drift.run(echo(), {"rows": pa.table({"at": ns})})
    items = []
    with pytest.raises(InputError, match=r"the Table, row 3: column 'at', of type timestamp\[ns\]"):
        items.extend(run)
    assert len(items) == 2
    words = pl.DataFrame({"word": ["a", "b"], "n": [1, None]})
    run = drift.run(echo(), {"rows": drift.sources.table(words, type=Struct)})
    with pytest.raises(InputError, match="the DataFrame, row 2: it is no Struct: Expected `int`, got `null`"):
        list(run)
    assert run.report.items_out == 1


def test_a_column_of_objects_is_refused() -> None:
    for payload in ("dict", "rows"):
        for kind in (pl.Object, pl.List(pl.Object)):
            things = pl.DataFrame({"v": pl.Series([object()], dtype=pl.Object)})
            frame = things if kind == pl.Object else pl.DataFrame(schema={"v": kind})
            with pytest.raises(InputError, match="a column holds objects of Python"):
                drift.run(echo(), {"rows": drift.sources.table(frame, payload=payload)}).finish()  # type: ignore[arg-type]


def test_rows_without_columns_are_empty_dicts_and_no_columns() -> None:
    rows = pa.table({"a": [1, 2, 3]}).select([])
    assert [item.payload for item in drift.run(echo(), {"rows": rows})] == [{}, {}, {}]
    with pytest.raises(InputError, match="it has no columns"):
        drift.run(echo(), {"rows": drift.sources.table(rows, payload="rows")}).finish()


@pytest.mark.smoke
@pytest.mark.parametrize(
    "frame",
    [
        pa.table({"v": pa.array([Decimal("1.50")], pa.decimal256(60, 2))}),
        pl.DataFrame({"": [1], "b": [2]}),
        pl.DataFrame({"v": [["a"]]}, schema={"v": pl.List(pl.Categorical)}),
        pl.DataFrame({"v": [{"e": "a"}]}, schema={"v": pl.Struct({"e": pl.Enum(["a"])})}),
        pl.DataFrame({"v": [["a"]]}, schema={"v": pl.Array(pl.Categorical, 1)}),
        pa.table({"a\0b": [1]}),
    ],
    ids=["decimal256", "no name", "list of categories", "struct of an enum", "array of categories", "a zero"],
)
def test_a_table_as_it_is_gives_the_values_of_its_dicts(frame: Any) -> None:
    rows = frame.to_pylist() if isinstance(frame, pa.Table) else frame.to_dicts()
    assert _payloads(drift.sources.table(frame)) == rows
    assert [item.payload for item in drift.run(echo(), {"rows": frame})] == rows


def test_lists_that_are_views_of_their_elements_keep_all_of_them() -> None:
    elements = pa.array([10, 11, 12, 13, 14])
    crossed = pa.ListViewArray.from_arrays(pa.array([3, 0, 1], pa.int32()), pa.array([2, 2, 3], pa.int32()), elements)
    view = pa.list_view(pa.int64())
    columns = {
        "crossed": crossed,
        "large": pa.array([[1, None], None, [2]], pa.large_list_view(pa.int32())),
        "views": pa.array([None, [[1], None], [[2, 3], [4]]], pa.list_view(view)),
        "lists": pa.array([[[1, 2]], [], [None, [3]]], pa.list_(view)),
        "pairs": pa.array([[[1], None], None, [[2], [3]]], pa.list_(view, 2)),
        "structs": pa.array([{"a": [1], "b": 1}, None, {"a": [2, 3], "b": 2}], pa.struct([("a", view), ("b", "int8")])),
    }
    maps = pa.array([[("a", [1])], None, [("b", None), ("c", [2, 3])]], pa.map_(pa.string(), view))
    for table in (pa.table(columns), pa.table({**columns, "maps": maps})):
        for part in (table, table.slice(1)):
            rows = part.to_pylist(maps_as_pydicts="strict")
            assert _payloads(drift.sources.table(part)) == rows
            assert [item.payload for item in drift.run(echo(), {"rows": part})] == rows


@pytest.mark.parametrize("time", ["24:00:00", "-00:00:01"])
def test_a_time_that_is_none_of_a_day_is_refused(time: str) -> None:
    micros = {"24:00:00": 86_400 * 10**6, "-00:00:01": -(10**6)}[time]
    times = pa.table({"v": pa.array([0, micros], pa.int64()).cast(pa.time64("us"))})
    for payload in ("dict", "rows"):
        with pytest.raises(InputError, match=r"row 2: .*a time of a day is from 00:00:00 to 23:59:59.999999"):
            drift.run(echo(), {"rows": drift.sources.table(times, payload=payload)}).finish()  # type: ignore[arg-type]


def test_a_time_inside_a_map_that_is_none_of_a_day_is_refused_in_its_row_alone() -> None:
    kept = pa.map_(pa.string(), pa.time64("us"))
    maps = pa.array([[("a", 1)], [("b", 2)], [("c", 86_400 * 10**6), ("d", 3)]], pa.map_(pa.string(), pa.int64()))
    times = pa.MapArray.from_arrays(maps.offsets, maps.keys, maps.items.cast(pa.time64("us")))
    for nested, as_rows in (
        (times.cast(kept), False),
        (pa.array([[0], [], [86_400 * 10**6]]).cast(pa.list_(kept.item_type)), True),
    ):
        for payload in ("dict", "rows") if as_rows else ("dict",):
            table = drift.sources.table(pa.table({"v": nested}), payload=payload)  # type: ignore[arg-type]
            run = drift.run(echo(), {"rows": table})
            with pytest.raises(InputError, match=r"row 3: .*a time of a day is from 00:00:00 to 23:59:59.999999"):
                list(run)
            assert run.report.items_out == 2


def test_a_connection_of_duckdb_is_let_go_of(tmp_path: Any) -> None:
    connection = duckdb.connect()
    numbers = connection.sql("select range as n from range(20000)")

    def run(stop: int | None) -> drift.Run:
        state = drift.Checkpoints(tmp_path / "state", every_s=0)
        made = drift.run(echo(), {"rows": numbers}, state=state, batch_items=1000)
        for item in made:
            if item.position == stop:
                made.close()
                break
        return made

    run(5000)
    assert connection.sql("select 5").fetchall() == [(5,)]
    assert run(None).digest == drift.run(echo(), {"rows": numbers}).finish().digest


def two_sources() -> drift.Graph:
    graph = drift.Graph("two")
    graph.source("a").merge(graph.source("b")).sink("out")
    return graph


def test_a_relation_loses_no_row_to_other_queries_of_its_connection() -> None:
    connection = duckdb.connect()
    numbers = connection.sql("select range as n from range(300000)")
    many = drift.Graph("many")
    many.source("rows", schema={"n": int}).filter("n % 1000 = 0").sink("out")
    seen = []
    for item in drift.run(many, {"rows": numbers}):
        seen.append(item.payload["n"])
        assert connection.sql("select 42").fetchall() == [(42,)]
    assert seen == list(range(0, 300_000, 1000))
    both = {name: connection.sql(f"select range as n, '{name}' as k from range(5)") for name in ("a", "b")}
    run = drift.run(two_sources(), both)
    assert sorted((item.payload["k"], item.payload["n"]) for item in run) == [(k, n) for k in "ab" for n in range(5)]
    same = drift.run(two_sources(), {"a": both["a"], "b": both["a"]})
    assert [item.payload["n"] for item in same] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize(
    "once",
    [
        lambda: iter([1, 2]),
        lambda: (n for n in [1, 2]),
        lambda: sqlite3.connect(":memory:").execute("select 1"),
        lambda: ARROW.to_reader(),
        lambda: drift.sources.table(ARROW.to_reader()),
        lambda: drift.sources.live(iter([1, 2])),
    ],
)
def test_two_sources_do_not_share_what_can_be_read_once(once: Any) -> None:
    given = once()
    with pytest.raises(SettingsError, match=r"sources 'a' and 'b' are given one .*, which can be read once: "):
        drift.run(two_sources(), {"a": given, "b": given}).finish()
    drift.run(two_sources(), {"a": once(), "b": once()}).finish()


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(SettingsError, match="is given neither a DataFrame of pandas or Polars nor a table of Arrow"):
        drift.sources.table([1, 2])
    with pytest.raises(SettingsError, match="payload='list' is neither 'dict', 'tuple', 'value' nor 'rows'"):
        drift.sources.table(ARROW, payload="list")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"the name of column 'a.x00b' has a zero character; rename it"):
        drift.run(echo(), {"rows": pl.DataFrame({"a\0b": [1]})}).finish()
    twice = pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64()))
    with pytest.raises(
        InputError, match="row 1: column 'm', of type map<string, int64>, has a value that Python has not"
    ):
        drift.run(echo(), {"rows": pa.table({"m": twice})}).finish()
    with pytest.raises(InputError, match="two columns have one name: a, a"):
        drift.run(echo(), {"rows": pa.table([[1], [2]], names=["a", "a"])}).finish()
    with pytest.raises(InputError, match="payload='value' takes a table of one column"):
        drift.run(echo(), {"rows": drift.sources.table(ARROW, payload="value")}).finish()
