"""The numbers of a run over all the processes that it has had: what earlier ones counted, and what this one adds.

Invariant: a count never restarts at 0 where a run resumes, and the items released to each sink are exactly those below
the position of the output.

Why: the items of each sink, and the number of checkpoints, are in the checkpoint that the run resumes from. What else
is counted is work, such as deaths, recoveries and time: it was done, whichever checkpoint the next process resumes
from, so the last history that was stored has it. It is a small text in the state, written with checkpoints and at the
end.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import msgspec
import xxhash

from drift.diverting import late_sinks
from drift.engines.base import Progress
from drift.engines.metrics import Reading
from drift.engines.observed import CheckpointState, Observed, SourceState, added
from drift.engines.settings import Settings
from drift.machines.counts import Left
from drift.state.checkpoint import Checkpoint, StateDamaged
from drift.streams import ERRORS
from drift_barrier.barrier import Released
from drift_graph.graph import Dataflow


class Watched(Protocol):
    """The parts of a run that are watched."""

    dataflow: Dataflow
    engine: str
    settings: Settings

    @property
    def stores_state(self) -> bool: ...

    @property
    def progress(self) -> Progress: ...

    def observed(self) -> Observed: ...

    def source_states(self) -> list[SourceState]: ...

    def checkpoint_state(self) -> CheckpointState | None: ...


class Past(NamedTuple):
    """What the earlier processes of a run have counted; see `Progress`, `CheckpointState` and `Left`.

    Attributes:
        seconds: for which they ran, together.
    """

    seconds: float = 0.0
    refused_frames: int = 0
    died: tuple[str, ...] = ()
    recoveries: int = 0
    fed_again: int = 0
    recovering_s: float = 0.0
    size_bytes: int | None = None
    checkpoint_s: float | None = None
    operators: Mapping[str, Left] = MappingProxyType({})


class History(NamedTuple):
    """What is stored of a run for those that look at it later, and for its next process.

    Attributes:
        past: what was counted up to then.
        status: what the page showed last.
        samples: of the whole life, a row each; see `Status.history`.
        told_ms: when it was stored, in milliseconds since 1970.
    """

    past: Past
    status: dict[str, Any]
    samples: list[list[float | None]]
    told_ms: int

    def encoded(self) -> bytes:
        """A line with a hash, and JSON."""
        body = json.dumps(self, ensure_ascii=False).encode("utf-8", "replace")
        return xxhash.xxh3_64_hexdigest(body).encode() + b"\n" + body


def decoded_history(data: bytes, where: str) -> History:
    """Decode a history.

    Args:
        where: the store, for messages.

    Raises:
        StateDamaged: the bytes were changed, or are of another drift.
    """
    digest, _, body = data.partition(b"\n")
    try:
        if digest != xxhash.xxh3_64_hexdigest(body).encode():
            raise ValueError("its hash is another")
        return msgspec.json.decode(body, type=History)
    except ValueError as error:
        raise StateDamaged(
            f"the history of the run in {where} was changed or cut off since it was written, or is of another drift: "
            f"{error}; checkpoints do not depend on it"
        ) from error


class Life:
    """The numbers of one run. `take` is called by the thread that runs, the others by any.

    Args:
        history: the last one that was stored, if the run resumes.
        checkpoint: the one that the run resumes from.
    """

    def __init__(self, run: Watched, history: History | None = None, checkpoint: Checkpoint | None = None) -> None:
        self.run = run
        self.past = history.past if history is not None else Past()
        self.samples = history.samples if history is not None else []
        self.began_s: float | None = None
        self.ended_s: float | None = None
        self.state = "waiting"
        self.error: BaseException | None = None
        before = checkpoint.released if checkpoint is not None else {}
        self._written = checkpoint.number if checkpoint is not None else 0
        self._late_sinks = late_sinks(run.dataflow)
        self._sinks = Counter({sink.name: before.get(sink.name, 0) for sink in run.dataflow.sinks})

    def start(self) -> None:
        self.began_s = time.monotonic()
        self.state = "running"

    def take(self, batch: Released) -> None:
        self._sinks.update(batch.counts)

    def end(self, state: str, error: BaseException | None) -> None:
        self.state, self.error, self.ended_s = state, error, time.monotonic()

    @property
    def diverted(self) -> int:
        """Items that were diverted, since a source or a step could not process them."""
        return self._sinks[ERRORS]

    @property
    def late_apart(self) -> int:
        """Late items that are in sinks of their own."""
        return sum(self._sinks[each] for each in self._late_sinks)

    @property
    def released(self) -> dict[str, int]:
        """Items to each sink so far."""
        return dict(self._sinks)

    def seconds_at(self, at_s: float) -> float:
        """For how long its processes have run at this time of `time.monotonic`: nothing is added before it begins."""
        return self.past.seconds + (at_s - self.began_s if self.began_s is not None else 0.0)

    def reading(self) -> Reading:
        run, past = self.run, self.past
        now_s = self.ended_s if self.ended_s is not None else time.monotonic()
        progress, observed, checkpoints = run.progress, run.observed(), run.checkpoint_state()
        if past != Past():
            progress = replace(
                progress,
                refused_frames=past.refused_frames + progress.refused_frames,
                died=[*past.died, *progress.died],
                recoveries=past.recoveries + progress.recoveries,
                fed_again=past.fed_again + progress.fed_again,
                recovering_s=past.recovering_s + progress.recovering_s,
            )
            observed = replace(observed, counts=added([past.operators, observed.counts]))
        if checkpoints is not None:
            has_last = checkpoints.size_bytes is not None
            checkpoints = checkpoints._replace(
                written=self._written + checkpoints.written,
                size_bytes=checkpoints.size_bytes if has_last else past.size_bytes,
                seconds=checkpoints.seconds if has_last else past.checkpoint_s,
            )
        return Reading(
            progress,
            self.state,
            self.seconds_at(now_s),
            now_s,
            self.diverted,
            observed=observed,
            sources=run.source_states(),
            sinks=self.released,
            clock_ms=time.time_ns() // 1_000_000,
            checkpoints=checkpoints,
        )


def past_of(reading: Reading) -> Past:
    """What the next process of the run adds to."""
    progress, checkpoints = reading.progress, reading.checkpoints
    return Past(
        reading.seconds,
        progress.refused_frames,
        tuple(progress.died),
        progress.recoveries,
        progress.fed_again,
        progress.recovering_s,
        checkpoints.size_bytes if checkpoints is not None else None,
        checkpoints.seconds if checkpoints is not None else None,
        dict(reading.observed.counts),
    )
