"""The description of an impure function: the two results, what it reads, changes or builds, and what to do.

Invariant: two results are shown that differ, with the circumstances of each; causes are named from what the function
was seen to read, to change and to build, the likeliest first. If it did nothing of that, the message says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from drift.purity import trials
from drift.purity.observed import Kind, Use
from drift.purity.trials import CallResult, Facts
from drift.purity.watch import Subject, shaped
from drift_graph.errors import ImpureStep
from drift_graph.functions import safe_text

_CHARACTERS_MAX = 500

#: The way out for what is meant to give something else each time.
_RECORDED = "record what it gives: stream.map(drift.recorded(f)), or stream.call(f) where it asks something outside"
_SEED = f"seed by the payload, random.Random(drift.canonical(payload)), or {_RECORDED}"
_GIVE = "read it where the graph is built, and give the value to the function: functools.partial(f, value)"
_STATE = "make it a state of the graph: use scan(key, initial, step), count or reduce"

#: Of each kind of what a function reads, changes and builds: what that means, and what to do.
_MEANS: dict[Kind, tuple[str, str]] = {
    "generator": (
        "it draws from a random generator whose state lasts from call to call, {what}{at}",
        _SEED,
    ),
    "random": ("it draws random numbers, {what}{at}", _SEED),
    "clock": (
        "it reads the clock, {what}{at}",
        f"take the time from the payload, where the source puts it, or {_RECORDED}",
    ),
    "address": (
        "it gives the address of an object in memory, {what}{at}",
        "use what the object holds, or a key of it, in place of its address",
    ),
    "hash": (
        "it calls hash(){at}, which differs from process to process for text, bytes, dates and most objects",
        "use a hash that is the same everywhere: zlib.crc32(text.encode()), or hashlib",
    ),
    "process": ("it reads a property of its process, {what}{at}", _GIVE),
    "setting": (
        "it reads the environment variable {what!r}{at}, which may have another value elsewhere",
        _GIVE,
    ),
    "folder": (
        "it reads the working directory, or a file by a path that is relative to it: {what}{at}",
        "give the function an absolute path that is made where the graph is built: "
        "functools.partial(f, Path('names.csv').resolve())",
    ),
    "locale": (
        "it reads the locale, {what}{at}",
        "write numbers and dates in one way: f'{number:,.2f}', date.isoformat()",
    ),
    "zone": (
        "it reads the machine's time zone, {what}{at}",
        "name the zone: datetime.fromtimestamp(seconds, datetime.UTC), or a ZoneInfo, and zones in payloads",
    ),
    "state": ("it has a state between calls: {what} changed{at}", _STATE),
    "kept": (
        "it depends on earlier calls, or on what its module made when it was imported: {what}{at} is not the same in "
        "two processes, which have made their calls in another order",
        f"let the result depend on the payload alone, or {_STATE}",
    ),
    "set": (
        "it depends on the order of a set {what}{at}, which is another one in each process",
        "iterate over sorted(the_set), or where members cannot be compared sorted(the_set, key=drift.canonical)",
    ),
}
#: What makes results differ between processes, the likeliest first.
_BETWEEN_PROCESSES: tuple[Kind, ...] = (
    "process", "hash", "address", "random", "set", "clock", "zone", "locale", "folder", "kept", "state",
)  # fmt: skip


class Cause(NamedTuple):
    """Why two results differ.

    Attributes:
        results: two that differ, each with its circumstances.
        likely: causes with what to do, the likeliest first; empty if nothing that the function does explains it.
    """

    results: list[tuple[CallResult, str]]
    likely: list[tuple[str, str]]


def impure(subject: Subject, packed: bytes, cause: Cause) -> ImpureStep:
    """The error for a call that gave two results."""
    (likely, remedy), *others = cause.likely or [
        (
            "a cause that shows in none of what it was seen to do: a value outside the payload that changes from call "
            "to call, or from process to process, as what a module makes when it is imported",
            f"let the result depend on the payload alone, or {_RECORDED}",
        )
    ]
    lines = [
        f"{subject.title} is not pure: for equal input it gave different results",
        f"  at       {subject.where}",
        f"  input    {_arguments_text(subject, trials.rebuilt(packed))}",
        *(f"  result   {outcome.shown}    {how}" for outcome, how in cause.results),
        f"  likely   {likely}",
        *(f"  or       {other}" for other, _ in others),
        f"  to do    {remedy}",
    ]
    return ImpureStep("\n".join(lines), step=subject.step, where=subject.where)


def cause_of(subject: Subject, result: Any, facts: list[Facts]) -> Cause:
    """The likely cause of a finding.

    Args:
        result: in the run, shaped; or the exception.
        facts: from both processes, which have made their calls in another order; before them, of others.
    """
    for fact in facts:
        for other in fact.others:
            if other.result.form != fact.first.form:
                results = [(fact.first, "the first time"), (other.result, other.how)]
                return Cause(results, list(_likely(fact.uses, other.kinds)))
    (*_, one, unlike), ours = facts, _outcome(subject, result)
    if unlike.first.form != one.first.form:
        results = [(one.first, "in one process"), (unlike.first, "in another one, with another hash seed")]
    elif one.first.form != ours.form:
        results = [(ours, "in this process"), (one.first, "in another one, with another hash seed")]
    else:
        return Cause([(ours, "in the run; another call returned something else"), (one.first, "now")], [])
    kept = [Use("kept", name, each[1]) for name, each in one.state.items() if each != unlike.state.get(name)]
    return Cause(results, list(_likely([*one.uses, *kept], _BETWEEN_PROCESSES)))


def _likely(uses: list[Use], kinds: tuple[Kind, ...]) -> Iterator[tuple[str, str]]:
    """What the first use of each kind means, and what to do."""
    for kind in kinds:
        use = next((use for use in uses if use.kind == kind), None)
        if use is not None:
            text, remedy = _MEANS[kind]
            yield text.format(what=use.what, at=_at(use)), remedy


def _at(use: Use) -> str:
    return f" at {use.where}" if use.where else ""


def _outcome(subject: Subject, result: Any) -> CallResult:
    if isinstance(result, BaseException):
        return trials.raised(result)
    return trials.result_of(subject, shaped(subject.shape, result))


def _arguments_text(subject: Subject, arguments: tuple[Any, ...]) -> str:
    if subject.shape in ("pair", "process"):
        return f"{_short(arguments[1])}, with state {_short(arguments[0])}"
    return _short(arguments[0])


def _short(value: Any) -> str:
    return safe_text(repr, value, _CHARACTERS_MAX)
