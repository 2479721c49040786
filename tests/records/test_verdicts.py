"""A function that has changed is named as changed, wherever the change is that reaches it."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_divergence import found_out

import drift
from drift.auditing.replay import changes_since
from drift.load import load_module
from drift.records.reader import Record

#: Another module of the user's, beside the one with the graph.
AID = """
SCALE = 10

def scaled(number):
    return inner(number)

def inner(number):
    return number * SCALE

class Meter:
    UNIT = 1

    def __init__(self, start):
        self.start = start

    def __call__(self, number):
        return self.read(number)

    def read(self, number):
        return number + self.start * self.UNIT

class Fine(Meter):
    pass
"""

FLOW = """
import functools
import drift
import {aid}
from {aid} import Fine, scaled

OFFSET = 3
TABLE = {{"a": [1, 2]}}

def helped(number):
    return with_helper(number)

def with_helper(number):
    return number + OFFSET

def with_default(number, more=4):
    return number + more

def made(more):
    def closed(number):
        return number + more
    return closed

def twice(function):
    @functools.wraps(function)
    def both(number):
        return function(function(number))
    return both

@twice
def decorated(number):
    return number + 1

def looked_up(number):
    return number + TABLE["a"][1]

def unused(number):
    return number + 1000

graph = drift.Graph("verdicts")
numbers = graph.source("numbers")
other = numbers.map(unused, name="unused")
other.sink("others")
way = numbers.map(helped, name="way")
way.count(key=lambda number: number, name="count").sink("out")
"""

#: A step that calls a function in one of many ways, with a sink of its own.
STEP = """numbers.map({function}, name="{name}").sink("to {name}")
"""

#: What the step calls, which text of which file is changed to what, and words of the verdict.
CHANGES = {
    "itself, a lambda": ("lambda number: number + 1", "flow", "number: number + 1", "number: number + 2", "<lambda>"),
    "a helper of its module": ("helped", "flow", "return number + OFFSET", "return number - OFFSET", "with_helper"),
    "a constant of its module": ("helped", "flow", "OFFSET = 3", "OFFSET = 4", "the module's OFFSET"),
    "a value inside of a constant": ("looked_up", "flow", "[1, 2]", "[1, 5]", "TABLE"),
    "a default": ("with_default", "flow", "more=4", "more=5", "default"),
    "a variable that it closes over": ("made(7)", "flow", "made(7)", "made(8)", "the variable more"),
    "what a decorator has wrapped": ("decorated", "flow", "def decorated(number):\n    return number + 1",
                                     "def decorated(number):\n    return number + 2", "decorated"),
    "the decorator": ("decorated", "flow", "function(function(number))", "function(number)", "decorated at"),
    "an argument of a partial": ("functools.partial(with_default, more=6)", "flow", "more=6", "more=7", "more"),
    "the function of a partial": ("functools.partial(with_default, more=6)", "flow", "return number + more\n\ndef made",
                                  "return number - more\n\ndef made", "with_default"),
    "a function of another module": ("scaled", "aid", "return inner(number)", "return inner(number) + 1", "scaled"),
    "what that one calls": ("lambda number: scaled(number)", "aid", "number * SCALE", "number * SCALE + 1", "inner"),
    "what is reached by the module's name": ("lambda number: {aid}.scaled(number)", "aid", "number * SCALE",
                                             "number * SCALE + 1", "inner"),
    "a constant of another module": ("scaled", "aid", "SCALE = 10", "SCALE = 11", "the module's SCALE"),
    "what a callable object holds": ("Fine(5)", "flow", "Fine(5)", "Fine(6)", "start"),
    "a method of its base class": ("Fine(5)", "aid", "number + self.start", "number - self.start", "read"),
    "a class attribute": ("Fine(5)", "aid", "UNIT = 1", "UNIT = 2", "UNIT"),
    "a bound method": ("Fine(5).read", "aid", "number + self.start", "number - self.start", "read"),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of the modules; they are found there, and read anew each time."""
    folder = tmp_path_factory.mktemp("verdicts")
    sys.path.insert(0, str(folder))
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # files change within a second
    yield folder
    sys.dont_write_bytecode = before
    sys.path.remove(str(folder))


NAME, AID_NAME = (f"{word}_{os.getpid()}" for word in ("flow", "aid"))
TEXTS = {
    "flow": FLOW.format(aid=AID_NAME)
    + "".join(STEP.format(name=name, function=each[0].format(aid=AID_NAME)) for name, each in CHANGES.items()),
    "aid": AID,
}


def loaded(folder: Path, texts: dict[str, str]) -> drift.Graph:
    """The graph, of modules with these texts."""
    for name, text in ((AID_NAME, texts["aid"]), (NAME, texts["flow"])):
        (folder / f"{name}.py").write_text(text)
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    found: Any = load_module(str(folder / f"{NAME}.py"))
    graph: drift.Graph = found.graph
    return graph


@pytest.fixture(scope="module")
def record(folder: Path) -> Record:
    graph = loaded(folder, TEXTS)
    drift.run(graph, {"numbers": range(6)}, record=folder / "record").finish()
    assert drift.audit(folder / "record", loaded(folder, TEXTS)).ok
    return Record(folder / "record")


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_function_is_named_by_what_changed(change: str, folder: Path, record: Record) -> None:
    _, file, old, new, word = CHANGES[change]
    before, after = old.format(aid=AID_NAME), new.format(aid=AID_NAME)
    assert TEXTS[file].count(before) >= 1
    graph = loaded(folder, TEXTS | {file: TEXTS[file].replace(before, after)})
    found = found_out(record, graph)
    assert found.verdict.kind == "function"
    changed = [each.step for each in changes_since(record, graph.build())]
    assert word in found.verdict.text
    step = found.verdict.step
    assert {step, change} <= set(changed), "the first that parts may be another step that reaches the same"
    assert found.both is not None and found.both.parting is not None
    assert found.both.parting.new is not None and found.both.parting.new.step == step


GRAPH_CHANGES = {
    "a step more": ("way = numbers.map(", "way = numbers.filter(bool).map(", "step 'filter bool' is new"),
    "a step less": ('way = numbers.map(helped, name="way")', "way = numbers", "step 'way' is gone"),
    "another operator": ("way.count(", "way.group(window=2, ", "step 'count'"),
    "another edge": ("\nway = numbers.", "\nway = other.", "the edge 'unused' -> 'way' is new"),
}


@pytest.mark.parametrize("change", GRAPH_CHANGES)
def test_a_changed_graph_is_named_with_how_it_changed(change: str, folder: Path, record: Record) -> None:
    old, new, said = GRAPH_CHANGES[change]
    assert TEXTS["flow"].count(old) == 1
    found = found_out(record, loaded(folder, TEXTS | {"flow": TEXTS["flow"].replace(old, new)}))
    assert found.verdict.kind == "graph" and said in found.verdict.text, found.verdict.text
