"""The payloads of a batch: values in a list, values known to be plain, or canonical forms in place of values.

Invariant: nobody outside this file asks for the kind of payloads; a selection from payloads has their kind.

Why: what a kind states (each value is plain; each value is its canonical form) holds for every single value, so also
for any selection in any order, but not for values that are added. So kinds are subclasses of list: selecting and
joining work as for lists, and `of_kind` restores the kind.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import compress
from typing import Any, TypeGuard


class Plain(list[Any]):
    """Values whose types `encode_many` need not check: the code that made them has checked all their parts."""

    __slots__ = ()


class Forms(list[bytes]):
    """Canonical bytes in place of values, for code that only sorts, counts and hashes them."""

    __slots__ = ()


def are_forms(values: Collection[Any]) -> TypeGuard[Forms]:
    """Whether these are canonical forms in place of values."""
    return type(values) is Forms


def are_known_plain(values: Collection[Any]) -> bool:
    """Whether all are known to be plain."""
    return type(values) is Plain


def of_kind(values: list[Any], chosen: list[Any]) -> list[Any]:
    """`chosen`, a selection from `values`, as the same kind of list."""
    return chosen if type(values) is list else type(values)(chosen)


def cut(values: list[Any], start: int, end: int) -> list[Any]:
    """The values from index `start` up to `end`."""
    return of_kind(values, values[start:end])


def chosen(values: list[Any], wanted: Sequence[int]) -> list[Any]:
    """The values for which `wanted` has a 1."""
    return of_kind(values, list(compress(values, wanted)))


def in_order(values: list[Any], order: Sequence[int]) -> list[Any]:
    """The values at these indices, in this order."""
    return of_kind(values, list(map(values.__getitem__, order)))


def together(several: Sequence[list[Any]], made: list[Any]) -> list[Any]:
    """`made`, a list combined from several lists, as their kind; forms and values must not be mixed."""
    kinds = set(map(type, several))
    assert len(kinds) <= 1 or Forms not in kinds
    return of_kind(several[0], made) if len(kinds) == 1 else made


def are_of_one_kind(several: Sequence[list[Any]]) -> bool:
    """Whether all are forms, or none is."""
    return len({type(values) is Forms for values in several}) <= 1
