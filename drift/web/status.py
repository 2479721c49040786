"""The status of a run, as a value that can be encoded as JSON.

Invariant: reading the status costs the run almost nothing, and a batch of output costs it a few additions; nothing here
waits for the run, nor the run for anything here.

Why: the thread that serves the numbers reads them as they are. Of each batch only a reference is stored; its last items
become text when a viewer asks, or a history is stored.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import Any

from drift.engines.metrics import Reading, on_page
from drift.engines.observed import Observed, ProcessState, SourceState
from drift.show import as_svg
from drift.state.run_checkpoints import HISTORY
from drift.streams import ERRORS
from drift.web.life import History, Life, Watched, past_of
from drift.web.metrics import as_text
from drift_barrier.barrier import Released
from drift_graph.errors import SettingsError
from drift_graph.functions import safe_text
from drift_graph.meta import BEGINNING, END_OF_TIME, time_of

_ROWS = 20  # of the latest output
_PAYLOAD_CHARACTERS = 300
_RATE_OVER_S = 3.0
_RECENT = 600  # samples
_TOLD_EVERY_S = 0.5
_BARS_S = 30.0  # of the timelines
#: The name under which the picture of a graph is stored beside its history, as SVG.
PICTURE = b"steps"

#: A row of `Status.history`.
Row = list[float | None]


class _Sample:
    """One sample of the numbers, from which rates are computed."""

    def __init__(self, reading: Reading) -> None:
        self.at_s = reading.now_s
        self.items_in = reading.progress.items_in
        self.items_out = reading.progress.items_out
        self.counts = reading.observed.counts
        self.cpu = {each.name: each for each in reading.observed.processes}


class _Thinned:
    """Rows of a whole life: at most twice as many as `least`; where there are more, every other one goes.

    Args:
        rows: of the earlier processes of the run.
    """

    def __init__(self, rows: Sequence[Row], least: int = 150) -> None:
        self.rows = [list(row) for row in rows]
        self._least = least
        self._resumes = bool(rows)

    def add(self, row: Row) -> None:
        """Add a row, if it is far enough behind the last one."""
        rows = self.rows
        if self._resumes:
            self._resumes = False
            rows += [[row[0], None, None, None], row]
        elif not rows or _seconds(rows[-1], row) >= _seconds(rows[0], rows[-1]) / (2 * self._least):
            rows.append(row)
        if len(rows) > 2 * self._least:
            rows[:] = rows[:-1:2] + rows[-1:]


def _seconds(row: Row, later: Row) -> float:
    return (later[0] or 0) - (row[0] or 0)


class Status:
    """`take` is called by the thread that runs, the others by any.

    Args:
        life: the run's numbers; by default those of this process.
    """

    def __init__(self, run: Watched, life: Life | None = None) -> None:
        self._run = run
        self._life = life or Life(run)
        self._lock = threading.Lock()
        self._sampling = threading.Lock()
        self._latest: deque[Released] = deque()  # batches, in which the latest items are
        self._latest_items = 0
        self._errors: deque[tuple[Released, int]] = deque(maxlen=_ROWS)  # the latest diverted items, in their batches
        self._samples: deque[_Sample] = deque()
        self._recent: deque[Row] = deque(maxlen=_RECENT)
        self._whole = _Thinned(self._life.samples)
        self._bars: deque[tuple[int, list[Any]]] = deque()
        self._bars_taken = 0
        self._told_s = float("-inf")
        self._steps = {each.name: each.step for each in run.dataflow.operators}
        self.reading = Reading(run.progress, self._life.state, 0.0)

    # Called by the run.

    def take(self, batch: Released) -> None:
        count = len(batch.metas)
        if not count:
            return
        with self._lock:
            if ERRORS in batch.counts:
                self._errors.extend((batch, at - batch.position) for at in batch.of(ERRORS)[0][-_ROWS:])
            self._latest.append(batch)
            self._latest_items += count
            while self._latest_items - len(self._latest[0].metas) >= _ROWS:
                self._latest_items -= len(self._latest.popleft().metas)

    def told(self) -> dict[bytes, bytes] | None:
        """What is to be stored of the run now, by name; None if that was not long ago, and it has not ended."""
        now_s = time.monotonic()
        if self._life.ended_s is None and now_s - self._told_s < _TOLD_EVERY_S:
            return None
        is_first = self._told_s == float("-inf")
        self._told_s = now_s
        status = self.sample()
        reading = self.reading
        history = History(past_of(reading), status, list(self._whole.rows), reading.clock_ms)
        return {HISTORY: history.encoded(), **(self._picture_to_store() if is_first else {})}

    def _picture_to_store(self) -> dict[bytes, bytes]:
        """The picture, whose edges and boxes show what is counted; none where nothing can draw it."""
        if not self._run.settings.counted:
            return {}
        try:
            return {PICTURE: self.picture.encode()}
        except SettingsError:  # pygraphviz is not there, or cannot be loaded; nobody has asked for a page
            return {}

    # Called by the server.

    @cached_property
    def picture(self) -> str:
        return as_svg(self._run.dataflow, live=True)

    def metrics(self) -> bytes | None:
        """The numbers now, for Prometheus."""
        return as_text(self._run.dataflow.name, self._life.reading())

    def sample(self) -> dict[str, Any]:
        """The status of the run now; rates and timelines are computed from the samples of successive calls."""
        with self._sampling:
            return self._sample()

    def _sample(self) -> dict[str, Any]:
        run, life = self._run, self._life
        reading = self.reading = life.reading()
        progress, observed = reading.progress, reading.observed
        samples = self._samples
        samples.append(_Sample(reading))
        while len(samples) > 2 and reading.now_s - samples[1].at_s >= _RATE_OVER_S:
            samples.popleft()
        self._take_bars(observed, reading.now_s)
        operators, processes = on_page(reading, "operator"), on_page(reading, "process")
        sources = on_page(reading, "source")
        numbers: dict[str, Any] = {
            "graph": run.dataflow.name,
            "engine": run.engine,
            "workers": run.settings.workers_in_all,
            "state": reading.state,
            "error": f"{type(life.error).__name__}: {safe_text(str, life.error, 2000)}" if life.error else "",
            "clock_ms": reading.clock_ms,
            **on_page(reading),
            "in_per_s": self._rate(lambda sample: sample.items_in),
            "out_per_s": self._rate(lambda sample: sample.items_out),
            "fraction": progress.fraction,
            "minimal_time": progress.reached,
            "held_by": "" if reading.has_ended else progress.held_by,
            "sources": [{**_source(each), **sources[each.name]} for each in reading.sources],
            "sinks": reading.sinks,
            "operators": {
                name: {
                    **counts,
                    "per_s": self._rate(partial(_left, name, "items")),
                    "busy": self._rate(partial(_left, name, "busy_s"), digits=3),
                }
                for name, counts in operators.items()
            },
            "steps": self._steps,
            "inside_loops": list(observed.inside_loops),
            "processes": [{**self._process(each), **processes[each.name]} for each in observed.processes],
            "output": self._rows(),
            "errors": self._latest_errors(),
        }
        row: Row = [round(reading.clock_ms / 1000, 2), numbers["in_per_s"], numbers["out_per_s"], numbers["unsettled"]]
        self._recent.append(row)
        self._whole.add(row)
        return numbers

    def history(self) -> list[Row]:
        """For each sample: seconds since 1970, items in and out a second, unsettled items; None for these where the run
        resumed. Of the whole life, more densely of the last minutes.
        """
        recent = list(self._recent)
        first = recent[0][0] if recent else None
        return [row for row in self._whole.rows if first is None or row[0] < first] + recent  # type: ignore[operator]

    def bars(self, after: int) -> tuple[int, list[list[Any]]]:
        """The bars of the timelines after the one with this number, and the number of the last."""
        return self._bars_taken, [bar for number, bar in list(self._bars) if number > after]

    def _take_bars(self, observed: Observed, now_s: float) -> None:
        seconds_at = self._life.seconds_at
        for name, bars in observed.bars.items():
            for bar in bars:
                self._bars_taken += 1
                began_s, ended_s = seconds_at(bar.began_s), seconds_at(bar.ended_s)
                row = [name, round(began_s, 4), round(ended_s, 4), round(bar.busy_s, 4), *bar[3:]]
                self._bars.append((self._bars_taken, row))
        while self._bars and self._bars[0][1][2] < seconds_at(now_s) - _BARS_S:
            self._bars.popleft()

    def _rate(self, number: Callable[[_Sample], float], digits: int = 1) -> float:
        """The rate per second, over the last seconds."""
        first, last = self._samples[0], self._samples[-1]
        seconds = last.at_s - first.at_s
        return round((number(last) - number(first)) / seconds, digits) if seconds > 0 else 0.0

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


def _left(operator: str, what: str, sample: _Sample) -> float:
    left = sample.counts.get(operator)
    return 0 if left is None else float(getattr(left, what))


def _source(state: SourceState) -> dict[str, Any]:
    return {"name": state.name, "heartbeat": _in_words(state.heartbeat), "ended": state.silent_since_s is None}


def _in_words(heartbeat: bytes) -> str:
    if heartbeat == BEGINNING:
        return "the beginning"
    return "the end" if heartbeat == END_OF_TIME else str(time_of(heartbeat))
