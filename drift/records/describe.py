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
from drift.sources.base import Source
from drift.sources.frames import FrameSource
from drift_graph.functions import line_of, name_of
from drift_graph.graph import Dataflow
from drift_graph.policies import TimePolicy

#: Prefix for a graph made in a notebook, at a prompt, or by `python -c`.
MAIN = "__main__"


def describe(
    dataflow: Dataflow,
    sources: Mapping[str, Source],
    *,
    target: str,
    engine: str,
    settings: Any,
    times: Mapping[str, TimePolicy],
) -> Manifest:
    """The manifest of a run that is about to begin.

    Args:
        settings: of the engine.
        times: policies in place of the graph's.
    """
    return Manifest(
        graph=dataflow.name,
        target=target,
        graph_text=as_text(dataflow),
        graph_mermaid=as_mermaid(dataflow),
        fingerprint=fingerprint(dataflow, times),
        sources=[
            SourceInfo(each.name, sources[each.name].live, _policy(times.get(each.name, each.time), sources[each.name]))
            for each in dataflow.sources
        ],
        sinks=[sink.name for sink in dataflow.sinks],
        engine=engine,
        workers=settings.workers_in_all,
        settings=msgspec.to_builtins(settings, enc_hook=repr),
        algorithm=settings.digest,
    )


def _policy(policy: TimePolicy, source: Source) -> dict[str, Any]:
    if isinstance(source, FrameSource) and source.order_by:
        return {"time": "arrival", "order_by": ", ".join(map(str, source.order_by))}
    if isinstance(source, FrameSource) and source.time is not None:
        return {"time": f"event, by {source.time}"}
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
