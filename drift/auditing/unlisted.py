"""Files in the folder of a record that its manifest does not list.

Invariant: files that a writer may have left are noted; any other file is trouble, though the record itself is complete.

Why: a program that reads the folder (pandas, DuckDB, Spark) reads every Parquet file in it, so a foreign one gives it
rows that no run gave. A writer leaves unfinished files, whose names are hidden from such programs; and if it died,
finished files of a table that were not listed yet, or whose line in the journal was lost: these have the next numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, takewhile
from pathlib import Path

from drift.auditing.checks import FILE_NOT_LISTED, Check, Trouble
from drift.records.format import TABLES, Manifest, RecordError, read_manifest

_SHOWN_MAX = 3


def unlisted_checks(path: Path, manifest: Manifest) -> Iterator[Check]:
    """A check for foreign files, and one for files that a writer has left; none if there are no such files."""
    there = {each.relative_to(path).as_posix() for table in TABLES for each in (path / table).glob("*")}
    if manifest.outcome.state == "running":
        manifest = _grown(path, manifest)  # since the audit began
    unlisted = there - {file.path for file in manifest.files}
    hidden = {name for name in unlisted if name.partition("/")[2].startswith(".")}
    has_end = manifest.outcome.state not in ("running", "broken off")
    left = hidden if has_end else hidden.union(*(_following(manifest, table, unlisted) for table in TABLES))
    foreign = sorted(unlisted - left)
    if foreign:
        text = (
            f"{_shown(foreign)}: no part of the record, and a program that reads the folder reads it too; take it "
            f"away, or read what the manifest lists: drift.Record(PATH).files(TABLE)"
        )
        troubles = tuple(Trouble(FILE_NOT_LISTED, text, name) for name in foreign)
        yield Check("intact", _counted(foreign), "the manifest", "trouble", text, troubles)
    if left:
        found = f"{_shown(sorted(left))}: written too late to be sealed; no part of the record"
        yield Check("intact", _counted(left), "the manifest", "noted", found)


def _grown(path: Path, manifest: Manifest) -> Manifest:
    try:
        return read_manifest(path)
    except RecordError:
        return manifest


def _following(manifest: Manifest, table: str, unlisted: set[str]) -> set[str]:
    """The files with the names that a writer would have used next."""
    names = (f"{table}/part-{number:05}.parquet" for number in count(len(manifest.of(table))))
    return set(takewhile(unlisted.__contains__, names))


def _counted(names: list[str] | set[str]) -> str:
    return f"{len(names)} more file{'s' if len(names) > 1 else ''} in the folder"


def _shown(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN_MAX]) + (f" and {len(names) - _SHOWN_MAX} more" if len(names) > _SHOWN_MAX else "")
