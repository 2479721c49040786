"""The loop of a grouping in order, generated for the length of its window.

Invariant: the window of each item is `(*before, payload)[-window:]`, where `before` is its key's previous window.

Why: cutting off the oldest payload and appending the new one makes two tuples. Code that names the payloads of a window
makes one, and takes a tenth less time for each item; the graph fixes the number of names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

Window = tuple[Any, ...]

#: The longest window whose payloads are named; from twenty on, copying them twice is as fast.
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
    """The loop for windows of `window` payloads, 1 or more: `loop(last, key_of, kind, payloads, give)`.

    It passes the window of each payload to `give` and stores it in `last`, by key, up to a payload whose key is not of
    type `kind`.
    """
    names = "".join(f"p{index}, " for index in range(1, window))
    made = f"_, {names} = before; made = {names} payload," if window <= _NAMED_MAX else "made = before[1:] + (payload,)"
    namespace: dict[str, Any] = {}
    exec(compile(_LOOP.format(window=window, made=made), f"<windows of {window}>", "exec"), namespace)
    loop: Callable[..., None] = namespace["loop"]
    return loop
