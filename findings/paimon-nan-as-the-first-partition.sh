#!/usr/bin/env bash
# If the first partition that is written is NaN, no filter finds any row of a PyPaimon table
#
# Versions: pypaimon==2.1.0 pyarrow==19.0.1
# Expected: x = 1.5 finds the rows of 1.5, whichever rows are beside them and in which order they came.
# Seen:     a table that is partitioned by a double keeps the least and the greatest partition of each manifest, found
#           by Python's < and >, which no NaN ever passes: one that comes first stays both, and every comparison with it
#           is false, so =, <, >, in and between skip the manifest, and is_not_null alone gives rows. Of the rows 1.5
#           and NaN all is right, of NaN and 1.5 nothing is found, in all three formats of files. A column that is no
#           partition is right; so is another write, which has a manifest of its own. Nothing is raised, and a read
#           without a filter gives all rows.
# Matters:  the order of rows in one write decides what a query finds for ever.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pypaimon==2.1.0 pyarrow==19.0.1
venv/bin/python -W ignore - <<'END'
import math

import pyarrow as pa
from pypaimon import CatalogFactory, Schema

catalog = CatalogFactory.create({"warehouse": "warehouse"})
catalog.create_database("d", True)
types = pa.schema([("i", pa.int64()), ("x", pa.float64())])
filters = {
    "equal": (1.5,),
    "greater_than": (0.0,),
    "less_than": (9.0,),
    "is_in": ([1.5, 7.0],),
    "between": (1.0, 2.0),
}


def write(table, values: list[float]) -> None:
    builder = table.new_batch_write_builder()
    writer, commit = builder.new_write(), builder.new_commit()
    writer.write_arrow(pa.table({"i": list(range(len(values))), "x": values}, schema=types))
    commit.commit(writer.prepare_commit())
    writer.close()
    commit.close()


def made(name: str, values: list[float], **options):
    catalog.create_table(f"d.{name}", Schema.from_pyarrow_schema(types, **options), False)
    table = catalog.get_table(f"d.{name}")
    write(table, values)
    return table


def found(table, method: str | None = None, *arguments) -> list[float]:
    """What is found that is a number, by a method of the builder of predicates or without any."""
    builder = table.new_read_builder()
    if method is not None:
        builder = builder.with_filter(getattr(builder.new_predicate_builder(), method)("x", *arguments))
    rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    return [x for x in rows["x"].to_pylist() if not math.isnan(x)]


for number, kind in enumerate(["parquet", "orc", "avro"]):
    files = {"options": {"file.format": kind}}
    by_x = {"partition_keys": ["x"]} | files
    last = made(f"last{number}", [1.5, math.nan], **by_x)
    first = made(f"first{number}", [math.nan, 1.5], **by_x)
    plain = made(f"plain{number}", [math.nan, 1.5], **files)
    for method, arguments in filters.items():
        assert found(last, method, *arguments) == [1.5], (kind, method)
        assert found(plain, method, *arguments) == [1.5], (kind, method)
        assert found(first, method, *arguments) == [], (kind, method)
    assert found(first) == found(first, "is_not_null") == [1.5]
    write(first, [1.5])
    assert found(first) == [1.5, 1.5] and found(first, "equal", 1.5) == [1.5]
print("of NaN and 1.5 in this order no filter finds 1.5")
END
