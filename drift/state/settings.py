"""Where a run stores its state, and how: what users give as `state=`.

Invariant: settings that are made are valid; what a URL names is asked when it is opened, and not before.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any, Literal

from drift.state.backend import Backend
from drift.state.files import FilesBackend
from drift.state.growth import Allowed
from drift.state.postgres import PostgresBackend
from drift.state.redis import RedisBackend
from drift.state.store import Store
from drift.urls import without_secrets
from drift_graph.called import called
from drift_graph.errors import SettingsError, StorageError
from drift_graph.numbers import check_int, check_seconds
from drift_graph.restore import named_classes

#: By the scheme of a URL. A socket of Redis is a file.
_SERVERS: Mapping[str, Callable[[str], Backend]] = {
    **dict.fromkeys(("redis", "rediss", "unix"), RedisBackend),
    **dict.fromkeys(("postgresql", "postgres"), PostgresBackend),
}


@called
@dataclass(frozen=True)
class Checkpoints:
    """Where a run stores its state, how often, and from which checkpoint it resumes.

    >>> import drift
    >>> graph = drift.Graph("running totals")
    >>> graph.source("fares").count(key=lambda fare: "all").sink("out")
    >>> fares = [30, 9]
    >>> for _ in range(2):  # the second call goes on behind the first
    ...     state = drift.Checkpoints("state", every_s=10, keep=5)
    ...     print([item.payload for item in drift.run(graph, {"fares": fares}, state=state, complete=False)])
    ...     fares.append(50)
    [('all', 1), ('all', 2)]
    [('all', 3)]

    Args:
        where: a folder; or "redis://HOST:PORT/DATABASE#NAME" or "postgresql://USER@HOST/DATABASE#NAME" (or any other
            URL of redis-py and libpq), where NAME distinguishes runs on the same server.
        every_s: seconds between checkpoints; with durable steps or calls also a list, for each segment its own.
        every_items: take a checkpoint after so many input items, too.
        keep: number of checkpoints to retain, 1 or more; older ones are merged.
        from_checkpoint: number of a retained checkpoint to resume from, in place of the last; later checkpoints are
            dropped. Where a sink has less than it had at a checkpoint, the run resumes from an earlier one.
        changed_code: "accept" to resume although functions have changed since the states were made.
        changed_graph: "accept" to resume although the graph has changed: steps that stay keep their states, new ones
            begin empty at the checkpoint, or as `backfill` says.
        backfill: the whole input below the checkpoint, from which new steps get the states that they would have had:
            sources by name, which are read from their beginning, or the folder of a record. What new steps make of it
            is not released. Accepted, and not read, where no step is new.
        dropped: names of the steps with state and the sinks that the graph no longer has.
        was: for a step that was renamed, the name that it had when the states were made.
        migrate: for a step whose functions have changed, a function that gives the state of now for one of then; a
            checkpoint has its states in one form, so it is called once for each key.
        classes: classes of states that the modules of the graph's functions do not have by name.
        logs: a folder for logs of sources that cannot be read again; by default in the folder of the checkpoints, if
            they are in one.
        logs_on_disk: flush each batch in a log to the disk, so that it survives a power failure, and not only the death
            of the process.
        complete_logs: retain logs of durable steps from their beginning, and not only from the oldest retained
            checkpoint, so that the steps after them can start from the beginning.
        away_max_s: how many seconds a server may be unavailable: no checkpoints are taken meanwhile, and then the run
            ends.

    Raises:
        SettingsError: a value is invalid.
    """

    where: str | os.PathLike[str]
    every_s: float | Sequence[float] = 1.0
    every_items: int | None = None
    keep: int = 3
    from_checkpoint: int | None = None
    changed_code: Literal["refuse", "accept"] = "refuse"
    changed_graph: Literal["refuse", "accept"] = "refuse"
    dropped: Sequence[str] = ()
    was: Mapping[str, str] = field(default_factory=dict)
    migrate: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    backfill: Mapping[str, Any] | str | os.PathLike[str] | None = None
    classes: Sequence[type] = ()
    logs: str | os.PathLike[str] | None = None
    logs_on_disk: bool = False
    complete_logs: bool = False
    away_max_s: float = 60.0

    def __repr__(self) -> str:
        return f"Checkpoints({without_secrets(os.fspath(self.where))!r})"

    def __post_init__(self) -> None:
        several = isinstance(self.every_s, Sequence) and not isinstance(self.every_s, str)
        intervals: Sequence[Any] = self.every_s if several else [self.every_s]  # type: ignore[assignment]
        for name, value in (*(("every_s", each) for each in intervals), ("away_max_s", self.away_max_s)):
            check_seconds(name, value, or_none=True, is_wait=several)
        for name in ("every_items", "keep", "from_checkpoint"):
            if (value := getattr(self, name)) is not None or name == "keep":
                check_int(name, value)
        for name in ("changed_code", "changed_graph"):
            if (value := getattr(self, name)) not in ("refuse", "accept"):
                raise SettingsError(f"{name}={value!r} is neither 'refuse' nor 'accept'")
        if isinstance(self.dropped, str) or not all(type(name) is str for name in self.dropped):
            raise SettingsError(f"dropped={self.dropped!r} is no list of names of steps")
        named_classes(self.classes)
        if not all(type(name) is str for pair in self.was.items() for name in pair):
            raise SettingsError(f"was={self.was!r} is no dict of names of steps by their new names")
        if not all(type(name) is str and callable(each) for name, each in self.migrate.items()):
            raise SettingsError(f"migrate={self.migrate!r} is no dict of functions by the names of steps")
        if not isinstance(self.backfill, (Mapping, str, os.PathLike, type(None))):
            raise SettingsError(
                f"backfill={self.backfill!r:.80} is neither a dict of sources nor the folder of a record"
            )

    @property
    def allowed(self) -> Allowed:
        """The changes of the graph that are allowed."""
        accepts = self.changed_code == "accept", self.changed_graph == "accept"
        return Allowed(*accepts, tuple(self.dropped), self.was, self.migrate, self.backfill)

    def of_segments(self, count: int) -> list[Checkpoints]:
        """For each segment of a graph the same with its own interval; each retains checkpoints as far back as the next
        one's last.

        Raises:
            SettingsError: there are not as many intervals as segments.
        """
        if isinstance(self.every_s, (int, float)):
            return [self] * count
        if len(self.every_s) != count:
            raise SettingsError(
                f"every_s={list(self.every_s)} has intervals of {len(self.every_s)} segments, and the graph has "
                f"{count}: one more than steps in a row that are durable, or calls"
            )
        following = [*self.every_s[1:], 0]
        keeps = [max(self.keep, ceil(after / max(own, 0.001)) + 2) for own, after in zip(self.every_s, following)]
        return [replace(self, every_s=own, keep=keep) for own, keep in zip(self.every_s, keeps)]


def as_checkpoints(named: str | os.PathLike[str] | Checkpoints) -> Checkpoints:
    """What a user gives as `state`."""
    return named if isinstance(named, Checkpoints) else Checkpoints(named)


def store_of(named: str | os.PathLike[str] | Checkpoints) -> Store:
    """The store that a user names. Raises SettingsError: no such kind of backend is known."""
    checkpoints = as_checkpoints(named)
    return Store(backend_of(checkpoints.where), keep=checkpoints.keep, away_max_s=checkpoints.away_max_s)


@contextmanager
def read_store(named: str | os.PathLike[str] | Checkpoints) -> Iterator[Store]:
    """The store that a user names, to be read, also while a run has it open.

    Raises:
        SettingsError: it holds no state of a run, or see `store_of`.
    """
    store = store_of(named)
    try:
        store.open_to_read()
        yield store
    finally:
        store.close()


def backend_of(where: str | os.PathLike[str]) -> Backend:
    """The backend that a user names.

    Raises:
        SettingsError: no such kind of backend is known, or its client library is not installed.
    """
    named = os.fspath(where)
    if "://" not in named:
        return FilesBackend(Path(named.removeprefix("files:")))
    kind = named.partition("://")[0]
    if kind not in _SERVERS:
        raise SettingsError(
            f"state cannot be stored in {without_secrets(named)!r}: no such kind of backend is known; give a folder, "
            f"or a URL with {', '.join(f'{each}://' for each in _SERVERS)}"
        )
    return _SERVERS[kind](named)


def log_folder_of(checkpoints: Checkpoints) -> Path | None:
    """The folder for logs of sources that cannot be read again; by default in the folder of the checkpoints."""
    if checkpoints.logs is not None:
        return Path(checkpoints.logs)
    logs = backend_of(checkpoints.where).logs
    return Path(logs) if logs else None


def check_logs(checkpoints: Checkpoints) -> None:
    """To be called before anything runs, whether a source of this run needs a log or not.

    Raises:
        StorageError: logs are to be in a folder that cannot be written.
    """
    if checkpoints.logs is None:
        return
    try:
        Path(checkpoints.logs).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=checkpoints.logs):
            pass
    except OSError as error:
        raise StorageError(
            f"logs={os.fspath(checkpoints.logs)!r} of drift.Checkpoints (--state-logs) cannot be written: "
            f"{error.strerror}; name a folder of this machine that can be"
        ) from error
