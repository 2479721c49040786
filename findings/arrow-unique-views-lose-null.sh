#!/usr/bin/env bash
# unique and value_counts of a string_view give an empty text in place of null
#
# Versions: pyarrow==26.0.1
# Expected: null is one of the values, as of string and large_string; or an error, as of take, filter and sort, which
#           have no views of texts.
# Seen:     null comes out as an empty text that is not null: beside a real empty text there are two of them, and
#           counts of both. Nothing raises, and the result validates. binary_view is the same, and chunked arrays.
#           group_by and dictionary_encode are right.
# Matters:  who takes the values of a column from unique, for instance as the folders of partitions, files what is
#           unknown under what is empty. string_view is what Polars hands over where views are asked for.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pyarrow==26.0.1
venv/bin/python - <<'EOF'
import pyarrow as pa

texts = ["b", None, "", None, "a"]
assert pa.array(texts, pa.string()).unique().to_pylist() == ["b", None, "", "a"]
for kind, of in ((pa.string_view(), str), (pa.binary_view(), str.encode)):
    values = pa.array([None if each is None else of(each) for each in texts], kind)
    assert values.null_count == 2
    different = values.unique()
    different.validate(full=True)
    assert different.null_count == 0 and different.to_pylist() == [of("b"), of(""), of(""), of("a")]
    assert pa.chunked_array([values, values]).unique().to_pylist() == different.to_pylist()
    counts = [(each["values"].as_py(), each["counts"].as_py()) for each in values.value_counts()]
    assert counts == [(of("b"), 1), (of(""), 2), (of(""), 1), (of("a"), 1)]
    grouped = pa.table({"k": values}).group_by("k", use_threads=False).aggregate([([], "count_all")])
    assert grouped["k"].to_pylist() == [of("b"), None, of(""), of("a")]
    assert values.dictionary_encode().to_pylist() == values.to_pylist()
    for call in (lambda: values.take(pa.array([0])), lambda: values.filter(pa.array([True] * 5))):
        try:
            call()
        except pa.ArrowNotImplementedError:
            continue
        raise AssertionError("views of texts can be taken")
print("as described")
EOF
