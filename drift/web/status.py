"""The status of a run, as a value that can be encoded as JSON.

Invariant: reading the status costs the run almost nothing, and a batch of output costs it a few additions; nothing here
waits for the run, nor the run for anything here.

Why: the thread that serves the numbers reads them as they are. Of each batch only a reference is stored; its last items
become text when a viewer asks.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any, Protocol

from drift.engines.base import Progress
from drift.engines.metrics import Reading, on_page
from drift.engines.observed import CheckpointState, Observed, ProcessState, SourceState
from drift.engines.settings import Settings
from drift.streams import ERRORS
from drift_barrier.barrier import Released
from drift_graph.functions import safe_text
from drift_graph.graph import Dataflow
from drift_graph.meta import BEGINNING, END_OF_TIME, time_of

_ROWS = 20  # of the latest output
_PAYLOAD_CHARACTERS = 300
_RATE_OVER_S = 3.0
_HISTORY = 600  # samples
_BARS_S = 30.0  # of the timelines


class Watched(Protocol):
    """The parts of a run that the status reads."""

    dataflow: Dataflow
    engine: str
    settings: Settings

    @property
    def progress(self) -> Progress: ...

    def observed(self) -> Observed: ...

    def source_states(self) -> list[SourceState]: ...

    def checkpoint_state(self) -> CheckpointState | None: ...


class _Sample:
    """One sample of the numbers, from which rates are computed."""

    def __init__(self, at_s: float, progress: Progress, counts: dict[str, int], cpu: dict[str, ProcessState]) -> None:
        self.at_s = at_s
        self.items_in = progress.items_in
        self.items_out = progress.items_out
        self.counts = counts
        self.cpu = cpu


class Status:
    """See the module. `sample` is called by one thread, `take` by the one that runs.

    Attributes:
        state: "waiting", "running", and in the end "finished", "stopped" or "failed".
        reading: the last one.
    """

    def __init__(self, run: Watched) -> None:
        self._run = run
        self._began_s = time.monotonic()
        self._ended_s: float | None = None
        self.state = "waiting"
        self.error = ""
        self._lock = threading.Lock()
        self._sinks: Counter[str] = Counter({sink.name: 0 for sink in run.dataflow.sinks})
        self._latest: deque[Released] = deque(maxlen=_ROWS)  # batches, in which the latest items are
        self._errors: deque[tuple[Released, int]] = deque(maxlen=_ROWS)  # the latest diverted items, in their batches
        self._samples: deque[_Sample] = deque()
        self._history: deque[list[float]] = deque(maxlen=_HISTORY)
        self._bars: deque[tuple[int, list[Any]]] = deque()
        self._bars_taken = 0
        self.reading = Reading(run.progress, self.state, 0.0)

    # Called by the run.

    def start(self) -> None:
        self._began_s = time.monotonic()
        self.state = "running"

    def take(self, batch: Released) -> None:
        """Take a batch of the output."""
        count, sinks = len(batch.metas), batch.sinks
        if not count:
            return
        with self._lock:
            if isinstance(sinks, str):
                self._sinks[sinks] += count
            else:
                self._sinks.update(sinks)
            if sinks == ERRORS or (not isinstance(sinks, str) and ERRORS in sinks):
                here = range(count) if isinstance(sinks, str) else [at for at in range(count) if sinks[at] == ERRORS]
                self._errors.extend((batch, at) for at in here[-_ROWS:])
            if count >= _ROWS:
                self._latest.clear()
            self._latest.append(batch)

    def end(self, state: str, error: BaseException | None) -> None:
        self.state = state
        self.error = f"{type(error).__name__}: {safe_text(str, error, 2000)}" if error is not None else ""
        self._ended_s = time.monotonic()

    # Called by the server.

    @property
    def diverted(self) -> int:
        """Items that were diverted, since a source or a step could not process them."""
        return self._sinks[ERRORS]

    def sample(self) -> dict[str, Any]:
        """The status of the run now; rates and timelines are computed from the samples of successive calls."""
        now_s = time.monotonic() if self._ended_s is None else self._ended_s
        run = self._run
        progress, observed = run.progress, run.observed()
        counts = {name: items for name, (items, _, _) in observed.counts.items()}
        samples = self._samples
        samples.append(_Sample(now_s, progress, counts, {each.name: each for each in observed.processes}))
        while len(samples) > 2 and now_s - samples[1].at_s >= _RATE_OVER_S:
            samples.popleft()
        self._take_bars(observed, now_s)
        reading = self.reading = Reading(
            progress,
            self.state,
            now_s - self._began_s,
            now_s,
            self.diverted,
            observed=observed,
            sources=run.source_states(),
            sinks=dict(self._sinks),
            clock_ms=time.time_ns() // 1_000_000,
            checkpoints=run.checkpoint_state(),
        )
        operators, processes = on_page(reading, "operator"), on_page(reading, "process")
        sources = on_page(reading, "source")
        numbers: dict[str, Any] = {
            "graph": run.dataflow.name,
            "engine": run.engine,
            "workers": run.settings.workers_in_all,
            "state": self.state,
            "error": self.error,
            **on_page(reading),
            "in_per_s": self._rate(lambda sample: sample.items_in),
            "out_per_s": self._rate(lambda sample: sample.items_out),
            "fraction": progress.fraction,
            "minimal_time": progress.reached,
            "held_by": progress.held_by if self._ended_s is None else "",
            "sources": [{**_source(each), **sources[each.name]} for each in reading.sources],
            "sinks": reading.sinks,
            "operators": {
                name: {**counts, "per_s": self._rate(partial(_items_of, name))} for name, counts in operators.items()
            },
            "inside_loops": list(observed.inside_loops),
            "processes": [{**self._process(each), **processes[each.name]} for each in observed.processes],
            "output": self._rows(),
            "errors": self._latest_errors(),
        }
        rates = numbers["in_per_s"], numbers["out_per_s"]
        self._history.append([round(reading.seconds, 2), *rates, numbers["unsettled"]])
        return numbers

    def history(self) -> list[list[float]]:
        """For each sample: seconds, items in and out a second, unsettled items."""
        return list(self._history)

    def bars(self, after: int) -> tuple[int, list[list[Any]]]:
        """The bars of the timelines after the one with this number, and the number of the last."""
        return self._bars_taken, [bar for number, bar in list(self._bars) if number > after]

    def _take_bars(self, observed: Observed, now_s: float) -> None:
        for name, bars in observed.bars.items():
            for bar in bars:
                self._bars_taken += 1
                began_s, ended_s = bar.began_s - self._began_s, bar.ended_s - self._began_s
                row = [name, round(began_s, 4), round(ended_s, 4), round(bar.busy_s, 4), *bar[3:]]
                self._bars.append((self._bars_taken, row))
        while self._bars and self._bars[0][1][2] < now_s - self._began_s - _BARS_S:
            self._bars.popleft()

    def _rate(self, number: Callable[[_Sample], int]) -> float:
        """The rate per second, over the last seconds."""
        first, last = self._samples[0], self._samples[-1]
        seconds = last.at_s - first.at_s
        return round((number(last) - number(first)) / seconds, 1) if seconds > 0 else 0.0

    def _process(self, state: ProcessState) -> dict[str, Any]:
        first = next(sample.cpu[state.name] for sample in self._samples if state.name in sample.cpu)
        seconds = state.at_s - first.at_s
        load = (state.cpu_s - first.cpu_s) / seconds if seconds > 0 else 0.0
        return {"name": state.name, "pid": state.pid, "load": round(load, 3)}

    def _rows(self) -> list[dict[str, Any]]:
        """The latest items of the output, the last first."""
        with self._lock:
            latest = list(self._latest)
        found = ((batch, at) for batch in reversed(latest) for at in reversed(range(len(batch.metas))))
        return [
            {
                **_place(batch, at),
                "sink": batch.sinks if isinstance(batch.sinks, str) else batch.sinks[at],
                "payload": safe_text(repr, batch.payloads[at], _PAYLOAD_CHARACTERS),
            }
            for batch, at in islice(found, _ROWS)
        ]

    def _latest_errors(self) -> list[dict[str, Any]]:
        """The latest diverted items, the last first: where each was diverted, why, and its payload."""
        with self._lock:
            errors = list(self._errors)
        return [{**_place(batch, at), **_report(batch.payloads[at])} for batch, at in reversed(errors)]


def _place(batch: Released, at: int) -> dict[str, int]:
    return {"position": batch.position + at, "time": time_of(batch.metas[at])}


def _report(payload: Any) -> dict[str, str]:
    """Of a diverted item; a sink of a user's that is called "errors" has other payloads."""
    found = payload if isinstance(payload, dict) else {"payload": payload}
    shown: dict[str, Callable[[Any], str]] = {"location": str, "error": str, "payload": repr}
    return {name: safe_text(show, found.get(name, ""), _PAYLOAD_CHARACTERS) for name, show in shown.items()}


def _items_of(operator: str, sample: _Sample) -> int:
    return sample.counts.get(operator, 0)


def _source(state: SourceState) -> dict[str, Any]:
    return {"name": state.name, "heartbeat": _in_words(state.heartbeat), "ended": state.silent_since_s is None}


def _in_words(heartbeat: bytes) -> str:
    if heartbeat == BEGINNING:
        return "the beginning"
    return "the end" if heartbeat == END_OF_TIME else str(time_of(heartbeat))
