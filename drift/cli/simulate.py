"""`drift simulate`: seeds of a graph on all cores, until one fails."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from drift.cli.errors import Differs, Interrupted, to_json
from drift_graph.errors import ImpureStep, SettingsError

if TYPE_CHECKING:
    from drift.cli.search import Search
    from drift.cli.seeding import Tally, Told

SEEDS = 1000
_DRAWN_PER_SECOND = 5
_FAULTS_SHOWN_MAX = 6


@click.command("simulate", short_help="Run a graph under many drawn schedules, each compared with the reference.")
@click.argument("place", metavar="[FILE:GRAPH|FILE:TEST]", default="")
@click.option("--seeds", type=click.IntRange(1), help=f"How many; {SEEDS:,} unless --minutes is given.")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="Stop after so long.")
@click.option("--first-seed", type=click.IntRange(0), default=0, show_default=True, help="Where to begin.")
@click.option("--seed", type=click.IntRange(0), help="Run this one and tell all about it.")
@click.option("--case", metavar="PATH", help="Run a case file; its graph is found by itself, unless it is given.")
@click.option(
    "--source", "source_specs", multiple=True, metavar="[NAME=]SPEC",
    help="Each run is given a piece of these items: PATH.txt, .log, .jsonl or .csv, also .gz; text:PATH and so on.",
)  # fmt: skip
@click.option("--items-max", type=click.IntRange(1), default=30, show_default=True, help="Items of a piece.")
@click.option("--losses", is_flag=True, help="Also lose messages; such a run ends early, and what is out must be right.")
@click.option("--no-purity", is_flag=True, help="Do not call steps again to see whether they are pure.")
@click.option("--processes", type=click.IntRange(1), help="How many; as many as there are cores by default.")
@click.option("--cases", metavar="FOLDER", help="Where the case file of a failure goes; .drift/cases by default.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.option("-q", "--quiet", is_flag=True, help="No progress line; no summary where all is well.")
def simulate_command(
    place: str,
    seeds: int | None,
    minutes: float | None,
    first_seed: int,
    seed: int | None,
    case: str | None,
    source_specs: Sequence[str],
    items_max: int,
    losses: bool,
    no_purity: bool,
    processes: int | None,
    cases: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Run a graph in the simulator, once for each seed, and compare every run with the reference, byte for byte.

    A seed decides the input, the workers, the batches, and what comes when: it is one run on every machine, whatever
    the hash seed or the number of processes. So a seed and a commit are the whole report of a bug.

    Items come from files (--source), from the strategies of a test under @drift.testing.deterministic (FILE:TEST), or
    are generated: text or numbers, whatever the steps take.

    \b
    drift simulate wordcount.py:graph
    drift simulate flights.py:graph --source flights.csv --minutes 10
    drift simulate test_flights.py:test_totals --seeds 100000
    drift simulate flights.py:graph --source flights.csv --seed 417
    drift simulate --case .drift/cases/flights-1f0c.json
    """
    if case is None and not place:
        raise SettingsError("say what to simulate, as FILE:GRAPH or FILE:TEST, or give a case file: --case PATH")
    if sum((seed is not None, case is not None, bool(seeds or minutes))) > 1:
        raise SettingsError("--seed, --case, and --seeds or --minutes are three things to run; ask for one")
    from drift.cli.search import Search
    from drift.cli.seeding import Setup
    from drift.engines import shipping

    one = seed is not None or case is not None
    count = 1 if one else processes or _cores()
    setup = Setup(
        shipping.path(), _absolute(place), _specs(source_specs), items_max, losses, not no_purity, cases and _path(cases)
    )  # fmt: skip
    with _signals(), Search(setup, count) as search:
        if case is not None:
            return _told(search, search.run_case(_path(case)), None, "", as_json=as_json)
        if seed is not None:
            return _told(search, search.tell(seed), seed, place, as_json=as_json)
        if not (quiet or as_json):
            inputs = ", ".join(f"{name}: {what}" for name, what in search.ready.inputs.items())
            click.echo(f"{search.ready.graph}: simulated on {_many(count, 'process', 'processes')}; {inputs}", err=True)
        total = seeds if seeds is not None or minutes is not None else SEEDS
        line = _Line(search, first_seed, total, minutes, active=sys.stderr.isatty() and not (quiet or as_json))
        try:
            with line:
                failed = search.run(first_seed, total, minutes * 60 if minutes is not None else None, line.tick)
        except KeyboardInterrupt:
            if not as_json:
                click.echo(_summary(search, count, "none failed so far"), err=True)
            raise Interrupted(f"interrupted after {search.tally.seeds:,} seeds", line.signal_number) from None
        if failed is not None:
            if not (quiet or as_json):
                click.echo(f"seed {failed} fails, after {search.tally.seeds:,} that do not; making it small", err=True)
            return _told(search, search.tell(failed), failed, place, as_json=as_json)
        if as_json:
            click.echo(to_json(_as_object(search, None, None, first_seed)))
        elif not quiet:
            click.echo(_summary(search, count, "none fails"))
        return 0
