"""A source that is sorted as a whole before its first item is given: `EventTime(..., lateness="all")`.

Invariant: its reader gives every payload of the input once, in the order of their times; a payload without a time,
which is diverted, follows the greatest time before it in the input. So no item is late, and the same input is given in
the same order.

Why: with a bound on lateness, what is later than the bound is late; a finished table has no such bound, and what has to
wait for all of it should not wait as items of the dataflow. Beyond `memory_max` sorted runs are in files without names,
a block at a time, and each block of the merge has what lies below the first run that has to be read on.
"""

from __future__ import annotations

import pickle
import select
import tempfile
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import le
from typing import Any, NamedTuple, cast

from drift.sources.base import Reader, Source, as_reader
from drift_graph.errors import InputError, PayloadError, SettingsError, StorageError
from drift_graph.functions import safe_text
from drift_graph.meta import TIME_MIN
from drift_graph.metas import Integers
from drift_graph.payloads import in_order, joined
from drift_graph.policies import EventTime
from drift_graph.sizes import about_bytes
from drift_graph.stamps import timed_rows, times_of, times_or_diverted
from drift_graph.times import SourceMachine

_READ_ITEMS = 65_536
#: Of a file, about so many bytes are in memory at once.
_BLOCK_BYTES = 1 << 20
_WAIT_S = 0.05


class Block(NamedTuple):
    """Payloads with their times."""

    times: array[int]
    payloads: Any

    def part(self, start: int, end: int) -> Block:
        return Block(self.times[start:end], self.payloads[start:end])


def _sorted(blocks: Sequence[Block]) -> Block:
    times = array("q")
    for block in blocks:
        times.extend(block.times)
    payloads = joined([block.payloads for block in blocks])
    if all(map(le, times, islice(times, 1, None))):
        return Block(times, payloads)
    order = sorted(range(len(times)), key=times.__getitem__)
    return Block(array("q", map(times.__getitem__, order)), in_order(payloads, order))


class _Run:
    """A sorted block in a file without a name, which is read back in smaller ones.

    Raises:
        StorageError: there is no room on disk.
        PayloadError: a payload cannot be pickled.
    """

    def __init__(self, block: Block, source: str) -> None:
        self._ends: list[int] = []  # in the file, of the smaller blocks
        count = max(len(block.times) * _BLOCK_BYTES // max(about_bytes(block.payloads), 1), 1)
        try:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115
            for start in range(0, len(block.times), count):
                part = block.part(start, start + count)
                self._file.write(pickle.dumps((part.times, part.payloads), 5))
                self._ends.append(self._file.tell())
            self._file.flush()
        except OSError as error:
            raise StorageError(
                f"the input of source {source!r}, which is sorted as a whole, takes more than memory_max, and it "
                f"cannot be written to {tempfile.gettempdir()}: {error.strerror or error}; make room, let TMPDIR name "
                f"another folder, or raise memory_max="
            ) from error
        except Exception as error:
            raise PayloadError(
                f"source {source!r} has a payload that cannot be written to disk: {safe_text(str, error, 200)}; with "
                f"memory_max= and lateness='all' payloads must be such that pickle writes and reads them"
            ) from error

    def blocks(self) -> Iterator[Block]:
        start = 0
        for end in self._ends:
            self._file.seek(start)
            yield Block(*pickle.loads(self._file.read(end - start)))
            start = end

    def close(self) -> None:
        self._file.close()


def merged(runs: Sequence[Iterator[Block]]) -> Iterator[Block]:
    """The payloads of sorted runs, each in blocks, in the order of their times."""
    heads = [(block, run) for run in runs if (block := next(run, None)) is not None]
    while heads:
        bound = min(block.times[-1] for block, _ in heads)  # what is not read yet is not below it
        taken: list[Block] = []
        left: list[tuple[Block, Iterator[Block]]] = []
        for block, run in heads:
            end = bisect_right(block.times, bound)
            taken.append(block.part(0, end))
            rest = block.part(end, len(block.times)) if end < len(block.times) else next(run, None)
            if rest is not None:
                left.append((rest, run))
        heads = left
        yield _sorted(taken)


def _wait(reader: Reader) -> None:
    """Until a pipe or a connection may have something."""
    select.select(reader.filenos(), (), (), _WAIT_S)


class WholeSource:
    """A source that ends, sorted as a whole.

    Args:
        machine: of the source; it checks payloads against the schema.
        memory_max: bytes that payloads in memory may take; None: no limit.

    Raises:
        SettingsError: the source is live, so it has no end.
    """

    live = False

    def __init__(
        self, source: Source, machine: SourceMachine, policy: EventTime, memory_max: int | None, *, complete: bool
    ) -> None:
        why = "is live" if source.live else "" if complete else "goes on in a later run, by complete=False"
        if why:
            raise SettingsError(
                f"source {machine.name!r} {why}, and lateness='all' waits for the end of its input; name how far its "
                f"items may be out of order, such as lateness='10s'"
            )
        self._source, self._machine, self._policy, self._memory_max = source, machine, policy, memory_max
        self.guarantee = getattr(source, "guarantee", None)

    def open(self) -> WholeReader:
        return WholeReader(as_reader(self._source.open()), self._machine, self._policy, self._memory_max)


class WholeReader(Reader):
    """The reader of a `WholeSource`.

    Attributes:
        inner: the reader of what is sorted; after the first `read` it is at its end.
    """

    def __init__(self, inner: Reader, machine: SourceMachine, policy: EventTime, memory_max: int | None) -> None:
        self.inner = inner
        self._machine, self._policy, self._memory_max = machine, policy, memory_max
        self._runs: list[_Run] = []
        self._merged: Iterator[Block] | None = None
        self._rest = Block(array("q"), [])
        self._taken = self._given = 0
        self._greatest = TIME_MIN
        self._sought: Any = None
        self._is_asked = False  # for positions

    def read(self, items_max: int) -> list[Any] | None:
        """The first call reads all of the input.

        Raises:
            InputError: the input cannot be read, or a payload has no time; nothing was given yet.
            StorageError: there is no room on disk.
            PayloadError: a payload cannot be written to disk.
        """
        if self._merged is None:
            self._merged = self._read_whole()
            if self._sought is not None:
                self._skip(self._sought)
        if not len(self._rest.times):
            following = next(self._merged, None)
            if following is None:
                return None
            self._rest = following
        given, self._rest = self._rest.part(0, items_max), self._rest.part(items_max, len(self._rest.times))
        self._given += len(given.times)
        return cast("list[Any]", given.payloads)

    def _read_whole(self) -> Iterator[Block]:
        blocks: list[Block] = []
        in_memory = 0
        while (payloads := self.inner.read(_READ_ITEMS)) is not None:
            if not payloads:
                _wait(self.inner)
                continue
            if self._is_asked:  # a position may be made of all that is read
                self.inner.position()
            blocks.append(self._timed(payloads, self._taken))
            self._taken += len(payloads)
            in_memory += about_bytes(payloads)
            if self._memory_max is not None and in_memory > self._memory_max // 2:  # sorting takes as much again
                self._runs.append(_Run(_sorted(blocks), self._machine.name))
                blocks, in_memory = [], 0
        return merged([*(run.blocks() for run in self._runs), iter([_sorted(blocks)] if blocks else [])])

    def _timed(self, payloads: Any, before: int) -> Block:
        """The payloads with their times, checked against the schema."""
        payloads, error = self._machine.checked(payloads, before)
        timed = timed_rows(payloads, self._policy)
        times: Integers | list[int]
        if timed is not None:
            times = timed.times
        elif self._machine.diverting:
            payloads, found = times_or_diverted(payloads, self._policy, self._machine.name)
            times = []
            for time in found:
                self._greatest = self._greatest if time is None else max(self._greatest, time)
                times.append(self._greatest if time is None else time)
        else:
            times, untimed = times_of(payloads, self._policy, self._machine.name, before)
            error = untimed or error
        if error is not None:
            raise error
        numbers = array("q", times)
        if numbers:
            self._greatest = max(self._greatest, max(numbers))
        return Block(numbers, payloads)

    def _skip(self, sought: dict[str, Any]) -> None:
        """Skip what another reader has given. Raises InputError: the input has changed, so it is sorted otherwise."""
        while self._given < sought["given"] and self.read(sought["given"] - self._given) is not None:
            pass
        if self._given < sought["given"] or (sought["end"] is not None and self.inner.position() != sought["end"]):
            raise InputError(
                f"source {self._machine.name!r} has other input than the run that is resumed, and lateness='all' "
                f"sorts all of it, so what comes at {sought['given']} items is not what came then; bring the input "
                f"back as it was, or start a new run"
            )

    def position(self) -> Any:
        """How many payloads were given, and where the input ends, once it was read; None if it cannot be read again."""
        self._is_asked = True
        if self.inner.position() is None:
            return None
        if self._merged is None and self._sought is not None:
            return self._sought
        return {"given": self._given, "end": self.inner.position() if self._merged is not None else None}

    def more_behind(self, position: Any) -> str:
        return self.inner.more_behind(position and position["end"])

    def seek(self, position: Any) -> None:
        self._sought = position

    def halt(self) -> bool:
        """All of it was taken by the first `read`."""
        return True

    def left(self) -> list[Any]:
        return [self._rest.payloads, *(block.payloads for block in self._merged or ())]

    def fraction(self) -> float | None:
        """Of what was given, once all was read."""
        return None if self._merged is None or not self._taken else self._given / self._taken

    def close(self) -> None:
        for run in self._runs:
            run.close()
        self.inner.close()
