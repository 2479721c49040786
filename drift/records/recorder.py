"""The run's side of a record: sends what happens to the process that writes it.

Invariant: an item is sent before the engine gets it, and output before the caller gets it; so wherever the pipe ends,
what came through is a record of the run up to there.

Why a process: packing columns and writing files costs about as much as running a small graph, and Python runs one
thread at a time. The run itself only copies bytes that it has made anyway, for the digest.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from datetime import UTC, datetime
from itertools import chain
from operator import is_
from pathlib import Path
from typing import Any

import msgspec

from drift.children import Channel, folders_of_ours, with_folders_of_ours
from drift.places import found_at, is_url
from drift.records.format import MANIFEST, Manifest, RecordError, read_manifest
from drift.records.messages import (
    Answers,
    Arrival,
    Begin,
    Finish,
    LateRow,
    Learned,
    Message,
    Output,
    Stored,
    WriterEnded,
    decode_ended,
    encode,
    split_metas,
)
from drift.records.storable import Storable
from drift.undisturbed import undisturbed
from drift.urls import without_secrets
from drift_barrier.barrier import Released
from drift_barrier.digest import BLOCK_ITEMS, Encoded, encoded_by_block
from drift_graph.canonical import joined, stored, stored_each, stored_plain
from drift_graph.errors import DriftBug, PayloadError, ProcessError, SettingsError, SinkError
from drift_graph.item import Failure
from drift_graph.numbers import check_int, check_seconds
from drift_graph.payloads import have_fields
from drift_graph.times import Arrived

#: The writer needs little of drift, so the package is set up without its imports; and it reads before it imports the
#: rest: nothing of this may delay the run.
PROGRAM = f"""
import sys, types
drift = sys.modules["drift"] = types.ModuleType("drift")
drift.__path__, drift.__version__ = [sys.argv[2]], sys.argv[3]
{with_folders_of_ours(4)}
from drift.parent import Parent
run = Parent(int(sys.argv[1]), None, waiting_bytes_max=64 << 20)
from drift.records.process import main
main(run)
"""
#: For the writer. Numpy would start threads, a third of its import time; and glibc would return memory to the system
#: after each batch and request it again, a sixth of the writer's time.
_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(64 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
}
_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031  # Linux


class Recording(msgspec.Struct, frozen=True):
    """Where a record goes, and when its parts are full.

    >>> import drift
    >>> graph = drift.Graph("fares")
    >>> graph.source("fares").sink("out")
    >>> monday = drift.Recording("monday", seal_after_s=5)
    >>> drift.run(graph, {"fares": [30, 9]}, record=monday).finish().items_out
    2

    Attributes:
        path: a folder that does not exist yet.
        part_items_max, part_bytes_max: approximate limit of a part of a table (bytes before compression).
        seal_after_s: after this time everything so far is made durable, even if no part is full.
    """

    path: str | os.PathLike[str]
    part_items_max: int = 1 << 20
    part_bytes_max: int = 256 << 20
    seal_after_s: float = 30.0


def as_recording(record: Any) -> Recording:
    """The user's `record` argument as a Recording."""
    if isinstance(record, Recording):
        for name in ("part_items_max", "part_bytes_max"):
            check_int(name, getattr(record, name))
        check_seconds("seal_after_s", record.seal_after_s, is_wait=False)
        if is_url(named := os.fsdecode(record.path)):
            raise SettingsError(
                f"record={without_secrets(named)!r} is a URL, and a record is a folder of this machine; copy it there "
                f"when the run has ended"
            )
        return record
    if isinstance(record, (str, os.PathLike)) and os.fspath(record):
        return as_recording(Recording(record))
    raise SettingsError(f"record={record!r:.80} is no path; pass a folder that does not exist yet")


class Recorder:
    """Sends what a run does to the writer of its record.

    Args:
        manifest: what is known before the run.
    """

    def __init__(self, recording: Recording, manifest: Manifest) -> None:
        self._recording = recording
        self._folder = Path(recording.path)
        self._manifest = manifest
        self._sinks = {name: index for index, name in enumerate(manifest.sinks)}
        self._storable = Storable()
        self._sent_classes = 0
        self._process: Channel | None = None
        self._read: tuple[Any, bytes] = (), b""  # the payloads read last, and their bytes
        self._batch = 0
        self._heartbeats: dict[int, Arrival] = {}
        self._open_items = 0  # of the output's last block
        self._ended = False
        _check_texts(manifest, self._folder)
        _check_free(self._folder)

    def start(self) -> None:
        """Make the folder and start the writer.

        Raises:
            SettingsError: the path exists.
            SinkError: the folder cannot be made.
        """
        _check_free(self._folder)
        self._manifest.started = datetime.now(UTC).isoformat()
        recording = self._recording
        begin = Begin(
            str(self._folder.absolute()),
            msgspec.json.encode(self._manifest),
            recording.part_items_max,
            recording.part_bytes_max,
            recording.seal_after_s,
        )
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SinkError(f"the record {self._folder} cannot be made: {error.strerror}") from error
        package, version = str(Path(__file__).parents[1]), sys.modules["drift"].__version__
        self._process = Channel(
            f"drift record {self._folder.name} of {self._manifest.graph}",
            arguments=[package, version, *folders_of_ours()],
            program=PROGRAM,
            environment=_ENVIRONMENT,
            as_here=False,
        )
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._process.stdin, _F_SETPIPE_SZ, _PIPE_BYTES)
        self._send(begin)

    # What the run reports.

    def read(self, name: str, payloads: list[Any]) -> tuple[list[Any], PayloadError | None]:
        """Payloads that a source has read, before they are judged; if one cannot be recorded, those before it and an
        error.
        """
        bad = None
        data = stored_plain(payloads)
        if data is None:
            data, bad = self._storable.stored(payloads, f"source {name!r}")
        if bad is not None:
            payloads = payloads[: bad[0]]
        self._read = payloads, data
        return payloads, bad[1] if bad is not None else None

    def arrived(self, name: str, rank: int, arrived: Arrived) -> None:
        """The batch that a source makes from what it has read, before the engine gets it."""
        read, data = self._read
        is_read = len(arrived.payloads) == len(read)
        if is_read and not have_fields(arrived.payloads):  # of rows none is held, or in the place of another
            is_read = arrived.payloads is read or all(map(is_, arrived.payloads, read))
        if not is_read:  # some were late, refused, diverted, held, or had been held
            data = joined(arrived.payloads, in_order=False).data
        late = [LateRow(each.time, each.heartbeat, each.reason, stored(each.payload)) for each in arrived.late]
        first_time, metas = split_metas(arrived.metas)
        self._arrive(
            Arrival(0, rank, time.time_ns(), len(arrived.payloads), first_time, metas, data, arrived.heartbeat, late)
        )

    def arrived_stored(self, batch: Stored) -> None:
        """A source's batch in stored form, from code that has checked that such payloads can be recorded."""
        rank, items, metas, payloads, heartbeat = batch
        self._arrive(Arrival(0, rank, time.time_ns(), items, None, metas, payloads, heartbeat, []))

    def _arrive(self, arrival: Arrival) -> None:
        if arrival.count or arrival.late:
            self._flush_heartbeats()
            self._send_arrival(arrival)
        else:
            self._heartbeats[arrival.source] = arrival  # sent with the next message: only the last of several matters

    def released(self, batch: Released, encoded: Sequence[Encoded] = ()) -> tuple[Released, PayloadError | None]:
        """Output, before the caller gets it; if a payload cannot be recorded, the items before it and an error.

        Args:
            encoded: the bytes of the payloads, if the engine has them.
        """
        error: PayloadError | None = None
        if not encoded:
            encoded = list(encoded_by_block(batch.metas, batch.payloads, BLOCK_ITEMS - self._open_items))
        start = 0
        self._flush_heartbeats()
        for block in encoded:
            if not block.plain:
                bad = self._storable.check(batch.payloads[start : start + block.items], "the output")
                if bad is not None:
                    index, error = bad
                    batch = batch.before(batch.position + start + index)
                    rest = batch.metas[start:], batch.payloads[start:]
                    (block,) = [*encoded_by_block(*rest)] or (Encoded(0, b"", b"", True),)
            if block.items:
                self._send_output(batch, start, block)
                start += block.items
            if error is not None:
                break
        return batch, error

    def answered(self, call: str, metas: Sequence[bytes], payloads: Sequence[Any], answers: Sequence[Any]) -> None:
        """Answers of a call, before they are used; a `Failure` in place of one that failed.

        Raises:
            PayloadError: one cannot be recorded.
        """
        self._flush_heartbeats()
        failed = [type(answer) is Failure for answer in answers]
        bad = self._storable.check([each for each in answers if type(each) is not Failure], f"call {call!r}")
        if bad is not None:
            raise bad[1]
        stored = stored_each([astuple(each) if type(each) is Failure else each for each in answers])
        self._send(Answers(call, list(metas), failed, stored))

    def _send_output(self, batch: Released, start: int, block: Encoded) -> None:
        metas = batch.metas
        sinks: int | list[int]
        if isinstance(batch.sinks, str):
            sinks = self._sinks[batch.sinks]
        else:
            sinks = list(map(self._sinks.__getitem__, batch.sinks[start : start + block.items]))
        numbers = metas.numbers()
        if numbers is not None:
            first_time, data = numbers[0] + start, numbers[1]
        else:  # an engine does not encode computed metas for it
            first_time, data = None, block.metas or metas.encoded(start, start + block.items)
        self._send(Output(batch.position + start, block.items, first_time, data, block.payloads, sinks))
        self._open_items = (self._open_items + block.items) % BLOCK_ITEMS

    def _flush_heartbeats(self) -> None:
        for heartbeat in self._heartbeats.values():
            self._send_arrival(heartbeat)
        self._heartbeats.clear()

    def _send_arrival(self, arrival: Arrival) -> None:
        arrival.batch = self._batch
        self._batch += 1
        self._send(arrival)

    # The pipe.

    @undisturbed  # half a message cannot be continued
    def _send(self, message: Message) -> None:
        targets = self._storable.targets
        if len(targets) > self._sent_classes:
            new = list(targets.items())[self._sent_classes :]
            self._sent_classes = len(targets)
            for name, target in new:
                self._send(Learned(name, target))
        assert self._process is not None
        try:
            self._process.write(encode(message))
        except BrokenPipeError:
            raise self._failure() from None

    def end(self, state: str, error: BaseException | None, by_input: bool, digest: str) -> None:
        """The run has ended. `digest`: of all the output, as the engine has it; "" if the record may have less."""
        if self._process is None or self._ended:
            return
        ended = datetime.now(UTC).isoformat()
        self._flush_heartbeats()
        kind = type(error).__name__ if error is not None else ""
        text = str(error or "").encode(errors="backslashreplace").decode()  # it may quote a lone surrogate
        self._send(Finish(state, text, kind, by_input, ended, digest))

    def close(self) -> None:
        """Wait until everything is durable.

        Raises:
            SinkError: it could not be written; everything sealed before remains.
        """
        if self._process is None or self._ended:
            return
        self._ended = True
        last = self._writers_end()
        if last is None or last.error:
            raise self._failure(last)

    def _writers_end(self) -> WriterEnded | None:
        assert self._process is not None
        self._process.close_input()
        answer = self._process.wait_for()
        self._process.wait()
        self._process.end()
        return None if answer is None else decode_ended(answer)

    def _failure(self, last: WriterEnded | None = None) -> Exception:
        """The error for a writer that has ended."""
        self._ended = True
        if last is None:
            last = self._writers_end()
        sealed = _sealed_text(self._folder)
        if last is None:
            assert self._process is not None
            return ProcessError(
                f"the process that writes the record {self._folder} died (exit code {self._process.poll()}); "
                f"{sealed}. Run again with another path"
            )
        if "please report" in last.error:
            return DriftBug(last.error)
        todo = "free some space" if last.full else "mend that"
        return SinkError(
            f"the record {self._folder} cannot be written: {last.error}; {sealed}. To have it all, {todo} and run "
            f"again with another path"
        )


def _sealed_text(folder: Path) -> str:
    try:
        manifest = read_manifest(folder)
    except RecordError:
        return "nothing was sealed"
    return f"{manifest.items_in:,} items of input and {manifest.items_out:,} of output are sealed and can be replayed"


def _check_texts(manifest: Manifest, folder: Path) -> None:
    """Check that what describes the run is text in UTF-8.

    Raises:
        SettingsError: a name, of a step or a file, has a lone surrogate.
    """
    found = [text for text in [str(folder), *_texts(msgspec.to_builtins(manifest))] if not _is_utf8(text)]
    if not found:
        return
    bad = min(found, key=len)  # others quote it
    names = {manifest.graph: "graph", **dict.fromkeys(manifest.sinks, "sink")}
    names |= {source.name: "source" for source in manifest.sources}
    what = f"{names[bad]} {bad!r}" if bad in names else f"{bad!r:.300}"
    raise SettingsError(
        f"a record cannot be made of this run: {what} has a lone surrogate (part of a character, or a byte that was no "
        f"text), and a record names the graph, its steps and files as UTF-8; give it another name, or leave out record="
    )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from chain.from_iterable(map(_texts, chain(value, value.values())))
    elif isinstance(value, list | tuple):
        yield from chain.from_iterable(map(_texts, value))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_free(folder: Path) -> None:
    found = found_at(folder)
    if found == "folder" and any(folder.iterdir()):
        what = "holds a record" if found_at(folder / MANIFEST) else "is not empty"
        raise SettingsError(
            f"record={str(folder)!r} {what}; a record is never overwritten: pass a folder that does not exist"
        )
    if found not in ("folder", ""):
        raise SettingsError(f"record={str(folder)!r} is a file; pass a folder that does not exist")
