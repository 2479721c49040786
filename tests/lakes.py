"""Tables of Delta Lake and of Iceberg, as tests write, read and change them."""

from __future__ import annotations

import select
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from waiting import HANG_S

from drift import sinks, sources
from drift_graph.meta import global_time
from drift_graph.metas import Metas

NAME = "days.rows"  # of the table of Iceberg


class Delta:
    """A table in a folder: what makes its sink and its source, and the function that commits a version."""

    library, commits = "deltalake", ("deltalake", "write_deltalake")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sink, self.source = partial(sinks.delta, folder), partial(sources.delta, folder)

    def table(self) -> Any:
        import deltalake

        return deltalake.DeltaTable(str(self.folder))

    def all_rows(self) -> pa.Table:
        return pa.table(self.table().to_pyarrow_table())

    def compact(self) -> None:
        self.table().optimize.compact()


class Iceberg:
    library, commits = "pyiceberg", ("drift.sinks.iceberg:IcebergSink", "_commit")

    def __init__(self, folder: Path) -> None:
        warehouse = f"file://{folder}/warehouse"
        self.catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": warehouse}
        self.sink = partial(sinks.iceberg, NAME, catalog=self.catalog)
        self.source = partial(sources.iceberg, NAME, catalog=self.catalog)

    def table(self) -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog("default", **self.catalog).load_table(NAME)

    def created(self, rows: pa.Table) -> None:
        """Make the table, of these rows."""
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog("default", **self.catalog)
        catalog.create_namespace_if_not_exists(NAME.partition(".")[0])
        catalog.create_table(NAME, rows.schema).append(rows)

    def all_rows(self) -> pa.Table:
        return self.table().scan().to_arrow()

    def compact(self) -> None:
        """As another engine does it, since PyIceberg does not."""
        import pyiceberg.table.update.snapshot as updates
        from pyiceberg.io.pyarrow import _dataframe_to_data_files
        from pyiceberg.table.snapshots import Operation, Summary
        from pytest import MonkeyPatch

        counted = updates.update_snapshot_summaries

        def summaries(summary: Any, **before: Any) -> Any:  # PyIceberg has none for such a snapshot
            made = counted(Summary(Operation.OVERWRITE, **summary.additional_properties), **before)
            return Summary(summary.operation, **made.additional_properties)

        table = self.table()
        rows = table.scan().to_arrow()
        with MonkeyPatch.context() as patch, table.transaction() as transaction:
            patch.setattr(updates, "update_snapshot_summaries", summaries)
            update = updates._OverwriteFiles(operation=Operation.REPLACE, transaction=transaction, io=table.io)
            with update as overwrite:
                for task in table.scan().plan_files():
                    overwrite.delete_data_file(task.file)
                for file in _dataframe_to_data_files(table_metadata=table.metadata, df=rows, io=table.io):
                    overwrite.append_data_file(file)


Lake = Delta | Iceberg


def meta_at(position: int) -> bytes:
    return global_time(position * 10, 0, 0, 0) + bytes(position % 5)


def row_at(position: int) -> dict[str, Any]:
    return {"n": position, "day": "ab"[position % 2]}


def expected(end: int) -> list[tuple[int, str]]:
    return [(position, row_at(position)["day"]) for position in range(end)]


def rows_in(lake: Lake) -> list[tuple[int, str]]:
    """Positions and days of the rows that a sink wrote."""
    rows = lake.all_rows().select(["position", "day"]).to_pylist()
    return sorted((row["position"], row["day"]) for row in rows if row["position"] is not None)


def write(sink: Any, start: int, end: int, row: Callable[[int], Any] = row_at) -> None:
    sink.write(range(start, end), Metas(list(map(meta_at, range(start, end)))), list(map(row, range(start, end))))


def opened(sink: Any, resumes: tuple[int, Any] | None = None) -> Any:
    if resumes is not None:
        sink.resume_at(*resumes)
    sink.open()
    return sink


def wrote(lake: Lake, start: int, end: int, row: Callable[[int], Any] = row_at, **more: Any) -> None:
    sink = opened(lake.sink(**more))
    write(sink, start, end, row)
    sink.close()


def drained(source: Any, position: Any = None, most: int = 10**9) -> tuple[list[Any], Any]:
    """What a source gives from a position on, at most so many items, and where it is then."""
    reader = source.open()
    found: list[Any] = []
    try:
        if position is not None:
            reader.seek(position)
        while len(found) < most and (some := reader.read(min(7, most - len(found)))) is not None:
            found += some
            if not some and source.live:
                assert select.select(reader.filenos(), (), (), HANG_S)[0]
        return found, reader.position()
    finally:
        reader.close()
