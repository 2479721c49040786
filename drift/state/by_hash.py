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


class InMemory(NamedTuple):
    """A table that is of no file; of several rows with one key the last counts. `size`: in bytes, 0 if not known."""

    rows: Rows
    size: int = 0

    @property
    def entries(self) -> int:
        return len(self.rows)

    def by_range(self, bits: int) -> Iterator[Rows]:
        """The rows by so many first bits of their hashes."""
        return iter(_divided(self.rows, _HASH_BITS - bits, 1 << bits))


class _Place(NamedTuple):
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


class _Directory(NamedTuple):
    end: int  # where the directory begins
    tables: dict[str, _Place]
    note: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Directory).decode


def write_tables(
    file: BinaryIO,
    form: Form,
    parts: Sequence[Mapping[str, Any]],
    in_memory: Callable[[Any], InMemory],
    *,
    deleted: bool = True,
    each: Callable[[str, list[tuple[Any, Any]]], object] = lambda name, present: None,
    note: Callable[[], bytes] = bytes,
) -> bytes:
    """Write the newest value of each key of each table, from where the file is; what is before belongs to the caller.

    Args:
        parts: tables by name, the oldest first: those of files, and others.
        in_memory: gives the rows of a table that is of no file.
        deleted: whether deleted keys are written; nobody needs them if nothing lies below.
        each: called with the name of a table, and the keys and values of each of its chunks.
        note: called behind the last table; gives the bytes that are written at the end.

    Returns:
        A hash that no other file has that differs.
    """
    places: dict[str, _Place] = {}
    for name in dict.fromkeys(chain.from_iterable(parts)):
        tables = [part[name] for part in parts if name in part]
        sources = [table if isinstance(table, Table) else in_memory(table) for table in tables]
        places[name] = _write_table(file, form, name, sources, deleted, each)
    directory = _encode(_Directory(file.tell(), places, note()))
    body = directory + _length.pack(len(directory))
    file.write(body + (hashed := xxhash.xxh3_64_digest(body)))
    return hashed


def _write_table(
    file: BinaryIO,
    form: Form,
    name: str,
    sources: Sequence[Table | InMemory],
    deleted: bool,
    each: Callable[[str, list[tuple[Any, Any]]], object],
) -> _Place:
    entries, size = sum(source.entries for source in sources), sum(source.size for source in sources)
    coarse = max(_bits(entries, size) - _RANGE_BITS, 0)
    ranges = zip(*[source.by_range(coarse) for source in sources])
    first = next(ranges, ())
    share = len({key for rows in first for key, _ in rows}) / max(sum(map(len, first)), 1)
    bits = max(_bits(int(entries * share), int(size * share)), coarse)  # few keys if sources have the same
    begin, seed = file.tell(), _seed_of(name)
    offsets, hashes = [begin], array("Q")
    for each_range in chain([first], ranges):
        newest: dict[Any, tuple[int, Any]] = {}
        for rows in each_range:
            newest.update(rows)
        left = newest.items() if deleted else [row for row in newest.items() if row[1][1] is not DELETED]
        for chunk in _divided(left, _HASH_BITS - bits, 1 << (bits - coarse)):
            chunk.sort(key=_is_there)  # deleted keys come first
            present = [(key, value) for key, (_, value) in chunk if value is not DELETED]
            each(name, present)
            body = _count.pack(len(chunk)) + pack(f"<{len(chunk)}Q", *[row[0] for _, row in chunk])
            if chunk:
                body += form.encode(([key for key, _ in chunk], [value for _, value in present]))
            file.write(xxhash.xxh3_64_digest(body, seed + len(offsets) - 1))
            file.write(body)
            offsets.append(offsets[-1] + _HASH_BYTES + len(body))
            hashes.extend([row[0] for _, row in chunk])
    seen = _seen(hashes)
    index = pack(f"<{len(offsets)}Q", *offsets) + seen
    file.write(index)
    return _Place(bits, len(hashes), offsets[-1] - begin, offsets[-1], len(seen), xxhash.xxh3_64_digest(index))


class HashedFile:
    """A file in which keys can be looked up.

    Args:
        read: gives the bytes from one offset to another.
        size: of the file in bytes.

    Attributes:
        tables: by name.
        note: the bytes that were written at its end.
        hash: what its writer returned.

    Raises:
        Damaged: here, or by the other methods.
    """

    def __init__(self, read: Callable[[int, int], Any], size: int, form: Form, where: str) -> None:
        end = max(size - _HASH_BYTES - _length.size, 0)
        try:
            (length,) = _length.unpack(read(end, end + _length.size))
            begin = max(end - length, 0)
            body = bytes(read(begin, size))
            self.hash = body[-_HASH_BYTES:]
            if xxhash.xxh3_64_digest(body[:-_HASH_BYTES]) != self.hash:
                raise _damaged(where, "its directory has another hash")
            directory = _decode(body[:length])
        except (ValueError, OverflowError, msgspec.MsgspecError, struct_error) as error:
            raise _damaged(where, f"it has no directory ({error})") from error
        if directory.end != begin:
            raise _damaged(where, f"its directory is at {begin} instead of {directory.end}")
        self.tables = {name: Table(read, form, where, name, place) for name, place in directory.tables.items()}
        self.note, self.size = directory.note, size

    @classmethod
    def at(cls, path: Path, form: Form) -> HashedFile:
        """The file at a path, which is open as long as one of its tables lives.

        Raises:
            OSError: it cannot be opened or read.
        """
        descriptor = os.open(path, os.O_RDONLY)

        def read(begin: int, end: int) -> bytes:
            return os.pread(descriptor, end - begin, begin)

        try:
            found = cls(read, os.fstat(descriptor).st_size, form, str(path))
        except BaseException:
            os.close(descriptor)
            raise
        weakref.finalize(read, os.close, descriptor)
        return found


class Table:
    """A table of a file, whose index is read with the first key that is looked up.

    Attributes:
        entries: number of keys.
        size: in bytes.
    """

    def __init__(self, read: Callable[[int, int], Any], form: Form, where: str, name: str, place: _Place) -> None:
        self._read, self._form, self._where, self._name, self._place = read, form, where, name, place
        self._seed = _seed_of(name)
        self._index: tuple[Sequence[int], Any] | None = None
        self.entries, self.size = place.entries, place.size

    def find(self, hashes_by_key: Mapping[Any, int]) -> dict[Any, Any]:
        """The values of the keys that it has, of those in `hashes_by_key`."""
        found: dict[Any, Any] = {}
        shift = _HASH_BITS - self._place.bits
        offsets, seen = self._index or self._read_index()
        mask = 8 * len(seen) - 1
        for key, its_hash in hashes_by_key.items():
            at = its_hash & mask
            if seen[at >> 3] >> (at & 7) & 1:
                number = its_hash >> shift
                hashes, columns = self._parts(number, self._read(offsets[number], offsets[number + 1]))
                if _length.pack(its_hash) in hashes:
                    keys, values = self._form.decode(columns)
                    if key in keys:
                        at = keys.index(key) - len(keys) + len(values)
                        found[key] = values[at] if at >= 0 else DELETED
        return found

    def rows(self) -> Iterator[tuple[Any, tuple[int, Any]]]:
        return chain.from_iterable(self.by_range(max(self._place.bits - _RANGE_BITS, 0)))

    def by_range(self, bits: int) -> Iterator[Rows]:
        """The rows by so many first bits of their hashes."""
        own = self._place.bits
        many = 1 << max(own - bits, 0)
        offsets, _ = self._index or self._read_index()
        for first in range(0, 1 << own, many):
            rows: Rows = []
            begin = offsets[first]
            data = self._read(begin, offsets[first + many])
            for number in range(first, first + many):
                hashes, columns = self._parts(number, data[offsets[number] - begin : offsets[number + 1] - begin])
                if hashes:
                    keys, values = self._form.decode(columns)
                    every = unpack(f"<{len(keys)}Q", hashes)
                    rows += zip(keys, zip(every, [DELETED] * (len(keys) - len(values)) + values))
            if bits <= own:
                yield rows
            else:
                yield from _divided(rows, _HASH_BITS - bits, 1 << (bits - own))

    def _parts(self, number: int, chunk: Any) -> tuple[bytes, Any]:
        """The hashes of the keys of a chunk, and its encoded columns."""
        body = chunk[_HASH_BYTES:]
        if len(body) < _count.size or xxhash.xxh3_64_digest(body, self._seed + number) != chunk[:_HASH_BYTES]:
            raise _damaged(self._where, f"chunk {number} of {self._name!r} has another hash")
        columns = _BODY + _length.size * _count.unpack_from(body)[0]
        return bytes(chunk[_BODY:columns]), chunk[columns:]

    def _read_index(self) -> tuple[Sequence[int], Any]:
        """Where chunks begin, and where the last ends; and the bits of keys."""
        place = self._place
        chunks = (1 << place.bits) + 1
        data = self._read(place.begins, place.begins + _length.size * chunks + place.seen_bytes)
        if xxhash.xxh3_64_digest(data) != place.hashed:
            raise _damaged(self._where, f"the index of {self._name!r} has another hash")
        listed, seen = data[: _length.size * chunks], data[_length.size * chunks :]
        is_little = sys.byteorder == "little"
        offsets = memoryview(listed).cast("Q") if is_little else unpack(f"<{chunks}Q", listed)
        self._index = offsets, seen
        return self._index


def find_newest(files: Sequence[HashedFile], name: str, hashes_by_key: Mapping[Any, int]) -> dict[Any, Any]:
    """The values of the keys that a table of any file has, of each the newest; the oldest file comes first."""
    found: dict[Any, Any] = {}
    left = dict(hashes_by_key)
    for file in reversed(files):
        if name in file.tables:
            values = file.tables[name].find(left)
            found.update(values)
            for key in values:
                del left[key]
    return found


def _damaged(where: str, fault: str) -> Damaged:
    return Damaged(f"{where} was changed or cut off since it was written: {fault}; run again")


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
