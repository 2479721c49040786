"""Items as lines of JSON, in a file or on standard output.

Invariant: a file is at every moment a prefix of the run's output, except that its last line may be torn; a line depends
on its item alone.

Why: lines are appended in the order of their positions. A rerun that continues a file compares its lines with the
existing ones, byte for byte, and writes only behind the end: the output of a graph and an input is the same each time,
so a difference means another run.

A run that resumes from a checkpoint compares from the byte where the file ended as of that checkpoint. What is behind
it is compared,
not cut off: it is output that somebody may have read, and that is produced again.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from operator import countOf
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec

from drift.guarantees import SinkGuarantee
from drift.places import found_at
from drift.sinks.base import PlainSink, Sink
from drift.sinks.contents import ContentHash
from drift.sinks.resuming import as_committed, check_committed, check_resume, local_path
from drift_graph.errors import SettingsError, SinkBehind, SinkError
from drift_graph.meta import time_of
from drift_graph.metas import Metas


def jsonl(path: str | os.PathLike[str], *, resume: Literal["continue", "replace", "error"] = "continue") -> Sink:
    """One line an item: {"position": 7, "time": 1700000000000, "meta": "80..", "payload": ...}.

    Payloads are written as msgspec writes JSON: tuples, lists and sets as arrays (sets sorted); dicts, dataclasses and
    Structs as objects (the keys of dicts sorted, numbers among them as text); bytes in base64; Decimal, UUID, dates and
    times as text; an Enum as its value. Anything else is a SinkError: also NaN and the infinities, which JSON has not,
    and which would read as None. Each `write` hands its lines to the operating system, and `close` waits until they are
    on the disk.

    >>> import drift
    >>> graph = drift.Graph("fares")
    >>> graph.source("fares").sink("out")
    >>> fares = [{"zone": "JFK", "fare": 30.5}, {"zone": "LGA", "fare": 9.0}]
    >>> report = drift.run(graph, {"fares": fares}, sinks={"out": drift.sinks.jsonl("fares.jsonl")}).finish()
    >>> from pathlib import Path
    >>> print(Path("fares.jsonl").read_text(), end="")
    {"position":0,...,"payload":{"fare":30.5,"zone":"JFK"}}
    {"position":1,...,"payload":{"fare":9.0,"zone":"LGA"}}

    Args:
        resume: what to do with an existing file. "continue": it must be the output of an earlier run of the same graph
            and input, possibly incomplete; each line is compared, a torn one completed, and missing ones appended.
            "replace": start anew. "error": refuse.
    """
    check_resume(resume)
    return JsonLinesSink(local_path("jsonl", path), resume)


def stdout(format: Literal["jsonl", "text"] = "jsonl") -> Sink:
    """Standard output: lines as for `jsonl`, or str(payload) and a newline.

    >>> import drift
    >>> graph = drift.Graph("words")
    >>> graph.source("words").sink("out")
    >>> report = drift.run(graph, {"words": ["to", "be"]}, sinks={"out": drift.sinks.stdout("text")}).finish()
    to
    be

    Raises:
        SettingsError: `format` is neither.
    """
    if format not in ("jsonl", "text"):
        raise SettingsError(f"format={format!r} is neither 'jsonl' nor 'text'")
    return StdoutSink(format)


class JsonLinesSink:
    guarantee: ClassVar = SinkGuarantee("exactly once", "a rerun compares the file and writes what is missing")
    _end = b"\n"  # of a line

    def __init__(self, path: str, resume: str) -> None:
        self._path = path
        self._resume = resume
        self._checkpoint: Any = None  # the file's state as of the checkpoint that the run resumes from
        self._position: int | None = None  # of the last verified line
        self._file: io.FileIO | None = None
        self._regular = False
        self._comparing = False  # whether the file continues behind the verified lines
        self._lines = 0  # verified lines
        self._content = ContentHash()  # of these lines
        self._safe = "nothing was written"

    @property
    def writes_to(self) -> str:
        return self._path

    def open(self) -> None:
        self._lines, self._safe, self._position = 0, "nothing was written", None
        self._content = ContentHash()
        resume = self._resume if self._checkpoint is None else "continue"
        try:
            path = Path(self._path)
            self._regular = found_at(path) in ("file", "")
            # Unbuffered: after a failed write the content of the file is known, and nothing more is written.
            flags = os.O_RDWR | os.O_CREAT if self._regular else os.O_WRONLY
            self._file = file = io.FileIO(os.open(path, flags, 0o666), "r+b" if self._regular else "wb")
            if not self._regular:
                return
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            length = file.seek(0, os.SEEK_END)
            if length and resume == "error":
                raise SinkError(
                    f"{self._path} exists already, with {length} bytes; move it away, or pass resume='continue' or "
                    f"resume='replace'"
                )
            if resume == "replace":
                file.truncate(0)
            start = self._start(length) if self._checkpoint is not None else 0
            file.seek(start)
            self._comparing = length > start and resume == "continue"
        except BlockingIOError:
            raise SinkError(
                f"another run writes to {self._path}; wait for its end, or give each its own file"
            ) from None
        except OSError as error:
            raise SinkError(
                f"{self._path} cannot be opened for writing: {error.strerror}; nothing was written; check the path "
                f"and who may write there"
            ) from error

    def resume_at(self, position: int, committed: Any) -> None:
        check_committed(self._path, committed, "content")
        self._checkpoint = committed

    def _start(self, length: int) -> int:
        """The end of the file as of the checkpoint."""
        start: int = self._checkpoint["bytes"]
        if length < start:
            raise SinkBehind(
                f"{self._path} had {start:,} bytes when the state of this run was saved, and now it has {length:,}; "
                f"what is missing is not computed again: bring the file back, or start anew with another state"
            )
        self._lines, self._position = self._checkpoint["lines"], self._checkpoint["position"]
        assert self._file is not None
        self._content = ContentHash.resumed(self._checkpoint["content"], self._file.fileno(), start)
        if self._content.form() != self._checkpoint["content"]:
            raise self._changed_error()
        return start

    def compare(self, committed: Any) -> str:
        check_committed(self._path, committed, "content")
        length: int = committed["bytes"]
        try:
            with Path(self._path).open("rb") as file:
                if os.fstat(file.fileno()).st_size < length:
                    raise self._changed_error(f"it has {os.fstat(file.fileno()).st_size:,} bytes, and had {length:,}")
                content = ContentHash.of(file.fileno(), length)
        except OSError as error:
            raise SinkError(f"{self._path} cannot be read: {error.strerror}") from error
        if content.form() != committed["content"]:
            raise self._changed_error()
        return f"{self._path} has its {length:,} bytes as of the checkpoint unchanged"

    def _changed_error(self, why: str = "its content has another hash") -> SinkError:
        return SinkError(
            f"{self._path} was changed below the checkpoint since it was written: {why}; what is there is not computed "
            f"again: bring the file back, or start anew with another state, which compares all of it"
        )

    def commit(self) -> dict[str, Any]:
        """The lines are on the disk; returns the length of the file."""
        assert self._file is not None
        if self._regular:
            self._sync()
        return {
            **as_committed([]),
            "bytes": self._file.tell() if self._regular else 0,
            "lines": self._lines,
            "position": self._position,
            "content": self._content.form(),
        }

    def committed_position(self) -> int | None:
        """The position of the last line that was compared or written; None before the first."""
        return self._position

    def write(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> None:
        positions, block, fault = self._encoded(positions, metas, payloads)
        try:
            self._append(self._compare(block, positions) if self._comparing else block, positions)
        except OSError as error:
            raise SinkError(
                f"{self._path} cannot be written: {error.strerror}; {self._safe}; clear that up, and run again with "
                f"resume='continue'"
            ) from error
        if fault is not None:
            raise SinkError(f"{fault}; {self._safe}") from fault.__cause__

    @property
    def has_more_stored(self) -> bool:
        """Whether an earlier run has written more than this one has compared."""
        return self._bytes_behind() > 0

    def _bytes_behind(self) -> int:
        if not self._comparing or self._file is None:
            return 0
        return os.fstat(self._file.fileno()).st_size - self._file.tell()

    def complete(self) -> None:
        if more := self._bytes_behind():
            raise SinkError(
                f"{self._path} goes on for {more:,} bytes after line {self._lines}, where the output of this run ends; "
                f"a run with more input, or another graph, wrote the file, and it is left as it was; take another "
                f"path, or pass resume='replace' (--on-existing replace)"
            )

    def close(self) -> None:
        if self._file is None:
            return
        try:
            if self._regular:
                self._sync()
        finally:
            self._file.close()
            self._file = None

    def _sync(self) -> None:
        assert self._file is not None
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise SinkError(
                f"{self._path}: the disk did not confirm what was written: {error.strerror}; run again with "
                f"resume='continue', which compares all of it"
            ) from error

    def _encoded(
        self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]
    ) -> tuple[Sequence[int], bytes, SinkError | None]:
        """The lines of items up to the first that cannot be written, with the position of each line; and its error."""
        block, fault = encoded(self._path, positions, metas, payloads)
        return positions if fault is None else positions[: block.count(b"\n")], block, fault

    def _append(self, block: bytes, positions: Sequence[int]) -> None:
        """Append the last part of the lines of these positions; all of it, or an error that knows how far."""
        assert self._file is not None
        unwritten = memoryview(block)
        try:
            while unwritten:
                unwritten = unwritten[self._file.write(unwritten) or 0 :]
        finally:
            self._content.add(memoryview(block)[: len(block) - len(unwritten)])
            lines = len(positions) - unwritten.tobytes().count(self._end)
            if lines > 0:
                self._position = positions[lines - 1]
                self._safe = f"the lines up to position {self._position} are complete"
            self._lines += lines

    def _compare(self, block: bytes, positions: Sequence[int]) -> bytes:
        """The part of the block that is not in the file; if there is one, it belongs at the end of the file."""
        assert self._file is not None
        start = self._file.tell()
        found_bytes = self._file.read(len(block)) or b""
        if found_bytes == block:
            self._content.add(block)
            return b""
        complete_bytes = found_bytes.rfind(self._end) + len(self._end) if self._end in found_bytes else 0
        at_end = start + len(found_bytes) == os.fstat(self._file.fileno()).st_size
        if at_end and block.startswith(found_bytes):
            self._comparing = False
            self._content.add(found_bytes)
            return block[len(found_bytes) :]
        tail, due = found_bytes[complete_bytes:], block[complete_bytes:]
        same = next((at for at, (old, new) in enumerate(zip(tail, due)) if old != new), min(len(tail), len(due)))
        is_line = b"\n" in tail[same:]  # that somebody else wrote, of a file whose lines end otherwise
        torn = at_end and not is_line and block.startswith(found_bytes[:complete_bytes])  # in the last line
        if torn and start + complete_bytes:
            self._comparing = False
            self._file.truncate(start + complete_bytes)
            self._file.seek(start + complete_bytes)
            self._content.add(block[:complete_bytes])
            return block[complete_bytes:]
        pairs = zip(block.split(self._end), found_bytes.split(self._end))
        same = min(next(at for at, (new, old) in enumerate(pairs) if new != old), len(positions) - 1)
        raise SinkError(
            f"{self._path}, line {self._lines + same + 1}: it is not what this run gives at position "
            f"{positions[same]}; another graph, input or version wrote the file, and it is left as it was; take "
            f"another path, or pass resume='replace' (--on-existing replace). Live items in arrival time are stamped "
            f"by the clock, so that no rerun gives them again: use event time"
        )


class StdoutSink(PlainSink):
    guarantee: ClassVar = SinkGuarantee("at least once", "nobody can ask what was printed: a rerun prints it all")

    def __init__(self, format: str) -> None:
        self._format = format

    def write(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> None:
        fault: SinkError | None = None
        try:
            if self._format == "text":
                block = "".join([f"{text}\n" for text in map(str, payloads)])
            else:
                lines, fault = encoded("standard output", positions, metas, payloads)
                block = lines.decode()
            sys.stdout.write(block)
            sys.stdout.flush()
        except Exception as error:
            if isinstance(error, BrokenPipeError):
                drop_stdout()
            raise SinkError(
                f"standard output cannot take the items at positions {positions[0]} to {positions[-1]}: "
                f"{type(error).__name__}: {error}; those before them are out"
            ) from error
        if fault is not None:
            raise fault


def drop_stdout() -> None:
    """Nobody reads standard output: discard what Python flushes at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


class _Line(msgspec.Struct):
    position: int
    time: int
    meta: str
    payload: Any


_encoder = msgspec.json.Encoder(order="deterministic")
_encoder_in_order = msgspec.json.Encoder()


def encoded(
    name: str, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]
) -> tuple[bytes, SinkError | None]:
    """The lines of items, up to the first whose payload cannot be written, and its error."""
    rows = list(map(_Line, positions, map(time_of, metas), map(bytes.hex, metas), payloads))
    with suppress(Exception):
        block: bytes = _encoder.encode_lines(rows)
        if (nulls := block.count(b"null")) and nulls != _nones(payloads):
            for row in rows:
                _refuse_not_finite(row.payload)
        return block, None
    good: list[bytes] = []
    for row in rows:
        try:
            good.append(_encoded_row(row))
        except Exception as error:
            fault = SinkError(
                f"{name}: the payload at position {row.position}, a {type(row.payload).__qualname__}, cannot be "
                f"written as JSON: {error}; map it to numbers, text, lists and dicts before the sink"
            )
            fault.__cause__ = error
            return b"".join(good), fault
    return b"".join(good), None


def _nones(payloads: Sequence[Any]) -> int:
    """How often None is a payload, or a value in a dict; if JSON has as many nulls, it has no others."""
    try:
        return countOf(chain.from_iterable(map(dict.values, payloads)), None)
    except TypeError:
        return countOf(payloads, None)


def _refuse_not_finite(payload: Any) -> None:
    """Raises ValueError: it has a float that JSON has not, and that would be written as null."""
    try:
        json.dumps(msgspec.to_builtins(payload, str_keys=True), allow_nan=False)
        return
    except ValueError:
        pass
    raise ValueError(
        "it has NaN or an infinity, which JSON has not: map it to None, or to text, in a step before the sink"
    )


def _encoded_row(row: _Line) -> bytes:
    _refuse_not_finite(row.payload)
    try:
        return _encoder.encode(row) + b"\n"
    except TypeError:  # possibly for a dict with numbers as keys, which this encoder cannot sort
        plain = _encoder_in_order.encode(row)
        row.payload = msgspec.to_builtins(row.payload, str_keys=True, order="deterministic")
        line = _encoder.encode(row)
        if len(line) != len(plain):
            raise TypeError("two keys of a dict are the same text in JSON") from None
        return line + b"\n"


def as_json(payload: Any) -> bytes:
    """A payload as in the lines of `jsonl`. Raises TypeError, ValueError, msgspec.MsgspecError: it has no JSON."""
    try:
        data = _encoder.encode(payload)
    except TypeError:
        data = _encoder.encode(msgspec.to_builtins(payload, str_keys=True, order="deterministic"))
    if b"null" in data and payload is not None:
        _refuse_not_finite(payload)
    return data
