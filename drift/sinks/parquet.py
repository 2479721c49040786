"""A folder of Parquet files.

Invariant: the files of the folder, in the order of their names, are the items up to the last position that a name
tells; a file is there as a whole or not at all.

Why: a part is written under another name, brought to the disk, and then renamed to the positions that it holds.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from drift.extras import need
from drift.promises import SinkPromise
from drift.sinks.resuming import Last, Resuming, check_resume, refuse_existing
from drift.sinks.rows import OF_ITEMS
from drift_graph.errors import PayloadError, SettingsError, SinkError
from drift_graph.meta import Metas, time_of

if TYPE_CHECKING:
    import pyarrow as pa

_PART = re.compile(r"part-(\d{15})-(\d{15})\.parquet")
_META = b"drift.meta"


def parquet(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | Mapping[str, Any] | None = None,
    part_items: int = 1_000_000,
    resume: Literal["continue", "replace", "error"] = "continue",
) -> ParquetSink:
    """A folder of Parquet files with a row for each item: position, time, and typed columns of the payload's fields.

    Every reader of Parquet takes it as one table: pandas and Spark the folder, DuckDB and Polars PATH/*.parquet. A part
    is written when so many items have come, and at the end: what is not in a part yet is written by the next run.

    Args:
        path: the folder; it is made.
        columns: names of the fields, of tuples in their order, or their Arrow types by name; None for those that
            payloads have.
        part_items: most items of a file.
        resume: what to do where runs have written before: "continue" behind them, "replace" their files, or "error".
    """
    need("parquet", "drift.sinks.parquet")
    check_resume(resume)
    if type(part_items) is not int or part_items < 1:
        raise SettingsError(f"part_items={part_items!r} is not an int of 1 or more")
    try:
        return ParquetSink(Path(os.fsdecode(path)), columns, part_items, resume)
    except TypeError:
        raise SettingsError(f"parquet({path!r:.80}): the path of a folder is a text or a pathlib.Path") from None


class ParquetSink:
    """See `parquet`."""

    promise: ClassVar = SinkPromise("exactly once", "the name of each part tells the positions in it")

    def __init__(
        self, path: Path, columns: Sequence[str] | Mapping[str, Any] | None, part_items: int, resume: str
    ) -> None:
        self._path = path
        self._columns = columns
        self._part_items = part_items
        self._resume = resume
        self._resuming = Resuming(str(path))
        self._last: Last | None = None
        self._lock: int | None = None
        self._positions: list[int] = []
        self._times: list[int] = []
        self._payloads: list[Any] = []
        self._meta = b""  # of the last of them
        self._schema: pa.Schema | None = None

    def open(self) -> None:
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self._path, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            parts = self._parts()
            if self._resume == "error":
                refuse_existing(str(self._path), parts)
            if self._resume == "replace":
                for part in parts:
                    part.unlink()
                parts = []
            self._last = self._last_of(parts[-1]) if parts else None
        except BlockingIOError:
            raise SinkError(f"another run writes to {self._path}; wait for its end, or give each its own") from None
        except OSError as error:
            raise SinkError(
                f"the folder {self._path} cannot be written: {error.strerror}; nothing was written; check the path and "
                f"who may write there"
            ) from error
        self._resuming.begin(self._last)

    def committed_position(self) -> int | None:
        """Of the last item that is in a part; None before the first."""
        return None if self._last is None else self._last.position

    def write(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> None:
        positions, metas, payloads = self._resuming.new(positions, metas, payloads)
        if not positions:
            return
        self._positions += positions
        self._times += map(time_of, metas)
        self._payloads += payloads
        self._meta = metas[-1]
        if len(self._positions) >= self._part_items:
            self._write_part()

    @property
    def goes_on(self) -> bool:
        """An earlier run has written more than this one has given."""
        return self._resuming.goes_on

    def complete(self) -> None:
        self._resuming.complete()

    def close(self) -> None:
        try:
            if self._positions:
                self._write_part()
        finally:
            lock, self._lock = self._lock, None
            if lock is not None:
                os.close(lock)

    def _write_part(self) -> None:
        import pyarrow.parquet as pq

        first, last = self._positions[0], Last(self._positions[-1], self._meta)
        safe = "nothing was written" if self._last is None else f"the items up to {self._last.position} are safe"
        unfinished = self._path / f".part-{os.getpid()}.unfinished"
        try:
            table = self._table().replace_schema_metadata({_META: self._meta.hex()})
            pq.write_table(table, unfinished, compression="zstd")
            with unfinished.open("rb") as written:
                os.fsync(written.fileno())
            unfinished.rename(self._path / f"part-{first:015d}-{last.position:015d}.parquet")
            assert self._lock is not None
            os.fsync(self._lock)
        except (PayloadError, OSError) as error:
            with suppress(OSError):
                unfinished.unlink()
            raise SinkError(
                f"{self._path} does not take the items at positions {first} to {last.position}: {error}; {safe}; clear "
                f"that up, and run again"
            ) from error
        finally:
            self._positions, self._times, self._payloads = [], [], []
        self._last = last

    def _table(self) -> pa.Table:
        import pyarrow as pa

        from drift.sinks.typed import Tables

        items = dict(zip(OF_ITEMS, (pa.array(self._positions, pa.int64()), pa.array(self._times, pa.int64()))))
        tables = Tables(str(self._path), self._columns)
        tables.add(items, self._payloads)
        table = tables.table()
        if self._schema is not None:  # of the parts before: where it can be, the parts have one schema
            try:
                table = pa.concat_tables([self._schema.empty_table(), table], promote_options="permissive")
            except pa.ArrowException as error:
                raise PayloadError(
                    f"{error}; name types that hold all values: columns={{NAME: pyarrow type}}"
                ) from None
        self._schema = table.schema.remove_metadata()
        return table

    def _parts(self) -> list[Path]:
        return sorted(path for path in self._path.iterdir() if _PART.fullmatch(path.name))

    def _last_of(self, part: Path) -> Last:
        import pyarrow as pa
        import pyarrow.parquet as pq

        found = _PART.fullmatch(part.name)
        assert found is not None
        try:
            schema = pq.read_schema(part)
        except pa.ArrowException as error:
            raise SinkError(
                f"{part} is no Parquet file: {error}; take the folder away, or pass resume='replace'"
            ) from None
        self._schema = schema.remove_metadata()
        return Last(int(found[2]), bytes.fromhex((schema.metadata or {}).get(_META, b"").decode()))
