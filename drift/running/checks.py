"""Checks of the arguments of a run, before anything is opened."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drift.all_engines import EngineKind, engine_kinds
from drift.flow.corrected import check_own_times
from drift.flow.fields import check_fields
from drift.places import found_at
from drift.sources.base import OwnSource
from drift_graph.errors import SettingsError
from drift_graph.functions import caller, is_expression
from drift_graph.graph import Dataflow
from drift_graph.policies import TimePolicy


def check_named(
    dataflow: Dataflow,
    sources: Mapping[str, Any] | None,
    times: Mapping[str, TimePolicy],
    sinks: Mapping[str, Any],
) -> None:
    """Check that what is named exists; `sources` is None if the input does not come from sources."""
    known = {source.name for source in dataflow.sources}
    if sources is not None:
        check_names("source", known, sources, dataflow, complete=True)
    check_names("source", known, times, dataflow)
    check_names("sink", {sink.name for sink in dataflow.sinks}, sinks, dataflow)
    for name, policy in times.items():
        if not isinstance(policy, TimePolicy):
            raise SettingsError(f"times[{name!r}] is {policy!r:.80}, neither ArrivalTime() nor EventTime(...)")
        if any(map(is_expression, policy.functions.values())):
            raise SettingsError(
                f"times[{name!r}] has an expression, and a run does not know the fields of the rows: write it at the "
                f"source, graph.source({name!r}, schema=..., time=...)"
            )
        fields = next(getattr(each.rows, "fields", None) for each in dataflow.sources if each.name == name)
        for role, function in policy.functions.items():
            check_fields(fields, function, f"times[{name!r}] ({role}=)", caller)
    check_own_times(dataflow, times)


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


def check_files(sources: Mapping[str, Any], sinks: Mapping[str, Any], late_output: str | None = None) -> None:
    """Check that nothing is written to a file that is read, or that something else is written to.

    Raises:
        SettingsError: what is there would be lost, or output be read as input.
    """
    paths = {f"sink {name!r}": getattr(sink, "writes_to", None) for name, sink in sinks.items()}
    paths |= {"the late output": late_output}
    writer: dict[Path, str] = {}
    for what, path in paths.items():
        if path is None or "://" in path or found_at(Path(path)) == "other":
            continue
        file = Path(path).resolve()
        if (other := writer.setdefault(file, what)) != what:
            raise SettingsError(f"{other} and {what} are both given {path}; give each its own")
        for name, source in sources.items():
            if isinstance(source, OwnSource) and source.reads(file):
                raise SettingsError(f"{what} would write to {path}, which source {name!r} reads; give it another path")


def check_complete(complete: bool, state: Any, engine: EngineKind) -> None:
    """Raises:
    SettingsError: input that ends cannot be taken as complete, or cannot be taken as not complete.
    """
    if complete:
        return
    if state is None:
        raise SettingsError(
            "complete=False lets a later call go on with what the input has more by then, from the state of this one: "
            "pass state= too (--state)"
        )
    if not engine.pauses:
        engines = " or ".join(repr(kind.name) for kind in engine_kinds() if kind.pauses)
        raise SettingsError(
            f"engine {engine.name!r} has no checkpoint before the end of its input, so it cannot pause there: leave "
            f"complete=False (--incomplete) out, or use {engines}"
        )


def check_state(record: Any, until: int | None) -> None:
    if until is not None:
        raise SettingsError("a run that repeats a record up to a position takes no checkpoints; leave out state=")
    if record is not None:
        raise SettingsError(
            "record= and state= cannot be used together: a record begins where its run begins, and a run that resumes "
            "begins in the middle; leave out one of them, or run twice, with one each: both runs have the same digest"
        )
