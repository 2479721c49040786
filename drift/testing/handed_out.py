"""The output of a segment that has run, handed out as engines may do it: in pieces, between which a process may die.

Invariant: the items and their order are those of the segment, from the checkpoint on. The time below which all is there
moves with the last piece of a release, not before.

Why a model of it: over processes a release of many items comes in pieces, and where a run resumes, what comes again is
cut into other releases than before. What is between two segments has to pass all of it on, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Protocol

from drift.engines.base import Progress
from drift.engines.simulated.outcome import SimulatedOutput
from drift.testing.schedule import DEATH_IN_RELEASE
from drift_barrier.barrier import Released
from drift_graph.meta import BEGINNING
from drift_graph.metas import Metas


class Died(Exception):
    """The calling process dies between two pieces of a release."""


class Choose(Protocol):
    def __call__(self, kind: str, count: int, number: int | None = None, /) -> int:
        """A decision of the schedule about the item at a position."""


class HandedOut:
    """The engine of a segment, and its feed, which has nothing to wait for; see the module.

    Args:
        times: for each of its releases, minimal time.
        log_end: how far its output is in the log; it resumes from a checkpoint at or below that.
        dies: whether the calling process may die.

    Attributes:
        has_ended: whether everything was handed out.
    """

    live = False

    def __init__(
        self, outcome: SimulatedOutput, times: Sequence[bytes], log_end: bytes, choose: Choose, *, dies: bool
    ) -> None:
        self.progress = Progress()
        self.has_ended = False
        self._choose = choose
        self._dies = dies
        self._error = outcome.error
        releases = list(zip(outcome.released, accumulate(times, max), strict=True))
        checkpoints = [at for at, (each, below) in enumerate(releases, 1) if below <= log_end and each.error is None]
        resumed = [0, *checkpoints][::-1]  # the newest first
        begin = resumed[choose("resumed", len(resumed), len(releases))]
        self.progress.released_below = releases[begin - 1][1] if begin else BEGINNING
        self._releases = releases[begin:]

    def released(self) -> Iterator[Released]:
        """Raises Died: between two pieces."""
        held: Released | None = None
        for at, (released, below) in enumerate(self._releases, 1):
            whole = released if held is None else _joined(held, released)
            if at < len(self._releases) and self._choose("joined", 2, released.position):
                held = whole
                continue
            held = None
            begin, end = whole.position, whole.position + len(whole.metas)
            while end > begin and (short := self._choose("piece", end - begin, begin)):
                yield whole.since(begin).before(end - short)
                begin = end - short
                if self._dies and self._choose(DEATH_IN_RELEASE, 2, begin):
                    raise Died
            self.progress.released_below = below
            yield whole.since(begin)
        self.has_ended = True
        if self._error is not None:
            raise self._error


def _joined(first: Released, second: Released) -> Released:
    sinks = [name for each in (first, second) for name in _names(each)]
    return Released(
        first.position,
        Metas.joined([first.metas, second.metas]),
        [*first.payloads, *second.payloads],
        sinks,
        second.error,
    )


def _names(released: Released) -> Sequence[str]:
    return [released.sinks] * len(released.metas) if isinstance(released.sinks, str) else released.sinks
