"""Differences between two graphs' fingerprints, in words.

Invariant: two fingerprints with different `structure` or `code` give at least one change that matters, or one that says
what cannot be compared; equal ones give none that does.

Why: every field that is hashed is compared here; what remains are ranks, and edges inside a step. Steps are matched by
one evidence after the other, see `matched`; the rest came or went.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from operator import itemgetter
from typing import Any, Literal

from drift.records.fingerprint import Fingerprint
from drift_graph.canonical import canonical

Kind = Literal["structure", "policy", "function", "value", "name", "unknown"]


@dataclass(frozen=True)
class Change:
    """One difference between two graphs.

    Attributes:
        kind: what differs: the structure, a time policy, a function's code, a value that a function holds, only a name;
            or "unknown" if it cannot be determined.
        step: the step's name in the second graph, or in the first if it was removed.
        matters: whether it can change the output. False for names that do not reach the output, and for unknown kinds.
        before, after: "file:line" in the first and in the second graph, or "".
        diff: unified diff of the source, or "".
    """

    kind: Kind
    step: str
    text: str
    matters: bool = True
    before: str = ""
    after: str = ""
    diff: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare(old: Fingerprint, new: Fingerprint, *, states_by_name: bool = False) -> list[Change]:
    """What changed from one graph to the other, in the order of the second one's steps.

    Args:
        states_by_name: match steps with state by their names alone, and none by its position.
    """
    steps_old, steps_new = steps_of(old), steps_of(new)
    pairs = matched(old, new, states_by_name=states_by_name)
    changes: list[Change] = []
    if old["format"] != new["format"]:
        text = f"functions cannot be compared: their hashes are of form {old['format']}, and now of {new['format']}"
        changes.append(Change("unknown", "", text, matters=False))
    if old["name"] != new["name"]:
        changes.append(Change("name", "", f"the graph is named {new['name']!r}, before {old['name']!r}", matters=False))
    changes += [_removed(name, step) for name, step in steps_old.items() if name not in pairs]
    found = {new_name: old_name for old_name, new_name in pairs.items()}
    for name, step in steps_new.items():
        if name not in found:
            changes.append(_added(name, step, new))
        else:
            changes += _step_changes(found[name], steps_old[found[name]], name, step, old["format"] == new["format"])
    changes += _edge_changes(old, new, pairs)
    changes = list(dict.fromkeys(changes))
    if not any(change.matters for change in changes) and old["structure"] != new["structure"]:
        text = "steps are declared in another order, or connected in another way inside, which metas show"
        changes.append(Change("structure", "", text))
    return changes


_Step = list[dict[str, Any]]


def steps_of(fingerprint: Fingerprint) -> dict[str, _Step]:
    """Operators by the step they belong to, in the order of declaration."""
    steps: dict[str, _Step] = {}
    for operator in fingerprint["operators"]:
        steps.setdefault(operator["step"], []).append(operator)
    return steps


def content_of(step: _Step) -> bytes:
    """What a step does, without names and ranks."""
    functions = [[(role, found["code"]) for role, found in each["functions"].items()] for each in step]
    return canonical([(each["kind"], each["parameters"]) for each in step]) + canonical(functions)


def matched(before: Fingerprint, after: Fingerprint, *, states_by_name: bool = False) -> dict[str, str]:
    """Names of the steps of the first graph -> names in the second; see `compare`.

    In this order, each for those that are left:

    1. the place, where the graphs are the same but for names;
    2. the name, where it was given in both graphs: of sources, of sinks, and of steps that users named, or of which
       they said what it was;
    3. what a step does, and between which steps. Metas show where an item has passed, and the name of a step that was
       given none hangs on the steps that are declared before it;
    4. the name that a step got without being given one;
    5. the position, one for one: a lambda, or a function that was renamed.

    States go by names, so a step with state, or with answers, is matched by its name alone, given or not, if
    `states_by_name`; else it is if it does the same.
    """
    old, new = steps_of(before), steps_of(after)
    contents = [{name: content_of(step) for name, step in steps.items()} for steps in (old, new)]
    pairs: dict[str, str] = {}

    def is_of_its_name(step: _Step) -> bool:
        return _is_named(step) or (states_by_name and is_known_by_name(step))

    def pair(ones: Iterable[str], others: Iterable[str], is_it: Callable[[str, str], bool]) -> None:
        free = set(new).difference(pairs.values())
        for one, other in zip(ones, others):
            if one not in pairs and other in free and _kinds(old[one]) == _kinds(new[other]) and is_it(one, other):
                pairs[one] = other
                free.discard(other)

    def is_given(one: str, other: str) -> bool:
        return all(is_given_name(step) or is_of_its_name(step) for step in (old[one], new[other])) or (
            has_state(old[one]) and contents[0][one] == contents[1][other]
        )

    if _without_names(before) == _without_names(after):
        pair(old, new, lambda one, other: one == other or not is_known_by_name(old[one]))
    pair(old, old, is_given)
    alike: dict[bytes, tuple[list[str], list[str]]] = {}
    for side, (steps, content) in enumerate(zip((old, new), contents)):
        for name in steps:
            if not is_of_its_name(steps[name]) and name not in (pairs, pairs.values())[side]:
                alike.setdefault(content[name], ([], []))[side].append(name)
    _pair_by_neighbours(pairs, list(alike.values()), step_edges(before), step_edges(after))
    pair(old, old, lambda one, other: True)
    if states_by_name:
        return pairs
    rest = [name for name in old if name not in pairs and not is_of_its_name(old[name])]
    others = [name for name in new if name not in pairs.values() and not is_of_its_name(new[name])]
    if len(rest) == len(others) and all(_kinds(old[a]) == _kinds(new[b]) for a, b in zip(rest, others)):
        pairs |= dict(zip(rest, others))
    return pairs


def _without_names(graph: Fingerprint) -> tuple[list[bytes], list[tuple[int, int, bool]]]:
    """What operators do, in the order of their declaration, and their edges; without ranks, which a graph that has
    changed keeps from before.
    """
    operators = graph["operators"]
    index = {each["name"]: at for at, each in enumerate(operators)}
    does = [content_of([each]) + canonical(each["name"] if _is_named([each]) else None) for each in operators]
    return does, sorted((index[edge["origin"]], index[edge["target"]], edge["feedback"]) for edge in graph["edges"])


def _pair_by_neighbours(
    pairs: dict[str, str],
    alike: list[tuple[list[str], list[str]]],
    edges_old: Iterable[tuple[str, str, bool]],
    edges_new: Iterable[tuple[str, str, bool]],
) -> None:
    """Add pairs of steps that do the same: those with the most neighbours that are pairs, else of one name, else the
    first.

    Args:
        alike: steps that do the same, of both graphs.
    """
    around: dict[str, list[tuple[str, bool, bool]]] = {}
    for origin, target, back in edges_old:
        around.setdefault(origin, []).append((target, False, back))
        around.setdefault(target, []).append((origin, True, back))
    now = set(edges_new)

    def common(one: str, other: str) -> int:
        found = 0
        for neighbour, is_origin, back in around.get(one, ()):
            paired = pairs.get(neighbour)
            found += (paired, other, back) in now if is_origin else (other, paired, back) in now
        return found

    while alike := [group for group in alike if all(group)]:
        certain: list[tuple[str, str]] = []
        guesses: list[tuple[int, bool, str, str]] = []
        for olds, news in alike:
            counts = {(one, other): common(one, other) for one in olds for other in news}
            for one in olds:
                most = max(counts[one, other] for other in news)
                best = [other for other in news if counts[one, other] == most]
                rivals = [each for each in olds if counts[each, best[0]] >= most]
                if len(best) == len(rivals) == 1:
                    certain.append((one, best[0]))
                guesses.append((most, one in best, one, one if one in best else best[0]))
        for one, other in certain or [max(guesses, key=itemgetter(0, 1))[2:]]:
            pairs[one] = other
            for olds, news in alike:
                if one in olds and other in news:
                    olds.remove(one)
                    news.remove(other)


def _is_named(step: _Step) -> bool:
    """Whether it is a source or a sink, whose names a run refers to."""
    return step[0]["kind"] in ("source", "sink")


def is_given_name(step: _Step) -> bool:
    """Whether the user named it, as far as is known."""
    return "unnamed" not in step[0]


def has_state(step: _Step) -> bool:
    return "group" in _kinds(step)


def is_known_by_name(step: _Step) -> bool:
    """Whether a state has something under its name: states, or answers of a call."""
    return has_state(step) or any("asked" in each for each in step)


def _kinds(step: _Step) -> list[str]:
    return [each["kind"] for each in step]


def _removed(name: str, step: _Step) -> Change:
    return Change("structure", name, f"{_word(step)} {name!r} is gone", before=step[0]["where"])


def _added(name: str, step: _Step, new: Fingerprint) -> Change:
    own = {each["name"] for each in step}
    steps = {each["name"]: each["step"] for each in new["operators"]}
    origins = dict.fromkeys(steps[edge["origin"]] for edge in new["edges"] if edge["target"] in own)
    after = ", ".join(repr(origin) for origin in origins if origin != name)
    return Change(
        "structure", name, f"{_word(step)} {name!r} is new" + (f", after {after}" if after else ""),
        after=step[0]["where"],
    )  # fmt: skip


def _word(step: _Step) -> str:
    return step[0]["kind"] if _is_named(step) else "step"


def _step_changes(old_name: str, old: _Step, name: str, new: _Step, same_format: bool) -> Iterator[Change]:
    before, after = old[0]["where"], new[0]["where"]
    if old_name != name:
        yield Change("name", name, f"step {name!r} was named {old_name!r}", False, before, after)
    for one, other in zip(old, new):
        yield from _parameter_changes(name, one, other)
        yield from _schema_changes(name, one, other)
        if "asked" in one and "asked" in other:
            yield from _asked_changes(name, one, other) if same_format else ()
            continue
        for role in {**one["functions"], **other["functions"]}:
            if role not in other["functions"]:
                yield Change("policy", name, f"{_of(name, role)} is gone", before=before, after=after)
            elif role not in one["functions"]:
                yield Change("policy", name, f"{_of(name, role)} is new", before=before, after=after)
            elif same_format:
                yield from _function_changes(name, role, one["functions"][role], other["functions"][role])


def _asked_changes(step: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[Change]:
    for role, function in old["asked"].items():
        for change in _function_changes(step, role, function, new["asked"][role]):
            text = f"{change.text}; answers that are logged stay as they are"
            yield replace(change, text=text, matters=False)


def _of(step: str, role: str) -> str:
    return f"the {role} function of {step!r}" if role != "function" else f"the function of step {step!r}"


_PLAIN = {
    "window": "window of step {step!r}: {old} -> {new} items",
    "arity": "step {step!r} is a map of arity {new!r}, before {old!r}",
    "asks": "whether step {step!r} is a call: {old} -> {new}",
    "timed": "whether step {step!r} gets the times of items: {old} -> {new}",
    "later": "whether step {step!r} puts items at later times: {old} -> {new}",
    "time policy": "source {step!r} is in {new}, before in {old}",
    "lateness": "lateness of source {step!r}: {old} -> {new}",
    "allowed": "allowed of source {step!r}: {old} -> {new}",
    "late": "what source {step!r} does with late items: {old} -> {new}",
    "idle_after_ms": "idle_after_ms of source {step!r}: {old} -> {new}",
    "unit": "unit of times of source {step!r}: {old} -> {new}",
    "future_max": "future_max of source {step!r}: {old} -> {new}",
    "zone": "the zone of times without one of source {step!r}: {old} -> {new}",
    "ambiguous": "what source {step!r} does with times that are shown twice: {old} -> {new}",
}
#: What parameters are that are not in a fingerprint; others are None.
_LEFT_OUT: dict[str, Any] = {"allowed": 0, "ambiguous": "error", "asks": False, "timed": False, "later": False}
#: Parameters of operators; the others are those of time policies.
_OF_STEPS = frozenset({"window", "arity", "asks", "timed", "later"})


def _parameter_changes(step: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[Change]:
    of_one, of_other = old["parameters"], new["parameters"]
    is_one_policy = of_one.get("time policy") == of_other.get("time policy")
    for name in {**of_one, **of_other}:
        one, other = (each.get(name, _LEFT_OUT.get(name)) for each in (of_one, of_other))
        if one != other and (is_one_policy or name == "time policy"):
            text = _PLAIN[name].format(step=step, old=one, new=other)
            yield Change("structure" if name in _OF_STEPS else "policy", step, text,
                         before=old["where"], after=new["where"])  # fmt: skip


def _schema_changes(step: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[Change]:
    """What rows a source has: only graphs that an earlier version described do not say it."""
    if "schema" not in old or "schema" not in new:
        return
    then, now = old["schema"] or {}, new["schema"] or {}
    if list(then.items()) == list(now.items()):
        return
    other = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    fields = ", ".join(f"{name} {then.get(name, 'not there')} -> {now.get(name, 'not there')}" for name in other)
    fields = fields or f"{', '.join(then)} -> {', '.join(now)}, in another order, which functions and sinks see"
    yield Change("value", step, f"the schema of source {step!r}: {fields}", True, old["where"], new["where"])


def _function_changes(step: str, role: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[Change]:
    if old["code"] == new["code"]:
        if old["name"] != new["name"]:
            text = f"{_of(step, role)} is named {new['name']}, before {old['name']}; it does the same"
            yield Change("name", step, text, False, old["where"] or "", new["where"] or "")
        return
    found = list(_part_changes(step, role, old, new))
    if not found:
        text = f"{_of(step, role)}, {new['name']}, reaches other code than before"
        found = [Change("function", step, text, True, old["where"] or "", new["where"] or "")]
    yield from found


def _part_changes(step: str, role: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[Change]:
    """Part by part, in the order in which the function reaches them: its own code, values it holds, functions it
    calls.
    """
    visited: set[tuple[int, int]] = set()
    todo = [(0, 0)]
    for pair in todo:
        one, other = old["parts"][pair[0]], new["parts"][pair[1]]
        same_code = one["code"] == other["code"]
        if one["from"] != other["from"] and one["from"] and other["from"]:
            text = f"{_of(step, role)}, {other['name']}, cannot be compared: its source is not known, here or there"
            yield Change("unknown", step, text, False, one["where"] or "", other["where"] or "")
            same_code = True
        elif one["kind"] != other["kind"] or not same_code:
            yield _code_change(step, role, one, other)
        values, others = ({value["name"]: value for value in part["values"]} for part in (one, other))
        for name in dict.fromkeys([*values, *others]):
            before, after = values.get(name), others.get(name)
            if before is not None and after is not None and "part" in before and "part" in after:
                following = before["part"], after["part"]
                if following not in visited:
                    visited.add(following)
                    todo.append(following)
            elif _differ(before, after) and (same_code or (before and after)):
                yield _value_change(step, role, name, one, other, before, after, old, new)


def _differ(before: dict[str, Any] | None, after: dict[str, Any] | None) -> bool:
    if before is None or after is None:
        return True
    keys = ("hash", "type")
    return "part" in before or "part" in after or [before[key] for key in keys] != [after[key] for key in keys]


def _code_change(step: str, role: str, old: dict[str, Any], new: dict[str, Any]) -> Change:
    called = new["name"] if old["name"] == new["name"] else f"{new['name']}, before {old['name']},"
    text = f"{_of(step, role)} changed: {called}"
    if new["where"]:
        text += f" at {new['where']}"
    return Change("function", step, text, True, old["where"] or "", new["where"] or "", _diff(old, new))


def _diff(old: dict[str, Any], new: dict[str, Any]) -> str:
    if old["text"] is None or new["text"] is None or old["text"] == new["text"]:
        return ""
    lines = difflib.unified_diff(
        old["text"].splitlines(), new["text"].splitlines(), old["where"] or "before", new["where"] or "after",
        lineterm="",
    )  # fmt: skip
    return "\n".join(lines) + "\n"


def _value_change(
    step: str,
    role: str,
    name: str,
    one: dict[str, Any],
    other: dict[str, Any],
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
    old: dict[str, Any],
    new: dict[str, Any],
) -> Change:
    holder = other["name"] if other["kind"] in ("function", "class", "library object") else ""
    text = f"{_of(step, role)} changed: {_value_name(name)}{f' of {holder}' if holder else ''} is " + (
        f"{_shown(after, new)}, before {_shown(before, old)}"
        if before is not None and after is not None
        else f"new: {_shown(after, new)}"
        if before is None
        else f"gone: {_shown(before, old)}"
    )
    return Change("value", step, text, True, one["where"] or old["where"] or "", other["where"] or new["where"] or "")


def _value_name(name: str) -> str:
    kind, _, rest = name.partition(" ")
    words = {"closure": "the variable", "global": "the module's", "default": "the default of", "base": "the base class"}
    return f"{words[kind]} {rest}" if kind in words and rest else name


def _shown(value: dict[str, Any] | None, function: dict[str, Any]) -> str:
    if value is None:
        return "nothing"
    if "part" in value:
        return str(function["parts"][value["part"]]["name"])
    return value["shown"] if value["shown"] is not None else f"a {value['type']}"


def _edge_changes(old: Fingerprint, new: Fingerprint, pairs: dict[str, str]) -> Iterator[Change]:
    """Changed edges of graphs that have the same steps; where steps have come or gone, these explain others."""
    if any(len(steps_of(graph)) > len(pairs) for graph in (old, new)):
        return
    before = {(pairs[a], pairs[b], back): (a, b) for a, b, back in step_edges(old)}
    now = step_edges(new)
    for origin, target, back in now:
        if (origin, target, back) not in before:
            yield Change("structure", target, f"{_edge(back)} {origin!r} -> {target!r} is new")
    for edge, (origin, target) in before.items():
        if edge not in now:
            yield Change("structure", edge[1], f"{_edge(edge[2])} {origin!r} -> {target!r} is gone")


def _edge(back: bool) -> str:
    return "the feedback edge" if back else "the edge"


def step_edges(fingerprint: Fingerprint) -> dict[tuple[str, str, bool], None]:
    """Edges as (step, step, feedback), without those inside a step."""
    steps = {each["name"]: each["step"] for each in fingerprint["operators"]}
    found = ((steps[edge["origin"]], steps[edge["target"]], edge["feedback"]) for edge in fingerprint["edges"])
    return dict.fromkeys(edge for edge in found if edge[0] != edge[1])


def changes_text(changes: Iterable[Change]) -> str:
    """Changes as lines of text, each followed by its diff of the source."""
    lines: list[str] = []
    for change in changes:
        lines.append(change.text)
        lines += [f"    {line}" for line in change.diff.splitlines()]
    return "\n".join(lines)
