"""A keyed stream writes down what the operators of its stream would, given the key; its types follow."""

from __future__ import annotations

import pytest

import drift


def first(word: str) -> str:
    return word[0]


def later(state: int, word: str, time: int) -> tuple[int, tuple[object, ...]]:
    return state + 1, (drift.at(time + 2, word), word.upper())


def on_timer(state: int, note: str, time: int) -> tuple[int, tuple[str, int]]:
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
    by.process(0, later, on_timer, name="process").sink("to process")
    by.filter(len, name="filter").count(name="counted").sink("to filtered")
    by.drop_key().sink("to dropped")
    words = plain.source("words")
    words.count(first, name="count").sink("to count")
    words.reduce(first, max, name="reduce").sink("to reduce")
    words.scan(first, "", paired, name="scan").sink("to scan")
    words.group(first, 2, name="group").sink("to group")
    words.process(first, 0, later, on_timer, name="process").sink("to process")
    words.filter(len, name="filter").count(first, name="counted").sink("to filtered")
    words.sink("to dropped")
    assert keyed == plain


def test_a_key_that_is_no_function_is_refused_where_it_is_written() -> None:
    with pytest.raises(drift.GraphError, match=r"key_by takes a function.*names of fields, not 7.*_keyed.py:\d+"):
        drift.Graph("g").source("words").key_by(7)  # type: ignore[call-overload]
    with pytest.raises(drift.GraphError, match=r"key_by takes one function, or names of fields.*_keyed.py:\d+"):
        drift.Graph("g").source("words").key_by(len, "name")  # type: ignore[call-overload]


def test_a_keyed_stream_says_what_it_is() -> None:
    assert repr(drift.Graph("g").source("words").key_by(first)) == "<<Stream words of graph 'g'> by first>"
