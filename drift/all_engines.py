"""The engines that come with drift. A further one is a file with its engine and its `EngineKind`, and a line here.

Invariant: asking which engines there are imports none of them. Others call `drift.engines.kinds.register` themselves.
"""

from __future__ import annotations

from typing import Literal

from drift.engines.base import Engine
from drift.engines.feed import Feed
from drift.engines.kinds import EngineKind, engine_kind, engine_kinds, engine_names, register
from drift.engines.settings import Settings, StatefulSettings
from drift.engines.zeromq.kind import ZEROMQ
from drift.spark.kind import SPARK
from drift_graph.graph import Dataflow

__all__ = ["EngineKind", "EngineName", "engine_kind", "engine_kinds", "engine_names"]

#: What a type checker lets through; others pass the `EngineKind`.
EngineName = Literal["local", "reference", "zeromq", "spark"]


def _local(dataflow: Dataflow, feed: Feed, settings: StatefulSettings) -> Engine:
    from drift.engines.local import LocalEngine

    return LocalEngine(dataflow, feed, settings)


def _reference(dataflow: Dataflow, feed: Feed, settings: Settings) -> Engine:
    from drift.engines.reference import ReferenceEngine

    return ReferenceEngine(dataflow, feed, settings)


LOCAL = EngineKind("local", _local, StatefulSettings, stores_state=True, pauses=True)
REFERENCE = EngineKind("reference", _reference)

for _kind in (LOCAL, REFERENCE, ZEROMQ, SPARK):
    register(_kind)
