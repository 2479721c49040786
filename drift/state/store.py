"""A store: the cuts of one run, in some backend.

Invariant: a cut that `cuts` returns was committed, and a run can resume from it, however a process ended.

Why: a backend has a cut completely or not at all, with hashes of its snapshots, and nothing that a manifest names
changes while the manifest exists. A snapshot is removed when it is merged into the base, whose cut is then no newer
than the oldest. Cuts are written by one thread, in their order, while the run continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import xxhash

from drift.state.backend import Backend, Locked, Reader
from drift.state.cut import Cut, StateDamaged, encoded
from drift.state.folding import Folding, fold, manifest, name_of, number_of, snapshots_of
from drift.state.patience import Patience
from drift.state.restored import RestoredStates
from drift.state.snapshots import Forms
from drift_barrier.digest import Algorithm, hash_block
from drift_graph.errors import SettingsError

#: Number and total size of snapshots below the oldest cut from which they are folded into the base.
_FOLDED_SNAPSHOTS = 64
_FOLDED_BYTES = 32 << 20
#: From this size on, a separate process folds them.
_SEPARATE_PROCESS_BYTES = 1 << 20
#: If the snapshots have this size, the run takes no further cut until they are folded.
_WAITING_BYTES = 8 * _FOLDED_BYTES
#: How long a server may take to notice that the process that held the lock has ended.
_LOCKED_S = 5.0


class Store:
    """See the module.

    Args:
        backend: of the cuts.
        keep: number of cuts to retain, 1 or more.
        away_max_s: how long the backend may be unavailable.
    """

    def __init__(self, backend: Backend, *, keep: int = 3, away_max_s: float = 60.0) -> None:
        self._backend = backend
        self._keep = keep
        self._away_max_s = away_max_s
        self._patience = Patience(backend.where, away_max_s)
        self._folding: Folding | None = None
        self._reader: Reader | None = None
        self._writer: ThreadPoolExecutor | None = None
        self._writing: Future[None] | None = None
        self._restored: RestoredStates | None = None
        self._names: Mapping[str, bytes] = {}  # the snapshots of the last cut, with their hashes

    @property
    def where(self) -> str:
        """The backend, for messages."""
        return self._backend.where

    def open_to_read(self) -> None:
        """Open it for reading, also while a run has it open.

        Raises:
            SettingsError: it holds no state of a run.
        """
        if not self._backend.exists():
            raise SettingsError(f"{self.where} holds no state of a run; name the one that --state named")
        self._reader = self._backend.reader()

    def open(self) -> None:
        """Lock it, and make it if it does not exist.

        Raises:
            SettingsError: another process has it open, or it cannot store cuts.
        """
        deadline_s = time.monotonic() + _LOCKED_S
        while True:
            try:
                self._backend.open()
                break
            except Locked:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(_LOCKED_S / 100)  # until the server has noticed that a process has ended
        try:
            self._reader = self._reader or self._backend.reader()
        except BaseException:
            self._backend.close()
            raise

    @property
    def _open_reader(self) -> Reader:
        assert self._reader is not None
        return self._reader

    # Reading.

    def cuts(self) -> list[Cut]:
        """The retained cuts, by number.

        Raises:
            StateDamaged: see there.
        """
        folded = self._open_reader.folded()
        found = [
            manifest(self._open_reader, number, self.where)
            for number in self._open_reader.numbers()
            if number >= folded
        ]
        return [cut for cut in found if cut is not None]

    def clear(self) -> None:
        """Remove the snapshots of a run that has committed no cut."""
        self._backend.forget((), list(self._open_reader.snapshots()))

    def states(self, cut: Cut, forms: Forms) -> RestoredStates:
        """The states of a cut; removes later cuts."""
        reader = self._open_reader
        later = [number for number in reader.numbers() if number > cut.number]
        self._backend.forget(later, [name for name in reader.snapshots() if name not in cut.snapshots])
        self._names = cut.snapshots
        snapshots = snapshots_of(reader, cut, self.where)
        self._restored = RestoredStates(self._backend.reader(), snapshots, forms, self.where, self._patience)
        return self._restored

    def blocks(self, cut: Cut) -> list[bytes]:
        """Hashes of the full blocks of the output below a cut."""
        size = _block_bytes(cut.output.algorithm)
        data = self._open_reader.blocks()[: size * cut.output.blocks]
        if len(data) < size * cut.output.blocks:
            raise StateDamaged(
                f"{self.where} has the hashes of {len(data) // size} blocks, and cut {cut.number} comes after "
                f"{cut.output.blocks}; they were cut off, so the run cannot resume from it; use an earlier "
                f"one with from_cut="
            )
        return [data[start : start + size] for start in range(0, len(data), size)]

    # Writing.

    @property
    def is_busy(self) -> bool:
        """Whether a cut is still being written."""
        return self._writing is not None and not self._writing.done()

    def commit(
        self, cut: Cut, snapshots: Mapping[str, bytes], blocks: Sequence[bytes], on_commit: Callable[[], None]
    ) -> None:
        """Commit a cut; another thread writes it, whose errors the next call raises.

        Args:
            snapshots: the bytes of its snapshots, by name.
            blocks: hashes of blocks that are full since the cut before.
            on_commit: called when the cut is committed.
        """
        self._wait()
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, "drift-cuts")
        self._writing = self._writer.submit(self._commit, cut, snapshots, blocks, on_commit)

    def _wait(self) -> None:
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def _commit(
        self, cut: Cut, snapshots: Mapping[str, bytes], blocks: Sequence[bytes], on_commit: Callable[[], None]
    ) -> None:
        named = {name_of(cut.number, name): data for name, data in snapshots.items()}
        folded = self._patience.call(self._open_reader.folded)
        earlier = {name: hashed for name, hashed in self._names.items() if number_of(name) > folded}
        self._names = {**earlier, **{name: xxhash.xxh3_128_digest(data) for name, data in named.items()}}
        manifest = encoded(cut.with_snapshots(self._names))
        at = _block_bytes(cut.output.algorithm) * (cut.output.blocks - len(blocks))
        self._patience.call(lambda: self._backend.commit(cut.number, named, at, b"".join(blocks), manifest))
        on_commit()
        self._patience.call(self._prune)

    def _prune(self) -> None:
        """Remove cuts beyond the number to retain, and fold snapshots below the oldest into the base, many at once."""
        reader, backend = self._open_reader, self._backend
        numbers = reader.numbers()
        oldest = numbers[-self._keep :][0]
        backend.forget([number for number in numbers if number < oldest], ())
        older = [size for name, size in reader.snapshots().items() if number_of(name) <= oldest]
        if self._folding is not None:
            if self._folding.is_done(wait=sum(older) >= _WAITING_BYTES):
                self._folding = None
        elif len(older) >= _FOLDED_SNAPSHOTS or sum(older) >= _FOLDED_BYTES:
            cut = manifest(reader, oldest, self.where)
            assert cut is not None
            if sum(older) < _SEPARATE_PROCESS_BYTES:
                fold(backend, reader, cut)
            else:
                self._folding = Folding(backend, cut, self._away_max_s)

    def drop(self, number: int) -> None:
        """Remove a cut."""
        if number not in self._open_reader.numbers():
            raise SettingsError(f"{self.where} has no cut {number}; drift state list shows those it has")
        self._backend.forget([number], ())

    def close(self) -> None:
        """Wait for the last cut to be written, and close the backend."""
        try:
            self._wait()
        finally:
            if self._writer is not None:
                self._writer.shutdown()
            if self._folding is not None:
                self._folding.end()
                self._folding = None
            for each in (self._restored, self._reader, self._backend):
                if each is not None:
                    each.close()
            self._restored = self._reader = None


def _block_bytes(algorithm: Algorithm) -> int:
    return len(hash_block(algorithm, b""))
