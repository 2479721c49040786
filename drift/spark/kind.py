"""The registration of the engine on Spark."""

from __future__ import annotations

from drift.engines.base import Engine
from drift.engines.feed import Feed
from drift.engines.kinds import EngineKind
from drift.extras import need
from drift.spark.settings import SparkSettings
from drift_graph.graph import Dataflow


def _made(dataflow: Dataflow, feed: Feed, settings: SparkSettings) -> Engine:
    need("spark", "engine='spark'")
    from drift.spark.engine import SparkEngine

    return SparkEngine(dataflow, feed, settings)


SPARK = EngineKind(
    "spark", _made, SparkSettings, reads_frames=True, output_is_elsewhere=True, stores_state=True, asks_itself=True
)
