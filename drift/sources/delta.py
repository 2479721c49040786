"""Tables of Delta Lake; see `drift.sources.lake`.

A version that only puts rows into other files (OPTIMIZE) says in the log that it changes no data.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal
from urllib.parse import unquote

import msgspec

from drift.extras import need
from drift.sources.lake import BATCH_ROWS, LakeFile, Versions, lake_source
from drift.sources.polled import PolledSource
from drift.sources.positions import position_lost
from drift.urls import path_text
from drift_graph.errors import InputError
from drift_graph.numbers import check_int


def delta(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    payload: Literal["dict", "tuple", "value"] = "dict",
    type: Any = None,
    version: int | None = None,
    follow: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> PolledSource:
    """Each row of a Delta table is a payload, with values as from `drift.sources.table`.

    A run with state and `complete=False` that is called again goes on with what later versions have added. A source
    that is read anew begins with the latest version, in which files may have been compacted: then the rows come in
    another order.

    >>> import drift, deltalake, pyarrow
    >>> deltalake.write_deltalake("fares", pyarrow.table({"fare": [30.5, 9.0]}))
    >>> graph = drift.Graph("fares")
    >>> graph.source("fares").sink("out")
    >>> [item.payload for item in drift.run(graph, {"fares": drift.sources.delta("fares")})]
    [{'fare': 30.5}, {'fare': 9.0}]

    Args:
        path: the folder of the table, or its URL.
        columns: to read, in this order; None for all.
        payload: "dict" of column names and values, which stay columns until a function asks for one (extra `columns`);
            a "tuple" of the values, or the "value" of the only column.
        type: each row, as a dict, is converted to it, for instance a dataclass or a msgspec Struct.
        version: the rows of this version are read first, and, unless `follow`, no others; None for the latest.
        follow: whether the source is live: the rows that later versions add are read too, as these appear.
        storage_options: of the object store, for `deltalake`.

    Raises:
        SettingsError: an argument is not valid, or a library is missing.
    """
    need("delta", "drift.sources.delta")
    if version is not None:
        check_int("delta version", version, 0)
    named, options = path_text("delta", path, "table"), dict(storage_options or {})
    return lake_source(
        f"delta({named!r})", lambda: _DeltaVersions(named, options, version), columns, payload, type, follow
    )


class _DeltaVersions(Versions):
    kind: ClassVar = "delta"
    gone: ClassVar = "if it was removed by VACUUM, begin anew with another state"

    def __init__(self, path: str, options: dict[str, str], version: int | None) -> None:
        self._path = path
        self._options = options
        self._latest = self._at(version)
        super().__init__(path, str(self._latest.metadata().id), self._latest.version())

    def _at(self, version: int | None) -> Any:
        from deltalake import DeltaTable

        try:
            return DeltaTable(self._path, version=version, storage_options=self._options)
        except Exception as error:
            which = "" if version is None else f"version {version} of "
            raise InputError(f"{which}{self._path} cannot be read as a Delta table: {error}; check the path") from None

    def refresh(self) -> None:
        try:
            self._latest.update_incremental()
        except Exception as error:
            raise InputError(f"{self._path} cannot be read as a Delta table: {error}") from None
        self.end = self._latest.version()

    def behind(self, version: int) -> int:
        return version + 1

    def check(self, version: int) -> None:
        if version > self.end:
            raise position_lost(self._path, f"version {version}", f"it ends at {self.end}")

    def files(self, version: int, *, added: bool) -> dict[str, LakeFile]:
        table = self._at(version)
        if str(table.metadata().id) != self.identity:
            raise InputError(f"{self._path} is another table since version {version}; begin anew with it")
        files = self._files_of(table)
        if added:
            names = self._added(version)
            files = {name: file for name, file in files.items() if name in names}
        return files

    def _added(self, version: int) -> set[str]:
        """The files whose rows a version adds. Raises InputError: it takes rows away, or its log is gone."""
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
            raise self.takes_rows_away(version, notes[0].get("operation") if notes else "?")
        adds = [action["add"] for action in actions if "add" in action]
        return {unquote(add["path"]) for add in adds if add.get("dataChange", True)}

    def _files_of(self, table: Any) -> dict[str, LakeFile]:
        """The files of a version, in the order in which they were written."""
        import pyarrow as pa

        try:
            dataset = table.to_pyarrow_dataset()
        except Exception as error:  # deletion vectors, names of columns by IDs
            raise InputError(f"{self._path} is of a kind that deltalake does not read: {error}") from None
        for name in table.metadata().partition_columns:
            if pa.types.is_binary(dataset.schema.field(name).type):
                raise InputError(
                    f"{self._path} is partitioned by {name!r}, which is binary: its log has these bytes as text, and "
                    f"deltalake gives the bytes of that text; write the table anew with a column of text"
                )
        fragments = {fragment.path: fragment for fragment in dataset.get_fragments()}
        actions = pa.table(table.get_add_actions(flatten=True)).select(["modification_time", "path", "num_records"])

        def file(name: str, rows: int | None) -> LakeFile:
            read, schema = fragments[name].to_batches, dataset.schema
            return LakeFile(
                schema.names,
                rows,
                lambda columns: read(schema=schema, columns=columns, batch_size=BATCH_ROWS, use_threads=False),
            )

        order = sorted(actions.to_pylist(), key=lambda each: (each["modification_time"], each["path"]))
        named = [(unquote(each["path"]), each["num_records"]) for each in order]
        return {name: file(name, rows) for name, rows in named}
