"""Items as rows of a CSV file.

Invariant: as of `drift.sinks.lines`: the file is at every moment a prefix of the run's output, which a rerun compares.
"""

from __future__ import annotations

import csv as csv_module
import io
import os
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import msgspec

from drift.promises import SinkPromise
from drift.sinks.lines import JsonLinesSink, as_json
from drift.sinks.resuming import check_resume
from drift.sinks.rows import Rows
from drift_graph.errors import SettingsError, SinkError
from drift_graph.meta import Metas

_PLAIN = (str, int, bool, float, type(None))


def csv(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    resume: Literal["continue", "replace", "error"] = "continue",
) -> CsvSink:
    """A row for each item: position, time, and the fields of the payload; the first row has the names.

    Values are written as `drift.sources.csv` reads them: text as it is, None as nothing, lists and dicts as JSON,
    anything else as `drift.sinks.jsonl` writes it; rows end with "\\r\\n". No items make an empty file.

    Args:
        columns: names of the fields, of tuples in their order; None for those of the first payloads.
        resume: as of `drift.sinks.jsonl`.
    """
    check_resume(resume)
    try:
        return CsvSink(os.fsdecode(path), columns, resume)
    except TypeError:
        raise SettingsError(f"csv({path!r:.80}): the path of a file is a text or a pathlib.Path") from None


class CsvSink(JsonLinesSink):
    """See `csv`."""

    promise: ClassVar = SinkPromise("exactly once", "a rerun compares the file and writes what is missing")
    _end = b"\r\n"

    def __init__(self, path: str, columns: Sequence[str] | None, resume: str) -> None:
        super().__init__(path, resume)
        self._columns = columns
        self._rows = Rows(path, columns)
        self._begun = False  # whether the names of the columns are written

    def open(self) -> None:
        self._rows, self._begun = Rows(self._path, self._columns), False
        super().open()

    def _encoded(
        self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]
    ) -> tuple[Sequence[int], bytes, SinkError | None]:
        try:
            rows = self._rows.rows(positions, metas, payloads)
        except SinkError as error:
            return (), b"", error
        written = io.StringIO()
        writer = csv_module.writer(written)
        fault: SinkError | None = None
        told = list(positions)
        if not self._begun:
            self._begun = True
            writer.writerow(self._rows.columns)
            told.insert(0, positions[0])  # the names go with the first item
        for row in rows:
            try:
                writer.writerow([value if type(value) in _PLAIN else _text(value) for value in row])
            except (msgspec.MsgspecError, TypeError, csv_module.Error) as error:
                fault = SinkError(
                    f"{self._path}: the payload at position {row[0]} cannot be written as CSV: {error}; map it to "
                    f"numbers, text, lists and dicts before the sink"
                )
                fault.__cause__ = error
                told = told[: told.index(row[0])]
                break
        return told, written.getvalue().encode(), fault


def _text(value: Any) -> str:
    plain = msgspec.to_builtins(value, str_keys=True, order="deterministic")
    return plain if isinstance(plain, str) else as_json(plain).decode()
