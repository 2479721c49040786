"""Runs of graphs: the call, the run object and its report."""

from drift.running.calls import made_run as made_run
from drift.running.calls import run as run
from drift.running.report import Report as Report
from drift.running.runs import Run as Run
from drift.running.watching import SILENT_S as SILENT_S
