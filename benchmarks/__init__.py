"""What drift costs beside a plain Python loop over the same functions, measured in one run: `python -m benchmarks`.

Invariant: every number comes from a process of its own, started for it; ratios are between neighbours of one round.

Why: a fresh process has no warm caches and no memory of the measurement before, so its peak memory is its own; and on
a machine that others use, what changes from minute to minute is the same for neighbours.
"""
