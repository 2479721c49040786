"""Running a graph: the public call, and one for a graph and feed that are ready."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from drift.all_engines import EngineKind, EngineName, engine_kind
from drift.calling.asks import Calls
from drift.running.runs import MakeFeed, Run
from drift.segments.answers import AnswersOfRun
from drift.state.run_checkpoints import Checkpoints
from drift.streams import Graph
from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow
from drift_graph.lateness import Late
from drift_graph.policies import TimePolicy

if TYPE_CHECKING:
    from drift.records.recorder import Recording


def run(
    graph: Graph | Dataflow,
    sources: Mapping[str, Any],
    *,
    engine: EngineName | EngineKind = "local",
    workers: int = 1,
    times: Mapping[str, TimePolicy] | None = None,
    sinks: Mapping[str, Any] | None = None,
    on_late: Callable[[Late], None] | None = None,
    digest: str = "xxh3_128",
    record: str | os.PathLike[str] | Recording | None = None,
    web: int | str | None = None,
    state: str | os.PathLike[str] | Checkpoints | None = None,
    otel: bool = False,
    calls: Calls = "ask",
    **more: Any,
) -> Run:
    """Run a graph; iterate over the result for its items, or call `finish()`.

    Args:
        graph: what to compute.
        sources: for each source of the graph an iterable, or one of `drift.sources`.
        engine: "local", "reference", "zeromq", "spark", or an EngineKind of your own; the output is the same.
        workers: processes that share the keys (zeromq).
        times: time policies by source, in place of those of the graph.
        sinks: for each sink that needs one a callable that takes items, a list, or one of `drift.sinks`.
        on_late: called with late items that a time policy diverts; without it they are collected in `Run.late`.
        digest: "xxh3_128", or "sha256" if somebody may have reason to forge an output.
        record: a folder, which must not exist yet, for a record of the run, for `drift.replay` and `drift.audit`.
        web: a port, 0 for any free one, or "HOST:PORT": serves a page of the run while it runs, at `Run.web`. On any
            host but this machine's loopback it requires a token: DRIFT_WEB_TOKEN, or a generated one.
        state: a folder where the run keeps its state, or `drift.Checkpoints(...)`: the same call resumes from there
            after the run ended for whatever reason (local, zeromq); on spark from a checkpoint of these.
        otel: whether OpenTelemetry gets a span of the run and its counters.
        calls: "ask"; "replay", to take answers that are in the state only, and end where there is none; "stub", for
            the stubs of all calls; or {call: function}, to ask other functions.
        more: other settings of the engine: `drift.Settings`, and those of its own.

    Raises:
        GraphError, SettingsError: at once, before any item flows.
    """
    for name, given in (("sources", sources), ("times", times), ("sinks", sinks)):
        if given is not None and not isinstance(given, Mapping):
            raise SettingsError(
                f"{name}={given!r:.80} is no dict; give each its name in the graph: {name}={{NAME: ...}}"
            )
    dataflow = graph.build() if isinstance(graph, Graph) else graph
    if not isinstance(dataflow, Dataflow):
        raise SettingsError(f"run takes a drift.Graph, not {dataflow!r:.80}")
    return made_run(
        dataflow,
        sources,
        engine=engine,
        workers=workers,
        times=times,
        sinks=sinks,
        on_late=on_late,
        digest=digest,
        record=record,
        web=web,
        state=state,
        otel=otel,
        calls=calls,
        target=_target_of(graph, dataflow) if record is not None else "",
        **more,
    )


def made_run(
    dataflow: Dataflow,
    sources: Mapping[str, Any],
    *,
    engine: str | EngineKind = "local",
    times: Mapping[str, TimePolicy] | None = None,
    sinks: Mapping[str, Any] | None = None,
    on_late: Callable[[Late], None] | None = None,
    record: Any = None,
    target: str = "",
    feed: MakeFeed | None = None,
    until: int | None = None,
    web: int | str | None = None,
    state: Any = None,
    otel: bool = False,
    calls: Calls = "ask",
    answered: AnswersOfRun | None = None,
    **settings: Any,
) -> Run:
    """`run` for a built graph, whose FILE:NAME is known, or whose input does not come from sources.

    Args:
        target: "file.py:name" of the graph, for the record.
        feed: makes the input of the engine, in place of `sources`, from the handler of late items and batch_items.
        until: end before this position.
        web: address of the page.
        state: where the run keeps its state; see `run`.
        web, otel, calls: as for `run`.
        answered: answers of an earlier run, which are not asked for.
        settings: of the engine.
    """
    kind = engine if isinstance(engine, EngineKind) else engine_kind(engine)
    is_watched = web is not None or otel
    return Run(
        dataflow,
        sources,
        engine=kind,
        settings=kind.settings_of({**settings, "counted": True} if is_watched else settings),
        times=times or {},
        sinks=sinks or {},
        on_late=on_late,
        record=record,
        target=target,
        make_feed=feed,
        until=until,
        web=web,
        state=state,
        otel=otel,
        calls=calls,
        answers=answered,
    )


def _target_of(graph: Graph | Dataflow, dataflow: Dataflow) -> str:
    from drift.records.describe import target_of_graph

    return target_of_graph(graph, dataflow)
