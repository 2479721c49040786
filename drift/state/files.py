"""A folder of cuts: manifests, pieces of what changed, and a file of SQLite with what lies below the oldest cut.

Invariant: as of `Store`. A manifest is there as a whole or not at all.

Why: a piece is written and flushed to the disk before the manifest that names it with its hash, and that is renamed
into its place. A piece is removed when it is folded into the base, which is as of the oldest cut by then. Cuts are
written by one thread, in their order, so that a run goes on meanwhile.

    cuts/0000000012.cut              a manifest
    pieces/0000000012-worker-0       what changed in a worker since the cut before
    base.sqlite                      the states as of the oldest cut, by key
    blocks                           hashes of the full blocks of the output
    lock                             who has the folder open
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import xxhash

from drift.machines.cuts import Lookup
from drift.machines.keys import form_of_identity, identity_of
from drift.machines.worker import Piece
from drift.records.journal import sync_folder
from drift.state.base import Base
from drift.state.cut import Cut, StateDamaged, decoded, encoded
from drift.state.pieces import Forms, LaterForm, StoredPiece
from drift.state.pieces import decoded as piece_of
from drift_barrier.digest import hash_block
from drift_graph.errors import SettingsError

_DIGITS = 10
#: Pieces below the oldest cut are folded into the base when they are so many, or so long.
_FOLDED_PIECES = 16
_FOLDED_BYTES = 32 << 20


class FilesStore:
    """See the module.

    Args:
        folder: of the cuts; made where it is not there.
        keep: so many cuts are kept, 1 or more.
    """

    def __init__(self, folder: Path, *, keep: int = 3) -> None:
        self._folder = folder
        self._keep = keep
        self._lock: int | None = None
        self._writer: ThreadPoolExecutor | None = None
        self._writing: Future[None] | None = None
        self._base: Base | None = None
        self._names: Mapping[str, bytes] = {}  # pieces that the last cut needs, with their hashes

    @property
    def where(self) -> str:
        return str(self._folder)

    def open(self, *, create: bool = True) -> None:
        """See `Store`."""
        if not create and not (self._folder / "cuts").is_dir():
            raise SettingsError(f"{self._folder} holds no state of a run; name the folder that --state named")
        try:
            for each in (self._folder, self._folder / "cuts", self._folder / "pieces"):
                each.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise SettingsError(f"state cannot be kept in {self._folder}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            self._lock = None
            raise SettingsError(
                f"another process keeps the state of its run in {self._folder}; wait until it has ended, or give this "
                f"run a folder of its own"
            ) from None
        self._base = Base(self._folder / "base.sqlite")

    # What is kept.

    def cuts(self) -> list[Cut]:
        """See `Store`."""
        found = [self._manifest(number) for number in self._numbers()]
        return [cut for cut in found if cut.number >= self._folded]

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in (self._folder / "cuts").glob("*.cut"))

    def _manifest(self, number: int) -> Cut:
        path = self._path_of(number)
        return decoded(path.read_bytes(), str(path))

    def _path_of(self, number: int) -> Path:
        return self._folder / "cuts" / f"{number:0{_DIGITS}}.cut"

    @property
    def _folded(self) -> int:
        assert self._base is not None
        return self._base.folded

    def begin_anew(self) -> None:
        """See `Store`."""
        for path in (self._folder / "pieces").iterdir():
            path.unlink()

    def kept(self, cut: Cut, forms: Forms) -> KeptInFiles:
        """See `Store`."""
        for number in self._numbers():
            if number > cut.number:
                self._path_of(number).unlink()
        sync_folder(self._folder / "cuts")
        for path in (self._folder / "pieces").iterdir():
            if path.name not in cut.pieces:
                path.unlink()
        self._names = cut.pieces
        return KeptInFiles(Base(self._folder / "base.sqlite"), list(self._pieces(cut)), forms)

    def _pieces(self, cut: Cut) -> Iterator[StoredPiece]:
        """What changed up to a cut since the base, the oldest first."""
        folded = self._folded
        for name, told in sorted(cut.pieces.items()):
            if _number_of(name) <= folded:
                continue
            path = self._folder / "pieces" / name
            try:
                data = path.read_bytes()
            except OSError as error:
                raise StateDamaged(f"{path}, which cut {cut.number} needs, cannot be read: {error.strerror}") from error
            if xxhash.xxh3_128_digest(data) != told:
                raise StateDamaged(
                    f"{path}, which cut {cut.number} needs, was changed since it was written: its hash is another; "
                    f"go on from a cut before, with from_cut=, or begin anew"
                )
            yield piece_of(data, str(path))

    def blocks(self, cut: Cut) -> list[bytes]:
        """See `Store`."""
        size = len(hash_block(cut.output.algorithm, b""))
        path = self._folder / "blocks"
        data = path.read_bytes()[: size * cut.output.blocks] if path.exists() else b""
        if len(data) < size * cut.output.blocks:
            raise StateDamaged(
                f"{path} has the hashes of {len(data) // size} blocks, and cut {cut.number} comes after "
                f"{cut.output.blocks}; it was cut off, and the run cannot go on from there"
            )
        return [data[start : start + size] for start in range(0, len(data), size)]

    # What is written.

    @property
    def is_busy(self) -> bool:
        return self._writing is not None and not self._writing.done()

    def commit(self, cut: Cut, pieces: Mapping[str, bytes], blocks: Sequence[bytes], then: Callable[[], None]) -> None:
        """See `Store`."""
        self._wait()
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, "drift-cuts")
        self._writing = self._writer.submit(self._commit, cut, pieces, blocks, then)

    def _wait(self) -> None:
        if self._writing is not None:
            writing, self._writing = self._writing, None
            try:
                writing.result()
            except OSError as error:
                raise SettingsError(f"a cut cannot be written to {self._folder}: {error.strerror}") from error

    def _commit(self, cut: Cut, pieces: Mapping[str, bytes], blocks: Sequence[bytes], then: Callable[[], None]) -> None:
        hashes: dict[str, bytes] = {}
        for name, data in pieces.items():
            named = f"{cut.number:0{_DIGITS}}-{name}"
            _write(self._folder / "pieces" / named, data)
            hashes[named] = xxhash.xxh3_128_digest(data)
        if blocks:
            self._write_blocks(cut, blocks)
        folded = self._folded
        earlier = {name: told for name, told in self._names.items() if _number_of(name) > folded}
        self._names = {**earlier, **hashes}
        path = self._path_of(cut.number)
        partial = path.with_suffix(".partial")
        _write(partial, encoded(cut.with_pieces(self._names)))
        partial.replace(path)
        sync_folder(path.parent)
        then()
        self._prune()

    def _write_blocks(self, cut: Cut, blocks: Sequence[bytes]) -> None:
        size = len(hash_block(cut.output.algorithm, b""))
        with (self._folder / "blocks").open("r+b" if (self._folder / "blocks").exists() else "w+b") as file:
            file.seek(size * (cut.output.blocks - len(blocks)))
            file.write(b"".join(blocks))
            file.truncate()
            _flush(file)

    def _prune(self) -> None:
        """Keep no more cuts than were asked for, and fold what is below the oldest into the base, many cuts at once."""
        assert self._base is not None
        numbers = self._numbers()
        oldest = numbers[-self._keep :][0]
        for number in numbers:
            if number < oldest:
                self._path_of(number).unlink()
        older = [path for path in (self._folder / "pieces").iterdir() if _number_of(path.name) <= oldest]
        if len(older) < _FOLDED_PIECES and sum(path.stat().st_size for path in older) < _FOLDED_BYTES:
            return
        if oldest > self._base.folded:
            cut = self._manifest(oldest)
            self._base.fold(oldest, cut.at, list(self._pieces(cut)))
        for path in older:
            path.unlink()

    def drop(self, number: int) -> None:
        """See `Store`."""
        path = self._path_of(number)
        if not path.exists():
            raise SettingsError(f"{self._folder} has no cut {number}; drift state list shows those it has")
        path.unlink()
        sync_folder(path.parent)

    def close(self) -> None:
        """See `Store`."""
        try:
            self._wait()
        finally:
            if self._writer is not None:
                self._writer.shutdown()
            if self._base is not None:
                self._base.close()
                self._base = None
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None


class KeptInFiles:
    """The states of one cut: the base, and what changed since."""

    def __init__(self, base: Base, pieces: Sequence[StoredPiece], forms: Forms) -> None:
        self._base = base
        self._forms = forms
        self._changed: dict[str, dict[bytes, bytes | None]] = {}
        self._timed: dict[str, dict[bytes, None]] = {}
        self._later: list[LaterForm] = base.later()
        for piece in pieces:
            for step, (keys, values, timed) in piece.states.items():
                self._changed.setdefault(step, {}).update(zip(keys, values))
                with_timers = self._timed.setdefault(step, {})
                for key in keys:
                    with_timers.pop(key, None)
                with_timers.update((keys[at], None) for at in timed)
            self._later += piece.later

    def at_once(self, cut: Cut) -> Piece:
        """See `Kept`."""
        states: dict[str, list[tuple[Any, Any]]] = {}
        for step in cut.steps:
            changed = self._changed.get(step, {})
            rows = [(key, form) for key, form in self._base.timed(step) if key not in changed]
            rows += [(key, form) for key in self._timed.get(step, ()) if (form := changed[key]) is not None]
            states[step] = self._forms.entries(rows)
        return Piece(cut.at, states, self._forms.later(each for each in self._later if each.meta >= cut.at))

    def lookup(self, step: str) -> Lookup:
        """See `Kept`."""
        changed, base, forms = self._changed.get(step, {}), self._base, self._forms

        def found(identities: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
            by_form = {form_of_identity(each): each for each in identities}
            for key in by_form.keys() & changed.keys():
                identity = by_form.pop(key)
                form = changed[key]
                if form is not None:
                    yield identity, forms.value(form)
            for key, form in base.find(step, list(by_form)):
                yield by_form[key], forms.value(form)

        return found

    def every(self, step: str) -> Iterator[tuple[Any, Any]]:
        """All states of a step: identities of keys and what is kept of each."""
        changed = self._changed.get(step, {})
        for key, form in self._base.every(step):
            if key not in changed:
                yield identity_of(key), self._forms.value(form)
        for key, known in changed.items():
            if known is not None:
                yield identity_of(key), self._forms.value(known)

    def close(self) -> None:
        self._base.close()


def _number_of(name: str) -> int:
    return int(name[:_DIGITS])


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        _flush(file)


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
