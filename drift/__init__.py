"""Deterministic dataflow: one graph, many engines, one output, byte for byte.

>>> import drift
>>> graph = drift.Graph("greeting")
>>> graph.source("lines").flat_map(str.split).count(key=str.lower).sink("counts")
>>> [item.payload for item in drift.run(graph, {"lines": ["to be or", "not to be"]})]
[('to', 1), ('be', 1), ('or', 1), ('not', 1), ('to', 2), ('be', 2)]
"""

from __future__ import annotations

from pathlib import Path as _Path

import drift_acker as _drift_acker
import drift_barrier as _drift_barrier
from drift import sinks, sources
from drift.engines.base import Progress, Settings
from drift.run import Report, Run, run
from drift.streams import Feedback, Graph, Stream
from drift_graph.canonical import canonical
from drift_graph.errors import (
    DriftBug,
    DriftError,
    GraphError,
    InputError,
    LateItem,
    PayloadError,
    ProcessError,
    SettingsError,
    SinkError,
    StepError,
)
from drift_graph.functions import own_folders as _own_folders
from drift_graph.graph import Dataflow
from drift_graph.item import Item
from drift_graph.times import ArrivalTime, EventTime, Late

__version__ = "0.1.0"
__all__ = [
    "ArrivalTime",
    "Dataflow",
    "DriftBug",
    "DriftError",
    "EventTime",
    "Feedback",
    "Graph",
    "GraphError",
    "InputError",
    "Item",
    "Late",
    "LateItem",
    "PayloadError",
    "ProcessError",
    "Progress",
    "Report",
    "Run",
    "Settings",
    "SettingsError",
    "SinkError",
    "StepError",
    "Stream",
    "canonical",
    "run",
    "sinks",
    "sources",
]

_own_folders.extend(str(_Path(each.__file__ or "").parent) for each in (_drift_acker, _drift_barrier))
_own_folders.append(str(_Path(__file__).parent))
