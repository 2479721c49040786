"""Complete lines of CSV as columns of text, all at once.

Invariant: the cells are those that Python's reader of CSV finds in these lines; or there are none, and it has to read
them.

Why: its rows are lists of texts, which cost ten times what Arrow's reader takes. The two differ in how they forgive
what is no clean CSV; so a look at the bytes, all at once, decides whether lines are clean.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from pyarrow import csv as arrow_csv

_NEWLINE, _RETURN, _QUOTE = b'\n\r"'


class Cells:
    """See the module.

    Args:
        header: the names of all columns, no two of which are equal.
        names: of the columns that are wanted, in order.
        delimiter: one character of ASCII.
    """

    def __init__(self, header: Sequence[str], names: Sequence[str], delimiter: str) -> None:
        self._header = list(header)
        self._delimiter = delimiter
        self._converted = arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(header, pa.string()),
            include_columns=list(names),
            strings_can_be_null=False,
            null_values=[],
        )

    @staticmethod
    def takes(parameters: Mapping[str, Any]) -> bool:
        """Whether lines of this format may be read at once; see `csv.reader`."""
        delimiter = parameters.get("delimiter", ",")
        is_plain = (
            isinstance(delimiter, str) and len(delimiter) == 1 and delimiter.isascii() and delimiter not in '\n\r"\0'
        )
        return is_plain and {**parameters, "delimiter": ","} == {"strict": True, "delimiter": ","}

    def columns(self, data: bytes) -> list[pl.Series] | None:
        """The wanted columns, with a row for each line; None if the lines are not clean."""
        if b"\0" in data or data.startswith(codecs.BOM_UTF8):
            return None
        if b"\r" in data and data.count(b"\r") != data.count(b"\r\n"):
            return None
        found = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(found == _NEWLINE)
        if not len(ends) or ends[-1] != len(data) - 1:
            ends = np.append(ends, len(data))
        if np.diff(ends, prepend=-1).max() > csv.field_size_limit() or not self._is_clean(found):
            return None
        reading = arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=self._header)
        parsing = arrow_csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=False)
        try:
            table = arrow_csv.read_csv(pa.py_buffer(data), reading, parsing, self._converted)
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(ends):  # some are blank, or a cell is of several
            return None
        return [pl.Series(name, table[name]) for name in table.column_names]

    def _is_clean(self, found: npt.NDArray[np.uint8]) -> bool:
        """Whether quotes only enclose cells, without quotes in them."""
        quotes = np.flatnonzero(found == _QUOTE)
        if not len(quotes):
            return True
        if len(quotes) % 2:
            return False
        opening, closing = quotes[::2], quotes[1::2]
        before = found[opening - 1]  # of the first byte that is the last one, whatever it is
        after = found[np.minimum(closing + 1, len(found) - 1)]
        delimiter = ord(self._delimiter)
        begins = (before == delimiter) | (before == _NEWLINE) | (opening == 0)
        over = (after == delimiter) | (after == _NEWLINE) | (after == _RETURN) | (closing == len(found) - 1)
        return bool(begins.all() and over.all())
