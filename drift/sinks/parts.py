"""A folder of Parquet files, written in parts: a part is one file, or one in the folder of each of its partitions.

Invariant: a file is there as a whole or not at all; and so is a part, once the folder was opened to be written again.

Why: the files of a part are written into a hidden folder and brought to the disk. That the hidden folder is renamed
decides that they are there: from then on each is only moved to its place, and where a death came in between, whoever
opens the folder next moves the others.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from drift.sinks.rows import OF_ITEMS
from drift_graph.errors import PayloadError, SettingsError, SinkError

if TYPE_CHECKING:
    import pyarrow as pa

_UNFINISHED, _PUBLISHED = ".unfinished-", ".published-"
_NONE = "__HIVE_DEFAULT_PARTITION__"  # the name for a value that is missing
_PARTITIONS_MAX = 10_000  # of one part
_OPEN_FILES = 16  # at a time: the rows are sorted by their partitions
_GROUP_ROWS = 1 << 20


class Parts:
    """Args:
    path: the folder.
    by: the columns by whose values the files are put into folders COLUMN=VALUE.

    Attributes:
        is_whole: whether no part is on its way; one that cannot be moved stays on it until the next `open`.
    """

    def __init__(self, path: Path, by: Sequence[str] = ()) -> None:
        self.path = path
        self._by = list(by)
        self._lock: int | None = None
        self.is_whole = True

    def open(self) -> None:
        """Lock the folder, and finish what an earlier run has begun.

        Raises:
            OSError: the folder cannot be written; a BlockingIOError if another run writes there.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.path, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for published in sorted(self.path.glob(f"{_PUBLISHED}*")):
            self._move(published)
        for unfinished in self.path.glob(f"{_UNFINISHED}*"):
            _remove(unfinished)
        self.is_whole = True

    def close(self) -> None:
        """Let others write."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def files(self, pattern: re.Pattern[str]) -> list[Path]:
        """The files with such names in the order of these, in the folder and those of its partitions.

        Raises:
            OSError: a folder cannot be read.
        """
        found: list[Path] = []
        for folder, folders, names in os.walk(self.path, onerror=_raise):
            folders[:] = [name for name in folders if "=" in name and name[0] not in "._"]
            found += [Path(folder, name) for name in names if pattern.fullmatch(name)]
        return sorted(found, key=lambda path: (path.name, path))

    def check(self, files: Iterable[Path]) -> None:
        """Raises:
        SinkError: these have other partitions than those that are to be written.
        """
        for file in files:
            inside = file.relative_to(self.path).parent.parts
            if (names := [name.partition("=")[0] for name in inside]) != self._by:
                raise SinkError(
                    f"the files in {self.path} are partitioned by {names}, and partition_by is {self._by}: tools that "
                    f"read both would fail; take another folder, or pass resume='replace' (--on-existing replace)"
                )

    def remove(self, files: Iterable[Path]) -> None:
        """Remove files, and the folders of partitions that have no others."""
        for file in files:
            file.unlink()
            for folder in file.relative_to(self.path).parents:
                with suppress(OSError):  # it has other files
                    if folder.name:
                        (self.path / folder).rmdir()

    def write(self, name: str, table: pa.Table) -> int:
        """Write a part; or a file of the folder itself, if the name is hidden. When it returns it is on the disk.

        Returns:
            The bytes of its files.

        Raises:
            OSError, pa.ArrowException: nothing is there, if `is_whole`.
            PayloadError: a partition has no name.
        """
        import pyarrow.parquet as pq

        assert self._lock is not None
        unfinished = self.path / f"{_UNFINISHED}{name.lstrip('.')}"
        try:
            if name[0] == "." or not self._by:
                pq.write_table(table, unfinished, compression="zstd", write_page_checksum=True)
                size = _sync(unfinished)
                unfinished.rename(self.path / name)
                os.fsync(self._lock)
                return size
            size = self._split(table, unfinished)
            published = unfinished.rename(self.path / f"{_PUBLISHED}{name}")
        except BaseException:
            with suppress(OSError):
                _remove(unfinished)
            raise
        self.is_whole = False
        os.fsync(self._lock)
        self._move(published)
        self.is_whole = True
        return size

    def _split(self, table: pa.Table, into: Path) -> int:
        """Write the rows of each partition into a file, in their order; returns the bytes of all."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        for name in self._by:
            table = with_names(table, name)
        order = [(name, "ascending") for name in (*self._by, "position")]
        as_written = ds.ParquetFileFormat().make_write_options(compression="zstd", write_page_checksum=True)
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
        return sum(map(_sync, [into, *into.rglob("*")]))

    def _move(self, published: Path) -> None:
        """Move the files of a part to their places; some may be there already."""
        name, folders = published.name.removeprefix(_PUBLISHED), {self.path}
        for file in sorted(published.rglob("*.parquet")):
            inside = file.relative_to(published).parent
            (self.path / inside).mkdir(parents=True, exist_ok=True)
            file.rename(self.path / inside / name)
            folders.update(self.path / each for each in (inside, *inside.parents))
        for folder in sorted(folders):
            _sync(folder)
        shutil.rmtree(published)


def check_columns(by: str | Sequence[str] | None) -> list[str]:
    """The columns that a user has named for partitions.

    Raises:
        SettingsError: they are no names of columns, or no partition can have them.
    """
    names = [by] if isinstance(by, str) else list(by or ())
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise SettingsError(f"partition_by={by!r:.80} is no list of names that differ")
    for name in names:
        if name in OF_ITEMS or "/" in name or "=" in name or name[0] in "._":
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
        for refused in ("", _NONE):
            if pc.any(pc.equal(column, refused)).as_py():
                raise PayloadError(f"partition_by has {name!r}, and no folder stands for {refused!r} in it: map it")
    return table.set_column(at, name, column)


def _sync(path: Path) -> int:
    """Bring a file or a folder to the disk; returns the bytes of the file."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
        return 0 if path.is_dir() else path.stat().st_size
    finally:
        os.close(number)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _raise(error: OSError) -> None:
    raise error
