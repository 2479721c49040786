"""Payloads of a source with a schema: those that are no rows of it end the input at their item, or are diverted.

Invariant: which payloads these are depends on the payloads alone, never on how they were cut into batches.
"""

from __future__ import annotations

from typing import Any

from drift_graph.diverted import diverted_by, is_diverted
from drift_graph.errors import InputError
from drift_graph.payloads import AsRows, are_rows


def as_rows(rows: AsRows, payloads: Any, source: str, items_before: int | None = None) -> tuple[Any, InputError | None]:
    """The rows up to the first payload that is none, and the error of that payload.

    Args:
        items_before: number of items of the source before these, if the source numbers its items.
    """
    try:
        return rows(payloads), None
    except InputError:
        at, error = next(rows.others(payloads))
    nth = "" if items_before is None else f"item {items_before + at} of "
    return rows(payloads[:at]) if at else [], InputError(f"{nth}source {source!r}: {error}")


def rows_or_diverted(rows: AsRows, payloads: Any, source: str) -> Any:
    """All payloads; those that are no rows are replaced by diverted items."""
    read = payloads if are_rows(payloads) else [payload for payload in payloads if not is_diverted(payload)]
    if len(read) == len(payloads):
        try:
            return rows(payloads)
        except InputError:
            pass
    wrong = dict(rows.others(read))
    good = iter(rows([payload for at, payload in enumerate(read) if at not in wrong]))
    given = enumerate(read)
    taken: list[Any] = []
    for payload in payloads:
        if not is_diverted(payload):
            at, _ = next(given)
            payload = diverted_by(source, wrong[at], payload) if at in wrong else next(good)
        taken.append(payload)
    return taken
