"""Texts of JSON as rows of a schema: each is an object with just its fields.

Invariant: a text is the row that `RowValues` gives for it alone, or none, in whatever block or batch it comes.

Why: texts are taken at once only if counts of its bytes show that each line is one object, without a key twice and
without integers that floats do not hold, and if each column is made at once (`drift.columns.values`).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import polars as pl

from drift.columns.expressions import Fields
from drift.columns.read import column_of
from drift.columns.rows import Frame
from drift.columns.values import Number, at_once, bounds_of, floats_at_once, is_read_as_text, of_json
from drift.sources.json_values import (
    NO_JSON,
    NoJson,
    Texts,
    has_keys,
    may_have_large_integers,
    may_repeat_keys,
    strict,
)

#: Fewer texts take longer in columns than one by one.
_AT_ONCE_MIN = 16
_INT64 = 1 << 63


class RowValues(Texts):
    """From a text a row with these fields, as a dict."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._readings = {name: of_json(kind) for name, kind in fields}
        names = [f"f{at}" for at in range(len(fields))]
        self._decoder, self._careful = (self._made_decoder(names, floats) for floats in (float, int | float))
        self._columns = [(attrgetter(each), name, kind) for each, (name, kind) in zip(names, fields)]
        self._has_floats = any(kind.is_float() for _, kind in fields)

    def _made_decoder(self, names: Sequence[str], floats: Any) -> msgspec.json.Decoder[Any]:
        members = [(each, _json_type(kind, floats)) for each, (_, kind) in zip(names, self._fields)]
        renamed = dict(zip(names, (name for name, _ in self._fields)))
        return msgspec.json.Decoder(msgspec.defstruct("Row", members, rename=renamed, forbid_unknown_fields=True))

    def __call__(self, text: bytes) -> dict[str, Any]:
        self._careful.decode(text)  # names what is missing, unknown or of another type
        found = strict(text, Number)
        row = {}
        for name, kind in self._fields:
            value = found[name]
            try:
                row[name] = None if value is None else self._readings[name](value)
            except (ValueError, OverflowError) as why:
                raise NoJson(f"the field {name!r} has {value!r:.80}, which is no {kind}: {why}") from None
        return row

    def each(self, texts: Sequence[bytes]) -> Frame | None:
        if len(texts) < _AT_ONCE_MIN:
            return None
        try:
            data = b"\n".join(texts)
            decoder = self._careful if self._has_floats and may_have_large_integers(data) else self._decoder
            values = list(map(decoder.decode, texts))
        except (*NO_JSON, TypeError):
            return None
        return self._frame(values, data)

    def gathered(self, values: list[dict[str, Any]]) -> Frame:
        columns = [column_of(name, kind, [row[name] for row in values]) for name, kind in self._fields]
        return Frame(pl.DataFrame(columns))

    def _frame(self, values: Sequence[Any], data: bytes) -> Frame | None:
        if not has_keys(data, len(values) * len(self._fields)) and may_repeat_keys([data], values):
            return None
        columns = []
        for get, name, kind in self._columns:
            column = self._column(name, kind, list(map(get, values)))
            if column is None:
                return None
            columns.append(column.alias(name))
        return Frame(pl.DataFrame(columns))

    def _column(self, name: str, kind: Any, values: list[Any]) -> pl.Series | None:
        if kind.is_float():
            return floats_at_once(kind, values)
        if bounds_of(kind) is not None or kind in (pl.Boolean, pl.String, pl.Null):
            try:
                return column_of(name, kind, values)
            except (OverflowError, TypeError, pl.exceptions.PolarsError):  # beyond what msgspec can be told
                return None
        is_text = is_read_as_text(kind) or isinstance(kind, (pl.Categorical, pl.Enum))
        if is_text and (found := at_once(kind, pl.Series(values, dtype=pl.String))) is not None:
            return found
        read = self._readings[name]
        try:
            if not is_text:
                values = [strict(bytes(value), Number) for value in values]
            return column_of(name, kind, [None if value is None else read(value) for value in values])
        except (ValueError, OverflowError):
            return None


def _json_type(kind: Any, floats: Any) -> Any:
    if (bounds := bounds_of(kind)) is not None:
        least, greatest = bounds
        return Annotated[int, msgspec.Meta(ge=least, le=greatest if greatest < _INT64 else None)] | None
    if kind.is_float():
        return floats | None
    if kind == pl.Boolean:
        return bool | None
    if kind == pl.Null:
        return None
    if kind == pl.String or isinstance(kind, (pl.Categorical, pl.Enum)) or is_read_as_text(kind):
        return str | None
    return msgspec.Raw
