"""Snapshots of cuts as files in the private folder of a run; a key is looked up without reading the rest of the file.

Invariant: a file gets its final name when it is complete, and is never changed after that.

Why: the writer of a file gives it a unique name, and announces that name only afterwards. A worker writes its snapshot
unsorted, which is quick. The merger merges snapshots into one whose entries are in the order of a hash of their keys, a
few in each chunk, so that a key is looked up in one chunk, and files of any size are merged as streams.

    chunks | for each step: hashes, where chunks begin in entries, and in bytes | directory | its length

A chunk is a pickle of keys and of values; deleted keys come first, and have no value.
"""

from __future__ import annotations

import mmap
import os
import pickle
import struct
import time
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import xxhash

from drift.machines.cuts import DELETED, Entries
from drift.machines.keys import form_of_identity
from drift.machines.nodes.snapshots import Layer, LoadedLayer, NoRoom, merged, packed, timed_keys, unpacked
from drift.machines.sent import LaterSent
from drift.machines.worker import Snapshot
from drift_graph.canonical import canonical_each

_CHUNK_ENTRIES = 8  # on average
_HASH_BITS = 64
_RANGE_BITS = 6  # a merge makes 2 to the power of this chunks at once
_AS_IT_IS, _BY_KEY = b"\0", b"\1"
_length = struct.Struct(">Q")

#: Keys, their hashes and values.
_Rows = list[tuple[Any, tuple[int, Any]]]


class _Step(NamedTuple):
    """The position of one step's entries in a file.

    Attributes:
        bits: number of first bits of a hash that are the number of its chunk.
        begins: offset of the hashes of all entries; after them come the offsets of the chunks, and of the end of the
            last, first in entries and then in bytes.
        timed: keys whose states have timers.
    """

    bits: int
    entries: int
    begins: int
    timed: list[Any]


class _Directory(NamedTuple):
    cut: bytes
    later: list[LaterSent]
    steps: dict[str, _Step]


class SnapshotFiles:
    """A shelf in a folder.

    Args:
        folder: of the run.
        writer: prefix of the names of files that this process writes.
        timed: names of the steps whose states have timers.
        writing: held while a file is made.

    Attributes:
        folder, timed: the arguments.
    """

    def __init__(
        self,
        folder: str,
        writer: str,
        timed: Collection[str],
        writing: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.folder = Path(folder)
        self._writer = writer
        self.timed = timed
        self._writing = writing
        self._written = 0

    def put(self, snapshot: Snapshot) -> tuple[bytes, int, float]:
        """See `Shelf`."""
        began_s = time.perf_counter()
        data = packed(snapshot)

        def write(file: BinaryIO) -> None:
            file.write(_AS_IT_IS)
            file.write(data)

        try:
            return *self._write(write), time.perf_counter() - began_s
        except NoRoom as no_room:
            no_room.tried_s = time.perf_counter() - began_s
            raise

    def get(self, names: Sequence[bytes]) -> list[Layer]:
        """See `Shelf`; consecutive files of the same kind are one layer."""
        layers: list[Layer] = []
        for as_it_is, group in groupby(map(self._data, names), lambda data: data[:1] == _AS_IT_IS):
            if as_it_is:
                layers.append(LoadedLayer([unpacked(data[1:]) for data in group], self.timed))
            else:
                layers.append(_Files(list(map(_File, group))))
        return layers

    def _data(self, name: bytes) -> memoryview:
        with (self.folder / os.fsdecode(name)).open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def drop(self, name: bytes) -> None:
        """See `Shelf`."""
        (self.folder / os.fsdecode(name)).unlink(missing_ok=True)

    def merge(self, names: Sequence[bytes]) -> tuple[bytes, int]:
        """Merge consecutive snapshots into one, in which keys can be looked up."""
        layers = [layer for name in names for layer in self.get([name])]
        cut = layers[-1].cut
        later = [each for layer in layers for each in layer.later if each.meta >= cut]
        steps = dict.fromkeys(step for layer in layers for step in layer.steps)

        def write(file: BinaryIO) -> None:
            file.write(_BY_KEY)
            written = {step: self._write_step(file, step, layers) for step in steps}
            directory = pickle.dumps(_Directory(cut, later, written), 5)
            file.write(directory)
            file.write(_length.pack(len(directory)))

        return self._write(write)

    def _write_step(self, file: BinaryIO, step: str, layers: Sequence[Layer]) -> _Step:
        """The newest value of each key, in chunks by the hashes of keys."""
        bits = max((sum(layer.count(step) for layer in layers) // _CHUNK_ENTRIES).bit_length() - 1, 0)
        known = [file.bits(step) for layer in layers if isinstance(layer, _Files) for file in layer.files_of(step)]
        coarse = min([max(bits - _RANGE_BITS, 0), *known])
        shift = _HASH_BITS - bits
        streams = [each for layer in layers for each in _by_range(layer, step, coarse)]
        hashes, begins, offsets, timed = array("Q"), array("Q", [0]), array("Q", [file.tell()]), list[Any]()
        for ranges in zip(*streams):
            newest: dict[Any, tuple[int, Any]] = {}
            for rows in ranges:
                newest.update(rows)
            chunks: list[list[tuple[Any, tuple[int, Any]]]] = [[] for _ in range(1 << (bits - coarse))]
            for row in newest.items():
                chunks[(row[1][0] >> shift) & (len(chunks) - 1)].append(row)
            for chunk in chunks:
                if chunk:
                    chunk.sort(key=_is_there)  # deleted keys come first
                    hashes.extend([its_hash for _, (its_hash, _) in chunk])
                    present = [(key, value) for key, (_, value) in chunk if value is not DELETED]
                    timed += timed_keys(present) if step in self.timed else ()
                    file.write(pickle.dumps(([key for key, _ in chunk], [value for _, value in present]), 5))
                begins.append(len(hashes))
                offsets.append(file.tell())
        start = file.tell()
        for each in (hashes, begins, offsets):
            file.write(each.tobytes())
        return _Step(bits, len(hashes), start, timed)

    def _write(self, write: Callable[[BinaryIO], None]) -> tuple[bytes, int]:
        self._written += 1
        path = self.folder / f"{self._writer}.{self._written}.snapshot"
        try:
            with self._writing():
                file = path.open("xb")
            with file:
                write(file)
                return os.fsencode(path.name), file.tell()
        except OSError as error:
            path.unlink(missing_ok=True)
            raise NoRoom(f"{path} cannot be written: {error}") from error


class _Files:
    """Consecutive files in which keys can be looked up."""

    def __init__(self, files: list[_File]) -> None:
        self._files = files

    @property
    def cut(self) -> bytes:
        return self._files[-1].cut

    @property
    def later(self) -> list[LaterSent]:
        return [each for file in self._files for each in file.later]

    @property
    def steps(self) -> Collection[str]:
        return dict.fromkeys(step for file in self._files for step in file.steps)

    def files_of(self, step: str) -> list[_File]:
        """The files that have keys of a step."""
        return [file for file in self._files if step in file.steps]

    def count(self, step: str) -> int:
        """See `Layer`."""
        return sum(file.steps[step].entries for file in self.files_of(step))

    def timed(self, step: str) -> Iterable[Any]:
        """See `Layer`."""
        return dict.fromkeys(key for file in self.files_of(step) for key in file.steps[step].timed)

    def find(self, step: str, keys: Sequence[Any]) -> dict[Any, Any]:
        """See `Layer`."""
        left = dict(zip(keys, hashes_of(keys)))
        found: dict[Any, Any] = {}
        for file in reversed(self.files_of(step)):
            some = file.find(step, left)
            found.update(some)
            for key in some:
                del left[key]
        return found

    def as_snapshot(self) -> Snapshot:
        """See `Layer`."""
        snapshots = [
            Snapshot(
                file.cut,
                {step: Entries.of((key, value) for key, (_, value) in file.rows(step)) for step in file.steps},
                file.later,
            )
            for file in self._files
        ]
        return merged(snapshots)


class _File:
    """A file in which keys can be looked up."""

    def __init__(self, data: memoryview) -> None:
        (length,) = _length.unpack(data[-_length.size :])
        end = len(data) - _length.size
        directory: _Directory = pickle.loads(data[end - length : end])
        self.cut, self.later, self.steps = directory
        self._data = data
        self._columns = {name: _columns(data, step) for name, step in self.steps.items()}

    def find(self, step: str, hashes_by_key: Mapping[Any, int]) -> dict[Any, Any]:
        """The values of the keys that the file has, of those in `hashes_by_key`."""
        shift = _HASH_BITS - self.steps[step].bits
        hashes, begins, offsets = self._columns[step]
        found: dict[Any, Any] = {}
        for key, its_hash in hashes_by_key.items():
            chunk = its_hash >> shift
            if its_hash in hashes[begins[chunk] : begins[chunk + 1]].tolist():
                keys, values = pickle.loads(self._data[offsets[chunk] : offsets[chunk + 1]])
                if key in keys:
                    at = keys.index(key) - len(keys) + len(values)
                    found[key] = values[at] if at >= 0 else DELETED
        return found

    def rows(self, step: str) -> _Rows:
        """All rows of a step."""
        return next(self.by_range(step, 0))

    def bits(self, step: str) -> int:
        """Number of first bits of a hash that are the number of its chunk."""
        return self.steps[step].bits

    def by_range(self, step: str, bits: int) -> Iterator[_Rows]:
        """The rows by the first `bits` bits of their hashes; at most as many bits as chunks have."""
        hashes, begins, offsets = self._columns[step]
        many = 1 << (self.steps[step].bits - bits)
        for first in range(0, len(begins) - 1, many):
            rows: _Rows = []
            for chunk in range(first, first + many):
                if begins[chunk] < begins[chunk + 1]:
                    keys, values = pickle.loads(self._data[offsets[chunk] : offsets[chunk + 1]])
                    values = [DELETED] * (len(keys) - len(values)) + values
                    rows += zip(keys, zip(hashes[begins[chunk] : begins[chunk + 1]], values))
            yield rows


def _columns(data: memoryview, step: _Step) -> tuple[memoryview, memoryview, memoryview]:
    """The hashes, and the beginnings of chunks in entries and in bytes."""
    columns: list[memoryview] = []
    start = step.begins
    for count in (step.entries, (1 << step.bits) + 1, (1 << step.bits) + 1):
        columns.append(data[start : start + 8 * count].cast("Q"))
        start += 8 * count
    return columns[0], columns[1], columns[2]


def _by_range(layer: Layer, step: str, bits: int) -> list[Iterator[_Rows]]:
    """The rows of a layer's step, by the first bits of the hashes of keys; oldest first."""
    if isinstance(layer, _Files):
        return [file.by_range(step, bits) for file in layer.files_of(step)]
    ranges: dict[int, _Rows] = {}
    entries = list(layer.as_snapshot().states.get(step, ()))
    for its_hash, (key, value) in zip(hashes_of([key for key, _ in entries]), entries):
        ranges.setdefault(its_hash >> (_HASH_BITS - bits), []).append((key, (its_hash, value)))
    return [iter([ranges.get(number, []) for number in range(1 << bits)])]


def _is_there(row: tuple[Any, tuple[int, Any]]) -> bool:
    return row[1][1] is not DELETED


def hashes_of(keys: Sequence[Any]) -> list[int]:
    """Hashes of the canonical bytes of keys, from their identities."""
    forms = list(map(form_of_identity, keys)) if bytes in set(map(type, keys)) else canonical_each(keys)
    return list(map(xxhash.xxh3_64_intdigest, forms))
