"""The state of a stream between micro-batches, in folders of any file system that Spark can write to.

Invariant: a micro-batch that has a commit is done, and its files are complete; the next micro-batch can be computed any
number of times from the files that the last commit names, with the same result.

Why: a commit is written last. State and pending items are written to a slot that the last commit does not name, so a
micro-batch that is computed again overwrites only files that no commit names. Nothing has to be deleted or renamed,
so any file system will do.

A micro-batch writes the states that it changed. The slots since the last one with the states of all keys hold versions
of a key's state, of which the last counts. The states of all keys are written again when the changes have reached as
many bytes as all states, or fill half of the slots: so the bytes written follow the changes, and those read are
bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from drift.spark.batches import DDL
from drift.spark.streaming_kernels import STATE_COLUMNS
from drift_graph.errors import SettingsError

PENDING_DDL = "rank int, time long, stamp binary, payload binary"
LATE_DDL = "source string, time long, heartbeat long, payload binary"
#: An even number: pending items have two slots, for odd and even slots of the state.
SLOTS = 32
_COMMIT_DDL = "body binary"
#: First bytes of a commit; another number is another format.
_FORMAT = b"drift stream 3\n"


@dataclass(frozen=True)
class Commit:
    """The position of a stream after a micro-batch; number -1 is the checkpoint that the stream began from.

    Attributes:
        structure: of the graph, by its fingerprint.
        partitions: tasks that share the keys; where the next micro-batch has another number, the states are moved.
        slot: of this micro-batch's state and pending items.
        slots: of state, from the last one with all keys to `slot`.
        complete_bytes, changed_bytes: of states, in the first of these slots and in the others.
        position: items released so far.
        heartbeat: everything below it has been processed, later items included.
        heartbeats: for each source, by rank, its heartbeat as a time; None before its first item.
        blocks, edges: of the digest, those of this micro-batch; see `drift.spark.blocks`.
        finished: the input has ended.
        graph: fingerprint of the graph, if it is the first one or differs from the one before.
        since: the checkpoint from which the stream resumed: items below it come again, and are skipped.
    """

    number: int
    structure: str
    partitions: int
    slot: int
    slots: tuple[int, ...]
    position: int
    heartbeats: tuple[int | None, ...]
    heartbeat: bytes = b""
    items_in: int = 0
    late_items: int = 0
    blocks: list[tuple[int, bytes]] = field(default_factory=list, repr=False)
    edges: list[tuple[int, int, bytes, bytes]] = field(default_factory=list, repr=False)
    finished: bool = False
    complete_bytes: int = 0
    changed_bytes: int = 0
    graph: Any = field(default=None, repr=False)
    since: bytes = b""

    @property
    def writes_everything(self) -> bool:
        """Whether the next micro-batch writes the states of all keys."""
        return self.changed_bytes >= self.complete_bytes or len(self.slots) >= SLOTS // 2

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
        """Whether Spark's own checkpoint exists."""
        return self._read("value string", f"{self._folder}/query/metadata", kind="text") is not None

    def commit(self, number: int) -> Commit | None:
        """The commit of a micro-batch; None if it is not done."""
        return self._read_commit(number, "commits")

    def _read_commit(self, number: int, kind: str) -> Commit | None:
        rows = self._read(_COMMIT_DDL, f"{self._folder}/{kind}/number={number}")
        found = rows.collect() if rows is not None else []
        return commit_of(bytes(found[0].body)) if found else None

    def commits(self) -> list[Commit]:
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
        """Write the items that a micro-batch released before it failed; no other micro-batch resumes from them."""
        items.write.mode("overwrite").parquet(f"{self._folder}/failed/number={commit.number}")
        self._write_commit(commit, "failures")

    def _write_commit(self, commit: Commit, kind: str) -> None:
        body = self._spark.createDataFrame([(bytearray(commit_bytes(commit)),)], _COMMIT_DDL)
        body.coalesce(1).write.mode("overwrite").parquet(f"{self._folder}/{kind}/number={commit.number}")

    def failure(self, number: int) -> Commit | None:
        """The commit of a failed micro-batch; None if it has been done since."""
        return self._read_commit(number, "failures")

    def state(self, slots: tuple[int, ...]) -> Any:
        """The stored states, as rows for the levels that wrote them."""
        columns = ", ".join(f"{name} {kind.split()[1]}" for name, kind in zip(STATE_COLUMNS, DDL.split(", ")))
        rows = self._must_read(columns, *(f"{self._folder}/state/slot={slot}" for slot in slots))
        level = f"cast({STATE_COLUMNS[4]} AS int) AS level"
        names = [field.split()[0] for field in DDL.split(", ")]
        return rows.selectExpr(level, *(f"{column} AS {name}" for column, name in list(zip(STATE_COLUMNS, names))[1:]))

    def pending(self, slot: int) -> Any:
        """The items that were not below minimal time."""
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
                f"the stream's folder {self._folder} is incomplete: its last commit names {', '.join(paths)}, and not "
                f"all of them exist; restore them, or start a new stream, with another checkpoint"
            )
        return rows


def commit_bytes(commit: Commit) -> bytes:
    """A commit as it is written: the version of the format, then MessagePack."""
    return _FORMAT + msgspec.msgpack.encode(commit)


def commit_of(body: bytes) -> Commit:
    """Decode a commit.

    Raises:
        SettingsError: the bytes are of another version of the format, or no commit.
    """
    if not body.startswith(_FORMAT):
        raise SettingsError(
            f"a commit in the stream's folder begins with {body[:16]!r}, and this drift reads {_FORMAT!r}: another "
            f"version wrote it; use that version, or start a new stream, with another checkpoint"
        )
    return msgspec.msgpack.decode(body[len(_FORMAT) :], type=Commit)
