"""Checks that a record is as it was written: files, manifest and digests agree. Nothing is computed again.

Invariant: memory is bounded by a batch of rows of one table and the hashes of the blocks; every byte that the manifest
lists is read, and every item of input and output is hashed again.

Why: hashes say which file and which block has changed, and the short checks of its items which of them, as long as
none was taken away or added. What somebody changed together with all hashes only a signature finds (`signature.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from drift.auditing.checks import Check, Trouble, judged
from drift.records.blocks import Block, checks
from drift.records.columns import GLOBAL_TIME, META, bins_of, joined, strings_of
from drift.records.format import (
    MANIFEST,
    TABLES,
    File,
    Manifest,
    RecordError,
    Snapshot,
    as_file,
    hash_file,
    hash_of,
)
from drift.records.journal import JOURNAL
from drift.records.reader import Record
from drift.records.tables import open_table
from drift.records.watch import Watch
from drift_barrier.digest import BLOCK_ITEMS, hash_block, hash_of_parts

_TROUBLES_MAX = 20
#: The columns that make a meta; for the input, a global time.
_names = {"output": META, "input": GLOBAL_TIME}
#: Rows that are checked at once: with more, allocating memory takes as long.
_ROWS_AT_ONCE = 8 * BLOCK_ITEMS


def unreadable(error: RecordError) -> Check:
    """The only check of a record whose manifest cannot be read."""
    return judged("intact", "manifest.json", "its format", [Trouble("manifest unreadable", str(error), MANIFEST)], "")


def intact_checks(path: Path, snapshot: Snapshot, watch: Watch) -> Iterator[Check]:
    """The checks of the record as of one moment, each when it is done."""
    timed = _Timed()
    manifest = snapshot.manifest
    yield timed("manifest.json", "its own hash, and its counts", _manifest_troubles(snapshot), "unchanged")
    for table in TABLES:
        files = manifest.of(table)
        if not files:
            continue
        troubles: list[Trouble] = []
        for file in files:
            watch.begin(f"reading {file.path}")
            troubles += _file_troubles(path, file, manifest)
        size = sum(file.bytes for file in files)
        what = f"{table}: {len(files)} file{'s' if len(files) > 1 else ''}, {size:,} bytes"
        yield timed(what, "sizes and hashes in the manifest", troubles, "unchanged")
    for table in ("input", "output"):
        watch.begin("hashing items", {"input": manifest.items_in, "output": manifest.items_out})
        yield _check_items(timed, path, manifest, table, watch)


class _Timed:
    """Makes checks, with the time since the last one."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    def __call__(self, what: str, against: str, troubles: list[Trouble], well: str) -> Check:
        now = time.perf_counter()
        seconds, self._since = now - self._since, now
        return judged("intact", what, against, troubles, well, seconds)


# The manifest.


def _manifest_troubles(snapshot: Snapshot) -> list[Trouble]:
    manifest = snapshot.manifest
    plain = msgspec.json.decode(snapshot.data)
    if hash_of(plain, manifest.algorithm) != plain["self_hash"]:
        text = "manifest.json was edited: it has not the hash that is in it"
    elif as_file(plain) != snapshot.data:
        text = "manifest.json was edited: it says what its hash is of, in other bytes than drift writes that in"
    elif snapshot.journal.wrong:
        text = f"{JOURNAL} was edited: {snapshot.journal.wrong}, and what follows is not read"
    else:
        return []
    return [Trouble("manifest edited", text, MANIFEST)]


# Files.


def _file_troubles(path: Path, file: File, manifest: Manifest) -> list[Trouble]:
    there = path / file.path
    what = f"{file.path} (rows {file.first:,} to {file.first + file.rows - 1:,})"
    position = file.first if file.table in ("input", "output") else None
    block = position // BLOCK_ITEMS if position is not None else None
    try:
        size = there.stat().st_size
    except FileNotFoundError:
        return [Trouble("file lost", f"{what} is not there", file.path, block, position)]
    if not there.is_file():
        return [Trouble("file unreadable", f"{what} is no file, but something else", file.path, block, position)]
    if size < file.bytes and not _has_end(there):
        text = f"{what} has {size:,} of its {file.bytes:,} bytes"
        return [Trouble("file truncated", text, file.path, block, position)]
    try:
        found = hash_file(there, manifest.algorithm)
    except OSError as error:
        return [Trouble("file unreadable", f"{what} cannot be read: {error.strerror}", file.path, block, position)]
    if size != file.bytes:
        return [Trouble("file changed", f"{what} has {size:,} bytes in place of {file.bytes:,}", file.path)]
    if found != file.hash:
        return [Trouble("file changed", f"{what} has other bytes than were written", file.path)]
    return []


def _has_end(path: Path) -> bool:
    """Whether a Parquet file has its footer mark."""
    with path.open("rb") as file:
        return file.seek(0, os.SEEK_END) >= 8 and file.seek(-4, os.SEEK_END) > 0 and file.read() == b"PAR1"


# Items.


def _check_items(timed: _Timed, path: Path, manifest: Manifest, table: str, watch: Watch) -> Check:
    """Whether the items are those that were digested."""
    count = manifest.items_in if table == "input" else manifest.items_out
    wanted = manifest.input_digest if table == "input" else manifest.digest
    troubles: list[Trouble] = []
    hashes: list[bytes] = []
    row = 0
    try:
        blocks = Record.at(path, manifest).blocks(table)
        for expected, parts in zip_longest(blocks, _parts_of_blocks(path, manifest, table)):
            if expected is None or parts is None or len(troubles) >= _TROUBLES_MAX:
                break  # without a trouble the digest is another one
            rows = sum(len(metas) for metas, _ in parts)
            columns = ([joined(each) for each in column] for column in zip(*parts))
            hashes.append(hash_of_parts(manifest.algorithm, rows, *columns))
            if hashes[-1] != expected.hash:
                troubles += _changes(manifest, table, expected, parts, row)
            row += rows
            watch.read(table, row)
    except (OSError, pa.ArrowException, ValueError, RecordError) as error:
        text = f"the items of {table} from {row:,} on cannot be checked: {error}"
        troubles.append(_trouble(manifest, table, "file unreadable", text, row))
    digest = hash_block(manifest.algorithm, b"".join(hashes)).hex()
    if not troubles and digest != wanted:
        text = f"the digest of the {table} is {digest}, and the manifest says {wanted}"
        troubles.append(_trouble(manifest, table, "digest differs", text, row))
    what, against = f"{table}: {count:,} items", "the hashes of their blocks, the digest"
    return timed(what, against, troubles, f"as written; digest {wanted}")


_Parts = list[tuple[pa.Array, pa.Array]]


def _parts_of_blocks(path: Path, manifest: Manifest, table: str) -> Iterator[_Parts]:
    """For each block its metas and payloads, in canonical bytes, in parts."""
    parts: _Parts = []
    rows = 0
    for file in manifest.of(table):
        with open_table(path / file.path, table, coded=True) as parquet:
            for batch in parquet.iter_batches(_ROWS_AT_ONCE, columns=[*_names[table], "payload"], use_threads=False):
                metas, payloads = bins_of(batch, _names[table]), strings_of(batch.column("payload"))
                start = 0
                while start < len(batch):
                    end = min(start + BLOCK_ITEMS - rows, len(batch))
                    parts.append((metas[start:end], payloads[start:end]))
                    rows, start = rows + end - start, end
                    if rows == BLOCK_ITEMS:
                        yield parts
                        rows, parts = 0, []
    if rows:
        yield parts


def _changes(manifest: Manifest, table: str, block: Block, parts: _Parts, first: int) -> list[Trouble]:
    """What has changed in a block: the items, if their checks say which, or any."""
    of_metas, of_payloads = (np.concatenate([checks(each) for each in column]) for column in zip(*parts))
    what = "position" if table == "output" else "input row"
    last = first + block.rows - 1
    troubles = [
        _trouble(manifest, table, f"{part} changed", f"the {part} at {what} {row:,} has changed", row)
        for part, found, expected in (
            ("meta", of_metas.astype(np.uint8), np.frombuffer(block.meta_checks, np.uint8)),
            ("payload", of_payloads, np.frombuffer(block.payload_checks, "<u2")),
        )
        if len(found) == len(expected)
        for row in (first + np.flatnonzero(found != expected)).tolist()
    ]
    if 0 < len(troubles) <= _TROUBLES_MAX:
        return troubles
    text = f"something in {what}s {first:,} to {last:,} has changed"
    return [_trouble(manifest, table, "block changed", text, first)]


def _trouble(manifest: Manifest, table: str, kind: str, text: str, row: int) -> Trouble:
    files = (file.path for file in manifest.of(table) if file.first <= row < file.first + file.rows)
    file, block = next(files, ""), row // BLOCK_ITEMS
    return Trouble(kind, f"{text} (block {block}, {file})", file, block, row)
