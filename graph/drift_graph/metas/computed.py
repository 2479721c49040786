"""What kinds of metas of a batch have in common, that are no list.

Invariant: a kind is equal to the list that `listed` gives, in everything that is asked of it.

Why: most metas are never needed one by one: the digest joins them, shares are chosen of them, and machines ask for the
first and the last. So a kind keeps what its metas are made of, and computes them when one is looked at. What a kind
does not do better than a list it need not define.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import lt
from typing import overload

from drift_graph.meta import time_of


class ComputedMetas(Sequence[bytes]):
    """Metas that are computed when looked at.

    Attributes:
        increasing: whether each is known to be above the one before it.
        some_later: whether some may be of later items.
        one_length: whether all have as many bytes.
    """

    __slots__ = ("_list",)

    increasing = True
    some_later = False
    one_length = True
    _list: list[bytes] | None

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.listed())

    def listed(self) -> list[bytes]:
        """As a list, which is kept."""
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
                return self  # and what it was split out of is known still
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
        """What they are computed from: metas made of the same are the same."""

    @abstractmethod
    def with_suffix(self, suffix: bytes) -> ComputedMetas:
        """Each with the same bytes appended."""

    def least(self) -> bytes:
        """Of one or more."""
        return self[0] if self.increasing else min(self.listed())

    def greatest(self) -> bytes:
        """Of one or more."""
        return self[-1] if self.increasing else max(self.listed())

    def are_increasing(self) -> bool:
        """Whether each is above the one before it."""
        return self.increasing or all(map(lt, self.listed(), islice(self.listed(), 1, None)))

    def order(self) -> Sequence[int]:
        """The places of the metas in the order of these; no two are equal."""
        return sorted(range(len(self)), key=self.listed().__getitem__)

    def in_order(self, order: Sequence[int], *, increasing: bool) -> ComputedMetas | list[bytes]:
        """Those at these places; they are known to be increasing, or are not."""
        return list(map(self.listed().__getitem__, order))

    def from_on(self, bound: bytes) -> ComputedMetas | list[bytes]:
        """Those at or above a bound."""
        return sorted(filter(bound.__le__, self.listed()))

    def times(self) -> Sequence[int]:
        """The time of each."""
        return [time_of(meta) for meta in self.listed()]

    def numbers(self) -> tuple[int, bytes] | None:
        """The first time and the ending of consecutive numbers; None of others."""
        return None

    def split_out_of(self) -> tuple[object, ...] | None:
        """What the metas are made of that these were chosen out of; None where they were not."""
        return None

    def with_children(self, counts: Sequence[int], endings: Sequence[bytes]) -> ComputedMetas | None:
        """The metas of so many children each, which have these endings of one length; None where a list is as good."""
        return None

    def followed_by(self, later: ComputedMetas) -> ComputedMetas | None:
        """These and later ones as computed ones; None where they do not go on from these."""
        return None

    @abstractmethod
    def joined(self, head: bytes) -> bytes:
        """head + meta of every item, joined, in few calls into C."""

    def joined_behind(self, head_of: Callable[[int], bytes]) -> bytes:
        """The same, of one item or more, with a head that goes by the length of the meta."""
        return self.joined(head_of(len(self[0])))
