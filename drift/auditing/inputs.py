"""What lineage reads: an input that can be read again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from drift_graph.metas import Metas


class InputBatch(NamedTuple):
    """What a source gave at once, and its heartbeat after it: nothing that comes later has a global time below."""

    source: str
    metas: Metas
    payloads: list[Any]
    heartbeat: bytes


class Input(Protocol):
    """An input that can be read again."""

    def batches(self) -> Iterator[InputBatch]:
        """From its start, in the order of arrival."""

    def at(self, global_time: bytes) -> Any:
        """The payload of one input item.

        Raises:
            InputError: there is none at that global time.
        """
