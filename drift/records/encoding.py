"""How the columns of a part are encoded, chosen by its first rows.

Invariant: the choice changes the size of a file and the time to write and read it, never what is read from it.

Why a sample: ties of numbered items are all the same, those of event time are hashes, each different; rows of text
shrink to a fifth, small numbers to a half. Writing slows the run, and reading slows an audit, so bytes are compressed
only if that saves most of them.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from drift.records.columns import joined, strings_of
from drift.records.tables import REPEATING

_SAMPLE_ITEMS = 1024
#: Compress if the result is smaller than this share of the original.
_SHARE_MAX = 1 / 3
#: Twice as fast as zstd at its fastest, to write and to read, with files half as large again.
_FAST = "lz4"
_few = frozenset({"source", "sink", "table"})
_counts = frozenset({"batch", "time", "position", "at_ns"})
_searched = frozenset({"batch", "time", "position", "block"})


def encoding(rows: pa.Table) -> dict[str, Any]:
    """Arguments of a `ParquetWriter` for a part that begins with these rows."""
    names: list[str] = rows.schema.names
    binary = [name for name, kind in zip(names, rows.schema.types) if pa.types.is_binary(kind)]
    samples = {name: strings_of(rows.column(name)[:_SAMPLE_ITEMS]) for name in binary}
    repeating = {name for name, strings in samples.items() if name in REPEATING and _repeat(strings)}
    fast = {name: _FAST if name in repeating or _shrink(strings) else "none" for name, strings in samples.items()}
    return {
        "compression": {name: fast.get(name, "zstd") for name in names},
        "compression_level": {name: 1 for name in names if name not in fast},
        "use_dictionary": [name for name in names if name in _few or name in repeating],
        "column_encoding": {name: "DELTA_BINARY_PACKED" for name in names if name in _counts},
        "write_statistics": [name for name in names if name in _searched],
    }


def _repeat(strings: pa.Array) -> bool:
    """Whether most strings occur several times."""
    return 2 * len(strings.unique()) <= len(strings)


def _shrink(strings: pa.Array) -> bool:
    data = joined(strings)
    return len(pa.compress(data, "lz4_raw", asbytes=True)) < _SHARE_MAX * len(data)
