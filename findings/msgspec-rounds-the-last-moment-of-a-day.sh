#!/usr/bin/env bash
# msgspec reads a time just before midnight as midnight of the same day
#
# Versions: msgspec==0.22.0
# Expected: a time with seven digits of a second is refused, or cut to microseconds, as the standard library does.
# Seen:     it is rounded: the time 23:59:59.9999999 is 00:00:00, a day earlier, and the same as a datetime is the
#           next day, here the next year.
# Matters:  clocks of .NET and of databases write seven digits; an event of the last moment of a day is counted on
#           another one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check msgspec==0.22.0
venv/bin/python - <<'EOF'
import datetime as dt
import msgspec

assert msgspec.json.decode(b'"23:59:59.9999999"', type=dt.time) == dt.time(0, 0)
assert msgspec.json.decode(b'"2024-12-31T23:59:59.9999999"', type=dt.datetime) == dt.datetime(2025, 1, 1)
assert dt.time.fromisoformat("23:59:59.9999999") == dt.time(23, 59, 59, 999999)
print("as described")
EOF
