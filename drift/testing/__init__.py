"""Tests a dataflow: drawn inputs and schedules, the simulator against the reference, and a report that fits a screen.

Invariant: importing this package imports Hypothesis only when a name is used that needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from drift.testing.case import load_case, run_case, save_case, write_report
from drift.testing.check import Case, Failure, NotDeterministic, Result, check
from drift.testing.driver import Driver
from drift.testing.purity import rerun
from drift.testing.report import report
from drift.testing.schedule import Schedule
from drift.testing.seeds import Seeds, counts
from drift.testing.shrink import shrunk
from drift.testing.sometimes import Unreached, reaching, sometimes

if TYPE_CHECKING:
    from drift.testing import strategies
    from drift.testing.law import Checked, deterministic

__all__ = [
    "Case",
    "Checked",
    "Driver",
    "Failure",
    "NotDeterministic",
    "Result",
    "Schedule",
    "Seeds",
    "Unreached",
    "check",
    "counts",
    "deterministic",
    "load_case",
    "reaching",
    "report",
    "rerun",
    "run_case",
    "save_case",
    "shrunk",
    "sometimes",
    "strategies",
    "write_report",
]

_drawn = {"Checked": "law", "deterministic": "law"}


def __getattr__(name: str) -> Any:
    if name == "strategies":
        return importlib.import_module("drift.testing.strategies")
    if name in _drawn:
        return getattr(importlib.import_module(f"drift.testing.{_drawn[name]}"), name)
    raise AttributeError(f"module 'drift.testing' has no attribute {name!r}")
