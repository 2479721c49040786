"""What other programs wrote gives these values, or is refused in these words, as dicts and as rows that stay columns.

The scripts write_*.py beside this file wrote the files, which docs/connectors.md lists with the versions.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import EqualTo

import drift
from drift import sinks, sources

FOLDER = Path(__file__).parent
NAN = float("nan")
LIST_PARTS = [[1, None], [], None]
NO_ROWS = r"a map is a dict of any keys, and rows have fields; .* payload='dict'"


class Refused(NamedTuple):
    """Behind so many values.

    Attributes:
        words: a pattern.
    """

    values: list[Any]
    words: str


def of(name: str, values: list[Any]) -> list[dict[str, Any]]:
    return [{name: value} for value in values]


EARLY = datetime(2024, 1, 1, 0, 0, 0, 123456)
NANOS = Refused(of("v", [EARLY, None]), r"row 3: .*timestamp\[ns\].*would lose data: 1704067200123456789")
THREE_DECIMALS = [
    {"a": Decimal("1.5"), "b": Decimal("-123456789.25"), "c": Decimal("12345678901234567890123456789012345678")}
]
TWO_DECIMALS = [{"a": Decimal("1.5"), "b": Decimal("-1.50")}]
TWICE = Refused(of("v", [{1: "a", 2: None}]), r"row 2: .*duplicate key.*or a map to a list of its entries")
SPARK_LISTS = [{"v": [1, None], "w": [[1], None], "m": {"a": [1]}, "s": [{"x": 1}]}]
SPARK_MOMENTS = [datetime(2024, 1, 1, 0, 0, 0, 123456), datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(1, 1, 1)]
WIDE = r"Integers with more than 64 bits not implemented; cast them to decimals or text where it is written"
SPANS_OF = "has intervals of months, days and milliseconds, of which Arrow gives the bytes alone; cast it"
VARIANTS = "column 'v' of .* has variants, of which Arrow gives the bytes alone; cast it where"
#: For each file its payloads, and where they differ what is said of rows that stay columns.
FILES: dict[str, list[Any] | Refused | tuple[list[Any] | Refused, str]] = {
    "duckdb/huge integers": of("v", [9.223372036854775808e18, 1.0]),
    "duckdb/exact sums": of("v", [9007199254740992.0]),  # DuckDB has written a double
    "duckdb/sums cast to decimals": of("v", [Decimal(9007199254740993)]),
    "duckdb/bignum": of("v", ["123456789012345678901234567890123456789012"]),
    "duckdb/decimals": THREE_DECIMALS,
    "duckdb/maps": (of("v", [{1: "a", 2: None}]), NO_ROWS),
    "duckdb/nanoseconds": Refused(of("v", [EARLY]), r"row 2: .*would lose data: 1704067200123456789"),
    "duckdb/zones": [{"v": datetime(2023, 12, 31, 22, tzinfo=UTC), "w": time(8), "x": datetime(2024, 1, 1)}],
    "duckdb/infinity": Refused(of("v", [datetime(2024, 1, 1)]), "row 2: .*a timestamp is of the years 1 to 9999"),
    "duckdb/days beyond": Refused(of("v", [date(9999, 12, 31)]), "row 2: .*a date is of the years 1 to 9999"),
    "duckdb/24 hours": Refused(of("v", [time(23, 59, 59, 999999)]), "row 2: .*a time of a day is from 00:00:00"),
    "duckdb/intervals": Refused([], f"column 'v' of .* {SPANS_OF}"),
    "duckdb/variants": Refused([], VARIANTS),
    "duckdb/kinds": [
        {"id": b"\0" * 15 + b"\5", "e": "a", "bits": "101", "raw": b"\xff", "j": '{"a": 1}', "u": 2**64 - 1}
    ],
    "duckdb/nested": [{"v": LIST_PARTS, "w": {"a": [{"b": 1}]}, "x": [1, 2]}],
    "duckdb/floats": [{"v": NAN, "w": NAN}, {"v": -0.0, "w": -0.0}, {"v": 1.0, "w": 1.0}],
    "polars/huge integers": Refused([], WIDE),
    "polars/decimals": of("v", [Decimal("1.50"), Decimal("12345678901234567890.12")]),
    "polars/categories": [
        {"v": "b", "e": "b", "l": ["b", "a"]},
        {"v": "a", "e": "a", "l": None},
        {"v": None, "e": None, "l": []},
    ],
    "polars/nanoseconds": NANOS,
    "polars/zones": [
        {"v": datetime(2024, 10, 27, hour, 30, tzinfo=UTC), "w": datetime(2024, 10, 27, hour, 30)} for hour in (0, 1)
    ],
    "polars/spans": [
        {"v": timedelta(microseconds=-1), "w": timedelta(3), "x": time(1, 2, 3, 4)},
        {"v": None, "w": timedelta(3), "x": None},
    ],
    "polars/nested": [{"v": [{"a": [1, None]}, None], "w": [1, 2]}, {"v": [], "w": None}, {"v": None, "w": [3, 4]}],
    "polars/floats": [{"v": -0.0, "w": NAN}, {"v": NAN, "w": 1.5}, {"v": 0.0, "w": -0.0}],
    "polars/half floats": of("v", [1.5, -0.0]),
    "polars/numbers": [{"a": 1, "b": 255, "c": 2**64 - 1, "d": None}],
    **{
        f"{folder}/{name}": values
        for folder in ("pyarrow-20", "pyarrow-26")
        for name, values in {
            "repeated keys": (TWICE, NO_ROWS),
            "70 digits": (of("v", [Decimal("1" + "0" * 60), Decimal(-1)]), "rows have decimals of at most 38 digits"),
            "decimals as bytes": TWO_DECIMALS,
            "decimals as integers": TWO_DECIMALS,
            "lists": [{"v": each, "w": each} for each in LIST_PARTS],
            "lists of items": of("v", LIST_PARTS),
            "int96": of("v", [datetime(2024, 1, 1, 1, 2, 3, 4), datetime(9999, 12, 31), datetime(1, 1, 1), None]),
            "nanoseconds": NANOS,
            "zones": [{"v": datetime(1970, 1, 1, 0, 0, 0, 5, UTC), "w": datetime(1970, 1, 1, tzinfo=UTC)}],
            "dictionaries": [
                {"v": "b", "w": 2.5, "x": [b"b"]},
                {"v": "a", "w": None, "x": None},
                {"v": None, "w": -0.0, "x": []},
            ],
            "floats": of("v", [-0.0, NAN, 0.0, None]),
            "two of one name": Refused([], "two columns have one name: a, a; payload='tuple' takes them"),
            "keys of structs": (Refused([], "row 1: .*unhashable type: 'dict'"), NO_ROWS),
        }.items()
    },
    "pyarrow-26/views": [
        {"v": [1, None], "w": "a", "x": b"\xff"},
        {"v": [], "w": None, "x": None},
        {"v": None, "w": "", "x": b""},
    ],
    "spark/decimals": THREE_DECIMALS,
    "spark/decimals as of old": THREE_DECIMALS,
    "spark/lists": (SPARK_LISTS, NO_ROWS),
    "spark/lists as of old": (SPARK_LISTS, NO_ROWS),  # of two levels where nothing is null
    "spark/int96": [{**dict(zip("vwx", SPARK_MOMENTS)), "y": datetime(2024, 1, 1)}],
    "spark/microseconds": [
        {**dict(zip("vwx", (each.replace(tzinfo=UTC) for each in SPARK_MOMENTS))), "y": datetime(2024, 1, 1)}
    ],
    "spark/days": [{"n": 1, "d": date(1582, 10, 15)}, {"n": 2, "d": date(1582, 10, 4)}],
    "spark/days of Julius Caesar": Refused(
        [{"n": 1, "d": date(1582, 10, 15)}],
        r"row 1 of .* has in column 'd' a date before 1582-10-15, .* in the calendar of Spark 2; write the file anew",
    ),
    "spark/moments of Julius Caesar": Refused(
        [{"n": 1, "v": datetime(1900, 1, 1)}], r"row 1 of .* has in column 'v' a .* moment before 1900, in the calendar"
    ),
    "spark/intervals": [{"v": 14, "w": 93784500000}],  # months and microseconds, which only Spark's own notes say
    "spark/variants": Refused([], VARIANTS),
    "spark/floats": [{"v": NAN, "w": -0.0}, {"v": -0.0, "w": NAN}, {"v": 1.0, "w": 1.0}],
    "spark/kinds": [{"a": 1, "b": 2, "c": True, "d": b"\xff", "e": "", "f": None}],
}
TYPES = {
    "dec": Decimal("1.50"),
    "x": NAN,
    "y": -0.0,
    "day": date(1, 1, 1),
    "at": datetime(1970, 1, 1, 0, 0, 0, 5, UTC),
    "there": datetime(1970, 1, 1, 0, 0, 0, 5),
    "l": [{"a": [1, None]}],
    "raw": b"\xff",
    "f": 1.5,
}
MAP_TWICE = Refused([], "duplicate key")
LAKES: dict[str, list[Any] | Refused] = {
    "delta/types": [TYPES],
    "delta/repeated keys": MAP_TWICE,
    "delta/categories": of("v", ["b", "a"]),
    "delta/nanoseconds": of("v", [EARLY]),  # delta-rs has cut it off
    "delta/partitions": [
        {"d": date(2024, 1, 1), "t": datetime(1970, 1, 1, 0, 0, 0, 5), "x": 1.5, "dec": Decimal("1.5"), "b": True}
        | {"k": "a/b =ä%", "v": 1},
        {"d": None, "t": datetime(1970, 1, 1, 0, 0, 0, 6), "x": -0.0, "dec": Decimal("2.0"), "b": None}
        | {"k": None, "v": 2},
    ],
    "delta/partitions of bytes": Refused([], "is partitioned by 'k', which is binary: its log has these bytes as text"),
    "iceberg/types": [{**TYPES, "time": time(1, 2, 3, 4), "small": 2**16 - 1}],
    "iceberg/twice": MAP_TWICE,
    "iceberg/categories": of("v", ["b", "a"]),
    "iceberg/fixed": of("v", [b"\0" * 15 + b"\5"]),
}


def check(source: Any, expected: list[Any] | Refused) -> None:
    """What a run gives, told apart also by the sign of zero, and by the zones of moments."""
    graph = drift.Graph("foreign")
    graph.source("rows").sink("out")
    found: list[Any] = []
    values, words = expected if isinstance(expected, Refused) else (expected, None)
    try:
        found.extend(item.payload for item in drift.run(graph, {"rows": source}))
    except drift.InputError as error:
        assert words is not None, error
        with pytest.raises(drift.InputError, match=words):
            raise
    else:
        assert words is None, found
    assert repr(found) == repr(values)


@pytest.mark.parametrize("name", FILES)
def test_files_of_other_programs_give_their_values_or_a_refusal(name: str) -> None:
    path, expected = FOLDER / f"{name}.parquet", FILES[name]
    of_dicts, of_rows = (expected[0], Refused([], expected[1])) if type(expected) is tuple else (expected, expected)
    check(sources.parquet(path), of_dicts)  # type: ignore[arg-type]
    check(sources.parquet(path, type=dict), of_dicts)  # type: ignore[arg-type]
    check(sources.parquet(path, payload="rows"), of_rows)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", LAKES)
def test_lakes_of_other_programs_give_their_values_or_a_refusal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, _, table = name.partition("/")
    monkeypatch.chdir(FOLDER)  # where the metadata of Iceberg says that its files are
    catalog = {"type": "sql", "uri": "sqlite:///iceberg/catalog.db", "name": "foreign"}
    source = sources.delta(name) if kind == "delta" else sources.iceberg(f"of.{table}", catalog=catalog)
    check(source, LAKES[name])


def test_each_file_is_listed() -> None:
    found = {f"{file.parent.name}/{file.stem}" for file in FOLDER.glob("*/*.parquet")}
    assert found == set(FILES)
    assert {f"delta/{folder.name}" for folder in (FOLDER / "delta").iterdir()} <= set(LAKES)


def test_what_arrow_gives_only_as_bytes_can_be_left_out() -> None:
    for name in ("duckdb/intervals", "duckdb/variants", "spark/variants"):
        check(sources.parquet(FOLDER / f"{name}.parquet", columns=["n"]), of("n", [1]))


#: What drift writes, and what DuckDB, which has other classes, gives of it.
WRITTEN: dict[str, tuple[Any, ...]] = {
    "n": (2**63 - 1, None),
    "x": (-0.0, NAN),
    "text": ("", "\u00e4\0"),
    "raw": (b"\xff", b""),
    "yes": (True, None),
    "digits": (Decimal("12345678901234567890123456789012345.678"), Decimal("-0.500")),
    "day": (date(1, 1, 1), date(9999, 12, 31)),
    "at": (datetime(1582, 10, 4, 1, 2, 3, 4), None),
    "moment": (datetime(2024, 10, 27, 0, 30, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)),
    "hour": (time(23, 59, 59, 999999), None),
    "parts": ([1, None], []),
    "deep": ({"a": [{"b": None}, {"b": "c"}]}, {"a": []}),
}


def written(folder: Path, names: list[str], make: Any) -> list[dict[str, Any]]:
    """Writes these columns by a sink; returns the rows."""
    rows = [{name: WRITTEN[name][at] for name in names} for at in range(2)]
    graph = drift.Graph("written")
    graph.source("rows").sink("out")
    drift.run(graph, {"rows": rows}, sinks={"out": make(folder, columns=names)}).finish()
    return rows


def same(found: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    assert [{name: repr(in_utc(row[name])) for name in rows[0]} for row in found] == [
        {name: repr(value) for name, value in row.items()} for row in rows
    ]


def in_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo is not None else value


def test_others_read_what_drift_writes_with_the_same_values(tmp_path: Path) -> None:
    rows = written(tmp_path, list(WRITTEN), sinks.parquet)
    (part,) = tmp_path.glob("*.parquet")
    same(pq.read_table(part).to_pylist(), rows)
    same(pl.read_parquet(part).to_dicts(), rows)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    read = connection.execute(f"SELECT * EXCLUDE (moment), epoch_us(moment) AS moment FROM '{part}' ORDER BY position")
    names = [each[0] for each in read.description or ()]
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    found = [dict(zip(names, row)) for row in read.fetchall()]
    same([{**row, "moment": epoch + timedelta(microseconds=row["moment"])} for row in found], rows)
    check(sources.parquet(part, columns=list(WRITTEN)), rows)


def test_others_read_what_drift_writes_into_lakes_with_the_same_values(tmp_path: Path) -> None:
    names = [name for name in WRITTEN if name != "hour"]  # which Delta has not
    rows = written(tmp_path, names, sinks.delta)
    same(deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist(), rows)
    same(pl.read_delta(str(tmp_path)).sort("position").to_dicts(), rows)
    check(sources.delta(tmp_path, columns=names), rows)


def test_others_read_what_drift_writes_into_iceberg_with_the_same_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": str(tmp_path), "name": "lake"}
    rows = written(
        tmp_path, list(WRITTEN), lambda _, columns: sinks.iceberg("of.rows", catalog=catalog, columns=columns)
    )
    table = load_catalog(**catalog).load_table("of.rows")
    same(table.scan().to_arrow().sort_by("position").to_pylist(), rows)
    same(pl.scan_iceberg(table).sort("position").collect().to_dicts(), rows)
    for number, value in (("n", 2**63 - 1), ("x", -0.0), ("digits", WRITTEN["digits"][0])):  # by bounds of the files
        same(table.scan(row_filter=EqualTo(number, value)).to_arrow().to_pylist(), rows[:1])
    check(sources.iceberg("of.rows", catalog=catalog, columns=list(WRITTEN)), rows)


def test_spark_reads_what_drift_writes_with_the_same_values(tmp_path: Path, spark: Any) -> None:
    rows = written(tmp_path, [name for name in WRITTEN if name != "hour"], sinks.parquet)  # Spark has no times
    same(spark.read.parquet(str(tmp_path)).orderBy("position").toArrow().to_pylist(), rows)


#: Texts by which rows are partitioned.
PARTITIONED = ["\u00e9", "\u65e5\u672c", "\U0001f600", "a b", "a:b", "a%b", "%C3%A9", "x/y=z", "+", "\n", None]


def partitioned(folder: Path) -> list[dict[str, Any]]:
    rows = [{"n": n, "k": k} for n, k in enumerate(PARTITIONED)]
    graph = drift.Graph("partitioned")
    graph.source("rows").sink("out")
    for _ in range(2):  # the second finds all of it there
        drift.run(graph, {"rows": rows}, sinks={"out": sinks.parquet(folder, partition_by="k")}).finish()
    return rows


def test_others_read_the_texts_by_which_drift_partitions(tmp_path: Path) -> None:
    rows = partitioned(tmp_path)
    by_arrow = pq.read_table(tmp_path, partitioning=ds.partitioning(pa.schema([("k", pa.string())]), flavor="hive"))
    same(by_arrow.sort_by("n").to_pylist(), rows)
    same(pl.read_parquet(tmp_path / "**/*.parquet", hive_partitioning=True).sort("n").to_dicts(), rows)
    files = f"read_parquet('{tmp_path}/**/*.parquet', hive_partitioning = true)"
    same([dict(zip("nk", row)) for row in duckdb.sql(f"SELECT n, k FROM {files} ORDER BY n").fetchall()], rows)
    graph = drift.Graph("partitioned")
    graph.source("rows").sink("out")
    source = sources.parquet(tmp_path, hive=True, columns=["n", "k"])
    same(sorted((item.payload for item in drift.run(graph, {"rows": source})), key=lambda row: row["n"]), rows)


def test_spark_reads_the_texts_by_which_drift_partitions(tmp_path: Path, spark: Any) -> None:
    rows = partitioned(tmp_path)
    same(spark.read.parquet(str(tmp_path)).orderBy("n").toArrow().to_pylist(), rows)
