#!/usr/bin/env bash
# A column of floats that is shifted in chDB's DataStore loses the values that come to stand where a gap was
#
# Versions: chdb==4.4.0 chdb-core==26.9.0 pandas==3.1.1 numpy==2.4.6
# Expected: shift(1) of 1, 2, NaN, 4, 5 is NaN, 1, 2, NaN, 4, as in pandas, whose methods DataStore offers by the same
#           names: the 2 comes to the row of the gap, and the gap to the row behind it.
# Seen:     NaN, 1, NaN, NaN, 4: in the rows in which the column itself has NaN the shifted one has it too, so a value
#           is lost for each gap, in both directions, at any distance. Its sum is 5 and its count 2, where 7 and 3 are
#           right, and fillna(0) makes a zero of the 2. As a new column of a table, with a fill_value, in a difference
#           and in a comparison the same shift is right; so are integers and texts, and columns without gaps.
# Matters:  the value before now is wrong where a gap is to be filled by it, and a check on a table does not show it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check chdb==4.4.0 chdb-core==26.9.0 pandas==3.1.1 numpy==2.4.6
venv/bin/python -W ignore - <<'END'
import math

import pandas as pd
from datastore import DataStore

GIVEN = [1.0, 2.0, None, 4.0, 5.0]


def right_answer(distance: int) -> list[float | None]:
    places = range(-distance, len(GIVEN) - distance)
    return [GIVEN[place] if 0 <= place < len(GIVEN) else None for place in places]


def plain(values) -> list[float | None]:
    held = values if isinstance(values, pd.Series) else values.to_pandas()
    return [None if math.isnan(x) else x for x in held.tolist()]


def store() -> DataStore:
    return DataStore.from_df(pd.DataFrame({"x": GIVEN}))


frame = pd.DataFrame({"x": GIVEN})
for distance, seen in ((1, [None, 1, None, None, 4]), (2, [None, None, None, 2, None]), (-1, [2, None, None, 5, None])):
    right = right_answer(distance)
    assert plain(frame["x"].shift(distance)) == right
    assert plain(store()["x"].shift(distance)) == seen != right, distance
    assert [a for a, b in zip(seen, GIVEN, strict=True) if b is not None] == [
        a for a, b in zip(right, GIVEN, strict=True) if b is not None
    ], "only rows of gaps are wrong"
    whole = store()
    whole["before"] = whole["x"].shift(distance)
    assert plain(whole.to_pandas()["before"]) == right

assert (frame["x"].shift(1).sum(), frame["x"].shift(1).count()) == (7.0, 3)
assert (float(store()["x"].shift(1).sum()), int(store()["x"].shift(1).count())) == (5.0, 2)
assert plain(store()["x"].shift(1).fillna(0.0)) == [0, 1, 0, 0, 4]
assert plain(store()["x"].shift(1, fill_value=0.0)) == [0, 1, 2, None, 4]
integers = DataStore.from_df(pd.DataFrame({"x": [1, 2, 3, 4]}))
assert plain(integers["x"].shift(1)) == [None, 1, 2, 3]
print("shifted onto a gap, 2 is lost")
END
