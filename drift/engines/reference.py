"""The reference engine: the interpreter of `drift_graph.reference` between sources and a digest."""

from __future__ import annotations

import select
from collections.abc import Iterator
from typing import Any

from drift.engines.base import Progress
from drift.engines.feed import Feed
from drift.engines.observed import Observed, own_state
from drift.engines.settings import Settings
from drift.machines.plan import feeding_step
from drift_barrier.barrier import Released
from drift_barrier.digest import Digest
from drift_graph.canonical import NoCanonicalForm
from drift_graph.errors import DriftError, ImpureStep
from drift_graph.failures import no_form_error, step_error
from drift_graph.graph import Dataflow
from drift_graph.item import Failure
from drift_graph.meta import BEGINNING, END_OF_TIME
from drift_graph.metas import Metas
from drift_graph.reference import Reference
from drift_graph.segments import has_borders


class ReferenceEngine:
    """One item at a time."""

    needs_items = True

    def __init__(self, dataflow: Dataflow, feed: Feed, settings: Settings) -> None:
        self.progress = Progress()
        self._dataflow = dataflow
        self._feed = feed
        self._reference = Reference(dataflow)
        self._heartbeats = dict.fromkeys(range(len(dataflow.sources)), BEGINNING)
        self._digest = Digest(settings.digest)
        self._passes_failures = has_borders(dataflow)

    def released(self) -> Iterator[Released]:
        feed, progress = self._feed, self.progress
        while True:
            fed = feed.poll(progress.minimal_bytes)
            for name, rank, arrived in fed:
                self._heartbeats[rank] = arrived.heartbeat
                for meta, payload in zip(arrived.metas, arrived.payloads):
                    self._reference.push(name, meta, payload)
            progress.minimal_bytes = min(self._heartbeats.values())
            progress.items_in, progress.late_items = feed.items_in, feed.late_found
            progress.unsettled = feed.unsettled(progress.minimal_bytes)
            holder = min(self._heartbeats, key=self._heartbeats.__getitem__)
            progress.held_by = f"source {feed.name_of(holder)}"
            progress.silent_since_s = feed.intake.silent_since_s(holder)
            yield from self._pop()
            if feed.error is not None:
                raise feed.error
            if progress.minimal_bytes == END_OF_TIME:
                return
            if not fed:
                if (error := feed.out_of_credit(progress.minimal_bytes)) is not None:
                    raise error
                select.select(feed.filenos(), (), (), 0.001)

    def _pop(self) -> Iterator[Released]:
        output: list[tuple[str, bytes, Any]] = []
        error: Exception | None = None
        try:
            for sink, meta, payload in self._reference.pop(self.progress.minimal_bytes):
                if type(payload) is Failure and not self._passes_failures:
                    raise step_error(payload, meta)
                output.append((sink, meta, payload))
        except ImpureStep as raised:  # what it has changed may be among the output
            output, error = [], raised
        except DriftError as raised:
            error = raised
        metas: list[bytes] = []
        for sink, meta, payload in output:
            try:
                self._digest.add(Metas([meta]), [payload])
            except NoCanonicalForm as none:
                error = no_form_error(feeding_step(self._dataflow, sink), none, payload, meta)
                break
            metas.append(meta)
        sinks, payloads = [sink for sink, *_ in output[: len(metas)]], [payload for *_, payload in output[: len(metas)]]
        start = self.progress.items_out
        self.progress.items_out += len(metas)
        if error is None:
            self.progress.released_below = self.progress.minimal_bytes
        yield Released(start, Metas(metas), payloads, sinks, error)
        if error is not None:
            raise error

    def hexdigest(self) -> str:
        return self._digest.hexdigest()

    def blocks(self) -> list[bytes]:
        return self._digest.blocks

    def observed(self) -> Observed:
        return Observed(processes=[own_state("run")])

    def close(self) -> None:
        self._feed.close()
