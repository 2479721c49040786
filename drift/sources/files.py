"""Files of lines, JSON and CSV, plain or gzip, and standard input.

Invariant: every payload before a fault of the file is returned before the fault is raised, and the error names file and
line. The payloads do not depend on how the file was cut into chunks.

Why: chunks are cut into complete lines before they are parsed, and a fault in the bytes (undecodable, or truncated
gzip) is held back until the lines before it are returned.

A position is the start of a line and the number of payloads since. The start of a line is the offset of a chunk, the
decoder's state there, and the number of lines that end in the chunk before it: so a position is small, whatever the
encoding and however long the lines. A gzip file is unzipped again up to there.
"""

from __future__ import annotations

import copy
import csv as csv_module
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from drift.guarantees import SourceGuarantee
from drift.sources.base import NothingYet, Reader
from drift.sources.chunks import File, LineStart, is_pipe
from drift.sources.csv_rows import check_columns, rows_of, rows_or_errors
from drift.sources.json_lines import values_of
from drift.sources.lines import TextDecoder, lines_of, lines_or_errors
from drift.sources.positions import position_fields, position_lost, position_of
from drift_graph.errors import InputError, SettingsError


def text(path: str | os.PathLike[str], encoding: str = "utf-8-sig", *, follow: bool = False) -> FileSource:
    """Each line of a file is a payload, without its newline.

    Args:
        path: a plain or a gzip file, or "-" for standard input. "\n", "\r\n" and "\r" end a line.
        encoding: as for `open`; the default is UTF-8 with or without a byte order mark.
        follow: whether the source is live: the last file by name is read as it grows, until a later one appears. A
            pattern or folder may have no files yet. A gzip file must be complete when it appears: move it there.
    """
    _check_encoding(encoding)
    _check_follow(path, follow)

    def batches(file: File) -> Iterator[list[Any]]:
        if file.diverts_as:
            return lines_or_errors(file, encoding, translate=True)
        return lines_of(file, TextDecoder(encoding, translate=True), "\n")

    return FileSource("text", path, batches)


def jsonl(path: str | os.PathLike[str], type: Any = Any, *, follow: bool = False) -> FileSource:
    """Each line of a file is a payload, as one JSON value in UTF-8. Blank lines are skipped.

    An object with two equal keys is refused if there is no `type`; a type takes the last of them.

    Args:
        path: a plain or a gzip file, or "-" for standard input.
        type: each line is converted to it, for instance a dataclass or a msgspec Struct.
        follow: as for `text`.
    """
    _check_follow(path, follow)
    try:
        decode = msgspec.json.Decoder(type).decode
    except TypeError as error:
        raise SettingsError(f"jsonl type={type!r:.80}: {error}") from None
    return FileSource("jsonl", path, lambda file: values_of(file, decode, typed=type is not Any))


def csv(
    path: str | os.PathLike[str],
    *,
    delimiter: str = ",",
    columns: Sequence[str] | None = None,
    convert: Mapping[str, Callable[[str], Any]] | None = None,
    encoding: str = "utf-8-sig",
    follow: bool = False,
    **dialect: Any,
) -> FileSource:
    """Each row of a CSV file is a payload: a dict of column name to text. Blank lines are skipped.

    Args:
        path: a plain or a gzip file, or "-" for standard input.
        columns: names of the columns, for a file without a header row.
        convert: for a column, a function that converts its text to a value: {"delay": int}.
        encoding: as for `open`; the default also accepts the byte order mark that spreadsheets write.
        follow: as for `text`; each file has its header row.
        dialect: other format parameters of `csv.reader`, such as quotechar; strict is True by default.
    """
    _check_encoding(encoding)
    _check_follow(path, follow)
    parameters = {"strict": True, "delimiter": delimiter, **dialect}
    try:
        csv_module.reader((), **parameters)
    except (TypeError, ValueError, csv_module.Error) as error:
        raise SettingsError(f"csv format parameters {parameters}: {error}") from None
    if columns is not None:
        check_columns("csv", columns, convert or {}, SettingsError)

    def batches(file: File) -> Iterator[list[Any]]:
        rows = rows_or_errors if file.diverts_as else rows_of
        return rows(file, encoding, parameters, columns, convert or {})

    return FileSource("csv", path, batches)


class FileSource:
    """A file that is read in batches; it can be opened repeatedly."""

    guarantee = SourceGuarantee("from a position", "a line of the file, as long as it is there")
    live = False

    def __init__(self, kind: str, path: str | os.PathLike[str], batches: Callable[[File], Iterator[list[Any]]]) -> None:
        try:
            self._path = os.fsdecode(path)
        except TypeError:
            raise SettingsError(f"{kind}({path!r:.80}): the path of a file is a text or a pathlib.Path") from None
        self._kind = kind
        self._batches = batches
        self._diverts_as = ""
        self._grows = False
        if self._path == "-" or is_pipe(self._path):
            self.guarantee = SourceGuarantee("not at all", "a pipe gives each byte once")

    def diverting(self, name: str) -> FileSource:
        """See `Diverts`."""
        source = copy.copy(self)
        source._diverts_as = name
        return source

    def growing(self) -> FileSource:
        """The same source, whose reader raises `NothingYet` at the present end; a gzip file is complete."""
        source = copy.copy(self)
        source._grows = True
        return source

    def open(self) -> Reader:
        file = File(self._path)
        file.diverts_as = self._diverts_as
        file.grows = self._grows and not file.is_gzip
        return _FileReader(self._kind, file, self._batches(file))

    def __repr__(self) -> str:
        return f"{self._kind}({self._path!r})"


class _FileReader:
    """Cuts the contents of a file into batches of the requested size."""

    def __init__(self, kind: str, file: File, batches: Iterator[list[Any]]) -> None:
        self._kind = kind
        self._file = file
        self._batches = batches
        self._batch: list[Any] = []
        self._at = 0
        self._before = file.line_start
        self._returned = 0  # payloads since `_before`
        self._to_skip = 0  # payloads to skip
        self._error: Exception | None = None

    def read(self, items_max: int) -> list[Any] | None:
        if self._error is not None:
            raise self._error
        while self._at >= len(self._batch):
            if not self._file.is_ready():
                return []
            line_start = self._file.line_start
            try:
                batch = next(self._batches, None)
            except NothingYet:
                if self._to_skip:
                    raise self._position_lost() from None
                raise
            except Exception as error:  # the fault may lie before that line: the next reader meets it again
                self._error = error
                raise
            if not self._to_skip:
                self._before, self._returned = line_start, 0
            if batch is None and self._to_skip:
                raise self._position_lost()
            if batch is None:
                return None
            self._batch, self._at = batch, min(self._to_skip, len(batch))
            self._to_skip -= self._at
        batch = self._batch[self._at : self._at + items_max]
        self._at += len(batch)
        self._returned += len(batch)
        return batch

    def position(self) -> Any:
        """See `Positioned`."""
        if self._file.pipe is not None:
            return None
        return position_of(self._kind, **self._before._asdict(), items=self._returned)

    def seek(self, position: Any) -> None:
        """See `Positioned`."""
        *line_start, items = position_fields(position, self._kind, self._file.name, *LineStart._fields, "items")
        self._file.start_at(LineStart(*line_start))
        self._before, self._returned, self._to_skip = self._file.line_start, items, items

    def _position_lost(self) -> InputError:
        reached = f"item {self._returned} after the start of a line"
        return position_lost(self._file.name, reached, f"it has {self._to_skip} fewer")

    @property
    def ended_at(self) -> int:
        """The size of the file, in bytes, when its end was read."""
        return self._file.ended_at

    def filenos(self) -> Sequence[int]:
        return () if self._file.pipe is None else (self._file.pipe,)

    def fraction(self) -> float | None:
        """The share of the file that has been read, 0 to 1; None if its size is unknown."""
        return self._file.fraction()

    def close(self) -> None:
        self._batch = []
        self._file.close()


def _check_follow(path: object, follow: bool) -> None:
    if follow and path == "-":
        raise SettingsError("standard input ends when it is closed, and nobody can follow it; leave follow=True out")


def _check_encoding(encoding: str) -> None:
    try:
        "".encode(encoding)
    except (LookupError, TypeError) as error:
        raise SettingsError(f"encoding={encoding!r}: {error}") from None
