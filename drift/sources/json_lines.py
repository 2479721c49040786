"""Lines as JSON values.

Invariant: the values before a bad line are returned before it is refused, or it is diverted in its position.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from drift.sources.chunks import Block, File
from drift.sources.lines import Blocks, ReadLines, lines_of
from drift_graph.diverted import is_diverted
from drift_graph.errors import InputError
from drift_graph.payloads import Rows

if TYPE_CHECKING:
    from drift.columns.read import Make


def rows_of_json(file: File, decoder: msgspec.json.Decoder[Any], make: Make) -> Iterator[ReadLines]:
    """The JSON objects of a file as rows, in batches; dicts where others are diverted among them."""

    def made(data: bytes) -> Rows | None:
        try:
            values = decoder.decode_lines(data)
        except _NOT_JSON:
            return None
        lines = data.count(b"\n") + (not data.endswith(b"\n"))
        return make(values) if len(values) == lines else None

    blocks = Blocks(file)
    while True:
        yield from map(ReadLines, blocks.at_once(made))
        left = next(blocks, None)
        if left is None:
            return
        for batch in values_of(file, decoder.decode, typed=True, blocks=iter([left])):
            values = [each for each in batch.payloads if not is_diverted(each)] if file.diverts_as else batch.payloads
            rows = make(values)
            if len(values) < len(batch.payloads):
                dicts = iter(rows)
                yield batch._replace(payloads=[each if is_diverted(each) else next(dicts) for each in batch.payloads])
            else:
                yield batch._replace(payloads=rows)


def values_of(
    file: File, decode: Callable[[bytes], Any], *, typed: bool, blocks: Iterator[Block] | None = None
) -> Iterator[ReadLines]:
    """The JSON values of a file, in batches; `blocks` as of `lines_of`."""
    for lines in lines_of(file, blocks):
        try:
            values = list(map(decode, lines))
        except (*_NOT_JSON, TypeError):  # TypeError for a line that is diverted
            batch, fault = _values_one_by_one(file, decode, lines, typed=typed)
        else:
            batch, fault = ReadLines(values), None
            if not typed and _may_repeat_keys(lines, values):
                batch, fault = _values_one_by_one(file, decode, lines, typed=typed)
        yield batch
        if fault is not None:
            raise fault


def _values_one_by_one(
    file: File, decode: Callable[[bytes], Any], lines: list[Any], *, typed: bool
) -> tuple[ReadLines, InputError | None]:
    """The values of lines some of which are blank or bad: up to the first bad one, or with the bad ones diverted."""
    values: list[Any] = []
    ends: list[int] = []
    lines_before = file.lines_read - len(lines)
    for at, line in enumerate(lines, 1):
        try:
            if is_diverted(line):
                value = line
            else:
                value = decode(line)
                if not typed and _may_repeat_keys([line], [value]):
                    json.loads(line, object_pairs_hook=_without_repeated_keys)
        except _NOT_JSON as error:
            if not line.strip():
                continue
            if not file.diverts_as:
                return ReadLines(values, ends), InputError(
                    f"{file.name}, line {lines_before + at}: cannot be decoded as JSON: {error}; the line is "
                    f"{line!r:.80}; correct it or take it out"
                )
            value = file.divert(lines_before + at, f"cannot be decoded as JSON: {error}", line)
        values.append(value)
        ends.append(at)
    return ReadLines(values, ends), None


def _may_repeat_keys(lines: list[bytes], values: list[Any]) -> bool:
    """Whether some object may have a key twice; False only if none has.

    Every colon follows a key or is in a text. If no key was lost, the lines have as many as the values written again,
    unless a text has one as an escape.
    """
    data = b"".join(lines)
    colons = data.count(b":")
    if set(map(type, values)) == {dict} and sum(map(len, values)) == colons:
        return False
    return bool(colons) and (b"\\u003" in data or msgspec.json.encode(values).count(b":") != colons)


class _RepeatedKey(ValueError):
    pass


_NOT_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, _RepeatedKey)


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> None:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        raise _RepeatedKey(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is there twice")
