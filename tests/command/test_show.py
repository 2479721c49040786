"""Graphs for people: the text says all, Mermaid cannot be broken by names, the picture has no overlaps."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import drift
from drift.show import as_mermaid, as_svg, as_text, write_picture
from drift.show.steps import flow_order, steps_of

SVG = "{http://www.w3.org/2000/svg}"
NASTY = 'a "quoted" <b>&amp; #35; `x` ]) --> end;\nnext 日本'


def first(payload: Any) -> Any:
    return payload[0]


def step(state: int, payload: Any) -> tuple[int, Any]:
    return state + 1, payload


def word_count() -> drift.Dataflow:
    graph = drift.Graph("word count")
    words = graph.source("lines").flat_map(str.split, name="split")
    words.count(str.lower, name="count words").sink("counts")
    return graph.build()


def diamond() -> drift.Dataflow:
    graph = drift.Graph("diamond")
    numbers = graph.source("numbers")
    left, right = numbers.map(abs, name="left"), numbers.map(abs, name="right")
    left.merge(right).group(first, 2, name="pairs").sink("out")
    return graph.build()


def test_windows_and_aggregates_are_shown_as_they_were_written() -> None:
    graph = drift.Graph("trips")
    keyed = graph.source("trips", time=drift.EventTime("at", lateness=0)).key_by("zone")
    aggregates = {"mean": drift.agg.mean("fare"), "n": drift.agg.count()}
    keyed.window(drift.windows.tumbling(60)).rows(**aggregates).sink("windows")
    keyed.window(drift.windows.session(gap=9)).sum(abs).sink("sessions")
    keyed.rolling(10, **aggregates).sink("rolled")
    text = as_text(graph.build())
    for name, words in (
        ("window by field zone", "tumbling(mean=mean(fare), n=count(), size=60)"),
        ("window by field zone-2", "session(sum(abs), gap=9)"),
        ("rolling by field zone", "rolling(mean=mean(fare), n=count(), span=10"),
    ):
        assert words in row(text, name) and words[:14] in as_svg(graph.build())


def test_expressions_are_shown_as_they_were_written() -> None:
    pl = pytest.importorskip("polars")
    graph = drift.Graph("dear")
    fares = graph.source("fares", schema={"fare": float}).filter(pl.col("fare") > 20)
    fares.with_columns(tip=pl.col("fare") * 0.15).sink("out")
    lines = as_text(graph.build()).splitlines()
    assert any(line.startswith("filter ") and 'col("fare")) > ' in line for line in lines)
    assert any(line.startswith("with_columns ") and 'alias("tip")' in line for line in lines)


def loop_in_a_loop() -> drift.Dataflow:
    graph = drift.Graph("a loop in a loop")
    outer, inner = graph.feedback("outer"), graph.feedback("inner")
    unpacked = graph.source("start").merge(outer).group(first, 2, name="outer group").flat_map(list, name="unpack")
    grouped = unpacked.merge(inner).group(first, 3, name="inner group")
    grouped.flat_map(list, name="shrink").feed(inner)
    through = grouped.flat_map(list, name="through")
    through.flat_map(list, name="return").feed(outer)
    through.sink("out")
    return graph.build()


def two_sources_three_sinks() -> drift.Dataflow:
    graph = drift.Graph("two sources, three sinks")
    orders = graph.source("orders")
    refunds = graph.source("refunds", time=drift.EventTime(first, lateness=5000, late="divert"))
    both = orders.filter(bool, name="only the big orders of known customers with a long name").merge(refunds)
    counts = both.count(first, name="count by customer")
    counts.sink("counts")
    both.reduce(first, max, name="largest").sink("the largest")
    counts.map(first, name="to trend").scan(first, 0, step, name=NASTY).sink("trend")
    return graph.build()


def chain() -> drift.Dataflow:
    graph = drift.Graph("thirty")
    stream = graph.source("in")
    for number in range(30):
        stream = stream.count(first) if number % 7 == 0 else stream.map(abs)
    stream.sink("out")
    return graph.build()


def own_loop() -> drift.Dataflow:
    graph = drift.Graph("own loop")
    loop = graph.feedback("loop")
    grouped = graph.source("in").merge(loop).group(first, 2, name="group")
    grouped.feed(loop)
    grouped.sink("out")
    return graph.build()


GRAPHS = [word_count, diamond, loop_in_a_loop, two_sources_three_sinks, chain, own_loop]


def row(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.strip().startswith(name + " "))


def test_the_text_names_every_step_its_rank_and_the_line_that_declared_it() -> None:
    dataflow = word_count()
    text = as_text(dataflow)
    assert text.startswith("graph 'word count': 1 source, 2 steps, 1 sink, 1 feedback edge\n")
    assert re.search(r"map many str\.split +4 +\S*test_show\.py:\d+ +lines$", row(text, "split"))
    assert re.search(r"sink +1 +\S*test_show\.py:\d+ +count words\.output$", row(text, "counts"))


def test_the_text_shows_sugar_with_the_operators_it_lowers_to_and_marks_what_comes_back() -> None:
    text = as_text(word_count())
    assert "count()" in row(text, "count words")
    assert re.search(r"group window 2 by str\.lower +3 +split, back from state$", row(text, "group"))
    assert re.search(r"map many str\.lower +0 +group$", row(text, "state"))


def test_the_fields_of_rows_are_listed_where_they_are_known() -> None:
    graph = drift.Graph("fares")
    trips = graph.source("trips", schema={"km": float, "key": str}).filter("km > 2", name="far")
    trips.select("key", dear="km > 9").sink("out")
    trips.map(dict).sink("dicts")
    _, _, listed = str(graph).partition("\n\nrows of")
    assert [line.split(maxsplit=1) for line in listed.splitlines()[1:]] == [
        ["trips", "km: Float64, key: String"],
        ["far", "km: Float64, key: String"],
        ["select", "key: String, dear: Boolean"],
    ]
    assert graph._repr_mimebundle_()["text/plain"].endswith(listed) and "rows of" not in as_text(word_count())


def test_a_notebook_shows_one_picture_of_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = drift.Graph("g")
    graph.source("in").map(str, name="text").sink("out")
    shown = graph._repr_mimebundle_()
    assert set(shown) == {"image/svg+xml", "text/plain"} and "text" in shown["image/svg+xml"]

    def missing(*_: object) -> str:
        raise drift.SettingsError("the extra that draws is not installed")

    monkeypatch.setattr("drift.show.as_svg", missing)
    shown = graph._repr_mimebundle_()
    assert set(shown) == {"text/vnd.mermaid", "text/plain"} and "text" in shown["text/vnd.mermaid"]


def test_printing_a_graph_gives_its_text() -> None:
    graph = drift.Graph("g")
    graph.source("in").sink("out")
    assert str(graph) == as_text(graph.build())


@pytest.mark.parametrize("make", GRAPHS)
def test_the_order_of_the_flow_holds_every_operator_once_and_follows_the_edges(make: Any) -> None:
    dataflow = make()
    order = flow_order(dataflow)
    assert sorted(order) == sorted(operator.name for operator in dataflow.operators)
    assert all(order.index(edge.origin) < order.index(edge.target) for edge in dataflow.edges if not edge.feedback)
    assert sum(len(step.operators) for step in steps_of(dataflow)) == len(order)


@pytest.mark.parametrize("make", GRAPHS)
def test_mermaid_has_a_node_for_each_operator_an_arrow_for_each_edge_and_dots_for_feedback(make: Any) -> None:
    dataflow = make()
    lines = [line.strip() for line in as_mermaid(dataflow).splitlines()]
    assert lines[0] == "flowchart TD"
    assert sum(bool(re.fullmatch(r'n\d+(\(\[|\[\[|\[/|\[)"[^"\n]*"(\]\)|\]\]|/\]|\])', line)) for line in lines) == len(
        dataflow.operators
    )
    assert sum(" --> " in line for line in lines) == sum(not edge.feedback for edge in dataflow.edges)
    assert sum(" -. feedback .-> " in line for line in lines) == sum(edge.feedback for edge in dataflow.edges)
    sugar = [step for step in steps_of(dataflow) if step.is_sugar]
    assert sum(line.startswith("subgraph ") for line in lines) == lines.count("end") == len(sugar)


def test_no_name_gets_out_of_its_label_in_mermaid() -> None:
    for line in as_mermaid(two_sources_three_sinks()).splitlines():
        assert re.fullmatch(r"[\w \[\]()/.>-]*(\"[^\"<>`]*(<br>[^\"<>`]*)*\"[\])/]*)?", line), line


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("make", GRAPHS)
def test_the_picture_is_well_formed_and_holds_every_step_and_line(make: Any, live: bool) -> None:
    pytest.importorskip("pygraphviz")
    dataflow = make()
    root = ElementTree.fromstring(as_svg(dataflow, live=live))
    texts = [element.text or "" for element in root.iter(f"{SVG}text")]
    tooltips = [element.text or "" for element in root.iter(f"{SVG}title")]
    steps = steps_of(dataflow)
    assert all(any(tip.startswith(f"{step.name}\n") for tip in tooltips) for step in steps)
    assert sum(bool(re.fullmatch(r"test_show\.py:\d+", text)) for text in texts) == len(steps)
    step_of = {each.name: step.name for step in steps for each in step.operators}
    between = {
        (step_of[edge.origin], step_of[edge.target], edge.feedback)
        for edge in dataflow.edges
        if step_of[edge.origin] != step_of[edge.target]
    }
    lines = [group.findall(f"{SVG}path") for group in root.iter(f"{SVG}g") if group.get("class") == "edge"]
    paths = [path for (path,) in lines]
    assert len(paths) == len(between)
    assert sum("stroke-dasharray" in path.attrib for path in paths) == sum(feedback for *_, feedback in between)


def test_the_picture_of_a_run_names_the_ends_of_each_edge_and_has_two_lines_for_its_numbers() -> None:
    pytest.importorskip("pygraphviz")
    graph = drift.Graph("control \x01")
    graph.source("in").map(abs, name=NASTY + "\x01").sink("out")
    dataflow = graph.build()
    root = ElementTree.fromstring(as_svg(dataflow, live=True))
    parts = list(root.iter())
    paths = [at for at, each in enumerate(parts) if "data-origin" in each.attrib]
    ends = [(unquote(parts[at].attrib["data-origin"]), unquote(parts[at].attrib["data-target"])) for at in paths]
    assert ends == [(edge.origin, edge.target) for edge in dataflow.edges]
    assert [parts[at + n].tag for at in paths for n in (2, 3)] == [f"{SVG}text"] * 2 * len(paths)


def test_no_text_is_wider_than_its_box() -> None:
    pytest.importorskip("pygraphviz")
    root = ElementTree.fromstring(as_svg(two_sources_three_sinks(), live=True))
    boxes = [group for group in root.iter(f"{SVG}g") if group.get("class") == "node"]
    for bar, text in ((box[2], text) for box in boxes for text in box.findall(f"{SVG}text")):
        assert len(text.text or "") * float(text.attrib["font-size"]) * 0.61 < float(bar.attrib["data-width"]) + 20


def test_the_picture_of_a_graph_is_the_same_every_time() -> None:
    pytest.importorskip("pygraphviz")
    assert as_svg(two_sources_three_sinks()) == as_svg(two_sources_three_sinks())


def test_a_picture_of_steps_has_a_box_for_each_and_the_lines_between_them() -> None:
    dataflow = two_sources_three_sinks()
    steps = steps_of(dataflow)
    step_of = {each.name: step.name for step in steps for each in step.operators}
    root = ElementTree.fromstring(as_svg(dataflow, live=True))
    boxes = {
        group.attrib["id"]: group.findtext(f"{SVG}title")
        for group in root.iter(f"{SVG}g")
        if group.get("class") == "node"
    }
    assert len(boxes) == len(steps) < len(step_of)
    assert all((boxes[f"box{at}"] or "").startswith(f"{step.name}\n") for at, step in enumerate(steps))
    paths = [each for each in root.iter(f"{SVG}path") if "data-origin" in each.attrib]
    ends = [[unquote(path.attrib[f"data-{end}"]) for end in ("origin", "target")] for path in paths]
    lines = {(origin, step_of[target]) for origin, target in ends}
    edges = {(each.origin, step_of[each.target]) for each in dataflow.edges}
    assert lines == {(origin, target) for origin, target in edges if step_of[origin] != target}
    assert len(lines) == len(ends)


def test_a_picture_is_written_as_svg_or_png(tmp_path: Path) -> None:
    pytest.importorskip("pygraphviz")
    pytest.importorskip("resvg_py")
    write_picture(word_count(), tmp_path / "graph.svg")
    write_picture(word_count(), tmp_path / "graph.PNG")
    assert (tmp_path / "graph.svg").read_text().startswith("<svg ")
    assert (tmp_path / "graph.PNG").read_bytes().startswith(b"\x89PNG\r\n")


def test_a_picture_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(drift.SettingsError, match=r"\.svg or \.png"):
        write_picture(word_count(), tmp_path / "graph.jpeg")


@pytest.mark.parametrize("missing, name", [("pygraphviz", "graph.svg"), ("resvg_py", "graph.png")])
def test_without_the_extra_the_error_says_what_to_install(
    missing: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing == "resvg_py":
        pytest.importorskip("pygraphviz")
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(drift.SettingsError, match=r"pip install 'drifting-state\[picture\]'"):
        write_picture(word_count(), tmp_path / name)
    assert as_text(word_count()) and as_mermaid(word_count())
