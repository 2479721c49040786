"""`drift replay`: a recorded run again, from the command line."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import click

from drift.cli.late import LateOutput
from drift.cli.options import Output, engine_options, graph_option, only_set, output_options, print_options
from drift.cli.run import are_late_in_sinks, driven, print_report
from drift.extras import need
from drift.running.checks import check_files

if TYPE_CHECKING:
    from drift.auditing.replay import Pace


@click.command("replay", short_help="Run a record's input again.")
@click.argument("path", metavar="RECORD")
@graph_option
@engine_options
@click.option("--until", type=int, metavar="N", help="End before position N of the output.")
@click.option(
    "--pace", type=click.Choice(["full", "recorded"]), default="full", show_default=True,
    help="recorded: batches come as far apart in time as they did.",
)  # fmt: skip
@output_options
@click.option("--batch-items", type=int, help="Larger batches are split.")
@print_options
def replay_command(
    path: str,
    graph: str | None,
    settings: dict[str, Any],
    until: int | None,
    pace: Pace,
    output: Output,
    batch_items: int | None,
) -> None:
    """Run a record's input again with its own decisions, on any engine: the output is the same.

    The graph is loaded from where it was when it was recorded, and its file runs; where the record is not yours, look
    at that file first, or give --graph.

    \b
    drift replay monday --digest
    drift replay monday --engine zeromq --workers 4 --sink counts=counts.jsonl
    drift replay monday --until 1000 --sink text:-
    """
    need("records", "drift replay")
    from drift.auditing.replay import GraphDiffers, dataflow_of, replay
    from drift.records.reader import Record

    record = Record(path)
    dataflow = dataflow_of(record, graph)
    sinks, printed = output.sinks_for(dataflow)
    check_files({}, sinks, output.late_output)
    more = {**settings, **only_set({"batch_items": batch_items})}
    with (
        LateOutput(output.late_output, output.on_existing) as on_late,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always", GraphDiffers)
        run = replay(record, dataflow, until=until, pace=pace, sinks=sinks, on_late=on_late, **more)
        for warning in caught:
            click.echo(f"warning: {warning.message}", err=True)
        report = driven(lambda: run, sinks, printed)
    written = output.late_output is not None or are_late_in_sinks(report, dataflow)
    print_report(report, printed, record.manifest.algorithm, late_written=written)
