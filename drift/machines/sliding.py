"""The loop of a grouping in order, written for the length of its window.

Invariant: of each item the loop makes the window that `(*before, payload)[-window:]` is, of the window before it.

Why: to cut the oldest payload off and to append the new one takes two tuples. Code that names the payloads of a window
takes one, and a tenth less time for each item; how many names there are is known when the graph is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

Window = tuple[Any, ...]

#: Payloads of a window that are named; from twenty on, to copy them twice is as fast.
_NAMED_MAX = 16

_LOOP = """
def loop(last, key_of, kind, payloads, give):
    find = last.get
    for payload in payloads:
        key = key_of(payload)
        if type(key) is not kind:
            break
        before = find(key, ())
        if len(before) < {window}:
            made = *before, payload
        else:
            {made}
        last[key] = made
        give(made)
"""


@cache
def loop_over(
    window: int,
) -> Callable[[dict[Any, Window], Callable[[Any], Any], type, Sequence[Any], Callable[[Window], None]], None]:
    """The loop for windows of so many payloads, one or more: `loop(last, key_of, kind, payloads, give)`.

    It gives the window of each payload and puts it into `last`, by key, up to a payload whose key is not of the kind.
    """
    names = "".join(f"p{index}, " for index in range(1, window))
    made = f"_, {names} = before; made = {names} payload," if window <= _NAMED_MAX else "made = before[1:] + (payload,)"
    namespace: dict[str, Any] = {}
    exec(compile(_LOOP.format(window=window, made=made), f"<windows of {window}>", "exec"), namespace)
    loop: Callable[..., None] = namespace["loop"]
    return loop
