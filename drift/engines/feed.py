"""The input of a run, as its engine gets it: what all feeds share, wherever their items come from.

Invariant: once there is an error, no more batches come; a feed that was stopped ends every source where it is.
"""

from __future__ import annotations

import select
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from drift.engines.observed import SourceState
from drift.machines.nodes.intake import Fed, Intake
from drift.sources.base import Source
from drift_graph.errors import SettingsError
from drift_graph.lateness import Late
from drift_graph.meta import pack_time
from drift_graph.policies import TimePolicy
from drift_graph.times import SourceMachine

if TYPE_CHECKING:
    from drift.records.messages import Stored

_TICK_S = 0.001


class Feed:
    """The input of a run, as its engine gets it; a subclass says where it comes from (`poll`).

    Args:
        machines: of the sources, by rank.
        batch_items: most items read from a source at once.
        in_flight_max: most unsettled items of a source.
        on_late: called with each item that a policy diverts, once it lies before what was released; with
            `has_positions`, before what is stored of the run.

    Attributes:
        intake: decides which source is read, and for how many items; an engine may set the batch size.
        error: the error that the input ends with, once all sources have reached its time.
        late_items: number of late items diverted and reported, those before the checkpoint it resumes from too.
        sources: for each source of the graph, where its items come from, if they are read from sources.
        on_stored: called with a batch that the engine itself reads from a source, before it is processed.
        has_positions: whether the positions of its sources are stored.
        firsts: if a dict is set, the first payload of each source is put into it.
    """

    has_positions = False
    sources: Mapping[str, Source] = MappingProxyType({})
    on_stored: Callable[[Stored], None] | None = None
    firsts: dict[str, Any] | None = None

    def __init__(
        self,
        machines: Sequence[SourceMachine],
        *,
        batch_items: int,
        in_flight_max: int = sys.maxsize,
        on_late: Callable[[Late], None],
    ) -> None:
        self.stopped = False
        self.late_items = 0
        self._on_late = on_late
        self._late: deque[Late] = deque()  # that every source is past, in order, and the run is not
        self.intake = Intake(machines, batch_items=batch_items, in_flight_max=in_flight_max, now_s=time.monotonic())

    def poll(self, minimal_time: bytes) -> list[Fed]:
        """The batches that there are now; blocks only if every source that may be read is finite.

        If a source fails, the others are fed until they are past the time of the failure. Then `error` is set, and no
        more batches come.
        """
        raise NotImplementedError

    def fraction(self) -> float | None:
        """The share of the input that has been fed, 0 to 1; None if it is not known."""
        return None

    def filenos(self) -> Sequence[int]:
        """Descriptors to wait on for live items."""
        return ()

    def is_at_rest(self, minimal_time: bytes) -> bool:
        """Whether nothing more comes in this run, although the input has not ended: its sources have paused."""
        return self.intake.is_at_rest(minimal_time)

    def positions_at(self, checkpoint: bytes) -> dict[str, Any]:
        """The positions from which everything at or above a checkpoint can be fed again; JSON values.

        Checkpoints must not decrease from call to call.
        """
        raise NotImplementedError

    def committed(self, positions: Mapping[str, Any]) -> None:
        """The run can resume from these positions, so what only earlier checkpoints need may be dropped."""

    def resume(self, positions: Mapping[str, Any], checkpoint: bytes) -> None:
        """Resume at a checkpoint: called before anything is fed, so that everything at or above the checkpoint comes.

        Args:
            positions: from `positions_at`.

        Raises:
            InputError: the data are not there any more.
        """
        raise NotImplementedError

    def refuse_more(self, positions: Mapping[str, Any], where: str) -> None:
        """The run whose state is in `where` had ended at these positions: refuse what there is more.

        Raises:
            SettingsError: there is more, or one cannot know.
        """

    def released(self, below: bytes, *, last: bool = False) -> None:
        """The sinks have all output below this, which never decreases; `last` in the last call."""

    @property
    def error(self) -> Exception | None:
        return self.intake.error

    @error.setter
    def error(self, error: Exception | None) -> None:
        self.intake.error = error

    @property
    def finished(self) -> bool:
        """Whether all sources have ended."""
        return self.intake.finished

    @property
    def live(self) -> bool:
        """Whether a source that may be read is live."""
        return self.intake.live

    @property
    def items_in(self) -> int:
        return self.intake.items_in

    def unsettled(self, minimal_time: bytes) -> int:
        """Items of all sources at or above minimal time."""
        return self.intake.unsettled(minimal_time)

    def wait(self) -> None:
        """Wait a moment for input of live sources and pipes."""
        select.select(self.filenos(), (), (), _TICK_S)

    def name_of(self, rank: int) -> str:
        return self.intake.machines[rank].name

    def states(self) -> list[SourceState]:
        """The state of each source; callable from any thread."""
        intake = self.intake
        return [
            SourceState(
                machine.name,
                machine.items_in,
                machine.late_items + machine.late_apart,
                machine.heartbeat,
                None if machine.finished else intake.silent_since_s(rank),
            )
            for rank, machine in enumerate(intake.machines)
        ]

    def policy_of(self, name: str) -> TimePolicy:
        return next(machine.policy for machine in self.intake.machines if machine.name == name)

    @property
    def heartbeat(self) -> bytes:
        return self.intake.heartbeat

    def stop(self) -> None:
        """End all sources at their present positions; callable from any thread."""
        self.stopped = True

    def _ended(self) -> list[Fed]:
        """The end of every source that has not ended."""
        fed = [self.intake.give(rank, None, 0, 0.0) for rank in self.intake.readable()]
        ends = [end for end in fed if end is not None]
        for end in ends:
            self._announce(end)
        self._find_late()
        self.error = self.intake.inputs.error
        return ends

    def _find_late(self) -> None:
        self.late_items += self.intake.late_below
        self.intake.late_below = 0
        self.add_late(self.intake.inputs.take_late())

    def add_late(self, late: Iterable[Late]) -> None:
        """Late items that every source is past, in their order."""
        self._late.extend(late)

    @property
    def late_found(self) -> int:
        """The number of late items so far, also of those that may still be reported."""
        return self.late_items + len(self._late)

    def drop_late(self) -> None:
        """Nothing more is reported."""
        self._late.clear()

    def late_items_at(self, checkpoint: bytes) -> int:
        """The number of late items before a checkpoint."""
        return self.late_items + sum(pack_time(each.heartbeat) < checkpoint for each in self._late)

    def report_late(self, below: bytes) -> None:
        """Report the late items before `below`: what was released, or what is stored of the run, which begins there
        again.
        """
        while self._late and pack_time(self._late[0].heartbeat) < below:
            self.late_items += 1
            self._on_late(self._late.popleft())

    def _announce(self, batch: Fed) -> None:
        """A batch is about to be given."""
        if self.firsts is not None and batch.arrived.metas:
            self.firsts.setdefault(batch.name, batch.arrived.payloads[0])

    def out_of_credit(self, minimal_time: bytes) -> SettingsError | None:
        """The error to end with if nothing is being processed and no source may be read."""
        return self.intake.out_of_credit(minimal_time)

    def close(self) -> None:
        """Release what was opened."""


def taker_of_late(on_late: Callable[[Late], None] | None, otherwise: Callable[[Late], None]) -> Callable[[Late], None]:
    """The handler of diverted items: the caller's, or `otherwise` if there is none.

    Raises:
        SettingsError: `on_late` is not callable.
    """
    if on_late is not None and not callable(on_late):
        raise SettingsError(f"on_late={on_late!r:.80} is not a function that takes a drift.Late")
    return otherwise if on_late is None else on_late
