#!/usr/bin/env bash
# The kurtosis of four prices near 10,000 is, in csp, less than four numbers can have
#
# Versions: csp==0.19.1
# Expected: csp.stats.kurt and skew of 10003, 10001, 10001 and 10002 are those of 3, 1, 1 and 2, about -1.289 and 0.855:
#           both do not change by what is added to all numbers. Four numbers have a kurtosis from -6 to 4 and three a
#           skewness from -1.733 to 1.733, as csp corrects them for small samples.
# Seen:     the first window already gives -13.5, a later one -866.8, and near a million 8.5e9 and -1.1e11; the skewness
#           of three numbers near a million is -2993. Both are made of sums of third and fourth powers, of which the
#           digits that matter cancel. With recalc, which is there against errors that accumulate, it is no better,
#           since nothing has. The variance of the same windows is right: it goes by another way.
# Known:    csp's pull request 118 gives NaN where errors have accumulated in the variance that is divided by.
# Matters:  a stream of prices, counts or times is where these are asked for, and each answer looks like a fat tail.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check csp==0.19.1
venv/bin/python - <<'END'
import datetime as dt
import math
from fractions import Fraction

import csp

START, SECOND = dt.datetime(2026, 1, 1), dt.timedelta(seconds=1)
SMALL = [3, 1, 1, 2, 1]


def streamed(statistic, base: int, window: int, recalc: bool = False) -> list[float]:
    """The statistic of each full window over the small numbers with a base added to each."""
    values = csp.curve(float, [(START + i * SECOND, float(base + x)) for i, x in enumerate(SMALL)])
    kept = {"recalc": values} if recalc else {}
    result = csp.run(statistic(values, window, window, **kept), starttime=START, endtime=START + 9 * SECOND)
    return [value for _, value in result[0]]


def exact(power: int, window: int) -> list[float]:
    """Skewness (power 3) or excess kurtosis (4) of each window, for a sample: the powers are sums of fractions."""
    results = []
    for i in range(len(SMALL) - window + 1):
        n, held = window, SMALL[i : i + window]
        mean = Fraction(sum(held), n)
        second, moment = (sum((x - mean) ** p for x in held) / n for p in (2, power))
        if power == 3:
            results.append(math.sqrt(n * (n - 1)) / (n - 2) * float(moment) / float(second) ** 1.5)
        else:
            results.append(float((n - 1) * ((n + 1) * (moment / second**2 - 3) + 6) / ((n - 2) * (n - 3))))
    return results


def near(found: list[float], right: list[float], relative: float = 1e-9) -> bool:
    return all(math.isclose(a, b, rel_tol=relative) for a, b in zip(found, right, strict=True))


kurt, skew, var = csp.stats.kurt, csp.stats.skew, csp.stats.var
assert near(exact(4, 4), [-1.2892561983471074, 4.0])
assert near(streamed(kurt, 0, 4), exact(4, 4)) and near(streamed(skew, 0, 4), exact(3, 4))
assert near(streamed(kurt, 10_000, 4), [-13.5, -866.83], 1e-4)
assert near(streamed(kurt, 10_000, 4, recalc=True), [-13.5, -866.83], 1e-4)
assert near(streamed(kurt, 1_000_000, 4), [8.5e9, -1.145e11], 0.01)
assert near(streamed(skew, 1_000_000, 3), [374.12, -2992.98, -2992.98], 1e-4)
assert all(-1.733 < value < 1.733 for value in exact(3, 3))
assert near(streamed(var, 1_000_000, 4), streamed(var, 0, 4))
print("four prices near 10,000 have a kurtosis of -866.8")
END
