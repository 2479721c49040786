#!/usr/bin/env bash
# PyORC writes what is in the last second before 1970 one second later
#
# Versions: pyorc==0.12.0 pyarrow==26.0.1
# Expected: 1969-12-31 23:59:59.5 is read back as it was written, as the moments of the second before it are.
# Seen:     it is 1970-01-01 00:00:00.5 in the file, for PyORC and for Arrow, in timestamps with and without a zone:
#           whole seconds are cut towards zero, and of zero no reader can tell that it was minus a half. So is every
#           moment of that one second, but for its first millisecond; nothing else is moved. The rows are no longer in
#           the order of their times. Files that Arrow writes of the same moments are read rightly by both, so the
#           format can hold them.
# Known:    ORC-645 is of the same second, in other writers.
# Matters:  a series through the turn of 1970 has two rows for half of the second and none for the other half.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pyorc==0.12.0 pyarrow==26.0.1
venv/bin/python - <<'END'
import datetime as dt
import io

import pyarrow as pa
import pyorc
from pyarrow import orc

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
SECOND = 1_000_000
MICROSECONDS = [-2 * SECOND + 1, -1_500_000, -SECOND - 1, -SECOND, -999_001, -999_000, -500_000, -1, 0, 1, 500_000]
SEEN = [-2 * SECOND + 1, -1_500_000, -SECOND - 1, -SECOND, -999_001, 1_000, 500_000, 999_999, 0, 1, 500_000]


def of_pyorc(file: io.BytesIO) -> list[int]:
    file.seek(0)
    return [(moment - EPOCH) // dt.timedelta(microseconds=1) for (moment,) in pyorc.Reader(file)]


def of_arrow(file: io.BytesIO) -> list[int]:
    file.seek(0)
    return [nanoseconds // 1000 for nanoseconds in orc.read_table(file)["at"].cast(pa.int64()).to_pylist()]


for kind in ("timestamp", "timestamp with local time zone"):
    file = io.BytesIO()
    with pyorc.Writer(file, f"struct<at:{kind}>") as writer:
        for value in MICROSECONDS:
            writer.write((EPOCH + dt.timedelta(microseconds=value),))
    assert of_pyorc(file) == SEEN, kind
    assert of_arrow(file) == SEEN, kind

for zone in (None, "UTC"):
    file = io.BytesIO()
    orc.write_table(pa.table({"at": pa.array(MICROSECONDS, pa.timestamp("us", zone))}), file)
    assert of_arrow(file) == of_pyorc(file) == MICROSECONDS, zone
assert SEEN == [value + SECOND if -999_000 <= value < 0 else value for value in MICROSECONDS]
print("1969-12-31 23:59:59.5 is 1970-01-01 00:00:00.5")
END
