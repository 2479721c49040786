"""The files of states below the oldest checkpoint: bytes of a key, and processor time of a lookup and of a changed key.

    python -m benchmarks.bases --keys 1000000

First all keys are written at once, then some of them again and again, as folding does, in turn by a process with other
work and by one without; then keys at random are looked up, one by one and many at once.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from drift.state.base import Base
from drift.state.tables import row_of

_CHANGED, _WRITES, _LOOKUPS = 5000, 16, 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description="Files of states below the oldest checkpoint.")
    parser.add_argument("--keys", type=int, default=1_000_000)
    keys = parser.parse_args().keys
    chosen = Random(1)
    with tempfile.TemporaryDirectory() as folder:
        base, deputy = Base(Path(folder) / "base"), Base(Path(folder) / "base", merges_all=True)
        print(f"{keys:,} keys with a number each")
        took_s = cpu_of(lambda: base.write(rows_of(range(keys), 0)))
        print(f"written at once: {took_s / keys * 1e6:.1f} us a key, {size_of(folder) / keys:.0f} bytes a key")
        took_s = 0.0
        for number in range(_WRITES):
            rows = rows_of(chosen.sample(range(keys), _CHANGED), number + 1)
            writer = (base, deputy)[number % 2]
            took_s += cpu_of(lambda writer=writer, rows=rows: writer.write(rows))  # type: ignore[misc]
        changed = _CHANGED * _WRITES
        print(f"{_CHANGED:,} changed, {_WRITES} times: {took_s / changed * 1e6:.1f} us a changed key, "
              f"{size_of(folder) / keys:.0f} bytes a key")  # fmt: skip
        sought = [form_of(key) for key in chosen.choices(range(keys), k=_LOOKUPS)]
        alone_s = cpu_of(lambda: [base.read("base:sums", [key]) for key in sought])
        many_s = cpu_of(lambda: base.read("base:sums", sought))
        print(f"looked up: {alone_s / _LOOKUPS * 1e6:.1f} us alone, {many_s / _LOOKUPS * 1e6:.1f} us among many")


def form_of(key: int) -> bytes:
    """The canonical bytes of a key."""
    return b"\xce" + key.to_bytes(4, "big")


def rows_of(keys: range | list[int], state: int) -> dict[str, dict[bytes, bytes | None]]:
    forms = list(map(form_of, keys))
    return {"base:sums": {form: row_of(form, form_of(state)) for form in forms}}


def cpu_of(work: Callable[[], object]) -> float:
    began_s = time.process_time()
    work()
    return time.process_time() - began_s


def size_of(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
