"""How much a program may make of a batch before it stops.

Invariant: `listed` has the results of all calls, or raises `Full` after not many more calls than those that filled the
room.

Why: how much functions will make is not known before they are called, and a batch of numbers may become one of
gigabytes. So the results are measured while they are made, one of each `_AT_ONCE`. That costs some nanoseconds for each
result: a hundredth of what is done with rows and texts, but more of what is done with numbers. So a function whose last
batch ended with a number is not measured in the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from drift_graph.payloads import are_rows
from drift_graph.sizes import BATCH_BYTES, size_of

#: What a program may make at once. It is more than batches are made for, so that only a jump in size reaches it.
ROOM_BYTES = 8 * BATCH_BYTES
#: Calls after which the results are measured; the first time after fewer.
_AT_ONCE, _FIRST = 256, 8
_NUMBERS = frozenset({int, float, bool, type(None)})


class Full(Exception):
    """A program has made too much of a batch.

    Attributes:
        share: of the payloads for one of its maps, for how many there would be room, as (so many, of so many).
    """

    def __init__(self, share: tuple[int, int]) -> None:
        super().__init__(share)
        self.share = share


class Room:
    """The room for what a program makes of one batch."""

    __slots__ = ("_bytes", "_made")

    def __init__(self, room_bytes: int = ROOM_BYTES) -> None:
        self._bytes = room_bytes
        self._made = 0

    def take(self, results: Sequence[Any], done: int, count: int) -> None:
        """Note new results of a function.

        Args:
            done: how many calls were made for the batch.
            count: how many the batch needs.

        Raises:
            Full: they fill the room, and more are to come.
        """
        self._made += size_of(results[-1]) * len(results)
        if self._made > self._bytes and done < count:
            before = done - len(results)
            raise Full((before or done * BATCH_BYTES // self._made, count))


def are_numbers(results: Sequence[Any]) -> bool:
    """Whether the last of a function's results is a number or nothing: then the next batch's are not measured."""
    return not are_rows(results) and bool(results) and type(results[-1]) in _NUMBERS


def listed(results: Iterator[Any], count: int, room: Room | None) -> list[Any]:
    """The results of calls that are made as they are iterated over; `count` of them, or fewer.

    Raises:
        Full: they fill the room.
    """
    if room is None:
        return list(results)
    every: list[Any] = []
    at_once = min(_FIRST, _AT_ONCE)
    while True:
        before = len(every)
        every.extend(islice(results, at_once))
        if len(every) == before:
            return every
        room.take(every[before:], len(every), count)
        at_once = min(8 * at_once, _AT_ONCE)


def in_pieces(call: Callable[[Sequence[Any]], list[Any]], payloads: Sequence[Any], room: Room | None) -> list[Any]:
    """The results of a function of many payloads, called on some of them at a time. Raises Full: they fill the room."""
    if room is None:
        return call(payloads)
    every: list[Any] = []
    for start in range(0, len(payloads), _AT_ONCE):
        results = call(payloads[start : start + _AT_ONCE])
        every += results
        if results:
            room.take(results, len(every), len(payloads))
    return every
