"""The base of metas that are computed on access.

Invariant: a kind equals the list that `listed` gives, for every question.

Why: most metas are never needed one by one: the digest joins them, partitioning chooses some, and machines need the
first and the last. So a kind stores what its metas are made of, and computes one on access. A kind overrides only what
it does better than a list.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import lt
from typing import overload

from drift_graph.meta import time_of


class ComputedMetas(Sequence[bytes]):
    """Metas that are computed on access.

    Attributes:
        increasing: whether each is known to be above the one before it.
        some_later: whether some may belong to later items.
        one_length: whether all have the same length.
    """

    __slots__ = ("_list",)

    increasing = True
    some_later = False
    one_length = True
    _list: list[bytes] | None

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.listed())

    def listed(self) -> list[bytes]:
        """As a list, which is cached."""
        if self._list is None:
            self._list = self._computed()
        return self._list

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> ComputedMetas: ...
    def __getitem__(self, at: int | slice) -> bytes | ComputedMetas:
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            assert step == 1
            if start == 0 and stop == len(self):
                return self  # keeps the metas that these were chosen from
            return self._cut(start, max(start, stop))
        if at < 0:
            at += len(self)
        if not 0 <= at < len(self):
            raise IndexError(at)
        return self._at(at)

    @abstractmethod
    def _at(self, index: int) -> bytes: ...

    @abstractmethod
    def _cut(self, start: int, stop: int) -> ComputedMetas: ...

    @abstractmethod
    def _computed(self) -> list[bytes]: ...

    @abstractmethod
    def made_of(self) -> tuple[object, ...]:
        """What the metas are computed from: those made of the same are the same."""

    @abstractmethod
    def with_suffix(self, suffix: bytes) -> ComputedMetas:
        """Each with the same bytes appended."""

    def least(self) -> bytes:
        """The least; there is one meta or more."""
        return self[0] if self.increasing else min(self.listed())

    def greatest(self) -> bytes:
        """The greatest; there is one meta or more."""
        return self[-1] if self.increasing else max(self.listed())

    def are_increasing(self) -> bool:
        """Whether each is above the one before it."""
        return self.increasing or all(map(lt, self.listed(), islice(self.listed(), 1, None)))

    def sorted(self) -> tuple[Sequence[int], ComputedMetas | list[bytes]]:
        """The indices of these metas, no two of which are equal, in sorted order; and the metas in sorted order."""
        order = sorted(range(len(self)), key=self.listed().__getitem__)
        return order, self.in_order(order, increasing=True)

    def in_order(self, order: Sequence[int], *, increasing: bool) -> ComputedMetas | list[bytes]:
        """The metas at these indices; `increasing` says whether they then increase."""
        return list(map(self.listed().__getitem__, order))

    def from_on(self, bound: bytes) -> ComputedMetas | list[bytes]:
        """The metas at or above a bound."""
        return sorted(filter(bound.__le__, self.listed()))

    def count_below(self, bound: bytes, start: int, stop: int) -> int:
        """See the function of this name in `drift_graph.metas`."""
        return bisect_left(self, bound, start, stop)

    def times(self) -> Sequence[int]:
        """The time of each."""
        return [time_of(meta) for meta in self.listed()]

    def numbers(self) -> tuple[int, bytes] | None:
        """The first time and the suffix of consecutive numbers; otherwise None."""
        return None

    def split_out_of(self) -> tuple[object, ...] | None:
        """The metas that these were chosen from; None if they were not."""
        return None

    def with_children(self, counts: Sequence[int], endings: Sequence[bytes]) -> ComputedMetas | None:
        """The metas of each parent's children, with suffixes of one length; None if a list is as good."""
        return None

    def followed_by(self, later: ComputedMetas) -> ComputedMetas | None:
        """These and further metas as computed ones; None if the further ones do not continue these."""
        return None

    @abstractmethod
    def joined(self, head: bytes) -> bytes:
        """head + meta of every item, joined, in few calls into C."""

    def joined_behind(self, head_of: Callable[[int], bytes]) -> bytes:
        """As `joined`, for one item or more, with a head that depends on the length of the meta."""
        return self.joined(head_of(len(self[0])))
