"""Deterministic dataflow: one graph, many engines, one output, byte for byte.

>>> import drift
>>> graph = drift.Graph("greeting")
>>> graph.source("lines").flat_map(str.split).count(key=str.lower).sink("counts")
>>> [item.payload for item in drift.run(graph, {"lines": ["to be or", "not to be"]})]
[('to', 1), ('be', 1), ('or', 1), ('not', 1), ('to', 2), ('be', 2)]
"""

from __future__ import annotations

from importlib import import_module as _import_module
from pathlib import Path as _Path
from typing import TYPE_CHECKING as _TYPE_CHECKING

import drift_acker as _drift_acker
import drift_barrier as _drift_barrier
from drift import sinks, sources, spark
from drift.engines.base import Progress, Settings
from drift.run import Report, Run, run
from drift.streams import Feedback, Graph, Stream
from drift_graph.canonical import canonical
from drift_graph.errors import (
    DriftBug,
    DriftError,
    GraphError,
    ImpureStep,
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
    "Audit",
    "Dataflow",
    "DriftBug",
    "DriftError",
    "EventTime",
    "Feedback",
    "Graph",
    "GraphError",
    "ImpureStep",
    "InputError",
    "Item",
    "Late",
    "LateItem",
    "PayloadError",
    "ProcessError",
    "Progress",
    "Record",
    "Recording",
    "Report",
    "Run",
    "Settings",
    "SettingsError",
    "SinkError",
    "StepError",
    "Stream",
    "audit",
    "canonical",
    "diff",
    "explain",
    "replay",
    "restored",
    "run",
    "sinks",
    "sources",
    "spark",
]

_own_folders.extend(str(_Path(each.__file__ or "").parent) for each in (_drift_acker, _drift_barrier))
_own_folders.append(str(_Path(__file__).parent))


if _TYPE_CHECKING:
    from drift import testing as testing
    from drift.lineage.diff import diff as diff
    from drift.lineage.explain import explain as explain
    from drift.records.audit import audit as audit
    from drift.records.checks import Audit as Audit
    from drift.records.reader import Record as Record
    from drift.records.recorder import Recording as Recording
    from drift.records.replay import replay as replay
    from drift_graph.restore import restored as restored

#: What needs PyArrow is imported when it is first asked for; so is the harness, which only tests need.
_LATER = {
    "Audit": "drift.records.checks",
    "audit": "drift.records.audit",
    "Record": "drift.records.reader",
    "Recording": "drift.records.recorder",
    "diff": "drift.lineage.diff",
    "explain": "drift.lineage.explain",
    "replay": "drift.records.replay",
    "restored": "drift_graph.restore",
}


def __getattr__(name: str) -> object:
    if name == "testing":
        return _import_module("drift.testing")
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module 'drift' has no attribute {name!r}")
    return getattr(_import_module(module), name)
