"""Sinks that store the last position with their data: which items they have already, and which are new.

Invariant: what is stored continues the existing data: nothing twice, nothing left out. Only the oldest items of it may
have been removed meanwhile.

Why: a rerun gives the same items at the same positions, so those up to the stored position exist already. If the meta
at that position differs from the stored one, the data is the output of another graph or input, and is refused. A run
that resumes from a checkpoint does not produce items below it again, so the data must reach at least as far as it did
at that checkpoint. A target that stores the position beside its items, such as a log of a table, has it also after
somebody removed the items: so it is asked for the last item, and for the number of those that are produced again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from drift.guarantees import SinkGuarantee
from drift.places import is_url
from drift.urls import path_text, without_secrets
from drift_graph.errors import SettingsError, SinkBehind, SinkError
from drift_graph.metas import Metas

Resume = Literal["continue", "replace", "error"]
_FORM = 2  # format of what `commit` returns


class Last(NamedTuple):
    """The last stored item: its position, from 0, and its meta, bytes that differ from those of all other items."""

    position: int
    meta: bytes


class Found(NamedTuple):
    """The items that a target has between two positions: how many, and the position of the first."""

    items: int
    first: int | None


class Resuming:
    """Where a sink goes on, in one part of its target.

    Args:
        target: what is written to, for errors.
        before: the last item that earlier runs have written.
        found: of the items that are produced again those that are there; None: that is not known.
    """

    def __init__(self, target: str, before: Last | None, found: Found | None = None) -> None:
        self._target = target
        self._before = before
        self._reached = before is None
        self._found = found
        self._passed = 0  # items that are to be stored already, from the first that was found on

    def resume_at(self, position: int, committed: Last | None) -> None:
        """Nothing below a position is produced again, and this was the last item stored as of the checkpoint.

        Raises:
            SinkBehind: less is stored now.
            SinkError: other items are.
        """
        before = self._before
        if committed is not None and (before is None or before.position < committed.position):
            found = "is empty" if before is None else f"ends at position {before.position}"
            raise SinkBehind(
                f"{self._target} had the items up to position {committed.position} when the state of this run "
                f"was saved, and now it {found}; what is missing is not computed again: bring it "
                f"back, or start anew with another state"
            )
        if before is not None and before.position < position:
            self._reached = True
            if before != committed:
                raise self._foreign_item(before.position)

    def new(
        self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]
    ) -> tuple[Sequence[int], Metas, Sequence[Any]]:
        """The items that are not stored yet. Raises SinkError: the data is from another output."""
        if self._reached or self._before is None:
            return positions, metas, payloads
        position, meta = self._before
        stored = bisect_right(positions, position)
        self._reached = positions[-1] >= position
        if stored and self._reached and (positions[stored - 1], metas[stored - 1]) != (position, meta):
            raise self._foreign_item(position)
        if self._found is not None and self._found.first is not None:
            self._passed += stored - bisect_left(positions, self._found.first, 0, stored)
            if self._reached and self._passed and self._passed != self._found.items:
                raise SinkError(
                    f"{self._target} has {self._found.items:,} of the {self._passed:,} items from position "
                    f"{self._found.first} to {position}, which were all written: somebody removed or added some since "
                    f"then (only the oldest may go), and they are not written again behind the last; nothing was "
                    f"written; bring them back, or pass resume='replace' (--on-existing replace)"
                )
        return positions[stored:], metas[stored:], payloads[stored:]

    def _foreign_item(self, position: int) -> SinkError:
        return SinkError(
            f"{self._target} has an item at position {position} that this run does not give; another graph, input "
            f"or version wrote it, and it is left as it was; take another target, or pass resume='replace' "
            f"(--on-existing replace). Live items in arrival time are stamped by the clock, so that no rerun gives "
            f"them again: use event time, or keep the state of the run"
        )

    @property
    def has_more_stored(self) -> bool:
        """Whether more is stored than was produced so far."""
        return not self._reached

    def complete(self) -> None:
        """Raises SinkError: more is stored than this run produced."""
        if not self._reached and self._before is not None:
            raise SinkError(
                f"{self._target} goes on up to position {self._before.position}, and the output of this run ends "
                f"before; a run with more input, or another graph, wrote it, and it is left as it was; take another "
                f"target, or pass resume='replace' (--on-existing replace)"
            )


class ResumingSink:
    """A sink that stores the last position with its data, so that each item is there once after any crash.

    A run calls `begin` once, `store` with items that are not there yet, each once and in order, and `end`. What a rerun
    gives again is left out. The position has to be stored in one transaction with the items.

    >>> import drift
    >>> class Sum(drift.sinks.ResumingSink):
    ...     stored = {"total": 0, "last": None}  # a database, elsewhere
    ...     def begin(self, resume):
    ...         return self.stored["last"]
    ...     def store(self, positions, metas, payloads):
    ...         total, last = self.stored["total"] + sum(payloads), drift.sinks.Last(positions[-1], metas[-1])
    ...         self.stored.update(total=total, last=last)
    ...         return last
    >>> graph = drift.Graph("example")
    >>> graph.source("numbers").sink("sum")
    >>> for numbers in ([1, 2], [1, 2, 3]):  # the second run finds two of them stored
    ...     report = drift.run(graph, {"numbers": numbers}, sinks={"sum": Sum("the sum", "continue")}).finish()
    >>> Sum.stored["total"]
    6

    A subclass opens its target (`begin`), stores items together with their position (`store`), and closes it
    (`end`). Where others may write to the target too, it has in place of `store` one transaction that appends if the
    target ends where this run has left it (`append`), and looks at the end (`find_end`): where it ends elsewhere (a
    server came back with older data, a file was replaced), nothing is appended, and no checkpoint is taken.

    Args:
        target: what is written to, for errors.
        resume: what to do if runs have written before; a run that resumes from a checkpoint always continues.

    Attributes:
        calls_again: whether the client calls `append` again by itself where an answer is lost, so that what was to be
            appended may be there already.
    """

    guarantee: ClassVar = SinkGuarantee("exactly once", "the position of the last item is stored with the items")
    calls_again: ClassVar[bool] = False
    _how_to_bring_back: ClassVar = ""
    _compared_by: ClassVar = ""  # where it is not all of each row

    def __init__(self, target: str, resume: str) -> None:
        self._target = target
        self._resume = resume
        self._checkpoint: tuple[int, Any] | None = None
        self._last: Last | None = None
        self._resuming: Sequence[Resuming] = ()
        self._summed: tuple[int, int, int] | None = (-1, 0, 0)  # position, rows up to it, their sum; None: not known

    def begin(self, resume: str) -> Last | None:
        """Open the target; returns the last stored item.

        Raises:
            SinkError: it cannot be opened, or has items and `resume` is "error".
        """
        raise NotImplementedError

    def append(self, left: Last | None, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> Last | None:
        """Append items, at least one, if the last one is `left`, in one transaction; returns the one found there."""
        raise NotImplementedError

    def find_end(self) -> Last | None:
        """The last item that the target has now, as far as somebody else may have changed it."""
        return self._last

    def store(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> Last | None:
        """Store items, at least one, and their last position atomically; returns the last durable item."""
        found = self.append(self._last, positions, metas, payloads)
        if found != self._last:
            stored = self._stored_of(found, positions, metas)  # an attempt whose answer was lost
            self._last = found
            positions, metas, payloads = positions[stored:], metas[stored:], payloads[stored:]
            if not positions:
                return found
            if (again := self.append(found, positions, metas, payloads)) != found:
                raise self._moved(again)
        return Last(positions[-1], metas[-1])

    def end(self) -> None:
        """Close the target, whether it was opened or not."""

    def items_between(self, first: int, last: int) -> Found | None:
        """The items with these positions, and those between, that are there; None if that cannot be known."""
        return None

    def sum_of_rows(self, above: int, last: int) -> tuple[int, int] | None:
        """The number of rows above a position, up to another, and a sum that tells them from others; None: not known.

        A sum goes on from a checkpoint without reading the rows before it.
        """
        return None

    def _end_of_rows(self) -> int:
        """The position up to which rows are summed up; -1 before the first."""
        return -1 if self._last is None else self._last.position

    def _found_again(self, last: Last) -> Found | None:
        """Of the items that are produced again, up to the last one stored, those that are there.

        Raises:
            SinkError: the last one is not.
        """
        found = self.items_between(last.position, last.position)
        if found is not None and not found.items:
            state = "" if self._checkpoint is None else "start anew with another state and "
            raise SinkError(
                f"{self._target} says that it has the items up to position {last.position}, and that one is gone: it "
                f"was emptied, or its end was cut, since a run wrote there (only the oldest may go); what is missing "
                f"would not be written again; nothing was written; bring it back, or {state or 'pass '}"
                f"resume='replace' (--on-existing replace)"
            )
        first = 0 if self._checkpoint is None else self._checkpoint[0]
        return self.items_between(first, last.position) if found is not None and first <= last.position else None

    def resume_at(self, position: int, committed: Any) -> None:
        self._checkpoint = position, committed

    def open(self) -> None:
        self._summed = -1, 0, 0
        self._resuming = self._begin_resuming(self._resume if self._checkpoint is None else "continue")
        if self._checkpoint is not None:
            position, committed = self._checkpoint
            for part, last in zip(self._resuming, from_committed(self._target, committed), strict=True):
                part.resume_at(position, last)
            self.restore(committed)

    def _begin_resuming(self, resume: str) -> Sequence[Resuming]:
        """Open the target; returns where the sink goes on in each part of it."""
        self._last = self.begin(resume)
        return [Resuming(self._target, self._last, None if self._last is None else self._found_again(self._last))]

    def restore(self, committed: dict[str, Any]) -> None:
        """Set what else `commit` had returned as of the checkpoint that the run resumes from."""
        summed = committed.get("rows")
        self._summed = None if summed is None else (summed[0], summed[1], int(summed[2]))

    def committed_position(self) -> int | None:
        """Of the last item that is stored; None before the first."""
        return None if self._last is None else self._last.position

    def commit(self) -> dict[str, Any]:
        """What is written is durable already, unless a subclass says otherwise.

        A checkpoint may not have what the target has lost since, for no run could resume from it.
        """
        self._check_end()
        if self._summed is not None and (end := self._end_of_rows()) > self._summed[0]:
            above, rows, total = self._summed
            found = self.sum_of_rows(above, end)
            self._summed = found and (end, rows + found[0], total + found[1])
        return {
            **as_committed([self._last]),
            "rows": None if self._summed is None else [*self._summed[:2], str(self._summed[2])],
        }

    @contextmanager
    def to_compare(self) -> Iterator[None]:
        """A context in which rows are read without opening the sink."""
        yield

    def compare(self, committed: Any) -> str:
        check_committed(self._target, committed, "lasts")
        if committed.get("rows") is None:
            return f"{self._target} cannot be compared: checkpoints have sums of the rows of tables alone"
        end, rows, total = map(int, committed["rows"])
        with self.to_compare():
            found = self.sum_of_rows(-1, end)
        if found != (rows, total):
            why = "they have another hash" if found and found[0] == rows else f"now it has {found[0] if found else 0:,}"
            raise SinkError(
                f"{self._target} had {rows:,} rows as of the checkpoint, and {why}: what this run had written was "
                f"changed; bring it back{self._how_to_bring_back}, or start anew with another state and "
                f"resume='replace' (--on-existing replace)"
            )
        return f"{self._target} has its {rows:,} rows as of the checkpoint unchanged{self._compared_by}"

    def write(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> None:
        (part,) = self._resuming
        positions, metas, payloads = part.new(positions, metas, payloads)
        if positions:
            self._last = self.store(positions, metas, payloads)

    @property
    def has_more_stored(self) -> bool:
        """Whether an earlier run has written more than this one so far."""
        return any(part.has_more_stored for part in self._resuming)

    def complete(self) -> None:
        """Raises SinkError: more is stored than this run produced, or less than it has written."""
        for part in self._resuming:
            part.complete()
        self._check_end()

    def _check_end(self) -> None:
        if (found := self.find_end()) != self._last:
            raise self._moved(found)

    def close(self) -> None:
        self.end()

    @contextmanager
    def _taking(self, positions: Sequence[int], *refusals: type[Exception]) -> Iterator[None]:
        """A context in which a refusal of items becomes a SinkError that says which, and what is stored."""
        try:
            yield
        except refusals as error:
            safe = "nothing was written" if self._last is None else f"the items up to {self._last.position} are safe"
            raise SinkError(
                f"{self._target} does not take the items at positions {positions[0]} to {positions[-1]}: "
                f"{str(error).strip()}; {safe}; clear that up, and run again"
            ) from error

    @contextmanager
    def _looking(self, *refusals: type[Exception]) -> Iterator[None]:
        """A context in which an error of the target becomes a SinkError: its end cannot be seen."""
        try:
            yield
        except refusals as error:
            raise SinkError(
                f"the end of {self._target} cannot be read: {str(error).strip()}; so whether it still has what was "
                f"written is not known; run again: what is missing is written"
            ) from error

    def _stored_of(self, found: Last | None, positions: Sequence[int], metas: Metas) -> int:
        """How many of these items are stored, if the target ends with one of them.

        Raises:
            SinkError: it ends elsewhere, and not where this run left it.
        """
        if found is not None and self.calls_again:
            count = bisect_right(positions, found.position)
            if count and found == (positions[count - 1], metas[count - 1]):
                return count
        raise self._moved(found)

    def _moved(self, found: Last | None) -> SinkError:
        end = "is empty" if found is None else f"ends at position {found.position}"
        left = self._last
        if left is None or (found is not None and found.position >= left.position):
            return SinkError(
                f"another run writes to {self._target}, which now {end}; wait for its end, or give each its own"
            )
        return SinkError(
            f"{self._target} had the items up to position {left.position}, and now it {end}: it was restored from "
            f"older data, replaced, or emptied; nothing was written behind that; run again, and what is missing is "
            f"written, if the input is read from its beginning or from a checkpoint that is not above it"
        )


def as_committed(lasts: Sequence[Last | None]) -> dict[str, Any]:
    """What `commit` returns: the last durable items of each part of a target."""
    return {"v": _FORM, "lasts": [None if last is None else [last.position, last.meta.hex()] for last in lasts]}


def from_committed(target: str, committed: Any) -> list[Last | None]:
    """The inverse of `as_committed`. Raises SinkError: it is from another version or another sink."""
    check_committed(target, committed, "lasts")
    return [None if last is None else Last(last[0], bytes.fromhex(last[1])) for last in committed["lasts"]]


def check_committed(target: str, committed: Any, entry: str) -> None:
    """Raises SinkError: what `commit` returned is from another version or another sink."""
    if not isinstance(committed, dict) or committed.get("v") != _FORM or entry not in committed:
        raise SinkError(
            f"{target}: the saved state of this run describes its content as {committed!r:.80}, which is of another "
            f"sink or version; resume with the sinks and the version that saved it"
        )


def check_resume(resume: str) -> None:
    """Raises SettingsError: it is not valid."""
    if resume not in get_args(Resume):
        raise SettingsError(f"resume={resume!r} is neither 'continue' nor 'replace' nor 'error'")


def local_path(function: str, path: Any) -> str:
    """The path of a file that is appended to. Raises SettingsError: it is no path, or that of an object."""
    named = path_text(function, path)
    if is_url(named):
        raise SettingsError(
            f"{function}({without_secrets(named)!r}): nobody can append to an object in a store, or compare and cut "
            f"its end, as this sink does with a file; use drift.sinks.parquet, which writes parts, or a local path"
        )
    return named.removeprefix("file://")


def refuse_existing(target: str, before: object) -> None:
    """Raises SinkError: the target has data, and the sink is not to continue it."""
    if before:
        raise SinkError(
            f"{target} has items already; take them away, or pass resume='continue' or resume='replace' (--on-existing)"
        )
