"""How many items are taken at once, and when: read from a source, mapped by a worker, processed in one turn.

Invariant: `items` is at least 1 and at most `items_max`; where each item makes so much, or takes so long, that this
would be more than a batch should make or take, it is fewer. That live sources are read seldom delays no item by more
than a sixth of what their lateness does.

Why: neither is known before items have been processed, so the first batches are small, and each is at most `GROWTH`
times the one before. A batch that turns out to make much more than those before it is cut by its program (`room.py`).
A live source gives what has come meanwhile, and a batch takes about half a millisecond of all processes, however few
items it has: two cores would do nothing else if each were read as soon as the last one is through.
"""

from __future__ import annotations

from drift_graph.sizes import BATCH_BYTES

#: The bytes that a batch should make at most, if nothing else is said.
MADE_MAX = BATCH_BYTES
#: A batch has at most so many times the items of the one before.
GROWTH = 8
#: Items of the first batch, where later ones are judged by what it makes.
FIRST_ITEMS = 8
#: What a batch should take, where items are mapped by several workers: longer ones would leave some without work.
_BATCH_S = 0.05
#: The time between two readings of live sources that give less than a batch: a share of their lateness, and at most.
_BETWEEN, _BETWEEN_S_MAX = 0.15, 0.02


class BatchPolicy:
    """
    Args:
        items_max: the most items at once.
        made_max: the bytes that a batch should make at most; MADE_MAX, if None.

    Attributes:
        items: to take at once now.
        items_max: the argument, or what `pace` has set.
        is_live: whether some sources are live.
        keeps_up: whether some are, and each source gave less than a batch when it was read last.
        rows_for_item: how many rows in columns count as one item, once a source gives such.
        next_s: when to read the next batch, on the clock of the reader.
    """

    def __init__(self, items_max: int, made_max: int | None = None) -> None:
        self._made_max = made_max or MADE_MAX
        self.items = self.items_max = items_max
        self.rows_for_item = 1
        self.is_live, self.keeps_up, self.next_s = False, False, 0.0
        self._behind: set[int] = set()  # sources that gave a whole batch when they were read last

    def begin(self, items: int = FIRST_ITEMS) -> None:
        """Begin with few items, since what the next ones make, or how long they take, is not known."""
        self.items = min(self.items, items)

    def pace(self, items_max: int) -> None:
        """Set the most items, rows or not."""
        self.items = self.items_max = items_max
        self.rows_for_item = 1

    def multiply(self, factor: int) -> None:
        """Set so many times the items, and the most."""
        self.items *= factor
        self.items_max *= factor

    def note_rows(self) -> None:
        """Note that a source gives rows in columns."""
        self.multiply(self.rows_for_item)
        self.rows_for_item = 1

    def note_read(self, rank: int, items: int, now_s: float, lateness_s: float | None) -> None:
        """Note how many items the source of a rank gave now.

        Args:
            lateness_s: the least one of all live sources; None without such.
        """
        (self._behind.discard if items < self.items else self._behind.add)(rank)
        self.is_live = lateness_s is not None
        self.keeps_up = self.is_live and not self._behind
        if items:
            self.next_s = now_s
        if items and lateness_s is not None and self.keeps_up:
            self.next_s += min(_BETWEEN * lateness_s, _BETWEEN_S_MAX)

    def learn(self, items: int, made_bytes: int, *, items_max: int | None = None, took_s: float = 0.0) -> None:
        """Judge by a batch how many items the next one should have.

        Args:
            items: how many it had.
            made_bytes: what was made of them; see `drift_graph.sizes.made_bytes`.
            items_max: the most items of the next batch.
            took_s: how long it took.
        """
        if not items:
            return
        by_bytes = self._made_max * items // max(made_bytes, 1)
        by_time = int(_BATCH_S * items / took_s) if took_s * self.items_max > _BATCH_S * items else self.items_max
        most = self.items_max if items_max is None else items_max
        self.items = max(min(by_bytes, by_time, most, GROWTH * self.items), 1)
