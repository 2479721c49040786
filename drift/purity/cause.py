"""The description of an impure function: the two results, the likely cause, and what to do.

Invariant: a cause is named only if a trial shows it: two different results become equal once the clock stands still,
once the random numbers have one seed, or the like. Otherwise the message says that the cause is unknown.
"""

from __future__ import annotations

import math
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


class Orders(NamedTuple):
    """A call whose result depended on earlier calls.

    Attributes:
        alone: its result as the first call of a process.
        others: calls before it in another process, where its result was `after`.
    """

    alone: Facts
    others: int
    after: CallResult


class Finding(NamedTuple):
    """A call that gave two results.

    Attributes:
        result: its result in the run, shaped; or the exception.
        facts: from each replica.
        found: by the closer checks; see `trials.Check`.
        orders: None if earlier calls do not matter.
    """

    result: Any
    facts: list[Facts]
    found: str
    orders: Orders | None = None


class Cause(NamedTuple):
    """Why two results differ.

    Attributes:
        results: two or more that differ, each with its circumstances.
        likely: the cause.
        remedy: what to do.
        sure: whether a trial shows it.
        of_order: whether it is the order of calls.
    """

    results: list[tuple[CallResult, str]]
    likely: str
    remedy: str
    sure: bool = True
    of_order: bool = False


def changed_in_place(subject: Subject, packed: bytes, arguments: tuple[Any, ...]) -> ImpureStep:
    """The error for a call that changed its arguments."""
    before = trials.rebuilt(packed)
    what, old, new = "payload", before[0], arguments[0]
    if subject.shape in ("pair", "process"):  # (state, payload, ...)
        what, old, new = "payload", before[1], arguments[1]
        if trials.form_of_result("one", old) == trials.form_of_result("one", new):
            what, old, new = "state", before[0], arguments[0]
    first = ""
    if what == "state" and arguments[0] is subject.initial:
        first = "; it is `initial` itself, with which every key begins"
    remedy = "return a new one: (*old, x) for old.append(x), {**old, key: x} for old[key] = x, old | {x} for old.add(x)"
    lines = [
        f"{subject.title} is not pure: it changed its {what} in place",
        f"  at       {subject.where}",
        f"  input    {_arguments_text(subject, before)}",
        f"  before   {_short(old)}",
        f"  after    {_short(new)}",
        f"  likely   a method that changes what it is called on, an assignment to a part, or +={first}",
        f"  to do    {remedy}",
    ]
    return ImpureStep("\n".join(lines), step=subject.step, where=subject.where)


def impure(subject: Subject, packed: bytes, cause: Cause) -> ImpureStep:
    """The error for a call that gave two results."""
    lines = [
        f"{subject.title} is not pure: for equal input it gave different results",
        f"  at       {subject.where}",
        f"  input    {_arguments_text(subject, trials.rebuilt(packed))}",
        *(f"  result   {outcome.shown}    {how}" for outcome, how in cause.results),
        f"  likely   {cause.likely}",
        f"  to do    {cause.remedy}",
    ]
    return ImpureStep("\n".join(lines), step=subject.step, where=subject.where)


def cause_of(subject: Subject, finding: Finding) -> Cause:
    """The likely cause of a finding."""
    ours = _outcome(subject, finding.result)
    for fact in finding.facts:
        if (cause := _of_closer_check(fact, finding.found)) or (cause := _between_calls(fact)):
            return cause
    if finding.orders is not None:
        return _of_calls(finding.orders)
    for fact in finding.facts:
        if fact.other_order is not None and fact.other_order.form != fact.first.form:
            results = [
                (fact.first, "with a set in it"),
                (fact.other_order, "with the same set, filled in another order"),
            ]
            return _of_order(results, fact)
    for fact in finding.facts:
        if (cause := _of_home(fact)) is not None:
            return cause
    return _between_processes(finding.facts, ours) or _not_again(finding.facts, ours)


def _of_closer_check(fact: Facts, found: str) -> Cause | None:
    if fact.random_seeded is not None and fact.random_other is not None and _equal(fact.random_seeded):
        results = [(fact.first, "the first time"), (fact.again, "called again")]
        if fact.first.form == fact.again.form:
            results = [
                (fact.random_seeded[0], "with one state of the random numbers"),
                (fact.random_other, "with another"),
            ]
        return _of_random(results, _first(fact.uses, "random"))
    if found == "clock" and _clock_matters(fact):
        return _of_clock(fact)
    if found.startswith("setting "):
        name = found.removeprefix("setting ")
        if name in fact.settings and fact.settings[name].form != fact.first.form:
            where = next((use.where for use in fact.uses if use[:2] == ("setting", name)), "")
            return Cause(
                [(fact.first, "as it is"), (fact.settings[name], f"with another value of {name}")],
                f"it reads the environment variable {name!r}{_at(where)}, which may have another value elsewhere",
                "read it where the graph is built, and give the value to the function: functools.partial(f, value)",
            )
    return None


def _between_calls(fact: Facts) -> Cause | None:
    """A cause of results that differ between calls in one process."""
    results = [(fact.first, "the first time"), (fact.again, "called again")]
    differs = fact.first.form != fact.again.form
    if not differs:
        return _of_clock(fact) if _clock_matters(fact) else None
    if fact.clock_still is not None and _equal(fact.clock_still):
        return _of_clock(fact)
    if (use := _first(fact.uses, "generator")) is not None:
        return Cause(
            results,
            f"it draws from a random generator whose state lasts from call to call, {use.what} at {use.where}",
            f"seed by the payload, random.Random(drift.canonical(payload)), or {_RECORDED}",
        )
    if fact.changed_state:
        name, where = next(iter(sorted(fact.changed_state.items())))
        return Cause(
            results,
            f"it has a state between calls: {name} changed{_at(where)}",
            "make it a state of the graph: use scan(key, initial, step), count or reduce",
        )
    if (use := _first(fact.uses, "address")) is not None or fact.shows_address:
        return _of_address(results, use)
    if (use := _first(fact.uses, "random")) is not None:
        return _of_random(results, use)
    return Cause(
        results,
        "a value that changes from call to call and is not in the payload; no single clock, random number or "
        "variable explains it" + _what_it_does(fact),
        f"let the result depend on the payload alone, or {_RECORDED}",
        sure=False,
    )


def _of_calls(orders: Orders) -> Cause:
    """A cause of results that are repeatable but depend on earlier calls."""
    alone, others, after = orders
    changed = sorted(alone.changed_state.items())
    what = f": {changed[0][0]} changed{_at(changed[0][1])}" if changed else ""
    calls = "one other" if others == 1 else f"{others} others"
    return Cause(
        [(alone.first, "as the first call of a process"), (after, f"in another process, after {calls}")],
        f"it depends on earlier calls{what}; another engine, or a correction, makes calls in another order",
        "let the result depend on the payload alone, or make it a state of the graph: use scan, count or reduce",
        of_order=True,
    )


def _of_home(fact: Facts) -> Cause | None:
    """A cause in the folder or the time zone of a process."""
    if fact.first.form != fact.again.form:
        return None
    folder, zone = fact.at_home["folder"], fact.at_home["time zone"]
    if folder.form != fact.first.form:
        use = _first(fact.uses, "process") or _first(fact.uses, "outside")
        return Cause(
            [(folder, "in the folder of this process"), (fact.first, "in another folder")],
            f"it reads the working directory{_by(use)}, or a file by a path that is relative to it",
            "give the function an absolute path that is made where the graph is built: "
            "functools.partial(f, Path('names.csv').resolve())",
        )
    if zone.form != fact.first.form:
        return Cause(
            [(zone, "in the time zone of this process"), (fact.first, "in another time zone")],
            f"it reads the machine's time zone{_by(_first(fact.uses, 'clock'))}",
            "name the zone: datetime.fromtimestamp(seconds, datetime.UTC), or a ZoneInfo, and zones in payloads",
        )
    return None


def _between_processes(facts: list[Facts], ours: CallResult) -> Cause | None:
    """A cause of results that are the same within a process and differ between two."""
    differing = [each for each in facts if each.first.form != facts[0].first.form]
    if differing:
        one, other = facts[0], differing[0]
        results = [(one.first, "in one process"), (other.first, "in another one, with another hash seed")]
    elif facts[0].first.form != ours.form:
        one, other = facts[0], facts[0]
        results = [(ours, "in this process"), (one.first, "in another one, with another hash seed")]
    else:
        return None
    if (use := _first(one.uses, "process")) is not None:
        return Cause(
            results,
            f"it reads a property of its process, {use.what} at {use.where}",
            "read it once where the graph is built, and give the value to the function",
        )
    if (use := _first(one.uses, "hash")) is not None or "hash" in one.names:
        return Cause(
            results,
            f"it calls hash(){_at(use.where if use else '')}, which differs from process to process for text, "
            f"bytes, dates and most objects",
            "use a hash that is the same everywhere: zlib.crc32(text.encode()), or hashlib",
        )
    if (use := _first(one.uses, "address")) is not None or one.shows_address:
        return _of_address(results, use)
    if (use := _first(one.uses, "random")) is not None and not one.sets and one.other_order is None:
        return _of_random(results, use)
    if differing and (cause := _made_at_import(one, other, results)) is not None:
        return cause
    if not differing and (name := _global_that_differs(facts, results)):
        return name
    return _of_order(results, one)


def _made_at_import(one: Facts, other: Facts, results: list[tuple[CallResult, str]]) -> Cause | None:
    """A value that each process makes for itself when it imports the module."""
    names = sorted(name for name in one.held if one.held[name] != other.held.get(name, one.held[name]))
    if not names or one.sets or one.other_order is not None:
        return None
    return Cause(
        results,
        f"it reads {names[0]}, which is made when its module is imported, and is another one in each process",
        "make the value from the payload, or where the graph is built, and give it to the function: "
        "functools.partial(f, value)",
    )


def _global_that_differs(facts: list[Facts], results: list[tuple[CallResult, str]]) -> Cause | None:
    """The globals of this process are not known here; if both replicas agree and this process differs, a global is the
    cause.
    """
    names = sorted(set.union(*(set(fact.globals_read) for fact in facts)))
    if not names or facts[0].sets:
        return None
    shown = ", ".join(map(repr, names))
    return Cause(
        results,
        f"it reads a global that was changed after its module was imported, and other processes import the module "
        f"anew; its code mentions {shown}",
        "give the value to the function where the graph is built: functools.partial(f, value)",
        sure=False,
    )


def _not_again(facts: list[Facts], ours: CallResult) -> Cause:
    fact = facts[0]
    if (use := _first(fact.uses, "random")) is not None:
        return _of_random([(ours, "in the run; another call returned something else")], use)
    return Cause(
        [(ours, "in the run; another call returned something else"), (fact.first, "now")],
        "a cause that shows rarely: all calls made for this message returned the same" + _what_it_does(fact),
        f"let the result depend on the payload alone, or {_RECORDED}",
        sure=False,
    )


def _of_clock(fact: Facts) -> Cause:
    use = _first(fact.uses, "clock")
    assert use is not None and fact.clock_still is not None and fact.clock_moved is not None
    results = [(fact.first, "the first time"), (fact.again, "called again")]
    if fact.first.form == fact.again.form:
        results = [(fact.clock_still[0], "now"), (fact.clock_moved, "with the clock 400 days later")]
    return Cause(
        results,
        f"it reads the clock, {use.what} at {use.where}",
        f"take the time from the payload, where the source puts it, or {_RECORDED}",
    )


def _of_random(results: list[tuple[CallResult, str]], use: Use | None) -> Cause:
    assert use is not None
    return Cause(
        results,
        f"it draws random numbers, {use.what} at {use.where}",
        f"seed by the payload, random.Random(drift.canonical(payload)), or {_RECORDED}",
    )


def _of_address(results: list[tuple[CallResult, str]], use: Use | None) -> Cause:
    how = f"id() at {use.where}" if use is not None else "the repr() of an object that has none of its own"
    return Cause(
        results,
        f"it gives the address of an object in memory, {how}",
        "use what the object holds, or a key of it, in place of its address",
    )


def _of_order(results: list[tuple[CallResult, str]], fact: Facts) -> Cause:
    floats = [outcome.floats for outcome, _ in results]
    has_set = bool(fact.sets) or fact.other_order is not None
    if has_set and len(floats[0]) == len(floats[1]) > 0 and all(map(math.isclose, *floats)):
        return Cause(
            results,
            f"it adds floats in the order of a set{_built(fact)}, and a sum of floats depends on the order",
            "sort before adding, or use math.fsum, whose result does not depend on the order",
        )
    if not has_set:
        return Cause(
            results,
            "a value that differs between processes: most often the order of a set, or hash()" + _what_it_does(fact),
            "let the result depend on the payload alone; iterate over sorted(the_set, key=drift.canonical)",
            sure=False,
        )
    return Cause(
        results,
        f"it depends on the order of a set{_built(fact)}, which is another one in each process",
        "iterate over sorted(the_set), or where members cannot be compared sorted(the_set, key=drift.canonical)",
    )


def _built(fact: Facts) -> str:
    if fact.sets:
        return f" that it builds{_at(fact.sets[0])}"
    return " in its input"


def _what_it_does(fact: Facts) -> str:
    kinds: dict[Kind, str] = {"outside": "reads from outside", "clock": "reads the clock", "random": "draws at random"}
    does = [f"{kinds[use.kind]} ({use.what} at {use.where})" for use in fact.uses if use.kind in kinds]
    return f". It {', '.join(does)}" if does else ""


def _clock_matters(fact: Facts) -> bool:
    return (
        fact.clock_still is not None
        and fact.clock_moved is not None
        and fact.clock_still[0].form != fact.clock_moved.form
    )


def _first(uses: list[Use], kind: Kind) -> Use | None:
    return next((use for use in uses if use.kind == kind), None)


def _equal(pair: tuple[CallResult, CallResult]) -> bool:
    return pair[0].form == pair[1].form and pair[0].form is not None


def _by(use: Use | None) -> str:
    return f", {use.what} at {use.where}" if use is not None else ""


def _at(where: str) -> str:
    return f" at {where}" if where else ""


def _outcome(subject: Subject, result: Any) -> CallResult:
    if isinstance(result, BaseException):
        return CallResult(
            trials.form_of_error(result), f"raised {type(result).__name__}: {safe_text(str, result, 200)}"
        )
    return trials.outcome_of_result(subject, shaped(subject.shape, result))


def _arguments_text(subject: Subject, arguments: tuple[Any, ...]) -> str:
    if subject.shape in ("pair", "process"):
        return f"{_short(arguments[1])}, with state {_short(arguments[0])}"
    return _short(arguments[0])


def _short(value: Any) -> str:
    return safe_text(repr, value, _CHARACTERS_MAX)
