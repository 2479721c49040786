"""`drift simulate`: seeds of a graph on all cores, until one fails."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from drift.cli.errors import Differs, Interrupted, RunEnded, to_json
from drift.cli.options import json_option
from drift.cli.progress import clock_text, live_line
from drift_graph.errors import ImpureStep, SettingsError

if TYPE_CHECKING:
    from drift.cli.search import Search
    from drift.cli.seeding import SeedReport, Setup, Tally

SEEDS = 1000
_FAULTS_SHOWN_MAX = 6
_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@click.command("simulate", short_help="Run a graph under many drawn schedules, each compared with the reference.")
@click.argument("target", metavar="[FILE:GRAPH|FILE:TEST]", default="")
@click.option("--seeds", type=click.IntRange(1), help=f"How many; {SEEDS:,} unless --minutes is given.")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="Stop after so long.")
@click.option("--first-seed", type=click.IntRange(0), default=0, show_default=True, help="Where to begin.")
@click.option("--seed", type=click.IntRange(0), help="Run this one and report it in full.")
@click.option("--case", metavar="PATH", help="Run a case file; it names its graph, unless you do.")
@click.option(
    "--source", "source_specs", multiple=True, metavar="[NAME=]SPEC",
    help="Each run reads a part of these items: PATH.txt, .log, .jsonl or .csv, also .gz; text:PATH and so on.",
)  # fmt: skip
@click.option(
    "--calls",
    "call_specs",
    multiple=True,
    metavar="[NAME=]FILE:FUNCTION",
    help="What a call is asked in place of the outside; by default its stub.",
)
@click.option("--items-max", type=click.IntRange(1), default=30, show_default=True, help="Items of a run, at most.")
@click.option(
    "--losses", is_flag=True, help="Also lose messages; such a run ends early, and what is out must be right."
)
@click.option("--deaths", is_flag=True, help="Also let processes die; the run recovers, and all output must be right.")
@click.option("--no-purity", is_flag=True, help="Do not call steps again to see whether they are pure.")
@click.option("--processes", type=click.IntRange(1), help="How many; as many as there are cores by default.")
@click.option("--cases", metavar="FOLDER", help="Where the case file of a failure goes; .drift/cases by default.")
@json_option
@click.option("-q", "--quiet", is_flag=True, help="No progress line; no summary where all is well.")
def simulate_command(
    target: str,
    seeds: int | None,
    minutes: float | None,
    first_seed: int,
    seed: int | None,
    case: str | None,
    source_specs: Sequence[str],
    call_specs: Sequence[str],
    items_max: int,
    losses: bool,
    deaths: bool,
    no_purity: bool,
    processes: int | None,
    cases: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Run a graph in the simulator, once for each seed, and compare every run with the reference, byte for byte.

    A seed decides the input, the workers, the batches, and what comes when: it is one run on every machine, whatever
    the hash seed or the number of processes. So a seed and a commit suffice to report a bug.

    Items come from files (--source), from the strategies of a test under @drift.testing.deterministic (FILE:TEST), or
    are generated: text or numbers, whatever the steps take. Nothing outside is asked: answers of calls are drawn by the
    test, or come from stubs, in any order, and with calls in flight when processes die.

    \b
    drift simulate wordcount.py:graph
    drift simulate flights.py:graph --source flights.csv --minutes 10
    drift simulate test_flights.py:test_totals --seeds 100000
    drift simulate flights.py:graph --source flights.csv --seed 417
    drift simulate --case .drift/cases/flights-1f0c.json
    """
    if case is None and not target:
        raise SettingsError("say what to simulate, as FILE:GRAPH or FILE:TEST, or give a case file: --case PATH")
    if sum((seed is not None, case is not None, bool(seeds or minutes))) > 1:
        raise SettingsError("--seed, --case, and --seeds or --minutes exclude each other; pass one")
    from drift.cli.seeding import Setup
    from drift.engines.surroundings import surroundings

    count = 1 if seed is not None or case is not None else processes or _CORES
    setup = Setup(surroundings(), target, tuple(source_specs), items_max, losses, not no_purity, cases, deaths,
                  tuple(call_specs))  # fmt: skip
    request = _Request(target, first_seed, seeds if seeds or minutes else SEEDS, minutes, as_json, quiet)
    with _signals(), _started(setup, count) as search:
        try:
            if case is not None:
                return _print_report(search, search.run_case(case), None, request)
            if seed is not None:
                return _print_report(search, search.run_seed(seed), seed, request)
            return _run_search(search, request)
        except KeyboardInterrupt as interrupt:
            if search.tally.seeds and not as_json:
                click.echo(_summary(search, "none has failed"), err=True)
            ended = Interrupted(f"interrupted after {_counted(search.tally.seeds, 'seed')}", _number_of(interrupt))
            raise RunEnded(ended, _as_object(search, None, None)) from None


@dataclasses.dataclass(frozen=True)
class _Request:
    """The arguments of the call."""

    target: str
    first_seed: int
    seeds: int | None
    minutes: float | None
    json: bool
    quiet: bool

    @property
    def words(self) -> bool:
        return not (self.json or self.quiet)


def _run_search(search: Search, request: _Request) -> int:
    """Run seeds; print what came of them."""
    if request.words:
        inputs = ", ".join(f"{name}: {what}" for name, what in search.ready.inputs.items())
        on = _counted(search.processes, "process", "processes")
        click.echo(f"{search.ready.graph}: simulated on {on}; {inputs}", err=True)
    seconds_max = request.minutes * 60 if request.minutes is not None else None
    with live_line(
        lambda: line_text(search.tally, search.seconds, request.seeds, request.minutes),
        active=request.words and sys.stderr.isatty(),
    ):
        failed = search.run(request.first_seed, request.seeds, seconds_max)
    if failed is not None:
        if request.words:
            passed = _counted(search.tally.seeds, "seed")
            click.echo(f"seed {failed.seed} fails; {passed} did not; making it small", err=True)
        reported = search.run_seed(failed.seed)
        if not reported.what:
            what = "a failure that depends on what ran before"
            text = (
                f"seed {failed.seed} failed in a process that had run other seeds, and does not fail by itself: "
                f"something in the graph's functions, or in drift, remembers what ran before. The finding there:\n\n"
                f"{failed.found}"
            )
            reported = dataclasses.replace(reported, what=what, text=text)
        return _print_report(search, reported, failed.seed, request)
    if request.json:
        click.echo(to_json(_as_object(search, None, None)))
    elif request.words:
        click.echo(_summary(search, "none fails"))
    return 0


def _print_report(search: Search, reported: SeedReport, seed: int | None, request: _Request) -> int:
    """Print what came of a seed or a case; the exit code, or the error that has it."""
    if request.json and not reported.what:
        click.echo(to_json(_as_object(search, seed, reported)))
        return 0
    if not reported.what:
        click.echo(reported.text if seed is None else f"seed {seed} does not fail: {reported.text}")
        return 0
    text = reported.text
    if seed is not None:
        text += f"\nseed          {seed}: drift simulate {quote(request.target)} --seed {seed}{_commit()}"
    if reported.step_error is not None:
        step, where = reported.step_error
        raise RunEnded(ImpureStep(text, step=step, where=where), _as_object(search, seed, reported))
    raise RunEnded(Differs(text), _as_object(search, seed, reported))


def _as_object(search: Search, seed: int | None, reported: SeedReport | None) -> dict[str, Any]:
    tally = search.tally
    return {
        "graph": search.ready.graph,
        "inputs": search.ready.inputs,
        "seeds": tally.seeds,
        "failed_seed": seed if reported is not None and reported.what else None,
        "failure": reported.what if reported is not None and reported.what else None,
        "case_file": reported.path if reported is not None else None,
        "case": reported.case if reported is not None else None,
        "commit": _commit_of(Path.cwd()),
        "items": tally.items,
        "not_in_order": dict(sorted(tally.faults.items())),
        "calls_checked": tally.checked_calls,
        "step_errors": tally.step_errors,
        "seconds": search.seconds,
        "seeds_per_second": tally.seeds / search.seconds if search.seconds else 0.0,
    }


def _summary(search: Search, ending: str) -> str:
    tally, seconds, processes = search.tally, search.seconds, search.processes
    rate = tally.seeds / seconds if seconds else 0.0
    lines = [
        f"{search.ready.graph}: {_counted(tally.seeds, 'seed')}, a schedule each, {ending}; {tally.items:,} items in "
        f"{seconds:.1f} s on {_counted(processes, 'process', 'processes')} ({rate:,.0f} runs/s, "
        f"{rate * 60 / processes:,.0f} a minute each)"
    ]
    if tally.faults:
        lines.append(f"not in order: {_faults(tally, len(tally.faults))}")
    if tally.checked_calls:
        lines.append(f"pure: {_counted(tally.checked_calls, 'call')} of steps gave the same in other processes")
    if tally.first_step_error is not None:
        seed, error = tally.first_step_error
        share = f"{tally.step_errors:,} of the runs ended early with an error, the same as the reference's"
        lines.append(f"{share}; at seed {seed}: {error}")
    return "\n".join(lines)


def _faults(tally: Tally, most: int) -> str:
    faults = Counter(tally.faults)  # another thread adds to it
    return ", ".join(f"{count:,} {name}" for name, count in faults.most_common(most))


def _counted(count: int, noun: str, plural: str = "") -> str:
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def _commit() -> str:
    commit = _commit_of(Path.cwd())
    return f"   (commit {commit})" if commit else ""


def _commit_of(folder: Path) -> str:
    """The commit that is checked out, and whether files differ from it; "" where there is none."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty= and changes"],
            cwd=folder, capture_output=True, text=True, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return described.stdout.strip()


def line_text(tally: Tally, seconds: float, total: int | None, minutes: float | None) -> str:
    """The text of the line, most important part first, since a narrow terminal cuts the end."""
    shares = [tally.seeds / total] if total else []
    shares += [seconds / (minutes * 60)] if minutes else []
    share_done = max(shares, default=0.0)
    rate = tally.seeds / seconds if seconds else 0.0
    parts = [
        f"{clock_text(seconds)} {min(share_done, 1.0):.0%}",
        f"{_counted(tally.seeds, 'seed')}, a schedule each ({rate:,.0f}/s, {rate * 60:,.0f} a minute)",
        f"{tally.items:,} items",
    ]
    if tally.faults:
        parts.append(_faults(tally, _FAULTS_SHOWN_MAX))
    return "  ".join(parts)


def _started(setup: Setup, count: int) -> Search:
    from drift.cli.search import Search

    try:
        return Search(setup, count)
    except KeyboardInterrupt as interrupt:
        raise Interrupted("interrupted before the first seed", _number_of(interrupt)) from None


def _number_of(interrupt: KeyboardInterrupt) -> int:
    """The number of the signal, which `_signals` adds where it is not that of Ctrl-C."""
    return next(iter(interrupt.args), signal.SIGINT)


@contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM ends it as Ctrl-C does, so that no process is left."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    before = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
