"""Files of lines, JSON and CSV, plain or gzip, and standard input.

Invariant: every payload before a fault of the file is given before the fault is raised, and the fault is named by
file and line. What is given does not depend on how the file was cut into chunks.

Why: chunks are cut into whole lines before anything looks at them, and a fault in the bytes (undecodable, or gzip
that ends early) is held back until the lines before it have gone.

A position is a place before some payload, and how many were given since. A place is the offset of a chunk, the
decoder's state there, and how many lines end in the chunk before: so a position is small, whatever the encoding and
however long the lines are. What is zipped is unzipped again to get there.
"""

from __future__ import annotations

import codecs
import copy
import csv as csv_module
import gzip
import io
import json
import os
import select
import stat
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from drift.guarantees import SourcePromise
from drift.sources.base import NothingYet, Reader, gone, position_of, where_in
from drift_graph.diverted import diverted, is_diverted
from drift_graph.errors import InputError, SettingsError

Chars = TypeVar("Chars", str, bytes)
Decoded = TypeVar("Decoded", str, bytes, covariant=True)
_CHUNK_BYTES = 1 << 18
_CHECK_BYTES = 64  # before a place, by which another file is known
_GZIP_MAGIC = b"\x1f\x8b"


def text(path: str | os.PathLike[str], encoding: str = "utf-8-sig", *, follow: bool = False) -> FileSource:
    """Each line of a file is a payload, without its newline.

    Args:
        path: a plain or a gzip file, or "-" for standard input. "\\n", "\\r\\n" and "\\r" end a line.
        encoding: as for `open`; the default is UTF-8 with or without a byte order mark.
        follow: go on, live: the last file, in the order of names, is read as it grows, until one behind it comes. A
            pattern or folder may be without files yet. What is gzip is whole when it comes: move it there.
    """
    _check_encoding(encoding)
    _check_follow(path, follow)

    def batches(file: _File) -> Iterator[list[Any]]:
        if file.apart:
            return _lines_or_errors(file, encoding, translate=True)
        return _lines(file, _Decoded(encoding, translate=True), "\n")

    return FileSource("text", path, batches)


def jsonl(path: str | os.PathLike[str], type: Any = Any, *, follow: bool = False) -> FileSource:
    """Each line of a file is a payload, as one JSON value in UTF-8. Lines of white space are passed over.

    An object with two equal keys is refused, where no `type` is given; a type takes the last of them.

    Args:
        path: a plain or a gzip file, or "-" for standard input.
        type: what each line must be, for instance a dataclass or a msgspec Struct; it is made so.
        follow: as of `text`.
    """
    _check_follow(path, follow)
    try:
        decode = msgspec.json.Decoder(type).decode
    except TypeError as error:
        raise SettingsError(f"jsonl type={type!r:.80}: {error}") from None
    return FileSource("jsonl", path, lambda file: _values(file, decode, typed=type is not Any))


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
    """Each row of a CSV file is a payload: a dict of column name to text. Blank lines are passed over.

    Args:
        path: a plain or a gzip file, or "-" for standard input.
        columns: names of the columns, for a file without a header row.
        convert: for a column, a function that makes its text into a value: {"delay": int}.
        encoding: as for `open`; the default also takes the byte order mark that spreadsheets write.
        follow: as of `text`; each file has its header row.
        dialect: other format parameters of `csv.reader`, such as quotechar; strict is True unless given.
    """
    _check_encoding(encoding)
    _check_follow(path, follow)
    parameters = {"strict": True, "delimiter": delimiter, **dialect}
    try:
        csv_module.reader((), **parameters)
    except (TypeError, ValueError, csv_module.Error) as error:
        raise SettingsError(f"csv format parameters {parameters}: {error}") from None
    if columns is not None:
        _check_columns("csv", columns, convert or {}, SettingsError)

    def batches(file: _File) -> Iterator[list[Any]]:
        rows = _rows_or_errors if file.apart else _rows
        return rows(file, encoding, parameters, columns, convert or {})

    return FileSource("csv", path, batches)


class FileSource:
    """A file to be read in batches; it can be opened again and again."""

    promise = SourcePromise("from a position", "a place in the file, as long as it is there")
    live = False

    def __init__(
        self, kind: str, path: str | os.PathLike[str], batches: Callable[[_File], Iterator[list[Any]]]
    ) -> None:
        try:
            self._path = os.fsdecode(path)
        except TypeError:
            raise SettingsError(f"{kind}({path!r:.80}): the path of a file is a text or a pathlib.Path") from None
        self._kind = kind
        self._batches = batches
        self._apart = ""
        self._grows = False
        if self._path == "-" or _is_pipe(self._path):
            self.promise = SourcePromise("not at all", "a pipe gives each byte once")

    def setting_apart(self, name: str) -> FileSource:
        """See `SetsApart`."""
        source = copy.copy(self)
        source._apart = name
        return source

    def growing(self) -> FileSource:
        """The same source, whose reader raises `NothingYet` at the end of what is there; what is gzip is whole."""
        source = copy.copy(self)
        source._grows = True
        return source

    def open(self) -> Reader:
        file = _File(self._path)
        file.apart = self._apart
        file.grows = self._grows and not file.is_gzip
        return _FileReader(self._kind, file, self._batches(file))

    def __repr__(self) -> str:
        return f"{self._kind}({self._path!r})"


class _FileReader:
    """Cuts the batches of a file to the size that is asked for."""

    def __init__(self, kind: str, file: _File, batches: Iterator[list[Any]]) -> None:
        self._kind = kind
        self._file = file
        self._batches = batches
        self._batch: list[Any] = []
        self._at = 0
        self._before = file.place
        self._given = 0  # payloads since that place
        self._to_pass = 0  # payloads that were given before
        self._error: Exception | None = None

    def read(self, items_max: int) -> list[Any] | None:
        if self._error is not None:
            raise self._error
        while self._at >= len(self._batch):
            if not self._file.is_ready():
                return []
            place = self._file.place
            try:
                batch = next(self._batches, None)
            except NothingYet:
                if self._to_pass:
                    raise self._gone() from None
                raise
            except Exception as error:  # which lies before that place, perhaps: who goes on meets it again
                self._error = error
                raise
            if not self._to_pass:
                self._before, self._given = place, 0
            if batch is None and self._to_pass:
                raise self._gone()
            if batch is None:
                return None
            self._batch, self._at = batch, min(self._to_pass, len(batch))
            self._to_pass -= self._at
        given = self._batch[self._at : self._at + items_max]
        self._at += len(given)
        self._given += len(given)
        return given

    def position(self) -> Any:
        """See `Positioned`."""
        if self._file.pipe is not None:
            return None
        return position_of(self._kind, **self._before._asdict(), items=self._given)

    def seek(self, position: Any) -> None:
        """See `Positioned`."""
        *place, items = where_in(position, self._kind, self._file.name, *_Place._fields, "items")
        self._file.go_to(_Place(*place))
        self._before, self._given, self._to_pass = self._file.place, items, items

    def _gone(self) -> InputError:
        return gone(self._file.name, f"item {self._given} from a place on", f"it has {self._to_pass} fewer")

    @property
    def ended_at(self) -> int:
        """How many bytes of the file were there at its end."""
        return self._file.ended_at

    def filenos(self) -> Sequence[int]:
        return () if self._file.pipe is None else (self._file.pipe,)

    def fraction(self) -> float | None:
        """How much of the file has been read, 0 to 1; None where nobody knows how long it is."""
        return self._file.fraction()

    def close(self) -> None:
        self._batch = []
        self._file.close()


class _File:
    """The bytes of a file as they come, unzipped where they are gzip."""

    def __init__(self, path: str) -> None:
        self.name = "standard input" if path == "-" else path
        self._own = path != "-"
        try:
            opened = Path(path).open("rb") if self._own else sys.stdin.buffer  # noqa: SIM115
        except OSError as error:
            raise InputError(f"{path} cannot be opened: {error.strerror}; {_advice(error)}") from None
        except AttributeError:
            raise InputError("standard input is closed, or replaced by something without bytes") from None
        self._raw: Any = opened
        self._bytes: Any = opened
        self.is_gzip = False
        self._begun = False
        self.place = _Place(0, 0, None, 0, 0, 0, None)  # behind what was given; whoever gives it keeps it
        self.before = b""  # the last bytes before it
        self.apart = ""  # the source's name, where what cannot be read is to be set apart
        self.grows = False
        self.ended_at = 0
        self._size, self.pipe = _size_or_pipe(opened)
        try:
            if path.endswith(".gz") or (hasattr(opened, "peek") and opened.peek(2)[:2] == _GZIP_MAGIC):
                self._bytes = gzip.GzipFile(fileobj=opened)
                self.is_gzip = True
        except OSError as error:
            self.close()
            raise InputError(f"{path} cannot be read: {error.strerror}; {_advice(error)}") from None

    def is_ready(self) -> bool:
        """Whether the next chunk is there, or its end; a pipe's may have to be waited for."""
        if self.pipe is None or not self._begun:  # looking for gzip has waited for the first bytes already
            return True
        return bool(select.select([self.pipe], [], [], 0)[0])

    def fraction(self) -> float | None:
        return self._raw.tell() / self._size if self._size else None

    def chunk(self) -> tuple[bytes, str]:
        """The next bytes, none at the end; and what is wrong after them, or ""."""
        self._begun = True
        try:
            data: bytes = self._bytes.read1(_CHUNK_BYTES)
        except EOFError:
            return b"", "the gzip data end early, the file was cut off; get the whole file"
        except (gzip.BadGzipFile, zlib.error) as error:
            return b"", f"the gzip data are broken ({error}); get the file again, or unpack what is sound of it"
        except (OSError, ValueError) as error:
            return b"", f"reading failed ({error}); look at the disk or the connection"
        if not data and self.grows:
            raise NothingYet(f"{self.name} has no more yet")
        if not data and self.pipe is None:
            self.ended_at = self._raw.tell()
        return data, ""

    def go_to(self, place: _Place) -> None:
        """Before the first chunk: give those from there on.

        Raises:
            InputError: the file does not reach as far, or has something else before that.
        """
        self.place, offset = place, place.offset
        if self.pipe is not None:
            raise InputError(f"{self.name} is a pipe, which nobody can read again from byte {offset}")
        start = max(offset - _CHECK_BYTES, 0)
        try:
            self._bytes.seek(start)
            self.before = self._bytes.read(offset - start)
        except (EOFError, zlib.error, OSError) as error:
            raise InputError(f"{self.name} cannot be read up to byte {offset:,}: {error}; get the file again") from None
        if len(self.before) < offset - start:
            raise gone(self.name, f"byte {offset:,}", "it is shorter")
        if zlib.crc32(self.before) != place.check:
            raise gone(self.name, f"byte {offset:,}", "it has something else before that: it is another file")

    def set_apart(self, line: int, error: str, payload: Any) -> Any:
        """In place of what cannot be read. The name of the file is not in it: it may be another one on another day."""
        return diverted(f"{self.apart}, line {line}", error, payload)

    def close(self) -> None:
        if self._bytes is not self._raw:
            self._bytes.close()
        if self._own:
            self._raw.close()


class _Place(NamedTuple):
    """A place in a file, before a line.

    Attributes:
        offset: of a chunk, in bytes, of what is unzipped.
        check: CRC of the bytes before that, `_CHECK_BYTES` at most.
        state: of the decoder before the chunk: bytes in hexadecimal and a number; None for a new one.
        skip: lines that end from there on before the place.
        lines: that end before the place.
        counted: lines before the place where those that cannot be decoded are set apart.
        header: of a CSV file, once it is known.
    """

    offset: int
    check: int
    state: list[Any] | None
    skip: int
    lines: int
    counted: int
    header: list[str] | None


def _is_pipe(path: str) -> bool:
    try:
        return stat.S_ISFIFO(Path(path).stat().st_mode)
    except (OSError, ValueError):
        return False


def _size_or_pipe(opened: Any) -> tuple[int, int | None]:
    """The bytes of a regular file, or the descriptor of something that gives them in its own time."""
    try:
        status = os.fstat(opened.fileno())
    except (OSError, AttributeError):
        return 0, None
    return (status.st_size, None) if stat.S_ISREG(status.st_mode) else (0, opened.fileno())


def _advice(error: OSError) -> str:
    if isinstance(error, IsADirectoryError):
        return "give one of the files in it"
    if isinstance(error, PermissionError):
        return "let this user read it"
    return "check the path"


def _lines(file: _File, decode: _Decoder[Chars], newline: Chars) -> Iterator[list[Chars]]:
    """The lines of a file without their newlines, in batches, from its place on, which goes along."""
    nothing = newline[:0]
    unended: list[Chars] = []  # pieces of a line whose end has not come
    begins = file.place  # where that line does
    offset, skip, given = begins.offset, begins.skip, begins.lines
    decode.go_to(begins.state)
    while True:
        chunk = begins._replace(offset=offset, check=zlib.crc32(file.before), state=decode.state())
        data, fault = file.chunk()
        offset += len(data)
        file.before = data[-_CHECK_BYTES:] if len(data) >= _CHECK_BYTES else (file.before + data)[-_CHECK_BYTES:]
        try:
            decoded = decode(data, not data and not fault)
        except UnicodeDecodeError as error:
            bad = error.object[error.start : error.end]
            fault = f"{bad!r:.40} is not {error.encoding} ({error.reason}); pass the encoding that the file has"
            sound = error.start - (len(error.object) - len(data))  # the decoder may hold bytes of the chunk before
            decoded = decode(data[: max(sound, 0)], False)
        lines = decoded.split(newline)
        ended = len(lines) - 1
        if skip:  # lines that were given before
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
            given += len(lines)
            file.place = begins._replace(lines=given, counted=file.place.counted, header=file.place.header)
            yield lines
        if fault:
            raise InputError(f"{file.name}, line {given + 1}: {fault}")
        if not data:
            return


def _lines_or_errors(file: _File, encoding: str, *, translate: bool) -> Iterator[list[Any]]:
    """The lines of a file, those that cannot be decoded set apart; for encodings in which ASCII is itself.

    Args:
        translate: whether "\\r" ends a line as well.
    """
    if "\r\n".encode(encoding.removesuffix("-sig")) != b"\r\n":
        raise SettingsError(
            f"source {file.apart!r} is to set lines apart that are not {encoding}, but in that encoding a line's end "
            f"cannot be seen before it is decoded; leave on_error='error'"
        )
    given = file.place.counted
    for chunk in _lines(file, _Undecoded(), b"\n"):
        if not given and encoding.endswith("-sig"):
            chunk[0] = chunk[0].removeprefix(codecs.BOM_UTF8)
        data = b"\n".join(line.removesuffix(b"\r") for line in chunk) if translate else b"\n".join(chunk)
        data = data.replace(b"\r", b"\n") if translate else data
        lines: list[Any]
        try:
            lines = data.decode(encoding.removesuffix("-sig")).split("\n")
        except UnicodeDecodeError:
            lines = [_decoded(file, given + at, line, encoding) for at, line in enumerate(data.split(b"\n"), 1)]
        given += len(lines)
        file.place = file.place._replace(counted=given)
        yield lines


def _decoded(file: _File, number: int, line: bytes, encoding: str) -> Any:
    try:
        return line.decode(encoding.removesuffix("-sig"))
    except UnicodeDecodeError as error:
        bad = error.object[error.start : error.end]
        return file.set_apart(number, f"{bad!r:.40} is not {error.encoding} ({error.reason})", line)


class _Decoder(Protocol[Decoded]):
    """Decodes bytes as they come; its state is what it knows of those before."""

    def __call__(self, data: bytes, final: bool) -> Decoded:
        """What the bytes stand for, and those that were held back; `final` where they are the last."""

    def state(self) -> list[Any]: ...

    def go_to(self, state: list[Any] | None) -> None: ...


class _Undecoded:
    """Bytes stand for themselves."""

    def __call__(self, data: bytes, final: bool) -> bytes:
        return data

    def state(self) -> list[Any]:
        return []

    def go_to(self, state: list[Any] | None) -> None:
        pass


class _Decoded:
    """Of an encoding of Python; newlines are "\n" where they are translated."""

    def __init__(self, encoding: str, *, translate: bool) -> None:
        # The signature in typeshed wants a str, which is only one of the two things this class takes.
        self._newlines: Any = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)(), translate)

    def __call__(self, data: bytes, final: bool) -> str:
        text: str = self._newlines.decode(data, final=final)
        return text

    def state(self) -> list[Any]:
        held, number = self._newlines.getstate()
        return [held.hex(), number]

    def go_to(self, state: list[Any] | None) -> None:
        if state is not None:
            self._newlines.setstate((bytes.fromhex(state[0]), state[1]))


def _check_follow(path: object, follow: bool) -> None:
    if follow and path == "-":
        raise SettingsError("standard input ends when it is closed, and nobody can follow it; leave follow=True out")


def _check_encoding(encoding: str) -> None:
    try:
        "".encode(encoding)
    except (LookupError, TypeError) as error:
        raise SettingsError(f"encoding={encoding!r}: {error}") from None


def _values(file: _File, decode: Callable[[bytes], Any], *, typed: bool) -> Iterator[list[Any]]:
    """The JSON values of a file, in batches."""
    lines_before = file.place.lines
    for lines in _lines(file, _Undecoded(), b"\n"):
        if not lines_before:
            lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
        values: list[Any] = []
        fault: InputError | None = None
        try:
            values = list(map(decode, lines))
        except _NOT_JSON:
            values, fault = _values_one_by_one(file, decode, lines, lines_before, typed=typed)
        else:
            if not typed and _may_repeat_keys(lines, values):
                values, fault = _values_one_by_one(file, decode, lines, lines_before, typed=typed)
        if values:
            yield values
        if fault is not None:
            raise fault
        lines_before += len(lines)


def _values_one_by_one(
    file: _File, decode: Callable[[bytes], Any], lines: list[bytes], lines_before: int, *, typed: bool
) -> tuple[list[Any], InputError | None]:
    """The values of lines, of which some are blank or bad: up to the first bad one, or with these set apart."""
    values: list[Any] = []
    for number, line in enumerate(lines, lines_before + 1):
        try:
            value = decode(line)
            if not typed and _may_repeat_keys([line], [value]):
                json.loads(line, object_pairs_hook=_without_repeated_keys)
        except _NOT_JSON as error:
            if not line.strip():
                continue
            if not file.apart:
                return values, InputError(
                    f"{file.name}, line {number}: cannot be decoded as JSON: {error}; the line is {line!r:.80}; "
                    f"correct it or take it out"
                )
            value = file.set_apart(number, f"cannot be decoded as JSON: {error}", line)
        values.append(value)
    return values, None


def _may_repeat_keys(lines: list[bytes], values: list[Any]) -> bool:
    """Whether some object may have a key twice; False only where none has.

    A colon follows a key or is in a text. So there are as many as keys where no key got lost and no text has one; and
    as many as in what is written again of the values, unless a text has one as an escape.
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


def _rows(
    file: _File,
    encoding: str,
    parameters: Mapping[str, Any],
    columns: Sequence[str] | None,
    convert: Mapping[str, Callable[[str], Any]],
) -> Iterator[list[dict[str, Any]]]:
    """The rows of a CSV file, in batches: those of the lines that are there, so that a pipe is not waited for."""
    lines_read = 0
    lines_passed = file.place.lines

    def lines() -> Iterator[Iterator[str]]:
        nonlocal lines_read
        for batch in _lines(file, _Decoded(encoding, translate=False), "\n"):
            lines_read += len(batch)
            yield (line + "\n" for line in batch)

    reader = csv_module.reader(chain.from_iterable(lines()), **parameters)
    header = file.place.header if columns is None else list(columns)
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
            _check_columns(where, header, convert, InputError)
            file.place = file.place._replace(header=header)
        if header is not None:
            payloads, bad = _dicts(file.name, header, rows, lines_before, convert)
            fault = bad or fault
            if payloads:
                yield payloads
    if fault is not None:
        raise fault
    if header is None:
        raise InputError(f"{file.name}, line 1: the file is empty; CSV starts with a header row, or pass columns=")


def _rows_or_errors(
    file: _File,
    encoding: str,
    parameters: Mapping[str, Any],
    columns: Sequence[str] | None,
    convert: Mapping[str, Callable[[str], Any]],
) -> Iterator[list[Any]]:
    """The same, with rows that are none, do not fit or cannot be converted, and lines that are no text, set apart."""
    waiting: deque[tuple[int, str]] = deque()  # numbers and text of the lines of a row that is not there yet
    undecoded: deque[tuple[int, Any]] = deque()
    number, given = file.place.lines, 0

    def lines() -> Iterator[list[str]]:
        nonlocal number, given
        for batch in _lines_or_errors(file, encoding, translate=False):
            good: list[str] = []
            for line in batch:
                number += 1
                if is_diverted(line):
                    undecoded.append((number, line))
                else:
                    good.append(line + "\n")
                    waiting.append((number, line))
            given += len(good)
            yield good

    reader = csv_module.reader(chain.from_iterable(lines()), **parameters)
    header = file.place.header if columns is None else list(columns)
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
                payloads.append(file.set_apart(start, f"the row that starts here is no CSV: {row}", text))
            elif row and header is None:
                header = row
                _check_columns(f"{file.name}, line {start}", header, convert, InputError)
                file.place = file.place._replace(header=header)
            elif row and header is not None:
                good_row, fault = _dicts(file.name, header, [row], [start - 1], convert)
                reason = str(fault).removeprefix(f"{file.name}, line {start}: ")
                payloads += good_row or [file.set_apart(start, reason, row)]
            if reader.line_num == given:
                break
        payloads += (line for _, line in undecoded)
        undecoded.clear()
        if payloads:
            yield payloads
    if header is None:
        raise InputError(f"{file.name}, line 1: the file is empty; CSV starts with a header row, or pass columns=")


def _check_columns(
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
