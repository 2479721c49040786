"""A log of what a source gave that cannot give it again: its payloads, and what clocks decided about them.

Invariant: what the dataflow was given is in the log before it was; and a log that is repeated gives the same payloads,
the same stamps and the same promises in the same order, up to the last entry that is whole.

Why: an entry is handed to the operating system, which has it when this process dies, before anything is made of it;
what the source's machine makes of it depends on both alone. What is torn was followed by nothing.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple
from urllib.parse import quote

import msgpack

from drift.guarantees import why_not_again, why_otherwise
from drift.records.storable import Storable, classes_at
from drift.sources.base import Positioned, Reader, Source
from drift_graph.errors import InputError, PayloadError
from drift_graph.policies import TimePolicy
from drift_graph.restore import restored_all

_SEGMENT_BYTES = 16 << 20
_HEAD = Struct("<II")  # length and CRC of what follows
_FORM = 1
_ITEMS, _PROMISE, _END = range(3)
_SUFFIX = ".log"


def why_logged(source: Source, policy: TimePolicy, reader: Reader) -> str:
    """Why a run can go on only with a log of what a source gave; "" where reading it again has the same effect."""
    if isinstance(reader, Positioned) and reader.position() is not None:
        return why_otherwise(source, policy)
    return why_not_again(source, policy) or "it has no position to be read from"


class Entry(NamedTuple):
    """Attributes:
    number: from 0.
    payloads: that came; None where the source ended, empty for a promise.
    at_ms: what they were stamped with, if they were.
    promise: that nothing older comes, which an idle policy made; or None.
    reader: where the source went on from behind it, if it told.
    """

    number: int
    payloads: list[Any] | None
    at_ms: int
    promise: int | None
    reader: Any


class ArrivalLog:
    """The log of one source: files in a folder of its own, named by the number of their first entry.

    Args:
        folder: of the logs of a run.
        name: of the source.
        on_disk: wait for the disk with each entry, so that it is there after a machine lost power, too.

    Attributes:
        next_number: of the entry that is written next.
    """

    def __init__(self, folder: Path, name: str, *, on_disk: bool = False) -> None:
        self._folder = folder / quote(name, safe="")
        self._name = name
        self._on_disk = on_disk
        self._file: int | None = None
        self._bytes = 0  # in it
        self._storable = Storable()
        self._named: set[str] = set()  # classes that the file tells
        self.next_number = 0
        self._repeated = False

    def items(self, payloads: list[Any], at_ms: int, reader: Any) -> tuple[list[Any], PayloadError | None]:
        """Write that these came; those that could be written, and the error of the first that could not."""
        data, bad = self._storable.stored(payloads, f"source {self._name!r}")
        kept = payloads if bad is None else payloads[: bad[0]]
        if kept:
            new = sorted(set(self._storable.places.values()) - self._named)
            self._append([_FORM, _ITEMS, at_ms, reader, new, data], new)
        return kept, None if bad is None else bad[1]

    def promise(self, time: int) -> None:
        """Write that the idle policy has promised."""
        self._append([_FORM, _PROMISE, time])

    def end(self) -> None:
        """Write that the source has ended."""
        self._append([_FORM, _END])

    def _append(self, entry: list[Any], classes: Sequence[str] = ()) -> None:
        try:
            if self._file is None or self._bytes >= _SEGMENT_BYTES:
                self._begin_file()
                if len(entry) > 4:
                    entry[4] = sorted(self._storable.places.values())
                    classes = entry[4]
            assert self._file is not None
            body: bytes = msgpack.packb(entry)
            rest = memoryview(_HEAD.pack(len(body), zlib.crc32(body)) + body)
            self._bytes += len(rest)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            if self._on_disk:
                os.fsync(self._file)
        except OSError as error:
            raise InputError(
                f"source {self._name!r}: what came cannot be written to its log in {self._folder}: {error.strerror}; "
                f"nothing of it was used; clear that up, and go on"
            ) from error
        self._named.update(classes)
        self.next_number += 1

    def _begin_file(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self.close()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(self._folder / f"{self.next_number:015d}{_SUFFIX}", flags, 0o600)
        self._bytes, self._named = os.fstat(self._file).st_size, set()
        if self._bytes or (not self._repeated and len(self._files()) > 1):
            raise InputError(
                f"{self._folder} has a log of source {self._name!r} that another run wrote, and this one does not go "
                f"on from it; give each run a state of its own"
            )
        self._repeated = True

    def repeat(self, first: int) -> Iterator[Entry]:
        """The entries from one on, which may be behind the last; then the log goes on behind them.

        Raises:
            InputError: one of them is not there, or damaged.
        """
        self._repeated = True
        files = self._files()
        starts = [int(path.stem) for path in files]
        begin = max((at for at, start in enumerate(starts) if start <= first), default=0)
        self.next_number = starts[begin] if files else first
        if files and starts[begin] > first:
            raise self._gone(first, f"it begins at {starts[begin]}")
        for at, path in enumerate(files[begin:], begin):
            if starts[at] != self.next_number:
                raise self._gone(self.next_number, f"{path} begins at {starts[at]}")
            for body in self._bodies(path, last=at + 1 == len(files)):
                entry = self._entry(body)
                self.next_number += 1
                if entry.number >= first:
                    yield entry
        if self.next_number < first:
            raise self._gone(first, f"it ends at {self.next_number}")

    def _bodies(self, path: Path, *, last: bool) -> Iterator[bytes]:
        data = path.read_bytes()
        at = 0
        while at < len(data):
            length, check = _HEAD.unpack_from(data, at) if len(data) - at >= _HEAD.size else (len(data), 0)
            body = data[at + _HEAD.size : at + _HEAD.size + length]
            if len(body) < length or zlib.crc32(body) != check:
                if not last or at + _HEAD.size + length < len(data):
                    raise self._gone(self.next_number, f"{path} is damaged at byte {at}")
                os.truncate(path, at)  # it was being written
                return
            yield body
            at += _HEAD.size + length

    def _entry(self, body: bytes) -> Entry:
        form, kind, *rest = msgpack.unpackb(body, strict_map_key=False)
        if form != _FORM:
            raise InputError(
                f"the log of source {self._name!r} in {self._folder} has form {form}, which this version does not "
                f"know; go on with the version that wrote it"
            )
        number = self.next_number
        if kind == _END:
            return Entry(number, None, 0, None, None)
        if kind == _PROMISE:
            return Entry(number, [], 0, rest[0], None)
        at_ms, reader, places, data = rest
        for place, kind_of in zip(places, map(classes_at, ([place] for place in places))):
            self._storable.classes.update(kind_of)
            self._storable.places[place.partition(":")[2]] = place
        return Entry(number, restored_all(data, self._storable.classes), at_ms, None, reader)

    def drop_below(self, number: int) -> None:
        """Entries below this are not asked for any more."""
        files = self._files()
        for path, following in pairwise(files):
            if int(following.stem) <= number:
                path.unlink()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob(f"*{_SUFFIX}")) if self._folder.is_dir() else []

    def _gone(self, number: int, now: str) -> InputError:
        return InputError(
            f"the log of source {self._name!r} in {self._folder} is needed from entry {number} on, and {now}; bring it "
            f"back, or begin anew with another state"
        )
