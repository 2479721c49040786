"""Lines as JSON values.

Invariant: the values before a bad line are returned before it is refused, or it is diverted in its position.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from drift.sources.chunks import File
from drift.sources.halved import made_of
from drift.sources.json_values import NO_JSON, Texts, why_none
from drift.sources.lines import ReadLines, lines_of
from drift_graph.diverted import is_diverted
from drift_graph.errors import InputError

_ONE_BY_ONE_MAX = 64


def values_of(file: File, decoder: Texts) -> Iterator[ReadLines]:
    """The JSON values of a file, in batches. Lines that are blank have none."""
    for lines in lines_of(file):
        if (values := decoder.each(lines)) is not None:
            yield ReadLines(values)
            continue
        batch, fault = _in_parts(file, decoder, lines)
        yield batch
        if fault is not None:
            raise fault


def _in_parts(file: File, decoder: Texts, lines: list[Any]) -> tuple[ReadLines, InputError | None]:
    """The values of lines some of which are blank or bad: up to the first bad one, or with the bad ones diverted."""
    before = file.lines_read - len(lines)
    ends = [end for end, line in enumerate(lines, 1) if is_diverted(line) or line.strip()]

    def divert(at: int, error: InputError) -> Any:
        return file.divert(before + ends[at], str(error), lines[ends[at] - 1])

    values, fault = made_of(
        partial(_values, decoder), [lines[end - 1] for end in ends], divert if file.diverts_as else None
    )
    if fault is None:
        return ReadLines(values, ends), None
    end = ends[fault.at]
    shown = f"{lines[end - 1]!r:.80}"
    return ReadLines(values, ends), InputError(
        f"{file.name}, line {before + end}: {fault.error}; the line is {shown}; correct it or take it out"
    )


def _values(decoder: Texts, lines: list[Any]) -> Any:
    """Raises InputError: a line has no value, or one of many may have none."""
    if len(lines) > _ONE_BY_ONE_MAX:
        if (values := decoder.each(lines)) is None:
            raise InputError("some line has no value, or is to be read by itself")
        return values
    values, line = [], None
    try:
        for line in lines:
            values.append(line if is_diverted(line) else decoder(line))
    except NO_JSON as error:
        raise InputError(f"cannot be decoded as JSON: {why_none(error, line)}") from None
    return values if any(map(is_diverted, values)) else decoder.gathered(values)
