"""Lines as rows of CSV.

Invariant: the rows before a bad one are returned before it is refused, or it is diverted in its position.
"""

from __future__ import annotations

import csv as csv_module
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from drift.sources.chunks import File
from drift.sources.lines import TextDecoder, lines_of, lines_or_errors
from drift_graph.diverted import is_diverted
from drift_graph.errors import InputError, SettingsError


def rows_of(
    file: File,
    encoding: str,
    parameters: Mapping[str, Any],
    columns: Sequence[str] | None,
    convert: Mapping[str, Callable[[str], Any]],
) -> Iterator[list[dict[str, Any]]]:
    """The rows of a CSV file in batches: those whose lines are available, so that a pipe is not waited for."""
    lines_read = 0
    lines_passed = file.line_start.lines

    def lines() -> Iterator[Iterator[str]]:
        nonlocal lines_read
        for batch in lines_of(file, TextDecoder(encoding, translate=False), "\n"):
            lines_read += len(batch)
            yield (line + "\n" for line in batch)

    reader = csv_module.reader(chain.from_iterable(lines()), **parameters)
    header = file.line_start.header if columns is None else list(columns)
    fault: InputError | None = None
    more = True
    while more and fault is None:
        rows: list[list[str]] = []
        lines_before: list[int] = []
        before = reader.line_num
        try:
            for row in reader:
                if row:  # not a blank line
                    rows.append(row)
                    lines_before.append(lines_passed + before)
                before = reader.line_num
                if before == lines_read:
                    break
            else:
                more = False
        except csv_module.Error as error:
            fault = InputError(
                f"{file.name}, line {lines_passed + before + 1}: the row that starts here is no CSV: {error}; correct "
                f"it, or pass the format that the file has (delimiter, quotechar, strict=False, ...)"
            )
        except InputError as error:
            fault = error
        if header is None and rows:
            header = rows.pop(0)
            where = f"{file.name}, line {lines_before.pop(0) + 1}"
            check_columns(where, header, convert, InputError)
            file.line_start = file.line_start._replace(header=header)
        if header is not None:
            payloads, bad = _dicts(file.name, header, rows, lines_before, convert)
            fault = bad or fault
            if payloads:
                yield payloads
    if fault is not None:
        raise fault
    if header is None:
        raise _empty(file)


def rows_or_errors(
    file: File,
    encoding: str,
    parameters: Mapping[str, Any],
    columns: Sequence[str] | None,
    convert: Mapping[str, Callable[[str], Any]],
) -> Iterator[list[Any]]:
    """As `rows_of`, with lines that cannot be decoded and rows that do not fit or cannot be converted diverted."""
    waiting: deque[tuple[int, str]] = deque()  # numbers and text of the lines of an incomplete row
    undecoded: deque[tuple[int, Any]] = deque()
    number, parsed = file.line_start.lines, 0

    def lines() -> Iterator[list[str]]:
        nonlocal number, parsed
        for batch in lines_or_errors(file, encoding, translate=False):
            good: list[str] = []
            for line in batch:
                number += 1
                if is_diverted(line):
                    undecoded.append((number, line))
                else:
                    good.append(line + "\n")
                    waiting.append((number, line))
            parsed += len(good)
            yield good

    reader = csv_module.reader(chain.from_iterable(lines()), **parameters)
    header = file.line_start.header if columns is None else list(columns)
    row: list[str] | csv_module.Error | None = []
    while row is not None:
        payloads: list[Any] = []
        while row is not None:
            before = reader.line_num
            try:
                row = next(reader, None)
            except csv_module.Error as error:
                row = error
            taken = [waiting.popleft() for _ in range(reader.line_num - before)]
            start = taken[0][0] if taken else number + 1
            while undecoded and undecoded[0][0] < start:
                payloads.append(undecoded.popleft()[1])
            if isinstance(row, csv_module.Error):
                text = "\n".join(line for _, line in taken)
                payloads.append(file.divert(start, f"the row that starts here is no CSV: {row}", text))
            elif row and header is None:
                header = row
                check_columns(f"{file.name}, line {start}", header, convert, InputError)
                file.line_start = file.line_start._replace(header=header)
            elif row and header is not None:
                good_row, fault = _dicts(file.name, header, [row], [start - 1], convert)
                reason = str(fault).removeprefix(f"{file.name}, line {start}: ")
                payloads += good_row or [file.divert(start, reason, row)]
            if reader.line_num == parsed:
                break
        payloads += (line for _, line in undecoded)
        undecoded.clear()
        if payloads:
            yield payloads
    if header is None:
        raise _empty(file)


def _empty(file: File) -> InputError:
    return InputError(f"{file.name}, line 1: the file is empty; CSV starts with a header row, or pass columns=")


def check_columns(
    where: str, columns: Sequence[str], convert: Mapping[str, Any], kind: type[InputError] | type[SettingsError]
) -> None:
    twice = sorted({name for name in columns if list(columns).count(name) > 1})
    if twice:
        raise kind(f"{where}: two columns are named {twice[0]!r}; pass columns= with names that differ")
    unknown = [name for name in convert if name not in columns]
    if unknown:
        raise kind(f"{where}: convert names {unknown[0]!r}, but the columns are {', '.join(map(repr, columns))}")


def _dicts(
    file: str,
    header: Sequence[str],
    rows: list[list[str]],
    lines_before: list[int],
    convert: Mapping[str, Callable[[str], Any]],
) -> tuple[list[dict[str, Any]], InputError | None]:
    """Rows as dicts, up to the first that does not fit."""
    width = len(header)
    fault: InputError | None = None
    if set(map(len, rows)) - {width}:
        at = next(index for index, row in enumerate(rows) if len(row) != width)
        fault = InputError(
            f"{file}, line {lines_before[at] + 1}: {len(rows[at])} columns where the header has {width}; the row is "
            f"{rows[at]!r:.120}; correct it, or quote the fields that hold a delimiter"
        )
        rows = rows[:at]
    payloads: list[dict[str, Any]] = [dict(zip(header, row)) for row in rows]
    if convert:
        for at, payload in enumerate(payloads):
            for name, function in convert.items():
                try:
                    payload[name] = function(payload[name])
                except Exception as error:
                    fault = InputError(
                        f"{file}, line {lines_before[at] + 1}: column {name!r} has {payload[name]!r:.80}, for which "
                        f"its convert function raised {type(error).__name__}: {error}"
                    )
                    fault.__cause__ = error
                    return payloads[:at], fault
    return payloads, fault
