"""A number of a run's output over time, as a plot of matplotlib.

Invariant: a line has the values of its key in the order of the output, each at the time of its item.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import matplotlib.pyplot as plt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types
from matplotlib.axes import Axes

from drift_graph.errors import SettingsError
from drift_graph.moments import column_of
from drift_graph.operators import Source
from drift_graph.policies import EventTime, TimePolicy

#: Times from here on, and below this, are taken for milliseconds since 1970, as on the page of a run: 2001-09-09 to
#: 2286-11-20. Later is what comes at the end of the input.
_DATES_FROM, _DATES_BELOW = 10**12, 10**13
#: What moments Python has, in milliseconds since 1970, without a day at each end.
_MOMENTS_FROM, _MOMENTS_BELOW = -62_135_510_400_000, 253_402_128_000_000
_ENDS = 3  # columns of each table that are no fields: position, sink, time
_LEGEND_MAX = 12  # keys


def has_moments(source: Source, policy: TimePolicy, firsts: Mapping[str, Any]) -> bool:
    """Whether the times of a source are known to be milliseconds since 1970.

    Args:
        firsts: the first payloads of sources, where these are known.
    """
    if not isinstance(policy, EventTime):
        return False
    if source.name in firsts and callable(policy.time):
        try:
            time = policy.time(firsts[source.name])
        except Exception:  # a payload that the run has diverted
            time = None
        if isinstance(time, (str, datetime)) or type(time).__name__ == "datetime64":
            return True
    if policy.unit is not None or policy.zone is not None:
        return True
    path = column_of(policy.time)
    kind = dict(getattr(source.rows, "fields", ())).get(path) if type(path) is str else None
    return type(kind).__name__ in ("Datetime", "String")


def plotted(table: pa.Table, title: str, value: str | None, by: str | None, *, dated: bool) -> Axes:
    """
    Args:
        table: the output, as `to_arrow` gives it.
        dated: whether times are known to be milliseconds since 1970.
    """
    fields = table.column_names[_ENDS:]
    value = value if value is not None else _number_of(table, fields)
    if by is None and "key" in fields and value != "key" and table["key"].null_count < len(table):
        by = "key"
    for name in (value, *([by] if by is not None else [])):
        if name not in fields:
            raise SettingsError(
                f"plot: the output has no field {name!r}; it has {', '.join(map(repr, fields)) or 'none'}"
            )
    if not _is_number(table.schema.field(value).type):
        raise SettingsError(f"plot: field {value!r} is no number, but {table.schema.field(value).type}")
    times = table["time"]
    least, greatest = pc.min_max(times).as_py().values()
    first, end = (_MOMENTS_FROM, _MOMENTS_BELOW) if dated else (_DATES_FROM, _DATES_BELOW)
    if least is not None and first <= least <= greatest < end:
        times = times.cast(pa.timestamp("ms", "UTC"))
    axes = plt.subplots()[1]
    labels = pa.array([""] * len(table) if by is None else map(str, table[by].to_pylist()), pa.string())
    keys = pc.unique(labels).to_pylist()
    for key in keys:
        rows = pc.equal(labels, key)
        axes.plot(times.filter(rows).to_numpy(), table[value].filter(rows).to_numpy(), label=key)
    axes.set(title=title, xlabel="time", ylabel=value)
    if by is not None and len(keys) <= _LEGEND_MAX:
        axes.legend(title=by)
    return axes


def _number_of(table: pa.Table, fields: list[str]) -> str:
    """The field that is meant where none is named."""
    numbers = [name for name in fields if _is_number(table.schema.field(name).type)]
    if "value" in numbers:
        return "value"
    if len(numbers) != 1:
        shown = ", ".join(map(repr, numbers or fields)) or "no items"
        if numbers:
            raise SettingsError(f"plot: several fields are numbers, {shown}; name one, value=...")
        raise SettingsError(f"plot: no field is a number; the output has {shown}")
    return numbers[0]


def _is_number(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))
