"""Maps that are expressions of Polars over the fields of a row.

Invariant: the result for a row depends on that row alone, and it is the same on every engine, in any batch.

Why: every engine, the reference too, has Polars compute the expression. Polars says of a part of an expression whether
it is row by row, and not of what it is made of (`x - x.mean()`), so each part is asked about. What still is not is
tried: on rows made up for the schema, all at once and one by one, when the step is written, and on the first batches of
a process, at once and in halves.
"""

from __future__ import annotations

import datetime
import decimal
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from operator import itemgetter
from types import NoneType
from typing import Any, ClassVar, Literal
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pyarrow as pa

from drift.arrow import common_column, python_values
from drift.columns.rows import Frame
from drift.operators import MapsEach, _ByValue
from drift_graph.canonical import NoCanonicalForm, canonical_each
from drift_graph.errors import GraphError, ImpureStep, InputError
from drift_graph.functions import safe_text
from drift_graph.payloads import chosen

#: Names of fields and their types, in order; a type as `polars.Schema` takes it, or a Python type.
Schema = Mapping[str, Any]

_AS_WRITTEN = pl.QueryOptFlags.none()
_TRIED_MAX = 4  # batches that are computed in halves as well
_batches_tried: Counter[tuple[bytes, ...]] = Counter()  # in this process, by expressions
_EXAMPLES: tuple[tuple[Any, Sequence[Any]], ...] = (
    (lambda kind: kind == pl.Boolean, (True, False, True, True)),
    (lambda kind: kind.is_integer(), (3, 1, 2, 7)),
    (lambda kind: kind.is_float(), (2.5, -1.0, 8.25, 0.5)),
    (lambda kind: kind == pl.String, ("b", "a", "dd", "c")),
    (lambda kind: kind == pl.Binary, (b"b", b"a", b"dd", b"c")),
    (lambda kind: kind == pl.Date, tuple(datetime.date(2013, 1, day) for day in (4, 2, 3, 9))),
)


#: The classes of values whose types need no further look; that they fit is what Polars checks.
PLAIN_CLASSES: dict[Any, type] = {
    **dict.fromkeys((pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64), int),
    pl.Float64: float,
    pl.Boolean: bool,
    pl.String: str,
    pl.Binary: bytes,
    pl.Date: datetime.date,
}
#: Of types that are written without their arguments.
_USUAL: dict[Any, Any] = {
    datetime.timedelta: pl.Duration("us"),
    pl.Duration: pl.Duration("us"),
    pl.Datetime: pl.Datetime("us"),
    pl.Categorical: pl.Categorical(),
}
#: Raised for values that are not of a type, or have no Arrow or canonical form.
_NONE_SUCH = (
    TypeError,
    ValueError,
    OverflowError,
    NoCanonicalForm,
    pa.ArrowException,
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
)


#: The fields of rows, in order: names and types of Polars.
Fields = tuple[tuple[str, Any], ...]


class Chain:
    """Expressions and predicates in a row: what is between two predicates is one query.

    Rows that a predicate drops go to no later step, as if each step ran separately.
    """

    def __init__(self, steps: Sequence[Expressions | Predicate]) -> None:
        self._schema = steps[0].schema
        self._each = {step.computed for step in steps}
        self._makes_rows = not all(isinstance(step, Predicate) for step in steps)
        self._steps = [
            (step.kind if isinstance(step, Expressions) else "filter", [_restored(each) for each in step.computed])
            for step in steps
        ]
        self._has_literals = any(
            kind == "select" and not any(each.meta.root_names() for each in wanted) for kind, wanted in self._steps
        )
        self._read = self._fields_read()

    def _fields_read(self) -> list[str] | None:
        """The fields that the steps read, where these are not all."""
        names: set[str] = set()
        for kind, wanted in self._steps:
            if kind == "with_columns" or any(each.meta.has_multiple_outputs() for each in wanted):
                return None
            names.update(name for each in wanted for name in each.meta.root_names())
            if kind == "select":
                return [name for name, _ in self._schema if name in names]
        return None

    def __call__(self, payloads: Any) -> tuple[bytes | None, Any] | None:
        """Which rows are kept, and what is made of them; None while batches are to be tried, and for literals."""
        if self._has_literals or any(_batches_tried[each] < _TRIED_MAX for each in self._each):
            return None
        frame = frame_of(payloads, self._schema, self._read)
        height, places = frame.height, None  # places: of the rows that are left
        query: pl.LazyFrame | None = None
        for kind, wanted in self._steps:
            if kind != "filter":
                query = getattr(frame.lazy() if query is None else query, kind)(wanted)
                continue
            frame, query = frame if query is None else query.collect(optimizations=_AS_WRITTEN), None
            mask = frame.select(wanted).to_series().fill_null(False)
            if not mask.all():
                frame = pl.DataFrame([each.filter(mask) for each in frame.get_columns()])
                kept = mask.to_numpy()
                places = np.flatnonzero(kept) if places is None else places[kept]
        if query is not None:
            frame = query.collect(optimizations=_AS_WRITTEN)
        if places is None:
            return None, Frame(frame) if self._makes_rows else payloads
        flags = np.zeros(height, np.uint8)
        flags[places] = 1
        selected = flags.tobytes()
        if self._makes_rows or isinstance(payloads, Frame):
            return selected, Frame(frame)
        return selected, chosen(payloads, selected)


class Expressions(MapsEach, _ByValue, frozen=True):
    """Fields computed from those of a row.

    Attributes:
        schema: of the rows it takes: pairs of a name and a type.
        computed: the expressions, serialized by Polars.
        kind: "select" for these fields only, "with_columns" for these behind the others.
        text: the expressions as Polars writes them.
    """

    schema: Fields
    computed: tuple[bytes, ...]
    kind: Literal["select", "with_columns"]
    text: str
    leaves_arguments: ClassVar = True
    chained: ClassVar = Chain

    def __call__(self, payload: Any) -> Any:
        return self.each([payload])[0]

    def each(self, payloads: Sequence[Any]) -> Any:
        return Frame(tried(frame_of(payloads, self.schema), self.kind, self.computed))

    def made_of(self, rows: pl.DataFrame) -> pl.DataFrame:
        """What is computed of rows with these fields."""
        return _computed(rows, self.kind, self.computed)

    def __str__(self) -> str:
        return self.text


class Predicate(MapsEach, _ByValue, frozen=True):
    """Whether an expression is true of a row; null is not."""

    schema: Fields
    computed: tuple[bytes, ...]
    text: str
    leaves_arguments: ClassVar = True
    chained: ClassVar = Chain

    def __call__(self, payload: Any) -> bool:
        return bool(self.each([payload])[0])

    def each(self, payloads: Sequence[Any]) -> Any:
        """A byte for each row: 1 for those to keep."""
        found = tried(frame_of(payloads, self.schema), "select", self.computed)
        return found.to_series().fill_null(False).to_numpy().tobytes()

    def __str__(self) -> str:
        return self.text


def fields_of(schema: Schema, where: str) -> Fields:
    """A schema, checked.

    Raises:
        GraphError: it has no fields, or one of no type.
    """
    try:
        fields = tuple(pl.Schema({name: _USUAL.get(kind, kind) for name, kind in dict(schema).items()}).items())
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise GraphError(
            f"schema={schema!r:.200} (at {where}) is none: {error}; it is a dict of names and types, such as "
            f"{{'fare': float, 'at': polars.Datetime('us')}}"
        ) from None
    if not fields:
        raise GraphError(f"schema={schema!r:.80} (at {where}) has no fields")
    return _of_rows(fields, f"schema={schema!r:.80} (at {where})")


def _of_rows(fields: Fields, what: str) -> Fields:
    """
    Raises:
        GraphError: rows cannot have one of them.
    """
    for name, kind in fields:
        if not name or "\0" in name:
            raise GraphError(f"{what} has a field {name!r}, a name that rows cannot have; rename it, .alias(...)")
        try:
            if pl.Object in _inside(kind):
                raise TypeError("its values are objects of Python")
            common_column(pl.Series(name, [], kind).to_arrow(compat_level=pl.CompatLevel.oldest()))
        except (TypeError, pa.ArrowException) as error:
            raise GraphError(
                f"{what} has the field {name!r} of type {kind}, which rows cannot have: {error}; cast it, for instance "
                f"to Int64 or a Decimal"
            ) from None
    return fields


def _inside(kind: Any) -> Iterator[Any]:
    """A type and those of its parts."""
    yield kind
    parts = [each.dtype for each in kind.fields] if isinstance(kind, pl.Struct) else [getattr(kind, "inner", None)]
    for part in parts:
        if part is not None:
            yield from _inside(part)


def expressions(
    fields: Fields, given: Sequence[Any], named: Mapping[str, Any], kind: Literal["select", "with_columns"], where: str
) -> tuple[Expressions, Fields]:
    """The function of a step, and the fields of the rows that it makes.

    Args:
        given, named: expressions, and names or SQL texts of such; `named` by the names of their results.

    Raises:
        GraphError: an expression is not row by row, or names a field that the rows do not have.
    """
    wanted = [_expression(each, where) for each in given]
    wanted += [_expression(each, where).alias(name) for name, each in named.items()]
    if not wanted:
        raise GraphError(f"{kind} (at {where}) is given no expression; pass one, such as polars.col('fare') * 2")
    computed, text = _checked(fields, wanted, kind, where)
    function = Expressions(fields, computed, kind, text)
    found = _computed(pl.DataFrame(schema=pl.Schema(fields)), kind, computed)
    return function, _of_rows(tuple(found.schema.items()), f"{kind}({text:.200}) (at {where})")


def predicate(fields: Fields, given: Any, where: str) -> Predicate:
    """The function of a filter.

    Raises:
        GraphError: as for `expressions`; or its result is not true or false.
    """
    computed, text = _checked(fields, [_expression(given, where)], "select", where)
    found = _computed(pl.DataFrame(schema=pl.Schema(fields)), "select", computed)
    if found.dtypes != [pl.Boolean]:
        kinds = ", ".join(map(str, found.dtypes))
        raise GraphError(f"filter({text}) (at {where}) is {kinds} of a row; give one that is true or false")
    return Predicate(fields, computed, text)


def _expression(given: Any, where: str) -> pl.Expr:
    if isinstance(given, pl.Expr):
        return given
    try:
        found: pl.Expr = pl.sql_expr(given)
        return found
    except (TypeError, pl.exceptions.PolarsError) as error:
        raise GraphError(
            f"{given!r:.200} (at {where}) is no expression of Polars, and no SQL text of one: {error}"
        ) from None


def _checked(
    fields: Fields, wanted: Sequence[pl.Expr], kind: Literal["select", "with_columns"], where: str
) -> tuple[tuple[bytes, ...], str]:
    """The expressions serialized, and as a text."""
    known = dict(fields)
    for each in wanted:
        whole = str(each)
        text = f"{whole:.200}"
        if "python_udf" in whole or "map_elements" in whole or "map_batches" in whole:
            raise GraphError(f"{text} (at {where}) calls Python; use stream.map for functions of Python")
        for name in each.meta.root_names():
            if name not in known and (name or "element()" not in whole):  # elements of a list are of a field ""
                raise unknown_field(f"{text} (at {where})", name, known)
        if ".to_physical()" in whole and "Categorical" in f"{whole} {fields}":
            raise GraphError(
                f"{text} (at {where}) is a number that a process gives to a category, another in each; cast to text or "
                f"to an Enum"
            )
        if not all(map(_is_row_separable, _parts(each))):
            raise GraphError(
                f"{text} (at {where}) is not row by row: its result for a row depends on other rows, and so on how "
                f"they come in batches; for sums, ranks and rows before use windows, scan or at_end"
            )
    computed = tuple(each.meta.serialize() for each in wanted)
    try:
        _computed(pl.DataFrame(schema=pl.Schema(fields)), kind, computed)
    except pl.exceptions.PolarsError as error:
        raise GraphError(f"{kind} (at {where}) cannot be computed of these rows: {error}") from None
    examples = pl.DataFrame({name: _examples(of) for name, of in fields}, schema=pl.Schema(fields))
    if not _is_row_by_row(examples, kind, computed, 1):
        raise GraphError(
            f"{'; '.join(map(str, wanted)):.200} (at {where}) is not row by row: of four rows at once it gives another "
            f"result than of one after the other; for sums, ranks and rows before use windows, scan or at_end"
        )
    return computed, ", ".join(map(str, wanted))


def unknown_field(what: str, name: str, known: Iterable[str]) -> GraphError:
    near = get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return GraphError(f"{what} has the field {name!r}, and the rows have {', '.join(map(repr, known))}{hint}")


def _parts(each: pl.Expr) -> Iterator[pl.Expr]:
    """An expression, and what it is made of, as far as that is of rows: not constants, nor what is within a list."""
    yield each
    for part in each.meta.pop():
        text = str(part)
        of_rows = "element()" not in text and any(name in text for name in ("len()", "pl.field("))
        if any(part.meta.root_names()) or of_rows:
            yield from _parts(part)


def _is_row_separable(each: pl.Expr) -> bool:
    try:
        return each.meta.is_row_separable()
    except pl.exceptions.PolarsError:  # Polars needs the schema for some, which this question has not: they are tried
        return True


def _examples(kind: Any) -> Sequence[Any]:
    return next((values for is_of, values in _EXAMPLES if is_of(kind)), (None,) * 4)


def _is_row_by_row(frame: pl.DataFrame, kind: str, computed: tuple[bytes, ...], rows: int) -> bool:
    """Whether a frame and its pieces of so many rows give the same; True also where it cannot be computed at all."""
    try:
        whole = _computed(frame, kind, computed)
    except pl.exceptions.PolarsError:
        return True
    pieces = [_computed(frame.slice(at, rows), kind, computed) for at in range(0, frame.height, rows)]
    return whole.equals(pl.concat(pieces), null_equal=True)


def tried(frame: pl.DataFrame, kind: str, computed: tuple[bytes, ...]) -> pl.DataFrame:
    """What is computed of a batch; the first batches of a process are computed in halves as well.

    Raises:
        ImpureStep: the halves give something else.
    """
    found = _computed(frame, kind, computed)
    if _batches_tried[computed] < _TRIED_MAX and frame.height > 1:
        _batches_tried[computed] += 1
        half = frame.height // 2
        halves = [_computed(each, kind, computed) for each in (frame.slice(0, half), frame.slice(half))]
        if not found.equals(pl.concat(halves), null_equal=True):
            text = "; ".join(str(_restored(each)) for each in computed)
            raise ImpureStep(
                f"{text:.200} is not row by row: of a batch of {frame.height} rows it gives another result than of its "
                f"halves; for sums, ranks and rows before use windows, scan or at_end"
            )
    return found


def _computed(frame: pl.DataFrame, kind: str, computed: tuple[bytes, ...]) -> pl.DataFrame:
    wanted = [_restored(each) for each in computed]
    if kind == "with_columns":
        return frame.with_columns(wanted)
    found = frame.select(wanted)
    if found.height != frame.height:  # of literals alone there is one
        found = frame.with_columns(each.alias(f"\0{at}") for at, each in enumerate(wanted))
        found = found.select(pl.col(f"\0{at}").alias(each.meta.output_name()) for at, each in enumerate(wanted))
    return found


@cache
def _restored(computed: bytes) -> pl.Expr:
    return pl.Expr.deserialize(computed)


def frame_of(payloads: Any, fields: Fields, read: Sequence[str] | None = None) -> pl.DataFrame:
    """Rows as a frame with these fields.

    Args:
        read: those that are needed; None for all.

    Raises:
        InputError: a payload is no dict with these fields, or a value is not of its field's type.
    """
    schema = pl.Schema(fields)
    if isinstance(payloads, Frame):
        if payloads.schema == schema:
            return payloads.frame if read is None else payloads.part(read)
        if dict(payloads.schema) == dict(schema):
            return payloads.part(schema.names() if read is None else read)
        payloads = payloads.values
    names = schema.names()
    for payload in payloads:
        if type(payload) is not dict or (list(payload) != names and payload.keys() != schema.keys()):
            raise InputError(
                f"{safe_text(repr, payload, 200)} is no row with the fields {', '.join(map(repr, names))}; change the "
                f"schema, or make it such a dict before"
            )
    try:
        for name, kind in schema.items():
            check_number(kind, map(itemgetter(name), payloads))
        made = pl.DataFrame(list(payloads), schema=schema, orient="row", strict=True)
        if all(_are_of(kind, list(map(itemgetter(name), payloads)), made[name]) for name, kind in schema.items()):
            return made
    except _NONE_SUCH:
        pass
    raise InputError(_first_other(payloads, schema))


def check_number(kind: Any, values: Iterable[Any]) -> None:
    """Of values for a column of decimals, at which Polars panics or raises what is no error of it.

    Raises:
        ValueError: one is no decimal, infinite, no number, or beyond the digits of the type.
    """
    for value in values if isinstance(kind, pl.Decimal) else ():
        if value is not None and not (
            type(value) is decimal.Decimal
            and value.is_finite()
            and (value.adjusted() < (kind.precision or 38) - kind.scale or not value)
        ):
            raise ValueError(f"{value} is no number of its digits")


def _are_of(kind: Any, values: Sequence[Any], column: pl.Series) -> bool:
    """Whether the values of a column are those that it was made of; Polars converts some without a word."""
    if column.dtype != kind:
        return False
    expected, types = PLAIN_CLASSES.get(kind), set(map(type, values))
    if expected is not None:
        return types <= {expected, NoneType}
    if isinstance(kind, pl.Datetime) and kind.time_unit == "us" and types <= {datetime.datetime, NoneType}:
        zone = None if kind.time_zone is None else datetime.UTC
        if all(each is None or (each.tzinfo is zone and not each.fold) for each in values):
            return True
    if any(getattr(each, "time_zone", None) is not None for each in _inside(kind)):
        values = [_in_utc(kind, each) for each in values]
    return canonical_each(python_values(column.to_arrow())) == canonical_each(values)


def _in_utc(kind: Any, value: Any) -> Any:
    """A value of a row as `DataFrame.to_dicts` gives it, moments in the zone of their field, as the row has it: in UTC.

    A moment in another zone, or with an offset, is left as it is: a row would lose it.
    """
    if isinstance(kind, pl.Datetime) and type(value) is datetime.datetime:
        zone = value.tzinfo
        in_own = kind.time_zone is not None and type(zone) is ZoneInfo and zone.key == kind.time_zone
        return value.astimezone(datetime.UTC) if in_own else value
    if isinstance(kind, (pl.List, pl.Array)) and type(value) is list:
        return [_in_utc(kind.inner, each) for each in value]
    if isinstance(kind, pl.Struct) and type(value) is dict:
        kinds = {field.name: field.dtype for field in kind.fields}
        return {name: _in_utc(kinds.get(name), each) for name, each in value.items()}
    return value


def _first_other(payloads: Sequence[Any], schema: pl.Schema) -> str:
    """What is wrong with the first value that is not of its field's type."""
    for payload in payloads:
        for name, kind in schema.items():
            value = payload[name]
            try:
                check_number(kind, [value])
                if _are_of(kind, [value], pl.Series([value], dtype=kind, strict=True)):
                    continue
            except _NONE_SUCH:
                pass
            return (
                f"the field {name!r} is {kind}, and the row {safe_text(repr, payload, 200)} has "
                f"{safe_text(repr, value, 80)}, of type {type(value).__name__}, which it would not have as a column; "
                f"convert it where the rows are made (a float field takes no integers), or change the schema"
            )
    raise AssertionError("rows are of their schema one by one, and not together")
