"""Running aggregates of rows by key, computed column by column.

Invariant: the aggregates of a row, and the states after a batch, are those of adding row by row in order, to the last
bit of a float; or the answer is None, and the rows are to be added one by one.

Why: integers are added exactly, in any order; what could leave 63 bits, or lose bits of a mean, is not done here.
Floats are added one after the other, in a loop of the kernel (sums in numpy do not). Where comparisons of floats depend
on order (NaN, zeros of both signs), and without the kernel, the answer is None.
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
_kinds = pa.types

_INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)
_EXACT_MAX = 1 << 62  # sums of integers below it do not overflow
_MEAN_MAX = 1 << 53  # up to here integers are floats


class _NotHere(Exception):
    """What is asked is not done in columns."""


def running(
    rows: Frame,
    key: Sequence[str],
    named: Sequence[tuple[str, tuple[Any, Of]]],
    fetch: Callable[[Sequence[Any]], list[Any]],
    store: Callable[[Iterable[tuple[Any, Any]]], None],
) -> Frame | None:
    """The rows with the aggregates of their keys up to each of them; None where rows are to be added one by one.

    Args:
        key: names of the fields; of one the key is its value, of several a tuple.
        named: aggregates by the names of their results.
        fetch: the states of keys, each a tuple of accumulators, or empty for a new key.
        store: takes the states after the rows.
    """
    try:
        codes, keys = codes_of(rows, key)
        values = {field: _numbers(rows, field) for _, (kind, field) in named if type(kind) is str and kind != "count"}
        states = fetch(keys)
        batch = _Keyed(codes, len(keys))
        columns, accumulators = [], []
        for at, (name, (kind, field)) in enumerate(named):
            before = [state[at] if state else None for state in states]
            if type(kind) is tuple:
                compute: Any = _rolled if kind[0] == "rolling" else _shifted
                column, after = compute(batch, rows, field, kind, before)
                columns.append(column.alias(name))
                accumulators.append(after)
                continue
            made, after = _aggregated(kind, batch, values.get(field), before)
            columns.append(pl.Series(name, made))
            accumulators.append(after)
    except _NotHere:
        return None
    store(zip(keys, zip(*accumulators)))
    return rows.with_columns(columns)


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


def codes_in_columns(rows: Frame, key: Sequence[str]) -> tuple[Array, list[Any]] | None:
    """What `codes_of` gives; None where keys are not known in columns."""
    try:
        return codes_of(rows, key)
    except _NotHere:
        return None


def codes_of(rows: Frame, key: Sequence[str]) -> tuple[Array, list[Any]]:
    """The number of each row's key, and the keys by their numbers, which are in the order of their first rows."""
    if not key:
        return np.zeros(len(rows), np.int64), [None]
    codes: Array | None = None
    several: list[list[Any]] = []
    for name in key:
        own, values = _codes_of(rows, name)
        if codes is not None:
            own, pairs = encoded(codes.astype(np.int64) * len(values) + own)
            first, second = np.divmod(pairs, len(values))
            several = [[each[at] for at in first.tolist()] for each in several]
            values = [values[at] for at in second.tolist()]
        codes = own
        several.append(values)
    assert codes is not None
    return codes, several[0] if len(several) == 1 else list(zip(*several))


def _codes_of(rows: Frame, name: str) -> tuple[Array, list[Any]]:
    """The number of each row's value in a field, and the values by their numbers."""
    if rows.schema.get(name) == pl.String:
        found = _codes_of_short(_series(rows, name))
        if found is not None:
            return found
    column = _column(rows, name)
    kind = column.type
    if not (_kinds.is_integer(kind) or _kinds.is_string(kind) or _kinds.is_large_string(kind)):
        raise _NotHere
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


def _series(rows: Frame, of: Of) -> pl.Series:
    column = rows.column(of)
    if column is None:
        raise _NotHere
    return column


def _column(rows: Frame, of: Of) -> pa.Array:
    return _series(rows, of).to_arrow(compat_level=pl.CompatLevel.oldest())


def _numbers(rows: Frame, of: Of) -> Array:
    """The values of a field, or of an expression, as 64-bit integers or floats."""
    column = _column(rows, of)
    if column.null_count:
        raise _NotHere
    return numbers_of(column)


def numbers_of(column: pa.Array) -> Array:
    """The values of a column without nulls, as 64-bit integers or floats."""
    kind = column.type
    if kind == pa.uint64() or kind == pa.float16():
        raise _NotHere
    if _kinds.is_integer(kind):
        return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)
    if _kinds.is_floating(kind):
        return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)
    raise _NotHere


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

    def accumulated(self, values: Array, last: Array, kind: Literal["sum", "min", "max"]) -> tuple[Array, Array]:
        """The values before and each row's, one after the other: for each row, and each key's last, in place."""
        if kernel is None:
            raise _NotHere
        made = np.empty_like(values)
        kernel.accumulated(self.codes.astype(np.int32, copy=False), np.ascontiguousarray(values), last, made, kind)
        return made, last

    def counted(self, before: list[Any]) -> tuple[Array, Array]:
        """How many rows of its key are up to each, and of each key."""
        return self.accumulated(np.ones(len(self.codes), np.int64), np.array(before, np.int64), "sum")


def _aggregated(kind: Kind, batch: _Keyed, values: Array | None, before: list[Any]) -> tuple[Array, list[Any]]:
    """The aggregate up to each row, and the accumulators after all."""
    if kind == "count":
        made, last = batch.counted(_known(before, 0, int))
        return made, last.tolist()
    assert values is not None
    if kind == "sum":
        made, last = _sums(batch, values, before)
        return made, last.tolist()
    if kind == "mean":
        counts, of_all = batch.counted([0 if each is None else each[0] for each in before])
        made, last = _sums(batch, values, [None if each is None else each[1] for each in before])
        if made.dtype == np.int64 and max(abs(int(made.max())), abs(int(made.min()))) > _MEAN_MAX:
            raise _NotHere
        return made / counts, list(zip(of_all.tolist(), last.tolist()))
    made, last = _extremes(batch, values, before, kind)
    return made, last.tolist()


def _shifted(
    batch: _Keyed, rows: Frame, of: Of, kind: Before, before: list[Any]
) -> tuple[pl.Series, list[tuple[Any, ...]]]:
    """The value of some rows before, or the difference from it, and the accumulators after all."""
    how, n = kind
    column = _series(rows, of)
    if column.dtype not in _SHIFTED:
        raise _NotHere
    known = [() if each is None else each[-n:] for each in before]
    flat = [value for each in known for value in each]
    try:
        earlier = pl.Series("", flat, dtype=column.dtype, strict=True)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        raise _NotHere from None
    if not set(map(type, flat)) <= {_SHIFTED[type(column.dtype)], type(None)}:
        raise _NotHere
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
        raise _NotHere
    if column.dtype.is_integer() and len(every) and max(-int(every.min()), int(every.max())) >= _EXACT_MAX:  # type: ignore[arg-type]
        raise _NotHere
    return column.cast(pl.Int64 if column.dtype.is_integer() else pl.Float64) - made, after


def _rolled(
    batch: _Keyed, rows: Frame, of: Of, kind: Rolling, before: list[Any]
) -> tuple[pl.Series, list[tuple[Any, ...]]]:
    """An aggregate of the last rows of a key up to each, and the accumulators after all.

    The values of a key are in a row, those of before first; so each row has a stretch of them.
    """
    _, n, how = kind
    values = _numbers(rows, of)
    is_float = values.dtype == np.float64
    known = [() if each is None else each[-n + 1 :] if n > 1 else () for each in before]
    if not {type(value) for each in known for value in each} <= {float if is_float else int}:
        raise _NotHere
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
        raise _NotHere from None
    firsts = np.maximum(places - n + 1, starts[batch.codes])
    made = _of_stretches(how, every, firsts, places, n)
    if how == "mean":
        made = made / (places - firsts + 1)
    every_value = every.tolist()
    bounds = zip(np.maximum(starts, ends - n).tolist(), ends.tolist())
    return pl.Series("", made), [tuple(every_value[start:end]) for start, end in bounds]


def _of_stretches(how: Kind, every: Array, firsts: Array, lasts: Array, n: int) -> Array:
    """The sum, or the least or greatest, of each stretch of values, added one by one; n: the most that one has."""
    if every.dtype == np.int64:
        greatest = max(abs(int(every.max())), abs(int(every.min())))
        if how in ("sum", "mean"):
            if greatest * n > (_MEAN_MAX if how == "mean" else _EXACT_MAX):
                raise _NotHere
            upto = np.concatenate([[0], np.cumsum(every)])  # what is beyond 64 bits goes out again in the difference
            summed: Array = upto[lasts + 1] - upto[firsts]
            return summed
    elif how in ("min", "max") and (np.isnan(every).any() or not every.all()):
        raise _NotHere
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


def _sums(batch: _Keyed, values: Array, before: list[Any]) -> tuple[Array, Array]:
    if values.dtype == np.float64:
        return batch.accumulated(values, np.array(_known(before, -0.0, float)), "sum")  # -0.0 + x is x, for -0.0 too
    known = _known(before, 0, int)
    greatest = max(abs(int(values.max())), abs(int(values.min()))) * len(values)
    if greatest + max(map(abs, known)) > _EXACT_MAX:
        raise _NotHere
    return batch.accumulated(values, np.array(known, np.int64), "sum")


def _extremes(batch: _Keyed, values: Array, before: list[Any], kind: Literal["min", "max"]) -> tuple[Array, Array]:
    found = values[firsts_of(batch.codes, batch.keys)]  # of a new key: the least of a value and itself
    old = [at for at, each in enumerate(before) if each is not None]
    if old:
        known = [before[at] for at in old]
        if set(map(type, known)) != {float if values.dtype == np.float64 else int}:
            raise _NotHere
        try:
            found[old] = known
        except OverflowError:
            raise _NotHere from None
    if values.dtype == np.float64:
        for some in (values, found):
            if np.isnan(some).any() or not some.all():
                raise _NotHere
    return batch.accumulated(values, found, kind)


def _known(before: list[Any], of_none: Any, kind: type) -> list[Any]:
    """The accumulators, with one for keys that have none."""
    known = [of_none if each is None else each for each in before]
    if set(map(type, known)) != {kind}:
        raise _NotHere
    return known
