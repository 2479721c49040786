#!/usr/bin/env bash
# The first row of each key, as ibis gives it, may be a row that the table never had
#
# Versions: ibis-framework[duckdb,polars,sqlite]==12.0.0 duckdb==2.0.1 polars==2.1.0 sqlglot==30.30.0
# Expected: distinct(on=key, keep="first") drops all duplicates but the first occurrence, which stays as it is, like
#           drop_duplicates of pandas, which its documentation compares it with, and unique(keep="first") of Polars.
# Seen:     of each column it takes the first value that is not null, from whichever row of the key has one: of a row
#           with no value yet and a later one with a value, it gives the time of the first with the value of the
#           second. keep="last" does so from the end: a value that has become null comes back. So in DuckDB, SQLite and
#           Polars alike; keep=None is right.
# Known:    issue 10567 of ibis asks for a way to have the nulls.
# Matters:  "the latest row of each key" undoes what was set to null, and no row shows that it was put together.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check \
    'ibis-framework[duckdb,polars,sqlite]==12.0.0' duckdb==2.0.1 polars==2.1.0 sqlglot==30.30.0
venv/bin/python - <<'END'
import ibis
import polars as pl

NAMES = ["key", "at", "price", "note"]
ROWS = [("a", 1, None, "new"), ("a", 2, 5, None), ("a", 3, 7, "held"), ("a", 4, None, None), ("b", 1, None, None)]
columns = dict(zip(NAMES, map(list, zip(*ROWS, strict=True)), strict=True))
table = ibis.memtable(columns, schema={"key": "string", "at": "int64", "price": "int64", "note": "string"})
frame = pl.DataFrame(columns)
first = [("a", 1, None, "new"), ("b", 1, None, None)]
last = [("a", 4, None, None), ("b", 1, None, None)]
assert first == sorted({row[0]: row for row in reversed(ROWS)}.values())
assert last == sorted({row[0]: row for row in ROWS}.values())

for name in ("duckdb", "polars", "sqlite"):
    backend = getattr(ibis, name).connect()

    def rows(keep: str | None, backend=backend) -> list[tuple]:
        expression = table.order_by("at").distinct(on="key", keep=keep).order_by("key")
        return [tuple(row.values()) for row in backend.to_pyarrow(expression).to_pylist()]

    assert rows("first") == [("a", 1, 5, "new"), ("b", 1, None, None)], name
    assert rows("last") == [("a", 4, 7, "held"), ("b", 1, None, None)], name
    assert rows(None) == [("b", 1, None, None)], name
assert frame.unique(subset="key", keep="first", maintain_order=True).rows() == first
assert frame.unique(subset="key", keep="last", maintain_order=True).sort("key").rows() == last
print("the first row of a is of three rows")
END
