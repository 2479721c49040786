"""Times and ties of payloads, computed by users' functions.

Invariant: if a function raises, or returns something that is not a time or a tie, the error names the source, the
function and the payload; the items before it in the batch are still accepted.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from drift_graph.canonical import NoCanonicalForm, hash64, hash64_each
from drift_graph.diverted import diverted, diverted_by, is_diverted, may_be_of_item
from drift_graph.errors import DriftError, ImpureStep, InputError, PayloadError, StepError
from drift_graph.functions import field_of, line_of, name_of, pass_interrupts, safe_text
from drift_graph.lateness import short
from drift_graph.meta import TIME_MAX, TIME_MIN
from drift_graph.metas import Integers
from drift_graph.moments import column_of, results_of, why_no_moment
from drift_graph.payloads import Timed, are_rows
from drift_graph.policies import EventTime
from drift_graph.unchanged import Sample
from drift_kernel import kernel


def times_of(
    payloads: list[Any], policy: EventTime, source: str, items_before: int | None = None
) -> tuple[Integers, Exception | None]:
    """The payloads' times in an array, up to the first payload without one.

    Args:
        items_before: number of items of the source before these, if the source numbers its items.
    """
    failure: Exception | None = None
    times, error = _called(policy.time, payloads, unsigned=False)
    if error is not None:
        pass_interrupts(error)
        if isinstance(error, DriftError) and error.ends_the_run:
            raise error
        bad = payloads[len(times)]
        nth = "" if items_before is None else f", item {items_before + len(times)} of the source"
        failure = _raised("time", policy.time, source, error, f"{short(bad)}{nth}")
    if type(times) is array and policy.unit is None:
        return times, failure
    numbers = array("q")
    for index, time in enumerate(times):
        number = policy.time_of(time)
        if number is None:  # before the payload for which the function raised, if it did
            return numbers, InputError(
                f"the time function of source {source!r} gave {time!r} for payload {short(payloads[index])}; "
                f"a time is an int of 64 bits, or a moment with a zone: {_how_to_time(time, policy)}"
            )
        numbers.append(number)
    return numbers, failure


def check_payloads(samples: Sequence[Sample], policy: EventTime, role: str, source: str) -> None:
    """Called after a function of the policy.

    Args:
        role: of the function, as in `policy.functions`.

    Raises:
        ImpureStep: the function has changed a payload.
    """
    for each in samples:
        if each.is_changed:
            function = policy.functions[role]
            where = line_of(function) or name_of(function)
            raise ImpureStep(
                f"the {role} function of source {source!r} ({where}) changed a payload in place: {each.difference}; "
                f"steps get the same payload, and it is part of the order of items: let the function only read it, "
                f"as sorted(x)[0] in place of x.sort()",
                step=source,
                where=where,
            )


def timed_rows(payloads: Any, policy: EventTime) -> Timed | None:
    """The times and ties of rows in arrays; None if these are no rows, or if one may have no time."""
    time, tie = column_of(policy.time), column_of(policy.tie)
    if not are_rows(payloads) or time is None or (tie is None and policy.tie is not None) or not payloads:
        return None
    return payloads.timed(time, tie, policy)


def times_or_diverted(payloads: list[Any], policy: EventTime, source: str) -> tuple[list[Any], list[int | None]]:
    """All payloads with their times; a payload without a time, or without a tie where the policy has a function for
    it, is replaced by a diverted item, which has None.
    """
    taken: list[Any] = []
    times: list[int | None] = []
    for payload in payloads:
        time: int | None = None
        if not is_diverted(payload):
            role = "time"
            try:
                value = policy.time(payload)
                time = policy.time_of(value)
                if time is not None and policy.tie is not None:
                    role = "tie"
                    tie_number(policy.tie(payload))
            except BaseException as error:
                pass_interrupts(error)
                if not may_be_of_item(error):
                    raise _raised(role, policy.functions[role], source, error, short(payload)) from error
                payload, time = diverted_by(source, error, payload), None
            else:
                if time is None:
                    why = why_no_moment(value, policy.zone)
                    text = f"its time is {short(value)}, and no int of 64 bits, nor a moment with a zone"
                    text += f": {why}" if why else ""
                    payload = diverted(source, text, payload)
        taken.append(payload)
        times.append(time)
    return taken, times


def ties_of(
    payloads: list[Any], tie: Callable[[Any], Any], source: str, *, diverting: bool
) -> tuple[Integers, Exception | None]:
    """The user's ties in an array, up to the first payload without one."""
    if not diverting:
        ties, error = _called(tie, payloads, unsigned=True)
        if error is not None:  # raised again below, where the payload is known
            pass_interrupts(error)
        elif type(ties) is array:
            return ties, None
    found, failure = ties_one_by_one(payloads, tie, source, diverting=diverting)
    return array("Q", found), failure


def _called(
    function: Callable[[Any], Any], payloads: list[Any], *, unsigned: bool
) -> tuple[Integers, BaseException | None]:
    """Call a function with each payload, up to the call that raises.

    Returns:
        The results, in an array if all are integers of 64 bits, else in a list; and what was raised.
    """
    if kernel is not None and type(payloads) is list and field_of(function, "each") is None:
        return kernel.called(function, payloads, unsigned)
    results: list[Any] = []
    try:
        results.extend(results_of(function, payloads))
        if len(results) != len(payloads):  # the function raised StopIteration, which `map` takes for its end
            function(payloads[len(results)])
    except BaseException as error:
        return results, error
    if set(map(type, results)) <= {int}:
        try:
            return array("Q" if unsigned else "q", results), None
        except OverflowError:
            pass
    return results, None


def ties_of_policy(
    payloads: list[Any], policy: EventTime, source: str, *, diverting: bool = False
) -> tuple[Integers, Exception | None]:
    """The ties of payloads, hashes of them where the policy has no function, up to the first payload without one.

    Returns:
        The ties in an array, and the error of that payload.
    """
    if policy.tie is not None:
        return ties_of(payloads, policy.tie, source, diverting=diverting)
    try:
        return hashed(payloads), None
    except NoCanonicalForm as none:
        ties, error = ties_one_by_one(payloads, hash64, source, diverting=diverting)
        return array("Q", ties), error or none


def hashed(payloads: Any) -> Integers:
    """The ties of payloads that have no function for it. Raises NoCanonicalForm."""
    return numbers_of_hashes(hash64_each(payloads))


def numbers_of_hashes(hashes: bytes) -> Integers:
    """Hashes of 8 bytes, big-endian, as numbers in an array."""
    numbers = array("Q", hashes)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def tie_number(value: Any) -> int:
    """What a tie function gave, as a number of 64 bits. Raises NoCanonicalForm: it cannot be hashed."""
    return value if type(value) is int and 0 <= value < 2**64 else hash64(value)


def ties_one_by_one(
    payloads: list[Any], tie: Callable[[Any], Any], source: str, *, diverting: bool = False
) -> tuple[list[int], Exception | None]:
    ties: list[int] = []
    for payload in payloads:
        try:
            ties.append(tie_number(payload if diverting and is_diverted(payload) else tie(payload)))
        except NoCanonicalForm as none:
            return ties, PayloadError(f"source {source!r}: {none}; or give the time policy a tie function", step=source)
        except BaseException as error:
            pass_interrupts(error)
            if isinstance(error, DriftError) and error.ends_the_run:
                raise
            return ties, _raised("tie", tie, source, error, short(payload))
    return ties, None


def _how_to_time(time: Any, policy: EventTime) -> str:
    if why := why_no_moment(time, policy.zone):
        return why
    if isinstance(time, str):
        return "this is text; make it a number with int(...) or with the source's convert="
    if hasattr(time, "timestamp"):
        return "by convention milliseconds, int(moment.timestamp() * 1000)"
    if time is None:
        return "give every item a time, or remove such items before the source"
    if isinstance(time, bool) or type(time).__name__ in ("bool", "bool_"):
        return "True and False are not times; return the time of the item"
    if hasattr(type(time), "__index__") or policy.unit is not None:
        return f"this is beyond {TIME_MIN} to {TIME_MAX}, or no number; choose a coarser unit"
    return "name its unit, EventTime(..., unit='s'), or 'ms', 'us', 'ns', and it becomes milliseconds"


def _raised(role: str, function: Callable[[Any], Any], source: str, error: BaseException, payload: str) -> StepError:
    where, described = line_of(function) or name_of(function), f"{type(error).__name__}: {safe_text(str, error, 500)}"
    return StepError(
        f"the {role} function of source {source!r} ({where}) raised {described}; payload {payload}",
        step=source,
        where=where,
    )
