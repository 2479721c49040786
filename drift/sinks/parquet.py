"""A folder of Parquet files.

Invariant: the files of the folder, in the order of their names, are the items up to the last position that a name
tells; a file is there as a whole or not at all. Items that no part has yet are in files with a hidden name, once they
are committed, which readers of the folder pass over.

Why: a file is written under another name, brought to the disk, and then renamed to the positions that it holds. A
hidden file goes when the part is there that has its items, and one that was left by a death in between goes when the
folder is opened again.
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
from drift.guarantees import SinkGuarantee
from drift.sinks.contents import file_hash
from drift.sinks.resuming import Last, ResumingSink, check_resume, from_committed, refuse_existing
from drift_graph.errors import PayloadError, SettingsError, SinkError
from drift_graph.metas import Metas

if TYPE_CHECKING:
    import pyarrow as pa

    from drift.sinks.typed import Gathered

_PART = re.compile(r"part-(\d{15})-(\d{15})\.parquet")
_WAITING = re.compile(r"\.waiting-(\d{15})-(\d{15})\.parquet")
_NAME = "{}-{:015d}-{:015d}.parquet"
_META = b"drift.meta"


def parquet(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | Mapping[str, Any] | None = None,
    part_items: int = 1_000_000,
    resume: Literal["continue", "replace", "error"] = "continue",
) -> ParquetSink:
    """A folder of Parquet files with a row for each item: position, time, and typed columns of the payload's fields.

    Every reader of Parquet reads it as one table: pandas and Spark the folder, DuckDB and Polars PATH/*.parquet. A part
    is written after `part_items` items, and at the end. In a run with state, items that no part has yet are stored in
    hidden files; otherwise the next run writes them.

    Args:
        path: the folder; it is created.
        columns: names of the fields, for tuples in their order, or their Arrow types by name; None for those of the
            payloads.
        part_items: maximal number of items in a file.
        resume: what to do if runs have written before: "continue" behind them, "replace" their files, or "error".
    """
    need("parquet", "drift.sinks.parquet")
    check_resume(resume)
    if type(part_items) is not int or part_items < 1:
        raise SettingsError(f"part_items={part_items!r} is not an int of 1 or more")
    try:
        return ParquetSink(Path(os.fsdecode(path)), columns, part_items, resume)
    except TypeError:
        raise SettingsError(f"parquet({path!r:.80}): the path of a folder is a text or a pathlib.Path") from None


class ParquetSink(ResumingSink):
    """See `parquet`."""

    guarantee: ClassVar = SinkGuarantee("exactly once", "the name of each part has the positions in it")

    def __init__(
        self, path: Path, columns: Sequence[str] | Mapping[str, Any] | None, part_items: int, resume: str
    ) -> None:
        super().__init__(str(path), resume)
        self._path = path
        self._columns = columns
        self._part_items = part_items
        self._lock: int | None = None
        self._items: Gathered | None = None  # that no file has yet
        self._waiting: list[Path] = []  # files with the items before these that no part has yet
        self._waiting_items = 0
        self._schema: pa.Schema | None = None
        self._hashes: dict[str, str] = {}  # of files, as of the last cut

    def _begin(self, resume: str) -> Last | None:
        self._waiting, self._waiting_items = [], 0
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self._path, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            parts, waiting = self._files(_PART), self._files(_WAITING)
            if resume == "error":
                refuse_existing(str(self._path), parts + waiting)
            if resume == "replace":
                for part in parts + waiting:
                    part.unlink()
                parts, waiting = [], []
            last = self._last_of(parts[-1], _PART) if parts else None
            for path in waiting:
                at = self._last_of(path, _WAITING)
                if last is not None and at.position <= last.position:  # a part has them
                    path.unlink()
                    continue
                self._waiting.append(path)
                self._waiting_items += self._rows_of(path)
                last = at
            return last
        except BlockingIOError:
            raise SinkError(f"another run writes to {self._path}; wait for its end, or give each its own") from None
        except OSError as error:
            raise SinkError(
                f"the folder {self._path} cannot be written: {error.strerror}; nothing was written; check the path and "
                f"who may write there"
            ) from error

    def _store(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> Last | None:
        if self._items is None:
            from drift.sinks.typed import Gathered

            self._items = Gathered()
        self._items.add(positions, metas, payloads)
        if len(self._items) + self._waiting_items >= self._part_items:
            self._write_part()
        return self._last

    def commit(self) -> dict[str, Any]:
        """See `Committing`: items that are in no part yet are written to a hidden file, until there is a part."""
        if self._items:
            count = len(self._items)
            self._waiting.append(self._write("." + _NAME.format("waiting", self._items.first, self._items.end)))
            self._waiting_items += count
        files = {path.name: self._hash_of(path) for path in [*self._files(_PART), *self._waiting]}
        self._hashes = files
        return {**super().commit(), "files": files}

    def _hash_of(self, path: Path) -> str:
        found = self._hashes.get(path.name)
        return file_hash(path) if found is None else found

    def open(self) -> None:
        super().open()
        if self._cut is not None:
            self._hashes = dict(self._cut[1].get("files") or {})

    def compare(self, committed: Any) -> str:
        """See `Comparing`. If a part has the items of a hidden file now, the checksums of its pages are checked."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        (last,), files = from_committed(self._target, committed), committed.get("files")
        if files is None:
            return f"{self._path} cannot be compared: an earlier version wrote it"
        try:
            for name, stored in files.items():
                path = self._path / name
                if path.exists():
                    if file_hash(path) != stored:
                        raise self._changed(f"{name} has another hash")
                    continue
                path = self._part_with(name)
                pq.ParquetFile(path, page_checksum_verification=True).read()
        except (OSError, pa.ArrowException) as error:
            raise self._changed(f"{path.name}: {error}") from error
        end = "none" if last is None else f"those up to position {last.position:,}"
        return f"{self._path} has its items as of the cut unchanged, {end}"

    def _part_with(self, gone: str) -> Path:
        """The part that has the items of a file that is gone."""
        found = _WAITING.fullmatch(gone)
        if found is not None:
            for path in self._files(_PART):
                if (
                    self._first_of(path, _PART) <= int(found[1])
                    and int(found[2]) <= self._last_of(path, _PART).position
                ):
                    return path
        raise self._changed(f"{gone} is gone")

    def _changed(self, why: str) -> SinkError:
        return SinkError(
            f"{self._path} is not as it was as of the cut: {why}; bring the files back, or start anew with another "
            f"state and resume='replace' (--on-existing replace)"
        )

    def _end(self) -> None:
        try:
            if self._items or self._waiting:
                self._write_part()
        finally:
            lock, self._lock = self._lock, None
            if lock is not None:
                os.close(lock)

    def _write_part(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._waiting:
            first = self._first_of(self._waiting[0])
        else:
            assert self._items
            first = self._items.first
        last = self._items.end if self._items else self.committed_position()
        assert last is not None
        try:
            before = [pq.read_table(path) for path in self._waiting]
        except (OSError, pa.ArrowException) as error:
            raise SinkError(f"{self._path}: {error}; bring its hidden files back, or pass resume='replace'") from error
        self._write(_NAME.format("part", first, last), before)
        for path in self._waiting:
            path.unlink()
        self._waiting, self._waiting_items = [], 0

    def _write(self, name: str, before: Sequence[pa.Table] = ()) -> Path:
        """A file of the items taken, behind others that are in tables."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        assert self._lock is not None
        last = Last(self._items.end, self._items.last) if self._items else self._last
        assert last is not None
        unfinished = self._path / f".part-{os.getpid()}.unfinished"
        try:
            first = self._items.first if self._items else last.position
            with self._taking([first, last.position], PayloadError, OSError):
                tables = [table.replace_schema_metadata() for table in before]
                if self._items:
                    tables.append(self._table(self._items))
                table = pa.concat_tables(tables, promote_options="permissive")
                table = table.replace_schema_metadata({_META: last.meta.hex()})
                pq.write_table(table, unfinished, compression="zstd", write_page_checksum=True)
                with unfinished.open("rb") as written:
                    os.fsync(written.fileno())
                finished = unfinished.rename(self._path / name)
                os.fsync(self._lock)
        except SinkError:
            with suppress(OSError):
                unfinished.unlink()
            raise
        finally:
            self._items = None
        self._last = last
        return finished

    def _table(self, gathered: Gathered) -> pa.Table:
        import pyarrow as pa

        from drift.sinks.typed import Tables

        tables = Tables(str(self._path), self._columns)
        tables.add(*gathered.take())
        table = tables.table()
        if self._schema is not None:  # of the parts before: parts share one schema if possible
            try:
                table = pa.concat_tables([self._schema.empty_table(), table], promote_options="permissive")
            except pa.ArrowException as error:
                raise PayloadError(
                    f"{error}; name types that hold all values: columns={{NAME: pyarrow type}}"
                ) from None
        self._schema = table.schema.remove_metadata()
        return table

    def _files(self, pattern: re.Pattern[str]) -> list[Path]:
        return sorted(path for path in self._path.iterdir() if pattern.fullmatch(path.name))

    def _first_of(self, path: Path, pattern: re.Pattern[str] = _WAITING) -> int:
        found = pattern.fullmatch(path.name)
        assert found is not None
        return int(found[1])

    def _rows_of(self, path: Path) -> int:
        import pyarrow.parquet as pq

        return int(pq.read_metadata(path).num_rows)

    def _last_of(self, part: Path, pattern: re.Pattern[str]) -> Last:
        import pyarrow as pa
        import pyarrow.parquet as pq

        found = pattern.fullmatch(part.name)
        assert found is not None
        try:
            schema = pq.read_schema(part)
        except pa.ArrowException as error:
            raise SinkError(
                f"{part} is no Parquet file: {error}; take the folder away, or pass resume='replace'"
            ) from None
        self._schema = schema.remove_metadata()
        return Last(int(found[2]), bytes.fromhex((schema.metadata or {}).get(_META, b"").decode()))
