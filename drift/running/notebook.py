"""A run and its report in a notebook: tables, and a bar while the run runs.

Invariant: outside of a notebook nothing is drawn, and nothing of IPython is loaded; in one, a run of less than half a
second draws nothing, and another one draws at most four times a second, in its own thread.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from html import escape
from typing import Any

from drift.engines.base import Progress
from drift.engines.metrics import METRICS
from drift.running.report import Report

_BEGINS_AFTER_S, _EVERY_S = 0.5, 0.25
_UNITS = {metric.report: metric.unit for metric in METRICS if metric.report}
_TEXTS = {metric.report: metric.text for metric in METRICS if metric.report}


def bar_of(graph: str) -> Bar | None:
    """The bar of a run that is about to begin in a notebook; None anywhere else."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return Bar(graph) if type(shell).__name__ == "ZMQInteractiveShell" else None


class Bar:
    """How far a run is, below the cell that runs it."""

    def __init__(self, graph: str) -> None:
        self._graph = graph
        self._began_s = time.monotonic()
        self._next_s = self._began_s + _BEGINS_AFTER_S
        self._shown: Any = None  # IPython's handle of what is displayed

    def take(self, progress: Progress) -> None:
        """Draw, if it is time."""
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + _EVERY_S
            self._draw(bar_html(self._graph, "running", progress, now_s - self._began_s))

    def end(self, state: str, progress: Progress, seconds: float) -> None:
        """Draw how the run has ended, if anything was drawn."""
        if self._shown is not None:
            self._draw(bar_html(self._graph, state, progress, seconds))

    def _draw(self, html: str) -> None:
        ipython: Any = importlib.import_module("IPython.display")
        if self._shown is None:
            self._shown = ipython.display(ipython.HTML(html), display_id=True)
        else:
            self._shown.update(ipython.HTML(html))


def bar_html(graph: str, state: str, progress: Progress, seconds: float) -> str:
    """One line: a bar where the share of the input is known, and the numbers."""
    share = 1.0 if state == "finished" else progress.fraction
    bar = "" if share is None else f'<progress value="{share:.4f}" max="1"></progress> {share:.0%} '
    numbers = [f"{progress.items_in:,} items in", f"{progress.items_out:,} out", f"at {progress.reached}"]
    numbers += [f"held by {progress.held_by}"] if progress.held_by and state == "running" else []
    return f"<div>{bar}<b>{escape(graph)}</b> {escape(state)}, {escape(', '.join(numbers))}, {seconds:.1f} s</div>"


def report_html(report: Report) -> str:
    """A table of what is not 0 or empty."""
    facts = asdict(report)
    facts["items_per_second"] = report.items_per_second
    rows = ((name, _TEXTS.get(name, ""), _shown(name, value)) for name, value in facts.items() if value)
    return _table(rows)


def run_html(state: str, report: Report, links: Mapping[str, str]) -> str:
    """A run: its state, where its page is, and its report so far."""
    named = [f'<a href="{escape(url)}">{escape(name)}</a>' for name, url in links.items() if url]
    head = " ".join([f"<b>drift.Run</b> of {escape(repr(report.graph))} on {escape(report.engine)}, {state}", *named])
    return f"<div>{head}</div>{report_html(report)}"


def _table(rows: Iterable[tuple[str, str, str]]) -> str:
    cells = "".join(
        f'<tr title="{escape(text)}"><th style="text-align: left">{escape(name)}</th>'
        f'<td style="text-align: left">{escape(value)}</td></tr>'
        for name, text, value in rows
    )
    return f"<table>{cells}</table>"


def _shown(name: str, value: Any) -> str:
    unit = _UNITS.get(name, "")
    if unit == "By":
        return f"{value / 1e6:,.0f} MB"
    if isinstance(value, float):
        return f"{value:,.2f} s" if unit == "s" else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
