"""Lines as rows of CSV.

Invariant: the rows before a bad one are returned before it is refused, or it is diverted in its position.
"""

from __future__ import annotations

import csv as csv_module
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from drift.sources.chunks import File
from drift.sources.lines import AtOnce, Blocks, ReadLines, lines_of
from drift_graph.diverted import is_diverted
from drift_graph.errors import InputError, SettingsError

if TYPE_CHECKING:
    from drift.columns.read import Make, OfColumns
    from drift.columns.rows import Frame


class Typed(NamedTuple):
    """How rows become columns.

    Attributes:
        names: of the columns that are taken.
        make: from the cells of these.
        of_columns: the same from columns of cells.
    """

    names: Sequence[str]
    make: Make
    of_columns: OfColumns

    def places(
        self, where: str, header: Sequence[str], kind: type[InputError] | type[SettingsError] = InputError
    ) -> Sequence[int]:
        """The indices of these columns."""
        for name in self.names:
            if name not in header:
                near = get_close_matches(name, header, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise kind(f"{where}: schema= has {name!r}, and the columns are {', '.join(map(repr, header))}{hint}")
        return [header.index(name) for name in self.names]


class _Pending(NamedTuple):
    """A row that is not converted yet, and the number of its line."""

    line: int
    row: list[str]


_SHOWN = 1000  # characters of a row that is too long


def rows_of(
    file: File,
    parameters: Mapping[str, Any],
    columns: Sequence[str] | None,
    convert: Mapping[str, Callable[[str], Any]],
    typed: Typed | None = None,
) -> Iterator[ReadLines]:
    """The rows of a CSV file in batches: those whose lines are available, so that a pipe is not waited for."""
    lines_given, lines_passed = 0, file.lines_read
    before = 0  # lines of complete rows
    blocks = Blocks(file)
    limit = file.lines.line_max

    def lines() -> Iterator[Iterator[str]]:
        nonlocal lines_given
        size, last = 0, [""]  # characters of an incomplete row in front of the last lines, and these
        for batch in lines_of(file, blocks):
            of_row = lines_given - before
            size = sum(map(len, last[len(last) - of_row :])) if of_row < len(last) else size + sum(map(len, last))
            lines_given, last = lines_given + len(batch), batch
            small = size + sum(map(len, batch)) <= limit
            yield (line + "\n" for line in batch) if small else measured(batch, size)

    def measured(batch: list[str], size: int) -> Iterator[str]:
        row = before
        for line in batch:
            row, size = before, (size if row == before else 0) + len(line)
            if size > limit:
                raise InputError(
                    f"{file.name}, line {lines_passed + before + 1}: {_too_long(file)}; close its quotes, or raise "
                    f"line_max"
                )
            yield line + "\n"

    reader = csv_module.reader(chain.from_iterable(lines()), **parameters)
    header = file.header if columns is None else list(columns)
    fault: InputError | None = None
    more = True
    at_once: AtOnce | None = None
    while more and fault is None:
        if typed is not None and header is not None:  # no row is incomplete here
            at_once = at_once or _at_once(file, header, typed, parameters)
            for made in blocks.at_once(at_once):
                lines_passed += len(made)
                yield ReadLines(made)
        rows: list[list[str]] = []
        lines_before: list[int] = []
        first = before
        try:
            for row in reader:
                if row:  # not a blank line
                    rows.append(row)
                    lines_before.append(lines_passed + before)
                before = reader.line_num
                if before == lines_given:
                    break
            else:
                more = False
        except csv_module.Error as error:
            fault = InputError(
                f"{file.name}, line {lines_passed + before + 1}: the row that starts here is no CSV: {error}; correct "
                f"it, pass the format that the file has (delimiter, quotechar, strict=False, ...), or raise the limit "
                f"of a field: csv.field_size_limit of Python"
            )
        except InputError as error:
            fault = error
        ends = None if len(rows) == before - first else [at - lines_passed - first for at in lines_before[1:]]
        if ends is not None and rows:
            ends.append(before - first)
        if header is None and rows:
            header = rows.pop(0)
            where = f"{file.name}, line {lines_before.pop(0) + 1}"
            ends = [*range(2, len(rows) + 2)] if ends is None else ends[1:]
            check_columns(where, header, convert, InputError)
            file.header = header
        if header is not None:
            rows, bad = _fitting(file.name, header, rows, lines_before)
            if typed is None:
                payloads, not_converted = _dicts(file.name, header, rows, lines_before, convert)
            else:
                payloads, not_converted = _columns(file.name, header, rows, lines_before, typed)
            fault = not_converted or bad or fault
            yield ReadLines(payloads, ends)
    if fault is not None:
        raise fault
    if header is None:
        raise _empty(file)


def _at_once(file: File, header: Sequence[str], typed: Typed, parameters: Mapping[str, Any]) -> AtOnce:
    """Makes rows of a block; see `Blocks`."""
    from drift.columns.cells import Cells

    typed.places(file.name, header)
    if file.lines.name != "utf-8" or not Cells.takes(parameters):
        return lambda data: None
    cells = Cells(header, typed.names, parameters["delimiter"])

    def made(data: bytes) -> Frame | None:
        columns = cells.columns(data)
        return None if columns is None else typed.of_columns(columns)

    return made


class _RowTooLong(Exception):
    pass


class _Lines:
    """The lines of a file for a parser of CSV, without those that are diverted.

    Attributes:
        number: of the last line.
        row: numbers and text of the lines taken since it was cleared.
        diverted: numbers and items of those passed over since then.
    """

    def __init__(self, file: File) -> None:
        self._limit = file.lines.line_max
        self._batches = lines_of(file)
        self._batch: list[Any] = []
        self._at = 0
        self.number = file.lines_read
        self.row: list[tuple[int, str]] = []
        self.diverted: list[tuple[int, Any]] = []

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while True:
            self.pass_over()
            if self._at < len(self._batch):
                line: str = self._batch[self._at]
                self._at, self.number = self._at + 1, self.number + 1
                self.row.append((self.number, line))
                if len(self.row) > 1 and sum(len(each) for _, each in self.row) > self._limit:
                    raise _RowTooLong
                return line + "\n"
            self._batch, self._at = next(self._batches), 0

    def pass_over(self) -> None:
        """Take the diverted lines that come next."""
        while self._at < len(self._batch) and is_diverted(self._batch[self._at]):
            self.number += 1
            self.diverted.append((self.number, self._batch[self._at]))
            self._at += 1

    @property
    def at_end(self) -> bool:
        """Whether all lines that are available were taken."""
        return self._at == len(self._batch)


def rows_or_errors(
    file: File,
    parameters: Mapping[str, Any],
    columns: Sequence[str] | None,
    convert: Mapping[str, Callable[[str], Any]],
    typed: Typed | None = None,
) -> Iterator[ReadLines]:
    """As `rows_of`, with lines that cannot be decoded and rows that do not fit or cannot be converted diverted."""
    lines = _Lines(file)
    reader = csv_module.reader(lines, **parameters)
    header = file.header if columns is None else list(columns)
    row: list[str] | str | None = []
    while row is not None:
        batch = ReadLines([], ends := [])
        first = lines.number
        while row is not None:
            try:
                row = next(reader, None)
            except csv_module.Error as error:
                row = f"the row that starts here is no CSV: {error}"
            except _RowTooLong:
                row = _too_long(file)
            start = lines.row[0][0] if lines.row else lines.number + 1
            text = "\n".join(line for _, line in lines.row)
            end = lines.number
            lines.row.clear()
            lines.pass_over()
            for number, item in lines.diverted:
                if number < start:
                    batch.payloads.append(item)
                    ends.append(number - first)
            found: list[Any] = []
            if isinstance(row, str):
                shown = text[:_SHOWN] if len(text) > file.lines.line_max else text
                found.append(file.divert(start, row, shown))
            elif row and header is None:
                header = row
                check_columns(f"{file.name}, line {start}", header, convert, InputError)
                file.header = header
            elif row and header is not None:
                fitting, fault = _fitting(file.name, header, [row], [start - 1])
                good_row: list[Any] = [_Pending(start, row)] * len(fitting)
                if fitting and typed is None:
                    good_row, fault = _dicts(file.name, header, fitting, [start - 1], convert)
                reason = str(fault).removeprefix(f"{file.name}, line {start}: ")
                found += good_row or [file.divert(start, reason, row)]
            within = [item for number, item in lines.diverted if start < number < end]
            behind = [(number, item) for number, item in lines.diverted if number > end]
            found += within
            batch.payloads.extend(found)
            ends += [-1] * (len(found) - 1) + [end - first] * bool(found)
            batch.payloads.extend(item for _, item in behind)
            ends += [number - first for number, _ in behind]
            lines.diverted.clear()
            if lines.at_end:
                break
        if typed is not None and header is not None:
            batch = batch._replace(payloads=_converted(file, header, batch.payloads, typed))
        yield batch
    if header is None:
        raise _empty(file)


def _too_long(file: File) -> str:
    return f"the row that starts here has more than line_max={file.lines.line_max} characters"


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


def _fitting(
    file: str, header: Sequence[str], rows: list[list[str]], lines_before: list[int]
) -> tuple[list[list[str]], InputError | None]:
    """The rows up to the first that has not as many cells as the header."""
    width = len(header)
    if not set(map(len, rows)) - {width}:
        return rows, None
    at = next(index for index, row in enumerate(rows) if len(row) != width)
    return rows[:at], InputError(
        f"{file}, line {lines_before[at] + 1}: {len(rows[at])} columns where the header has {width}; the row is "
        f"{rows[at]!r:.120}; correct it, or quote the fields that hold a delimiter"
    )


def _columns(
    file: str, header: Sequence[str], rows: list[list[str]], lines_before: list[int], typed: Typed
) -> tuple[Any, InputError | None]:
    """Rows as columns, up to the first that cannot be converted."""
    from drift.columns.read import up_to_fault

    wanted = _cells(rows, typed.places(file, header))
    made, fault = up_to_fault(typed.make, wanted)
    return made, InputError(f"{file}, line {lines_before[len(made)] + 1}: {fault}") if fault else None


def _cells(rows: Sequence[Sequence[str]], places: Sequence[int]) -> Sequence[Sequence[str]]:
    return [[row[at] for at in places] for row in rows]


def _converted(file: File, header: Sequence[str], payloads: list[Any], typed: Typed) -> Any:
    """The pending rows as columns, or as dicts where others are diverted among them."""
    from drift.columns.read import up_to_fault

    pending = [each for each in payloads if type(each) is _Pending]
    cells = _cells([each.row for each in pending], typed.places(file.name, header))
    made: list[Any] = []
    while len(made) < len(pending):
        rows, fault = up_to_fault(typed.make, cells[len(made) :])
        if len(rows) == len(payloads):
            return rows
        made += rows
        if fault:
            bad = pending[len(made)]
            made.append(file.divert(bad.line, fault, bad.row))
    following = iter(made)
    return [next(following) if type(each) is _Pending else each for each in payloads]


def _dicts(
    file: str,
    header: Sequence[str],
    rows: list[list[str]],
    lines_before: list[int],
    convert: Mapping[str, Callable[[str], Any]],
) -> tuple[list[dict[str, Any]], InputError | None]:
    """Rows as dicts, up to the first that cannot be converted."""
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
    return payloads, None
