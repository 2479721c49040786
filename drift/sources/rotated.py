"""A file that is followed while it is rotated: its pieces, the oldest first, as one live source.

Invariant: what comes is what was written to the file, once and in order, whether a piece is renamed, packed, or copied
and the file cut, while it is read or while nobody reads. A piece that is not there any more is an error.

Why: a piece is known by what was read of it, whatever its name is now, and by the piece before it; of several that
begin so by its identity, and where that is not there, none is guessed. Its end is its end once something was written
behind it. A rotation that is seen in the middle is looked at again before it is an error, or before a piece is read
that the file itself begins with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from drift.places import Files
from drift.sources.base import Reader
from drift.sources.compressed import PACKINGS
from drift.sources.followed import FollowedReader, Listing
from drift.sources.positions import position_fields, position_of
from drift_graph.errors import InputError

_PACKED = "|".join(re.escape(ending) for each in PACKINGS for ending in each.endings if each.name != "zip")


_COMPARED_BYTES = 1 << 18


class _Piece(NamedTuple):
    """Attributes:
    number: how many pieces are newer, if the name says so: 0 of the file itself.
    """

    name: str
    identity: str
    size: int
    number: int | None


class RotatedReader(FollowedReader):
    """
    Args:
        files: one file.
    """

    def __init__(self, files: Files, open_one: Callable[[str, bool], Reader]) -> None:
        self._name = files.names()[0]
        self._folder = Path(files.folder)
        stem, ending = Path(self._name).stem, Path(self._name).suffix
        written = r"[.-](\d[\d.:_T+-]*)"
        self._pattern = re.compile(
            rf"(?:{re.escape(stem + ending)}{written}|{re.escape(stem)}{written}{re.escape(ending)})({_PACKED})?"
        )
        super().__init__(files, open_one)
        self._at_end = False
        self._head: Any = None  # a position behind the first items of the piece that is read
        self._end: Any = None  # the position at the end of the last piece before that had something
        self._ended = ""  # the identity of that piece then; another one may have the same in it
        self._no_copies: set[_Piece] = set()  # of the one that is read
        self._empty: set[_Piece] = set()  # packed pieces behind that, in which nothing is
        self._unclear: Listing | None = None  # in which the piece was not found, and may be in the next
        self._at_start = self._pieces()
        self._older = len(self._at_start) - 1  # pieces before the first to be read, if none of them is known by its end
        self._piece: _Piece | None = None  # that is read, as it was when it was opened
        if not self._at_start[-1].size:
            self._know_older()

    def _exists(self) -> bool:
        return bool(self._pieces())

    def _know_older(self) -> None:
        """Know the pieces before the first to be read by the end of the last that has something, as their number
        changes where old ones are removed.
        """
        there = {each.identity: each for each in self._pieces()}
        for older in self._at_start[-2::-1]:
            if older.identity not in there:  # it was packed meanwhile
                break
            with closing(self._open_one(there[older.identity].name, False)) as reader:
                end = reader.end()
            if end["offset"]:
                self._end, self._ended = end, older.identity
                break
        else:
            self._older = 0
        self._at_start = []

    def _pieces(self) -> list[_Piece]:
        """The pieces that are there, the file itself last."""
        while True:
            found = self._found()
            if found == self._found():  # else one may have been renamed while they were listed
                return found

    def _found(self) -> list[_Piece]:
        found: dict[str, tuple[tuple[int, int, str], _Piece]] = {}
        try:
            names = sorted(each.name for each in self._folder.iterdir())
        except OSError as error:
            raise InputError(f"{self._folder} cannot be listed: {error.strerror}; check the path") from None
        for name in names:
            matched = self._pattern.fullmatch(name)
            if (matched is None and name != self._name) or (stat := self._files.stat(name)) is None:
                continue
            if matched is None:
                found[""] = (1, 0, ""), _Piece(name, stat.identity, stat.size, 0)
                continue
            written = str(matched[1] or matched[2])
            if written in found:  # it is being packed, and this is not all of it
                continue
            is_number = written.isdigit() and len(written) < 6
            number, changed_ns = int(written) if is_number else None, self._changed_ns(name)
            order = (0, -number if number is not None else changed_ns, written)
            found[written] = order, _Piece(name, stat.identity, stat.size, number)
        if len({each.number is None for (kind, *_), each in found.values() if not kind}) > 1:  # two ways to name them
            found = {
                written: ((kind, 0 if kind else self._changed_ns(each.name), written), each._replace(number=None))
                for written, ((kind, *_), each) in found.items()
            }
        return [each for _, each in sorted(found.values())]

    def _changed_ns(self, name: str) -> int:
        try:
            return (self._folder / name).stat().st_mtime_ns
        except FileNotFoundError:
            return 0  # and the next listing has it under another name

    def _list(self, file: str) -> Listing:
        return self._listing(self._pieces())

    def _listing(self, pieces: Sequence[_Piece]) -> Listing:
        last = pieces[-1] if pieces and pieces[-1].name == self._name else None
        shown = [f"{each.name} {each.identity} {each.size}" for each in pieces]
        return Listing(shown, last and last.size, last and last.identity)

    # Reading.

    def read(self, items_max: int) -> list[Any] | None:
        payloads = super().read(items_max)
        if payloads and self._head is None:
            self._head = self._reader_position()
        return payloads

    def _goes_on_elsewhere(self) -> bool:
        is_cut = self._is_cut()
        if is_cut:
            self._leave()
        return is_cut

    def _end_file(self) -> None:
        assert self._reader is not None
        self._at_end = True
        end = self._reader.end()
        if end["offset"]:
            self._end, self._ended = end, self._identity or ""
            self._empty.clear()
        elif self._piece is not None:  # it was empty, and nobody would know it again
            self._empty.add(self._piece)
        self._close_file()

    def _more(self) -> bool:
        with self._lock:
            pieces = self._pieces()
            listing = self._listing(pieces)
            now = next((each for each in pieces if each.identity == self._identity), None)
            is_other = listing != self._listed
            if self._reader is None or (is_other and self._is_left(now, pieces)):
                self._leave()
                return self._opened(pieces, listing)
            behind = pieces[pieces.index(now) + 1 :] if now is not None else pieces
            if any(each.size for each in behind):
                self._reader.complete()  # nobody writes to it any more
            elif not is_other:
                self._wait_for_more()
                return False
            return self._has_more(listing)

    def _is_left(self, now: _Piece | None, pieces: Sequence[_Piece]) -> bool:
        """Whether the piece that is read may be another one now: nothing was read of it, or more than it has; or there
        is a copy of it, and what was written to it since begins as the copy does.
        """
        offset = self._offset()
        if not offset:
            return True
        if now is None or now.name != self._name:
            return False
        return now.size < offset or any(self._has_become(each, now) for each in self._others(pieces))

    def _has_become(self, piece: _Piece, file: _Piece) -> bool:
        """Whether a piece is a copy of what the file was, in which that is no longer."""
        begins_so = piece not in self._no_copies and self._begins_so(piece, self._reader_position())
        if not begins_so:
            self._no_copies.add(piece)
        return begins_so and not self._is_copied(piece, file)

    def _has_more(self, listing: Listing) -> bool:
        self._listed, self._unclear, self._caught_up, self._idle = listing, None, False, False
        self._wake.set()
        return True

    def _opened(self, pieces: Sequence[_Piece], listing: Listing) -> bool:
        """Open the piece that is to be read; returns whether it is there."""
        at = self._older - 1 if self._end is None else self._index_of(self._others(pieces), self._end)
        if at is None and self._at_end and self._index_of(pieces[-1:], self._end) is not None:
            at = len(pieces) - 1  # a packed file has its end when it is there
        within = self._position_in_file
        following = self._following(pieces, at)
        if not self._at_end and within and within["offset"]:
            likely = pieces[following : following + 1]
            renamed = [each for each in self._others(pieces) if each.identity == self._identity]
            is_known = at is not None and at >= 0 and pieces[at].identity == self._ended
            for each in [*likely, *renamed] if is_known else [*renamed, *likely]:
                if self._begin(pieces, each, within):
                    return self._has_begun(pieces, listing)
            begin_so = [each for each in pieces if self._begins_so(each, within)]
            if len(begin_so) > 1:
                names = ", ".join(each.name for each in begin_so)
                return self._is_unclear(listing, f"each of {names} begins with what was read of one that is not known")
            for each in begin_so:
                if self._begin(pieces, each, within):
                    return self._has_begun(pieces, listing)
            copy = self._index_of(self._others(pieces), self._head, whole=False, first=likely)
            if copy is None:
                return self._is_unclear(listing, "the piece of it that was read is not there any more")
            at, following = copy, self._following(pieces, copy)  # more was read than was copied
            with closing(self._open_one(pieces[copy].name, False)) as reader:
                self._end, self._ended = reader.end(), pieces[copy].identity
        if at is None:
            return self._is_unclear(listing, "the piece before what comes next is not there any more")
        for one, other in pairwise(pieces[max(at, 0) : following + 1]):
            if one.number is not None and other.number is not None and one.number - other.number != 1:
                why = f"piece {one.number - 1} is not there, and piece {one.number} is"
                return self._is_unclear(listing, why)
        if following == len(pieces):
            self._listed = listing
            self._wait_for_more()
            return False
        return (
            self._has_begun(pieces, listing)
            if self._begin(pieces, pieces[following], None)
            else self._is_unclear(listing, "it cannot be read")
        )

    def _has_begun(self, pieces: Sequence[_Piece], listing: Listing) -> bool:
        """Read the piece that was opened; but look again if it may be a copy of the file that is to be cut."""
        if listing == self._unclear or self._piece == pieces[-1] or not self._is_copied(self._piece, pieces[-1]):
            return self._has_more(listing)
        self._leave()
        return self._looks_again(listing)

    def _following(self, pieces: Sequence[_Piece], at: int | None) -> int:
        """The first piece behind one that has something, or may have; behind the last if it is not known."""
        following = len(pieces) if at is None else at + 1
        while following < len(pieces) and (
            pieces[following] in self._empty or (not pieces[following].size and following + 1 < len(pieces))
        ):
            following += 1
        return following

    def _is_copied(self, piece: _Piece | None, file: _Piece) -> bool:
        """Whether the file begins with all of a piece, as one does that is copied to it and was not cut yet."""
        if piece is None or file.size < piece.size:
            return False
        try:
            with (self._folder / piece.name).open("rb") as one, (self._folder / file.name).open("rb") as other:
                while (part := one.read(_COMPARED_BYTES)) == other.read(len(part)):
                    if not part:
                        return True
        except OSError:
            pass  # they have other names by now
        return False

    def _index_of(
        self, pieces: Sequence[_Piece], position: Any, *, whole: bool = True, first: Sequence[_Piece] = ()
    ) -> int | None:
        """The newest piece that has what is before a position, and if `whole` no more than that: but before all others
        that which was known by it, or one of those that are named, if it is there.
        """

        def is_first(piece: _Piece) -> bool:
            return piece in first or (whole and piece.identity == self._ended)

        for at in sorted(range(len(pieces)), key=lambda at: (not is_first(pieces[at]), -at)):
            reader = self._sought(pieces[at], position) if position else None
            if reader is None:
                continue
            with closing(reader):
                if not whole or reader.end()["offset"] == position["offset"]:
                    return at
        return None

    def _others(self, pieces: Sequence[_Piece]) -> Sequence[_Piece]:
        """All but the file itself."""
        return pieces[:-1] if pieces and pieces[-1].name == self._name else pieces

    def _sought(self, piece: _Piece, position: Any, *, grows: bool = False) -> Reader | None:
        """A reader of a piece at a position; None if it has not what is before that."""
        reader: Reader | None = None
        try:
            reader = self._open_one(piece.name, grows)
            found = self._files.stat(piece.name)
            if found is not None and found.identity == piece.identity:
                if position:
                    reader.seek(position)
                return reader
        except InputError:
            pass
        if reader is not None:
            reader.close()
        return None

    def _begins_so(self, piece: _Piece, position: Any) -> bool:
        """Whether a piece has what is before a position."""
        reader = self._sought(piece, position)
        if reader is not None:
            reader.close()
        return reader is not None

    def _begin(self, pieces: Sequence[_Piece], piece: _Piece, position: Any) -> bool:
        """Open a piece at a position, if it has what is before that."""
        grows = not any(each.size for each in pieces[pieces.index(piece) + 1 :])
        reader = self._sought(piece, position, grows=grows)
        if reader is None:
            return False
        if not position:
            self._head = None
        self._no_copies = set(pieces)
        self._reader, self._piece, self._file, self._identity = reader, piece, piece.name, piece.identity
        self._position_in_file, self._at_end = None, False
        return True

    def _is_unclear(self, listing: Listing, why: str) -> bool:
        """Look again if this may be in the middle of a rotation.

        Raises:
            InputError: it is not.
        """
        if self._unclear == listing:
            raise InputError(
                f"{self._files.path_of(self._name)} was rotated, and {why}, so what follows what was read is not "
                f"known; keep more pieces, bring back those that were removed, or start anew with another state"
            )
        return self._looks_again(listing)

    def _looks_again(self, listing: Listing) -> bool:
        self._unclear, self._listed = listing, None
        self._wait_for_more()
        return False

    def _offset(self) -> int:
        position = self._reader_position()
        return int(position["offset"]) if position else 0

    def _is_cut(self) -> bool:
        """Whether what was read of the piece is in a copy of it, and in the piece no longer."""
        if not self._offset():
            return False
        position, pieces = self._reader_position(), self._pieces()
        here = [each for each in pieces if each.identity == self._identity]
        others = [each for each in pieces if each.identity != self._identity]
        return self._index_of(here, position, whole=False) is None and any(
            self._index_of(others, each, whole=False) is not None for each in (position, self._head)
        )

    def _leave(self) -> None:
        """Go on in another piece, which has what was read of this one."""
        if self._reader is not None:
            self._position_in_file = self._reader_position()
            self._close_file()

    # Positions.

    def position(self) -> Any:
        if self._at_start and self._end is None and not self._offset():
            self._know_older()
        within = None if self._at_end else self._reader_position() or {}
        return position_of(
            "files",
            file=self._name,
            before=0,
            within=within,
            done=None,
            head=self._head,
            end=self._end,
            ended=self._ended,
            identity=self._identity,
            older=self._older,
        )

    def seek(self, position: Any) -> None:
        if isinstance(position, dict) and position.get("kind") != "files":  # it was not followed
            position = position_of("files", file=self._name, before=0, within=position)
        self._position_in_file, _ = position_fields(position, "files", str(self._folder), "within", "file")
        self._head, self._end, self._ended = position.get("head"), position.get("end"), position.get("ended", "")
        self._older, self._at_start = position.get("older", self._older), []
        self._identity = position.get("identity")
        self._at_end = self._position_in_file is None and self._end is not None
