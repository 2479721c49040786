"""The process that writes a record, beside the run: reads what the run tells from its standard input.

Invariant: when the pipe ends, for whatever reason, everything that came whole through it is sealed; and the run never
waits for the disk while less than `_WAITING_BYTES_MAX` wait to be written.

Why: a thread reads, so that the pipe is emptied while a file is written; a frame that is cut short is left out.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from importlib.abc import MetaPathFinder
from io import FileIO

from drift.records.format import Outcome
from drift.records.messages import LENGTH_BYTES, Begin, Finish, Told, decode, telling
from drift.records.writer import RecordWriter
from drift_graph.errors import DriftBug, DriftError

_WAITING_BYTES_MAX = 64 << 20


class Inbox:
    """Frames that have come, in order."""

    def __init__(self, stream: FileIO) -> None:
        self._stream = stream
        self._frames: deque[bytearray] = deque()
        self._bytes = 0
        self._ended = False
        self._changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while (frame := self._next()) is not None:
            with self._changed:
                self._frames.append(frame)
                self._bytes += len(frame)
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._bytes < _WAITING_BYTES_MAX)
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _next(self) -> bytearray | None:
        head = self._exactly(LENGTH_BYTES)
        return self._exactly(int.from_bytes(head, "big")) if head is not None else None

    def _exactly(self, length: int) -> bytearray | None:
        """So many bytes; None where the pipe ends before."""
        data = bytearray(length)
        view = memoryview(data)
        while view:
            count = self._stream.readinto(view)
            if not count:
                return None
            view = view[count:]
        return data

    def take(self, timeout_s: float | None = None) -> bytearray | None:
        """The next frame; None after the last one, or after so long without one."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._frames) or self._ended, timeout_s)
            if not self._frames:
                return None
            frame = self._frames.popleft()
            self._bytes -= len(frame)
            self._changed.notify_all()
            return frame

    @property
    def ended(self) -> bool:
        """Nothing is left and nothing will come."""
        with self._changed:
            return self._ended and not self._frames


def write_record(inbox: Inbox) -> RecordWriter | None:
    """Write what comes until it ends; None where nothing came at all.

    Raises:
        OSError: the disk is full, or gone; what was sealed before stays.
    """
    first = inbox.take()
    if first is None:
        return None
    begin = decode(first)
    if not isinstance(begin, Begin):
        raise DriftBug(f"the writer of a record was first told {type(begin).__name__}")
    writer = RecordWriter(begin)
    try:
        _write(writer, inbox, begin.seal_after_s)
    except BaseException:
        writer.abandon()
        raise
    return writer


def _write(writer: RecordWriter, inbox: Inbox, seal_after_s: float) -> None:
    sealed_s = time.monotonic()
    while not inbox.ended:
        frame = inbox.take(max(sealed_s + seal_after_s - time.monotonic(), 0.05))
        if frame is not None:
            message = decode(frame)
            writer.handle(message)
            if isinstance(message, Finish):
                return
        now_s = time.monotonic()
        if writer.full or now_s - sealed_s >= seal_after_s:
            if writer.unsealed:
                writer.seal()
            sealed_s = time.monotonic()
    said = "the process of the run ended without a word: it was killed, or the machine took it away"
    writer.end(Outcome("broken off", said), datetime.now(UTC).isoformat())


class _NoPandas(MetaPathFinder):
    """PyArrow loads pandas where it is installed, which takes a third of a second; nothing here is a data frame."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not loaded here", name="pandas")


def main() -> None:
    """Write a record; the last word goes to standard output."""
    sys.meta_path.insert(0, _NoPandas())
    sys.setswitchinterval(0.0005)  # the run may wait for the thread that reads
    told = Told()
    code = 0
    try:
        writer = write_record(Inbox(FileIO(sys.stdin.fileno(), closefd=False)))
        if writer is not None:
            manifest = writer.manifest
            told = Told(digest=manifest.digest, items_in=manifest.items_in, items_out=manifest.items_out)
    except OSError as error:
        told = Told(f"{error.strerror or error}", full=error.errno in (errno.ENOSPC, errno.EDQUOT))
        code = 1
    except DriftError as error:
        told, code = Told(str(error)), 1
    with suppress(BrokenPipeError):  # nobody hears it where the run was killed; the record says it
        os.write(sys.stdout.fileno(), telling(told))
    os._exit(code)  # the reading thread may wait for a pipe that another process keeps open
