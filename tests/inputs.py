"""Inputs that tests look into: what sources give, as lineage reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from drift.auditing import InputBatch
from drift.engines.settings import Settings
from drift.engines.source_feed import SourceFeed
from drift.sources.arguments import as_source
from drift_graph.graph import Dataflow
from drift_graph.meta import BEGINNING


class Given:
    """What sources give, read anew each time.

    Args:
        sources: for each source of the graph what makes its items.
    """

    def __init__(
        self, dataflow: Dataflow, sources: Mapping[str, Callable[[], Iterable[Any]]], batch_items: int = 7
    ) -> None:
        self._dataflow = dataflow
        self._sources = sources
        self._batch_items = batch_items

    def batches(self) -> Iterator[InputBatch]:
        opened = {name: as_source(name, made()) for name, made in self._sources.items()}
        settings = Settings(batch_items=self._batch_items, in_flight_max=10**9)
        feed = SourceFeed(self._dataflow, opened, {}, settings, on_late=lambda late: None)
        while not feed.finished:
            for name, _, arrived in feed.poll(BEGINNING):
                yield InputBatch(name, arrived.metas, arrived.payloads, arrived.heartbeat)

    def at(self, global_time: bytes) -> Any:
        for batch in self.batches():
            for meta, payload in zip(batch.metas, batch.payloads):
                if meta == global_time:
                    return payload
        raise AssertionError(f"no input item at {global_time.hex()}")
