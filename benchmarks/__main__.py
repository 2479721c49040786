"""`python -m benchmarks`: measures, prints tables, writes JSON; see --help."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.backfill import backfill
from benchmarks.disorder import disorder
from benchmarks.eventtime import eventtime
from benchmarks.held import held
from benchmarks.joins import joins
from benchmarks.latency import latency
from benchmarks.recording import recording
from benchmarks.rounds import Failed, Options, machine, median
from benchmarks.scaling import scaling
from benchmarks.spark import spark
from benchmarks.throughput import throughput
from benchmarks.windows import windows
from benchmarks.workloads import WORKLOADS

Section = Callable[[Options], tuple[list[Table], dict[str, Any]]]
SECTIONS: dict[str, Section] = {
    "throughput": throughput,
    "disorder": disorder,
    "eventtime": eventtime,
    "latency": latency,
    "joins": joins,
    "scaling": scaling,
    "spark": spark,
    "backfill": backfill,
    "recording": recording,
    "windows": windows,
    "held": held,
}
#: Sections that run only where they are named.
_ASKED_FOR = ("spark", "backfill", "held")
_OVER_WORKLOADS = ("throughput", "disorder")
#: Cores busy with other work from which the numbers are no good.
_OTHERS_CORES_MAX = 0.2


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure drift beside a plain Python loop over the same functions, one process a measurement.",
    )
    parser.add_argument("--items", type=_positive, metavar="N", help="items of a throughput measurement (1,000,000)")
    parser.add_argument("--rounds", type=_positive, metavar="N", help="times each is measured (3)")
    parser.add_argument("--quick", action="store_true", help="100,000 items and one round: less than a minute")
    parser.add_argument("--long", action="store_true", help="scaling to 10,000,000 items as well")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=[*SECTIONS, *WORKLOADS],
        metavar="NAME",
        help=f"a section ({', '.join(SECTIONS)}) or a workload ({', '.join(WORKLOADS)}); may be given again",
    )
    parser.add_argument("--json", type=Path, default=Path("benchmark.json"), metavar="PATH", help="(benchmark.json)")
    return parser


def _positive(text: str) -> int:
    digits = text.replace(",", "").replace("_", "")
    if not digits.isdecimal() or int(digits) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(digits)


def options_of(arguments: argparse.Namespace) -> Options:
    items = arguments.items or (100_000 if arguments.quick else 1_000_000)
    options = Options(
        items=items,
        rounds=arguments.rounds or (1 if arguments.quick else 3),
        workloads=tuple(name for name in WORKLOADS if name in arguments.only) or tuple(WORKLOADS),
        disorder_items=max(1, items // 4),
        scaling_items=tuple(size for size in (10_000, 100_000, 1_000_000) if size <= items) or (items,),
    )
    if arguments.quick:
        options.disorder = (0.0, 0.1)
        options.latency_items = 10_000
    if arguments.long:
        options.scaling_items += (10_000_000,)
    return options


def sections_of(only: Sequence[str]) -> list[str]:
    """Those named; those that run workloads, where only workloads are named; or all that need not be asked for."""
    usual = [name for name in SECTIONS if name not in _ASKED_FOR]
    return [name for name in SECTIONS if name in only] or list(_OVER_WORKLOADS if only else usual)


def others_cores(data: Any) -> list[float]:
    """How busy others were in each measurement, wherever in the results it stands."""
    if isinstance(data, dict):
        own = [data["others_cores"]] if isinstance(data.get("others_cores"), float) else []
        return own + [busy for value in data.values() for busy in others_cores(value)]
    return [busy for value in data for busy in others_cores(value)] if isinstance(data, list) else []


def main(argv: Sequence[str] | None = None) -> int:
    parser = arguments()
    parsed = parser.parse_args(argv)
    if not parsed.json.absolute().parent.is_dir():
        parser.error(f"there is no folder {parsed.json.parent} to write in")
    console = Console(width=None if sys.stdout.isatty() else 120)
    progress = Console(stderr=True)
    options = options_of(parsed)
    on = machine()
    result: dict[str, Any] = {
        "machine": on,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "items": options.items,
        "rounds": options.rounds,
        "sections": {},
    }
    console.print(f"{on['cores']} cores ({on['processor']}), {on['python']}, drift {on['drift']}", highlight=False)
    started = time.monotonic()
    failed: dict[str, str] = {}
    with progress.status("") as status:
        options.report = status.update if progress.is_terminal else lambda line: None
        for name in sections_of(parsed.only):
            try:
                tables, data = SECTIONS[name](options)
            except Failed as error:
                failed[name] = str(error)
                progress.print(f"[red]{name} failed:[/] {escape(str(error))}", highlight=False)
                continue
            result["sections"][name] = data
            for each in tables:
                console.print(each)
    result["failed"] = failed
    busy = others_cores(result["sections"])
    result["seconds"] = time.monotonic() - started
    result["others_cores"] = {"median": median(busy), "max": max(busy)} if busy else None
    result["load_average_after"] = os.getloadavg()
    if busy:
        loaded = sum(each > _OTHERS_CORES_MAX for each in busy)
        note = f"Other work kept {median(busy):.2f} cores busy (median), {max(busy):.2f} at most"
        warning = (
            f"; in {loaded} of {len(busy)} measurements more than {_OTHERS_CORES_MAX}: measure again when it is idle"
        )
        console.print(note + (warning if loaded else "") + ".", highlight=False)
    parsed.json.write_text(json.dumps(result, indent=1) + "\n")
    console.print(f"{result['seconds']:.0f} s; written to {parsed.json}", highlight=False)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
