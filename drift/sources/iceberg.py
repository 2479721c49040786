"""Tables of Iceberg; see `drift.sources.lake`. A version is a snapshot.

Why a snapshot that was read can be found again: the snapshots from the current one back, each with its parent, are the
history of the table. One that was rolled back is in none of them, and where snapshots behind it have expired, what they
added is not known any more: both are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from drift.extras import need
from drift.sources.lake import BATCH_ROWS, LakeFile, Versions, lake_source
from drift.sources.polled import PolledSource
from drift.sources.positions import position_lost
from drift_graph.errors import InputError, SettingsError

if TYPE_CHECKING:
    import pyarrow as pa

_NONE = 0  # the version before the first snapshot


def iceberg(
    table: str,
    *,
    catalog: str | Mapping[str, str] = "default",
    columns: Sequence[str] | None = None,
    payload: Literal["dict", "tuple", "value"] = "dict",
    type: Any = None,
    snapshot: int | None = None,
    follow: bool = False,
) -> PolledSource:
    """Each row of an Iceberg table is a payload, with values as from `drift.sources.table`.

    A run with state and `complete=False` that is called again goes on with what later snapshots have added. A source
    that is read anew begins with the current one, in which files may have been compacted: then the rows come in
    another order.

    >>> import drift
    >>> catalog = {"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": "file:///data/warehouse"}
    >>> trips = drift.sources.iceberg("taxi.trips", catalog=catalog, columns=["zone", "fare"])

    Args:
        table: its namespace and name, "trips.counts".
        catalog: its name in the configuration of PyIceberg, or its properties, such as {"type": "rest", "uri": ...}.
        columns: to read, in this order; None for all.
        payload: "dict" of column names and values, which stay columns until a function asks for one (extra `columns`);
            a "tuple" of the values, or the "value" of the only column.
        type: each row, as a dict, is converted to it, for instance a dataclass or a msgspec Struct.
        snapshot: the rows of the snapshot with this ID are read first, and, unless `follow`, no others; None for the
            current one.
        follow: whether the source is live: the rows that later snapshots add are read too, as these appear.

    Raises:
        SettingsError: an argument is not valid, or a library is missing.
    """
    need("iceberg", "drift.sources.iceberg")
    if not isinstance(table, str) or not all(table.split(".")) or "." not in table:
        raise SettingsError(f"iceberg({table!r:.80}): a table has a namespace and a name, such as 'trips.counts'")
    properties = {"name": catalog} if isinstance(catalog, str) else dict(catalog)
    return lake_source(
        f"iceberg({table!r})", lambda: _Snapshots(table, properties, snapshot), columns, payload, type, follow
    )


class _Snapshots(Versions):
    kind: ClassVar = "iceberg"
    gone: ClassVar = "if its snapshot has expired, begin anew with another state"

    def __init__(self, name: str, properties: dict[str, str], snapshot: int | None) -> None:
        from pyiceberg.catalog import load_catalog

        properties = {**properties}
        try:
            self._table = load_catalog(properties.pop("name", "default"), **properties).load_table(name)
        except Exception as error:
            raise InputError(f"{name} cannot be read as a table of Iceberg: {error}; check the catalog") from None
        super().__init__(name, str(self._table.metadata.table_uuid), self._current)
        if snapshot is not None:
            if self._table.snapshot_by_id(snapshot) is None:
                raise InputError(f"snapshot {snapshot} of {name} cannot be read: it is not there, or has expired")
            self.end = snapshot

    @property
    def _current(self) -> int:
        return self._table.metadata.current_snapshot_id or _NONE

    def refresh(self) -> None:
        try:
            self._table.refresh()
        except Exception as error:
            raise InputError(f"{self.name} cannot be read as a table of Iceberg: {error}") from None
        self.end = self._current

    def behind(self, version: int) -> int:
        return self._since(version)[0]

    def check(self, version: int) -> None:
        self._since(version)

    def _since(self, version: int) -> list[int]:
        """The snapshots behind a version up to the end.

        Raises:
            InputError: it is not in the history of the table, or snapshots behind it have expired.
        """
        found: list[int] = []
        at = self.end
        while at != version:
            snapshot = None if at == _NONE else self._table.snapshot_by_id(at)
            if snapshot is None:
                why = "that is not in its history any more: it was rolled back, or snapshots behind that have expired"
                raise position_lost(self.name, f"snapshot {version}", why)
            found.append(at)
            at = snapshot.parent_snapshot_id or _NONE
        return found[::-1]

    def files(self, version: int, *, added: bool) -> dict[str, LakeFile]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.manifest import DataFileContent, ManifestEntryStatus
        from pyiceberg.table import FileScanTask
        from pyiceberg.table.snapshots import Operation

        if version == _NONE:
            return {}
        table = self._table
        snapshot = table.snapshot_by_id(version)
        if snapshot is None:
            raise position_lost(self.name, f"snapshot {version}", "it has expired")
        operation = Operation.APPEND if snapshot.summary is None else snapshot.summary.operation
        added = added and snapshot.parent_snapshot_id is not None  # others may have expired before it
        if added and operation == Operation.REPLACE:
            return {}
        if added and operation != Operation.APPEND:
            raise self.takes_rows_away(version, operation.value)
        schema = table.scan(snapshot_id=version).projection()

        def file(entry: Any) -> LakeFile:
            def batches(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
                scan = ArrowScan(table.metadata, table.io, schema.select(*columns), AlwaysTrue())
                for batch in scan.to_record_batches([FileScanTask(entry.data_file)]):
                    for at in range(0, batch.num_rows, BATCH_ROWS):
                        yield batch.slice(at, BATCH_ROWS).select(columns)

            return LakeFile([field.name for field in schema.fields], entry.data_file.record_count, batches)

        manifests = snapshot.manifests(table.io)
        entries = [entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io)]
        if any(entry.data_file.content != DataFileContent.DATA for entry in entries):
            raise InputError(f"snapshot {version} of {self.name} has rows that are deleted in files of their own")
        if added:
            entries = [
                entry for entry in entries if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == version
            ]
        entries.sort(key=lambda entry: (entry.sequence_number or 0, entry.data_file.file_path))
        return {entry.data_file.file_path: file(entry) for entry in entries}
