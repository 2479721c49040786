#!/usr/bin/env bash
# "The latest row of each key, if it is ..." becomes "the latest of the rows that are" in sqlglot's optimizer
#
# Versions: sqlglot==30.30.0 duckdb==2.0.1
# Expected: a query that is optimized gives the rows that the query gives.
# Seen:     a filter on a subquery is pushed into it past DISTINCT ON, so that it chooses rows before the latest is
#           chosen: of a job that was done and then failed, "where state = 'done'" finds the row of before, and "where
#           moment < 3" the one that was the latest then. A filter on the key, which may be pushed, is right; past LIMIT
#           and window functions nothing is pushed, so the same question with row_number has the right answer.
# Matters:  both are valid SQL with different rows, and what compiles queries by this optimizer sees nothing of it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check sqlglot==30.30.0 duckdb==2.0.1
venv/bin/python - <<'END'
import duckdb
from sqlglot.optimizer import optimize

TABLES = {"jobs": {"job": "text", "moment": "int", "state": "text"}}
ROWS = [("a", 1, "queued"), ("a", 2, "done"), ("a", 3, "failed"), ("b", 1, "queued"), ("b", 2, "done")]
connection = duckdb.connect()
connection.execute("create table jobs (job text, moment int, state text)")
connection.executemany("insert into jobs values (?, ?, ?)", ROWS)


def results(query: str) -> tuple[list[tuple], list[tuple]]:
    """What the query gives, and what it gives once it is optimized."""
    optimized = optimize(query, schema=TABLES, dialect="duckdb").sql("duckdb")
    return sorted(connection.execute(query).fetchall()), sorted(connection.execute(optimized).fetchall())


latest = {job: (job, moment) for job, moment, _ in sorted(ROWS, key=lambda row: row[1])}
state = {(job, moment): state for job, moment, state in ROWS}
done = [row for row in latest.values() if state[row] == "done"]
assert done == [("b", 2)]

distinct = "select distinct on (job) job, moment, state from jobs order by job, moment desc"
assert results(f"select job, moment from ({distinct}) where state = 'done'") == (done, [("a", 2), ("b", 2)])
query = f"with latest as ({distinct}) select job, moment from latest where moment < 3"
assert results(query) == (done, [("a", 2), ("b", 2)])
assert results(f"select job, moment from ({distinct}) where job = 'a'") == ([("a", 3)], [("a", 3)])

numbered = "select job, moment, state, row_number() over (partition by job order by moment desc) as n from jobs"
assert results(f"select job, moment from ({numbered}) where n = 1 and state = 'done'") == (done, done)
first = "select job, moment, state from jobs order by moment desc, job limit 1"
assert results(f"select job, moment from ({first}) where state = 'done'") == ([], [])
print("a filter behind DISTINCT ON is taken to be before it")
END
