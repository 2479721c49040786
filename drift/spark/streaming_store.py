"""What a stream keeps between micro-batches, in folders that Spark can write to, wherever these are.

Invariant: a micro-batch that has a commit is done, and what it wrote is complete; the one after it can be computed, any
number of times, from what the last commit names, with the same result.

Why: a commit is written last. State and pending items are written to a slot that the last commit does not name, so a
micro-batch that is computed again overwrites only what nobody has relied on. Nothing has to be deleted or renamed,
which is why any file system will do.

A micro-batch writes the states that it has changed. Those of a key in the slots since the last one that has all keys
are versions, of which the last counts. All are written again when the changes have come to as many bytes, or are in
as many slots as there should be: so what is written follows what changes, and what is read is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from drift.spark.batches import DDL
from drift.spark.streaming_kernels import KEPT
from drift_graph.errors import SettingsError

PENDING_DDL = "rank int, time long, place binary, payload binary"
LATE_DDL = "source string, time long, heartbeat long, payload binary"
#: An even number: pending items have two slots, by whether that of the state is odd.
SLOTS = 32
_COMMIT_DDL = "body binary"
#: What a commit begins with; another number is another format.
_FORMAT = b"drift stream 2\n"


@dataclass(frozen=True)
class Commit:
    """What is known when a micro-batch is done; or when a stream begins from a cut, which has the number -1.

    Attributes:
        structure: of the graph, by its fingerprint.
        partitions: tasks that share the keys; it stays what it is, since each task keeps the state of its own.
        slot: where state and pending items are.
        slots: of state, from the last one with all keys to `slot`.
        whole_bytes, changed_bytes: of states, in the first of these and in the others.
        position: items released so far.
        heartbeat: nothing below it is still to be processed, later items among it.
        promises: for each source, by rank, the time that it promises nothing below; None before its first item.
        blocks, edges: of the digest, those of this micro-batch; see `drift.spark.blocks`.
        finished: the input has ended.
        graph: fingerprint of the graph, where it is the first one or another than before.
        since: the cut that the stream went on from: what lies below it comes again, and is passed over.
    """

    number: int
    structure: str
    partitions: int
    slot: int
    slots: tuple[int, ...]
    position: int
    promises: tuple[int | None, ...]
    heartbeat: bytes = b""
    items_in: int = 0
    late_items: int = 0
    blocks: list[tuple[int, bytes]] = field(default_factory=list, repr=False)
    edges: list[tuple[int, int, bytes, bytes]] = field(default_factory=list, repr=False)
    finished: bool = False
    whole_bytes: int = 0
    changed_bytes: int = 0
    graph: Any = field(default=None, repr=False)
    since: bytes = b""

    @property
    def writes_everything(self) -> bool:
        """Whether the next micro-batch writes the states of all keys."""
        return self.changed_bytes >= self.whole_bytes or len(self.slots) >= SLOTS // 2

    @property
    def next_slot(self) -> int:
        return (self.slot + 1) % SLOTS


class Store:
    """The folders of one stream.

    Args:
        folder: the stream's own.
        output: where the items go.
    """

    def __init__(self, spark: Any, folder: str, output: str) -> None:
        self._spark = spark
        self._folder = folder
        self._output = output

    def knows_query(self) -> bool:
        """Whether Spark's own checkpoint is there."""
        return self._read("value string", f"{self._folder}/query/metadata", kind="text") is not None

    def commit(self, number: int) -> Commit | None:
        """The commit of a micro-batch; None where it is not done."""
        return self._read_commit(number, "commits")

    def _read_commit(self, number: int, kind: str) -> Commit | None:
        rows = self._read(_COMMIT_DDL, f"{self._folder}/{kind}/number={number}")
        found = rows.collect() if rows is not None else []
        return commit_of(bytes(found[0].body)) if found else None

    def commits(self) -> list[Commit]:
        """All commits, in order."""
        rows = self._read(_COMMIT_DDL, f"{self._folder}/commits")
        found = [commit_of(bytes(row.body)) for row in rows.select("body").collect()] if rows is not None else []
        return sorted(found, key=lambda commit: commit.number)

    def write_items(self, number: int, items: Any) -> None:
        items.write.mode("overwrite").parquet(f"{self._output}/number={number}")

    def write_late(self, number: int, late: Any) -> None:
        late.write.mode("overwrite").parquet(f"{self._folder}/late/number={number}")

    def write_state(self, slot: int, state: Any) -> None:
        state.write.mode("overwrite").parquet(f"{self._folder}/state/slot={slot}")

    def write_pending(self, slot: int, pending: Any) -> None:
        pending.write.mode("overwrite").parquet(f"{self._folder}/pending/slot={slot % 2}")

    def write_commit(self, commit: Commit) -> None:
        self._write_commit(commit, "commits")

    def write_failure(self, commit: Commit, items: Any) -> None:
        """What a micro-batch released before it failed; nothing goes on from it."""
        items.write.mode("overwrite").parquet(f"{self._folder}/failed/number={commit.number}")
        self._write_commit(commit, "failures")

    def _write_commit(self, commit: Commit, kind: str) -> None:
        body = self._spark.createDataFrame([(bytearray(commit_bytes(commit)),)], _COMMIT_DDL)
        body.coalesce(1).write.mode("overwrite").parquet(f"{self._folder}/{kind}/number={commit.number}")

    def failure(self, number: int) -> Commit | None:
        """Of a micro-batch that has failed, if it has not been done since."""
        return self._read_commit(number, "failures")

    def state(self, slots: tuple[int, ...]) -> Any:
        """What was remembered, as rows for the levels that remembered it."""
        kept = ", ".join(f"{name} {kind.split()[1]}" for name, kind in zip(KEPT, DDL.split(", ")))
        rows = self._must_read(kept, *(f"{self._folder}/state/slot={slot}" for slot in slots))
        level = f"cast({KEPT[4]} AS int) AS level"
        names = [field.split()[0] for field in DDL.split(", ")]
        return rows.selectExpr(level, *(f"{kept} AS {name}" for kept, name in list(zip(KEPT, names))[1:]))

    def pending(self, slot: int) -> Any:
        """Items that were not below minimal time."""
        return self._must_read(PENDING_DDL, f"{self._folder}/pending/slot={slot % 2}")

    def items(self, ddl: str) -> Any:
        """The items of all micro-batches that are done, and those that came before the error of one that failed."""
        done = [f"{self._output}/number={commit.number}" for commit in self.commits() if commit.number >= 0]
        if self.failure(len(done)) is not None:
            done.append(f"{self._folder}/failed/number={len(done)}")
        return self._must_read(ddl, *done) if done else self._spark.createDataFrame([], ddl)

    def late(self) -> Any:
        """The items that were diverted, in micro-batches that are done."""
        done = [f"{self._folder}/late/number={each.number}" for each in self.commits() if each.late_items]
        return self._must_read(LATE_DDL, *done) if done else self._spark.createDataFrame([], LATE_DDL)

    def _read(self, ddl: str, *paths: str, kind: str = "parquet") -> Any:
        from pyspark.errors import AnalysisException

        try:
            return self._spark.read.schema(ddl).format(kind).load(list(paths))
        except AnalysisException as error:
            if error.getCondition() == "PATH_NOT_FOUND":
                return None
            raise

    def _must_read(self, ddl: str, *paths: str) -> Any:
        rows = self._read(ddl, *paths)
        if rows is None:
            raise SettingsError(
                f"the stream's folder {self._folder} is not whole: of {', '.join(paths)} some are not there, though a "
                f"commit names them; give it back what was removed, or start anew with another checkpoint"
            )
        return rows


def commit_bytes(commit: Commit) -> bytes:
    """A commit as it is written: the version of the format, then MessagePack."""
    return _FORMAT + msgspec.msgpack.encode(commit)


def commit_of(body: bytes) -> Commit:
    """The commit that was written so.

    Raises:
        SettingsError: it is of another version of the format, or none.
    """
    if not body.startswith(_FORMAT):
        raise SettingsError(
            f"the stream's folder has a commit that begins with {body[:16]!r}, and this drift reads {_FORMAT!r}: it "
            f"was written by another version; go on with that one, or start anew with another checkpoint"
        )
    return msgspec.msgpack.decode(body[len(_FORMAT) :], type=Commit)
