"""Items as rows of a CSV file.

Invariant: as for `drift.sinks.lines`: the file is at every moment a prefix of the run's output, which a rerun compares.
"""

from __future__ import annotations

import csv as csv_module
import io
import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Literal

import msgspec

from drift.sinks.lines import JsonLinesSink, as_json
from drift.sinks.resuming import check_resume, local_path
from drift.sinks.rows import RowMaker
from drift_graph.errors import SinkError
from drift_graph.metas import Metas

_PLAIN = {str, int, bool, float, type(None)}


def csv(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    resume: Literal["continue", "replace", "error"] = "continue",
) -> CsvSink:
    """A row for each item: position, time, and the fields of the payload; the first row has the names.

    Values are written as text, which is all that a reader of CSV gets: text as it is, numbers as Python writes them
    (also nan, inf and -0.0), lists and dicts as JSON, anything else as `drift.sinks.jsonl` writes it; rows end with
    "\\r\\n". None is nothing between two commas, and an empty text is "" in quotes: Postgres and Polars tell these
    apart, while `drift.sources.csv` reads both as an empty text. No items make an empty file.

    >>> import drift
    >>> graph = drift.Graph("fares")
    >>> graph.source("fares").sink("out")
    >>> fares = [{"zone": "JFK", "fare": 30.5}, {"zone": "LGA", "fare": 9.0}]
    >>> report = drift.run(graph, {"fares": fares}, sinks={"out": drift.sinks.csv("fares.csv")}).finish()
    >>> from pathlib import Path
    >>> print(Path("fares.csv").read_text(), end="")
    position,time,zone,fare
    0,0,JFK,30.5
    1,1,LGA,9.0

    Args:
        columns: names of the fields, of tuples in their order; None for those of the first payloads.
        resume: as of `drift.sinks.jsonl`.
    """
    check_resume(resume)
    return CsvSink(local_path("csv", path), columns, resume)


class CsvSink(JsonLinesSink):
    _end = b"\r\n"

    def __init__(self, path: str, columns: Sequence[str] | None, resume: str) -> None:
        super().__init__(path, resume)
        self._columns = columns
        self._rows = RowMaker(path, columns)
        self._begun = False  # whether the header row is written

    def open(self) -> None:
        self._rows, self._begun = RowMaker(self._path, self._columns), False
        super().open()
        if self._checkpoint is not None:
            self._begun = self._checkpoint["bytes"] > 0
            self._rows.names = self._checkpoint["columns"]

    def commit(self) -> dict[str, Any]:
        return {**super().commit(), "columns": self._rows.names}

    def _encoded(
        self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]
    ) -> tuple[Sequence[int], bytes, SinkError | None]:
        try:
            rows = self._rows.rows(positions, metas, payloads)
        except SinkError as error:
            return (), b"", error
        cells = list(positions)
        if not self._begun:
            rows, cells = [tuple(self._rows.columns), *rows], [positions[0], *cells]  # names belong to the first item
        with suppress(UnicodeEncodeError):
            if _are_plain(rows):
                written = _written(rows).encode()
                self._begun = True
                return cells, written, None
        lines: list[bytes] = []
        for position, row in zip(cells, rows):
            try:
                lines.append(_line(row).encode())
            except (msgspec.MsgspecError, TypeError, ValueError, csv_module.Error) as error:
                if len(lines) == 1 and not self._begun:
                    lines.clear()
                return cells[: len(lines)], b"".join(lines), self._unwritable(position, error)
        self._begun = True
        return cells, b"".join(lines), None

    def _unwritable(self, position: int, error: Exception) -> SinkError:
        fault = SinkError(
            f"{self._path}: the payload at position {position} cannot be written as CSV: {error}; map it to numbers, "
            f"text, lists and dicts before the sink"
        )
        fault.__cause__ = error
        return fault


def _are_plain(rows: Sequence[Sequence[Any]]) -> bool:
    """Whether the writer of the module makes all of their cells as they are to be."""
    return set(map(type, chain.from_iterable(rows))) <= _PLAIN and not any("" in row for row in rows)


def _line(row: Sequence[Any]) -> str:
    """A row as the writer of the module makes it, but with an empty text in quotes."""
    values = [value if type(value) in _PLAIN else _text(value) for value in row]
    if "" not in values:
        return _written([values])
    cells = ("" if value is None else '""' if value == "" else _written([[value]])[:-2] for value in values)
    return ",".join(cells) + "\r\n"


def _written(rows: Sequence[Sequence[Any]]) -> str:
    written = io.StringIO()
    csv_module.writer(written).writerows(rows)
    return written.getvalue()


def _text(value: Any) -> str:
    plain = msgspec.to_builtins(value, str_keys=True, order="deterministic")
    return plain if isinstance(plain, str) else as_json(plain).decode()
