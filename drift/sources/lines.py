"""Chunks of bytes as complete lines, decoded.

Invariant: the lines do not depend on how the file was cut into chunks, and lines before a fault come before it.

Why: chunks are cut into complete lines before any other step; a `LineStart` has the bytes that a decoder holds back.
"""

from __future__ import annotations

import codecs
import io
import zlib
from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

from drift.sources.chunks import CHECK_BYTES, File
from drift_graph.errors import InputError, SettingsError

Chars = TypeVar("Chars", str, bytes)
Decoded = TypeVar("Decoded", str, bytes, covariant=True)


def lines_of(file: File, decode: _Decoder[Chars], newline: Chars) -> Iterator[list[Chars]]:
    """The lines of a file without their newlines, in batches, from `file.line_start` on, which is updated."""
    nothing = newline[:0]
    unended: list[Chars] = []  # the parts of an incomplete line
    begins = file.line_start
    offset, skip, lines_before = begins.offset, begins.skip, begins.lines
    decode.start_at(begins.state)
    while True:
        chunk = begins._replace(offset=offset, check=zlib.crc32(file.before), state=decode.state())
        data, fault = file.chunk()
        offset += len(data)
        file.before = data[-CHECK_BYTES:] if len(data) >= CHECK_BYTES else (file.before + data)[-CHECK_BYTES:]
        try:
            decoded = decode(data, not data and not fault)
        except UnicodeDecodeError as error:
            bad = error.object[error.start : error.end]
            fault = f"{bad!r:.40} is not {error.encoding} ({error.reason}); pass the encoding that the file has"
            sound = error.start - (len(error.object) - len(data))  # the decoder may hold bytes of the chunk before
            decoded = decode(data[: max(sound, 0)], False)
        lines = decoded.split(newline)
        ended = len(lines) - 1
        if skip:  # lines that were returned before
            skip, lines = skip - min(skip, ended), lines[skip:] or [nothing]
        unended.append(lines[0])
        if ended:
            begins = chunk._replace(skip=ended)
        if len(lines) > 1:
            lines[0] = nothing.join(unended)
            unended = [lines.pop()]
        else:
            lines = []
        if not data and not fault and (last := nothing.join(unended)):
            lines.append(last)
            begins = chunk._replace(state=None, skip=0)
        if lines:
            lines_before += len(lines)
            counted, header = file.line_start.counted, file.line_start.header
            file.line_start = begins._replace(lines=lines_before, counted=counted, header=header)
            yield lines
        if fault:
            raise InputError(f"{file.name}, line {lines_before + 1}: {fault}")
        if not data:
            return


def lines_or_errors(file: File, encoding: str, *, translate: bool) -> Iterator[list[Any]]:
    """The lines of a file, with those that cannot be decoded diverted; for encodings that extend ASCII.

    Args:
        translate: whether "\r" ends a line as well.
    """
    if "\r\n".encode(encoding.removesuffix("-sig")) != b"\r\n":
        raise SettingsError(
            f"source {file.diverts_as!r} is to divert lines that are not {encoding}, but in that encoding a line's end "
            f"cannot be seen before it is decoded; leave on_error='error'"
        )
    lines_before = file.line_start.counted
    for chunk in lines_of(file, BytesDecoder(), b"\n"):
        if not lines_before and encoding.endswith("-sig"):
            chunk[0] = chunk[0].removeprefix(codecs.BOM_UTF8)
        data = b"\n".join(line.removesuffix(b"\r") for line in chunk) if translate else b"\n".join(chunk)
        data = data.replace(b"\r", b"\n") if translate else data
        lines: list[Any]
        try:
            lines = data.decode(encoding.removesuffix("-sig")).split("\n")
        except UnicodeDecodeError:
            lines = [_decoded(file, lines_before + at, line, encoding) for at, line in enumerate(data.split(b"\n"), 1)]
        lines_before += len(lines)
        file.line_start = file.line_start._replace(counted=lines_before)
        yield lines


def _decoded(file: File, number: int, line: bytes, encoding: str) -> Any:
    try:
        return line.decode(encoding.removesuffix("-sig"))
    except UnicodeDecodeError as error:
        bad = error.object[error.start : error.end]
        return file.divert(number, f"{bad!r:.40} is not {error.encoding} ({error.reason})", line)


class _Decoder(Protocol[Decoded]):
    """Decodes bytes chunk by chunk; its state depends on the earlier ones."""

    def __call__(self, data: bytes, final: bool) -> Decoded:
        """The decoded text of the data and of bytes that were held back; `final` for the last data."""

    def state(self) -> list[Any]: ...

    def start_at(self, state: list[Any] | None) -> None: ...


class BytesDecoder:
    """Bytes are not decoded."""

    def __call__(self, data: bytes, final: bool) -> bytes:
        return data

    def state(self) -> list[Any]:
        return []

    def start_at(self, state: list[Any] | None) -> None:
        pass


class TextDecoder:
    """A codec of Python; newlines become "\n" if they are translated."""

    def __init__(self, encoding: str, *, translate: bool) -> None:
        # typeshed's signature wants a str, which is only one of the two types this class handles.
        self._newlines: Any = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)(), translate)

    def __call__(self, data: bytes, final: bool) -> str:
        text: str = self._newlines.decode(data, final=final)
        return text

    def state(self) -> list[Any]:
        held, number = self._newlines.getstate()
        return [held.hex(), number]

    def start_at(self, state: list[Any] | None) -> None:
        if state is not None:
            self._newlines.setstate((bytes.fromhex(state[0]), state[1]))
