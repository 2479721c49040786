#!/usr/bin/env bash
# In Rocksdict the floats below zero come after all others as keys, the greatest of them first
#
# Versions: rocksdict==0.3.29
# Expected: a walk over the keys from a key on gives that one and what is greater, as it does for integers, of which
#           -300, 2 and 10**30 come in this order.
# Seen:     floats are in the order of their bytes: 0.5, 20, infinity, -0.5, -2.5 and -100. From -2.0 on there are -2.5
#           and -100, which are less, and nothing that is greater; backwards from 1.0 there are 0.5 and 0.0, and nothing
#           below; the last key is the least. 0.0 and -0.0, which are equal, are two keys, so a dict and an Rdict that
#           were given the same pairs differ in length.
# Matters:  a range over differences or degrees loses rows without a sign, as soon as one of them is below zero.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check rocksdict==0.3.29
venv/bin/python - <<'END'
import math

from rocksdict import Rdict

integers = Rdict("integers")
for key in (2, 10**30, -1, -300, 256, -(10**30), 0):
    integers[key] = True
assert list(integers.keys()) == [-(10**30), -300, -1, 0, 2, 256, 10**30]
assert list(integers.keys(from_key=-2)) == [-1, 0, 2, 256, 10**30]
integers.close()

KEYS = [-100.0, -2.5, -0.5, 0.0, 0.5, 20.0, math.inf]
floats = Rdict("floats")
for key in KEYS:
    floats[key] = True
assert list(floats.keys()) == [0.0, 0.5, 20.0, math.inf, -0.5, -2.5, -100.0]
assert [key for key in KEYS if key >= -2.0] == [-0.5, 0.0, 0.5, 20.0, math.inf]
assert list(floats.keys(from_key=-2.0)) == [-2.5, -100.0]
assert list(floats.keys(from_key=1.0)) == [20.0, math.inf, -0.5, -2.5, -100.0]
assert list(floats.keys(from_key=1.0, backwards=True)) == [0.5, 0.0]
cursor = floats.iter()
cursor.seek_to_last()
assert cursor.key() == min(KEYS)

floats[-0.0] = False
same = dict.fromkeys(KEYS, True) | {-0.0: False}
assert (len(list(floats.keys())), len(same)) == (8, 7)
assert floats[0.0] is True and same[0.0] is False
floats.close()
print("the last of the keys is the least")
END
