"""The grouping of the paper: numbers in two buckets, even and odd, and windows of 3.

Shows one of the two operations that everything else is made of: each number gives the tuple of the last three numbers
of its bucket, itself the last; the first ones of a bucket give shorter tuples.

    python examples/grouping.py
"""

import drift


def is_even(number: int) -> int:
    return 1 if number % 2 == 0 else 0


graph = drift.Graph("grouping")
graph.source("numbers").group(key=is_even, window=3).sink("tuples")


def main() -> None:
    run = drift.run(graph, {"numbers": range(1, 9)})
    print(", ".join(f"({'|'.join(map(str, item.payload))})" for item in run))
    print(f"digest {run.digest}")


if __name__ == "__main__":
    main()
