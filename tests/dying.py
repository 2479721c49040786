"""A process that dies before or after one of its calls, as tests have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Death(BaseException):
    """The process is gone."""


def dying(function: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    """The function, before and after whose calls there may be so many moments before the process is gone; with a
    negative number it lives.
    """

    def called(*arguments: Any, **more: Any) -> Any:
        for step in (lambda: None, lambda: function(*arguments, **more)):
            if left[0] == 0:
                raise Death
            left[0] -= 1
            result = step()
        return result

    return called
