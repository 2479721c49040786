"""The place for a store's bytes: a folder, or a server.

Invariant: the arguments of `commit` are stored completely or not at all, and the base is as of the cut `folded`; a
concurrent reader sees each of these as of one moment.

Why: each place implements an atomic commit of several byte strings. Their meaning is in `store`, the same for all
places.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol, Self

from drift.state.pieces import LaterForm
from drift.urls import without_secrets
from drift_graph.errors import SettingsError


class Away(Exception):
    """The place does not answer; it may later."""


class Held(SettingsError):
    """Another process has the place open."""


class TakenOver(SettingsError):
    """Another process has opened the place since, while this one could not reach it."""


class Changes(NamedTuple):
    """What is folded into the base.

    Attributes:
        states: by step and key the row, which is None where the key goes, and whether it comes with timers.
        later: later items that are added.
        at: those below are dropped.
    """

    states: Mapping[str, Mapping[bytes, tuple[bytes | None, bool]]]
    later: Sequence[LaterForm]
    at: bytes


class Reader(Protocol):
    """Reads a place, also while another process writes there. Anything may raise `Away`."""

    def numbers(self) -> list[int]:
        """Of the manifests that are there, in order."""

    def manifest(self, number: int) -> bytes | None:
        """Its bytes; None where there is none."""

    def pieces(self) -> dict[str, int]:
        """Bytes of each piece, by name."""

    def piece(self, name: str) -> bytes | None:
        """Its bytes; None where there is none."""

    def blocks(self) -> bytes:
        """All that `commit` was given of these."""

    def folded(self) -> int:
        """The cut that the base is as of; 0 before the first."""

    def find(self, step: str, keys: Sequence[bytes]) -> Iterable[tuple[bytes, bytes]]:
        """Keys and rows of the base: of those keys that have one."""

    def rows(self, step: str, *, timed: bool) -> Iterable[tuple[bytes, bytes]]:
        """All of them, or those that come with timers."""

    def later(self) -> list[LaterForm]:
        """The later items of the base."""

    def close(self) -> None: ...


class Place(Protocol):
    """One process at a time has it open to write."""

    @property
    def where(self) -> str:
        """For messages, without secrets."""

    @property
    def logs(self) -> str:
        """The folder of logs of sources that cannot be read again; "" where it has none."""

    def exists(self) -> bool:
        """Whether there is something of a run."""

    def open(self) -> None:
        """Lock it, and make it where it is not there.

        Raises:
            Held: see there.
            SettingsError: it is no place for cuts.
        """

    def reader(self) -> Reader:
        """One for what `exists`; it needs no lock."""

    def deputy(self) -> tuple[Place, tuple[int, ...]]:
        """One for a process that this one has started, which may write too; and the descriptors that it needs.

        It can be pickled, and locks nothing when it is opened. It is refused once another process has the place.
        """

    def commit(self, number: int, pieces: Mapping[str, bytes], at: int, blocks: bytes, manifest: bytes) -> None:
        """Put a cut there; it may be called again with the same.

        Args:
            at: where the blocks begin among all of these; what was there from there on goes.

        Raises:
            Away: see there.
            TakenOver: see there.
            SettingsError: it cannot be written.
        """

    def forget(self, numbers: Collection[int], pieces: Collection[str]) -> None:
        """Remove manifests and pieces."""

    def fold(self, number: int, changes: Changes) -> None:
        """Bring the base to a cut, all at once."""

    def close(self) -> None:
        """Let go of it."""


class ServerPlace:
    """What places on servers share: who this process is there.

    Args:
        url: of the server, with #NAME behind it.
    """

    logs = ""

    def __init__(self, url: str) -> None:
        self.where = without_secrets(url)
        self._url = url
        self._server, self._name = named(url)
        self._mine = secrets.token_hex(16)
        self._is_deputy = False

    def deputy(self) -> tuple[Self, tuple[int, ...]]:
        """See `Place`."""
        deputy = type(self)(self._url)
        deputy._mine, deputy._is_deputy = self._mine, True
        return deputy, ()

    @contextmanager
    def _opened(self) -> Iterator[None]:
        try:
            yield
        except Away as away:
            raise SettingsError(f"state cannot be stored in {self.where}: {away}; check the URL") from away

    def _held(self) -> Held:
        return Held(
            f"another process keeps the state of its run in {self.where}; wait until it has ended, or give this run a "
            f"name of its own, behind # in the URL"
        )

    def _taken_over(self) -> TakenOver:
        return TakenOver(
            f"another process has begun to keep the state of its run in {self.where} while this one could not reach "
            f"it; what this one has released since its last cut is not in any"
        )


def named(url: str) -> tuple[str, str]:
    """The URL of a server, and the name that a run has there: what is behind #, or else "drift"."""
    server, _, name = url.partition("#")
    return server, name or "drift"
