#!/usr/bin/env bash
# Classes of a script's own file arrive by value in another process, and some arrive broken
#
# Versions: cloudpickle==3.1.3 msgspec==0.22.0 (Python 3.11)
# Expected: what is defined in __main__ is sent by value, so a class works there as it does here, or is refused.
# Seen:     a msgspec.Struct arrives without its fields: it is made there without a complaint, and `Point(3)` then
#           raises "Extra positional arguments provided". A dataclass(slots=True) arrives with a __dict__ in each of
#           its instances: it takes attributes that it refuses here. A class with a cached_property that nobody has
#           asked for yet cannot be sent: "cannot pickle '_thread.RLock' object", since that keeps a lock until 3.12.
# Matters:  scripts that hand their classes to workers; the first two fail where nobody looks, in the worker.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check cloudpickle==3.1.3 msgspec==0.22.0
cat > script.py <<'EOF'
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property

import cloudpickle
import msgspec


class Point(msgspec.Struct):
    x: int


@dataclass(slots=True)
class Slotted:
    x: int


class Lazy:
    @cached_property
    def x(self) -> int:
        return 3


def there(value: object, code: str) -> str:
    """What a fresh process prints that has the value as `it`."""
    load = f"import pickle, sys; it = pickle.load(sys.stdin.buffer); {code}"
    ran = subprocess.run([sys.executable, "-c", load], input=cloudpickle.dumps(value), capture_output=True)
    return (ran.stdout + ran.stderr).decode().strip().splitlines()[-1]


assert Point(3).x == 3
assert "Extra positional arguments provided" in there(Point, "print(it(3).x)"), there(Point, "print(it(3).x)")
assert not hasattr(Slotted(3), "__dict__")
assert there(Slotted, "print(hasattr(it(3), '__dict__'))") == "True"
if sys.version_info < (3, 12):
    try:
        cloudpickle.dumps(Lazy)
    except TypeError as error:
        assert "RLock" in str(error), error
    else:
        raise AssertionError("a class with a cached_property was pickled")
print("as described")
EOF
venv/bin/python script.py
