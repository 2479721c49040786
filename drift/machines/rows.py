"""Maps in a row, each giving one payload for each, called payload by payload.

Invariant: `called_in_a_row` has the same result as calling one function after the other over the whole batch; it raises
if one of those calls would.

Why: the functions are pure, so the order of calls for different payloads does not matter. This function does not know
which call raised: the caller finds out by calling the functions one after the other. A payload between two maps is
freed before the next one is made, so it stays in the processor's cache, and no list of such payloads is built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from drift.machines.room import Room, in_pieces

Function = Callable[[Any], Any]


def called_in_a_row(functions: Sequence[Function], payloads: Sequence[Any], room: Room | None = None) -> list[Any]:
    """The composition of the functions, the first innermost, applied to each payload.

    Raises:
        Full: there is no room for the results of all.
    """
    return in_pieces(partial(_called_on, functions), payloads, room)


def _called_on(functions: Sequence[Function], payloads: Sequence[Any]) -> list[Any]:
    values = payloads
    for start in range(0, len(functions), 4):
        match functions[start : start + 4]:
            case (first,):
                values = [first(value) for value in values]
            case first, second:
                values = [second(first(value)) for value in values]
            case first, second, third:
                values = [third(second(first(value))) for value in values]
            case first, second, third, fourth:
                values = [fourth(third(second(first(value)))) for value in values]
    return list(values) if values is payloads else values  # type: ignore[return-value]
