"""A run in a notebook: its tables, its bar while it runs, and its output plotted over time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import nbclient
import nbformat
import polars as pl
import pytest
from matplotlib import use
from matplotlib.dates import date2num
from matplotlib.pyplot import close
from waiting import HANG_S

import drift
from drift.running.notebook import bar_of


def test_a_run_and_its_report_are_tables_in_a_notebook() -> None:
    graph = drift.Graph("<b>")
    graph.source("numbers").map(lambda n: n).sink("out")
    run = drift.run(graph, {"numbers": range(1234)})
    assert "not begun" in run._repr_html_()
    report = run.finish()
    printed = dict(line.split(maxsplit=1) for line in str(report).splitlines())
    assert printed["digest"] == report.digest and printed["items_out"] == str(report.items_out)
    assert "held" not in printed
    html = report._repr_html_()
    assert "<td" in html and "1,234" in html and "&lt;b&gt;" in html and "<b>" not in html
    assert "ended" in run._repr_html_() and "tombstones" not in html


def test_a_notebook_shows_a_bar_while_a_run_runs() -> None:
    cells = [
        nbformat.v4.new_code_cell(
            "import drift, drift.running.notebook as notebook\n"
            "notebook._BEGINS_AFTER_S = notebook._EVERY_S = 0\n"
            "graph = drift.Graph('shown')\n"
            "graph.source('numbers').map(lambda n: n).sink('out')\n"
            "drift.run(graph, {'numbers': range(5000)}, batch_items=100).finish()"
        )
    ]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=HANG_S, startup_timeout=HANG_S, kernel_name="python3").execute()
    bar, table = (each["data"]["text/html"] for each in notebook.cells[0].outputs)
    assert '<progress value="1.0000" max="1">' in bar and "<b>shown</b> finished, 5,000 items in, 5,000 out" in bar
    assert "items_per_second" in table


def test_outside_of_a_notebook_no_bar_is_drawn() -> None:
    assert bar_of("shell") is None


def test_a_run_is_plotted_over_time_with_a_line_for_each_key() -> None:
    use("Agg")
    graph = drift.Graph("counts")
    trips = graph.source("trips", time=drift.EventTime(lambda trip: trip[0]))
    trips.key_by(lambda trip: trip[1]).window(drift.windows.tumbling("1 minute")).count(name="counts").sink("out")
    began_ms = 1_700_000_040_000
    rows = [(began_ms + n * 1000, "ab"[n % 2]) for n in range(240)]
    axes = drift.run(graph, {"trips": rows}).plot()
    try:
        ends = [began_ms + minute * 60_000 - 1 for minute in range(1, 5)]
        days = [(end / 86_400_000) for end in ends]
        assert [line.get_label() for line in axes.lines] == ["a", "b"] and axes.get_ylabel() == "value"
        for line in axes.lines:
            assert list(line.get_ydata()) == [30] * 4 and date2num(line.get_xdata()) == pytest.approx(days)
    finally:
        close(axes.figure)


def test_a_plot_has_the_values_without_a_key_and_those_at_the_end() -> None:
    use("Agg")
    began_ms = 1_700_000_040_000
    rows = [{"at": began_ms + n * 1000, "n": n, "zone": ["a", None][n % 2]} for n in range(20)]

    def values(make: Callable[[Any], Any], **more: Any) -> dict[str, list[Any]]:
        graph = drift.Graph("numbers")
        make(graph.source("rows", time=drift.EventTime("at"))).sink("out")
        axes = drift.run(graph, {"rows": rows}).plot(**more)
        try:
            axes.figure.canvas.draw()
            return {str(line.get_label()): list(line.get_ydata()) for line in axes.lines}
        finally:
            close(axes.figure)

    assert [*values(lambda stream: stream.window(drift.windows.tumbling(5000)).count()).values()] == [[5] * 4]
    by_zone = {"a": list(range(0, 20, 2)), "None": list(range(1, 20, 2))}
    assert values(lambda stream: stream, value="n", by="zone") == by_zone
    assert [*values(lambda stream: stream.at_end(drift.agg.sum("n"))).values()] == [[190]]
    pairs = values(lambda stream: stream.map(lambda row: {"key": (row["n"] % 2, 1), "n": row["n"]}), value="n")
    assert list(pairs) == ["[0, 1]", "[1, 1]"]


@pytest.mark.parametrize("how", ["unit", "zone", "schema", "moments", "texts", "frame", "numbers"])
def test_a_plot_has_dates_where_times_are_moments_of_whatever_year(how: str) -> None:
    use("Agg")
    moments = [datetime(1970, 1, 2, tzinfo=UTC), datetime(1999, 5, 6, 7, 8, 9, tzinfo=UTC)]
    if how in ("unit", "numbers"):
        rows: list[dict[str, Any]] = [{"at": int(each.timestamp()), "n": 1} for each in moments]
    else:
        rows = [{"at": each.replace(tzinfo=None) if how == "zone" else each, "n": 1} for each in moments]
    more = {"unit": {"unit": "s"}, "zone": {"zone": "UTC"}}.get(how, {})
    graph = drift.Graph("dates")
    if how == "texts":
        rows = [{**row, "at": row["at"].isoformat()} for row in rows]
    schema: Any = {"schema": {"at": pl.Datetime("ms", "UTC"), "n": int}} if how == "schema" else {}
    graph.source("rows", time=drift.EventTime("at", **more), **schema).sink("out")  # type: ignore[arg-type]
    axes = drift.run(graph, {"rows": pl.DataFrame(rows) if how == "frame" else rows}).plot(value="n")
    try:
        (line,) = axes.lines
        days = [each.timestamp() / 86_400 for each in moments]
        if how == "numbers":
            assert list(line.get_xdata()) == [each * 86_400 for each in days]
        else:
            assert date2num(line.get_xdata()) == pytest.approx(days)
    finally:
        close(axes.figure)


def test_a_plot_asks_for_the_number_where_it_cannot_know_it() -> None:
    use("Agg")

    def run() -> drift.Run:
        graph = drift.Graph("pairs")
        graph.source("n").map(lambda n: {"n": n, "square": n * n, "text": str(n)}, name="pairs").sink("out")
        return drift.run(graph, {"n": range(5)})

    axes = run().plot(value="square")
    try:
        (line,) = axes.lines
        assert list(line.get_ydata()) == [0, 1, 4, 9, 16] and list(line.get_xdata()) == list(range(5))
    finally:
        close(axes.figure)
    for more, message in (
        ({}, "several fields are numbers, 'n', 'square'; name one"),
        ({"value": "cube"}, "no field 'cube'; it has 'n', 'square', 'text'"),
        ({"value": "text"}, "'text' is no number, but string"),
        ({"value": "n", "by": "cube"}, "no field 'cube'"),
    ):
        with pytest.raises(drift.SettingsError, match=message):
            run().plot(**more)  # type: ignore[arg-type]
