"""Windows of rows by number, each of them as many rows of a key as the others, and none in two.

Invariant: results and states are those of `drift.flow.windows.NumberedStep`; or the answer is None, and the rows are to
be processed one by one.

Why: the number of a row among those of its key says which window it is in, and whether that ends with it. So the
windows of a batch are groups of rows, of which the first of a key may have had rows before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from drift.columns.aggregates import InColumns, _Keyed, _NotHere, codes_of, firsts_of
from drift.columns.groups import Groups, Keys, arrays_of, listed, results_of
from drift.columns.rows import Frame
from drift.columns.windows import AtMostOne, window_rows


def counted(
    rows: Frame,
    key: Sequence[str],
    values: tuple[tuple[str, ...] | None, Sequence[InColumns]],
    size: int,
    kind: Callable[..., Any],
    empty: Any,
    fetch: Callable[[Sequence[Any]], list[Any]],
    store: Callable[[Iterable[tuple[Any, Any]]], None],
) -> AtMostOne | None:
    """For each row the window that ends with it, if one does.

    Args:
        key: names of the fields; of one the key is its value, of several a tuple, of none None.
        values: names of what a window has, None for one value; and the aggregates.
        kind: makes a window.
        empty: in place of a state, and of an accumulator.
        fetch, store: see `drift.columns.aggregates.running`.
    """
    names, aggregates = values
    try:
        codes, keys = codes_of(rows, key)
        batch, states = _Keyed(codes, len(keys)), fetch(keys)
        before = np.array([0 if state is empty else state[0] for state in states], np.int64)
        after = before + batch.counts
        begun = before // size
        opened = -(-after // size) - begun  # windows of each key that have rows of the batch
        ends = np.cumsum(opened)
        at = before[codes] + batch.ranks
        numbers = (ends - opened - begun)[codes] + at // size
        count = int(ends[-1])
        groups = Groups(rows, range(count), None, numbers, firsts_of(numbers, count))
        going_on = np.flatnonzero(before % size)
        old = (ends - opened)[going_on]
        known = [states[each][2] for each in going_on.tolist()]
        made = []
        for place, of in enumerate(aggregates):
            own = known if names is None else [each[place] for each in known]
            made.append(groups.folded(of, old, arrays_of(of[0], own) if own else ()))
        is_last = (at + 1) % size == 0
        found = numbers[is_last]
        results = results_of(aggregates, [[each[found] for each in arrays] for arrays in made])
    except _NotHere:
        return None
    positions = at[is_last].tolist()
    windows = window_rows(
        kind,
        Keys(keys, codes[is_last]),
        len(key),
        [(each + 1 - size, each + 1) for each in positions] or [(0, 0)],
        [1] * len(positions) or [0],
        results,
        names,
    )
    if windows is None:
        return None
    left = np.flatnonzero(after % size)
    last = (ends - 1)[left]
    lists = [listed(of[0], [each[last] for each in arrays]) for of, arrays in zip(aggregates, made)]
    open_windows = dict(zip(left.tolist(), lists[0] if names is None else zip(*lists)))
    store(
        (each, (position, (), open_windows.get(place, empty)))
        for place, (each, position) in enumerate(zip(keys, after.tolist()))
    )
    return AtMostOne(is_last.astype(np.uint8).tobytes(), windows)
