"""Deterministic dataflow: one graph, many engines, one output, byte for byte.

>>> import drift
>>> graph = drift.Graph("greeting")
>>> graph.source("lines").flat_map(str.split).count(key=str.lower).sink("counts")
>>> [item.payload for item in drift.run(graph, {"lines": ["to be or", "not to be"]})]
[('to', 1), ('be', 1), ('or', 1), ('not', 1), ('to', 2), ('be', 2)]
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

import drift_acker as _drift_acker
import drift_barrier as _drift_barrier
from drift_graph.functions import own_folders as _own_folders

__version__ = "0.1.0"
_own_folders += [*_drift_acker.__path__, *_drift_barrier.__path__, *__path__]

if _TYPE_CHECKING:
    from drift import sinks as sinks
    from drift import sources as sources
    from drift import spark as spark
    from drift import testing as testing
    from drift.auditing.audit import audit as audit
    from drift.auditing.checks import Audit as Audit
    from drift.auditing.diff import diff as diff
    from drift.auditing.explain import explain as explain
    from drift.auditing.replay import replay as replay
    from drift.calling.asks import Call as Call
    from drift.calling.asks import recorded as recorded
    from drift.engines.base import Progress as Progress
    from drift.engines.settings import Settings as Settings
    from drift.flow import aggregates as agg  # noqa: F401
    from drift.flow import windows as windows
    from drift.flow.corrected import CorrectableWindow as CorrectableWindow
    from drift.flow.logic import Logic as Logic
    from drift.flow.logic import Out as Out
    from drift.flow.logic import Rows as Rows
    from drift.flow.windows import Window as Window
    from drift.records.reader import Record as Record
    from drift.records.recorder import Recording as Recording
    from drift.running import Report as Report
    from drift.running import Run as Run
    from drift.running import run as run
    from drift.state.settings import Checkpoints as Checkpoints
    from drift.streams import Feedback as Feedback
    from drift.streams import Graph as Graph
    from drift.streams import KeyedStream as KeyedStream
    from drift.streams import Stream as Stream
    from drift.streams import WindowedStream as WindowedStream
    from drift_graph.canonical import canonical as canonical
    from drift_graph.errors import AnswerMissing as AnswerMissing
    from drift_graph.errors import DriftBug as DriftBug
    from drift_graph.errors import DriftError as DriftError
    from drift_graph.errors import GraphError as GraphError
    from drift_graph.errors import ImpureStep as ImpureStep
    from drift_graph.errors import InputError as InputError
    from drift_graph.errors import LateItem as LateItem
    from drift_graph.errors import PayloadError as PayloadError
    from drift_graph.errors import ProcessError as ProcessError
    from drift_graph.errors import SettingsError as SettingsError
    from drift_graph.errors import SinkBehind as SinkBehind
    from drift_graph.errors import SinkError as SinkError
    from drift_graph.errors import StepError as StepError
    from drift_graph.errors import StorageError as StorageError
    from drift_graph.graph import Dataflow as Dataflow
    from drift_graph.item import Item as Item
    from drift_graph.lateness import Late as Late
    from drift_graph.later import Later as Later
    from drift_graph.later import at as at
    from drift_graph.later import next_round as next_round
    from drift_graph.meta import END as END
    from drift_graph.policies import ArrivalTime as ArrivalTime
    from drift_graph.policies import EventTime as EventTime
    from drift_graph.restore import restored as restored

#: Where each public name is from; it is imported when it is first asked for, so that `import drift` takes no time.
_NAMES = {
    "drift.engines.base": ("Progress",),
    "drift.engines.settings": ("Settings",),
    "drift.auditing.diff": ("diff",),
    "drift.auditing.explain": ("explain",),
    "drift.auditing.audit": ("audit",),
    "drift.auditing.checks": ("Audit",),
    "drift.flow.corrected": ("CorrectableWindow",),
    "drift.flow.logic": ("Logic", "Out", "Rows"),
    "drift.flow.windows": ("Window",),
    "drift.records.reader": ("Record",),
    "drift.records.recorder": ("Recording",),
    "drift.auditing.replay": ("replay",),
    "drift.calling.asks": ("Call", "recorded"),
    "drift.running": ("Report", "Run", "run"),
    "drift.state.settings": ("Checkpoints",),
    "drift.streams": ("Feedback", "Graph", "KeyedStream", "Stream", "WindowedStream"),
    "drift_graph.canonical": ("canonical",),
    "drift_graph.errors": (
        "AnswerMissing", "DriftBug", "DriftError", "GraphError", "ImpureStep", "InputError", "LateItem", "PayloadError",
        "ProcessError", "SettingsError", "SinkBehind", "SinkError", "StepError", "StorageError",
    ),
    "drift_graph.graph": ("Dataflow",),
    "drift_graph.item": ("Item",),
    "drift_graph.later": ("Later", "at", "next_round"),
    "drift_graph.meta": ("END",),
    "drift_graph.restore": ("restored",),
    "drift_graph.policies": ("ArrivalTime", "EventTime"),
    "drift_graph.lateness": ("Late",),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
_MODULES = ("sinks", "sources", "spark", "testing")
_PARTS = {"agg": "drift.flow.aggregates", "windows": "drift.flow.windows"}
__all__ = sorted([*_MODULE_OF, *_PARTS, "sinks", "sources", "spark"])
_OF_RECORDS = ("Record", "audit", "diff", "explain", "replay")


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return _import_module(f"drift.{name}")
    if name in _PARTS:
        return _import_module(_PARTS[name])
    module = _MODULE_OF.get(name)
    if module is None:
        parts = [] if name.startswith("_") else [*_PARTS, "sources", "sinks"]
        found = [f"drift.{part}.{name}" for part in parts if name in dir(__getattr__(part))]
        hint = f"; it is {' or '.join(found)}" if found else ""
        raise AttributeError(f"module 'drift' has no attribute {name!r}{hint}", name=name)
    if name in _OF_RECORDS:
        _import_module("drift.extras").need("records", f"drift.{name}")
    found = globals()[name] = getattr(_import_module(module), name)
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, *_PARTS, *(name for name in globals() if name.startswith("__"))})
