"""A file of tables in which a key is looked up without reading the rest.

Invariant: a file is never changed once it is written, and a key that is not found in it was not written; or the file is
refused as damaged. A value may be DELETED.

Why: entries are in the order of a hash of their keys, a few in each chunk, so that a key is looked up in one chunk, and
files of any size are merged as streams. Each chunk, an empty one too, begins with a hash of its contents, its table and
its number; the directory, and what of a table is read beforehand, have one too, and the directory says where it is. So
nothing that is missing looks as if it had never been.

    chunks | for each table its index | directory | its length | its hash

An index says where chunks begin, and where the last ends; then it has a bit for each key, at some last bits of the
key's hash, so that most keys that a file does not have are not looked for.

A chunk has the number and the hashes of its keys, and then keys and values, encoded; deleted keys come first, and have
no value.
"""

from __future__ import annotations

import os
import pickle
import sys
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from struct import Struct, pack, unpack
from struct import error as struct_error
from typing import Any, BinaryIO, NamedTuple

import msgspec
import xxhash

from drift.machines.checkpoints import DELETED
from drift_graph.errors import StorageError

#: A chunk has about so many keys, or bytes, whichever are fewer.
_KEYS, _BYTES = 8, 1024
_HASH_BITS = 64
_RANGE_BITS = 6  # a merge makes 2 to the power of this chunks at once
_HASH_BYTES = 8
_count = Struct("<I")
_length = Struct("<Q")
_BODY = _HASH_BYTES + _count.size  # of a chunk: where the hashes of its keys begin

#: Keys, with their hashes and values.
Rows = list[tuple[Any, tuple[int, Any]]]


class Damaged(StorageError):
    """A file was changed or cut off since it was written."""


class Form(NamedTuple):
    """How the keys and values of a chunk are encoded."""

    encode: Callable[[tuple[list[Any], list[Any]]], bytes]
    decode: Callable[[Any], tuple[list[Any], list[Any]]]


#: Any objects, for processes of one run.
PICKLED = Form(lambda columns: pickle.dumps(columns, 5), pickle.loads)
#: Bytes.
PLAIN = Form(msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(tuple[list[bytes], list[bytes]]).decode)


class Source(NamedTuple):
    """Entries of one table that are to be written.

    Attributes:
        entries: how many.
        size: in bytes; 0 if that is not known.
        by_range: the rows by so many first bits of their hashes.
    """

    entries: int
    size: int
    by_range: Callable[[int], Iterator[Rows]]


def in_memory(rows: Rows, size: int = 0) -> Source:
    """The rows of a table; of several with one key the last counts."""
    return Source(len(rows), size, lambda bits: iter(_divided(rows, _HASH_BITS - bits, 1 << bits)))


class _Table(NamedTuple):
    """The position of a table in a file.

    Attributes:
        bits: number of first bits of a hash that are the number of its chunk.
        entries: number of keys.
        size: of its chunks, in bytes.
        begins: where its index begins, and its chunks end.
        seen_bytes: size of the bits of keys.
        hashed: of its index.
    """

    bits: int
    entries: int
    size: int
    begins: int
    seen_bytes: int
    hashed: bytes


class _Index(NamedTuple):
    """What is read of a table before its chunks."""

    offsets: Sequence[int]
    seen: Any
    mask: int  # of the bits of a hash that are the place of its bit in `seen`


class _Directory(NamedTuple):
    end: int  # where the directory begins
    tables: dict[str, _Table]
    note: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Directory).decode


class Writer:
    """Writes a file, from where it is; what is before belongs to the caller."""

    def __init__(self, file: BinaryIO, form: Form) -> None:
        self._file = file
        self._form = form
        self._tables: dict[str, _Table] = {}

    def table(
        self,
        name: str,
        sources: Sequence[Source],
        *,
        deleted: bool = True,
        each: Callable[[list[tuple[Any, Any]]], object] | None = None,
    ) -> None:
        """Write the newest value of each key.

        Args:
            sources: oldest first.
            deleted: whether deleted keys are written; nobody needs them if nothing lies below.
            each: called with the keys and values of each chunk.
        """
        entries, size = sum(source.entries for source in sources), sum(source.size for source in sources)
        coarse = max(_bits(entries, size) - _RANGE_BITS, 0)
        ranges = zip(*[source.by_range(coarse) for source in sources])
        first = next(ranges, ())
        share = len({key for rows in first for key, _ in rows}) / max(sum(map(len, first)), 1)
        bits = max(_bits(int(entries * share), int(size * share)), coarse)  # few keys if sources have the same
        begin, seed = self._file.tell(), _seed_of(name)
        offsets, hashes = [begin], array("Q")
        for each_range in chain([first], ranges):
            newest: dict[Any, tuple[int, Any]] = {}
            for rows in each_range:
                newest.update(rows)
            left = newest.items() if deleted else [row for row in newest.items() if row[1][1] is not DELETED]
            for chunk in _divided(left, _HASH_BITS - bits, 1 << (bits - coarse)):
                chunk.sort(key=_is_there)  # deleted keys come first
                present = [(key, value) for key, (_, value) in chunk if value is not DELETED]
                if each is not None:
                    each(present)
                body = _count.pack(len(chunk)) + pack(f"<{len(chunk)}Q", *[row[0] for _, row in chunk])
                if chunk:
                    body += self._form.encode(([key for key, _ in chunk], [value for _, value in present]))
                self._file.write(xxhash.xxh3_64_digest(body, seed + len(offsets) - 1))
                self._file.write(body)
                offsets.append(offsets[-1] + _HASH_BYTES + len(body))
                hashes.extend([row[0] for _, row in chunk])
        seen = _seen(hashes)
        index = pack(f"<{len(offsets)}Q", *offsets) + seen
        self._file.write(index)
        hashed = xxhash.xxh3_64_digest(index)
        self._tables[name] = _Table(bits, len(hashes), offsets[-1] - begin, offsets[-1], len(seen), hashed)

    def end(self, note: bytes = b"") -> bytes:
        """Write what else the file has; returns its hash, which no other file has that differs."""
        directory = _encode(_Directory(self._file.tell(), self._tables, note))
        body = directory + _length.pack(len(directory))
        self._file.write(body + (hashed := xxhash.xxh3_64_digest(body)))
        return hashed


class HashedFile:
    """A file in which keys can be looked up.

    Args:
        read: gives the bytes from one offset to another.
        size: of the file in bytes.

    Attributes:
        tables: the names of its tables.
        note: the bytes that were written at its end.
        hash: what its writer returned.

    Raises:
        Damaged: here, or by the other methods.
    """

    def __init__(self, read: Callable[[int, int], Any], size: int, form: Form, where: str) -> None:
        self._read = read
        self._form = form
        self._where = where
        end = size - _HASH_BYTES - _length.size
        if end < 0:
            raise self._damaged(f"it has {size} bytes")
        try:
            (length,) = _length.unpack(read(end, end + _length.size))
            begin = end - length
            if begin < 0:
                raise self._damaged("its directory is missing")
            body = bytes(read(begin, size))
            self.hash = body[-_HASH_BYTES:]
            if xxhash.xxh3_64_digest(body[:-_HASH_BYTES]) != self.hash:
                raise self._damaged("its directory has another hash")
            directory = _decode(body[:length])
        except (ValueError, OverflowError, msgspec.MsgspecError, struct_error) as error:
            raise self._damaged(f"it has no directory ({error})") from error
        if directory.end != begin:
            raise self._damaged(f"its directory is at {begin} instead of {directory.end}")
        self._tables = directory.tables
        self._seeds = {name: _seed_of(name) for name in self._tables}
        self._indices: dict[str, _Index] = {}
        self.tables = list(self._tables)
        self.note = directory.note

    @classmethod
    def at(cls, path: Path, form: Form) -> HashedFile:
        """The file at a path, which is open as long as the object lives.

        Raises:
            OSError: it cannot be opened or read.
        """
        descriptor = os.open(path, os.O_RDONLY)
        try:
            size = os.fstat(descriptor).st_size
            found = cls(lambda begin, end: os.pread(descriptor, end - begin, begin), size, form, str(path))
        except BaseException:
            os.close(descriptor)
            raise
        weakref.finalize(found, os.close, descriptor)
        return found

    def find(self, name: str, hashes_by_key: Mapping[Any, int]) -> dict[Any, Any]:
        """The values of the keys that a table has, of those in `hashes_by_key`."""
        found: dict[Any, Any] = {}
        if name not in self._tables:
            return found
        shift, seed = _HASH_BITS - self._tables[name].bits, self._seeds[name]
        offsets, seen, mask = self._index(name)
        for key, its_hash in hashes_by_key.items():
            at = its_hash & mask
            if seen[at >> 3] >> (at & 7) & 1:
                number = its_hash >> shift
                chunk = self._read(offsets[number], offsets[number + 1])
                hashes, columns = self._parts(name, number, chunk, seed + number)
                if _length.pack(its_hash) in hashes:
                    keys, values = self._form.decode(columns)
                    if key in keys:
                        at = keys.index(key) - len(keys) + len(values)
                        found[key] = values[at] if at >= 0 else DELETED
        return found

    @staticmethod
    def find_newest(files: Sequence[HashedFile], name: str, hashes_by_key: Mapping[Any, int]) -> dict[Any, Any]:
        """The values of the keys that a table of any file has, of each the newest; the oldest file comes first."""
        found: dict[Any, Any] = {}
        left = dict(hashes_by_key)
        for file in reversed(files):
            some = file.find(name, left)
            found.update(some)
            for key in some:
                del left[key]
        return found

    def rows(self, name: str) -> Iterator[tuple[Any, tuple[int, Any]]]:
        """All rows of a table."""
        if name in self._tables:
            for rows in self._by_range(name, max(self._tables[name].bits - _RANGE_BITS, 0)):
                yield from rows

    def source(self, name: str) -> list[Source]:
        """A table, to be written to another file; none if the file does not have it."""
        if name not in self._tables:
            return []
        table = self._tables[name]
        return [Source(table.entries, table.size, lambda bits: self._by_range(name, bits))]

    def _by_range(self, name: str, bits: int) -> Iterator[Rows]:
        own = self._tables[name].bits
        many = 1 << max(own - bits, 0)
        for first in range(0, 1 << own, many):
            rows: Rows = []
            for hashes, columns in self._chunks(name, first, many):
                if hashes:
                    keys, values = self._form.decode(columns)
                    every = unpack(f"<{len(keys)}Q", hashes)
                    rows += zip(keys, zip(every, [DELETED] * (len(keys) - len(values)) + values))
            if bits <= own:
                yield rows
            else:
                yield from _divided(rows, _HASH_BITS - bits, 1 << (bits - own))

    def _chunks(self, name: str, first: int, many: int) -> list[tuple[bytes, Any]]:
        """The hashes of the keys, and the encoded columns, of consecutive chunks."""
        offsets, seed = self._index(name).offsets, self._seeds[name] + first
        begin = offsets[first]
        data = self._read(begin, offsets[first + many])
        return [
            self._parts(
                name, first + nth, data[offsets[first + nth] - begin : offsets[first + nth + 1] - begin], seed + nth
            )
            for nth in range(many)
        ]

    def _parts(self, name: str, number: int, chunk: Any, seed: int) -> tuple[bytes, Any]:
        """The hashes of the keys of a chunk, and its encoded columns."""
        body = chunk[_HASH_BYTES:]
        if len(body) < _count.size or xxhash.xxh3_64_digest(body, seed) != chunk[:_HASH_BYTES]:
            raise self._damaged(f"chunk {number} of {name!r} has another hash")
        columns = _BODY + _length.size * _count.unpack_from(body)[0]
        return bytes(chunk[_BODY:columns]), chunk[columns:]

    def _index(self, name: str) -> _Index:
        if name not in self._indices:
            table = self._tables[name]
            chunks = (1 << table.bits) + 1
            data = self._read(table.begins, table.begins + _length.size * chunks + table.seen_bytes)
            if xxhash.xxh3_64_digest(data) != table.hashed:
                raise self._damaged(f"the index of {name!r} has another hash")
            listed, seen = data[: _length.size * chunks], data[_length.size * chunks :]
            is_little = sys.byteorder == "little"
            offsets = memoryview(listed).cast("Q") if is_little else unpack(f"<{chunks}Q", listed)
            self._indices[name] = _Index(offsets, seen, 8 * len(seen) - 1)
        return self._indices[name]

    def _damaged(self, fault: str) -> Damaged:
        return Damaged(f"{self._where} was changed or cut off since it was written: {fault}; run again")


def _bits(entries: int, size: int) -> int:
    return max(max(entries // _KEYS, size // _BYTES).bit_length() - 1, 0)


def _seen(hashes: Sequence[int]) -> bytes:
    """Bits of which each hash sets one: 8 to 16 for each hash."""
    seen = bytearray(1 << max(len(hashes) - 1, 0).bit_length())
    mask = 8 * len(seen) - 1
    for its_hash in hashes:
        seen[(its_hash & mask) >> 3] |= 1 << (its_hash & 7)
    return bytes(seen)


def _divided(rows: Iterable[tuple[Any, tuple[int, Any]]], shift: int, many: int) -> list[Rows]:
    """Rows by their hashes without the last `shift` bits, of which the last ones are a number below `many`."""
    if many == 1:
        return [list(rows)]
    divided: list[Rows] = [[] for _ in range(many)]
    for row in rows:
        divided[(row[1][0] >> shift) & (many - 1)].append(row)
    return divided


def _is_there(row: tuple[Any, tuple[int, Any]]) -> bool:
    return row[1][1] is not DELETED


def _seed_of(name: str) -> int:
    return xxhash.xxh3_64_intdigest(name.encode()) >> 1
