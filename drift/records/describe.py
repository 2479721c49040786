"""The part of a manifest that is known before the run begins."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from drift.records.fingerprint import fingerprint
from drift.records.format import Manifest, SourceInfo
from drift.show import as_mermaid, as_text
from drift.sources.frames import FrameSource
from drift_barrier.digest import Algorithm
from drift_graph.functions import line_of, name_of
from drift_graph.graph import Dataflow
from drift_graph.policies import TimePolicy

#: Prefix for a graph made in a notebook, at a prompt, or by `python -c`.
MAIN = "__main__"


def describe(
    dataflow: Dataflow,
    *,
    target: str,
    engine: str,
    workers: int,
    settings: Any,
    algorithm: Algorithm,
    times: Mapping[str, TimePolicy],
    live: Mapping[str, bool],
    frames: Mapping[str, FrameSource],
) -> Manifest:
    """The manifest of a run that is about to begin.

    Args:
        times: policies in place of the graph's.
        live: for each source, whether it is live.
        frames: sources that are DataFrames.
    """
    return Manifest(
        graph=dataflow.name,
        target=target,
        graph_text=as_text(dataflow),
        graph_mermaid=as_mermaid(dataflow),
        fingerprint=fingerprint(dataflow, times),
        sources=[
            SourceInfo(
                source.name,
                live[source.name],
                _policy(times.get(source.name, source.time), frames.get(source.name)),
            )
            for source in dataflow.sources
        ],
        sinks=[sink.name for sink in dataflow.sinks],
        engine=engine,
        workers=workers,
        settings=msgspec.to_builtins(settings, enc_hook=repr),
        algorithm=algorithm,
    )


def _policy(policy: TimePolicy, frame: FrameSource | None) -> dict[str, Any]:
    if frame is not None and frame.order_by:
        return {"time": "arrival", "order_by": ", ".join(map(str, frame.order_by))}
    if frame is not None and frame.time is not None:
        return {"time": f"event, by {frame.time}"}
    texts = {role: _function_text(function) for role, function in policy.functions.items()}
    return policy.recorded(texts)


def _function_text(function: Any) -> str:
    location = line_of(function)
    return f"{name_of(function)} ({location})" if location else name_of(function)


def target_of_graph(graph: Any, dataflow: Dataflow) -> str:
    """ "file.py:name" of a graph that is a global of a loaded module; "" if there is none.

    In a notebook, where the main module has no file, it is "__main__:name". Modules whose files declare its steps are
    searched first, since others may have imported the graph.
    """
    files = {operator.where.rpartition(":")[0] for operator in dataflow.operators}
    modules = [module for module in list(sys.modules.values()) if getattr(module, "__file__", None)]
    for module in sorted(modules, key=lambda module: module.__file__ not in files):
        for name, value in list(vars(module).items()):
            if value is graph and module.__file__ is not None:
                return f"{Path(module.__file__).resolve()}:{name}"
    main = sys.modules["__main__"]
    if getattr(main, "__file__", None) is None:
        for name, value in list(vars(main).items()):
            if value is graph and not name.startswith("_"):  # a notebook binds its last results to _, __ and _3
                return f"{MAIN}:{name}"
    return ""
