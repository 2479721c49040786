"""The columns of each table of a record."""

from __future__ import annotations

import pyarrow as pa

from drift_barrier.digest import BLOCK_ITEMS

#: Rows of a row group: what is in memory at once.
ROW_GROUP_ITEMS = 32 * BLOCK_ITEMS

_names = pa.dictionary(pa.int32(), pa.string())
SCHEMAS = {
    "arrivals": pa.schema(
        [
            ("batch", pa.int64()),
            ("source", _names),
            ("items", pa.int64()),
            ("late", pa.int64()),
            ("at_ns", pa.int64()),
            ("heartbeat", pa.binary()),
            ("numbered", pa.bool_()),
        ]
    ),
    "input": pa.schema(
        [
            ("batch", pa.int64()),
            ("source", _names),
            ("time", pa.int64()),
            ("global_time", pa.binary()),
            ("payload", pa.binary()),
        ]
    ),
    "late": pa.schema(
        [
            ("batch", pa.int64()),
            ("source", _names),
            ("time", pa.int64()),
            ("heartbeat", pa.int64()),
            ("reason", pa.string()),
            ("payload", pa.binary()),
        ]
    ),
    "output": pa.schema(
        [
            ("position", pa.int64()),
            ("sink", _names),
            ("time", pa.int64()),
            ("global_time", pa.binary()),
            ("meta", pa.binary()),
            ("payload", pa.binary()),
        ]
    ),
    "blocks": pa.schema(
        [
            ("table", _names),
            ("block", pa.int64()),
            ("rows", pa.int64()),
            ("hash", pa.binary()),
            ("meta_checks", pa.binary()),
            ("payload_checks", pa.binary()),
        ]
    ),
}
