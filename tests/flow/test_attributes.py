"""Functions are objects with attributes of their own, which mean nothing here, whatever they are called."""

from collections.abc import Callable
from typing import Any

import pytest

import drift

NAMES = [
    "asks", "carries_state", "chained", "each", "handed", "in_order", "initials", "is_field", "is_in_loop",
    "leaves_arguments", "loop", "moves", "on_batch", "on_rows", "outputs", "shown", "takes", "turns_round",
    "user_function",
]  # fmt: skip


class Attributed:
    """Calls a function, and has attributes of all these names."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        vars(self).update(dict.fromkeys(NAMES, self.method))

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    def method(self, *arguments: Any) -> Any:
        raise AssertionError(f"called with {arguments}")


def graph(of: Callable[[Callable[..., Any]], Callable[..., Any]]) -> drift.Graph:
    graph = drift.Graph("attributes")
    source = graph.source("in", time=drift.EventTime(of(lambda number: number)))
    mapped = source.map(of(lambda number: number + 1)).filter(of(lambda number: number % 5))
    mapped.scan(of(lambda number: number % 3), 0, of(lambda state, number: (state + number, state))).sink("scanned")
    mapped.process(
        of(lambda number: number % 2),
        0,
        of(lambda state, number, time: (state + number, [drift.at(time + 3, "later"), state])),
        of(lambda state, note, time: (state + 1, [(note, state)])),
    ).sink("processed")
    mapped.key_by(of(lambda number: number % 2)).window(drift.windows.tumbling(4)).aggregate(
        drift.agg.sum(of(lambda number: number))
    ).sink("summed")
    return graph


@pytest.mark.parametrize("engine", ["reference", "local"])
def test_attributes_of_a_function_are_never_read(engine: str) -> None:
    numbers = list(range(30))
    plain = drift.run(graph(lambda function: function), {"in": numbers}, engine="reference")
    expected = [(item.sink, item.payload) for item in plain]
    found = drift.run(graph(Attributed), {"in": numbers}, engine=engine)  # type: ignore[call-overload]
    assert [(item.sink, item.payload) for item in found] == expected
