"""Lineage: every item of it follows from those it was made of, it is of the output item, and nothing else is kept."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest
from generated import Recipe
from hypothesis import example, given, settings
from hypothesis import strategies as st
from inputs import Given
from strategies import Case, Input, cases

import drift
import drift.auditing.lineage as lineage_module
from drift.auditing import Lineage, Made, lineage_of
from drift.auditing.layers import Layers
from drift.auditing.route import Relevant
from drift.auditing.show import as_mermaid, as_text, as_tree
from drift.auditing.trace import Node, Tracer
from drift.operators import LoopFunction, State, Timer
from drift_graph.canonical import canonical
from drift_graph.errors import InputError
from drift_graph.item import Failure
from drift_graph.later import Later
from drift_graph.meta import END_OF_TIME, global_time, global_time_of
from drift_graph.operators import Group, Map, Sink, Source
from drift_graph.policies import ArrivalTime

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples"))

#: More than there can be in a drawn case.
ALL = 10**6


def given_by(case: Case, dataflow: drift.Dataflow) -> Given:
    return Given(dataflow, {name: partial(list, items) for name, items in case.sources().items()}, batch_items=3)


def output_of(case: Case) -> tuple[list[drift.Item[Any]], drift.StepError | None]:
    items: list[drift.Item[Any]] = []
    try:
        items.extend(drift.run(case.dataflow(), case.sources(), engine="reference"))
    except drift.StepError as error:
        return items, error
    return items, None


def check(dataflow: drift.Dataflow, made: Made) -> None:
    """An item of a lineage follows from those it was made of, by one of the operators that its step consists of."""
    *others, last = [each for each in dataflow.operators if each.step == made.step and _makes(each, made)]
    for operator in others:
        with suppress(Exception):  # an operator that such payloads do not come to may say anything
            check_made_by(operator, made)
            return
    check_made_by(last, made)


def check_made_by(operator: Any, made: Made) -> None:
    payloads = [each.payload for each in made.made_of]
    if isinstance(operator, Source):
        assert made.kind == "input" and not payloads
    elif isinstance(operator, Sink):
        assert made.kind == "output" and same(payloads, [made.payload])
    elif isinstance(operator, Group):
        assert made.kind == "window" and same(tuple(payloads), made.payload)
        assert len({canonical(operator.key(payload)) for payload in payloads}) == 1
    else:
        last = made.made_of[-1]
        given: Any = payloads[-1]
        process = getattr(operator.function, "process", None)
        has_slices = hasattr(getattr(process, "on_item", None), "kept")
        if has_slices and made.kind == last.kind == "timer" and made.anew:
            # The next window that begins with a slice; which slices there are, the timer does not hang on.
            assert made.starts and same(last.key, made.key)
            return
        if isinstance(operator.function, LoopFunction):
            assert len(payloads) == 1 + (not made.starts)
            newest = Timer(last.key, last.payload) if last.kind == "timer" else last.payload
            given = (newest,) if made.starts else (State(None, payloads[0]), newest)
        else:
            assert len(payloads) == 1
        child = operator.children(given, last.time)[made.child or 0]
        child = child.payload if isinstance(child, Later) else child
        if made.kind == "state":
            assert made.before == 1 + (0 if made.starts else made.made_of[0].before)
        if made.kind in ("state", "timer"):
            assert same(child.key, made.key)
            child = child.value if made.kind == "state" else child.note
        payload = made.payload
        if has_slices and made.kind == "state" and made.anew:
            # Slices without the first window of each, which hangs on slices that the state no longer has.
            child, payload = ([(start, of) for start, _, of in slices] for slices in (child, payload))
        assert same(child, payload)


def _makes(operator: Any, made: Made) -> bool:
    if isinstance(operator, Group):
        return made.kind == "window"
    if isinstance(operator, Map) and isinstance(operator.function, LoopFunction):
        kind = made.kind if made.kind in ("state", "timer") else "output"
        return operator.function.gives == {"timer": "timers"}.get(kind, kind)
    return made.kind != "window"


def same(left: Any, right: Any) -> bool:
    return canonical(left) == canonical(right)


#: An item that a map has put at the end, and a grouping of another source that leads to its sink.
LATER_BESIDE_A_GROUPING = Case(
    Recipe(2, (("later", 0, 0), ("group", 2, "one", 1), ("merge", 0, 1)), [], []),
    [Input(ArrivalTime(), []), Input(ArrivalTime(), [0])],
)


@given(cases())
@example(LATER_BESIDE_A_GROUPING)
def test_every_item_of_a_lineage_follows_from_those_it_was_made_of(case: Case) -> None:
    dataflow = case.dataflow()
    items, _ = output_of(case)
    for item in items[:: max(len(items) // 5, 1)]:
        lineage = lineage_of(dataflow, given_by(case, dataflow), item.meta, position=item.position, loops_max=ALL)
        assert same(lineage.item.payload, item.payload)
        assert (lineage.item.step, lineage.item.meta, lineage.position) == (item.sink, item.meta, item.position)
        assert lineage.complete and lineage.items[-1] is lineage.item
        known: set[int] = set()
        for made in lineage.items:
            check(dataflow, made)
            assert {each.number for each in made.made_of} <= known
            known.add(made.number)
        assert len(known) == len(lineage.items)


@given(cases())
def test_inputs_that_are_passed_over_have_no_part_in_it(case: Case) -> None:
    dataflow = case.dataflow()
    items, _ = output_of(case)
    for item in items[:: max(len(items) // 5, 1)]:
        all_nodes = nodes_of(lineage_of(dataflow, given_by(case, dataflow), item.meta, loops_max=ALL))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lineage_module, "Relevant", Everything)
            patch.setattr(Layers, "fits", lambda self, names: False)
            assert nodes_of(lineage_of(dataflow, given_by(case, dataflow), item.meta, loops_max=ALL)) == all_nodes


class Everything(Relevant):
    """Passes over nothing."""

    def __init__(self, dataflow: drift.Dataflow, meta: bytes, payload: Any) -> None:
        super().__init__(dataflow, meta, payload)
        self.only = {each.name for each in dataflow.operators}
        self._wanted = None


def nodes_of(lineage: Lineage) -> Any:
    return [
        (
            (canonical(made.payload), made.kind, made.step, made.meta, made.before, made.first, made.cut),
            [each.number for each in made.made_of],
        )
        for made in lineage.items
    ]


@given(cases(failing=True))
def test_a_failure_has_a_lineage_too(case: Case) -> None:
    _, error = output_of(case)
    if error is None or isinstance(error, drift.PayloadError):
        return
    dataflow = case.dataflow()
    lineage = lineage_of(dataflow, given_by(case, dataflow), error.meta)
    assert isinstance(lineage.item.payload, Failure) and lineage.item.kind == "failure"
    assert lineage.item.step == error.step
    assert lineage.item.payload.message in str(error)
    assert "raised " in as_text(lineage)


WINDOWS = {
    "tumbling": drift.windows.tumbling(4),
    "sliding": drift.windows.sliding(10, 3),
    "sliding, one slice": drift.windows.sliding(10, 5),
    "apart": drift.windows.sliding(3, 5),
    "session": drift.windows.session(2),
}


@pytest.mark.parametrize("early", [None, drift.windows.every(items=2)], ids=["", "early"])
@pytest.mark.parametrize("kind", WINDOWS)
@settings(max_examples=8)
@given(st.sets(st.integers(0, 40), max_size=14))
def test_the_lineage_of_a_window_goes_back_to_its_items_alone(kind: str, early: Any, times: set[int]) -> None:
    graph = drift.Graph("windows")
    stream = graph.source("in", time=drift.EventTime(time=int, tie=int))
    stream.key_by(lambda time: time % 2).window(WINDOWS[kind], early=early).collect().sink("out")
    dataflow, items = graph.build(), sorted(times)
    for item in drift.run(graph, {"in": items}):
        lineage = lineage_of(dataflow, Given(dataflow, {"in": lambda: items}), item.meta, loops_max=ALL)
        assert tuple(sorted(made.payload for made in lineage.inputs())) == item.payload.value
        assert lineage.complete


def test_what_made_a_state_that_was_forgotten_is_not_in_a_lineage() -> None:
    graph = drift.Graph("windows")
    stream = graph.source("in", time=drift.EventTime(time=int, tie=int))
    stream.window(drift.windows.tumbling(10)).count().sink("out")
    dataflow, items = graph.build(), [1, 2, 11, 12]
    last = list(drift.run(graph, {"in": items}))[-1]
    text = as_text(lineage_of(dataflow, Given(dataflow, {"in": lambda: items}), last.meta))
    assert "first of its key since that was forgotten; 1 item in" in text and "input in at 2" not in text


def test_a_meta_of_another_graph_or_another_input_is_refused() -> None:
    dataflow = counting()
    (item,) = drift.run(dataflow, {"words": ["a"]})
    other = drift.Graph("other")
    other.source("words").sink("counts")
    with pytest.raises(InputError, match="names operators that the graph does not have"):
        lineage_of(other.build(), words(other.build(), ["a"]), item.meta)
    split = drift.Graph("split")
    split.source("words").flat_map(str.split).sink("out")
    _, second = drift.run(split, {"words": ["a b"]})
    with pytest.raises(InputError, match="does not make the item time 0"):
        lineage_of(split.build(), words(split.build(), ["a"]), second.meta)


def counting() -> drift.Dataflow:
    graph = drift.Graph("counting")
    graph.source("words").count(key=str.lower).sink("counts")
    return graph.build()


def words(dataflow: drift.Dataflow, items: Iterable[str]) -> Given:
    return Given(dataflow, {"words": lambda: items}, batch_items=1000)


def test_of_a_chain_of_states_the_last_are_shown_and_how_many_items_went_before() -> None:
    dataflow = counting()
    feed = ["a" if number % 3 else "b" for number in range(300)]
    item = list(drift.run(dataflow, {"words": feed}))[-1]
    for loops_max, states in ((1, 1), (3, 3), (50, 50)):
        lineage = lineage_of(dataflow, words(dataflow, feed), item.meta, loops_max=loops_max)
        found = [made for made in lineage.items if made.kind == "state"]
        assert [made.payload for made in found] == list(range(200 - states, 200))
        assert [made.cut for made in found] == [True] + [False] * (states - 1)
        assert found[0].before == 200 - states
        assert lineage.input_name(found[0].first) == "words at 1"
        assert not lineage.complete
    assert "made of 150 items, the first of input words at 1, not shown" in as_text(lineage)


GRAPHS: dict[str, Callable[[drift.Graph], drift.Stream[Any]]] = {
    "one scan": lambda graph: graph.source("words").count(key=lambda word: len(word)),
    "a scan after a scan": lambda graph: graph.source("words").count(key=len).count(key=lambda pair: pair[1] % 5),
    "windows of windows": lambda graph: graph.source("words").group(key=len, window=4).group(key=len, window=3),
}


def nodes_behind(tracer: Tracer) -> int:
    """How many nodes it refers to, directly or not; other tests have their own."""
    seen: dict[int, Any] = {}
    todo: list[Any] = [tracer]
    while todo:
        each = todo.pop()
        if id(each) not in seen and not isinstance(each, (type, FunctionType, ModuleType)):
            seen[id(each)] = each
            todo += gc.get_referents(each)
    return sum(type(each) is Node for each in seen.values())


@pytest.mark.parametrize("make", GRAPHS.values(), ids=GRAPHS.keys())
def test_what_is_stored_does_not_grow_with_the_input(make: Callable[[drift.Graph], drift.Stream[Any]]) -> None:
    graph = drift.Graph("growing")
    make(graph).sink("out")
    tracer = Tracer(graph.build())
    all_nodes = []
    for time in range(3000):
        meta = (time + 2**63).to_bytes(8, "big") + bytes(3)
        tracer.push("words", meta, "word" * (time % 7))
        for _ in tracer.pop(meta + b"\xff"):
            pass
        if time % 97 == 96:
            all_nodes.append(nodes_behind(tracer))
    assert max(all_nodes[15:]) < 1.5 * max(all_nodes[:15]) < 1500  # over its second half, what is kept has not doubled


def test_only_what_has_the_key_of_the_item_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = drift.Graph("keys")
    graph.source("words").flat_map(str.split).count(key=str.lower).sink("counts")
    dataflow = graph.build()
    lines = ["a b", "c d", "A c", "d", "b a"]
    item = list(drift.run(dataflow, {"words": lines}))[-1]
    assert item.payload == ("a", 3)
    pushed: list[str] = []
    push = Tracer.push
    monkeypatch.setattr(Tracer, "push", lambda self, *more: (pushed.append(more[-1]), push(self, *more))[1])
    assert len(lineage_of(dataflow, words(dataflow, lines), item.meta).inputs()) == 3
    assert pushed == ["a b", "A c", "b a"]


def test_in_a_cycle_items_of_other_keys_may_have_had_a_part() -> None:
    graph = drift.Graph("cycle")
    loop = graph.feedback("loop")
    pairs = graph.source("words").merge(loop).group(key=lambda number: number % 2, window=2)
    pairs.flat_map(lambda pair: [pair[-1] + 101] if pair[-1] < 100 else []).feed(loop)
    pairs.sink("out")
    dataflow = graph.build()
    for item in drift.run(dataflow, {"words": range(6)}):
        lineage = lineage_of(dataflow, Given(dataflow, {"words": lambda: range(6)}), item.meta, loops_max=ALL)
        assert lineage.item.payload == item.payload


def test_behind_several_groupings_only_what_has_the_keys_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = drift.Graph("layers")
    counted = graph.source("words").count(key=str.lower, name="each")
    counted.count(key=lambda pair: pair[1] % 10, name="tens").group(key=lambda pair: pair[0], window=2).sink("out")
    dataflow = graph.build()
    feed = [f"word{number % 50}" for number in range(1000)]
    item = list(drift.run(dataflow, {"words": feed}))[-1]
    made: list[Node] = []
    start = Node.__init__

    def counted_start(self: Node, *given: Any) -> None:
        made.append(self)
        start(self, *given)

    monkeypatch.setattr(Node, "__init__", counted_start)
    lineage = lineage_of(dataflow, words(dataflow, feed), item.meta, loops_max=2)
    assert lineage.item.payload == ((0, 99), (0, 100))
    states = [(each.step, each.payload) for each in lineage.items if each.kind == "state"]
    assert sorted(states) == [("each", 18)] * 2 + [("each", 19)] * 2 + [("tens", 98), ("tens", 99)]
    assert len(made) < 3000  # a trace of everything makes 9,000


def test_a_lineage_is_a_tree_to_read() -> None:
    import diamond

    dataflow = diamond.graph.build()
    item = list(drift.run(dataflow, {"deposits": diamond.DEPOSITS}))[4]
    given = Given(dataflow, {"deposits": lambda: diamond.DEPOSITS})
    lineage = lineage_of(dataflow, given, item.meta, position=4)
    places = {name: f"{ROOT / 'examples' / 'diamond.py'}:{line}" for name, line in LINES.items()}
    expected = DIAMOND.format(**places).strip("\n").splitlines()
    found = as_text(lineage).splitlines()
    assert [line.replace(str(Path.cwd()) + "/", "") for line in expected] == found
    drawn = as_mermaid(lineage)
    assert drawn.count("-->") == sum(len(made.made_of) for made in lineage.items)
    assert lineage.as_dict()["items"][-1]["made_of"] == [len(lineage.items) - 1]


LINES = {"booking": 29, "balanced": 37, "fee": 25, "is_large": 21}
DIAMOND = """
('Bob', 'fee', -990, 102010)  sink 'ledger', position 4, time 3
└── ('Bob', 'fee', -990, 102010)  step 'scan balanced' ({balanced})
    ├── state 103000 of key 'Bob'  step 'scan balanced' ({balanced}); 2 items in
    │   ├── state 4000 of key 'Bob'  step 'scan balanced' ({balanced}), first of its key; 1 item in
    │   │   └── ('Bob', 'deposit', 4000)  step 'map booking': map one booking ({booking})
    │   │       └── Deposit(minute=2, account='Bob', cents=4000)  input deposits at 2
    │   └── ('Bob', 'deposit', 99000)  step 'map booking': map one booking ({booking})
    │       └── Deposit(minute=3, account='Bob', cents=99000)  input deposits at 3
    └── ('Bob', 'fee', -990)  step 'map fee': map one fee ({fee})
        └── Deposit(minute=3, account='Bob', cents=99000)  step 'filter is_large': map keep is_large ({is_large})
            └── Deposit(minute=3, account='Bob', cents=99000)  input deposits at 3
"""


def test_a_payload_is_never_markup_and_stays_on_its_line() -> None:
    dataflow = counting()
    word = "[bold red]x[/] \x1b[31m\n<script>"
    (item,) = drift.run(dataflow, {"words": [word]})
    text = as_text(lineage_of(dataflow, words(dataflow, [word]), item.meta))
    assert len(text.splitlines()) == 3
    assert "[bold red]x[/] \\x1b[31m\\n<script>" in text


def test_of_a_long_window_the_last_items_are_shown() -> None:
    graph = drift.Graph("long")
    graph.source("words").group(key=lambda word: 0, window=100).map(len).sink("out")
    dataflow = graph.build()
    feed = [f"word {number}" for number in range(100)]
    item = list(drift.run(dataflow, {"words": feed}))[-1]
    lineage = lineage_of(dataflow, words(dataflow, feed), item.meta)
    assert len(lineage.inputs()) == 100
    text = as_text(lineage)
    assert "94 items before these" in text and "'word 94'  input" in text and "'word 93'  input" not in text
    assert "'word 0'  input" in str(as_plain(lineage))


def as_plain(lineage: Lineage) -> str:
    from rich.console import Console

    console = Console(width=400, no_color=True)
    with console.capture() as capture:
        console.print(as_tree(lineage, parents_max=1000))
    return capture.get()


def test_a_lineage_of_many_states_is_no_recursion() -> None:
    dataflow = counting()
    feed = ["a"] * 3000
    item = list(drift.run(dataflow, {"words": feed}))[-1]
    lineage = lineage_of(dataflow, words(dataflow, feed), item.meta, loops_max=ALL)
    assert lineage.complete and len(lineage.inputs()) == 3000
    assert len(lineage.as_dict()["items"]) == len(lineage.items)
    assert global_time_of(item.meta) == lineage.items[-3].meta


class _NoForm:
    """Has no canonical form."""

    __slots__ = ("lock",)

    def __init__(self) -> None:
        self.lock = object()


def test_lineage_fails_where_the_reference_fails() -> None:
    graph = drift.Graph("formless")
    pairs = graph.source("n").group(lambda n: 0, 2).map(lambda pair: _NoForm() if pair[-1] == 2 else pair[-1])
    pairs.group(lambda n: 0, 1).map(lambda one: 0).sink("out")
    with pytest.raises(drift.StepError) as failed:
        drift.run(graph, {"n": [1, 2, 3]}, engine="reference").finish()
    tracer = Tracer(graph.build())
    for number in (1, 2, 3):
        tracer.push("n", global_time(number, 0, 0, 0), number)
    failures = [node for node in tracer.pop(END_OF_TIME) if isinstance(node.payload, Failure)]
    assert [node.payload.message.splitlines()[0] for node in failures] == [str(failed.value).splitlines()[0]]
    assert failures[0].parents[0].payload.__class__ is _NoForm
