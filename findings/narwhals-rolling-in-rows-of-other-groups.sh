#!/usr/bin/env bash
# A rolling mean over groups, asked of a pandas frame through narwhals, stands in the rows of other groups
#
# Versions: narwhals==2.29.0 pandas==3.1.1 polars==2.1.0
# Expected: with_columns(nw.col("v").rolling_mean(2).over("g")) gives each row the mean of its own group, as of a frame
#           of Polars, and as pandas' own groupby().rolling() by its index.
# Seen:     of the groups b, a, b, a, b the results stand as b, b, b, a, a: one group behind the other, in the rows of
#           the frame as it is. rolling_sum, rolling_std, rolling_var and ewm_mean are the same, with any index, and of
#           pandas' own types as of Arrow's. With order_by="i", of groups that lie together in their order, and for
#           cum_sum, shift, diff and rank all is right. Nothing is raised.
# Known:    with order_by it was wrong until pull request 3603.
# Matters:  no value is wrong in itself, so sums and means of the whole column pass each check; what is wrong is whose
#           they are.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check narwhals==2.29.0 pandas==3.1.1 polars==2.1.0
venv/bin/python - <<'EOF'
import narwhals
import pandas
import polars

MOVING = {
    "rolling_sum": lambda column: column.rolling_sum(2, min_samples=1),
    "rolling_mean": lambda column: column.rolling_mean(2, min_samples=1),
    "rolling_std": lambda column: column.rolling_std(2, min_samples=1).fill_null(0.0),
    "rolling_var": lambda column: column.rolling_var(2, min_samples=1).fill_null(0.0),
    "ewm_mean": lambda column: column.ewm_mean(com=1),
}
RIGHT = {"cum_sum": lambda column: column.cum_sum(), "rank": lambda column: column.rank("min")}


def over(frame, what, **more):
    asked = what(narwhals.col("v")).over("g", **more)
    return [round(float(r), 9) for r in narwhals.from_native(frame).with_columns(r=asked)["r"].to_list()]


def frames(groups):
    given = {"g": list(groups), "i": list(range(len(groups))), "v": [1.0, 10.0, 2.0, 20.0, 3.0]}
    return polars.DataFrame(given), pandas.DataFrame(given), pandas.DataFrame(given, index=list("vwxyz"))


def filled(values):
    return [0.0 if value != value else value for value in values]


by_polars, *by_pandas = frames("babab")
assert over(by_polars, MOVING["rolling_sum"]) == [1, 10, 3, 30, 5]
for frame in by_pandas:
    assert filled(over(frame, MOVING["rolling_sum"])) == [1, 3, 5, 10, 30]
    for name, what in MOVING.items():
        right = over(by_polars, what)
        behind_one_another = [right[row] for row in (0, 2, 4, 1, 3)]
        assert filled(over(frame, what)) == behind_one_another != right, name
        assert filled(over(frame, what, order_by="i")) == right, name
    for name, what in RIGHT.items():
        assert over(frame, what) == over(by_polars, what), name
for groups in ("bbbaa", "aabbb"):
    by_polars, *by_pandas = frames(groups)
    for frame in by_pandas:
        assert over(frame, MOVING["rolling_sum"]) == over(by_polars, MOVING["rolling_sum"])
own = by_pandas[0].assign(g=list("babab")).groupby("g")["v"].rolling(2, min_periods=1).sum()
assert own.droplevel(0).sort_index().tolist() == [1, 10, 3, 30, 5]
print("groups b, a, b, a, b have the results of b, b, b, a, a")
EOF
