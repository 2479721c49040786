"""Tables of Delta Lake.

Invariant: the rows are those of one version of the table, file by file in the order in which these were written, and
then those of the files that each later version adds. A position is only taken by the table that it is of.

Why: files are never changed, and each version is the list of its files: a position is a version, a file that it has and
the number of a row. A version that takes rows away, or changes some, would have to change what was read, and is an
error; one that only puts rows into other files (OPTIMIZE) says in the log that it changes no data.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple
from urllib.parse import unquote

import msgspec

from drift.extras import need
from drift.guarantees import SourceGuarantee
from drift.sources.base import Diverting, Reader
from drift.sources.polled import Fetched, FiniteReader, LiveReader
from drift.sources.positions import position_fields, position_lost, position_of
from drift.sources.rows import Maker, check_payload, without
from drift.urls import path_text
from drift_graph.errors import InputError, SettingsError

if TYPE_CHECKING:
    import pyarrow as pa

_POLL_S = 0.5
_BATCH_ROWS = 1 << 12


def delta(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    payload: Literal["dict", "tuple", "value"] = "dict",
    type: Any = None,
    version: int | None = None,
    follow: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> DeltaSource:
    """Each row of a Delta table is a payload, with values as from `drift.sources.table`.

    A run with state that is called again goes on with what later versions have added. A source that is read anew begins
    with the latest version, in which files may have been compacted: then the rows come in another order.

    Args:
        path: the folder of the table, or its URL.
        columns: to read, in this order; None for all.
        payload: "dict" of column names and values, a "tuple" of the values, or the "value" of the only column.
        type: each row, as a dict, is converted to it, for instance a dataclass or a msgspec Struct.
        version: the rows of this version are read first, and, unless `follow`, no others; None for the latest.
        follow: whether the source is live: the rows that later versions add are read too, as these appear.
        storage_options: of the object store, for `deltalake`.

    Raises:
        SettingsError: an argument is not valid, or a library is missing.
    """
    need("delta", "drift.sources.delta")
    check_payload("delta", payload, type)
    if payload not in ("dict", "tuple", "value"):
        raise SettingsError(f"delta payload={payload!r} is neither 'dict', 'tuple' nor 'value'")
    if version is not None and (isinstance(version, bool) or not isinstance(version, int) or version < 0):
        raise SettingsError(f"delta version={version!r:.80} is not an int of 0 or more")
    named = path_text("delta", path, "table")
    return DeltaSource(named, columns, payload, type, version, follow, dict(storage_options or {}))


class DeltaSource(Diverting):
    """See `delta`."""

    guarantee: ClassVar = SourceGuarantee("from a position", "a version, a file and a row, until files are vacuumed")

    def __init__(
        self,
        path: str,
        columns: Sequence[str] | None,
        payload: Literal["dict", "tuple", "value"],
        kind: Any,
        version: int | None,
        follow: bool,
        storage_options: dict[str, str],
    ) -> None:
        self._path = path
        self._columns = None if columns is None else list(columns)
        self._payload = payload
        self._kind = kind
        self._version = version
        self.live = follow
        self._options = storage_options

    def open(self) -> Reader:
        poller = _Versions(self._path, self._options, self._version, self.live, self._rows_of)
        kind = self._kind
        return (LiveReader if self.live else FiniteReader)(
            poller, (lambda row: row) if kind is None else (lambda row: msgspec.convert(row, kind)), self._diverts_as
        )

    def _rows_of(self, name: str, schema: pa.Schema, fragment: Any, row: int) -> Iterator[list[Any]]:
        """The payloads of a file, from a row on."""
        columns = schema.names if self._columns is None else self._columns
        if missing := [each for each in columns if each not in schema.names]:
            raise InputError(f"{name} has no column {missing[0]!r}; it has {', '.join(map(repr, schema.names))}")
        make = Maker(name, columns, self._payload, None)
        batches = fragment.to_batches(schema=schema, columns=columns, batch_size=_BATCH_ROWS, use_threads=False)
        return map(make.plain, without(row, batches))

    def __repr__(self) -> str:
        return f"delta({self._path!r}{', followed' if self.live else ''})"


class _File(NamedTuple):
    """A file, as a fragment of a dataset, and the number of its rows; None if the table does not say."""

    fragment: Any
    rows: int | None


class _Versions:
    """Reads a version, and those after it.

    A mark is a version, the name of a file and the number of a row.
    """

    def __init__(self, path: str, options: dict[str, str], version: int | None, follow: bool, rows_of: Any) -> None:
        self._path = path
        self._options = options
        self._follow = follow
        self._rows_of = rows_of
        self._latest = self._at(version)
        self._end: int = self._latest.version()
        self._first = self._version = self._end
        self._id = str(self._latest.metadata().id)
        self._returned: tuple[int, str, int] = (self._first, "", 0)
        self._files: list[tuple[str, _File]] | None = None  # of the version that are not read yet; None before it is
        self._schema: Any = None
        self._file, self._row = "", 0  # that are read
        self._rows: Iterator[list[Any]] | None = None
        self._left: list[Any] = []  # rows of the file that were read ahead
        self._skip: tuple[str, int] | None = None  # where to begin in the version
        self._closed = threading.Event()

    def _at(self, version: int | None) -> Any:
        from deltalake import DeltaTable

        try:
            return DeltaTable(self._path, version=version, storage_options=self._options)
        except Exception as error:
            which = "" if version is None else f"version {version} of "
            raise InputError(f"{which}{self._path} cannot be read as a Delta table: {error}; check the path") from None

    def fetch(self, items_max: int, wait_s: float) -> Fetched | None:
        """See `Poller`."""
        while True:
            if not self._left and self._rows is not None:
                self._left = self._next_rows()
            if self._left:
                rows, self._left = self._left[:items_max], self._left[items_max:]
                marks = [(self._version, self._file, self._row + at) for at in range(len(rows))]
                self._row += len(rows)
                return Fetched(rows, marks)
            if self._rows is not None:
                self._rows = None
                continue
            if self._files is None:
                self._list()
            assert self._files is not None
            if self._files:
                self._open(*self._files.pop(0))
            elif self._version < self._end:
                self._version, self._files = self._version + 1, None
            elif not self._follow:
                return None
            elif not self._has_more(wait_s):
                return Fetched([], [])

    def _next_rows(self) -> list[Any]:
        assert self._rows is not None
        try:
            return next(self._rows, [])
        except InputError:
            raise
        except Exception as error:  # a file that is damaged, or gone
            raise InputError(
                f"version {self._version} of {self._path} cannot be read in {self._file} behind row {self._row}: "
                f"{type(error).__name__}: {error}; if it was removed by VACUUM, begin anew with another state"
            ) from error

    def _open(self, name: str, file: _File) -> None:
        self._file, self._row = name, 0
        if self._skip is not None:
            self._row, self._skip = self._skip[1], None
        try:
            self._rows = self._rows_of(f"{self._path}, {name}", self._schema, file.fragment, self._row)
        except OSError as error:
            raise InputError(f"{self._path}, {name} cannot be read: {error}") from error

    def _has_more(self, wait_s: float) -> bool:
        """Whether there is a later version, within some time."""
        self._closed.wait(min(wait_s, _POLL_S))
        try:
            self._latest.update_incremental()
        except Exception as error:
            raise InputError(f"{self._path} cannot be read as a Delta table: {error}") from None
        self._end = self._latest.version()
        return bool(self._end > self._version)

    def _list(self) -> None:
        """The files of the version that are to be read."""
        table = self._at(self._version)
        if str(table.metadata().id) != self._id:
            raise InputError(f"{self._path} is another table since version {self._version}; begin anew with it")
        self._schema, files = self._files_of(table)
        if self._version > self._first:
            added = self._added(self._version)
            files = {name: file for name, file in files.items() if name in added}
        self._files = list(files.items())
        if self._skip is not None:
            names = list(files)
            if self._skip[0] not in names:
                raise position_lost(self._path, f"{self._skip[0]} of version {self._version}", "it has no such file")
            del self._files[: names.index(self._skip[0])]
            if self._skip[1] == self._files[0][1].rows:  # it was read to its end, and need not be there any more
                del self._files[0]
                self._skip = None

    def _added(self, version: int) -> set[str]:
        """The files whose rows a version adds.

        Raises:
            InputError: it takes rows away, or its log is gone.
        """
        import pyarrow.fs
        from deltalake.fs import DeltaStorageHandler

        store = pyarrow.fs.PyFileSystem(DeltaStorageHandler(self._path, self._options or None))
        try:
            with store.open_input_file(f"_delta_log/{version:020}.json") as file:
                actions = [msgspec.json.decode(line) for line in file.read().splitlines() if line]
        except Exception as error:
            raise InputError(
                f"version {version} of {self._path} cannot be read from its log: {error}; begin anew with another state"
            ) from error
        if any(action["remove"].get("dataChange", True) for action in actions if "remove" in action):
            notes = [action["commitInfo"] for action in actions if "commitInfo" in action]
            operation = notes[0].get("operation") if notes else "?"
            raise InputError(
                f"version {version} of {self._path} ({operation}) takes rows away that were read; a table that is read "
                f"on has to grow only: begin anew with another state"
            )
        adds = [action["add"] for action in actions if "add" in action]
        return {unquote(add["path"]) for add in adds if add.get("dataChange", True)}

    def _files_of(self, table: Any) -> tuple[pa.Schema, dict[str, _File]]:
        """The columns and the files of a version, in the order in which they were written."""
        import pyarrow as pa

        try:
            dataset = table.to_pyarrow_dataset()
        except Exception as error:  # deletion vectors, names of columns by IDs
            raise InputError(f"{self._path} is of a kind that deltalake does not read: {error}") from None
        fragments = {fragment.path: fragment for fragment in dataset.get_fragments()}
        actions = pa.table(table.get_add_actions(flatten=True)).select(["modification_time", "path", "num_records"])
        order = sorted(actions.to_pylist(), key=lambda each: (each["modification_time"], each["path"]))
        named = [(unquote(each["path"]), each["num_records"]) for each in order]
        return dataset.schema, {name: _File(fragments[name], rows) for name, rows in named}

    def behind(self, marks: Sequence[Any]) -> None:
        """See `Poller`."""
        if marks:
            version, name, row = marks[-1]
            self._returned = version, name, row + 1

    def position(self) -> Any:
        """See `Poller`."""
        version, name, row = self._returned
        return position_of("delta", table=self._id, first=self._first, version=version, file=name, row=row)

    def seek(self, position: Any) -> None:
        """See `Poller`."""
        fields = "table", "first", "version", "file", "row"
        table, first, version, name, row = position_fields(position, "delta", self._path, *fields)
        if table != self._id:
            raise position_lost(self._path, f"version {version}", "it is another table")
        if version > self._end:
            raise position_lost(self._path, f"version {version}", f"it ends at {self._end}")
        self._first, self._version, self._returned = first, version, (version, name, row)
        if name:
            self._skip = name, row

    def location(self, mark: Any) -> str:
        """See `Poller`."""
        version, name, row = mark
        return f"version {version}, {name}, row {row + 1}"

    def close(self) -> None:
        """See `Poller`."""
        self._closed.set()
        self._rows = None
