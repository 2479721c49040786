"""A folder of Parquet files, written in parts: a part is one file, or one in the folder of each of its partitions.

Invariant: a file is there as a whole or not at all; and so is a part, once the folder was opened to be written again.

Why: a file is made elsewhere, and put into its place when it is complete; `Parts` says what makes a part whole.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from drift.places import Stat, Storage
from drift.sinks.contents import file_hash
from drift.sinks.rows import OF_ITEMS
from drift_graph.errors import PayloadError, SettingsError, SinkError

if TYPE_CHECKING:
    import pyarrow as pa

_UNFINISHED, _MAKING = ".unfinished-", ".making-"
_NONE = "__HIVE_DEFAULT_PARTITION__"  # the name for a value that is missing
_LETTERS = re.compile("(?:%[89A-F][0-9A-F])+")  # beyond ASCII, escaped
_PARTITIONS_MAX = 10_000  # of one part
_OPEN_FILES = 16  # at a time: the rows are sorted by their partitions
_GROUP_ROWS = 1 << 20


def _as_written(table: pa.Table) -> dict[str, Any]:
    """Options for files of these rows; flat columns have statistics, but for those with a NaN.

    Why: the least and greatest value in a file leave NaN out, and readers skip files by them; DuckDB, to which NaN is
    the greatest number, would not find these rows.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    flat = [field.name for field in table.schema if field.type.num_fields == 0]
    floats = {name for name in flat if pa.types.is_floating(table.schema.field(name).type)}
    searched = [name for name in flat if name not in floats or not pc.any(pc.is_nan(table[name])).as_py()]
    return {"compression": "zstd", "write_page_checksum": True, "write_statistics": searched}


class Parts:
    """The parts of a table, as files in a folder, of this machine or of an object store.

    Why a part is there as a whole, once the folder was opened again: before its files one is written that names it, and
    that goes when they are all there. Whoever finds one removes what is there of its part.

    Args:
        storage: where the folder is.
        by: the columns by whose values the files are put into folders COLUMN=VALUE.

    Attributes:
        is_whole: whether no part is on its way; one that cannot be finished stays on it until the next `open`.
        locks: whether nobody else writes there while it is open.
    """

    def __init__(self, storage: Storage, path: str, by: Sequence[str] = ()) -> None:
        self._storage = storage
        self.path = path.rstrip("/") or path
        self._by = list(by)
        self._lock: int | None = None
        self.is_whole = True
        self.locks = not storage.remote

    def open(self) -> None:
        """Take back what an earlier run has begun.

        Raises:
            OSError: the folder cannot be written; a BlockingIOError if another run writes there.
        """
        if self.locks:
            Path(self.path).mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in Path(self.path).glob(f"{_MAKING}*"):
                shutil.rmtree(left)
        names = self._storage.all_in(self.path)
        for marked in [name for name in names if name.startswith(_UNFINISHED)]:
            part = marked.removeprefix(_UNFINISHED)
            self.remove([name for name in names if file_name(name) == part])
            self.remove([marked])
        self.is_whole = True

    def close(self) -> None:
        """Let others write."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def write(self, name: str, table: pa.Table) -> dict[str, tuple[int, str]]:
        """Write a part; or a file of the folder itself, if the name is hidden. When it returns it is durable.

        Returns:
            Its files in order, with the bytes of each and its hash.

        Raises:
            OSError, pa.ArrowException: nothing is there, if `is_whole`.
            PayloadError: a partition has no name.
        """
        import pyarrow.parquet as pq

        with tempfile.TemporaryDirectory(prefix=_MAKING, dir=self.path if self.locks else None) as folder:
            made = Path(folder, "part")
            if name[0] == "." or not self._by:
                pq.write_table(table, made, **_as_written(table))
                found = _size_and_hash(made)
                self.is_whole = False  # where putting it fails it may be there
                self._storage.put(made, self._at(name))
                self.is_whole = True
                return {name: found}
            self._split(table, made)
            files = {
                _in_own_letters((file.relative_to(made).parent / name).as_posix()): file
                for file in sorted(made.rglob("*.parquet"))
            }
            written = {named: _size_and_hash(files[named]) for named in in_order(files)}
            (marker := Path(folder, "marker")).touch()
            self.is_whole = False
            self._storage.put(marker, self._at(f"{_UNFINISHED}{name}"))
            for named, file in files.items():
                self._storage.put(file, self._at(named))
            self.remove([f"{_UNFINISHED}{name}"])
            self.is_whole = True
            return written

    def read(self, name: str) -> Any:
        """A file, as PyArrow reads it. Raises OSError: it cannot be opened."""
        return self._at(name) if self.locks else self._storage.open(self._at(name)).file

    def hash(self, name: str) -> str:
        """The hash of a file. Raises OSError: it cannot be read."""
        with self._storage.open(self._at(name)).file as file:
            return file_hash(file)

    def stat(self, name: str) -> Stat | None:
        """A file; None if it is not there."""
        return self._storage.stat(self._at(name))

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, and the folders of partitions that have no others."""
        for name in names:
            self._storage.remove(self._at(name))
            for inside in Path(name).parents if self.locks else ():
                with suppress(OSError):  # it has other files
                    if inside.name:
                        Path(self.path, inside).rmdir()

    def files(self, pattern: re.Pattern[str]) -> list[str]:
        """The files with such names in the order of these, in the folder and those of its partitions.

        Raises:
            OSError: a folder cannot be read.
        """
        names = self._storage.all_in(self.path)
        inside = [each for each in names if all("=" in part and part[0] not in "._" for part in each.split("/")[:-1])]
        return in_order(name for name in inside if pattern.fullmatch(file_name(name)))

    def check(self, names: Iterable[str]) -> None:
        """Raises SinkError: these files have other partitions than those that are to be written."""
        for each in names:
            if (has := [folder.partition("=")[0] for folder in each.split("/")[:-1]]) != self._by:
                raise SinkError(
                    f"the files in {self.path} are partitioned by {has}, and partition_by is {self._by}: tools that "
                    f"read both would fail; take another folder, or pass resume='replace' (--on-existing replace)"
                )

    def _at(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}"

    def _split(self, table: pa.Table, into: Path) -> None:
        """Write the rows of each partition into a file, in their order."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        for name in self._by:
            table = with_names(table, name)
        order = [(name, "ascending") for name in (*self._by, "position")]
        as_written = ds.ParquetFileFormat().make_write_options(**_as_written(table))
        ds.write_dataset(
            table.sort_by(order),
            into,
            format="parquet",
            partitioning=ds.partitioning(pa.schema([table.schema.field(name) for name in self._by]), flavor="hive"),
            basename_template="{i}.parquet",
            file_options=as_written,
            use_threads=False,
            max_partitions=_PARTITIONS_MAX,
            max_open_files=_OPEN_FILES,
            min_rows_per_group=_GROUP_ROWS,
            max_rows_per_group=_GROUP_ROWS,
        )


def _size_and_hash(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        return path.stat().st_size, file_hash(file)


def _in_own_letters(folder: str) -> str:
    """The name of a folder, in which PyArrow has escaped the bytes of letters beyond ASCII, with these as they are.

    Why: Spark, which escapes no letters, takes each escaped byte for a letter of its own.
    """
    return _LETTERS.sub(lambda found: unquote(found[0]), folder)


def in_order(names: Iterable[str]) -> list[str]:
    """Files in the order of their positions, those of one part in that of their partitions."""
    return sorted(names, key=lambda name: (file_name(name), name))


def file_name(name: str) -> str:
    """The name of a file without the folders of its partitions."""
    return name.rpartition("/")[2]


def check_columns(by: str | Sequence[str] | None) -> list[str]:
    """The columns that a user has named for partitions.

    Raises:
        SettingsError: they are no names of columns, or no partition can have them.
    """
    names = [by] if isinstance(by, str) else list(by or ())
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise SettingsError(f"partition_by={by!r:.80} is no list of names that differ")
    for name in names:
        if name in OF_ITEMS or not {"/", "=", "\0"}.isdisjoint(name) or name[0] in "._" or unquote(name) != name:
            raise SettingsError(
                f"partition_by has {name!r}, by which no folder can be named: it is the {name} of the item"
                if name in OF_ITEMS
                else f"partition_by has {name!r}, by which no folder can be named: map it to a field with another name"
            )
    return names


def with_names(table: pa.Table, name: str) -> pa.Table:
    """The table, whose column has values by which folders can be named, each by another.

    Raises:
        PayloadError: it has none, or others.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if name not in table.column_names:
        has = ", ".join(map(repr, table.column_names))
        raise PayloadError(f"partition_by has {name!r}, and the payloads have no such field; the columns are {has}")
    at = table.column_names.index(name)
    column = table.column(at)
    if pa.types.is_null(column.type):
        column = column.cast(pa.string())
    kind = column.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if not (is_text or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date32(kind)):
        raise PayloadError(
            f"partition_by has {name!r}, which is {kind}: folders are named by texts, whole numbers, bools and dates; "
            f"map it to one of these"
        )
    if is_text:
        column = column.cast(pa.string())
        for value in pc.unique(column).to_pylist():
            if value is not None and (value in ("", _NONE) or "\0" in value):
                raise PayloadError(f"partition_by has {name!r}, and no folder stands for {value!r:.80} in it: map it")
    return table.set_column(at, name, column)
