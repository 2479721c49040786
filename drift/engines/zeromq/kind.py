"""The registration of the engine over ZeroMQ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drift.engines.base import Engine
from drift.engines.kinds import EngineKind
from drift.engines.zeromq.settings import ZeromqSettings
from drift_graph.graph import Dataflow

if TYPE_CHECKING:
    from drift.engines.feed import Feed  # not at run time: the processes of a run import this module, and need no Feed


def _made(dataflow: Dataflow, feed: Feed, settings: ZeromqSettings) -> Engine:
    from drift.engines.zeromq.engine import ZeromqEngine

    return ZeromqEngine(dataflow, feed, settings)


ZEROMQ = EngineKind("zeromq", _made, ZeromqSettings, stores_state=True, pauses=True)
