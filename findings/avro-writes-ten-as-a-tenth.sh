#!/usr/bin/env bash
# Apache's avro writes Decimal('10') into a column of two digits as 0.10
#
# Versions: avro==1.12.2 fastavro==1.13.1
# Expected: a decimal with fewer digits behind the point than the schema's scale is scaled up: ten is read back as
# 10.00.
# Seen:     the digits are written as they are: 10 is read back as 0.10, 1.2 as 0.12 and 1E+1 as 0.01, by avro and by
#           fastavro, for bytes and for fixed; only numbers that have exactly the scale are right. More digits behind
#           the point are refused; fastavro writes all of these right.
# Matters:  two writers of one topic disagree by factors of ten: quantize() first, or write with fastavro.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check avro==1.12.2 fastavro==1.13.1
venv/bin/python - <<'EOF'
import io
import json
from decimal import Decimal
import avro.io
import avro.schema
import fastavro


def check(kind):
    of_field = {**kind, "logicalType": "decimal", "precision": 4, "scale": 2}
    schema = {"type": "record", "name": "r", "fields": [{"name": "d", "type": of_field}]}
    of_avro, of_fastavro = avro.schema.parse(json.dumps(schema)), fastavro.parse_schema(schema)
    for number, found in (("10", "0.10"), ("1.2", "0.12"), ("-3", "-0.03"), ("1E+1", "0.01"), ("1.20", "1.20")):
        file = io.BytesIO()
        avro.io.DatumWriter(of_avro).write({"d": Decimal(number)}, avro.io.BinaryEncoder(file))
        data = file.getvalue()
        assert avro.io.DatumReader(of_avro).read(avro.io.BinaryDecoder(io.BytesIO(data)))["d"] == Decimal(found), number
        assert fastavro.schemaless_reader(io.BytesIO(data), of_fastavro)["d"] == Decimal(found), number
        file = io.BytesIO()
        fastavro.schemaless_writer(file, of_fastavro, {"d": Decimal(number)})
        assert fastavro.schemaless_reader(io.BytesIO(file.getvalue()), of_fastavro)["d"] == Decimal(number), number


check({"type": "bytes"})
check({"type": "fixed", "name": "f", "size": 8})
print("as described")
EOF
