"""What a durable step costs a run with state: time of the processors with and without, and bytes of the log.

python -m benchmarks.segments: runs of both kinds by turns, so that a busy machine makes the ratio no other.
"""

from __future__ import annotations

import resource
import statistics
import sys
import tempfile
from pathlib import Path

import drift

ITEMS = 500_000
KEYS = 1000


def graph(durable: bool) -> drift.Graph:
    made = drift.Graph("scores")
    scored = made.source("numbers").map(lambda n: {"n": n, "score": n * 7919 % 1009}, name="score", durable=durable)
    scored.scan(lambda row: row["n"] % KEYS, 0, lambda total, row: (total + row["score"],) * 2, name="sums").sink("out")
    return made


def used_s() -> float:
    """Of this process and of those that it has waited for."""
    of = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in of)


def once(engine: str, durable: bool) -> tuple[float, float]:
    """Seconds of processors, and bytes of log for each item."""
    with tempfile.TemporaryDirectory() as folder:
        state = drift.Checkpoints(folder, every_s=0.25, complete_logs=True)
        before_s = used_s()
        drift.run(graph(durable), {"numbers": range(ITEMS)}, engine=engine, state=state).finish()  # type: ignore[call-overload]
        taken_s = used_s() - before_s
        return taken_s, sum(path.stat().st_size for path in Path(folder).rglob("*.log")) / ITEMS


def main(engines: list[str], rounds: int = 3) -> None:
    for engine in engines:
        once(engine, durable=True)
        pairs = [(once(engine, durable=False)[0], once(engine, durable=True)) for _ in range(rounds)]
        without, durable = (statistics.median(each) for each in zip(*((one, two) for one, (two, _) in pairs)))
        print(
            f"{engine}: {without / ITEMS * 1e6:.2f} us an item without, {durable / ITEMS * 1e6:.2f} with one "
            f"({(durable - without) / ITEMS * 1e6:.2f} more), {pairs[0][1][1]:.0f} bytes of log an item"
        )


if __name__ == "__main__":
    main(sys.argv[1:] or ["local", "zeromq"])
