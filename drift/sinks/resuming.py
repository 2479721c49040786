"""What of an output a place has already, for sinks that store the last position with their data.

Invariant: what `new` gives continues what is there: nothing twice, nothing left out.

Why: a rerun gives the same items at the same positions, so those up to the stored position are there; and where the
meta at that position is another than the stored one, the output is that of another graph or input, and is refused.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

from drift_graph.errors import SettingsError, SinkError
from drift_graph.meta import Metas

Resume = Literal["continue", "replace", "error"]


class Last(NamedTuple):
    """The last item that is there: its position and its meta."""

    position: int
    meta: bytes


class Resuming:
    """
    Args:
        place: what is written to, for errors.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._before: Last | None = None
        self._reached = True

    def begin(self, before: Last | None) -> None:
        """What earlier runs have written."""
        self._before, self._reached = before, before is None

    def new(
        self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]
    ) -> tuple[Sequence[int], Metas, Sequence[Any]]:
        """Those of the items that are not there yet.

        Raises:
            SinkError: what is there is of another output.
        """
        if self._reached or self._before is None:
            return positions, metas, payloads
        position, meta = self._before
        known = bisect_right(positions, position)
        self._reached = positions[-1] >= position
        if known and self._reached and (positions[known - 1], metas[known - 1]) != (position, meta):
            raise SinkError(
                f"{self._place} has an item at position {position} that this run does not give; another graph, input "
                f"or version wrote it, and it is left as it was; take another place, or pass resume='replace' "
                f"(--on-existing replace). Live items in arrival time are stamped by the clock, so that no rerun gives "
                f"them again: use event time"
            )
        return positions[known:], metas[known:], payloads[known:]

    @property
    def goes_on(self) -> bool:
        """There is more than was given until now."""
        return not self._reached

    def complete(self) -> None:
        """
        Raises:
            SinkError: there is more than this run gave.
        """
        if not self._reached and self._before is not None:
            raise SinkError(
                f"{self._place} goes on up to position {self._before.position}, and the output of this run ends "
                f"before; a run with more input, or another graph, wrote it, and it is left as it was; take another "
                f"place, or pass resume='replace' (--on-existing replace)"
            )


def check_resume(resume: str) -> None:
    """
    Raises:
        SettingsError: it is none.
    """
    if resume not in get_args(Resume):
        raise SettingsError(f"resume={resume!r} is neither 'continue' nor 'replace' nor 'error'")


def refuse_existing(place: str, before: object) -> None:
    """
    Raises:
        SinkError: something is there, and the sink is not to go on with it.
    """
    if before:
        raise SinkError(
            f"{place} has items already; take them away, or pass resume='continue' or resume='replace' (--on-existing)"
        )
