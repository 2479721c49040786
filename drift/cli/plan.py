"""`drift plan`: which steps to make durable, and how often to take checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from drift.cli.completion import complete_graph
from drift.cli.errors import to_json
from drift.cli.options import json_option, time_options
from drift.cli.run import sources_of
from drift.cli.specs import TimeOptions, policies
from drift.load import absolute_target, load_dataflow
from drift_graph.errors import SettingsError
from drift_graph.moments import span_from


@click.command("plan", short_help="Which steps to make durable, for a time to recover.")
@click.argument("graph", metavar="FILE:GRAPH", shell_complete=complete_graph)
@click.option(
    "--source", "source_specs", multiple=True, metavar="[NAME=]SPEC", help="A sample of the input; as of drift run."
)
@click.option("--recover-within", metavar="TIME", default="5s", show_default=True, help="After everything died.")
@click.option(
    "--items", type=click.IntRange(1), default=100_000, show_default=True, help="Input items of a sample run."
)
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), help="Input items in a second.  [default: as many as can]"
)
@click.option("--state", metavar="FOLDER", help="Measure the disk of this folder, in which the state will be.")
@click.option("--at-once", is_flag=True, help="Segments have processors of their own, and recover at once.")
@click.option("--price-cpu", type=float, default=0.05, show_default=True, help="Of an hour of a processor.")
@click.option("--price-written", type=float, default=0.005, show_default=True, help="Of a GB that is written.")
@click.option("--price-stored", type=float, default=0.1, show_default=True, help="Of a GB that is stored for a month.")
@time_options
@json_option
def plan_command(
    graph: str,
    source_specs: Sequence[str],
    recover_within: str,
    items: int,
    rate: float | None,
    state: str | None,
    at_once: bool,
    price_cpu: float,
    price_written: float,
    price_stored: float,
    times: TimeOptions,
    as_json: bool,
) -> None:
    """Measure a graph on a sample of its input, and say with which durable steps, and how often a checkpoint in each
    segment, a run on this machine recovers in time at the least cost.

    The sample is run twice, without durable steps and with all, in one process, without sinks; calls are asked of their
    stubs. What recovers is a run whose processes have all died, until its output is where it was; the longest time is
    that just before a checkpoint, in all segments.

    \b
    drift plan flights.py:graph --source flights.csv --event-time minute --recover-within 5s
    drift plan flights.py:graph --source flights.csv --recover-within 1s --rate 2000 --price-cpu 0.2
    """
    from drift.planning.model import Prices
    from drift.planning.sample import Sampling, measured_model, start_of

    within_s = _seconds(recover_within)
    dataflow = load_dataflow(graph)
    where = Path(state) if state is not None else None
    if where is not None:
        where.mkdir(parents=True, exist_ok=True)
    sampling = Sampling(
        lambda: sources_of(dataflow, source_specs, as_frames=False, quiet=True),
        policies(dataflow, times),
        items,
        where,
        start_s=start_of(absolute_target(graph)),
    )
    prices = Prices(price_cpu, price_written, price_stored)
    model = measured_model(dataflow, sampling, rate=rate, prices=prices, at_once=at_once)
    chosen = model.least_cost(within_s)
    rows = {"the choice": chosen, "no step durable": model.least((), within_s)}
    rows["every step durable"] = model.least(tuple(model.exits), within_s)
    if as_json:
        plain: dict[str, Any] = {
            "graph": dataflow.name,
            "within_s": within_s,
            "rate": model.rate,
            "choices": {name: choice and choice._asdict() for name, choice in rows.items()},
            "store": model.store._asdict(),
        }
        click.echo(to_json(plain))
        return
    click.echo(f"at {model.rate:,.0f} items a second, a start takes {model.store.start_s:.2f} s")
    click.echo(f"{'':20} {'cost of 10^9':>16} {'cpu %':>7} {'written MB/s':>13} {'stored MB':>10} {'recovers s':>11}"
               f" {'longest':>8}  every s")  # fmt: skip
    for name, choice in rows.items():
        if choice is None:
            click.echo(f"{name:20} cannot recover within {within_s:g} s")
            continue
        intervals = ", ".join(f"{each:g}" for each in choice.intervals_s)
        click.echo(
            f"{name:20} {choice.cost:>16.3f} {choice.cpu * 100:>7.2f} {choice.written_bytes / 1e6:>13.3f} "
            f"{choice.stored_bytes / 1e6:>10.1f} {choice.mean_s:>11.2f} {choice.longest_s:>8.2f}  {intervals}"
        )
    if chosen.cheaper_by:
        click.echo(f"not all choices were looked at; another may cost {chosen.cheaper_by:.3f} less")
    click.echo("")
    for step in chosen.durable:
        where_declared = next(each.where for each in dataflow.operators if each.step == step)
        click.echo(f"durable=True in step {step!r} ({where_declared})")
    every = list(chosen.intervals_s) if len(set(chosen.intervals_s)) > 1 else chosen.intervals_s[0]
    click.echo(f"state=drift.Checkpoints(FOLDER, every_s={every})" + ("" if chosen.durable else ", no step durable"))


def _seconds(text: str) -> float:
    milliseconds = span_from(text) if not text.isdecimal() else int(text) * 1000
    if milliseconds is None or milliseconds <= 0:
        raise SettingsError(f"--recover-within {text!r} is no time to recover in; give one such as 5s")
    return milliseconds / 1000
