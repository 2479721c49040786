"""The contents of compressed files: gzip, bzip2, xz, Zstandard, LZ4, and zip.

Invariant: what comes is all that was packed, of each member where several follow each other, and of the files of a zip
archive one after the other in the order of their names; data that end early or are broken, behind a member too, are an
error and never an end. What is known to be no text is refused by name.

Why: a file is known by its first bytes, or by the ending of its name. Python's own readers of bzip2 and xz pass over
what they cannot read behind a member, so members are unpacked here one by one.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import zipfile
import zlib
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

from drift.extras import need
from drift_graph.errors import InputError

#: Raised by what unpacks, for data that are broken; EOFError for data that end early.
BROKEN = (gzip.BadGzipFile, lzma.LZMAError, zipfile.BadZipFile, zlib.error)
_CHUNK_BYTES = 1 << 16
_PIECE_BYTES = 1 << 10


class Packing(NamedTuple):
    """A way to compress files.

    Attributes:
        magic: the first bytes of a file.
        endings: of a file's name.
        unpacked: from a binary file one of its contents, with `read1` and `close`, which leaves that file open.
    """

    name: str
    magic: tuple[bytes, ...]
    endings: tuple[str, ...]
    unpacked: Callable[[Any, str], Any]


def packing_of(path: str, first: bytes) -> Packing | None:
    """How a file is compressed; None if it is not.

    Args:
        first: its first bytes, as far as they are known.

    Raises:
        InputError: it is of a format that is no text.
    """
    for endings, magic, name, advice in _NO_TEXTS:
        if path.endswith(endings) or (magic and first.startswith(magic)):
            raise InputError(f"{path} is {name}, and no text: {advice}")
    return next((each for each in PACKINGS if path.endswith(each.endings) or first.startswith(each.magic)), None)


class Members:
    """The members of a file one after the other. `decompressor`: makes that of a member."""

    def __init__(self, raw: Any, decompressor: Callable[[], Any]) -> None:
        self._raw = raw
        self._make = decompressor
        self._member: Any = None
        self._left = b""  # bytes of the file that no member has taken

    def read1(self, size: int) -> bytes:
        while True:
            if self._member is not None and self._member.eof:
                self._left, self._member = self._member.unused_data.lstrip(b"\0"), None
            if not self._left and (self._member is None or self._member.needs_input):
                self._left = self._raw.read(_CHUNK_BYTES)
                if self._member is None:
                    self._left = self._left.lstrip(b"\0")  # with zeros some fill up what they copy
                    if not self._left:
                        return b""
                elif not self._left:
                    raise EOFError("a member has no end")
            if self._member is None:
                self._member = self._make()
            given, self._left = self._left, b""
            if data := self._member.decompress(given, size):
                return bytes(data)

    def close(self) -> None:
        self._member = None


class _Stream:
    """A stream of Arrow."""

    def __init__(self, raw: Any, codec: str) -> None:
        need("tables", f"a file that is compressed by {codec}")
        import pyarrow as pa

        self._stream = pa.CompressedInputStream(pa.PythonFile(_LeftOpen(raw), mode="r"), codec)
        self._error: OSError | None = None

    def read1(self, size: int) -> bytes:
        """It reads little at once: what Arrow has unpacked in front of a fault, in the same call, is gone."""
        pieces: list[bytes] = []
        try:
            if self._error is not None:
                raise self._error
            while size > 0 and (piece := self._stream.read(_PIECE_BYTES)):
                pieces.append(piece)
                size -= len(piece)
            return b"".join(pieces)
        except OSError as error:
            self._error = error
            if pieces:
                return b"".join(pieces)
            if "Truncated" in str(error):
                raise EOFError(str(error)) from None
            raise gzip.BadGzipFile(str(error)) from None

    def close(self) -> None:
        self._stream.close()


class _LeftOpen:
    """A file that is read, and closed by somebody else."""

    closed = False

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def read(self, size: int = -1) -> bytes:
        return self._raw.read(size)  # type: ignore[no-any-return]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None: ...

    def flush(self) -> None: ...


class Archive:
    """The files of a zip archive one after the other, in the order of their names, each with its last newline.

    Attributes:
        files: of the archive; two may have one name.
    """

    def __init__(self, raw: Any) -> None:
        self._archive = zipfile.ZipFile(raw)
        listed = sorted(self._archive.infolist(), key=attrgetter("filename"))
        self.files = [file for file in listed if not file.is_dir() and not file.filename.startswith("__MACOSX/")]
        for file in self.files:
            self._archive.open(file).close()  # raises where it cannot be unpacked
        self._next = iter(self.files)
        self._file: Any = None
        self._last = b"\n"

    def read1(self, size: int) -> bytes:
        while True:
            if self._file is not None and (data := self._file.read1(size)):
                self._last = data[-1:]
                return bytes(data)
            if (file := next(self._next, None)) is None:
                return b""
            self._file = self._archive.open(file)
            if self._last != b"\n":
                self._last = b"\n"
                return b"\n"

    def close(self) -> None:
        self._archive.close()


def _of_zip(raw: Any, path: str) -> Archive:
    if not raw.seekable():
        raise InputError(f"{path} is a zip file, which is read from its end: give a file in place of a pipe")
    try:
        archive = Archive(raw)
        if not archive.files:
            raise InputError(f"{path} is a zip file with no files in it; get the file again")
        return archive
    except zipfile.BadZipFile as error:
        raise InputError(f"{path}: the zip data are broken ({error}); get the file again") from None
    except (RuntimeError, NotImplementedError) as error:  # a password, or a way to compress that Python has not
        raise InputError(f"{path} cannot be unpacked: {error}") from None


_UNPACK = "unpack it into a folder, and give that"

PACKINGS = (
    Packing("gzip", (b"\x1f\x8b",), (".gz",), lambda raw, path: gzip.GzipFile(fileobj=raw)),
    Packing(
        "bzip2",
        tuple(b"BZh%d1AY&SY" % level for level in range(1, 10)),
        (".bz2",),
        lambda raw, path: Members(raw, bz2.BZ2Decompressor),
    ),
    Packing("xz", (b"\xfd7zXZ\0",), (".xz",), lambda raw, path: Members(raw, lzma.LZMADecompressor)),
    Packing("Zstandard", (b"\x28\xb5\x2f\xfd",), (".zst", ".zstd"), lambda raw, path: _Stream(raw, "zstd")),
    Packing("LZ4", (b"\x04\x22\x4d\x18",), (".lz4",), lambda raw, path: _Stream(raw, "lz4")),
    Packing("zip", (b"PK\3\4", b"PK\5\6"), (".zip",), _of_zip),
)

#: Endings and first bytes of files that are no text.
_NO_TEXTS: tuple[tuple[tuple[str, ...], bytes, str, str], ...] = (
    (
        (".tar", ".tgz", *(f".tar{ending}" for each in PACKINGS for ending in each.endings)),
        b"",
        "a tar archive",
        _UNPACK,
    ),
    ((".snappy", ".sz"), b"\xff\6\0\0sNaPpY", "compressed by Snappy", "unpack it, or compress it by Zstandard or gzip"),
    ((".br",), b"", "compressed by Brotli", "unpack it, or compress it by Zstandard or gzip"),
    ((".7z",), b"7z\xbc\xaf\x27\x1c", "an archive of 7-Zip", _UNPACK),
    ((".rar",), b"Rar!\x1a\7", "an archive of RAR", _UNPACK),
    ((".parquet",), b"PAR1\x15", "a file of Parquet", "read it with drift.sources.parquet"),
    ((), b"ARROW1\0\0", "a file of Arrow", "read it with pyarrow, and give the table"),
    ((), b"Obj\1", "a file of Avro", "convert it, for instance to Parquet"),
    ((), b"SQLite format 3\0", "a database of SQLite", "read it with drift.sources.sqlite"),
)
