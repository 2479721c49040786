"""Lets processes of simulated runs die at drawn moments, and compares every output with the reference's.

    python tests/deaths.py 5000                so many deaths, over as many runs as it takes
    python tests/deaths.py 5000 --seed 7000    from this seed on
    python tests/deaths.py --shrink 7012       the smallest case that is found of a seed that fails, in words

A seed stands for a graph, its input, the schedule with its deaths, and the limits of the machines (`chains.py`). It is
the sister of `kills.py`: no process, no clock, and so the same again each time. The exit code is 1 at the first run
that differs or ends with an error.
"""

from __future__ import annotations

import argparse
import sys
from itertools import count

from chains import ChainCase, case_of

from drift.testing.report import report
from drift.testing.shrink import shrunk


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("deaths", type=int, nargs="?", default=5000)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--shrink", type=int, metavar="SEED", help="show the smallest case of this one")
    arguments = parser.parse_args()
    return died(arguments.deaths, arguments.seed) if arguments.shrink is None else shown(arguments.shrink)


def died(deaths: int, first: int) -> int:
    """Until so many have; the exit code."""
    done = 0
    for seed in count(first):
        try:
            result = case_of(seed).check()
        except BaseException:
            print(f"\nseed {seed} raised", flush=True)
            raise
        if result.failure is not None:
            what, message = result.failure.what, result.failure.message
            print(f"\nseed {seed}, after {done} deaths: {what}: {message}\npython tests/deaths.py --shrink {seed}")
            return 1
        done += len(result.simulation.died)
        print(f"\r{done} deaths in {seed + 1 - first} runs, seeds {first} to {seed}", end="", flush=True)
        if done >= deaths:
            break
    print()
    return 0


def shown(seed: int) -> int:
    """The smallest case of a seed; the exit code."""
    result = case_of(seed).check()
    if result.failure is None:
        print(f"seed {seed} gives what the reference gives")
        return 0
    best = shrunk(result, payloads=False, checked=ChainCase.check)
    case = best.case
    assert isinstance(case, ChainCase)
    print(report(best))
    print(f"\n{case.chain}\n{case.schedule}\n{case.inputs}")
    print(
        f"{case.form.__name__}, {'drops' if case.drops else 'keeps'} states, {case.spared} spared, {dict(case.limits)}"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
