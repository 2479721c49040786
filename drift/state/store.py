"""A store: the cuts of one run, in some place.

Invariant: a cut that `cuts` returns was committed, and a run can resume from it, however a process ended.

Why: a place has a cut completely or not at all, with hashes of its snapshots, and nothing that a manifest names changes
while the manifest exists. A snapshot is removed when it is merged into the base, whose cut is then no newer than the
oldest. Cuts are written by one thread, in their order, while the run goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import xxhash

from drift.state.cut import Cut, StateDamaged, encoded
from drift.state.folding import Folding, fold, manifest, name_of, number_of, snapshots_of
from drift.state.kept import Kept
from drift.state.patience import Patience
from drift.state.place import Held, Place, Reader
from drift.state.snapshots import Forms
from drift_barrier.digest import Algorithm, hash_block
from drift_graph.errors import SettingsError

#: Number and total size of snapshots below the oldest cut from which they are folded into the base.
_FOLDED_SNAPSHOTS = 64
_FOLDED_BYTES = 32 << 20
#: From this size on, a separate process folds them.
_BESIDE_BYTES = 1 << 20
#: If the snapshots have this size, the run takes no further cut until they are folded.
_WAITING_BYTES = 8 * _FOLDED_BYTES
#: How long a server may take to notice that the former holder of the lock is gone.
_HELD_S = 1.0


class Store:
    """See the module.

    Args:
        place: of the cuts.
        keep: number of cuts to retain, 1 or more.
        away_max_s: how long the place may be unavailable.
    """

    def __init__(self, place: Place, *, keep: int = 3, away_max_s: float = 60.0) -> None:
        self._place = place
        self._keep = keep
        self._away_max_s = away_max_s
        self._patience = Patience(place.where, away_max_s)
        self._folding: Folding | None = None
        self._reader: Reader | None = None
        self._writer: ThreadPoolExecutor | None = None
        self._writing: Future[None] | None = None
        self._kept: Kept | None = None
        self._names: Mapping[str, bytes] = {}  # the snapshots of the last cut, with their hashes

    @property
    def where(self) -> str:
        """The place, for messages."""
        return self._place.where

    def look(self) -> None:
        """Open it for reading, also while a run has it open.

        Raises:
            SettingsError: it holds no state of a run.
        """
        if not self._place.exists():
            raise SettingsError(f"{self.where} holds no state of a run; name the place that --state named")
        self._reader = self._place.reader()

    def open(self) -> None:
        """Lock it, and make it if it does not exist.

        Raises:
            SettingsError: another process has it open, or it is no place for cuts.
        """
        deadline_s = time.monotonic() + _HELD_S
        while True:
            try:
                self._place.open()
                break
            except Held:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(_HELD_S / 20)  # until the server has noticed that a process is gone
        try:
            self._reader = self._reader or self._place.reader()
        except BaseException:
            self._place.close()
            raise

    @property
    def _there(self) -> Reader:
        assert self._reader is not None
        return self._reader

    # What is kept.

    def cuts(self) -> list[Cut]:
        """The retained cuts, by number.

        Raises:
            StateDamaged: see there.
        """
        folded = self._there.folded()
        found = [manifest(self._there, number, self.where) for number in self._there.numbers() if number >= folded]
        return [cut for cut in found if cut is not None]

    def clear(self) -> None:
        """Remove the snapshots of a run that has committed no cut."""
        self._place.forget((), list(self._there.snapshots()))

    def kept(self, cut: Cut, forms: Forms) -> Kept:
        """The states of a cut; removes later cuts."""
        there = self._there
        later = [number for number in there.numbers() if number > cut.number]
        self._place.forget(later, [name for name in there.snapshots() if name not in cut.snapshots])
        self._names = cut.snapshots
        snapshots = snapshots_of(there, cut, self.where)
        self._kept = Kept(self._place.reader(), snapshots, forms, self.where, self._patience)
        return self._kept

    def blocks(self, cut: Cut) -> list[bytes]:
        """Hashes of the full blocks of the output below a cut."""
        size = _block_bytes(cut.output.algorithm)
        data = self._there.blocks()[: size * cut.output.blocks]
        if len(data) < size * cut.output.blocks:
            raise StateDamaged(
                f"{self.where} has the hashes of {len(data) // size} blocks, and cut {cut.number} comes after "
                f"{cut.output.blocks}; they were cut off, and the run cannot go on from there"
            )
        return [data[start : start + size] for start in range(0, len(data), size)]

    # What is written.

    @property
    def is_busy(self) -> bool:
        """Whether a cut is still being written."""
        return self._writing is not None and not self._writing.done()

    def commit(
        self, cut: Cut, snapshots: Mapping[str, bytes], blocks: Sequence[bytes], then: Callable[[], None]
    ) -> None:
        """Commit a cut; another thread writes it, whose errors the next call raises.

        Args:
            snapshots: the bytes of its snapshots, by name.
            blocks: hashes of blocks that are full since the cut before.
            then: called when the cut is committed.
        """
        self._wait()
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, "drift-cuts")
        self._writing = self._writer.submit(self._commit, cut, snapshots, blocks, then)

    def _wait(self) -> None:
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def _commit(
        self, cut: Cut, snapshots: Mapping[str, bytes], blocks: Sequence[bytes], then: Callable[[], None]
    ) -> None:
        named = {name_of(cut.number, name): data for name, data in snapshots.items()}
        folded = self._patience.call(self._there.folded)
        earlier = {name: known for name, known in self._names.items() if number_of(name) > folded}
        self._names = {**earlier, **{name: xxhash.xxh3_128_digest(data) for name, data in named.items()}}
        manifest = encoded(cut.with_snapshots(self._names))
        at = _block_bytes(cut.output.algorithm) * (cut.output.blocks - len(blocks))
        self._patience.call(lambda: self._place.commit(cut.number, named, at, b"".join(blocks), manifest))
        then()
        self._patience.call(self._prune)

    def _prune(self) -> None:
        """Remove cuts beyond the number to retain, and fold snapshots below the oldest into the base, many at once."""
        there, place = self._there, self._place
        numbers = there.numbers()
        oldest = numbers[-self._keep :][0]
        place.forget([number for number in numbers if number < oldest], ())
        older = [size for name, size in there.snapshots().items() if number_of(name) <= oldest]
        if self._folding is not None:
            if self._folding.is_done(wait=sum(older) >= _WAITING_BYTES):
                self._folding = None
        elif len(older) >= _FOLDED_SNAPSHOTS or sum(older) >= _FOLDED_BYTES:
            cut = manifest(there, oldest, self.where)
            assert cut is not None
            if sum(older) < _BESIDE_BYTES:
                fold(place, there, cut)
            else:
                self._folding = Folding(place, cut, self._away_max_s)

    def drop(self, number: int) -> None:
        """Remove a cut."""
        if number not in self._there.numbers():
            raise SettingsError(f"{self.where} has no cut {number}; drift state list shows those it has")
        self._place.forget([number], ())

    def close(self) -> None:
        """Wait for the last cut to be written, and close the place."""
        try:
            self._wait()
        finally:
            if self._writer is not None:
                self._writer.shutdown()
            if self._folding is not None:
                self._folding.end()
                self._folding = None
            for each in (self._kept, self._reader, self._place):
                if each is not None:
                    each.close()
            self._kept = self._reader = None


def _block_bytes(algorithm: Algorithm) -> int:
    return len(hash_block(algorithm, b""))
