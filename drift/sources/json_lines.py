"""Lines as JSON values.

Invariant: the values before a bad line are returned before it is refused, or it is diverted in its position.

Why: where the lines of a block cannot be read at once, halves of it are, and at last each line by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from drift.sources.chunks import Block, File
from drift.sources.json_values import NO_JSON, Texts, why_none
from drift.sources.lines import Blocks, ReadLines, lines_of
from drift_graph.diverted import is_diverted
from drift_graph.errors import InputError
from drift_graph.payloads import Rows

_ONE_BY_ONE_MAX = 64


def rows_of_json(file: File, block: Callable[[bytes], Rows | None], decoder: Texts) -> Iterator[ReadLines]:
    """The JSON objects of a file as rows, in batches; dicts where others are diverted among them.

    Args:
        block: makes the rows of a whole block; None if its lines are to be read by `decoder`.
    """
    blocks = Blocks(file)
    while True:
        yield from blocks.at_once(block)
        left = next(blocks, None)
        if left is None:
            return
        yield from values_of(file, decoder, iter([left]))


def values_of(file: File, decoder: Texts, blocks: Iterator[Block] | None = None) -> Iterator[ReadLines]:
    """The JSON values of a file, in batches; `blocks` as of `lines_of`."""
    for lines in lines_of(file, blocks):
        values = decoder.each(lines)
        if values is not None:
            yield ReadLines(values)
            continue
        batch, fault = _values_in_parts(file, decoder, lines)
        yield batch
        if fault is not None:
            raise fault


def _values_in_parts(file: File, decoder: Texts, lines: list[Any]) -> tuple[ReadLines, InputError | None]:
    """The values of lines some of which are blank or bad: up to the first bad one, or with the bad ones diverted."""
    values: list[Any] = []
    ends: list[int] = []
    first = file.lines_read - len(lines) + 1
    parts = [(0, len(lines))]
    fault: InputError | None = None
    while parts and fault is None:
        start, end = parts.pop()
        found = decoder.each(lines[start:end]) if _ONE_BY_ONE_MAX < end - start < len(lines) else None
        if found is not None:
            values.extend(found)
            ends.extend(range(start + 1, end + 1))
        elif end - start > _ONE_BY_ONE_MAX:
            half = (start + end) // 2
            parts += [(half, end), (start, half)]
        else:
            fault = _one_by_one(file, decoder, lines, start, end, first, values, ends)
    if file.diverts_as and any(map(is_diverted, values)):
        return ReadLines(values, ends), fault
    return ReadLines(decoder.gathered(values), ends), fault


def _one_by_one(
    file: File,
    decoder: Texts,
    lines: list[Any],
    start: int,
    end: int,
    first: int,
    values: list[Any],
    ends: list[int],
) -> InputError | None:
    """Add the values of some of the lines, up to the first bad one, whose error is returned.

    Args:
        first: the number of the first of all lines.
    """
    for at in range(start, end):
        line = lines[at]
        try:
            value = line if is_diverted(line) else decoder(line)
        except NO_JSON as error:
            if not line.strip():
                continue
            why = f"cannot be decoded as JSON: {why_none(error, line)}"
            if not file.diverts_as:
                return InputError(
                    f"{file.name}, line {first + at}: {why}; the line is {line!r:.80}; correct it or take it out"
                )
            value = file.divert(first + at, why, line)
        values.append(value)
        ends.append(at + 1)
    return None
