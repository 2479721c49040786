"""The base of a folder that an earlier drift has written: one file of SQLite, which is read once.

Invariant: the tables are as they were written, or the file is refused as damaged.

Why: it has the rows of a table in chunks, and a list of the tables with the numbers of their chunks, each with a hash.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import msgspec
import xxhash

from drift.state.checkpoint import StateDamaged

_decode_tables = msgspec.msgpack.Decoder(dict[str, tuple[int, int, int]]).decode  # chunks, keys, bytes
_decode_rows = msgspec.msgpack.Decoder(dict[bytes, bytes]).decode
_HASH_BYTES = 8


def tables_in(path: Path) -> dict[str, dict[bytes, bytes]]:
    """The rows of each table, all in memory.

    Raises:
        StateDamaged: see there.
    """
    try:
        with closing(sqlite3.connect(path)) as base:
            if not base.execute("select 1 from sqlite_master").fetchone():
                return {}  # a run was about to make it when it was killed
            found = {(name, number): data for name, number, data in base.execute("select * from chunks")}
        tables = _decode_tables(_body(found, "", 0)) if found else {}
        rows: dict[str, dict[bytes, bytes]] = {name: {} for name in tables}
        for name, (chunks, *_) in tables.items():
            for number in range(chunks):
                rows[name].update(_decode_rows(_body(found, name, number)))
        return rows
    except (sqlite3.Error, ValueError, TypeError, msgspec.MsgspecError) as error:
        said = str(error).encode("ascii", "backslashreplace").decode()
        raise StateDamaged(
            f"{path} was changed or cut off since it was written, or cannot be read: {said}; it has the states below "
            f"the oldest checkpoint, so the run cannot resume; bring back a copy of the folder, or start a new run "
            f"with another state="
        ) from error


def _body(found: Mapping[tuple[str, int], bytes], name: str, number: int) -> bytes:
    data = found.get((name, number), b"")
    body = data[_HASH_BYTES:]
    if data[:_HASH_BYTES] != xxhash.xxh3_64_digest(body, (xxhash.xxh3_64_intdigest(name.encode()) >> 1) + number):
        raise ValueError(f"chunk {number} of {name or 'the list of tables'} is missing or has another hash")
    return body
