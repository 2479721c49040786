"""Running aggregates of rows by key, computed column by column.

Invariant: the aggregates of a row, and the states after a batch, are those of adding row by row in order, to the last
bit of a float.

Why: numbers are added one after the other, in a loop of the kernel (sums in numpy do not). An aggregate whose values
are not all numbers of 64 bits, or whose sums are none, has objects instead in that batch, as the others have arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from drift.arrow import numbers_column
from drift.columns.computed import Computed
from drift.columns.expressions import Fields
from drift.columns.rows import Frame
from drift_kernel import kernel

Kind = Literal["count", "sum", "mean", "min", "max"]
#: The value of so many rows before, or the difference from it.
Before: TypeAlias = tuple[Literal["shift", "diff"], int]
#: An aggregate of the last so many rows.
Rolling: TypeAlias = tuple[Literal["rolling"], int, Kind]
#: What values are of: a field's name, or an expression.
Of: TypeAlias = str | Computed
#: What an aggregate computes, and of what; a count of nothing.
InColumns = tuple[Kind, Of]
Array: TypeAlias = npt.NDArray[Any]

#: By the classes of values.
_AS_COLUMNS = {int: pl.Int64(), float: pl.Float64(), str: pl.String(), bool: pl.Boolean()}
_INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)
_EXACT_MAX = 1 << 62  # sums of integers below it do not overflow
_MEAN_MAX = 1 << 53  # up to here integers are floats


def running(
    rows: Frame,
    key: Sequence[str],
    named: Sequence[tuple[str, Any]],
    fetch: Callable[[Sequence[Any]], list[Any]],
    store: Callable[[Iterable[tuple[Any, Any]]], None],
) -> Sequence[Any] | None:
    """The rows with the aggregates of their keys up to each of them: in columns, unless values of one are in none.

    None where keys are in no columns, and without the kernel.

    Args:
        key: names of the fields; of one the key is its value, of several a tuple.
        named: `drift.flow.accumulators.Aggregate` by the names of their results.
        fetch: the states of keys, each a tuple of accumulators, or empty for a new key.
        store: takes the states after the rows.
    """
    found = codes_of(rows, key)
    if found is None or kernel is None:
        return None
    codes, keys = found
    states = fetch(keys)
    batch = _Keyed(np.asarray(codes, np.int64), len(keys))
    columns, accumulators = [], []
    for at, (name, aggregate) in enumerate(named):
        before = [state[at] if state else None for state in states]
        made, after = _aggregated(aggregate, batch, rows, before)
        columns.append((name, made))
        accumulators.append(after)
    made = with_columns(rows, columns)
    store(zip(keys, zip(*accumulators)))
    return made


def with_columns(rows: Frame, columns: Sequence[tuple[str, pl.Series | Sequence[Any]]]) -> Sequence[Any]:
    """Rows with further columns; as dicts, if one is a list of values that are in none."""
    found = [values.alias(name) for name, values in columns if isinstance(values, pl.Series)]
    if len(found) == len(columns):
        return rows.with_columns(found)  # type: ignore[return-value]
    names, lists = [name for name, _ in columns], [list(values) for _, values in columns]
    return [{**row, **dict(zip(names, values))} for row, *values in zip(rows, *lists)]


def in_a_column(values: Sequence[Any], like: pl.Series | None = None) -> pl.Series | Sequence[Any]:
    """A column of these values, of the type of another one; as they are, if they have no such type, or a value of it is
    another one in a column.
    """
    kinds = set(map(type, values)) - {type(None)}
    kind = _AS_COLUMNS.get(kinds.pop()) if len(kinds) == 1 else None
    if kind is None or (like is not None and like.dtype != kind):
        return values
    try:
        return pl.Series("", values, kind, strict=True)
    except (OverflowError, TypeError, pl.exceptions.PolarsError):  # an integer has more than 64 bits
        return values


def fields_of_aggregates(fields: Fields, named: Sequence[tuple[str, Any]]) -> dict[str, Any] | None:
    """The fields of aggregates of rows, in order; None if a type is not known.

    Args:
        named: what is aggregated, see `running`, by the names of the fields.
    """
    known = dict(fields)
    made: dict[str, Any] = {}
    for name, of in named:
        if of is None:
            return None
        kind, field = of
        if type(kind) is tuple and kind[0] == "rolling":
            kind = kind[2]
        of_values = known.get(field) if type(field) is str else field.kind
        if type(kind) is tuple and kind[0] == "shift":
            if of_values is None:
                return None
            made[name] = of_values
        elif kind == "count":
            made[name] = pl.Int64()
        elif of_values in (pl.Float32, pl.Float64) or (kind == "mean" and of_values in _INTEGERS):
            made[name] = pl.Float64()
        elif of_values in _INTEGERS:
            made[name] = pl.Int64()
        else:
            return None
    return made


def fields_of_windows(
    fields: Fields, key: Sequence[str], named: Sequence[tuple[str, Any]], names: Sequence[str]
) -> Fields | None:
    """The fields of a row for each window; None if a type is not known.

    Args:
        named: see `fields_of_aggregates`.
        names: of the key's field, if there is a key, of start, of end, and of the number of the correction, if any.
    """
    made, kind = fields_of_aggregates(fields, named), pl.Int64()
    if made is None:
        return None
    kinds: list[Any] = [kind] * (len(names) - bool(key))
    if key:
        of_key = dict(fields).get(key[0])
        if len(key) > 1 or of_key not in (*_INTEGERS, pl.String):
            return None
        kinds.insert(0, of_key if of_key == pl.String else kind)
    return (*zip(names, kinds), *made.items())


def codes_of(rows: Frame, key: Sequence[str]) -> tuple[Array, list[Any]] | None:
    """The number of each row's key, and the keys by their numbers, which are in the order of their first rows.

    None where a field is of no type that keys are known of in columns, which are integers and texts.
    """
    if not key:
        return np.zeros(len(rows), np.int64), [None]
    codes: Array | None = None
    several: list[list[Any]] = []
    for name in key:
        found = _codes_of(rows, name)
        if found is None:
            return None
        own, values = found
        if codes is not None:
            own, pairs = encoded(codes.astype(np.int64) * len(values) + own)
            first, second = np.divmod(pairs, len(values))
            several = [[each[at] for at in first.tolist()] for each in several]
            values = [values[at] for at in second.tolist()]
        codes = own
        several.append(values)
    assert codes is not None
    return codes, several[0] if len(several) == 1 else list(zip(*several))


def _codes_of(rows: Frame, name: str) -> tuple[Array, list[Any]] | None:
    """The number of each row's value in a field, and the values by their numbers."""
    series = rows.column(name)
    if series is None or not (series.dtype.is_integer() or series.dtype == pl.String):
        return None
    if series.dtype == pl.String:
        found = _codes_of_short(series)
        if found is not None:
            return found
    column: Any = series.to_arrow(compat_level=pl.CompatLevel.oldest())
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist()


def _codes_of_short(texts: pl.Series) -> tuple[Array, list[Any]] | None:
    """Numbers of texts that are in their views whole, and the texts; None if one is longer, or null."""
    column = texts.to_arrow(compat_level=pl.CompatLevel.newest())
    if kernel is None or column.null_count or not len(column):
        return None
    found = kernel.codes_of_views(column.buffers()[1], column.offset, len(column))
    if found is None:
        return None
    codes, firsts = found
    return np.asarray(codes), texts[np.asarray(firsts)].to_list()


def encoded(numbers: Array) -> tuple[Array, Array]:
    """The place of each number among the different ones, and these in the order in which they come first."""
    found = numbers_column(numbers.view(np.int64), pa.int64()).dictionary_encode()
    return found.indices.to_numpy(), found.dictionary.to_numpy().view(numbers.dtype)


def firsts_of(numbers: Array, count: int) -> Array:
    """The first row of each number below `count`; of a number without rows as many as there are rows."""
    firsts = np.full(count, len(numbers), np.int64)
    firsts[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)  # of several rows of a number the last is stored
    return firsts


class _Keyed:
    """Which rows are those of each key."""

    def __init__(self, codes: Array, keys: int) -> None:
        self.codes, self.keys = codes, keys

    @cached_property
    def order(self) -> Array:
        """The rows of the first key, then those of the second, and so on."""
        small = self.codes.astype(np.uint16) if self.keys <= 1 << 16 else self.codes  # which numpy sorts by digits
        return np.argsort(small, kind="stable")

    @cached_property
    def counts(self) -> Array:
        """How many rows each key has."""
        return np.bincount(self.codes, minlength=self.keys)

    @cached_property
    def ranks(self) -> Array:
        """How many rows of its key are before each row."""
        ranks = np.empty(len(self.codes), np.int64)
        ranks[self.order] = np.arange(len(ranks)) - np.repeat(np.cumsum(self.counts) - self.counts, self.counts)
        return ranks


def _aggregated(aggregate: Any, batch: _Keyed, rows: Frame, before: list[Any]) -> tuple[Any, list[Any]]:
    """The aggregate up to each row, in a column, or a list if values are in none, and the accumulators after all."""
    kind, of = aggregate.running_in_columns
    if type(kind) is tuple:
        compute: Any = _rolled if kind[0] == "rolling" else _shifted
        found: Any = compute(batch, rows, of, kind, before)
        if found is None:
            made, after = _one_by_one(aggregate, batch, rows, before)
            found = in_a_column(made, rows.column(of) if kind[0] == "shift" else None), after
        return found  # type: ignore[no-any-return]
    assert kernel is not None
    values, known, _ = values_known(rows, aggregate)
    column = kernel.Accumulators(kind, aggregate.begin_value, aggregate.add_value)
    made, after = column.running(batch.codes, values, known, before)
    return in_a_column(aggregate.results(made)) if type(made) is list else result_column(kind, *made), after


def result_column(kind: Kind, accumulators: Sequence[Any], have_one: Any) -> pl.Series:
    """The results of accumulators in arrays, see `Accumulators.arrays` in the kernel."""
    arrays = list(map(np.asarray, accumulators))
    counts = arrays[0] if have_one is None else np.maximum(arrays[0], 1)
    return with_nulls(pl.Series(means(arrays[1], counts) if kind == "mean" else arrays[0]), have_one)


def with_nulls(column: pl.Series, have_one: Any) -> pl.Series:
    """
    Args:
        have_one: a byte for each value, 0 where it is to be null; None where none is.
    """
    return column if have_one is None else column.set(pl.Series(np.frombuffer(have_one, np.uint8) == 0), None)


def values_known(rows: Any, aggregate: Any) -> tuple[Any, Array | None, None]:
    """The values of an aggregate, see `Accumulators.fold` in the kernel: numbers, or any in a list; None of a count."""
    if aggregate.adds == "count":
        return None, None, None
    of = None if aggregate.adds is None else aggregate.in_columns
    found = None if of is None else numbers_in(rows.column(of[1]))
    if found is None or (found[1] is not None and aggregate.needs_values):
        return list(aggregate.values_of(rows)), None, None  # raises, if a value is needed
    return *found, None


def numbers_in(column: pl.Series | None) -> tuple[Array, Array | None] | None:
    """The values of a column of numbers of 64 bits, and a byte for each, 0 where it is null, or None where none is.

    None of any other column.
    """
    if column is None or not _are_numbers(column):
        return None
    if not column.null_count():
        return numbers_of(column), None
    return numbers_of(column.fill_null(0)), column.is_not_null().cast(pl.UInt8).to_numpy()


def _are_numbers(column: pl.Series) -> bool:
    """Whether all of its values have 64 bits, or are None."""
    return column.dtype in (*_INTEGERS, pl.Float32, pl.Float64)


def numbers_of(column: pl.Series) -> Array:
    """The values of a column of numbers without nulls, as 64-bit integers or floats."""
    return np.ascontiguousarray(column.to_numpy(), np.float64 if column.dtype.is_float() else np.int64)


def means(totals: Array, counts: Array) -> Array:
    """The quotients, as Python has them: of integers that are no floats, too."""
    if totals.dtype == np.int64 and len(totals) and max(int(totals.max()), -int(totals.min())) > _MEAN_MAX:
        return np.array([total / count for total, count in zip(totals.tolist(), counts.tolist())], np.float64)
    return totals / counts


def _one_by_one(aggregate: Any, batch: _Keyed, rows: Frame, before: list[Any]) -> tuple[list[Any], list[Any]]:
    """What `_aggregated` gives, in objects."""
    after, made = list(before), []
    for key, value in zip(batch.codes.tolist(), aggregate.values_of(rows)):
        known = after[key]
        after[key] = aggregate.begin_value(value) if known is None else aggregate.add_value(known, value)
        made.append(aggregate.result(after[key]))
    return made, after


def _shifted(
    batch: _Keyed, rows: Frame, of: Of, kind: Before, before: list[Any]
) -> tuple[pl.Series, list[tuple[Any, ...]]] | None:
    """The value of some rows before, or the difference from it, and the accumulators after all.

    None where values, or differences, may not be of the column's type.
    """
    how, n = kind
    column = rows.column(of)
    if column is None or column.dtype not in _SHIFTED:
        return None
    known = [() if each is None else each[-n:] for each in before]
    flat = [value for each in known for value in each]
    try:
        earlier = pl.Series("", flat, dtype=column.dtype, strict=True)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        return None
    if not set(map(type, flat)) <= {_SHIFTED[type(column.dtype)], type(None)}:
        return None
    every = pl.concat([earlier, column.alias("")], rechunk=True)
    sizes = np.fromiter(map(len, known), np.int64, len(known))
    starts, at = np.cumsum(sizes) - sizes, np.empty(len(column), np.int64)
    at[batch.order] = np.arange(len(column))  # of each row, its place in the order
    inside = batch.ranks >= n
    places = (starts + sizes - n)[batch.codes] + batch.ranks
    is_known = inside | (places >= starts[batch.codes])
    places[inside] = len(earlier) + batch.order[at[inside] - n]
    made = every.gather(pl.Series(places).set(pl.Series(~is_known), None))
    after = _last_of(batch, column.to_list(), known, n + 1)
    if how == "shift":
        return made, after
    if every.null_count() or not column.dtype.is_numeric():
        return None
    if column.dtype.is_integer() and len(every) and max(-int(every.min()), int(every.max())) >= _EXACT_MAX:  # type: ignore[arg-type]
        return None
    return column.cast(pl.Int64 if column.dtype.is_integer() else pl.Float64) - made, after


def _rolled(
    batch: _Keyed, rows: Frame, of: Of, kind: Rolling, before: list[Any]
) -> tuple[pl.Series, list[tuple[Any, ...]]] | None:
    """An aggregate of the last rows of a key up to each, and the accumulators after all; None where they may not be
    numbers of 64 bits, or the order of values matters.

    The values of a key are in a row, those of before first; so each row has a stretch of them.
    """
    _, n, how = kind
    values, nulls = numbers_in(rows.column(of)) or (None, None)
    if values is None or nulls is not None:
        return None
    is_float = values.dtype == np.float64
    known = [() if each is None else each[-n + 1 :] if n > 1 else () for each in before]
    if not {type(value) for each in known for value in each} <= {float if is_float else int}:
        return None
    sizes = np.fromiter(map(len, known), np.int64, len(known))
    ends = np.cumsum(sizes + batch.counts)
    starts = ends - sizes - batch.counts
    places = (ends - batch.counts)[batch.codes] + batch.ranks
    every = np.empty(int(ends[-1]), values.dtype)
    every[places] = values
    try:
        every[np.repeat(starts - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())] = [
            value for each in known for value in each
        ]
    except OverflowError:
        return None
    firsts = np.maximum(places - n + 1, starts[batch.codes])
    made = _of_stretches(how, every, firsts, places, n)
    if made is None:
        return None
    if how == "mean":
        made = means(made, places - firsts + 1)
    every_value = every.tolist()
    bounds = zip(np.maximum(starts, ends - n).tolist(), ends.tolist())
    return pl.Series("", made), [tuple(every_value[start:end]) for start, end in bounds]


def _of_stretches(how: Kind, every: Array, firsts: Array, lasts: Array, n: int) -> Array | None:
    """The sum, or the least or greatest, of each stretch of values, added one by one; n: the most that one has.

    None where a sum may have more than 64 bits, or the order of values matters.
    """
    if every.dtype == np.int64:
        greatest = max(abs(int(every.max())), abs(int(every.min())))
        if how in ("sum", "mean"):
            if greatest * n > _EXACT_MAX:
                return None
            upto = np.concatenate([[0], np.cumsum(every)])  # what is beyond 64 bits goes out again in the difference
            summed: Array = upto[lasts + 1] - upto[firsts]
            return summed
    elif how in ("min", "max") and (np.isnan(every).any() or not every.all()):
        return None
    function = {"min": np.minimum, "max": np.maximum}.get(how, np.add)
    made = every[firsts]
    with np.errstate(invalid="ignore", over="ignore"):  # the sum of two infinities is NaN, as in Python
        for further in range(1, min(n, int((lasts - firsts).max()) + 1)):
            at = firsts + further
            function(made, every[np.minimum(at, lasts)], out=made, where=at <= lasts)
    return made


#: Types whose values before may be columns, and the class of their values.
_SHIFTED: dict[Any, type] = {**dict.fromkeys(_INTEGERS, int), pl.Float64: float, pl.Boolean: bool, pl.String: str}


def _last_of(batch: _Keyed, values: list[Any], known: list[Any], count: int) -> list[tuple[Any, ...]]:
    """The last values of each key, those of before included."""
    ordered = [values[at] for at in batch.order.tolist()]
    found, end = [], 0
    for earlier, rows in zip(known, batch.counts.tolist()):
        end += rows
        own = tuple(ordered[max(end - count, end - rows) : end])
        found.append((*earlier, *own)[-count:])
    return found
