"""The running sum of the paper: a grouping of window 2, a map, and a feedback edge. No operator keeps a state.

Shows how state drifts: the sum so far is an item like any other. It comes back to the grouping right after the number
that made it, so the next number finds it as its neighbour. `Stream.scan` writes this cycle for you, and runs it as one
loop.

    python examples/sum_by_cycle.py
"""

from dataclasses import dataclass

import drift


@dataclass(frozen=True)
class Sum:
    """The state: the sum of all numbers up to one of them."""

    value: int


def one_bucket(payload: int | Sum) -> str:
    return "all"


def add(pair: tuple[int | Sum, ...]) -> list[Sum]:
    """A window of the grouping becomes the next sum, or nothing where it is not a sum and then a number.

    Two numbers may stand side by side for a moment, before the sum between them has come back. Whatever such a window
    gave would be cancelled when the sum comes; it gives nothing.
    """
    match pair:
        case (int(number),):
            return [Sum(number)]
        case (Sum(before), int(number)):
            return [Sum(before + number)]
        case _:
            return []


graph = drift.Graph("sum by cycle")
numbers = graph.source("numbers")
sums = graph.feedback("sums")
pairs = numbers.merge(sums).group(key=one_bucket, window=2)
totals = pairs.flat_map(add)
totals.feed(sums)
totals.sink("totals")


def main() -> None:
    run = drift.run(graph, {"numbers": range(1, 11)})
    for number, item in enumerate(run, start=1):
        print(f"1 + ... + {number:2} = {item.payload.value}")
    print(f"digest {run.digest}")


if __name__ == "__main__":
    main()
