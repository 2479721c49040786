"""The metas of a batch: a list, or a kind that is computed on access; and functions that work on either.

Invariant: nobody outside this package asks for the kind of metas, and a function here gives what it would give for the
same metas in a list.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import compress, islice
from operator import lt
from typing import TypeGuard

from drift_graph.meta import TIME_MIN
from drift_graph.metas.children import ChildMetas
from drift_graph.metas.chosen import ChosenMetas
from drift_graph.metas.computed import ComputedMetas
from drift_graph.metas.event import EventMetas
from drift_graph.metas.numbered import NumberedMetas

__all__ = [
    "ChildMetas", "ChosenMetas", "ComputedMetas", "EventMetas", "Metas", "NumberedMetas", "are_computed",
    "is_random_access_slow", "chosen_metas", "count_below", "count_upto", "greatest_meta", "have_one_length",
    "interleaved", "is_increasing", "joined_metas", "known_to_increase", "least_meta", "listed_metas", "may_be_later",
    "metas_from_on", "metas_in_order", "metas_of_children", "numbers_of", "sorted_metas", "sorted_where_cached",
    "split_out_of", "times_of", "with_suffix",
]  # fmt: skip

#: Metas of a batch, as a list or computed on access.
Metas = list[bytes] | ComputedMetas

#: At least one of so many must be chosen for a byte mask over all to be cheaper than a list.
CHOSEN_OF_MAX = 32


def chosen_metas(metas: Metas, chosen: bytes) -> Metas:
    """The metas for which `chosen` has a 1."""
    few = chosen.count(1) * CHOSEN_OF_MAX < len(chosen)
    if few or isinstance(metas, ChosenMetas) or not isinstance(metas, ComputedMetas):
        return list(compress(metas, chosen))
    if not metas.increasing or not metas.one_length:
        return list(compress(metas, chosen))
    return ChosenMetas(metas, chosen)


def interleaved(several: Sequence[Metas]) -> tuple[ComputedMetas, bytes] | None:
    """Several disjoint choices from the same metas as one, and a byte for each meta: which of the choices it is from.

    None if they are not such choices.
    """
    every: ComputedMetas | None = None
    union = owners = 0
    for index, metas in enumerate(several):
        if not isinstance(metas, ChosenMetas) or index > 0xFF:
            return None
        if every is None:
            every, made_of = metas.every, metas.every.made_of()
        elif metas.every.made_of() != made_of:
            return None
        ones = int.from_bytes(metas.chosen, "little")
        if union & ones:
            return None
        union |= ones
        owners |= ones * index
    if every is None:
        return None
    chosen, owner = (number.to_bytes(len(every), "little") for number in (union, owners))
    if 0 in chosen:
        return ChosenMetas(every, chosen), bytes(compress(owner, chosen))
    return every, owner


def joined_metas(several: Sequence[Metas]) -> Metas:
    """Metas one after the other; computed if all are and each continues the one before."""
    one: Metas | None = several[0] if several else []
    for metas in several[1:]:
        one = one.followed_by(metas) if isinstance(one, ComputedMetas) and isinstance(metas, ComputedMetas) else None
    return one if one is not None else [meta for metas in several for meta in metas]


def with_suffix(metas: Metas, suffix: bytes) -> Metas:
    """Every meta with the same bytes appended."""
    if not suffix:
        return metas
    return [meta + suffix for meta in metas] if isinstance(metas, list) else metas.with_suffix(suffix)


def are_computed(metas: Metas) -> TypeGuard[ComputedMetas]:
    """Whether they are computed on access, so that listing them takes work."""
    return not isinstance(metas, list)  # isinstance of the abstract ComputedMetas takes ten times as long


def known_to_increase(metas: Metas) -> bool:
    """Whether every meta is known to be above the one before it, without comparing them."""
    return not isinstance(metas, list) and metas.increasing


def is_increasing(metas: Metas) -> bool:
    """Whether every meta is above the one before it."""
    if isinstance(metas, list):
        return all(map(lt, metas, islice(metas, 1, None)))
    return metas.are_increasing()


def sorted_metas(metas: Metas) -> tuple[Sequence[int], Metas]:
    """The indices of the metas in sorted order, equal ones in their present order; and the metas in sorted order."""
    if isinstance(metas, ComputedMetas):
        return metas.sorted()
    order = sorted(range(len(metas)), key=metas.__getitem__)
    return order, list(map(metas.__getitem__, order))


def sorted_where_cached(metas: Metas) -> Metas:
    """Metas in event time in sorted order, which they cache for the next caller; others as they are."""
    return metas.sorted()[1] if isinstance(metas, EventMetas) else metas


def metas_in_order(metas: Metas, order: Sequence[int], *, increasing: bool = False) -> Metas:
    """The metas at these indices; `increasing` says whether they then increase."""
    if isinstance(metas, ComputedMetas):
        return metas.in_order(order, increasing=increasing)
    return list(map(metas.__getitem__, order))


def metas_from_on(metas: Metas, bound: bytes) -> Metas:
    """The metas at or above a bound; sorted metas if they are in a list."""
    return metas.from_on(bound) if isinstance(metas, ComputedMetas) else sorted(filter(bound.__le__, metas))


def is_random_access_slow(metas: Metas) -> bool:
    """Whether scattered access by index is faster on a list."""
    return not isinstance(metas, list) and not metas.one_length


def have_one_length(metas: Metas) -> bool:
    """Whether all are known to have the same length."""
    return not isinstance(metas, list) and metas.one_length


def listed_metas(metas: Metas) -> list[bytes]:
    """As a list, for callers that visit each of them."""
    return metas.listed() if isinstance(metas, ComputedMetas) else metas


def may_be_later(metas: Metas) -> bool:
    """Whether some may belong to later items."""
    return isinstance(metas, list) or metas.some_later


def times_of(metas: Metas) -> Sequence[int]:
    """The time of each meta."""
    if isinstance(metas, ComputedMetas):
        return metas.times()
    least = TIME_MIN
    return [int.from_bytes(meta[:8], "big") + least for meta in metas]


def numbers_of(metas: Metas) -> tuple[int, bytes] | None:
    """The first time and the suffix of metas that are known to be consecutive numbers; otherwise None."""
    return metas.numbers() if isinstance(metas, ComputedMetas) else None


def split_out_of(metas: Metas) -> tuple[object, ...] | None:
    """The metas that these were chosen from; None if they were not."""
    return metas.split_out_of() if isinstance(metas, ComputedMetas) else None


def metas_of_children(metas: Metas, counts: Sequence[int], endings: Sequence[bytes]) -> Metas:
    """The metas of each parent's children, of which `counts` says how many; children with one index have one suffix."""
    if len(endings) == 1:
        return [meta + endings[0] for meta in compress(metas, counts)]
    made: ComputedMetas | None = None
    many = sum(counts) >= 2 * len(counts)  # else a list is as fast
    if many and isinstance(metas, ComputedMetas) and len(endings[0]) == len(endings[-1]):
        made = metas.with_children(counts, endings)
    if made is not None:
        return made
    return [meta + ending for meta, count in zip(metas, counts) for ending in endings[:count]]


def count_below(metas: Metas, bound: bytes, start: int = 0, stop: int | None = None) -> int:
    """How many of some increasing metas are below a bound, if those before `start` are, and none from `stop` on."""
    if stop is None:
        stop = len(metas)
    return bisect_left(metas, bound, start, stop) if isinstance(metas, list) else metas.count_below(bound, start, stop)


def count_upto(metas: Metas, last: bytes) -> int:
    """How many of one or more increasing metas are at most `last`; usually none."""
    return 0 if metas[0] > last else bisect_right(metas, last)


def least_meta(metas: Metas) -> bytes:
    """The least of one meta or more."""
    return min(metas) if isinstance(metas, list) else metas.least()


def greatest_meta(metas: Metas) -> bytes:
    """The greatest of one meta or more."""
    return max(metas) if isinstance(metas, list) else metas.greatest()
