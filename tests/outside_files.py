"""Models of files that a run reads, as `outside_sources`: in a folder, and in an object store."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import fsspec
import xxhash
from fsspec.spec import AbstractBufferedFile
from outside import Schedule
from outside_sources import OnePartition, Posted, asked

import drift.places
import drift.sources.chunks
import drift.sources.paths
from drift import sources
from drift.sources.followed import FollowedReader
from drift.sources.paths import ManyReader


class Form(NamedTuple):
    """How messages are written into files.

    Attributes:
        name: of the files.
        source: what reads them, of a pattern.
        line: of a message, without its end.
        ends: of lines.
        header: of a file.
    """

    name: str
    source: Callable[[str], Any]
    line: Callable[[Posted], bytes]
    ends: tuple[bytes, ...] = (b"\n", b"\r\n")
    header: bytes = b""

    def whole(self, messages: Sequence[Posted], choose: Schedule) -> bytes:
        """A file of messages, whose last line may lack its end."""
        lines = [self.line(each) + self.ends[choose(len(self.ends))] for each in messages]
        if choose(3) == 2:
            lines[-1] = self.line(messages[-1])
        data = b"".join([self.header + b"\n" if self.header else b"", *lines])
        return gzip.compress(data, mtime=0) if self.name.endswith("gz") else data


def _object(message: Posted) -> bytes:
    text = b'{"at_partition": 0, "number": %d, "at": %d}' % (message.number, message.at)
    return text if message.is_sound else text[:-1]


def _row(message: Posted) -> bytes:
    """A row of CSV, some on two lines; what cannot be decoded lacks a cell, or is not UTF-8."""
    if not message.is_sound:
        return b"0,%d" % message.number + b",\xff,1" * (message.at % 2)
    notes = (b"", b'"two\nlines, one cell"', b"plain")
    return b"0,%d,%d,%s" % (message.number, message.at, notes[message.at % 3])


_FIELDS = {"at_partition": int, "number": int, "at": int}
_HEADER = b"at_partition,number,at,note"
_FORMS = (
    Form("jsonl", partial(sources.jsonl, follow=True), lambda message: message.content),
    Form("jsonl", partial(sources.jsonl, follow=True, schema=_FIELDS), _object),
    Form(
        "txt",
        partial(sources.text, follow=True),
        lambda message: message.content + b"\xff" * (not message.is_sound),
        (b"\n", b"\r\n", b"\r"),
    ),
    Form("csv", partial(sources.csv, follow=True), _row, header=_HEADER),
    Form("csv", partial(sources.csv, follow=True, schema={**_FIELDS, "note": str}), _row, header=_HEADER),
    Form("jsonl.gz", partial(sources.jsonl, follow=True), lambda message: message.content),
)


class Folder(OnePartition):
    """Files in a folder, of which the last one grows until there is another; those of gzip are there at once. Between
    two runs, and in one, the last may be cut, deleted, or replaced by a copy.
    """

    _half = b""  # of a line, which is not written yet
    _message: Posted  # of that line

    def __init__(self, choose: Schedule, most: int) -> None:
        super().__init__(choose, most)
        self._form = _FORMS[choose(len(_FORMS))]

    def source(self) -> Any:
        return self._form.source(str(self._folder / f"*.{self._form.name}"))

    @contextmanager
    def read_from(self) -> Iterator[None]:
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.object(drift.sources.paths, "FollowedReader", asked(self, FollowedReader)),
            mock.patch.object(FollowedReader, "_wait_for_more", lambda reader: None),
            mock.patch.object(drift.sources.chunks, "_CHUNK_BYTES", 1 << (4 + 2 * self.choose(5))),
        ):
            self._folder, self._files = Path(folder), 0
            yield

    @property
    def is_read(self) -> bool:
        return self.is_quiet and not self._half and not self._may_go_on

    @property
    def _may_go_on(self) -> bool:
        """Whether the last line may go on with a newline, and is not read before."""
        return self._last.exists() and self._last.read_bytes().endswith(b"\r")

    @property
    def _last(self) -> Path:
        return self._folder / f"{self._files:04}.{self._form.name}"

    def _write(self, data: bytes) -> None:
        if not self._last.exists() and self._form.header:
            data = self._form.header + self._end() + data
        with self._last.open("ab") as file:
            file.write(data)

    def _end(self) -> bytes:
        return self._form.ends[self.choose(len(self._form.ends))]

    def happens(self) -> None:
        if self._half:
            self._write(self._half)
            self._half = b""
            self.log.append(self._message)
        elif self.is_quiet and self._may_go_on:
            self._write(b"\n")
        if not self.is_quiet and self.choose(30) == 29:
            self._befall()
        if self.is_quiet:
            return
        if self._form.name.endswith("gz"):
            self._add_file()
            return
        if self._last.exists() and self.choose(6) == 5:
            self._next_file()
        for message in self.new():
            self._write(self._form.line(message) + self._end())
            self.log.append(message)
        if self.begun < self.most and self.choose(4) == 3:
            self._message = self._next()
            data = self._form.line(self._message) + self._end()
            at = 1 + self.choose(len(data) - 1)
            self._write(data[:at])
            self._half = data[at:]

    def _add_file(self) -> None:
        messages = self.new()
        if messages:
            (self._folder / "copy").write_bytes(self._form.whole(messages, self.choose))
            self._files += 1
            (self._folder / "copy").replace(self._last)
            self.log.extend(messages)

    def _next_file(self) -> None:
        """There is another from now on; the last line of this one may lack its end."""
        if self.begun < self.most and self.choose(3) == 2:
            message = self._next()
            self._write(self._form.line(message))
            self.log.append(message)
        self._files += 1
        self._write(b"")

    def maybe_shorter(self) -> None:
        if self.choose(6) == 5:
            self._befall()

    def _befall(self) -> None:
        if not self._last.exists() or self._half:
            return
        self.may_fail = True
        data = self._last.read_bytes()
        kept = data[: self.choose(len(data) + 1)] if self.choose(2) else data
        match self.choose(3):
            case 0:  # replaced, by the same or by what is shorter
                copy = self._folder / "copy"
                copy.write_bytes(kept)
                copy.replace(self._last)
            case 1:
                self._last.write_bytes(kept)
            case _:
                self._last.unlink()
                kept = b""
        self.has_lost |= len(kept) < len(data)


class Objects(OnePartition):
    """Objects in a store, each of which is there as a whole; between two runs, and in one, the last may be deleted, or
    replaced by another. A run follows them, or reads those that are there when it begins.

    Attributes:
        contents: of the objects.
        written_at: when each was written.
        has_etags: whether the store says what is in an object; else that is known by its size.
    """

    def __init__(self, choose: Schedule, most: int) -> None:
        super().__init__(choose, most)
        self._form = _FORMS[choose(len(_FORMS))]
        self._follows = choose(2) == 1
        self.has_etags = choose(2) == 1
        self.contents: dict[str, bytes] = {}
        self.written_at: dict[str, int] = {}
        if not self._follows:
            self._put([self._next() for _ in range(1 + choose(8))])

    def source(self) -> Any:
        return self._form.source(f"memory://bucket/*.{self._form.name}", follow=self._follows)

    @contextmanager
    def read_from(self) -> Iterator[None]:
        bytes_at_once = 1 << (4 + 2 * self.choose(5))
        with (
            mock.patch.object(drift.places.Remote, "files", Bucket(self)),
            mock.patch.object(drift.places, "_REQUEST_BYTES", bytes_at_once),
            mock.patch.object(drift.places, "_BUFFER_BYTES", bytes_at_once),
            mock.patch.object(drift.sources.chunks, "_CHUNK_BYTES", bytes_at_once),
            mock.patch.object(drift.sources.paths, "FollowedReader", asked(self, FollowedReader)),
            mock.patch.object(drift.sources.paths, "ManyReader", asked(self, ManyReader)),
            mock.patch.object(FollowedReader, "_wait_for_more", lambda reader: None),
        ):
            yield

    @property
    def is_read(self) -> bool:
        return self._follows and self.is_quiet

    def is_away(self) -> bool:
        away = self.choose(60) == 59
        self.may_fail |= away
        return away

    def happens(self) -> None:
        if not self.is_quiet and self.choose(30) == 29:
            self._befall()
        messages = [message for _ in range(self.choose(4)) for message in self.new()]
        if messages:
            self._put(messages)

    def _put(self, messages: Sequence[Posted]) -> None:
        self._write(f"{len(self.written_at):04}.{self._form.name}", self._form.whole(messages, self.choose))
        self.log.extend(messages)

    def _write(self, name: str, content: bytes) -> None:
        self.contents[name] = content
        self.written_at[name] = self.now

    def maybe_shorter(self) -> None:
        if self.choose(6) == 5:
            self._befall()

    def _befall(self) -> None:
        name = max(self.contents, default="")
        if not name:
            return
        self.may_fail = True
        content = self.contents[name]
        match self.choose(3):
            case 0:
                self._write(name, content)
            case 1:
                self._write(name, content[: self.choose(len(content))])
            case _:
                del self.contents[name]
        self.has_lost |= self.contents.get(name) != content


class Bucket(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """The store of `Objects`, as a file system of fsspec, which may be away at each call."""

    protocol = "memory"
    cachable = False

    def __init__(self, objects: Objects) -> None:
        super().__init__()
        self.objects = objects

    def content(self, path: str) -> bytes:
        if self.objects.is_away():
            raise OSError("the model is away")
        name = path.rpartition("/")[2]
        if name not in self.objects.contents:
            raise FileNotFoundError(path)
        return self.objects.contents[name]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if path == "bucket":
            return {"name": path, "size": 0, "type": "directory"}
        content = self.content(path)
        known = {"name": path, "size": len(content), "type": "file"}
        if self.objects.has_etags:
            return {**known, "ETag": f'"{xxhash.xxh3_64_hexdigest(content)}"'}
        return {**known, "created": self.objects.written_at[path.rpartition("/")[2]]}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        assert self._strip_protocol(path) == "bucket"
        found = [self.info(f"bucket/{name}") for name in self.objects.contents]
        return found if detail else [each["name"] for each in found]

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **_: Any) -> Any:
        return Ranges(self, path, mode, block_size)


class Ranges(AbstractBufferedFile):  # type: ignore[misc]
    """An object that is read by ranges; a store with ETags refuses them where it has another now."""

    def __init__(self, bucket: Bucket, path: str, mode: str, block_size: int | None) -> None:
        super().__init__(bucket, path, mode, block_size)
        self._content = bucket.content(path)

    def _fetch_range(self, start: int, end: int) -> bytes:
        if self.fs.content(self.path) != self._content and self.fs.objects.has_etags:
            raise OSError("the model has another object now")
        return self._content[start:end]
