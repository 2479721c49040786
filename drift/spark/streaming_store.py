"""What a stream keeps between micro-batches, in folders that Spark can write to, wherever these are.

Invariant: a micro-batch that has a commit is done, and what it wrote is complete; the one after it can be computed, any
number of times, from what the last commit names, with the same result.

Why: a commit is written last. State and pending items are written to the slot that the last commit does not name, so a
micro-batch that is computed again overwrites only what nobody has relied on. Nothing has to be deleted or renamed,
which is why any file system will do.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any

from drift.spark.batches import DDL
from drift.spark.streaming_kernels import KEPT
from drift_graph.errors import SettingsError

PENDING_DDL = "rank int, time long, place binary, payload binary"
LATE_DDL = "source string, time long, heartbeat long, payload binary"
_COMMIT_DDL = "body binary"


@dataclass(frozen=True)
class Commit:
    """What is known when a micro-batch is done.

    Attributes:
        structure: of the graph, by its fingerprint.
        partitions: tasks that share the keys; it stays what it is, since each task keeps the state of its own.
        slot: where state and pending items are, 0 or 1.
        position: items released so far.
        promises: for each source, by rank, the time that it promises nothing below; None before its first item.
        blocks, edges: of the digest, those of this micro-batch; see `drift.spark.blocks`.
        finished: the input has ended.
    """

    number: int
    structure: str
    partitions: int
    slot: int
    position: int
    promises: tuple[int | None, ...]
    items_in: int = 0
    late_items: int = 0
    blocks: list[tuple[int, bytes]] = field(default_factory=list, repr=False)
    edges: list[tuple[int, int, bytes, bytes]] = field(default_factory=list, repr=False)
    finished: bool = False


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
        rows = self._read(_COMMIT_DDL, f"{self._folder}/commits/number={number}")
        found = rows.collect() if rows is not None else []
        return _commit(found[0]) if found else None

    def commits(self) -> list[Commit]:
        """All commits, in order."""
        rows = self._read(_COMMIT_DDL, f"{self._folder}/commits")
        found = [_commit(row) for row in rows.select("body").collect()] if rows is not None else []
        return sorted(found, key=lambda commit: commit.number)

    def write_items(self, number: int, items: Any) -> None:
        items.write.mode("overwrite").parquet(f"{self._output}/number={number}")

    def write_late(self, number: int, late: Any) -> None:
        late.write.mode("overwrite").parquet(f"{self._folder}/late/number={number}")

    def write_state(self, slot: int, state: Any) -> None:
        state.write.mode("overwrite").parquet(f"{self._folder}/state/slot={slot}")

    def write_pending(self, slot: int, pending: Any) -> None:
        pending.write.mode("overwrite").parquet(f"{self._folder}/pending/slot={slot}")

    def write_commit(self, commit: Commit) -> None:
        body = self._spark.createDataFrame([(bytearray(pickle.dumps(commit, 5)),)], _COMMIT_DDL)
        body.coalesce(1).write.mode("overwrite").parquet(f"{self._folder}/commits/number={commit.number}")

    def state(self, slot: int) -> Any:
        """What was remembered, as rows for the levels that remembered it."""
        kept = ", ".join(f"{name} {kind.split()[1]}" for name, kind in zip(KEPT, DDL.split(", ")))
        rows = self._must_read(kept, f"{self._folder}/state/slot={slot}")
        level = f"cast({KEPT[4]} AS int) AS level"
        names = [field.split()[0] for field in DDL.split(", ")]
        return rows.selectExpr(level, *(f"{kept} AS {name}" for kept, name in list(zip(KEPT, names))[1:]))

    def pending(self, slot: int) -> Any:
        """Items that were not below minimal time."""
        return self._must_read(PENDING_DDL, f"{self._folder}/pending/slot={slot}")

    def items(self, ddl: str) -> Any:
        """The items of all micro-batches that are done."""
        done = [f"{self._output}/number={commit.number}" for commit in self.commits()]
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


def _commit(row: Any) -> Commit:
    commit: Commit = pickle.loads(row.body)
    return commit
