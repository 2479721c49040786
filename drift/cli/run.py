"""`drift run`: a graph, its inputs and an engine, from the command line."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import click

from drift.cli.errors import Ended, Interrupted, to_json
from drift.cli.interrupt import Interrupts, Noted
from drift.cli.late import LateOutput
from drift.cli.progress import ProgressLine
from drift.cli.specs import OnExisting, TimeOptions, by_name, policies, sink_of, source_of, writes_to_stdout
from drift.load import full_place, load_dataflow
from drift.run import ENGINES, Report, Run, made_run
from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow

_JSON_FIELDS = (
    "graph", "engine", "workers", "digest", "items_in", "items_out", "tombstones", "late_items", "seconds",
    "items_per_second", "peak_memory_bytes", "refused_frames",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What the call asks to be printed."""

    json: bool
    digest: bool
    quiet: bool
    items: bool  # some sink writes to standard output

    @property
    def line(self) -> bool:
        """A progress line: on a terminal, unless items would run through it."""
        return sys.stderr.isatty() and not self.quiet and not (self.items and sys.stdout.isatty())

    @property
    def summary(self) -> bool:
        """A summary for people: on a terminal, or where nothing else would be printed."""
        if self.quiet or self.json:
            return False
        return sys.stderr.isatty() or not (self.digest or self.items)


@click.command("run", short_help="Run a graph.")
@click.argument("graph", metavar="FILE:GRAPH")
@click.option(
    "--source", "source_specs", multiple=True, metavar="[NAME=]SPEC",
    help="Where a source's items come from: PATH.txt, .log, .jsonl or .csv, also .gz; text:PATH, jsonl:PATH, "
    "csv:PATH; - for the lines of standard input; tcp://HOST:PORT (listens for lines); zmq:ADDRESS, zmq-json:ADDRESS.",
)  # fmt: skip
@click.option(
    "--sink", "sink_specs", multiple=True, metavar="[NAME=]SPEC",
    help="Where a sink's items go: PATH.jsonl; - for standard output; text:- for the bare payloads.",
)  # fmt: skip
@click.option(
    "--on-existing", type=click.Choice(["continue", "replace", "error"]), default="continue", show_default=True,
    help="What to do with a sink's file that is there. continue: compare it line by line and add what is missing.",
)  # fmt: skip
@click.option("--engine", type=click.Choice(ENGINES), default="local", show_default=True, help="All give one output.")
@click.option("--workers", type=int, default=1, show_default=True, help="Processes that share the keys (zeromq).")
@click.option("--master", metavar="URL", help="Where Spark runs: local[4], spark://HOST:PORT, yarn; else local[*].")
@click.option("--partitions", type=int, help="Tasks that share the keys, and the output (spark).")
@click.option("--gang", is_flag=True, help="Cycles that change keys run on all tasks at once (spark).")
@click.option("--event-time", multiple=True, metavar="[NAME=]FIELD|FILE:FUNCTION", help="Time of a source's items.")
@click.option("--tie", multiple=True, metavar="[NAME=]FIELD|FILE:FUNCTION", help="Separates items of one time.")
@click.option("--lateness", multiple=True, metavar="[NAME=]N", help="How far items may be behind, in units of time.")
@click.option("--late", multiple=True, metavar="[NAME=]error|divert", help="What to do with an item behind that.")
@click.option("--late-output", metavar="PATH", help="JSON lines of the diverted items, with the reason of each.")
@click.option("--idle", multiple=True, metavar="[NAME=]MS", help="The others go on without a source this long silent.")
@click.option("--arrival", multiple=True, metavar="NAME", help="Order a source's items as they arrive.")
@click.option("--batch-items", type=int, help="Most items read from a source at once.")
@click.option("--in-flight-max", type=int, help="Most unsettled items of a source.")
@click.option("--transport", type=click.Choice(["ipc", "tcp"]), help="Between the processes of the run (zeromq).")
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
@click.option("--digest", "print_digest", is_flag=True, help="Print the digest of the output, as the last line.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.option("-q", "--quiet", is_flag=True, help="No progress line, no summary.")
def run_command(
    graph: str,
    source_specs: Sequence[str],
    sink_specs: Sequence[str],
    on_existing: str,
    engine: str,
    workers: int,
    master: str | None,
    partitions: int | None,
    gang: bool,
    late_output: str | None,
    digest_algorithm: str,
    record: str | None,
    print_digest: bool,
    as_json: bool,
    quiet: bool,
    batch_items: int | None,
    in_flight_max: int | None,
    transport: str | None,
    check_purity: bool,
    **times: Sequence[str],
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
    """
    dataflow = load_dataflow(graph)
    sinks = by_name("--sink", sink_specs, "sink", [sink.name for sink in dataflow.sinks])
    wanted = Wanted(as_json, print_digest, quiet, any(map(writes_to_stdout, sinks.values())))
    if as_json and wanted.items:
        raise SettingsError("--json has standard output for itself; give the sink a file")
    if len(set(sinks.values())) < len(sinks) and not wanted.items:
        raise SettingsError("two sinks are given one file; give each its own")
    existing = cast(OnExisting, on_existing)
    more = {"batch_items": batch_items, "in_flight_max": in_flight_max, "transport": transport, "master": master}
    more |= {"partitions": partitions, "gang": gang or None}
    arguments: dict[str, Any] = {
        "engine": engine,
        "workers": workers,
        "times": policies(dataflow, TimeOptions(**times)),
        "sinks": {name: Noted(sink_of(spec, existing)) for name, spec in sinks.items()},
        "digest": digest_algorithm,
        "check_purity": check_purity,
        "record": record,
        "place": full_place(graph),
        **{name: value for name, value in more.items() if value is not None},
    }
    sources = _sources(dataflow, source_specs, quiet=quiet or as_json)
    with LateOutput(late_output, existing) as on_late:
        report = driven(lambda: made_run(dataflow, sources, on_late=on_late, **arguments), arguments["sinks"], wanted)
    print_report(report, wanted, digest_algorithm, late_kept=late_output is not None)


def _sources(dataflow: Dataflow, specs: Sequence[str], *, quiet: bool) -> dict[str, Any]:
    names = [source.name for source in dataflow.sources]
    given = by_name("--source", specs, "source", names)
    missing = [name for name in names if name not in given]
    if missing:
        raise SettingsError(f"nothing is given for source {missing[0]!r}; add --source {missing[0]}=PATH")
    sources = {name: source_of(spec) for name, spec in given.items()}
    for name, source in sources.items():
        address = getattr(source, "address", None)
        if address is not None and not quiet:
            shown = address if isinstance(address, str) else ":".join(map(str, address))
            click.echo(f"source {name!r} listens at {shown}", err=True)
    return sources


def driven(make: Callable[[], Run], sinks: Mapping[str, Noted], wanted: Wanted) -> Report:
    """Make a run, which writes to these sinks, and run to the end.

    Raises:
        Ended: with what was done until then.
    """
    position = 0
    with Interrupts() as interrupts, ProgressLine(active=wanted.line) as line:
        running: Run | None = None
        try:
            with make() as running:
                line.follow(running)
                for piece in running.pieces():
                    position = piece.position + len(piece.metas)
                    interrupts.check()
            return running.report
        except KeyboardInterrupt:
            position = max(position, *(sink.position for sink in sinks.values()), 0)
            done = _as_object(running.report) if running is not None else {}
            done = {**done, "items_out": position}
            done.pop("digest", None)  # of more than was handed out, perhaps
            raise Ended(_interrupted(position, interrupts.number), done) from None
        except Exception as error:
            if running is None:
                raise
            raise Ended(error, _as_object(running.report)) from error


def _interrupted(position: int, number: int) -> Interrupted:
    reached = f"at position {position}: the {position:,} items before it" if position else "before the first item"
    stand = " are released and intact" if position else ""
    return Interrupted(f"interrupted {reached}{stand}", number or 2)


def _as_object(report: Report) -> dict[str, Any]:
    return {name: getattr(report, name) for name in _JSON_FIELDS}


def print_report(report: Report, wanted: Wanted, algorithm: str, *, late_kept: bool) -> None:
    if wanted.json:
        click.echo(to_json(_as_object(report)))
        return
    if wanted.summary:
        click.echo(_summary(report, algorithm), err=True)
    if report.late_items and not late_kept:
        kept = f"{report.late_items:,} late items were diverted and not kept; --late-output PATH keeps them"
        click.echo(kept, err=True)
    if wanted.digest:
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
    return (
        f"{report.graph}: {report.items_in:,} items in, {report.items_out:,} out in {report.seconds:.2f} s "
        f"({report.items_per_second:,.0f} in/s, {engine}; {', '.join(parts)})\n"
        f"{algorithm} {report.digest}"
    )
