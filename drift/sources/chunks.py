"""The bytes of a file, unpacked and in an encoding that extends ASCII, in blocks of complete lines.

Invariant: the blocks are the file, without gaps, however it was cut into chunks; what was not returned yet begins at
`start`, whose hash covers all that is before it. A fault in the bytes (truncated gzip, undecodable bytes, a line that
is too long) is reported after the lines before it. At most `line_max` bytes and a chunk are in memory, besides the
lines that are being returned.

Why: only what was returned is taken off the blocks, and a block has the hash of what is before it. What is behind a
place where more may come is put back, and read again from memory.
"""

from __future__ import annotations

import codecs
import errno
import os
import re
import select
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from drift.places import Local, Storage
from drift.sources.base import NothingYet
from drift.sources.compressed import BROKEN, Archive, Members, packing_of
from drift.sources.known import TAIL_BYTES, Known
from drift.sources.positions import position_lost
from drift.urls import without_secrets
from drift_graph.diverted import diverted
from drift_graph.errors import DriftError, InputError, SettingsError
from drift_graph.numbers import check_int

_CHUNK_BYTES = 1 << 18
LINE_MAX = 1 << 24  # bytes
_SHOWN_BYTES = 1000  # of a line that is too long
_MAGIC_BYTES = 16
#: Encodings in which a byte is a newline wherever it is, and no line depends on those before it.
_CUT_FIRST = ("utf-8", "ascii", "iso8859", "cp125", "koi8")
_NEWLINE, _ANY_NEWLINE = re.compile(rb"\n"), re.compile(rb"\r\n|\r|\n")


class Start(NamedTuple):
    """A place in a file, at the start of a line.

    Attributes:
        offset: in bytes of the unzipped file; of UTF-8, if the file has another encoding.
        hash: of what is before it, as of `Known`; of an object with an ETag, that.
        within: whether it is within a line that is too long, the rest of which is passed over.
    """

    offset: int
    hash: str
    lines: int
    within: bool


class Lines:
    """How lines are cut and decoded.

    Args:
        encoding: None for bytes.
        universal: whether "\\r" ends a line as well.
        line_max: of a line, in bytes without its newline.
        at_once: how many chunks are read at once.
    """

    def __init__(self, encoding: str | None, *, universal: bool, line_max: int, at_once: int = 1) -> None:
        check_int("line_max", line_max)
        try:
            self.name = "" if encoding is None else codecs.lookup(encoding).name.removesuffix("-sig")
            "".encode(encoding or "utf-8")
        except (LookupError, TypeError) as error:
            raise SettingsError(f"encoding={encoding!r}: {error}") from None
        self.encoding = encoding
        self.universal = universal
        self.at_once = at_once
        self.line_max = line_max
        self.newline = _ANY_NEWLINE if universal else _NEWLINE


class Block:
    """Lines that were read, and not all returned.

    Attributes:
        known: what is before them.
        data: their bytes, from `at` on.
        lines: their number, once they are cut; 0 for the rest of a line that is too long.
        lines_before: before them in the file.
        within: whether it stands for the rest of a line that is too long.
        too_long: whether it is one line, which is too long, or the beginning of one.
    """

    __slots__ = ("at", "data", "known", "lines", "lines_before", "too_long", "within")

    def __init__(self, known: Known, data: bytes, lines_before: int, *, within: bool, too_long: bool) -> None:
        self.known, self.data, self.lines_before = known, data, lines_before
        self.within, self.too_long = within, too_long
        self.at = self.lines = 0


class File:
    """A file of lines.

    Args:
        diverts_as: the source's name, if lines that cannot be read are diverted.
        grows: whether more may come behind its end; not if it is compressed.
        may_be_empty: whether it is no error that it has no line, not even a header.

    Attributes:
        lines_read: the number of lines that were cut.
        pauses: whether a later run reads on at its end.
        unreturned: what was read of the blocks and was not returned, apart from blocks that a reader has set aside.
    """

    def __init__(
        self,
        path: str,
        lines: Lines,
        diverts_as: str = "",
        *,
        grows: bool = False,
        may_be_empty: bool = False,
        storage: Storage | None = None,
    ) -> None:
        self.name = "standard input" if path == "-" else without_secrets(path)
        self._path = path
        self._storage = storage or Local()
        self.lines = lines
        self.diverts_as = diverts_as
        self.may_be_empty = may_be_empty
        self.lines_read = 0
        self.header: list[str] | None = None  # of a CSV file, once known
        self.unreturned: list[Block] = []
        self.ended_at = 0
        self._own = path != "-"
        self._begun = False  # whether a pipe has been read
        self._known = Known()  # what is before the next block
        self._within = False  # whether that begins within a line that is too long
        self._parts: list[bytes] = []  # read behind the last block, without a newline
        self._part_bytes = 0
        self._pieces_left = (b"", 0)  # complete lines behind the last block, and where in them those begin
        self._again = (b"", "")  # a chunk that is read again, before any other
        self._again_whole: list[Block] = []  # blocks that come again, before that
        self._begins = False  # whether it is what another reader has left of a pipe
        self._last = b""  # the last bytes read of a file that somebody may write over
        self._decoder = _decoder(lines, diverts_as)
        try:
            opened, self._size, self._etag, self.pipe = self._storage.open(path)
        except OSError as error:
            raise InputError(f"{self.name} cannot be opened: {error.strerror}; {_advice(error)}") from None
        except AttributeError:
            raise InputError("standard input is closed, or replaced by something without bytes") from None
        self._raw: Any = opened
        self._bytes: Any = opened
        self._packed = ""  # how it is compressed
        try:
            if self.pipe is None:  # the first bytes of another may have to be waited for
                self._unpack()
        except OSError as error:
            self.close()
            raise InputError(f"{self.name} cannot be read: {error.strerror}; {_advice(error)}") from None
        except DriftError:
            self.close()
            raise
        self.grows = grows and not self._packed
        self.pauses = False
        is_here = self._own and self.pipe is None and not self._packed and not self._storage.remote
        self._here = self._raw.fileno() if is_here else -1  # the descriptor of a file that somebody may write over
        self._changed_ns = os.fstat(self._here).st_mtime_ns if is_here else 0

    def _unpack(self) -> None:
        """Have the contents unpacked, if they are compressed.

        Raises:
            InputError: they are no text, or there are none.
        """
        first = self._raw.peek(_MAGIC_BYTES)[:_MAGIC_BYTES] if hasattr(self._raw, "peek") else None
        packing = packing_of(self._path, first or b"")
        if packing is None:
            return
        if first == b"" or (first is None and self._size == 0):
            raise InputError(
                f"{self.name} is empty, and a {packing.name} file of no lines has a header at least: it was cut off; "
                f"get the whole file"
            )
        self._bytes = packing.unpacked(self._raw, self.name)
        self._packed = packing.name

    @property
    def files(self) -> int:
        """How many files it has: of a zip archive there may be several."""
        return len(self._bytes.files) if isinstance(self._bytes, Archive) else 1

    def is_ready(self) -> bool:
        """Whether the next chunk is available, or the end; for a pipe it may have to be waited for."""
        pieces, at = self._pieces_left
        if self.pipe is None or self.pauses or self._begins or at < len(pieces) or self._again_whole:
            return True
        return bool(select.select([self.pipe], [], [], 0)[0])

    def fraction(self) -> float | None:
        return self._raw.tell() / self._size if self._size else None

    def backlog(self) -> tuple[int, str] | None:
        """Bytes of the file behind what was read, also where it has grown; unknown for a pipe."""
        if self.pipe is not None or not self._own:
            return None
        size = self._size if self._storage.remote else os.fstat(self._raw.fileno()).st_size
        return max(size - self._raw.tell(), 0), "By"

    def pause_at_end(self) -> bool:
        """Take no line that has not ended: more may be written behind it. Returns whether that can be."""
        self.grows = self.pauses = self._here >= 0
        return self.pauses

    def blocks(self) -> Iterator[Block]:
        """The blocks from the present place on; the caller says how many lines each has before it asks for the next.

        Raises:
            InputError: after the blocks before a fault.
            NothingYet: the file grows or is a pipe, and has no more at the moment; after `put_back` it can be called
                again.
        """
        line_max = self.lines.line_max
        while self._again_whole:
            self.unreturned.append(self._again_whole.pop(0))
            if not self.unreturned[-1].within:
                yield self.unreturned[-1]
        while True:
            data, fault = self._chunk()
            ended = not data and not fault
            if self._within:
                data = self._behind_the_line(b"".join([*self._parts, data]), ended=ended)
            if (cut := self._cut(data)) is not None:
                lines = b"".join([*self._parts, data[:cut]]) if self._parts else data[:cut]
                self._parts, self._part_bytes, data = [data[cut:]], len(data) - cut, b""
                yield from self._pieces(lines)
            if data:
                self._parts.append(data)
                self._part_bytes += len(data)
            if self._part_bytes > line_max + 1:  # where the last byte may be of a newline, `_pieces` decides
                block = self._added(b"".join(self._parts), too_long=True)
                self._parts, self._part_bytes, self._within = [], 0, True
                yield block
            if fault:
                raise InputError(f"{self.name}, line {self.lines_read + 1}: {fault}")
            if ended:
                last, self._parts, self._part_bytes = b"".join(self._parts), [], 0
                if last:
                    yield from self._pieces(last)
                return

    def _behind_the_line(self, data: bytes, *, ended: bool) -> bytes:
        """The data behind the line that is too long; none if it goes on."""
        found = self.lines.newline.search(data)
        end = found.end() if found else len(data)
        half = found is not None and found[0] == b"\r" and end == len(data) and not ended  # of "\r\n", perhaps
        if self.unreturned and self.unreturned[-1].within and not self.unreturned[-1].lines:
            self.unreturned.pop()
        self.unreturned.append(self._block(b"", within=True))
        self._known.update(data[: end - half])
        self._within = half or (found is None and not ended)
        self._parts, self._part_bytes = [b"\r"] * half, int(half)
        return data[end:]

    def _cut(self, data: bytes) -> int | None:
        """The end of the last line that ends in the data; 0 if it is a "\\r" before them; None if no line ends."""
        cut = data.rfind(b"\n") + 1
        if self.lines.universal:  # a last "\r" may be half of "\r\n"
            cut = max(cut, data.rfind(b"\r", 0, -1) + 1)
            if not cut and data and self._parts and self._parts[-1].endswith(b"\r"):
                return 0
        return cut or None

    def _pieces(self, data: bytes) -> Iterator[Block]:
        """Complete lines, with those that are too long apart."""
        at, self._pieces_left = 0, (data, 0)
        while len(data) > self.lines.line_max and at < len(data):
            found = self.lines.newline.search(data, at)
            end, behind = found.span() if found else (len(data), len(data))
            if end - at > self.lines.line_max:
                if at > self._pieces_left[1]:
                    yield self._piece(at)
                yield self._piece(behind, too_long=True)
            at = behind
        if len(data) > self._pieces_left[1]:
            yield self._piece(len(data))

    def _piece(self, end: int, *, too_long: bool = False) -> Block:
        data, at = self._pieces_left
        block = self._added(data[at:end], too_long=too_long)
        self._pieces_left = data, end
        return block

    def _added(self, data: bytes, *, too_long: bool = False) -> Block:
        """The next block. Raises InputError: it is too long, and not diverted."""
        if too_long and not self.diverts_as:
            raise InputError(
                f"{self.name}, line {self.lines_read + 1}: {self._too_long()}, which begins with "
                f"{data[:_SHOWN_BYTES]!r:.80}; if this is a line, raise line_max"
            )
        block = self._block(data, within=False, too_long=too_long)
        self._known.update(data)
        self.unreturned.append(block)
        return block

    def _block(self, data: bytes, *, within: bool, too_long: bool = False) -> Block:
        return Block(self._known.copy(), data, self.lines_read, within=within, too_long=too_long)

    def _too_long(self) -> str:
        return f"the line has more than line_max={self.lines.line_max} bytes"

    def beginning(self, block: Block) -> Any:
        """The diverted item for a line that is too long."""
        shown = block.data[: min(_SHOWN_BYTES, self.lines.line_max)]
        return self.divert(block.lines_before + 1, self._too_long(), shown)

    def _chunk(self) -> tuple[bytes, str]:
        """The next bytes, none at the end; and the fault behind them, or ""."""
        self._begins = False
        if any(self._again):
            again, self._again = self._again, (b"", "")
            return again
        while True:
            data, fault = self._read()
            if self._decoder is None:
                return data, fault
            try:
                data, found = self._decoder.decode(data, not data and not fault), data
            except UnicodeDecodeError as error:
                sound = error.start - (len(error.object) - len(data))  # the decoder may hold bytes of the chunk before
                return _as_utf8(self._decoder.decode(data[: max(sound, 0)], False)), undecodable(error)
            if data or fault or not found:
                return _as_utf8(data), fault

    def _read(self) -> tuple[bytes, str]:
        try:
            if self._last and (fault := self._rewritten()):
                return b"", fault
            if self.pipe is not None and self.pauses:
                raise NothingYet(f"{self.name} is read no further")
            if self.pipe is not None and not self._begun:
                self._unpack()
                self._begun = True
            elif not self.is_ready():  # the rest of a line may be long in coming
                raise NothingYet(f"{self.name} has no more yet")
            data: bytes = self._bytes.read1(_CHUNK_BYTES * self.lines.at_once)
            if not data and self._etag:
                now = self._storage.stat(self._path)
                if now is None or now.etag != self._etag:
                    return b"", "it was replaced or removed while it was read; bring it back as it was"
        except EOFError:
            return b"", f"the {self._packed} data end early, the file was cut off; get the whole file"
        except BROKEN as error:
            return b"", self._broken(error)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno == errno.ESTALE and self._storage.remote:
                return b"", str(error.strerror)
            if type(self._bytes) is Members:  # bzip2 has no class of its own
                return b"", self._broken(error)
            return b"", f"reading failed ({error}); look at the disk or the connection"
        if self._here >= 0:
            self._last = data[-TAIL_BYTES:] if len(data) >= TAIL_BYTES else (self._last + data)[-TAIL_BYTES:]
        if not data and self._here >= 0 and (self.pauses or not self.grows):
            at_end = os.fstat(self._here)
            is_same = (at_end.st_size, at_end.st_mtime_ns) == (self._size, self._changed_ns)
            if not is_same and at_end.st_size <= self._size:  # one that is longer has more behind what was read
                return b"", self._written_over(at_end.st_size)
        if not data and self.grows:
            raise NothingYet(f"{self.name} has no more yet")
        if not data and self.pipe is None:
            self.ended_at = self._raw.tell()
        return data, ""

    def _broken(self, error: Exception) -> str:
        return f"the {self._packed} data are broken ({error}); get the file again, or unpack what is sound of it"

    def _rewritten(self) -> str:
        """The fault if a file of this machine has no longer what was read last."""
        here = self._raw.tell()
        if os.pread(self._here, len(self._last), here - len(self._last)) == self._last:
            return ""
        return self._written_over(os.fstat(self._here).st_size)

    def _written_over(self, size: int) -> str:
        return (
            f"the file was cut or written over while it was read: it has {size:,} bytes, and has something else before "
            f"byte {self._raw.tell():,}, up to which it was read; start a new file, and leave this one as it is"
        )

    def take(self, lines: int) -> None:
        """So many further lines of the blocks were returned."""
        while self.unreturned and lines >= self.unreturned[0].lines:
            lines -= self.unreturned.pop(0).lines
        if lines:
            block, at = self.unreturned[0], self.unreturned[0].at
            if not self.lines.universal or b"\r" not in block.data:
                behind = block.data[at:].split(b"\n", lines).pop()
                at = len(block.data) - len(behind)
            else:
                for _ in range(lines):
                    found = _ANY_NEWLINE.search(block.data, at)
                    at = found.end() if found else len(block.data)
            block.known.update(block.data[block.at : at])
            block.lines, block.lines_before, block.at = block.lines - lines, block.lines_before + lines, at

    def start(self) -> Start:
        """Where that begins which was not returned."""
        for block in (*self.unreturned, *self._again_whole):
            return Start(block.known.offset, self._hash(block.known), block.lines_before, block.within)
        return self.end()

    def _hash(self, known: Known) -> str:
        return f"{self._etag}, {self._size} bytes" if self._etag else known.hexdigest()

    def pass_over(self) -> Start:
        """Read all that is behind the start, whatever its lines are, before the first block; returns its end.

        Raises:
            InputError: it cannot be read.
        """
        while True:
            data, fault = self._chunk()
            self._known.update(data)
            if fault:
                raise InputError(f"{self.name} cannot be read up to its end: {fault}")
            if not data:
                return self.end()

    def end(self) -> Start:
        """Where that ends which was read, lines that no payload is made of among it."""
        return Start(self._known.offset, self._hash(self._known), self.lines_read, self._within)

    def put_back(self) -> None:
        """Make everything that was not returned come again; what is before the rest of a line that is too long, which
        is not in memory, in the same blocks.
        """
        whole = [*self.unreturned, *self._again_whole]
        for block in whole:
            block.data, block.at, block.lines = block.data[block.at :], 0, 0
        cut: list[Block] = []
        while whole and not whole[-1].within:
            cut.insert(0, whole.pop())
        if cut:
            self._known, self.lines_read, self._within = cut[0].known, cut[0].lines_before, False
        while whole and whole[0].within:
            whole.pop(0)
        if whole:
            self.lines_read = whole[0].lines_before
        pieces, at = self._pieces_left
        unread = [*(block.data for block in cut), pieces[at:], *self._parts, self._again[0]]
        self._again, self._again_whole = (b"".join(unread), self._again[1]), whole
        self.unreturned, self._pieces_left, self._parts, self._part_bytes = [], (b"", 0), [], 0

    def halt(self) -> None:
        """Read no more of a pipe."""
        self.pauses = True

    def unread(self) -> dict[str, Any]:
        """What was taken of a pipe and put back, with the number of lines before it."""
        half, state = self._decoder.getstate() if self._decoder is not None else (b"", 0)
        whole = b"".join(b"\n" if block.within else block.data for block in self._again_whole)
        if self._within:  # the line that is too long has not ended
            whole = whole.removesuffix(b"\n")
        return {
            "unread": (whole + self._again[0]).decode("latin-1"),
            "decoder": [half.decode("latin-1"), state],
            "lines": self.lines_read,
            "within": self._within and not whole,
            "packed": self._packed,
        }

    def begin_with(self, unread: str, decoder: tuple[str, int], lines: int, within: bool, packed: str) -> None:
        """Read what another reader has left of a pipe, before what comes.

        Raises:
            InputError: it is compressed, so what comes cannot be unpacked without what was read.
        """
        if packed:
            raise InputError(
                f"{self.name} was read in part, and is compressed ({packed}): nobody can read on within that; begin "
                f"anew with another state, and what unpacks it before the pipe"
            )
        self._again, self.lines_read, self._within, self._begun = (unread.encode("latin-1"), ""), lines, within, True
        self._begins = bool(unread)
        if self._decoder is not None:
            self._decoder.setstate((decoder[0].encode("latin-1"), decoder[1]))

    def start_at(self, start: Start) -> None:
        """Called before the first chunk: start there.

        Raises:
            InputError: the file is shorter, or has other bytes before it.
        """
        end = start.offset
        if self.pipe is not None:
            raise InputError(f"{self.name} is a pipe, which nobody can read again from byte {end}")
        known = self._known
        while known.offset < end:
            unneeded = end - known.offset if self._etag else known.unneeded(end)
            if unneeded and not self._packed and self._decoder is None:
                self._bytes.seek(unneeded, os.SEEK_CUR)
                self._last = b""
                known.skip(unneeded)
                if self._etag:
                    break
            try:
                data, fault = self._chunk()
            except NothingYet:
                data, fault = b"", ""
            room = end - known.offset
            known.update(data[:room])
            self._again = data[room:], fault
            if fault and known.offset < end:
                raise InputError(f"{self.name} cannot be read up to byte {end:,} again: {fault}")
            if not data:
                raise position_lost(self.name, f"byte {end:,}", f"it is shorter, {known.offset:,} bytes")
        if self._hash(known) != start.hash:
            raise position_lost(self.name, f"byte {end:,}", "it has something else before that: it is another file")
        self.lines_read, self._within = start.lines, start.within
        if self._etag:
            return
        if end and not start.within and not known.ends_with(b"\r\n" if self.lines.universal else b"\n"):
            try:
                self._again = self._chunk()
            except NothingYet:
                return
            if self._again[0]:
                raise position_lost(self.name, f"byte {end:,}, the end of its last line", "that line goes on")

    def decode(self, data: bytes) -> str:
        """Lines of a block as text."""
        return data.decode("utf-8", "surrogatepass") if self._decoder is not None else data.decode(self.lines.name)

    def divert(self, line: int, error: str, payload: Any) -> Any:
        """The diverted item for a line. It does not contain the file's name, which may differ on another day."""
        return diverted(f"{self.diverts_as}, line {line}", error, payload)

    def close(self) -> None:
        if self._bytes is not self._raw:
            self._bytes.close()
        if self._own:
            self._raw.close()


def undecodable(error: UnicodeDecodeError) -> str:
    bad = error.object[error.start : error.end]
    return f"{bad!r:.40} is not {error.encoding} ({error.reason}); pass the encoding that the file has"


def is_pipe(path: str) -> bool:
    try:
        return stat.S_ISFIFO(Path(path).stat().st_mode)
    except (OSError, ValueError):
        return False


def _decoder(lines: Lines, diverts_as: str) -> Any:
    """The decoder of an encoding in which lines cannot be cut before they are decoded."""
    if lines.encoding is None or lines.name.startswith(_CUT_FIRST):
        return None
    if not diverts_as:
        return codecs.getincrementaldecoder(lines.encoding)()
    if "\r\n".encode(lines.name) != b"\r\n":
        raise SettingsError(
            f"source {diverts_as!r} is to divert lines that are not {lines.encoding}, but in that encoding a line's "
            f"end cannot be seen before it is decoded; leave on_error='error'"
        )
    return None


def _as_utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _advice(error: OSError) -> str:
    if isinstance(error, IsADirectoryError):
        return "give one of the files in it"
    if isinstance(error, PermissionError):
        return "let this user read it"
    return "check the path"
