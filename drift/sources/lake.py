"""Tables of a lake: the common part of the sources of Delta Lake and Iceberg.

Invariant: the rows are those of one version of the table, file by file in the order in which these were written, and
then those of the files that each later version adds. A position is only taken by the table that it is of.

Why: files are never changed, and each version is the list of its files: a position is a version, a file that it has and
the number of a row. A version that takes rows away, or changes some, would have to change what was read, and is an
error; one that only puts rows into other files says that it changes no data.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from drift.fields import check_names
from drift.guarantees import SourceGuarantee
from drift.sources.polled import AsMade, Fetched, PolledSource, Poller
from drift.sources.positions import position_fields, position_lost, position_of
from drift.sources.rows import Maker, check_payload, without
from drift_graph.errors import InputError, SettingsError

if TYPE_CHECKING:
    import pyarrow as pa

Payload = Literal["dict", "tuple", "value"]
_POLL_S = 0.5
_GUARANTEE = SourceGuarantee("from a position", "a version, a file and a row, until files are removed")
BATCH_ROWS = 1 << 14


class LakeFile(NamedTuple):
    """A file of a version.

    Attributes:
        columns: those that it is read with.
        rows: their number; None if the table does not say.
        batches: reads the columns of these names.
    """

    columns: Sequence[str]
    rows: int | None
    batches: Callable[[Sequence[str]], Iterator[pa.RecordBatch]]


def lake_source(
    shown: str,
    versions: Callable[[], Versions],
    columns: Sequence[str] | None,
    payload: Payload,
    kind: Any,
    follow: bool,
) -> PolledSource:
    """The source of a table. `shown`: the call that makes it. Raises SettingsError: an argument is not valid."""
    function = shown.partition("(")[0]
    check_payload(function, payload, kind)
    if payload not in ("dict", "tuple", "value"):
        raise SettingsError(f"{function} payload={payload!r} is neither 'dict', 'tuple' nor 'value'")
    check_names(columns)
    wanted = None if columns is None else list(columns)

    def payloads(name: str, file: LakeFile, row: int) -> Iterator[list[Any]]:
        columns = file.columns if wanted is None else wanted
        if missing := [each for each in columns if each not in file.columns]:
            raise InputError(f"{name} has no column {missing[0]!r}; it has {', '.join(map(repr, file.columns))}")
        return map(Maker(name, columns, payload, kind).in_columns, without(row, file.batches(columns)))

    return PolledSource(
        f"{shown}{', followed' if follow else ''}",
        _GUARANTEE,
        lambda: _Poller(versions(), payloads, follow=follow),
        AsMade(),
        live=follow,
    )


class Versions:
    """A table, and what a position says of it.

    Attributes:
        end: the version up to which it is read, unless it is followed.
    """

    kind: ClassVar[str]
    gone: ClassVar[str]  # why a file may be gone, and what to do

    def __init__(self, name: str, identity: str, end: int) -> None:
        self.name = name
        self.identity = identity
        self.end = end

    def refresh(self) -> None:
        """Look for a later `end`."""
        raise NotImplementedError

    def behind(self, version: int) -> int:
        """The version that follows one before the end."""
        raise NotImplementedError

    def check(self, version: int) -> None:
        """Raises InputError: a reader that was in this version cannot go on."""
        raise NotImplementedError

    def files(self, version: int, *, added: bool) -> dict[str, LakeFile]:
        """The files of a version in the order in which they were written, or those that it adds.

        Raises:
            InputError: it takes rows away, or cannot be read.
        """
        raise NotImplementedError

    def takes_rows_away(self, version: int, operation: str | None) -> InputError:
        """The error for a version that does."""
        return InputError(
            f"version {version} of {self.name} ({operation or '?'}) takes rows away that were read; a table that is "
            f"read on has to grow only: begin anew with another state"
        )


class _Poller(Poller):
    """A `Poller`: reads a version, then those after it. A mark is the number of a row among all that were read."""

    to_do = "correct it, leave its column out, columns=, or divert such rows: on_error='divert'"

    def __init__(
        self, table: Versions, payloads: Callable[[str, LakeFile, int], Iterator[list[Any]]], *, follow: bool
    ) -> None:
        self._table = table
        self.name = table.name
        self._payloads = payloads
        self._follow = follow
        self._first = self._version = table.end
        self._returned: tuple[int, str, int] = (self._first, "", 0)
        self._files: list[tuple[str, LakeFile]] | None = None  # of the version that are not read yet; None before it is
        self._file, self._row, self._read = "", 0, 0  # that are read, and how many rows were
        self._opened: list[tuple[int, int, str, int]] = []  # the first mark of a file, its version, name and first row
        self._rows: Iterator[list[Any]] | None = None
        self._left: list[Any] = []  # rows of the file that were read ahead
        self._skip: tuple[str, int] | None = None  # where to begin in the version
        self._closed = threading.Event()

    def fetch(self, items_max: int, wait_s: float) -> Fetched | None:
        while True:
            if not self._left and self._rows is not None:
                self._left = self._next_rows()
            if self._left:
                rows, self._left = self._left[:items_max], self._left[items_max:]
                marks = range(self._read, self._read + len(rows))
                self._row, self._read = self._row + len(rows), marks.stop
                return Fetched(rows, marks)
            if self._rows is not None:
                self._rows = None
                continue
            if self._files is None:
                self._list()
            assert self._files is not None
            if self._files:
                self._open(*self._files.pop(0))
            elif self._version != self._table.end:
                self._version, self._files = self._table.behind(self._version), None
            elif not self._follow:
                return None
            else:
                self._closed.wait(min(wait_s, _POLL_S))
                self._table.refresh()
                if self._version == self._table.end:
                    return Fetched([], [])

    def _next_rows(self) -> list[Any]:
        assert self._rows is not None
        try:
            return next(self._rows, [])
        except InputError:
            raise
        except Exception as error:  # a file that is damaged, or gone
            raise InputError(
                f"version {self._version} of {self._table.name} cannot be read in {self._file} behind row {self._row}: "
                f"{type(error).__name__}: {error}; {self._table.gone}"
            ) from error

    def _open(self, name: str, file: LakeFile) -> None:
        self._file, self._row = name, 0
        if self._skip is not None:
            self._row, self._skip = self._skip[1], None
        self._opened.append((self._read, self._version, name, self._row))
        try:
            self._rows = self._payloads(f"{self._table.name}, {name}", file, self._row)
        except OSError as error:
            raise InputError(f"{self._table.name}, {name} cannot be read: {error}") from error

    def _list(self) -> None:
        """The files of the version that are to be read."""
        found = self._table.files(self._version, added=self._version != self._first)
        self._files = list(found.items())
        if self._skip is not None:
            names = list(found)
            if self._skip[0] not in names:
                version = f"{self._skip[0]} of version {self._version}"
                raise position_lost(self._table.name, version, "it has no such file")
            del self._files[: names.index(self._skip[0])]
            if self._skip[1] == self._files[0][1].rows:  # it was read to its end, and need not be there any more
                del self._files[0]
                self._skip = None

    def behind(self, marks: Sequence[Any]) -> None:
        version, name, row = self._place(marks[-1])
        self._returned = version, name, row + 1

    def _place(self, mark: int) -> tuple[int, str, int]:
        """The version, file and row of a mark."""
        del self._opened[: bisect_right(self._opened, mark, key=itemgetter(0)) - 1]  # no earlier one is asked for
        first, version, name, row = self._opened[0]
        return version, name, row + mark - first

    def position(self) -> Any:
        version, name, row = self._returned
        table = self._table
        return position_of(table.kind, table=table.identity, first=self._first, version=version, file=name, row=row)

    def seek(self, position: Any) -> None:
        table = self._table
        fields = "table", "first", "version", "file", "row"
        identity, first, version, name, row = position_fields(position, table.kind, table.name, *fields)
        if identity != table.identity:
            raise position_lost(table.name, f"version {version}", "it is another table")
        table.check(version)
        self._first, self._version, self._returned = first, version, (version, name, row)
        if name:
            self._skip = name, row

    def location(self, mark: Any) -> str:
        version, name, row = self._place(mark)
        return f"version {version}, {name}, row {row + 1}"

    def close(self) -> None:
        self._closed.set()
        self._rows = None
