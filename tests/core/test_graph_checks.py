"""A wrong graph is refused with the step and the user's line; a right one is a value."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import cloudpickle
import pytest
from frozen.cases import written
from frozen.catalogue import ENTRIES
from hypothesis import given
from strategies import Recipe, build, few_keys, is_selected, recipes, same_payload

import drift
from drift_graph.graph import Dataflow, Draft
from drift_graph.item import Item
from drift_graph.operators import Edge, Group, Map, Operator, Sink, Source


def lines_of(message: str) -> list[int]:
    """The lines of this file that a message names."""
    return [int(number) for number in re.findall(re.escape(__file__) + r":(\d+)", message)]


def line_with(mark: str) -> int:
    """The line of this file that ends in a comment of this mark."""
    with open(__file__, encoding="utf-8") as file:  # noqa: PTH123
        (number,) = [at for at, line in enumerate(file, 1) if line.rstrip().endswith(f"# {mark}")]
    return number


def refused(*words: str, marks: tuple[str, ...] = ()) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """The test that the graph which a function makes is refused with these words and the lines with these marks."""

    def test_of(make: Callable[..., Any]) -> Callable[..., None]:
        def test(**given: Any) -> None:
            graph = drift.Graph("checked")
            with pytest.raises(drift.GraphError) as raised:
                make(graph, **given)
                graph.build()
            message = str(raised.value)
            for word in words:
                assert word.format(**given) in message, message
            assert lines_of(message) == [line_with(mark) for mark in marks], message

        parameters = [each for each in inspect.signature(make).parameters.values() if each.name != "graph"]
        test.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return test

    return test_of


@refused("'checked'", "no source")
def test_a_graph_without_a_source_is_refused(graph: drift.Graph) -> None: ...


@refused("'checked'", "no sink")
def test_a_graph_without_a_sink_is_refused(graph: drift.Graph) -> None:
    graph.source("in").map(same_payload)


@refused("'lost'", "leads to no sink", marks=("leads nowhere",))
def test_a_step_that_leads_to_no_sink_is_refused(graph: drift.Graph) -> None:
    stream = graph.source("in")
    stream.sink("out")
    stream.map(same_payload, name="lost")  # leads nowhere


@refused("'unused'", "leads to no sink", marks=("unused source",))
def test_a_source_that_leads_to_no_sink_is_refused(graph: drift.Graph) -> None:
    graph.source("in").sink("out")
    graph.source("unused")  # unused source


@refused("'turning'", "unreachable", marks=("unreachable",))
def test_a_step_that_no_source_reaches_is_refused(graph: drift.Graph) -> None:
    loop: drift.Feedback[Any] = graph.feedback("loop")
    turning = loop.group(few_keys, 1, name="turning")  # unreachable
    turning.map(same_payload).feed(loop)
    turning.sink("never")
    graph.source("in").sink("out")


@refused("two steps named 'twice'", marks=("first of the name", "second of the name"))
def test_two_steps_of_one_name_are_refused_with_both_lines(graph: drift.Graph) -> None:
    stream = graph.source("in")
    stream.map(same_payload, name="twice")  # first of the name
    stream.filter(bool, name="twice")  # second of the name


@refused("two steps named 'taken'", marks=("the source of the name", "the sink of the name"))
def test_a_sink_with_the_name_of_a_step_is_refused(graph: drift.Graph) -> None:
    stream = graph.source("taken")  # the source of the name
    stream.sink("taken")  # the sink of the name


def test_a_step_may_have_the_name_of_a_sink() -> None:
    graph = drift.Graph("names")
    numbers = graph.source("in")
    numbers.map(same_payload, name="first").count(few_keys, name="totals").sink("totals")
    numbers.sink("first")
    numbers.map(same_payload, name="behind").sink("totals.output")
    assert [(each.name, each.step) for each in graph.build().operators] == [
        ("in", "in"),
        ("first (step)", "first (step)"),
        ("totals (step)", "totals (step)"),
        ("totals (step).state", "totals (step)"),
        ("totals (step).output", "totals (step)"),
        ("totals", "totals"),
        ("first", "first"),
        ("behind", "behind"),
        ("totals.output", "totals.output"),
    ]
    for engine in ("reference", "local"):
        found = drift.run(graph, {"in": [3]}, engine=engine)
        assert sorted((item.sink, item.payload) for item in found) == [
            ("first", 3),
            ("totals", (few_keys(3), 1)),
            ("totals.output", 3),
        ]
    assert graph == graph and "totals (step)" in str(graph)


def made_in_loops(way: str) -> drift.Graph:
    """A graph with functions that are written in a loop and read its variable, which changes behind them."""
    graph = drift.Graph("loops")
    stream = graph.source("in")
    factor = 0
    if way == "for":
        for number, factor in enumerate((2, 3)):
            stream.map(lambda value: value * factor).sink(f"out {number}")  # noqa: B023  # in a loop: for
    elif way == "list":
        made = [stream.map(lambda value: value * factor) for factor in (2, 3)]  # noqa: B023  # in a loop: list
        made[0].merge(made[1]).sink("out")
    elif way == "while":
        while factor < 2:
            total = drift.agg.sum(partial(lambda more, value: value * factor + more, 1))  # noqa: B023  # in a loop: while
            stream.at_end(total).sink(f"out {factor}")
            factor += 1
    elif way == "time":
        for factor in (2, 3):
            if factor == 2:
                stream = graph.source("timed", time=drift.EventTime(lambda value: value * factor))  # noqa: B023  # in a loop: time
                stream.merge(graph.source("other")).sink("out")
        graph.table("in more").sink("more")
    return graph


@pytest.mark.parametrize(("way", "then", "now"), [("for", 2, 3), ("list", 2, 3), ("while", 0, 2), ("time", 2, 3)])
def test_a_function_of_a_loop_whose_variable_has_changed_is_found_with_its_line(way: str, then: int, now: int) -> None:
    with pytest.raises(drift.GraphError, match=f"was {then} there, and is {now} now.*factor=factor: ") as found:
        drift.run(made_in_loops(way), {})
    (line,) = lines_of(str(found.value))
    assert line == line_with(f"in a loop: {way}")


def test_what_functions_of_a_loop_may_read() -> None:
    calls, graphs, offset = 0, [], 1

    def counted(value: int) -> int:
        nonlocal calls
        calls += 1
        return value + offset

    early = drift.Graph("fine")
    early.source("in").map(lambda value: later(value)).sink("out")

    def later(value: int) -> int:
        return value

    assert [item.payload for item in drift.run(early, {"in": [1]})] == [1]
    for factor in (2, 3):
        graph = drift.Graph("fine")
        stream = graph.source("in").map(counted).map(lambda value: later(value) * factor)  # noqa: B023
        stream.map(lambda value, factor=factor: value * factor).sink("out")
        assert [item.payload for item in drift.run(graph, {"in": [1]})] == [(1 + offset) * factor**2]
        graphs.append(graph)
    graphs[1].build()
    with pytest.raises(drift.GraphError, match=r"'factor', a variable of the loop .* was 2 there, and is 3"):
        graphs[0].build()


def test_unnamed_steps_of_one_function_get_numbers() -> None:
    graph = drift.Graph("numbered")
    graph.source("in").map(same_payload).map(same_payload).map(same_payload).sink("out")
    names = [operator.name for operator in graph.build().operators]
    assert names == ["in", "map same_payload", "map same_payload-2", "map same_payload-3", "out"]


@pytest.mark.parametrize("window", [0, -1, 1.0, True, None, "2"])
@refused("'bad window'", "window {window!r}", marks=("window",))
def test_a_window_is_a_number_of_items(graph: drift.Graph, window: Any) -> None:
    graph.source("in").group(few_keys, window, name="bad window").sink("out")  # window


@refused("'turned' -> 'kept' -> 'turned'", "without a grouping", marks=("turned",))
def test_a_cycle_without_a_grouping_is_refused(graph: drift.Graph) -> None:
    loop: drift.Feedback[Any] = graph.feedback("loop")
    turned = graph.source("in").merge(loop).map(same_payload, name="turned")  # turned
    turned.filter(bool, name="kept").feed(loop)
    turned.sink("out")


def test_a_cycle_without_a_feedback_edge_is_refused() -> None:
    """Streams cannot make one; a draft can."""
    draft = Draft("checked")
    draft.add(Source("in", "in", "file:1", drift.ArrivalTime()))
    draft.add(Group("first", "first", "file:2", few_keys, 1), ["in"])
    draft.add(Map("second", "second", "file:3", same_payload), ["first"])
    draft.add(Sink("out", "out", "file:4"), ["second"])
    draft.connect("second", "first")
    with pytest.raises(drift.GraphError, match="'first' -> 'second' -> 'first' form a cycle without a feedback edge"):
        draft.build()


def test_an_edge_to_a_step_that_is_not_there_is_refused() -> None:
    for origin, target in [("in", "nowhere"), ("nowhere", "out")]:
        draft = Draft("checked")
        draft.add(Source("in", "in", "file:1", drift.ArrivalTime()))
        draft.add(Sink("out", "out", "file:2"), ["in"])
        draft.connect(origin, target)
        with pytest.raises(drift.GraphError, match=r"\(at file:[12]\) is connected to 'nowhere'"):
            draft.build()


def test_a_source_takes_no_input_and_a_sink_gives_none() -> None:
    for origin, target, words in [("out", "in", "'in'.*takes none"), ("out", "more", "'out'.*a sink has none")]:
        draft = Draft("checked")
        draft.add(Source("in", "in", "file:1", drift.ArrivalTime()))
        draft.add(Sink("out", "out", "file:2"), ["in"])
        draft.add(Sink("more", "more", "file:3"), ["in"])
        draft.connect(origin, target)
        with pytest.raises(drift.GraphError, match=words):
            draft.build()


@refused("'open'", "never closed", marks=("never closed",))
def test_a_feedback_edge_that_is_never_closed_is_refused(graph: drift.Graph) -> None:
    loop: drift.Feedback[Any] = graph.feedback("open")  # never closed
    graph.source("in").merge(loop).group(few_keys, 1).sink("out")


@refused("'twice'", "closed twice", marks=("closed twice",))
def test_a_feedback_edge_that_is_closed_twice_is_refused(graph: drift.Graph) -> None:
    loop: drift.Feedback[Any] = graph.feedback("twice")  # closed twice
    stream = graph.source("in").merge(loop).group(few_keys, 1)
    stream.feed(loop)
    stream.feed(loop)


@refused("two feedback edges named 'again'", marks=("first feedback", "second feedback"))
def test_two_feedback_edges_of_one_name_are_refused(graph: drift.Graph) -> None:
    graph.feedback("again")  # first feedback
    graph.feedback("again")  # second feedback


@refused("not <Stream", marks=("no loop",))
def test_only_a_feedback_can_be_closed(graph: drift.Graph) -> None:
    graph.source("in").feed(graph.source("other"))  # type: ignore[arg-type]  # no loop


@refused("'checked' meets", marks=("of another",))
def test_only_a_feedback_of_this_graph_can_be_closed(graph: drift.Graph) -> None:
    graph.source("in").feed(drift.Graph("another").feedback("loop"))  # of another


@refused("'checked' meets", "another", marks=("merge of two",))
def test_streams_of_two_graphs_do_not_merge(graph: drift.Graph) -> None:
    graph.source("in").merge(drift.Graph("another").source("in"))  # merge of two


@refused("'doubled'", "'in' twice", marks=("twice the same",))
def test_a_stream_does_not_come_twice_to_one_step(graph: drift.Graph) -> None:
    stream = graph.source("in")
    stream.merge(stream).map(same_payload, name="doubled").sink("out")  # twice the same


@pytest.mark.parametrize("step", ["map", "filter", "flat_map"])
@refused("{step} takes a function, not 5", marks=("no function",))
def test_a_step_takes_a_function(graph: drift.Graph, step: str) -> None:
    getattr(graph.source("in"), step)(5)  # no function


@pytest.mark.parametrize(("step", "more"), [("scan", (0, max)), ("count", ()), ("reduce", (max,)), ("group", (2,))])
@refused("takes a function", "not 5", marks=("no key",))
def test_a_step_that_goes_by_keys_takes_a_function_for_them(
    graph: drift.Graph, step: str, more: tuple[Any, ...]
) -> None:
    getattr(graph.source("in"), step)(5, *more)  # no key


@pytest.mark.parametrize("name", ["", 5, None])
def test_a_graph_has_a_name(name: Any) -> None:
    with pytest.raises(drift.GraphError, match="a graph's name is a text"):
        drift.Graph(name)


def test_two_scans_that_lead_round_to_each_other_are_refused_and_a_map_between_helps() -> None:
    def count(state: int, payload: Any) -> tuple[int, Any]:
        return state + 1, payload[-1] if isinstance(payload, tuple) else payload

    def lower(payload: Any) -> list[Any]:
        return [payload - 1] if payload > 0 else []

    def make(graph: drift.Graph, between: bool) -> None:
        loop: drift.Feedback[Any] = graph.feedback("loop")
        windows = graph.source("in").merge(loop).group(few_keys, 1, name="windows")
        start = windows.map(same_payload, name="between") if between else windows
        first = start.scan(few_keys, 0, count, name="first")  # first scan
        second = windows.scan(few_keys, 0, count, name="second")  # second scan
        first.merge(second).flat_map(lower).feed(loop)
        first.sink("out")

    graph = drift.Graph("checked")
    make(graph, between=False)
    with pytest.raises(drift.GraphError, match="put a map between") as raised:
        graph.build()
    assert sorted(lines_of(str(raised.value))) == [line_with("first scan"), line_with("second scan")]
    graph = drift.Graph("checked")
    make(graph, between=True)
    outputs = [
        [(item.meta, item.payload) for item in drift.run(graph, {"in": [3, 2, 1, 2]}, **settings)]
        for settings in ({"engine": "reference"}, {"engine": "local"}, {"engine": "local", "fused": False})
    ]
    assert outputs[0] == outputs[1] == outputs[2]


# What a graph is once it is right.


@given(recipes())
def test_a_graph_that_is_built_twice_is_one_value(recipe: Recipe) -> None:
    first, second = build(recipe), build(recipe)
    assert first == second and hash(first) == hash(second)
    assert first.ranks == second.ranks


@given(recipes(steps_max=3))
def test_a_graph_goes_through_pickle_and_cloudpickle(recipe: Recipe) -> None:
    dataflow = build(recipe)
    assert dataflow.ranks
    for copy in (pickle.loads(pickle.dumps(dataflow)), cloudpickle.loads(cloudpickle.dumps(dataflow))):
        assert copy == dataflow and copy.ranks == dataflow.ranks
        assert [operator.where for operator in copy.operators] == [operator.where for operator in dataflow.operators]


def test_each_operator_that_is_written_twice_or_sent_to_a_process_is_one_value_and_no_other() -> None:
    def all_of_them() -> dict[Dataflow, str]:
        return {written(name, entry, "rows", "by arrival", 3, 2)[0]: name for name, entry in ENTRIES.items()}

    first = all_of_them()
    assert first == all_of_them() and len(first) == len(ENTRIES)
    assert all(cloudpickle.loads(cloudpickle.dumps(each)) == each for each in first)


def with_local_functions(number: int) -> drift.Graph:
    graph = drift.Graph("local functions")
    graph.source("in").map(lambda payload: (payload, number)).filter(partial(is_selected, 2)).count(
        key=lambda it: it
    ).sink("out")
    return graph


def test_graphs_over_lambdas_are_equal_where_the_lambdas_close_over_equal_values() -> None:
    assert with_local_functions(1) == with_local_functions(1)
    assert with_local_functions(1) != with_local_functions(2)
    assert hash(with_local_functions(1)) == hash(with_local_functions(1))


def test_a_graph_over_lambdas_goes_through_cloudpickle() -> None:
    dataflow = with_local_functions(3).build()
    copy = cloudpickle.loads(cloudpickle.dumps(dataflow))
    assert copy == dataflow
    assert [(item.meta, item.payload) for item in drift.run(copy, {"in": range(5)})] == [
        (item.meta, item.payload) for item in drift.run(dataflow, {"in": range(5)})
    ]


def test_what_a_graph_is_made_of_distinguishes_graphs() -> None:
    def made(name: str = "a", key: Any = few_keys, window: int = 2, sink: str = "out", time: Any = None) -> Any:
        graph = drift.Graph(name)
        graph.source("in", time=time).group(key, window).sink(sink)
        return graph.build()

    others = [
        made(name="b"),
        made(key=same_payload),
        made(window=3),
        made(sink="other"),
        made(time=drift.EventTime(few_keys)),
        made(time=drift.EventTime(few_keys, lateness=1)),
    ]
    assert made() == made()
    for at, other in enumerate(others):
        assert other != made()
        assert all(other != another for another in others[at + 1 :])


def test_a_dataflow_and_an_item_never_change() -> None:
    dataflow = build(Recipe(1, [("group", 0, "one", 2)], []))
    for thing, field in [
        (dataflow, "name"),
        (dataflow.operators[0], "name"),
        (dataflow.operators[1], "window"),
        (dataflow.edges[0], "feedback"),
    ]:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(thing, field, "changed")
    with pytest.raises(AttributeError):
        Item("payload", 0, "out", b"m" * 11).position = 1  # type: ignore[misc]
    assert isinstance(dataflow.operators, tuple) and isinstance(dataflow.edges, tuple)


def test_there_are_no_operators_but_the_cores() -> None:
    """Every stateful operator is a graph of maps, groupings and feedback edges."""
    graph = drift.Graph("sugar")
    stream = graph.source("in").map(same_payload).filter(bool).flat_map(lambda it: [it])
    stream.scan(few_keys, 0, lambda state, it: (state, it)).sink("scan")
    stream.count(key=few_keys).sink("count")
    stream.reduce(key=few_keys, function=max).sink("reduce")
    stream.group(few_keys, 2).sink("group")
    dataflow = graph.build()
    assert {type(operator) for operator in dataflow.operators} <= {Source, Map, Group, Sink}
    assert {kind for kind in Operator.__subclasses__() if kind.__module__.startswith("drift")} == {
        Source, Map, Group, Sink
    }  # fmt: skip
    states = [name for name in dataflow.ranks if name.endswith(".state")]
    assert len(states) == 3
    assert [edge for edge in dataflow.edges if edge.feedback] == [
        Edge(name, name.removesuffix(".state"), feedback=True) for name in states
    ]
