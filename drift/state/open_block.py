"""The items of the digest's block that is not full, as rows of a store.

Invariant: the rows that a checkpoint names are the items of its open block, in their order; a row is read as it was
written, or refused, and is there as long as a retained checkpoint names it.

Why: a checkpoint adds what came since the one before, in rows of bounded size, and names them and those before them of
the same block, with their hashes. Only a last row that is small is written again, under a new name: so rows are few
however often checkpoints are taken, and a checkpoint writes little more than what came. A row that no retained
checkpoint names is removed with the last one that did, or when the run resumes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import xxhash

from drift.state.backend import Reader
from drift.state.checkpoint import Checkpoint, OpenedRow, StateDamaged
from drift.state.tables import name_of
from drift_barrier.digest import Encoded, Extent, Opened

#: Bytes of payloads in a row; fewer only in the last one.
ROW_BYTES = 1 << 20
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Encoded).decode


class OpenedRows:
    """The rows of the retained checkpoints. `retained`: the checkpoints that are retained, by number."""

    def __init__(self, retained: Iterable[Checkpoint] = ()) -> None:
        self._by_number: dict[int, list[OpenedRow]] = {}
        self._block = 0  # of the rows of the last one
        for checkpoint in retained:
            self._by_number[checkpoint.number] = list(checkpoint.output.opened)
            self._block = checkpoint.output.blocks

    def of(self, number: int) -> list[OpenedRow]:
        return self._by_number[number]

    def added(self, checkpoint: Checkpoint, opened: Opened | None) -> Iterator[dict[bytes, bytes | None]]:
        """The rows to be written for a checkpoint, the next one, each by its name; they are noted as they are made.

        Args:
            opened: the items of its open block; None if they are those of the checkpoint before.
        """
        before = next(reversed(self._by_number.values()), [])
        rows = before[:] if checkpoint.output.blocks == self._block else []
        self._by_number[checkpoint.number], self._block = rows, checkpoint.output.blocks
        if opened is None or _sum(rows) == opened.extent:
            return
        if rows and rows[-1].extent.payloads < ROW_BYTES:
            rows.pop()
        for number, part in enumerate(opened.since(_sum(rows), ROW_BYTES)):
            data = _encode(part)
            name = name_of(checkpoint.number, str(number))
            extent = Extent(part.items, len(part.metas), len(part.payloads))
            rows.append(OpenedRow(name, xxhash.xxh3_128_digest(data), extent))
            yield {name.encode(): data}

    def dropped_below(self, oldest: int) -> dict[bytes, bytes | None]:
        """The rows that are named only by checkpoints below this one, which are not retained any more."""
        dropped = [self._by_number.pop(number) for number in [*self._by_number] if number < oldest]
        return self.unneeded(row.name.encode() for rows in dropped for row in rows)

    def unneeded(self, names: Iterable[bytes]) -> dict[bytes, bytes | None]:
        """The rows that no retained checkpoint names, as deletions."""
        needed = {row.name.encode() for rows in self._by_number.values() for row in rows}
        return {name: None for name in names if name not in needed}


def opened_in(reader: Reader, checkpoint: Checkpoint, where: str) -> Iterator[Encoded]:
    """The items of a checkpoint's open block, row by row.

    Raises:
        StateDamaged: a row was changed or removed since it was written.
    """
    for row in checkpoint.output.opened:
        (data,) = reader.read("opened", [row.name.encode()])
        if data is None or xxhash.xxh3_128_digest(data) != row.hashed:
            raise StateDamaged(
                f"row {row.name} of the output's last block in {where}, which checkpoint {checkpoint.number} needs, "
                f"was {'removed' if data is None else 'changed'} since it was written; resume from an earlier "
                f"checkpoint with from_checkpoint=, or start a new run with another state="
            )
        yield _decode(data)


def _sum(rows: Iterable[OpenedRow]) -> Extent:
    """What rows have together."""
    total = Extent()
    for row in rows:
        total = total.and_(*row.extent)
    return total
