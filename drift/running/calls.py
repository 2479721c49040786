"""Running a graph: the public call, and one for a graph and feed that are ready."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from drift.all_engines import EngineKind, EngineName, engine_kind
from drift.calling.asks import Calls
from drift.running.opening import opened_run
from drift.running.plan import RunPlan
from drift.running.runs import Run
from drift.state.settings import Checkpoints, as_checkpoints
from drift.streams import Graph
from drift_graph.called import called
from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow
from drift_graph.lateness import Late
from drift_graph.policies import TimePolicy

if TYPE_CHECKING:
    from drift.records.recorder import Recording


@called
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
    complete: bool = True,
    **more: Any,
) -> Run:
    """Run a graph; iterate over the result for its items, or call `finish()`: nothing is read or written before.

    A run with sinks or a record that is dropped and was neither started nor closed warns of that (RuntimeWarning).

    >>> import drift
    >>> graph = drift.Graph("words")
    >>> graph.source("lines").flat_map(str.split).sink("out")
    >>> [item.payload for item in drift.run(graph, {"lines": ["to be", "or not"]})]
    ['to', 'be', 'or', 'not']
    >>> drift.run(graph, {"lines": ["to be", "or not"]}, engine="reference").finish().items_out
    4

    Args:
        graph: what to compute.
        sources: for each source of the graph an iterable, or one of `drift.sources`.
        engine: "local", "reference", "zeromq", "spark", or an EngineKind of your own; the output is the same.
        workers: processes that share the keys (zeromq).
        times: time policies by source, in place of those of the graph.
        sinks: for each sink that needs one a callable that takes items, a list, or one of `drift.sinks`.
        on_late: called with late items that a time policy diverts, once the output is released up to them; with state,
            as the checkpoint behind them is stored. Without it they are collected in `Run.late`.
        digest: "xxh3_128", or "sha256" if somebody may have reason to forge an output.
        record: a folder, which must not exist yet, for a record of the run, for `drift.replay` and `drift.audit`.
        web: a port, 0 for any free one, or "HOST:PORT": serves a page of the run while it runs, at `Run.web`. On any
            host but this machine's loopback it requires a token: DRIFT_WEB_TOKEN, or a generated one.
        state: a folder where the run keeps its state, or `drift.Checkpoints(...)`: the same call resumes from there
            after the run ended for whatever reason (local, zeromq); on spark from a checkpoint of these.
        otel: whether OpenTelemetry gets a span of the run and its counters.
        calls: "ask"; "replay", to take answers that are in the state only, and end where there is none; "stub", for
            the stubs of all calls; or {call: function}, to ask other functions.
        complete: whether input that ends is complete: then windows close and aggregates at the end come, and a later
            call with this state finds the run over. False: the run pauses where its sources end now, as by
            `run.stop()`; `Report.held` is what is open, and the next call with this state goes on with what the input
            has more.
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
    target = _target_of(graph, dataflow) if record is not None else ""
    return made_run(
        dataflow,
        sources,
        {"workers": workers, "digest": digest, **more},
        engine=engine,
        times=times,
        sinks=sinks,
        on_late=on_late,
        web=web,
        state=state,
        otel=otel,
        calls=calls,
        complete=complete,
        record=record,
        target=target,
    )


def made_run(
    dataflow: Dataflow,
    sources: Mapping[str, Any],
    settings: Mapping[str, Any] = MappingProxyType({}),
    *,
    engine: str | EngineKind = "local",
    **given: Any,
) -> Run:
    """`run` for a built graph, whose FILE:NAME is known, or whose input does not come from sources.

    Args:
        settings: of the engine.
        given: other fields of `RunPlan`, None for their defaults.
    """
    kind = engine if isinstance(engine, EngineKind) else engine_kind(engine)
    of_plan = {name: value for name, value in given.items() if value is not None}
    if "state" in of_plan:
        of_plan["state"] = as_checkpoints(of_plan["state"])
    if of_plan.get("web") is not None or of_plan.get("otel"):
        settings = {**settings, "counted": True}
    return opened_run(RunPlan(dataflow, sources, kind, kind.settings_of(settings), **of_plan))


def _target_of(graph: Graph | Dataflow, dataflow: Dataflow) -> str:
    from drift.records.describe import target_of_graph

    return target_of_graph(graph, dataflow)
