"""What a store of cuts is.

Invariant: a cut that `cuts` gives is one that `commit` was given, and can be gone on from; whatever ended a process.

Why: its pieces are durable before its manifest is, and nothing that a manifest names is changed while it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from drift.machines.cuts import Lookup
from drift.machines.worker import Piece
from drift.state.cut import Cut
from drift.state.pieces import Forms


class Kept(Protocol):
    """The states of a cut that a run goes on from."""

    def at_once(self, cut: Cut) -> Piece:
        """What has to be known from the beginning: the states of keys with timers, and all later items."""

    def lookup(self, step: str) -> Lookup:
        """What is found when a key is first asked for."""

    def every(self, step: str) -> Iterator[tuple[Any, Any]]:
        """All states of a step: identities of keys and what is kept of each."""


class Store(Protocol):
    """The cuts of one run; one process at a time has it open."""

    @property
    def where(self) -> str:
        """For messages."""

    def open(self, *, create: bool = True) -> None:
        """Lock it; make it where it is not there, and `create` is asked for.

        Raises:
            SettingsError: another process has it open, or it is no place for cuts.
        """

    def cuts(self) -> list[Cut]:
        """Those that are kept, by number.

        Raises:
            StateDamaged: see there.
        """

    def begin_anew(self) -> None:
        """Forget whatever is there of a run that has committed no cut."""

    def kept(self, cut: Cut, forms: Forms) -> Kept:
        """The states of a cut, and forget those after it."""

    def blocks(self, cut: Cut) -> list[bytes]:
        """Hashes of the full blocks of the output below a cut."""

    def commit(self, cut: Cut, pieces: Mapping[str, bytes], blocks: Sequence[bytes], then: Callable[[], None]) -> None:
        """Keep a cut; it may be done by another thread, of whose troubles the next call tells.

        Args:
            pieces: the bytes of its pieces, by name.
            blocks: that are full since the cut before.
            then: called when it is committed.
        """

    @property
    def is_busy(self) -> bool:
        """Whether a cut is still being written."""

    def drop(self, number: int) -> None:
        """Keep a cut no longer."""

    def close(self) -> None:
        """Wait for what is being written, and let go of the place."""
