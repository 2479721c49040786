#!/usr/bin/env bash
# Once a boolean of Lance has an index, "NOT (x IS TRUE)" loses the rows of null, and its delete leaves them
#
# Versions: pylance==14.0.2 pyarrow==26.0.1
# Expected: an index changes how fast rows are found, and not which. "x IS TRUE" is never null, so what is not true is
#           false or null, as "x IS NOT TRUE" says, and as Lance itself says without an index.
# Seen:     with a BTREE or a BITMAP, "NOT (x IS TRUE)" gives the rows of false alone, "NOT (x IS FALSE)" those of true
#           alone, count_rows the same, and a delete by either leaves the rows of null. "x IS NOT TRUE" is right, and so
#           is "x IS DISTINCT FROM true". The index answers IS TRUE as it does "= true", whose NOT is null of null. A
#           former fault with NOT and null (issue 4756, mended) was the reverse: it gave null too much.
# Matters:  "all but those that are confirmed" is such a filter: what is unknown is left out of it, and kept when it was
#           to be deleted, as soon as somebody adds an index.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pylance==14.0.2 pyarrow==26.0.1
venv/bin/python - <<'END'
import lance
import pyarrow as pa

rows = pa.table({"name": ["yes", "no", "unknown"], "x": [True, False, None]})


def found(table: lance.LanceDataset, asked: str, index: bool = True) -> list[str]:
    names = table.scanner(columns=["name"], filter=asked, use_scalar_index=index).to_table()["name"].to_pylist()
    assert table.count_rows(filter=asked) == len(names) or not index
    return sorted(names)


for kind in (None, "BTREE", "BITMAP"):
    table = lance.write_dataset(rows, f"table-{kind}")
    if kind:
        table.create_scalar_index("x", kind)
    lost = [] if kind else ["unknown"]
    assert found(table, "NOT (x IS TRUE)") == ["no", *lost], kind
    assert found(table, "NOT (x IS FALSE)") == sorted(["yes", *lost]), kind
    assert found(table, "NOT (x IS TRUE)", index=False) == ["no", "unknown"]
    for right in ("x IS NOT TRUE", "x IS DISTINCT FROM true"):
        assert found(table, right) == ["no", "unknown"], (kind, right)
    assert found(table, "NOT x") == ["no"]
    table.delete("NOT (x IS TRUE)")
    assert sorted(table.to_table()["name"].to_pylist()) == (["unknown", "yes"] if kind else ["yes"]), kind
print("with an index what is unknown is no longer 'not true'")
END
