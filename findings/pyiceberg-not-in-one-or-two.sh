#!/usr/bin/env bash
# With a second value in the list, PyIceberg's NotIn gives the rows of null, and In loses those of -0.0
#
# Versions: pyiceberg==0.12.0, pyarrow==26.0.1
# Expected: a second value that no row has changes nothing: null is either in both results or in none, and both zeros
#           are 0.0. A delete deletes the rows that a scan by the same filter gives.
# Seen:     a list of one becomes NotEqualTo, which leaves null out; of two, null is given. In of {0.0} finds -0.0, and
#           of {0.0, 5.0} does not: the one is Arrow's equal, the other its is_in. A delete by NotIn of two leaves null,
#           which a scan by it gives. Texts that are parsed as filters are the same.
# Matters:  a filter made of a list that has one value today and two tomorrow; what is checked by a scan and then
#           deleted by the same filter.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check 'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.1
venv/bin/python -W ignore - <<'EOF'
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import In, NotIn

catalog = SqlCatalog("here", uri="sqlite:///catalog.db", warehouse=Path("warehouse").absolute().as_uri())
catalog.create_namespace("space")
rows = pa.table({"a": pa.array([1, 2, 3, None]), "f": [0.0, -0.0, 1.0, None]})


def made(name):
    table = catalog.create_table(f"space.{name}", schema=rows.schema)
    table.append(rows)
    return table


table = made("scanned")


def scanned(condition):
    return table.scan(row_filter=condition).to_arrow()["a"].to_pylist()


assert scanned(NotIn("a", {1})) == scanned("a not in (1)") == [2, 3]
assert scanned(NotIn("a", {1, 9})) == scanned("a not in (1, 9)") == [2, 3, None]
assert scanned(In("f", {0.0})) == [1, 2]
assert scanned(In("f", {0.0, 5.0})) == [1]
assert scanned(NotIn("f", {0.0})) == [3] and scanned(NotIn("f", {0.0, 5.0})) == [2, 3, None]
deleted = made("deleted")
deleted.delete(NotIn("a", {1, 9}))
assert deleted.scan().to_arrow()["a"].to_pylist() == [1, None]
print("as described")
EOF
