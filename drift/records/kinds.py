"""What made a step's states, by the step's fingerprint: its kind, and the parameters of the catalogue's functions.

Invariant: two steps of which `made_otherwise` says nothing read and store each other's states alike, if the functions
of users do.

Why: a function of the catalogue is an object of this library, and its fingerprint names its class and has the hash of
each of its values. What users wrote, functions, fields, expressions and objects of their own classes, may be mended
with states staying; whoever does so says it. A value that only one of two fingerprints has is not compared: one of them
is of a version that did not have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

#: Modules of classes that are kinds of steps and of aggregates; other classes stand for users' functions.
_KINDS = ("drift.operators.", "drift.flow.")
#: Of these, those that stand for users' functions.
_OF_USERS = ("drift.flow.fields.",)
#: Types of values that are functions too: names of fields, and expressions.
_FUNCTIONS = ("drift_graph.moments.Field", "drift.flow.fields.", "drift.columns.", "polars.", "type")
_CLASS, _INITIAL = "class", "initial"

#: Of each function of a step, by the place in it: the hash that is compared, and the text for people.
Made = list[dict[str, tuple[Any, str]]]


def made_of(step: Sequence[dict[str, Any]]) -> Made:
    """What makes the states of a step, of which this has the operators."""
    prints = [print_["parts"] for each in step for _, print_ in sorted(each["functions"].items())]
    return [dict(_walked(parts, 0, "", ())) if _is_walked(parts[0]) else {} for parts in prints]


def made_otherwise(then: Made, now: Made) -> str:
    """What is different in what makes the states of a step, naming both; "" if nothing is."""
    found: dict[str, None] = {}
    for before, after in zip(then, now):
        others: list[str] = []  # places of another kind: what is inside of them says no more
        for place in [each for each in before if each in after]:
            if before[place][0] == after[place][0] or place.startswith(tuple(others)):
                continue
            inside, _, name = place.rpartition(".")
            others.append(f"{place}." if name != _CLASS else f"{inside}." if inside else "")
            named = "" if name == _CLASS else f"{name} "
            found[f"{named}{after[place][1]} (before {before[place][1]})"] = None
    return ", ".join(sorted(found))


def _walked(
    parts: Sequence[dict[str, Any]], index: int, place: str, inside: tuple[int, ...]
) -> Iterator[tuple[str, tuple[Any, str]]]:
    """The places of a part, classes first."""
    part = parts[index]
    if index in inside:
        return
    if kind := _kind_of(part):
        yield f"{place}{_CLASS}", (kind, kind.rpartition(".")[2])
    values = {value["name"]: value for value in part["values"]}
    for name, value in values.items():
        if name == _CLASS or (part["kind"] == "method" and name != "object"):
            continue
        inner = parts[value["part"]] if "part" in value else None
        shown = str(value["shown"] if inner is None else inner["name"])
        if name == _INITIAL:  # users' own: another value of the same type is as another function
            yield f"{place}{name}", (value["type"], f"of type {value['type']}")
        elif inner is not None and _is_walked(inner):
            yield f"{place}{name}", ("part", shown)
            yield from _walked(parts, value["part"], f"{place}{name}.", (*inside, index))
        elif inner is None and not _is_function(value):
            yield f"{place}{name}", (value["hash"], shown)
        else:  # where a step has one key for all, that is a function of the library
            of_library = name == "key" and shown.startswith("drift")
            yield f"{place}{name}", (shown, shown.rpartition(".")[2]) if of_library else ("", "a function")


def _kind_of(part: dict[str, Any]) -> str:
    """The class of a part, if it is a kind; else ""."""
    kind = next((str(value.get("shown")) for value in part["values"] if value["name"] == _CLASS), "")
    return kind if kind.startswith(_KINDS) and not kind.startswith(_OF_USERS) else ""


def _is_walked(part: dict[str, Any]) -> bool:
    if part["kind"] == "method":  # of one of the library's objects
        return any(
            value["name"] == "function" and str(value.get("shown")).startswith(_KINDS) for value in part["values"]
        )
    return part["kind"] in ("tuple", "list") or bool(_kind_of(part))


def _is_function(value: dict[str, Any]) -> bool:
    return "function" in value["type"] or "method" in value["type"] or value["type"].startswith(_FUNCTIONS)
