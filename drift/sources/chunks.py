"""The bytes of a file in chunks, unzipped if they are gzip, and starts of lines in it.

Invariant: a fault in the bytes (truncated gzip, a failing disk) is reported after the bytes before it. The start of a
line is refused if the file has other bytes before it, or is shorter.
"""

from __future__ import annotations

import gzip
import os
import select
import stat
import sys
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from drift.sources.base import NothingYet
from drift.sources.positions import position_lost
from drift_graph.diverted import diverted
from drift_graph.errors import InputError

_CHUNK_BYTES = 1 << 18
CHECK_BYTES = 64  # bytes before the start of a line that identify the file
_GZIP_MAGIC = b"\x1f\x8b"


class File:
    """The bytes of a file in chunks, unzipped if they are gzip."""

    def __init__(self, path: str) -> None:
        self.name = "standard input" if path == "-" else path
        self._own = path != "-"
        try:
            opened = Path(path).open("rb") if self._own else sys.stdin.buffer  # noqa: SIM115
        except OSError as error:
            raise InputError(f"{path} cannot be opened: {error.strerror}; {_advice(error)}") from None
        except AttributeError:
            raise InputError("standard input is closed, or replaced by something without bytes") from None
        self._raw: Any = opened
        self._bytes: Any = opened
        self.is_gzip = False
        self._begun = False
        # behind the lines returned so far; set by the code that returns them
        self.line_start = LineStart(0, 0, None, 0, 0, 0, None)
        self.before = b""  # the last bytes before it
        self.diverts_as = ""  # the source's name, if lines that cannot be read are diverted
        self.grows = False
        self.ended_at = 0
        self._size, self.pipe = _size_or_pipe(opened)
        try:
            if path.endswith(".gz") or (hasattr(opened, "peek") and opened.peek(2)[:2] == _GZIP_MAGIC):
                self._bytes = gzip.GzipFile(fileobj=opened)
                self.is_gzip = True
        except OSError as error:
            self.close()
            raise InputError(f"{path} cannot be read: {error.strerror}; {_advice(error)}") from None

    def is_ready(self) -> bool:
        """Whether the next chunk is available, or the end; for a pipe it may have to be waited for."""
        if self.pipe is None or not self._begun:  # the check for gzip has waited for the first bytes already
            return True
        return bool(select.select([self.pipe], [], [], 0)[0])

    def fraction(self) -> float | None:
        return self._raw.tell() / self._size if self._size else None

    def chunk(self) -> tuple[bytes, str]:
        """The next bytes, none at the end; and the fault behind them, or ""."""
        self._begun = True
        try:
            data: bytes = self._bytes.read1(_CHUNK_BYTES)
        except EOFError:
            return b"", "the gzip data end early, the file was cut off; get the whole file"
        except (gzip.BadGzipFile, zlib.error) as error:
            return b"", f"the gzip data are broken ({error}); get the file again, or unpack what is sound of it"
        except (OSError, ValueError) as error:
            return b"", f"reading failed ({error}); look at the disk or the connection"
        if not data and self.grows:
            raise NothingYet(f"{self.name} has no more yet")
        if not data and self.pipe is None:
            self.ended_at = self._raw.tell()
        return data, ""

    def start_at(self, line_start: LineStart) -> None:
        """Called before the first chunk: start there.

        Raises:
            InputError: the file is shorter, or has other bytes before it.
        """
        self.line_start, offset = line_start, line_start.offset
        if self.pipe is not None:
            raise InputError(f"{self.name} is a pipe, which nobody can read again from byte {offset}")
        start = max(offset - CHECK_BYTES, 0)
        try:
            self._bytes.seek(start)
            self.before = self._bytes.read(offset - start)
        except (EOFError, zlib.error, OSError) as error:
            raise InputError(f"{self.name} cannot be read up to byte {offset:,}: {error}; get the file again") from None
        if len(self.before) < offset - start:
            raise position_lost(self.name, f"byte {offset:,}", "it is shorter")
        if zlib.crc32(self.before) != line_start.check:
            raise position_lost(self.name, f"byte {offset:,}", "it has something else before that: it is another file")

    def divert(self, line: int, error: str, payload: Any) -> Any:
        """The diverted item for a line. It does not contain the file's name, which may differ on another day."""
        return diverted(f"{self.diverts_as}, line {line}", error, payload)

    def close(self) -> None:
        if self._bytes is not self._raw:
            self._bytes.close()
        if self._own:
            self._raw.close()


class LineStart(NamedTuple):
    """The start of a line in a file.

    Attributes:
        offset: of a chunk, in unzipped bytes.
        check: CRC of up to `CHECK_BYTES` bytes before it.
        state: of the decoder before the chunk: bytes in hexadecimal and a number; None for a new one.
        skip: lines that end between the offset and this line.
        lines: that end before this one.
        counted: lines before this one, if lines that cannot be decoded are diverted.
        header: of a CSV file, once known.
    """

    offset: int
    check: int
    state: list[Any] | None
    skip: int
    lines: int
    counted: int
    header: list[str] | None


def is_pipe(path: str) -> bool:
    try:
        return stat.S_ISFIFO(Path(path).stat().st_mode)
    except (OSError, ValueError):
        return False


def _size_or_pipe(opened: Any) -> tuple[int, int | None]:
    """The size of a regular file, or the descriptor of a pipe or device."""
    try:
        status = os.fstat(opened.fileno())
    except (OSError, AttributeError):
        return 0, None
    return (status.st_size, None) if stat.S_ISREG(status.st_mode) else (0, opened.fileno())


def _advice(error: OSError) -> str:
    if isinstance(error, IsADirectoryError):
        return "give one of the files in it"
    if isinstance(error, PermissionError):
        return "let this user read it"
    return "check the path"
