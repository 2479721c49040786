"""A store: the cuts of one run, in some place.

Invariant: a cut that `cuts` gives is one that `commit` was given, and can be gone on from; whatever ended a process.

Why: a place has a cut as a whole or not at all, with hashes of its pieces, and nothing that a manifest names is changed
while it is kept. A piece is removed when it is folded into the base, which is as of the oldest cut by then. Cuts are
written by one thread, in their order, so that a run goes on meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import xxhash

from drift.state.cut import Cut, StateDamaged, decoded, encoded
from drift.state.kept import Kept, row_of
from drift.state.patience import Patience
from drift.state.pieces import Forms, LaterForm, StoredPiece
from drift.state.pieces import decoded as piece_of
from drift.state.place import Changes, Held, Place, Reader
from drift_barrier.digest import Algorithm, hash_block
from drift_graph.errors import SettingsError

_DIGITS = 10
#: Pieces below the oldest cut are folded into the base when they are so many, or so long.
_FOLDED_PIECES = 16
_FOLDED_BYTES = 32 << 20
#: How long a server may take to see that the process is gone that had the place open.
_HELD_S = 1.0


class Store:
    """See the module.

    Args:
        place: where.
        keep: so many cuts are kept, 1 or more.
        away_max_s: for so long the place may not answer.
    """

    def __init__(self, place: Place, *, keep: int = 3, away_max_s: float = 60.0) -> None:
        self._place = place
        self._keep = keep
        self._patience = Patience(place.where, away_max_s)
        self._reader: Reader | None = None
        self._writer: ThreadPoolExecutor | None = None
        self._writing: Future[None] | None = None
        self._kept: Kept | None = None
        self._names: Mapping[str, bytes] = {}  # pieces that the last cut needs, with their hashes

    @property
    def where(self) -> str:
        """For messages."""
        return self._place.where

    def look(self) -> None:
        """Open it to read what is there, also while a run keeps its state in it.

        Raises:
            SettingsError: there is nothing.
        """
        if not self._place.exists():
            raise SettingsError(f"{self.where} holds no state of a run; name the place that --state named")
        self._reader = self._place.reader()

    def open(self) -> None:
        """Lock it; make it where it is not there.

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
        """Those that are kept, by number.

        Raises:
            StateDamaged: see there.
        """
        folded = self._there.folded()
        return [cut for number in self._there.numbers() if number >= folded and (cut := self._manifest(number))]

    def _manifest(self, number: int) -> Cut | None:
        data = self._there.manifest(number)
        return None if data is None else decoded(data, f"of cut {number} in {self.where}")

    def begin_anew(self) -> None:
        """Forget whatever is there of a run that has committed no cut."""
        self._place.forget((), list(self._there.pieces()))

    def kept(self, cut: Cut, forms: Forms) -> Kept:
        """The states of a cut, and forget those after it."""
        there = self._there
        later = [number for number in there.numbers() if number > cut.number]
        self._place.forget(later, [name for name in there.pieces() if name not in cut.pieces])
        self._names = cut.pieces
        self._kept = Kept(self._place.reader(), self._pieces(cut), forms, self.where, self._patience)
        return self._kept

    def _pieces(self, cut: Cut) -> Iterator[StoredPiece]:
        """What changed up to a cut since the base, the oldest first."""
        folded = self._there.folded()
        for name, told in sorted(cut.pieces.items()):
            if _number_of(name) <= folded:
                continue
            data = self._there.piece(name)
            if data is None:
                raise StateDamaged(f"piece {name} of {self.where}, which cut {cut.number} needs, is gone")
            if xxhash.xxh3_128_digest(data) != told:
                raise StateDamaged(
                    f"piece {name} of {self.where}, which cut {cut.number} needs, was changed since it was written: "
                    f"its hash is another; go on from a cut before, with from_cut=, or begin anew"
                )
            yield piece_of(data, f"piece {name} of {self.where}")

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

    def commit(self, cut: Cut, pieces: Mapping[str, bytes], blocks: Sequence[bytes], then: Callable[[], None]) -> None:
        """Keep a cut; it is written by another thread, of whose troubles the next call tells.

        Args:
            pieces: the bytes of its pieces, by name.
            blocks: that are full since the cut before.
            then: called when it is committed.
        """
        self._wait()
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, "drift-cuts")
        self._writing = self._writer.submit(self._commit, cut, pieces, blocks, then)

    def _wait(self) -> None:
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def _commit(self, cut: Cut, pieces: Mapping[str, bytes], blocks: Sequence[bytes], then: Callable[[], None]) -> None:
        named = {f"{cut.number:0{_DIGITS}}-{name}": data for name, data in pieces.items()}
        folded = self._patience.call(self._there.folded)
        earlier = {name: told for name, told in self._names.items() if _number_of(name) > folded}
        self._names = {**earlier, **{name: xxhash.xxh3_128_digest(data) for name, data in named.items()}}
        manifest = encoded(cut.with_pieces(self._names))
        at = _block_bytes(cut.output.algorithm) * (cut.output.blocks - len(blocks))
        self._patience.call(lambda: self._place.commit(cut.number, named, at, b"".join(blocks), manifest))
        then()
        self._patience.call(self._prune)

    def _prune(self) -> None:
        """Keep no more cuts than were asked for, and fold what is below the oldest into the base, many cuts at once."""
        there, place = self._there, self._place
        numbers = there.numbers()
        oldest = numbers[-self._keep :][0]
        place.forget([number for number in numbers if number < oldest], ())
        older = {name: size for name, size in there.pieces().items() if _number_of(name) <= oldest}
        if len(older) < _FOLDED_PIECES and sum(older.values()) < _FOLDED_BYTES:
            return
        if oldest > there.folded():
            cut = self._manifest(oldest)
            assert cut is not None
            place.fold(oldest, _changes(cut.at, self._pieces(cut)))
        place.forget((), list(older))

    def drop(self, number: int) -> None:
        """Keep a cut no longer."""
        if number not in self._there.numbers():
            raise SettingsError(f"{self.where} has no cut {number}; drift state list shows those it has")
        self._place.forget([number], ())

    def close(self) -> None:
        """Wait for what is being written, and let go of the place."""
        try:
            self._wait()
        finally:
            if self._writer is not None:
                self._writer.shutdown()
            for each in (self._kept, self._reader, self._place):
                if each is not None:
                    each.close()
            self._kept = self._reader = None


def _changes(at: bytes, pieces: Iterator[StoredPiece]) -> Changes:
    """What several pieces change, of several states of a key the last."""
    states: dict[str, dict[bytes, tuple[bytes | None, bool]]] = {}
    later: list[LaterForm] = []
    for piece in pieces:
        for step, its_states in piece.states.items():
            timed = set(its_states.with_timers())
            states.setdefault(step, {}).update(
                (key, (None if value is None else row_of(key, value), key in timed))
                for key, value in its_states.entries()
            )
        later += piece.later
    return Changes(states, [each for each in later if each.meta >= at], at)


def _block_bytes(algorithm: Algorithm) -> int:
    return len(hash_block(algorithm, b""))


def _number_of(name: str) -> int:
    return int(name[:_DIGITS])
