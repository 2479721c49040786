"""`drift state`: the cuts that a run keeps, from the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import click

from drift.cli.errors import to_json
from drift.state.cut import Cut
from drift.state.run_cuts import Cuts, store_of
from drift.state.store import Store
from drift_graph.errors import SettingsError


@click.group("state", short_help="The cuts that a run keeps: list, show, drop.")
def state_group() -> None:
    """The cuts of a run with --state, from which it can resume."""


@state_group.command("list")
@click.argument("where", metavar="WHERE")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def list_command(where: str, as_json: bool) -> None:
    """The stored cuts, the oldest first: number, when taken, how far, items released."""
    with _opened(where) as (store, cuts):
        if as_json:
            click.echo(to_json([_as_object(cut) for cut in cuts]))
            return
        for cut in cuts:
            items = f"{cut.items_in:,} items in, {cut.output.position:,} out"
            click.echo(f"{cut.number:>6}  {_taken_at(cut)}  {cut.reached}, {items}")
        if not cuts:
            click.echo(f"{store.where} has no cuts", err=True)


@state_group.command("show")
@click.argument("where", metavar="WHERE")
@click.argument("number", type=int, required=False)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def show_command(where: str, number: int | None, as_json: bool) -> None:
    """One cut, the last if no NUMBER is given: what it is of, and where sources and sinks stood."""
    with _opened(where) as (store, cuts):
        cut = _chosen(store.where, cuts, number)
        plain = _as_object(cut)
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
    """Drop a cut. If it is the last one, the run resumes from the one before."""
    with _opened(where, writes=True) as (store, cuts):
        _chosen(store.where, cuts, number)
        if len(cuts) == 1:
            raise SettingsError(f"cut {number} is the only one in {store.where}; to start anew, name another")
        store.drop(number)
        click.echo(f"dropped cut {number}", err=True)


@contextmanager
def _opened(where: str, *, writes: bool = False) -> Iterator[tuple[Store, list[Cut]]]:
    store = store_of(Cuts(where, away_max_s=0))
    store.open_to_read()
    if writes:
        store.open()
    try:
        yield store, store.cuts()
    finally:
        store.close()


def _chosen(where: str, cuts: list[Cut], number: int | None) -> Cut:
    found = [cut for cut in cuts if number in (None, cut.number)]
    if not found:
        if not cuts:
            raise SettingsError(f"{where} has no cuts")
        raise SettingsError(f"{where} has no cut {number}; it has {', '.join(str(cut.number) for cut in cuts)}")
    return found[-1]


def _taken_at(cut: Cut) -> str:
    return datetime.fromtimestamp(cut.taken_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _as_object(cut: Cut) -> dict[str, Any]:
    return {
        "cut": cut.number,
        "graph": cut.graph["name"],
        "taken": _taken_at(cut),
        "reached": cut.reached,
        "items_in": cut.items_in,
        "items_out": cut.output.position,
        "keys_changed": cut.keys,
        "steps": dict(cut.steps),
        "sources": dict(cut.sources),
        "sinks": dict(cut.sinks),
    }
