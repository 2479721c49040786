"""`drift replay`: a recorded run again, from the command line."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, cast

import click

from drift.cli.interrupt import Noted
from drift.cli.late import LateOutput
from drift.cli.run import Wanted, driven, print_report
from drift.cli.specs import OnExisting, by_name, sink_of, writes_to_stdout
from drift.run import ENGINES
from drift_graph.errors import SettingsError


@click.command("replay", short_help="Run a record's input again.")
@click.argument("path", metavar="RECORD")
@click.option("--graph", metavar="FILE:GRAPH", help="In place of the graph at the place that the record names.")
@click.option("--engine", type=click.Choice(ENGINES), default="local", show_default=True, help="All give one output.")
@click.option("--workers", type=int, default=1, show_default=True, help="Processes that share the keys (zeromq).")
@click.option("--master", metavar="URL", help="Where Spark runs: local[4], spark://HOST:PORT, yarn; else local[*].")
@click.option("--partitions", type=int, help="Tasks that share the keys, and the output (spark).")
@click.option("--gang", is_flag=True, help="Cycles that change keys run on all tasks at once (spark).")
@click.option("--until", type=int, metavar="N", help="End before position N of the output.")
@click.option(
    "--pace", type=click.Choice(["full", "recorded"]), default="full", show_default=True,
    help="recorded: batches come as far apart in time as they did.",
)  # fmt: skip
@click.option(
    "--sink", "sink_specs", multiple=True, metavar="[NAME=]SPEC",
    help="Where a sink's items go: PATH.jsonl; - for standard output; text:- for the bare payloads.",
)  # fmt: skip
@click.option(
    "--on-existing", type=click.Choice(["continue", "replace", "error"]), default="continue", show_default=True,
    help="What to do with a sink's file that is there. continue: compare it line by line and add what is missing.",
)  # fmt: skip
@click.option("--late-output", metavar="PATH", help="JSON lines of the diverted items, with the reason of each.")
@click.option("--batch-items", type=int, help="Larger batches are given in several.")
@click.option("--digest", "print_digest", is_flag=True, help="Print the digest of the output, as the last line.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.option("-q", "--quiet", is_flag=True, help="No progress line, no summary.")
def replay_command(
    path: str,
    graph: str | None,
    engine: str,
    workers: int,
    master: str | None,
    partitions: int | None,
    gang: bool,
    until: int | None,
    pace: str,
    sink_specs: Sequence[str],
    on_existing: str,
    late_output: str | None,
    batch_items: int | None,
    print_digest: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run a record's input again with its own decisions, on any engine: the output is the same.

    The graph is loaded from where it was when it was recorded, and its file runs; where the record is not yours, look
    at that file first, or give --graph.

    \b
    drift replay monday --digest
    drift replay monday --engine zeromq --workers 4 --sink counts=counts.jsonl
    drift replay monday --until 1000 --sink text:-
    """
    from drift.records.reader import Record
    from drift.records.replay import GraphDiffers, Pace, dataflow_of, replay

    record = Record(path)
    dataflow = dataflow_of(record, graph)
    specs = by_name("--sink", sink_specs, "sink", [sink.name for sink in dataflow.sinks])
    wanted = Wanted(as_json, print_digest, quiet, any(map(writes_to_stdout, specs.values())))
    if as_json and wanted.items:
        raise SettingsError("--json has standard output for itself; give the sink a file")
    existing = cast(OnExisting, on_existing)
    sinks = {name: Noted(sink_of(spec, existing)) for name, spec in specs.items()}
    given = {"batch_items": batch_items, "master": master, "partitions": partitions, "gang": gang or None}
    more: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    with LateOutput(late_output, existing) as on_late, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GraphDiffers)
        run = replay(
            record, dataflow, engine=engine, workers=workers, until=until, pace=cast(Pace, pace), sinks=sinks,
            on_late=on_late, **more,
        )  # fmt: skip
        for warning in caught:
            click.echo(f"warning: {warning.message}", err=True)
        report = driven(lambda: run, sinks, wanted)
    print_report(report, wanted, record.manifest.algorithm, late_kept=late_output is not None)
