"""Maps in a row, each of which gives one payload for one, called as one.

Invariant: `called_in_a_row` returns, or raises, what calling one function after the other over the whole batch does.

Why: the functions are pure, so the order of calls for different payloads does not matter. Which call has raised is not
known here: the caller finds out by calling them one after the other. A payload between two maps is freed before the
next one is made, so it stays in the processor's cache, and no list of them is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Function = Callable[[Any], Any]


def called_in_a_row(functions: Sequence[Function], payloads: Sequence[Any]) -> list[Any]:
    """What the last of these functions gives for each payload, each being given what the one before it gives."""
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
