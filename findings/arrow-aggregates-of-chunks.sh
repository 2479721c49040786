#!/usr/bin/env bash
# Arrow's sums and t-digests depend on how a column is cut into chunks
#
# Versions: pyarrow==26.0.1 numpy==2.4.6
# Expected: a chunked column is the column: its sum has the same bits, and approximate quantiles agree to several
# digits.
# Seen:     the last bits of sum and mean differ; the t-digest's median of normal numbers around 0 differs by a fifth
#           between one chunk and two. variance has the same bits here.
# Matters:  row groups, batches and slices are chunks, so the same file written with another batch size has another
#           sum.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pyarrow==26.0.1 numpy==2.4.6
venv/bin/python - <<'EOF'
import numpy
import pyarrow as pa
import pyarrow.compute as pc

values = numpy.random.Generator(numpy.random.PCG64(1)).normal(size=100_000) * 1e6
whole, chunks = pa.array(values), pa.chunked_array([values[:33_333], values[33_333:]])
assert whole.equals(chunks.combine_chunks())
for function in (pc.sum, pc.mean):
    assert function(whole).as_py() != function(chunks).as_py(), function
medians = [pc.tdigest(each, [0.5])[0].as_py() for each in (whole, chunks)]
assert abs(medians[0] - medians[1]) > abs(medians[0]) / 10, medians
assert pc.variance(whole).as_py() == pc.variance(chunks).as_py()
print("as described")
EOF
