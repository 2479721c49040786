"""The first row of each key, found column by column.

Invariant: the rows that pass, and the states of the keys, are those of `drift.flow.choosing.FirstOfKey`, row by row; or
the answer is None, and nothing has changed.

Why: whether a row passes depends on nothing but whether its key had rows before, in this batch or in earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress, repeat
from typing import Any

import numpy as np

from drift.columns.aggregates import codes_of, firsts_of
from drift.columns.rows import Frame
from drift_graph.payloads import AtMostOne


def firsts(
    rows: Frame,
    key: Sequence[str],
    fetch: Callable[[Sequence[Any]], list[bool]],
    store: Callable[[Iterable[tuple[Any, Any]]], None],
) -> AtMostOne | None:
    """For each row itself, if it is the first of its key; None where rows are to be looked at one by one.

    Args:
        key: names of the fields; of one the key is its value, of several a tuple.
        fetch, store: see `drift.columns.aggregates.running`; a state is whether the key had a row.
    """
    found = codes_of(rows, key)
    if found is None:
        return None
    codes, keys = found
    is_new = ~np.array(fetch(keys), np.bool_)
    passes = np.zeros(len(rows), np.bool_)
    passes[firsts_of(codes, len(keys))[is_new]] = True
    store(zip(compress(keys, is_new), repeat(True)))
    wanted = passes.tobytes()
    return AtMostOne(wanted, rows.chosen(wanted))
