"""Items as rows of a table: their position and time, and a column for each field of the payloads.

Invariant: the columns are those that were given, or the fields of the first payloads; a payload with a further field is
refused, never dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from drift.fields import check_names, names_in, values_of
from drift_graph.errors import PayloadError, SettingsError, SinkError
from drift_graph.metas import Metas
from drift_graph.payloads import have_fields

#: Besides the fields of the payloads.
OF_ITEMS = ("position", "time")


def field_names(columns: Iterable[str]) -> list[str]:
    return [name.removeprefix("payload.") for name in columns if name not in OF_ITEMS]


class RowMaker:
    """Makes rows of items.

    Args:
        target: where they are written, for errors.
        columns: names of the fields, of tuples in their order; None for those of the first payloads.

    Attributes:
        names: of the fields, once they are known.
    """

    def __init__(self, target: str, columns: Sequence[str] | None) -> None:
        check_names(columns)
        if columns is not None and (len(set(columns)) < len(list(columns))):
            raise SettingsError(f"columns={columns!r:.80} is no list of names that differ")
        self._target = target
        self._fixed = columns is not None
        self.names = None if columns is None else list(columns)

    @property
    def columns(self) -> list[str]:
        """Names of all columns: a field with a name in `OF_ITEMS` becomes payload.NAME."""
        return [*OF_ITEMS, *(f"payload.{name}" if name in OF_ITEMS else name for name in self.names or ())]

    def fields(self, positions: Sequence[int], payloads: Sequence[Any]) -> list[list[Any]]:
        """The values of each field. Raises SinkError: a payload has other fields."""
        rows = payloads if have_fields(payloads) else None
        listed = list(payloads) if rows is None else []
        found = names_in(listed) if rows is None else rows.batch.schema.names
        if self.names is None:
            self.names = found
        if not self._fixed and set(found) - set(self.names):
            listed = listed or list(payloads)
            of_each = ([name for name in names_in([each]) if name not in self.names] for each in listed)
            at, more = next((at, more) for at, more in enumerate(of_each) if more)
            raise SinkError(
                f"{self._target}: the payload at position {positions[at]} has a field {more[0]!r}, and the columns are "
                f"those of the first payloads: {', '.join(self.names)}; name all of them: columns=[...]"
            )
        if rows is not None:
            return [rows.field(name) or [None] * len(rows) for name in self.names]
        try:
            return values_of(listed, self.names, self._target)
        except PayloadError as error:
            raise SinkError(f"{self._target}: {error}") from error

    def rows(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> list[tuple[Any, ...]]:
        """A tuple for each item, of the values of `columns`."""
        return list(zip(positions, metas.times(), *self.fields(positions, payloads)))
