"""A file of states by key: a key is looked up without reading the rest of the file.

Invariant: a file is never changed once it is written, and has the newest value of each key of the layers that it was
written from; a value may be DELETED.

Why: entries are in the order of a hash of their keys, a few in each chunk, so that a key is looked up in one chunk, and
files of any size are merged as streams.

    chunks | for each step: hashes, where chunks begin in entries, and in bytes | directory | its length

A chunk is a pickle of keys and of values; deleted keys come first, and have no value.
"""

from __future__ import annotations

import pickle
import struct
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import xxhash

from drift.machines.cuts import DELETED, Entries
from drift.machines.keys import form_of_identity
from drift.machines.nodes.snapshots import Layer, merged, timed_keys
from drift.machines.sent import LaterSent
from drift.machines.worker import Snapshot
from drift_graph.canonical import canonical_each

_CHUNK_ENTRIES = 8  # on average
_HASH_BITS = 64
_RANGE_BITS = 6  # a merge makes 2 to the power of this chunks at once
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


def write_by_key(file: BinaryIO, layers: Sequence[Layer], timed: Collection[str] = (), *, deleted: bool = True) -> None:
    """Write the newest value of each key.

    Args:
        file: written from where it is; what is before belongs to the caller.
        layers: consecutive ones, oldest first.
        timed: names of the steps whose states have timers.
        deleted: whether deleted keys are written; nobody needs them if nothing lies below.
    """
    cut = layers[-1].cut
    later = [each for layer in layers for each in layer.later if each.meta >= cut]
    steps = dict.fromkeys(step for layer in layers for step in layer.steps)
    written = {step: _write_step(file, step, layers, step in timed, deleted) for step in steps}
    directory = pickle.dumps(_Directory(cut, later, written), 5)
    file.write(directory)
    file.write(_length.pack(len(directory)))


def _write_step(file: BinaryIO, step: str, layers: Sequence[Layer], timed: bool, deleted: bool) -> _Step:
    """The newest value of each key, in chunks by the hashes of keys."""
    bits = max((sum(layer.count(step) for layer in layers) // _CHUNK_ENTRIES).bit_length() - 1, 0)
    known = [file.bits(step) for layer in layers if isinstance(layer, ByKey) for file in layer.files_of(step)]
    coarse = min([max(bits - _RANGE_BITS, 0), *known])
    shift = _HASH_BITS - bits
    streams = [each for layer in layers for each in _by_range(layer, step, coarse)]
    hashes, begins, offsets, with_timers = array("Q"), array("Q", [0]), array("Q", [file.tell()]), list[Any]()
    for ranges in zip(*streams):
        newest: dict[Any, tuple[int, Any]] = {}
        for rows in ranges:
            newest.update(rows)
        if not deleted:
            newest = {key: row for key, row in newest.items() if row[1] is not DELETED}
        chunks: list[list[tuple[Any, tuple[int, Any]]]] = [[] for _ in range(1 << (bits - coarse))]
        for row in newest.items():
            chunks[(row[1][0] >> shift) & (len(chunks) - 1)].append(row)
        for chunk in chunks:
            if chunk:
                chunk.sort(key=_is_there)  # deleted keys come first
                hashes.extend([its_hash for _, (its_hash, _) in chunk])
                present = [(key, value) for key, (_, value) in chunk if value is not DELETED]
                with_timers += timed_keys(present) if timed else ()
                file.write(pickle.dumps(([key for key, _ in chunk], [value for _, value in present]), 5))
            begins.append(len(hashes))
            offsets.append(file.tell())
    start = file.tell()
    for each in (hashes, begins, offsets):
        file.write(each.tobytes())
    return _Step(bits, len(hashes), start, with_timers)


class ByKey:
    """Consecutive files in which keys can be looked up, as a `Layer`.

    Args:
        files: oldest first.
    """

    def __init__(self, files: Sequence[FileByKey]) -> None:
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

    def files_of(self, step: str) -> list[FileByKey]:
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
        files = self.files_of(step)
        if not files:
            return {}
        left = dict(zip(keys, hashes_of(keys)))
        found: dict[Any, Any] = {}
        for file in reversed(files):
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


class FileByKey:
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
    if isinstance(layer, ByKey):
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
