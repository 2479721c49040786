#!/usr/bin/env bash
# Windows of 1.5 milliseconds lose every third row in Polars, where the times are kept in milliseconds
#
# Versions: polars==2.1.0
# Expected: group_by_dynamic with windows that follow one another has each row in one of them, in whichever unit the
#           times are kept; a window that the unit does not hold is refused, as upsample refuses "500us" ("too small for
#           time unit ms").
# Seen:     windows begin at 0, 1, 3, 4 and 6 ms, by 1.5 ms cut to whole ones, and each is one millisecond long: of 1000
#           rows one millisecond apart 333 are in no window. By "16667us", 60 times a second, 40 are missing, by
#           "2500us" 200. In memory and streaming are alike. In microseconds and nanoseconds no row is lost. rolling and
#           rolling_sum_by have windows of one row instead of two, dt.truncate leaves the times as they are, and
#           ewm_mean_by takes "1500us" for a half-life of 1 ms.
# Matters:  milliseconds come from Java, JavaScript and Arrow; the sum over the windows is less than that of the rows,
#           and nothing is raised. Cast to microseconds before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check polars==2.1.0
venv/bin/python - <<'EOF'
import polars

ROWS = 1000


def frame(unit):
    times = polars.Series(range(ROWS), dtype=polars.Int64).cast(polars.Datetime("ms")).cast(polars.Datetime(unit))
    return polars.LazyFrame({"at": times, "n": range(ROWS)}).set_sorted("at")


CASES = (("1500us", 1500, 667), ("2500us", 2500, 800), ("16667us", 16667, 960), ("16ms", 16000, 1000))
for every, length, kept in CASES:
    right = [[n for n in range(ROWS) if n * 1000 // length == w] for w in range((ROWS - 1) * 1000 // length + 1)]
    for unit in ("ms", "us", "ns"):
        for engine in ("in-memory", "streaming"):
            found = frame(unit).group_by_dynamic("at", every=every).agg("n").collect(engine=engine)["n"].to_list()
            rows = [n for window in found for n in window]
            assert len(rows) == len(set(rows)) == (kept if unit == "ms" else ROWS), (every, unit, len(rows))
            if unit != "ms" or kept == ROWS:
                assert found == right, (every, unit)
first = frame("ms").group_by_dynamic("at", every="1500us").agg("n").collect()["n"].to_list()[:6]
assert first == [[0], [1], [3], [4], [6], [7]], first

for unit, rows, moments, half in (("ms", 1, ROWS, 1.0), ("us", 2, 667, 1.5), ("ns", 2, 667, 1.5)):
    given = frame(unit).collect()
    rolled = given.rolling("at", period="1500us").agg(polars.len())["len"].to_list()
    assert set(rolled[1:]) == {rows}, unit
    assert given.select(polars.col("n").rolling_sum_by("at", "1500us"))["n"][-1] == sum(range(ROWS - rows, ROWS)), unit
    assert given["at"].dt.truncate("1500us").n_unique() == moments, unit
    mean = given.select(polars.col("n").cast(polars.Float64).ewm_mean_by("at", half_life="1500us"))["n"][1]
    assert abs(mean - (1 - 0.5 ** (1 / half))) < 1e-12, (unit, mean)
try:
    frame("ms").collect().upsample("at", every="500us")
except polars.exceptions.InvalidOperationError as error:
    assert "too small for time unit ms" in str(error)
else:
    raise AssertionError("taken")
print("of 1000 rows 333 are in no window")
EOF
