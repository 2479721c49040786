"""The fields of payloads, which are the columns of tables.

Invariant: the order of fields depends on the payloads alone: it is that of their first occurrence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import Any

from drift_graph.errors import PayloadError
from drift_graph.functions import safe_text

#: The column of payloads that have no fields.
VALUE = "value"

_SHOWN_MAX = 12
DECLARE = (
    "where sinks or sources differ, take the items of one, of=NAME; else name types that hold all values, "
    "columns={NAME: pyarrow type}, or take payloads as they are: iterate over the run, or drift.Record(PATH).items()"
)


def values_of(payloads: list[Any], names: Sequence[str], of: str) -> list[list[Any]]:
    """The values of each field: of tuples in their order, of others by name; of what has no fields, itself."""
    if not payloads:
        return [[] for _ in names]
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
            several = f"{', '.join(names[:_SHOWN_MAX])} ... ({len(names):,} in all)"
            wanted = ", ".join(names) if len(names) <= _SHOWN_MAX else several
            raise PayloadError(
                f"the payloads of {of!r} have the fields {wanted}, but one of them has not all of these: "
                f"{safe_text(repr, payload, 200)}; a table is of payloads that have the same fields: {DECLARE}",
                step=of,
            )
    return [
        [payload.get(name) if isinstance(payload, dict) else payload[at] for payload in payloads]
        for at, name in enumerate(names)
    ]


def names_in(payloads: Sequence[Any]) -> list[str]:
    """Names of the fields that payloads have; those of a tuple are numbered."""
    names: dict[str, None] = {}
    for payload in _shapes(payloads):
        names |= dict.fromkeys(names_of(payload))
    return list(names)


def _shapes(payloads: Sequence[Any]) -> Iterable[Any]:
    """One payload, or more, of each kind that there is: all others have the fields of one of them."""
    kinds = dict(zip(map(type, payloads), payloads))
    if len(kinds) == 1 and dict in kinds:
        return dict(zip(map(tuple, payloads), payloads)).values()
    if len(kinds) == 1 and tuple in kinds:
        return (max(payloads, key=len),)
    return payloads if kinds.keys() & {dict, tuple} else kinds.values()


def names_of(payload: Any) -> Sequence[str]:
    if isinstance(payload, dict) and all(type(name) is str for name in payload):
        return list(payload)
    named = getattr(payload, "_fields", None) or getattr(payload, "__struct_fields__", None)
    if named is not None:
        return list(named)
    if is_dataclass(payload):
        return [field.name for field in fields(payload)]
    if isinstance(payload, tuple) and payload:
        return [str(index) for index in range(len(payload))]
    return [VALUE]
