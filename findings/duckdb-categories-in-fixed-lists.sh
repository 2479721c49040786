#!/usr/bin/env bash
# Categories in lists of a fixed size, as Polars' Array(Enum, 2), are numbers in DuckDB that are in no table
#
# Versions: duckdb==2.0.1 pyarrow==26.0.1 polars==2.1.0 datafusion==55.0.0
# Expected: the texts, as of the same categories in a column, a list, a list view, a map or a struct; or an error.
# Seen:     the column is of the type of the indices, TINYINT[2] or INTEGER[2], and holds neither the texts nor their
#           indices: of texts the offsets at which they lie in the dictionary, of integers pieces of them. So red,
#           green, blue and grey are 0, 3, 8 and 12, Polars' Enum is four zeros, and 1000, 2000, 3000 and 4000 are 1000,
#           0, 2000 and 0. A struct within the fixed list is the same. Nothing is raised, also by create table as.
#           DataFusion gives the texts. (Issue 4812 was this for lists, where it was mended.)
# Matters:  pairs and small vectors of labels; groups and joins by them have plausible small numbers. Cast to a list,
#           or the categories to texts, before DuckDB sees them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check duckdb==2.0.1 pyarrow==26.0.1 polars==2.1.0 datafusion==55.0.0
venv/bin/python - <<'END'
import datafusion
import duckdb
import polars as pl
import pyarrow as pa

words = pa.array(["red", "green", "blue", "grey"]).dictionary_encode()
numbers = pa.array([1000, 2000, 3000, 4000], pa.int64()).dictionary_encode()  # indices of 32 bits
right = [["red", "green"], ["blue", "grey"]]


def read(column: pa.Array) -> tuple[str, list]:
    given = pa.table({"x": column})
    assert given["x"].to_pylist() == datafusion.SessionContext().from_arrow(given).to_arrow_table()["x"].to_pylist()
    table = duckdb.sql("select x from given").to_arrow_table()
    [(name,)] = duckdb.sql("select distinct typeof(x) from given").fetchall()
    return name, table["x"].to_pylist()


assert read(words) == ("VARCHAR", [*right[0], *right[1]])
assert read(pa.ListArray.from_arrays(pa.array([0, 2, 4], pa.int32()), words)) == ("VARCHAR[]", right)
assert read(pa.FixedSizeListArray.from_arrays(words.cast(pa.string()), 2)) == ("VARCHAR[2]", right)

assert read(pa.FixedSizeListArray.from_arrays(words, 2)) == ("INTEGER[2]", [[0, 3], [8, 12]])
assert read(pa.FixedSizeListArray.from_arrays(numbers, 2)) == ("INTEGER[2]", [[1000, 0], [2000, 0]])
within = pa.FixedSizeListArray.from_arrays(pa.StructArray.from_arrays([words], ["a"]), 2)
assert read(within)[1] == [[{"a": 0}, {"a": 3}], [{"a": 8}, {"a": 12}]]

colours = pl.Enum(["red", "green", "blue", "grey"])
frame = pl.DataFrame({"x": right}, schema={"x": pl.Array(colours, 2)})
assert duckdb.sql("select x, typeof(x) from frame").fetchall() == [((0, 0), "UTINYINT[2]"), ((0, 0), "UTINYINT[2]")]
lists = frame.select(pl.col("x").cast(pl.List(colours)))
assert duckdb.sql("select x from lists").fetchall() == [(pair,) for pair in right]
duckdb.sql("create table kept as select x from frame")
assert duckdb.sql("select x from kept").fetchall() == [((0, 0),), ((0, 0),)]
print("red, green, blue and grey are 0, 3, 8 and 12")
END
