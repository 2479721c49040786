"""Breakages of how files are read and written."""

from __future__ import annotations

from broken import Breakage, one

FOLDERS = ("tests/test_folder_laws.py",)
LONG = ("tests/test_sources_long_lines.py",)
NO_FILES = "the harness reads no files"

_CHUNKS, _FOLLOWED, _LINES = "drift/sources/chunks.py", "drift/sources/followed.py", "drift/sinks/lines.py"


def broken(name: str, file: str, old: str, new: str, *tests: str) -> Breakage:
    return one(name, file, old, new, tests or FOLDERS, NO_FILES)


BREAKAGES = [
    broken(
        "another file under the same name is read on",
        _CHUNKS,
        "        if known.hexdigest() != start.hash:\n",
        "        if False:\n",
    ),
    broken(
        "what was returned of a block is not in the hash",
        _CHUNKS,
        "            block.known.update(block.data[block.at : at])\n",
        "            block.known.offset += at - block.at\n",
        "tests/test_sources_positions.py",
    ),
    broken(
        "files that were read to their end may be others",
        "drift/sources/many.py",
        "        if self._passed.hexdigest() != passed:\n",
        "        if False:\n",
    ),
    broken(
        "a last line that goes on becomes two",
        _CHUNKS,
        "            if self._again[0]:\n",
        "            if False:\n",
        "tests/test_sources_positions.py",
    ),
    broken(
        "a followed file that is replaced is never read",
        _FOLLOWED,
        "            gone = self._reader is not None and listing.identity != self._identity\n",
        "            gone = False\n",
        "tests/test_sources_followed.py",
    ),
    broken(
        "a followed file that is written over is read on",
        _CHUNKS,
        "            if self._last and (fault := self._rewritten()):\n",
        "            if False:\n",
        "tests/test_sources_followed.py",
    ),
    broken(
        "a line without an end is read whole",
        _CHUNKS,
        "            if self._part_bytes > line_max + 1:",
        "            if False:",
        *LONG,
    ),
    broken(
        "a row of CSV without an end is read whole",
        "drift/sources/csv_rows.py",
        "            if size > limit:\n",
        "            if False:\n",
        *LONG,
    ),
    broken(
        "NaN is written as null",
        _LINES,
        "        if (nulls := block.count(b\"null\")) and nulls != _nones(payloads):\n",
        "        if False:\n",
        "tests/test_sinks.py",
    ),
    broken(
        "a torn line is written twice",
        _LINES,
        "            return block[len(found_bytes) :]\n",
        "            return block\n",
    ),
    broken(
        "a file that lost output below a cut is continued",
        _LINES,
        "        if length < start:\n",
        "        if False:\n",
    ),
    broken(
        "another Parquet file under the same name is read on",
        "drift/sources/parquet.py",
        "        if identity != self._identity:\n",
        "        if False:\n",
        "tests/test_connectors.py",
    ),
    broken(
        "the rows before a damaged page of Parquet are lost",
        "drift/sources/parquet.py",
        "                    if size == 1:\n",
        "                    if size:\n",
        "tests/test_connectors.py",
    ),
]  # fmt: skip
