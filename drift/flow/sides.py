"""A long immutable sequence that grows at its end and is cut at its beginning: the entries of one side of a join.

Invariant: a side is a tuple of chunks, none of them empty or longer than `_CHUNK_MAX`; concatenated they are the
sequence.

Why: the last chunk takes entries until it has `_LAST_MAX`; then chunks are joined from the end, while one is no longer
than the next and both fit into one. So an entry is copied 32 times on average in the last chunk, and four times after
that, as a pointer; and a cut costs no more than the chunks that it removes. A flat tuple would be copied for each
entry: a million entries of one key would take a million million copies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

Side = tuple[tuple[Any, ...], ...]

_LAST_MAX = 64
_CHUNK_MAX = 1024
_FEW = 8  # entries that are looked through one by one

_time = itemgetter(0)


def side_of(entries: Sequence[Any]) -> Side:
    return tuple([tuple(entries[start : start + _CHUNK_MAX]) for start in range(0, len(entries), _CHUNK_MAX)])


def appended(side: Side, entry: Any) -> Side:
    if not side:
        return ((entry,),)
    last = side[-1]
    if len(side) == 1 and len(last) < _LAST_MAX:
        return ((*last, entry),)
    if len(last) < _LAST_MAX:
        return (*side[:-1], (*last, entry))
    chunks = list(side)
    while len(chunks) > 1 and len(chunks[-2]) <= len(chunks[-1]) <= _CHUNK_MAX - len(chunks[-2]):
        chunks[-2:] = [chunks[-2] + chunks[-1]]
    return (*chunks, (entry,))


def cut(side: Side, bound: int) -> Side:
    """The side without entries below a time; entries are (time, ...), in order of time."""
    if not side or side[0][0][0] >= bound:
        return side
    first = side[0]
    if len(side) == 1 and len(first) <= _FEW:
        for at, entry in enumerate(first):
            if entry[0] >= bound:
                return (first[at:],)
        return ()
    start = 0
    while start < len(side) and side[start][-1][0] < bound:
        start += 1
    if start:
        side = side[start:]
    if side and side[0][0][0] < bound:
        first = side[0]
        return (first[bisect_left(first, bound, key=_time) :], *side[1:])
    return side


def reached(side: Side, bound: int) -> tuple[Side, Iterable[Any]]:
    """The entries from a time on, and the side, cut there unless it is short: its next entry will cut it."""
    if not side or side[0][0][0] >= bound:
        return side, chain(*side)
    first = side[0]
    if len(side) == 1 and len(first) <= _FEW:
        return side, [entry for entry in first if entry[0] >= bound]
    side = cut(side, bound)
    return side, chain(*side)
