#!/usr/bin/env bash
# msgspec's decode_lines takes values over several lines, and several on one
#
# Versions: msgspec==0.22.0
# Expected: as many values as lines, or an error.
# Seen:     an object that is broken by a newline is one value, and two objects on one line are two: three values of
#           three lines, of which none is the value of its line. Of two equal keys the last counts.
# Matters:  the number of values says nothing about the lines, so an error behind them is blamed on another line.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check msgspec==0.22.0
venv/bin/python - <<'EOF'
import msgspec

data = b'{"a":\n1}\n{"b":2}{"c":3}\n'
assert data.count(b"\n") == 3
assert msgspec.json.Decoder(dict).decode_lines(data) == [{"a": 1}, {"b": 2}, {"c": 3}]
assert msgspec.json.decode(b'{"a":1,"a":2}') == {"a": 2}
print("as described")
EOF
