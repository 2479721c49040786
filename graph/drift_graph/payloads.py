"""The payloads of a batch: values in a list, values that were looked into, or canonical forms in their place.

Invariant: nobody outside of this file asks which kind payloads are of; what is made of some of them is of their kind.

Why: what a kind says of its values (that each is plain, that each is its canonical form) holds for any of them, in any
order; it does not hold for what is added to them. So kinds are lists: cutting, choosing and joining are what lists do,
and `of_kind` says again what is known.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import compress
from typing import Any, TypeGuard


class Plain(list[Any]):
    """Values that `encode_many` need not look into: who made them has looked into all that they are made of."""

    __slots__ = ()


class Forms(list[bytes]):
    """Canonical bytes in place of plain values, for who only orders, counts and hashes them."""

    __slots__ = ()


def are_forms(values: Collection[Any]) -> TypeGuard[Forms]:
    """Whether canonical forms stand in place of the values."""
    return type(values) is Forms


def is_looked_into(values: Collection[Any]) -> bool:
    """Whether somebody has said that all are plain."""
    return type(values) is Plain


def of_kind(values: list[Any], chosen: list[Any]) -> list[Any]:
    """Some of the values, chosen, as the kind of list that all were."""
    return chosen if type(values) is list else type(values)(chosen)


def cut(values: list[Any], start: int, end: int) -> list[Any]:
    """Those between two places."""
    return of_kind(values, values[start:end])


def chosen(values: list[Any], wanted: Sequence[int]) -> list[Any]:
    """Those that have a 1."""
    return of_kind(values, list(compress(values, wanted)))


def in_order(values: list[Any], order: Sequence[int]) -> list[Any]:
    """Those at these places, in this order."""
    return of_kind(values, list(map(values.__getitem__, order)))


def together(several: Sequence[list[Any]], made: list[Any]) -> list[Any]:
    """What was made of several, which are of one kind, or some of which are values and none forms."""
    kinds = set(map(type, several))
    assert len(kinds) <= 1 or Forms not in kinds
    return of_kind(several[0], made) if len(kinds) == 1 else made


def are_of_one_kind(several: Sequence[list[Any]]) -> bool:
    """Whether all are forms, or none."""
    return len({type(values) is Forms for values in several}) <= 1
