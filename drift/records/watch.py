"""How far something has come that reads a record, for another thread to draw.

Invariant: what is drawn is what was read last; only the reader writes, and what it writes are a text and a number.
"""

from __future__ import annotations

from collections.abc import Mapping


class Watch:
    """What is being done, and which row of which table was read last.

    Attributes:
        what: is being done, in few words.
    """

    def __init__(self) -> None:
        self.what = ""
        self._read = "", 0
        self._rows: Mapping[str, int] = {}

    def begin(self, what: str, rows: Mapping[str, int] | None = None) -> None:
        """Something else is being done from now on.

        Args:
            rows: of each table that it may read, how many there are.
        """
        self.what, self._read = what, ("", 0)
        if rows is not None:
            self._rows = rows

    def read(self, table: str, row: int) -> None:
        """Rows were read up to this one; of small tables nothing is told."""
        if table in self._rows:
            self._read = table, row

    def __str__(self) -> str:
        table, row = self._read
        if not table:
            return self.what
        rows = self._rows[table]
        share = f" ({row / rows:.0%})" if rows else ""
        return f"{self.what}: {table} {row:,} of {rows:,} items{share}"
