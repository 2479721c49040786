"""The description of a failed call of a user's function, in the same words on every engine."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from drift_graph.canonical import NoCanonicalForm
from drift_graph.errors import DriftError, PayloadError, ProcessError, StepError
from drift_graph.functions import field_of, is_ours, safe_text
from drift_graph.item import Failure
from drift_graph.meta import MetaParts
from drift_graph.operators import Operator, location_of

#: A meta grows with each operator it passes; a longer one has been round a cycle that does not end.
META_BYTES_MAX = 65536

_PAYLOAD_CHARACTERS_MAX = 500
_MESSAGE_CHARACTERS_MAX = 2000
_META_CHARACTERS_MAX = 1000
_UNSENDABLE = "unsendable"
_PICKLABLE = "payloads have to be picklable (no lambdas, open files or locks); or use engine='local'"
_of_payloads = frozenset({NoCanonicalForm.__qualname__, _UNSENDABLE})


class EndlessCycle(Exception):
    """An item's meta is longer than META_BYTES_MAX. Not an exception of the user."""


class EndsItsProcess(Exception):
    """Stands for a call that has ended its process repeatedly. Not an exception of the user."""


def check_lengths(operator: Operator, metas: Iterable[bytes]) -> None:
    """Check the metas of items, or of timers, that are on their way round a cycle.

    Raises:
        EndlessCycle: one is too long.
    """
    if max(map(len, metas), default=0) > META_BYTES_MAX:
        raise EndlessCycle(
            f"an item has come back to {operator.name!r} until its meta passed {META_BYTES_MAX} bytes; the cycle never "
            f"ends: let a map in it return no payload at some point, or an on_time set no timer that fires at once"
        )


def failed_step(operator: Operator, error: BaseException, payload: Any) -> Failure:
    """The item that replaces the output of a failed call.

    Raises:
        DriftError: the error itself, if it ends the run at once.
    """
    if isinstance(error, DriftError) and error.ends_the_run:
        raise error
    location = _failing_line(error.__traceback__) or location_of(operator)
    kind = type(error).__qualname__
    show = field_of(getattr(operator, "function", None), "shown", repr)
    shown = safe_text(show, payload, _PAYLOAD_CHARACTERS_MAX)
    said = safe_text(str, error, _MESSAGE_CHARACTERS_MAX)
    message = (
        f"step {operator.step!r} ({operator.label}) raised {kind}: {said}\n"
        f"  at       {location}\n"
        f"  declared {operator.where}\n"
        f"  payload  {shown}"
    )
    users = [line for line in traceback.extract_tb(error.__traceback__) if not is_ours(line.filename)]
    trace = "".join(traceback.format_list(users))
    return Failure(operator.step, kind, message, location, trace)


def unsendable(operator: Operator, error: Exception, payload: Any) -> Failure:
    """The item that replaces one that cannot be sent to another process."""
    message = (
        f"step {operator.step!r} ({operator.label}) made a payload that cannot be sent to another process\n"
        f"  why      {type(error).__qualname__}: {safe_text(str, error, _MESSAGE_CHARACTERS_MAX)}\n"
        f"  declared {operator.where}\n"
        f"  payload  {safe_text(repr, payload, _PAYLOAD_CHARACTERS_MAX)}\n"
        f"  help     {getattr(error, 'advice', _PICKLABLE)}"
    )
    return Failure(operator.step, _UNSENDABLE, message, location_of(operator))


def without_form(operator: Operator, none: NoCanonicalForm, payload: Any) -> Failure:
    """The item that replaces one that a grouping could not distinguish from others."""
    message = (
        f"step {operator.step!r} ({operator.label}) made a payload that a grouping after it cannot distinguish from "
        f"others: {none}\n"
        f"  declared {operator.where}\n"
        f"  payload  {safe_text(repr, payload, _PAYLOAD_CHARACTERS_MAX)}"
    )
    return Failure(operator.step, NoCanonicalForm.__qualname__, message, location_of(operator))


def step_error(failure: Failure, meta: bytes) -> DriftError:
    """The error that ends the run when a failure is released at `meta`."""
    shown = safe_text(str, f"{MetaParts(meta)} ({meta.hex()})", _META_CHARACTERS_MAX)
    message = f"{failure.message}\n  meta     {shown}"
    if failure.kind == EndsItsProcess.__qualname__:
        return ProcessError(
            f"{message}\n  help     everything before this item is released; mend the function, or take the item out "
            f"of the input"
        )
    kind = PayloadError if failure.kind in _of_payloads else StepError
    error = kind(message, step=failure.step, where=failure.where, meta=meta)
    if failure.trace:
        error.add_note(f"In the user's code:\n{failure.trace.rstrip()}")
    return error


def no_form_error(step: str, none: NoCanonicalForm, payload: Any, meta: bytes) -> PayloadError:
    """The error for a released item that has no canonical form."""
    error = step_error(formless(step, none, payload), meta)
    assert isinstance(error, PayloadError)
    return error


def formless(step: str, none: NoCanonicalForm, payload: Any) -> Failure:
    """The item that replaces one for a sink that has no canonical form."""
    message = (
        f"step {step!r} made a payload that cannot be compared between runs: {none}\n"
        f"  payload  {safe_text(repr, payload, _PAYLOAD_CHARACTERS_MAX)}"
    )
    return Failure(step, NoCanonicalForm.__qualname__, message, "")


def _failing_line(trace: TracebackType | None) -> str | None:
    """ "file:line" of the first frame outside this library, which is the user's."""
    for frame, line in traceback.walk_tb(trace):
        if not is_ours(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{line}"
    return None
