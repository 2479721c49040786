"""A keyed stream writes down what the operators of its stream would, given the key; its types follow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import drift


def first(word: str) -> str:
    return word[0]


def later(state: int, word: str, time: int) -> tuple[int, tuple[object, ...]]:
    return state + 1, (drift.at(time + 2, word), word.upper())


def told(state: int, note: str, time: int) -> tuple[int, tuple[str, int]]:
    return state - 1, (note, time)


def paired(state: str, word: str) -> tuple[str, str]:
    return word, state + word


def test_operators_of_a_keyed_stream_are_those_of_the_stream_given_its_key() -> None:
    keyed, plain = drift.Graph("words"), drift.Graph("words")
    by = keyed.source("words").key_by(first)
    by.count(name="count").sink("to count")
    by.reduce(max, name="reduce").sink("to reduce")
    by.scan("", paired, name="scan").sink("to scan")
    by.group(2, name="group").sink("to group")
    by.process(0, later, told, name="process").sink("to process")
    by.filter(len, name="filter").count(name="counted").sink("to filtered")
    by.drop_key().sink("to dropped")
    words = plain.source("words")
    words.count(first, name="count").sink("to count")
    words.reduce(first, max, name="reduce").sink("to reduce")
    words.scan(first, "", paired, name="scan").sink("to scan")
    words.group(first, 2, name="group").sink("to group")
    words.process(first, 0, later, told, name="process").sink("to process")
    words.filter(len, name="filter").count(first, name="counted").sink("to filtered")
    words.sink("to dropped")
    assert keyed == plain


def test_a_key_that_is_no_function_is_refused_where_it_is_written() -> None:
    with pytest.raises(drift.GraphError, match=r"key_by takes a function.*'name'.*test_flow_keyed.py:\d+"):
        drift.Graph("g").source("words").key_by("name")  # type: ignore[arg-type]


def test_a_keyed_stream_says_what_it_is() -> None:
    assert repr(drift.Graph("g").source("words").key_by(first)) == "<<Stream words of graph 'g'> by first>"


REVEALED = """
import drift

def line(text: str) -> list[str]: return text.split()
def length(word: str) -> int: return len(word)
def step(state: float, word: str) -> tuple[float, bytes]: return state, word.encode()

words = drift.Graph("g").source("lines").flat_map(line)
by = words.key_by(length)
reveal_type(words)
reveal_type(by)
reveal_type(by.filter(bool))
reveal_type(by.count())
reveal_type(by.reduce(max))
reveal_type(by.scan(0.0, step))
reveal_type(by.group(3))
reveal_type(by.drop_key())
windowed = by.window(drift.windows.tumbling(5))
reveal_type(windowed.count())
reveal_type(windowed.sum(length))
reveal_type(windowed.aggregate(drift.agg.max_by(length)))
reveal_type(windowed.aggregate(n=drift.agg.count()))
reveal_type(words.window(drift.windows.session(5)).fold(0.0, lambda total, word: total + len(word)))
reveal_type(by.at_end(drift.agg.collect()))
reveal_type(words.at_end(drift.agg.collect(length).then(len)))
reveal_type(words.at_end(drift.agg.top(2, by=length)))
"""

TYPES = [
    "drift.streams.stream.Stream[str]",
    "drift.streams.keyed.KeyedStream[int, str]",
    "drift.streams.keyed.KeyedStream[int, str]",
    "drift.streams.stream.Stream[tuple[int, int]]",
    "drift.streams.stream.Stream[tuple[int, str]]",
    "drift.streams.stream.Stream[bytes]",
    "drift.streams.stream.Stream[tuple[str, ...]]",
    "drift.streams.stream.Stream[str]",
    "drift.streams.stream.Stream[drift.flow.opened.Window[int, int]]",
    "drift.streams.stream.Stream[drift.flow.opened.Window[int, int]]",
    "drift.streams.stream.Stream[drift.flow.opened.Window[int, str]]",
    "drift.streams.stream.Stream[drift.flow.opened.Window[int, dict[str, Any]]]",
    "drift.streams.stream.Stream[drift.flow.opened.Window[None, float]]",
    "drift.streams.stream.Stream[tuple[int, tuple[str, ...]]]",
    "drift.streams.stream.Stream[int]",
    "drift.streams.stream.Stream[tuple[str, ...]]",
]


def test_types_follow_through_keys(tmp_path: Path) -> None:
    file = tmp_path / "typed.py"
    file.write_text(REVEALED)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", f"--cache-dir={tmp_path}", str(file)]
    printed = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1]).stdout
    revealed = [row.split('"')[1].replace("builtins.", "") for row in printed.splitlines() if "Revealed" in row]
    assert revealed == TYPES, printed
