"""Batches of a file, of which the next one is read in a thread while the one before it is processed.

Invariant: batches, their errors and their end come as they would without a thread; no two threads read at once.

Why: a thread reads one batch, or finds one error, and ends; whoever reads on, from elsewhere too, or closes the file
waits for it first. So no thread is left when nobody reads on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import pyarrow as pa

#: Of the batch before: a thread takes some 0.1 ms to start, and of fewer bytes the next batch takes little more.
_BYTES_MIN = 1 << 20


class Ahead:
    """An iterator over batches that reads one ahead behind large ones.

    Args:
        behind: returns the batches behind a number of rows; their reading releases the lock of the interpreter.
    """

    def __init__(self, behind: Callable[[int], Iterator[pa.RecordBatch]]) -> None:
        self._behind = behind
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._thread: threading.Thread | None = None
        self._found: pa.RecordBatch | BaseException | None = None

    def behind(self, rows: int) -> Self:
        """From now on the batches behind so many rows."""
        self.wait()
        self._batches, self._found = self._behind(rows), None
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        self.wait()
        if self._found is None:
            self._find()
        found, self._found = self._found, None
        if isinstance(found, BaseException):
            raise found
        assert found is not None
        if found.nbytes >= _BYTES_MIN:
            self._thread = threading.Thread(target=self._find, name="drift reads ahead")
            try:
                self._thread.start()
            except RuntimeError:  # no more may start, as when the interpreter ends: it is read when it is asked for
                self._thread = None
        return found

    def _find(self) -> None:
        try:
            self._found = next(self._batches)
        except BaseException as error:  # raised where the batch is asked for; so is the end
            self._found = error

    def wait(self) -> None:
        """Wait for the batch that is being read, if one is."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
