"""Maps that are expressions of Polars over the fields of a row.

Invariant: the result for a row depends on that row alone, and it is the same on every engine, in any batch; its values
are such that objects of Python can be.

Why: every engine, the reference too, has Polars compute the expression, and each function in it is on a list of those
that are row by row (`row_by_row`). As a second net a few rows of each batch are computed again among others: its last
ones, one of them twice, and one with a null. A batch of one row is computed as two, since Polars takes a column of one
row for a constant, and has other ways for these. What an expression makes is looked at (`possible`) before anything
else is computed of it.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from itertools import compress
from operator import itemgetter
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints, is_typeddict
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from drift.arrow import common_column, python_values
from drift.columns.possible import check_made, needs_check
from drift.columns.row_by_row import check, fields_read, types_inside, with_fixed_sums
from drift.columns.rows import Frame
from drift.operators import GivesRows, MapsEach, _ByValue
from drift_graph.canonical import NoCanonicalForm, canonical_each
from drift_graph.errors import GraphError, ImpureStep, InputError
from drift_graph.functions import safe_text
from drift_graph.payloads import chosen

#: Names of fields and their types, in order; a type as `polars.Schema` takes it, or a Python type. Or a class that has
#: them as annotations: a TypedDict or a dataclass.
Schema = Mapping[str, Any] | type[Any]

_AS_WRITTEN = pl.QueryOptFlags.none()
_EXAMPLES_COUNT = 4
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


#: What a step computes: "filter" of one expression, or fields in place of the others or beside them.
Step = tuple[Literal["select", "with_columns", "filter"], tuple[bytes, ...]]


class Chain:
    """Expressions and predicates in a row: what is between two predicates is one query.

    Rows that a predicate drops go to no later step, as if each step ran separately.
    """

    def __init__(self, steps: Sequence[Expressions | Predicate]) -> None:
        self._schema = steps[0].schema
        self._makes_rows = not all(isinstance(step, Predicate) for step in steps)
        self._steps = [step.step for step in steps]
        # A step whose values have to be looked at is the last of its query; of the last step all is looked at.
        self._ends = [any(needs_check(kind) for _, kind in following.schema) for following in steps[1:]] + [True]
        self._has_literals = any(
            kind == "select" and all(_read(each) == () for each in wanted) for kind, wanted in self._steps
        )
        self._read = self._fields_read()

    def _fields_read(self) -> list[str] | None:
        """The fields that the steps read, where these are not all."""
        names: set[str] = set()
        for kind, wanted in self._steps:
            read = [_read(each) for each in wanted]
            if kind == "with_columns" or None in read:
                return None
            names.update(name for each in read for name in each or ())
            if kind == "select":
                return [name for name, _ in self._schema if name in names]
        return None

    def __call__(self, payloads: Any) -> tuple[bytes | None, Any] | None:
        """Which rows are kept, and what is made of them; None for literals."""
        if self._has_literals:
            return None
        found = tried(frame_of(payloads, self._schema, self._read), self._steps, self._ends)
        if found.places is None:
            return None, Frame(found.rows) if self._makes_rows else payloads
        selected = found.selected()
        if self._makes_rows or isinstance(payloads, Frame):
            return selected, Frame(found.rows)
        return selected, chosen(payloads, selected)


class Expressions(GivesRows, _ByValue, frozen=True):
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
    chained: ClassVar = Chain

    @property
    def step(self) -> Step:
        return self.kind, self.computed

    def each(self, payloads: Sequence[Any]) -> Any:
        names = _chosen(self.computed, self.schema) if self.kind == "select" else None
        if names:
            frame = frame_of(payloads, self.schema, names)
            return Frame(pl.DataFrame([frame.get_column(name) for name in names]))
        return Frame(tried(frame_of(payloads, self.schema), [self.step]).rows)

    def passes(self, name: str) -> str | None:
        made = [field for field, _ in _fields_made(self.schema, ("select", self.computed), "")]
        if self.kind == "with_columns" and name not in made:
            return name
        field, each = pl.col(name).meta, [expression.meta for expression in map(_restored, self.computed)]
        found = (one.output_name(raise_if_undetermined=False) for one in each if field.eq(one.undo_aliases()))
        return next(found, None) if name[:1] not in ("*", "^") else None

    def made_of(self, rows: pl.DataFrame) -> pl.DataFrame:
        """What is computed of rows with these fields."""
        return _computed(rows, [self.step])

    def __str__(self) -> str:
        return self.text


class Predicate(MapsEach, _ByValue, frozen=True):
    """Whether an expression is true of a row; null is not."""

    schema: Fields
    computed: tuple[bytes, ...]
    text: str
    leaves_arguments: ClassVar = True
    chained: ClassVar = Chain

    @property
    def step(self) -> Step:
        return "filter", self.computed

    def __call__(self, payload: Any) -> bool:
        return bool(self.each([payload])[0])

    def each(self, payloads: Sequence[Any]) -> Any:
        """A byte for each row: 1 for those to keep."""
        return tried(frame_of(payloads, self.schema), [self.step]).selected()

    def __str__(self) -> str:
        return self.text


def fields_of(schema: Schema, where: str) -> Fields:
    """A schema, checked.

    Raises:
        GraphError: it has no fields, or one of no type.
    """
    try:
        given = _annotated(schema) if isinstance(schema, type) else dict(schema)
        named = pl.Schema({name: _USUAL.get(kind, kind) for name, kind in given.items()})
        _of_rows(tuple(named.items()), f"schema={schema!r:.80} (at {where})")  # Polars panics at objects in structs
        fields = tuple(pl.DataFrame(schema=named).schema.items())  # so that types inside of types are no classes either
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise GraphError(
            f"schema={schema!r:.200} (at {where}) is none: {error}; it is a dict of names and types, such as "
            f"{{'fare': float, 'at': polars.Datetime('us')}}"
        ) from None
    if not fields:
        raise GraphError(f"schema={schema!r:.80} (at {where}) has no fields")
    return _of_rows(fields, f"schema={schema!r:.80} (at {where})")


def _annotated(schema: type[Any]) -> dict[str, Any]:
    """The fields of a class, and their types, without None: every field of a row may be null.

    Raises:
        TypeError: it is no TypedDict and no dataclass, or rows may be without a field.
    """
    if not is_typeddict(schema) and not dataclasses.is_dataclass(schema):
        raise TypeError("a class that says fields is a TypedDict or a dataclass")
    if left_out := sorted(getattr(schema, "__optional_keys__", ())):
        raise TypeError(f"rows have all fields of a schema, and {', '.join(left_out)} may be left out of this one")
    kinds = get_type_hints(schema)
    if dataclasses.is_dataclass(schema):
        kinds = {each.name: kinds[each.name] for each in dataclasses.fields(schema)}
    return {name: _without_none(kind) for name, kind in kinds.items()}


def _without_none(kind: Any) -> Any:
    if get_origin(kind) not in (Union, UnionType):
        return kind
    others = [each for each in get_args(kind) if each is not type(None)]
    return others[0] if len(others) == 1 else kind


def _of_rows(fields: Fields, what: str) -> Fields:
    """
    Raises:
        GraphError: rows cannot have one of them.
    """
    for name, kind in fields:
        if not name or "\0" in name:
            raise GraphError(f"{what} has a field {name!r}, a name that rows cannot have; rename it, .alias(...)")
        try:
            if pl.Object in types_inside(kind):
                raise TypeError("its values are objects of Python")
            common_column(pl.Series(name, [], kind).to_arrow(compat_level=pl.CompatLevel.oldest()))
        except (TypeError, pa.ArrowException) as error:
            raise GraphError(
                f"{what} has the field {name!r} of type {kind}, which rows cannot have: {error}; cast it, for instance "
                f"to Int64 or a Decimal"
            ) from None
    return fields


def expressions(
    fields: Fields, given: Sequence[Any], named: Mapping[str, Any], kind: Literal["select", "with_columns"], where: str
) -> tuple[Expressions, Fields]:
    """The function of a step, and the fields of the rows that it makes.

    Args:
        given, named: expressions, and names or SQL texts of such; `named` by the names of their results.

    Raises:
        GraphError: an expression is not row by row, or names a field that the rows do not have.
    """
    wanted = [_expression(each, fields, where) for each in given]
    wanted += [_expression(each, fields, where).alias(name) for name, each in named.items()]
    if not wanted:
        raise GraphError(f"{kind} (at {where}) is given no expression; pass one, such as polars.col('fare') * 2")
    computed, text = _checked(fields, wanted, kind, where)
    function = Expressions(fields, computed, kind, text)
    made = _fields_made(fields, function.step, where)
    return function, _of_rows(made, f"{kind}({text:.200}) (at {where})")


def predicate(fields: Fields, given: Any, where: str) -> Predicate:
    """The function of a filter.

    Raises:
        GraphError: as for `expressions`; or its result is not true or false.
    """
    computed, text = _checked(fields, [_expression(given, fields, where)], "select", where)
    made = _fields_made(fields, ("select", computed), where)
    if [kind for _, kind in made] != [pl.Boolean]:
        kinds = ", ".join(str(kind) for _, kind in made)
        raise GraphError(f"filter({text}) (at {where}) is {kinds} of a row; give one that is true or false")
    return Predicate(fields, computed, text)


def _expression(given: Any, fields: Fields, where: str) -> pl.Expr:
    """An expression as it is, or that of a text: of a field's name, also if it is a word of SQL or has spaces."""
    if isinstance(given, pl.Expr):
        return given
    if type(given) is str and given in dict(fields) and not given.startswith(("^", "*")):
        return pl.col(given)
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
        what = f"{each!s:.200} (at {where})"
        for name in check(each, fields, what):
            if name not in known:
                raise unknown_field(what, name, known)
    computed, text = tuple(each.meta.serialize() for each in wanted), ", ".join(map(str, wanted))
    examples = _examples_of(fields)
    try:
        whole = tried(examples, [(kind, computed)]).rows
        pieces = [_computed(examples.slice(at, 1), [(kind, computed)]) for at in range(examples.height)]
        if whole.equals(pl.concat(pieces), null_equal=True):
            return computed, text
    except ImpureStep:
        pass
    except (pl.exceptions.PolarsError, InputError):  # rows made up are not what it is for
        return computed, text
    raise GraphError(
        f"{text:.200} (at {where}) is not row by row: of {examples.height} rows at once it gives another result than "
        f"of one after the other; for sums, ranks and rows before use windows, scan or at_end"
    )


def _fields_made(fields: Fields, step: Step, where: str) -> Fields:
    """The fields of what a step makes.

    Raises:
        GraphError: it cannot be computed of rows with these fields.
    """
    examples, errors = _examples_of(fields), []
    for rows in (examples, examples.clear(1)):  # what fails for values that are made up may be right for others
        try:
            return tuple(_computed(rows, [step]).schema.items())
        except pl.exceptions.PolarsError as error:
            errors.append(error)
    raise GraphError(f"{step[0]} (at {where}) cannot be computed of these rows: {errors[-1]}")


def unknown_field(what: str, name: str, known: Iterable[str]) -> GraphError:
    near = get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return GraphError(f"{what} has the field {name!r}, and the rows have {', '.join(map(repr, known))}{hint}")


def _examples_of(fields: Fields) -> pl.DataFrame:
    """Rows that are made up."""
    return pl.DataFrame([_examples(kind).alias(name) for name, kind in fields], schema=pl.Schema(fields))


def _examples(kind: Any) -> pl.Series:
    if isinstance(kind, pl.Struct):
        return pl.DataFrame([_examples(each.dtype).alias(each.name) for each in kind.fields]).to_struct("")
    if isinstance(kind, pl.Array):
        return pl.Series([(_examples(kind.inner).to_list() * kind.size)[: kind.size]] * _EXAMPLES_COUNT, dtype=kind)
    if isinstance(kind, pl.List):
        first, *rest = _examples(kind.inner).to_list()
        return pl.Series([[first], rest, [], [first, *rest]], dtype=kind)
    if kind.is_temporal():
        days = (15_709, 15_707, 15_708, 15_714)
        a_day = {pl.Date: 1, pl.Time: 1 << 32}.get(type(kind)) or 86_400_000 * _PER_MS[kind.time_unit]
        return pl.Series([day * a_day % (1 << 46 if kind == pl.Time else 1 << 62) for day in days]).cast(kind)
    if kind.is_numeric():
        return pl.Series([3, 1, 2, 7]).cast(kind) / 1 if kind.is_float() else pl.Series([3, 1, 2, 7]).cast(kind)
    if isinstance(kind, pl.Enum):
        return pl.Series((kind.categories.to_list() or [None]) * _EXAMPLES_COUNT, dtype=kind)[:_EXAMPLES_COUNT]
    return pl.Series(_OF_TEXTS.get(type(kind), (None,) * _EXAMPLES_COUNT), dtype=kind)


_PER_MS = {"ms": 1, "us": 1000, "ns": 1_000_000}
_OF_TEXTS: dict[Any, Sequence[Any]] = {
    pl.Boolean: (True, False, True, True),
    pl.String: ("2d", "1d", "12h", "3d"),
    pl.Categorical: ("b", "a", "dd", "c"),
    pl.Binary: (b"b", b"a", b"dd", b"c"),
}


class Found(NamedTuple):
    """What steps make of rows.

    Attributes:
        places: of the rows that are left; None for all.
        height: of the rows before.
    """

    rows: pl.DataFrame
    places: npt.NDArray[np.int64] | None
    height: int

    def selected(self) -> bytes:
        """A byte for each row before: 1 for those that are left."""
        flags = np.zeros(self.height, np.uint8)
        flags[slice(None) if self.places is None else self.places] = 1
        return flags.tobytes()

    def of(self, rows: Sequence[int]) -> tuple[list[bool], pl.DataFrame]:
        """Which of some rows before are left, and what is made of these."""
        if self.places is None:
            return [True] * len(rows), self.rows[list(rows)]
        at = np.searchsorted(self.places, rows)
        left = [place < len(self.places) and self.places[place] == row for place, row in zip(at, rows)]
        return left, self.rows[list(compress(at.tolist(), left))]


def tried(frame: pl.DataFrame, steps: Sequence[Step], ends: Sequence[bool] = (True,)) -> Found:
    """What steps make of a batch; of a few rows among others they have to make the same.

    Args:
        ends: for each step whether its values have to be looked at before anything is computed of them.

    Raises:
        InputError: an expression makes a value that a row cannot have.
        ImpureStep: a row comes out another way among other rows.
        PolarsError: it cannot be computed.
    """
    found = _found(frame, steps, ends)
    if frame.height > 1:
        rows = _sample(frame)
        (left, made), (left_again, made_again) = found.of(rows), _found(frame[rows], steps, ends).of(range(len(rows)))
        if left != left_again or not made.equals(made_again, null_equal=True):
            text = "; ".join(str(_restored(each)) for _, wanted in steps for each in wanted)
            raise ImpureStep(
                f"{text:.200} is not row by row: of some rows of a batch of {frame.height} it gives another result "
                f"among others; for sums, ranks and rows before use windows, scan or at_end"
            )
    return found


def _sample(frame: pl.DataFrame) -> list[int]:
    """Some rows, in another order than theirs: the last ones, one of them twice, and one with a null if there is."""
    last = frame.height - 1
    nulls = next((column.is_null().arg_max() for column in frame.get_columns() if column.null_count()), None)
    return [last, last if nulls is None else nulls, last, 0, last - 1]


def _found(frame: pl.DataFrame, steps: Sequence[Step], ends: Sequence[bool]) -> Found:
    height, places, together = frame.height, None, list[Step]()
    for step, is_end in zip(steps, ends):
        if step[0] != "filter":
            together.append(step)
            if is_end:
                frame = _computed(frame, together)
                check_made(frame)
                together.clear()
            continue
        if together:
            frame = _computed(frame, together)
            together.clear()
        mask = _computed(frame, [("select", step[1])]).to_series().fill_null(False)
        if not mask.all():
            frame = pl.DataFrame([each.filter(mask) for each in frame.get_columns()])
            kept = mask.to_numpy()
            places = np.flatnonzero(kept) if places is None else places[kept]
    return Found(frame, places, height)


def _computed(frame: pl.DataFrame, steps: Sequence[Step]) -> pl.DataFrame:
    """What steps that are no filters make of rows.

    Raises:
        PolarsError: it cannot be computed. (Polars panics at some arguments; its panics are no exceptions to Python.)
    """
    if frame.height != 1:
        return _collected(frame, steps)
    try:
        return _collected(_twice(frame), steps).slice(0, 1)
    except pl.exceptions.PolarsError:
        _collected(frame, steps)  # whose error is about one row, and not about two
        raise


def _collected(frame: pl.DataFrame, steps: Sequence[Step]) -> pl.DataFrame:
    query = frame.lazy()
    try:
        for kind, wanted in steps:
            query = getattr(query, kind)(list(map(_restored, wanted)))
        if not frame.height:  # there are functions that fail without rows
            return pl.DataFrame(schema=query.collect_schema())
        found = query.collect(engine="in-memory", optimizations=_AS_WRITTEN)
        return found if found.height == frame.height else _of_literals(frame, steps)  # of literals alone there is one
    except pl.exceptions.PanicException as error:
        raise pl.exceptions.ComputeError(f"Polars panicked, {error}") from None


def _of_literals(frame: pl.DataFrame, steps: Sequence[Step]) -> pl.DataFrame:
    ((_, wanted),) = steps
    literals = frame.select(list(map(_restored, wanted)))
    if literals.height != 1:
        raise pl.exceptions.ShapeError(f"it makes {literals.height} rows of {frame.height}")
    return pl.DataFrame([each.new_from_index(0, frame.height) for each in literals.get_columns()])


def _twice(frame: pl.DataFrame) -> pl.DataFrame:
    """A row two times, as columns: a column that Polars has from one row stays a constant in its frame."""
    return pl.DataFrame([pl.concat([each, each], rechunk=True) for each in frame.get_columns()])


@cache
def _read(computed: bytes) -> tuple[str, ...] | None:
    return fields_read(_restored(computed))


@cache
def _chosen(computed: tuple[bytes, ...], fields: Fields) -> list[str] | None:
    """The fields that expressions are, which need no trying; None if one is something else.

    A name that Polars takes for a pattern is none of a field.
    """
    named = {name: pl.col(name).meta for name, _ in fields if name[:1] not in ("*", "^")}
    names = [name for each in map(_restored, computed) for name, field in named.items() if field.eq(each)]
    return names if len(names) == len(computed) else None


@cache
def _restored(computed: bytes) -> pl.Expr:
    return with_fixed_sums(pl.Expr.deserialize(computed))


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
    if any(getattr(each, "time_zone", None) is not None for each in types_inside(kind)):
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
