"""Checks that a record is as it was written: files, manifest and digests agree. Nothing is computed again.

Invariant: memory is bounded by a row group of each table and the hashes of the blocks; every byte that the manifest
lists is read, and every item of input and output is hashed again.

Why two passes: for an unchanged record files and items are only hashed. If something has changed, the second pass
locates it: the block whose hash differs, and in it the item, by the checks of the items.

What it does not find: a record in which somebody made every hash anew. Only a signature does (`signature.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from drift.auditing.checks import Check, Trouble, found_by
from drift.auditing.unlisted import unlisted_checks
from drift.records.blocks import Block, checks
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
    read_snapshot,
)
from drift.records.journal import JOURNAL
from drift.records.metas import GLOBAL_TIME, META, bins_of
from drift.records.reader import Record
from drift.records.tables import DAMAGE, ROW_GROUP_ITEMS, check_values, open_table
from drift.records.watch import Watch
from drift.strings import Numbers, first_of, of_arrow
from drift_barrier.digest import BLOCK_ITEMS, hash_block, hash_of_parts

_TROUBLES_MAX = 20
#: The columns that make a meta; for the input, a global time.
_names = {"output": META, "input": GLOBAL_TIME}
#: Rows that are checked at once: with more, allocating memory takes as long.
_ROWS_AT_ONCE = 8 * BLOCK_ITEMS
#: Rows read beyond a block, to resynchronize after a surplus row.
_AHEAD = 16


def check_intact(path: Path) -> list[Check]:
    """The checks of the level "intact"."""
    try:
        snapshot = read_snapshot(path)
    except RecordError as error:
        return [unreadable(error)]
    return list(intact_checks(path, snapshot, Watch()))


def unreadable(error: RecordError) -> Check:
    """The only check of a record whose manifest cannot be read."""
    trouble = Trouble("manifest unreadable", str(error), MANIFEST)
    return Check("intact", "manifest.json", "its format", "trouble", trouble.text, (trouble,))


def intact_checks(path: Path, snapshot: Snapshot, watch: Watch) -> Iterator[Check]:
    """The checks of the record as of one moment, each when it is done."""
    timed = _Timed()
    manifest = snapshot.manifest
    yield timed("manifest.json", "its own hash, and its counts", _manifest_troubles(snapshot), "unchanged")
    changed: set[str] = set()
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
        if troubles:
            changed.add(table)
    blocks = _blocks(path, manifest)
    for table in ("input", "output"):
        watch.begin("hashing items", {"input": manifest.items_in, "output": manifest.items_out})
        expected = blocks[table] if table not in changed else None
        yield _check_items(timed, path, manifest, table, watch, expected)
    yield from unlisted_checks(path, manifest)


class _Timed:
    """Makes checks, with the time since the last one."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    def __call__(self, what: str, against: str, troubles: list[Trouble], well: str) -> Check:
        now = time.perf_counter()
        seconds, self._since = now - self._since, now
        result = "trouble" if troubles else "ok"
        return Check("intact", what, against, result, found_by(troubles, well), tuple(troubles), seconds)  # type: ignore[arg-type]


# The manifest.


def _manifest_troubles(snapshot: Snapshot) -> list[Trouble]:
    manifest = snapshot.manifest
    plain = msgspec.json.decode(snapshot.data)
    troubles = _count_troubles(manifest)
    if hash_of(plain, manifest.algorithm) != plain["self_hash"]:
        text = "manifest.json was edited: it has not the hash that is in it"
    elif as_file(plain) != snapshot.data:
        text = "manifest.json was edited: it says what its hash is of, in other bytes than drift writes that in"
    elif snapshot.journal.wrong:
        text = f"{JOURNAL} was edited: {snapshot.journal.wrong}, and what follows is not read"
    else:
        return troubles
    if troubles:
        text += "; " + "; ".join(trouble.text for trouble in troubles)
    return [Trouble("manifest edited", text, MANIFEST)]


def _count_troubles(manifest: Manifest) -> list[Trouble]:
    """Contradictions within the manifest."""
    troubles: list[Trouble] = []
    for table, count in (("input", manifest.items_in), ("late", manifest.late_items), ("output", manifest.items_out)):
        files = manifest.of(table)
        rows = sum(file.rows for file in files)
        if rows != count:
            text = f"it says {count:,} items of {table}, and its files of {table} have {rows:,}"
            troubles.append(Trouble("counts differ", text, MANIFEST))
        first = 0
        for file in files:
            if file.first != first:
                text = f"a file of {table} before {file.path} is not listed"
                troubles.append(Trouble("counts differ", text, file.path, position=first))
            first = file.first + file.rows
    return troubles


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
    try:
        with open_table(there, file.table) as parquet:
            rows = parquet.metadata.num_rows
    except DAMAGE as error:
        return [Trouble("file unreadable", f"{what} cannot be read: {error}", file.path, block, position)]
    if rows != file.rows:
        return [Trouble("counts differ", f"{what} has {rows:,} rows", file.path, block, position)]
    return []


def _has_end(path: Path) -> bool:
    """Whether a Parquet file has its footer mark."""
    with path.open("rb") as file:
        return file.seek(0, os.SEEK_END) >= 8 and file.seek(-4, os.SEEK_END) > 0 and file.read() == b"PAR1"


# Items.


_Hashes = list[tuple[int, bytes]]


def _blocks(path: Path, manifest: Manifest) -> dict[str, _Hashes | None]:
    """Rows and hash of each block of a table; None if they cannot be read: the second pass says why."""
    try:
        return {**Record.at(path, manifest).block_hashes()}
    except (OSError, pa.ArrowException, ValueError, RecordError):
        return {"input": None, "output": None}


def _check_items(
    timed: _Timed, path: Path, manifest: Manifest, table: str, watch: Watch, expected: _Hashes | None
) -> Check:
    """Whether the items are those that were digested; if they or their files are not, what has changed.

    Args:
        expected: the blocks; None if something is known to have changed.
    """
    count = manifest.items_in if table == "input" else manifest.items_out
    what, against = f"{table}: {count:,} items", "the hashes of their blocks, the digest"
    wanted = manifest.input_digest if table == "input" else manifest.digest
    if expected is not None and _digest(path, manifest, table, watch, expected) == wanted:
        return timed(what, against, [], f"as written; digest {wanted}")
    watch.begin("looking for what has changed")
    items = _Items(path, manifest, table, watch)
    items.check()
    return timed(what, against, items.troubles, f"as written, though its file is not; digest {items.digest}")


def _digest(path: Path, manifest: Manifest, table: str, watch: Watch, expected: _Hashes) -> str:
    """The digest of the items of a table; "" if a block is not as expected, or has no items."""
    hashes: list[bytes] = []
    row = 0
    try:
        for found, block in zip_longest(_hashes(path, manifest, table), expected):
            if found is None or found != block:
                return ""
            hashes.append(found[1])
            row += found[0]
            watch.read(table, row)
    except (OSError, pa.ArrowException, ValueError, IndexError):
        return ""  # the second pass says more
    return hash_block(manifest.algorithm, b"".join(hashes)).hex()


def _hashes(path: Path, manifest: Manifest, table: str) -> Iterator[tuple[int, bytes]]:
    """Rows and hash of every block, from the items."""
    metas: list[memoryview] = []
    payloads: list[memoryview] = []
    rows = 0
    for file in manifest.of(table):
        with open_table(path / file.path, table, coded=True) as parquet:
            for batch in parquet.iter_batches(_ROWS_AT_ONCE, columns=[*_names[table], "payload"], use_threads=False):
                of_metas = bins_of(check_values(batch), _names[table])
                of_payloads = of_arrow(batch.column("payload"))
                start = 0
                while start < len(batch):
                    end = min(start + BLOCK_ITEMS - rows, len(batch))
                    metas.append(of_metas.slice(start, end).joined())
                    payloads.append(of_payloads.slice(start, end).joined())
                    rows, start = rows + end - start, end
                    if rows == BLOCK_ITEMS:
                        yield rows, hash_of_parts(manifest.algorithm, rows, metas, payloads)
                        rows, metas, payloads = 0, [], []
    if rows:
        yield rows, hash_of_parts(manifest.algorithm, rows, metas, payloads)


class _Rows:
    """Consecutive rows, as columns; metas as canonical bytes."""

    def __init__(self, table: pa.Table, names: Sequence[str]) -> None:
        self.table = table
        self.metas = bins_of(table, names)
        self.payloads = of_arrow(table.column("payload"))

    def __len__(self) -> int:
        return self.table.num_rows  # type: ignore[no-any-return]

    def numbers(self, name: str) -> Numbers:
        return self.table.column(name).to_numpy()  # type: ignore[no-any-return]


class _Items:
    """One pass over the items of input or output, block by block."""

    def __init__(self, path: Path, manifest: Manifest, table: str, watch: Watch) -> None:
        self._watch = watch
        self._path = path
        self._manifest = manifest
        self._table = table
        self._expected = self._expected_blocks()
        self._unread: list[pa.Table] = []
        self._unread_rows = 0
        self._hashes: list[bytes] = []
        self._files = iter(manifest.of(table))
        self._batches = self._read()
        self.troubles: list[Trouble] = []
        self.digest = ""

    def check(self) -> None:
        row = 0
        for block in self._expected:
            if len(self.troubles) >= _TROUBLES_MAX:
                return
            rows = self._take(block.rows)
            if rows is None:
                self._say("item missing", f"the {self._what} from {row:,} on cannot be read", row)
                return
            found = _hash(self._manifest, rows)
            self._hashes.append(found)
            if found != block.hash or len(rows) != block.rows:
                self._return_rows(rows)
                self._diagnose(block, row)
            row += block.rows
            self._watch.read(self._table, row)
        rest = self._take(1)
        if rest is not None and len(rest):
            self._say("item too many", f"there are more {self._what}s than {row:,}", row)
        self.digest = hash_block(self._manifest.algorithm, b"".join(self._hashes)).hex()
        of_manifest = self._manifest.digest if self._table == "output" else self._manifest.input_digest
        if not self.troubles and self.digest != of_manifest:
            text = f"the digest of the {self._table} is {self.digest}, and the manifest says {of_manifest}"
            self._say("counts differ", text, None)

    def _expected_blocks(self) -> Iterator[Block]:
        try:
            yield from Record.at(self._path, self._manifest).blocks(self._table)
        except RecordError as error:
            self.troubles.append(Trouble("file unreadable", f"the blocks cannot be read: {error}", "blocks"))

    @property
    def _what(self) -> str:
        return "position" if self._table == "output" else "input row"

    def _say(self, kind: str, text: str, row: int | None) -> None:
        block = row // BLOCK_ITEMS if row is not None else None
        if row is not None:
            text += f" (block {block}, {self._file_of(row)})"
        self.troubles.append(Trouble(kind, text, self._file_of(row), block, row))

    def _file_of(self, row: int | None) -> str:
        if row is None:
            return ""
        files = self._manifest.of(self._table)
        return next((file.path for file in files if file.first <= row < file.first + file.rows), "")

    # Reading.

    def _read(self) -> Iterator[pa.Table]:
        for file in self._files:
            try:
                with open_table(self._path / file.path, self._table) as parquet:
                    for batch in parquet.iter_batches(ROW_GROUP_ITEMS, use_threads=False):
                        yield pa.Table.from_batches([check_values(batch)])
            except (OSError, pa.ArrowException, ValueError) as error:
                if not isinstance(error, FileNotFoundError):
                    text = f"{file.path} cannot be read to its end: {error}"
                    self.troubles.append(Trouble("file unreadable", text, file.path, position=file.first))
                return

    def _take(self, count: int) -> _Rows | None:
        """`count` rows, or fewer at the end; None if there are none, or they cannot be read."""
        while self._unread_rows < count:
            batch = next(self._batches, None)
            if batch is None:
                break
            self._unread.append(batch)
            self._unread_rows += batch.num_rows
        if not self._unread_rows:
            return None
        parts: list[pa.Table] = []
        left = count
        while left and self._unread:
            part = self._unread[0].slice(0, left)
            left -= part.num_rows
            if part.num_rows == self._unread[0].num_rows:
                self._unread.pop(0)
            else:
                self._unread[0] = self._unread[0].slice(part.num_rows)
            parts.append(part)
        self._unread_rows -= count - left
        try:
            return _Rows(pa.concat_tables(parts, promote_options="permissive"), _names[self._table])
        except (ValueError, pa.ArrowException):
            return None

    def _return_rows(self, rows: _Rows) -> None:
        self._unread.insert(0, rows.table)
        self._unread_rows += len(rows)

    # Locating a change.

    def _diagnose(self, block: Block, first: int) -> None:
        """Report what differs in a block, and consume its rows, so that the next one begins at the right row."""
        rows = self._take(block.rows + _AHEAD)
        assert rows is not None
        before = len(self.troubles)
        expected = _both(np.frombuffer(block.meta_checks, np.uint8), np.frombuffer(block.payload_checks, "<u2"))
        found = _both(checks(rows.metas).astype(np.uint8), checks(rows.payloads))
        taken = self._align(expected, found, first, compare=True)
        if self._table == "output":  # positions are exact, unless all rows were renumbered
            by_checks, self.troubles[before:] = self.troubles[before:], []
            positions = rows.numbers("position")
            taken_by_position = self._align(np.arange(first, first + block.rows), positions, first)
            if len(self.troubles) == before and taken_by_position == block.rows <= len(found):
                self._compare(expected, found[:taken_by_position], first)
            same_kinds = [each.kind for each in self.troubles[before:]] == [each.kind for each in by_checks]
            if same_kinds and _strays(
                expected, found[:taken_by_position], positions[:taken_by_position] - first
            ) <= len(by_checks):
                taken = taken_by_position
            else:
                self.troubles[before:] = by_checks
        if len(self.troubles) == before:
            last = first + block.rows - 1
            self._say("block changed", f"something in {self._what}s {first:,} to {last:,} has changed", first)
        self._return_rows(_Rows(rows.table.slice(min(taken, len(rows))), _names[self._table]))

    def _compare(self, expected: Numbers, found: Numbers, first: int) -> None:
        """Report which rows differ, if none was added or removed."""
        at = np.flatnonzero(expected != found).tolist()
        if len(at) == 2 and expected[at[0]] == found[at[1]] and expected[at[1]] == found[at[0]]:
            self._swapped(first + at[0], first + at[1])
        elif len(at) > _TROUBLES_MAX:
            text = f"{len(at)} items from {self._what} {first + at[0]:,} to {first + at[-1]:,} have changed"
            self._say("block changed", text, first + at[0])
        else:
            for index in at:
                self._changed(int(expected[index]), int(found[index]), first + index)

    def _changed(self, expected: int, found: int, row: int) -> None:
        parts = [name for name, shift in (("meta", 16), ("payload", 0)) if (expected ^ found) >> shift & 0xFFFF]
        for part in parts:
            self._say(f"{part} changed", f"the {part} at {self._what} {row:,} has changed", row)

    def _swapped(self, one: int, other: int) -> None:
        self._say("items swapped", f"the items at {self._what}s {one:,} and {other:,} were swapped", one)

    def _align(self, expected: Numbers, found: Numbers, first: int, *, compare: bool = False) -> int:
        """Walk along the expected and the found rows, report where they differ, and return the number of rows in the
        block.
        """
        here, there = 0, 0
        differences = 0
        while here < len(expected):
            same = int(_common(expected[here:], found[there:]))
            here, there = here + same, there + same
            if here == len(expected):
                break
            if differences > _TROUBLES_MAX:
                return len(expected)
            differences += 1
            rest = expected[here:], found[there:]
            step = _step(*rest, before=int(found[there - 1]) if there else None)
            row = first + here
            if step == "swapped":
                self._swapped(row, row + 1)
                here, there = here + 2, there + 2
            elif step == "twice":
                self._say("item twice", f"the item at {self._what} {row - 1:,} is there twice", row - 1)
                there += 1
            elif step == "too many":
                self._say("item too many", f"there is an item too many before {self._what} {row:,}", row)
                there += 1
            elif step.startswith("missing"):
                count = int(step.split()[1])
                text = f"the item at {self._what} {row:,} is missing"
                if count > 1:
                    text = f"the items from {self._what} {row:,} to {row + count - 1:,} are missing"
                self._say("item missing", text, row)
                here += count
            elif compare:
                self._changed(int(expected[here]), int(found[there]), row)
                here, there = here + 1, there + 1
            else:
                self._say("column changed", f"the row of position {row:,} says position {int(found[there]):,}", row)
                here, there = here + 1, there + 1
        return there


def _hash(manifest: Manifest, rows: _Rows) -> bytes:
    return hash_of_parts(manifest.algorithm, len(rows), [rows.metas.joined()], [rows.payloads.joined()])


def _strays(expected: Numbers, found: Numbers, rows: Numbers) -> int:
    """How many rows of a block do not have the checks for their positions; most, if rows were renumbered."""
    inside = (rows >= 0) & (rows < len(expected))
    return int(np.count_nonzero(expected[rows[inside]] != found[inside]))


def _both(metas: Any, payloads: Any) -> Numbers:
    """Both checks of each row as one number."""
    return metas.astype(np.int64) << 16 | payloads.astype(np.int64)  # type: ignore[no-any-return]


def _common(expected: Numbers, found: Numbers) -> int:
    """The length of their common prefix."""
    count = min(len(expected), len(found))
    wrong = first_of(expected[:count] != found[:count])
    return count if wrong is None else wrong


def _step(expected: Numbers, found: Numbers, before: int | None) -> str:
    """How two sequences that differ at once continue: the edit that turns one into the other."""
    if not len(found):
        return f"missing {len(expected)}"
    if len(expected) > 1 and len(found) > 1 and expected[0] == found[1] and expected[1] == found[0]:
        return "swapped"
    if len(found) > 1 and found[1] == expected[0] and _common(expected, found[1:]) > min(3, len(expected) - 1):
        return "twice" if before is not None and found[0] == before else "too many"
    for count in range(1, min(len(expected), 4096)):
        if found[0] == expected[count] and _common(expected[count:], found) >= min(4, len(expected) - count):
            return f"missing {count}"
    if len(expected) == 1 and len(found) > 0 and before is not None and found[0] == before:
        return "twice"
    return "changed"
