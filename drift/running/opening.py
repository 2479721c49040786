"""Opening a run: from a plan, which is values, to what the run has open.

Invariant: a run has everything that it needs, or nothing is left open; and no error shows a secret of the plan.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from drift.all_engines import engine_kinds
from drift.calling.asks import as_asked, calls_of
from drift.engines.base import Asks, Engine
from drift.engines.feed import Feed, taker_of_late
from drift.engines.over import refuse_once_only
from drift.engines.settings import Settings
from drift.engines.source_feed import SourceFeed
from drift.extras import need
from drift.guarantees import guarantee
from drift.machines.worker import Snapshot
from drift.running.checks import check_complete, check_files, check_named, check_state
from drift.running.plan import Opened, RunPlan
from drift.running.runs import Run
from drift.running.sinks import Sinks
from drift.segments.answers import AnswersOfRun, missing_answer
from drift.segments.chain import Chain
from drift.sources.arguments import as_sources
from drift.sources.base import Source
from drift.state.checkpoint import Checkpoint
from drift.state.growth import Growth
from drift.state.run_checkpoints import RunCheckpoints, TakesCheckpoints, found_before
from drift.state.settings import Checkpoints, check_logs
from drift.urls import cleaned_of, without_secrets
from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow
from drift_graph.lateness import Late
from drift_graph.policies import TimePolicy

if TYPE_CHECKING:
    from drift.purity import PurityCheck
    from drift.records.recorder import Recorder


def opened_run(plan: RunPlan) -> Run:
    """The run of a plan, ready to begin."""
    try:
        with ExitStack() as closing:
            run = Run(*_opened(plan, closing))
            run._show(plan.web, plan.otel)
            closing.pop_all()  # it is the run that closes from here on
            return run
    except BaseException as error:
        cleaned_of(error, plan.secrets)
        raise


def _opened(plan: RunPlan, closing: ExitStack) -> tuple[RunPlan, Opened]:
    """The plan with the graph that runs, and what it names, open; `closing` gets what is to be closed if no run is made
    of it.
    """
    settings, state, times, is_over, since = plan.settings, plan.state, plan.times, False, 0
    if state is not None:
        dataflow, is_over, since = found_before(plan.dataflow, state, times, fused=settings.fused)
        plan = replace(plan, dataflow=dataflow)
    check_named(plan.dataflow, plan.sources if plan.feed is None else None, times, plan.sinks)
    check_files(plan.sources if plan.feed is None else {}, plan.sinks)
    late: list[Late] = []
    take_late = taker_of_late(plan.on_late, late.append)
    if state is not None:
        check_state(plan.record, plan.until)
        check_logs(state)
    check_complete(plan.complete, state, plan.engine)
    began_s = time.perf_counter()
    sinks = Sinks(plan.sinks)
    sources = as_sources(plan.sources)
    watched, purity = as_asked(plan.dataflow, plan.calls), None
    if settings.check_purity:
        purity = _purity_check(watched, plan)
        closing.callback(purity.close)
        watched, times = purity.dataflow, purity.times
    recorder = _recorder(plan, sources) if plan.record is not None else None
    promised = None
    if plan.feed is not None:
        feed = plan.feed(take_late, settings.items_at_once)
    else:
        if state is not None and is_over:
            refuse_once_only(sources, without_secrets(os.fspath(state.where)))
        asking = [*calls_of(plan.dataflow)] if plan.calls != "replay" else []
        policies = plan.policies
        of_sources = {name: (source, policies[name]) for name, source in sources.items()}
        promised = guarantee(of_sources, sinks.by_name, with_state=state is not None, calls=asking)
        feed = SourceFeed(
            watched,
            sources,
            times,
            settings,
            on_late=take_late,
            recorder=recorder,
            state=state,
            complete=plan.complete,
        )
    try:
        engine = _engine(plan, watched, feed, recorder, since)
    except BaseException:
        feed.close()
        raise
    closing.callback(engine.close)
    run_checkpoints = None
    if state is not None:
        sinks.close(closing)
        run_checkpoints = _run_checkpoints(plan, state, engine, feed, sinks)
        closing.callback(run_checkpoints.close)
    return plan, Opened(sinks, feed, engine, late, promised, purity, recorder, run_checkpoints, began_s)


def _recorder(plan: RunPlan, sources: Mapping[str, Source]) -> Recorder:
    need("records", "a record")
    from drift.records.describe import describe
    from drift.records.recorder import Recorder, as_recording

    manifest = describe(
        plan.dataflow,
        sources,
        target=plan.target,
        engine=plan.engine.name,
        settings=plan.settings,
        times=plan.times,
    )
    return Recorder(as_recording(plan.record), manifest)


def _engine(plan: RunPlan, dataflow: Dataflow, feed: Feed, recorder: Recorder | None, since: int) -> Engine:
    """The engine; for a graph with calls, or with durable steps and a run with state, one for each segment.

    Args:
        since: see `drift.state.segments.checkpoints_of`.
    """
    answers = plan.answered or AnswersOfRun(missing=missing_answer if plan.calls == "replay" else None)
    if recorder is not None:
        answers = replace(answers, on_passed=recorder.answered)
    kind, settings = plan.engine, plan.settings
    state = plan.state if kind.stores_state else None
    has_calls = bool(calls_of(dataflow))
    asks_itself = kind.asks_itself and state is None and answers.recorded is None and answers.missing is None
    if (has_calls and not asks_itself) or (state is not None and any(each.durable for each in dataflow.operators)):
        return Chain(kind, dataflow, feed, settings, state, answers, since)
    engine = kind.make(dataflow, feed, settings)
    if has_calls and isinstance(engine, Asks):
        engine.on_answers = answers.on_passed
    return engine


def _run_checkpoints(plan: RunPlan, state: Checkpoints, engine: Engine, feed: Feed, sinks: Sinks) -> RunCheckpoints:
    """The object that takes the run's checkpoints; engine, sources and sinks are set to the last one."""
    dataflow, times, settings = plan.dataflow, plan.times, plan.settings
    if isinstance(engine, Chain):
        return engine.run_checkpoints(dataflow, times, sinks.by_name, settings)
    if not isinstance(engine, TakesCheckpoints):
        those = " or ".join(repr(kind.name) for kind in engine_kinds() if kind.stores_state)
        raise SettingsError(f"engine {plan.engine.name!r} takes no checkpoints; leave out state=, or use {those}")
    run_checkpoints = RunCheckpoints(state, dataflow, times, fused=settings.fused, algorithm=settings.digest)
    try:
        run_checkpoints.refuse_more(feed)
        run_checkpoints.open_sinks(sinks.by_name)
        run_checkpoints.begin(engine, feed, sinks.by_name, partial(_filled, state.backfill, times, settings))
    except BaseException:
        run_checkpoints.close()
        raise
    return run_checkpoints


def _filled(
    backfill: Any, times: Mapping[str, TimePolicy], settings: Settings, growth: Growth, checkpoint: Checkpoint
) -> Snapshot:
    from drift.running.backfill import filled

    return filled(growth, checkpoint, backfill, times, settings)


def _purity_check(dataflow: Dataflow, plan: RunPlan) -> PurityCheck:
    from drift.purity import PurityCheck

    first, every = plan.settings.purity_first, plan.settings.purity_every
    return PurityCheck(dataflow, plan.times, first=first, every=every, at_once=True)
