"""Link logs: the items that a node has sent to each neighbour, in case the neighbour has to be replaced.

Invariant: `between(to, since, checkpoint)` gives, in sum, exactly the items and tombstones at or above `since` and
below `checkpoint` that this node has caused on the link, over all generations that were not dropped.

Why: a batch is stored as it was sent, with its generation, and not examined before it is read. A rewind to a checkpoint
voids what older generations sent at or above it, since it is sent again. So an item counts if it is below the
checkpoint of every later generation, which is checked on reading. Nothing is read below a committed checkpoint, so
batches entirely below it are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator

from drift.machines.worker import Part, gathered
from drift_graph.item import Columns, sorted_by_meta
from drift_graph.meta import global_time_of
from drift_graph.sizes import BATCH_BYTES

#: Above every meta.
ABOVE_ALL = b"\xff" * 16
#: Batches that are sent again are joined up to so many items, or BATCH_BYTES.
_JOINED_ITEMS = 8192


class LoggedBatch:
    """A batch in a link log.

    Attributes:
        generation: the generation that sent it.
        greatest: no meta in it is above.
        content: its parts, or the bytes they were sent as; None if other batches were sent in its place.
    """

    __slots__ = ("generation", "greatest", "content")

    def __init__(self, generation: int, greatest: bytes, content: list[Part] | bytes | None) -> None:
        self.generation = generation
        self.greatest = greatest
        self.content = content


class LinkLogs:
    """
    Args:
        decode: turns the bytes that a batch was sent as into its parts.
        lasting: receivers that are never replaced, so nothing is logged for them.

    Attributes:
        generation: the generation that sends now.
    """

    def __init__(self, decode: Callable[[bytes], list[Part]], lasting: Container[int] = ()) -> None:
        self.generation = 0
        self._decode = decode
        self._lasting = lasting
        self._batches: dict[int, list[LoggedBatch]] = {}
        self._uncounted: list[LoggedBatch] = []
        self._counted_bytes = 0
        self._checkpoints: list[tuple[int, bytes]] = []  # the checkpoint that each generation began at; both increase

    def log(self, to: int, parts: list[Part]) -> LoggedBatch | None:
        """Log a batch that is sent; the transport may replace its content with the bytes it was sent as."""
        if to in self._lasting:
            return None
        batch = LoggedBatch(self.generation, max(columns.metas.greatest() for _, columns in parts), parts)
        self._batches.setdefault(to, []).append(batch)
        self._uncounted.append(batch)
        return batch

    def rewind(self, generation: int, checkpoint: bytes) -> None:
        """Void items at or above the checkpoint, since they will be sent again."""
        self.generation = generation
        self._checkpoints.append((generation, checkpoint))

    def reset(self, generation: int) -> None:
        """Clear the logs, since the sender is replaced: the new process logs its items again."""
        self.generation = generation
        self._batches, self._checkpoints = {}, []
        self._count_anew()

    def commit(self, checkpoint: bytes) -> None:
        """Drop batches below the checkpoint, since no rewind goes below it any more."""
        for to, batches in self._batches.items():
            self._batches[to] = [
                batch for batch in batches if batch.greatest >= checkpoint and batch.content is not None
            ]
        self._count_anew()

    def _count_anew(self) -> None:
        self._uncounted = [batch for batches in self._batches.values() for batch in batches]
        self._counted_bytes = 0

    def between(self, to: int, since: bytes, checkpoint: bytes) -> Iterator[list[Part]]:
        """The valid items on a link at or above `since` and below `checkpoint`, in few batches.

        A live source gives many small batches, and each that comes out of order has its keys run again one by one.
        """
        joined: list[Part] = []
        items = size = 0
        for batch in self._batches.get(to, ()):
            if batch.content is None or batch.greatest < since:
                continue
            end = min([checkpoint, *(each for generation, each in self._checkpoints if generation > batch.generation)])
            content = batch.content
            parts = cut_parts(self._decode(content) if isinstance(content, bytes) else content, since, end)
            if not parts:
                continue
            joined += parts
            items += sum(len(columns.metas) for _, columns in parts)
            size += len(content) if isinstance(content, bytes) else 0
            if items >= _JOINED_ITEMS or size >= BATCH_BYTES:
                yield _together(joined)
                joined, items, size = [], 0, 0
        if joined:
            yield _together(joined)

    def __len__(self) -> int:
        """The number of logged batches."""
        return sum(map(len, self._batches.values()))

    @property
    def logged_bytes(self) -> int:
        """Bytes of batches that were sent as bytes; others count as 0."""
        new, self._uncounted = self._uncounted, []
        self._counted_bytes += sum(len(batch.content) for batch in new if isinstance(batch.content, bytes))
        return self._counted_bytes


def _together(parts: list[Part]) -> list[Part]:
    return [(name, sorted_by_meta(columns)) for name, columns in gathered(parts)]


def cut_parts(parts: Iterable[Part], since: bytes, end: bytes) -> list[Part]:
    """The items of parts at or above `since` and below `end`."""
    inside = ((name, cut_columns(columns, since, end)) for name, columns in parts)
    return [(name, columns) for name, columns in inside if columns.metas]


def cut_columns(columns: Columns, since: bytes, end: bytes) -> Columns:
    """The items of columns, in any order, at or above `since` and below `end`."""
    inside = [at for at, meta in enumerate(columns.metas) if since <= meta < end]
    if len(inside) == len(columns.metas):
        return columns
    return columns.in_order(inside)


def least_time(parts: Iterable[Part]) -> bytes:
    """The least global time of parts that may be in any order."""
    return global_time_of(min(min(columns.metas) for _, columns in parts))
