"""A backend stores the bytes of a store: a folder, or a server.

Invariant: the arguments of `commit` are stored completely or not at all, and the base is as of the cut `folded`; a
concurrent reader sees each of these as of one moment.

Why: each backend implements an atomic commit of several byte strings. Their meaning is in `store`, the same for all
backends.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol, Self

from drift.state.snapshots import LaterForm
from drift.urls import without_secrets
from drift_graph.errors import SettingsError


class Away(Exception):
    """The backend does not answer now; a later call may succeed."""


class Locked(SettingsError):
    """Another process has the backend open."""


class TakenOver(SettingsError):
    """Another process has opened the backend since, while this one could not reach it."""


class Changes(NamedTuple):
    """The changes to fold into the base.

    Attributes:
        states: by step and key the row, None to delete the key, and whether the key has timers.
        later: later items to add.
        at: later items below it are dropped.
    """

    states: Mapping[str, Mapping[bytes, tuple[bytes | None, bool]]]
    later: Sequence[LaterForm]
    at: bytes


class Reader(Protocol):
    """Reads a backend, also while another process writes there. Every method may raise `Away`."""

    def numbers(self) -> list[int]:
        """The numbers of the manifests, in order."""

    def manifest(self, number: int) -> bytes | None:
        """The bytes of a manifest; None if there is none."""

    def snapshots(self) -> dict[str, int]:
        """The size of each snapshot in bytes, by name."""

    def snapshot(self, name: str) -> bytes | None:
        """The bytes of a snapshot; None if there is none."""

    def blocks(self) -> bytes:
        """All block hashes that `commit` has stored."""

    def folded(self) -> int:
        """The cut that the base is as of; 0 before the first."""

    def find(self, step: str, keys: Sequence[bytes]) -> Iterable[tuple[bytes, bytes]]:
        """Keys and their rows in the base, of those keys that have a row."""

    def rows(self, step: str, *, timed: bool) -> Iterable[tuple[bytes, bytes]]:
        """All keys and rows of a step in the base, or only those with timers."""

    def later(self) -> list[LaterForm]:
        """The later items of the base."""

    def close(self) -> None: ...


class Backend(Protocol):
    """Stores the cuts of a run; one process at a time has it open for writing."""

    @property
    def where(self) -> str:
        """The backend, for messages, without secrets."""

    @property
    def logs(self) -> str:
        """The folder of logs of sources that cannot be read again; "" if it has none."""

    def exists(self) -> bool:
        """Whether it holds the state of a run."""

    def open(self) -> None:
        """Lock it, and make it if it does not exist.

        Raises:
            Held: see there.
            SettingsError: it cannot store cuts.
        """

    def reader(self) -> Reader:
        """A reader, if it `exists`; needs no lock."""

    def deputy(self) -> tuple[Backend, tuple[int, ...]]:
        """A backend for a process that this one starts, which may also write; and the descriptors that it needs.

        It can be pickled, and takes no lock when opened. Its writes are refused once another process has the backend.
        """

    def commit(self, number: int, snapshots: Mapping[str, bytes], at: int, blocks: bytes, manifest: bytes) -> None:
        """Store a cut; may be repeated with the same arguments.

        Args:
            at: offset of `blocks` in all block hashes; those stored from there on are replaced.

        Raises:
            Away: see there.
            TakenOver: see there.
            SettingsError: it cannot be written.
        """

    def forget(self, numbers: Collection[int], snapshots: Collection[str]) -> None:
        """Remove manifests and snapshots."""

    def fold(self, number: int, changes: Changes) -> None:
        """Bring the base to a cut, atomically."""

    def close(self) -> None:
        """Close it, and release the lock."""


class ServerBackend:
    """The common part of backends on servers: how a process is identified there.

    Args:
        url: of the server, followed by #NAME.
    """

    logs = ""

    def __init__(self, url: str) -> None:
        self.where = without_secrets(url)
        self._url = url
        self._server, self._name = named(url)
        self._token = secrets.token_hex(16)
        self._is_deputy = False

    def deputy(self) -> tuple[Self, tuple[int, ...]]:
        """See `Backend`."""
        deputy = type(self)(self._url)
        deputy._token, deputy._is_deputy = self._token, True
        return deputy, ()

    @contextmanager
    def _opened(self) -> Iterator[None]:
        try:
            yield
        except Away as away:
            raise SettingsError(f"state cannot be stored in {self.where}: {away}; check the URL") from away

    def _locked_error(self) -> Locked:
        return Locked(
            f"another process stores the state of its run in {self.where}; wait until it has ended, or give this run a "
            f"name of its own, after # in the URL"
        )

    def _taken_over_error(self) -> TakenOver:
        return TakenOver(
            f"another process has begun to store the state of its run in {self.where} while this one could not reach "
            f"it; no cut has what this one has released since its last cut; start only one of the two again"
        )


def named(url: str) -> tuple[str, str]:
    """The URL of a server, and the name of a run there: the part after #, or else "drift"."""
    server, _, name = url.partition("#")
    return server, name or "drift"
