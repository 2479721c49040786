"""Which sink each of some items is for.

Invariant: item i is for `names[numbers[i]]`, and names differ.

Why: a byte for each item in place of a name is cut, counted and looked for in calls of C.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, overload

from drift_graph.item import Columns
from drift_graph.metas import Metas
from drift_graph.payloads import in_order, interleaved

NAMES_MAX = 256


class SinkOfEach(Sequence[str]):
    """The names of the sinks of items, of which there are at most `NAMES_MAX`."""

    __slots__ = ("_names", "_numbers")

    def __init__(self, names: Sequence[str], numbers: bytes) -> None:
        self._names, self._numbers = names, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> SinkOfEach: ...

    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return SinkOfEach(self._names, self._numbers[at])
        return self._names[self._numbers[at]]

    def __iter__(self) -> Iterator[str]:
        return map(self._names.__getitem__, self._numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def counts(self) -> dict[str, int]:
        """How many items each sink has that has any."""
        counts = zip(self._names, map(self._numbers.count, range(len(self._names))))
        return {name: count for name, count in counts if count}

    def wanted(self, name: str) -> bytes:
        """A byte for each item, 1 where it is for this sink."""
        return self._numbers.translate(bytes(each == name for each in self._names).ljust(NAMES_MAX, b"\0"))


def sinks_counted(sinks: str | Sequence[str], items: int) -> dict[str, int]:
    """How many items each sink has that has any.

    Args:
        sinks: one name for all of the items, or one for each.
    """
    if isinstance(sinks, str):
        return {sinks: items} if items else {}
    return sinks.counts() if isinstance(sinks, SinkOfEach) else dict(Counter(sinks))


def sink_wanted(sinks: Sequence[str], name: str) -> bytes:
    """A byte for each item, 1 where it is for this sink."""
    return sinks.wanted(name) if isinstance(sinks, SinkOfEach) else bytes(each == name for each in sinks)


def in_turn(names: Sequence[str], several: Sequence[Columns]) -> tuple[Metas, Any, Sequence[str]]:
    """The metas, payloads and sinks of some sinks' batches in the order of all metas; those of each increase."""
    metas, payloads = [each.metas for each in several], [each.payloads for each in several]
    if len(names) > NAMES_MAX:
        order, merged = Metas.joined(metas).sorted()
        sinks = [name for name, each in zip(names, metas) for _ in each]
        return merged, in_order([value for values in payloads for value in values], order), in_order(sinks, order)
    owners, merged = Metas.merged(metas)
    return merged, interleaved(payloads, owners), SinkOfEach(names, owners)
