"""What `deterministic` cannot call as a test is refused: its body would not run, and the test would pass."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from hypothesis import strategies as st

import drift
from drift.testing import deterministic
from drift_graph.errors import SettingsError

graph = drift.Graph("lengths")
graph.source("words").map(len).sink("out")


async def waits() -> None:
    raise AssertionError


async def waits_and_yields() -> AsyncIterator[int]:
    yield 1


def yields() -> Iterator[int]:
    yield 1


class Tests:
    """No test."""


@pytest.mark.parametrize(
    ("body", "says"),
    [(waits, "async"), (waits_and_yields, "async"), (yields, "generator"), (Tests, "a class")],
)
def test_no_plain_function(body: Callable[..., Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        deterministic(graph, words=st.lists(st.text()))(body)


def test_a_strategy_of_one_payload() -> None:
    test = deterministic(graph, words=st.integers())(lambda: None)
    with pytest.raises(SettingsError, match="lists of payloads"):
        test()
