"""A backend has tables of bytes by key: a folder, or a server. Their meaning is in `store`, the same for all backends.

Invariant: the changes of one `write` are stored completely or not at all, and only if the rows that the writer
expects are there and no other process has the backend; a concurrent reader sees each table as of one moment.

Why: each backend commits several byte strings at once, and compares the expected rows in the same transaction: so a
backend that has come back with older data, as a server that was restarted from an older dump, gets nothing that would
lie above a gap.

    cuts            manifests of checkpoints
    snapshots       what changed between two checkpoints
    hashes          hashes of the full blocks of the output, many in a row
    opened          items of the output's last block, which is not full
    history         what is told of the run, for those that look at it, by name
    base:STEP       the states of a step as of the checkpoint in `merged`, by key
    timers:STEP     the keys of a step whose states have timers
    pending         later items
    merged          the checkpoint that the base is as of
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol, Self

from drift.urls import checked_url, without_secrets
from drift_graph.errors import SettingsError, StorageError

#: By table and key the new value; None deletes the row.
Changes = Mapping[str, Mapping[bytes, bytes | None]]


class Away(Exception):
    """The backend does not answer now; a later call may succeed."""


class Locked(SettingsError):
    """Another process has the backend open."""


class TakenOver(StorageError):
    """Another process has opened the backend since, while this one could not reach it."""


class OlderData(StorageError):
    """The backend lacks what this process has stored there."""


class Expected(NamedTuple):
    """A row as its writer has last seen it; value None stands for any."""

    table: str
    key: bytes
    value: bytes | None = None

    def is_met(self, found: bytes | None) -> bool:
        """Whether a value that was found is the expected one."""
        return found is not None and self.value in (None, found)


class Reader(Protocol):
    """Reads a backend, also while another process writes there. Every method may raise `Away`."""

    def sizes(self, table: str) -> dict[bytes, int]:
        """The keys of a table, and the sizes of their values in bytes."""

    def read(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """The value of each key; None if it has none."""

    def close(self) -> None: ...


class Backend(Protocol):
    """Stores the checkpoints of a run; one process at a time has it open for writing."""

    @property
    def where(self) -> str:
        """The backend, for messages, without secrets."""

    @property
    def logs(self) -> str:
        """The folder of logs of sources that cannot be read again; "" if it has none."""

    def exists(self) -> bool:
        """Whether it holds the state of a run."""

    def open(self) -> None:
        """Lock it, and make it if it does not exist. Raises StorageError: it cannot store checkpoints."""

    def is_locked(self) -> bool:
        """Whether a process has it open to write, if it `exists`; one that opens it meanwhile tries again."""

    def reader(self) -> Reader:
        """A reader, if it `exists`; needs no lock."""

    def deputy(self) -> tuple[Backend, tuple[int, ...]]:
        """A backend for a process that this one starts, which may also write; and the descriptors that it needs.

        It can be pickled, and takes no lock when opened. Its writes are refused once another process has the backend.
        """

    @property
    def is_behind(self) -> bool:
        """Whether a deputy should do the next merge, however small it is, since it has more to do."""

    def write(self, changes: Changes, expected: Sequence[Expected] = ()) -> None:
        """Store changes; may be repeated with the same arguments.

        Raises:
            OlderData: an expected row is missing or another, and nothing was stored.
            StorageError: it cannot be written.
        """

    def close(self) -> None:
        """Close it, and release the lock."""


class ServerBackend:
    """The common part of backends on servers: how a process is identified there.

    Args:
        url: of the server, followed by #NAME.
    """

    logs = ""
    is_behind = False

    def __init__(self, url: str) -> None:
        self.where = without_secrets(url)
        self._url = checked_url(url)
        self._server, self._name = named(self._url)
        self._token = secrets.token_hex(16)
        self._is_deputy = False

    def deputy(self) -> tuple[Self, tuple[int, ...]]:
        deputy = type(self)(self._url)
        deputy._token, deputy._is_deputy = self._token, True
        return deputy, ()

    @contextmanager
    def _opened(self) -> Iterator[None]:
        try:
            yield
        except Away as away:
            raise StorageError(f"state cannot be stored in {self.where}: {away}; check the URL") from away

    def _locked_error(self) -> Locked:
        return Locked(
            f"another run, in this process or another, stores its state in {self.where}; wait until it has ended (one "
            f"whose items are no longer taken ends with its close()), or give this run a name of its own, after # in "
            f"the URL"
        )

    def _taken_over_error(self) -> TakenOver:
        return TakenOver(
            f"another process has begun to store the state of its run in {self.where} while this one could not reach "
            f"it, or the server was restored from older data, which knows an earlier process of this run; no "
            f"checkpoint has what this one has released since its last checkpoint. If there are two, start only one of "
            f"them again; if not, run again: it resumes from the last checkpoint that is there"
        )


def older_error(where: str, expected: Expected) -> OlderData:
    """The error of a backend that does not have a row that was stored there."""
    return OlderData(
        f"the state in {where} lacks what this run has stored there, row {expected.key.decode(errors='replace')} of "
        f"{expected.table}: it was restarted or restored with older data, or changed by someone else; a checkpoint "
        f"above the gap could not be used, so the run ends and its checkpoints there are as they were. Run again: it "
        f"resumes from the "
        f"last checkpoint that is there, and have the server store what it acknowledges (Redis: appendonly yes)"
    )


def named(url: str) -> tuple[str, str]:
    """The URL of a server, and the name of a run there: the part after #, or else "drift"."""
    server, _, name = url.partition("#")
    return server, name or "drift"
