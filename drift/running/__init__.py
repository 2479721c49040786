"""A run of a graph: how it is asked for, what it is, and what it did."""

from drift.running.calls import made_run as made_run
from drift.running.calls import run as run
from drift.running.report import Report as Report
from drift.running.runs import Run as Run
from drift.running.watching import SILENT_S as SILENT_S
