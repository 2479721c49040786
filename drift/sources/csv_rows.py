"""Lines as rows of CSV.

Invariant: the rows before a bad one are returned before it is refused, or it is diverted in its position.

Why: the rows of a block are read at once where all are complete and fit, and one by one where that is not so.
"""

from __future__ import annotations

import codecs
import csv as csv_module
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from drift.sources.chunks import File
from drift.sources.halved import made_of
from drift.sources.lines import AtOnce, Blocks, ReadLines, lines_of
from drift_graph.diverted import is_diverted
from drift_graph.errors import InputError, SettingsError

if TYPE_CHECKING:
    from drift.columns.read import OfColumns
    from drift.columns.rows import Frame


Make = Callable[[Sequence[Sequence[str]]], Any]


class Typed(NamedTuple):
    """How rows become columns.

    Attributes:
        names: of the columns that are taken.
        of_columns: from the texts of these.
    """

    names: Sequence[str]
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
_NO_CSV = (
    "correct it, pass the format that the file has (delimiter, quotechar, strict=False, ...), or raise the limit of a "
    "field: csv.field_size_limit of Python"
)


class _RowTooLong(Exception):
    pass


class _Refused(NamedTuple):
    """In place of a row that cannot be read: why, what to do, and its cells, if it has some."""

    why: str
    to_do: str
    row: list[str] | None = None


class _Lines:
    """The lines of a file for a parser of CSV, without those that are diverted.

    Attributes:
        number: of the last line.
        row: numbers and text of the lines taken since it was cleared.
        diverted: numbers and items of those passed over since then.
    """

    def __init__(self, file: File, blocks: Blocks) -> None:
        self._limit = file.lines.line_max
        self._batches = lines_of(file, blocks)
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


def rows_of(
    file: File,
    parameters: Mapping[str, Any],
    columns: Sequence[str] | None,
    convert: Mapping[str, Callable[[str], Any]],
    nulls: Collection[str],
    typed: Typed | None = None,
) -> Iterator[ReadLines]:
    """The rows of a CSV file in batches: those whose lines are available, so that a pipe is not waited for."""
    blocks = Blocks(file)
    lines = _Lines(file, blocks)
    reader = csv_module.reader(lines, **parameters)
    header = file.header if columns is None else list(columns)
    if columns is None and file.files > 1:
        raise InputError(
            f"{file.name} is a zip file of {file.files} files, each of which has a header: unpack them into a folder, "
            f"and give that, or pass columns= if they have none"
        )
    at_once: AtOnce | None = None
    make: Make | None = None
    fault: InputError | None = None
    row: list[str] | _Refused | None = []
    while row is not None and fault is None:
        if header is not None:  # no row is incomplete here
            make = make or _maker(file, header, convert, nulls, typed)
            at_once = at_once or _at_once(file, header, make, typed, parameters)
            for made in blocks.at_once(at_once):
                lines.number = file.lines_read
                yield made
        placed: list[tuple[int, int, Any]] = []  # the numbers of its first line and its last, and what is there
        first = lines.number
        while row is not None and fault is None:
            try:
                row = next(reader, None)
            except csv_module.Error as error:
                row = _Refused(f"the row that starts here is no CSV: {error}", _NO_CSV)
            except _RowTooLong:
                row = _Refused(f"the row that starts here has more than line_max={file.lines.line_max} characters",
                               "close its quotes, or raise line_max")  # fmt: skip
            except InputError as error:
                fault = error
                break
            start = lines.row[0][0] if lines.row else lines.number + 1
            text = "\n".join(line for _, line in lines.row)
            end = lines.number
            lines.row.clear()
            lines.pass_over()
            placed += [(number, number, item) for number, item in lines.diverted]
            lines.diverted.clear()
            if isinstance(row, list) and row and header is not None and len(row) != len(header):
                misfit = f"{len(row)} columns where the header has {len(header)}; the row is {row!r:.120}"
                row = _Refused(misfit, "correct it, or quote the fields that hold a delimiter", row)
            if isinstance(row, _Refused):
                if not file.diverts_as:
                    fault = InputError(f"{file.name}, line {start}: {row.why}; {row.to_do}")
                    break
                shown = text[:_SHOWN] if len(text) > file.lines.line_max else text
                placed.append((start, end, file.divert(start, row.why, row.row or shown)))
            elif row and header is None:
                header = row
                check_columns(f"{file.name}, line {start}", header, convert, InputError)
                file.header = header
            elif row:
                placed.append((start, end, _Pending(start, row)))
            if lines.at_end:
                break
        placed.sort(key=itemgetter(0))
        payloads, ends, reached = [item for _, _, item in placed], list[int](), first
        for (_, end, _), after in zip(placed, [*(start for start, _, _ in placed[1:]), math.inf]):
            reached = max(reached, end)
            ends.append(reached - first if after > reached else -1)
        if header is not None:
            make = make or _maker(file, header, convert, nulls, typed)
            payloads, bad = _converted(file, payloads, make)
            fault = bad or fault
        batch = ReadLines(payloads, ends)
        yield batch
    if fault is not None:
        raise fault
    if header is None and not file.may_be_empty:
        raise InputError(f"{file.name}, line 1: the file is empty; CSV starts with a header row, or pass columns=")


def _at_once(
    file: File,
    header: Sequence[str],
    make: Make,
    typed: Typed | None,
    parameters: Mapping[str, Any],
) -> AtOnce:
    """Makes payloads of a block of complete rows without a fault; see `Blocks`."""
    cells = None
    if typed is not None and file.lines.name == "utf-8":
        from drift.columns.cells import Cells

        if Cells.takes(parameters):
            cells = Cells(header, typed.names, parameters["delimiter"])

    def made(data: bytes) -> ReadLines | Frame | None:
        if cells is not None and typed is not None and (columns := cells.columns(data)) is not None:
            return typed.of_columns(columns)
        if data.startswith(codecs.BOM_UTF8) or len(data) > file.lines.line_max:
            return None
        rows: list[list[str]] = []
        ends: list[int] = []
        try:
            lines = file.decode(data).removesuffix("\n").split("\n")
            reader = csv_module.reader([line + "\n" for line in (*lines, "")], **parameters)
            for row in reader:
                rows.append(row)
                ends.append(reader.line_num)
        except (UnicodeDecodeError, csv_module.Error):
            return None
        if rows.pop():  # the last row goes on: it has taken the empty line
            return None
        if not all(rows):
            ends = [end for row, end in zip(rows, ends) if row]
            rows = [row for row in rows if row]
        if set(map(len, rows)) != {len(header)}:
            return None
        return ReadLines(make(rows), [*ends[: len(rows) - 1], len(lines)])

    return made


def check_columns(
    where: str, columns: Sequence[str], convert: Mapping[str, Any], kind: type[InputError] | type[SettingsError]
) -> None:
    twice = sorted({name for name in columns if list(columns).count(name) > 1})
    if twice:
        raise kind(f"{where}: two columns are named {twice[0]!r}; pass columns= with names that differ")
    unknown = [name for name in convert if name not in columns]
    if unknown:
        raise kind(f"{where}: convert names {unknown[0]!r}, but the columns are {', '.join(map(repr, columns))}")


def _maker(
    file: File,
    header: Sequence[str],
    convert: Mapping[str, Callable[[str], Any]],
    nulls: Collection[str],
    typed: Typed | None,
) -> Make:
    """From rows their payloads: columns where they are typed, or dicts. It raises InputError if one has none."""
    if typed is not None:
        of_columns, places = typed.of_columns, typed.places(file.name, header)
        return lambda rows: of_columns([[row[at] for row in rows] for at in places])

    def make(rows: Sequence[Sequence[str]]) -> Any:
        payloads: list[dict[str, Any]] = [dict(zip(header, row)) for row in rows]
        if nulls:
            payloads = [{name: None if cell in nulls else cell for name, cell in each.items()} for each in payloads]
        for payload in payloads if convert else ():
            for name, function in convert.items():
                if payload[name] is None:
                    continue
                try:
                    payload[name] = function(payload[name])
                except Exception as error:
                    raise InputError(
                        f"column {name!r} has {payload[name]!r:.80}, for which its convert function raised "
                        f"{type(error).__name__}: {error}"
                    ) from error
        return payloads

    return make


def _converted(file: File, payloads: list[Any], make: Make) -> tuple[Any, InputError | None]:
    """The pending rows as payloads, up to the first that has none; others are diverted among them."""
    pending = [each for each in payloads if type(each) is _Pending]

    def divert(at: int, error: InputError) -> Any:
        return file.divert(pending[at].line, str(error), pending[at].row)

    made, bad = made_of(make, [each.row for each in pending], divert if file.diverts_as else None)
    if bad is not None:
        fault = InputError(f"{file.name}, line {pending[bad.at].line}: {bad.error}")
        fault.__cause__ = bad.error.__cause__
        return made, fault
    following = iter(made)
    return made if len(made) == len(payloads) else [
        next(following) if type(each) is _Pending else each for each in payloads
    ], None
