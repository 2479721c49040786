"""The plan says of each edge what travels on it, and of each step what runs it and since what."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from click.testing import CliRunner
from frozen.cases import CASES, Case
from frozen.runs import given

import drift
from drift.cli import drift as command
from drift.machines import maps
from drift.machines.forms import Form, forms_of
from drift_graph.errors import DriftError
from drift_graph.payloads import are_rows
from drift_kernel import kernel

SCHEMA = {"zone": str, "n": int, "fare": float, "at": int}
#: Values of which columns do not hold all.
_ODD = ("NaN", "all types")
SOME = [case for case in CASES if case.tables and not case.large and not any(each in case.name for each in _ODD)][::5]


def source(graph: drift.Graph) -> drift.Stream[dict[str, object]]:
    return graph.source("trips", schema=SCHEMA, time=drift.EventTime("at"))


@pytest.mark.skipif(kernel is None, reason="the kernel is not built here")
@pytest.mark.parametrize("case", SOME, ids=lambda case: case.name)
def test_what_the_plan_says_travels(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, take = defaultdict[str, set[str]](set), maps._Port.take

    def spied(self: maps._Port, batch: maps._Batch, ports: maps.Ports) -> None:
        if len(batch.payloads):
            seen[self.name].add("rows" if are_rows(batch.payloads) else "objects")
        take(self, batch, ports)

    monkeypatch.setattr(maps._Port, "take", spied)
    dataflow, sources = case.make()
    forms = forms_of(dataflow, case.tables)
    try:
        drift.run(dataflow, given(case, sources)).finish()
    except DriftError:  # what came before it has travelled
        pass
    for name in seen.keys() & forms.keys():
        assert seen[name] <= {each for _, each in forms[name].takes}, name


def divided(state: int, number: int) -> tuple[int, int]:
    return number, number // 2


def kept_until(state: int, number: int, at: int) -> tuple[int, list[object]]:
    return number, [drift.at(at + 9, number)]


def of(step: str, graph: drift.Graph) -> Form:
    return forms_of(graph.build())[step]


def test_a_step_says_since_what_it_gives_objects() -> None:
    graph = drift.Graph("forms")
    trips = source(graph)
    windows, day = trips.key_by("zone"), drift.windows.tumbling(9)
    windows.window(day).rows(name="all", fares=drift.agg.collect("fare"), n=drift.agg.sum("n")).sink("a")
    trips.key_by(lambda trip: trip["n"] % 3).window(day).rows(name="by function", n=drift.agg.count()).sink("b")
    windows.scan(0, lambda n, _: (n + 1, n), name="scan").sink("c")
    trips.map(lambda trip: trip["n"], name="map").map(abs, name="absolute").sink("d")
    graph.source("words").filter(str.isalpha, name="letters").sink("e")
    assert of("all", graph).why == "fares is not count, sum, mean, min or max of a field"
    assert "is no field" in of("by function", graph).why
    for name in ("scan", "map"):
        assert of(name, graph)[3:] == ("objects", 0, "Python", "functions of Python take objects")
    assert of("absolute", graph).why == "map gives objects"
    assert of("letters", graph).why == "words gives objects" and of("words", graph).why == "it has no schema"
    assert forms_of(graph.build(), ())["trips"].why == "its input is no table"


def test_a_source_that_diverts_gives_rows() -> None:
    graph = drift.Graph("diverting")
    policy = drift.EventTime("at", late="divert")
    trips = graph.source("trips", schema={"n": int, "at": int}, time=policy, on_error="divert", late="late")
    trips.window(drift.windows.tumbling(9)).rows(name="hours", n=drift.agg.sum("n")).sink("out")
    forms = forms_of(graph.build())
    assert {name: forms[name].gives for name in ("trips", "trips.good", "hours")} == dict.fromkeys(
        ("trips", "trips.good", "hours"), "rows"
    )


def levels_of(graph: drift.Graph) -> dict[str, tuple[str, int]]:
    """By step its kind and level, of the steps with names of letters."""
    return {name: form[1::3][:2] for name, form in forms_of(graph.build()).items() if name.isalpha()}  # type: ignore[misc]


@pytest.mark.skipif(kernel is None, reason="the kernel is not built here")
def test_levels_count_the_steps_that_wait() -> None:
    graph = drift.Graph("levels")
    hours = source(graph).key_by("zone").window(drift.windows.tumbling(9)).rows(name="hours", n=drift.agg.sum("n"))
    days = hours.key_by("n").window(drift.windows.tumbling(99)).rows(name="days", n=drift.agg.sum("n"))
    days.key_by("n").running(name="total", total=drift.agg.sum("n")).sink("out")
    hours.key_by("key").running(name="same", total=drift.agg.sum("n")).sink("beside")
    assert levels_of(graph) == {
        "trips": ("source", 0), "hours": ("settled", 1), "days": ("settled", 2), "total": ("settled", 3),
        "out": ("sink", 3), "same": ("settled", 1), "beside": ("sink", 1),
    }  # fmt: skip
    forms = forms_of(graph.build())
    assert forms["total"].gives == "rows" and forms["hours"].runs == "kernel"


def test_what_is_in_a_cycle_is_optimistic_and_of_one_level() -> None:
    graph = drift.Graph("cycle")
    back = graph.feedback("back")
    hours = source(graph).key_by("zone").window(drift.windows.tumbling(9)).rows(name="hours", n=drift.agg.sum("n"))
    counted = hours.map(lambda row: row["n"], name="n").merge(back).scan(abs, 0, divided, name="s")
    kept = counted.filter(lambda n: n > 9, name="great").process(abs, 0, kept_until, divided, name="timers")
    kept.map(lambda n: n // 2, name="half").feed(back)
    counted.count(abs, name="behind").sink("out")
    assert levels_of(graph) == {
        "trips": ("source", 0), "hours": ("settled", 1), "n": ("map", 1), "s": ("optimistic", 2), "great": ("map", 2),
        "timers": ("optimistic", 2), "half": ("map", 2), "behind": ("optimistic", 2), "out": ("sink", 2),
    }  # fmt: skip
    assert "cycle" in of("s", graph).why


def test_steps_of_a_graph_whose_maps_put_items_later_are_of_one_level() -> None:
    graph = drift.Graph("later")
    later = source(graph).map(lambda trip: drift.at(99, trip), name="later", later=True)
    hours = later.key_by(lambda trip: trip["zone"]).window(drift.windows.tumbling(9)).count(name="hours")
    hours.key_by(lambda window: window.value).window(drift.windows.tumbling(99)).count(name="days").sink("out")
    assert levels_of(graph) == {
        "trips": ("source", 0), "later": ("map", 0), "hours": ("settled", 1), "days": ("settled", 1),
        "out": ("sink", 1),
    }  # fmt: skip


def test_show_prints_the_plan_in_the_order_of_the_flow(tmp_path: Path) -> None:
    file = tmp_path / "hours.py"
    file.write_text(
        "import drift\ngraph = drift.Graph('hours')\n"
        "trips = graph.source('trips', schema={'zone': str, 'at': int}, time=drift.EventTime('at'))\n"
        "visits = trips.key_by('zone').window(drift.windows.session(9))\n"
        "visits.rows(name='visits', n=drift.agg.count()).sink('out')\n"
    )
    shown = CliRunner().invoke(command, ["show", f"{file}:graph", "--plan"])
    runs = "arrays" if kernel is None else "kernel"
    assert [line.split() for line in shown.output.splitlines()] == [
        ["step", "kind", "level", "gives", "by", "since"],
        ["trips", "source", "0", "rows"],
        ["visits", "settled", "1", "rows", runs],
        ["visits.rows", "map", "1", "rows", "arrays"],
        ["out", "sink", "1", "rows"],
    ]
    both = CliRunner().invoke(command, ["show", f"{file}:graph", "--plan", "--json"])
    assert both.exit_code and "four outputs" in both.output
