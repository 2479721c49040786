"""Fingerprints: what changes them, what does not, and what is said of it."""

from __future__ import annotations

import collections
import functools
import importlib.util
import itertools
import json
import operator
import os
import random
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from waiting import HANG_S

import drift
from drift.records.changes import Change, compare
from drift.records.code import print_of
from drift.records.fingerprint import Fingerprint, fingerprint

_numbers = itertools.count()

GRAPH = """
import drift

RATE = 10

def clean(line):
    return line.strip().lower()

def words(line):
    # splits
    return clean(line).split()

def step(total, word):
    return total + RATE, (word, total + RATE)

graph = drift.Graph("words")
found = graph.source("lines", time=drift.EventTime(time=len, lateness=5)).flat_map(words, name="words")
found.group(key=lambda word: word[0], window=10, name="tens").sink("by ten")
found.scan(key=lambda word: word, initial=0, step=step, name="totals").sink("sums")
"""


HEAD = "import drift\ngraph = drift.Graph('g')\n"


def load(folder: Path, text: str, filename: str = "") -> Any:
    """The module of a text, in a file of its own."""
    path = folder / (filename or f"graph_{next(_numbers)}.py")
    path.write_text(textwrap.dedent(text))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def print_from(folder: Path, text: str, *edits: tuple[str, str]) -> Fingerprint:
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return fingerprint(load(folder, text).graph.build())


def changes(folder: Path, *edits: tuple[str, str], text: str = GRAPH) -> list[Change]:
    return compare(print_from(folder, text), print_from(folder, text, *edits))


HARMLESS = {
    "the same": ("graph", "graph"),
    "other lines": ("\nimport drift", "\n\n\n\nimport drift\n\n"),
    "another comment": ("# splits", "# splits a line into its words"),
    "a docstring": ("def words(line):", 'def words(line):\n    """The words."""'),
    "an annotation": ("def clean(line):", "def clean(line: str) -> str:"),
    "another function that is not used": ("RATE = 10", "RATE = 10\n\ndef other(): return 1\n\nOTHER = 2"),
}


@pytest.mark.parametrize("edit", HARMLESS.values(), ids=HARMLESS.keys())
def test_what_has_no_effect_changes_no_hash(edit: tuple[str, str], tmp_path: Path) -> None:
    old, new = print_from(tmp_path, GRAPH), print_from(tmp_path, GRAPH, edit)
    assert [old[name] == new[name] for name in ("digest", "structure", "code")] == [True] * 3
    assert compare(old, new) == []


CHANGES = {
    "a window": (("window=10", "window=20"), ["window of step 'tens': 10 -> 20 items"]),
    "lateness": (("lateness=5", "lateness=7"), ["lateness of source 'lines': 5 -> 7"]),
    "a time function": (
        ("time=len", "time=hash"),
        ["the time function of 'lines' changed: hash, before len,"],
    ),
    "late items": (
        ("lateness=5", "lateness=5, late='divert'"),
        ["what source 'lines' does with late items: error -> "],
    ),
    "what is allowed": (("lateness=5", "lateness=5, allowed=9"), ["allowed of source 'lines': 0 -> 9"]),
    "times in the future": (("lateness=5", "lateness=5, future_max=9"), ["future_max of source 'lines': None -> 9"]),
    "times that are shown twice": (
        ("lateness=5", "lateness=5, ambiguous='latest'"),
        ["what source 'lines' does with times that are shown twice: error -> latest"],
    ),
    "a tie": (("lateness=5", "lateness=5, tie=len"), ["the tie function of 'lines' is new"]),
    "arrival time": (
        ("time=drift.EventTime(time=len, lateness=5)", "time=None"),
        ["source 'lines' is in arrival time, before in event time", "the time function of 'lines' is gone"],
    ),
    "a function": (
        ("clean(line).split()", "clean(line).split(',')"),
        ["the function of step 'words' changed: words at"],
    ),
    "a function that a function calls": (
        ("line.strip().lower()", "line.strip()"),
        ["the function of step 'words' changed: clean at"],
    ),
    "a value of the module": (
        ("RATE = 10", "RATE = 11"),
        ["the function of step 'totals' changed: the module's RATE of step is 11, before 10"],
    ),
    "a key": (("word: word[0]", "word: word[1]"), ["the key function of 'tens' changed: <lambda> at"]),
    "an initial state": (
        ("initial=0", "initial=1"),
        ["the function of step 'totals' changed: initial is 1, before 0"],
    ),
    "a step added": (
        ("found.group(", "found = found.map(str.upper, name='up')\nfound.group("),
        ["step 'up' is new, after 'words'"],
    ),
    "a step removed": (('.flat_map(words, name="words")', ""), ["step 'words' is gone"]),
    "a sink renamed": (('sink("sums")', 'sink("all")'), ["sink 'sums' is gone", "sink 'all' is new"]),
    "an edge moved": (
        ("found.scan(", "graph.source('more').map(str).merge(found).scan("),
        ["source 'more' is new", "step 'map str' is new, after 'more'"],
    ),
}


@pytest.mark.parametrize(("edit", "expected_texts"), CHANGES.values(), ids=CHANGES.keys())
def test_a_change_is_said_in_words(edit: tuple[str, str], expected_texts: list[str], tmp_path: Path) -> None:
    found = changes(tmp_path, edit)
    assert [change.matters for change in found] == [True] * len(found)
    assert len(found) == len(expected_texts)
    for change, text in zip(found, expected_texts):
        assert change.text.startswith(text)


OPERATIONS = (
    HEAD
    + """
import re
PATTERN = re.compile("a")
def first(pair): return pair[0]
def second(pair): return PATTERN.match(pair[1]) is not None
items = graph.source("s")
items.key_by(first).window(drift.windows.tumbling(10)).aggregate(drift.agg.max(first), name="window").sink("windows")
items.at_end(drift.agg.top(2, first), name="end").sink("top")
items.join(items, first, within=(1, 2), name="join").sink("pairs")
items.join_table({"a": 1}, first, name="table").sink("rows")
items.limit(3, name="limit").dedup(key=first, within=5, name="dedup").sink("some")
"""
)

OPERATION_CHANGES = {
    "an aggregate": (("agg.max(first)", "agg.min(first)"), "window' changed: greatest is False, before True"),
    "the function of an aggregate": (("agg.max(first)", "agg.max(second)"), "window' changed: second, before first"),
    "another aggregate": (("agg.max(first)", "agg.count()"), "window' changed: aggregate is Count()"),
    "the size of windows": (("tumbling(10)", "tumbling(20)"), "window' changed: size is 20, before 10"),
    "the number of the greatest": (("top(2,", "top(3,"), "end' changed: n is 3, before 2"),
    "the bounds of a join": (("(1, 2)", "(1, 3)"), "join' changed: after is 3, before 2"),
    "a row of a table": (('"a": 1', '"a": 2'), "table' changed: rows is"),
    "the key of a table": (("1}, first", "1}, second"), "table' changed: second, before first"),
    "a number of items": (("limit(3", "limit(4"), "limit' changed: "),
    "a time": (("within=5", "within=6"), "dedup' changed: "),
    "a pattern": (
        ('compile("a")', 'compile("b")'),
        "window' changed: part 1 of Pattern is 'b', before 'a'",
    ),
}


@pytest.mark.parametrize(("edit", "expected"), OPERATION_CHANGES.values(), ids=OPERATION_CHANGES.keys())
def test_a_changed_value_of_an_operation_is_a_change(edit: tuple[str, str], expected: str, tmp_path: Path) -> None:
    text = OPERATIONS.replace("agg.max(first)", "agg.max(second)") if "compile" in edit[0] else OPERATIONS
    found = changes(tmp_path, edit, text=text)
    assert found and all(change.matters for change in found)
    assert any(expected in change.text for change in found), found


def test_a_changed_function_is_shown_with_its_location_and_the_difference_of_its_source(tmp_path: Path) -> None:
    (change,) = changes(tmp_path, ("strip().lower()", "lower()"))
    assert change.after.endswith(".py:6") and change.after in change.text
    assert "\n-    return line.strip().lower()\n+    return line.lower()\n" in change.diff
    assert Change(**json.loads(json.dumps(change.as_dict()))) == change


def test_a_renamed_step_and_a_renamed_function_are_seen_as_such_and_do_not_matter(tmp_path: Path) -> None:
    found = changes(tmp_path, ('name="tens"', 'name="ten"'), ("words(line)", "parts(line)"), ("map(words", "map(parts"))
    assert {(change.text, change.matters) for change in found} == {
        ("step 'ten' was named 'tens'", False),
        ("the function of step 'words' is named parts, before words; it does the same", False),
    }


def test_a_lambda_put_before_others_leaves_them_what_they_are(tmp_path: Path) -> None:
    text = HEAD + "graph.source('s').map(lambda n: n + 1).map(lambda n: n * 2).sink('out')"
    found = changes(tmp_path, (".map(lambda n: n + 1)", ".map(lambda n: -n).map(lambda n: n + 1)"), text=text)
    assert [change.text for change in found if change.matters] == ["step 'map <lambda>' is new, after 's'"]
    assert len([change for change in found if not change.matters]) == 2


def test_lambdas_of_one_line_are_distinguished_and_shown_separately(tmp_path: Path) -> None:
    text = HEAD + "graph.source('s').map(lambda n: n + 1).map(lambda n: n * 2).sink('out')"
    found = print_from(tmp_path, text)
    shown = [each["functions"]["function"]["parts"][0]["text"] for each in found["operators"][1:3]]
    assert shown == ["lambda n: n + 1", "lambda n: n * 2"]
    (change,) = changes(tmp_path, ("n * 2", "n * 3"), text=text)
    assert "-lambda n: n * 2\n+lambda n: n * 3\n" in change.diff


def test_lambdas_of_one_line_with_the_same_instructions_are_known_by_their_sources(tmp_path: Path) -> None:
    found = print_from(tmp_path, HEAD + "graph.source('s').map(lambda n: n + 2).map(lambda n: n + (1 + 1)).sink('out')")
    first, second = (each["functions"]["function"] for each in found["operators"][1:3])
    assert first["code"] != second["code"]
    assert [each["parts"][0]["text"] for each in (first, second)] == ["lambda n: n + 2", "lambda n: n + (1 + 1)"]


def test_the_order_of_declaration_matters_as_far_as_metas_show_it(tmp_path: Path) -> None:
    text = HEAD + "s = graph.source('s')\n"
    a, b = "s.map(abs).sink('a')\n", "s.map(str).sink('b')\n"
    found = compare(print_from(tmp_path, text + a + b), print_from(tmp_path, text + b + a))
    assert found and all("another order" in each.text for each in found)
    assert all(change.matters for change in found)


def test_a_step_wired_to_another_is_an_edge_that_moved(tmp_path: Path) -> None:
    text = HEAD + "a = graph.source('s').map(abs)\nb = a.map(str)\nb.sink('b')\nb.map(len).sink('a')\n"
    assert [change.text for change in changes(tmp_path, ("b.map(len)", "a.map(len)"), text=text)] == [
        "the edge 'map abs' -> 'map len' is new",
        "the edge 'map str' -> 'map len' is gone",
    ]


# Functions of every kind.


def made(by: int) -> Callable[[int], int]:
    return lambda number: number + by


def holding(value: Any) -> Callable[[int], Any]:
    return lambda number: value


class Multiply:
    def __init__(self, by: int) -> None:
        self.by = by

    def __call__(self, number: int) -> int:
        return number * self.by

    def twice(self, number: int) -> int:
        return self(self(number))


def plain(number: int, by: int = 2) -> int:
    return number + by


def other_default(number: int, by: int = 3) -> int:
    return number + by


@functools.lru_cache
def cached(number: int) -> int:
    return number + 1


@functools.lru_cache
def cached_differently(number: int) -> int:
    return number + 2


def shown(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def inner(*arguments: Any) -> Any:
        return function(*arguments)

    return inner


def recursive(number: int) -> int:
    return 1 if number < 2 else number * mutual(number - 1)


def mutual(number: int) -> int:
    return recursive(number)


TABLE = {"a": plain, "b": made(1)}
OTHER_TABLE = {"a": plain, "b": made(2)}


def by_table(number: int) -> int:
    return TABLE["a"](number)


def by_other_table(number: int) -> int:
    return OTHER_TABLE["a"](number)


DIFFERENT = [
    (made(1), made(2)),
    (made(1), lambda number: number - 1),
    (Multiply(2), Multiply(3)),
    (Multiply(2), Multiply(2).twice),
    (Multiply(2).twice, Multiply(3).twice),
    (plain, other_default),
    (cached, cached_differently),
    (shown(plain), shown(other_default)),
    (functools.partial(plain, by=1), functools.partial(plain, by=2)),
    (functools.partial(plain, 1), functools.partial(other_default, 1)),
    (operator.itemgetter(0), operator.itemgetter(1)),
    (operator.attrgetter("a"), operator.methodcaller("a")),
    (str.split, str.upper),
    (len, abs),
    ("a b".split, "a b c".split),
    (int, float),
    (Multiply, made),
    (recursive, plain),
    (by_table, by_other_table),
    (holding(re.compile("a")), holding(re.compile("b"))),
    (re.compile("a").match, re.compile("b").match),
    (holding([re.compile("a")]), holding([re.compile("a", re.IGNORECASE)])),
    (holding(numpy.array([1, 2])), holding(numpy.array([1, 3]))),
    (holding(collections.deque([made(1)])), holding(collections.deque([made(2)]))),
    (holding(Path("a")), holding(Path("b"))),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_functions_have_different_prints(one: Any, other: Any) -> None:
    assert print_of(one)["code"] == print_of(one)["code"]
    assert print_of(one)["code"] != print_of(other)["code"]
    assert json.loads(json.dumps(print_of(one))) == print_of(one)


#: Values in whose canonical bytes a number does not show, or that have none.
HELD = """
import collections, datetime, enum, functools, ipaddress, string, types
from dataclasses import dataclass, field
from typing import Any, NamedTuple
import msgspec

BY = 1

class Rate:
    def rate(self, number):
        return number + BY

class Meta(type):
    def __len__(cls):
        return BY

@dataclass(frozen=True)
class Data(Rate):
    number: Any

class Tuple(NamedTuple):
    number: Any
    def rate(self, number):
        return number + BY

class Struct(msgspec.Struct, frozen=True):
    number: Any
    def rate(self, number):
        return number + BY

class Kind(enum.Enum):
    A = 1
    def rate(self, number):
        return number + BY

@dataclass
class MadeData:
    number: int = field(default_factory=lambda: BY)

class FilledTuple(NamedTuple):
    number: int = BY

class FilledStruct(msgspec.Struct):
    number: int = BY

class MadeStruct(msgspec.Struct):
    number: int = msgspec.field(default_factory=lambda: BY)

class Partial:
    rate = functools.partialmethod(lambda self, more, number: number + more, BY)

def own(base, held):
    return type("Own", (base,), {})(held), type("Other", (base,), {"rate": Rate.rate})(base())

ONES = Data(1), Tuple(1), Struct(1), Kind.A
BASES = (dict, {1: BY}), (list, [BY]), (tuple, [BY]), (collections.deque, [BY]), (str, BY), (int, BY), (float, BY)
VALUES = [
    *ONES,
    *(held for one in ONES for held in ([one], {"a": (one,)}, {one: 1}, {one}, Data(one), Tuple(one), Struct(one))),
    *(held for base in BASES for held in own(*base)),
    *(MadeData, FilledTuple, FilledStruct, MadeStruct, Partial(), Meta("Measured", (), {})),
    *(collections.defaultdict(lambda: BY), Tuple(lambda: BY)),
    *(range(BY), slice(BY), types.MappingProxyType({1: BY}), types.SimpleNamespace(by=BY)),
    *(datetime.timezone(datetime.timedelta(hours=BY)), string.Template(f"${BY}")),
    ipaddress.ip_network(f"10.{BY}.0.0/16"),
]
"""


def test_what_values_do_and_hold_counts_where_their_canonical_bytes_do_not_show_it(tmp_path: Path) -> None:
    values = []
    for at, by in enumerate((1, 1, 2)):
        folder = tmp_path / str(at)
        folder.mkdir()
        values.append(load(folder, HELD.replace("BY = 1", f"BY = {by}"), "held.py").VALUES)
    one, same, other = values
    assert len(one) == 61
    for at, each in enumerate(zip(one, same, other)):
        codes = [print_of(holding(value))["code"] for value in each]
        assert codes[0] == codes[1] != codes[2], (at, each)


SAME = [
    (made(1), made(1)),
    (Multiply(2), Multiply(2)),
    (Multiply(2).twice, Multiply(2).twice),
    (functools.partial(plain, by=1), functools.partial(plain, by=1)),
    (operator.itemgetter(0), operator.itemgetter(0)),
    (shown(plain), shown(plain)),
    (holding(re.compile("a")), holding(re.compile("a"))),
    (holding(numpy.array([1, 2])), holding(numpy.array([1, 2]))),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_functions_made_twice_have_one_print(one: Any, other: Any) -> None:
    assert one is not other
    assert print_of(one) == print_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (holding(random.Random(1)), holding(random.Random(2))),
        (holding(numpy.random.default_rng(1)), holding(numpy.random.default_rng(2))),
        (random.Random(1).random, random.Random(2).random),
        (holding(itertools.count(1)), holding(itertools.count(2))),
        (holding(os.environ), holding(type(os.environ)({}, str.encode, bytes.decode, str.encode, bytes.decode))),
    ],
)
def test_what_may_change_during_a_run_counts_by_its_type(one: Any, other: Any) -> None:
    assert print_of(one)["code"] == print_of(other)["code"]


def test_a_closure_that_changed_is_named_with_both_values(tmp_path: Path) -> None:
    text = """
    import drift
    def adder(by):
        return lambda number: number + by
    graph = drift.Graph("g")
    graph.source("s").map(adder(1), name="add").sink("out")
    """
    (change,) = changes(tmp_path, ("adder(1)", "adder(2)"), text=text)
    assert change.kind == "value"
    assert change.text == "the function of step 'add' changed: the variable by of <lambda> is 2, before 1"


def test_without_a_source_functions_are_compared_by_their_instructions(tmp_path: Path) -> None:
    def executed(text: str) -> Fingerprint:
        names: dict[str, Any] = {}
        exec(textwrap.dedent(text), names)
        return fingerprint(names["graph"].build())

    old = executed(GRAPH)
    assert compare(old, executed("\n\n" + GRAPH)) == []
    (change,) = compare(old, executed(GRAPH.replace("strip().lower()", "lower()")))
    assert (change.kind, change.matters) == ("function", True)
    found = compare(old, print_from(tmp_path, GRAPH))
    assert {(change.kind, change.matters) for change in found} == {("unknown", False)}


def test_a_fingerprint_of_another_format_is_no_verdict_on_functions(tmp_path: Path) -> None:
    old = print_from(tmp_path, GRAPH) | {"format": 1}
    for function in (function for each in old["operators"] for function in each["functions"].values()):
        function["code"] = "of instructions"
    (change,) = compare(old, print_from(tmp_path, GRAPH))
    assert (change.kind, change.matters) == ("unknown", False) and "are of form 1, and now of 2" in change.text
    texts = [change.text for change in compare(old, print_from(tmp_path, GRAPH, ("window=10", "window=20")))]
    assert texts[1:] == ["window of step 'tens': 10 -> 20 items"]


def test_source_that_is_not_what_runs_is_not_shown(tmp_path: Path) -> None:
    module = load(tmp_path, GRAPH, "edited.py")
    (tmp_path / "edited.py").write_text(GRAPH.replace("strip().lower()", "lower()"))
    parts = print_of(module.words)["parts"]
    assert [(part["name"], part["text"] is None) for part in parts] == [("words", False), ("clean", True)]


def test_a_fingerprint_does_not_depend_on_the_process(tmp_path: Path) -> None:
    text = GRAPH.replace("RATE = 10", "RATE = 10\nSTOP = {'a', 'bc', 'def', None, 1.5}").replace(
        "return clean(line)", "if line in {'x', 'yy', 'zzz'} or line in STOP: return []\n    return clean(line)"
    )
    (tmp_path / "words.py").write_text(text)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport words; from drift.records.fingerprint import *\n"
    code += "print(fingerprint(words.graph.build())['digest'])"
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, timeout=HANG_S
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1 and len(found.pop()) == 33


def test_the_policy_of_a_run_takes_the_place_of_the_graphs(tmp_path: Path) -> None:
    dataflow = load(tmp_path, GRAPH).graph.build()
    (change,) = compare(fingerprint(dataflow), fingerprint(dataflow, {"lines": drift.EventTime(time=len, lateness=9)}))
    assert (change.kind, change.text) == ("policy", "lateness of source 'lines': 5 -> 9")


def test_another_schema_is_a_change_unless_a_fingerprint_of_before_does_not_say_it() -> None:
    def summed(schema: Any) -> Fingerprint:
        graph = drift.Graph("summed")
        graph.source("rows", schema=schema).sink("out")
        return fingerprint(graph.build())

    before, now = summed({"at": int, "n": int}), summed({"n": float, "at": int})
    (change,) = compare(before, now)
    assert (change.kind, change.text) == ("value", "the schema of source 'rows': n Int64 -> Float64")
    assert before["digest"] == now["digest"]  # of what metas and functions hang on
    del before["operators"][0]["schema"]
    assert compare(before, now) == compare(now, before) == []


def test_hashes_that_records_hold_stay_what_they_are(tmp_path: Path) -> None:
    """What a record of today says must be comparable with a graph of tomorrow."""
    found = print_from(tmp_path, GRAPH)
    assert (found["format"], found["structure"], found["code"]) == (2, STRUCTURE, CODE)


STRUCTURE = "7132c8458a48d1512eae5a5008070c16"
CODE = "95302dde291e199c0addbd6362c5d040"
