"""The fields of payloads, which are the columns of tables.

Invariant: the order of fields depends on the payloads alone: it is that of their first occurrence.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import Any, NoReturn

from drift_graph.errors import PayloadError, SettingsError
from drift_graph.functions import safe_text

#: The column of payloads that have no fields.
VALUE = "value"

_SHOWN_MAX = 12
DECLARE = (
    "where sinks or sources differ, take the items of one, of=NAME; else name types that hold all values, "
    "columns={NAME: pyarrow type}, or map the values to one type, such as text, or take payloads as they are: iterate "
    "over the run, or drift.Record(PATH).items()"
)


def check_names(columns: object) -> None:
    """Check that columns are given as names; types by name are, too, and None.

    Raises:
        SettingsError: they are not: one text is a list of letters.
        TypeError: they are no list.
    """
    names: Any = () if columns is None else columns
    if isinstance(columns, (str, bytes)) or not all(isinstance(name, str) for name in names):
        raise SettingsError(f"columns={columns!r:.80} is no list of names")


def values_of(payloads: list[Any], names: Sequence[str], of: str) -> list[list[Any]]:
    """The values of each field: of tuples in their order, of others by name; of what has no fields, itself."""
    if not payloads:
        return [[] for _ in names]
    if list(names) == [VALUE] and set(forms_in(payloads)) == {None}:
        return [list(payloads)]
    kinds = set(map(type, payloads))
    if kinds == {tuple} and set(map(len, payloads)) == {len(names)}:
        return [list(values) for values in zip(*payloads)]
    if kinds == {dict}:
        return [[payload.get(name) for payload in payloads] for name in names]
    if names and not kinds & {dict, tuple}:
        with suppress(AttributeError):
            return [list(map(attrgetter(name), payloads)) for name in names]
    if len(names) == 1 and tuple not in kinds:
        return [payloads]
    for payload in payloads:
        if not isinstance(payload, dict) and not (isinstance(payload, tuple) and len(payload) == len(names)):
            refuse_other_fields(payload, names, of)
    return [
        [payload.get(name) if isinstance(payload, dict) else payload[at] for payload in payloads]
        for at, name in enumerate(names)
    ]


def refuse_other_fields(payload: Any, names: Sequence[str], of: str) -> NoReturn:
    """Raises PayloadError: that a payload has other fields than these."""
    several = f"{', '.join(names[:_SHOWN_MAX])} ... ({len(names):,} in all)"
    wanted = ", ".join(names) if len(names) <= _SHOWN_MAX else several
    raise PayloadError(
        f"the payloads of {of!r} have the fields {wanted}, but one of them has not all of these: "
        f"{safe_text(repr, payload, 200)}; a table is of payloads that have the same fields: {DECLARE}",
        step=of,
    )


def names_in(payloads: Sequence[Any]) -> list[str]:
    """Names of the fields that payloads have; those of a tuple are numbered."""
    names: dict[str, None] = {}
    for payload in shapes_in(payloads):
        names |= dict.fromkeys(names_of(payload))
    return list(names)


def shapes_in(payloads: Sequence[Any]) -> Sequence[Any]:
    """One payload, or more, of each kind that there is: all others have the fields of one of them."""
    kinds = dict(zip(map(type, payloads), payloads))
    if len(kinds) == 1 and dict in kinds:
        return list(dict(zip(map(tuple, payloads), payloads)).values())
    if len(kinds) == 1 and tuple in kinds:
        return (max(payloads, key=len),)
    return payloads if kinds.keys() & {dict, tuple} else list(kinds.values())


def forms_in(payloads: Sequence[Any], *, named: bool = False) -> set[Any]:
    """What payloads have to have in common to be rows of one table: their only form; it is None if they have no fields.

    Args:
        named: whether the fields are named: then those of a dict and of a tuple are found alike, and so are those of
            objects that have more.
    """
    if not named:
        return set(map(_form, shapes_in(payloads)))
    found = dict(zip(map(type, payloads), payloads)).values()
    return {dict if type(each) in (dict, tuple) else None if fields_of(each) is None else object for each in found}


def _form(payload: Any) -> Any:
    names = fields_of(payload)
    if names is None or type(payload) is dict:
        return None if names is None else dict
    return len(payload) if type(payload) is tuple else frozenset(names)


def names_of(payload: Any) -> Sequence[str]:
    names = fields_of(payload)
    return [VALUE] if names is None else names


def fields_of(payload: Any) -> Sequence[str] | None:
    """Names of the fields that a payload has; None if it has none, and is a value itself."""
    if isinstance(payload, dict):
        return list(payload) if all(type(name) is str for name in payload) else None
    named = getattr(payload, "_fields", None) or getattr(payload, "__struct_fields__", None)
    if named is not None:
        return list(named)
    if is_dataclass(payload):
        return [field.name for field in fields(payload)]
    if isinstance(payload, tuple) and payload:
        return [str(index) for index in range(len(payload))]
    return None
