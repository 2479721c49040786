"""Checks of the arguments of a run, before anything is opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow


def check_names(
    kind: str, known: set[str], named: Mapping[str, Any], dataflow: Dataflow, *, complete: bool = False
) -> None:
    for name in named:
        if name not in known:
            raise SettingsError(
                f"graph {dataflow.name!r} has no {kind} {name!r}; it has {', '.join(map(repr, sorted(known)))}"
            )
    missing = sorted(known - set(named)) if complete else []
    if missing:
        raise SettingsError(
            f"no input for {kind} {', '.join(map(repr, missing))} of graph {dataflow.name!r}; pass it in sources="
        )


def check_state(record: Any, until: int | None) -> None:
    if until is not None:
        raise SettingsError("a run that repeats a record up to a position takes no cuts; leave out state=")
    if record is not None:
        raise SettingsError(
            "record= and state= cannot be used together: a record begins where its run begins, and a run that resumes "
            "begins in the middle; leave out one of them, or run twice, with one each: both runs have the same digest"
        )
