"""The sinks of a run.

Invariant: each sink gets every item of its own once, in order, before the caller does; and no sink changes a payload.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from drift.running.observers import Observer
from drift.sinks.base import Sink, Ticking, as_sink
from drift.undisturbed import undisturbed
from drift_barrier.barrier import Released
from drift_graph.errors import DriftError, SinkError
from drift_graph.unchanged import Sample, Sampler


class Sinks(Observer):
    """The sinks of one run, by name.

    Attributes:
        position: behind the last batch that all have.
    """

    def __init__(self, sinks: Mapping[str, Any]) -> None:
        self.by_name: dict[str, Sink] = {name: as_sink(name, sink) for name, sink in sinks.items()}
        self._ticking = [sink for sink in self.by_name.values() if isinstance(sink, Ticking)]
        self._written = Sampler()
        self.position = 0

    def __len__(self) -> int:
        return len(self.by_name)

    def open(self) -> None:
        """Before the first item, unless a run resumes: then its checkpoints have opened them."""
        for sink in self.by_name.values():
            sink.open()

    def close(self, closing: ExitStack) -> None:
        """Close them at the end of a context, each even if closing another raises."""
        for sink in self.by_name.values():
            closing.callback(sink.close)

    def take(self, batch: Released) -> Released:
        if batch.metas and self.by_name:
            self._write(batch)
        elif self._ticking:
            self._tick()
        return batch

    @undisturbed
    def _tick(self) -> None:
        for sink in self._ticking:
            sink.tick()

    @undisturbed
    def _write(self, batch: Released) -> None:
        """Give each sink its items of a batch."""
        samples = self._written.sample(batch.payloads)
        for name, sink in self.by_name.items():
            try:
                _write_to(name, sink, batch)
            except DriftError:
                raise
            except Exception as error:
                raise SinkError(
                    f"sink {name!r}, {type(sink).__name__}, raised {type(error).__name__}: {error}; it has taken every "
                    f"item before position {batch.position}"
                ) from error
            check_unchanged(samples, f"sink {name!r}")
        self.position = batch.position + len(batch.metas)

    def complete(self, *, stopped: bool) -> None:
        """The output has ended; if the input was only stopped, a sink with further output from an earlier run is left
        open.
        """
        for sink in self.by_name.values():
            if not (stopped and getattr(sink, "has_more_stored", False)):  # an earlier run has written more
                sink.complete()


def _write_to(name: str, sink: Sink, batch: Released) -> None:
    positions, metas, payloads = batch.of(name)
    if positions:
        sink.write(positions, metas, payloads)


def check_unchanged(samples: Sequence[Sample], who: str) -> None:
    for each in samples:
        if each.is_changed:
            raise SinkError(
                f"{who} changed the payload of an item in place: {each.difference}; the run makes later items of "
                f"it: change a copy, copy.deepcopy(item.payload); everything released before stands"
            )
