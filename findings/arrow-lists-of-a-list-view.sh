#!/usr/bin/env bash
# A cast from list_view to list has too few offsets, and loses elements of what was sorted
#
# Versions: pyarrow==26.0.1
# Expected: the lists stay what they are, since the two types hold the same values.
# Seen:     the offsets are taken over as they are: the result has one too few, so it does not validate, and lists are
#           empty or begin elsewhere as soon as they lie in another order than their elements, as after a sort. Nothing
#           raises. large_list_view is the same; writing Parquet and list_flatten are right.
# Matters:  whoever brings the types of a table to those it knows, for instance since Polars takes no list_view, has to
#           rebuild such lists from list_flatten and list_value_length.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pyarrow==26.0.1
venv/bin/python - <<'EOF'
import pyarrow as pa
import pyarrow.compute as pc

for view, of in ((pa.list_view(pa.int64()), pa.list_), (pa.large_list_view(pa.int64()), pa.large_list)):
    column = pa.array([[1, 2], [3], [4, 5]], view)
    column.validate(full=True)
    lists = column.cast(of(pa.int64()))
    assert lists.type == of(pa.int64()) and len(lists) == 3
    try:
        lists.validate(full=True)
    except pa.ArrowInvalid as error:
        assert "ffsets buffer size" in str(error), error
    else:
        raise AssertionError("the lists are valid")
    ordered = pa.table({"k": [3, 1, 2], "x": column}).sort_by("k")["x"].combine_chunks()
    ordered.validate(full=True)
    assert ordered.to_pylist() == [[3], [4, 5], [1, 2]]
    assert ordered.cast(of(pa.int64()))[:2].to_pylist() == [[3], []]
    assert pc.list_flatten(ordered).to_pylist() == [3, 4, 5, 1, 2]
    assert pc.list_value_length(ordered).to_pylist() == [1, 2, 2]
print("as described")
EOF
