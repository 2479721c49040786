"""The progress of code that reads a record, for another thread to show.

Invariant: only the reader writes, and single attributes: a text and a number; the other thread shows the latest.
"""

from __future__ import annotations

from collections.abc import Mapping


class Watch:
    """What is being done, and which row of which table was read last.

    Attributes:
        what: the current activity, in few words.
    """

    def __init__(self) -> None:
        self.what = ""
        self._read = "", 0
        self._rows: Mapping[str, int] = {}

    def begin(self, what: str, rows: Mapping[str, int] | None = None) -> None:
        """Another activity begins. `rows`: the number of rows of each table that it may read."""
        self.what, self._read = what, ("", 0)
        if rows is not None:
            self._rows = rows

    def read(self, table: str, row: int) -> None:
        """Rows were read up to this one; small tables are not reported."""
        if table in self._rows:
            self._read = table, row

    def __str__(self) -> str:
        table, row = self._read
        if not table:
            return self.what
        rows = self._rows[table]
        share = f" ({row / rows:.0%})" if rows else ""
        return f"{self.what}: {table} {row:,} of {rows:,} items{share}"
