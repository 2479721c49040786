#!/usr/bin/env bash
# Quantile sketches of DataSketches give other answers for the same input each time
#
# Versions: datasketches==5.2.0 numpy==2.4.6
# Expected: a KLL or REQ sketch of the same numbers, in the same order, in one process, answers the same each time.
# Seen:     the answers of equal sketches differ, within the promised error: the coin of their compactions has no seed
#           that a caller could set. HLL and theta sketches, which only hash, are equal.
# Matters:  where a stream has to give the same answer twice, these sketches cannot be taken as they are.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check datasketches==5.2.0 numpy==2.4.6
venv/bin/python - <<'EOF'
import datasketches
import numpy

values = numpy.arange(100_000, dtype=numpy.float32)
for kind, size in ((datasketches.kll_floats_sketch, 200), (datasketches.req_floats_sketch, 12)):
    answers = set()
    for _ in range(8):
        sketch = kind(size)
        sketch.update(values)
        answers.add(tuple(sketch.get_quantile(share) for share in (0.1, 0.5, 0.9)))
    assert len(answers) > 1, (kind, answers)
counts = set()
for _ in range(8):
    sketch = datasketches.hll_sketch(12)
    for value in range(10_000):
        sketch.update(value)
    counts.add(sketch.get_estimate())
assert len(counts) == 1, counts
print("as described")
EOF
