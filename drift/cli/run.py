"""`drift run`: a graph, its inputs and an engine, from the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from shlex import quote
from typing import Any, Literal

import click

from drift.all_engines import engine_kind
from drift.cli.completion import complete_graph
from drift.cli.errors import Interrupted, RunEnded, to_json
from drift.cli.interrupt import Interrupts
from drift.cli.late import LateOutput
from drift.cli.options import (
    Output,
    Printed,
    change_options,
    engine_options,
    only_set,
    output_options,
    print_options,
    time_options,
)
from drift.cli.progress import ProgressOfRun, live_line
from drift.cli.specs import TimeOptions, by_name, policies, source_of
from drift.diverting import late_sinks
from drift.load import absolute_target, load_dataflow
from drift.running import Report, Run, made_run
from drift.running.checks import check_files
from drift.sinks.base import Sink
from drift.state.settings import Checkpoints
from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow

_JSON_FIELDS = (
    "graph", "engine", "workers", "digest", "items_in", "items_out", "tombstones", "late_items", "seconds",
    "items_per_second", "peak_memory_bytes", "refused_frames", "guarantee",
    "died", "recoveries", "fed_again", "recovering_s", "sinks", "held",
)  # fmt: skip


def _seconds(context: click.Context, option: click.Parameter, text: str | None) -> float | list[float] | None:
    if text is None:
        return None
    try:
        each = [float(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"{text!r} is no number of seconds, and no list such as 0.1,5") from None
    return each[0] if len(each) == 1 else each


@click.command("run", short_help="Run a graph.")
@click.argument("graph", metavar="FILE:GRAPH", shell_complete=complete_graph)
@click.option(
    "--source", "source_specs", multiple=True, metavar="[NAME=]SPEC",
    help="Where a source's items come from: PATH.txt, .log, .jsonl or .csv, also .gz; PATH.parquet; a pattern, "
    "'logs/*.txt'; text:PATH, jsonl:PATH, csv:PATH, parquet:PATH, hive:PATH, also of a folder; delta:PATH; - for the "
    "lines of standard input; tcp://HOST:PORT (listens for lines); zmq:ADDRESS; kafka://HOST:PORT#TOPIC; "
    "redis://HOST/DB#STREAM.",
)  # fmt: skip
@output_options
@engine_options
@time_options
@click.option("--batch-items", type=int, help="Most items read from a source at once.")
@click.option("--in-flight-max", type=int, help="Most unsettled items of a source.")
@click.option(
    "--check-purity",
    is_flag=True,
    help="Call steps again in another process, some calls of each, and stop where the results differ.",
)
@click.option(
    "--digest-algorithm", type=click.Choice(["xxh3_128", "sha256"]), default="xxh3_128", show_default=True,
    help="sha256 also withstands forgery.",
)  # fmt: skip
@click.option("--record", metavar="PATH", help="A new folder for a record of the run: see drift replay, drift audit.")
@click.option("--state", metavar="WHERE", help="Store the run's state there; the same command resumes from it.")
@click.option(
    "--state-logs", metavar="FOLDER", help="For logs of sources that cannot be read again.  [default: with the state]"
)
@click.option(
    "--checkpoint-every",
    metavar="SECONDS[,...]",
    callback=_seconds,
    help="How often a checkpoint is taken; with durable steps also of each segment, 0.1,5.  [default: 1]",
)
@click.option(
    "--keep-checkpoints", metavar="N", type=int, help="Checkpoints to retain; older ones are merged.  [default: 3]"
)
@click.option(
    "--from-checkpoint",
    metavar="N",
    type=int,
    help="Resume from this one of the checkpoints that drift state list shows.",
)
@click.option(
    "--incomplete", is_flag=True,
    help="Input that ends has more at a later call with this --state: pause there, and leave windows open.",
)  # fmt: skip
@change_options
@click.option(
    "--calls", type=click.Choice(["ask", "replay", "stub"]), default="ask", show_default=True,
    help="replay: take answers that are in the state, and ask nothing; stub: ask the graph's stubs.",
)  # fmt: skip
@click.option("--web", metavar="[HOST:]PORT", help="A page of the run while it runs; 0 is any port that is free.")
@click.option("--otel", is_flag=True, help="Give OpenTelemetry a span of the run and its counters.")
@print_options
def run_command(
    graph: str,
    source_specs: Sequence[str],
    output: Output,
    settings: dict[str, Any],
    digest_algorithm: str,
    record: str | None,
    batch_items: int | None,
    in_flight_max: int | None,
    check_purity: bool,
    web: str | None,
    state: str | None,
    state_logs: str | None,
    checkpoint_every: float | Sequence[float] | None,
    keep_checkpoints: int | None,
    from_checkpoint: int | None,
    incomplete: bool,
    changes: dict[str, Any],
    otel: bool,
    calls: Literal["ask", "replay", "stub"],
    times: TimeOptions,
) -> None:
    """Run the graph of a Python file (FILE:GRAPH) or module (package.module:GRAPH).

    GRAPH is a drift.Graph, a drift.Dataflow, or a function without arguments that returns one. NAME= may be left out
    where the graph has one source, or one sink.

    \b
    drift run wordcount.py:graph --source hamlet.txt.gz --digest
    drift run wordcount.py:graph --source lines=hamlet.txt --sink counts=counts.jsonl
    drift run wordcount.py:graph --source - --sink text:- < hamlet.txt | tail
    drift run flights.py:graph --source flights.csv --event-time minute --lateness 1440 --json
    drift run flights.py:graph --source flights.csv --record monday
    drift run flights.py:graph --source flights=tcp://127.0.0.1:7000 --engine zeromq --workers 4
    drift run flights.py:graph --source flights.csv --sink delays.jsonl --state redis://localhost:6379/0#delays
    """
    dataflow = load_dataflow(graph)
    sinks, printed = output.sinks_for(dataflow)
    engine = settings.pop("engine")
    settings |= {"digest": digest_algorithm, "check_purity": check_purity}
    settings |= only_set({"batch_items": batch_items, "in_flight_max": in_flight_max})
    arguments: dict[str, Any] = {
        "engine": engine,
        "times": policies(dataflow, times),
        "sinks": sinks,
        "record": record,
        "web": web,
        "state": _checkpoints(
            state,
            every_s=checkpoint_every,
            keep=keep_checkpoints,
            from_checkpoint=from_checkpoint,
            logs=state_logs,
            **changes,
        ),
        "otel": otel,
        "calls": calls,
        "complete": not incomplete,
        "target": absolute_target(graph),
    }
    as_frames = engine_kind(engine).reads_frames
    sources = sources_of(dataflow, source_specs, as_frames=as_frames, quiet=output.quiet or output.as_json)
    check_files(sources, sinks, output.late_output)
    with LateOutput(output.late_output, output.on_existing) as on_late:
        report = driven(lambda: made_run(dataflow, sources, settings, on_late=on_late, **arguments), sinks, printed)
    written = bool(output.late_output or record or are_late_in_sinks(report, dataflow))
    print_report(report, printed, digest_algorithm, late_written=written)


def are_late_in_sinks(report: Report, dataflow: Dataflow) -> bool:
    """Whether all late items of a run went to sinks of their own."""
    return report.late_items == sum(report.sinks.get(each, 0) for each in late_sinks(dataflow))


def _checkpoints(where: str | None, **settings: Any) -> Checkpoints | None:
    explicit = only_set(settings)
    if where is None:
        if explicit:
            raise SettingsError("checkpoints have to be stored: add --state with a folder, or the URL of a server")
        return None
    return Checkpoints(where, **explicit)


def sources_of(dataflow: Dataflow, specs: Sequence[str], *, as_frames: bool, quiet: bool) -> dict[str, Any]:
    names = [source.name for source in dataflow.sources]
    spec_by_name = by_name("--source", specs, "source", names)
    missing = [name for name in names if name not in spec_by_name]
    if missing:
        raise SettingsError(f"no input for source {missing[0]!r}; add --source {quote(missing[0])}=PATH")
    sources = {name: source_of(spec, name, as_frames=as_frames) for name, spec in spec_by_name.items()}
    for name, source in sources.items():
        address = getattr(source, "address", None)
        if address is not None and not quiet:
            shown = address if isinstance(address, str) else ":".join(map(str, address))
            click.echo(f"source {name!r} listens at {shown}", err=True)
    return sources


def driven(make: Callable[[], Run], sinks: Mapping[str, Sink], printed: Printed) -> Report:
    """Make a run, which writes to these sinks, and run to the end. Raises Ended: with what was done until then."""
    position = 0
    line = ProgressOfRun()
    with Interrupts() as interrupts, live_line(line.text, active=printed.line):
        running: Run | None = None
        try:
            with make() as running:
                interrupts.running = running  # before any word of it, which somebody may wait for
                if running.web:
                    click.echo(f"see the run at {running.web}", err=True)
                if printed.summary and sinks and running.guarantee is not None:
                    click.echo(f"each item is in the sinks {running.guarantee}", err=True)
                if running.resumed_from is not None and printed.summary:
                    checkpoint = running.resumed_from
                    at = f"{checkpoint.reached}, position {checkpoint.output.position:,}"
                    click.echo(f"resumes from checkpoint {checkpoint.number} at {at}", err=True)
                line.follow(running)
                for batch in running.batches():
                    position = batch.position + len(batch.metas)
                    interrupts.check()
            if interrupts.stopped and printed.summary:
                read = f"after {running.report.items_in:,} items"
                how = "the sources ended" if not running.stores_state else "stands at a checkpoint"
                click.echo(f"stopped by SIGTERM: {how} {read}, all output of which is released", err=True)
            return running.report
        except KeyboardInterrupt:
            position = max(position, running.written if running is not None else 0)
            done = _as_object(running.report) if running is not None else {}
            done = {**done, "items_out": position}
            done.pop("digest", None)  # of more than was handed out, perhaps
            raise RunEnded(_interrupted(position, interrupts.number), done) from None
        except Exception as error:
            if running is None:
                raise
            raise RunEnded(error, _as_object(running.report)) from error


def _interrupted(position: int, number: int) -> Interrupted:
    reached = f"at position {position}: the {position:,} items before it" if position else "before the first item"
    ending = " are released and intact" if position else ""
    return Interrupted(f"interrupted {reached}{ending}", number or 2)


def _as_object(report: Report) -> dict[str, Any]:
    """For JSON; a digest that is unknown is null."""
    held: dict[str, Any] | None = None
    if report.held is not None:
        steps = {name: keys._asdict() for name, keys in report.held.steps.items()}
        held = {**report.held._asdict(), "steps": steps}
    return {name: getattr(report, name) for name in _JSON_FIELDS} | {
        "digest": report.digest or None,
        "held": held,
    }


def print_report(report: Report, printed: Printed, algorithm: str, *, late_written: bool) -> None:
    if printed.json:
        click.echo(to_json(_as_object(report)))
        return
    if printed.summary:
        click.echo(_summary(report, algorithm), err=True)
    if report.late_items and not late_written:
        lost = (
            f"{report.late_items:,} late items were diverted and not written; --late-output PATH writes them to a file"
        )
        click.echo(lost, err=True)
    if printed.digest:
        click.echo(report.digest)


def _summary(report: Report, algorithm: str) -> str:
    engine = f"{report.engine}, {report.workers} workers" if report.workers > 1 else report.engine
    parts = [f"{report.peak_memory_bytes / 1e6:,.0f} MB"]
    for count, noun in (
        (report.tombstones, "tombstones"),
        (report.late_items, "late items"),
        (report.refused_frames, "refused frames"),
    ):
        if count:
            parts.append(f"{count:,} {noun}")
    if report.died:
        parts.append(
            f"replaced {', '.join(report.died)}: went back {report.recoveries} times, fed {report.fed_again:,} items "
            f"again, {report.recovering_s:.2f} s in all"
        )
    sinks = ", ".join(f"{name} {items:,}" for name, items in report.sinks.items())
    out = f"{report.items_out:,} out" + (f" ({sinks})" if len(report.sinks) > 1 else "")
    held = (
        f"\npaused, and the next call with this state goes on; holds {report.held}" if report.held is not None else ""
    )
    return (
        f"{report.graph}: {report.items_in:,} items in, {out} in {report.seconds:.2f} s "
        f"({report.items_per_second:,.0f} in/s, {engine}; {', '.join(parts)})\n"
        f"{algorithm} {report.digest}{held}"
    )
