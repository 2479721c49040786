#!/usr/bin/env bash
# A relation of DuckDB 2 keeps no result: what took one row from it is an error
#
# Versions: duckdb==2.0.1
# Expected: duckdb.sql(...).fetchone() and fetchmany() give the next rows, as in every 1.x.
# Seen:     an error, since a relation keeps no result between calls; fetchall() and iteration by the connection's
#           cursor work. In 1.x a relation that was being read could be emptied by another query of its connection.
# Matters:  code that reads a relation piece by piece has to go through connection.execute().
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check duckdb==2.0.1
venv/bin/python - <<'EOF'
import duckdb

relation = duckdb.sql("select * from range(3)")
for name in ("fetchone", "fetchmany"):
    try:
        getattr(relation, name)()
    except Exception as error:
        assert "keep" in str(error) and "between calls" in str(error), error
    else:
        raise AssertionError(f"{name} gave rows")
assert relation.fetchall() == relation.fetchall() == [(0,), (1,), (2,)]
assert duckdb.connect().execute("select 1").fetchone() == (1,)
print("as described")
EOF
