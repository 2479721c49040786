"""How many items are taken at once: read from a source, mapped by a worker, processed in one turn.

Invariant: `items` is at least 1 and at most `items_max`; where each item makes so much, or takes so long, that this
would be more than a batch should make or take, it is fewer.

Why: neither is known before items have been processed, so the first batches are small, and each is at most `GROWTH`
times the one before. A batch that turns out to make much more than those before it is cut by its program (`room.py`).
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


class BatchPolicy:
    """See the module.

    Args:
        items_max: the most items at once.
        made_max: the bytes that a batch should make at most; MADE_MAX, if None.

    Attributes:
        items: to take at once now.
        items_max: the argument, or what `pace` has set.
    """

    def __init__(self, items_max: int, made_max: int | None = None) -> None:
        self._made_max = made_max or MADE_MAX
        self.items = self.items_max = items_max

    def begin(self, items: int = FIRST_ITEMS) -> None:
        """Begin with few items, since what the next ones make, or how long they take, is not known."""
        self.items = min(self.items, items)

    def pace(self, items_max: int) -> None:
        """Set the most items."""
        self.items = self.items_max = items_max

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
