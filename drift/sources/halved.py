"""Payloads of rows that are made many at once, where some rows may have none.

Invariant: every row before one that has no payload gives its own, and so do those behind it where something else takes
its place; the payloads do not depend on how the rows were cut into batches.

Why: where a batch cannot be made, halves of it are, and at last the rows that cannot, each by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from drift_graph.errors import InputError
from drift_graph.payloads import joined


class Fault(NamedTuple):
    """The first row that has no payload: its number among the rows, from 0, and why."""

    at: int
    error: InputError


def made_of(
    make: Callable[[Any], Any], rows: Any, divert: Callable[[int, InputError], Any] | None = None
) -> tuple[Any, Fault | None]:
    """The payloads of rows, up to the first that has none; or with something else in the place of each such row.

    Args:
        make: from rows, or some of them, their payloads; it raises InputError if one has none.
        rows: of any kind that can be sliced.
        divert: from the number of a row, and why it has no payload, what takes its place; None for nothing.

    Returns:
        Payloads, as columns where `make` gives columns alone, and what ended them.
    """
    made: list[Any] = []
    parts = [(0, len(rows))]
    while parts:
        start, end = parts.pop()
        try:
            made.append(make(rows[start:end]))
        except InputError as error:
            half = (start + end) // 2
            if end - start > 1:
                parts += [(half, end), (start, half)]
            elif divert is None:
                return joined(made), Fault(start, error)
            else:
                made.append([divert(start, error)])
    return made[0] if len(made) == 1 else joined(made), None
