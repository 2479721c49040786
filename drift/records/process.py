"""The process that writes a record, beside the run: it reads the run's messages from its standard input.

Invariant: when the pipe ends, for whatever reason, every complete message is sealed.

Why: messages are handled in order until the pipe ends; a torn frame is dropped.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from drift.parent import Parent
from drift.records.format import Outcome
from drift.records.messages import Begin, Finish, WriterEnded, decode, encode
from drift.records.writing import Writing
from drift_graph.errors import DriftBug, DriftError

if TYPE_CHECKING:
    from drift.records.writer import RecordWriter


def write_record(run: Parent) -> RecordWriter | None:
    """Write all messages until the pipe ends; None if there was no message.

    Raises:
        OSError: the disk is full or unmounted; everything sealed before remains.
    """
    from drift.records.writer import RecordWriter  # loads numpy and PyArrow, while the pipe is read

    first = run.take()
    if first is None:
        return None
    begin = decode(first)
    if not isinstance(begin, Begin):
        raise DriftBug(f"the writer of a record first received {type(begin).__name__}")
    writing = Writing(Path(begin.folder))
    try:
        writer = RecordWriter(begin)
        try:
            _write(writer, run, begin.seal_after_s)
        except BaseException as error:
            writer.abandon()
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            with suppress(OSError):  # readers see then that no process writes it
                writer.break_off(f"the record could not be written on: {reason}", datetime.now(UTC).isoformat())
            raise
    finally:
        writing.end()
    return writer


def _write(writer: RecordWriter, run: Parent, seal_after_s: float) -> None:
    sealed_s = time.monotonic()
    while not run.ended:
        frame = run.take(max(sealed_s + seal_after_s - time.monotonic(), 0.05))
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
    reason = "the process of the run ended without a message: it was killed, perhaps for lack of memory"
    writer.end(Outcome("broken off", reason), datetime.now(UTC).isoformat())


class _Without:
    """Blocks imports of pandas and of cloud file systems, which PyArrow loads if installed; pandas takes a third of a
    second.
    """

    names = frozenset({"pandas", "pyarrow._azurefs", "pyarrow._gcsfs", "pyarrow._hdfs", "pyarrow._s3fs"})

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname in self.names:
            raise ModuleNotFoundError(f"{fullname} is not loaded here", name=fullname)


def main(run: Parent) -> None:
    """Write a record; the last message says how that ended."""
    sys.meta_path.insert(0, _Without())
    sys.setswitchinterval(0.0005)  # the run may wait for the reading thread
    ended = WriterEnded()
    code = 0
    try:
        write_record(run)
    except OSError as error:
        ended = WriterEnded(f"{error.strerror or error}", full=error.errno in (errno.ENOSPC, errno.EDQUOT))
        code = 1
    except DriftError as error:
        ended, code = WriterEnded(str(error)), 1
    run.write(encode(ended))
    os._exit(code)  # the reading thread may block on a pipe that another process keeps open
