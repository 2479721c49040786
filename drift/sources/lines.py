"""The lines of a file, decoded.

Invariant: the lines do not depend on how the file was cut into chunks, and lines before a fault come before it. A line
that is too long or cannot be decoded is refused, or is diverted in its place.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from drift.sources.chunks import Block, File, undecodable
from drift_graph.errors import InputError
from drift_graph.payloads import Rows


class ReadLines(NamedTuple):
    """Payloads that were read from lines.

    Attributes:
        ends: for each payload, how many of the lines were read when it was complete, from which reading can begin again
            behind it; -1 if it can only begin before it; None if each line is a payload.
    """

    payloads: Any
    ends: list[int] | None = None


#: From the lines of a block to a payload for each; None if they are to be read one by one. It may raise InputError.
AtOnce = Callable[[bytes], Sequence[Any] | Rows | ReadLines | None]


class Blocks:
    """The blocks of a file, for two readers in turn: of all lines at once, and line by line."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._blocks = file.blocks()
        self._next: Block | None = None  # that the first has left to the second

    def __iter__(self) -> Iterator[Block]:
        return self

    def __next__(self) -> Block:
        block, self._next = self._next, None
        return next(self._blocks) if block is None else block

    def at_once(self, make: AtOnce) -> Iterator[ReadLines]:
        """The payloads of the next blocks, up to the first that is left to the other reader."""
        for block in self:
            try:
                made = None if block.too_long or block.within else make(block.data)
            except InputError:  # the other reader raises it, with the line
                made = None
            if made is None:
                self._next = block
                return
            batch = made if isinstance(made, ReadLines) else ReadLines(made)
            block.lines = len(batch.payloads) if batch.ends is None else batch.ends[-1]
            self._file.lines_read += block.lines
            yield batch


def lines_of(file: File, blocks: Iterator[Block] | None = None) -> Iterator[list[Any]]:
    """The lines without their newlines, in batches: as text, or as bytes if there is no encoding.

    Args:
        blocks: those of the file that are read here; None for all.
    """
    marked = file.lines.encoding is None or codecs.lookup(file.lines.encoding).name == "utf-8-sig"
    for block in file.blocks() if blocks is None else blocks:
        lines: list[Any]
        fault = ""
        if block.too_long:
            lines = [file.beginning(block)]
        else:
            data = block.data
            if marked and not block.known.offset:
                data = data.removeprefix(codecs.BOM_UTF8)
            if file.lines.universal and b"\r" in data:
                data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            lines, fault = _decoded(file, data)
        block.lines = len(lines) + bool(fault)
        file.lines_read += len(lines)
        yield lines
        if fault:
            raise InputError(f"{file.name}, line {file.lines_read + 1}: {fault}")


def _decoded(file: File, data: bytes) -> tuple[list[Any], str]:
    """The lines of a block, up to the first that cannot be decoded, and its fault; or with such lines diverted."""
    lines: list[Any]
    if file.lines.encoding is None:
        lines = data.split(b"\n")
    else:
        decode = file.decode
        try:
            lines = decode(data).split("\n")
        except UnicodeDecodeError:
            lines = []
            for line in data.removesuffix(b"\n").split(b"\n"):
                try:
                    lines.append(decode(line))
                except UnicodeDecodeError as error:
                    if not file.diverts_as:
                        return lines, undecodable(error)
                    bad = error.object[error.start : error.end]
                    reason = f"{bad!r:.40} is not {error.encoding} ({error.reason})"
                    lines.append(file.divert(file.lines_read + len(lines) + 1, reason, line))
            return lines, ""
    if not lines[-1]:
        lines.pop()
    return lines, ""
