"""What a benchmark is: data by a seed, a graph, and a plain loop for the same answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import drift


class Published(NamedTuple):
    """What Noir's authors give: lines of code of Noir, Flink and MPI; seconds on 4 hosts, and over which data."""

    lines: tuple[int | None, int | None, int | None]
    seconds: tuple[float | None, float | None, float | None]
    data: str


class Case(NamedTuple):
    """One benchmark.

    Attributes:
        data: inputs by source of about so many items.
        graph: with sinks whose items, sorted, are the answer.
        plain: the same answer of the same inputs, sorted.
    """

    name: str
    items: int
    data: Callable[[int], dict[str, list[Any]]]
    graph: Callable[[], drift.Graph]
    plain: Callable[[dict[str, list[Any]]], list[Any]]
    published: Published
