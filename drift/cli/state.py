"""`drift state`: the checkpoints that a run keeps, from the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import click

from drift.cli.errors import RunEnded, to_json
from drift.cli.options import change_options
from drift.load import load_dataflow
from drift.state.checkpoint import Checkpoint
from drift.state.run_checkpoints import growth_of
from drift.state.segments import position_shown
from drift.state.settings import Checkpoints, read_store
from drift.state.store import Store
from drift_graph.errors import GraphError, SettingsError


@click.group("state", short_help="The checkpoints that a run keeps: list, show, drop, plan.")
def state_group() -> None:
    """The checkpoints of a run with --state, from which it can resume."""


@state_group.command("list")
@click.argument("where", metavar="WHERE")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def list_command(where: str, as_json: bool) -> None:
    """The stored checkpoints, the oldest first: number, when taken, how far, items released."""
    with _opened(where) as (store, checkpoints):
        if as_json:
            click.echo(to_json([_as_object(checkpoint) for checkpoint in checkpoints]))
            return
        for checkpoint in checkpoints:
            items = f"{checkpoint.items_in:,} items in, {checkpoint.output.position:,} out"
            click.echo(f"{checkpoint.number:>6}  {_taken_at(checkpoint)}  {checkpoint.reached}, {items}")
        if not checkpoints:
            click.echo(f"{store.where} has no checkpoints", err=True)


@state_group.command("show")
@click.argument("where", metavar="WHERE")
@click.argument("number", type=int, required=False)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def show_command(where: str, number: int | None, as_json: bool) -> None:
    """One checkpoint, the last if no NUMBER is given: what it is of, and where sources and sinks stood."""
    with _opened(where) as (store, checkpoints):
        checkpoint = _chosen(store.where, checkpoints, number)
        plain = _as_object(checkpoint)
        if as_json:
            click.echo(to_json(plain))
            return
        for name, value in plain.items():
            if isinstance(value, dict):
                for key, each in value.items():
                    click.echo(f"{name} {key!r}: {each}")
            else:
                click.echo(f"{name}: {value}")


@state_group.command("drop")
@click.argument("where", metavar="WHERE")
@click.argument("number", type=int)
def drop_command(where: str, number: int) -> None:
    """Drop a checkpoint. If it is the last one, the run resumes from the one before."""
    with _opened(where, writes=True) as (store, checkpoints):
        _chosen(store.where, checkpoints, number)
        if len(checkpoints) == 1:
            raise SettingsError(f"checkpoint {number} is the only one in {store.where}; to start anew, name another")
        store.drop(number)
        click.echo(f"dropped checkpoint {number}", err=True)


@state_group.command("plan", short_help="What a resume with a graph would do with each step.")
@click.argument("graph", metavar="FILE:GRAPH")
@click.argument("where", metavar="WHERE")
@click.option("--from-checkpoint", type=int, metavar="N", help="As of drift run.")
@change_options
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def plan_command(
    graph: str,
    where: str,
    from_checkpoint: int | None,
    changes: dict[str, Any],
    as_json: bool,
) -> None:
    """Say what would become of each step if a run with this graph resumed from the state in WHERE; nothing is changed.

    A step is kept with its states, new and empty, dropped (with state, or a sink), or gone. Where the resume would be
    refused it ends as the run would, with its error and exit code.

    \b
    drift state plan flights.py:graph folder
    drift state plan flights.py:graph folder --accept-changed-graph --drop-step delays
    """
    dataflow = load_dataflow(graph)
    checkpoints = Checkpoints(where, from_checkpoint=from_checkpoint, away_max_s=0, **changes)
    with read_store(checkpoints) as store:
        divided = growth_of(store, checkpoints, dataflow, {}, fused=True)
    if divided is None:
        raise SettingsError(f"{store.where} has no checkpoints: a run begins")
    growth = divided.whole
    number, reached = growth.checkpoint.number, growth.checkpoint.reached
    steps = [fate._asdict() for fate in growth.fates]
    plan = {"checkpoint": number, "reached": reached, "changed": growth.is_changed, "steps": steps}
    if not as_json:
        click.echo(f"from checkpoint {number} at {reached}:")
        for fate in growth.fates:
            told = "; ".join(filter(None, (fate.note, fate.refused and f"REFUSED: {fate.refused}")))
            click.echo(f"{fate.what:<8} {fate.step!r}{f': {told}' if told else ''}")
    try:
        growth.check(growth.checkpoint.output.algorithm, store.where)
    except GraphError as error:
        raise RunEnded(error, plan) from error
    if as_json:
        click.echo(to_json(plan))


@contextmanager
def _opened(where: str, *, writes: bool = False) -> Iterator[tuple[Store, list[Checkpoint]]]:
    with read_store(Checkpoints(where, away_max_s=0)) as store:
        if writes:
            store.open()
        yield store, store.checkpoints()


def _chosen(where: str, checkpoints: list[Checkpoint], number: int | None) -> Checkpoint:
    found = [checkpoint for checkpoint in checkpoints if number in (None, checkpoint.number)]
    if not found:
        if not checkpoints:
            raise SettingsError(f"{where} has no checkpoints")
        raise SettingsError(
            f"{where} has no checkpoint {number}; it has "
            f"{', '.join(str(checkpoint.number) for checkpoint in checkpoints)}"
        )
    return found[-1]


def _taken_at(checkpoint: Checkpoint) -> str:
    return datetime.fromtimestamp(checkpoint.taken_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _as_object(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "checkpoint": checkpoint.number,
        "graph": checkpoint.graph["name"],
        "taken": _taken_at(checkpoint),
        "reached": checkpoint.reached,
        "items_in": checkpoint.items_in,
        "items_out": checkpoint.output.position,
        "keys_changed": checkpoint.keys,
        "steps": dict(checkpoint.steps),
        "sources": position_shown(checkpoint.sources),
        "sinks": dict(checkpoint.sinks),
    }
