"""A Spark DataFrame in the place of a source: only the engine on Spark reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from drift.guarantees import SourceGuarantee
from drift.sources.base import Reader
from drift.sources.positions import position_of
from drift_graph.errors import SettingsError

Payload = Literal["dict", "tuple", "value", "rows"]


@dataclass
class FrameSource:
    """A DataFrame, or a function that makes one from a session, for the engine on Spark; see `drift.spark.source`."""

    frame: Any
    payload: Payload = "dict"
    time: Any = None
    order_by: tuple[Any, ...] = ()
    guarantee: ClassVar = SourceGuarantee("from the start", "Spark reads it as often as it likes")
    live = False
    in_spark = False
    rows: int | None = None  # counted before a run with state read them

    def open(self) -> _NoReader:
        return _NoReader(self)


class _NoReader(Reader):
    """In place of a reader: Spark reads the rows itself."""

    def __init__(self, source: FrameSource) -> None:
        self._source = source

    def read(self, items_max: int) -> list[Any] | None:
        if not self._source.in_spark:
            raise SettingsError(
                "a source is given a Spark DataFrame, which only engine='spark' reads, without an order; for the other "
                "engines sort it and collect it: drift.sources.table(frame.orderBy(...).toArrow())"
            )
        return None

    def position(self) -> Any:
        """Spark reads all rows, and the engine skips those below a checkpoint."""
        return position_of("rows", row=self._source.rows)

    def seek(self, position: Any) -> None:
        """Another engine may have read the same items from another kind of source."""

    def more_behind(self, position: Any) -> str:
        frame, row = self._source.frame, position and position.get("row")
        if row is None or callable(frame):
            return "cannot be asked what is new (its rows were not counted, or a function makes the DataFrame)"
        count = frame.count()
        return "" if count == row else f"has {count:,} rows now, and had {row:,}"
