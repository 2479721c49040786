"""The payloads of a source with a schema as rows of it, so that all steps, and the time policy, find columns.

Invariant: a payload is taken if, and only if, it is the same value as a row with the types of the schema; nothing is
converted. What a step gets of it depends on neither the batch nor the engine.

Why: a dict may have its fields in another order, and a dict inside it too, where a row has the schema's: such payloads
are given as rows would give them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from drift.columns.expressions import PLAIN_CLASSES, Fields, frame_of
from drift.columns.rows import Frame
from drift_graph.errors import InputError
from drift_graph.payloads import AsRows

#: Fewer rows cost more in columns than as dicts.
_ROWS_MIN = 1000


@dataclass(frozen=True)
class SchemaRows(AsRows):
    """Makes rows in columns of payloads that have the fields of a schema.

    Attributes:
        fields: names and types.
    """

    fields: Fields

    def __call__(self, payloads: Any) -> Any:
        made = frame_of(payloads, self.fields)
        if isinstance(payloads, Frame):
            return payloads if payloads.schema == made.schema else Frame(made)
        rows = Frame(made, values=list(payloads) if self._are_values(payloads) else None)
        return rows if len(rows) >= _ROWS_MIN else rows.values

    def _are_values(self, payloads: Any) -> bool:
        """Whether rows would have just these dicts as their values."""
        names = [name for name, _ in self.fields]
        return all(kind in PLAIN_CLASSES for _, kind in self.fields) and all(list(each) == names for each in payloads)

    def others(self, payloads: Any) -> Iterator[tuple[int, InputError]]:
        yield from self._others(list(payloads), 0)

    def _others(self, payloads: list[Any], start: int) -> Iterator[tuple[int, InputError]]:
        try:
            frame_of(payloads, self.fields)
        except InputError as error:
            if len(payloads) == 1:
                yield start, error
                return
            half = len(payloads) // 2
            yield from self._others(payloads[:half], start)
            yield from self._others(payloads[half:], start + half)


__all__ = ["SchemaRows"]
