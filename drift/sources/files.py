"""Files of lines, JSON and CSV, plain or gzip, and standard input.

Invariant: every payload before a fault of the file is returned before the fault is raised, and the error names file and
line. The payloads do not depend on how the file was cut into chunks.

Why: chunks are cut into complete lines before they are parsed, and a fault in the bytes (undecodable, truncated gzip, a
line without an end) is held back until the lines before it are returned.

A position is the start of a line, with a hash of what is before it, and the number of payloads since, which is 0 but
for rows of CSV with lines in them that cannot be read. What was read is verified by reading it again: a gzip file is
unzipped up to there, and of a large plain file what the hash covers is read. An object in a store is known by its ETag,
in place of a hash, and a plain one is read from there.
"""

from __future__ import annotations

import copy
import csv as csv_module
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from drift.extras import need
from drift.fields import check_names
from drift.guarantees import SourceGuarantee
from drift.places import is_named, storage_of
from drift.sources.base import NothingYet, OwnSource, Reader
from drift.sources.chunks import LINE_MAX, File, Lines, Start, is_pipe
from drift.sources.csv_rows import Typed, check_columns, rows_of
from drift.sources.json_lines import values_of
from drift.sources.json_values import Values
from drift.sources.lines import ReadLines, lines_of
from drift.sources.positions import in_one_file, position_fields, position_lost, position_of
from drift.urls import path_text, without_secrets
from drift_graph.called import parameters_of, takes_no
from drift_graph.errors import InputError, SettingsError

#: What `csv.reader` of Python takes beside a delimiter.
_DIALECT = (
    "dialect", "quotechar", "escapechar", "doublequote", "skipinitialspace", "lineterminator", "quoting", "strict",
)  # fmt: skip
_CHUNKS_OF_ROWS = 8  # that stay columns: a batch costs some milliseconds, however few rows it has


def text(
    path: str | os.PathLike[str],
    encoding: str = "utf-8-sig",
    *,
    line_max: int = LINE_MAX,
    follow: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> FileSource:
    """Each line of a file is a payload, without its newline.

    >>> import drift
    >>> from pathlib import Path
    >>> written = Path("lines.txt").write_text("to be\\nor not\\n")
    >>> graph = drift.Graph("lengths")
    >>> graph.source("lines").map(len).sink("out")
    >>> [item.payload for item in drift.run(graph, {"lines": drift.sources.text("lines.txt")})]
    [5, 6]

    Args:
        path: a plain or a gzip file, its URL such as s3://BUCKET/NAME (extra `cloud`), or "-" for standard input.
            "\\n", "\\r\\n" and "\\r" end a line.
        encoding: as for `open`; the default is UTF-8 with or without a byte order mark.
        line_max: bytes of a line; a longer one is an InputError, or is diverted, as its first 1,000 bytes. A source
            takes a few times as much memory at most, also for a gzip file that unpacks to more.
        follow: whether the source is live: the last file by name is read as it grows, until a later one appears. A
            pattern or folder may have no files yet. A gzip file must be complete when it appears: move it there. A file
            that is named is read on where it is rotated, in NAME.1, NAME-DATE or NAME.1.gz, and then by its name.
        storage_options: of a URL, for the class of fsspec that reads it.
    """
    _check_follow(path, follow)
    lines = Lines(encoding, universal=True, line_max=line_max)
    return FileSource("text", path, storage_options, lines, lambda file: map(ReadLines, lines_of(file)))


def jsonl(
    path: str | os.PathLike[str],
    type: Any = Any,
    *,
    schema: Mapping[str, Any] | None = None,
    line_max: int = LINE_MAX,
    follow: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> FileSource:
    """Each line of a file is a payload, as one JSON value in UTF-8. Blank lines are skipped.

    An object with two equal keys is refused, and so is a number or a time that its type would round: see "What a text
    is" in columns.md.

    >>> import drift
    >>> from pathlib import Path
    >>> written = Path("clicks.jsonl").write_text('{"page": "/"}\\n{"page": "/cart"}\\n')
    >>> graph = drift.Graph("pages")
    >>> graph.source("clicks").map(lambda click: click["page"]).sink("out")
    >>> [item.payload for item in drift.run(graph, {"clicks": drift.sources.jsonl("clicks.jsonl")})]
    ['/', '/cart']

    Args:
        path: as for `text`.
        type: each line is converted to it, for instance a dataclass or a msgspec Struct.
        schema: names and types of the fields, as of `Graph.source`, which is the default where it has one and `type`
            is not given: each line is an object with just these, and the rows stay columns until a function asks for
            one (extra `columns`).
        line_max, follow, storage_options: as for `text`.

    Raises:
        SettingsError: `type` and `schema` are both given, or no type that JSON can be converted to.
    """
    _check_follow(path, follow)
    lines = Lines(None, universal=False, line_max=line_max, at_once=1 if schema is None else _CHUNKS_OF_ROWS)
    if schema is not None:
        need("columns", "jsonl with schema=")
        if type is not Any:
            raise SettingsError("jsonl takes a type= or a schema=, not both")
        from drift.columns.read import checked_schema
        from drift.sources.json_rows import RowValues

        rows = RowValues(checked_schema("jsonl", schema))
        return FileSource("jsonl", path, storage_options, lines, lambda file: values_of(file, rows))
    try:
        decoder = Values(type)
    except TypeError as error:
        raise SettingsError(f"jsonl type={type!r:.80}: {error}") from None
    is_told = type is not Any
    return FileSource("jsonl", path, storage_options, lines, lambda file: values_of(file, decoder), is_told=is_told)


def csv(
    path: str | os.PathLike[str],
    *,
    delimiter: str = ",",
    columns: Sequence[str] | None = None,
    convert: Mapping[str, Callable[[str], Any]] | None = None,
    schema: Mapping[str, Any] | None = None,
    null_values: str | Sequence[str] = (),
    encoding: str = "utf-8-sig",
    line_max: int = LINE_MAX,
    follow: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **dialect: Any,
) -> FileSource:
    """Each row of a CSV file is a payload: a dict of column name to text. Blank lines are skipped.

    >>> import drift
    >>> from pathlib import Path
    >>> written = Path("fares.csv").write_text("zone,fare\\nJFK,30.5\\nLGA,9\\n")
    >>> graph = drift.Graph("fares")
    >>> graph.source("fares").sink("out")
    >>> fares = drift.sources.csv("fares.csv", schema={"zone": str, "fare": float})
    >>> [item.payload for item in drift.run(graph, {"fares": fares})]
    [{'zone': 'JFK', 'fare': 30.5}, {'zone': 'LGA', 'fare': 9.0}]

    Args:
        path: as for `text`.
        columns: names of the columns, for a file without a header row.
        convert: for a column, a function that converts its text to a value: {"delay": int}.
        schema: in place of `convert`, names and types of the columns that are taken, as of `Graph.source`, which is the
            default where it has one; the rows stay columns until a function asks for one (extra `columns`). An empty
            cell is None, except in a column of text, not of categories; booleans are true and false, dates and times
            those of ISO 8601.
        null_values: texts of cells that are None, in each column: "NA", or ["NA", "-"].
        encoding: as for `open`; the default also accepts the byte order mark that spreadsheets write.
        line_max: as for `text`, and characters of a row of several lines. A field has 131,072 characters at most, or
            as many as `csv.field_size_limit` of Python says.
        follow, storage_options: as for `text`; each file has its header row.
        dialect: other format parameters of `csv.reader`, such as quotechar; strict is True by default.

    Raises:
        SettingsError: `convert` and `schema` are both given, or an argument is none of these.
    """
    _check_follow(path, follow)
    lines = Lines(encoding, universal=False, line_max=line_max, at_once=1 if schema is None else _CHUNKS_OF_ROWS)
    for name in dialect:
        if name not in _DIALECT:
            raise takes_no("csv", name, [*parameters_of(csv), *_DIALECT])
    parameters = {"strict": True, "delimiter": delimiter, **dialect}
    try:
        csv_module.reader((), **parameters)
    except (TypeError, ValueError, csv_module.Error) as error:
        raise SettingsError(f"csv format parameters {parameters}: {error}") from None
    check_names(columns)
    nulls = [null_values] if isinstance(null_values, str) else list(null_values)
    if not all(isinstance(each, str) for each in nulls):
        raise SettingsError(f"csv null_values={null_values!r:.80} are no texts; give the cells that are None: ['NA']")
    if columns is not None:
        check_columns("csv", columns, convert or {}, SettingsError)
    made: Typed | None = None
    if schema is not None:
        need("columns", "csv with schema=")
        if convert is not None:
            raise SettingsError("csv takes convert= or schema=, not both")
        from drift.columns.read import checked_schema, of_cells

        fields = checked_schema("csv", schema)
        made = Typed([name for name, _ in fields], of_cells(fields, nulls))
        if columns is not None:
            made.places("csv", columns, SettingsError)

    def batches(file: File) -> Iterator[ReadLines]:
        return rows_of(file, parameters, columns, convert or {}, frozenset(nulls), made)

    told = schema is not None or convert is not None
    return FileSource("csv", path, storage_options, lines, batches, is_told=told)


class FileSource(OwnSource):
    """A file that is read in batches; it can be opened repeatedly.

    Args:
        is_told: what its payloads are, if it was, or could not be rows.
    """

    may_grow = True
    guarantee = SourceGuarantee("from a position", "a line of the file, as long as it is there")

    def __init__(
        self,
        kind: str,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None,
        lines: Lines,
        batches: Callable[[File], Iterator[ReadLines]],
        *,
        is_told: bool = True,
    ) -> None:
        self.storage, self._path = storage_of(path_text(kind, path), storage_options)
        self._kind = kind
        self._lines = lines
        self._batches = batches
        self.is_told = is_told
        self._grows = self._is_piece = False
        if self._path == "-" or is_pipe(self._path):
            self.guarantee = SourceGuarantee("not at all", "a pipe gives each byte once")

    def growing(self) -> FileSource:
        """A gzip file is complete, and so is an object."""
        source = copy.copy(self)
        source._grows = not self.storage.remote
        return source

    def as_piece(self) -> FileSource:
        source = copy.copy(self)
        source._is_piece = True
        return source

    def open(self) -> Reader:
        if self._path != "-" and is_pipe(self._path):
            return _PipeReader(self._opened)
        reader = self._opened()
        return reader if reader.file.pipe is None else _PipeReader(lambda: reader, reader)

    def _opened(self) -> _FileReader:
        how = {"grows": self._grows, "may_be_empty": self._is_piece}
        file = File(self._path, self._lines, self._diverts_as, storage=self.storage, **how)
        return _FileReader(self._kind, file, self._batches)

    def reads(self, file: Path) -> bool:
        return is_named(self.storage, self._path, file)

    def __repr__(self) -> str:
        return f"{self._kind}({without_secrets(self._path)!r})"


class _PipeReader(Reader):
    """A pipe. A named one is opened by the first `read`: where it is opened and closed, what was written to it is lost.

    Args:
        reader: of a pipe that is open already.
    """

    def __init__(self, open_it: Callable[[], _FileReader], reader: _FileReader | None = None) -> None:
        self._open_it = open_it
        self._reader = reader
        self._sought: Any = None  # until something was returned
        self._takes_more = True

    def read(self, items_max: int) -> list[Any] | None:
        if self._reader is None:
            if not self._takes_more:
                return None
            self._reader = self._open_it()
            if self._sought is not None:
                self._begin()
        try:
            payloads = self._reader.read(items_max)
        except NothingYet:
            return [] if self._takes_more else None
        if payloads:
            self._sought = None
        return payloads

    def _begin(self) -> None:
        """Begin with what another reader has left."""
        assert self._reader is not None
        file = self._reader.file
        names = "unread", "decoder", "lines", "within", "packed", "header", "items"
        *unread, header, items = position_fields(self._sought, "pipe", file.name, *names)
        file.begin_with(*unread)
        self._reader.begin_within(header, items)

    def position(self) -> Any:
        """What was taken and was not returned, once it is halted, or as long as nothing was."""
        if self._reader is not None and not self._takes_more and not self._reader.has_ended:
            header, items = self._reader.put_back()
            self._sought = position_of("pipe", **self._reader.file.unread(), header=header, items=items)
        return self._sought

    def seek(self, position: Any) -> None:
        self._sought = in_one_file(position) or None
        if self._reader is not None and self._sought is not None:
            self._begin()

    def halt(self) -> bool:
        """All that was taken is in the position, and nothing `left`."""
        self._takes_more = False
        if self._reader is not None:
            self._reader.file.halt()
        return True

    def filenos(self) -> Sequence[int]:
        pipe = None if self._reader is None else self._reader.file.pipe
        return () if pipe is None else (pipe,)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


class _FileReader(Reader):
    """Cuts the contents of a file into batches of the requested size."""

    def __init__(self, kind: str, file: File, batches: Callable[[File], Iterator[ReadLines]]) -> None:
        self._kind = kind
        self.file = file
        self._make = batches
        self._batches = batches(file)
        self._batch = ReadLines([])
        self._at = 0  # payloads of it that were returned
        self._lines = 0  # of its lines that were taken off the file
        self._behind = 0  # payloads that were returned since these lines
        self._header: list[str] | None = None  # of a CSV file, if it was known when the batch began
        self._to_skip = 0  # payloads to skip
        self.has_ended = False
        self._error: Exception | None = None

    def read(self, items_max: int) -> list[Any] | None:
        if self._error is not None:
            raise self._error
        while self._at >= len(self._batch.payloads):
            if not self.file.is_ready():
                return []
            header = self.file.header
            unreturned, self.file.unreturned = self.file.unreturned, []
            try:
                batch = next(self._batches, None)
            except Exception as error:  # the fault may lie before that line: the next reader meets it again
                self.file.unreturned[:0] = unreturned
                if not isinstance(error, NothingYet):
                    self._error = error
                elif self._to_skip:
                    raise self._position_lost() from None
                else:
                    self.put_back()
                    if self.file.pauses and self.file.pipe is None:
                        return None
                raise
            if batch is None and self._to_skip:
                raise self._position_lost()
            if batch is None:
                self.file.unreturned = unreturned
                self.has_ended = True
                return None
            self._batch, self._at, self._lines, self._behind, self._header = batch, 0, 0, 0, header
            skipped = min(self._to_skip, len(batch.payloads))
            self._at, self._to_skip = skipped, self._to_skip - skipped
        at = self._at
        self._at = min(at + items_max, len(self._batch.payloads))
        payloads: list[Any] = self._batch.payloads[at : self._at]
        return payloads

    def put_back(self) -> tuple[list[str] | None, int]:
        """What was not returned comes again: of a file that has no more at the moment, or of a pipe that is halted.

        Returns:
            The header that is known before it, and how many of its first payloads were returned.
        """
        self._take()
        if not self._lines:
            self.file.header = self._header
        self._header = self.file.header
        self.file.put_back()
        self._batches = self._make(self.file)
        self._batch, self._at, self._lines, self._to_skip, self._behind = (
            ReadLines([]),
            0,
            0,
            self._to_skip + self._behind,
            0,
        )
        return self._header, self._to_skip

    def _take(self) -> None:
        """Take the lines of the payloads that were returned off the file."""
        ends, lines, self._behind = self._batch.ends, self._at, 0
        if ends is not None:
            while self._behind < self._at and ends[self._at - self._behind - 1] < 0:
                self._behind += 1
            lines = ends[self._at - self._behind - 1] if self._behind < self._at else 0
        self.file.take(lines - self._lines)
        self._lines = lines

    def position(self) -> Any:
        self._take()
        header = self.file.header if self._lines else self._header
        items = self._behind or self._to_skip
        return position_of(self._kind, **self.file.start()._asdict(), header=header, items=items)

    def seek(self, position: Any) -> None:
        """The position may be one within this file, of a source that followed it."""
        position = in_one_file(position)
        if position == {}:
            return
        *start, header, items = position_fields(position, self._kind, self.file.name, *Start._fields, "header", "items")
        self.file.start_at(Start(*start))
        self.begin_within(header, items)

    def begin_within(self, header: list[str] | None, items: int) -> None:
        """Pass over so many payloads that were returned, where the columns of a CSV file are these."""
        self.file.header = self._header = header
        self._to_skip = items

    def _position_lost(self) -> InputError:
        return position_lost(self.file.name, "an item after the start of a line", f"it has {self._to_skip} fewer")

    def pause_at_end(self) -> bool:
        return self.file.pause_at_end()

    def complete(self) -> None:
        self.file.grows = False

    def end(self) -> Any:
        end = self.file.end() if self.has_ended else self.file.pass_over()
        return position_of(self._kind, **end._asdict(), header=self._header, items=0)

    @property
    def ended_at(self) -> int:  # type: ignore[override]
        return self.file.ended_at

    def fraction(self) -> float | None:
        return self.file.fraction()

    def backlog(self) -> tuple[int, str] | None:
        return self.file.backlog()

    def close(self) -> None:
        self._batch = ReadLines([])
        self.file.close()


def _check_follow(path: object, follow: bool) -> None:
    if follow and path == "-":
        raise SettingsError("standard input ends when it is closed, and nobody can follow it; leave follow=True out")
