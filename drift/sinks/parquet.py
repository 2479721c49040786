"""A folder of Parquet files.

Invariant: the files of the folder, in the order of their names, are the items up to the last position that a name
tells; of files with one name, each has those of a partition. Items that no part has yet are in files with a hidden
name, once they are committed, which readers of the folder pass over. Each part names the one before it, with its hash.

Why: the name of a file has the positions that its part holds, and a part is there as a whole (see `Parts`). A hidden
file goes when the part is there that has its items, and one that was left by a death in between goes when the folder is
opened again. A part is hashed when it is written; a checkpoint has one sum over all of them, and where that differs,
the parts tell which of them is not as it was.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import xxhash

from drift.extras import need
from drift.guarantees import SinkGuarantee
from drift.places import storage_of
from drift.sinks.filling import GatheringSink, Limits, limits_of
from drift.sinks.part_files import Parts, check_columns, file_name
from drift.sinks.resuming import Found, Last, check_resume, refuse_existing
from drift.urls import path_text
from drift_graph.errors import PayloadError, SinkError
from drift_graph.moments import Span

if TYPE_CHECKING:
    import pyarrow as pa

    from drift.sinks.typed import Gathered

_PART = re.compile(r"part-(\d{15})-(\d{15})\.parquet")
_WAITING = re.compile(r"\.waiting-(\d{15})-(\d{15})\.parquet")
_NAMED_MAX = 5  # parts in an error
_NAME = "{}-{:015d}-{:015d}.parquet"
_META = b"drift.meta"
_BEFORE = b"drift.before"  # the part before, by its `_proof`


def parquet(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | Mapping[str, Any] | None = None,
    part_items: int = 1_000_000,
    part_bytes: int | str | None = None,
    part_every: Span | None = None,
    partition_by: str | Sequence[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    resume: Literal["continue", "replace", "error"] = "continue",
) -> ParquetSink:
    """A folder of Parquet files with a row for each item: position, time, and typed columns of the payload's fields.

    Every reader of Parquet reads it as one table: pandas and Spark the folder, DuckDB and Polars PATH/*.parquet, and
    with partitions PATH/**/*.parquet. A part is written once one of its limits is reached, and at the end. In a run
    with state, items that no part has yet are stored in hidden files; otherwise the next run writes them.

    >>> import drift
    >>> graph = drift.Graph("fares")
    >>> graph.source("fares").sink("out")
    >>> fares = [{"zone": "JFK", "fare": 30.5}, {"zone": "LGA", "fare": 9.0}]
    >>> report = drift.run(graph, {"fares": fares}, sinks={"out": drift.sinks.parquet("fares")}).finish()
    >>> import polars
    >>> polars.read_parquet("fares/*.parquet").columns
    ['position', 'time', 'zone', 'fare']

    Args:
        path: the folder, which is created, or its URL such as s3://BUCKET/NAME (extra `cloud`), where nothing keeps
            another run from writing too: give each its own.
        columns: names of the fields, for tuples in their order, or their Arrow types by name; None for those of the
            payloads.
        part_items: a part has this many items, and what came with the last of them.
        part_bytes: a part takes about this much on the disk, such as "128 MB"; the first one of a run, where no
            file has been measured, may be off by much.
        part_every: an item is in a part at the latest after this time by the clock, such as "5 minutes" (an int is
            milliseconds); for live runs.
        partition_by: a field, or several: their values are not in the files, but name the folders of these, as in
            day=2013-01-01/. They are texts, whole numbers, bools or dates; None is __HIVE_DEFAULT_PARTITION__.
        storage_options: of a URL, for the class of fsspec that writes there.
        resume: what to do if runs have written before: "continue" behind them, "replace" their files, or "error".

    Raises:
        SettingsError: an argument is not valid, or a library is missing.
    """
    need("parquet", "drift.sinks.parquet")
    check_resume(resume)
    limits = limits_of(part_items, part_bytes, part_every)
    storage, named = storage_of(path_text("parquet", path, "folder"), storage_options)
    by = check_columns(partition_by)
    return ParquetSink(Parts(storage, named, by), columns, limits, resume)


class ParquetSink(GatheringSink):
    guarantee: ClassVar = SinkGuarantee("exactly once", "the name of each part has the positions in it")

    def __init__(
        self, parts: Parts, columns: Sequence[str] | Mapping[str, Any] | None, limits: Limits, resume: str
    ) -> None:
        super().__init__(parts.path, columns, limits, resume)
        self._parts = parts
        self.writes_to = f"{parts.path}/*.parquet"
        self._waiting: dict[str, int] = {}  # files with items before these that no part has yet, and how many
        self._schema: pa.Schema | None = None
        self._hashes: dict[str, str] = {}  # of files, as of the last checkpoint
        self._written: dict[str, str] = {}  # files of parts that were there or were written since; hashes, once known
        self._end_of_parts = -1  # the position
        self._last_part: list[str] = []  # its files

    def begin(self, resume: str) -> Last | None:
        self._waiting = {}
        try:
            self._parts.open()
            parts, waiting = self._parts.files(_PART), self._parts.files(_WAITING)
            if resume == "error":
                refuse_existing(self._path, parts + waiting)
            if resume == "replace":
                self._parts.remove(parts + waiting)
                parts, waiting = [], []
            self._parts.check(parts)
            self._written = dict.fromkeys(parts, "")
            self._last_part = next(reversed(_by_part(parts).values()), [])
            last = self._last_of(parts[-1]) if parts else None
            self._end_of_parts = -1 if last is None else last.position
            for name in waiting:
                at = self._last_of(name)
                if last is not None and at.position <= last.position:  # a part has them
                    self._parts.remove([name])
                    continue
                self._wait(name, self._rows_of(name))
                last = at
            return last
        except BlockingIOError:
            raise SinkError(f"another run writes to {self._path}; wait for its end, or give each its own") from None
        except OSError as error:
            raise SinkError(
                f"the folder {self._path} cannot be written: {error.strerror}; nothing was written; check the path and "
                f"who may write there"
            ) from error

    def items_between(self, first: int, last: int) -> Found:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if first == last:
            return Found(1, first)  # the name of the last file is where the position is from
        count, least = 0, list[int]()
        try:
            for name in [*self._parts.files(_PART), *self._waiting]:
                start, end = _range_in(name)
                if start >= first:
                    file = pq.read_metadata(self._parts.read(name))
                    count += file.num_rows
                    least.append(_least_in(file))
                elif end >= first:
                    positions = pq.ParquetFile(self._parts.read(name)).read(["position"])["position"].to_pylist()
                    count += len(there := [each for each in positions if each >= first])
                    least.append(min(there, default=last))
        except (OSError, pa.ArrowException) as error:
            raise SinkError(f"{self._path}: {error}; bring it back, or pass resume='replace'") from error
        return Found(count, min(least, default=None))

    def _wait(self, name: str, items: int) -> None:
        """A file has items that no part has yet."""
        self._waiting[name] = items
        found = self._parts.stat(name)
        self._filling.store(sum(self._waiting.values()), found.size if found is not None else 0)

    def commit(self) -> dict[str, Any]:
        """Items that are in no part yet are written to a hidden file, until there is a part."""
        import pyarrow as pa

        if self._items:
            count = len(self._items)
            (name,) = written = self._write("." + _NAME.format("waiting", self._items.first, self._items.end))
            self._wait(name, count)
            self._hashes = {**self._hashes, **written}
        with self._looking(OSError, pa.ArrowException):
            self._hashes = {name: self._hashes.get(name) or self._parts.hash(name) for name in self._waiting}
            return {**super().commit(), "files": self._hashes, "waiting": dict(self._waiting)}

    def _end_of_rows(self) -> int:
        """That of the last part: parts stay as they are."""
        return self._end_of_parts

    def sum_of_rows(self, above: int, last: int) -> tuple[int, int]:
        """The number of the rows in parts, and the sum of the hashes of their files."""
        parts = [name for name in self._written or self._parts.files(_PART) if above < _range_in(name)[1] <= last]
        hashes = (f"{name} {self._hash(name)}".encode() for name in parts)
        return sum(map(self._rows_of, parts)), sum(map(xxhash.xxh3_64_intdigest, hashes))

    def _hash(self, name: str) -> str:
        """The hash of a file of a part, as it was written or read first by this run."""
        found = self._written.get(name) or self._parts.hash(name)
        if name in self._written:
            self._written[name] = found
        return found

    def _proof(self, files: Sequence[str]) -> str:
        """The name of a part, and a hash of its files."""
        hashes = "".join(f"{name} {self._hash(name)}\n" for name in files)
        return f"{file_name(files[0])} {xxhash.xxh3_128_hexdigest(hashes.encode())}"

    def find_end(self) -> Last | None:
        """Raises SinkError: a file of a part is gone; or another run has written some, where it can."""
        there = set(self._parts.files(_PART))
        others = there - self._written.keys()
        if others and not self._parts.locks:
            raise SinkError(f"another run has written {min(others)} in {self._path}; give each its own folder")
        gone = self._written.keys() - there | {name for name in self._waiting if self._parts.stat(name) is None}
        if gone:
            raise SinkError(
                f"{self._path} had {min(gone)}, and now it is gone: the folder was emptied, restored "
                f"from older data, or somebody took it away; bring it back, or start anew, with another state if there "
                f"is one, and resume='replace' (--on-existing replace)"
            )
        return self._last

    def restore(self, committed: dict[str, Any]) -> None:
        super().restore(committed)
        self._hashes = dict(committed["files"])

    def compare(self, committed: Any) -> str:
        """Where a part is not as it was, or has the items of a hidden file now, the checksums of pages are checked."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        name = ""
        try:
            try:
                found_again = super().compare(committed)
            except SinkError:
                for name in self._parts.files(_PART):  # is it one that cannot be read?
                    pq.ParquetFile(self._parts.read(name), page_checksum_verification=True).read()
                if wrong := self._not_as_said(committed["rows"][0]):
                    more = f" and {len(wrong) - _NAMED_MAX:,} more" if len(wrong) > _NAMED_MAX else ""
                    raise self._changed(", ".join(wrong[:_NAMED_MAX]) + more) from None
                raise
            for name, stored in committed["files"].items():
                if self._parts.stat(name) is not None:
                    if self._parts.hash(name) != stored:
                        raise self._changed(f"{name} has another hash")
                    continue
                first, end = _range_in(name)
                parts = [each for each in self._parts.files(_PART) if _holds(each, first, end)]
                if not parts or not _WAITING.fullmatch(name):
                    raise self._changed(f"{name} is gone")
                found = 0
                for part in parts:
                    at = pq.ParquetFile(self._parts.read(part), page_checksum_verification=True).read()["position"]
                    found += pc.sum(pc.and_(pc.greater_equal(at, first), pc.less_equal(at, end))).as_py() or 0
                if found != (items := committed.get("waiting", {}).get(name, found)):
                    raise self._changed(f"{name} had {items:,} items, and {found:,} are there")
        except (OSError, pa.ArrowException) as error:
            raise self._changed(f"{name}: {error}") from error
        return found_again if not committed["files"] else f"{found_again}, and its hidden files"

    def _not_as_said(self, end: int) -> list[str]:
        """The parts that are not what those behind them say; the last one, up to a position, if all others are."""
        parts, proofs, wrong = _by_part(self._parts.files(_PART)), dict[str, str](), dict[str, None]()
        said = {part: {self._said_in(name) for name in files} - {""} for part, files in parts.items()}
        named = {proof.partition(" ")[0] for proof in chain.from_iterable(said.values())}
        before = ""
        for part, files in parts.items():
            for proof in sorted(said[part]):
                name = proof.partition(" ")[0]
                if name not in parts:
                    wrong[f"{name} is gone"] = None
                elif proofs.get(name) != proof:
                    wrong[f"{name} was changed"] = None
                elif before not in named:
                    wrong[f"{before} was added"] = None
            before, proofs[part] = part, self._proof(files)
        if not wrong and (last := _range_in(before)[1] if before else -1) <= end:
            return [f"{before} was changed" if last == end else f"the part up to position {end} is gone"]
        return list(wrong)

    def _said_in(self, name: str) -> str:
        """What a file says of the part before; "" for nothing."""
        import pyarrow.parquet as pq

        noted: dict[bytes, bytes] = pq.read_schema(self._parts.read(name)).metadata or {}
        return noted.get(_BEFORE, b"").decode()

    def _changed(self, why: str) -> SinkError:
        return SinkError(
            f"{self._path} is not as it was as of the checkpoint: {why}; bring the files back, or start anew with "
            f"another state and resume='replace' (--on-existing replace)"
        )

    def end(self) -> None:
        try:
            if (self._items or self._waiting) and self._parts.is_whole:
                self._flush()
        finally:
            self._parts.close()

    def _flush(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._waiting:
            first, _ = _range_in(next(iter(self._waiting)))
        else:
            assert self._items
            first = self._items.first
        last = self._items.end if self._items else self.committed_position()
        assert last is not None
        try:
            before = [pq.ParquetFile(self._parts.read(name)).read() for name in self._waiting]
        except (OSError, pa.ArrowException) as error:
            raise SinkError(f"{self._path}: {error}; bring its hidden files back, or pass resume='replace'") from error
        part = self._write(_NAME.format("part", first, last), before)
        self._last_part = list(part)
        self._written |= part
        self._end_of_parts = last
        waiting, self._waiting = self._waiting, {}
        self._filling.clear()
        try:
            self._parts.remove(waiting)
        except OSError as error:
            raise SinkError(
                f"hidden files of {self._path} cannot be removed: {error}; the items up to position {last} are safe; "
                f"clear that up, and run again, which removes them"
            ) from error

    def _write(self, name: str, before: Sequence[pa.Table] = ()) -> dict[str, str]:
        """Write the items taken, behind others that are in tables; returns the files in order, with their hashes."""
        import pyarrow as pa

        from drift.sinks.typed import joined_tables

        last = Last(self._items.end, self._items.last) if self._items else self._last
        assert last is not None
        try:
            first = self._items.first if self._items else last.position
            with self._taking([first, last.position], PayloadError, OSError, pa.ArrowException):
                tables = [table.replace_schema_metadata() for table in before]
                if self._items:
                    tables.append(self._table(self._items))
                table = joined_tables(tables, self._path)
                noted = {_META: last.meta.hex().encode()}
                if self._last_part and _PART.fullmatch(name):
                    noted[_BEFORE] = self._proof(self._last_part).encode()
                files = self._parts.write(name, table.replace_schema_metadata(noted))
                if not before:
                    self._filling.measure(sum(size for size, _ in files.values()))
        finally:
            self._items = None
        self._last = last
        return {file: found for file, (_, found) in files.items()}

    def _table(self, gathered: Gathered) -> pa.Table:
        from drift.sinks.typed import Tables, joined_tables

        tables = Tables(self._path, self._columns)
        tables.add(*gathered.take())
        table = tables.table()
        if self._schema is not None:  # of the parts before: parts share one schema if possible
            table = joined_tables([self._schema.empty_table(), table], self._path, written=True)
        self._schema = table.schema.remove_metadata()
        return table

    def _rows_of(self, name: str) -> int:
        import pyarrow.parquet as pq

        return int(pq.read_metadata(self._parts.read(name)).num_rows)

    def _last_of(self, part: str) -> Last:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            schema = pq.read_schema(self._parts.read(part))
        except pa.ArrowException as error:
            raise SinkError(
                f"{self._path}/{part} is no Parquet file: {error}; take the folder away, or pass resume='replace'"
            ) from None
        self._schema = schema.remove_metadata()
        return Last(_range_in(part)[1], bytes.fromhex((schema.metadata or {}).get(_META, b"").decode()))


def _least_in(file: Any) -> int:
    """The least position in a file, from its metadata: this sink writes files with at least one row."""
    at = file.schema.names.index("position")
    return min(int(file.row_group(group).column(at).statistics.min) for group in range(file.num_row_groups))


def _range_in(name: str) -> tuple[int, int]:
    """The positions of the first and the last item of a file, in its name."""
    first, last = file_name(name).removesuffix(".parquet").split("-")[1:]
    return int(first), int(last)


def _by_part(names: Iterable[str]) -> dict[str, list[str]]:
    """Files in order, by the part that they are of."""
    parts: dict[str, list[str]] = {}
    for name in names:
        parts.setdefault(file_name(name), []).append(name)
    return parts


def _holds(part: str, first: int, last: int) -> bool:
    start, end = _range_in(part)
    return start <= first and last <= end
