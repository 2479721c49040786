"""The output barrier: holds items until nothing can cancel them, then releases them in the order of their metas.

Invariant: what `release` returns is complete below minimal time, strictly increasing in meta over all calls, and
every item in it counts exactly +1.

Why: below minimal time nothing is in flight, so every tombstone is here, and the item that it
cancels too. Items and tombstones are counted by meta and canonical payload, so the order they came in does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain, compress, count, islice
from operator import eq
from typing import Any, NamedTuple

from drift_barrier.digest import Algorithm, Digest, Encoded, ListedParts, NewParts
from drift_barrier.sinks import in_turn, sink_wanted, sinks_counted
from drift_graph.canonical import NoCanonicalForm, canonical, forms_of
from drift_graph.errors import DriftBug, StepError
from drift_graph.failures import no_form_error, step_error
from drift_graph.functions import safe_text
from drift_graph.item import FAILURES as FAILURES
from drift_graph.item import Columns, Failure, joined, sorted_by_meta
from drift_graph.meta import BEGINNING, MetaParts
from drift_graph.metas import Metas
from drift_graph.payloads import are_rows, chosen, in_order

_IMPURE = (
    "this happens where a function gives two answers for one payload: it reads a clock, a random number, a global or "
    "the order of a set, or changes a payload or state in place. If yours are pure, it is a bug of ours: report it"
)


class Released(NamedTuple):
    """Consecutive items of the output; `sinks` is one name for all of them, or one for each.

    `error` is what the run ends with after these items.
    """

    position: int
    metas: Metas
    payloads: list[Any]
    sinks: str | Sequence[str]
    error: Exception | None = None

    def before(self, position: int) -> Released:
        """What of it is before a position."""
        count = max(position - self.position, 0)
        if count >= len(self.metas):
            return self
        sinks = self.sinks if isinstance(self.sinks, str) else self.sinks[:count]
        return Released(self.position, self.metas[:count], self.payloads[:count], sinks)

    def since(self, position: int) -> Released:
        """What of it is at or above a position, with the error."""
        count = min(max(position - self.position, 0), len(self.metas))
        sinks = self.sinks if isinstance(self.sinks, str) else self.sinks[count:]
        return Released(self.position + count, self.metas[count:], self.payloads[count:], sinks, self.error)

    def of(self, sink: str) -> tuple[Sequence[int], Metas, Any]:
        """The positions, metas and payloads of the items of one sink."""
        position, metas, payloads, sinks, _ = self
        positions = range(position, position + len(metas))
        if not isinstance(sinks, str):
            wanted = sink_wanted(sinks, sink)
            return list(compress(positions, wanted)), metas.chosen(wanted), chosen(payloads, wanted)
        return (positions, metas, payloads) if sinks == sink else ((), Metas(), [])

    @property
    def counts(self) -> dict[str, int]:
        """How many items each sink has that has any."""
        return sinks_counted(self.sinks, len(self.metas))


class _Run:
    """Items of one sink that came together, sorted by meta; those before `start` were released."""

    __slots__ = ("sink", "metas", "payloads", "diffs", "start")

    def __init__(self, sink: str, columns: Columns) -> None:
        self.sink = sink
        self.metas, self.payloads, self.diffs = sorted_by_meta(columns)
        self.start = 0

    def pass_to(self, start: int) -> None:
        """Drop items before `start`, and free their memory if they are half of it: an item far ahead stays long."""
        self.start = start
        if 2 * start > len(self.metas):
            rest = Columns(self.metas, self.payloads, self.diffs).slice(start, len(self.metas))
            self.metas, self.payloads, self.diffs = rest
            self.start = 0


class Barrier:
    """The barrier's machine: `add` batches as they come, `release` when minimal time moves.

    Args:
        steps: the step that feeds each sink, for the error about a payload without canonical form.
        passes_failures: failed calls are released as items without a sink, and end nothing.

    Attributes:
        encoded: the items that were released last, as the bytes that went into the digest; none if nobody keeps them.
        keeps_encoded: whether they are kept.
    """

    def __init__(
        self,
        algorithm: Algorithm = "xxh3_128",
        steps: Callable[[str], str] = str,
        *,
        passes_failures: bool = False,
        new_parts: NewParts = ListedParts,
    ) -> None:
        self.digest = Digest(algorithm, new_parts=new_parts)
        self.encoded: Sequence[Encoded] = ()
        self.keeps_encoded = True
        self.position = 0
        self.tombstones = 0
        self._steps = steps
        self._heap: list[tuple[bytes, int, _Run]] = []  # by first meta; numbered, since runs do not compare
        self._runs = 0
        self._held = 0
        self._tombstones_held = 0
        self._last = BEGINNING
        self._failures = False
        self._passes_failures = passes_failures

    def __len__(self) -> int:
        """How many items and tombstones are held."""
        return self._held

    def add(self, sink: str, columns: Columns) -> None:
        """Items and tombstones for a sink, in any order."""
        if not columns.metas:
            return
        run = _Run(sink, columns)
        self._failures = self._failures or sink == FAILURES
        self._push(run)
        self._held += len(run.metas)
        if run.diffs is not None:
            taken_back = run.diffs.count(-1)
            self.tombstones += taken_back
            self._tombstones_held += taken_back
            if self._tombstones_held > 65536 and 3 * self._tombstones_held > self._held:
                self._compact()

    @property
    def last(self) -> bytes:
        """The meta of the last item that was released."""
        return self._last

    def rewind(self, checkpoint: bytes) -> None:
        """Drop items at or above a checkpoint that minimal time has reached: they will come again."""
        below = self._take_below(checkpoint)
        self._heap, self._held, self._tombstones_held = [], 0, 0
        tombstones = self.tombstones
        for sink, columns in below:
            self.add(sink, columns)
        self.tombstones = tombstones

    def resume(self, position: int, last: bytes, digest: Digest) -> None:
        """Continue after the output that another barrier released, before any item."""
        self.position, self._last, self.digest = position, last, digest

    def release(self, minimal_time: bytes) -> Released | None:
        """Everything below minimal time; None where that is nothing.

        The result's error is a StepError when a failed call is reached: what is before it is released.

        Raises:
            DriftBug: an item below minimal time counts neither 0 nor +1, or comes after a greater one.
        """
        settled = self.settled(minimal_time)
        return self._hand_over(*settled) if settled is not None else None

    def settled(self, minimal_time: bytes) -> tuple[Metas, list[Any], str | Sequence[str]] | None:
        """What `release` would take: metas, payloads (failures too) and sinks, neither numbered nor in the digest.

        For an engine with a buffer for each worker, where tombstones come to the buffer of what they take back.
        """
        taken = self._take_below(minimal_time)
        if not taken:
            return None
        sinks: str | Sequence[str]
        metas: Metas
        if len(taken) == 1 and taken[0][1].diffs is None:
            sinks, (metas, payloads, _) = taken[0]
            if not metas.is_increasing():
                raise DriftBug(f"two items with the same meta are released; {_IMPURE}")
        else:
            metas, payloads, sinks = _settle(taken)
            if not metas:
                return None
        if metas[0] <= self._last:
            raise DriftBug(f"an item at {MetaParts(metas[0])} came after the release of {MetaParts(self._last)}")
        self._last = metas[-1]
        return metas, payloads, sinks

    def _hand_over(self, metas: Metas, payloads: list[Any], sinks: str | Sequence[str]) -> Released:
        error: Exception | None = None
        if self._failures and not self._passes_failures:
            first = next((index for index, payload in enumerate(payloads) if type(payload) is Failure), len(metas))
            if first < len(metas):
                error = step_error(payloads[first], metas[first])
                metas, payloads = metas[:first], payloads[:first]
        try:
            self.encoded = self.digest.add(metas, payloads, keeps=self.keeps_encoded)
        except NoCanonicalForm:
            first, error = self._first_without_form(metas, payloads, sinks)
            metas, payloads = metas[:first], payloads[:first]
            self.encoded = self.digest.add(metas, payloads, keeps=self.keeps_encoded)
        if not isinstance(sinks, str):
            sinks = sinks[: len(metas)]
        released = Released(self.position, metas, payloads, sinks, error)
        self.position += len(metas)
        return released

    def _first_without_form(
        self, metas: Metas, payloads: list[Any], sinks: str | Sequence[str]
    ) -> tuple[int, StepError]:
        for index, payload in enumerate(payloads):
            try:
                canonical(payload)
            except NoCanonicalForm as none:
                step = self._steps(sinks if isinstance(sinks, str) else sinks[index])
                return index, no_form_error(step, none, payload, metas[index])
        raise AssertionError("a payload had no canonical form and then had one")

    def _push(self, run: _Run) -> None:
        self._runs += 1
        heappush(self._heap, (run.metas[run.start], self._runs, run))

    def _take_below(self, bound: bytes) -> list[tuple[str, Columns]]:
        """Take the items below a bound out of every run."""
        taken: list[tuple[str, Columns]] = []
        heap = self._heap
        rests: list[tuple[_Run, int]] = []
        while heap and heap[0][0] < bound:
            run = heappop(heap)[2]
            start, end = run.start, len(run.metas)
            if run.metas[-1] >= bound:
                end = run.metas.count_below(bound, start)
                rests.append((run, end))
            columns = Columns(run.metas, run.payloads, run.diffs).slice(start, end)
            if columns.diffs is not None:
                self._tombstones_held -= columns.diffs.count(-1)
            self._held -= end - start
            taken.append((run.sink, columns))
        for run, end in rests:
            run.pass_to(end)
            self._push(run)
        return taken

    def _compact(self) -> None:
        """Cancel what can be cancelled already, so that held tombstones do not outgrow the items they cancel."""
        sinks: dict[str, list[Columns]] = {}
        for sink, columns in self._take_below(b"\xff" * 16):
            sinks.setdefault(sink, []).append(columns)
        for sink, batches in sinks.items():
            columns = without_pairs(_in_order(batches), final=False)
            if columns.metas:
                self._push(_Run(sink, columns))
                self._held += len(columns.metas)
                self._tombstones_held += (columns.diffs or []).count(-1)


def _settle(taken: list[tuple[str, Columns]]) -> tuple[Metas, list[Any], str | Sequence[str]]:
    """Merge batches in the order of metas, without tombstones and the items they cancel.

    Raises:
        DriftBug: something is left at a meta that is not exactly one item.
    """
    names = dict.fromkeys(sink for sink, _ in taken)
    of_sinks = [
        without_pairs(_in_order([columns for sink, columns in taken if sink == name]), final=True) for name in names
    ]
    for metas, payloads, diffs in of_sinks:
        if diffs is not None:
            at = diffs.index(-1)
            shown = f"{MetaParts(metas[at])} {safe_text(repr, payloads[at], 500)}"
            raise DriftBug(f"a tombstone is left that takes nothing back, at {shown}; {_IMPURE}")
        _check_increasing(metas)
    sinks: str | Sequence[str] = taken[0][0]
    if len(of_sinks) > 1:
        metas, payloads, sinks = in_turn(list(names), of_sinks)
        _check_increasing(metas)
    else:
        metas, payloads, _ = of_sinks[0]
    return metas, payloads, sinks


def _check_increasing(metas: Metas) -> None:
    if not metas.is_increasing():
        raise DriftBug(f"two items with the same meta are released; {_IMPURE}")


def _in_order(batches: list[Columns]) -> Columns:
    """One batch of several, in the order of metas."""
    return sorted_by_meta(joined(batches))


def without_pairs(columns: Columns, *, final: bool) -> Columns:
    """Columns sorted by meta, without the tombstones and items of one meta that cancel each other.

    Failures that count as equal may differ in their words, and the words that nothing takes back are to stay: so
    equal words cancel first, and others only where nothing more will come (`final`).
    """
    metas, payloads, diffs = columns
    if diffs is None:
        return columns
    groups = _of_one_meta(metas)
    every = list(chain.from_iterable(groups))
    forms = dict(zip(every, forms_of(in_order(payloads, every))))
    remaining = bytearray(b"\x01") * len(metas)
    may_fail = not are_rows(payloads)  # of rows in columns none has, and each that is looked at is made for that
    for indices in groups:
        if may_fail and any(type(payloads[index]) is Failure for index in indices):
            words = {index: (forms[index], getattr(payloads[index], "message", "")) for index in indices}
            left = _unpaired(indices, words, diffs)
            left = _unpaired(left, forms, diffs) if final else left
        else:
            left = _unpaired(indices, forms, diffs)
        for index in indices:
            remaining[index] = index in left
    diffs = list(compress(diffs, remaining))
    return Columns(metas.chosen(bytes(remaining)), chosen(payloads, remaining), diffs if -1 in diffs else None)


def _of_one_meta(metas: Metas) -> list[list[int]]:
    """Indices of sorted metas that are equal to their neighbours, those of one meta together."""
    groups: list[list[int]] = []
    for index in compress(count(), map(eq, metas, islice(metas, 1, None))):
        if groups and groups[-1][-1] == index:
            groups[-1].append(index + 1)
        else:
            groups.append([index, index + 1])
    return groups


def _unpaired(indices: Sequence[int], keys: Mapping[int, Any], diffs: list[int]) -> list[int]:
    """The indices that remain when an item and a tombstone with equal keys take each other away."""
    waiting: dict[Any, list[int]] = {}
    for index in indices:
        same = waiting.setdefault(keys[index], [])
        if same and diffs[same[-1]] != diffs[index]:
            same.pop()
        else:
            same.append(index)
    return sorted(index for same in waiting.values() for index in same)
