"""The manifest of a checkpoint: everything that is not keyed, and the names and hashes of the files of keyed states.

Invariant: a manifest is read exactly as it was written, and the files that it names exist and are unchanged; otherwise
it is refused.

Why: it ends with a hash of itself and holds the hash of each file of states, which are compared on reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import xxhash

from drift.records.fingerprint import Fingerprint
from drift_barrier.digest import Algorithm, Extent
from drift_graph.canonical import stored
from drift_graph.errors import StorageError
from drift_graph.meta import END_OF_TIME, TIME_MIN, time_of
from drift_graph.restore import CannotRestore, restored

#: Raised whenever the contents of a checkpoint change, so that checkpoints of another format are refused.
FORMAT = 3
#: In place of the form of a step that was dropped; older snapshots may still have states of it.
DROPPED = "dropped"
_HASH_BYTES = 16


class StateDamaged(StorageError):
    """The state of a run was changed or removed since it was written, or is of another version of drift."""


class OpenedRow(NamedTuple):
    """A row with the bytes of items of the block that is not full; see `drift.state.open_block`."""

    name: str
    hashed: bytes
    extent: Extent


@dataclass(frozen=True)
class Output:
    """The output below a checkpoint.

    Attributes:
        position: of the next item.
        last: the meta of the last item; b"" if there is none.
        blocks: number of full blocks, whose hashes are in the store.
        opened: the rows of the store with the items of the digest's last block, which is not full.
    """

    position: int
    last: bytes
    blocks: int
    algorithm: Algorithm
    opened: Sequence[OpenedRow] = ()


@dataclass(frozen=True)
class Checkpoint:
    """
    Attributes:
        number: checkpoints of one store are numbered from 1, without those that were never committed.
        at: minimal time.
        graph: fingerprint of the graph that computed it.
        steps: the kind of each grouping with state, by name; DROPPED for those that the graph no longer has.
        snapshots: hash of each file of states, by name.
        sources, sinks: the position of each, by name.
        items_in, tombstones, late_items: counts of the run so far.
        keys: number of keys whose states have changed since the checkpoint before.
        base: the checkpoint that the base was as of when this checkpoint was committed; it may be as of a later one by
            now.
        taken_ms: when it was taken, in milliseconds since 1970.
        released: items below it that each sink got, by name.
        converted: hash of the function that converted the states of a step last, by name.
        kinds, targets: what each sink was that has a position, and what it wrote to, by name.
    """

    number: int
    at: bytes
    graph: Fingerprint
    steps: Mapping[str, str]
    output: Output
    snapshots: Mapping[str, bytes] = field(default_factory=dict)
    sources: Mapping[str, Any] = field(default_factory=dict)
    sinks: Mapping[str, Any] = field(default_factory=dict)
    items_in: int = 0
    tombstones: int = 0
    late_items: int = 0
    keys: int = 0
    base: int = 0
    taken_ms: int = 0
    released: Mapping[str, int] = field(default_factory=dict)
    converted: Mapping[str, str] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    targets: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_last(self) -> bool:
        """Whether the run had ended, so that nothing comes after the checkpoint."""
        return self.at == END_OF_TIME

    @property
    def reached(self) -> str:
        """The time of the checkpoint, for people."""
        if len(self.at) < 8:
            return "the beginning"
        return "the end" if self.is_last else f"time {max(time_of(self.at), TIME_MIN)}"

    @property
    def live_steps(self) -> Mapping[str, str]:
        """The steps that were not dropped."""
        return {name: form for name, form in self.steps.items() if form != DROPPED}

    def as_stored(self, snapshots: Mapping[str, bytes], base: int, opened: Sequence[OpenedRow]) -> Checkpoint:
        """The checkpoint with what it names in a store."""
        return replace(self, snapshots=dict(snapshots), base=base, output=replace(self.output, opened=opened))


def encoded(checkpoint: Checkpoint) -> bytes:
    opened = [[row.name, row.hashed, list(row.extent)] for row in checkpoint.output.opened]
    output = {**vars(checkpoint.output), "opened": opened}
    body = stored((FORMAT, {**vars(checkpoint), "output": output}))
    return body + xxhash.xxh3_128_digest(body)


def decoded(data: bytes, where: str) -> Checkpoint:
    """Decode a manifest. Raises StateDamaged: the bytes were changed, or are of another format."""
    body, expected = data[:-_HASH_BYTES], data[-_HASH_BYTES:]
    if xxhash.xxh3_128_digest(body) != expected:
        raise StateDamaged(
            f"the manifest {where} was changed or cut off since it was written: its hash is another; remove it to "
            f"resume from the checkpoint before, or start a new run with another state="
        )
    try:
        form, fields = restored(body)
    except CannotRestore as error:
        raise StateDamaged(
            f"the manifest {where} cannot be read: {error}; start a new run with another state="
        ) from error
    if form != FORMAT:
        raise StateDamaged(
            f"the manifest {where} has format {form!r}, and this drift writes and reads format {FORMAT}; resume with "
            f"the drift that wrote it, or start a new run with another state="
        )
    opened = [OpenedRow(name, hashed, Extent(*extent)) for name, hashed, extent in fields["output"]["opened"]]
    output = Output(**{**fields["output"], "opened": opened})
    return Checkpoint(**{**fields, "output": output})
