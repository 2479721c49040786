"""The open block of the digest in a store: what a checkpoint writes, what is read, and what is left."""

from __future__ import annotations

from collections.abc import Sequence
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

import drift
import drift.state.open_block
import drift_barrier.digest
from drift.records.fingerprint import fingerprint
from drift.state.checkpoint import Checkpoint, Output
from drift.state.open_block import OpenedRows, _decode, opened_in
from drift_barrier.digest import Digest
from drift_graph.metas import Metas

ROW_BYTES, BLOCK_ITEMS, KEEP = 50, 16, 2


class Rows:
    """A reader of the rows of one table."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}

    def sizes(self, table: str) -> dict[bytes, int]:
        return {key: len(value) for key, value in self.rows.items()}

    def close(self) -> None: ...

    def read(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.rows.get(key) for key in keys]

    def write(self, changes: dict[bytes, bytes | None]) -> None:
        self.rows |= {key: value for key, value in changes.items() if value is not None}
        for key in [key for key, value in changes.items() if value is None]:
            del self.rows[key]


def metas(begin: int, count: int) -> Metas:
    return Metas([number.to_bytes(8, "big") for number in range(begin, begin + count)])


def with_rows(graph: drift.Graph, number: int, digest: Digest, position: int) -> Checkpoint:
    output = Output(position, b"", len(digest.blocks), "xxh3_128")
    return Checkpoint(number, b"", fingerprint(graph.build()), {}, output)


@given(st.lists(st.tuples(st.lists(st.integers(0, 90), max_size=9), st.sampled_from(["goes on", "resumes"]))))
def test_each_retained_checkpoint_has_its_open_block_and_little_more_is_written_than_came(
    steps: list[tuple[list[int], str]],
) -> None:
    graph = drift.Graph("g")
    graph.source("in").sink("out")
    stored, rows = Rows(), OpenedRows()
    retained: list[tuple[Checkpoint, str]] = []
    position = written_bytes = came_bytes = 0
    with (
        mock.patch.object(drift.state.open_block, "ROW_BYTES", ROW_BYTES),
        mock.patch.object(drift_barrier.digest, "BLOCK_ITEMS", BLOCK_ITEMS),
    ):
        digest = Digest()
        for sizes, what in steps:
            parts = digest.add(metas(position, len(sizes)), ["x" * size for size in sizes], keeps=True)
            position += len(sizes)
            came_bytes += sum(len(part.payloads) for part in parts)
            checkpoint = with_rows(graph, retained[-1][0].number + 1 if retained else 1, digest, position)
            for row in rows.added(checkpoint, digest.opened()):
                (payloads,) = [_decode(data).payloads for data in row.values() if data is not None]
                assert len(payloads) <= ROW_BYTES
                written_bytes += len(payloads)
                stored.write(row)
            checkpoint = checkpoint.as_stored({}, 0, rows.of(checkpoint.number))
            assert all(row.extent.payloads == ROW_BYTES for row in checkpoint.output.opened[:-1])
            retained = [*retained, (checkpoint, digest.hexdigest())][-KEEP:]
            stored.write(rows.dropped_below(retained[0][0].number))
            assert set(stored.rows) == {row.name.encode() for each, _ in retained for row in each.output.opened}
            for each, expected in retained:
                assert resumed(stored, each, digest).hexdigest() == expected
            if what == "resumes":  # from the oldest: what came since comes again
                del retained[1:]
                checkpoint = retained[0][0]
                position, digest = checkpoint.output.position, resumed(stored, checkpoint, digest)
                rows = OpenedRows([checkpoint])
                stored.write(rows.unneeded(list(stored.rows)))
    assert written_bytes <= came_bytes + len(steps) * ROW_BYTES


def resumed(stored: Rows, checkpoint: Checkpoint, before: Digest) -> Digest:
    digest = Digest()
    digest.resume(before.blocks[: checkpoint.output.blocks], opened_in(stored, checkpoint, "here"))
    return digest
