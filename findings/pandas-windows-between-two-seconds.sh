#!/usr/bin/env bash
# A rolling window of 1.9 seconds is one of a second in pandas, where the times are kept in seconds
#
# Versions: pandas==3.1.1 numpy==2.4.6
# Expected: of rows a second apart each window of "1900ms" holds two, whichever unit the index has, or the window is
#           refused, as "1900ms" is by resample, floor and date_range of such an index.
# Seen:     the window is cut to a whole number of the index's units: one row in each, with datetime64[s], and two with
#           [ms], [us] and [ns]. So in groups, with on=, for timedelta64[s], and for "16667us" of times in milliseconds.
#           ewm cuts its half-life: "1500ms" is one second, and "500ms" none, by which the mean is the last value,
#           beside a warning of a division by zero. merge_asof, whose tolerance is an upper bound, is right.
# Matters:  pandas 3 keeps the unit that it is given: seconds from Arrow, from numpy's days and from seconds; the same
#           program then has another answer for the same moments.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pandas==3.1.1 numpy==2.4.6
venv/bin/python - <<'EOF'
import warnings

import numpy
import pandas


def series(unit, step="s", rows=5):
    """Rows one second (or one step) apart, in an index of this unit."""
    times = pandas.DatetimeIndex(numpy.arange(rows).astype(f"datetime64[{step}]")).as_unit(unit)
    return pandas.Series([float(2**n) for n in range(rows)], index=times)


def mean(unit, halflife):
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        given = series(unit)
        return given.ewm(halflife=halflife, times=given.index).mean().tolist(), [str(w.message) for w in warned]


one, two = [1.0, 2.0, 4.0, 8.0, 16.0], [1.0, 3.0, 6.0, 12.0, 24.0]
for unit, seen in (("s", one), ("ms", two), ("us", two), ("ns", two)):
    given = series(unit)
    table = pandas.DataFrame({"key": 1, "at": given.index, "value": given.to_numpy()})
    assert given.rolling("1900ms").sum().tolist() == seen, unit
    assert table.rolling("1900ms", on="at")["value"].sum().tolist() == seen, unit
    assert table.groupby("key").rolling("1900ms", on="at")["value"].sum().tolist() == seen, unit
    assert given.set_axis(given.index - given.index[0]).rolling("1900ms").sum().tolist() == seen, unit
    assert given.rolling("2s").sum().tolist() == two, unit
frames = series("ms", "ms", 40)
assert frames.rolling("16667us").count().max() == 16
assert frames.set_axis(frames.index.as_unit("us")).rolling("16667us").count().max() == 17

exact = mean("ns", "1500ms")
assert exact == mean("ms", "1500ms") and not exact[1]
assert mean("s", "1500ms") == mean("s", "1s") == mean("ns", "1s") != exact
last, warned = mean("s", "500ms")
assert last == one and "divide by zero" in warned[0]
assert mean("ms", "500ms") == mean("ns", "500ms") and mean("ms", "500ms")[0][1] == 1.8

for refused in (lambda s: s.resample("1900ms").sum(), lambda s: s.index.floor("1900ms")):
    try:
        refused(series("s"))
    except ValueError as error:
        assert "incompatible with unit" in str(error)
    else:
        raise AssertionError("taken")
units = [pandas.to_datetime(numpy.array(["1970-01-01"], "M8[D]")).unit, pandas.to_datetime(["1970-01-01"]).unit]
assert units == ["s", "us"], units
print("a window of 1.9 seconds has one row a second, and two a millisecond")
EOF
