"""`drift check`: whether a graph, its sources and its sinks fit, and what a run promises, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from drift.calling.asks import calls_of
from drift.cli.errors import to_json
from drift.cli.specs import by_name, sink_of, source_of
from drift.guarantees import SinkGuarantee, SourceGuarantee, guarantee
from drift.load import load_dataflow
from drift.sinks.base import Comparing, check_kind
from drift.state.checkpoint import Checkpoint
from drift.state.run_checkpoints import growth_of
from drift.state.settings import Checkpoints, read_store
from drift.urls import without_secrets
from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow


@click.command("check", short_help="Check a graph, and say what a run guarantees.")
@click.argument("graph", metavar="FILE:GRAPH")
@click.option("--source", "source_specs", multiple=True, metavar="[NAME=]SPEC", help="As of drift run.")
@click.option("--sink", "sink_specs", multiple=True, metavar="[NAME=]SPEC", help="As of drift run.")
@click.option(
    "--state",
    is_flag=False,
    flag_value="",
    metavar="[WHERE]",
    help="For a run that keeps its state, and from which checkpoint there it would resume.",
)
@click.option(
    "--outputs",
    is_flag=True,
    help="Read all that the sinks have stored below that checkpoint, and compare it: files and tables.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check_command(
    graph: str, source_specs: Sequence[str], sink_specs: Sequence[str], state: str | None, outputs: bool, as_json: bool
) -> None:
    """Check a graph without running it, and say what its sources and sinks guarantee for a run that is aborted.

    \b
    drift check wordcount.py:graph
    drift check wordcount.py:graph --source hamlet.txt --sink counts.jsonl
    drift check flights.py:graph --source tcp://127.0.0.1:7000 --sink text:- --state
    drift check flights.py:graph --state folder
    drift check flights.py:graph --state folder --sink out.jsonl --outputs
    """
    if outputs and not (state and sink_specs):
        raise SettingsError("--outputs compares what --sink names with a checkpoint in --state WHERE; give both")
    dataflow = load_dataflow(graph)
    specs = by_name("--source", source_specs, "source", [source.name for source in dataflow.sources])
    opened = {name: source_of(spec, name) for name, spec in specs.items()}
    try:
        kinds = by_name("--sink", sink_specs, "sink", [sink.name for sink in dataflow.sinks])
        sinks = {name: sink_of(spec, "continue", name) for name, spec in kinds.items()}
        policies = {source.name: source.time for source in dataflow.sources}
        sources = {name: (source, policies[name]) for name, source in opened.items()}
        guaranteed = guarantee(sources, sinks, with_state=state is not None, calls=[*calls_of(dataflow)])
    finally:
        for source in opened.values():
            if hasattr(source, "close"):  # it listens
                source.close()
    lines = [f"source {name!r}: {_of_source(source)}" for name, source in opened.items()]
    lines += [f"sink {name!r}: {_of_sink(sink)}" for name, sink in sinks.items()]
    checkpoint = _checkpoint_to_resume_from(dataflow, state) if state else None
    if outputs and checkpoint is not None:
        lines += [f"sink {name!r}: {_compared(name, sink, checkpoint)}" for name, sink in sinks.items()]
    if as_json:
        plain: dict[str, object] = {"graph": dataflow.name, **guaranteed._asdict()}
        plain["guarantee"] = plain.pop("level")
        plain |= {"sources_and_sinks": lines}
        if state:
            plain["resumes_from"] = checkpoint and {
                "checkpoint": checkpoint.number,
                "reached": checkpoint.reached,
                "position": checkpoint.output.position,
            }
        click.echo(to_json(plain))
        return
    click.echo(f"graph {dataflow.name!r} is sound")
    for line in lines:
        click.echo(line)
    if opened or sinks:
        click.echo(f"guarantee of a run{' with --state' if state is not None else ''}: {guaranteed}")
    if checkpoint is not None:
        click.echo(
            f"it resumes from checkpoint {checkpoint.number} at {checkpoint.reached}, position "
            f"{checkpoint.output.position:,}"
        )
    elif state:
        click.echo(f"{without_secrets(state)} has no checkpoint: a run starts from the beginning")


def _compared(name: str, sink: object, checkpoint: Checkpoint) -> str:
    """What was compared of a sink. Raises SinkError: it is not as it was."""
    if name not in checkpoint.sinks:
        raise SettingsError(
            f"checkpoint {checkpoint.number} knows nothing of sink {name!r}: it was not written to, or prints"
        )
    if not isinstance(sink, Comparing):
        return "cannot be compared: checkpoints have hashes of files and tables only"
    check_kind(name, sink, checkpoint.kinds.get(name))
    return sink.compare(checkpoint.sinks[name])


def _checkpoint_to_resume_from(dataflow: Dataflow, where: str) -> Checkpoint | None:
    """The newest checkpoint in the store `where`; with durable steps, that of the last segment.

    Raises:
        GraphError: this graph cannot resume from it.
    """
    if "://" not in where and not Path(where.removeprefix("files:")).exists():
        return None
    checkpoints = Checkpoints(where, away_max_s=0)
    with read_store(checkpoints) as store:
        divided = growth_of(store, checkpoints, dataflow, {}, fused=True)
    if divided is None:
        return None
    divided.whole.check(divided.whole.checkpoint.output.algorithm, store.where)
    return divided.whole.checkpoint


def _of_source(source: object) -> str:
    stated = getattr(source, "guarantee", None)
    return f"read again {stated.rereads}: {stated.because}" if isinstance(stated, SourceGuarantee) else "says nothing"


def _of_sink(sink: object) -> str:
    stated = getattr(sink, "guarantee", None)
    return f"{stated.delivers}: {stated.because}" if isinstance(stated, SinkGuarantee) else "says nothing"
