"""Metas of rows: what numpy does with them at once.

Invariant: that of `drift_graph.metas`.

Why: the core has no numpy; where payloads are rows, it is there, and metas come from the rows' own kinds.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from drift_graph.meta import TIME_MIN
from drift_graph.metas import CHOSEN_OF_MAX, ChosenMetas, EventMetas, Metas, chosen_metas, numbers_of

Words = npt.NDArray[Any]

_SIGN = np.uint64(1 << 63)


class MaskedMetas(ChosenMetas):
    """A choice from metas, joined by numpy."""

    __slots__ = ()

    def joined(self, head: bytes) -> bytes:
        if not len(self):
            return b""
        mask, numbers = np.frombuffer(self.chosen, np.bool_), numbers_of(self.every)
        if numbers is None:
            rows = np.frombuffer(self.every.joined(head), f"V{len(head) + len(self.every[0])}")  # all have one length
            return rows[mask].tobytes()
        first, ending = numbers
        template = head + bytes(8) + ending
        made = np.empty(len(self), f"V{len(template)}")
        made[:] = np.frombuffer(template, made.dtype)
        kind = np.dtype({"names": ["time"], "formats": [">u8"], "offsets": [len(head)], "itemsize": len(template)})
        made.view(kind)["time"] = np.flatnonzero(mask).view(np.uint64) + np.uint64(first - TIME_MIN)
        return made.tobytes()

    def _computed(self) -> list[bytes]:
        joined, length = self.joined(b""), len(self.every[0]) if len(self) else 1
        return [joined[at : at + length] for at in range(0, len(joined), length)]


def chosen_metas_of_rows(metas: Metas, wanted: bytes) -> Metas:
    """The metas for which `wanted` has a 1."""
    if isinstance(metas, MaskedMetas):
        mask = np.zeros(len(metas.chosen), np.uint8)
        mask[np.flatnonzero(np.frombuffer(metas.chosen, np.bool_))] = np.frombuffer(wanted, np.uint8)
        return MaskedMetas(metas.every, mask.tobytes(), _ones(wanted))
    if numbers_of(metas) is None:
        found = chosen_metas(metas, wanted)
        return MaskedMetas(found.every, found.chosen, len(found)) if type(found) is ChosenMetas else found
    made = MaskedMetas(metas, wanted, _ones(wanted))  # type: ignore[arg-type]
    return made.listed() if len(made) * CHOSEN_OF_MAX < len(wanted) else made


def _ones(flags: bytes) -> int:
    return int(np.count_nonzero(np.frombuffer(flags, np.bool_)))


class StampMetas(EventMetas):
    """Metas in event time, compared and sorted by numpy."""

    __slots__ = ()

    @property
    def _words(self) -> Words:
        """A row for each item: the time, as its bytes are in metas, and the tie."""
        return np.frombuffer(self.stamps, ">u8").reshape(-1, 2)

    def time_array(self) -> npt.NDArray[np.int64]:
        """`times` in an array."""
        return (self._words[:, 0].astype(np.uint64) ^ _SIGN).view(np.int64)

    def times(self) -> Sequence[int]:
        found: list[int] = self.time_array().tolist()
        return found

    def chosen(self, wanted: bytes) -> StampMetas:
        """The metas for which `wanted` has a 1."""
        return self._with(self._words[np.frombuffer(wanted, np.bool_)].tobytes(), increasing=self.increasing)

    def are_increasing(self) -> bool:
        return self.increasing or bool(_above(self._words[1:], self._words[:-1]).all())

    def are_different(self) -> bool:
        words = self._words
        return not (words[1:] == words[:-1]).all(axis=1).any()

    def in_order(self, order: Sequence[int], *, increasing: bool) -> StampMetas:
        return self._with(self._words[np.asarray(order, np.int64)].tobytes(), increasing=increasing)

    def sorted(self) -> tuple[Sequence[int], EventMetas]:
        if self.increasing:
            return range(len(self)), self
        if self._sorted is None:
            words = self._words
            found = np.lexsort((words[:, 1].astype(np.uint64), words[:, 0].astype(np.uint64)))
            order = array("q", found.astype(np.int64).tobytes())  # its numbers are Python's, for whoever reads them
            self._sorted = order, self._with(words[found].tobytes(), increasing=True)
        return self._sorted


def _above(one: Words, other: Words) -> npt.NDArray[np.bool_]:
    """For each row of words whether it is above that of another."""
    above: npt.NDArray[np.bool_] = (one[:, 0] > other[:, 0]) | ((one[:, 0] == other[:, 0]) & (one[:, 1] > other[:, 1]))
    return above


def stamp_metas(times: npt.NDArray[np.int64], ties: Words, rank: bytes, ending: bytes) -> StampMetas:
    """The metas of items with these times and ties; see `EventMetas`."""
    words = np.empty((len(times), 2), ">u8")
    words[:, 0] = times.view(np.uint64) ^ _SIGN
    words[:, 1] = ties
    return StampMetas(words.tobytes(), rank, ending, bool((times[1:] > times[:-1]).all()))
