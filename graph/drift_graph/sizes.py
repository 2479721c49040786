"""Sizes: as people write them, and estimates of how much memory payloads take.

Invariant: an estimate costs a few microseconds, however many and however large the payloads are.

Why: it samples three payloads, four levels deep; of a payload, and of what is in it, all fields if they are few, and
two entries of each larger container: enough to distinguish a batch of megabytes from one of bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from sys import getsizeof
from typing import Any

from drift_graph.payloads import are_rows

#: Readers stop a batch at about this size: it holds as many usual payloads as make a fast batch, or few large ones.
BATCH_BYTES = 4 << 20
#: What an item takes besides its payload: its meta, and its place in the columns. For rows that is little.
ITEM_BYTES = 100
_ENTRIES, _FIELDS = 2, 16
_DEPTH = 4
_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})
_CONTAINERS = frozenset({dict, list, tuple})
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 1 << 10, "MIB": 1 << 20}
_UNITS |= {"GIB": 1 << 30, "TIB": 1 << 40}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def about_bytes(payloads: Sequence[Any]) -> int:
    """Approximate bytes of a batch in memory."""
    if are_rows(payloads):
        return payloads.nbytes
    count = len(payloads)
    if count <= 3:
        return sum(map(size_of, payloads))
    return (size_of(payloads[0]) + size_of(payloads[count // 2]) + size_of(payloads[-1])) * count // 3


def made_bytes(batches: Iterable[Sequence[Any]]) -> int:
    """Approximate bytes of items that were made, from their payloads."""
    return sum(
        about_bytes(payloads) + (0 if are_rows(payloads) else ITEM_BYTES * len(payloads)) for payloads in batches
    )


def size_of(payload: Any, depth: int = _DEPTH) -> int:
    """Approximate bytes of one payload in memory."""
    kind = type(payload)
    if kind in _PLAIN:
        return getsizeof(payload)
    if kind in _CONTAINERS:
        entries = payload.values() if kind is dict else payload
        return getsizeof(payload) + (_of_entries(entries, len(payload), depth) if depth else 0)
    own = max(getsizeof(payload, 64), int(getattr(payload, "nbytes", 0) or 0))
    if not depth:
        return own
    if isinstance(payload, (tuple, list, set, frozenset)):
        return own + _of_entries(payload, len(payload), depth)
    if isinstance(payload, Mapping):
        return own + _of_entries(payload.values(), len(payload), depth)
    values = _values_of(payload)
    return own + _of_entries(values, len(values), depth)


def _values_of(payload: Any) -> Sequence[Any]:
    if hasattr(payload, "__dict__"):
        return list(vars(payload).values())
    kind: Any = type(payload)
    names: Any = getattr(kind, "__struct_fields__", None) or getattr(kind, "__slots__", ())
    return [] if isinstance(names, str) else [getattr(payload, name, None) for name in names]


def _of_entries(entries: Iterable[Any], count: int, depth: int) -> int:
    if not count:
        return 0
    total = sampled = 0
    for entry in islice(entries, _FIELDS if count <= _FIELDS and depth >= _DEPTH - 1 else _ENTRIES):
        total += getsizeof(entry) if type(entry) in _PLAIN else size_of(entry, depth - 1)
        sampled += 1
    return total * count // max(sampled, 1)


def bytes_in(size: int | str) -> int | None:
    """A size in bytes, from a number of bytes or a text as "2 GB" or "512 MiB"; None if it is neither.

    >>> bytes_in("1.5 KB")
    1500
    """
    if type(size) is int:
        return size
    found = _SIZE.fullmatch(size) if type(size) is str else None
    unit = _UNITS.get(found[2].upper()) if found is not None else None
    return int(float(found[1]) * unit) if found is not None and unit is not None else None
