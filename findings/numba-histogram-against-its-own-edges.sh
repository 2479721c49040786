#!/usr/bin/env bash
# A histogram that Numba has compiled counts values on the wrong side of the edges that it returns
#
# Versions: numba==0.68.1 numpy==2.4.6
# Expected: numpy.histogram in a compiled function is numpy.histogram: its edges are the same to the bit, and a value is
#           in the bin whose lower edge is not above it and whose upper edge is above it.
# Seen:     the edges are NumPy's; the bin is found by dividing by a width, and what that rounds is not compared with
#           the edges, as NumPy does it. Of the edges 0, 0.1, 0.2 and 0.3 themselves, in three bins, there are 2, 1, 1
#           values instead of 1, 1, 2; of the edges of 0 to 0.7 two of seven bins are empty. Of 100,000 numbers of two
#           digits the third of ten bins is short of 942, which are those of 0.3, and the fourth has them. Edges that
#           are given as an array are kept.
# Known:    NumPy had such a fault of its own (issue 7628, mended), and fast-histogram has one (issue 63).
# Matters:  measurements and prices have few digits, and lie on edges; adding @njit for speed moves them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check numba==0.68.1 numpy==2.4.6
venv/bin/python - <<'EOF'
import bisect

import numba
import numpy


@numba.njit
def compiled(values, bins, low, high):
    return numpy.histogram(values, bins, (low, high))


@numba.njit
def compiled_edges(values, edges):
    return numpy.histogram(values, edges)


def by_edges(values, edges):
    """How many values are in each bin, by comparing them with the edges: the last bin has its upper edge."""
    edges, found = edges.tolist(), [0] * (len(edges) - 1)
    for value in values.tolist():
        found[min(bisect.bisect_right(edges, value), len(edges) - 1) - 1] += 1
    return found


def counts(values, bins, high):
    by_numpy, edges = numpy.histogram(values, bins, (0.0, high))
    by_numba, same_edges = compiled(values, bins, 0.0, high)
    assert edges.tobytes() == same_edges.tobytes()
    assert by_numpy.tolist() == by_edges(values, edges) == compiled_edges(values, edges)[0].tolist()
    return by_numpy.tolist(), by_numba.tolist()


assert counts(numpy.linspace(0.0, 0.3, 4), 3, 0.3) == ([1, 1, 2], [2, 1, 1])
assert counts(numpy.linspace(0.0, 0.7, 8), 7, 0.7) == ([1, 1, 1, 1, 1, 1, 2], [2, 1, 0, 2, 1, 0, 2])
assert counts(numpy.array([0.0, 1.0, 2.0, 3.0]), 3, 3.0) == ([1, 1, 2], [1, 1, 2])
values = numpy.round(numpy.random.default_rng(0).uniform(0, 1, 100_000), 2)
right, seen = counts(values, 10, 1.0)
moved = [a - b for a, b in zip(seen, right)]
print("in each of ten bins too many:", moved)
assert sum(moved) == 0 and max(map(abs, moved)) > 900, moved
EOF
