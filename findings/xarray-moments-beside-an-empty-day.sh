#!/usr/bin/env bash
# In xarray a day without rows changes the latest moment of every other day
#
# Versions: xarray==2026.9.0 flox==0.11.2 numbagg==0.9.6 pandas==3.1.1 numpy==2.4.6
# Expected: resample(time="1D").max() of moments is one of the moments of each day, and NaT for a day without any.
# Seen:     where flox is installed, which xarray then takes of itself, and some day has no row, the result for every
#           day goes through a double: 03:04:05.123456789 is 03:04:05.123456768, a moment that no row has. min,
#           differences of time and groupby_bins are the same. Without the gap, with xarray.set_options(use_flox=False),
#           and of microseconds, all is right. Once numbagg is installed too, which nobody imports, max(skipna=True)
#           rounds with no gap as well. Integers become doubles beside a gap, and say so by their type; moments do not.
# Matters:  the latest row of a day is looked up by such a moment, and is not found; two that differ become one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
pip="venv/bin/pip install --quiet --disable-pip-version-check"
$pip xarray==2026.9.0 flox==0.11.2 pandas==3.1.1 numpy==2.4.6
cat > moments.py <<'END'
import sys
import warnings

import numpy as np
import xarray as xr
from xarray.core.resample import DataArrayResample

warnings.filterwarnings("ignore")  # of a cast of NaN to moments, in flox
texts = [f"2026-01-02T03:04:05.123456{last}" for last in (789, 790, 791)]
given = np.array(texts, "datetime64[ns]")
rounded = np.array(["2026-01-02T03:04:05.123456768"] * 3, "datetime64[ns]")
no_gap, gap = ["2026-01-01", "2026-01-02", "2026-01-03"], ["2026-01-01", "2026-01-02", "2026-01-04"]


def by_day(days: list[str], values: np.ndarray = given) -> DataArrayResample:
    return xr.DataArray(values, dims="time", coords={"time": np.array(days, "datetime64[ns]")}).resample(time="1D")


def same(found: xr.DataArray, expected: np.ndarray) -> bool:
    """Whether the days that have rows have the expected moments, one row a day."""
    return found.dtype == expected.dtype and (found.values[~np.isnat(found.values)] == expected).all()


assert same(by_day(no_gap).max(), given)
assert same(by_day(gap).max(), rounded) and same(by_day(gap).min(), rounded)
assert same(by_day(gap, given.astype("datetime64[us]")).max(), given.astype("datetime64[us]"))
since = given - np.datetime64("1990-01-01", "ns")
assert same(by_day(no_gap, since).max(), since) and not same(by_day(gap, since).max(), since)
with xr.set_options(use_flox=False):
    assert same(by_day(gap).max(), given)

bins = xr.DataArray(given, dims="i", coords={"k": ("i", [1, 3, 3])})
assert same(bins.groupby_bins("k", [0, 2, 4]).max(), given[[0, 2]])
assert same(bins.groupby_bins("k", [0, 2, 4, 6]).max(), rounded[[0, 2]])

assert same(by_day(no_gap).max(skipna=True), rounded if sys.argv[1] == "numbagg" else given)
END
venv/bin/python moments.py alone
$pip numbagg==0.9.6
venv/bin/python moments.py numbagg
echo "beside an empty day the latest moments are rounded to 256 nanoseconds"
