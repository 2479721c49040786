"""A process that dies before or after one of its calls, as tests have it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


#: Positions at which checkpoints were taken, and what the sink committed there; each is above the one before.
Taken = list[tuple[int, Any]]


def write_steps(sink: Any, write: Callable[[Any, int, int], None], steps: Sequence[int | None], taken: Taken) -> None:
    """Write to a sink what a run would that resumes from the last checkpoint, and say that it is complete.

    Args:
        write: writes the items from one position to another.
        steps: batches, by their numbers of items, and checkpoints (None).
        taken: the new checkpoints are appended.
    """
    at, resumed = 0, taken[-1][0] if taken else 0
    for step in steps:
        if step is None:
            checkpoint = at, sink.commit()
            if not taken or at > taken[-1][0]:
                taken.append(checkpoint)
        elif at + step > resumed:
            write(sink, max(at, resumed), at + step)
        at += step or 0
    sink.complete()
