"""The input of lineage, which can be read repeatedly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from drift_graph.metas import Metas


class InputBatch(NamedTuple):
    """A batch of a source, and the heartbeat after it: no later item has a lower global time."""

    source: str
    metas: Metas
    payloads: list[Any]
    heartbeat: bytes


class Input(Protocol):
    """An input that can be read repeatedly; with `answer(call, meta, payload)`, for graphs with calls."""

    def batches(self) -> Iterator[InputBatch]:
        """From its start, in the order of arrival."""

    def at(self, global_time: bytes) -> Any:
        """The payload of one input item.

        Raises:
            InputError: there is none at that global time.
        """
